"""The world of one run: at each step, the explorer chooses whose call happens next, and whether a fault hits it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from inventory_orders.clock import timestamp
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import KEYS, Table
from testing.aws import ServiceError
from testing.aws.streams import record
from testing.schedules.every.invariants import check_end, check_write, end_of
from testing.world import ledger
from testing.world.faults import LOST, THROTTLED, conflict, parts_of
from testing.world.ledger import Ledger
from testing.world.news import News
from testing.world.process import (
    Call,
    CrashedError,
    LateRequest,
    PartedWrite,
    PausingWorld,
    Place,
    Process,
    Stored,
    TornRead,
)
from testing.world.tables import FEEDS
from testing.world.violation import ViolationError, require

GRACE_SECONDS = 3
TICK_SECONDS = 0.001
# How long a broken connection takes. The leases of the scenarios are much longer.
LOST_SECONDS = 0.1

_MAY_CONFLICT = {
    *("TransactWriteItems", "TransactGetItems", "UpdateItem", "PutItem", "DeleteItem"),
}

# A process that waits for a lease keeps asking. Rivals may continue after each of the first refused requests, and
# after the last one. Continuing after one in between makes no difference.
MAX_REFUSALS = 2

# The arrival of a request after its sender has repeated it.
ARRIVES = "arrives"
TOKEN = "ClientRequestToken"
# The half of a BatchGetItem that is read first; the other half is read later.
TORN = {"torn": 0, "torn-back": 1}
# The half of a transaction's writes that becomes visible first; the other half follows later. Only a transaction is
# sure to see none or both: docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html
PARTED = {"parted": 0, "parted-back": 1}

# A process that waits for a depot whose lease will not be released polls rarely, to keep runs short.
SECONDS_IN_LINE = 1.0

REFUSED = ("InternalFailure", "try again")
DEPOT_LEASE: Place = ("Allotments", ("0/lease",))


@dataclass(frozen=True, slots=True)
class Choice:
    """One step of a schedule.

    Attributes:
        process: The process that makes its next call; empty for a step that affects the whole world.
        action: `go`, or the fault that happens instead.
    """

    process: str
    action: str = "go"

    def __str__(self) -> str:
        return self.process if self.action == "go" else f"{self.process}!{self.action}"

    @classmethod
    def parse(cls, text: str) -> Choice:
        process, _, action = text.partition("!")
        return cls(process, action or "go")


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
            or _meet(self.writes, other.reads)
            or _meet(other.writes, self.reads)
        )


def _is_of_leases(call: Call | None) -> bool:
    """Whether a call affects only leases of lanes, so that it reveals nothing about rows and pages."""
    places = call.reads | call.writes if call is not None else ()
    return all(table == "Allotments" and "".join(key).endswith("/lease") for table, key in places)


def _meet(writes: frozenset[Place], reads: frozenset[Place]) -> bool:
    """Whether any written item is also read. A query counts as reading all items of its table."""
    return any(place in reads or (place[0], ()) in reads for place in writes)


@dataclass(frozen=True, slots=True)
class Change(ledger.Change):
    """A change to an item.

    Attributes:
        number: Number of the write, from 1.
        process: The process that wrote it.
    """

    number: int
    process: Process


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


class World(PausingWorld):
    """One run of a scenario.

    Args:
        scenario: The scenario.
        rivals: Number of processes at the start.
        faults: Maximum number of faults.
        clocks: By process, how many seconds the clock of its environment is ahead.

    Attributes:
        history: The changes to items so far.
        last: By item, its state before its last change.
        schedule: The steps so far.
        switches: How often a process was interrupted that could have continued.
        invalid: The ids of the messages that must become dead letters.
        news: The events, and the changes that call for them.
        ledger: The books.
    """

    max_steps = 400

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
        self.faults_left = faults
        self.faults_used = 0
        self.late: list[LateRequest] = []
        self.applied: set[str] = set()
        self.history: list[Change] = []
        self.last: dict[Place, dict[str, Any] | None] = {}
        self.lock_owners: dict[Place, str] = {}
        self.locked_since: dict[Place, int] = {}
        self.initial: dict[str, dict[tuple[str, ...], Any]] = {}
        self.schedule: list[Choice] = []
        self.switches = 0
        self._before = ""
        self.changes_of: dict[Place, list[Change]] = defaultdict(list)
        self.invalid: set[str] = set()
        self.news = News()
        self.variables["HOLD_GRACE_SECONDS"] = str(GRACE_SECONDS)

    def begin(self) -> None:
        """Set up the scenario, and start its rivals."""
        for step in self.scenario.set_up:
            step(self)
        for name, start in zip("ABC"[: self.rivals], self.scenario.rivals, strict=False):
            start(self, name)
        self.initial = {name: dict(table.items) for name, table in self.aws.dynamodb.tables.items()}
        # The calls that warmed up the environments are not part of the run.
        self.history, self.last, self.trace, self.schedule = [], {}, [], []
        self.switches, self._before = 0, ""
        self.changes_of.clear()
        self._open_books()

    def _open_books(self) -> None:
        """Start the books from the rows that are there now."""
        tables = self.aws.dynamodb.tables.items()
        items = {(name, key): item for name, table in tables for key, item in table.items.items()}
        self.news = News()
        self.ledger = Ledger({place: decode(item) for place, item in items.items()})

    def environment(self, function: str) -> dict[str, str]:
        lanes = self.scenario.lanes if function == "place_orders" else 0
        return super().environment(function) | {"LANES": str(lanes)}

    def moment(self, seconds: float = 0.0) -> str:
        """The time this many seconds from now, in the format of the rows."""
        return timestamp(datetime.fromtimestamp(self.clock.seconds + seconds, UTC))

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
        self._open_books()
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
        if self.faults_left > 0:
            for step in [step for step in steps if step.choice.action == "go"]:
                steps += self._faults(self.processes[step.choice.process], step)
            steps += self._faults_of_the_world(bool(steps))
        arriving = [late for late in self.late if late.repeated and self._makes_a_change(late.call)]
        # Late requests come first: afterwards they are tried again only where a step has happened that affects them.
        return [_arrival(late) for late in arriving] + steps

    def _running(self) -> list[Process]:
        """List the processes that have a call to make, except those whose call would change nothing."""
        running = [
            process
            for process in self.processes.values()
            if not process.is_over and process.call is not None and not self._has_no_news(process)
        ]
        # A read is only torn if an item has changed since its first half.
        running = [process for process in running if self._is_rent(process)] or running
        return [process for process in running if not self._is_in_line(process)] or running

    def _next_of(self, process: Process) -> Step:
        """Make the step for the next call of a process. If the call repeats the last one, the same fault may hit it
        again.
        """
        call = process.call
        assert call is not None
        if process.forced is not None and self._is_repeated(process):
            choice = Choice(process.name, process.forced[0])
            return Step(choice, call.reads, call.writes, is_global=True)
        return Step(Choice(process.name), call.reads, call.writes)

    def _makes_a_change(self, call: Call) -> bool:
        """Whether a late request would change anything now. If not, there is no need to explore its arrival."""
        if call.request.get(TOKEN) in self.applied:
            return False
        before, after = self._tried(call)[:2]
        return after != before

    def _tried(self, call: Call) -> tuple[Stored, Stored, ServiceError | None]:
        """Try a call, and undo it. Returns its items before and after it, and its error."""
        before, error = self._items(call.writes), None
        request = {name: call.request[name] for name in call.request if name != TOKEN}
        try:
            self.aws.answer(call.service, call.operation, request)
        except ServiceError as refused:
            error = refused
        after = self._items(call.writes)
        self._put_back(before)
        return before, after, error

    def _items(self, places: Iterable[Place]) -> Stored:
        tables = self.aws.dynamodb.tables
        return {p: tables[p[0]].items.get(p[1]) for p in places if p[0] in tables}

    def _put_back(self, items: Stored) -> None:
        for (name, key), item in items.items():
            if item is None:
                self.aws.dynamodb.tables[name].items.pop(key, None)
            else:
                self.aws.dynamodb.tables[name].items[key] = item

    def _is_rent(self, process: Process) -> bool:
        """Whether a process has no half-finished read, or an item has changed since the first half was read."""
        torn = process.torn
        return torn is None or any(c.place in torn.reads for c in self.history[torn.since :])

    def _has_no_news(self, process: Process) -> bool:
        """Whether a process is waiting for changes in an empty stream."""
        call = process.call
        return (
            call is not None
            and call.service == "streams"
            and len(self.streams[call.request["Table"]]) == call.request["From"]
        )

    def _is_waiting(self, process: Process) -> bool:
        """Whether a process is about to repeat a call that has already been refused `MAX_REFUSALS` times."""
        asks = (str(process.call), len(self.history))
        return process.refusals >= MAX_REFUSALS and asks == process.asked

    def _is_in_line(self, process: Process) -> bool:
        """Whether a process was refused the depot's lease, and would still be refused now."""
        call, asked = process.call, process.asked
        return (
            call is not None
            and call.writes == {DEPOT_LEASE}
            and asked is not None
            and asked[0] == str(call)
            and all(change.place != DEPOT_LEASE for change in self.history[asked[1] :])
        )

    def without_switch(self, steps: list[Step]) -> list[Step]:
        """Keep only the steps that continue the process that took the last step, or all steps if it cannot continue."""
        goes_on = any(not s.is_fault and s.choice.process == self._before for s in steps)
        return [
            s
            for s in steps
            if not goes_on or s.choice.process in ("", self._before) or s.choice.action == ARRIVES
        ]

    def _is_repeated(self, process: Process) -> bool:
        assert process.forced is not None
        assert process.call is not None
        before = process.forced[1]
        return (before.operation, before.request) == (process.call.operation, process.call.request)

    def _faults(self, process: Process, step: Step) -> Iterator[Step]:
        call = process.call
        assert call is not None
        if call.service == "streams" or process.torn or process.parted:
            return

        def fault(action: str, *, applied: bool, takes_time: bool = False) -> Step:
            return Step(
                Choice(process.name, action),
                step.reads if applied else frozenset(),
                step.writes if applied else frozenset(),
                is_fault=True,
                is_global=takes_time,
            )

        yield fault("throttled", applied=False, takes_time=True)
        yield fault("crash", applied=False)
        if call.operation in _MAY_CONFLICT:
            yield fault("conflict", applied=False)
        if call.operation == "PutEvents":
            yield fault("refused", applied=True)
        if call.writes:
            yield fault("lost", applied=True, takes_time=True)
            yield fault("lost-twice", applied=True, takes_time=True)
            yield fault("crash-after", applied=True)
            if call.service == "dynamodb":
                yield fault("late", applied=False, takes_time=True)
        elif self._changed_since(call):
            yield fault("stale", applied=True)
        if self._has_rivals(process):
            several = (
                call.operation == "TransactWriteItems"
                and len(call.writes) > 1
                and self._makes_a_change(call)
            )
            for action in (*(TORN if self._may_tear(call) else ()), *(PARTED if several else ())):
                yield fault(action, applied=True)

    def _may_tear(self, call: Call) -> bool:
        """Whether a call reads several items with strong consistency. Only then might code assume that all of them are
        from the same moment.
        """
        entries = call.request["RequestItems"].values() if call.operation == "BatchGetItem" else ()
        return len(call.reads) > 1 and any(entry.get("ConsistentRead") for entry in entries)

    def _has_rivals(self, process: Process) -> bool:
        return any(not p.is_over for p in self.processes.values() if p is not process)

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

    def _changed_since(self, call: Call) -> frozenset[Place]:
        """List the items whose last change an eventually consistent read may miss."""
        if call.operation == "BatchGetItem":
            entries = call.request["RequestItems"]
        elif call.operation == "GetItem":
            entries = {call.request["TableName"]: call.request}
        else:
            return frozenset()
        return frozenset(
            place
            for place in call.reads
            if place in self.last and not entries[place[0]].get("ConsistentRead")
        )

    def take(self, choice: Choice) -> None:
        """Take a step.

        Raises:
            ViolationError: The step breaks an invariant.
        """
        self.schedule.append(choice)
        if len(self.schedule) > self.max_steps:
            raise ViolationError("the run does not end")
        self.clock.seconds += TICK_SECONDS
        if choice.action == ARRIVES:
            self._arrive(choice)
        elif not choice.process:
            self._use_fault()
            self._jump(float(choice.action.removesuffix("s")))
        elif choice.action == "again":
            self._use_fault()
            self._again(self.processes[choice.process])
        else:
            self._make_call(self.processes[choice.process], choice.action)

    def _make_call(self, process: Process, action: str) -> None:
        """Make the next call of a process, and let the process continue with the outcome."""
        self._note_turn(process)
        call, forced = process.call, process.forced
        assert call is not None
        process.call = process.forced = None
        if action != "go" and forced is None:
            self._use_fault()
        if action in TORN:
            self._tear(process, call, TORN[action])
            return
        if action in PARTED:
            self._part(process, call, PARTED[action])
            return
        before = len(self.history)
        if process.parted is not None:
            outcome, process.parted = process.parted.outcome, None
            self._note(process, call, "becomes visible as a whole")
        else:
            outcome = self._outcome(process, call, action, repeated=forced is not None)
        asked = (str(call), before) if len(self.history) == before else None
        process.refusals = process.refusals + 1 if asked and asked == process.asked else 0
        process.asked = asked
        self.run(process, outcome)

    def _note_turn(self, process: Process) -> None:
        """Before a process takes a step, count the switch to it, note when its invocation began, and allow its late
        requests to arrive.
        """
        stopped = self.processes.get(self._before)
        if stopped not in (None, process):
            self.switches += not stopped.is_over and not self._is_in_line(stopped)
        self._before = process.name
        if process.begun is None and not _is_of_leases(process.call):
            # A read during a transaction may see the state before it.
            process.begun = min(
                (parted.since for parted in self._parted()), default=len(self.history)
            )
        if self._is_in_line(process):
            self.clock.seconds += SECONDS_IN_LINE
        for late in self.late:
            late.repeated = late.repeated or late.process is process

    def _use_fault(self) -> None:
        self.faults_left -= 1
        self.faults_used += 1

    def _outcome(self, process: Process, call: Call, action: str, *, repeated: bool) -> Any:
        """Determine the outcome of a process's call."""
        match action:
            case "crash" | "crash-after":
                if action == "crash-after":
                    self._apply(process, call)
                when = action.removeprefix("crash")
                self._note(process, call, f"the invocation crashes {when}".rstrip())
                return self._crash(process)
            case "throttled":
                self._note(process, call, "throttled")
                if not repeated and call.service == "dynamodb":
                    process.forced = ("throttled", call)
                return THROTTLED
            case "conflict":
                if call.operation == "TransactGetItems":
                    # A read is repeated a few times at once, so a single conflict would have no effect.
                    process.forced = ("conflict", call)
                self._note(process, call, "TransactionConflict")
                return conflict(call.operation, call.request)
            case "stale":
                return self._note(process, call, "reads old rows", self._read_old(call))
            case "late":
                self.clock.seconds += LOST_SECONDS
                self.late.append(LateRequest(process, call, process.begun))
                self._note(process, call, "is delayed, and its sender gives up on it")
                return LOST
            case "refused":
                # Refuse the first of several entries, which the others must not overtake.
                first = json.loads(call.request["Entries"][0]["Detail"])["metadata"]["eventId"]
                self.aws.bus.judge = lambda event_id, _: REFUSED if event_id == first else None
        return self._answered(process, call, action, repeated=repeated)

    def _answered(self, process: Process, call: Call, action: str, *, repeated: bool) -> Any:
        """Carry out a process's call. Its response may be lost."""
        outcome = self._apply(process, call)
        if process.torn is not None:
            outcome = _merged(process.torn.answers, outcome)
            process.torn = None
        if action not in {"lost", "lost-twice"}:
            return self._note(process, call, _short(outcome), outcome)
        self.clock.seconds += LOST_SECONDS
        self._note(process, call, f"the response is lost; it was {_short(outcome)}")
        if action == "lost-twice" and not repeated and call.service == "dynamodb":
            process.forced = ("lost-twice", call)
        return LOST

    def _arrive(self, choice: Choice) -> None:
        """Carry out a late request, which arrives now."""
        late = next(late for late in self.late if late.repeated and _arrival(late).choice == choice)
        self.late.remove(late)
        now, late.process.begun = late.process.begun, late.begun
        outcome = self._apply(late.process, late.call)
        late.process.begun = now
        self.trace.append(f"{choice.process:4} {late.call} arrives: {_short(outcome)}")

    def _tear(self, process: Process, call: Call, first: int) -> None:
        """Answer one half of a BatchGetItem. The next call of the process reads the other half."""
        middle = len(call.reads) // 2
        requests = parts_of(call.request, lambda number, _: number < middle)
        halves = [self.seen(call.service, call.operation, request) for request in requests]
        answers = self._apply(process, halves[first])
        process.torn = TornRead(call.reads, answers, len(self.history))
        process.call = halves[1 - first]
        self._note(process, halves[first], "reads these first")

    def _part(self, process: Process, call: Call, first: int) -> None:
        """Apply a transaction, but show only one half of it to others. The other half becomes visible with the next
        call of the process.
        """
        before, since = self._items(call.writes), len(self.history)
        outcome = self._apply(process, call)
        written = sorted(p for p, item in self._items(before).items() if item != before[p])
        middle = (len(written) + 1) // 2
        unseen = written[:middle] if first else written[middle:]
        process.parted = PartedWrite({place: before[place] for place in unseen}, outcome, since)
        process.call = replace(call, reads=frozenset(), writes=frozenset(unseen))
        self._note(process, call, f"{_short(outcome)}, but {unseen} is not visible yet")

    def _note(self, process: Process, call: Call, what: str, outcome: Any = None) -> Any:
        self.trace.append(f"{process.name:4} {call}: {what}")
        return outcome

    def _crash(self, process: Process) -> CrashedError:
        self.crashes += 1
        return CrashedError()

    def _apply(self, process: Process, call: Call) -> Any:
        """Let the simulated AWS answer a call, and check the changes that it makes."""
        tables, before = self.aws.dynamodb.tables, self._items(sorted(call.writes))
        if call.service == "streams":
            return {"Records": self.streams[call.request["Table"]][call.request["From"] :]}
        if call.service == "events":
            return self._publish(call)
        try:
            outcome: Any = self._answer(call)
        except ServiceError as error:
            return error
        if TOKEN in call.request:
            self.applied.add(call.request[TOKEN])
        if call.operation == "SendMessageBatch":
            self._note_sent(call.request, outcome)
        number, changes = len(self.history) + 1, []
        for place, old in before.items():
            new = tables[place[0]].items.get(place[1])
            if new is not old and new != old:
                self.last[place] = old
                changes.append(Change(place, _decoded(old), _decoded(new), number, process))
                if place[0] in self.streams:
                    names = KEYS[Table(place[0])]
                    keys = {n: {"S": value} for n, value in zip(names, place[1], strict=True)}
                    self.streams[place[0]].append(record(keys, old, new, number))
        self.history += changes
        for change in changes:
            self.changes_of[change.place].append(change)
        if changes:
            try:
                check_write(self, number, changes)
            except ViolationError:
                self._note(process, call, "breaks an invariant")
                raise
        return outcome

    def _answer(self, call: Call) -> dict[str, Any]:
        """Let the simulated AWS answer a call. If only half of a transaction is visible, a read misses the other half,
        and a write conflicts.
        """
        unseen: dict[Place, dict[str, Any] | None] = {}
        for parted in self._parted():
            unseen |= parted.unseen
        mine = {
            p: unseen[p] for p in unseen if p in call.writes or _meet(frozenset({p}), call.reads)
        }
        if not mine:
            return self.aws.answer(call.service, call.operation, call.request)
        if "TransactItems" in call.request:
            raise ServiceError(
                "TransactionCanceledException",
                extra={"CancellationReasons": self._reasons(call, mine)},
            )
        if call.writes:
            raise ServiceError("TransactionConflictException", "a transaction is in flight")
        return self._answer_with(mine, call)

    def _answer_with(
        self, items: Mapping[Place, dict[str, Any] | None], call: Call
    ) -> dict[str, Any]:
        """Let the simulated AWS answer a read as if some items had other contents."""
        now = self._items(items)
        self._put_back(items)
        try:
            return self.aws.answer(call.service, call.operation, call.request)
        finally:
            self._put_back(now)

    def _parted(self) -> list[PartedWrite]:
        return [p.parted for p in self.processes.values() if p.parted is not None]

    def _reasons(self, call: Call, unseen: Mapping[Place, Any]) -> list[dict[str, Any]]:
        """List the reasons why a transaction is cancelled while another is in flight: the conflict, and failed
        conditions.
        """
        actions = call.request["TransactItems"]
        reasons: list[dict[str, Any]] = [{"Code": "None"} for _ in actions]
        error = self._tried(call)[2]
        if error is not None:
            reasons = error.extra.get("CancellationReasons", reasons)
        touched = (
            self.aws.dynamodb.touched(call.operation, {"TransactItems": [action]})
            for action in actions
        )
        return [
            reason if unseen.keys().isdisjoint(reads | writes) else {"Code": "TransactionConflict"}
            for reason, (reads, writes) in zip(reasons, touched, strict=True)
        ]

    def _publish(self, call: Call) -> Any:
        """Put events on the bus, and check those that it accepts."""
        bus = self.aws.bus
        known = len(bus.taken)
        answer = bus.put_events(**call.request)
        bus.judge = lambda *_: None
        for event in bus.taken[known:]:
            self.news.hear(event["detail"])
        return answer

    @property
    def bus(self) -> list[dict[str, Any]]:
        """The accepted events."""
        return [event["detail"] for event in self.aws.bus.taken]

    def _note_sent(self, request: dict[str, Any], answer: dict[str, Any]) -> None:
        """Record the messages that a function has sent to another function's queue."""
        if request["QueueUrl"] == self.queues["Expiry"].url:
            bodies = {entry["Id"]: json.loads(entry["MessageBody"]) for entry in request["Entries"]}
            for entry in answer["Successful"]:
                self.sent[entry["MessageId"]] = ("change_orders", bodies[entry["Id"]], None)

    def _read_old(self, call: Call) -> dict[str, Any]:
        """Answer an eventually consistent read with rows as they were before their last change."""
        return self._answer_with(
            {place: self.last[place] for place in self._changed_since(call)}, call
        )

    def _jump(self, seconds: float) -> None:
        """Let time pass, as if all processes were paused."""
        self.clock.seconds += seconds
        self.trace.append(f"     {seconds:g} s pass")
        for process in list(self.processes.values()):
            if not process.is_over and self.clock.seconds >= process.ends_at:
                self.trace.append(f"{process.name:4} has run out of time, so its invocation ends")
                process.call = process.forced = process.torn = process.parted = None
                self.run(process, self._crash(process))

    def _again(self, process: Process) -> None:
        """Deliver the messages of a process a second time."""
        process.duplicated = True
        assert process.batch is not None
        function, queue, messages = process.batch
        self.trace.append(f"{process.name:4} its messages are redelivered")
        self.start(f"{process.name}'", function, queue, messages)
        self.processes[f"{process.name}'"].duplicated = True

    def wake(self) -> bool:
        """When no process can run, wait until a message is visible, then deliver it. Returns False at the end of the
        run.
        """
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

    # ------------------------------------------------------------------ invariants

    def states(self, since: int, table: str, *key: str) -> list[dict[str, Any] | None]:
        """List the states of a row: the state after write number `since`, and all later ones."""
        writes = self.changes_of[table, key]
        before = [change for change in writes if change.number <= since]
        first = before[-1].after if before else _decoded(self.initial.get(table, {}).get(key))
        return [first, *(change.after for change in writes[len(before) :])]

    def error_codes(self, message_id: str) -> list[str]:
        """List the error codes of the dead letters for a message."""
        return [
            message.attributes["errorCode"]["StringValue"]
            for queue in self.aws.sqs.queues.values()
            if "Dead" in queue.name
            for message in queue.messages
            if message.attributes.get("originalMessageId", {}).get("StringValue") == message_id
        ]

    def check_acknowledged(self, message_id: str, process: Process) -> None:
        """Check that an acknowledged message has a durable result, or an answer that was true during the invocation."""
        end = end_of(self, message_id, process.begun or 0)
        if end is None:
            function, body, _ = self.sent[message_id]
            raise ViolationError(f"{function} acknowledged {body} without a durable result")

    def check_end(self) -> None:
        """Check everything that must hold at the end of a run."""
        check_end(self)
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
    choice = Choice(f"{late.process.name}*", ARRIVES)
    return Step(choice, late.call.reads, late.call.writes)


def _decoded(item: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if item is None else decode(item)


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Merge the answers to the halves of a BatchGetItem."""
    names = first["Responses"].keys() | second["Responses"].keys()
    responses = {
        name: first["Responses"].get(name, []) + second["Responses"].get(name, []) for name in names
    }
    return second | {"Responses": responses}


def _short(outcome: Any) -> str:
    """Describe an outcome in a few words."""
    if not isinstance(outcome, ServiceError):
        return "ok"
    reasons = [reason["Code"] for reason in outcome.extra.get("CancellationReasons", ())]
    return f"cancelled {reasons}" if reasons else outcome.code
