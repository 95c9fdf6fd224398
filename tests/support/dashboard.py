"""The dashboard of the template, with values as if a busy stack had just run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from local.dashboard.body import read_lines
from local.dashboard.collector import unknown
from local.dashboard.metrics import Metric, Samples
from local.dashboard.service import Service
from tests.support.template import alarms_of, resolve, synthesise, widgets_of

SECONDS = 60

# Values by name, for each second. A rate has a 1 for each affected attempt.
_VALUES: Mapping[str, Sequence[float]] = {
    "LoansLost": [1, 1, 0],
    "OrdersFromLanes": [1, 0],
    "VersionConflict": [0],
    "RetriesExhausted": [0],
    "TransactionConflict": [0],
    "Errors": [0],
    "CorruptPage": [0],
}


class DashboardOfTemplate(Service):
    """Draws the stack's dashboard without a stack.

    All metrics that this machine can measure have values in the latest minute.
    """

    def __init__(self) -> None:
        super().__init__("InventoryOrders-dev", "http://127.0.0.1:1")

    def _read_definitions(self) -> None:
        if self._widgets:
            return
        template = synthesise("dev")
        self._widgets = widgets_of(template)
        self._alarms = {name: _deployed(name, a) for name, a in alarms_of(template).items()}
        samples: Any = SimpleNamespace(samples=_busy_minute(self._widgets), collect=lambda: None)
        self._collector = samples

    def snapshot(self, span: str) -> dict[str, Any]:
        """Compute the content of the page."""
        self.poll()
        return super().snapshot(span)


def _deployed(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Return an alarm in the format of DescribeAlarms. Its widget refers to it by its logical name."""
    dimensions = [one | {"Value": resolve(one["Value"])} for one in properties["Dimensions"]]
    return properties | {"AlarmArn": name, "Dimensions": dimensions}


def _metrics(widgets: list[dict[str, Any]]) -> Iterator[Metric]:
    for widget in widgets:
        for line in read_lines(widget["properties"]):
            if isinstance(line.source, tuple):
                yield line.source[0]


def _busy_minute(widgets: list[dict[str, Any]]) -> Samples:
    now, samples = int(time.time()), Samples()
    for second in range(now - SECONDS, now + 1):
        samples.mark_traffic(second)
        for metric in {one for one in _metrics(widgets) if unknown(one) is None}:
            samples.add(metric, second, _values(metric))
    return samples


def _values(metric: Metric) -> Sequence[float]:
    queue = dict(metric.dimensions).get("QueueName", "")
    is_healthy = "DeadLetter" in queue or "Undeliverable" in queue
    if is_healthy and "OrderDeadLetter" not in queue:
        return [0]
    return _VALUES.get(metric.name, [7])
