"""Reads the CSV files that Shopify exports: products, inventory and orders.

Columns: "Using CSV files to import and export products", "Exporting or importing inventory with a CSV file" and "Exporting
orders", https://help.shopify.com/en/manual. Files of products have had two sets of names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from ..cells import as_id
from ..file_errors import FileError
from ..file_prices import FilePrices
from .export_file import MAX_UNITS, BadCellError, ExportFile, Row, checked_id
from .listing import barcode_in, list_product, note_shared_barcodes, price_in, printable_name
from .staging import BAD, GOODS, GUEST, LEFT_OUT, Level, Listed, OrderUnits, Staging

PRODUCTS = {
    "Handle": ("URL handle",),
    "Title": (),
    "Option1 Value": (),
    "Option2 Value": (),
    "Option3 Value": (),
    "Variant SKU": ("SKU",),
    "Variant Barcode": ("Barcode",),
    "Variant Price": ("Price",),
    "Variant Inventory Tracker": ("Inventory tracker",),
    "Gift Card": (),
    "Status": (),
}
INVENTORY = {
    "SKU": (),
    "Location": (),
    "Unavailable": (),
    "Committed": (),
    "Available": (),
    "On hand": (),
}
ORDERS = {
    "Name": (),
    "Id": (),
    "Email": (),
    "Financial Status": (),
    "Fulfillment Status": (),
    "Created at": (),
    "Cancelled at": ("Canceled at",),
    "Lineitem quantity": (),
    "Lineitem sku": (),
    "Lineitem requires shipping": (),
    "Lineitem fulfillment status": (),
}
SHIPPED = {"Name": (), "Lineitem sku": (), "shipped": ()}

_PAID = {"paid", "partially_refunded"}
_UNPAID = {"pending", "authorized", "partially_paid", "expired", "voided"}
_CLOSED = {"refunded"}
_OPEN_LINES = {"", "pending", "unfulfilled"}
_CLOSED_LINES = {"fulfilled", "restocked", "not_eligible"}
_PARTIAL = "partial"
_DRAFT = re.compile(r"#?D[0-9]+")


def products_file(path: Path) -> ExportFile:
    """Describe a file of products."""
    needed = ("Handle", "Title", "Variant SKU", "Variant Inventory Tracker")
    advice = "In Shopify: Products, Export, as plain CSV"
    return ExportFile(path, "an export of products", PRODUCTS, needed, advice)


def inventory_file(path: Path) -> ExportFile:
    """Describe a file of inventory."""
    advice = "In Shopify: Products, Inventory, Export, all locations and all states"
    return ExportFile(path, "an export of inventory", INVENTORY, tuple(INVENTORY), advice)


def orders_file(path: Path) -> ExportFile:
    """Describe a file of orders."""
    optional = {"Id", "Email", "Cancelled at", "Fulfillment Status", "Lineitem requires shipping"}
    needed = [column for column in ORDERS if column not in optional]
    advice = "In Shopify: Orders, Export, as plain CSV"
    return ExportFile(path, "an export of orders", ORDERS, needed, advice)


def shipped_file(path: Path) -> ExportFile:
    """Describe a file of units that are shipped."""
    advice = "It has one line for each order and SKU, such as #1001,TEA-250,2"
    return ExportFile(path, "a file of shipped units", SHIPPED, tuple(SHIPPED), advice)


# ---------------------------------------------------------------------- products


def read_products(file: ExportFile, staging: Staging, prices: FilePrices | None) -> None:
    """Read products. Without `prices`, they are imported without a price."""
    handle: str | None = None
    for row in file.rows():
        if row["Handle"] != handle:
            handle, title = row["Handle"], ""
            kind = LEFT_OUT if row["Gift Card"].lower() == "true" else GOODS
            is_hidden = row["Status"].lower() in ("archived", "draft")
        title = row["Title"] or title
        # Other rows only have further pictures.
        if any(row[name] for name in ("Option1 Value", "Variant SKU", "Variant Price")):
            name = _name_of(title, row)
            with_stock = GOODS if row["Variant Inventory Tracker"] else LEFT_OUT
            own_kind = kind if kind == LEFT_OUT else with_stock
            _read_product(file, row, staging, prices, (own_kind, name, is_hidden))
    note_shared_barcodes(file, staging, "Variant Barcode")


def _read_product(
    file: ExportFile,
    row: Row,
    staging: Staging,
    prices: FilePrices | None,
    known: tuple[str, str | None, bool],
) -> None:
    kind, name, is_hidden = known
    sku = row.sku("Variant SKU")
    if kind == LEFT_OUT:
        message = "Shopify does not count its stock, so it is not imported"
        column = "Variant Inventory Tracker"
        file.leave_out(row, column, message, "NOT_TRACKED", productId=sku)
        if sku:
            list_product(file, row, staging, "Variant SKU", Listed(as_id(sku), row.number, kind))
        return
    try:
        product_id, price = row.product_id("Variant SKU"), price_in(row, "Variant Price", prices)
    except BadCellError as error:
        file.refuse(row, error, productId=sku)
        if sku:
            list_product(file, row, staging, "Variant SKU", Listed(as_id(sku), row.number, BAD))
        return
    barcode = barcode_in(file, row, "Variant Barcode", product_id)
    listed = Listed(product_id, row.number, kind, name, price, barcode, is_hidden)
    list_product(file, row, staging, "Variant SKU", listed)


def _name_of(title: str, row: Row) -> str | None:
    """Name a variant."""
    options = (row[f"Option{number} Value"] for number in (1, 2, 3))
    return printable_name(title, *(option for option in options if option != "Default Title"))


# ---------------------------------------------------------------------- inventory


def read_inventory(
    file: ExportFile, staging: Staging, locations: Mapping[str, str], *, oversold: bool
) -> None:
    """Read the stock of each product at each location.

    Args:
        file: The file.
        staging: Where the products are.
        locations: The id of each location by its name in Shopify; empty if the shop has only one.
        oversold: Whether a product may be oversold.
    """
    names = set[str]()
    for row in file.rows():
        product_id = as_id(row.sku("SKU"))
        try:
            if _has_stock(row, staging):
                names.add(row["Location"])
                level = _level(row, product_id, _location(row, locations, names))
                _check_level(level, oversold=oversold, keeps=staging.keeps_unavailable)
                staging.add_level(level)
        except BadCellError as error:
            file.refuse(row, error, productId=product_id, locationId=row["Location"])
            staging.set_kind(product_id, BAD)


def _has_stock(row: Row, staging: Staging) -> bool:
    """Whether a row is about stock to import."""
    product_id = row.product_id("SKU")
    kind = staging.kind_of(product_id)
    if kind is None:
        raise BadCellError(
            "SKU",
            f"{row['SKU']} is not in the file of products; export all products again",
            "UNKNOWN_SKU",
        )
    staging.note_stocked(product_id)
    return kind == GOODS and row["On hand"].lower() != "not stocked"


def _location(row: Row, locations: Mapping[str, str], names: set[str]) -> str:
    name = row["Location"]
    if locations:
        if name in locations:
            return locations[name]
        raise BadCellError("Location", f"{name} is not in the file of --locations; add it")
    if len(names) == 1:
        return ""
    raise BadCellError("Location", "the shop has several locations; name a file with --locations")


def _level(row: Row, product_id: str, location_id: str) -> Level:
    return Level(
        product_id,
        location_id,
        row.number,
        row.units("On hand", signed=True),
        row.units("Unavailable"),
        row.units("Committed"),
        row.units("Available", signed=True),
    )


def _check_level(level: Level, *, oversold: bool, keeps: bool) -> None:
    """Check that a level makes sense, and can be imported."""
    opening = level.available + level.committed
    if level.on_hand - level.unavailable != opening:
        raise BadCellError(
            "On hand",
            f"is {level.on_hand:,}, but available, committed and unavailable units add up to {opening + level.unavailable:,}; export again",
        )
    if opening < 0:
        raise BadCellError(
            "On hand",
            f"without unavailable units, {opening:,} would be on hand; count them, correct the number in Shopify, and export again",
        )
    if level.on_hand > MAX_UNITS:
        raise BadCellError("On hand", f"may be at most {MAX_UNITS:,}")
    if level.available >= 0:
        return
    if not oversold:
        raise BadCellError(
            "Available",
            f"is oversold by {-level.available:,}; correct the stock, cancel orders, or allow it with --oversold allow, which gives the "
            "product a backorderLimit",
            "OVERSOLD",
        )
    if keeps and level.unavailable:
        raise BadCellError(
            "Unavailable",
            "a product cannot have safety stock while it is oversold; correct the stock, or import without --unavailable safety",
            "OVERSOLD",
        )


# ---------------------------------------------------------------------- orders


def read_shipped(file: ExportFile, staging: Staging) -> None:
    """Read how many units of some lines orders no longer need."""
    for row in file.rows():
        try:
            product_id = row.product_id("Lineitem sku")
            staging.add_shipped(row["Name"], product_id, row.units("shipped"), row.number)
        except BadCellError as error:
            file.refuse(row, error, orderId=row["Name"], productId=row["Lineitem sku"])


@dataclass(slots=True)
class _Group:
    """The rows of one order."""

    rows: list[Row] = field(default_factory=list)

    @property
    def first(self) -> Row:
        return self.rows[0]

    @property
    def name(self) -> str:
        return self.first["Name"]

    def continues(self, row: Row) -> bool:
        """Whether a row belongs to the order. Only an order's first row has its own columns."""
        if not self.rows or row["Name"] != self.name:
            return False
        return not row["Financial Status"] or (bool(row["Id"]) and row["Id"] == self.first["Id"])


