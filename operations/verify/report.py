"""The report on a deployed stack: lines and figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """The result of a line of the report."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_HERE = "not here"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the report.

    Attributes:
        name: The subject of the check.
        state: Whether it is as expected; `NOT_HERE` if this stack does not allow the check.
        saw: A description of the observation; the reason if the state is `NOT_HERE`.
    """

    name: str
    state: State
    saw: str


class CheckFailedError(Exception):
    """A check found something unexpected. The message says what was found and what was expected."""


def passed(name: str, saw: str) -> list[Line]:
    """Build the line of a successful check."""
    return [Line(name, State.PASSED, saw)]


def not_here(name: str, why: str) -> list[Line]:
    """Build the line of a check that this stack does not allow."""
    return [Line(name, State.NOT_HERE, why)]


def judged(name: str, problems: Sequence[str], saw: str) -> list[Line]:
    """Build the line of a check. The check has failed if there are problems."""
    if not problems:
        return passed(name, saw)
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return [Line(name, State.FAILED, "; ".join(problems[:_SHOWN]) + more)]


_SHOWN = 4


def what_went_wrong(error: Exception) -> str:
    """Describe an AWS error, and name the missing permission, if any."""
    said = str(error)
    denied = re.search(r"not authorized to perform: ([\w:*]+)(?: on resource: (\S+))?", said)
    if denied is None:
        return said
    where = f" on {denied[2]}" if denied[2] else ""
    return f"not allowed: this needs {denied[1]}{where}. Grant it to your credentials"


@dataclass
class Report:
    """The result of one run of the checks.

    Attributes:
        place: Account, region and stack, as text.
        run: Id of the run: the prefix of its products, orders and users.
        started_at: Time of the start, ISO 8601.
        lines: The lines in sequence, each with the name of its check.
        figures: Measured figures, by name; None if one could not be measured.
        seconds: The duration of the run.
        finished: Whether all checks ran.
        left: Descriptions of products and dead letters that the run could not remove.
    """

    place: dict[str, Any]
    run: str
    started_at: str
    lines: list[tuple[str, Line]] = field(default_factory=list)
    figures: dict[str, float | None] = field(default_factory=dict)
    seconds: float = 0.0
    finished: bool = False
    left: list[str] = field(default_factory=list)

    def count(self, state: State) -> int:
        """Count the lines with this result."""
        return sum(line.state is state for _, line in self.lines)

    @property
    def good(self) -> bool:
        """Whether all checks ran, no line failed, and nothing was left behind."""
        return self.finished and not self.left and not self.count(State.FAILED)

    def as_json(self) -> dict[str, Any]:
        """The content of `.local/verify.json`."""
        return {
            **self.place,
            "run": self.run,
            "startedAt": self.started_at,
            "seconds": round(self.seconds, 1),
            "verdict": "passed" if self.good else "failed" if self.finished else "interrupted",
            "passed": self.count(State.PASSED),
            "failed": self.count(State.FAILED),
            "notHere": self.count(State.NOT_HERE),
            "figures": self.figures,
            "left": self.left,
            "lines": [
                {"check": check, "name": line.name, "state": line.state.value, "saw": line.saw}
                for check, line in self.lines
            ],
        }
