"""Fills a shop with 2,000 products and 7,000 orders, as rows, because placing the orders takes much longer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.domain.outbound import OUTBOUND_KEYS, OutboundPage
from inventory_orders.domain.product import Product, stock_status
from inventory_orders.domain.record import AdjustmentRecord, OrderLine, OrderRecord, Step
from inventory_orders.store.rows import page_units
from inventory_orders.store.tables import Table
from testing.schedules.in_turn.shop import Shop

PRODUCTS, ORDERS, CUSTOMERS = 2_000, 7_000, 1_400
OUT, LOW, SHORT = 40, 44, 4
"""How many products are out of stock, are low, and have more units promised than on hand. The short ones are low as well."""

_PAGE = OutboundPage(OUTBOUND_KEYS[0], ORDERS, "epoch")
_LOW_AT = 5
_HOUR = 3_600


def fill(shop: Shop) -> None:
    """Write the orders, the products with their opening stock, and the page on which shipped units left. The books balance."""
    began = SystemClock().now() - timedelta(days=1)
    placed, shipped, lines = Counter[str](), Counter[str](), Counter[str]()
    for number in range(ORDERS):
        order = _order(number, began, lines)
        units = {line.product_id: line.quantity for line in order.lines}
        placed.update(units)
        shipped.update(units if order.fulfilled_at else ())
        shop.put_record(order)
    for number in range(PRODUCTS):
        key, at = sku(number), timestamp(began)
        left = _left(number, placed[key] - shipped[key])
        opening, limit = placed[key] + left, max(0, -2 * left)
        status = stock_status(left, limit, _LOW_AT)
        numbers = (left, opening - shipped[key], 1 + lines[key])
        product = Product(key, *numbers, at, status, limit, _LOW_AT, f"Article {number}", 995)
        shop.put(product)
        shop.put_record(AdjustmentRecord(key, "opening", opening, "OPENING", at, 1, at))
    page = {"page": str(_PAGE.key), "_version": _PAGE.version, "epoch": _PAGE.epoch}
    shop.write(Table.ALLOTMENTS, {**page, "units": page_units(_PAGE)})


def sku(number: int) -> str:
    """Return the id of a product."""
    return f"sku-{number % PRODUCTS:04}"


def order_id(number: int) -> str:
    """Return the id of an order. One in ten is to ship, one in twenty waits for payment, and the others have been shipped."""
    return f"o-{number:05}"


def _left(number: int, promised: int) -> int:
    """Return how many more units of a product can be ordered. A short product has none on hand for its open orders."""
    if number % 500 == 2:
        return -promised
    return {0: 0, 1: _LOW_AT}.get(number % 50, 90)


def _order(number: int, began: datetime, lines: Counter[str]) -> OrderRecord:
    """Make an order. `lines` counts how often each product has been ordered, because each order is a version of its row."""

    def at(seconds: float) -> str:
        return timestamp(began + timedelta(seconds=number + seconds))

    products = [sku(7 * number), sku(7 * number + 2)]
    lines.update(products)
    opened = timestamp(began)
    taken = tuple(OrderLine(each, 1 + number % 3, opened, 1 + lines[each]) for each in products)
    user_id = f"customer-{number % CUSTOMERS}"
    order = OrderRecord(order_id(number), user_id, taken, "PENDING", 1, at(0), at(0))
    if number % 20 == 1:
        return replace(order, hold_seconds=26 * _HOUR, expires_at=at(26 * _HOUR))
    steps: tuple[Step, ...] = (Step("confirm", at(1)),)
    order = replace(order, confirmed_at=at(1), steps=steps, last_updated_at=at(1))
    if number % 10 == 0:
        return replace(order, status="CONFIRMED", version=2)
    steps += (Step("fulfil", at(2), out_page=str(_PAGE.key), out_version=number),)
    order = replace(order, fulfilled_at=at(2), steps=steps, last_updated_at=at(2))
    return replace(order, status="FULFILLED", version=3)
