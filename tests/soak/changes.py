"""The changes of products, as their table's stream has them: what the soak's customers have to hear of products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from inventory_orders.store.rows import Item, Row, Table, decode
from operations.aws import Aws
from tests.explore.invariants import product_news

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
    """The ids of the events that changes demand, without the code that makes the service's events."""
    return {
        f"{after['productId']}@{after['createdAt']}#{after['_version']}#{name}"
        for image in (change["dynamodb"] for change in changes)
        if (after := _row(image.get("NewImage"))) is not None
        for name in product_news(_row(image.get("OldImage")) or {}, after)
    }


def _row(image: Item | None) -> Row | None:
    return None if image is None else decode(image)
