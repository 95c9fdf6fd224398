"""The stored rows that make changes exactly-once, how they are named, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from inventory_orders.domain.order_record import OrderKey, OrderRecord
from inventory_orders.domain.rejection import Rejection


@dataclass(frozen=True, slots=True)
class AdjustmentKey:
    """Names the record of an adjustment."""

    product_id: str
    adjustment_id: str


RecordKey = OrderKey | AdjustmentKey
"""Names the stored row that makes a change exactly-once."""


NOTES_OF_ADJUSTMENT = ("actor", "reference")
NOTES = (*NOTES_OF_ADJUSTMENT, "reason")
"""Who gave a command, and what for: kept as sent, and no part of what makes two commands the same."""

NO_NOTES: Mapping[str, str] = MappingProxyType({})


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
