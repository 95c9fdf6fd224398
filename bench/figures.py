"""Figures of a cell, from an engine's observations.

A cell is one contender with one workload and a number of workers. Everything is counted from requests and tables, so
the figures mean the same for every contender on both engines.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.capacity import Call, Exchange
from bench.workloads import Workload
from inventory_orders.domain.allotments import Page
from operations.prices import Bill


@dataclass(slots=True)
class Observed:
    """The observations of one cell. All times are seconds on a clock that all its workers share.

    Attributes:
        products_table: Name of the Products table.
        orders_table: Name of the Orders table.
        began: When the workers started.
        window: Seconds after which no worker took another batch; None to answer all orders.
        received: When each order was first delivered to a worker.
        deliveries: Number of delivered messages, including redeliveries.
        given_up: Orders that were returned at their last delivery.
        invocations: The duration of each invocation.
        exchanges: All requests, without those of the warm-up.
    """

    products_table: str
    orders_table: str
    began: float
    window: float | None = None
    received: dict[str, float] = field(default_factory=dict)
    deliveries: int = 0
    given_up: set[str] = field(default_factory=set)
    invocations: list[float] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Audit:
    """Whether the tables are correct.

    Attributes:
        placed: Number of placed orders.
        rejected: Number of rejected orders.
        oversold: Units in placed orders that the stock does not cover.
        applied_twice: Units that were taken from stock without an order.
        lost: Number of orders that were acknowledged but have no row.
    """

    placed: int
    rejected: int
    oversold: int
    applied_twice: int
    lost: int

    @property
    def clean(self) -> bool:
        """Whether there are no errors."""
        return not (self.oversold or self.applied_twice or self.lost)


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the results. "Per order" means per placed order.

    Attributes:
        engine: `embedded` or `simulated`.
        contender: Name of its module.
        workload: Name of the workload.
        workers: Number of concurrent workers.
        batch: Most messages for one invocation.
        seed: Seed of the workload.
        orders: Orders that were delivered to workers.
        placed: Placed orders.
        refused: Rejected orders.
        given_up: Orders that were returned at their last delivery.
        unfinished: Orders that were returned and not delivered again before the end.
        seconds: From the start to the last answer, or to the end of the window.
        orders_per_second: Orders answered per second in that time.
        requests: Requests to DynamoDB, per order.
        write_units: Write units per order, without the index.
        index_units: Write units of the index `byUser`, per order.
        read_units: Read units per order.
        attempts: Transactions on products and orders, per order.
        conflicts: Attempts that failed because of a rival, per order.
        conflict_rate: Share of the attempts that failed because of a rival.
        claims_refused: Refused claims, per order. Each is a single update that costs 1 unit, and counts in requests
            and write units.
        retries: Attempts after the first, average over answered orders.
        retries_p95: Attempts after the first, 95th percentile.
        p50_ms: From receipt to durable, median, in milliseconds.
        p99_ms: From receipt to durable, 99th percentile, in milliseconds.
        dollars_per_million: Cost of a million placed orders, in USD.
        oversold: As in `Audit`.
        applied_twice: As in `Audit`.
        lost: As in `Audit`.
    """

    engine: str
    contender: str
    workload: str
    workers: int
    batch: int
    seed: int
    orders: int
    placed: int
    refused: int
    given_up: int
    unfinished: int
    seconds: float
    orders_per_second: float
    requests: float
    write_units: float
    index_units: float
    read_units: float
    attempts: float
    conflicts: float
    conflict_rate: float
    claims_refused: float
    retries: float
    retries_p95: int
    p50_ms: float
    p99_ms: float
    dollars_per_million: float
    oversold: int
    applied_twice: int
    lost: int

    @property
    def clean(self) -> bool:
        """Whether no unit was oversold, no order was lost, and none was applied twice."""
        return not (self.oversold or self.applied_twice or self.lost)


