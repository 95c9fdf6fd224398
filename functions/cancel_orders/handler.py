"""Cancels orders and gives their stock back, from the cancellation queue or directly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inventory_orders.clock import SystemClock
from inventory_orders.domain.order_command import Action, OrderCommand
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.order_commands import RULES, carry_out
from inventory_orders.invocation.sqs_batch import SqsBatch, answers_unsupported_events
from inventory_orders.invocation.telemetry import emit_commands, emit_messages, logger, metrics
from inventory_orders.messages.parse import parse_cancellation, parse_command

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

runtime.prepare_engine()


@logger.inject_lambda_context
@metrics.log_metrics
@answers_unsupported_events
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Cancel orders, each once.

    Returns:
        For a batch of SQS messages the partial batch response. For a direct invocation an answer with `result`
        and the `orderId`, or with what to do.
    """
    if not direct.is_queue_event(event):
        return direct.answer(lambda: _command(event, context))
    batch: SqsBatch[OrderCommand] = SqsBatch.read(
        event, runtime.queues(), runtime.time_left(context)
    )
    cancellations = batch.parse(lambda message: parse_cancellation(message.body))
    report = runtime.committer().apply(cancellations, runtime.deadline(context), batch.age)
    batch.settle(report.outcomes, RULES)
    emit_commands(cancellations, report, SystemClock().now())
    emit_messages(batch)
    return batch.response


def _command(event: object, context: LambdaContext) -> direct.Answer:
    command = parse_command(event, "cancel_orders", default="cancel")
    cancellation = OrderCommand(command["orderId"], Action.CANCEL)
    leave_tombstone = command.get("leaveTombstone", False)
    return carry_out(cancellation, context, leave_tombstone=leave_tombstone)
