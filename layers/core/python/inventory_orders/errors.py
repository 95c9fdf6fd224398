"""What can go wrong, as types: each says what the caller may conclude about the state of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Item = Mapping[str, Any]
"""An item as DynamoDB's low-level API has it: attribute name -> {"S": ...}, {"N": ...}, ..."""


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
    """A stored item breaks the table's contract, so nothing may be concluded from it."""


class StoreError(InventoryOrdersError):
    """A request to DynamoDB failed.

    Attributes:
        code: The service's error code, or the name of the client's exception.
    """

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


@dataclass(frozen=True, slots=True)
class CancellationReason:
    """Why one action of a transaction was cancelled.

    Attributes:
        code: `None` proves nothing about the action: the transaction failed because of another one.
        item: The item as stored, where the action's condition failed and the item exists.
    """

    code: str
    item: Item | None = None


class ConditionFailedError(StoreError):
    """The condition of a single write did not hold; nothing was applied.

    Attributes:
        item: The item as stored; None if there is none.
    """

    def __init__(self, item: Item | None) -> None:
        super().__init__("ConditionalCheckFailedException", "the condition did not hold")
        self.item = item


class ContentionError(InventoryOrdersError):
    """Rivals were faster in every attempt, or no time was left for another one; nothing was applied."""


class ProductNotFoundError(InventoryOrdersError):
    """There is no such product, or the incarnation that was meant is gone; nothing was applied."""


class LeaseHeldError(InventoryOrdersError):
    """Somebody else holds a lease on the product; nothing was applied.

    Attributes:
        seconds_left: How long it still lasts, unless it is released early or renewed.
    """

    def __init__(self, product_id: str, seconds_left: float) -> None:
        super().__init__(f"{product_id} is under a lease for another {seconds_left:.1f} s")
        self.seconds_left = seconds_left


class LeaseLostError(InventoryOrdersError):
    """The lease has expired or passed on to somebody else: its owner may no longer write. Nothing was applied."""


class RefusedError(InventoryOrdersError):
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
