"""The simulated engine: a contender's real handler on simulated workers and the simulated AWS, in virtual time.

Each worker is an execution environment: it imports its own copy of the contender, and has its own copies of the objects
that the service keeps once per process. Time passes only in calls to AWS, in `time.sleep`, and as the CPU time that
`testing.schedules.by_time.latency` charges.
"""

from __future__ import annotations

import base64
import functools
import gc
import io
import json
import logging
import os
import random
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from math import inf
from types import SimpleNamespace
from typing import Any, Self, cast
from unittest import mock

from botocore.exceptions import BotoCoreError, ClientError

from bench import contenders
from bench.capacity import Call, Exchange
from bench.figures import Audit, Books, Figures, Observations, SceneFigures, Tally, Trial, reduce
from bench.simulator.queues import Message, Poller, Queue
from bench.workloads import CREATED_AT, Workload, endless, product_rows, sqs_event
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
from inventory_orders.store.rows import decode, encode, page_units, read_page
from inventory_orders.store.tables import INDEXES, KEYS, Table
from testing.aws import DynamoDB, ServiceError, Sqs, answered_by, in_wire_format
from testing.schedules.by_time.contention import ContendedDynamoDB
from testing.schedules.by_time.latency import (
    CPU,
    INVOCATION_SECONDS,
    MAX_DELIVERIES,
    MILLISECOND,
    NETWORK_HOP,
    PARTITIONS,
    Region,
)
from testing.schedules.scheduler import Scheduler, VirtualExecutor, seeded
from testing.world.clock import virtual_time
from testing.world.handlers import load_handler
from testing.world.tables import creation

_EPOCH = datetime.fromisoformat(CREATED_AT).timestamp()
_IDEMPOTENCY = "aws_lambda_powertools.utilities.idempotency"


class InvocationTimeout(BaseException):
    """Lambda ends the invocation. Derives from BaseException, so that no handler catches it."""


@dataclass(slots=True, eq=False)
class Worker:
    """One execution environment.

    Attributes:
        load: Imports its handler.
        queue: Name of the queue that feeds it.
        handler: Its own copy of the handler.
        caches: Objects that the service keeps once per process, by the function that creates them.
        batch: The messages of its invocation.
        deadline: When Lambda ends its invocation, in virtual seconds.
        cpu_free: When its processor is free, in virtual seconds.
    """

    load: Callable[[], Callable[[Any, Any], Any]]
    queue: str = "bench"
    handler: Callable[[Any, Any], Any] | None = None
    caches: dict[str, Callable[..., Any]] = field(default_factory=dict)
    batch: Sequence[Message] = ()
    deadline: float = inf
    cpu_free: float = 0.0


