"""Runs explorations as tasks in separate processes, because a run permanently changes its process."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import boto3

from inventory_orders.store.tables import Table
from local import ROOT
from testing.schedules.result import Failure, Result
from testing.world.faults import FAULTS
from tests.explore import mutants
from tests.explore.scenarios import SCENARIOS

T = TypeVar("T")

NO_FAULT = "no fault"
CLOCKS = "clocks"
BY_CHANCE = "by chance"
# A mutant that is marked in mutants.toml must be caught by one of these.
SEEDS_OF_MUTANTS = range(12)
KINDS = (NO_FAULT, *(fault.name for fault in FAULTS), "again", "time", CLOCKS)
# AWS refuses requests signed more than five minutes in the past or future, so a clock that is further off has no
# effect. https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html
_WRONG_CLOCKS = tuple({process: seconds} for process in "AB" for seconds in (240.0, -240.0))
# The code, and what imports it.
_MODULES = (
    *("inventory_orders", "functions", "operations", "testing.world"),
    *("testing.schedules.every", "testing.schedules.by_chance"),
    *("tests.explore.rivals", "tests.explore.scenarios"),
)


@dataclass(frozen=True)
class Task:
    """A part of the exploration.

    Attributes:
        scenario: Name of the scenario, or `by chance`.
        kind: The kind of the one fault, or `no fault`, for a complete search with two rivals. Empty for random
            schedules.
        seeds: Seeds of random schedules with three rivals and two faults.
        most: Stop after this many runs. With None, run all.
    """

    scenario: str
    kind: str = ""
    seeds: tuple[int, ...] = ()
    most: int | None = None


@dataclass(frozen=True)
class FinishedTask:
    """A finished task.

    Attributes:
        task: The task; for a mutant, its last task.
        result: The result; for a mutant, the total of all its tasks.
        error: An error in the exploration itself.
    """

    task: Task
    result: Result = field(default_factory=Result)
    error: str = ""

    @property
    def failure(self) -> Failure | None:
        """The first schedule that broke an invariant."""
        return self.result.failure


def tasks_of(scenario: str, most: int | None = None) -> list[Task]:
    """Divide the complete search of a scenario into tasks."""
    faults = SCENARIOS[scenario].faults
    kinds = [k for k in KINDS if faults is None or k == NO_FAULT or k in faults]
    return [Task(scenario, kind, most=most) for kind in kinds]


def run(tasks: Sequence[Task], processes: int) -> Iterator[FinishedTask]:
    """Run tasks in parallel, and yield each as soon as it ends."""
    with multiprocessing.get_context("fork").Pool(processes, _prepare) as pool:
        yield from pool.imap_unordered(_explore, tasks)


def catch(
    names: Sequence[str], processes: int, *, by_chance: bool = False
) -> Iterator[tuple[str, FinishedTask]]:
    """Explore mutants in parallel until each is caught, and yield each as soon as it ends.

    Args:
        names: The mutants.
        processes: Number of processes.
        by_chance: Whether to catch them by chance, instead of by all schedules of their scenarios.
    """
    _preload()
    one = _catch_by_chance if by_chance else _catch
    # Each mutant has its own process, because a process keeps the bugs of the modules that it has imported.
    with multiprocessing.get_context("fork").Pool(processes, _prepare, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(one, names)
        # Terminating a pool that is still replacing its processes occasionally leaves one behind that waits forever.
        pool.close()
        pool.join()


def _preload() -> None:
    """Import libraries, read AWS's service descriptions, and tokenize the code, for all processes forked from here."""
    for library in ("metrics", "utilities.data_classes"):
        importlib.import_module(f"aws_lambda_powertools.{library}")
    for service in ("dynamodb", "sqs", "events"):
        boto3.client(service)
    mutants.MUTANTS[0].changes()


def _prepare() -> None:
    """Prepare a new process: no warnings, and no garbage collector that scans imported objects again and again."""
    warnings.simplefilter("ignore")
    gc.freeze()
    gc.set_threshold(50_000, 20)


