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

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from inventory_orders.clock import Clock, Deadline, SystemClock, timestamp
from inventory_orders.domain.allotments import DEPOT, PageKey
from inventory_orders.domain.change import Change, IdempotencyMatch, Record, RecordKey, Rejection
from inventory_orders.domain.ledger import Ledger
from inventory_orders.domain.planner import (
    Chain,
    Limits,
    Plan,
    Transaction,
    plan,
    plan_with_lanes,
)
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.engine.answers import Failure, FailureKind, classify
from inventory_orders.engine.claims import CLAIM_SECONDS, Claims
from inventory_orders.engine.depot import Supply, Visit
from inventory_orders.engine.lanes import Lanes
from inventory_orders.engine.line import release_depot
from inventory_orders.engine.outcomes import (
    ChangeOutcome,
    ChangeStatus,
    CommitReport,
    Duplicates,
    in_turns,
    joined,
    returned,
)
from inventory_orders.engine.product_cache import ProductCache
from inventory_orders.engine.reader import RecentReplays, read, side_by_side
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
    TransactionCancelledError,
)
from inventory_orders.retry import LEASE_POLL_SECONDS, RetryPolicy
from inventory_orders.store.dynamodb import ClaimUse, Store

# If a batch lacks no more than so many products in its lane, and all are seldom sold, they are sold from their rows.
_FEW_ROWS = 10

_REPAIR = "it fails a condition on what was read from it; repair the item"


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


@dataclass(slots=True)
class _Attempt:
    """A transaction that was sent, and what came of it.

    Attributes:
        transaction: What was sent.
        claims: Under which claims.
        at: When, as its records say; empty before.
        error: Why it was not applied; None if it was.
        stats: What it took.
    """

    transaction: Transaction
    claims: Mapping[str, ClaimUse]
    at: str = ""
    error: StoreError | None = None
    stats: CommitStats = field(default_factory=CommitStats)


