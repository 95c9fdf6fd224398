"""Orders as operators see them: one by its id, a user's, and those to ship."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from inventory_orders.domain.change import OrderKey, OrderRecord, OrderStatus
from inventory_orders.domain.events import public_order
from inventory_orders.store.dynamodb import ListPosition, Store
from inventory_orders.store.rows import record_row
from operations.aws import Aws

_PAGE = 50

_List = Callable[[int, ListPosition | None], tuple[list[ListPosition], bool]]


def read_order(aws: Aws, order_id: str) -> dict[str, Any] | None:
    """Read an order, strongly consistent. None if there is none.

    Raises:
        InventoryOrdersError: It cannot be read.
    """
    record = aws.store().get_record(OrderKey(order_id))
    # A cancellation that came before its order leaves a row without a user.
    if not isinstance(record, OrderRecord) or record.user_id is None:
        return None
    return public_order(record_row(record))


def orders_to_ship(aws: Aws, limit: int) -> list[dict[str, Any]]:
    """Read the orders that are confirmed and not fulfilled, the oldest first.

    Raises:
        InventoryOrdersError: They cannot be read.
    """
    store = aws.store()
    orders = _listed(store, store.list_to_fulfil)
    # The index may show an order that was fulfilled a moment ago.
    return list(islice((o for o in orders if o["status"] == OrderStatus.CONFIRMED), limit))


def orders_of(aws: Aws, user_id: str, limit: int) -> list[dict[str, Any]]:
    """Read a user's orders, the newest first.

    Raises:
        InventoryOrdersError: They cannot be read.
    """
    store = aws.store()
    listed = _listed(store, lambda most, after: store.list_orders(user_id, most, after))
    return list(islice(listed, limit))


def _listed(store: Store, page: _List) -> Iterator[dict[str, Any]]:
    """Orders of a list with their lines, those that cannot be read left out."""
    after, has_more = None, True
    while has_more:
        places, has_more = page(_PAGE, after)
        keys = [OrderKey(place.order_id) for place in places]
        records = store.read(keys).records if keys else {}
        for key in keys:
            record = records.get(key)
            if isinstance(record, OrderRecord):
                yield public_order(record_row(record))
        after = places[-1] if places else None
