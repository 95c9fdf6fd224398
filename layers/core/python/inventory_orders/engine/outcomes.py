"""Outcomes of changes, and the report about a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inventory_orders.domain.change import Change
from inventory_orders.domain.product import Stock
from inventory_orders.domain.rejection import Rejection, RejectionReason
from inventory_orders.engine.retrying_client import CommitStats
from inventory_orders.errors import (
    InvalidMessageError,
    Outcome,
    OutcomeError,
    StoreError,
    StoreUnavailableError,
)
from inventory_orders.store.cancellations import TransactionCancelledError


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """The outcome of one change.

    Attributes:
        kind: What became of it.
        rejection: Why the engine rejected it.
        applied: The change that was written. It may be a replacement for the one that arrived.
        after: The products that it changed, as its transaction left them.
        at: When it was written, as in its record; empty if it was not.
        cause: Why it was rejected, returned or found invalid, as a stable code. For a replay, why it changed nothing.
        detail: The cause, for people.
        field_path: The field that makes the message invalid; empty if there is none.
        retry_after: Seconds before a retry makes sense, if known; else 0.
        is_written_rejection: Whether a rejection was written just now for this change, not for a duplicate.
    """

    kind: Outcome
    rejection: Rejection | None = None
    applied: Change | None = None
    after: Mapping[str, Stock] = field(default_factory=dict)
    at: str = ""
    cause: str = ""
    detail: str = ""
    field_path: str = ""
    retry_after: float = 0.0
    is_written_rejection: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the same change may get another outcome later, because it was returned or its order does not exist yet."""
        return self.kind is Outcome.RETURNED or self.cause == RejectionReason.UNKNOWN_ORDER.value


class UnsuccessfulError(OutcomeError):
    """A command was not carried out; the outcome contains the reason.

    Attributes:
        outcome: What became of the command.
        facts: Further fields of the answer.
    """

    def __init__(self, outcome: ChangeOutcome, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(outcome.detail)
        self.kind = outcome.kind
        self.outcome = outcome
        self.facts = facts or {}


def returned(cause: str, detail: str = "", retry_after: float = 0.0) -> ChangeOutcome:
    """Build the outcome of a change that may succeed later."""
    return ChangeOutcome(Outcome.RETURNED, cause=cause, detail=detail, retry_after=retry_after)


def rejected(rejection: Rejection, *, is_written: bool = False) -> ChangeOutcome:
    """Build the outcome of a change that was rejected just now, or earlier according to its record."""
    return ChangeOutcome(
        Outcome.REJECTED,
        rejection,
        cause=rejection.reason.value,
        detail=rejection.words,
        is_written_rejection=is_written,
    )


def outcome_of(error: OutcomeError) -> ChangeOutcome:
    """Build the outcome of a change that raised an error."""
    match error:
        case UnsuccessfulError():
            return error.outcome
        case InvalidMessageError():
            return ChangeOutcome(
                error.kind, cause=error.code, detail=error.message, field_path=error.field
            )
        case TransactionCancelledError():
            return returned("CONTENTION", str(error))
        case _:
            return ChangeOutcome(
                error.kind, cause=error.code, detail=str(error), retry_after=error.retry_after
            )


@dataclass(frozen=True, slots=True)
class CommitReport:
    """What became of a batch of changes.

    Attributes:
        outcomes: One for each change, in the order in which the changes were given.
        stats: What the batch cost.
        failure: An error that makes every request fail until an operator repairs its cause; None if there was none.
    """

    outcomes: tuple[ChangeOutcome, ...]
    stats: CommitStats
    failure: StoreError | None

    def outcome_of_one(self) -> ChangeOutcome:
        """The outcome of a batch of one change.

        Raises:
            StoreUnavailableError: Every request fails until an operator repairs the cause.
        """
        if self.failure is not None:
            raise StoreUnavailableError(self.failure.code, str(self.failure)) from self.failure
        (outcome,) = self.outcomes
        return outcome
