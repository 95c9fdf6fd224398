"""Logs and metrics: what happened, counted once and after it became durable. An id is a log field, no dimension."""

from __future__ import annotations

import os
from collections import Counter

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit, single_metric

from inventory_orders.committer import Effort, Report
from inventory_orders.intake import BatchResult, End, MessageResult

NAMESPACE = "InventoryOrders"

logger = Logger()
metrics = Metrics(namespace=NAMESPACE)


def record_orders(batch: BatchResult) -> None:
    """Count a batch of orders, and log every message that did not simply go through."""
    ends = Counter(result.end for result in batch.results)
    _count("OrdersPlaced", ends[End.APPLIED])
    _count("OrdersRejected", ends[End.REFUSED])
    _count("OrdersReplayed", ends[End.REPLAYED])
    reasons = Counter(
        result.outcome.refusal.reason
        for result in batch.results
        if result.end is End.REFUSED and result.outcome and result.outcome.refusal
    )
    for reason, count in reasons.items():
        with single_metric(
            name="OrdersRejected", unit=MetricUnit.Count, value=count, namespace=NAMESPACE
        ) as metric:
            metric.add_dimension("service", os.environ.get("POWERTOOLS_SERVICE_NAME", "undefined"))
            metric.add_dimension("reason", reason.value)
    _record_batch(batch, ends)


def _record_batch(batch: BatchResult, ends: Counter[End]) -> None:
    """What all queue handlers have in common."""
    _count("MessagesDeadLettered", ends[End.DEAD_LETTERED])
    _count("MessagesReturned", ends[End.RETURNED])
    _record_report(batch.report)
    for result in batch.results:
        if result.end not in (End.APPLIED, End.REPLAYED):
            _log_message(result)
    if batch.queue_errors:
        logger.error("SQS refused requests", extra={"errors": batch.queue_errors})
    if batch.report.failure is not None:
        logger.critical(
            "nothing can be written: repair access, tables or configuration; all messages are returned",
            extra={"error": str(batch.report.failure)},
        )
    logger.info(
        "batch done",
        extra={
            "messages": len(batch.results),
            "ends": {end.name: count for end, count in ends.items()},
            "transactions": len(batch.report.effort.commit_latencies),
            "attempts": len(batch.report.effort.version_conflicts),
        },
    )


def _record_report(report: Report) -> None:
    effort = report.effort
    attempts = len(effort.version_conflicts)
    if attempts:
        _count("ConditionalWrites", attempts)
    for moved in effort.version_conflicts:
        _count("VersionConflict", int(moved))
    for rival in effort.transaction_conflicts:
        _count("TransactionConflict", int(rival))
    for retries in report.retries:
        _count("Retries", retries)
    for given_up in report.exhausted:
        _count("RetriesExhausted", int(given_up))
    for orders in effort.changes_per_transaction:
        _count("OrdersPerTransaction", orders)
    _record_times(effort)
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


def _record_times(effort: Effort) -> None:
    for seconds in effort.backoffs:
        metrics.add_metric("RetryBackoffTime", MetricUnit.Milliseconds, seconds * 1000)
    for seconds in effort.commit_latencies:
        metrics.add_metric("CommitLatency", MetricUnit.Milliseconds, seconds * 1000)
    if effort.lease_wait:
        metrics.add_metric("LeaseWait", MetricUnit.Milliseconds, effort.lease_wait * 1000)


def _log_message(result: MessageResult) -> None:
    fields: dict[str, object] = {
        "correlation_id": result.message.message_id,
        "receiveCount": result.message.receive_count,
    }
    if result.change is not None:
        fields.update(result.change.record_key.key)
    if result.end is End.REFUSED:
        if result.outcome and result.outcome.refusal:
            fields["reason"] = result.outcome.refusal.reason.value
            fields["refusedProductId"] = result.outcome.refusal.product_id
        logger.info("refused", extra=fields)
        return
    # The error's own message quotes the body, so it stays out of the log.
    if result.error is not None:
        fields |= {"errorCode": result.error.code, "field": result.error.field}
    elif result.outcome is not None:
        fields |= {"cause": result.outcome.cause, "detail": result.outcome.detail}
    if result.end is End.DEAD_LETTERED:
        logger.warning("dead-lettered", extra=fields)
    else:
        logger.warning("returned to the queue", extra=fields)


def _count(name: str, value: int) -> None:
    metrics.add_metric(name, MetricUnit.Count, value)
