"""The command line of the exploration, which runs all schedules, or replays one that failed."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import Annotated

import tests.support.environment  # noqa: F401 - drops the caller's AWS settings first

# isort: split
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from testing.schedules.by_chance.town import HAPPENED
from tests.explore import mutants, workers
from tests.explore.scenarios import SCENARIOS

SEEDS = 1_000
SEEDS_BY_CHANCE = 60

app = typer.Typer(add_completion=False, help=__doc__)
console = Console()


@app.command()
def explore(
    processes: Annotated[int, typer.Option(help="Number of processes.")] = os.cpu_count() or 2,
) -> None:
    """Run all schedules of two processes with one fault, 1,000 random schedules of three processes with two faults, 60
    seeds of a whole shop, and all mutants."""
    started = time.perf_counter()
    tasks = _tasks()
    done: list[workers.FinishedTask] = []
    caught: list[tuple[str, workers.FinishedTask]] = []
    with Progress(
        *(TextColumn("{task.description:26}"), BarColumn(), MofNCompleteColumn()),
        *(TextColumn("{task.fields[schedules]:>7,} schedules"), TimeElapsedColumn()),
        console=console,
    ) as progress:
        bar = progress.add_task("Exploring", total=len(tasks), schedules=0)
        for part in workers.run(tasks, processes):
            done.append(part)
            progress.update(bar, advance=1, schedules=sum(p.result.schedules for p in done))
        names = [mutant.name for mutant in mutants.MUTANTS]
        bar = progress.add_task("Mutants of the code", total=len(names), schedules=0)
        by_chance = [mutant.name for mutant in mutants.MUTANTS if mutant.by_chance]
        progress.update(bar, total=len(names) + len(by_chance))
        for name, part in chain(
            workers.catch(names, processes),
            workers.catch(by_chance, processes, by_chance=True),
        ):
            caught.append((name, part))
            progress.update(bar, advance=1, schedules=sum(p.result.schedules for _, p in caught))
    happened = sum((part.result.happened for part in done), Counter[str]())
    console.print(_table_of_scenarios(done), _table_of_mutants(caught))
    problems = [part for part in done if part.failure or part.error]
    absent = sorted(HAPPENED - happened.keys())
    missed = [(name, part) for name, part in caught if not part.failure]
    for part in problems:
        console.print(f"\n[bold]{escape(part.task.scenario)}[/]: {escape(part.error)}")
        if part.failure:
            console.print(escape(str(part.failure)))
            console.print(escape(_how_to_repeat(part)))
    for name, part in missed:
        console.print(f"\n[bold]not caught: {escape(name)}[/] {escape(part.error)}")
    if absent:
        console.print(f"\n[bold]did not happen by chance:[/] {', '.join(absent)}")
    console.print(
        f"{sum(part.result.schedules for part in done):,} schedules, {len(problems)} failures; "
        f"{len(caught) - len(missed)} of {len(caught)} mutants caught; "
        f"{time.perf_counter() - started:.0f} s"
    )
    raise typer.Exit(1 if problems or missed or absent else 0)


def _tasks() -> list[workers.Task]:
    """List the tasks, longest first, with the seeds spread over the scenarios."""
    seeds = range(0, SEEDS, len(SCENARIOS))
    chunks = [
        workers.Task(name, seeds=tuple(start + number for start in seeds if start + number < SEEDS))
        for number, name in enumerate(SCENARIOS)
    ]
    chunks += [workers.Task(workers.BY_CHANCE, seeds=(n,)) for n in range(SEEDS_BY_CHANCE)]
    return chunks + [task for name in SCENARIOS for task in workers.tasks_of(name)]


def _table_of_scenarios(done: Sequence[workers.FinishedTask]) -> Table:
    table = Table(title="Schedules", title_justify="left", box=None)
    for column in ("scenario", "no fault", "one fault", "random", "longest", "clean"):
        table.add_column(column, justify="left" if column == "scenario" else "right")
    for name in (*SCENARIOS, workers.BY_CHANCE):
        parts = [part for part in done if part.task.scenario == name]

        def count(parts: Sequence[workers.FinishedTask]) -> str:
            return f"{sum(part.result.schedules for part in parts):,}"

        table.add_row(
            name,
            count([part for part in parts if part.task.kind == workers.NO_FAULT]),
            count([part for part in parts if part.task.kind not in {"", workers.NO_FAULT}]),
            count([part for part in parts if part.task.seeds]),
            str(max((part.result.longest for part in parts), default=0)),
            "no" if any(part.failure or part.error for part in parts) else "yes",
        )
    return table


def _table_of_mutants(caught: Sequence[tuple[str, workers.FinishedTask]]) -> Table:
    table = Table(title="Mutants", title_justify="left", box=None)
    for column in ("mistake", "schedules", "caught as"):
        table.add_column(column, justify="right" if column == "schedules" else "left")
    order = [mutant.name for mutant in mutants.MUTANTS]
    for name, part in sorted(caught, key=lambda entry: order.index(entry[0])):
        seen = shorten(part.failure.message, 100) if part.failure else "MISSED"
        table.add_row(name, f"{part.result.schedules:,}", escape(seen))
    return table


def _how_to_repeat(part: workers.FinishedTask) -> str:
    assert part.failure is not None
    if part.task.scenario == workers.BY_CHANCE:
        return f"repeat: .venv/bin/python -m tests.explore chance {part.failure.schedule}"
    return (
        f"repeat: .venv/bin/python -m tests.explore replay {part.task.scenario!r} "
        f'"{part.failure.schedule}" --rivals {part.failure.rivals} --faults {part.failure.faults}'
        + "".join(f" --clock {name}={seconds:g}" for name, seconds in part.failure.clocks.items())
    )


def _known(name: str, names: Iterable[str], what: str) -> str:
    """Check a name from the command line."""
    if name in (known := list(names)):
        return name
    close = get_close_matches(name, known, cutoff=0.3)
    raise typer.BadParameter(f"there is no {what} {name!r}; similar: {'; '.join(close) or 'none'}")


def _scenario(name: str) -> str:
    return _known(name, (*SCENARIOS, workers.BY_CHANCE), "scenario")


def _mutant(name: str) -> str:
    return name and _known(name, (mutant.name for mutant in mutants.MUTANTS), "mutant")


Scenario = Annotated[str, typer.Argument(callback=_scenario)]
Mutant = Annotated[str, typer.Option(callback=_mutant, help="Run it with this mutant of the code.")]


@app.command()
def scenario(name: Scenario, processes: int = os.cpu_count() or 2) -> None:
    """Run all schedules of one scenario with each of its faults, and 20 random ones."""
    is_clean = True
    tasks = [*workers.tasks_of(name), workers.Task(name, seeds=tuple(range(20)))]
    for part in workers.run(tasks, processes):
        kind = part.task.kind or "random"
        problem = part.failure or part.error
        said = "clean" if not problem else f"{problem}"
        console.print(f"{kind:12} {part.result.schedules:>7,} schedules  {escape(said)}")
        if part.failure:
            console.print(escape(_how_to_repeat(part)))
        is_clean = is_clean and not problem
    raise typer.Exit(0 if is_clean else 1)


@app.command()
def replay(
    scenario: Scenario,
    schedule: str,
    rivals: int = 2,
    faults: int = 1,
    clock: Annotated[
        list[str] | None, typer.Option(help="PROCESS=SECONDS by which a clock is ahead.")
    ] = None,
    mutant: Mutant = "",
) -> None:
    """Replay one schedule, in the notation that a failure prints."""
    clocks = {
        name: float(ahead) for name, _, ahead in (each.partition("=") for each in clock or ())
    }
    trace, failure = workers.in_a_process(
        workers.replay, scenario, schedule, rivals, faults, clocks, mutant
    )
    console.print(escape("\n".join(trace)))
    console.print(escape(failure) if failure else "clean")
    raise typer.Exit(1 if failure else 0)


@app.command()
def chance(seed: int, mutant: Mutant = "") -> None:
    """Run a whole shop from a seed, and show the last steps if it fails."""
    replay(workers.BY_CHANCE, str(seed), mutant=mutant, clock=None)


@app.command()
def mutant(
    name: Annotated[str, typer.Argument(callback=_mutant)],
    *,
    by_chance: Annotated[bool, typer.Option(help="Catch it by a seed of a whole shop.")] = False,
) -> None:
    """Show how one mutant is caught, step by step."""
    (each,) = (each for each in mutants.MUTANTS if each.name == name)
    ((_, done),) = workers.catch([name], 1, by_chance=by_chance)
    if done.failure is None:
        where = "; ".join(each.scenarios) if not by_chance else workers.BY_CHANCE
        console.print(
            escape(done.error or f"not caught in {done.result.schedules:,} schedules: {where}")
        )
        raise typer.Exit(1)
    console.print(escape(str(done.failure)))
    console.print(escape(f"{_how_to_repeat(done)} --mutant {name!r}"))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(mutants.ROOT) / mutants.CODE))
    app(args=sys.argv[1:] or ["explore"])
