"""Makes a plan durable, and plans again where rivals were faster.

The rules of the engine:

- Nothing is answered before it is durable. A refusal stands in or after the transaction that it depends on.
- A transaction that lost is planned again from the items that came back with its cancellation, without another
  read; what was committed before it stays committed.
- While the outcome of a request is unknown, the same request is repeated with the same token, before any new plan.
- Every wait is bounded by the number of attempts and by the time that the invocation has left.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, TypeVar

from inventory_orders.clock import Clock, Deadline, SystemClock
from inventory_orders.errors import (
    CorruptItemError,
    OutcomeUnknownError,
    RequestInvalidError,
    StoreError,
    ThrottledError,
    TransactionCancelledError,
)
from inventory_orders.model import Change, Product, ProductStatus, RecordKey, Refusal
from inventory_orders.planner import Limits, Transaction, plan
from inventory_orders.retry import RetryPolicy
from inventory_orders.store import BATCH_GET_LIMIT, Snapshot, Store, decode, decode_product

A = TypeVar("A")
B = TypeVar("B")

# How often a product under a foreign lease is looked at again, in seconds: its owner may release it early.
LEASE_POLL_SECONDS = 0.25

# After a longer wait, in seconds, the items that came back with a lost transaction are no longer worth a plan: rivals
# that lost less have moved them on, and a read costs a small part of another lost transaction.
FRESH_SECONDS = 0.05

_CONDITION_FAILED = "ConditionalCheckFailed"
_RIVAL = "TransactionConflict"
_TRANSIENT = {"None", _RIVAL, "ThrottlingError", "ProvisionedThroughputExceeded"}


class Ending(Enum):
    """Where a change ended."""

    APPLIED = auto()
    REFUSED = auto()
    REPLAYED = auto()
    """It was answered before: its record is there."""
    ID_REUSED = auto()
    """Its record is there, but of another request: this one changes nothing, ever."""
    INVALID = auto()
    """DynamoDB will never accept it."""
    RETURNED = auto()
    """It may yet succeed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one change.

    Attributes:
        ending: Where it ended.
        refusal: Why it was refused.
        record: The row that answered it before.
        cause: Why it was returned, or found invalid, as a stable code.
        detail: The same in words.
        retry_after: Seconds before a retry makes sense, where that is known; else 0.
    """

    ending: Ending
    refusal: Refusal | None = None
    record: dict[str, Any] | None = None
    cause: str = ""
    detail: str = ""
    retry_after: float = 0.0


@dataclass(slots=True)
class Effort:
    """What it took, for the metrics. Times are in seconds.

    Attributes:
        version_conflicts: One for each attempt to commit: whether a version had moved.
        transaction_conflicts: One for each attempt: whether a rival's transaction was in flight.
        backoffs: One for each wait before a retry.
        commit_latencies: One for each committed transaction: how long its last request took.
        changes_per_transaction: One for each committed transaction.
        lease_wait: Time spent waiting for the leases of others.
        low_stock: Products that ceased to be `ACTIVE` because of their stock.
    """

    version_conflicts: list[bool] = field(default_factory=list)
    transaction_conflicts: list[bool] = field(default_factory=list)
    backoffs: list[float] = field(default_factory=list)
    commit_latencies: list[float] = field(default_factory=list)
    changes_per_transaction: list[int] = field(default_factory=list)
    lease_wait: float = 0.0
    low_stock: list[Product] = field(default_factory=list)

    def add(self, other: Effort) -> None:
        """Add what another part of the work took."""
        self.version_conflicts += other.version_conflicts
        self.transaction_conflicts += other.transaction_conflicts
        self.backoffs += other.backoffs
        self.commit_latencies += other.commit_latencies
        self.changes_per_transaction += other.changes_per_transaction
        self.lease_wait += other.lease_wait
        self.low_stock += other.low_stock


@dataclass(frozen=True, slots=True)
class Report:
    """The answer to a batch of changes.

    Attributes:
        outcomes: One for each change, in the order in which they were handed in.
        retries: One for each distinct change that was tried: how often its transaction was repeated.
        exhausted: One for each change that was retried: whether it was given up.
        effort: What it took.
        failure: The error that made every request hopeless, if one did: somebody has to repair something.
    """

    outcomes: tuple[Outcome, ...]
    retries: tuple[int, ...]
    exhausted: tuple[bool, ...]
    effort: Effort
    failure: StoreError | None


class Committer:
    """Applies changes of stock: exactly once, all or nothing, without overselling.

    Args:
        store: Where the tables are.
        policy: How to wait between attempts.
        clock: Source of time.
        executor: Runs reads and chains of transactions side by side; None runs them one after the other.
        limits: What one transaction may hold.
        new_token: Makes a `ClientRequestToken`.
    """

    def __init__(
        self,
        store: Store,
        policy: RetryPolicy | None = None,
        clock: Clock | None = None,
        executor: Executor | None = None,
        limits: Limits | None = None,
        new_token: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.store = store
        self.policy = policy or RetryPolicy()
        self.clock = clock or SystemClock()
        self.limits = limits or Limits()
        self.new_token = new_token
        self._executor = executor

    def apply(self, changes: Sequence[Change], deadline: Deadline) -> Report:
        """Apply each change once, or say why not.

        Args:
            changes: In the order in which they arrived. Of several with one record key the first counts.
            deadline: No request begins after it.

        Returns:
            What became of each. Whatever goes wrong with DynamoDB is in there too; it raises nothing.
        """
        work = _Work(self, changes, deadline)
        work.run()
        return work.report()

    def side_by_side(self, function: Callable[[A], B], arguments: Sequence[A]) -> list[B]:
        """Call a function on each argument, at the same time where there is an executor."""
        if self._executor is None or len(arguments) == 1:
            return [function(argument) for argument in arguments]
        return list(self._executor.map(function, arguments))

    def pause(self, seconds: float, deadline: Deadline) -> bool:
        """Wait, unless that would reach the deadline: then return False at once."""
        if seconds >= deadline.remaining():
            return False
        self.clock.sleep(seconds)
        return True


@dataclass(slots=True)
class _ChainResult:
    """How far a chain of transactions came."""

    committed: list[Transaction] = field(default_factory=list)
    failed: Transaction | None = None
    error: StoreError | None = None
    retries: dict[RecordKey, int] = field(default_factory=dict)
    effort: Effort = field(default_factory=Effort)


class _Work:
    """One batch of changes on its way through the engine."""

    def __init__(self, engine: Committer, changes: Sequence[Change], deadline: Deadline) -> None:
        self._engine = engine
        self._deadline = deadline
        self._changes = changes
        self._leaders: dict[RecordKey, Change] = {}
        for change in changes:
            self._leaders.setdefault(change.record_key, change)
        self._pending = dict(self._leaders)
        self._outcomes: dict[RecordKey, Outcome] = {}
        self._products: dict[str, Product | None] = {}
        self._unreadable: dict[str, str] = {}
        self._limits = engine.limits
        self._failures = 0
        self._retries: dict[RecordKey, int] = {}
        self._effort = Effort()
        self._failure: StoreError | None = None

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        self._read([*self._product_ids(), *self._leaders])
        while self._pending:
            self._round()

    def _round(self) -> None:
        """Plan what is pending, commit what can be, and learn from what could not."""
        now = self._engine.clock.now().timestamp()
        leased = {
            product_id
            for product_id, product in self._products.items()
            if product is not None and product.lease_left(now) > 0
        }
        planned = plan(
            list(self._pending.values()),
            self._products,
            leased | self._unreadable.keys(),
            self._limits,
        )
        results = self._engine.side_by_side(self._run_chain, planned.chains)
        # First what is durable: an error of one chain must not be taken for the end of another's changes.
        for result in results:
            self._absorb(result)
        lost = [self._learn(result.failed, result.error) for result in results if result.failed]
        self._return_hopeless(planned.held, now)
        if any(lost):
            self._failures += 1
            self._back_off()
        elif self._pending and not planned.chains:
            self._wait_for_lease(leased, now)

    def _run_chain(self, chain: Sequence[Transaction]) -> _ChainResult:
        """Commit transactions one after the other, up to the first that fails. Runs beside other chains."""
        result = _ChainResult()
        for transaction in chain:
            error = self._commit(transaction, result)
            if error is not None:
                result.failed, result.error = transaction, error
                break
            result.committed.append(transaction)
        return result

    def _commit(self, transaction: Transaction, result: _ChainResult) -> StoreError | None:
        """Send one transaction, and again as long as nothing speaks against this very request."""
        engine, effort = self._engine, result.effort
        request = engine.store.transaction_request(transaction, engine.clock.now())
        if not request:
            return None
        token, unknown, failures = engine.new_token(), False, 0
        while True:
            if self._deadline.remaining() <= 0:
                return ThrottledError("OUT_OF_TIME", "the invocation had no time left to commit")
            started = engine.clock.monotonic()
            try:
                engine.store.write(request, token)
            except TransactionCancelledError as cancelled:
                codes = {reason.code for reason in cancelled.reasons}
                moved = any(
                    reason.code == _CONDITION_FAILED
                    for reason in cancelled.reasons[: len(transaction.updates)]
                )
                effort.version_conflicts.append(moved)
                effort.transaction_conflicts.append(_RIVAL in codes)
                if not codes <= _TRANSIENT:
                    return cancelled
                error: StoreError = cancelled
                # An earlier attempt that may still be in flight is recognised by its token only.
                token = token if unknown else engine.new_token()
            except (ThrottledError, OutcomeUnknownError) as failure:
                effort.version_conflicts.append(False)
                effort.transaction_conflicts.append(False)
                error = failure
                unknown = unknown or isinstance(failure, OutcomeUnknownError)
            except StoreError as failure:
                effort.version_conflicts.append(False)
                effort.transaction_conflicts.append(False)
                return failure
            else:
                effort.version_conflicts.append(False)
                effort.transaction_conflicts.append(False)
                effort.commit_latencies.append(engine.clock.monotonic() - started)
                effort.changes_per_transaction.append(len(transaction.decisions))
                effort.low_stock += [
                    update.after
                    for update in transaction.updates
                    if update.before.status is ProductStatus.ACTIVE
                    and update.after.status is not ProductStatus.ACTIVE
                ]
                return None
            failures += 1
            delay = engine.policy.backoff(failures)
            if failures >= engine.policy.max_attempts or not engine.pause(delay, self._deadline):
                return error
            effort.backoffs.append(delay)
            for decision in transaction.decisions:
                key = decision.change.record_key
                result.retries[key] = result.retries.get(key, 0) + 1

    # ------------------------------------------------------------------ learning from the answers

    def _absorb(self, result: _ChainResult) -> None:
        """Take over what a chain committed."""
        self._effort.add(result.effort)
        for key, retries in result.retries.items():
            self._retries[key] = self._retries.get(key, 0) + retries
        for transaction in result.committed:
            self._products.update(transaction.after)
            for decision in transaction.decisions:
                ending = Ending.APPLIED if decision.refusal is None else Ending.REFUSED
                self._settle(decision.change, Outcome(ending, decision.refusal))

    def _learn(self, failed: Transaction, error: StoreError | None) -> bool:
        """Take note of why a transaction failed. Returns whether it lost against rivals, and so should wait."""
        changes = [decision.change for decision in failed.decisions]
        if isinstance(error, RequestInvalidError):
            self._isolate(changes, error.code, str(error))
            return False
        if not isinstance(error, TransactionCancelledError):
            if isinstance(error, ThrottledError | OutcomeUnknownError):
                self._give_up(changes, error.code, str(error))
            elif error is not None:
                self._fail(error)
            return False

        codes = {reason.code for reason in error.reasons}
        if codes <= _TRANSIENT:
            self._give_up(changes, "CONTENTION", str(error))
            return False
        lost = not codes.isdisjoint(_TRANSIENT - {"None"})
        for update, reason in zip(failed.updates, error.reasons, strict=False):
            if reason.code == _CONDITION_FAILED:
                lost = True
                self._see(update.before.product_id, reason.item)
        with_record = [decision.change for decision in failed.decisions if decision.has_record]
        for change, reason in zip(with_record, error.reasons[len(failed.updates) :], strict=False):
            if reason.code == _CONDITION_FAILED:
                if reason.item is None:
                    lost = True
                else:
                    self._recognise(change, decode(reason.item))
        undecided = [change for change in changes if change.record_key in self._pending]
        for change in undecided:
            self._retries[change.record_key] = self._retries.get(change.record_key, 0) + 1
        if not codes <= _TRANSIENT | {_CONDITION_FAILED}:
            self._isolate(undecided, "REFUSED_BY_DYNAMODB", str(error))
        return lost

    def _see(self, product_id: str, item: Any) -> None:
        """Take note of a product as it came back: the next plan starts from it."""
        self._unreadable.pop(product_id, None)
        if item is None:
            self._products[product_id] = None
            return
        try:
            self._products[product_id] = decode_product(item)
        except CorruptItemError as error:
            self._unreadable[product_id] = str(error)

    def _recognise(self, change: Change, record: dict[str, Any]) -> None:
        """A record is there already: of this request, or of another one under the same id."""
        ending = Ending.REPLAYED if change.is_recorded_by(record) else Ending.ID_REUSED
        self._settle(change, Outcome(ending, record=record))

    def _isolate(self, changes: Sequence[Change], code: str, detail: str) -> None:
        """Halve the transactions until the offending change stands alone."""
        if len(changes) == 1:
            self._settle(changes[0], Outcome(Ending.INVALID, cause=code, detail=detail))
        elif changes:
            self._limits = replace(self._limits, changes=(len(changes) + 1) // 2)

    # ------------------------------------------------------------------ waiting, and giving up

    def _back_off(self) -> None:
        delay = self._engine.policy.backoff(self._failures)
        tired = [
            change
            for key, change in self._pending.items()
            if self._retries.get(key, 0) >= self._engine.policy.max_attempts
        ]
        if tired:
            self._give_up(tired, "CONTENTION", "lost against rivals in every attempt")
        if not self._pending:
            return
        if not self._engine.pause(delay, self._deadline):
            self._give_up(
                list(self._pending.values()), "CONTENTION", "no time left for another attempt"
            )
            return
        self._effort.backoffs.append(delay)
        if delay > FRESH_SECONDS:
            self._read(self._product_ids())

    def _return_hopeless(self, held: Iterable[Change], now: float) -> None:
        """Return held changes for which there is nothing to wait for, with those behind them in their group."""
        stopped: dict[str, Outcome] = {}
        for change in held:
            outcome = stopped.get(change.group) if change.group is not None else None
            outcome = outcome or self._hopeless(change, now)
            if outcome is not None:
                self._settle(change, outcome)
                if change.group is not None:
                    stopped[change.group] = outcome

    def _hopeless(self, change: Change, now: float) -> Outcome | None:
        for product_id in change.deltas:
            if product_id in self._unreadable:
                return Outcome(
                    Ending.RETURNED, cause="CORRUPT_PRODUCT", detail=self._unreadable[product_id]
                )
        left = self._lease_left(change, now)
        if left > self._deadline.remaining():
            return Outcome(
                Ending.RETURNED,
                cause="LEASED",
                detail=f"a product is under a lease for another {left:.1f} s",
                retry_after=left,
            )
        return None

    def _lease_left(self, change: Change, now: float) -> float:
        products = (self._products.get(product_id) for product_id in change.deltas)
        return max((product.lease_left(now) for product in products if product), default=0.0)

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
        if self._engine.pause(delay, self._deadline):
            self._effort.lease_wait += delay
            self._read(sorted(leased))
        else:
            self._give_up(
                list(self._pending.values()), "LEASED", "no time left to wait for a lease"
            )

    def _give_up(self, changes: Sequence[Change], cause: str, detail: str) -> None:
        """Return changes to their sender, and those that arrived after them in their groups."""
        groups = {change.group for change in changes} - {None}
        returned = {change.record_key for change in changes}
        for change in list(self._pending.values()):
            if change.record_key in returned or change.group in groups:
                self._settle(change, Outcome(Ending.RETURNED, cause=cause, detail=detail))

    def _fail(self, error: StoreError) -> None:
        """No request can succeed: return all that is left, loudly."""
        self._failure = error
        self._give_up(list(self._pending.values()), error.code, str(error))

    def _settle(self, change: Change, outcome: Outcome) -> None:
        """Decide a change for good: the first verdict stands."""
        key = change.record_key
        if self._pending.pop(key, None) is not None:
            self._outcomes[key] = outcome

    # ------------------------------------------------------------------ reading

    def _product_ids(self) -> list[str]:
        """The products of everything that is pending."""
        ids = (product_id for change in self._pending.values() for product_id in change.deltas)
        return list(dict.fromkeys(ids))

    def _read(self, keys: Sequence[str | RecordKey]) -> None:
        """Read products and records side by side, and again what was left out or failed."""
        missing, failures = list(keys), 0
        while missing:
            chunks = [
                missing[start : start + BATCH_GET_LIMIT]
                for start in range(0, len(missing), BATCH_GET_LIMIT)
            ]
            missing = []
            error: StoreError | None = None
            for chunk, result in zip(
                chunks, self._engine.side_by_side(self._read_chunk, chunks), strict=True
            ):
                if isinstance(result, Snapshot):
                    self._take(result)
                    missing += result.unprocessed
                elif isinstance(result, ThrottledError | OutcomeUnknownError):
                    missing += chunk
                    error = result
                else:
                    self._fail(result)
                    return
            if missing:
                failures += 1
                delay = self._engine.policy.backoff(failures)
                if failures >= self._engine.policy.max_attempts or not self._engine.pause(
                    delay, self._deadline
                ):
                    cause = error.code if error else "UNPROCESSED_KEYS"
                    self._give_up(
                        list(self._pending.values()), cause, str(error or "reads were left out")
                    )
                    return
                self._effort.backoffs.append(delay)

    def _read_chunk(self, keys: Sequence[str | RecordKey]) -> Snapshot | StoreError:
        try:
            return self._engine.store.read(keys)
        except StoreError as error:
            return error

    def _take(self, snapshot: Snapshot) -> None:
        self._products.update(snapshot.products)
        for product_id in snapshot.products:
            self._unreadable.pop(product_id, None)
        self._unreadable.update(snapshot.unreadable)
        for key, record in snapshot.records.items():
            self._recognise(self._leaders[key], record)

    # ------------------------------------------------------------------ the answer

    def report(self) -> Report:
        retried = [
            (self._retries[key], self._outcomes[key].ending is Ending.RETURNED)
            for key in self._leaders
            if self._retries.get(key)
        ]
        tried = [
            self._retries.get(key, 0)
            for key in self._leaders
            if key in self._retries
            or self._outcomes[key].ending in (Ending.APPLIED, Ending.REFUSED)
        ]
        return Report(
            outcomes=self._answers(),
            retries=tuple(tried),
            exhausted=tuple(given_up for _, given_up in retried),
            effort=self._effort,
            failure=self._failure,
        )

    def _answers(self) -> tuple[Outcome, ...]:
        answered: set[RecordKey] = set()
        answers = []
        for change in self._changes:
            key = change.record_key
            outcome = self._outcomes[key]
            answers.append(self._answer_duplicate(change, outcome) if key in answered else outcome)
            answered.add(key)
        return tuple(answers)

    def _answer_duplicate(self, change: Change, first: Outcome) -> Outcome:
        """The outcome of a duplicate inside the batch follows from that of the first one."""
        if first.ending is Ending.RETURNED:
            return first
        if first.ending is Ending.ID_REUSED and first.record is not None:
            same = change.is_recorded_by(first.record)
        else:
            same = self._leaders[change.record_key].is_same_request(change)
        if first.ending is Ending.INVALID:
            # Another body may be valid: it gets a delivery of its own, without this neighbour.
            return first if same else Outcome(Ending.RETURNED, cause="BEHIND_INVALID")
        return Outcome(Ending.REPLAYED if same else Ending.ID_REUSED, record=first.record)
