"""Workers of the model: what every policy's execution environments have in common."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from bench.simulator.lanes.shop import Order, Shop
from bench.simulator.lanes.store import Cancelled, Client, Item, Store, Table, Write, together
from simulated_aws.latency import CPU, MILLISECOND, Region
from simulated_aws.scheduler import Scheduler

PAGES = 4
"""Pages of a lane. A product's page follows from its number."""

ACTIONS = 100
"""Most actions of a transaction."""

ENTRY_CPU = 0.0005 * MILLISECOND / 0.58
"""CPU seconds to pack one entry of a page, or to unpack it. Measured with zlib: 0.15 to 0.25 microseconds; with what
Python does around it, doubled."""

Entry = tuple[Order, int | None]
"""A decision: an order, and the product for want of which it is rejected."""

_PACE_LEAST, _PACE_KNEE, _PACE_MOST = 0.1, 4.0, 30.0
_PACE_GROWTH, _PACE_GROWTH_LATER, _PACE_DECAY = 3.0, 1.4, 0.98


@dataclass(slots=True)
class Run:
    """One run of the model, while it goes on.

    Attributes:
        scheduler: Virtual time.
        store: The tables.
        region: How long calls take.
        shop: Products, queue and books.
        chance: All random choices of the workers.
        batch: Orders of a batch.
        ended: Whether no worker shall take another batch.
        answered: Orders answered, by second.
        placed: Orders placed, by second.
        batch_seconds: How long each batch took.
        handed_back: Number of orders that went back to the queue.
        scarce: When a product was first too scarce to lie in lanes.
        last_sale: When a product's last unit was sold.
    """

    scheduler: Scheduler
    store: Store
    region: Region
    shop: Shop
    chance: Random
    batch: int
    ended: bool = False
    answered: Counter[int] = field(default_factory=Counter)
    placed: Counter[int] = field(default_factory=Counter)
    batch_seconds: list[float] = field(default_factory=list)
    handed_back: int = 0
    scarce: dict[int, float] = field(default_factory=dict)
    last_sale: dict[int, float] = field(default_factory=dict)


class Demand:
    """What an execution environment has learnt about the demand from its own batches."""

    _FORGOTTEN = 2_000.0
    """After so many orders, an order weighs 1/e in the rate."""

    def __init__(self) -> None:
        self._weight = 1.0
        self._orders = 0.0
        self._units: dict[int, float] = {}
        self.use: dict[int, int] = {}
        self.last: dict[int, float] = {}
        self._one_before: dict[int, float] = {}

    def see(self, orders: Sequence[Order], now: float) -> None:
        """Learn from a batch."""
        self._weight *= math.exp(len(orders) / self._FORGOTTEN)
        if self._weight > 1e200:
            self._units = {product: units / self._weight for product, units in self._units.items()}
            self._orders /= self._weight
            self._weight = 1.0
        weight, units, last = self._weight, self._units, self.last
        for order in orders:
            for product, quantity in order.lines:
                units[product] = units.get(product, 0.0) + quantity * weight
                self.use[product] = quantity
                self._one_before[product] = last.get(product, -math.inf)
                last[product] = now
        self._orders += len(orders) * weight

    def know(self, rates: Sequence[float]) -> None:
        """Know the demand from the start: units of each product in an average order."""
        self._orders = self._FORGOTTEN
        for product, rate in enumerate(rates):
            self._units[product] = rate * self._orders
            self.use[product], self.last[product], self._one_before[product] = 2, 0.0, 0.0

    def rate(self, product: int) -> float:
        """Units of a product in an average order."""
        return self._units.get(product, 0.0) / self._orders

    def is_seldom(self, product: int, now: float, memory: float) -> bool:
        """Whether it was wanted by fewer than two orders in the last so many seconds."""
        return self._one_before.get(product, -math.inf) < now - memory


