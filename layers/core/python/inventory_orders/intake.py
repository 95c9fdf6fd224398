"""From a batch of SQS messages to changes, and from their outcomes to the answer for each message.

Every message ends in one of four ways: applied (or found applied), refused, dead-lettered, or returned. It is
acknowledged only in the first three, and only once that is durable.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import ceil
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.clock import Deadline
from inventory_orders.committer import Committer, Ending, Outcome, Report
from inventory_orders.errors import InventoryOrdersError, PoisonMessageError
from inventory_orders.model import Change, Refusal, RefusalReason
from inventory_orders.retry import redelivery_delay

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

MAX_VISIBILITY_SECONDS = 900

# What SQS does not take now it will take at the next delivery, so nothing is gained by waiting long.
CLIENT_CONFIG = Config(
    connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 1, "mode": "standard"}
)
WORST_CASE_SECONDS_OF_ONE_CALL = 3.0

_ENTRIES_PER_CALL = 10
# 256 KiB, the older quota for one SendMessageBatch, holds everywhere. A larger message goes alone.
_BYTES_PER_CALL = 262_144
_MAX_ERROR_MESSAGE = 512

T = TypeVar("T")


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
        first_received: Unix second of its first delivery; None if SQS does not say.
        group: `MessageGroupId` if it came through a FIFO queue, else None.
    """

    message_id: str
    receipt_handle: str
    body: str
    receive_count: int
    first_received: float | None
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
class Verdict:
    """How the service judges one message.

    Attributes:
        end: Where it is to end.
        error: Why it is poison, for a dead letter.
        retry_after: For a returned one, seconds before a retry makes sense, where that is known; else 0.
        cause: Why, as a stable code: of a returned one, and of one that came too late to change anything.
        detail: The same in words.
        outcome: The engine's answer, if it was asked.
    """

    end: End
    error: PoisonMessageError | None = None
    retry_after: float = 0.0
    cause: str = ""
    detail: str = ""
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class MessageResult(Generic[T]):
    """What became of a message: where it ended, what it asked for (None if unreadable), and why."""

    message: Message
    end: End
    content: T | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class BatchResult(Generic[T]):
    """What became of a batch.

    Attributes:
        results: One for each message, in order.
        queue_errors: What SQS refused, for the log; the messages concerned are accounted for all the same.
    """

    results: tuple[MessageResult[T], ...]
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


class _Sqs:
    """Batch calls to SQS within one invocation: bounded by its time, and with a note of what went wrong."""

    def __init__(self, client: SQSClient, time_left: Callable[[], float]) -> None:
        self._client = client
        self._time_left = time_left
        self.errors: list[str] = []

    def call(self, operation: str, url: str, entries: Sequence[Any]) -> list[str]:
        """Make one call. Returns the ids of the entries that SQS took."""
        if self._time_left() < WORST_CASE_SECONDS_OF_ONE_CALL:
            self.errors.append(f"no time was left for {operation}")
            return []
        try:
            answer = getattr(self._client, operation)(QueueUrl=url, Entries=entries)
        except (BotoCoreError, ClientError) as error:
            self.errors.append(str(error))
            return []
        self.errors += [str(entry) for entry in answer.get("Failed", ())]
        return [entry["Id"] for entry in answer.get("Successful", ())]


