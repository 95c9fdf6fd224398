"""What is simulated, with every number and where it comes from.

**Time.** A call costs the caller CPU time, then a hop through the network, the time at the service, and a hop back.
Latencies are drawn from published percentiles, linearly interpolated between them; two sets of them are kept, so that
no conclusion hangs on one.

**Conflicts** (how DynamoDB does it: Idziorek et al., "Distributed Transactions at Scale in Amazon DynamoDB", USENIX
ATC 2023; https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html):

- A transaction is judged when it arrives, item by item. Each item that accepts it is in flight until the transaction
  ends, also when another item refuses it and it ends as cancelled. It is applied at its end, to all items at once.
- A second transaction, or a plain write, on an item in flight fails at once: `TransactionConflict` as a reason of
  cancellation, `TransactionConflictException` for the plain write. There is no queue and no waiting.
- An item whose condition does not hold cancels with `ConditionalCheckFailed`; a cancelled transaction takes as long as
  one that succeeds (measured, see `PUBLISHED`).
- Reads are never blocked, and see what was applied last. `BatchGetItem` reads each item at the same moment here; on
  DynamoDB its items may be of different moments, which the conditions of the writes have to catch, and do.

**Capacity** (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html): each
partition has a token bucket of write units and one of read units. What does not fit is throttled: `ThrottlingError` as
a reason of cancellation, `ThrottlingException` for a single request, as of a table on demand. A write that is
cancelled has used its units up all the same.

**Workers** are Lambda's execution environments. Each takes a batch as soon as it is free, waits until that has been
handed over, and is killed if it exceeds the function's timeout. What it returns comes back after the visibility timeout
that it set. All of them start at the same moment, and the window over which rates are taken ends while the queue still
holds a batch for each: so it is always full.

**Left out.** Failures of DynamoDB, SQS and Lambda (the tests inject those), cold starts (`make bench` measures them
apart), the limits of the index, sizes above 1 KB in the buckets, and the batch window of the queue.
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
    """A distribution of latencies, as a table of percentiles gives it.

    Attributes:
        milliseconds: By share of requests (0 to 1) that take no longer; from 0 (the minimum) to 1 (the maximum).
    """

    milliseconds: Mapping[float, float]

    def at(self, share: float) -> float:
        """Seconds that this share of requests does not exceed."""
        shares = list(self.milliseconds)
        right = min(bisect_right(shares, share), len(shares) - 1)
        low, high = shares[right - 1], shares[right]
        below, above = self.milliseconds[low], self.milliseconds[high]
        return MILLISECOND * (below + (above - below) * (share - low) / (high - low))


@dataclass(frozen=True, slots=True)
class ByItems:
    """Latencies that grow with the number of items: the line through two measured sizes, percentile by percentile.

    Attributes:
        few: Items of the smaller request, and how long it takes.
        many: Likewise for the larger one.
    """

    few: tuple[int, Percentiles]
    many: tuple[int, Percentiles]

    def at(self, share: float, items: int) -> float:
        """Seconds that this share of the requests with so many items does not exceed."""
        (few, low), (many, high) = self.few, self.many
        at_few, at_many = low.at(share), high.at(share)
        return at_few + (at_many - at_few) * (items - few) / (many - few)


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long requests take, as their caller sees it, without its own CPU time.

    Attributes:
        single: A read or a write of one item.
        batch: `BatchGetItem` of more than one item.
        transaction: `TransactWriteItems`.
        sqs: A call to SQS.
        delivery: From a message that lies in the queue, and a free worker, to the begin of the handler.
    """

    single: Percentiles
    batch: ByItems
    transaction: ByItems
    sqs: Percentiles
    delivery: Percentiles

    def of(self, operation: str, items: int, share: float) -> float:
        """Seconds that this share of calls does not exceed."""
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
# client in Lambda: https://www.alexdebrie.com/posts/dynamodb-transactions-performance/. It has no reads: one item is
# taken to cost what PutItem does, a batch what BatchWriteItem does; both are rather too slow for a read. Transactions
# had 5 and 25 items then; beyond that the line through both goes on.
# SQS: "Serverless Messaging: Latency Compared" (2022), from sending to the begin of the handler, P10 13.7, P50 16.2,
# P90 33.8, P99 105: https://bitesizedserverless.com/bite/serverless-messaging-latency-compared/; a single call to SQS
# is a part of that way and is taken to cost as much.
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

