"""The engine: makes a plan durable, and plans again where a rival was faster.

Its rules:

- Nothing is answered before it is durable. A rejection stands in or after the transaction that it depends on.
- A transaction that lost is planned again from what came back with its cancellation, without another read; what was
  committed before it stays committed.
- While the outcome of a request is unknown, the same request is repeated with the same token, before any new plan.
- On contested products, one is claimed before the next attempt (`claims.py`), and the last write of the chain releases
  it. One claim covers a whole chain, because its rivals want the same popular products. Where that is not enough, one
  more is claimed after each loss, all in the order of their ids, so that no two batches wait for each other.
- What is throttled waits until all others are through, and is tried without them.
- Every wait is bounded by the number of attempts and by the time that the invocation has left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import replace

from inventory_orders.clock import Clock, Deadline, SystemClock
from inventory_orders.domain.allotments import DEPOT, PageKey
from inventory_orders.domain.change import Change, RecordKey
from inventory_orders.domain.ledger import Ledger
from inventory_orders.domain.planner import (
    Chain,
    Limits,
    Plan,
    plan,
    plan_with_lanes,
)
from inventory_orders.domain.product import Product
from inventory_orders.engine.chains import ChainProgress, ChainRunner, touched
from inventory_orders.engine.claims import Claims
from inventory_orders.engine.consequences import Consequences
from inventory_orders.engine.depot import Supply, Visit
from inventory_orders.engine.lanes import Lanes
from inventory_orders.engine.line import release_depot
from inventory_orders.engine.outcomes import (
    ChangeOutcome,
    CommitReport,
    in_turns,
    joined,
    returned,
)
from inventory_orders.engine.pending import PendingChanges
from inventory_orders.engine.product_cache import ProductCache
from inventory_orders.engine.read_set import ReadSet, refusal
from inventory_orders.engine.reader import RecentReplays, read
from inventory_orders.engine.recall import bring_home
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import (
    ConditionFailedError,
    CorruptItemError,
    OutcomeUnknownError,
    RequestInvalidError,
    StoreError,
    ThrottledError,
)
from inventory_orders.retry import LEASE_POLL_SECONDS, RetryPolicy
from inventory_orders.store.dynamodb import Store

# If a batch lacks no more than so many products in its lane, and all are seldom sold, they are sold from their rows.
_FEW_ROWS = 10


class Committer:
    """Applies changes of stock: exactly once, all or nothing, without overselling.

    Args:
        store: Where the tables are.
        policy: How to wait between attempts.
        clock: Source of time.
        executor: Runs reads and transactions side by side; None runs them one after the other.
        limits: What one transaction may hold.
        lanes: How many lanes stock may be set aside in; 0: none.
        patient: Whether it waits where a rival is faster. If not, it makes one attempt of each request, and returns
            what would have to wait: it claims nothing, brings nothing home, and stays away from what is fought over.

    Attributes:
        client: Sends the requests.
        cache: The products as this process left them.
        replays: Whether replays were met lately.
        limits: What one transaction may hold.
        executor: As given.
        lanes: What this process knows of lanes; None if it uses none.
        patient: As given.
    """

    def __init__(
        self,
        store: Store,
        policy: RetryPolicy | None = None,
        clock: Clock | None = None,
        executor: Executor | None = None,
        limits: Limits | None = None,
        lanes: int = 0,
        *,
        patient: bool = True,
    ) -> None:
        policy = policy or RetryPolicy()
        if not patient:
            policy = replace(policy, max_attempts=1)
        self.client = RetryingClient(store, policy, clock or SystemClock())
        self.patient = patient
        self.cache = ProductCache(self.client.clock)
        self.replays = RecentReplays()
        self.limits = limits or Limits()
        self.executor = executor
        self.lanes = Lanes(self.client, lanes) if lanes else None

    def apply(
        self, changes: Sequence[Change], deadline: Deadline, age: float = 0.0
    ) -> CommitReport:
        """Apply each change once, or say why not.

        Args:
            changes: In the order in which they arrived. Of several with one record key the first counts.
            deadline: No request begins after it.
            age: Seconds for which the first of them has been waiting: what has waited longer comes first.

        Returns:
            What became of each. Whatever goes wrong with DynamoDB is in there too; it raises nothing.
        """
        turns = in_turns(changes)
        if len(turns) == 1:
            return self._apply(changes, deadline, age)
        outcomes: dict[int, ChangeOutcome] = {}
        reports: list[CommitReport] = []
        is_open: set[RecordKey] = set()
        for turn in turns:
            now = []
            for number in turn:
                change = changes[number]
                # A delivery must not be refused because the payment before it is to come again.
                if change.record_key in is_open and change.rejection({}) is not None:
                    outcomes[number] = returned("BEHIND_A_RETURNED_MESSAGE")
                else:
                    now.append(number)
            report = self._apply([changes[number] for number in now], deadline, age)
            reports.append(report)
            outcomes |= zip(now, report.outcomes, strict=True)
            is_open |= {changes[number].record_key for number in now if outcomes[number].is_open}
        return joined(outcomes, reports)

    def _apply(self, changes: Sequence[Change], deadline: Deadline, age: float) -> CommitReport:
        batch = _Batch(self, changes, deadline, age)
        try:
            batch.run()
        finally:
            batch.release_claims()
        return batch.report()


class _Batch:
    """One batch of changes on its way through the engine. Only the methods of this class change its state."""

    def __init__(
        self, engine: Committer, changes: Sequence[Change], deadline: Deadline, age: float
    ) -> None:
        self._engine = engine
        self._client = engine.client
        self._deadline = deadline
        self._age = age
        self._lanes = engine.lanes
        self._stats = CommitStats()
        self._pending = PendingChanges(changes, engine.replays)
        self._claims = Claims(engine.client, engine.cache, deadline, self._stats, age)
        self._known = ReadSet(
            engine.client,
            engine.executor,
            engine.cache,
            self._claims,
            self._pending,
            deadline,
            self._stats,
        )
        self._chains = ChainRunner(
            engine.client, engine.executor, self._claims, self._pending, deadline, self._stats
        )
        self._consequences = Consequences(
            engine.client,
            engine.cache,
            engine.lanes,
            self._claims,
            self._pending,
            self._known,
            engine.limits,
            deadline,
            self._stats,
        )
        self._for_depot: set[str] = set()

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Go on until every change has an outcome."""
        self._begin()
        while self._pending:
            if self._lanes is not None and self._is_for_lanes():
                self._round_with_lanes(self._lanes)
            else:
                self._round()

    def _begin(self) -> None:
        """Read what the batch is about, but for products that only this process seems to write.

        Where a contested product has to be claimed, that comes first: what was read before the wait would be stale
        after it, and so would be what is cached of the other products. Records are read with the products, as a hint
        which changes were answered before; by themselves they are worth a request only where replays are expected.
        """
        engine, changes = self._engine, self._pending.first_by_key
        engine.replays.observe_batch()
        if self._lanes is not None and self._is_for_lanes():
            self._lanes.demand.see(change.wanted for change in changes.values())
            if engine.replays.are_expected:
                self._known.read([*changes])
            return
        contention = self._client.contention
        wanted = self._pending.product_ids
        if not engine.patient:
            if any(contention.is_contested(product_id) for product_id in wanted):
                self._pending.give_up_all("CONTENTION", "rivals were met on a product a moment ago")
            else:
                # A copy that is stale would cost the only attempt.
                self._known.read([*wanted, *changes])
            return
        contention.demand.see(dict.fromkeys(c.product_ids, 1) for c in changes.values())
        to_claim = contention.product_to_claim(wanted)
        if to_claim is not None:
            self._take_claim(to_claim)
        else:
            self._known.take_from_cache(wanted)
        unknown = [product_id for product_id in wanted if product_id not in self._known.products]
        about_records_alone = not all(change.product_ids for change in changes.values())
        if unknown or about_records_alone or engine.replays.are_expected:
            # What a command may do hangs on where its order stands, so it must not be told by a stale copy.
            self._known.read([*unknown, *changes], records_too=about_records_alone)

    def _round(self) -> None:
        """Plan what is pending, commit what can be, and learn from what could not."""
        self._known.read_unknown()
        now = self._client.clock.now().timestamp()
        leased = self._known.leased(now)
        planned = plan(
            list(self._pending),
            self._known.products,
            leased | self._known.unreadable.keys() | self._consequences.throttled,
            self._consequences.limits,
        )
        if self._known.rests_on_cache and (planned.short or _rejects(planned)):
            # Nothing is rejected or brought home on the word of a cache.
            self._known.read_cached()
            return
        to_claim = [self._claims.to_take(self._written(chain), now) for chain in planned.chains]
        ready = [
            chain for chain, wanted in zip(planned.chains, to_claim, strict=True) if not wanted
        ]
        results = self._chains.run(ready)
        has_lost = self._consequences.learn(results)
        self._known.return_undecidable(planned.held, now)
        if has_lost:
            self._consequences.count_loss()
            contention = self._client.contention
            waits_in_line = contention.product_to_claim(self._pending.product_ids) is not None
            if self._consequences.throttled or self._claims.held or not waits_in_line:
                self._consequences.back_off()
        elif ready:
            if all(result.complete for result in results):
                self._claims.release()
        elif not self._engine.patient:
            self._pending.give_up_all("CONTENTION", "it would have to wait for others")
        elif self._pending and planned.chains:
            self._claim(planned.chains[0], to_claim[0])
        elif planned.short:
            self._bring_home(planned.short)
        elif self._consequences.throttled:
            # All others are through.
            self._consequences.retry_throttled()
        elif self._pending:
            self._wait_for_lease(leased, now)

    # ------------------------------------------------------------------ with lanes

    def _is_for_lanes(self) -> bool:
        """Whether what is pending takes units, and gives none back: that is for the rows.

        Groups are served by the rows, too: first come, first served ends where some are served by a lane.
        """
        pending = self._pending
        return any(change.wanted for change in pending) and all(
            change.group is None and (change.wanted or not change.product_ids) for change in pending
        )

    def _round_with_lanes(self, lanes: Lanes) -> None:
        """Find what is pending in the own lane, at the depot or in rows; commit what can be, and learn from the rest."""
        visit: Visit | None = None
        has_lost = progressed = False
        pace = self._client.pace.wait
        if (
            pace and not self._client.pause(pace, self._deadline)
        ) or self._deadline.remaining() <= 0:
            self._pending.give_up_all("OUT_OF_TIME", "no time was left for another round")
            return
        pending = self._pending
        if not any(
            self._consequences.throttled.isdisjoint(change.product_ids) for change in pending
        ):
            # All others are through.
            self._consequences.retry_throttled()
        try:
            # What is seldom sold costs what it cost without lanes: a process takes a lane when it has a use for it.
            lane = self._take_lane(lanes) if lanes.keys else None
            supply = self._without_a_visit(lanes, lane)
            if supply is None and self._pending:
                lane = lane or lanes.take(self._deadline, self._stats)
                visit = self._visit(lanes, lane)
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

    def _take_lane(self, lanes: Lanes) -> int | None:
        """The lane of this process, with its pages read; None if all are in use."""
        lane = lanes.take(self._deadline, self._stats)
        if lane is not None and lanes.pages is None:
            executor = self._engine.executor
            found = read(self._client, executor, lanes.keys, self._deadline, self._stats)
            if found.unprocessed:
                raise ThrottledError("UNPROCESSED_KEYS", "no read answered for a page of the lane")
            lanes.remember(found.pages.values())
        # One that cannot be read is given up.
        return lane if lanes.keys else None

    def _without_a_visit(self, lanes: Lanes, lane: int | None) -> Supply | None:
        """The supply, if the own lane has all, or what it lacks is better sold from rows; else None.

        What nobody may have set aside is sold from its row: what is seldom sold, and what is sold out. What was lost on
        is not: at the depot nobody loses.
        """
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

    def _visit(self, lanes: Lanes, lane: int | None) -> Visit:
        return Visit(
            self._client,
            self._engine.executor,
            lanes,
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

    # ------------------------------------------------------------------ waiting, and giving up

    def _wait_for_lease(self, leased: set[str], now: float) -> None:
        shortest = min(
            (left for change in self._pending if (left := self._known.lease_left(change, now)) > 0),
            default=0.0,
        )
        delay = min(shortest, LEASE_POLL_SECONDS)
        if self._client.pause(delay, self._deadline):
            self._stats.lease_wait += delay
            self._known.read(sorted(leased))
        else:
            self._pending.give_up_all("LEASED", "no time left to wait for a lease")

    # ------------------------------------------------------------------ claims

    def _written(self, chain: Chain) -> dict[str, Product | None]:
        """The products that a chain writes, by id, as they are known."""
        return {product_id: self._known.products[product_id] for product_id in touched(chain)}

    def _claim(self, chain: Chain, wanted: set[str]) -> None:
        """Claim the first of the products that a chain needs, and read the others that it touches.

        The next one, if it is still needed, in the next round: always in the order of their ids, so that no two
        batches wait for each other. What cannot be claimed is for the next round to judge.
        """
        self._take_claim(min(wanted))
        if others := sorted(touched(chain) - self._claims.held.keys()):
            self._known.read(others)

    def _take_claim(self, product_id: str) -> None:
        try:
            product = self._claims.take(product_id, alone=self._pending.is_about_one_product)
        except ConditionFailedError as failed:
            found = failed.found
            self._known.observe(
                product_id, found if isinstance(found, Product | CorruptItemError) else None
            )
        except CorruptItemError as error:
            self._known.observe(product_id, error)
        except ThrottledError as error:
            self._pending.give_up_product(product_id, error.code, str(error))
        except RequestInvalidError as error:
            self._claims.over(product_id)
            self._pending.give_up_product(
                product_id, "CORRUPT_PRODUCT", refusal(product_id, str(error))
            )
        except StoreError as error:
            self._pending.fail(error)
        else:
            self._known.note(product_id, product.unlocked())

    # ------------------------------------------------------------------ lanes

    def _bring_home(self, short: Collection[str]) -> None:
        """Get the units of products that lie in lanes. What cannot be had in time returns its changes."""
        # Under a claim nobody draws in between: a lane that sells fast would else be filled again and again.
        held = (self._claims.use(product_id, release=False) for product_id in short)
        owners = [use.owner for use in held if use is not None]
        engine, known = self._engine, (self._known.products[product_id] for product_id in short)
        if engine.lanes is not None:
            # The lane of this process may lose units, too.
            engine.lanes.forget()
        corrupt: CorruptItemError | None = None
        try:
            bring_home(
                self._client,
                engine.executor,
                [product for product in known if product is not None],
                self._deadline,
                self._stats,
                owners,
            )
        except CorruptItemError as error:
            corrupt = error
        except (ThrottledError, OutcomeUnknownError) as error:
            for product_id in short:
                self._pending.give_up_product(product_id, error.code, str(error))
            return
        except StoreError as error:
            self._pending.fail(error)
            return
        self._known.read(sorted(short))
        if corrupt is not None:
            for product_id in short:
                product = self._known.products.get(product_id)
                if product is not None and product.lent_to:
                    self._pending.give_up_product(product_id, corrupt.code, str(corrupt))

    # ------------------------------------------------------------------ the end

    def release_claims(self) -> None:
        """Release the claims that no commit has released."""
        self._claims.release()

    def report(self) -> CommitReport:
        """What became of every change."""
        return self._pending.report(self._stats)


def _rejects(planned: Plan) -> bool:
    return any(
        decision.rejection is not None
        for transaction in planned.transactions
        for decision in transaction.decisions
    )
