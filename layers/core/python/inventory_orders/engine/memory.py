"""What a warm process remembers from one batch to the next."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from inventory_orders.clock import Clock
from inventory_orders.domain.product import Product

K = TypeVar("K")
V = TypeVar("V")

# How long this process counts as the only writer of a product after its last write.
_SOLE_WRITER_SECONDS = 5.0

# The cache is bounded by number of entries. Larger rows, made so by other programs, are not kept.
_LARGEST = 4096


class BoundedDict(OrderedDict[K, V]):
    """A dictionary of bounded size: it drops the entry that was written longest ago.

    Args:
        most: Entries at the most.
    """

    def __init__(self, most: int = 10_000) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)


@dataclass(slots=True)
class _Entry:
    """A product as this process left it.

    Attributes:
        product: Its state.
        written_at: When, on the clock's monotonic scale.
        sole_writer: Whether no other process seems to write it.
    """

    product: Product
    written_at: float
    sole_writer: bool


class ProductCache:
    """Products as this process left them, kept while it seems to be their only writer.

    Every write is conditioned on the cached version, so a stale entry costs a retry and never a wrong result.

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

    def observe_read(self, product: Product) -> None:
        """Compare a fresh read with the entry: is this process still the only writer?"""
        if (entry := self._entries.get(product.product_id)) is not None:
            entry.sole_writer = product.is_same_version(entry.product)

    def observe_write(self, product: Product) -> None:
        """Keep a product that this process has just written."""
        if product.size > _LARGEST:
            self.forget(product.product_id)
            return
        before = self._entries.get(product.product_id)
        is_sole_writer = before is not None and before.sole_writer
        entry = _Entry(product, self._clock.monotonic(), is_sole_writer)
        self._entries[product.product_id] = entry

    def forget(self, product_id: str) -> None:
        """Forget a product that another process wrote, or whose write has an unknown outcome."""
        self._entries.pop(product_id, None)
