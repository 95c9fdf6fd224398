"""The dashboard: statistics, metric math, widgets, alarms, and log reading."""

import math
import statistics
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.dashboard.alarms import State, judge
from local.dashboard.body import evaluate
from local.dashboard.collector import Collector, Invocation, InvocationReader, at_once, unknown
from local.dashboard.expressions import Expression
from local.dashboard.metrics import DashboardError, Metric, Samples, Traffic, Window, statistic
from local.dashboard.service import RANGES, Service, window_of
from operations import queues
from operations.aws import Aws
from operations.errors import UserError
from operations.logs import Event, Tail
from operations.queues import Depth

NAMESPACE = "InventoryOrders"
SERVICE = ("service", "s")
PLACED = Metric(NAMESPACE, "OrdersPlaced", frozenset({SERVICE}))
numbers = st.floats(-1e6, 1e6)


@given(st.lists(numbers, min_size=2))
def test_statistics_are_those_of_the_standard_library(values):
    assert statistic("Sum", values) == pytest.approx(sum(values), abs=1e-3)
    assert statistic("Average", values) == pytest.approx(statistics.fmean(values))
    assert statistic("Minimum", values) == min(values)
    assert statistic("Maximum", values) == max(values)
    assert statistic("SampleCount", values) == len(values)
    hundredths = statistics.quantiles(values, n=100, method="inclusive")
    for percent in (1, 50, 95, 99):
        expected = hundredths[percent - 1]
        assert statistic(f"p{percent}", values) == pytest.approx(expected, abs=1e-6)
    assert statistic("p100", values) == max(values)


@given(numbers, numbers, numbers)
def test_metric_math_is_arithmetic(a, b, c):
    values = {"a": a, "b": b, "c": c}
    assert Expression("100 - 100 * a").value(values) == 100 - 100 * a
    assert Expression(" -(a + b) / 2.5").value(values) == -(a + b) / 2.5
    quotient = Expression("(a + b) / c").value(values)
    assert quotient == ((a + b) / c if c else None)


def test_an_expression_with_missing_values_has_no_point():
    expression = Expression("(products + orders) / answered")
    assert expression.ids == {"products", "orders", "answered"}
    assert expression.value({"products": 1, "orders": None, "answered": 2}) is None
    assert expression.value({"products": 1, "orders": 2, "answered": 0}) is None


def graph(*metrics, **properties):
    return {"type": "metric", "properties": {"title": "t", "metrics": list(metrics), **properties}}


def placed(**options):
    return [NAMESPACE, "OrdersPlaced", "service", "s", options]


def test_a_graph_has_a_point_for_each_period_with_data_and_none_elsewhere():
    samples = Samples()
    for second, values in ((100, [1, 2]), (104, [3]), (105, [4]), (111, [9])):
        samples.add(PLACED, second, values)
    drawn = evaluate(graph(placed(stat="Sum")), samples, Window(100, 5, 2), unknown)
    (series,) = drawn["series"]
    assert series["points"] == [6, 4]
    assert series["overall"] == 10, "values outside the window do not count"
    (average,) = evaluate(graph(placed()), samples, Window(95, 5, 2), unknown)["series"]
    assert average["points"] == [None, 2], "without a statistic, CloudWatch uses the average"


def test_expressions_are_evaluated_point_by_point_and_their_operands_stay_hidden():
    samples = Samples()
    samples.add(PLACED, 100, [0, 1])
    samples.add(PLACED, 102, [1])
    widget = graph(
        [{"expression": "100 * rate", "label": "of attempts"}],
        placed(id="rate", visible=False),
    )
    (series,) = evaluate(widget, samples, Window(100, 1, 3), unknown)["series"]
    assert series["label"] == "of attempts"
    assert series["points"] == [50, None, 100]
    assert series["overall"] == pytest.approx(200 / 3)


def test_an_unavailable_metric_has_a_reason_instead_of_zero():
    units = ["AWS/DynamoDB", "ConsumedWriteCapacityUnits", "TableName", "t"]
    widget = graph(
        [{"expression": "units / placed"}],
        [*units, {"id": "units", "visible": False}],
        placed(id="placed", stat="Sum"),
    )
    capacity, orders = evaluate(widget, Samples(), Window(0, 1, 2), unknown)["series"]
    assert "no metrics of DynamoDB" in capacity["unknown"]
    assert (list(capacity["points"]), capacity["overall"]) == ([], None)
    assert orders["unknown"] is None


