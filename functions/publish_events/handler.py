"""Publishes changes in orders and products as events: reads the tables' streams and writes to the event bus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inventory_orders.clock import SystemClock
from inventory_orders.errors import InventoryOrdersError
from inventory_orders.invocation import runtime
from inventory_orders.invocation.sqs import SqsCalls
from inventory_orders.invocation.telemetry import emit_events, logger, metrics
from inventory_orders.publishing.publisher import Publisher
from inventory_orders.publishing.streams import read_changes

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

runtime.prepare("bus", "undeliverable_events")


class NotAllPublishedError(InventoryOrdersError):
    """Time ran out before the bus had accepted all events, so Lambda has to repeat the batch."""


@logger.inject_lambda_context
@metrics.log_metrics
@runtime.refuse_unsupported_events
def lambda_handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Publish the events for a batch of changes.

    Returns:
        The numbers of published and parked events, for people who invoke the function. Lambda itself only checks whether the
        function raises an error.

    Raises:
        NotAllPublishedError: Some events are neither published nor parked. A partial response would say where to start
            again, but the embedded AWS does not support that and would drop the events.
    """
    news = read_changes(event)
    calls = SqsCalls(runtime.process().undeliverable_events, runtime.end_of(context))
    publisher = Publisher(runtime.process().bus, calls.park, SystemClock())
    report = publisher.publish(news, runtime.deadline(context))
    emit_events(report, calls.errors)
    if report.left:
        raise NotAllPublishedError(f"{report.left} of {len(news)} events have not been published")
    return {
        "result": "PUBLISHED",
        "published": len(report.published),
        "undeliverable": len(report.undeliverable),
    }
