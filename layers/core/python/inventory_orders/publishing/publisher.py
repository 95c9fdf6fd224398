"""Publishes events on a bus, in sequence for each subject, and retries each until the bus has accepted it."""

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
from inventory_orders.domain.events import SOURCE, Event, to_json
from inventory_orders.errors import AWS_UNREACHABLE, UnpublishableError
from inventory_orders.retry import RetryPolicy
from inventory_orders.sequences import in_portions

# The publisher retries by itself, so the client must not.
CLIENT_CONFIG = Config(
    connect_timeout=1,
    read_timeout=3,
    retries={"total_max_attempts": 1, "mode": "standard"},
    tcp_keepalive=True,
)

MAX_ENTRIES = 10
"""docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEvents.html"""

MAX_BYTES = 1_000_000
"""The entries of a call have to be smaller than this in total:
docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEvents.html says 1 MB. Taken as a decimal megabyte, this leaves
room for the fields that the bus adds, because a consumer's queue accepts 1 MiB."""

_NOT_RETRYABLE = {
    # Retryable according to AWS: docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEventsResultEntry.html
    "AccessDeniedException",
    "InvalidAccountIdException",
    "InvalidArgument",
    "MalformedDetail",
    "NotAuthorizedForDetailTypeException",
    "NotAuthorizedForSourceException",
    "RedactionFailure",
    # EventBridge refuses a call as a whole with these codes.
    *("ValidationException", "ValidationError", "InvalidParameterValue", "413"),
}


