"""The demonstration, and a real browser for the pages of the desk."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from local import STATE, demo, sample_orders
from local.dashboard import browser
from operations.errors import UserError
from tests.support.logs import give_every_worker_nothing_to_do, values_in_logs
from tests.support.stack import cli, wait_until_settled

ORDERS = 500


@dataclass(frozen=True)
class Demonstration:
    """A run of `make demo`.

    Attributes:
        before: The sums of the handlers' metrics until then, by name.
        output: What it printed.
        result: What it left in a file for other tools.
    """

    before: dict[str, float]
    output: str
    result: dict[str, Any]


@pytest.fixture(scope="session")
def demonstration(embedded_aws: Any) -> Demonstration:
    aws = embedded_aws[0]
    wait_until_settled(aws)
    give_every_worker_nothing_to_do(aws)
    metrics, _, _ = values_in_logs(aws)
    before = {name: sum(metrics[name, None]) for name in ("OrdersPlaced", "OrdersRejected")}
    with pytest.MonkeyPatch.context() as patch:
        # Less than for people who watch it, and still a product that sells out.
        patch.setattr(demo, "ORDERS", ORDERS)
        patch.setattr(sample_orders, "HOT_STOCK", ORDERS // 5)
        output = cli("demo").stdout
    return Demonstration(before, output, json.loads((STATE / "demo.json").read_text()))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    try:
        browser.find()
    except UserError as error:
        pytest.skip(f"THE PAGES OF THE DESK ARE NOT TESTED: {error}")
    with browser.launched() as launched:
        yield launched


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page that must not complain."""
    opened = chromium.new_page(viewport={"width": 1360, "height": 1000})
    complaints: list[str] = []
    opened.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    # Who leaves a page ends what it was waiting for.
    opened.on(
        "requestfailed",
        lambda request: (
            request.failure == "net::ERR_ABORTED" or complaints.append(f"failed: {request.url}")
        ),
    )
    yield opened
    opened.unroute_all(behavior="wait")
    opened.close()
    assert complaints == []
