"""The books: compares each product's units with its adjustments and orders, and lists how they came about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from inventory_orders.domain.allotments import Page, PageKey
from operations.faults import lent_to, problems_of, problems_of_orders
from operations.lanes import Pages, Places
from operations.movements import Incarnation, Movement, Row, adjustment_of, lane_of, sales_of

Finding = tuple[int, tuple[str, ...]]
"""Units too many or too few, and problems in words."""

FINE: Finding = (0, ())
GONE: Row = {"stockCount": 0, "status": "DELISTED", "_version": 0}
"""Stands for the row of a product that has none."""


@dataclass(frozen=True, slots=True)
class Account:
    """One incarnation of a product, at one version of it.

    Attributes:
        product_id: The product.
        created_at: Creation time of the incarnation, ISO 8601.
        status: The product's status; `DELISTED` if its row is gone.
        version: The row's version; 0 if the row is gone.
        stock: Units in the row; 0 if the row is gone.
        adjusted: Sum of its adjustments, in units.
        sold: Units in orders that hold stock.
        settled: Whether the figures belong together; false if the product changes too fast to be read.
        in_lanes: Units in lanes, by lane.
        lent_to: The lanes that its row names: those that may hold more of it.
        problems: Broken invariants of the row, the pages and the orders, in words.
        pages: The pages that were read with the row, by name.
    """

    product_id: str
    created_at: str
    status: str
    version: int
    stock: int
    adjusted: int
    sold: int
    settled: bool = True
    in_lanes: Mapping[int, int] = field(default_factory=dict)
    lent_to: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()
    pages: Mapping[str, Page] = field(default_factory=dict, compare=False, repr=False)

    @property
    def incarnation(self) -> Incarnation:
        """The product's id, and when it was created."""
        return self.product_id, self.created_at

    @property
    def on_hand(self) -> int:
        """Units in the row and in lanes."""
        return self.stock + sum(self.in_lanes.values())

    @property
    def difference(self) -> int:
        """Units on hand, less those that adjustments and orders explain; 0 when the books balance."""
        return self.on_hand - (self.adjusted - self.sold)

    @property
    def unexplained(self) -> int:
        """Units that are certainly unexplained."""
        return self.difference if self.settled else 0

    @property
    def as_json(self) -> dict[str, Any]:
        """The account, for other programs."""
        return {
            "productId": self.product_id,
            "createdAt": self.created_at,
            "status": self.status,
            "onHand": self.on_hand,
            "inRow": self.stock,
            "inLanes": self.in_lanes,
            "lentTo": self.lent_to,
            "adjusted": self.adjusted,
            "sold": self.sold,
            "unexplained": self.unexplained,
            "settled": self.settled,
            "problems": self.problems,
        }

    @property
    def is_wrong(self) -> bool:
        """Whether something is certainly wrong."""
        return self.settled and self.finding != FINE

    @property
    def balances(self) -> bool:
        """Whether its figures belong together, and nothing is wrong."""
        return self.settled and self.finding == FINE

    @property
    def finding(self) -> Finding:
        """What seems to be wrong."""
        return self.difference, self.problems


@dataclass(frozen=True, slots=True)
class Books:
    """All accounts, and the rows that they are computed from.

    Attributes:
        accounts: One for each incarnation of a product.
        orders: All orders, by id.
        adjustments: All adjustments that were booked.
        corrupt_pages: Errors of the pages that cannot be read, by page name. These pages count as empty.
        corrupt_rows: Errors of the other rows that cannot be read, by table and key. These rows are left out.
    """

    accounts: tuple[Account, ...]
    orders: Mapping[str, dict[str, Any]]
    adjustments: Sequence[Row]
    corrupt_pages: Mapping[str, str] = field(default_factory=dict)
    corrupt_rows: Mapping[str, str] = field(default_factory=dict)

    @property
    def corrupt(self) -> list[str]:
        """Errors of all pages and rows that cannot be read."""
        return [*self.corrupt_pages.values(), *self.corrupt_rows.values()]


# ---------------------------------------------------------------------- adding up


def booked(adjustments: Iterable[Row]) -> Iterator[Row]:
    """Leave out decrements that were refused. They moved nothing, and name no incarnation."""
    return (row for row in adjustments if "rejected" not in row)


def add_up(
    products: Iterable[Row],
    adjustments: Iterable[Row],
    orders: Iterable[Row],
    pages: Iterable[Page] = (),
) -> list[Account]:
    """Compare each product's units on hand with its adjustments and orders, which are read after products and pages."""
    together = Pages({str(page.key): page for page in pages})
    places = Places({row["productId"]: row for row in products}, together, together)
    return add_up_places(dict.fromkeys(places.products, places), booked(adjustments), orders)


