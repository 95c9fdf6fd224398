"""Sends dead letters back to the queues that they came from: those that may succeed now, and no others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from operations.queues import TOO_MANY_DELIVERIES, DeadLetter, read_dead_letter

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

MAY_SUCCEED_NOW = frozenset({TOO_MANY_DELIVERIES, "UNKNOWN_PRODUCT", "BELOW_FLOOR"})
"""Causes that lie in the state of the world, which may have been repaired since. All others lie in the message."""

SEEN_IN_A_GROUP = 10
"""SQS hands over no more messages of a FIFO group while some of it are in flight, and at most ten at once."""

# Back by itself after this, should the program be killed; else it is made visible at the end.
_HIDDEN_SECONDS = 120
# Long polling asks all of SQS's servers, so that an empty answer means an empty queue.
_POLL_SECONDS = 1
_BATCH = 10
_OURS = frozenset({"errorCode", "errorMessage", "originalMessageId"})


class Decision(Enum):
    """What becomes of a dead letter."""

    SEND_BACK = "goes back"
    STAY = "stays"
    COPY = "is a copy of one that goes back, and is deleted"
    CAME_BACK = "came straight back, and stays"


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter as it was received.

    Attributes:
        message_id: What SQS calls it in the dead-letter queue.
        receipt_handle: Names this delivery of it.
        content: The message, and why it was put aside.
        group: `MessageGroupId`, where it has one.
        attributes: All message attributes.
    """

    message_id: str
    receipt_handle: str
    content: DeadLetter
    group: str | None
    attributes: Mapping[str, Any]

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Letter:
        """From an entry of ReceiveMessage's answer."""
        return cls(
            message["MessageId"],
            message["ReceiptHandle"],
            read_dead_letter(message),
            message.get("Attributes", {}).get("MessageGroupId"),
            message.get("MessageAttributes", {}),
        )

    @property
    def senders_attributes(self) -> dict[str, Any]:
        """The attributes without ours, so that a second dead-lettering does not show the cause of the first."""
        return {name: value for name, value in self.attributes.items() if name not in _OURS}


class Selection:
    """Decides about the dead letters of one run, one after the other.

    Args:
        causes: Which causes go back.
    """

    def __init__(self, causes: frozenset[str]) -> None:
        self._causes = causes
        self._going_back: set[tuple[str, str]] = set()
        self._sent: set[str] = set()

    def decide(self, letter: DeadLetter) -> Decision:
        """Decide about the next letter. It has not been decided about before."""
        if letter.original_message_id in self._sent:
            # Sent once more in this run, it would come back once more, for ever.
            return Decision.CAME_BACK
        identity = (letter.original_message_id, letter.body)
        if identity in self._going_back:
            return Decision.COPY
        if letter.code not in self._causes:
            return Decision.STAY
        self._going_back.add(identity)
        return Decision.SEND_BACK

    def sent(self, message_id: str) -> None:
        """Take note of the id under which SQS took a letter that went back."""
        self._sent.add(message_id)


@dataclass(slots=True)
class Group:
    """The dead letters of one cause.

    Attributes:
        code: The cause.
        example: The `errorMessage` of one of them.
        decisions: How many of them end how.
    """

    code: str
    example: str
    decisions: Counter[Decision] = field(default_factory=Counter)


@dataclass(slots=True)
class Findings:
    """The dead letters of one queue, by cause.

    Attributes:
        groups: By cause.
        crowded: FIFO groups of which as many letters were seen as SQS shows at once: more may stand behind them.
    """

    groups: dict[str, Group] = field(default_factory=dict)
    crowded: frozenset[str] = frozenset()

    def add(self, letter: DeadLetter, decision: Decision) -> None:
        """Count a letter."""
        group = self.groups.setdefault(letter.code, Group(letter.code, letter.message))
        group.decisions[decision] += 1

    def count(self, *decisions: Decision) -> int:
        """Letters that ended so."""
        return sum(group.decisions[d] for group in self.groups.values() for d in decisions)


