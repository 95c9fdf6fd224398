"""`verify` on the embedded AWS: all is green, and each check sees the one thing that a test breaks for it."""

import copy
import json
import signal
from contextlib import contextmanager
from datetime import timedelta

import boto3
import pytest

from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.store.tables import Table
from local import STATE, stack
from local.invoke import invoke_deployed
from operations import queues, verify
from operations.audit import read_rows
from operations.aws import Aws
from operations.dead_letters import peek_dead_letters
from operations.verify import traffic
from operations.verify.deployed import Deployed
from operations.verify.report import Report, State
from operations.verify.run import PREFIX, Run
from tests.support.by_hand import add_by_hand
from tests.support.roles import allow, name_of, permissions
from tests.support.stack import (
    COMMAND,
    create,
    in_the_background,
    wait_until,
    wait_until_settled,
)

ORDERS = 20


@pytest.fixture(scope="module")
def aws(embedded_aws):
    """The stack with one dead letter of somebody else, and none of the tests before: each queue with some takes a second."""
    aws = embedded_aws[0]
    for queue in queues.DEAD_LETTERS:
        aws.sqs.purge_queue(QueueUrl=aws.outputs[queue])
    aws.sqs.send_message(QueueUrl=aws.outputs[queues.DEAD_LETTERS[0]], MessageBody="theirs")
    return aws


@pytest.fixture(scope="module")
def deployed(aws):
    return Deployed.of(boto3.client("cloudformation"), boto3.client("dynamodb"), stack.STACK_NAME)


@pytest.fixture
def run(aws, deployed):
    """A run with little patience, cleaned up at the end."""
    made = Run(aws, stack.STACK_NAME, embedded=True, orders=ORDERS, patience=0.3)
    made.deployed = deployed
    yield made
    made.patience = 60.0
    wait_until_settled(aws)
    assert made.clean_up() == []


def red(name, run):
    """What the red lines of a check say; there must be some."""
    found = [line.saw for line in verify.run_check(name, run) if line.state is State.FAILED]
    assert found, name
    return " ".join(found)


def wait_for_answers(monkeypatch, run):
    """Be patient for the answers to orders, and for nothing else."""
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
    """Let the hold of a run have ended, so that its grace is over now, and not in a minute; and sweep."""
    end = timestamp(SystemClock().now() - timedelta(seconds=traffic._grace(run)))
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


def test_all_checks_are_green_and_leave_nothing_but_orders(aws, run, monkeypatch):
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
    assert report.figures["dollars"] > 0
    assert listed(aws) == []
    assert dead_letters(aws) == of_others
    users = {
        row["userId"]
        for row in read_rows(aws, Table.ORDERS)
        if row["orderId"].startswith(run.name) and "userId" in row
    }
    assert users == {f"{run.name}-user"}


# ------------------------------------------------------------------ what breaks


@contextmanager
def disabled(aws, function, queue):
    """Cut a queue off from its function."""
    arn = aws.sqs.get_queue_attributes(QueueUrl=aws.outputs[queue], AttributeNames=["QueueArn"])[
        "Attributes"
    ]["QueueArn"]
    with fed_no_more(aws, function, arn):
        yield


@contextmanager
def fed_no_more(aws, function, arn):
    """Disable the mapping of a queue or a stream."""
    found = aws.functions.list_event_source_mappings(
        FunctionName=aws.outputs[f"{function}FunctionName"], EventSourceArn=arn
    )
    (mapping,) = found["EventSourceMappings"]
    aws.functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    try:
        yield
    finally:
        aws.functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)


@contextmanager
def denied(aws, function, action, resource):
    """Take a permission away from a function."""
    granted = permissions(aws, function)
    taken = {(a, arn) for a, arn in granted if (a, name_of(aws, arn)) == (action, resource)}
    assert taken
    allow(aws, function, granted - taken)
    try:
        yield
    finally:
        allow(aws, function, granted)


@pytest.mark.parametrize(
    ("check", "function", "queue"),
    [
        ("places", "PlaceOrders", queues.STANDARD),
        ("rejects", "PlaceOrders", queues.STANDARD),
        ("hot", "PlaceOrders", queues.STANDARD),
        ("poison", "PlaceOrders", queues.STANDARD),
        ("poison", "ChangeOrders", queues.COMMANDS),
        ("poison", "ChangeOrders", queues.EXPIRIES),
        ("fifo", "PlaceOrders", queues.FIFO),
        ("cancels", "ChangeOrders", queues.COMMANDS),
        ("confirms", "ChangeOrders", queues.COMMANDS),
        ("receives", "AdjustStock", queues.STOCK),
        ("catalogue", "ManageProducts", queues.CATALOGUE),
    ],
)
def test_a_queue_that_is_cut_off_is_seen_by_its_traffic(
    aws, run, monkeypatch, check, function, queue
):
    if check in ("cancels", "confirms"):
        wait_for_answers(monkeypatch, run)
    with disabled(aws, function, queue):
        said = red(check, run)
        assert queue.removesuffix("Url") in said
        assert "see its mapping" in said
        # Nobody waits for what is still there.
        aws.sqs.purge_queue(QueueUrl=aws.outputs[queue])
        run.dead_letters.pop(dict(queues.pairs(aws))[queue], None)


