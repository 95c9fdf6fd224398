"""Sends the transactions of a plan, and classifies those that failed; `committer.py` applies the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.change import Change, Record
from inventory_orders.domain.planner import Chain, Transaction
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.engine.reader import side_by_side
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import CorruptItemError, StoreError, Verdict
from inventory_orders.store.actions import (
    CONDITION_FAILED,
    INVALID,
    RIVAL,
    THROTTLED,
    TRANSIENT,
    ActionKind,
    TransactionCancelledError,
)


@dataclass(slots=True)
class Attempt:
    """A transaction that was sent, and what came of it.

    Attributes:
        transaction: What was sent.
        at: When, as its records say; empty before.
        error: Why it was not applied; None if it was.
        stats: What it took.
    """

    transaction: Transaction
    at: str = ""
    error: StoreError | None = None
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
    going_on, wave = list(chains), 0
    while going_on:
        now = [[Attempt(transaction) for transaction in chain[wave]] for chain in going_on]
        side_by_side(client.executor, send_one, [attempt for some in now for attempt in some])
        attempts += [attempt for some in now for attempt in some]
        wave += 1
        going_on = [
            chain
            for chain, some in zip(going_on, now, strict=True)
            if len(chain) > wave and all(attempt.error is None for attempt in some)
        ]
    return attempts


def _send(
    client: RetryingClient, attempt: Attempt, deadline: Deadline, *, skips_throttled: bool
) -> None:
    """Send a transaction. Runs beside others, so it changes nothing but the attempt."""
    transaction, stats = attempt.transaction, attempt.stats
    now = client.clock.now()
    attempt.at = timestamp(now)
    actions = client.store.transaction_actions(transaction, now)
    if not actions:
        return
    moved = transaction.drawn
    try:
        client.write(
            actions,
            deadline,
            stats,
            replans=True,
            skips_throttled=skips_throttled or len(transaction.updates) > 1,
        )
    except StoreError as error:
        attempt.error = error
        if isinstance(error, TransactionCancelledError):
            stats.draws_lost += [True] * len(moved)
        return
    stats.draws_lost += [False] * len(moved)
    stats.units_lent += sum(moved.values())
    if transaction.decisions:
        stats.changes_per_transaction.append(len(transaction.decisions))
    stats.low_stock += [
        update.after
        for update in transaction.updates
        if update.before.status is ProductStatus.ACTIVE
        and update.after.status is not ProductStatus.ACTIVE
    ]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a transaction was not applied.

    Attributes:
        verdict: What becomes of its changes; None if they are to be planned again from what came back. Poison is one of
            them, which has to be found.
        code: Why, as a stable code.
        error: The error itself.
        found_products: Of the products whose condition failed, what is stored: None if there is no product, and an
            error if it breaks the table's contract.
        found_records: Of the changes whose record's condition failed, what is stored: None if it is gone.
        rivals: Products on which a rival was met.
        throttled: Products whose writes are throttled.
        refused: Products whose rows DynamoDB does not take as they would be, and why.
        contended: Whether rivals or throttles were met at all, so that a wait makes sense before the next attempt.
    """

    verdict: Verdict | None
    code: str
    error: StoreError
    found_products: tuple[tuple[str, Product | CorruptItemError | None], ...] = ()
    found_records: tuple[tuple[Change, Record | CorruptItemError | None], ...] = ()
    rivals: tuple[str, ...] = ()
    throttled: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    contended: bool = False


def classify(failed: Transaction, error: StoreError) -> Failure:
    """Classify an error by what follows for the transaction that met it."""
    if isinstance(error, TransactionCancelledError):
        return _cancelled(failed, error)
    return Failure(error.verdict, error.code, error)


def _cancelled(failed: Transaction, error: TransactionCancelledError) -> Failure:
    codes = error.codes
    of_lanes = [*error.of(ActionKind.PAGE), *error.of(ActionKind.LANE)]
    lost_pages = any(reason.code in (CONDITION_FAILED, RIVAL) for reason in of_lanes)
    if any(reason.code in INVALID for reason in of_lanes):
        # None of the changes is to blame.
        return Failure(Verdict.RETURNED, "CORRUPT_PAGE", error)
    of_products = error.of(ActionKind.PRODUCT)
    rivals = tuple(r.product_id for r in of_products if r.code in (CONDITION_FAILED, RIVAL))
    throttled = tuple(r.product_id for r in of_products if r.code in THROTTLED)
    if codes <= TRANSIENT and not rivals and not throttled and not lost_pages:
        return Failure(Verdict.RETURNED, "CONTENTION", error)
    changes = {decision.change.record_key: decision.change for decision in failed.decisions}
    refused = tuple((r.product_id, r.message) for r in of_products if r.code in INVALID)
    verdict: Verdict | None = None
    code = "CONTENTION"
    if codes & INVALID and not refused:
        verdict, code = Verdict.POISON, "REFUSED_BY_DYNAMODB"
    elif not codes <= TRANSIENT | INVALID | {CONDITION_FAILED}:
        # Access denied, or something newer than this code: an operator has to look at it.
        verdict, code = Verdict.UNAVAILABLE, error.code
    return Failure(
        verdict,
        code,
        error,
        found_products=tuple(
            (reason.product_id, reason.found)  # type: ignore[misc]  # of a product's row
            for reason in of_products
            if reason.code == CONDITION_FAILED
        ),
        found_records=tuple(
            (changes[reason.action.subject], reason.found)  # type: ignore[index,misc]  # of a record
            for reason in error.of(ActionKind.RECORD)
            if reason.action is not None and reason.code == CONDITION_FAILED
        ),
        rivals=rivals,
        throttled=throttled,
        refused=refused,
        contended=bool(rivals) or lost_pages or not codes.isdisjoint(TRANSIENT - {"None"}),
    )