@dataclass(slots=True)
class _ChainProgress:
    """How far a chain of transactions came.

    Attributes:
        chain: The chain.
        claimed: Those of its products that are claimed.
        steps: Steps that were sent.
        attempts: Their transactions.
    """

    chain: Chain
    claimed: set[str]
    steps: int = 0
    attempts: list[_Attempt] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether one of the transactions was not applied."""
        return any(attempt.error is not None for attempt in self.attempts)

    @property
    def complete(self) -> bool:
        """Whether all of it is durable."""
        return self.steps == len(self.chain) and not self.failed


class _Batch:
    """One batch of changes on its way through the engine. Only the methods of this class change its state."""

    def __init__(
        self, engine: Committer, changes: Sequence[Change], deadline: Deadline, age: float
    ) -> None:
        self._engine = engine
        self._client = engine.client
        self._deadline = deadline
        self._duplicates = Duplicates(changes)
        self._pending: dict[RecordKey, Change] = dict(self._duplicates.first_by_key)
        self._outcomes: dict[RecordKey, ChangeOutcome] = {}
        self._products: dict[str, Product | None] = {}
        self._unreadable: dict[str, str] = {}
        self._from_cache: set[str] = set()
        self._to_claim_too: set[str] = set()
        self._throttled: set[str] = set()
        self._limits = engine.limits
        self._losses = 0
        self._retries: dict[RecordKey, int] = {}
        self._stats = CommitStats()
        self._claims = Claims(engine.client, engine.cache, deadline, self._stats, age)
        self._failure: StoreError | None = None
        self._age = age
        self._fought: set[str] = set()
        self._lanes = engine.lanes

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
        engine, changes = self._engine, self._duplicates.first_by_key
        engine.replays.observe_batch()
        if self._lanes is not None and self._is_for_lanes():
            self._lanes.demand.see(change.wanted for change in changes.values())
            if engine.replays.are_expected:
                self._read([*changes])
            return
        contention = self._client.contention
        wanted = self._product_ids()
        if not engine.patient:
            if any(contention.is_contested(product_id) for product_id in wanted):
                self._give_up_all("CONTENTION", "rivals were met on a product a moment ago")
            else:
                # A copy that is stale would cost the only attempt.
                self._read([*wanted, *changes])
            return
        contention.demand.see(dict.fromkeys(c.product_ids, 1) for c in changes.values())
        to_claim = contention.product_to_claim(wanted)
        if to_claim is not None:
            self._take_claim(to_claim)
        else:
            for product_id in wanted:
                cached = engine.cache.get(product_id)
                if cached is not None and not contention.is_contested(product_id):
                    self._products[product_id] = cached
                    self._from_cache.add(product_id)
        unknown = [product_id for product_id in wanted if product_id not in self._products]
        about_records_alone = not all(change.product_ids for change in changes.values())
        if unknown or about_records_alone or engine.replays.are_expected:
            # What a command may do hangs on where its order stands, so it must not be told by a stale copy.
            self._read([*unknown, *changes], records_too=about_records_alone)

    def _round(self) -> None:
        """Plan what is pending, commit what can be, and learn from what could not."""
        self._read_unknown()
        now = self._client.clock.now().timestamp()
        leased = self._leased(now)
        planned = plan(
            list(self._pending.values()),
            self._products,
            leased | self._unreadable.keys() | self._throttled,
            self._limits,
        )
        if self._from_cache and (planned.short or _rejects(planned)):
            # Nothing is rejected or brought home on the word of a cache.
            cached, self._from_cache = sorted(self._from_cache), set()
            self._read(cached)
            return
        to_claim = [self._to_claim(chain, now) for chain in planned.chains]
        ready = [
            chain for chain, wanted in zip(planned.chains, to_claim, strict=True) if not wanted
        ]
        results = self._run_chains(ready)
        has_lost = self._learn(results)
        self._return_undecidable(planned.held, now)
        if has_lost:
            self._losses += 1
            self._return_out_of_attempts()
            contention = self._client.contention
            waits_in_line = contention.product_to_claim(self._product_ids()) is not None
            if self._throttled or self._claims.held or not waits_in_line:
                self._back_off()
        elif ready:
            if all(result.complete for result in results):
                self._claims.release()
        elif not self._engine.patient:
            self._give_up_all("CONTENTION", "it would have to wait for others")
        elif self._pending and planned.chains:
            self._claim(planned.chains[0], to_claim[0])
        elif planned.short:
            self._bring_home(planned.short)
        elif self._throttled:
            # All others are through.
            self._throttled.clear()
        elif self._pending:
            self._wait_for_lease(leased, now)

    def _learn(self, results: Iterable[_ChainProgress]) -> bool:
        """Take over what was committed, and act on what was not. Returns whether something lost against rivals."""
        # First what is durable: an error of one chain must not be taken for the end of another's changes.
        attempts = [attempt for result in results for attempt in result.attempts]
        for attempt in attempts:
            if attempt.error is None:
                self._take_over(attempt.transaction, attempt.at)
        lost = [
            self._act_on(attempt.transaction, classify(attempt.transaction, attempt.error))
            for attempt in attempts
            if attempt.error is not None
        ]
        return any(lost)

    def _leased(self, now: float) -> set[str]:
        """Products under a lease of another that is no claim."""
        return {
            product_id
            for product_id, product in self._products.items()
            if product is not None and product.lease_left(now) > 0 and not product.is_claimed
        }

    # ------------------------------------------------------------------ with lanes

    def _is_for_lanes(self) -> bool:
        """Whether what is pending takes units, and gives none back: that is for the rows.

        Groups are served by the rows, too: first come, first served ends where some are served by a lane.
        """
        pending = self._pending.values()
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
            self._give_up_all("OUT_OF_TIME", "no time was left for another round")
            return
        pending = self._pending.values()
        if not any(self._throttled.isdisjoint(change.product_ids) for change in pending):
            # All others are through.
            self._throttled.clear()
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
                has_lost = self._learn(results)
                attempts = [attempt for result in results for attempt in result.attempts]
                done = [attempt.transaction for attempt in attempts if attempt.error is None]
                progressed = any(transaction.decisions for transaction in done)
                if any(transaction.release for transaction in done):
                    visit = None
        except CorruptItemError as error:
            corrupt = visit.corrupt if visit is not None else {}
            for product_id in self._product_ids():
                if PageKey.of(DEPOT, product_id).number in corrupt:
                    self._give_up_product(product_id, error.code, str(error))
        except (ThrottledError, OutcomeUnknownError) as error:
            self._give_up_all(error.code, str(error))
        except StoreError as error:
            self._fail(error)
        finally:
            if visit is not None and visit.lease is not None:
                release_depot(self._client, visit.lease, self._deadline, self._stats)
        if has_lost or not progressed:
            self._losses += 1
            if not has_lost:
                self._throttled.clear()
            self._return_out_of_attempts()
            self._back_off()

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
        need, ledger = self._need(), Ledger({}, lanes.pages or ())
        own = {p: ledger.units(lane, p) if lane is not None else 0 for p in need}
        lacks = [product_id for product_id, units in need.items() if own[product_id] < units]
        ended = [product_id for product_id in lacks if lanes.is_sold_out(product_id)]
        seldom = [
            product_id
            for product_id in lacks
            if product_id not in self._fought
            and not lanes.is_sold_out(product_id)
            and lanes.demand.is_seldom(product_id)
            and not own[product_id]
        ]
        is_quiet = len(seldom) <= _FEW_ROWS and len(ended) + len(seldom) == len(lacks)
        if not is_quiet:
            return None
        if lacks:
            self._read([*lacks, *self._pending])
        for product_id in lacks:
            row = self._products.get(product_id)
            lanes.observe_row(product_id, row)
            is_enough = row is None or not row.lent_to or row.spare >= need[product_id]
            if not is_enough:
                self._fought.add(product_id)
                return None
            ledger.add_row(product_id, row)
        now = self._client.clock.now().timestamp()
        blocked = {
            product_id
            for product_id in lacks
            if (row := self._products.get(product_id)) is not None and row.lease_left(now) > 0
        }
        sources = {p: lane for p in need if lane is not None and own[p] >= need[p]}
        return Supply(ledger, sources, blocked=blocked)

    def _visit(self, lanes: Lanes, lane: int | None) -> Visit:
        return Visit(
            self._client,
            self._engine.executor,
            lanes,
            lane,
            self._need(),
            self._throttled | self._unreadable.keys(),
            self._move,
            self._deadline,
            self._stats,
        )

    def _move(self, chains: Iterable[Chain]) -> bool:
        """Commit moves. Returns whether all of them are durable."""
        results = self._run_chains(chains)
        self._learn(results)
        return all(result.complete for result in results)

    def _serve(self, supply: Supply) -> list[_ChainProgress]:
        """Plan what is pending with what there is, and commit it."""
        self._products.update(supply.ledger.rows)
        self._unreadable.update(supply.unreadable)
        planned = plan_with_lanes(
            list(self._pending.values()),
            supply.ledger,
            supply.sources,
            supply.blocked | self._unreadable.keys() | self._throttled,
            self._limits,
            release=supply.release,
            alone=supply.alone,
        )
        results = self._run_chains(planned.chains)
        self._return_undecidable(planned.held, self._client.clock.now().timestamp())
        return results

    def _need(self) -> dict[str, int]:
        """Units of each product that the pending changes want."""
        need: dict[str, int] = {}
        for change in self._pending.values():
            for product_id, units in change.wanted.items():
                need[product_id] = need.get(product_id, 0) + units
        return need

    # ------------------------------------------------------------------ committing

    def _run_chains(self, chains: Iterable[Chain]) -> list[_ChainProgress]:
        """Commit chains side by side, each step by step, up to the first that fails."""
        results = [
            _ChainProgress(chain, _touched(chain) & self._claims.held.keys()) for chain in chains
        ]
        while going_on := [result for result in results if self._goes_on(result)]:
            steps = [self._next_step(result) for result in going_on]
            side_by_side(
                self._engine.executor, self._commit, [attempt for step in steps for attempt in step]
            )
            for result, step in zip(going_on, steps, strict=True):
                result.steps += 1
                result.attempts += step
                for attempt in step:
                    self._count(attempt)
        return results

    def _goes_on(self, result: _ChainProgress) -> bool:
        if result.failed or result.complete:
            return False
        return result.steps == 0 or not self._claims.about_to_end(result.claimed)

    def _next_step(self, result: _ChainProgress) -> list[_Attempt]:
        """The next transactions of a chain. The last one, if it can, releases all claims in the same write."""
        step = result.chain[result.steps]
        last = result.steps + 1 == len(result.chain) and len(step) == 1
        release = last and result.claimed <= step[0].after.keys()
        attempts = []
        for transaction in step:
            uses = (
                (product_id, self._claims.use(product_id, release=release))
                for product_id in transaction.after
            )
            claims = {product_id: use for product_id, use in uses if use is not None}
            attempts.append(_Attempt(transaction, claims))
        return attempts

    def _commit(self, attempt: _Attempt) -> None:
        """Send a transaction. Runs beside others, so it changes nothing but the attempt."""
        client, transaction, stats = self._client, attempt.transaction, attempt.stats
        now = client.clock.now()
        attempt.at = timestamp(now)
        request = client.store.transaction_request(transaction, now, attempt.claims)
        if not request:
            return
        claimable = [
            index
            for index, update in enumerate(transaction.updates)
            if update.before.product_id not in attempt.claims
        ]
        try:
            client.write(
                request,
                len(transaction.updates),
                self._deadline,
                stats,
                pages=len(transaction.pages),
                claimable=claimable,
                apart=len(transaction.updates) > 1 or not self._is_alone(),
            )
        except StoreError as error:
            attempt.error = error
            return
        if transaction.decisions:
            stats.changes_per_transaction.append(len(transaction.decisions))
        stats.low_stock += [
            update.after
            for update in transaction.updates
            if update.before.status is ProductStatus.ACTIVE
            and update.after.status is not ProductStatus.ACTIVE
        ]

    def _count(self, attempt: _Attempt) -> None:
        """Add up what an attempt took, and note the claims that it released."""
        self._stats.add(attempt.stats)
        drawn = attempt.transaction.drawn
        if attempt.error is None:
            self._stats.draws_lost += [False] * len(drawn)
            self._stats.units_lent += sum(drawn.values())
        elif isinstance(attempt.error, TransactionCancelledError):
            self._stats.draws_lost += [True] * len(drawn)
        if repeated := len(attempt.stats.backoffs):
            for decision in attempt.transaction.decisions:
                self._count_retries(decision.change, repeated)
        if attempt.error is None:
            for product_id, use in attempt.claims.items():
                if use.release:
                    self._claims.over(product_id)

    def _count_retries(self, change: Change, retries: int) -> None:
        self._retries[change.record_key] = self._retries.get(change.record_key, 0) + retries

    # ------------------------------------------------------------------ learning from the answers

    def _take_over(self, committed: Transaction, at: str) -> None:
        """Take over what was committed."""
        after, as_sold = committed.after, committed.as_sold
        self._products.update(after)
        self._from_cache -= after.keys()
        for product_id, product in after.items():
            self._engine.cache.observe_write(product)
            if self._lanes is not None:
                self._lanes.observe_row(product_id, product)
        if self._lanes is not None:
            self._lanes.observe_commit(committed.pages)
        for decision in committed.decisions:
            change = decision.change
            if decision.rejection is not None:
                outcome = ChangeOutcome(
                    ChangeStatus.REJECTED,
                    decision.rejection,
                    is_written_rejection=decision.has_record,
                )
            else:
                changed = {product_id: as_sold[product_id] for product_id in decision.touched}
                outcome = ChangeOutcome(ChangeStatus.APPLIED, applied=change, after=changed, at=at)
                if self._lanes is not None:
                    own = (p.page is not None and p.page.lane != DEPOT for p in changed.values())
                    self._stats.from_lanes.append(all(own))
            self._settle(change, outcome)

    def _act_on(self, failed: Transaction, failure: Failure) -> bool:
        """Draw the consequences of a failure. Returns whether it lost against rivals, and so should wait."""
        changes = [decision.change for decision in failed.decisions]
        for product_id in failed.after:
            self._engine.cache.forget(product_id)
        self._fought |= failed.after.keys()
        if self._lanes is not None and failed.pages:
            # Another has written a page, or it is not known whether this transaction has.
            self._lanes.forget()
        for product_id, found in failure.found_products:
            self._observe(product_id, found)
        for product_id in failure.rivals:
            self._client.contention.observe_conflict(product_id)
        for product_id, why in failure.refused:
            # Noted, too: a draw from a row that nothing here wants would else be tried again and again.
            self._unreadable[product_id] = _refusal(product_id, why)
            self._give_up_product(product_id, "CORRUPT_PRODUCT", self._unreadable[product_id])
        self._throttled.update(failure.throttled)
        if failure.rivals and self._claims.held and self._losses > 1:
            # The first one may have been in flight before the claim; another one is not kept out by it.
            most_wanted = self._client.contention.most_wanted(failure.rivals)
            self._to_claim_too |= {*self._claims.held, most_wanted}
        replaced = [self._recognise(change, record) for change, record in failure.found_records]
        undecided = [change for change in changes if change.record_key in self._pending]
        if failure.kind is FailureKind.EXHAUSTED:
            self._give_up(undecided, failure.code, str(failure.error))
            return False
        if failure.kind is FailureKind.UNAVAILABLE:
            self._fail(failure.error)
            return False
        for change in undecided:
            self._count_retries(change, 1)
        if failure.kind is FailureKind.INVALID:
            self._isolate(undecided, failure.code, str(failure.error))
        return failure.contended or any(replaced)

    def _observe(self, product_id: str, found: Product | CorruptItemError | None) -> None:
        """Take over a product as it came back: the next plan starts from it."""
        self._claims.doubt(product_id)
        self._note(product_id, found)

    def _note(self, product_id: str, found: Product | CorruptItemError | None) -> None:
        self._unreadable.pop(product_id, None)
        self._from_cache.discard(product_id)
        if isinstance(found, CorruptItemError):
            self._unreadable[product_id] = str(found)
        else:
            self._products[product_id] = found

    def _recognise(self, change: Change, record: Record | CorruptItemError | None) -> bool:
        """Answer a change by its record. Returns whether it, or one that takes its place, has to be planned again."""
        if record is None:
            return True
        if isinstance(record, CorruptItemError):
            self._give_up([change], record.code, str(record))
            return False
        try:
            meaning = change.recognise(record)
        except CorruptItemError as error:
            self._give_up([change], error.code, str(error))
            return False
        if isinstance(meaning, IdempotencyMatch):
            self._engine.replays.observe_replay()
            same = meaning is IdempotencyMatch.SAME_REQUEST
            status = ChangeStatus.REPLAYED if same else ChangeStatus.ID_REUSED
            self._settle(change, ChangeOutcome(status, record=record))
        elif isinstance(meaning, Rejection):
            self._settle(change, ChangeOutcome(ChangeStatus.REJECTED, meaning, record=record))
        elif meaning == change:
            # Planned from this very record, it failed: planned again it would fail again.
            self._give_up([change], "CORRUPT_RECORD", f"{record.key} contradicts itself: {_REPAIR}")
        else:
            self._pending[change.record_key] = meaning
            return True
        return False

    def _isolate(self, changes: Sequence[Change], code: str, detail: str) -> None:
        """Halve the transactions until the offending change stands alone."""
        if len(changes) == 1:
            invalid = ChangeOutcome(ChangeStatus.INVALID, cause=code, detail=detail)
            self._settle(changes[0], invalid)
        elif changes:
            self._limits = replace(self._limits, changes=(len(changes) + 1) // 2)

    # ------------------------------------------------------------------ waiting, and giving up

    def _back_off(self) -> None:
        if not self._pending:
            return
        delay = self._client.policy.backoff(self._losses)
        if self._client.pause(delay, self._deadline):
            self._stats.backoffs.append(delay)
        else:
            self._give_up_all("CONTENTION", "no time left for another attempt")

    def _wait_for_lease(self, leased: set[str], now: float) -> None:
        shortest = min(
            (
                left
                for change in self._pending.values()
                if (left := self._lease_left(change, now)) > 0
            ),
            default=0.0,
        )
        delay = min(shortest, LEASE_POLL_SECONDS)
        if self._client.pause(delay, self._deadline):
            self._stats.lease_wait += delay
            self._read(sorted(leased))
        else:
            self._give_up_all("LEASED", "no time left to wait for a lease")

    def _return_out_of_attempts(self) -> None:
        """Give up changes that have lost too often."""
        most = self._client.policy.max_attempts
        out = [c for key, c in self._pending.items() if self._retries.get(key, 0) >= most]
        if out:
            self._give_up(
                out, "CONTENTION", "lost against rivals, or was throttled, in every attempt"
            )

    def _return_undecidable(self, held: Iterable[Change], now: float) -> None:
        """Return held changes for which there is nothing to wait for, with those behind them in their group."""
        stopped: dict[str, ChangeOutcome] = {}
        for change in held:
            outcome = stopped.get(change.group) if change.group is not None else None
            outcome = outcome or self._undecidable(change, now)
            if outcome is not None:
                self._settle(change, outcome)
                if change.group is not None:
                    stopped[change.group] = outcome

    def _undecidable(self, change: Change, now: float) -> ChangeOutcome | None:
        for product_id in change.product_ids:
            if product_id in self._unreadable:
                problem = self._unreadable[product_id]
                # An error about an item begins with what the item is.
                is_page = problem.startswith("page ")
                return returned("CORRUPT_PAGE" if is_page else "CORRUPT_PRODUCT", problem)
        left = self._lease_left(change, now)
        if left > self._deadline.remaining():
            return returned("LEASED", f"a product is under a lease for another {left:.1f} s", left)
        return None

    def _lease_left(self, change: Change, now: float) -> float:
        products = (self._products.get(product_id) for product_id in change.product_ids)
        return max((product.lease_left(now) for product in products if product), default=0.0)

    def _give_up(self, changes: Iterable[Change], cause: str, detail: str) -> None:
        """Return changes to their sender, and those that arrived after them in their groups."""
        given_up = list(changes)
        groups = {change.group for change in given_up} - {None}
        keys = {change.record_key for change in given_up}
        for change in list(self._pending.values()):
            if change.record_key in keys or change.group in groups:
                self._settle(change, returned(cause, detail))

    def _give_up_product(self, product_id: str, cause: str, detail: str) -> None:
        touching = [c for c in self._pending.values() if product_id in c.product_ids]
        self._give_up(touching, cause, detail)

    def _give_up_all(self, cause: str, detail: str) -> None:
        self._give_up(self._pending.values(), cause, detail)

    def _fail(self, error: StoreError) -> None:
        """No request can succeed: return all that is left, loudly."""
        self._failure = error
        self._give_up_all(error.code, str(error))

    def _settle(self, change: Change, outcome: ChangeOutcome) -> None:
        """Decide a change for good: the first outcome stands."""
        key = change.record_key
        if self._pending.pop(key, None) is not None:
            self._outcomes[key] = outcome

    # ------------------------------------------------------------------ claims

    def _to_claim(self, chain: Chain, now: float) -> set[str]:
        """The products that have to be claimed before a chain may run."""
        touched = _touched(chain)
        held = self._claims.held
        claimed_by_others = {
            product_id
            for product_id in touched
            if (product := self._products[product_id]) is not None and product.lease_left(now) > 0
        }
        wanted = claimed_by_others | (self._to_claim_too & touched)
        if (to_claim := self._client.contention.product_to_claim(touched)) is not None:
            wanted.add(to_claim)
        elif not wanted:
            wanted = touched & held.keys()
        enough = now + CLAIM_SECONDS / 2
        return {product_id for product_id in wanted if held.get(product_id, 0.0) < enough}

    def _claim(self, chain: Chain, wanted: set[str]) -> None:
        """Claim the first of the products that a chain needs, and read the others that it touches.

        The next one, if it is still needed, in the next round: always in the order of their ids, so that no two
        batches wait for each other. What cannot be claimed is for the next round to judge.
        """
        self._take_claim(min(wanted))
        if others := sorted(_touched(chain) - self._claims.held.keys()):
            self._read(others)

    def _take_claim(self, product_id: str) -> None:
        try:
            product = self._claims.take(product_id, alone=self._is_alone())
        except ConditionFailedError as failed:
            found = failed.found
            self._observe(
                product_id, found if isinstance(found, Product | CorruptItemError) else None
            )
        except CorruptItemError as error:
            self._observe(product_id, error)
        except ThrottledError as error:
            self._give_up_product(product_id, error.code, str(error))
        except RequestInvalidError as error:
            self._claims.over(product_id)
            self._give_up_product(product_id, "CORRUPT_PRODUCT", _refusal(product_id, str(error)))
        except StoreError as error:
            self._fail(error)
        else:
            self._note(product_id, product.unlocked())

    # ------------------------------------------------------------------ lanes

    def _bring_home(self, short: Collection[str]) -> None:
        """Get the units of products that lie in lanes. What cannot be had in time returns its changes."""
        # Under a claim nobody draws in between: a lane that sells fast would else be filled again and again.
        held = (self._claims.use(product_id, release=False) for product_id in short)
        owners = [use.owner for use in held if use is not None]
        engine, known = self._engine, (self._products[product_id] for product_id in short)
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
                self._give_up_product(product_id, error.code, str(error))
            return
        except StoreError as error:
            self._fail(error)
            return
        self._read(sorted(short))
        if corrupt is not None:
            for product_id in short:
                product = self._products.get(product_id)
                if product is not None and product.lent_to:
                    self._give_up_product(product_id, corrupt.code, str(corrupt))

    def release_claims(self) -> None:
        """Release the claims that no commit has released."""
        self._claims.release()

    # ------------------------------------------------------------------ reading

    def _is_alone(self) -> bool:
        """Whether all that is pending is about one product: then nothing gains by going on without it."""
        return len({p for change in self._pending.values() for p in change.product_ids}) == 1

    def _product_ids(self) -> list[str]:
        """The products of everything that is pending."""
        ids = (product_id for change in self._pending.values() for product_id in change.product_ids)
        return list(dict.fromkeys(ids))

    def _read_unknown(self) -> None:
        """Read products of changes that took the place of others."""
        known = self._products.keys() | self._unreadable.keys()
        unknown = [product_id for product_id in self._product_ids() if product_id not in known]
        if unknown:
            self._read(unknown)

    def _read(self, keys: Sequence[str | RecordKey], *, records_too: bool = False) -> None:
        """Read products and records, and take over what was found."""
        try:
            snapshot = read(
                self._client,
                self._engine.executor,
                keys,
                self._deadline,
                self._stats,
                records_too=records_too,
            )
        except (ThrottledError, OutcomeUnknownError) as error:
            self._give_up_all(error.code, str(error))
            return
        except StoreError as error:
            self._fail(error)
            return
        now = self._client.clock.now().timestamp()
        self._products.update(snapshot.products)
        for product_id, product in snapshot.products.items():
            self._unreadable.pop(product_id, None)
            self._claims.doubt(product_id)
            if product is not None:
                self._engine.cache.observe_read(product)
                if product.is_claimed and product.lease_left(now) > 0:
                    self._engine.cache.forget(product_id)
                    self._client.contention.observe_conflict(product_id, product.lock_wait)
        self._unreadable.update(snapshot.unreadable)
        for key, record in snapshot.records.items():
            self._recognise(self._duplicates.first_by_key[key], record)
        for left_out in snapshot.unprocessed:
            if isinstance(left_out, str):
                self._give_up_product(
                    left_out, "UNPROCESSED_KEYS", f"no read answered for product {left_out}"
                )
            elif records_too:
                change = self._duplicates.first_by_key[left_out]  # type: ignore[index]  # no page
                self._give_up([change], "UNPROCESSED_KEYS", f"no read answered for {left_out}")
            # Elsewhere records are a hint, and go without.

    # ------------------------------------------------------------------ the answer

    def report(self) -> CommitReport:
        """What became of every change."""
        keys = list(self._duplicates.first_by_key)
        decided = (ChangeStatus.APPLIED, ChangeStatus.REJECTED)
        tried = [
            self._retries.get(key, 0)
            for key in keys
            if key in self._retries or self._outcomes[key].status in decided
        ]
        exhausted = [
            self._outcomes[key].status is ChangeStatus.RETURNED
            for key in keys
            if self._retries.get(key)
        ]
        return CommitReport(
            outcomes=self._duplicates.answer_all(self._outcomes),
            retries=tuple(tried),
            exhausted=tuple(exhausted),
            stats=self._stats,
            failure=self._failure,
        )


def _rejects(planned: Plan) -> bool:
    return any(
        decision.rejection is not None
        for transaction in planned.transactions
        for decision in transaction.decisions
    )


def _refusal(product_id: str, why: str) -> str:
    return f"DynamoDB does not take the row of product {product_id} ({why}); repair the item"


def _touched(chain: Chain) -> set[str]:
    return {
        product_id for step in chain for transaction in step for product_id in transaction.after
    }
