"""The embedded engine: runs contenders in real processes against the embedded AWS.

Each worker is a process, as on Lambda, and calls the contender's handler with batches from one shared queue. Workers
are forked from a server that has imported the libraries. Before the clock starts, they import the contender, connect,
and place one order outside of the workload. Returned messages are redelivered immediately. Each cell has new tables.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import threading
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import boto3
from boto3.dynamodb.types import TypeSerializer
from botocore.config import Config
from botocore.httpsession import URLLib3Session

from bench import contenders, figures, workloads
from bench.capacity import Exchange
from bench.figures import Figures, Observations, Tally, Trial
from bench.workloads import Workload
from inventory_orders.domain.allotments import MAX_LANES
from inventory_orders.store.rows import Item, decode
from inventory_orders.store.tables import Table
from local import emulator
from local.endpoint import embedded_environment
from operations.errors import UserError
from operations.lanes import pages_of
from testing.world.handlers import FakeContext
from testing.world.tables import create_table, creation

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

MAX_DELIVERIES = 10
"""After this many deliveries, a returned message counts as given up."""

_READY_SECONDS = 120.0
# A cell has failed if its workers are still running this many seconds after its window.
_OVERTIME_SECONDS = 180.0

_TABLES = {f"{table.name}_TABLE_NAME": table for table in Table}

# These modules are imported once, in the server that workers are forked from. None of them creates a client.
_PRELOADED = [
    "bench.embedded",
    "inventory_orders.invocation.runtime",
    "inventory_orders.invocation.telemetry",
    "pynamodb.models",
    "pynamodb.transactions",
    "aws_lambda_powertools.utilities.batch",
    "aws_lambda_powertools.utilities.data_classes.sqs_event",
    "aws_lambda_powertools.utilities.idempotency",
]


@functools.cache
def engine() -> Engine:
    """Return the engine. The first call starts its embedded AWS."""
    with emulator.exclusive():
        emulator.stop()
        return Engine(emulator.start().endpoint)


def stop() -> None:
    """Stop the embedded AWS, if it was started."""
    if engine.cache_info().currsize:
        engine.cache_clear()
        with emulator.exclusive():
            emulator.stop()


class Engine:
    """Measures cells on a running embedded AWS.

    Args:
        endpoint: The URL of the embedded AWS.
    """

    def __init__(self, endpoint: str) -> None:
        self._environment = embedded_environment(endpoint)
        client: Any = {
            "endpoint_url": endpoint,
            "region_name": self._environment["AWS_REGION"],
            "aws_access_key_id": self._environment["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": self._environment["AWS_SECRET_ACCESS_KEY"],
            "config": Config(read_timeout=60, retries={"total_max_attempts": 3}),
        }
        self._dynamodb: DynamoDBClient = boto3.client("dynamodb", **client)
        # This engine redelivers returned messages itself. The queue exists so that handlers can set their delay.
        queue = boto3.client("sqs", **client).create_queue(
            QueueName=f"bench-{uuid.uuid4().hex[:8]}"
        )
        self._environment |= {
            "QUEUE_URL": queue["QueueUrl"],
            "DEAD_LETTER_QUEUE_URL": queue["QueueUrl"],
            "POWERTOOLS_SERVICE_NAME": "inventory-orders-bench",
            "POWERTOOLS_LOG_LEVEL": "INFO",
        }
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(_PRELOADED)

    def run(
        self,
        contender: str,
        workload: Workload,
        workers: int,
        seed: int,
        window: float | None = None,
    ) -> Figures:
        """Measure one cell.

        Args:
            contender: Name of its module.
            workload: The orders to place.
            workers: Number of processes.
            seed: Seed of the workload, for the report.
            window: Seconds after which no worker takes another batch.

        Raises:
            UserError: A worker failed or did not finish.
        """
        described = contenders.describe(contender)
        tables = self._create_tables(described)
        try:
            self._fill(tables["PRODUCTS_TABLE_NAME"], workload)
            results = self._let_work(described, workload, workers, window, tables)
            observed = _put_together(results, tables, window)
            audited = figures.audit(
                workload,
                self._rows(tables["PRODUCTS_TABLE_NAME"]),
                self._rows(tables["ORDERS_TABLE_NAME"]),
                {order_id for result in results for order_id in result.acknowledged},
                pages_of(self._items(tables["ALLOTMENTS_TABLE_NAME"])).by_name.values(),
            )
        finally:
            for name in tables.values():
                self._dynamodb.delete_table(TableName=name)
        trial = Trial("embedded", contender, workload.name, workers, described.batch, seed)
        return figures.reduce(trial, observed, audited)

    def _let_work(
        self,
        contender: contenders.Contender,
        workload: Workload,
        workers: int,
        window: float | None,
        tables: Mapping[str, str],
    ) -> list[_Result]:
        context = self._processes
        shared = _Queue(
            size=len(workload.bodies),
            lock=context.Lock(),
            cursor=context.Value("i", 0, lock=False),
            unanswered=context.Value("i", len(workload.bodies), lock=False),
            returned=context.SimpleQueue(),
        )
        barrier = context.Barrier(workers)
        bodies, environment = list(workload.bodies.items()), {**self._environment, **tables}
        lanes = min(workers, MAX_LANES) if contender.has_lanes else 0
        processes, pipes = [], []
        for number in range(workers):
            receiver, sender = context.Pipe(duplex=False)
            arguments = (
                _Task(number, contender, lanes, environment, bodies, window),
                shared,
                barrier,
                sender,
            )
            processes.append(context.Process(target=_work, args=arguments, daemon=True))
            processes[-1].start()
            sender.close()
            pipes.append(receiver)
        try:
            give_up_at = time.monotonic() + _READY_SECONDS + (window or 0) + _OVERTIME_SECONDS
            return [_receive(pipe, give_up_at) for pipe in pipes]
        finally:
            for process in processes:
                process.join(timeout=2)
                if process.is_alive():
                    process.kill()
                    process.join()

    def _create_tables(self, contender: contenders.Contender) -> dict[str, str]:
        """Create tables with the same indexes as the service's tables. Returns their names by environment variable."""
        run = uuid.uuid4().hex[:8]
        names = {}
        for variable, table in _TABLES.items():
            names[variable] = f"{table.value}-{run}"
            create_table(self._dynamodb, table, names[variable])
        for variable, key in contender.tables.items():
            names[variable] = f"{variable}-{run}"
            self._dynamodb.create_table(**creation(names[variable], [key]))
        return names

    def _fill(self, table: str, workload: Workload) -> None:
        rows = workloads.product_rows(workload)
        serialize = TypeSerializer().serialize
        for start in range(0, len(rows), 25):
            puts: Any = [
                {"PutRequest": {"Item": {name: serialize(value) for name, value in row.items()}}}
                for row in rows[start : start + 25]
            ]
            self._dynamodb.batch_write_item(RequestItems={table: puts})

    def _rows(self, table: str) -> Iterator[dict[str, Any]]:
        return map(decode, self._items(table))

    def _items(self, table: str) -> Iterator[Item]:
        pages = self._dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return (item for page in pages for item in page["Items"])


