"""The atomic decrement: each order is one transaction, conditional on the stock, and nothing is read first.

This is the best case for one order per transaction. Another writer's earlier decrement does not matter while enough
stock is left, so only transactions in flight at the same time conflict. Retries wait with full jitter. The transaction
cannot update a status that depends on the stock.
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
from bench.contenders.textbook import order_row, reject

TITLE = "atomic"
BATCH = 10

MAX_ATTEMPTS = 20

dynamodb = boto3.client("dynamodb", config=CLIENT_CONFIG)
PRODUCTS = os.environ["PRODUCTS_TABLE_NAME"]


def lambda_handler(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Place the orders of a batch one after the other."""
    return one_by_one(event, place_order)


def place_order(order: Mapping[str, Any]) -> None:
    """Place or reject one order.

    Raises:
        ContentionError: All `MAX_ATTEMPTS` attempts conflicted with other transactions.
    """
    wanted = quantities(order)
    actions = [
        *(decrement(*line) for line in wanted.items()),
        {"Put": order_row(order, wanted, "PENDING")},
    ]
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            # The SDK adds a token, so its own retries after a lost response are safe.
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
    """Build the action that takes stock if there is enough."""
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
