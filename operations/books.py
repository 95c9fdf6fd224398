"""The books: compares each product's units with its adjustments and orders, and lists every change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from inventory_orders.domain.allotments import PageKey
from inventory_orders.domain.location import in_words, location_of, public_key
from inventory_orders.domain.outbound import Generation

from .faults import (
    lent_to,
    problems_of,
    problems_of_orders,
    problems_of_places,
    problems_of_transfers,
)
from .lanes import Pages, Places
from .movements import (
    Movement,
    Row,
    adjustment_of,
    lane_of,
    movements_of,
    stranded,
)
from .words import lane_name


class Differences(NamedTuple):
    """By how many units each of the three stock figures is too high; negative if it is too low.

    Attributes:
        available: Difference in the units that orders can take.
        on_hand: Difference in the units in the warehouse.
        committed: Difference in the units on hand that are not available.
    """

    available: int = 0
    on_hand: int = 0
    committed: int = 0


NO_DIFFERENCE = Differences()

Finding = tuple[Differences, tuple[str, ...]]
"""The differences of a product, and descriptions of its problems."""

FINE: Finding = (NO_DIFFERENCE, ())
GONE: Row = {"stockCount": 0, "onHand": 0, "status": "DELISTED", "_version": 0}
"""The values that stand for the row of a product without one."""


@dataclass(frozen=True, slots=True)
class Account:
    """The books of one generation of a product at a location, at one version of its row.

    Units on hand are known only while the row exists: a sweep drops units of deleted rows from outbound pages.

    Attributes:
        product_id: The key of its row.
        created_at: Creation time of the generation, ISO 8601.
        status: The product's status; `DELISTED` if its row is gone.
        version: The row's version; 0 if the row is gone.
        stock: Available units in the row (`stockCount`); 0 if the row is gone.
        goods: Units on hand in the row (`onHand`); 0 if the row is gone.
        adjusted: Sum of its adjustments, in units.
        sold: Units in lines of orders, handed over or not.
        left: Units handed over or lost, less units that returned to stock.
        open: Units of `PENDING` and `CONFIRMED` orders that are neither handed over nor cancelled.
        settled: Whether the figures are consistent; false if the product changes too fast to be read.
        in_lanes: Units in lanes, by lane.
        outbound: Units on outbound pages, which the row still counts as on hand.
        lent_to: The lanes that its row names; they may hold more units.
        places: The other locations that its row names; only a product's own row names any.
        problems: Descriptions of broken invariants of the row, the pages and the orders.
        pages: The pages read together with the row.
    """

    product_id: str
    created_at: str
    status: str
    version: int
    stock: int
    goods: int
    adjusted: int
    sold: int
    left: int
    open: int
    settled: bool = True
    in_lanes: Mapping[int, int] = field(default_factory=dict)
    outbound: int = 0
    lent_to: tuple[int, ...] = ()
    places: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    pages: Pages = field(default_factory=Pages, compare=False, repr=False)

    @property
    def generation(self) -> Generation:
        """The key of its row, and the row's creation time."""
        return Generation(self.product_id, self.created_at)

    @property
    def name(self) -> str:
        """The product and, unless it is the default one, the location, as text."""
        return in_words(self.product_id)

    @property
    def is_place(self) -> bool:
        """Whether the account is about a location other than the default."""
        return bool(location_of(self.product_id))

    @property
    def available(self) -> int:
        """The units that orders can take, in the row and in lanes."""
        return self.stock + sum(self.in_lanes.values())

    @property
    def on_hand(self) -> int:
        """The units in the warehouse, sold or not: the row's units less the units on outbound pages."""
        return self.goods - self.outbound

    @property
    def committed(self) -> int:
        """The units on hand that are not available."""
        return self.on_hand - self.available

    @property
    def differences(self) -> Differences:
        """The three figures less the units that adjustments and orders explain; all 0 when the books balance."""
        available = self.available - (self.adjusted - self.sold)
        if not self.version:
            return Differences(available)
        on_hand = self.on_hand - (self.adjusted - self.left)
        return Differences(available, on_hand, self.committed - self.open)

    @property
    def difference(self) -> int:
        """The available units, less the units that adjustments and orders explain."""
        return self.differences.available

    @property
    def unexplained(self) -> dict[str, int]:
        """The units that are certainly unexplained, by figure, without zeros."""
        found = self.differences._asdict() if self.settled else {}
        return {name: units for name, units in found.items() if units}

    @property
    def unexplained_in_words(self) -> list[str]:
        """Phrases about units that are certainly unexplained, worded to follow the product's name and "has"."""
        if not self.settled:
            return []
        available, on_hand, committed = self.differences
        where = f" ({self.where})" if self.in_lanes else ""
        row = f" (row: {self.goods:,}, outbound pages: {-self.outbound:,})" if self.outbound else ""
        found = [
            (self.available, f"available{where}", "its adjustments and orders say", available),
            (self.on_hand, f"on hand{row}", "its adjustments and orders say", on_hand),
        ]
        # A unit missing from one of the other figures is also missing here.
        if committed != on_hand - available:
            who = "PENDING and CONFIRMED orders wait for"
            found.append((self.committed, "committed", who, committed))
        return [
            f"{units:,} {name}, but {who} {units - unexplained:,}: {unexplained:+,} unexplained"
            for units, name, who, unexplained in found
            if unexplained
        ]

    @property
    def where(self) -> str:
        """A description of where the available units are."""
        lanes = [f"{lane_name(lane)}: {units:,}" for lane, units in self.in_lanes.items()]
        return ", ".join([f"row: {self.stock:,}", *lanes])

    @property
    def as_json(self) -> dict[str, Any]:
        """The account as JSON, for other programs."""
        return {
            **public_key(self.product_id),
            "createdAt": self.created_at,
            "status": self.status,
            "onHand": self.on_hand,
            "committed": self.committed,
            "available": self.available,
            "inRow": self.stock,
            "inLanes": self.in_lanes,
            "lentTo": self.lent_to,
            "onHandInRow": self.goods,
            "onOutboundPages": self.outbound,
            "adjusted": self.adjusted,
            "sold": self.sold,
            "left": self.left,
            "open": self.open,
            "unexplained": self.unexplained.get("available", 0),
            "unexplainedOnHand": self.unexplained.get("on_hand", 0),
            "unexplainedCommitted": self.unexplained.get("committed", 0),
            "settled": self.settled,
            "problems": self.problems,
        }

    @property
    def is_wrong(self) -> bool:
        """Whether the figures are certain, and something is wrong."""
        return self.settled and self.finding != FINE

    @property
    def balances(self) -> bool:
        """Whether the figures are consistent, and nothing is wrong."""
        return self.settled and self.finding == FINE

    @property
    def finding(self) -> Finding:
        """The differences and problems, which are certain only if the account is settled."""
        return self.differences, self.problems


