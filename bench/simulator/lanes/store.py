"""Tables for a model: items with a version, transactions that conflict, and partitions that throttle.

The rules are those of `simulated_aws/latency.py`, on values instead of requests, so that minutes of traffic take seconds.
What is added: items above 1 KB cost more units, and a partition that is too busy for too long splits in two.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from simulated_aws.latency import (
    BURST_SECONDS,
    CPU,
    PARTITION_WRITE_UNITS,
    Region,
    TokenBucket,
)
from simulated_aws.scheduler import Scheduler

KEYS = 2**32
"""Places of items in a table: each has one of so many, and a partition holds a range of them."""

SPLIT_SECONDS = 300.0
"""Seconds of throttling after which a partition splits. DynamoDB says "sustained", and no number: an assumption."""

_SAME_HEAT = 30.0
"""Two refusals of a partition that are no more seconds apart belong to the same heat."""


def write_units(size: float) -> int:
    """Units of a write of so many bytes in a transaction."""
    return 2 * max(1, math.ceil(size / 1024))


class Table:
    """A table's capacity.

    Args:
        partitions: Number of partitions at the start, each for an equal range of the places.
        splits: Whether a partition splits when it is too busy for too long.
    """

    def __init__(self, partitions: int, *, splits: bool = False) -> None:
        self._starts = [KEYS * index // partitions for index in range(partitions)]
        self._buckets = [_bucket() for _ in range(partitions)]
        self._heat = [(-math.inf, -math.inf)] * partitions
        self._splits = splits

    @property
    def partitions(self) -> int:
        """The number of partitions now."""
        return len(self._starts)

    def take(self, place: int, units: float, now: float) -> bool:
        """Take write units of the partition that holds a place. Takes none if there are too few."""
        index = bisect_right(self._starts, place) - 1
        if self._buckets[index].take(units, now):
            return True
        if self._splits:
            self._refused(index, now)
        return False

    def _refused(self, index: int, now: float) -> None:
        since, last = self._heat[index]
        if now - last > _SAME_HEAT:
            since = now
        self._heat[index] = (since, now)
        if now - since < SPLIT_SECONDS:
            return
        start = self._starts[index]
        end = self._starts[index + 1] if index + 1 < len(self._starts) else KEYS
        self._starts.insert(index + 1, (start + end) // 2)
        self._buckets.insert(index + 1, _bucket())
        self._heat[index : index + 1] = [(-math.inf, -math.inf)] * 2


def _bucket() -> TokenBucket:
    return TokenBucket(PARTITION_WRITE_UNITS, PARTITION_WRITE_UNITS * BURST_SECONDS)


@dataclass(slots=True, eq=False)
class Item:
    """An item of a table.

    Attributes:
        table: Its table.
        place: Where it is in the table, which decides its partition.
        value: Its content. It is never changed in place, so a reader may keep it.
        version: The number of its writes.
        in_flight: Whether it has accepted a transaction that has not ended.
        owner: Who claims it, or claimed it last.
        claimed_until: When the claim ends, in virtual seconds.
    """

    table: Table
    place: int
    value: Any
    version: int = 0
    in_flight: bool = False
    owner: object = None
    claimed_until: float = -math.inf

    def is_claimed_by_another(self, owner: object, now: float) -> bool:
        """Whether somebody else has a live claim."""
        return self.claimed_until > now and self.owner is not owner


@dataclass(slots=True, frozen=True)
class Read:
    """An item as it was read."""

    version: int
    value: Any


@dataclass(slots=True)
class Write:
    """An action of a transaction.

    Attributes:
        item: The item.
        version: The version that it must have.
        value: Its new content; None to check the version only.
        units: What it costs.
        releases: Whether it ends the claim on the item.
    """

    item: Item
    version: int
    value: Any
    units: int = 2
    releases: bool = False


@dataclass(slots=True)
class Cancelled:
    """Why a transaction was not applied.

    Attributes:
        lost: The items that a rival changed, claimed or was about to write.
        throttled: The tables of which a partition had too few units left.
    """

    lost: set[Item] = field(default_factory=set)
    throttled: set[Table] = field(default_factory=set)


def is_current(item: Item, version: int) -> bool:
    """Whether an item has the version that a write rests on: the fence of all rules."""
    return item.version == version


@dataclass(slots=True, eq=False)
class Client:
    """One caller with a processor of its own.

    Attributes:
        cpu_free: When its processor is free, in virtual seconds.
    """

    cpu_free: float = 0.0


class Store:
    """The tables, as seen by concurrent clients.

    Args:
        scheduler: Provides virtual time.
        region: How long calls take.
        orders: Capacity of the table of the orders.
        chance: Chooses the places of the orders' rows.

    Attributes:
        orders: As above.
        counts: Requests, transactions, and units, by kind.
    """

    def __init__(self, scheduler: Scheduler, region: Region, orders: Table, chance: Random) -> None:
        self._scheduler = scheduler
        self._region = region
        self.orders = orders
        self._chance = chance
        self.counts: Counter[str] = Counter()

    def compute(self, seconds: float) -> None:
        """Use the calling client's processor."""
        client: Client = self._scheduler.owner
        client.cpu_free = max(client.cpu_free, self._scheduler.now) + seconds
        self._scheduler.sleep(client.cpu_free - self._scheduler.now)

    def read(self, items: Sequence[Item], kilobytes: float = 0.0) -> dict[Item, Read]:
        """Read items, consistently each for itself, up to 100 in a request, side by side.

        Args:
            items: What to read.
            kilobytes: The size of each of them, above 4.
        """
        found: dict[Item, Read] = {}
        parts = [items[start : start + 100] for start in range(0, len(items), 100)]
        self.counts["read units"] += len(items) * max(1, math.ceil(kilobytes / 4))

        def read(part: Sequence[Item]) -> None:
            there, at_service, back = self._call("BatchGetItem", len(part))
            self._scheduler.sleep(there)
            for item in part:
                found[item] = Read(item.version, item.value)
            self._scheduler.sleep(at_service + back)

        together(self._scheduler, [partial(read, part) for part in parts])
        return found

    def claim(self, item: Item, owner: object, seconds: float) -> Read | None:
        """Claim an item for a time, and read it; None if somebody else has it."""
        there, at_service, back = self._call("UpdateItem", 1)
        self._scheduler.sleep(there)
        now = self._scheduler.now
        has_units = item.table.take(item.place, 1, now)
        self.counts["write units"] += has_units
        taken = None
        if has_units and not item.in_flight and not item.is_claimed_by_another(owner, now):
            item.owner, item.claimed_until = owner, now + seconds
            taken = Read(item.version, item.value)
        else:
            self.counts["refused claims"] += 1
        self._scheduler.sleep(at_service + back)
        return taken

    def release(self, item: Item, owner: object, value: Any) -> None:
        """End a claim, and write the item, unless somebody else has claimed it meanwhile."""
        while True:
            there, at_service, back = self._call("UpdateItem", 1)
            self._scheduler.sleep(there)
            has_units = item.table.take(item.place, 1, self._scheduler.now)
            self.counts["write units"] += has_units
            if has_units and item.owner is owner and not item.in_flight:
                item.claimed_until, item.value = -math.inf, value
            self._scheduler.sleep(at_service + back)
            if has_units or item.owner is not owner:
                return

    def transact(
        self,
        kind: str,
        writes: Sequence[Write],
        orders: Collection[int] = (),
        applied: Callable[[], None] | None = None,
        owner: object = None,
    ) -> Cancelled | None:
        """Write all or nothing. Returns why nothing was written; None when all was.

        Args:
            kind: What it is counted as.
            writes: Writes and checks of items that exist.
            orders: The units of each order's row, which does not exist yet.
            applied: Called when all is written.
            owner: The client, whose own claims do not stop it.
        """
        there, at_service, back = self._call("TransactWriteItems", len(writes) + len(orders))
        self._scheduler.sleep(there)
        now = self._scheduler.now
        cancelled = Cancelled()
        accepted = []
        units = 0
        for write in writes:
            item = write.item
            if not item.table.take(item.place, write.units, now):
                cancelled.throttled.add(item.table)
                continue
            units += write.units
            if (
                item.in_flight
                or not is_current(item, write.version)
                or item.is_claimed_by_another(owner, now)
            ):
                cancelled.lost.add(item)
            else:
                item.in_flight = True
                accepted.append(item)
        for cost in orders:
            if self.orders.take(self._chance.getrandbits(32), cost, now):
                units += cost
            else:
                cancelled.throttled.add(self.orders)
        self._scheduler.sleep(at_service)
        for item in accepted:
            item.in_flight = False
        counts = self.counts
        counts["write units"] += units
        counts["transactions"] += 1
        counts[kind] += 1
        done = not cancelled.lost and not cancelled.throttled
        if done:
            for write in writes:
                if write.value is not None:
                    write.item.version += 1
                    write.item.value = write.value
                    if write.releases:
                        write.item.claimed_until = -math.inf
            if applied is not None:
                applied()
        else:
            counts["lost"] += bool(cancelled.lost)
            counts[f"{kind}: lost"] += bool(cancelled.lost)
            counts["throttled"] += bool(cancelled.throttled)
        self._scheduler.sleep(back)
        return None if done else cancelled

    def _call(self, operation: str, items: int) -> tuple[float, float, float]:
        """Count a request and let its client prepare it. Returns its times."""
        self.counts["requests"] += 1
        writes = items if operation == "TransactWriteItems" else 1
        self.compute(CPU.call + CPU.item * writes)
        return self._region.times(operation, items)


def together(scheduler: Scheduler, calls: Sequence[Callable[[], None]]) -> None:
    """Make calls side by side, and wait for all of them."""
    if len(calls) == 1:
        calls[0]()
        return
    waiting = scheduler.current
    left = len(calls)

    def run(call: Callable[[], None]) -> None:
        nonlocal left
        call()
        left -= 1
        if not left:
            scheduler.wake(waiting)

    for call in calls:
        scheduler.start(partial(run, call))
    if left:
        scheduler.block()


def place_of(*names: object) -> int:
    """Choose the place of an item, the same in every run."""
    return Random(repr(names)).getrandbits(32)
