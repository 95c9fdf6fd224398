"""Reads WooCommerce's own export of products, and the orders that the extension "Order Export & Order Import" writes.

Columns: "Product CSV Importer and Exporter", https://woocommerce.com/document/product-csv-importer-exporter/, and "Import and
Export of WooCommerce Orders" by WebToffee, https://woocommerce.com/document/import-and-export-of-woocommerce-orders/.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from ..cells import as_id
from ..file_errors import FileError
from ..file_prices import FilePrices
from .export_file import MAX_UNITS, BadCellError, ExportFile, Row, checked_id
from .listing import barcode_in, list_product, note_shared_barcodes, price_in, printable_name
from .staging import BAD, GOODS, GUEST, LEFT_OUT, PARENT, Level, Listed, OrderUnits, Staging

_BARCODE = "GTIN, UPC, EAN, or ISBN"
PRODUCTS = {
    "Type": (),
    "SKU": (),
    _BARCODE: (),
    "Name": (),
    "Published": (),
    "Stock": (),
    "Regular price": (),
    "Parent": (),
}
_CELLS = [f"line_item_{number}" for number in range(1, 1001)]
"""The columns with the lines of an order, if it has one row."""

ORDERS = {
    "order_id": (),
    "order_number": (),
    "status": (),
    "customer_email": (),
    "billing_email": (),
    "item_sku": (),
    "item_quantity": (),
    "item_refunded_qty": (),
    **dict.fromkeys(_CELLS, ()),
}

_PAID, _UNPAID = "processing", "on-hold"
# Unpaid orders that are pending take no stock.
_CLOSED = {"completed", "cancelled", "refunded", "failed", "trash", "checkout-draft", "pending"}
_WITHOUT_STOCK = {"grouped", "external"}
# Names may contain bars.
_LINE = re.compile(r"\|product_id:[0-9]*\|sku:(?P<sku>.*?)\|quantity:(?P<quantity>[^|]*)\|total:")
_REDUCED = re.compile(r"\|meta:_reduced_stock:(?P<units>[^|]*)")


def products_file(path: Path) -> ExportFile:
    """Describe a file of products."""
    needed = ("Type", "SKU", "Name", "Stock", "Parent")
    advice = "In WooCommerce, in English: Products, All products, Export, all columns"
    return ExportFile(path, "an export of products", PRODUCTS, needed, advice)


def orders_file(path: Path) -> ExportFile:
    """Describe a file of orders."""
    needed = ("order_id", "status")
    advice = "In WooCommerce: WebToffee Import Export (Basic), Export, Order, as CSV"
    return ExportFile(path, "an export of orders", ORDERS, needed, advice)


# ---------------------------------------------------------------------- products


def read_products(
    file: ExportFile, staging: Staging, prices: FilePrices | None, *, oversold: bool
) -> None:
    """Read products and their stock. Without `prices`, they are imported without a price."""
    for row in file.rows():
        types = {each.strip() for each in row["Type"].split(",")}
        if row["Stock"] == "parent":
            _read_variation(file, row, staging)
        elif row["Stock"]:
            _read_product(file, row, staging, prices, oversold=oversold)
        elif sku := row.sku("SKU"):
            if not types & {"variable", *_WITHOUT_STOCK}:
                message = "WooCommerce does not count its stock, so it is not imported"
                file.leave_out(row, "Stock", message, "NOT_TRACKED", productId=sku)
            list_product(file, row, staging, "SKU", Listed(as_id(sku), row.number, LEFT_OUT))
    note_shared_barcodes(file, staging, _BARCODE)


def _read_variation(file: ExportFile, row: Row, staging: Staging) -> None:
    """Read a variation that shares the stock of its product. Without an SKU, orders name that of the product."""
    if sku := row.sku("SKU"):
        parent = as_id(row.sku("Parent"))
        listed = Listed(as_id(sku), row.number, PARENT, parent)
        list_product(file, row, staging, "SKU", listed)


def _read_product(
    file: ExportFile, row: Row, staging: Staging, prices: FilePrices | None, *, oversold: bool
) -> None:
    sku = row.sku("SKU")
    try:
        product_id, price = row.product_id("SKU"), price_in(row, "Regular price", prices)
        level = _level(row, product_id, oversold=oversold)
    except BadCellError as error:
        file.refuse(row, error, productId=sku)
        if sku:
            list_product(file, row, staging, "SKU", Listed(as_id(sku), row.number, BAD))
        return
    name, barcode = printable_name(row["Name"]), barcode_in(file, row, _BARCODE, product_id)
    is_hidden = row["Published"] in ("0", "-1")
    listed = Listed(product_id, row.number, GOODS, name, price, barcode, is_hidden)
    list_product(file, row, staging, "SKU", listed)
    if staging.kind_of(product_id) == GOODS:
        staging.add_level(level)


def _level(row: Row, product_id: str, *, oversold: bool) -> Level:
    """Read a product's stock, which open orders have left already."""
    stock = row.units("Stock", signed=True)
    if stock < 0 and not oversold:
        raise BadCellError(
            "Stock",
            f"is oversold by {-stock:,}; correct the stock, cancel orders, or allow it with --oversold allow, which gives the product a "
            "backorderLimit",
            "OVERSOLD",
        )
    return Level(product_id, "", row.number, stock, 0, 0, stock)


