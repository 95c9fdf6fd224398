"""PynamoDB as its documentation shows it, with TransactWrite and a VersionAttribute.

Retries wait with full jitter.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from pynamodb.attributes import (
    ListAttribute,
    MapAttribute,
    NumberAttribute,
    UnicodeAttribute,
    VersionAttribute,
)
from pynamodb.connection import Connection
from pynamodb.exceptions import PutError, TransactWriteError
from pynamodb.models import Model
from pynamodb.transactions import TransactWrite

from bench.contenders import ContentionError, full_jitter, one_by_one, quantities, timestamp

TITLE = "PynamoDB"
BATCH = 10

MAX_ATTEMPTS = 20
# The timeouts of the other contenders. PynamoDB's defaults are 15 and 30 seconds.
CONNECT_TIMEOUT, READ_TIMEOUT = 1, 5


class Product(Model):
    """A row of the Products table."""

    class Meta:
        """The table and its client settings."""

        table_name = os.environ["PRODUCTS_TABLE_NAME"]
        region = os.environ["AWS_DEFAULT_REGION"]
        connect_timeout_seconds = CONNECT_TIMEOUT
        read_timeout_seconds = READ_TIMEOUT

    product_id = UnicodeAttribute(hash_key=True, attr_name="productId")
    stock_count = NumberAttribute(attr_name="stockCount")
    version = VersionAttribute(attr_name="_version")
    status = UnicodeAttribute()
    low_stock_threshold = NumberAttribute(attr_name="lowStockThreshold", null=True)
    created_at = UnicodeAttribute(attr_name="createdAt")
    last_updated_at = UnicodeAttribute(attr_name="lastUpdatedAt")


class Line(MapAttribute[str, Any]):
    """A line of an order."""

    product_id = UnicodeAttribute(attr_name="productId")
    quantity = NumberAttribute()


class Order(Model):
    """A row of the Orders table."""

    class Meta:
        """The table and its client settings."""

        table_name = os.environ["ORDERS_TABLE_NAME"]
        region = os.environ["AWS_DEFAULT_REGION"]
        connect_timeout_seconds = CONNECT_TIMEOUT
        read_timeout_seconds = READ_TIMEOUT

    order_id = UnicodeAttribute(hash_key=True, attr_name="orderId")
    user_id = UnicodeAttribute(attr_name="userId")
    items = ListAttribute(of=Line)
    status = UnicodeAttribute()
    created_at = UnicodeAttribute(attr_name="createdAt")
    last_updated_at = UnicodeAttribute(attr_name="lastUpdatedAt")
    version = VersionAttribute(attr_name="_version")


connection = Connection(
    region=os.environ["AWS_DEFAULT_REGION"],
    connect_timeout_seconds=CONNECT_TIMEOUT,
    read_timeout_seconds=READ_TIMEOUT,
)


def lambda_handler(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Place the orders of a batch one after the other."""
    return one_by_one(event, place_order)


def place_order(message: Mapping[str, Any]) -> None:
    """Place or reject one order.

    Raises:
        ContentionError: All `MAX_ATTEMPTS` attempts lost to a concurrent writer.
    """
    wanted = quantities(message)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        products = {
            product.product_id: product
            for product in Product.batch_get(list(wanted), consistent_read=True)
        }
        if any(
            product_id not in products or products[product_id].stock_count < quantity
            for product_id, quantity in wanted.items()
        ):
            reject(message)
            return
        try:
            with TransactWrite(connection=connection) as transaction:
                transaction.save(order(message, "PENDING"), Order.order_id.does_not_exist())
                for product_id, quantity in wanted.items():
                    transaction.update(
                        products[product_id],
                        actions=[
                            Product.stock_count.set(Product.stock_count - quantity),
                            Product.last_updated_at.set(timestamp()),
                        ],
                        condition=Product.stock_count >= quantity,
                    )
            return
        except TransactWriteError as error:
            # The save is the first action of the request, so its reason comes first.
            first = next(iter(error.cancellation_reasons), None)
            if first is not None and first.code == "ConditionalCheckFailed":
                return
            time.sleep(full_jitter(attempt))
    raise ContentionError(message["orderId"])


def order(message: Mapping[str, Any], status: str) -> Order:
    """Build the row of an order."""
    now = timestamp()
    return Order(
        message["orderId"],
        user_id=message["userId"],
        items=[
            Line(product_id=product_id, quantity=quantity)
            for product_id, quantity in quantities(message).items()
        ],
        status=status,
        created_at=now,
        last_updated_at=now,
    )


def reject(message: Mapping[str, Any]) -> None:
    """Write the row of a rejected order, unless the order already has a row."""
    try:
        order(message, "REJECTED").save(Order.order_id.does_not_exist())
    except PutError as error:
        if error.cause_response_code != "ConditionalCheckFailedException":
            raise
