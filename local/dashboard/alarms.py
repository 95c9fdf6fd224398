"""Evaluates alarms: the state of an alarm, from its definition and samples.

Pure: no I/O, no clock.

Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/AlarmThatSendsEmail.html#alarm-evaluation
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from local.dashboard.body import Unknown
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
    """The metric is not available on this machine, or the alarm keeps a state of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of evaluating an alarm.

    Attributes:
        state: The alarm's state.
        reason: Why it is in this state, for a person.
    """

    state: State
    reason: str


def judge(definition: Mapping[str, Any], samples: Samples, now: int, unknown: Unknown) -> Judgement:
    """Evaluate an alarm over its newest periods. The last of them ends now.

    Args:
        definition: The alarm, from DescribeAlarms.
        samples: All samples.
        now: Unix seconds.
        unknown: Says why a metric is not available here.

    Raises:
        DashboardError: This kind of alarm is not supported here.
    """
    _check_supported(definition)
    metric = Metric(
        definition["Namespace"],
        definition["MetricName"],
        frozenset((entry["Name"], entry["Value"]) for entry in definition["Dimensions"]),
    )
    if (reason := unknown(metric)) is not None:
        return Judgement(State.UNKNOWN, f"Not known on this machine: {reason}.")
    points = _newest_points(definition, metric, samples, now)
    if not points:
        return Judgement(State.UNKNOWN, "There is no data, so it keeps a state that is not known.")
    if_missing = definition["TreatMissingData"] == "breaching"
    ever = Window(now + 1 - RETENTION_SECONDS, RETENTION_SECONDS, 1)
    if if_missing and not any(samples.buckets(metric, ever)):
        return Judgement(State.UNKNOWN, "There is no data so far.")
    compare, threshold = _COMPARISONS[definition["ComparisonOperator"]], definition["Threshold"]
    breaching = sum(if_missing if point is None else compare(point, threshold) for point in points)
    needed = definition.get("DatapointsToAlarm") or definition["EvaluationPeriods"]
    state = State.ALARM if breaching >= needed else State.OK
    return Judgement(state, _in_words(definition, points[-1], needed))


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
    """Whether an alarm keeps its state without data.

    Over several periods, CloudWatch goes further back for data by rules that no alarm here needs.
    """
    return definition.get("TreatMissingData") == "ignore" and definition["EvaluationPeriods"] == 1


def _statistic_of(definition: Mapping[str, Any]) -> str:
    name: str = definition.get("Statistic") or definition["ExtendedStatistic"]
    return name


def _newest_points(
    definition: Mapping[str, Any], metric: Metric, samples: Samples, now: int
) -> Sequence[float | None]:
    """The points of the periods that count; if the alarm keeps its state, of the last one with data, if any."""
    period, count = definition["Period"], definition["EvaluationPeriods"]
    keeps = _keeps_its_state(definition)
    looked_at = RETENTION_SECONDS // period if keeps else count
    window = Window(now + 1 - period * looked_at, period, looked_at)
    stat = _statistic_of(definition)
    points = [statistic(stat, bucket) for bucket in samples.buckets(metric, window)]
    return [point for point in points if point is not None][-1:] if keeps else points


def _in_words(definition: Mapping[str, Any], newest: float | None, needed: int) -> str:
    period = definition["Period"]
    length = f"{period} s" if period < 60 else f"{period // 60} min"
    length += " with data" if _keeps_its_state(definition) else ""
    return (
        f"{_statistic_of(definition)} over the last {length}: "
        f"{'no data' if newest is None else f'{newest:,.4g}'}; alarm when {definition['ComparisonOperator']} "
        f"{definition['Threshold']:,g} for {needed} of {definition['EvaluationPeriods']} periods."
    )
