"""This process's lane: its lease, and its pages as this process left them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import TypeVar

from inventory_orders.clock import Deadline
from inventory_orders.domain.allotments import (
    DEPOT,
    MAX_LANES,
    PAGES,
    LaneLease,
    Needs,
    Page,
    PageKey,
)
from inventory_orders.domain.change import Transaction
from inventory_orders.engine.memory import Recent
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import CorruptItemError, StoreError
from inventory_orders.store.cancellations import Meaning, TransactionCancelledError
from inventory_orders.store.lane_leases import lease_lane, publish_needs, read_lane_leases

T = TypeVar("T")

LANE_SECONDS = 60.0
"""Seconds after which the lease of an unused lane ends. Then other processes can use its units. A worker may wait 20 s for the depot
before it extends the lease."""

# Maximum number of products in published needs, because an item is limited to 400 KB, and the seconds after which needs end.
_MOST_NEEDS, _NEEDS_SECONDS = 1_000, 5.0

PASSED_ON = "workers-in-turn"
"""The owner of a lane between two workers that use it in turn."""

# How many of these lanes a worker tries to take at a time.
_MOST_TRIES = 5

# From how many free lanes a process takes one, unless others take the same one; and the least number of lanes within reach.
_FEW_LANES = 20

# Maximum number of seconds between two looks at the leases.
_LOOK_AROUND_SECONDS = 10.0
_JITTER_SECONDS = 2.0


class OwnLane:
    """This process's lane, as the process remembers it. The memory may be wrong: each write is conditioned on what was read.

    Args:
        lanes: The lanes of which this process takes one. If there are none, it only sells from rows.
        last: The last lane of all processes.
        tries: How many free lanes it tries to take at a time.
        seconds: How long a lease lasts.
        least: For how many orders the lane is filled at least.

    Attributes:
        lanes: As given.
        last: As given.
        least: As given.
        in_use: How many lanes were in use when last counted, at least 1. The lane of a new process may be missing.
        reach: The last lane that plentiful products should reach: the last one in use, rounded up so that it seldom changes.
        is_crowded: Whether this worker passes its lane on after each batch, because there are more workers than lanes.
        abandoned: Lanes whose leases have ended, and which may hold units.
    """

    def __init__(
        self,
        client: RetryingClient,
        lanes: range,
        last: int,
        tries: int = MAX_LANES,
        least: int = 1,
        seconds: float = LANE_SECONDS,
    ) -> None:
        self.lanes = lanes
        self.last = last
        self.least = least
        self.in_use = 1
        self.reach = last
        self.abandoned: set[int] = set()
        self.is_crowded = False
        # Lanes with a page that DynamoDB does not write. For a while, this process does not fill them for others.
        self._refused = Recent(client.clock)
        # The leases as last read, and the lanes whose leases had not ended.
        self._leases: list[LaneLease] = []
        self._live: set[int] = set()
        self._ended: set[LaneLease] = set()
        self._tries, self._seconds = tries, seconds
        self._client = client
        self._owner = f"lane-{uuid.uuid4().hex}"
        self._lease: LaneLease | None = None
        self._last = DEPOT
        # Whether another worker may have taken over the lane, and whether this one met another since lanes were last counted.
        self._is_doubted = self._is_contested = False
        self._refreshed_at = float("-inf")
        self._pages: dict[int, Page] = {}
        self._corrupt: set[int] = set()

    # ------------------------------------------------------------------ the lease

    def take(self, deadline: Deadline, stats: CommitStats) -> None:
        """Take a free lane, or extend the lease of this process's lane."""
        soon = self._client.clock.now().timestamp() + self._seconds / 2
        if self._lease is not None and (self._is_doubted or self._lease.ends_at <= soon):
            self._take_lane(self._lease.lane, "", deadline, stats)
        if self._lease is None and self.lanes and self._is_refresh_due():
            for lane in islice(self._free_lanes(deadline, stats), self._tries):
                self._take_lane(lane, PASSED_ON, deadline, stats)
                if self._lease is not None:
                    break

    def take_turn(self, deadline: Deadline, stats: CommitStats) -> None:
        """Take a lane that another worker has passed on: the one that this worker had, or one of a few others.

        If all of these are in use, take over the lane of a worker, which learns from its next write that lanes are passed on.
        """
        self.look_around(deadline, stats)
        usable = {*self.lanes} - self._corrupt if self.lanes.start == 1 else set[int]()
        if self._lease is None and self._last in usable:
            self._take_lane(self._last, PASSED_ON, deadline, stats)
        some = self._shuffled(usable)[:_MOST_TRIES]
        owners = {lease.lane: lease.owner for lease in self._leases if lease.lane in some[:1]}
        for lane, owner in [*((lane, PASSED_ON) for lane in some), *owners.items()]:
            if self._lease is None:
                self.is_crowded = self._is_contested = True
                self._take_lane(lane, owner, deadline, stats)

    def pass_on(self, deadline: Deadline, stats: CommitStats) -> None:
        """Let another worker use the lane, because there are more workers than lanes."""
        if self._lease is not None:
            now, mine = self._client.clock.now(), self._lease
            self._lease, self._last, self._owner = None, mine.lane, f"lane-{uuid.uuid4().hex}"
            self.forget()
            passed_on = LaneLease(mine.lane, PASSED_ON, now.timestamp() + self._seconds)
            with suppress(StoreError):
                self._client.call(
                    lambda: lease_lane(self._client.store, passed_on, now, mine.owner),
                    deadline,
                    stats,
                    attempts=2,
                )

    def _free_lanes(self, deadline: Deadline, stats: CommitStats) -> Iterator[int]:
        """The lanes that no process uses: one of the first few at random and, after each conflict, one of twice as many.

        So two processes rarely take the same one, and as long as there are few processes, they use the first lanes: a recall reads
        and checks all lanes up to the reach. An API process makes few attempts, so it takes any lane.
        """
        self.look_around(deadline, stats)
        free = self._free
        few = _FEW_LANES if self.lanes.start == 1 else len(free)
        while free:
            lane = min(free[:few], key=lambda _: self._client.policy.random())
            free.remove(lane)
            yield lane
            few *= 2

    @property
    def _free(self) -> list[int]:
        return sorted({*self.lanes} - self._live - self._corrupt)

    @property
    def are_all_taken(self) -> bool:
        """Whether this process has no lane because other processes have recently had all of them."""
        return self._lease is None and not self._free and not self._is_refresh_due()

    def _shuffled(self, found: Iterable[T]) -> list[T]:
        return sorted(found, key=lambda _: self._client.policy.random())

    def _take_lane(
        self, lane: int, instead_of: str, deadline: Deadline, stats: CommitStats
    ) -> None:
        now = self._client.clock.now()
        wanted = LaneLease(lane, self._owner, now.timestamp() + self._seconds)
        lease = self._client.call(
            lambda: lease_lane(self._client.store, wanted, now, instead_of), deadline, stats
        )
        kept = self._lease is not None and self._lease.ends_at > now.timestamp()
        self._is_doubted = False
        self._lease = lease if lease.owner == self._owner else None
        self.abandoned.discard(lane)
        # After the lease ended, other processes may have used the lane, or an operator may have restored the table.
        if not kept or self._lease is None:
            self.forget()
        if self._lease is None and kept:
            # Another worker has taken it over.
            self._last, self.is_crowded, self._is_contested = lane, True, True
        if self._lease is not None and not kept and not self.is_crowded:
            # Processes that began together have taken their lanes by now, so the next visit counts them again.
            self._refreshed_at = float("-inf")

    def look_around(
        self, deadline: Deadline, stats: CommitStats, *, is_needed: bool = False
    ) -> None:
        """Read all leases, and count the lanes in use, unless that was done recently. If it is needed, read them in any case."""
        is_due = self._is_refresh_due()
        if not self.lanes or not (is_due or is_needed):
            return
        lanes = range(1, self.last + 1)
        self._leases = self._client.call(
            lambda: read_lane_leases(self._client.store, lanes), deadline, stats
        )
        now = self._client.clock.now().timestamp()
        self._live = {lease.lane for lease in self._leases if lease.ends_at > now}
        ended = {lease for lease in self._leases if lease.lane not in self._live}
        new = {lease.lane for lease in ended - self._ended}
        self.abandoned, self._ended = self.abandoned - self._live | new, ended
        # Shares that shrink with each process that joins would sell too much at the depot.
        if is_due:
            self._count()

    def _count(self) -> None:
        in_use = self._live | ({self._lease.lane} if self._lease else set())
        # At first, others that began together may not have taken their lanes yet.
        has_lane = self._lease is not None or self.is_crowded
        if has_lane and self._refreshed_at > float("-inf"):
            self.reach = _FEW_LANES
            while self.reach < max(in_use, default=0):
                self.reach *= 2
            self.reach = min(self.reach, self.last)
        # Processes that began together do not look together, so that one of them returns what others have left.
        ago = _JITTER_SECONDS * self._client.policy.random()
        self._refreshed_at = self._client.clock.monotonic() - ago
        self.is_crowded, self._is_contested = self._is_contested, False
        # The API only has what is plentiful, so workers share everything among themselves.
        mine = in_use if self.lanes.start > 1 else in_use.intersection(self.lanes)
        self.in_use = max(1, len(mine))

    def _is_refresh_due(self) -> bool:
        longest = min(_LOOK_AROUND_SECONDS, self._seconds)
        return self._client.clock.monotonic() - self._refreshed_at > longest

    @property
    def waiting(self) -> list[LaneLease]:
        """The leases of other lanes whose owners waited for the depot when the leases were last read, in random order."""
        now = self._client.clock.now().timestamp()
        found = (lease for lease in self._leases if min(lease.ends_at, lease.needs.until) > now)
        return self._shuffled(
            lease
            for lease in found
            if lease.lane != self.number and not self._refused.has(str(lease.lane))
        )

    def publish(
        self, need: Mapping[str, int], orders: int, deadline: Deadline, stats: CommitStats
    ) -> None:
        """Show visitors what this process waits for. If that fails, it only has to wait longer."""
        if self._lease is not None:
            lane, owner = self._lease.lane, self._lease.owner
            until = int(self._client.clock.now().timestamp() + _NEEDS_SECONDS)
            some = {p: max(units, 1) for p, units in islice(need.items(), _MOST_NEEDS)}
            needs = Needs(some, orders, self.version, until)
            with suppress(StoreError):
                self._client.call(
                    lambda: publish_needs(self._client.store, lane, owner, needs),
                    deadline,
                    stats,
                    attempts=1,
                )

    @property
    def number(self) -> int | None:
        """The number of this process's lane; None if it has none."""
        return self._lease.lane if self._lease is not None else None

    # ------------------------------------------------------------------ its pages

    @property
    def keys(self) -> list[PageKey]:
        """The keys of this lane's pages."""
        lane = self.number
        return [] if lane is None else [PageKey(lane, number) for number in range(PAGES)]

    @property
    def pages(self) -> list[Page] | None:
        """The pages as this process left them; None if unknown."""
        return list(self._pages.values()) if len(self._pages) == len(self.keys) else None

    @property
    def version(self) -> int:
        """The sum of the versions of its known pages."""
        return sum(page.version for page in self._pages.values())

    def units(self, product_id: str) -> int:
        """Known units of a product in this lane."""
        page = self._pages.get(PageKey.of(DEPOT, product_id).number)
        return page.units(product_id) if page is not None else 0

    def lacks(self, need: Mapping[str, int]) -> dict[str, int]:
        """The needed units of each product that this lane does not have. Products that it has enough of are left out.

        To take units back, it has to have one.
        """
        missing = {p: max(units, 1) - self.units(p) for p, units in need.items()}
        return {product_id: units for product_id, units in missing.items() if units > 0}

    def remember(self, pages: Iterable[Page | CorruptItemError]) -> None:
        """Keep the lane's pages as read. Gives up the lane for another one if a page is unreadable."""
        found = list(pages)
        sound = [page for page in found if isinstance(page, Page)]
        if len(sound) < len(found) and self._lease is not None:
            self._corrupt.add(self._lease.lane)
            self._lease, self._refreshed_at = None, float("-inf")
            self.forget()
        else:
            self._pages.update((page.key.number, page) for page in sound)

    def learn(self, transaction: Transaction, error: StoreError | None) -> None:
        """Keep the pages as a transaction left them. Forget them if it failed, because their state is unknown."""
        if error is None:
            written = (update.after for update in transaction.pages)
            self.remember(page for page in written if page.key.lane == self.number)
        elif transaction.pages:
            self.forget()
        if isinstance(error, TransactionCancelledError):
            self._note_failed(error)

    def _note_failed(self, error: TransactionCancelledError) -> None:
        for reason in error.reasons:
            if isinstance(key := reason.action.subject, PageKey):
                if reason.meaning in (Meaning.THROTTLED, Meaning.INVALID):
                    self._refused.observe(str(key.lane))
                self._is_doubted |= key.lane == self.number and reason.is_lost

    def forget(self) -> None:
        """Forget the pages, so that they are read again."""
        self._pages = {}