def test_a_hold_that_never_expires_is_seen(aws, run, monkeypatch):
    monkeypatch.setattr(traffic, "_SWEEP_SECONDS", 0)
    wait_for_answers(monkeypatch, run)
    traffic.holds(run)
    with disabled(aws, "ChangeOrders", queues.EXPIRIES):
        end_the_hold(aws, run)
        assert "see Sweep and the mapping of ExpiryQueue" in red("expires", run)


def test_a_stream_that_is_cut_off_is_seen_by_its_traffic(aws, run, monkeypatch):
    monkeypatch.setattr(traffic, "_LISTEN_SECONDS", 1)
    wait_for_answers(monkeypatch, run)
    with fed_no_more(aws, "PublishEvents", aws.outputs["OrdersStreamArn"]):
        assert "see the mappings of PublishEvents" in red("events", run)


@pytest.mark.parametrize(
    ("check", "function", "action", "resource", "says"),
    [
        (
            *("replays", "place_orders", "sqs:SendMessage", "OrderFifoDeadLetterQueue"),
            "no dead letter for the other order",
        ),
        (
            *("counts", "count_stock", "dynamodb:UpdateItem", "ProductsTable"),
            "CountStock answered acquire with",
        ),
        (
            *("api", "api", "dynamodb:GetItem", "OrdersTable"),
            "no answer to an order through the API",
        ),
        (
            *("cleans-up", "manage_products", "dynamodb:DeleteItem", "ProductsTable"),
            "not authorized",
        ),
        (
            *("leftovers", "manage_products", "dynamodb:DeleteItem", "ProductsTable"),
            "not authorized",
        ),
    ],
)
def test_a_permission_that_is_missing_is_seen_by_its_traffic(
    aws, run, monkeypatch, check, function, action, resource, says
):
    if check == "replays":
        wait_for_answers(monkeypatch, run)
    if check == "cleans-up":
        run.list_product("to-clean-up", 1)
    if check == "leftovers":
        interrupted(aws).list_product("left", 1)
        monkeypatch.setattr("operations.verify.run.A_RUN_LASTS", timedelta(0))
    with denied(aws, function, action, resource):
        assert says in red(check, run)


def test_a_permission_that_the_operator_lacks_is_named(aws):
    iam = boto3.client("iam")
    denied_actions = ["cloudwatch:GetDashboard", "lambda:InvokeFunction"]
    policy = [
        {"Effect": "Allow", "Action": "*", "Resource": "*"},
        {"Effect": "Deny", "Action": denied_actions, "Resource": "*"},
    ]
    iam.create_user(UserName="verify-operator")
    iam.put_user_policy(
        UserName="verify-operator",
        PolicyName="some",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": policy}),
    )
    key = iam.create_access_key(UserName="verify-operator")["AccessKey"]
    session = boto3.Session(key["AccessKeyId"], key["SecretAccessKey"])
    own = Aws.of_stack(stack.STACK_NAME, session)
    theirs = Run(own, stack.STACK_NAME, embedded=True, patience=0.3)
    for check, action in zip(("dashboard", "places"), denied_actions, strict=True):
        assert red(check, theirs).startswith(f"not allowed: this needs {action}")
    line, _ = verify.run_check("functions", theirs)
    assert line.state is State.PASSED
    iam.delete_access_key(UserName="verify-operator", AccessKeyId=key["AccessKeyId"])
    iam.delete_user_policy(UserName="verify-operator", PolicyName="some")
    iam.delete_user(UserName="verify-operator")


def interrupted(aws):
    """Another run, which nobody cleans up."""
    return Run(aws, stack.STACK_NAME, embedded=True)


