"""Errors of refused writes, with DynamoDB's reason for each action of a transaction and the items that it returned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from inventory_orders.domain.location import in_words
from inventory_orders.domain.product import Product
from inventory_orders.errors import (
    CorruptItemError,
    Limit,
    ProductNotFoundError,
    RejectedError,
    StoreError,
)
from inventory_orders.store.rows import Found, Item, Row
from inventory_orders.store.writes import Action, ActionKind


class Meaning(Enum):
    """What the reason of a cancelled transaction means for one of its actions."""

    NOTHING = auto()
    """The transaction failed because of another action."""
    CONDITION_FAILED = auto()
    """The item does not meet the action's condition, and was returned."""
    RIVAL = auto()
    """Another transaction was writing the item."""
    THROTTLED = auto()
    """The item's partition, or the table, was short of capacity."""
    INVALID = auto()
    """DynamoDB does not accept the item, so no retry can succeed."""
    UNKNOWN = auto()
    """Access was denied, or this version does not know the code. An operator has to look at it."""


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
    """DynamoDB's reason for cancelling one action of a transaction.

    Attributes:
        action: The action.
        code: DynamoDB's name of the reason.
        found: The stored item, if the action's condition failed.
        message: DynamoDB's message.
    """

    action: Action
    code: str
    found: Found = None
    message: str = ""

    @property
    def meaning(self) -> Meaning:
        """What the code means."""
        return _MEANINGS.get(self.code, Meaning.UNKNOWN)

    @property
    def is_lost(self) -> bool:
        """Whether the action may succeed if it is planned again, because it lost to a concurrent writer or another page is free."""
        is_of_other_page = (
            self.action.kind is ActionKind.OUTBOUND and self.meaning is Meaning.INVALID
        )
        lost = (Meaning.CONDITION_FAILED, Meaning.RIVAL, Meaning.THROTTLED)
        return self.meaning in lost or is_of_other_page

    @property
    def product_id(self) -> str:
        """The product whose row the action would have written; empty for any other action."""
        return self.action.subject if isinstance(self.action.subject, str) else ""


def limits_of(response: Mapping[str, Any], request: Mapping[str, Any]) -> tuple[Limit, ...]:
    """Read from an error response which limits throttled the request.

    Args:
        response: The response, as parsed by botocore.
        request: The parameters of the request.
    """
    return tuple(dict.fromkeys((*_named_limits(response), *_limits_of_actions(response, request))))


def _named_limits(response: Mapping[str, Any]) -> Iterator[Limit]:
    # docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ThrottlingReason.html. In botocore's model, only
    # ThrottlingException has the second spelling.
    for member in ("ThrottlingReasons", "throttlingReasons"):
        for reason in response.get(member, ()):
            # The ARN of a table or index ends with `table/NAME` or `table/NAME/index/NAME`.
            yield Limit(reason.get("reason", ""), reason.get("resource", "").split("table/")[-1])


def _limits_of_actions(response: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Limit]:
    """A cancelled transaction has reasons in the order of its actions. Only their texts tell a table from its indexes.

    docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
    """
    reasons, items = response.get("CancellationReasons", ()), request.get("TransactItems", ())
    for reason, item in zip(reasons, items, strict=False):
        if _MEANINGS.get(reason.get("Code")) is Meaning.THROTTLED:
            (action,) = item.values()
            is_of_index = "secondary index" in (reason.get("Message") or "")
            table = action["TableName"]
            yield Limit(reason["Code"], f"an index of {table}" if is_of_index else table)


class ConditionFailedError(StoreError):
    """Nothing was written, because the item does not meet the condition of the write.

    Attributes:
        item: The item as stored, if the request asked for it; None if it does not exist.
    """

    def __init__(self, item: Item | None) -> None:
        super().__init__("ConditionalCheckFailedException", "the condition did not hold")
        self.item = item


def require_product(found: Found, product_id: str) -> Product:
    """Return the found item as a product.

    Raises:
        ProductNotFoundError: The product does not exist.
        CorruptItemError: The product breaks the table's contract.
    """
    if isinstance(found, CorruptItemError):
        raise found
    if not isinstance(found, Product):
        raise ProductNotFoundError(f"there is no product {in_words(product_id)}")
    return found


def barcode_taken_error(row: Row) -> RejectedError:
    """Build the error for a barcode that is already another product's, whose row is given."""
    return RejectedError(
        f"barcodes: {row['code']} is a barcode of {row['productId']}; remove it there first, or correct it",
        "BARCODE_TAKEN",
    )


class TransactionCancelledError(StoreError):
    """DynamoDB cancelled a transaction, so nothing was applied.

    Attributes:
        reasons: One for each action, in the order of the request.
    """

    def __init__(self, reasons: Sequence[CancellationReason], limits: Sequence[Limit] = ()) -> None:
        codes = ", ".join(reason.code for reason in reasons)
        super().__init__("TransactionCanceledException", codes, limits)
        self.reasons = tuple(reasons)

    def of(self, kind: ActionKind) -> list[CancellationReason]:
        """The reasons that are about one kind of action."""
        return [reason for reason in self.reasons if reason.action.kind is kind]

    def meanings_of(self, *kinds: ActionKind) -> set[Meaning]:
        """The meanings of the reasons that are about some kinds of actions."""
        return {reason.meaning for reason in self.reasons if reason.action.kind in kinds}

    def check_other_rows(self) -> None:
        """Check whether a row other than the product's at its location caused the cancellation.

        Raises:
            RejectedError: `BARCODE_TAKEN`: another product has one of the barcodes.
            CorruptItemError: The product has no row of its own, or DynamoDB does not accept the list of locations there.
        """
        for reason in self.of(ActionKind.BARCODE):
            if isinstance(reason.found, dict):
                raise barcode_taken_error(reason.found)
        refused = self.meanings_of(ActionKind.PLACES) & {Meaning.CONDITION_FAILED, Meaning.INVALID}
        if refused and self.meanings_of(ActionKind.PRODUCT) == {Meaning.NOTHING}:
            (reason,) = self.of(ActionKind.PLACES)
            raise CorruptItemError(
                f"the list `places` in the row of product {in_words(reason.product_id)} cannot be changed ({reason.message or reason.code}); "
                "repair the item",
                "CORRUPT_PRODUCT",
            )

    @property
    def meanings(self) -> set[Meaning]:
        """The meanings of all reasons."""
        return {reason.meaning for reason in self.reasons}

    @property
    def may_be_repeated(self) -> bool:
        """Whether the same request may succeed later, because nothing but concurrent writers or throttling prevented it."""
        return self.meanings <= {Meaning.NOTHING, Meaning.RIVAL, Meaning.THROTTLED}
