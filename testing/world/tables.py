"""The service's tables and queues, and how to create them on any implementation of AWS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.location import location_of
from inventory_orders.domain.product import NewProduct
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.tables import INDEXES, KEYS, Index, Table
from operations.creations import create_many

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

NAMES = {table: table.value for table in Table}
"""The tables' names outside of a stack."""


class Feed(NamedTuple):
    """A queue, and the function that it feeds.

    Attributes:
        queue: The queue's name. The name of its stack output begins with it.
        dead_letters: The name of its dead-letter queue.
        function: The function's name.
        prefix: Prefix of the names of the function's environment variables.
    """

    queue: str
    dead_letters: str
    function: str
    prefix: str = ""


FEEDS = {
    "Order": Feed("OrderQueue", "OrderDeadLetterQueue", "place_orders"),
    "OrderFifo": Feed(
        "OrderQueueFifo.fifo", "OrderFifoDeadLetterQueue.fifo", "place_orders", "FIFO_"
    ),
    "OrderExpress": Feed(
        "OrderQueueExpress", "OrderExpressDeadLetterQueue", "place_orders", "EXPRESS_"
    ),
    "Stock": Feed("StockQueue", "StockDeadLetterQueue", "adjust_stock"),
    "Catalogue": Feed("CatalogueQueue", "CatalogueDeadLetterQueue", "manage_products"),
    "OrderCommand": Feed("OrderCommandQueue", "OrderCommandDeadLetterQueue", "change_orders"),
    "Expiry": Feed("ExpiryQueue", "ExpiryDeadLetterQueue", "change_orders", "EXPIRY_"),
}
UNDELIVERABLE = "UndeliverableEventsQueue"
UNRECORDED = "UnrecordedMovementsQueue"
QUEUES = (
    *(name for feed in FEEDS.values() for name in (feed.queue, feed.dead_letters)),
    UNDELIVERABLE,
    UNRECORDED,
)
"""The names of all queues."""


def settings(url_of: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that all functions share.

    Args:
        url_of: The URL of each queue, by name.
    """
    return {
        **{f"{table.name}_TABLE_NAME": name for table, name in NAMES.items()},
        "POWERTOOLS_SERVICE_NAME": "inventory-orders-local",
        "SHOW_STOCK": "numbers",
        "ABOUT": '{"stage": "local", "production": false, "currency": {"code": "", "digits": 0}, "changes": false, "amendPaid": false}',
        "LANES": "2",
        "API_LANES": "1",
        "HOLD_GRACE_SECONDS": "60",
        "SWEEP_MINUTES": "1",
        "EVENT_BUS_NAME": "Bus",
        "ORDER_QUEUE_URL": url_of["OrderQueue"],
        "UNDELIVERABLE_EVENTS_QUEUE_URL": url_of[UNDELIVERABLE],
        "UNRECORDED_MOVEMENTS_QUEUE_URL": url_of[UNRECORDED],
    }


def queue_settings(function: str, url_of: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that name the queues that feed a function."""
    found = {}
    for feed in FEEDS.values():
        senders = {"EXPIRY_": "sweep", "EXPRESS_": "api"}
        if function in (feed.function, senders.get(feed.prefix)):
            found[f"{feed.prefix}QUEUE_URL"] = url_of[feed.queue]
            found[f"{feed.prefix}DEAD_LETTER_QUEUE_URL"] = url_of[feed.dead_letters]
    return found


def make_stack(products: Iterable[NewProduct]) -> dict[str, str]:
    """Create the tables, the queues and the event bus, and list products. Returns the queues' URLs, by name."""
    dynamodb = boto3.client("dynamodb")
    for table, name in NAMES.items():
        create_table(dynamodb, table, name)
    client = RetryingClient(Store(dynamodb, NAMES))
    # Each product comes before its places. One by one, moto would copy all tables for each of them.
    by_location = sorted(products, key=_location_of)
    for _, group in groupby(by_location, _location_of):
        made = create_many(client, list(group), Deadline.after(10, SystemClock()))
        assert all(each.created for each in made)
    boto3.client("events").create_event_bus(Name="Bus")
    sqs = boto3.client("sqs")
    urls = {}
    for name in QUEUES:
        fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        attributes: Any = fifo if name.endswith(".fifo") else {}
        urls[name] = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return urls


def _location_of(product: NewProduct) -> str:
    return location_of(product.product_id)


def create_table(dynamodb: DynamoDBClient, table: Table, name: str) -> None:
    """Create a table of the service."""
    dynamodb.create_table(**creation(name, KEYS[table], INDEXES.get(table, ())))


def creation(name: str, keys: Sequence[str], indexes: Sequence[Index] = ()) -> Any:
    """The request that creates a table with keys and indexes. All keys are strings."""
    attributes = dict.fromkeys([*keys, *(key for index in indexes for key in index.keys)])
    request = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": key, "AttributeType": "S"} for key in attributes
        ],
        "KeySchema": _key_schema(keys),
    }
    if indexes:
        request["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index.name,
                "KeySchema": _key_schema(index.keys),
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": index.attributes}
                if index.attributes
                else {"ProjectionType": "KEYS_ONLY"},
            }
            for index in indexes
        ]
    return request


def _key_schema(keys: Sequence[str]) -> list[dict[str, str]]:
    return [
        {"AttributeName": key, "KeyType": "RANGE" if number else "HASH"}
        for number, key in enumerate(keys)
    ]
