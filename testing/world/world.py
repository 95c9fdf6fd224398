"""The world of the service: its tables, queues, bus and clock, and warm processes of its functions, in memory.

A schedule in `testing.schedules` decides who moves next: it answers the processes' calls to AWS, at once or later, and
with which fault.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from functools import cache, cached_property
from types import ModuleType, SimpleNamespace
from typing import Any, Self
from unittest.mock import patch

import boto3

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.product import NewProduct, Product
from inventory_orders.domain.record import OrderRecord, Record, RecordKey
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.invocation import runtime
from inventory_orders.products.catalogue import ProductCatalogue
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
from operations.lanes import Pages, pages_of
from testing.aws import Consumed, Item, Queue, SimulatedAws, answered_directly_by, in_wire_format
from testing.aws import Table as SimulatedTable
from testing.world.clock import ManualClock, VirtualClock, virtual_time
from testing.world.handlers import FakeContext, function_names, load_handler
from testing.world.tables import (
    FEEDS,
    NAMES,
    UNDELIVERABLE,
    UNRECORDED,
    creation,
    queue_settings,
    settings,
)

INVOCATION_SECONDS = 23.0
"""Seconds within which an invocation begins new work."""
MAX_RECEIVE_COUNT = 1000


@cache
def session() -> boto3.Session:
    """Create a session once: each new one would load botocore's handlers again."""
    return boto3.Session("test", "test", region_name="us-east-1")


@cache
def client(service: Any = "dynamodb", config: Any = CLIENT_CONFIG) -> Any:
    """Create a client once: all worlds share it, because clients keep no data."""
    return session().client(service, config=config)


handler_of = cache(load_handler)
"""Imports a function's handler once. Handlers keep nothing from one invocation to the next, except in their process."""


