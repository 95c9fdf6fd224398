"""The event bus, and the streams that invoke the function that publishes events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from aws_cdk import Duration, Names
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from .permissions import allow
from .settings import Settings


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
        """Have a function publish the changes of both tables. Returns the event source mappings of their streams.

        The streams invoke its alias, `live`. It raises until it has published each event of a batch, or has parked it in
        the queue `undeliverable`.
        """
        function.add_environment("EVENT_BUS_NAME", self.bus.event_bus_name)
        function.add_environment("UNDELIVERABLE_EVENTS_QUEUE_URL", undeliverable.queue_url)
        mappings = [
            self._listen(function, live, undeliverable, orders, None),
            self._listen(function, live, undeliverable, products, _CHANGES_OF_STATUS),
        ]
        allow(function, self.bus.event_bus_arn, "events:PutEvents")
        # Lambda also sends to it, with the role of the function.
        # docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html
        allow(function, undeliverable.queue_arn, "sqs:SendMessage")
        return mappings

    def _listen(
        self,
        function: lambda_.Function,
        live: lambda_.Alias,
        undeliverable: sqs.Queue,
        table: dynamodb.TableV2,
        filters: list[Mapping[str, object]] | None,
    ) -> lambda_.EventSourceMapping:
        mapping = lambda_.EventSourceMapping(
            function,
            f"DynamoDBEventSource:{Names.node_unique_id(table.node)}",
            target=live,
            event_source_arn=table.table_stream_arn,
            # LATEST can miss changes while the mapping is created or updated.
            # docs.aws.amazon.com/lambda/latest/api/API_CreateEventSourceMapping.html
            starting_position=lambda_.StartingPosition.TRIM_HORIZON,
            batch_size=BATCH_SIZE,
            # Several batches of a shard at once. Records of one item stay in order.
            # docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-eventsourcemapping.html
            parallelization_factor=4,
            # Lambda repeats a batch that fails, and halves it, until its records are too old: a stream keeps them for 24
            # hours. The function parks an event that fails by itself when it is an hour old. For records that Lambda gives
            # up it sends their position in the stream to the queue, and the shard goes on.
            # docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html
            bisect_batch_on_error=True,
            retry_attempts=-1,
            max_record_age=Duration.hours(23),
            filters=filters,
        )
        # The CDK's own grant allows more than sending.
        resource = cast("lambda_.CfnEventSourceMapping", mapping.node.default_child)
        resource.destination_config = lambda_.CfnEventSourceMapping.DestinationConfigProperty(
            on_failure=lambda_.CfnEventSourceMapping.OnFailureProperty(
                destination=undeliverable.queue_arn
            )
        )
        allow(function, table.table_stream_arn or "", *_READ_STREAM)
        return mapping


BATCH_SIZE = 100


def _change(before: list[str], after: str) -> Mapping[str, object]:
    """A change of a product's status, as a filter has it."""
    images = {"OldImage": before, "NewImage": [after]}
    pattern = {image: {"status": {"S": statuses}} for image, statuses in images.items()}
    return lambda_.FilterCriteria.filter({"dynamodb": pattern})


# Changes that make events. A sale that does not change the status does not invoke the function.
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