def read_orders(file: ExportFile, staging: Staging, as_of: datetime | None) -> Counter[str]:
    """Read open orders.

    Args:
        file: The file.
        staging: Where the products are.
        as_of: When the inventory was exported. Later orders are left out.

    Returns:
        The numbers of orders that are left out, by reason.
    """
    left_out = Counter[str]()
    for group in _groups(file.rows()):
        try:
            reason = _read_order(file, group, staging, as_of)
        except BadCellError as error:
            file.refuse(group.first, error, orderId=group.name)
        else:
            left_out[reason] += 1
    del left_out[""]
    return left_out


def _groups(rows: Iterator[Row]) -> Iterator[_Group]:
    group = _Group()
    for row in rows:
        if group.rows and not group.continues(row):
            yield group
            group = _Group()
        group.rows.append(row)
    if group.rows:
        yield group


def _read_order(file: ExportFile, group: _Group, staging: Staging, as_of: datetime | None) -> str:
    """Read one order. Returns why it is left out; empty if it is not."""
    first = group.first
    if reason := _reason_to_leave_out(group):
        return reason
    if as_of is not None and _created_at(first) > as_of:
        message = f"the order is later than --as-of, {as_of.isoformat()}; it is not imported"
        file.leave_out(first, "Created at", message, "LATER_ORDER", orderId=group.name)
        return "later"
    if not (units := _open_units(file, group, staging)):
        return "without stock"
    own_id = first["Id"] or group.name.removeprefix("#")
    order_id = checked_id("Id", "orderId", own_id)
    user_id = checked_id("Email", "userId", first["Email"] or f"{GUEST}{own_id}")
    is_paid = first["Financial Status"].lower() in _PAID
    order = OrderUnits(order_id, first.number, group.name, user_id, is_paid, units)
    staging.add_order("Name", order)
    return ""