class World:
    """A world in which each call to AWS is answered at once.

    Args:
        products: The products that are listed at the start.
        clock: Its clock; by default, a new one.

    Attributes:
        clock: Its clock, which advances when code sleeps.
        aws: Its tables, queues and bus.
        store: Its tables, as the service reads and writes them.
        queues: The queues that feed functions, and their dead-letter queues: `Order`, `OrderDeadLetter`, ...
        variables: The environment variables of all functions.
    """

    clock: VirtualClock
    visibility = 30.0
    """Seconds for which received messages are hidden."""
    answered_by = staticmethod(answered_directly_by)
    """How clients are connected to the world."""

    def __init__(
        self, products: Sequence[NewProduct] = (), clock: VirtualClock | None = None
    ) -> None:
        self.clock = clock or ManualClock()
        self.aws = SimulatedAws(self.clock.now)
        self.store = Store(client(), NAMES)
        self.variables: dict[str, str] = {}
        self._products = tuple(products)
        self._processes: dict[tuple[object, str], runtime.Process] = {}
        self._invoked: dict[object, str] = {}
        self.reset()

    def reset(self) -> None:
        """Reset tables and queues to their state at the start."""
        self.aws.dynamodb.tables = {
            name: replace(
                table,
                items={key: dict(item) for key, item in table.items.items()},
                consumed=Consumed(),
            )
            for name, table in _tables(self._products).items()
        }
        create = self.aws.sqs.create
        self.queues: dict[str, Queue] = {}
        for name, feed in FEEDS.items():
            dead = self.queues[f"{name}DeadLetter"] = create(feed.dead_letters)
            self.queues[name] = create(
                feed.queue, self.visibility, dead, MAX_RECEIVE_COUNT, content_based=True
            )
        create(UNDELIVERABLE)
        create(UNRECORDED)

    @contextmanager
    def open(self) -> Iterator[Self]:
        """Answer the AWS clients of this process, in virtual time."""
        with ExitStack() as stack:
            enter = stack.enter_context
            enter(virtual_time(self))
            enter(self.answered_by(self.answer))
            enter(patch.object(runtime, "process", self.process))
            enter(patch.object(runtime, "executor", self.executor))
            enter(patch.object(runtime, "client", client))
            self.restart()
            yield self

    # ------------------------------------------------------------------ who moves

    def answer(self, service: str, operation: str, request: dict[str, Any]) -> Any:
        """Answer a request."""
        return self.aws.answer(service, operation, request)

    def now(self) -> float:
        """Unix seconds."""
        return self.clock.now()

    def sleep(self, seconds: float) -> None:
        """Let the caller wait."""
        self.clock.sleep(seconds)

    def caller(self) -> object:
        """The caller, which has its own processes. By default, each thread is a caller."""
        return threading.get_ident()

    # ------------------------------------------------------------------ rows

    def items(self, table: str) -> MutableMapping[tuple[str, ...], Item]:
        """The items of a table, by key."""
        return self.aws.dynamodb.tables[table].items

    def item(self, table: str, *key: str) -> Item | None:
        """An item as stored; None if there is none."""
        return self.items(table).get(key)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table."""
        return [decode(item) for item in self.items(table).values()]

    def row(self, table: str, *key: str) -> dict[str, Any] | None:
        """A row; None if there is none."""
        item = self.item(table, *key)
        return None if item is None else decode(item)

    def edit(self, table: str, *key: str, **attributes: Any) -> None:
        """Set attributes of an item, as another program might. Creates the item if there is none."""
        names = {name: {"S": value} for name, value in zip(_keys(table), key, strict=True)}
        item = {**names, **self.items(table).get(key, {}), **attributes}
        self.aws.dynamodb.answer("PutItem", {"TableName": table, "Item": item})

    def write(self, table: str, *rows: Mapping[str, Any]) -> None:
        """Write rows directly, bypassing all checks."""
        for row in rows:
            key = tuple(row[name] for name in _keys(table))
            self.items(table)[key] = in_wire_format(encode(row))

    def put(self, *products: Product) -> None:
        """Write products directly, bypassing all checks."""
        self.write(Table.PRODUCTS, *map(product_row, products))

    def put_record(self, *records: Record) -> None:
        """Write orders or adjustments directly, bypassing all checks."""
        for record in records:
            row = order_row(record) if isinstance(record, OrderRecord) else adjustment_row(record)
            self.write(key_of(record.key)[0], row)

    def product(self, product_id: str = "p") -> Product:
        """A product as stored."""
        return read_product(self.items(Table.PRODUCTS)[product_id,])

    def record(self, key: RecordKey) -> Any:
        """An order or an adjustment as stored; None if there is none."""
        table, values = key_of(key)
        item = self.item(table, *values)
        return None if item is None else read_record(item)

    def stock(self, product_id: str = "p") -> int:
        """Units in a product's row."""
        return int(self.items(Table.PRODUCTS)[product_id,]["stockCount"]["N"])

    def order_row(self, order_id: str) -> dict[str, Any]:
        """An order's row."""
        return decode(self.items(Table.ORDERS)[order_id,])

    def status(self, order_id: str) -> str | None:
        """The status of an order; None if there is none."""
        found = self.item(Table.ORDERS, order_id)
        return None if found is None else found["status"]["S"]

    # ------------------------------------------------------------------ the books

    @property
    def products(self) -> ProductCatalogue:
        """The catalogue."""
        return ProductCatalogue(RetryingClient(self.store))

    def soon(self, seconds: float = INVOCATION_SECONDS) -> Deadline:
        """The deadline of an invocation that begins now."""
        return Deadline.after(seconds, SystemClock())

    def pages(self) -> Pages:
        """The pages of all lanes, and outbound pages."""
        return pages_of(map(_with_bytes, self.items(Table.ALLOTMENTS).values()))

    def accounts(self) -> Sequence[Account]:
        """The books, as an audit reads them."""
        adjustments = self.rows(Table.STOCK_ADJUSTMENTS)
        return add_up(self.rows(Table.PRODUCTS), adjustments, self.rows(Table.ORDERS), self.pages())

    def unexplained(self) -> dict[str, int]:
        """By product, the first difference between its units (available, on hand, committed) and its records, or 0."""
        return {
            account.product_id: next(filter(None, account.differences), 0)
            for account in self.accounts()
        }

    # ------------------------------------------------------------------ processes

    def restart(self, **variables: str) -> None:
        """Let the next invocations run in new processes, with these environment variables."""
        self._processes.clear()
        self.variables |= variables

    def executor(self) -> Executor | None:
        """The threads of the caller's process. By default there are none, because they would not wait in virtual time."""
        return None

    def process(self, function: str = "") -> runtime.Process:
        """The caller's process of a function; by default of the one that it invoked last."""
        caller = self.caller()
        function = function or self._invoked.get(caller, "api")
        if (caller, function) not in self._processes:
            variables = self.environment(function)
            self._processes[caller, function] = runtime.Process(variables)
        return self._processes[caller, function]

    def environment(self, function: str) -> dict[str, str]:
        """The environment variables of a function."""
        return settings(self.urls) | queue_settings(function, self.urls) | self.variables

    @property
    def urls(self) -> dict[str, str]:
        """The URLs of the queues, by name."""
        return {name: queue.url for name, queue in self.aws.sqs.queues.items()}

    def handler(self, function: str) -> ModuleType:
        """The handler of a function, which the caller is about to invoke."""
        self._invoked[self.caller()] = function
        return handler_of(function)

    def invoke(self, function: str, event: Any, seconds: float = 30.0) -> Any:
        """Invoke a function, and return its answer."""
        handler = self.handler(function)
        # The logger keeps the output stream of its first process.
        handler.logger.registered_handler.stream = sys.stdout
        return handler.lambda_handler(event, FakeContext(function, seconds))

    # ------------------------------------------------------------------ queues

    def send(self, queue: str, *bodies: Any, **more: Any) -> list[str]:
        """Send messages. A body that is not a string is encoded as JSON.

        Args:
            queue: Name of the queue.
            bodies: The messages.
            more: Further parameters of SendMessage.

        Returns:
            The ids of the messages.
        """
        ids = []
        for body in bodies:
            text = body if isinstance(body, str) else json.dumps(body)
            request = {"QueueUrl": self.queues[queue].url, "MessageBody": text, **more}
            ids.append(self.aws.sqs.answer("SendMessage", request)["MessageId"])
        return ids

    def poll(self, queue: Queue, most: int = 10) -> list[dict[str, Any]]:
        """Receive up to ten visible messages of a queue."""
        request: dict[str, Any] = {"QueueUrl": queue.url, "MaxNumberOfMessages": min(10, most)}
        request["MessageSystemAttributeNames"] = request["MessageAttributeNames"] = ["All"]
        messages: list[dict[str, Any]] = self.aws.sqs.answer("ReceiveMessage", request).get(
            "Messages", []
        )
        return messages

    def feed(self, queue: Queue, function: str, records: Sequence[Any]) -> set[str]:
        """Pass received messages to a function, and delete those that it does not return. Returns the ids of the others."""
        answer = self.invoke(function, {"Records": records})
        returned = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        self.delete(queue, (each for each in records if each["messageId"] not in returned))
        return returned

    def delete(self, queue: Queue, records: Iterable[Any]) -> None:
        """Delete received messages."""
        for record in records:
            handle = {"QueueUrl": queue.url, "ReceiptHandle": record["receiptHandle"]}
            self.aws.sqs.answer("DeleteMessage", handle)

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
        """The world in the form of a stack, for operators' commands."""
        return self.stack_with()

    def stack_with(self, **more: Any) -> Aws:
        """The world in the form of a stack, for operators' commands, with further attributes."""
        outputs = {f"{table.value}TableName": name for table, name in NAMES.items()}
        outputs |= {"EventBusName": "Bus", "OrderLocations": '[""]'}
        for name, url in self.urls.items():
            outputs[f"{name.removesuffix('.fifo')}Url"] = url
        for name in function_names():
            outputs[f"{name.title().replace('_', '')}FunctionName"] = name
        ours = session()
        nothing: Any = None
        functions: Any = SimpleNamespace(invoke=self._invoke_as_lambda)
        return Aws(outputs, ours, client(), ours.client("sqs"), nothing, functions, **more)

    def _invoke_as_lambda(self, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        answer = self.invoke(FunctionName.partition(":")[0], json.loads(Payload))
        return {"Payload": io.BytesIO(json.dumps(answer).encode())}


@contextmanager
def silent() -> Iterator[None]:
    """Discard all output and logs."""
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(io.StringIO()))
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        yield


def _with_bytes(item: Item) -> Item:
    """An item as the SDK returns it. The simulated table stores binary values in their wire format."""
    return {k: {"B": b64decode(v["B"])} if "B" in v else v for k, v in item.items()}


def _keys(table: str) -> Sequence[str]:
    return KEYS[Table(table)]


@cache
def _tables(products: tuple[NewProduct, ...]) -> Mapping[str, SimulatedTable]:
    """Create the tables of a world that begins with these products, as the service itself would write them."""
    clock = ManualClock()
    aws = SimulatedAws(clock.now)
    for table, name in NAMES.items():
        aws.dynamodb.answer("CreateTable", creation(name, KEYS[table], INDEXES.get(table, ())))
    with virtual_time(clock), answered_directly_by(aws.answer):
        catalogue = ProductCatalogue(RetryingClient(Store(client(), NAMES)))
        for product in products:
            catalogue.create(product, Deadline.after(10, SystemClock()))
    return aws.dynamodb.tables
