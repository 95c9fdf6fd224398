"""How many units of products there are: available in rows and lanes, and on hand in rows without those that have left.

And for which orders there are enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from inventory_orders.clock import Deadline
from inventory_orders.domain.allotments import PageKey
from inventory_orders.domain.location import public_key
from inventory_orders.domain.outbound import OUTBOUND_KEYS
from inventory_orders.domain.product import Product
from inventory_orders.domain.record import OrderRecord
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient, read_all
from inventory_orders.errors import (
    CorruptItemError,
    RequestInvalidError,
    ThrottledError,
    VerdictError,
)
from inventory_orders.store.dynamodb import Snapshot
from inventory_orders.store.rows import Key

# How often row and pages are looked at: the row may name another lane each time.
_TRIES = 4


@dataclass(frozen=True, slots=True)
class StockLevel:
    """The units of a product at one moment.

    Attributes:
        product: Its row.
        in_lanes: Units by lane; 0 is the depot.
        outbound: Units on outbound pages, which the row still counts as on hand.
        is_exact: Whether row and pages were read at one moment; otherwise units that moved meanwhile may be missing or
            counted twice.
    """

    product: Product
    in_lanes: Mapping[int, int] = field(default_factory=dict)
    outbound: int = 0
    is_exact: bool = True

    @property
    def available(self) -> int:
        """Units that orders can take, in the row and in lanes; negative when units are on backorder."""
        return self.product.stock_count + sum(self.in_lanes.values())

    @property
    def on_hand(self) -> int:
        """Units that are there, sold or not; negative if goods left before their receipt was booked."""
        return self.product.on_hand - self.outbound

    @property
    def may_be_torn(self) -> bool:
        """Whether units may have moved between row and pages while they were read."""
        return not self.is_exact and bool(self.product.lent_to or self.outbound)

    @property
    def committed(self) -> int:
        """Units of orders that are neither handed over, cancelled nor expired."""
        return self.on_hand - self.available


def estimate_levels(
    client: RetryingClient, snapshot: Snapshot, deadline: Deadline, *, on_hand: bool = True
) -> dict[str, StockLevel]:
    """Read the pages that may hold more of products whose rows were just read, and what has left of them.

    Args:
        snapshot: The rows. The pages are added to it, and products with a page that cannot be read to those that are
            unreadable.
        on_hand: Whether it matters what has left. Without it, only the available units are right.

    Returns:
        The levels by product id.
    """
    rows = [row for row in snapshot.products.values() if row is not None]
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


def read_level(
    client: RetryingClient, product_id: str, deadline: Deadline, stats: CommitStats
) -> StockLevel | None:
    """Read how many units of a product there are, at one moment.

    While rivals keep writing the product and no moment is free of them, the answer is an estimate. So it is if row and
    pages have more than one transaction reads, which is 4 MB.

    Returns:
        The level; None if there is no such product.

    Raises:
        CorruptItemError: The row or a page cannot be read.
    """
    pages: list[PageKey] = []
    for _ in range(_TRIES):
        keys: list[Key] = [product_id, *pages, *OUTBOUND_KEYS]
        try:
            found = client.call(partial(client.store.read_together, keys), deadline, stats)
        except (ThrottledError, RequestInvalidError):
            # Invalid: with the pages of its lanes it is too large.
            break
        if product_id in found.unreadable:
            raise found.unreadable[product_id]
        row = found.products[product_id]
        if row is None:
            return None
        if set(_pages_of(row)) <= set(pages):
            return _level(row, found, is_exact=True)
        pages = _pages_of(row)
    found = read_all(client, [product_id], deadline, stats)
    estimate = estimate_levels(client, found, deadline).get(product_id)
    if product_id in found.unreadable:
        raise found.unreadable[product_id]
    return estimate


def _pages_of(row: Product) -> list[PageKey]:
    return [PageKey.of(lane, row.product_id) for lane in sorted(row.lent_to)]


def _level(row: Product, found: Snapshot, *, is_exact: bool) -> StockLevel:
    in_lanes = {}
    for key in _pages_of(row):
        page = found.pages[key]
        if isinstance(page, CorruptItemError):
            raise page
        entry = page.entries.get(row.product_id)
        # Another incarnation's units are none of this product.
        if entry is not None and entry.created_at == row.created_at:
            in_lanes[key.lane] = entry.units
    return StockLevel(row, in_lanes, found.outbound_units(row), is_exact)


def read_committed(
    client: RetryingClient, keys: Sequence[str], deadline: Deadline, stats: CommitStats
) -> dict[str, int]:
    """Units of rows that open orders hold at this moment, for an answer; nothing where they cannot be read, which stops no command."""
    # The command needs the rest of the time.
    soon = Deadline.after(deadline.remaining() / 4, client.clock)
    with suppress(VerdictError):
        levels = filter(None, [read_level(client, key, soon, stats) for key in keys])
        committed = [level.committed for level in levels]
        return {"committed": sum(committed)} if committed else {}
    return {}


def mark_shippable(
    client: RetryingClient, orders: Sequence[tuple[OrderRecord, dict[str, Any]]], deadline: Deadline
) -> None:
    """Say of each order to ship whether all units that it still wants are on hand, and else what is missing.

    Each is judged alone: units that are enough for one of two are enough for both. An order with a product whose units cannot
    be read gets no mark.

    Args:
        orders: Each as it is stored, and as it is shown, which gets the mark.

    Raises:
        StoreError: DynamoDB failed.
    """
    if not orders:
        return
    ids = dict.fromkeys(line.key for order, _ in orders for line in order.lines)
    found = read_all(client, [*ids, *OUTBOUND_KEYS], deadline, CommitStats())
    for order, shown in orders:
        with suppress(CorruptItemError):
            missing = _missing(order, shown, found)
            shown["shippable"] = not missing
            if missing:
                shown["missing"] = missing


def _missing(order: OrderRecord, shown: Mapping[str, Any], found: Snapshot) -> list[dict[str, Any]]:
    missing = []
    for line, item in zip(order.lines, shown["items"], strict=True):
        wanted = item["quantity"] - item.get("fulfilled", 0) - item.get("cancelled", 0)
        if wanted and line.key in found.unreadable:
            raise found.unreadable[line.key]
        row, on_hand = found.products.get(line.key), 0
        if row is not None and row.created_at == line.product_created_at:
            on_hand = row.on_hand - found.outbound_units(row)
        if wanted and on_hand < wanted:
            missing.append({**public_key(line.key), "wanted": wanted, "onHand": on_hand})
    return missing
