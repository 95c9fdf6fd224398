"""The changes of rows, as streams have them: what demands news of products, and which rejections have a reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from inventory_orders.domain.rejection import RejectionReason
from inventory_orders.store.rows import Item, Row, decode
from inventory_orders.store.tables import Table
from operations.aws import Aws
from tests.explore.invariants import product_news

Change = Mapping[str, Any]

# The longest time from the read of a row until a rejection that rests on it is durable: an invocation, which lasts 10 s,
# and a late request, with room for a busy machine.
_REMEMBERED = timedelta(seconds=60)
# The times in a stream are whole seconds. A transaction writes rows and rejections in any order.
_TOGETHER = timedelta(seconds=2)
_END = datetime.max.replace(tzinfo=UTC)


def read_changes(aws: Aws, table: Table) -> Iterator[Change]:
    """Yield all changes of a table, also those that the publisher's filters hold back.

    The embedded AWS keeps them for 24 hours, as AWS does. There an empty page is the end: nobody writes any more.
    """
    streams = aws.session.client("dynamodbstreams")
    arn = aws.dynamodb.describe_table(TableName=aws.tables[table])["Table"]["LatestStreamArn"]
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


def unfounded(orders: Iterable[Change], products: Iterable[Change]) -> list[str]:
    """The rejections of orders for which no row is a reason, in words.

    For each product that an order lacked, a row must have been short shortly before or when the rejection was written,
    without `lentTo`: docs/lanes.md, "The rules". Or one of its products was delisted then. There is no other good reason.
    """
    images: dict[str, list[tuple[datetime, Row | None]]] = {}
    for image in (change["dynamodb"] for change in products):
        written = image["ApproximateCreationDateTime"], _row(image.get("NewImage"))
        images.setdefault(image["Keys"]["productId"]["S"], []).append(written)

    def known(product_id: str, at: datetime) -> list[Row | None]:
        """The rows of a product, or None while it had none, that a rejection may rest on."""
        written = [*images.get(product_id, []), (_END, None)]
        return [
            row
            for (since, row), (until, _) in pairwise(written)
            if since <= at + _TOGETHER and until >= at - _REMEMBERED
        ]

    found = []
    for image in (change["dynamodb"] for change in orders if change["eventName"] == "INSERT"):
        order, at = decode(image["NewImage"]), image["ApproximateCreationDateTime"]
        if order["status"] != "REJECTED":
            continue
        shortages = order.get("shortages", ())
        match order["reason"]:
            case RejectionReason.INSUFFICIENT_STOCK:
                is_founded = bool(shortages) and all(
                    any(_is_short(row, short["wanted"]) for row in known(short["productId"], at))
                    for short in shortages
                )
            case RejectionReason.UNKNOWN_PRODUCT:
                is_founded = any(None in known(line["productId"], at) for line in order["items"])
            case _:
                is_founded = False
        if not is_founded:
            found.append(f"{order['orderId']}: {order['reason']} {shortages}")
    return found


def _is_short(row: Row | None, wanted: int) -> bool:
    """Whether a product's row has too few units, and names no lanes."""
    return (
        row is not None
        and "lentTo" not in row
        and bool(row["stockCount"] + row.get("backorderLimit", 0) < wanted)
    )


def _row(image: Item | None) -> Row | None:
    return None if image is None else decode(image)
