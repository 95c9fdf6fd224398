"""An operator's work at the desk: reads products, orders, dead letters and lanes, and changes them by the stack's functions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Lock
from typing import Any

import psutil

from inventory_orders.api.products import shown_level
from inventory_orders.clock import timestamp
from inventory_orders.domain.events import to_json
from inventory_orders.domain.location import in_words, stock_key
from inventory_orders.domain.outbound import Generation
from inventory_orders.errors import InvalidMessageError
from inventory_orders.lanes.levels import StockLevel
from inventory_orders.messages.documents import strict_json
from inventory_orders.store.lists import list_orders
from inventory_orders.store.tables import Table
from local.dashboard.signals import Signals, orders_of_last_hour
from local.desk import today
from operations import orders, queues, redrive, stock
from operations.audit import read_history
from operations.aws import Aws
from operations.codes import DEAD_LETTERS, Redrive
from operations.dead_letters import read_dead_letters
from operations.errors import UserError
from operations.lanes import read_lanes

Document = dict[str, Any]

ORDERS_OF_A_PAGE = 100
MOST_DEAD_LETTERS = 100
"""Dead letters shown of each queue."""

MOST_HITS = 50
"""Hits shown of each kind."""

# No id is that long, and DynamoDB refuses longer keys.
_LONGEST_ID = 1024

MOST_ORDERS_TO_SEARCH, SECONDS_TO_SEARCH_ORDERS = 20_000, 3.0
SECONDS_TO_COUNT_ORDERS = 5.0
"""How long a question may wait for them."""

_FUNCTIONS = {
    **dict.fromkeys(("adjust", "transfer"), "AdjustStock"),
    **dict.fromkeys(("create", "change", "discontinue", "listAgain", "delist"), "ManageProducts"),
    **dict.fromkeys(("acquire", "commit", "release"), "CountStock"),
    **dict.fromkeys(("confirm", "fulfil", "cancel", "return"), "ChangeOrders"),
}
"""The function that carries out each command of the desk."""

_HAVE_AN_ACTOR = {"adjust", "transfer", "commit", "confirm", "fulfil", "cancel", "return"}


class NotFoundError(UserError):
    """There is no such thing; the message names it."""


class Desk:
    """Reads and changes the stack that `stack` finds, which may be deployed again at any time.

    What names a thing that is not there raises `NotFoundError`, and a command without an answer `LostAnswerError`.
    """

    def __init__(
        self, stack: Callable[[], Aws], *, is_embedded: bool, signals: Signals | None = None
    ) -> None:
        self._stack = stack
        self._is_embedded = is_embedded
        self._actor = f"desk:{psutil.Process().username()}"
        # Messages that one request reads are hidden from another one.
        self._dead_letters = Lock()
        self._signals = signals

    def about(self) -> Document:
        """Tell which stack this is."""
        aws, here = self._stack(), self._is_embedded
        return {"place": aws.place, "embedded": here, "production": aws.is_production}

    def attention(self) -> object:
        """Return the state that no event announces: the number of dead letters in each queue, and the active alarms."""
        return today.depths(self._stack()), self._signals and self._signals.alarms().get("on")

    def today(self) -> Document:
        """Show what needs attention."""
        aws, signals = self._stack(), self._signals

        def letters() -> Document:
            with self._dead_letters:
                return today.dead_letters(aws)

        reads: dict[str, Callable[[], Document]] = {
            "toShip": lambda: today.to_ship(self.orders()),
            "held": lambda: today.held(self.orders(are_held=True)),
            "products": lambda: today.products(self.products()),
            "deadLetters": letters,
        }
        if signals is not None:
            reads["alarms"] = signals.alarms
            reads["lastHour"] = lambda: orders_of_last_hour(signals)
        with ThreadPoolExecutor(len(reads)) as pool:
            return dict(zip(reads, pool.map(lambda read: read(), reads.values()), strict=True))

    def products(self) -> Document:
        """List all products with their levels, and what is wrong with those that cannot be read.

        A product with stock at several locations comes once, with its total and its `places`.
        """
        levels, unreadable = stock.list_stock(self._stack())
        products = list(map(stock.shown_total, stock.by_product(levels).values()))
        products.sort(key=lambda one: (stock.URGENCY.index(one["status"]), one["productId"]))
        return {"products": products, "unreadable": dict(unreadable)}

    def product(self, product_id: str, location_id: str) -> Document:
        """Show a product's stock at a location, and how many orders `history` would read (on AWS up to six hours old).

        If it has several locations, also its `total` stock, its stock at each of its `places`, and the units `onTheWay` between them.
        """
        aws = self._stack()
        level, levels = _levels(aws, product_id, location_id)
        shown = shown_level(level) | {"ordersToRead": _count_orders(aws)}
        if len(levels) > 1:
            keys = [each.product.product_id for each in levels]
            shown |= {"total": stock.shown_total(levels), "onTheWay": stock.on_the_way(aws, keys)}
        return shown

    def promised(self, product_id: str, location_id: str) -> Document:
        """Say how many units of a product open orders wait for, and how many orders were found that do, in a few seconds.

        At the default location these are the units at all of them: what ends there ends everywhere.
        """
        aws = self._stack()
        level, levels = _levels(aws, product_id, location_id)
        if location_id:
            levels = [level]
        units, count, is_all = sum(each.committed for each in levels), 0, True
        if units:
            rows = {Generation(each.product.product_id, each.product.created_at) for each in levels}
            count, is_all = orders.count_open(aws, rows, SECONDS_TO_COUNT_ORDERS)
        is_exact = all(each.is_exact for each in levels)
        return {"units": units, "isExact": is_exact, "orders": count, "ordersAreAll": is_all}

    def left(self, product_id: str) -> dict[str, int]:
        """Estimate the units of a product that can be ordered at each of its locations."""
        return stock.estimate_left(self._stack(), product_id)

    def waiting(self) -> int:
        """Count the orders that wait in the queues."""
        aws = self._stack()
        names = [name for name in (queues.STANDARD, queues.FIFO) if name in aws.outputs]
        return sum(queues.depth(aws, name).total for name in names)

    def find(self, text: str) -> Document:
        """Find what has this id; if nothing has, what has the text in its id or name, and orders with it as a reference.

        Orders are read for that, unless there are too many (`areOrdersRead`).
        """
        aws = self._stack()
        products = self.products()["products"]
        levels = [level for product in products for level in product.get("places", [product])]
        places = sorted({level["locationId"] for level in levels if "locationId" in level})
        ids = {*places, *(product["productId"] for product in products)}
        is_id = 0 < len(text.encode()) <= _LONGEST_ID
        order = orders.read_order(aws, text) if is_id else None
        customers = [text] if is_id and list_orders(aws.store(), text, 1, None)[0] else []
        is_whole, part = bool(order or customers or text in ids), text.casefold()
        are_read = is_whole or _count_orders(aws) <= MOST_ORDERS_TO_SEARCH
        found, are_all = [order] if order else [], True
        if are_read and not is_whole:
            found, are_all = orders.find_orders(aws, text, MOST_HITS, SECONDS_TO_SEARCH_ORDERS)

        def fits(name: str, another: str | None = None) -> bool:
            return name == text if is_whole else part in f"{name}\n{another or ''}".casefold()

        hits: dict[str, list[Any]] = {
            "orders": found,
            "customers": customers,
            "products": [one for one in products if fits(one["productId"], one.get("name"))],
            "locations": [place for place in places if fits(place)],
        }
        is_all = are_all and all(len(some) <= MOST_HITS for some in hits.values())
        shown = {kind: some[:MOST_HITS] for kind, some in hits.items()}
        return {**shown, "isAll": is_all, "areOrdersRead": are_read}

    def history(self, product_id: str, location_id: str) -> Document:
        """List every change of a product's stock at a location, the oldest first. Reads all orders."""
        key = stock_key(product_id, location_id)
        found = read_history(self._stack(), key)
        if found is None:
            raise NotFoundError(f"there is no product {in_words(key)}")
        account, entries = found
        unexplained = account.unexplained_in_words
        return {"unexplained": unexplained, "entries": [entry.as_json for entry in entries]}

    def orders(
        self,
        user_id: str | None = None,
        pages: int = 1,
        location_id: str | None = None,
        *,
        are_held: bool = False,
    ) -> Document:
        """List the first pages of a user's orders, the newest first; without a user those to ship, the oldest first.

        Those to ship may be only those that wait for units at a location. Or instead, the orders that wait for payment
        under a hold, the one whose hold ends first first.
        """
        aws, most = self._stack(), pages * ORDERS_OF_A_PAGE
        if are_held:
            listed = orders.held_orders(aws, most)
        elif user_id is None:
            listed = orders.orders_to_ship(aws, most, location_id)
        else:
            listed = orders.orders_of(aws, user_id, most)
        return {
            "orders": listed.orders,
            "isAll": not listed.has_more,
            "unreadable": listed.unreadable,
            "names": _names(aws, listed.orders),
        }

    def order(self, order_id: str) -> Document:
        """Show an order."""
        aws = self._stack()
        found = orders.read_order(aws, order_id)
        if found is None:
            raise NotFoundError(f"there is no order {order_id}")
        # As text: a browser rounds numbers of more than 53 bits.
        attributes = {
            name: value if isinstance(value, str) else json.dumps(value, default=to_json)
            for name, value in found.get("attributes", {}).items()
        }
        return found | {"names": _names(aws, [found]), "attributes": attributes}

    def dead_letters(self) -> Document:
        """List the dead letters of all queues, what their causes mean, and the queues with `more` than is listed, and why."""
        aws = self._stack()
        with self._dead_letters:
            by_queue, more = read_dead_letters(aws, MOST_DEAD_LETTERS)
        names = {queue: name.removesuffix("Url") for name, queue in queues.pairs(aws)}
        letters = [
            {
                "queue": queue,
                "source": names[queue],
                "messageId": delivery.message_id,
                "group": delivery.group,
                "sentAt": timestamp(datetime.fromtimestamp(delivery.sent_at / 1000, UTC)),
                "code": delivery.content.code,
                "message": delivery.content.message,
                "body": delivery.content.body,
            }
            for queue, found in by_queue.items()
            for delivery in found
        ]
        causes = {
            code: {"meaning": meaning, "repair": repair, "mayHelp": again is not Redrive.NEVER}
            for code, (meaning, repair, again) in DEAD_LETTERS.items()
        }
        listed = [
            {"queue": names[queue], "listed": len(by_queue[queue]), "why": why}
            for queue, why in more.items()
        ]
        return {"deadLetters": letters, "causes": causes, "more": listed}

    def lanes(self) -> Document:
        """List the lanes with their workers and units, and what is wrong with pages that cannot be read."""
        found, pages = read_lanes(self._stack())
        now = time.time()
        return {"lanes": [lane.shown(now) for lane in found], "unreadable": dict(pages.corrupt)}

    def carry_out(self, command: Mapping[str, Any]) -> Document:
        """Carry out a command by the function that takes it. Returns its answer, and whether it is `done`."""
        action = command.get("action")
        if action not in _FUNCTIONS:
            raise UserError(f"the desk has no command {action!r}")
        by = {"actor": self._actor} if action in _HAVE_AN_ACTOR else {}
        answer = self._stack().invoke(_FUNCTIONS[action], {**command, **by})
        return answer | {"done": "code" not in answer}

    def settle(self, request: Mapping[str, Any]) -> Document:
        """Send one dead letter back to the queue that it came from (`action` is `redrive`), or delete it (`delete`).

        With a `body`, that is sent instead of the letter's own. Returns what `carry_out` does: the body may be refused.
        """
        aws, queue, action = self._stack(), request.get("queue"), request.get("action")
        sources = {letters: source for source, letters in queues.pairs(aws)}
        if queue not in sources or action not in ("redrive", "delete"):
            raise UserError(
                "the desk can only send again or delete dead letters of this stack's queues"
            )
        body = request.get("body")
        if body is not None:
            try:
                strict_json(body)
            except InvalidMessageError as error:
                return {"done": False, "code": error.code, "message": error.message}
        source = aws.outputs[sources[queue]] if action == "redrive" else None
        letter = str(request.get("messageId"))
        with self._dead_letters:
            was_there = redrive.settle(aws.sqs, aws.outputs[queue], letter, source, body)
        if not was_there:
            raise NotFoundError(
                "it is not in the dead-letter queue now: it was sent or deleted, or another reader has it for up to two minutes"
            )
        return {"done": True}


def _levels(aws: Aws, product_id: str, location_id: str) -> tuple[StockLevel, list[StockLevel]]:
    """Read the stock of a product at a location, and at all of them."""
    levels, key = stock.read_everywhere(aws, product_id), stock_key(product_id, location_id)
    for level in levels:
        if level.product.product_id == key:
            return level, levels
    raise NotFoundError(f"there is no product {in_words(key)}")


def _count_orders(aws: Aws) -> int:
    """On AWS the answer is up to six hours old."""
    table = aws.dynamodb.describe_table(TableName=aws.tables[Table.ORDERS])["Table"]
    return int(table["ItemCount"])


def _names(aws: Aws, orders: Iterable[Document]) -> dict[str, str]:
    """The names of the products of orders, by id."""
    return stock.product_names(
        aws, {item["productId"] for order in orders for item in order["items"]}
    )
