"""The books: every product's stock, explained by its adjustments and orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inventory_orders.model import OrderStatus
from inventory_orders.store import decode
from local.aws import Aws

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True, slots=True)
class Account:
    """One incarnation of a product.

    Attributes:
        product_id: The product.
        stock: What its row says; 0 if the row is gone.
        adjusted: Sum of its adjustments.
        sold: Units in orders that hold stock.
    """

    product_id: str
    status: str
    stock: int
    adjusted: int
    sold: int

    @property
    def difference(self) -> int:
        """Units that nobody can explain; 0 when the books balance."""
        return self.stock - (self.adjusted - self.sold)


@dataclass(frozen=True, slots=True)
class Books:
    """All accounts, and all orders by id."""

    accounts: tuple[Account, ...]
    orders: Mapping[str, dict[str, Any]]


def read_books(aws: Aws) -> Books:
    """Read all three tables, strongly consistent, and add up. Meant for a time when nothing writes."""
    products = {
        (row["productId"], row["createdAt"]): row for row in _rows(aws, "ProductsTableName")
    }
    adjusted: dict[tuple[str, str], int] = {}
    for row in _rows(aws, "StockAdjustmentsTableName"):
        key = (row["productId"], row["productCreatedAt"])
        adjusted[key] = adjusted.get(key, 0) + row["delta"]
    sold: dict[tuple[str, str], int] = {}
    orders = {row["orderId"]: row for row in _rows(aws, "OrdersTableName")}
    for row in orders.values():
        if row["status"] not in (OrderStatus.REJECTED, OrderStatus.CANCELLED):
            for line in row["items"]:
                key = (line["productId"], line["productCreatedAt"])
                sold[key] = sold.get(key, 0) + line["quantity"]
    accounts = []
    for key in sorted(products.keys() | adjusted.keys() | sold.keys()):
        row = products.get(key, {"stockCount": 0, "status": "DELISTED"})
        accounts.append(
            Account(
                key[0], row["status"], row["stockCount"], adjusted.get(key, 0), sold.get(key, 0)
            )
        )
    return Books(tuple(accounts), orders)


def _rows(aws: Aws, output: str) -> Iterator[dict[str, Any]]:
    client: DynamoDBClient = aws.dynamodb
    pages = client.get_paginator("scan").paginate(
        TableName=aws.outputs[output], ConsistentRead=True
    )
    for page in pages:
        for item in page["Items"]:
            yield decode(item)
