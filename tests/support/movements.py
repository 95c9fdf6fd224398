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


def record_movements(shop: Shop) -> None:
    """Record the movements of all orders, and note that they are complete up to now."""
    rows = [decode(item) for item in shop.items(Table.ORDERS).values()]
    shop.invoke("record_movements", {"Records": [change(None, row) for row in rows]})
    movements.advance(shop.store, SystemClock().now() + timedelta(seconds=60))


def stored(shop: Shop, key: str) -> list[tuple[str, str, int, int]]:
    """List the recorded movements of a row, newest first: order, action, and the changes of both figures."""
    return [_shown(entry.row) for entry in movements.movements(shop.store, key, 2)]


def _shown(row: dict[str, Any]) -> tuple[str, str, int, int]:
    return row["orderId"], row["action"], row.get("delta", 0), row.get("onHandDelta", 0)
