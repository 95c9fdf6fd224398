"""Publishes changes in stock levels, with the setting `stockEvents`.

A changed level is first stored as pending, with the time when it was read. Then it is published, and no longer pending. A crash
or a second sweep may publish an event twice with the same id, but loses none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.events import Level, stock_event
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import StoreUnavailableError, ThrottledError
from inventory_orders.lanes.levels import StockLevel, list_levels, read_level
from inventory_orders.publishing.publisher import Bus, Publisher
from inventory_orders.store.lists import ListPosition, list_products
from inventory_orders.store.sweep_rows import StockPart, read_stock_parts, write_stock_part

# Maximum number of products in one request.
_TOGETHER = 1000

# Seconds reserved for publishing.
_RESERVED_SECONDS = 15.0


class StockWatch:
    """Compares stock levels with the published ones, and publishes those that have changed.

    Args:
        bus: The bus to publish on.
    """

    def __init__(self, client: RetryingClient, bus: Bus) -> None:
        self._client = client
        # Levels are never parked. A level that the bus refuses stays pending, and every sweep reports it.
        self._publisher = Publisher(bus, lambda _: False, client.clock)
        # The number of the first part to check, so that a sweep begins with the parts that the last one did not reach.
        self._first = 0
        # Where to continue in the list of products, and the products that were in the list up to there.
        self._after: ListPosition | None = None
        self._seen: set[str] = set()

    def publish(self, deadline: Deadline) -> int:
        """Continue where the last call stopped, and publish the levels that have changed.

        Products with an unreadable row or page are skipped.

        Args:
            deadline: When to stop. Shortly before, the remaining products are left to the next call.

        Returns:
            The number of published levels.

        Raises:
            CorruptItemError: The record of what was published is unreadable.
            StoreError: DynamoDB or the bus failed, another sweep interfered, or time ran out. The next call continues.
        """
        at, published = timestamp(self._client.clock.now()), 0
        parts = self._client.ask(read_stock_parts, deadline)
        changed = self._find_changes(parts, deadline)
        for number in sorted(parts, key=lambda number: (number - self._first) % len(parts)):
            part, self._first = parts[number], number + 1
            news = changed[number]
            gone = set() if self._after else part.levels.keys() - self._seen
            # If another sweep's clock is ahead, the part may be newer than this sweep.
            if (news or gone or part.pending) and part.at < at:
                published += self._publish_pending(part, deadline)
                levels = {name: part.levels[name] for name in part.levels.keys() - gone} | news
                after = self._client.ask(
                    write_stock_part, deadline, replace(part, at=at, levels=levels, pending=[*news])
                )
                if news:
                    published += self._publish_pending(after, deadline)
                    self._client.ask(write_stock_part, deadline, replace(after, pending=()))
        return published

    def _find_changes(
        self, parts: dict[int, StockPart], deadline: Deadline
    ) -> dict[int, dict[str, Level]]:
        """Find the levels that differ from the published ones. Returns them by part number and product id."""
        changed: dict[int, dict[str, Level]] = defaultdict(dict)
        if self._after is None:
            self._seen.clear()
        while True:
            snapshot, self._after = self._client.ask(
                list_products, deadline, _TOGETHER, self._after
            )
            self._seen |= snapshot.products.keys() | snapshot.unreadable.keys()
            for product_id, level in list_levels(self._client, snapshot, deadline).items():
                number, seen = StockPart.of(product_id), _as_published(level)
                if level.may_be_torn and seen != parts[number].levels.get(product_id):
                    seen = _as_published(
                        read_level(self._client, product_id, deadline, CommitStats()) or level
                    )
                if seen != parts[number].levels.get(product_id):
                    changed[number][product_id] = seen
            if self._after is None or deadline.remaining() < _RESERVED_SECONDS:
                return changed

    def _publish_pending(self, part: StockPart, deadline: Deadline) -> int:
        """Publish the pending levels of a part. Returns how many there were.

        Raises:
            StoreError: The bus did not accept all of them, or no time was left.
        """
        news = [stock_event(name, part.levels[name], part.at) for name in part.pending]
        report = self._publisher.publish(news, deadline)
        if report.left and not report.refusals:
            raise ThrottledError("OUT_OF_TIME", "no time was left to publish stock")
        if report.left:
            refusal = report.refusals[-1]
            error = ThrottledError if refusal.is_retryable else StoreUnavailableError
            raise error(refusal.code, f"the bus refuses stock events: {refusal.message}")
        return len(news)


def _as_published(level: StockLevel) -> Level:
    return level.product.created_at, level.on_hand, level.available, level.product.status
