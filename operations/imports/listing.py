"""Takes names, prices and barcodes of products from an export, and finds SKUs that are not unique."""

from __future__ import annotations

import re

from inventory_orders.domain.barcode import key_of_barcode, written
from inventory_orders.errors import InvalidMessageError

from ..cells import check_codes
from ..file_errors import FileError
from ..file_prices import FilePrices
from .export_file import BadCellError, ExportFile, Row
from .staging import BAD, LEFT_OUT, Listed, Staging

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f]+")
_MAX_NAME = 200
_BARCODE = re.compile("[!-)+-<>-~][!-)+-~]{0,63}")


def list_product(file: ExportFile, row: Row, staging: Staging, column: str, listed: Listed) -> None:
    """Add a SKU. Two lines with the same one are both bad, unless neither has stock."""
    before = staging.kind_of(listed.product_id)
    if before == listed.kind == LEFT_OUT:
        return
    if not (first := staging.add_product(listed)):
        return
    sku, ids = row.sku(column), {"productId": listed.product_id}
    lines = {row.number: first} if before == BAD else {first: row.number, row.number: first}
    for number, other in lines.items():
        message = f"{column}: line {other} has the SKU {sku}, too; give each an SKU of its own, and export again"
        file.bad.append(FileError(number, "DUPLICATE_LINE", message, ids, column, sku))


def printable_name(*parts: str) -> str | None:
    """Join the parts of a name. Control characters become spaces, and a name that is too long is cut."""
    name = " ".join(_UNPRINTABLE.sub(" ", " - ".join(filter(None, parts))).split())
    return (name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 3]}...") or None


def price_in(row: Row, column: str, prices: FilePrices | None) -> int | None:
    """Read a price in minor units; None without `prices`.

    Raises:
        BadCellError: It is not a price.
    """
    if prices is None or not row[column]:
        return None
    try:
        price: int = prices.minor_units(row.number, row[column])
    except InvalidMessageError as error:
        raise BadCellError(column, error.message.removeprefix("price: "), error.code) from None
    return price


def barcode_in(file: ExportFile, row: Row, column: str, product_id: str) -> str | None:
    """Read a barcode. One that the service would refuse is left out: shops do not check theirs."""
    if not (barcode := row.sku(column)):
        return None
    try:
        _check_barcode(barcode)
    except InvalidMessageError as error:
        said = error.message.removeprefix("barcodes: ")
        message = f"{said}. The product is imported without it"
        file.leave_out(row, column, message, error.code, productId=product_id)
        return None
    return barcode


def _check_barcode(barcode: str) -> None:
    check_codes({"barcodes": barcode}, are_cells=True)
    if not _BARCODE.fullmatch(barcode):
        raise InvalidMessageError(
            "SCHEMA_VIOLATION", "barcodes have 1 to 64 printable ASCII characters"
        )
    key_of_barcode(written(barcode))


def note_shared_barcodes(file: ExportFile, staging: Staging, column: str) -> None:
    """Note barcodes that several products have: which one is right is unknown."""
    for line, product_id, barcode in staging.shared_barcodes():
        message = (
            f"{column}: another product has this barcode, too. The product is imported without it"
        )
        ids = {"productId": product_id}
        file.notes.append(FileError(line, "BARCODE_TAKEN", message, ids, column, barcode))
