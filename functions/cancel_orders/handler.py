"""Cancels orders and gives their stock back, from the cancellation queue or directly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inventory_orders import direct, runtime
from inventory_orders.messages import parse_cancellation, parse_command
from inventory_orders.model import Cancellation, PlacedOrderCancellation, order_key
from inventory_orders.telemetry import logger, metrics, record_changes, record_report

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

# Cannot happen as long as a cancellation says nothing but its order's id.
ID_REUSED = "CANCELLATION_ID_REUSED"


@logger.inject_lambda_context
@metrics.log_metrics
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Take orders from PENDING to CANCELLED, each once.

    Returns:
        For a batch of SQS messages the partial batch response. For a direct invocation an answer with `result`
        and the `orderId`, or with what to do.
    """
    if direct.is_queue_event(event):
        return runtime.answer_queue(event, context, parse_cancellation, ID_REUSED, record_changes)
    return direct.answer(lambda: _command(event, context))


def _command(event: object, context: LambdaContext) -> direct.Answer:
    command = parse_command(event, "cancel_orders", default="cancel")
    settings = runtime.Settings.from_environment()
    order_id = command["orderId"]
    if (
        not command.get("leaveTombstone")
        and runtime.store(settings).get(order_key(order_id)) is None
    ):
        return {"orderId": order_id} | direct.refused(
            "UNKNOWN_ORDER",
            f"there is no order {order_id}; with leaveTombstone it would be cancelled before it arrives",
        )
    report = runtime.committer(settings).apply([Cancellation(order_id)], runtime.deadline(context))
    record_report(report)
    (outcome,) = report.outcomes
    result = {"orderId": order_id} | direct.of_outcome(outcome, ID_REUSED)
    if outcome.applied is not None:
        result["stockReturned"] = {
            product_id: outcome.applied.lines[product_id]["quantity"]
            for product_id in outcome.after
            if isinstance(outcome.applied, PlacedOrderCancellation)
        }
    return result
