"""Errors, each with the outcome of the change, command or request that raised it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any


class Outcome(Enum):
    """What becomes of a change, a command, a request or a message."""

    APPLIED = auto()
    REPLAYED = auto()
    """It was already answered: its record exists."""
    REJECTED = auto()
    """The business says no."""
    INVALID = auto()
    """It can never succeed unchanged. A message is dead-lettered."""
    RETURNED = auto()
    """It may succeed later. A message goes back to its queue."""
    UNAVAILABLE = auto()
    """Nothing can succeed until an operator repairs access, tables or configuration."""


class InventoryOrdersError(Exception):
    """Root of all errors of this package."""


class ConfigurationError(InventoryOrdersError):
    """An environment variable is missing or wrong."""


class RepairNeededError(InventoryOrdersError):
    """An operator has to repair items before the sweep can finish its work. The rest was done."""


class UnsupportedEventError(InventoryOrdersError):
    """The handler was invoked with an event that is not a batch it can process."""


class OutcomeError(InventoryOrdersError):
    """An error that serves as an answer.

    Attributes:
        kind: What becomes of the change, command or request that raised it.
        code: Stable name of the cause, for machines.
        retry_after: Seconds before a retry makes sense, if known; else 0.
        facts: Further fields of an answer.
    """

    kind = Outcome.RETURNED
    code = ""
    retry_after = 0.0
    facts: Mapping[str, Any] = {}

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code or self.code


class InvalidMessageError(OutcomeError):
    """A message that can never succeed, however often it is delivered.

    Attributes:
        code: Stable name of the cause (`errorCode` of the dead letter).
        message: What the sender has to fix (`errorMessage` of the dead letter).
        field: Path of the offending field; empty if the message as a whole is at fault.
    """

    kind = Outcome.INVALID

    def __init__(self, code: str, message: str, field: str = "") -> None:
        super().__init__(f"{code}: {message}", code)
        self.message = message
        self.field = field


class CorruptItemError(OutcomeError):
    """A stored item breaks its table's contract, or contradicts what a change needs. Nothing is derived from it.

    Attributes:
        code: `CORRUPT_PRODUCT`, `CORRUPT_RECORD` or `CORRUPT_PAGE`.
    """

    code = "CORRUPT_RECORD"


class UnpublishableError(OutcomeError):
    """A row written by another program does not show what has happened to it.

    Attributes:
        code: `UNREADABLE_ROW` or `UNKNOWN_ORDER_STATUS`.
    """

    code = "UNREADABLE_ROW"


class StoreError(OutcomeError):
    """A request to DynamoDB failed.

    Attributes:
        code: The service's error code, or the name of the client's exception.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}", code)


class ThrottledError(StoreError):
    """Nothing was applied; the same request may succeed later."""


class OutcomeUnknownError(StoreError):
    """The request may or may not have been applied: repeat it with the same token."""


class RequestInvalidError(StoreError):
    """DynamoDB will never accept this request; nothing was applied."""

    kind = Outcome.INVALID

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = "REFUSED_BY_DYNAMODB"


class StoreUnavailableError(StoreError):
    """Access, tables or configuration need repair; nothing was applied."""

    kind = Outcome.UNAVAILABLE


class ContentionError(OutcomeError):
    """Concurrent writers won every attempt, or no time was left for another one; nothing was applied."""

    code = "CONTENTION"


class ProductNotFoundError(OutcomeError):
    """The product does not exist, or the generation that was asked for is gone; nothing was applied."""

    kind = Outcome.REJECTED
    code = "UNKNOWN_PRODUCT"


class LeaseHeldError(OutcomeError):
    """Another owner holds a lease on the product; nothing was applied.

    Attributes:
        retry_after: Seconds until it expires, unless it is released early or renewed.
    """

    code = "LEASED"

    def __init__(self, product_id: str, seconds_left: float) -> None:
        super().__init__(f"{product_id} is leased for another {seconds_left:.1f} s")
        self.retry_after = seconds_left


class LeaseLostError(OutcomeError):
    """The lease has expired or now has another owner, so its former owner may no longer write. Nothing was applied."""

    kind = Outcome.REJECTED
    code = "LEASE_LOST"


class RejectedError(OutcomeError):
    """The business says no: an answer, not a failure. Nothing was applied.

    Attributes:
        code: Stable name of the reason.
    """

    kind = Outcome.REJECTED


def id_reused_error(code: str) -> InvalidMessageError:
    """Make the error for an id that belongs to another request."""
    field = f"{code.partition('_')[0].lower()}Id"
    return InvalidMessageError(
        code,
        f"{field}: this id was already used for another request; send this one under a new id",
        field,
    )
