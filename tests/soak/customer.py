"""The soak's customers: they receive events about their orders, and pay for, cancel, collect, lose and return units."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from inventory_orders.domain.events import EventType
from operations.follow import Heard
from operations.orders_file import OrderMessage

# By event, the probability with which a customer answers with each command. Commands for an order that has ended are
# rejected.
_ASKS: Mapping[str, Mapping[str, float]] = {
    EventType.ORDER_PLACED: {"confirm": 0.4, "cancel": 0.05, "cancel one": 0.05, "lose one": 0.05},
    EventType.ORDER_CONFIRMED: {
        "fulfil": 0.5,
        "cancel": 0.1,
        "fulfil one": 0.2,
        "cancel one": 0.1,
        "lose one": 0.1,
    },
    EventType.ORDER_PARTLY_FULFILLED: {"fulfil": 0.5, "cancel": 0.2, "lose one": 0.1},
    # The order may not be paid yet, and a fulfilment would wait for the payment beyond the end of the soak.
    EventType.ORDER_PARTLY_CANCELLED: {"confirm": 0.4},
    EventType.ORDER_FULFILLED: {"return": 0.5, "cancel": 0.05},
    EventType.ORDER_REJECTED: {"confirm": 0.05},
    EventType.ORDER_CANCELLED: {"confirm": 0.2},
    EventType.ORDER_EXPIRED: {"confirm": 0.2},
}
_DUPLICATES = 0.15
_LISTENING_SECONDS = 0.5


class Customers:
    """Customers who answer events with commands.

    Args:
        seed: The seed for their random behaviour.

    Attributes:
        heard: The events received, by `eventId`, without duplicates.
        repeated: Number of duplicate events.
        commands: Commands sent, in order.
        last_news: When the last new event was received, by the monotonic clock.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.heard: dict[str, Heard] = {}
        self.repeated = 0
        self.commands: list[OrderMessage] = []
        self.last_news = time.monotonic()

    def hear(self, news: Iterable[Heard]) -> list[OrderMessage]:
        """Record events that were received. Returns the commands to send."""
        asked: list[OrderMessage] = []
        for heard in news:
            event_id = heard.event["detail"]["metadata"]["eventId"]
            if event_id in self.heard:
                self.repeated += 1
                continue
            self.heard[event_id] = heard
            self.last_news = time.monotonic()
            for action, share in _ASKS.get(heard.event["detail-type"], {}).items():
                if self._chance.random() < share:
                    command = _message(action, heard.event["detail"]["data"])
                    asked += [command] * (2 if self._chance.random() < _DUPLICATES else 1)
        self.commands += asked
        return asked

    def live(
        self,
        listen: Callable[[float], Iterable[Heard]],
        send: Callable[[list[OrderMessage]], object],
        over: threading.Event,
    ) -> None:
        """Receive events and answer them until told to stop."""
        while not over.is_set():
            send(self.hear(listen(_LISTENING_SECONDS)))

    @property
    def events(self) -> Counter[str]:
        """The number of events received, by type."""
        return Counter(str(heard.event["detail-type"]) for heard in self.heard.values())

    @property
    def news_of_products(self) -> set[str]:
        """The ids of the product events received."""
        return {
            event_id
            for event_id, heard in self.heard.items()
            if "productId" in heard.event["detail"]["data"]
        }


def _message(action: str, order: Mapping[str, Any]) -> OrderMessage:
    command = {"action": action, "orderId": order["orderId"]}
    line = order["items"][0] if action == "return" or action.endswith(" one") else {}
    if action == "return":
        items = [{"productId": line["productId"], "quantity": line["quantity"]}]
        restock = line["quantity"] > 1
        command |= {"stepId": "rt-1", "items": items, "restock": restock}
    elif action.endswith(" one"):
        command |= _OF_ONE[action]
        items = [{"productId": line["productId"], "quantity": 1}]
        command |= {"stepId": action.replace(" ", "-"), "items": items}
    return OrderMessage(json.dumps(command))


_OF_ONE: Mapping[str, Mapping[str, Any]] = {
    "fulfil one": {"action": "fulfil"},
    "cancel one": {"action": "cancel"},
    "lose one": {"action": "cancel", "restock": False},
}


def differences(
    rows: Mapping[str, Mapping[str, Any]], events: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Compare the published events with the events that the orders' rows require. Empty if each was published exactly
    once.

    Args:
        rows: All orders, by id.
        events: The published events, without duplicates.
    """
    told: dict[str, list[tuple[int, str]]] = {}
    for event in events:
        data = event["detail"]["data"]
        if "orderId" in data:
            told.setdefault(data["orderId"], []).append((data["version"], event["detail-type"]))
    found = []
    for order_id in rows.keys() | told.keys():
        wanted = _happened(rows.get(order_id, {}))
        said = told.get(order_id, [])
        names = [name for _, name in sorted(said)]
        # A late payment may come at any time after the end, and one version may have several events. A customer who
        # gets a refund never receives OrderConfirmed.
        is_complete = Counter(names) == Counter(wanted) and not set(names) >= _CONTRADICTION
        first = min((version for version, _ in said), default=1)
        versions = set(range(first, rows.get(order_id, {}).get("_version", 0) + 1))
        if not is_complete or (said and {version for version, _ in said} != versions):
            found.append(f"{order_id}: its row says {wanted}, the bus said {sorted(said)}")
    return sorted(found)


def _happened(row: Mapping[str, Any]) -> list[str]:
    """List the types of the events that an order's row requires. A tombstone whose order never arrived requires
    none."""
    if "userId" not in row:
        return []
    status = row["status"]
    was_placed = any("productCreatedAt" in line for line in row["items"])
    names = [EventType.ORDER_PLACED] if was_placed else []
    names += [kind for kind, attribute in _STAMPS.items() if attribute in row]
    if status in _ENDS:
        names.append(_ENDS[status])
    actions = [step["action"] for step in row.get("steps", ())]
    names += [EventType.ORDER_RETURNED] * actions.count("return")
    moves = [action for action in actions if action in _PARTLY]
    if moves and _PARTLY[moves[-1]][1] == status:
        moves.pop()
    names += [_PARTLY[action][0] for action in moves]
    return [str(name) for name in names]


_PARTLY = {
    "fulfil": (EventType.ORDER_PARTLY_FULFILLED, "FULFILLED"),
    "cancel": (EventType.ORDER_PARTLY_CANCELLED, "CANCELLED"),
}
_STAMPS = {
    EventType.ORDER_CONFIRMED: "confirmedAt",
    EventType.ORDER_FULFILLED: "fulfilledAt",
    EventType.CONFIRMATION_REJECTED: "confirmationRejected",
}
_CONTRADICTION = {EventType.ORDER_CONFIRMED, EventType.CONFIRMATION_REJECTED}
_ENDS = {
    "REJECTED": EventType.ORDER_REJECTED,
    "CANCELLED": EventType.ORDER_CANCELLED,
    "EXPIRED": EventType.ORDER_EXPIRED,
}
