"""A real browser for the dashboard's page."""

from collections.abc import Iterator
from typing import Any

import pytest

from local.dashboard import browser
from operations.errors import UserError


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    try:
        browser.find()
    except UserError as error:
        pytest.skip(f"THE DASHBOARD'S PAGE IS NOT TESTED: {error}")
    with browser.launched() as launched:
        yield launched


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page that must not complain."""
    opened = chromium.new_page(viewport={"width": 1360, "height": 1000})
    complaints: list[str] = []
    opened.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    yield opened
    opened.unroute_all(behavior="wait")
    opened.close()
    assert complaints == []
