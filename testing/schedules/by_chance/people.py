"""What people do in a run: customers order, and answer events; the staff book, count, move, delist and relist."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from inventory_orders.domain.product import NewProduct

Message = dict[str, Any]
Ask = Callable[[str, Message], Message]
"""Invokes a function with a command. Returns its answer; empty if there was none."""

LOCATIONS = ("", "berlin", "lyon")
PRODUCTS = (
    NewProduct("hot", 100),
    NewProduct("hot#berlin", 25),
    NewProduct("hot#lyon", 15),
    NewProduct("tea", 40, low_stock_threshold=20),
    NewProduct("tea#berlin", 12),
    NewProduct("mug", 5, backorder_limit=15),
    NewProduct("mug#lyon", 4, backorder_limit=3),
    NewProduct("pot", 3),
    NewProduct("pot#berlin", 9, low_stock_threshold=6),
    NewProduct("pen", 400),
    NewProduct("solo", 12),
    NewProduct("drop", 60, purchase_limit=3, limit_group="drops"),
    NewProduct("drop#berlin", 20, purchase_limit=2, limit_group="drops"),
    NewProduct("season", 12),
    NewProduct("season#berlin", 8),
)
DELISTED_TOGETHER = (("solo",), ("season#berlin",), ("season#berlin", "season"))
"""Products that the staff delist for a moment. A product's own row is deleted last and created first."""

_SEASONAL = ("solo", "season")
_STOCK = {product.product_id: product.opening_stock for product in PRODUCTS}
_LASTING = [key for key in _STOCK if not key.startswith(_SEASONAL)]


@dataclass
class Mail:
    """A message that is about to be sent.

    Attributes:
        feed: The queue's name in `FEEDS`.
        text: The message body.
        group: `MessageGroupId`, for the FIFO queue.
        valid: Whether it follows the schema. Otherwise, it must become a dead letter.
    """

    feed: str
    text: str
    group: str | None = None
    valid: bool = True


def named(key: str) -> Message:
    """Build the fields of a message that name a product and its location."""
    product_id, _, location = key.partition("#")
    return {"productId": product_id} | ({"locationId": location} if location else {})


# ---------------------------------------------------------------------- messages


