"""Simulates scenes with all kinds of traffic, so that you can compare the engine before and after a change.

A scene calls handlers with the messages and commands that other systems send, so it runs with any version of the
engine. `python -m bench scenes --compare BEFORE AFTER` prints the results of two checkouts (`.local/bench.jsonl`) side
by side.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import cycle, islice
from math import isnan, nan
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from bench import report, workloads
from bench.capacity import Call
from bench.cells import MeasuredCells, Result, ResultFile, Study, Value
from bench.contenders import OURS
from bench.figures import Audit, Figures, SceneFigures
from bench.simulator.callers import Callers, Doors
from bench.simulator.engine import Conditions, Simulation
from bench.simulator.handovers import CalledHandOvers, HandOvers, QueuedHandOvers
from bench.simulator.holds import Holds
from bench.workloads import CREATED_AT, REAL_ORDERS, Workload, endless, make, with_depth
from inventory_orders.domain.record import OrderLine, OrderRecord, OrderStatus
from inventory_orders.store.rows import encode, order_row
from local.invoke import is_good
from operations.errors import UserError
from testing.schedules.by_time.latency import PROVISIONED_RECEIVE_INTERVAL
from testing.schedules.by_time.queues import FifoQueue, Message, Queue
from testing.schedules.by_time.world import Worker

FIFO_BATCH = 10
FIFO_DEPTH = 5_000
"""Number of messages that are waiting in the FIFO queue at any time."""

LANES = 55
"""Number of lanes in scenes with one worker. It is the default of a deployment: one for each worker of both order
queues."""

_PARTITIONS = {"Products": 4, "Orders": 400, "Allotments": 400}
_SWEEPS = 3
"""Number of sweeps in the window of hand-overs."""
_EARLIER_SECONDS = 30.0
"""At the start, the outbound pages contain the hand-overs of this many seconds, which is half of the time between two
sweeps."""

_LONGEST_SECONDS = 100_000.0
"""Virtual seconds after which holds have ended, or the run ends."""

_POLLERS = {"default": 0.0, "provisioned": PROVISIONED_RECEIVE_INTERVAL}
"""Minimum number of seconds between two receives of a poller, by the mode of the event source mapping."""

_LEAST_WINDOW, _LEAST_WARM_UP = 6.0, 2.0
"""Minimum numbers of seconds in provisioned mode, in which a full batch takes a second."""

_LIMITED_BY_RECEIVES = (
    *("standard", "FIFO", "both queues", "hand-overs", "50000 products", "cold", "scarce"),
    "three locations",
)
"""The beginnings of the scenes that are also simulated in provisioned mode."""

_LOCATIONS = ("", "berlin", "lyon")
_FIRST_OF_OVERFLOW = 15_000
"""Units of the product at the location that all orders prefer."""


class Sales(Simulation):
    """Orders from the standard queue, from the FIFO queue, or from both.

    Args:
        workload: The orders. The FIFO queue gets other orders of the same kind, grouped by their first product.
        standard: Workers of the standard queue.
        fifo: Workers of the FIFO queue.
        lanes: Maximum number of lanes.
        seed: Seed of all randomness.
        conditions: The conditions of the run.
    """

    def __init__(
        self,
        workload: Workload,
        standard: int,
        fifo: int,
        lanes: int,
        seed: int,
        conditions: Conditions,
    ) -> None:
        conditions = replace(conditions, lanes=lanes, partitions=_PARTITIONS)
        super().__init__(OURS, workload, standard, seed, conditions)
        self._fifo_workers = fifo
        if fifo:
            self.polled["OrderFifo"] = FifoQueue(self.scheduler, self._grouped(), FIFO_DEPTH)

    def _grouped(self) -> Iterator[Message]:
        """The messages of the FIFO queue."""
        bodies = {f"fifo-{order_id}": body for order_id, body in self._workload.bodies.items()}
        orders = endless(replace(self._workload, bodies=bodies), self._seed + 1)
        for sent, (order_id, body, wanted) in enumerate(orders):
            yield Message(order_id, body, wanted, sent, group=next(iter(wanted)))

    def _start_workers(self) -> None:
        super()._start_workers()
        for _ in range(self._fifo_workers):
            worker = Worker("place_orders", "OrderFifo")
            self.scheduler.start(partial(self._work, FIFO_BATCH), worker)


class MinuteSales(Sales):
    """Places one order a minute.

    Args:
        count: Number of orders.
        others: As for `Sales`.
    """

    def __init__(self, count: int, *others: Any) -> None:
        super().__init__(*others)
        self._count = count
        self._orders = self.polled["Order"] = Queue(self.scheduler, (), stays=True)

    def _start_workers(self) -> None:
        super()._start_workers()
        self.scheduler.start(self._send, self.scheduler)

    def _send(self) -> None:
        for sent, order in enumerate(islice(endless(self._workload, self._seed), self._count)):
            self._orders.give_back([Message(*order, sent)])
            self.scheduler.sleep(60.0)
        self._close()


class RecalledSales(Sales):
    """An operator's commands for the ten best sellers, one after the other. Each command reclaims the product's units.

    Args:
        action: `discontinue`, or `count`, which acquires the product's lease and releases it immediately.
        others: As for `Sales`.
    """

    def __init__(self, action: str, *others: Any) -> None:
        super().__init__(*others)
        self._action = action
        self._took: list[float] = []

    def _start_workers(self) -> None:
        super()._start_workers()
        self.scheduler.start(self._operate, Worker())

    def _operate(self) -> None:
        demand = Counter[str]()
        for wanted in self._wanted:
            demand.update(wanted)
        self.scheduler.sleep(self._conditions.warm_up)
        for product_id, _ in demand.most_common(10):
            began = self.scheduler.now
            if self._action == "discontinue":
                self._command({"action": "discontinue", "productId": product_id})
            else:
                acquire = {"action": "acquire", "productId": product_id, "seconds": 60}
                lease = self._command({**acquire, "outliveInvocation": True})["lease"]
            self._took.append(self.scheduler.now - began)
            if self._action == "count":
                self._command({"action": "release", "lease": lease})

    def _command(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Invoke the operator's function until it succeeds."""
        function = "count_stock" if self._action == "count" else "manage_products"
        while True:
            answer: dict[str, Any] = self.invoke(function, event)
            if is_good(answer):
                return answer
            self.scheduler.sleep(1.0)

    def result(self) -> SceneFigures:
        """Compute the figures, and the mean time of a command."""
        return replace(super().result(), took=fmean(self._took))


