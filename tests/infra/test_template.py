"""Settings in the synthesised template that the embedded AWS ignores."""

import itertools
import json
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from aws_cdk import App, Stack
from aws_cdk.assertions import Template

from infra import assets
from infra.api import ROUTES
from infra.queues import MAX_RECEIVE_COUNT
from infra.settings import Settings
from infra.stack import OUTPUTS, InventoryOrders
from inventory_orders.api.requests import MAX_BODY_BYTES
from inventory_orders.domain.events import product_events
from inventory_orders.domain.product import ProductStatus
from inventory_orders.invocation.sqs import BYTES_OF_ATTRIBUTES, BYTES_PER_CALL
from inventory_orders.publishing.publisher import RETRYABLE_SECONDS
from inventory_orders.retry import EARLY_DELIVERIES, redelivery_delay
from inventory_orders.store.tables import INDEXES, KEYS, STREAMED, Table
from local import ROOT
from local.desk.site import _PASSED_ON
from operations.aws import LIVE, Aws
from operations.currency import NONE, Currency
from operations.preflight import DESK_EXECUTIONS, FOR_DESK, READERS
from testing.world.streams import product_row
from tests.support.template import (
    EVERYTHING,
    SMALL,
    resources,
    shared_stack_of,
    stack_of,
    synthesise,
)

SETTINGS = Settings.from_context("dev")
LONGEST = "live-shop-20-letters"
ROLES = {
    "claim": "cognito:groups",
    "grants": {"pickers": ["orders.read", "orders.fulfil"]},
    "locationsClaim": "custom:locations",
}


@pytest.fixture(scope="module")
def dev():
    return synthesise("dev")


@pytest.fixture(scope="module")
def prod():
    return synthesise("prod")


def by_name(template, kind, part):
    (found,) = [
        resource
        for logical_id, resource in resources(template, f"AWS::{kind}").items()
        if logical_id[:-8].endswith(part)
    ]
    return found


def properties_of(template, kind, part):
    return by_name(template, kind, part)["Properties"]


def all_of(template, kind):
    """Return the properties of all resources of a kind."""
    return [found["Properties"] for found in resources(template, f"AWS::{kind}").values()]


def variables_of(function):
    return function["Environment"]["Variables"]


@pytest.mark.parametrize("table", list(Table))
def test_tables_have_the_keys_of_the_contract_and_are_protected(dev, prod, table):
    for template, protected in ((dev, False), (prod, True)):
        resource = by_name(template, "DynamoDB::GlobalTable", table.value)
        properties = resource["Properties"]
        keys = [key["AttributeName"] for key in properties["KeySchema"]]
        assert keys == list(KEYS[table])
        assert properties["BillingMode"] == "PAY_PER_REQUEST"
        assert properties["SSESpecification"] == {"SSEEnabled": False}, (
            "DynamoDB's own key encrypts the table"
        )
        (replica,) = properties["Replicas"]
        assert "SSESpecification" not in replica
        recovery = replica["PointInTimeRecoverySpecification"]
        assert recovery["PointInTimeRecoveryEnabled"] is True
        assert replica["DeletionProtectionEnabled"] is protected
        # CloudFormation cannot delete a protected table, so rolling back its creation leaves it behind.
        kept = "Retain" if protected else "Delete"
        assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == (kept, kept)
        assert "WarmThroughput" not in properties


def test_the_tables_have_their_streams_and_their_indexes(dev):
    for table in Table:
        properties = properties_of(dev, "DynamoDB::GlobalTable", table)
        stream = {"StreamViewType": "NEW_AND_OLD_IMAGES"} if table in STREAMED else None
        assert properties.get("StreamSpecification") == stream
        shown = {
            index["IndexName"]: (
                tuple(key["AttributeName"] for key in index["KeySchema"]),
                tuple(index["Projection"].get("NonKeyAttributes", ())),
            )
            for index in properties.get("GlobalSecondaryIndexes", ())
        }
        assert shown == {index.name: index[1:] for index in INDEXES.get(table, ())}


