"""Cancels orders and gives their stock back, from the cancellation queue or directly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inventory_orders.domain.change import OrderKey, RejectionReason
from inventory_orders.domain.order import Cancellation, PlacedOrderCancellation
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.sqs_batch import (
    QueueRules,
    SqsBatch,
    answers_unsupported_events,
)
from inventory_orders.invocation.telemetry import emit_changes, emit_report, logger, metrics
from inventory_orders.messages.parse import parse_cancellation, parse_command

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from inventory_orders.domain.change import Change, OrderLine

runtime.prepare()

RULES = QueueRules(
    # Cannot happen as long as a cancellation says nothing but its order's id.
    id_reused_code="CANCELLATION_ID_REUSED",
    # Acknowledged, the cancellation would be lost; returned, it would come back in vain.
    poison=frozenset({RejectionReason.UNKNOWN_ORDER_STATUS}),
)


@logger.inject_lambda_context
@metrics.log_metrics
@answers_unsupported_events
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Take orders from PENDING to CANCELLED, each once.

    Returns:
        For a batch of SQS messages the partial batch response. For a direct invocation an answer with `result`
        and the `orderId`, or with what to do.
    """
    if not direct.is_queue_event(event):
        return direct.answer(lambda: _command(event, context))
    batch: SqsBatch[Cancellation] = SqsBatch.read(
        event, runtime.queues(), runtime.time_left(context)
    )
    cancellations = batch.parse(parse_cancellation)
    report = runtime.committer().apply(cancellations, runtime.deadline(context), batch.age)
    batch.settle(report.outcomes, RULES)
    emit_changes(batch, report)
    return batch.response


def _command(event: object, context: LambdaContext) -> direct.Answer:
    command = parse_command(event, "cancel_orders", default="cancel")
    order_id = command["orderId"]
    if not command.get("leaveTombstone", False) and not _is_known(order_id, context):
        return {"orderId": order_id} | direct.rejected(
            "UNKNOWN_ORDER",
            f"there is no order {order_id}; with leaveTombstone it would be cancelled before it arrives",
        )
    report = runtime.committer().apply([Cancellation(order_id)], runtime.deadline(context))
    emit_report(report)
    (outcome,) = report.outcomes
    result = {"orderId": order_id} | direct.of_outcome(outcome, RULES.id_reused_code)
    if outcome.applied is not None:
        result["stockReturned"] = {
            line.product_id: line.quantity
            for line in _cancelled_lines(outcome.applied)
            if line.product_id in outcome.after
        }
    return result


def _is_known(order_id: str, context: LambdaContext) -> bool:
    client, deadline = runtime.committer().client, runtime.deadline(context)
    key = OrderKey(order_id)
    return client.call(lambda: client.store.get_record(key), deadline) is not None


def _cancelled_lines(applied: Change) -> tuple[OrderLine, ...]:
    return applied.order.lines if isinstance(applied, PlacedOrderCancellation) else ()
