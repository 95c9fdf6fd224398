"""Reads a batch of SQS messages, parses them, and settles them once the engine has answered.

Every message ends in one of five ways: applied, replayed, rejected, dead-lettered or returned. This is decided once for each
message, and the message is acknowledged only after the result is durable.
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

# SQS keeps messages at most that long: docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
LONGEST_RETENTION_SECONDS = 14 * 86400


@dataclass(frozen=True, slots=True)
class QueueRules:
    """The rejections after which a message is returned or dead-lettered. After any other rejection, it is done.

    Attributes:
        may_be_early: The message may have come too early, for example before its order, so it is returned. At delivery number
            `EARLY_DELIVERIES`, a copy replaces it. If the copy reaches the same number, it is dead-lettered. A message from a
            FIFO queue is dead-lettered immediately, because all earlier messages of its group are done.
        invalid: The sender or an operator has to act, so the message is dead-lettered immediately.
    """

    may_be_early: frozenset[str] = frozenset()
    invalid: frozenset[str] = frozenset()

    def end_of(self, message: Message, outcome: ChangeOutcome) -> Outcome:
        """How a message should end. It is returned after all if its dead letter cannot be sent, or if its group has to wait."""
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
        return Outcome.INVALID if is_last or message.group is not None else Outcome.RETURNED


class SqsBatch(Generic[T]):
    """The SQS messages of one invocation, and how each of them ends.

    Args:
        messages: The messages, in the order in which to process them.
        queue: The queue that they came from.
        end: When the invocation times out.

    Attributes:
        contents: The parsed content of each valid message.
        outcomes: The outcome of each message, or why it cannot be parsed.
        ends: How each message ended, in order. Before `settle`, it only has messages that could not be parsed, or had to wait.
        calls: The calls to SQS, with their errors.
        age: Seconds from the first delivery of the oldest message to this one; 0 if SQS does not say or the value is
            implausible.
    """

    def __init__(self, messages: Sequence[Message], queue: Queue, end: Deadline) -> None:
        self._messages = messages
        self.calls = SqsCalls(queue, end)
        self.contents: dict[Message, T] = {}
        self.outcomes: dict[Message, ChangeOutcome] = {}
        self.ends: dict[Message, Outcome] = {}
        now = time.time()
        ages = [now - m.first_received / 1000 for m in messages if m.first_received is not None]
        self.age = max((age for age in ages if 0 <= age <= LONGEST_RETENTION_SECONDS), default=0.0)

    def parse(self, parse: Callable[[Message], T]) -> list[T]:
        """Parse every message, and dead-letter invalid ones. If sending fails, return them and later messages of their groups.

        Args:
            parse: Parses one message, or raises InvalidMessageError.

        Returns:
            The contents of the valid messages, in order.
        """
        for message in self._messages:
            try:
                self.contents[message] = parse(message)
            except InvalidMessageError as error:
                self.outcomes[message] = outcome_of(error)
        self._end(dict.fromkeys(self.outcomes, Outcome.INVALID))
        return [self.contents[message] for message in self.contents if message not in self.ends]

    def settle(
        self, outcomes: Sequence[ChangeOutcome], rules: QueueRules = QueueRules()
    ) -> dict[str, Any]:
        """Decide how every message ends, and hide the returned ones for a while.

        Args:
            outcomes: The outcome of each item that `parse` returned.
            rules: The rejections after which a message of this queue is returned or dead-lettered.

        Returns:
            The response to Lambda, which names the messages to deliver again.

        Raises:
            ValueError: The number of outcomes is wrong, or the messages were already settled.
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
        again = self._delay_returned(early) if Outcome.RETURNED in self.ends.values() else []
        return {"batchItemFailures": [{"itemIdentifier": m.message_id} for m in again]}

    def _end(self, ends: Mapping[Message, Outcome]) -> None:
        """End messages as decided, except for those that cannot be dead-lettered or follow a returned message: return these."""
        self.ends |= ends
        stopped = {m for m, end in self.ends.items() if end is Outcome.RETURNED}
        invalid = [m for m, end in ends.items() if end is Outcome.INVALID]
        if not stopped and not invalid:
            return
        unsent = self._send_dead_letters(invalid, stopped)
        for message in followers(self._messages, {*stopped, *unsent}.__contains__):
            # A message whose dead letter was already sent must not be delivered again.
            if self.ends.get(message) is not Outcome.INVALID:
                self.ends[message] = Outcome.RETURNED
                self.outcomes[message] = returned("BEHIND_A_RETURNED_MESSAGE")
        self.ends |= dict.fromkeys(unsent, Outcome.RETURNED)

    def _send_dead_letters(
        self, invalid: Sequence[Message], stopped: Collection[Message]
    ) -> set[Message]:
        """Send dead letters, in sequence within each group, but none that follows a stopped message of its group.

        Returns the messages that were not sent: those that SQS refused, and those that follow them or a stopped message.
        """
        unsent: set[Message] = set()
        while invalid:
            blocked = followers(self._messages, {*stopped, *unsent}.__contains__)
            unsent.update(set(invalid).intersection(blocked))
            waiting = [message for message in invalid if message not in unsent]
            first = {message.sequence: message for message in reversed(waiting)}
            letters = {message: self.outcomes[message] for message in reversed(first.values())}
            unsent |= self.calls.send_dead_letters(letters)
            invalid = [message for message in waiting if message not in letters]
        return unsent

    def _delay_returned(self, early: Collection[Message]) -> list[Message]:
        """Hide returned messages for a backoff, and at least until the lease that they wait for ends.

        Messages with the same receive count get the same delay, so that they form a batch again. A group gets the delay of its
        first message, because SQS delivers no message of a group while one is hidden. An early message that has used up its
        deliveries is replaced by a copy.

        Returns:
            The messages that were not replaced, and so have to be delivered again.
        """
        backoff = functools.cache(redelivery_delay)
        seconds: dict[Message, int] = {}
        of_sequence: dict[str, int] = {}
        for message in (m for m, end in self.ends.items() if end is Outcome.RETURNED):
            delay = max(ceil(self.outcomes[message].retry_after), backoff(message.receive_count))
            seconds[message] = of_sequence.setdefault(
                message.sequence, min(LONGEST_DELAY_SECONDS, delay)
            )
        used_up = {
            message: delay
            for message, delay in seconds.items()
            if message in early and message.receive_count >= EARLY_DELIVERIES
        }
        copied = self.calls.send_copies(used_up)
        again = {message: delay for message, delay in seconds.items() if message not in copied}
        self.calls.delay(again)
        return list(again)


