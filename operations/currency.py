"""The currency of a stack's prices."""

from __future__ import annotations

from typing import NamedTuple


class Currency(NamedTuple):
    """The setting `currency`. Prices are stored in its minor units.

    Attributes:
        code: The currency's code in ISO 4217. It is empty without the setting, and then nothing converts prices.
        digits: The number of decimals of the currency.
    """

    code: str = ""
    digits: int = 0

    def shown(self, units: int) -> str:
        """Format a price, such as `12.50 EUR` for 1250 minor units."""
        return f"{units / 10**self.digits:.{self.digits}f} {self.code}".rstrip()


NONE = Currency()
"""The currency of a stack without the setting."""
