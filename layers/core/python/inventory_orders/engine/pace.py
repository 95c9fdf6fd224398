"""The pace of a process: while DynamoDB throttles it slows down, because a cancelled transaction costs units too."""

from __future__ import annotations

from collections.abc import Callable

from inventory_orders.clock import Clock

# Seconds between two attempts. What is throttled again and again comes to the longest pace within seconds: 50 workers on
# a new table need some 6 s each.
_LEAST, _MOST = 0.1, 20.0
_GROWTH = 2.0

# What is left of it after a transaction that was applied, and how many seconds it takes to halve by itself: what a table
# could take before says little once its partitions have split.
_DECAY = 0.98
_HALVED_AFTER = 30.0

# Below so many seconds it is not worth a wait.
_NEGLIGIBLE = 0.02


class Pace:
    """How long a process waits before it writes.

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
        """A write was throttled for want of capacity."""
        self._set(min(_MOST, max(_LEAST, _GROWTH * self._now())))

    def observe_success(self) -> None:
        """A transaction was applied."""
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
