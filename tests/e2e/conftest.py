"""What the tests of the deployed stack share: its queues are empty for each file, and the demonstration has run."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from local import STATE, demo, sample_orders
from operations import queues
from operations.aws import Aws
from tests.support.stack import cli, wait_until_settled

ORDERS, HOLD_SECONDS = 500, 3


@dataclass(frozen=True)
class Demonstration:
    """A run of `make demo`.

    Attributes:
        output: What it printed.
        result: What it left in a file for other tools.
    """

    output: str
    result: dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def nothing_left_in_the_queues(aws: Aws) -> Iterator[None]:
    """A file's messages end with it: those that are early come back for hours, and who waits for empty queues would wait."""
    yield
    for queue in queues.QUEUES:
        aws.sqs.purge_queue(QueueUrl=aws.outputs[queue])


@pytest.fixture(scope="session")
def demonstration(aws: Aws) -> Demonstration:
    wait_until_settled(aws)
    with pytest.MonkeyPatch.context() as patch:
        # Less, and sooner, than for people who watch it, and still a product that sells out.
        patch.setattr(demo, "ORDERS", ORDERS)
        patch.setattr(sample_orders, "HOT_STOCK", ORDERS // 5)
        patch.setattr(sample_orders, "HOLD_SECONDS", HOLD_SECONDS)
        output = cli("demo").stdout
    return Demonstration(output, json.loads((STATE / "demo.json").read_text()))
