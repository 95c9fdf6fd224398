"""Sends messages, and reads depths of queues and dead letters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

from inventory_orders.invocation.sqs import BYTES_PER_CALL
from operations.aws import Aws
from operations.errors import UserError
from operations.orders_file import OrderMessage

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

STANDARD = "OrderQueueUrl"
FIFO = "OrderQueueFifoUrl"
STOCK = "StockQueueUrl"
CATALOGUE = "CatalogueQueueUrl"
COMMANDS = "OrderCommandQueueUrl"
EXPIRIES = "ExpiryQueueUrl"
QUEUES = (STANDARD, FIFO, STOCK, CATALOGUE, COMMANDS, EXPIRIES)
FIFO_DEAD_LETTERS = "OrderFifoDeadLetterQueueUrl"
DEAD_LETTERS = (
    "OrderDeadLetterQueueUrl",
    FIFO_DEAD_LETTERS,
    "StockDeadLetterQueueUrl",
    "CatalogueDeadLetterQueueUrl",
    "OrderCommandDeadLetterQueueUrl",
    "ExpiryDeadLetterQueueUrl",
)
"""The dead-letter queues, in the order of `QUEUES`."""

UNDELIVERABLE_EVENTS = "UndeliverableEventsQueueUrl"
"""Events that the bus never takes. They are not redriven: `republish` publishes them again from the rows."""


def pairs(aws: Aws) -> list[tuple[str, str]]:
    """List the queues that a stack has, each with its dead-letter queue, as outputs: not every stack has a FIFO queue."""
    return [pair for pair in zip(QUEUES, DEAD_LETTERS, strict=True) if pair[1] in aws.outputs]


def url_of(aws: Aws, queue: str) -> str:
    """Find the URL of a queue.

    Args:
        aws: The stack.
        queue: Name of the stack output that holds it.

    Raises:
        UserError: The stack has no such queue.
    """
    if queue not in aws.outputs:
        raise UserError("the stack has no FIFO queue: `fifoQueue` is false in cdk.json")
    return aws.outputs[queue]


TOO_MANY_DELIVERIES = "TOO_MANY_DELIVERIES"
"""Cause of a dead letter without an `errorCode`: SQS moved it after too many deliveries, not the service."""

POLL_SECONDS = 1
"""How long a request for dead letters waits for one, in seconds. A request that does not wait asks only some of SQS's
servers, so it may miss messages; one that waits asks all of them: docs.aws.amazon.com/AWSSimpleQueueService/latest/
SQSDeveloperGuide/sqs-short-and-long-polling.html"""

_BATCH = 10
_SENDERS = 4
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Depth:
    """How many messages a queue holds.

    Attributes:
        waiting: Those that can be received.
        in_flight: Those that somebody has received and not yet deleted.
        later: Those that were sent for later, such as the end of a hold.
    """

    waiting: int
    in_flight: int
    later: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.waiting + self.in_flight + self.later


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message in a dead-letter queue.

    Attributes:
        original_message_id: Its id in the source queue.
        code: The cause: an `errorCode`, or `TOO_MANY_DELIVERIES`.
        message: The fault to fix, in words.
        body: The message body, unchanged.
    """

    original_message_id: str
    code: str
    message: str
    body: str


def send(
    aws: Aws,
    queue: str,
    messages: Iterable[OrderMessage],
    *,
    rate: float | None = None,
    on_sent: Callable[[int], None] = lambda _: None,
) -> list[str]:
    """Send messages in order. After Ctrl-C it begins no further request.

    Args:
        aws: The stack that the queue belongs to.
        queue: Name of the stack output that holds the queue's URL.
        messages: The messages.
        rate: Messages per second; None for no limit.
        on_sent: Called after each request with the number of messages that it sent.

    Returns:
        The SQS message ids, in order.

    Raises:
        UserError: SQS does not accept a message, or there is no such queue.
    """
    fifo = queue == FIFO
    url = url_of(aws, queue)
    started, stopped = time.monotonic(), Event()

    def deliver(batch: Sequence[OrderMessage]) -> list[str]:
        if stopped.is_set():
            return []
        ids = _send_batch(aws, url, batch, fifo=fifo)
        on_sent(len(batch))
        return ids

    def paced() -> Iterator[Sequence[OrderMessage]]:
        count = 0
        for batch in _batches(messages, fifo=fifo):
            if rate is not None:
                time.sleep(max(0.0, started + count / rate - time.monotonic()))
            count += len(batch)
            yield batch

    # Parallel senders would change the order of the messages, which matters on a FIFO queue.
    if fifo or rate is not None:
        return [message_id for batch in paced() for message_id in deliver(batch)]
    with ThreadPoolExecutor(_SENDERS) as pool:
        try:
            return [message_id for ids in pool.map(deliver, paced()) for message_id in ids]
        except BaseException:
            # The pool's end, and after a second Ctrl-C that of the process, waits for all that was submitted.
            stopped.set()
            raise


