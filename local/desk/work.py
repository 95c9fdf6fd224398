"""An operator's work at the desk: reads products, orders and lanes, and invokes the functions that change them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from inventory_orders.api.products import shown_change, shown_level
from inventory_orders.api.requests import encode_cursor, place_after
from inventory_orders.domain.events import to_json
from inventory_orders.domain.location import in_words, stock_key
from inventory_orders.domain.outbound import Generation
from inventory_orders.domain.record import OrderStatus
from inventory_orders.lanes.levels import StockLevel
from inventory_orders.store.lists import OrderFilter
from local.dashboard.signals import Signals, orders_of_last_hour
from local.desk import today
from local.desk.letters import Letters, NotFoundError
from operations import orders, queues, search, stock
from operations.aws import Aws
from operations.errors import UserError
from operations.history import read_history
from operations.lanes import read_lanes

Document = dict[str, Any]

ORDERS_OF_A_PAGE = 100
CHANGES_OF_A_PAGE = 25
PRODUCTS_OF_A_PAGE = 300

ORDERS_OF_A_FILE = 10_000
"""A file has at most this many orders. To get more, ask for ranges of time on the command line."""

TO_SHIP = OrderFilter(status=OrderStatus.CONFIRMED)

MOST_HITS = 50
"""A search shows at most this many results of each kind."""

SECONDS_TO_COUNT_ORDERS = 5.0
"""How long an answer may wait for the number of orders."""

_FUNCTIONS = {
    **dict.fromkeys(("adjust", "transfer"), "AdjustStock"),
    **dict.fromkeys(("create", "change", "discontinue", "listAgain", "delist"), "ManageProducts"),
    **dict.fromkeys(("acquire", "commit", "release"), "CountStock"),
    **dict.fromkeys(("confirm", "fulfil", "cancel", "return"), "ChangeOrders"),
}
"""The function that carries out each command of the desk."""

_HAVE_AN_ACTOR = {"adjust", "transfer", "commit", "confirm", "fulfil", "cancel", "return"}

_NOT_IN_A_HOLDER = re.compile("[^A-Za-z0-9._:-]")
"""Characters that a user's name may have, but the holder of a count may not."""


