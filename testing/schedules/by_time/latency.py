"""The simulated rules for latency and capacity, with the source of every number.

**Time.** A call takes CPU time of the caller, a hop through the network, the time at the service, and a hop back.
Latencies are drawn from published percentiles with linear interpolation.

**Conflicts** (as in DynamoDB: Idziorek et al., "Distributed Transactions at Scale in Amazon DynamoDB", USENIX
ATC 2023; https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html):

- A transaction is checked when it arrives, item by item. Each item that accepts it is in flight until the transaction
  ends, even if another item cancels it. At its end the transaction is applied to all items together.
- Another transaction or a plain write on an item in flight fails immediately, without waiting: with the cancellation
  reason `TransactionConflict`, or with `TransactionConflictException` for the plain write.
- An item whose condition is not met cancels the transaction with `ConditionalCheckFailed`. A cancelled transaction
  takes as long as one that succeeds (measured, see `PUBLISHED`).
- Reads are never blocked, and see the last applied write. `BatchGetItem` reads each item at a moment of its own: some
  when it arrives, the others when it answers.

**Capacity** (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html): each
partition has a token bucket of write units and one of read units. A request that exceeds them is throttled, as on an
on-demand table: with the cancellation reason `ThrottlingError`, or with `ThrottlingException` for a single request. A
cancelled write consumes its units too.

**Indexes** (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/gsi-throttling.html): each value of an
index's partition key has a token bucket of its own, as if it had a partition to itself. A write whose index entries
exceed it is throttled, although its table has capacity, and so is the transaction that contains it. Entries are
written after the transaction, so it does not double their units, and a cancelled transaction consumes none.

**Pollers** receive messages for Lambda
(https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html). Each worker has one, which makes one receive
at a time, of at most ten messages. While the worker handles a batch, the poller gathers the next one, and no more.
A batch is complete when it is full, or when its window ends
(https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html). The visibility timeout begins with the
receive. AWS does not document how many pollers there are, or that they work ahead.

**Workers** are Lambda's execution environments. A free worker gets a batch after the delivery time, and is killed
if it exceeds the function's timeout. A message that it returns comes back after the visibility timeout that it set. All
workers start at the same moment. Rates are measured while the queue still has two batches for each worker, so no poller
ever finds it empty.

**Left out.** Failures of DynamoDB, SQS and Lambda (the tests inject those), cold starts (`make bench` measures them
separately), partitions that split, the sizes of queries and scans, and the reads of indexes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol

MILLISECOND = 0.001


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A distribution of latencies, given by percentiles.

    Attributes:
        milliseconds: Latency by the share of requests that take no longer: from 0 (minimum) to 1 (maximum).
    """

    milliseconds: Mapping[float, float]

    def at(self, share: float) -> float:
        """The latency, in seconds, that this share of requests does not exceed."""
        shares = list(self.milliseconds)
        right = min(bisect_right(shares, share), len(shares) - 1)
        low, high = shares[right - 1], shares[right]
        below, above = self.milliseconds[low], self.milliseconds[high]
        return MILLISECOND * (below + (above - below) * (share - low) / (high - low))


