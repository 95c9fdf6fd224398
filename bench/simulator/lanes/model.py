"""Runs a policy: so many workers on one workload, from one state of the stock, and the figures of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from bench.simulator.lanes.depot import LANE_ORDERS, SPARE, Depot, DepotWorker
from bench.simulator.lanes.growing import DRAW_BATCHES, GrowingWorker, Lanes
from bench.simulator.lanes.shop import Row, Shop
from bench.simulator.lanes.store import Store, Table
from bench.simulator.lanes.worker import ACTIONS, PAGES, Run, Worker
from bench.workloads import Workload
from simulated_aws.latency import PUBLISHED, Region
from simulated_aws.scheduler import Scheduler

BATCH = ACTIONS - PAGES
"""Orders of a batch: with the pages of a lane they fill one transaction."""

WINDOW = 10
"""Seconds of the shortest window of which the rate is told."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Partitions at the start, by table."""

    products: int = 4
    orders: int = 40
    allotments: int = 40
    splits: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is run.

    Attributes:
        policy: `depot`: lanes filled from a depot; `depot alone`: no other lanes; `growing`: lanes that draw from the
            rows, more or fewer of them; `fixed`: one for each worker; `one`: one for all.
        workers: Number of execution environments.
        depth: Seconds of stock at 500 orders a second; infinite for plenty.
        spread: Standard deviation of the logarithm of the depth, from product to product.
        seconds: Virtual seconds after which no worker takes another batch.
        warm_up: Seconds at the start that do not count for the rates.
        batch: Orders of a batch.
        until: Share of the stock at which the run ends.
        tables: The tables' partitions.
        full: Whether all lanes are full at the start, with as much as they hold when there is plenty.
    """

    policy: str = "depot"
    workers: int = 8
    depth: float = math.inf
    spread: float = 0.0
    seconds: float = 30.0
    warm_up: float = 0.0
    batch: int = BATCH
    until: float = 0.05
    tables: Tables = Tables()
    full: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one run. "An order" is an answered one.

    Attributes:
        seconds: Virtual seconds that count.
        rate: Orders answered a second.
        least: The same in the worst ten seconds.
        placed: Share of the answered orders that were placed.
        write_units: Units of all tables for an order, without the index.
        requests: Requests for an order.
        conflicts: Share of the transactions that lost against a rival.
        throttled: Share of the transactions that were throttled.
        batch_p99: 99th percentile of the seconds of a batch.
        sell_out: Seconds from the moment in which the first product was too scarce for lanes to its last sale.
        handed_back: Orders that went back to the queue.
        faults: What was wrong with the books or the rules, every ten seconds and at the end.
        counts: All counters.
        by_second: Orders answered in each second.
    """

    seconds: float
    rate: float
    least: float
    placed: float
    write_units: float
    requests: float
    conflicts: float
    throttled: float
    batch_p99: float
    sell_out: float
    handed_back: int
    faults: list[str]
    counts: Mapping[str, int]
    by_second: list[int]


def simulate(scenario: Scenario, workload: Workload, seed: int = 0) -> Result:
    """Run a scenario. The same seed gives the same figures."""
    scheduler = Scheduler()
    region = Region(PUBLISHED, Random(f"latencies {seed}"))
    tables = scenario.tables
    orders = Table(tables.orders, splits=tables.splits)
    store = Store(scheduler, region, orders, Random(f"rows {seed}"))
    shop = Shop(
        workload,
        scenario.depth,
        scenario.spread,
        Table(tables.products, splits=tables.splits),
        Table(tables.allotments, splits=tables.splits),
        seed,
    )
    run = Run(scheduler, store, region, shop, Random(f"workers {seed}"), scenario.batch)
    for worker in _workers(scenario, run):
        scheduler.start(worker.work, worker)
    before: dict[str, int] = {}
    faults: list[str] = []

    def watch() -> None:
        while not run.ended:
            if scheduler.now >= scenario.warm_up and not before:
                before.update(store.counts, ready=1)
            scheduler.sleep(1.0)
            if not int(scheduler.now) % WINDOW:
                faults.extend(shop.faults())
            run.ended = scheduler.now >= scenario.seconds or shop.left <= scenario.until

    scheduler.start(watch)
    scheduler.run()
    faults.extend(shop.faults())
    return _result(scenario, run, before, faults)


def _workers(scenario: Scenario, run: Run) -> list[Worker]:
    if scenario.policy in ("depot", "depot alone"):
        spare = SPARE if scenario.policy == "depot" else math.inf
        depot = Depot(run.shop, scenario.workers, spare)
        workers: list[Worker] = [DepotWorker(run, n, depot) for n in range(scenario.workers)]
        if scenario.full:
            _fill(run.shop, range(1, scenario.workers + 1), depot.wide, LANE_ORDERS)
            depot.fill(run.shop)
            for worker in workers:
                worker.demand.know(run.shop.demand)
        return workers
    adapts = scenario.policy == "growing"
    count = 1 if scenario.policy == "one" or (adapts and not scenario.full) else scenario.workers
    allotments = run.shop.page(0, 0).table
    lanes = Lanes(run.shop, allotments, scenario.workers, count, adapts=adapts)
    if scenario.full:
        _fill(run.shop, range(count), frozenset(range(count)), DRAW_BATCHES * scenario.batch)
    return [GrowingWorker(run, number, lanes) for number in range(scenario.workers)]


def _fill(shop: Shop, lanes: Sequence[int], lent: frozenset[int], orders: int) -> None:
    """Let each lane hold units for so many orders, or its share of the stock if there is not enough."""
    for product, item in enumerate(shop.rows):
        stock = item.value.stock
        fill = math.ceil(shop.demand[product] * orders)
        fill = min(2 * fill, (stock - 1) // len(lanes))
        if fill < 1:
            continue
        for lane in lanes:
            page = shop.page(lane, product % PAGES)
            page.value = {**page.value, product: fill}
        item.value = Row(stock - fill * len(lanes), lent)


def _result(scenario: Scenario, run: Run, before: Mapping[str, int], faults: list[str]) -> Result:
    first, last = int(scenario.warm_up), max(run.answered, default=0)
    by_second = [run.answered[second] for second in range(last + 1)]
    counted = by_second[first:last]
    answered = sum(counted) or 1
    total = sum(by_second[first:]) or 1
    counts = {name: n - before.get(name, 0) for name, n in run.store.counts.items()}
    windows = [sum(counted[at : at + WINDOW]) for at in range(len(counted) - WINDOW + 1)]
    times = sorted(run.batch_seconds) or [0.0]
    transactions = counts.get("transactions", 0) or 1
    return Result(
        seconds=len(counted),
        rate=answered / max(1, len(counted)),
        least=min(windows, default=0) / WINDOW,
        placed=sum(run.placed[second] for second in range(first, last + 1)) / total,
        write_units=counts.get("write units", 0) / total,
        requests=counts.get("requests", 0) / total,
        conflicts=counts.get("lost", 0) / transactions,
        throttled=counts.get("throttled", 0) / transactions,
        batch_p99=times[int(0.99 * (len(times) - 1))],
        sell_out=_sell_out(run),
        handed_back=run.handed_back,
        faults=faults,
        counts=counts,
        by_second=by_second,
    )


def _sell_out(run: Run) -> float:
    product, began = next(iter(run.scarce.items()), (0, math.inf))
    return max(0.0, run.last_sale.get(product, 0.0) - began)
