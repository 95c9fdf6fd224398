"""Why the business rejects a change: reasons with their words, and what was missing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inventory_orders.domain.product import Stock


class RejectionReason(StrEnum):
    """Why the business rejects a change. An answer, not a failure."""

    UNKNOWN_PRODUCT = "UNKNOWN_PRODUCT"
    DISCONTINUED_PRODUCT = "DISCONTINUED_PRODUCT"
    INSUFFICIENT_STOCK = "INSUFFICIENT_STOCK"
    BELOW_FLOOR = "BELOW_FLOOR"
    ORDER_REJECTED = "ORDER_REJECTED"
    ORDER_CANCELLED = "ORDER_CANCELLED"
    ORDER_EXPIRED = "ORDER_EXPIRED"
    HOLD_NOT_ENDED = "HOLD_NOT_ENDED"
    """Or less than its grace ago."""
    NOT_HELD = "NOT_HELD"
    """No hold can end or be extended."""
    NOT_CONFIRMED = "NOT_CONFIRMED"
    NOT_OPEN = "NOT_OPEN"
    """The command names more units than are neither handed over nor cancelled."""
    TOO_MANY_STEPS = "TOO_MANY_STEPS"
    """The order's row has no room for another step that names items."""
    ORDER_FULFILLED = "ORDER_FULFILLED"
    NOT_FULFILLED = "NOT_FULFILLED"
    NOT_DELIVERED = "NOT_DELIVERED"
    """The return exceeds the units that were delivered and not returned before."""
    UNKNOWN_ORDER = "UNKNOWN_ORDER"
    UNKNOWN_ORDER_STATUS = "UNKNOWN_ORDER_STATUS"
    """Another program has given the order a status that is none of the service's own."""


_REJECTIONS = {
    "UNKNOWN_PRODUCT": "there is no product {subject}; create it first, or correct the id",
    "DISCONTINUED_PRODUCT": "{subject} is discontinued and takes no more orders",
    "INSUFFICIENT_STOCK": "there is not enough of {subject}: {wanted:,} wanted, {available:,} available",
    "BELOW_FLOOR": "it would take the stock of {subject} below its floor (-backorderLimit): {wanted:,} to take away, "
    "{available:,} available; take away fewer, or book what is missing first",
    "ORDER_REJECTED": "the order {subject} was rejected and holds no stock; if it was paid, give the money back",
    "ORDER_CANCELLED": "the order {subject} is cancelled; if it was paid, give the money back",
    "ORDER_EXPIRED": "the hold of the order {subject} ended before it was paid; if it was paid since, give the money back",
    "HOLD_NOT_ENDED": "the hold of the order {subject} has not ended, or its grace is not over; expire it when it is",
    "NOT_HELD": "the order {subject} is under no hold that could end or be extended",
    "NOT_CONFIRMED": "the order {subject} is not confirmed; confirm it first, when it is paid",
    "NOT_OPEN": "the command names more of {subject} than is left to hand over; correct the quantity, or return units that "
    "were handed over",
    "TOO_MANY_STEPS": "the order {subject} has no room for another command that names items. Fulfil or cancel the rest "
    "without items; book units that come back as an adjustment of their product",
    "ORDER_FULFILLED": "the order {subject} was handed over already; return it instead",
    "NOT_FULFILLED": "the order {subject} was not handed over yet; cancel it instead",
    "NOT_DELIVERED": "more of {subject} is said to come back than was delivered and is not back yet; correct the quantity",
    "UNKNOWN_ORDER": "there is no order {subject}; correct the id, or send the order first",
    "UNKNOWN_ORDER_STATUS": "the order has the status {subject!a}, which is none of the service's own, so nothing is "
    "known of its stock; cancel it where that status was set, or correct the status",
}


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
        return cls(product.product_id, wanted, max(0, product.available))


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
        return "; ".join(
            _REJECTIONS[self.reason].format(
                subject=short.product_id, wanted=short.wanted, available=short.available
            )
            for short in self.shortages or (Shortage(self.subject, 0, 0),)
        )
