"""Simulated AWS: DynamoDB, SQS and a bus in memory, exact in everything that the service relies on.

Tests compare it with the embedded AWS and with Dynoxide by making random calls. It has no latency, no throttling and no
transactions in flight: each call is one atomic step. The exploration and the simulator decide in their answer function
when a step happens and which faults occur.

    clock = ManualClock()
    aws = SimulatedAws(clock.now)
    aws.dynamodb.answer("CreateTable", {...})
    aws.sqs.create("Queue", visibility=180, dead_letters=aws.sqs.create("DeadLetters"), max_receive_count=1000)
    with virtual_time(clock), answered_by(aws.answer):
        boto3.client("dynamodb").get_item(...)          # any client: ours, PynamoDB's, Powertools'

`answered_by` takes any function `answer(service, operation, request) -> reply`. It may raise `ServiceError` (an
error response) or botocore's `ReadTimeoutError` (no response). `aws.dynamodb.touched(operation, request)` returns
the items that a request reads and writes; `aws.dynamodb.tables[name]` has its `items` and the capacity units
`consumed`; `aws.sqs.queues[name].messages` are its messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testing.aws.bus import EventBus
from testing.aws.dynamodb import Consumed, DynamoDB, Key, Table
from testing.aws.sqs import Message, Queue, Sqs
from testing.aws.values import Item, ServiceError
from testing.aws.wire import Answer, answered_by, answered_directly_by, in_wire_format


class SimulatedAws:
    """DynamoDB, SQS and an event bus of one account and region.

    Args:
        now: Returns the time in Unix seconds.

    Attributes:
        dynamodb: The tables.
        sqs: The queues.
        bus: The bus.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.dynamodb = DynamoDB(now)
        self.sqs = Sqs(now)
        self.bus = EventBus()

    def answer(self, service: str, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request, in one atomic step.

        Raises:
            ServiceError: An error response, as from AWS.
        """
        if service == "dynamodb":
            return self.dynamodb.answer(operation, request)
        if service == "events":
            answer: dict[str, Any] = self.bus.put_events(**request)
            return answer
        if service == "sqs":
            return self.sqs.answer(operation, request)
        raise NotImplementedError(f"the simulated AWS has no {service}")


__all__ = [
    "Answer",
    "Consumed",
    "DynamoDB",
    "EventBus",
    "Item",
    "Key",
    "Message",
    "Queue",
    "ServiceError",
    "SimulatedAws",
    "Sqs",
    "Table",
    "answered_by",
    "answered_directly_by",
    "in_wire_format",
]