@dataclass(slots=True, eq=False)
class BusEntry:
    """An event as an entry of a call to PutEvents.

    Attributes:
        event: The event.
        detail: The event's `detail` as JSON.
        refusals: How often the bus has refused the event but accepted a probe.
        is_alone: Whether the event has to be sent in a call of its own, because a shared call was refused.
    """

    event: Event
    detail: str
    refusals: int = 0
    is_alone: bool = False

    @classmethod
    def of(cls, event: Event) -> BusEntry:
        """Build the entry for an event."""
        return cls(event, _json(event.detail()))

    @property
    def size(self) -> int:
        """The size of the entry in bytes, as EventBridge counts it.

        docs.aws.amazon.com/eventbridge/latest/userguide/eb-putevents.html
        """
        return sum(len(text.encode()) for text in (SOURCE, self.event.type, self.detail))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the bus did not accept an entry. If its answer was lost, the bus may have accepted the entry after all.

    Attributes:
        code: EventBridge's error code or, without an answer, `AWS_UNREACHABLE`.
        message: The error message.
        is_shared: Whether the call had several entries and was refused as a whole, so that another entry may be to blame.
    """

    code: str
    message: str
    is_shared: bool = False

    @property
    def is_retryable(self) -> bool:
        """Whether the bus may accept the same entry later. Unknown codes count as retryable."""
        return self.code not in _NOT_RETRYABLE


@dataclass(frozen=True, slots=True)
class Bus:
    """An event bus. This is the only code that calls EventBridge.

    Attributes:
        client: An EventBridge client; create it with `CLIENT_CONFIG`.
        name: The name of the bus.
    """

    client: Any
    name: str

    def put(self, entries: Sequence[BusEntry]) -> list[Refusal | None]:
        """Send entries in one call. Returns for each entry why the bus refused it; None if the bus accepted it."""
        request = [
            {
                "EventBusName": self.name,
                "Source": SOURCE,
                "DetailType": entry.event.type,
                "Detail": entry.detail,
            }
            for entry in entries
        ]
        try:
            answers = self.client.put_events(Entries=request)["Entries"]
        except (ClientError, BotoCoreError) as error:
            code, message = AWS_UNREACHABLE, f"{type(error).__name__}: {error}"
            if isinstance(error, ClientError):
                code, message = error.response["Error"]["Code"], str(error)
            return [Refusal(code, message, is_shared=len(entries) > 1)] * len(entries)
        # The bus may refuse some entries of a call that succeeds.
        return [
            None
            if "ErrorCode" not in answer
            else Refusal(answer["ErrorCode"], answer.get("ErrorMessage", ""))
            for answer in answers
        ]


MAX_REFUSALS = 20
"""After the bus has refused an event but accepted a probe in this many rounds, the event is parked. A bus that refuses at
random would accept the event in half of such rounds or more, so fewer than 1 in 1,000,000 events are parked wrongly. On a
working bus, the rounds take about eight seconds."""

MAX_FRUITLESS_ROUNDS = 10
"""After this many rounds in which the bus accepts nothing, which is about three seconds, the next invocation continues."""

RETRYABLE_SECONDS = 3600.0
"""Retryable refusals count against an event only if it is older than this."""

EVENT_TOO_LARGE = "EVENT_TOO_LARGE"

PROBE = "PublisherProbe"
"""The type of the probe, an event without content. A bus that refuses the service's source refuses the probe, too."""


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """An event that can never be published unchanged.

    Attributes:
        subject: The subject of the event; empty if it is unknown.
        id: The id of the event, or of the unreadable record.
        body: The whole event or record, as JSON.
        code: The reason as a stable code.
        message: The reason in words.
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
        """Build an undeliverable event from a stream record, if the row in it does not show what happened."""
        body = json.dumps({"record": record}, default=str)
        return cls(subject, record_id, body, error.code, str(error))


@dataclass(slots=True)
class PublishReport:
    """What became of events that were to be published.

    Attributes:
        published: The ids of the events that the bus has accepted.
        delays: Seconds between each change and the time when the bus accepted its event.
        refusals: Each refusal by the bus.
        undeliverable: The events that were parked.
        left: How many events are neither published nor parked, because time ran out.
    """

    published: list[str] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    undeliverable: list[Undeliverable] = field(default_factory=list)
    left: int = 0


_Unsent = deque[BusEntry | Undeliverable]
"""The events of one subject that are not yet published or parked."""


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes events on a bus.

    Attributes:
        bus: The bus to publish on.
        park: Stores an event that cannot be published. Returns whether it succeeded.
        clock: The source of time.
        policy: How long to wait after a refusal.
    """

    bus: Bus
    park: Callable[[Undeliverable], bool]
    clock: Clock
    policy: RetryPolicy = field(default_factory=lambda: RetryPolicy(base=0.05))

    def publish(self, news: Iterable[Event | Undeliverable], deadline: Deadline) -> PublishReport:
        """Publish events until all are published or parked, the deadline has passed, or the bus accepts nothing for a while.

        If the bus's answer is lost, the event is sent again, so it may be published twice. The next event of a subject is sent
        after the bus has accepted the previous one.

        Args:
            news: The events, in the order in which they happened.
            deadline: When to leave the remaining events to the next call.
        """
        report = PublishReport()
        unsent: dict[str, _Unsent] = {}
        for each in news:
            item = _entry_of(each) if isinstance(each, Event) else each
            unsent.setdefault(each.subject, deque()).append(item)
        failures = fruitless = 0
        while unsent:
            is_all, works = self._publish_first(unsent, deadline, report)
            fruitless = 0 if works else fruitless + 1
            failures = 0 if is_all else failures + 1
            if failures:
                pause = self.policy.backoff(failures)
                if fruitless == MAX_FRUITLESS_ROUNDS or pause >= deadline.remaining():
                    break
                self.clock.sleep(pause)
        report.left = sum(map(len, unsent.values()))
        return report

    def _publish_first(
        self, unsent: dict[str, _Unsent], deadline: Deadline, report: PublishReport
    ) -> tuple[bool, bool]:
        """Try to publish the first event of each subject. Returns whether all are done, and whether the bus accepted anything."""
        heads = [events[0] for events in unsent.values()]
        parked = self._park_all(heads, deadline)
        taken, refused = self._put(heads, deadline, report)
        report.undeliverable += parked
        report.refusals += refused.values()
        works = self._blame(refused, unsent, deadline)
        done = [*(each.subject for each in parked), *(event.subject for event in taken)]
        for subject in done:
            unsent[subject].popleft()
            if not unsent[subject]:
                del unsent[subject]
        return len(done) == len(heads), bool(done) or works

    def _park_all(
        self, heads: Sequence[BusEntry | Undeliverable], deadline: Deadline
    ) -> list[Undeliverable]:
        return [
            head
            for head in heads
            if isinstance(head, Undeliverable) and deadline.remaining() > 0 and self.park(head)
        ]

    def _put(
        self,
        heads: Sequence[BusEntry | Undeliverable],
        deadline: Deadline,
        report: PublishReport,
    ) -> tuple[list[Event], dict[BusEntry, Refusal]]:
        """Send events to the bus before the deadline. Returns the accepted events, and why the bus refused the others."""
        taken: list[Event] = []
        refused: dict[BusEntry, Refusal] = {}
        for call in calls_of([head for head in heads if isinstance(head, BusEntry)]):
            if deadline.remaining() <= 0:
                break
            for entry, refusal in zip(call, self.bus.put(call), strict=True):
                if refusal is None:
                    taken.append(entry.event)
                    report.published.append(entry.event.id)
                    report.delays += _delay(entry.event, self.clock.now())
                else:
                    refused[entry] = refusal
        return taken, refused

    def _blame(
        self, refused: Mapping[BusEntry, Refusal], unsent: dict[str, _Unsent], deadline: Deadline
    ) -> bool:
        """If the bus accepts a probe, count refusals against the events that may be to blame. Returns whether it accepted."""
        now = self.clock.now()
        suspects = {
            entry: refusal
            for entry, refusal in refused.items()
            # An event whose time is unreadable counts as old.
            if not refusal.is_retryable
            or all(age >= RETRYABLE_SECONDS for age in _delay(entry.event, now))
        }
        if not suspects or not self._takes_a_probe(timestamp(now), deadline):
            return False
        for entry, refusal in suspects.items():
            if refusal.is_shared:
                entry.is_alone = True
            else:
                entry.refusals += 1
            if entry.refusals == MAX_REFUSALS:
                parked = _undeliverable(entry.event, refusal.code, refusal.message)
                unsent[parked.subject][0] = parked
        return True

    def _takes_a_probe(self, now: str, deadline: Deadline) -> bool:
        """Check whether the bus accepts a probe, which is an event without content."""
        probe = BusEntry.of(Event(PROBE, PROBE, f"{PROBE}#{now}", now, {}))
        return deadline.remaining() > 0 and self.bus.put([probe]) == [None]