# ---------------------------------------------------------------------- orders


def read_orders(file: ExportFile, staging: Staging) -> Counter[str]:
    """Read open orders. Returns the numbers of the others, by status."""
    left_out = Counter[str]()
    for _, group in groupby(file.rows(), lambda row: row["order_id"]):
        rows = list(group)
        try:
            left_out[_read_order(file, rows, staging)] += 1
        except BadCellError as error:
            file.refuse(rows[0], error, orderId=rows[0]["order_id"])
    del left_out[""]
    return left_out


def _read_order(file: ExportFile, rows: list[Row], staging: Staging) -> str:
    """Read one order. Returns its status if it is left out, otherwise an empty string."""
    first = rows[0]
    status = first["status"].lower().removeprefix("wc-")
    if status in _CLOSED:
        return status
    if status not in (_PAID, _UNPAID):
        known = ", ".join(sorted({_PAID, _UNPAID} | _CLOSED))
        raise BadCellError("status", f"{status[:40]} is unknown; the known ones are {known}")
    if not (units := _open_units(file, rows, staging)):
        return "without stock"
    order_id = checked_id("order_id", "orderId", first["order_id"])
    email = first["customer_email"] or first["billing_email"] or f"{GUEST}{first['order_id']}"
    user_id, name = checked_id("customer_email", "userId", email), first["order_number"] or order_id
    order = OrderUnits(order_id, first.number, name, user_id, status == _PAID, units)
    staging.add_order("order_id", order)
    return ""


def _open_units(file: ExportFile, rows: list[Row], staging: Staging) -> Counter[str]:
    """Add up the units that an order still needs, by product."""
    units = Counter[str]()
    for row in rows:
        for column, sku, quantity in _lines(row):
            if not sku and quantity.isdecimal():
                message = "the line has no SKU, so it is not imported"
                file.leave_out(row, column, message, "NO_SKU", orderId=row["order_id"])
                continue
            try:
                if product_id := _product_of_line(column, sku, staging):
                    units[product_id] += _whole(column, quantity)
            except BadCellError as error:
                file.refuse(row, error, orderId=row["order_id"], productId=sku)
    return +units


def _lines(row: Row) -> Iterator[tuple[str, str, str]]:
    """Yield column, SKU and open units of each line. A row is one line, or has all lines in columns of their own."""
    if row["item_quantity"]:
        refunded = row["item_refunded_qty"]
        quantity = row["item_quantity"]
        if refunded.isdecimal() and quantity.isdecimal():
            quantity = str(max(0, int(quantity) - int(refunded)))
        yield "item_quantity", row.sku("item_sku"), quantity
        return
    for column in _CELLS:
        if not (cell := row[column]):
            return
        yield (column, *_line(cell))


def _line(cell: str) -> tuple[str, str]:
    """Read SKU and open units of a line. How many units have left the stock is in a field of its own, unless none did."""
    found, reduced = _LINE.search(cell), _REDUCED.search(cell)
    if found is None:
        return "", cell
    if reduced is None and "|refunded:" in cell:
        return found["sku"], "refunded in part: export with a row for each line"
    return found["sku"], (reduced["units"] if reduced else found["quantity"])


def _whole(column: str, quantity: str) -> int:
    if re.fullmatch("[0-9]{1,10}", quantity):
        return int(quantity)
    raise BadCellError(column, f'the open units must be a whole number, but are "{quantity[:60]}"')


def _product_of_line(column: str, sku: str, staging: Staging) -> str:
    """Find the product of a line; empty if it has no stock."""
    product_id = as_id(sku)
    if staging.kind_of(product_id) == PARENT:
        product_id = staging.parent_of(product_id)
    kind = staging.kind_of(product_id)
    if kind is None:
        raise BadCellError(
            column,
            f"{sku or 'the line'} is not in the file of products; ship or cancel it in WooCommerce, or leave it out with "
            "--skip-bad",
            "UNKNOWN_SKU",
        )
    return product_id if kind == GOODS else ""


def check_together(products: ExportFile, staging: Staging) -> None:
    """Count the units of open orders as committed, and find what contradicts them."""
    staging.drop_bad()
    staging.commit_open_units()
    for level in staging.levels():
        if not 0 <= level.on_hand <= MAX_UNITS:
            message = (
                f"Stock: with {level.committed:,} units in open orders, {level.on_hand:,} would be on hand; count them, correct the stock, and "
                "export again"
            )
            ids = {"productId": level.product_id}
            products.bad.append(FileError(level.line, "OVERSOLD", message, ids, "Stock"))
    for error in products.bad:
        staging.set_kind(error.ids.get("productId", ""), BAD)
    staging.drop_bad()
