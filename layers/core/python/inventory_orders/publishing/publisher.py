"""Publishes events on a bus: each until the bus has taken it, and those of one subject one after the other."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.clock import Clock, Deadline, timestamp
from inventory_orders.domain.events import SCHEMA_VERSION, SOURCE, Event, to_json
from inventory_orders.errors import UnpublishableError
from inventory_orders.retry import RetryPolicy
from inventory_orders.sequences import in_portions

# The publisher decides about repetitions, so the client makes none.
CLIENT_CONFIG = Config(
    connect_timeout=1,
    read_timeout=3,
    retries={"total_max_attempts": 1, "mode": "standard"},
    tcp_keepalive=True,
)

MAX_ENTRIES = 10
"""docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEvents.html"""

MAX_BYTES = 1_000_000
"""All entries of a call are smaller together: docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEvents.html. That
page says 1 MB; in decimal, an event with the bus's own fields also fits into a consumer's queue, which takes 1 MiB."""

_NOT_RETRYABLE = {
    # Codes that AWS calls so: docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEventsResultEntry.html
    "AccessDeniedException",
    "InvalidAccountIdException",
    "InvalidArgument",
    "MalformedDetail",
    "NotAuthorizedForDetailTypeException",
    "NotAuthorizedForSourceException",
    "RedactionFailure",
    # Codes for a call as a whole.
    *("ValidationException", "ValidationError", "InvalidParameterValue", "413"),
}


@dataclass(frozen=True, slots=True)
class BusEntry:
    """An entry of PutEvents.

    Attributes:
        detail_type: What has happened.
        detail: JSON.
    """

    detail_type: str
    detail: str

    @property
    def size(self) -> int:
        """Bytes, as EventBridge counts them.

        docs.aws.amazon.com/eventbridge/latest/userguide/eb-putevents.html
        """
        return sum(len(text.encode()) for text in (SOURCE, self.detail_type, self.detail))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the bus did not take an entry, or perhaps did not: the answer may have been lost.

    Attributes:
        code: EventBridge's, or the name of the client's exception.
        message: In words.
        is_shared: Whether the whole call was refused, and had other entries, of which one may be to blame.
    """

    code: str
    message: str
    is_shared: bool = False

    @property
    def is_retryable(self) -> bool:
        """Whether the bus may take the same entry later. An unknown code says nothing against it."""
        return self.code not in _NOT_RETRYABLE


@dataclass(frozen=True, slots=True)
class Bus:
    """One event bus: the only code that talks to EventBridge.

    Attributes:
        client: Of EventBridge; `CLIENT_CONFIG` is meant for it.
        name: The bus.
    """

    client: Any
    name: str

    def put(self, entries: Sequence[BusEntry]) -> list[Refusal | None]:
        """Send one call. Returns for each entry None if the bus has taken it, else why not."""
        request = [
            {
                "EventBusName": self.name,
                "Source": SOURCE,
                "DetailType": entry.detail_type,
                "Detail": entry.detail,
            }
            for entry in entries
        ]
        try:
            answers = self.client.put_events(Entries=request)["Entries"]
        except (ClientError, BotoCoreError) as error:
            code = (
                error.response["Error"]["Code"]
                if isinstance(error, ClientError)
                else type(error).__name__
            )
            return [Refusal(code, str(error), is_shared=len(entries) > 1)] * len(entries)
        # A refusal is one of the answers; the call as a whole has succeeded.
        return [
            None
            if "ErrorCode" not in answer
            else Refusal(answer["ErrorCode"], answer.get("ErrorMessage", ""))
            for answer in answers
        ]


MAX_REFUSALS = 20
"""Rounds in which the bus refuses an event but takes a probe, until the event is to blame. A bus that refuses by
chance takes the event first in at least half of such rounds, so it puts the blame on less than one in a million. On a
working bus that takes some eight seconds."""

MAX_FRUITLESS_ROUNDS = 10
"""Rounds in which the bus takes nothing, until the rest is left to the next invocation: some three seconds."""