def depth(aws: Aws, queue: str) -> Depth:
    """Count the messages of a queue: exact on the embedded AWS, approximate on AWS."""
    return depth_of(aws.sqs, aws.outputs[queue])


def depth_of(sqs: SQSClient, url: str) -> Depth:
    """Count the messages of a queue by its URL."""
    attributes = sqs.get_queue_attributes(
        QueueUrl=url,
        AttributeNames=[
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
            "ApproximateNumberOfMessagesDelayed",
        ],
    )["Attributes"]
    return Depth(
        int(attributes["ApproximateNumberOfMessages"]),
        int(attributes["ApproximateNumberOfMessagesNotVisible"]),
        int(attributes["ApproximateNumberOfMessagesDelayed"]),
    )


def dead_letters(aws: Aws, limit: int) -> list[DeadLetter]:
    """Read the dead letters of all queues, at most `limit` of each, and leave them there.

    The queues are read side by side, so that empty ones take no longer than one.
    """

    def peek(queue: str) -> list[DeadLetter]:
        return peek_dead_letters(aws.sqs, aws.outputs[queue], limit, POLL_SECONDS)

    names = [name for _, name in pairs(aws)]
    with ThreadPoolExecutor(len(names)) as pool:
        return [found for of_queue in pool.map(peek, names) for found in of_queue]


def peek_dead_letters(
    sqs: SQSClient, url: str, limit: int, poll_seconds: int = 0
) -> list[DeadLetter]:
    """Read dead letters and leave them in the queue. They are hidden while this runs, then visible again.

    SQS shows at most ten messages of a FIFO group at a time.

    Args:
        sqs: A client.
        url: The queue's URL.
        limit: Most messages to read.
        poll_seconds: `POLL_SECONDS` on AWS; an SQS in memory has no second server to ask.
    """
    seen: list[Mapping[str, Any]] = []
    while len(seen) < limit:
        messages = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=_BATCH,
            MessageAttributeNames=["All"],
            VisibilityTimeout=60,
            WaitTimeSeconds=poll_seconds,
        ).get("Messages", [])
        if not messages:
            break
        seen += messages
    for start in range(0, len(seen), _BATCH):
        sqs.change_message_visibility_batch(
            QueueUrl=url,
            Entries=[
                {
                    "Id": str(index),
                    "ReceiptHandle": message["ReceiptHandle"],
                    "VisibilityTimeout": 0,
                }
                for index, message in enumerate(seen[start : start + _BATCH])
            ],
        )
    return [read_dead_letter(message) for message in seen]


def read_dead_letter(message: Mapping[str, Any]) -> DeadLetter:
    """Make a dead letter from one message of a ReceiveMessage response, which must include all message attributes."""
    attributes = {
        name: value.get("StringValue", "")
        for name, value in message.get("MessageAttributes", {}).items()
    }
    return DeadLetter(
        # A message that SQS moved by itself keeps its id, and has no cause among its attributes.
        attributes.get("originalMessageId", message["MessageId"]),
        attributes.get("errorCode", TOO_MANY_DELIVERIES),
        attributes.get("errorMessage", "it was delivered too often without success"),
        message["Body"],
    )


def _batches(messages: Iterable[OrderMessage], *, fifo: bool) -> Iterator[Sequence[OrderMessage]]:
    """Messages for one call each, as many as it takes, but one of a group: its second could be accepted without its first.

    docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html
    """
    batch: list[OrderMessage] = []
    groups: set[str] = set()
    size = 0
    for message in messages:
        more = len(message.body.encode("utf-8", "surrogatepass"))
        is_full = len(batch) == _BATCH or size + more > BYTES_PER_CALL
        if batch and (is_full or (fifo and message.group in groups)):
            yield batch
            batch, groups, size = [], set(), 0
        batch.append(message)
        size += more
        if fifo:
            groups.add(message.group)
    if batch:
        yield batch


def _send_batch(aws: Aws, url: str, batch: Sequence[OrderMessage], *, fifo: bool) -> list[str]:
    ids: dict[int, str] = {}
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(0.1 * 2**attempt)
        entries: list[SendMessageBatchRequestEntryTypeDef] = []
        for index, message in enumerate(batch):
            if index not in ids:
                entry: SendMessageBatchRequestEntryTypeDef = {
                    "Id": str(index),
                    "MessageBody": message.body,
                }
                if fifo:
                    entry["MessageGroupId"] = message.group
                entries.append(entry)
        answer = aws.sqs.send_message_batch(QueueUrl=url, Entries=entries)
        ids |= {int(entry["Id"]): entry["MessageId"] for entry in answer.get("Successful", [])}
        if len(ids) == len(batch):
            return [ids[index] for index in range(len(batch))]
        invalid = next((entry for entry in answer["Failed"] if entry["SenderFault"]), None)
        if invalid is not None:
            body = batch[int(invalid["Id"])].body
            reason = invalid.get("Message", "")
            raise UserError(f"SQS does not accept a message ({reason}): {body[:200]}")
    raise UserError("SQS did not accept all messages; it may be overloaded, so try again later")
