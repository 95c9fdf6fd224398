"""Atomic decrement: one conditional transaction without a read, for a product whose status cannot change by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.change import AdjustmentRecord, NewRecord
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.engine.committer import Committer
from inventory_orders.engine.outcomes import CommitReport
from inventory_orders.engine.recent import Recent
from inventory_orders.engine.retrying_client import CONDITION_FAILED
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import StoreError, TransactionCancelledError
from inventory_orders.store.dynamodb import NO_LIVE_LEASE, unix

REASON = "DECREMENT"


@dataclass(frozen=True, slots=True)
class _Traits:
    """What hardly ever changes about a product. The write is conditioned on all of it, so it may be outdated."""

    created_at: str
    low_stock_threshold: int
    backorder_limit: int


@dataclass(frozen=True, slots=True)
class Decrement:
    """What a decrement came to.

    Attributes:
        report: The engine's, if it was asked; None for a decrement that was done without a read.
        stats: What the atomic attempt took.
    """

    report: CommitReport | None
    stats: CommitStats


class AtomicDecrement:
    """Decrements while enough is left that the status stays as it is; else the engine decides.

    `stockCount - :q` needs no version and so loses against no rival. What it cannot do: know the row's new version,
    change the status, or tell products apart that were made one after the other under one id. So it is conditioned
    on the incarnation and the thresholds that were last seen in this process, and on a stock that stays above both.
    If that does not hold, or nothing was seen yet, the change takes the optimistic path, which also teaches it.
    It is safe under retries because it carries a token, and its adjustment row exists or not with it.

    Args:
        committer: The engine, for the optimistic path.
    """

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._traits: Recent[str, _Traits] = Recent()

    def apply(
        self, product_id: str, adjustment_id: str, quantity: int, deadline: Deadline
    ) -> Decrement:
        """Take units away, exactly once.

        Args:
            product_id: The product.
            adjustment_id: Makes it exactly-once, within the product.
            quantity: Units, 1 or more.
            deadline: When to give up.
        """
        stats = CommitStats()
        traits = self._traits.get(product_id)
        if traits is not None:
            actions = self._actions(product_id, adjustment_id, quantity, traits)
            try:
                # Not conditioned on a version: that too little is left is no conflict.
                self._committer.client.write(actions, 0, deadline, stats)
                return Decrement(None, stats)
            except TransactionCancelledError as cancelled:
                reason = cancelled.reasons[0]
                if reason.code == CONDITION_FAILED and isinstance(reason.found, Product):
                    self._remember(reason.found)
            except StoreError:
                # The engine meets the same, and says what it means.
                pass
        adjustment = Adjustment(product_id, adjustment_id, -quantity, REASON)
        report = self._committer.apply([adjustment], deadline)
        for product in report.outcomes[0].after.values():
            self._remember(product)
        return Decrement(report, stats)

    def _actions(
        self, product_id: str, adjustment_id: str, quantity: int, traits: _Traits
    ) -> list[Any]:
        store, moment = self._committer.client.store, self._committer.client.clock.now()
        at = timestamp(moment)
        floor = max(traits.low_stock_threshold, -traits.backorder_limit)
        record = AdjustmentRecord(
            product_id, adjustment_id, -quantity, REASON, traits.created_at, None, at
        )
        return [
            store.product_action(
                product_id,
                "SET #stockCount = #stockCount - :quantity, #_version = #_version + :one, "
                "#lastUpdatedAt = :at",
                "#createdAt = :createdAt AND #status = :active AND #stockCount > :least AND "
                f"{_same('lowStockThreshold')} AND {_same('backorderLimit')} AND {NO_LIVE_LEASE}",
                {
                    "quantity": quantity,
                    "one": 1,
                    "at": at,
                    "createdAt": traits.created_at,
                    "active": ProductStatus.ACTIVE,
                    "least": floor + quantity,
                    "lowStockThreshold": traits.low_stock_threshold,
                    "backorderLimit": traits.backorder_limit,
                    "zero": 0,
                    "now": unix(moment),
                },
            ),
            store.record_action(NewRecord(record)),
        ]

    def _remember(self, product: Product) -> None:
        traits = _Traits(product.created_at, product.low_stock_threshold, product.backorder_limit)
        self._traits.set(product.product_id, traits)


def _same(name: str) -> str:
    """Condition: an optional number, 0 by default, is what was last seen."""
    return f"(#{name} = :{name} OR (attribute_not_exists(#{name}) AND :{name} = :zero))"
