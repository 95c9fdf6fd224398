"""Finds what a text names: an order, a customer, products, locations."""

from __future__ import annotations

from typing import Any

from inventory_orders.domain.location import location_of
from inventory_orders.store.lists import list_orders
from operations import orders
from operations.aws import Aws
from operations.stock import by_product, list_stock, shown_total

MOST_HITS = 50
"""Of products and of locations."""

# DynamoDB refuses longer keys, and no id is that long: docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
_LONGEST_KEY_BYTES = 1024


def find(aws: Aws, text: str) -> dict[str, Any]:
    """Find the order and the customer of this id, and the products and locations with the text in their ids or names.

    Returns:
        What was found, by kind. If the text is the whole id of some, there are only these.
    """
    order, customers = None, []
    if text and len(text.encode()) <= _LONGEST_KEY_BYTES:
        order = orders.read_order(aws, text)
        customers = [text] if list_orders(aws.store(), text, 1, None)[0] else []
    levels, _ = list_stock(aws)
    part = text.casefold()
    products = [
        shown_total(group)
        for product_id, group in by_product(levels).items()
        if part in product_id.casefold() or part in (group[0].product.name or "").casefold()
    ]
    places = sorted({location_of(level.product.product_id) for level in levels} - {""})
    found: dict[str, list[Any]] = {
        "orders": [order] if order is not None else [],
        "customers": customers,
        "products": products,
        "locations": [place for place in places if part in place.casefold()],
    }
    whole = {
        **found,
        "products": [product for product in products if product["productId"] == text],
        "locations": [place for place in places if place == text],
    }
    chosen = whole if any(whole.values()) else found
    is_all = all(len(hits) <= MOST_HITS for hits in chosen.values())
    return {**{kind: hits[:MOST_HITS] for kind, hits in chosen.items()}, "isAll": is_all}
