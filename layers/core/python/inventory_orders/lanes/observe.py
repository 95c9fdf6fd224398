"""How many units of products there are: in their rows and in lanes, added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inventory_orders.clock import Deadline
from inventory_orders.domain.allotments import Page, PageKey
from inventory_orders.domain.product import Product
from inventory_orders.engine.reader import read
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import CorruptItemError, ThrottledError
from inventory_orders.store.dynamodb import Snapshot
from inventory_orders.store.rows import Key

# The first time the row's lanes are not known, the second time they are; a third time they have changed in between.
_TRIES = 4


@dataclass(frozen=True, slots=True)
class StockLevel:
    """The units of a product at one moment.

    Attributes:
        product: Its row.
        in_lanes: Units by lane; 0 is the depot.
        is_exact: Whether row and pages were read at one moment; otherwise units that moved meanwhile may be missing or
            counted twice.
    """

    product: Product
    in_lanes: Mapping[int, int] = field(default_factory=dict)
    is_exact: bool = True

    @property
    def on_hand(self) -> int:
        """Units in the row and in lanes; negative when units are on backorder."""
        return self.product.stock_count + sum(self.in_lanes.values())


def estimate_levels(
    client: RetryingClient, product_ids: Sequence[str], deadline: Deadline
) -> tuple[dict[str, StockLevel], Snapshot]:
    """Read rows, then the pages that may hold more of them.

    Returns:
        The levels by product id, and what was read of the rows: products that do not exist or cannot be read.

    Raises:
        CorruptItemError: A page cannot be read.
        StoreError: DynamoDB failed.
    """
    stats = CommitStats()
    snapshot = read(client, product_ids, deadline, stats)
    rows = [row for row in snapshot.products.values() if row is not None]
    keys = list(dict.fromkeys(key for row in rows for key in _pages_of(row)))
    found = read(client, keys, deadline, stats) if keys else Snapshot()
    if snapshot.unprocessed or found.unprocessed:
        raise ThrottledError("UNPROCESSED_KEYS", "no read answered for a product or a page")
    return {row.product_id: _level(row, found, is_exact=not row.lent_to) for row in rows}, snapshot


def read_level(
    client: RetryingClient, product_id: str, deadline: Deadline, stats: CommitStats
) -> StockLevel | None:
    """Read how many units of a product there are, at one moment.

    While rivals keep writing the product and no moment is free of them, the answer is an estimate.

    Returns:
        The level; None if there is no such product.

    Raises:
        CorruptItemError: The row or a page cannot be read.
        StoreError: DynamoDB failed.
    """
    pages: list[PageKey] = []
    for _ in range(_TRIES):
        keys: list[Key] = [product_id, *pages]
        try:
            found = client.call(lambda keys=keys: client.store.read_together(keys), deadline, stats)  # type: ignore[misc]
        except ThrottledError:
            break
        if product_id in found.unreadable:
            raise CorruptItemError(found.unreadable[product_id], "CORRUPT_PRODUCT")
        row = found.products[product_id]
        if row is None:
            return None
        pages = _pages_of(row)
        if set(pages) <= set(keys):
            return _level(row, found, is_exact=True)
    levels, _ = estimate_levels(client, [product_id], deadline)
    return levels.get(product_id)


def _pages_of(row: Product) -> list[PageKey]:
    return [PageKey.of(lane, row.product_id) for lane in sorted(row.lent_to)]


def _level(row: Product, found: Snapshot, *, is_exact: bool) -> StockLevel:
    in_lanes = {}
    for page in _readable(found.pages[key] for key in _pages_of(row)):
        entry = page.entries.get(row.product_id)
        # Another incarnation's units are none of this product.
        if entry is not None and entry.created_at == row.created_at:
            in_lanes[page.key.lane] = entry.units
    return StockLevel(row, in_lanes, is_exact)


def _readable(pages: Iterable[Page | CorruptItemError]) -> Iterable[Page]:
    for page in pages:
        if isinstance(page, CorruptItemError):
            raise page
        yield page
