"""Sells the products of a batch from rows, from this process's lane, or at the depot.

A batch is sold from rows until one of them has concurrent writers, then from lanes. The policy and the reasons for its
numbers are in docs/lanes.md. Each write is conditioned on what was read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Executor

from inventory_orders.clock import Clock
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import DEPOT, PageKey
from inventory_orders.domain.planner import Supply
from inventory_orders.domain.product import PageStock, Product, Stock
from inventory_orders.engine.batch import Batch
from inventory_orders.engine.loop import Attempt, Commit, Engine, Source
from inventory_orders.engine.memory import BoundedDict, Recent
from inventory_orders.engine.retrying_client import RetryingClient, read_all
from inventory_orders.lanes.demand import Demand
from inventory_orders.lanes.depot import Depot
from inventory_orders.lanes.lane import OwnLane
from inventory_orders.lanes.visit import LaneSupply, Visit
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.cancellations import TransactionCancelledError
from inventory_orders.store.dynamodb import Store

# If the lane is short of at most this number of products, they may be sold from their rows.
_MOST_ROWS = 10


def engine_with_lanes(
    store: Store,
    policy: RetryPolicy | None = None,
    clock: Clock | None = None,
    executor: Executor | None = None,
    lanes: int = 0,
    api_lanes: int = 0,
) -> Engine:
    """Create an engine that takes units from lanes if rows have too few.

    Args:
        store: The tables.
        policy: How to wait between attempts.
        clock: Source of time.
        executor: Runs reads and transactions in parallel; None runs them one after the other.
        lanes: How many lanes the workers of queues have. The engine takes one. With 0 it takes none, and only recalls units.
        api_lanes: How many lanes the processes of the API have, after these.
    """
    client = RetryingClient(store, policy, clock, executor)
    return Engine(
        client, LaneSource(client, OwnLane(client, range(1, lanes + 1), lanes + api_lanes))
    )


class LaneSource(Source):
    """Sells products with contested rows from this process's lane, and visits the depot for missing units.

    Args:
        client: The client for the tables.
        lane: This process's lane.
        demand: Where to note the demand, if it is limited to a number of products.

    Attributes:
        lane: This process's lane.
        depot: The depot that fills it.
        demand: The demand for products.
    """

    # How long a visit waits for the depot, in seconds, before the batch is returned.
    patience = 20.0
    # While others wait for the depot, batches of at most this many changes, such as those of the express queue, are sold from rows.
    small_batch = 10
    # If such a batch has at most this many products, its visit ends sooner than a visitor reads and fills the lanes of others. So it
    # neither does that nor asks for it.
    few_products = 2
    # Whether a visit recalls units that other lanes hold.
    recalls = True

    def __init__(self, client: RetryingClient, lane: OwnLane, demand: Demand | None = None) -> None:
        self.lane = lane
        self.depot = Depot(client)
        self.demand = demand or Demand(client.clock)
        self._sold_out: BoundedDict[str, bool] = BoundedDict()
        # Products that were found short. Offers without them are preferred for a while.
        self._found_short = Recent(client.clock)
        # Products of this batch that earlier batches found short.
        self._known_short: set[str] = set()
        # Products whose units a change needs in the row, not in lanes.
        self._to_reclaim: set[str] = set()
        self._is_large = False

    def begin(self, batch: Batch) -> None:
        """Note the demand of a batch, and which of its products were recently short."""
        product_ids = batch.pending.product_ids
        self._to_reclaim, self._is_large = set(), len(batch.pending) > self.small_batch
        self.depot.combines = self._is_large or len(product_ids) > self.few_products
        if self.lane.lanes:
            self._known_short = set(filter(self._found_short.has, product_ids))
            batch.short |= self._known_short
            changes = batch.pending.by_key.values()
            self.demand.observe_orders(change.lane_units(batch.short) for change in changes)

    def find(self, batch: Batch, commit: Commit) -> Supply | None:
        """Find the units of pending changes in this process's lane or in rows; otherwise visit the depot."""
        need = self._need(batch)
        deadline, stats = batch.deadline, batch.stats
        # A lane's lease is extended in any case; a first lane is only taken for a visit, or if lanes are passed on.
        if self.lane.number is not None:
            self.lane.take(deadline, stats)
        if need and self.lane.is_crowded:
            self.lane.take_turn(deadline, stats)
        if self.lane.pages is None:
            found = read_all(self.depot.client, self.lane.keys, deadline, stats)
            self.lane.remember(found.pages.values())
        supply = self._without_a_visit(batch, need)
        if supply is not None or not batch.pending:
            return supply
        if need:
            self.lane.take(deadline, stats)
        to_reclaim = self._to_reclaim.intersection(batch.pending.product_ids)
        visit = Visit(self.lane, self.depot, self.demand, batch, need, to_reclaim)
        if not visit.begin(self.patience):
            return self._without_a_visit(batch, need) or super().find(batch, commit)
        return visit.prepare(commit, recalls=self.recalls)

    def fetches(self, batch: Batch, missing: Collection[str]) -> bool:
        """Whether the next visit reclaims missing units. Units that orders need are recalled in any case.

        A row that another program has broken takes no units back while lanes hold some.
        """
        new = set(missing) - self._to_reclaim
        if new <= {product_id for product_id, units in self._need(batch).items() if units}:
            return False
        self._to_reclaim |= new
        return True

    def learn(self, batch: Batch, attempt: Attempt) -> None:
        """Keep the lane as a transaction left it, and measure loans and sales."""
        transaction, stats = attempt.transaction, batch.stats
        is_applied = attempt.error is None
        self.lane.learn(transaction, attempt.error)
        if is_applied or isinstance(attempt.error, TransactionCancelledError):
            stats.measured["LoansLost"] += [not is_applied] * len(transaction.lent)
        if not is_applied:
            return
        if transaction.lent:
            stats.measured["Loans"].append(len(transaction.lent))
            stats.measured["UnitsLent"].append(sum(transaction.lent.values()))
        if transaction.release is not None:
            self.depot.lease = None
        for decision in transaction.decisions if self.lane.lanes else ():
            if decision.deltas:
                sold = (transaction.stock_after[product_id] for product_id in decision.deltas)
                stats.measured["OrdersFromLanes"].append(all(map(_is_in_lane, sold)))

    def end_round(self, batch: Batch) -> None:
        """Release the depot, unless a transaction already has, and note which products are short or sold out."""
        self.depot.release(batch.deadline, batch.stats)
        if self.lane.is_crowded and not batch.pending:
            self.lane.pass_on(batch.deadline, batch.stats)
        self._found_short.observe(*(batch.short - self._known_short))
        for product_id, row in batch.known.rows.items():
            if row is not None and row.spare_units > 0:
                # Stock has come in since an earlier batch found the product short, so lanes may sell it again.
                self._found_short.pop(product_id, None)
                batch.short -= {product_id} & self._known_short
                self._known_short.discard(product_id)
            is_out = row is None or row.is_discontinued or row.sellable <= 0
            if is_out or product_id in self._sold_out:
                self._sold_out[product_id] = is_out

    # ------------------------------------------------------------------ rows

    def _without_a_visit(self, batch: Batch, need: Mapping[str, int]) -> Supply | None:
        """The supply from this process's lane and from rows; None if a visit to the depot is better."""
        lacks = self.lane.lacks(need)
        if self._should_visit(lacks):
            return None
        sources = {p: PageKey.of(self.lane.number or DEPOT, p) for p in need if p not in lacks}
        rows = self._read_rows(batch, sources)
        if any(self._is_short(row, need.get(p, 0)) for p, row in rows.items()):
            return None
        allocation = Allocation(rows, self.lane.pages or ())
        return LaneSupply(allocation, sources) if sources else Supply(allocation)

    def _read_rows(self, batch: Batch, sources: Collection[str]) -> dict[str, Product | None]:
        """The rows of products that are not sold from the lane."""
        wanted = [p for p in batch.wanted if p not in sources]
        batch.read_unknown(wanted)
        return {p: batch.known.rows[p] for p in wanted if p in batch.known.rows}

    def _should_visit(self, lacks: Iterable[str]) -> bool:
        """Whether to use the depot instead of rows, for products of which this process's lane has too few units."""
        # Only the row sells a product that was sold out when the row was last read.
        wanted = [product_id for product_id in lacks if not self._sold_out.get(product_id)]
        if len(wanted) > _MOST_ROWS or any(map(self.depot.client.rivals.has, wanted)):
            return True
        if self.depot.line.is_empty:
            # One visit that fills the lane is better than writing rows batch after batch.
            return any(map(self.lane.units, wanted))
        # A visitor fills the lanes of all who wait, and writing rows would make its loans fail.
        return self._is_large and bool(wanted)

    def _is_short(self, row: Product | None, units: int) -> bool:
        """Whether the row has too few units, and lanes may hold more."""
        if row is None or not row.lent_to:
            return False
        return row.spare_units < units or row.product_id in self._to_reclaim

    def _need(self, batch: Batch) -> dict[str, int]:
        """The units of each product that pending changes take and that may be sold from lanes.

        Products of a change that needs their rows are left out, because a product has one source in each round.
        """
        need, by_row = Counter[str](), set[str]()
        for change in batch.pending.values() if self.lane.lanes else ():
            wanted = change.lane_units(batch.short)
            need.update(wanted)
            if not wanted:
                by_row.update(change.product_ids)
        return {product_id: units for product_id, units in need.items() if product_id not in by_row}


def _is_in_lane(stock: Stock) -> bool:
    """Whether units are in a lane, not in a row or at the depot."""
    return isinstance(stock, PageStock) and stock.page.lane != DEPOT