class Intake:
    """The way in for queued messages.

    Args:
        client: An SQS client.
        queue: The standard queue.
        fifo_queue: The FIFO queue, where there is one.
        max_receive_count: Deliveries after which SQS gives a message up.
    """

    def __init__(
        self,
        client: SQSClient,
        queue: Queue,
        fifo_queue: Queue | None = None,
        max_receive_count: int = 20,
    ) -> None:
        self._client = client
        self._queue = queue
        self._fifo_queue = fifo_queue
        self._max_receive_count = max_receive_count

    def process(
        self,
        event: object,
        parse: Callable[[str, str | None], T],
        decide: Callable[[Sequence[T], float | None], Sequence[Verdict]],
        time_left: Callable[[], float],
        may_be_early: frozenset[str] = frozenset(),
    ) -> BatchResult[T]:
        """Bring every message of a batch to its end.

        Args:
            event: What Lambda was invoked with.
            parse: Reads one message from its body and its group. Raises PoisonMessageError.
            decide: Does the work, and judges each of the readable messages. It is told as well since when the first
                of them has been waiting, in Unix seconds, as far as SQS says so.
            time_left: Seconds until the invocation is ended. No call to SQS begins that could not end before.
            may_be_early: Codes of dead letters that are given up only at the last delivery, because what they
                lack may yet come.

        Raises:
            UnsupportedEventError: It is not a batch of SQS messages.
        """
        messages = read_messages(event)
        contents: dict[Message, T] = {}
        verdicts: dict[Message, Verdict] = {}
        for message in messages:
            try:
                contents[message] = parse(message.body, message.group)
            except PoisonMessageError as error:
                verdicts[message] = Verdict(End.DEAD_LETTERED, error)

        # Poison goes first: what cannot be sent away is returned, and with it what stands behind it in its group.
        sqs = _Sqs(self._client, time_left)
        returned = self._dead_letter(verdicts, sqs)
        blocked = _with_followers(messages, returned)
        accepted = [message for message in contents if message not in blocked]
        since = min((m.first_received for m in accepted if m.first_received), default=None)
        judged = decide([contents[message] for message in accepted], since)
        decided = dict(zip(accepted, judged, strict=True))
        for message, verdict in decided.items():
            decided[message] = self._not_yet(message, verdict, may_be_early)
        returned |= self._dead_letter(decided, sqs)
        returned |= {m for m, verdict in decided.items() if verdict.end is End.RETURNED}
        returned = _with_followers(messages, returned)

        verdicts |= decided
        behind = Verdict(End.RETURNED, cause="BEHIND_A_RETURNED_MESSAGE")
        self._delay(
            {m: verdicts.get(m, behind).retry_after for m in messages if m in returned}, sqs
        )
        return BatchResult(
            tuple(
                MessageResult(
                    message,
                    End.RETURNED if message in returned else verdicts[message].end,
                    contents.get(message),
                    verdicts.get(message, behind),
                )
                for message in messages
            ),
            tuple(sqs.errors),
        )

    def _not_yet(self, message: Message, verdict: Verdict, may_be_early: frozenset[str]) -> Verdict:
        """Return what may only be early, unless this is its last delivery."""
        error = verdict.error
        if error is None or error.code not in may_be_early:
            return verdict
        if message.receive_count >= self._max_receive_count:
            return verdict
        return Verdict(End.RETURNED, cause=error.code, detail=error.message)

    def _queue_of(self, message: Message) -> Queue:
        if message.from_fifo and self._fifo_queue is not None:
            return self._fifo_queue
        return self._queue

    def _dead_letter(self, verdicts: Mapping[Message, Verdict], sqs: _Sqs) -> set[Message]:
        """Send poison to its dead-letter queue, unchanged. Returns what could not be sent there."""
        poison = {m: verdict.error for m, verdict in verdicts.items() if verdict.error is not None}
        sent: set[Message] = set()
        for url, messages in self._by_queue(poison, lambda queue: queue.dead_letter_url):
            for batch in _batches(messages):
                entries = [
                    _dead_letter_entry(str(index), message, poison[message])
                    for index, message in enumerate(batch)
                ]
                taken = sqs.call("send_message_batch", url, entries)
                sent |= {batch[int(entry_id)] for entry_id in taken}
        return poison.keys() - sent

    def _delay(self, lease_left: Mapping[Message, float], sqs: _Sqs) -> None:
        """Hide returned messages for a backoff, or for what a lease has left. Best effort.

        What was delivered together comes back together. If SQS does not take it, the message comes back after the
        queue's visibility timeout.
        """
        delay = functools.cache(redelivery_delay)
        seconds = {
            message: min(
                MAX_VISIBILITY_SECONDS,
                max(ceil(left), delay(message.receive_count)),
            )
            for message, left in lease_left.items()
        }
        for url, messages in self._by_queue(seconds, lambda queue: queue.url):
            for start in range(0, len(messages), _ENTRIES_PER_CALL):
                entries = [
                    {
                        "Id": str(index),
                        "ReceiptHandle": message.receipt_handle,
                        "VisibilityTimeout": seconds[message],
                    }
                    for index, message in enumerate(messages[start : start + _ENTRIES_PER_CALL])
                ]
                sqs.call("change_message_visibility_batch", url, entries)

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
        UnsupportedEventError: The event is something else, or one of its records cannot be told from another.
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
    source = _text(record, "eventSource")
    if source != "aws:sqs":
        raise ValueError(f"eventSource is {source[:64]!a}")
    attributes = record.get("attributes") or {}
    return Message(
        message_id=_text(record, "messageId"),
        receipt_handle=_text(record, "receiptHandle"),
        body=_text(record, "body"),
        receive_count=_receive_count(attributes),
        first_received=_first_received(attributes),
        # Standard queues carry a MessageGroupId too (for fair queues), without any promise of order.
        group=(
            _text(attributes, "MessageGroupId")
            if _text(record, "eventSourceARN").endswith(".fifo")
            else None
        ),
    )


