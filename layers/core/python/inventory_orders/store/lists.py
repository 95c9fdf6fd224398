"""Reads lists page by page: a user's orders, orders to ship, ending holds, products, and a product's adjustments.

Each function raises a `StoreError` if a request fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inventory_orders.domain.record import AdjustmentKey, OrderKey, Record
from inventory_orders.errors import CorruptItemError
from inventory_orders.store.dynamodb import Snapshot, Store
from inventory_orders.store.rows import Item, Row, decode, key_item, read_item
from inventory_orders.store.tables import (
    BY_EXPIRY,
    BY_LEVEL,
    BY_TO_FULFIL,
    BY_USER,
    FULFIL_SHARDS,
    KEYS,
    Table,
    shard_name,
)

_HOLDS_OF_A_PAGE = 1000


@dataclass(frozen=True, slots=True, order=True)
class ListPosition:
    """A position in a list.

    Attributes:
        at: The time by which the list is sorted. A user's orders are sorted by creation, orders to ship by confirmation, and
            holds by their end. Empty in other lists.
        id: The order, product or adjustment.
    """

    at: str
    id: str


def list_orders(
    store: Store, user_id: str, limit: int, after: ListPosition | None
) -> tuple[list[ListPosition], bool]:
    """List a user's orders, newest first. The list is eventually consistent.

    Args:
        store: The tables.
        user_id: The user.
        limit: Maximum number of entries.
        after: The position to continue after; None for the beginning.

    Returns:
        The orders, and whether there are more.
    """
    # One extra entry shows whether there are more, because DynamoDB may return a position to continue at the end of a list.
    response = store.query(
        Table.ORDERS,
        "#userId = :user",
        {"user": user_id},
        _start(after, createdAt=after.at, userId=user_id) if after else None,
        Limit=limit + 1,
        IndexName=BY_USER.name,
        ScanIndexForward=False,
    )
    orders = [_position(item, "createdAt") for item in response["Items"]]
    return orders[:limit], len(orders) > limit


def list_products(
    store: Store, limit: int, after: ListPosition | None
) -> tuple[Snapshot, ListPosition | None]:
    """List products in no particular sequence, with strong consistency.

    Args:
        store: The tables.
        limit: Maximum number of entries.
        after: The position to continue after; None for the beginning.

    Returns:
        The products, and where to continue; None at the end.
    """
    items, last = _scan(store, Table.PRODUCTS, after, ConsistentRead=True, Limit=limit)
    snapshot = Snapshot()
    for item in items:
        snapshot.add_item(item["productId"]["S"], item)
    return snapshot, last


def list_by_level(
    store: Store, status: str, limit: int, after: ListPosition | None
) -> tuple[list[str], ListPosition | None]:
    """List the products with a status, sorted by id. The list is eventually consistent.

    Args:
        store: The tables.
        status: The status.
        limit: Maximum number of entries.
        after: The position to continue after; None for the beginning.

    Returns:
        The keys of their rows, and where to continue; None at the end.
    """
    response = store.query(
        Table.PRODUCTS,
        "#status = :status",
        {"status": status},
        {"status": {"S": status}, **key_item(after.id)} if after else None,
        Limit=limit,
        IndexName=BY_LEVEL.name,
    )
    keys = [item["productId"]["S"] for item in response["Items"]]
    return keys, ListPosition("", keys[-1]) if "LastEvaluatedKey" in response else None


def list_all_orders(
    store: Store, after: ListPosition | None
) -> tuple[dict[str, Record | CorruptItemError], ListPosition | None]:
    """List about a megabyte of orders in no particular sequence. The list is eventually consistent.

    Args:
        store: The tables.
        after: The position to continue after; None for the beginning.

    Returns:
        The orders by id, with the error of each unreadable one, and where to continue; None at the end.
    """
    items, last = _scan(store, Table.ORDERS, after)
    keys = [OrderKey(item["orderId"]["S"]) for item in items]
    return {key.order_id: read_item(key, item) for key, item in zip(keys, items, strict=True)}, last


def _scan(
    store: Store, table: Table, after: ListPosition | None, **parameters: Any
) -> tuple[Sequence[Item], ListPosition | None]:
    (key,) = KEYS[table]
    if after is not None:
        parameters["ExclusiveStartKey"] = {key: {"S": after.id}}
    response = store.scan(table, **parameters)
    last = response.get("LastEvaluatedKey")
    return response["Items"], ListPosition("", last[key]["S"]) if last else None


def list_adjustments(
    store: Store, product_id: str, limit: int, after: ListPosition | None
) -> tuple[list[Row], ListPosition | None]:
    """List a product's adjustments, sorted by id, with strong consistency.

    Args:
        store: The tables.
        limit: Maximum number of entries.
        after: The position to continue after; None for the beginning.

    Returns:
        Their rows, and where to continue; None at the end.
    """
    response = store.query(
        Table.STOCK_ADJUSTMENTS,
        "#productId = :product",
        {"product": product_id},
        key_item(AdjustmentKey(product_id, after.id)) if after else None,
        Limit=limit,
        ConsistentRead=True,
    )
    rows = [decode(item) for item in response["Items"]]
    last = response.get("LastEvaluatedKey")
    return rows, ListPosition("", last["adjustmentId"]["S"]) if last else None


def list_to_fulfil(
    store: Store, limit: int, after: ListPosition | None
) -> tuple[list[ListPosition], bool]:
    """List confirmed orders that are not fulfilled yet, oldest first. The list is eventually consistent.

    Args:
        store: The tables.
        limit: Maximum number of entries.
        after: The position to continue after; None for the beginning.

    Returns:
        The orders, and whether there are more.
    """
    start = after or ListPosition("", "")
    shards = map(shard_name, range(FULFIL_SHARDS))
    orders = sorted(order for name in shards for order in _to_fulfil(store, name, limit + 1, start))
    return orders[:limit], len(orders) > limit


def _to_fulfil(store: Store, shard: str, limit: int, after: ListPosition) -> list[ListPosition]:
    """List `limit` orders of a shard, or more if several share the last time, because an index does not sort equal times."""
    condition = "#fulfilShard = :shard AND #confirmedAt >= :at"
    values = {"shard": shard, "at": after.at or " "}
    orders: list[ListPosition] = []
    start: Item | None = None
    while len(orders) < limit or orders[limit - 1].at == orders[-1].at:
        response = store.query(
            Table.ORDERS, condition, values, start, Limit=limit, IndexName=BY_TO_FULFIL.name
        )
        positions = (_position(item, "confirmedAt") for item in response["Items"])
        orders += (position for position in positions if position > after)
        if "LastEvaluatedKey" not in response:
            break
        start = response["LastEvaluatedKey"]
    return orders


def list_holds(
    store: Store, shard: int, until: str, after: ListPosition | None = None
) -> tuple[list[ListPosition], ListPosition | None]:
    """List the holds of a shard that end by a given time, oldest first. They are a hint: the list is eventually consistent.

    Args:
        store: The tables.
        shard: The number of the shard, below `EXPIRY_SHARDS`.
        until: The time.
        after: The position to continue after; None for the beginning.

    Returns:
        Some of the holds, and where to continue; None at the end.
    """
    name = shard_name(shard)
    response = store.query(
        Table.ORDERS,
        "#expiryShard = :shard AND #expiresAt <= :until",
        {"shard": name, "until": until},
        _start(after, expiresAt=after.at, expiryShard=name) if after else None,
        Limit=_HOLDS_OF_A_PAGE,
        IndexName=BY_EXPIRY.name,
    )
    last = response.get("LastEvaluatedKey")
    holds = [_position(item, "expiresAt") for item in response["Items"]]
    return holds, _position(last, "expiresAt") if last else None


def _position(item: Item, time: str) -> ListPosition:
    return ListPosition(item[time]["S"], item["orderId"]["S"])


def _start(after: ListPosition, **keys: str) -> Item:
    """Build the key after which a query of an index continues."""
    return {name: {"S": value} for name, value in {**keys, "orderId": after.id}.items()}