# ---------------------------------------------------------------------- the workers


@dataclass(frozen=True, slots=True)
class _Task:
    """The input of a worker."""

    number: int
    contender: contenders.Contender
    lanes: int
    environment: Mapping[str, str]
    bodies: Sequence[tuple[str, str]]
    window: float | None


@dataclass(frozen=True, slots=True)
class _Queue:
    """The queue that all workers of a cell share. A message is represented by its position in the list of orders."""

    size: int
    lock: Any
    cursor: Any
    unanswered: Any
    returned: Any

    def take(self, count: int) -> list[tuple[int, int, float]]:
        """Take messages, each with its position, its number of deliveries, and the Unix second of the first delivery."""
        with self.lock:
            batch: list[tuple[int, int, float]] = []
            while len(batch) < count and not self.returned.empty():
                batch.append(self.returned.get())
            start = self.cursor.value
            self.cursor.value = min(self.size, start + count - len(batch))
            now = time.time()
            return batch + [(position, 1, now) for position in range(start, self.cursor.value)]

    def settle(self, answered: int, returned: Sequence[tuple[int, int, float]]) -> None:
        """Remove the answered messages of a batch, and put back the returned ones."""
        with self.lock:
            self.unanswered.value -= answered
            for message in returned:
                self.returned.put(message)


