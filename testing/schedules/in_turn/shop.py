"""A world in which each call runs at once: unit tests.

with Shop().open() as shop:
shop.list("tea", 5)
assert shop.order("o-1", tea=2) is Outcome.APPLIED
assert shop.stock("tea") == 3
shop.send("OrderCommand", {"action": "cancel", "orderId": "o-1"})
assert shop.deliver("OrderCommand") == 0
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from inventory_orders.domain.change import Change
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import NewProduct
from inventory_orders.engine.loop import Engine
from inventory_orders.engine.outcomes import CommitReport
from inventory_orders.errors import Outcome
from inventory_orders.lanes.source import engine_with_lanes
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.tables import Table
from testing.aws import EventBus, Item
from testing.aws.values import size_of_item
from testing.world.clock import ManualClock, WrongClock
from testing.world.events import event_of_received
from testing.world.tables import FEEDS
from testing.world.world import INVOCATION_SECONDS, World

CALL_SECONDS = 0.01


@dataclass(frozen=True)
class Fault:
    """What happens to one call.

    Attributes:
        error: Raised instead of returning the response.
        applied: Whether the request is applied before the error is raised, as when a response is lost.
        rival: Runs before the request arrives.
    """

    error: Exception | None = None
    applied: bool = False
    rival: Callable[[Any], object] = field(default=lambda _: None)


class Shop(World):
    """A world that answers each call at once, after what a test has planned for it.

    Attributes:
        before: Called with each operation and its request. It may raise an error, or return the answer.
        planned: Faults for the next calls of an operation, one for each call.
        calls: The operations that have been called so far.
        call_seconds: How long each call takes.
    """

    clock: ManualClock
    call_seconds = CALL_SECONDS

    def __init__(
        self, products: Sequence[NewProduct] = (), clock: ManualClock | None = None
    ) -> None:
        super().__init__(products, clock)
        self.bus = self.aws.bus = EventBus(self.clock)
        self.planned: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self.calls: list[str] = []
        self.before: Callable[[str, Any], Any] = lambda operation, request: None
        self._chance = random.Random(0)
        self._one_at_a_time = RLock()
        self._one_invocation = RLock()

    # ------------------------------------------------------------------ calls and faults

    def answer(self, service: str, operation: str, request: dict[str, Any]) -> Any:
        self.clock.advance(self.call_seconds)
        self.calls.append(operation)
        answer = self.before(operation, request)
        if answer is not None:
            return answer
        if not self.planned[operation]:
            return super().answer(service, operation, request)
        with self._one_at_a_time:
            return self._with_fault(service, operation, request)

    def _with_fault(self, service: str, operation: str, request: dict[str, Any]) -> Any:
        fault = self.planned[operation].popleft()
        fault.rival(self)
        answer = None
        if fault.error is None or fault.applied:
            answer = super().answer(service, operation, request)
        if fault.error is not None:
            raise fault.error
        return answer

    def invoke(self, function: str, event: Any, seconds: float = 30.0) -> Any:
        # All processes of a shop share one metrics provider, and a desk invokes from threads of its own.
        with self._one_invocation:
            return super().invoke(function, event, seconds)

    def on(
        self,
        operation: str,
        action: Callable[[Any], Any],
        when: Callable[[Any], bool] = lambda request: True,
    ) -> None:
        """Run `action` before each call of an operation whose request meets a condition; "" means all operations.

        If `action` returns a value other than None, this value is the answer.
        """

        def act(called: str, request: Any) -> Any:
            return action(request) if operation in (called, "") and when(request) else None

        self.before = act

    def once(self, operation: str, action: Callable[[Any], Any]) -> None:
        """Run `action` before the next call of an operation."""

        def act(request: Any) -> Any:
            self.calm()
            return action(request)

        self.on(operation, act)

    def refuse(
        self,
        operation: str,
        error: Exception,
        when: Callable[[Any], bool] = lambda request: True,
    ) -> None:
        """Answer all calls of an operation with an error."""

        def fail(request: Any) -> None:
            raise error

        self.on(operation, fail, when)

    def calm(self) -> None:
        """End all faults."""
        self.before = lambda operation, request: None

    # ------------------------------------------------------------------ products and orders

    def list(self, product_id: str, stock: int = 1000, size: int = 0, **details: Any) -> None:
        """List a product. `size` pads its row to this number of bytes, as if another program had added attributes."""
        created, _ = self.products.create(NewProduct(product_id, stock, **details), self.soon())
        assert created
        if size:
            self.edit(Table.PRODUCTS, product_id, othersAttribute={"S": ""})
            missing = size - self.size(product_id)
            self.edit(Table.PRODUCTS, product_id, othersAttribute={"S": "x" * missing})
            assert self.size(product_id) == size

    def list_all(self, *product_ids: str, size: int = 0) -> None:
        """List products with plenty of stock."""
        for product_id in product_ids:
            self.list(product_id, size=size)

    def delist(self, product_id: str) -> None:
        """Delist a product."""
        self.products.delist(product_id, self.product(product_id).created_at, self.soon())

    def row(self, product_id: str) -> Item:  # type: ignore[override]
        """A product's row."""
        return dict(self.items(Table.PRODUCTS)[product_id,])

    def size(self, product_id: str) -> int:
        """Bytes of a product's row."""
        return size_of_item(self.row(product_id))

    def order(self, order_id: str, hold_seconds: int | None = None, **units: int) -> Outcome:
        """Let a worker place an order."""
        return self.do(Order(order_id, "u", units, hold_seconds=hold_seconds))[0]

    def do(self, *changes: Change) -> Sequence[Outcome]:
        """Let a worker without a lane apply changes."""
        return [outcome.kind for outcome in self.commit(self.worker(), *changes).outcomes]

    def worker(self, off: float = 0.0, lanes: int = 0) -> Engine:
        """An engine whose clock is off by a few seconds."""
        policy = RetryPolicy(random=self._chance.random)
        return engine_with_lanes(self.store, policy, WrongClock(off), lanes=lanes)

    def commit(
        self, worker: Engine, *changes: Change, seconds: float = INVOCATION_SECONDS
    ) -> CommitReport:
        """Let a worker apply changes."""
        return worker.apply(changes, self.soon(seconds))

    # ------------------------------------------------------------------ queues

    def deliver(
        self, queue: str, change: Callable[[Sequence[Any]], Sequence[Any]] = lambda records: records
    ) -> int:
        """Deliver up to ten visible messages of a queue to its function. Returns how many the function returned."""
        source = self.queues[queue]
        records = change(event_of_received(self.poll(source), source.arn)["Records"])
        return len(self.feed(source, FEEDS[queue].function, records)) if records else 0


def open_shop(products: Sequence[NewProduct] = ()) -> AbstractContextManager[Shop]:
    """Open a shop with these products, which answers the AWS clients of this process."""
    return Shop(products).open()
