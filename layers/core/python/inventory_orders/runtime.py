"""What a handler runs with: its settings from the environment, and the objects made from them once a process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import boto3

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.committer import Committer
from inventory_orders.errors import ConfigurationError
from inventory_orders.intake import Intake, Queue
from inventory_orders.model import Table
from inventory_orders.store import CLIENT_CONFIG, WORST_CASE_SECONDS_OF_ONE_CALL, Store

# A call that began just before the deadline may take its worst case; the rest is for answering the queue.
_RESERVED_SECONDS = WORST_CASE_SECONDS_OF_ONE_CALL + 3.0

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
        queue: `QUEUE_URL` and `DEAD_LETTER_QUEUE_URL`: what feeds the function, and where its poison goes.
        fifo_queue: `FIFO_QUEUE_URL` and `FIFO_DEAD_LETTER_QUEUE_URL`, where there is one.
    """

    products_table: str
    orders_table: str
    stock_adjustments_table: str
    queue: Queue
    fifo_queue: Queue | None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings.

        Raises:
            ConfigurationError: One is missing; names it.
        """
        values = os.environ if environment is None else environment

        def required(name: str) -> str:
            value = values.get(name, "")
            if not value:
                raise ConfigurationError(f"the environment variable {name} is not set")
            return value

        return cls(
            products_table=required("PRODUCTS_TABLE_NAME"),
            orders_table=required("ORDERS_TABLE_NAME"),
            stock_adjustments_table=required("STOCK_ADJUSTMENTS_TABLE_NAME"),
            queue=Queue(required("QUEUE_URL"), required("DEAD_LETTER_QUEUE_URL")),
            fifo_queue=(
                Queue(required("FIFO_QUEUE_URL"), required("FIFO_DEAD_LETTER_QUEUE_URL"))
                if values.get("FIFO_QUEUE_URL")
                else None
            ),
        )


@cache
def committer(settings: Settings) -> Committer:
    """The engine, on the tables that the settings name."""
    tables = {
        Table.PRODUCTS: settings.products_table,
        Table.ORDERS: settings.orders_table,
        Table.STOCK_ADJUSTMENTS: settings.stock_adjustments_table,
    }
    store = Store(boto3.client("dynamodb", config=CLIENT_CONFIG), tables)
    return Committer(store, executor=ThreadPoolExecutor(_SIDE_BY_SIDE))


@cache
def intake(settings: Settings) -> Intake:
    """The way in from the queues that the settings name."""
    client = boto3.client("sqs", config=CLIENT_CONFIG)
    return Intake(client, committer(settings), settings.queue, settings.fifo_queue)


def deadline(context: Any) -> Deadline:
    """When to stop starting work, so that everything can still be answered before the invocation times out."""
    left = context.get_remaining_time_in_millis() / 1000
    return Deadline.after(max(left - _RESERVED_SECONDS, left / 2), SystemClock())
