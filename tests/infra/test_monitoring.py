"""The dashboard and the alarms use metrics that exist, and every alarm can fire."""

import json
import re

import pytest

from docs_generator import costs
from infra import watched
from infra.api import LOGGED
from inventory_orders.clock import SystemClock
from inventory_orders.domain.rejection import REASONS_OF_ORDERS
from inventory_orders.invocation import telemetry
from inventory_orders.publishing.publisher import Bus, Refusal
from inventory_orders.store.tables import Table
from local import ROOT
from local.dashboard.alarms import State, judge, side_of, statistic_of
from local.dashboard.body import drawings_of, evaluate, read_lines
from local.dashboard.metrics import Metric, Samples, Window
from local.sample_orders import catalogue
from operations import emf
from testing.schedules.in_turn.shop import open_shop
from testing.world.events import order_body, sqs_event
from testing.world.streams import change, order_row
from tests.support.template import SMALL, alarms_of, resolve, resources, synthesise, widgets_of

SERVICE = "inventory-orders-dev"
NOW = 1_790_000_000
TEA = "tea-earl-grey"

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html
# https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html
# https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-metrics.html
AWS_METRICS = {
    ("AWS/SQS", "QueueName"): "ApproximateAgeOfOldestMessage ApproximateNumberOfMessagesVisible",
    (
        "AWS/DynamoDB",
        "TableName",
    ): "ConditionalCheckFailedRequests ConsumedWriteCapacityUnits ReadThrottleEvents "
    "WriteThrottleEvents TransactionConflict",
    ("AWS/DynamoDB", "GlobalSecondaryIndexName TableName"): "ConditionalCheckFailedRequests "
    "ConsumedWriteCapacityUnits ReadThrottleEvents WriteThrottleEvents",
    (
        "AWS/Lambda",
        "FunctionName",
    ): "Errors Throttles Duration ConcurrentExecutions Invocations IteratorAge "
    "RecursiveInvocationsDropped",
    ("AWS/ApiGateway", "ApiId"): "4xx 5xx Count IntegrationLatency Latency",
}
"""The metrics of AWS services by namespace and dimensions."""


@pytest.fixture
def shop():
    with open_shop(catalogue()) as shop:
        yield shop


@pytest.fixture(scope="module")
def template():
    return synthesise("dev")


@pytest.fixture(scope="module")
def widgets(template):
    return widgets_of(template)


def metrics_of(widgets):
    """List all metrics that the widgets draw, as (namespace, name, dimensions)."""
    found = []
    for widget in widgets:
        for entry in widget["properties"].get("metrics", []):
            if isinstance(entry[0], dict):
                continue
            *path, _ = entry if isinstance(entry[-1], dict) else [*entry, {}]
            namespace, name, *dimensions = path
            found.append(
                (namespace, name, dict(zip(dimensions[::2], dimensions[1::2], strict=True)))
            )
    return found


def metric_of_alarm(properties):
    dimensions = {d["Name"]: resolve(d["Value"]) for d in properties["Dimensions"]}
    return properties["Namespace"], properties["MetricName"], dimensions


@pytest.fixture(scope="module")
def emitted():
    """List the metrics with their dimensions. tests/unit/test_codes.py compares the names with the code."""
    service = ("service", SERVICE)
    reasons = {
        ("OrdersRejected", frozenset({service, ("reason", reason)})) for reason in REASONS_OF_ORDERS
    }
    return {(name, frozenset({service})) for name in telemetry.METRICS} | reasons


def test_the_ends_of_orders_and_refused_events_are_counted(shop, capsys, monkeypatch):
    for order_id in ("returned", "cancelled", "expired"):
        shop.invoke("place_orders", order_body(order_id, {TEA: 1}) | {"holdSeconds": 60})
    came_back = {"stepId": "r", "items": [{"productId": TEA, "quantity": 1}], "restock": True}
    for action, order_id, more in (
        ("confirm", "returned", {}),
        ("fulfil", "returned", {}),
        ("return", "returned", came_back),
        ("cancel", "cancelled", {}),
    ):
        shop.invoke("change_orders", {"action": action, "orderId": order_id, **more})
    shop.edit(Table.ORDERS, "expired", expiresAt={"S": "2026-01-01T01:00:00.000000+00:00"})
    shop.invoke("change_orders", sqs_event({"orderId": "expired"}, queue="ExpiryQueue"))
    put, refused = Bus.put, [Refusal("ThrottlingException", "slow down")]

    def refusing_once(bus, entries):
        return [refused.pop()] if refused else put(bus, entries)

    monkeypatch.setattr(Bus, "put", refusing_once)
    monkeypatch.setattr(SystemClock, "sleep", lambda *_: None)
    shop.invoke("publish_events", {"Records": [change(None, order_row())]})
    names = {sample.name for sample in emf.parse(capsys.readouterr().out.splitlines())}
    ends = {
        f"Orders{end}" for end in ("Confirmed", "Fulfilled", "Cancelled", "Expired", "Returned")
    }
    assert ends | {"EventsRefused"} <= names


