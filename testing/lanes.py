"""Lanes for tests: what others may do with them, and where units are."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace

from inventory_orders.clock import SystemClock
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import DEPOT, Page, PageKey
from inventory_orders.domain.planner import Transaction
from inventory_orders.errors import CorruptItemError
from inventory_orders.store.cancellations import TransactionCancelledError
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.rows import encode, page_units
from inventory_orders.store.tables import Table
from inventory_orders.store.writes import transaction_actions
from operations.aws import Aws


def lend(store: Store, product_id: str, depot: int, lanes: Mapping[int, int]) -> None:
    """Set units of a product aside, when nobody else is at work: in the depot, and so many in each lane."""
    allocation = _allocation(store, product_id, {DEPOT, *lanes})
    allocation.lend(product_id, depot + sum(lanes.values()), reach=max(lanes, default=0))
    for lane, units in lanes.items():
        allocation.fill(lane, product_id, units)
    _write(store, allocation)


def reclaim(store: Store, product_id: str) -> int | None:
    """Move all units of a product from lanes to its row. Returns how many; None if a rival came first."""
    product = store.get_product(product_id)
    if product is None or not product.lent_to:
        return 0
    allocation = _allocation(store, product_id, {DEPOT, *product.lent_to})
    before = allocation.row(product_id)
    try:
        allocation.recall(product_id, before.lent_to - {DEPOT})
        allocation.reclaim(product_id)
        _write(store, allocation)
    except (TransactionCancelledError, ValueError):
        # A ValueError: row and pages were read while units moved.
        return None
    return allocation.row(product_id).stock_count - before.stock_count


def _allocation(store: Store, product_id: str, lanes: Collection[int]) -> Allocation:
    snapshot = store.read([product_id, *(PageKey.of(lane, product_id) for lane in sorted(lanes))])
    return Allocation(snapshot.products, map(_sound, snapshot.pages.values()))


def _write(store: Store, allocation: Allocation) -> None:
    updates, pages, _ = allocation.drain()
    transaction = Transaction(updates, (), pages)
    store.write(transaction_actions(transaction, SystemClock().now()), uuid.uuid4().hex)


def add_to_page_by_hand(aws: Aws, store: Store, key: PageKey, product_id: str, units: int) -> None:
    """Change what a page holds without booking it, as no part of the service does, while nobody else writes it."""
    page = _sound(store.read([key]).pages[key])
    entry = page.entries[product_id]
    changed = {**page.entries, product_id: replace(entry, units=entry.units + units)}
    aws.dynamodb.update_item(
        TableName=aws.tables[Table.ALLOTMENTS],
        Key={"page": {"S": str(key)}},
        UpdateExpression="SET #units = :units, #version = #version + :one",
        ExpressionAttributeNames={"#units": "units", "#version": "_version"},
        ExpressionAttributeValues=encode(
            {":units": page_units(replace(page, entries=changed)), ":one": 1}
        ),
    )


def _sound(page: Page | CorruptItemError) -> Page:
    if isinstance(page, CorruptItemError):
        raise page
    return page
