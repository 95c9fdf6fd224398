"""Reads the prices in a user's file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from inventory_orders.errors import InvalidMessageError
from inventory_orders.messages.documents import Decimal, json_schema

from .currency import Currency
from .errors import UserError
from .words import counted

_DECIMALS = re.compile(r"[0-9][.,][0-9]")
_PRICE = re.compile(r"([0-9]{1,10})(?:[.,]([0-9]+))?")
_IS_THOUSANDS_OR_DECIMALS = re.compile(r"[1-9][0-9]{0,2}[.,][0-9]{3}")
_OTHER = {".": ",", ",": "."}


class FilePrices:
    """Reads the prices of a file, in which a separator is always a decimal separator.

    `1,250` may be a number with three decimals or 1250. So if another price of the file has the other separator, or has a
    separator twice, the file is ambiguous.
    """

    def __init__(self, currency: Currency) -> None:
        self._currency = currency
        schema = json_schema("commands")["manage_products"]["create"]["properties"]["price"]
        self._most: int = schema["maximum"]
        # Each maps a separator to the first line with such a price.
        self._unclear: dict[str, tuple[int, str]] = {}
        self._decimal: dict[str, tuple[int, str]] = {}

    def minor_units(self, number: int, price: Any) -> Any:
        """Convert a price to minor units, such as 12.50 to 1250. Without a currency, leave values unchanged.

        Raises:
            UserError: The price has decimals, but the stack has no currency.
            InvalidMessageError: The price is not a number, is out of range, or has more decimals than its currency.
        """
        text = price.text if isinstance(price, Decimal) else str(price)
        if not self._currency.code:
            _check_whole(number, text)
            return price
        if price is None:
            return None
        self._note(number, text, is_number=not isinstance(price, str))
        found, digits = _PRICE.fullmatch(text), self._currency.digits
        fraction = (found[2] or "") if found else ""
        if found and len(fraction) <= digits:
            units = int(found[1] + fraction.ljust(digits, "0"))
            if units <= self._most:
                return units
        decimals = f"with at most {counted(digits, 'decimal')}" if digits else "without decimals"
        raise InvalidMessageError(
            "SCHEMA_VIOLATION",
            f"price: must be a number from 0 to {self._currency.shown(self._most)}, {decimals} and without thousands "
            f'separators, but is "{text[:40]}"',
        )

    def _note(self, number: int, text: str, *, is_number: bool) -> None:
        """Remember which separators the file uses. In a number of JSON, a point is always a decimal point."""
        for separator in set(text) & _OTHER.keys():
            if not is_number and _IS_THOUSANDS_OR_DECIMALS.fullmatch(text):
                self._unclear.setdefault(separator, (number, text))
            # One that appears twice separates thousands, so the other one is for decimals.
            decimal = separator if text.count(separator) == 1 else _OTHER[separator]
            self._decimal.setdefault(decimal, (number, text))

    def check(self, path: Path) -> None:
        """Check that all prices could be read in only one way.

        Raises:
            UserError: One could mean two numbers.
        """
        for separator, (number, text) in self._unclear.items():
            if other := self._decimal.get(_OTHER[separator]):
                raise UserError(
                    f"{path} has ambiguous prices: {text} in line {number} could mean {text.replace(separator, '.')} or "
                    f"{text.replace(separator, '')}, because line {other[0]} has {other[1][:40]}. Write every price with the same decimal "
                    "separator and without thousands separators, and load the file again"
                )


def _check_whole(number: int, text: str) -> None:
    """Check that a price without a currency has no decimals, whose meaning would be a guess."""
    if _DECIMALS.search(text):
        raise UserError(
            f"line {number} has the price {text[:40]}, but the stack has no currency, so prices are in minor units, where "
            'a price of 79 may mean 79 cents. Add the setting currency to cdk.json, such as "currency": "EUR", and deploy; '
            "12.5 then means 12.50, and 79 means 79.00. Or write every price in minor units, such as 1250"
        )
