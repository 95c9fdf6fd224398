"""Atomic decrement: one conditional transaction without a read, for a product whose status does not change by it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.change import AdjustmentRecord, NewRecord
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.engine.bounded_dict import BoundedDict
from inventory_orders.engine.committer import Committer
from inventory_orders.engine.outcomes import ChangeOutcome, CommitReport, returned
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import CorruptItemError, StoreError, Verdict
from inventory_orders.store.actions import Action, ActionKind, TransactionCancelledError
from inventory_orders.store.dynamodb import NO_LIVE_LEASE, unix

REASON = "DECREMENT"

# Far longer than a request is under way.
_DOUBT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Traits:
    """Attributes of a product that seldom change. The write is conditioned on all of them, so they may be outdated."""

    created_at: str
    low_stock_threshold: int
    backorder_limit: int

    @classmethod
    def of(cls, product: Product) -> _Traits:
        """Those of a product."""
        return cls(product.created_at, product.low_stock_threshold, product.backorder_limit)

    @property
    def floor(self) -> int:
        """Units: only above it the status stays `ACTIVE`."""
        return max(self.low_stock_threshold, -self.backorder_limit)


@dataclass(frozen=True, slots=True)
class Decrement:
    """The result of a decrement.

    Attributes:
        report: The engine's, if it was asked; None for a decrement that was done atomically.
        stats: What the atomic attempts took.
        retries: How often an atomic attempt was repeated.
    """

    report: CommitReport | None
    stats: CommitStats
    retries: int


class AtomicDecrement:
    """Decrements while enough is left that the status stays as it is; else the engine decides.

    `stockCount - :q` needs no version and so loses against no rival. What it cannot do: know the row's new version,
    change the status, or tell products apart that were made one after the other under one id. So it is conditioned
    on the incarnation and the thresholds that were last seen in this process, and on a stock that stays above both; while
    lanes hold some of the product, also above 0. The engine reclaims what they hold.
    A product that was not seen yet is read once. Where the condition fails the engine decides, with a read.
    It is safe under retries because it carries a token, and its adjustment row exists or not with it. No version fences
    it: while an attempt is in doubt, a receipt may let it succeed, so nothing is refused.

    Args:
        committer: The engine, for the optimistic path.
    """

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._traits: BoundedDict[str, _Traits] = BoundedDict()

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
        stats, in_doubt = CommitStats(), False
        traits = self._traits.get(product_id) or self._read(product_id, deadline, stats)
        if traits is not None:
            actions = self._actions(product_id, adjustment_id, quantity, traits)
            try:
                # Not conditioned on a version: that too little is left is no conflict.
                self._committer.client.write(actions, deadline, stats)
                return Decrement(None, stats, len(stats.backoffs))
            except StoreError as error:
                # The engine meets the same, and says what it means.
                in_doubt = error.in_doubt
                if isinstance(error, TransactionCancelledError):
                    found = next((r.found for r in error.of(ActionKind.PRODUCT)), None)
                    if isinstance(found, Product):
                        self._remember(found)
        adjustment = Adjustment(product_id, adjustment_id, -quantity, REASON)
        report = self._committer.apply([adjustment], deadline)
        if in_doubt and report.outcomes[0].verdict is Verdict.REJECTED:
            report = replace(report, outcomes=(_ask_again(),))
        return Decrement(report, stats, len(stats.backoffs))

    def _read(self, product_id: str, deadline: Deadline, stats: CommitStats) -> _Traits | None:
        """Read a product; None if the engine has to report what is wrong with it."""
        client = self._committer.client
        try:
            found = client.call(lambda: client.store.get_product(product_id), deadline, stats)
        except (StoreError, CorruptItemError):
            return None
        return None if found is None else self._remember(found)

    def _actions(
        self, product_id: str, adjustment_id: str, quantity: int, traits: _Traits
    ) -> list[Action]:
        store, moment = self._committer.client.store, self._committer.client.clock.now()
        at = timestamp(moment)
        record = AdjustmentRecord(
            product_id, adjustment_id, -quantity, REASON, traits.created_at, None, at
        )
        return [
            store.product_action(
                product_id,
                "SET #stockCount = #stockCount - :quantity, #_version = #_version + :one, "
                "#lastUpdatedAt = :at",
                "#createdAt = :createdAt AND #status = :active AND #stockCount > :least AND "
                "(attribute_not_exists(#lentTo) OR #stockCount > :leastIfLent) AND "
                f"{_same('lowStockThreshold')} AND {_same('backorderLimit')} AND {NO_LIVE_LEASE}",
                {
                    "quantity": quantity,
                    "one": 1,
                    "at": at,
                    "createdAt": traits.created_at,
                    "active": ProductStatus.ACTIVE,
                    "least": traits.floor + quantity,
                    "leastIfLent": max(0, traits.floor) + quantity,
                    "lowStockThreshold": traits.low_stock_threshold,
                    "backorderLimit": traits.backorder_limit,
                    "zero": 0,
                    "now": unix(moment),
                },
            ),
            store.record_action(NewRecord(record)),
        ]

    def _remember(self, product: Product) -> _Traits:
        return self._traits.set(product.product_id, _Traits.of(product))


def _ask_again() -> ChangeOutcome:
    """Instead of a rejection, while an attempt may still be booked."""
    detail = "an attempt got no answer and may still be booked; send the same command again"
    return returned("IN_DOUBT", detail, _DOUBT_SECONDS)


def _same(name: str) -> str:
    """Condition: an optional number, 0 by default, is what was last seen."""
    return f"(#{name} = :{name} OR (attribute_not_exists(#{name}) AND :{name} = :zero))"