def calls_of(entries: Sequence[BusEntry]) -> list[list[BusEntry]]:
    """Divide entries into calls that respect the limits of EventBridge."""
    return in_portions(
        # No other entry fits into the call of one that has to be alone, so these come first.
        sorted(entries, key=lambda entry: not entry.is_alone),
        MAX_ENTRIES,
        lambda entry: MAX_BYTES if entry.is_alone else entry.size,
        MAX_BYTES - 1,
    )


def _entry_of(event: Event) -> BusEntry | Undeliverable:
    entry = BusEntry.of(event)
    if entry.size < MAX_BYTES:
        return entry
    return _undeliverable(
        event,
        EVENT_TOO_LARGE,
        f"the event has {entry.size:,} bytes, but has to be smaller than {MAX_BYTES:,}. Read the row instead",
    )


def _undeliverable(event: Event, code: str, message: str) -> Undeliverable:
    whole = {"source": SOURCE, "detail-type": event.type, "detail": event.detail()}
    return Undeliverable(event.subject, event.id, _json(whole), code, message)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, default=to_json, separators=(",", ":"))


def _delay(event: Event, now: datetime) -> list[float]:
    """The seconds since an event occurred, as a list of one; empty if the event has no readable time."""
    try:
        occurred = datetime.fromisoformat(event.occurred_at)
        return [max(0.0, (now - occurred).total_seconds())]
    except (ValueError, TypeError):
        return []
