"""The pace of a process: while DynamoDB throttles it slows down, because a cancelled transaction costs units too."""

from __future__ import annotations

from inventory_orders.clock import Clock

# Seconds between two rounds. Up to the knee the pace grows fast, beyond it slowly.
_LEAST, _KNEE, _MOST = 0.1, 4.0, 20.0
_GROWTH, _GROWTH_BEYOND = 3.0, 1.4

# What is left of it after a transaction that was applied, and how many seconds it takes to halve by itself: what a table
# could take before says little once its partitions have split.
_DECAY = 0.98
_HALVED_AFTER = 10.0

# Below so many seconds it is not worth a wait.
_NEGLIGIBLE = 0.02


class Pace:
    """How long a process waits between rounds.

    Args:
        clock: Source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._as_of = 0.0

    @property
    def seconds(self) -> float:
        """Seconds to wait at the most before the next round; 0 while nothing is throttled."""
        if not self._seconds:
            return 0.0
        age = self._clock.monotonic() - self._as_of
        seconds = self._seconds * 0.5 ** (age / _HALVED_AFTER)
        return seconds if seconds > _NEGLIGIBLE else 0.0

    def observe_throttle(self) -> None:
        """A write was throttled for want of capacity."""
        seconds = self.seconds
        growth = _GROWTH if seconds < _KNEE else _GROWTH_BEYOND
        self._set(min(_MOST, max(_LEAST, growth * seconds)))

    def observe_success(self) -> None:
        """A transaction was applied."""
        if self._seconds:
            self._set(self.seconds * _DECAY)

    def _set(self, seconds: float) -> None:
        self._seconds, self._as_of = seconds, self._clock.monotonic()
