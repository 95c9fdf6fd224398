"""Sends the transactions of a plan, and classifies those that failed; `engine.py` applies the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.planner import Chain, Transaction
from inventory_orders.domain.product import ProductStatus
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import StoreError, Verdict
from inventory_orders.store.actions import ActionKind, transaction_actions
from inventory_orders.store.cancellations import (
    CONDITION_FAILED,
    INVALID,
    RIVAL,
    THROTTLED,
    TRANSIENT,
    TransactionCancelledError,
)


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


def send(
    client: RetryingClient, chains: Sequence[Chain], deadline: Deadline, *, skips_throttled: bool
) -> list[Attempt]:
    """Send chains side by side, each wave by wave, up to the first transaction that fails.

    Args:
        client: Sends the requests.
        chains: Of a plan.
        deadline: No request begins after it.
        skips_throttled: Whether the batch goes on without a product whose row is throttled.

    Returns:
        The transactions that were sent. What goes wrong with one is noted there.
    """

    def send_one(attempt: Attempt) -> None:
        _send(client, attempt, deadline, skips_throttled=skips_throttled)

    attempts: list[Attempt] = []
    going_on = list(chains)
    while going_on:
        now = [[Attempt(transaction) for transaction in chain[0]] for chain in going_on]
        client.side_by_side(send_one, [attempt for some in now for attempt in some])
        attempts += [attempt for some in now for attempt in some]
        going_on = [
            chain[1:]
            for chain, some in zip(going_on, now, strict=True)
            if len(chain) > 1 and all(attempt.error is None for attempt in some)
        ]
    return attempts


def _send(
    client: RetryingClient, attempt: Attempt, deadline: Deadline, *, skips_throttled: bool
) -> None:
    """Send a transaction. Runs beside others, and notes what comes of it in the attempt alone."""
    transaction, stats = attempt.transaction, attempt.stats
    now = client.clock.now()
    attempt.at = timestamp(now)
    actions = transaction_actions(transaction, now)
    if not actions:
        return
    skips_throttled = skips_throttled or len(transaction.updates) > 1
    try:
        client.write(
            actions,
            deadline,
            stats,
            plans_around={RIVAL} | (THROTTLED if skips_throttled else frozenset()),
        )
    except StoreError as error:
        attempt.error = error
        return
    if transaction.decisions:
        stats.changes_per_transaction.append(len(transaction.decisions))
    stats.low_stock += [
        update.after
        for update in transaction.updates
        if update.before.status is ProductStatus.ACTIVE
        and update.after.status is not ProductStatus.ACTIVE
    ]


def verdict_of(error: StoreError) -> tuple[Verdict | None, str]:
    """Classify an error by what follows for the changes of the transaction that met it.

    Returns:
        What becomes of them, and why, as a stable code. None if they are to be planned again from what came back. With
        `POISON` one of them is to blame, and has to be found.
    """
    if not isinstance(error, TransactionCancelledError):
        return error.verdict, error.code
    of_rows = {reason.code for reason in error.of(ActionKind.PRODUCT)}
    of_lanes = {r.code for r in (*error.of(ActionKind.PAGE), *error.of(ActionKind.LANE))}
    if of_lanes & INVALID:
        # None of the changes is to blame.
        return Verdict.RETURNED, "CORRUPT_PAGE"
    if error.codes & INVALID and not of_rows & INVALID:
        return Verdict.POISON, "REFUSED_BY_DYNAMODB"
    if not error.codes <= TRANSIENT | INVALID | {CONDITION_FAILED}:
        # Access denied, or something newer than this code: an operator has to look at it.
        return Verdict.UNAVAILABLE, error.code
    if error.codes <= TRANSIENT and not of_rows & THROTTLED and RIVAL not in of_rows | of_lanes:
        return Verdict.RETURNED, "CONTENTION"
    return None, "CONTENTION"
