"""The engine: applies each stock change exactly once, and plans again after a concurrent writer was faster.

A batch runs in rounds until each of its changes has an outcome. A round has five steps:

- pace: wait while a table is short of capacity. (`_keep_pace`)
- find: look up where the units are: in rows, or where another source keeps them. (`Source`)
- plan: decide which changes are accepted, and in which transactions. (`domain/planner.py`, without I/O)
- commit: send the transactions and learn from each. Durable changes get their outcomes; failures update the known rows and
  records. (`_commit`)
- settle: if the round was lost, or could decide nothing, wait before the next one. (`_settle`)

The state of a batch is in one object (`batch.py`). The rules:

- Nothing is answered before it is durable. A rejection is in or after the transaction that it depends on. If it depends on
  several offers, one read proves that all of them were impossible at the same moment.
- A lost transaction is planned again. A plan from rows starts from the items that its cancellation returned. Everything
  committed before stays committed.
- While the outcome of a request is unknown, the same request is repeated with the same token, before any new plan.
- Changes of throttled products wait until all others are done, and are then tried separately.
- A change with other offers to try is not overtaken: the round ends before anything is committed.
- If a product has a purchase limit, its buyers' purchases are read before the plan, and written with the stock.
- Units that leave the warehouse go to an outbound page (`outbound.py`), in transactions that do not write products.
- Every wait is limited by the number of attempts and by the invocation's remaining time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from itertools import chain
from typing import assert_never

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.change import Change, Decision, Transaction
from inventory_orders.domain.planner import (
    Chain,
    Limits,
    Plan,
    Supply,
    Waiting,
    plan,
)
from inventory_orders.domain.product import ProductStatus
from inventory_orders.domain.purchases import BuyerKey
from inventory_orders.domain.record import AdjustmentKey, OrderKey, RecordKey
from inventory_orders.engine.batch import (
    Batch,
    PendingChanges,
    hold_back,
    note_unfinished,
    split_into_turns,
)
from inventory_orders.engine.memory import ProductCache
from inventory_orders.engine.outbound import OutboundPages
from inventory_orders.engine.outcomes import (
    ChangeOutcome,
    CommitReport,
    rejected,
)
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import Outcome, StoreError
from inventory_orders.retry import LEASE_POLL_SECONDS
from inventory_orders.store.cancellations import (
    CancellationReason,
    Meaning,
    TransactionCancelledError,
)
from inventory_orders.store.writes import ActionKind, transaction_actions

# For how many batches after a replay it is worth a request to read records first, because more replays are likely.
_REPLAYS_EXPECTED_FOR = 20

# How many outbound pages a batch tries before it waits.
_OUTBOUND_ATTEMPTS = 8


class _Progress(Enum):
    """What a round has achieved."""

    ADVANCED = auto()
    """No transaction lost to a concurrent writer, and there were decisions to send or there are other offers to try."""
    LOST = auto()
    """A transaction lost to a concurrent writer."""
    BLOCKED = auto()
    """All pending changes wait for a lease, for capacity or for units."""


@dataclass(slots=True)
class Attempt:
    """A transaction to send, and the result of sending it.

    Attributes:
        transaction: The transaction.
        at: The time written to its records; empty until it is sent.
        error: Why it was not applied; None if it was.
        is_lost: Whether a concurrent writer was faster, or a table was short of capacity.
        stats: What it cost.
    """

    transaction: Transaction
    at: str = ""
    error: StoreError | None = None
    is_lost: bool = False
    stats: CommitStats = field(default_factory=CommitStats)

    def send(self, client: RetryingClient, deadline: Deadline, *, skips_throttled: bool) -> None:
        """Send the transaction. Other transactions are sent in parallel, so this only changes the attempt.

        Args:
            client: The client for the tables. It repeats the request if necessary.
            skips_throttled: Whether the batch can continue without a product whose row is throttled.
        """
        now = client.clock.now()
        self.at = timestamp(now)
        actions = transaction_actions(self.transaction, now)
        if not actions:
            return
        plans_around = {Meaning.RIVAL}
        if skips_throttled or len(self.transaction.updates) != 1:
            plans_around.add(Meaning.THROTTLED)
        try:
            client.write(actions, deadline, self.stats, plans_around=plans_around)
        except StoreError as error:
            self.error = error
            return
        if self.transaction.decisions:
            self.stats.changes_per_transaction.append(len(self.transaction.decisions))
        self.stats.low_stock += [
            update.after
            for update in self.transaction.updates
            if update.before.status is ProductStatus.ACTIVE
            and update.after.status is not ProductStatus.ACTIVE
        ]


Commit = Callable[[Sequence[Chain]], bool]
"""A function that commits transactions of a source's moves, and returns whether all of them are durable."""