def in_a_process(function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a new process, because a process keeps the code that it has imported."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(function, arguments)


@cache
def _use(root: Path) -> None:
    """Import everything anew, to explore the code of a checkout. A process can explore only one checkout."""
    for name in [name for name in sys.modules if name.startswith(_MODULES)]:
        del sys.modules[name]
    sys.path.insert(0, str(root / mutants.CODE))
    os.environ["POWERTOOLS_SERVICE_NAME"] = "inventory-orders-explored"
    os.environ["POWERTOOLS_METRICS_DISABLED"] = "true"
    # The handlers in `naive` read their settings themselves.
    os.environ.update({f"{table.name}_TABLE_NAME": table.value for table in Table})
    importlib.import_module("testing.world.handlers").FUNCTIONS = root / "functions"


def town_of(root: Path = ROOT) -> Any:
    """The module that runs a whole shop by chance, with the code of a checkout."""
    _use(root)
    return importlib.import_module("testing.schedules.by_chance.town")


def explorer_of(root: Path) -> Any:
    """The explorer of the code of a checkout.

    Returns:
        A function that creates the explorer of a scenario, given its name and the explorer's other arguments.
    """
    _use(root)
    scenarios = importlib.import_module("tests.explore.scenarios").SCENARIOS
    explorer = importlib.import_module("testing.schedules.every.explorer").Explorer
    return lambda name, *more, **options: explorer(scenarios[name], *more, **options)


def _explore(task: Task) -> FinishedTask:
    try:
        return FinishedTask(task, explore(task))
    except Exception:
        return FinishedTask(task, error=traceback.format_exc())


def explore(task: Task, root: Path = ROOT) -> Result:
    """Run a task in this process until a schedule breaks an invariant."""
    total = Result()
    if task.scenario == BY_CHANCE:
        for seed in task.seeds:
            total.add(town_of(root).run(seed))
            if total.failure is not None:
                break
        return total
    scenario = SCENARIOS[task.scenario]
    has_clocks = scenario.faults is None or CLOCKS in scenario.faults
    for seed in task.seeds:
        clocks = ({}, *_WRONG_CLOCKS)[seed % 5] if has_clocks else {}
        explorer = explorer_of(root)(task.scenario, rivals=3, faults=2, clocks=clocks)
        total.add(explorer.at_random(seed))
        if total.failure is not None:
            return total
    if task.seeds:
        return total

    def is_first(step: Any) -> bool:
        action = step.choice.action.removesuffix("-back")
        return action == task.kind or (task.kind == "time" and not step.choice.process)

    for clocks in _WRONG_CLOCKS if task.kind == CLOCKS else ({},):
        faults = 0 if task.kind in {NO_FAULT, CLOCKS} else 1
        explorer = explorer_of(root)(task.scenario, 2, faults, clocks=clocks)
        total.add(explorer.every(is_first, most=task.most))
        if total.failure is not None:
            break
    return total


def _catch(name: str) -> tuple[str, FinishedTask]:
    mutant = mutants.of(name)
    tasks = [task for each in mutant.scenarios for task in tasks_of(each)]
    tasks.sort(key=lambda task: (mutant.scenarios.index(task.scenario), task.kind != mutant.kind))
    return _catch_with(mutant, tasks)


def _catch_by_chance(name: str) -> tuple[str, FinishedTask]:
    tasks = [Task(BY_CHANCE, seeds=(seed,)) for seed in SEEDS_OF_MUTANTS]
    return _catch_with(mutants.of(name), tasks)


def _catch_with(mutant: mutants.Mutant, tasks: Sequence[Task]) -> tuple[str, FinishedTask]:
    total, name = Result(), mutant.name
    try:
        with tempfile.TemporaryDirectory() as folder:
            mutants.tree(Path(folder), mutant)
            for task in tasks:
                total.add(explore(task, Path(folder)))
                if total.failure is not None:
                    break
    except Exception:
        return name, FinishedTask(tasks[0], total, traceback.format_exc())
    return name, FinishedTask(task, total)


def replay(
    scenario: str,
    schedule: str,
    rivals: int,
    faults: int,
    clocks: Mapping[str, float],
    name: str,
) -> tuple[list[str], str]:
    """Run one schedule, with a mutant if one is named. Returns the trace, and the failure if there was one."""
    with tempfile.TemporaryDirectory() as folder:
        root = ROOT
        if name:
            root = Path(folder)
            mutants.tree(root, mutants.of(name))
        if scenario == BY_CHANCE:
            failure = town_of(root).run(int(schedule)).failure
            return (list(failure.trace), failure.message) if failure else ([], "")
        trace: list[str] = []
        explorer = explorer_of(root)(scenario, rivals, faults, clocks=clocks)
        result = explorer.replay(schedule, lambda world: trace.extend(world.trace))
    return trace, result.failure.message if result.failure else ""
