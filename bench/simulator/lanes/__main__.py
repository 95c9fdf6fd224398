"""Runs the study of lanes: `python -m bench.simulator.lanes`, or with `--full` for all of it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import PLOTS, RESULTS
from bench.simulator.lanes import study
from bench.simulator.lanes.model import BATCH
from bench.simulator.lanes.study import Cell, Figures
from bench.workloads import REAL_ORDERS

screen = Console(highlight=False)
if not screen.is_terminal:
    screen = Console(highlight=False, width=180)

Measured = list[tuple[Cell, Figures]]


def main(
    full: Annotated[
        bool, typer.Option("--full", help="Run all cells, with up to five seeds.")
    ] = False,
    orders: Annotated[
        Path,
        typer.Option(
            help="Real orders: one per line, product codes separated by commas; may be compressed (.gz)."
        ),
    ] = Path(REAL_ORDERS),
    only: Annotated[
        str, typer.Option(help="Only cells whose title or section contains this text.")
    ] = "",
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Seeds for each cell; 1 in a short run; at most 5 in a full one."),
    ] = None,
) -> None:
    """Study stock in lanes, which the service does not have yet, in a model of DynamoDB.

    The results are printed and written to .local/lanes.json. A full run also draws the plots in docs/.
    """
    began = time.monotonic()
    chosen = [
        cell
        for cell in study.cells()
        if only.lower() in f"{cell.section} {cell.title}".lower() and (full or only or cell.quick)
    ]
    if not chosen:
        raise typer.BadParameter(f"no cell has {only} in its title", param_hint="--only")
    measured, missing = _measure(chosen, seeds or (5 if full else 1), orders)
    for section in dict.fromkeys(cell.section for cell, _ in measured):
        _show(section, [entry for entry in measured if entry[0].section == section])
    for workload in ("hot", "zipf", "real"):
        if not math.isnan(times := study.times_as_many(measured, workload)):
            screen.print(
                f"{workload}: 16 workers answer {times:.1f} times as many orders as 1 (goal: 14)"
            )
    if missing:
        screen.print(
            f"[yellow]Real orders were left out: {orders} does not exist (--orders FILE).[/]"
        )
    written = [_write_json(measured)]
    if full and not only and not missing:
        written += _plot(measured)
    screen.print(
        f"[dim]{time.monotonic() - began:.0f} s. Written: {', '.join(map(str, written))}[/]",
        soft_wrap=True,
    )
    if any(found.faults for _, found in measured):
        raise typer.Exit(1)


def _measure(cells: Sequence[Cell], seeds: int, orders: Path) -> tuple[Measured, bool]:
    """Run all cells. Returns also whether some were left out."""
    measured: Measured = []
    missing = False
    progress = Progress(
        TextColumn("{task.description:60}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
    )
    with progress:
        task = progress.add_task("", total=len(cells))
        for cell in cells:
            progress.update(task, description=cell.title)
            found = study.measure(cell, range(seeds), orders)
            if found is None:
                missing = True
            else:
                measured.append((cell, found))
                if not screen.is_terminal:
                    screen.print(f"{cell.title}: {found.rate[0]:,.0f} orders/s")
                # A full run takes long: what is measured is kept.
                _write_json(measured)
            progress.advance(task)
    return measured, missing


def _show(section: str, measured: Measured) -> None:
    table = Table(title=section, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for heading in (
        "orders/s",
        "from",
        "to",
        "worst 10 s",
        "placed",
        "units",
        "requests",
        "conflicts",
        "throttled",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("p99 s", justify="right", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    table.add_column("", no_wrap=True)
    for cell, found in measured:
        state = (
            "" if cell.met is None else "[green]met[/]" if cell.met(found) else "[red]not met[/]"
        )
        if found.faults:
            state = f"[bold red]{len(found.faults)} faults: {found.faults[0]}[/]"
        goal = cell.goal
        if cell.section == study.SELL_OUT:
            goal = f"{found.sell_out:.2f} s; {goal}"
        table.add_row(
            cell.title,
            *(f"{rate:,.0f}" for rate in found.rate),
            f"{found.worst:,.0f}",
            f"{found.placed:.0%}",
            f"{found.write_units:.2f}",
            f"{found.requests:.3f}",
            f"{found.conflicts:.1%}",
            f"{found.throttled:.1%}",
            f"{found.batch_p99:.1f}",
            goal,
            state,
        )
    screen.print(table, "")


def _write_json(measured: Measured) -> Path:
    path = RESULTS.with_name("lanes.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    document = [
        {"section": cell.section, "title": cell.title, "goal": cell.goal}
        | {"met": cell.met(found) if cell.met else None}
        | asdict(found)
        for cell, found in measured
    ]
    path.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return path


_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7")


def _plot(measured: Measured) -> list[Path]:
    """Draw how throughput grows with the workers, and how it goes while stock ends."""
    import matplotlib as mpl  # noqa: PLC0415 - slow to import, and only in the benchmarks' environment

    mpl.use("agg")
    mpl.rcParams.update({"font.size": 9, "axes.titlesize": 10})
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (workers, lives) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    _draw_workers(workers, measured)
    _draw_lives(lives, {(c.section, c.title): found.by_second for c, found in measured})
    for axis in (workers, lives):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(visible=True, axis="y", color="#dddddd", linewidth=0.6)
        axis.legend(frameon=False)
    path = PLOTS / "lanes.png"
    figure.savefig(path, dpi=115, metadata={"Software": None})
    return [path]


def _draw_workers(axis: Any, measured: Measured) -> None:
    plenty = [(cell, found) for cell, found in measured if cell.section == study.PLENTY]
    for workload, colour in zip(("hot", "zipf", "real"), _COLOURS, strict=False):
        points = [
            (cell.scenario.workers, found.rate[0])
            for cell, found in plenty
            if cell.workload == workload and cell.scenario.batch == BATCH
        ]
        axis.plot(
            *zip(*points, strict=True), color=colour, marker="o", markersize=4, label=workload
        )
    axis.set(title="Plenty of stock: orders/s by workers", xscale="log", yscale="log")
    axis.set_xticks([1, 8, 16, 50], ["1", "8", "16", "50"])
    axis.set_xticks([], minor=True)


def _draw_lives(axis: Any, by_second: dict[tuple[str, str], list[int]]) -> None:
    lines = {
        "lanes with a depot": (study.SHALLOW, "real, 8 workers, 10 minutes"),
        "lanes that grow": (study.FIRST, "real, 8 workers, lanes grow, 10 minutes"),
    }
    for (label, cell), colour in zip(lines.items(), _COLOURS, strict=False):
        counts = by_second[cell]
        tens = [sum(counts[at : at + 10]) / 10 for at in range(0, len(counts) - 10, 10)]
        axis.plot([10 * at + 5 for at in range(len(tens))], tens, color=colour, label=label)
    axis.axhline(study.TODAY, color="#000000", linewidth=1, linestyle="--", label="today")
    axis.set(
        title="10 minutes of stock, real orders, 8 workers: orders/s",
        xlabel="seconds",
        ylim=(0, None),
    )


if __name__ == "__main__":
    typer.run(main)
