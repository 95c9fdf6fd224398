"""Redrives dead letters that may succeed now: sends them back to their queues."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any

from operations import queues
from operations.codes import DEAD_LETTERS
from operations.queues import DeadLetter, pairs, read_dead_letter

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from operations.aws import Aws

MAY_SUCCEED_NOW = frozenset(code for code, cause in DEAD_LETTERS.items() if cause.may_succeed_now)
"""Causes outside the message, which may have been repaired since. All other causes lie in the message itself."""

CAUSES = frozenset(DEAD_LETTERS)
"""All causes that a dead letter may have."""

SEEN_IN_A_GROUP = 10
"""SQS delivers at most ten messages of a FIFO group, and no more until those are deleted or visible again."""

# If this process is killed, its messages become visible again after this time.
_HIDDEN_SECONDS = 120
_BATCH = 10
_OURS = frozenset({"errorCode", "errorMessage", "originalMessageId", "originalSentTimestamp"})


class Decision(Enum):
    """A decision about a dead letter. Its value completes a sentence that begins with the message."""

    SEND_BACK = "goes back"
    STAY = "stays"
    COPY = "is a copy of one that goes back, and is deleted"
    CAME_BACK = "came straight back, and stays"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of a dead letter.

    Attributes:
        message_id: Its id in the dead-letter queue.
        receipt_handle: Identifies this delivery.
        content: The message, and the cause of its dead-lettering.
        group: `MessageGroupId`; None on a standard queue.
        attributes: All message attributes.
    """

    message_id: str
    receipt_handle: str
    content: DeadLetter
    group: str | None
    attributes: Mapping[str, Any]

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Delivery:
        """Make a delivery from one message of a ReceiveMessage response."""
        return cls(
            message["MessageId"],
            message["ReceiptHandle"],
            read_dead_letter(message),
            message.get("Attributes", {}).get("MessageGroupId"),
            message.get("MessageAttributes", {}),
        )

    @property
    def original_attributes(self) -> dict[str, Any]:
        """The sender's attributes, without the cause: a later dead-lettering adds its own."""
        return {name: value for name, value in self.attributes.items() if name not in _OURS}


class Selection:
    """Decides about each dead letter of one run.

    Args:
        causes: The causes to send back.
    """

    def __init__(self, causes: frozenset[str]) -> None:
        self._causes = causes
        self._going_back: set[tuple[str, str]] = set()
        self._sent: set[str] = set()

    def decide(self, dead_letter: DeadLetter) -> Decision:
        """Decide about a dead letter. Call this once for each of them."""
        if dead_letter.original_message_id in self._sent:
            # A message that comes back at once could otherwise be sent again for ever.
            return Decision.CAME_BACK
        identity = (dead_letter.original_message_id, dead_letter.body)
        if identity in self._going_back:
            return Decision.COPY
        if dead_letter.code not in self._causes:
            return Decision.STAY
        self._going_back.add(identity)
        return Decision.SEND_BACK

    def sent(self, message_id: str) -> None:
        """Remember the new id of a message that was sent back."""
        self._sent.add(message_id)


@dataclass(slots=True)
class Group:
    """The dead letters of one cause.

    Attributes:
        code: The cause.
        example: The `errorMessage` of one of them.
        decisions: How many dead letters got each decision.
    """

    code: str
    example: str
    decisions: Counter[Decision] = field(default_factory=Counter)


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
        """Count a dead letter."""
        code = dead_letter.code
        group = self.groups.setdefault(code, Group(code, dead_letter.message))
        group.decisions[decision] += 1

    def count(self, *decisions: Decision) -> int:
        """Count the dead letters that got one of these decisions."""
        return sum(group.decisions[d] for group in self.groups.values() for d in decisions)


def look(sqs: SQSClient, url: str, causes: frozenset[str]) -> Findings:
    """Find out the decisions of `redrive`, without sending or deleting.

    Messages are hidden while this reads them, and visible again afterwards.
    """
    selection, findings = Selection(causes), Findings()
    with _Reader(sqs, url) as reader:
        deliveries = list(reader.deliveries())
    for delivery in deliveries:
        findings.add(delivery.content, selection.decide(delivery.content))
    findings.crowded = _crowded(url, deliveries)
    return findings


def _crowded(url: str, deliveries: Iterable[Delivery]) -> frozenset[str]:
    if not url.endswith(".fifo"):
        return frozenset()
    in_group = Counter(delivery.group for delivery in deliveries if delivery.group is not None)
    return frozenset(g for g, seen in in_group.items() if seen >= SEEN_IN_A_GROUP)


