"""The metrics of an order that was cancelled before it arrived."""

from inventory_orders.domain.order import CancelledBeforehand, Order
from inventory_orders.domain.record import OrderRecord
from inventory_orders.engine.outcomes import ChangeOutcome, CommitReport
from inventory_orders.engine.retrying_client import CommitStats
from inventory_orders.errors import Outcome
from operations import emf
from tests.support.telemetry import new_telemetry


def test_an_order_that_was_cancelled_before_it_came_counts_as_cancelled(capsys):
    tombstone = OrderRecord("o", None, (), "CANCELLED", 1, "", "")
    order = CancelledBeforehand(Order("o", "u", {"p": 1}), tombstone)
    done = ChangeOutcome(Outcome.APPLIED, applied=order)
    process = new_telemetry()
    process.emit_orders(CommitReport((done,), CommitStats([False], retries=[0]), None))
    process.metrics.flush_metrics()
    samples = list(emf.parse(capsys.readouterr().out.splitlines()))
    totals = {
        name: sum(emf.values_of(samples, name)) for name in ("OrdersPlaced", "OrdersCancelled")
    }
    assert totals == {"OrdersPlaced": 0, "OrdersCancelled": 1}
