"""Monitoring: every metric of the dashboard and the alarms is emitted, and every alarm can fire."""

import json
import statistics
import sys
from datetime import UTC, datetime

import pytest
from moto import mock_aws

from inventory_orders.domain.change import RejectionReason
from inventory_orders.errors import CancellationReason, ThrottledError, TransactionCancelledError
from inventory_orders.invocation import runtime
from local.invoke import FakeContext, load_handler, moto_stack
from operations import emf
from tests.support.messages import order_body, sqs_event
from tests.support.template import alarms_of, resources, synthesise

SERVICE = "inventory-orders-dev"

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html
# https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html
AWS_METRICS = {
    "AWS/SQS": {
        "ApproximateAgeOfOldestMessage": [{"QueueName"}],
        "ApproximateNumberOfMessagesVisible": [{"QueueName"}],
    },
    "AWS/DynamoDB": {
        "ConditionalCheckFailedRequests": [
            {"TableName"},
            {"TableName", "GlobalSecondaryIndexName"},
        ],
        "TransactionConflict": [{"TableName"}],
        "ConsumedWriteCapacityUnits": [{"TableName"}, {"TableName", "GlobalSecondaryIndexName"}],
        "ReadThrottleEvents": [{"TableName"}, {"TableName", "GlobalSecondaryIndexName"}],
        "WriteThrottleEvents": [{"TableName"}, {"TableName", "GlobalSecondaryIndexName"}],
    },
    "AWS/Lambda": {
        name: [{"FunctionName"}]
        for name in ("Errors", "Throttles", "Duration", "ConcurrentExecutions", "Invocations")
    },
}


@pytest.fixture(scope="module")
def template():
    return synthesise("dev")


@pytest.fixture(scope="module")
def widgets(template):
    (dashboard,) = resources(template, "AWS::CloudWatch::Dashboard").values()
    return json.loads(_resolve(dashboard["Properties"]["DashboardBody"]))["widgets"]


def _resolve(value):
    """Resolve a Fn::Join, with logical names for the values that CloudFormation fills in."""
    if isinstance(value, str):
        return value
    if "Ref" in value:
        return value["Ref"].replace("AWS::", "")
    if "Fn::GetAtt" in value:
        return value["Fn::GetAtt"][0]
    separator, parts = value["Fn::Join"]
    return separator.join(_resolve(part) for part in parts)


def metrics_of(widgets):
    """List (namespace, name, dimensions) of all metrics that the widgets draw."""
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
    dimensions = {d["Name"]: _resolve(d["Value"]) for d in properties["Dimensions"]}
    return properties["Namespace"], properties["MetricName"], dimensions


