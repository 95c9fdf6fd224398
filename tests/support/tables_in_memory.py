"""Tables of the simulated AWS, and workers on them, in virtual time."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import boto3

from inventory_orders.clock import Deadline
from inventory_orders.domain.change import Change
from inventory_orders.domain.product import NewProduct
from inventory_orders.engine.loop import Engine
from inventory_orders.engine.outcomes import CommitReport
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.lanes.source import engine_with_lanes
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from operations.aws import Aws
from operations.books import add_up
from operations.lanes import read_pages
from testing.clocks import WrongClock
from testing.simulated_aws import ManualClock, SimulatedAws, answered_directly_by, virtual_time
from testing.simulated_aws.values import size_of_item
from testing.tables import create_table

INVOCATION_SECONDS = 23.0
CALL_SECONDS = 0.01


@cache
def client() -> Any:
    return boto3.client("dynamodb", config=CLIENT_CONFIG)


session = cache(boto3.Session)
"""Makes a session, or finds it: each would load botocore's handlers anew."""


class Tables:
    """The tables in memory, and workers on them.

    Attributes:
        before: Called with each DynamoDB operation and its request; may raise or return what the client then gets.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.aws = SimulatedAws(self.clock.now)
        self.before: Callable[[str, Any], Any] = lambda operation, request: None
        self.calls: list[str] = []
        self.store = Store(client(), {table: table.value for table in Table})
        self.chance = random.Random(0)

    def answer(self, service: str, operation: str, request: dict[str, Any]) -> Any:
        self.clock.sleep(CALL_SECONDS)
        self.calls.append(operation)
        answer = self.before(operation, request)
        return self.aws.answer(service, operation, request) if answer is None else answer

    def worker(self, off: float = 0.0, lanes: int = 0) -> Engine:
        policy = RetryPolicy(random=self.chance.random)
        return engine_with_lanes(self.store, policy, WrongClock(off), lanes=lanes)

    def apply(
        self, worker: Engine, *changes: Change, seconds: float = INVOCATION_SECONDS
    ) -> CommitReport:
        return worker.apply(changes, Deadline.after(seconds, worker.client.clock))

    def once(self, operation: str, action: Callable[[Any], Any]) -> None:
        """Do something before the next call of an operation."""

        def before(called: str, request: Any) -> Any:
            if called != operation:
                return None
            self.before = lambda *_: None
            return action(request)

        self.before = before

    def create(self, product_id: str, stock: int = 1000, size: int = 0, **more: Any) -> None:
        """List a product; with a size in bytes, somebody else adds attributes to its row until it has that."""
        products = ProductCatalogue(RetryingClient(self.store))
        created, _ = products.create(NewProduct(product_id, stock, **more))
        assert created
        if size:
            row = self.row(product_id)
            row["othersAttribute"] = {"S": ""}
            missing = size - len("othersAttribute") - self.size(product_id)
            row["othersAttribute"] = {"S": "x" * missing}
            self.aws.dynamodb.answer("PutItem", {"TableName": "Products", "Item": row})
            assert self.size(product_id) == size

    def row(self, product_id: str) -> dict[str, Any]:
        return dict(self.aws.dynamodb.tables["Products"].items[product_id,])

    def size(self, product_id: str) -> int:
        return size_of_item(self.row(product_id))

    def stock(self, product_id: str) -> int:
        return int(self.row(product_id)["stockCount"]["N"])

    def unexplained(self) -> dict[str, int]:
        """Units of each product that no adjustment or order explains."""
        rows = [
            [decode(item) for item in self.aws.dynamodb.tables[table].items.values()]
            for table in ("Products", "StockAdjustments", "Orders")
        ]
        with answered_directly_by(self.aws.answer):
            pages = read_pages(self.operated).by_name.values()
        accounts = add_up(rows[0], rows[1], rows[2], pages)
        return {account.product_id: account.difference for account in accounts}

    @property
    def operated(self) -> Aws:
        """The tables as commands for operators know them: there is nothing else of the stack."""
        outputs = {f"{table.value}TableName": table.value for table in Table}
        nothing: Any = None
        return Aws(outputs, session(), client(), sqs=nothing, logs=nothing, functions=nothing)


@contextmanager
def tables_in_memory() -> Iterator[Tables]:
    """All tables, empty, while the clients of this process are answered by them."""
    tables = Tables()
    with virtual_time(tables.clock), answered_directly_by(tables.answer):
        for table in Table:
            create_table(client(), table, table.value)
        yield tables
