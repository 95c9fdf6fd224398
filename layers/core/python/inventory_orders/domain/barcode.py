"""Barcodes: codes that are listed for products, and what scanners send when they read one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from inventory_orders.errors import InvalidMessageError

LITERALLY = "="
"""Before a code, says that it is not a GTIN, although it looks like one."""

_LISTABLE = re.compile(f"(?!{LITERALLY})[!-)+-~]{{1,64}}")

# GS1 General Specifications, "Symbology identifiers"; they are defined in ISO/IEC 15424.
_SYMBOLOGY = re.compile(r"\]([A-Za-z][0-9])")
_OF_ELEMENTS = ("C1", "d2", "Q3", "J1", "e0", "e1", "e2")
_EAN = ("E0", "E3", "E4")
_WITH_ADD_ON, _EAN_8 = "E3", "E4"

_FNC1 = "\x1d"
_BRACKETS = re.compile(r"\(([0-9]{2,4})\)")
# What needs no symbology identifier to be recognised: Digital Links, brackets, FNC1, and an SSCC or a GTIN at the beginning.
_ELEMENTS = re.compile(rf"(?i:https?://)|\(|.*{_FNC1}|00[0-9]{{18}}|0[12][0-9]{{14}}")

_SAID = {"10": "lot", "21": "serial"}
_DATES = {"17": "expiry", "15": "bestBefore"}
_COUNTS = ("30", "37")


class BarcodeKey(NamedTuple):
    """The key of the row that says which product a code belongs to."""

    code: str


def check_digit_fits(gtin: str) -> bool:
    """Whether the last of 14 digits is the check digit of the others."""
    return (3 * sum(map(int, gtin[::2])) + sum(map(int, gtin[1::2]))) % 10 == 0


def gtins_in(digits: str) -> list[str]:
    """The GTINs, each with 14 digits, that 8 to 14 digits can be: an EAN-8 and a UPC-E may look the same.

    Leading zeros may be missing, because spreadsheets remove them.
    """
    if not re.fullmatch("[0-9]{8,14}", digits):
        return []
    readings = [digits.zfill(14)]
    if len(digits) == 8 and digits[0] in "01":
        readings.append(_expanded(digits).zfill(14))
    return list(filter(check_digit_fits, readings))


def looks_like_gtin(text: str) -> bool:
    """Whether a code has as many digits as a GTIN that is sent whole."""
    return bool(re.fullmatch("[0-9]{8}|[0-9]{12,14}", text))


def _expanded(upc_e: str) -> str:
    """The UPC-A that a UPC-E of 8 digits stands for: GS1 General Specifications, "UPC-E barcode"."""
    maker, last, zeros = upc_e[1:6], upc_e[6], 4 * "0"
    # How many of the maker's digits come before the zeros, and the zeros with the last digit.
    split, filled = 5, f"{zeros}{last}"
    if last in "34":
        split, filled = int(last), f"{zeros}0"
    elif last in "012":
        split, filled = 2, f"{last}{zeros}"
    return f"{upc_e[0]}{maker[:split]}{filled}{maker[split:]}{upc_e[7]}"


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


def shown_barcodes(barcodes: Iterable[str]) -> list[dict[str, Any]]:
    """Convert the barcodes of a product's row into the form that messages and answers have."""
    parts = map(code_and_units, sorted(barcodes))
    return [{"code": code, "units": units} for code, units in parts]


def key_of_barcode(barcode: str) -> BarcodeKey:
    """The key under which a barcode of a product's row is listed."""
    return BarcodeKey(code_and_units(barcode)[0].removeprefix(LITERALLY))


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scanner sent.

    Attributes:
        text: The content of the code, without the scanner's prefix and suffix.
        gtins: The GTINs that may be in it, each with 14 digits. If there are two, the one that is listed is meant.
        bad_gtin: The GTIN in it if its check digit is wrong; otherwise empty.
        count: How many units or cases with this GTIN the code is on.
        sscc: The number of the logistic unit in it; empty if there is none.
        elements: All element strings in it, with their application identifiers in brackets; empty if there are none but a GTIN.
        said: The lot, the serial number and the dates in it, by their fields in an answer.
    """

    text: str
    gtins: Sequence[str] = ()
    bad_gtin: str = ""
    count: int = 1
    sscc: str = ""
    elements: str = ""
    said: Mapping[str, str] = field(default_factory=dict)

    @property
    def codes(self) -> list[str]:
        """The codes under which its product may be listed, beginning with the code as it was sent."""
        as_sent = [self.text] if _LISTABLE.fullmatch(self.text) else []
        return list(dict.fromkeys([*as_sent, *self.gtins]))

    @property
    def item_number(self) -> str | None:
        """The item number in a GTIN that also has a price or a weight in it, in most countries; None for any other code."""
        of_variable_measure = (gtin[3:8] for gtin in self.gtins if re.match("00?2", gtin))
        return next(of_variable_measure, None)


def read_scan(scan: str) -> Scan:
    """Read what a scanner sent: digits, element strings with FNC1 or brackets, or a GS1 Digital Link. All else is plain text."""
    text = scan.strip(" \t\r\n")
    prefix = _SYMBOLOGY.match(text)
    symbology = prefix[1] if prefix else ""
    text = text[prefix.end() :] if prefix else text
    if symbology in _OF_ELEMENTS or _ELEMENTS.match(text):
        return _read_elements(text) or Scan(text)
    if symbology == _WITH_ADD_ON and len(text) > 13:
        text = text[:13]
    gtins = gtins_in(text)
    if symbology in _EAN and len(text) == 8:
        as_sent = text.zfill(14)
        gtins = [gtin for gtin in gtins if (gtin == as_sent) == (symbology == _EAN_8)]
    is_bad = not gtins and looks_like_gtin(text)
    return Scan(text, gtins, text if is_bad else "")


def _read_elements(text: str) -> Scan | None:
    """Read element strings; None if they are malformed."""
    # It takes a tenth of a second to import, and most codes are only digits.
    from biip import ParseConfig, ParseError  # noqa: PLC0415
    from biip.gs1_digital_link_uris import GS1DigitalLinkURI  # noqa: PLC0415
    from biip.gs1_messages import GS1Message  # noqa: PLC0415

    # Some makers print 000000 where there is no date.
    config = ParseConfig(gs1_element_strings_verify_date=False)
    try:
        if text[:4].lower() == "http":
            # A query's `+` stands for a space, which no element string has.
            link = text.replace("+", "%2B").rstrip("/")
            found = GS1DigitalLinkURI.parse(link, config=config).element_strings
        else:
            # biip's own reader of brackets loses the rest of a lot with a bracket in it.
            message = _BRACKETS.sub(rf"{_FNC1}\1", text) if text.startswith("(") else text
            found = GS1Message.parse(message, config=config).element_strings
        # biip reads a count without digits.
        count = prod(int(element.value) for element in found if element.ai.ai in _COUNTS)
    except (ParseError, ValueError):
        return None
    values = {element.ai.ai: element.value for element in found}
    dates = {element.ai.ai: str(element.date) for element in found if element.date}
    gtin = values.get("01") or values.get("02", "")
    gtins = gtins_in(gtin)
    return Scan(
        text,
        gtins,
        "" if gtins else gtin,
        count,
        values.get("00", ""),
        "".join(element.as_hri() for element in found) if values.keys() - {"01"} else "",
        {name: values[ai] for ai, name in _SAID.items() if ai in values}
        | {name: dates[ai] for ai, name in _DATES.items() if ai in dates},
    )
