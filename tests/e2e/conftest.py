"""Fixtures for tests of the deployed stack: a run of the demonstration, and empty queues for each test file."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from local import STATE, demo, sample_orders
from local.desk import background
from local.emulator import Emulator
from operations import queues
from operations.aws import Aws
from tests.support.roles import name_actions_as_the_embedded_aws_does
from tests.support.stack import cli, deployed, wait_until_settled

ORDERS, HOLD_SECONDS = 150, 3


@dataclass(frozen=True)
class Demonstration:
    """A run of `make demo`.

    Attributes:
        output: The printed output.
        result: The content of the result file, `.local/demo.json`.
    """

    output: str
    result: dict[str, Any]


@pytest.fixture(scope="session")
def embedded_aws() -> Iterator[tuple[Aws, Emulator]]:
    """Deploy the stack to an embedded AWS that enforces IAM."""
    with deployed(enforce_iam=True) as (aws, running):
        name_actions_as_the_embedded_aws_does(aws)
        yield aws, running


@pytest.fixture(scope="session")
def aws(embedded_aws: tuple[Aws, Emulator]) -> Aws:
    return embedded_aws[0]


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind(aws: Aws) -> Iterator[None]:
    """Stop the desk and purge the queues after each test file.

    The desk, which the demonstration starts, reads logs and queues all the time. Messages that came too early would be
    redelivered for hours, and would block tests that wait for empty queues.
    """
    yield
    background.stop()
    for queue in queues.QUEUES:
        aws.sqs.purge_queue(QueueUrl=aws.outputs[queue])


@pytest.fixture(scope="session")
def demonstration(aws: Aws) -> Demonstration:
    wait_until_settled(aws)
    with pytest.MonkeyPatch.context() as patch:
        # The run is smaller and faster than the usual one, but a product still sells out.
        patch.setattr(demo, "ORDERS", ORDERS)
        patch.setattr(sample_orders, "HOT_STOCK", ORDERS // 5)
        patch.setattr(sample_orders, "HOLD_SECONDS", HOLD_SECONDS)
        output = cli("demo").stdout
    return Demonstration(output, json.loads((STATE / "demo.json").read_text()))
