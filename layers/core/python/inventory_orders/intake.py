"""From a batch of SQS messages to changes, and from their outcomes to the answer for each message.

Every message ends in one of four ways: applied (or found applied), refused, dead-lettered, or returned. It is
acknowledged only in the first three, and only once that is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import ceil
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.clock import Deadline
from inventory_orders.committer import Committer, Ending, Outcome, Report
from inventory_orders.errors import InventoryOrdersError, PoisonMessageError
from inventory_orders.model import Change
from inventory_orders.retry import redelivery_delay

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import (
        ChangeMessageVisibilityBatchRequestEntryTypeDef,
        SendMessageBatchRequestEntryTypeDef,
    )

MAX_VISIBILITY_SECONDS = 900

_ENTRIES_PER_CALL = 10
# 256 KiB, the older quota for one SendMessageBatch, holds everywhere. A larger message goes alone.
_BYTES_PER_CALL = 262_144
_MAX_ERROR_MESSAGE = 512

Parse = Callable[[str, str | None], Change]
"""From a message's body and its group to a change. Raises PoisonMessageError."""


class UnsupportedEventError(InventoryOrdersError):
    """The handler was invoked with something that is not a batch of SQS messages."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue's URL, and that of its dead-letter queue."""

    url: str
    dead_letter_url: str


@dataclass(frozen=True, slots=True)
class Message:
    """An SQS message as Lambda hands it over.

    Attributes:
        message_id: Given by SQS.
        receipt_handle: Names this delivery of it.
        body: As the sender wrote it.
        receive_count: Deliveries so far, this one included.
        group: `MessageGroupId` if it came through a FIFO queue, else None.
    """

    message_id: str
    receipt_handle: str
    body: str
    receive_count: int
    group: str | None

    @property
    def from_fifo(self) -> bool:
        """Whether it came through the FIFO queue."""
        return self.group is not None


class End(Enum):
    """Where a message ended."""

    APPLIED = auto()
    REPLAYED = auto()
    REFUSED = auto()
    DEAD_LETTERED = auto()
    RETURNED = auto()


@dataclass(frozen=True, slots=True)
class MessageResult:
    """What became of a message.

    Attributes:
        message: The message.
        end: Where it ended.
        change: What it asked for; None if that could not be read.
        outcome: The engine's answer; None if the message did not get there.
        error: Why it is poison, for a dead letter, sent or not.
    """

    message: Message
    end: End
    change: Change | None = None
    outcome: Outcome | None = None
    error: PoisonMessageError | None = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of a batch.

    Attributes:
        results: One for each message, in order.
        report: The engine's.
        queue_errors: What SQS refused, for the log; the messages concerned are accounted for all the same.
    """

    results: tuple[MessageResult, ...]
    report: Report
    queue_errors: tuple[str, ...]

    @property
    def response(self) -> dict[str, Any]:
        """The answer to Lambda's event source: what to deliver again."""
        return {
            "batchItemFailures": [
                {"itemIdentifier": result.message.message_id}
                for result in self.results
                if result.end is End.RETURNED
            ]
        }


_ENDS = {
    Ending.APPLIED: End.APPLIED,
    Ending.REPLAYED: End.REPLAYED,
    Ending.REFUSED: End.REFUSED,
    Ending.RETURNED: End.RETURNED,
}


