"""Callers that wait for the answer to their orders.

Each client sends an order, and the next one when it is answered. Three ways are compared: `POST /orders` with `Prefer: wait=25`,
with the workers of the queue beside it; a textbook handler behind the same API, which places each order by itself; and the
queue alone, where a client waits until its order's row is durable. Settings, limits of the API and workers are those that
are deployed by default.

Each client has an execution environment, because each of Lambda's serves one request at a time, and nothing limits their
number. What API Gateway and the start of an invocation take is left out in all ways.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import inf, nan
from typing import Any

from botocore.exceptions import ClientError
from rich.console import Console

from bench import contenders, report, workloads
from bench.capacity import Exchange
from bench.cells import Found, Result, Study, Value
from bench.figures import Observed, Tally, percentile
from bench.simulator.engine import (
    Conditions,
    Context,
    InvocationTimeout,
    Message,
    Queue,
    Simulation,
    Worker,
)
from bench.workloads import Workload, endless
from infra.settings import Settings
from local import ROOT
from local.invoke import load_handler, read_event
from simulated_aws.latency import (
    CPU,
    INVOCATION_SECONDS,
    PUBLISHED,
    Latencies,
    TokenBucket,
)
from simulated_aws.scheduler import Task

WAYS = ("wait", "textbook", "queue")

WARM_UP_SECONDS = 20.0
"""Virtual seconds that do not count: all clients start at once, and lanes are empty."""

RETRY_SECONDS = 1.0
"""After a 429 or a 503 a client sends the same again, as `Retry-After` says."""

_ORDERS = 2_000
_TOO_MANY, _LATER = 429, 503


@dataclass(frozen=True, slots=True)
class Answered:
    """An order that was answered.

    Attributes:
        order_id: Its id.
        at: When, in virtual seconds.
        seconds: From its first request to its answer.
        status: Of HTTP.
        throttled: How often API Gateway refused it before.
        failed: How often the function did.
        queued: Whether it went through the queue.
    """

    order_id: str
    at: float
    seconds: float
    status: int
    throttled: int
    failed: int
    queued: bool


@dataclass(frozen=True, slots=True)
class Waited:
    """What was seen. "An order" is an answered one.

    Attributes:
        way: One of `WAYS`.
        clients: How many.
        rate: Orders answered a second, but for those with 202.
        p50: Seconds from the first request to the answer, median.
        p99: 99th percentile.
        at_once: Share answered 200, 201 or 409 without the queue.
        queued: Share that went through the queue.
        accepted: Share answered 202.
        throttled: Requests that were answered 429, of an order.
        failed: Requests that were answered 503, of an order.
        conflicts: Transactions that lost against a rival, of an order.
        conflict_rate: Share of the transactions that lost.
        write_units: Write units of an order, without the index.
        requests: Requests of an order to DynamoDB and SQS.
        clean: Whether none was sold twice, oversold or lost.
    """

    way: str
    clients: int
    rate: float
    p50: float
    p99: float
    at_once: float
    queued: float
    accepted: float
    throttled: float
    failed: float
    conflicts: float
    conflict_rate: float
    write_units: float
    requests: float
    clean: bool


class Waiting(Simulation):
    """Clients that wait for their answers.

    Args:
        way: One of `WAYS`.
        workload: Their orders, which are repeated.
        clients: How many.
        seconds: Virtual seconds that count.
        seed: Seed of all randomness.
        warm_up: Virtual seconds before that, which do not.
        latencies: How long calls take.
    """

    def __init__(
        self,
        way: str,
        workload: Workload,
        clients: int,
        seconds: float,
        seed: int = 0,
        warm_up: float = 0.0,
        latencies: Latencies = PUBLISHED,
    ) -> None:
        settings = _deployed()
        queue, limits = settings.queues["OrderQueue"], settings.api_limits
        conditions = Conditions(
            latencies=latencies,
            window=seconds,
            lanes=settings.lanes,
            batch=queue.batchSize,
            endless=True,
            warm_up=warm_up,
            watch=self._see,
        )
        self._way, self._clients = way, clients
        self._orders = endless(workload, seed)
        self._sent: dict[str, Mapping[str, int]] = {}
        self._queued: set[str] = set()
        self._answered: list[Answered] = []
        self._durable: dict[str, Task] = {}
        self._limit = TokenBucket(limits.requestsPerSecond, limits.burst)
        self._event = read_event(ROOT / "events" / "api.json", "api")
        self._event["headers"]["prefer"] = "wait=25"
        workers = queue.maximumConcurrency
        contender = "textbook" if way == "textbook" else "ours_lanes"
        super().__init__(contender, workload, workers, seed, conditions)
        self._queue = Queue(self._scheduler, (), stays=True, gather=float(queue.batchWindowSeconds))
        self._counted = self.observed

    def _environment(self) -> dict[str, str]:
        environment = super()._environment()
        return environment | {
            "ORDER_QUEUE_URL": environment["QUEUE_URL"],
            "CALLERS": "iam",
            "SHOW_STOCK": "availability",
        }

    def _start_workers(self) -> None:
        if self._way != "textbook":
            super()._start_workers()
        for _ in range(self._clients):
            self._scheduler.start(
                self._order, Worker(_textbook if self._way == "textbook" else _api)
            )

    # ------------------------------------------------------------------ the clients

    def _order(self) -> None:
        """Send one order after the other, each again and again until it is answered."""
        ask = self._through_the_queue if self._way == "queue" else self._call
        while not self._queue.closed:
            order_id, body, wanted = next(self._orders)
            self._sent[order_id] = wanted
            began, refused = self._scheduler.now, Counter[int]()
            while (status := ask(order_id, body)) in (_TOO_MANY, _LATER):
                refused[status] += 1
                self._scheduler.sleep(RETRY_SECONDS)
                if self._queue.closed:
                    return
            now = self._scheduler.now
            self._answered.append(
                Answered(
                    *(order_id, now, now - began, status),
                    *(refused[_TOO_MANY], refused[_LATER], order_id in self._queued),
                )
            )

    def _call(self, _order_id: str, body: str) -> int:
        """Call the API. Returns the status of the answer."""
        if not self._limit.take(1, self._scheduler.now):
            return _TOO_MANY
        environment: Worker = self._scheduler.owner
        environment.deadline = self._scheduler.now + INVOCATION_SECONDS
        try:
            if environment.handler is None:
                environment.handler = environment.load()
            self._compute(environment, CPU.message)
            context = Context(self._scheduler, environment.deadline)
            status: int = environment.handler({**self._event, "body": body}, context)["statusCode"]
        except InvocationTimeout:
            environment.handler, environment.caches = None, {}
            return _LATER
        finally:
            environment.deadline = inf
        return status

    def _through_the_queue(self, order_id: str, body: str) -> int:
        """Send an order to the queue, and wait until it is durable."""
        self._scheduler.sleep(self._region.queue())
        self._durable[order_id] = self._scheduler.current
        self._enqueue(body)
        self._scheduler.block()
        return 201

    def _enqueue(self, body: str) -> None:
        order_id = json.loads(body)["orderId"]
        self._queued.add(order_id)
        sent = len(self._queued)
        self._queue.give_back([Message(order_id, body, self._sent[order_id], sent, hidden=0.0)])

    def _answer_sqs(
        self, worker: Worker, operation: str, request: dict[str, Any]
    ) -> dict[str, Any]:
        if operation != "SendMessage":
            return super()._answer_sqs(worker, operation, request)
        self._scheduler.sleep(self._region.queue())
        self._enqueue(request["MessageBody"])
        return {"MessageId": "sent"}

    def _see(self, exchange: Exchange) -> None:
        """Tell the clients of the queue that their orders are durable."""
        if exchange.status != 200 or not exchange.target.endswith("TransactWriteItems"):
            return
        request: Any = exchange.request
        for action in request["TransactItems"]:
            if "Put" in action and action["Put"]["TableName"] == "Orders":
                waits = self._durable.pop(action["Put"]["Item"]["orderId"]["S"], None)
                if waits is not None:
                    self._scheduler.wake(waits)

    # ------------------------------------------------------------------ the result

    def _enter(self, message: Message) -> None:
        """Leave the rows where they are, because clients look for them."""

    def _close(self) -> None:
        """End the window. What is done after it does not count."""
        super()._close()
        self._counted = self.observed
        self.observed = Observed(Tally("Products", "Orders"), self._scheduler.now)

    def result(self) -> Waited:
        """Compute the figures, and check the books."""
        rows = self._store.tables["Orders"].items
        for (order_id,), row in rows.items():
            self._books.enter(row["status"]["S"], self._sent[order_id])
        self._lost = sum(a.status != 202 and (a.order_id,) not in rows for a in self._answered)
        seen = self._counted
        ends = seen.began + (seen.window or nan)
        counted = [a for a in self._answered if seen.began < a.at <= ends]
        decided = [a for a in counted if a.status != 202]
        unexpected = [a for a in counted if a.status not in (200, 201, 202, 409)]
        tally = seen.tally
        durable = len(tally.durable) or nan
        orders = len(counted) or nan
        waits = [a.seconds for a in counted]
        return Waited(
            way=self._way,
            clients=self._clients,
            rate=len(decided) / (seen.window or nan),
            p50=percentile(waits, 50),
            p99=percentile(waits, 99),
            at_once=sum(not a.queued for a in decided) / orders,
            queued=sum(a.queued for a in counted) / orders,
            accepted=(len(counted) - len(decided)) / orders,
            throttled=sum(a.throttled for a in counted) / orders,
            failed=sum(a.failed for a in counted) / orders,
            conflicts=tally.conflicts / durable,
            conflict_rate=tally.conflicts / tally.attempts if tally.attempts else nan,
            write_units=tally.usage.write / durable,
            requests=(tally.calls + tally.others) / durable,
            clean=self._audit().clean and not unexpected,
        )


def _deployed() -> Settings:
    """The settings that are deployed by default."""
    context = json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"]
    return Settings.from_context(context["stage"], context["settings"])


def _api() -> Callable[[Any, Any], Any]:
    handler: Callable[[Any, Any], Any] = load_handler("api").lambda_handler
    return handler


def _textbook() -> Callable[[Any, Any], Any]:
    """Make the textbook's handler: it places the order, or gives up after its attempts."""
    place = contenders.load("textbook").place_order_transaction

    def handle(event: Mapping[str, Any], _context: object) -> dict[str, int]:
        try:
            place(json.loads(event["body"]))
        except (ClientError, contenders.ContentionError):
            return {"statusCode": _LATER}
        return {"statusCode": 201}

    return handle


