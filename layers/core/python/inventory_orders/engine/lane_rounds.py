"""Rounds by lane: orders are sold from the own lane, else at the depot or from rows that are seldom sold.

The policy, with the reason for each number, is in docs/lanes.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor

from inventory_orders.clock import Deadline
from inventory_orders.domain.allotments import DEPOT, PageKey
from inventory_orders.domain.ledger import Ledger
from inventory_orders.domain.planner import Chain, plan_with_lanes
from inventory_orders.engine.chains import ChainProgress, ChainRunner
from inventory_orders.engine.consequences import Consequences
from inventory_orders.engine.depot import Supply, Visit
from inventory_orders.engine.lanes import Lanes
from inventory_orders.engine.line import release_depot
from inventory_orders.engine.pending import PendingChanges
from inventory_orders.engine.read_set import ReadSet
from inventory_orders.engine.reader import read
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import (
    CorruptItemError,
    OutcomeUnknownError,
    StoreError,
    ThrottledError,
)

# If a batch lacks no more than so many products in its lane, and all are seldom sold, they are sold from their rows.
_FEW_ROWS = 10


class LaneRounds:
    """Decides what is pending from what is set aside in lanes, round by round.

    Args:
        client: Sends the requests.
        executor: Sends requests side by side.
        lanes: What this process knows of lanes.
        pending: The changes that have no outcome yet.
        known: The products as the batch knows them.
        chains: Commits what is planned.
        consequences: What was learned of earlier attempts.
        age: Seconds for which the changes have waited before, in earlier invocations.
        deadline: No request begins after it.
        stats: Where to note what it took.
    """

    def __init__(
        self,
        client: RetryingClient,
        executor: Executor | None,
        lanes: Lanes,
        pending: PendingChanges,
        known: ReadSet,
        chains: ChainRunner,
        consequences: Consequences,
        age: float,
        deadline: Deadline,
        stats: CommitStats,
    ) -> None:
        self._client = client
        self._executor = executor
        self._lanes = lanes
        self._pending = pending
        self._known = known
        self._chains = chains
        self._consequences = consequences
        self._age = age
        self._deadline = deadline
        self._stats = stats
        # Seldom sold, but lent, and too little is left in their rows.
        self._for_depot: set[str] = set()

    def begin(self) -> None:
        """Note what is wanted. Records are read first only where replays are expected."""
        changes = self._pending.first_by_key
        self._lanes.demand.see(change.wanted for change in changes.values())
        if self._pending.may_be_replays:
            self._known.read([*changes])

    def round(self) -> None:
        """Find what is pending in the own lane, at the depot or in rows; commit what can be, and learn from the rest."""
        lanes = self._lanes
        visit: Visit | None = None
        has_lost = progressed = False
        pace = self._client.pace.wait
        if (
            pace and not self._client.pause(pace, self._deadline)
        ) or self._deadline.remaining() <= 0:
            self._pending.give_up_all("OUT_OF_TIME", "no time was left for another round")
            return
        throttled = self._consequences.throttled
        if not any(throttled.isdisjoint(change.product_ids) for change in self._pending):
            # All others are through.
            self._consequences.retry_throttled()
        try:
            # What is seldom sold costs what it cost without lanes: a process takes a lane when it has a use for it.
            lane = self._take_lane() if lanes.keys else None
            supply = self._without_a_visit(lane)
            if supply is None and self._pending:
                lane = lane or lanes.take(self._deadline, self._stats)
                visit = self._visit(lane)
                supply = visit.prepare(self._age)
                has_lost = supply is None
            if supply is not None:
                results = self._serve(supply)
                has_lost = self._consequences.learn(results)
                attempts = [attempt for result in results for attempt in result.attempts]
                done = [attempt.transaction for attempt in attempts if attempt.error is None]
                progressed = any(transaction.decisions for transaction in done)
                if any(transaction.release for transaction in done):
                    visit = None
        except CorruptItemError as error:
            corrupt = visit.corrupt if visit is not None else {}
            for product_id in self._pending.product_ids:
                if PageKey.of(DEPOT, product_id).number in corrupt:
                    self._pending.give_up_product(product_id, error.code, str(error))
        except (ThrottledError, OutcomeUnknownError) as error:
            self._pending.give_up_all(error.code, str(error))
        except StoreError as error:
            self._pending.fail(error)
        finally:
            if visit is not None and visit.lease is not None:
                release_depot(self._client, visit.lease, self._deadline, self._stats)
        if has_lost or not progressed:
            if not has_lost:
                self._consequences.retry_throttled()
            self._consequences.count_loss()
            self._consequences.back_off()

    def _take_lane(self) -> int | None:
        """The lane of this process, with its pages read; None if all are in use."""
        lanes = self._lanes
        lane = lanes.take(self._deadline, self._stats)
        if lane is not None and lanes.pages is None:
            found = read(self._client, self._executor, lanes.keys, self._deadline, self._stats)
            if found.unprocessed:
                raise ThrottledError("UNPROCESSED_KEYS", "no read answered for a page of the lane")
            lanes.remember(found.pages.values())
        # One that cannot be read is given up.
        return lane if lanes.keys else None

    def _without_a_visit(self, lane: int | None) -> Supply | None:
        """The supply, if the own lane has all, or what it lacks is better sold from rows; else None.

        What nobody may have set aside is sold from its row: what is seldom sold, and what is sold out. What was lost on
        is not: at the depot nobody loses.
        """
        lanes = self._lanes
        need, ledger = self._pending.need, Ledger({}, lanes.pages or ())
        own = {p: ledger.units(lane, p) if lane is not None else 0 for p in need}
        lacks = [product_id for product_id, units in need.items() if own[product_id] < units]
        ended = [product_id for product_id in lacks if lanes.is_sold_out(product_id)]
        seldom = [
            product_id
            for product_id in lacks
            if product_id not in self._consequences.lost_on
            and product_id not in self._for_depot
            and not lanes.is_sold_out(product_id)
            and lanes.demand.is_seldom(product_id)
            and not own[product_id]
        ]
        is_quiet = len(seldom) <= _FEW_ROWS and len(ended) + len(seldom) == len(lacks)
        if not is_quiet:
            return None
        if lacks:
            self._known.read([*lacks, *(change.record_key for change in self._pending)])
        for product_id in lacks:
            row = self._known.products.get(product_id)
            lanes.observe_row(product_id, row)
            is_enough = row is None or not row.lent_to or row.spare >= need[product_id]
            if not is_enough:
                self._for_depot.add(product_id)
                return None
            ledger.add_row(product_id, row)
        now = self._client.clock.now().timestamp()
        blocked = {
            product_id
            for product_id in lacks
            if (row := self._known.products.get(product_id)) is not None and row.lease_left(now) > 0
        }
        sources = {p: lane for p in need if lane is not None and own[p] >= need[p]}
        return Supply(ledger, sources, blocked=blocked)

    def _visit(self, lane: int | None) -> Visit:
        return Visit(
            self._client,
            self._executor,
            self._lanes,
            lane,
            self._pending.need,
            self._consequences.throttled | self._known.unreadable.keys(),
            self._move,
            self._deadline,
            self._stats,
        )

    def _move(self, chains: Iterable[Chain]) -> bool:
        """Commit moves. Returns whether all of them are durable."""
        results = self._chains.run(chains)
        self._consequences.learn(results)
        return all(result.complete for result in results)

    def _serve(self, supply: Supply) -> list[ChainProgress]:
        """Plan what is pending with what there is, and commit it."""
        self._known.take_over_rows(supply.ledger.rows, supply.unreadable)
        planned = plan_with_lanes(
            list(self._pending),
            supply.ledger,
            supply.sources,
            supply.blocked | self._known.unreadable.keys() | self._consequences.throttled,
            self._consequences.limits,
            release=supply.release,
            alone=supply.alone,
        )
        results = self._chains.run(planned.chains)
        self._known.return_undecidable(planned.held, self._client.clock.now().timestamp())
        return results
