"""Makes a plan durable, and plans again where rivals were faster.

The rules of the engine:

- Nothing is answered before it is durable. A refusal stands in or after the transaction that it depends on.
- A transaction that lost is planned again from the items that came back with its cancellation, without another
  read; what was committed before it stays committed.
- While the outcome of a request is unknown, the same request is repeated with the same token, before any new plan.
- Where there is a fight, a product is claimed before the next attempt (`claims.py`), and the last write of the chain
  releases it. One claim guards a whole chain, because its rivals want the same popular products. Where that does not
  do, one more is claimed after each loss, all in the order of their ids, so that no two batches wait for each other.
- Every wait is bounded by the number of attempts and by the time that the invocation has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, TypeVar

from inventory_orders.claims import CLAIM_SECONDS, Claims, Memory
from inventory_orders.clock import Clock, Deadline, SystemClock
from inventory_orders.errors import (
    ConditionFailedError,
    CorruptItemError,
    OutcomeUnknownError,
    RequestInvalidError,
    StoreError,
    ThrottledError,
    TransactionCancelledError,
)
from inventory_orders.model import Change, Known, Product, ProductStatus, RecordKey, Refusal
from inventory_orders.planner import Chain, Limits, Plan, Transaction, plan
from inventory_orders.retry import LEASE_POLL_SECONDS, RetryPolicy
from inventory_orders.store import (
    BATCH_GET_LIMIT,
    ClaimUse,
    Snapshot,
    Store,
    decode,
    decode_product,
)
from inventory_orders.writer import CONDITION_FAILED, RIVAL, TRANSIENT, Effort, Writer

_INVALID = {"ValidationError", "ItemCollectionSizeLimitExceeded"}

A = TypeVar("A")
B = TypeVar("B")


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
        applied: The change that was written in the end: another one may have taken its place.
        after: The products that it changed, as its transaction left them.
        cause: Why it was returned, or found invalid, as a stable code.
        detail: The same in words.
        retry_after: Seconds before a retry makes sense, where that is known; else 0.
    """

    ending: Ending
    refusal: Refusal | None = None
    record: dict[str, Any] | None = None
    applied: Change | None = None
    after: Mapping[str, Product] = field(default_factory=dict)
    cause: str = ""
    detail: str = ""
    retry_after: float = 0.0


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
        executor: Runs reads and transactions side by side; None runs them one after the other.
        limits: What one transaction may hold.
    """

    def __init__(
        self,
        store: Store,
        policy: RetryPolicy | None = None,
        clock: Clock | None = None,
        executor: Executor | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.writer = Writer(store, policy or RetryPolicy(), clock or SystemClock())
        self.memory = Memory(self.writer.clock, self.writer.policy.random)
        self.limits = limits or Limits()
        self._executor = executor

    def apply(self, changes: Sequence[Change], deadline: Deadline, age: float = 0.0) -> Report:
        """Apply each change once, or say why not.

        Args:
            changes: In the order in which they arrived. Of several with one record key the first counts.
            deadline: No request begins after it.
            age: Seconds for which the first of them has been waiting: who has waited longer comes first.

        Returns:
            What became of each. Whatever goes wrong with DynamoDB is in there too; it raises nothing.
        """
        work = _Work(self, changes, deadline, age)
        try:
            work.run()
        finally:
            work.end()
        return work.report()

    def side_by_side(self, function: Callable[[A], B], arguments: Sequence[A]) -> list[B]:
        """Call a function on each argument, at the same time where there is an executor."""
        if self._executor is None or len(arguments) == 1:
            return [function(argument) for argument in arguments]
        return list(self._executor.map(function, arguments))


@dataclass(slots=True)
class _Attempt:
    """A transaction that was sent, and what came of it."""

    transaction: Transaction
    claims: Mapping[str, ClaimUse]
    error: StoreError | None = None
    repeated: int = 0
    effort: Effort = field(default_factory=Effort)


@dataclass(slots=True)
class _ChainResult:
    """How far a chain of transactions came."""

    chain: Chain
    guards: set[str]
    steps: int = 0
    committed: list[Transaction] = field(default_factory=list)
    failures: list[tuple[Transaction, StoreError]] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether all of it is durable."""
        return self.steps == len(self.chain) and not self.failures


