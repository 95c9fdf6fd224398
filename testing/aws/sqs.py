"""SQS in memory: visibility, redelivery, dead-letter queues, FIFO groups and deduplication.

Each call is one atomic step, whichever thread makes it.

It answers requests in their wire format (the JSON protocol), and raises `ServiceError` with SQS's codes. Standard
queues deliver messages in order of arrival, which is one of the orders that SQS may choose.

Source: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from testing.aws.values import ServiceError

DEDUPLICATION_SECONDS = 300.0
_MAX_BYTES = 1_048_576
# docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
_CHARACTERS = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")
_ID = re.compile(r"[!-~]{1,128}")


@dataclass(slots=True)
class Message:
    """A message in a queue.

    Attributes:
        message_id: Its id in the queue.
        body: The body, unchanged.
        attributes: The message attributes, unchanged.
        sent: When it was sent, in Unix seconds.
        visible_at: When it becomes visible, in Unix seconds.
        receive_count: Number of deliveries so far.
        first_received: Time of the first delivery, in Unix seconds.
        receipt_handle: Receipt handle of the last delivery.
        group: `MessageGroupId`.
        deduplication_id: `MessageDeduplicationId`; only in a FIFO queue.
        sequence_number: Its place in the order of a FIFO queue.
    """

    message_id: str
    body: str
    attributes: Mapping[str, Any]
    sent: float
    visible_at: float
    receive_count: int = 0
    first_received: float = 0.0
    receipt_handle: str = ""
    group: str | None = None
    deduplication_id: str | None = None
    sequence_number: str | None = None


@dataclass(slots=True)
class Queue:
    """A queue.

    Attributes:
        name: Its name; a FIFO queue's ends in `.fifo`.
        visibility: Seconds for which a received message is hidden.
        max_receive_count: Deliveries after which a message goes to the dead-letter queue; None without one.
        dead_letters: The dead-letter queue.
        content_based: Whether the deduplication id is derived from the body if the sender gives none.
        messages: In order of arrival, including those in flight.
        remembered: The end of the deduplication and the response to repeat, by group and deduplication id. Messages are
            deduplicated within their group, as in the stack.
    """

    name: str
    visibility: float = 30.0
    max_receive_count: int | None = None
    dead_letters: Queue | None = None
    content_based: bool = False
    messages: list[Message] = field(default_factory=list)
    remembered: dict[tuple[str, str], tuple[float, dict[str, Any]]] = field(default_factory=dict)

    @property
    def is_fifo(self) -> bool:
        """Whether the queue keeps the order of each group."""
        return self.name.endswith(".fifo")

    @property
    def url(self) -> str:
        """Its URL."""
        return f"https://sqs.us-east-1.amazonaws.com/123456789012/{self.name}"

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:sqs:us-east-1:123456789012:{self.name}"


class Sqs:
    """The queues of one account and region.

    Args:
        now: Unix seconds.

    Attributes:
        queues: The queues, by name.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._one_at_a_time = Lock()
        self._count = 0
        self.queues: dict[str, Queue] = {}
        self._operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "GetQueueAttributes": self._get_queue_attributes,
            "SendMessage": lambda request: self._send(self._queue(request), request),
            "SendMessageBatch": lambda request: self._batch(request, self._send),
            "ReceiveMessage": self._receive,
            "DeleteMessage": lambda request: self._delete(self._queue(request), request),
            "ChangeMessageVisibilityBatch": lambda request: self._batch(request, self._hide),
        }

    def create(
        self,
        name: str,
        visibility: float = 30.0,
        dead_letters: Queue | None = None,
        max_receive_count: int | None = None,
        *,
        content_based: bool = False,
    ) -> Queue:
        """Create a queue."""
        self.queues[name] = Queue(name, visibility, max_receive_count, dead_letters, content_based)
        return self.queues[name]

    def answer(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request.

        Raises:
            ServiceError: The error response that SQS would send.
        """
        if operation not in self._operations:
            raise NotImplementedError(f"the simulated SQS has no {operation}")
        with self._one_at_a_time:
            return self._operations[operation](request)

    def _queue(self, request: Mapping[str, Any]) -> Queue:
        queue = self.queues.get(str(request["QueueUrl"]).rsplit("/", 1)[-1])
        if queue is None:
            raise ServiceError("QueueDoesNotExist", "The specified queue does not exist.")
        return queue

    def _get_queue_attributes(self, request: dict[str, Any]) -> dict[str, Any]:
        queue, now = self._queue(request), self._now()
        hidden = [message for message in queue.messages if message.visible_at > now]
        delayed = sum(message.receive_count == 0 for message in hidden)
        attributes = {
            "ApproximateNumberOfMessages": len(queue.messages) - len(hidden),
            "ApproximateNumberOfMessagesNotVisible": len(hidden) - delayed,
            "ApproximateNumberOfMessagesDelayed": delayed,
        }
        return {"Attributes": {name: str(attributes[name]) for name in request["AttributeNames"]}}

    def _batch(
        self,
        request: dict[str, Any],
        operation: Callable[[Queue, Mapping[str, Any]], dict[str, Any]],
    ) -> dict[str, Any]:
        queue, entries = self._queue(request), request["Entries"]
        if not 1 <= len(entries) <= 10 or len({entry["Id"] for entry in entries}) < len(entries):
            raise _wrong("A batch has 1 to 10 entries, each with a unique Id.")
        if sum(map(_size, entries)) > _MAX_BYTES:
            raise ServiceError(
                "AWS.SimpleQueueService.BatchRequestTooLong",
                "Batch requests cannot be longer than 1048576 bytes.",
            )
        successful: list[dict[str, Any]] = []
        failed: list[dict[str, Any]] = []
        for entry in entries:
            try:
                successful.append({"Id": entry["Id"], **operation(queue, entry)})
            except ServiceError as error:
                failed.append(
                    {
                        "Id": entry["Id"],
                        "Code": error.code,
                        "Message": error.message,
                        "SenderFault": True,
                    }
                )
        return {"Successful": successful, "Failed": failed}

    # ------------------------------------------------------------------ sending

    def _send(self, queue: Queue, entry: Mapping[str, Any]) -> dict[str, Any]:
        body, now = entry["MessageBody"], self._now()
        if not body:
            raise ServiceError("MissingParameter", "The request must contain MessageBody.")
        if not is_sendable(body):
            raise ServiceError("InvalidMessageContents", "Invalid binary character in the message.")
        if _size(entry) > _MAX_BYTES:
            raise _wrong("Message must be shorter than 1048576 bytes.")
        group, deduplication_id = entry.get("MessageGroupId"), entry.get("MessageDeduplicationId")
        if not all(_ID.fullmatch(given) for given in (group, deduplication_id) if given):
            raise _wrong("An id may only contain ASCII characters.")
        if queue.is_fifo:
            if not group:
                raise ServiceError(
                    "MissingParameter", "The request must contain the parameter MessageGroupId."
                )
            if not deduplication_id and queue.content_based:
                deduplication_id = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
            if not deduplication_id:
                raise _wrong("Without ContentBasedDeduplication a message needs an id.")
            remembered = (group, deduplication_id)
            until, answer = queue.remembered.get(remembered, (0.0, {}))
            if until > now:
                return answer
        attributes = entry.get("MessageAttributes", {})
        if len(attributes) > 10:
            raise _wrong("Number of message attributes exceeds the limit of 10.")
        message = Message(
            self._next_id(), body, attributes, now, now + float(entry.get("DelaySeconds", 0))
        )
        message.group = group
        answer = {"MessageId": message.message_id, "MD5OfMessageBody": _md5(body.encode())}
        if attributes:
            answer["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
        if queue.is_fifo:
            message.deduplication_id = deduplication_id
            message.sequence_number = answer["SequenceNumber"] = f"{self._count:020d}"
            queue.remembered[remembered] = (now + DEDUPLICATION_SECONDS, answer)
        queue.messages.append(message)
        return answer

    def _next_id(self) -> str:
        self._count += 1
        return f"00000000-0000-4000-8000-{self._count:012d}"

    # ------------------------------------------------------------------ receiving

    def _receive(self, request: dict[str, Any]) -> dict[str, Any]:
        queue, now = self._queue(request), self._now()
        limit = request.get("MaxNumberOfMessages", 1)
        if not 1 <= limit <= 10:
            raise _wrong(f"MaxNumberOfMessages is {limit}, but must be between 1 and 10.")
        visibility = float(request.get("VisibilityTimeout", queue.visibility))
        taken: list[dict[str, Any]] = []
        for message in list(self.receivable(queue, now)):
            if len(taken) == limit:
                break
            if queue.dead_letters is not None and message.receive_count >= (
                queue.max_receive_count or 1
            ):
                queue.messages.remove(message)
                message.visible_at, message.receive_count = now, 0
                queue.dead_letters.messages.append(message)
                continue
            message.receive_count += 1
            message.first_received = message.first_received or now
            message.visible_at = now + visibility
            self._count += 1
            message.receipt_handle = f"{message.message_id}#{self._count}"
            taken.append(_received(message, request))
        return {"Messages": taken} if taken else {}

    def receivable(self, queue: Queue, now: float) -> Iterator[Message]:
        """List the messages that may be delivered, except those of groups with a message in flight."""
        blocked = (
            {message.group for message in queue.messages if message.visible_at > now}
            if queue.is_fifo
            else set()
        )
        for message in queue.messages:
            if message.visible_at <= now and (not queue.is_fifo or message.group not in blocked):
                yield message

    def _holder(self, queue: Queue, handle: str) -> Message | None:
        """Find the message that a receipt handle belongs to; None if it was deleted."""
        if "#" not in handle:
            raise ServiceError(
                "ReceiptHandleIsInvalid",
                f'The input receipt handle "{handle}" is not a valid receipt handle.',
            )
        message_id = handle.split("#", 1)[0]
        return next((m for m in queue.messages if m.message_id == message_id), None)

    def _delete(self, queue: Queue, entry: Mapping[str, Any]) -> dict[str, Any]:
        message = self._holder(queue, entry["ReceiptHandle"])
        # As on SQS, a handle of an earlier delivery deletes nothing and is not an error.
        if message is not None and message.receipt_handle == entry["ReceiptHandle"]:
            queue.messages.remove(message)
        return {}

    def _hide(self, queue: Queue, entry: Mapping[str, Any]) -> dict[str, Any]:
        seconds = entry["VisibilityTimeout"]
        if not 0 <= seconds <= 43_200:
            raise _wrong(f"VisibilityTimeout is {seconds}, but must be between 0 and 43200.")
        message, now = self._holder(queue, entry["ReceiptHandle"]), self._now()
        if message is None:
            raise _wrong("The message does not exist.")
        if message.visible_at <= now or message.receipt_handle != entry["ReceiptHandle"]:
            raise ServiceError("MessageNotInflight", "The specified message is not in flight.")
        message.visible_at = now + seconds
        return {}


def _wrong(message: str) -> ServiceError:
    return ServiceError("InvalidParameterValue", message)


def _received(message: Message, request: Mapping[str, Any]) -> dict[str, Any]:
    """Format a message for a ReceiveMessage response."""
    system = {
        "SenderId": "AIDASIMULATED",
        "SentTimestamp": f"{message.sent * 1000:.0f}",
        "ApproximateReceiveCount": str(message.receive_count),
        "ApproximateFirstReceiveTimestamp": f"{message.first_received * 1000:.0f}",
    }
    fifo = {
        "MessageGroupId": message.group,
        "MessageDeduplicationId": message.deduplication_id,
        "SequenceNumber": message.sequence_number,
    }
    system |= {name: value for name, value in fifo.items() if value is not None}
    wanted = request.get("MessageSystemAttributeNames", ())
    if "All" not in wanted:
        system = {name: value for name, value in system.items() if name in wanted}
    answer: dict[str, Any] = {
        "MessageId": message.message_id,
        "ReceiptHandle": message.receipt_handle,
        "Body": message.body,
        "MD5OfBody": _md5(message.body.encode("utf-8", "surrogatepass")),
    }
    if system:
        answer["Attributes"] = system
    named = request.get("MessageAttributeNames", ())
    attributes = {
        name: value for name, value in message.attributes.items() if name in named or "All" in named
    }
    if attributes:
        answer["MessageAttributes"] = attributes
        answer["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
    return answer


def is_sendable(body: str) -> bool:
    """Whether a body is valid: SQS only accepts characters that XML allows."""
    return _CHARACTERS.fullmatch(body) is not None


def _size(entry: Mapping[str, Any]) -> int:
    """Bytes of a message: its body, and its attributes' names, types and values."""
    attributes = entry.get("MessageAttributes", {})
    texts = [entry.get("MessageBody", ""), *attributes]
    texts += [text for value in attributes.values() for text in value.values()]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def md5_of_attributes(attributes: Mapping[str, Any]) -> str:
    """Compute the MD5 digest of message attributes.

    Source: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html
    """
    digest = b""
    for name, value in sorted(attributes.items()):
        kind = value["DataType"]
        text = value["StringValue"].encode()
        for part in (name.encode(), kind.encode()):
            digest += struct.pack("!I", len(part)) + part
        digest += b"\x01" + struct.pack("!I", len(text)) + text
    return _md5(digest)


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
