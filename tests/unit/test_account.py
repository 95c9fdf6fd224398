"""Commands that need an AWS account report missing prerequisites in one line, before the CDK starts."""

import io
import json
import os
import re
import subprocess
from collections import defaultdict
from contextlib import ExitStack
from types import SimpleNamespace
from urllib.error import HTTPError

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.stub import Stubber
from typer.testing import CliRunner

from infra.settings import Settings
from inventory_orders.api.orders import MAX_WAIT_SECONDS
from inventory_orders.store.tables import Table
from local import ROOT
from local.commands import deployment
from local.commands.main import app
from operations import preflight
from operations.account import AwsAccount
from operations.aws import Aws
from operations.commands import books, target
from operations.commands.target import Target
from operations.errors import UserError
from operations.queues import DEAD_LETTERS, QUEUES

STAGED = ("diff", "validate", "deploy", "diagnose", "destroy")
ON_ACCOUNT = (
    ["bootstrap"],
    *([command, "--stage", "live"] for command in (*STAGED, "status", "audit", "redrive")),
    ["status", "--account", "live"],
)


@pytest.fixture
def cdk(monkeypatch):
    """Record the calls to the CDK instead of running it."""
    calls = []

    def run(command, **options):
        calls.append((command[1:], options["env"]))
        return subprocess.CompletedProcess(command, 0, stdout="")

    monkeypatch.setattr(deployment.subprocess, "run", run)
    return calls


def deploy(cdk):
    """Deploy, and return the output that is printed before the CDK runs."""
    done = CliRunner().invoke(app, ["deploy", "--stage", "dev"], catch_exceptions=False)
    assert len(cdk) == 1
    return done.stderr


def refused(arguments=("deploy", "--stage", "dev"), **options):
    error = CliRunner().invoke(app, arguments, **options).exception
    assert isinstance(error, UserError)
    assert "\n" not in str(error)
    return str(error)


@pytest.mark.parametrize("arguments", ON_ACCOUNT, ids=lambda arguments: arguments[0])
@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("AWS_ACCESS_KEY_ID", None, "there are no AWS credentials: set AWS_PROFILE, or"),
        ("AWS_DEFAULT_REGION", None, "no AWS region is configured: set AWS_REGION"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:4566", "points at this machine"),
    ],
)
def test_missing_credentials_or_region_are_reported_immediately(
    cdk, monkeypatch, variable, value, says, arguments
):
    monkeypatch.delenv(variable, raising=False)
    if value:
        monkeypatch.setenv(variable, value)
    assert says in refused(arguments)
    assert cdk == []


def test_a_stage_without_an_account_is_told_how_to_use_the_embedded_aws(monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    hint = "For the embedded AWS, leave out the stage (--stage, or STAGE of make)"
    assert refused(("audit", "--stage", "dev")).endswith(hint)
    # This command never uses the embedded AWS.
    assert "embedded" not in refused(("deploy", "--stage", "dev"))
    monkeypatch.setattr(target, "checkout", None)
    assert "embedded" not in refused(("audit", "--stage", "dev"))


def test_an_unknown_profile_is_named(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(UserError, match="no-such-profile"):
        AwsAccount.of_environment()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ClientError({"Error": {"Code": "ExpiredToken", "Message": "It is over"}}, "X"),
            r"does not accept these credentials \(ExpiredToken: It is over\): renew them",
        ),
        (EndpointConnectionError(endpoint_url="https://sts"), "cannot find out which account"),
    ],
)
def test_refused_credentials_are_reported_before_synthesis(cdk, monkeypatch, error, says):
    def fail(*_):
        raise error

    monkeypatch.setattr(BaseClient, "_make_api_call", fail)
    with pytest.raises(UserError, match=says):
        CliRunner().invoke(app, ["deploy", "--stage", "dev"], catch_exceptions=False)
    assert cdk == []


def refusal(code, message="no"):
    return ClientError({"Error": {"Code": code, "Message": message}}, "X")


def warm(read, write, **more):
    return {"WarmThroughput": {"ReadUnitsPerSecond": read, "WriteUnitsPerSecond": write}, **more}


BY_USER = warm(15_000, 9_000, IndexName="byUser")
ORDERS = warm(12_000, 8_000, TableName="Shop-Orders", GlobalSecondaryIndexes=[BY_USER])
NOT_DEPLOYED = refusal("ValidationError", "Stack with id X does not exist")


@pytest.fixture
def account(monkeypatch):
    """Fake an account with sufficient quotas. Returns its canned answers, keyed by operation; tests may replace them."""
    limit = {"ConcurrentExecutions": 90_000, "UnreservedConcurrentExecutions": 80_000}
    outputs = [
        {"OutputKey": name, "OutputValue": value}
        for name, value in (("OrdersTableName", "Shop-Orders"), ("ApiFunctionName", "Shop-Api"))
    ]
    answers = {
        "get_caller_identity": {"Account": "123456789012"},
        "get_account_settings": {"AccountLimit": limit},
        "get_function_concurrency": {},
        "describe_limits": dict.fromkeys(
            ("TableMaxReadCapacityUnits", "TableMaxWriteCapacityUnits"), 40_000
        ),
        "describe_stacks": {"Stacks": [{"Outputs": outputs}]},
        "describe_table": {"Table": ORDERS},
        "get_service_quota": {"Quota": {"Value": 18_750.0}},
        "describe_alarms": {"MetricAlarms": []},
    }

    class Client:
        def __getattr__(self, operation):
            return lambda *_, **__: self._answer(answers[operation])

        def _answer(self, found):
            if isinstance(found, Exception):
                raise found
            return found

    monkeypatch.setattr(AwsAccount, "client", lambda self, service: Client())
    return answers


