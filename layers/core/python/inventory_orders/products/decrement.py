"""Atomic decrement: one conditional transaction without a read, for a product whose status does not change by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.adjustment import DECREMENT, Decrement
from inventory_orders.domain.product import Product
from inventory_orders.domain.record import NO_NOTES, AdjustmentRecord, NewRecord
from inventory_orders.engine.loop import Engine
from inventory_orders.engine.memory import BoundedDict
from inventory_orders.engine.outcomes import ChangeOutcome, CommitReport
from inventory_orders.engine.retrying_client import CommitStats, read_product
from inventory_orders.errors import Verdict, VerdictError
from inventory_orders.store.actions import Action, ActionKind, product_action, record_action
from inventory_orders.store.cancellations import TransactionCancelledError
from inventory_orders.store.expressions import decrement_write


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

    def apply(
        self,
        product_id: str,
        adjustment_id: str,
        quantity: int,
        deadline: Deadline,
        notes: Mapping[str, str] = NO_NOTES,
    ) -> CommitReport:
        """Take units away, exactly once.

        Args:
            product_id: The product.
            adjustment_id: Makes it exactly-once, within the product.
            quantity: Units, 1 or more.
            deadline: When to give up.
            notes: Who does it, and what for.

        Returns:
            The report on it. An outcome that is `APPLIED` and names no change was reached without the engine.
        """
        stats = CommitStats()
        client = self._engine.client
        # Whatever it meets, the engine meets it too, and says what it means.
        try:
            product = self._seen.get(product_id) or self._remember(
                read_product(client, product_id, deadline, stats)
            )
            # Not conditioned on a version: that too little is left is no conflict.
            client.write(self._actions(product, adjustment_id, quantity, notes), deadline, stats)
            stats.retries.append(len(stats.backoffs))
            return CommitReport((ChangeOutcome(Verdict.APPLIED),), stats, None)
        except VerdictError as error:
            if isinstance(error, TransactionCancelledError):
                found = next((r.found for r in error.of(ActionKind.PRODUCT)), None)
                if isinstance(found, Product):
                    self._remember(found)
        change = Decrement(product_id, adjustment_id, -quantity, DECREMENT, notes)
        report = self._engine.apply([change], deadline)
        report.stats.add(stats)
        return report

    def _actions(
        self, product: Product, adjustment_id: str, quantity: int, notes: Mapping[str, str]
    ) -> list[Action]:
        client, product_id = self._engine.client, product.product_id
        moment = client.clock.now()
        record = AdjustmentRecord(
            *(product_id, adjustment_id, -quantity, DECREMENT),
            *(product.created_at, None, timestamp(moment)),
            notes=notes,
        )
        return [
            product_action(product_id, decrement_write(product, quantity, moment)),
            record_action(NewRecord(record)),
        ]

    def _remember(self, product: Product) -> Product:
        """Keep what the next decrement is conditioned on. Attributes that are not the service's own may be large."""
        self._seen[product.product_id] = replace(product, other={})
        return product
