"""Orders for operators: one by id, and lists by user, status or late payment."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.events import public_order
from inventory_orders.domain.location import in_words, key_in
from inventory_orders.domain.outbound import Generation
from inventory_orders.domain.record import OrderRecord, OrderStatus
from inventory_orders.engine.retrying_client import RetryingClient, read_orders
from inventory_orders.invocation import direct
from inventory_orders.lanes.levels import is_listed, mark_shippable
from inventory_orders.store import lists
from inventory_orders.store.lists import OrderFilter
from inventory_orders.store.rows import order_row
from inventory_orders.store.tables import Table

from .audit import read_rows
from .aws import Aws
from .csv_text import csv_of
from .movements import movements_of

_PAGE = 50
_SIDE_BY_SIDE = 10
"""Requests at the same time: as many as the client has connections."""

_PATIENCE = 10.0


@dataclass(frozen=True)
class OrderList:
    """The first orders of a list.

    Attributes:
        orders: The orders with their lines. Orders to ship also have their missing units (`mark_shippable`).
        has_more: Whether the list continues.
        unreadable: Ids of orders within this part whose rows break the table's contract.
    """

    orders: list[dict[str, Any]]
    has_more: bool
    unreadable: list[str]


def read_order(aws: Aws, order_id: str) -> dict[str, Any] | None:
    """Read an order with strong consistency, with the units missing for its shipment. Returns None if there is none."""
    client, deadline = RetryingClient(aws.store()), _deadline()
    order = direct.read_order(order_id, client, deadline)
    # A cancellation that arrived before its order leaves a row without a user.
    if order is None or order.user_id is None:
        return None
    shown = _shown(order)
    if order.status == OrderStatus.CONFIRMED:
        mark_shippable(client, [(order, shown)], deadline)
    return shown


def list_orders(aws: Aws, wanted: OrderFilter, limit: int) -> OrderList:
    """Read the first orders of a list. Orders to ship also have their missing units (`mark_shippable`)."""
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        return _list_orders(RetryingClient(aws.store(), executor=pool), wanted, limit)


def _list_orders(client: RetryingClient, wanted: OrderFilter, limit: int) -> OrderList:
    orders, unreadable = list[dict[str, Any]](), list[str]()
    after, has_more = None, True
    while has_more and len(orders) < limit:
        deadline, size = _deadline(), min(limit, _PAGE)
        read = partial(lists.list_orders, client.store, wanted, size, after, client.side_by_side)
        places, after = client.call(read, deadline)
        found, broken = read_orders(client, places, deadline, lambda order: (order, _shown(order)))
        found = [each for each in found if is_listed(wanted, *each)]
        if wanted.status == OrderStatus.CONFIRMED:
            mark_shippable(client, found, deadline, wanted.location_id)
        orders += (shown for _, shown in found)
        unreadable += broken
        has_more = after is not None
    return OrderList(orders[:limit], has_more or len(orders) > limit, unreadable)


_COLUMNS = (
    *("orderId", "userId", "status", "reason", "statusAt", "createdAt", "expiresAt"),
    *("latePaymentAt", "shippable", "items"),
)


def orders_as_csv(orders: Iterable[Mapping[str, Any]]) -> str:
    """Write orders as CSV, one line for each order."""
    return csv_of(_COLUMNS, ([_cell(order, name) for name in _COLUMNS] for order in orders))


def _cell(order: Mapping[str, Any], name: str) -> str:
    if name == "latePaymentAt":
        return str(order.get("confirmationRejected", {}).get("at", ""))
    if name == "items":
        return ", ".join(f"{one['quantity']} {in_words(key_in(one))}" for one in order["items"])
    value = order.get(name, "")
    return str(value).lower() if isinstance(value, bool) else str(value)


def count_open(aws: Aws, generations: Collection[Generation], seconds: float) -> tuple[int, bool]:
    """Count the orders that wait for units of products. This reads all orders, but stops after the given number of seconds.

    Returns:
        The number found, and whether all orders were read. The audit reports orders that cannot be read.
    """
    until, count = time.monotonic() + seconds, 0
    for row in read_rows(aws, Table.ORDERS):
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            moved = (each.open for each in movements_of(row) if each.generation in generations)
            count += sum(moved) > 0
        if time.monotonic() > until:
            return count, False
    return count, True


def _deadline() -> Deadline:
    return Deadline.after(_PATIENCE, SystemClock())


def _shown(order: OrderRecord) -> dict[str, Any]:
    return public_order(order_row(order), with_notes=True) | {"statusAt": order.status_at}
