"""Writes logs and metrics, and counts each outcome once, after it has become durable.

Log lines may have ids as fields, but metrics never have ids as dimensions.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit
from aws_lambda_powertools.metrics.functions import is_metrics_disabled

from inventory_orders.domain.location import in_words, public_key
from inventory_orders.domain.order import CancelledBeforehand, Order
from inventory_orders.domain.order_command import Transition
from inventory_orders.domain.record import OrderAction
from inventory_orders.errors import Outcome, StoreError
from inventory_orders.version import VERSION

if TYPE_CHECKING:
    from inventory_orders.domain.change import Change
    from inventory_orders.domain.order_command import OrderCommand
    from inventory_orders.engine.outcomes import ChangeOutcome, CommitReport
    from inventory_orders.engine.retrying_client import CommitStats
    from inventory_orders.invocation.sqs import Message
    from inventory_orders.invocation.sqs_batch import SqsBatch
    from inventory_orders.publishing.publisher import PublishReport

NAMESPACE = "InventoryOrders"

# The cause of an outcome: a catalogue event was older than the newest one applied, so it changed nothing.
STALE = "STALE"


logger = Logger(version=VERSION)
metrics = Metrics(namespace=NAMESPACE)
# Powertools keeps disabled metrics, and prints them after all once one of them has a hundred values.
_ENABLED = not is_metrics_disabled()
# An invocation may have nothing to count, such as one that only replays a command.
warnings.filterwarnings("ignore", "No application metrics to publish")


METRICS = {
    "OrdersPlaced": MetricUnit.Count,
    "OrdersRejected": MetricUnit.Count,
    "OrdersReplayed": MetricUnit.Count,
    "OrdersDirect": MetricUnit.Count,
    "OrdersExpress": MetricUnit.Count,
    "OrdersQueued": MetricUnit.Count,
    "CallerWait": MetricUnit.Milliseconds,
    "OrdersPerTransaction": MetricUnit.Count,
    "OrdersConfirmed": MetricUnit.Count,
    "OrdersFulfilled": MetricUnit.Count,
    "OrdersCancelled": MetricUnit.Count,
    "OrdersExpired": MetricUnit.Count,
    "OrdersReturned": MetricUnit.Count,
    "OrdersAmended": MetricUnit.Count,
    "ConfirmationsRejected": MetricUnit.Count,
    "ExpiryDelay": MetricUnit.Seconds,
    "MessagesDeadLettered": MetricUnit.Count,
    "MessagesReturned": MetricUnit.Count,
    "TimeSinceFirstReceive": MetricUnit.Seconds,
    "CorruptPage": MetricUnit.Count,
    "ConditionalWrites": MetricUnit.Count,
    "VersionConflict": MetricUnit.Count,
    "TransactionConflict": MetricUnit.Count,
    "Retries": MetricUnit.Count,
    "RetriesExhausted": MetricUnit.Count,
    "RetryBackoffTime": MetricUnit.Milliseconds,
    "CommitLatency": MetricUnit.Milliseconds,
    "LeaseWait": MetricUnit.Milliseconds,
    "OrdersFromLanes": MetricUnit.Count,
    "DepotWait": MetricUnit.Milliseconds,
    "Loans": MetricUnit.Count,
    "UnitsLent": MetricUnit.Count,
    "LoansLost": MetricUnit.Count,
    "Recalls": MetricUnit.Count,
    "LowStock": MetricUnit.Count,
    "StaleEventsIgnored": MetricUnit.Count,
    "StaleDeletesIgnored": MetricUnit.Count,
    "EventsPublished": MetricUnit.Count,
    "EventsRefused": MetricUnit.Count,
    "EventsUndeliverable": MetricUnit.Count,
    "EventDelay": MetricUnit.Milliseconds,
}
"""All metrics with their units. Their meaning is in operations/metrics.py."""

# Emitted only if they are not 0, because a metric costs money and a 0 is of no use here.
_SELDOM = {
    *("OrdersCancelled", "OrdersReturned", "OrdersAmended", "ConfirmationsRejected", "CorruptPage"),
    *("ConditionalWrites", "Recalls", "LeaseWait", "EventsRefused", "EventsUndeliverable"),
    *("OrdersDirect", "OrdersExpress", "OrdersQueued"),
}

Door: TypeAlias = Literal["OrdersDirect", "OrdersExpress", "OrdersQueued"]
"""The metric that counts the orders decided by the API itself, from the express queue, or from the other queues."""


def emit_orders(report: CommitReport, changes: Sequence[Change], door: Door | None = None) -> None:
    """Count the outcomes of orders and amends, and the cost of writing them. Those in direct invocations have no door."""
    each = zip(changes, report.outcomes, strict=True)
    outcomes = [outcome for change, outcome in each if isinstance(change, Order)]
    placed = Counter(type(outcome.applied) for outcome in outcomes)
    add("OrdersPlaced", placed[Order])
    add("OrdersCancelled", placed[CancelledBeforehand])
    add("OrdersReplayed", sum(o.kind is Outcome.REPLAYED for o in outcomes))
    reasons = Counter(o.rejection.reason for o in outcomes if o.rejection is not None)
    _emit_transitions(report)
    add("OrdersRejected", reasons.total())
    if door is not None:
        add(door, placed[Order] + reasons.total())
    for reason, count in reasons.items():
        # Unlike Powertools' `single_metric`, `EphemeralMetrics` obeys POWERTOOLS_METRICS_DISABLED.
        by_reason = EphemeralMetrics(service=metrics.service, namespace=NAMESPACE)
        by_reason.add_dimension("reason", reason.value)
        by_reason.add_metric("OrdersRejected", MetricUnit.Count, count)
        by_reason.flush_metrics()
    add("OrdersPerTransaction", *report.stats.changes_per_transaction)
    emit_stats(report.stats, report.failure)


def emit_wait(seconds: float) -> None:
    """Measure how long a caller waited for the outcome of an order."""
    add("CallerWait", seconds * 1000)


def emit_commands(report: CommitReport, commands: Sequence[OrderCommand], now: datetime) -> None:
    """Count the outcomes of commands on orders, and measure how late holds expired."""
    done = _emit_transitions(report)
    each = zip(commands, report.outcomes, strict=True)
    confirms = (outcome for command, outcome in each if command.action is OrderAction.CONFIRM)
    add("ConfirmationsRejected", sum(outcome.is_written_rejection for outcome in confirms))
    ended = [c.order.expires_at for c in done if c.arrived.action is OrderAction.EXPIRE]
    delays = (now - datetime.fromisoformat(at) for at in ended if at is not None)
    add("ExpiryDelay", *(delay.total_seconds() for delay in delays))
    emit_stats(report.stats, report.failure)


def _emit_transitions(report: CommitReport) -> list[Transition]:
    """Count the changes of stored orders, and return them."""
    applied = (getattr(o.applied, "transition", o.applied) for o in report.outcomes)
    done = [change for change in applied if isinstance(change, Transition)]
    # An order whose hand-over is taken back was confirmed before.
    reached = Counter(
        change.status
        for change in done
        if change.status != change.order.status
        and change.arrived.action is not OrderAction.UNFULFIL
    )
    for status, count in reached.items():
        add(f"Orders{status.capitalize()}", count)
    for action in (OrderAction.RETURN, OrderAction.AMEND):
        moved = sum(change.arrived.action is action for change in done)
        add(f"Orders{action.past.capitalize()}", moved)
    return done


def emit_messages(batch: SqsBatch[Any]) -> None:
    """Count how the messages of a batch ended, measure their age, and log each that was rejected, dead-lettered or returned."""
    ends = Counter(batch.ends.values())
    add("MessagesDeadLettered", ends[Outcome.INVALID])
    add("MessagesReturned", ends[Outcome.RETURNED])
    add("CorruptPage", sum(o.cause == "CORRUPT_PAGE" for o in batch.outcomes.values()))
    # Without a dimension for the queue, which would turn one metric into five. The log names the queue.
    add("TimeSinceFirstReceive", batch.age)
    for message, end in batch.ends.items():
        content, outcome = batch.contents.get(message), batch.outcomes[message]
        if outcome.cause == STALE:
            emit_stale("event", correlation_id=message.message_id, **_ids(content))
        elif end not in (Outcome.APPLIED, Outcome.REPLAYED):
            _log_message(message, end, outcome, content)
    log_queue_errors(batch.calls.errors)
    logger.info(
        "batch done",
        extra={
            "messages": len(batch.ends),
            "correlation_ids": [message.message_id for message in batch.ends],
            "ends": {end.name: count for end, count in ends.items()},
        },
    )


def log_queue_errors(errors: Iterable[str], **more: object) -> None:
    """Log the errors of failed requests to SQS, each distinct error once."""
    distinct = list(dict.fromkeys(errors))
    if distinct:
        logger.error("requests to SQS failed", extra={"errors": distinct, **more})


def emit_stale(what: Literal["event", "delete"], **fields: str) -> None:
    """Count an event that is older than the newest one applied, or the deletion of an earlier generation. Neither has an effect."""
    add("StaleEventsIgnored" if what == "event" else "StaleDeletesIgnored", 1)
    logger.info(f"stale {what} ignored", extra=fields)


def emit_stats(stats: CommitStats, failure: StoreError | None = None) -> None:
    """Count what writes have cost: attempts, conflicts, waits and retries. Log throttles, and products that are low on stock.

    Args:
        stats: The costs.
        failure: The error that makes all writes fail until an operator repairs access or tables; None if there is none.
    """
    if failure is not None:
        logger.critical(
            "nothing can be written: repair access, tables or configuration; all messages are returned",
            extra={"error": str(failure)},
        )
    add("ConditionalWrites", len(stats.measured["VersionConflict"]))
    add("LeaseWait", stats.lease_wait * 1000)
    for name, values in stats.measured.items():
        add(name, *values)
    for limit, requests in stats.throttles.items():
        logger.warning(
            "throttled by DynamoDB",
            extra={"limit": limit.name, "resource": limit.resource, "requests": requests},
        )
    for product in stats.low_stock:
        add("LowStock", 1)
        logger.info(
            "product is low on stock",
            extra={
                **public_key(product.product_id),
                "stockCount": product.stock_count,
                "productStatus": product.status.value,
            },
        )


def emit_events(report: PublishReport, queue_errors: Sequence[str]) -> None:
    """Count published, refused and undeliverable events. Log each undeliverable event."""
    add("EventsPublished", len(report.published))
    add("EventsRefused", len(report.refusals))
    add("EventsUndeliverable", len(report.undeliverable))
    add("EventDelay", *(seconds * 1000 for seconds in report.delays))
    for parked in report.undeliverable:
        # The error message quotes the row, so it is not logged.
        logger.error("event parked", extra={"eventId": parked.id, "code": parked.code})
    log_queue_errors(queue_errors)
    fields: dict[str, object] = {"published": len(report.published)}
    if report.refusals:
        refusals = Counter(refusal.code for refusal in report.refusals)
        fields |= {"refusals": dict(refusals), "detail": report.refusals[-1].message}
    if report.left:
        logger.warning("not all events published", extra=fields | {"left": report.left})
    else:
        logger.info("events published", extra=fields)


def _log_message(message: Message, end: Outcome, outcome: ChangeOutcome, content: object) -> None:
    fields: dict[str, object] = {
        "correlation_id": message.message_id,
        "receiveCount": message.receive_count,
        "code": outcome.cause,
        **_ids(content),
    }
    if end is Outcome.REJECTED:
        if outcome.rejection is not None:
            fields["subject"] = in_words(outcome.rejection.subject)
        logger.info("rejected", extra=fields)
        return
    # The error message for an invalid message quotes the body, so it is not logged.
    is_invalid = Outcome.INVALID in (end, outcome.kind)
    fields |= {"field": outcome.field_path} if is_invalid else {"detail": outcome.detail}
    logger.warning(
        "dead-lettered" if end is Outcome.INVALID else "returned to the queue", extra=fields
    )


def _ids(content: object) -> dict[str, str]:
    """The fields of a log line for the ids in a message."""
    ids = {field: getattr(content, name) for field, name in _IDS.items() if hasattr(content, name)}
    product_id = getattr(content, "product_id", None)
    return ids if product_id is None else ids | public_key(product_id)


_IDS = {"orderId": "order_id", "adjustmentId": "adjustment_id", "eventId": "event_id"}


def add(name: str, *values: float) -> None:
    """Add values to a metric, if this stage has metrics.

    Args:
        name: The name of the metric, one of `METRICS`.
        values: The values in the metric's unit. A boolean counts as 0 or 1.
    """
    for value in values:
        if _ENABLED and (value or name not in _SELDOM):
            metrics.add_metric(name, METRICS[name], +value)
