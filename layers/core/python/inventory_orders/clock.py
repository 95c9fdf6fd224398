"""The clock that all code uses, so that tests and simulations can pass in a clock of their own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A clock, with the operations that the service needs."""

    def now(self) -> datetime:
        """The current time, timezone-aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds on a scale that never goes backwards. Only the difference between two values is meaningful."""

    def sleep(self, seconds: float) -> None:
        """Wait for this number of seconds."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time after which no new request may begin.

    Attributes:
        clock: The clock that measures it.
        at: The time on the clock's monotonic scale, in seconds.
    """

    clock: Clock
    at: float

    @classmethod
    def after(cls, seconds: float, clock: Clock) -> Deadline:
        """Create a deadline `seconds` from now."""
        return cls(clock, clock.monotonic() + seconds)

    def remaining(self) -> float:
        """Seconds until the deadline; negative once it has passed."""
        return self.at - self.clock.monotonic()


def timestamp(moment: datetime) -> str:
    """Format a time as ISO 8601 in UTC with exactly six decimals and `+00:00`, so that times sort as strings.

    >>> timestamp(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2026-01-02T03:04:05.000000+00:00'
    """
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
