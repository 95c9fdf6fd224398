"""Telemetry: with `monitoring: basic`, handlers emit the metrics of its alarms alone."""

import importlib.util
from types import SimpleNamespace

from infra.watched import BASIC_METRICS
from inventory_orders.domain.change import OrderRecord, Rejection, RejectionReason
from inventory_orders.domain.order import CancelledBeforehand, Order
from inventory_orders.engine.outcomes import ChangeOutcome, CommitReport, rejected
from inventory_orders.engine.retrying_client import CommitStats
from inventory_orders.errors import Verdict
from inventory_orders.invocation import telemetry
from operations import emf


def new_process():
    """Telemetry as a new process imports it."""
    spec = importlib.util.spec_from_file_location("telemetry_of_a_new_process", telemetry.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_only_the_metrics_that_the_stack_names_are_emitted(monkeypatch, capsys):
    unknown = rejected(Rejection(RejectionReason.UNKNOWN_PRODUCT, "p"))
    report = CommitReport((unknown,), CommitStats([True], retries=[1], exhausted=[False]), None)
    batch = SimpleNamespace(results=(), queue_errors=(), age=3.0)

    def emitted():
        process = new_process()
        process.emit_orders(report)
        process.emit_messages(batch)
        process.metrics.flush_metrics()
        return {sample.name for sample in emf.parse(capsys.readouterr().out.splitlines())}

    assert emitted() > {"OrdersRejected", "VersionConflict", *BASIC_METRICS}
    monkeypatch.setenv("METRICS", " ".join(BASIC_METRICS))
    assert emitted() == set(BASIC_METRICS)


def test_an_order_that_was_cancelled_before_it_came_counts_as_cancelled(capsys):
    tombstone = OrderRecord("o", None, (), "CANCELLED", 1, "", "")
    order = CancelledBeforehand(Order("o", "u", {"p": 1}), tombstone)
    done = ChangeOutcome(Verdict.APPLIED, applied=order)
    process = new_process()
    process.emit_orders(CommitReport((done,), CommitStats([False], retries=[0]), None))
    process.metrics.flush_metrics()
    samples = list(emf.parse(capsys.readouterr().out.splitlines()))
    totals = {
        name: sum(emf.values_of(samples, name)) for name in ("OrdersPlaced", "OrdersCancelled")
    }
    assert totals == {"OrdersPlaced": 0, "OrdersCancelled": 1}
