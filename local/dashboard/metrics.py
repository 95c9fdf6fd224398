"""Stores samples of metrics, and computes CloudWatch's statistics over them.

Pure: no I/O, no clock.

Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Statistics-definitions.html
"""

from __future__ import annotations

import math
import re
import statistics
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

# The longest time range that the dashboard shows.
RETENTION_SECONDS = 3 * 3600

# The dashboard ignores a run of traffic if another one has this many times its invocations.
_STRAY = 10


class DashboardError(Exception):
    """A dashboard uses an unsupported feature, which the message names."""


@dataclass(frozen=True, slots=True)
class Metric:
    """The identity of a metric on CloudWatch, where each set of dimensions is a separate metric."""

    namespace: str
    name: str
    dimensions: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Window:
    """A time range, divided into periods.

    Attributes:
        start: Unix seconds, inclusive; a multiple of the period.
        period: Seconds.
        count: Number of periods.
    """

    start: int
    period: int
    count: int

    @classmethod
    def covering(cls, start: int, end: int, period: int) -> Window:
        """Create the window whose periods cover the seconds from start to end, both inclusive."""
        first = start - start % period
        return cls(first, period, max(1, (end - first) // period + 1))

    @property
    def end(self) -> int:
        """The end of the window in Unix seconds, exclusive."""
        return self.start + self.period * self.count


@dataclass(frozen=True, slots=True)
class Traffic:
    """When the functions ran.

    Attributes:
        first: Unix seconds.
        last: Unix seconds, inclusive.
        earlier: Whether they also ran before that.
    """

    first: int
    last: int
    earlier: bool = False


@dataclass
class _Series:
    seconds: list[int] = field(default_factory=list)
    values: dict[int, list[float]] = field(default_factory=dict)

    def add(self, second: int, values: Sequence[float]) -> None:
        if second in self.values:
            self.values[second] += values
        else:
            insort(self.seconds, second)
            self.values[second] = list(values)

    def between(self, start: int, end: int) -> list[int]:
        return self.seconds[bisect_left(self.seconds, start) : bisect_left(self.seconds, end)]

    def forget_before(self, second: int) -> None:
        old = bisect_left(self.seconds, second)
        for gone in self.seconds[:old]:
            del self.values[gone]
        del self.seconds[:old]


class Samples:
    """All samples of the last three hours, by metric and second."""

    def __init__(self) -> None:
        self._series: dict[Metric, _Series] = {}
        self._traffic = _Series()

    def add(self, metric: Metric, second: int, values: Sequence[float]) -> None:
        """Add samples. They need not be sorted by time."""
        self._series.setdefault(metric, _Series()).add(second, values)

    def replace(self, metric: Metric, second: int, values: Sequence[float]) -> None:
        """Replace a metric's samples for one second."""
        series = self._series.setdefault(metric, _Series())
        series.add(second, ())
        series.values[second] = list(values)

    def mark_traffic(self, second: int) -> None:
        """Record that an invocation started or ended during a second."""
        self._traffic.add(second, [1])

    def forget_before(self, second: int) -> None:
        """Drop all samples that are older than this second."""
        for series in (*self._series.values(), self._traffic):
            series.forget_before(second)

    def buckets(self, metric: Metric, window: Window) -> list[list[float]]:
        """List the values of a metric in each period of a window. The list of a period without samples is empty."""
        found: list[list[float]] = [[] for _ in range(window.count)]
        series = self._series.get(metric)
        if series is not None:
            for second in series.between(window.start, window.end):
                found[(second - window.start) // window.period] += series.values[second]
        return found

    def latest_traffic(self, now: int, quiet: int, recent: int) -> Traffic | None:
        """Find the newest traffic.

        It begins with the newest run that is not stray. Runs are separated by pauses of `quiet` seconds. A stray run
        has fewer than a tenth as many invocations as the busiest run that ended at most `recent` seconds before the
        last invocation.
        """
        seconds = self._traffic.between(0, now + 1)
        if not seconds:
            return None
        runs = [[seconds[0]]]
        for second in seconds[1:]:
            if second - runs[-1][-1] < quiet:
                runs[-1].append(second)
            else:
                runs.append([second])
        last = seconds[-1]
        weights = {
            run[0]: sum(len(self._traffic.values[second]) for second in run)
            for run in runs
            if run[-1] >= last - recent
        }
        least = max(weights.values()) / _STRAY
        first = max(start for start, weight in weights.items() if weight >= least)
        return Traffic(first, last, earlier=seconds[0] < first)


def statistic(name: str, values: Sequence[float]) -> float | None:
    """Compute a statistic: Average, Sum, Minimum, Maximum, SampleCount, p0 to p100.

    A percentile between two samples is interpolated. Returns None if there are no samples.

    Raises:
        DashboardError: The statistic is not one of these.
    """
    percentile = re.fullmatch(r"p(\d{1,2}(?:\.\d+)?|100)", name)
    if percentile is None and name not in _STATISTICS:
        raise DashboardError(f"the statistic {name} is not supported here")
    if not values:
        return None
    if percentile is None:
        return float(_STATISTICS[name](values))
    ordered = sorted(values)
    position = (len(ordered) - 1) * float(percentile[1]) / 100
    below, above = ordered[math.floor(position)], ordered[math.ceil(position)]
    return below + (above - below) * (position % 1)


_STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "Average": statistics.fmean,
    "Sum": math.fsum,
    "Minimum": min,
    "Maximum": max,
    "SampleCount": len,
}