RETRYABLE_SECONDS = 3600.0
"""An event has to be this old before a refusal that is retryable counts against it."""

EVENT_TOO_LARGE = "EVENT_TOO_LARGE"

PROBE = "PublisherProbe"
"""An event that says nothing. It is of the service's own source, so that a bus that refuses that refuses it too."""


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """An event that can never be published as it is.

    Attributes:
        subject: What it is about, as far as is known.
        id: The id of the event, or of the record that cannot be read.
        body: All of it, as JSON.
        code: Why.
        message: The same in words.
    """

    subject: str
    id: str
    body: str
    code: str
    message: str

    @classmethod
    def of_record(
        cls, subject: str, record_id: str, record: object, error: UnpublishableError
    ) -> Undeliverable:
        """A change whose row does not say what happened."""
        body = json.dumps({"record": record}, default=str)
        return cls(subject, record_id, body, error.code, str(error))


@dataclass(slots=True)
class PublishReport:
    """The ends of the events.

    Attributes:
        published: Ids of those that the bus has taken.
        delays: Seconds from their occurrence until then.
        refusals: Code and message of each time that the bus refused one.
        undeliverable: What was parked.
        left: How many are neither published nor parked: time ran out.
    """

    published: list[str] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    undeliverable: list[Undeliverable] = field(default_factory=list)
    left: int = 0


@dataclass(slots=True, eq=False)
class _Pending:
    """An event on its way to the bus.

    Attributes:
        event: The event.
        entry: The same as the bus takes it.
        refusals: How often the bus has refused it, and taken a probe.
        is_alone: Whether it has to be sent alone: a call that it shared was refused.
    """

    event: Event
    entry: BusEntry
    refusals: int = 0
    is_alone: bool = False


_Unsent = deque[_Pending | Undeliverable]
"""The events of one subject that are still to be published or parked."""


