"""What needs attention in a stack: its orders, holds, products and dead letters, each read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from inventory_orders.domain.location import location_of
from inventory_orders.lanes.levels import StockLevel
from operations import orders, queues
from operations.aws import Aws
from operations.codes import DEAD_LETTERS
from operations.dead_letters import POLL_SECONDS, peek_dead_letters
from operations.stock import by_product, list_stock, product_names, shown_total

Document = dict[str, Any]

MOST = 100
"""Of each kind that is read; there may be more."""


def to_ship(aws: Aws) -> Document:
    """Count the orders to ship, and those that cannot ship, by the product that is missing."""
    listed = orders.orders_to_ship(aws, MOST)
    blocked = [order for order in listed.orders if order.get("shippable") is False]
    # An order that misses a product at two locations waits for it once.
    shorts = ({short["productId"] for short in order["missing"]} for order in blocked)
    missing = Counter(product_id for each in shorts for product_id in each)
    return {
        "count": len(listed.orders),
        "isAll": not listed.has_more,
        "oldest": listed.orders[0].get("confirmedAt") if listed.orders else None,
        "blocked": len(blocked),
        "missing": dict(missing.most_common()),
        "names": product_names(aws, missing),
    }


def held(aws: Aws) -> Document:
    """Count the orders under a hold, and say when the next hold ends."""
    listed = orders.held_orders(aws, MOST)
    return {
        "count": len(listed.orders),
        "isAll": not listed.has_more,
        "nextEnd": listed.orders[0].get("expiresAt") if listed.orders else None,
    }


def products(aws: Aws) -> Document:
    """Count the products that are out of stock, low or promised beyond what is there: at any location, as the list does."""
    levels, _ = list_stock(aws)
    groups = by_product(levels).values()
    return {
        "count": len(groups),
        "levels": Counter(status for group in groups for status in _statuses(group)),
        "promised": sum(any(level.available < 0 for level in group) for group in groups),
    }


def _statuses(group: Sequence[StockLevel]) -> set[str]:
    # A shop may leave the default location unused.
    used = [
        one for one in group if location_of(one.product.product_id) or one.on_hand or one.committed
    ]
    return {shown_total(group)["status"], *(one.product.status for one in used)}


def depths(aws: Aws) -> dict[str, int]:
    """Count the dead letters of each queue."""
    return {name: queues.depth(aws, name).total for _, name in queues.pairs(aws)}


def dead_letters(aws: Aws) -> Document:
    """Count dead letters by cause. No more are read than there are, because to find none takes a second."""
    counts, causes = depths(aws), Counter[str]()
    for name, count in counts.items():
        if count:
            found = peek_dead_letters(aws.sqs, aws.outputs[name], min(count, MOST), POLL_SECONDS)
            causes.update(letter.code for letter in found)
    shown = (
        {"code": code, "count": count, "meaning": getattr(DEAD_LETTERS.get(code), "meaning", "")}
        for code, count in causes.most_common()
    )
    return {"count": sum(counts.values()), "causes": [*shown]}
