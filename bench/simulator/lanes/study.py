"""The study of lanes: which cells it has, what each has to show, and the figures over several seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean

from bench import workloads
from bench.simulator.lanes.model import Result, Scenario, Tables, simulate
from bench.workloads import Workload

TEN_MINUTES, ONE_MINUTE = 600.0, 60.0

TODAY = 104
"""Real orders a second of today's service with 8 workers, simulated (docs/benchmarks.md)."""

PLENTY = "Plenty of stock, lanes in their steady state"
SHALLOW = "Little stock, from empty lanes, until 95 % is sold"
SELL_OUT = "A sell-out"
FIRST = "The policies of the first studies"

_ORDERS = 20_000
_LARGE = Tables(orders=400, allotments=400)
_NEW = Tables(products=4, orders=4, allotments=4)
_PLENTY = Scenario(full=True, seconds=25.0, warm_up=5.0)
_LIVES = Scenario(depth=TEN_MINUTES, seconds=900.0)


@dataclass(frozen=True, slots=True)
class Figures:
    """What the runs of one cell came to, over all seeds.

    Attributes:
        runs: Number of runs.
        rate: Orders answered a second: mean, least and most of the seeds.
        worst: Orders answered a second in the worst ten seconds of all seeds.
        placed: Mean share of the answered orders that were placed; the others were rejected.
        write_units: Mean write units of an order, without the index.
        requests: Mean requests of an order.
        conflicts: Mean share of the transactions that lost against a rival.
        throttled: Mean share of the transactions that were throttled.
        batch_p99: Mean 99th percentile of the seconds of a batch.
        sell_out: Most seconds from the moment in which the first product was too scarce for lanes to its last sale.
        handed_back: Orders that went back to the queue because of the line, mean.
        faults: What was wrong, of all seeds.
        by_second: Orders answered in each second of the first seed.
    """

    runs: int
    rate: tuple[float, float, float]
    worst: float
    placed: float
    write_units: float
    requests: float
    conflicts: float
    throttled: float
    batch_p99: float
    sell_out: float
    handed_back: float
    faults: list[str]
    by_second: list[int]


Check = Callable[[Figures], bool]


@dataclass(frozen=True, slots=True)
class Cell:
    """One line of the study.

    Attributes:
        section: The table that it is in.
        title: What is special about it.
        workload: Name of the workload.
        scenario: What is run.
        goal: What the issue asks for, if it does.
        met: Whether figures meet the goal.
        quick: Whether it is in a short run too.
        seeds: Most seeds that it is run with: five for what the goals are about.
    """

    section: str
    title: str
    workload: str
    scenario: Scenario
    goal: str = ""
    met: Check | None = None
    quick: bool = False
    seeds: int = 5


def cells() -> list[Cell]:
    """List all cells, in the order of the report."""
    return [*_plenty(), *_shallow(), *_starts(), *_tables(), *_depot_alone(), *_first_policy()]


def _plenty() -> Iterator[Cell]:
    section = PLENTY
    goals: dict[tuple[str, int], tuple[str, Check]] = {
        ("hot", 16): (
            "13,000, 2.2 units",
            lambda f: f.rate[0] >= 13_000 and f.write_units <= 2.2,
        ),
        ("zipf", 8): (
            "4,000, 3.2 units",
            lambda f: f.rate[0] >= 4_000 and f.write_units <= 3.2,
        ),
        ("real", 1): ("450", lambda f: f.rate[0] >= 450),
        ("real", 8): (
            "3,500, 9 units, 0.1 requests",
            lambda f: f.rate[0] >= 3_500 and f.write_units <= 9 and f.requests <= 0.1,
        ),
    }
    for workload in ("hot", "zipf", "real"):
        for workers in (1, 8, 16, 50):
            tables = _LARGE if workers >= 16 else Tables()
            goal, met = goals.get((workload, workers), ("", None))
            scenario = replace(_PLENTY, workers=workers, tables=tables)
            if workers == 50:
                scenario = replace(scenario, seconds=15.0)
            title = f"{workload}, {workers} workers" if workers > 1 else f"{workload}, 1 worker"
            seeds = 1 if (workload, workers) == ("real", 50) else 5
            quick = workers == 8
            yield Cell(section, title, workload, scenario, goal, met, quick=quick, seeds=seeds)
    ten = replace(_PLENTY, batch=10, seconds=30.0)
    yield Cell(
        *(section, "real, 8 workers, batches of 10", "real", ten),
        *("800", lambda f: f.rate[0] >= 800),
    )
    yield Cell(section, "real, 8 workers, batches of 99", "real", replace(_PLENTY, batch=99))