def with_settings(monkeypatch, stage="dev", **changes):
    wanted = Settings.from_context(stage, changes)
    monkeypatch.setattr(deployment, "_settings", lambda stage: wanted)


def with_warm_throughput(monkeypatch, read, write):
    units = {"readUnitsPerSecond": read, "writeUnitsPerSecond": write}
    with_settings(monkeypatch, warmThroughput={"Orders": units})


def test_deploy_refuses_to_lower_warm_throughput_before_the_cdk_starts(cdk, account, monkeypatch):
    with_warm_throughput(monkeypatch, 12_000, 8_500)
    assert refused() == (
        "warmThroughput.Orders.readUnitsPerSecond is 12,000 in cdk.json, but the index byUser of Shop-Orders has 15,000; "
        "warmThroughput.Orders.writeUnitsPerSecond is 8,500 in cdk.json, but the index byUser of Shop-Orders has 9,000. "
        "DynamoDB never lowers it: set at least that value, or remove it from cdk.json, so that the table keeps its "
        "current value"
    )
    with_warm_throughput(monkeypatch, 15_000, 7_999)
    assert "is 7,999 in cdk.json, but the table Shop-Orders has 8,000;" in refused()
    assert cdk == []


def test_deploy_refuses_warm_throughput_above_the_quota_before_the_cdk_starts(
    cdk, account, monkeypatch
):
    with_warm_throughput(monkeypatch, 40_000, 40_001)
    assert refused().startswith(
        "warmThroughput.Orders.writeUnitsPerSecond is 40,001 in cdk.json, but the account allows a table 40,000. Lower it, or "
    )
    assert cdk == []


@pytest.mark.parametrize(
    ("operation", "answer", "note"),
    [
        ("describe_table", {"Table": ORDERS}, None),
        ("describe_limits", refusal("AccessDeniedException"), "warmThroughput fits the tables"),
        ("describe_table", {"Table": {"TableName": "Shop-Orders"}}, None),
        ("describe_table", refusal("AccessDenied"), "cannot check whether warmThroughput fits"),
        ("describe_stacks", NOT_DEPLOYED, None),
        ("describe_stacks", refusal("AccessDenied"), "cannot check whether warmThroughput fits"),
        ("describe_stacks", {"Stacks": [{}]}, None),
    ],
)
def test_deploy_continues_with_equal_warm_throughput_or_if_it_cannot_check(
    cdk, account, monkeypatch, operation, answer, note
):
    with_warm_throughput(monkeypatch, 15_000, 9_000)
    account[operation] = answer
    said = deploy(cdk)
    assert (note or "deploy: ") in said
    assert ("Note:" in said) is (note is not None)


def test_without_warm_throughput_in_the_settings_no_quota_is_checked(cdk, account):
    account["describe_limits"] = AssertionError("asked")
    assert "deploy: " in deploy(cdk)


LOW = (
    "Note: the account allows {0} concurrent executions of Lambda in us-east-1, {0} of them unreserved, but queues and "
    "streams may use 147 (OrderQueue 5, OrderQueueFifo 50, OrderQueueExpress 25, "
)
CALLERS = (
    "Note: waiting callers of the API may use 50,000 concurrent executions of Lambda (2000 a second, 25 s each), and queues "
    "and streams 147, but only {0:,} are unreserved. Waiting callers can starve the workers"
)
WITH_DESK = {
    "jwt": {"issuer": "https://id.example", "audience": ["desk"]},
    "holdSeconds": 900,
    "roles": {"claim": "roles", "grants": {"owners": ["*"]}},
    "desk": {"clientId": "desk"}
    | {name: f"https://id.example/{name}" for name in ("authorize", "token", "signOut")},
}
FIFTY, NINETY = ({"apiLimits": {"concurrentExecutions": number}} for number in (50, 90))


@pytest.mark.parametrize(
    ("free", "reserved_now", "settings", "note"),
    [
        (10, {}, {}, LOW),
        (146, {}, {}, LOW),
        (147, {}, {}, CALLERS),
        (50_146, {}, {}, CALLERS),
        (50_147, {}, {}, None),
        # Callers with reserved concurrency do not starve the workers.
        (200, {}, FIFTY, None),
        (200, {"ReservedConcurrentExecutions": 50}, NINETY, None),
        (200, {}, {"api": False}, None),
    ],
)
def test_deploy_explains_the_low_concurrency_limit_of_a_new_account(
    cdk, account, monkeypatch, free, reserved_now, settings, note
):
    assert preflight.LONGEST_WAIT_SECONDS == MAX_WAIT_SECONDS
    names = ("ConcurrentExecutions", "UnreservedConcurrentExecutions")
    account["get_account_settings"] = {"AccountLimit": dict.fromkeys(names, free)}
    account["get_function_concurrency"] = reserved_now
    with_settings(monkeypatch, **settings)
    said = deploy(cdk)
    assert (note or "deploy: ").format(free) in said
    assert ("Note:" in said) is (note is not None)
    assert ("publish_events 48, record_movements 8)" in said) is (note is LOW)


