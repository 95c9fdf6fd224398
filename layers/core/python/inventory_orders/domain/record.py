"""Records: the stored orders and adjustments, by which a repeated change is recognised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Self

from inventory_orders.domain.location import DEFAULT_LOCATION, in_words, stock_key
from inventory_orders.domain.product import sum_by_key
from inventory_orders.domain.purchases import BuyerKey, Refunds
from inventory_orders.domain.rejection import ExceededLimit, Rejection, Shortage
from inventory_orders.errors import CorruptItemError


class OrderStatus(StrEnum):
    """The status of an order."""

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


MAX_ATTRIBUTES_SIZE = 2_048
"""Maximum size of the shop's own attributes of an order, in bytes of JSON."""

SIZE_OF_LINE = 390
"""Maximum bytes of a line without its product's id: attribute names, times, numbers, two locations and a group."""


@dataclass(frozen=True, slots=True)
class OrderKey:
    """The key of an order's record."""

    order_id: str

    def __str__(self) -> str:
        return f"order {self.order_id}"


@dataclass(frozen=True, slots=True)
class AdjustmentKey:
    """The key of an adjustment's record."""

    product_id: str
    adjustment_id: str

    def __str__(self) -> str:
        return f"adjustment {self.adjustment_id} of {in_words(self.product_id)}"


RecordKey = OrderKey | AdjustmentKey
"""Names the stored row that makes a change exactly-once."""


class OrderAction(StrEnum):
    """All actions of commands on orders, each with its properties.

    Attributes:
        restocks: For an action that moves open units (neither handed over nor cancelled), whether these go back into stock
            unless the command says otherwise. None for all other actions.
        counted_as: The public attribute of a line that counts the units that it moves; empty if there is none.
        path: The path below the order in the HTTP API; empty for actions of the service itself.
        past: What it did, in words.
    """

    restocks: bool | None
    counted_as: str
    path: str
    past: str

    # The columns have no defaults, so an action that lacks one raises an error at import.
    def __new__(cls, code: str, *columns: Any) -> Self:
        action = str.__new__(cls, code)
        action._value_ = code
        action.restocks, action.counted_as, action.path, action.past = columns
        return action

    CONFIRM = "confirm", None, "", "confirm", "confirmed"
    """It was paid."""
    FULFIL = "fulfil", False, "fulfilled", "fulfil", "fulfilled"
    """Units are handed over."""
    CANCEL = "cancel", True, "cancelled", "cancel", "cancelled"
    """Units are no longer wanted, before they are handed over."""
    EXPIRE = "expire", True, "", "", "expired"
    """Its hold has ended."""
    EXTEND = "extend", None, "", "extend", "extended"
    """Its hold ends later."""
    RETURN = "return", None, "returned", "returns", "returned"
    """Units come back after they were handed over."""
    AMEND = "amend", True, "", "", "amended"
    """Other units or attributes are wanted. Units that are not wanted any more count as cancelled."""
    UNFULFIL = "unfulfil", None, "", "unfulfil", "taken back as not handed over"
    """Units that were booked as handed over were not. They no longer count as fulfilled."""


_OF_OPEN_UNITS = frozenset({OrderAction.FULFIL, OrderAction.CANCEL, OrderAction.EXPIRE})
"""Actions that move open units. A step of these that names no units moved all that were left."""

_COUNTED_AS: Mapping[str, tuple[str, int]] = {
    OrderAction.AMEND: (OrderAction.CANCEL, 1),
    OrderAction.UNFULFIL: (OrderAction.FULFIL, -1),
}
"""For actions whose units count as moved by another action: that action, and 1, or -1 if it is undone."""

SCANNED = "scanned"
"""The element strings of the codes that were scanned, as a list for each product. They contain lots and serial numbers."""

NOTES = ("actor", "reference", SCANNED, "reason")
NOTES_OF_ADJUSTMENT = ("actor", "reference", SCANNED, "sentTo", "comment")
"""Who gave a command, why, and what was scanned. Stored as sent, and ignored when two commands are compared."""

NO_NOTES: Mapping[str, Any] = MappingProxyType({})

SIZE_OF_UNITS = 70
"""Maximum bytes of a step's units of one product without its id: a map with attribute names and numbers."""

