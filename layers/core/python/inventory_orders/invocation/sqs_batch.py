"""A batch of SQS messages: read from the event, parsed, and settled once the engine has answered.

Every message ends in one of five ways: applied, replayed, rejected, dead-lettered or returned. Its end is decided once, and
the message is only acknowledged when that end is durable.
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
from inventory_orders.errors import InvalidMessageError, Outcome, UnsupportedEventError
from inventory_orders.invocation.sqs import Message, Queue, SqsCalls
from inventory_orders.retry import EARLY_DELIVERIES, LONGEST_DELAY_SECONDS, redelivery_delay
from inventory_orders.sequences import followers

T = TypeVar("T")

# SQS does not keep messages longer: docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
LONGEST_RETENTION_SECONDS = 14 * 86400


@dataclass(frozen=True, slots=True)
class QueueRules:
    """Rejections that do not count as answers to the messages of one kind of queue.

    Attributes:
        may_be_early: What the message needs may still arrive. It is returned, sent again at delivery `EARLY_DELIVERIES`, and
            dead-lettered at that delivery of the copy. Not for FIFO queues.
        invalid: The sender or an operator has to act: the message is dead-lettered immediately.
    """

    may_be_early: frozenset[str] = frozenset()
    invalid: frozenset[str] = frozenset()

    def end_of(self, message: Message, outcome: ChangeOutcome) -> Outcome:
        """How a message ends, if its dead letter can be sent and no earlier message of its group is returned."""
        if outcome.kind is Outcome.UNAVAILABLE:
            return Outcome.RETURNED
        if outcome.kind is not Outcome.REJECTED:
            return outcome.kind
        if outcome.cause in self.invalid:
            return Outcome.INVALID
        if outcome.cause not in self.may_be_early:
            return Outcome.REJECTED
        is_copy = message.original_id != message.message_id
        is_last = is_copy and message.receive_count >= EARLY_DELIVERIES
        return Outcome.INVALID if is_last else Outcome.RETURNED


class SqsBatch(Generic[T]):
    """The messages of one invocation, and what becomes of them.

    Args:
        messages: In the order in which they are to be processed.
        queue: The queue that feeds the function, with its FIFO counterpart.
        end: When the invocation times out.

    Attributes:
        contents: The parsed content of each valid message.
        outcomes: The outcome of each message, or why it cannot be parsed.
        ends: How each message ended, in order. Before `settle`, only messages that did not become changes.
        queue_errors: Failed requests to SQS, for the log. Their messages have an end regardless.
    """

    def __init__(self, messages: Sequence[Message], queue: Queue, end: Deadline) -> None:
        self._messages = messages
        # All messages in a batch came from one queue.
        is_fifo = any(message.group is not None for message in messages)
        self._calls = SqsCalls(queue.fifo if is_fifo and queue.fifo else queue, end)
        self._returned: set[Message] = set()
        self._copied: set[Message] = set()
        self.contents: dict[Message, T] = {}
        self.outcomes: dict[Message, ChangeOutcome] = {}
        self.ends: dict[Message, Outcome] = {}
        self.queue_errors: Sequence[str] = self._calls.errors

    def parse(self, parse: Callable[[Message], T]) -> list[T]:
        """Parse every message. Invalid ones are dead-lettered, or else returned with all that follow in their group.

        Args:
            parse: Parses one message. Raises InvalidMessageError.

        Returns:
            The content of the other messages, in order.
        """
        for message in self._messages:
            try:
                self.contents[message] = parse(message)
            except InvalidMessageError as error:
                self.outcomes[message] = outcome_of(error)
        self._end(dict.fromkeys(self.outcomes, Outcome.INVALID))
        return [self.contents[message] for message in self.contents if message not in self.ends]

    @property
    def age(self) -> float:
        """Seconds since the first of the messages was first received; 0 if SQS does not say, or the value is implausible."""
        now = time.time()
        ages = [
            now - m.first_received / 1000 for m in self._messages if m.first_received is not None
        ]
        return max((age for age in ages if 0 <= age <= LONGEST_RETENTION_SECONDS), default=0.0)

    def settle(self, outcomes: Sequence[ChangeOutcome], rules: QueueRules = QueueRules()) -> None:
        """Give every message its end, and hide returned messages for a while.

        Args:
            outcomes: The outcome of each item that `parse` returned.
            rules: How outcomes become ends of messages.

        Raises:
            ValueError: The number of outcomes differs, or the messages already have their ends.
        """
        without_end = [message for message in self.contents if message not in self.ends]
        asked = dict(zip(without_end, outcomes, strict=True))
        self.outcomes |= asked
        ends = {message: rules.end_of(message, outcome) for message, outcome in asked.items()}
        early = {
            message
            for message, outcome in asked.items()
            if outcome.kind is Outcome.REJECTED and ends[message] is Outcome.RETURNED
        }
        self._end(ends)
        self.ends = {message: self.ends[message] for message in self._messages}
        if self._returned:
            self._delay_returned(early)

    def _end(self, ends: Mapping[Message, Outcome]) -> None:
        """Give messages their ends, unless a dead letter fails: the only place where an outcome becomes the end of a message."""
        self.ends |= ends
        self._returned.update(m for m, end in ends.items() if end is Outcome.RETURNED)
        invalid = [message for message, end in ends.items() if end is Outcome.INVALID]
        if invalid:
            self._returned |= self._send_dead_letters(invalid)
        for message in followers(self._messages, self._returned.__contains__):
            # A dead letter that was already sent stays one.
            if self.ends.get(message) is not Outcome.INVALID:
                self._returned.add(message)
                self.outcomes[message] = returned("BEHIND_A_RETURNED_MESSAGE")
        self.ends |= dict.fromkeys(self._returned, Outcome.RETURNED)

    def _send_dead_letters(self, invalid: Sequence[Message]) -> set[Message]:
        """Dead-letter messages, one after the other within a group. Returns the ones that SQS refused, and any behind them."""
        unsent: set[Message] = set()
        while invalid:
            blocked = followers(self._messages, (self._returned | unsent).__contains__)
            unsent.update(set(invalid).intersection(blocked))
            waiting = [message for message in invalid if message not in unsent]
            first = {message.sequence: message for message in reversed(waiting)}
            letters = {message: self.outcomes[message] for message in reversed(first.values())}
            unsent |= self._calls.send_dead_letters(letters)
            invalid = [message for message in waiting if message not in letters]
        return unsent

    def _delay_returned(self, early: Collection[Message]) -> None:
        """Hide returned messages for a backoff, and at least until a lease ends. Messages that came together return together.

        A group has the delay of its first message, because SQS delivers nothing of a group while any of its messages is hidden.
        An early message that has used up its deliveries comes back as a copy.
        """
        backoff = functools.cache(redelivery_delay)
        seconds: dict[Message, int] = {}
        of_sequence: dict[str, int] = {}
        for message in filter(self._returned.__contains__, self._messages):
            delay = max(ceil(self.outcomes[message].retry_after), backoff(message.receive_count))
            delay = min(LONGEST_DELAY_SECONDS, delay)
            seconds[message] = of_sequence.setdefault(message.sequence, delay)
        again = {
            message: delay
            for message, delay in seconds.items()
            if message in early and message.receive_count >= EARLY_DELIVERIES
        }
        self._copied = self._calls.send_copies(again)
        self._calls.delay({m: delay for m, delay in seconds.items() if m not in self._copied})

    @property
    def response(self) -> dict[str, Any]:
        """The response to Lambda's event source: which messages to deliver again."""
        return {
            "batchItemFailures": [
                {"itemIdentifier": message.message_id}
                for message in self._messages
                if message in self._returned and message not in self._copied
            ]
        }


