"""The command `python -m bench`, which runs the benchmarks."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import RESULTS, studies
from bench.cells import Cell, Result, ResultFile, Study, choose
from operations.errors import UserError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
screen = Console(highlight=False)
if not screen.is_terminal:
    # A file has no width, but the tables need one.
    screen = Console(highlight=False, width=150)


@app.command()
def bench(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STUDY | PARAMETER=VALUE,...]...",
            help=f"Studies: {', '.join(studies.NAMES)}. Default: {', '.join(studies.USUAL)}. "
            "A parameter such as workers=1,8 selects the cells with these values; if there are none, all cells get them.",
            show_default=False,
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Measure everything, and for longer.")
    ] = False,
    cells: Annotated[
        bool, typer.Option("--list", help="List the cells and their parameters without measuring.")
    ] = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Measure all cells again, even if they have results.")
    ] = False,
    files: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            "--compare",
            metavar="BEFORE AFTER",
            help="Compare two checkouts' results of the study `scenes` or `growth` (.local/bench.jsonl), without measuring.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Compare the service with its alternatives, or study its parts.

    Each result is saved immediately in .local/bench.jsonl, with a digest of the measured code. Cells that have results
    are skipped, so an interrupted run resumes where it stopped.
    """
    names = [word for word in what or [] if "=" not in word] or studies.USUAL
    given = dict(word.split("=", 1) for word in what or [] if "=" in word)
    if files is not None:
        _compare(names, files)
        return
    chosen = _choose(names, "full" if full else "short", given)
    if cells:
        for cell in chosen:
            screen.print(str(cell), soft_wrap=True)
        return
    began = time.monotonic()
    kept = ResultFile(RESULTS)
    if anew:
        kept.forget(chosen)
    failed = measure(chosen, kept, screen)
    right = report(chosen, kept, screen)
    seconds = time.monotonic() - began
    screen.print(f"\n[dim]{seconds:.0f} s. Results in {RESULTS}[/]", soft_wrap=True)
    if failed or not right:
        raise typer.Exit(1)


def _compare(names: Sequence[str], files: tuple[Path, Path]) -> None:
    """Compare the result files of two checkouts."""
    from bench.studies import growth, scenes  # noqa: PLC0415 - so that --help is quick

    compared = {"scenes": scenes.compare, "growth": growth.compare}
    if len(names) != 1 or names[0] not in compared:
        raise UserError(
            "result files can be compared only in one of the studies `scenes` and `growth`"
        )
    compared[names[0]](*files, screen)


def _choose(names: Sequence[str], size: str, given: Mapping[str, str]) -> list[Cell]:
    """List the cells of the named studies."""
    chosen: list[Cell] = []
    for name in names:
        values = {parameter: texts.split(",") for parameter, texts in given.items()}
        chosen += choose(name, _study(name), size, values)
    known = dict.fromkeys(parameter for cell in chosen for parameter in cell.values)
    for parameter in given.keys() - known.keys():
        raise UserError(f"{parameter} is not a parameter; the parameters are {', '.join(known)}")
    return chosen


def _study(name: str) -> Study:
    if name not in studies.NAMES:
        raise UserError(f"{name} is not a study; the studies are {', '.join(studies.NAMES)}")
    return studies.study(name)


def measure(cells: Sequence[Cell], kept: ResultFile, console: Console) -> bool:
    """Measure the cells that have no result. If one fails, the others are still measured. Returns whether any failed."""
    left = [cell for cell in cells if kept.get(cell) is None]
    if len(left) < len(cells):
        console.print(
            f"{len(cells) - len(left)} of {len(cells)} cells already have results for this code. "
            "To measure them again, use --anew (make: ANEW=1)"
        )
    failed = False
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with progress:
        task = progress.add_task("Starting", total=len(left))
        try:
            for cell, run in _run(left):
                try:
                    kept.add(cell, run.result())
                except UserError as error:
                    failed = True
                    console.print(f"[bold red]{cell}:[/] {error}", soft_wrap=True)
                except Exception as error:
                    failed = True
                    text = "".join(traceback.format_exception(error))
                    console.print(f"[bold red]{cell}:[/]", soft_wrap=True)
                    console.print(text, markup=False, soft_wrap=True)
                progress.update(task, advance=1, description=str(cell))
                if not console.is_terminal:
                    console.print(f"[dim]{cell}[/]", soft_wrap=True)
        except KeyboardInterrupt:
            count = sum(kept.get(cell) is not None for cell in cells)
            console.print(
                f"Interrupted. {count} of {len(cells)} results are saved. To measure the rest, run the same command."
            )
            raise typer.Exit(130) from None
    return failed


def _run(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Future[Result]]]:
    """Measure the cells in real time one after the other, then the simulated ones in parallel."""
    from bench import embedded  # noqa: PLC0415 - so that --help is quick

    with ExitStack() as stack:
        stack.callback(embedded.stop)
        for cell in cells:
            if not cell.is_simulated:
                run: Future[Result] = Future()
                try:
                    run.set_result(studies.study(cell.study).measure(**cell.values))
                except Exception as error:
                    run.set_exception(error)
                yield cell, run
    with ExitStack() as stack:
        # Ctrl-C stops all processes immediately, without a traceback from each.
        pool = ProcessPoolExecutor(
            mp_context=multiprocessing.get_context("spawn"),
            initializer=signal.signal,
            initargs=(signal.SIGINT, signal.SIG_DFL),
        )
        stack.callback(pool.shutdown, cancel_futures=True)
        runs = {
            pool.submit(studies.study(cell.study).measure, **cell.values): cell
            for cell in cells
            if cell.is_simulated
        }
        for done in as_completed(runs):
            yield runs[done], done


def report(cells: Sequence[Cell], kept: ResultFile, console: Console) -> bool:
    """Print the results of the cells. Returns whether all results are correct."""
    right = True
    found = {
        name: [
            (cell.values, result)
            for cell in cells
            if cell.study == name and (result := kept.get(cell)) is not None
        ]
        for name in dict.fromkeys(cell.study for cell in cells)
    }
    for name, results in found.items():
        right = studies.study(name).show(results, console) and right
    if found.get("contenders"):
        from bench import goals  # noqa: PLC0415
        from bench.studies.contenders import figures_of  # noqa: PLC0415
        from bench.studies.overhead import Overhead  # noqa: PLC0415

        figures = figures_of(found["contenders"])
        goals.show(goals.check(figures, Overhead.of(found.get("overhead", ()))), console)
    return right


def main() -> None:
    """Run the command. An error that the user can fix is printed without a traceback."""
    try:
        app()
    except UserError as error:
        Console(stderr=True, highlight=False).print(f"[bold red]Error:[/] {error}", soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