def test_the_service_emits_every_metric_that_is_watched_and_no_others(template, widgets, emitted):
    named = metrics_of(widgets) + [metric_of_alarm(a) for a in alarms_of(template).values()]
    ours = {
        (name, frozenset(dimensions.items()))
        for namespace, name, dimensions in named
        if namespace == emf.NAMESPACE
    }
    assert len(ours) > 15
    assert ours - emitted == set(), "the dimensions must be exactly the same"
    shown = {name for namespace, name, _ in metrics_of(widgets) if namespace == emf.NAMESPACE}
    assert {name for name, _ in emitted} - shown == set()


def test_every_metric_of_aws_exists_with_these_dimensions(template, widgets):
    named = metrics_of(widgets) + [metric_of_alarm(a) for a in alarms_of(template).values()]
    theirs = [entry for entry in named if entry[0] != emf.NAMESPACE]
    assert theirs
    for namespace, name, dimensions in theirs:
        existing = AWS_METRICS[namespace, " ".join(sorted(dimensions))]
        assert name in existing.split(), (namespace, name, dimensions)


def test_every_drawn_limit_matches_its_alarms_and_names_their_periods(template, widgets):
    """Where a limit has no alarm, the widget says so. Every threshold that a graph can show is drawn."""
    marked = set()
    for widget in widgets:
        properties = widget["properties"]
        marks = properties.get("annotations", {}).get("horizontal", [])
        drawn = {mark["value"]: [] for mark in marks}
        lines = read_lines(properties)
        for logical_id, alarm in alarms_of(template).items():
            namespace, name, dimensions = metric_of_alarm(alarm)
            metric = Metric(namespace, name, frozenset(dimensions.items()))
            for _, draw in drawings_of(lines, metric, statistic_of(alarm)):
                if alarm["Threshold"] == 0:
                    continue
                value = pytest.approx(draw(alarm["Threshold"]))
                assert list(drawn) == [value], f"{properties['title']} does not draw {logical_id}"
                count, needed = alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"]
                many = f"for {count}" if needed == count else f"in {needed} of {count}"
                drawn[marks[0]["value"]].append(f"{many} periods of {alarm['Period'] // 60} min")
                side = side_of(alarm, draw)
                assert marks[0]["label"].startswith(f"alarm {side} {marks[0]['value']:,g} ")
        for mark, periods in zip(marks, drawn.values(), strict=True):
            marked.add(properties["title"])
            assert all(each in mark["label"] for each in periods)
            assert bool(periods) != ("(no alarm)" in mark["label"]), mark
            assert mark["label"].count("periods") == len(set(periods))
    assert len(marked) == 7


def test_every_line_can_be_seen_on_light_and_on_dark_cards(widgets):
    style = (ROOT / "local" / "desk" / "page" / "page.css").read_text("utf-8")
    (cards,) = re.findall(r"--card: light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", style)
    colors = {
        watched.RED,
        *watched.PALETTE,
        *re.findall(r'"color": "(#[0-9a-f]{6})"', json.dumps(widgets)),
    }
    assert len(colors) == 10
    faint = {c for c in colors for card in cards if contrast(c, card) < 3}
    assert faint == set()


def contrast(*colors):
    """Compute the contrast ratio of two colours: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio"""
    shares = [[int(c[at : at + 2], 16) / 255 for at in (1, 3, 5)] for c in colors]
    linear = [
        [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in c] for c in shares
    ]
    dark, light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in linear)
    return (light + 0.05) / (dark + 0.05)


def test_the_dashboard_shows_all_reasons_for_which_orders_are_rejected(widgets):
    shown = {dimensions.get("reason") for _, _, dimensions in metrics_of(widgets)} - {None}
    assert shown == {*REASONS_OF_ORDERS}


