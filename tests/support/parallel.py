"""Real concurrency: runs functions in processes and threads."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def _call(barrier: Any, results: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    barrier.wait()
    results.put(work(*arguments))


def in_processes(work: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
    """Run a function in one process per tuple of arguments, all started at the same moment."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(len(arguments)), context.Queue()
    processes = [context.Process(target=_call, args=(barrier, results, work, a)) for a in arguments]
    for process in processes:
        process.start()
    answers = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(timeout=30)
        assert process.exitcode == 0
    return answers


def in_threads(work: Callable[[int], Any], count: int) -> list[Any]:
    """Run a function in several threads."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def set_environment(environment: dict[str, str]) -> None:
    os.environ.update(environment)
