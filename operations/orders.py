"""Orders for operators: one by id, and lists by user, status or late payment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.events import public_order
from inventory_orders.domain.location import DEFAULT_LOCATION, in_words, key_in, stock_key
from inventory_orders.domain.record import OrderRecord, OrderStatus
from inventory_orders.engine.retrying_client import RetryingClient, read_orders
from inventory_orders.invocation import direct
from inventory_orders.lanes.levels import is_listed, mark_shippable
from inventory_orders.store import lists, movements
from inventory_orders.store.lists import OrderFilter
from inventory_orders.store.rows import order_row

from .aws import Aws
from .csv_text import csv_of

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
        complete_until: For a list by reference or product, the time up to which no order is missing; None if not yet known.
    """

    orders: list[dict[str, Any]]
    has_more: bool
    unreadable: list[str]
    complete_until: str | None = None


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


def restricted(wanted: OrderFilter, product_id: str | None, location_id: str | None) -> OrderFilter:
    """Restrict a list to orders that took units of a product at a location, or that a location supplies; None for all."""
    if product_id is None:
        return replace(wanted, location_id=location_id)
    return replace(wanted, product_key=stock_key(product_id, location_id or DEFAULT_LOCATION))


def list_orders(aws: Aws, wanted: OrderFilter, limit: int) -> OrderList:
    """Read the first orders of a list. Orders to ship also have their missing units (`mark_shippable`).

    Raises:
        UserError: The list needs movements, but the stage records none.
    """
    until = None
    if wanted.is_of_movements:
        aws.check_movements()
        # What is recorded between the two reads is listed, although the list does not say so.
        until = movements.complete_until(aws.store())
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        listed = _list_orders(RetryingClient(aws.store(), executor=pool), wanted, limit)
    return replace(listed, complete_until=until)


def _list_orders(client: RetryingClient, wanted: OrderFilter, limit: int) -> OrderList:
    orders, unreadable = list[dict[str, Any]](), list[str]()
    for found, broken, has_more in _pages(client, wanted, min(limit, _PAGE)):
        if wanted.status == OrderStatus.CONFIRMED:
            mark_shippable(client, found, _deadline(), wanted.location_id)
        orders += (shown for _, shown in found)
        unreadable += broken
        if len(orders) >= limit:
            return OrderList(orders[:limit], has_more or len(orders) > limit, unreadable)
    return OrderList(orders, has_more=False, unreadable=unreadable)


def _pages(
    client: RetryingClient, wanted: OrderFilter, size: int
) -> Iterator[tuple[list[tuple[OrderRecord, dict[str, Any]]], list[str], bool]]:
    """Yield each page of a list: its orders as stored and as shown, the ids of unreadable ones, and whether there are more."""
    after, has_more = None, True
    while has_more:
        deadline = _deadline()
        read = partial(lists.list_orders, client.store, wanted, size, after, client.side_by_side)
        if wanted.is_of_movements:
            read = partial(movements.list_orders, client.store, wanted, size, after)
        places, after = client.call(read, deadline)
        found, broken = read_orders(client, places, deadline, lambda order: (order, _shown(order)))
        has_more = after is not None
        yield [each for each in found if is_listed(wanted, *each)], broken, has_more


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


def _deadline() -> Deadline:
    return Deadline.after(_PATIENCE, SystemClock())


def _shown(order: OrderRecord) -> dict[str, Any]:
    return public_order(order_row(order), with_notes=True) | {"statusAt": order.status_at}
