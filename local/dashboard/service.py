"""Keeps the dashboard of the deployed stack up to date, and makes snapshots of it for a time range."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from threading import Lock
from typing import Any

import boto3

from inventory_orders.invocation.telemetry import NAMESPACE
from local.dashboard.alarms import State, judge
from local.dashboard.body import evaluate
from local.dashboard.collector import Collector, unknown
from local.dashboard.metrics import DashboardError, Metric, Traffic, Window
from operations.aws import Aws

# Seconds shown, and seconds per point. The last entry is the default range of CloudWatch.
RANGES = {"5m": (300, 1), "15m": (900, 5), "1h": (3600, 30), "3h": (10800, 60)}
LATEST = "latest"

# A pause of this length separates one run of traffic from the next.
_QUIET_SECONDS = 60
# A few orders do not make a busier run vanish that ended this much earlier: both still fit at 5 seconds a point.
_RECENT_SECONDS = 1200
_MARGIN_SECONDS = 2
_MIN_SECONDS = 20
_MAX_POINTS = 300

_REFRESH_SECONDS = 5.0


class Service:
    """Reads the deployed dashboard and alarms, collects samples, and evaluates the definitions with them."""

    def __init__(self, stack_name: str, endpoint: str) -> None:
        self._stack_name = stack_name
        self._endpoint = endpoint
        self._lock = Lock()
        self._collector: Collector | None = None
        self._aws: Aws | None = None
        self._name = stack_name
        self._widgets: list[dict[str, Any]] = []
        self._alarms: dict[str, dict[str, Any]] = {}
        self._read_at = float("-inf")
        self._problem = ""

    def poll(self) -> None:
        """Read what is new. An error is shown on the page, and the next poll tries again."""
        try:
            if time.monotonic() - self._read_at > _REFRESH_SECONDS:
                self._read_definitions()
            if self._collector is not None:
                with self._lock:
                    self._collector.collect()
            self._problem = ""
        # Any error: the page has to show it and keep running.
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"

    @property
    def aws(self) -> Aws:
        """The deployed stack.

        Raises:
            UserError: It cannot be read.
        """
        return self._aws or Aws.of_stack(self._stack_name)

    def _read_definitions(self) -> None:
        """Read the definitions again, because the stack may be deployed at any time."""
        aws = Aws.of_stack(self._stack_name)
        # Not typed: the stubs of CloudWatch would be another dependency for three calls.
        cloudwatch: Any = boto3.client("cloudwatch")
        name = aws.outputs["DashboardName"]
        body = json.loads(cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])
        alarms = {
            alarm["AlarmArn"]: alarm
            for page in cloudwatch.get_paginator("describe_alarms").paginate()
            for alarm in page["MetricAlarms"]
        }
        with self._lock:
            if self._aws is None or aws.outputs != self._aws.outputs:
                self._collector = Collector(aws, self._endpoint, time.time())
                self._aws = aws
            self._name, self._widgets, self._alarms = name, body["widgets"], alarms
        self._read_at = time.monotonic()

    def snapshot(self, span: str) -> dict[str, Any]:
        """Compute everything that the page shows.

        Args:
            span: A key of RANGES, or LATEST for the newest traffic, at the finest resolution that fits.
        """
        now = int(time.time())
        with self._lock:
            traffic = None
            if self._collector is not None:
                traffic = self._collector.samples.latest_traffic(
                    now, _QUIET_SECONDS, _RECENT_SECONDS
                )
            window = window_of(span, now, traffic)
            return {
                "name": self._name,
                "endpoint": self._endpoint,
                "layout": self._layout,
                "problem": self._problem,
                "ready": bool(self._widgets),
                "now": now,
                "traffic": traffic is not None,
                "earlier": span == LATEST and traffic is not None and traffic.earlier,
                "start": window.start,
                "period": window.period,
                "count": window.count,
                "widgets": [self._widget(widget, window, now) for widget in self._widgets],
            }

    def alarms(self) -> dict[str, Any]:
        """Judge all alarms, and return those that are on."""
        with self._lock:
            judged = [self._alarm(arn, int(time.time())) for arn in self._alarms]
        on = [each for each in judged if each["state"] == State.ALARM]
        return {
            "on": [{"name": one["name"], "step": first_step(one["description"])} for one in on],
            "count": len(judged),
        }

    def orders(self, metrics: Mapping[str, str], window: Window) -> dict[str, list[float]]:
        """Sum up metrics of orders over each period, by a name of the caller's own."""
        service = frozenset({("service", self.aws.service_name)})
        with self._lock:
            if self._collector is None:
                return {key: [0.0] * window.count for key in metrics}
            samples = self._collector.samples
            return {
                key: [*map(sum, samples.buckets(Metric(NAMESPACE, name, service), window))]
                for key, name in metrics.items()
            }

    @property
    def _layout(self) -> str:
        """A digest that changes when the page has to be built again."""
        text = json.dumps([self._widgets, sorted(self._alarms)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _widget(self, widget: dict[str, Any], window: Window, now: int) -> dict[str, Any]:
        place = {name: widget[name] for name in ("x", "y", "width", "height")}
        if self._collector is None:
            return place
        if widget["type"] != "alarm":
            return place | evaluate(widget, self._collector.samples, window, unknown)
        title = widget["properties"].get("title", "")
        alarms = [self._alarm(arn, now) for arn in widget["properties"]["alarms"]]
        return place | {"kind": "alarms", "title": title, "alarms": alarms}

    def _alarm(self, arn: str, now: int) -> dict[str, Any]:
        definition = self._alarms.get(arn)
        if definition is None or self._collector is None:
            reason = "the dashboard refers to it, but it is not deployed"
            return {"name": arn, "state": State.UNKNOWN, "reason": reason, "description": ""}
        try:
            judgement = judge(definition, self._collector.samples, now, unknown)
            state, reason = judgement.state, judgement.reason
        except DashboardError as error:
            state, reason = State.UNKNOWN, str(error)
        return {
            "name": short_name(definition["AlarmName"]),
            "state": state,
            "reason": reason,
            "description": definition.get("AlarmDescription", ""),
        }


def short_name(alarm_name: str) -> str:
    """Shorten the name of an alarm to its title, in words: `Order Queue Dead Letters`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", alarm_name.rpartition("-")[2])


def first_step(description: str) -> str:
    """Find the first step in the description of an alarm: it follows after the meaning, and before a link."""
    step = description.rpartition("First: ")[2].partition(" More: ")[0]
    return step[:1].upper() + step[1:]


def window_of(span: str, now: int, traffic: Traffic | None) -> Window:
    """Choose the periods to show for a range. The latest traffic is shown in full, with a margin."""
    if span in RANGES:
        seconds, period = RANGES[span]
        return Window.covering(now - seconds + period, now, period)
    if traffic is None:
        return Window.covering(now - _MIN_SECONDS, now, 1)
    start, last = traffic.first - _MARGIN_SECONDS, min(now, traffic.last + _MARGIN_SECONDS)
    start = min(start, last - _MIN_SECONDS)
    period = next(p for p in (1, 5, 30, 60) if (last - start) / p <= _MAX_POINTS)
    return Window.covering(start, last, period)
