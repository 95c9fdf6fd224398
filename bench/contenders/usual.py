"""The usual handler: boto3.resource and the Powertools features that samples show.

Only its cold start and CPU time are measured. It is not a contender, because its transaction is the same as the
textbook's. It imports no contender, so that its imports are typical.
"""

from __future__ import annotations

import os
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.parser import BaseModel
from aws_lambda_powertools.utilities.parser.models import SqsRecordModel
from aws_lambda_powertools.utilities.parser.types import Json
from aws_lambda_powertools.utilities.typing import LambdaContext

TITLE = "the usual handler"
BATCH = 10


class Line(BaseModel):
    """A line of an order."""

    productId: str  # noqa: N815 - the name in the message
    quantity: int


class Order(BaseModel):
    """An order message."""

    orderId: str  # noqa: N815 - the name in the message
    userId: str  # noqa: N815
    items: list[Line]


class OrderRecord(SqsRecordModel):
    """An SQS record with an order in its body."""

    body: Json[Order]


logger = Logger(service="usual")
metrics = Metrics(namespace="Usual", service="usual")
tracer = Tracer(service="usual")
processor = BatchProcessor(
    event_type=EventType.SQS, model=OrderRecord, raise_on_entire_batch_failure=False
)
dynamodb = boto3.resource("dynamodb")
products = dynamodb.Table(os.environ["PRODUCTS_TABLE_NAME"])
orders = dynamodb.Table(os.environ["ORDERS_TABLE_NAME"])


@tracer.capture_method
def record_handler(record: OrderRecord) -> None:
    """Place one order."""
    order: Any = record.body
    actions = []
    for line in order.items:
        product: Any = products.get_item(Key={"productId": line.productId}, ConsistentRead=True)
        version = product["Item"]["_version"]
        actions.append(
            {
                "Update": {
                    "TableName": products.name,
                    "Key": {"productId": line.productId},
                    "UpdateExpression": "SET stockCount = stockCount - :q, #v = :next",
                    "ConditionExpression": "#v = :version AND stockCount >= :q",
                    "ExpressionAttributeNames": {"#v": "_version"},
                    "ExpressionAttributeValues": {
                        ":q": line.quantity,
                        ":version": version,
                        ":next": version + 1,
                    },
                }
            }
        )
    row = {
        "orderId": order.orderId,
        "userId": order.userId,
        "items": [line.model_dump() for line in order.items],
        "status": "PENDING",
    }
    actions.append(
        {
            "Put": {
                "TableName": orders.name,
                "Item": row,
                "ConditionExpression": "attribute_not_exists(orderId)",
            }
        }
    )
    # The resource's own client converts Python values to DynamoDB's.
    client: Any = dynamodb.meta.client
    client.transact_write_items(TransactItems=actions)
    metrics.add_metric(name="OrdersPlaced", unit=MetricUnit.Count, value=1)
    logger.info("order placed", extra={"orderId": order.orderId})


@logger.inject_lambda_context
@tracer.capture_lambda_handler
@metrics.log_metrics(capture_cold_start_metric=True)
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """Place the orders of a batch one after the other."""
    return process_partial_response(event, record_handler, processor, context)
