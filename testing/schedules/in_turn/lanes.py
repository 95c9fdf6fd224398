"""A shop for tests that sells from lanes, and functions that find its units and act as concurrent writers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from inventory_orders.clock import SystemClock
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import DEPOT, LaneLease, Page, PageKey
from inventory_orders.domain.change import Change
from inventory_orders.domain.order import Order
from inventory_orders.engine.loop import Engine
from inventory_orders.engine.outcomes import CommitReport
from inventory_orders.engine.retrying_client import CommitStats
from inventory_orders.errors import CorruptItemError, Outcome
from inventory_orders.lanes.callers import engine_for_callers
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.lane_leases import lease_lane
from inventory_orders.store.rows import encode, page_units
from inventory_orders.store.tables import Table
from inventory_orders.store.writes import transaction_actions
from operations.aws import Aws
from testing.schedules.in_turn.shop import Shop
from testing.world.faults import LOST
from testing.world.world import INVOCATION_SECONDS

LENT = {1: 20, 2: 30}
"""Units in lanes, by lane."""

_MANY = 90


class LaneShop(Shop):
    """A shop whose units are in its rows, at the depot and in lanes.

    Attributes:
        quiet: Products whose rows have no contention, so that workers sell them from their rows.
        orders: Number of orders made.
        sold: Units that concurrent writers have sold from lanes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.quiet: set[str] = set()
        self.orders = self.sold = 0

    # ------------------------------------------------------------------ where units are

    def list_lent(
        self,
        product_id: str = "p",
        stock: int = 100,
        lanes: Mapping[int, int] = LENT,
        depot: int = 10,
        reach: int = 8,
        **details: Any,
    ) -> None:
        """List a product and lend some of it."""
        self.list(product_id, stock, **details)
        # One transaction can write a hundred pages.
        first = {lane: units for lane, units in lanes.items() if lane < _MANY}
        self.lend(product_id, first, depot, reach)
        if others := {lane: units for lane, units in lanes.items() if lane >= _MANY}:
            self.lend(product_id, others, 0, reach)

    def lend(
        self,
        product_id: str,
        lanes: Mapping[int, int] | None = None,
        depot: int = 0,
        reach: int | None = None,
    ) -> None:
        """Move units of a product from its row to the depot and to lanes."""
        lend(self.store, product_id, depot, lanes or {}, reach)

    def fill(self, lane: int, product_id: str = "p", units: int = 1) -> None:
        """Fill a lane from the depot, as a concurrent writer does."""
        self.write_down(self.filled(lane, product_id, units))

    def filled(self, lane: int, product_id: str = "p", units: int = 1) -> Allocation:
        """The writes with which a concurrent writer fills a lane from the depot."""
        allocation = self.allocation(product_id, lane)
        allocation.fill(lane, product_id, units)
        return allocation

    def sell_from(self, lane: int, product_id: str = "p", units: int = 1) -> None:
        """Sell from a lane as a concurrent writer, if the lane has enough."""
        allocation = self.allocation(product_id, lane)
        if allocation.units(lane, product_id) >= units:
            allocation.add_units(product_id, -units, PageKey.of(lane, product_id))
            self.write_down(allocation)
            self.sold += units

    def total(self, product_id: str = "p") -> int:
        """Count all units of a product: in its row, on pages, and sold by concurrent writers."""
        return self.stock(product_id) + sum(self.held(product_id).values()) + self.sold

    def allocation(self, product_id: str, *lanes: int) -> Allocation:
        """A product's row, and its pages at the depot and in lanes."""
        return _allocation(self.store, product_id, {DEPOT, *lanes})

    def write_down(self, allocation: Allocation) -> None:
        """Write the rows and pages of an allocation.

        Raises:
            TransactionCancelledError: A concurrent writer came first.
        """
        _write(self.store, allocation)

    def held(self, product_id: str = "p") -> dict[int, int]:
        """The units of a product on pages, by lane."""
        return self.pages().units(product_id)

    def source(self, order_id: str, line: int = 0) -> int | None:
        """The lane from which a line of an order was sold; None if it was sold from the row."""
        page = self.order_row(order_id)["items"][line].get("lanePage")
        return None if page is None else int(page.partition("/")[0])

    def occupy(self, lane: int, seconds: float, owner: str = "rival") -> None:
        """Let another process lease a lane or the depot."""
        now = SystemClock().now()
        lease_lane(self.store, LaneLease(lane, owner, now.timestamp() + seconds), now, owner)

    def count(self, product_id: str, seconds: float) -> None:
        """Lease a product's row, as the start of a count does."""
        until, version = round(self.clock.seconds + seconds), self.product(product_id).version
        lock = {"lockedBy": "counter", "lockTime": until, "lockVersion": version}
        self.edit(Table.PRODUCTS, product_id, **encode(lock))

    @contextmanager
    def broken(self, table: Table, key: str, **attributes: Any) -> Iterator[None]:
        """Set attributes of an item directly, bypassing all checks, and restore them at the end."""
        sound = {name: self.items(table)[key,][name] for name in attributes}
        self.edit(table, key, **attributes)
        yield
        self.edit(table, key, **sound)

    def broken_page(self, lane: int, product_id: str) -> Any:
        """Make a page unreadable, and restore its units at the end."""
        key = str(PageKey.of(lane, product_id))
        return self.broken(Table.ALLOTMENTS, key, units={"B": "bm90aGluZw=="})

    # ------------------------------------------------------------------ concurrent writers, and lost responses

    def before_each(self, operation: str, action: Callable[[], object]) -> None:
        """Let concurrent writers act before each call of an operation, except before their own calls."""

        def act(_: Any) -> None:
            action()
            self.once(operation, act)

        self.once(operation, act)

    def lose_responses(
        self,
        first: int,
        last: int = 0,
        operations: Collection[str] = (),
        *,
        is_applied: bool = True,
    ) -> list[str]:
        """Lose the responses to some calls. Returns the calls so far.

        Args:
            first: The number of the first call whose response is lost, counting from 1.
            last: The number of the last such call; by default, only the first response is lost.
            operations: The operations whose calls are counted; all by default.
            is_applied: Whether the requests are executed.
        """
        calls: list[str] = []

        def before(called: str, request: Any) -> None:
            if operations and called not in operations:
                return
            calls.append(called)
            if first <= len(calls) <= max(first, last):
                if is_applied:
                    self.aws.answer("dynamodb", called, request)
                raise LOST

        self.before = before
        return calls

    # ------------------------------------------------------------------ who sells

    def seller(self, lanes: int = 2, off: float = 0.0) -> Any:
        """Create a worker that has met contention on all but the quiet rows, so that it requests a lane."""
        worker: Any = self.worker(off, lanes)
        worker.client.rivals.has = lambda product_id: product_id not in self.quiet
        # Batches are small in tests.
        worker.source.small_batch = 0
        return worker

    def owner(self, lanes: int = 2, off: float = 0.0) -> Any:
        """Create a seller that has leased a lane, if one is free, counted the others, and read its pages."""
        worker = self.seller(lanes, off)
        worker.source.lane.take(self.soon(), CommitStats())
        worker.source.lane.look_around(self.soon(), CommitStats())
        self.quiet.add("warm-up")
        if not self.item(Table.PRODUCTS, "warm-up"):
            self.list("warm-up")
        self.sell(worker, self.new_order("warm-up"))
        return worker

    def api(self, lanes: int = 1, api_lanes: int = 1) -> Any:
        """An engine like that of a process of the API, which has no lane yet."""
        policy = RetryPolicy(max_attempts=1, random=self._chance.random)
        return engine_for_callers(self.store, lanes, api_lanes, policy)

    def new_order(self, *product_ids: str, units: int = 1) -> Order:
        """An order for the same number of units of each product."""
        self.orders += 1
        return Order(f"o{self.orders}", "u", dict.fromkeys(product_ids, units))

    def sell(
        self, worker: Engine, *changes: Change, seconds: float = INVOCATION_SECONDS
    ) -> CommitReport:
        """Let a worker apply changes. Afterwards, `calls` lists only the calls that the worker made."""
        self.calls.clear()
        return self.commit(worker, *changes, seconds=seconds)

    def outcomes(
        self, worker: Engine, *changes: Change, seconds: float = INVOCATION_SECONDS
    ) -> list[Outcome]:
        """Let a worker apply changes, and return only the kind of each outcome."""
        return [outcome.kind for outcome in self.sell(worker, *changes, seconds=seconds).outcomes]

    # ------------------------------------------------------------------ invariants

    def check(self) -> None:
        """Check that the books balance, and that exactly the products known to the depot are lent to lanes."""
        at_depot = [page for page in self.pages().by_name.values() if page.key.lane == DEPOT]
        known = {name for page in at_depot for name in (*page.entries, *page.emptied)}
        listed = [account for account in self.accounts() if account.version]
        for account in listed:
            assert account.balances, account
            assert bool(account.lent_to) == (account.product_id in known), account


