"""Books receipts, corrections and returns, from the stock queue or directly; and plain decrements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inventory_orders import direct, runtime
from inventory_orders.decrement import REASON
from inventory_orders.messages import parse_adjustment, parse_command
from inventory_orders.model import Adjustment, RefusalReason
from inventory_orders.telemetry import (
    logger,
    metrics,
    record_changes,
    record_effort,
    record_report,
)

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

ID_REUSED = "ADJUSTMENT_ID_REUSED"

# From the queue these may only be early: the receipt or the product that they need may be on its way.
MAY_BE_EARLY = frozenset({RefusalReason.UNKNOWN_PRODUCT, RefusalReason.BELOW_FLOOR})


@logger.inject_lambda_context
@metrics.log_metrics
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Apply adjustments, each exactly once.

    Returns:
        For a batch of SQS messages the partial batch response. For a direct invocation an answer with `result`
        and the product's new `stockCount`, `version` and `status` (which an atomic decrement does not know, because
        it reads nothing), or with what to do.
    """
    if direct.is_queue_event(event):
        return runtime.answer_queue(
            event, context, parse_adjustment, ID_REUSED, record_changes, MAY_BE_EARLY
        )
    return direct.answer(lambda: _command(event, context))


def _command(event: object, context: LambdaContext) -> direct.Answer:
    command = parse_command(event, "adjust_stock", default="adjust")
    settings, deadline = runtime.Settings.from_environment(), runtime.deadline(context)
    product_id = command["productId"]
    if command.get("mode") == "atomic":
        done = runtime.atomic_decrement(settings).apply(
            product_id, command["adjustmentId"], command["quantity"], deadline
        )
        record_effort(done.effort, (0,) if done.report is None else ())
        if done.report is None:
            return {"result": "APPLIED", "productId": product_id, "path": "atomic"}
        report = done.report
    else:
        delta = command["delta"] if "delta" in command else -command["quantity"]
        change = Adjustment(
            product_id, command["adjustmentId"], delta, command.get("reason", REASON)
        )
        report = runtime.committer(settings).apply([change], deadline)
    record_report(report)
    (outcome,) = report.outcomes
    result = direct.of_outcome(outcome, ID_REUSED)
    if command["action"] == "decrement":
        result["path"] = "optimistic"
    if product_id in outcome.after:
        product = outcome.after[product_id]
        return result | {
            "productId": product_id,
            "stockCount": product.stock_count,
            "version": product.version,
            "status": product.status.value,
        }
    writer = runtime.committer(settings).writer
    state = writer.read(lambda: writer.store.get_product(product_id), deadline)
    return result | (direct.of_product(state) if state is not None else {"productId": product_id})
