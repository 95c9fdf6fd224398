"""Stock levels: units available in rows and lanes, units on hand, and which orders can be shipped from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.allotments import DEPOT, PAGES, Page, PageKey
from inventory_orders.domain.location import public_key
from inventory_orders.domain.outbound import OUTBOUND_KEYS
from inventory_orders.domain.product import Product
from inventory_orders.domain.record import OrderRecord, OrderStatus
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient, read_all, read_rows
from inventory_orders.errors import (
    CorruptItemError,
    OutcomeError,
    RequestInvalidError,
    ThrottledError,
)
from inventory_orders.store.dynamodb import Snapshot
from inventory_orders.store.lists import OrderFilter
from inventory_orders.store.rows import Key
from inventory_orders.store.sweep_rows import read_swept, write_swept

# Maximum number of snapshots. Each may show that another row or page has to be read together with the others.
_TRIES = 5

ALL_LANES = -1
"""Stands for all lanes together."""

# Maximum age of a stored level: two intervals between sweeps, if these are as long as they may be.
_MAX_AGE = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class StockLevel:
    """How many units of a product there were at one time, and where.

    Attributes:
        product: Its row.
        in_lanes: Units by lane; 0 is the depot. Those in `ALL_LANES` are in all lanes together.
        outbound: Units on outbound pages, which the row still counts as on hand.
        is_exact: Whether row and pages were read in one transaction. Otherwise units that moved between the reads may be
            missing or counted twice.
        as_of: When the last sweep read the available units; empty if they were read now.
    """

    product: Product
    in_lanes: Mapping[int, int] = field(default_factory=dict)
    outbound: int = 0
    is_exact: bool = True
    as_of: str = ""

    @property
    def available(self) -> int:
        """Units that are not sold, in the row and in lanes, with the safety stock; negative when units are on backorder."""
        return self.product.stock_count + sum(self.in_lanes.values())

    @property
    def left_to_sell(self) -> int:
        """Units that orders can take without a backorder; none if the product is discontinued."""
        left = self.available - self.product.safety_stock
        return 0 if self.product.is_discontinued else max(0, left)

    @property
    def on_hand(self) -> int:
        """Units in the warehouse, sold or not; negative if goods left before their receipt was recorded."""
        return self.product.on_hand - self.outbound

    @property
    def may_be_torn(self) -> bool:
        """Whether units may have moved between row and pages during the reads."""
        return not self.is_exact and bool(self.product.lent_to or self.outbound)

    @property
    def committed(self) -> int:
        """Units of orders that are neither handed over, cancelled nor expired."""
        return self.on_hand - self.available


def estimate_levels(
    client: RetryingClient, snapshot: Snapshot, deadline: Deadline, *, on_hand: bool = True
) -> dict[str, StockLevel]:
    """Estimate stock levels from rows that were just read, their pages in lanes, and the outbound pages.

    Args:
        snapshot: The rows as read. The pages are added to it, and the errors of products with an unreadable page.
        on_hand: Whether to read outbound pages. If not, only the available units are correct.

    Returns:
        The levels by product id.
    """
    rows = _rows_in(snapshot)
    keys = dict.fromkeys(key for row in rows for key in _pages_of(row))
    outbound = OUTBOUND_KEYS if on_hand and rows else ()
    snapshot.add(read_all(client, [*keys, *outbound], deadline, CommitStats()))
    levels = {}
    for row in rows:
        try:
            levels[row.product_id] = _level(row, snapshot, is_exact=False)
        except CorruptItemError as error:
            snapshot.unreadable[row.product_id] = CorruptItemError(str(error), "CORRUPT_PRODUCT")
    return levels


def list_levels(
    client: RetryingClient, snapshot: Snapshot, deadline: Deadline, *, on_hand: bool = True
) -> dict[str, StockLevel]:
    """Estimate stock levels like `estimate_levels`, but those of products in lanes as of the last sweep.

    So a list reads at most four rows instead of a page of every lane. Lanes are read only for products that the sweep has not
    seen there.
    """
    known = _known_to_sweep(client, snapshot, deadline)
    # The lanes of these products are not read.
    rows = {key: replace(level.product, lent_to=frozenset()) for key, level in known.items()}
    snapshot.products.update(rows)
    now = estimate_levels(client, snapshot, deadline, on_hand=on_hand)
    return {
        key: replace(known[key], outbound=level.outbound) if key in known else level
        for key, level in now.items()
    }


def _known_to_sweep(
    client: RetryingClient, snapshot: Snapshot, deadline: Deadline
) -> dict[str, StockLevel]:
    rows = {row.product_id: row for row in _rows_in(snapshot) if row.lent_to}
    names = sorted({_swept_row(PageKey.of(DEPOT, key).number) for key in rows})
    stored = client.ask(read_swept, deadline, names)
    since = timestamp(client.clock.now() - _MAX_AGE)
    return {
        key: StockLevel(replace(rows[key], stock_count=in_row), {ALL_LANES: in_lanes}, 0, False, at)
        for at, levels in stored.values()
        for key, (created_at, in_row, in_lanes) in levels.items()
        if at >= since and key in rows and created_at == rows[key].created_at
    }


def lent_products(client: RetryingClient, deadline: Deadline) -> list[str]:
    """The keys of the rows that may have units in lanes, sorted. The depot also names those of which only other lanes have units."""
    depot = [PageKey(DEPOT, number) for number in range(PAGES)]
    return sorted(
        key
        for page in read_all(client, depot, deadline, CommitStats()).pages.values()
        if isinstance(page, Page)
        for key in (*page.entries, *page.emptied)
    )


def sweep_levels(client: RetryingClient, deadline: Deadline) -> None:
    """Read the available units of all products in lanes, each page once, and store them for lists."""
    at, lent = timestamp(client.clock.now()), lent_products(client, deadline)
    rows = read_all(client, lent, deadline, CommitStats())
    levels = estimate_levels(client, rows, deadline, on_hand=False)
    for number in range(PAGES):
        part = {
            key: (level.product.created_at, level.product.stock_count, sum(level.in_lanes.values()))
            for key, level in levels.items()
            if PageKey.of(DEPOT, key).number == number
        }
        if part:
            client.ask(write_swept, deadline, _swept_row(number), at, part)


def _swept_row(number: int) -> str:
    """The key of the row for the products on a page of each lane."""
    return f"levels/{number}"


def read_level(
    client: RetryingClient, product_id: str, deadline: Deadline, stats: CommitStats
) -> StockLevel | None:
    """Read the stock level of one row like `read_levels`; None if the row does not exist."""
    levels = read_levels(client, product_id, deadline, stats, everywhere=False)
    return levels[0] if levels else None


def read_levels(
    client: RetryingClient,
    product_id: str,
    deadline: Deadline,
    stats: CommitStats,
    *,
    everywhere: bool = True,
) -> list[StockLevel]:
    """Read the stock levels of a product at each of its locations, as a snapshot.

    If other processes keep writing the rows, the answer is an estimate. The same holds if there are more rows and pages
    than one transaction can read: 100 items, or 4 MB.

    Args:
        product_id: The product, or the key of a row.
        everywhere: Whether to include its other locations.

    Returns:
        The levels, the row's own first; empty if the row does not exist.

    Raises:
        CorruptItemError: A row or a page is unreadable.
    """
    keys: list[Key] = [product_id]
    # Leave time for an estimate.
    soon = Deadline.after(deadline.remaining() / 2, client.clock)
    for _ in range(_TRIES):
        try:
            found = client.call(
                partial(client.store.read_together, [*keys, *OUTBOUND_KEYS]), soon, stats
            )
        except (ThrottledError, RequestInvalidError):
            # The request is invalid if there are too many items, or if they are too large.
            break
        _check_readable(found)
        rows = _rows_in(found)
        named: list[Key] = [
            *(page for row in rows for page in _pages_of(row)),
            *(key for row in rows if everywhere for key in row.place_keys),
        ]
        if {*named} <= {*keys}:
            return [_level(row, found, is_exact=True) for row in rows]
        keys = [product_id, *dict.fromkeys(named)]
    found = read_rows(client, [product_id], deadline, everywhere=everywhere)
    levels = estimate_levels(client, found, deadline)
    _check_readable(found)
    return [*levels.values()]


def _rows_in(found: Snapshot) -> list[Product]:
    return [row for row in found.products.values() if row is not None]


def _check_readable(found: Snapshot) -> None:
    for error in found.unreadable.values():
        raise error


def _pages_of(row: Product) -> list[PageKey]:
    return [PageKey.of(lane, row.product_id) for lane in sorted(row.lent_to)]


def _level(row: Product, found: Snapshot, *, is_exact: bool) -> StockLevel:
    in_lanes = {}
    for key in _pages_of(row):
        page = found.pages[key]
        if isinstance(page, CorruptItemError):
            raise page
        entry = page.entries.get(row.product_id)
        # Units of another generation do not count.
        if entry is not None and entry.created_at == row.created_at:
            in_lanes[key.lane] = entry.units
    return StockLevel(row, in_lanes, found.outbound_units(row), is_exact)


def read_committed(
    client: RetryingClient, keys: Sequence[str], deadline: Deadline, stats: CommitStats
) -> dict[str, int]:
    """The field of an answer that shows how many units open orders hold; empty if a row cannot be read in time."""
    # Leave time for the command.
    soon = Deadline.after(deadline.remaining() / 4, client.clock)
    with suppress(OutcomeError):
        levels = [read_level(client, key, soon, stats) for key in keys]
        if committed := [level.committed for level in levels if level is not None]:
            return {"committed": sum(committed)}
    return {}


def mark_shippable(
    client: RetryingClient,
    orders: Sequence[tuple[OrderRecord, dict[str, Any]]],
    deadline: Deadline,
    location_id: str | None = None,
) -> None:
    """Mark whether all open units of each order are on hand, and if not, which are missing.

    Each order is judged separately: units that suffice for either of two orders count for both. An order with a product
    whose units cannot be read is not marked.

    Args:
        orders: Each order as stored, and as shown in the answer. The mark is added to the latter.
        location_id: The only location to consider; None for all.

    Raises:
        StoreError: DynamoDB failed.
    """
    if not orders:
        return
    wanted = [open_units(*each, location_id) for each in orders]
    keys = dict.fromkeys(key for units in wanted for key in units)
    found = read_all(client, [*keys, *OUTBOUND_KEYS], deadline, CommitStats())
    for (order, shown), units in zip(orders, wanted, strict=True):
        with suppress(CorruptItemError):
            missing = _missing(order, units, found)
            shown.update({"shippable": not missing} | ({"missing": missing} if missing else {}))


def open_units(
    order: OrderRecord, shown: Mapping[str, Any], location_id: str | None = None
) -> dict[str, int]:
    """The open units of an order, at one location or at all of them, by the key of the row that they were sold from."""
    units = {
        line.key: item["quantity"] - item.get("fulfilled", 0) - item.get("cancelled", 0)
        for line, item in zip(order.lines, shown["items"], strict=True)
        if location_id in (None, line.location_id)
    }
    return {key: wanted for key, wanted in units.items() if wanted}


def is_listed(wanted: OrderFilter, order: OrderRecord, shown: Mapping[str, Any]) -> bool:
    """Whether an order belongs to a list, by its row. An index may be behind, and does not show which units are open.

    Args:
        wanted: Which orders are listed.
        order: The order as stored.
        shown: The order as shown in the answer.
    """
    has_ended = order.status not in (OrderStatus.PENDING, OrderStatus.CONFIRMED)
    supplied_from = {line.location_id for line in order.lines if line.product_created_at}
    return wanted.status in (None, order.status) and (
        wanted.location_id is None
        or bool(open_units(order, shown, wanted.location_id))
        or (has_ended and wanted.location_id in supplied_from)
    )


def _missing(order: OrderRecord, units: Mapping[str, int], found: Snapshot) -> list[dict[str, Any]]:
    missing = []
    for line in order.lines:
        wanted, on_hand = units.get(line.key, 0), 0
        if wanted and line.key in found.unreadable:
            raise found.unreadable[line.key]
        row = found.products.get(line.key)
        if row is not None and row.created_at == line.product_created_at:
            on_hand = row.on_hand - found.outbound_units(row)
        if wanted and on_hand < wanted:
            missing.append({**public_key(line.key), "wanted": wanted, "onHand": on_hand})
    return missing