class Desk:
    """Reads and changes the stack that `stack` returns. The stack may be deployed again at any time.

    If a request names something that does not exist, it raises `NotFoundError`. If a command gets no answer, it raises
    `LostAnswerError`.
    """

    def __init__(
        self, stack: Callable[[], Aws], *, is_embedded: bool, signals: Signals | None = None
    ) -> None:
        self._stack = stack
        self._is_embedded = is_embedded
        self._actor = f"desk:{psutil.Process().username()}"
        self.letters = Letters(stack)
        self._signals = signals

    def about(self) -> Document:
        """Return where the stack runs, whether it is in production, and the currency of its prices."""
        aws = self._stack()
        about = {"place": aws.place, "embedded": self._is_embedded, "production": aws.is_production}
        return about | {"currency": aws.currency._asdict()}

    def attention(self) -> object:
        """Return state that can change without an event: dead letters in each queue, alarms that are on, the last sweep."""
        aws = self._stack()
        alarms = self._signals and self._signals.alarms().get("on")
        return self.letters.depths(), alarms, today.last_sweep(aws)

    def today(self) -> Document:
        """Return the counts for the page Today. Those of orders are as of the last sweep."""
        aws, signals = self._stack(), self._signals

        reads: dict[str, Callable[[], Document]] = {
            "orders": lambda: today.orders(aws),
            "products": lambda: today.products(aws),
            "deadLetters": self.letters.counted,
        }
        if signals is not None:
            reads["alarms"] = signals.alarms
            reads["lastHour"] = lambda: orders_of_last_hour(signals)
        with ThreadPoolExecutor(len(reads)) as pool:
            return dict(zip(reads, pool.map(lambda read: read(), reads.values()), strict=True))

    def products(self, pages: int = 1) -> Document:
        """List the first pages of products with their stock, and describe rows that cannot be read.

        Products that are out of stock or low come first. A product with stock at several locations is listed once, with
        its total and its `places`. `isAll` says whether all products are listed.
        """
        aws = self._stack()
        levels, unreadable, has_more = stock.list_by_status(
            aws, stock.URGENCY, pages * PRODUCTS_OF_A_PAGE
        )
        groups = stock.by_product(levels).values()
        products = [stock.shown_total(group, aws.locations) for group in groups]
        products.sort(key=lambda one: (stock.URGENCY.index(one["status"]), one["productId"]))
        return {"products": products, "unreadable": dict(unreadable), "isAll": not has_more}

    def product(self, product_id: str, location_id: str) -> Document:
        """Return a product's stock at a location.

        If a `count` of this stock is open, return it as well. If the product has several locations, also return its
        `total` stock and the units `onTheWay` between locations.
        """
        aws = self._stack()
        level, levels = _levels(aws, product_id, location_id)
        shown = shown_level(level, aws.locations)
        if (count := stock.open_count(level.product)) is not None:
            shown["count"] = count
        if len(levels) > 1:
            keys = [each.product.product_id for each in levels]
            shown["total"] = stock.shown_total(levels, aws.locations)
            shown["onTheWay"] = stock.on_the_way(aws, keys)
        return shown

    def promised(self, product_id: str, location_id: str) -> Document:
        """Count the units of a product that are promised to open orders. Also count these orders, within a few seconds.

        For the default location, this includes all other locations, because a product discontinued there is
        discontinued everywhere.
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
        """Count the orders that are waiting in the queues."""
        return queues.orders_waiting(self._stack())

    def find(self, text: str) -> Document:
        """Find what has exactly this id or, if nothing has it, search words of products, references, locations and dead letters.

        `unsearched` describes what was left out.
        """
        aws = self._stack()
        hits, unsearched = search.find_exactly(aws, text), [{"what": "parts"}]
        if not any(hits.values()):
            hits, unsearched = search.find_others(aws, text, MOST_HITS, self.letters.read)
        is_all = all(len(some) <= MOST_HITS for some in hits.values())
        shown = {kind: some[:MOST_HITS] for kind, some in hits.items()}
        return {**shown, "isAll": is_all, "unsearched": unsearched}

    def history(self, product_id: str, location_id: str, **cursor: str) -> Document:
        """List changes to a product's stock at a location, newest first, from a `cursor` on or from the latest change.

        The answer says up to which time it shows the units of orders, and has the `next` cursor if there are more changes.
        """
        key = stock_key(product_id, location_id)
        after = place_after(key, cursor)
        found = read_history(self._stack(), key, CHANGES_OF_A_PAGE, after)
        if not found.entries and after is None:
            raise NotFoundError(f"there is no product {in_words(key)}")
        following = {} if found.after is None else {"next": encode_cursor(key, found.after)}
        entries = [*map(shown_change, found.entries)]
        return {"entries": entries, "completeUntil": found.complete_until, **following}

    def orders(self, wanted: OrderFilter = TO_SHIP, pages: int = 1) -> Document:
        """List the first pages of orders. The list of a product says up to which time it is complete."""
        aws = self._stack()
        listed = orders.list_orders(aws, wanted, pages * ORDERS_OF_A_PAGE)
        return {
            "orders": listed.orders,
            "isAll": not listed.has_more,
            "unreadable": listed.unreadable,
            "completeUntil": listed.complete_until,
            "names": _names(aws, listed.orders),
        }

    def orders_file(self, wanted: OrderFilter) -> Document:
        """Write a list of orders as CSV, up to a maximum number of lines."""
        listed = orders.list_orders(self._stack(), wanted, ORDERS_OF_A_FILE)
        return {"csv": orders.orders_as_csv(listed.orders), "isAll": not listed.has_more}

    def order(self, order_id: str) -> Document:
        """Return an order with the names of its products."""
        aws = self._stack()
        found = orders.read_order(aws, order_id)
        if found is None:
            raise NotFoundError(f"there is no order {order_id}")
        # Numbers become text, because a browser rounds numbers of more than 53 bits.
        attributes = {
            name: value if isinstance(value, str) else json.dumps(value, default=to_json)
            for name, value in found.get("attributes", {}).items()
        }
        return found | {"names": _names(aws, [found]), "attributes": attributes}

    def lanes(self) -> Document:
        """List the lanes with their workers and units, and describe pages that cannot be read."""
        found, pages = read_lanes(self._stack())
        now = time.time()
        return {"lanes": [lane.shown(now) for lane in found], "unreadable": dict(pages.corrupt)}

    def carry_out(self, command: Mapping[str, Any]) -> Document:
        """Invoke the function that carries out a command. Return its answer, and whether the command is `done`."""
        action = command.get("action")
        if action not in _FUNCTIONS:
            raise UserError(f"the desk has no command {action!r}")
        by = {"actor": self._actor} if action in _HAVE_AN_ACTOR else {}
        if action == "acquire":
            by = {"holder": _NOT_IN_A_HOLDER.sub("-", self._actor)[:64]}
        answer = self._stack().invoke(_FUNCTIONS[action], {**command, **by})
        return answer | {"done": "code" not in answer}


def _levels(aws: Aws, product_id: str, location_id: str) -> tuple[StockLevel, list[StockLevel]]:
    """Read the stock of a product at one location, and at all its locations."""
    levels, key = stock.read_everywhere(aws, product_id), stock_key(product_id, location_id)
    for level in levels:
        if level.product.product_id == key:
            return level, levels
    raise NotFoundError(f"there is no product {in_words(key)}")


def _names(aws: Aws, orders: Iterable[Document]) -> dict[str, str]:
    """Read the names of all products in these orders, by product id."""
    return stock.product_names(
        aws, {item["productId"] for order in orders for item in order["items"]}
    )
