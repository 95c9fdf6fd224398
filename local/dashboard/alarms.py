"""Evaluates the state of alarms from their definitions and samples.

Pure: no I/O, no clock.

Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/AlarmThatSendsEmail.html#alarm-evaluation
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from local.dashboard.body import Drawn, Unknown
from local.dashboard.metrics import (
    RETENTION_SECONDS,
    DashboardError,
    Metric,
    Samples,
    Window,
    statistic,
)

_COMPARISONS = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


class State(StrEnum):
    """The state of an alarm."""

    OK = "OK"
    ALARM = "ALARM"
    UNKNOWN = "UNKNOWN"
    """The metric is not available on this machine, or the alarm keeps an unknown state."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of evaluating an alarm.

    Attributes:
        state: The alarm's state.
        reason: An explanation of this state for the user.
        unknown: Why its metric is not available on this machine, or None if it is available.
    """

    state: State
    reason: str
    unknown: str | None = None


def judge(
    definition: Mapping[str, Any],
    samples: Samples,
    now: int,
    unknown: Unknown,
    drawn: Drawn = float,
    unit: str = "",
) -> Judgement:
    """Evaluate an alarm over its newest periods, the last of which ends now.

    Args:
        definition: The alarm, from DescribeAlarms.
        samples: All samples.
        now: Unix seconds.
        unknown: Returns why a metric is not available here.
        drawn: Converts a value of the metric to the unit in which a chart shows it.
        unit: The name of that unit.

    Raises:
        DashboardError: This kind of alarm is not supported here.
    """
    _check_supported(definition)
    metric = metric_of(definition)
    if (reason := unknown(metric)) is not None:
        return Judgement(State.UNKNOWN, f"Not measured on this machine: {reason}.", reason)
    points = _newest_points(definition, metric, samples, now)
    if not points:
        return Judgement(
            State.UNKNOWN, "There is no data, so it keeps its state, which is unknown."
        )
    if_missing = definition["TreatMissingData"] == "breaching"
    ever = Window(now + 1 - RETENTION_SECONDS, RETENTION_SECONDS, 1)
    if if_missing and not any(samples.buckets(metric, ever)):
        return Judgement(State.UNKNOWN, "There is no data so far.")
    compare, threshold = _COMPARISONS[definition["ComparisonOperator"]], definition["Threshold"]
    breaching = sum(if_missing if point is None else compare(point, threshold) for point in points)
    needed = definition.get("DatapointsToAlarm") or definition["EvaluationPeriods"]
    state = State.ALARM if breaching >= needed else State.OK
    newest = "no data" if points[-1] is None else _shown(drawn(points[-1]), unit)
    beyond = f"{side_of(definition, drawn)} {_shown(drawn(threshold), unit)}"
    count = f"{beyond} in {breaching} of {len(points)} periods, on from {needed}"
    condition = count if definition["EvaluationPeriods"] > 1 else f"on when {beyond}"
    return Judgement(state, f"{_in_words(definition, newest)}, {condition}.")


def metric_of(definition: Mapping[str, Any]) -> Metric:
    """Return the metric that an alarm watches."""
    return Metric(
        definition["Namespace"],
        definition["MetricName"],
        frozenset((entry["Name"], entry["Value"]) for entry in definition["Dimensions"]),
    )


def statistic_of(definition: Mapping[str, Any]) -> str:
    """Return the statistic that an alarm compares with its threshold."""
    name: str = definition.get("Statistic") or definition["ExtendedStatistic"]
    return name


def side_of(definition: Mapping[str, Any], drawn: Drawn = float) -> str:
    """Return whether a chart shows unhealthy values `above` or `below` the threshold."""
    is_above = definition["ComparisonOperator"].startswith("Greater")
    return "above" if is_above == ((drawn(1) or 0) > (drawn(0) or 0)) else "below"


def _check_supported(definition: Mapping[str, Any]) -> None:
    missing = definition.get("TreatMissingData", "missing")
    if (
        (missing not in ("notBreaching", "breaching") and not _keeps_its_state(definition))
        or definition["ComparisonOperator"] not in _COMPARISONS
        or "MetricName" not in definition
    ):
        raise DashboardError(
            f"the alarm {definition['AlarmName']} is of a kind that is not supported here"
        )


def _keeps_its_state(definition: Mapping[str, Any]) -> bool:
    """Whether an alarm keeps its state when there is no data.

    Only alarms that evaluate one period can do so here. With several periods, CloudWatch applies further rules.
    """
    return definition.get("TreatMissingData") == "ignore" and definition["EvaluationPeriods"] == 1


def _newest_points(
    definition: Mapping[str, Any], metric: Metric, samples: Samples, now: int
) -> Sequence[float | None]:
    """Find the values that an alarm evaluates. An alarm that keeps its state evaluates only the newest period with data."""
    period, count = definition["Period"], definition["EvaluationPeriods"]
    keeps = _keeps_its_state(definition)
    looked_at = RETENTION_SECONDS // period if keeps else count
    window = Window(now + 1 - period * looked_at, period, looked_at)
    stat = statistic_of(definition)
    points = [statistic(stat, bucket) for bucket in samples.buckets(metric, window)]
    return [point for point in points if point is not None][-1:] if keeps else points


def _in_words(definition: Mapping[str, Any], newest: str) -> str:
    period = definition["Period"]
    length = f"{period} s" if period < 60 else f"{period // 60} min"
    length += " with data" if _keeps_its_state(definition) else ""
    return f"{statistic_of(definition)}: {newest} in the last {length}"


def _shown(value: float | None, unit: str) -> str:
    # Show four significant digits, and never an exponent.
    return "none" if value is None else f"{float(f'{value:.4g}'):,.12g} {unit}".rstrip()
