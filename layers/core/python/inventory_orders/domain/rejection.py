"""All reasons for rejecting a change, each with its message and its HTTP status."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Self

from inventory_orders.domain.location import in_words
from inventory_orders.domain.product import Stock


class CustomerWords(NamedTuple):
    """What customers read when their order is rejected, with and without names of products.

    Attributes:
        named: The message with the names of the products, as `{products}`, or with the units allowed, as `{limits}`.
        unnamed: The message if the order's row has neither.
    """

    named: str
    unnamed: str


class RejectionReason(StrEnum):
    """A reason for rejecting a change. A rejection is an answer, not a failure.

    Attributes:
        words: The message for the sender of the change. `{subject}` is the product, order or order status that it is about.
        http_status: The HTTP status of an answer to a command; rejected orders are always answered with 409.
        for_customers: The message for customers; None if only commands and adjustments are rejected for this reason.
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

    UNKNOWN_PRODUCT = (
        "UNKNOWN_PRODUCT",
        "there is no product {subject}; correct the id, or create the product if the id is right",
        404,
        CustomerWords(
            "there is no product {products}",
            "a product in the order does not exist; GET /products shows which one",
        ),
    )
    DISCONTINUED_PRODUCT = (
        "DISCONTINUED_PRODUCT",
        "{subject} is discontinued and can no longer be ordered",
        409,
        CustomerWords(
            "{products} is discontinued",
            "a product in the order is discontinued; GET /products shows which one",
        ),
    )
    TOO_MANY_PRODUCTS = (
        "TOO_MANY_PRODUCTS",
        "the order has too many products for one transaction that also counts towards its buyers' purchase limits; split it",
        409,
        CustomerWords("the order has too many products", "the order has too many products"),
    )
    PURCHASE_LIMIT = (
        "PURCHASE_LIMIT",
        "the order exceeds the purchase limit of {subject}",
        409,
        CustomerWords(
            "at most {limits} of these per customer",
            "the order exceeds a purchase limit",
        ),
    )
    TOO_MANY_GROUPS = (
        "TOO_MANY_GROUPS",
        "the buyer has bought from so many groups of products with purchase limits that {subject} does not fit into the same row; "
        "remove the limits of products that need none any more",
        409,
        CustomerWords("{products} cannot be ordered any more", "the order was rejected"),
    )
    INSUFFICIENT_STOCK = (
        "INSUFFICIENT_STOCK",
        "there is not enough stock of {subject}: {wanted:,} wanted, {available:,} available",
        409,
        CustomerWords("there is not enough stock of {products}", "the order was rejected"),
    )
    BELOW_FLOOR = (
        "BELOW_FLOOR",
        "stock of {subject} would fall below its limit (-backorderLimit, or safetyStock for a decrement): {wanted:,} to remove, "
        "{available:,} available. If a receipt is missing, book it first; if open orders hold units that are gone, cancel those units as lost",
    )
    COUNTED_SINCE = (
        "COUNTED_SINCE",
        "another count of {subject} was booked after this one began, or the product was listed again; count it again",
    )
    LOCATION_REQUIRED = (
        "LOCATION_REQUIRED",
        "{subject} is also at {places}; name the location in locationId (empty for the default one)",
    )
    ORDER_REJECTED = (
        "ORDER_REJECTED",
        "order {subject} was rejected and holds no stock; refund it if it was paid",
    )
    ORDER_CANCELLED = (
        "ORDER_CANCELLED",
        "order {subject} is cancelled; refund it if it was paid",
    )
    ORDER_EXPIRED = (
        "ORDER_EXPIRED",
        "the hold on order {subject} ended before it was paid; refund it if it has been paid since",
    )
    HOLD_NOT_ENDED = (
        "HOLD_NOT_ENDED",
        "the hold on order {subject} has not ended, or is still within its grace period; expire the order after that",
    )
    NOT_HELD = (
        "NOT_HELD",
        "order {subject} has no hold to expire or extend",
    )
    NOT_CONFIRMED = (
        "NOT_CONFIRMED",
        "order {subject} is not confirmed; confirm it once it is paid, then repeat the command",
    )
    NOT_OPEN = (
        "NOT_OPEN",
        "the command names more units of {subject} than are left to hand over; correct the quantity. Units that were handed "
        "over can be returned once they are back",
    )
    TOO_MANY_STEPS = (
        "TOO_MANY_STEPS",
        "order {subject} cannot take another command that names items. Fulfil or cancel the rest "
        "without naming items; book returned units as an adjustment of their product",
    )
    ORDER_FULFILLED = (
        "ORDER_FULFILLED",
        "order {subject} was already handed over; return its units once they are back",
    )
    NOT_FULFILLED = (
        "NOT_FULFILLED",
        "not all of these units of order {subject} are booked as handed over; if they were handed over, fulfil the order first, "
        "otherwise cancel them",
    )
    NOT_DELIVERED = (
        "NOT_DELIVERED",
        "the command names more units of {subject} than were handed over and have not come back; correct the quantity",
    )
    ALREADY_PAID = (
        "ALREADY_PAID",
        "order {subject} is paid, so it cannot be amended; cancel units, or place another order",
    )
    VERSION_CHANGED = (
        "VERSION_CHANGED",
        "order {subject} has changed since that version; look at it, and send the command again with its new version",
        412,
    )
    PARTLY_FULFILLED = (
        "PARTLY_FULFILLED",
        "units of {subject} were already handed over at their location, so the others cannot move to another one; cancel "
        "these, and order them anew",
    )
    STEP_ID_NEEDED = (
        "STEP_ID_NEEDED",
        "a hand-over of order {subject} was taken back, so this may be a late duplicate of an earlier command; if it is not, "
        "send the command with its items and a new stepId",
    )
    TOO_LATE = (
        "TOO_LATE",
        "{subject} was handed over more than 24 hours ago; if it was not, send the command with force, otherwise return it",
    )
    UNKNOWN_ORDER = (
        "UNKNOWN_ORDER",
        "there is no order {subject}; correct the id, or send the order first",
        404,
    )
    UNKNOWN_ORDER_STATUS = (
        "UNKNOWN_ORDER_STATUS",
        "the service does not know the order's status {subject!a}, so it cannot tell what stock the order holds; "
        "cancel the order in the program that set that status, or correct the status",
    )


