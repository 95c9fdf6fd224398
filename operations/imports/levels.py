"""Writes stock levels in the form that another shop system imports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.location import stock_key
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient, read_all
from inventory_orders.lanes.levels import StockLevel, estimate_levels
from inventory_orders.store.dynamodb import Store

from ..cells import as_id, code_of
from ..csv_text import cell_of
from ..errors import UserError
from ..stock import by_product
from .export_file import ExportFile, Row

_AT_ONCE = 500
_PATIENCE = 60.0


def for_shopify(
    file: ExportFile, locations: Mapping[str, str], store: Store
) -> Iterator[Sequence[str | int]]:
    """Fill an export of inventory with the units on hand. The first row is the header.

    Lines of products or locations that are not here, or are not stocked there, are left out: Shopify does not change them.

    Args:
        file: The export.
        locations: The id of each location by its name in Shopify. Without any, all lines are about the default location.
        store: The tables.

    Raises:
        UserError: No line is about stock here, or locations are not named, although there are several, here or in the shop.
    """
    if not locations:
        _check_location(file)
    # All are known before any is written, because a part looks like a complete file.
    if not (filled := [*_filled(file, locations, store)]):
        raise UserError(f"{file.path} has no product and location that are here")
    yield file.header
    yield from filled


def _filled(
    file: ExportFile, locations: Mapping[str, str], store: Store
) -> Iterator[Sequence[str | int]]:
    """Yield the lines to import."""
    client, rows = RetryingClient(store), file.rows()
    while batch := list(islice(rows, _AT_ONCE)):
        # Older exports have only one column for units on hand.
        new = max(place for place, name in enumerate(file.header) if name.startswith("On hand"))
        keys = {row.number: key for row in batch if (key := _key(row, locations))}
        deadline = Deadline.after(_PATIENCE, SystemClock())
        snapshot = read_all(client, [*dict.fromkeys(keys.values())], deadline, CommitStats())
        levels = estimate_levels(client, snapshot, deadline)
        for row in batch:
            if level := levels.get(keys.get(row.number, "")):
                _check_named(level, locations)
                cells: list[str | int] = [*row.all_cells]
                cells[new] = level.on_hand + _elsewhere(row, level)
                yield cells


def _check_location(file: ExportFile) -> None:
    """Check that a shop has a single location."""
    names = {row["Location"] for row in file.rows() if _is_stocked(row)}
    file.bad.clear()
    if len(names) > 1:
        raise UserError("the shop has several locations; name a file with --locations")


def _check_named(level: StockLevel, locations: Mapping[str, str]) -> None:
    """Check that a product has stock at a single location here, unless locations are named: Shopify's could be any of them."""
    product = level.product
    if product.places and not locations:
        raise UserError(
            f"{product.product_id} is also at {', '.join(sorted(product.places))}; name a file with --locations that says which location "
            "this is, as for the import"
        )


def _is_stocked(row: Row) -> bool:
    return row["On hand"].lower() != "not stocked"


def _key(row: Row, locations: Mapping[str, str]) -> str:
    """The key of a line's row; empty if its stock is not here."""
    location_id = locations.get(row["Location"]) if locations else ""
    if location_id is None or not _is_stocked(row) or not row.sku("SKU"):
        return ""
    return stock_key(as_id(row.sku("SKU")), location_id)


def _elsewhere(row: Row, level: StockLevel) -> int:
    """Count unavailable units, which Shopify has on hand. Here, they are on hand only as safety stock."""
    unavailable = row["Unavailable"]
    return int(unavailable) if unavailable.isdecimal() and not level.product.safety_stock else 0


def for_woocommerce(levels: Iterable[StockLevel]) -> Iterator[Sequence[str | int]]:
    """List the units left to sell of each product at all locations. The first row is the header."""
    yield ["SKU", "Stock"]
    for product_id, found in by_product(levels).items():
        sold = [level for level in found if not level.product.is_discontinued]
        if sold:
            units = sum(level.available - level.product.safety_stock for level in sold)
            yield [cell_of(code_of(product_id)), units]