def test_the_write_units_of_an_order_include_the_index_and_lanes(widgets):
    (capacity,) = [w for w in widgets if w["properties"].get("title") == "Capacity"]
    units = {"TablesProducts": 2, "TablesOrders": 2, "TablesAllotments": 4, SERVICE: 1}
    units |= {"byUser": 1, "byStatus": 1}
    samples = Samples()
    for namespace, name, dimensions in metrics_of([capacity]):
        of = dimensions.get("GlobalSecondaryIndexName") or next(iter(dimensions.values()))
        of = of[:-8] if of.startswith("Tables") else of
        samples.add(Metric(namespace, name, frozenset(dimensions.items())), NOW, [units[of]])
    drawn = evaluate(capacity, samples, Window(NOW, 60, 1), lambda _: None)["series"]
    points = {series["label"]: series["points"][0] for series in drawn}
    assert points.pop("for lanes") == 4
    assert sum(points.values()) == costs.KINDS[0].write_units == 6


def test_an_access_log_entry_has_the_size_that_the_costs_assume():
    # Values have the usual length; "-" stands for a missing value.
    values = {"requestId": "JKJaXmPLvHcESHA=", "requestTime": "10/Mar/2026:06:13:40 +0000"}
    values |= {"routeKey": "GET /products/{productId}", "status": "200", "responseLength": "180"}
    values |= {"responseLatency": "14", "integrationLatency": "11"}
    line = json.dumps({name: values.get(name, "-") for name in LOGGED})
    assert len(line) == pytest.approx(costs.ACCESS_LOG_BYTES, rel=0.15)


def judged(properties, samples, now=NOW):
    """Return the state of one of the template's alarms for samples of (second, value), as the local dashboard does."""
    namespace, name, dimensions = metric_of_alarm(properties)
    held = Samples()
    for second, value in samples:
        held.add(Metric(namespace, name, frozenset(dimensions.items())), second, [value])
    named = [{"Name": name, "Value": value} for name, value in dimensions.items()]
    definition = properties | {"AlarmName": "a", "Dimensions": named}
    return judge(definition, held, now, lambda _: None).state


def in_periods(properties, periods):
    """Make samples from lists of values, one list for each period. The last period ends now."""
    ends = range(NOW - properties["Period"] * (len(periods) - 1), NOW + 1, properties["Period"])
    return [(end, value) for end, values in zip(ends, periods, strict=True) for value in values]


# The values of a metric, by period, on a good day and on a bad one. No alarm counts a success, such as a replay.
GOOD_AND_BAD = {
    "ApproximateNumberOfMessagesVisible": ([0], [1]),
    "ApproximateAgeOfOldestMessage": ([900], [1500]),
    "MessagesDeadLettered": ([0], [0, 1]),
    "TimeSinceFirstReceive": ([0, 900], [0, 1500]),
    "VersionConflict": ([0] * 97 + [1] * 3, [0] * 9 + [1]),
    "RetriesExhausted": ([0] * 200 + [1], [0] * 20 + [1]),
    "LoansLost": ([0] * 9 + [1], [0, 0, 1]),
    "CorruptPage": ([], [1]),
    "IteratorAge": ([2_000], [400_000]),
    "Errors": ([0], [1]),
    "Throttles": ([0], [1]),
    "RecursiveInvocationsDropped": ([], [1]),
    "5xx": ([0] * 97 + [1] * 3, [0] * 9 + [1]),
    "ReadThrottleEvents": ([], [1]),
    "WriteThrottleEvents": ([], [1]),
    "Invocations": ([1], [0]),
}


def test_every_alarm_fires_on_its_condition_and_not_under_healthy_load(template):
    alarms = alarms_of(template)
    assert len(alarms) == 7 * 2 + 6 + 4 + 9 * 3 + 1 + 1 + 8 * 2 + 5
    for logical_id, properties in alarms.items():
        good, bad = GOOD_AND_BAD[properties["MetricName"]]
        assert judged(properties, in_periods(properties, [bad] * 5)) is State.ALARM, logical_id
        assert judged(properties, in_periods(properties, [good] * 5)) is State.OK, logical_id
        assert judged(properties, []) is not State.ALARM, (
            f"{logical_id}: missing data must not alarm"
        )


def test_callers_without_an_answer_alarm_after_three_minutes_and_not_before(template):
    (properties,) = (a for a in alarms_of(template).values() if a["MetricName"] == "5xx")
    (api,) = resources(template, "AWS::ApiGatewayV2::Api")
    assert metric_of_alarm(properties) == ("AWS/ApiGateway", "5xx", {"ApiId": api})
    failing, well = [0] * 9 + [1], [0] * 10
    for minutes, state in (
        ([failing] * 3, State.ALARM),
        ([well, failing, failing], State.OK),
        ([failing, well, failing], State.OK),
        ([failing, [], failing], State.OK),
    ):
        assert judged(properties, in_periods(properties, minutes)) is state, minutes


