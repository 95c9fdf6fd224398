"""Orders as operators see them: one by its id, a user's, and those to ship."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.change import OrderKey, OrderRecord, OrderStatus
from inventory_orders.domain.events import public_order
from inventory_orders.engine.reader import read_orders
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import CorruptItemError
from inventory_orders.store.dynamodb import ListPosition, Store
from inventory_orders.store.rows import record_row
from operations.aws import Aws

_PAGE = 50
_PATIENCE = 10.0

_List = Callable[[int, ListPosition | None], tuple[list[ListPosition], bool]]


def read_order(aws: Aws, order_id: str) -> dict[str, Any] | None:
    """Read an order, strongly consistent. Returns None if it does not exist.

    Raises:
        InventoryOrdersError: The order cannot be read.
    """
    record = aws.store().get_record(OrderKey(order_id))
    # A cancellation that came before its order leaves a row without a user.
    if not isinstance(record, OrderRecord) or record.user_id is None:
        return None
    return public_order(record_row(record), with_notes=True)


def orders_to_ship(aws: Aws, limit: int) -> list[dict[str, Any]]:
    """Read the orders that are confirmed and not fulfilled, the oldest first.

    Raises:
        InventoryOrdersError: One of them cannot be read.
    """
    store = aws.store()
    # The index may show an order that was fulfilled a moment ago.
    return _listed(store, store.list_to_fulfil, limit, {OrderStatus.CONFIRMED})


def orders_of(aws: Aws, user_id: str, limit: int) -> list[dict[str, Any]]:
    """Read a user's orders, the newest first.

    Raises:
        InventoryOrdersError: One of them cannot be read.
    """
    store = aws.store()
    return _listed(store, lambda most, after: store.list_orders(user_id, most, after), limit)


def _listed(
    store: Store, page: _List, limit: int, only: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Orders of a list with their lines, of some statuses only if these are given."""
    client, found = RetryingClient(store), list[dict[str, Any]]()
    after, has_more = None, True
    while has_more and len(found) < limit:
        places, has_more = page(_PAGE, after)
        orders, unreadable = read_orders(client, places, Deadline.after(_PATIENCE, SystemClock()))
        if unreadable:
            raise CorruptItemError(
                f"orders that break the table's contract: {', '.join(unreadable)}"
            )
        found += (
            public_order(record_row(order), with_notes=True)
            for order in orders
            if not only or order.status in only
        )
        after = places[-1] if places else None
    return found[:limit]
