"""Processes that invoke functions, and pause before every call to AWS.

Each process is a greenlet. A schedule chooses whose call happens next. Nothing else may differ between runs, so tokens
are numbered, and jitter is always at its upper bound.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from unittest.mock import patch

from greenlet import getcurrent, greenlet

from inventory_orders.domain.product import NewProduct
from inventory_orders.holds import ending as holds
from inventory_orders.invocation import telemetry
from inventory_orders.store import lists, rows, tables
from testing.aws import Queue
from testing.world.clock import ManualClock
from testing.world.events import event_of_received, http_event
from testing.world.handlers import FakeContext
from testing.world.tables import FEEDS
from testing.world.violation import ViolationError, require
from testing.world.world import World, silent

WAIT_SECONDS = 10
"""How long a caller of the HTTP API waits for the outcome of an order."""

LAMBDA_SECONDS = 30.0
"""Seconds after which Lambda ends an invocation."""

# Functions that raise on purpose, to be invoked again.
_RAISES = {"publish_events": "NotAllPublishedError", "sweep": "RepairNeededError"}

# A sweep queries each shard of an index. With more than one, the extra queries would only make every schedule longer.
_SHARDS: list[tuple[Any, str, Any]] = [
    (module, name, shards)
    for name, shards in (
        *(("EXPIRY_SHARDS", 1), ("LATE_PAYMENT_SHARDS", 1)),
        *(("STATUS_SHARDS", {}), ("OTHER_STATUS_SHARDS", 1)),
    )
    for module in (tables, rows, lists, holds)
    if hasattr(module, name)
]

Place = tuple[str, tuple[str, ...]]
"""Table and key of an item."""

Stored = Mapping[Place, dict[str, Any] | None]
"""Items by place; None where there is none."""


class GaveUpError(Exception):
    """The function raised an exception on purpose."""


class CrashedError(BaseException):
    """The invocation has crashed. Derived from BaseException, so that no handler catches it and continues."""


@dataclass(frozen=True, slots=True)
class Line:
    """A place in the line for the depot.

    Attributes:
        since: Number of writes when the process was refused the lease.
        watched: The lease, and the items that the process has read since.
    """

    since: int
    watched: frozenset[Place]


@dataclass(slots=True)
class Call:
    """The next AWS call of a process.

    Attributes:
        service: `dynamodb`, `sqs`, `events` or `streams`.
        operation: Name of the operation.
        request: The request in its wire format.
        reads: Items that it reads.
        writes: Items that it may write.
    """

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

    @property
    def is_poll(self) -> bool:
        """Whether an event source asks for records or messages."""
        return self.service == "streams" or self.operation == "ReceiveMessage"

    def is_like(self, other: Call) -> bool:
        """Whether another call makes the same request."""
        return (self.operation, self.request) == (other.operation, other.request)


@dataclass(slots=True)
class LateRequest:
    """A request that its sender has given up on, but that DynamoDB has yet to receive.

    Attributes:
        process: Its sender.
        call: The request.
        begun: `begun` of its sender's invocation, which may have ended.
        repeated: Whether the sender has continued. Until then, its arrival would have the effect of a lost response.
    """

    process: Process
    call: Call
    begun: int | None = None
    repeated: bool = False

    @property
    def name(self) -> str:
        """Its name in schedules."""
        return f"{self.process.name}*"


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

    unseen: Stored
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
        line: Its place in the line for the depot, if it was refused the depot's lease when it last asked for it.
        environment: Its execution environment, which keeps state between invocations.
        batch: The function, the queue and the messages, for an event source.
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
    line: Line | None = None
    environment: int = 0
    crashing: bool = False
    tokens: int = 0
    batch: tuple[str, Queue, list[dict[str, Any]]] | None = None
    duplicated: bool = False
    clock: float = 0.0
    torn: TornRead | None = None
    parted: PartedWrite | None = None

    @property
    def is_over(self) -> bool:
        return self.green is None or self.green.dead


class PausingWorld(World):
    """A world whose processes pause before every call.

    Args:
        clocks: By process, how many seconds the clock of its execution environment is ahead.

    Attributes:
        processes: The processes, by name.
        streams: The records of each followed table.
        sent: The messages by id: function, body and group.
        answers: The answers to clients: function, command and answer.
        trace: The steps so far, in words.
        crashes: Number of invocations that crashed.
    """

    clock: ManualClock
    visibility = 180.0
    max_invocations = 25
    """A scenario has a handful of invocations, and a message that is returned forever is a failure."""

    def __init__(
        self, clocks: Mapping[str, float] | None = None, products: Sequence[NewProduct] = ()
    ) -> None:
        super().__init__(products)
        self.clocks = clocks or {}
        self.processes: dict[str, Process] = {}
        self.streams: dict[str, list[dict[str, Any]]] = {}
        self.sent: dict[str, tuple[str, dict[str, Any], str | None]] = {}
        self.answers: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.trace: list[str] = []
        self.invocations = self.crashes = 0
        self.is_closing = False
        self._environments = 0
        self._warm: dict[str, int] = {}
        self._violations: list[str] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[Self]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(super().open())
            for module, name, replacement in (
                (time, "time", self._wall_clock),
                (os, "urandom", self._random_bytes),
                # Jitter is always at its upper bound, so that a process asks as rarely as possible.
                (random, "_urandom", lambda count: b"\xff" * count),
                *_SHARDS,
            ):
                stack.enter_context(patch.object(module, name, replacement))
            stack.enter_context(silent())
            try:
                yield self
            finally:
                self._close()

    def _close(self) -> None:
        """End all running processes, and drop the metrics of crashed invocations."""
        self.is_closing = True
        for process in self.processes.values():
            if not process.is_over:
                process.crashing = True
                with contextlib.suppress(CrashedError, ViolationError):
                    process.green.throw(CrashedError)
        telemetry.metrics.clear_metrics()

    # ------------------------------------------------------------------ starting processes

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
        wanted = function, prefix
        (key,) = (key for key, feed in FEEDS.items() if (feed.function, feed.prefix) == wanted)
        more = {} if group is None else {"MessageGroupId": group}
        for body, message_id in zip(bodies, self.send(key, *bodies, **more), strict=True):
            self.sent[message_id] = (function, body, group)
        self.clock.seconds += waits
        queue = self.queues[key]
        self.start(name, function, queue, self.poll(queue), environment)

    def start(
        self,
        name: str,
        function: str,
        queue: Queue,
        messages: list[dict[str, Any]],
        environment: str = "",
    ) -> None:
        """Start an event source that passes received messages to a function."""
        batch = (function, queue, messages)
        self.add(Process(name, self._consume, batch=batch), environment)

    def meet_rivals(self, name: str, *product_ids: str, over_http: bool = False) -> None:
        """Make an environment believe that it has just met contention on products, so that it sells them from lanes."""
        engine = self._engine_of(name, over_http=over_http)
        for product_id in product_ids:
            engine.client.rivals.observe(product_id)
            if over_http:
                engine.source._hot.observe(product_id)
                engine.source._lost.observe(product_id)

    def wait_in_line(self, name: str) -> None:
        """Make an environment believe that it has just waited for the depot, so that it avoids visiting the depot."""
        self._engine_of(name).source.depot.line.observe(1.0)

    def _engine_of(self, name: str, *, over_http: bool = False) -> Any:
        """The engine that places orders in the environment that a process will have."""
        engines: list[Any] = []

        def note(_: Process) -> None:
            of = self.process("api" if over_http else "place_orders")
            engines.append(of.engine_for_callers if over_http else of.engine_with_lanes)

        process = Process(f"{name}-", note)
        self.add(process, name)
        del self.processes[process.name]
        return engines[0]

    def serve(self, name: str, feed: str) -> None:
        """Start the event source of a queue, which passes on messages as long as the world is open."""
        self.add(Process(name, lambda process: self._serve(process, feed)))

    def client(self, name: str, script: Callable[[Client], None]) -> None:
        """Start a client that invokes functions directly."""
        self.add(Process(name, lambda process: script(Client(self, process))))

    def follow(self, name: str, table: str) -> None:
        """Start the event source of a table's stream. From now on, it passes all changes to `publish_events`."""
        self.streams[table] = []
        self.add(Process(name, lambda process: self._follow(process, table)))

    def add(self, process: Process, environment: str = "") -> None:
        """Start a process, in the environment of this name."""
        environment = environment or process.name
        self.processes[process.name] = process
        process.clock = self.clocks.get(environment, 0.0)
        process.green = greenlet(process.body)
        process.green.process = process
        if environment not in self._warm:
            self._environments += 1
            self._warm[environment] = self._environments
        process.environment = self._warm[environment]
        self.run(process, process)

    def run(self, process: Process, outcome: Any) -> None:
        """Let a process run until its next call or its end."""
        process.green.switch(outcome)
        if process.is_over:
            process.call = None
        if self._violations:
            raise ViolationError(self._violations[0])

    # ------------------------------------------------------------------ inside the greenlets

    def invoke(self, function: str, event: Any, seconds: float = LAMBDA_SECONDS) -> Any:
        """Invoke a handler, in the greenlet of a process.

        Raises:
            CrashedError: The invocation was lost.
            ViolationError: The handler raised an exception.
        """
        process = self.current
        assert process is not None
        self.invocations += 1
        if self.invocations > self.max_invocations:
            raise ViolationError("messages are returned forever, so the run does not end")
        process.begun = None
        process.ends_at = self.clock.seconds + seconds
        try:
            return self.handler(function).lambda_handler(event, FakeContext(function, seconds))
        except CrashedError:
            process.crashing = False
            self._environments += 1
            process.environment, process.clock = self._environments, 0.0
            raise
        except Exception as error:
            if type(error).__name__ == _RAISES.get(function):
                self.trace.append(f"{process.name:4} raised {error}")
                raise GaveUpError from error
            raise ViolationError(f"{function} raised {type(error).__name__}: {error}") from error
        finally:
            process.ends_at = float("inf")

    def _consume(self, process: Process) -> None:
        """Act as an event source: process one batch, then delete the messages that were not returned."""
        assert process.batch is not None
        function, queue, messages = process.batch
        event = event_of_received(messages, queue.arn)
        try:
            response = self.invoke(function, event)
        except CrashedError:
            return
        failed = {failure["itemIdentifier"] for failure in response["batchItemFailures"]}
        require(
            failed <= {message["MessageId"] for message in messages},
            f"{function} returned messages that are not of its batch",
        )
        for record in event["Records"]:
            if record["messageId"] not in failed:
                self.check_acknowledged(record["messageId"], process)
                self.delete(queue, [record])
        self.trace.append(
            f"{process.name:4} answered: "
            + (f"{len(failed)} of {len(messages)} returned" if failed else "all done")
        )

    def _serve(self, process: Process, feed: str) -> None:
        """Act as the event source of a queue, whose function is invoked again and again."""
        queue = self.queues[feed]
        while not self.is_closing:
            self.answer("sqs", "ReceiveMessage", {"QueueUrl": queue.url})
            if messages := self.poll(queue, self.batch_size()):
                process.batch = FEEDS[feed].function, queue, messages
                self._consume(process)
                process.clock = self.clocks.get(process.name, 0.0)

    def batch_size(self) -> int:
        """Maximum number of messages that an event source receives at once."""
        return 10

    def _follow(self, process: Process, table: str) -> None:
        """Act as the event source of a stream: pass on its changes in order, each until it is accepted."""
        taken = 0
        while True:
            request = {"Table": table, "From": taken}
            records = self.answer("streams", "GetRecords", request)["Records"]
            try:
                self.invoke("publish_events", {"Records": records})
            except GaveUpError:
                continue
            except CrashedError:
                if self.is_closing:
                    return
                continue
            taken += len(records)

    def check_acknowledged(self, message_id: str, process: Process) -> None:
        """Check that a message may be deleted, because everything it asks for is durable."""

    def answer(self, service: str, operation: str, request: dict[str, Any]) -> Any:
        """Pause before an AWS call, and continue with the outcome that the schedule chooses."""
        process = self.current
        if process is None:
            return super().answer(service, operation, request)
        if process.crashing:
            raise CrashedError
        process.call = self.seen(service, operation, request)
        outcome = process.green.parent.switch()
        if isinstance(outcome, CrashedError):
            process.crashing = True
        if isinstance(outcome, BaseException):
            # An error that several worlds share would keep the frames of all of them in memory.
            raise outcome.with_traceback(None)
        return outcome

    def seen(self, service: str, operation: str, request: dict[str, Any]) -> Call:
        """Find out which items a call reads and writes."""
        if service == "dynamodb":
            reads, writes = self.aws.dynamodb.touched(operation, request)
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

    def sleep(self, seconds: float) -> None:
        """Let time pass without really waiting. It is a violation to wait beyond the end of the invocation."""
        super().sleep(seconds)
        process = self.current
        if process is not None and self.clock.seconds > process.ends_at:
            self._violations.append(f"{process.name} waits beyond the end of its invocation")
            process.crashing = True
            raise CrashedError

    # ------------------------------------------------------------------ who is running

    @property
    def current(self) -> Process | None:
        """The process that is running now."""
        process: Process | None = getattr(getcurrent(), "process", None)
        return process

    def caller(self) -> object:
        process = self.current
        return 0 if process is None else process.environment

    def _wall_clock(self) -> float:
        """The Unix time in seconds by the clock of the running environment."""
        process = self.current if self.clocks else None
        return self.clock.seconds + (0.0 if process is None else process.clock)

    def _random_bytes(self, count: int) -> bytes:
        """Make tokens that are distinct, but the same in every run."""
        process = self.current
        if process is None:
            return bytes(count)
        process.tokens += 1
        return f"{process.name}-{process.tokens}".encode().rjust(count, b"\0")[-count:]


@dataclass(frozen=True)
class Client:
    """A client that invokes functions directly."""

    world: Any
    process: Process

    def __call__(self, function: str, command: dict[str, Any]) -> dict[str, Any]:
        """Invoke a function, and invoke it a second time if it crashes, as a caller would.

        Args:
            function: Name of the function.
            command: The command, or an order for the API.

        Returns:
            The answer; empty if the second invocation crashed too.
        """
        event = http_event(command, WAIT_SECONDS) if function == "api" else command
        for _ in range(2):
            try:
                answer: dict[str, Any] = self.world.invoke(function, event)
            except GaveUpError:
                continue
            except CrashedError:
                if self.world.is_closing:
                    raise
                continue
            self.world.answers.append((function, command, answer))
            self.world.trace.append(
                f"{self.process.name:4} {command.get('action', function)} answered "
                f"{answer.get('result', answer.get('statusCode'))} {answer.get('code', '')}".rstrip()
            )
            return answer
        return {}
