"""The sweep during other traffic: its calls, and the queue of expiries that it fills."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from bench.contenders import OURS
from bench.simulator.engine import (
    Conditions,
    InvocationTimeout,
    Simulation,
    Worker,
    handler_of,
)
from bench.simulator.queues import Message, Queue
from bench.workloads import Workload
from local.stack import SETTINGS
from testing.aws import DynamoDB

SWEEP_EACH_SECONDS = 60.0
SWEEP_SECONDS = 50.0
"""Timeout of the sweep, as in the stack."""


class _Tables(DynamoDB):
    """Tables that answer queries for holds from presorted lists, instead of scanning all items."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now)
        self.held: dict[str, list[str]] = defaultdict(list)

    def _query(self, request: dict[str, Any]) -> dict[str, Any]:
        values = request["ExpressionAttributeValues"]
        shard, until = values[":shard"]["S"], values[":until"]["S"]
        rows = self.tables["Orders"].items
        if "ExclusiveStartKey" in request:
            start = bisect_right(self.held[shard], request["ExclusiveStartKey"]["orderId"]["S"])
        else:
            start = 0
            self.held[shard] = [
                order_id for order_id in self.held[shard] if "expiryShard" in rows[order_id,]
            ]
        found: list[dict[str, Any]] = []
        for order_id in self.held[shard][start:]:
            row = rows[order_id,]
            if "expiryShard" in row and row["expiresAt"]["S"] <= until:
                found.append({name: row[name] for name in ("orderId", "expiryShard", "expiresAt")})
            if len(found) == request["Limit"]:
                return {"Items": found, "LastEvaluatedKey": found[-1]}
        return {"Items": found}


class Swept(Simulation):
    """A simulation in which the sweep can run.

    Args:
        workload: The orders.
        workers: Number of order workers.
        seed: Seed of all randomness.
        conditions: The conditions of the run.
    """

    def __init__(self, workload: Workload, workers: int, seed: int, conditions: Conditions) -> None:
        self._sent = 0
        super().__init__(OURS, workload, workers, seed, conditions)
        self._expiries = Queue(self._scheduler, (), stays=True)
        self._sqs.create("Orders")

    def _tables(self) -> DynamoDB:
        self._index = _Tables(self.now)
        return self._index

    def _environment(self) -> dict[str, str]:
        url = "https://sqs.us-east-1.amazonaws.com/000000000000/Expiry"
        return super()._environment() | {
            "HOLD_GRACE_SECONDS": str(SETTINGS["holdGraceSeconds"]),
            "SWEEP_MINUTES": "1",
            "EXPIRY_QUEUE_URL": url,
            "EXPIRY_DEAD_LETTER_QUEUE_URL": self._dead_letters.url,
        }

    def _start_sweep(self, seconds: float = SWEEP_EACH_SECONDS) -> None:
        """Sweep at a fixed interval, until the window ends."""
        sweep = partial(self._sweep, seconds)
        self._scheduler.start(sweep, Worker(partial(handler_of, "sweep")))

    def _sweep(self, seconds: float) -> None:
        while not self._queue.closed:
            began = self._scheduler.now
            with suppress(InvocationTimeout):
                self._invoke(self._scheduler.owner, {"action": "sweep"}, SWEEP_SECONDS)
            self._scheduler.sleep(began + seconds - self._scheduler.now)

    def _answer_sqs(
        self, worker: Worker, operation: str, request: dict[str, Any]
    ) -> dict[str, Any]:
        asked = operation if request["QueueUrl"].endswith("/Expiry") else ""
        if asked not in ("SendMessageBatch", "GetQueueAttributes"):
            return super()._answer_sqs(worker, operation, request)
        self._scheduler.sleep(self._region.queue())
        if asked == "GetQueueAttributes":
            return {"Attributes": {"ApproximateNumberOfMessages": str(self._expiries.visible)}}
        messages = []
        for entry in request["Entries"]:
            self._sent += 1
            message = Message(str(self._sent), entry["MessageBody"], {}, self._sent)
            message.visible_at = self._scheduler.now + entry["DelaySeconds"]
            messages.append(message)
        self._expiries.give_back(messages)
        return {"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]], "Failed": []}