def test_only_alarms_on_dead_letters_stay_on_without_data(template):
    """SQS stops reporting on a quiet queue although the dead letter is still there."""
    outlasting = set()
    for logical_id, properties in alarms_of(template).items():
        _, bad = GOOD_AND_BAD[properties["MetricName"]]
        if judged(properties, in_periods(properties, [bad] * 5 + [[]] * 30)) is State.ALARM:
            if properties["MetricName"] == "Invocations":
                continue  # This alarm is about missing data.
            outlasting.add(logical_id)
            gone = in_periods(properties, [bad] + [[]] * 30 + [[0]] + [[]] * 30)
            assert judged(properties, gone) is State.OK, (
                f"{logical_id}: the last value shows that the cause is gone"
            )
    queues = resources(template, "AWS::SQS::Queue")
    dead = [id_ for id_, queue in queues.items() if "RedrivePolicy" not in queue["Properties"]]
    watched = [metric_of_alarm(alarms_of(template)[name])[2]["QueueName"] for name in outlasting]
    assert sorted(watched) == sorted(dead)


def test_an_alarm_on_a_metric_of_dynamodb_fills_gaps_and_turns_off(template):
    checked = 0
    for logical_id, alarm in resources(template, "AWS::CloudWatch::Alarm").items():
        if "AWS/DynamoDB" not in json.dumps(alarm):
            continue
        checked += 1
        properties = alarm["Properties"]
        assert "Metrics" in properties, f"{logical_id} may stay on forever"
        formula, measured = properties["Metrics"]
        assert formula["ReturnData"]
        assert formula["Expression"] == f"FILL({measured['Id']}, 0)"
        plain = alarms_of(template)[logical_id]
        bad, late = [[1]] * 5, [[]] * 2
        assert judged(plain, in_periods(plain, bad + late)) is State.ALARM, "values may be late"
        # Two real values are left, so FILL has something to fill.
        assert judged(plain, in_periods(plain, bad + [[]] * 3)) is State.OK
    assert checked == 8 * 2 + 5


def test_a_stopped_sweep_alarms_within_a_quarter_of_an_hour(template):
    (silence,) = (a for a in alarms_of(template).values() if a["MetricName"] == "Invocations")
    samples = [(second, 1) for second in range(NOW - 3600, NOW, 60)]
    states = {now: judged(silence, samples, now) for now in range(NOW, NOW + 1200, 60)}
    on = [now for now, state in states.items() if state is State.ALARM]
    assert 600 < on[0] - NOW <= 900
    assert on == list(range(on[0], NOW + 1200, 60))


def test_an_alarm_on_silence_waits_for_the_first_values(template):
    """Otherwise, it would turn on right after its creation, before there is anything to measure."""
    warm_ups = {}
    for logical_id, alarm in alarms_of(template).items():
        minutes = alarm.get("WarmUpConfiguration", {}).get("WarmUpPeriodDurationInMinutes")
        if alarm["TreatMissingData"] == "breaching":
            assert minutes > alarm["Period"] * alarm["EvaluationPeriods"] / 60
        warm_ups[logical_id] = minutes
    assert list(filter(None, warm_ups.values())) == [30]


@pytest.fixture
def age_alarm(template):
    (properties,) = (
        alarm
        for alarm in alarms_of(template).values()
        if alarm["MetricName"] == "TimeSinceFirstReceive"
    )
    return properties


# A returned message is hidden for at most 15 minutes, and received a few seconds later.
RETURN_SECONDS = 905


def test_a_message_returned_every_15_minutes_alarms_until_it_is_gone(age_alarm):
    samples = [(NOW + age, age) for age in range(0, 8 * RETURN_SECONDS, RETURN_SECONDS)]
    fires, last = samples[2][0], samples[-1][0]
    states = {
        now: judged(age_alarm, [s for s in samples if s[0] <= now], now)
        for now in range(NOW, last + 3600, 60)
    }
    assert {state for now, state in states.items() if now < fires} == {State.OK}
    alarming = [now for now, state in states.items() if state is State.ALARM]
    assert alarming == list(range(alarming[0], alarming[-1] + 1, 60)), (
        "the alarm does not turn off in between"
    )
    assert alarming[0] - fires < 60, "it fires at the first delivery that is older than 20 minutes"
    assert 1140 < alarming[-1] - last <= 1200
    in_a_row = age_alarm | {"EvaluationPeriods": 3, "DatapointsToAlarm": 3}
    assert {judged(in_a_row, samples, now) for now in states} == {State.OK}, (
        "three periods in a row never breach"
    )


