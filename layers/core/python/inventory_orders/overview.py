"""Stores once a minute what lists and the desk's first page would otherwise find out with many reads."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.events import public_order
from inventory_orders.domain.record import OrderStatus
from inventory_orders.engine.retrying_client import (
    RetryingClient,
    SweepReport,
    check_time,
    read_orders,
)
from inventory_orders.lanes.levels import mark_shippable, sweep_levels
from inventory_orders.store.lists import OrderFilter, list_orders
from inventory_orders.store.rows import order_row
from inventory_orders.store.sweep_rows import TODAY, write_swept

MOST = 100
"""Maximum number of orders that are counted in each list."""

_LATE = timedelta(days=7)
"""How long a late payment counts. Nothing records that it was refunded."""


def store_overview(client: RetryingClient, deadline: Deadline) -> SweepReport:
    """Store the levels of products in lanes, and the counts of orders that need attention."""
    report = SweepReport()
    with report.noting_errors():
        check_time(deadline)
        at, counts = timestamp(client.clock.now()), _count_orders(client, deadline)
        client.call(partial(write_swept, client.store, TODAY, at, counts), deadline)
    # With many products in lanes, this may take long.
    with report.noting_errors():
        sweep_levels(client, deadline)
    return report


def _count_orders(client: RetryingClient, deadline: Deadline) -> dict[str, Any]:
    """Count the first orders of each list, with the oldest time, and those to ship that lack units."""
    late = timestamp(client.clock.now() - _LATE)
    lists = {
        "toShip": OrderFilter(status=OrderStatus.CONFIRMED),
        "unpaid": OrderFilter(status=OrderStatus.PENDING),
        "paidLate": OrderFilter(paid_late=True, since=late),
    }
    found = {
        name: client.call(
            partial(list_orders, client.store, wanted, MOST, None, client.side_by_side), deadline
        )
        for name, wanted in lists.items()
    }
    counts: dict[str, Any] = {
        name: {
            "count": len(places),
            "isAll": after is None,
            "oldest": min((place.at for place in places), default=None),
        }
        for name, (places, after) in found.items()
    }
    orders, _ = read_orders(
        client, found["toShip"][0], deadline, lambda order: (order, public_order(order_row(order)))
    )
    mark_shippable(client, orders, deadline)
    shorts = [shown["missing"] for _, shown in orders if "missing" in shown]
    # If an order lacks a product at two locations, the product counts once.
    missing = Counter(p for some in shorts for p in {short["productId"] for short in some})
    return counts | {"blocked": len(shorts), "missing": dict(missing.most_common())}
