"""Makes a shop that has had any number of orders, by writing its rows directly.

The shares of all statuses are the same in every size, and each list has more than a page of entries in the smallest one.
What a page is asked for has the same number of entries in every size, except the hot product and the regular customer,
which grow.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, cycle
from pathlib import Path as File
from types import MappingProxyType
from typing import Any

from bench.grown.tables import LargeTable
from inventory_orders.clock import timestamp
from inventory_orders.domain.allotments import DEPOT, PAGES, Page, PageEntry, PageKey
from inventory_orders.domain.location import DEFAULT_LOCATION, stock_key
from inventory_orders.domain.outbound import OUTBOUND_KEYS, Generation, OutboundPage
from inventory_orders.domain.product import Product, stock_status
from inventory_orders.domain.record import (
    AdjustmentRecord,
    ConfirmationRejection,
    OrderLine,
    OrderRecord,
    OrderStatus,
    Step,
)
from inventory_orders.domain.rejection import Shortage
from inventory_orders.store import movements
from inventory_orders.store.rows import order_row, page_units
from inventory_orders.store.tables import Table
from inventory_orders.store.writes import word_actions
from testing.schedules.in_turn.shop import Shop
from testing.world.world import silent

BERLIN, LYON = "berlin", "lyon"
"""Most orders are sold from `BERLIN`. `LYON` has few, however many orders there are."""

NAMES = MappingProxyType(
    {
        "hot": "shirt-hot",
        "slow": "samovar-brass",
        "usual": "shirt-00152",
        "lent": "shirt-00000",
        "regular": "u-regular",
        "rare": "u-rare",
        "order": "o-rare-4",
        "reference": "JD-rare-4",
        "word": "samov",
        "common": "shirt",
    }
)
"""What the pages are asked for: products, customers, an order, a tracking number, and beginnings of words."""

_PENDING, _CONFIRMED, _FULFILLED = OrderStatus.PENDING, OrderStatus.CONFIRMED, OrderStatus.FULFILLED
_REJECTED, _CANCELLED, _EXPIRED = OrderStatus.REJECTED, OrderStatus.CANCELLED, OrderStatus.EXPIRED
_HELD = 4
_ACTIONS = {_CANCELLED: "cancel", _EXPIRED: "expire"}

_STATUSES = (
    *([_PENDING] * 7),
    *([_CONFIRMED] * 4),
    *([_FULFILLED] * 5),
    *([_REJECTED] * 3),
    *([_CANCELLED] * 3),
    *([_EXPIRED] * 3),
)
"""The statuses of 25 orders. The first `_HELD` have a hold, and all expired ones were paid too late."""

_DAYS, _OPEN_DAYS = 730, 10
"""For how many days the shop has existed, and how old the oldest open order is."""
_LEAST_PRODUCTS, _MOST_PRODUCTS, _ORDERS_OF_A_PRODUCT = 1_500, 20_000, 2
_NOUNS = ("shirt", "trousers", "jacket", "scarf")
_WORDS = ("linen", "cotton", "wool", "silk", "red", "blue", "green", "grey", "short", "long")
_RARELY_SOLD = {NAMES["usual"]}
_LOW = 5
_LEFT = {4: 3, 6: 0}
"""The available units of products that are low or sold out, by the last octal digit of the product's number."""
_RECEIPTS = {NAMES["hot"]: 40, NAMES["slow"]: 4, NAMES["usual"]: 12}
_LENT, _LANES, _UNITS_OF_LANE = 120, 8, 5
"""How many products are lent to lanes in use, how many lanes, and how many units of each product a lane has."""
_LEAVING = 120
"""How many lines were handed over since the last sweep."""


@dataclass
class _Stock:
    """The figures of a product's row while its orders are made.

    Attributes:
        version: Its version.
        taken: Units that orders took, less those that came back.
        gone: Units that were handed over.
    """

    version: int = 1
    taken: int = 0
    gone: int = 0