def mails(chance: random.Random, orders: int) -> list[Mail]:
    """Make the messages of a run, some of them twice, and some invalid.

    Args:
        chance: The source of random numbers.
        orders: Number of orders.
    """
    found = [_order(chance, number) for number in range(orders)]
    found += [_receipt(chance, number) for number in range(orders // 12)]
    found += [_details(chance, number) for number in range(orders // 20)]
    orders_to_cancel = chance.sample(range(orders), orders // 20)
    found += [_mail("OrderCommand", _command("cancel", f"o-{n}")) for n in orders_to_cancel]
    found += [_another(mail) for mail in chance.sample(found[:orders], orders // 40)]
    found += [_again(mail, chance) for mail in chance.sample(found, len(found) // 7)]
    found += [_invalid(mail, chance) for mail in chance.sample(found, len(found) // 25)]
    chance.shuffle(found)
    return found


def _mail(feed: str, body: Message, group: str | None = None) -> Mail:
    return Mail(feed, json.dumps(body), group)


def _order(chance: random.Random, number: int) -> Mail:
    products = ["hot", *chance.sample(["tea", "mug", "pot", "pen", "drop", *_SEASONAL], 2)]
    if chance.random() < 0.4:
        products.pop(0)
    lines = [
        {"productId": product, "quantity": chance.choice((1, 1, 1, 2, 3))}
        for product in products[: chance.choice((1, 1, 2))]
    ]
    body: Message = {"orderId": f"o-{number}", "userId": f"u-{number % 7}", "items": lines}
    if chance.random() < 0.6:
        body["locations"] = chance.sample(LOCATIONS, chance.choice((1, 2, 3)))
        if chance.random() < 0.4:
            body["split"] = True
    if chance.random() < 0.1:
        lines[0]["locationId"] = chance.choice(LOCATIONS[1:])
    if chance.random() < 0.3:
        body["buyers"] = [f"u-{number % 7}", f"card-{number % 3}"]
    if chance.random() < 0.2:
        body["holdSeconds"] = 60
    if chance.random() < 0.2:
        return _mail("OrderFifo", body, f"group-{number % 3}")
    return _mail("Order", body)


def orders_over_http(chance: random.Random, first: int, orders: int) -> Iterator[Message]:
    """Make the orders of callers who wait: most are for one product. Some reuse the id of an earlier order.

    Args:
        chance: The source of random numbers.
        first: The number of the first order.
        orders: How many.
    """
    for number in range(first, first + orders):
        body = json.loads(_order(chance, number).text)
        if chance.random() < 0.8:
            lines = [{"productId": "drop" if chance.random() < 0.2 else "pen", "quantity": 1}]
            body = {"orderId": f"o-{number}", "userId": f"u-{number % 7}", "items": lines}
        yield body
        if chance.random() < 0.1:
            yield body
        if chance.random() < 0.1:
            yield body | {"orderId": f"o-{chance.randrange(number)}", "userId": "another"}


def _receipt(chance: random.Random, number: int) -> Mail:
    units = {"delta": chance.choice((1, 2, 5)), "reason": "RECEIPT"}
    key = chance.choice(_LASTING)
    return _mail("Stock", {"adjustmentId": f"receipt-{number}", **named(key), **units})


def _details(chance: random.Random, number: int) -> Mail:
    at = f"2026-12-01T00:00:{number % 60:02}.000000+00:00"
    details = {"name": f"Name {number}", "price": 100 + number}
    body = {"eventId": f"event-{number}", "eventTime": at, "details": details}
    return _mail("Catalogue", body | {"productId": chance.choice(_LASTING).partition("#")[0]})


def _again(mail: Mail, chance: random.Random) -> Mail:
    """Repeat a message. The FIFO queue would drop the same body, so that the service would never receive it."""
    return Mail(mail.feed, mail.text + " " * chance.randint(1, 9), mail.group)


def _another(mail: Mail) -> Mail:
    """Make another order with a used id. The first one to arrive is placed."""
    body = json.loads(mail.text)
    return Mail(mail.feed, json.dumps(body | {"userId": "someone-else"}), mail.group)


def _invalid(mail: Mail, chance: random.Random) -> Mail:
    body = json.loads(mail.text)
    kinds = (
        mail.text[: len(mail.text) // 2],
        json.dumps(body | {"unknown": 1}),
        json.dumps(body | {chance.choice(sorted(body)): None}),
    )
    return Mail(mail.feed, chance.choice(kinds), mail.group, valid=False)


def _command(action: str, order_id: str, **more: Any) -> Message:
    return {"action": action, "orderId": order_id, **more}


# ---------------------------------------------------------------------- customers

# By event, the probability with which a customer answers with each command. A fulfilment of an order that may not be
# paid yet would wait for the payment.
_ANSWERS: Mapping[str, Mapping[str, float]] = {
    "OrderPlaced": {"confirm": 0.5, "cancel": 0.05, "cancel one": 0.05, "lose one": 0.05},
    "OrderConfirmed": {
        "fulfil": 0.5,
        "cancel": 0.1,
        "fulfil one": 0.2,
        "cancel one": 0.1,
        "lose one": 0.1,
    },
    "OrderPartlyFulfilled": {"fulfil": 0.5, "cancel": 0.2, "lose one": 0.1},
    "OrderPartlyCancelled": {"confirm": 0.4},
    "OrderFulfilled": {"return": 0.5, "cancel": 0.05},
    "OrderRejected": {"confirm": 0.05},
    "OrderCancelled": {"confirm": 0.2},
    "OrderExpired": {"confirm": 0.2},
}
_OF_ONE: Mapping[str, Message] = {
    "fulfil one": {"action": "fulfil"},
    "cancel one": {"action": "cancel"},
    "lose one": {"action": "cancel", "restock": False},
}


def answers(kind: str, order: Mapping[str, Any], chance: random.Random) -> Iterator[Message]:
    """Yield the commands with which a customer answers an event about an order.

    Args:
        kind: The type of the event.
        order: Its data.
        chance: The source of random numbers.
    """
    for action, share in _ANSWERS.get(kind, {}).items():
        if chance.random() >= share:
            continue
        order_id, line = order["orderId"], chance.choice(order["items"])
        if action == "return":
            items = [{"productId": line["productId"], "quantity": line["quantity"]}]
            restock = line["quantity"] > 1
            step = {"stepId": f"return-{line['productId']}", "items": items}
            yield _command(action, order_id, restock=restock, **step)
        elif action in _OF_ONE:
            items = [{"productId": line["productId"], "quantity": 1}]
            step = {"stepId": f"{action.split()[0]}-{line['productId']}", "items": items}
            yield _command("", order_id, **step) | _OF_ONE[action]
        else:
            yield _command(action, order_id)


# ---------------------------------------------------------------------- staff


@dataclass
class Staff:
    """Staff who work through the run.

    Attributes:
        name: Prefix of the ids of their changes.
        ask: Invokes a function.
        pause: Lets some seconds pass.
        chance: The source of random numbers.
        results: The results of the changes that they asked for: the action, and the result of the answer.
    """

    name: str
    ask: Ask
    pause: Callable[[float], None]
    chance: random.Random
    results: list[tuple[str, str]] = field(default_factory=list)
    _number: int = 0

    def count(self) -> None:
        """Count a product at a location. Sometimes a unit is missing, and sometimes there is one too many."""
        acquire = {"action": "acquire", **named(self.chance.choice(_LASTING)), "seconds": 20}
        taken = self._insist("count_stock", acquire | {"outliveInvocation": True}, tries=3)
        if taken.get("result") != "ACQUIRED":
            return
        lease, on_hand = {"lease": taken["lease"]}, taken["onHand"]
        self.pause(self.chance.uniform(0.0, 2.0))
        # With open orders, sometimes count 0, which is fewer units than they need.
        empty = 0 if taken["committed"] else on_hand
        found = self.chance.choice((empty, max(0, on_hand - 1), on_hand, on_hand + 1, on_hand + 2))
        commit = {"action": "commit", **lease, "counted": found, "adjustmentId": self._id()}
        if self._insist("count_stock", commit).get("result") != "COMMITTED":
            self._insist("count_stock", {"action": "release", **lease})

    def count_as_of_a_time(self) -> None:
        """Count a product at a location while it is sold. Sometimes a colleague counts it at the same time."""
        place = {"locationId": "", **named(self.chance.choice(_LASTING))}
        begun = [
            self._insist("count_stock", {"action": "begin", **place, "adjustmentId": each})
            for each in (self._id(), self._id())
        ]
        self.pause(self.chance.uniform(0.0, 2.0))
        for one in begun:
            if one.get("result") != "BEGUN":
                continue
            found = max(0, one["onHand"] + self.chance.choice((-1, 0, 1)))
            count = {"action": "count", **place, "snapshot": one["snapshot"], "counted": found}
            self._insist("count_stock", count | {"adjustmentId": self._id()})
            if self.chance.random() < 0.5:
                return

    def transfer(self) -> None:
        """Move units of a product between two locations; sometimes more than there are."""
        product_id, _, location = self.chance.choice([k for k in _LASTING if "#" in k]).partition(
            "#"
        )
        source, target = self.chance.sample(("", location), 2)
        route = {"from": source, "to": target, "quantity": self.chance.choice((1, 2, 4, 100_000))}
        asked = {"action": "transfer", "transferId": self._id(), "productId": product_id}
        self._insist("adjust_stock", asked | route)

    def decrement(self) -> None:
        """Take units from stock, with and without a read."""
        asked = {"action": "decrement", "adjustmentId": self._id(), "productId": "pen"}
        mode = self.chance.choice(("atomic", "optimistic"))
        self._insist("adjust_stock", asked | {"quantity": self.chance.choice((1, 3)), "mode": mode})

    def limit(self) -> None:
        """Change the purchase limit of a product, or the group that shares it."""
        limit = {"purchaseLimit": self.chance.choice((0, 1, 2, 5))}
        group = {"limitGroup": self.chance.choice(("drops", "others"))}
        changes = self.chance.choice((limit, group, limit | group))
        product_id = self.chance.choice(("drop", "drop", "tea"))
        change = {"action": "change", "productId": product_id}
        self._insist("manage_products", change | changes)

    def relist(self, since: Callable[[str], str]) -> None:
        """Delist a product at some of its locations for a moment, even while there are open orders.

        Args:
            since: Reads when a row was created.
        """
        keys = self.chance.choice(DELISTED_TOGETHER)
        for key in keys:
            delist = {"action": "delist", **named(key), "createdAt": since(key)}
            self._insist("manage_products", delist, tries=50)
        self.pause(self.chance.uniform(0.1, 2.0))
        for key in reversed(keys):
            create = {"action": "create", **named(key), "openingStock": _STOCK[key]}
            self._insist("manage_products", create, tries=50)

    def _id(self) -> str:
        self._number += 1
        return f"{self.name}-{self._number}"

    def _insist(self, function: str, command: Message, tries: int = 8) -> Message:
        """Send a command until it gets a final answer. Returns that answer; empty if there was none."""
        for _ in range(tries):
            answer = self.ask(function, command)
            if answer.get("result") not in (None, "RETRY_LATER"):
                self.results.append((command["action"], answer["result"]))
                return answer
            self.pause(0.5)
        return {}
