"""Sells for callers who wait: from rows as long as nobody competes for them, then from a small lane of this process."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from inventory_orders.clock import Clock
from inventory_orders.domain.allotments import DEPOT, MAX_LANES, Page, PageKey
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.order import Order
from inventory_orders.domain.planner import Supply
from inventory_orders.domain.product import PageStock
from inventory_orders.engine.batch import AVOIDED_SECONDS, Batch
from inventory_orders.engine.loop import Attempt, Commit, Engine, Source
from inventory_orders.engine.memory import Recent
from inventory_orders.engine.retrying_client import RetryingClient, read_all
from inventory_orders.errors import StoreError, ThrottledError
from inventory_orders.lanes.demand import Demand
from inventory_orders.lanes.lane import OwnLane
from inventory_orders.lanes.source import LaneSource
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.dynamodb import Store

# Maximum number of products in the lane: an order writes a whole page, which has to stay below 1 KB.
_MOST_PRODUCTS = 20

# Free lanes that a process tries to take at a time. When a rush begins, hundreds of processes want one.
_TRIES = 2

# Rounds of one order, of which the first one may sell from rows.
_ROUNDS = 3

_NOW = 0.1

# Seconds after which a process asks for the depot again, if it was too busy.
_PAUSE = 1.0


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
    last = lanes + api_lanes
    lane = OwnLane(client, range(lanes + 1, last + 1), last, _TRIES)
    return Engine(client, CallersSource(client, lane))


class CallersSource(LaneSource):
    """Sells one order at a time. Whatever takes longer is left to workers, who do it for many orders together."""

    patience = 0.2
    recalls = False
    most_rows = MAX_LANES
    least = 20

    def __init__(self, client: RetryingClient, lane: OwnLane) -> None:
        super().__init__(client, lane, Demand(client.clock, _MOST_PRODUCTS))
        # Products that were too scarce for lanes. Only workers sell their last units.
        self._scarce = Recent(client.clock)
        # Products whose rows were contested, and those for which an order lost twice.
        self._warm, self._hot = Recent(client.clock), Recent(client.clock)
        # Products of orders that workers rejected.
        self._gone = Recent(client.clock)
        self._uses_lane = False
        self._rounds = 0
        # When the depot was last too busy.
        self._turned_away_at = float("-inf")

    def begin(self, batch: Batch) -> None:
        """Choose between the lane and rows. Reads rows and records now, because a stale copy would waste an attempt."""
        super().begin(batch)
        self._rounds = 0
        need = self._need(batch)
        in_lane = need.keys() - self.lane.lacks(need).keys()
        rows = [p for p in batch.pending.product_ids if p not in in_lane]
        is_warm = any(map(self._is_warm, rows))
        self._uses_lane = (is_warm and self._may_visit(batch, rows)) or bool(in_lane)
        if not self._uses_lane and any(map(self._is_hot, rows)) and not any(map(self._gone.has, rows)):
            batch.avoid_contested()
        if batch.pending and rows and not (is_warm and self._uses_lane):
            batch.read([*rows, *batch.pending.by_key])

    def observe_rejection(self, order: Order) -> None:
        """Note that a worker rejected an order. While its products are sold out, nobody competes for their rows."""
        for product_id in order.product_ids:
            self._gone.observe(product_id)

    def find(self, batch: Batch, commit: Commit) -> Supply | None:
        """Find the units of an order in the lane, or only in rows."""
        if not self._uses_lane:
            return Source.find(self, batch, commit)
        try:
            return super().find(batch, commit)
        except ThrottledError:
            self._turned_away_at = self.depot.client.clock.monotonic()
            if any(map(self._is_hot, batch.pending.product_ids)):
                raise
            self._uses_lane = False
            return Source.find(self, batch, commit)

    def tries_again(self, batch: Batch, *, is_lost: bool) -> bool:
        """Whether the order may be tried again: once more from rows, and then from the lane."""
        self._rounds += 1
        product_ids = batch.pending.product_ids
        if not is_lost and self._uses_lane:
            self._note_scarce(product_ids)
        for product_id in product_ids if is_lost else ():
            if self.depot.client.rivals.has(product_id, _NOW):
                (self._hot if self._rounds > 1 else self._warm).observe(product_id)
        if is_lost and self._rounds == 1 and not self._uses_lane:
            return True
        self._uses_lane = self._rounds < _ROUNDS and self._may_visit(batch, product_ids)
        return self._uses_lane

    def learn(self, batch: Batch, attempt: Attempt) -> None:
        """Note what was sold at the depot."""
        super().learn(batch, attempt)
        stocks = attempt.transaction.stock_after.values()
        self._note_scarce(
            s.product_id for s in stocks if isinstance(s, PageStock) and s.page.lane == DEPOT
        )

    def _need(self, batch: Batch) -> dict[str, int]:
        """The needed units of products that are in demand. All others are sold from rows."""
        return {p: n for p, n in super()._need(batch).items() if self.demand.has(p)}

    def _should_visit(self, lacks: Iterable[str]) -> bool:
        return any(map(self._is_warm, lacks)) and self._is_free

    def _is_warm(self, product_id: str) -> bool:
        """Whether a product should be in the lane."""
        return self._warm.has(product_id) and self.demand.has(product_id)

    def _is_hot(self, product_id: str) -> bool:
        """Whether a product is not sold from its row."""
        return self._hot.has(product_id, AVOIDED_SECONDS)

    @property
    def _is_free(self) -> bool:
        """Whether this process was not turned away from the depot a moment ago."""
        return self.depot.client.clock.monotonic() - self._turned_away_at >= _PAUSE

    def _note_scarce(self, product_ids: Iterable[str]) -> None:
        for product_id in product_ids:
            self._scarce.observe(product_id)

    def _may_visit(self, batch: Batch, product_ids: Iterable[str]) -> bool:
        """Whether a visit to the depot is worth it: soon, with a lane to fill, and for products that are not scarce."""
        if not self._is_free or any(map(self._scarce.has, product_ids)):
            return False
        with suppress(StoreError):
            self.lane.take(batch.deadline, batch.stats)
            if self.lane.number is not None:
                self._note_scarce(self._too_scarce(batch))
        return self.lane.number is not None and not any(map(self._scarce.has, product_ids))

    def _too_scarce(self, batch: Batch) -> list[str]:
        """The products of which row and depot have so few units that a visit would not fill the lane."""
        need = self._need(batch)
        keys = [*need, *{PageKey.of(DEPOT, product_id) for product_id in need}]
        found = read_all(self.depot.client, keys, batch.deadline, batch.stats)
        at_depot = Allocation({}, (page for page in found.pages.values() if isinstance(page, Page)))
        least = 2 * len(self.lane.lanes) * self.least
        return [
            p
            for p, units in need.items()
            if (row := found.products.get(p)) is not None
            and row.spare_units + at_depot.units(DEPOT, p) < least * units
        ]