class AmendSales(Sales):
    """Amends of earlier orders instead of new orders. Each one is sent through the queue of orders.

    Args:
        differences: The units that each amend adds to a product, or takes away if negative, in turn.
        others: As for `Sales`.
    """

    def __init__(self, differences: Sequence[int], *others: Any) -> None:
        self._differences = cycle(differences)
        super().__init__(*others)

    def _messages(self) -> Iterator[Message]:
        """Write each earlier order, with the amend that changes it."""
        rows = self.items("Orders")
        for sent, (order_id, _, wanted) in enumerate(endless(self._workload, self._seed)):
            before = {product_id: units + 2 for product_id, units in wanted.items()}
            lines = (OrderLine(p, units, CREATED_AT, 1) for p, units in before.items())
            order = OrderRecord(
                *(order_id, "user", tuple(lines), OrderStatus.PENDING),
                *(1, CREATED_AT, CREATED_AT),
            )
            rows[order_id,] = encode(order_row(order))
            changes = dict(zip(before, self._differences, strict=False))
            items = [{"productId": p, "quantity": before[p] + n} for p, n in changes.items()]
            amend = {"action": "amend", "orderId": order_id, "stepId": "more", "items": items}
            yield Message(order_id, json.dumps(amend), changes, sent)

    def _enter(self, message: Message) -> None:
        """Enter an amend into the books if it was applied."""
        rows, key = self.items("Orders"), (message.order_id,)
        if "steps" not in rows[key]:
            del rows[key]
        super()._enter(message)

    def cell(self) -> Figures:
        """Compute the figures. Orders that were not amended before the end do not count."""
        rows = self.items("Orders")
        for key in [key for key, row in rows.items() if "steps" not in row]:
            del rows[key]
        return super().cell()


