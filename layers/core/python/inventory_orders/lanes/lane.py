"""The lane of this process with its pages, as this process left them, and the lease of the depot.

Only the owner of the depot's lease moves units between rows, depot and lanes; the others wait in line. Versions and epochs
keep the units safe: leases only keep processes out of each other's way.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable

from inventory_orders.clock import Deadline
from inventory_orders.domain.allotments import DEPOT, PAGES, LaneLease, Page, PageKey
from inventory_orders.domain.planner import Transaction
from inventory_orders.domain.product import PageStock, Product, Stock
from inventory_orders.engine.memory import BoundedDict
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import (
    CorruptItemError,
    OutcomeUnknownError,
    StoreError,
    ThrottledError,
)
from inventory_orders.lanes.demand import Demand
from inventory_orders.store.lane_leases import lease_lane, read_lane_leases, release_lane

LANE_SECONDS = 60.0
"""How long a lane's lease lasts without use: then the units go where they are needed."""

# How long the number of lanes in use counts as known, in seconds.
_LOOK_AROUND_SECONDS = 10.0

VISIT_SECONDS = 2.0
"""How long the depot's lease lasts when its owner dies: ten times what a long visit takes."""

# Time until the next look at a visit, as a part of its duration so far: the longer it lasts, the more likely its owner
# is dead.
_DOUBT = 0.1


class Lanes:
    """Lanes as a warm process knows them. Safety does not rest on it: each write is conditioned on what was read.

    Args:
        client: Sends the requests.
        most: How many lanes there may be; 0: this process sells from rows alone.

    Attributes:
        most: As given.
        demand: What was wanted.
        depot_lease: The lease of the depot, while this process holds it.
    """

    def __init__(self, client: RetryingClient, most: int) -> None:
        self.most = most
        self.demand = Demand(client.clock)
        self.depot_lease: LaneLease | None = None
        self._client = client
        self._owner = f"lane-{uuid.uuid4().hex}"
        self._lease: LaneLease | None = None
        self._in_use = 1
        self._refreshed_at = float("-inf")
        self._pages: dict[int, Page] = {}
        self._corrupt: set[int] = set()
        self._drained_until: BoundedDict[str, float] = BoundedDict()
        self._sold_out: BoundedDict[str, bool] = BoundedDict()

    # ------------------------------------------------------------------ the lease

    def take(self, deadline: Deadline, stats: CommitStats) -> None:
        """Take a lane, unless all are in use, or keep that of this process for longer.

        Raises:
            StoreError: DynamoDB failed.
        """
        now = self._client.clock.now().timestamp()
        if self._lease is not None and self._lease.ends_at - now > LANE_SECONDS / 2:
            return
        if self._lease is not None:
            self._take_lane(self._lease.lane, deadline, stats)
        if self._lease is None and self.most and self._is_refresh_due():
            taken = self._live_lanes(deadline, stats) | self._corrupt
            free = [lane for lane in range(1, self.most + 1) if lane not in taken]
            # In random order, so that two processes seldom take the same one.
            free.sort(key=lambda _: self._client.policy.random())
            while free and self._lease is None:
                self._take_lane(free.pop(0), deadline, stats)

    def _take_lane(self, lane: int, deadline: Deadline, stats: CommitStats) -> None:
        now = self._client.clock.now()
        until = now.timestamp() + LANE_SECONDS
        lease = self._client.call(
            lambda: lease_lane(self._client.store, lane, self._owner, now, until), deadline, stats
        )
        kept = self._lease is not None and self._lease.ends_at > now.timestamp()
        self._lease = lease if lease.owner == self._owner else None
        # Once the lease had ended, others may have used the lane, or an operator may have restored its table.
        if not kept or self._lease is None:
            self.forget()

    def _live_lanes(self, deadline: Deadline, stats: CommitStats) -> set[int]:
        self._refreshed_at = self._client.clock.monotonic()
        lanes = range(1, self.most + 1)
        leases = self._client.call(
            lambda: read_lane_leases(self._client.store, lanes), deadline, stats
        )
        now = self._client.clock.now().timestamp()
        live = {lease.lane for lease in leases if lease.ends_at > now}
        self._in_use = max(1, len(live | ({self._lease.lane} if self._lease else set())))
        return live

    def _is_refresh_due(self) -> bool:
        return self._client.clock.monotonic() - self._refreshed_at > _LOOK_AROUND_SECONDS

    def count_in_use(self, deadline: Deadline, stats: CommitStats) -> int:
        """How many lanes were in use when this process last looked, at least one: that of a new process may be missing.

        Raises:
            StoreError: DynamoDB failed.
        """
        if self.most and self._is_refresh_due():
            self._live_lanes(deadline, stats)
        return self._in_use

    @property
    def lane(self) -> int | None:
        """The lane of this process; None if it has none."""
        return self._lease.lane if self._lease is not None else None

    # ------------------------------------------------------------------ its pages

    @property
    def keys(self) -> list[PageKey]:
        """The pages of this lane."""
        lane = self.lane
        return [] if lane is None else [PageKey(lane, number) for number in range(PAGES)]

    @property
    def pages(self) -> list[Page] | None:
        """The pages as this process left them; None if that is not known."""
        return list(self._pages.values()) if len(self._pages) == len(self.keys) else None

    def remember(self, pages: Iterable[Page | CorruptItemError]) -> None:
        """Take over the lane's pages as read. Gives the lane up for another one if a page cannot be read."""
        found = list(pages)
        sound = [page for page in found if isinstance(page, Page)]
        if len(sound) < len(found) and self._lease is not None:
            self._corrupt.add(self._lease.lane)
            self._lease, self._refreshed_at = None, float("-inf")
            self.forget()
        else:
            self._pages.update((page.key.number, page) for page in sound)

    def observe_commit(self, committed: Transaction) -> None:
        """Take over the pages and rows of an applied transaction."""
        for update in committed.pages:
            if update.after.key.lane == self.lane:
                self._pages[update.after.key.number] = update.after
        for product_id, product in committed.after.items():
            self.observe_row(product_id, product)
        if committed.release is not None:
            self.depot_lease = None

    def observe_failure(self, failed: Transaction) -> None:
        """Take note of a transaction that failed: a rival has written a page of it, or its outcome is unknown."""
        if failed.pages:
            self.forget()

    def forget(self) -> None:
        """Forget the pages, so that they are read again."""
        self._pages = {}

    def is_own(self, stock: Stock) -> bool:
        """Whether it is in this lane, and neither in a row nor at the depot."""
        return isinstance(stock, PageStock) and stock.page.lane != DEPOT

    # ------------------------------------------------------------------ rows

    def observe_row(self, product_id: str, product: Product | None) -> None:
        """Take note of a row that was just read or written."""
        is_out = product is None or product.is_discontinued or product.available <= 0
        if is_out or self._sold_out.get(product_id):
            self._sold_out[product_id] = is_out

    def is_sold_out(self, product_id: str) -> bool:
        """Whether a product was sold out when its row was last seen: then it is sold from the row alone."""
        return bool(self._sold_out.get(product_id))

    def observe_drained(self, product_id: str) -> None:
        """Take note of a row that has nothing left to lend: for a while it is not read for more."""
        self._drained_until[product_id] = self._client.clock.monotonic() + _LOOK_AROUND_SECONDS

    def is_drained(self, product_id: str) -> bool:
        """Whether a row had nothing left to lend a moment ago."""
        return self._client.clock.monotonic() < (self._drained_until.get(product_id, 0.0))


