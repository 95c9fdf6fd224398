"""Fixtures for pytest, for a conftest.py that names this module in `pytest_plugins`."""

# Not a plugin that pytest finds by itself, because it would load this in each run of each project with the wheel.

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.shop import RunningShop


@pytest.fixture
def running_shop() -> Iterator[RunningShop]:
    """Open an empty shop."""
    with RunningShop().open() as shop:
        yield shop
