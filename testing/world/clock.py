"""Virtual time, and clocks for code that takes a clock as an argument."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Protocol

from inventory_orders.clock import SystemClock


class VirtualClock(Protocol):
    """A source of time."""

    def now(self) -> float:
        """Unix seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let this many seconds pass for the caller."""
        ...


@dataclass
class ManualClock:
    """A clock that moves only when code sleeps or sets it. Threads sleep one after the other.

    Attributes:
        seconds: Unix seconds.
        slept: Seconds of each sleep so far.
        on_sleep: Called after each sleep.
    """

    seconds: float = 1_800_000_000.0
    slept: list[float] = field(default_factory=list)
    on_sleep: Callable[[], None] = lambda: None
    _one_at_a_time: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def now(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Let time pass, as during a call that takes a while."""
        with self._one_at_a_time:
            self.seconds += max(0.0, seconds)

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        self.slept.append(seconds)
        self.on_sleep()


class FakeClock(SystemClock):
    """A clock for code that takes one as an argument. It moves only when code sleeps or sets it."""

    def __init__(self, seconds: float = 1_000_000.0) -> None:
        self.seconds = seconds
        self.slept: list[float] = []

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds


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


@contextmanager
def virtual_time(clock: VirtualClock) -> Iterator[None]:
    """Make `time.time`, `monotonic`, `perf_counter` and `sleep` use this clock, in every thread.

    Code that imported these functions by name keeps the real ones. `datetime.now()` keeps real time. The service
    (`inventory_orders.clock.SystemClock`) and botocore's retries use the `time` module.
    """
    names = ("time", "monotonic", "perf_counter", "sleep")
    before = {name: getattr(time, name) for name in names}
    for name in names:
        setattr(time, name, clock.sleep if name == "sleep" else clock.now)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(time, name, function)
