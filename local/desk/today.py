"""Counts what needs attention in a stack: orders, holds, products and dead letters."""

from __future__ import annotations

from collections import Counter
from typing import Any

from inventory_orders.domain.location import product_of
from inventory_orders.store.sweep_rows import TODAY, read_swept
from operations import queues, stock
from operations.aws import Aws
from operations.codes import DEAD_LETTERS
from operations.dead_letters import POLL_SECONDS, peek_dead_letters
from operations.stock import URGENCY

Document = dict[str, Any]

_MOST_LOW, _MOST_MISSING = 50, 10

_MOST_DEAD_LETTERS = 100
"""The maximum number of dead letters to read from each queue."""


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


def depths(aws: Aws) -> dict[str, int]:
    """Count the dead letters in each queue."""
    return {name: queues.depth(aws, name).total for _, name in queues.pairs(aws)}


def dead_letters(aws: Aws) -> Document:
    """Count dead letters by cause. Empty queues are not read, because reading one takes a second."""
    counts, causes = depths(aws), Counter[str]()
    for name, count in counts.items():
        if count:
            found = peek_dead_letters(
                aws.sqs, aws.outputs[name], min(count, _MOST_DEAD_LETTERS), POLL_SECONDS
            )
            causes.update(letter.code for letter in found)
    shown = (
        {"code": code, "count": count, "meaning": getattr(DEAD_LETTERS.get(code), "meaning", "")}
        for code, count in causes.most_common()
    )
    return {"count": sum(counts.values()), "causes": [*shown]}
