"""Alarms that are on, and orders of the last hour: from CloudWatch, or from the dashboard of the embedded AWS."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.invocation.telemetry import NAMESPACE
from local.dashboard.metrics import Window
from local.dashboard.service import Service, first_step, short_name
from operations.aws import Aws

_MINUTE = 60
# The most that DescribeAlarms returns at once.
_MOST_ALARMS = 100


class CloudWatch:
    """Alarms and metrics of a stack on an account. A `problem` says why there is nothing."""

    def __init__(self, stack: Callable[[], Aws]) -> None:
        self._stack = stack
        self._minute = 0
        self._orders: dict[str, Any] = {}

    def alarms(self) -> dict[str, Any]:
        """Return the alarms that are on, each with its first step, and how many there are."""
        aws = self._stack()
        try:
            alarms = _client(aws).describe_alarms(
                AlarmNamePrefix=f"{aws.stack_name}-", MaxRecords=_MOST_ALARMS
            )["MetricAlarms"]
        except (BotoCoreError, ClientError) as error:
            return {"problem": str(error)}
        on = (alarm for alarm in alarms if alarm["StateValue"] == "ALARM")
        steps = ((one["AlarmName"], one.get("AlarmDescription", "")) for one in on)
        return {
            "on": [{"name": short_name(name), "step": first_step(text)} for name, text in steps],
            "count": len(alarms),
        }

    def orders(self, metrics: Mapping[str, str], window: Window) -> dict[str, Any]:
        """Sum up metrics of orders per minute. There is a new value each minute, and each request costs money."""
        if self._minute != window.end:
            self._orders = self._read_orders(self._stack(), metrics, window)
            self._minute = window.end
        return self._orders

    def _read_orders(self, aws: Aws, metrics: Mapping[str, str], window: Window) -> dict[str, Any]:
        # Without its dashboard, a stack has the metrics of its few alarms alone: `monitoring: basic`.
        if "DashboardName" not in aws.outputs:
            return dict.fromkeys(metrics)
        service = [{"Name": "service", "Value": aws.service_name}]
        of_service = {"Namespace": NAMESPACE, "Dimensions": service}
        stats = {
            key: {"Metric": {**of_service, "MetricName": name}, "Period": _MINUTE, "Stat": "Sum"}
            for key, name in metrics.items()
        }
        try:
            results = _client(aws).get_metric_data(
                MetricDataQueries=[{"Id": key, "MetricStat": stat} for key, stat in stats.items()],
                StartTime=datetime.fromtimestamp(window.start, UTC),
                EndTime=datetime.fromtimestamp(window.end, UTC),
            )["MetricDataResults"]
        except (BotoCoreError, ClientError) as error:
            return {"problem": str(error)}
        sums = {key: [0.0] * window.count for key in metrics}
        for result in results:
            for at, value in zip(result["Timestamps"], result["Values"], strict=True):
                sums[result["Id"]][int(at.timestamp() - window.start) // _MINUTE] = value
        return dict(sums)


Signals = CloudWatch | Service


def orders_of_last_hour(signals: Signals) -> dict[str, Any]:
    """Return the orders `placed` and `rejected` in each minute; null if the stack does not measure them."""
    now = int(time.time())
    window = Window.covering(now - 59 * _MINUTE, now, _MINUTE)
    orders = {"placed": "OrdersPlaced", "rejected": "OrdersRejected"}
    return {"start": window.start, "seconds": _MINUTE, **signals.orders(orders, window)}


def _client(aws: Aws) -> Any:
    # Not typed: the stubs of CloudWatch would be another dependency for two calls.
    return aws.session.client("cloudwatch")
