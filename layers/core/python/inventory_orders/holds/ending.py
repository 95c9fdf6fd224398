"""Finds holds that are about to end, and sends each to be expired.

The expiry itself checks whether the hold has ended and the order is still unpaid. So a hold that is sent twice, or late,
does no harm, and two sweeps may run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.engine.memory import BoundedDict
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import OutcomeUnknownError, StoreError, ThrottledError
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.dynamodb import ListPosition
from inventory_orders.store.rows import EXPIRY_SHARDS

AHEAD_SECONDS = 120.0
"""How long before its end a hold is sent: two sweeps, so that one may fail."""

_REMEMBERED_SECONDS = 600.0
"""Seconds after which a hold that has not expired is sent again: its message may be lost, or a dead letter.

Each further time it waits as long as it is late, so that messages of rows that cannot be read do not fill the queue.
"""

# An entry takes some 350 bytes of the function's 512 MB.
MAX_REMEMBERED = 100_000

# Holds in one request to SQS.
_TOGETHER = 10

POLICY = RetryPolicy(max_attempts=4)
"""For the requests of a sweep: the next sweep does what is left."""


@dataclass(frozen=True, slots=True)
class DueHold:
    """A hold, and when to look at it.

    Attributes:
        hold: The hold.
        at: Unix second.
    """

    hold: ListPosition
    at: float


_HoldPage = tuple[list[ListPosition], ListPosition | None]
"""Some of the holds of a shard, and where to go on."""

Send = Callable[[Sequence[DueHold]], set[int]]
"""Sends at most ten. Returns the numbers of those that were taken."""

SentHolds = BoundedDict[ListPosition, float]
"""Until which Unix second a hold that was sent is not sent again."""


@dataclass(slots=True)
class HoldsReport:
    """The result of sending holds that are about to end.

    Attributes:
        sent: How many were sent.
        refused: How many were not taken. They are sent again with the next sweep.
        problems: What has to be repaired, each once.
        unfinished: Why others were not looked at; empty if all were. The next sweep goes on.
    """

    sent: int = 0
    refused: int = 0
    problems: dict[str, None] = field(default_factory=dict)
    unfinished: str = ""


@dataclass(frozen=True, slots=True)
class EndingHolds:
    """The holds that end soon, or have ended.

    Attributes:
        client: Sends the requests to DynamoDB.
        send: Sends some of the holds.
        sent: What this process remembers.
        grace: Seconds between the end of a hold and its expiry.
        deadline: No request begins after it.
        report: What became of them.
    """

    client: RetryingClient
    send: Send
    sent: SentHolds
    grace: float
    deadline: Deadline
    report: HoldsReport = field(default_factory=HoldsReport)

    def send_all(self) -> HoldsReport:
        """Send every one, unless this process has sent it lately. The oldest come first."""
        until = timestamp(self.client.clock.now() + timedelta(seconds=AHEAD_SECONDS))

        def look(place: tuple[int, ListPosition | None]) -> _HoldPage | StoreError:
            try:
                return self.client.call(
                    lambda: self.client.store.list_holds(place[0], until, place[1]), self.deadline
                )
            except StoreError as error:
                return error

        # Where to go on in each shard.
        places: dict[int, ListPosition | None] = dict.fromkeys(range(EXPIRY_SHARDS))
        while places and self.deadline.remaining() > 0:
            pages = self.client.side_by_side(look, list(places.items()))
            holds: list[ListPosition] = []
            left: dict[int, ListPosition | None] = {}
            for shard, page in zip(places, pages, strict=True):
                if isinstance(page, tuple):
                    some, last = page
                    holds += some
                    if last is not None:
                        left[shard] = last
                elif isinstance(page, ThrottledError | OutcomeUnknownError):
                    self.report.unfinished = str(page)
                else:
                    self.report.problems[str(page)] = None
            self._send(holds)
            places = left
        if places:
            self.report.unfinished = f"no time was left for the holds of {len(places)} shards"
        return self.report

    def _send(self, holds: Sequence[ListPosition]) -> None:
        now = self.client.clock.now().timestamp()
        due: list[DueHold] = []
        for hold in sorted(holds):
            if self.sent.get(hold, 0.0) > now:
                continue
            try:
                end = datetime.fromisoformat(hold.at).timestamp()
            except ValueError:
                problem = f"order {hold.id} has an expiresAt that is no time; repair the item"
                self.report.problems[problem] = None
            else:
                due.append(DueHold(hold, end + self.grace))

        def send_some(some: Sequence[DueHold]) -> set[int] | None:
            return self.send(some) if self.deadline.remaining() > 0 else None

        chunks = [due[start : start + _TOGETHER] for start in range(0, len(due), _TOGETHER)]
        results = self.client.side_by_side(send_some, chunks)
        for chunk, taken in zip(chunks, results, strict=True):
            if taken is None:
                self.report.unfinished = "no time was left to send all holds"
                continue
            self.report.sent += len(taken)
            self.report.refused += len(chunk) - len(taken)
            for number in taken:
                one = chunk[number]
                later = max(_REMEMBERED_SECONDS, now - one.at)
                self.sent[one.hold] = max(one.at, now) + later
