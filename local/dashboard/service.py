"""Keeps the dashboard of the deployed stack up to date, and computes snapshots for a time range."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from math import isclose
from operator import gt, lt
from threading import Lock
from typing import Any

import boto3

from inventory_orders.invocation.telemetry import NAMESPACE
from local import ROOT
from local.dashboard.alarms import Judgement, State, judge, metric_of, side_of, statistic_of
from local.dashboard.body import Drawn, Line, drawings_of, evaluate, read_lines
from local.dashboard.collector import Collector, unknown
from local.dashboard.metrics import DashboardError, Metric, Traffic, Window
from operations.aws import Aws

# For each range, the seconds shown and the seconds per point. The last entry is the default range of CloudWatch.
RANGES = {"5m": (300, 1), "15m": (900, 5), "1h": (3600, 30), "3h": (10800, 60)}
LATEST = "latest"

# A pause of this length separates two runs of traffic.
_QUIET_SECONDS = 60
# If a busier run ended less than this many seconds before a few orders, both are shown, at 5 seconds per point.
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
        """Read new data. An error is shown on the page, and the next poll tries again."""
        try:
            if time.monotonic() - self._read_at > _REFRESH_SECONDS:
                self._read_definitions()
            if self._collector is not None:
                with self._lock:
                    self._collector.collect()
            self._problem = ""
        # Catch every error, because the page has to show it and keep running.
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"

    @property
    def aws(self) -> Aws:
        """The deployed stack.

        Raises:
            UserError: The stack cannot be read.
        """
        return self._aws or Aws.of_stack(self._stack_name)

    def _read_definitions(self) -> None:
        """Read the definitions again, because the stack may be deployed at any time."""
        aws = Aws.of_stack(self._stack_name)
        # Untyped, because the stubs of CloudWatch would be another dependency for three calls.
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
                "problem": self._problem,
                "ready": bool(self._widgets),
                "now": now,
                "traffic": traffic is not None,
                "earlier": span == LATEST and traffic is not None and traffic.earlier,
                "start": window.start,
                "period": window.period,
                "count": window.count,
                "alarms": [
                    self._alarm(arn, now)
                    for widget in self._widgets
                    if widget["type"] == "alarm"
                    for arn in widget["properties"]["alarms"]
                ],
                "widgets": [
                    self._widget(self._collector, widget, window, now)
                    for widget in self._widgets
                    if widget["type"] != "alarm" and self._collector is not None
                ],
            }

    def alarms(self) -> dict[str, Any]:
        """Evaluate all alarms, and return the ones that are on."""
        with self._lock:
            judged = [self._alarm(arn, int(time.time())) for arn in self._alarms]
        on = (each for each in judged if each["state"] == State.ALARM)
        shown = [alarm_on(one["name"], one["description"]) for one in on]
        return {"on": shown, "count": len(judged)}

    def orders(self, metrics: Mapping[str, str], window: Window) -> dict[str, list[float]]:
        """Add up metrics of orders in each period. The caller chooses a name for each sum."""
        service = frozenset({("service", self.aws.service_name)})
        with self._lock:
            if self._collector is None:
                return {key: [0.0] * window.count for key in metrics}
            samples = self._collector.samples
            return {
                key: [*map(sum, samples.buckets(Metric(NAMESPACE, name, service), window))]
                for key, name in metrics.items()
            }

    def _widget(
        self, collector: Collector, widget: dict[str, Any], window: Window, now: int
    ) -> dict[str, Any]:
        content = evaluate(widget, collector.samples, window, unknown)
        if content.get("lines"):
            lines = read_lines(widget["properties"])
            for limit in content["lines"]:
                limit["alarms"] = [*self._limits(limit["value"], lines, content, now)]
        return content

    def _limits(
        self, limit: float, lines: Sequence[Line], content: dict[str, Any], now: int
    ) -> Iterator[dict[str, Any]]:
        """Evaluate the alarms whose threshold a graph shows, in the graph's unit.

        `isBeyond` says whether the graph has values beyond the threshold. The alarm may still be off, because it evaluates other periods.
        """
        values = {one["label"]: [*one["points"], one["overall"]] for one in content["series"]}
        for definition in self._alarms.values():
            metric, statistic = metric_of(definition), statistic_of(definition)
            for label, drawn in drawings_of(lines, metric, statistic):
                if not isclose(drawn(definition["Threshold"]) or 0, limit):
                    continue
                compare = gt if side_of(definition, drawn) == "above" else lt
                is_beyond = any(v is not None and compare(v, limit) for v in values[label])
                alarm = self._alarm(definition["AlarmArn"], now, drawn, content["unit"])
                yield alarm | {"isBeyond": is_beyond}

    def _alarm(self, arn: str, now: int, drawn: Drawn = float, unit: str = "") -> dict[str, Any]:
        definition = self._alarms.get(arn)
        if definition is None or self._collector is None:
            definition = {"AlarmName": arn}
            reason = "The dashboard refers to it, but it is not deployed."
            judgement = Judgement(State.UNKNOWN, reason)
        else:
            try:
                judgement = judge(definition, self._collector.samples, now, unknown, drawn, unit)
            except DashboardError as error:
                judgement = Judgement(State.UNKNOWN, str(error))
        return {
            "name": short_name(definition["AlarmName"]),
            "description": definition.get("AlarmDescription", ""),
            **asdict(judgement),
        }


def short_name(alarm_name: str) -> str:
    """Shorten the name of an alarm to its title, such as `Order Queue Dead Letters`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", alarm_name.rpartition("-")[2])


@cache
def _runbook() -> list[str]:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "runbook.md").read_text("utf-8"), re.M)
    return [name for heading in headings for name in heading.split(", ")]


def alarm_on(name: str, description: str) -> dict[str, str]:
    """Describe an alarm that is on: its short name, the first step to take, and its heading in the runbook."""
    title = name.replace(" ", "")
    heading = next((each for each in _runbook() if title.endswith(each)), "")
    return {"name": name, "step": first_step(description), "runbook": heading}


def first_step(description: str) -> str:
    """Extract the first step to take from the description of an alarm, where it follows the alarm's meaning."""
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
