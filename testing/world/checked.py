"""A world whose processes move one call at a time, perhaps hit by a fault; each write must keep the invariants."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from inventory_orders.clock import timestamp
from inventory_orders.domain.product import NewProduct
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import KEYS, Table
from testing.aws import ServiceError
from testing.aws.streams import record
from testing.world import ledger
from testing.world.faults import BACK, LOST, THROTTLED, conflict, parts_of
from testing.world.invariants import (
    DEPOT_LEASE,
    GRACE_SECONDS,
    check_end,
    check_write,
    end_of,
)
from testing.world.ledger import Ledger
from testing.world.news import News
from testing.world.process import (
    Call,
    CrashedError,
    LateRequest,
    Line,
    PartedWrite,
    PausingWorld,
    Place,
    Process,
    Stored,
    TornRead,
)
from testing.world.violation import ViolationError

TICK_SECONDS = 0.001
# How long a broken connection takes. The leases of the scenarios are much longer.
LOST_SECONDS = 0.1
# A process that waits for a depot whose lease will not be released polls rarely, to keep runs short.
SECONDS_IN_LINE = 1.0

# As in the stack. A publisher that gets far more records meets a fault in each of its invocations, so it never finishes.
RECORDS_AT_ONCE = 100

GO = "go"
"""The next call of a process, without a fault."""
REFUSED = ("InternalFailure", "try again")


@dataclass(frozen=True, slots=True)
class Change(ledger.Change):
    """A change to an item.

    Attributes:
        number: Number of the write, from 1.
        process: The process that wrote it.
    """

    number: int
    process: Process


class CheckedWorld(PausingWorld):
    """One run.

    Args:
        clocks: By process, how many seconds the clock of its environment is ahead.
        products: The products that are listed at the start.

    Attributes:
        lanes: Number of lanes for the environments that place orders.
        small_batch: As in `LaneSource`. By default, visitors fill each other's lanes, although all batches here are small.
        steps_taken: Number of steps so far.
        faults_used: Number of faults so far.
        late: Requests that have yet to arrive.
        history: The changes to items so far.
        last: By item, its state before its last change.
        invalid: The ids of the messages that must become dead letters.
        news: The events, and the changes that call for them.
        ledger: The books.
    """

    max_steps = 400
    lanes = 0
    small_batch = 0

    def __init__(
        self, clocks: Mapping[str, float] | None = None, products: Sequence[NewProduct] = ()
    ) -> None:
        super().__init__(clocks, products)
        self.steps_taken = self.faults_used = 0
        self.late: list[LateRequest] = []
        self.lock_owners: dict[Place, str] = {}
        self.locked_since: dict[Place, int] = {}
        self.invalid: set[str] = set()
        self.variables["HOLD_GRACE_SECONDS"] = str(GRACE_SECONDS)
        self._applied: set[str] = set()

    def begin(self) -> None:
        """Begin the run with the rows that are there now. Earlier changes are neither kept nor checked."""
        tables = self.aws.dynamodb.tables.items()
        self._initial = {(name, k): row for name, table in tables for k, row in table.items.items()}
        self.history: list[Change] = []
        self.last: dict[Place, dict[str, Any] | None] = {}
        self._changes_of: dict[Place, list[Change]] = defaultdict(list)
        self.news = News()
        self.ledger = Ledger({place: decode(row) for place, row in self._initial.items()})

    def handler(self, function: str) -> ModuleType:
        """The handler of a function, which the caller is about to invoke."""
        if function == "place_orders":
            source: Any = self.process(function).engine_with_lanes.source
            source.small_batch = self.small_batch
        return super().handler(function)

    def environment(self, function: str) -> dict[str, str]:
        lanes = self.lanes if function in {"place_orders", "api"} else 0
        return super().environment(function) | {"LANES": str(lanes)}

    def moment(self, seconds: float = 0.0) -> str:
        """The time this many seconds from now, in the format of the rows."""
        return timestamp(datetime.fromtimestamp(self.clock.seconds + seconds, UTC))

    # ------------------------------------------------------------------ steps

    def tick(self) -> None:
        """Begin a step.

        Raises:
            ViolationError: There were too many steps.
        """
        self.steps_taken += 1
        if self.steps_taken > self.max_steps:
            raise ViolationError("the run does not end")
        self.clock.seconds += TICK_SECONDS

    def forced(self, process: Process) -> str:
        """The fault that hits the next call of a process, because it hit the same call before; else `GO`."""
        call, forced = process.call, process.forced
        is_same = forced is not None and call is not None and call.is_like(forced[1])
        return forced[0] if forced is not None and is_same else GO

    def make_call(self, process: Process, action: str) -> None:
        """Make the next call of a process, and let the process continue with the outcome.

        Args:
            process: The process.
            action: `GO`, or the fault that hits the call.

        Raises:
            ViolationError: The call breaks an invariant.
        """
        self._note_turn(process)
        call, forced = process.call, process.forced
        assert call is not None
        process.call = process.forced = None
        self.faults_used += action != GO and forced is None
        halve = {"torn": self._tear, "parted": self._part}.get(action.removesuffix(BACK))
        if halve is not None:
            halve(process, call, int(action.endswith(BACK)))
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
        self._note_place_in_line(process, call, before)
        self.run(process, outcome)

    def _note_turn(self, process: Process) -> None:
        """Before a process takes a step, note when its invocation began, and allow its late requests to arrive."""
        if process.begun is None and not _is_of_leases(process.call):
            # A read during a transaction may see the state before it.
            process.begun = min(
                (parted.since for parted in self._parted()), default=len(self.history)
            )
        if self.is_in_line(process):
            self.clock.seconds += SECONDS_IN_LINE
        for late in self.late:
            late.repeated = late.repeated or late.process is process

    def _note_place_in_line(self, process: Process, call: Call, before: int) -> None:
        """Note that a process was refused the depot's lease, or what it reads until it asks again."""
        if call.writes == {DEPOT_LEASE}:
            refused = len(self.history) == before
            process.line = Line(before, call.writes) if refused else None
        elif process.line is not None:
            process.line = replace(process.line, watched=process.line.watched | call.reads)

    def is_in_line(self, process: Process) -> bool:
        """Whether a process was refused the depot's lease, and would be refused again, without anything new to read."""
        call, line = process.call, process.line
        if call is None or call.writes != {DEPOT_LEASE} or line is None:
            return False
        return all(change.place not in line.watched for change in self.history[line.since :])

    def has_no_news(self, process: Process) -> bool:
        """Whether a process is waiting for changes in an empty stream, or for messages in an empty queue."""
        call = process.call
        if call is None or not call.is_poll:
            return False
        if call.service == "streams":
            return bool(len(self.streams[call.request["Table"]]) == call.request["From"])
        sqs = self.aws.sqs
        queue = sqs.queues[call.request["QueueUrl"].rsplit("/", 1)[-1]]
        return next(sqs.receivable(queue, self.clock.seconds), None) is None

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

    def arrive(self, late: LateRequest) -> None:
        """Carry out a late request, which arrives now."""
        self.late.remove(late)
        now, late.process.begun = late.process.begun, late.begun
        outcome = self._apply(late.process, late.call)
        late.process.begun = now
        self.trace.append(f"{late.name:4} {late.call} arrives: {_short(outcome)}")

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
        """Apply a transaction, but show only one half of it to others until the next call of the process."""
        before, since = self._items(call.writes), len(self.history)
        outcome = self._apply(process, call)
        written = sorted(p for p, item in self._items(before).items() if item != before[p])
        middle = (len(written) + 1) // 2
        unseen = written[:middle] if first else written[middle:]
        process.parted = PartedWrite({place: before[place] for place in unseen}, outcome, since)
        process.call = replace(call, reads=frozenset(), writes=frozenset(unseen))
        self._note(process, call, f"{_short(outcome)}, but {unseen} is not visible yet")

    def jump(self, seconds: float) -> None:
        """Let time pass, as if all processes were paused."""
        self.clock.seconds += seconds
        self.trace.append(f"     {seconds:g} s pass")
        for process in list(self.processes.values()):
            if not process.is_over and self.clock.seconds >= process.ends_at:
                self.trace.append(f"{process.name:4} has run out of time, so its invocation ends")
                process.call = process.forced = process.torn = process.parted = None
                self.run(process, self._crash(process))

    def _crash(self, process: Process) -> CrashedError:
        self.crashes += 1
        return CrashedError()

    def _note(self, process: Process, call: Call, what: str, outcome: Any = None) -> Any:
        self.trace.append(f"{process.name:4} {call}: {what}")
        return outcome

    # ------------------------------------------------------------------ possible faults

    def has_rivals(self, process: Process) -> bool:
        """Whether another process is running."""
        return any(not p.is_over for p in self.processes.values() if p is not process)

    def changed_since(self, call: Call) -> frozenset[Place]:
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

    def makes_a_change(self, call: Call) -> bool:
        """Whether a call would change anything now."""
        if call.request.get("ClientRequestToken") in self._applied:
            return False
        before, after = self._tried(call)[:2]
        return after != before

    def _tried(self, call: Call) -> tuple[Stored, Stored, ServiceError | None]:
        """Try a call, and undo it. Returns its items before and after it, and its error."""
        before, error = self._items(call.writes), None
        request = {k: v for k, v in call.request.items() if k != "ClientRequestToken"}
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

    # ------------------------------------------------------------------ calls

    def _apply(self, process: Process, call: Call) -> Any:
        """Let the simulated AWS answer a call, and check the changes that it makes."""
        tables, before = self.aws.dynamodb.tables, self._items(sorted(call.writes))
        if call.operation == "ReceiveMessage":
            # The event source receives messages when it continues.
            return {}
        if call.service == "streams":
            waiting = self.streams[call.request["Table"]][call.request["From"] :]
            return {"Records": waiting[:RECORDS_AT_ONCE]}
        if call.service == "events":
            return self._publish(call)
        try:
            outcome: Any = self._answer(call)
        except ServiceError as error:
            return error
        if "ClientRequestToken" in call.request:
            self._applied.add(call.request["ClientRequestToken"])
        if call.operation in {"SendMessage", "SendMessageBatch"}:
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
            self._changes_of[change.place].append(change)
        if changes:
            try:
                check_write(self, number, changes)
            except ViolationError:
                self._note(process, call, "breaks an invariant")
                raise
        return outcome

    def _answer(self, call: Call) -> dict[str, Any]:
        """Let AWS answer a call. A read misses the half of a transaction that is not visible; a write conflicts."""
        unseen: dict[Place, dict[str, Any] | None] = {}
        for parted in self._parted():
            unseen |= parted.unseen
        mine = {
            p: unseen[p] for p in unseen if p in call.writes or meet(frozenset({p}), call.reads)
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
        """List why a transaction is cancelled while another is in flight: the conflict, and failed conditions."""
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
        elif request["QueueUrl"] == self.queues["OrderExpress"].url:
            body = json.loads(request["MessageBody"])
            self.sent[answer["MessageId"]] = ("place_orders", body, None)

    def _read_old(self, call: Call) -> dict[str, Any]:
        """Answer an eventually consistent read with rows as they were before their last change."""
        return self._answer_with(
            {place: self.last[place] for place in self.changed_since(call)}, call
        )

    # ------------------------------------------------------------------ invariants

    def states(self, since: int, table: str, *key: str) -> list[dict[str, Any] | None]:
        """List the states of a row: the state after write number `since`, and all later ones."""
        writes = self._changes_of[table, key]
        before = [change for change in writes if change.number <= since]
        first = before[-1].after if before else _decoded(self._initial.get((table, key)))
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


def meet(writes: frozenset[Place], reads: frozenset[Place]) -> bool:
    """Whether any written item is also read. A query counts as reading all items of its table."""
    return any(place in reads or (place[0], ()) in reads for place in writes)


def _is_of_leases(call: Call | None) -> bool:
    """Whether a call affects only leases of lanes, so that it reveals nothing about rows and pages."""
    places = call.reads | call.writes if call is not None else ()
    return all(table == "Allotments" and "".join(key).endswith("/lease") for table, key in places)