@pytest.fixture
def emitted(monkeypatch, capsys):
    """Collect the metrics that the handlers emit in all situations."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        for name, value in moto_stack().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", SERVICE)

        def call(function, event):
            handler = load_handler(function)
            handler.logger.registered_handler.stream = sys.stdout
            monkeypatch.setattr(handler.metrics.provider, "service", SERVICE)
            return handler.lambda_handler(event, FakeContext(function))

        tea = "tea-earl-grey"
        product = {"action": "create", "productId": "gone", "openingStock": 5}
        call("manage_products", product)
        call("manage_products", {"action": "discontinue", "productId": "gone"})
        call("manage_products", {"action": "delist", "productId": tea, "createdAt": _time(1)})
        event = {"eventId": "e", "productId": tea, "details": {"price": 1}}
        for moment in (_time(2), _time(1)):
            call("manage_products", {"action": "changeDetails", **event, "eventTime": moment})
        call("count_stock", {"action": "acquire", "productId": "tea-hojicha", "seconds": 1})
        orders = [
            order_body("placed", {tea: 40}),
            order_body("waits", {"tea-hojicha": 1}),
            order_body("short", {tea: 10_000}),
            order_body("unknown", {"nothing": 1}),
            order_body("discontinued", {"gone": 1}),
        ]
        store = runtime.store()
        write = store.write
        failures = [
            ThrottledError("ThrottlingException", "slow down"),
            TransactionCancelledError([CancellationReason("TransactionConflict")]),
        ]

        def fought_over(actions, token):
            if failures:
                raise failures.pop()
            write(actions, token)

        monkeypatch.setattr(store, "write", fought_over)
        call("place_orders", sqs_event("poison", *orders, orders[0]))
        call("place_orders", sqs_event(order_body("low", {tea: 1})))
        samples = list(emf.parse(capsys.readouterr().out.splitlines()))
    return {(sample.name, sample.dimensions) for sample in samples}


def _time(hour):
    moment = datetime(2026, 1, 1, hour, tzinfo=UTC)
    return moment.isoformat(timespec="microseconds")


def test_every_metric_of_ours_is_emitted_with_exactly_these_dimensions(template, widgets, emitted):
    named = metrics_of(widgets) + [metric_of_alarm(a) for a in alarms_of(template).values()]
    ours = {
        (name, frozenset(dimensions.items()))
        for namespace, name, dimensions in named
        if namespace == emf.NAMESPACE
    }
    assert len(ours) > 15
    assert ours - emitted == set()


def test_every_emitted_metric_is_on_the_dashboard(widgets, emitted):
    shown = {name for namespace, name, _ in metrics_of(widgets) if namespace == emf.NAMESPACE}
    assert {name for name, _ in emitted} - shown == set()


def test_every_metric_of_aws_exists_with_these_dimensions(template, widgets):
    named = metrics_of(widgets) + [metric_of_alarm(a) for a in alarms_of(template).values()]
    theirs = [entry for entry in named if entry[0] != emf.NAMESPACE]
    assert theirs
    for namespace, name, dimensions in theirs:
        assert set(dimensions) in AWS_METRICS[namespace][name], (namespace, name, dimensions)


def test_the_dashboard_shows_all_reasons_for_which_orders_are_rejected(widgets):
    shown = {dimensions.get("reason") for _, _, dimensions in metrics_of(widgets)} - {None}
    others = {
        *(RejectionReason.BELOW_FLOOR, RejectionReason.ORDER_REJECTED),
        RejectionReason.UNKNOWN_ORDER_STATUS,
    }
    assert shown == {reason.value for reason in set(RejectionReason) - others}


def test_the_dashboard_has_its_sections_in_the_order_of_an_operator(widgets):
    headings = [w["properties"]["markdown"] for w in widgets if w["type"] == "text"]
    titles = [text.splitlines()[0] for text in headings]
    assert titles == [
        "## Are orders flowing?",
        "## Is there contention?",
        "## How efficient is it?",
        "## Is the platform healthy?",
    ]
    for widget in widgets:
        assert 0 <= widget["x"] < 24
        assert widget["x"] + widget["width"] <= 24


def is_alarming(properties, datapoints):
    """Evaluate an alarm like CloudWatch: its newest points against its definition."""
    aggregate = {"Sum": sum, "Average": statistics.fmean, "Maximum": max}[properties["Statistic"]]
    assert properties["ComparisonOperator"] == "GreaterThanThreshold"
    assert properties["TreatMissingData"] == "notBreaching"
    recent = datapoints[-properties["EvaluationPeriods"] :]
    breaching = sum(
        bool(values) and aggregate(values) > properties["Threshold"] for values in recent
    )
    return breaching >= properties["DatapointsToAlarm"]


# The values of a metric, by period, on a good day and on a bad one.
GOOD_AND_BAD = {
    "ApproximateNumberOfMessagesVisible": ([0], [1]),
    "ApproximateAgeOfOldestMessage": ([900], [1500]),
    "VersionConflict": ([0] * 97 + [1] * 3, [0] * 9 + [1]),
    "RetriesExhausted": ([0] * 200 + [1], [0] * 20 + [1]),
    "Errors": ([0], [1]),
    "Throttles": ([0], [1]),
    "ReadThrottleEvents": ([], [1]),
    "WriteThrottleEvents": ([], [1]),
}


def test_every_alarm_fires_on_its_condition_and_not_under_healthy_load(template):
    alarms = alarms_of(template)
    assert len(alarms) == 5 * 2 + 2 + 5 * 2 + 3 * 2 + 1
    for logical_id, properties in alarms.items():
        good, bad = GOOD_AND_BAD[properties["MetricName"]]
        assert is_alarming(properties, [bad] * 5), logical_id
        assert not is_alarming(properties, [good] * 5), logical_id
        assert not is_alarming(properties, [[]] * 5), f"{logical_id}: no data is no trouble"


def test_every_alarm_says_what_it_means_and_what_to_do_first(template):
    for properties in alarms_of(template).values():
        meaning, _, first = properties["AlarmDescription"].partition(" First: ")
        assert len(meaning) > 30
        assert len(first) > 20
        assert len(properties["AlarmDescription"]) <= 1024
        assert "Metrics" not in properties, "no metric math: the embedded AWS refuses it"


def test_an_alarm_on_throttles_names_its_own_units_and_its_table(template):
    """https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html"""
    limits = {"ReadThrottleEvents": "3,000 read units", "WriteThrottleEvents": "1,000 write units"}
    checked = 0
    for logical_id, properties in alarms_of(template).items():
        own = limits.get(properties["MetricName"])
        if own is not None and "OrdersByUser" not in logical_id:
            text = properties["AlarmDescription"]
            assert [limit for limit in limits.values() if limit in text] == [own], logical_id
            table = text.partition("warmThroughput.")[2].partition(" ")[0]
            assert logical_id.startswith(f"Monitoring{table}{own.split()[1].title()}"), logical_id
            checked += 1
    assert checked == 6


def test_no_alarm_counts_logical_successes(template):
    watched = {properties["MetricName"] for properties in alarms_of(template).values()}
    assert not watched & {
        "StaleDeletesIgnored",
        "StaleEventsIgnored",
        "OrdersReplayed",
        "OrdersRejected",
    }


def test_alarms_are_mailed_if_an_address_is_set(template):
    assert not resources(template, "AWS::SNS::Topic")
    mailed = synthesise("dev", alarmEmail="ops@example.com")
    (topic,) = resources(mailed, "AWS::SNS::Topic")
    mailed.has_resource_properties(
        "AWS::SNS::Subscription", {"Protocol": "email", "Endpoint": "ops@example.com"}
    )
    for properties in alarms_of(mailed).values():
        assert properties["AlarmActions"] == properties["OKActions"] == [{"Ref": topic}]


def test_cloudwatch_may_publish_the_alarms_of_this_account_and_nobody_else_may():
    """https://docs.aws.amazon.com/sns/latest/dg/sns-access-policy-use-cases.html"""
    mailed = synthesise("dev", alarmEmail="ops@example.com")
    (topic,) = resources(mailed, "AWS::SNS::Topic")
    (policy,) = resources(mailed, "AWS::SNS::TopicPolicy").values()
    statements = policy["Properties"]["PolicyDocument"]["Statement"]
    (allowed,) = [statement for statement in statements if statement["Effect"] == "Allow"]
    assert allowed["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert (allowed["Action"], allowed["Resource"]) == ("sns:Publish", {"Ref": topic})
    account = {"Ref": "AWS::AccountId"}
    assert allowed["Condition"]["StringEquals"] == {"aws:SourceAccount": account}
    source = allowed["Condition"]["ArnLike"]["aws:SourceArn"]["Fn::Join"][1]
    assert source[-3:] == [":", account, ":alarm:*"]
