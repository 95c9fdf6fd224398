"""The simulated engine: a contender's real handler on simulated workers and the simulated AWS, in virtual time."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from functools import partial
from math import inf
from types import ModuleType, SimpleNamespace
from typing import Any, Self, cast
from unittest import mock

from bench import contenders
from bench.capacity import Call, Exchange
from bench.figures import Audit, Books, Figures, Observations, SceneFigures, Tally, Trial, reduce
from bench.workloads import CREATED_AT, Workload, endless, product_rows
from inventory_orders.clock import SystemClock
from inventory_orders.domain.allotments import (
    DEPOT,
    MAX_LANES,
    MAX_PRODUCTS,
    Page,
    PageEntry,
    PageKey,
)
from inventory_orders.domain.outbound import OutboundPage
from inventory_orders.invocation import runtime
from inventory_orders.lanes.demand import Demand
from inventory_orders.lanes.source import LaneSource
from inventory_orders.store.rows import page_units
from local.stack import SETTINGS
from testing.schedules.by_time.latency import (
    MAX_DELIVERIES,
    MILLISECOND,
    NETWORK_HOP,
    PARTITIONS,
)
from testing.schedules.by_time.queues import Message, Queue
from testing.schedules.by_time.world import TimedWorld, Worker
from testing.world.tables import creation

_IDEMPOTENCY = "aws_lambda_powertools.utilities.idempotency"


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a cell.

    Attributes:
        window: Virtual seconds after which no worker takes another batch. The window ends early if only two batches
            per worker are left, so that the rate is measured with a full queue. None to answer all orders.
        lanes: Maximum number of lanes; by default one for each worker, if the contender has lanes.
        batch: Maximum number of messages in an invocation; by default the contender's own.
        endless: Whether the orders are repeated endlessly, shuffled each time.
        warm_up: Virtual seconds before the window, which do not count.
        warm: Whether lanes and depot are full at the start, and all workers know the demand.
        partitions: Number of partitions, by table.
        receive_interval: Minimum number of seconds between the starts of two receives of a poller.
    """

    window: float | None = None
    lanes: int | None = None
    batch: int | None = None
    endless: bool = False
    warm_up: float = 0.0
    warm: bool = False
    partitions: Mapping[str, int] = field(default_factory=lambda: PARTITIONS)
    receive_interval: float = 0.0


