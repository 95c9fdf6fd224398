"""A batch of SQS messages: read from the event, parsed, and settled once the engine has answered.

Every message ends in one of five ways: applied, replayed, rejected, dead-lettered or returned. It gets its end once, and
is acknowledged only when that end is durable.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil, inf
from typing import Any, Generic, TypeVar

from inventory_orders.clock import Deadline
from inventory_orders.engine.outcomes import ChangeOutcome, outcome_of, returned
from inventory_orders.errors import InventoryOrdersError, PoisonMessageError, Verdict
from inventory_orders.invocation.sqs import Message, Queues, SqsCalls
from inventory_orders.retry import EARLY_DELIVERIES, LONGEST_DELAY_SECONDS, redelivery_delay

T = TypeVar("T")

Handler = Callable[[Any, Any], dict[str, Any]]


class UnsupportedEventError(InventoryOrdersError):
    """The handler was invoked with something that is not a batch of what it takes."""


_BEHIND = returned("BEHIND_A_RETURNED_MESSAGE")

# SQS keeps no message for longer: docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
LONGEST_RETENTION_SECONDS = 14 * 86400


@dataclass(frozen=True, slots=True)
class MessageResult(Generic[T]):
    """The end of a message.

    Attributes:
        message: The message.
        verdict: Where it ended.
        outcome: What became of what it asked for.
        content: What it asked for; None if it is unreadable.
    """

    message: Message
    verdict: Verdict
    outcome: ChangeOutcome
    content: T | None = None


@dataclass(frozen=True, slots=True)
class QueueRules:
    """Which rejections are no answers to the messages of one kind of queue.

    Attributes:
        may_be_early: What the message lacks may yet come. It is returned, sent again at delivery `EARLY_DELIVERIES`, and
            dead-lettered at that delivery of the copy. Not for FIFO queues.
        poison: The sender or an operator has to act: the message is dead-lettered at once.
    """

    may_be_early: frozenset[str] = frozenset()
    poison: frozenset[str] = frozenset()

    def verdict(self, message: Message, outcome: ChangeOutcome) -> Verdict:
        """Where a message ends, if its dead letter can be sent and no earlier message of its group is returned."""
        if outcome.verdict is Verdict.UNAVAILABLE:
            return Verdict.RETURNED
        if outcome.verdict is not Verdict.REJECTED:
            return outcome.verdict
        if outcome.cause in self.poison:
            return Verdict.POISON
        if outcome.cause not in self.may_be_early:
            return Verdict.REJECTED
        is_last = message.copy_of is not None and _uses_up_count(message)
        return Verdict.POISON if is_last else Verdict.RETURNED


class SqsBatch(Generic[T]):
    """The messages of one invocation on their way to their ends.

    Args:
        messages: In the order in which they count.
        queues: The queues that feed the function.
        end: When the invocation is ended.
    """

    def __init__(self, messages: Sequence[Message], queues: Queues, end: Deadline) -> None:
        self._messages = messages
        self._calls = SqsCalls(queues, end)
        self._contents: dict[Message, T] = {}
        self._results: dict[Message, MessageResult[T]] = {}
        self._copied: set[Message] = set()

    @classmethod
    def read(cls, event: object, queues: Queues, end: Deadline) -> SqsBatch[T]:
        """Read the event of an invocation; parameters as for the class.

        Raises:
            UnsupportedEventError: It is not a batch of SQS messages.
        """
        return cls(read_messages(event), queues, end)

    def parse(self, parse: Callable[[Message], T]) -> list[T]:
        """Read every message. Poison leaves here: it is dead-lettered, or returned with all behind it in its group.

        Args:
            parse: Reads one message. Raises PoisonMessageError.

        Returns:
            What the other messages ask for, in their order.
        """
        contents: dict[Message, T] = {}
        poison: dict[Message, ChangeOutcome] = {}
        for message in self._messages:
            try:
                contents[message] = parse(message)
            except PoisonMessageError as error:
                poison[message] = outcome_of(error)
        unsent = self._send_dead_letters(poison)
        groups = _Groups()
        for message in self._messages:
            if groups.is_stopped(message):
                behind = MessageResult(message, Verdict.RETURNED, _BEHIND, contents.get(message))
                self._end(behind, groups)
            elif message in contents:
                self._contents[message] = contents[message]
            else:
                verdict = Verdict.RETURNED if message in unsent else Verdict.POISON
                self._end(MessageResult(message, verdict, poison[message]), groups)
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
        results = [
            MessageResult(message, rules.verdict(message, outcome), outcome, content)
            for (message, content), outcome in zip(self._contents.items(), outcomes, strict=True)
        ]
        unsent = self._send_dead_letters(
            {r.message: r.outcome for r in results if r.verdict is Verdict.POISON},
            {r.message for r in results if r.verdict is Verdict.RETURNED},
        )
        groups = _Groups()
        for result in results:
            verdict, outcome = result.verdict, result.outcome
            if groups.is_stopped(result.message):
                is_done = verdict in (Verdict.APPLIED, Verdict.REPLAYED, Verdict.REJECTED)
                verdict, outcome = Verdict.RETURNED, _BEHIND if is_done else outcome
            elif result.message in unsent:
                verdict = Verdict.RETURNED
            self._end(replace(result, verdict=verdict, outcome=outcome), groups)
        self._delay_returned()

    def _send_dead_letters(
        self,
        poison: Mapping[Message, ChangeOutcome],
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

    def _end(self, result: MessageResult[T], groups: _Groups) -> None:
        """Give a message its end, once. A returned one stops its group."""
        if result.message in self._results:
            raise ValueError(f"message {result.message.message_id} has ended before")
        self._results[result.message] = result
        if result.verdict is Verdict.RETURNED:
            groups.stop(result.message)

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
            if result.verdict is Verdict.RETURNED:
                message, outcome = result.message, result.outcome
                delay = max(ceil(outcome.retry_after), backoff(message.receive_count))
                delay = min(LONGEST_DELAY_SECONDS, delay)
                if message.group is not None:
                    delay = of_group.setdefault(message.group, delay)
                is_early = outcome.verdict is Verdict.REJECTED
                is_due = is_early and _uses_up_count(message)
                (again if is_due else seconds)[message] = delay
        self._copied = self._calls.send_copies(again)
        self._calls.delay(seconds | {m: again[m] for m in again if m not in self._copied})

    @property
    def results(self) -> tuple[MessageResult[T], ...]:
        """The end of each message, in their order."""
        return tuple(self._results[message] for message in self._messages)

    @property
    def queue_errors(self) -> tuple[str, ...]:
        """Requests that SQS did not carry out, for the log; their messages have their ends all the same."""
        return tuple(self._calls.errors)

    @property
    def response(self) -> dict[str, Any]:
        """The answer to Lambda's event source: what to deliver again."""
        return {
            "batchItemFailures": [
                {"itemIdentifier": result.message.message_id}
                for result in self.results
                if result.verdict is Verdict.RETURNED and result.message not in self._copied
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


def is_from_standard_queue(event: object, queues: Queues) -> bool:
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
            answer: dict[str, Any] = {
                "result": "INVALID",
                "code": "UNSUPPORTED_EVENT",
                "message": str(error),
            }
            if isinstance(event, dict) and "Records" in event:
                answer["batchItemFailures"] = [{"itemIdentifier": ""}]
            return answer

    return handle