def test_cloudwatch_shows_throttled_keys_unless_they_belong_to_customers(dev, optional):
    for table in Table:
        (replica,) = properties_of(dev, "DynamoDB::GlobalTable", table)["Replicas"]
        is_watched = table not in (
            *(Table.ORDERS, Table.PURCHASES, Table.WORDS, Table.BARCODES, Table.MOVEMENTS),
        )
        watched = {"Enabled": True, "Mode": "THROTTLED_KEYS"} if is_watched else None
        assert replica.get("ContributorInsightsSpecification") == watched
        for index in replica.get("GlobalSecondaryIndexes", ()):
            # Each rule costs money. The CDK would give an index the mode of its table.
            assert "ContributorInsightsSpecification" not in index
    unwatched = synthesise("dev", **SMALL)
    for template in (optional, unwatched):
        assert "ContributorInsights" not in json.dumps(template.to_json())


KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
WARM = {"Orders": 20_000, "Products": 30_000}


@pytest.fixture(scope="module")
def optional():
    """Make a template with many optional settings, none of which the stage `dev` has."""
    return synthesise(
        "dev",
        {"@aws-cdk/core:permissionsBoundary": {"name": "developers"}},
        tableKey=KEY,
        warmThroughput={
            table: {"readUnitsPerSecond": units, "writeUnitsPerSecond": 10_000}
            for table, units in WARM.items()
        },
        holdSeconds=900,
        holdGraceSeconds=0,
        sweepMinutes=5,
        lanes=80,
        locations=["", "berlin"],
        buyersDefault="none",
        currency="KWD",
        tracing=True,
        functions={
            name: {"memoryMegabytes": 1024, "timeoutSeconds": 900} for name in SETTINGS.functions
        },
        jwt={
            "issuer": "https://id.example.com/",
            "audience": ["shop"],
            "userIdClaim": "customer",
            "operatorsClaim": {"name": "cognito:groups", "value": "operators"},
        },
        roles=ROLES,
        cors=["https://shop.example.com"],
        showStock="numbers",
        customersMaySet=["locations", "split"],
        customersMayAmend=True,
        amendPaid=True,
        apiLimits={"requestsPerSecond": 10, "concurrentExecutions": 20},
    )


def test_the_tables_may_have_a_customer_managed_key(optional):
    for properties in all_of(optional, "DynamoDB::GlobalTable"):
        assert properties["SSESpecification"] == {"SSEEnabled": True, "SSEType": "KMS"}
        (replica,) = properties["Replicas"]
        assert replica["SSESpecification"] == {"KMSMasterKeyId": KEY}


@pytest.mark.parametrize("table", list(Table))
def test_warm_throughput_applies_to_one_table_and_its_indexes(optional, table):
    properties = properties_of(optional, "DynamoDB::GlobalTable", table.value)
    units = WARM.get(table.value)
    warm = units and {"ReadUnitsPerSecond": units, "WriteUnitsPerSecond": 10_000}
    assert properties.get("WarmThroughput") == warm
    for index in properties.get("GlobalSecondaryIndexes", []):
        assert index.get("WarmThroughput") == warm


def test_every_queue_keeps_messages_and_dead_letters_long_enough(dev):
    """test_access.py covers encryption, and which queue gets the dead letters of which."""
    queues = resources(dev, "AWS::SQS::Queue")
    for name, settings in SETTINGS.queues.items():
        queue = properties_of(dev, "SQS::Queue", name)
        redrive = queue["RedrivePolicy"]
        dead_letter_queue = queues[redrive["deadLetterTargetArn"]["Fn::GetAtt"][0]]["Properties"]
        timeout = SETTINGS.functions["place_orders"].timeoutSeconds
        assert queue["VisibilityTimeout"] >= 6 * timeout + settings.batchWindowSeconds
        assert queue["MessageRetentionPeriod"] == 10 * 86400
        assert dead_letter_queue["MessageRetentionPeriod"] == 14 * 86400
        assert queue["MaximumMessageSize"] == MAX_BODY_BYTES, "the API forwards an order unchanged"
        assert dead_letter_queue["MaximumMessageSize"] == BYTES_PER_CALL == 1024 * 1024
        assert redrive["maxReceiveCount"] == MAX_RECEIVE_COUNT <= 1000
        fifo = "Fifo" in name
        for properties in (queue, dead_letter_queue):
            assert properties.get("FifoQueue", False) is fifo
            assert properties.get("DeduplicationScope") == ("messageGroup" if fifo else None)
            limit = "perMessageGroupId" if fifo else None
            assert properties.get("FifoThroughputLimit") == limit
        # Two messages with the same body are two dead letters, but one order.
        assert queue.get("ContentBasedDeduplication", False) is fifo
        assert "ContentBasedDeduplication" not in dead_letter_queue
    assert MAX_BODY_BYTES + BYTES_OF_ATTRIBUTES <= BYTES_PER_CALL, "a dead letter fits completely"


