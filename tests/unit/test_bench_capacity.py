"""The capacity that requests consume, according to AWS's rules."""

import base64
import json

import pytest

from bench.capacity import Call, Exchange

PRODUCT = {"productId": {"S": "drop"}, "stockCount": {"N": "5"}, "_version": {"N": "1"}}
UPDATE = {
    "Update": {
        "TableName": "Products",
        "Key": {"productId": {"S": "drop"}},
        "ExpressionAttributeValues": {":q": {"N": "1"}},
    }
}


def put(size=100, order_id="o-1"):
    return {
        "Put": {
            "TableName": "Orders",
            "Item": {"orderId": {"S": order_id}, "note": {"S": "x" * size}},
        }
    }


def call(operation, request, answer=None, status=200):
    exchange = Exchange(
        f"DynamoDB_20120810.{operation}",
        json.dumps(request).encode(),
        status,
        json.dumps(answer or {}).encode(),
        0.0,
        0.1,
    )
    return Call(exchange, "Products", "Orders")


def transaction(*actions):
    return {"TransactItems": list(actions)}


def cancelled(*codes):
    return {
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "CancellationReasons": [{"Code": code} for code in codes],
    }


def test_binary_values_count_their_bytes_not_their_text_on_the_wire():
    units = {"B": base64.b64encode(bytes(1_000)).decode()}
    page = {"TableName": "Allotments", "Item": {"page": {"S": "1/0"}, "units": units}}
    assert call("TransactWriteItems", transaction({"Put": page})).usage.write == 2


def test_a_transaction_takes_two_units_per_kb_and_one_index_unit_per_order():
    usage = call("TransactWriteItems", transaction(UPDATE, put())).usage
    assert (usage.write, usage.index, usage.read) == (4, 1, 0)
    usage = call("TransactWriteItems", transaction(UPDATE, put(1500))).usage
    assert (usage.write, usage.index) == (2 + 4, 1)


def test_a_cancelled_transaction_pays_for_all_actions_but_not_for_the_index():
    lost = call(
        "TransactWriteItems",
        transaction(UPDATE, put(order_id="o-1"), put(order_id="o-2")),
        cancelled("ConditionalCheckFailed", "None", "None"),
        400,
    )
    assert (lost.usage.write, lost.usage.index) == (6, 0)
    assert lost.is_attempt
    assert lost.is_conflict
    assert list(lost.order_ids) == ["o-1", "o-2"]


def test_a_failed_condition_costs_as_much_as_the_write_of_the_larger_item():
    answer = {
        "__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
        "Item": {"productId": {"S": "drop"}, "name": {"S": "x" * 1100}},
    }
    failed = call("UpdateItem", UPDATE["Update"], answer, 400)
    assert failed.usage.write == 2
    assert failed.is_conflict
    assert call("UpdateItem", UPDATE["Update"]).usage.write == 1


def test_a_plain_put_of_an_order_takes_one_unit_and_one_index_unit():
    usage = call("PutItem", put()["Put"]).usage
    assert (usage.write, usage.index) == (1, 1)


@pytest.mark.parametrize(("consistent", "units"), [(True, 1.0), (False, 0.5)])
def test_reads_cost_by_consistency_and_missing_items_count(consistent, units):
    request = {"TableName": "Products", "Key": {}, "ConsistentRead": consistent}
    assert call("GetItem", request, {"Item": PRODUCT}).usage.read == units
    assert call("GetItem", request).usage.read == units
    large = {"Item": {"productId": {"S": "drop"}, "name": {"S": "x" * 4100}}}
    assert call("GetItem", request, large).usage.read == 2 * units


def test_a_batch_read_pays_for_each_item_except_unprocessed_ones():
    request = {
        "RequestItems": {
            "Products": {"Keys": [{}, {}, {}], "ConsistentRead": True},
            "Orders": {"Keys": [{}, {}]},
        }
    }
    answer = {
        "Responses": {"Products": [PRODUCT], "Orders": []},
        "UnprocessedKeys": {"Products": {"Keys": [{}]}},
    }
    # Products: one key is found, one is missing, one is unprocessed. Orders: two keys are missing, read with eventual
    # consistency.
    assert call("BatchGetItem", request, answer).usage.read == 2 + 2 * 0.5


def test_a_throttled_or_unanswered_request_costs_nothing():
    throttled = {"__type": "com.amazonaws.dynamodb.v20120810#ThrottlingException"}
    assert call("UpdateItem", UPDATE["Update"], throttled, 400).usage.write == 0
    assert call("TransactWriteItems", transaction(UPDATE), {}, 500).usage.write == 0
    assert call("TransactWriteItems", transaction(UPDATE), {}, 0).usage.write == 0


def test_only_attempts_on_products_and_orders_can_conflict():
    """An existing row in the idempotency table is not a conflict."""
    elsewhere = {"TableName": "Idempotency", "Item": {"id": {"S": "1"}}}
    failed = {"__type": "#ConditionalCheckFailedException"}
    record = call("PutItem", elsewhere, failed, 400)
    assert not record.is_attempt
    assert not record.is_conflict
    flying = cancelled("TransactionConflict", "None")
    assert call("TransactWriteItems", transaction(UPDATE, put()), flying, 400).is_conflict
    assert not call("TransactWriteItems", transaction(UPDATE, put())).is_conflict