def acquire_depot(
    client: RetryingClient,
    deadline: Deadline,
    stats: CommitStats,
    age: float = 0.0,
) -> LaneLease:
    """Wait in line for the depot, and take its lease.

    Args:
        client: Sends the requests.
        deadline: When to give up.
        stats: Where to note what it took.
        age: Seconds for which the changes have waited before; the longer, the more often this asks.

    Raises:
        ThrottledError: No time was left to wait.
        StoreError: DynamoDB failed.
    """
    clock, line, owner = client.clock, client.line, f"visit-{uuid.uuid4().hex}"
    began, dead, failures = clock.monotonic(), "", 0
    seen: LaneLease | None = None
    seen_at = began
    delay = line.next_delay(age)
    while client.pause(delay, deadline):
        waited, now = clock.monotonic() - began, clock.now()
        try:
            lease = lease_lane(
                client.store, DEPOT, owner, now, now.timestamp() + VISIT_SECONDS, waited, dead
            )
        except (ThrottledError, OutcomeUnknownError) as error:
            # A transaction that releases the depot is in flight: it will be free in a moment.
            failures = 2 if error.code == "TransactionConflictException" else failures + 1
            delay = client.policy.backoff(failures)
            continue
        if lease.owner == owner:
            stats.depot_waits.append(waited)
            if waited or line.average_wait:
                line.observe(waited)
            return lease
        line.observe(lease.wait)
        if lease != seen:
            seen, seen_at = lease, clock.monotonic()
        watched = clock.monotonic() - seen_at
        if watched > VISIT_SECONDS:
            # By the clock of its owner or of this process it would last for as long as that clock is wrong.
            dead = lease.owner
        lasted = max(VISIT_SECONDS - (lease.ends_at - now.timestamp()), watched)
        delay = max(line.next_delay(age + waited), lasted * _DOUBT)
    stats.depot_waits.append(clock.monotonic() - began)
    raise ThrottledError("CONTENTION", "no time was left to wait for the depot")


def release_depot(
    client: RetryingClient, lease: LaneLease, deadline: Deadline, stats: CommitStats
) -> None:
    """End the lease of the depot, unless a transaction has. A lease that cannot be released ends by itself."""
    with contextlib.suppress(StoreError):
        client.call(lambda: release_lane(client.store, lease), deadline, stats, attempts=3)