class Publisher:
    """Publishes events on a bus.

    Args:
        bus: The bus.
        park: Keeps for good what cannot be published. Returns whether it has.
        clock: Source of time.
        policy: How to wait after a refusal.
    """

    def __init__(
        self,
        bus: Bus,
        park: Callable[[Undeliverable], bool],
        clock: Clock,
        policy: RetryPolicy | None = None,
    ) -> None:
        self._bus = bus
        self._park = park
        self._clock = clock
        self._policy = policy or RetryPolicy(base=0.05)

    def publish(self, news: Iterable[Event | Undeliverable], deadline: Deadline) -> PublishReport:
        """Publish until all is published or parked, or until the time is over or the bus takes nothing for a while.

        An event whose answer is lost is sent again, so it may be there twice; no later event of its subject is sent
        before it was taken.

        Args:
            news: In the order of its occurrence.
            deadline: When to leave the rest.
        """
        report = PublishReport()
        unsent: dict[str, _Unsent] = {}
        for each in news:
            item = _pending(each) if isinstance(each, Event) else each
            unsent.setdefault(each.subject, deque()).append(item)
        failures = fruitless = 0
        while unsent:
            is_all, works = self._publish_first(unsent, deadline, report)
            fruitless = 0 if works else fruitless + 1
            if is_all:
                failures = 0
                continue
            failures += 1
            pause = self._policy.backoff(failures)
            if fruitless == MAX_FRUITLESS_ROUNDS or pause >= deadline.remaining():
                break
            self._clock.sleep(pause)
        report.left = sum(map(len, unsent.values()))
        return report

    def _publish_first(
        self, unsent: dict[str, _Unsent], deadline: Deadline, report: PublishReport
    ) -> tuple[bool, bool]:
        """Try the first of each subject once. Returns whether all were taken or parked, and whether some or a probe were."""
        heads = [events[0] for events in unsent.values()]
        parked = self._park_all(heads, deadline)
        report.undeliverable += parked
        taken, refused = self._put(heads, deadline, report)
        report.refusals += refused.values()
        works = self._blame(refused, unsent, deadline)
        done = [*(each.subject for each in parked), *(each.event.subject for each in taken)]
        for subject in done:
            unsent[subject].popleft()
            if not unsent[subject]:
                del unsent[subject]
        return len(done) == len(heads), bool(done) or works

    def _park_all(
        self, heads: Sequence[_Pending | Undeliverable], deadline: Deadline
    ) -> list[Undeliverable]:
        return [
            head
            for head in heads
            if isinstance(head, Undeliverable) and deadline.remaining() > 0 and self._park(head)
        ]

    def _put(
        self,
        heads: Sequence[_Pending | Undeliverable],
        deadline: Deadline,
        report: PublishReport,
    ) -> tuple[list[_Pending], dict[_Pending, Refusal]]:
        """Put events on the bus while there is time. Returns those that it has taken, and why it has refused others."""
        taken: list[_Pending] = []
        refused: dict[_Pending, Refusal] = {}
        for call in calls_of([head for head in heads if isinstance(head, _Pending)]):
            if deadline.remaining() <= 0:
                break
            answers = self._bus.put([each.entry for each in call])
            now = self._clock.now()
            for each, refusal in zip(call, answers, strict=True):
                if refusal is None:
                    taken.append(each)
                    report.published.append(each.event.id)
                    report.delays += _delay(each.event, now)
                else:
                    refused[each] = refusal
        return taken, refused

    def _blame(
        self, refused: Mapping[_Pending, Refusal], unsent: dict[str, _Unsent], deadline: Deadline
    ) -> bool:
        """Count refusals against events that may be to blame. Returns whether the bus took a probe."""
        now = self._clock.now()
        suspects = {
            pending: refusal
            for pending, refusal in refused.items()
            # An event without a readable time is old.
            if not refusal.is_retryable
            or all(age >= RETRYABLE_SECONDS for age in _delay(pending.event, now))
        }
        if not suspects or not self._takes_a_probe(deadline):
            return False
        for pending, refusal in suspects.items():
            if refusal.is_shared:
                pending.is_alone = True
                continue
            pending.refusals += 1
            if pending.refusals == MAX_REFUSALS:
                parked = _undeliverable(pending.event, refusal.code, refusal.message)
                unsent[parked.subject][0] = parked
        return True

    def _takes_a_probe(self, deadline: Deadline) -> bool:
        """Whether the bus takes an event that says nothing."""
        now = timestamp(self._clock.now())
        metadata = {
            "eventId": f"{PROBE}#{now}",
            "occurredAt": now,
            "schemaVersion": SCHEMA_VERSION,
        }
        probe = BusEntry(PROBE, _json({"metadata": metadata, "data": {}}))
        return deadline.remaining() > 0 and self._bus.put([probe]) == [None]


def calls_of(pending: Sequence[_Pending]) -> list[list[_Pending]]:
    """Split events into what one call takes."""
    single = [[each] for each in pending if each.is_alone]
    others = [each for each in pending if not each.is_alone]
    return single + in_portions(others, MAX_ENTRIES, lambda each: each.entry.size, MAX_BYTES - 1)


def _pending(event: Event) -> _Pending | Undeliverable:
    entry = BusEntry(event.type, _json(event.detail()))
    if entry.size < MAX_BYTES:
        return _Pending(event, entry)
    message = f"the event has {entry.size:,} bytes; a bus takes less than {MAX_BYTES:,}. Read the row instead"
    return _undeliverable(event, EVENT_TOO_LARGE, message)


def _undeliverable(event: Event, code: str, message: str) -> Undeliverable:
    whole = {"source": SOURCE, "detail-type": event.type, "detail": event.detail()}
    return Undeliverable(event.subject, event.id, _json(whole), code, message)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, default=to_json, separators=(",", ":"))


def _delay(event: Event, now: datetime) -> list[float]:
    """Seconds since an event occurred; none if its row does not say when that was."""
    try:
        occurred = datetime.fromisoformat(event.occurred_at)
        return [max(0.0, (now - occurred).total_seconds())]
    except (ValueError, TypeError):
        return []