def _above_today(figures: Figures) -> bool:
    return figures.worst >= TODAY


def _shallow() -> Iterator[Cell]:
    section = SHALLOW
    goal = "800 over the sales, never below today"
    for workload, workers in (("real", 8), ("real", 16), ("real", 50), ("zipf", 16)):
        wanted = workload == "real" and workers <= 16
        yield Cell(
            *(section, f"{workload}, {workers} workers, 10 minutes", workload),
            replace(_LIVES, workers=workers),
            goal if wanted else "",
            (lambda f: f.rate[0] >= 800 and _above_today(f)) if wanted else None,
            seeds=5 if wanted else 3,
        )
    for workers in (8, 16):
        yield Cell(
            *(section, f"real, {workers} workers, 1 minute", "real"),
            replace(_LIVES, workers=workers, depth=ONE_MINUTE),
            *("never below today", _above_today),
            quick=workers == 8,
        )
    for workers in (8, 16):
        mixed = replace(_LIVES, workers=workers, spread=1.5, seconds=180.0)
        yield Cell(
            *(section, f"real, {workers} workers, mixed depths", "real", mixed),
            *("never below today", _above_today),
            seeds=5 if workers == 8 else 3,
        )
    sudden = "Full lanes, and suddenly little stock"
    for workers in (8, 16, 50):
        yield Cell(
            *(sudden, f"real, {workers} workers, 10 minutes", "real"),
            replace(_LIVES, workers=workers, full=True),
            *("never below today", _above_today),
            seeds=5 if workers == 50 else 3,
        )
    sell_out = Scenario(depth=ONE_MINUTE, seconds=60.0, until=0.0)
    yield Cell(
        *(SELL_OUT, "hot, 8 workers, 1 minute of stock", "hot", sell_out),
        *("2 s from too scarce to sold", lambda f: f.sell_out <= 2.0),
        quick=True,
    )


def _starts() -> Iterator[Cell]:
    section = "All workers start at once, with empty lanes"
    for workers in (8, 16, 50):
        yield Cell(
            *(section, f"real, {workers} workers", "real", Scenario(workers=workers, seconds=40.0)),
            *("never below today", _above_today),
        )


def _tables() -> Iterator[Cell]:
    section = "Few partitions"
    can = 4_000 / 4.78
    for workers in (8, 50):
        scenario = replace(_PLENTY, workers=workers, tables=_NEW, seconds=60.0, warm_up=20.0)
        yield Cell(
            *(section, f"real, {workers} workers, new tables (4 partitions each)", "real"),
            scenario,
            f"two thirds of {can:,.0f}",
            lambda f: f.rate[0] >= can * 2 / 3,
        )
    splitting = replace(_PLENTY, tables=replace(_NEW, splits=True), seconds=900.0, warm_up=600.0)
    title = "real, 8 workers, new tables that split, 10th to 15th minute"
    yield Cell(section, title, "real", splitting, seeds=1)
    forty = replace(_PLENTY, workers=50)
    yield Cell(section, "real, 50 workers, 40 partitions each", "real", forty, seeds=1)


