"""The faulty proxy injects the documented faults, as the real client sees them."""

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.support import faults
from tests.support.faults import Fault, FaultyProxy, Shares

ONCE = Config(retries={"total_max_attempts": 1})


@pytest.fixture
def proxy(embedded_aws, monkeypatch):
    monkeypatch.setattr(faults, "_LATE_SECONDS", (0.2, 1.0))
    with FaultyProxy(embedded_aws[1].endpoint, Shares(), seed=3) as proxy:
        yield proxy


def client(proxy, config=ONCE):
    return boto3.client("dynamodb", endpoint_url=proxy.endpoint, config=config)


def transaction(table, key):
    put = {"TableName": table, "Item": {"orderId": {"S": key}}}
    check = {
        "TableName": table,
        "Key": {"orderId": {"S": "none"}},
        "ConditionExpression": "attribute_not_exists(orderId)",
    }
    return [{"Put": put}, {"ConditionCheck": check}]


def test_without_a_fault_everything_passes(shop, proxy):
    shop.create("proxied", 5)
    (table, *_) = shop.tables.values()
    key = {"TableName": table, "Key": {"productId": {"S": "proxied"}}}
    assert client(proxy).get_item(**key)["Item"]["stockCount"] == {"N": "5"}
    assert (proxy.requests, proxy.counts.total()) == (1, 0)


def test_a_throttle_applies_nothing(shop, proxy):
    proxy.shares = Shares(throttled=1.0)
    seen = set()
    for _ in range(2):
        with pytest.raises(ClientError) as caught:
            client(proxy).transact_write_items(
                TransactItems=transaction(shop.environment["ORDERS_TABLE_NAME"], "proxy-throttled")
            )
        seen.add(caught.value.response["Error"]["Code"])
    assert seen == {"ProvisionedThroughputExceededException", "ThrottlingException"}
    assert proxy.counts == {Fault.THROTTLED: 2}
    assert not stored(shop, "proxy-throttled")


def test_a_conflict_names_one_action_and_applies_nothing(shop, proxy):
    proxy.shares = Shares(conflict=1.0)
    with pytest.raises(ClientError) as caught:
        client(proxy).transact_write_items(
            TransactItems=transaction(shop.environment["ORDERS_TABLE_NAME"], "proxy-conflict")
        )
    reasons = [reason["Code"] for reason in caught.value.response["CancellationReasons"]]
    assert reasons == ["TransactionConflict", "None"]
    assert not stored(shop, "proxy-conflict")
    client(proxy).list_tables()
    assert proxy.counts == {Fault.CONFLICT: 1}, "only transactions conflict"


def test_a_server_error_applies_nothing(shop, proxy):
    proxy.shares = Shares(server_error=1.0)
    with pytest.raises(ClientError, match="InternalServerError"):
        client(proxy).list_tables()


def test_a_lost_response_was_applied(shop, proxy):
    proxy.shares = Shares(lost_response=1.0)
    with pytest.raises(ConnectionClosedError):
        client(proxy).transact_write_items(
            TransactItems=transaction(shop.environment["ORDERS_TABLE_NAME"], "proxy-lost")
        )
    assert stored(shop, "proxy-lost")
    remove(shop, "proxy-lost")


def test_a_late_request_is_executed_after_its_sender_has_given_up(shop, proxy):
    proxy.shares = Shares(late=1.0)
    with pytest.raises(ConnectionClosedError):
        client(proxy).transact_write_items(
            TransactItems=transaction(shop.environment["ORDERS_TABLE_NAME"], "proxy-late")
        )
    assert not stored(shop, "proxy-late")
    client(proxy).list_tables()
    proxy.wait_for_late_requests()
    assert stored(shop, "proxy-late")
    assert proxy.counts == {Fault.LATE: 1}, "only writes are late"
    remove(shop, "proxy-late")


def test_a_torn_read_sees_half_of_its_items_at_a_later_moment(shop, proxy):
    proxy.shares = Shares(torn=1.0)
    names = [f"proxy-torn-{number}" for number in range(3)]
    for name in names:
        shop.create(name, 1)
    (table, *_) = shop.tables.values()
    requests, forward = [], proxy.forward
    proxy.forward = lambda *request: requests.append(request) or forward(*request)
    keys = [{"productId": {"S": name}} for name in [*names, "proxy-none"]]
    found = client(proxy).batch_get_item(RequestItems={table: {"Keys": keys}})["Responses"][table]
    assert sorted(item["productId"]["S"] for item in found) == names
    assert len(requests) == 2
    assert proxy.counts == {Fault.TORN: 1}


def row(shop, order_id):
    return {
        "TableName": shop.environment["ORDERS_TABLE_NAME"],
        "Key": {"orderId": {"S": order_id}},
    }


def stored(shop, order_id):
    return "Item" in shop.aws.dynamodb.get_item(**row(shop, order_id), ConsistentRead=True)


def remove(shop, order_id):
    """Delete an order's incomplete row, because the audit cannot read it."""
    shop.aws.dynamodb.delete_item(**row(shop, order_id))
