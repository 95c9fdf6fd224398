"""Estimates the demand, which decides how many units move to lanes, but never which orders are placed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from inventory_orders.clock import Clock
from inventory_orders.domain.allotments import Needs

# How much more each order weighs than the previous one: 2,000 orders later, an order weighs 1/e.
_GROWTH = math.exp(1 / 2_000)

# A lane is filled with units for this number of orders: 20 full batches.
_LANE_ORDERS = 2_000

# The depot takes units for this number of orders for each lane in use: enough to fill each lane 20 times.
_DEPOT_ORDERS = 40_000

# Seconds after which a product that no batch wanted is no longer lent.
_REMEMBERED = 120.0

_MAX = 20_000


@dataclass(slots=True)
class _ProductDemand:
    """The demand for one product.

    Attributes:
        units: Weighted sum of the units of all orders.
        use: Units that the last order took.
        last: When a batch last wanted it, on the clock's monotonic scale.
        before: When an earlier batch last wanted it.
    """

    units: float = 0.0
    use: int = 1
    last: float = -math.inf
    before: float = -math.inf


_UNKNOWN = _ProductDemand()


class Demand:
    """The estimated demand for each product.

    Args:
        clock: Source of time.
        most: Maximum number of products to remember.
        admits: Whether to remember a product that an order wants; by default, each is remembered.
    """

    def __init__(
        self, clock: Clock, most: int = _MAX, admits: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._clock = clock
        self._most = most
        self._admits = admits
        self._products: dict[str, _ProductDemand] = {}
        self._weight = 1.0
        self._orders = 0.0

    def observe_orders(self, orders: Iterable[Mapping[str, int]]) -> None:
        """Learn from the orders of a batch, each given as units by product id."""
        products = self._products
        for order in orders:
            self._weight *= _GROWTH
            self._observe(order, 1)
            for product_id in filter(self._admits, order):
                wanted = products[product_id]
                wanted.use = order[product_id] or wanted.use
        if self._weight > 1e100:
            for wanted in products.values():
                wanted.units /= self._weight
            self._orders, self._weight = self._orders / self._weight, 1.0
        if len(products) > self._most:
            kept = sorted(products, key=lambda p: products[p].units)[
                -(self._most - self._most // 10) :
            ]
            self._products = {product_id: products[product_id] for product_id in kept}

    def observe_needs(self, needs: Needs) -> None:
        """Learn from the orders of another process."""
        self._observe(needs.units, needs.orders)

    def _observe(self, units: Mapping[str, int], orders: int) -> None:
        now = self._clock.monotonic()
        self._orders += orders * self._weight
        for product_id in filter(self._admits, units):
            wanted = self._products.setdefault(product_id, _ProductDemand())
            wanted.units += units[product_id] * self._weight
            if wanted.last < now:
                wanted.before, wanted.last = wanted.last, now

    def observe_others(self, product_ids: Iterable[str]) -> None:
        """Note products that other processes sell, as if a batch of this process had just wanted them."""
        now = self._clock.monotonic()
        for product_id in product_ids:
            if product_id not in self._products and len(self._products) < self._most:
                self._products[product_id] = _ProductDemand(last=now)

    def fast_sellers(self) -> Iterator[str]:
        """The products that were in at least two recent batches. Lent units of other products would go unused."""
        since = self._clock.monotonic() - _REMEMBERED
        return (p for p, wanted in self._products.items() if wanted.before >= since)

    def has(self, product_id: str) -> bool:
        """Whether the product is one of the remembered ones."""
        return product_id in self._products

    def is_idle(self, product_id: str) -> bool:
        """Whether no recent batch wanted the product."""
        return self._of(product_id).last <= self._clock.monotonic() - _REMEMBERED

    def last_quantity(self, product_id: str) -> int:
        """Units in the last order of a product."""
        return self._of(product_id).use

    def lane_level(self, product_id: str, for_each_lane: float = 0.0) -> float:
        """Units that a lane should have when stock is plentiful: its mean demand, and a margin for the variance.

        Args:
            for_each_lane: Units at the depot for each lane in use. They indicate the demand for products that only other
                processes sold.
        """
        wanted = self._of(product_id)
        if not wanted.units:
            return max(_LANE_ORDERS * for_each_lane / _DEPOT_ORDERS, 3 * wanted.use)
        mean = _LANE_ORDERS * wanted.units / self._orders
        return mean + 3 * math.sqrt(mean * wanted.use) + 3 * wanted.use

    def depot_level(self, product_id: str, lanes: int) -> float:
        """Units that the depot should have for a number of lanes in use when stock is plentiful."""
        wanted = self._of(product_id)
        return _DEPOT_ORDERS * lanes * wanted.units / self._orders if self._orders else 0.0

    def _of(self, product_id: str) -> _ProductDemand:
        return self._products.get(product_id, _UNKNOWN)
