"""Tests of whole handlers in a simulated world, with arbitrary input, hours of outage, and simulated load."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def on_their_own(away_from_the_embedded_aws):
    """Run all tests in this folder without the embedded AWS."""