@dataclass(frozen=True, slots=True)
class Books:
    """All accounts, and the rows from which they are computed.

    Attributes:
        accounts: One for each generation of a product, at each location.
        orders: All orders, by id.
        adjustments: All booked adjustments.
        corrupt_pages: Errors of unreadable pages, by page name. These pages count as empty.
        corrupt_rows: Errors of other unreadable rows, by table and key. These rows are left out.
        movements: How many rows of the table of movements are missing or differ from what the orders say, and how many no
            order accounts for.
        barcodes: Descriptions of barcodes whose rows and products differ.
        purchases: Descriptions of buyers whose rows and orders differ.
    """

    accounts: tuple[Account, ...]
    orders: Mapping[str, dict[str, Any]]
    adjustments: Sequence[Row]
    corrupt_pages: Mapping[str, str] = field(default_factory=dict)
    corrupt_rows: Mapping[str, str] = field(default_factory=dict)
    movements: tuple[int, int] = (0, 0)
    barcodes: Sequence[str] = ()
    purchases: Sequence[str] = ()

    @property
    def is_sound(self) -> bool:
        """Whether all rows can be read, movements and purchases match the orders, and barcodes match the products."""
        return not (self.corrupt or any(self.movements) or self.barcodes or self.purchases)

    @property
    def corrupt(self) -> list[str]:
        """The errors of all unreadable pages and rows."""
        return [*self.corrupt_pages.values(), *self.corrupt_rows.values()]


# ---------------------------------------------------------------------- adding up


def booked(adjustments: Iterable[Row]) -> Iterator[Row]:
    """Leave out refused decrements, which moved no units and name no generation."""
    return (row for row in adjustments if "rejected" not in row)


def add_up(
    products: Iterable[Row],
    adjustments: Iterable[Row],
    orders: Iterable[Row],
    pages: Pages,
) -> list[Account]:
    """Compare each product's units with its adjustments and orders, if all were read at the same time."""
    places = Places({row["productId"]: row for row in products}, pages, pages)
    by_product = dict.fromkeys(places.products, places)
    return add_up_places(by_product, booked(adjustments), orders, pages)


