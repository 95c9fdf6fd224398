"""Lanes and their pages, each with units of many products, so that one write serves orders for all of them.

A lane is a set of pages from which one process at a time sells. Lane 0 is the depot. Only the depot takes units from the
rows of products; the other lanes are filled from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

DEPOT = 0
"""The lane between the rows and all other lanes."""

MAX_LANES = 90
"""Maximum number of lanes besides the depot. One transaction can read a page of each, the depot's page and a row."""

PAGES = 4
"""Pages of a lane. Fewer pages are larger; more leave less room for orders in a transaction: docs/lanes.md."""

MAX_PRODUCTS = 3_000
"""Maximum number of products on a page, counting each location: 46 KB with short ids, 107 KB with UUIDs. Further products
are sold from their rows."""


class PageKey(NamedTuple):
    """The key of a page of a lane.

    Attributes:
        lane: The number of the lane.
        number: The number of the page within the lane, from 0.
    """

    lane: int
    number: int

    def __str__(self) -> str:
        return f"{self.lane}/{self.number}"

    # A visit to the depot looks up the page of each product several times.
    @staticmethod
    @lru_cache(maxsize=20_000)
    def of(lane: int, product_id: str) -> PageKey:
        """The page of a lane to which a product belongs. Its number is the same in every lane."""
        return PageKey(lane, crc32(product_id.encode()) % PAGES)


@dataclass(frozen=True, slots=True)
class PageEntry:
    """The units of one product on a page.

    Attributes:
        created_at: The generation of the product.
        units: How many; 1 or more.
        reach: At the depot, the last lane that may be filled with the product, counting from lane 1; 0 if none may.
    """

    created_at: str
    units: int
    reach: int = 0


NO_UNITS = PageEntry("", 0)
"""Stands for the entry of a product that a page has no units of."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a lane, as read or as it will be after a transaction.

    Attributes:
        key: Its lane and number.
        version: Rises by one with every write; 0 if it was never written.
        epoch: A random value set by its first write. Version and epoch together fence its writers.
        entries: By product id.
        last_updated_at: When it was last written; empty if never.
        size: Bytes of the stored item.
        emptied: At the depot, products that were lent to it but have no units left there. Their rows still name lanes.
    """

    key: PageKey
    version: int
    epoch: str
    entries: Mapping[str, PageEntry] = field(default_factory=dict)
    last_updated_at: str = ""
    size: int = field(default=0, compare=False)
    emptied: frozenset[str] = frozenset()

    def units(self, product_id: str) -> int:
        """The units of a product on the page."""
        return self.entries.get(product_id, NO_UNITS).units


@dataclass(frozen=True, slots=True)
class Needs:
    """What the owner of a lane waits for at the depot, so that another visitor can fill the lane.

    Attributes:
        units: Units that its orders need, by product id.
        orders: The number of these orders.
        version: The sum of the versions of the lane's pages. When a page is written, the needs are out of date.
        until: Unix time in seconds after which they are out of date in any case.
    """

    units: Mapping[str, int]
    orders: int
    version: int
    until: int


NO_NEEDS = Needs({}, 0, 0, 0)
"""Stands for the needs of a lane's owner that has never waited."""


@dataclass(frozen=True, slots=True)
class LaneLease:
    """The lease of a lane. Its owner is the process that sells from the lane or, for the depot, moves units there.

    Attributes:
        lane: The lane.
        owner: Unique for each time that a process takes a lane, or visits the depot.
        ends_at: Unix time in seconds.
        wait: How long the owner waited for it, in seconds.
        needs: What the owner has last waited for at the depot.
    """

    lane: int
    owner: str
    ends_at: float
    wait: float = 0.0
    needs: Needs = field(default=NO_NEEDS, compare=False)