MAX_NAMED_STEPS = 100
"""Maximum number of steps of an order that name items."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step in the life of an order: a command that changed it.

    Attributes:
        action: An `OrderAction`.
        at: When it was carried out.
        step_id: The sender's idempotency key, unique within the order. None for a command that names no items.
        quantities: Units that were moved, by product id; None if there were none, or if all units that were left were
            fulfilled, or were cancelled before the order arrived.
        restocked_versions: The version of the product, or of the page, after units went back into stock, by product id.
        restocked_pages: The page of a lane into which they went, by product id; none for units that went to the product's row.
        restock: For a return, whether its units can be sold again. False for a cancellation of units that are lost.
        notes: The notes by name. `NOTES` lists the names.
        out_page: The outbound page on which its units left, or from which they were taken back; None if there is none.
        out_version: The version of that page after the step.
        added: For an amend, a line for the additional units of each product.
        if_version: For a confirmation, the only version of the order to which it applied; None if the sender did not say.
        other: Attributes that this version of the service does not know. They stay as they are.
    """

    action: str
    at: str
    step_id: str | None = None
    quantities: Mapping[str, int] | None = field(default=None, hash=False)
    restocked_versions: Mapping[str, int] = field(default_factory=dict, hash=False)
    restocked_pages: Mapping[str, str] = field(default_factory=dict, hash=False)
    restock: bool | None = None
    notes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    out_page: str | None = None
    out_version: int | None = None
    added: tuple[OrderLine, ...] = ()
    if_version: int | None = None
    other: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def more(self) -> Mapping[str, int]:
        """For an amend, the additional units by product id."""
        return {line.product_id: line.quantity for line in self.added}

    @property
    def size(self) -> int:
        """The maximum size of the step in its row without lines, in bytes. 125 covers all attributes but those added here."""
        notes = sum(1 + len(name) + len(str(note).encode()) for name, note in self.notes.items())
        units = sum(SIZE_OF_UNITS + len(product_id) for product_id in self.quantities or ())
        return 125 + len(self.step_id or "") + notes + units


@dataclass(slots=True)
class LineUnits:
    """The units of an order's line, and what has become of them.

    Attributes:
        quantity: Units that were ordered.
        moved: Units that steps moved, by action.
    """

    quantity: int
    moved: Counter[str] = field(default_factory=Counter)

    @property
    def open(self) -> int:
        """Units that are neither handed over nor cancelled."""
        return self.quantity - sum(self.moved[action] for action in _OF_OPEN_UNITS)

    @property
    def bought(self) -> int:
        """Units that were neither cancelled nor expired."""
        return self.quantity - self.moved[OrderAction.CANCEL] - self.moved[OrderAction.EXPIRE]

    @property
    def delivered(self) -> int:
        """Units that were handed over and did not come back."""
        return self.moved[OrderAction.FULFIL] - self.moved[OrderAction.RETURN]


def move_units(
    units: dict[str, LineUnits],
    action: str,
    named: Mapping[str, int] | None,
    more: Mapping[str, int] = MappingProxyType({}),
) -> Mapping[str, int]:
    """Add the units that a step moved to their lines.

    Args:
        units: The lines after the steps before it, by product id.
        action: The step's action.
        named: The units that the step names, by product id; None if it names none.
        more: The units that the step adds to the order, by product id.

    Returns:
        The units that it moved, by product id.

    Raises:
        KeyError: The step moved units of a product that was not ordered.
    """
    if named is None:
        rest = {product_id: line.open for product_id, line in units.items() if line.open > 0}
        named = rest if action in _OF_OPEN_UNITS else {}
    counted_as, sign = _COUNTED_AS.get(action, (action, 1))
    for product_id, quantity in named.items():
        units[product_id].moved[counted_as] += sign * quantity
    for product_id, quantity in more.items():
        units.setdefault(product_id, LineUnits(0)).quantity += quantity
    return named


