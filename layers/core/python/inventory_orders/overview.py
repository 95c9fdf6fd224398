"""Stores once a minute what lists and the desk's first page would otherwise find out with many reads."""

from __future__ import annotations

from inventory_orders.clock import Deadline
from inventory_orders.engine.retrying_client import RetryingClient, SweepReport
from inventory_orders.lanes.levels import sweep_levels


def store_overview(client: RetryingClient, deadline: Deadline) -> SweepReport:
    """Store the levels of products in lanes."""
    report = SweepReport()
    with report.noting_errors():
        sweep_levels(client, deadline)
    return report
