"""Atomic decrement: one conditional transaction without a read, for a product whose status does not change by it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.adjustment import Decrement
from inventory_orders.domain.product import Product
from inventory_orders.domain.record import AdjustmentRecord
from inventory_orders.engine.loop import Engine
from inventory_orders.engine.memory import BoundedDict
from inventory_orders.engine.outcomes import ChangeOutcome, CommitReport
from inventory_orders.engine.retrying_client import CommitStats, read_product
from inventory_orders.errors import Verdict, VerdictError
from inventory_orders.store.cancellations import TransactionCancelledError
from inventory_orders.store.writes import (
    Action,
    ActionKind,
    decrement_write,
    product_action,
    record_action,
)


class AtomicDecrement:
    """Decrements while enough is left that the status stays as it is; else the engine decides.

    `stockCount - :q` needs no version and so loses against no rival. What it cannot do: know the row's new version,
    change the status, or tell products apart that were made one after the other under one id. So it is conditioned
    on the incarnation and the thresholds that were last seen in this process, and on a stock that stays above both; while
    lanes hold some of the product, also above 0. The engine reclaims what they hold.
    A product that was not seen yet is read once. Where the condition fails the engine decides, with a read.
    It is safe under retries because it carries a token, and its adjustment row exists or not with it. No version fences
    it, and a receipt may let a late attempt succeed: the engine stores a rejection in place of that row.

    Args:
        engine: The engine, for the optimistic path.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seen: BoundedDict[str, Product] = BoundedDict()

    def apply(self, change: Decrement, deadline: Deadline) -> CommitReport:
        """Take units away, exactly once.

        Returns:
            The report on it. An outcome that is `APPLIED` and names no change was reached without the engine.
        """
        stats = CommitStats()
        client = self._engine.client
        # Whatever it meets, the engine meets it too, and says what it means.
        try:
            product = self._seen.get(change.product_id) or self._remember(
                read_product(client, change.product_id, deadline, stats)
            )
            # Not conditioned on a version, so too little stock is not a conflict.
            client.write(_actions(change, product, client.clock.now()), deadline, stats)
            stats.retries.append(len(stats.backoffs))
            return CommitReport((ChangeOutcome(Verdict.APPLIED),), stats, None)
        except VerdictError as error:
            if isinstance(error, TransactionCancelledError):
                found = next((r.found for r in error.of(ActionKind.PRODUCT)), None)
                if isinstance(found, Product):
                    self._remember(found)
        report = self._engine.apply([change], deadline)
        report.stats.add(stats)
        return report

    def _remember(self, product: Product) -> Product:
        """Keep what the next decrement is conditioned on. Attributes that are not the service's own may be large."""
        self._seen[product.product_id] = replace(product, other={})
        return product


def _actions(change: Decrement, product: Product, moment: datetime) -> list[Action]:
    record = AdjustmentRecord(
        *(change.product_id, change.adjustment_id, change.delta, change.reason),
        *(product.created_at, None, timestamp(moment)),
        notes=change.notes,
    )
    return [
        product_action(change.product_id, decrement_write(product, -change.delta, moment)),
        record_action(record),
    ]