class ReturnSales(Holds):
    """Sells while orders are cancelled, holds expire, and goods come in."""

    EACH_SECOND: Mapping[str, int] = {"cancellations": 40, "receipts": 20}

    def __init__(self, *others: Any) -> None:
        self._placed: list[str] = []
        self._messages_put = 0
        self._wanted_of: dict[str, Mapping[str, int]] = {}
        super().__init__(*others)
        for feed in ("OrderCommand", "Stock"):
            self.polled[feed] = Queue(self.scheduler, (), stays=True)

    def _start_workers(self) -> None:
        super()._start_workers()
        for function, feed, most in (
            ("change_orders", "OrderCommand", 10),
            ("adjust_stock", "Stock", 49),
        ):
            for _ in range(2):
                self.scheduler.start(partial(self._drain, most), Worker(function, feed))
        self.scheduler.start(self._send, self.scheduler)

    def _drain(self, most: int) -> None:
        for _ in self.serve(most):
            pass

    def _send(self) -> None:
        """Send cancellations and receipts at a steady rate until the window ends."""
        chance = random.Random(f"returning {self._seed}")
        products = list(self._workload.stock)
        number = 0
        while not self.is_closed:
            self.scheduler.sleep(1.0)
            for _ in range(min(self.EACH_SECOND["cancellations"], len(self._placed))):
                order_id = self._placed.pop(chance.randrange(len(self._placed)))
                command = {"action": "cancel", "orderId": order_id}
                self._send_to("OrderCommand", f"cancel-{order_id}", command)
            for _ in range(self.EACH_SECOND["receipts"]):
                number += 1
                receipt = {
                    "adjustmentId": f"receipt-{number}",
                    "productId": chance.choice(products),
                    "delta": 10,
                    "reason": "RECEIPT",
                }
                self._send_to("Stock", f"receipt-{number}", receipt)

    def _send_to(self, feed: str, name: str, body: Mapping[str, Any]) -> None:
        self._messages_put += 1
        self.polled[feed].give_back([Message(name, json.dumps(body), {}, self._messages_put)])

    def _see(self, call: Call) -> None:
        super()._see(call)
        rows = [content["Item"] for kind, content in call.actions if call.ok and kind == "Put"]
        self._placed += [
            row["orderId"]["S"] for row in rows if row.get("status") == {"S": "PENDING"}
        ]

    def _enter(self, message: Message) -> None:
        """Keep the order's row, since the order may still be cancelled."""
        self._ended += 1
        self._wanted_of[message.order_id] = message.wanted

    def _audit(self) -> Audit:
        """Check the tables, with cancellations and receipts."""
        for order_id, wanted in self._wanted_of.items():
            row = self.item("Orders", order_id)
            if row is None:
                self._lost += 1
            else:
                self._books.enter(row["status"]["S"], wanted)
        stock = Counter(self._workload.stock)
        for row in self.items("StockAdjustments").values():
            stock[row["productId"]["S"]] += int(row["delta"]["N"])
        self._workload = replace(self._workload, stock=stock)
        return super()._audit()


# ---------------------------------------------------------------------- the scenes


