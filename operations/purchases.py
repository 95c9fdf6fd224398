"""Compares what buyers have bought of products with purchase limits with what the orders say."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from inventory_orders.domain.purchases import Refunds
from inventory_orders.domain.record import OrderRecord
from inventory_orders.store.rows import decode, read_order
from inventory_orders.store.tables import Table

from .aws import Aws, get_items, scan
from .words import counted

_REREADS = 6
_PAUSE = 0.25


def charged(order: OrderRecord) -> Refunds:
    """What an order charges to each of its buyers, by group: its units that were neither cancelled nor expired."""
    return order.refunds({product_id: line.bought for product_id, line in order.units().items()})


def wrong_purchases(aws: Aws, orders: Iterable[Mapping[str, Any]]) -> list[str]:
    """Describe the buyers whose rows differ from what their orders charge.

    Each order writes the rows of its buyers in the same transaction. So a difference is certain if a row is the same before
    and after the orders are read.

    Args:
        aws: The stack, which may be in use.
        orders: All orders, as just read.
    """
    rows = {row["buyer"]: row for row in map(decode, scan(aws, Table.PURCHASES))}
    wrong = _differences(rows, _wanted(orders))
    for _ in range(_REREADS):
        if not wrong:
            break
        time.sleep(_PAUSE)
        before = _rows(aws, wrong)
        found = _differences(before, _wanted(map(decode, scan(aws, Table.ORDERS))), wrong)
        after = _rows(aws, wrong)
        certain = {buyer: found[buyer] for buyer in found if before.get(buyer) == after.get(buyer)}
        if certain == found:
            return [*certain.values()]
        wrong = found
    return []


def _rows(aws: Aws, buyers: Iterable[str]) -> dict[str, dict[str, Any]]:
    keys = [{"buyer": {"S": buyer}} for buyer in buyers]
    return {row["buyer"]: row for row in map(decode, get_items(aws, Table.PURCHASES, keys))}


def _wanted(orders: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Add up what orders charge, by buyer. Leaves out unreadable orders, which the audit reports anyway."""
    wanted: dict[str, Counter[str]] = {}
    for row in orders:
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            for (buyer,), units in charged(read_order(dict(row))).items():
                wanted.setdefault(buyer, Counter()).update(units)
    return wanted


def _differences(
    rows: Mapping[str, Mapping[str, Any]],
    wanted: Mapping[str, Counter[str]],
    among: Iterable[str] | None = None,
) -> dict[str, str]:
    found = {}
    for buyer in sorted(rows.keys() | wanted.keys() if among is None else among):
        units, right = rows.get(buyer, {}).get("units", {}), wanted.get(buyer, Counter())
        groups = [g for g in sorted({*units, *right}) if units.get(g, 0) != right[g]]
        if groups:
            found[buyer] = f"buyer {buyer}: " + ", ".join(
                f"{counted(units.get(group, 0), 'unit')} of {group}, but orders say {right[group]:,}"
                for group in groups
            )
    return found