@pytest.mark.parametrize(
    ("widget", "named"),
    [
        ({"type": "log", "properties": {"query": "fields"}}, "log"),
        (graph(placed(), view="pie"), "pie"),
        (graph(placed(), view="singleValue"), "single values"),
        (graph(placed(), liveData=True), "liveData"),
        (graph(placed(yAxis="right")), "yAxis"),
        (graph(["...", {}]), "abbreviation"),
        (graph(placed(stat="tm90")), "tm90"),
        (graph([{"expression": "a + b"}]), "a, b"),
        (graph([{"expression": "RATE(a)"}]), "RATE"),
        (graph([{"expression": "a ** b"}]), "the expression"),
        (graph([{"expression": "(" * 500 + "a" + ")" * 500}]), "the expression"),
        (graph(placed(), annotations={"vertical": []}), "vertical"),
    ],
)
def test_an_unsupported_widget_shows_the_error_in_its_place(widget, named):
    drawn = evaluate(widget, Samples(), Window(0, 1, 1), unknown)
    assert drawn["kind"] == "error"
    assert named in drawn["error"]


def test_markdown_is_rendered_and_its_html_is_escaped():
    markdown = "## A?\n**b** <script>alert(1)</script>\n`c`\nd"
    text = {"type": "text", "properties": {"markdown": markdown}}
    shown = evaluate(text, Samples(), Window(0, 1, 1), unknown)
    assert shown == {
        "kind": "text",
        "title": "A?",
        "html": "<strong>b</strong> &lt;script&gt;alert(1)&lt;/script&gt;",
        "advice": "<code>c</code>\nd",
    }


def alarm(**changes):
    return {
        "AlarmName": "a",
        "Namespace": NAMESPACE,
        "MetricName": "OrdersPlaced",
        "Dimensions": [{"Name": "service", "Value": "s"}],
        "Statistic": "Average",
        "Period": 60,
        "EvaluationPeriods": 3,
        "DatapointsToAlarm": 3,
        "Threshold": 0.5,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
    } | changes


def test_an_alarm_fires_when_enough_of_its_newest_periods_breach():
    samples = Samples()
    for second in (960, 1020):
        samples.add(PLACED, second, [1, 0.5])
    assert judge(alarm(), samples, 1100, unknown).state is State.OK, "missing data does not breach"
    samples.add(PLACED, 1100, [1])
    judgement = judge(alarm(), samples, 1100, unknown)
    assert judgement.state is State.ALARM
    assert judgement.reason == (
        "Average: 1 in the last 1 min, above 0.5 in 3 of 3 periods, on from 3."
    )
    assert judge(alarm(), samples, 1161, unknown).state is State.OK, "the data has left the window"
    of_three = alarm(DatapointsToAlarm=1)
    fired = [t for t in range(900, 1400) if judge(of_three, samples, t, unknown).state == "ALARM"]
    assert fired == list(range(960, 1100 + 3 * 60)), (
        "the alarm is on while one of three periods breaches"
    )
    assert judge(alarm(Threshold=1), samples, 1100, unknown).state is State.OK
    assert (
        judge(alarm(EvaluationPeriods=1, DatapointsToAlarm=1), samples, 1100, unknown).state
        is State.ALARM
    )


def test_an_alarm_on_an_unavailable_metric_is_unknown():
    throttles = alarm(Namespace="AWS/Lambda", MetricName="Throttles")
    judgement = judge(throttles, Samples(), 1000, unknown)
    assert judgement.state is State.UNKNOWN
    assert judgement.unknown == "the embedded AWS does not throttle functions"
    for other in (
        {"TreatMissingData": "missing"},
        {"TreatMissingData": "ignore"},
        {"ComparisonOperator": "LessThanLowerThreshold"},
    ):
        with pytest.raises(DashboardError, match="not supported here"):
            judge(alarm(**other), Samples(), 1000, unknown)


def test_old_samples_are_forgotten():
    samples = Samples()
    for second in range(100):
        samples.add(PLACED, second, [1])
        samples.mark_traffic(second)
    samples.forget_before(90)
    assert sum(map(len, samples.buckets(PLACED, Window(0, 100, 1)))) == 10
    assert samples.latest_traffic(1000, 60, 1200) == Traffic(90, 99)


PAUSES = [(10, 10, 1), (200, 200, 1), (259, 259, 1), (300, 300, 1)]
DEMO = (1000, 1010, 20)