def test_what_an_interrupted_run_left_is_removed_once_it_is_old(aws, run, monkeypatch):
    of_others = dead_letters(aws)
    other = interrupted(aws)
    product = other.list_product("left", 1)
    create(aws, "verify-lamp", 1)
    other.send(queues.STOCK, f"{other.name} is no JSON")
    wait_until(aws, lambda: dead_letters(aws) != of_others)
    (line,) = verify.run_check("leftovers", run)
    assert (line.state, line.saw) == (
        *(State.PASSED,),
        "left alone, because their run may go on: 1 product",
    )
    assert set(listed(aws)) == {product, "verify-lamp"}
    monkeypatch.setattr("operations.verify.run.A_RUN_LASTS", timedelta(0))
    (line,) = verify.run_check("leftovers", run)
    assert line.state is State.PASSED
    assert "removed of an interrupted run: 1 product, 1 dead letter" in line.saw
    # What only looks alike is none of a run.
    assert listed(aws) == ["verify-lamp"]
    assert dead_letters(aws) == of_others
    run.products.append("verify-lamp")


def test_a_unit_too_many_is_sold_and_seen(aws, run, monkeypatch):
    really_list = run.list_product

    def list_product(name, stock):
        product = really_list(name, stock)
        add_by_hand(aws, product, 1)
        return product

    monkeypatch.setattr(run, "list_product", list_product)
    run.patience = 60.0
    said = red("hot", run)
    assert "'PENDING': 13" in said
    assert "not {'PENDING': 12" in said
    # So that the books of the stack, which others audit, balance again.
    (product,) = run.products
    add_by_hand(aws, product, -1)


def test_stock_that_was_changed_by_hand_is_seen(aws, run):
    run.patience = 60.0
    verify.run_check("receives", run)
    (product,) = run.products
    add_by_hand(aws, product, -1)
    assert red("books", run) == f"{product} has 11, but its rows say 12"
    add_by_hand(aws, product, 1)
    (line,) = verify.run_check("books", run)
    assert line.state is State.PASSED


def test_a_dead_letter_of_somebody_else_stays(aws, run):
    run.patience = 60.0
    url = aws.outputs["CatalogueDeadLetterQueueUrl"]
    aws.sqs.purge_queue(QueueUrl=url)
    aws.sqs.send_message(QueueUrl=aws.outputs[queues.CATALOGUE], MessageBody="theirs")
    wait_until(aws, lambda: peek_dead_letters(aws.sqs, url, 10))
    (line,) = verify.run_check("poison", run)
    assert line.state is State.PASSED
    assert [letter.body for letter in peek_dead_letters(aws.sqs, url, 10)] == ["theirs"]
    aws.sqs.purge_queue(QueueUrl=url)


@contextmanager
def stopped(aws):
    name = aws.outputs["CountStockFunctionName"]
    aws.functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    try:
        yield "CountStock is stopped"
    finally:
        aws.functions.delete_function_concurrency(FunctionName=name)


@contextmanager
def cut_off(aws):
    with disabled(aws, "AdjustStock", queues.STOCK):
        yield "the mapping of StockQueue State is Disabled, deployed was Enabled"


@contextmanager
def a_permission_taken(aws):
    with denied(aws, "change_orders", "dynamodb:UpdateItem", "OrdersTable"):
        yield "ChangeOrdersRole may not dynamodb:UpdateItem on"


@contextmanager
def a_permission_too_many(aws):
    granted = permissions(aws, "count_stock")
    (products,) = {arn for _, arn in granted if arn.endswith(aws.outputs["ProductsTableName"])}
    allow(aws, "count_stock", granted | {("dynamodb:Scan", products)})
    try:
        yield "CountStockRole may dynamodb:Scan on"
    finally:
        allow(aws, "count_stock", granted)


@contextmanager
def attribute(aws, name, value, says):
    """Change an attribute of the order queue."""
    place = {"QueueUrl": aws.outputs[queues.STANDARD]}
    own = aws.sqs.get_queue_attributes(**place, AttributeNames=[name])["Attributes"]
    aws.sqs.set_queue_attributes(**place, Attributes={name: value})
    try:
        yield says
    finally:
        aws.sqs.set_queue_attributes(**place, Attributes=own)


def no_redrive(aws):
    return attribute(aws, "RedrivePolicy", "", "OrderQueue RedrivePolicy maxReceiveCount is null")


def without_tls(aws):
    return attribute(aws, "Policy", '{"Statement": []}', "OrderQueue takes messages without TLS")


@contextmanager
def no_stream(aws):
    def switch(**stream):
        aws.dynamodb.update_table(
            TableName=aws.outputs["OrdersTableName"], StreamSpecification=stream
        )

    switch(StreamEnabled=False)
    try:
        yield "Orders StreamSpecification StreamEnabled is"
    finally:
        switch(StreamEnabled=True, StreamViewType="NEW_AND_OLD_IMAGES")


@contextmanager
def logs_for_ever(aws):
    name = aws.outputs["PlaceOrdersLogGroupName"]
    (group,) = aws.logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    aws.logs.delete_retention_policy(logGroupName=name)
    try:
        yield "PlaceOrdersLogs keeps events for None days, not 30"
    finally:
        aws.logs.put_retention_policy(logGroupName=name, retentionInDays=group["retentionInDays"])


