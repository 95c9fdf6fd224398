"""What a warm process remembers from one batch to the next: of rivals, of the line at the depot, of throttles, and products.

It may be wrong: every write is conditioned on what was read.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from inventory_orders.clock import Clock
from inventory_orders.domain.product import Product

K = TypeVar("K")
V = TypeVar("V")

# Average wait in seconds that is assumed at the first conflict: about one commit of a rival.
_FIRST_WAIT = 0.02

# How long a product counts as contested after a write of its row was lost.
_CONTESTED_SECONDS = 10.0

# How long the last observed wait at the depot counts.
_LINE_SECONDS = 5.0

# Requests for one visit, of all that wait together. While the depot lies idle, all of them do.
_REQUESTS = 10.0

# Age cap, in mean waits: keeps messages that were delayed for another reason from starving the others.
_AGE_CAP = 4.0

# The least average wait that is believed, in seconds, and the weight of each new observation, above the average and
# below it: a line grows at once and shrinks slowly.
_MIN_WAIT = 0.005
_WEIGHT_ABOVE = 0.2
_WEIGHT_BELOW = 0.1

# Mean age of those that wait, as a part of the average wait: E[w^2] / (2 E[w]^2) of Rayleigh's distribution.
_MEAN_AGE = 2 / math.pi

# The pace: seconds between two attempts. What is throttled again and again comes to the longest pace within seconds: 50 workers on
# a new table need some 6 s each.
_MIN_PACE, _MAX_PACE = 0.1, 20.0
_GROWTH = 2.0

# The part of it that remains after an applied transaction, and the seconds after which it halves by itself: partitions
# split meanwhile, so an old pace says little.
_DECAY = 0.98
_HALVED_AFTER = 30.0

# Below so many seconds it is not worth a wait.
_NEGLIGIBLE = 0.02

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


class Rivals:
    """The products on whose rows rivals were met.

    Args:
        clock: Source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._met_at: BoundedDict[str, float] = BoundedDict()

    def observe(self, product_id: str) -> None:
        """Take note of a lost or throttled write of the product's row."""
        self._met_at[product_id] = self._clock.monotonic()

    def are_met_on(self, product_id: str, seconds: float = _CONTESTED_SECONDS) -> bool:
        """Whether rivals were met on the product's row in the last seconds."""
        met_at = self._met_at.get(product_id)
        return met_at is not None and self._clock.monotonic() - met_at <= seconds


class DepotLine:
    """The line at the depot: estimates the wait, and decides when to ask again.

    With equal chances at each release, a few would always wait several times the average. Here the rate at which a
    process asks grows with the time that it has waited, so that waits follow Rayleigh's distribution: the slowest of a
    hundred waits 2.4 times the average, not 4.6 times. The rate's growth follows from the average wait, which all processes
    read from the same attribute: each lease tells how long its owner waited (`lockWait`).

    Args:
        clock: Source of time.
        random: Source of numbers in [0, 1).
    """

    def __init__(self, clock: Clock, random: Callable[[], float]) -> None:
        self._clock = clock
        self._random = random
        self._seen_at = -math.inf
        self._wait = 0.0

    def observe(self, wait: float) -> None:
        """Take note that a process, perhaps this one, got the depot after so many seconds in line."""
        average = self.average_wait or _FIRST_WAIT
        weight = _WEIGHT_ABOVE if wait > average else _WEIGHT_BELOW
        self._wait, self._seen_at = average + weight * (wait - average), self._clock.monotonic()

    @property
    def average_wait(self) -> float:
        """Average wait in seconds; 0 if no process waited lately."""
        is_known = self._clock.monotonic() - self._seen_at <= _LINE_SECONDS
        return self._wait if is_known else 0.0

    @property
    def is_empty(self) -> bool:
        """Whether a visit waits for less than one commit of a rival."""
        return self.average_wait < _FIRST_WAIT

    def next_delay(self, age: float) -> float:
        """Seconds until the next request for the depot.

        A Poisson process whose rate is c times the time waited. n in line, which wait W on average, then ask
        n * c * _MEAN_AGE * W times a second, while n / W visits are made. So c = requests / (_MEAN_AGE * W^2).

        Args:
            age: Seconds since the depot was first wanted, waits that came to nothing included.
        """
        if not self.average_wait:
            return 0.0
        wait = max(self.average_wait, _MIN_WAIT)
        age = min(age, _AGE_CAP * wait)
        exponential = -math.log(1.0 - self._random())
        step = 2 * _MEAN_AGE * wait**2 * exponential / _REQUESTS
        return math.sqrt(age**2 + step) - age


class Pace:
    """The pace of a process: how long it waits before it writes while tables are short of capacity.

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
        """Seconds to wait now: half to all of the pace; 0 while nothing is throttled."""
        seconds = self._now()
        return seconds * (1 + self._random()) / 2 if seconds else 0.0

    def observe_throttle(self) -> None:
        """Take note of a write that was throttled for want of capacity."""
        self._set(min(_MAX_PACE, max(_MIN_PACE, _GROWTH * self._now())))

    def observe_success(self) -> None:
        """Take note of an applied transaction."""
        if self._seconds:
            self._set(self._now() * _DECAY)

    def _now(self) -> float:
        if not self._seconds:
            return 0.0
        age = self._clock.monotonic() - self._as_of
        seconds = self._seconds * 0.5 ** (age / _HALVED_AFTER)
        return seconds if seconds > _NEGLIGIBLE else 0.0

    def _set(self, seconds: float) -> None:
        self._seconds, self._as_of = seconds, self._clock.monotonic()


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
        self._entries[product.product_id] = _Entry(product, self._clock.monotonic(), is_sole_writer)

    def forget(self, product_id: str) -> None:
        """Forget a product that another process wrote, or whose write has an unknown outcome."""
        self._entries.pop(product_id, None)
