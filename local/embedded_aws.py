"""The program of the embedded AWS: ministack, which by itself rejects a stack with metric math in its alarms.

It runs in an environment without this project, so it imports nothing from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain_alarm(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Turn an alarm on `FILL(metric, 0)` into an equivalent alarm on the metric itself, which ignores gaps.

    Raises:
        ValueError: The alarm has other metric math.
    """
    plain = dict(properties)
    if "Metrics" in plain:
        formula, measured = sorted(plain.pop("Metrics"), key=lambda query: "MetricStat" in query)
        if formula["Expression"] != f"FILL({measured['Id']}, 0)":
            raise ValueError(f"no plain alarm is equivalent to {formula['Expression']}")
        stat = measured["MetricStat"]
        plain |= {**stat["Metric"], "Period": stat["Period"], "Statistic": stat["Stat"]}
    return plain


def main() -> None:
    """Run ministack, whose alarms become plain ones."""
    from ministack.app import main as serve  # noqa: PLC0415 - not installed where tests import this
    from ministack.services.cloudformation import provisioners  # noqa: PLC0415

    stored = provisioners._cw_metric_alarm_record
    provisioners._cw_metric_alarm_record = lambda name, properties: stored(
        name, plain_alarm(properties)
    )
    serve()


if __name__ == "__main__":
    main()
