"""No read, no version: one transaction an order, in which the stock itself is the condition; retried with full jitter.

The best that one order a transaction can do: a rival's decrement before ours does not matter as long as enough is left,
so only transactions that meet in flight conflict. What it cannot do is change a status that depends on the stock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import boto3

from bench.contenders import (
    CLIENT_CONFIG,
    ContentionError,
    full_jitter,
    one_by_one,
    quantities,
    timestamp,
)

TITLE = "atomic"
BATCH = 10

MAX_ATTEMPTS = 20

dynamodb = boto3.client("dynamodb", config=CLIENT_CONFIG)
PRODUCTS = os.environ["PRODUCTS_TABLE_NAME"]
ORDERS = os.environ["ORDERS_TABLE_NAME"]


def lambda_handler(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Place the orders of a batch one after the other."""
    return one_by_one(event, place_order)


def place_order(order: Mapping[str, Any]) -> None:
    """Place or reject one order.

    Raises:
        ContentionError: Rivals' transactions were in flight, `MAX_ATTEMPTS` times.
    """
    wanted = quantities(order)
    actions = [*(decrement(*line) for line in wanted.items()), {"Put": row(order, "PENDING")}]
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            # The SDK adds a token, so that its own repetitions after a lost answer do no harm.
            dynamodb.transact_write_items(TransactItems=actions)
            return
        except dynamodb.exceptions.TransactionCanceledException as cancelled:
            details: Any = cancelled.response
            *of_products, of_order = [
                reason["Code"] for reason in details.get("CancellationReasons", ())
            ]
        if of_order == "ConditionalCheckFailed":
            return
        if "ConditionalCheckFailed" in of_products:
            reject(order)
            return
        time.sleep(full_jitter(attempt))
    raise ContentionError(order["orderId"])


def decrement(product_id: str, quantity: int) -> Any:
    """The action that takes stock, if there is enough of it."""
    return {
        "Update": {
            "TableName": PRODUCTS,
            "Key": {"productId": {"S": product_id}},
            "UpdateExpression": "SET #stock = #stock - :quantity, #version = #version + :one, #at = :at",
            "ConditionExpression": "#stock >= :quantity",
            "ExpressionAttributeNames": {
                "#stock": "stockCount",
                "#version": "_version",
                "#at": "lastUpdatedAt",
            },
            "ExpressionAttributeValues": {
                ":quantity": {"N": str(quantity)},
                ":one": {"N": "1"},
                ":at": {"S": timestamp()},
            },
        }
    }


def row(order: Mapping[str, Any], status: str) -> Any:
    """The put of an order's row, if there is none yet."""
    now = timestamp()
    return {
        "TableName": ORDERS,
        "Item": {
            "orderId": {"S": order["orderId"]},
            "userId": {"S": order["userId"]},
            "items": {
                "L": [
                    {"M": {"productId": {"S": product_id}, "quantity": {"N": str(quantity)}}}
                    for product_id, quantity in quantities(order).items()
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


def reject(order: Mapping[str, Any]) -> None:
    """Write the order down as rejected, unless it was answered before."""
    try:
        dynamodb.put_item(**row(order, "REJECTED"))
    except dynamodb.exceptions.ConditionalCheckFailedException:
        return