# The other set: what DynamoDB promises ("single-digit millisecond" for one item), and transactions of 10 ms whatever
# their size, with a fifth of it as the standard deviation (as in Brooker's simulation).
_FIFTH_OF = {0.0: 0.4, 0.023: 0.6, 0.159: 0.8, 0.5: 1.0, 0.841: 1.2, 0.977: 1.4, 1.0: 1.6}


def _around(milliseconds: float) -> Percentiles:
    return Percentiles({share: factor * milliseconds for share, factor in _FIFTH_OF.items()})


FAST = Latencies(
    single=_around(5),
    batch=ByItems(few=(5, _around(5)), many=(25, _around(5))),
    transaction=ByItems(few=(5, _around(10)), many=(25, _around(10))),
    sqs=_SQS,
    delivery=_SQS,
)

LATENCIES = {"published": PUBLISHED, "fast": FAST}

NETWORK_HOP = 0.5 * MILLISECOND
"""One way between a function and DynamoDB or SQS in its region: a part of the latency, not beside it."""


class Network(Protocol):
    """How long calls to DynamoDB take."""

    def times(self, operation: str, items: int) -> tuple[float, float, float]:
        """Seconds on the way there, at the service, and on the way back; of a call that touches so many items."""
        ...


class Region:
    """A function's way to the services of its region.

    Args:
        latencies: How long calls take.
        chance: Decides how long each one takes.
    """

    def __init__(self, latencies: Latencies, chance: Random) -> None:
        self._latencies = latencies
        self._chance = chance

    def times(self, operation: str, items: int) -> tuple[float, float, float]:
        latency = self._latencies.of(operation, items, self._chance.random())
        return NETWORK_HOP, max(0.0, latency - 2 * NETWORK_HOP), NETWORK_HOP

    def queue(self) -> float:
        """Seconds of a call to SQS."""
        return self._latencies.sqs.at(self._chance.random())

    def delivery(self) -> float:
        """Seconds until a worker has its next batch."""
        return self._latencies.delivery.at(self._chance.random())


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU time of a handler, the same for all contenders, in seconds.

    Measured with this service's handler on CPython 3.11, with answers that cost nothing: two calls and 1, 10 or 99
    orders took 0.75 ms a call and 0.1 ms an order. Scaled to a function of 1,024 MB, which has 0.58 of a processor
    (1,769 MB have one: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html).

    Attributes:
        call: botocore, for any call.
        item: botocore and the handler, for each item of a call.
        message: Reading and judging one message.
    """

    call: float = 0.7 * MILLISECOND / 0.58
    item: float = 0.02 * MILLISECOND / 0.58
    message: float = 0.08 * MILLISECOND / 0.58


CPU = Cpu()

PARTITION_WRITE_UNITS = 1000.0
PARTITION_READ_UNITS = 3000.0
BURST_SECONDS = 1.0
"""Unused units that a partition may still use later. DynamoDB keeps up to 300 s of what a *table* did not use, but
promises nothing, and beyond a partition's own limit that does not help a single hot item."""

PARTITIONS = {"Products": 4, "Orders": 40}
"""A table on demand begins with 4,000 write units a second; 40,000 is the default quota of a table, which an announced
rush has warmed up. https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html"""


class TokenBucket:
    """What a partition can still take.

    Args:
        rate: Units a second.
        burst: Units at the most.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._units, self._at = burst, 0.0

    def take(self, units: float, now: float) -> bool:
        """Take so many units, at a moment in seconds; take none if they are not there."""
        self._units = min(self._burst, self._units + (now - self._at) * self._rate)
        self._at = now
        if units > self._units:
            return False
        self._units -= units
        return True


INVOCATION_SECONDS = 30.0
"""Timeout of the function, as the stack sets it. An invocation that has not ended by then is killed."""

VISIBILITY_SECONDS = 180.0
"""How long a message stays hidden that nobody returned sooner: 6 times the timeout, as the stack sets it."""

MAX_DELIVERIES = 20
"""Deliveries after which SQS gives a message up, as the stack sets it."""
