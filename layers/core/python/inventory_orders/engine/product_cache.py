"""Products as this process left them, for as long as nobody else seems to write them.

Every write is conditioned on what the cache says, so a stale entry costs a retry and never a wrong result.
"""

from __future__ import annotations

from dataclasses import dataclass

from inventory_orders.clock import Clock
from inventory_orders.domain.product import Product
from inventory_orders.engine.bounded_dict import BoundedDict

# How long it is believed, without another sign of it, that nobody else writes a product.
_SOLE_WRITER_SECONDS = 5.0

# What is remembered is bounded in number, so not in memory: of a row that others have made this large, nothing is.
_LARGEST = 4096


@dataclass(slots=True)
class _Entry:
    """A product as this process left it.

    Attributes:
        product: Its state; None if that is not known.
        written_at: When, on the clock's monotonic scale.
        sole_writer: Whether nobody else seemed to write it since.
    """

    product: Product | None
    written_at: float
    sole_writer: bool = False


class ProductCache:
    """What this process knows of products without a read.

    Args:
        clock: Source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: BoundedDict[str, _Entry] = BoundedDict()

    def get(self, product_id: str) -> Product | None:
        """The product as this process left it, if nobody else seems to write it: good for a plan, not for a rejection."""
        entry = self._entries.get(product_id)
        if (
            entry is None
            or not entry.sole_writer
            or self._clock.monotonic() - entry.written_at > _SOLE_WRITER_SECONDS
        ):
            return None
        return entry.product

    def observe_read(self, product: Product) -> bool:
        """A fresh read tells whether somebody else wrote since this process did. Returns whether nobody has."""
        entry = self._entries.get(product.product_id)
        if entry is None:
            return False
        entry.sole_writer = entry.product is not None and product.is_same_version(entry.product)
        return entry.sole_writer

    def observe_write(self, product: Product) -> None:
        """This process has just written the product."""
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
        """Somebody else wrote the product, or it is not known how this process left it."""
        entry = self._entries.get(product_id)
        if entry is not None:
            entry.product, entry.sole_writer = None, False
