"""`verify` on the embedded AWS: each check passes, and fails if a test breaks what it checks."""

import json
from contextlib import ExitStack
from datetime import timedelta

import boto3
import pytest

from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.store.tables import Table
from local import stack
from local.invoke import invoke_deployed
from operations import queues, verify
from operations.audit import read_rows
from operations.verify import traffic
from operations.verify.deployed import Deployed
from operations.verify.report import Report, State
from operations.verify.run import PREFIX, Run
from tests.support.roles import allow, name_of, permissions
from tests.support.stack import create, wait_until, wait_until_settled

ORDERS = 20


@pytest.fixture(scope="module")
def aws(aws):
    """Prepare a stack with a single, unrelated dead letter: reading a queue with dead letters takes a second."""
    for queue in queues.DEAD_LETTERS:
        aws.sqs.purge_queue(QueueUrl=aws.outputs[queue])
    aws.sqs.send_message(QueueUrl=aws.outputs[queues.DEAD_LETTERS[0]], MessageBody="theirs")
    return aws


@pytest.fixture(scope="module")
def deployed(aws):
    return Deployed.of(boto3.client("cloudformation"), boto3.client("dynamodb"), stack.STACK_NAME)


@pytest.fixture
def run(aws, deployed):
    """Make a run with short timeouts, and clean up after it at the end."""
    made = Run(aws, stack.STACK_NAME, embedded=True, orders=ORDERS, patience=0.3)
    made.deployed = deployed
    yield made
    made.patience = 60.0
    wait_until_settled(aws)
    assert made.clean_up() == []


def red(name, run):
    """Run a check, which must fail, and return the text of its failed lines."""
    found = [line.saw for line in verify.run_check(name, run) if line.state is State.FAILED]
    assert found, name
    return " ".join(found)


def wait_for_answers(monkeypatch, run):
    """Wait longer for the answers to orders, but not for anything else."""
    answer = run.answer

    def patiently(*order, **how):
        patience, run.patience = run.patience, 60.0
        try:
            return answer(*order, **how)
        finally:
            run.patience = patience

    monkeypatch.setattr(run, "answer", patiently)


def listed(aws):
    return [
        row["productId"]
        for row in read_rows(aws, Table.PRODUCTS)
        if row["productId"].startswith(PREFIX)
    ]


def end_the_hold(aws, run):
    """Move the end of a hold so far into the past that its grace period is over, and run a sweep."""
    end = timestamp(
        SystemClock().now() - timedelta(seconds=traffic._variable(run, "HOLD_GRACE_SECONDS"))
    )
    aws.dynamodb.update_item(
        TableName=aws.outputs["OrdersTableName"],
        Key={"orderId": {"S": run.held["orderId"]}},
        UpdateExpression="SET expiresAt = :end",
        ExpressionAttributeValues={":end": {"S": end}},
    )
    run.held = {**run.held, "expiresAt": end}
    invoke_deployed(aws, "sweep", {"action": "sweep"})


def dead_letters(aws):
    return {name: queues.depth(aws, name).total for name in queues.DEAD_LETTERS}


def test_all_checks_are_green_and_only_leave_orders(aws, run, monkeypatch):
    run.patience = 60.0

    def holds(run):
        lines = traffic.holds(run)
        end_the_hold(aws, run)
        return lines

    monkeypatch.setitem(verify.CHECKS, "holds", holds)
    of_others = dead_letters(aws)
    assert sum(of_others.values()) == 1
    report = Report({"stack": run.stack_name}, run.name, run.started_at)
    seen = []
    verify.verify(run, report, on_line=lambda check, line: seen.append((check, line)))
    assert report.lines == seen
    assert list(dict.fromkeys(check for check, _ in seen)) == list(verify.CHECKS)
    assert [line for _, line in seen if line.state is State.FAILED] == []
    assert {check for check, line in seen if line.state is State.NOT_HERE} == {
        *("tables", "functions", "notifies", "metrics", "alarms")
    }
    assert report.good
    assert report.figures["orders"] == ORDERS
    assert report.figures["ordersPerSecond"] > 0
    assert 1 <= report.figures["messagesPerBatch"] <= 10
    assert report.figures["dollars"] > 0
    assert listed(aws) == []
    assert dead_letters(aws) == of_others
    rows = [
        row
        for row in read_rows(aws, Table.ORDERS)
        if row["orderId"].startswith(run.name) and "userId" in row
    ]
    assert {row["userId"] for row in rows} == {f"{run.name}-user"}
    assert {row["status"] for row in rows} == {"CANCELLED", "EXPIRED", "FULFILLED", "REJECTED"}


