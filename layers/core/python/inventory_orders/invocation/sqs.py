"""Sends messages to SQS and delays them: the only module that calls SQS."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError

from inventory_orders.clock import Deadline
from inventory_orders.retry import MAX_SENDING_DELAY_SECONDS
from inventory_orders.sequences import in_portions

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from inventory_orders.engine.outcomes import ChangeOutcome
    from inventory_orders.publishing.publisher import Undeliverable

T = TypeVar("T")

# A request that fails is repeated at the message's next delivery, so it is not worth waiting long.
CLIENT_CONFIG = Config(
    connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 1, "mode": "standard"}
)
_WORST_CASE_SECONDS = 3.0

# SQS may have closed a connection that was idle between two invocations. A retry opens a new one.
_ATTEMPTS = 2

# SQS error codes for the receipt handle of a delivery that is over. Hiding the message again is then not necessary.
_DELIVERY_IS_OVER = frozenset({"ReceiptHandleIsInvalid", "MessageNotInflight"})

_ENTRIES_PER_CALL = 10
BYTES_PER_CALL = 1_048_576
"""Maximum size of a message, and of all messages in one call together:
docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html"""
_MAX_ERROR_MESSAGE = 512
BYTES_OF_ATTRIBUTES = 1536
"""Maximum size of a message's attributes, which are part of its size: four strings, two of up to 512 characters."""


@dataclass(frozen=True, slots=True)
class Message:
    """An SQS message that Lambda has delivered.

    Attributes:
        message_id: The id that SQS gave to the message.
        receipt_handle: The handle of this delivery.
        body: The body as the sender wrote it.
        queue: The name of the queue that the message came from.
        group: The `MessageGroupId` of a message from a FIFO queue; None for other queues.
        group_id: The `MessageGroupId`; empty if there is none. It makes a standard queue fair, but keeps no sequence there:
            docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html
        receive_count: The number of deliveries so far, including this one.
        first_received: When the message was first delivered, in Unix milliseconds; None if SQS does not say.
        sent: When the sender sent the message, in Unix milliseconds; None if SQS does not say.
        original_id: The id of the message that the sender sent. If this message is a copy of it, its own id differs.
        request_id: The HTTP request that sent the message, as the sender wrote it; empty if there is none.
        placed_by: Who sent that request, likewise.
    """

    message_id: str
    receipt_handle: str
    body: str
    queue: str
    group: str | None
    group_id: str
    receive_count: int
    first_received: int | None
    sent: int | None
    original_id: str
    request_id: str
    placed_by: str

    @property
    def sequence(self) -> str:
        """The group, or a unique value for a message without one. Messages with the same value are processed in order."""
        return self.group or self.receipt_handle


@dataclass(frozen=True, slots=True)
class Queue:
    """An SQS queue, and the client that calls it.

    Attributes:
        client: An SQS client; create it with `CLIENT_CONFIG`.
        url: The URL of the queue.
        dead_letter_url: The URL of its dead-letter queue; empty if the function sends no dead letters.
    """

    client: SQSClient
    url: str
    dead_letter_url: str = ""

    def feeds(self, batch: Iterable[Message]) -> bool:
        """Whether a batch came from this queue."""
        return any(self.url.endswith(f"/{message.queue}") for message in batch)


