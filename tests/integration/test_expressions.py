"""The store's conditions on the embedded AWS and on Dynoxide give the same answers as in the unit tests."""

from datetime import UTC, datetime

import pytest

from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.order import Order
from inventory_orders.domain.planner import Supply, plan
from inventory_orders.store.cancellations import TransactionCancelledError
from inventory_orders.store.writes import transaction_actions
from testing.bench import stored

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def write(shop, order, shelf, token):
    (transaction,) = plan([order], Supply(Allocation(shelf))).transactions
    shop.store.write(transaction_actions(transaction, NOW), token)


def test_a_token_applies_a_request_once(each_shop):
    each_shop.create("token", 10)
    shelf = {"token": each_shop.product("token")}
    write(each_shop, Order("token-1", "u", {"token": 1}), shelf, "same-token-1")
    write(each_shop, Order("token-1", "u", {"token": 1}), shelf, "same-token-1")
    assert each_shop.product("token").stock_count == 9


def test_a_cancelled_transaction_returns_the_items_of_all_failed_conditions(each_shop):
    each_shop.create("back-1", 10)
    each_shop.create("back-2", 10)
    stale = {"back-1": each_shop.product("back-1"), "back-2": each_shop.product("back-2")}
    write(each_shop, Order("back-a", "u", {"back-1": 1, "back-2": 1}), stale, "back-a")
    with pytest.raises(TransactionCancelledError) as caught:
        write(each_shop, Order("back-a", "u", {"back-1": 1, "back-2": 1}), stale, "back-b")
    codes = [reason.code for reason in caught.value.reasons]
    assert codes == ["ConditionalCheckFailed"] * 3
    assert [reason.found.version for reason in caught.value.reasons] == [2, 2, 1]


def test_a_live_lease_keeps_orders_out(each_shop):
    each_shop.create("leased", 10)
    value = each_shop.product("leased")
    item = stored(value) | {
        "lockedBy": {"S": "counter-1"},
        "lockTime": {"N": str(NOW.timestamp() + 0.25)},
    }
    each_shop.aws.dynamodb.put_item(TableName=each_shop.aws.outputs["ProductsTableName"], Item=item)
    with pytest.raises(TransactionCancelledError):
        write(each_shop, Order("leased-1", "u", {"leased": 1}), {"leased": value}, "leased-1")
