"""Places orders: takes batches from both order queues, and answers message by message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inventory_orders.invocation import runtime
from inventory_orders.invocation.sqs_batch import (
    QueueRules,
    SqsBatch,
    answers_unsupported_events,
)
from inventory_orders.invocation.telemetry import emit_orders, logger, metrics
from inventory_orders.messages.parse import parse_order

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from inventory_orders.domain.order import Order

runtime.prepare()

RULES = QueueRules(id_reused_code="ORDER_ID_REUSED")


@logger.inject_lambda_context
@metrics.log_metrics
@answers_unsupported_events
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Place, reject, dead-letter or return each order of a batch. Returns the partial batch response."""
    batch: SqsBatch[Order] = SqsBatch.read(event, runtime.queues(), runtime.time_left(context))
    orders = batch.parse(parse_order)
    report = runtime.committer().apply(orders, runtime.deadline(context), batch.age)
    batch.settle(report.outcomes, RULES)
    emit_orders(batch, report)
    return batch.response
