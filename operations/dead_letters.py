"""Reads dead-letter queues, where messages that a reader does not delete become visible again."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from .queues import depth, pairs

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from .aws import Aws

TOO_MANY_DELIVERIES = "TOO_MANY_DELIVERIES"
"""The cause of a dead letter without an `errorCode`: SQS, not the service, moved it after too many deliveries."""

SEEN_IN_A_GROUP = 10
"""SQS delivers at most ten messages of a FIFO group until these are deleted or visible again."""

POLL_SECONDS = 1
"""The time that a request for dead letters waits, in seconds.

A request that does not wait asks only some of SQS's servers, so it may miss messages; a request that waits asks all of
them: docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html
"""

# If this process is killed, its messages become visible again after this time.
_HIDDEN_SECONDS = 120
_BATCH = 10
# As JSON or nearly so, however deep: in an object that cannot be parsed, too, and with an id that is a number.
_ORDER_ID = re.compile(
    r"""["']orderId["']\s*:\s*(?:"([^"\\]*(?:\\.[^"\\]*)*)"|'([^']*)'|(-?\d+))"""
)
_OURS = frozenset({"errorCode", "errorMessage", "originalMessageId", "originalSentTimestamp"})


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message in a dead-letter queue.

    Attributes:
        original_message_id: Its id in the source queue.
        code: The cause: an `errorCode`, or `TOO_MANY_DELIVERIES`.
        message: What was wrong.
        body: The message body, unchanged.
    """

    original_message_id: str
    code: str
    message: str
    body: str

    @property
    def order_ids(self) -> list[str]:
        """The values of `orderId` in the body, which may be invalid JSON, or JSON within a string of JSON."""
        found = _ORDER_ID.findall(self.body) or _ORDER_ID.findall(self.body.replace('\\"', '"'))
        return [*dict.fromkeys(_unescaped(text) or other or bare for text, other, bare in found)]


def is_about(letter: DeadLetter, text: str) -> bool:
    """Whether a dead letter is about an order: by its `orderId`, or else by the id anywhere in its body."""
    ids = letter.order_ids
    word = rf"(?<![\w-]){re.escape(text)}(?![\w-])"
    return text in ids or (not ids and re.search(word, letter.body) is not None)


def _unescaped(text: str) -> str:
    """Replace the escapes in a string of JSON; if one is invalid, return it unchanged."""
    with suppress(ValueError):
        return str(json.loads(f'"{text}"'))
    return text


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of a dead letter.

    Attributes:
        message_id: Its id in the dead-letter queue.
        receipt_handle: Identifies this delivery.
        sent_at: The time at which it entered the dead-letter queue, in Unix milliseconds.
        content: The message, and why it was dead-lettered.
        group: `MessageGroupId`; None if it has none.
        attributes: All message attributes.
    """

    message_id: str
    receipt_handle: str
    sent_at: int
    content: DeadLetter
    group: str | None
    attributes: Mapping[str, Any]

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Delivery:
        """Create a delivery from one message of a ReceiveMessage response."""
        system, attributes = message.get("Attributes", {}), message.get("MessageAttributes", {})
        texts = {name: value.get("StringValue", "") for name, value in attributes.items()}
        content = DeadLetter(
            # A message that SQS itself moved keeps its id, and its attributes name no cause.
            texts.get("originalMessageId", message["MessageId"]),
            texts.get("errorCode", TOO_MANY_DELIVERIES),
            texts.get("errorMessage", "it was delivered too often without success"),
            message["Body"],
        )
        return cls(
            message["MessageId"],
            message["ReceiptHandle"],
            int(system.get("SentTimestamp", 0)),
            content,
            system.get("MessageGroupId"),
            attributes,
        )

    @property
    def original_attributes(self) -> dict[str, Any]:
        """The sender's attributes, without the cause, because a later dead-lettering adds its own."""
        return {name: value for name, value in self.attributes.items() if name not in _OURS}


class DeadLetterReader:
    """Reads a dead-letter queue once, as a context manager. On exit, the messages that it hid become visible again.

    Args:
        sqs: A client.
        url: The queue's URL.
        poll_seconds: How long a request waits for a message; by default `POLL_SECONDS`. For an in-memory SQS, 0
            is enough.
    """

    def __init__(self, sqs: SQSClient, url: str, poll_seconds: int | None = None) -> None:
        self._sqs = sqs
        self._url = url
        self._poll_seconds = POLL_SECONDS if poll_seconds is None else poll_seconds
        self._hidden: dict[str, str] = {}
        self._known: set[str] = set()
        self._deleted: set[str] = set()

    def __enter__(self) -> DeadLetterReader:
        return self

    def __exit__(self, *_: object) -> None:
        handles = list(self._hidden.values())
        for start in range(0, len(handles), _BATCH):
            # Messages that this call does not reach become visible by themselves.
            with suppress(BotoCoreError, ClientError):
                self._sqs.change_message_visibility_batch(
                    QueueUrl=self._url,
                    Entries=[
                        {"Id": str(index), "ReceiptHandle": handle, "VisibilityTimeout": 0}
                        for index, handle in enumerate(handles[start : start + _BATCH])
                    ],
                )

    def deliveries(self) -> Iterator[Delivery]:
        """Yield each dead letter once, until the queue is empty or a whole round finds no new one."""
        known_in_a_row = 0
        while known_in_a_row <= len(self._known):
            batch = self.receive()
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

    def receive(self) -> list[Delivery]:
        """Receive up to ten dead letters; none if the queue is empty. Some may have been received before."""
        answer = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=_BATCH,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["MessageGroupId", "SentTimestamp"],
            VisibilityTimeout=_HIDDEN_SECONDS,
            WaitTimeSeconds=self._poll_seconds,
        )
        batch = [Delivery.of(message) for message in answer.get("Messages", [])]
        self._hidden |= {delivery.message_id: delivery.receipt_handle for delivery in batch}
        return batch

    def expect(self, message_id: str) -> None:
        """Skip a message that the caller itself put into the queue."""
        self._known.add(message_id)

    def delete(self, delivery: Delivery) -> None:
        """Delete a dead letter from the queue."""
        self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=delivery.receipt_handle)
        self._deleted.add(delivery.message_id)
        self._hidden.pop(delivery.message_id, None)