class Intake:
    """The way in for queued changes.

    Args:
        client: An SQS client.
        committer: The engine.
        queue: The standard queue.
        fifo_queue: The FIFO queue, where there is one.
    """

    def __init__(
        self, client: SQSClient, committer: Committer, queue: Queue, fifo_queue: Queue | None
    ) -> None:
        self._client = client
        self._committer = committer
        self._queue = queue
        self._fifo_queue = fifo_queue

    def process(
        self, event: object, parse: Parse, id_reused_code: str, deadline: Deadline
    ) -> BatchResult:
        """Bring every message of a batch to its end.

        Args:
            event: What Lambda was invoked with.
            parse: Reads one message.
            id_reused_code: `errorCode` of a message whose id belongs to another request.
            deadline: When to stop starting work.

        Raises:
            UnsupportedEventError: It is not a batch of SQS messages.
        """
        messages = read_messages(event)
        changes: dict[Message, Change] = {}
        poison: dict[Message, PoisonMessageError] = {}
        for message in messages:
            try:
                changes[message] = parse(message.body, message.group)
            except PoisonMessageError as error:
                poison[message] = error

        # Poison goes first: what cannot be sent away is returned, and with it what stands behind it in its group.
        errors: list[str] = []
        returned = set(poison) - self._dead_letter(poison, errors)
        blocked = _with_followers(messages, returned)
        accepted = [message for message in changes if message not in blocked]
        report = self._committer.apply([changes[message] for message in accepted], deadline)
        outcomes = dict(zip(accepted, report.outcomes, strict=True))

        late_poison = {
            message: _late_poison(outcome, id_reused_code)
            for message, outcome in outcomes.items()
            if outcome.ending in (Ending.ID_REUSED, Ending.INVALID)
        }
        returned |= set(late_poison) - self._dead_letter(late_poison, errors)
        returned |= {m for m, outcome in outcomes.items() if outcome.ending is Ending.RETURNED}
        returned = _with_followers(messages, returned)
        lease_left = {
            message: outcomes[message].retry_after if message in outcomes else 0.0
            for message in messages
            if message in returned
        }
        self._delay(lease_left, errors)

        poison |= late_poison
        return BatchResult(
            tuple(
                MessageResult(
                    message,
                    _end(message, returned, outcomes, poison),
                    changes.get(message),
                    outcomes.get(message),
                    poison.get(message),
                )
                for message in messages
            ),
            report,
            tuple(errors),
        )

    def _queue_of(self, message: Message) -> Queue:
        if message.from_fifo and self._fifo_queue is not None:
            return self._fifo_queue
        return self._queue

    def _dead_letter(
        self, poison: Mapping[Message, PoisonMessageError], errors: list[str]
    ) -> set[Message]:
        """Send messages to their dead-letter queue, unchanged. Returns those that arrived there."""
        sent: set[Message] = set()
        for url, messages in self._by_queue(poison, lambda queue: queue.dead_letter_url):
            for batch in _batches(messages):
                entries = [
                    _dead_letter_entry(str(index), message, poison[message])
                    for index, message in enumerate(batch)
                ]
                try:
                    answer = self._client.send_message_batch(QueueUrl=url, Entries=entries)
                except (BotoCoreError, ClientError) as error:
                    errors.append(str(error))
                    continue
                sent |= {batch[int(entry["Id"])] for entry in answer.get("Successful", ())}
                errors += [str(entry) for entry in answer.get("Failed", ())]
        return sent

    def _delay(self, lease_left: Mapping[Message, float], errors: list[str]) -> None:
        """Hide returned messages for a backoff, or for what a lease has left. Best effort.

        If SQS does not take it, the message comes back after the queue's visibility timeout.
        """
        seconds = {
            message: min(
                MAX_VISIBILITY_SECONDS,
                max(ceil(left), redelivery_delay(message.receive_count)),
            )
            for message, left in lease_left.items()
        }
        for url, messages in self._by_queue(seconds, lambda queue: queue.url):
            for start in range(0, len(messages), _ENTRIES_PER_CALL):
                batch = messages[start : start + _ENTRIES_PER_CALL]
                entries: list[ChangeMessageVisibilityBatchRequestEntryTypeDef] = [
                    {
                        "Id": str(index),
                        "ReceiptHandle": message.receipt_handle,
                        "VisibilityTimeout": seconds[message],
                    }
                    for index, message in enumerate(batch)
                ]
                try:
                    answer = self._client.change_message_visibility_batch(
                        QueueUrl=url, Entries=entries
                    )
                except (BotoCoreError, ClientError) as error:
                    errors.append(str(error))
                else:
                    errors += [str(entry) for entry in answer.get("Failed", ())]

    def _by_queue(
        self, messages: Iterable[Message], url: Callable[[Queue], str]
    ) -> Iterable[tuple[str, list[Message]]]:
        grouped: dict[str, list[Message]] = {}
        for message in messages:
            grouped.setdefault(url(self._queue_of(message)), []).append(message)
        return grouped.items()


