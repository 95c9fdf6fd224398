"""Sends and counts messages in a stack's queues."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from inventory_orders.invocation.sqs import BYTES_PER_CALL

from .aws import Aws
from .errors import UserError
from .orders_file import OrderMessage

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.literals import QueueAttributeNameType
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

STANDARD = "OrderQueueUrl"
FIFO = "OrderQueueFifoUrl"
EXPRESS = "OrderQueueExpressUrl"
STOCK = "StockQueueUrl"
CATALOGUE = "CatalogueQueueUrl"
COMMANDS = "OrderCommandQueueUrl"
EXPIRIES = "ExpiryQueueUrl"
OF_ORDERS = (STANDARD, FIFO, EXPRESS)
QUEUES = (*OF_ORDERS, STOCK, CATALOGUE, COMMANDS, EXPIRIES)
DEAD_LETTERS = (
    "OrderDeadLetterQueueUrl",
    "OrderFifoDeadLetterQueueUrl",
    "OrderExpressDeadLetterQueueUrl",
    "StockDeadLetterQueueUrl",
    "CatalogueDeadLetterQueueUrl",
    "OrderCommandDeadLetterQueueUrl",
    "ExpiryDeadLetterQueueUrl",
)
"""The dead-letter queues, in the sequence of `QUEUES`."""

UNDELIVERABLE_EVENTS = "UndeliverableEventsQueueUrl"
"""The queue of events that the bus will never accept. They are not redriven: `republish` publishes them from the
rows.
"""


OPTIONAL = {
    FIFO: ("FIFO queue", "fifoQueue"),
    EXPRESS: ("express queue", "api"),
}
"""The queues that not every stack has: the name of each, and the setting that removes it."""


def pairs(aws: Aws) -> list[tuple[str, str]]:
    """List the outputs of the stack's queues, each with its dead-letter queue."""
    return [pair for pair in zip(QUEUES, DEAD_LETTERS, strict=True) if pair[1] in aws.outputs]


def url_of(aws: Aws, queue: str) -> str:
    """Find the URL of a queue by the name of its output. Not every stack has all of them."""
    if queue not in aws.outputs:
        name, setting = OPTIONAL[queue]
        raise UserError(f"the stack has no {name}, because `{setting}` is false in cdk.json")
    return aws.outputs[queue]


def arn_of(sqs: SQSClient, url: str) -> str:
    """Read the ARN of a queue."""
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return answer["Attributes"]["QueueArn"]


_BATCH = 10
_SENDERS = 4
_TRIES = 5


_COUNTS: list[QueueAttributeNameType] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
]
"""The attributes of a queue that `Depth` contains, in the sequence of its fields."""


@dataclass(frozen=True, slots=True)
class Depth:
    """The numbers of messages in a queue.

    Attributes:
        waiting: Messages that can be received.
        in_flight: Messages that were received and not yet deleted.
        later: Messages with a delay, such as the end of a hold.
    """

    waiting: int
    in_flight: int
    later: int = 0

    @property
    def total(self) -> int:
        """The number of all messages."""
        return self.waiting + self.in_flight + self.later


def send(
    aws: Aws,
    queue: str,
    messages: Iterable[OrderMessage],
    *,
    rate: float | None = None,
    on_sent: Callable[[int], None] = lambda _: None,
) -> list[str]:
    """Send messages in sequence. After Ctrl-C, no further request is started.

    Args:
        aws: The stack that the queue belongs to.
        queue: Name of the stack output with the queue's URL.
        messages: The messages.
        rate: Messages per second; None for no limit.
        on_sent: Called after each request with the number of messages that it sent.

    Returns:
        The SQS message ids, in sequence.

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

    # Parallel senders would reorder the messages, which matters on a FIFO queue.
    if fifo or rate is not None:
        return [message_id for batch in paced() for message_id in deliver(batch)]
    with ThreadPoolExecutor(_SENDERS) as pool:
        try:
            return [message_id for ids in pool.map(deliver, paced()) for message_id in ids]
        except BaseException:
            # When the pool or, after a second Ctrl-C, the process shuts down, it waits for every request that was
            # submitted.
            stopped.set()
            raise


def depth(aws: Aws, queue: str) -> Depth:
    """Count the messages in a queue: exactly on the embedded AWS, approximately on AWS."""
    return depth_of(aws.sqs, aws.outputs[queue])


def orders_waiting(aws: Aws) -> int:
    """Count the messages in all queues of orders that the stack has."""
    return sum(depth(aws, queue).total for queue in OF_ORDERS if queue in aws.outputs)


def depth_of(sqs: SQSClient, url: str) -> Depth:
    """Count the messages in the queue with this URL."""
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=_COUNTS)["Attributes"]
    return Depth(*(int(counts[name]) for name in _COUNTS))


def _batches(messages: Iterable[OrderMessage], *, fifo: bool) -> Iterator[Sequence[OrderMessage]]:
    """Split messages into batches, never with two messages of a group: SQS could accept the second one without the first.

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
    """Send messages until SQS has accepted each of them, and return their ids."""
    entries = {str(index): _entry(index, message, fifo) for index, message in enumerate(batch)}
    ids: dict[str, str] = {}
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(0.1 * 2**attempt)
        left = {index: entry for index, entry in entries.items() if index not in ids}
        ids |= _send_once(aws, url, left)
        if len(ids) == len(batch):
            return [ids[index] for index in entries]
    raise UserError("SQS did not accept all messages; it may be overloaded, so try again later")


def _entry(index: int, message: OrderMessage, fifo: bool) -> SendMessageBatchRequestEntryTypeDef:
    entry: SendMessageBatchRequestEntryTypeDef = {"Id": str(index), "MessageBody": message.body}
    return {**entry, "MessageGroupId": message.group} if fifo else entry


def _send_once(
    aws: Aws, url: str, entries: Mapping[str, SendMessageBatchRequestEntryTypeDef]
) -> dict[str, str]:
    """Send messages once, and return the ids of the accepted ones."""
    answer = aws.sqs.send_message_batch(QueueUrl=url, Entries=list(entries.values()))
    for failed in answer.get("Failed", ()):
        if failed["SenderFault"]:
            body, reason = entries[failed["Id"]]["MessageBody"], failed.get("Message", "")
            raise UserError(f"SQS does not accept a message ({reason}): {body[:200]}")
    return {entry["Id"]: entry["MessageId"] for entry in answer.get("Successful", [])}
