"""The meaning of each metric of the handlers, for operators and for docs/generated/metrics.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Metric(NamedTuple):
    """A metric of the handlers.

    Attributes:
        each: What each value is for, such as a batch.
        meaning: The meaning of a value.
    """

    each: str
    meaning: str


METRICS: Mapping[str, Metric] = {
    "OrdersPlaced": Metric("batch", "orders placed"),
    "OrdersRejected": Metric("batch", "orders rejected; also with the dimension `reason`"),
    "OrdersReplayed": Metric("batch", "orders that already had an outcome"),
    "OrdersPerTransaction": Metric("committed transaction", "orders in it"),
    "OrdersConfirmed": Metric("batch with one", "orders confirmed"),
    "OrdersFulfilled": Metric("batch with one", "orders fulfilled"),
    "OrdersCancelled": Metric("batch with one", "orders cancelled"),
    "OrdersExpired": Metric("batch with one", "expired holds"),
    "OrdersReturned": Metric("batch with one", "returns"),
    "ConfirmationsRejected": Metric("batch with one", "rejected confirmations: payments to refund"),
    "ExpiryDelay": Metric("hold that expired", "time from its end until it expired"),
    "MessagesDeadLettered": Metric("batch", "messages of any queue that can never succeed"),
    "MessagesReturned": Metric("batch", "messages of any queue that SQS will deliver again"),
    "TimeSinceFirstReceive": Metric("batch", "time since its oldest message was first received"),
    "CorruptPage": Metric("batch with one", "messages returned because a page cannot be read"),
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
    "RetryBackoffTime": Metric("wait before a retry", "its length"),
    "CommitLatency": Metric("committed transaction", "duration of its last request"),
    "LeaseWait": Metric("batch that waited", "time spent waiting for other owners' leases"),
    "OrdersFromLanes": Metric(
        "order that `place_orders` placed",
        "1 if all its units came from the worker's own lane, else 0",
    ),
    "DepotWait": Metric(
        "visit of the depot", "time in the depot's queue, also if the worker gave up"
    ),
    "Loans": Metric("batch that borrowed", "rows that lent units to the depot"),
    "UnitsLent": Metric("batch that borrowed", "units that these rows lent"),
    "LoansLost": Metric("loan", "1 if a concurrent writer cancelled its transaction, else 0"),
    "Recalls": Metric("batch that recalled", "recalls of lent units, to the depot or to rows"),
    "LowStock": Metric("product", "1: it stopped being `ACTIVE` because of its stock"),
    "StaleEventsIgnored": Metric("event", "1: it was older than the newest one applied, a success"),
    "StaleDeletesIgnored": Metric("delete", "1: its generation was already deleted, a success"),
    "EventsPublished": Metric("batch of changes", "events that the bus accepted"),
    "EventsRefused": Metric("batch with one", "events that the bus refused; they are sent again"),
    "EventsUndeliverable": Metric("batch with one", "events parked in `UndeliverableEventsQueue`"),
    "EventDelay": Metric("published event", "time from `occurredAt` until the bus accepted it"),
}
"""All metrics by name."""
