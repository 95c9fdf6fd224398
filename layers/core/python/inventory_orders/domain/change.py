"""Changes of stock: product deltas, and the record that makes them exactly-once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from types import MappingProxyType
from typing import Any, ClassVar

from inventory_orders.domain.product import Stock, StockById
from inventory_orders.errors import CorruptItemError


class OrderStatus(StrEnum):
    """Where an order stands."""

    PENDING = "PENDING"
    """Placed, not paid: its stock is held."""
    CONFIRMED = "CONFIRMED"
    """Paid: its stock is held."""
    FULFILLED = "FULFILLED"
    """Handed over: its stock is gone."""
    REJECTED = "REJECTED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
    """Not paid before its hold ended."""


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


MAX_ATTRIBUTES_SIZE = 2_048
"""Bytes that a shop's own attributes of an order may have, as JSON."""


@dataclass(frozen=True, slots=True)
class OrderKey:
    """Names the record of an order."""

    order_id: str


@dataclass(frozen=True, slots=True)
class AdjustmentKey:
    """Names the record of an adjustment."""

    product_id: str
    adjustment_id: str


RecordKey = OrderKey | AdjustmentKey
"""Names the stored row that makes a change exactly-once."""


class OrderAction(StrEnum):
    """The action of a command on an order."""

    CONFIRM = "confirm"
    """It is paid."""
    FULFIL = "fulfil"
    """Units are handed over."""
    CANCEL = "cancel"
    """Units are not wanted any more, before they are handed over."""
    EXPIRE = "expire"
    """Its hold has ended."""
    EXTEND = "extend"
    """Its hold ends later."""
    RETURN = "return"
    """Units come back after they were handed over."""


NOTES_OF_ADJUSTMENT = ("actor", "reference")
NOTES = (*NOTES_OF_ADJUSTMENT, "reason")
"""Who gave a command, and what for: kept as sent, and no part of what makes two commands the same."""

NO_NOTES: Mapping[str, str] = MappingProxyType({})

MAX_NAMED_STEPS = 100
"""Steps of an order that may name items."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command that changed an order.

    Attributes:
        action: An `OrderAction`.
        at: When.
        step_id: Given by the sender of a command that names items: the idempotency key, within the order; else None.
        quantities: Units that it moved, by product id; None if it moved none, or fulfilled all that was left.
        returned_versions: By product id, the version of the product that taking the units back into stock made.
        restock: Of a return: whether its units can be sold again.
        notes: By name, of `NOTES`.
        other: Attributes that this version does not know. They are kept as they are.
    """

    action: str
    at: str
    step_id: str | None = None
    quantities: Mapping[str, int] | None = field(default=None, hash=False)
    returned_versions: Mapping[str, int] = field(default_factory=dict, hash=False)
    restock: bool | None = None
    notes: Mapping[str, str] = field(default_factory=dict, hash=False)
    other: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def size(self) -> int:
        """Upper bound of its size in the row, in bytes."""
        notes = sum(len(name) + len(text.encode()) for name, text in self.notes.items())
        return 250 + notes + sum(100 + len(product_id) for product_id in self.quantities or ())


@dataclass(slots=True)
class LineUnits:
    """Where the units of a line are.

    Attributes:
        quantity: Units that were ordered.
        moved: Units that steps moved, by action.
    """

    quantity: int
    moved: Counter[str] = field(default_factory=Counter)

    @property
    def open(self) -> int:
        """Units that are neither handed over nor cancelled."""
        return self.quantity - self.moved[OrderAction.FULFIL] - self.moved[OrderAction.CANCEL]

    @property
    def delivered(self) -> int:
        """Units that were handed over and did not come back."""
        return self.moved[OrderAction.FULFIL] - self.moved[OrderAction.RETURN]


def units_by_line(
    quantities: Mapping[str, int], steps: Iterable[tuple[str, Mapping[str, int] | None]]
) -> dict[str, LineUnits]:
    """Where steps left the units of each line, by product id.

    Args:
        quantities: Units that were ordered, by product id.
        steps: The action of each step, and the units that it names, in their order.

    Raises:
        KeyError: A step moved units of a product that was not ordered.
    """
    units = {product_id: LineUnits(quantity) for product_id, quantity in quantities.items()}
    for action, named in steps:
        if named is None and action == OrderAction.FULFIL:
            for line in units.values():
                line.moved[action] += line.open
        for product_id, quantity in (named or {}).items():
            units[product_id].moved[action] += quantity
    return units


