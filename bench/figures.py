"""Computes the figures of a contender from an engine's observations.

Everything is counted from requests and tables, so the figures mean the same for every contender on both engines.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.capacity import Call, Exchange, Usage
from bench.workloads import Workload
from inventory_orders.domain.allotments import Page
from inventory_orders.domain.location import product_of
from operations.prices import Bill


class Tally:
    """Sums over all requests. The requests themselves are not kept.

    Args:
        products_table: Name of the Products table.
        orders_table: Name of the Orders table.

    Attributes:
        calls: Number of requests to DynamoDB.
        others: Number of other requests.
        usage: Capacity units that the requests to DynamoDB consumed.
        attempts: Requests that tried to write products or orders.
        conflicts: Attempts that lost to a concurrent writer.
        tries: Number of attempts to write each order.
        durable: When each order was first written.
    """

    def __init__(self, products_table: str, orders_table: str) -> None:
        self._tables = products_table, orders_table
        self.calls = self.others = 0
        self.usage = Usage()
        self.attempts = self.conflicts = 0
        self.tries: Counter[str] = Counter()
        self.durable: dict[str, float] = {}

    def add(self, exchange: Exchange) -> None:
        """Count a request."""
        if not exchange.target.startswith("DynamoDB"):
            self.others += 1
            return
        call = Call(exchange, *self._tables)
        self.calls += 1
        self.usage += call.usage
        self.attempts += call.is_attempt
        self.conflicts += call.is_conflict
        for order_id in call.order_ids:
            self.tries[order_id] += 1
            if call.ok:
                self.durable[order_id] = min(self.durable.get(order_id, math.inf), exchange.ended)


@dataclass(slots=True)
class Observations:
    """The observations of one cell. All times are seconds on a clock that all its workers share.

    Attributes:
        tally: All requests, except those during the warm-up.
        began: When the workers started, or when the warm-up ended.
        window: Seconds after `began` in which workers took batches; None if they answered all orders.
        received: When each order was first delivered to a worker.
        deliveries: Number of delivered messages, including redeliveries.
        given_up: Orders that were returned at their last delivery.
        invocations: The duration of each invocation.
    """

    tally: Tally
    began: float
    window: float | None = None
    received: dict[str, float] = field(default_factory=dict)
    deliveries: int = 0
    given_up: set[str] = field(default_factory=set)
    invocations: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Audit:
    """The check of the tables.

    Attributes:
        placed: Number of placed orders.
        rejected: Number of rejected orders.
        oversold: Units in placed orders that the stock does not cover.
        applied_twice: Units that were taken from stock without an order.
        lost: Number of orders that were acknowledged but have no row.
        miscounted: Difference between units on hand and the units that the records account for.
    """

    placed: int
    rejected: int
    oversold: int
    applied_twice: int
    lost: int
    miscounted: int = 0

    @property
    def clean(self) -> bool:
        """Whether the check found no errors."""
        return not (self.oversold or self.applied_twice or self.lost or self.miscounted)


@dataclass(frozen=True, slots=True)
class Trial:
    """A contender with one workload and a number of workers.

    Attributes:
        engine: `embedded` or `simulated`.
        contender: Name of its module.
        workload: Name of the workload.
        workers: Number of concurrent workers.
        batch: Maximum number of messages for one invocation.
        seed: Seed of the workload.
    """

    engine: str
    contender: str
    workload: str
    workers: int
    batch: int
    seed: int


@dataclass(frozen=True, slots=True)
class Figures(Trial):
    """The figures of a trial. "Per order" means per placed order.

    Attributes:
        orders: Orders that were delivered to workers.
        placed: Placed orders.
        refused: Rejected orders.
        given_up: Orders that were returned at their last delivery.
        unfinished: Orders that were returned and not delivered again before the end.
        seconds: Seconds from the start to the last answer, or to the end of the window.
        orders_per_second: Orders answered per second in that time.
        requests: Requests to DynamoDB, per order.
        write_units: Write units per order, without the index.
        read_units: Read units per order.
        conflicts: Attempts that failed because of a concurrent writer, per order.
        conflict_rate: Share of the attempts that failed because of a concurrent writer.
        retries: Number of attempts after the first, on average for an answered order.
        retries_p95: Number of attempts after the first, 95th percentile.
        p50_ms: Milliseconds from the receipt of an order until it is durable, median.
        p99_ms: The same, 99th percentile.
        dollars_per_million: Cost of a million placed orders, in USD.
        oversold: As in `Audit`.
        applied_twice: As in `Audit`.
        lost: As in `Audit`.
        miscounted: As in `Audit`.
    """

    orders: int
    placed: int
    refused: int
    given_up: int
    unfinished: int
    seconds: float
    orders_per_second: float
    requests: float
    write_units: float
    read_units: float
    conflicts: float
    conflict_rate: float
    retries: float
    retries_p95: int
    p50_ms: float
    p99_ms: float
    dollars_per_million: float
    oversold: int
    applied_twice: int
    lost: int
    miscounted: int = 0

    @property
    def clean(self) -> bool:
        """Whether no unit was oversold or miscounted, no order was lost, and none was applied twice."""
        return not (self.oversold or self.applied_twice or self.lost or self.miscounted)


def reduce(trial: Trial, observed: Observations, audited: Audit) -> Figures:
    """Compute the figures of a trial."""
    tally = observed.tally
    answered = {
        order_id: at for order_id, at in tally.durable.items() if order_id in observed.received
    }
    end = max(answered.values(), default=observed.began)
    if observed.window is not None:
        # After the end, workers finish one by one, which would distort the rate.
        end = min(end, observed.began + observed.window)
    seconds = end - observed.began
    in_time = sum(1 for at in answered.values() if at <= end)
    waits = [at - observed.received[order_id] for order_id, at in answered.items()]
    retries = [tally.tries[order_id] - 1 for order_id in answered]
    bill = Bill(
        write_units=tally.usage.write + tally.usage.index,
        read_units=tally.usage.read,
        invocations=len(observed.invocations),
        seconds=sum(observed.invocations),
        messages=len(observed.received),
        deliveries=observed.deliveries,
        messages_per_poll=min(10, trial.batch),
        queue_requests=tally.others,
    )

    def per_order(total: float) -> float:
        return total / audited.placed if audited.placed else math.nan

    return Figures(
        **asdict(trial),
        orders=len(observed.received),
        placed=audited.placed,
        refused=audited.rejected,
        given_up=len(observed.given_up),
        unfinished=len(observed.received.keys() - answered.keys() - observed.given_up),
        seconds=seconds,
        orders_per_second=in_time / seconds if seconds else math.nan,
        requests=per_order(tally.calls),
        write_units=per_order(tally.usage.write),
        read_units=per_order(tally.usage.read),
        conflicts=per_order(tally.conflicts),
        conflict_rate=tally.conflicts / tally.attempts if tally.attempts else math.nan,
        retries=sum(retries) / len(retries) if retries else math.nan,
        retries_p95=int(percentile(retries, 95)) if retries else 0,
        p50_ms=percentile(waits, 50) * 1000,
        p99_ms=percentile(waits, 99) * 1000,
        dollars_per_million=per_order(bill.dollars) * 1_000_000,
        oversold=audited.oversold,
        applied_twice=audited.applied_twice,
        lost=audited.lost,
        miscounted=audited.miscounted,
    )


class Books:
    """The outcomes of orders, which are entered one by one.

    Attributes:
        placed: Number of placed orders.
        rejected: Number of rejected orders.
        sold: Units in placed orders, by product.
        owed: Units of earlier orders that have not been handed over yet, by product. They are on hand, but not in the
            opening stock.
    """

    def __init__(self) -> None:
        self.placed = self.rejected = 0
        self.sold: Counter[str] = Counter()
        self.owed: Counter[str] = Counter()

    def enter(self, status: str, wanted: Mapping[str, int]) -> None:
        """Enter an order's row into the books, with the quantity of each product."""
        if status == "PENDING":
            self.placed += 1
            self.sold.update(wanted)
        elif status == "REJECTED":
            self.rejected += 1

    def audit(
        self,
        opening: Mapping[str, int],
        products: Iterable[Mapping[str, Any]],
        pages: Iterable[Page],
        lost: int,
        outbound: Mapping[str, int],
    ) -> Audit:
        """Compare the books with the stock that is left.

        Args:
            opening: Opening stock by the key of each row.
            products: Rows of the Products table, as plain values.
            pages: Pages of lanes, which hold the rest of the stock.
            lost: Number of orders that were acknowledged but have no row.
            outbound: Units on outbound pages, by product id.
        """
        stock, on_hand, opened = Counter[str](), Counter[str](), Counter[str]()
        for key, units in opening.items():
            opened[product_of(key)] += units
        for row in products:
            product_id = product_of(row["productId"])
            stock[product_id] += int(row["stockCount"])
            if "onHand" in row:
                on_hand[product_id] += int(row["onHand"]) - outbound.get(row["productId"], 0)
        for page in pages:
            for key, held in page.entries.items():
                stock[product_of(key)] += held.units
        miscounted = sum(
            abs(units + self.owed[product_id] - on_hand[product_id])
            for product_id, units in opened.items()
            if product_id in on_hand
        )
        oversold = applied_twice = 0
        for product_id, units in opened.items():
            taken = units - stock[product_id]
            oversold += max(0, self.sold[product_id] - min(units, taken))
            applied_twice += max(0, taken - self.sold[product_id])
        return Audit(self.placed, self.rejected, oversold, applied_twice, lost, miscounted)