@dataclass(slots=True)
class _Result:
    """What a worker measured."""

    began: float = 0.0
    received: dict[str, float] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    deliveries: int = 0
    invocations: list[float] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)


def _work(task: _Task, shared: _Queue, barrier: threading.Barrier, answer: Connection) -> None:
    """Run a worker process, and send its result or its traceback to the parent."""
    try:
        answer.send(_place_orders(task, shared, barrier))
    except Exception:
        # The parent must see every error.
        barrier.abort()
        answer.send(traceback.format_exc())


def _place_orders(task: _Task, shared: _Queue, barrier: threading.Barrier) -> _Result:
    os.environ.clear()
    os.environ.update(task.environment)
    os.environ["LANES"] = str(task.lanes)
    # Handlers should spend the time to write their logs, but nothing reads them.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    handler = contenders.load(task.contender.name).lambda_handler
    result = _Result()
    event = workloads.sqs_event([(workloads.warm_up_order(task.number), 1, time.time())])
    if handler(event, FakeContext("place_orders"))["batchItemFailures"]:
        raise UserError("a worker's warm-up order was returned")
    keep_exchanges(result.exchanges)
    barrier.wait(_READY_SECONDS)
    result.began = time.monotonic()
    end = result.began + task.window if task.window is not None else float("inf")
    while shared.unanswered.value > 0 and time.monotonic() < end:
        batch = shared.take(task.contender.batch)
        if batch:
            _invoke(handler, batch, task, shared, result)
        else:
            time.sleep(0.001)
    return result


def _invoke(
    handler: Any,
    batch: Sequence[tuple[int, int, float]],
    task: _Task,
    shared: _Queue,
    result: _Result,
) -> None:
    event = workloads.sqs_event(
        [(task.bodies[position][1], deliveries, first) for position, deliveries, first in batch]
    )
    began = time.monotonic()
    for position, deliveries, _ in batch:
        if deliveries == 1:
            result.received[task.bodies[position][0]] = began
    try:
        failures = handler(event, FakeContext("place_orders"))["batchItemFailures"]
        failed = {int(failure["itemIdentifier"]) for failure in failures}
    except Exception:
        # Lambda also returns the whole batch of a failed invocation.
        failed = set(range(len(batch)))
    result.invocations.append(time.monotonic() - began)
    result.deliveries += len(batch)
    returned = []
    for place, (position, deliveries, first) in enumerate(batch):
        order_id = task.bodies[position][0]
        if place not in failed:
            result.acknowledged.add(order_id)
        elif deliveries == MAX_DELIVERIES:
            result.given_up.add(order_id)
        else:
            returned.append((position, deliveries + 1, first))
    shared.settle(len(batch) - len(returned), returned)


def keep_exchanges(exchanges: list[Exchange]) -> None:
    """Record every request of this process from now on. The requests are parsed after the measurement."""
    send = URLLib3Session.send

    def keeping(session: URLLib3Session, request: Any) -> Any:
        began = time.monotonic()
        response = None
        try:
            response = send(session, request)
            return response
        finally:
            exchanges.append(Exchange.of(request, response, began, time.monotonic()))

    URLLib3Session.send = keeping  # type: ignore[method-assign, assignment]


def _receive(pipe: Connection, give_up_at: float) -> _Result:
    """Receive the result of a worker.

    Raises:
        UserError: The worker failed.
    """
    if not pipe.poll(max(0.0, give_up_at - time.monotonic())):
        raise UserError("a benchmark worker did not finish")
    try:
        answer = pipe.recv()
    except EOFError:
        raise UserError("a benchmark worker died") from None
    if not isinstance(answer, _Result):
        raise UserError(f"a benchmark worker failed:\n\n{answer}")
    return answer


def _put_together(
    results: Sequence[_Result], tables: Mapping[str, str], window: float | None
) -> Observations:
    observed = Observations(
        Tally(tables["PRODUCTS_TABLE_NAME"], tables["ORDERS_TABLE_NAME"]),
        began=min(result.began for result in results),
        window=window,
    )
    for result in results:
        observed.received |= result.received
        observed.given_up |= result.given_up
        observed.deliveries += result.deliveries
        observed.invocations += result.invocations
        for exchange in result.exchanges:
            observed.tally.add(exchange)
    return observed
