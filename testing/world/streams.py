"""Stream records of rows, and the order in which their events arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inventory_orders.store.rows import encode
from testing.aws.streams import record

Row = dict[str, Any]


def order_row(order_id: str = "o-1", **changes: Any) -> Row:
    """The row of an order that was placed for two units of one product."""
    line = {"productId": "tea", "quantity": 2, "productCreatedAt": _TIME, "productVersion": 2}
    row: Row = {
        "orderId": order_id,
        "userId": "u-1",
        "items": [line],
        "status": "PENDING",
        "createdAt": _TIME,
        "lastUpdatedAt": _TIME,
        "_version": 1,
    }
    return {name: value for name, value in {**row, **changes}.items() if value is not None}


def product_row(status: str = "ACTIVE", **changes: Any) -> Row:
    """A product as stored."""
    row: Row = {
        "productId": "tea",
        "stockCount": 9,
        "backorderLimit": 0,
        "lowStockThreshold": 5,
        "_version": 7,
        "status": status,
        "createdAt": _TIME,
        "lastUpdatedAt": _TIME,
    }
    return {**row, **changes}


_TIME = "2026-01-01T00:00:00.000000+00:00"


def change(before: Row | None, after: Row | None, number: int = 0) -> dict[str, Any]:
    """The record of a change to a row."""
    row: Row = after or before or {}
    name = "orderId" if "orderId" in row else "productId"
    old, new = (None if values is None else encode(values) for values in (before, after))
    return record({name: {"S": str(row[name])}}, old, new, number)


def first_of_each(ids: Sequence[str]) -> list[str]:
    """The accepted events without duplicates."""
    return list(dict.fromkeys(ids))


def overtaken(ids: Sequence[str]) -> list[str]:
    """Ids of the events that first arrived after a later event about the same subject."""
    latest: dict[tuple[str, ...], int] = {}
    found = []
    for event_id in first_of_each(ids):
        # In the id of a product at a location, the location comes last.
        name, version, _, *location = event_id.split("#")
        subject = (name, *location)
        if int(version) < latest.get(subject, 0):
            found.append(event_id)
        latest[subject] = max(int(version), latest.get(subject, 0))
    return found
