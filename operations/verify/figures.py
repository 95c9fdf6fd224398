"""The figures of a run, from the log of place_orders: batches, conflicts, cold starts and costs."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .. import emf, prices
from ..logs import Event, Tail
from .run import Run

_LOG_SECONDS, _LOG_SECONDS_EMBEDDED = 30.0, 3.0


@dataclass(frozen=True, slots=True)
class Invocations:
    """Figures of a function's invocations, from its log.

    Attributes:
        count: The number of finished invocations.
        gigabyte_seconds: Their billed duration times memory.
        cold: Milliseconds that each start of a worker took.
        batches: The number of messages in each invocation that handled messages.
    """

    count: int
    gigabyte_seconds: float
    cold: Sequence[float]
    batches: Sequence[int]


_REPORT = re.compile(
    r"REPORT RequestId: (?P<id>\S+)\s.*?\bBilled Duration: (?P<billed>[\d.]+) ms\s.*?Memory Size: (?P<memory>\d+) MB"
)
_INIT = re.compile(r"Init Duration: ([\d.]+) ms")
_BATCH = re.compile(r'"batch done".*?"messages":\s?(\d+)')
_COLD = re.compile(r'"cold_start":\s?true.*?"function_request_id":\s?"([^"]+)"')


def invocations_of(lines: Iterable[str]) -> Invocations:
    """Read the invocations in a function's log.

    AWS logs how long a worker took to start. The embedded AWS does not, and starts a worker within its first
    invocation, so the whole invocation counts.
    """
    billed: dict[str, float] = {}
    init: list[float] = []
    first: set[str] = set()
    batches: list[int] = []
    gigabyte_seconds = 0.0
    for line in lines:
        batches += map(int, _BATCH.findall(line))
        if found := _REPORT.search(line):
            billed[found["id"]] = float(found["billed"])
            gigabyte_seconds += float(found["billed"]) / 1000 * float(found["memory"]) / 1024
            init += [float(text) for text in _INIT.findall(line)]
        elif found := _COLD.search(line):
            first.add(found[1])
    cold = init or [billed[request] for request in first if request in billed]
    return Invocations(len(billed), gigabyte_seconds, sorted(cold), batches)


def measure(run: Run, since: int, answered: int) -> dict[str, float | None]:
    """Read batches, conflicts, cold starts and costs from the log of place_orders.

    Args:
        run: The run.
        since: A time before the orders to measure, in Unix milliseconds.
        answered: The number of these orders with an outcome. The function waits for their metrics, but not for long.
    """
    run.say("reading the log of place_orders")
    events, samples = _read_log(run, since, answered)
    invocations = invocations_of(event.message for event in events if event.timestamp >= since)
    attempts = _total(samples, "ConditionalWrites")
    # Earlier orders of this run may have reached workers that had to start.
    cold = invocations_of(event.message for event in events).cold
    batches = invocations.batches
    return {
        "messagesPerBatch": round(statistics.fmean(batches), 1) if batches else None,
        "conflictRate": round(_total(samples, "VersionConflict") / attempts, 4)
        if attempts
        else None,
        "commitAttempts": attempts,
        "coldStarts": len(cold),
        "coldStartP50Milliseconds": statistics.median(cold) if cold else None,
        "coldStartMaxMilliseconds": max(cold) if cold else None,
        "dollars": round(_dollars(run.orders, samples, invocations), 6),
    }


def express_orders(run: Run, since: int) -> float:
    """Count the orders that were decided through OrderQueueExpress since a time (Unix milliseconds)."""
    # The log does not show how many orders to wait for, because the API decides some of them.
    _, samples = _read_log(run, since, math.inf)
    return _total(samples, "OrdersExpress")


def _read_log(run: Run, since: int, answered: float) -> tuple[list[Event], list[emf.Sample]]:
    """Read the log of the whole run, and the metrics in it since a time."""
    tail = Tail(run.aws.outputs["PlaceOrdersLogGroupName"], int(run.began * 1000))
    events: list[Event] = []
    until = time.monotonic() + (_LOG_SECONDS_EMBEDDED if run.embedded else _LOG_SECONDS)
    while True:
        events += tail.read(run.aws)
        samples = list(emf.parse(event.message for event in events if event.timestamp >= since))
        logged = _total(samples, "OrdersPlaced", "OrdersRejected")
        if logged >= answered or time.monotonic() > until:
            return events, samples
        time.sleep(run.pause)


def _total(samples: Sequence[emf.Sample], *metrics: str) -> float:
    return sum(sum(emf.values_of(samples, name)) for name in metrics)


def _dollars(orders: int, samples: Sequence[emf.Sample], invocations: Invocations) -> float:
    """Estimate the cost on AWS of a number of orders for one product, from the handlers' metrics.

    A transaction takes two write units per row. It writes each order's row and, if an order was placed, the product's
    row. Transactions that fail because of a conflict are charged too.
    """
    committed = emf.values_of(samples, "OrdersPerTransaction")
    lost = _total(samples, "VersionConflict", "TransactionConflict")
    average = statistics.fmean(committed) if committed else 1.0
    return prices.Bill(
        write_units=3 * orders + 2 * len(committed) + lost * 2 * (average + 1),
        read_units=0.5 * orders + invocations.count + lost,
        invocations=invocations.count,
        seconds=invocations.gigabyte_seconds / prices.MEMORY_GIGABYTES,
        messages=-(-orders // 10),
        deliveries=orders,
        messages_per_poll=10,
    ).dollars