def look(sqs: SQSClient, url: str, causes: frozenset[str]) -> Findings:
    """Find out what `redrive` would do, and change nothing.

    The letters are hidden while this reads, and visible again afterwards.
    """
    selection, findings = Selection(causes), Findings()
    in_group: Counter[str] = Counter()
    with _Reader(sqs, url) as reader:
        for letter in reader.letters():
            findings.add(letter.content, selection.decide(letter.content))
            if letter.group is not None:
                in_group[letter.group] += 1
    if url.endswith(".fifo"):
        findings.crowded = frozenset(g for g, seen in in_group.items() if seen >= SEEN_IN_A_GROUP)
    return findings


def redrive(
    sqs: SQSClient,
    url: str,
    source_url: str,
    causes: frozenset[str],
    *,
    rate: float,
    told: Callable[[Findings], None] = lambda _: None,
) -> Findings:
    """Send the dead letters of some causes back to where they came from.

    Each is sent first and deleted then. Interrupted in between, it is in both queues; sent again, it is recognised
    by its orderId or adjustmentId, or by the time of its event. A FIFO queue drops the repetition itself for five
    minutes, because its deduplication id is made of the letter's own id, which no later dead-lettering has again.

    From a FIFO queue the letters of a group come in order, and none while others of it are hidden. What stays is
    therefore put to the back of the dead-letter queue, as it would stand in the way of what is behind it.

    Args:
        sqs: A client.
        url: Of the dead-letter queue.
        source_url: Of the queue that it belongs to.
        causes: Which causes go back.
        rate: Letters a second at the most.
        told: Told after each letter what has happened so far.
    """
    selection, findings = Selection(causes), Findings()
    fifo = url.endswith(".fifo")
    began, sent = time.monotonic(), 0
    with _Reader(sqs, url) as reader:
        for letter in reader.letters():
            decision = selection.decide(letter.content)
            if decision is Decision.SEND_BACK:
                time.sleep(max(0.0, began + sent / rate - time.monotonic()))
                selection.sent(_send(sqs, source_url, letter, letter.senders_attributes))
                sent += 1
                reader.delete(letter)
            elif decision is Decision.COPY:
                reader.delete(letter)
            elif fifo:
                reader.expect(_send(sqs, url, letter, letter.attributes))
                reader.delete(letter)
            findings.add(letter.content, decision)
            told(findings)
    return findings


def _send(sqs: SQSClient, url: str, letter: Letter, attributes: Mapping[str, Any]) -> str:
    """Send a letter on, unchanged. Returns the id under which SQS took it."""
    request: dict[str, Any] = {
        "QueueUrl": url,
        "MessageBody": letter.content.body,
        "MessageAttributes": attributes,
    }
    if letter.group is not None:
        request["MessageGroupId"] = letter.group
    if url.endswith(".fifo"):
        request["MessageDeduplicationId"] = f"redrive-{letter.message_id}"
    return sqs.send_message(**request)["MessageId"]


class _Reader:
    """Reads a dead-letter queue once through, and makes visible again at the end what was not deleted."""

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

    def letters(self) -> Iterator[Letter]:
        """Each letter once, until the queue is empty or a whole round has brought nothing new."""
        known_in_a_row = 0
        while known_in_a_row <= len(self._known):
            batch = self._receive()
            if not batch:
                return
            for letter in batch:
                if letter.message_id not in self._known:
                    self._known.add(letter.message_id)
                    known_in_a_row = 0
                    yield letter
                    continue
                known_in_a_row += 1
                if letter.message_id in self._deleted:
                    # SQS delivers at least once: rarely, also what was deleted.
                    self.delete(letter)

    def expect(self, message_id: str) -> None:
        """Take a message for known that this run itself has put into the queue."""
        self._known.add(message_id)

    def delete(self, letter: Letter) -> None:
        """Delete a letter for good."""
        self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=letter.receipt_handle)
        self._deleted.add(letter.message_id)
        self._hidden.pop(letter.message_id, None)

    def _receive(self) -> Sequence[Letter]:
        answer = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=_BATCH,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["MessageGroupId"],
            VisibilityTimeout=_HIDDEN_SECONDS,
            WaitTimeSeconds=_POLL_SECONDS,
        )
        letters = [Letter.of(message) for message in answer.get("Messages", [])]
        self._hidden |= {letter.message_id: letter.receipt_handle for letter in letters}
        return letters
