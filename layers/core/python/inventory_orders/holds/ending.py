"""Finds holds that are about to end, and sends each to the expiry queue.

The expiry itself checks whether the hold has ended and the order is still unpaid. So sending a hold twice or late does no
harm, and two sweeps may run concurrently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.engine.memory import BoundedDict
from inventory_orders.engine.retrying_client import RetryingClient, SweepReport
from inventory_orders.retry import MAX_SENDING_DELAY_SECONDS, RetryPolicy
from inventory_orders.store.lists import ListPosition, list_entries
from inventory_orders.store.tables import BY_EXPIRY, EXPIRY_SHARDS, SHARDS

_MARGIN_SECONDS = 60.0
"""How late a sweep may be without a hold expiring late."""

_REMEMBERED_SECONDS = 600.0
"""Seconds after which a hold that has not expired is sent again, because its message may be lost or dead-lettered.

After that, it waits as long as the hold is overdue, so that messages about unreadable rows do not fill the queue.
"""

# An entry takes about 350 bytes of the function's 512 MB.
MAX_REMEMBERED = 100_000

# Holds in one request to DynamoDB.
_PAGE = 1000

# Holds in one request to SQS.
_TOGETHER = 10

POLICY = RetryPolicy(max_attempts=4)
"""For the requests of a sweep. The next sweep does the rest."""


DueHold = tuple[ListPosition, float]
"""A hold, and the Unix time in seconds when its message is to be delivered."""

_Page = tuple[list[ListPosition], ListPosition | None]
"""Some holds of a shard, and the position after which to continue; None at the end of the shard."""

SentHolds = BoundedDict[ListPosition, float]
"""For each hold, the Unix time in seconds until which it is not sent again."""


@dataclass(slots=True)
class EndingHolds(SweepReport):
    """Sends the holds that end soon or have ended.

    Attributes:
        client: The client for the tables.
        send: Sends at most ten of the holds. Returns the indexes of those that the queue accepted.
        remembered: The holds that this process has recently sent.
        interval: Seconds between two sweeps.
        grace: Seconds between the end of a hold and its expiry.
        deadline: When to leave the rest to the next sweep.
        sent: How many were sent.
        refused: How many the queue did not accept. The next sweep sends them again.
    """

    client: RetryingClient
    send: Callable[[Sequence[DueHold]], set[int]]
    remembered: SentHolds
    interval: float
    grace: float
    deadline: Deadline
    sent: int = 0
    refused: int = 0

    def send_all(self) -> None:
        """Send every hold that this process has not recently sent, oldest first."""
        # An expiry that arrived before the end of the grace period would do nothing.
        ahead = min(self.interval + _MARGIN_SECONDS, MAX_SENDING_DELAY_SECONDS - self.grace)
        until = timestamp(self.client.clock.now() + timedelta(seconds=ahead))
        # Where to continue in each shard.
        places: dict[int, ListPosition | None] = dict.fromkeys(range(EXPIRY_SHARDS))
        while places and self.deadline.remaining() > 0:
            pages = self._read_pages(places, until)
            self._send(self._due(hold for holds, _ in pages.values() for hold in holds))
            places = {shard: last for shard, (_, last) in pages.items() if last is not None}
        if places:
            self.unfinished = f"no time was left for the holds of {len(places)} shards"

    def _read_pages(
        self, places: Mapping[int, ListPosition | None], until: str
    ) -> dict[int, _Page]:
        """Read the next holds of each shard. Unreadable shards are left to the next sweep."""

        def read(place: tuple[int, ListPosition | None]) -> _Page:
            shard, after = place
            wanted = BY_EXPIRY, SHARDS[shard], _PAGE, after, until
            with self.noting_errors():
                rows, last = self.client.ask(list_entries, self.deadline, *wanted)
                return [ListPosition(row["expiresAt"], row["orderId"]) for row in rows], last
            return [], None

        return dict(zip(places, self.client.side_by_side(read, [*places.items()]), strict=True))

    def _due(self, holds: Iterable[ListPosition]) -> list[DueHold]:
        """The holds to send now, oldest first."""
        now = self.client.clock.now().timestamp()
        due = []
        for hold in sorted(hold for hold in holds if self.remembered.get(hold, 0.0) <= now):
            try:
                due.append((hold, datetime.fromisoformat(hold.at).timestamp() + self.grace))
            except ValueError:
                problem = f"order {hold.id} has an expiresAt that is not a time; repair the item"
                self.problems[problem] = None
        return due

    def _send(self, due: Sequence[DueHold]) -> None:
        now = self.client.clock.now().timestamp()
        chunks = [due[start : start + _TOGETHER] for start in range(0, len(due), _TOGETHER)]
        sent = self.client.side_by_side(
            lambda some: self.send(some) if self.deadline.remaining() > 0 else None, chunks
        )
        for chunk, taken in zip(chunks, sent, strict=True):
            if taken is None:
                self.unfinished = "no time was left to send all holds"
                continue
            self.sent += len(taken)
            self.refused += len(chunk) - len(taken)
            for hold, at in (chunk[number] for number in taken):
                self.remembered[hold] = max(at, now) + max(_REMEMBERED_SECONDS, now - at)
