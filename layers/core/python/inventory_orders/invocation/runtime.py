"""The basics of every handler: its settings, objects created from them, deadlines, and answers to events of the wrong kind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import cache, cached_property, wraps
from typing import TYPE_CHECKING, Any

import boto3

from inventory_orders.clock import Deadline, SystemClock, timestamp
from inventory_orders.domain.location import DEFAULT_LOCATION
from inventory_orders.errors import ConfigurationError, UnsupportedEventError
from inventory_orders.invocation import sqs
from inventory_orders.store.dynamodb import (
    ALWAYS_CONSISTENT,
    CLIENT_CONFIG,
    WORST_CASE_SECONDS_OF_ONE_CALL,
    Store,
)
from inventory_orders.store.tables import Table

if TYPE_CHECKING:
    from inventory_orders.domain.order_command import Terms
    from inventory_orders.engine.loop import Engine
    from inventory_orders.engine.retrying_client import RetryingClient
    from inventory_orders.invocation.telemetry import Door
    from inventory_orders.publishing.publisher import Bus

RESERVED_SECONDS = WORST_CASE_SECONDS_OF_ONE_CALL + 3.0
"""Seconds between the deadline and the end of an invocation. A call that starts just before the deadline has to end in them, and
SQS has to be answered."""


class Process:
    """An execution environment of a function: its settings, and objects that are created from them once.

    The settings are environment variables. Each is read when it is first needed, so a function needs only its own settings.

    Args:
        environment: The environment variables, which `infra/functions.py` explains.

    Attributes:
        express_seconds: How long orders in the express queue take until they can be read, as far as known.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.express_seconds = 0.2

    def _text(self, variable: str) -> str:
        """Read a setting.

        Raises:
            ConfigurationError: The setting is missing. The message names it.
        """
        value = self._environment.get(variable)
        if not value:
            raise ConfigurationError(f"the environment variable {variable} is not set")
        return value

    def _whole_number(self, variable: str, default: str | None = None) -> int:
        """Read a setting that is a whole number.

        Raises:
            ConfigurationError: The setting is not a whole number, or it is missing and has no default. The message names it.
        """
        value = (
            self._text(variable) if default is None else self._environment.get(variable, default)
        )
        if not (value.isascii() and value.isdecimal()):
            raise ConfigurationError(
                f"the environment variable {variable} is {value!r}; it must be a whole number"
            )
        return int(value)

    def _queue(self, prefix: str, *, feeds: bool = True) -> sqs.Queue:
        """Create a queue from its settings. Queues that feed the function also have a dead-letter queue."""
        url = self._text(f"{prefix}QUEUE_URL")
        dead_letter_url = self._text(f"{prefix}DEAD_LETTER_QUEUE_URL") if feeds else ""
        return sqs.Queue(client("sqs", sqs.CLIENT_CONFIG), url, dead_letter_url)

    @cached_property
    def hold_seconds(self) -> int | None:
        """For how many seconds an order without `holdSeconds` holds stock until it is paid; None for no limit."""
        return self._whole_number("HOLD_SECONDS", "0") or None

    @cached_property
    def locations(self) -> tuple[str, ...]:
        """The locations that serve an order without `locations`, in order of preference."""
        return tuple(self._environment.get("LOCATIONS", DEFAULT_LOCATION).split(","))

    @cached_property
    def counts_users(self) -> bool:
        """Whether an order without `buyers` counts towards the purchase limits of its user."""
        return self._environment.get("BUYERS_DEFAULT") != "none"

    @property
    def terms(self) -> Terms:
        """What the stage decides about amends, and about hand-overs that are taken back now."""
        from inventory_orders.domain.order_command import Terms  # noqa: PLC0415 - not all functions change orders

        return Terms(
            *(self.locations, self.counts_users),
            amends_paid="AMEND_PAID" in self._environment,
            since=timestamp(SystemClock().now() - timedelta(hours=24)),
        )

    @property
    def customers_may_amend(self) -> bool:
        """Whether customers may amend their own orders until they are paid."""
        return "CUSTOMERS_MAY_AMEND" in self._environment

    @cached_property
    def user_id_claim(self) -> str | None:
        """The claim of a token that names its user; None if tokens are not accepted."""
        return self._environment.get("USER_ID_CLAIM")

    @cached_property
    def operators_claim(self) -> tuple[str, str]:
        """Name and value of the claim that makes the bearer of a token an operator, both empty if there is no such claim."""
        return (
            self._environment.get("OPERATORS_CLAIM_NAME", ""),
            self._environment.get("OPERATORS_CLAIM_VALUE", ""),
        )

    @cached_property
    def roles(self) -> Mapping[str, Any]:
        """The setting `roles`: the claims with a token's roles, locations and name, and the permissions of each role."""
        return dict(json.loads(self._environment.get("ROLES", '{"claim": "", "grants": {}}')))

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """The facts about the stage that its staff are shown: `stage`, `production` and `currency`."""
        return dict(json.loads(self._text("ABOUT")))

    @cached_property
    def customers_may_set(self) -> tuple[str, ...]:
        """The fields of an order that customers may set, in addition to those that every order has."""
        return tuple(self._environment.get("CUSTOMERS_MAY_SET", "").split(","))

    @cached_property
    def shows_numbers(self) -> bool:
        """Whether customers see the number of units. By default, they only see whether a product is available."""
        return self._environment.get("SHOW_STOCK") == "numbers"

    @cached_property
    def hold_grace_seconds(self) -> int:
        """Seconds to wait after the end of a hold before the order expires."""
        return self._whole_number("HOLD_GRACE_SECONDS")

    @cached_property
    def sweep_seconds(self) -> int:
        """Seconds between two sweeps."""
        return 60 * self._whole_number("SWEEP_MINUTES")

    @cached_property
    def stream_mappings(self) -> Mapping[str, Sequence[str]]:
        """UUIDs of the event source mappings that read the tables' streams, by what happens to the changes; empty if nothing does."""
        return {
            "published": self._environment.get("STREAM_MAPPINGS", "").split(),
            "noted for the desk": self._environment.get("CHANGE_MAPPINGS", "").split(),
        }

    @cached_property
    def movement_mapping(self) -> list[str]:
        """UUID of the event source mapping through which movements are recorded; empty if none are."""
        return self._environment.get("MOVEMENT_MAPPING", "").split()

    @cached_property
    def store(self) -> Store:
        """The tables in DynamoDB."""
        return self._store(ALWAYS_CONSISTENT)

    def _store(self, consistent: Collection[Table]) -> Store:
        names = {
            table: self._text(f"{table.name}_TABLE_NAME")
            for table in Table
            if table is not Table.MOVEMENTS or self.has_movements
        }
        return Store(client("dynamodb"), names, consistent)

    @property
    def has_movements(self) -> bool:
        """Whether the stage records movements."""
        return "MOVEMENTS_TABLE_NAME" in self._environment

    @property
    def notes_changes(self) -> bool:
        """Whether the stage notes for its desk which orders and products changed."""
        return "NOTES_CHANGES" in self._environment

    @cached_property
    def eventual_client(self) -> RetryingClient:
        """The client that reads products with eventual consistency and at half the cost: for customers, and for lists."""
        from inventory_orders.engine.retrying_client import RetryingClient  # noqa: PLC0415 - not all functions need it

        return RetryingClient(self._store(()), executor=executor())

    @cached_property
    def engine(self) -> Engine:
        """The engine of a function that does not place orders, so it has no lane of its own."""
        from inventory_orders.lanes.source import engine_with_lanes  # noqa: PLC0415 - not all functions need it

        return engine_with_lanes(self.store, executor=executor())

    @cached_property
    def engine_with_lanes(self) -> Engine:
        """The engine of a function that places orders, with a lane of its own."""
        from inventory_orders.lanes.source import engine_with_lanes  # noqa: PLC0415

        return engine_with_lanes(self.store, None, None, executor(), *self._lanes)

    @cached_property
    def engine_for_callers(self) -> Engine:
        """The engine for callers who wait. It returns orders that it cannot decide immediately."""
        from inventory_orders.lanes.callers import engine_for_callers  # noqa: PLC0415

        return engine_for_callers(self.store, *self._lanes)

    @property
    def _lanes(self) -> tuple[int, int]:
        """How many lanes the workers of queues have, and how many the processes of the API."""
        return self._whole_number("LANES"), self._whole_number("API_LANES", "0")

    @cached_property
    def stock_bus(self) -> Bus | None:
        """The bus for stock levels; None if the setting `stockEvents` is off."""
        has_bus = "STOCK_EVENT_BUS_NAME" in self._environment
        return self._bus("STOCK_EVENT_BUS_NAME") if has_bus else None

    @cached_property
    def bus(self) -> Bus:
        """The bus for events about orders and products."""
        return self._bus("EVENT_BUS_NAME")

    def _bus(self, variable: str) -> Bus:
        from inventory_orders.publishing import publisher  # noqa: PLC0415 - not all functions publish

        name = self._text(variable)
        return publisher.Bus(client("events", publisher.CLIENT_CONFIG), name)

    @cached_property
    def queue(self) -> sqs.Queue:
        """The queue that feeds the function. If there are several, the one for messages of unknown origin."""
        return self._queue("")

    def queue_of(self, batch: Sequence[sqs.Message]) -> tuple[sqs.Queue, Door]:
        """The queue of orders that a batch came from, and the metric that counts its orders."""
        # A batch only has messages of one queue.
        if any(m.group is not None for m in batch) and "FIFO_QUEUE_URL" in self._environment:
            return self._queue("FIFO_"), "OrdersQueued"
        express_url = self._environment.get("EXPRESS_QUEUE_URL", "")
        if any(express_url.endswith(f"/{m.queue}") for m in batch):
            return self._queue("EXPRESS_"), "OrdersExpress"
        return self.queue, "OrdersQueued"

    @cached_property
    def expiry_queue(self) -> sqs.Queue:
        """The queue of holds that are about to end."""
        return self._queue("EXPIRY_")

    @cached_property
    def order_queue(self) -> sqs.Queue:
        """The queue to which the function sends orders whose sender does not wait."""
        return self._queue("ORDER_", feeds=False)

    @cached_property
    def express_queue(self) -> sqs.Queue:
        """The queue to which the function sends orders whose sender waits."""
        return self._queue("EXPRESS_", feeds=False)

    @cached_property
    def undeliverable_events(self) -> sqs.Queue:
        """The queue for events that cannot be published."""
        return self._queue("UNDELIVERABLE_EVENTS_", feeds=False)

    @cached_property
    def unrecorded_movements(self) -> sqs.Queue:
        """The queue for changes to orders from which no movements can be derived."""
        return self._queue("UNRECORDED_MOVEMENTS_", feeds=False)


