"""Redrives dead letters that may succeed now: sends them back to their queues."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from .codes import DEAD_LETTERS, Redrive
from .dead_letters import DeadLetter, DeadLetterReader, Delivery, crowded_groups
from .errors import LostAnswerError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

MAY_SUCCEED_NOW = frozenset(
    code for code, cause in DEAD_LETTERS.items() if cause.redrive is Redrive.ALWAYS
)
"""Causes outside the message, which may have been fixed since."""

CAUSES = frozenset(DEAD_LETTERS)
"""All causes that a dead letter may have."""


class Decision(Enum):
    """A decision about a dead letter. Its value completes a sentence whose subject is the message."""

    SEND_BACK = "goes back"
    STAY = "stays"
    COPY = "is a copy of one that goes back, and is deleted"
    CAME_BACK = "came straight back, and stays"


class Selection:
    """Decides what happens to each dead letter of one run."""

    def __init__(self, causes: frozenset[str]) -> None:
        self._causes = causes
        self._going_back: set[tuple[str, str]] = set()
        self._sent: set[str] = set()

    def decide(self, dead_letter: DeadLetter) -> Decision:
        """Decide what to do with a dead letter. Call this once for each dead letter."""
        if dead_letter.original_message_id in self._sent:
            # A message that comes back immediately could otherwise be sent again endlessly.
            return Decision.CAME_BACK
        identity = (dead_letter.original_message_id, dead_letter.body)
        if identity in self._going_back:
            return Decision.COPY
        if dead_letter.code not in self._causes:
            return Decision.STAY
        self._going_back.add(identity)
        return Decision.SEND_BACK

    def sent(self, message_id: str) -> None:
        """Record the new id of a message that was sent back."""
        self._sent.add(message_id)


@dataclass(slots=True)
class Group:
    """The dead letters with one cause.

    Attributes:
        code: The cause.
        example: The `errorMessage` of one of them.
        decisions: The number of dead letters with each decision.
        order_ids: The orders that they are about, by decision.
    """

    code: str
    example: str
    decisions: Counter[Decision] = field(default_factory=Counter)
    order_ids: dict[Decision, dict[str, None]] = field(default_factory=dict)


@dataclass(slots=True)
class Findings:
    """The dead letters of one queue, by cause.

    Attributes:
        groups: Its groups of dead letters, by cause.
        crowded: FIFO groups that may hold more dead letters than were read, because SQS shows ten at a time.
    """

    groups: dict[str, Group] = field(default_factory=dict)
    crowded: frozenset[str] = frozenset()

    def add(self, dead_letter: DeadLetter, decision: Decision) -> None:
        """Count a dead letter by cause and decision."""
        code = dead_letter.code
        group = self.groups.setdefault(code, Group(code, dead_letter.message))
        group.decisions[decision] += 1
        group.order_ids.setdefault(decision, {}).update(dict.fromkeys(dead_letter.order_ids))

    def count(self, *decisions: Decision) -> int:
        """Return the number of dead letters with one of these decisions."""
        return sum(group.decisions[d] for group in self.groups.values() for d in decisions)


def preview(sqs: SQSClient, url: str, causes: frozenset[str]) -> Findings:
    """Find out what `redrive` would do with each message, without sending or deleting anything.

    Messages are hidden during the read, and visible again afterwards.
    """
    selection, findings = Selection(causes), Findings()
    with DeadLetterReader(sqs, url) as reader:
        deliveries = list(reader.deliveries())
    for delivery in deliveries:
        findings.add(delivery.content, selection.decide(delivery.content))
    findings.crowded = crowded_groups(url, deliveries)
    return findings


def redrive(
    sqs: SQSClient,
    url: str,
    source_url: str,
    causes: frozenset[str],
    *,
    rate: float,
    on_progress: Callable[[Findings], None] = lambda _: None,
) -> Findings:
    """Send the dead letters with some causes back to the queue that they came from.

    Each message is sent again before it is deleted, so a redrive can be interrupted and run again. A message that is
    sent twice takes effect once: the service recognises it by its orderId, its adjustmentId or the time of its event. A
    FIFO queue also drops the second copy for five minutes. The deduplication id contains the id of the dead letter, so
    that a message that is dead-lettered again later does not count as a copy.

    A FIFO queue delivers nothing from a group while messages of that group are hidden. So a message that stays is moved
    to the end of its dead-letter queue; otherwise it would block the messages behind it.

    Args:
        sqs: A client.
        url: URL of the dead-letter queue.
        source_url: URL of the queue that it belongs to.
        causes: The causes to send back.
        rate: Maximum messages to send per second.
        on_progress: Called after each dead letter with the findings so far.
    """
    selection, findings = Selection(causes), Findings()
    fifo = url.endswith(".fifo")
    began, sent = time.monotonic(), 0
    with DeadLetterReader(sqs, url) as reader:
        for delivery in reader.deliveries():
            decision = selection.decide(delivery.content)
            if decision is Decision.SEND_BACK:
                time.sleep(max(0.0, began + sent / rate - time.monotonic()))
                selection.sent(_send(sqs, source_url, delivery, delivery.original_attributes))
                sent += 1
                reader.delete(delivery)
            elif decision is Decision.COPY:
                reader.delete(delivery)
            elif fifo:
                reader.expect(_send(sqs, url, delivery, delivery.attributes))
                reader.delete(delivery)
            findings.add(delivery.content, decision)
            on_progress(findings)
    return findings


def settle(
    sqs: SQSClient, url: str, message_id: str, source_url: str | None, body: str | None = None
) -> str | None:
    """Send a dead letter back to its source or, without a source, delete it.

    Args:
        sqs: A client.
        url: URL of the dead-letter queue.
        message_id: The dead letter's id in that queue.
        source_url: URL of the queue that it belongs to.
        body: A corrected body to send; None sends it unchanged.

    Returns:
        Its new message id in the source queue, "" if it was deleted, or None if it was not in the dead-letter queue.

    Raises:
        LostAnswerError: It was sent back, but may still be in the dead-letter queue.
    """
    with DeadLetterReader(sqs, url) as reader:
        for delivery in reader.deliveries():
            if delivery.message_id != message_id:
                continue
            if source_url is None:
                reader.delete(delivery)
                return ""
            sent = _send(sqs, source_url, delivery, delivery.original_attributes, body)
            try:
                reader.delete(delivery)
            except (BotoCoreError, ClientError) as error:
                raise LostAnswerError(
                    f"SQS accepted the message, but did not delete the dead letter: {error}"
                ) from error
            return sent
    return None


def _send(
    sqs: SQSClient,
    url: str,
    delivery: Delivery,
    attributes: Mapping[str, Any],
    body: str | None = None,
) -> str:
    """Send a message, or a corrected body, to a queue, and return the new message id."""
    request: dict[str, Any] = {
        "QueueUrl": url,
        "MessageBody": delivery.content.body if body is None else body,
        "MessageAttributes": attributes,
    }
    if delivery.group is not None:
        request["MessageGroupId"] = delivery.group
    if url.endswith(".fifo"):
        # Otherwise SQS would drop a corrected message as a copy of one that was sent unchanged in the last five
        # minutes.
        edition = "" if body is None else f"-{sha256(body.encode()).hexdigest()[:16]}"
        request["MessageDeduplicationId"] = f"redrive-{delivery.message_id}{edition}"
    return sqs.send_message(**request)["MessageId"]
