"""All errors of the package, most of them with the outcome of the change, command or request that raised them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple


class Outcome(Enum):
    """What becomes of a change, a command, a request or a message."""

    APPLIED = auto()
    REPLAYED = auto()
    """It was already applied or answered, as its record shows."""
    REJECTED = auto()
    """The rules of the business do not allow it."""
    INVALID = auto()
    """It can never succeed unchanged. A message is dead-lettered."""
    RETURNED = auto()
    """It may succeed later. A message goes back to its queue."""
    UNAVAILABLE = auto()
    """Nothing can succeed until an operator repairs access, tables or configuration."""


class InventoryOrdersError(Exception):
    """The base class of all errors of this package."""


class ConfigurationError(InventoryOrdersError):
    """An environment variable is missing or wrong."""


class RepairNeededError(InventoryOrdersError):
    """The sweep has left out items that an operator has to repair. It has done the rest of its work."""


class UnsupportedEventError(InventoryOrdersError):
    """The handler was invoked with an event that is not a batch it can process."""


class OutcomeError(InventoryOrdersError):
    """An error that becomes the answer to a change, a command or a request.

    Attributes:
        kind: What becomes of the change, command or request.
        code: Stable name of the cause, for machines.
        retry_after: Seconds before a retry makes sense, if known; else 0.
        facts: Further fields of the answer.
    """

    kind = Outcome.RETURNED
    code = ""
    retry_after = 0.0
    facts: Mapping[str, Any] = {}

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code or self.code


_MAX_FIELD = 200


class InvalidMessageError(OutcomeError):
    """A message that can never succeed, however often it is delivered.

    Attributes:
        code: Stable name of the cause (`errorCode` of the dead letter).
        message: What the sender has to fix (`errorMessage` of the dead letter).
        field: Path of the offending field, shortened in the middle to 200 characters; empty if the message as a whole is at
            fault.
    """

    kind = Outcome.INVALID

    def __init__(self, code: str, message: str, field: str = "") -> None:
        if len(field) > _MAX_FIELD:
            shortened = f"{field[:98]}...{field[-99:]}"
            message, field = message.replace(field, shortened), shortened
        super().__init__(f"{code}: {message}", code)
        self.message = message
        self.field = field


class CorruptItemError(OutcomeError):
    """A stored item breaks its table's contract, or contradicts a change. An operator has to repair it.

    Attributes:
        code: `CORRUPT_PRODUCT`, `CORRUPT_RECORD` or `CORRUPT_PAGE`.
    """

    code = "CORRUPT_RECORD"


class UnpublishableError(OutcomeError):
    """Another program has changed a row in such a way that no events can be derived from it.

    Attributes:
        code: `UNREADABLE_ROW` or `UNKNOWN_ORDER_STATUS`.
    """

    code = "UNREADABLE_ROW"


AWS_UNREACHABLE = "AWS_UNREACHABLE"
"""The code of a request to AWS without an answer. The message names the client's exception."""


class Limit(NamedTuple):
    """A limit of DynamoDB that throttled a request.

    Attributes:
        name: DynamoDB's name of the limit, such as `TableWriteKeyRangeThroughputExceeded`.
        resource: The table or index that has the limit.
    """

    name: str
    resource: str

    def __str__(self) -> str:
        return f"{self.name} of {self.resource}"


class StoreError(OutcomeError):
    """A request to DynamoDB failed.

    Attributes:
        code: The service's error code or, without an answer, `AWS_UNREACHABLE`, unless the class has a code of its own.
        limits: The limits that throttled the request, if DynamoDB named them.
    """

    def __init__(self, code: str, message: str, limits: Sequence[Limit] = ()) -> None:
        named = f" ({', '.join(map(str, limits))})" if limits else ""
        super().__init__(f"{code}: {message}{named}", self.code or code)
        self.limits = tuple(limits)


class ThrottledError(StoreError):
    """The request was throttled and not applied. The same request may succeed later."""


class OutcomeUnknownError(StoreError):
    """The request may or may not have been applied. The caller has to repeat it with the same token."""


class RequestInvalidError(StoreError):
    """DynamoDB will never accept this request. Nothing was applied."""

    kind = Outcome.INVALID
    code = "REFUSED_BY_DYNAMODB"


class StoreUnavailableError(StoreError):
    """Nothing was applied, because access, tables or configuration have to be repaired."""

    kind = Outcome.UNAVAILABLE


class ContentionError(OutcomeError):
    """Nothing was applied, because concurrent writers were faster on every attempt, or no time was left."""

    code = "CONTENTION"


class ProductNotFoundError(OutcomeError):
    """Nothing was applied, because the product, or the generation of it that the caller named, does not exist."""

    kind = Outcome.REJECTED
    code = "UNKNOWN_PRODUCT"


class LeaseHeldError(OutcomeError):
    """Nothing was applied, because another owner has a lease on the product.

    Attributes:
        retry_after: Seconds until the lease expires, unless its owner releases or renews it earlier.
    """

    code = "LEASED"

    def __init__(self, what: str, seconds_left: float) -> None:
        super().__init__(f"{what} is leased for another {seconds_left:.1f} s")
        self.retry_after = seconds_left


class LeaseLostError(OutcomeError):
    """Nothing was applied, because the caller's lease has expired, or another owner has taken it."""

    kind = Outcome.REJECTED
    code = "LEASE_LOST"


class RejectedError(OutcomeError):
    """Nothing was applied, because the business rules do not allow it. That is an answer, not a failure.

    Attributes:
        code: Stable name of the reason.
    """

    kind = Outcome.REJECTED


_DIFFERENCES_SHOWN = 3


def id_reused_error(code: str, differences: Sequence[str]) -> InvalidMessageError:
    """Build the error for a request whose id is stored with other content.

    Args:
        code: The code, which begins with the kind of request.
        differences: The fields that differ.
    """
    kind = code.partition("_")[0].lower()
    field, again = f"{kind}Id", "purchase" if kind == "order" else kind
    shown = ", ".join(differences[:_DIFFERENCES_SHOWN])
    more = len(differences) - _DIFFERENCES_SHOWN
    # What to do comes first, because dead letters cut off long messages.
    return InvalidMessageError(
        code,
        f"{field}: another {kind} is stored under this id. It may be the same {again}, so look at the stored {kind} first, "
        f"and use a new {field} only for a second {again}. The two differ in {shown}"
        f"{f' and {more} more' if more > 0 else ''}",
        field,
    )