@cache
def process() -> Process:
    """The execution environment that this code runs in."""
    return Process(os.environ)


def prepare(*names: str) -> None:
    """Create attributes of the process while the handler is being imported. This sends no requests.

    Creating the clients takes longer than everything else in the first batch. Lambda imports the handler in its init phase, in
    which a function has more CPU than later.

    A missing setting is ignored here, so that a handler can be imported anywhere. The first invocation then names the setting.
    """
    with suppress(ConfigurationError):
        for name in names:
            getattr(process(), name)


@cache
def executor() -> Executor | None:
    """The threads that run reads and transactions in parallel."""
    # A function with 1 GB has little more than half a CPU, and a transaction uses the CPU for 2 of its 10 ms, so four are enough.
    return ThreadPoolExecutor(4)


@cache
def client(service: Any, config: Any = CLIENT_CONFIG) -> Any:
    """Create the client for an AWS service, once for each botocore `Config`. The default suits DynamoDB and Lambda."""
    return boto3.client(service, config=config)


def end_of(context: Any) -> Deadline:
    """The time at which Lambda ends the invocation."""
    return Deadline.after(context.get_remaining_time_in_millis() / 1000, SystemClock())


def deadline(context: Any) -> Deadline:
    """The time after which no new work may begin, so that everything can still be answered before the invocation times out."""
    left = end_of(context).remaining()
    return Deadline.after(max(left - RESERVED_SECONDS, left / 2), SystemClock())


def refuse_unsupported_events(
    handler: Callable[[Any, Any], dict[str, Any]],
) -> Callable[[Any, Any], dict[str, Any]]:
    """Decorate a handler of batches, so that it answers events of any other kind by saying what to send.

    A batch in an unknown format must not be acknowledged. An empty item identifier tells Lambda that the whole batch failed:
    https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
    """

    @wraps(handler)
    def handle(event: Any, context: Any) -> dict[str, Any]:
        try:
            return handler(event, context)
        except UnsupportedEventError as error:
            answer: dict[str, Any] = {
                "result": "INVALID",
                "code": "UNSUPPORTED_EVENT",
                "message": str(error),
            }
            if isinstance(event, dict) and "Records" in event:
                answer["batchItemFailures"] = [{"itemIdentifier": ""}]
            return answer

    return handle
