"""Barcodes: the codes that are listed for products."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from inventory_orders.errors import InvalidMessageError

if TYPE_CHECKING:
    from biip import ParseResult

LITERALLY = "="
"""Before a code, says that it is not a GTIN, although it looks like one."""


class BarcodeKey(NamedTuple):
    """The key of the row that says which product a code belongs to."""

    code: str


def parsed(code: str) -> ParseResult:
    """Parse a code by the GS1 specifications. Dates that do not exist are left out.

    Raises:
        ValueError: The code is a malformed link.
    """
    # It takes a tenth of a second to import, and most codes are plain digits.
    from biip import ParseConfig, parse  # noqa: PLC0415

    # Some makers print 000000 where there is no date.
    return parse(code, config=ParseConfig(gs1_element_strings_verify_date=False))


def check_digit_fits(gtin: str) -> bool:
    """Whether the last of 14 digits is the check digit of the others."""
    return (3 * sum(map(int, gtin[::2])) + sum(map(int, gtin[1::2]))) % 10 == 0


def gtins_in(digits: str) -> list[str]:
    """The GTINs, each with 14 digits, that 8 to 14 digits can be: an EAN-8 and a UPC-E may look the same.

    Leading zeros may be missing, because spreadsheets remove them.
    """
    if not re.fullmatch("[0-9]{8,14}", digits):
        return []
    upc = parsed(digits).upc if re.fullmatch("[01][0-9]{7}", digits) else None
    readings = (digits, upc.as_upc_a()) if upc else (digits,)
    return [gtin for each in readings if check_digit_fits(gtin := each.zfill(14))]


def looks_like_gtin(text: str) -> bool:
    """Whether a code has as many digits as a GTIN that is sent whole."""
    return bool(re.fullmatch("[0-9]{8}|[0-9]{12,14}", text))


def written(code: str, units: int = 1) -> str:
    """Write a barcode as a product's row lists it: `04006381333931`, or `14006381333938*12` for a case of 12 units.

    Args:
        code: A GTIN of 8, 12, 13 or 14 digits, or another code; or, after `=`, any code.
        units: How many units of the product bear it together.

    Raises:
        InvalidMessageError: `BAD_CHECK_DIGIT`, or the code is both an EAN-8 and a UPC-E.
    """
    plain = code.removeprefix(LITERALLY)
    readings = gtins_in(plain)
    if code != plain:
        is_as_read = readings == [plain] or not (readings or looks_like_gtin(plain))
        shown = plain if is_as_read else code
    elif len(readings) > 1:
        raise InvalidMessageError(
            "SCHEMA_VIOLATION",
            f"barcodes: {code} is an EAN-8 and a UPC-E; send {' or '.join(readings)}",
            "barcodes",
        )
    elif not readings and looks_like_gtin(code):
        raise InvalidMessageError(
            "BAD_CHECK_DIGIT",
            f"barcodes: the check digit of {code} is wrong; correct the code or, if it is not a GTIN, send {LITERALLY}{code}",
            "barcodes",
        )
    else:
        shown = (readings or [code])[0]
    return shown if units == 1 else f"{shown}*{units}"


def all_written(barcodes: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Write a product's barcodes, each a map of `code` and, unless it is 1, `units`.

    Raises:
        InvalidMessageError: See `written`, or a code appears twice with other units.
    """
    found = frozenset(written(each["code"], each.get("units", 1)) for each in barcodes)
    codes = Counter(map(key_of_barcode, found))
    if twice := [key.code for key, times in codes.items() if times > 1]:
        raise InvalidMessageError(
            "SCHEMA_VIOLATION",
            f"barcodes: {twice[0]} appears twice, with other units; keep one",
            "barcodes",
        )
    return found


def code_and_units(barcode: str) -> tuple[str, int]:
    """Read a barcode of a product's row: the code as it was sent, and the units."""
    code, _, units = barcode.partition("*")
    return code, int(units or 1)


def shown_barcodes(barcodes: Iterable[str]) -> list[dict[str, Any]] | None:
    """Convert the barcodes of a product's row into the form that messages and answers have; None if there are none."""
    parts = map(code_and_units, sorted(barcodes))
    return [{"code": code, "units": units} for code, units in parts] or None


def key_of_barcode(barcode: str) -> BarcodeKey:
    """The key under which a barcode of a product's row is listed."""
    return BarcodeKey(code_and_units(barcode)[0].removeprefix(LITERALLY))
