"""Sells for callers who wait: from rows, until orders compete for them, and then from a small lane of this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from inventory_orders.clock import Clock, Deadline
from inventory_orders.domain.allotments import DEPOT, Page, PageKey
from inventory_orders.domain.planner import Supply
from inventory_orders.engine.batch import AVOIDED_SECONDS, Batch
from inventory_orders.engine.loop import Commit, Engine, Source
from inventory_orders.engine.memory import Recent
from inventory_orders.engine.retrying_client import RetryingClient, read_all
from inventory_orders.errors import StoreError
from inventory_orders.lanes.demand import Demand
from inventory_orders.lanes.idle import IdleReturn
from inventory_orders.lanes.lane import OwnLane
from inventory_orders.lanes.source import LaneSource
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.dynamodb import Store

# Maximum number of products in the lane: an order writes a whole page, which has to stay below 1 KB.
_MOST_PRODUCTS = 20

# For how many orders the lane is filled at least.
_LEAST = 20

# Seconds for which a product that an order has lost takes one of the lane's places.
_LANE_MEMORY = 60.0

# Free lanes that a process tries to take at a time. When a rush begins, hundreds of processes want one.
_TRIES = 2

# Orders with more products are tried only once, and only if nothing competes for any of them.
_MOST_LINES = 8

# Seconds after which the lease of a lane of the API ends. Another process looks for ended leases every five seconds, so units of
# ended processes are back within ten.
_LANE_SECONDS = 5.0

# Seconds for which a long line at the depot keeps this process away.
_LINE_SECONDS = 2.0

# How often an order is tried.
_ROUNDS = 2

# Seconds for which a product is avoided that an order lost once. A process that sells on would keep loans from succeeding.
_SOON = 0.5

# If no lane is free, orders for a row that another process wrote within this number of seconds are left to workers: most of them
# would be lost. The time is that of the writer, and writing takes about a third of it.
_JUST_NOW = 0.08

# A conflict within this number of seconds belongs to the present order.
_NOW = 0.1


def engine_for_callers(
    store: Store,
    lanes: int,
    api_lanes: int,
    policy: RetryPolicy | None = None,
    clock: Clock | None = None,
) -> Engine:
    """Create an engine that never waits. It returns changes that it cannot decide immediately.

    Args:
        store: The tables.
        lanes: How many lanes the workers of queues have.
        api_lanes: How many lanes the processes of the API have, after these.
        policy: How to wait between attempts. It allows only one.
        clock: Source of time.
    """
    client = RetryingClient(store, policy or RetryPolicy(max_attempts=1), clock)
    mine = range(lanes + 1, lanes + api_lanes + 1)
    lane = OwnLane(client, mine, lanes + api_lanes, _TRIES, _LEAST, _LANE_SECONDS)
    return Engine(client, CallersSource(client, lane))


class CallersSource(LaneSource):
    """Sells one order at a time. Whatever takes longer is left to workers, who do it for many orders together."""

    patience = 0.2
    few_products = _MOST_LINES
    recalls = False

    def __init__(self, client: RetryingClient, lane: OwnLane) -> None:
        # Products that an order lost to a concurrent writer, and those that it lost again when it was tried once more.
        self._lost, self._hot = Recent(client.clock), Recent(client.clock)
        super().__init__(client, lane, Demand(client.clock, _MOST_PRODUCTS, self._belongs))
        self.depot.line.memory = _LINE_SECONDS
        self._uses_lane = False
        self._rounds = 0

    def begin(self, batch: Batch) -> None:
        """Choose between the lane and rows. Reads rows and records now, because a stale copy would waste an attempt."""
        self._rounds, self._uses_lane = 0, False
        product_ids = batch.pending.product_ids
        if len(product_ids) <= _MOST_LINES:
            super().begin(batch)
            self._choose(batch, product_ids)
        else:
            # Its one attempt is expensive, and would probably be lost.
            self._rounds = _ROUNDS
            batch.avoid_contested()
            batch.read([*batch.pending.product_ids, *batch.pending])

    def _choose(self, batch: Batch, product_ids: Sequence[str]) -> None:
        need = self._need(batch)
        in_lane = need.keys() - self.lane.lacks(need).keys()
        rows = [p for p in product_ids if p not in in_lane]
        is_hot = self._should_visit(rows)
        self._uses_lane = self._may_visit(batch) if is_hot else bool(in_lane)
        if is_hot and not self._uses_lane:
            batch.avoid_contested()
        if batch.pending and rows and not (is_hot and self._uses_lane):
            batch.read([*rows, *batch.pending.by_key])
            self._leave_contested(batch)

    def _leave_contested(self, batch: Batch) -> None:
        """If no lane is free, leave an order for a row that another process has just written to workers."""
        if self.lane.are_all_taken and batch.written_by_others(_JUST_NOW):
            batch.pending.give_up_all("CONTENTION", "another process wrote a product just now")

    def find(self, batch: Batch, commit: Commit) -> Supply | None:
        """Find the units of an order in the lane, or only in rows."""
        if not self._uses_lane:
            return Source().find(batch, commit)
        self.lane.look_around(batch.deadline, batch.stats)
        self._return_abandoned(batch)
        return super().find(batch, commit)

    def _return_abandoned(self, batch: Batch) -> None:
        """Return the units of a lane whose process has ended, unless other processes wait for the depot."""
        if self.lane.abandoned and self.depot.line.is_empty:
            with suppress(StoreError):
                soon = Deadline.after(min(1.0, batch.deadline.remaining()), self.depot.client.clock)
                IdleReturn(self.depot, soon, batch.stats).empty_lanes([self.lane.abandoned.pop()])

    def tries_again(self, batch: Batch, *, is_lost: bool) -> bool:
        """Whether the order may be tried once more. The next one gets what it lost, or what its row lacks, from the lane."""
        self._rounds += 1
        rivals, lent = self.depot.client.rivals, batch.known.lent
        for product_id in batch.pending.product_ids:
            if rivals.has(product_id, _NOW) or (product_id in lent and not is_lost):
                self._lost.observe(product_id)
                if self._rounds > 1 or not is_lost:
                    self._hot.observe(product_id)
        return is_lost and self._rounds < _ROUNDS

    def _belongs(self, product_id: str) -> bool:
        """Whether the lane is for a product: an order has lost it, or the lane has it already."""
        return self._lost.has(product_id, _LANE_MEMORY) or self.demand.has(product_id)

    def _need(self, batch: Batch) -> dict[str, int]:
        """The needed units of products that are in demand. All others are sold from rows."""
        return {p: n for p, n in super()._need(batch).items() if self.demand.has(p)}

    def _should_visit(self, lacks: Iterable[str]) -> bool:
        return any(self._lost.has(p, _SOON) or self._hot.has(p, AVOIDED_SECONDS) for p in lacks)

    def _may_visit(self, batch: Batch) -> bool:
        """Whether a visit to the depot would soon fill this process's lane. Workers go first, because they visit it for many orders."""
        if self.depot.line.is_empty:
            with suppress(StoreError):
                self.lane.take(batch.deadline, batch.stats)
                return self.lane.number is not None and self._is_plentiful(batch)
        return False

    def _is_plentiful(self, batch: Batch) -> bool:
        """Whether row and depot have enough units of each product for all lanes of the API."""
        need = self._need(batch)
        shelves = {PageKey.of(DEPOT, product_id) for product_id in need}
        found = read_all(self.depot.client, [*need, *shelves], batch.deadline, batch.stats)
        pages = [page for page in found.pages.values() if isinstance(page, Page)]
        orders = 2 * len(self.lane.lanes) * self.lane.least
        return all(
            row is not None
            and row.spare_units + sum(page.units(p) for page in pages) >= orders * need[p]
            for p, row in found.products.items()
        )