def peek_dead_letters(
    sqs: SQSClient, url: str, limit: int, poll_seconds: int = 0
) -> list[DeadLetter]:
    """Read the first dead letters of a queue without deleting them. SQS shows at most ten messages of a FIFO group."""
    with DeadLetterReader(sqs, url, poll_seconds) as reader:
        return [delivery.content for delivery in islice(reader.deliveries(), limit)]


def read_dead_letters(aws: Aws, limit: int) -> tuple[dict[str, list[Delivery]], dict[str, str]]:
    """Read dead letters of all queues without deleting them. They are hidden during the read.

    Args:
        aws: The stack.
        limit: Maximum dead letters to read from each queue.

    Returns:
        The dead letters by queue; and, by queue, the reason why it may hold more: `LIMIT`, a crowded `GROUP`, or
            another `READER`.
    """

    def read(queue: str) -> list[Delivery]:
        with DeadLetterReader(aws.sqs, aws.outputs[queue]) as reader:
            return list(islice(reader.deliveries(), limit))

    names = [name for _, name in pairs(aws)]
    # The queues are read in parallel, so that empty ones take no longer than one.
    with ThreadPoolExecutor(len(names)) as pool:
        found = dict(zip(names, pool.map(read, names), strict=True))
    return found, {
        name: why for name, some in found.items() if (why := _why_more(aws, name, some, limit))
    }


def dead_letters_of(aws: Aws, order_id: str, limit: int) -> tuple[list[str], bool]:
    """Describe the dead letters of an order, and say whether all dead letters were read, at most `limit` from each queue."""
    by_queue, more = read_dead_letters(aws, limit)
    sources = {letters: source.removesuffix("Url") for source, letters in pairs(aws)}
    found = [
        f"{delivery.content.code} in {sources[queue]} ({delivery.content.message})"
        for queue, some in by_queue.items()
        for delivery in some
        if is_about(delivery.content, order_id)
    ]
    return found, not more


def _why_more(aws: Aws, queue: str, found: Sequence[Delivery], limit: int) -> str:
    if len(found) >= limit:
        return "LIMIT"
    if crowded_groups(aws.outputs[queue], found):
        return "GROUP"
    return "READER" if depth(aws, queue).total > len(found) else ""


def crowded_groups(url: str, deliveries: Iterable[Delivery]) -> frozenset[str]:
    """Find the FIFO groups that may hold more dead letters than were read."""
    if not url.endswith(".fifo"):
        return frozenset()
    in_group = Counter(delivery.group for delivery in deliveries if delivery.group is not None)
    return frozenset(group for group, seen in in_group.items() if seen >= SEEN_IN_A_GROUP)
