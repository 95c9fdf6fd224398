"""A world in which calls take as long as on AWS, and workers get batches from queues.

Each worker is a task of the scheduler. Its execution environment has its own copy of the handler and its own process.
Time passes only in calls to AWS, in `time.sleep`, and as the CPU time that `latency.py` charges.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from math import inf
from types import ModuleType
from typing import Any, Self

from botocore.exceptions import BotoCoreError, ClientError

from testing.aws import ServiceError, answered_by
from testing.schedules.by_time.contention import ContendedDynamoDB
from testing.schedules.by_time.latency import (
    CPU,
    INVOCATION_SECONDS,
    MAX_DELIVERIES,
    PARTITIONS,
    SWEEP_SECONDS,
    VISIBILITY_SECONDS,
    Region,
)
from testing.schedules.by_time.queues import Message, Poller, Queue
from testing.schedules.scheduler import Scheduler, VirtualExecutor, seeded
from testing.world.events import event_of_received
from testing.world.handlers import FakeContext, load_handler
from testing.world.tables import FEEDS
from testing.world.world import World, silent

BEGAN = 1_793_491_200.0
"""Unix time at which each run begins."""
_THREADS = 4
_REQUEST_ID = "00000000-0000-4000-8000-000000000000"


class InvocationTimeout(BaseException):
    """Lambda ends the invocation. Derives from BaseException, so that no handler catches it."""


@dataclass(slots=True, eq=False)
class Environment:
    """An execution environment.

    Attributes:
        executor: The threads of its process.
        handler: Its copy of the handler, once it has been invoked.
    """

    executor: Executor
    handler: ModuleType | None = None


@dataclass(slots=True, eq=False)
class Worker:
    """Invokes a function, one invocation after the other.

    Attributes:
        function: The function.
        feed: The queue that feeds it, as in `FEEDS`.
        environment: Its execution environment, which Lambda discards after a time-out.
        batch: The messages of its invocation.
        deadline: When Lambda ends its invocation, in virtual seconds.
        cpu_free: When its processor is free, in virtual seconds.
    """

    function: str = "place_orders"
    feed: str = "Order"
    environment: Environment | None = None
    batch: Sequence[Message] = ()
    deadline: float = inf
    cpu_free: float = 0.0


@dataclass(slots=True)
class _Clock:
    scheduler: Scheduler

    def now(self) -> float:
        return BEGAN + self.scheduler.now

    def sleep(self, seconds: float) -> None:
        self.scheduler.sleep(seconds)


class TimedWorld(World):
    """A world whose workers move by time.

    Args:
        seed: Seed of all randomness.
        partitions: Number of partitions, by table.
        receive_interval: Minimum number of seconds between the starts of two receives of a poller.

    Attributes:
        scheduler: The clock, and the tasks.
        region: The latencies.
        polled: The queues that workers receive from, as in `FEEDS`.
    """

    answered_by = staticmethod(answered_by)
    visibility = VISIBILITY_SECONDS
    failures: tuple[type[BaseException], ...] = (InvocationTimeout, BotoCoreError, ClientError)
    """Exceptions with which a handler may fail, so that its messages return to the queue."""

    def __init__(
        self,
        seed: int,
        partitions: Mapping[str, int] = PARTITIONS,
        receive_interval: float = 0.0,
    ) -> None:
        self.scheduler = Scheduler()
        super().__init__(clock=_Clock(self.scheduler))
        self._seed = seed
        self.region = Region(random.Random(f"latencies {seed}"))
        self._dynamodb = ContendedDynamoDB(
            self.scheduler, self.aws.dynamodb, self.region, partitions=partitions
        )
        self._receive_interval = receive_interval
        self.polled: dict[str, Queue] = {}
        self._sent = 0

    @contextmanager
    def open(self) -> Iterator[Self]:
        with ExitStack() as stack:
            for each in (seeded(self._seed), super().open(), silent()):
                stack.enter_context(each)
            yield self

    # ------------------------------------------------------------------ time

    def sleep(self, seconds: float) -> None:
        """Let the calling worker wait. Its invocation may time out in the meantime."""
        left = self.worker.deadline - self.scheduler.now
        self.scheduler.sleep(min(seconds, left))
        if seconds >= left:
            raise InvocationTimeout

    def _compute(self, seconds: float) -> None:
        """Let the calling worker use its processor, which all its threads share."""
        worker, now = self.worker, self.scheduler.now
        worker.cpu_free = max(worker.cpu_free, now) + seconds
        self.scheduler.sleep(worker.cpu_free - now)

    # ------------------------------------------------------------------ processes

    @property
    def worker(self) -> Worker:
        """The calling worker."""
        worker: Worker = self.scheduler.owner
        return worker

    def caller(self) -> object:
        return self._environment() if self.scheduler.owner else None

    def _environment(self) -> Environment:
        """The execution environment of the calling worker."""
        worker = self.worker
        if worker.environment is None:
            worker.environment = Environment(VirtualExecutor(self.scheduler, _THREADS))
        return worker.environment

    def executor(self) -> Executor | None:
        return self._environment().executor if self.scheduler.owner else None

    def handler(self, function: str) -> ModuleType:
        environment = self._environment()
        self._invoked[environment] = function
        if environment.handler is None:
            environment.handler = self.load(function)
        return environment.handler

    def load(self, function: str) -> ModuleType:
        """Import a copy of a function's handler."""
        return load_handler(function)

    def invoke(
        self, function: str, event: Any, seconds: float = INVOCATION_SECONDS, messages: int = 0
    ) -> Any:
        """Invoke a function in the calling worker, and return its answer.

        Args:
            function: The function.
            event: The event.
            seconds: After this time, Lambda ends the invocation.
            messages: The number of messages in the event, which take CPU time.

        Raises:
            InvocationTimeout: Lambda ended the invocation.
        """
        worker, context = self.worker, FakeContext(function, seconds, _REQUEST_ID)
        worker.deadline = self.scheduler.now + seconds
        try:
            handler = self.handler(function)
            if messages:
                self._compute(CPU.message * messages)
            return handler.lambda_handler(event, context)
        except InvocationTimeout:
            worker.environment = None
            raise
        finally:
            worker.deadline = inf

    def request(self, event: Mapping[str, Any]) -> int:
        """Send a request to the API. Returns the HTTP status, which is 503 if the invocation timed out."""
        try:
            status: int = self.invoke("api", event, messages=1)["statusCode"]
        except InvocationTimeout:
            return 503
        return status

    def sweep(self, interval: float) -> None:
        """Let a worker sweep at a fixed interval, in virtual seconds, until the order queue closes."""
        self.polled["Expiry"] = Queue(self.scheduler, (), stays=True)

        def work() -> None:
            while not self.polled["Order"].closed:
                began = self.scheduler.now
                with suppress(InvocationTimeout):
                    self.invoke("sweep", {"action": "sweep"}, SWEEP_SECONDS)
                self.scheduler.sleep(began + interval - self.scheduler.now)

        self.scheduler.start(work, Worker())

    # ------------------------------------------------------------------ calls

    def answer(self, service: str, operation: str, request: dict[str, Any]) -> Any:
        """Answer a request of the calling worker, after its latency."""
        if self.scheduler.owner is None:
            return super().answer(service, operation, request)
        self._compute(CPU.call + CPU.item * len(request.get("TransactItems", "1")))
        began, status = self.scheduler.now, 200
        reply: dict[str, Any] = {}
        try:
            if service == "dynamodb":
                reply = self._dynamodb.answer(operation, request)
            else:
                self.scheduler.sleep(self.region.queue())
                reply = self._answer_sqs(operation, request)
        except ServiceError as error:
            status, reply = error.status, {"__type": error.code, **error.extra}
            raise
        finally:
            self.observe(service, operation, request, status, reply, began)
        if self.scheduler.now >= self.worker.deadline:
            raise InvocationTimeout
        return reply

    def observe(
        self,
        service: str,
        operation: str,
        request: dict[str, Any],
        status: int,
        reply: dict[str, Any],
        began: float,
    ) -> None:
        """Called with each request, its answer, and when it began."""

    def _answer_sqs(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        name = request["QueueUrl"].rsplit("/", 1)[-1]
        queue = next(
            (each for feed, each in self.polled.items() if FEEDS[feed].queue == name), None
        )
        if queue is None:
            return self.aws.sqs.answer(operation, request)
        now, entries = self.scheduler.now, request.get("Entries", [request])
        match operation:
            case "GetQueueAttributes":
                return {"Attributes": {"ApproximateNumberOfMessages": str(queue.visible)}}
            case "ChangeMessageVisibilityBatch":
                for entry in entries:
                    message = self.worker.batch[int(entry["ReceiptHandle"])]
                    message.visible_at = now + float(entry["VisibilityTimeout"])
            case _:
                sent = [self.message(entry["MessageBody"]) for entry in entries]
                for message, entry in zip(sent, entries, strict=True):
                    message.visible_at = now + entry.get("DelaySeconds", 0)
                queue.give_back(sent)
        return {"MessageId": "sent", "Successful": [{"Id": each.get("Id")} for each in entries]}

    def message(self, body: str) -> Message:
        """Make a message that a function sends."""
        self._sent += 1
        return Message(str(self._sent), body, {}, self._sent)

    # ------------------------------------------------------------------ queues

    def batches(self, most: int) -> Iterator[list[Message]]:
        """Receive batches for the calling worker, through a poller of its own."""
        queue = self.polled[self.worker.feed]
        for batch in Poller(self.scheduler, queue, most, self._receive_interval).batches():
            self.scheduler.sleep(self.region.delivery())
            yield batch

    def serve(self, most: int) -> Iterator[list[Message]]:
        """Handle batches of up to this many messages in the calling worker. Yields each batch afterwards."""
        for batch in self.batches(most):
            self.settle(batch, self.deliver(batch))
            yield batch

    def deliver(self, batch: Sequence[Message]) -> list[Message]:
        """Invoke the calling worker's function with messages. Returns those that it returned to the queue."""
        worker = self.worker
        worker.batch = batch
        received = [
            {
                "MessageId": str(position),
                "ReceiptHandle": str(position),
                "Body": message.body,
                "Attributes": {
                    "ApproximateReceiveCount": str(message.deliveries),
                    "SentTimestamp": str(int(BEGAN * 1000)),
                    "ApproximateFirstReceiveTimestamp": str(
                        int((BEGAN + message.first_received) * 1000)
                    ),
                    **({"MessageGroupId": message.group} if message.group else {}),
                },
            }
            for position, message in enumerate(batch)
        ]
        event = event_of_received(received, self.queues[worker.feed].arn)
        try:
            answer = self.invoke(worker.function, event, messages=len(batch))
        except self.failures:
            return list(batch)
        return [batch[int(item["itemIdentifier"])] for item in answer["batchItemFailures"]]

    def settle(self, batch: Sequence[Message], returned: Sequence[Message]) -> None:
        """Delete handled messages, hide returned ones, and drop those delivered too often."""
        queue = self.polled[self.worker.feed]
        again = [message for message in returned if message.deliveries < MAX_DELIVERIES]
        queue.give_back(again)
        queue.end(message for message in batch if message not in again)
