"""What lanes bring, with the real handlers: `python -m bench.simulator.lanes_figures`, or with `--full` for all of it.

Each cell is simulated without lanes, as the service was before, and with them.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bench import PLOTS, RESULTS, workloads
from bench.capacity import Exchange
from bench.figures import Figures
from bench.simulator.engine import Conditions, Simulation
from bench.workloads import REAL_ORDERS, with_depth

screen = Console(highlight=False)
if not screen.is_terminal:
    screen = Console(highlight=False, width=190)

BATCH = 96
"""Orders of a batch with lanes: with the four pages of a lane they fill one transaction."""

TODAY = 104
"""Real orders a second of 8 workers without lanes (docs/benchmarks.md)."""

_KEPT = RESULTS.with_name("lanes-figures.json")
_WARMED = {"Products": 4, "Orders": 40, "Allotments": 40}
_MANY = {"Products": 4, "Orders": 400, "Allotments": 400}
_NEW = {"Products": 4, "Orders": 4, "Allotments": 4}
_NEW_TABLES_TAKE = 4_000 / 4.78
"""Real orders a second whose rows four partitions can take."""


@dataclass(frozen=True, slots=True)
class Result:
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
        today: Seconds of the window without lanes; 0 if that is not run.
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
    today: float = 0.0
    goal: str = ""
    met: Callable[[Result], bool] | None = None
    quick: bool = False


def figures() -> list[Figure]:
    """List all figures, in the order of the report."""
    return [*_plenty(), *_scarce(), *_starts()]


def _plenty() -> Iterator[Figure]:
    """Plenty of stock, from full lanes: the steady state."""
    goals: Mapping[tuple[str, int], tuple[str, Callable[[Result], bool]]] = {
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
                *(f"{workload}, {_workers(workers)}", workload, workers),
                Conditions(
                    window=seconds,
                    warm_up=settling.get((workload, workers), 5.0),
                    warm=True,
                    batch=BATCH,
                    endless=True,
                    partitions=_MANY if workers >= 16 else _WARMED,
                ),
                today=30.0 if workload == "real" else 10.0,
                goal=goal,
                met=met,
                quick=workers in (1, 8),
            )
    warm = Conditions(
        window=10.0, warm_up=1.0, warm=True, batch=10, endless=True, partitions=_WARMED
    )
    yield Figure(
        *("real, 8 workers, batches of 10", "real", 8, warm),
        today=30.0,
        goal="800",
        met=lambda r: r.rate >= 800,
    )


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _is_above_today(result: Result) -> bool:
    return result.worst >= TODAY


def _scarce() -> Iterator[Figure]:
    """Stock that ends, from empty lanes and from full ones, until 95 % is sold."""
    empty = Conditions(window=900.0, batch=BATCH, endless=True, until=0.05, partitions=_WARMED)
    for workers in (8, 16):
        yield Figure(
            *(f"real, {workers} workers, 1 minute", "real", workers, empty, 60.0),
            goal="never below today",
            met=_is_above_today,
            quick=workers == 8,
        )
    mixed = replace(empty, window=60.0)
    yield Figure(
        *("real, 8 workers, mixed depths", "real", 8, mixed, 600.0, 1.5),
        goal="never below today",
        met=_is_above_today,
    )
    for workers in (8, 16):
        yield Figure(
            *(f"real, {workers} workers, 10 minutes", "real", workers, empty, 600.0),
            goal="800 over the sales; never below today",
            met=lambda r: r.rate >= 800 and _is_above_today(r),
        )
    full = replace(empty, warm=True)
    yield Figure(
        *("real, 8 workers, full lanes and suddenly 1 minute", "real", 8, full, 60.0),
        goal="never below today",
        met=_is_above_today,
    )
    yield Figure(
        *("hot, 8 workers, a sell-out", "hot", 8, replace(empty, until=0.0, window=20.0), 60.0),
        goal="2 s",
        met=lambda r: r.sell_out <= 2,
        quick=True,
    )


def _starts() -> Iterator[Figure]:
    """All workers at once with empty lanes; and few partitions."""
    cold = Conditions(window=20.0, batch=BATCH, endless=True, partitions=_WARMED)
    for workers in (8, 16, 50):
        yield Figure(
            *(f"real, {workers} workers, all start at once", "real", workers, cold),
            goal="never below today",
            met=_is_above_today,
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
            *(f"real, {workers} workers, new tables", "real", workers, new),
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


def measure(number: int, seed: int, orders: Path, *, today: bool) -> Result:
    """Run a figure, without lanes if it is today's."""
    figure = figures()[number]
    count = 2_000 if figure.workload == "hot" else 20_000
    made = workloads.make(figure.workload, count, 1, str(orders))
    made = with_depth(made, figure.depth, figure.spread, seed)
    conditions = figure.conditions
    watch = _Watch(sum(made.stock.values()) / 2.5)
    if today:
        batch = 10 if conditions.batch == 10 else None
        conditions = replace(
            conditions, lanes=0, batch=batch, window=figure.today, warm=False, warm_up=0.0
        )
    contender = "ours_99" if today else "ours_lanes"
    simulation = Simulation(contender, made, figure.workers, seed, replace(conditions, watch=watch))
    simulation.run()
    return _result(simulation.cell(), conditions.warm_up, watch)


