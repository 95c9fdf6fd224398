"""Parses orders as the service does."""

from __future__ import annotations

from typing import Any

from inventory_orders.domain.order import Order
from inventory_orders.messages.commands import order_in
from inventory_orders.messages.documents import strict_json


def parse_order(body: str, *defaults: Any, **more: Any) -> Order:
    """Parse a message that contains an order. For the other arguments, see `order_in`."""
    return order_in(strict_json(body), *defaults, **more)
