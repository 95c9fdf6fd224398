"""What can go wrong, as types that say what the caller may conclude about the tables, and how it is worded for senders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from inventory_orders.domain.product import Product

if TYPE_CHECKING:
    from inventory_orders.domain.allotments import LaneLease, Page
    from inventory_orders.domain.change import Record, Rejection


class InventoryOrdersError(Exception):
    """Root of all errors of this package."""


class ConfigurationError(InventoryOrdersError):
    """An environment variable is missing or wrong."""


class PoisonMessageError(InventoryOrdersError):
    """A message that can never succeed, however often it is delivered.

    Attributes:
        code: Stable name of the cause, for machines (`errorCode` of the dead letter).
        message: What the sender has to fix (`errorMessage` of the dead letter).
        field: Path of the offending field, empty when it is the message as a whole.
    """

    def __init__(self, code: str, message: str, field: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.field = field


class CorruptItemError(InventoryOrdersError):
    """A stored item breaks its table's contract, or contradicts what a change needs: nothing follows from it.

    Attributes:
        code: Stable name of the cause: `CORRUPT_PRODUCT`, `CORRUPT_RECORD` or `CORRUPT_PAGE`.
    """

    def __init__(self, message: str, code: str = "CORRUPT_RECORD") -> None:
        super().__init__(message)
        self.code = code


class CannotAnnounceError(InventoryOrdersError):
    """A row does not say what has happened to it: somebody else wrote it.

    Attributes:
        code: `UNREADABLE_ROW` or `UNKNOWN_ORDER_STATUS`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class StoreError(InventoryOrdersError):
    """A request to DynamoDB failed.

    Attributes:
        code: The service's error code, or the name of the client's exception.
        in_doubt: Whether an earlier attempt at the same request may still be applied.
    """

    in_doubt = False

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class ThrottledError(StoreError):
    """Nothing was applied; the same request may succeed later."""


class OutcomeUnknownError(StoreError):
    """The request may or may not have been applied: repeat it with the same token."""


class RequestInvalidError(StoreError):
    """DynamoDB will never accept this request; nothing was applied."""


class StoreUnavailableError(StoreError):
    """No request can succeed before somebody repairs access, tables or configuration; nothing was applied."""


Found: TypeAlias = "Product | Record | Page | LaneLease | CorruptItemError | None"
"""What a refused write came back with: None if there is no such item, and the error that reading it raised if it breaks
its table's contract."""


@dataclass(frozen=True, slots=True)
class CancellationReason:
    """Why one action of a transaction was cancelled.

    Attributes:
        code: `None` proves nothing about the action: the transaction failed because of another one.
        found: What is stored, where the action's condition failed: None if there is nothing, and the error that
            reading it raised if it breaks its table's contract.
        message: DynamoDB's words.
    """

    code: str
    found: Found = None
    message: str = ""


class ConditionFailedError(StoreError):
    """The condition of a write to one item did not hold; nothing was applied.

    Attributes:
        found: The item as stored: None if there is none, and the error that reading it raised if it breaks its
            table's contract.
    """

    def __init__(self, found: Found) -> None:
        super().__init__("ConditionalCheckFailedException", "the condition did not hold")
        self.found = found

    def existing(self, product_id: str) -> Product:
        """The product as stored.

        Raises:
            ProductNotFoundError: There is none.
            CorruptItemError: It breaks the table's contract.
        """
        if isinstance(self.found, CorruptItemError):
            raise self.found
        if not isinstance(self.found, Product):
            raise ProductNotFoundError(f"there is no product {product_id}")
        return self.found


class ContentionError(InventoryOrdersError):
    """Rivals were faster in every attempt, or no time was left for another one; nothing was applied."""


class ProductNotFoundError(InventoryOrdersError):
    """There is no such product, or the incarnation that was meant is gone; nothing was applied."""


class LeaseHeldError(InventoryOrdersError):
    """Somebody else holds a lease on the product; nothing was applied.

    Attributes:
        seconds_left: How long it still lasts, unless it is released early or renewed.
        is_claim: Whether it is a claim: a batch holds it for one commit.
    """

    def __init__(self, product_id: str, seconds_left: float, *, is_claim: bool = False) -> None:
        super().__init__(f"{product_id} is under a lease for another {seconds_left:.1f} s")
        self.seconds_left = seconds_left
        self.is_claim = is_claim


class LeaseLostError(InventoryOrdersError):
    """The lease has expired or passed on to somebody else: its owner may no longer write. Nothing was applied."""


class RejectedError(InventoryOrdersError):
    """The business says no: an answer, not a failure. Nothing was applied.

    Attributes:
        code: Stable name of the reason.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TransactionCancelledError(StoreError):
    """Nothing was applied.

    Attributes:
        reasons: One for each action, in the order of the request.
    """

    def __init__(self, reasons: Sequence[CancellationReason]) -> None:
        super().__init__(
            "TransactionCanceledException", ", ".join(reason.code for reason in reasons)
        )
        self.reasons = tuple(reasons)

    @property
    def codes(self) -> set[str]:
        """The codes of all reasons."""
        return {reason.code for reason in self.reasons}


_REJECTIONS = {
    "UNKNOWN_PRODUCT": "there is no product {subject}; create it first, or correct the id",
    "DISCONTINUED_PRODUCT": "{subject} is discontinued and takes no more orders",
    "INSUFFICIENT_STOCK": "there is not enough of {subject}: {wanted:,} wanted, {available:,} available",
    "BELOW_FLOOR": "it would take the stock of {subject} below its floor (-backorderLimit): {wanted:,} to take away, "
    "{available:,} available; correct the delta, or book what is missing first",
    "ORDER_REJECTED": "the order {subject} was rejected and holds no stock; if it was paid, give the money back",
    "ORDER_CANCELLED": "the order {subject} is cancelled; if it was paid, give the money back",
    "ORDER_EXPIRED": "the hold of the order {subject} ended before it was paid; if it was paid since, give the money back",
    "HOLD_NOT_ENDED": "the hold of the order {subject} has not ended, or its grace is not over; expire it when it is",
    "NOT_HELD": "the order {subject} is not held, so there is nothing to expire",
    "NOT_CONFIRMED": "the order {subject} is not confirmed; confirm it first, when it is paid",
    "ORDER_FULFILLED": "the order {subject} was handed over already; return it instead",
    "NOT_FULFILLED": "the order {subject} was not handed over yet; cancel it instead",
    "NOT_DELIVERED": "more of {subject} is said to come back than was delivered and is not back yet; correct the quantity",
    "UNKNOWN_ORDER": "there is no order {subject}; correct the id, or send the order first",
    "UNKNOWN_ORDER_STATUS": "the order has the status {subject!a}, which is none of the service's own, so nothing is "
    "known of its stock; cancel it where that status was set, or correct the status",
}


def rejection_error(rejection: Rejection) -> PoisonMessageError:
    """A rejection in words, for a sender who gets no other answer than a dead letter or a direct one."""
    shortage = rejection.shortage
    words = _REJECTIONS[rejection.reason].format(
        subject=rejection.subject,
        wanted=shortage.wanted if shortage is not None else 0,
        available=shortage.available if shortage is not None else 0,
    )
    return PoisonMessageError(rejection.reason.value, words)


def id_reused_error(code: str) -> PoisonMessageError:
    """An id that belongs to another request."""
    return PoisonMessageError(
        code,
        "another request was sent under this id before and keeps it; send this one under an id of its own",
    )
