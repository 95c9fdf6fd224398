"""`python -m bench`: the benchmarks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import contenders, plan, workloads
from bench.figures import Cell
from bench.plan import FULL, QUICK, Size, Step
from local.process import LocalError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
screen = Console(highlight=False)
if not screen.is_terminal:
    # A file has no width, and the tables need this.
    screen = Console(highlight=False, width=120)

ContenderName = StrEnum("ContenderName", {name: name for name in contenders.NAMES})  # type: ignore[misc]
WorkloadName = StrEnum("WorkloadName", {name: name for name in plan.WORKLOADS})  # type: ignore[misc]


class EngineName(StrEnum):
    """Where the contenders run."""

    EMBEDDED = "embedded"
    SIMULATED = "simulated"


Measure = Callable[[Step], Cell | None]


@app.command()
def bench(
    full: Annotated[
        bool, typer.Option("--full", help="Everything, and longer: less than an hour.")
    ] = False,
    orders: Annotated[
        Path,
        typer.Option(
            help="Real orders: one a line, product codes separated by commas, .gz or not."
        ),
    ] = workloads.REAL_ORDERS,
    engine: Annotated[
        list[EngineName] | None, typer.Option(help="Only this engine; may be repeated.")
    ] = None,
    contender: Annotated[
        list[ContenderName] | None,
        typer.Option(help="Only this contender, on every workload; may be repeated."),
    ] = None,
    workload: Annotated[
        list[WorkloadName] | None, typer.Option(help="Only this workload; may be repeated.")
    ] = None,
    workers: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Only with so many workers; may be repeated."),
    ] = None,
    overhead: Annotated[bool, typer.Option(help="Measure cold start and CPU too.")] = True,
    seed: Annotated[
        int, typer.Option(help="Of the orders, and of all chance in the simulator.")
    ] = 1,
) -> None:
    """Measure the service beside its alternatives.

    The results are shown, and written to .local/bench.json. A run of everything also draws the plots in docs/.
    """
    # Only now, so that --help is quick.
    from bench import goals, report  # noqa: PLC0415

    size = FULL if full else QUICK
    chosen = (engine or [], contender or [], workload or [], workers or [])
    steps = list(
        plan.steps(
            full=full,
            engines=[name.value for name in engine or EngineName],
            only_contenders=[name.value for name in contender or []],
            only_workloads=[name.value for name in workload or []],
            only_workers=workers or [],
        )
    )
    began = time.monotonic()
    cells, notes = _measure_cells(steps, size, orders, seed)
    costs = _measure_overhead(size) if overhead else None
    checked = goals.check(cells, costs)
    report.show_cells(cells, screen)
    if costs is not None:
        report.show_overhead(costs, screen)
    report.show_goals(checked, screen)
    written = [report.write_json(cells, costs, checked, notes)]
    if not any(chosen):
        written += report.plot(cells)
    for note in notes:
        screen.print(f"[yellow]{note}[/]", soft_wrap=True)
    screen.print(
        f"\n[dim]{time.monotonic() - began:.0f} s. Written: "
        f"{', '.join(str(path) for path in written)}[/]",
        soft_wrap=True,
    )
    if any(not cell.clean for cell in cells if cell.contender.startswith("ours")):
        raise typer.Exit(1)


def _measure_cells(
    steps: Sequence[Step], size: Size, orders: Path, seed: int
) -> tuple[list[Cell], list[str]]:
    """Measure cell by cell. Returns the cells, and notes on what was left out."""
    cells: list[Cell] = []
    notes: dict[str, None] = {}
    progress = Progress(
        TextColumn("{task.description:52}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[last]}"),
        console=screen,
        transient=True,
    )
    with ExitStack() as stack:
        stack.enter_context(progress)
        task = progress.add_task("Starting", total=len(steps), last="")
        engines: dict[str, Measure] = {}
        for step in steps:
            title = contenders.describe(step.contender).title
            progress.update(
                task,
                description=f"{step.engine} {step.workload}: {title}, {step.workers}",
            )
            if step.engine not in engines:
                make = _embedded if step.engine == "embedded" else _simulated
                engines[step.engine] = make(stack, size, orders, seed)
            measure = engines[step.engine]
            if step.workload == "real" and not orders.is_file():
                notes[f"Real orders were left out: {orders} is not there (--orders FILE)."] = None
            elif cell := measure(step):
                cells.append(cell)
                last = f"{title}: {cell.orders_per_second:,.0f} orders/s"
                progress.update(task, last=last)
                if not screen.is_terminal:
                    screen.print(f"{step.engine} {step.workload}, {step.workers} workers, {last}")
            progress.advance(task)
    return cells, list(notes)


def _embedded(stack: ExitStack, size: Size, orders: Path, seed: int) -> Measure:
    from bench import embedded  # noqa: PLC0415

    engine = stack.enter_context(embedded.started())

    def measure(step: Step) -> Cell | None:
        made = plan.make(step.workload, size.orders[step.workload], seed, orders)
        if made is None:
            return None
        return engine.run(step.contender, made, step.workers, seed, size.window[step.workload])

    return measure


def _simulated(_stack: ExitStack, size: Size, orders: Path, seed: int) -> Measure:
    from bench.simulator import engine  # noqa: PLC0415

    def measure(step: Step) -> Cell | None:
        count = engine.supply(step.contender, step.workers, size.rounds)
        if step.workload == "sell-out":
            # Its end is what it is about.
            count, window = size.orders["sell-out"], None
        else:
            window = size.virtual_seconds
        made = plan.make(step.workload, count, seed, orders)
        if made is None:
            return None
        return engine.run(step.contender, made, step.workers, seed, window=window)

    return measure


def _measure_overhead(size: Size) -> Any:
    from bench import overhead  # noqa: PLC0415

    with screen.status("Cold start and CPU") as spinner:
        return overhead.measure(size.repeats, spinner.update)


def main() -> None:
    """Run; what a person can act upon is printed without a traceback."""
    try:
        app()
    except LocalError as error:
        Console(stderr=True, highlight=False).print(f"[bold red]Error:[/] {error}", soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
