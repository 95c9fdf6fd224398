"""The command `python -m bench`, which runs the benchmarks."""

from __future__ import annotations

import functools
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import contenders, plan, workloads
from bench.figures import Cell
from bench.plan import FULL, QUICK, Size, Step
from local.pattern_costs import Cost
from operations.errors import UserError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
screen = Console(highlight=False)
if not screen.is_terminal:
    # When the output goes to a file it has no width, but the tables need one.
    screen = Console(highlight=False, width=120)

ContenderName = StrEnum("ContenderName", {name: name for name in contenders.NAMES})  # type: ignore[misc]
WorkloadName = StrEnum("WorkloadName", {name: name for name in plan.WORKLOADS})  # type: ignore[misc]


class EngineName(StrEnum):
    """The engines that run the contenders."""

    EMBEDDED = "embedded"
    SIMULATED = "simulated"


@app.command()
def bench(
    full: Annotated[
        bool, typer.Option("--full", help="Measure everything, and for longer.")
    ] = False,
    orders: Annotated[
        Path,
        typer.Option(
            help="Real orders: one per line, product codes separated by commas; may be compressed (.gz)."
        ),
    ] = workloads.REAL_ORDERS,
    engine: Annotated[
        list[EngineName] | None, typer.Option(help="Only this engine; can be repeated.")
    ] = None,
    contender: Annotated[
        list[ContenderName] | None,
        typer.Option(help="Only this contender, on every workload; can be repeated."),
    ] = None,
    workload: Annotated[
        list[WorkloadName] | None, typer.Option(help="Only this workload; can be repeated.")
    ] = None,
    workers: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Only this number of workers; can be repeated."),
    ] = None,
    overhead: Annotated[bool, typer.Option(help="Also measure cold start and CPU.")] = True,
    seed: Annotated[
        int, typer.Option(help="Seed of the orders and of the simulator's randomness.")
    ] = 1,
) -> None:
    """Compare the service with its alternatives.

    The results are printed and written to .local/bench.json. A full run also draws the plots in docs/.
    """
    # Imported late, so that --help is quick.
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
    compared = None if any(chosen) else _measure_patterns()
    checked = goals.check(cells, costs)
    report.show_cells(cells, screen)
    if costs is not None:
        report.show_overhead(costs, screen)
    if compared is not None:
        report.show_patterns(compared, screen)
    report.show_goals(checked, screen)
    written = [report.write_json(cells, costs, checked, notes, compared)]
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
    """Measure all cells. Returns the cells, and notes on those that were left out."""
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
        here = [step for step in steps if not step.workload.startswith("real") or orders.is_file()]
        if len(here) < len(steps):
            notes[f"Real orders were left out: {orders} does not exist (--orders FILE)."] = None
        progress.update(task, total=len(here))
        for step, cell in chain(
            _embedded(stack, here, size, orders, seed), _simulated(stack, here, size, orders, seed)
        ):
            title = contenders.describe(step.contender).title
            last = "skipped"
            if cell is not None:
                cells.append(cell)
                last = f"{title}: {cell.orders_per_second:,.0f} orders/s"
            progress.update(
                task,
                advance=1,
                description=f"{step.engine} {step.workload}, {step.workers} workers",
                last=last,
            )
            if not screen.is_terminal:
                screen.print(f"{step.engine} {step.workload}, {step.workers} workers, {last}")
    return cells, list(notes)


def _embedded(
    stack: ExitStack, steps: Sequence[Step], size: Size, orders: Path, seed: int
) -> Iterator[tuple[Step, Cell | None]]:
    """Measure cells one after the other, because they use real time."""
    chosen = [step for step in steps if step.engine == "embedded"]
    if not chosen:
        return
    from bench import embedded  # noqa: PLC0415

    engine = stack.enter_context(embedded.started())
    for step in chosen:
        made = plan.make(step.workload, size.orders[step.workload], seed, orders)
        window = plan.window(step, size)
        cell = engine.run(step.contender, made, step.workers, seed, window) if made else None
        yield step, cell


def _simulated(
    stack: ExitStack, steps: Sequence[Step], size: Size, orders: Path, seed: int
) -> Iterator[tuple[Step, Cell | None]]:
    """Measure one cell per processor at a time, because they use virtual time."""
    from bench.simulator import engine  # noqa: PLC0415

    chosen = [step for step in steps if step.engine == "simulated"]
    pool = stack.enter_context(ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")))
    simulate = functools.partial(engine.measure, size=size, orders=orders, seed=seed)
    yield from zip(chosen, pool.map(simulate, chosen), strict=True)


def _measure_overhead(size: Size) -> Any:
    from bench import overhead  # noqa: PLC0415

    with screen.status("Cold start and CPU") as spinner:
        return overhead.measure(size.repeats, spinner.update)


def _measure_patterns() -> dict[str, Cost]:
    from bench import embedded, patterns  # noqa: PLC0415

    with screen.status("Decrements and claims among rivals"), embedded.started() as engine:
        return patterns.measure(engine)


def main() -> None:
    """Run the command, and print an error that a person can fix without a traceback."""
    try:
        app()
    except UserError as error:
        Console(stderr=True, highlight=False).print(f"[bold red]Error:[/] {error}", soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
