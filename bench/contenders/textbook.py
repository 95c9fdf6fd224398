"""The textbook's `place_order_transaction`: read, check, write conditionally on the version, retry after 0.1 s x 2^n.

Tutorials on optimistic locking with DynamoDB teach this, such as "Optimistic locking with version number" in the
Amazon DynamoDB Developer Guide: one order per transaction, each product's update conditional on the version that was
read, and exponential backoff without jitter. Unlike most tutorials, this handler tolerates redelivery, because it
writes an order's row only if there is none, and it accepts orders for several products.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.exceptions import ClientError

from bench.contenders import CLIENT_CONFIG, ContentionError, one_by_one, quantities, timestamp

TITLE = "textbook"
BATCH = 10

MAX_ATTEMPTS = 5

dynamodb = boto3.client("dynamodb", config=CLIENT_CONFIG)
PRODUCTS = os.environ["PRODUCTS_TABLE_NAME"]
ORDERS = os.environ["ORDERS_TABLE_NAME"]


def lambda_handler(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Place the orders of a batch one after the other."""
    return one_by_one(event, place_order_transaction)


def place_order_transaction(order: Mapping[str, Any]) -> None:
    """Place or reject one order.

    Raises:
        ContentionError: All `MAX_ATTEMPTS` attempts lost to a concurrent writer.
    """
    wanted = quantities(order)
    for attempt in range(MAX_ATTEMPTS):
        products = read_products(list(wanted))
        if any(
            product_id not in products or int(products[product_id]["stockCount"]["N"]) < quantity
            for product_id, quantity in wanted.items()
        ):
            reject(order)
            return
        try:
            dynamodb.transact_write_items(
                TransactItems=[
                    *(
                        decrement(product_id, quantity, int(products[product_id]["_version"]["N"]))
                        for product_id, quantity in wanted.items()
                    ),
                    {"Put": order_row(order, wanted, "PENDING")},
                ]
            )
        except dynamodb.exceptions.TransactionCanceledException as cancelled:
            if placed_before(cancelled):
                return
            time.sleep(0.1 * 2**attempt)
        else:
            return
    raise ContentionError(order["orderId"])


def read_products(product_ids: list[str]) -> dict[str, Any]:
    """Read products with strong consistency. Returns those that exist, by id."""
    found = {}
    request: Any = {
        PRODUCTS: {
            "Keys": [{"productId": {"S": product_id}} for product_id in product_ids],
            "ConsistentRead": True,
        }
    }
    while request:
        answer = dynamodb.batch_get_item(RequestItems=request)
        found.update({item["productId"]["S"]: item for item in answer["Responses"][PRODUCTS]})
        request = answer.get("UnprocessedKeys")
    return found


def decrement(product_id: str, quantity: int, version: int) -> Any:
    """Build the action that takes stock if the product has not changed since it was read."""
    return {
        "Update": {
            "TableName": PRODUCTS,
            "Key": {"productId": {"S": product_id}},
            "UpdateExpression": "SET #stock = #stock - :quantity, #version = :next, #at = :at",
            "ConditionExpression": "#version = :version AND #stock >= :quantity",
            "ExpressionAttributeNames": {
                "#stock": "stockCount",
                "#version": "_version",
                "#at": "lastUpdatedAt",
            },
            "ExpressionAttributeValues": {
                ":quantity": {"N": str(quantity)},
                ":version": {"N": str(version)},
                ":next": {"N": str(version + 1)},
                ":at": {"S": timestamp()},
            },
        }
    }


def order_row(order: Mapping[str, Any], wanted: Mapping[str, int], status: str) -> Any:
    """Build the action that puts an order's row if there is none yet."""
    now = timestamp()
    return {
        "TableName": ORDERS,
        "Item": {
            "orderId": {"S": order["orderId"]},
            "userId": {"S": order["userId"]},
            "items": {
                "L": [
                    {"M": {"productId": {"S": product_id}, "quantity": {"N": str(quantity)}}}
                    for product_id, quantity in wanted.items()
                ]
            },
            "status": {"S": status},
            "createdAt": {"S": now},
            "lastUpdatedAt": {"S": now},
            "_version": {"N": "1"},
        },
        "ConditionExpression": "attribute_not_exists(#id)",
        "ExpressionAttributeNames": {"#id": "orderId"},
    }


def placed_before(cancelled: ClientError) -> bool:
    """Whether a transaction was cancelled because the order's row, which its last action writes, already exists."""
    reasons: Any = cancelled.response.get("CancellationReasons", ())
    return bool(reasons) and reasons[-1].get("Code") == "ConditionalCheckFailed"


def reject(order: Mapping[str, Any]) -> None:
    """Write the row of a rejected order, unless the order already has a row."""
    try:
        dynamodb.put_item(**order_row(order, quantities(order), "REJECTED"))
    except dynamodb.exceptions.ConditionalCheckFailedException:
        return
