"""The synthesised template, where the embedded AWS drops or ignores what it says."""

import json
import os

import pytest

os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
os.environ["CDK_VALIDATION"] = "false"

import aws_cdk as cdk
from aws_cdk.assertions import Match, Template

from infra.queues import MAX_RECEIVE_COUNT
from infra.settings import Settings
from infra.stack import InventoryOrdersStack
from inventory_orders.model import Table
from inventory_orders.store import PARTITION_KEYS, SORT_KEYS
from local import ROOT

SETTINGS = json.loads((ROOT / "cdk.json").read_text())["context"]["settings"]


def synthesise(stage, **changes):
    settings = Settings.from_context(stage, SETTINGS | changes)
    app = cdk.App(context={"@aws-cdk/aws-iam:minimizePolicies": True})
    return Template.from_stack(InventoryOrdersStack(app, settings.stack_name, settings=settings))


@pytest.fixture(scope="module")
def dev():
    return synthesise("dev")


@pytest.fixture(scope="module")
def prod():
    return synthesise("prod")


def resources(template, kind):
    return template.find_resources(kind)


def by_name(template, kind, part):
    (found,) = [
        resource
        for logical_id, resource in resources(template, kind).items()
        if logical_id[:-8].endswith(part)
    ]
    return found


@pytest.mark.parametrize("table", list(Table))
def test_tables_have_the_keys_of_the_contract_and_are_protected(dev, prod, table):
    for template, protected in ((dev, False), (prod, True)):
        resource = by_name(template, "AWS::DynamoDB::GlobalTable", table.value)
        properties = resource["Properties"]
        keys = [key["AttributeName"] for key in properties["KeySchema"]]
        assert keys == [PARTITION_KEYS[table], *SORT_KEYS.get(table, ())]
        assert properties["BillingMode"] == "PAY_PER_REQUEST"
        assert properties["SSESpecification"]["SSEEnabled"] is True
        (replica,) = properties["Replicas"]
        recovery = replica["PointInTimeRecoverySpecification"]
        assert recovery["PointInTimeRecoveryEnabled"] is True
        assert replica["DeletionProtectionEnabled"] is protected
        assert resource["DeletionPolicy"] == ("Retain" if protected else "Delete")
        assert "WarmThroughput" not in properties


def test_orders_have_their_stream_and_their_index(dev):
    properties = by_name(dev, "AWS::DynamoDB::GlobalTable", "Orders")["Properties"]
    assert properties["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    (index,) = properties["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "byUser"
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["userId", "createdAt"]
    assert index["Projection"] == {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["status"]}


def test_warm_throughput_is_optional():
    template = synthesise(
        "dev",
        warmThroughput={"Products": {"readUnitsPerSecond": 20000, "writeUnitsPerSecond": 10000}},
    )
    properties = by_name(template, "AWS::DynamoDB::GlobalTable", "Products")["Properties"]
    assert properties["WarmThroughput"] == {
        "ReadUnitsPerSecond": 20000,
        "WriteUnitsPerSecond": 10000,
    }


@pytest.mark.parametrize(
    ("name", "dead_letters", "fifo"),
    [
        ("OrderQueue", "OrderDeadLetterQueue", False),
        ("OrderQueueFifo", "OrderFifoDeadLetterQueue", True),
    ],
)
def test_queues(dev, name, dead_letters, fifo):
    queue = by_name(dev, "AWS::SQS::Queue", name)["Properties"]
    letters = by_name(dev, "AWS::SQS::Queue", dead_letters)["Properties"]
    timeout = SETTINGS["functions"]["place_orders"]["timeoutSeconds"]
    assert queue["VisibilityTimeout"] >= 6 * timeout
    assert queue["MessageRetentionPeriod"] == 4 * 86400
    assert letters["MessageRetentionPeriod"] == 14 * 86400
    assert queue["RedrivePolicy"]["maxReceiveCount"] == MAX_RECEIVE_COUNT
    for properties in (queue, letters):
        assert properties["SqsManagedSseEnabled"] is True
        assert properties.get("FifoQueue", False) is fifo
        if fifo:
            assert properties["DeduplicationScope"] == "messageGroup"
            assert properties["FifoThroughputLimit"] == "perMessageGroupId"


def test_every_queue_refuses_plain_http(dev):
    policies = resources(dev, "AWS::SQS::QueuePolicy").values()
    assert len(policies) == len(resources(dev, "AWS::SQS::Queue"))
    for policy in policies:
        (statement,) = policy["Properties"]["PolicyDocument"]["Statement"]
        assert statement["Effect"] == "Deny"
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_event_sources_come_from_the_configuration(dev):
    sources = [
        source["Properties"]
        for source in resources(dev, "AWS::Lambda::EventSourceMapping").values()
    ]
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
        (q["batchSize"], q.get("batchWindowSeconds", 0), q["maximumConcurrency"])
        for q in SETTINGS["queues"].values()
    }
    fifo = next(s for s in sources if s["BatchSize"] == 10)
    assert "MaximumBatchingWindowInSeconds" not in fifo


