"""Runs many tasks in virtual time in one thread, without really waiting.

A task is a greenlet, so its code needs no change. Where it would wait, it switches to the scheduler, which moves the
clock to the next event. Between two waits nothing else runs. Events at the same time happen in the order in which they
were scheduled, so a run can be repeated exactly.
"""

from __future__ import annotations

import heapq
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, ParamSpec, TypeVar
from unittest import mock

from greenlet import getcurrent, greenlet

P = ParamSpec("P")
T = TypeVar("T")


class SchedulerError(Exception):
    """Code waits outside of a task, so nothing can wake it."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Code that runs concurrently with other tasks.

    Attributes:
        owner: The owner of the task. Tasks that it starts get the same owner.
        thread: The greenlet that it runs in.
    """

    owner: Any
    thread: greenlet


class Scheduler:
    """A clock, and the tasks that wait for it.

    Attributes:
        now: Virtual seconds since the start.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Task]] = []
        self._number = count()
        self._hub = getcurrent()
        self._running: Task | None = None

    @property
    def owner(self) -> Any:
        """The owner of the calling task; None outside of tasks."""
        return self._running.owner if self._running else None

    @property
    def current(self) -> Task:
        """The calling task.

        Raises:
            SchedulerError: The caller is not a task.
        """
        if self._running is None:
            raise SchedulerError("only a task can wait: start one with Scheduler.start")
        return self._running

    def start(self, function: Callable[[], None], owner: object = None) -> None:
        """Start a task at the current time. `run` raises the task's exceptions.

        Args:
            function: The code to run.
            owner: The owner of the task; by default the owner of the calling task.
        """
        self.wake(Task(self.owner if owner is None else owner, greenlet(function, self._hub)))

    def sleep(self, seconds: float) -> None:
        """Let the calling task wait."""
        self._at(self.now + max(0.0, seconds), self.current)
        self._hub.switch()

    def block(self) -> None:
        """Stop the calling task until another task wakes it."""
        if self.current:
            self._hub.switch()

    def wake(self, task: Task) -> None:
        """Let a task continue at the current time."""
        self._at(self.now, task)

    def run(self) -> None:
        """Run until no task is waiting for the clock."""
        try:
            while self._events:
                self.now, _, self._running = heapq.heappop(self._events)
                self._running.thread.switch()
        finally:
            self._running = None

    def _at(self, moment: float, task: Task) -> None:
        heapq.heappush(self._events, (moment, next(self._number), task))


class VirtualExecutor(Executor):
    """Replaces `ThreadPoolExecutor`: runs calls concurrently in virtual time, and queues those above the maximum.

    Args:
        scheduler: Runs the calls.
        max_workers: Maximum number of concurrent calls.
    """

    def __init__(self, scheduler: Scheduler, max_workers: int) -> None:
        self._scheduler = scheduler
        self._free = max_workers
        self._queue: deque[Callable[[], None]] = deque()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = _VirtualFuture[T](self._scheduler)

        def call() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)
            future.wake()

        self._queue.append(call)
        if self._free:
            self._free -= 1
            self._scheduler.start(self._work)
        return future

    def _work(self) -> None:
        while self._queue:
            self._queue.popleft()()
        self._free += 1

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        del timeout, chunksize
        futures = [self.submit(fn, *arguments) for arguments in zip(*iterables, strict=False)]
        return (future.result() for future in futures)


class _VirtualFuture(Future[T]):
    """A result that tasks can wait for in virtual time."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._waiting: list[Task] = []

    def result(self, timeout: float | None = None) -> T:
        if not self.done():
            self._waiting.append(self._scheduler.current)
            self._scheduler.block()
        return super().result(timeout)

    def wake(self) -> None:
        """Wake the tasks that wait for the result."""
        while self._waiting:
            self._scheduler.wake(self._waiting.pop())


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Replace all sources of randomness in this process, even the operating system's, with one seeded generator."""
    source = random.Random(seed)
    state = random.getstate()
    random.seed(source.random())
    try:
        # `random` has its own reference, for SystemRandom and `secrets`; `uuid` uses `os.urandom`.
        with (
            mock.patch.object(os, "urandom", source.randbytes),
            mock.patch.object(random, "_urandom", source.randbytes),
        ):
            yield
    finally:
        random.setstate(state)
