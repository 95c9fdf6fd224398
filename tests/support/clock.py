"""A clock for code that is handed one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime


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
