"""The shop of the model: products with opening stock, a queue of orders without end, and the books."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

from bench.simulator.lanes.store import Item, Table, place_of, write_units
from bench.workloads import Workload, stock_for

ORDER_BYTES, LINE_BYTES = 161, 98
"""Size of an order's row: without its lines, and of each line."""

PAGE_BYTES, ENTRY_BYTES = 120, 15
"""Size of a page without units, and of a product in it. With zlib, the real products of the study, an incarnation to the
microsecond and a count took 9 to 13 bytes each."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order: units by product, and what its row costs to write."""

    lines: tuple[tuple[int, int], ...]
    units: int


@dataclass(frozen=True, slots=True)
class Row:
    """The row of a product.

    Attributes:
        stock: Units in the row.
        lent: The lanes that may hold more of the product.
    """

    stock: int
    lent: frozenset[int] = frozenset()


Page = Mapping[int, int]
"""Units of a lane, by product."""


class Shelf(dict[int, int]):
    """A page of the depot: its units by product, and which products no other lane may hold."""

    def __init__(
        self, units: Page = MappingProxyType({}), narrow: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(units)
        self.narrow = narrow


def page_units(*contents: Page) -> int:
    """Units of a write of a page, which the larger of its contents decides."""
    return write_units(PAGE_BYTES + ENTRY_BYTES * max(len(content) for content in contents))


class Shop:
    """Products, their rows, the pages of the lanes, the queue, and what was sold.

    Args:
        workload: Its orders are repeated, in another order each time.
        depth: Seconds for which the stock of each product lasts at 500 orders a second; infinite for plenty.
        spread: Standard deviation of the logarithm of the depth from product to product.
        products: The table of the rows.
        allotments: The table of the pages.
        seed: Seed of the orders and of the depths.

    Attributes:
        rows: The row of each product.
        pages: The pages, by lane and number.
        demand: Units that an average order wants, by product.
        sold: Units sold, by product.
        wrong: Rejections of orders while units were there, and sales under a wrong status.
    """

    def __init__(
        self,
        workload: Workload,
        depth: float,
        spread: float,
        products: Table,
        allotments: Table,
        seed: int,
    ) -> None:
        numbers = {name: number for number, name in enumerate(workload.stock)}
        self._orders = [
            _order({numbers[name]: quantity for name, quantity in workload.quantities(o).items()})
            for o in workload.bodies
        ]
        self._allotments = allotments
        self.demand = [0.0] * len(numbers)
        for order in self._orders:
            for product, quantity in order.lines:
                self.demand[product] += quantity / len(self._orders)
        self.opening = stock_for(self.demand, depth, spread, seed)
        self.rows = [
            Item(products, place_of("product", number), Row(stock))
            for number, stock in enumerate(self.opening)
        ]
        self.pages: dict[tuple[int, int], Item] = {}
        self.sold = [0] * len(numbers)
        self.wrong = 0
        self._queue = self._endless(Random(f"queue {seed}"))

    def _endless(self, chance: Random) -> Iterator[Order]:
        while True:
            yield from chance.sample(self._orders, len(self._orders))

    def take(self, count: int) -> list[Order]:
        """Take orders from the queue."""
        return list(itertools.islice(self._queue, count))

    def page(self, lane: int, number: int) -> Item:
        """Find a page; it is made when somebody first looks."""
        if (lane, number) not in self.pages:
            item = Item(self._allotments, place_of("page", lane, number), {})
            self.pages[lane, number] = item
        return self.pages[lane, number]

    def sell(self, orders: Iterable[Order]) -> list[int]:
        """Enter placed orders into the books. Returns the products of which they took the last units."""
        ended = []
        for order in orders:
            for product, quantity in order.lines:
                self.sold[product] += quantity
                if self.sold[product] == self.opening[product]:
                    ended.append(product)
        return ended

    def is_fit_to_reject(self, order: Order, product: int) -> bool:
        """Whether the tables say at this moment that an order cannot have what it wants of a product."""
        held = sum(page.value.get(product, 0) for page in self.pages.values())
        row: Row = self.rows[product].value
        wanted = dict(order.lines)[product]
        return bool(wanted > row.stock + held)

    def faults(self) -> list[str]:
        """Find what is wrong: units that are not explained, and rules that are broken."""
        lent: Counter[int] = Counter()
        found = []
        for (lane, _), page in self.pages.items():
            for product, units in page.value.items():
                lent[product] += units
                if units and lane not in self.rows[product].value.lent:
                    found.append(f"lane {lane} holds {product}, of which its row does not know")
                if units < 0:
                    found.append(f"lane {lane} holds {units} of {product}")
        for product, item in enumerate(self.rows):
            row: Row = item.value
            explained = row.stock + lent[product] + self.sold[product]
            if explained != self.opening[product] or row.stock < 0:
                found.append(f"{product}: {explained} of {self.opening[product]} units explained")
            if row.lent and row.stock <= 0:
                found.append(f"{product}: lent, and {row.stock} in its row")
        if self.wrong:
            found.append(f"{self.wrong} orders rejected while there was stock")
        return found

    @property
    def left(self) -> float:
        """Share of the opening stock that is not sold yet."""
        return 1 - sum(self.sold) / sum(self.opening)


def _order(wanted: Mapping[int, int]) -> Order:
    return Order(tuple(wanted.items()), write_units(ORDER_BYTES + LINE_BYTES * len(wanted)))