def read_messages(event: object) -> list[Message] | None:
    """Read the messages of an SQS event; None if the event is not a batch, but a direct invocation or an HTTP request.

    Messages from a standard queue are sorted by the time when they were sent. In one batch, such a queue may deliver a
    fulfilment before the order's confirmation, but must not be refused for that reason. A FIFO queue delivers in order.

    Raises:
        UnsupportedEventError: The batch does not come from SQS, or a record in it is not an SQS message.
    """
    if not isinstance(event, dict) or "Records" not in event:
        return None
    if not isinstance(event["Records"], list):
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
    # Messages whose time is unknown come last.
    return sorted(messages, key=lambda m: inf if m.group is not None else m.sent or inf)


def _read_message(record: Mapping[str, Any]) -> Message:
    for name in ("eventSource", "eventSourceARN", "messageId", "receiptHandle", "body"):
        # A conversion to a string would change what the sender wrote.
        if not isinstance(record[name], str):
            raise TypeError(f"{name} is not a string")
    if record["eventSource"] != "aws:sqs":
        raise ValueError(f"eventSource is {record['eventSource'][:64]!a}")
    queue = record["eventSourceARN"].rsplit(":", 1)[-1]
    attributes = record.get("attributes") or {}
    of_copy = {
        name: str(value.get("stringValue") or "")
        for name, value in record.get("messageAttributes", {}).items()
    }
    return Message(
        message_id=record["messageId"],
        receipt_handle=record["receiptHandle"],
        body=record["body"],
        queue=queue,
        group=str(attributes["MessageGroupId"]) if queue.endswith(".fifo") else None,
        group_id=str(attributes.get("MessageGroupId", "")),
        receive_count=_number(attributes, "ApproximateReceiveCount") or 1,
        first_received=_number(attributes, "ApproximateFirstReceiveTimestamp"),
        sent=_number(of_copy, "originalSentTimestamp", _number(attributes, "SentTimestamp")),
        original_id=of_copy.get("originalMessageId") or record["messageId"],
        request_id=of_copy.get("requestId", ""),
        placed_by=of_copy.get("placedBy", ""),
    )


def _number(attributes: Mapping[str, Any], name: str, default: int | None = None) -> int | None:
    """Read a number from an attribute. The default is for an attribute that is missing, or too long to be a time or a count."""
    text = str(attributes.get(name))
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else default