@pytest.mark.parametrize(
    ("stacks", "wanted", "publishers"),
    [
        (NOT_DEPLOYED, {}, 16 + 16),
        (NOT_DEPLOYED, {"Orders": (12_000, 40_000)}, 160 + 16),
        (NOT_DEPLOYED, {"Products": (30_000, 4_500)}, 16 + 40),
        # The Orders table has a warm throughput of 8,000 write units a second.
        (None, {}, 32 + 16),
        (None, {"Orders": (12_000, 9_001)}, 40 + 16),
        (refusal("AccessDenied"), {}, 16 + 16),
    ],
)
def test_the_publishers_of_a_table_follow_its_warm_throughput(account, stacks, wanted, publishers):
    if stacks:
        account["describe_stacks"] = stacks
    units = {
        name: {"readUnitsPerSecond": read, "writeUnitsPerSecond": write}
        for name, (read, write) in wanted.items()
    }
    account = AwsAccount(None, "us-east-1")
    assert preflight.count_readers(account, "Shop", units, "publish_events") == publishers


def test_the_reference_names_as_many_executions_as_deploy_counts(account):
    account["describe_stacks"] = NOT_DEPLOYED
    warm = {"Orders": {"readUnitsPerSecond": 12_000, "writeUnitsPerSecond": 40_000}}
    account = AwsAccount(None, "us-east-1")
    (new, most), (own, more), (for_desk, _) = (
        [preflight.count_readers(account, "Shop", units, function) for units in ({}, warm)]
        for function in preflight.READERS
    )
    queues = sum(q.maximumConcurrency for q in Settings.from_context("dev").queues.values())
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    assert f"`maximumConcurrency` ({queues})" in page
    assert f"({new} when new, {most} with `Orders` at 40,000 writes)" in page
    assert (
        f"- for `record_movements`, one for each of those of `Orders` ({own}, or {more}), and with `desk` of `Products` ({for_desk})"
        in page
    )


def test_deploy_refuses_a_reservation_that_lambda_would_refuse(cdk, account, monkeypatch):
    account["get_account_settings"]["AccountLimit"]["UnreservedConcurrentExecutions"] = 150
    with_settings(monkeypatch, apiLimits={"concurrentExecutions": 51})
    assert (
        "apiLimits.concurrentExecutions (51) in cdk.json would reserve 51 concurrent executions of Lambda, but only 150 of the "
        "account's are unreserved in us-east-1, and 100 of them must stay unreserved."
    ) in refused()
    account["get_account_settings"]["AccountLimit"]["UnreservedConcurrentExecutions"] = 104
    with_settings(monkeypatch, **WITH_DESK)
    assert refused().startswith("desk (5) in cdk.json would reserve 5 concurrent executions")
    with_settings(monkeypatch, **WITH_DESK, apiLimits={"concurrentExecutions": 1})
    assert refused().startswith("apiLimits.concurrentExecutions (1) and desk (5) in cdk.json")
    assert cdk == []
    account["get_account_settings"]["AccountLimit"]["UnreservedConcurrentExecutions"] = 150
    with_settings(monkeypatch, **FIFTY)
    assert "100 of them unreserved" in deploy(cdk)


def test_deploy_continues_if_it_may_not_read_the_limit(cdk, account):
    account["get_account_settings"] = refusal("AccessDeniedException")
    said = deploy(cdk)
    assert "147 concurrent executions" in said
    assert "API: An error occurred (AccessDeniedException)" in said


QUEUE = "ApproximateNumberOfMessages"


@pytest.mark.parametrize(
    ("held", "setting", "name"),
    [
        (QUEUE, "fifoQueue", "FIFO queue"),
        (f"{QUEUE}NotVisible", "fifoQueue", "FIFO queue"),
        (f"{QUEUE}Delayed", "api", "express queue"),
    ],
)
def test_deploy_refuses_to_remove_a_queue_that_holds_orders(
    cdk, account, monkeypatch, held, setting, name
):
    with_queues(account, defaultdict(lambda: "0", {held: "3"}))
    deploy(cdk)
    with_settings(monkeypatch, **{setting: False})
    assert refused().startswith(
        f"{setting} is false in cdk.json, but the {name} holds 3 messages and its dead-letter queue 3"
    )
    assert len(cdk) == 1


def test_deploy_removes_an_empty_queue_only_if_it_may_read_its_depth(cdk, account, monkeypatch):
    with_queues(account, defaultdict(lambda: "0"), refusal("AccessDenied"))
    with_settings(monkeypatch, fifoQueue=False)
    said = refused(["deploy", "--stage", "dev", "--yes"])
    assert said.startswith("cannot check whether orders are waiting in the FIFO queue")
    assert "sqs:GetQueueAttributes" in said
    assert cdk == []
    with_queues(account, defaultdict(lambda: "0"))
    deploy(cdk)


@pytest.mark.parametrize(
    ("delivered", "units", "noted"),
    [
        # The table of orders has a warm throughput of 8,000 write units a second.
        (750, {}, "allows 750 events for targets a second in this account and us-east-1, but"),
        (3_999, {}, "the table of orders supports 4,000 changes"),
        (4_000, {}, None),
        (4_000, {"writeUnitsPerSecond": 90_000}, "supports 45,000 changes"),
        (4_000, {"writeUnitsPerSecond": 90_000}, "allows 4,000 requests to publish events and 4,"),
    ],
)
def test_deploy_says_how_many_events_a_second_eventbridge_allows(account, delivered, units, noted):
    account["get_service_quota"] = {"Quota": {"Value": float(delivered)}}
    of_account = AwsAccount(None, "us-east-1")
    note = preflight.check_event_quotas(of_account, "Shop", {"Orders": units})
    assert (note is None) if noted is None else (noted in note)
    assert (
        note is None or "Invocations throttle limit in transactions per second: L-5540C5E3" in note
    )


