"""Streams that are not read: the sweep reports them, but no problem while AWS does not answer."""

import boto3
import pytest
from botocore.stub import Stubber

from inventory_orders.engine.retrying_client import SweepReport
from inventory_orders.publishing.movements import unread_streams
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.tables import Table

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/{}/stream/2026-01-01T00:00:00.000"
OF = {table: ARN.format(table.value) for table in (Table.ORDERS, Table.PRODUCTS)}
READ = tuple(OF.values())
UUIDS = [f"{number:036}" for number in range(2)]


@pytest.fixture
def looks():
    """Return a function that checks event source mappings with the given streams and state."""
    tables, functions = boto3.client("dynamodb"), boto3.client("lambda")
    store = Store(tables, {table: table.value for table in Table})

    def look(arns=READ, state="Enabled", enabled=True):
        with Stubber(functions) as stub, Stubber(tables) as described:
            for uuid, arn in zip(UUIDS, arns, strict=False):
                answer = {"EventSourceArn": arn, "State": state}
                stub.add_response("get_event_source_mapping", answer, {"UUID": uuid})
            for table, arn in OF.items():
                stream = {"StreamSpecification": {"StreamEnabled": enabled}, "LatestStreamArn": arn}
                wanted = {"TableName": table.value}
                described.add_response("describe_table", {"Table": stream}, wanted)
            return unread_streams(store, functions, UUIDS[: len(arns)], "published")

    def fail(code):
        with Stubber(functions) as stub:
            stub.add_client_error("get_event_source_mapping", code, http_status_code=400)
            return unread_streams(store, functions, UUIDS, "published")

    look.fail = fail
    return look


def test_streams_that_are_read_are_not_a_problem(looks):
    assert looks() == looks(state="Updating") == SweepReport()


def test_a_recreated_table_has_another_stream(looks):
    (problem,) = looks((OF[Table.ORDERS], ARN.format("Products").replace("2026", "2025"))).problems
    assert problem.startswith("changes of Products are not published")


@pytest.mark.parametrize("how", [{"state": "Disabled"}, {"enabled": False}])
def test_a_disabled_mapping_or_stream_is_detected(looks, how):
    assert len(looks(**how).problems) == 2


def test_an_error_of_aws_is_not_a_problem_but_a_missing_mapping_is(looks):
    assert looks.fail("TooManyRequestsException").problems == {}
    (problem,) = looks.fail("ResourceNotFoundException").problems
    assert "cannot check whether changes are published: ResourceNotFound" in problem