class Context:
    """The context object that Lambda passes to a handler."""

    function_name = "place_orders"
    function_version = "$LATEST"
    memory_limit_in_mb = 1024
    invoked_function_arn = "arn:aws:lambda:us-east-1:000000000000:function:place_orders"
    aws_request_id = "00000000-0000-4000-8000-000000000000"

    def __init__(self, scheduler: Scheduler, deadline: float) -> None:
        self._scheduler = scheduler
        self._deadline = deadline

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda ends the invocation."""
        return max(0, int((self._deadline - self._scheduler.now) * 1000))


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


class Simulation:
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

    def __init__(
        self, contender: str, workload: Workload, workers: int, seed: int, conditions: Conditions
    ) -> None:
        self._conditions = conditions
        self._contender = contenders.describe(contender)
        if conditions.batch is not None:
            self._contender = replace(self._contender, batch=conditions.batch)
        self._workload = workload
        self._workers = workers
        self._seed = seed
        self._region = Region(random.Random(f"latencies {seed}"))
        self._scheduler = Scheduler()
        self._store = self._tables()
        self._dynamodb = ContendedDynamoDB(
            self._scheduler, self._store, self._region, partitions=conditions.partitions
        )
        self._sqs = Sqs(self.now)
        self._dead_letters = self._sqs.create("DeadLetters")
        self._queue = Queue(self._scheduler, self._messages())
        self._more_queues: list[Queue] = []
        self._wanted = [workload.preferred(order_id) for order_id in workload.bodies]
        self._demand: Demand | None = None
        self._books = Books()
        self._lost = self._ended = 0
        self._units_before = 0.0
        self.observed = Observations(Tally("Products", "Orders"), 0.0, conditions.window)
        spare = 2 * workers * self._contender.batch
        count = inf if conditions.endless else len(workload.bodies)
        self._enough = count - (spare if spare < count else 0)

    def _tables(self) -> DynamoDB:
        """Create the simulated DynamoDB with its tables."""
        return DynamoDB(self.now)

    def _messages(self) -> Iterator[Message]:
        workload = self._workload
        if self._conditions.endless:
            for sent, order in enumerate(endless(workload, self._seed)):
                yield Message(*order, sent)
        else:
            for sent, (order_id, body) in enumerate(workload.bodies.items()):
                yield Message(order_id, body, workload.quantities(order_id), sent)

    # ------------------------------------------------------------------ time

    def now(self) -> float:
        """Unix seconds."""
        return _EPOCH + self._scheduler.now

    def sleep(self, seconds: float) -> None:
        """Replace `time.sleep` in a worker. The invocation may time out while the worker sleeps."""
        worker: Worker = self._scheduler.owner
        left = worker.deadline - self._scheduler.now
        self._scheduler.sleep(min(seconds, left))
        if seconds >= left:
            raise InvocationTimeout

    def _compute(self, worker: Worker, seconds: float) -> None:
        """Let a worker use its processor, which all its threads share."""
        worker.cpu_free = max(worker.cpu_free, self._scheduler.now) + seconds
        self._scheduler.sleep(worker.cpu_free - self._scheduler.now)

    # ------------------------------------------------------------------ the world of the handlers

    def run(self) -> None:
        """Run the cell."""
        with self._world():
            if self._conditions.warm:
                self._scheduler.start(self._learn_demand, Worker(self._load))
            else:
                self._start_workers()
            if self._conditions.window is not None:
                self._scheduler.start(self._watch, Worker(self._load))
            thresholds = gc.get_threshold()
            # With Python's defaults, garbage collection takes half of the time, because the tables are large.
            gc.freeze()
            gc.set_threshold(100_000, 50, 1_000)
            try:
                self._scheduler.run()
            finally:
                gc.set_threshold(*thresholds)
                gc.unfreeze()

    @contextmanager
    def _world(self) -> Iterator[None]:
        """Replace tables, queues, time, randomness and environment with the simulation's."""
        self._fill_tables()
        self._units_before = self._write_units()
        with ExitStack() as stack:
            enter = stack.enter_context
            enter(mock.patch.dict(os.environ, self._environment(), clear=True))
            enter(seeded(self._seed))
            enter(virtual_time(self))
            enter(answered_by(self._answer))
            enter(redirect_stdout(_Nowhere()))
            stack.callback(logging.disable, logging.root.manager.disable)
            logging.disable(logging.CRITICAL)
            for name, value in list(vars(runtime).items()):
                if hasattr(value, "cache_clear"):
                    enter(mock.patch.object(runtime, name, self._once_a_worker(name, value)))
            contenders.load(self._contender.name)
            for name, module in list(sys.modules.items()):
                if name.startswith(_IDEMPOTENCY) and hasattr(module, "dt"):
                    enter(mock.patch.object(module, "dt", self._calendar()))
            executor = functools.partial(VirtualExecutor, self._scheduler)
            enter(mock.patch.object(runtime, "ThreadPoolExecutor", executor))
            yield

    def _fill_tables(self) -> None:
        """Write the opening rows."""
        for table, keys in KEYS.items():
            self._store.answer("CreateTable", creation(table, keys, INDEXES.get(table, ())))
        for name, key in self._contender.tables.items():
            self._store.answer("CreateTable", creation(name, [key]))
        for row in product_rows(self._workload):
            self._put("Products", row)
        if self._conditions.warm and self._lanes():
            self._fill_lanes()

    def _fill_lanes(self) -> None:
        """Fill all lanes, and put half of the remaining units into the depot, as would be the case after a while."""
        lanes, demand = self._lanes(), Demand(SystemClock())
        demand.observe_orders(self._wanted)
        pages: dict[PageKey, dict[str, PageEntry]] = {}
        for product_id, units in self._workload.stock.items():
            row = self._store.tables["Products"].items[product_id,]
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
        self._put("Allotments", row)

    def _put(self, table: str, row: Mapping[str, Any]) -> None:
        """Write a row of plain values."""
        self._store.answer("PutItem", {"TableName": table, "Item": in_wire_format(encode(row))})

    def _learn_demand(self) -> None:
        """Estimate the demand that all workers start with, from two observations of all orders."""
        self._demand = Demand(SystemClock())
        for _ in range(2):
            self._demand.observe_orders(self._wanted)
            self._scheduler.sleep(MILLISECOND)
        self._start_workers()

    def _start_workers(self) -> None:
        for _ in range(self._workers):
            work = functools.partial(self._work, self._queue, self._contender.batch)
            self._scheduler.start(work, Worker(self._load))

    def _calendar(self) -> SimpleNamespace:
        """Build a `datetime` module on virtual time, for Powertools' Idempotency, which does not use `time`."""
        now = self.now

        class Calendar(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Self:
                return cls.fromtimestamp(now(), tz)

        return SimpleNamespace(datetime=Calendar, timedelta=timedelta)

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return (
            own
            | {name: name for name in self._contender.tables}
            | {
                **{f"{table.name}_TABLE_NAME": table.value for table in Table},
                "QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/000000000000/Orders",
                "DEAD_LETTER_QUEUE_URL": self._dead_letters.url,
                "AWS_ACCESS_KEY_ID": "simulated",
                "AWS_SECRET_ACCESS_KEY": "simulated",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
                "POWERTOOLS_SERVICE_NAME": "simulated",
                "POWERTOOLS_METRICS_NAMESPACE": "simulated",
                "LANES": str(self._lanes()),
            }
        )

    def _lanes(self) -> int:
        given = self._conditions.lanes
        most = min(self._workers, MAX_LANES) if self._contender.has_lanes else 0
        return most if given is None else given

    def _once_a_worker(self, name: str, cached: Any) -> Callable[..., Any]:
        """Replace a function that caches its result once per process with one that caches it once per worker."""

        def call(*args: Any) -> Any:
            worker: Worker | None = self._scheduler.owner
            if worker is None:
                # This is the first import, before any worker exists.
                return cached.__wrapped__(*args)
            if name not in worker.caches:
                worker.caches[name] = functools.cache(cached.__wrapped__)
            return worker.caches[name](*args)

        return call

    def _answer(self, service: str, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a client's request, after the simulated latency."""
        worker: Worker | None = self._scheduler.owner
        if worker is None:
            return self._store.answer(operation, request)
        items = len(request.get("TransactItems", "1"))
        self._compute(worker, CPU.call + CPU.item * items)
        began, status = self._scheduler.now, 200
        reply: dict[str, Any]
        try:
            if service == "dynamodb":
                reply = self._dynamodb.answer(operation, request)
            else:
                reply = self._answer_sqs(worker, operation, request)
        except ServiceError as error:
            status, reply = error.status, {"__type": error.code, **error.extra}
            raise
        finally:
            self._observe(service, operation, request, status, reply, began)
        if self._scheduler.now >= worker.deadline:
            raise InvocationTimeout
        return reply

    def _answer_sqs(
        self, worker: Worker, operation: str, request: dict[str, Any]
    ) -> dict[str, Any]:
        self._scheduler.sleep(self._region.queue())
        if operation != "ChangeMessageVisibilityBatch":
            return self._sqs.answer(operation, request)
        for entry in request["Entries"]:
            position = int(entry["ReceiptHandle"].removeprefix("receipt-"))
            seconds = float(entry["VisibilityTimeout"])
            worker.batch[position].visible_at = self._scheduler.now + seconds
        return {"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]], "Failed": []}

    def _observe(
        self,
        service: str,
        operation: str,
        request: dict[str, Any],
        status: int,
        reply: dict[str, Any],
        began: float,
    ) -> None:
        target = f"{'DynamoDB_20120810' if service == 'dynamodb' else 'AmazonSQS'}.{operation}"
        exchange = Exchange(target, request, status, reply, began, self._scheduler.now)
        self.observed.tally.add(exchange)
        self._see(Call(exchange, "Products", "Orders"))

    def _see(self, call: Call) -> None:
        """Inspect a request and its answer. Simulations that count requests override this."""

    # ------------------------------------------------------------------ the workers

    def _work(self, queue: Queue, most: int) -> None:
        """Take batches of orders and handle them until there are none."""
        worker: Worker = self._scheduler.owner
        for batch in self._batches(queue, most):
            observed = self.observed
            for message in batch:
                observed.received.setdefault(message.order_id, message.first_received)
            observed.deliveries += len(batch)
            self._scheduler.sleep(self._region.delivery())
            began = self._scheduler.now
            returned = self._deliver(worker, batch)
            self.observed.invocations.append(self._scheduler.now - began)
            self._settle(queue, batch, returned)

    def _batches(self, queue: Queue, most: int) -> Iterator[list[Message]]:
        """Receive batches for a worker, through a poller of its own."""
        interval = self._conditions.receive_interval
        return Poller(self._scheduler, queue, most, interval).batches()

    def _serve(self, queue: Queue, most: int) -> Iterator[Sequence[Message]]:
        """Take batches of messages that are not orders, and handle them. Yields each batch afterwards."""
        worker: Worker = self._scheduler.owner
        for batch in self._batches(queue, most):
            self._scheduler.sleep(self._region.delivery())
            returned = self._deliver(worker, batch)
            queue.give_back(returned)
            ids = {message.order_id for message in returned}
            queue.end(message for message in batch if message.order_id not in ids)
            yield batch

    def _load(self) -> Callable[[Any, Any], Any]:
        """Import a copy of the contender. In a warm simulation, the copy already knows the demand."""
        handler: Callable[[Any, Any], Any] = contenders.load(self._contender.name).lambda_handler
        if self._demand is not None:
            source = cast("LaneSource", runtime.process().engine_with_lanes.source)
            source.demand = deepcopy(self._demand)
        return handler

    def _deliver(self, worker: Worker, batch: Sequence[Message]) -> list[Message]:
        """Invoke the handler with messages. Returns those that it returned to the queue."""
        worker.batch = batch
        received = [(m.body, m.deliveries, _EPOCH + m.first_received) for m in batch]
        event = sqs_event(received, worker.queue, [m.group for m in batch])
        try:
            answer = self._invoke(worker, event, messages=len(batch))
        except (InvocationTimeout, BotoCoreError, ClientError, contenders.ContentionError):
            return list(batch)
        return [batch[int(item["itemIdentifier"])] for item in answer["batchItemFailures"]]

    def _request(self, event: Mapping[str, Any]) -> int:
        """Invoke the API's handler. Returns the HTTP status, which is 503 if the invocation timed out."""
        try:
            status: int = self._invoke(self._scheduler.owner, event, messages=1)["statusCode"]
        except InvocationTimeout:
            return 503
        return status

    def _invoke(
        self,
        worker: Worker,
        event: Mapping[str, Any],
        seconds: float = INVOCATION_SECONDS,
        messages: int = 0,
    ) -> Any:
        """Invoke a worker's handler, and return its answer.

        Args:
            worker: The worker.
            event: The event.
            seconds: After this time, Lambda ends the invocation.
            messages: The number of messages in the event, which take CPU time.

        Raises:
            InvocationTimeout: Lambda ended the invocation.
        """
        worker.deadline = self._scheduler.now + seconds
        try:
            if worker.handler is None:
                worker.handler = worker.load()
            if messages:
                self._compute(worker, CPU.message * messages)
            return worker.handler(event, Context(self._scheduler, worker.deadline))
        except InvocationTimeout:
            # Lambda discards the execution environment.
            worker.handler, worker.caches = None, {}
            raise
        finally:
            worker.deadline = inf

    def _settle(self, queue: Queue, batch: Sequence[Message], returned: Sequence[Message]) -> None:
        """Delete answered messages, hide returned ones, and drop those delivered too often."""
        tired = [message for message in returned if message.deliveries >= MAX_DELIVERIES]
        self.observed.given_up |= {message.order_id for message in tired}
        again = [message for message in returned if message.deliveries < MAX_DELIVERIES]
        queue.give_back(again)
        left = {message.order_id for message in again}
        queue.end(message for message in batch if message.order_id not in left)
        left |= {message.order_id for message in returned}
        for message in batch:
            if message.order_id not in left:
                self._enter(message)
        if self._conditions.window is not None and self._ended >= self._enough:
            self._close()

    def _enter(self, message: Message) -> None:
        """Enter an acknowledged order into the books, and delete its row, which is no longer needed."""
        self._ended += 1
        row = self._store.tables["Orders"].items.pop((message.order_id,), None)
        if row is None:
            self._lost += 1
        else:
            self._books.enter(row["status"]["S"], message.wanted)

    def _watch(self) -> None:
        """End the warm-up, and later the window."""
        conditions = self._conditions
        if conditions.warm_up:
            # The answers to later transactions arrive after the warm-up.
            self._scheduler.sleep(conditions.warm_up - NETWORK_HOP)
            self._units_before += self._write_units()
            self._scheduler.sleep(NETWORK_HOP)
            received = {
                name: at
                for name, at in self.observed.received.items()
                if self._open(name) is not None
            }
            self.observed = Observations(
                Tally("Products", "Orders"), self._scheduler.now, conditions.window, received
            )
            self._books.placed = self._books.rejected = 0
        self._scheduler.sleep(conditions.window or 0.0)
        self._close()

    def _close(self) -> None:
        """End the window, unless it has ended already."""
        if not self._queue.closed:
            self.observed.window = self._scheduler.now - self.observed.began
            for queue in self._queues:
                queue.close()

    @property
    def _queues(self) -> Iterator[Queue]:
        """All queues that close when the window ends."""
        yield self._queue
        yield from self._more_queues

    def _open(self, order_id: str) -> Message | None:
        """Find an order's message if it has been taken but not settled, else None."""
        return next(
            (queue.open[order_id] for queue in self._queues if order_id in queue.open), None
        )

    # ------------------------------------------------------------------ the result

    def cell(self) -> Figures:
        """Compute the figures, and check the tables."""
        for row in self._store.tables["Orders"].items.values():
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
        consumed = [table.consumed for table in self._store.tables.values()]
        used = sum(one.writes + sum(one.index_writes.values()) for one in consumed)
        return used - self._units_before

    def _audit(self) -> Audit:
        """Compare the books with the tables."""
        tables = self._store.tables
        lanes, outbound = [], Counter[str]()
        for item in tables["Allotments"].items.values():
            if "units" in item:
                units_held = base64.b64decode(item["units"]["B"])
                if item["page"]["S"].startswith("out/"):
                    for product_id, _, units in json.loads(zlib.decompress(units_held)):
                        outbound[product_id] += units
                else:
                    lanes.append(read_page({**item, "units": {"B": units_held}}))
        return self._books.audit(
            self._workload.stock,
            [decode(item) for item in tables["Products"].items.values()],
            lanes,
            self._lost,
            outbound,
        )


def handler_of(name: str) -> Callable[[Any, Any], Any]:
    """Import a copy of one of the service's handlers."""
    handler: Callable[[Any, Any], Any] = load_handler(name).lambda_handler
    return handler


class _Nowhere(io.TextIOBase):
    """Discards output."""

    def write(self, text: str) -> int:
        return len(text)


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