def test_a_quota_that_the_account_never_changed_is_the_default_of_the_region(account):
    account["get_service_quota"] = refusal("NoSuchResourceException")
    account["get_aws_default_service_quota"] = {"Quota": {"Value": 750.0}}
    of_account = AwsAccount(None, "af-south-1")
    note = preflight.check_event_quotas(of_account, "Shop", {})
    assert "750 events for targets a second in this account and af-south-1" in note
    account["get_service_quota"] = refusal("AccessDeniedException")
    note = preflight.check_event_quotas(of_account, "Shop", {})
    assert note.startswith("cannot check how many events a second EventBridge allows: ")


ISSUER = "https://id.example/shop"
DISCOVERY, KEYS = f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/keys"


@pytest.fixture
def documents(monkeypatch):
    """Serve documents by address, which tests fill."""
    found = {}

    def answer(address, timeout):
        if found.get(address) is None:
            raise HTTPError(address, 404, "Not Found", {}, None)
        return io.BytesIO(found[address])

    monkeypatch.setattr(preflight, "urlopen", answer)
    return found


def discovery(issuer=ISSUER, keys=KEYS):
    return json.dumps({"issuer": issuer, "jwks_uri": keys}).encode()


@pytest.mark.parametrize("end", ["", "/"])
def test_an_issuer_whose_document_and_keys_are_there_is_accepted(documents, end):
    documents |= {DISCOVERY: discovery(ISSUER + end), KEYS: b'{"keys": []}'}
    assert preflight.check_issuer(ISSUER + end) is None


def test_an_issuer_that_differs_from_its_document_is_refused(documents):
    """The common case: a slash at the end."""
    documents[DISCOVERY] = discovery(f"{ISSUER}/")
    with pytest.raises(UserError) as refused:
        preflight.check_issuer(ISSUER)
    assert str(refused.value).startswith(f'jwt.issuer is "{ISSUER}" in cdk.json, but ')
    assert str(refused.value).endswith(f'Set jwt.issuer to "{ISSUER}/"')


@pytest.mark.parametrize(
    ("document", "keys", "unread"),
    [
        (None, None, f"{DISCOVERY}: HTTP Error 404"),
        (b"no JSON", None, f"{DISCOVERY}: Expecting value"),
        (b"[]", None, f"{DISCOVERY}: "),
        (b"{}", None, f"{DISCOVERY}: it has no issuer"),
        (discovery(), None, f"{KEYS}: HTTP Error 404"),
        (discovery(), b"{}", f"{KEYS}: it has no keys"),
        (discovery(keys="file:///hosts"), None, "file:///hosts: it is not an https address"),
    ],
)
def test_deploy_says_that_an_issuers_document_or_keys_cannot_be_read(
    documents, document, keys, unread
):
    documents |= {DISCOVERY: document, KEYS: keys}
    assert unread in preflight.check_issuer(ISSUER)


def test_deploy_checks_the_issuer_of_tokens(cdk, account, monkeypatch):
    asked = []
    monkeypatch.setattr(preflight, "check_issuer", asked.append)
    jwt = {"issuer": "https://id.example", "audience": ["shop"]}
    with_settings(monkeypatch, jwt=jwt, holdSeconds=900)
    deploy(cdk)
    assert asked == ["https://id.example"]
    with_settings(monkeypatch, api=False)
    CliRunner().invoke(app, ["validate", "--stage", "dev"])
    assert len(asked) == 1


POOL = "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_A1"


def checked_claims(client, claims, issuer=POOL):
    """Check claims with one app client, as Cognito describes it."""

    class Cognito:
        def describe_user_pool_client(self, **which):
            assert which == {"UserPoolId": "eu-west-1_A1", "ClientId": "desk"}
            if isinstance(client, Exception):
                raise client
            return {"UserPoolClient": client}

    def connect(service, region_name, config):
        assert (service, region_name) == ("cognito-idp", "eu-west-1")
        return Cognito()

    account = AwsAccount(SimpleNamespace(client=connect), "us-east-1")
    return preflight.check_claims(account, issuer, ["desk"], claims)


@pytest.mark.parametrize(
    ("writable", "claim", "is_safe"),
    [
        (["email"], "cognito:groups", True),
        (["email", "custom:locations"], "custom:locations", False),
        (["email"], "custom:locations", True),
        (["email"], "profile", True),
        (["profile"], "profile", False),
        (None, "custom:locations", True),
        (None, "cognito:groups", True),
        (None, "profile", False),
    ],
)
def test_claims_that_users_can_write_are_refused(writable, claim, is_safe):
    client = {} if writable is None else {"WriteAttributes": writable}
    claims = ["cognito:groups", claim]
    if is_safe:
        assert checked_claims(client, claims) is None
    else:
        with pytest.raises(UserError, match=f"the app client desk can write the claim {claim}, "):
            checked_claims(client, claims)


def test_an_app_client_that_cannot_be_read_is_noted():
    denied = ClientError({"Error": {"Code": "AccessDeniedException"}}, "DescribeUserPoolClient")
    noted = checked_claims(denied, ["cognito:groups", "custom:locations"])
    assert "cannot read the app client desk" in noted
    assert noted.endswith("Check that its users cannot write cognito:groups, custom:locations")


GOOD_CLIENT = {
    "AllowedOAuthFlows": ["code"],
    "AllowedOAuthScopes": ["openid"],
    "CallbackURLs": ["https://desk.example/desk/page.html"],
    "LogoutURLs": ["https://desk.example/desk/page.html"],
    "EnableTokenRevocation": True,
}