@pytest.mark.parametrize(
    ("runs", "now", "expected"),
    [
        ([], 100, None),
        (PAUSES, 400, Traffic(200, 300, earlier=True)),
        (PAUSES, 259, Traffic(200, 259, earlier=True)),
        # One or two stray orders do not hide the demo for a while, but another demo does.
        ([DEMO, (1100, 1100, 1)], 2000, Traffic(1000, 1100)),
        ([DEMO, (1100, 1100, 1), (1900, 1901, 1)], 2000, Traffic(1000, 1901)),
        ([DEMO, (1100, 1110, 20)], 2000, Traffic(1100, 1110, earlier=True)),
        ([DEMO, (2211, 2211, 1)], 9999, Traffic(2211, 2211, earlier=True)),
    ],
)
def test_the_latest_traffic_ends_at_a_long_pause(runs, now, expected):
    """A run has a first second, a last second and invocations per second."""
    samples = Samples()
    for first, last, invocations in runs:
        for second in range(first, last + 1):
            for _ in range(invocations):
                samples.mark_traffic(second)
    assert samples.latest_traffic(now, 60, 1200) == expected


@given(st.sampled_from(["latest", *RANGES]), st.integers(10**9, 2 * 10**9), st.integers(0, 10_000))
def test_every_range_ends_with_the_traffic_and_has_few_points(span, now, length):
    window = window_of(span, now, Traffic(now - length, now))
    assert window.start % window.period == 0
    assert window.count <= 302
    assert window.end > now
    if span == "latest":
        assert window.start <= now - length


def log(*lines, stream="s", timestamp=10_000):
    return [Event(stream, timestamp, line) for line in lines]


def test_invocations_are_read_from_start_to_report():
    reader = InvocationReader()
    report = "REPORT RequestId: r\tDuration: 12.5 ms\tBilled Duration: 13 ms"
    runs = {
        ("{}",): False,
        ("Traceback (most recent call last):", "  File"): True,
        (): False,
    }
    for lines, failed in runs.items():
        events = log("START RequestId: r Version: 1", *lines, "END RequestId: r", report)
        # Lines of another stream are in between.
        found = [reader.read(e) for event in events for e in (event, Event("t", 1, "x"))]
        assert [i for i in found if i] == [Invocation(10_000, 12.5, failed)], lines
    quoted = log("START RequestId: r", '{"message": "Traceback (most recent call last)"}', report)
    assert [reader.read(event) for event in quoted][-1] == Invocation(10_000, 12.5, failed=False)


def test_concurrency_counts_overlapping_invocations():
    runs = [Invocation(1500, 500, False), Invocation(1900, 300, False), Invocation(1499, 0, False)]
    assert at_once(runs, 1) == 2
    assert at_once([*runs, Invocation(3000, 2000, False)], 1) == 3
    assert at_once(runs, 2) == 0


class FakeLogs:
    """A fake client that truncates answers as the embedded AWS does."""

    def __init__(self, most):
        self.events, self.most, self.calls = [], most, 0

    def get_paginator(self, _):
        return self

    def paginate(self, *, logGroupName, startTime):
        self.calls += 1
        found = sorted((e for e in self.events if e[1] >= startTime), key=lambda e: e[1])
        yield {
            "events": [
                {"logStreamName": stream, "timestamp": at, "message": text}
                for stream, at, text in found[: self.most]
            ]
        }


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1500)), max_size=60),
    st.integers(0, 60),
)
def test_a_tail_reads_each_event_once_in_any_order_of_arrival(found, first):
    logs = FakeLogs(10_000)
    aws = SimpleNamespace(logs=logs)
    tail = Tail("group", 0)
    events = [(stream, 10_000 + at, "same text") for stream, at in found]
    logs.events = events[:first]
    read = [*tail.read(aws)]
    logs.events = events
    read += tail.read(aws)
    assert [*tail.read(aws)] == []
    assert sorted((e.stream, e.timestamp) for e in read) == sorted(e[:2] for e in events)


def test_a_tail_continues_after_a_truncated_response(monkeypatch):
    monkeypatch.setattr("operations.logs._MAX_EVENTS", 100)
    logs = FakeLogs(100)
    logs.events = [("s", 1000 + 40 * n, f"{n}") for n in range(950)]
    read = [event.message for event in Tail("group", 0).read(SimpleNamespace(logs=logs))]
    assert read == [f"{n}" for n in range(950)]
    assert logs.calls >= math.ceil(950 / 100)


def test_queues_count_what_waits_and_dead_letters_even_while_they_are_being_read(monkeypatch):
    without_consumer = (*queues.DEAD_LETTERS, queues.UNDELIVERABLE_EVENTS)
    depths = dict.fromkeys(queues.QUEUES, Depth(4, 1)) | dict.fromkeys(
        without_consumer, Depth(0, 3)
    )
    aws = SimpleNamespace(outputs={name: f"https://sqs.example/1/{name}" for name in depths})
    monkeypatch.setattr("local.dashboard.collector.depth", lambda _, queue: depths[queue])
    monkeypatch.setattr(Collector, "_oldest", lambda *_: 30.0)
    now = int(time.time())
    collector = Collector(aws, "http://127.0.0.1:1", now)
    collector.collect()

    def sampled(queue, name):
        metric = Metric("AWS/SQS", name, frozenset({("QueueName", queue)}))
        (bucket,) = collector.samples.buckets(metric, Window(now, 60, 1))
        return set(bucket)

    for queue in depths:
        waiting = {3} if queue in without_consumer else {4}
        assert sampled(queue, "ApproximateNumberOfMessagesVisible") == waiting, queue
    for queue in queues.QUEUES:
        assert sampled(queue, "ApproximateAgeOfOldestMessage") == {30.0}, queue


