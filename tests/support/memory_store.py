"""A store in memory: evaluates the tables' conditions, and injects faults into requests."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import RLock
from typing import Any, cast

from inventory_orders.clock import Deadline
from inventory_orders.domain.change import Change, NewRecord, Record, RecordKey
from inventory_orders.domain.planner import Limits, Transaction
from inventory_orders.domain.product import Product, ProductStatus, stock_status
from inventory_orders.engine.committer import Committer
from inventory_orders.engine.outcomes import ChangeStatus, CommitReport
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.actions import (
    Action,
    ActionKind,
    CancellationReason,
    ConditionFailedError,
    TransactionCancelledError,
)
from inventory_orders.store.dynamodb import ClaimUse, Snapshot
from inventory_orders.store.rows import encode, product_row


def product(product_id: str, stock: int, **more: Any) -> Product:
    values = {"version": 1, "created_at": "2026-01-01T00:00:00.000000+00:00", **more}
    status = values.pop("status", None) or stock_status(
        stock, values.get("backorder_limit", 0), values.get("low_stock_threshold", 0)
    )
    return Product(product_id, stock, status=ProductStatus(status), **values)


def stored(value: Product) -> dict[str, Any]:
    """Make a product as DynamoDB would return it."""
    return encode(product_row(value))


@dataclass
class FakeClock:
    """A clock that only moves when code sleeps."""

    seconds: float = 1_000_000.0
    slept: list[float] = field(default_factory=list)
    on_sleep: Callable[[], None] = lambda: None

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        self.on_sleep()


@dataclass
class Fault:
    """What happens to one write request.

    Attributes:
        error: Raised instead of applying the request, or after it.
        applied: Whether the request is applied before the error: a lost response.
        rival: Runs before the request is checked.
    """

    error: Exception | None = None
    applied: bool = False
    rival: Callable[["MemoryStore"], None] = lambda _: None


class MemoryStore:
    """Replaces `Store`: the same methods on dictionaries. Engines may read and write in several threads."""

    def __init__(self, clock: FakeClock, *products: Product) -> None:
        self.clock = clock
        self.products = {value.product_id: value for value in products}
        self.records: dict[RecordKey, Record] = {}
        self.faults: deque[Fault] = deque()
        self.read_errors: deque[Exception] = deque()
        self.unreadable: dict[str, str] = {}
        self.hide_records = False
        self.writes: list[tuple[Transaction, str]] = []
        self.reads: list[list[Any]] = []
        self.owners: dict[str, str] = {}
        self.claims: list[tuple[str, str]] = []
        self.releases: list[tuple[str, str]] = []
        self.release_errors: deque[Exception] = deque()
        self.claim_faults: deque[Fault] = deque()
        self._done: set[str] = set()
        self._one_at_a_time = RLock()

    def read(self, keys: Any, *, records_too: bool = False) -> Snapshot:
        with self._one_at_a_time:
            return self._read(keys, records_too=records_too)

    def _read(self, keys: Any, *, records_too: bool) -> Snapshot:
        self.reads.append(list(keys))
        if self.read_errors:
            raise self.read_errors.popleft()
        ids = [key for key in keys if isinstance(key, str)]
        return Snapshot(
            products={i: self.products.get(i) for i in ids if i not in self.unreadable},
            unreadable={i: self.unreadable[i] for i in ids if i in self.unreadable},
            records={
                key: self.records[key]
                for key in keys
                if not isinstance(key, str)
                and key in self.records
                and (records_too or not self.hide_records)
            },
        )

    def claim(
        self, product_id: str, owner: str, now: datetime, until: float, wait: float
    ) -> Product:
        self.claims.append((product_id, owner))
        fault = self.claim_faults.popleft() if self.claim_faults else Fault()
        fault.rival(self)
        if fault.error is not None and not fault.applied:
            raise fault.error
        current = self.products.get(product_id)
        live = current is not None and current.lease_left(now.timestamp()) > 0
        if current is None or (live and self.owners.get(product_id) != owner):
            raise ConditionFailedError(current)
        self.owners[product_id] = owner
        self.products[product_id] = replace(current, lock_time=until, lock_wait=wait)
        if fault.error is not None:
            raise fault.error
        return self.products[product_id]

    def release_claim(self, product_id: str, owner: str) -> None:
        self.releases.append((product_id, owner))
        if self.release_errors:
            raise self.release_errors.popleft()
        if self.owners.get(product_id) != owner or product_id not in self.products:
            raise ConditionFailedError(None)
        self._unlock(product_id)

    def _unlock(self, product_id: str) -> None:
        self.owners.pop(product_id, None)
        self.products[product_id] = replace(
            self.products[product_id], lock_time=None, lock_wait=None
        )

    def transaction_actions(
        self, transaction: Transaction, now: datetime, claims: dict[str, ClaimUse] | None = None
    ) -> list[Action]:
        request: Any = (transaction, claims or {})
        rows = [
            Action(ActionKind.PRODUCT, update.before.product_id, request, by_version=True)
            for update in transaction.updates
        ]
        records = [
            Action(ActionKind.RECORD, decision.change.record_key, request)
            for decision in transaction.decisions
            if decision.has_record
        ]
        return rows + records

    def write(self, actions: list[Action], token: str) -> None:
        with self._one_at_a_time:
            transaction, claims = cast(Any, actions[0].request)
            self._write(transaction, claims, token)

    def _write(self, transaction: Transaction, claims: dict[str, ClaimUse], token: str) -> None:
        self.writes.append((transaction, token))
        fault = self.faults.popleft() if self.faults else Fault()
        fault.rival(self)
        if fault.error is not None and not fault.applied:
            raise fault.error
        if token not in self._done:
            self._apply(transaction, claims)
            self._done.add(token)
        if fault.error is not None:
            raise fault.error

    def _apply(self, transaction: Transaction, claims: dict[str, ClaimUse]) -> None:
        reasons = []
        for update in transaction.updates:
            current = self.products.get(update.before.product_id)
            fine = (
                current is not None
                and current.version == update.before.version
                and current.created_at == update.before.created_at
                and self._may_write(current, claims.get(current.product_id))
            )
            reasons.append(_reason(fine, current))
        decisions = [decision for decision in transaction.decisions if decision.has_record]
        at = "2026-01-02T00:00:00.000000+00:00"
        writes = [d.change.record(d.rejection, transaction.after, at) for d in decisions]
        for decision, write in zip(decisions, writes, strict=True):
            record = self.records.get(decision.change.record_key)
            fine = record is None if isinstance(write, NewRecord) else record == write.before
            reasons.append(_reason(fine, record))
        if any(reason.code != "None" for reason in reasons):
            raise TransactionCancelledError(reasons)
        for update in transaction.updates:
            key = update.after.product_id
            current = self.products[key]
            self.products[key] = replace(
                update.after, lock_time=current.lock_time, lock_wait=current.lock_wait
            )
            if key in claims and claims[key].release:
                self._unlock(key)
        for decision, write in zip(decisions, writes, strict=True):
            written = write.record if isinstance(write, NewRecord) else write.after
            self.records[decision.change.record_key] = written

    def _may_write(self, current: Product, claim: ClaimUse | None) -> bool:
        if claim is not None:
            return self.owners.get(current.product_id) == claim.owner
        return current.lease_left(self.clock.now().timestamp()) <= 0

    def sell(self, product_id: str, units: int) -> None:
        """A rival's decrement."""
        current = self.products[product_id]
        self.products[product_id] = current.with_stock(
            current.stock_count - units, current.version + 1
        )

    def lock(self, product_id: str, seconds: float, waited: float | None = None) -> None:
        """A rival's lease, or its claim if it waited for it."""
        current = self.products[product_id]
        self.owners[product_id] = "rival"
        self.products[product_id] = replace(
            current,
            version=current.version + 1,
            lock_time=self.clock.now().timestamp() + seconds,
            lock_wait=waited,
        )


def _reason(fine: bool, found: Product | Record | None) -> CancellationReason:
    return (
        CancellationReason("None") if fine else CancellationReason("ConditionalCheckFailed", found)
    )


class Bench:
    """An engine with a store in memory, and a clock that only moves when code sleeps."""

    def __init__(
        self,
        *products: Product,
        attempts: int = 8,
        limits: Limits | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock, *products)
        store: Any = self.store
        self.engine = Committer(
            store,
            RetryPolicy(attempts, base=0.01, cap=0.04, random=lambda: 0.5),
            self.clock,
            executor,
            limits,
        )

    def apply(self, *changes: Change, seconds: float = 20.0) -> CommitReport:
        return self.engine.apply(changes, Deadline.after(seconds, self.clock))

    def stock(self, product_id: str = "p") -> int:
        return self.store.products[product_id].stock_count


def statuses(report: CommitReport) -> list[ChangeStatus]:
    return [outcome.status for outcome in report.outcomes]