def test_waiting_for_the_longest_lease_does_not_alarm(age_alarm):
    samples = [(NOW, 0), (NOW + RETURN_SECONDS, RETURN_SECONDS)]
    states = {judged(age_alarm, samples, now) for now in range(NOW, NOW + 3600, 60)}
    assert states == {State.OK}


def test_the_cost_figures_count_what_is_emitted_and_what_the_template_has(template, emitted):
    every = [
        m["Properties"] for m in resources(template, "AWS::Lambda::EventSourceMapping").values()
    ]
    # Lambda reads a stream without charge: see docs/costs.md.
    mappings = [m for m in every if m["EventSourceArn"]["Fn::GetAtt"][1] == "Arn"]
    assert all("MaximumConcurrency" in m["ScalingConfig"] for m in mappings), (
        "five pollers for each queue"
    )
    groups = resources(template, "AWS::Logs::LogGroup").values()
    assert {group["Properties"]["RetentionInDays"] for group in groups} == {30}, (
        "logs are kept for a month"
    )
    fifo = sum("Fifo" in m["EventSourceArn"]["Fn::GetAtt"][0] for m in mappings)
    assert {one.title: one.count for one in costs.STANDING} == {
        "custom metrics": len(emitted),
        "alarms": len(alarms_of(template)),
        "dashboards": len(resources(template, "AWS::CloudWatch::Dashboard")),
        "rules of Contributor Insights": rules_of_insights(template),
        "standard queues, polled while empty": len(mappings) - fifo,
        "FIFO queues, polled while empty": fifo,
        "sweeps, one a minute": 730 * 60,
    }
    (schedule,) = resources(template, "AWS::Scheduler::Schedule").values()
    assert schedule["Properties"]["ScheduleExpression"] == "rate(1 minute)"


def rules_of_insights(template):
    """Count the rules for throttled keys: one for the partition key, and one more if there is a sort key."""
    tables = [t["Properties"] for t in resources(template, "AWS::DynamoDB::GlobalTable").values()]
    keys = [t["KeySchema"] for t in tables if "ContributorInsights" in json.dumps(t)]
    return sum(map(len, keys))


@pytest.fixture(scope="module")
def small():
    """Make the stack of a small shop, with a second API for tokens."""
    return synthesise("dev", **SMALL)


def test_basic_monitoring_has_few_alarms_and_no_dashboard(template, small):
    alarms, all_alarms = alarms_of(small), alarms_of(template)
    (with_tokens,) = alarms.keys() - all_alarms
    assert "CustomerApi5xx" in with_tokens
    del alarms[with_tokens]
    assert len(alarms) == costs.BASIC["alarms"] == 10, "the free tier of an account"
    assert {name: all_alarms[name] for name in alarms} == alarms
    assert not any("OrderQueueFifo" in alarm.basic for alarm in watched.ALARMS)
    assert len(resources(small, "AWS::CloudWatch::Dashboard")) == costs.BASIC["dashboards"] == 0
    assert rules_of_insights(small) == costs.BASIC["rules of Contributor Insights"] == 0
    namespaces = {namespace for namespace, _, _ in map(metric_of_alarm, alarms.values())}
    assert emf.NAMESPACE not in namespaces
    assert costs.BASIC["custom metrics"] == 0
    for stack, disabled in ((small, "true"), (template, None)):
        for function in resources(stack, "AWS::Lambda::Function").values():
            variables = function["Properties"]["Environment"]["Variables"]
            assert variables.get("POWERTOOLS_METRICS_DISABLED") == disabled


def test_without_the_fifo_queue_its_monitoring_and_costs_are_gone(template, small):
    assert "fifo" not in json.dumps(small.to_json()).lower()
    gone = template.find_outputs("*").keys() - small.find_outputs("*").keys()
    assert gone == {"OrderQueueFifoUrl", "OrderFifoDeadLetterQueueUrl", "DashboardName"}
    kinds = ("AWS::SQS::Queue", "AWS::Lambda::EventSourceMapping")
    fewer = [len(resources(template, kind)) - len(resources(small, kind)) for kind in kinds]
    assert fewer == [2, 1 - costs.BASIC["FIFO queues, polled while empty"]]


def test_without_an_address_no_alarm_is_mailed(template):
    """test_access.py covers a stack with an email address for alarms."""
    assert not resources(template, "AWS::SNS::Topic")
