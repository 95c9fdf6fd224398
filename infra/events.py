"""The event bus, and the streams that feed the publishing function."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import cast

from aws_cdk import Duration, Names
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from inventory_orders.store.tables import STREAM_BATCH

from .permissions import allow
from .settings import Settings

# Readers of movements can wait, so changes are collected to save invocations. The desk should show changes within five seconds.
_RECORDING_WINDOW, _WINDOW_FOR_DESK = Duration.seconds(5), Duration.seconds(2)


class Events(Construct):
    """The event bus of one stage."""

    def __init__(self, scope: Construct, construct_id: str, settings: Settings) -> None:
        super().__init__(scope, construct_id)
        self.bus = events.EventBus(
            self,
            "EventBus",
            event_bus_name=settings.stack_name,
            description=f"Events of orders and products, stage {settings.stage}",
        )

    def publish(
        self,
        function: lambda_.Function,
        live: lambda_.Alias,
        undeliverable: sqs.Queue,
        orders: dynamodb.TableV2,
        products: dynamodb.TableV2,
    ) -> list[lambda_.EventSourceMapping]:
        """Let a function publish the changes in both tables. Returns the event source mappings of the tables' streams.

        The streams invoke the function's alias, `live`. An invocation fails, and is retried, until each event of its batch is
        published or parked in the queue `undeliverable`.
        """
        function.add_environment("EVENT_BUS_NAME", self.bus.event_bus_name)
        function.add_environment("UNDELIVERABLE_EVENTS_QUEUE_URL", undeliverable.queue_url)
        mappings = [
            _listen(function, live, undeliverable, orders),
            _listen(function, live, undeliverable, products, _CHANGES_OF_STATUS),
        ]
        allow(function, self.bus.event_bus_arn, "events:PutEvents")
        # Lambda also sends to it, with the function's role.
        # docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html
        allow(function, undeliverable.queue_arn, "sqs:SendMessage")
        return mappings

    @staticmethod
    def record(
        function: lambda_.Function,
        live: lambda_.Alias,
        unrecorded: sqs.Queue | None,
        orders: dynamodb.TableV2,
        products: dynamodb.TableV2 | None,
    ) -> list[lambda_.EventSourceMapping]:
        """Let a function record the movements in changes to orders, and note for the desk which orders and products changed.

        A stream may throttle more than two readers, and this is the second.
        docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_GetRecords.html

        Args:
            function: The function.
            live: Its alias, which the streams invoke.
            unrecorded: The queue for movements that cannot be recorded; None if none are recorded.
            orders: The table of orders.
            products: The table of products, if changes are noted.

        Returns:
            The event source mappings of the tables' streams, that of orders first.
        """
        if unrecorded is not None:
            function.add_environment("UNRECORDED_MOVEMENTS_QUEUE_URL", unrecorded.queue_url)
            allow(function, unrecorded.queue_arn, "sqs:SendMessage")
        window = _RECORDING_WINDOW if products is None else _WINDOW_FOR_DESK
        listen = partial(_listen, function, live, window=window, at_once=1)
        of_products = [] if products is None else [listen(None, products)]
        return [listen(unrecorded, orders), *of_products]


def _listen(
    function: lambda_.Function,
    live: lambda_.Alias,
    undeliverable: sqs.Queue | None,
    table: dynamodb.TableV2,
    filters: list[Mapping[str, object]] | None = None,
    *,
    window: Duration | None = None,
    at_once: int = 4,
) -> lambda_.EventSourceMapping:
    mapping = lambda_.EventSourceMapping(
        function,
        f"DynamoDBEventSource:{Names.node_unique_id(table.node)}",
        target=live,
        event_source_arn=table.table_stream_arn,
        # LATEST can miss changes while the mapping is created or updated.
        # docs.aws.amazon.com/lambda/latest/api/API_CreateEventSourceMapping.html
        starting_position=lambda_.StartingPosition.TRIM_HORIZON,
        batch_size=STREAM_BATCH,
        max_batching_window=window,
        # Batches of a shard in parallel. Records of one item stay in sequence.
        # docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-eventsourcemapping.html
        parallelization_factor=at_once,
        # Lambda retries a failing batch, and halves it, until its records are too old: a stream keeps them for 24
        # hours. The function parks an event that keeps failing once it is an hour old. If Lambda gives up records,
        # it sends their position in the stream to the queue, and continues with the shard.
        # docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html
        bisect_batch_on_error=True,
        retry_attempts=-1,
        max_record_age=Duration.hours(23),
        filters=filters,
    )
    # The CDK's own grant allows more than sending.
    resource = cast("lambda_.CfnEventSourceMapping", mapping.node.default_child)
    if undeliverable is not None:
        resource.destination_config = lambda_.CfnEventSourceMapping.DestinationConfigProperty(
            on_failure=lambda_.CfnEventSourceMapping.OnFailureProperty(
                destination=undeliverable.queue_arn
            )
        )
    allow(function, table.table_stream_arn or "", *_READ_STREAM)
    return mapping


def _change(before: list[str], after: str) -> Mapping[str, object]:
    """Build the filter for stream records in which a product's status changes."""
    images = {"OldImage": before, "NewImage": [after]}
    pattern = {image: {"status": {"S": statuses}} for image, statuses in images.items()}
    return lambda_.FilterCriteria.filter({"dynamodb": pattern})


# Changes that lead to events. A sale that does not change the status does not invoke the function.
# docs.aws.amazon.com/lambda/latest/dg/with-ddb-filtering.html
_CHANGES_OF_STATUS = [
    _change(["ACTIVE"], "LOW_STOCK"),
    _change(["ACTIVE", "LOW_STOCK"], "OUT_OF_STOCK"),
    _change(["OUT_OF_STOCK", "DISCONTINUED"], "LOW_STOCK"),
    _change(["LOW_STOCK", "OUT_OF_STOCK", "DISCONTINUED"], "ACTIVE"),
]

# docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-eventsourcemapping.html
_READ_STREAM = [
    "dynamodb:DescribeStream",
    "dynamodb:GetRecords",
    "dynamodb:GetShardIterator",
    "dynamodb:ListStreams",
]
