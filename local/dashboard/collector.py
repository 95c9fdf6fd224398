"""Collects samples from the embedded AWS: metrics and invocations from logs, and the length and message age of each queue."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from inventory_orders.invocation import telemetry
from local.dashboard.metrics import RETENTION_SECONDS, Metric, Samples
from local.endpoint import opener_of
from operations import emf
from operations.aws import Aws
from operations.logs import Event, Tail
from operations.queues import UNDELIVERABLE_EVENTS, depth, pairs

_LOG_GROUP = "LogGroupName"
_FUNCTION = "FunctionName"
_QUEUE_METRICS = {"ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"}
_FUNCTION_METRICS = {"Invocations", "Errors", "Duration", "ConcurrentExecutions"}

# To find the oldest message, the emulator lists all of them. This limits that to a twentieth of the time.
_SHARE_OF_TIME = 20

_REPORT = re.compile(r"REPORT RequestId: .*?\tDuration: ([\d.]+) ms")

_HOLD_SECONDS = 10

# No function of the stack has a longer timeout.
_LONGEST_MILLISECONDS = 60_000


def unknown(metric: Metric) -> str | None:
    """Return why a metric is not available on this machine, or None if it is available."""
    match metric.namespace:
        case telemetry.NAMESPACE:
            return None
        case "AWS/SQS" if metric.name in _QUEUE_METRICS:
            return None
        case "AWS/Lambda" if metric.name in _FUNCTION_METRICS:
            return None
        case "AWS/Lambda" if metric.name == "Throttles":
            return "the embedded AWS does not throttle functions"
        case "AWS/DynamoDB":
            return "the embedded AWS has no metrics of DynamoDB and does not throttle"
        case "AWS/ApiGateway":
            return "the embedded AWS has no metrics of API Gateway"
    return f"the embedded AWS has no {metric.namespace} {metric.name}"


@dataclass(frozen=True, slots=True)
class Invocation:
    """One invocation of a function, read from its log.

    Attributes:
        ended: Unix milliseconds.
        duration: Milliseconds.
        failed: Whether it raised an exception. Timeouts and failed imports do not count, because the embedded AWS
            does not log them.
    """

    ended: int
    duration: float
    failed: bool

    @property
    def began(self) -> float:
        """When the invocation began, in Unix milliseconds."""
        return self.ended - self.duration


class InvocationReader:
    """Turns the log lines of each stream into invocations, which begin with START and end with REPORT."""

    def __init__(self) -> None:
        self._failed: set[str] = set()

    def read(self, event: Event) -> Invocation | None:
        """Add a log line. If it is the last line of an invocation, return the invocation."""
        if event.message.startswith("Traceback (most recent call last)"):
            self._failed.add(event.stream)
        report = _REPORT.match(event.message)
        if report is None:
            return None
        failed = event.stream in self._failed
        self._failed.discard(event.stream)
        return Invocation(event.timestamp, float(report[1]), failed)


class Collector:
    """Collects the samples of a stack on the embedded AWS. Each call to `collect` reads only new data."""

    def __init__(self, aws: Aws, endpoint: str, now: float) -> None:
        since = int((now - RETENTION_SECONDS) * 1000)
        self.samples = Samples()
        self._aws = aws
        self._endpoint = endpoint
        self._functions = {
            function: (
                Tail(aws.outputs[name.removesuffix(_FUNCTION) + _LOG_GROUP], since),
                InvocationReader(),
            )
            for name, function in aws.outputs.items()
            if name.endswith(_FUNCTION)
        }
        self._recent: dict[str, list[Invocation]] = {name: [] for name in self._functions}
        self._no_age_before: dict[str, float] = {}
        self._levels: dict[Metric, tuple[int, float]] = {}

    def collect(self) -> None:
        """Read logs and queues once."""
        for name, (tail, reader) in self._functions.items():
            events = list(tail.read(self._aws))
            for sample in emf.parse(event.message for event in events):
                metric = Metric(telemetry.NAMESPACE, sample.name, sample.dimensions)
                self.samples.add(metric, sample.timestamp // 1000, sample.values)
            found = [
                invocation for event in events if (invocation := reader.read(event)) is not None
            ]
            self._add_invocations(name, found)
        self._collect_queues()
        self.samples.forget_before(int(time.time()) - RETENTION_SECONDS)

    def _add_invocations(self, function: str, found: Sequence[Invocation]) -> None:
        if not found:
            return
        for invocation in found:
            second = invocation.ended // 1000
            for name, value in (
                ("Invocations", 1.0),
                ("Errors", float(invocation.failed)),
                ("Duration", invocation.duration),
            ):
                self.samples.add(_of_function(function, name), second, [value])
            self.samples.mark_traffic(int(invocation.began) // 1000)
            self.samples.mark_traffic(second)
        first = int(min(invocation.began for invocation in found)) // 1000
        last = max(invocation.ended for invocation in found) // 1000
        # Keep these, because an invocation that ends later may have overlapped with them.
        recent = [
            i for i in self._recent[function] if i.ended >= last * 1000 - _LONGEST_MILLISECONDS
        ]
        self._recent[function] = recent = [*recent, *found]
        for second in range(first, last + 1):
            most = at_once(recent, second)
            self.samples.replace(_of_function(function, "ConcurrentExecutions"), second, [most])

    def _collect_queues(self) -> None:
        sources, dead_letters = zip(*pairs(self._aws), strict=True)
        for output in sources:
            held = depth(self._aws, output)
            self._add_queue(output, "ApproximateNumberOfMessagesVisible", held.waiting)
            self._collect_age(output, held.total)
        for output in (*dead_letters, UNDELIVERABLE_EVENTS):
            # These queues have no consumer. Include messages that a reader hides for a few seconds.
            held = depth(self._aws, output)
            self._add_queue(output, "ApproximateNumberOfMessagesVisible", held.total)

    def _collect_age(self, output: str, held: int) -> None:
        began = time.monotonic()
        if held == 0:
            self._add_queue(output, "ApproximateAgeOfOldestMessage", 0)
        elif began >= self._no_age_before.get(output, 0):
            self._add_queue(output, "ApproximateAgeOfOldestMessage", self._oldest(output))
            took = time.monotonic() - began
            self._no_age_before[output] = began + _SHARE_OF_TIME * took

    def _oldest(self, output: str) -> float:
        """Return the age of a queue's oldest message in seconds.

        It comes from the emulator's own list of messages, because receiving a message would count as a delivery.
        """
        query = urllib.parse.urlencode({"QueueUrl": self._aws.outputs[output]})
        address = f"{self._endpoint}/_ministack/sqs/messages?{query}"
        with opener_of(self._endpoint).open(address, timeout=10) as answer:
            found = json.load(answer)["messages"]
        sent = [
            message["SentTimestamp"]
            for regions in found.values()
            for queues in regions.values()
            for messages in queues.values()
            for message in messages
        ]
        return max(0.0, time.time() - min(sent, default=time.time()))

    def _add_queue(self, output: str, name: str, value: float) -> None:
        queue = self._aws.outputs[output].rsplit("/", 1)[1]
        metric = Metric("AWS/SQS", name, frozenset({("QueueName", queue)}))
        now = int(time.time())
        before, held = self._levels.get(metric, (now, value))
        # The last value is valid until now, so that a slow read leaves no gap.
        for second in range(max(before + 1, now - _HOLD_SECONDS), now):
            self.samples.add(metric, second, [held])
        self.samples.add(metric, now, [value])
        self._levels[metric] = (now, value)


def _of_function(function: str, name: str) -> Metric:
    return Metric("AWS/Lambda", name, frozenset({(_FUNCTION, function)}))


def at_once(invocations: Iterable[Invocation], second: int) -> int:
    """Compute the maximum number of invocations that ran at the same time during a second."""
    start, end = second * 1000, second * 1000 + 1000
    changes = sorted(
        change
        for invocation in invocations
        if invocation.began < end and invocation.ended >= start
        # Times in the log are whole milliseconds, so a short invocation has length 0, but must count.
        for change in ((max(invocation.began, start), 1), (max(invocation.ended, start) + 0.5, -1))
    )
    return max(accumulate(step for _, step in changes), default=0)
