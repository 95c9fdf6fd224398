"""What a handler runs with: its settings from the environment, and the objects made from them once a process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import boto3

from inventory_orders import intake as queue_intake
from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.committer import Committer, Report
from inventory_orders.decrement import AtomicDecrement
from inventory_orders.errors import ConfigurationError
from inventory_orders.intake import (
    BatchResult,
    Intake,
    Queue,
    UnsupportedEventError,
    Verdict,
    unsupported,
)
from inventory_orders.model import Change, RefusalReason, Table
from inventory_orders.store import CLIENT_CONFIG, WORST_CASE_SECONDS_OF_ONE_CALL, Store

C = TypeVar("C", bound=Change)

RESERVED_SECONDS = WORST_CASE_SECONDS_OF_ONE_CALL + 3.0
"""What is left of an invocation after its deadline: a call that began just before it may take its worst case, and the
rest is for answering the queue."""

# Chains of transactions in flight at once. A function of 1 GB has little more than half a CPU, and a transaction
# keeps it busy for 2 of its 10 ms or so.
_SIDE_BY_SIDE = 4


@dataclass(frozen=True, slots=True)
class Settings:
    """The environment variables that the stack gives to every function.

    Attributes:
        products_table: `PRODUCTS_TABLE_NAME`.
        orders_table: `ORDERS_TABLE_NAME`.
        stock_adjustments_table: `STOCK_ADJUSTMENTS_TABLE_NAME`.
        queue: `QUEUE_URL` and `DEAD_LETTER_QUEUE_URL`: what feeds the function, and where its poison goes; None
            for a function without a queue.
        fifo_queue: `FIFO_QUEUE_URL` and `FIFO_DEAD_LETTER_QUEUE_URL`, where there is one.
        max_receive_count: `MAX_RECEIVE_COUNT`: deliveries after which SQS gives a message up.
    """

    products_table: str
    orders_table: str
    stock_adjustments_table: str
    queue: Queue | None
    fifo_queue: Queue | None
    max_receive_count: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
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

        def queue(prefix: str) -> Queue | None:
            if not values.get(f"{prefix}QUEUE_URL"):
                return None
            return Queue(required(f"{prefix}QUEUE_URL"), required(f"{prefix}DEAD_LETTER_QUEUE_URL"))

        receive_count = values.get("MAX_RECEIVE_COUNT", "20")
        if not receive_count.isdecimal():
            raise ConfigurationError(f"MAX_RECEIVE_COUNT is {receive_count!r}, not a number")
        return cls(
            products_table=required("PRODUCTS_TABLE_NAME"),
            orders_table=required("ORDERS_TABLE_NAME"),
            stock_adjustments_table=required("STOCK_ADJUSTMENTS_TABLE_NAME"),
            queue=queue(""),
            fifo_queue=queue("FIFO_"),
            max_receive_count=int(receive_count),
        )


@cache
def store(settings: Settings) -> Store:
    """The tables that the settings name."""
    tables = {
        Table.PRODUCTS: settings.products_table,
        Table.ORDERS: settings.orders_table,
        Table.STOCK_ADJUSTMENTS: settings.stock_adjustments_table,
    }
    return Store(boto3.client("dynamodb", config=CLIENT_CONFIG), tables)


@cache
def committer(settings: Settings) -> Committer:
    """The engine, on the tables that the settings name."""
    return Committer(store(settings), executor=executor())


@cache
def executor() -> Executor | None:
    """What runs reads and transactions side by side."""
    return ThreadPoolExecutor(_SIDE_BY_SIDE)


@cache
def atomic_decrement(settings: Settings) -> AtomicDecrement:
    """Decrements without a read, with what this process remembers of the products."""
    return AtomicDecrement(committer(settings))


@cache
def intake(settings: Settings) -> Intake:
    """The way in from the queues that the settings name.

    Raises:
        ConfigurationError: They name none.
    """
    if settings.queue is None:
        raise ConfigurationError("the environment variable QUEUE_URL is not set")
    client = boto3.client("sqs", config=queue_intake.CLIENT_CONFIG)
    return Intake(client, settings.queue, settings.fifo_queue, settings.max_receive_count)


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


def answer_queue(
    event: object,
    context: Any,
    parse: Callable[[str, str | None], C],
    id_reused_code: str,
    record: Callable[[BatchResult[C], Report], None],
    may_be_early: frozenset[RefusalReason] = frozenset(),
) -> dict[str, Any]:
    """Bring a batch of queued changes of stock to its end: what the queue handlers have in common.

    Args:
        event: What Lambda was invoked with.
        context: What Lambda told about the invocation.
        parse: Reads one message. Raises PoisonMessageError.
        id_reused_code: `errorCode` of a message whose id belongs to another request.
        record: Counts and logs what happened.
        may_be_early: Refusals that are given up only at the last delivery, because what they lack may yet come.

    Returns:
        The partial batch response: `{"batchItemFailures": [{"itemIdentifier": ...}]}`. For an event that is no
        batch of SQS messages `errorCode` and `errorMessage`, and nothing is done.
    """
    settings = Settings.from_environment()
    reports: list[Report] = []

    def decide(changes: Sequence[C], since: float | None) -> list[Verdict]:
        now = SystemClock().now().timestamp()
        age = max(0.0, now - since) if since is not None else 0.0
        report, verdicts = queue_intake.decide_changes(
            committer(settings), changes, deadline(context), age, id_reused_code, may_be_early
        )
        reports.append(report)
        return verdicts

    try:
        batch = intake(settings).process(event, parse, decide, time_left(context), may_be_early)
    except UnsupportedEventError as error:
        return unsupported(error, event)
    record(batch, *reports)
    return batch.response
