"""Stores once a minute what lists and the desk's first page would otherwise find out with many reads, and takes ended transfers off their list."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.events import public_order
from inventory_orders.domain.record import AdjustmentKey, OrderStatus
from inventory_orders.engine.retrying_client import (
    RetryingClient,
    SweepReport,
    check_time,
    read_orders,
)
from inventory_orders.lanes.levels import mark_shippable, sweep_levels
from inventory_orders.store.lists import OrderFilter, list_orders, list_transfers
from inventory_orders.store.rows import key_item, order_row
from inventory_orders.store.sweep_rows import TODAY, write_swept
from inventory_orders.store.tables import Table
from inventory_orders.store.writes import Write

MOST = 100
"""Maximum number of orders that are counted in each list."""

_SETTLED = timedelta(days=1)
"""How long the steps of a transfer stay in its index after it has ended."""

_LATE = timedelta(days=7)
"""How long a late payment counts. Nothing records that it was refunded."""


def store_overview(client: RetryingClient, deadline: Deadline) -> SweepReport:
    """Store the levels of products in lanes, and the counts of orders that need attention."""
    report = SweepReport()
    # With many products in lanes, the last one may take long.
    for part in (_count_orders, _end_transfers, sweep_levels):
        with report.noting_errors():
            part(client, deadline)
    return report


def _end_transfers(client: RetryingClient, deadline: Deadline) -> None:
    """Take transfers off their list a day after their last step, if nothing is in transit any more.

    By then, departures that were booked after the arrival count, and the index shows all steps.
    """
    before, unlisted = timestamp(client.clock.now() - _SETTLED), Write("REMOVE #transferShard")
    for each, steps in client.ask(list_transfers, deadline)[0]:
        if each["units"] <= 0 and each["changedAt"] < before:
            # Departures come first: if this is interrupted, what is left must not hide a later departure.
            for step in sorted(steps, key=lambda step: step["delta"]):
                key = key_item(AdjustmentKey(step["productId"], step["adjustmentId"]))
                client.call(
                    partial(client.store.update, Table.STOCK_ADJUSTMENTS, key, unlisted), deadline
                )


def _count_orders(client: RetryingClient, deadline: Deadline) -> None:
    """Count the first orders of each list, with the oldest time, and those to ship that lack units."""
    check_time(deadline)
    at = timestamp(client.clock.now())
    lists = {
        "toShip": OrderFilter(status=OrderStatus.CONFIRMED),
        "unpaid": OrderFilter(status=OrderStatus.PENDING),
        "paidLate": OrderFilter(paid_late=True, since=timestamp(client.clock.now() - _LATE)),
    }
    found = {
        name: client.ask(list_orders, deadline, wanted, MOST, None, client.side_by_side)
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
    counts |= {"blocked": len(shorts), "missing": dict(missing.most_common())}
    client.ask(write_swept, deadline, TODAY, at, counts)
