"""Lanes for tests: what others may do with them, and where units are."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from inventory_orders.clock import SystemClock
from inventory_orders.domain.allotments import DEPOT, Page, PageKey
from inventory_orders.domain.ledger import Ledger
from inventory_orders.domain.planner import Transaction
from inventory_orders.errors import CorruptItemError, TransactionCancelledError
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.rows import Table, encode, page_units
from operations.aws import Aws


def bring_home(store: Store, product_id: str) -> int | None:
    """Move all units of a product from lanes to its row. Returns how many; None if a rival came first."""
    product = store.get_product(product_id)
    if product is None or not product.lent_to:
        return 0
    keys = [PageKey.of(lane, product_id) for lane in {DEPOT, *product.lent_to}]
    pages = [_sound(page) for page in store.read(keys).pages.values()]
    ledger = Ledger({product_id: product}, pages)
    ledger.recall(product_id, product.lent_to - {DEPOT})
    ledger.bring_home(product_id)
    updates, page_updates = ledger.changes()
    transaction = Transaction(updates, (), page_updates)
    try:
        store.write(store.transaction_request(transaction, SystemClock().now()), uuid.uuid4().hex)
    except TransactionCancelledError:
        return None
    return ledger.row(product_id).stock_count - product.stock_count


def add_to_page_by_hand(aws: Aws, store: Store, key: PageKey, product_id: str, units: int) -> bool:
    """Change what a page holds without booking it, as no part of the service does. Returns whether no rival came first."""
    page = _sound(store.read([key]).pages[key])
    holding = page.holdings[product_id]
    changed = {**page.holdings, product_id: replace(holding, units=holding.units + units)}
    values: dict[str, Any] = {":units": page_units(replace(page, holdings=changed)), ":one": 1}
    table = aws.dynamodb
    try:
        table.update_item(
            TableName=aws.tables[Table.ALLOTMENTS],
            Key={"page": {"S": str(key)}},
            UpdateExpression="SET #units = :units, #version = #version + :one",
            ConditionExpression="#version = :version",
            ExpressionAttributeNames={"#units": "units", "#version": "_version"},
            ExpressionAttributeValues=encode(values | {":version": page.version}),
        )
    except table.exceptions.ConditionalCheckFailedException:
        return False
    return True


def _sound(page: Page | CorruptItemError) -> Page:
    if isinstance(page, CorruptItemError):
        raise page
    return page