def _result(cell: Figures, warm_up: float, watch: _Watch) -> Result:
    answered = cell.placed + cell.refused
    share = cell.placed / answered if answered else math.nan
    first, last = int(warm_up), int(warm_up + cell.seconds)
    return Result(
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


def _mean(results: Sequence[Result]) -> Result:
    """What several seeds came to: the worst ten seconds and the longest sell-out of all, the means of the rest."""
    return Result(
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


def main(
    full: Annotated[bool, typer.Option("--full", help="Measure all figures.")] = False,
    orders: Annotated[
        Path,
        typer.Option(
            help="Real orders: one per line, product codes separated by commas; may be compressed (.gz)."
        ),
    ] = Path(REAL_ORDERS),
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only figures whose title contains this text; can be repeated."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds for each figure.")] = 1,
) -> None:
    """Simulate the service with lanes and without, and compare with the goals.

    The results are printed and written to .local/lanes-figures.json, those of an earlier run kept where they are not
    measured again. With --full the plot in docs/ is drawn, from all results that are kept: it can be measured in parts.
    """
    began = time.monotonic()
    known = figures()
    chosen = [
        number
        for number, figure in enumerate(known)
        if (any(text in figure.title for text in only) if only else full or figure.quick)
    ]
    if not chosen:
        raise typer.BadParameter("no figure has that in its title", param_hint="--only")
    found: dict[tuple[int, bool], list[Result]] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=context) as pool:
        runs = {
            pool.submit(measure, number, seed, orders, today=today): (number, today)
            for number in chosen
            for today in (True, False)
            for seed in range(seeds)
            if known[number].today or not today
        }
        for run in as_completed(runs):
            number, today = runs[run]
            result = run.result()
            found.setdefault((number, today), []).append(result)
            if not screen.is_terminal:
                name = "today" if today else "with lanes"
                screen.print(
                    f"{known[number].title}, {name}: {result.rate:,.0f} orders/s "
                    f"({time.monotonic() - began:.0f} s)"
                )
            _write_json(known, found)
    _show(known, found)
    if full:
        _plot(known)
    if not all(result.clean for results in found.values() for result in results):
        raise typer.Exit(1)


def _show(known: Sequence[Figure], found: Mapping[tuple[int, bool], Sequence[Result]]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for heading in (
        *("today/s", "units", "requests", "seeds", "orders/s", "worst 10 s", "placed", "units"),
        *("requests", "conflicts", "p99 s"),
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    table.add_column("", no_wrap=True)
    for number, figure in enumerate(known):
        if (number, False) not in found:
            continue
        lanes = _mean(found[number, False])
        before = ("", "", "")
        if (number, True) in found:
            today = _mean(found[number, True])
            before = (f"{today.rate:,.0f}", f"{today.write_units:.1f}", f"{today.requests:.2f}")
        state = (
            ""
            if figure.met is None
            else "[green]met[/]"
            if figure.met(lanes)
            else "[red]not met[/]"
        )
        if figure.title.endswith("sell-out"):
            state += f" ({lanes.sell_out:.2f} s)"
        table.add_row(
            *(figure.title, *before, str(len(found[number, False])), f"{lanes.rate:,.0f}"),
            "" if math.isnan(lanes.worst) else f"{lanes.worst:,.0f}",
            *(f"{lanes.placed:.0%}", f"{lanes.write_units:.2f}", f"{lanes.requests:.3f}"),
            *(f"{lanes.conflicts:.1%}", f"{lanes.p99:.1f}", figure.goal),
            state if lanes.clean else "[bold red]the books do not balance[/]",
        )
    screen.print(table, "")


def _plot(known: Sequence[Figure]) -> None:
    """Draw orders a second by workers, with lanes and without, into docs/, as far as they are kept."""
    import matplotlib as mpl  # noqa: PLC0415 - slow to import, and only in the benchmarks' environment

    mpl.use("agg")
    mpl.rcParams.update({"font.size": 9, "axes.titlesize": 10})
    from matplotlib import pyplot as plt  # noqa: PLC0415

    kept = _read_json()
    figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.4), layout="constrained", sharey=True)
    titles = {"hot": "one hot product", "zipf": "Zipf, 1 to 5 lines", "real": "real orders"}
    for axis, (workload, title) in zip(axes, titles.items(), strict=True):
        for today, label, colour in (
            (False, "with lanes", "#0072B2"),
            (True, "without", "#D55E00"),
        ):
            points = {
                figure.workers: fmean(result["rate"] for result in results)
                for figure in known
                if figure.title == f"{workload}, {_workers(figure.workers)}"
                and (results := kept.get(_name(figure, today=today)))
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
    figure.savefig(PLOTS / "bench-lanes-simulated.png", dpi=115, metadata={"Software": None})


def _write_json(
    known: Sequence[Figure], found: Mapping[tuple[int, bool], Sequence[Result]]
) -> None:
    kept = _read_json()
    for (number, today), results in found.items():
        kept[_name(known[number], today=today)] = [asdict(result) for result in results]
    _KEPT.parent.mkdir(parents=True, exist_ok=True)
    _KEPT.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


def _read_json() -> dict[str, Any]:
    return json.loads(_KEPT.read_text("utf-8")) if _KEPT.is_file() else {}


def _name(figure: Figure, *, today: bool) -> str:
    return f"{figure.title}, {'today' if today else 'with lanes'}"


if __name__ == "__main__":
    typer.run(main)