def test_a_message_that_always_kills_its_invocation_is_dead_lettered_in_time(optional):
    fed = [queue for queue in all_of(optional, "SQS::Queue") if "RedrivePolicy" in queue]
    assert len(fed) == len(SETTINGS.queues)
    for properties in fed:
        deliveries = properties["RedrivePolicy"]["maxReceiveCount"]
        assert deliveries >= EARLY_DELIVERIES
        seconds = deliveries * properties["VisibilityTimeout"]
        assert seconds <= properties["MessageRetentionPeriod"] / 2
        # An outage may use up all deliveries, as the setting's description says.
        delays = [redelivery_delay(n, lambda: 0.0) for n in range(1, deliveries)]
        assert 8 < sum(delays) / 3600 < 9


def mappings(template, attribute):
    """Return the event source mappings of queues ("Arn") or of streams ("StreamArn")."""
    found = all_of(template, "Lambda::EventSourceMapping")
    return [s for s in found if s["EventSourceArn"]["Fn::GetAtt"][1] == attribute]


def test_event_sources_come_from_the_configuration(dev):
    sources = mappings(dev, "Arn")
    assert len(sources) == len(SETTINGS.queues)
    assert all(s["FunctionResponseTypes"] == ["ReportBatchItemFailures"] for s in sources)
    found = {
        (
            source["BatchSize"],
            source.get("MaximumBatchingWindowInSeconds", 0),
            source["ScalingConfig"]["MaximumConcurrency"],
        )
        for source in sources
    }
    assert found == {
        (q.batchSize, q.batchWindowSeconds, q.maximumConcurrency) for q in SETTINGS.queues.values()
    }


def test_streams_are_read_from_the_beginning_and_no_record_blocks_its_shard(dev):
    sources = mappings(dev, "StreamArn")
    assert sorted(source["ParallelizationFactor"] for source in sources) == sorted(
        batches for name, (tables, batches) in READERS.items() for _ in tables if name != FOR_DESK
    )
    for source in sources:
        assert source["StartingPosition"] == "TRIM_HORIZON", "LATEST can miss records"
        assert source["BatchSize"] == 100
        assert source["BisectBatchOnFunctionError"] is True
        assert source["MaximumRetryAttempts"] == -1
        assert source["MaximumRecordAgeInSeconds"] == 23 * 3600 < 24 * 3600, (
            "a stream keeps records for a day"
        )
        assert source["MaximumRecordAgeInSeconds"] > 2 * RETRYABLE_SECONDS, (
            "events are parked before records are given up"
        )
        assert "FunctionResponseTypes" not in source, "with it, the embedded AWS would lose events"
    for name in ("UndeliverableEventsQueue", "UnrecordedMovementsQueue"):
        queue = properties_of(dev, "SQS::Queue", name)
        assert queue["MessageRetentionPeriod"] == 14 * 86400
        assert queue["MaximumMessageSize"] == BYTES_PER_CALL


def test_no_stream_has_more_than_two_readers(dev):
    readers = Counter(json.dumps(source["EventSourceArn"]) for source in mappings(dev, "StreamArn"))
    assert sorted(readers.values()) == [1, 2]


@pytest.mark.parametrize("movements", [True, False])
def test_for_the_desk_changes_of_both_tables_are_collected_for_two_seconds(movements):
    template = synthesise("dev", **EVERYTHING, movements=movements)
    sources = mappings(template, "StreamArn")
    readers = Counter(json.dumps(source["EventSourceArn"]) for source in sources)
    assert sorted(readers.values()) == [2, 2]
    of_desk = [source for source in sources if source["ParallelizationFactor"] == 1]
    assert [source["MaximumBatchingWindowInSeconds"] for source in of_desk] == [2, 2]
    assert not any("FilterCriteria" in source for source in of_desk)
    # Changes that are only noted are not worth an alarm when they are given up.
    assert sum("DestinationConfig" in source for source in of_desk) == movements
    recorder = variables_of(properties_of(template, "Lambda::Function", "FunctionsRecordMovements"))
    sweep = variables_of(properties_of(template, "Lambda::Function", "FunctionsSweep"))
    assert recorder["NOTES_CHANGES"] == "true"
    assert ("UNRECORDED_MOVEMENTS_QUEUE_URL" in recorder) is movements
    assert ("MOVEMENT_MAPPING" in sweep) is movements
    assert "CHANGE_MAPPINGS" in sweep


