"""Reads the stock of products, in rows and lanes together, at each location and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from inventory_orders.api.products import shown_count, shown_stock
from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.barcode import BarcodeKey
from inventory_orders.domain.location import DEFAULT_LOCATION, location_of, product_of
from inventory_orders.domain.outbound import OUTBOUND_KEYS, Generation, OutboundKey, OutboundPage
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.domain.scan import read_scan
from inventory_orders.engine.retrying_client import (
    CommitStats,
    RetryingClient,
    read_all,
    read_rows,
)
from inventory_orders.lanes.levels import (
    StockLevel,
    list_levels,
    read_level,
    read_levels,
)
from inventory_orders.store.dynamodb import Snapshot
from inventory_orders.store.lists import list_entries, list_products, list_transfers
from inventory_orders.store.tables import BY_LEVEL

from .aws import Aws

# The time in which to try for a read without a concurrent write, and the time that one page of a list may take, in
# seconds.
PATIENCE = 10.0

# More products than a page of a list can hold, so it ends after 1 MB.
_ROWS = 1_000_000
# How often all products are read again, if a sweep subtracts the units of outbound pages from rows during the read.
_TRIES = 3

# Products that need attention come first.
URGENCY = (
    *(ProductStatus.OUT_OF_STOCK, ProductStatus.LOW_STOCK),
    *(ProductStatus.ACTIVE, ProductStatus.DISCONTINUED),
)


# A product has the first of these statuses that it has at any location.
_BEST_FIRST = (
    *(ProductStatus.ACTIVE, ProductStatus.LOW_STOCK),
    *(ProductStatus.OUT_OF_STOCK, ProductStatus.DISCONTINUED),
)


def list_stock(aws: Aws) -> tuple[list[StockLevel], Mapping[str, str]]:
    """Read the stock of all products, with the products that are out of stock or low first.

    Units that move during the read may be missing or counted twice.

    Returns:
        The levels, and the errors of unreadable rows by key.
    """
    client = RetryingClient(aws.store())
    after = _read_outbound(client)
    for _ in range(_TRIES):
        before = after
        levels, unreadable = _list_rows(client, before)
        # If a sweep has subtracted units of these pages from rows, they may count twice.
        after = _read_outbound(client) if _units_on(before) else before
        if not _units_on(before) - _units_on(after):
            break
    levels.sort(key=_by_urgency)
    return levels, unreadable


def product_with(aws: Aws, text: str) -> str:
    """The id of the product that has this barcode, in any form; if none has it, the text."""
    found = map(aws.store().get, map(BarcodeKey, read_scan(text).codes))
    return next((row["productId"] for row in found if row is not None), text)


def list_by_status(
    aws: Aws, statuses: Collection[str], limit: int, location_id: str | None = None
) -> tuple[list[StockLevel], Mapping[str, str], bool]:
    """Read the stock of products that have a status at any location, by an index, which is eventually consistent.

    Args:
        aws: The stack.
        statuses: The statuses.
        limit: Maximum number of levels with one of the statuses.
        location_id: The location where they have one of the statuses; None for any.

    Returns:
        Their levels, with those of the products' other locations, the errors of unreadable rows by key, and whether there
        are more.
    """
    client = RetryingClient(aws.store())
    keys, has_more = list_keys(client, statuses, limit, location_id)
    deadline = Deadline.after(PATIENCE, SystemClock())
    # A row at a location has neither the product's name nor its other locations.
    found = read_rows(client, [*dict.fromkeys([*keys, *map(product_of, keys)])], deadline)
    levels = sorted(list_levels(client, found, deadline).values(), key=_by_urgency)
    return levels, {name: str(error) for name, error in found.unreadable.items()}, has_more


def list_keys(
    client: RetryingClient, statuses: Iterable[str], limit: int, location_id: str | None = None
) -> tuple[list[str], bool]:
    """List the keys of at most `limit` rows with one of these statuses, at one location or at all. Also returns whether there are more."""
    keys, after = list[str](), None
    for status in statuses:
        while len(keys) <= limit:
            listing = partial(list_entries, client.store, BY_LEVEL, status, limit + 1, after)
            found, after = client.call(listing, Deadline.after(PATIENCE, SystemClock()))
            there = (row["productId"] for row in found)
            keys += [key for key in there if location_id in (None, location_of(key))]
            if after is None:
                break
    return keys[:limit], len(keys) > limit


def _by_urgency(level: StockLevel) -> tuple[int, str]:
    return URGENCY.index(level.product.status), level.product.product_id


def _read_outbound(client: RetryingClient) -> Snapshot:
    deadline = Deadline.after(PATIENCE, SystemClock())
    return read_all(client, OUTBOUND_KEYS, deadline, CommitStats())


def _units_on(outbound: Snapshot) -> Counter[tuple[OutboundKey, Generation]]:
    """Return the units of each product on each outbound page."""
    pages = (page for page in outbound.outbound.values() if isinstance(page, OutboundPage))
    return Counter(
        {(page.key, each): units for page in pages for each, units in page.units.items()}
    )


def _list_rows(
    client: RetryingClient, outbound: Snapshot
) -> tuple[list[StockLevel], dict[str, str]]:
    """Read the rows of all products and their pages in lanes, given the outbound pages."""
    levels: list[StockLevel] = []
    unreadable: dict[str, str] = {}
    position, has_more = None, True
    while has_more:
        deadline = Deadline.after(PATIENCE, SystemClock())
        listing = partial(list_products, client.store, _ROWS, position)
        found, position = client.call(listing, deadline)
        found.add(outbound)
        # Units move between lanes and rows all the time, so these rows are read immediately before the pages.
        lent = [row.product_id for row in found.products.values() if row and row.lent_to]
        found.add(read_all(client, lent, deadline, CommitStats()))
        levels += list_levels(client, found, deadline, on_hand=False).values()
        unreadable |= {name: str(error) for name, error in found.unreadable.items()}
        has_more = position is not None
    return levels, unreadable


def by_product(levels: Iterable[StockLevel]) -> dict[str, list[StockLevel]]:
    """Group levels by product, each product's own row first."""
    groups: dict[str, list[StockLevel]] = {}
    for level in levels:
        groups.setdefault(product_of(level.product.product_id), []).append(level)
    return {
        product_id: sorted(group, key=lambda level: level.product.product_id)
        for product_id, group in groups.items()
    }


