"""The handlers' metrics, read from their logs in CloudWatch's embedded metric format.

No local AWS turns these log lines into metrics, so this module reads them from the log group. On a very busy machine,
the embedded AWS writes the last lines of an invocation only when the same worker runs again, so these metrics may be
late.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from inventory_orders.invocation.telemetry import NAMESPACE

from .aws import Aws
from .logs import Tail


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of one metric in one log line."""

    timestamp: int
    name: str
    dimensions: frozenset[tuple[str, str]]
    values: tuple[float, ...]


def read_samples(aws: Aws, log_group: str, since: int) -> Iterator[Sample]:
    """Read the metrics that a log group has received since a time (Unix milliseconds)."""
    return parse(event.message for event in Tail(aws.outputs[log_group], since).read(aws))


def parse(lines: Iterable[str]) -> Iterator[Sample]:
    """Find the metrics in log lines."""
    for line in lines:
        if '"_aws"' not in line:
            continue
        try:
            document: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        for directive in document["_aws"]["CloudWatchMetrics"]:
            if directive["Namespace"] != NAMESPACE:
                continue
            for names in directive["Dimensions"]:
                dimensions = frozenset((name, document[name]) for name in names)
                for metric in directive["Metrics"]:
                    value = document[metric["Name"]]
                    values = value if isinstance(value, list) else [value]
                    yield Sample(
                        document["_aws"]["Timestamp"], metric["Name"], dimensions, tuple(values)
                    )


def values_of(samples: Iterable[Sample], name: str, **dimensions: str) -> list[float]:
    """Collect the values of a metric whose dimensions are `service` and exactly the given ones."""
    wanted = frozenset(dimensions.items())
    return [
        value
        for sample in samples
        if sample.name == name
        and frozenset(pair for pair in sample.dimensions if pair[0] != "service") == wanted
        for value in sample.values
    ]
