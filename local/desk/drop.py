"""One product while it sells: counts its orders by their events, and works out how fast it goes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import closing
from datetime import datetime
from threading import Lock
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.domain.events import EventType
from inventory_orders.errors import InventoryOrdersError
from local.desk.live import Live
from local.desk.work import Desk
from operations.errors import UserError
from operations.follow import Heard

Document = dict[str, Any]

_RATE_SECONDS = 10
# So many are drawn, and so many after the last event.
_DRAWN_SECONDS = 300
_DRAWN_AFTERWARDS = 20
# Units that move while they are read may be missing, so they are read again after the last event.
_UNSETTLED_SECONDS = 3.0
_PLACED, _REJECTED = EventType.ORDER_PLACED, EventType.ORDER_REJECTED


class Drops:
    """The products that a page has shown since the desk listens."""

    def __init__(self, desk: Desk, live: Live) -> None:
        self._desk = desk
        self._live = live
        self._drops: dict[str, _Drop] = {}
        live.heard = self.hear

    def hear(self, heard: Heard) -> None:
        """Count an event."""
        for drop in [*self._drops.values()]:
            drop.count(heard)

    def watch(self, product_id: str) -> Generator[Document, None, None]:
        """Yield how the sale of a product goes, about once a second; or a `problem`, after which no more comes."""
        try:
            with closing(self._live.news()) as news:
                for each in news:
                    if "problem" in each:
                        yield each
                    elif not each:
                        yield self._of(product_id).state(self._desk)
        except (UserError, InventoryOrdersError, BotoCoreError, ClientError) as error:
            yield {"problem": str(error)}

    def _of(self, product_id: str) -> _Drop:
        """The counts of a product. What happened while nobody listened is in none."""
        drop = self._drops.get(product_id)
        if drop is None or drop.since < self._live.since:
            drop = self._drops[product_id] = _Drop(product_id)
        return drop


class _Drop:
    """Counts the orders of one product."""

    def __init__(self, product_id: str) -> None:
        self.since = time.time()
        self._product_id = product_id
        self._lock = Lock()
        # Events may come twice, and out of order.
        self._seen: set[str] = set()
        self._sold = 0
        # By the second in which they happened.
        self._counts: dict[str, Counter[int]] = {_PLACED: Counter(), _REJECTED: Counter()}
        self._units: Counter[int] = Counter()
        self._first = self._last = self._last_rejected = 0.0
        # Between the clocks of AWS and of this machine.
        self._skew = float("inf")
        self._late = 0.0
        self._changed_at = time.time()
        self._left: Mapping[str, int] = {}

    def count(self, heard: Heard) -> None:
        kind, detail = heard.event["detail-type"], heard.event["detail"]
        data = detail["data"]
        if data.get("productId") == self._product_id:
            self._changed_at = time.time()
        units = sum(
            item["quantity"]
            for item in data.get("items", ())
            if item["productId"] == self._product_id
        )
        if not units:
            return
        with self._lock:
            now = self._changed_at = time.time()
            if kind not in self._counts or not self._is_new(detail, data):
                return
            at = datetime.fromisoformat(detail["metadata"]["occurredAt"]).timestamp()
            self._skew = min(self._skew, now - at - (heard.delay or 0.0))
            self._late = max(0.0, now - at - self._skew)
            self._counts[kind][int(at)] += 1
            if kind == _REJECTED:
                self._last_rejected = max(self._last_rejected, at)
            else:
                self._sold += units
                self._units[int(at)] += units
                self._first = min(self._first or at, at)
                self._last = max(self._last, at)

    def _is_new(self, detail: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
        """Whether an order was not counted yet. A rejection for want of other products is not this one's."""
        short = {each["productId"] for each in data.get("shortages", ())}
        event_id = detail["metadata"]["eventId"]
        if event_id in self._seen or (short and self._product_id not in short):
            return False
        self._seen.add(event_id)
        return True

    def state(self, desk: Desk) -> Document:
        now = time.time()
        if now - self._changed_at < _UNSETTLED_SECONDS:
            self._left = desk.left(self._product_id)
        waiting = desk.waiting()
        with self._lock:
            # As far as events have come in.
            end = int(now - self._skew - self._late) if self._seen else int(now)
            seconds = max(1, min(_RATE_SECONDS, end - int(self.since)))
            latest = max(self._last, self._last_rejected) or now
            drawn = min(end, int(latest) + _DRAWN_AFTERWARDS)
            start = max(int(self.since), drawn - _DRAWN_SECONDS)
            placed, rejected = self._counts.values()
            return {
                "since": self.since,
                "sold": self._sold,
                "orders": placed.total(),
                "rejected": rejected.total(),
                "left": sum(self._left.values()),
                "places": self._left,
                "waiting": waiting,
                "late": self._late,
                "ordersPerSecond": _sum(placed, end - seconds, end) / seconds,
                "unitsPerSecond": _sum(self._units, end - seconds, end) / seconds,
                "first": self._first,
                "last": self._last,
                "lastRejected": self._last_rejected,
                "times": [*range(start, drawn)],
                "placedPerSecond": [placed[at] for at in range(start, drawn)],
                "rejectedPerSecond": [rejected[at] for at in range(start, drawn)],
            }


def _sum(counts: Counter[int], start: int, end: int) -> int:
    return sum(counts[second] for second in range(start, end))
