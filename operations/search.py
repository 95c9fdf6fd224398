"""Finds orders, customers, products, locations and dead letters by what a person types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.domain.words import words_to_find
from inventory_orders.store.lists import OrderFilter, list_orders, search_products

from . import orders, stock
from .aws import Aws
from .dead_letters import Delivery, is_about
from .queues import pairs

Hits = dict[str, list[Any]]
Unsearched = list[dict[str, Any]]
"""What a search left out: `what` it is, and how many, where or why."""

# All ids are shorter, and DynamoDB refuses longer keys.
_LONGEST_ID = 1024
_LONGEST_REFERENCE = 128

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


def find_others(
    aws: Aws, text: str, limit: int, read_letters: _ReadLetters
) -> tuple[Hits, Unsearched]:
    """Find products by beginnings of words of their id and name, orders by a reference, locations and dead letters.

    Args:
        aws: The stack.
        text: The text to find.
        limit: Maximum number of products and of orders; one more shows that there are more.
        read_letters: Reads dead letters by queue, and says by queue why it may hold more.
    """
    # On AWS, it takes a second to read the dead letters.
    with ThreadPoolExecutor(1) as pool:
        letters = pool.submit(_letters, aws, text, read_letters)
        products, unsearched = _products(aws, text, limit + 1)
        found, not_searched = _orders(aws, text, limit + 1)
    locations = sorted(one for one in aws.locations if one.casefold().startswith(text.casefold()))
    hits: Hits = {"orders": found, "products": products, "locations": locations}
    hits["deadLetters"], not_read = letters.result()
    return hits, [*unsearched, *not_searched, *not_read]


def _products(aws: Aws, text: str, limit: int) -> tuple[list[dict[str, Any]], Unsearched]:
    wanted = words_to_find(text)
    if not wanted:
        return [], [{"what": "words"}]
    places, after = search_products(aws.store(), wanted, limit, None)
    levels, unreadable = stock.read_products(aws, [place.id for place in places])
    groups = stock.by_product(levels)
    shown = [stock.shown_total(groups[p.id], aws.locations) for p in places if p.id in groups]
    unsearched: Unsearched = []
    if after is not None and len(places) < limit:
        unsearched.append({"what": "otherProducts"})
    if unreadable:
        unsearched.append({"what": "rows", "kind": "products", "count": len(unreadable)})
    return shown, unsearched


def _orders(aws: Aws, reference: str, limit: int) -> tuple[list[dict[str, Any]], Unsearched]:
    if not aws.has_movements:
        return [], [{"what": "references"}]
    if len(reference) > _LONGEST_REFERENCE:
        return [], []
    listed = orders.list_orders(aws, OrderFilter(reference=reference), limit)
    unsearched: Unsearched = [{"what": "laterReferences", "until": listed.complete_until}]
    if listed.unreadable:
        unsearched.append({"what": "rows", "kind": "orders", "count": len(listed.unreadable)})
    return listed.orders, unsearched


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
