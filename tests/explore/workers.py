"""Runs explorations as tasks in processes of their own, because a run replaces parts of its process for good."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import boto3

from local import ROOT
from testing.handlers import function_names
from tests.explore import mutants
from tests.explore.explorer import Explorer, Failure
from tests.explore.scenarios import SCENARIOS
from tests.explore.world import Handlers, Step

NO_FAULT = "no fault"
CLOCKS = "clocks"
KINDS = (
    *(NO_FAULT, "throttled", "conflict", "lost", "lost-twice", "late", "crash", "crash-after"),
    *("refused", "stale", "torn", "parted", "again", "time", CLOCKS),
)
# AWS refuses requests that were signed more than five minutes ago, or ahead: a clock that is further off does nothing.
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html
_WRONG_CLOCKS = tuple({process: seconds} for process in "AB" for seconds in (240.0, -240.0))
_MODULES = ("inventory_orders", "functions", "operations", "tests.explore.invariants")


@dataclass(frozen=True)
class Task:
    """A part of the exploration.

    Attributes:
        scenario: Name of the scenario.
        kind: For a complete search with two rivals: the kind of its one fault, or no fault. Empty for seeds.
        seeds: Seeds of random schedules with three rivals and two faults.
        most: Stop after this many runs; None for all.
    """

    scenario: str
    kind: str = ""
    seeds: tuple[int, ...] = ()
    most: int | None = None


@dataclass(frozen=True)
class Done:
    """The result of a task.

    Attributes:
        task: The task.
        schedules: Number of distinct runs.
        pruned: Runs that were stopped as repetitions.
        longest: Most steps in a run.
        seconds: Duration of the task.
        failure: The first schedule that broke an invariant.
        error: An error of the exploration itself.
    """

    task: Task
    schedules: int = 0
    pruned: int = 0
    longest: int = 0
    seconds: float = 0.0
    failure: Failure | None = None
    error: str = ""


def tasks_of(scenario: str, most: int | None = None) -> list[Task]:
    """Divide the complete search of a scenario into tasks."""
    faults = SCENARIOS[scenario].faults
    kinds = [k for k in KINDS if faults is None or k == NO_FAULT or k in faults]
    return [Task(scenario, kind, most=most) for kind in kinds]


def run(tasks: Sequence[Task], processes: int) -> Iterator[Done]:
    """Run tasks in parallel, and yield each when it ends."""
    with multiprocessing.get_context("fork").Pool(processes, _quiet) as pool:
        yield from pool.imap_unordered(_explore, tasks)


def catch(names: Sequence[str], processes: int) -> Iterator[tuple[str, Done]]:
    """Explore mutants in parallel until each is caught, and yield each when it ends."""
    _preload()
    # One process per mutant, because an imported module keeps its mistake.
    with multiprocessing.get_context("fork").Pool(processes, _quiet, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(_catch, names)
        # To terminate a pool that is still replacing its processes would now and then leave one behind that waits for ever.
        pool.close()
        pool.join()


def _preload() -> None:
    """Import libraries, read the descriptions of AWS, and tokenize the code: every process forked from here has them."""
    for library in ("metrics", "utilities.data_classes"):
        importlib.import_module(f"aws_lambda_powertools.{library}")
    for service in ("dynamodb", "sqs", "events"):
        boto3.client(service)
    mutants.MUTANTS[0].changes()


def _quiet() -> None:
    warnings.simplefilter("ignore")


_handlers: Handlers | None = None


def handlers(root: Path = ROOT) -> Handlers:
    """Load the handlers of a checkout, once per process."""
    global _handlers  # noqa: PLW0603 - a process has one
    if _handlers is None:
        for name in [name for name in sys.modules if name.startswith(_MODULES)]:
            del sys.modules[name]
        sys.path.insert(0, str(root / mutants.CODE))
        os.environ["POWERTOOLS_SERVICE_NAME"] = "inventory-orders-explored"
        _handlers = Handlers(lambda name: _load(root, name), function_names())
    return _handlers


def _load(root: Path, name: str) -> ModuleType:
    path = root / "functions" / name / "handler.py"
    spec = importlib.util.spec_from_file_location(f"functions.{name}.handler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# From here on the clocks of this process are virtual.
_now = time.perf_counter


def _explore(task: Task) -> Done:
    started = _now()
    try:
        found = explore(task)
    except Exception:
        return Done(task, error=traceback.format_exc())
    return Done(
        task,
        **{name: getattr(found, name) for name in ("schedules", "pruned", "longest", "failure")},
        seconds=_now() - started,
    )


def explore(task: Task) -> Done:
    """Run a task in this process."""
    scenario = SCENARIOS[task.scenario]
    has_clocks = scenario.faults is None or CLOCKS in scenario.faults
    if task.seeds:
        longest = 0
        for count, seed in enumerate(task.seeds, 1):
            clocks = ({}, *_WRONG_CLOCKS)[seed % 5] if has_clocks else {}
            explorer = Explorer(handlers(), scenario, rivals=3, faults=2, clocks=clocks)
            result = explorer.at_random(seed)
            longest = max(longest, result.longest)
            if result.failure is not None:
                return Done(task, count, 0, longest, failure=result.failure)
        return Done(task, len(task.seeds), 0, longest)

    def is_first(step: Step) -> bool:
        action = step.choice.action.removesuffix("-back")
        return action == task.kind or (task.kind == "time" and not step.choice.process)

    total = Done(task)
    for clocks in _WRONG_CLOCKS if task.kind == CLOCKS else ({},):
        faults = 0 if task.kind in {NO_FAULT, CLOCKS} else 1
        explorer = Explorer(handlers(), scenario, 2, faults, clocks=clocks)
        result = explorer.every(is_first, most=task.most)
        total = replace(
            total,
            schedules=total.schedules + result.schedules,
            pruned=total.pruned + result.pruned,
            longest=max(total.longest, result.longest),
            failure=result.failure,
        )
        if result.failure is not None:
            break
    return total


def _catch(name: str) -> tuple[str, Done]:
    mutant = next(mutant for mutant in mutants.MUTANTS if mutant.name == name)
    done = Done(Task(mutant.scenarios[0]))
    schedules, started = 0, _now()
    try:
        with tempfile.TemporaryDirectory() as folder:
            mutants.tree(Path(folder), mutant)
            handlers(Path(folder))
            for scenario in mutant.scenarios:
                tasks = tasks_of(scenario)
                for task in sorted(tasks, key=lambda task: task.kind != mutant.kind):
                    done = _explore(task)
                    schedules += done.schedules
                    if done.failure is not None or done.error:
                        break
                if done.failure is not None or done.error:
                    break
    except Exception:
        done = Done(done.task, error=traceback.format_exc())
    return name, Done(
        done.task, schedules, 0, done.longest, _now() - started, done.failure, done.error
    )


def replay(
    scenario: str,
    schedule: str,
    rivals: int,
    faults: int,
    clocks: Mapping[str, float],
    name: str,
) -> tuple[list[str], str]:
    """Run one schedule, with a mutant if one is named. Returns its trace and the failure."""
    with tempfile.TemporaryDirectory() as folder:
        root = ROOT
        if name:
            root = Path(folder)
            mutants.tree(root, next(m for m in mutants.MUTANTS if m.name == name))
        trace: list[str] = []
        explorer = Explorer(handlers(root), SCENARIOS[scenario], rivals, faults, clocks=clocks)
        result = explorer.replay(schedule, lambda world: trace.extend(world.trace))
    return trace, result.failure.message if result.failure else ""