@dataclass(frozen=True, slots=True)
class Run:
    """The parameters of a scene.

    Attributes:
        orders: Path of the file of real orders.
        lanes: Maximum number of lanes; 0 means one per worker.
        pollers: `default`, or `provisioned` for pollers that make ten receives a second.
        seed: Seed of all randomness.
        scale: Factor by which all durations and all numbers of holds and orders are multiplied.
    """

    orders: str
    lanes: int
    pollers: str
    seed: int
    scale: float

    def conditions(self, **more: Any) -> Conditions:
        """Make the conditions of the scene."""
        return Conditions(receive_interval=_POLLERS[self.pollers], **more)

    def window(self, seconds: float, warm_up: float) -> dict[str, float]:
        """Choose how long a scene with endless orders is measured, and how long it runs before."""
        if self.pollers == "provisioned":
            seconds = max(seconds, _LEAST_WINDOW)
            warm_up = max(warm_up, _LEAST_WARM_UP) if warm_up else 0.0
        return {"window": seconds * self.scale, "warm_up": warm_up * self.scale}

    def workload(self, name: str) -> Workload:
        """Create a workload by its name."""
        count = int((2_000 if name == "hot" else 20_000) * min(1.0, self.scale))
        if name == "groups":
            return workloads.groups(count, self.seed)
        if name == "wide":
            return workloads.zipf(count, self.seed, 50_000)
        return make(name, count, self.seed, self.orders)

    def sells(
        self,
        name: str,
        standard: int = 0,
        fifo: int = 0,
        *,
        seconds: float,
        warm_up: float = 0.0,
        warm: bool = False,
        kind: Callable[..., Sales] = Sales,
        spread: Callable[[Workload], Workload] = lambda made: made,
    ) -> SceneFigures:
        """Sell continuously, from queues that are never empty."""
        conditions = self.conditions(**self.window(seconds, warm_up), warm=warm, endless=True)
        lanes = self.lanes or standard + fifo
        made = spread(self.workload(name))
        return _run(kind(made, standard, fifo, lanes, self.seed, conditions))

    def minutely(self) -> SceneFigures:
        """Place one order a minute for a day."""
        count = int(24 * 60 * self.scale)
        rest = self.workload("zipf"), 1, 0, self.lanes or LANES, self.seed
        return _run(MinuteSales(count, *rest, self.conditions(endless=True)))

    def sells_out(
        self,
        workers: int,
        count: int = 4_000,
        spread: Callable[[Workload], Workload] = lambda made: made,
    ) -> SceneFigures:
        """Answer all orders of a sell-out, which begins with empty lanes."""
        made = spread(workloads.sell_out(int(count * self.scale), self.seed))
        return self._answers_all(made, workers)

    def limited(
        self, *, keys: int = 1, flood: int = 0, sells_out: bool = True, has_limit: bool = True
    ) -> SceneFigures:
        """Answer all orders of a sale with a purchase limit, or of the same sale without one."""
        count, more = int(1_000 * self.scale), int(flood * self.scale)
        made = workloads.limited_sale(count, self.seed, keys, flood=more, sells_out=sells_out)
        return self._answers_all(made if has_limit else workloads.without_limit(made), 8)

    def runs_short(self, workers: int, count: int = 2_000) -> SceneFigures:
        """Answer all orders for several scarce products, most of which sell out. The lanes are empty at first."""
        return self._answers_all(workloads.scarce(int(count * self.scale), self.seed), workers)

    def _answers_all(self, made: Workload, workers: int) -> SceneFigures:
        lanes = self.lanes or workers
        return _run(Sales(made, workers, 0, lanes, self.seed, self.conditions()))

    def holds_end(self) -> SceneFigures:
        """Sell while many holds end at the same time."""
        made = make("zipf", 2_000, self.seed)
        return self._while_holds_end(Holds, made, 1, 10_000, warm=True)

    def returning(self) -> SceneFigures:
        """Sell a minute's stock while units are returned."""
        made = with_depth(self.workload("zipf"), 60.0)
        return self._while_holds_end(ReturnSales, made, 8, 1_000, warm=False)

    def _while_holds_end(
        self, kind: type[Holds], made: Workload, workers: int, holds: int, *, warm: bool
    ) -> SceneFigures:
        conditions = self.conditions(
            window=_LONGEST_SECONDS,
            lanes=self.lanes or workers,
            warm=warm,
            endless=True,
            partitions=_PARTITIONS,
        )
        count, end = int(holds * self.scale), 5.0 * self.scale
        return _run(kind(made, workers, count, end, self.seed, conditions))

    def hands_over(self, name: str, seconds: float) -> SceneFigures:
        """Sell continuously while earlier orders are handed over, both as fast as the workers can handle them."""
        return self._hands_over(
            partial(QueuedHandOvers, 5),
            self.workload(name),
            8,
            seconds=seconds,
            warm_up=0.5,
            a_second=600.0,
        )

    def called_hand_overs(self, name: str, calls_a_second: float) -> SceneFigures:
        """Sell continuously while operators call the API to hand over earlier orders."""
        made = make(name, 2_000, self.seed, self.orders)
        kind = partial(CalledHandOvers, calls_a_second)
        return self._hands_over(kind, made, 0, seconds=30.0, warm_up=3.0, a_second=calls_a_second)

    def _hands_over(
        self,
        kind: Callable[..., HandOvers],
        made: Workload,
        workers: int,
        *,
        seconds: float,
        warm_up: float,
        a_second: float,
    ) -> SceneFigures:
        window = self.window(seconds, warm_up)
        conditions = self.conditions(
            **window,
            lanes=self.lanes or workers,
            warm=True,
            endless=True,
            partitions=_PARTITIONS,
        )
        # The window is too short for a sweep a minute.
        sweep_each = window["window"] / _SWEEPS
        earlier = int(_EARLIER_SECONDS * a_second * self.scale)
        return _run(kind(made, workers, sweep_each, earlier, self.seed, conditions))

    def callers(self, name: str, doors: Doors) -> SceneFigures:
        """Serve callers of the API that wait for the answer, after six seconds."""
        made = make(name, 2_000, self.seed, self.orders)
        conditions = self.conditions(window=5.0 * self.scale, warm_up=6.0 * self.scale)
        return _run(Callers(made, doors, self.seed, conditions))

    def callers_sell_out(self, clients: int, count: int) -> SceneFigures:
        """Answer all callers of a sell-out, from processes that have just started."""
        made = workloads.sell_out(int(count * self.scale), self.seed)
        conditions = self.conditions(window=_LONGEST_SECONDS)
        return _run(Callers(made, Doors(clients, once=True), self.seed, conditions))


