"""Callers of `POST /orders` that wait for the answer with `Prefer: wait`, while workers serve the queues.

Each client sends an order, waits for the answer, and sends the next one. Lanes and the express queue are the defaults of
a deployment, unless a scene changes them. Each client has its own execution environment, because an environment serves
one request at a time, and there may be any number of them. The API's limits, the time taken by API Gateway and the time
to start an environment are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import nan

from bench.capacity import Call
from bench.contenders import OURS
from bench.figures import Observations, SceneFigures, Tally, percentile
from bench.simulator.engine import Conditions, Simulation
from bench.workloads import Workload, endless
from infra.settings import Settings
from local import ROOT
from local.invoke import read_event
from testing.schedules.by_time.queues import Message, Queue
from testing.schedules.by_time.world import Worker

RETRY_SECONDS = 1.0
"""The time in `Retry-After`, after which a client repeats a request that was answered with 429 or 503."""

# Lambda starts with five batches at a time, and adds up to 300 a minute while messages wait:
# docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html
_WORKERS_A_SECOND = 5


@dataclass(frozen=True, slots=True)
class Doors:
    """How orders come in.

    Attributes:
        clients: Number of clients that wait for their answers.
        once: Whether each order of the workload is sent once. Otherwise, the orders are repeated endlessly.
        api_lanes: Number of lanes of the API; None for the deployed number.
        express: Maximum number of workers of the express queue; None for the deployed number.
        queued: Number of workers of `OrderQueue`, which is full of orders of the same kind.
    """

    clients: int
    once: bool = False
    api_lanes: int | None = None
    express: int | None = None
    queued: int = 0


@dataclass(frozen=True, slots=True)
class AnsweredOrder:
    """An answered order.

    Attributes:
        order_id: Its id.
        at: Time of the answer, in virtual seconds.
        seconds: Seconds from its first request to its answer.
        status: HTTP status of the answer.
        express: Whether the order went through the express queue.
    """

    order_id: str
    at: float
    seconds: float
    status: int
    express: bool


class Callers(Simulation):
    """Clients that wait for their answers.

    Args:
        workload: The orders.
        doors: How they come in.
        seed: Seed of all randomness.
        conditions: The conditions of the run. Lanes and batches are as deployed.
    """

    def __init__(self, workload: Workload, doors: Doors, seed: int, conditions: Conditions) -> None:
        settings = _deployed()
        batch = settings.queues["OrderQueue"].batchSize
        conditions = replace(conditions, lanes=settings.lanes, batch=batch, endless=True)
        self._doors = doors
        self._orders = endless(workload, seed)
        if doors.once:
            self._orders = islice(self._orders, len(workload.bodies))
        self._sent_orders: dict[str, Mapping[str, int]] = {}
        self._express: set[str] = set()
        self._answered: list[AnsweredOrder] = []
        self._too_early = 0
        express = settings.queues["OrderQueueExpress"]
        self._express_batch = express.batchSize
        self._workers_for_express = (
            express.maximumConcurrency if doors.express is None else doors.express
        )
        self._event = read_event(ROOT / "events" / "api.json", "api")
        # Without workers, callers would only wait for orders that the API cannot decide itself.
        self._event["headers"]["prefer"] = f"wait={25 if self._workers_for_express else 1}"
        super().__init__(OURS, workload, doors.queued, seed, conditions)
        self.polled["OrderExpress"] = Queue(self.scheduler, (), stays=True)
        lanes = settings.api_lanes if doors.api_lanes is None else doors.api_lanes
        self.variables |= {"API_LANES": str(lanes), "SHOW_STOCK": "availability"}
        self._counted = self.observed
        self._counted_units = 0.0

    def _messages(self) -> Iterator[Message]:
        """The messages of `OrderQueue`."""
        bodies = {f"queued-{order_id}": body for order_id, body in self._workload.bodies.items()}
        orders = endless(replace(self._workload, bodies=bodies), self._seed + 1)
        return (Message(*order, sent) for sent, order in enumerate(orders))

    def _start_workers(self) -> None:
        super()._start_workers()
        for number in range(self._workers_for_express):
            worker = Worker("place_orders", "OrderExpress")
            self.scheduler.start(partial(self._serve_express, number), worker)
        for _ in range(self._doors.clients):
            self.scheduler.start(self._order, Worker("api"))

    def _serve_express(self, number: int) -> None:
        self.scheduler.sleep(number // _WORKERS_A_SECOND)
        self._work(self._express_batch)

    # ------------------------------------------------------------------ the clients

    def _order(self) -> None:
        """Send one order after the other, and repeat each until it is answered."""
        for order_id, body, wanted in self._orders:
            if self.is_closed:
                return
            self._sent_orders[order_id] = wanted
            began = self.scheduler.now
            while (status := self.request({**self._event, "body": body})) == 503:
                self.scheduler.sleep(RETRY_SECONDS)
                if self.is_closed:
                    return
            now = self.scheduler.now
            self._answered.append(
                AnsweredOrder(order_id, now, now - began, status, order_id in self._express)
            )
            if self._doors.once and len(self._answered) == len(self._workload.bodies):
                self._close()

    def message(self, body: str) -> Message:
        order_id = json.loads(body)["orderId"]
        self._express.add(order_id)
        return Message(order_id, body, self._sent_orders[order_id], len(self._express))

    def _see(self, call: Call) -> None:
        """Count orders of a sell-out that are rejected although enough units are left."""
        super()._see(call)
        for kind, content in call.actions if call.ok and self._doors.once else ():
            if kind == "Put" and content["Item"].get("status") == {"S": "REJECTED"}:
                ((product_id, units),) = self._sent_orders[content["Item"]["orderId"]["S"]].items()
                pages = self.pages().by_name.values()
                left = self.stock(product_id) + sum(page.units(product_id) for page in pages)
                self._too_early += left >= units

    # ------------------------------------------------------------------ the result

    def _enter(self, message: Message) -> None:
        """Keep the rows of callers' orders, because callers look them up."""
        if message.order_id not in self._sent_orders:
            super()._enter(message)

    def _close(self) -> None:
        """End the window. Later answers do not count."""
        if self.is_closed:
            return
        super()._close()
        self._counted = self.observed
        self._counted_units = self._write_units()
        self.observed = Observations(Tally("Products", "Orders"), self.scheduler.now)

    def result(self) -> SceneFigures:
        """Compute the figures, and check the books."""
        rows = self.items("Orders")
        for (order_id,), row in rows.items():
            message = self._open(order_id)
            wanted = self._sent_orders.get(order_id) or (message.wanted if message else {})
            self._books.enter(row["status"]["S"], wanted)
        self._lost += sum(a.status != 202 and (a.order_id,) not in rows for a in self._answered)
        seen = self._counted
        ends = seen.began + (seen.window or nan)
        counted = [a for a in self._answered if seen.began < a.at <= ends]
        unexpected = [a for a in counted if a.status not in (200, 201, 202, 409)]
        tally = seen.tally
        durable = len(tally.durable) or nan
        from_queue = len(tally.durable.keys() - self._sent_orders.keys())
        return SceneFigures(
            rate=sum(a.status != 202 for a in counted) / (seen.window or nan),
            requests=(tally.calls + tally.others) / durable,
            write_units=self._counted_units / durable,
            p99=percentile([a.seconds for a in counted], 99),
            conflicts=tally.conflicts / tally.attempts if tally.attempts else nan,
            took=ends if self._doors.once else nan,
            clean=self._audit().clean and not unexpected and not self._too_early,
            queued=from_queue / (seen.window or nan) if self._doors.queued else nan,
            express=sum(a.express for a in counted) / (len(counted) or nan),
        )


def _deployed() -> Settings:
    """The default settings of a deployment."""
    context = json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"]
    return Settings.from_context(context["stage"], context["settings"])