class Worker(Client):
    """One execution environment. A policy is a subclass.

    Args:
        run: The run.
        number: Its number, from 0.
    """

    def __init__(self, run: Run, number: int) -> None:
        super().__init__()
        self.run = run
        self.number = number
        self.demand = Demand()
        self._pace: dict[Table, float] = {}

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.run.scheduler.now

    def work(self) -> None:
        """Take batches and serve them until the run ends."""
        run = self.run
        while not run.ended:
            orders = run.shop.take(run.batch)
            run.scheduler.sleep(run.region.delivery())
            began = self.now
            run.store.compute(CPU.message * len(orders))
            self.demand.see(orders, self.now)
            self.serve(orders)
            run.batch_seconds.append(self.now - began)

    def serve(self, orders: Sequence[Order]) -> None:
        """Answer a batch of orders."""
        raise NotImplementedError

    def transact(
        self,
        kind: str,
        writes: Sequence[Write],
        placed: Sequence[Order] = (),
        rejected: Sequence[tuple[Order, int]] = (),
    ) -> Cancelled | None:
        """Write all or nothing, slower if the tables are throttled. Returns why nothing was written.

        Args:
            kind: What it is counted as.
            writes: Writes of rows and pages.
            placed: Orders that the writes pay for.
            rejected: Orders that are rejected, and the product that each lacks.
        """
        run, shop = self.run, self.run.shop

        def applied() -> None:
            for product in shop.sell(placed):
                run.last_sale[product] = run.scheduler.now
            shop.wrong += sum(not shop.is_fit_to_reject(*entry) for entry in rejected)
            second = int(run.scheduler.now)
            run.placed[second] += len(placed)
            run.answered[second] += len(placed) + len(rejected)

        units = [order.units for order in placed] + [order.units for order, _ in rejected]
        tables = {write.item.table for write in writes}
        if units:
            tables.add(run.store.orders)
        if pace := max((self._pace.get(table, 0.0) for table in tables), default=0.0):
            run.scheduler.sleep(run.chance.uniform(0.5, 1.0) * pace)
        cancelled = run.store.transact(kind, writes, units, applied, self)
        for table in tables:
            pace = self._pace.get(table, 0.0)
            if cancelled is not None and table in cancelled.throttled:
                growth = _PACE_GROWTH if pace < _PACE_KNEE else _PACE_GROWTH_LATER
                self._pace[table] = min(_PACE_MOST, max(_PACE_LEAST, growth * pace))
            elif cancelled is None:
                self._pace[table] = pace * _PACE_DECAY if pace > 0.02 else 0.0
        return cancelled

    def pause(self, least: float, most: float) -> None:
        """Wait for a random time in seconds."""
        self.run.scheduler.sleep(self.run.chance.uniform(least, most))

    def wait_for(
        self,
        item: Item,
        seconds: float,
        average: float,
        patience: float,
        beside: Callable[[], None],
    ) -> float | None:
        """Stand in line for a claim. Asks more often the longer it has waited.

        Args:
            item: What to claim.
            seconds: How long the claim lasts.
            average: For how many seconds others have waited.
            patience: Seconds after which it gives up.
            beside: A call to make beside each attempt.

        Returns:
            For how long it waited; None if it gave up.
        """
        began = self.now
        won: list[object] = []

        def ask() -> None:
            if self.run.store.claim(item, self, seconds) is not None:
                won.append(item)

        while True:
            together(self.run.scheduler, [ask, beside])
            if won:
                return self.now - began
            waited = self.now - began
            if waited > patience:
                return None
            line = max(average, waited)
            often = min(0.3, max(0.01, line / 10)) * (1 - waited / (2 * line))
            self.pause(0.5 * often, 1.5 * often)


def wanted(orders: Iterable[Order]) -> dict[int, int]:
    """Units that orders want, by product."""
    need: dict[int, int] = {}
    for order in orders:
        for product, quantity in order.lines:
            need[product] = need.get(product, 0) + quantity
    return need


def set_units(page: dict[int, int], product: int, units: int) -> None:
    """Set the units of a product in a page, which has no entries for nothing."""
    if units:
        page[product] = units
    else:
        page.pop(product, None)
