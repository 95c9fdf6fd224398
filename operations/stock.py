"""Reads how many units of products there are, in rows and lanes together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.adjustment import TRANSFER_IN, TRANSFER_OUT
from inventory_orders.domain.location import location_of
from inventory_orders.domain.product import ProductStatus
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient, read_all
from inventory_orders.lanes.levels import StockLevel, estimate_levels, read_level, read_levels
from inventory_orders.store.lists import list_products
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from operations.aws import Aws, query

# How long to look for a moment without a rival's write, and how long one page of a list may take, in seconds.
PATIENCE = 10.0
_PAGE = 100

# Products that need attention come first.
URGENCY = (
    *(ProductStatus.OUT_OF_STOCK, ProductStatus.LOW_STOCK),
    *(ProductStatus.ACTIVE, ProductStatus.DISCONTINUED),
)


def list_stock(aws: Aws) -> tuple[list[StockLevel], Mapping[str, str]]:
    """Read all products, first those out of stock or low. Units that move meanwhile may be missing or counted twice.

    Returns:
        The levels; and the errors of products that cannot be read, by product id.
    """
    client = RetryingClient(aws.store())
    levels: list[StockLevel] = []
    unreadable: dict[str, str] = {}
    after, has_more = None, True
    while has_more:
        deadline = Deadline.after(PATIENCE, SystemClock())
        found, after = client.call(partial(list_products, client.store, _PAGE, after), deadline)
        levels += estimate_levels(client, found, deadline).values()
        unreadable |= {name: str(error) for name, error in found.unreadable.items()}
        has_more = after is not None
    levels.sort(key=lambda level: (URGENCY.index(level.product.status), level.product.product_id))
    return levels, unreadable


def read_stock(aws: Aws, product_id: str) -> StockLevel | None:
    """Read how many units of a product there are, at one moment, if `read_level` can.

    Returns:
        The level; None if there is no such product.

    Raises:
        InventoryOrdersError: The product or one of its pages cannot be read.
    """
    deadline = Deadline.after(PATIENCE, SystemClock())
    return read_level(RetryingClient(aws.store()), product_id, deadline, CommitStats())


def on_the_way(aws: Aws, keys: Iterable[str]) -> list[dict[str, Any]]:
    """Find the units of a product that went out at one of its locations and have not come in at another: by their reference.

    Args:
        aws: The stack.
        keys: The keys of the product's rows. Units that left a location which was delisted since are not found.

    Returns:
        Each `reference` with its `units`, the locations that they come `from`, and `since` when. The oldest first.
    """
    moved = [
        row
        for key in keys
        for row in map(decode, query(aws, Table.STOCK_ADJUSTMENTS, "productId", key))
        # One transaction moves these: they are never on the way.
        if row["reason"] in (TRANSFER_OUT, TRANSFER_IN) and "transferWith" not in row
    ]
    lots: dict[str, dict[str, Any]] = {}
    for row in sorted(moved, key=lambda row: row["appliedAt"]):
        new = {"since": row["appliedAt"], "units": 0, "from": set()}
        lot = lots.setdefault(row.get("reference", ""), new)
        lot["units"] -= row["delta"]
        if row["reason"] == TRANSFER_OUT:
            lot["from"].add(location_of(row["productId"]))
    return [
        {"reference": reference, **lot, "from": sorted(lot["from"])}
        for reference, lot in lots.items()
        if reference and lot["units"] > 0
    ]


def read_everywhere(aws: Aws, product_id: str) -> list[StockLevel]:
    """Read a product's stock at all its locations, the default one first, as `read_levels` does. Empty if there is none.

    Raises:
        InventoryOrdersError: A row or a page cannot be read.
    """
    deadline = Deadline.after(PATIENCE, SystemClock())
    return read_levels(RetryingClient(aws.store()), product_id, deadline, CommitStats())


def product_names(aws: Aws, product_ids: Collection[str]) -> dict[str, str]:
    """Read the names of products, by id. One without a name, or that cannot be read, is left out."""
    deadline = Deadline.after(PATIENCE, SystemClock())
    found = read_all(RetryingClient(aws.store()), sorted(product_ids), deadline, CommitStats())
    rows = found.products.values()
    return {row.product_id: row.name for row in rows if row is not None and row.name is not None}
