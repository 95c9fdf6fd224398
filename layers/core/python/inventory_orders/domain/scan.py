"""Reads what scanners send when they scan a code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inventory_orders.domain.barcode import LITERALLY, gtins_in, looks_like_gtin, parsed

if TYPE_CHECKING:
    from biip.gs1_element_strings import GS1ElementString

_LISTABLE = re.compile(f"(?!{LITERALLY})[!-)+-~]{{1,64}}")

# GS1 General Specifications, "Symbology identifiers"; they are defined in ISO/IEC 15424.
_SYMBOLOGY = re.compile(r"(?:\]([A-Za-z][0-9]))?(.*)", re.DOTALL)
_GS1_QR = "]Q3"  # Has element strings or a Digital Link.
_OF_ELEMENTS = ("C1", "d2", "Q3", "J1", "e0", "e1", "e2")
_EAN, _WITH_ADD_ON, _EAN_8 = ("E0", "E3", "E4"), "E3", "E4"

_FNC1 = "\x1d"
_BRACKETS = re.compile(r"\(([0-9]{2,4})\)")
_LAST_SLASH = re.compile("^([^?#]+?)/+(?![^?#])")
# What needs no symbology identifier to be recognised: Digital Links, brackets, FNC1, and an SSCC or a GTIN at the beginning.
_ELEMENTS = re.compile(rf"(?i:https?://)|\(|.*{_FNC1}|00[0-9]{{18}}|0[12][0-9]{{14}}")

_SAID = {"10": "lot", "21": "serial"}
_DATES = {"17": "expiry", "15": "bestBefore"}


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
    elements = _elements_in(text)
    values = {each.ai.ai: each.value for each in elements}
    gtin = values.get("01", values.get("02", ""))
    gtins = gtins_in(gtin)
    return Scan(
        text,
        gtins,
        "" if gtins else gtin,
        int(values.get("30", 1)) * int(values.get("37", 1)),
        values.get("00", ""),
        "".join(each.as_hri() for each in elements) if values.keys() - {"01"} else "",
        {name: values[ai] for ai, name in _SAID.items() if ai in values}
        | {
            _DATES[each.ai.ai]: str(each.date)
            for each in elements
            if each.ai.ai in _DATES and each.date
        },
    )


def _elements_in(text: str) -> Sequence[GS1ElementString]:
    """Parse element strings or a Digital Link; none if it is malformed."""
    if text.startswith("("):
        # Printed codes have spaces, element strings never. biip ends a lot at a bracket in it.
        text = _BRACKETS.sub(rf"{_FNC1}\1", text.replace(" ", ""))
    elif text[:4].lower() == "http":
        # A query's `+` stands for a space, which no element string has. biip refuses a slash that ends the path.
        text = _LAST_SLASH.sub(r"\1", text.replace("+", "%2B"))
    # urllib raises it for a link with a malformed host.
    with suppress(ValueError):
        read = parsed(f"{_GS1_QR}{text}")
        found = read.gs1_message or read.gs1_digital_link_uri
        # biip accepts a count without digits.
        if found and all(each.value for each in found.element_strings):
            return found.element_strings
    return []