@dataclass(slots=True)
class SqsCalls:
    """The calls to SQS within one invocation. No call outlasts the invocation, and errors are collected for the log.

    Attributes:
        queue: The queue to call.
        end: When the invocation times out. A call that might take longer is not made.
        errors: The errors of failed requests.
    """

    queue: Queue
    end: Deadline
    errors: list[str] = field(default_factory=list)

    def count_waiting(self, *hidden: str) -> float:
        """Estimate how many messages are waiting in the queue; infinity if SQS does not answer.

        Args:
            hidden: Which hidden messages to include: `NotVisible` for those that the function is processing or has returned,
                `Delayed` for those that were sent with a delay.
        """
        names = [f"ApproximateNumberOfMessages{which}" for which in ("", *hidden)]
        answer = self._call("get_queue_attributes", self.queue.url, AttributeNames=names)
        if answer is None:
            return inf
        return sum(int(number) for number in answer.get("Attributes", {}).values())

    def send_dead_letters(self, invalid: Mapping[Message, ChangeOutcome]) -> set[Message]:
        """Send messages to the dead-letter queue, unchanged. Returns the messages that could not be sent."""
        entries = {
            m: {
                "MessageBody": m.body,
                "MessageAttributes": attributes(
                    errorCode=outcome.cause,
                    errorMessage=outcome.detail,
                    originalMessageId=m.original_id,
                    **_kept(m),
                ),
                **_group_of(m),
            }
            for m, outcome in invalid.items()
        }
        return invalid.keys() - self._call_for_each(
            "send_message_batch", self.queue.dead_letter_url, entries
        )

    def send_copies(self, seconds: Mapping[Message, int]) -> set[Message]:
        """Send copies of messages with a delay. For a copy, SQS counts deliveries from 1 again.

        Args:
            seconds: The delay of each message, at most 900 seconds.

        Returns:
            The messages whose copies SQS accepted.
        """
        entries = {
            message: {
                "MessageBody": message.body,
                "DelaySeconds": delay,
                "MessageAttributes": attributes(
                    originalMessageId=message.original_id,
                    # The copy is sorted by the time when the original was sent.
                    originalSentTimestamp="" if message.sent is None else str(message.sent),
                    **_kept(message),
                ),
                **_group_of(message),
            }
            for message, delay in seconds.items()
        }
        return self._call_for_each("send_message_batch", self.queue.url, entries)

    def send(self, bodies: Sequence[tuple[str, float]]) -> set[int]:
        """Send messages to the queue with a delay.

        Args:
            bodies: At most 10 bodies, each with the Unix time in seconds at which SQS may deliver it, at most 15 minutes ahead.

        Returns:
            The indexes of the bodies that SQS accepted.
        """
        now = time.time()
        entries = {
            number: {
                "MessageBody": body,
                "DelaySeconds": min(MAX_SENDING_DELAY_SECONDS, max(0, ceil(at - now))),
            }
            for number, (body, at) in enumerate(bodies)
        }
        return self._call_for_each("send_message_batch", self.queue.url, entries)

    def delay(self, seconds: Mapping[Message, int]) -> None:
        """Hide each message for a number of seconds, beginning now.

        If a call fails, its messages come back after the queue's visibility timeout.
        """
        entries = {
            m: {"ReceiptHandle": m.receipt_handle, "VisibilityTimeout": delay}
            for m, delay in seconds.items()
        }
        self._call_for_each("change_message_visibility_batch", self.queue.url, entries)

    def send_one(
        self,
        body: str,
        attributes: Mapping[str, Mapping[str, str]],
        group: str | None = None,
    ) -> bool:
        """Send one message to the queue. Returns False if SQS did not confirm it; the message may have been sent even then."""
        message = {"MessageBody": body, "MessageAttributes": attributes}
        of_group = {} if group is None else {"MessageGroupId": group}
        return self._call("send_message", self.queue.url, **message, **of_group) is not None

    def park(self, event: Undeliverable) -> bool:
        """Send an undeliverable event to the queue, or only its id if it is too large. Returns whether SQS confirmed it."""
        why = attributes(
            errorCode=event.code, errorMessage=event.message, originalMessageId=event.id
        )
        return self.send_one(event.body, why) or (
            len(event.body) + BYTES_OF_ATTRIBUTES > BYTES_PER_CALL
            and self.send_one(json.dumps({"id": event.id, "bytes": len(event.body)}), why)
        )

    def _call_for_each(
        self, operation: str, url: str, entries: Mapping[T, Mapping[str, Any]]
    ) -> set[T]:
        """Send one entry for each item, in as few calls as possible. Returns the items whose entries SQS accepted."""
        items = list(entries)
        numbered = [{"Id": str(number), **entries[item]} for number, item in enumerate(items)]
        taken: set[T] = set()
        for some in in_portions(numbered, _ENTRIES_PER_CALL, _size_of, BYTES_PER_CALL):
            answer = self._call(operation, url, Entries=some) or {}
            self.errors += [
                str(entry)
                for entry in answer.get("Failed", ())
                if entry.get("Code", "").rsplit(".", 1)[-1] not in _DELIVERY_IS_OVER
            ]
            taken |= {items[int(entry["Id"])] for entry in answer.get("Successful", ())}
        return taken

    def _call(self, operation: str, url: str, **request: Any) -> Mapping[str, Any] | None:
        """Make one call, and return the response. If the call fails, add the error to `errors` and return None."""
        for _ in range(_ATTEMPTS):
            if self.end.remaining() < _WORST_CASE_SECONDS:
                self.errors.append(f"no time was left for {operation}")
                return None
            try:
                call: Callable[..., Mapping[str, Any]] = getattr(self.queue.client, operation)
                return call(QueueUrl=url, **request)
            except (BotoCoreError, ClientError) as error:
                self.errors.append(str(error))
                if not isinstance(error, ConnectionClosedError):
                    return None
        return None


def _group_of(message: Message) -> dict[str, str]:
    """The parameters that keep a dead letter or a copy in the group of its message."""
    once = {} if message.group is None else {"MessageDeduplicationId": message.message_id}
    return {"MessageGroupId": message.group_id, **once} if message.group_id else {}


def attributes(**texts: str) -> dict[str, dict[str, str]]:
    """Build message attributes. SQS refuses empty values, so `?` replaces them."""
    return {
        name: {"DataType": "String", "StringValue": printable(text) or "?"}
        for name, text in texts.items()
    }


def _kept(message: Message) -> dict[str, str]:
    """The sender's attributes that belong to the content of a message. No answer waits for a message that is sent again."""
    return {"placedBy": message.placed_by} if message.placed_by else {}


def printable(text: str) -> str:
    """Convert a string into printable ASCII of at most 512 characters, as message attributes require."""
    ascii_text = text.encode("ascii", "backslashreplace").decode("ascii")
    shown = "".join(character if character.isprintable() else " " for character in ascii_text)
    return shown if len(shown) <= _MAX_ERROR_MESSAGE else f"{shown[: _MAX_ERROR_MESSAGE - 3]}..."


def _size_of(entry: Mapping[str, Any]) -> int:
    """The maximum size of an entry, in bytes as SQS counts them."""
    return len(entry.get("MessageBody", "").encode("utf-8", "surrogatepass")) + BYTES_OF_ATTRIBUTES