def cells(size: str) -> Iterator[dict[str, Value]]:
    """Some numbers of clients, each way."""
    for workload in ("hot", "zipf"):
        for clients in (1, 5, 20, 50, 200) if size == "full" else (1, 50, 200):
            for way in WAYS:
                yield {
                    "engine": "simulated",
                    "workload": workload,
                    "clients": clients,
                    "way": way,
                    "seconds": 30.0,
                    "seed": 0,
                }


def measure(**parameters: Any) -> Result:
    """Simulate clients that wait for their answers."""
    made = workloads.make(parameters["workload"], _ORDERS, parameters["seed"])
    simulation = Waiting(
        *(parameters["way"], made, parameters["clients"]),
        *(parameters["seconds"], parameters["seed"], WARM_UP_SECONDS),
    )
    simulation.run()
    return asdict(simulation.result())


def show(found: Found, screen: Console) -> bool:
    """Print a table for each workload."""
    for workload in dict.fromkeys(parameters["workload"] for parameters, _ in found):
        table = report.table(f"Callers who wait: {workload}", "way")
        for heading in (
            *("clients", "orders/s", "p50 ms", "p99 ms", "at once", "queue", "202", "429/order"),
            *("503/order", "conflicts", "rate", "writes", "requests", ""),
        ):
            table.add_column(heading, justify="right", no_wrap=True)
        for parameters, result in found:
            if parameters["workload"] == workload:
                table.add_row(*_row(Waited(**result)))
        screen.print(table, "")
    return all(result["clean"] for _, result in found)


def _row(seen: Waited) -> list[str]:
    return [
        *(seen.way, str(seen.clients), f"{seen.rate:,.1f}"),
        *(f"{1000 * seen.p50:,.0f}", f"{1000 * seen.p99:,.0f}"),
        *(f"{seen.at_once:.1%}", f"{seen.queued:.1%}", f"{seen.accepted:.1%}"),
        *(f"{seen.throttled:.2f}", f"{seen.failed:.2f}"),
        *(f"{seen.conflicts:.3f}", f"{seen.conflict_rate:.1%}"),
        *(f"{seen.write_units:.2f}", f"{seen.requests:.2f}"),
        "" if seen.clean else report.UNBALANCED,
    ]


STUDY = Study("callers who wait for the answer to their orders", cells, measure, show)