class Source:
    """Finds the units for a batch: in this class, in the rows of its products.

    The engine calls `begin` once for each batch. In each round it calls `find`, then `learn` for each transaction that it has
    sent, then `end_round`. Subclasses find units elsewhere.
    """

    def begin(self, batch: Batch) -> None:
        """Prepare for a new batch."""

    def find(self, batch: Batch, commit: Commit) -> Supply | None:  # noqa: ARG002
        """Find the units of all pending changes.

        Args:
            batch: The batch. It remembers the rows that are read here.
            commit: Commits moves that have to be durable before the units can be sold.

        Returns:
            The units, and moves that are not written yet; None if a concurrent writer was faster.

        Raises:
            StoreError: DynamoDB failed, or waiting for the units took too long.
        """
        batch.read_unknown(batch.wanted)
        return Supply(Allocation(batch.known.rows))

    def fetches(self, batch: Batch, missing: Collection[str]) -> bool:  # noqa: ARG002
        """Return whether the next `find` will fetch missing units. Otherwise the engine waits for them."""
        return False

    def tries_again(self, batch: Batch, *, is_lost: bool) -> bool:  # noqa: ARG002
        """Return whether to try again for a caller who does not wait.

        Args:
            is_lost: Whether a concurrent writer was faster. Otherwise, units are missing.
        """
        return False

    def learn(self, batch: Batch, attempt: Attempt) -> None:
        """Take note of a transaction that was applied, or that failed."""

    def end_round(self, batch: Batch) -> None:
        """Release what is only needed within a round, such as a lease."""