def _reason_to_leave_out(group: _Group) -> str:
    """Say why an order has no open units; empty if it may have some."""
    first = group.first
    status = first["Financial Status"].lower()
    if first["Cancelled at"]:
        return "cancelled"
    if _DRAFT.fullmatch(group.name) and status not in _PAID:
        return "draft"
    if status in _CLOSED:
        return "refunded"
    _check_status(status)
    # Lines of a fulfilled order stay pending if they were removed before it was shipped.
    is_open = first["Fulfillment Status"].lower() != "fulfilled"
    return "" if is_open and any(map(_is_open, group.rows)) else "shipped"


def _check_status(status: str) -> None:
    if not status:
        raise BadCellError(
            "Financial Status",
            "is missing: the first line of this order is not in the file; export all orders again",
        )
    if status not in _PAID | _UNPAID:
        known = ", ".join(sorted(_PAID | _UNPAID | _CLOSED))
        raise BadCellError(
            "Financial Status", f"{status[:40]} is unknown; the known ones are {known}"
        )


def _is_open(row: Row) -> bool:
    return row["Lineitem fulfillment status"].lower() not in _CLOSED_LINES


def _created_at(row: Row) -> datetime:
    text = re.sub(" (?=[+-][0-9]{4}$)", "", row["Created at"].replace(" UTC", " +0000"))
    with suppress(ValueError):
        if (time := datetime.fromisoformat(text)).tzinfo is not None:
            return time
    raise BadCellError(
        "Created at",
        f'must be a time such as 2026-11-20 09:30:00 +0100, but is "{text[:40]}"; export again, without a spreadsheet',
    )


