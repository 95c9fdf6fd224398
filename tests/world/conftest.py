"""Whole handlers in a world of their own: any input, an hour of outage, simulated load."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def on_their_own(away_from_the_embedded_aws):
    """All tests here do without the embedded AWS."""
