"""The service's tables and queues, made on whatever implementation of AWS the clients of this process talk to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import boto3

from inventory_orders.domain.product import NewProduct
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.tables import INDEXES, KEYS, Index, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import KeySchemaElementTypeDef


def make_stack(products: Iterable[NewProduct]) -> Mapping[str, str]:
    """Make the tables and queues, list products, and return the handlers' environment."""
    make_tables(products)
    return make_queues()


def make_tables(products: Iterable[NewProduct] = ()) -> None:
    """Make the tables, and list products."""
    dynamodb = boto3.client("dynamodb")
    for table in Table:
        create_table(dynamodb, table, table.value)
    shop = ProductCatalogue(
        RetryingClient(Store(dynamodb, {table: table.value for table in Table}))
    )
    for product in products:
        shop.create(product)


def make_queues() -> Mapping[str, str]:
    """Make the queues and the bus, and return the handlers' environment."""
    sqs = boto3.client("sqs")
    environment = {
        **{f"{table.name}_TABLE_NAME": table.value for table in Table},
        "POWERTOOLS_SERVICE_NAME": "inventory-orders-local",
        "SHOW_STOCK": "numbers",
        "LANES": "2",
        "HOLD_GRACE_SECONDS": "60",
    }
    for variable, name in {
        "QUEUE_URL": "Queue",
        "DEAD_LETTER_QUEUE_URL": "DeadLetterQueue",
        "FIFO_QUEUE_URL": "Queue.fifo",
        "FIFO_DEAD_LETTER_QUEUE_URL": "DeadLetterQueue.fifo",
        "EXPIRY_QUEUE_URL": "ExpiryQueue",
        "EXPIRY_DEAD_LETTER_QUEUE_URL": "ExpiryDeadLetterQueue",
        "UNDELIVERABLE_EVENTS_QUEUE_URL": "UndeliverableEventsQueue",
    }.items():
        created = (
            sqs.create_queue(
                QueueName=name,
                Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"},
            )
            if name.endswith(".fifo")
            else sqs.create_queue(QueueName=name)
        )
        environment[variable] = created["QueueUrl"]
    boto3.client("events").create_event_bus(Name="Bus")
    more = {"EVENT_BUS_NAME": "Bus", "ORDER_QUEUE_URL": environment["QUEUE_URL"]}
    return environment | more


def create_table(dynamodb: DynamoDBClient, table: Table, name: str) -> None:
    """Create a table of the service, with its keys and indexes."""
    create_keyed_table(dynamodb, name, KEYS[table], INDEXES.get(table, ()))


def create_keyed_table(
    dynamodb: DynamoDBClient, name: str, keys: Sequence[str], indexes: Sequence[Index] = ()
) -> None:
    """Create a table with the keys, all of them texts, and the indexes that it is said to have."""
    attributes = dict.fromkeys([*keys, *(key for index in indexes for key in index.keys)])
    of_indexes: Any = {
        "GlobalSecondaryIndexes": [
            {
                "IndexName": index.name,
                "KeySchema": _key_schema(index.keys),
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": index.attributes}
                if index.attributes
                else {"ProjectionType": "KEYS_ONLY"},
            }
            for index in indexes
        ]
    }
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in attributes],
        KeySchema=_key_schema(keys),
        **(of_indexes if indexes else {}),
    )


def _key_schema(keys: Sequence[str]) -> list[KeySchemaElementTypeDef]:
    return [
        {"AttributeName": key, "KeyType": "RANGE" if number else "HASH"}
        for number, key in enumerate(keys)
    ]
