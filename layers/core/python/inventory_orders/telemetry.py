"""Logs and metrics: what happened, counted once and after it became durable. An id is a log field, no dimension."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit, single_metric

from inventory_orders.committer import Report
from inventory_orders.intake import BatchResult, End, MessageResult
from inventory_orders.model import Order
from inventory_orders.writer import Effort

NAMESPACE = "InventoryOrders"

# The cause in the verdict of a catalogue event that came too late to change anything.
STALE = "STALE"

T = TypeVar("T")

logger = Logger()
metrics = Metrics(namespace=NAMESPACE)


def record_orders(batch: BatchResult[Order], report: Report) -> None:
    """Count a batch of orders, and log every message that did not simply go through."""
    ends = Counter(result.end for result in batch.results)
    outcomes = [result.verdict.outcome for result in batch.results]
    placed = sum(outcome is not None and isinstance(outcome.applied, Order) for outcome in outcomes)
    _count("OrdersPlaced", placed)
    _count("OrdersReplayed", ends[End.REPLAYED])
    reasons = Counter(
        outcome.refusal.reason
        for outcome in outcomes
        if outcome is not None and outcome.refusal is not None
    )
    _count("OrdersRejected", reasons.total())
    for reason, count in reasons.items():
        with single_metric(
            name="OrdersRejected", unit=MetricUnit.Count, value=count, namespace=NAMESPACE
        ) as metric:
            metric.add_dimension("service", os.environ.get("POWERTOOLS_SERVICE_NAME", "undefined"))
            metric.add_dimension("reason", reason.value)
    for orders in report.effort.changes_per_transaction:
        _count("OrdersPerTransaction", orders)
    record_messages(batch)
    record_report(report)


def record_changes(batch: BatchResult[T], report: Report) -> None:
    """Count a batch of adjustments or cancellations, and log every message that did not simply go through."""
    record_messages(batch)
    record_report(report)


def record_messages(batch: BatchResult[T]) -> None:
    """Count where the messages of any queue ended, and log every one that did not simply go through."""
    ends = Counter(result.end for result in batch.results)
    _count("MessagesDeadLettered", ends[End.DEAD_LETTERED])
    _count("MessagesReturned", ends[End.RETURNED])
    for result in batch.results:
        if result.verdict.cause == STALE:
            product_id = getattr(result.content, "product_id", "")
            record_stale_event(product_id, result.message.message_id)
        elif result.end not in (End.APPLIED, End.REPLAYED):
            _log_message(result)
    if batch.queue_errors:
        logger.error("SQS refused requests", extra={"errors": batch.queue_errors})
    logger.info(
        "batch done",
        extra={
            "messages": len(batch.results),
            "correlation_ids": [result.message.message_id for result in batch.results],
            "ends": {end.name: count for end, count in ends.items()},
        },
    )


def record_stale_event(product_id: str, correlation_id: str | None = None) -> None:
    """Count a catalogue event that was older than the newest one applied: a success, not an error."""
    _count("StaleEventsIgnored", 1)
    fields = {"productId": product_id}
    if correlation_id is not None:
        fields["correlation_id"] = correlation_id
    logger.info("stale event ignored", extra=fields)


def record_stale_delete(product_id: str, created_at: str) -> None:
    """Count a delete of an incarnation that was gone already: a success, not an error."""
    _count("StaleDeletesIgnored", 1)
    logger.info(
        "stale delete ignored", extra={"productId": product_id, "productCreatedAt": created_at}
    )


def record_report(report: Report) -> None:
    """What the engine went through for a batch of changes."""
    record_effort(report.effort, report.retries, report.exhausted)
    if report.failure is not None:
        logger.critical(
            "nothing can be written: repair access, tables or configuration; all messages are returned",
            extra={"error": str(report.failure)},
        )


def record_effort(
    effort: Effort, retries: Sequence[int] = (), exhausted: Sequence[bool] = ()
) -> None:
    """What writes took: attempts, conflicts, waits; how often each change was retried, and with what end."""
    if effort.version_conflicts:
        _count("ConditionalWrites", len(effort.version_conflicts))
    for moved in effort.version_conflicts:
        _count("VersionConflict", int(moved))
    for rival in effort.transaction_conflicts:
        _count("TransactionConflict", int(rival))
    for count in retries:
        _count("Retries", count)
    for given_up in exhausted:
        _count("RetriesExhausted", int(given_up))
    for seconds in effort.backoffs:
        metrics.add_metric("RetryBackoffTime", MetricUnit.Milliseconds, seconds * 1000)
    for seconds in effort.commit_latencies:
        metrics.add_metric("CommitLatency", MetricUnit.Milliseconds, seconds * 1000)
    if effort.claims or effort.claims_refused:
        _count("Claims", effort.claims)
        _count("ClaimsRefused", effort.claims_refused)
    if effort.lease_wait:
        metrics.add_metric("LeaseWait", MetricUnit.Milliseconds, effort.lease_wait * 1000)
    for product in effort.low_stock:
        _count("LowStock", 1)
        logger.info(
            "product is low in stock",
            extra={
                "productId": product.product_id,
                "stockCount": product.stock_count,
                "productStatus": product.status.value,
            },
        )


def _log_message(result: MessageResult[T]) -> None:
    verdict, content = result.verdict, result.content
    fields: dict[str, object] = {
        "correlation_id": result.message.message_id,
        "receiveCount": result.message.receive_count,
    }
    for attribute in ("order_id", "adjustment_id", "event_id", "product_id"):
        value = getattr(content, attribute, None)
        if value is not None:
            first, *rest = attribute.split("_")
            fields[first + "".join(word.capitalize() for word in rest)] = value
    if result.end is End.REFUSED:
        if verdict.outcome is not None and verdict.outcome.refusal is not None:
            fields["reason"] = verdict.outcome.refusal.reason.value
            fields["refusedProductId"] = verdict.outcome.refusal.product_id
        logger.info("refused", extra=fields)
        return
    # The error's own message quotes the body, so it stays out of the log.
    if verdict.error is not None:
        fields |= {"errorCode": verdict.error.code, "field": verdict.error.field}
    else:
        fields |= {"cause": verdict.cause, "detail": verdict.detail}
    if result.end is End.DEAD_LETTERED:
        logger.warning("dead-lettered", extra=fields)
    else:
        logger.warning("returned to the queue", extra=fields)


def _count(name: str, value: int) -> None:
    metrics.add_metric(name, MetricUnit.Count, value)
