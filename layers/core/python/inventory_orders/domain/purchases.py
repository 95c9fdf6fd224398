"""What buyers have bought of products with purchase limits: units by group of products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

MAX_GROUPS = 1_000
"""Maximum number of groups in a buyer's row: 30 KB with short ids, 145 KB with ids of 128 characters. Every order of the
buyer that has a limited product writes the whole row."""


class BuyerKey(NamedTuple):
    """The key of a buyer's row: a user, or whatever else the shop counts by, such as a card.

    Attributes:
        buyer: One of the order's `buyers`.
    """

    buyer: str

    def __str__(self) -> str:
        return f"the purchases of buyer {self.buyer}"


@dataclass(frozen=True, slots=True)
class Purchases:
    """A buyer's units, as read or as they will be after a transaction.

    Attributes:
        key: The buyer.
        version: Rises by one with every write; 0 if the row does not exist.
        epoch: A random value set by the first write. Version and epoch together fence the row's writers.
        units: By group.
        size: Bytes of the stored item.
    """

    key: BuyerKey
    version: int
    epoch: str
    units: Mapping[str, int] = field(default_factory=dict)
    size: int = field(default=0, compare=False)

    def plus(self, charges: Mapping[str, int]) -> Purchases:
        """Return the next version, with more units. Groups without any units are left out."""
        return replace(self, version=self.version + 1, units=Counter(self.units) + Counter(charges))

    def returnable(self, units: Mapping[str, int]) -> dict[str, int]:
        """The units that can be refunded: those of groups of which the buyer has that many."""
        return {group: n for group, n in units.items() if n <= self.units.get(group, 0)}


PurchasesByBuyer = Mapping[BuyerKey, Purchases]
"""Purchases by buyer, read with strong consistency."""

Refunds = Mapping[BuyerKey, Mapping[str, int]]
"""Units by group that buyers may buy again, because their orders were cancelled or have expired."""


def together(refunds: Iterable[Refunds], known: PurchasesByBuyer) -> dict[BuyerKey, dict[str, int]]:
    """Add up refunds. Leaves out units that a buyer is known not to have, because another program changed the row.

    Args:
        refunds: The refunds of each change in a transaction.
        known: The rows that an earlier attempt has found.
    """
    total: dict[BuyerKey, Counter[str]] = {}
    for each in refunds:
        for key, units in each.items():
            total.setdefault(key, Counter()).update(units)
    found = {
        key: known[key].returnable(units) if key in known else dict(units)
        for key, units in total.items()
    }
    return {key: units for key, units in found.items() if units}
