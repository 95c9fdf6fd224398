"""Runs functions with real concurrency, in processes and in threads."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from testing.world.events import sqs_event
from testing.world.handlers import FakeContext, load_handler

Batches = Sequence[tuple[str, Sequence[Any]]]
"""For each batch, the function's name and the bodies."""

MAX_DELIVERIES = 50


def in_processes(arguments: list[tuple[dict[str, str], Batches]]) -> None:
    """Invoke handlers in several processes, all started at the same moment and fresh, like Lambda environments.

    Args:
        arguments: For each process, the variables of the functions, and its batches.
    """
    context: Any = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(arguments))
    processes = [context.Process(target=_call_handlers, args=(barrier, *a)) for a in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=150)
        assert process.exitcode == 0


def _call_handlers(barrier: Any, environment: dict[str, str], batches: Batches) -> None:
    """Invoke handlers one after the other, as in one Lambda environment, and redeliver returned messages."""
    barrier.wait()
    os.environ.update(environment)
    handlers = {name: load_handler(name) for name, _ in batches}
    for name, bodies in batches:
        left, deliveries = list(bodies), 0
        while left:
            event = sqs_event(*left)
            answer = handlers[name].lambda_handler(event, FakeContext(name))
            returned = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
            records = zip(event["Records"], left, strict=True)
            left = [body for record, body in records if record["messageId"] in returned]
            deliveries += 1
            assert deliveries < MAX_DELIVERIES, f"{len(left)} messages are returned again and again"


def in_threads(work: Callable[[int], Any], count: int) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))