def add_up_places(
    places: Mapping[str, Places],
    adjustments: Iterable[Row],
    orders: Iterable[Row],
    latest: Pages,
    *,
    unsettled: Collection[str] = (),
    read: Collection[str] | None = None,
) -> list[Account]:
    """Compare each product's units with its adjustments and orders, location by location.

    Changes made after the units were read do not count.

    Args:
        places: The rows and pages that were read, by key, for every product with a row or units in a page.
        adjustments: Adjustments, read after the products.
        orders: Orders, read after the products.
        latest: The outbound pages, read after the orders.
        unsettled: Keys whose rows may be inconsistent, because they changed during the read.
        read: The keys whose rows and adjustments were read; None for all.
    """
    orders, adjustments = list(orders), list(adjustments)
    rows = {
        Generation(product_id, row["createdAt"]): row
        for product_id, read in places.items()
        if (row := read.rows.get(product_id)) is not None
    }
    adjusted = _sum_up(map(adjustment_of, adjustments), rows, places)
    moved = _sum_up((each for order in orders for each in movements_of(order)), rows, places)
    moved.open.subtract(_total(each for order in orders for each in stranded(order)))
    in_lanes, outbound, restless = _held(places, rows, moved.between)
    versions = {name: page.version for name, page in latest.outbound.items()}
    problems = _merged(
        problems_of_orders(orders, dict(rows.keys()), versions),
        *_problems_between(places, rows, adjustments, read),
    )
    return [
        Account(
            *key,
            status=(row := rows.get(key, GONE))["status"],
            version=row["_version"],
            stock=row["stockCount"],
            goods=row["onHand"],
            adjusted=adjusted.available[key],
            sold=-moved.available[key],
            left=-moved.on_hand[key],
            open=moved.open[key],
            settled=key[0] not in restless.union(unsettled),
            in_lanes=(held := in_lanes.get(key, {})),
            outbound=outbound[key],
            lent_to=lent_to(row),
            places=tuple(sorted(row.get("places", ()))),
            problems=(*problems_of(rows.get(key), held), *problems.get(key, ())),
            pages=places[key[0]].before if key in rows else Pages(),
        )
        for key in sorted({*rows, *adjusted.available, *moved.available, *in_lanes, *problems})
    ]


def _problems_between(
    places: Mapping[str, Places],
    rows: Mapping[Generation, Row],
    adjustments: Collection[Row],
    read: Collection[str] | None,
) -> Iterator[Mapping[Generation, list[str]]]:
    """Yield contradictions between the rows and adjustments of a product's locations."""
    unreadable = set[str]().union(*(each.unreadable for each in _reads(places)))

    def is_known(key: str) -> bool:
        return (read is None or key in read) and key not in unreadable

    yield problems_of_places({key: row for (key, _), row in rows.items()}, is_known)
    yield problems_of_transfers(adjustments, is_known)


def _merged(*found: Mapping[Generation, list[str]]) -> dict[Generation, list[str]]:
    keys = {key for each in found for key in each}
    return {key: [words for each in found for words in each.get(key, ())] for key in keys}


def _total(units: Iterable[tuple[Generation, int]]) -> Counter[Generation]:
    total = Counter[Generation]()
    for key, number in units:
        total[key] += number
    return total


@dataclass(frozen=True, slots=True)
class _Sums:
    """The units that movements added to each stock figure, by generation.

    Attributes:
        available: Added to the units that orders can take.
        on_hand: Added to the units in the warehouse.
        open: Added to the units that orders are waiting for.
        between: Units added to a page between its two reads, by generation and page. They are not in any of the figures.
    """

    available: Counter[Generation] = field(default_factory=Counter)
    on_hand: Counter[Generation] = field(default_factory=Counter)
    open: Counter[Generation] = field(default_factory=Counter)
    between: Counter[tuple[Generation, str]] = field(default_factory=Counter)


def _sum_up(
    movements: Iterable[Movement], rows: Mapping[Generation, Row], places: Mapping[str, Places]
) -> _Sums:
    """Add up the movements that rows and pages include, and the movements that wrote a page between its two reads."""
    sums = _Sums()
    for movement in movements:
        key = movement.generation
        row = rows.get(key)
        if row is None or movement.is_in(row["_version"], places[key[0]].before):
            sums.available[key] += movement.available
            sums.on_hand[key] += movement.on_hand
            sums.open[key] += movement.open
        elif movement.page and movement.is_in(0, places[key[0]].after):
            # A sale takes units off a lane's page, an amend may return some; a hand-over adds units to an outbound page.
            sums.between[key, movement.page] += movement.available - movement.on_hand
    return sums