class Simulation(TimedWorld):
    """One cell: a contender, a workload, and a number of workers.

    Args:
        contender: Name of its module.
        workload: The content of the queue.
        workers: Number of concurrent workers.
        seed: Seed of all randomness.
        conditions: The conditions of the run.

    Attributes:
        observed: The observations.
    """

    failures = (*TimedWorld.failures, contenders.ContentionError)

    def __init__(
        self, contender: str, workload: Workload, workers: int, seed: int, conditions: Conditions
    ) -> None:
        super().__init__(seed, conditions.partitions, conditions.receive_interval)
        self._conditions = conditions
        self._contender = contenders.describe(contender)
        if conditions.batch is not None:
            self._contender = replace(self._contender, batch=conditions.batch)
        self._workload = workload
        self._workers = workers
        self.polled["Order"] = Queue(self.scheduler, self._messages())
        self._wanted = [workload.preferred(order_id) for order_id in workload.bodies]
        self._demand: Demand | None = None
        self._books = Books()
        self._lost = self._ended = 0
        self._units_before = 0.0
        self.observed = Observations(Tally("Products", "Orders"), 0.0, conditions.window)
        spare = 2 * workers * self._contender.batch
        count = inf if conditions.endless else len(workload.bodies)
        self._enough = count - (spare if spare < count else 0)
        grace = str(SETTINGS["holdGraceSeconds"])
        self.variables |= {"LANES": str(self._lanes()), "HOLD_GRACE_SECONDS": grace}

    def _messages(self) -> Iterator[Message]:
        workload = self._workload
        if self._conditions.endless:
            for sent, order in enumerate(endless(workload, self._seed)):
                yield Message(*order, sent)
        else:
            for sent, (order_id, body) in enumerate(workload.bodies.items()):
                yield Message(order_id, body, workload.quantities(order_id), sent)

    # ------------------------------------------------------------------ the run

    def run(self) -> None:
        """Run the cell."""
        with self.open():
            if self._conditions.warm:
                self.scheduler.start(self._learn_demand, Worker())
            else:
                self._start_workers()
            if self._conditions.window is not None:
                self.scheduler.start(self._watch, Worker())
            thresholds = gc.get_threshold()
            # With Python's defaults, garbage collection takes half of the time, because the tables are large.
            gc.freeze()
            gc.set_threshold(100_000, 50, 1_000)
            try:
                self.scheduler.run()
            finally:
                gc.set_threshold(*thresholds)
                gc.unfreeze()

    @contextmanager
    def open(self) -> Iterator[Self]:
        self._fill_tables()
        self._units_before = self._write_units()
        with ExitStack() as stack:
            enter = stack.enter_context
            # The contenders create clients of their own.
            own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
            own |= self.environment("place_orders") | {
                name: name for name in self._contender.tables
            }
            own |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "simulated")
            own |= {"AWS_DEFAULT_REGION": "us-east-1", "POWERTOOLS_METRICS_NAMESPACE": "simulated"}
            enter(mock.patch.dict(os.environ, own, clear=True))
            enter(super().open())
            self._invoked[self.caller()] = "place_orders"
            self.load("place_orders")
            for name, module in list(sys.modules.items()):
                if name.startswith(_IDEMPOTENCY) and hasattr(module, "dt"):
                    enter(mock.patch.object(module, "dt", self._calendar()))
            yield self

    def _fill_tables(self) -> None:
        """Write the opening rows."""
        for name, key in self._contender.tables.items():
            self.aws.dynamodb.answer("CreateTable", creation(name, [key]))
        self.write("Products", *product_rows(self._workload))
        if self._conditions.warm and self._lanes():
            self._fill_lanes()

    def _fill_lanes(self) -> None:
        """Fill all lanes, and put half of the remaining units into the depot, as would be the case after a while."""
        lanes, demand = self._lanes(), Demand(SystemClock())
        demand.observe_orders(self._wanted)
        pages: dict[PageKey, dict[str, PageEntry]] = {}
        for product_id, units in self._workload.stock.items():
            row = self.items("Products")[product_id,]
            each = min(int(demand.lane_level(product_id)), (units - 1) // lanes)
            left = units - lanes * each
            depot = left // 2
            shelf = pages.setdefault(PageKey.of(DEPOT, product_id), {})
            if each < 1 or depot < 1 or len(shelf) >= MAX_PRODUCTS:
                continue
            for lane in range(lanes + 1):
                entry = (
                    PageEntry(CREATED_AT, each, 0) if lane else PageEntry(CREATED_AT, depot, lanes)
                )
                pages.setdefault(PageKey.of(lane, product_id), {})[product_id] = entry
            lent_to = {"SS": [str(lane) for lane in range(lanes + 1)]}
            row |= {"stockCount": {"N": str(left - depot)}, "lentTo": lent_to}
        for key, entries in pages.items():
            self._put_page(Page(key, 1, "warm", entries))

    def _put_page(self, page: Page | OutboundPage) -> None:
        row = {"page": str(page.key), "_version": page.version, "epoch": page.epoch}
        row |= {"units": page_units(page), "lastUpdatedAt": CREATED_AT}
        self.write("Allotments", row)

    def _learn_demand(self) -> None:
        """Estimate the demand that all workers start with, from two observations of all orders."""
        self._demand = Demand(SystemClock())
        for _ in range(2):
            self._demand.observe_orders(self._wanted)
            self.scheduler.sleep(MILLISECOND)
        self._start_workers()

    def _start_workers(self) -> None:
        for _ in range(self._workers):
            self.scheduler.start(partial(self._work, self._contender.batch), Worker())

    def _calendar(self) -> SimpleNamespace:
        """Build a `datetime` module on virtual time, for Powertools' Idempotency, which does not use `time`."""
        now = self.now

        class Calendar(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Self:
                return cls.fromtimestamp(now(), tz)

        return SimpleNamespace(datetime=Calendar, timedelta=timedelta)

    def _lanes(self) -> int:
        given = self._conditions.lanes
        most = min(self._workers, MAX_LANES) if self._contender.has_lanes else 0
        return most if given is None else given

    def observe(
        self,
        service: str,
        operation: str,
        request: dict[str, Any],
        status: int,
        reply: dict[str, Any],
        began: float,
    ) -> None:
        target = f"{'DynamoDB_20120810' if service == 'dynamodb' else 'AmazonSQS'}.{operation}"
        exchange = Exchange(target, request, status, reply, began, self.scheduler.now)
        self.observed.tally.add(exchange)
        self._see(Call(exchange, "Products", "Orders"))

    def _see(self, call: Call) -> None:
        """Inspect a request and its answer. Simulations that count requests override this."""

    # ------------------------------------------------------------------ the workers

    def _work(self, most: int) -> None:
        """Take batches of up to this many orders and handle them until there are none."""
        for batch in self.batches(most):
            observed = self.observed
            for message in batch:
                observed.received.setdefault(message.order_id, message.first_received)
            observed.deliveries += len(batch)
            began = self.scheduler.now
            returned = self.deliver(batch)
            self.observed.invocations.append(self.scheduler.now - began)
            self.observed.given_up |= {
                message.order_id for message in returned if message.deliveries >= MAX_DELIVERIES
            }
            self.settle(batch, returned)
            for message in batch:
                if message not in returned:
                    self._enter(message)
            if self._conditions.window is not None and self._ended >= self._enough:
                self._close()

    def load(self, function: str) -> ModuleType:
        """Import a copy of the contender, or of a function. In a warm simulation, the contender already knows the demand."""
        if function != "place_orders":
            return super().load(function)
        handler = contenders.load(self._contender.name)
        if self._demand is not None:
            source = cast("LaneSource", runtime.process().engine_with_lanes.source)
            source.demand = deepcopy(self._demand)
        return handler

    def _enter(self, message: Message) -> None:
        """Enter an acknowledged order into the books, and delete its row, which is no longer needed."""
        self._ended += 1
        row = self.items("Orders").pop((message.order_id,), None)
        if row is None:
            self._lost += 1
        else:
            self._books.enter(row["status"]["S"], message.wanted)

    def _watch(self) -> None:
        """End the warm-up, and later the window."""
        conditions = self._conditions
        if conditions.warm_up:
            # The answers to later transactions arrive after the warm-up.
            self.scheduler.sleep(conditions.warm_up - NETWORK_HOP)
            self._units_before += self._write_units()
            self.scheduler.sleep(NETWORK_HOP)
            received = {
                name: at
                for name, at in self.observed.received.items()
                if self._open(name) is not None
            }
            self.observed = Observations(
                Tally("Products", "Orders"), self.scheduler.now, conditions.window, received
            )
            self._books.placed = self._books.rejected = 0
        self.scheduler.sleep(conditions.window or 0.0)
        self._close()

    def _close(self) -> None:
        """End the window, unless it has ended already."""
        if not self.is_closed:
            self.observed.window = self.scheduler.now - self.observed.began
            for queue in self.polled.values():
                queue.close()

    @property
    def is_closed(self) -> bool:
        """Whether the window has ended."""
        return self.polled["Order"].closed

    def _open(self, order_id: str) -> Message | None:
        """Find an order's message if it has been taken but not settled, else None."""
        queues = self.polled.values()
        return next((queue.open[order_id] for queue in queues if order_id in queue.open), None)

    # ------------------------------------------------------------------ the result

    def cell(self) -> Figures:
        """Compute the figures, and check the tables."""
        for row in self.items("Orders").values():
            message = self._open(row["orderId"]["S"])
            if message is not None:
                self._books.enter(row["status"]["S"], message.wanted)
        trial = Trial(
            *("simulated", self._contender.name, self._workload.name),
            *(self._workers, self._contender.batch, self._seed),
        )
        return reduce(trial, self.observed, self._audit())

    def result(self) -> SceneFigures:
        """Compute the figures of a scene, and check the tables."""
        return SceneFigures.of(self.observed, self.cell(), self._write_units())

    def _write_units(self) -> float:
        """Write units that the tables and their indexes have consumed since the warm-up."""
        consumed = [table.consumed for table in self.aws.dynamodb.tables.values()]
        used = sum(one.writes + sum(one.index_writes.values()) for one in consumed)
        return used - self._units_before

    def _audit(self) -> Audit:
        """Compare the books with the tables."""
        pages, outbound = self.pages(), Counter[str]()
        for page in pages.outbound.values():
            for generation, units in page.units.items():
                outbound[generation.product_id] += units
        stock, lanes = self._workload.stock, pages.by_name.values()
        return self._books.audit(stock, self.rows("Products"), lanes, self._lost, outbound)


def run(
    contender: str,
    workload: Workload,
    workers: int,
    seed: int = 0,
    conditions: Conditions = Conditions(),
) -> Figures:
    """Simulate one cell.

    Args:
        contender: Name of its module.
        workload: The content of the queue at the start, or the orders to repeat.
        workers: Number of concurrent workers.
        seed: Seed of all randomness. The same seed gives the same figures.
        conditions: The conditions of the run.
    """
    simulation = Simulation(contender, workload, workers, seed, conditions)
    simulation.run()
    return simulation.cell()
