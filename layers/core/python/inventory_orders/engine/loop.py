"""The engine: makes changes of stock durable, each exactly once, and plans again after a lost race.

One loop, until each change of a batch has its outcome:

- supply: where is each product sold from? (`lanes/supply.py`)
- plan: which changes are accepted, and in which transactions? (`domain/planner.py`, without I/O)
- commit: send the transactions. (`transactions.py`)
- learn: what is durable has its outcome; what failed changes what is known for the next round.

What the batch knows is in one object (`batch.py`). The rules:

- Nothing is answered before it is durable. A rejection stands in or after the transaction that it depends on.
- A transaction that lost is planned again; a plan from rows starts from what came back with its cancellation. What was
  committed before it stays committed.
- While the outcome of a request is unknown, the same request is repeated with the same token, before any new plan.
- What is throttled waits until all others are through, and is tried without them.
- Every wait is bounded by the number of attempts and by the time that the invocation has left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from inventory_orders.clock import Clock, Deadline
from inventory_orders.domain.change import Change
from inventory_orders.domain.planner import Chain, Limits, Plan, Transaction, plan
from inventory_orders.domain.record import RecordKey
from inventory_orders.engine.batch import Batch, PendingChanges, split_into_turns
from inventory_orders.engine.memory import ProductCache
from inventory_orders.engine.outcomes import (
    ChangeOutcome,
    CommitReport,
    rejected,
    returned,
)
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.engine.transactions import Attempt, send, verdict_of
from inventory_orders.errors import StoreError, Verdict
from inventory_orders.lanes.lane import Lanes
from inventory_orders.lanes.supply import end_visit, supply
from inventory_orders.retry import LEASE_POLL_SECONDS, RetryPolicy
from inventory_orders.store.actions import ActionKind
from inventory_orders.store.cancellations import (
    CONDITION_FAILED,
    INVALID,
    RIVAL,
    THROTTLED,
    CancellationReason,
    TransactionCancelledError,
)
from inventory_orders.store.dynamodb import Store

# How long a engine that makes one attempt avoids a product on which it met rivals.
_AVOIDED_SECONDS = 5.0

# For how many batches after a replay another one is expected: then reading records first is worth a request.
_REPLAYS_EXPECTED_FOR = 20

# Codes of cancellation by a rival, or for want of capacity.
_LOST = THROTTLED | {CONDITION_FAILED, RIVAL}


class Engine:
    """Applies changes of stock: exactly once, all or nothing, without overselling.

    Args:
        store: Where the tables are.
        policy: How to wait between attempts.
        clock: Source of time.
        executor: Runs reads and transactions side by side; None runs them one after the other.
        lanes: How many lanes stock may be set aside in; 0: this process sells from rows alone.
        patient: Whether it waits where a rival is faster. If not, it makes one attempt of each request, and returns
            changes that would have to wait: it reclaims nothing, and avoids contested products.

    Attributes:
        client: Sends the requests.
        lanes: What this process knows of lanes.
        limits: What one transaction may hold.
    """

    def __init__(
        self,
        store: Store,
        policy: RetryPolicy | None = None,
        clock: Clock | None = None,
        executor: Executor | None = None,
        lanes: int = 0,
        *,
        patient: bool = True,
    ) -> None:
        if not patient:
            policy = replace(policy or RetryPolicy(), max_attempts=1)
        self.client = RetryingClient(store, policy, clock, executor)
        self.lanes = Lanes(self.client, lanes)
        self.limits = Limits()
        self._patient = patient
        self._cache = ProductCache(self.client.clock)
        self._replays_expected_for = 0

    def apply(
        self, changes: Sequence[Change], deadline: Deadline, age: float = 0.0
    ) -> CommitReport:
        """Apply each change once, or report why not.

        Args:
            changes: In the order in which they arrived. Several with one record key are applied one after the other.
            deadline: No request begins after it.
            age: Seconds for which the first of them has been waiting; the longer, the sooner it gets the depot.

        Returns:
            What became of each. Never raises; DynamoDB errors become outcomes in the report.
        """
        outcomes: dict[int, ChangeOutcome] = {}
        stats = CommitStats()
        failure: StoreError | None = None
        unfinished: dict[RecordKey | str | None, Verdict] = {}
        for index, turn in enumerate(split_into_turns(changes)):
            now = []
            for number in turn:
                if (outcome := _held_back(changes[number], unfinished)) is None:
                    now.append(number)
                else:
                    outcomes[number] = outcome
                    unfinished[changes[number].group] = outcome.verdict
            report = self._apply([changes[n] for n in now], deadline, age, again=index > 0)
            stats.add(report.stats)
            failure = failure or report.failure
            for number, outcome in zip(now, report.outcomes, strict=True):
                outcomes[number] = outcome
                if outcome.is_open:
                    keys = (changes[number].record_key, changes[number].group)
                    unfinished |= dict.fromkeys(keys, outcome.verdict)
                elif outcome.verdict is Verdict.POISON:
                    unfinished[changes[number].group] = outcome.verdict
        return CommitReport(tuple(outcomes[n] for n in sorted(outcomes)), stats, failure)

    # ------------------------------------------------------------------ the loop

    def _apply(
        self, changes: Sequence[Change], deadline: Deadline, age: float, *, again: bool
    ) -> CommitReport:
        """Apply the changes of one turn: begin, then round after round until each has its outcome.

        Args:
            changes: With distinct record keys.
            deadline: No request begins after it.
            age: As for `apply`.
            again: Whether a change of a turn before had the record key of one of them.
        """
        pending = PendingChanges(changes)
        batch = Batch(self.client, self._cache, pending, deadline, age, self.limits)
        self._begin(batch, again=again)
        while pending:
            self._round(batch)
        report = pending.report(batch.stats)
        has_replays = any(outcome.verdict is Verdict.REPLAYED for outcome in report.outcomes)
        self._replays_expected_for = (
            _REPLAYS_EXPECTED_FOR if has_replays else max(0, self._replays_expected_for - 1)
        )
        return report

    def _begin(self, batch: Batch, *, again: bool) -> None:
        """Take products from the cache, and read records where they decide what is to be done."""
        pending, changes = batch.pending, batch.pending.by_key
        if not self._patient:
            rivals = self.client.rivals
            if any(rivals.are_met_on(p, _AVOIDED_SECONDS) for p in pending.product_ids):
                pending.give_up_all("CONTENTION", "rivals were met on a product a moment ago")
            else:
                # A copy that is stale would cost the only attempt.
                batch.read([*pending.product_ids, *changes])
            return
        if self.lanes.most:
            self.lanes.demand.observe_orders(change.decrements for change in changes.values())
        batch.take_from_cache(pending.product_ids)
        # A command depends on the status of its order, a duplicate on what the first has written. Nothing is written or
        # rejected on the word of a stale copy, but it would cost another round.
        is_recent = again or not all(change.product_ids for change in changes.values())
        if is_recent or self._replays_expected_for:
            batch.read([*changes], consistent_records=is_recent)

    def _round(self, batch: Batch) -> None:
        """Plan the pending changes, commit the plan, and apply the results."""
        pending = batch.pending
        # While a table is short of capacity, this process slows down.
        pace = self.client.pace.wait if self._patient else 0.0
        is_late = pace > 0 and not self.client.pause(pace, batch.deadline)
        if is_late or batch.deadline.remaining() <= 0:
            pending.give_up_all("OUT_OF_TIME", "no time was left for another round")
            return
        if not any(batch.throttled.isdisjoint(change.product_ids) for change in pending):
            # All other changes have their outcomes.
            batch.throttled.clear()
        planned, attempts, has_lost = None, list[Attempt](), True
        try:
            move = (lambda chains: self._move(batch, chains)) if self._patient else None
            found = supply(self.client, self.lanes, batch, move)
            if found is not None:
                unknown = set(pending.product_ids) - found.allocation.rows.keys()
                out_of_reach = (batch.leased | unknown) - found.sources.keys()
                blocked = out_of_reach | batch.unreadable.keys() | batch.throttled
                planned = plan(list(pending), found, blocked, batch.limits)
                rejects = any(
                    decision.rejection is not None
                    for transaction in planned.transactions
                    for decision in transaction.decisions
                )
                if batch.from_cache and (planned.short or rejects):
                    # Before it rejects or reclaims anything, the engine reads cached products.
                    batch.read_cached()
                    return
                attempts = self._send(batch, planned.chains)
                has_lost = self._apply_results(batch, attempts)
                batch.give_up_undecidable(planned.deferred)
        except StoreError as error:
            pending.fail(error)
        finally:
            end_visit(self.client, self.lanes, batch)
        has_decided = any(attempt.transaction.decisions for attempt in attempts)
        if not self._patient and (has_lost or not has_decided):
            pending.give_up_all("CONTENTION", "it would have to wait for others")
        elif has_lost:
            self._back_off(batch)
        elif not has_decided:
            self._unblock(batch, planned)

    def _unblock(self, batch: Batch, planned: Plan | None) -> None:
        """Act where nothing could be decided: mark short products for reclaiming, or wait for what is in the way."""
        pending = batch.pending
        short = planned.short - batch.to_reclaim if planned is not None else frozenset()
        # What orders lack is recalled by the next visit. Only what has to be in the row is reclaimed.
        if short and not short.issubset(pending.need if self.lanes.most else {}):
            batch.to_reclaim |= short
        elif batch.throttled:
            batch.throttled.clear()
            self._back_off(batch)
        elif leased := batch.leased.intersection(pending.product_ids):
            self._wait_for_lease(batch, leased)
        else:
            self._back_off(batch)

    def _wait_for_lease(self, batch: Batch, leased: set[str]) -> None:
        """Wait until a lease is over. Reads only rows: the depot has no more of the product."""
        while leased <= batch.leased:
            waits = [left for change in batch.pending if (left := batch.lease_left(change)) > 0]
            if not waits or max(waits) > batch.deadline.remaining():
                # The next plan returns changes that wait for a renewed lease.
                return
            delay = min(*waits, LEASE_POLL_SECONDS)
            if not self.client.pause(delay, batch.deadline):
                batch.pending.give_up_all("LEASED", "no time left to wait for a lease")
                return
            batch.stats.lease_wait += delay
            batch.read(sorted(leased))

    def _back_off(self, batch: Batch) -> None:
        """Wait after a lost round, longer each time. Gives up changes that were tried too often."""
        batch.losses += 1
        batch.pending.give_up_out_of_attempts(self.client.policy.max_attempts)
        if not batch.pending:
            return
        delay = self.client.policy.backoff(batch.losses)
        if self.client.pause(delay, batch.deadline):
            batch.stats.backoffs.append(delay)
        else:
            batch.pending.give_up_all("CONTENTION", "no time left for another attempt")

    # ------------------------------------------------------------------ committing, and learning

    def _send(self, batch: Batch, chains: Sequence[Chain]) -> list[Attempt]:
        # Where all are about one product, none can go on without it.
        skips_throttled = len(batch.pending.product_ids) != 1
        attempts = send(self.client, chains, batch.deadline, skips_throttled=skips_throttled)
        for attempt in attempts:
            batch.stats.add(attempt.stats)
            if repeated := len(attempt.stats.backoffs):
                for decision in attempt.transaction.decisions:
                    batch.pending.count_retries(decision.change, repeated)
        return attempts

    def _move(self, batch: Batch, chains: Sequence[Chain]) -> bool:
        """Commit moves of a visit. Returns whether all of them are durable."""
        attempts = self._send(batch, chains)
        self._apply_results(batch, attempts)
        return all(attempt.error is None for attempt in attempts)

    def _apply_results(self, batch: Batch, attempts: Sequence[Attempt]) -> bool:
        """Apply the results of all attempts. Returns whether one of them lost against rivals."""
        # First the durable ones: an error of one chain must not return changes that another has applied.
        durable = [attempt for attempt in attempts if attempt.error is None]
        for attempt in durable:
            self._apply_success(batch, attempt.transaction, attempt.at)
        lost = [
            self._apply_failure(batch, attempt.transaction, attempt.error)
            for attempt in attempts
            if attempt.error is not None
        ]
        decisions = (d for attempt in durable for d in attempt.transaction.decisions)
        batch.reject_unwritten([d for d in decisions if not d.has_record])
        return any(lost)

    def _apply_success(self, batch: Batch, committed: Transaction, at: str) -> None:
        """Take over the products of an applied transaction, and settle its changes."""
        stock_after = committed.stock_after
        self.lanes.observe_commit(committed)
        for product_id, product in committed.after.items():
            batch.observe(product_id, product)
            self._cache.observe_write(product)
        for decision in committed.decisions:
            change = decision.change
            if not decision.has_record:
                # Nothing was written that would have met its record.
                continue
            if decision.rejection is not None:
                outcome = rejected(decision.rejection, is_written=True)
            else:
                changed = {product_id: stock_after[product_id] for product_id in decision.deltas}
                outcome = ChangeOutcome(Verdict.APPLIED, applied=change, after=changed, at=at)
                if self.lanes.most and changed:
                    batch.stats.from_lanes.append(all(map(self.lanes.is_own, changed.values())))
            batch.pending.settle(change, outcome)

    def _apply_failure(self, batch: Batch, failed: Transaction, error: StoreError) -> bool:
        """Take over what a failed transaction tells. Returns whether it lost against rivals, and so should wait."""
        pending = batch.pending
        for product_id in failed.after:
            self._cache.forget(product_id)
        self.lanes.observe_failure(failed)
        reasons = error.reasons if isinstance(error, TransactionCancelledError) else ()
        has_lost = [self._apply_reason(batch, reason) for reason in reasons]
        undecided = pending.still_pending(decision.change for decision in failed.decisions)
        verdict, code = verdict_of(error)
        if verdict is Verdict.RETURNED:
            pending.give_up(undecided, code, str(error))
            return False
        if verdict is Verdict.UNAVAILABLE:
            pending.fail(error)
            return False
        for change in undecided:
            pending.count_retries(change, 1)
        if verdict is Verdict.POISON and len(undecided) > 1:
            # Halve the transactions until the offending change stands alone.
            batch.limits = replace(batch.limits, changes=(len(undecided) + 1) // 2)
        elif verdict is Verdict.POISON:
            for change in undecided:
                pending.settle(change, ChangeOutcome(Verdict.POISON, cause=code, detail=str(error)))
        return any(has_lost)

    def _apply_reason(self, batch: Batch, reason: CancellationReason) -> bool:
        """Take over why one action was cancelled. Returns whether it lost, and its change has to be planned again."""
        code, product_id = reason.code, reason.product_id
        if code == CONDITION_FAILED and reason.kind is ActionKind.RECORD:
            return batch.learn(reason.action.subject, reason.found)  # type: ignore[union-attr,arg-type]
        if reason.kind is ActionKind.PRODUCT:
            if code in _LOST:
                self.client.rivals.observe(product_id)
            if code == CONDITION_FAILED:
                batch.observe(product_id, reason.found)  # type: ignore[arg-type]  # of a product's row
            elif code == RIVAL:
                batch.forget(product_id)
            elif code in THROTTLED:
                batch.set_aside([product_id])
            elif code in INVALID:
                batch.mark_unwritable(product_id, reason.message)
        return code in _LOST


def _held_back(change: Change, unfinished: Mapping[Any, Verdict]) -> ChangeOutcome | None:
    """The outcome of a change that has to wait for one before it, of its id or its group; None if it may go on."""
    before = unfinished.get(change.record_key)
    if before is not None and change.product_ids:
        return returned("BEHIND_A_DUPLICATE")
    # Before its order comes an order may be cancelled, and nothing else: not delivered before its confirmation comes again.
    is_early = before is not None and change.rejection({}) is not None
    is_behind = before is Verdict.RETURNED or is_early
    if is_behind or (change.group is not None and change.group in unfinished):
        return returned("BEHIND_A_RETURNED_MESSAGE")
    return None
