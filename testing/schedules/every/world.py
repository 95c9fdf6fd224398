"""The world of one run, with tables and queues in memory, and invocations that pause before every AWS call.

Each invocation is a greenlet. It pauses before each call, and the explorer chooses whose call happens next and whether
a fault hits it. Nothing else may differ between runs, so time is virtual, tokens are numbered, and jitter is always at
its upper bound.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import os
import random
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from botocore.exceptions import ReadTimeoutError
from greenlet import getcurrent, greenlet

from inventory_orders.store.tables import INDEXES, KEYS, Table
from testing.aws import Queue, ServiceError, SimulatedAws, answered_directly_by
from testing.world import ledger
from testing.world.clock import ManualClock, virtual_time
from testing.world.events import event_of_received
from testing.world.handlers import FakeContext
from testing.world.ledger import Ledger, Place
from testing.world.news import News
from testing.world.tables import (
    FEEDS,
    NAMES,
    QUEUES,
    UNDELIVERABLE,
    creation,
    queue_settings,
    settings,
)
from testing.world.violation import ViolationError

INVOCATION_SECONDS = 30.0
VISIBILITY_SECONDS = 180.0
GRACE_SECONDS = 3
MAX_RECEIVE_COUNT = 1000
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

URLS = {name: Queue(name).url for name in QUEUES}
# Functions that raise on purpose, to be invoked again.
RAISES = {"publish_events": "NotAllPublishedError", "sweep": "RepairNeededError"}

DEPOT_LEASE: Place = ("Allotments", ("0/lease",))


class GaveUpError(Exception):
    """The function raised an exception on purpose."""


class CrashedError(BaseException):
    """The invocation has crashed. Derived from BaseException, so that no handler catches it and continues."""


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


@dataclass(slots=True)
class Call:
    """The next AWS call of a process."""

    service: str
    operation: str
    request: dict[str, Any]
    reads: frozenset[Place]
    writes: frozenset[Place]

    def __str__(self) -> str:
        places = ", ".join(
            sorted(f"{name}/{'/'.join(key)}" for name, key in self.reads | self.writes)
        )
        return f"{self.operation} {places}"


@dataclass(slots=True)
class LateRequest:
    """A request that its sender has given up on, but that DynamoDB has yet to receive.

    Attributes:
        process: Its sender.
        call: The request.
        repeated: Whether the sender has continued. Until then, its arrival would have the effect of a lost response.
    """

    process: Process
    call: Call
    repeated: bool = False

    @property
    def step(self) -> Step:
        """The step in which the request finally arrives."""
        return Step(Choice(f"{self.process.name}*", ARRIVES), self.call.reads, self.call.writes)


@dataclass(slots=True)
class TornRead:
    """A BatchGetItem with one half answered.

    Attributes:
        reads: All items that it reads.
        answers: The answers to the first half.
        since: Number of writes before the first half was read.
    """

    reads: frozenset[Place]
    answers: dict[str, Any]
    since: int


@dataclass(slots=True)
class PartedWrite:
    """A transaction with one half visible.

    Attributes:
        unseen: The items of the other half, as they were before the transaction.
        outcome: Its response.
        since: Number of writes before it.
    """

    unseen: dict[Place, dict[str, Any] | None]
    outcome: Any
    since: int


@dataclass(slots=True)
class Process:
    """An event source or a client, which invokes functions one after the other.

    Attributes:
        name: Its name in schedules.
        body: The code that runs inside the greenlet.
        call: The AWS call that it will make next.
        forced: The action to apply if it repeats its last call.
        ends_at: Unix time at which Lambda ends its invocation.
        begun: Number of writes before its invocation first called AWS about anything but leases of lanes. None until
            then.
        asked: Its last call, if it changed nothing, and the number of writes before that call.
        refusals: How often it has repeated the call in `asked` without effect.
        environment: Its execution environment, which keeps state between invocations.
        batch: The queue and the messages, for an event source.
        clock: How many seconds its clock is ahead.
        torn: The first half of a batch read. Its next call reads the other half.
        parted: Its half-visible transaction, which becomes fully visible with its next step.
    """

    name: str
    body: Callable[[Process], None]
    green: Any = None
    call: Call | None = None
    forced: tuple[str, Call] | None = None
    ends_at: float = float("inf")
    begun: int | None = None
    asked: tuple[str, int] | None = None
    refusals: int = 0
    environment: int = 0
    crashing: bool = False
    uuids: int = 0
    batch: tuple[str, Queue, list[dict[str, Any]]] | None = None
    duplicated: bool = False
    clock: float = 0.0
    torn: TornRead | None = None
    parted: PartedWrite | None = None

    @property
    def is_over(self) -> bool:
        return self.green is None or self.green.dead


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


class World:
    """One run of a scenario.

    Args:
        handlers: The handlers of this process.
        scenario: The scenario.
        rivals: Number of processes at the start.
        faults: Maximum number of faults.
        clocks: By process, how many seconds the clock of its environment is ahead.
    """

    # A scenario has a handful of invocations, and a message that is returned forever is a failure.
    max_invocations = 25
    max_steps = 400

    def __init__(
        self,
        handlers: Handlers,
        scenario: Scenario,
        rivals: int,
        faults: int,
        clocks: Mapping[str, float] | None = None,
    ) -> None:
        self.handlers = handlers
        self.scenario = scenario
        self.rivals = rivals
        self.faults_left = faults
        self.faults_used = 0
        self.clocks = clocks or {}
        self.late: list[LateRequest] = []
        self.applied: set[str] = set()
        self.clock = handlers.clock
        self.clock.seconds = 1_800_000_000.0
        self.model = SimulatedAws(self.clock.now)
        self.processes: dict[str, Process] = {}
        self.history: list[Change] = []
        self.last: dict[Place, dict[str, Any] | None] = {}
        self.sent: dict[str, tuple[str, dict[str, Any], str | None]] = {}
        self.invalid: set[str] = set()
        self.answers: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.lock_owners: dict[Place, str] = {}
        self.locked_since: dict[Place, int] = {}
        self.initial: dict[str, dict[tuple[str, ...], Any]] = {}
        self.closing = False
        self.trace: list[str] = []
        self.schedule: list[Choice] = []
        self.violations: list[str] = []
        self.switches = 0
        self._before = ""
        self.crashes = 0
        self.invocations = 0
        self.environments = 0
        self.warm: dict[str, int] = {}
        self.changes_of: dict[Place, list[Change]] = defaultdict(list)
        self.streams: dict[str, list[dict[str, Any]]] = {}
        self.bus: list[dict[str, Any]] = []
        self._create_tables_and_queues()
        handlers.enter(self)
        for step in scenario.set_up:
            step(self)
        for name, start in zip("ABC"[:rivals], scenario.rivals, strict=False):
            start(self, name)
        self.initial = {
            name: dict(table.items) for name, table in self.model.dynamodb.tables.items()
        }
        # The calls that warmed up the environments are not part of the run.
        self.history, self.last, self.trace, self.schedule = [], {}, [], []
        self.switches, self._before = 0, ""
        self.changes_of.clear()
        self._open_books()

    def _open_books(self) -> None:
        """Start the books from the rows that are there now."""
        self.news = News()
        self.ledger = Ledger(
            {
                (name, key): self.handlers.decode(item)
                for name, table in self.model.dynamodb.tables.items()
                for key, item in table.items.items()
            }
        )

    # ------------------------------------------------------------------ setting up

    def _create_tables_and_queues(self) -> None:
        for table, keys in KEYS.items():
            request = creation(NAMES[table], keys, INDEXES.get(table, ()))
            self.model.dynamodb.answer("CreateTable", request)
        create = self.model.sqs.create
        for feed in FEEDS.values():
            dead = create(feed.dead_letters)
            create(feed.queue, VISIBILITY_SECONDS, dead, MAX_RECEIVE_COUNT, content_based=True)
        create(UNDELIVERABLE)

    def product(self, product_id: str, stock: int, **more: Any) -> None:
        """Create a product, or its row at one location, with the adjustment that accounts for its stock."""
        created = "2026-01-01T00:00:00.000000+00:00"
        status = "OUT_OF_STOCK" if stock <= -more.get("backorderLimit", 0) else "ACTIVE"
        if 0 < stock <= more.get("lowStockThreshold", 0):
            status = "LOW_STOCK"
        row = {
            "productId": product_id,
            "stockCount": stock,
            "onHand": stock,
            "_version": 1,
            "status": status,
            "createdAt": created,
            "lastUpdatedAt": created,
            **self._listed_at(product_id),
            **more,
        }
        self.put("Products", row)
        self.put(
            "StockAdjustments",
            {
                "productId": product_id,
                "adjustmentId": "opening",
                "delta": stock,
                "reason": "OPENING",
                "productCreatedAt": created,
                "productVersion": 1,
                "appliedAt": created,
            },
        )

    def _listed_at(self, key: str) -> dict[str, str]:
        """Add a location to the product's own row. Returns the attributes that only the location's row has."""
        product_id, _, location_id = key.partition("#")
        if not location_id:
            return {}
        if self.row("Products", product_id) is None:
            self.product(product_id, 0)
        own = self.row("Products", product_id) or {}
        self.put("Products", own | {"places": frozenset({*own.get("places", ()), location_id})})
        return {"of": product_id, "locationId": location_id}

    def put(self, table: str, row: Mapping[str, Any]) -> None:
        """Put a row into a table."""
        item = self.handlers.encode(row)
        self.model.dynamodb.answer("PutItem", {"TableName": table, "Item": item})

    def end_lease(self, lane: int) -> None:
        """End the lease on a lane, without telling its owner."""
        lease = self.row("Allotments", f"{lane}/lease") or {}
        self.put("Allotments", lease | {"lockTime": 0})

    def units_in_lane(self, lane: int, product_id: str) -> int:
        """Count the units of a product in a lane."""
        return sum(p.units(product_id) for p in self.handlers.pages(self) if p.key.lane == lane)

    def take_out_of_page(
        self, page: Any, product_id: str, units: int, epoch: str = "another"
    ) -> None:
        """Replace a page with one that has the same version but fewer units of a product, and record the difference as
        lost.
        """
        held = page.entries[product_id]
        fewer = {**page.entries, product_id: replace(held, units=held.units - units)}
        row = {"page": str(page.key), "_version": page.version, "epoch": epoch}
        text = base64.b64encode(self.handlers.page_units(replace(page, entries=fewer))).decode()
        item = self.handlers.encode(row) | {"units": {"B": text}}
        self.model.dynamodb.answer("PutItem", {"TableName": "Allotments", "Item": item})
        correction = {"productId": product_id, "adjustmentId": "correction", "delta": -units}
        correction |= {"productCreatedAt": held.created_at, "productVersion": 1}
        self.put("StockAdjustments", correction | {"reason": "CORRECTION", "appliedAt": ""})
        self.add_on_hand(product_id, -units)

    def add_on_hand(self, product_id: str, units: int) -> None:
        """Add units to a product's `onHand`. The caller records them in an adjustment."""
        stored = self.model.dynamodb.tables["Products"].items[product_id,]
        on_hand = int(stored["onHand"]["N"]) + units
        item = stored | {"onHand": {"N": str(on_hand)}}
        self.model.dynamodb.answer("PutItem", {"TableName": "Products", "Item": item})

    def add_outbound_page(self, name: str, *entries: tuple[str, str, int]) -> None:
        """Store an outbound page at version 1, with entries that are not folded yet."""
        text = base64.b64encode(zlib.compress(json.dumps(entries).encode())).decode()
        item = self.handlers.encode({"page": name, "_version": 1, "epoch": "one"})
        item |= {"units": {"B": text}}
        self.model.dynamodb.answer("PutItem", {"TableName": "Allotments", "Item": item})

    def moment(self, seconds: float = 0.0) -> str:
        """The time this many seconds from now, in the format of the rows."""
        moment = datetime.fromtimestamp(self.clock.seconds + seconds, UTC)
        return moment.isoformat(timespec="microseconds")

    def deliver(
        self,
        name: str,
        function: str,
        *bodies: Any,
        group: str | None = None,
        environment: str = "",
        through: str = "",
        waits: float = 0.0,
    ) -> None:
        """Start an event source that passes one batch of messages to a function.

        Args:
            name: Name of the process.
            function: Name of the function.
            bodies: The message bodies.
            group: `MessageGroupId`, for the FIFO queue.
            environment: The process whose execution environment it uses; by default its own.
            through: Prefix of the environment variables that name the function's queue.
            waits: Seconds for which the messages wait in the queue.
        """
        prefix = through if group is None else "FIFO_"
        (name_of_queue,) = (
            feed.queue
            for feed in FEEDS.values()
            if (feed.function, feed.prefix) == (function, prefix)
        )
        queue = self.model.sqs.queues[name_of_queue]
        for body in bodies:
            entry: dict[str, Any] = {"QueueUrl": queue.url, "MessageBody": json.dumps(body)}
            if group is not None:
                entry["MessageGroupId"] = group
            sent = self.model.sqs.answer("SendMessage", entry)
            self.sent[sent["MessageId"]] = (function, body, group)
        self.clock.seconds += waits
        messages = self._receive(queue)
        self._start(name, function, (function, queue, messages), environment or name)

    def warm_up(self, name: str, *bodies: Any, function: str = "place_orders") -> None:
        """Process messages before the run, without a rival, in the environment that a process will have."""
        process = f"{name}{len(self.sent)}-"
        self.deliver(process, function, *bodies, environment=name)
        self.finish(process)
        if any(queue.messages for queue in self.model.sqs.queues.values()):
            raise ViolationError(f"the messages that warm {name} up were not answered")

    def meet_rivals(self, name: str, *product_ids: str) -> None:
        """Make an environment believe that it has just met contention on products, so that it sells them from lanes."""
        self._act_in(name, lambda: self.handlers.meet_rivals(product_ids))

    def wait_in_line(self, name: str) -> None:
        """Make an environment believe that it has just waited for the depot, so that it avoids visiting the depot."""
        self._act_in(name, self.handlers.wait_in_line)

    def _act_in(self, name: str, act: Callable[[], None]) -> None:
        """Run code in the environment that a process will have."""
        process = Process(f"{name}-", lambda _: act())
        self._add(process, name)
        del self.processes[process.name]

    def client(self, name: str, script: Callable[[Client], None]) -> None:
        """Start a client that invokes functions directly."""
        self._add(Process(name, lambda process: script(Client(self, process))))

    def finish(self, name: str) -> None:
        """Run a process to its end without a rival, and remove it. What was put into tables before is not checked."""
        self._open_books()
        while not self.processes[name].is_over:
            self.take(Choice(name))
        del self.processes[name]

    def follow(self, name: str, table: str) -> None:
        """Start the event source of a table's stream. From now on, it passes all changes to `publish_events`."""
        self.streams[table] = []
        self._add(Process(name, lambda process: self._follow(process, table)))

    def _receive(self, queue: Queue) -> list[dict[str, Any]]:
        answer = self.model.sqs.answer(
            "ReceiveMessage",
            {
                "QueueUrl": queue.url,
                "MaxNumberOfMessages": 10,
                "MessageSystemAttributeNames": ["All"],
            },
        )
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        return messages

    def _start(
        self,
        name: str,
        function: str,
        batch: tuple[str, Queue, list[dict[str, Any]]],
        environment: str = "",
    ) -> None:
        process = Process(name, self._consume, batch=batch)
        self._add(process, environment)

    def _add(self, process: Process, environment: str = "") -> None:
        environment = environment or process.name
        self.processes[process.name] = process
        process.clock = self.clocks.get(environment, 0.0)
        process.green = greenlet(process.body)
        if environment not in self.warm:
            self.environments += 1
            self.warm[environment] = self.environments
        process.environment = self.warm[environment]
        self._run(process, process)

    # ------------------------------------------------------------------ inside the greenlets

    def invoke(self, process: Process, function: str, event: Any) -> Any:
        """Invoke a handler, in the greenlet of a process.

        Raises:
            CrashedError: The invocation was lost.
            ViolationError: The handler raised an exception.
        """
        self.invocations += 1
        if self.invocations > self.max_invocations:
            raise ViolationError("messages are returned forever, so the run does not end")
        process.begun = None
        process.ends_at = self.clock.seconds + INVOCATION_SECONDS
        try:
            return self.handlers.functions[function].lambda_handler(
                event, FakeContext(function, INVOCATION_SECONDS)
            )
        except CrashedError:
            process.crashing = False
            self.environments += 1
            process.environment, process.clock = self.environments, 0.0
            raise
        except Exception as error:
            if type(error).__name__ == RAISES.get(function):
                self.trace.append(f"{process.name:4} raised {error}")
                raise GaveUpError from error
            raise ViolationError(f"{function} raised {type(error).__name__}: {error}") from error
        finally:
            process.ends_at = float("inf")

    def _consume(self, process: Process) -> None:
        """Act as an event source: process one batch, then delete the messages that were not returned."""
        assert process.batch is not None
        function, queue, messages = process.batch
        try:
            response = self.invoke(process, function, event_of_received(messages, queue.arn))
        except CrashedError:
            return
        failed = {failure["itemIdentifier"] for failure in response["batchItemFailures"]}
        if not failed <= {message["MessageId"] for message in messages}:
            raise ViolationError(f"{function} returned messages that are not of its batch")
        for message in messages:
            if message["MessageId"] not in failed:
                self.check_acknowledged(message["MessageId"], process)
                self.model.sqs.answer(
                    "DeleteMessage",
                    {"QueueUrl": queue.url, "ReceiptHandle": message["ReceiptHandle"]},
                )
        self.trace.append(
            f"{process.name:4} answered: "
            + (f"{len(failed)} of {len(messages)} returned" if failed else "all done")
        )

    def _follow(self, process: Process, table: str) -> None:
        """Act as the event source of a stream: pass on its changes in order, and repeat each change until it is
        accepted.
        """
        taken = 0
        while True:
            request = {"Table": table, "From": taken}
            records = self.on_call("streams", "GetRecords", request)["Records"]
            try:
                self.invoke(process, "publish_events", {"Records": records})
            except GaveUpError:
                continue
            except CrashedError:
                if self.closing:
                    return
                continue
            taken += len(records)

    def on_call(self, service: str, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Pause before an AWS call, and continue with the outcome that the explorer chooses."""
        process = self._current()
        if process is None:
            return self.model.answer(service, operation, request)
        if process.crashing:
            raise CrashedError
        process.call = self._seen(service, operation, request)
        outcome = process.green.parent.switch()
        if isinstance(outcome, CrashedError):
            process.crashing = True
        if isinstance(outcome, BaseException):
            raise outcome
        answer: dict[str, Any] = outcome
        return answer

    def on_sleep(self, seconds: float) -> None:
        """Let time pass without really waiting. It is a violation to wait beyond the end of the invocation."""
        self.clock.sleep(seconds)
        process = self._current()
        if process is not None and self.clock.seconds > process.ends_at:
            self.violations.append(f"{process.name} waits beyond the end of its invocation")
            process.crashing = True
            raise CrashedError

    def random_bytes(self, count: int) -> bytes:
        """Make tokens that are distinct, but the same in every run."""
        process = self._current()
        if process is None:
            return bytes(count)
        process.uuids += 1
        text = f"{process.name}-{process.uuids}"
        return text.encode().rjust(count, b"\0")[-count:]

    @property
    def environment(self) -> int:
        """The execution environment that is running now."""
        process = self._current()
        return 0 if process is None else process.environment

    @property
    def wall_clock(self) -> float:
        """The Unix time in seconds by the clock of the running environment."""
        process = self._current() if self.clocks else None
        return self.clock.seconds + (0.0 if process is None else process.clock)

    def _current(self) -> Process | None:
        current = getcurrent()
        return next((p for p in self.processes.values() if p.green is current), None)

    def _seen(self, service: str, operation: str, request: dict[str, Any]) -> Call:
        if service == "dynamodb":
            reads, writes = self.model.dynamodb.touched(operation, request)
            if not self.scenario.line_works and DEPOT_LEASE in writes:
                # Every process gets the lease, so the order of their requests does not matter.
                request, writes = _without_line(request), writes - {DEPOT_LEASE}
            writes |= {("stream", (name,)) for name, _ in writes if name in self.streams}
        elif service == "streams":
            reads, writes = frozenset({("stream", (request["Table"],))}), frozenset()
        elif service == "events":
            reads, writes = frozenset(), frozenset({("bus", ())})
        else:
            queue = ("queue", (request["QueueUrl"].rsplit("/", 1)[-1],))
            reads, writes = frozenset({queue}), frozenset()
            if operation != "GetQueueAttributes":
                reads, writes = writes, reads
        return Call(service, operation, request, reads, writes)

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
        return [late.step for late in arriving] + steps

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
        before = self._items(call.writes)
        with contextlib.suppress(ServiceError):
            self.model.answer(call.service, call.operation, _without_token(call.request))
        after = self._items(call.writes)
        self._put_back(before)
        return after != before

    def _items(self, places: Iterable[Place]) -> dict[Place, dict[str, Any] | None]:
        tables = self.model.dynamodb.tables
        return {p: tables[p[0]].items.get(p[1]) for p in places if p[0] in tables}

    def _put_back(self, items: Mapping[Place, dict[str, Any] | None]) -> None:
        for (name, key), item in items.items():
            if item is None:
                self.model.dynamodb.tables[name].items.pop(key, None)
            else:
                self.model.dynamodb.tables[name].items[key] = item

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
        self._run(process, outcome)

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
                return ServiceError("ThrottlingException", "Rate exceeded")
            case "conflict":
                if call.operation == "TransactGetItems":
                    # A read is repeated a few times at once, so a single conflict would have no effect.
                    process.forced = ("conflict", call)
                self._note(process, call, "TransactionConflict")
                return _conflict(call)
            case "stale":
                return self._note(process, call, "reads old rows", self._read_old(call))
            case "late":
                self.clock.seconds += LOST_SECONDS
                self.late.append(LateRequest(process, call))
                self._note(process, call, "is delayed, and its sender gives up on it")
                return ReadTimeoutError(endpoint_url="simulated")
            case "refused":
                # Refuse the first of several entries, which the others must not overtake.
                call.request["Entries"][0]["Refused"] = True
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
        return ReadTimeoutError(endpoint_url="simulated")

    def _arrive(self, choice: Choice) -> None:
        """Carry out a late request, which arrives now."""
        late = next(late for late in self.late if late.repeated and late.step.choice == choice)
        self.late.remove(late)
        outcome = self._apply(late.process, late.call)
        self.trace.append(f"{choice.process:4} {late.call} arrives: {_short(outcome)}")

    def _tear(self, process: Process, call: Call, first: int) -> None:
        """Answer one half of a BatchGetItem. The next call of the process reads the other half."""
        halves = [self._seen(*half) for half in _halves(call)]
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

    def _run(self, process: Process, outcome: Any) -> None:
        """Let a process run until its next call or its end."""
        process.green.switch(outcome)
        if process.is_over and process.call is not None:
            process.call = None
        if self.violations:
            raise ViolationError(self.violations[0])

    def _crash(self, process: Process) -> CrashedError:
        self.crashes += 1
        return CrashedError()

    def _apply(self, process: Process, call: Call) -> Any:
        """Let the simulated AWS answer a call, and check the changes that it makes."""
        tables, before = self.model.dynamodb.tables, self._items(sorted(call.writes))
        if call.service == "streams":
            return {"Records": self.streams[call.request["Table"]][call.request["From"] :]}
        if call.service == "events":
            return self._put_events(call.request["Entries"])
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
                changes.append(Change(place, self._plain(old), self._plain(new), number, process))
                if place[0] in self.streams:
                    self.streams[place[0]].append(_record(place, old, new, number))
        self.history += changes
        for change in changes:
            self.changes_of[change.place].append(change)
        if changes:
            try:
                self.handlers.check_write(self, number, changes)
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
            return self.model.answer(call.service, call.operation, call.request)
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
            return self.model.answer(call.service, call.operation, call.request)
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
        before = self._items(call.writes)
        try:
            self.model.answer(call.service, call.operation, _without_token(call.request))
        except ServiceError as error:
            reasons = error.extra.get("CancellationReasons", reasons)
        self._put_back(before)
        touched = (
            self.model.dynamodb.touched(call.operation, {"TransactItems": [action]})
            for action in actions
        )
        return [
            reason if unseen.keys().isdisjoint(reads | writes) else {"Code": "TransactionConflict"}
            for reason, (reads, writes) in zip(reasons, touched, strict=True)
        ]

    def _put_events(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        """Put events on the bus, except those that it refuses."""
        answers = []
        for entry in entries:
            if entry.get("Refused"):
                answers.append({"ErrorCode": "InternalFailure", "ErrorMessage": "try again"})
                continue
            event = json.loads(entry["Detail"])
            self.bus.append(event)
            answers.append({"EventId": f"{len(self.bus)}"})
            self.news.hear(event)
        return {
            "FailedEntryCount": sum("ErrorCode" in answer for answer in answers),
            "Entries": answers,
        }

    def _note_sent(self, request: dict[str, Any], answer: dict[str, Any]) -> None:
        """Record the messages that a function has sent to another function's queue."""
        if request["QueueUrl"] == URLS[FEEDS["Expiry"].queue]:
            bodies = {entry["Id"]: json.loads(entry["MessageBody"]) for entry in request["Entries"]}
            for entry in answer["Successful"]:
                self.sent[entry["MessageId"]] = ("change_orders", bodies[entry["Id"]], None)

    def _plain(self, item: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if item is None else self.handlers.decode(item)

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
                self._run(process, self._crash(process))

    def _again(self, process: Process) -> None:
        """Deliver the messages of a process a second time."""
        process.duplicated = True
        assert process.batch is not None
        function, queue, messages = process.batch
        self.trace.append(f"{process.name:4} its messages are redelivered")
        self._start(f"{process.name}'", function, (function, queue, messages))
        self.processes[f"{process.name}'"].duplicated = True

    def wake(self) -> bool:
        """When no process can run, wait until a message is visible, then deliver it. Returns False at the end of the
        run.
        """
        waiting = [
            (max(message.visible_at for message in queue.messages), feed.function, queue)
            for feed in FEEDS.values()
            if (queue := self.model.sqs.queues[feed.queue]).messages
        ]
        if not waiting:
            return False
        at, function, queue = min(waiting, key=lambda entry: entry[:2])
        self.clock.seconds = max(self.clock.seconds, at)
        messages = self._receive(queue)
        name = f"R{self.invocations}"
        self.trace.append(f"{name:4} {len(messages)} messages are redelivered")
        if messages:
            self._start(name, function, (function, queue, messages))
        return True

    def close(self) -> None:
        """End all running processes."""
        self.closing = True
        for process in self.processes.values():
            if not process.is_over:
                process.crashing = True
                with contextlib.suppress(CrashedError, ViolationError):
                    process.green.throw(CrashedError)
        self.handlers.leave()

    # ------------------------------------------------------------------ invariants

    def rows(self, table: str) -> list[dict[str, Any]]:
        """List all rows in a table."""
        return [
            self.handlers.decode(item) for item in self.model.dynamodb.tables[table].items.values()
        ]

    def row(self, table: str, *key: str) -> dict[str, Any] | None:
        """Find one row."""
        return self._plain(self.model.dynamodb.tables[table].items.get(key))

    def states(self, since: int, table: str, *key: str) -> list[dict[str, Any] | None]:
        """List the states of a row: the state after write number `since`, and all later ones."""
        writes = self.changes_of[table, key]
        before = [change for change in writes if change.number <= since]
        first = before[-1].after if before else self._plain(self.initial.get(table, {}).get(key))
        return [first, *(change.after for change in writes[len(before) :])]

    def dead_letters(self, message_id: str) -> list[str]:
        """List the error codes of the dead letters for a message."""
        return [
            message.attributes["errorCode"]["StringValue"]
            for queue in self.model.sqs.queues.values()
            if "Dead" in queue.name
            for message in queue.messages
            if message.attributes.get("originalMessageId", {}).get("StringValue") == message_id
        ]

    def check_acknowledged(self, message_id: str, process: Process) -> None:
        """Check that an acknowledged message has a durable result, or an answer that was true during the invocation."""
        end = self.handlers.end_of(self, message_id, process.begun or 0)
        if end is None:
            function, body, _ = self.sent[message_id]
            raise ViolationError(f"{function} acknowledged {body} without a durable result")

    def check_end(self) -> None:
        """Check everything that must hold at the end of a run."""
        self.handlers.check_end(self)
        self.scenario.check(self)


@dataclass(frozen=True)
class Client:
    """A client that invokes functions directly."""

    world: World
    process: Process

    def __call__(self, function: str, command: dict[str, Any]) -> dict[str, Any]:
        """Invoke a function, and invoke it a second time if it crashes, as a caller would.

        Returns:
            The answer; empty if the second invocation crashed too.
        """
        for _ in range(2):
            try:
                answer: dict[str, Any] = self.world.invoke(self.process, function, command)
            except GaveUpError:
                continue
            except CrashedError:
                if self.world.closing:
                    raise
                continue
            self.world.answers.append((function, command, answer))
            self.world.trace.append(
                f"{self.process.name:4} {command.get('action', function)} answered "
                f"{answer.get('result')} {answer.get('code', '')}".rstrip()
            )
            return answer
        return {}


class Handlers:
    """The real handlers, in a process whose time, randomness, network and executor are replaced.

    The originals are never restored, so this needs a process of its own.
    """

    def __init__(self, load: Callable[[str], ModuleType], names: Sequence[str]) -> None:
        from testing.schedules.every import invariants

        os.environ |= settings(URLS) | {
            "HOLD_GRACE_SECONDS": str(GRACE_SECONDS),
            "POWERTOOLS_METRICS_DISABLED": "true",
        }
        logging.disable(logging.CRITICAL)
        self.clock = ManualClock()
        self.functions = {name: self._noted(name, load(name)) for name in names}
        from inventory_orders.holds import ending as holds
        from inventory_orders.invocation import runtime, telemetry
        from inventory_orders.store import rows

        # A sweep queries each shard. With 32 shards, the extra queries would only make every schedule longer.
        for module in (rows, holds):
            patch.object(module, "EXPIRY_SHARDS", 1).start()

        self.encode, self.decode = rows.encode, rows.decode
        self.page_units = rows.page_units
        self.check_write, self.check_end = invariants.check_write, invariants.check_end
        self.end_of, self.pages = invariants.end_of, invariants.pages
        self._telemetry, self._runtime = telemetry, runtime
        self._world: World | None = None
        # The function of each execution environment, and its cached objects.
        self._function_of: dict[int, str] = {}
        self._processes: dict[tuple[int, str], Any] = {}
        patch.object(runtime, "executor", lambda: None).start()
        patch.object(runtime, "process", self._process_of_now).start()
        patch.object(os, "urandom", self._random_bytes).start()
        # Jitter is always at its upper bound, so that a process asks as rarely as possible.
        patch.object(random, "_urandom", lambda count: b"\xff" * count).start()
        # The reference must be kept, because the patch ends with its last reference.
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        self._stack.enter_context(
            virtual_time(SimpleNamespace(now=self.clock.now, sleep=self._sleep))
        )
        patch.object(time, "time", self._wall_clock).start()
        self._stack.enter_context(
            answered_directly_by(lambda *call: self._world_of_now().on_call(*call))
        )

    def _noted(self, name: str, module: ModuleType) -> ModuleType:
        """Wrap a handler so that it records which function the running environment belongs to."""
        handler = module.lambda_handler

        def invoked(event: Any, context: Any) -> Any:
            self._function_of[self._world_of_now().environment] = name
            return handler(event, context)

        return SimpleNamespace(lambda_handler=invoked)  # type: ignore[return-value]

    def _process_of_now(self) -> Any:
        """The objects that the running environment made from its function's settings."""
        environment = self._world_of_now().environment
        key = environment, self._function_of[environment]
        if key not in self._processes:
            variables = os.environ | self._variables_of(self._function_of[environment])
            self._processes[key] = self._runtime.Process(variables)
        return self._processes[key]

    def _variables_of(self, name: str) -> dict[str, str]:
        """The environment variables that differ between functions."""
        lanes = self._world_of_now().scenario.lanes if name == "place_orders" else 0
        return queue_settings(name, URLS) | {"LANES": str(lanes)}

    def meet_rivals(self, product_ids: Iterable[str]) -> None:
        """Record contention on products in the engine of the running environment."""
        self._function_of[self._world_of_now().environment] = "place_orders"
        for product_id in product_ids:
            self._process_of_now().engine_with_lanes.client.rivals.observe(product_id)

    def wait_in_line(self) -> None:
        """Record a wait for the depot in the engine of the running environment."""
        self._function_of[self._world_of_now().environment] = "place_orders"
        self._process_of_now().engine_with_lanes.source.depot.line.observe(1.0)

    def _random_bytes(self, count: int) -> bytes:
        return bytes(count) if self._world is None else self._world.random_bytes(count)

    def _world_of_now(self) -> World:
        assert self._world is not None
        return self._world

    def _wall_clock(self) -> float:
        return self.clock.seconds if self._world is None else self._world.wall_clock

    def _sleep(self, seconds: float) -> None:
        self._world_of_now().on_sleep(seconds)

    def enter(self, world: World) -> None:
        """Begin a run."""
        self._world = world
        self._processes.clear()

    def leave(self) -> None:
        """End a run, and drop the metrics of crashed invocations."""
        self._telemetry.metrics.clear_metrics()


def _record(
    place: Place, old: dict[str, Any] | None, new: dict[str, Any] | None, number: int
) -> dict[str, Any]:
    """Make a stream record of a change."""
    images = {"OldImage": old, "NewImage": new}
    keys = {name: {"S": value} for name, value in zip(KEYS[Table(place[0])], place[1], strict=True)}
    kind = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
    return {
        "eventID": f"record-{number}",
        "eventName": kind,
        "dynamodb": {
            "Keys": keys,
            **{image: item for image, item in images.items() if item is not None},
        },
    }


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


def _without_token(request: dict[str, Any]) -> dict[str, Any]:
    return {name: request[name] for name in request if name != TOKEN}


def _conflict(call: Call) -> ServiceError:
    """The error that DynamoDB returns if another transaction on one of the items of a call is in flight."""
    if call.operation != "TransactWriteItems":
        return ServiceError("TransactionConflictException", "a transaction is in flight")
    reasons = [{"Code": "None"} for _ in call.request["TransactItems"]]
    reasons[0] = {"Code": "TransactionConflict"}
    return ServiceError("TransactionCanceledException", extra={"CancellationReasons": reasons})


def _halves(call: Call) -> list[tuple[str, str, dict[str, Any]]]:
    """Split a BatchGetItem into two."""
    entries = call.request["RequestItems"]
    keys = [(name, key) for name, entry in entries.items() for key in entry["Keys"]]
    middle = len(keys) // 2
    requests = []
    for part in (keys[:middle], keys[middle:]):
        request: dict[str, Any] = {}
        for name, key in part:
            request.setdefault(name, entries[name] | {"Keys": []})["Keys"].append(key)
        requests.append((call.service, call.operation, call.request | {"RequestItems": request}))
    return requests


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
