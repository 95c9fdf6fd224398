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


def write(shop, proxy):
    """Write an order's row, in a transaction of two actions."""
    table = shop.environment["ORDERS_TABLE_NAME"]
    check = {
        "TableName": table,
        "Key": {"orderId": {"S": "none"}},
        "ConditionExpression": "attribute_not_exists(orderId)",
    }
    put = {"TableName": table, "Item": {"orderId": {"S": "proxied"}}}
    client(proxy).transact_write_items(TransactItems=[{"Put": put}, {"ConditionCheck": check}])


def row(shop):
    return {
        "TableName": shop.environment["ORDERS_TABLE_NAME"],
        "Key": {"orderId": {"S": "proxied"}},
    }


def stored(shop):
    return "Item" in shop.aws.dynamodb.get_item(**row(shop), ConsistentRead=True)


@pytest.mark.parametrize(
    ("shares", "codes"),
    [
        (
            Shares(throttled=1.0),
            ["ThrottlingException", "ProvisionedThroughputExceededException"],
        ),
        (Shares(server_error=1.0), ["InternalServerError"] * 2),
        (Shares(conflict=1.0), ["TransactionCanceledException"] * 2),
    ],
)
def test_a_refused_request_applies_nothing(shop, proxy, shares, codes):
    proxy.shares = shares
    for code in codes:
        with pytest.raises(ClientError, match=code):
            write(shop, proxy)
    assert proxy.counts.total() == 2
    assert not stored(shop)


def test_only_transactions_conflict_and_a_conflict_names_one_action(shop, proxy):
    proxy.shares = Shares(conflict=1.0)
    with pytest.raises(ClientError) as caught:
        write(shop, proxy)
    reasons = [reason["Code"] for reason in caught.value.response["CancellationReasons"]]
    assert reasons == ["TransactionConflict", "None"]
    client(proxy).list_tables()
    assert proxy.counts == {Fault.CONFLICT: 1}


@pytest.mark.parametrize(
    ("shares", "is_late"), [(Shares(lost_response=1.0), False), (Shares(late=1.0), True)]
)
def test_a_request_without_a_response_is_applied_at_once_or_later(shop, proxy, shares, is_late):
    proxy.shares = shares
    with pytest.raises(ConnectionClosedError):
        write(shop, proxy)
    assert stored(shop) is not is_late
    if is_late:
        client(proxy).list_tables()
        proxy.wait_for_late_requests()
        assert stored(shop)
        assert proxy.counts == {Fault.LATE: 1}, "only writes are late"
    # The audit cannot read the incomplete row.
    shop.aws.dynamodb.delete_item(**row(shop))


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