# ------------------------------------------------------------------ breaking things


def disable(aws, undo, function, output):
    """Disconnect a queue or a stream from its function."""
    arn = aws.outputs[output]
    if output.endswith("Url"):
        arn = queues.arn_of(aws.sqs, arn)
    found = aws.functions.list_event_source_mappings(
        FunctionName=aws.outputs[f"{function}FunctionName"], EventSourceArn=arn
    )
    (mapping,) = found["EventSourceMappings"]
    aws.functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    undo(aws.functions.update_event_source_mapping, UUID=mapping["UUID"], Enabled=True)


def deny(aws, undo, function, action, resource):
    """Remove a permission from a function."""
    granted = permissions(aws, function)
    taken = {(a, arn) for a, arn in granted if (a, name_of(aws, arn)) == (action, resource)}
    assert taken
    allow(aws, function, granted - taken)
    undo(allow, aws, function, granted)


@pytest.fixture
def undo():
    """Provide a function that registers a call to undo a change at the end of the test."""
    with ExitStack() as stack:
        yield stack.callback


def test_a_disconnected_stream_is_detected_by_traffic(aws, run, undo, monkeypatch):
    monkeypatch.setattr(traffic, "_LISTEN_SECONDS", 1)
    wait_for_answers(monkeypatch, run)
    disable(aws, undo, "PublishEvents", "OrdersStreamArn")
    assert "check the event source mappings of PublishEvents" in red("events", run)


def interrupted(aws):
    """Make another run, and do not clean up after it."""
    return Run(aws, stack.STACK_NAME, embedded=True)


def test_leftovers_of_an_interrupted_run_are_removed_once_old(aws, run, monkeypatch):
    of_others = dead_letters(aws)
    other = interrupted(aws)
    product = other.list_product("left", 1)
    other.list_product("left", 1, "north")
    order = other.order("left", {product: 1})
    traffic.place(other, order)
    create(aws, "verify-lamp", 1)
    other.send(queues.STOCK, f"{other.name} is not JSON")
    wait_until(aws, lambda: dead_letters(aws) != of_others)
    (line,) = verify.run_check("leftovers", run)
    assert (line.state, line.saw) == (
        *(State.PASSED,),
        "left alone, because their run may still be active: 2 products",
    )
    mark = f"{other.name}-mark"
    assert set(listed(aws)) == {mark, product, f"{product}#north", "verify-lamp"}
    monkeypatch.setattr("operations.verify.run.A_RUN_LASTS", timedelta(0))
    run.patience = 60.0
    (line,) = verify.run_check("leftovers", run)
    assert line.state is State.PASSED
    assert "removed from an interrupted run: 2 products, 1 dead letter" in line.saw
    assert other.row(order)["status"] == "CANCELLED"
    # Products whose ids only look similar do not belong to a run.
    assert listed(aws) == ["verify-lamp"]
    assert dead_letters(aws) == of_others
    run.products.append("verify-lamp")


# Each of these functions breaks one thing, and returns the line that reports it.


def stop_a_function(aws, undo):
    name = aws.outputs["CountStockFunctionName"]
    aws.functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    undo(aws.functions.delete_function_concurrency, FunctionName=name)
    return "CountStock is stopped"


def disable_a_mapping(aws, undo):
    disable(aws, undo, "AdjustStock", queues.STOCK)
    return "the mapping of StockQueue State is Disabled, but was deployed as Enabled"