REASONS_OF_ORDERS = tuple(reason for reason in RejectionReason if reason.for_customers)
"""The reasons for rejecting orders. If several apply, the first of them is given, whatever the sequence of lines."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """A product with too little stock.

    Attributes:
        product_id: The product.
        wanted: Units that the change asked for.
        available: Units that it could have taken.
    """

    product_id: str
    wanted: int
    available: int


@dataclass(frozen=True, slots=True)
class ExceededLimit:
    """A purchase limit that an order would exceed.

    Attributes:
        group: The group of products that share the limit.
        limit: How many units of the group a buyer may buy; the lowest limit among the order's products in the group.
        bought: Units that the buyer has already bought; the highest number if the order names several keys.
        wanted: Units that the order asks for.
    """

    group: str
    limit: int
    bought: int
    wanted: int

    @property
    def words(self) -> str:
        """The message for the sender of the order, who may know what the buyer has bought."""
        return f"at most {self.limit:,} of {self.group} per buyer: {self.wanted:,} wanted, {self.bought:,} bought before"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a change is rejected, with the products or the order that caused it.

    Attributes:
        reason: The reason.
        subject: The product or order that the reason is about, or the order status that prevents the change.
        shortages: All products that are known to be short, if the change is rejected because stock is short.
        limits: All limits that it would exceed, if it is rejected because of a purchase limit.
        rows: The keys of the rows with these limits. Not stored.
        asked: Where an order's units were looked for; empty if its products are known at no other location.
        places: The product's other locations, if the change is rejected because it names none. Not stored.
    """

    reason: RejectionReason
    subject: str = ""
    shortages: tuple[Shortage, ...] = ()
    asked: tuple[str, ...] = ()
    places: tuple[str, ...] = field(default=(), compare=False)
    limits: tuple[ExceededLimit, ...] = ()
    rows: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def of_unnamed_location(cls, product: Stock) -> Rejection | None:
        """Reject a booking that names no location, if its product has stock at several; None if it has not."""
        if not product.places:
            return None
        reason, places = RejectionReason.LOCATION_REQUIRED, tuple(sorted(product.places))
        return cls(reason, product.product_id, places=places)

    @property
    def is_final(self) -> bool:
        """Whether it applies to a repetition of the change too. A change that lacks a location may be sent again with one."""
        return self.reason is not RejectionReason.LOCATION_REQUIRED

    @property
    def words(self) -> str:
        """The message for the sender of the change."""
        # A status may be any string.
        named = str if self.reason is RejectionReason.UNKNOWN_ORDER_STATUS else in_words
        asked = ", ".join(place or "the default location" for place in self.asked)
        if self.limits:
            return "; ".join(each.words for each in self.limits)
        return "; ".join(
            self.reason.words.format(
                subject=named(short.product_id),
                wanted=short.wanted,
                available=short.available,
                places=", ".join(self.places),
            )
            for short in self.shortages or (Shortage(self.subject, 0, 0),)
        ) + (f"; locations asked: {asked}" if asked else "")
