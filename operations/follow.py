"""Receives published events through a queue and a rule that it creates and removes again."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.domain.events import SOURCE

from .aws import Aws
from .errors import UserError
from .queues import arn_of

_POLL_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Heard:
    """An event that was received.

    Attributes:
        event: The whole event, as EventBridge sent it.
        delay: Seconds from `occurredAt` until it was in the queue; None without `occurredAt`.
    """

    event: dict[str, Any]
    delay: float | None


@contextmanager
def listening(aws: Aws) -> Iterator[Callable[[float], Iterator[Heard]]]:
    """Create a queue, and a rule that sends it all events on the service's bus. Remove both on exit.

    Yields:
        A function that listens for the given seconds, and yields each event that it receives.

    Raises:
        UserError: The caller's credentials do not allow it.
    """
    events = aws.client("events")
    bus = aws.outputs["EventBusName"]
    name = f"{bus}-follow-{uuid.uuid4().hex[:8]}"
    try:
        with contextlib.ExitStack() as cleanup:
            url = aws.sqs.create_queue(QueueName=name)["QueueUrl"]
            cleanup.callback(aws.sqs.delete_queue, QueueUrl=url)
            pattern = json.dumps({"source": [SOURCE]})
            rule = events.put_rule(Name=name, EventBusName=bus, EventPattern=pattern)["RuleArn"]
            cleanup.callback(events.delete_rule, Name=name, EventBusName=bus)
            arn = arn_of(aws.sqs, url)
            policy = json.dumps(_policy(arn, rule))
            aws.sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
            events.put_targets(Rule=name, EventBusName=bus, Targets=[{"Id": "queue", "Arn": arn}])
            cleanup.callback(events.remove_targets, Rule=name, EventBusName=bus, Ids=["queue"])
            yield lambda seconds: _receive(aws, url, seconds)
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"AWS does not let you follow events ({error}). If a queue or a rule named {name} remains, delete it"
        ) from error


def _policy(queue: str, rule: str) -> dict[str, Any]:
    """Allow one rule to send to the queue.

    docs.aws.amazon.com/eventbridge/latest/userguide/eb-use-resource-based.html
    """
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


def _receive(aws: Aws, url: str, seconds: float) -> Iterator[Heard]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        messages = aws.sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=_POLL_SECONDS,
            MessageSystemAttributeNames=["SentTimestamp"],
        ).get("Messages", [])
        for message in messages:
            event = json.loads(message["Body"])
            yield Heard(event, _delay(event, int(message["Attributes"]["SentTimestamp"]) / 1000))
        if messages:
            heard: list[Any] = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(messages)
            ]
            aws.sqs.delete_message_batch(QueueUrl=url, Entries=heard)


def _delay(event: dict[str, Any], sent: float) -> float | None:
    try:
        return sent - datetime.fromisoformat(event["detail"]["metadata"]["occurredAt"]).timestamp()
    except (KeyError, ValueError, TypeError):
        return None
