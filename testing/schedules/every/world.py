"""The world of one run: at each step, the explorer chooses whose call happens next, and whether a fault hits it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from unittest.mock import patch

from inventory_orders.engine.retrying_client import SweepReport
from testing.world.checked import GO, CheckedWorld, meet
from testing.world.faults import faults_of
from testing.world.invariants import DEPOT_LEASE
from testing.world.process import Call, LateRequest, Place, Process
from testing.world.tables import FEEDS
from testing.world.violation import require
from testing.world.world import handler_of

# A process that waits for a lease keeps asking. Rivals may continue after each of the first refused requests, and
# after the last one. Continuing after one in between makes no difference.
MAX_REFUSALS = 2

# The arrival of a request after its sender has repeated it.
ARRIVES = "arrives"


@dataclass(frozen=True, slots=True)
class Choice:
    """One step of a schedule.

    Attributes:
        process: The process that makes its next call; empty for a step that affects the whole world.
        action: `go`, or the fault that happens instead.
    """

    process: str
    action: str = GO

    def __str__(self) -> str:
        return self.process if self.action == GO else f"{self.process}!{self.action}"

    @classmethod
    def parse(cls, text: str) -> Choice:
        process, _, action = text.partition("!")
        return cls(process, action or GO)


@dataclass(frozen=True, slots=True)
class Step:
    """A possible choice, with the items that it touches.

    Attributes:
        choice: The choice.
        reads: Items that it reads.
        writes: Items that it may write.
        is_fault: Whether it counts as a fault.
        is_global: Whether it commutes with no other step, because it advances time.
    """

    choice: Choice
    reads: frozenset[Place] = frozenset()
    writes: frozenset[Place] = frozenset()
    is_fault: bool = False
    is_global: bool = False

    def commutes_with(self, other: Step) -> bool:
        """Whether the order of two steps makes no difference."""
        if self.choice.process == other.choice.process or self.is_global or other.is_global:
            return False
        if self.is_fault and other.is_fault:
            # Either step may use up the remaining faults.
            return False
        return not (
            self.writes & other.writes
            or meet(self.writes, other.reads)
            or meet(other.writes, self.reads)
        )


@dataclass(frozen=True)
class Scenario:
    """Products, and the rivals (concurrent writers) that change them.

    Attributes:
        name: Name of the scenario.
        set_up: Functions that create the products and do everything else that happens before the run.
        rivals: Functions that start the three rivals `A`, `B` and `C`.
        jumps: Numbers of seconds by which time may jump. Each jump is a fault.
        check: Checks the state at the end of a run, in addition to the invariants.
        faults: The kinds of faults that the complete search covers, one at a time; None for all. Random schedules use
            all kinds.
        switches: How often the complete search may interrupt a process that could continue; 0 for any number of times.
        lanes: Number of lanes for the environments that place orders. With 0, which no real stack has, they always
            sell from rows, so that a complete search is feasible.
        line_works: Whether the depot's lease excludes other processes. If not, every process gets the lease, as if all
            clocks were wrong.
    """

    name: str
    set_up: Sequence[SetUp]
    rivals: Sequence[Rival]
    jumps: tuple[float, ...] = ()
    check: Callable[[World], None] = lambda _: None
    faults: tuple[str, ...] | None = None
    switches: int = 0
    lanes: int = 0
    line_works: bool = True


SetUp = Callable[["World"], None]
"""Prepares a world."""
Rival = Callable[["World", str], None]
"""Starts a process with the given name."""


class World(CheckedWorld):
    """One run of a scenario.

    Args:
        scenario: The scenario.
        rivals: Number of processes at the start.
        faults: Maximum number of faults.
        clocks: By process, how many seconds the clock of its environment is ahead.

    Attributes:
        schedule: The steps so far.
        switches: How often a process was interrupted that could have continued.
    """

    def __init__(
        self,
        scenario: Scenario,
        rivals: int,
        faults: int,
        clocks: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(clocks)
        self.scenario = scenario
        self.rivals = rivals
        self.lanes = scenario.lanes
        self._faults = faults
        self.schedule: list[Choice] = []
        self.switches = 0
        self._before = ""

    @contextmanager
    def open(self) -> Iterator[Self]:
        # Nothing is decided from the overview, and its calls would make every schedule with a sweep longer.
        without = patch.object(handler_of("sweep"), "store_overview", lambda *_: SweepReport())
        with without, super().open():
            yield self

    def begin(self) -> None:
        """Set up the scenario, and start its rivals."""
        for step in self.scenario.set_up:
            step(self)
        for name, start in zip("ABC"[: self.rivals], self.scenario.rivals, strict=False):
            start(self, name)
        # The calls that warmed up the environments are not part of the run.
        self.trace, self.schedule, self.steps_taken = [], [], 0
        self.switches, self._before = 0, ""
        super().begin()

    def warm_up(self, name: str, *bodies: Any, function: str = "place_orders") -> None:
        """Process messages before the run, without a rival, in the environment that a process will have."""
        process = f"{name}{len(self.sent)}-"
        self.deliver(process, function, *bodies, environment=name)
        self.finish(process)
        require(
            not any(queue.messages for queue in self.aws.sqs.queues.values()),
            f"the messages that warm {name} up were not answered",
        )

    def finish(self, name: str) -> None:
        """Run a process to its end without a rival, and remove it. What was put into tables before is not checked."""
        super().begin()
        while not self.processes[name].is_over:
            self.take(Choice(name))
        del self.processes[name]

    def seen(self, service: str, operation: str, request: dict[str, Any]) -> Call:
        call = super().seen(service, operation, request)
        if not self.scenario.line_works and DEPOT_LEASE in call.writes:
            # Every process gets the lease, so the order of their requests does not matter.
            call.request, call.writes = _without_line(request), call.writes - {DEPOT_LEASE}
        return call

    # ------------------------------------------------------------------ steps

    def steps(self) -> list[Step]:
        """List the possible steps: the next call of each process, and faults. Empty at the end of a run."""
        last = self.processes.get(self.schedule[-1].process) if self.schedule else None
        if last is not None and last.call is not None and self._is_waiting(last):
            return [Step(Choice(last.name), last.call.reads, last.call.writes)]
        steps = [self._next_of(process) for process in self._running()]
        if self.faults_used < self._faults:
            for step in [step for step in steps if step.choice.action == GO]:
                steps += self._faults_of(self.processes[step.choice.process], step)
            steps += self._faults_of_the_world(bool(steps))
        arriving = [late for late in self.late if late.repeated and self.makes_a_change(late.call)]
        # Late requests come first: afterwards they are tried again only where a step has happened that affects them.
        return [_arrival(late) for late in arriving] + steps

    def _running(self) -> list[Process]:
        """List the processes that have a call to make, except those whose call would change nothing."""
        running = [
            process
            for process in self.processes.values()
            if not process.is_over and process.call is not None and not self.has_no_news(process)
        ]
        # A read is only torn if an item has changed since its first half.
        running = [process for process in running if self._is_rent(process)] or running
        return [process for process in running if not self.is_in_line(process)] or running

    def _next_of(self, process: Process) -> Step:
        """Make the step for the next call of a process."""
        call, forced = process.call, self.forced(process)
        assert call is not None
        choice = Choice(process.name, forced)
        return Step(choice, call.reads, call.writes, is_global=forced != GO)

    def _is_rent(self, process: Process) -> bool:
        """Whether a process has no half-finished read, or an item has changed since the first half was read."""
        torn = process.torn
        return torn is None or any(c.place in torn.reads for c in self.history[torn.since :])

    def _is_waiting(self, process: Process) -> bool:
        """Whether a process is about to repeat a call that has already been refused `MAX_REFUSALS` times."""
        asks = (str(process.call), len(self.history))
        return process.refusals >= MAX_REFUSALS and asks == process.asked

    def without_switch(self, steps: list[Step]) -> list[Step]:
        """Keep only the steps that continue the process that took the last step, or all steps if it cannot continue."""
        goes_on = any(not s.is_fault and s.choice.process == self._before for s in steps)
        return [
            s
            for s in steps
            if not goes_on or s.choice.process in ("", self._before) or s.choice.action == ARRIVES
        ]

    def _faults_of(self, process: Process, step: Step) -> Iterator[Step]:
        """Yield the steps in which a fault hits the call of this step."""
        nothing = frozenset[Place]()
        for name, fault in faults_of(self, process):
            touched = (step.reads, step.writes) if fault.is_applied else (nothing, nothing)
            choice = Choice(process.name, name)
            yield Step(choice, *touched, is_fault=True, is_global=fault.takes_time)

    def _faults_of_the_world(self, running: bool) -> Iterator[Step]:
        if not running:
            return
        for seconds in self.scenario.jumps:
            yield Step(Choice("", f"{seconds}s"), is_fault=True, is_global=True)
        for process in self.processes.values():
            # A FIFO queue does not deliver a hidden message again.
            if (
                process.batch is not None
                and not process.duplicated
                and not process.batch[1].is_fifo
            ):
                yield Step(Choice(process.name, "again"), is_fault=True)

    def take(self, choice: Choice) -> None:
        """Take a step.

        Raises:
            ViolationError: The step breaks an invariant.
        """
        self.schedule.append(choice)
        self.tick()
        if choice.action == ARRIVES:
            self.arrive(next(e for e in self.late if e.repeated and e.name == choice.process))
        elif not choice.process:
            self.faults_used += 1
            self.jump(float(choice.action.removesuffix("s")))
        elif choice.action == "again":
            self.faults_used += 1
            self._again(self.processes[choice.process])
        else:
            self._note_switch(self.processes[choice.process])
            self.make_call(self.processes[choice.process], choice.action)

    def _note_switch(self, process: Process) -> None:
        """Count it if a process is about to interrupt another one that could continue."""
        stopped = self.processes.get(self._before)
        if stopped not in (None, process):
            self.switches += not stopped.is_over and not self.is_in_line(stopped)
        self._before = process.name

    def _again(self, process: Process) -> None:
        """Deliver the messages of a process a second time."""
        process.duplicated = True
        assert process.batch is not None
        function, queue, messages = process.batch
        self.trace.append(f"{process.name:4} its messages are redelivered")
        self.start(f"{process.name}'", function, queue, messages)
        self.processes[f"{process.name}'"].duplicated = True

    def wake(self) -> bool:
        """Wait until a message is visible, then deliver it. Returns False at the end of the run."""
        waiting = [
            (max(message.visible_at for message in queue.messages), feed.function, queue)
            for name, feed in FEEDS.items()
            if (queue := self.queues[name]).messages
        ]
        if not waiting:
            return False
        at, function, queue = min(waiting, key=lambda entry: entry[:2])
        self.clock.seconds = max(self.clock.seconds, at)
        messages = self.poll(queue)
        name = f"R{self.invocations}"
        self.trace.append(f"{name:4} {len(messages)} messages are redelivered")
        if messages:
            self.start(name, function, queue, messages)
        return True

    def check_end(self) -> None:
        super().check_end()
        self.scenario.check(self)


def _without_line(request: dict[str, Any]) -> dict[str, Any]:
    """Make a write's conditions on the depot's lease always true."""
    entries = request.get("TransactItems", [{"Update": request}])
    for action in (content for entry in entries for content in entry.values()):
        if action.get("Key") == {"page": {"S": DEPOT_LEASE[1][0]}}:
            action["ConditionExpression"] = (
                f"{action['ConditionExpression']} OR attribute_exists(#lockedBy) "
                "OR attribute_not_exists(#lockedBy)"
            )
    return request


def _arrival(late: LateRequest) -> Step:
    """The step in which a late request finally arrives."""
    return Step(Choice(late.name, ARRIVES), late.call.reads, late.call.writes)