def _held(
    places: Mapping[str, Places],
    rows: Mapping[Generation, Row],
    between: Counter[tuple[Generation, str]],
) -> tuple[dict[Generation, dict[int, int]], Counter[Generation], set[str]]:
    """Find the units in lanes and on outbound pages by generation.

    Returns:
        The units in lanes, the units on outbound pages, and the products whose units moved in ways other than sales
            and hand-overs.
    """
    lanes, outbound = _in_lanes(places, "before"), _outbound(places, rows, "before")
    in_lanes: dict[Generation, dict[int, int]] = {}
    for (key, name), units in sorted(lanes.items(), key=lambda entry: lane_of(entry[0][1])):
        in_lanes.setdefault(key, {})[lane_of(name)] = units
    before = lanes | outbound
    after = _in_lanes(places, "after") | _outbound(places, rows, "after")
    moved = {
        place[0][0]
        for place in before.keys() | after.keys() | between.keys()
        if before.get(place, 0) + between[place] != after.get(place, 0)
    }
    return in_lanes, _total((key, units) for (key, _), units in outbound.items()), moved


_When = Literal["before", "after"]
_ByPage = dict[tuple[Generation, str], int]
"""Units by generation and page."""


def _in_lanes(places: Mapping[str, Places], when: _When) -> _ByPage:
    return {
        (Generation(product_id, entry.created_at), name): entry.units
        for read in _reads(places)
        for name, page in getattr(read, when).by_name.items()
        for product_id, entry in page.entries.items()
        # Workers never look for a product in a page to which it does not belong.
        if places.get(product_id) is read and page.key == PageKey.of(page.key.lane, product_id)
    }


def _outbound(places: Mapping[str, Places], rows: Mapping[Generation, Row], when: _When) -> _ByPage:
    return {
        (lot, name): units
        for read in _reads(places)
        for name, page in getattr(read, when).outbound.items()
        for lot, units in page.units.items()
        # A sweep drops units of deleted rows.
        if lot in rows and places[lot[0]] is read
    }


def _reads(places: Mapping[str, Places]) -> Iterable[Places]:
    """Return each distinct read once. Products that were read together share a read."""
    return {id(read): read for read in places.values()}.values()


# ---------------------------------------------------------------------- history


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a product's history.

    Attributes:
        version: The row's version after the change; None for an atomic decrement, which reads no version, and for
            changes that do not write the row: an order from a lane, and units that leave.
        at: Time of the change, ISO 8601; empty for a gap.
        what: A description of the change.
        delta: Change in the available units; 0 for a gap.
        available: Available units after the change.
        on_hand_delta: Change in the units on hand; 0 for a gap.
        on_hand: Units on hand after the change.
        facts: The change for other programs, as in `Movement`; empty for a gap.
    """

    version: int | None
    at: str
    what: str
    delta: int
    available: int
    on_hand_delta: int
    on_hand: int
    facts: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def as_json(self) -> dict[str, Any]:
        """The entry as JSON, for other programs."""
        return {
            **self.facts,
            "version": self.version,
            "at": self.at,
            "what": self.what,
            "delta": self.delta,
            "available": self.available,
            "onHandDelta": self.on_hand_delta,
            "onHand": self.on_hand,
        }


def history(books: Books, account: Account) -> list[Entry]:
    """List every change to a product's stock up to the account's version, in sequence, with the gaps between them.

    Once a generation has ended, it has no units on hand, so later hand-overs change nothing.
    """
    movements = [
        *map(adjustment_of, books.adjustments),
        *(movement for order in books.orders.values() for movement in movements_of(order)),
    ]
    entries: list[Entry] = []
    available, on_hand, seen, closed = 0, 0, 0, False
    for movement in _by_version(one for one in movements if _belongs_to(account, one)):
        version = movement.row_version
        entries += _gap(seen, (version or 0) - 1, available, on_hand)
        closed = closed or movement.closes
        moved = -on_hand if closed else movement.on_hand
        available, on_hand = available + movement.available, on_hand + moved
        entries.append(
            Entry(
                version,
                movement.at,
                movement.what,
                movement.available,
                available,
                moved,
                on_hand,
                movement.facts,
            )
        )
        seen = max(seen, version or 0)
    return entries + _gap(seen, account.version, available, on_hand)


def _belongs_to(account: Account, movement: Movement) -> bool:
    return movement.generation == account.generation and (
        not account.version or movement.is_in(account.version, account.pages)
    )


def _gap(seen: int, last: int, available: int, on_hand: int) -> list[Entry]:
    """Build the entry for the versions after `seen` up to `last`, if there are any."""
    if last <= seen:
        return []
    missing = f"{last}" if last == seen + 1 else f"{seen + 1} to {last}"
    return [Entry(None, "", f"(version {missing}: {_GAP})", 0, available, 0, on_hand)]


_GAP = "no stock change with a version: details, price, lease, units moved to or from lanes, or an atomic decrement"


def _by_version(found: Iterable[Movement]) -> list[Movement]:
    """Sort movements by the row's version. A movement without a version is inserted according to its time."""
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