class Engine:
    """Applies each stock change exactly once, completely or not at all, and never oversells.

    Args:
        client: The client for the tables. If its policy allows only one attempt, changes that would have to wait are returned.
        source: Where products are sold from; by default, their rows.

    Attributes:
        client: The client for the tables.
        source: Where products are sold from.
        limits: Limits of one transaction.
    """

    def __init__(self, client: RetryingClient, source: Source | None = None) -> None:
        self.client = client
        self.source = source or Source()
        self.limits = Limits()
        self._cache = ProductCache(client.clock)
        self._outbound = OutboundPages(client)
        self._replays_expected_for = 0

    def apply(
        self, changes: Sequence[Change], deadline: Deadline, age: float = 0.0
    ) -> CommitReport:
        """Apply each change once, or report why not.

        Args:
            changes: In order of arrival. Changes with the same record key are applied one after the other.
            age: How long the first change has been waiting, in seconds. A source serves old batches sooner.

        Returns:
            The outcome of each change. An error from DynamoDB is an outcome too.
        """
        outcomes: dict[int, ChangeOutcome] = {}
        stats = CommitStats()
        failure: StoreError | None = None
        unfinished: dict[RecordKey | str | None, Outcome] = {}
        turns = split_into_turns(changes)
        for turn in turns:
            if unfinished:
                outcomes |= hold_back(changes, turn, unfinished)
            now = [number for number in turn if number not in outcomes]
            report = self._apply(
                [changes[n] for n in now], deadline, age, again=turn is not turns[0]
            )
            stats.add(report.stats)
            failure = failure or report.failure
            outcomes |= zip(now, report.outcomes, strict=True)
            if turn is not turns[-1]:
                note_unfinished(changes, now, outcomes, unfinished)
        return CommitReport(tuple(outcomes[n] for n in sorted(outcomes)), stats, failure)

    def _apply(
        self, changes: Sequence[Change], deadline: Deadline, age: float, *, again: bool
    ) -> CommitReport:
        """Apply the changes of one turn, which have distinct record keys.

        Args:
            again: Whether an earlier turn has just written some of their records.
        """
        pending = PendingChanges(changes)
        batch = Batch(self.client, self._cache, pending, deadline, age, self.limits)
        self.source.begin(batch)
        # A command depends on the status of its order, a duplicate on what the original has written. A stale copy never leads
        # to a write or rejection, but would cost another round.
        is_recent = again or not all(change.product_ids for change in changes)
        is_useful = is_recent or self._replays_expected_for
        if pending and is_useful and not batch.has_read_records:
            batch.read([*pending.by_key], consistent_records=is_recent)
        while pending:
            self._round(batch)
        report = pending.report(batch.stats)
        has_replays = any(outcome.kind is Outcome.REPLAYED for outcome in report.outcomes)
        self._replays_expected_for = (
            _REPLAYS_EXPECTED_FOR if has_replays else max(0, self._replays_expected_for - 1)
        )
        return report

    def _round(self, batch: Batch) -> None:
        """Run one round: pace, find, plan, commit, settle."""
        if not self._keep_pace(batch):
            return
        if batch.throttled:
            batch.retry_throttled_last()
        planned, progress = Plan(), _Progress.LOST
        try:
            found = self.source.find(
                batch, lambda moves: all(sent.error is None for sent in self._send(batch, moves))
            )
            if found is not None:
                if (sound := self._plan(batch, found)) is None:
                    return
                planned, progress = sound, self._commit(batch, sound)
        except StoreError as error:
            batch.pending.fail(error)
        finally:
            self.source.end_round(batch)
        for change, offers in planned.waiting:
            batch.give_up_undecidable(change, offers)
        if progress is not _Progress.ADVANCED:
            self._settle(batch, planned, progress)

    # ------------------------------------------------------------------ pace

    def _keep_pace(self, batch: Batch) -> bool:
        """Wait while a table is short of capacity. Returns whether there is still time for a round."""
        writes = self.client.policy.max_attempts > 1 and not batch.looks_again
        pause = self.client.pace.wait if writes else 0.0
        is_late = pause > 0 and not self.client.pause(pause, batch.deadline)
        if is_late or batch.deadline.remaining() <= 0:
            batch.pending.give_up_all("OUT_OF_TIME", "no time was left for another round")
            return False
        return True

    # ------------------------------------------------------------------ plan

    def _plan(self, batch: Batch, found: Supply) -> Plan | None:
        """Decide as many pending changes as possible. Returns None if more has to be read first."""
        found = batch.with_purchases(found)
        if not batch.pending:
            return None
        planned = plan([*batch.pending.values()], found, batch.blocked(found), batch.limits)
        batch.looks_again = bool(planned.short) and self._looks_again(batch, found, planned.short)
        if batch.looks_again:
            return None
        if not planned.leaving:
            return planned
        leaving = self._outbound.arrange(planned.leaving, batch)
        placed = {d.change.record_key for (transaction,) in leaving for d in transaction.decisions}
        without_room = [d.change for d in planned.leaving if d.change.record_key not in placed]
        batch.pending.give_up(
            without_room,
            "OUTBOUND_PAGES_FULL",
            "no outbound page can take more units: all are full until the next sweep, or unreadable",
        )
        return replace(planned, chains=(*planned.chains, leaving) if leaving else planned.chains)

    def _looks_again(self, batch: Batch, found: Supply, short: Set[str]) -> bool:
        """Decide whether to plan again before anything is committed, because products are short."""
        # No change is rejected, and no offer is passed over, because of cached rows.
        if batch.read_cached(short):
            return True
        # No later change overtakes one that tries its other offers.
        return not found.allocation.touched and batch.note_short(short)

    # ------------------------------------------------------------------ commit

    def _commit(self, batch: Batch, planned: Plan) -> _Progress:
        """Commit a plan."""
        has_other_offers = bool(planned.short) and batch.note_short(planned.short)
        attempts = self._send_plan(batch, planned)
        if lost := [attempt.transaction.outbound for attempt in attempts if attempt.is_lost]:
            # Hand-overs are retried immediately: another page is free, or the cancellation returned this one.
            if None in lost or batch.outbound_losses == _OUTBOUND_ATTEMPTS:
                return _Progress.LOST
            batch.outbound_losses += 1
            return _Progress.ADVANCED
        has_decisions = any(attempt.transaction.decisions for attempt in attempts)
        return _Progress.ADVANCED if has_decisions or has_other_offers else _Progress.BLOCKED

    def _send_plan(self, batch: Batch, planned: Plan) -> list[Attempt]:
        """Send a plan's transactions and, once all of them are applied, the rejections that need a proof."""
        attempts = self._send(batch, planned.chains)
        if planned.doubted and all(attempt.error is None for attempt in attempts):
            attempts += self._send(batch, batch.prove(planned.doubted))
        return attempts

    def _send(self, batch: Batch, chains: Sequence[Chain]) -> list[Attempt]:
        """Send chains of transactions in parallel, and process the results. A chain stops at its first failed transaction."""
        send_one = partial(
            Attempt.send,
            client=self.client,
            deadline=batch.deadline,
            # If all changes affect the same product, none can continue without it.
            skips_throttled=len(batch.pending.product_ids) != 1,
        )
        attempts: list[Attempt] = []
        left = list(chains)
        while left:
            waves = [[Attempt(transaction) for transaction in rest[0]] for rest in left]
            now = list(chain.from_iterable(waves))
            self.client.side_by_side(send_one, now)
            attempts += now
            sent = zip(left, waves, strict=True)
            left = [rest[1:] for rest, wave in sent if rest[1:] and not any(a.error for a in wave)]
        self._learn(batch, attempts)
        return attempts

    def _learn(self, batch: Batch, attempts: Sequence[Attempt]) -> None:
        """Process the results of transactions. Applied ones come first, so that no error returns a change that was applied."""
        unwritten: list[Decision] = []
        for attempt in sorted(attempts, key=lambda attempt: attempt.error is not None):
            decisions = attempt.transaction.decisions
            retries = len(attempt.stats.measured["RetryBackoffTime"])
            batch.stats.add(attempt.stats)
            for decision in decisions if retries else ():
                batch.pending.count_retries(decision.change, retries)
            if attempt.transaction.outbound is not None:
                self._outbound.learn(attempt.transaction.outbound, attempt.error)
            self.source.learn(batch, attempt)
            if attempt.error is None:
                self._apply_success(batch, attempt)
                unwritten += [decision for decision in decisions if not decision.has_record]
            else:
                attempt.is_lost = self._apply_failure(batch, attempt, attempt.error)
        if unwritten:
            batch.reject_unwritten(unwritten)

    def _apply_success(self, batch: Batch, attempt: Attempt) -> None:
        """Remember the products as an applied transaction left them, and settle its changes."""
        transaction = attempt.transaction
        for update in transaction.updates:
            batch.known.rows[update.after.product_id] = update.after
            if transaction.is_loan(update):
                # Orders may have changed the row in the meantime.
                batch.known.forget(update.after.product_id)
            elif update.after is not update.before:
                self._cache.observe_write(update.after)
        batch.known.purchases |= {each.after.key: each.after for each in transaction.purchases}
        for decision, changed in zip(
            transaction.decisions, transaction.stock_after_each(), strict=True
        ):
            if not decision.has_record:
                # `reject_unwritten` settles it, because nothing was written that could have conflicted with its record.
                continue
            change, rejection = decision.change, decision.rejection
            batch.pending.settle(
                change,
                ChangeOutcome(Outcome.APPLIED, applied=change, after=changed, at=attempt.at)
                if rejection is None
                else rejected(rejection, is_written=True),
            )

    def _apply_failure(self, batch: Batch, attempt: Attempt, error: StoreError) -> bool:
        """Process a failed transaction. Returns whether it lost to a concurrent writer; if so, the next round should wait."""
        pending = batch.pending
        for update in attempt.transaction.updates:
            self._cache.forget(update.after.product_id)
        reasons = error.reasons if isinstance(error, TransactionCancelledError) else ()
        is_lost = [self._apply_reason(batch, reason) for reason in reasons]
        undecided = [
            decision.change
            for decision in attempt.transaction.decisions
            if decision.change.record_key in pending
        ]
        match _kind_of(error):
            case Outcome.RETURNED, code:
                pending.give_up(undecided, code, str(error))
                return False
            case Outcome.UNAVAILABLE, _:
                pending.fail(error)
                return False
            case Outcome.INVALID as kind, code:
                self._isolate(batch, undecided, ChangeOutcome(kind, cause=code, detail=str(error)))
        for change in undecided:
            pending.count_retries(change, 1)
        return any(is_lost)

    def _isolate(self, batch: Batch, suspects: Sequence[Change], invalid: ChangeOutcome) -> None:
        """Halve the size of transactions, until the change that DynamoDB refuses has one to itself."""
        if len(suspects) > 1:
            batch.limits = replace(batch.limits, changes=(len(suspects) + 1) // 2)
        else:
            for change in suspects:
                batch.pending.settle(change, invalid)

    def _apply_reason(self, batch: Batch, reason: CancellationReason) -> bool:
        """Process the reason why an action was cancelled. Returns whether it lost to a concurrent writer."""
        match reason.action.subject:
            case OrderKey() | AdjustmentKey() as key if reason.meaning is Meaning.CONDITION_FAILED:
                return batch.learn_record(key, reason.found)  # type: ignore[arg-type]
            case BuyerKey() as key:
                batch.learn_purchases(key, reason)
            case str() as product_id:
                self._learn_row(batch, product_id, reason)
        return reason.is_lost

    def _learn_row(self, batch: Batch, product_id: str, reason: CancellationReason) -> None:
        """Learn why a product's row was not written."""
        if reason.is_lost:
            self.client.rivals.observe(product_id)
        match reason.meaning:
            case Meaning.CONDITION_FAILED:
                batch.known.learn(product_id, reason.found)
            case Meaning.RIVAL:
                batch.known.forget(product_id)
            case Meaning.THROTTLED:
                batch.throttled.add(product_id)
            case Meaning.INVALID:
                batch.mark_unwritable(product_id, reason.message)
            case Meaning.NOTHING | Meaning.UNKNOWN:
                pass
            case _:
                assert_never(reason.meaning)

    # ------------------------------------------------------------------ settle

    def _settle(self, batch: Batch, planned: Plan, progress: _Progress) -> None:
        """After a round without progress, wait or give up on changes."""
        if self.client.policy.max_attempts == 1:
            is_lost = progress is _Progress.LOST
            if not (self.source.tries_again(batch, is_lost=is_lost) or batch.avoid_contested()):
                batch.pending.give_up_all(
                    "CONTENTION", "it would have to wait for a concurrent writer"
                )
        elif progress is _Progress.LOST:
            self._back_off(batch)
        elif self.source.fetches(batch, planned.missing):
            return
        elif not batch.throttled and batch.lease_waits(planned.waiting):
            self._wait_for_lease(batch, planned.waiting)
        else:
            batch.throttled.clear()
            self._back_off(batch)

    def _wait_for_lease(self, batch: Batch, waiting: Sequence[Waiting]) -> None:
        """Wait until a lease ends. Only rows are read, because a leased product has no units in lanes."""
        leased = batch.leased.intersection(batch.pending.product_ids)
        # If no wait is left, leases were renewed. The changes that wait for them are returned after the next plan.
        while leased <= batch.leased and (waits := batch.lease_waits(waiting)):
            delay = min(*waits, LEASE_POLL_SECONDS)
            if not self.client.pause(delay, batch.deadline):
                batch.pending.give_up_all("LEASED", "no time was left to wait for a lease")
                return
            batch.stats.lease_wait += delay
            batch.read(sorted(leased))

    def _back_off(self, batch: Batch) -> None:
        """Wait longer after each lost round. Gives up on changes that have no attempts left."""
        batch.losses += 1
        batch.pending.give_up_out_of_attempts(self.client.policy.max_attempts)
        if not batch.pending:
            return
        delay = self.client.policy.backoff(batch.losses)
        if self.client.pause(delay, batch.deadline):
            batch.stats.measured["RetryBackoffTime"].append(delay * 1000)
        else:
            batch.pending.give_up_all("CONTENTION", "no time was left for another attempt")


def _kind_of(error: StoreError) -> tuple[Outcome | None, str]:
    """Decide what an error means for the changes of a transaction.

    Returns:
        Their outcome and its cause, as a stable code. There is no outcome (None) if the changes have to be planned again. If it is
        `INVALID`, the change that caused the error has to be found first.
    """
    if not isinstance(error, TransactionCancelledError):
        return error.kind, error.code
    if error.meanings_of(ActionKind.OUTBOUND) - {Meaning.NOTHING, Meaning.UNKNOWN}:
        return None, "CONTENTION"
    of_rows = error.meanings_of(ActionKind.PRODUCT, ActionKind.PURCHASES)
    of_lanes = error.meanings_of(ActionKind.PAGE, ActionKind.LANE)
    if Meaning.INVALID in of_lanes:
        # No change has caused this.
        return Outcome.RETURNED, "CORRUPT_PAGE"
    if Meaning.INVALID in error.meanings - of_rows:
        return Outcome.INVALID, "REFUSED_BY_DYNAMODB"
    if Meaning.UNKNOWN in error.meanings:
        return Outcome.UNAVAILABLE, error.code
    is_of_places = not (of_rows | of_lanes).isdisjoint({Meaning.THROTTLED, Meaning.RIVAL})
    if error.may_be_repeated and not is_of_places:
        # The client has already repeated the request. A record was contended, or a table is short of capacity.
        return Outcome.RETURNED, "CONTENTION"
    return None, "CONTENTION"
