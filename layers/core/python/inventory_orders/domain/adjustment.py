"""Adjustments: all stock changes that are neither orders nor commands on orders."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from inventory_orders.domain.change import Change, IdempotencyMatch, OtherRequest
from inventory_orders.domain.location import location_of, product_of, stock_key
from inventory_orders.domain.product import Product, Stock, StockById
from inventory_orders.domain.record import AdjustmentContent, AdjustmentKey, AdjustmentRecord
from inventory_orders.domain.rejection import Rejection, RejectionReason, Shortage

DECREMENT, COUNT = "DECREMENT", "COUNT"
"""The reasons of a decrement and of a count."""


@dataclass(frozen=True, slots=True)
class Adjustment(AdjustmentContent, Change):
    """Units added to or removed from a product: a receipt, a correction, a return, and so on.

    Attributes:
        notes: Who made it, and why. They are ignored when two adjustments are compared.
        names_location: Whether the sender has named the location. If not, and the product has several, it is rejected.
        stamps: For a count, the time as of which the units were counted, as `counted_at`. `delta` is how many more these are than
            were on hand then, so it is right whatever has come and left since.
        counted_before: For a count, the product's `counted_at` at that time. If it differs now, another count has corrected
            the same units, or the product is of another generation. So the count is rejected.
    """

    notes: Mapping[str, Any] = field(default_factory=dict, compare=False)
    names_location: bool = field(default=True, compare=False)
    stamps: Mapping[str, Any] = field(default_factory=dict, compare=False)
    counted_before: str | None = None

    id_reused_code: ClassVar = "ADJUSTMENT_ID_REUSED"
    moves_goods = True

    @property
    def record_key(self) -> AdjustmentKey:
        return AdjustmentKey(self.product_id, self.adjustment_id)

    @property
    def sent_to(self) -> str:
        """The row at the location to which units are sent, which they could otherwise never reach; its own row if they are not."""
        place = self.notes.get("sentTo", location_of(self.product_id))
        return stock_key(product_of(self.product_id), place)

    @property
    def product_ids(self) -> Collection[str]:
        return tuple(dict.fromkeys((self.product_id, self.sent_to)))

    def rejection(self, products: StockById) -> Rejection | None:
        product, there = products[self.product_id], products[self.sent_to]
        if product is None or there is None:
            subject = self.product_id if product is None else self.sent_to
            return Rejection(RejectionReason.UNKNOWN_PRODUCT, subject)
        if not self.names_location and (unnamed := Rejection.of_unnamed_location(product)):
            return unnamed
        if isinstance(product, Product) and self.counted_before not in (None, product.counted_at):
            return Rejection(RejectionReason.COUNTED_SINCE, self.product_id)
        if self.delta < 0 and (left := self.removable(product)) + self.delta < 0:
            shortage = Shortage(self.product_id, -self.delta, max(0, left))
            return Rejection(RejectionReason.BELOW_FLOOR, self.product_id, (shortage,))
        return None

    def removable(self, product: Stock) -> int:
        """The units of a product that it may remove."""
        return product.removable

    def deltas(self, products: StockById) -> Mapping[str, int]:  # noqa: ARG002
        return {self.product_id: self.delta}

    def record(
        self, rejection: Rejection | None, after: Mapping[str, Stock], at: str
    ) -> AdjustmentRecord:
        product = None if rejection is not None else after[self.product_id]
        return AdjustmentRecord(
            self.product_id,
            self.adjustment_id,
            self.delta,
            self.reason,
            "" if product is None else product.created_at,
            None if product is None else product.version,
            at,
            counted=self.counted,
            notes=self.notes,
            rejection=rejection,
            transfer_with=self.transfer_with,
            counted_at=self.stamps.get("counted_at"),
        )

    def match(self, record: AdjustmentRecord) -> IdempotencyMatch | OtherRequest | Rejection:
        other = OtherRequest.between(_content_of(record), _content_of(self))
        return other if other.differences else record.rejection or IdempotencyMatch.SAME_REQUEST


def _content_of(adjustment: AdjustmentContent) -> dict[str, object]:
    """What makes two adjustments the same request, by names that the sender knows."""
    partner, side = adjustment.transfer_with, "to" if adjustment.delta < 0 else "from"
    return {
        "delta": adjustment.delta if adjustment.counted is None else None,
        "counted": adjustment.counted,
        "reason": adjustment.reason,
        **({} if partner is None else {side: location_of(partner)}),
    }


@dataclass(frozen=True, slots=True)
class Decrement(Adjustment):
    """An adjustment that takes units away, and whose rejection is stored.

    The write of an atomic decrement has no condition on the version. So an earlier attempt may still be in flight when the
    decrement is rejected, and only the stored rejection prevents that attempt from taking the units after all.

    Attributes:
        uses_safety: Whether it may take the safety stock, which is otherwise left, as by orders.
    """

    reason: str = DECREMENT
    uses_safety: bool = field(default=False, compare=False)

    stores_rejection = True

    def removable(self, product: Stock) -> int:
        return product.removable if self.uses_safety else product.sellable


TRANSFER_OUT, TRANSFER_IN = "TRANSFER_OUT", "TRANSFER_IN"
"""The reasons of the two sides of a transfer."""

TRANSFER_LOST = "TRANSFER_LOST"
"""The reason of an adjustment by 0: the units of a transfer that have not arrived by then are lost."""

STEPS_OF_TRANSFERS = frozenset({TRANSFER_OUT, TRANSFER_IN, TRANSFER_LOST})
"""The reasons of adjustments that say under a `reference` which units are in transit."""


@dataclass(frozen=True, slots=True)
class Transfer(Change):
    """Units that move from one location to another: two adjustments, which are applied together or not at all.

    Attributes:
        source: The product at the location that the units leave.
        target: The same product at the location that receives them.
        transfer_id: The sender's idempotency key, which applies at both locations.
        units: How many units move, 1 or more.
        notes: Who made it, and why. They are ignored when two transfers are compared.
    """

    source: str
    target: str
    transfer_id: str
    units: int
    notes: Mapping[str, Any] = field(default_factory=dict, compare=False)

    id_reused_code: ClassVar = "TRANSFER_ID_REUSED"
    moves_goods = True

    @property
    def product_id(self) -> str:
        """The row that its record belongs to."""
        return self.source

    @property
    def parts(self) -> tuple[Adjustment, Adjustment]:
        """The adjustments at the two locations."""
        source, target, units = self.source, self.target, self.units
        return (
            Adjustment(
                source, self.transfer_id, -units, TRANSFER_OUT, self.notes, transfer_with=target
            ),
            Adjustment(
                target, self.transfer_id, units, TRANSFER_IN, self.notes, transfer_with=source
            ),
        )

    @property
    def record_key(self) -> AdjustmentKey:
        return self.parts[0].record_key

    @property
    def product_ids(self) -> Collection[str]:
        return (self.source, self.target)

    def rejection(self, products: StockById) -> Rejection | None:
        return next(filter(None, (part.rejection(products) for part in self.parts)), None)

    def deltas(self, products: StockById) -> Mapping[str, int]:  # noqa: ARG002
        return {self.source: -self.units, self.target: self.units}

    def match(self, record: AdjustmentRecord) -> IdempotencyMatch | OtherRequest | Rejection:
        # A record at the target never equals the outgoing side: its sign, reason or `transfer_with` differs.
        meaning = self.parts[0].match(record)
        if not isinstance(meaning, OtherRequest):
            return meaning
        return OtherRequest.between(
            _content_as_transfer(record), _content_as_transfer(self.parts[0])
        )


def _content_as_transfer(side: AdjustmentContent) -> dict[str, object]:
    """What makes two transfers the same request, by names that the sender knows. An adjustment has a reason, but only one location."""
    units, here = abs(side.delta), location_of(side.product_id)
    if side.transfer_with is None:
        return {"quantity": units, "reason": side.reason}
    there = location_of(side.transfer_with)
    source, target = (here, there) if side.delta < 0 else (there, here)
    return {"from": source, "to": target, "quantity": units}
