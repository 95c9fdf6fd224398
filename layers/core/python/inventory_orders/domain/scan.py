"""Reads what scanners send when they scan a code."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from itertools import chain
from math import prod
from urllib.parse import parse_qsl, unquote

from inventory_orders.domain.barcode import LITERALLY, gtins_in, looks_like_gtin

_LISTABLE = re.compile(f"(?!{LITERALLY})[!-)+-~]{{1,64}}")

# GS1 General Specifications, "Symbology identifiers"; they are defined in ISO/IEC 15424.
_SYMBOLOGY = re.compile(r"(?:\]([A-Za-z][0-9]))?(.*)", re.DOTALL)
_OF_ELEMENTS = ("C1", "d2", "Q3", "J1", "e0", "e1", "e2")
_EAN, _WITH_ADD_ON, _EAN_8 = ("E0", "E3", "E4"), "E3", "E4"

_FNC1 = "\x1d"
_BRACKETS = re.compile(r"\(([0-9]{2,4})\)")
# GS1 Digital Link Standard: URI Syntax.
_LINK = re.compile("(?i:https?)://[^/?#]*/?([^?#]*)[?]?([^#]*)")
# What needs no symbology identifier to be recognised: Digital Links, brackets, FNC1, and an SSCC or a GTIN at the beginning.
_ELEMENTS = re.compile(rf"(?i:https?://)|\(|.*{_FNC1}|00[0-9]{{18}}|0[12][0-9]{{14}}")

# GS1 General Specifications, "GS1 Application Identifiers": those of predefined length, the counts, and all others.
_AIS = {
    "00": "[0-9]{18}",
    "0[123]": "[0-9]{14}",
    "04": "[0-9]{16}",
    "1[1-9]": "[0-9]{6}",
    "20": "[0-9]{2}",
    "3[1-6][0-9]{2}": "[0-9]{6}",
    "41[0-9]": "[0-9]{13}",
    "30|37": "[0-9]{1,8}+",
    "10|2[12]|9[0-9]|2[345][0-9]|4[02][0-9]|71[0-9]|(?:39|43|7[02]|8[012])[0-9]{2}": "[!-~]{1,90}+",
}
_AI = re.compile("|".join(_AIS))
_ELEMENT = re.compile("|".join(f"({ai})({value})" for ai, value in _AIS.items()))
_MESSAGE = re.compile(f"(?:{_FNC1}*(?:{_ELEMENT.pattern}))+{_FNC1}*")

_SAID = {"10": "lot", "21": "serial", "17": "expiry", "15": "bestBefore"}
_COUNTS = ("30", "37")


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
    symbology, text = _SYMBOLOGY.findall(scan.strip(" \t\r\n"))[0]
    if symbology in _OF_ELEMENTS or _ELEMENTS.match(text):
        return _read_elements(text)
    text = text[:13] if symbology == _WITH_ADD_ON else text
    gtins = gtins_in(text)
    if symbology in _EAN and len(text) == 8:
        gtins = [each for each in gtins if (each == text.zfill(14)) == (symbology == _EAN_8)]
    return Scan(text, gtins, "" if gtins or not looks_like_gtin(text) else text)


def _read_elements(text: str) -> Scan:
    """Read element strings. If they are malformed, the text has no meaning of its own."""
    values = _of_link(text) if _LINK.match(text) else _of_message(text)
    gtin = values.get("01") or values.get("02", "")
    gtins = gtins_in(gtin)
    return Scan(
        text,
        gtins,
        "" if gtins else gtin,
        prod(int(values.get(ai, 1)) for ai in _COUNTS),
        values.get("00", ""),
        "".join(f"({ai}){values[ai]}" for ai in values) if values.keys() - {"01"} else "",
        _said(values),
    )


def _said(values: Mapping[str, str]) -> dict[str, str]:
    """Name the values that an answer shows. Dates that do not exist are left out."""
    dates = {ai: _date(values[ai]) for ai in values if ai in ("15", "17")}
    return {name: said for ai, name in _SAID.items() if (said := {**values, **dates}.get(ai))}


def _of_message(text: str) -> dict[str, str]:
    """The values in element strings by their application identifiers; none if they are malformed."""
    if text.startswith("("):
        # Printed codes have spaces, element strings never.
        text = _BRACKETS.sub(rf"{_FNC1}\1", text.replace(" ", ""))
    if not _MESSAGE.fullmatch(text):
        return {}
    values: dict[str, str] = {}
    for found in _ELEMENT.finditer(text):
        ai, value = filter(None, found.groups())
        values[ai] = value
    return values


def _of_link(link: str) -> dict[str, str]:
    """The values in a Digital Link by their application identifiers; none if one of them is malformed."""
    path, query = _LINK.findall(link)[0]
    parts = [*map(unquote, path.split("/"))]
    start = next((n for n, part in enumerate(parts) if part in ("00", "01")), len(parts))
    # A query's `+` stands for a space, which no element string has.
    named = chain(
        zip(parts[start::2], parts[start + 1 :: 2], strict=False),
        parse_qsl(query.replace("+", "%2B")),
    )
    values = {
        ai: value.zfill(14) if ai == "01" else value for ai, value in named if _AI.fullmatch(ai)
    }
    return values if all(map(_ELEMENT.fullmatch, map("".join, values.items()))) else {}


def _date(digits: str) -> str:
    """Convert YYMMDD into an ISO date. Day 00 is the last of the month. Empty if there is no such day."""
    year, month, day = 2000 + int(digits[:2]), int(digits[2:4]), int(digits[4:])
    with suppress(ValueError):
        return str(date(year, month, day or monthrange(year, month)[1]))
    return ""
