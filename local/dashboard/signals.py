"""Alarms that are on, and orders of the last hour: from CloudWatch, or from the dashboard of the embedded AWS."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.invocation.telemetry import NAMESPACE
from inventory_orders.naming import stack_name
from local.dashboard.metrics import Window
from local.dashboard.service import Service, alarm_on, short_name
from operations.aws import Aws

Document = dict[str, Any]

_MINUTE = 60


class CloudWatch:
    """Alarms and metrics of a stack on an account. If they cannot be read, `problem` says why."""

    def __init__(self, stack: Callable[[], Aws]) -> None:
        self._stack = stack
        self._minute = 0
        self._orders: Document = {}

    def alarms(self) -> Document:
        """Return the alarms that are on, and the number of all alarms."""
        own = stack_name(self._stack().name)
        answer = self._ask("describe_alarms", AlarmNamePrefix=f"{own}-")
        # The names of a stage `tea-room` have this prefix, too.
        alarms = [
            alarm
            for alarm in answer.get("MetricAlarms", ())
            if alarm["AlarmName"].rpartition("-")[0] == own
        ]
        on = [
            alarm_on(short_name(a["AlarmName"]), a.get("AlarmDescription", ""))
            for a in alarms
            if a["StateValue"] == "ALARM"
        ]
        return answer if "problem" in answer else {"on": on, "count": len(alarms)}

    def orders(self, metrics: Mapping[str, str], window: Window) -> Document:
        """Add up metrics of orders per minute. They are read once a minute, because each request costs money."""
        if self._minute != window.end:
            self._orders, self._minute = self._read_orders(metrics, window), window.end
        return self._orders

    def _read_orders(self, metrics: Mapping[str, str], window: Window) -> Document:
        aws = self._stack()
        # With `monitoring: basic`, a stack has no dashboard, and its functions emit no metrics.
        if "DashboardName" not in aws.outputs:
            return dict.fromkeys(metrics)
        service = [{"Name": "service", "Value": aws.service_name}]
        of_service = {"Namespace": NAMESPACE, "Dimensions": service}
        stats = {
            key: {"Metric": {**of_service, "MetricName": name}, "Period": _MINUTE, "Stat": "Sum"}
            for key, name in metrics.items()
        }
        answer = self._ask(
            "get_metric_data",
            MetricDataQueries=[{"Id": key, "MetricStat": stat} for key, stat in stats.items()],
            StartTime=datetime.fromtimestamp(window.start, UTC),
            EndTime=datetime.fromtimestamp(window.end, UTC),
        )
        sums = {key: [0.0] * window.count for key in metrics}
        for result in answer.get("MetricDataResults", ()):
            for at, value in zip(result["Timestamps"], result["Values"], strict=True):
                sums[result["Id"]][int(at.timestamp() - window.start) // _MINUTE] = value
        return answer if "problem" in answer else {**sums}

    def _ask(self, operation: str, **request: Any) -> Document:
        # Not typed: the stubs of CloudWatch would be another dependency for two calls.
        client: Any = self._stack().client("cloudwatch")
        try:
            pages = client.get_paginator(operation).paginate(**request)
            answer: Document = pages.build_full_result()
        except (BotoCoreError, ClientError) as error:
            return {"problem": str(error)}
        return answer


Signals = CloudWatch | Service


def orders_of_last_hour(signals: Signals) -> Document:
    """Return how many orders were `placed` and `rejected` in each minute, or None if the stack does not measure them."""
    now = int(time.time())
    window = Window.covering(now - 59 * _MINUTE, now, _MINUTE)
    orders = {"placed": "OrdersPlaced", "rejected": "OrdersRejected"}
    return {"start": window.start, "seconds": _MINUTE, **signals.orders(orders, window)}
