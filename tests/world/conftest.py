"""Whole handlers in a simulated world: arbitrary input, hours of outage, simulated load."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def on_their_own(away_from_the_embedded_aws):
    """All tests here run without the embedded AWS."""
