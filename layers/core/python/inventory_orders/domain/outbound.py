"""Outbound pages: units that have left the warehouse, until a sweep subtracts them from the rows of their products.

A hand-over is never refused because stock is short, and the sequence of hand-overs does not matter. So a hand-over does not
write the product's row, where it would compete with orders, but adds its units to one of a few pages. The units on hand are
the row's `onHand` minus the units on all pages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

MAX_OUTBOUND_ENTRIES = 3_000
"""Maximum number of entries on a page: 46 KB with short ids, 107 KB with UUIDs, and every write costs the whole size. It has to
hold what leaves between two sweeps: 100 orders of a wholesaler have 1,014 products."""


class Generation(NamedTuple):
    """The key of one generation of a product. A product that is deleted and created again has a new generation.

    Attributes:
        product_id: The product.
        created_at: When this generation was created.
    """

    product_id: str
    created_at: str


class OutboundKey(NamedTuple):
    """The key of an outbound page.

    Attributes:
        number: The number of the page, from 0.
    """

    number: int

    def __str__(self) -> str:
        return f"out/{self.number}"


OUTBOUND_KEYS = tuple(map(OutboundKey, range(8)))
"""All outbound pages. One transaction reads these, a row, and a page of each lane and of the depot: 100 items."""


@dataclass(frozen=True, slots=True)
class OutboundPage:
    """An outbound page, as read or as it will be after a transaction.

    Attributes:
        key: The key of the page.
        version: Rises by one with every write; 0 if it was never written.
        epoch: A random value set by its first write. Version and epoch together fence its writers.
        units: Units that have left the warehouse, by generation.
        last_updated_at: When it was last written; empty if never.
        size: Bytes of the stored item.
    """

    key: OutboundKey
    version: int
    epoch: str
    units: Mapping[Generation, int] = field(default_factory=dict)
    last_updated_at: str = ""
    size: int = field(default=0, compare=False)

    def plus(self, leaving: Mapping[Generation, int]) -> OutboundPage:
        """Return the next version of the page, with more units, or fewer if units have not left after all."""
        units = {lot: self.units.get(lot, 0) + n for lot, n in leaving.items()}
        left = {lot: n for lot, n in {**self.units, **units}.items() if n}
        return replace(self, version=self.version + 1, units=left)

    def without(self, folded: Collection[Generation]) -> OutboundPage:
        """Return the next version of the page, without some of its entries."""
        units = {lot: n for lot, n in self.units.items() if lot not in folded}
        return replace(self, version=self.version + 1, units=units)
