"""The explorer: enumerates all schedules depth first, draws random ones from a seed, or replays one.

The search is stateless: each schedule is run from the start (Godefroid, "Model checking for programming languages
using VeriSoft", POPL 1997). If schedules differ only in the order of steps that commute, only one of them is run, by
means of sleep sets (Godefroid, "Partial-order methods for the verification of concurrent systems", LNCS 1032, 1996): a
step that was tried at a node is not tried again after the node's other steps, until one of these touches the same
item.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

from testing.schedules.every.world import Choice, Scenario, Step, World
from testing.schedules.result import Failure, Result
from testing.world.violation import ViolationError


@dataclass
class _Node:
    """A point in a run at which several steps are possible."""

    open: list[Step]
    asleep: list[Step]
    next: int = 0
    done: list[Step] = field(default_factory=list)

    def advance(self) -> Step | None:
        """Choose the next step to try; None if all have been tried."""
        names = {step.choice for step in self.asleep}
        while self.next < len(self.open):
            step = self.open[self.next]
            self.next += 1
            if step.choice not in names:
                self.done.append(step)
                return step
        return None

    def sleepers_after(self, step: Step) -> list[Step]:
        """List the steps that need not be tried after this one: they were tried before it, and commute with it."""
        earlier = [*self.asleep, *(other for other in self.done if other is not step)]
        return [other for other in earlier if other.commutes_with(step)]


class Explorer:
    """Explores one scenario.

    Args:
        scenario: The scenario to explore.
        rivals: Number of processes at the start.
        faults: Maximum number of faults in a run.
        clocks: By process, how many seconds its clock is ahead.
        reduce: Whether to try only one order of steps that commute.
    """

    def __init__(
        self,
        scenario: Scenario,
        rivals: int = 2,
        faults: int = 1,
        *,
        clocks: Mapping[str, float] | None = None,
        reduce: bool = True,
    ) -> None:
        self._scenario = scenario
        self._rivals = rivals
        self._faults = faults
        self._clocks = clocks or {}
        self._reduce = reduce

    def every(
        self,
        first_fault: Callable[[Step], bool] = lambda _: True,
        *,
        most: int | None = None,
        seen: Callable[[World], None] = lambda _: None,
    ) -> Result:
        """Run every schedule until one fails.

        Args:
            first_fault: Decides whether a fault may be the first one in a run.
            most: Stop after this many runs.
            seen: Called after each run without a failure.
        """
        result, stack = Result(), list[_Node]()
        while True:
            self._run_once(stack, result, first_fault, seen)
            if result.failure or (most is not None and result.schedules + result.pruned >= most):
                return result
            while stack and not self._has_more(stack[-1]):
                stack.pop()
            if not stack:
                return result

    def _has_more(self, node: _Node) -> bool:
        names = {step.choice for step in node.asleep}
        return any(step.choice not in names for step in node.open[node.next :])

    def _run_once(
        self,
        stack: list[_Node],
        result: Result,
        first_fault: Callable[[Step], bool],
        seen: Callable[[World], None],
    ) -> None:
        """Repeat the steps on the stack, advance its last node, and then always take the first possible step."""
        with self._running(result) as world:
            world.begin()
            for depth in count():
                steps = _open_steps(world, lambda world: self._steps(world, first_fault))
                if not steps:
                    break
                step = self._choose(stack, depth, steps)
                if step is None:
                    stack.pop()
                    result.pruned += 1
                    return
                world.take(step.choice)
            world.check_end()
            if world.faults_used or not self._faults:
                result.schedules += 1
            result.longest = max(result.longest, len(world.schedule))
            seen(world)
        if result.failure:
            result.schedules += 1

    @contextmanager
    def _running(self, result: Result) -> Iterator[World]:
        """Open a world, and note the failure that ends its run."""
        world = World(self._scenario, self._rivals, self._faults, self._clocks)
        with world.open():
            try:
                yield world
            except ViolationError as violation:
                result.failure = self._failure(world, violation)

    def _choose(self, stack: list[_Node], depth: int, steps: list[Step]) -> Step | None:
        """Choose the step to take at this depth of the run. None if all have been tried."""
        if depth == len(stack):
            is_first = not stack or not self._reduce
            asleep = [] if is_first else stack[-1].sleepers_after(stack[-1].done[-1])
            stack.append(_Node(steps, asleep))
            return stack[-1].advance()
        node = stack[depth]
        if [step.choice for step in steps] != [step.choice for step in node.open]:
            raise RuntimeError(f"a repeated run took another path: {steps}, before {node.open}")
        return node.advance() if depth == len(stack) - 1 else node.done[-1]

    def _steps(self, world: World, first_fault: Callable[[Step], bool]) -> list[Step]:
        steps = world.steps()
        if 0 < self._scenario.switches <= world.switches:
            steps = world.without_switch(steps)
        if world.faults_used:
            return steps
        return [step for step in steps if not step.is_fault or first_fault(step)]

    def at_random(self, seed: int) -> Result:
        """Run a random schedule from a seed, with faults spread over the run."""
        chance = random.Random(f"{self._scenario.name} {seed}")
        likelihood = chance.choice([0.05, 0.1, 0.2])

        def draw(steps: Sequence[Step]) -> Step:
            faults = [step for step in steps if step.is_fault]
            if faults and chance.random() < likelihood:
                return chance.choice(faults)
            return chance.choice([step for step in steps if not step.is_fault] or faults)

        return self._run_with(draw)

    def replay(self, schedule: str, seen: Callable[[World], None] = lambda _: None) -> Result:
        """Replay a schedule that a failure printed, then keep taking the first possible step until the run ends.

        Args:
            schedule: Choices, separated by spaces.
            seen: Called when the run is over.

        Raises:
            ValueError: A choice of the schedule is not possible.
        """
        wanted = [Choice.parse(text) for text in schedule.split()]

        def next_one(steps: Sequence[Step]) -> Step:
            if not wanted:
                return steps[0]
            choice = wanted.pop(0)
            for step in steps:
                if step.choice == choice:
                    return step
            raise ValueError(
                f"{choice} is not possible; possible steps: {[str(s.choice) for s in steps]}"
            )

        return self._run_with(next_one, seen)

    def _run_with(
        self, pick: Callable[[Sequence[Step]], Step], seen: Callable[[World], None] = lambda _: None
    ) -> Result:
        result = Result(schedules=1)
        with self._running(result) as world:
            try:
                world.begin()
                while steps := _open_steps(world, World.steps):
                    world.take(pick(steps).choice)
                world.check_end()
                result.longest = len(world.schedule)
            finally:
                seen(world)
        return result

    def _failure(self, world: World, violation: ViolationError) -> Failure:
        schedule = " ".join(str(choice) for choice in world.schedule)
        return Failure(
            str(violation),
            tuple(world.trace),
            schedule,
            self._faults,
            self._rivals,
            self._clocks,
        )


def _open_steps(world: World, steps_of: Callable[[World], list[Step]]) -> list[Step]:
    """List the possible steps. If there are none, wait for messages first. Empty at the end of a run."""
    while not (steps := steps_of(world)):
        if not world.wake():
            break
    return steps
