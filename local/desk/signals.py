"""Alarms that are on, and orders of the last hour: from CloudWatch, or from the dashboard of the embedded AWS."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.invocation.telemetry import NAMESPACE
from local.dashboard.metrics import Metric, Window
from local.dashboard.service import Service, short_name
from operations.aws import Aws

Document = dict[str, Any]

_MINUTE = 60
_MINUTES = 60
_METRICS = {"placed": "OrdersPlaced", "rejected": "OrdersRejected"}
# The most that DescribeAlarms returns at once.
_MOST_ALARMS = 100


class Signals(Protocol):
    """What a stack's monitoring shows. A `problem` says in words why it shows nothing."""

    def alarms(self) -> Document:
        """Return the alarms that are `on`, each with its first step, and how many there are."""

    def orders(self) -> Document:
        """Return the orders `placed` and `rejected` in each minute of the last hour; null if the stack does not measure them."""


class OfService:
    """The signals of the embedded AWS."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def alarms(self) -> Document:
        """Return the alarms that are on."""
        alarms = self._service.alarms()
        on = [each for each in alarms if each["state"] == "ALARM"]
        return _alarms(((one["name"], one["description"]) for one in on), len(alarms))

    def orders(self) -> Document:
        """Return the orders of the last hour."""
        window = _last_hour()
        service = frozenset({("service", _service_of(self._service.aws))})
        return _orders(
            window,
            {
                key: self._service.sums(Metric(NAMESPACE, name, service), window)
                for key, name in _METRICS.items()
            },
        )


class OfCloudWatch:
    """The signals of a stack on an account."""

    def __init__(self, stack: Callable[[], Aws]) -> None:
        self._stack = stack
        self._minute = 0
        self._orders: Document = {}

    def alarms(self) -> Document:
        """Return the alarms that are on."""
        aws = self._stack()
        try:
            found = _client(aws).describe_alarms(
                AlarmNamePrefix=f"{_stack_name(aws)}-", MaxRecords=_MOST_ALARMS
            )["MetricAlarms"]
        except (BotoCoreError, ClientError) as error:
            return {"problem": str(error)}
        on = [alarm for alarm in found if alarm["StateValue"] == "ALARM"]
        titles = ((short_name(a["AlarmName"]), a.get("AlarmDescription", "")) for a in on)
        return _alarms(titles, len(found))

    def orders(self) -> Document:
        """Return the orders of the last hour. There is a new value each minute, and reading it costs money."""
        window = _last_hour()
        if self._minute != window.end:
            self._orders = self._read_orders(window)
            self._minute = window.end if "problem" not in self._orders else 0
        return self._orders

    def _read_orders(self, window: Window) -> Document:
        aws = self._stack()
        # Without its dashboard, a stack has the metrics of a few alarms alone: `monitoring: basic`.
        if "DashboardName" not in aws.outputs:
            return _orders(window, dict.fromkeys(_METRICS))
        dimensions = [{"Name": "service", "Value": _service_of(aws)}]
        queries = [
            {
                "Id": key,
                "MetricStat": {
                    "Metric": {
                        "Namespace": NAMESPACE,
                        "MetricName": name,
                        "Dimensions": dimensions,
                    },
                    "Period": _MINUTE,
                    "Stat": "Sum",
                },
            }
            for key, name in _METRICS.items()
        ]
        try:
            answer = _client(aws).get_metric_data(
                MetricDataQueries=queries,
                StartTime=datetime.fromtimestamp(window.start, UTC),
                EndTime=datetime.fromtimestamp(window.end, UTC),
            )
        except (BotoCoreError, ClientError) as error:
            return {"problem": str(error)}
        sums = {key: [0.0] * window.count for key in _METRICS}
        for result in answer["MetricDataResults"]:
            for at, value in zip(result["Timestamps"], result["Values"], strict=True):
                sums[result["Id"]][int(at.timestamp() - window.start) // _MINUTE] = value
        return _orders(window, sums)


def _alarms(on: Iterable[tuple[str, str]], count: int) -> Document:
    """Shorten the descriptions to their first steps, which follow after the meaning and before a link."""
    steps = ((name, text.rpartition("First: ")[2].partition(" More: ")[0]) for name, text in on)
    return {"on": [{"name": name, "step": step} for name, step in steps], "count": count}


def _orders(window: Window, sums: Mapping[str, Sequence[float] | None]) -> Document:
    return {"start": window.start, "seconds": window.period, **sums}


def _last_hour() -> Window:
    now = int(time.time())
    return Window.covering(now - (_MINUTES - 1) * _MINUTE, now, _MINUTE)


def _client(aws: Aws) -> Any:
    # Not typed: the stubs of CloudWatch would be another dependency for two calls.
    return aws.session.client("cloudwatch")


def _stack_name(aws: Aws) -> str:
    return aws.stack_id.split("/")[1]


def _service_of(aws: Aws) -> str:
    """The dimension of the handlers' metrics: infra/settings.py names it so."""
    return f"inventory-orders-{_stack_name(aws).partition('-')[2]}"
