"""Places orders: takes batches from both order queues, and answers message by message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inventory_orders import runtime
from inventory_orders.messages import parse_order
from inventory_orders.telemetry import logger, metrics, record_orders

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@logger.inject_lambda_context
@metrics.log_metrics
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Place, refuse, dead-letter or return each order of a batch. Returns the partial batch response."""
    return runtime.answer_queue(event, context, parse_order, "ORDER_ID_REUSED", record_orders)