def checked_client(changes, url="https://desk.example/desk/page.html", issuer=POOL):
    """Check the desk's app client, which differs from a good one."""

    class Client:
        def describe_user_pool_client(self, **which):
            if isinstance(changes, Exception):
                raise changes
            client = GOOD_CLIENT | changes
            return {
                "UserPoolClient": {n: value for n, value in client.items() if value is not None}
            }

        def describe_stacks(self, **which):
            outputs = [] if url is None else [{"OutputKey": "DeskUrl", "OutputValue": url}]
            return {"Stacks": [{"Outputs": outputs}]}

    account = AwsAccount(SimpleNamespace(client=lambda *_, **__: Client()), "us-east-1")
    claims = ["cognito:groups", "custom:locations"]
    return preflight.check_desk_client(account, "Shop", issuer, "desk", claims)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, None),
        ({"ReadAttributes": ["custom:locations"]}, None),
        ({"ReadAttributes": ["email"]}, "make custom:locations readable"),
        ({"AllowedOAuthFlows": None}, "allow the authorization code grant"),
        ({"AllowedOAuthFlows": ["code", "implicit"]}, "do not allow the implicit grant"),
        ({"AllowedOAuthScopes": ["email"]}, "allow the scope openid"),
        (
            {"CallbackURLs": ["https://desk.example/"]},
            "add the callback URL https://desk.example/d",
        ),
        ({"LogoutURLs": None}, "add the sign-out URL https://desk.example/desk/page.html"),
        ({"EnableTokenRevocation": None}, "enable token revocation"),
        (refusal("AccessDeniedException"), "cannot read the app client desk of the desk"),
    ],
)
def test_deploy_says_what_is_wrong_with_the_app_client_of_the_desk(changes, says):
    noted = checked_client(changes)
    assert noted is None if says is None else says in noted
    assert checked_client(changes, issuer="https://id.example") is None


def test_an_app_client_with_a_secret_is_refused():
    with pytest.raises(UserError, match="desk has a secret, which a browser cannot keep"):
        checked_client({"ClientSecret": "s"})


def test_before_the_first_deployment_the_address_of_the_desk_is_unknown():
    assert checked_client({}, url=None) == (
        "the app client desk of the desk: add the callback URL in the output DeskUrl, after this deployment; add the sign-out "
        "URL in the output DeskUrl, after this deployment"
    )


def test_claims_of_other_issuers_are_not_checked():
    assert checked_claims(AssertionError(), ["roles"], "https://id.example") is None
    assert checked_claims(AssertionError(), []) is None


def test_deploy_checks_the_claims_of_operators_roles_and_locations(cdk, account, monkeypatch):
    asked = []
    monkeypatch.setattr(preflight, "check_issuer", lambda _: None)
    monkeypatch.setattr(preflight, "check_claims", lambda _, *which: asked.append(which))
    jwt = {
        "issuer": POOL,
        "audience": ["desk"],
        "operatorsClaim": {"name": "group", "value": "operators"},
    }
    roles = {"claim": "roles", "grants": {"owners": ["*"]}, "locationsClaim": "places"}
    roles["nameClaim"] = "email"
    clients = []
    monkeypatch.setattr(preflight, "check_desk_client", lambda _, *which: clients.append(which))
    desk = WITH_DESK["desk"]
    with_settings(monkeypatch, jwt=jwt, holdSeconds=900, roles=roles, desk=desk)
    deploy(cdk)
    assert clients == [("InventoryOrders-dev", POOL, "desk", ["roles", "places", "email", "group"])]
    assert asked == [(POOL, ("desk",), ["roles", "places", "email", "group"])]


def alarm(title, state="OK"):
    name = f"InventoryOrders-prod-{title}"
    return {"AlarmName": name, "AlarmArn": f"arn:{title}", "StateValue": state}


def triggers(account, cdk, alarms, stage="prod"):
    """Deploy a stage with these alarms, and return the alarms that roll back, or the whole arguments if there are none."""
    account["describe_alarms"] = (
        alarms if isinstance(alarms, Exception) else {"MetricAlarms": alarms}
    )
    account["describe_stacks"] = NOT_DEPLOYED
    done = CliRunner().invoke(app, ["deploy", "--stage", stage], catch_exceptions=False)
    ((arguments, _),) = cdk
    flag = "--rollback-trigger-alarm-arns="
    found = [each.removeprefix(flag) for each in arguments if each.startswith(flag)]
    waits = arguments[-2:] == ["--monitoring-time-minutes", "10"]
    assert waits is bool(found and found != ["none"])
    return found, done.stderr


ORDERED = (
    *("CustomerApi5xx", "PlaceOrdersErrors", "ChangeOrdersErrors"),
    *("OrderQueueDeadLetters", "OrderCommandQueueDeadLetters", "Api5xx"),
)


def test_the_alarm_of_customers_requests_replaces_the_least_important(cdk, account, monkeypatch):
    jwt = {"issuer": "https://id.example", "audience": ["shop"]}
    monkeypatch.setattr(preflight, "check_issuer", lambda _: None)
    with_settings(monkeypatch, "prod", jwt=jwt, holdSeconds=900)
    found, _ = triggers(account, cdk, [alarm(title) for title in ORDERED])
    assert found == [f"arn:{title}" for title in ORDERED[:5]]