def _run(sales: Simulation) -> SceneFigures:
    sales.run()
    return sales.result()


# Workers, and virtual seconds before and in the window. Fifty workers that start together need seconds to find their
# lanes.
_STANDARD: Mapping[str, Sequence[tuple[int, float, float]]] = {
    "hot": ((1, 0.5, 10.0), (8, 0.5, 3.0), (50, 4.0, 1.0)),
    "zipf": ((1, 0.5, 10.0), (8, 0.5, 3.0), (50, 4.0, 0.5)),
    "real": ((1, 0.5, 5.0), (8, 0.5, 1.0), (50, 2.0, 1.0)),
}
_FIFO: Mapping[str, Sequence[tuple[int, float, float]]] = {
    "hot": ((8, 0.5, 10.0),),
    "zipf": ((1, 1.0, 10.0), (8, 2.0, 10.0), (50, 2.0, 8.0)),
    "real": ((1, 1.0, 8.0), (8, 2.0, 8.0), (50, 2.0, 8.0)),
    "groups": ((50, 0.5, 2.0),),
}


def scenes() -> dict[str, Callable[[Run], SceneFigures]]:
    """List the scenes, in the order of the report."""
    found: dict[str, Callable[[Run], SceneFigures]] = {}
    for name, sizes in _STANDARD.items():
        for workers, warm_up, seconds in sizes:
            found[f"standard {name} {workers}"] = partial(
                Run.sells, name=name, standard=workers, seconds=seconds, warm_up=warm_up, warm=True
            )
    for name, sizes in _FIFO.items():
        for workers, warm_up, seconds in sizes:
            found[f"FIFO {name} {workers}"] = partial(
                Run.sells, name=name, fifo=workers, seconds=seconds, warm_up=warm_up
            )
    for name in ("zipf", "real"):
        found[f"both queues {name} 5 and 8"] = partial(
            Run.sells, name=name, standard=5, fifo=8, seconds=4.0, warm_up=1.0
        )
    for name, seconds in (("hot", 3.0), ("zipf", 3.0), ("real", 1.5)):
        found[f"hand-overs {name} 5 and 8"] = partial(Run.hands_over, name=name, seconds=seconds)
    for name in ("hot", "zipf", "real"):
        found[f"calls to hand over {name} 100"] = partial(
            Run.called_hand_overs, name=name, calls_a_second=100.0
        )
    found["returns on a minute's stock 8"] = Run.returning
    found["50000 products 8"] = partial(
        Run.sells, name="wide", standard=8, seconds=4.0, warm_up=2.0
    )
    found |= _with_callers()
    found["an order a minute"] = Run.minutely
    for action in ("discontinue", "count"):
        found[f"recalls to {action} 8"] = partial(
            Run.sells,
            name="zipf",
            standard=8,
            seconds=3.0,
            warm_up=0.5,
            warm=True,
            kind=partial(RecalledSales, action),
        )
    found["10000 holds end 1"] = Run.holds_end
    for workers in (1, 4, 8):
        found[f"cold sell-out {workers}"] = partial(Run.sells_out, workers=workers)
        found[f"cold sell-out of 1000 {workers}"] = partial(
            Run.sells_out, workers=workers, count=1_000
        )
    for workers in (8, 50):
        found[f"cold real {workers}"] = partial(
            Run.sells, name="real", standard=workers, seconds=10.0
        )
    for name, seconds in (("hot", 1.0), ("zipf", 3.0), ("real", 4.0)):
        for workers in (8, 50):
            found[f"rush {name} {workers}"] = partial(
                Run.sells, name=name, standard=workers, seconds=seconds
            )
    found["scarce products 8"] = partial(Run.runs_short, workers=8)
    return found | _with_amends() | _with_limits() | _at_locations()