def test_without_movements_nothing_of_them_is_created():
    template = synthesise("dev", movements=False)
    assert len(mappings(template, "StreamArn")) == 2
    assert "ovement" not in json.dumps(template.to_json())


def test_the_products_stream_is_filtered_to_published_status_changes(dev):
    (filtered,) = [source for source in mappings(dev, "StreamArn") if "FilterCriteria" in source]
    assert "Products" in filtered["EventSourceArn"]["Fn::GetAtt"][0]
    patterns = [json.loads(one["Pattern"]) for one in filtered["FilterCriteria"]["Filters"]]
    assert len(patterns) == 4
    passed = set()
    for pattern in patterns:
        images = pattern["dynamodb"]
        assert {len(statuses) for statuses in images.values()} == {1}, (
            "a filter may read only the status"
        )
        before, after = (images[image]["status"]["S"] for image in ("OldImage", "NewImage"))
        passed |= set(itertools.product(before, after))
    published = {
        (before, after)
        for before, after in itertools.product(ProductStatus, repeat=2)
        if product_events(product_row(before), product_row(after))
    }
    assert passed == published


def test_every_function_has_its_settings_layer_and_log_group(dev):
    functions = resources(dev, "AWS::Lambda::Function")
    assert len(functions) == len(SETTINGS.functions), "the CDK adds no functions of its own"
    for name, settings in SETTINGS.functions.items():
        construct = "Functions" + "".join(part.capitalize() for part in name.split("_"))
        properties = properties_of(dev, "Lambda::Function", construct)
        assert properties["Runtime"] == SETTINGS.runtime
        assert properties["Architectures"] == [SETTINGS.architecture]
        assert properties["Handler"] == "handler.lambda_handler"
        assert properties["Timeout"] == settings.timeoutSeconds
        assert properties["MemorySize"] == settings.memoryMegabytes
        assert "LogGroup" in properties["LoggingConfig"]
        variables = variables_of(properties)
        assert variables["POWERTOOLS_SERVICE_NAME"] == "inventory-orders-dev"
    assert {group["RetentionInDays"] for group in all_of(dev, "Logs::LogGroup")} == {30}


@pytest.mark.parametrize(
    ("name", "default", "changed", "readers"),
    [
        ("HOLD_GRACE_SECONDS", "60", "0", {"ChangeOrders", "Sweep"}),
        ("SWEEP_MINUTES", "1", "5", {"Sweep"}),
        ("LANES", "60", "80", {"PlaceOrders", "Api"}),
        ("API_LANES", "30", "10", {"PlaceOrders", "Api"}),
        ("HOLD_SECONDS", None, "900", {"PlaceOrders", "Api"}),
        ("LOCATIONS", None, ",berlin", {"PlaceOrders", "ChangeOrders", "Api", "ManageProducts"}),
        ("BUYERS_DEFAULT", "user", "none", {"PlaceOrders", "ChangeOrders", "Api"}),
        ("AMEND_PAID", None, "true", {"PlaceOrders", "ChangeOrders", "Api"}),
        ("CUSTOMERS_MAY_SET", None, "locations,split", {"Api"}),
        ("CUSTOMERS_MAY_AMEND", None, "true", {"Api"}),
    ],
)
def test_only_functions_that_read_an_order_setting_have_it(
    dev, optional, name, default, changed, readers
):
    for template, wanted in ((dev, default), (optional, changed)):
        found = {
            logical_id[:-8].removeprefix("Functions"): variables_of(function["Properties"]).get(
                name
            )
            for logical_id, function in resources(template, "AWS::Lambda::Function").items()
        }
        assert {found.pop(reader) for reader in readers} == {wanted}
        assert set(found.values()) == {None}


