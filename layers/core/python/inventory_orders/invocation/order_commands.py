"""Commands on orders: the rules of their queues, their metrics, and direct invocations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.order_command import MAX_HOLD, OrderCommand, Transition
from inventory_orders.domain.record import OrderAction, OrderKey
from inventory_orders.domain.rejection import RejectionReason
from inventory_orders.engine.outcomes import ChangeOutcome, CommitReport
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import Verdict
from inventory_orders.invocation import direct, runtime
from inventory_orders.invocation.sqs_batch import QueueRules
from inventory_orders.invocation.telemetry import add, emit_stats

RULES = QueueRules(
    # The order, its confirmation or its fulfilment may be on its way.
    may_be_early=frozenset(
        {
            RejectionReason.UNKNOWN_ORDER,
            RejectionReason.NOT_CONFIRMED,
            RejectionReason.NOT_FULFILLED,
        }
    ),
    # Acknowledged, the command would be lost; returned, it would come back again and again.
    poison=frozenset({RejectionReason.UNKNOWN_ORDER_STATUS}),
)

_REACHED = {
    "CONFIRMED": "OrdersConfirmed",
    "FULFILLED": "OrdersFulfilled",
    "CANCELLED": "OrdersCancelled",
    "EXPIRED": "OrdersExpired",
}
"""The metric that counts the orders that reached a status."""


def emit_commands(commands: Sequence[OrderCommand], report: CommitReport, now: datetime) -> None:
    """Count what commands did to orders, and say how late holds expired."""
    applied = (outcome.applied for outcome in report.outcomes)
    _emit_transitions([change for change in applied if isinstance(change, Transition)], now)
    late_payments = sum(
        command.action is OrderAction.CONFIRM and outcome.is_written_rejection
        for command, outcome in zip(commands, report.outcomes, strict=True)
    )
    add("ConfirmationsRejected", late_payments)
    emit_stats(report.stats, report.failure)


def _emit_transitions(done: Sequence[Transition], now: datetime) -> None:
    reached = Counter(change.status for change in done if change.status != change.order.status)
    for status, count in reached.items():
        add(_REACHED[status], count)
    add("OrdersReturned", sum(c.command.action is OrderAction.RETURN for c in done))
    for change in done:
        if change.command.action is OrderAction.EXPIRE and change.order.expires_at is not None:
            late = now - datetime.fromisoformat(change.order.expires_at)
            add("ExpiryDelay", late.total_seconds())


def carry_out(command: OrderCommand, context: Any) -> ChangeOutcome:
    """Carry out one command at once. Only the queue cancels an order that is not there yet.

    Args:
        command: The command.
        context: Of the invocation.

    Raises:
        VerdictError: Why it was not carried out.
    """
    engine, deadline = runtime.process().engine, runtime.deadline(context)
    client, key = engine.client, OrderKey(command.order_id)
    cancels_all = command.action is OrderAction.CANCEL and command.part is None
    if cancels_all and client.call(lambda: client.store.get_record(key), deadline) is None:
        return ChangeOutcome(
            Verdict.REJECTED,
            cause=RejectionReason.UNKNOWN_ORDER.value,
            detail=f"there is no order {command.order_id}; sent to OrderCommandQueue, the command cancels it before it "
            "arrives",
        )
    report = engine.apply([command], deadline)
    emit_commands([command], report, SystemClock().now())
    return report.outcome_of_one()


def answer(
    command: OrderCommand, outcome: ChangeOutcome, client: RetryingClient, deadline: Deadline
) -> direct.Answer:
    """The answer to a command: `result`, the order's present status, and what went back into stock; or what to do.

    Args:
        command: The command.
        outcome: Its outcome.
        client: Reads the order that a repeated command is about.
        deadline: When to give up reading it.

    Raises:
        StoreError: It could not be read.
    """
    result = direct.of_outcome(outcome)
    if outcome.verdict is Verdict.POISON:
        return result
    result["orderId"] = command.order_id
    order = None
    if isinstance(outcome.applied, Transition):
        order = outcome.applied.record(None, outcome.after, outcome.at).after
        gives_back = outcome.applied.gives_back
        result["stockReturned"] = {
            product_id: gives_back[product_id] for product_id in outcome.after
        }
    elif outcome.verdict in (Verdict.APPLIED, Verdict.REPLAYED):
        order = direct.read_order(command.order_id, client, deadline)
    if command.until and order is not None and command.until > (order.expires_at or command.until):
        result["message"] = (
            f"until: the hold ends at {order.expires_at}, not at {command.until}, because a hold ends at most "
            f"{MAX_HOLD.days} days after the order"
        )
    return result | direct.of_order(order)