@pytest.mark.parametrize(
    ("stage", "alarms", "found", "noted"),
    [
        ("prod", [], [], None),  # the first deployment
        # The five most important ones.
        ("prod", [*map(alarm, reversed(ORDERED))][:5], [f"arn:{t}" for t in ORDERED[1:]], None),
        ("dev", [alarm("Api5xx")], [], None),
        (
            "prod",
            [alarm("PlaceOrdersErrors", "INSUFFICIENT_DATA")],
            ["arn:PlaceOrdersErrors"],
            None,
        ),
        (
            "prod",
            [alarm("PlaceOrdersErrors", "ALARM"), alarm("Api5xx")],
            ["arn:Api5xx"],
            "so they do not roll back this update: InventoryOrders-prod-PlaceOrdersErrors",
        ),
        # Otherwise, the triggers of an earlier update would stay in force.
        ("prod", [alarm("Api5xx", "ALARM")], ["none"], "InventoryOrders-prod-Api5xx"),
        ("prod", refusal("AccessDenied"), [], "no alarm rolls back this update"),
    ],
)
def test_only_alarms_that_exist_and_are_off_roll_back(cdk, account, stage, alarms, found, noted):
    answer, said = triggers(account, cdk, alarms, stage)
    assert answer == found
    assert (noted or "deploy: ") in said
    assert ("Note: these alarms" in said) is (noted is not None and "InventoryOrders-prod" in noted)


def test_validate_checks_the_quotas(cdk, account):
    account["get_service_quota"] = {"Quota": {"Value": 750.0}}
    done = CliRunner().invoke(app, ["validate", "--stage", "dev"], catch_exceptions=False)
    assert "Note: EventBridge allows" in done.stderr


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("validate --stage dev", "validate --unstable=validate -c stage=dev"),
        ("diagnose --stage dev", "diagnose --unstable=diagnose -c stage=dev"),
        # Without a terminal, the CDK could not ask.
        ("deploy --stage dev --yes", "deploy -c stage=dev --require-approval never"),
        # It synthesises nothing.
        ("bootstrap", "bootstrap aws://123456789012/us-east-1 --app "),
    ],
)
def test_a_command_passes_its_work_on_to_the_cdk(cdk, account, command, arguments):
    CliRunner().invoke(app, command.split(), catch_exceptions=False)
    ((called, _),) = cdk
    assert called[1:] == arguments.split(" ")


def test_validate_fails_if_cloudformation_did_not_answer(account, monkeypatch):
    """The CDK itself would succeed."""
    said = "Online validation could not be completed for stack 'X': no bootstrap stack"
    cdk_cli = ROOT / "node_modules" / "aws-cdk" / "lib" / "index.js"
    assert said.partition(" for ")[0] in cdk_cli.read_text("utf-8")
    ended = subprocess.CompletedProcess([], 0, stdout=f"{said}\n")
    monkeypatch.setattr(deployment.subprocess, "run", lambda *_, **__: ended)
    done = CliRunner().invoke(app, ["validate", "--stage", "dev"])
    assert said in done.stdout
    assert str(done.exception).startswith(
        "CloudFormation did not check the template of InventoryOrders-dev: the warning above"
    )


def test_after_a_failed_deployment_the_command_that_shows_the_cause_is_named(account, monkeypatch):
    failed = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(deployment.subprocess, "run", lambda *_, **__: failed)
    done = CliRunner().invoke(app, ["deploy", "--stage", "dev"])
    assert done.exit_code == 1
    assert done.stderr.endswith("To see the cause again: make diagnose STAGE=dev\n")


def with_queues(account, attributes, error=None):
    account["describe_stacks"]["Stacks"][0]["Outputs"] += [
        {"OutputKey": name, "OutputValue": "https://q"} for name in (*QUEUES, *DEAD_LETTERS)
    ]
    account["get_queue_attributes"] = error or {"Attributes": attributes}


FAILED = {"StackStatus": "ROLLBACK_COMPLETE", "EnableTerminationProtection": True}
PAGES = [
    {"StackResourceSummaries": [{"ResourceStatus": status, "PhysicalResourceId": name}]}
    for status, name in (("DELETE_COMPLETE", "Shop-Queue"), ("DELETE_SKIPPED", "Shop-Orders"))
]


@pytest.mark.parametrize(
    ("stage", "stack", "answer", "said"),
    [
        (
            "prod",
            FAILED,
            {},
            "Its tables remain, empty and protected, until you delete them: Shop-",
        ),
        ("prod", FAILED, refusal("AccessDenied"), "--no-enable-termination-protection"),
        ("prod", FAILED | {"StackStatus": "UPDATE_ROLLBACK_COMPLETE"}, AssertionError(), None),
        ("prod", FAILED | {"EnableTerminationProtection": False}, AssertionError(), None),
        ("prod", NOT_DEPLOYED, {}, None),
        ("dev", FAILED, AssertionError(), None),
    ],
)
def test_a_first_deployment_of_production_that_failed_can_be_repeated(
    cdk, account, stage, stack, answer, said
):
    account["describe_stacks"] = stack if isinstance(stack, Exception) else {"Stacks": [stack]}
    account["get_paginator"] = SimpleNamespace(paginate=lambda **_: PAGES)
    account["update_termination_protection"] = answer
    done = CliRunner().invoke(app, ["deploy", "--stage", stage], catch_exceptions=False)
    assert len(cdk) == 1
    assert (said or "deploy: ") in done.stderr
    assert ("Note:" in done.stderr) is (said is not None)