def test_a_function_may_be_part_of_a_loop_if_it_sends_to_a_queue_that_invokes_it(dev):
    loops = set()
    for policy in all_of(dev, "IAM::Policy"):
        statements = policy["PolicyDocument"]["Statement"]
        read, written = (
            {json.dumps(s["Resource"]) for s in statements if action in s["Action"]}
            for action in ("sqs:ReceiveMessage", "sqs:SendMessage")
        )
        if read & written:
            loops |= {role["Ref"] for role in policy["Roles"]}
    assert len(loops) == 3
    for name, function in resources(dev, "AWS::Lambda::Function").items():
        (role, _) = function["Properties"]["Role"]["Fn::GetAtt"]
        wanted = "Allow" if role in loops else None
        assert function["Properties"].get("RecursiveLoop") == wanted, name


def test_the_sweep_runs_once_a_minute_one_at_a_time_and_is_not_retried(dev, optional):
    (rare,) = all_of(optional, "Scheduler::Schedule")
    assert rare["ScheduleExpression"] == "rate(5 minutes)"
    (properties,) = all_of(dev, "Scheduler::Schedule")
    assert properties["ScheduleExpression"] == "rate(1 minute)"
    assert properties["FlexibleTimeWindow"] == {"Mode": "OFF"}
    sample = json.loads((ROOT / "events" / "sweep.json").read_text())
    assert json.loads(properties["Target"]["Input"]) == sample
    assert properties["Target"]["RetryPolicy"]["MaximumRetryAttempts"] == 0
    (invocation,) = all_of(dev, "Lambda::EventInvokeConfig")
    assert invocation["MaximumRetryAttempts"] == 0
    assert SETTINGS.functions["sweep"].timeoutSeconds < 60


def versions_of(template):
    """Return the logical id of each function's version, by the function's logical id."""
    return {
        version["Properties"]["FunctionName"]["Ref"]: logical_id
        for logical_id, version in resources(template, "AWS::Lambda::Version").items()
    }


def test_changed_functions_get_a_version_that_callers_reach_by_the_alias(dev, monkeypatch):
    """CloudFormation publishes a version when its resource is new, so its logical id must change with the function."""
    before = versions_of(dev)
    assert before.keys() == resources(dev, "AWS::Lambda::Function").keys()
    aliases = all_of(dev, "Lambda::Alias")
    assert {alias["Name"] for alias in aliases} == {LIVE}
    assert {
        alias["FunctionName"]["Ref"]: alias["FunctionVersion"]["Fn::GetAtt"] for alias in aliases
    } == {function: [version, "Version"] for function, version in before.items()}
    for version in resources(dev, "AWS::Lambda::Version").values():
        # If a deployment fails, its version is deleted; otherwise Lambda would have nothing new to publish at the next
        # attempt.
        assert version["DeletionPolicy"] == "RetainExceptOnCreate"
        assert version["UpdateReplacePolicy"] == "Retain"
    layer = assets.layer

    def other_layer(runtime, folder):
        return replace(layer(runtime, folder), digest="0" * 64)

    monkeypatch.setattr(assets, "layer", other_layer)
    with_layer = versions_of(Template.from_stack(stack_of("dev")))
    assert [f for f in before if before[f] == with_layer[f]] == []


def api_of(template):
    return lambda kind: all_of(template, f"ApiGatewayV2::{kind}")


def api_variables(template):
    return variables_of(properties_of(template, "Lambda::Function", "FunctionsApi"))


def test_the_api_is_rate_limited(dev):
    only = api_of(dev)
    (stage,) = only("Stage")
    limits = {"ThrottlingRateLimit": 2000, "ThrottlingBurstLimit": 2000}
    assert stage["DefaultRouteSettings"] == limits
    (api,) = only("Api")
    assert "CorsConfiguration" not in api
    variables = api_variables(dev)
    assert variables["SHOW_STOCK"] == "availability"
    assert not [name for name in variables if "CLAIM" in name]
    assert SETTINGS.functions["api"].timeoutSeconds == 30, "API Gateway waits at most 30 s"


def test_the_name_of_the_access_log_is_covered_by_a_full_account_policy(dev):
    properties = properties_of(dev, "Logs::LogGroup", "ApiAccessLog")
    separator, (prefix, generation) = properties["LogGroupName"]["Fn::Join"]
    assert (separator, prefix) == ("/", "/aws/vendedlogs/InventoryOrders-dev")
    stack_id = {"Fn::Split": ["/", {"Ref": "AWS::StackId"}]}
    assert generation == {"Fn::Select": [2, stack_id]}, (
        "a stack that is created again needs a new name"
    )