def test_the_function(dev):
    dev.has_resource_properties(
        "AWS::Lambda::Function",
        {
            "Runtime": SETTINGS["runtime"],
            "Architectures": [SETTINGS["architecture"]],
            "Handler": "handler.lambda_handler",
            "Timeout": SETTINGS["functions"]["place_orders"]["timeoutSeconds"],
            "LoggingConfig": {"LogGroup": Match.any_value()},
            "Environment": {
                "Variables": Match.object_like({"POWERTOOLS_SERVICE_NAME": "inventory-orders-dev"})
            },
        },
    )
    assert len(resources(dev, "AWS::Lambda::Function")) == 1, "no helper functions of the CDK"
    dev.has_resource_properties("AWS::Logs::LogGroup", {"RetentionInDays": 30})


def test_the_role_lists_exact_actions_on_exact_resources(dev):
    (policy,) = resources(dev, "AWS::IAM::Policy").values()
    granted = {}
    for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
        assert statement["Effect"] == "Allow"
        actions = statement["Action"]
        targets = statement["Resource"]
        for target in targets if isinstance(targets, list) else [targets]:
            name = target["Fn::GetAtt"][0][:-8]
            granted.setdefault(name, set()).update(
                [actions] if isinstance(actions, str) else actions
            )
    consume = {
        f"sqs:{action}"
        for action in (
            "ReceiveMessage",
            "ChangeMessageVisibility",
            "GetQueueUrl",
            "DeleteMessage",
            "GetQueueAttributes",
        )
    }
    assert granted == {
        "FunctionsPlaceOrdersLogs": {"logs:CreateLogStream", "logs:PutLogEvents"},
        "TablesProducts": {"dynamodb:BatchGetItem", "dynamodb:UpdateItem"},
        "TablesOrders": {"dynamodb:BatchGetItem", "dynamodb:PutItem"},
        "QueuesOrderQueue": consume,
        "QueuesOrderQueueFifo": consume,
        "QueuesOrderDeadLetterQueue": {"sqs:SendMessage"},
        "QueuesOrderFifoDeadLetterQueue": {"sqs:SendMessage"},
    }
    (role,) = resources(dev, "AWS::IAM::Role").values()
    assert "ManagedPolicyArns" not in role["Properties"]


def test_outputs_are_those_that_other_tools_rely_on(dev):
    outputs = set(dev.to_json()["Outputs"])
    assert outputs >= {
        "OrderQueueUrl",
        "OrderQueueFifoUrl",
        "OrderDeadLetterQueueUrl",
        "OrderFifoDeadLetterQueueUrl",
        "ProductsTableName",
        "OrdersTableName",
        "StockAdjustmentsTableName",
        "OrdersStreamArn",
    }


def test_production_keeps_queues_and_logs(prod):
    for kind in ("AWS::SQS::Queue", "AWS::Logs::LogGroup"):
        assert all(r["DeletionPolicy"] == "Retain" for r in resources(prod, kind).values())
