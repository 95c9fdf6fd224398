"""DynamoDB under contention: applies the rules of `latency.py` to a store in which each call is one step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

from testing.aws import DynamoDB, Key, ServiceError
from testing.aws.dynamodb import Write, read_units
from testing.aws.values import size_of_item
from testing.schedules.by_time.latency import (
    BURST_SECONDS,
    PARTITION_READ_UNITS,
    PARTITION_WRITE_UNITS,
    PARTITIONS,
    Network,
    TokenBucket,
)
from testing.schedules.scheduler import Scheduler

Place = tuple[str, Key]
"""An item: its table and its key."""

_CONFLICT = {
    "Code": "TransactionConflict",
    "Message": "Transaction is ongoing for the item",
}
_THROTTLED = {
    "Code": "ThrottlingError",
    "Message": "Throughput exceeds the current capacity for one or more tables or indexes.",
}


class ContendedDynamoDB:
    """The tables, as seen by many concurrent clients.

    Args:
        scheduler: Provides virtual time.
        store: Holds the tables, and applies each call in one step.
        network: How long calls take.
        write_units: Capacity of a partition, and of a key of an index, in write units per second.
        read_units: Capacity of a partition in read units per second.
        partitions: Number of partitions, by table.

    Attributes:
        in_flight: Items that are part of a transaction that has not ended yet.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        store: DynamoDB,
        network: Network,
        write_units: float = PARTITION_WRITE_UNITS,
        read_units: float = PARTITION_READ_UNITS,
        partitions: Mapping[str, int] = PARTITIONS,
    ) -> None:
        self._partitions = partitions
        self._scheduler = scheduler
        self._store = store
        self._network = network
        self._units = {"read": read_units, "write": write_units}
        self._buckets: dict[tuple[str, str, str | int], TokenBucket] = {}
        self.in_flight: set[Place] = set()

    def answer(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request after its latency.

        Raises:
            ServiceError: An error response, as from DynamoDB.
        """
        reads, writes = self._store.touched(operation, request)
        there, at_service, back = self._network.times(operation, len(reads) + len(writes))
        self._scheduler.sleep(there)
        try:
            if operation == "TransactWriteItems":
                return self._transact(request, at_service)
            if operation == "BatchGetItem":
                return self._read_batch(request, at_service)
            try:
                if writes:
                    return self._write(operation, request)
                return self._read(operation, request, reads)
            finally:
                self._scheduler.sleep(at_service)
        finally:
            self._scheduler.sleep(back)

    # ------------------------------------------------------------------ reads

    def _read(
        self, operation: str, request: dict[str, Any], places: Iterable[Place]
    ) -> dict[str, Any]:
        """Answer a request that only reads, as of its arrival."""
        times = 2 if operation == "TransactGetItems" else 1
        consistent = times == 2 or request.get("ConsistentRead", False)
        if not all(self._may_read(place, consistent, times) for place in places):
            raise ServiceError("ThrottlingException", _THROTTLED["Message"])
        return self._store.answer(operation, request)

    def _read_batch(self, request: dict[str, Any], at_service: float) -> dict[str, Any]:
        """Read a part of the items on arrival and the rest at the end. Throttled items are unprocessed."""
        early: dict[str, Any] = {}
        late: dict[str, Any] = {}
        left_out: dict[str, Any] = {}
        for name, entry in request["RequestItems"].items():
            table = self._store.tables[name]
            for key in entry["Keys"]:
                place = name, table.key_of(key)
                part = late if self._network.reads_late() else early
                if not self._may_read(place, entry.get("ConsistentRead", False)):
                    part = left_out
                part.setdefault(name, {**entry, "Keys": []})["Keys"].append(key)
        answers = [self._store.answer("BatchGetItem", {"RequestItems": early})] if early else []
        self._scheduler.sleep(at_service)
        if late:
            answers.append(self._store.answer("BatchGetItem", {"RequestItems": late}))
        if not answers:
            raise ServiceError("ThrottlingException", _THROTTLED["Message"])
        found: dict[str, Any] = {}
        for answer in answers:
            for name, items in answer["Responses"].items():
                found.setdefault(name, []).extend(items)
            for name, entry in answer["UnprocessedKeys"].items():
                left_out.setdefault(name, {**entry, "Keys": []})["Keys"] += entry["Keys"]
        return {"Responses": found, "UnprocessedKeys": left_out}

    def _may_read(self, place: Place, consistent: bool, times: int = 1) -> bool:
        """Take the units of a read, or none if there are too few. A Query or Scan counts as one empty item."""
        name, key = place
        size = size_of_item(self._store.tables[name].items.get(key, {}))
        return self._has_room("read", place, times * read_units(size, consistent))

    # ------------------------------------------------------------------ writes

    def _write(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a write of a single item, which takes effect on arrival."""
        write = self._store.check(operation, request)
        busy = self._busy(write)
        if busy is _CONFLICT:
            write.charge()
            raise ServiceError("TransactionConflictException", _CONFLICT["Message"])
        if busy or (not write.reason and self._throttled_by_indexes([write])[0]):
            raise ServiceError("ThrottlingException", _THROTTLED["Message"])
        return self._store.answer(operation, request)

    def _transact(self, request: dict[str, Any], at_service: float) -> dict[str, Any]:
        """Check a transaction now, item by item, and apply it once its simulated service time has passed."""
        transaction = self._store.begin(request)
        if transaction is None:
            self._scheduler.sleep(at_service)
            return {}
        writes = transaction.writes
        reasons = [self._busy(write, times=2) or write.reason for write in writes]
        if not any(reasons):
            # A cancelled transaction does not write the indexes.
            throttled = self._throttled_by_indexes(writes)
            reasons = [_THROTTLED if is_throttled else None for is_throttled in throttled]
        accepted = {
            write.place for write, reason in zip(writes, reasons, strict=True) if not reason
        }
        self.in_flight |= accepted
        self._scheduler.sleep(at_service)
        self.in_flight -= accepted
        self._store.end(transaction, reasons)
        return {}

    def _busy(self, write: Write, times: int = 1) -> dict[str, str] | None:
        """Take the units of a write. Returns the reason why its item is busy, if it is."""
        if not self._has_room("write", write.place, times * write.units):
            return _THROTTLED
        return _CONFLICT if write.place in self.in_flight else None

    def _throttled_by_indexes(self, writes: Sequence[Write]) -> list[bool]:
        """Take the units of all indexes. Returns whether each write is throttled because a key of an index has too few.

        The units are not doubled in a transaction.
        """
        wanted = Counter[tuple[str, str, str]]()
        for write in writes:
            for (index, key), units in write.index_units.items():
                wanted[write.table.name, index, key] += units
        full = {
            bucket for bucket, units in wanted.items() if not self._take("write", bucket, units)
        }
        return [
            any((write.table.name, *entry) in full for entry in write.index_units)
            for write in writes
        ]

    # ------------------------------------------------------------------ capacity

    def _has_room(self, kind: str, place: Place, units: float) -> bool:
        name, key = place
        partition = crc32(repr(key).encode()) % self._partitions.get(name, 4)
        return self._take(kind, (kind, name, partition), units)

    def _take(self, kind: str, name: tuple[str, str, str | int], units: float) -> bool:
        """Take units from a bucket, or none if it has too few. Returns whether it had enough."""
        bucket = self._buckets.get(name)
        if bucket is None:
            rate = self._units[kind]
            bucket = self._buckets[name] = TokenBucket(rate, rate * BURST_SECONDS)
        return bucket.take(units, self._scheduler.now)
