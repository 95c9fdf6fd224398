"""Lets a shop in memory record its movements."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from inventory_orders.clock import SystemClock
from inventory_orders.store import movements
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from testing.schedules.in_turn.shop import Shop
from testing.world.streams import change


def record_movements(shop: Shop, *, late: bool = False, ahead: float = 0.0) -> None:
    """Record the movements of all orders, an hour late or at once, and note up to which time they are complete.

    Without late ones, they are complete up to now, or up to a time that is `ahead` by some seconds.
    """
    rows = [decode(item) for item in shop.items(Table.ORDERS).values()]
    records = [change(None, row) for row in rows]
    for first in records[:1]:
        first["dynamodb"]["ApproximateCreationDateTime"] = shop.clock.now() - 3600 * late
    shop.invoke("record_movements", {"Records": records})
    movements.advance(shop.store, SystemClock().now() + timedelta(seconds=60 + ahead))


def stored(shop: Shop, key: str) -> list[tuple[str, str, int, int]]:
    """List the recorded movements of a row, newest first: order, action, and the changes of both figures."""
    return [_shown(row) for row in movements.movements(shop.store, key, 2)]


def _shown(row: dict[str, Any]) -> tuple[str, str, int, int]:
    return row["orderId"], row["action"], row.get("delta", 0), row.get("onHandDelta", 0)
