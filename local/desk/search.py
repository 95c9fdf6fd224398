"""Finds what a text names: an order, a customer, products, locations."""

from __future__ import annotations

from typing import Any

from inventory_orders.domain.location import location_of
from inventory_orders.store.lists import list_orders
from operations import orders
from operations.aws import Aws
from operations.stock import by_product, list_stock, shown_total

MOST_HITS = 50
"""Of each kind."""

# No id is that long, and DynamoDB refuses longer keys.
_LONGEST_ID = 1024


def find(aws: Aws, text: str) -> dict[str, Any]:
    """Find what has this id; if nothing has, the products and locations with the text in their ids or names."""
    levels, _ = list_stock(aws)
    groups = by_product(levels)
    places = sorted({location_of(level.product.product_id) for level in levels} - {""})
    is_id = 0 < len(text.encode()) <= _LONGEST_ID
    order = orders.read_order(aws, text) if is_id else None
    customers = [text] if is_id and list_orders(aws.store(), text, 1, None)[0] else []
    is_whole, part = order or customers or text in groups or text in places, text.casefold()

    def fits(name: str, another: str | None = None) -> bool:
        return name == text if is_whole else part in f"{name}\n{another or ''}".casefold()

    hits: dict[str, list[Any]] = {
        "orders": [order] if order else [],
        "customers": customers,
        "products": [shown_total(g) for name, g in groups.items() if fits(name, g[0].product.name)],
        "locations": [place for place in places if fits(place)],
    }
    is_all = all(len(some) <= MOST_HITS for some in hits.values())
    return {**{kind: some[:MOST_HITS] for kind, some in hits.items()}, "isAll": is_all}
