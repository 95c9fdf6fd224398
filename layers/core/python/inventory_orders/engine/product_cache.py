"""Products as this process left them, kept while it seems to be their only writer.

Every write is conditioned on the cached version, so a stale entry costs a retry and never a wrong result.
"""

from __future__ import annotations

from dataclasses import dataclass

from inventory_orders.clock import Clock
from inventory_orders.domain.product import Product
from inventory_orders.engine.bounded_dict import BoundedDict

# How long this process counts as the only writer of a product after its last write.
_SOLE_WRITER_SECONDS = 5.0

# The cache is bounded by number of entries. Larger rows, made so by other programs, are not kept.
_LARGEST = 4096


@dataclass(slots=True)
class _Entry:
    """A product as this process left it.

    Attributes:
        product: Its state; None if that is not known.
        written_at: When, on the clock's monotonic scale.
        sole_writer: Whether no other process seems to write it.
    """

    product: Product | None
    written_at: float
    sole_writer: bool = False


class ProductCache:
    """Products that this process knows without a read.

    Args:
        clock: Source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: BoundedDict[str, _Entry] = BoundedDict()

    def get(self, product_id: str) -> Product | None:
        """The product as this process left it, if no other seems to write it. It may decide a plan, but no rejection."""
        entry = self._entries.get(product_id)
        if (
            entry is None
            or not entry.sole_writer
            or self._clock.monotonic() - entry.written_at > _SOLE_WRITER_SECONDS
        ):
            return None
        return entry.product

    def observe_read(self, product: Product) -> bool:
        """Compare a fresh read with the entry. Returns whether this process is still the only writer."""
        entry = self._entries.get(product.product_id)
        if entry is None:
            return False
        entry.sole_writer = entry.product is not None and product.is_same_version(entry.product)
        return entry.sole_writer

    def observe_write(self, product: Product) -> None:
        """Keep a product that this process has just written."""
        if product.size > _LARGEST:
            self.forget(product.product_id)
            return
        now = self._clock.monotonic()
        entry = self._entries.get(product.product_id)
        if entry is None:
            entry = _Entry(product, now)
        entry.product, entry.written_at = product, now
        self._entries.set(product.product_id, entry)

    def forget(self, product_id: str) -> None:
        """Forget a product that another process wrote, or whose write has an unknown outcome."""
        entry = self._entries.get(product_id)
        if entry is not None:
            entry.product, entry.sole_writer = None, False