def lend(
    store: Store, product_id: str, depot: int, lanes: Mapping[int, int], reach: int | None = None
) -> None:
    """Move units of a product from its row to the depot and to each lane, while no other process writes.

    Afterwards, lanes up to `reach` may be filled with the product. By default, this is the last of `lanes`.
    """
    allocation = _allocation(store, product_id, {DEPOT, *lanes})
    most = max(lanes, default=0) if reach is None else reach
    allocation.lend(product_id, depot + sum(lanes.values()), most)
    for lane, units in lanes.items():
        allocation.fill(lane, product_id, units)
    _write(store, allocation)


def _allocation(store: Store, product_id: str, lanes: Collection[int]) -> Allocation:
    snapshot = store.read([product_id, *(PageKey.of(lane, product_id) for lane in sorted(lanes))])
    return Allocation(snapshot.products, map(_sound, snapshot.pages.values()))


def _write(store: Store, allocation: Allocation) -> None:
    actions = transaction_actions(allocation.drain(), SystemClock().now())
    store.write(actions, uuid.uuid4().hex)


def add_to_page_by_hand(aws: Aws, store: Store, key: PageKey, product_id: str, units: int) -> None:
    """Change the units on an idle page without recording the difference. The service itself never does this."""
    page = _sound(store.read([key]).pages[key])
    entry = page.entries[product_id]
    changed = {**page.entries, product_id: replace(entry, units=entry.units + units)}
    aws.dynamodb.update_item(
        TableName=aws.tables[Table.ALLOTMENTS],
        Key={"page": {"S": str(key)}},
        UpdateExpression="SET #units = :units, #version = #version + :one",
        ExpressionAttributeNames={"#units": "units", "#version": "_version"},
        ExpressionAttributeValues=encode(
            {":units": page_units(replace(page, entries=changed)), ":one": 1}
        ),
    )


def _sound(page: Page | CorruptItemError) -> Page:
    if isinstance(page, CorruptItemError):
        raise page
    return page
