"""Finds orders, customers, products, locations and dead letters by what a person types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.store.lists import OrderFilter, list_orders
from inventory_orders.store.tables import Table

from . import orders, stock
from .aws import Aws
from .dead_letters import Delivery, is_about
from .queues import pairs

Hits = dict[str, list[Any]]
Unsearched = list[dict[str, Any]]
"""What a search left out: `what` it is, and how many, where or why."""

MOST_ORDERS_TO_SEARCH, SECONDS_TO_SEARCH_ORDERS = 20_000, 3.0

# All ids are shorter, and DynamoDB refuses longer keys.
_LONGEST_ID = 1024

_ReadLetters = Callable[[], tuple[Mapping[str, Sequence[Delivery]], Mapping[str, str]]]


def find_exactly(aws: Aws, text: str) -> Hits:
    """Find what has exactly this id, with one read for each kind. Locations are those of the setting `locations`."""
    if not 0 < len(text.encode()) <= _LONGEST_ID:
        return {}
    order = orders.read_order(aws, text)
    # The keys of rows at other locations contain a `#`, but no id does.
    levels = [] if "#" in text else stock.read_everywhere(aws, text)
    return {
        "orders": [] if order is None else [order],
        "customers": [text] if list_orders(aws.store(), OrderFilter(text), 1, None)[0] else [],
        "products": [stock.shown_total(levels, aws.locations)] if levels else [],
        "locations": [text] if text in aws.locations else [],
    }


def find_parts(
    aws: Aws, text: str, limit: int, read_letters: _ReadLetters
) -> tuple[Hits, Unsearched]:
    """Find products by part of their id or name, locations, orders by part of their id or a reference, and dead letters.

    This reads all products, and all orders unless there are too many of them.

    Args:
        aws: The stack.
        text: The text to find.
        limit: Maximum number of orders.
        read_letters: Reads dead letters by queue, and says by queue why it may hold more.
    """
    part = text.casefold()
    # On AWS, it takes a second to read the dead letters.
    with ThreadPoolExecutor(1) as pool:
        letters = pool.submit(_letters, aws, text, read_letters)
        levels, unreadable = stock.list_stock(aws)
        found, unsearched = _orders(aws, text, limit)
    if unreadable:
        unsearched.append({"what": "rows", "kind": "products", "count": len(unreadable)})
    products = [
        stock.shown_total(group, aws.locations) for group in stock.by_product(levels).values()
    ]
    shown = [
        one for one in products if part in f"{one['productId']}\n{one.get('name', '')}".casefold()
    ]
    places = {
        level["locationId"]
        for product in products
        for level in product.get("places", [product])
        if "locationId" in level
    }
    hits: Hits = {
        "orders": found,
        "customers": [],
        "products": sorted(
            shown, key=lambda one: (stock.URGENCY.index(one["status"]), one["productId"])
        ),
        "locations": sorted(place for place in places if part in place.casefold()),
    }
    hits["deadLetters"], not_read = letters.result()
    return hits, unsearched + not_read


def count_orders(aws: Aws) -> int:
    """Return the number of orders. On AWS, it may be up to six hours old."""
    table = aws.dynamodb.describe_table(TableName=aws.tables[Table.ORDERS])["Table"]
    return int(table["ItemCount"])


def _orders(aws: Aws, text: str, limit: int) -> tuple[list[dict[str, Any]], Unsearched]:
    if (count := count_orders(aws)) > MOST_ORDERS_TO_SEARCH:
        return [], [{"what": "orders", "count": count}]
    found, unreadable, are_all = orders.find_orders(aws, text, limit, SECONDS_TO_SEARCH_ORDERS)
    unsearched: Unsearched = [] if are_all else [{"what": "otherOrders"}]
    if unreadable:
        unsearched.append({"what": "rows", "kind": "orders", "count": unreadable})
    return found, unsearched


def _letters(aws: Aws, text: str, read: _ReadLetters) -> tuple[list[dict[str, Any]], Unsearched]:
    try:
        by_queue, more = read()
    except (BotoCoreError, ClientError) as error:
        return [], [{"what": "deadLetters", "why": str(error)}]
    names = {letters: source.removesuffix("Url") for source, letters in pairs(aws)}
    hits = [
        {
            "queue": names[queue],
            "messageId": delivery.message_id,
            "code": delivery.content.code,
            "orderIds": delivery.content.order_ids,
        }
        for queue, some in by_queue.items()
        for delivery in some
        if is_about(delivery.content, text, part=True)
    ]
    not_read = [
        {"what": "otherLetters", "queue": names[queue], "count": len(by_queue[queue])}
        for queue in more
    ]
    return hits, not_read