def test_the_access_log_has_no_personal_data(dev):
    (stage,) = api_of(dev)("Stage")
    logged = set(json.loads(stage["AccessLogSettings"]["Format"]).values())
    assert {"$context.requestId", "$context.routeKey", "$context.status"} <= logged
    personal = ("identity", "path", "claims", "principal", "userAgent", "sourceIp", "user")
    assert not [name for name in logged if any(part in name for part in personal)]


def test_with_the_setting_jwt_a_second_api_accepts_tokens(optional):
    only = api_of(optional)
    (authorizer,) = only("Authorizer")
    assert authorizer["JwtConfiguration"] == {
        "Audience": ["shop"],
        "Issuer": "https://id.example.com/",
    }
    outputs = optional.to_json()["Outputs"]
    servers, shoppers = (
        outputs[name]["Value"]["Fn::GetAtt"][0] for name in ("ApiUrl", "CustomerApiUrl")
    )
    opened = {
        (route["ApiId"]["Ref"], route["AuthorizationType"], "AuthorizerId" in route)
        for route in only("Route")
    }
    assert opened == {(servers, "AWS_IAM", False), (shoppers, "JWT", True)}
    assert len(only("Route")) == 2 * len(ROUTES)
    variables = api_variables(optional)
    assert (variables["USER_ID_CLAIM"], variables["SHOW_STOCK"]) == ("customer", "numbers")
    assert variables["OPERATORS_CLAIM_NAME"] == "cognito:groups"
    assert variables["OPERATORS_CLAIM_VALUE"] == "operators"
    assert json.loads(variables["ROLES"]) == ROLES
    assert variables["HOLD_SECONDS"] == "900"
    limits = {"ThrottlingRateLimit": 10, "ThrottlingBurstLimit": 2000}
    assert [stage["DefaultRouteSettings"] for stage in only("Stage")] == [limits] * 2
    apis = resources(optional, "AWS::ApiGatewayV2::Api")
    cors = {name: api["Properties"].get("CorsConfiguration") for name, api in apis.items()}
    assert cors[servers] is None
    assert cors[shoppers]["AllowOrigins"] == ["https://shop.example.com"]
    contract = (ROOT / "docs" / "openapi.yaml").read_text("utf-8")
    in_header = set(re.findall(r"name: ([\w-]+)\s+in: header", contract))
    assert {"If-Match", "Prefer"} <= in_header
    assert in_header <= {*cors[shoppers]["AllowHeaders"]}
    assert in_header <= {*_PASSED_ON}, "`make desk` serves the API, too"
    functions = all_of(optional, "Lambda::Function")
    reserved = [function.get("ReservedConcurrentExecutions") for function in functions]
    assert [number for number in reserved if number] == [20], (
        "only the API's function has a reserved concurrency"
    )


def test_the_desk_has_a_function_of_its_own_that_may_only_write_its_log():
    template = synthesise("prod", **EVERYTHING)
    desk = properties_of(template, "Lambda::Function", "ServeDesk")
    assert desk["ReservedConcurrentExecutions"] == DESK_EXECUTIONS == 5
    assert not desk.keys() & {"Layers", "Environment"}
    (policy,) = (
        each
        for each in all_of(template, "IAM::Policy")
        if desk["Role"]["Fn::GetAtt"][0] in json.dumps(each["Roles"])
    )
    allowed = [each["Action"] for each in policy["PolicyDocument"]["Statement"]]
    tracing = ["xray:PutTelemetryRecords", "xray:PutTraceSegments"]
    assert allowed == [["logs:CreateLogStream", "logs:PutLogEvents"], tracing]


def test_requests_for_files_of_the_desk_need_no_token_and_have_limits_of_their_own(optional):
    template = synthesise("prod", **EVERYTHING)
    api = template.to_json()["Outputs"]["CustomerApiUrl"]["Value"]["Fn::GetAtt"][0]
    routes = resources(template, "AWS::ApiGatewayV2::Route")
    without_token = {
        name: route["Properties"]["RouteKey"]
        for name, route in routes.items()
        if route["Properties"]["AuthorizationType"] == "NONE"
    }
    assert {*without_token.values()} == {"GET /desk", "GET /desk/{file+}", "POST /desk/reports"}
    assert {routes[name]["Properties"]["ApiId"]["Ref"] for name in without_token} == {api}
    (stage,) = (
        each
        for each in resources(template, "AWS::ApiGatewayV2::Stage").values()
        if each["Properties"]["ApiId"]["Ref"] == api
    )
    limits = stage["Properties"]["RouteSettings"]
    assert limits.keys() == {*without_token.values()}
    assert limits["GET /desk/{file+}"] == {
        "ThrottlingRateLimit": 50,
        "ThrottlingBurstLimit": 50,
    }
    assert {*without_token} <= {*stage["DependsOn"]}, "it limits routes that exist"
    assert "Desk" not in json.dumps(resources(optional, "AWS::ApiGatewayV2::Route"))


