"""A batch of SQS messages: read from the event, parsed, and settled once the engine has answered.

Every message ends in one of five ways: applied, replayed, rejected, dead-lettered or returned. It gets its end once, and
all but the returned ones are acknowledged only when that end is durable.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum, auto
from math import ceil, inf
from typing import Any, Generic, TypeVar

from inventory_orders.domain.change import RejectionReason
from inventory_orders.engine.outcomes import ChangeOutcome, ChangeStatus
from inventory_orders.errors import (
    InventoryOrdersError,
    PoisonMessageError,
    id_reused_error,
)
from inventory_orders.invocation.sqs import Message, SourceQueues, SqsCalls
from inventory_orders.retry import EARLY_DELIVERIES, LONGEST_DELAY_SECONDS, redelivery_delay

T = TypeVar("T")

Handler = Callable[[Any, Any], dict[str, Any]]


class UnsupportedEventError(InventoryOrdersError):
    """The handler was invoked with something that is not a batch of what it takes."""


class Disposition(Enum):
    """Where a message ended."""

    APPLIED = auto()
    REPLAYED = auto()
    REJECTED = auto()
    DEAD_LETTERED = auto()
    RETURNED = auto()


RETURNED = Disposition.RETURNED

# SQS keeps no message for longer: docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
LONGEST_RETENTION_SECONDS = 14 * 86400


@dataclass(frozen=True, slots=True)
class MessageResult(Generic[T]):
    """What became of a message.

    Attributes:
        message: The message.
        disposition: Where it ended.
        content: What it asked for; None if it is unreadable.
        outcome: The engine's answer, if it was asked.
        error: Why it is poison; also of one that was returned because its dead letter could not be sent.
        cause: Why, as a stable code: of a returned one, and of a replay that changed nothing.
        detail: The same in words.
        is_early: Whether it was returned because what it lacks may yet come.
    """

    message: Message
    disposition: Disposition
    content: T | None = None
    outcome: ChangeOutcome | None = None
    error: PoisonMessageError | None = None
    cause: str = ""
    detail: str = ""
    is_early: bool = False

    @property
    def retry_after(self) -> float:
        """Seconds before a retry makes sense, where that is known; else 0."""
        return self.outcome.retry_after if self.outcome is not None else 0.0


@dataclass(frozen=True, slots=True)
class QueueRules:
    """What the outcomes of changes mean for the messages of one kind of queue.

    Attributes:
        id_reused_code: `errorCode` of a message whose id belongs to another request.
        may_be_early: Rejections that are no answer: what the message lacks may yet come. It is returned, sent again at
            delivery `EARLY_DELIVERIES`, and dead-lettered at that delivery of the copy. Not for FIFO queues.
        poison: Rejections that are no answer, and for which somebody has to do something: the message is
            dead-lettered at once.
    """

    id_reused_code: str
    may_be_early: frozenset[RejectionReason] = frozenset()
    poison: frozenset[RejectionReason] = frozenset()


class SqsBatch(Generic[T]):
    """The messages of one invocation on their way to their ends.

    Args:
        messages: In the order in which they count.
        queues: The queues that feed the function.
        time_left: Seconds until the invocation is ended.
    """

    def __init__(
        self, messages: Sequence[Message], queues: SourceQueues, time_left: Callable[[], float]
    ) -> None:
        self._messages = messages
        self._calls = SqsCalls(queues, time_left)
        self._contents: dict[Message, T] = {}
        self._results: dict[Message, MessageResult[T]] = {}
        self._copied: set[Message] = set()

    @classmethod
    def read(
        cls, event: object, queues: SourceQueues, time_left: Callable[[], float]
    ) -> SqsBatch[T]:
        """Read the event of an invocation; parameters as for the class.

        Raises:
            UnsupportedEventError: It is not a batch of SQS messages.
        """
        return cls(read_messages(event), queues, time_left)

    def parse(self, parse: Callable[[Message], T]) -> list[T]:
        """Read every message. Poison leaves here: it is dead-lettered, or returned with all behind it in its group.

        Args:
            parse: Reads one message. Raises PoisonMessageError.

        Returns:
            What the other messages ask for, in their order.
        """
        contents: dict[Message, T] = {}
        poison: dict[Message, PoisonMessageError] = {}
        for message in self._messages:
            try:
                contents[message] = parse(message)
            except PoisonMessageError as error:
                poison[message] = error
        unsent = self._send_dead_letters(poison)
        groups = _Groups()
        for message in self._messages:
            if groups.is_stopped(message):
                self._end(_behind(MessageResult(message, RETURNED, contents.get(message))))
            elif message in contents:
                self._contents[message] = contents[message]
            elif message in unsent:
                self._end(MessageResult(message, RETURNED, error=poison[message]))
                groups.stop(message)
            else:
                self._end(MessageResult(message, Disposition.DEAD_LETTERED, error=poison[message]))
        return list(self._contents.values())

    @property
    def age(self) -> float:
        """Seconds since the first of the messages was first received; 0 if SQS does not say, or says nonsense."""
        now = time.time()
        ages = [now - m.first_received for m in self._messages if m.first_received is not None]
        return max((age for age in ages if 0 <= age <= LONGEST_RETENTION_SECONDS), default=0.0)

    def settle(self, outcomes: Sequence[ChangeOutcome], rules: QueueRules) -> None:
        """Bring every message to its end: the only place where an outcome becomes one.

        Args:
            outcomes: What became of what `parse` returned, one for each.
            rules: What that means for a message.
        """
        intended = [
            self._intend(MessageResult(message, RETURNED, content, outcome), outcome, rules)
            for (message, content), outcome in zip(self._contents.items(), outcomes, strict=True)
        ]
        unsent = self._send_dead_letters(
            {result.message: result.error for result in intended if result.error is not None},
            {result.message for result in intended if result.disposition is RETURNED},
        )
        groups = _Groups()
        for result in intended:
            if groups.is_stopped(result.message):
                self._end(_behind(result))
                continue
            if result.message in unsent:
                result = replace(result, disposition=RETURNED)  # noqa: PLW2901 - its end, at last
            self._end(result)
            if result.disposition is RETURNED:
                groups.stop(result.message)
        self._delay_returned()

    def _intend(
        self, result: MessageResult[T], outcome: ChangeOutcome, rules: QueueRules
    ) -> MessageResult[T]:
        """The end that an outcome calls for, if its dead letter can be sent and nothing before it is returned."""
        match outcome.status:
            case ChangeStatus.APPLIED:
                return replace(result, disposition=Disposition.APPLIED)
            case ChangeStatus.REPLAYED:
                return replace(result, disposition=Disposition.REPLAYED, cause=outcome.cause)
            case ChangeStatus.RETURNED:
                return replace(result, cause=outcome.cause, detail=outcome.detail)
            case ChangeStatus.ID_REUSED:
                return _dead_letter(result, id_reused_error(rules.id_reused_code))
            case ChangeStatus.INVALID:
                return _dead_letter(result, PoisonMessageError(outcome.cause, outcome.detail))
        rejection = outcome.rejection
        if rejection is None or rejection.reason not in rules.may_be_early | rules.poison:
            return replace(result, disposition=Disposition.REJECTED)
        error = rejection.error()
        is_copy = result.message.copy_of is not None
        if rejection.reason in rules.poison or (is_copy and _uses_up_count(result.message)):
            return _dead_letter(result, error)
        return replace(result, cause=error.code, detail=error.message, is_early=True)

    def _send_dead_letters(
        self,
        poison: Mapping[Message, PoisonMessageError],
        returned: Collection[Message] = (),
    ) -> set[Message]:
        """Dead-letter messages, but none that is behind a returned one of its group. Returns those that were not sent.

        One of a group that cannot be sent is returned itself, so the next one waits for it.
        """
        lines: dict[str | Message, list[Message]] = {}
        groups = _Groups()
        for message in self._messages:
            if message in returned:
                groups.stop(message)
            elif message in poison and not groups.is_stopped(message):
                lines.setdefault(message if message.group is None else message.group, []).append(
                    message
                )
        unsent = set(poison)
        while lines:
            failed = self._calls.send_dead_letters(
                {line[0]: poison[line[0]] for line in lines.values()}
            )
            unsent -= {line[0] for line in lines.values()} - failed
            lines = {
                key: line[1:] for key, line in lines.items() if line[0] not in failed and line[1:]
            }
        return unsent

    def _end(self, result: MessageResult[T]) -> None:
        """A message gets its end, once."""
        if result.message in self._results:
            raise ValueError(f"message {result.message.message_id} has ended before")
        self._results[result.message] = result

    def _delay_returned(self) -> None:
        """Hide returned messages for a backoff, at least for what a lease has left. What came together comes back together.

        A group has the delay of the first: SQS delivers nothing of a group while any message of it is hidden.
        An early message that has used up its count comes back as a copy.
        """
        backoff = functools.cache(redelivery_delay)
        seconds: dict[Message, int] = {}
        again: dict[Message, int] = {}
        of_group: dict[str, int] = {}
        for result in self.results:
            if result.disposition is RETURNED:
                message = result.message
                delay = max(ceil(result.retry_after), backoff(message.receive_count))
                delay = min(LONGEST_DELAY_SECONDS, delay)
                if message.group is not None:
                    delay = of_group.setdefault(message.group, delay)
                is_due = result.is_early and _uses_up_count(message)
                (again if is_due else seconds)[message] = delay
        self._copied = self._calls.send_copies(again)
        self._calls.delay(seconds | {m: again[m] for m in again if m not in self._copied})

    @property
    def results(self) -> tuple[MessageResult[T], ...]:
        """What became of each message, in their order."""
        return tuple(self._results[message] for message in self._messages)

    @property
    def queue_errors(self) -> tuple[str, ...]:
        """What SQS did not do, for the log; the messages concerned are accounted for all the same."""
        return tuple(self._calls.errors)

    @property
    def response(self) -> dict[str, Any]:
        """The answer to Lambda's event source: what to deliver again."""
        return {
            "batchItemFailures": [
                {"itemIdentifier": result.message.message_id}
                for result in self.results
                if result.disposition is RETURNED and result.message not in self._copied
            ]
        }


