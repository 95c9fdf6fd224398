"""Why writes are refused: what DynamoDB says of each action of a transaction, and what came back with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeAlias

from inventory_orders.domain.allotments import LaneLease, Page
from inventory_orders.domain.location import in_words
from inventory_orders.domain.outbound import OutboundPage
from inventory_orders.domain.product import Product
from inventory_orders.domain.record import Record
from inventory_orders.errors import CorruptItemError, ProductNotFoundError, StoreError
from inventory_orders.store.writes import Action, ActionKind

Found: TypeAlias = Product | Record | Page | OutboundPage | LaneLease | CorruptItemError | None
"""The item as stored: None if there is none, and the error that reading it raised if it breaks its table's contract."""


class Meaning(Enum):
    """What it means for one action that its transaction was cancelled."""

    NOTHING = auto()
    """The transaction failed because of another action."""
    CONDITION_FAILED = auto()
    """The item is not as the action's condition wants it; it came back as it is."""
    RIVAL = auto()
    """Another transaction was writing the item."""
    THROTTLED = auto()
    """The item's partition, or the table, was short of capacity."""
    INVALID = auto()
    """DynamoDB does not take the item: no repetition can succeed."""
    UNKNOWN = auto()
    """Access denied, or something newer than this code: an operator has to look at it."""


# docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
_MEANINGS = {
    "None": Meaning.NOTHING,
    "ConditionalCheckFailed": Meaning.CONDITION_FAILED,
    "TransactionConflict": Meaning.RIVAL,
    "ThrottlingError": Meaning.THROTTLED,
    "ProvisionedThroughputExceeded": Meaning.THROTTLED,
    "ValidationError": Meaning.INVALID,
    "ItemCollectionSizeLimitExceeded": Meaning.INVALID,
}


@dataclass(frozen=True, slots=True)
class CancellationReason:
    """Why one action of a transaction was cancelled.

    Attributes:
        code: DynamoDB's name of the reason.
        found: What is stored, where the action's condition failed.
        message: DynamoDB's words.
        action: The action; None where the request had no label.
    """

    code: str
    found: Found = None
    message: str = ""
    action: Action | None = None

    @property
    def meaning(self) -> Meaning:
        """What the code means."""
        return _MEANINGS.get(self.code, Meaning.UNKNOWN)

    @property
    def is_lost(self) -> bool:
        """Whether the action lost against others: planned again from what is stored now, or on another page, it may succeed."""
        is_of_other_page = self.kind is ActionKind.OUTBOUND and self.meaning is Meaning.INVALID
        lost = (Meaning.CONDITION_FAILED, Meaning.RIVAL, Meaning.THROTTLED)
        return self.meaning in lost or is_of_other_page

    @property
    def kind(self) -> ActionKind | None:
        """The kind of item that the action would have written."""
        return self.action.kind if self.action is not None else None

    @property
    def product_id(self) -> str:
        """The product whose row the action would have written; empty for any other action."""
        subject = self.action.subject if self.action is not None else None
        return subject if isinstance(subject, str) else ""

    @property
    def by_version(self) -> bool:
        """Whether the action's condition was the version that was read."""
        return self.action is not None and self.action.by_version


class ConditionFailedError(StoreError):
    """The condition of a write to one item did not hold; nothing was applied.

    Attributes:
        found: The item as stored.
    """

    def __init__(self, found: Found) -> None:
        super().__init__("ConditionalCheckFailedException", "the condition did not hold")
        self.found = found


def require_product(found: Found, product_id: str) -> Product:
    """The product as stored.

    Raises:
        ProductNotFoundError: There is none.
        CorruptItemError: It breaks the table's contract.
    """
    if isinstance(found, CorruptItemError):
        raise found
    if not isinstance(found, Product):
        raise ProductNotFoundError(f"there is no product {in_words(product_id)}")
    return found


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

    def label(self, actions: Sequence[Action]) -> None:
        """Give each reason its action. The only place that knows that DynamoDB answers them in their order."""
        self.reasons = tuple(
            replace(reason, action=action)
            for reason, action in zip(self.reasons, actions, strict=False)
        )

    def of(self, kind: ActionKind) -> list[CancellationReason]:
        """The reasons of the actions of a kind."""
        return [reason for reason in self.reasons if reason.kind is kind]

    def meanings_of(self, *kinds: ActionKind) -> set[Meaning]:
        """What the reasons of the actions of some kinds mean."""
        return {reason.meaning for reason in self.reasons if reason.kind in kinds}

    def check_places(self) -> None:
        """Check that more failed than the removal of a place from the list in its product's own row.

        Raises:
            CorruptItemError: There is no such row, though the place is there, or DynamoDB does not take its list.
        """
        refused = self.meanings_of(ActionKind.PLACES) & {Meaning.CONDITION_FAILED, Meaning.INVALID}
        if refused and self.meanings_of(ActionKind.PRODUCT) == {Meaning.NOTHING}:
            (reason,) = self.of(ActionKind.PLACES)
            raise CorruptItemError(
                f"the row of product {reason.product_id} cannot list its places ({reason.message or reason.code}); "
                "repair the item",
                "CORRUPT_PRODUCT",
            )

    @property
    def meanings(self) -> set[Meaning]:
        """What the reasons mean."""
        return {reason.meaning for reason in self.reasons}

    @property
    def may_be_repeated(self) -> bool:
        """Whether the same request may succeed later: only rivals and throttles were in its way."""
        return self.meanings <= {Meaning.NOTHING, Meaning.RIVAL, Meaning.THROTTLED}

    @property
    def may_be_planned_again(self) -> bool:
        """Whether it was lost against others alone: planned again from what is stored now, it may succeed."""
        return self.meanings.isdisjoint({Meaning.INVALID, Meaning.UNKNOWN})
