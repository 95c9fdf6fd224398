"""Stream records, an event bus that refuses entries, and the poller of a shard, in virtual time."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from inventory_orders.clock import timestamp
from inventory_orders.store.rows import encode
from testing.world.clock import ManualClock
from testing.world.clocks import FakeClock

MEGABYTE = 1_000_000
"""Limit on the total size of the entries of a PutEvents call:
docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEvents.html"""

Row = dict[str, Any]
Answer = tuple[str, str] | None


def order_row(order_id: str = "o-1", **changes: Any) -> Row:
    """The row of an order that was placed for two units of one product."""
    line = {"productId": "tea", "quantity": 2, "productCreatedAt": _TIME, "productVersion": 2}
    row: Row = {
        "orderId": order_id,
        "userId": "u-1",
        "items": [line],
        "status": "PENDING",
        "createdAt": _TIME,
        "lastUpdatedAt": _TIME,
        "_version": 1,
    }
    return {name: value for name, value in {**row, **changes}.items() if value is not None}


def product_row(status: str = "ACTIVE", **changes: Any) -> Row:
    """A product as stored."""
    row: Row = {
        "productId": "tea",
        "stockCount": 9,
        "backorderLimit": 0,
        "lowStockThreshold": 5,
        "_version": 7,
        "status": status,
        "createdAt": _TIME,
        "lastUpdatedAt": _TIME,
    }
    return {**row, **changes}


_TIME = "2026-01-01T00:00:00.000000+00:00"


def change(before: Row | None, after: Row | None, number: int = 0) -> dict[str, Any]:
    """A record of a stream."""
    row: Row = after or before or {}
    name = "orderId" if "orderId" in row else "productId"
    images = {
        image: encode(values)
        for image, values in (("OldImage", before), ("NewImage", after))
        if values is not None
    }
    kind = "INSERT" if before is None else "REMOVE" if after is None else "MODIFY"
    return {
        "eventID": f"record-{number}",
        "eventName": kind,
        "dynamodb": {
            "Keys": {name: {"S": str(row[name])}},
            "SequenceNumber": str(number),
            **images,
        },
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/T/stream/S",
    }


class FakeBridge:
    """A fake EventBridge that records the accepted events, and refuses events on request.

    Args:
        clock: The time, which each call advances.
        judge: Called with each entry's id and type. Returns the code and message of a refusal, or None to accept it,
            or raises an error.
    """

    def __init__(
        self, clock: FakeClock | ManualClock, judge: Callable[[str, str], Answer] = lambda *_: None
    ) -> None:
        self.clock = clock
        self.judge = judge
        self.calls: list[list[Any]] = []
        self.taken: list[dict[str, Any]] = []
        self.crash: Callable[[int, str], None] = lambda call, moment: None

    def put_events(self, *, Entries: Sequence[Any]) -> Any:
        self.calls.append(list(Entries))
        sent = [entry[name] for entry in Entries for name in ("Source", "DetailType", "Detail")]
        if sum(len(text.encode()) for text in sent) >= MEGABYTE:
            raise refused_call("ValidationException")
        number = len(self.calls)
        self.crash(number, "before")
        self.clock.seconds += 0.02
        answers: list[Mapping[str, str]] = []
        for entry in Entries:
            detail = json.loads(entry["Detail"])
            refusal = self.judge(detail["metadata"]["eventId"], entry["DetailType"])
            if refusal is None:
                self.taken.append({"detail-type": entry["DetailType"], "detail": detail})
                answers.append({"EventId": f"e-{len(self.taken)}"})
            else:
                answers.append({"ErrorCode": refusal[0], "ErrorMessage": refusal[1]})
        self.crash(number, "after")
        failed = sum("ErrorCode" in answer for answer in answers)
        return {"FailedEntryCount": failed, "Entries": answers}

    @property
    def outcomes(self) -> list[str]:
        """Ids of the accepted events, including duplicates but without probes."""
        return [e["detail"]["metadata"]["eventId"] for e in self.taken if e["detail"]["data"]]


def first_of_each(ids: Sequence[str]) -> list[str]:
    """The accepted events without duplicates."""
    return list(dict.fromkeys(ids))


def overtaken(ids: Sequence[str]) -> list[str]:
    """Ids of the events that first arrived after a later event about the same subject."""
    latest: dict[tuple[str, ...], int] = {}
    found = []
    for event_id in first_of_each(ids):
        # In the id of a product at a location, the location comes last.
        name, version, _, *location = event_id.split("#")
        subject = (name, *location)
        if int(version) < latest.get(subject, 0):
            found.append(event_id)
        latest[subject] = max(int(version), latest.get(subject, 0))
    return found


def refused_call(code: str, status: int = 400) -> ClientError:
    """The error for a call that is refused as a whole."""
    answer = {
        "Error": {"Code": code, "Message": "no"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, "PutEvents")  # type: ignore[arg-type]


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
        self, clock: FakeClock, handle: Callable[[Sequence[Any]], None], most_age: float = 82_800
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
        for record in records:
            key = json.dumps(record["dynamodb"]["Keys"])
            lanes.setdefault(zlib.crc32(key.encode()) % 4, []).append(record)
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


def now_of(clock: FakeClock) -> str:
    """The current time as rows store it."""
    return timestamp(clock.now())
