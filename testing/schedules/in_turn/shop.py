"""A shop in memory: its tables and queues, its time, its workers, and the handlers that serve it.

with Shop().open() as shop:
shop.list("tea", 5)
assert shop.order("o-1", tea=2) is Outcome.APPLIED
assert shop.stock("tea") == 3
shop.send("OrderCommand", {"action": "cancel", "orderId": "o-1"})
assert shop.deliver("OrderCommand") == 0
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import cache, cached_property
from types import ModuleType
from typing import Any, Self
from unittest.mock import patch

import boto3

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.change import Change
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import NewProduct, Product
from inventory_orders.domain.record import OrderRecord, Record, RecordKey
from inventory_orders.engine.loop import Engine
from inventory_orders.engine.outcomes import CommitReport
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import Outcome
from inventory_orders.invocation import runtime
from inventory_orders.lanes.source import engine_with_lanes
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store
from inventory_orders.store.rows import (
    adjustment_row,
    decode,
    encode,
    key_of,
    order_row,
    product_row,
    read_product,
    read_record,
)
from inventory_orders.store.tables import INDEXES, KEYS, Table
from operations.aws import Aws
from operations.books import Account, add_up
from operations.dead_letters import DeadLetter, peek_dead_letters
from operations.lanes import read_pages
from testing.aws import Consumed, Item, Queue, SimulatedAws, answered_directly_by, in_wire_format
from testing.aws import Table as SimulatedTable
from testing.aws.values import size_of_item
from testing.world.clock import ManualClock, virtual_time
from testing.world.clocks import WrongClock
from testing.world.events import event_of_received
from testing.world.handlers import FakeContext, function_names, load_handler
from testing.world.streams import FakeBridge
from testing.world.tables import (
    FEEDS,
    NAMES,
    UNDELIVERABLE,
    creation,
    queue_settings,
    settings,
)

INVOCATION_SECONDS = 23.0
CALL_SECONDS = 0.01
MAX_RECEIVE_COUNT = 1000


@cache
def client() -> Any:
    """Create a DynamoDB client, or return the cached one."""
    return boto3.client("dynamodb", config=CLIENT_CONFIG)


session = cache(boto3.Session)
"""Creates a session once: each new one would load botocore's handlers again."""