def test_the_desk_and_the_api_may_have_a_domain():
    template = synthesise("prod", **EVERYTHING)
    (domain,) = resources(template, "AWS::ApiGatewayV2::DomainName").items()
    name, made = domain
    (settings,) = made["Properties"]["DomainNameConfigurations"]
    assert settings == {
        "CertificateArn": EVERYTHING["desk"]["domain"]["certificate"],
        "EndpointType": "REGIONAL",
        "SecurityPolicy": "TLS_1_2",
    }
    (mapping,) = all_of(template, "ApiGatewayV2::ApiMapping")
    assert mapping["DomainName"] == {"Ref": name}
    outputs = template.to_json()["Outputs"]
    assert outputs["DeskUrl"]["Value"] == "https://desk.example.com/desk/page.html"
    assert outputs["DeskDomainTarget"]["Value"] == {"Fn::GetAtt": [name, "RegionalDomainName"]}


def test_the_api_can_be_left_out(prod):
    without = synthesise("prod", api=False)
    assert not [n for n in without.find_outputs("*") if n.startswith("Api") or "Express" in n]
    assert "EXPRESS_" not in json.dumps(without.to_json())
    assert "ApiGateway" not in json.dumps(without.to_json()["Resources"]), (
        "its metrics are left out too"
    )
    assert len(all_of(without, "Lambda::Function")) == len(SETTINGS.functions) - 1
    # Production retains a log that is removed from its stack, and another one of the same name cannot be created.
    kept = resources(prod, "AWS::Logs::LogGroup")
    named = {name for name, log in kept.items() if "LogGroupName" in log["Properties"]}
    assert named
    assert named <= resources(without, "AWS::Logs::LogGroup").keys()


def test_commands_and_the_desk_get_the_currency_from_an_output(dev, optional):
    clients = [SimpleNamespace()] * 5
    stacks = [
        Aws(
            {name: output["Value"] for name, output in template.find_outputs("*").items()}, *clients
        )
        for template in (dev, optional)
    ]
    assert [aws.currency for aws in stacks] == [NONE, Currency("KWD", 3)]


def test_production_keeps_queues_and_logs_unless_their_first_deployment_fails(prod):
    for kind in ("AWS::SQS::Queue", "AWS::SQS::QueuePolicy", "AWS::Logs::LogGroup"):
        for resource in resources(prod, kind).values():
            assert resource["DeletionPolicy"] == "RetainExceptOnCreate"
            assert resource["UpdateReplacePolicy"] == "Retain"


@pytest.fixture(scope="module")
def live():
    return shared_stack_of(LONGEST, production=True)


@pytest.fixture(scope="module")
def template_of_live():
    return synthesise(LONGEST, production=True)


def without_the_stage(template, stage):
    """Return a template as lines, without the stage's name and without the hashes that depend on it."""
    text = json.dumps(template.to_json(), indent=1)
    text = re.sub(
        rf"InventoryOrders{stage.replace('-', '')}(\w+?)(?:[0-9A-F]{{8}}){{1,2}}", r"\1", text
    )
    text = re.sub(r"(CurrentVersion\w{8})[0-9a-f]{32}", r"\1", text)
    return sorted(re.sub(rf"\b{stage}\b", "STAGE", text).splitlines())


def test_a_production_stage_is_protected_like_prod(live, template_of_live, prod):
    assert live.termination_protection
    assert shared_stack_of("prod").termination_protection
    assert not shared_stack_of("dev").termination_protection
    assert without_the_stage(template_of_live, LONGEST) == without_the_stage(prod, "prod")


# CloudFormation makes these names from the stack's name, cut to the service's limit, and a random end. So a name fits,
# and no two stacks of an account share it.
NAMES = {
    "AWS::DynamoDB::GlobalTable": "TableName",
    "AWS::IAM::Role": "RoleName",
    "AWS::Lambda::Function": "FunctionName",
    "AWS::Lambda::LayerVersion": "LayerName",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::Scheduler::Schedule": "Name",
    "AWS::SNS::Topic": "TopicName",
    "AWS::SQS::Queue": "QueueName",
}