class GrownShop(Shop):
    """A shop that has had many orders.

    Args:
        orders: How many, in addition to a few that every shop has.
        in_use: Whether lanes hold units of some products.

    Attributes:
        requests: The operations of DynamoDB that have been called so far.
    """

    def __init__(self, orders: int, *, in_use: bool) -> None:
        super().__init__()
        tables = self.aws.dynamodb.tables
        tables.update({name: LargeTable(table) for name, table in tables.items()})
        self.requests: list[str] = []
        count = min(max(orders // _ORDERS_OF_A_PRODUCT, _LEAST_PRODUCTS), _MOST_PRODUCTS)
        self._ids = [f"{_NOUNS[n % len(_NOUNS)]}-{n:05}" for n in range(count)]
        self._now = datetime.fromtimestamp(self.clock.now(), UTC)
        self._created_at = self._at(days=_DAYS + 1)
        self._stock: defaultdict[str, _Stock] = defaultdict(_Stock)
        self._leaving: deque[tuple[str, int]] = deque(maxlen=_LEAVING)
        months = dict[movements.Key, dict[str, Any]]()
        for order in chain(self._many(orders), self._few()):
            self.put_record(order)
            moved = movements.rows_of(order_row(order))
            self.write(Table.MOVEMENTS, *moved.values())
            months |= movements.list_months(moved)
        self.write(Table.MOVEMENTS, *months.values())
        lanes = range(_LANES + 1)
        self._write_products(frozenset(lanes if in_use else ()))
        for lane in lanes:
            self._write_lane(lane, in_use=in_use)
        with self.open(), silent():
            movements.advance(self.store, self._now + timedelta(days=1))
            self.invoke("sweep", {"action": "sweep"})
        self._write_outbound()

    def answer(self, service: str, operation: str, request: dict[str, Any]) -> Any:
        if service == "dynamodb":
            self.requests.append(operation)
        return super().answer(service, operation, request)

    @property
    def read_units(self) -> float:
        """The read units that DynamoDB has consumed so far, of tables and indexes."""
        consumed = [table.consumed for table in self.aws.dynamodb.tables.values()]
        return sum(one.reads + sum(one.index_reads.values()) for one in consumed)

    def write_counts(self, file: File) -> None:
        """Write a file with counts of ten products, made a day ago."""
        lines = [f"{self._ids[number]},1000,{self._at(days=1)}\n" for number in range(0, 200, 20)]
        file.write_text("".join(["productId,counted,countedAt\n", *lines]), "utf-8")

    def _at(self, **ago: float) -> str:
        return timestamp(self._now - timedelta(**ago))

    # ------------------------------------------------------------------ orders

    def _many(self, count: int) -> Iterator[OrderRecord]:
        for number in range(count):
            status = _STATUSES[number % len(_STATUSES)]
            days = _OPEN_DAYS if status in (_PENDING, _CONFIRMED) else _DAYS
            user = NAMES["regular"] if number % 8 == 0 else f"u-{number:07}"
            at_berlin = number // len(_STATUSES) % 4 > 0
            units = dict.fromkeys(self._products_of(number, at_berlin=at_berlin), 1 + number % 2)
            ago = days * (1 - number / count)
            is_held = status == _PENDING and number % len(_STATUSES) < _HELD
            place = BERLIN if at_berlin else DEFAULT_LOCATION
            yield self._order(f"o-{number:07}", user, units, place, status, ago, is_held=is_held)

    def _products_of(self, number: int, *, at_berlin: bool) -> Iterator[str]:
        if not at_berlin:
            yield NAMES["hot"]
        for place in (number, 7 * number + 3):
            # Products with an even number are at `BERLIN`, too.
            chosen = self._ids[place % len(self._ids) // 2 * 2]
            yield chosen if chosen not in _RARELY_SOLD else self._ids[0]

    def _few(self) -> Iterator[OrderRecord]:
        """The orders of a product that moves once a month, of a customer with few orders, and of a location with few."""
        for month in range(24):
            yield self._order(
                f"o-slow-{month:02}", f"u-slow-{month}", {NAMES["slow"]: 1}, ago=30 * (24 - month)
            )
        for number in range(10):
            usual = {NAMES["usual"]: 1}
            yield self._order(f"o-rare-{number}", NAMES["rare"], usual, ago=60 * (10 - number))
        for number in range(5):
            usual, ago = {NAMES["usual"]: 1}, 1 + number
            yield self._order(f"o-lyon-{number}", f"u-lyon-{number}", usual, LYON, _CONFIRMED, ago)

    def _order(
        self,
        order_id: str,
        user_id: str,
        units: Mapping[str, int],
        place: str = DEFAULT_LOCATION,
        status: OrderStatus = _FULFILLED,
        ago: float = 0.0,
        *,
        is_held: bool = False,
    ) -> OrderRecord:
        """An order that was created `ago` days before."""
        created_at, paid_at, ended_at = (
            self._at(days=ago, hours=3 - hours, seconds=1) for hours in range(3)
        )
        is_paid = status in (_CONFIRMED, _FULFILLED)
        lines = tuple(
            self._line(product_id, quantity, place, is_sold=status != _REJECTED)
            for product_id, quantity in units.items()
        )
        steps = [Step("confirm", paid_at)] if is_paid else []
        if status == _FULFILLED:
            steps.append(self._hand_over(order_id, lines, ended_at))
        if status in (_CANCELLED, _EXPIRED):
            steps.append(self._give_back(_ACTIONS[status], lines, ended_at))
        changed_at = steps[-1].at if steps else created_at
        short = Shortage(stock_key(lines[0].product_id, place), lines[0].quantity, 0)
        return OrderRecord(
            order_id,
            user_id,
            lines,
            status,
            1 + len(steps),
            created_at,
            changed_at,
            status_at=changed_at,
            reason="INSUFFICIENT_STOCK" if status == _REJECTED else None,
            shortages=(short,) if status == _REJECTED else (),
            # The first hold ends in an hour.
            expires_at=self._at(hours=-1, days=-_OPEN_DAYS + ago) if is_held else None,
            hold_seconds=86_400 if is_held else None,
            confirmed_at=paid_at if is_paid else None,
            fulfilled_at=ended_at if status == _FULFILLED else None,
            steps=tuple(steps),
            confirmation_rejected=ConfirmationRejection(self._at(days=ago), "ORDER_EXPIRED")
            if status == _EXPIRED
            else None,
            locations=(place,) if place else None,
        )

    def _line(self, product_id: str, quantity: int, place: str, *, is_sold: bool) -> OrderLine:
        if not is_sold:
            return OrderLine(product_id, quantity)
        stock = self._stock[stock_key(product_id, place)]
        stock.taken += quantity
        line = OrderLine(product_id, quantity, self._created_at, location_id=place)
        if product_id == NAMES["hot"]:
            page = PageKey.of(1 + stock.taken % _LANES, product_id)
            return replace(line, lane_page=str(page), lane_version=1)
        stock.version += 1
        return replace(line, product_version=stock.version)

    def _hand_over(self, order_id: str, lines: Sequence[OrderLine], at: str) -> Step:
        for line in lines:
            self._stock[line.key].gone += line.quantity
            self._leaving.append((line.key, line.quantity))
        reference = order_id.replace("o-", "JD-")
        return Step("fulfil", at, notes={"reference": reference}, out_page="out/0", out_version=1)

    def _give_back(self, action: str, lines: Sequence[OrderLine], at: str) -> Step:
        versions = {}
        for line in lines:
            stock = self._stock[line.key]
            stock.version += 1
            stock.taken -= line.quantity
            versions[line.product_id] = stock.version
        quantities = {line.product_id: line.quantity for line in lines}
        return Step(action, at, quantities=quantities, restocked_versions=versions)

    # ------------------------------------------------------------------ stock

    def _write_products(self, lanes: frozenset[int]) -> None:
        outbound = Counter[str]()
        for key, units in self._leaving:
            outbound[key] += units
        for number, product_id in enumerate([*self._ids, NAMES["hot"], NAMES["slow"]]):
            is_lent = number < _LENT
            left = _LEFT.get(0 if is_lent else number % 8, 1000)
            places = [BERLIN] * (number % 2 == 0) + [LYON] * (product_id == NAMES["usual"])
            name = f"{product_id.split('-')[0].title()} {_WORDS[number % len(_WORDS)]}"
            self._write_product(
                Product(
                    product_id,
                    left - is_lent * len(lanes) * _UNITS_OF_LANE,
                    outbound.get(product_id, 0),
                    1,
                    self._created_at,
                    stock_status(left, 0, _LOW),
                    low_stock_threshold=_LOW,
                    name=name,
                    price=1_990,
                    last_updated_at=self._created_at,
                    lent_to=lanes if is_lent else frozenset(),
                    places=frozenset(places),
                ),
                left,
            )
            for key in (stock_key(product_id, place) for place in places):
                status = stock_status(1000, 0, _LOW)
                on_hand = outbound.get(key, 0)
                row = Product(
                    key, 1000, on_hand, 1, self._created_at, status, low_stock_threshold=_LOW
                )
                self._write_product(row, 1000)

    def _write_product(self, row: Product, left: int) -> None:
        """Write a row and its adjustments, which leave a number of available units after all orders."""
        stock, key = self._stock[row.product_id], row.product_id
        receipts = _RECEIPTS.get(key, 0)
        opening = stock.taken + left - receipts
        self.put(
            replace(
                row,
                on_hand=opening + receipts - stock.gone + row.on_hand,
                version=stock.version + receipts,
            )
        )
        listed = word_actions(key, frozenset(), row.words)
        self.write(Table.WORDS, *(action.write.row for action in listed))
        self._adjust(f"opening-{self._created_at}", key, opening, "OPENING", 1, _DAYS + 1)
        for number in range(receipts):
            version, ago = stock.version + number + 1, (receipts - number) * _DAYS / receipts
            self._adjust(f"receipt-{number:03}", key, 1, "RECEIPT", version, ago)

    def _adjust(
        self, adjustment_id: str, key: str, delta: int, reason: str, version: int, days: float
    ) -> None:
        self.put_record(
            AdjustmentRecord(
                key, adjustment_id, delta, reason, self._created_at, version, self._at(days=days)
            )
        )

    def _write_outbound(self) -> None:
        """Write the outbound pages, with the units that were handed over since the last sweep."""
        pages = [Counter[Generation]() for _ in OUTBOUND_KEYS]
        for page, (key, units) in zip(cycle(pages), self._leaving, strict=False):
            page[Generation(key, self._created_at)] += units
        for number, entries in zip(OUTBOUND_KEYS, pages, strict=True):
            self._write_page(OutboundPage(number, 1, "e", entries))

    def _write_lane(self, lane: int, *, in_use: bool) -> None:
        entry = PageEntry(self._created_at, _UNITS_OF_LANE, _LANES if lane == DEPOT else 0)
        for number in range(PAGES):
            key = PageKey(lane, number)
            held = [p for p in self._ids[:_LENT] if in_use and PageKey.of(lane, p) == key]
            self._write_page(Page(key, 1, "e", dict.fromkeys(held, entry)))
        if lane != DEPOT and in_use:
            lease = {"lockedBy": f"worker-{lane}", "lockTime": int(self.clock.now()) + 3_600}
            self.write(Table.ALLOTMENTS, {"page": f"{lane}/lease", **lease})

    def _write_page(self, page: Page | OutboundPage) -> None:
        self.write(
            Table.ALLOTMENTS,
            {
                "page": str(page.key),
                "_version": page.version,
                "epoch": page.epoch,
                "lastUpdatedAt": self._at(),
                "units": page_units(page),
            },
        )