@contextmanager
def another_dashboard(aws):
    cloudwatch, name = boto3.client("cloudwatch"), aws.outputs["DashboardName"]
    own = cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"]
    body = json.loads(own)
    (graph,) = [w for w in body["widgets"] if w["properties"].get("title") == "Orders"]
    graph["properties"]["metrics"].append(["AWS/SQS", "NumberOfMessagesSent", "QueueName", "old"])
    cloudwatch.put_dashboard(DashboardName=name, DashboardBody=json.dumps(body))
    try:
        yield "was changed since it was deployed; it draws metrics of other stacks: NumberOfMessagesSent of old"
    finally:
        cloudwatch.put_dashboard(DashboardName=name, DashboardBody=own)


@contextmanager
def a_silent_alarm(aws):
    cloudwatch = boto3.client("cloudwatch")
    names = [
        alarm["AlarmName"] for alarm in cloudwatch.describe_alarms(MaxRecords=100)["MetricAlarms"]
    ]
    (name,) = [name for name in names if "ConflictRate" in name]
    cloudwatch.disable_alarm_actions(AlarmNames=[name])
    try:
        yield "ConflictRate ActionsEnabled is false, deployed was true"
    finally:
        cloudwatch.enable_alarm_actions(AlarmNames=[name])


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        ("functions", stopped),
        ("mappings", cut_off),
        ("roles", a_permission_taken),
        ("roles", a_permission_too_many),
        ("queues", no_redrive),
        ("queues", without_tls),
        ("tables", no_stream),
        ("logs", logs_for_ever),
        ("dashboard", another_dashboard),
        ("alarms", a_silent_alarm),
    ],
)
def test_what_is_not_as_it_was_deployed_is_seen(aws, run, check, broken):
    with broken(aws) as says:
        assert says in red(check, run)
    assert State.FAILED not in {line.state for line in verify.run_check(check, run)}


def test_an_alarm_without_its_action_is_seen(run):
    """The tests' stack mails nobody, so the template and the alarms get a topic first."""
    sns, cloudwatch = boto3.client("sns"), boto3.client("cloudwatch")
    topic = sns.create_topic(Name="verify-alarms")["TopicArn"]
    run.deployed = copy.deepcopy(run.deployed)
    run.deployed.resources["Topic"] = {"Type": "AWS::SNS::Topic"}
    run.deployed.physical["Topic"] = topic
    before = cloudwatch.describe_alarms(MaxRecords=100)["MetricAlarms"]
    kept = ("AlarmName", "AlarmDescription", "MetricName", "Namespace", "Statistic", "Dimensions")
    kept += ("Period", "EvaluationPeriods", "DatapointsToAlarm", "Threshold")
    kept += ("ComparisonOperator", "TreatMissingData")

    def put(alarm, *actions):
        same = {name: alarm[name] for name in kept if name in alarm}
        cloudwatch.put_metric_alarm(**same, AlarmActions=list(actions))

    try:
        for alarm in before:
            put(alarm, topic)
        assert "CloudWatch may not publish" in red("notifies", run)
        publish = {
            "Effect": "Allow",
            "Action": "sns:Publish",
            "Principal": {"Service": "cloudwatch.amazonaws.com"},
            "Resource": topic,
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [publish]})
        sns.set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=policy)
        assert red("notifies", run) == "the topic has no subscription"
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint="arn:aws:sqs:us-east-1:1:q")
        (line,) = verify.run_check("notifies", run)
        assert line.state is State.PASSED, line.saw
        put(before[0])
        assert red("notifies", run) == f"1 alarm without a recipient: {before[0]['AlarmName']}"
    finally:
        for alarm in before:
            put(alarm)
        sns.delete_topic(TopicArn=topic)


def test_after_an_interruption_no_product_is_left(aws):
    # It waits for an answer that does not come.
    verify = (COMMAND, "verify", "--only", "leftovers", "--only", "places")
    with disabled(aws, "PlaceOrders", queues.STANDARD), in_the_background(*verify) as started:
        wait_until(aws, lambda: queues.depth(aws, queues.STANDARD).total)
        assert len(listed(aws)) == 1
        started.send_signal(signal.SIGTERM)
        output, errors = started.communicate(timeout=120)
    assert started.returncode == 130, output + errors
    assert "Interrupted" in errors
    assert "left-overs" in output
    assert "Its products are delisted and its dead letters removed." in output
    assert listed(aws) == []
    saved = json.loads((STATE / "verify.json").read_text())
    assert (saved["verdict"], saved["left"]) == ("interrupted", [])
    wait_until_settled(aws)
