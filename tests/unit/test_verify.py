"""The verification: how results are judged, checks that need an account, and the command's output."""

import json
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from inventory_orders.lanes.levels import StockLevel
from inventory_orders.naming import stack_name
from inventory_orders.store.cancellations import CancellationReason, TransactionCancelledError
from inventory_orders.store.tables import Table
from local.commands import main
from local.commands.embedded import ThisCheckout
from operations import queues, verify
from operations.commands import verification
from operations.commands.target import Target
from operations.errors import UserError
from operations.follow import Heard
from operations.verify import figures, stack, traffic
from operations.verify.deployed import Deployed, differences
from operations.verify.report import Line, Report, State, judged
from operations.verify.run import Run
from testing.schedules.in_turn.bench import product

QUEUE_URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/Orders"
ALARM = {"TreatMissingData": "notBreaching", "StateReason": "1 > 0"}
PLACE = "account 123456789012, eu-west-1, stack InventoryOrders-live"
OUTPUTS = {"OrderQueueUrl": QUEUE_URL, "OrdersTableName": "the-orders"}
OUTPUTS |= {"PlaceOrdersFunctionName": "place"}
METRICS = [
    ["InventoryOrders", "OrdersPlaced", "service", "s", {}],
    ["InventoryOrders", "LowStock", "service", "s"],
    [{"expression": "a + b"}],
]
BOARD = json.dumps({"widgets": [{"properties": {"metrics": METRICS}}]})


def resource(kind, **properties):
    return {"Type": f"AWS::{kind}", "Properties": properties}


def template():
    path = {"aws:cdk:path": "InventoryOrders-live/Queues/OrderQueue/Resource"}
    queue = {"Name": "Q", "Value": {"Fn::GetAtt": ["Queue", "QueueName"]}}
    variables = {"Variables": {"POWERTOOLS_SERVICE_NAME": "inventory-orders-live"}}
    replica = {"DeletionProtectionEnabled": True}
    return Deployed(
        stack={
            "StackId": "arn:aws:cloudformation:eu-west-1:123456789012:stack/InventoryOrders-live/1",
            "StackStatus": "UPDATE_COMPLETE",
            "CreationTime": datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        },
        resources={
            "Queue": {"Type": "AWS::SQS::Queue", "Metadata": path},
            "Alarm": resource("CloudWatch::Alarm", Threshold=0, Dimensions=[queue]),
            "Place": resource("Lambda::Function", Environment=variables),
            "Orders": resource("DynamoDB::GlobalTable", KeySchema=[], Replicas=[replica]),
            "Dashboard": resource("CloudWatch::Dashboard", DashboardBody=BOARD),
        },
        physical={"Queue": QUEUE_URL, "Alarm": "the-alarm", "Place": "place"}
        | {"Orders": "the-orders", "Dashboard": "board"},
    )


class CloudWatch:
    """Gives prepared answers in sequence, and repeats the last one."""

    def __init__(self, alarms=(), sums=()):
        self.alarms, self.sums = list(alarms), list(sums)

    def describe_alarms(self, AlarmNames, **_):
        now = self.alarms.pop(0) if len(self.alarms) > 1 else self.alarms[0]
        common = {"Threshold": 0.0, "Dimensions": [{"Name": "Q", "Value": "Orders"}]}
        common |= {"ActionsEnabled": True, "StateUpdatedTimestamp": datetime.now(UTC)}
        return {"MetricAlarms": [{"AlarmName": AlarmNames[0], **common, **ALARM, **now}]}

    def get_metric_data(self, MetricDataQueries, **_):
        now = self.sums.pop(0) if len(self.sums) > 1 else self.sums[0]
        return {
            "MetricDataResults": [
                {"Id": query["Id"], "Values": [now]} for query in MetricDataQueries
            ]
        }

    def get_paginator(self, _):
        names = [{"MetricName": "OrdersPlaced"}, {"MetricName": "Other"}]
        return SimpleNamespace(paginate=lambda **_: [{"Metrics": names}])


@pytest.fixture
def asked():
    """Return the lines that the run prints while it waits."""
    return []


