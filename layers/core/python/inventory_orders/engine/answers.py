"""What it means when DynamoDB does not apply a transaction.

Pure: it returns a value, on which `consequences.py` acts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from inventory_orders.domain.change import Change, Record
from inventory_orders.domain.planner import Transaction
from inventory_orders.domain.product import Product
from inventory_orders.errors import (
    CorruptItemError,
    OutcomeUnknownError,
    RequestInvalidError,
    StoreError,
    ThrottledError,
)
from inventory_orders.store.actions import (
    CONDITION_FAILED,
    INVALID,
    RIVAL,
    THROTTLED,
    TRANSIENT,
    ActionKind,
    TransactionCancelledError,
)


class FailureKind(Enum):
    """What has to follow from a transaction that was not applied."""

    OVERTAKEN = auto()
    """Something was written since it was planned: plan again from what came back."""
    INVALID = auto()
    """DynamoDB will never accept one of its changes: find that one."""
    EXHAUSTED = auto()
    """It may succeed, but not in this invocation: return its changes."""
    UNAVAILABLE = auto()
    """Nothing can be written before somebody repairs something: return all changes, loudly."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a transaction was not applied.

    Attributes:
        kind: What has to follow.
        code: Why, as a stable code.
        error: The error itself.
        found_products: Of the products whose condition failed, what is stored: None if there is no product, and an
            error if it breaks the table's contract.
        found_records: Of the changes whose record's condition failed, what is stored: None if it is gone.
        rivals: Products on which a rival was met.
        throttled: Products whose writes are throttled.
        refused: Products whose rows DynamoDB does not take as they would be, and why.
        lost_pages: Whether a page, or the lease that was to end, was not as it was read, or a rival was writing it.
        contended: Whether rivals or throttles were met at all, so that a wait makes sense before the next attempt.
    """

    kind: FailureKind
    code: str
    error: StoreError
    found_products: tuple[tuple[str, Product | CorruptItemError | None], ...] = ()
    found_records: tuple[tuple[Change, Record | CorruptItemError | None], ...] = ()
    rivals: tuple[str, ...] = ()
    throttled: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    lost_pages: bool = False
    contended: bool = False


def classify(failed: Transaction, error: StoreError) -> Failure:
    """Say what an error means for the transaction that it answers."""
    if isinstance(error, TransactionCancelledError):
        return _cancelled(failed, error)
    if isinstance(error, RequestInvalidError):
        return Failure(FailureKind.INVALID, "REFUSED_BY_DYNAMODB", error)
    if isinstance(error, ThrottledError | OutcomeUnknownError):
        return Failure(FailureKind.EXHAUSTED, error.code, error)
    return Failure(FailureKind.UNAVAILABLE, error.code, error)


def _cancelled(failed: Transaction, error: TransactionCancelledError) -> Failure:
    codes = error.codes
    of_lanes = [*error.of(ActionKind.PAGE), *error.of(ActionKind.LANE)]
    lost_pages = any(reason.code in (CONDITION_FAILED, RIVAL) for reason in of_lanes)
    if any(reason.code in INVALID for reason in of_lanes):
        # None of the changes is to blame.
        return Failure(FailureKind.EXHAUSTED, "CORRUPT_PAGE", error)
    of_products = error.of(ActionKind.PRODUCT)
    rivals = tuple(r.product_id for r in of_products if r.code in (CONDITION_FAILED, RIVAL))
    throttled = tuple(r.product_id for r in of_products if r.code in THROTTLED)
    if codes <= TRANSIENT and not rivals and not throttled and not lost_pages:
        return Failure(FailureKind.EXHAUSTED, "CONTENTION", error)
    changes = {decision.change.record_key: decision.change for decision in failed.decisions}
    refused = tuple((r.product_id, r.message) for r in of_products if r.code in INVALID)
    if codes & INVALID and not refused:
        kind, code = FailureKind.INVALID, "REFUSED_BY_DYNAMODB"
    elif codes <= TRANSIENT | INVALID | {CONDITION_FAILED}:
        kind, code = FailureKind.OVERTAKEN, "CONTENTION"
    else:
        # Access denied, or something newer than this code: somebody has to look at it.
        kind, code = FailureKind.UNAVAILABLE, error.code
    return Failure(
        kind,
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
        lost_pages=lost_pages,
        contended=bool(rivals) or lost_pages or not codes.isdisjoint(TRANSIENT - {"None"}),
    )
