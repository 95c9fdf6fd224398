"""Why the business rejects a change: the one list of reasons, each with its words and its HTTP status."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

from inventory_orders.domain.location import in_words
from inventory_orders.domain.product import Stock


class CustomerWords(NamedTuple):
    """How customers are told that their order is rejected.

    Attributes:
        named: With the products, as `{products}`.
        unnamed: The same where the order's row does not say which product.
    """

    named: str
    unnamed: str


class RejectionReason(StrEnum):
    """Why the business rejects a change. An answer, not a failure.

    Attributes:
        words: For the sender of the change. `{subject}` is the product, the order or the status that it is about.
        http_status: The status of an answer over HTTP.
        for_customers: What a customer reads; None if no order is rejected for this reason, only commands and adjustments.
    """

    words: str
    http_status: int
    for_customers: CustomerWords | None

    def __new__(
        cls,
        code: str,
        words: str,
        http_status: int = 409,
        for_customers: CustomerWords | None = None,
    ) -> Self:
        reason = str.__new__(cls, code)
        reason._value_ = code
        reason.words, reason.http_status, reason.for_customers = words, http_status, for_customers
        return reason

    INSUFFICIENT_STOCK = (
        "INSUFFICIENT_STOCK",
        "there is not enough of {subject}: {wanted:,} wanted, {available:,} available",
        409,
        CustomerWords("there is not enough of {products}", "the order is rejected"),
    )
    UNKNOWN_PRODUCT = (
        "UNKNOWN_PRODUCT",
        "there is no product {subject}; create it first, or correct the id",
        404,
        CustomerWords(
            "there is no product {products}",
            "a product of the order does not exist; GET /products says which",
        ),
    )
    DISCONTINUED_PRODUCT = (
        "DISCONTINUED_PRODUCT",
        "{subject} is discontinued and takes no more orders",
        409,
        CustomerWords(
            "{products} is discontinued",
            "a product of the order is discontinued; GET /products says which",
        ),
    )
    BELOW_FLOOR = (
        "BELOW_FLOOR",
        "it would take the stock of {subject} below its floor (-backorderLimit): {wanted:,} to take away, "
        "{available:,} available; take away fewer, or book what is missing first",
    )
    ORDER_REJECTED = (
        "ORDER_REJECTED",
        "the order {subject} was rejected and holds no stock; if it was paid, give the money back",
    )
    ORDER_CANCELLED = (
        "ORDER_CANCELLED",
        "the order {subject} is cancelled; if it was paid, give the money back",
    )
    ORDER_EXPIRED = (
        "ORDER_EXPIRED",
        "the hold of the order {subject} ended before it was paid; if it was paid since, give the money back",
    )
    HOLD_NOT_ENDED = (
        "HOLD_NOT_ENDED",
        "the hold of the order {subject} has not ended, or its grace is not over; expire it when it is",
    )
    NOT_HELD = (
        "NOT_HELD",
        "the order {subject} is under no hold that could end or be extended",
    )
    NOT_CONFIRMED = (
        "NOT_CONFIRMED",
        "the order {subject} is not confirmed; confirm it first, when it is paid",
    )
    NOT_OPEN = (
        "NOT_OPEN",
        "the command names more of {subject} than is left to hand over; correct the quantity, or return units that "
        "were handed over",
    )
    TOO_MANY_STEPS = (
        "TOO_MANY_STEPS",
        "the order {subject} has no room for another command that names items. Fulfil or cancel the rest "
        "without items; book units that come back as an adjustment of their product",
    )
    ORDER_FULFILLED = (
        "ORDER_FULFILLED",
        "the order {subject} was handed over already; return it instead",
    )
    NOT_FULFILLED = (
        "NOT_FULFILLED",
        "the order {subject} was not handed over yet; cancel it instead",
    )
    NOT_DELIVERED = (
        "NOT_DELIVERED",
        "more of {subject} is said to come back than was delivered and is not back yet; correct the quantity",
    )
    UNKNOWN_ORDER = (
        "UNKNOWN_ORDER",
        "there is no order {subject}; correct the id, or send the order first",
        404,
    )
    UNKNOWN_ORDER_STATUS = (
        "UNKNOWN_ORDER_STATUS",
        "the order has the status {subject!a}, which is none of the service's own, so nothing is "
        "known of its stock; cancel it where that status was set, or correct the status",
    )


REASONS_OF_ORDERS = tuple(reason for reason in RejectionReason if reason.for_customers)


@dataclass(frozen=True, slots=True)
class Shortage:
    """A want of stock, in units.

    Attributes:
        product_id: The product.
        wanted: Units that the change asked for.
        available: Units that it could have had.
    """

    product_id: str
    wanted: int
    available: int

    @classmethod
    def of(cls, product: Stock, wanted: int) -> Shortage:
        """The want of so many units of a product that has fewer."""
        return cls(product.product_id, wanted, max(0, product.sellable))


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected change.

    Attributes:
        reason: Why.
        subject: The product or the order that it is about, or the status that stands in its way.
        shortages: What is known to be missing, if it was rejected for want of stock.
    """

    reason: RejectionReason
    subject: str = ""
    shortages: tuple[Shortage, ...] = ()

    @property
    def words(self) -> str:
        """The rejection in words, for its sender."""
        # A status may be any text.
        named = str if self.reason is RejectionReason.UNKNOWN_ORDER_STATUS else in_words
        return "; ".join(
            self.reason.words.format(
                subject=named(short.product_id), wanted=short.wanted, available=short.available
            )
            for short in self.shortages or (Shortage(self.subject, 0, 0),)
        )