def reduce(
    engine: str,
    contender: str,
    batch: int,
    workload: Workload,
    workers: int,
    seed: int,
    observed: Observed,
    audited: Audit,
) -> Cell:
    """Compute the figures of one cell."""
    products, orders = observed.products_table, observed.orders_table
    calls = [
        Call(exchange, products, orders)
        for exchange in observed.exchanges
        if exchange.target.startswith("DynamoDB")
    ]
    durable: dict[str, float] = {}
    tries: Counter[str] = Counter()
    for call in calls:
        for order_id in call.order_ids:
            tries[order_id] += 1
            if call.ok:
                durable.setdefault(order_id, call.exchange.ended)
    answered = {order_id: at for order_id, at in durable.items() if order_id in observed.received}
    end = max(answered.values(), default=observed.began)
    if observed.window is not None:
        # After the end workers finish one by one, which would distort the rate.
        end = min(end, observed.began + observed.window)
    seconds = end - observed.began
    in_time = sum(1 for at in answered.values() if at <= end)
    waits = [at - observed.received[order_id] for order_id, at in answered.items()]
    retries = [tries[order_id] - 1 for order_id in answered]
    usages = [call.usage for call in calls]
    write_units = sum(usage.write for usage in usages)
    index_units = sum(usage.index for usage in usages)
    read_units = sum(usage.read for usage in usages)
    # Claims are the only single updates of these tables.
    transactions = [call for call in calls if call.operation != "UpdateItem"]
    attempts = sum(call.is_attempt for call in transactions)
    conflicts = sum(call.is_conflict for call in transactions)
    refused_claims = sum(call.is_conflict for call in calls) - conflicts
    bill = Bill(
        write_units=write_units + index_units,
        read_units=read_units,
        invocations=len(observed.invocations),
        seconds=sum(observed.invocations),
        messages=len(observed.received),
        deliveries=observed.deliveries,
        messages_per_poll=min(10, batch),
        queue_requests=len(observed.exchanges) - len(calls),
    )

    def per_order(total: float) -> float:
        return total / audited.placed if audited.placed else math.nan

    return Cell(
        engine=engine,
        contender=contender,
        workload=workload.name,
        workers=workers,
        batch=batch,
        seed=seed,
        orders=len(observed.received),
        placed=audited.placed,
        refused=audited.rejected,
        given_up=len(observed.given_up),
        unfinished=len(observed.received.keys() - answered.keys() - observed.given_up),
        seconds=seconds,
        orders_per_second=in_time / seconds if seconds else math.nan,
        requests=per_order(len(calls)),
        write_units=per_order(write_units),
        index_units=per_order(index_units),
        read_units=per_order(read_units),
        attempts=per_order(attempts),
        conflicts=per_order(conflicts),
        conflict_rate=conflicts / attempts if attempts else math.nan,
        claims_refused=per_order(refused_claims),
        retries=sum(retries) / len(retries) if retries else math.nan,
        retries_p95=int(percentile(retries, 95)) if retries else 0,
        p50_ms=percentile(waits, 50) * 1000,
        p99_ms=percentile(waits, 99) * 1000,
        dollars_per_million=per_order(bill.dollars) * 1_000_000,
        oversold=audited.oversold,
        applied_twice=audited.applied_twice,
        lost=audited.lost,
    )


def audit(
    workload: Workload,
    products: Iterable[Mapping[str, Any]],
    orders: Iterable[Mapping[str, Any]],
    acknowledged: Iterable[str],
    pages: Iterable[Page] = (),
) -> Audit:
    """Check the tables.

    Args:
        workload: What was sent. Other rows are ignored.
        products: Rows of the Products table, as plain values.
        orders: Rows of the Orders table; their lines are taken from the message bodies.
        acknowledged: Ids of the orders that no worker returned.
        pages: Pages of lanes, which hold more of the stock.
    """
    status = {row["orderId"]: row["status"] for row in orders if row["orderId"] in workload.bodies}
    sold: Counter[str] = Counter()
    for order_id, state in status.items():
        if state == "PENDING":
            sold.update(workload.quantities(order_id))
    stock = Counter({row["productId"]: int(row["stockCount"]) for row in products})
    for page in pages:
        stock.update({product_id: held.units for product_id, held in page.holdings.items()})
    oversold = applied_twice = 0
    for product_id, opening in workload.stock.items():
        taken = opening - stock[product_id]
        oversold += max(0, sold[product_id] - min(opening, taken))
        applied_twice += max(0, taken - sold[product_id])
    return Audit(
        placed=sum(state == "PENDING" for state in status.values()),
        rejected=sum(state == "REJECTED" for state in status.values()),
        oversold=oversold,
        applied_twice=applied_twice,
        lost=sum(order_id not in status for order_id in acknowledged),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Compute the nearest-rank percentile; NaN without values."""
    if not values:
        return math.nan
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share / 100 * len(ranked)) - 1)]
