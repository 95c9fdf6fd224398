"""Reads cells of users' files, and explains codes and numbers that a spreadsheet has rewritten, and ids with forbidden characters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

from inventory_orders.domain.location import DEFAULT_LOCATION, DEFAULT_NAME
from inventory_orders.errors import InvalidMessageError

ATTRIBUTES = "attributes."
"""How columns begin whose cells are attributes of an order. The name of the attribute follows."""

_NUMBER = re.compile("[0-9]{1,18}")
_ROUNDED = re.compile(r"[0-9]([.,][0-9]+)?[eE]\+[0-9]+")

# As Excel and LibreOffice show dates in English, German, French and Spanish. Spreadsheets never write months in capitals,
# so "10-DEC" may be a code.
_MONTH = (
    r"(?:[Jj]an|[Ff]eb|[Mm]ar|[Aa]pr|[Mm]ay|[Jj]un|[Jj]ul|[Aa]ug|[Ss]ept?|[Oo]ct|[Nn]ov|[Dd]ec|[Mm]rz|[Mm]är|[Mm]ai|[Oo]kt"
    r"|[Dd]ez|janv|févr|mars|avr|juin|juil|août|déc|ene|abr|ago|dic)\.?"
)
_DAY_AND_MONTH = re.compile(
    rf"[0-9]{{1,2}}[-./ ]{{1,2}}{_MONTH}(?:[-./ ][0-9]{{2,4}})?|{_MONTH}[-./ ][0-9]{{2,4}}"
)
_D, _M, _Y = "(?:0?[1-9]|[12][0-9]|3[01])", "(?:0?[1-9]|1[0-2])", "(?:19|20)[0-9]{2}"
_DATE = re.compile(
    rf"(?:{_Y}-{_M}-{_D}|{_Y}/{_M}/{_D}|{_D}[./-]{_M}[./-]{_Y}|{_M}[./-]{_D}[./-]{_Y}"
    rf"|{_D}/{_M}/[0-9]{{2}}|{_M}/{_D}/[0-9]{{2}})(?: 0?0:00(?::00)?)?"
)

_CODES = ("orderId", "productId", "locationId", "userId", "adjustmentId", "eventId", "limitGroup")
_LONGEST_ID = 128
_LARGEST = 10**12
_ID = re.compile(r"[!\"$-+\-.-~]+")
_UNENCODED = re.compile(r"[!\"$&-+\-.0->@-}]+")
_NOT_IN_LOCATIONS = re.compile(r"[^A-Za-z0-9._-]+")
_IS_ID = re.compile(r"(?:.*\.)?(?:\w+Id|limitGroup|from|to)")
_LOCATIONS = ("locationId", "from", "to")

_EXPONENT = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)?[eE][+-]?[0-9]{1,2}")
_ZERO_DECIMALS = re.compile(r"[+]?(-?[0-9]+)(?:[.,]0{1,2})?")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(?:[.,'\u2019\s\u202f\u00a0][0-9]{3})+")


def number_in(cell: str) -> int | str:
    """Read a whole number. Anything else stays a string, which the schemas refuse."""
    return int(cell) if _NUMBER.fullmatch(cell) else cell


def location_in(cell: str) -> str:
    """Read a location; `(default)` is the one without a name."""
    return DEFAULT_LOCATION if cell == DEFAULT_NAME else cell


def attributes_in(cells: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Find the attributes of an order in the cells of a row by column. Returns a field of a message, or nothing."""
    found = {
        name.removeprefix(ATTRIBUTES): cell
        for name, cell in cells.items()
        if cell and name.startswith(ATTRIBUTES)
    }
    return {"attributes": found} if found else {}


def check_codes(fields: Mapping[str, Any], *, are_cells: bool) -> None:
    """Reject codes that a spreadsheet has rounded or turned into dates, because different codes become equal.

    Args:
        fields: The fields of a line.
        are_cells: Whether they come from CSV. Other programs write dates only on purpose.

    Raises:
        InvalidMessageError: A code was rewritten; the message says what to do.
    """
    texts = [(name, getattr(fields.get(name), "text", fields.get(name))) for name in _CODES]
    barcodes = fields.get("barcodes")
    texts += [("barcodes", each) for each in barcodes.split()] if isinstance(barcodes, str) else []
    for name, text in texts:
        if not isinstance(text, str):
            continue
        if _ROUNDED.fullmatch(text):
            raise InvalidMessageError(
                "ROUNDED_CODE",
                f"{name}: a spreadsheet has rounded this code to {text}, and its last digits are lost. Export the file "
                "again, and import this column into the spreadsheet as text",
                name,
            )
        if are_cells and _is_date(name, text):
            raise InvalidMessageError(
                "DATE_INSTEAD_OF_CODE",
                f"{name}: {text} is a date, probably because a spreadsheet has converted a code such as MAR1 or 3-1. Export the "
                "file again, and import this column into the spreadsheet as text. If the code is right, write this line as JSON, "
                "in a file of its own",
                name,
            )


def _is_date(name: str, text: str) -> bool:
    # Other ids may contain dates on purpose, such as the day of a receipt.
    is_numeric = name == "productId" and _DATE.fullmatch(text)
    return bool(is_numeric or _DAY_AND_MONTH.fullmatch(text))


def remedy_of(column: str, value: str, message: str) -> str:
    """Say how to write a value that was refused, for the end of the message; empty if only the user can know."""
    if not value or "; " in message or column == "price":
        return ""
    if "whole number" in message:
        return _number_remedy(value)
    return _id_remedy(column, value) if _IS_ID.fullmatch(column) else ""


def _number_remedy(text: str) -> str:
    """Say how to write a number with an exponent, decimals or separators."""
    if _EXPONENT.fullmatch(text):
        number = Decimal(text.replace(",", "."))
        if number != int(number) or abs(number) > _LARGEST:
            return ""
        unless = ", unless a spreadsheet has rounded it" if "+" in text else ""
        return f"; write {int(number)}{unless}"
    if whole := _ZERO_DECIMALS.fullmatch(text):
        return "" if whole[1] == text else f"; write {int(whole[1])}"
    return "; write it without separators or decimals" if _GROUPED.fullmatch(text) else ""


def _id_remedy(column: str, text: str) -> str:
    """Say how to write an id with characters that ids cannot have."""
    if len(text) > _LONGEST_ID:
        return ""
    if column in _LOCATIONS:
        written = _NOT_IN_LOCATIONS.sub("-", text).strip("-")
    else:
        written = text if _ID.fullmatch(text) else encoded_id(text)
    return "" if written in ("", text) else f"; write {written}, in all files and messages"


def as_id(text: str) -> str:
    """Write a code as an id that the HTTP API accepts, too, and no other code has: encoded if necessary, or if it has a tilde."""
    return text if _UNENCODED.fullmatch(text) else encoded_id(text)


def encoded_id(text: str) -> str:
    """Write a code with spaces or other characters that ids cannot have as an id. The page on limits describes the encoding."""
    return quote(text, safe="").replace("~", "~7E").replace("%", "~")


def code_of(text: str) -> str:
    """Find the code that was written as an id; the id itself if it was not encoded."""
    code = unquote(text.replace("~", "%"))
    return code if as_id(code) == text else text
