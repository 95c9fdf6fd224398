"""The demonstration's shop: receives the events of its orders, answers them with commands, and compares events with rows.

Its commands confirm, amend, fulfil and cancel orders, return units, and undo a hand-over.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from inventory_orders.domain.events import EventType
from inventory_orders.domain.record import OrderAction
from inventory_orders.store.rows import Row, read_order
from operations.follow import Heard
from operations.orders_file import OrderMessage

# The shop pays every fourth order that holds stock, and ships every second paid order. A quarter of the shipped orders with
# several lines leave in two parcels, and lose a unit in between. The customers of every twelfth order change it.
_PAID, _SHIPPED, _BROKEN, _CHANGED = 4, 8, 32, 12


@dataclass
class Shop:
    """Receives events and answers them with commands.

    Args:
        run: Prefix of the ids of its orders. The shop ignores events of other orders.
        orders: How many orders were sent.
        unpaid: Ids of the orders that stay unpaid.

    Attributes:
        heard: The events by `eventId`, in the sequence in which they arrived, without duplicates.
        repeated: How many events arrived again.
        awaited: How many events have to arrive: one for each order's outcome, each command, and each expired hold of an
            unpaid order. Each other hold that expires raises it.
    """

    run: str
    orders: int
    unpaid: frozenset[str]
    heard: dict[str, Heard] = field(default_factory=dict)
    repeated: int = 0
    awaited: int = 0
    _once: set[EventType] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.awaited = self.orders + 2 * len(self.unpaid)

    def hear(self, news: Iterable[Heard]) -> list[OrderMessage]:
        """Record events, and decide what to do about them. Return the commands to send."""
        commands = []
        for heard in news:
            data = _data(heard)
            if not str(data.get("orderId", "")).startswith(f"{self.run}-"):
                continue
            event_id = heard.event["detail"]["metadata"]["eventId"]
            if event_id in self.heard:
                self.repeated += 1
                continue
            self.heard[event_id] = heard
            kind = EventType(heard.event["detail-type"])
            # The setting `holdSeconds`, or the order itself, may limit its hold.
            self.awaited += kind is EventType.ORDER_EXPIRED and data["orderId"] not in self.unpaid
            command = self._answer(kind, data)
            if command is not None:
                commands.append(OrderMessage(json.dumps(command)))
        self.awaited += len(commands)
        return commands

    def _answer(self, kind: EventType, order: Mapping[str, Any]) -> dict[str, Any] | None:
        order_id = order["orderId"]
        # Every run makes the same decisions for the same orders.
        chance = zlib.crc32(order_id.removeprefix(self.run).encode())
        match kind:
            case EventType.ORDER_PLACED if order_id not in self.unpaid and chance % _PAID == 0:
                return {"action": "confirm", "orderId": order_id}
            # A customer wants one more unit and, of several products, one not any more.
            case EventType.ORDER_PLACED if order_id not in self.unpaid and chance % _CHANGED == 1:
                return _amend(order)
            # One customer pays for a rejected order.
            case EventType.ORDER_REJECTED if self._is_first(kind):
                return {"action": "confirm", "orderId": order_id}
            # A large order ships in two parcels, or loses a line that is missing on the shelf.
            case EventType.ORDER_CONFIRMED if chance % _SHIPPED == 0 and len(order["items"]) > 1:
                action = "fulfil" if chance % (2 * _SHIPPED) == 0 else "cancel"
                (first, *_) = order["items"]
                items = [{"productId": first["productId"], "quantity": first["quantity"]}]
                return {
                    "action": action,
                    "orderId": order_id,
                    "stepId": "first-line",
                    "items": items,
                }
            case EventType.ORDER_CONFIRMED if chance % _SHIPPED == 0:
                return {"action": "fulfil", "orderId": order_id}
            # A unit breaks while the second parcel is packed. The rest ships.
            case EventType.ORDER_PARTLY_FULFILLED if (
                chance % _BROKEN == 0 and _units_left(order) > 1
            ):
                broken = next(item for item in order["items"] if _open(item))
                return {
                    "action": "cancel",
                    "orderId": order_id,
                    "stepId": "broken",
                    "items": [{"productId": broken["productId"], "quantity": 1}],
                    "restock": False,
                }
            case EventType.ORDER_PARTLY_FULFILLED | EventType.ORDER_PARTLY_CANCELLED:
                return {"action": "fulfil", "orderId": order_id}
            # One parcel that was booked as handed over is still there, and leaves later.
            case EventType.ORDER_FULFILLED if len(order["items"]) == 1 and self._is_first(
                EventType.ORDER_UNFULFILLED
            ):
                return {"action": "unfulfil", "orderId": order_id, "stepId": "still-here"}
            case EventType.ORDER_UNFULFILLED:
                return {"action": "fulfil", "orderId": order_id, "stepId": "left-now"}
            # One customer sends several products back.
            case EventType.ORDER_FULFILLED if len(order["items"]) > 1 and self._is_first(kind):
                items = [
                    {"productId": item["productId"], "quantity": item["fulfilled"]}
                    for item in order["items"]
                    if "fulfilled" in item
                ]
                returned = {"stepId": "all-of-it", "items": items, "restock": True}
                return {"action": "return", "orderId": order_id, **returned}
        return None

    def _is_first(self, kind: EventType) -> bool:
        is_first = kind not in self._once
        self._once.add(kind)
        return is_first

    @property
    def events(self) -> Counter[str]:
        """How many events of each type it has received."""
        return Counter(heard.event["detail-type"] for heard in self.heard.values())

    @property
    def delays(self) -> list[float]:
        """The sorted delays of the events: how many seconds after its change each of them arrived in the queue."""
        return sorted(heard.delay for heard in self.heard.values() if heard.delay is not None)

    def differences(self, rows: Mapping[str, Row]) -> list[str]:
        """Check that each step in an order's row has exactly one event, in sequence. Return descriptions of all differences.

        The hold of an order that is not in `unpaid` may expire after the shop has stopped listening.
        """
        told: dict[str, list[Heard]] = {order_id: [] for order_id in rows}
        for heard in self.heard.values():
            told.setdefault(_data(heard)["orderId"], []).append(heard)
        return [
            f"{order_id}: the row says {_in_words(wanted)}, the bus said {_in_words(got)}"
            for order_id, news in told.items()
            if (got := [_step(heard) for heard in news])
            != (wanted := _steps(rows[order_id]) if order_id in rows else [])
            and (order_id in self.unpaid or got != _without_expiry(wanted))
        ]


def _amend(order: Mapping[str, Any]) -> dict[str, Any]:
    *others, last = order["items"]
    items = [{"productId": last["productId"], "quantity": last["quantity"] + 1}]
    items += [{"productId": item["productId"], "quantity": 0} for item in others[:1]]
    return {"action": "amend", "orderId": order["orderId"], "stepId": "changed", "items": items}


def _units_left(order: Mapping[str, Any]) -> int:
    return sum(map(_open, order["items"]))


def _open(item: Mapping[str, Any]) -> int:
    """Return the units of a line that are neither shipped nor cancelled."""
    left: int = item["quantity"] - item.get("fulfilled", 0) - item.get("cancelled", 0)
    return left


_Step = tuple[str, int, str]
"""The type of an event, the version of the order's row, and the order's status."""


def _step(heard: Heard) -> _Step:
    data = _data(heard)
    return heard.event["detail-type"], data["version"], data["status"]


def _steps(row: Row) -> list[_Step]:
    """Return the steps of an order according to its row. Each step has a version."""
    order = read_order(row)
    kind = EventType.ORDER_PLACED if order.reason is None else EventType.ORDER_REJECTED
    steps = [(order.created_at, kind, "PENDING" if order.reason is None else "REJECTED")]
    for number, step in enumerate(order.steps, 1):
        action = OrderAction(step.action)
        kind, status = _TOLD[action]
        if action in _PARTLY and any(line.open for line in order.units(number).values()):
            kind, status = _PARTLY[action], "CONFIRMED"
        steps.append((step.at, kind, status or str(order.status)))
    steps += [
        (refused.at, EventType.ORDER_AMEND_REJECTED, "PENDING") for refused in order.rejected_amends
    ]
    if (late := order.confirmation_rejected) is not None:
        steps.append((late.at, EventType.CONFIRMATION_REJECTED, str(order.status)))
    found = [
        (str(kind), number, status)
        for number, (_, kind, status) in enumerate(sorted(steps, key=itemgetter(0)), 1)
    ]
    if (order.status, order.version) != (found[-1][2], len(found)):
        found.append(("?", order.version, str(order.status)))
    return found


def _without_expiry(steps: list[_Step]) -> list[_Step]:
    """Leave out the last step if it is the end of a hold."""
    return steps[:-1] if steps and steps[-1][0] == EventType.ORDER_EXPIRED else steps


_PARTLY = {
    OrderAction.FULFIL: EventType.ORDER_PARTLY_FULFILLED,
    OrderAction.CANCEL: EventType.ORDER_PARTLY_CANCELLED,
}
_TOLD = {
    OrderAction.CONFIRM: (EventType.ORDER_CONFIRMED, "CONFIRMED"),
    OrderAction.FULFIL: (EventType.ORDER_FULFILLED, "FULFILLED"),
    OrderAction.CANCEL: (EventType.ORDER_CANCELLED, "CANCELLED"),
    OrderAction.EXPIRE: (EventType.ORDER_EXPIRED, "EXPIRED"),
    OrderAction.RETURN: (EventType.ORDER_RETURNED, None),
    OrderAction.AMEND: (EventType.ORDER_AMENDED, "PENDING"),
    OrderAction.UNFULFIL: (EventType.ORDER_UNFULFILLED, "CONFIRMED"),
}


def _in_words(steps: Sequence[_Step]) -> str:
    return (
        ", ".join(f"{kind} ({version}, {status})" for kind, version, status in steps) or "nothing"
    )


def _data(heard: Heard) -> Mapping[str, Any]:
    data: Mapping[str, Any] = heard.event["detail"].get("data", {})
    return data


def percentile(values: Sequence[float], share: float) -> float:
    """Find the value that this share of the sorted values does not exceed. If there are no values, return 0."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0