def read_messages(event: object) -> list[Message]:
    """The messages of an SQS event, in the order of their arrival.

    Raises:
        UnsupportedEventError: The event is something else.
    """
    if not isinstance(event, dict) or not isinstance(event.get("Records"), list):
        raise UnsupportedEventError(
            'this function takes batches of SQS messages: {"Records": [{"messageId": ..., "body": ...}]}; '
            "see events/ for samples"
        )
    try:
        return [_read_message(record) for record in event["Records"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnsupportedEventError(
            f"a record of the event is no SQS message ({type(error).__name__}: {error})"
        ) from error


def _read_message(record: Mapping[str, Any]) -> Message:
    if record["eventSource"] != "aws:sqs":
        raise ValueError(f"eventSource is {record['eventSource']}")
    attributes = record.get("attributes", {})
    return Message(
        message_id=str(record["messageId"]),
        receipt_handle=str(record["receiptHandle"]),
        body=str(record["body"]),
        receive_count=max(1, int(attributes.get("ApproximateReceiveCount", 1))),
        # Standard queues carry a MessageGroupId too (for fair queues), without any promise of order.
        group=(
            str(attributes["MessageGroupId"])
            if record["eventSourceARN"].endswith(".fifo")
            else None
        ),
    )


def _with_followers(messages: Sequence[Message], returned: set[Message]) -> set[Message]:
    """Returned messages, with all that stand behind them in their groups: so order is kept."""
    result: set[Message] = set()
    stopped: set[str] = set()
    for message in messages:
        if message in returned or message.group in stopped:
            result.add(message)
            if message.group is not None:
                stopped.add(message.group)
    return result


def _end(
    message: Message,
    returned: set[Message],
    outcomes: Mapping[Message, Outcome],
    poison: Mapping[Message, PoisonMessageError],
) -> End:
    if message in returned:
        return End.RETURNED
    if message in poison:
        return End.DEAD_LETTERED
    return _ENDS[outcomes[message].ending]


def _late_poison(outcome: Outcome, id_reused_code: str) -> PoisonMessageError:
    if outcome.ending is Ending.ID_REUSED:
        return PoisonMessageError(
            id_reused_code,
            "another request was sent under this id before and keeps it; send this one under an id of its own",
        )
    return PoisonMessageError(outcome.cause, outcome.detail)


def _dead_letter_entry(
    entry_id: str, message: Message, error: PoisonMessageError
) -> SendMessageBatchRequestEntryTypeDef:
    entry: SendMessageBatchRequestEntryTypeDef = {
        "Id": entry_id,
        "MessageBody": message.body,
        "MessageAttributes": {
            "errorCode": {"DataType": "String", "StringValue": error.code},
            "errorMessage": {"DataType": "String", "StringValue": printable(error.message)},
            "originalMessageId": {"DataType": "String", "StringValue": message.message_id},
        },
    }
    if message.group is not None:
        entry["MessageGroupId"] = message.group
        entry["MessageDeduplicationId"] = message.message_id
    return entry


def printable(text: str) -> str:
    """Text that may stand in a message attribute: printable ASCII, at most 512 characters."""
    ascii_text = text.encode("ascii", "backslashreplace").decode("ascii")
    shown = "".join(character if character.isprintable() else " " for character in ascii_text)
    return shown if len(shown) <= _MAX_ERROR_MESSAGE else f"{shown[: _MAX_ERROR_MESSAGE - 3]}..."


def _batches(messages: Sequence[Message]) -> list[list[Message]]:
    """Split into what one SendMessageBatch takes."""
    batches: list[list[Message]] = []
    room = 0
    for message in messages:
        size = len(message.body.encode("utf-8", "surrogatepass")) + 1024
        if not batches or len(batches[-1]) == _ENTRIES_PER_CALL or size > room:
            batches.append([])
            room = _BYTES_PER_CALL
        batches[-1].append(message)
        room -= size
    return batches
