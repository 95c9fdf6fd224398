"""Clocks for code that is handed one."""

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
    """The clock of a worker that is off by some seconds. Its monotonic part is right."""

    off: float = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.off)


class HurriedClock(SystemClock):
    """Real time in which nobody sleeps for long: as many faults are met, in less time."""

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.02))
