"""The settings of a handler, read once from its environment, and the objects that a process makes from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import boto3

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.errors import ConfigurationError
from inventory_orders.invocation import sqs
from inventory_orders.invocation.sqs import QueueSender, QueueUrls, SourceQueues
from inventory_orders.store.dynamodb import CLIENT_CONFIG, WORST_CASE_SECONDS_OF_ONE_CALL, Store
from inventory_orders.store.rows import Table

if TYPE_CHECKING:
    from inventory_orders.engine.committer import Committer
    from inventory_orders.holds.ending import SentHolds
    from inventory_orders.products.decrement import AtomicDecrement
    from inventory_orders.publishing.stock import StockWatch

T = TypeVar("T")

RESERVED_SECONDS = WORST_CASE_SECONDS_OF_ONE_CALL + 3.0
"""Seconds between the deadline and the end of an invocation: for the worst case of a call that began just before it, and
for answering the queue."""

# Chains of transactions in flight at once. A function of 1 GB has little more than half a CPU, and a transaction
# keeps it busy for 2 of its 10 ms or so.
_SIDE_BY_SIDE = 4


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """The environment variables that the stack gives to every function.

    Attributes:
        tables: The tables' names: `PRODUCTS_TABLE_NAME`, `ORDERS_TABLE_NAME`, `STOCK_ADJUSTMENTS_TABLE_NAME`,
            `ALLOTMENTS_TABLE_NAME`.
        lanes: `LANES`: at most so many lanes; 0 where it is absent.
        hold_seconds: `HOLD_SECONDS`: how long the stock of an order that says nothing is held without payment; None
            where it is absent.
        hold_grace_seconds: `HOLD_GRACE_SECONDS`: between the end of a hold and its expiry, for the functions that expire
            holds.
        queue: `QUEUE_URL` and `DEAD_LETTER_QUEUE_URL`: what feeds the function, and where its poison goes; None
            for a function without a queue.
        fifo_queue: `FIFO_QUEUE_URL` and `FIFO_DEAD_LETTER_QUEUE_URL`, where there is one.
        expiry_queue: `EXPIRY_QUEUE_URL` and `EXPIRY_DEAD_LETTER_QUEUE_URL`, where there is one.
        order_queue: `ORDER_QUEUE_URL`: where the function sends orders, if it does.
        event_bus: `EVENT_BUS_NAME`: for the function that publishes outcomes.
        stock_event_bus: `STOCK_EVENT_BUS_NAME`: for the sweep, if it publishes stock.
        undeliverable_events: `UNDELIVERABLE_EVENTS_QUEUE_URL`: where it parks what cannot be published.
        stream_mappings: `STREAM_MAPPINGS`: UUIDs of the event source mappings of that function, for the sweep.
    """

    tables: Mapping[Table, str]
    lanes: int
    hold_seconds: int | None
    queue: QueueUrls | None
    fifo_queue: QueueUrls | None
    expiry_queue: QueueUrls | None
    order_queue: str | None = None
    event_bus: str | None = None
    stock_event_bus: str | None = None
    undeliverable_events: str | None = None
    stream_mappings: tuple[str, ...] = ()
    hold_grace_seconds: int | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> RuntimeSettings:
        """Read the settings.

        Raises:
            ConfigurationError: One is missing or wrong; names it.
        """
        values = os.environ if environment is None else environment

        def required(name: str) -> str:
            value = values.get(name, "")
            if not value:
                raise ConfigurationError(f"the environment variable {name} is not set")
            return value

        def whole_number(name: str) -> int:
            value = values.get(name, "0")
            if not (value.isascii() and value.isdecimal()):
                raise ConfigurationError(
                    f"the environment variable {name} is {value!r}; it must be a whole number"
                )
            return int(value)

        def queue(prefix: str) -> QueueUrls | None:
            if not values.get(f"{prefix}QUEUE_URL"):
                return None
            return QueueUrls(
                required(f"{prefix}QUEUE_URL"), required(f"{prefix}DEAD_LETTER_QUEUE_URL")
            )

        return cls(
            tables={table: required(f"{table.name}_TABLE_NAME") for table in Table},
            lanes=whole_number("LANES"),
            hold_seconds=whole_number("HOLD_SECONDS") or None,
            queue=queue(""),
            fifo_queue=queue("FIFO_"),
            expiry_queue=queue("EXPIRY_"),
            order_queue=values.get("ORDER_QUEUE_URL"),
            event_bus=values.get("EVENT_BUS_NAME"),
            stock_event_bus=values.get("STOCK_EVENT_BUS_NAME"),
            undeliverable_events=values.get("UNDELIVERABLE_EVENTS_QUEUE_URL"),
            stream_mappings=tuple(values.get("STREAM_MAPPINGS", "").split()),
            hold_grace_seconds=(
                whole_number("HOLD_GRACE_SECONDS") if values.get("HOLD_GRACE_SECONDS") else None
            ),
        )


class Process:
    """An execution environment: what is made from its settings, once.

    Attributes:
        settings: Its settings.
    """

    def __init__(self, settings: RuntimeSettings) -> None:
        self.settings = settings

    @cached_property
    def store(self) -> Store:
        """The tables."""
        return Store(client("dynamodb", CLIENT_CONFIG), self.settings.tables)

    @cached_property
    def committer(self) -> Committer:
        """The engine."""
        from inventory_orders.engine.committer import Committer  # noqa: PLC0415 - not all functions need it

        return Committer(self.store, executor=executor(), lanes=self.settings.lanes)

    @cached_property
    def impatient_committer(self) -> Committer:
        """The engine that never waits: it returns whatever it cannot have at once."""
        from inventory_orders.engine.committer import Committer  # noqa: PLC0415

        return Committer(self.store, patient=False)

    @cached_property
    def atomic_decrement(self) -> AtomicDecrement:
        """Decrements without a read, with what this process remembers of the products."""
        from inventory_orders.products.decrement import AtomicDecrement  # noqa: PLC0415

        return AtomicDecrement(self.committer)

    @cached_property
    def sent_holds(self) -> SentHolds:
        """The holds that this process has sent lately."""
        from inventory_orders.holds import ending  # noqa: PLC0415 - the sweep alone pays for it

        return ending.SentHolds(ending.MAX_REMEMBERED)

    @cached_property
    def stock_watch(self) -> StockWatch:
        """What publishes stock."""
        from inventory_orders.engine.retrying_client import RetryingClient  # noqa: PLC0415 - only with `stockEvents`
        from inventory_orders.publishing import bus  # noqa: PLC0415
        from inventory_orders.publishing.stock import StockWatch  # noqa: PLC0415

        name = configured(self.settings.stock_event_bus, "STOCK_EVENT_BUS_NAME")
        return StockWatch(
            RetryingClient(self.store), bus.Bus(client("events", bus.CLIENT_CONFIG), name)
        )

    @cached_property
    def queues(self) -> SourceQueues:
        """The queues that feed the function."""
        queue = configured(self.settings.queue, "QUEUE_URL")
        return SourceQueues(client("sqs", sqs.CLIENT_CONFIG), queue, self.settings.fifo_queue)

    @cached_property
    def expiry_queues(self) -> SourceQueues:
        """The queue of holds that end."""
        queue = configured(self.settings.expiry_queue, "EXPIRY_QUEUE_URL")
        return SourceQueues(client("sqs", sqs.CLIENT_CONFIG), queue)

    @cached_property
    def order_queue(self) -> QueueSender:
        """The queue that the function sends orders to."""
        url = configured(self.settings.order_queue, "ORDER_QUEUE_URL")
        return QueueSender(client("sqs", sqs.CLIENT_CONFIG), url)

    @property
    def hold_grace_seconds(self) -> int:
        """Seconds between the end of a hold and its expiry."""
        return configured(self.settings.hold_grace_seconds, "HOLD_GRACE_SECONDS")


@cache
def process() -> Process:
    """This process, with the settings of its environment.

    Raises:
        ConfigurationError: One is missing or wrong; names it.
    """
    return Process(RuntimeSettings.from_environment())


def prepare(*names: str) -> None:
    """Make the store and other attributes of the process, when a handler is imported.

    Lambda imports a handler in its init phase, in which a function has more CPU than its memory gives it later, and
    making the clients takes longer than all the rest of a first batch. Sends nothing.

    Makes nothing where the environment lacks a setting, so that a handler can be imported anywhere; an invocation then
    says which one.
    """
    with suppress(ConfigurationError):
        for name in ("store", *names):
            getattr(process(), name)


def configured(value: T | None, variable: str) -> T:
    """A setting that some functions have and others do without.

    Raises:
        ConfigurationError: This one needs it, and the environment variable is not set.
    """
    if value is None:
        raise ConfigurationError(f"the environment variable {variable} is not set")
    return value


@cache
def executor() -> Executor | None:
    """The executor that runs reads and transactions side by side."""
    return ThreadPoolExecutor(_SIDE_BY_SIDE)


@cache
def client(service: Any, config: Any) -> Any:
    """A client of an AWS service, with a `botocore` Config."""
    return boto3.client(service, config=config)


def time_left(context: Any) -> Callable[[], float]:
    """Seconds until the invocation is ended."""

    def seconds() -> float:
        milliseconds: int = context.get_remaining_time_in_millis()
        return milliseconds / 1000

    return seconds


def deadline(context: Any) -> Deadline:
    """When to stop starting work, so that everything can still be answered before the invocation times out."""
    left = time_left(context)()
    return Deadline.after(max(left - RESERVED_SECONDS, left / 2), SystemClock())