def add_up_places(
    places: Mapping[str, Places],
    adjustments: Iterable[Row],
    orders: Iterable[Row],
    *,
    unsettled: Collection[str] = (),
) -> list[Account]:
    """Compare each product's units on hand with its adjustments and orders up to then.

    Args:
        places: Where the units were, by product id: all products that have a row or are in a page.
        adjustments: Adjustments, read after the products.
        orders: Orders, read after the products.
        unsettled: Ids of products whose rows may not belong together, because they changed during the read.
    """
    orders = list(orders)
    rows = {
        (product_id, row["createdAt"]): row
        for product_id, read in places.items()
        if (row := read.rows.get(product_id)) is not None
    }
    adjusted, _ = _sum_up(map(adjustment_of, adjustments), rows, places)
    sales = (movement for order in orders for movement in sales_of(order))
    sold, between = _sum_up(sales, rows, places)
    in_lanes, moved = _held(places, between)
    unsettled = moved.union(unsettled)
    problems = problems_of_orders(orders, dict(rows.keys()))
    return [
        Account(
            *key,
            status=(row := rows.get(key, GONE))["status"],
            version=row["_version"],
            stock=row["stockCount"],
            adjusted=adjusted[key],
            sold=-sold[key],
            settled=key[0] not in unsettled,
            in_lanes=in_lanes.get(key, {}),
            lent_to=lent_to(row),
            problems=(*problems_of(rows.get(key), in_lanes.get(key, {})), *problems.get(key, ())),
            pages=places[key[0]].before.by_name if key in rows else {},
        )
        for key in sorted({*rows, *adjusted, *sold, *in_lanes, *problems})
    ]


def _sum_up(
    movements: Iterable[Movement], rows: Mapping[Incarnation, Row], places: Mapping[str, Places]
) -> tuple[Counter[Incarnation], Counter[tuple[Incarnation, str]]]:
    """Sum up the units of the movements that rows and pages show, and of the sales from a page between its two reads.

    Returns:
        The units by incarnation, and the others by incarnation and page.
    """
    shown, between = Counter[Incarnation](), Counter[tuple[Incarnation, str]]()
    for movement in movements:
        key = movement.incarnation
        row = rows.get(key)
        if row is None or movement.is_in(row["_version"], places[key[0]].before.by_name):
            shown[key] += movement.delta
        elif movement.page and movement.is_in(0, places[key[0]].after.by_name):
            between[key, movement.page] += movement.delta
    return shown, between


def _held(
    places: Mapping[str, Places], between: Counter[tuple[Incarnation, str]]
) -> tuple[dict[Incarnation, dict[int, int]], set[str]]:
    """Find the units in lanes by incarnation, and the products whose units moved in another way than by sales."""
    before, after = _in_pages(places, "before"), _in_pages(places, "after")
    in_lanes: dict[Incarnation, dict[int, int]] = {}
    for (key, name), units in sorted(before.items(), key=lambda entry: lane_of(entry[0][1])):
        in_lanes.setdefault(key, {})[lane_of(name)] = units
    moved = {
        place[0][0]
        for place in before.keys() | after.keys() | between.keys()
        if before.get(place, 0) + between[place] != after.get(place, 0)
    }
    return in_lanes, moved


def _in_pages(
    places: Mapping[str, Places], when: Literal["before", "after"]
) -> dict[tuple[Incarnation, str], int]:
    """Units in pages, by incarnation and page."""
    return {
        ((product_id, entry.created_at), name): entry.units
        for read in {id(read): read for read in places.values()}.values()
        for name, page in getattr(read, when).by_name.items()
        for product_id, entry in page.entries.items()
        # No worker looks for the product in a page that it does not belong to.
        if places.get(product_id) is read and page.key == PageKey.of(page.key.lane, product_id)
    }


# ---------------------------------------------------------------------- history


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a product's history.

    Attributes:
        version: The row's version after the change; None for an order from a lane, which does not write the row, and
            for an atomic decrement, which does not read a version.
        at: Time of the change, ISO 8601; empty for a gap.
        delta: Change of stock, in units; 0 for a gap.
        what: The change, in words.
        stock: Units on hand after the change.
    """

    version: int | None
    at: str
    delta: int
    what: str
    stock: int


def history(books: Books, account: Account) -> list[Entry]:
    """List every change of a product's stock up to its version, in order, with the gaps between them."""
    movements = [
        *map(adjustment_of, books.adjustments),
        *(movement for order in books.orders.values() for movement in sales_of(order)),
    ]
    entries: list[Entry] = []
    stock, seen = 0, 0
    for movement in _by_version(one for one in movements if _belongs_to(account, one)):
        version = movement.row_version
        entries += _gap(seen, (version or 0) - 1, stock)
        stock += movement.delta
        entries.append(Entry(version, movement.at, movement.delta, movement.what, stock))
        seen = max(seen, version or 0)
    return entries + _gap(seen, account.version, stock)


def _belongs_to(account: Account, movement: Movement) -> bool:
    return movement.incarnation == account.incarnation and (
        not account.version or movement.is_in(account.version, account.pages)
    )


def _gap(seen: int, last: int, stock: int) -> list[Entry]:
    """The entry for the versions after `seen` up to the last one; none if there are none."""
    if last <= seen:
        return []
    missing = f"{last}" if last == seen + 1 else f"{seen + 1} to {last}"
    return [Entry(None, "", 0, f"(version {missing}: {_GAP})", stock)]


_GAP = "no change of stock by version: details, price, lease, units moved to or from lanes, or an atomic decrement"


def _by_version(found: Iterable[Movement]) -> list[Movement]:
    """Sort by the row's version; a change that made none is placed by its time."""
    in_time = sorted(found, key=lambda movement: movement.at)
    others = [movement for movement in in_time if movement.row_version is None]
    versioned = [movement for movement in in_time if movement.row_version is not None]
    result: list[Movement] = []
    placed = 0
    for movement in sorted(versioned, key=lambda movement: movement.row_version or 0):
        while placed < len(others) and others[placed].at < movement.at:
            result.append(others[placed])
            placed += 1
        result.append(movement)
    return result + others[placed:]
