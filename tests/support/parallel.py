"""Runs functions with real concurrency, in processes and in threads."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from testing.events import sqs_event
from testing.handlers import FakeContext, load_handler


def _call(barrier: Any, results: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    barrier.wait()
    results.put(work(*arguments))


def in_processes(
    work: Callable[..., Any], arguments: list[tuple[Any, ...]], start: str = "fork"
) -> list[Any]:
    """Run a function in one process per tuple of arguments, all started at the same moment.

    Args:
        work: The function. It must be importable if processes are spawned.
        arguments: The arguments of each process.
        start: With `fork`, each process inherits the loaded modules. With `spawn`, each starts fresh, like a
            Lambda environment.
    """
    context: Any = multiprocessing.get_context(start)
    barrier, results = context.Barrier(len(arguments)), context.Queue()
    processes = [context.Process(target=_call, args=(barrier, results, work, a)) for a in arguments]
    for process in processes:
        process.start()
    answers = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(timeout=30)
        assert process.exitcode == 0
    return answers


MAX_DELIVERIES = 50


def call_handlers(
    environment: dict[str, str], batches: Sequence[tuple[str, Sequence[Any]]]
) -> None:
    """Invoke handlers one after the other, as in one Lambda environment, and redeliver returned messages.

    Args:
        environment: Variables of the functions.
        batches: For each batch, the function's name and the bodies.
    """
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
