"""Reads the streams of the tables, to find out which events and rejections the changes to rows justify."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

from inventory_orders.domain.rejection import RejectionReason
from inventory_orders.store.rows import Item, Row, decode
from inventory_orders.store.tables import Table
from operations.aws import Aws
from testing.world.news import product_news

Change = Mapping[str, Any]

# The longest time from the read of a row until a rejection based on it is durable: an invocation of 10 s, and a late
# request, with a margin for a busy machine.
_REMEMBERED = timedelta(seconds=60)
# The times in a stream are whole seconds. A transaction writes rows and rejections in any order.
_TOGETHER = timedelta(seconds=2)
_BEGINNING, _END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def read_changes(aws: Aws, table: Table) -> Iterator[Change]:
    """Yield all changes to a table, including those that the publisher's filters drop.

    The embedded AWS keeps them for 24 hours, as AWS does. An empty page means the end, because nothing is written any more.
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
    """List the ids of the events that changes require, without using the service's own code."""
    return {
        _event_id(after, name)
        for image in (change["dynamodb"] for change in changes)
        if (after := _row(image.get("NewImage"))) is not None
        for name in product_news(_row(image.get("OldImage")) or {}, after)
    }


def _event_id(row: Row, name: str) -> str:
    product_id, *location = row["productId"].split("#")
    return "#".join([f"{product_id}@{row['createdAt']}", str(row["_version"]), name, *location])


def unfounded(orders: Iterable[Change], products: Iterable[Change]) -> list[str]:
    """Describe the rejected orders whose rejection no row justifies.

    For a rejected order, some product must have been short at each location: shortly before the rejection was written,
    the product's row there had too few units and no `lentTo` (docs/lanes.md, "The rules"), or did not exist. If the order
    may be split, one product must also have been short everywhere.
    """
    images: dict[str, list[tuple[datetime, Row | None]]] = {}
    for image in (change["dynamodb"] for change in products):
        written = image["ApproximateCreationDateTime"], _row(image.get("NewImage"))
        images.setdefault(image["Keys"]["productId"]["S"], []).append(written)

    def known(key: str, at: datetime) -> list[Row | None]:
        """List the states of a product's row at a location that may have caused a rejection. None stands for a missing
        row."""
        written = [*(images.get(key) or [(_BEGINNING, None)]), (_END, None)]
        return [
            row
            for (since, row), (until, _) in pairwise(written)
            if since <= at + _TOGETHER and until >= at - _REMEMBERED
        ]

    found = []
    for image in (change["dynamodb"] for change in orders if change["eventName"] == "INSERT"):
        order, at = decode(image["NewImage"]), image["ApproximateCreationDateTime"]
        if order["status"] == "REJECTED" and not _is_founded(order, partial(known, at=at)):
            found.append(f"{order['orderId']}: {order['reason']} {order.get('shortages', ())}")
    return found


_Known = Callable[[str], list[Row | None]]


def _is_founded(order: Row, known: _Known) -> bool:
    """Whether the states of products' rows at that time justify the rejection of an order."""
    keys = [
        [_key(line["productId"], location) for location in _locations_of(order, line)]
        for line in order["items"]
    ]

    has_choice = len({tuple(at_one) for at_one in zip(*keys, strict=True)}) > 1

    def lacks(key: str, wanted: int) -> bool:
        # If there is no other location, a product without a row is unknown, which is another reason.
        return any(_is_short(row, wanted) if row else has_choice for row in known(key))

    match order["reason"]:
        case RejectionReason.INSUFFICIENT_STOCK:
            lacking = [
                [lacks(key, line["quantity"]) for key in candidates]
                for line, candidates in zip(order["items"], keys, strict=True)
            ]
            is_lacked_everywhere = all(any(at_one) for at_one in zip(*lacking, strict=True))
            if order.get("split"):
                is_lacked_everywhere &= any(map(all, lacking))
            return (
                is_lacked_everywhere
                and bool(order.get("shortages"))
                and all(
                    lacks(_key(short["productId"], short.get("locationId", "")), short["wanted"])
                    for short in order["shortages"]
                )
            )
        case RejectionReason.UNKNOWN_PRODUCT:
            return any(all(None in known(key) for key in candidates) for candidates in keys)
        case _:
            return False


def _locations_of(order: Row, line: Row) -> list[str]:
    """List the locations that a line may be taken from."""
    locations = order.get("locations", [""])
    return [line["askedLocationId"]] * len(locations) if "askedLocationId" in line else locations


def _key(product_id: str, location_id: str) -> str:
    return f"{product_id}#{location_id}" if location_id else product_id


def _is_short(row: Row, wanted: int) -> bool:
    """Whether a product's row has too few units and names no lanes."""
    return "lentTo" not in row and bool(row["stockCount"] + row.get("backorderLimit", 0) < wanted)


def _row(image: Item | None) -> Row | None:
    return None if image is None else decode(image)