class Shop:
    """A shop in memory. A simulated AWS answers its clients, workers and handlers, and its time is virtual.

    Args:
        products: The products that it sells when it opens.
        clock: Its clock; by default, a new one.

    Attributes:
        clock: Its clock, which advances when code sleeps, and a little with each call.
        aws: Its tables and queues.
        bus: The event bus that it publishes to.
        store: Its tables, as the service reads and writes them.
        before: Called with each operation and its request. It may raise an error, or return the answer.
        calls: The operations that have been called so far.
        call_seconds: How long each call takes.
        queues: The queues that feed functions, and their dead-letter queues: `Order`, `OrderDeadLetter`, ...
    """

    call_seconds = CALL_SECONDS

    def __init__(
        self, products: Sequence[NewProduct] = (), clock: ManualClock | None = None
    ) -> None:
        self.clock = clock or ManualClock()
        self.aws = SimulatedAws(self.clock.now)
        self.bus = FakeBridge(self.clock)
        self.store = Store(client(), NAMES)
        self.before: Callable[[str, Any], Any] = lambda operation, request: None
        self.calls: list[str] = []
        self._products = tuple(products)
        self._chance = random.Random(0)
        self._functions = _Functions(self)
        self.reset()

    def reset(self) -> None:
        """Reset tables and queues to their state when the shop opens."""
        self.aws.dynamodb.tables = {
            name: replace(
                table,
                items={key: dict(item) for key, item in table.items.items()},
                consumed=Consumed(),
            )
            for name, table in _tables(self._products).items()
        }
        sqs = self.aws.sqs
        self.queues: dict[str, Queue] = {}
        for name, feed in FEEDS.items():
            dead_letters = self.queues[f"{name}DeadLetter"] = sqs.create(feed.dead_letters)
            self.queues[name] = sqs.create(
                feed.queue,
                dead_letters=dead_letters,
                max_receive_count=MAX_RECEIVE_COUNT,
                content_based=True,
            )
        sqs.create(UNDELIVERABLE)

    @contextmanager
    def open(self) -> Iterator[Self]:
        """Answer the AWS clients of this process in virtual time, and set the handlers' environment variables."""
        with ExitStack() as stack:
            enter = stack.enter_context
            enter(virtual_time(self.clock))
            enter(answered_directly_by(self.answer))
            enter(patch.dict(os.environ, settings(self.urls)))
            enter(patch.object(runtime, "process", self._functions.process))
            # Threads would not wait in virtual time.
            enter(patch.object(runtime, "executor", return_value=None))
            runtime.client.cache_clear()
            stack.callback(runtime.client.cache_clear)
            self.restart()
            yield self

    def caller(self) -> object:
        """The id of the calling thread. Each thread has its own Lambda processes."""
        return threading.get_ident()

    @property
    def urls(self) -> dict[str, str]:
        """The URLs of its queues, by name."""
        return {name: queue.url for name, queue in self.aws.sqs.queues.items()}

    # ------------------------------------------------------------------ requests and faults

    def answer(self, service: str, operation: str, request: dict[str, Any]) -> Any:
        """Answer a request."""
        self.clock.advance(self.call_seconds)
        self.calls.append(operation)
        answer = self.before(operation, request)
        if answer is not None:
            return answer
        if service == "events":
            return self.bus.put_events(**request)
        return self.aws.answer(service, operation, request)

    def on(
        self,
        operation: str,
        action: Callable[[Any], Any],
        when: Callable[[Any], bool] = lambda request: True,
    ) -> None:
        """Run `action` before each call of an operation whose request meets a condition; "" means all operations.

        If `action` returns a value other than None, this value is the answer.
        """

        def before(called: str, request: Any) -> Any:
            return action(request) if operation in (called, "") and when(request) else None

        self.before = before

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

    # ------------------------------------------------------------------ products, orders and rows

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
        created_at = self.row(product_id)["createdAt"]["S"]
        self.products.delist(product_id, created_at, self.soon())

    def order(self, order_id: str, hold_seconds: int | None = None, **units: int) -> Outcome:
        """Let a worker place an order."""
        return self.do(Order(order_id, "u", units, hold_seconds=hold_seconds))[0]

    def do(self, *changes: Change) -> Sequence[Outcome]:
        """Let a worker without a lane apply changes."""
        return [outcome.kind for outcome in self.commit(self.worker(), *changes).outcomes]

    @property
    def products(self) -> ProductCatalogue:
        """The shop's catalogue."""
        return ProductCatalogue(RetryingClient(self.store))

    def items(self, table: Table) -> dict[tuple[str, ...], Item]:
        """The items of a table, by key."""
        return self.aws.dynamodb.tables[table.value].items

    def edit(self, table: Table, *key: str, **attributes: Any) -> None:
        """Set attributes of an item, as another program might. Creates the item if there is none."""
        names = {name: {"S": value} for name, value in zip(KEYS[table], key, strict=True)}
        item = {**names, **self.items(table).get(key, {}), **attributes}
        self.aws.dynamodb.answer("PutItem", {"TableName": table.value, "Item": item})

    def item(self, table: Table, *key: str) -> Item | None:
        """An item as stored; None if there is none."""
        return self.items(table).get(key)

    def write(self, table: Table, *rows: Mapping[str, Any]) -> None:
        """Write rows directly, bypassing all checks."""
        for row in rows:
            key = tuple(row[name] for name in KEYS[table])
            self.items(table)[key] = in_wire_format(encode(row))

    def put(self, *products: Product) -> None:
        """Write products directly, bypassing all checks."""
        self.write(Table.PRODUCTS, *map(product_row, products))

    def put_record(self, *records: Record) -> None:
        """Write orders or adjustments directly, bypassing all checks."""
        for record in records:
            row = order_row(record) if isinstance(record, OrderRecord) else adjustment_row(record)
            self.write(key_of(record.key)[0], row)

    def product(self, product_id: str) -> Product:
        """A product as stored."""
        return read_product(self.row(product_id))

    def record(self, key: RecordKey) -> Any:
        """An order or an adjustment as stored; None if there is none."""
        table, values = key_of(key)
        item = self.item(table, *values)
        return None if item is None else read_record(item)

    def row(self, product_id: str) -> Item:
        """A product's row."""
        return dict(self.items(Table.PRODUCTS)[product_id,])

    def size(self, product_id: str) -> int:
        """Bytes of a product's row."""
        return size_of_item(self.row(product_id))

    def stock(self, product_id: str) -> int:
        """Units in a product's row."""
        return int(self.row(product_id)["stockCount"]["N"])

    def order_row(self, order_id: str) -> dict[str, Any]:
        """An order's row, decoded."""
        return decode(self.items(Table.ORDERS)[order_id,])

    def status(self, order_id: str) -> str | None:
        """The status of an order; None if there is none."""
        found = self.items(Table.ORDERS).get((order_id,))
        return None if found is None else found["status"]["S"]

    def unexplained(self) -> dict[str, int]:
        """By product, the first difference between its units (available, on hand, committed) and its records, or 0."""
        return {
            account.product_id: next(filter(None, account.differences), 0)
            for account in self.accounts()
        }

    def accounts(self) -> Sequence[Account]:
        """The shop's books, as an audit reads them."""
        rows = [
            [decode(item) for item in self.items(table).values()]
            for table in (Table.PRODUCTS, Table.STOCK_ADJUSTMENTS, Table.ORDERS)
        ]
        with answered_directly_by(self.aws.answer):
            pages = read_pages(self.stack)
        return add_up(rows[0], rows[1], rows[2], pages)

    # ------------------------------------------------------------------ workers

    def worker(self, off: float = 0.0, lanes: int = 0) -> Engine:
        """An engine whose clock is off by a few seconds."""
        policy = RetryPolicy(random=self._chance.random)
        return engine_with_lanes(self.store, policy, WrongClock(off), lanes=lanes)

    def commit(
        self, worker: Engine, *changes: Change, seconds: float = INVOCATION_SECONDS
    ) -> CommitReport:
        """Let a worker apply changes."""
        return worker.apply(changes, Deadline.after(seconds, worker.client.clock))

    def soon(self, seconds: float = INVOCATION_SECONDS) -> Deadline:
        """The deadline of an invocation that begins now."""
        return Deadline.after(seconds, SystemClock())

    # ------------------------------------------------------------------ queues and handlers

    def restart(self, **variables: str) -> None:
        """Let the next invocations run in new processes, with these environment variables."""
        self._functions.forget()
        os.environ.update(variables)

    def handler(self, function: str) -> ModuleType:
        """The handler of a function."""
        return self._functions.handler(function)

    def environment(self, function: str) -> Mapping[str, str]:
        """The environment variables of a function, in addition to this process's."""
        return ChainMap(queue_settings(function, self.urls), os.environ)

    def process(self, function: str) -> runtime.Process:
        """The process of a function."""
        return self._functions.process_of(function)

    def invoke(self, function: str, event: Any, seconds: float = 30.0) -> Any:
        """Invoke a function, and return its answer."""
        handler = self.handler(function)
        # The logger keeps the output stream of its first process.
        handler.logger.registered_handler.stream = sys.stdout
        return handler.lambda_handler(event, FakeContext(function, seconds))

    def send(self, queue: str, *bodies: Any) -> None:
        """Send messages. A body that is not a string is encoded as JSON."""
        for body in bodies:
            text = body if isinstance(body, str) else json.dumps(body)
            request = {"QueueUrl": self.queues[queue].url, "MessageBody": text}
            self.aws.sqs.answer("SendMessage", request)

    def deliver(
        self, queue: str, change: Callable[[Sequence[Any]], Sequence[Any]] = lambda records: records
    ) -> int:
        """Deliver up to ten visible messages of a queue to its function. Returns how many the function returned."""
        source = self.queues[queue]
        received = self.aws.sqs.answer(
            "ReceiveMessage",
            {
                "QueueUrl": source.url,
                "MaxNumberOfMessages": 10,
                "MessageSystemAttributeNames": ["All"],
                "MessageAttributeNames": ["All"],
            },
        )
        event = event_of_received(received.get("Messages", ()), source.arn)
        event["Records"] = change(event["Records"])
        if not event["Records"]:
            return 0
        answer = self.invoke(FEEDS[queue].function, event)
        returned = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        for record in event["Records"]:
            if record["messageId"] not in returned:
                handle = {"QueueUrl": source.url, "ReceiptHandle": record["receiptHandle"]}
                self.aws.sqs.answer("DeleteMessage", handle)
        return len(returned)

    def waiting(self, queue: str) -> Sequence[str]:
        """The bodies of the messages that are visible in a queue."""
        messages = self.queues[queue].messages
        return [message.body for message in messages if message.visible_at <= self.clock.now()]

    def dead_letters(self, queue: str) -> Sequence[DeadLetter]:
        """The dead letters of a queue, without removing them."""
        return peek_dead_letters(self.stack.sqs, self.queues[f"{queue}DeadLetter"].url, 100)

    # ------------------------------------------------------------------ operators

    @cached_property
    def stack(self) -> Aws:
        """The shop in the form of a stack, for operators' commands."""
        return self.stack_with()

    def stack_with(self, **more: Any) -> Aws:
        """The shop in the form of a stack, for operators' commands, with further attributes."""
        outputs = {f"{table.value}TableName": name for table, name in NAMES.items()}
        outputs |= {"EventBusName": "Bus", "OrderLocations": '[""]'}
        for name, url in self.urls.items():
            outputs[f"{name.removesuffix('.fifo')}Url"] = url
        for name in function_names():
            outputs[f"{name.title().replace('_', '')}FunctionName"] = name
        of_shop = session("test", "test", region_name="us-east-1")
        nothing: Any = None
        functions: Any = self._functions
        return Aws(outputs, of_shop, client(), of_shop.client("sqs"), nothing, functions, **more)