def served(widget, samples, **changes):
    """Make a service that shows one widget and has one alarm."""
    service = Service("InventoryOrders-dev", "http://127.0.0.1:1")
    service._widgets = [widget]
    service._alarms = {"arn": alarm(AlarmArn="arn", AlarmName="s-RateOfOrders", **changes)}
    service._collector = SimpleNamespace(samples=samples)
    return service


@pytest.mark.parametrize(
    ("expression", "line", "changes", "newest", "beyond"),
    [
        ("100 * rate", 50, {}, "75 %", "above 50 %"),
        ("100 - 100 * rate", 50, {}, "25 %", "below 50 %"),
        ("100 * rate", 50, {"ComparisonOperator": "LessThanThreshold"}, "75 %", "below 50 %"),
    ],
)
def test_a_limits_alarm_explains_its_state_in_the_graphs_units(
    expression, line, changes, newest, beyond
):
    now, samples = int(time.time()), Samples()
    samples.add(PLACED, now, [1, 1, 1, 0])
    drawn = graph(
        [{"expression": expression, "label": "rate of orders"}],
        placed(id="rate", stat="Average", visible=False),
        yAxis={"left": {"label": "%"}},
        annotations={"horizontal": [{"value": line}, {"value": 20}]},
    )
    (shown,) = served(drawn, samples, **changes).snapshot("5m")["widgets"]
    limit, guide = shown["lines"]
    assert guide["alarms"] == []
    (found,) = limit["alarms"]
    assert (found["name"], found["state"]) == ("Rate Of Orders", "OK")
    is_breaching = not changes
    assert found["isBeyond"] is is_breaching, "the curve is above the limit before the alarm is on"
    words = f"Average: {newest} in the last 1 min, {beyond} in {int(is_breaching)} of 3 periods"
    assert found["reason"] == f"{words}, on from 3."


def test_a_limit_does_not_belong_to_an_alarm_on_another_statistic_or_number():
    drawn = graph(placed(stat="Average"), annotations={"horizontal": [{"value": 0.5}]})
    for changes in ({"Statistic": "Sum"}, {"Threshold": 0.6}, {"MetricName": "OrdersRejected"}):
        (shown,) = served(drawn, Samples(), **changes).snapshot("5m")["widgets"]
        assert shown["lines"][0]["alarms"] == []


def test_the_page_shows_read_errors(monkeypatch):
    def refuse(_):
        raise UserError("there is no stack")

    monkeypatch.setattr(Aws, "of_stack", refuse)
    service = Service("InventoryOrders-dev", "http://127.0.0.1:1")
    service.poll()
    shown = service.snapshot("latest")
    assert (shown["problem"], shown["ready"]) == ("UserError: there is no stack", False)


def test_an_alarm_that_ignores_missing_data_keeps_its_state():
    keeps = alarm(EvaluationPeriods=1, DatapointsToAlarm=1, TreatMissingData="ignore")
    samples = Samples()
    assert judge(keeps, samples, 1000, unknown).state is State.UNKNOWN, (
        "the alarm never had a state"
    )
    samples.add(PLACED, 1000, [1])
    for now in (1000, 1060, 4600):
        assert judge(keeps, samples, now, unknown).state is State.ALARM
    samples.add(PLACED, 5000, [0])
    judgement = judge(keeps, samples, 8000, unknown)
    assert judgement.state is State.OK
    assert judgement.reason == "Average: 0 in the last 1 min with data, on when above 0.5."


def test_an_alarm_on_silence_is_off_while_there_is_data_and_unknown_before_the_first():
    silence = alarm(
        Threshold=1, ComparisonOperator="LessThanThreshold", TreatMissingData="breaching"
    )
    samples = Samples()
    assert judge(silence, samples, 1000, unknown).state is State.UNKNOWN
    samples.add(PLACED, 1000, [1])
    states = {now: judge(silence, samples, now, unknown).state for now in range(1000, 2000)}
    assert [now for now, state in states.items() if state is State.OK] == list(
        range(1000, 1000 + 3 * 60)
    )
    assert states[1999] is State.ALARM
