"""The meaning of each metric of the handlers, for operators and for docs/generated/metrics.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Metric(NamedTuple):
    """A metric of the handlers.

    Attributes:
        each: The unit of work that emits one value, such as a batch.
        meaning: The meaning of a value.
    """

    each: str
    meaning: str


METRICS: Mapping[str, Metric] = {
    "OrdersPlaced": Metric("batch", "orders placed"),
    "OrdersRejected": Metric("batch", "orders rejected; also emitted with the dimension `reason`"),
    "OrdersReplayed": Metric("batch", "orders that already had an outcome"),
    "OrdersDirect": Metric("order decided by `api` itself", "always 1: it was placed or rejected"),
    "OrdersExpress": Metric("batch of `OrderQueueExpress`", "orders placed or rejected"),
    "OrdersQueued": Metric(
        "batch of `OrderQueue` or `OrderQueueFifo`", "orders placed or rejected"
    ),
    "CallerWait": Metric(
        "answer to a caller who waits for an order", "time from the request to the answer"
    ),
    "OrdersPerTransaction": Metric("committed transaction", "orders in the transaction"),
    "OrdersConfirmed": Metric("batch, if not 0", "orders confirmed"),
    "OrdersFulfilled": Metric("batch, if not 0", "orders fulfilled"),
    "OrdersCancelled": Metric("batch, if not 0", "orders cancelled"),
    "OrdersExpired": Metric("batch, if not 0", "expired holds"),
    "OrdersReturned": Metric("batch, if not 0", "returns of units"),
    "OrdersAmended": Metric("batch, if not 0", "amends of orders"),
    "ConfirmationsRejected": Metric(
        "batch, if not 0", "confirmations rejected: refund the payments"
    ),
    "ExpiryDelay": Metric("expired hold", "time from the end of the hold until its order expired"),
    "MessagesDeadLettered": Metric(
        "batch", "messages dead-lettered because they can never succeed"
    ),
    "MessagesReturned": Metric("batch", "messages returned to their queue for a later attempt"),
    "TimeSinceFirstReceive": Metric(
        "batch", "time since the oldest message in it was first received"
    ),
    "CorruptPage": Metric("batch, if not 0", "messages returned because a page cannot be read"),
    "ConditionalWrites": Metric("invocation that wrote", "attempts to commit"),
    "VersionConflict": Metric(
        "attempt to commit",
        "1 if a row's version had changed, else 0: the average is the conflict rate",
    ),
    "TransactionConflict": Metric(
        "attempt to commit", "1 if another transaction on the same row was in flight, else 0"
    ),
    "Retries": Metric("change", "how often its transaction was retried"),
    "RetriesExhausted": Metric("retried change", "1 if the engine gave up, else 0"),
    "RetryBackoffTime": Metric("wait before a retry", "length of the wait"),
    "CommitLatency": Metric("committed transaction", "duration of its last request"),
    "LeaseWait": Metric("batch that waited", "time spent waiting for other owners' leases"),
    "OrdersFromLanes": Metric(
        "order that `place_orders` or `api` placed",
        "1 if all its units came from the process's own lane, else 0",
    ),
    "DepotWait": Metric(
        "visit to the depot", "time in the depot's queue, even if the worker gave up"
    ),
    "Loans": Metric("batch that borrowed", "rows that lent units to the depot"),
    "UnitsLent": Metric("batch that borrowed", "units that these rows lent"),
    "LoansLost": Metric("loan", "1 if a concurrent writer cancelled its transaction, else 0"),
    "Recalls": Metric("batch that recalled", "recalls of lent units, to the depot or to rows"),
    "LowStock": Metric(
        "product that ran low", "always 1: its stock is so low that it is no longer `ACTIVE`"
    ),
    "StaleEventsIgnored": Metric(
        "stale event", "always 1: it was older than the newest one applied, which is not an error"
    ),
    "StaleDeletesIgnored": Metric(
        "stale delete", "always 1: its generation was already deleted, which is not an error"
    ),
    "EventsPublished": Metric("batch of changes", "events that the bus accepted"),
    "EventsRefused": Metric("batch, if not 0", "events that the bus refused; they are sent again"),
    "EventsUndeliverable": Metric("batch, if not 0", "events parked in `UndeliverableEventsQueue`"),
    "EventDelay": Metric("published event", "time from `occurredAt` until the bus accepted it"),
}
"""All metrics by name."""