@dataclass(frozen=True, slots=True)
class ByItems:
    """Latencies that grow linearly with the number of items, from two measured sizes.

    Attributes:
        few: Number of items of the smaller request, and its latencies.
        many: Number of items of the larger request, and its latencies.
    """

    few: tuple[int, Percentiles]
    many: tuple[int, Percentiles]

    def at(self, share: float, items: int) -> float:
        """The latency, in seconds, that this share of the requests with this many items does not exceed."""
        (few, low), (many, high) = self.few, self.many
        at_few, at_many = low.at(share), high.at(share)
        return at_few + (at_many - at_few) * (items - few) / (many - few)


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long requests take for their caller, without its own CPU time.

    Attributes:
        single: A read or a write of one item.
        batch: `BatchGetItem` of more than one item.
        transaction: `TransactWriteItems`.
        sqs: A call to SQS.
        delivery: The time until the handler starts, once both a batch and a free worker are waiting.
    """

    single: Percentiles
    batch: ByItems
    transaction: ByItems
    sqs: Percentiles
    delivery: Percentiles

    def of(self, operation: str, items: int, share: float) -> float:
        """The latency, in seconds, that this share of calls does not exceed."""
        if operation in ("TransactWriteItems", "TransactGetItems"):
            return self.transaction.at(share, items)
        if items > 1:
            return self.batch.at(share, items)
        return self.single.at(share)


def _percentiles(
    least: float, p50: float, p90: float, p95: float, p99: float, most: float
) -> Percentiles:
    return Percentiles({0.0: least, 0.5: p50, 0.9: p90, 0.95: p95, 0.99: p99, 1.0: most})


# Alex DeBrie, "DynamoDB Transactions Performance Testing" (2020), percentiles in milliseconds as seen by a Python
# client in Lambda: https://www.alexdebrie.com/posts/dynamodb-transactions-performance/. The article does not measure
# reads, so reads of one and of several items get the times of PutItem and BatchWriteItem, although they are probably
# faster.
# Transactions have 5 and 25 items; other sizes are extrapolated linearly.
# SQS: "Serverless Messaging: Latency Compared" (2022), from sending to the start of the handler, P10 13.7, P50 16.2,
# P90 33.8, P99 105: https://bitesizedserverless.com/bite/serverless-messaging-latency-compared/. A call to SQS is
# a part of that, and is assumed to take as long.
_SQS = Percentiles({0.0: 13.7, 0.1: 13.7, 0.5: 16.2, 0.9: 33.8, 0.99: 105.0, 1.0: 105.0})
PUBLISHED = Latencies(
    single=_percentiles(5.47, 7.55, 11.3, 13.2, 16.2, 29.0),
    batch=ByItems(
        few=(5, _percentiles(6.59, 8.14, 13.3, 15.4, 25.5, 56.8)),
        many=(25, _percentiles(7.96, 10.2, 16.0, 18.0, 27.6, 76.4)),
    ),
    transaction=ByItems(
        few=(5, _percentiles(19.4, 25.3, 30.7, 36.4, 92.5, 218.0)),
        many=(25, _percentiles(23.5, 32.1, 40.5, 47.2, 97.5, 258.0)),
    ),
    sqs=_SQS,
    delivery=_SQS,
)


NETWORK_HOP = 0.5 * MILLISECOND
"""Seconds of one hop between a function and DynamoDB or SQS in its region. The latencies below include it."""


class Network(Protocol):
    """How long calls to DynamoDB take."""

    def times(self, operation: str, items: int) -> tuple[float, float, float]:
        """How many seconds a call with this many items spends on the way there, at the service, and on the way back."""
        ...

    def reads_late(self) -> bool:
        """Whether a batch reads an item when it answers, instead of on arrival."""
        ...


class Region:
    """The network between a function and the services of its region.

    Args:
        chance: Draws the latency of each call, and when a batch reads each item.
    """

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def times(self, operation: str, items: int) -> tuple[float, float, float]:
        latency = PUBLISHED.of(operation, items, self._chance.random())
        return NETWORK_HOP, max(0.0, latency - 2 * NETWORK_HOP), NETWORK_HOP

    def reads_late(self) -> bool:
        return self._chance.random() < 0.5

    def queue(self) -> float:
        """How many seconds a call to SQS takes."""
        return PUBLISHED.sqs.at(self._chance.random())

    def delivery(self) -> float:
        """Seconds until a worker has its next batch."""
        return PUBLISHED.delivery.at(self._chance.random())


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU time of a handler, the same for all contenders, in seconds.

    Measured with this service's handler on CPython 3.11 against instant responses: two calls and 1, 10 or 99 orders
    took 0.75 ms per call and 0.1 ms per order. Scaled to a function of 1,024 MB, which has 0.58 of a processor
    (1,769 MB have a full one: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html).

    Attributes:
        call: CPU time of botocore for a call.
        item: CPU time of botocore and the handler for each item of a call.
        message: CPU time to parse and settle one message.
    """

    call: float = 0.7 * MILLISECOND / 0.58
    item: float = 0.02 * MILLISECOND / 0.58
    message: float = 0.08 * MILLISECOND / 0.58


CPU = Cpu()

PARTITION_WRITE_UNITS = 1000.0
PARTITION_READ_UNITS = 3000.0
BURST_SECONDS = 1.0
"""Seconds of unused units that a partition may use later. DynamoDB keeps up to 300 s of the unused capacity of a
*table* without a guarantee, and that does not raise the limit of a partition with one hot item."""

PARTITIONS = {"Products": 4, "Orders": 40}
"""Partitions by table. A table on demand starts with 4,000 write units per second; one that is warmed up for a drop has
up to 40,000, the default quota. https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html"""


class TokenBucket:
    """The capacity that a partition has left.

    Args:
        rate: Units per second.
        burst: Maximum number of unused units that it keeps.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._units, self._at = burst, 0.0

    def take(self, units: float, now: float) -> bool:
        """Take this number of units at the time `now`, or none if there are too few. Returns whether there were enough."""
        self._units = min(self._burst, self._units + (now - self._at) * self._rate)
        self._at = now
        if units > self._units:
            return False
        self._units -= units
        return True


RECEIVED_AT_ONCE = 10
"""Maximum number of messages in a receive.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html"""

RECEIVE_SECONDS = 15 * MILLISECOND
"""Seconds that a receive takes. An assumption: a message needs 16.2 ms from the sender to the handler (see `PUBLISHED`)."""

PROVISIONED_RECEIVE_INTERVAL = 0.1
"""Seconds between the starts of two receives in provisioned mode, in which a poller makes "up to 10 Amazon SQS polling
API calls per second". https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html"""

BATCH_WINDOW_SECONDS = 1.0
"""Seconds after which a batch is handed over even if it is not full, as in the stack. Lambda requires at least this for
batches of more than ten messages. Smaller batches have no window.
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html"""

INVOCATION_SECONDS = 30.0
"""Timeout of the function in seconds, as in the stack. An invocation that takes longer is killed."""

SWEEP_SECONDS = 50.0
"""Timeout of the sweep in seconds, as in the stack."""

VISIBILITY_SECONDS = 180.0
"""Visibility timeout in seconds, as in the stack: 6 times the function's timeout."""

MAX_DELIVERIES = 1000
"""Deliveries before SQS moves a message to the dead-letter queue, as in the stack."""
