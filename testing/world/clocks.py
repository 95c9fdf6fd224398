"""Clocks for code that takes a clock as an argument."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from inventory_orders.clock import SystemClock


@dataclass
class FakeClock:
    """A clock that only moves when code sleeps."""

    seconds: float = 1_000_000.0
    slept: list[float] = field(default_factory=list)
    on_sleep: Callable[[], None] = lambda: None

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        self.on_sleep()


@dataclass
class WrongClock(SystemClock):
    """A worker's clock that is off by a few seconds. Its monotonic time is correct."""

    off: float = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.off)


class HurriedClock(SystemClock):
    """Real time, but sleeps are short, so that tests meet the same number of faults in less time."""

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.02))
