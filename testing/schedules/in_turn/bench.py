"""An engine whose calls fail as planned, and concurrent writers that act between them."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from inventory_orders.clock import Clock
from inventory_orders.domain.change import Change
from inventory_orders.domain.planner import Limits
from inventory_orders.domain.product import Product, ProductStatus, stock_status
from inventory_orders.engine.loop import Engine
from inventory_orders.engine.outcomes import CommitReport
from inventory_orders.errors import Outcome
from inventory_orders.lanes.callers import engine_for_callers
from inventory_orders.lanes.source import engine_with_lanes
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.rows import encode, product_row
from inventory_orders.store.tables import Table
from testing.aws import Item, answered_directly_by
from testing.schedules.in_turn.shop import Shop
from testing.world.clock import virtual_time

BEGAN = datetime(2026, 1, 2, tzinfo=UTC)
"""The time at which a bench's clock starts."""


def product(product_id: str, stock: int, **more: Any) -> Product:
    """A product, with the status that follows from its stock unless `status` is given."""
    values = {"version": 1, "created_at": "2026-01-01T00:00:00.000000+00:00", **more}
    status = values.pop("status", None) or stock_status(
        stock - values.get("safety_stock", 0),
        values.get("backorder_limit", 0),
        values.get("low_stock_threshold", 0),
    )
    on_hand = values.pop("on_hand", stock)
    return Product(product_id, stock, on_hand, status=ProductStatus(status), **values)


def stored(value: Product) -> Item:
    """A product as DynamoDB returns it."""
    return encode(product_row(value))


def one_attempt(
    store: Store, policy: RetryPolicy | None = None, clock: Clock | None = None
) -> Engine:
    """Create an engine like that of the API, which makes one attempt, but without a lane."""
    return engine_for_callers(store, 0, 0, policy, clock)


def statuses(report: CommitReport) -> list[Outcome]:
    """The kind of each outcome."""
    return [outcome.kind for outcome in report.outcomes]


class Bench(Shop):
    """A shop with one engine and no lanes, whose clock moves only when code sleeps.

    Attributes:
        faults: Faults for the next transactions, one for each.
        read_faults: Faults for the next batch reads, one for each.
        hides_records: Whether eventually consistent reads find nothing.
        reads: The batch reads so far.
        writes: The transactions so far.
    """

    call_seconds = 0.0

    def __init__(
        self,
        *products: Product,
        attempts: int = 8,
        limits: Limits | None = None,
        executor: Executor | None = None,
        patient: bool = True,
    ) -> None:
        super().__init__()
        self.clock.seconds = BEGAN.timestamp()
        self.faults = self.planned["TransactWriteItems"]
        self.read_faults = self.planned["BatchGetItem"]
        self.hides_records = False
        self.reads: list[dict[str, Any]] = []
        self.writes: list[dict[str, Any]] = []
        self.put(*products)
        policy = RetryPolicy(attempts, base=0.01, cap=0.04, random=lambda: 0.5)
        self.engine = (
            engine_with_lanes(self.store, policy, executor=executor)
            if patient
            else one_attempt(self.store, replace(policy, max_attempts=1))
        )
        if limits is not None:
            self.engine.limits = limits

    def apply(self, *changes: Change, seconds: float = 20.0) -> CommitReport:
        """Let the engine apply changes."""
        with virtual_time(self.clock), answered_directly_by(self.answer):
            return self.commit(self.engine, *changes, seconds=seconds)

    def answer(self, service: str, operation: str, request: dict[str, Any]) -> Any:
        noted = {"BatchGetItem": self.reads, "TransactWriteItems": self.writes}
        noted.get(operation, []).append(request)
        answer = super().answer(service, operation, request)
        if self.hides_records and operation == "BatchGetItem":
            asked, found = request["RequestItems"], answer["Responses"]
            answer["Responses"] = {
                name: found[name] for name in found if asked[name].get("ConsistentRead")
            }
        return answer

    @property
    def tokens(self) -> set[str]:
        """The tokens of all transactions so far."""
        return {request["ClientRequestToken"] for request in self.writes}

    # ------------------------------------------------------------------ concurrent writers

    def sell(self, product_id: str, units: int) -> None:
        """Sell units, as a concurrent writer does."""
        current = self.product(product_id)
        self.put(current.with_stock(current.stock_count - units, current.version + 1))

    def remove(self, product_id: str) -> None:
        """Delist a product, as a concurrent writer does."""
        del self.items(Table.PRODUCTS)[product_id,]

    def lease(self, product_id: str, seconds: float) -> None:
        """Lease a product, as a concurrent writer does."""
        current = self.product(product_id)
        self.put(current.with_stock(current.stock_count, current.version + 1))
        until = {"N": f"{self.clock.seconds + seconds:.6f}"}
        self.edit(Table.PRODUCTS, product_id, lockedBy={"S": "rival"}, lockTime=until)
