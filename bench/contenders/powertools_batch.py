"""Powertools' BatchProcessor and Idempotency around the textbook's transaction: the usual advice for queues.

They are combined as the documentation of Powertools shows. Each message is processed on its own, with a row in an
idempotency table that is written before the work and completed afterwards.
"""

from __future__ import annotations

import json
import os
from typing import Any

import boto3
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.typing import LambdaContext

from bench.contenders import CLIENT_CONFIG, load

TITLE = "Powertools"
BATCH = 10
TABLES = {"IDEMPOTENCY_TABLE_NAME": "id"}

textbook = load("textbook")
# If all messages in a batch fail, they are returned one by one, and no error is raised.
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
persistence = DynamoDBPersistenceLayer(
    table_name=os.environ["IDEMPOTENCY_TABLE_NAME"],
    boto3_client=boto3.client("dynamodb", config=CLIENT_CONFIG),
)
config = IdempotencyConfig(event_key_jmespath="orderId")


@idempotent_function(  # type: ignore[untyped-decorator]
    data_keyword_argument="order", config=config, persistence_store=persistence
)
def place(order: dict[str, Any]) -> None:
    """Place or reject one order, at most once within an hour."""
    textbook.place_order_transaction(order)


def record_handler(record: SQSRecord) -> None:
    """Handle one message."""
    place(order=json.loads(record.body))


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """Place the orders of a batch one after the other."""
    config.register_lambda_context(context)
    return process_partial_response(event, record_handler, processor, context)
