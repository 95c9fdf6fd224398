"""The result of an exploration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Failure:
    """A schedule that breaks an invariant.

    Attributes:
        message: The broken invariant.
        trace: The steps of the run, in words.
        schedule: The choices, for `replay`.
        faults: Maximum number of faults in the run.
        rivals: Number of processes at the start.
        clocks: By process, how many seconds its clock was ahead.
    """

    message: str
    trace: tuple[str, ...]
    schedule: str
    faults: int
    rivals: int
    clocks: Mapping[str, float]

    def __str__(self) -> str:
        lines = "\n".join(f"  {line}" for line in self.trace)
        clocks = "".join(f"\nclock of {name}: {ahead:+g} s" for name, ahead in self.clocks.items())
        return f"{self.message}\n{lines}\nschedule: {self.schedule}{clocks}"


@dataclass
class Result:
    """The result of an exploration.

    Attributes:
        schedules: Distinct complete runs. If faults are explored, a run without a fault does not count.
        pruned: Runs that were stopped because they only repeat earlier runs in another order.
        longest: Number of steps in the longest run.
        failure: The first schedule that broke an invariant.
        happened: What happened, and how often; only in runs by chance.
    """

    schedules: int = 0
    pruned: int = 0
    longest: int = 0
    failure: Failure | None = None
    happened: Counter[str] = field(default_factory=Counter)

    def add(self, other: Result) -> None:
        """Add the runs of another exploration."""
        self.schedules += other.schedules
        self.pruned += other.pruned
        self.longest = max(self.longest, other.longest)
        self.failure = other.failure
        self.happened += other.happened