def _text(record: Mapping[str, Any], name: str) -> str:
    """A field of a record. Anything else than text would not be the sender's any more, once written as text."""
    value = record[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is no text")
    return value


def _receive_count(attributes: Mapping[str, Any]) -> int:
    try:
        return max(1, int(attributes["ApproximateReceiveCount"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return 1


def _first_received(attributes: Mapping[str, Any]) -> float | None:
    try:
        return int(attributes["ApproximateFirstReceiveTimestamp"]) / 1000
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def unsupported(error: UnsupportedEventError, event: object) -> dict[str, Any]:
    """The answer to an event that is no batch of SQS messages.

    Should it be one all the same, in a form that this code does not know, it must not be taken for done: an empty
    item identifier tells Lambda that the whole batch failed.
    Source: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
    """
    answer: dict[str, Any] = {"errorCode": "UNSUPPORTED_EVENT", "errorMessage": str(error)}
    if isinstance(event, dict) and "Records" in event:
        answer["batchItemFailures"] = [{"itemIdentifier": ""}]
    return answer


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


def decide_changes(
    committer: Committer,
    changes: Sequence[Change],
    deadline: Deadline,
    age: float,
    id_reused_code: str,
    poison_refusals: frozenset[RefusalReason] = frozenset(),
) -> tuple[Report, list[Verdict]]:
    """Let the engine judge changes of stock.

    Args:
        committer: The engine.
        changes: In the order of their arrival.
        deadline: When to stop starting work.
        age: Seconds for which the first of them has been waiting.
        id_reused_code: `errorCode` of a message whose id belongs to another request.
        poison_refusals: Refusals that are no answer, so that the message must not just vanish.

    Returns:
        The engine's report, and a verdict for each change.
    """
    report = committer.apply(changes, deadline, age)
    return report, [
        _verdict(outcome, id_reused_code, poison_refusals) for outcome in report.outcomes
    ]


def _verdict(
    outcome: Outcome, id_reused_code: str, poison_refusals: frozenset[RefusalReason]
) -> Verdict:
    match outcome.ending:
        case Ending.APPLIED:
            return Verdict(End.APPLIED, outcome=outcome)
        case Ending.REPLAYED:
            return Verdict(End.REPLAYED, outcome=outcome)
        case Ending.REFUSED:
            if outcome.refusal is not None and outcome.refusal.reason in poison_refusals:
                return Verdict(End.DEAD_LETTERED, refusal_error(outcome.refusal), outcome=outcome)
            return Verdict(End.REFUSED, outcome=outcome)
        case Ending.ID_REUSED:
            return Verdict(End.DEAD_LETTERED, id_reused_error(id_reused_code), outcome=outcome)
        case Ending.INVALID:
            error = PoisonMessageError(outcome.cause, outcome.detail)
            return Verdict(End.DEAD_LETTERED, error, outcome=outcome)
        case Ending.RETURNED:
            return Verdict(
                End.RETURNED,
                retry_after=outcome.retry_after,
                cause=outcome.cause,
                detail=outcome.detail,
                outcome=outcome,
            )


def id_reused_error(code: str) -> PoisonMessageError:
    """An id that belongs to another request."""
    return PoisonMessageError(
        code,
        "another request was sent under this id before and keeps it; send this one under an id of its own",
    )


def refusal_error(refusal: Refusal) -> PoisonMessageError:
    """A refusal in words."""
    product = refusal.product_id
    words = {
        RefusalReason.UNKNOWN_PRODUCT: f"there is no product {product}; create it first, or correct the id",
        RefusalReason.DISCONTINUED_PRODUCT: f"{product} is discontinued and takes no more orders",
        RefusalReason.INSUFFICIENT_STOCK: f"there is not enough of {product}",
        RefusalReason.BELOW_FLOOR: f"it would take the stock of {product} below its floor (-backorderLimit); "
        "correct the delta, or book what is missing first",
        RefusalReason.ORDER_REJECTED: "the order was rejected and holds no stock; there is nothing to cancel",
    }
    return PoisonMessageError(refusal.reason.value, words[refusal.reason])


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