def test_the_longest_stage_name_fits_and_two_stages_share_no_name(template_of_live, prod):
    assert len(LONGEST) == 20
    everything = synthesise("prod", **EVERYTHING)
    for stage, template in ((LONGEST, template_of_live), ("prod", prod), ("prod", everything)):
        assert len(f"InventoryOrders-{stage}") <= 128, "the longest possible name of a stack"
        for logical_id, resource in template.to_json()["Resources"].items():
            assert len(logical_id) <= 255
            named = resource.get("Properties", {}).get(NAMES.get(resource["Type"]))
            assert named is None or "AWS::StackId" in json.dumps(named)
        assert not any("Export" in output for output in template.to_json()["Outputs"].values())
        # These names are unique in a region, like the name of their stack.
        (dashboard,) = all_of(template, "CloudWatch::Dashboard")
        name = dashboard["DashboardName"]["Fn::Join"][1]
        assert name == [f"InventoryOrders-{stage}-", {"Ref": "AWS::Region"}]
        alarms = resources(template, "AWS::CloudWatch::Alarm")
        for logical_id, alarm in alarms.items():
            name = f"InventoryOrders-{stage}-{logical_id[:-8].removeprefix('Monitoring')}"
            assert alarm["Properties"]["AlarmName"] == name
            assert len(name) <= 255
        assert len({logical_id[:-8] for logical_id in alarms}) == len(alarms)
        (bus,) = all_of(template, "Events::EventBus")
        assert bus["Name"] == f"InventoryOrders-{stage}"
        for function in all_of(template, "Lambda::Function"):
            variables = function.get("Environment", {"Variables": {}})["Variables"]
            service = f"inventory-orders-{stage}"
            assert variables.get("POWERTOOLS_SERVICE_NAME", service) == service


def test_tracing_is_off_by_default(dev):
    assert not any("TracingConfig" in function for function in all_of(dev, "Lambda::Function"))
    # test_access.py covers a stack with tracing.
    assert "xray" not in json.dumps(resources(dev, "AWS::IAM::Policy"))


def test_a_permissions_boundary_is_set_by_the_cdk_context(dev, optional):
    for template, wanted in ((optional, True), (dev, False)):
        roles = all_of(template, "IAM::Role")
        found = [json.dumps(role.get("PermissionsBoundary", "")) for role in roles]
        assert len(found) == len(SETTINGS.functions) + 1, (
            "one role for each function and one for the schedule"
        )
        assert all((":policy/developers" in text) is wanted for text in found)


@pytest.mark.parametrize("random", [0.0, 0.5])
def test_all_deliveries_take_days_but_less_than_the_retention_period(random):
    delays = [redelivery_delay(n, lambda: random) for n in range(1, MAX_RECEIVE_COUNT)]
    assert 5 < sum(delays) / 86_400 < 8


def test_the_api_has_the_routes_of_its_contract():
    contract = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text("utf-8"))
    operations = {
        f"{method.upper()} {path}"
        for path, methods in contract["paths"].items()
        for method in methods
        if method != "parameters"
    }
    assert operations == set(ROUTES)


@pytest.fixture(scope="module")
def service():
    """Make a production service in a stack that is not protected."""
    return InventoryOrders(Stack(App(), "Shop"), "Tea", name="tea", production=True)


def test_a_production_service_in_an_unprotected_stack_is_warned_about(service):
    (warning,) = service.node.metadata
    assert warning.data.startswith("tea is a production service, but its stack is not protected")
    assert shared_stack_of("prod").node.find_child("Default").node.metadata == []


def test_no_output_of_a_service_can_be_mistaken_for_one_of_another_in_the_same_stack(service):
    names = {output.format(name=name) for output in OUTPUTS for name in service.functions}
    # If one name ends with another, the rest is what a prefix must not end with.
    ends = {
        one.removesuffix(other)
        for one in names
        for other in names
        if one != other and one.endswith(other)
    }
    assert ends
    for end in ends:
        with pytest.raises(ValueError, match=f'the prefix "Tea{end}" must not end with {end}:'):
            service.add_outputs(f"Tea{end}")