def _depot_alone() -> Iterator[Cell]:
    section = "The depot alone"
    alone = Scenario(policy="depot alone", batch=99, seconds=40.0, warm_up=10.0)
    for workload in ("hot", "zipf", "real"):
        yield Cell(section, f"{workload}, 8 workers", workload, alone, seeds=3)
    yield Cell(section, "real, 50 workers", "real", replace(alone, workers=50), seeds=3)
    for title, depth in (("10 minutes", TEN_MINUTES), ("1 minute", ONE_MINUTE)):
        lives = replace(alone, depth=depth, seconds=900.0, warm_up=0.0)
        yield Cell(
            *(section, f"real, 8 workers, {title}", "real", lives),
            *("never below today", _above_today),
            seeds=3,
        )


def _first_policy() -> Iterator[Cell]:
    section = FIRST
    growing = Scenario(policy="growing", batch=99)
    one = Scenario(policy="one", batch=99, seconds=25.0, warm_up=5.0)
    eight = replace(_PLENTY, policy="fixed", batch=99, seconds=60.0)
    yield Cell(section, "real, one lane for 8 workers, plenty", "real", one)
    yield Cell(section, "hot, one lane for 8 workers, plenty", "hot", one)
    yield Cell(section, "real, 8 fixed lanes, full, plenty", "real", eight, seeds=3)
    yield Cell(section, "zipf, 8 fixed lanes, full, plenty", "zipf", eight, seeds=3)
    yield Cell(
        *(section, "real, 8 workers, lanes grow, plenty", "real"),
        replace(growing, seconds=60.0),
        seeds=3,
    )
    for title, scenario in (
        ("real, 8 workers, lanes grow, 10 minutes", replace(growing, depth=TEN_MINUTES)),
        (
            "real, 16 workers, lanes grow, 10 minutes",
            replace(growing, depth=TEN_MINUTES, workers=16),
        ),
        ("real, 8 workers, lanes grow, 1 minute", replace(growing, depth=ONE_MINUTE)),
        (
            "real, 8 workers, lanes grow, mixed depths",
            replace(growing, depth=TEN_MINUTES, spread=1.5, seconds=180.0),
        ),
        (
            "real, 50 workers, lanes grow, full, suddenly 10 minutes",
            replace(growing, depth=TEN_MINUTES, workers=50, full=True, seconds=240.0),
        ),
    ):
        long = replace(scenario, seconds=900.0) if scenario.seconds == growing.seconds else scenario
        quick = scenario.depth == ONE_MINUTE
        yield Cell(section, title, "real", long, quick=quick, seeds=3 if quick else 1)


@cache
def _workload(name: str, orders: Path) -> Workload | None:
    return workloads.make(name, 2_000 if name == "hot" else _ORDERS, 1, str(orders))


def measure(cell: Cell, seeds: Sequence[int], orders: Path) -> Figures | None:
    """Run a cell with each seed; None if the file of its workload does not exist."""
    workload = _workload(cell.workload, orders)
    if workload is None:
        return None
    return summarise([simulate(cell.scenario, workload, seed) for seed in seeds[: cell.seeds]])


def summarise(results: Sequence[Result]) -> Figures:
    """Reduce the runs of one cell."""
    rates = [result.rate for result in results]
    return Figures(
        runs=len(results),
        rate=(fmean(rates), min(rates), max(rates)),
        worst=min(result.least for result in results),
        placed=fmean(result.placed for result in results),
        write_units=fmean(result.write_units for result in results),
        requests=fmean(result.requests for result in results),
        conflicts=fmean(result.conflicts for result in results),
        throttled=fmean(result.throttled for result in results),
        batch_p99=fmean(result.batch_p99 for result in results),
        sell_out=max(result.sell_out for result in results),
        handed_back=fmean(result.handed_back for result in results),
        faults=[fault for result in results for fault in result.faults],
        by_second=results[0].by_second,
    )


def times_as_many(figures: Sequence[tuple[Cell, Figures]], workload: str) -> float:
    """How many times the orders of 1 worker 16 workers place, with plenty of stock; NaN if that was not run."""
    plenty = [(cell, found) for cell, found in figures if cell.section == PLENTY]
    rates = {cell.title: found.rate[0] for cell, found in plenty}
    try:
        return rates[f"{workload}, 16 workers"] / rates[f"{workload}, 1 worker"]
    except KeyError:
        return math.nan
