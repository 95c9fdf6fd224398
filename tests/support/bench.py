"""An engine on the tables of the simulated AWS, for tests that plant faults into single requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import RLock
from typing import Any

from botocore.exceptions import ReadTimeoutError

from inventory_orders.clock import Clock, Deadline
from inventory_orders.domain.change import Change
from inventory_orders.domain.planner import Limits
from inventory_orders.domain.product import Product, ProductStatus, stock_status
from inventory_orders.domain.record import Record, RecordKey
from inventory_orders.engine.loop import Engine
from inventory_orders.engine.outcomes import CommitReport
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.source import UncontestedRows
from inventory_orders.errors import Verdict
from inventory_orders.lanes.source import engine_with_lanes
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.record_rows import read_record, record_row
from inventory_orders.store.rows import encode, key_of, product_row, read_product
from inventory_orders.store.tables import KEYS, Table
from testing.clocks import FakeClock
from testing.shop import client
from testing.simulated_aws import Item, ServiceError, SimulatedAws, answered_directly_by
from testing.tables import create_table

BEGAN = datetime(2026, 1, 2, tzinfo=UTC)
"""When a bench's clock starts."""

THROTTLED = ServiceError("ThrottlingException", "slow down")
LOST = ReadTimeoutError(endpoint_url="https://dynamodb")


def product(product_id: str, stock: int, **more: Any) -> Product:
    """A product, with the status that follows from its stock unless `status` says otherwise."""
    values = {"version": 1, "created_at": "2026-01-01T00:00:00.000000+00:00", **more}
    status = values.pop("status", None) or stock_status(
        stock, values.get("backorder_limit", 0), values.get("low_stock_threshold", 0)
    )
    return Product(product_id, stock, status=ProductStatus(status), **values)


def stored(value: Product) -> Item:
    """A product as DynamoDB returns it."""
    return encode(product_row(value))


def cancelled(*codes: str, item: Item | None = None) -> ServiceError:
    """The cancellation of a transaction, with a reason for each action; the last one returns the item."""
    reasons: list[dict[str, Any]] = [{"Code": code} for code in codes]
    if item is not None:
        reasons[-1]["Item"] = item
    return ServiceError("TransactionCanceledException", extra={"CancellationReasons": reasons})


def one_attempt(
    store: Store, policy: RetryPolicy | None = None, clock: Clock | None = None
) -> Engine:
    """An engine like that of the API's function: it makes one attempt, from rows."""
    client = RetryingClient(store, policy or RetryPolicy(max_attempts=1), clock)
    return Engine(client, UncontestedRows())


def statuses(report: CommitReport) -> list[Verdict]:
    """The status of each outcome."""
    return [outcome.verdict for outcome in report.outcomes]


@dataclass(frozen=True)
class Fault:
    """What happens to one request.

    Attributes:
        error: Takes the place of the response.
        applied: Whether the request is applied before the error: a lost response.
        rival: Runs before the request arrives.
    """

    error: Exception | None = None
    applied: bool = False
    rival: Callable[[Bench], object] = field(default=lambda _: None)