class _Groups:
    """Groups of which a message was returned: all behind it are returned too, so that their order is kept."""

    def __init__(self) -> None:
        self._stopped: set[str] = set()

    def stop(self, message: Message) -> None:
        if message.group is not None:
            self._stopped.add(message.group)

    def is_stopped(self, message: Message) -> bool:
        return message.group in self._stopped


def _uses_up_count(message: Message) -> bool:
    """Whether an early message was delivered as often as one may be."""
    return message.receive_count >= EARLY_DELIVERIES


def _dead_letter(result: MessageResult[T], error: PoisonMessageError) -> MessageResult[T]:
    return replace(result, disposition=Disposition.DEAD_LETTERED, error=error)


def _behind(result: MessageResult[T]) -> MessageResult[T]:
    """The result of a message that stands behind a returned one of its group."""
    cause = result.cause or "BEHIND_A_RETURNED_MESSAGE"
    return replace(result, disposition=RETURNED, cause=cause)


def read_messages(event: object) -> list[Message]:
    """The messages of an SQS event: of a standard queue as they were sent, of a FIFO queue as they arrived.

    A standard queue hands them out in any order. A delivery must not be refused because its confirmation stands behind it.

    Raises:
        UnsupportedEventError: The event is something else, or one of its records cannot be told from another.
    """
    if not isinstance(event, dict) or not isinstance(event.get("Records"), list):
        raise UnsupportedEventError(
            'this function takes batches of SQS messages: {"Records": [{"messageId": ..., "body": ...}]}; '
            "see events/ for samples"
        )
    try:
        messages = [_read_message(record) for record in event["Records"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnsupportedEventError(
            f"a record of the event is no SQS message ({type(error).__name__}: {error})"
        ) from error
    return sorted(messages, key=_sent_or_last)


def _sent_or_last(message: Message) -> float:
    return inf if message.sent is None or message.group is not None else message.sent


def is_from_standard_queue(event: object, queues: SourceQueues) -> bool:
    """Whether a batch is of a standard queue. All of its messages are of one queue."""
    records = event.get("Records") if isinstance(event, dict) else None
    first = records[0] if isinstance(records, list) and records else None
    source = first.get("eventSourceARN") if isinstance(first, dict) else None
    name = queues.standard.url.rsplit("/", 1)[-1]
    return isinstance(source, str) and source.rsplit(":", 1)[-1] == name


def _read_message(record: Mapping[str, Any]) -> Message:
    source = _text(record, "eventSource")
    if source != "aws:sqs":
        raise ValueError(f"eventSource is {source[:64]!a}")
    attributes = record.get("attributes") or {}
    of_copy = _texts(record.get("messageAttributes"))
    return Message(
        message_id=_text(record, "messageId"),
        receipt_handle=_text(record, "receiptHandle"),
        body=_text(record, "body"),
        receive_count=_receive_count(attributes),
        first_received=_seconds(attributes, "ApproximateFirstReceiveTimestamp"),
        sent=_seconds(of_copy, "originalSentTimestamp") or _seconds(attributes, "SentTimestamp"),
        copy_of=of_copy.get("originalMessageId"),
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


def _texts(attributes: object) -> dict[str, str]:
    """Those message attributes of a record that are texts."""
    named = attributes.items() if isinstance(attributes, dict) else ()
    values = {name: value.get("stringValue") for name, value in named if isinstance(value, dict)}
    return {name: text for name, text in values.items() if isinstance(text, str)}


def _receive_count(attributes: Mapping[str, Any]) -> int:
    try:
        return max(1, int(attributes["ApproximateReceiveCount"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return 1


def _seconds(attributes: Mapping[str, Any], name: str) -> float | None:
    """A Unix second among a record's attributes; None without one, or if no calendar has it."""
    try:
        seconds = int(attributes[name]) / 1000
        datetime.fromtimestamp(seconds, UTC)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
    return seconds


def refuse_unsupported_events(handler: Handler) -> Handler:
    """Decorate a handler that reads a batch: another event is answered with what to do, and nothing is done.

    Should the event be a batch all the same, in a form that this code does not know, it must not be taken for done: an
    empty item identifier tells Lambda that the whole batch failed.
    Source: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
    """

    @functools.wraps(handler)
    def handle(event: Any, context: Any) -> dict[str, Any]:
        try:
            return handler(event, context)
        except UnsupportedEventError as error:
            answer: dict[str, Any] = {"errorCode": "UNSUPPORTED_EVENT", "errorMessage": str(error)}
            if isinstance(event, dict) and "Records" in event:
                answer["batchItemFailures"] = [{"itemIdentifier": ""}]
            return answer

    return handle
