"""Fixtures for pytest, for a conftest.py that names this module in `pytest_plugins`."""

# Not a plugin that pytest finds by itself, because it would load this in each run of each project with the wheel.

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inventory_orders.invocation.telemetry import logger, metrics
from testing.shop import RunningShop


@pytest.fixture
def running_shop() -> Iterator[RunningShop]:
    """Open an empty shop, which logs only warnings and no metrics, so that pytest shows little but the failed assertion."""
    level = logger.log_level
    logger.setLevel("WARNING")
    # The fixture `monkeypatch` would be undone after the shop is closed, and bring back what a test has patched in it.
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("POWERTOOLS_METRICS_DISABLED", "true")
        with RunningShop().open() as shop:
            yield shop
    logger.setLevel(level)
    # Powertools keeps metrics that it does not print, and would print them with the next ones.
    metrics.clear_metrics()
