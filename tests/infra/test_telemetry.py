"""Telemetry: with `monitoring: basic`, handlers only emit the metrics of its alarms."""

from types import SimpleNamespace

from infra.watched import BASIC_METRICS
from inventory_orders.domain.rejection import Rejection, RejectionReason
from inventory_orders.engine.outcomes import CommitReport, rejected
from inventory_orders.engine.retrying_client import CommitStats
from operations import emf
from tests.support.telemetry import new_telemetry


def test_only_the_metrics_that_the_stack_names_are_emitted(monkeypatch, capsys):
    unknown = rejected(Rejection(RejectionReason.UNKNOWN_PRODUCT, "p"))
    report = CommitReport((unknown,), CommitStats([True], retries=[1], exhausted=[False]), None)
    batch = SimpleNamespace(ends={}, outcomes={}, contents={}, queue_errors=(), age=3.0)

    def emitted():
        process = new_telemetry()
        process.emit_orders(report)
        process.emit_messages(batch)
        process.metrics.flush_metrics()
        return {sample.name for sample in emf.parse(capsys.readouterr().out.splitlines())}

    assert emitted() > {"OrdersRejected", "VersionConflict", *BASIC_METRICS}
    monkeypatch.setenv("METRICS", " ".join(BASIC_METRICS))
    assert emitted() == set(BASIC_METRICS)
