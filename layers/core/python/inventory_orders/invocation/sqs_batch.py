"""A batch of SQS messages: read from the event, parsed, and settled once the engine has answered.

Every message ends in one of five ways: applied, replayed, rejected, dead-lettered or returned. It gets its end once, and
is acknowledged only when that end is durable.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Any, Generic, TypeVar

from inventory_orders.clock import Deadline
from inventory_orders.engine.outcomes import ChangeOutcome, outcome_of, returned
from inventory_orders.errors import PoisonMessageError, UnsupportedEventError, Verdict
from inventory_orders.invocation.sqs import Message, QueueAccess, SqsCalls
from inventory_orders.retry import EARLY_DELIVERIES, LONGEST_DELAY_SECONDS, redelivery_delay

T = TypeVar("T")

_BEHIND = returned("BEHIND_A_RETURNED_MESSAGE")

_DONE = (Verdict.APPLIED, Verdict.REPLAYED, Verdict.REJECTED)

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
        is_last = message.copy_of is not None and message.receive_count >= EARLY_DELIVERIES
        return Verdict.POISON if is_last else Verdict.RETURNED


class SqsBatch(Generic[T]):
    """The messages of one invocation on their way to their ends.

    Args:
        messages: In the order in which they count.
        queues: The queues that feed the function.
        end: When the invocation is ended.

    Attributes:
        results: The end of each message, in their order.
        queue_errors: Requests that SQS did not carry out, for the log; their messages have their ends all the same.
    """

    def __init__(self, messages: Sequence[Message], queues: QueueAccess, end: Deadline) -> None:
        self._messages = messages
        self._calls = SqsCalls(queues, end)
        self._contents: dict[Message, T] = {}
        self._outcomes: dict[Message, ChangeOutcome] = {}
        self._dead_lettered: set[Message] = set()
        self._copied: set[Message] = set()
        self.results: list[MessageResult[T]] = []
        self.queue_errors: Sequence[str] = self._calls.errors

    def parse(self, parse: Callable[[Message], T]) -> list[T]:
        """Read every message. Poison leaves here: it is dead-lettered, or returned with all behind it in its group.

        Args:
            parse: Reads one message. Raises PoisonMessageError.

        Returns:
            What the other messages ask for, in their order.
        """
        for message in self._messages:
            try:
                self._contents[message] = parse(message)
            except PoisonMessageError as error:
                self._outcomes[message] = outcome_of(error)
        self._send_dead_letters(self._outcomes)
        unsent = self._outcomes.keys() - self._dead_lettered
        stopped: set[str] = set()
        for message in self._messages:
            if message in unsent:
                stopped.add(message.sequence)
            elif message.sequence in stopped:
                self._outcomes[message] = _BEHIND
        return [self._contents[message] for message in self._asking]

    @property
    def _asking(self) -> list[Message]:
        """The messages whose outcomes are still to come."""
        return [message for message in self._contents if message not in self._outcomes]

    @property
    def age(self) -> float:
        """Seconds since the first of the messages was first received; 0 if SQS does not say, or says nonsense."""
        now = time.time()
        ages = [
            now - m.first_received / 1000 for m in self._messages if m.first_received is not None
        ]
        return max((age for age in ages if 0 <= age <= LONGEST_RETENTION_SECONDS), default=0.0)

    def settle(self, outcomes: Sequence[ChangeOutcome], rules: QueueRules) -> None:
        """Bring every message to its end: the only place where an outcome becomes one.

        Args:
            outcomes: What became of what `parse` returned, one for each.
            rules: What that means for a message.

        Raises:
            ValueError: There are more or fewer outcomes, or the messages have their ends already.
        """
        asking = dict(zip(self._asking, outcomes, strict=True))
        self._outcomes |= asking
        verdicts = {m: rules.verdict(m, outcome) for m, outcome in self._outcomes.items()}
        self._send_dead_letters(
            {m: outcome for m, outcome in asking.items() if verdicts[m] is Verdict.POISON},
            {m for m, verdict in verdicts.items() if verdict is Verdict.RETURNED},
        )
        stopped: set[str] = set()
        for message in self._messages:
            verdict, outcome = verdicts[message], self._outcomes[message]
            if verdict is Verdict.POISON and message not in self._dead_lettered:
                verdict = Verdict.RETURNED
            elif verdict in _DONE and message.sequence in stopped:
                verdict, outcome = Verdict.RETURNED, _BEHIND
            if verdict is Verdict.RETURNED:
                stopped.add(message.sequence)
            content = self._contents.get(message)
            self.results.append(MessageResult(message, verdict, outcome, content))
        rejected = {m for m, said in self._outcomes.items() if said.verdict is Verdict.REJECTED}
        self._delay_returned({m for m in rejected if verdicts[m] is Verdict.RETURNED})

    def _send_dead_letters(
        self,
        poison: Mapping[Message, ChangeOutcome],
        returned: Collection[Message] = (),
    ) -> None:
        """Dead-letter messages, but none that is behind a returned one of its group.

        One of a group that cannot be sent is returned itself, so the next one waits for it.
        """
        lines: dict[str, list[Message]] = {}
        stopped: set[str] = set()
        for message in self._messages:
            if message in returned:
                stopped.add(message.sequence)
            elif message in poison and message.sequence not in stopped:
                lines.setdefault(message.sequence, []).append(message)
        while lines:
            first = {line[0]: poison[line[0]] for line in lines.values()}
            failed = self._calls.send_dead_letters(first)
            self._dead_lettered |= first.keys() - failed
            lines = {
                key: line[1:] for key, line in lines.items() if line[0] not in failed and line[1:]
            }

    def _delay_returned(self, early: Collection[Message]) -> None:
        """Hide returned messages for a backoff, at least for what a lease has left. What came together comes back together.

        A group has the delay of the first: SQS delivers nothing of a group while any message of it is hidden.
        An early message that has used up its count comes back as a copy.
        """
        backoff = functools.cache(redelivery_delay)
        seconds: dict[Message, int] = {}
        of_sequence: dict[str, int] = {}
        again: list[Message] = []
        for result in self.results:
            if result.verdict is Verdict.RETURNED:
                message, outcome = result.message, result.outcome
                delay = max(ceil(outcome.retry_after), backoff(message.receive_count))
                delay = of_sequence.setdefault(message.sequence, min(LONGEST_DELAY_SECONDS, delay))
                seconds[message] = delay
                if message in early and message.receive_count >= EARLY_DELIVERIES:
                    again.append(message)
        self._copied = self._calls.send_copies({m: seconds[m] for m in again})
        self._calls.delay({m: delay for m, delay in seconds.items() if m not in self._copied})

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


def read_messages(event: object) -> list[Message]:
    """The messages of an SQS event: of a standard queue as they were sent, of a FIFO queue as they arrived.

    A standard queue hands them out in any order. A delivery must not be refused because its confirmation stands behind it.

    Raises:
        UnsupportedEventError: The event is something else, or one of its records is no SQS message.
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


def _read_message(record: Mapping[str, Any]) -> Message:
    source = _text(record, "eventSource")
    if source != "aws:sqs":
        raise ValueError(f"eventSource is {source[:64]!a}")
    queue = _text(record, "eventSourceARN").rsplit(":", 1)[-1]
    attributes = record.get("attributes") or {}
    of_copy = _texts(record.get("messageAttributes"))
    return Message(
        message_id=_text(record, "messageId"),
        receipt_handle=_text(record, "receiptHandle"),
        body=_text(record, "body"),
        queue=queue,
        # Standard queues carry a MessageGroupId too (for fair queues), without any promise of order.
        group=_text(attributes, "MessageGroupId") if queue.endswith(".fifo") else None,
        receive_count=_number(attributes, "ApproximateReceiveCount") or 1,
        first_received=_number(attributes, "ApproximateFirstReceiveTimestamp"),
        sent=_number(of_copy, "originalSentTimestamp") or _number(attributes, "SentTimestamp"),
        copy_of=of_copy.get("originalMessageId"),
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


def _number(attributes: Mapping[str, Any], name: str) -> int | None:
    """A number among a record's attributes; None without one, or if it is too long to be a time or a count."""
    text = str(attributes.get(name))
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else None