def is_queue_event(event: object) -> bool:
    """Whether a handler was invoked by a queue, not directly."""
    return isinstance(event, dict) and "Records" in event


def read_messages(event: object) -> list[Message]:
    """Read the messages of an SQS event: from a standard queue in the order sent, from a FIFO queue in the order received.

    A standard queue delivers in any order, and a fulfilment must not be refused because its confirmation comes later in the batch.

    Raises:
        UnsupportedEventError: It is not an SQS event, or one of its records is not an SQS message.
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
            f"a record of the event is not an SQS message ({type(error).__name__}: {error})"
        ) from error
    # Messages without a known time come last.
    return sorted(messages, key=lambda m: inf if m.group is not None else m.sent or inf)


def _read_message(record: Mapping[str, Any]) -> Message:
    for name in ("eventSource", "eventSourceARN", "messageId", "receiptHandle", "body"):
        # Converted to a string, anything else would no longer be what the sender wrote.
        if not isinstance(record[name], str):
            raise TypeError(f"{name} is not a string")
    if record["eventSource"] != "aws:sqs":
        raise ValueError(f"eventSource is {record['eventSource'][:64]!a}")
    queue = record["eventSourceARN"].rsplit(":", 1)[-1]
    attributes = record.get("attributes") or {}
    of_sender = record.get("messageAttributes", {})
    of_copy = {name: value.get("stringValue") for name, value in of_sender.items()}
    return Message(
        message_id=record["messageId"],
        receipt_handle=record["receiptHandle"],
        body=record["body"],
        queue=queue,
        # Messages in standard queues may have a MessageGroupId too (for fair queues), without any guarantee of order.
        group=str(attributes["MessageGroupId"]) if queue.endswith(".fifo") else None,
        receive_count=_number(attributes, "ApproximateReceiveCount") or 1,
        first_received=_number(attributes, "ApproximateFirstReceiveTimestamp"),
        sent=_number(of_copy, "originalSentTimestamp") or _number(attributes, "SentTimestamp"),
        original_id=of_copy.get("originalMessageId") or record["messageId"],
    )


def _number(attributes: Mapping[str, Any], name: str) -> int | None:
    """A number in a record's attributes; None if it is missing, or too long to be a time or a count."""
    text = str(attributes.get(name))
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else None
