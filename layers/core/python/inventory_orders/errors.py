"""What can go wrong, as types that say what the caller may conclude about the tables, and how it is worded for senders."""

from __future__ import annotations


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


class UnpublishableError(InventoryOrdersError):
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


class RejectedError(InventoryOrdersError):
    """The business says no: an answer, not a failure. Nothing was applied.

    Attributes:
        code: Stable name of the reason.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def id_reused_error(code: str) -> PoisonMessageError:
    """An id that belongs to another request."""
    return PoisonMessageError(
        code,
        "another request was sent under this id before and keeps it; send this one under an id of its own",
    )