def _with_amends() -> dict[str, Callable[[Run], SceneFigures]]:
    """The scenes with amends of a hot product: each adds a unit, or every second one takes one away."""
    amends = partial(Run.sells, name="hot", standard=8, seconds=3.0, warm_up=0.5, warm=True)
    return {
        "amends hot 8 more": partial(amends, kind=partial(AmendSales, (1,))),
        "amends hot 8 half fewer": partial(amends, kind=partial(AmendSales, (1, -1))),
    }


def _with_limits() -> dict[str, Callable[[Run], SceneFigures]]:
    """The scenes with a purchase limit, which a tenth of the orders exceeds. A flood is one buyer's, among 1,000 other orders."""
    sale = partial(Run.limited, sells_out=False)
    return {
        "limited sell-out 8": Run.limited,
        "limited sell-out 8 three keys": partial(Run.limited, keys=3),
        "limited sell-out 8 without the limit": partial(Run.limited, has_limit=False),
        "limited sale 8": sale,
        "limited sale 8 flood of 250": partial(sale, flood=250),
        "limited sale 8 flood of 1000": partial(sale, flood=1_000),
    }


def _with_callers() -> dict[str, Callable[[Run], SceneFigures]]:
    """The scenes with callers who wait."""
    doors = {
        f"callers {name} {clients}": (name, Doors(clients))
        for name in ("hot", "zipf", "real")
        for clients in (20, 200)
    }
    for clients in (20, 200):
        doors |= {
            f"callers hot {clients}, lanes alone": ("hot", Doors(clients, express=0)),
            f"callers hot {clients}, express queue alone": ("hot", Doors(clients, api_lanes=0)),
        }
    for name in ("hot", "zipf"):
        for clients in (0, 20):
            doors[f"callers {name} {clients}, queue 8"] = name, Doors(clients, queued=8)
    found: dict[str, Callable[[Run], SceneFigures]] = {
        scene: partial(Run.callers, name=name, doors=each) for scene, (name, each) in doors.items()
    }
    found["callers sell-out of 1000 200"] = partial(Run.callers_sell_out, clients=200, count=1_000)
    return found


def _at_locations() -> dict[str, Callable[[Run], SceneFigures]]:
    """The scenes with stock at three locations."""
    spread = partial(workloads.at_locations, locations=_LOCATIONS)
    found: dict[str, Callable[[Run], SceneFigures]] = {}
    for name, seconds in (("hot", 3.0), ("zipf", 3.0), ("real", 1.0)):
        found[f"three locations {name} 8"] = partial(
            Run.sells,
            name=name,
            standard=8,
            seconds=seconds,
            warm_up=0.5,
            warm=True,
            spread=spread,
        )
    found["three locations cold real 8"] = partial(
        Run.sells, name="real", standard=8, seconds=10.0, spread=spread
    )
    # All orders prefer the first location, which is empty after a third of the window.
    found["overflow hot 8"] = partial(
        Run.sells,
        name="hot",
        standard=8,
        seconds=6.0,
        spread=partial(spread, first=_FIRST_OF_OVERFLOW),
    )
    found["no overflow hot 8"] = partial(Run.sells, name="hot", standard=8, seconds=6.0)
    for workers in (1, 8):
        found[f"three locations cold sell-out {workers}"] = partial(
            Run.sells_out, workers=workers, spread=spread
        )
    return found


def cells(size: str) -> Iterator[dict[str, Value]]:
    """Every scene, and those that depend on receives also in provisioned mode."""
    del size
    for pollers in _POLLERS:
        for scene in scenes():
            if pollers == "default" or scene.startswith(_LIMITED_BY_RECEIVES):
                yield {
                    "engine": "simulated",
                    "scene": scene,
                    "orders": REAL_ORDERS,
                    "lanes": 0,
                    "pollers": pollers,
                    "seed": 0,
                    "scale": 1.0,
                }