@pytest.fixture
def run(monkeypatch, asked):
    """Make a run on an account, in which no time passes. Tests set its clients."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    tables = {Table.ORDERS: OUTPUTS["OrdersTableName"]}
    aws = SimpleNamespace(outputs=OUTPUTS, place=PLACE, tables=tables)
    made = Run(aws, "InventoryOrders-live", embedded=False, say=asked.append)
    made.deployed = template()
    made.placed = 7
    return made


def clients(monkeypatch, run, **services):
    monkeypatch.setattr(run, "client", lambda service: services[service])


def states(lines):
    return [line.state for line in lines]


# ------------------------------------------------------------------ the report


@pytest.mark.parametrize(
    ("states", "finished", "left", "verdict"),
    [
        ([State.PASSED, State.NOT_HERE], True, [], "passed"),
        ([State.PASSED, State.FAILED], True, [], "failed"),
        ([State.PASSED], False, [], "interrupted"),
        ([State.PASSED], True, ["verify-1-hot: still listed"], "failed"),
    ],
)
def test_a_report_is_good_if_all_checks_ran_none_is_red_and_nothing_remains(
    states, finished, left, verdict
):
    report = Report({"stack": "s"}, "verify-1", "2026-01-01", finished=finished, left=left)
    report.lines = [("check", Line(f"line {n}", state, "saw")) for n, state in enumerate(states)]
    assert report.good is (verdict == "passed")
    content = report.as_json()
    assert content["verdict"] == verdict
    counts = (State.PASSED, State.FAILED, State.NOT_HERE)
    assert [content[name] for name in ("passed", "failed", "notHere")] == [
        *map(states.count, counts)
    ]
    line = {"check": "check", "name": "line 0", "state": "passed", "saw": "saw"}
    assert content["lines"][0] == line


def test_a_line_names_the_first_problems_and_counts_the_others():
    (line,) = judged("name", [f"problem {n}" for n in range(6)], "fine")
    assert line.state is State.FAILED
    assert line.saw == "problem 0; problem 1; problem 2; problem 3; and 2 more"
    assert judged("name", [], "fine") == [Line("name", State.PASSED, "fine")]


def test_a_permission_of_the_operator_that_is_missing_is_named(monkeypatch):
    message = (
        "User: arn:aws:iam::1:user/me is not authorized to perform: cloudwatch:GetDashboard on "
        "resource: arn:aws:cloudwatch::1:dashboard/x because no identity-based policy allows it"
    )

    def check(run):
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": message}}, "GetDashboard")

    monkeypatch.setitem(verify.CHECKS, "dashboard", check)
    (line,) = verify.run_check("dashboard", None)
    assert line.state is State.FAILED
    assert line.saw == (
        "not allowed: this needs cloudwatch:GetDashboard on arn:aws:cloudwatch::1:dashboard/x. "
        "Grant it to your credentials"
    )


def test_every_check_has_a_line_in_words_about_itself():
    assert all((check.__doc__ or "").strip() for check in verify.CHECKS.values())
    assert set(verify.TITLES) <= set(verify.CHECKS)


# ------------------------------------------------------------------ the deployed configuration


def test_only_differences_from_the_deployment_are_named():
    deployed = {"BatchSize": 99, "Flag": True, "Types": ["a", "b"], "Nested": {"x": 1}}
    found = {"BatchSize": "99", "Flag": "true", "Types": ["b", "a"], "Nested": {"x": 2}, "More": 1}
    assert differences("it", deployed, found) == ["it Nested x is 2, but was deployed as 1"]
    assert differences("it", {"Nested": {"x": 1}}, {}) == [
        "it Nested x is null, but was deployed as 1"
    ]


def test_a_failed_deployment_is_red(run):
    assert states(stack.deployment(run)) == [State.PASSED]
    run.deployed.stack["StackStatus"] = "UPDATE_ROLLBACK_COMPLETE"
    (line,) = stack.deployment(run)
    assert line.state is State.FAILED
    assert "is UPDATE_ROLLBACK_COMPLETE" in line.saw


# ------------------------------------------------------------------ checks that need an account


def test_verify_waits_until_alarms_are_off(monkeypatch, run, asked):
    on, unknown, off = ({"StateValue": state} for state in ("ALARM", "INSUFFICIENT_DATA", "OK"))
    clients(monkeypatch, run, cloudwatch=CloudWatch([off, on, on, unknown, off]))
    assert states(stack.alarms(run)) == [State.PASSED, State.PASSED]
    assert asked[0] == "CloudWatch: 1 alarm to be off (0:00 of at most 15:00)"


@pytest.mark.parametrize(
    ("alarm", "says"),
    [
        ({"StateValue": "ALARM"}, "Alarm is on: 1 > 0"),
        ({"StateValue": "INSUFFICIENT_DATA"}, "Alarm has never had a value of its metric"),
        ({"StateValue": "INSUFFICIENT_DATA", "TreatMissingData": "ignore"}, None),
        ({"StateValue": "INSUFFICIENT_DATA", "Metrics": []}, None),
        ({"StateValue": "INSUFFICIENT_DATA", "WarmUpConfiguration": {}}, None),
        ({"StateValue": "OK"}, None),
    ],
)
def test_an_alarm_that_stays_on_or_blind_is_red(monkeypatch, run, asked, alarm, says):
    clients(monkeypatch, run, cloudwatch=CloudWatch([alarm]))
    line = stack.alarms(run)[1]
    assert line.state is (State.FAILED if says else State.PASSED)
    assert (line.saw == says) is (says is not None)
    assert bool(asked) is (says is not None)


def test_metric_math_is_compared_as_far_as_the_template_sets_it(monkeypatch, run):
    deployed = [{"Id": "e", "Expression": "FILL(m, 0)"}, {"Id": "m", "ReturnData": False}]
    run.deployed.resources["Alarm"]["Properties"] = {"Metrics": deployed}
    described = [deployed[1], deployed[0] | {"ReturnData": True, "Label": "e"}]
    clients(monkeypatch, run, cloudwatch=CloudWatch([{"Metrics": described, "StateValue": "OK"}]))
    assert states(stack.alarms(run)) == [State.PASSED, State.PASSED]
    changed = [deployed[0] | {"Expression": "m"}, deployed[1]]
    clients(monkeypatch, run, cloudwatch=CloudWatch([{"Metrics": changed, "StateValue": "OK"}]))
    (line, _) = stack.alarms(run)
    assert "Alarm Metrics e Expression is m, but was deployed as FILL(m, 0)" in line.saw


def test_an_alarm_that_was_on_before_is_red_without_waiting(monkeypatch, run, asked):
    before = datetime.fromtimestamp(run.began, UTC) - timedelta(minutes=1)
    alarm = {"StateValue": "ALARM", "StateUpdatedTimestamp": before}
    clients(monkeypatch, run, cloudwatch=CloudWatch([alarm]))
    assert stack.alarms(run)[1].state is State.FAILED
    assert asked == []


def test_verify_waits_until_metrics_have_the_values_of_the_run(monkeypatch, run, asked):
    clients(monkeypatch, run, cloudwatch=CloudWatch(sums=[0, 3, 7]))
    (line,) = stack.metrics(run)
    assert line.state is State.PASSED
    assert "1 of 2 metrics of the handlers that the dashboard shows" in line.saw
    assert [text.split(" (")[0] for text in asked] == [
        "CloudWatch: 5 metrics to arrive, such as OrdersPlaced",
        "CloudWatch: 1 metrics to arrive, such as OrdersPlaced",
    ]


def test_with_basic_monitoring_verify_waits_for_the_metrics_of_aws(monkeypatch, run):
    del run.deployed.resources["Dashboard"]
    clients(monkeypatch, run, cloudwatch=CloudWatch(sums=[1]))
    assert states(stack.metrics(run)) == [State.PASSED]
    assert states(stack.dashboard(run)) == [State.NOT_HERE]


def test_without_the_fifo_queue_its_sequence_is_not_checked(run):
    assert states(traffic.fifo(run)) == [State.NOT_HERE]


def test_a_metric_that_never_arrives_is_red_after_fifteen_minutes(monkeypatch, run, asked):
    clients(monkeypatch, run, cloudwatch=CloudWatch(sums=[6]))
    (line,) = stack.metrics(run)
    assert line.state is State.FAILED
    assert line.saw == "OrdersPlaced is at 6, not 7"
    assert "(14:50 of at most 15:00)" in asked[-1]


@pytest.mark.parametrize(
    ("deployed", "found", "says"),
    [
        ({"RecursiveLoop": "Allow"}, "Allow", None),
        ({"RecursiveLoop": "Allow"}, "Terminate", "is Terminate, but was deployed as Allow"),
        ({}, "Terminate", None),
        ({}, "Allow", "is Allow, but was deployed as Terminate"),
    ],
)
def test_changed_recursive_loop_detection_is_red(run, deployed, found, says):
    run.deployed.resources["Place"]["Properties"] |= deployed
    run.deployed.resources["Live"] = resource(
        "Lambda::Alias", FunctionName="place", FunctionVersion="1"
    )
    active = {"State": "Active", "LastUpdateStatus": "Successful", "Version": "1"}
    active["Environment"] = run.deployed.resources["Place"]["Properties"]["Environment"]
    run.aws.functions = SimpleNamespace(
        get_function_configuration=lambda **_: {"Runtime": "python3.14", **active},
        get_function_concurrency=lambda **_: {},
        get_function_recursion_config=lambda **_: {"RecursiveLoop": found},
    )
    functions, recursion = stack.functions(run)
    assert functions.state is State.PASSED
    assert recursion.state is (State.FAILED if says else State.PASSED)
    assert (says or "as deployed") in recursion.saw
    run.embedded = True
    assert stack.functions(run)[1].state is State.NOT_HERE


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, None),
        ({"SSEDescription": {"Status": "DISABLED"}}, None),
        (
            {"SSEDescription": {"Status": "ENABLED", "KMSMasterKeyArn": "arn:k"}},
            "Orders is encrypted with arn:k, not with DynamoDB's own key",
        ),
        (
            {"DeletionProtectionEnabled": False},
            "Orders DeletionProtectionEnabled is false, but was deployed as true",
        ),
        ({"recovery": "DISABLED"}, "Orders cannot be restored to a point in time"),
    ],
)
def test_a_table_without_protection_is_red(run, change, says):
    table = {"TableStatus": "ACTIVE", "KeySchema": [], "DeletionProtectionEnabled": True}
    recovery = {"PointInTimeRecoveryStatus": change.get("recovery", "ENABLED")}
    run.aws.dynamodb = SimpleNamespace(
        describe_table=lambda **_: {"Table": table | change},
        describe_continuous_backups=lambda **_: {
            "ContinuousBackupsDescription": {"PointInTimeRecoveryDescription": recovery}
        },
    )
    shape, protection = stack.tables(run)
    assert shape.state is State.PASSED
    assert protection.state is (State.FAILED if says else State.PASSED)
    assert (says or "point-in-time recovery") in protection.saw


@pytest.mark.parametrize(
    ("policy", "subscriptions", "actions", "says"),
    [
        ("SNS:Publish", ["arn:1"], ["the-topic"], None),
        (
            "SNS:Publish",
            ["PendingConfirmation"],
            ["the-topic"],
            "a@b.example has not confirmed the subscription: ",
        ),
        ("SNS:Publish", [], ["the-topic"], "the topic has no subscription"),
        ("SNS:Publish", ["arn:1"], [], "1 alarm without a recipient: the-alarm"),
        ("SNS:Subscribe", ["arn:1"], ["the-topic"], "CloudWatch may not publish to the topic"),
    ],
)
def test_an_alarm_that_does_not_reach_a_mailbox_is_red(
    monkeypatch, run, policy, subscriptions, actions, says
):
    run.deployed.resources["Topic"] = resource("SNS::Topic")
    run.deployed.physical["Topic"] = "the-topic"
    statement = {"Effect": "Allow", "Action": policy}
    statement["Principal"] = {"Service": "cloudwatch.amazonaws.com"}
    attributes = {"Policy": json.dumps({"Statement": [statement]})}
    found = [{"SubscriptionArn": arn, "Endpoint": "a@b.example"} for arn in subscriptions]
    sns = SimpleNamespace(
        get_topic_attributes=lambda **_: {"Attributes": attributes},
        list_subscriptions_by_topic=lambda **_: {"Subscriptions": found},
    )
    clients(monkeypatch, run, sns=sns, cloudwatch=CloudWatch([{"AlarmActions": actions}]))
    (line,) = stack.notifies(run)
    assert line.state is (State.FAILED if says else State.PASSED)
    assert line.saw.startswith(says or "1 alarms have actions")


def test_a_role_may_have_a_permission_on_everything(monkeypatch, run):
    tracing = {"Effect": "Allow", "Action": "xray:PutTraceSegments", "Resource": "*"}
    document = {"Statement": [tracing]}
    run.deployed.resources["Role"] = resource("IAM::Role")
    run.deployed.resources["Policy"] = resource(
        "IAM::Policy", Roles=[{"Ref": "Role"}], PolicyDocument=document
    )
    run.deployed.physical["Role"] = "the-role"
    allowed = {"EvalActionName": tracing["Action"], "EvalDecision": "allowed"}
    simulate = Mock(return_value={"EvaluationResults": [allowed]})
    clients(monkeypatch, run, iam=SimpleNamespace(simulate_principal_policy=simulate))
    assert states(stack.roles(run)) == [State.PASSED]
    simulate.assert_called_once_with(
        PolicySourceArn="arn:aws:iam::123456789012:role/the-role",
        ActionNames=["xray:PutTraceSegments"],
        ResourceArns=["*"],
    )


# ------------------------------------------------------------------ traffic


def test_a_database_that_remembers_a_cancelled_token_is_red(monkeypatch, run):
    """The engine relies on DynamoDB forgetting the token of a cancelled transaction. Emulators forget it, too."""
    product = SimpleNamespace(version=1)

    class Remembers:
        def write(self, actions, token):
            reason = CancellationReason(*actions, "ConditionalCheckFailed", product)
            raise TransactionCancelledError([reason])

    monkeypatch.setattr(run, "aws", SimpleNamespace(store=Remembers))
    monkeypatch.setattr(run, "list_product", lambda *_: "p")
    monkeypatch.setattr(run, "command", lambda *_: {})
    (line,) = verify.run_check("token", run)
    assert line.state is State.FAILED
    assert "DynamoDB remembers a cancelled token" in line.saw


def test_the_log_shows_invocations_their_price_and_cold_starts():
    lines = [
        '{"message":"batch done","cold_start":true,"function_name":"f","function_request_id":"r-1","messages":7}',
        '{"level": "INFO", "message": "batch done", "messages": 10, "correlation_ids": []}',
        '{"level": "INFO", "message": "something else", "messages": 99}',
        "REPORT RequestId: r-1\tDuration: 80.5 ms\tBilled Duration: 100 ms\tMemory Size: 512 MB\t"
        "Max Memory Used: 90 MB\tInit Duration: 412.25 ms\t",
        "REPORT RequestId: r-2\tDuration: 9 ms\tBilled Duration: 900 ms\tMemory Size: 512 MB\t",
        "no report",
    ]
    found = figures.invocations_of(lines)
    assert (found.count, found.gigabyte_seconds, found.cold) == (2, 0.5, [412.25])
    assert found.batches == [7, 10]
    # The embedded AWS starts a worker during its first invocation, and does not report how long that took.
    embedded = [line.split("\tInit Duration")[0] for line in lines]
    assert figures.invocations_of(embedded).cold == [100.0]


def test_a_run_continues_although_a_dead_letter_queue_is_too_long_to_read(run):
    """The first messages become visible again before the end of the queue is reached."""
    bodies, removed = iter(['{"orderId": "verify-260101-000000-abcd-o"}']), []

    def receive(**_):
        time.sleep(1)
        assert time.monotonic() < 3600
        message = {"MessageId": "m", "ReceiptHandle": "r", "Attributes": {"SentTimestamp": "0"}}
        return {"Messages": [message | {"Body": next(bodies, "another sender's")}]}

    run.aws.sqs = SimpleNamespace(
        get_queue_attributes=lambda AttributeNames, **_: {
            "Attributes": dict.fromkeys(AttributeNames, "100000")
        },
        receive_message=receive,
        delete_message=lambda **request: removed.append(request),
        change_message_visibility_batch=lambda **_: {},
    )
    run.aws.outputs = dict.fromkeys(queues.DEAD_LETTERS, QUEUE_URL)
    assert run.remove_old_dead_letters() == len(removed) == 1


def test_waiting_ends(run):
    with pytest.raises(verify.CheckFailedError, match="something: still nothing after 60 s"):
        run.wait(lambda: None, "something")


def test_a_run_waits_longer_by_the_longest_batching_window(monkeypatch, run):
    for seconds in (5, 300):
        run.deployed.resources[f"Mapping{seconds}"] = resource(
            "Lambda::EventSourceMapping", MaximumBatchingWindowInSeconds=seconds
        )
    run.deployed.resources["Stream"] = resource("Lambda::EventSourceMapping")
    monkeypatch.setattr(verify, "CHECKS", {})
    verify.verify(run, Report({}, run.name, run.started_at))
    assert run.patience == 360


# ------------------------------------------------------------------ the command


@pytest.mark.parametrize(
    ("stage", "credentials", "expected"),
    [(None, True, None), ("dev", True, "dev"), ("dev", False, None), ("live", True, "live")],
)
def test_which_aws_the_command_verifies(monkeypatch, stage, credentials, expected):
    monkeypatch.setattr(verification, "has_account", lambda: credentials)
    chosen = verification._chosen(stage and Target(stack_name(stage)))
    assert chosen == (expected and Target(stack_name(expected)))


def test_another_stage_without_credentials_is_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setattr(verification, "has_account", lambda: False)
    with pytest.raises(
        UserError, match="there are no AWS credentials for InventoryOrders-live: set AWS_"
    ):
        verification._chosen(Target("InventoryOrders-live"))


def shop_of(paths):
    """Return a function that reads the stack of an app with these constructs, and lists the resources of one service."""
    resources = {}
    for path in paths:
        kind = "DynamoDB::GlobalTable" if path.endswith("Tables/Orders") else "Lambda::Function"
        metadata = {"Metadata": {"aws:cdk:path": f"Shop/{path}/Resource"}}
        resources[path.replace("/", "")] = resource(kind) | metadata
    made = [
        {"LogicalResourceId": logical, "PhysicalResourceId": logical.lower()}
        for logical in resources
    ]
    cloudformation = SimpleNamespace(
        describe_stacks=lambda **_: {"Stacks": [{"StackName": "Shop"}]},
        get_template=lambda **_: {"TemplateBody": {"Resources": resources}},
        get_paginator=lambda _: SimpleNamespace(
            paginate=lambda **_: [{"StackResourceSummaries": made}]
        ),
    )
    dynamodb = SimpleNamespace(describe_table=lambda **_: {"Table": {}})

    def parts(service):
        table = f"{service}TablesOrders".lower()
        return list(Deployed.of(cloudformation, dynamodb, "Shop", table).resources)

    return resources, parts


def test_in_the_stack_of_an_app_only_the_resources_of_the_service_count():
    ours = ["Tea/Tables/Orders", "Tea/Functions/Place", "Tea/Api/Log"]
    others = ["TeaApi/Tables/Orders", "TeaApi/Functions/Place"]
    _, parts = shop_of([*ours, *others, "TeaQueues", "Checkout"])
    assert parts("Tea") == ["TeaTablesOrders", "TeaFunctionsPlace", "TeaApiLog"]
    assert parts("TeaApi") == ["TeaApiTablesOrders", "TeaApiFunctionsPlace"]


def test_a_stack_without_the_paths_of_its_constructs_must_be_deployed_again():
    resources, parts = shop_of(["Tea/Tables/Orders"])
    del resources["TeaTablesOrders"]["Metadata"]
    with pytest.raises(UserError, match=r"Shop was deployed by an older version, .*: deploy it"):
        parts("Tea")


def test_an_unknown_check_is_refused_and_the_known_ones_are_named():
    done = CliRunner().invoke(main.app, ["verify", "--only", "everything"])
    assert done.exit_code == 2
    assert "there is no check everything" in " ".join(done.output.split())


@pytest.fixture
def of_live(monkeypatch, run, tmp_path):
    """Prepare `verify` for a stack on an account, with one check. Returns the orders that it would have sent."""
    sent = []
    monkeypatch.setattr(verification, "_run_on", lambda _: (run, ""))
    monkeypatch.setattr(ThisCheckout, "folder", tmp_path)

    def check(run):
        sent.append(run.orders)
        return judged("name", [], "saw")

    for name in verify.CHECKS:
        monkeypatch.setitem(verify.CHECKS, name, check)
    return sent


def run_command(*options, answer=""):
    command = ["verify", "--stage", "live", "--only", "hot", *options]
    return CliRunner().invoke(main.app, command, input=answer)


def test_a_protected_stack_needs_confirmation_and_gets_ten_orders(run, of_live, tmp_path):
    done = run_command()
    assert done.exit_code == 0
    assert done.output.splitlines()[0] == f"AWS: {PLACE}"
    assert of_live == [1000]
    run.deployed.stack["EnableTerminationProtection"] = True
    refused = run_command(answer="n\n")
    assert refused.exit_code == 1
    assert "InventoryOrders-live is protected" in refused.output
    assert of_live == [1000]
    assert run_command(answer="y\n").exit_code == run_command("--yes").exit_code == 0
    assert of_live == [1000, 10, 10]
    saved = json.loads((tmp_path / "verify.json").read_text())
    assert (saved["account"], saved["region"]) == ("123456789012", "eu-west-1")
    assert saved["verdict"] == "passed"


@pytest.mark.parametrize(
    ("error", "left", "status", "says"),
    [
        (None, "", 1, "Not verified: 0 of 1 line green"),
        (KeyboardInterrupt, "", 130, "Not finished: 0 of 0 lines green"),
        (None, "verify-1-hot: denied", 1, "Left: verify-1-hot: denied"),
    ],
)
def test_red_interrupted_and_leftover_runs_have_their_exit_status(
    monkeypatch, run, of_live, tmp_path, error, left, status, says
):
    def check(run):
        run.products.append("verify-1-hot")
        if error:
            raise error
        return judged("it", ["broken"], "fine")

    monkeypatch.setitem(verify.CHECKS, "hot", check)
    monkeypatch.setattr(run, "_delist", lambda product_id: left)
    done = run_command()
    assert done.exit_code == status
    assert says in done.output
    assert run.products == (["verify-1-hot"] if left else [])
    saved = json.loads((tmp_path / "verify.json").read_text())
    assert saved["left"] == ([left] if left else [])


@pytest.fixture
def counting(monkeypatch, run):
    """Fake a stack that answers orders slowly. Returns its answers to a count, and the requested actions."""
    rows, ends, actions = {}, [0.0], []
    told = {"lease": {}, "onHand": 10, "committed": 2, "available": 8, "delta": -3}

    def command(function, command, wanted):
        action = command["action"]
        if function == "CountStock":
            actions.append(action)
            assert action == "acquire" or time.monotonic() < ends[0], "the lease has ended"
            ends[0] = time.monotonic() + command.get("seconds", 0)
        return told

    def send(queue, *orders):
        if len(orders) == 1:
            rows[orders[0]["orderId"]] = time.monotonic()
        else:
            rows[orders[1]["orderId"]] = time.monotonic() + 45

    def row(order):
        if order["orderId"] in rows:
            is_there = time.monotonic() >= rows[order["orderId"]]
        else:
            is_there = "commit" in actions
        return {"status": "PENDING"} if is_there else None

    for name, double in {"command": command, "send": send, "row": row}.items():
        monkeypatch.setattr(run, name, double)
    monkeypatch.setattr(
        run, "level", lambda _: StockLevel(told.get("row", product("p", 4, on_hand=7)))
    )
    return told, actions


def test_the_lease_of_a_count_lasts_until_a_slow_queue_has_answered(run, counting):
    """Lambda may wait 20 s before it delivers messages of a quiet queue, and the order itself takes some time."""
    assert states(traffic.counts(run)) == [State.PASSED]
    assert counting[1] == ["acquire", *["renew"] * 5, "commit"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"committed": 0, "available": 10}, "a count starts with {'onHand': 10, 'committed': 0"),
        ({"delta": -1}, "7 of 10 units were counted, and -1 were booked"),
        ({"row": product("p", 4, on_hand=9)}, "9 are on hand and 4 available, not 7 and 4"),
    ],
)
def test_a_count_that_ignores_open_orders_is_detected(run, counting, wrong, says):
    counting[0].update(wrong)
    (line,) = verify.run_check("counts", run)
    assert line.state is State.FAILED
    assert says in line.saw


@pytest.fixture
def held(monkeypatch, run):
    """Make an order whose hold ended at 12:01:00, with a grace period of 60 s. Tests set its row."""
    functions = run.deployed.resources["Place"]["Properties"]
    functions["Environment"]["Variables"] |= {"HOLD_GRACE_SECONDS": "60", "SWEEP_MINUTES": "1"}
    line = {"productId": "p", "quantity": 2}
    run.held = {"orderId": "o", "items": [line], "expiresAt": "2026-01-01T12:01:00.000000+00:00"}
    row = {"status": "PENDING", "lastUpdatedAt": "2026-01-01T12:00:00.000000+00:00"}
    monkeypatch.setattr(run, "row", lambda order: row)
    monkeypatch.setattr(run, "stock", lambda product: 5)
    return row


@pytest.mark.parametrize(
    ("status", "second", "says"),
    [
        ("EXPIRED", "02:03", None),
        ("EXPIRED", "01:59", "expired 1.0 s before its end and the grace of 60 s"),
        ("CONFIRMED", "02:03", "an order that was not confirmed is CONFIRMED"),
        (
            "PENDING",
            "00:00",
            "a hold did not expire (check Sweep and the event source mapping of ExpiryQueue)",
        ),
    ],
)
def test_a_hold_has_to_expire_after_its_grace_period(run, held, status, second, says):
    held |= {"status": status, "lastUpdatedAt": f"2026-01-01T12:{second}.000000+00:00"}
    (line,) = verify.run_check("expires", run)
    assert line.state is (State.FAILED if says else State.PASSED)
    assert (says or "EXPIRED 3.0 s after its end and the grace of 60 s") in line.saw


@pytest.mark.parametrize(
    ("routes", "status", "state", "says"),
    [
        ([], None, State.NOT_HERE, "the stack has none"),
        (["AWS_IAM"], 200, State.FAILED, "answered 200 to a request without credentials"),
        (["AWS_IAM"], 403, State.FAILED, "your credentials need execute-api:Invoke on the API"),
    ],
)
def test_an_api_that_refuses_signatures_is_reported(monkeypatch, run, routes, status, state, says):
    for number, kind in enumerate(routes):
        run.deployed.resources[f"Route{number}"] = resource(
            "ApiGatewayV2::Route", AuthorizationType=kind
        )
    answer = SimpleNamespace(send=lambda *_, **__: SimpleNamespace(status=status, said={}))
    monkeypatch.setattr(traffic.HttpApi, "of", lambda aws: answer)
    monkeypatch.setattr(run, "list_product", lambda *_: "p")
    (line,) = verify.run_check("api", run)
    assert line.state is state
    assert says in line.saw


def test_an_order_without_events_at_first_is_sent_again(monkeypatch, run):
    """On AWS, a new rule may not match at first. Events from that time are never delivered."""
    sent = []

    @contextmanager
    def listening(aws):
        def listen(seconds):
            time.sleep(seconds)
            if len(sent) == 13:
                placed = {"detail-type": "OrderPlaced", "detail": {"data": sent[-1]}}
                yield Heard(placed, delay=0.1)

        yield listen

    monkeypatch.setattr(traffic, "listening", listening)
    monkeypatch.setattr(run, "list_product", lambda *_: "p")
    monkeypatch.setattr(run, "send", lambda queue, order: sent.append(order))
    monkeypatch.setattr(run, "row", lambda order: {"status": "PENDING"})
    (line,) = verify.run_check("events", run)
    assert (line.state, line.saw) == (State.PASSED, "OrderPlaced, 0.1 s after it occurred")


def test_verify_waits_for_a_deployment_in_progress():
    named = SimpleNamespace(
        describe_stacks=lambda **_: {"Stacks": [{"StackStatus": "UPDATE_IN_PROGRESS"}]},
        get_template=lambda **_: {"TemplateBody": {"Resources": {}}},
        get_paginator=lambda _: SimpleNamespace(
            paginate=lambda **_: [{"StackResourceSummaries": [{"LogicalResourceId": "Queue"}]}]
        ),
    )
    with pytest.raises(UserError, match="InventoryOrders-live is UPDATE_IN_PROGRESS: wait until"):
        Deployed.of(named, None, "InventoryOrders-live")