def audit(
    workload: Workload,
    products: Iterable[Mapping[str, Any]],
    orders: Iterable[Mapping[str, Any]],
    acknowledged: Iterable[str],
    pages: Iterable[Page] = (),
) -> Audit:
    """Check the tables.

    Args:
        workload: The orders that were sent. Other rows are ignored.
        products: Rows of the Products table, as plain values.
        orders: Rows of the Orders table; their lines are taken from the message bodies.
        acknowledged: Ids of the orders that no worker returned.
        pages: Pages of lanes, which hold the rest of the stock.
    """
    status = {row["orderId"]: row["status"] for row in orders if row["orderId"] in workload.bodies}
    books = Books()
    for order_id, state in status.items():
        books.enter(state, workload.quantities(order_id))
    lost = sum(order_id not in status for order_id in acknowledged)
    return books.audit(workload.stock, products, pages, lost, {})


def percentile(values: Sequence[float], share: float) -> float:
    """Compute the nearest-rank percentile; NaN without values."""
    if not values:
        return math.nan
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share / 100 * len(ranked)) - 1)]


@dataclass(frozen=True, slots=True)
class SceneFigures:
    """The figures of a scene. "Per order" means per answered order.

    Attributes:
        rate: Orders answered per second.
        requests: Requests to DynamoDB per order; for callers, requests to SQS are included.
        write_units: Write units per order, including those of all indexes.
        p99: Seconds from the receipt of an order until it is durable, 99th percentile; for callers, from the request
            to its answer.
        conflicts: Share of the attempts to write that lost to a concurrent writer.
        took: Mean duration of an operator's command, or time until the last hold has expired or the last caller of a
            sell-out has the answer, in seconds; NaN in other scenes.
        clean: Whether the books balance.
        handed_over: Orders handed over per second; NaN in scenes without hand-overs.
        again: Share of the attempts to hand over that lost to a concurrent writer; for API callers, share of the
            hand-overs that were answered with a request to try again. NaN in scenes without hand-overs.
        queued: Orders from `OrderQueue` answered per second while callers wait; NaN in other scenes.
        express: Share of the callers' orders that went through the express queue; NaN in scenes without callers.
    """

    rate: float
    requests: float
    write_units: float
    p99: float
    conflicts: float
    took: float
    clean: bool
    handed_over: float = math.nan
    again: float = math.nan
    queued: float = math.nan
    express: float = math.nan

    @classmethod
    def of(cls, observed: Observations, cell: Figures, write_units: float) -> SceneFigures:
        """Compute the figures per answered order.

        Args:
            observed: The observations.
            cell: The figures of the cell.
            write_units: Write units of all tables and indexes.
        """
        durable, received = observed.tally.durable, observed.received
        waits = [
            at - received[order_id] for order_id, at in durable.items() if order_id in received
        ]
        orders = len(waits) or math.nan
        return cls(
            rate=cell.orders_per_second,
            requests=observed.tally.calls / orders,
            write_units=write_units / orders,
            p99=percentile(waits, 99),
            conflicts=cell.conflict_rate,
            took=math.nan,
            clean=cell.clean,
        )
