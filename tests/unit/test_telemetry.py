"""The metrics of orders, and a stage without metrics."""

import importlib.util

from inventory_orders.domain.order import CancelledBeforehand, Order
from inventory_orders.domain.record import OrderRecord
from inventory_orders.domain.rejection import Rejection, RejectionReason
from inventory_orders.engine.outcomes import ChangeOutcome, CommitReport, rejected
from inventory_orders.engine.retrying_client import CommitStats
from inventory_orders.errors import Outcome
from inventory_orders.invocation import telemetry
from operations import emf


def new_telemetry():
    """Import the module again, so that it reads its settings again and its counters are empty."""
    spec = importlib.util.spec_from_file_location("telemetry_of_a_new_process", telemetry.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_order_that_was_cancelled_before_it_came_counts_as_cancelled(capsys):
    tombstone = OrderRecord("o", None, (), "CANCELLED", 1, "", "")
    order = CancelledBeforehand(Order("o", "u", {"p": 1}), tombstone)
    done = ChangeOutcome(Outcome.APPLIED, applied=order)
    process = new_telemetry()
    process.emit_orders(CommitReport((done,), CommitStats(), None), [order.arrived])
    process.metrics.flush_metrics()
    samples = list(emf.parse(capsys.readouterr().out.splitlines()))
    totals = {
        name: sum(emf.values_of(samples, name)) for name in ("OrdersPlaced", "OrdersCancelled")
    }
    assert totals == {"OrdersPlaced": 0, "OrdersCancelled": 1}


def test_without_metrics_a_handler_emits_none_not_even_those_with_a_reason(monkeypatch, capsys):
    """The setting `monitoring: basic` sets the Powertools variable that turns metrics off."""
    unknown = rejected(Rejection(RejectionReason.UNKNOWN_PRODUCT, "p"))
    report = CommitReport((unknown,), CommitStats(), None)
    report.stats.measured["VersionConflict"] += [True] * 150

    def emitted():
        process = new_telemetry()
        process.emit_orders(report, [Order("o", "u", {"p": 1})])
        process.metrics.flush_metrics()
        return [
            (sample.name, dict(sample.dimensions).get("reason"))
            for sample in emf.parse(capsys.readouterr().out.splitlines())
        ]

    before = emitted()
    assert ("OrdersRejected", "UNKNOWN_PRODUCT") in before
    assert ("VersionConflict", None) in before
    monkeypatch.setenv("POWERTOOLS_METRICS_DISABLED", "true")
    assert emitted() == []