def without_unused(levels: Sequence[StockLevel], locations: Collection[str]) -> list[StockLevel]:
    """Leave out empty rows of the default location, if no order without `locations` looks there and others sell the product.

    Each product has a row at the default location, even if all its stock is elsewhere. A
    `lowStockThreshold` there does not show that it is in use. `locations` is the setting.
    """
    sold_elsewhere = {
        product_of(level.product.product_id)
        for level in levels
        if location_of(level.product.product_id) and not level.product.is_discontinued
    }
    return [
        level
        for level in levels
        if DEFAULT_LOCATION in locations
        or level.product.product_id not in sold_elsewhere
        or any((level.on_hand, level.committed, level.available))
        or level.product.backorder_limit
    ]


def shown_total(levels: Sequence[StockLevel], locations: Collection[str]) -> dict[str, Any]:
    """Add up a product's stock at all its locations, with the best status that it has at any of them.

    `levels` is a group from `by_product`, and `locations` is the setting.
    """
    statuses = {level.product.status for level in levels}
    # If its own row cannot be read, the first row is another one.
    product_id = product_of(levels[0].product.product_id)
    best = next(status for status in _BEST_FIRST if status in statuses)
    return shown_stock(levels, locations) | {"productId": product_id, "status": best}


def read_stock(aws: Aws, product_id: str) -> StockLevel | None:
    """Read a product's stock. The figures are exact unless `read_level` marks them as an estimate.

    Returns:
        The level; None if there is no such product.

    Raises:
        InventoryOrdersError: The product or one of its pages cannot be read.
    """
    deadline = Deadline.after(PATIENCE, SystemClock())
    return read_level(RetryingClient(aws.store()), product_id, deadline, CommitStats())


def on_the_way(aws: Aws) -> list[dict[str, Any]]:
    """List transfers in transit, as `list_transfers` describes them."""
    found, _ = list_transfers(aws.store())
    return [each for each, _ in found if each["units"] > 0]


def read_everywhere(aws: Aws, product_id: str) -> list[StockLevel]:
    """Read a product's stock at all its locations, the default one first. The list is empty if there is no such product.

    Raises:
        InventoryOrdersError: A row or a page cannot be read.
    """
    deadline = Deadline.after(PATIENCE, SystemClock())
    return read_levels(RetryingClient(aws.store()), product_id, deadline, CommitStats())


def open_count(row: Product) -> dict[str, Any] | None:
    """Describe the count that is open for a product's row, as `shown_count` does; None if there is none."""
    return shown_count(row, SystemClock().now().timestamp())
