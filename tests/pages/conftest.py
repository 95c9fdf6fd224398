"""Fixtures for the pages of the desk."""

import pytest

from tests.support.desk import desk_for


@pytest.fixture
def desk(page):
    with desk_for(page) as desk:
        yield desk
