"""Counts the requests of two patterns with concurrent writers: plain decrements, and batches for one hot product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import boto3

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.adjustment import DECREMENT, Adjustment, Decrement
from inventory_orders.domain.change import Change
from inventory_orders.domain.order import Order
from inventory_orders.engine.loop import Engine
from inventory_orders.errors import Outcome
from inventory_orders.lanes.source import engine_with_lanes
from inventory_orders.products.catalogue import AtomicDecrement
from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store
from inventory_orders.store.tables import Table

RIVALS = 8
DECREMENT_MODES = ("optimistic", "atomic")
PLENTY = 10_000
"""Opening stock of the decremented product. It is so large that the product's status never changes."""

_DECREMENTS = 25
_BATCHES, _BATCH = 10, 20
_DELIVERIES = 10
ORDERS = RIVALS * _BATCHES * _BATCH
"""The number of orders for the hot product, which has enough stock for all of them."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The costs of all writers' operations.

    Attributes:
        requests: Requests per operation.
        write_units: Write units of successful requests, per operation.
        conflicts: Failed requests per operation.
        lost_transactions: Cancelled transactions per batch (a decrement counts as a batch).
        done: How many operations were applied.
        wanted: How many operations were requested.
    """

    requests: float
    write_units: float
    conflicts: float
    lost_transactions: float
    done: int
    wanted: int


def decrements(tables: Mapping[Table, str], product_id: str, mode: str) -> Cost:
    """Let concurrent writers decrement the stock of one product.

    Args:
        tables: Names of the tables.
        product_id: A product with `PLENTY` in stock.
        mode: One of `DECREMENT_MODES`.
    """

    def work(number: int, engine: Engine, meter: _Meter) -> int:
        atomic = AtomicDecrement(engine)
        atomic.apply(Decrement(product_id, f"warm-{number}", -1), soon())
        meter.reset()
        return sum(decrement(engine, atomic, f"{number}-{n}") for n in range(_DECREMENTS))

    def decrement(engine: Engine, atomic: AtomicDecrement, adjustment_id: str) -> bool:
        if mode == "atomic":
            (outcome,) = atomic.apply(Decrement(product_id, adjustment_id, -1), soon()).outcomes
            if outcome.kind is Outcome.APPLIED:
                return True
        return _deliver(engine, [Adjustment(product_id, adjustment_id, -1, DECREMENT)]) == 1

    return _compete(tables, work, RIVALS * _DECREMENTS, RIVALS * _DECREMENTS)


def hot_product(tables: Mapping[Table, str], product_id: str, *, lanes: int) -> Cost:
    """Let concurrent writers place batches of orders for one product.

    Args:
        tables: Names of the tables.
        product_id: A product with `ORDERS` in stock.
        lanes: The maximum number of lanes. With 0, writers only retry with jitter.
    """

    def work(number: int, engine: Engine, meter: _Meter) -> int:
        del meter
        placed = 0
        for batch in range(_BATCHES):
            ids = (f"{product_id}-{number}-{batch}-{n}" for n in range(_BATCH))
            placed += _deliver(engine, [Order(each, "u-1", {product_id: 1}) for each in ids])
        return placed

    return _compete(tables, work, ORDERS, RIVALS * _BATCHES, lanes)


def _compete(
    tables: Mapping[Table, str],
    work: Callable[[int, Engine, _Meter], int],
    operations: int,
    batches: int,
    lanes: int = 0,
) -> Cost:
    """Run the writers concurrently, each with its own client, and count their requests."""
    meters: list[_Meter] = []

    def rival(number: int) -> int:
        client = boto3.client("dynamodb", config=CLIENT_CONFIG)
        meters.append(_Meter(client))
        return work(number, engine_with_lanes(Store(client, tables), lanes=lanes), meters[-1])

    with ThreadPoolExecutor(RIVALS) as pool:
        done = sum(pool.map(rival, range(RIVALS)))
    return Cost(
        requests=sum(meter.requests for meter in meters) / operations,
        write_units=sum(meter.units for meter in meters) / operations,
        conflicts=sum(meter.failed for meter in meters) / operations,
        lost_transactions=sum(meter.cancelled_transactions for meter in meters) / batches,
        done=done,
        wanted=operations,
    )


def _deliver(engine: Engine, changes: Sequence[Change]) -> int:
    """Apply changes, and repeat those that lost to a concurrent writer, as a queue would. Return how many were applied."""
    done = 0
    for _ in range(_DELIVERIES):
        outcomes = engine.apply(changes, soon()).outcomes
        done += sum(outcome.kind in (Outcome.APPLIED, Outcome.REPLAYED) for outcome in outcomes)
        changes = [c for c, outcome in zip(changes, outcomes, strict=True) if outcome.is_open]
        if not changes:
            break
    return done


def soon() -> Deadline:
    """Create a deadline that no example reaches."""
    return Deadline.after(20, SystemClock())


class _Meter:
    """Counts a client's requests, its failed requests, and the write units of successful ones."""

    def __init__(self, client: Any) -> None:
        self.reset()
        client.meta.events.register("before-send.dynamodb", self._count_request)
        client.meta.events.register("provide-client-params.dynamodb", self._ask_for_capacity)
        client.meta.events.register("after-call.dynamodb", self._count_units)

    def reset(self) -> None:
        self.requests, self.failed, self.units = 0, 0, 0.0
        self.cancelled_transactions = 0

    def _count_request(self, **_: Any) -> None:
        self.requests += 1

    def _ask_for_capacity(self, params: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**params, "ReturnConsumedCapacity": "TOTAL"}

    def _count_units(self, parsed: dict[str, Any], **_: Any) -> None:
        if "Error" in parsed:
            self.failed += 1
            self.cancelled_transactions += "CancellationReasons" in parsed
            return
        consumed = parsed.get("ConsumedCapacity", [])
        entries = consumed if isinstance(consumed, list) else [consumed]
        self.units += sum(float(entry["CapacityUnits"]) for entry in entries)
