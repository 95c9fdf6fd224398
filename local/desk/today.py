"""Counts what needs attention in a stack: orders, holds, products and dead letters."""

from __future__ import annotations

from collections import Counter
from typing import Any

from operations import queues
from operations.aws import Aws
from operations.codes import DEAD_LETTERS
from operations.dead_letters import POLL_SECONDS, peek_dead_letters
from operations.stock import URGENCY

Document = dict[str, Any]

_MOST_DEAD_LETTERS = 100
"""The maximum number of dead letters to read from each queue."""


def to_ship(listed: Document) -> Document:
    """Count the orders to ship. For each missing product, count the orders that cannot ship without it."""
    found = listed["orders"]
    blocked = [order for order in found if order.get("shippable") is False]
    # If an order lacks a product at two locations, count the product once.
    shorts = ({short["productId"] for short in order["missing"]} for order in blocked)
    missing = Counter(product_id for each in shorts for product_id in each)
    return {
        "count": len(found),
        "isAll": listed["isAll"],
        "oldest": found[0].get("confirmedAt") if found else None,
        "blocked": len(blocked),
        "missing": dict(missing.most_common()),
        "names": listed["names"],
    }


def held(listed: Document) -> Document:
    """Count the orders on hold, and find out when the next hold ends."""
    found = listed["orders"]
    next_end = min((order["expiresAt"] for order in found if "expiresAt" in order), default=None)
    return {"count": len(found), "isAll": listed["isAll"], "nextEnd": next_end}


def products(listed: Document) -> Document:
    """Count the products that are out of stock or low at any location, and list those with more units promised than on hand.

    A product counts at each of its `levels`, but only once among the `worst` ones.
    """
    levels, worst, promised = Counter[str](), Counter[str](), list[str]()
    for product in listed["products"]:
        places = product.get("places", [product])
        # A shop may leave the default location unused.
        used = (one for one in places if "locationId" in one or one["onHand"] or one["committed"])
        found = {product["status"], *(one["status"] for one in used)}
        levels.update(found)
        if any(one["available"] < 0 for one in places):
            promised.append(product["productId"])
        else:
            worst[min(found, key=URGENCY.index)] += 1
    count = len(listed["products"])
    return {"count": count, "levels": levels, "worst": worst, "promised": promised}


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