class _Work:
    """One batch of changes on its way through the engine."""

    def __init__(
        self, engine: Committer, changes: Sequence[Change], deadline: Deadline, age: float
    ) -> None:
        self._engine = engine
        self._deadline = deadline
        self._changes = changes
        self._leaders: dict[RecordKey, Change] = {}
        self._turned_away: set[int] = set()
        self._elect_leaders()
        self._pending = dict(self._leaders)
        self._outcomes: dict[RecordKey, Outcome] = {}
        self._products: dict[str, Product | None] = {}
        self._unreadable: dict[str, str] = {}
        self._remembered: set[str] = set()
        self._contested: set[str] = set()
        self._limits = engine.limits
        self._failures = 0
        self._retries: dict[RecordKey, int] = {}
        self._effort = Effort()
        self._claims = Claims(engine.writer, engine.memory, deadline, self._effort, age)
        self._failure: StoreError | None = None

    def _elect_leaders(self) -> None:
        """Of several changes with one record key the first counts.

        A duplicate in another group would have to wait for the first one's group, and all behind it in its own
        group with it: they are returned, and by their next delivery the first one is durable.
        """
        stopped: set[str] = set()
        for index, change in enumerate(self._changes):
            leader = self._leaders.get(change.record_key, change)
            if change.group is not None and (
                change.group in stopped or leader.group != change.group
            ):
                stopped.add(change.group)
                self._turned_away.add(index)
            else:
                self._leaders.setdefault(change.record_key, change)

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        self._begin()
        while self._pending:
            self._round()

    def _begin(self) -> None:
        """Read what the batch is about, but for products that only this process seems to write.

        Where a fight is known to go on, its claim comes first: what was read before the wait would be stale after it,
        and so would be what is remembered of the other products. Records are read with the products, as a hint which
        changes were answered before; by themselves they are worth a request only where such changes were met lately.
        """
        memory = self._engine.memory
        memory.next_batch(p for change in self._leaders.values() for p in change.product_ids)
        wanted = self._product_ids()
        guard = memory.guard(wanted)
        if guard is not None:
            self._take_claim(guard)
        else:
            for product_id in wanted:
                if (recalled := memory.recall(product_id)) is not None:
                    self._products[product_id] = recalled
                    self._remembered.add(product_id)
        unknown = [product_id for product_id in wanted if product_id not in self._products]
        about_records_alone = not all(change.product_ids for change in self._leaders.values())
        if unknown or about_records_alone or memory.wary:
            self._read([*unknown, *self._leaders])

    def _round(self) -> None:
        """Plan what is pending, commit what can be, and learn from what could not."""
        self._read_unknown()
        now = self._engine.writer.clock.now().timestamp()
        leased = self._leased(now)
        planned = plan(
            list(self._pending.values()),
            self._products,
            leased | self._unreadable.keys(),
            self._limits,
        )
        if self._remembered and _refuses(planned):
            # Nobody is refused on the word of a memory.
            remembered, self._remembered = sorted(self._remembered), set()
            self._read(remembered)
            return
        wanted = [self._to_claim(chain, now) for chain in planned.chains]
        ready = [chain for chain, claims in zip(planned.chains, wanted, strict=True) if not claims]
        results = self._run_chains(ready)
        # First what is durable: an error of one chain must not be taken for the end of another's changes.
        for result in results:
            for transaction in result.committed:
                self._absorb(transaction)
        lost = [self._learn(*failure) for result in results for failure in result.failures]
        self._return_hopeless(planned.held, now)
        if any(lost):
            self._failures += 1
            self._return_tired()
            if self._claims.held or self._engine.memory.guard(self._product_ids()) is None:
                self._back_off()
        elif ready:
            if all(result.complete for result in results):
                self._claims.release()
        elif self._pending and planned.chains:
            self._claim(planned.chains[0], wanted[0])
        elif self._pending:
            self._wait_for_lease(leased, now)

    def _read_unknown(self) -> None:
        """Read products of changes that took the place of others."""
        known = self._products.keys() | self._unreadable.keys()
        unknown = [product_id for product_id in self._product_ids() if product_id not in known]
        if unknown:
            self._read(unknown)

    def _leased(self, now: float) -> set[str]:
        """Products under a lease of another that is longer than a claim."""
        return {
            product_id
            for product_id, product in self._products.items()
            if product is not None and product.lease_left(now) > CLAIM_SECONDS
        }

    def _to_claim(self, chain: Chain, now: float) -> set[str]:
        """The products that have to be claimed before a chain may run."""
        touched = _touched(chain)
        memory, held = self._engine.memory, self._claims.held
        claimed_by_others = {
            product_id
            for product_id in touched
            if (product := self._products[product_id]) is not None and product.lease_left(now) > 0
        }
        wanted = claimed_by_others | (self._contested & touched)
        if (guard := memory.guard(touched)) is not None:
            wanted.add(guard)
        elif not wanted:
            wanted = touched & held.keys()
        enough = now + CLAIM_SECONDS / 2
        return {product_id for product_id in wanted if held.get(product_id, 0.0) < enough}

    def _run_chains(self, chains: Iterable[Chain]) -> list[_ChainResult]:
        """Commit chains side by side, each step by step, up to the first that fails."""
        results = [
            _ChainResult(chain, _touched(chain) & self._claims.held.keys()) for chain in chains
        ]
        while going_on := [result for result in results if self._goes_on(result)]:
            steps = [self._next_step(result) for result in going_on]
            self._engine.side_by_side(self._commit, [a for step in steps for a in step])
            for result, step in zip(going_on, steps, strict=True):
                result.steps += 1
                for attempt in step:
                    self._take_note(attempt, result)
        return results

    def _goes_on(self, result: _ChainResult) -> bool:
        if result.failures or result.complete:
            return False
        return result.steps == 0 or not self._claims.about_to_end(result.guards)

    def _next_step(self, result: _ChainResult) -> list[_Attempt]:
        """The next transactions of a chain. The last one, if it can, releases all claims in the same write."""
        step = result.chain[result.steps]
        last = result.steps + 1 == len(result.chain) and len(step) == 1
        release = last and result.guards <= step[0].after.keys()
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
        """Send a transaction. Runs beside others."""
        writer, transaction = self._engine.writer, attempt.transaction
        request = writer.store.transaction_request(transaction, writer.clock.now(), attempt.claims)
        if not request:
            return
        claimable = [
            index
            for index, update in enumerate(transaction.updates)
            if update.before.product_id not in attempt.claims
        ]
        attempt.error, attempt.repeated = writer.write(
            request, len(transaction.updates), self._deadline, attempt.effort, claimable=claimable
        )
        if attempt.error is None:
            attempt.effort.changes_per_transaction.append(len(transaction.decisions))
            attempt.effort.low_stock += [
                update.after
                for update in transaction.updates
                if update.before.status is ProductStatus.ACTIVE
                and update.after.status is not ProductStatus.ACTIVE
            ]

    def _take_note(self, attempt: _Attempt, result: _ChainResult) -> None:
        """Add up what an attempt took, and how it ended."""
        self._effort.add(attempt.effort)
        if attempt.repeated:
            for decision in attempt.transaction.decisions:
                key = decision.change.record_key
                self._retries[key] = self._retries.get(key, 0) + attempt.repeated
        if attempt.error is not None:
            result.failures.append((attempt.transaction, attempt.error))
            return
        result.committed.append(attempt.transaction)
        for product_id, use in attempt.claims.items():
            if use.release:
                self._claims.over(product_id)

    # ------------------------------------------------------------------ learning from the answers

    def _absorb(self, committed: Transaction) -> None:
        """Take over what was committed."""
        after = committed.after
        self._products.update(after)
        self._remembered -= after.keys()
        for product in after.values():
            self._engine.memory.left(product)
        for decision in committed.decisions:
            change = decision.change
            if decision.refusal is not None:
                outcome = Outcome(Ending.REFUSED, decision.refusal)
            else:
                changed = {product_id: after[product_id] for product_id in decision.touched}
                outcome = Outcome(Ending.APPLIED, applied=change, after=changed)
            self._settle(change, outcome)

    def _learn(self, failed: Transaction, error: StoreError) -> bool:
        """Take note of why a transaction failed. Returns whether it lost against rivals, and so should wait."""
        changes = [decision.change for decision in failed.decisions]
        for product_id in failed.after:
            self._engine.memory.forget(product_id)
        if isinstance(error, RequestInvalidError):
            self._isolate(changes, error.code, str(error))
            return False
        if isinstance(error, ThrottledError | OutcomeUnknownError):
            self._give_up(changes, error.code, str(error))
            return False
        if not isinstance(error, TransactionCancelledError):
            self._fail(error)
            return False

        codes = {reason.code for reason in error.reasons}
        lost = not codes.isdisjoint(TRANSIENT - {"None"})
        rivals: list[str] = []
        for update, reason in zip(failed.updates, error.reasons, strict=False):
            product_id = update.before.product_id
            if reason.code == CONDITION_FAILED:
                self._see(product_id, reason.item)
            if reason.code in (CONDITION_FAILED, RIVAL):
                rivals.append(product_id)
                self._engine.memory.met_rival(product_id)
        if rivals:
            lost = True
            if self._claims.held and self._failures > 1:
                # The first one may have been in flight before the claim; another one is not kept out by it.
                self._contested |= {*self._claims.held, self._engine.memory.most_wanted(rivals)}
        if codes <= TRANSIENT and not rivals:
            self._give_up(changes, "CONTENTION", str(error))
            return False
        with_record = [decision.change for decision in failed.decisions if decision.has_record]
        for change, reason in zip(with_record, error.reasons[len(failed.updates) :], strict=False):
            if reason.code == CONDITION_FAILED and (
                reason.item is None or self._recognise(change, decode(reason.item))
            ):
                lost = True
        undecided = [change for change in changes if change.record_key in self._pending]
        for change in undecided:
            self._retries[change.record_key] = self._retries.get(change.record_key, 0) + 1
        if codes & _INVALID:
            self._isolate(undecided, "REFUSED_BY_DYNAMODB", str(error))
        elif not codes <= TRANSIENT | {CONDITION_FAILED}:
            # Access denied, or something newer than this code: somebody has to look at it.
            self._fail(error)
        return lost

    def _see(self, product_id: str, item: Any) -> None:
        """Take note of a product as it came back: the next plan starts from it."""
        self._claims.doubt(product_id)
        self._note(product_id, item)

    def _note(self, product_id: str, item: Any) -> None:
        self._unreadable.pop(product_id, None)
        self._remembered.discard(product_id)
        if item is None:
            self._products[product_id] = None
            return
        try:
            self._products[product_id] = decode_product(item)
        except CorruptItemError as error:
            self._unreadable[product_id] = str(error)

    def _recognise(self, change: Change, record: dict[str, Any]) -> bool:
        """A record is there already. Returns whether another change takes the place of this one."""
        try:
            meaning = change.recognise(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            detail = f"the stored record breaks its table's contract ({error!r}); repair the item"
            self._give_up([change], "CORRUPT_RECORD", detail)
            return False
        if isinstance(meaning, Known):
            self._engine.memory.met_record()
            ending = Ending.REPLAYED if meaning is Known.SAME_REQUEST else Ending.ID_REUSED
            self._settle(change, Outcome(ending, record=record))
        elif isinstance(meaning, Refusal):
            self._settle(change, Outcome(Ending.REFUSED, meaning, record=record))
        else:
            self._pending[change.record_key] = meaning
            return True
        return False

    def _isolate(self, changes: Sequence[Change], code: str, detail: str) -> None:
        """Halve the transactions until the offending change stands alone."""
        if len(changes) == 1:
            self._settle(changes[0], Outcome(Ending.INVALID, cause=code, detail=detail))
        elif changes:
            self._limits = replace(self._limits, changes=(len(changes) + 1) // 2)

    # ------------------------------------------------------------------ waiting, and giving up

    def _return_tired(self) -> None:
        """Give up changes that have lost too often."""
        most = self._engine.writer.policy.max_attempts
        tired = [c for key, c in self._pending.items() if self._retries.get(key, 0) >= most]
        if tired:
            self._give_up(tired, "CONTENTION", "lost against rivals in every attempt")

    def _back_off(self) -> None:
        if not self._pending:
            return
        delay = self._engine.writer.policy.backoff(self._failures)
        if not self._engine.writer.pause(delay, self._deadline):
            self._give_up(
                list(self._pending.values()), "CONTENTION", "no time left for another attempt"
            )
            return
        self._effort.backoffs.append(delay)

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
        for product_id in change.product_ids:
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
        products = (self._products.get(product_id) for product_id in change.product_ids)
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
        if self._engine.writer.pause(delay, self._deadline):
            self._effort.lease_wait += delay
            self._read(sorted(leased))
        else:
            self._give_up(
                list(self._pending.values()), "LEASED", "no time left to wait for a lease"
            )

    # ------------------------------------------------------------------ claims

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
            item = self._claims.take(product_id)
        except ConditionFailedError as failed:
            self._see(product_id, failed.item)
        except ThrottledError as error:
            touching = [c for c in self._pending.values() if product_id in c.product_ids]
            self._give_up(touching, error.code, str(error))
        except StoreError as error:
            self._fail(error)
        else:
            self._note(product_id, item)
            product = self._products.get(product_id)
            if product is not None:
                self._products[product_id] = replace(product, lock_time=None, lock_wait=None)

    def end(self) -> None:
        """Release the claims that no commit has released."""
        self._claims.release()

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
        ids = (product_id for change in self._pending.values() for product_id in change.product_ids)
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
                delay = self._engine.writer.policy.backoff(failures)
                if (
                    failures >= self._engine.writer.policy.max_attempts
                    or not self._engine.writer.pause(delay, self._deadline)
                ):
                    cause = error.code if error else "UNPROCESSED_KEYS"
                    self._give_up(
                        list(self._pending.values()), cause, str(error or "reads were left out")
                    )
                    return
                self._effort.backoffs.append(delay)

    def _read_chunk(self, keys: Sequence[str | RecordKey]) -> Snapshot | StoreError:
        if self._deadline.remaining() <= 0:
            return ThrottledError("OUT_OF_TIME", "the invocation had no time left to read")
        try:
            return self._engine.writer.store.read(keys)
        except StoreError as error:
            return error

    def _take(self, snapshot: Snapshot) -> None:
        self._products.update(snapshot.products)
        memory, now = self._engine.memory, self._engine.writer.clock.now().timestamp()
        for product_id, product in snapshot.products.items():
            self._unreadable.pop(product_id, None)
            self._claims.doubt(product_id)
            if product is not None:
                memory.found(product)
                if 0 < product.lease_left(now) <= CLAIM_SECONDS:
                    memory.met_rival(product_id, product.lock_wait)
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
        for index, change in enumerate(self._changes):
            key = change.record_key
            if index in self._turned_away:
                answers.append(Outcome(Ending.RETURNED, cause="BEHIND_A_DUPLICATE"))
                continue
            outcome = self._outcomes[key]
            answers.append(self._answer_duplicate(change, outcome) if key in answered else outcome)
            answered.add(key)
        return tuple(answers)

    def _answer_duplicate(self, change: Change, first: Outcome) -> Outcome:
        """The outcome of a duplicate inside the batch follows from that of the first one."""
        if first.ending is Ending.RETURNED:
            return first
        if first.ending is Ending.ID_REUSED and first.record is not None:
            # Readable: the first one was compared with it.
            same = change.recognise(first.record) is Known.SAME_REQUEST
        else:
            same = self._leaders[change.record_key].is_same_request(change)
        refused = first.ending is Ending.REFUSED and first.record is None
        unrecorded = refused and not self._leaders[change.record_key].records_refusal
        if first.ending is Ending.INVALID or unrecorded:
            # The id is still free: another body gets a delivery of its own, without this neighbour.
            return first if same else Outcome(Ending.RETURNED, cause="BEHIND_A_DUPLICATE")
        return Outcome(Ending.REPLAYED if same else Ending.ID_REUSED, record=first.record)


def _refuses(planned: Plan) -> bool:
    return any(
        decision.refusal is not None
        for transaction in planned.transactions
        for decision in transaction.decisions
    )


def _touched(chain: Chain) -> set[str]:
    return {
        product_id for step in chain for transaction in step for product_id in transaction.after
    }