@dataclass(frozen=True, slots=True)
class OrderLine:
    """A line of an order as stored.

    Attributes:
        product_id: The product.
        quantity: Units, summed over the lines of one product.
        location_id: Where its units were taken from; empty for the default location, or if none were taken.
        asked_location: The only location that the sender allows; None if the order's locations apply.
        limit_group: The group to which its units were charged; None if its product had no purchase limit.
        backordered: How many of its units were not in stock when the order was placed.
        product_created_at: The generation that the units were taken from; None if no stock was taken.
        product_version: The version of the product after they were taken; None if the units were taken from a page.
        lane_page: The page that the units were taken from; None if they were taken from the product's row.
        lane_version: The version of the page after they were taken.
        other: Attributes that the service does not know, kept unchanged.
    """

    product_id: str
    quantity: int
    product_created_at: str | None = None
    product_version: int | None = None
    lane_page: str | None = None
    lane_version: int | None = None
    location_id: str = DEFAULT_LOCATION
    asked_location: str | None = None
    limit_group: str | None = None
    backordered: int = 0
    other: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def key(self) -> str:
        """The key of the row from which the units were taken."""
        return stock_key(self.product_id, self.location_id)


@dataclass(frozen=True, slots=True)
class ConfirmationRejection:
    """A confirmation that came after the order had ended without one, or had changed. The payment has to be refunded.

    Attributes:
        at: When it was rejected.
        reason: A `RejectionReason`.
        if_version: The version that was paid; None if the sender did not say.
    """

    at: str
    reason: str
    if_version: int | None = None


@dataclass(frozen=True, slots=True)
class RejectedAmend:
    """An amend that was rejected for good.

    Attributes:
        step_id: The sender's idempotency key.
        at: When it was rejected.
        rejection: Why, with at most `MAX_DETAILS` shortages or limits.
    """

    step_id: str
    at: str
    rejection: Rejection


MAX_REJECTED_AMENDS, MAX_DETAILS = 8, 5
"""How many rejected amends an order's row keeps, and how many shortages or limits of each."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was ordered first, for an order that was amended.

    Attributes:
        lines: The lines as they were placed.
        attributes: The shop's own attributes.
    """

    lines: tuple[OrderLine, ...]
    attributes: Mapping[str, str | int | bool] = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderContent:
    """What the sender of an order says about it, besides its customer, lines and buyers.

    Attributes:
        hold_seconds: How long its stock is held without payment; None if the sender did not say.
        attributes: The shop's own attributes, which the service only stores.
        locations: Where its units may come from, best first; None if the sender did not say.
        split: Whether its lines may come from several locations if none has them all.
        request_id: The HTTP request that waits for the order, and so placed or rejected it; None if none does.
        placed_by: The member of staff who sent it; None if a customer or program did.
    """

    hold_seconds: int | None = None
    attributes: Mapping[str, str | int | bool] = field(default_factory=dict, hash=False)
    locations: tuple[str, ...] | None = None
    split: bool = False
    request_id: str | None = None
    placed_by: str | None = None


