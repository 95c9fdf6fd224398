"""Computes what each widget of a dashboard shows, from the dashboard's body and samples.

Pure: no I/O, no clock.

Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from markdown_it import MarkdownIt

from local.dashboard.expressions import Expression
from local.dashboard.metrics import DashboardError, Metric, Samples, Window, statistic

Unknown = Callable[[Metric], str | None]
"""Returns why a metric is not available on this machine; None if it is available."""

Drawn = Callable[[float], float | None]
"""Converts a value of a metric to the value in a chart."""

_OPTIONS = {"color", "expression", "id", "label", "period", "stat", "visible"}
_PROPERTIES = {
    *("annotations", "legend", "metrics", "period", "region", "setPeriodToTimeRange"),
    *("stacked", "stat", "title", "view", "yAxis"),
}
_markdown = MarkdownIt("commonmark", {"html": False})


@dataclass(frozen=True, slots=True)
class Line:
    """One metric or expression of a widget.

    Attributes:
        id: Name for use in expressions; may be empty.
        label: Text of the legend.
        color: Color from the body; None lets the page choose.
        visible: Whether the chart shows it. If not, only expressions use it.
        source: The metric with its statistic, or the expression.
    """

    id: str
    label: str
    color: str | None
    visible: bool
    source: tuple[Metric, str] | Expression


@dataclass(frozen=True, slots=True)
class _Values:
    points: Sequence[float | None] = ()
    overall: float | None = None
    unknown: str | None = None


def evaluate(
    widget: Mapping[str, Any], samples: Samples, window: Window, unknown: Unknown
) -> dict[str, Any]:
    """Compute the content of a widget of any type except `alarm`.

    A series has `points`, one per period (None where CloudWatch has no point either), and `overall`, the same statistic
    or expression over the whole window. A series that is not available here has the reason as `unknown` instead. A
    widget that cannot be drawn has the reason as `error`.
    """
    title = {"title": widget["properties"].get("title", "")}
    try:
        return title | _content(widget["type"], widget["properties"], samples, window, unknown)
    except DashboardError as error:
        return title | {"kind": "error", "error": str(error)}


def _content(
    kind: str, properties: Mapping[str, Any], samples: Samples, window: Window, unknown: Unknown
) -> dict[str, Any]:
    if kind == "text":
        return _text(properties["markdown"])
    if kind != "metric":
        raise DashboardError(f"widgets of the type {kind} are not supported here")
    _check_known("properties", properties, _PROPERTIES)
    series = _series(properties, samples, window, unknown)
    match properties.get("view", "timeSeries"):
        case "timeSeries":
            return {"kind": "graph", "series": series} | _graph(properties)
        case "singleValue" if properties.get("setPeriodToTimeRange"):
            return {"kind": "values", "series": series}
        case "singleValue":
            raise DashboardError("single values are supported only for the whole time range")
        case other:
            raise DashboardError(f"the view {other} is not supported here")


def _text(markdown: str) -> dict[str, Any]:
    """Split a section's text into a title, the line below it, and the rest, which the page hides at first."""
    title, _, rest = markdown.partition("\n")
    text, _, advice = rest.partition("\n")
    parts = {"html": _markdown.renderInline(text), "advice": _markdown.renderInline(advice)}
    return {"kind": "text", "title": title.lstrip("# ")} | parts


def _graph(properties: Mapping[str, Any]) -> dict[str, Any]:
    axis = properties.get("yAxis", {}).get("left", {})
    annotations = properties.get("annotations", {})
    _check_known("annotations", annotations, {"horizontal"})
    return {
        "stacked": properties.get("stacked", False),
        "unit": axis.get("label", ""),
        "least": axis.get("min"),
        "lines": [
            {"value": line["value"], "label": line.get("label", ""), "color": line.get("color")}
            for line in annotations.get("horizontal", [])
        ],
    }


def _series(
    properties: Mapping[str, Any], samples: Samples, window: Window, unknown: Unknown
) -> list[dict[str, Any]]:
    lines = read_lines(properties)
    found: dict[Line, _Values] = {}
    by_id: dict[str, _Values] = {}
    # Expressions may come before the metrics that they use.
    for line in sorted(lines, key=lambda line: isinstance(line.source, Expression)):
        if isinstance(line.source, Expression):
            found[line] = _calculated(line.source, by_id, window)
        else:
            found[line] = _measured(*line.source, samples, window, unknown)
        if line.id:
            by_id[line.id] = found[line]
    return [
        {"label": line.label, "color": line.color} | asdict(found[line])
        for line in lines
        if line.visible
    ]


def read_lines(properties: Mapping[str, Any]) -> list[Line]:
    """Read the metrics and expressions of a metric widget.

    Raises:
        DashboardError: The body uses something that is not supported here.
    """
    return [_line(entry, properties) for entry in properties.get("metrics", [])]


def drawings_of(lines: Iterable[Line], metric: Metric, stat: str) -> Iterator[tuple[str, Drawn]]:
    """Yield the label of each line that shows a metric, directly or in an expression, with a function to convert values."""
    lines = [*lines]
    for line in lines:
        if line.source != (metric, stat):
            continue
        if line.visible:
            yield line.label, float
        for other in lines:
            if isinstance(other.source, Expression) and other.source.ids == {line.id}:
                yield other.label, partial(_value, other.source, line.id)


def _value(expression: Expression, name: str, value: float) -> float | None:
    return expression.value({name: value})


def _line(entry: Sequence[Any], properties: Mapping[str, Any]) -> Line:
    *path, options = entry if isinstance(entry[-1], dict) else [*entry, {}]
    _check_known("options of a metric", options, _OPTIONS)
    source: tuple[Metric, str] | Expression
    if "expression" in options:
        source, name = Expression(options["expression"]), options["expression"]
    else:
        if "." in path or "..." in path or len(path) % 2:
            raise DashboardError(
                f"the metric {path} uses an abbreviation, which is not supported here"
            )
        namespace, name, *pairs = path
        dimensions = frozenset(zip(pairs[::2], pairs[1::2], strict=True))
        stat = options.get("stat", properties.get("stat", "Average"))
        source = (Metric(namespace, name, dimensions), stat)
    return Line(
        options.get("id", ""),
        options.get("label", name),
        options.get("color"),
        options.get("visible", True),
        source,
    )


def _measured(
    metric: Metric, stat: str, samples: Samples, window: Window, unknown: Unknown
) -> _Values:
    reason = unknown(metric)
    if reason is not None:
        return _Values(unknown=reason)
    buckets = samples.buckets(metric, window)
    everything = [value for bucket in buckets for value in bucket]
    return _Values([statistic(stat, bucket) for bucket in buckets], statistic(stat, everything))


def _calculated(expression: Expression, by_id: Mapping[str, _Values], window: Window) -> _Values:
    missing = expression.ids - by_id.keys()
    if missing:
        raise DashboardError(
            f"an expression refers to {', '.join(sorted(missing))}, which does not exist"
        )
    operands = {name: by_id[name] for name in expression.ids}
    reasons = sorted({operand.unknown for operand in operands.values() if operand.unknown})
    if reasons:
        return _Values(unknown="; ".join(reasons))
    points = [
        expression.value({name: operand.points[index] for name, operand in operands.items()})
        for index in range(window.count)
    ]
    overall = expression.value({name: operand.overall for name, operand in operands.items()})
    return _Values(points, overall)


def _check_known(what: str, found: Mapping[str, Any], known: set[str]) -> None:
    others = found.keys() - known
    if others:
        raise DashboardError(f"{what} not supported here: {', '.join(sorted(others))}")