def open_shop(products: Sequence[NewProduct] = ()) -> AbstractContextManager[Shop]:
    """Open a shop with these products, which answers the AWS clients of this process."""
    return Shop(products).open()


@cache
def _tables(products: tuple[NewProduct, ...]) -> Mapping[str, SimulatedTable]:
    """Create the tables of a shop that opens with these products, as the service itself would write them."""
    clock = ManualClock()
    aws = SimulatedAws(clock.now)
    for table, name in NAMES.items():
        request = creation(name, KEYS[table], INDEXES.get(table, ()))
        aws.dynamodb.answer("CreateTable", request)
    with virtual_time(clock), answered_directly_by(aws.answer):
        catalogue = ProductCatalogue(RetryingClient(Store(client(), NAMES)))
        for product in products:
            catalogue.create(product, Deadline.after(10, SystemClock()))
    return aws.dynamodb.tables


class _Functions:
    """A stand-in for Lambda that runs invocations immediately, with one process for each function and caller."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._handlers: dict[str, ModuleType] = {}
        self._processes: dict[tuple[object, str], runtime.Process] = {}
        self._last: dict[object, str] = {}

    def forget(self) -> None:
        """End all processes."""
        self._handlers.clear()
        self._processes.clear()

    def handler(self, function: str) -> ModuleType:
        self._last[self._shop.caller()] = function
        if function not in self._handlers:
            self._handlers[function] = load_handler(function)
        return self._handlers[function]

    def process(self) -> runtime.Process:
        """The process of the function that this caller invoked last."""
        return self.process_of(self._last.get(self._shop.caller(), "api"))

    def process_of(self, function: str) -> runtime.Process:
        key = self._shop.caller(), function
        if key not in self._processes:
            self._processes[key] = runtime.Process(self._shop.environment(function))
        return self._processes[key]

    def invoke(self, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        """Answer as Lambda does."""
        name = FunctionName.partition(":")[0]
        answer = self._shop.invoke(name, json.loads(Payload))
        return {"Payload": io.BytesIO(json.dumps(answer).encode())}
