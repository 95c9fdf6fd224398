"""What a warm process remembers from one batch to the next."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from inventory_orders.clock import Clock
from inventory_orders.domain.product import Product

K = TypeVar("K")
V = TypeVar("V")

# How long this process counts as the only writer of a product after its last write.
_SOLE_WRITER_SECONDS = 5.0

# The cache is bounded by number of entries. Larger rows, made so by other programs, are not kept.
_LARGEST = 4096


class BoundedDict(Generic[K, V]):
    """A dictionary of bounded size: it drops the entry that was written longest ago.

    Args:
        most: Entries at the most.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The entry, if there is one."""
        return self._entries.get(key)

    def set(self, key: K, value: V) -> V:
        """Write an entry, and drop the oldest one if there are too many. Returns the value."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)
        return value


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
            entry.sole_writer = entry.product is not None and product.is_same_version(entry.product)

    def observe_write(self, product: Product) -> None:
        """Keep a product that this process has just written."""
        if product.size > _LARGEST:
            self.forget(product.product_id)
            return
        now = self._clock.monotonic()
        entry = self._entries.get(product.product_id) or _Entry(product, now)
        entry.product, entry.written_at = product, now
        self._entries.set(product.product_id, entry)

    def forget(self, product_id: str) -> None:
        """Forget a product that another process wrote, or whose write has an unknown outcome."""
        entry = self._entries.get(product_id)
        if entry is not None:
            entry.product, entry.sole_writer = None, False
