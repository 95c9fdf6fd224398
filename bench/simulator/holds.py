"""Holds that all end at the same moment, while orders keep coming.

The sweep finds these holds in the index and sends them to the queue of expiries. Two concurrent invocations
expire them, each ten at a time.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import nan

from bench.capacity import Call
from bench.contenders import OURS
from bench.figures import SceneFigures
from bench.simulator.engine import Conditions, Simulation
from bench.workloads import CREATED_AT, Workload
from inventory_orders.clock import timestamp
from inventory_orders.domain.record import OrderLine, OrderRecord, OrderStatus
from inventory_orders.store.rows import encode, order_row
from testing.schedules.by_time.world import Worker

SWEEP_EACH_SECONDS = 60.0

EXPIRIES = 10
"""Maximum number of holds in one invocation, as in the stack."""

EXPIRERS = 2
"""Number of invocations that expire holds at the same time, as in the stack."""


class Holds(Simulation):
    """An endless stream of orders, and holds that all end at the same time.

    Args:
        workload: The orders. Held orders are for the same products.
        workers: Number of order workers.
        holds: Number of held orders.
        end: When the holds end, in virtual seconds.
        seed: Seed of all randomness.
        conditions: The conditions of the run.
    """

    def __init__(
        self,
        workload: Workload,
        workers: int,
        holds: int,
        end: float,
        seed: int,
        conditions: Conditions,
    ) -> None:
        self._holds = holds
        self._end = end
        self._wanted_by_hold: dict[str, Mapping[str, int]] = {}
        self._ordered: list[float] = []
        self._expired: list[float] = []
        super().__init__(OURS, workload, workers, seed, conditions)

    def _fill_tables(self) -> None:
        """Write the held orders, with units from the rows' stock. All holds end at the same moment."""
        super()._fill_tables()
        orders, products = self.items("Orders"), self.items("Products")
        chance = random.Random(f"holds {self._seed}")
        ends = timestamp(datetime.fromtimestamp(self.now() + self._end, UTC))
        taken: Counter[str] = Counter()
        for number in range(self._holds):
            order_id = f"held-{number:07}"
            wanted = chance.choice(self._wanted)
            while not self._is_left(wanted, taken):
                wanted = chance.choice(self._wanted)
            orders[order_id,] = encode(order_row(_held(order_id, wanted, ends)))
            self._wanted_by_hold[order_id] = wanted
            taken.update(wanted)
        for product_id, units in taken.items():
            row = products[product_id,]
            products[product_id,] = row | {
                "stockCount": {"N": str(int(row["stockCount"]["N"]) - units)}
            }

    def _is_left(self, wanted: Mapping[str, int], taken: Mapping[str, int]) -> bool:
        """Whether each row still has a unit after a hold has taken its units, so that no product runs out of stock."""
        products = self.items("Products")
        return all(
            int(products[product_id,]["stockCount"]["N"]) > taken.get(product_id, 0) + units
            for product_id, units in wanted.items()
        )

    def _start_workers(self) -> None:
        super()._start_workers()
        for _ in range(EXPIRERS):
            self.scheduler.start(self._expire, Worker("change_orders", "Expiry"))
        self.sweep(SWEEP_EACH_SECONDS)

    def _expire(self) -> None:
        """Take holds and expire them until none is left."""
        for _ in self.serve(EXPIRIES):
            if len(self._expired) >= self._holds:
                self._close()

    def _see(self, call: Call) -> None:
        """Count answered orders and expired holds."""
        for kind, content in call.actions if call.ok else ():
            if content["TableName"] != "Orders":
                continue
            if kind == "Put":
                self._ordered.append(call.exchange.ended)
            elif {"S": "EXPIRED"} in content["ExpressionAttributeValues"].values():
                self._expired.append(call.exchange.ended)

    # ------------------------------------------------------------------ the result

    def result(self) -> SceneFigures:
        """Compute the figures while holds expire, and check that each hold has returned all its units."""
        rows = self.items("Orders")
        for order_id, wanted in self._wanted_by_hold.items():
            self._books.enter(rows[order_id,]["status"]["S"], wanted)
        seen = super().result()
        first, last = self._expired[0], self._expired[-1]
        ordered = bisect_left(self._ordered, last) - bisect_left(self._ordered, first)
        return replace(
            seen,
            rate=ordered / (last - first) if last > first else nan,
            took=last - self._end,
            clean=seen.clean and len(self._expired) == self._holds,
        )


def _held(order_id: str, wanted: Mapping[str, int], ends: str) -> OrderRecord:
    """Build an order with a hold that was sold from rows."""
    lines = (
        OrderLine(product_id, units, CREATED_AT, product_version=1)
        for product_id, units in wanted.items()
    )
    return OrderRecord(
        order_id,
        "user",
        tuple(lines),
        OrderStatus.PENDING,
        *(1, CREATED_AT, CREATED_AT),
        hold_seconds=900,
        expires_at=ends,
    )
