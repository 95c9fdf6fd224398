"""What a warm process remembers between batches: concurrent writers, throttles, and products.

It does no harm if these memories are wrong, because every write is conditioned on what was read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from inventory_orders.clock import Clock
from inventory_orders.domain.product import Product

K = TypeVar("K")
V = TypeVar("V")

# How long an observation counts as recent, in seconds.
_RECENT_SECONDS = 10.0

# The pace: the delay between two attempts, in seconds. Repeated throttles reach the longest delay within seconds: 50 workers
# on a new table need about 6 s each.
_MIN_PACE, _MAX_PACE = 0.1, 20.0
_GROWTH = 2.0

# The fraction of it that remains after an applied transaction, and the seconds after which it halves by itself: partitions
# split over time, so an old delay means little.
_DECAY = 0.98
_HALVED_AFTER = 30.0

# Shorter waits, in seconds, are skipped.
_NEGLIGIBLE = 0.02

# How long this process counts as the only writer of a product after its last write.
_SOLE_WRITER_SECONDS = 5.0

# The cache is bounded by its number of entries. Rows that other programs have made larger are not kept.
_LARGEST = 4096


class BoundedDict(OrderedDict[K, V]):
    """A dictionary with a maximum size. When it is full, it drops the entry that was written longest ago.

    Args:
        most: Maximum number of entries.
    """

    def __init__(self, most: int = 10_000) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)


class Recent(BoundedDict[str, float]):
    """Remembers when something was last observed of each product or buyer.

    Args:
        clock: Source of time.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def observe(self, *ids: str) -> None:
        """Note an observation of products or buyers."""
        for each in ids:
            self[each] = self._clock.monotonic()

    def has(self, of: str, seconds: float = _RECENT_SECONDS) -> bool:
        """Whether there was an observation of a product or buyer in the last `seconds` seconds."""
        return self._clock.monotonic() - self.get(of, float("-inf")) <= seconds


class Pace:
    """Decides how long a process waits before its next write while tables are short of capacity.

    Args:
        clock: Source of time.
        random: Source of numbers in [0, 1).
    """

    def __init__(self, clock: Clock, random: Callable[[], float]) -> None:
        self._clock = clock
        self._random = random
        self._seconds = 0.0
        self._as_of = 0.0

    @property
    def wait(self) -> float:
        """Seconds to wait now: a random part of the current delay, at least half of it; 0 while nothing is throttled."""
        return self._now() * (1 + self._random()) / 2 if self._seconds else 0.0

    def observe_throttle(self) -> None:
        """Double the delay between writes after a write is throttled for lack of capacity."""
        self._set(min(_MAX_PACE, max(_MIN_PACE, _GROWTH * self._now())))

    def observe_success(self) -> None:
        """Reduce the delay between writes after a transaction is applied."""
        if self._seconds:
            self._set(self._now() * _DECAY)

    def _now(self) -> float:
        age = self._clock.monotonic() - self._as_of
        seconds = self._seconds * 0.5 ** (age / _HALVED_AFTER)
        return seconds if seconds > _NEGLIGIBLE else 0.0

    def _set(self, seconds: float) -> None:
        self._seconds, self._as_of = seconds, self._clock.monotonic()


@dataclass(slots=True)
class _Entry:
    """A product as this process last wrote it.

    Attributes:
        product: Its state.
        written_at: When it was written, on the clock's monotonic scale.
        sole_writer: Whether this process seems to be its only writer.
    """

    product: Product
    written_at: float
    sole_writer: bool


class ProductCache:
    """Remembers products as this process wrote them, while it seems to be their only writer.

    Every write is conditioned on the cached version, so a stale entry costs a retry, but never leads to a wrong result.

    Args:
        clock: Source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: BoundedDict[str, _Entry] = BoundedDict()

    def get(self, product_id: str) -> Product | None:
        """The product as this process last wrote it, if it seems to be the only writer. Plans may use it, but rejections may not."""
        entry = self._entries.get(product_id)
        if (
            entry is None
            or not entry.sole_writer
            or self._clock.monotonic() - entry.written_at > _SOLE_WRITER_SECONDS
        ):
            return None
        return entry.product

    def observe_read(self, product: Product) -> None:
        """Note whether a product that was just read is still as this process wrote it."""
        if (entry := self._entries.get(product.product_id)) is not None:
            entry.sole_writer = product.is_same_version(entry.product)

    def observe_write(self, product: Product) -> None:
        """Remember a product that this process has just written."""
        before = self._entries.pop(product.product_id, None)
        if product.size <= _LARGEST:
            is_sole = before is not None and before.sole_writer
            self._entries[product.product_id] = _Entry(product, self._clock.monotonic(), is_sole)

    def forget(self, product_id: str) -> None:
        """Forget a product after another process wrote it, or after a write with an unknown outcome."""
        self._entries.pop(product_id, None)
