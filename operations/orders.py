"""Orders for operators: one by id, a user's orders, the orders to ship, and the orders waiting for payment."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.events import public_order
from inventory_orders.domain.outbound import Generation
from inventory_orders.domain.record import OrderRecord, OrderStatus
from inventory_orders.engine.retrying_client import RetryingClient, read_orders
from inventory_orders.invocation import direct
from inventory_orders.lanes.levels import mark_shippable, open_units
from inventory_orders.store.lists import (
    ListPosition,
    list_holds,
    list_orders,
    list_to_fulfil,
)
from inventory_orders.store.rows import order_row
from inventory_orders.store.tables import EXPIRY_SHARDS, Table

from .audit import read_rows
from .aws import Aws
from .movements import movements_of

_PAGE = 50
_PATIENCE = 10.0
_FOREVER = "9999"


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


_List = Callable[[int, ListPosition | None], tuple[list[ListPosition], bool]]
_Filter = Callable[[OrderRecord, Mapping[str, Any]], bool]


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


def orders_to_ship(aws: Aws, limit: int, location_id: str | None = None) -> OrderList:
    """Read the orders that are confirmed and not fulfilled, oldest first, each with its missing units.

    Args:
        aws: The stack.
        limit: Maximum number of orders.
        location_id: If given, return only orders that wait for units at this location. All orders to ship are read,
            because no index contains locations.
    """
    client = RetryingClient(aws.store())

    def is_to_ship(order: OrderRecord, shown: Mapping[str, Any]) -> bool:
        # The index may still show an order that was just fulfilled.
        is_confirmed = order.status == OrderStatus.CONFIRMED
        return is_confirmed and (location_id is None or bool(open_units(order, shown, location_id)))

    def mark(found: list[tuple[OrderRecord, dict[str, Any]]], deadline: Deadline) -> None:
        mark_shippable(client, found, deadline, location_id)

    return _listed(client, partial(list_to_fulfil, client.store), limit, is_to_ship, mark)


def held_orders(aws: Aws, limit: int) -> OrderList:
    """Read the orders with a hold that wait for payment, sorted by the end of the hold."""
    client = RetryingClient(aws.store())
    # Read more than the limit, because the index may still show orders that were just paid.
    holds = sorted(
        hold for shard in range(EXPIRY_SHARDS) for hold in _holds(client, shard, limit + _PAGE)
    )

    def page(size: int, after: ListPosition | None) -> tuple[list[ListPosition], bool]:
        rest = holds[bisect_right(holds, after) if after else 0 :]
        return rest[:size], len(rest) > size

    return _listed(client, page, limit, lambda order, _: order.status == OrderStatus.PENDING)


def _holds(client: RetryingClient, shard: int, limit: int) -> list[ListPosition]:
    """Read the first holds of a shard: at least `limit`, if there are that many."""
    holds, after = list[ListPosition](), None
    while len(holds) < limit:
        read = partial(list_holds, client.store, shard, _FOREVER, after)
        found, after = client.call(read, _deadline())
        holds += found
        if after is None:
            break
    return holds


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


def orders_of(aws: Aws, user_id: str, limit: int) -> OrderList:
    """Read a user's orders, newest first."""
    client = RetryingClient(aws.store())
    return _listed(client, partial(list_orders, client.store, user_id), limit)


def _listed(
    client: RetryingClient,
    page: _List,
    limit: int,
    is_listed: _Filter = lambda *_: True,
    mark: Callable[[list[tuple[OrderRecord, dict[str, Any]]], Deadline], None] = lambda *_: None,
) -> OrderList:
    """Read a part of a list of orders, with their lines."""
    orders, unreadable = list[dict[str, Any]](), list[str]()
    after, has_more = None, True
    while has_more and len(orders) < limit:
        deadline = _deadline()
        places, has_more = client.call(partial(page, _PAGE, after), deadline)
        found, broken = read_orders(client, places, deadline, lambda order: (order, _shown(order)))
        found = [each for each in found if is_listed(*each)]
        mark(found, deadline)
        orders += (shown for _, shown in found)
        unreadable += broken
        after = places[-1] if places else None
    return OrderList(orders[:limit], has_more or len(orders) > limit, unreadable)


def _deadline() -> Deadline:
    return Deadline.after(_PATIENCE, SystemClock())


def _shown(order: OrderRecord) -> dict[str, Any]:
    return public_order(order_row(order), with_notes=True)