def take_a_permission(aws, undo):
    deny(aws, undo, "change_orders", "dynamodb:UpdateItem", "OrdersTable")
    return "ChangeOrdersRole may not dynamodb:UpdateItem on"


def add_a_permission(aws, undo):
    granted = permissions(aws, "count_stock")
    (products,) = {arn for _, arn in granted if arn.endswith(aws.outputs["ProductsTableName"])}
    allow(aws, "count_stock", granted | {("dynamodb:Scan", products)})
    undo(allow, aws, "count_stock", granted)
    return "CountStockRole may dynamodb:Scan on"


def change_a_queue(aws, undo, name, value):
    place = {"QueueUrl": aws.outputs[queues.STANDARD]}
    own = aws.sqs.get_queue_attributes(**place, AttributeNames=[name])["Attributes"]
    aws.sqs.set_queue_attributes(**place, Attributes={name: value})
    undo(aws.sqs.set_queue_attributes, **place, Attributes=own)


def remove_redrive(aws, undo):
    change_a_queue(aws, undo, "RedrivePolicy", "")
    return "OrderQueue RedrivePolicy maxReceiveCount is null"


def allow_plain_http(aws, undo):
    change_a_queue(aws, undo, "Policy", '{"Statement": []}')
    return "OrderQueue accepts messages without TLS"


def stop_a_stream(aws, undo):
    orders = {"TableName": aws.outputs["OrdersTableName"]}
    aws.dynamodb.update_table(**orders, StreamSpecification={"StreamEnabled": False})
    own = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    undo(aws.dynamodb.update_table, **orders, StreamSpecification=own)
    return "Orders StreamSpecification StreamEnabled is"


def keep_logs_for_ever(aws, undo):
    name = aws.outputs["PlaceOrdersLogGroupName"]
    (group,) = aws.logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    aws.logs.delete_retention_policy(logGroupName=name)
    own = group["retentionInDays"]
    undo(aws.logs.put_retention_policy, logGroupName=name, retentionInDays=own)
    return "PlaceOrdersLogs keeps events for None days, not 30"


def draw_other_metrics(aws, undo):
    cloudwatch, name = boto3.client("cloudwatch"), aws.outputs["DashboardName"]
    own = cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"]
    body = json.loads(own)
    (graph,) = [w for w in body["widgets"] if w["properties"].get("title") == "Orders"]
    graph["properties"]["metrics"].append(["AWS/SQS", "NumberOfMessagesSent", "QueueName", "old"])
    cloudwatch.put_dashboard(DashboardName=name, DashboardBody=json.dumps(body))
    undo(cloudwatch.put_dashboard, DashboardName=name, DashboardBody=own)
    return "was changed since the deployment; it shows metrics of other stacks: NumberOfMessagesSent of old"


def silence_an_alarm(aws, undo):
    cloudwatch = boto3.client("cloudwatch")
    alarms = cloudwatch.describe_alarms(MaxRecords=100)["MetricAlarms"]
    (name,) = [a["AlarmName"] for a in alarms if "ConflictRate" in a["AlarmName"]]
    cloudwatch.disable_alarm_actions(AlarmNames=[name])
    undo(cloudwatch.enable_alarm_actions, AlarmNames=[name])
    return "ConflictRate ActionsEnabled is false, but was deployed as true"


@pytest.mark.parametrize(
    ("check", "damage"),
    [
        ("functions", stop_a_function),
        ("mappings", disable_a_mapping),
        ("roles", take_a_permission),
        ("roles", add_a_permission),
        ("queues", remove_redrive),
        ("queues", allow_plain_http),
        ("tables", stop_a_stream),
        ("logs", keep_logs_for_ever),
        ("dashboard", draw_other_metrics),
        ("alarms", silence_an_alarm),
    ],
)
def test_drift_from_the_deployed_configuration_is_detected(aws, run, check, damage):
    with ExitStack() as stack:
        says = damage(aws, stack.callback)
        assert says in red(check, run)
    assert State.FAILED not in {line.state for line in verify.run_check(check, run)}
