"""What lanes bring, with the real handlers: each figure is simulated with lanes, and from rows, without them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from bench import PLOTS, report
from bench.capacity import Exchange
from bench.cells import Found, Result, Study, Value
from bench.figures import Figures
from bench.simulator.engine import Conditions, Simulation
from bench.workloads import REAL_ORDERS, make, with_depth
from operations.errors import UserError

LANES, ROWS = "lanes", "rows"
"""The ways: from lanes, or from the products' rows."""

BATCH = 96
"""Orders of a batch with lanes: with the four pages of a lane they fill one transaction."""

WITHOUT = 104
"""Real orders a second of 8 workers without lanes (docs/benchmarks.md)."""

_WARMED = {"Products": 4, "Orders": 40, "Allotments": 40}
_MANY = {"Products": 4, "Orders": 400, "Allotments": 400}
_NEW = {"Products": 4, "Orders": 4, "Allotments": 4}
_NEW_TABLES_TAKE = 4_000 / 4.78
"""Real orders a second whose rows four partitions can take."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The figures of one run. "An order" is an answered one.

    Attributes:
        rate: Orders answered a second.
        worst: The same in the worst ten seconds; NaN where the run was shorter.
        placed: Share of the answered orders that were placed.
        write_units: Write units of an order, without the index.
        requests: Requests of an order to DynamoDB.
        conflicts: Share of the transactions that lost against a rival.
        p99: Seconds from receipt to durable, 99th percentile.
        sell_out: Seconds from the first order after half of the stock that was not paid by a lane, to the last one
            that was placed.
        clean: Whether the books balance.
        by_second: Orders answered in each second.
    """

    rate: float
    worst: float
    placed: float
    write_units: float
    requests: float
    conflicts: float
    p99: float
    sell_out: float
    clean: bool
    by_second: list[int]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    Attributes:
        title: What is measured.
        workload: Name of the workload.
        workers: Number of workers.
        conditions: Under which it runs with lanes.
        depth: Seconds of stock at 500 orders a second; infinite for plenty.
        spread: Standard deviation of the logarithm of the depth.
        rows: Seconds of the window without lanes; 0 if that is not run.
        goal: What is wanted, if something is.
        met: Whether it was reached.
        quick: Whether a short run has it too.
    """

    title: str
    workload: str
    workers: int
    conditions: Conditions
    depth: float = math.inf
    spread: float = 0.0
    rows: float = 0.0
    goal: str = ""
    met: Callable[[Seen], bool] | None = None
    quick: bool = False


def figures() -> list[Figure]:
    """List all figures, in the order of the report."""
    return [*_plenty(), *_scarce(), *_starts()]


def _plenty() -> Iterator[Figure]:
    """Plenty of stock, from full lanes: the steady state."""
    goals: Mapping[tuple[str, int], tuple[str, Callable[[Seen], bool]]] = {
        ("hot", 16): (
            "13,000; 2.2 units",
            lambda r: r.rate >= 13_000 and r.write_units <= 2.2,
        ),
        ("zipf", 8): ("4,000; 3.2 units", lambda r: r.rate >= 4_000 and r.write_units <= 3.2),
        ("real", 1): ("450", lambda r: r.rate >= 450),
        ("real", 8): (
            "3,500; 9 units; 0.1 requests",
            lambda r: r.rate >= 3_500 and r.write_units <= 9 and r.requests <= 0.1,
        ),
    }
    window = {1: 10.0, 8: 5.0, 16: 10.0, 50: 5.0}
    settling = {("real", 16): 20.0, ("zipf", 50): 15.0, ("real", 50): 30.0}
    for workload in ("hot", "zipf", "real"):
        for workers, seconds in window.items():
            goal, met = goals.get((workload, workers), ("", None))
            yield Figure(
                *(_plenty_of(workload, workers), workload, workers),
                Conditions(
                    window=seconds,
                    warm_up=settling.get((workload, workers), 5.0),
                    warm=True,
                    batch=BATCH,
                    endless=True,
                    partitions=_MANY if workers >= 16 else _WARMED,
                ),
                rows=30.0 if workload == "real" else 10.0,
                goal=goal,
                met=met,
                quick=workers in (1, 8),
            )
    warm = Conditions(
        window=10.0, warm_up=1.0, warm=True, batch=10, endless=True, partitions=_WARMED
    )
    yield Figure(
        *("real 8 workers batches of 10", "real", 8, warm),
        rows=30.0,
        goal="800",
        met=lambda r: r.rate >= 800,
    )


def _plenty_of(workload: str, workers: int) -> str:
    return f"{workload} {workers} worker{'s' * (workers > 1)}"


def _is_above_rows(result: Seen) -> bool:
    return result.worst >= WITHOUT


def _scarce() -> Iterator[Figure]:
    """Stock that ends, from empty lanes and from full ones, until 95 % is sold."""
    empty = Conditions(window=900.0, batch=BATCH, endless=True, until=0.05, partitions=_WARMED)
    for workers in (8, 16):
        yield Figure(
            *(f"real {workers} workers 1 minute", "real", workers, empty, 60.0),
            goal="never below rows",
            met=_is_above_rows,
            quick=workers == 8,
        )
    mixed = replace(empty, window=60.0)
    yield Figure(
        *("real 8 workers mixed depths", "real", 8, mixed, 600.0, 1.5),
        goal="never below rows",
        met=_is_above_rows,
    )
    for workers in (8, 16):
        yield Figure(
            *(f"real {workers} workers 10 minutes", "real", workers, empty, 600.0),
            goal="800 over the sales; never below rows",
            met=lambda r: r.rate >= 800 and _is_above_rows(r),
        )
    full = replace(empty, warm=True)
    yield Figure(
        *("real 8 workers full lanes and suddenly 1 minute", "real", 8, full, 60.0),
        goal="never below rows",
        met=_is_above_rows,
    )
    yield Figure(
        *("hot 8 workers a sell-out", "hot", 8, replace(empty, until=0.0, window=20.0), 60.0),
        goal="2 s",
        met=lambda r: r.sell_out <= 2,
        quick=True,
    )


def _starts() -> Iterator[Figure]:
    """All workers at once with empty lanes; and few partitions."""
    cold = Conditions(window=20.0, batch=BATCH, endless=True, partitions=_WARMED)
    for workers in (8, 16, 50):
        yield Figure(
            *(f"real {workers} workers all start at once", "real", workers, cold),
            goal="never below rows",
            met=_is_above_rows,
        )
    new = Conditions(
        window=30.0,
        warm_up=10.0,
        warm=True,
        batch=BATCH,
        endless=True,
        partitions=_NEW,
    )
    for workers in (8, 50):
        yield Figure(
            *(f"real {workers} workers new tables", "real", workers, new),
            goal=f"two thirds of {_NEW_TABLES_TAKE:,.0f}",
            met=lambda r: r.rate >= _NEW_TABLES_TAKE * 2 / 3,
        )


# ---------------------------------------------------------------------- measuring


@dataclass(slots=True)
class _Watch:
    """Counts what the figures of a cell do not tell."""

    half: float
    answered: Counter[int] = field(default_factory=Counter)
    placed: int = 0
    scarce: float = math.inf
    last: float = 0.0

    def __call__(self, exchange: Exchange) -> None:
        if exchange.status != 200 or not exchange.target.endswith("TransactWriteItems"):
            return
        request: Any = exchange.request
        rows = [
            action["Put"]["Item"]
            for action in request["TransactItems"]
            if "Put" in action and action["Put"]["TableName"] == "Orders"
        ]
        self.answered[int(exchange.ended)] += len(rows)
        for row in rows:
            if row["status"]["S"] != "PENDING":
                continue
            self.placed += 1
            self.last = max(self.last, exchange.ended)
            page = row["items"]["L"][0]["M"].get("lanePage", {"S": "0/"})["S"]
            if self.placed > self.half and page.startswith("0/"):
                self.scarce = min(self.scarce, exchange.began)


def cells(size: str) -> Iterator[dict[str, Value]]:
    """All figures, or a few of them, with lanes and as far as they are compared without."""
    for figure in figures():
        if figure.quick or size == "full":
            for way in (ROWS, LANES) if figure.rows else (LANES,):
                yield {
                    "engine": "simulated",
                    "figure": figure.title,
                    "way": way,
                    "orders": REAL_ORDERS,
                    "seed": 0,
                }


def measure(engine: str, figure: str, way: str, orders: str, seed: int) -> Result:
    """Simulate a figure with lanes, or without."""
    del engine
    known = {one.title: one for one in figures()}
    if figure not in known:
        raise UserError(f"{figure} is no figure; there are: {', '.join(known)}")
    chosen = known[figure]
    made = make(chosen.workload, 2_000 if chosen.workload == "hot" else 20_000, 1, orders)
    made = with_depth(made, chosen.depth, chosen.spread, seed)
    conditions = chosen.conditions
    watch = _Watch(sum(made.stock.values()) / 2.5)
    if way == ROWS:
        batch = 10 if conditions.batch == 10 else None
        conditions = replace(
            conditions, lanes=0, batch=batch, window=chosen.rows, warm=False, warm_up=0.0
        )
    contender = "ours_99" if way == ROWS else "ours_lanes"
    simulation = Simulation(contender, made, chosen.workers, seed, replace(conditions, watch=watch))
    simulation.run()
    return asdict(_seen(simulation.cell(), conditions.warm_up, watch))


def _seen(cell: Figures, warm_up: float, watch: _Watch) -> Seen:
    answered = cell.placed + cell.refused
    share = cell.placed / answered if answered else math.nan
    first, last = int(warm_up), int(warm_up + cell.seconds)
    return Seen(
        rate=cell.orders_per_second,
        worst=cell.worst,
        placed=share,
        write_units=cell.write_units * share,
        requests=cell.requests * share,
        conflicts=cell.conflict_rate,
        p99=cell.p99_ms / 1000,
        sell_out=watch.last - watch.scarce,
        clean=cell.clean,
        by_second=[watch.answered[second] for second in range(first, last)],
    )


def _mean(results: Sequence[Seen]) -> Seen:
    """What several seeds came to: the worst ten seconds and the longest sell-out of all, the means of the rest."""
    return Seen(
        *(
            fmean(result.rate for result in results),
            min(result.worst for result in results),
            fmean(result.placed for result in results),
            fmean(result.write_units for result in results),
            fmean(result.requests for result in results),
            fmean(result.conflicts for result in results),
            fmean(result.p99 for result in results),
            max(result.sell_out for result in results),
            all(result.clean for result in results),
            results[0].by_second,
        )
    )


def show(found: Found, screen: Console) -> bool:
    """Print each figure with lanes, beside what it was without, and its goal."""
    seen = _by_figure(found)
    table = report.table("Lanes, simulated", "figure")
    for heading in (
        *("rows/s", "units", "requests", "seeds", "orders/s", "worst 10 s", "placed", "units"),
        *("requests", "conflicts", "p99 s", "sell-out s"),
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("goal", ""):
        table.add_column(heading, no_wrap=True)
    for figure in figures():
        results = seen.get((figure.title, LANES))
        if results:
            before = seen.get((figure.title, ROWS))
            table.add_row(figure.title, *_row(figure, results, before))
    screen.print(table, "")
    return all(one.clean for results in seen.values() for one in results)


def _by_figure(found: Found) -> dict[tuple[str, str], list[Seen]]:
    """What was seen with each seed, by figure and way."""
    seen: dict[tuple[str, str], list[Seen]] = {}
    for parameters, result in found:
        seen.setdefault((parameters["figure"], parameters["way"]), []).append(Seen(**result))
    return seen


def _row(figure: Figure, results: Sequence[Seen], before: Sequence[Seen] | None) -> list[str]:
    lanes, rows = _mean(results), _mean(before) if before else None
    met = figure.met and figure.met(lanes)
    state = {None: "", True: "[green]met[/]", False: "[red]not met[/]"}[met]
    return [
        *((f"{rows.rate:,.0f}", f"{rows.write_units:.1f}") if rows else ("", "")),
        *(f"{rows.requests:.2f}" if rows else "", str(len(results)), f"{lanes.rate:,.0f}"),
        "" if math.isnan(lanes.worst) else f"{lanes.worst:,.0f}",
        *(f"{lanes.placed:.0%}", f"{lanes.write_units:.2f}", f"{lanes.requests:.3f}"),
        *(f"{lanes.conflicts:.1%}", f"{lanes.p99:.1f}"),
        f"{lanes.sell_out:.2f}" if figure.title.endswith("sell-out") else "",
        figure.goal,
        state if lanes.clean else report.UNBALANCED,
    ]


def plot(found: Found) -> list[Path]:
    """Draw orders a second by workers, with lanes and without, into docs/."""
    import matplotlib as mpl  # noqa: PLC0415 - slow to import, and only in the benchmarks' environment

    mpl.use("agg")
    mpl.rcParams.update({"font.size": 9, "axes.titlesize": 10})
    from matplotlib import pyplot as plt  # noqa: PLC0415

    seen = _by_figure(found)
    drawing, axes = plt.subplots(1, 3, figsize=(9.5, 3.4), layout="constrained", sharey=True)
    titles = {"hot": "one hot product", "zipf": "Zipf, 1 to 5 lines", "real": "real orders"}
    for axis, (workload, title) in zip(axes, titles.items(), strict=True):
        for way, label, colour in (
            (LANES, "with lanes", "#0072B2"),
            (ROWS, "without", "#D55E00"),
        ):
            points = {
                figure.workers: fmean(one.rate for one in results)
                for figure in figures()
                if figure.title == _plenty_of(workload, figure.workers)
                and (results := seen.get((figure.title, way)))
            }
            axis.plot(
                *(list(points), list(points.values())), color=colour, marker="o", ms=4, label=label
            )
        axis.set(title=f"{title}: orders/s by workers", xscale="log", yscale="log")
        axis.set_xticks([1, 8, 16, 50], ["1", "8", "16", "50"])
        axis.set_xticks([], minor=True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(visible=True, axis="y", color="#dddddd", linewidth=0.6)
    axes[0].legend(frameon=False)
    path = PLOTS / "bench-lanes-simulated.png"
    drawing.savefig(path, dpi=115, metadata={"Software": None})
    return [path]


STUDY = Study("what lanes bring", cells, measure, show, plot)
