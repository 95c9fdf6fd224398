"""The demonstration, which several tests look at."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from local import STATE
from tests.support.logs import give_every_worker_nothing_to_do, values_in_logs
from tests.support.stack import cli, wait_until_settled


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
    output = cli("demo").stdout
    return Demonstration(before, output, json.loads((STATE / "demo.json").read_text()))