def measure(
    engine: str, scene: str, orders: str, lanes: int, pollers: str, seed: int, scale: float
) -> Result:
    """Simulate a scene.

    Raises:
        UserError: There is no such scene, or no such mode of pollers.
    """
    del engine
    if pollers not in _POLLERS:
        raise UserError(f"pollers are {' or '.join(_POLLERS)}, not {pollers}")
    known = scenes()
    if scene not in known:
        raise UserError(f"{scene} is not a scene; the scenes are {', '.join(known)}")
    return asdict(known[scene](Run(orders, lanes, pollers, seed, scale)))


# ---------------------------------------------------------------------- the report


def show(found: MeasuredCells, screen: Console) -> bool:
    """Print each scene."""
    seen = _by_scene(found)
    table = report.table("Scenes, simulated", "scene")
    for heading in (
        *("orders/s", "requests", "units", "p99 s", "conflicts", "took s"),
        *("handed over/s", "again", "queued/s", "express", ""),
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for scene, one in seen.items():
        table.add_row(
            *(scene, f"{one.rate:,.2f}", f"{one.requests:.3f}", f"{one.write_units:.2f}"),
            *(
                f"{one.p99:.2f}",
                f"{one.conflicts:.1%}",
                "" if isnan(one.took) else f"{one.took:.2f}",
                "" if isnan(one.handed_over) else f"{one.handed_over:,.2f}",
                "" if isnan(one.again) else f"{one.again:.1%}",
                "" if isnan(one.queued) else f"{one.queued:,.2f}",
                "" if isnan(one.express) else f"{one.express:.1%}",
            ),
            "" if one.clean else report.UNBALANCED,
        )
    screen.print(table, "")
    return all(one.clean for one in seen.values())


def _by_scene(found: MeasuredCells) -> dict[str, SceneFigures]:
    """The means over all seeds, by scene in the order of the report. A mode other than the default begins the name."""
    results: dict[str, list[SceneFigures]] = {
        _name(pollers, scene): [] for pollers in _POLLERS for scene in scenes()
    }
    for parameters, result in found:
        name = _name(parameters["pollers"], parameters["scene"])
        results[name].append(SceneFigures(**result))
    return {scene: _mean(seeds) for scene, seeds in results.items() if seeds}


def _name(pollers: str, scene: str) -> str:
    return scene if pollers == "default" else f"{pollers}: {scene}"


def _mean(seeds: Sequence[SceneFigures]) -> SceneFigures:
    names = [field.name for field in fields(SceneFigures) if field.name != "clean"]
    means = {name: fmean(getattr(one, name) for one in seeds) for name in names}
    return SceneFigures(**means, clean=all(one.clean for one in seeds))


def compare(before: Path, after: Path, screen: Console) -> None:
    """For each scene in both files, print the figures after divided by those before, from each seed's newest result."""
    was, now = _newest(before), _newest(after)
    both = was.keys() & now.keys()
    old, new = (
        _by_scene([results[key] for key in results if key in both]) for results in (was, now)
    )
    table = report.table("Scenes: after / before", "scene")
    figures = {
        "orders/s": "rate",
        "requests": "requests",
        "units": "write_units",
        "p99": "p99",
        "took": "took",
        "handed over/s": "handed_over",
        "queued/s": "queued",
    }
    for heading in ("before", "after", *figures, ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for scene, one in old.items():
        other = new[scene]
        ratios = [getattr(other, name) / (getattr(one, name) or nan) for name in figures.values()]
        table.add_row(
            *(scene, f"{one.rate:,.2f}", f"{other.rate:,.2f}"),
            *("" if isnan(ratio) else f"{ratio:.2f}" for ratio in ratios),
            "" if other.clean else report.UNBALANCED,
        )
    screen.print(table, "")


def _newest(path: Path) -> dict[tuple[Value, ...], tuple[Mapping[str, Any], Result]]:
    """The newest results of a file, by all parameters except the number of lanes."""
    return {
        tuple(value for name, value in cell.parameters if name != "lanes"): (cell.values, result)
        for cell, result in ResultFile(path).newest()
        if cell.study == "scenes"
    }


STUDY = Study("scenes with all kinds of traffic", cells, measure, show)
