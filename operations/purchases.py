"""Compares what buyers have bought of products with purchase limits with what the orders say."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from inventory_orders.domain.purchases import BuyerKey, Purchases, Refunds
from inventory_orders.domain.record import OrderRecord
from inventory_orders.errors import CorruptItemError
from inventory_orders.store.rows import Item, decode, read_item, read_order
from inventory_orders.store.tables import Table

from .aws import Aws, get_items, scan
from .words import counted

_Row = Purchases | str
"""A buyer's row, or why it cannot be read."""

_REREADS = 6
_PAUSE = 0.25


def charged(order: OrderRecord) -> Refunds:
    """What an order charges to each of its buyers, by group: its units that were neither cancelled nor expired.

    Raises:
        CorruptItemError: Its steps contradict its lines.
    """
    if all(line.limit_group is None for line in order.lines):
        return {}
    try:
        units = order.units()
        return order.refunds({product_id: line.bought for product_id, line in units.items()})
    except (KeyError, TypeError) as error:
        raise CorruptItemError(
            f"order {order.order_id} has steps that contradict its lines ({type(error).__name__}: {error}); repair the item"
        ) from error


def wrong_purchases(aws: Aws, orders: Iterable[Mapping[str, Any]]) -> list[str]:
    """Describe the buyers whose rows differ from what their orders charge.

    Each order writes the rows of its buyers in the same transaction. So a difference is certain if a row is the same before
    and after the orders are read.

    Args:
        aws: The stack, which may be in use.
        orders: All orders, as just read.
    """
    rows = dict(map(_row, scan(aws, Table.PURCHASES)))
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


def _rows(aws: Aws, buyers: Iterable[str]) -> dict[str, _Row]:
    keys = [{"buyer": {"S": buyer}} for buyer in buyers]
    return dict(map(_row, get_items(aws, Table.PURCHASES, keys)))


def _row(item: Item) -> tuple[str, _Row]:
    found = read_item(key := BuyerKey(item["buyer"]["S"]), item)
    return key.buyer, found if isinstance(found, Purchases) else str(found)


def _wanted(orders: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Add up what orders charge, by buyer. Leaves out unreadable orders, which the audit reports anyway."""
    wanted: dict[str, Counter[str]] = {}
    for row in orders:
        with suppress(KeyError, TypeError, ValueError, AttributeError, CorruptItemError):
            for (buyer,), units in charged(read_order(dict(row))).items():
                wanted.setdefault(buyer, Counter()).update(units)
    return wanted


def _differences(
    rows: Mapping[str, _Row],
    wanted: Mapping[str, Counter[str]],
    among: Iterable[str] | None = None,
) -> dict[str, str]:
    found = {}
    for buyer in sorted(rows.keys() | wanted.keys() if among is None else among):
        row, right = rows.get(buyer), wanted.get(buyer, Counter())
        if isinstance(row, str):
            found[buyer] = row
            continue
        units = {} if row is None else row.units
        groups = [g for g in sorted({*units, *right}) if units.get(g, 0) != right[g]]
        if groups:
            found[buyer] = f"buyer {buyer}: " + ", ".join(
                f"{counted(units.get(group, 0), 'unit')} of {group}, but orders say {right[group]:,}"
                for group in groups
            )
    return found
