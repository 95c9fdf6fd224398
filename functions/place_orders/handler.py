"""Places orders: takes batches from both order queues, and answers message by message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inventory_orders import runtime
from inventory_orders.committer import Report
from inventory_orders.intake import UnsupportedEventError, Verdict, decide_changes, unsupported
from inventory_orders.messages import parse_order
from inventory_orders.model import Order
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
    settings = runtime.Settings.from_environment()
    reports: list[Report] = []

    def decide(orders: Sequence[Order]) -> list[Verdict]:
        report, verdicts = decide_changes(
            runtime.committer(settings), orders, runtime.deadline(context), "ORDER_ID_REUSED"
        )
        reports.append(report)
        return verdicts

    try:
        batch = runtime.intake(settings).process(
            event, parse_order, decide, runtime.time_left(context)
        )
    except UnsupportedEventError as error:
        logger.error("unsupported event", extra={"error": str(error)})
        return unsupported(error, event)
    record_orders(batch, *reports)
    return batch.response