@dataclass(frozen=True, slots=True)
class OrderRecord(OrderContent):
    """An order as stored.

    Attributes:
        order_id: The order.
        user_id: The customer; None in a tombstone, the row of a cancellation that came before its order.
        lines: One for each product.
        status: An `OrderStatus`, or any string that another program has written.
        version: Rises by one with every change to the row.
        created_at: When the row was written.
        last_updated_at: When it was last changed.
        status_at: When it entered its status; None in a row without that time.
        reason: Why the order was rejected; None if it was not.
        shortages: The products that were short, if it was rejected because stock was short.
        limits: The purchase limits that it would have exceeded, if it was rejected because of one.
        expires_at: When its hold ends, while it is `PENDING` and has one.
        confirmed_at: When it was confirmed.
        fulfilled_at: When it became `FULFILLED`.
        steps: The commands that changed it, in order.
        confirmation_rejected: The first late payment; later ones get the same answer. None if there was none.
        locations_asked: If it was rejected and has no `locations`, where its units were looked for.
        buyers: The keys of its buyer; None if the sender named none.
        pseudonymised_at: When a pseudonym replaced its user; None while the user is named.
        size: Bytes of the stored item.
        asked: What was ordered first; None if it was never amended.
        rejected_amends: The last amends that were rejected, in order.
        changed_version: The version after its last step other than an extension of its hold; None if there was none.
    """

    order_id: str
    user_id: str | None
    lines: tuple[OrderLine, ...]
    status: str
    version: int
    created_at: str
    last_updated_at: str
    status_at: str | None = None
    reason: str | None = None
    shortages: tuple[Shortage, ...] = ()
    expires_at: str | None = None
    confirmed_at: str | None = None
    fulfilled_at: str | None = None
    steps: tuple[Step, ...] = ()
    confirmation_rejected: ConfirmationRejection | None = None
    locations_asked: tuple[str, ...] = ()
    pseudonymised_at: str | None = None
    size: int = field(default=0, compare=False)
    buyers: tuple[str, ...] | None = None
    limits: tuple[ExceededLimit, ...] = ()
    asked: Asked | None = None
    rejected_amends: tuple[RejectedAmend, ...] = ()
    changed_version: int | None = None

    @property
    def key(self) -> OrderKey:
        """The key of the row."""
        return OrderKey(self.order_id)

    @property
    def as_asked(self) -> OrderRecord:
        """The order with the lines and attributes that were ordered first."""
        first = self.asked
        return replace(self, lines=first.lines, attributes=first.attributes) if first else self

    def is_as_in(self, version: int | None) -> bool:
        """Whether the order is as it was in a version, except for its hold. None stands for any version."""
        return version is None or (self.changed_version or 1) <= version <= self.version

    def units(self, steps: int | None = None) -> dict[str, LineUnits]:
        """Add up what steps have done with the units of each line, by product id.

        Args:
            steps: How many steps to follow; None for all.

        Raises:
            KeyError: A step moved units of a product that was not ordered.
        """
        units = {line.product_id: LineUnits(line.quantity) for line in self.as_asked.lines}
        for step in self.steps[:steps]:
            move_units(units, step.action, step.quantities, step.more)
        return units

    @property
    def charged_buyers(self) -> tuple[BuyerKey, ...]:
        """The buyers to whom its lines are charged, except those that were erased: by default, its user."""
        user = () if self.user_id is None or self.pseudonymised_at else (self.user_id,)
        return tuple(map(BuyerKey, user if self.buyers is None else self.buyers))

    def refunds(self, units: Mapping[str, int]) -> Refunds:
        """What its buyers may buy again if units of its lines, by product id, are not bought after all."""
        given = +self.groups_of(units)
        return dict.fromkeys(self.charged_buyers, given) if given else {}

    def groups_of(self, units: Mapping[str, int]) -> Counter[str]:
        """Add up units of its lines, by product id, by the group to which they were charged."""
        return sum_by_key(
            (line.limit_group, units.get(line.product_id, 0))
            for line in self.lines
            if line.limit_group is not None
        )

    def require_version(self) -> OrderRecord:
        """Check that the order has a valid version, and return the order.

        Raises:
            CorruptItemError: The order has no valid version.
        """
        if not isinstance(self.version, int) or self.version < 1:
            raise CorruptItemError(f"order {self.order_id} has no valid _version; repair the item")
        return self


@dataclass(frozen=True, slots=True)
class AdjustmentContent:
    """Units that are added to a product or removed from it.

    Attributes:
        product_id: The product.
        adjustment_id: The sender's idempotency key, unique within the product.
        delta: Units to add; negative to remove.
        reason: Why, in one word: `RECEIPT`, `CORRECTION`, ...
        counted: For a count, the counted units; otherwise None.
        transfer_with: For one side of a transfer, the product id of the other side; None for any other adjustment.
    """

    product_id: str
    adjustment_id: str
    delta: int
    reason: str
    counted: int | None = field(default=None, kw_only=True)
    transfer_with: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class AdjustmentRecord(AdjustmentContent):
    """An adjustment as stored. If it was rejected, `delta` is what was asked for.

    Attributes:
        product_created_at: The generation of the product; empty for a rejection.
        product_version: The version of the product after the change; None if it was made without reading one, or rejected.
        applied_at: When it was applied or rejected.
        counted_at: As of which time they were counted; None for a count under a lease.
        notes: Who made it, and why: `actor` and `reference`.
        rejection: Why it was rejected; None if it was applied.
        on_hand_delta: For a closing, the change to the row's `onHand`; None if it equals `delta`.
    """

    product_created_at: str
    product_version: int | None
    applied_at: str
    notes: Mapping[str, str] = field(default_factory=dict, hash=False)
    rejection: Rejection | None = None
    on_hand_delta: int | None = None
    counted_at: str | None = None

    @property
    def key(self) -> AdjustmentKey:
        """The key of the row."""
        return AdjustmentKey(self.product_id, self.adjustment_id)


Record = OrderRecord | AdjustmentRecord
"""The stored row that makes a change exactly-once."""