class Bench:
    """An engine, its tables, and a clock that only moves when code sleeps.

    Attributes:
        faults: What the next transactions meet, one each.
        read_faults: What the next batch reads meet, one each.
        before: Called with each operation and its request; may raise, or return the answer.
        hides_records: Whether reads that are not strongly consistent find nothing.
        reads: The batch reads so far.
        writes: The transactions so far.
        calls: The names of all operations so far.
    """

    def __init__(
        self,
        *products: Product,
        attempts: int = 8,
        limits: Limits | None = None,
        executor: Executor | None = None,
        patient: bool = True,
    ) -> None:
        self.clock = FakeClock(BEGAN.timestamp())
        self.aws = SimulatedAws(self.clock.monotonic)
        self.faults: deque[Fault] = deque()
        self.read_faults: deque[Fault] = deque()
        self.before: Callable[[str, Any], Any] = lambda operation, request: None
        self.hides_records = False
        self.reads: list[dict[str, Any]] = []
        self.writes: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self._one_at_a_time = RLock()
        with answered_directly_by(self.aws.answer):
            for table in Table:
                create_table(client(), table, table.value)
        self.put(*products)
        store = Store(client(), {table: table.value for table in Table})
        policy = RetryPolicy(attempts, base=0.01, cap=0.04, random=lambda: 0.5)
        self.engine = (
            engine_with_lanes(store, policy, self.clock, executor)
            if patient
            else one_attempt(store, replace(policy, max_attempts=1), self.clock)
        )
        if limits is not None:
            self.engine.limits = limits

    def apply(self, *changes: Change, seconds: float = 20.0) -> CommitReport:
        """Let the engine apply changes."""
        with answered_directly_by(self.answer):
            return self.engine.apply(changes, Deadline.after(seconds, self.clock))

    def answer(self, service: str, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request of the engine."""
        with self._one_at_a_time:
            self.calls.append(operation)
            fault = self._fault(operation, request)
            fault.rival(self)
            if fault.error is not None and not fault.applied:
                raise fault.error
            answer = self.before(operation, request) or self.aws.answer(service, operation, request)
            if fault.error is not None:
                raise fault.error
            if self.hides_records and operation == "BatchGetItem":
                asked = request["RequestItems"]
                found = answer["Responses"]
                answer["Responses"] = {
                    name: found[name] for name in found if _is_exact(asked[name])
                }
            return answer

    def _fault(self, operation: str, request: dict[str, Any]) -> Fault:
        if operation == "BatchGetItem":
            self.reads.append(request)
            return self.read_faults.popleft() if self.read_faults else Fault()
        if operation == "TransactWriteItems":
            self.writes.append(request)
            return self.faults.popleft() if self.faults else Fault()
        return Fault()

    @property
    def tokens(self) -> set[str]:
        """The tokens of all transactions so far."""
        return {request["ClientRequestToken"] for request in self.writes}

    # ------------------------------------------------------------------ what is stored

    def item(self, table: Table, *key: str) -> Item | None:
        """An item; None if there is none."""
        return self.aws.dynamodb.tables[table.value].items.get(key)

    def put_item(self, table: Table, item: Item) -> None:
        """Write an item, past all rules."""
        key = tuple(item[name]["S"] for name in KEYS[table])
        self.aws.dynamodb.tables[table.value].items[key] = item

    def put(self, *products: Product) -> None:
        """Write products, past all rules."""
        for value in products:
            self.put_item(Table.PRODUCTS, stored(value))

    def put_record(self, *records: Record) -> None:
        """Write orders or adjustments, past all rules."""
        for record in records:
            table, _ = key_of(record.key)
            self.put_item(table, encode(record_row(record)))

    def product(self, product_id: str = "p") -> Product:
        """A product as stored."""
        item = self.item(Table.PRODUCTS, product_id)
        assert item is not None
        return read_product(item)

    def record(self, key: RecordKey) -> Any:
        """An order or an adjustment as stored; None if there is none."""
        table, values = key_of(key)
        item = self.item(table, *values)
        return None if item is None else read_record(item)

    def stock(self, product_id: str = "p") -> int:
        """Units in a product's row."""
        return self.product(product_id).stock_count

    # ------------------------------------------------------------------ what rivals do

    def sell(self, product_id: str, units: int) -> None:
        """Sell units as a rival."""
        current = self.product(product_id)
        self.put(current.with_stock(current.stock_count - units, current.version + 1))

    def remove(self, product_id: str) -> None:
        """Delist a product as a rival."""
        del self.aws.dynamodb.tables[Table.PRODUCTS.value].items[product_id,]

    def lease(self, product_id: str, seconds: float) -> None:
        """Lease a product as a rival."""
        current = self.product(product_id)
        item = stored(current.with_stock(current.stock_count, current.version + 1))
        until = self.clock.seconds + seconds
        lock = {"lockedBy": {"S": "rival"}, "lockTime": {"N": f"{until:.6f}"}}
        self.put_item(Table.PRODUCTS, {**item, **lock})


def _is_exact(asked: dict[str, Any]) -> bool:
    return bool(asked.get("ConsistentRead", False))
