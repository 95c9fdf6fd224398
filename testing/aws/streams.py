"""Streams of DynamoDB tables: their records, and the poller of a shard, in virtual time."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class _Clock(Protocol):
    seconds: float


def record(
    keys: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    number: int,
) -> dict[str, Any]:
    """Create the record of a change to an item.

    Args:
        keys: The item's key attributes.
        before: The item before the change; None if the change created it.
        after: The item after the change; None if the change deleted it.
        number: Number of the change in the stream.
    """
    images = {"OldImage": before, "NewImage": after}
    return {
        "eventID": f"record-{number}",
        "eventName": "INSERT" if before is None else "REMOVE" if after is None else "MODIFY",
        "dynamodb": {
            "Keys": keys,
            "SequenceNumber": str(number),
            **{name: image for name, image in images.items() if image is not None},
        },
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/T/stream/S",
    }


class Shard:
    """The poller of one shard, configured as in the stack: batches of 100, four at a time, halved after a failure.

    docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html

    Args:
        clock: Provides the time.
        handle: The function. It raises if it could not process the whole batch.
        most_age: Seconds after which the poller gives up on a record.

    Attributes:
        given_up: The records that the poller gave up on. The real stack keeps only a pointer to them.
        invocations: Number of invocations of the function.
    """

    def __init__(
        self, clock: _Clock, handle: Callable[[Sequence[Any]], None], most_age: float = 82_800
    ) -> None:
        self._clock = clock
        self._handle = handle
        self._most_age = most_age
        self.given_up: list[Any] = []
        self.invocations = 0

    def poll(self, records: Sequence[Any]) -> None:
        """Deliver records that are written now, until each is processed or the poller gives up on it."""
        began = self._clock.seconds
        lanes: dict[int, list[Any]] = {}
        for each in records:
            key = json.dumps(each["dynamodb"]["Keys"])
            lanes.setdefault(zlib.crc32(key.encode()) % 4, []).append(each)
        for lane in lanes.values():
            for start in range(0, len(lane), 100):
                self._deliver(lane[start : start + 100], began)

    def _deliver(self, batch: Sequence[Any], began: float) -> None:
        while True:
            if self._clock.seconds - began > self._most_age:
                self.given_up += batch
                return
            self.invocations += 1
            try:
                self._handle(batch)
                return
            except Exception:
                self._clock.seconds += 1
            if len(batch) > 1:
                half = len(batch) // 2
                self._deliver(batch[:half], began)
                self._deliver(batch[half:], began)
                return
