"""Watches one product while it sells: counts its orders from events, and measures how fast they arrive."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import closing
from datetime import datetime
from threading import Lock
from typing import Any, NamedTuple

from inventory_orders.domain.events import EventType
from local.desk.live import Live, reason
from local.desk.work import Desk
from operations.follow import Heard

_RATE_SECONDS = 10
_DRAWN_SECONDS = 300
_DRAWN_AFTER_THE_LAST_ORDER = 20
# A read may miss units that move between lanes, so reads go on until this many seconds after the last order.
_UNSETTLED_SECONDS = 3.0
_KINDS = {EventType.ORDER_PLACED: "placed", EventType.ORDER_REJECTED: "rejected"}


class Drops:
    """The products that pages have watched since the desk began to listen to events."""

    def __init__(self, desk: Desk, live: Live) -> None:
        self._desk = desk
        self._live = live
        self._drops: dict[str, _Drop] = {}
        live.heard = self._hear

    def _hear(self, heard: Heard) -> None:
        for drop in [*self._drops.values()]:
            drop.count(heard)

    def watch(self, product_id: str) -> Generator[Mapping[str, Any], None, None]:
        """Yield the sales of a product so far, about once a second. If there is a `problem`, it is the last item."""
        try:
            with closing(self._live.news()) as news:
                for each in news:
                    if "problem" in each:
                        yield each
                    elif not each:
                        yield self._drop_of(product_id).state(self._desk)
        except Exception as error:
            yield {"problem": reason(error)}

    def _drop_of(self, product_id: str) -> _Drop:
        """Return the counts of a product. They start again after a pause in listening, because the desk missed events."""
        drop = self._drops.get(product_id)
        if drop is None or drop.since < self._live.since:
            drop = self._drops[product_id] = _Drop(product_id)
        return drop


class _Order(NamedTuple):
    at: float
    units: int
    places: tuple[str, ...]


class _Drop:
    """Counts how many orders for one product were placed and rejected in each second."""

    def __init__(self, product_id: str) -> None:
        self.since = self._changed_at = time.time()
        self._product_id = product_id
        self._lock = Lock()
        # The keys are event ids, because events may arrive twice and out of order.
        self._orders: dict[str, dict[str, _Order]] = {kind: {} for kind in _KINDS.values()}
        self._left: Mapping[str, int] = {}
        # The difference between the clocks of AWS and this machine, and the delay of the latest event.
        self._skew, self._late = float("inf"), 0.0

    def count(self, heard: Heard) -> None:
        detail, now = heard.event["detail"], time.time()
        data, event_id = detail["data"], detail["metadata"]["eventId"]
        lines = [data, *data.get("items", ())]
        mine = [line for line in lines if line.get("productId") == self._product_id]
        if not mine:
            return
        self._changed_at = now
        kind = _KINDS.get(heard.event["detail-type"])
        short = {each["productId"] for each in data.get("shortages", ())}
        # Ignore an order that was rejected because another product is short.
        if kind is None or (short and self._product_id not in short):
            return
        with self._lock:
            if event_id in self._orders[kind]:
                return
            at = datetime.fromisoformat(detail["metadata"]["occurredAt"]).timestamp()
            self._skew = min(self._skew, now - at - (heard.delay or 0.0))
            self._late = max(0.0, now - at - self._skew)
            units = sum(line["quantity"] for line in mine)
            # The locations that the order names or, if it names none, the locations of its lines.
            places = data.get("locations") or [line.get("locationId", "") for line in mine]
            self._orders[kind][event_id] = _Order(at, units, tuple(places))

    def state(self, desk: Desk) -> dict[str, Any]:
        now = time.time()
        if now - self._changed_at < _UNSETTLED_SECONDS:
            self._left = desk.left(self._product_id)
        with self._lock:
            orders = {kind: [*some.values()] for kind, some in self._orders.items()}
            # Later seconds are incomplete, because their events are still on the way.
            end = int(now - self._skew - self._late) if any(orders.values()) else int(now)
        times = {kind: [min(some).at, max(some).at] for kind, some in orders.items() if some}
        a_second = {kind: Counter(int(one.at) for one in some) for kind, some in orders.items()}
        rated = range(max(end - _RATE_SECONDS, min(int(self.since), end - 1)), end)
        latest = max((last for _, last in times.values()), default=now)
        drawn_end = min(end, int(latest) + _DRAWN_AFTER_THE_LAST_ORDER)
        drawn = range(max(int(self.since), drawn_end - _DRAWN_SECONDS), drawn_end)
        sold = [one for one in orders["placed"] if int(one.at) in rated]
        recent = (
            one for some in orders.values() for one in some if one.at > latest - _DRAWN_SECONDS
        )
        asked = {place for one in recent for place in one.places} or {*self._left}
        places = {place: units for place, units in self._left.items() if place in asked}
        left = sum(places.values())
        return {
            "since": self.since,
            "sold": sum(one.units for one in orders["placed"]),
            "orders": len(orders["placed"]),
            "rejected": len(orders["rejected"]),
            "left": left,
            "places": places,
            "elsewhere": sum(self._left.values()) - left,
            "waiting": desk.waiting(),
            "late": self._late,
            "ordersPerSecond": len(sold) / len(rated),
            "unitsPerSecond": sum(one.units for one in sold) / len(rated),
            "times": times,
            "drawn": {
                "at": [*drawn],
                **{kind: [counts[at] for at in drawn] for kind, counts in a_second.items()},
            },
        }