def _open_units(file: ExportFile, group: _Group, staging: Staging) -> Counter[str]:
    """Add up the units that an order still needs, by product."""
    units, partial = Counter[str](), dict[str, Row]()
    for row in filter(_is_open, group.rows):
        if not row["Lineitem sku"]:
            message = "the line has no SKU, so it is not imported"
            file.leave_out(row, "Lineitem sku", message, "NO_SKU", orderId=group.name)
            continue
        try:
            if product_id := _product_of_line(row, staging):
                units[product_id] += row.units("Lineitem quantity")
                if row["Lineitem fulfillment status"].lower() == _PARTIAL:
                    partial[product_id] = row
        except BadCellError as error:
            file.refuse(row, error, orderId=group.name, productId=row["Lineitem sku"])
    for product_id in list(units):
        try:
            shipped = staging.shipped(group.name, product_id)
            units[product_id] -= _no_longer_needed(
                shipped, units[product_id], group.name, is_partial=product_id in partial
            )
        except BadCellError as error:
            row = partial.get(product_id, group.first)
            file.refuse(row, error, orderId=group.name, productId=product_id)
            del units[product_id]
    return +units


def _no_longer_needed(shipped: int | None, units: int, name: str, *, is_partial: bool) -> int:
    if shipped is None:
        if not is_partial:
            return 0
        raise BadCellError(
            "Lineitem fulfillment status",
            f"is partial, and the export does not say how many of {units:,} units are shipped; name a file with --shipped, which has the "
            f"columns {','.join(SHIPPED)} and a line for {name}",
            "PARTLY_SHIPPED",
        )
    if shipped > units:
        raise BadCellError(
            "Lineitem quantity",
            f"the file of --shipped has {shipped:,} units, but the order only {units:,}",
        )
    return shipped


def _product_of_line(row: Row, staging: Staging) -> str:
    """Find the product of an open line; empty if it has no stock."""
    status = row["Lineitem fulfillment status"].lower()
    if status not in {*_OPEN_LINES, _PARTIAL}:
        raise BadCellError("Lineitem fulfillment status", f"{status[:40]} is unknown")
    sku = row.sku("Lineitem sku")
    kind = staging.kind_of(as_id(sku))
    if kind == GOODS:
        return row.product_id("Lineitem sku")
    # A bad product is reported where it is listed.
    if kind is None and row["Lineitem requires shipping"].lower() != "false":
        raise BadCellError(
            "Lineitem sku",
            f"{sku} is not in the file of products; ship or cancel it in Shopify, or leave it out with --skip-bad",
            "UNKNOWN_SKU",
        )
    return ""


def check_together(
    products: ExportFile, inventory: ExportFile, shipped: ExportFile | None, staging: Staging
) -> None:
    """Find what the files say of each other."""
    for line, product_id in staging.without_levels():
        message = f"Variant SKU: {product_id} is not in the file of inventory; export the inventory of all products again"
        ids = {"productId": product_id}
        products.bad.append(FileError(line, "UNKNOWN_SKU", message, ids, "Variant SKU"))
        staging.set_kind(product_id, BAD)
    for line, name, product_id in staging.unused_shipped() if shipped else ():
        message = "Name: no open order of the export has this name and SKU"
        ids = {"orderId": name, "productId": product_id}
        if shipped:
            shipped.bad.append(FileError(line, "UNKNOWN_ORDER", message, ids, "Name", name))
    staging.drop_bad()
    inventory.bad += staging.assign()
