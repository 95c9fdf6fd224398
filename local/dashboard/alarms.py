"""Evaluates alarms: the state of an alarm, from its definition and samples.

Pure: no I/O, no clock.

Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/AlarmThatSendsEmail.html#alarm-evaluation
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
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
    period, count = definition["Period"], definition["EvaluationPeriods"]
    missing = definition.get("TreatMissingData", "missing")
    # Over several periods, CloudWatch goes further back for data by rules that no alarm here needs.
    keeps_its_state = missing == "ignore" and count == 1
    compare = _COMPARISONS.get(definition["ComparisonOperator"])
    judged = missing in ("notBreaching", "breaching") or keeps_its_state
    if not judged or compare is None or "MetricName" not in definition:
        raise DashboardError(
            f"the alarm {definition['AlarmName']} is of a kind that is not supported here"
        )
    metric = Metric(
        definition["Namespace"],
        definition["MetricName"],
        frozenset((entry["Name"], entry["Value"]) for entry in definition["Dimensions"]),
    )
    reason = unknown(metric)
    if reason is not None:
        return Judgement(State.UNKNOWN, f"Not known on this machine: {reason}.")
    stat = definition.get("Statistic") or definition["ExtendedStatistic"]
    looked_at = RETENTION_SECONDS // period if keeps_its_state else count
    window = Window(now + 1 - period * looked_at, period, looked_at)
    points = [statistic(stat, bucket) for bucket in samples.buckets(metric, window)]
    if keeps_its_state:
        reported = [point for point in points if point is not None]
        if not reported:
            return Judgement(
                State.UNKNOWN, "There is no data, so it keeps a state that is not known."
            )
        points = [reported[-1]]
    never = Window(now + 1 - RETENTION_SECONDS, RETENTION_SECONDS, 1)
    if missing == "breaching" and not any(samples.buckets(metric, never)):
        return Judgement(State.UNKNOWN, "There is no data so far.")
    threshold = definition["Threshold"]
    breaching = [
        p for p in points if (missing == "breaching" if p is None else compare(p, threshold))
    ]
    needed = definition.get("DatapointsToAlarm") or count
    state = State.ALARM if len(breaching) >= needed else State.OK
    newest = "no data" if points[-1] is None else f"{points[-1]:,.4g}"
    length = f"{period} s" if period < 60 else f"{period // 60} min"
    length += " with data" if keeps_its_state else ""
    return Judgement(
        state,
        f"{stat} over the last {length}: {newest}; alarm when {definition['ComparisonOperator']} {threshold:,g} "
        f"for {needed} of {count} periods.",
    )