@dataclass(frozen=True, slots=True)
class OrderLine:
    """A line of an order as it is stored.

    Attributes:
        product_id: The product.
        quantity: Units, the lines of one product added up.
        product_created_at: The incarnation that the units were taken from; None if no stock was taken.
        product_version: The version of the product that taking them made; None if they were taken from a page.
        lane_page: The page that they were taken from; None if it was the product's row.
        lane_version: The version of the page that taking them made.
        other: Attributes that are not the service's own. They are kept as they are.
    """

    product_id: str
    quantity: int
    product_created_at: str | None = None
    product_version: int | None = None
    lane_page: str | None = None
    lane_version: int | None = None
    other: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class ConfirmationRejection:
    """A late payment: a confirmation after the order had ended without being confirmed. It has to be refunded.

    Attributes:
        at: When it was rejected.
        reason: Why, as a `RejectionReason`.
    """

    at: str
    reason: str


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """An order as it is stored.

    Attributes:
        order_id: The order.
        user_id: The customer; None in a tombstone, the row of a cancellation that came before its order.
        lines: One for each product.
        status: Where the order stands: an `OrderStatus`, or a text that another program has written.
        version: Rises by one with every change of the row.
        created_at: When the row was written.
        last_updated_at: When it was last changed.
        reason: Why the order was rejected; None if it was not.
        shortages: What was missing, if it was rejected for want of stock.
        hold_seconds: How long its stock is held without payment, as the sender said; None if it did not.
        expires_at: When its hold ends, while it is `PENDING` under one.
        confirmed_at: When it was confirmed.
        fulfilled_at: When it became `FULFILLED`.
        steps: The commands that changed it, in their order.
        confirmation_rejected: Of the first late payment, and so of all later ones; None if there is none.
        attributes: The shop's own.
        pseudonymised_at: When a pseudonym took the place of its user; None while the user is named.
    """

    order_id: str
    user_id: str | None
    lines: tuple[OrderLine, ...]
    status: str
    version: int
    created_at: str
    last_updated_at: str
    reason: str | None = None
    shortages: tuple[Shortage, ...] = ()
    hold_seconds: int | None = None
    expires_at: str | None = None
    confirmed_at: str | None = None
    fulfilled_at: str | None = None
    steps: tuple[Step, ...] = ()
    confirmation_rejected: ConfirmationRejection | None = None
    attributes: Mapping[str, str | int | bool] = field(default_factory=dict, hash=False)
    pseudonymised_at: str | None = None

    @property
    def key(self) -> OrderKey:
        """What names it."""
        return OrderKey(self.order_id)

    def with_sound_version(self) -> OrderRecord:
        """The same, if its version can be raised.

        Raises:
            CorruptItemError: It has none.
        """
        if not isinstance(self.version, int) or self.version < 1:
            raise CorruptItemError(f"order {self.order_id} has no _version; repair the item")
        return self

    @property
    def size(self) -> int:
        """Upper bound of its row's size, in bytes."""
        # Ids are ASCII; the numbers cover attribute names, times and numbers of a row and of a line.
        lines = sum(160 + len(line.product_id) for line in self.lines)
        steps = sum(step.size for step in self.steps)
        return 1_000 + lines + steps + (MAX_ATTRIBUTES_SIZE if self.attributes else 0)


@dataclass(frozen=True, slots=True)
class AdjustmentRecord:
    """An adjustment as it is stored.

    Attributes:
        product_id: The product.
        adjustment_id: What makes it exactly-once, within the product.
        delta: Units added; negative if taken away. With a rejection: that were asked for.
        reason: Why, in one word.
        product_created_at: The incarnation of the product; empty with a rejection.
        product_version: The version that the change made; None if it was made without reading one, or rejected.
        applied_at: When.
        counted: Units that were counted; None if it is no count.
        notes: Who did it, and what for: `actor` and `reference`.
        rejection: Why nothing was booked; None if it was.
    """

    product_id: str
    adjustment_id: str
    delta: int
    reason: str
    product_created_at: str
    product_version: int | None
    applied_at: str
    counted: int | None = None
    notes: Mapping[str, str] = field(default_factory=dict, hash=False)
    rejection: Rejection | None = None

    @property
    def key(self) -> AdjustmentKey:
        """What names it."""
        return AdjustmentKey(self.product_id, self.adjustment_id)


Record = OrderRecord | AdjustmentRecord
"""The stored row that makes a change exactly-once."""


@dataclass(frozen=True, slots=True)
class NewRecord:
    """Write a record that must not exist yet."""

    record: Record


@dataclass(frozen=True, slots=True)
class OrderUpdate:
    """Change an order's record, which must still be as it was read: its version, its status and whose it is.

    Attributes:
        before: As it was read.
        after: As it is to be.
    """

    before: OrderRecord
    after: OrderRecord


class IdempotencyMatch(Enum):
    """Whether a record is of the same request as a change with its key."""

    SAME_REQUEST = auto()
    OTHER_REQUEST = auto()


class Change:
    """A set of product deltas, and one record that makes them exactly-once.

    As it stands here it touches no stock, and the business never rejects it: each kind says how it differs.

    Attributes:
        stores_rejection: Whether a rejection is stored too, and so is final.
        id_reused_code: `errorCode` of a change whose record belongs to another request.
    """

    __slots__ = ()

    stores_rejection: ClassVar = False
    id_reused_code: ClassVar[str]

    @property
    def record_key(self) -> RecordKey:
        """Names the record: two changes with one key are one change, or one of them is a mistake."""
        raise NotImplementedError

    @property
    def product_ids(self) -> Collection[str]:
        """The products that it is about."""
        return ()

    @property
    def group(self) -> str | None:
        """Changes of one group take effect in the order in which they arrived; None if order is free."""
        return None

    @property
    def record_size(self) -> int:
        """Upper bound of the record's size, in bytes."""
        return 600

    @property
    def decrements(self) -> Mapping[str, int]:
        """Units that it takes, by product id, and that may be sold from lanes.

        Empty for a change that is for the rows alone.
        """
        return {}

    def rejection(self, products: StockById) -> Rejection | None:  # noqa: ARG002
        """Why this change is rejected in this state of the products; None if it is accepted."""
        return None

    def deltas(self, products: StockById) -> Mapping[str, int]:  # noqa: ARG002
        """Change of stock by product id, in units, if it is accepted in this state of the products."""
        return {}

    def record(
        self, rejection: Rejection | None, after: Mapping[str, Stock], at: str
    ) -> NewRecord | OrderUpdate:
        """The write of the decision, with the products as the same transaction leaves them."""
        raise NotImplementedError

    def match(self, record: Record) -> IdempotencyMatch | Rejection | Change:
        """Match the change with a stored record: it is answered, or another change takes its place.

        Raises:
            CorruptItemError: The record contradicts what the change needs.
        """
        raise NotImplementedError
