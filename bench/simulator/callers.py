"""Callers of `POST /orders` that wait for the answer with `Prefer: wait=25`, while workers serve the queue.

Each client sends an order, waits for the answer, and sends the next one. Settings, API limits and workers are the
defaults of a deployment, unless a scene raises the API limits. Each client has its own execution environment, because an environment serves one request at a
time, and there may be any number of them. The time taken by API Gateway and by starting an invocation is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import nan

from bench.contenders import OURS
from bench.figures import Observations, SceneFigures, Tally, percentile
from bench.simulator.engine import Conditions, Simulation
from bench.workloads import Workload, endless
from infra.settings import Settings
from local import ROOT
from local.invoke import read_event
from testing.schedules.by_time.latency import TokenBucket
from testing.schedules.by_time.queues import Message, Queue
from testing.schedules.by_time.world import Worker

import os
_EXPRESS_WORKERS, _EXPRESS_BATCH, _API_LANES = int(os.environ.get("EW", 25)), 10, 30
RETRY_SECONDS = 1.0
"""The time in `Retry-After`, after which a client repeats a request that was answered with 429 or 503."""


@dataclass(frozen=True, slots=True)
class AnsweredOrder:
    """An answered order.

    Attributes:
        order_id: Its id.
        at: Time of the answer, in virtual seconds.
        seconds: Seconds from its first request to its answer.
        status: HTTP status of the answer.
        queued: Whether the order went through the queue.
    """

    order_id: str
    at: float
    seconds: float
    status: int
    queued: bool


class Callers(Simulation):
    """Clients that wait for their answers.

    Args:
        workload: Their orders, which are repeated.
        clients: Number of clients.
        seed: Seed of all randomness.
        conditions: The conditions of the run. Lanes and batches are as deployed.
        api_limit: Requests a second that the API accepts; by default as deployed.
    """

    def __init__(
        self,
        workload: Workload,
        clients: int,
        seed: int,
        conditions: Conditions,
        api_limit: int | None = None,
        once: bool = False,
    ) -> None:
        settings = _deployed()
        queue, limits = settings.queues["OrderQueue"], settings.api_limits
        conditions = replace(conditions, lanes=settings.lanes, batch=queue.batchSize, endless=True)
        self._clients = clients
        self._once = once
        self._orders = endless(workload, seed)
        if once:
            self._orders = islice(self._orders, len(workload.bodies))
        self._sent_orders: dict[str, Mapping[str, int]] = {}
        self._queued: set[str] = set()
        self._answered: list[AnsweredOrder] = []
        self._limit = TokenBucket(api_limit or limits.requestsPerSecond, api_limit or limits.burst)
        self._event = read_event(ROOT / "events" / "api.json", "api")
        self._event["headers"]["prefer"] = "wait=25"
        super().__init__(OURS, workload, queue.maximumConcurrency, seed, conditions)
        self.polled["Order"] = Queue(self.scheduler, (), stays=True)
        self.polled["OrderExpress"] = Queue(self.scheduler, (), stays=True)
        self.variables["API_LANES"] = str(_API_LANES)
        self.variables["SHOW_STOCK"] = "availability"
        self._counted = self.observed
        self._counted_units = 0.0

    def _start_workers(self) -> None:
        super()._start_workers()
        for number in range(_EXPRESS_WORKERS):
            worker = Worker("place_orders", "OrderExpress")
            self.scheduler.start(partial(self._join, number), worker)
        for _ in range(self._clients):
            self.scheduler.start(self._order, Worker("api"))

    def _join(self, number: int) -> None:
        """Serve the express queue as one of its workers, of which there are five at first and five more each second."""
        self.scheduler.sleep(number // 5)
        self._work(_EXPRESS_BATCH)

    # ------------------------------------------------------------------ the clients

    def _order(self) -> None:
        """Send one order after the other, and repeat each until it is answered."""
        for order_id, body, wanted in self._orders:
            if self.is_closed:
                return
            self._sent_orders[order_id] = wanted
            began = self.scheduler.now
            while (status := self._call(body)) in (429, 503):
                self.scheduler.sleep(RETRY_SECONDS)
                if self.is_closed:
                    return
            now = self.scheduler.now
            self._answered.append(
                AnsweredOrder(order_id, now, now - began, status, order_id in self._queued)
            )
            if self._once and len(self._answered) == len(self._workload.bodies):
                self._close()

    def _call(self, body: str) -> int:
        """Call the API. Returns the status of the answer."""
        if not self._limit.take(1, self.scheduler.now):
            return 429
        return self.request({**self._event, "body": body})

    def message(self, body: str) -> Message:
        order_id = json.loads(body)["orderId"]
        self._queued.add(order_id)
        return Message(order_id, body, self._sent_orders[order_id], len(self._queued))

    # ------------------------------------------------------------------ the result

    def _enter(self, message: Message) -> None:
        """Keep the rows of orders, because clients look them up."""

    def _close(self) -> None:
        """End the window. Later answers do not count."""
        super()._close()
        self._counted = self.observed
        self._counted_units = self._write_units()
        self.observed = Observations(Tally("Products", "Orders"), self.scheduler.now)

    def result(self) -> SceneFigures:
        """Compute the figures, and check the books."""
        rows = self.items("Orders")
        for (order_id,), row in rows.items():
            self._books.enter(row["status"]["S"], self._sent_orders[order_id])
        self._lost = sum(a.status != 202 and (a.order_id,) not in rows for a in self._answered)
        seen = self._counted
        ends = seen.began + (seen.window or nan)
        counted = [a for a in self._answered if seen.began < a.at <= ends]
        unexpected = [a for a in counted if a.status not in (200, 201, 202, 409)]
        tally = seen.tally
        durable = len(tally.durable) or nan
        return SceneFigures(
            rate=sum(a.status != 202 for a in counted) / (seen.window or nan),
            requests=(tally.calls + tally.others) / durable,
            write_units=self._counted_units / durable,
            p99=percentile([a.seconds for a in counted], 99),
            conflicts=tally.conflicts / tally.attempts if tally.attempts else nan,
            took=nan,
            clean=self._audit().clean and not unexpected,
        )


def _deployed() -> Settings:
    """The default settings of a deployment."""
    context = json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"]
    return Settings.from_context(context["stage"], context["settings"])
