"""Places orders: takes batches from both order queues, and answers message by message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inventory_orders import runtime
from inventory_orders.intake import UnsupportedEventError
from inventory_orders.messages import parse_order
from inventory_orders.telemetry import logger, metrics, record_orders

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@logger.inject_lambda_context
@metrics.log_metrics
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Place, refuse, dead-letter or return each order of a batch.

    Returns:
        The partial batch response: `{"batchItemFailures": [{"itemIdentifier": ...}]}`. For an event that is no
        batch of SQS messages `errorCode` and `errorMessage`, and nothing is done.
    """
    intake = runtime.intake(runtime.Settings.from_environment())
    try:
        batch = intake.process(event, parse_order, "ORDER_ID_REUSED", runtime.deadline(context))
    except UnsupportedEventError as error:
        logger.error("unsupported event", extra={"error": str(error)})
        return {"errorCode": "UNSUPPORTED_EVENT", "errorMessage": str(error)}
    record_orders(batch)
    return batch.response