def redrive(
    sqs: SQSClient,
    url: str,
    source_url: str,
    causes: frozenset[str],
    *,
    rate: float,
    on_progress: Callable[[Findings], None] = lambda _: None,
) -> Findings:
    """Send the dead letters of some causes back to the queue that they came from.

    Each message is sent again before it is deleted, so a redrive can be interrupted and run again. A message that is
    sent twice takes effect once: the service recognises it by its orderId, its adjustmentId or the time of its event.
    A FIFO queue also drops the second copy for five minutes. The deduplication id contains the id of the dead letter,
    so a message that is dead-lettered again later is not taken for a copy.

    A FIFO queue delivers nothing of a group while messages of that group are hidden. So a message that stays is moved
    to the end of its dead-letter queue; otherwise it would block those behind it.

    Args:
        sqs: A client.
        url: URL of the dead-letter queue.
        source_url: URL of the queue that it belongs to.
        causes: The causes to send back.
        rate: Most messages to send per second.
        on_progress: Called after each dead letter with the findings so far.
    """
    selection, findings = Selection(causes), Findings()
    fifo = url.endswith(".fifo")
    began, sent = time.monotonic(), 0
    with _Reader(sqs, url) as reader:
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


def read_some(aws: Aws, limit: int) -> tuple[dict[str, list[Delivery]], bool]:
    """Read dead letters of all queues, and leave them there. They are hidden meanwhile.

    Args:
        aws: The stack.
        limit: Most dead letters to read of each queue.

    Returns:
        Those of each queue, and whether these are certainly all.
    """

    def read(queue: str) -> list[Delivery]:
        with _Reader(aws.sqs, aws.outputs[queue]) as reader:
            return list(islice(reader.deliveries(), limit))

    names = [name for _, name in pairs(aws)]
    # Side by side, so that empty queues take no longer than one.
    with ThreadPoolExecutor(len(names)) as pool:
        found = dict(zip(names, pool.map(read, names), strict=True))
    return found, not any(
        len(some) >= limit or _crowded(aws.outputs[name], some) for name, some in found.items()
    )


def settle(sqs: SQSClient, url: str, message_id: str, source_url: str | None) -> bool:
    """Send one dead letter back, or delete it.

    Args:
        sqs: A client.
        url: URL of the dead-letter queue.
        message_id: Its id in that queue.
        source_url: URL of the queue to send it to; None only deletes it.

    Returns:
        Whether it was in the queue.
    """
    with _Reader(sqs, url) as reader:
        for delivery in reader.deliveries():
            if delivery.message_id == message_id:
                if source_url is not None:
                    _send(sqs, source_url, delivery, delivery.original_attributes)
                reader.delete(delivery)
                return True
    return False


def _send(sqs: SQSClient, url: str, delivery: Delivery, attributes: Mapping[str, Any]) -> str:
    """Send the same body to a queue. Returns the new message id."""
    request: dict[str, Any] = {
        "QueueUrl": url,
        "MessageBody": delivery.content.body,
        "MessageAttributes": attributes,
    }
    if delivery.group is not None:
        request["MessageGroupId"] = delivery.group
    if url.endswith(".fifo"):
        request["MessageDeduplicationId"] = f"redrive-{delivery.message_id}"
    return sqs.send_message(**request)["MessageId"]


class _Reader:
    """Reads a dead-letter queue once. At the end, messages that were not deleted become visible again."""

    def __init__(self, sqs: SQSClient, url: str) -> None:
        self._sqs = sqs
        self._url = url
        self._hidden: dict[str, str] = {}
        self._known: set[str] = set()
        self._deleted: set[str] = set()

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        handles = list(self._hidden.values())
        for start in range(0, len(handles), _BATCH):
            self._sqs.change_message_visibility_batch(
                QueueUrl=self._url,
                Entries=[
                    {"Id": str(index), "ReceiptHandle": handle, "VisibilityTimeout": 0}
                    for index, handle in enumerate(handles[start : start + _BATCH])
                ],
            )

    def deliveries(self) -> Iterator[Delivery]:
        """Yield each dead letter once, until the queue is empty or a whole round finds no other one."""
        known_in_a_row = 0
        while known_in_a_row <= len(self._known):
            batch = self._receive()
            if not batch:
                return
            for delivery in batch:
                if delivery.message_id not in self._known:
                    self._known.add(delivery.message_id)
                    known_in_a_row = 0
                    yield delivery
                    continue
                known_in_a_row += 1
                if delivery.message_id in self._deleted:
                    # SQS may deliver a deleted message again.
                    self.delete(delivery)

    def expect(self, message_id: str) -> None:
        """Skip a message that this run itself has put into the queue."""
        self._known.add(message_id)

    def delete(self, delivery: Delivery) -> None:
        """Delete a dead letter from the queue."""
        self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=delivery.receipt_handle)
        self._deleted.add(delivery.message_id)
        self._hidden.pop(delivery.message_id, None)

    def _receive(self) -> Sequence[Delivery]:
        answer = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=_BATCH,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["MessageGroupId"],
            VisibilityTimeout=_HIDDEN_SECONDS,
            WaitTimeSeconds=queues.POLL_SECONDS,
        )
        batch = [Delivery.of(message) for message in answer.get("Messages", [])]
        self._hidden |= {delivery.message_id: delivery.receipt_handle for delivery in batch}
        return batch