def test_account_and_region_are_shown_and_the_cdk_gets_the_same_region(cdk, account, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    done = CliRunner().invoke(app, ["deploy", "--stage", "team-a-live"])
    assert "deploy: InventoryOrders-team-a-live on account 123456789012, eu-west-1" in done.stderr
    ((arguments, environment),) = cdk
    assert arguments == ["--no-notices", "deploy", "-c", "stage=team-a-live"]
    assert environment["AWS_REGION"] == environment["AWS_DEFAULT_REGION"] == "eu-west-1"


def test_a_bootstrap_qualifier_needs_a_bootstrap_stack_of_its_own(
    cdk, account, monkeypatch, tmp_path
):
    monkeypatch.setattr(deployment, "ROOT", tmp_path)
    config = {"context": {"@aws-cdk/core:bootstrapQualifier": "shop"}}
    (tmp_path / "cdk.json").write_text(json.dumps(config))
    assert 'set "toolkitStackName" at the top level' in refused(["bootstrap"])
    assert cdk == []
    config["toolkitStackName"] = "CDKToolkit-shop"
    (tmp_path / "cdk.json").write_text(json.dumps(config))
    assert CliRunner().invoke(app, ["bootstrap"]).exit_code == 0
    assert len(cdk) == 1


@pytest.mark.parametrize(("answer", "called"), [("n\n", 0), ("y\n", 1)])
def test_destroy_asks_first_and_names_the_stack(cdk, account, answer, called):
    account["describe_stacks"] = refusal("AccessDenied")
    done = CliRunner().invoke(app, ["destroy", "--stage", "live"], input=answer)
    assert "Destroy InventoryOrders-live on account 123456789012, us-east-1?" in done.stdout
    assert len(cdk) == called
    assert "These remain" not in done.stdout, "it is unknown what remains"


def test_destroy_says_that_a_stage_does_not_exist(cdk, account):
    """For a stack that does not exist, the CDK would say that it has been destroyed."""
    account["describe_stacks"] = NOT_DEPLOYED
    assert refused(["destroy", "--stage", "lvie"], input="y\n").startswith(
        "there is no stack InventoryOrders-lvie in account 123456789012, us-east-1"
    )
    assert cdk == []


LIVE = "arn:aws:cloudformation:eu-west-1:123456789012:stack/InventoryOrders-live/4f1d"
EXPORTS = "inventory-orders-exports-123456789012-eu-west-1"


@pytest.fixture
def destroyed(monkeypatch):
    """Make clients for an existing stack. botocore checks their requests against AWS's models."""
    services = ("cloudformation", "dynamodb", "s3")
    clients = {name: boto3.client(name, region_name="eu-west-1") for name in services}
    with ExitStack() as stack:
        stubs = {name: stack.enter_context(Stubber(client)) for name, client in clients.items()}
        found = {"StackName": "", "CreationTime": 0, "StackStatus": "", "StackId": LIVE}
        stubs["cloudformation"].add_response("describe_stacks", {"Stacks": [found]})
        monkeypatch.setattr(AwsAccount, "number", lambda self: "123456789012")
        monkeypatch.setattr(AwsAccount, "client", lambda self, service: clients[service])
        yield SimpleNamespace(**stubs)


def destroy():
    return CliRunner().invoke(app, ["destroy", "--stage", "live"], input="y\n")


def expect_resources(aws, status):
    """Expect two requests for the resources of the deleted stack, by its id: its name is no longer found."""
    table = {"ResourceType": "AWS::DynamoDB::GlobalTable", "PhysicalResourceId": "live-Orders"}
    version = {"ResourceType": "AWS::Lambda::Version", "PhysicalResourceId": "live-Api:1"}
    more = {"LogicalResourceId": "", "LastUpdatedTimestamp": 0, "ResourceStatus": status}
    listed = {"StackResourceSummaries": [one | more for one in (table, version)]}
    for _ in range(2):
        aws.cloudformation.add_response("list_stack_resources", listed, {"StackName": LIVE})


@pytest.mark.parametrize("status", ["DELETE_SKIPPED", "DELETE_COMPLETE"])
def test_destroy_lists_what_remains(cdk, destroyed, status):
    expect_resources(destroyed, status)
    copy = "live-Orders-20260101T090000Z"
    destroyed.dynamodb.add_response("list_tables", {"TableNames": ["live-Orders", copy, "other"]})
    request = {"Bucket": EXPORTS, "Prefix": "InventoryOrders-live/", "MaxKeys": 1}
    destroyed.s3.add_response("list_objects_v2", {"KeyCount": 1}, request)
    done = destroy()
    assert done.exit_code == 0
    said = done.stdout.partition("These remain on the account:\n")[2].splitlines()
    assert ("  AWS::DynamoDB::GlobalTable live-Orders" in said) is (status == "DELETE_SKIPPED")
    assert "live-Api:1" not in done.stdout, "a version is deleted with its function"
    assert f"  the table {copy}, which a restore created" in said
    assert f"  s3://{EXPORTS}/InventoryOrders-live/: exports, with customers' ids" in said
    assert "  backups that DynamoDB makes of deleted tables, for 35 days" in said


def test_destroy_does_not_list_missing_copies_and_exports(cdk, destroyed):
    expect_resources(destroyed, "DELETE_COMPLETE")
    destroyed.dynamodb.add_response("list_tables", {"TableNames": ["other"]})
    destroyed.s3.add_client_error("list_objects_v2", "NoSuchBucket")
    said = destroy().stdout.partition("These remain on the account:\n")[2]
    assert said.startswith("  backups")


def test_resources_that_destroy_may_not_list_are_named_by_kind(cdk, destroyed):
    for _ in range(2):
        destroyed.cloudformation.add_client_error("list_stack_resources", "AccessDenied")
    destroyed.s3.add_client_error("list_objects_v2", "AccessDenied")
    said = destroy().stdout
    for kind in ("logs of a production stage", "tables that restores created", "customers' ids"):
        assert f"{kind}; they cannot be listed: An error occurred (AccessDenied)" in said


def test_a_failed_destroy_does_not_list_what_remains(destroyed, monkeypatch):
    failed = subprocess.CompletedProcess([], 3)
    monkeypatch.setattr(deployment.subprocess, "run", lambda *_, **__: failed)
    done = destroy()
    assert done.exit_code == 3
    assert "These remain" not in done.stdout


def test_synth_needs_no_account(cdk, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    done = CliRunner().invoke(app, ["synth", "--stage", "live"])
    assert done.stdout == ".local/cdk.out/InventoryOrders-live.template.json\n"
    assert cdk[0][0] == ["--no-notices", "synth", "--quiet", "-c", "stage=live"]


def test_a_synth_with_a_wrong_setting_fails_with_one_line(cdk, monkeypatch):
    context = {"settings": {"laneCount": -1}}
    monkeypatch.setattr(deployment, "cdk_json", lambda: {"context": context})
    assert "laneCount" in refused(["synth"])
    assert cdk == []


@pytest.mark.parametrize("stage", ["x" * 21, "Live", "", "a b", "a\n"])
def test_a_name_that_no_stage_can_have_is_refused(stage):
    refused = CliRunner().invoke(app, ["status", "--stage", stage])
    assert refused.exit_code == 2
    assert "1 to 20 lowercase letters" in " ".join(refused.output.replace("│", "").split())


def test_the_tables_of_a_stack_are_in_the_region_of_its_account(monkeypatch):
    # boto3 reads only AWS_DEFAULT_REGION; the CDK and the AWS CLI read AWS_REGION.
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    outputs = dict.fromkeys((f"{table.value}TableName" for table in Table), "t")
    session = AwsAccount.of_environment().session
    aws = Aws(outputs, session, *[SimpleNamespace()] * 4)
    assert aws.store()._client.meta.region_name == "eu-west-3"


TWO_SERVICES = ("TeaOrdersTableName", "TeaEventBusName", "TicketsOrdersTableName", "Url")


def service_in(outputs, prefix):
    """Look up one of the services in a stack with these outputs."""
    arn = "arn:aws:cloudformation:eu-west-1:123456789012:stack/Shop/1"
    stack = {"StackName": "Shop", "StackId": arn}
    named = [{"OutputKey": o, "OutputValue": f"InventoryOrders-{o}"} for o in outputs]
    stack |= {"Outputs": named} if named else {}
    cloudformation = SimpleNamespace(describe_stacks=lambda **_: {"Stacks": [stack]})
    return Aws.of_stack("Shop", SimpleNamespace(client=lambda *_, **__: cloudformation), prefix)


def test_a_prefix_chooses_the_outputs_of_one_service():
    tea = service_in(TWO_SERVICES, "Tea")
    assert list(tea.outputs) == ["OrdersTableName", "EventBusName"]
    assert tea.service_name == "inventory-orders-TeaEventBusName"
    assert tea.place == "account 123456789012, eu-west-1, stack Shop, outputs Tea..."


@pytest.mark.parametrize("prefix", ["", "Coffee", "Te"])
def test_a_prefix_without_outputs_is_refused_and_the_prefixes_are_listed(prefix):
    said = f'the stack Shop has no outputs with the prefix "{prefix}"; choose one with --prefix: "Tea", "Tickets"'
    with pytest.raises(UserError, match=f"^{re.escape(said)}$"):
        service_in(TWO_SERVICES, prefix)


def test_a_stack_without_the_outputs_of_a_service_is_refused():
    says = (
        r"has none of the service's outputs: call the construct's `add_outputs\(\)`, and deploy it"
    )
    with pytest.raises(UserError, match=says):
        service_in((), "Tea")


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ([], None),
        (["--stage", "prod"], Target("InventoryOrders-prod")),
        (["--stack", "Shop"], Target("Shop", is_stage=False)),
        (["--stack", "Shop", "--prefix", "Tea"], Target("Shop", "Tea", is_stage=False)),
        (["--stage", "prod", "--prefix", "Tea"], Target("InventoryOrders-prod", "Tea")),
    ],
)
def test_options_choose_the_stack_of_a_command(monkeypatch, options, chosen):
    seen = []
    monkeypatch.setattr(books, "aws_of", lambda account, _: seen.append(account))
    monkeypatch.setattr(books, "show_audit", lambda *_, **__: True)
    assert CliRunner().invoke(app, ["audit", *options]).exit_code == 0
    assert seen == [chosen]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--stage", "prod", "--stack", "Shop"], "either --stage or --stack"),
        (["--prefix", "Tea"], "use --stack to name the stack that has this prefix"),
    ],
)
def test_options_that_name_no_single_stack_are_refused(options, said):
    done = CliRunner().invoke(app, ["audit", *options])
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", "").split())


def test_without_a_checkout_a_command_needs_the_name_of_a_stack(monkeypatch):
    monkeypatch.setattr(target, "checkout", None)
    done = CliRunner().invoke(app, ["audit"])
    assert "name a stack: --stack STACK, with --prefix PREFIX" in str(done.exception)


def test_an_error_of_aws_does_not_end_a_sentence_twice(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    with pytest.raises(UserError, match=r"You must specify a region\. Deploy it first: in a"):
        Aws.of_stack("Shop", boto3.Session())
