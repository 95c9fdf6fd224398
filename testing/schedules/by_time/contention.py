"""DynamoDB under contention: applies the rules of `latency.py` to a store in which each call is one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any
from zlib import crc32

from testing.aws import DynamoDB, Item, Key, ServiceError
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
        write_units: Capacity of a partition in write units per second.
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
        self._buckets: dict[tuple[str, str, int], TokenBucket] = {}
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
            try:
                return self._single(operation, request, reads, writes)
            finally:
                self._scheduler.sleep(at_service)
        finally:
            self._scheduler.sleep(back)

    def _single(
        self,
        operation: str,
        request: dict[str, Any],
        reads: Iterable[Place],
        writes: Iterable[Place],
    ) -> dict[str, Any]:
        """Answer any request except a transaction. The request takes effect on arrival."""
        throttled = {place for place in reads if not self._has_room("read", place, 1.0)}
        if operation == "BatchGetItem" and throttled:
            return self._part_of_batch(request, throttled)
        if throttled or not all(self._has_room("write", place, 1.0) for place in writes):
            raise ServiceError("ThrottlingException", _THROTTLED["Message"])
        if not self.in_flight.isdisjoint(writes):
            raise ServiceError("TransactionConflictException", _CONFLICT["Message"])
        return self._store.answer(operation, request)

    def _part_of_batch(self, request: dict[str, Any], throttled: set[Place]) -> dict[str, Any]:
        """Answer the keys that the capacity allows, and return the others as unprocessed."""
        wanted: dict[str, Any] = {}
        left_out: dict[str, Any] = {}
        for name, entry in request["RequestItems"].items():
            table = self._store.tables[name]
            for key in entry["Keys"]:
                part = left_out if (name, table.key_of(key)) in throttled else wanted
                part.setdefault(name, {**entry, "Keys": []})["Keys"].append(key)
        if not wanted:
            raise ServiceError("ThrottlingException", _THROTTLED["Message"])
        answer = self._store.answer("BatchGetItem", {**request, "RequestItems": wanted})
        for name, entry in answer["UnprocessedKeys"].items():
            left_out.setdefault(name, {**entry, "Keys": []})["Keys"] += entry["Keys"]
        return {**answer, "UnprocessedKeys": left_out}

    def _transact(self, request: dict[str, Any], at_service: float) -> dict[str, Any]:
        """Check a transaction now, item by item, and apply it once its simulated service time has passed."""
        contents = [next(iter(action.values())) for action in request["TransactItems"]]
        places = [self._store.place(content) for content in contents]
        before = {place: self._item(place) for place in places}
        busy = [
            _THROTTLED
            if not self._has_room("write", place, 2 * _write_units(content, before[place]))
            else _CONFLICT
            if place in self.in_flight
            else None
            for place, content in zip(places, contents, strict=True)
        ]
        # If an item is busy, the transaction is not applied, so the store must not remember its token.
        without_token = {
            name: value for name, value in request.items() if name != "ClientRequestToken"
        }
        cancelled: ServiceError | None = None
        answer: dict[str, Any] = {}
        try:
            answer = self._store.answer(
                "TransactWriteItems", without_token if any(busy) else request
            )
            reasons: list[Any] = [{"Code": "None"}] * len(places)
        except ServiceError as error:
            if "CancellationReasons" not in error.extra:
                raise
            cancelled, reasons = error, error.extra["CancellationReasons"]
        # Until the transaction ends, readers must not see its writes.
        after = {place: self._item(place) for place in places}
        self._install(before)

        reasons = [other or reason for other, reason in zip(busy, reasons, strict=True)]
        accepted = {
            place for place, reason in zip(places, reasons, strict=True) if reason["Code"] == "None"
        }
        self.in_flight |= accepted
        self._scheduler.sleep(at_service)
        self.in_flight -= accepted
        if cancelled is None and not any(busy):
            self._install(after)
            return answer
        codes = ", ".join(reason["Code"] for reason in reasons)
        raise ServiceError(
            "TransactionCanceledException",
            f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
            extra={"CancellationReasons": reasons},
        )

    def _item(self, place: Place) -> Item | None:
        name, key = place
        return self._store.tables[name].items.get(key)

    def _install(self, items: Mapping[Place, Item | None]) -> None:
        for (name, key), item in items.items():
            table = self._store.tables[name].items
            if item is None:
                table.pop(key, None)
            else:
                table[key] = item

    def _has_room(self, kind: str, place: Place, units: float) -> bool:
        name, key = place
        partition = crc32(repr(key).encode()) % self._partitions.get(name, 4)
        bucket = self._buckets.get((kind, name, partition))
        if bucket is None:
            rate = self._units[kind]
            bucket = TokenBucket(rate, rate * BURST_SECONDS)
            self._buckets[kind, name, partition] = bucket
        return bucket.take(units, self._scheduler.now)


def _write_units(content: Mapping[str, Any], before: Item | None) -> int:
    """Compute the write units of a single write, from the larger of the old and the new item.

    An update request does not contain the new item, but the size of its values is close enough.
    """
    known = content.get("Item") or content.get("ExpressionAttributeValues", {})
    return max(1, ceil(max(size_of_item(known), size_of_item(before or {})) / 1024))
