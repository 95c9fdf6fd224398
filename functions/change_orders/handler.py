"""Confirms, extends, amends, fulfils, cancels, returns and expires orders, and takes hand-overs back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from inventory_orders.clock import SystemClock
from inventory_orders.domain.rejection import RejectionReason
from inventory_orders.engine.outcomes import returned
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.sqs import SqsCalls
from inventory_orders.invocation.sqs_batch import QueueRules, SqsBatch, read_messages
from inventory_orders.invocation.telemetry import (
    emit_commands,
    emit_messages,
    log_queue_errors,
    logger,
    metrics,
)
from inventory_orders.messages.commands import (
    order_command,
    parse_command,
    parse_expiry,
    parse_order_command,
)

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from inventory_orders.domain.order_command import OrderCommand

runtime.prepare("store", "queue", "engine")

RULES = QueueRules(
    # The order, its confirmation or its fulfilment may still be on its way.
    may_be_early=frozenset(
        {
            RejectionReason.UNKNOWN_ORDER,
            RejectionReason.NOT_CONFIRMED,
            RejectionReason.NOT_FULFILLED,
        }
    ),
    # If it were acknowledged, the command would be lost. If it were returned, it would come back over and over.
    invalid=frozenset({RejectionReason.UNKNOWN_ORDER_STATUS}),
)

# Holds do not expire while more commands than this wait or were returned, or while SQS does not answer, because one of the
# commands may confirm a payment. SQS's number may be a minute old or older:
# docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html
# So this check only supplements the grace period. After a grace period of a minute, the number includes all payments from before
# the end of the hold, and up to this many commands are carried out within that minute.
_MAX_WAITING = 500
_WAIT_SECONDS = 10.0

# Returned commands are counted for this long: an outage of an hour, the time until the commands returned in it are back, and a
# margin. Older ones are for orders that never arrive. If they counted, a few of them a minute would keep all holds from ending.
_RETURNED_COUNT_SECONDS = 7200.0


@logger.inject_lambda_context
@metrics.log_metrics
@runtime.refuse_unsupported_events
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Carry out commands, each exactly once, and expire holds.

    Returns:
        For a batch of SQS messages, the partial batch response. For a direct invocation, an answer with `result` and the
        order's state; after a failure, it says what to do.
    """
    messages = read_messages(event)
    if messages is None:
        return direct.answer(lambda: _command(event, context))
    expires = runtime.process().expiry_queue.feeds(messages)
    queue = runtime.process().expiry_queue if expires else runtime.process().queue
    batch: SqsBatch[OrderCommand] = SqsBatch(messages, queue, runtime.end_of(context))
    if expires:
        ended_by = SystemClock().now() - timedelta(seconds=runtime.process().hold_grace_seconds)
        commands = batch.parse(lambda message: parse_expiry(message.body, ended_by))
    else:
        terms = replace(runtime.process().terms, keeps_rejections=True)
        commands = batch.parse(lambda message: parse_order_command(message.body, terms))
    # Returned messages are hidden, or were replaced by delayed copies.
    hidden = ("NotVisible", "Delayed") if batch.age < _RETURNED_COUNT_SECONDS else ()
    if expires and _commands_waiting(context, *hidden) > _MAX_WAITING:
        wait = returned("COMMANDS_WAITING", "a confirmation may be among them", _WAIT_SECONDS)
        response = batch.settle([wait] * len(commands), RULES)
    else:
        report = runtime.process().engine.apply(commands, runtime.deadline(context), batch.age)
        response = batch.settle(report.outcomes, RULES)
        emit_commands(report, commands, SystemClock().now())
    emit_messages(batch)
    return response


def _commands_waiting(context: LambdaContext, *hidden: str) -> float:
    """Estimate how many commands are waiting in the queue; infinity if SQS does not answer."""
    calls = SqsCalls(runtime.process().queue, runtime.end_of(context))
    waiting = calls.count_waiting(*hidden)
    log_queue_errors(calls.errors)
    return waiting


def _command(event: object, context: LambdaContext) -> direct.Answer:
    command = order_command(parse_command(event, "change_orders"), runtime.process().terms)
    outcome, client = direct.carry_out(command, context), runtime.process().engine.client
    return direct.of_command(command, outcome, client, runtime.deadline(context))
