"""Places orders, in batches from the order queues or one by one in direct invocations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inventory_orders.domain.record import OrderStatus
from inventory_orders.engine.outcomes import ChangeOutcome
from inventory_orders.errors import Outcome
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.sqs_batch import SqsBatch, read_messages
from inventory_orders.invocation.telemetry import emit_messages, emit_orders, logger, metrics
from inventory_orders.messages.commands import parse_order, parse_order_event

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from inventory_orders.domain.order import Order

runtime.prepare("store", "queue", "engine_with_lanes", "hold_seconds", "locations")


@logger.inject_lambda_context
@metrics.log_metrics
@runtime.refuse_unsupported_events
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Place or reject orders, each exactly once.

    Returns:
        For a batch of SQS messages, the partial batch response. For a direct invocation, an answer with `result` and the
        order's state; after a failure, it says what to do.
    """
    messages = read_messages(event)
    if messages is None:
        return direct.answer(lambda: _place(event, context))
    queue, door = runtime.process().queue_of(messages)
    batch: SqsBatch[Order] = SqsBatch(messages, queue, runtime.end_of(context))
    defaults = runtime.process().hold_seconds, runtime.process().locations
    orders = batch.parse(
        lambda message: parse_order(
            *(message.body, message.group, *defaults, message.request_id, message.placed_by),
            counts_users=runtime.process().counts_users,
        )
    )
    report = runtime.process().engine_with_lanes.apply(orders, runtime.deadline(context), batch.age)
    response = batch.settle(report.outcomes)
    emit_orders(report, door)
    emit_messages(batch)
    return response


def _place(event: object, context: LambdaContext) -> direct.Answer:
    process, deadline = runtime.process(), runtime.deadline(context)
    defaults, engine = (process.hold_seconds, process.locations), process.engine_with_lanes
    order = parse_order_event(event, *defaults, counts_users=process.counts_users)
    report = engine.apply([order], deadline)
    emit_orders(report)
    outcome = report.outcome_of_one()
    if outcome.kind is Outcome.INVALID:
        return direct.of_outcome(outcome)
    if outcome.kind is Outcome.RETURNED:
        return direct.of_outcome(outcome) | {"orderId": order.order_id}
    if outcome.applied is order:
        # The row was just written, so there is no need to read it.
        return direct.of_outcome(outcome) | direct.of_order(
            order.record(None, outcome.after, outcome.at)
        )
    record = direct.read_order(order.order_id, engine.client, deadline)
    is_replay = outcome.kind is Outcome.REPLAYED
    if is_replay and record is not None and record.reason is not None:
        # The answer is the same as the first time. Otherwise a sender that repeats the order could believe that it was placed.
        outcome = ChangeOutcome(Outcome.REJECTED, cause=record.reason, detail=_STAYS)
    answer = direct.of_outcome(outcome) | {"orderId": order.order_id} | direct.of_order(record)
    if answer.get("status") in (OrderStatus.CANCELLED, OrderStatus.EXPIRED):
        answer["message"] = _IS_OVER.format(answer["status"])
    return answer


_STAYS = "the order was already rejected, and that is final"
_IS_OVER = "the order is {} and takes no stock; to order again, send it under a new orderId"
