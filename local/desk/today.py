"""Counts what needs attention in a stack: orders, holds and products."""

from __future__ import annotations

from collections import Counter
from typing import Any

from inventory_orders.domain.location import product_of
from inventory_orders.store.sweep_rows import TODAY, read_swept
from operations import stock
from operations.aws import Aws
from operations.stock import URGENCY

Document = dict[str, Any]

_MOST_LOW, _MOST_MISSING = 50, 10


def last_sweep(aws: Aws) -> str | None:
    """Return when the last sweep counted orders; None if none has."""
    at, _ = read_swept(aws.store(), [TODAY]).get(TODAY, (None, None))
    return at


def orders(aws: Aws) -> Document:
    """Read the counts that the last sweep has stored.

    Returns:
        When it counted (`asOf`), and its counts with the names of the `missing` products that most orders wait for. Empty
        if no sweep has counted yet.
    """
    found = read_swept(aws.store(), [TODAY]).get(TODAY)
    if found is None:
        return {}
    at, counts = found
    names = stock.product_names(aws, list(counts["missing"])[:_MOST_MISSING])
    return {"asOf": at, **counts, "names": names}


def products(aws: Aws) -> Document:
    """Count the products that are out of stock or low at any location, and list those with more units promised than on hand.

    A product counts at each of its `levels`, but only once among the `worst` ones. At most `_MOST_LOW` rows with each of
    these statuses are read; `isAll` says if there are no more.
    """
    rows, has_more = stock.low_rows(aws, _MOST_LOW)
    levels, promised = dict[str, set[str]](), set[str]()
    for level in rows:
        row = level.product
        product_id = product_of(row.product_id)
        if level.available < 0:
            promised.add(product_id)
        # A shop may leave the default location unused.
        if not row.places or level.on_hand or level.committed:
            levels.setdefault(product_id, set()).add(row.status)
    worst = (
        min(found, key=URGENCY.index) for each, found in levels.items() if each not in promised
    )
    return {
        "levels": Counter(status for found in levels.values() for status in found),
        "worst": Counter(worst),
        "promised": sorted(promised),
        "isAll": not has_more,
    }
