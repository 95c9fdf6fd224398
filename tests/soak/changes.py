"""The changes of products, as their table's stream has them: what the soak's customers have to hear of products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from inventory_orders.domain.events import of_product
from inventory_orders.store.rows import Item, Row, Table, decode
from operations.aws import Aws

Change = Mapping[str, Any]


def read_changes(aws: Aws) -> Iterator[Change]:
    """Yield all changes of products, also those that the publisher's filters hold back.

    The embedded AWS keeps them for 24 hours, as AWS does. There an empty page is the end: nobody writes any more.
    """
    streams = aws.session.client("dynamodbstreams")
    arn = aws.dynamodb.describe_table(TableName=aws.tables[Table.PRODUCTS])["Table"][
        "LatestStreamArn"
    ]
    for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        iterator = streams.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while (page := streams.get_records(ShardIterator=iterator))["Records"]:
            yield from page["Records"]
            iterator = page["NextShardIterator"]


def demanded(changes: Iterable[Change]) -> set[str]:
    """The ids of the events that changes demand."""
    images = (change["dynamodb"] for change in changes)
    return {
        event.id
        for image in images
        for event in of_product(_row(image.get("OldImage")), _row(image.get("NewImage")))
    }


def _row(image: Item | None) -> Row | None:
    return None if image is None else decode(image)
