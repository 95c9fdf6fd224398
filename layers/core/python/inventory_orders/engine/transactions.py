"""Sends the transactions of a plan, and classifies those that failed; `loop.py` applies the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.planner import Chain, Transaction
from inventory_orders.domain.product import ProductStatus
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import StoreError, Verdict
from inventory_orders.store.cancellations import Meaning, TransactionCancelledError
from inventory_orders.store.writes import ActionKind, transaction_actions


@dataclass(slots=True)
class Attempt:
    """A transaction that was sent, and what came of it.

    Attributes:
        transaction: What was sent.
        at: When, as its records say; empty before.
        error: Why it was not applied; None if it was.
        is_lost: Whether a concurrent writer was faster, or a table was short of capacity.
        stats: What it took.
    """

    transaction: Transaction
    at: str = ""
    error: StoreError | None = None
    is_lost: bool = False
    stats: CommitStats = field(default_factory=CommitStats)

    def send(self, client: RetryingClient, deadline: Deadline, *, skips_throttled: bool) -> None:
        """Send the transaction. Runs beside others, so it notes here alone what comes of it.

        Args:
            client: Sends it, again and again if need be.
            skips_throttled: Whether the batch can go on without a product whose row is throttled.
        """
        now = client.clock.now()
        self.at = timestamp(now)
        actions = transaction_actions(self.transaction, now)
        if not actions:
            return
        plans_around = {Meaning.RIVAL}
        if skips_throttled or len(self.transaction.updates) > 1:
            plans_around.add(Meaning.THROTTLED)
        try:
            client.write(actions, deadline, self.stats, plans_around=plans_around)
        except StoreError as error:
            self.error = error
            return
        if self.transaction.decisions:
            self.stats.changes_per_transaction.append(len(self.transaction.decisions))
        self.stats.low_stock += [
            update.after
            for update in self.transaction.updates
            if update.before.status is ProductStatus.ACTIVE
            and update.after.status is not ProductStatus.ACTIVE
        ]


def send(
    client: RetryingClient, chains: Sequence[Chain], send_one: Callable[[Attempt], None]
) -> list[Attempt]:
    """Send chains side by side, each wave by wave, up to the first transaction that fails.

    Returns the attempts that were made.
    """
    attempts: list[Attempt] = []
    left = list(chains)
    while left:
        waves = [[Attempt(transaction) for transaction in rest[0]] for rest in left]
        now = list(chain.from_iterable(waves))
        client.side_by_side(send_one, now)
        attempts += now
        sent = zip(left, waves, strict=True)
        left = [rest[1:] for rest, wave in sent if rest[1:] and not any(a.error for a in wave)]
    return attempts


def verdict_of(error: StoreError) -> tuple[Verdict | None, str]:
    """Classify an error by what follows for the changes of the transaction that met it.

    Returns:
        What becomes of them, and why, as a stable code. None if they are to be planned again from what came back. With
        `POISON` one of them is to blame, and has to be found.
    """
    if not isinstance(error, TransactionCancelledError):
        return error.verdict, error.code
    of_rows = {reason.meaning for reason in error.of(ActionKind.PRODUCT)}
    of_lanes = {r.meaning for r in (*error.of(ActionKind.PAGE), *error.of(ActionKind.LANE))}
    if Meaning.INVALID in of_lanes:
        # None of the changes is to blame.
        return Verdict.RETURNED, "CORRUPT_PAGE"
    if Meaning.INVALID in error.meanings - of_rows:
        return Verdict.POISON, "REFUSED_BY_DYNAMODB"
    if Meaning.UNKNOWN in error.meanings:
        return Verdict.UNAVAILABLE, error.code
    is_of_places = Meaning.THROTTLED in of_rows or Meaning.RIVAL in of_rows | of_lanes
    if error.may_be_repeated and not is_of_places:
        # Repeated as it is often enough: a record was in the way, or a table is short of capacity.
        return Verdict.RETURNED, "CONTENTION"
    return None, "CONTENTION"
