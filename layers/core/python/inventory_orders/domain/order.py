"""Orders, also those whose cancellation came first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from inventory_orders.domain.change import Change, IdempotencyMatch, MatchResult
from inventory_orders.domain.product import PageStock, Stock, StockById
from inventory_orders.domain.record import (
    MAX_ATTRIBUTES_SIZE,
    OrderKey,
    OrderLine,
    OrderRecord,
    OrderStatus,
    OrderUpdate,
    Record,
)
from inventory_orders.domain.rejection import Rejection, RejectionReason, Shortage


@dataclass(frozen=True, slots=True)
class Order(Change):
    """A customer's order: all of its lines, or none.

    Attributes:
        order_id: Given by the sender: the idempotency key.
        user_id: The customer.
        quantities: Units by product id, lines of one product added up, in the order of first mention.
        group: `MessageGroupId`, when the order came through the FIFO queue.
        hold_seconds: How long its stock is held without payment, as the sender said; None if it did not.
        default_hold: The same, for an order that says nothing; None: until it is cancelled.
        attributes: The shop's own. They are stored, and mean nothing here.
    """

    order_id: str
    user_id: str
    quantities: Mapping[str, int]
    group: str | None = None
    hold_seconds: int | None = None
    default_hold: int | None = None
    attributes: Mapping[str, str | int | bool] = field(default_factory=dict)

    stores_rejection: ClassVar = True
    id_reused_code: ClassVar = "ORDER_ID_REUSED"

    @property
    def record_key(self) -> OrderKey:
        return OrderKey(self.order_id)

    @property
    def product_ids(self) -> Collection[str]:
        return self.quantities.keys()

    @property
    def lane_units(self) -> Mapping[str, int]:
        return self.quantities

    @property
    def record_size(self) -> int:
        # Ids are ASCII; 800 and 140 cover the attribute names, times and numbers of a row and of a line with its shortage,
        # which repeats the id in the place of times.
        lines = sum(140 + len(product_id) for product_id in self.quantities)
        return 800 + lines + (MAX_ATTRIBUTES_SIZE if self.attributes else 0)

    def rejection(self, products: StockById) -> Rejection | None:
        for product_id, quantity in self.quantities.items():
            product = products[product_id]
            if product is None:
                return Rejection(RejectionReason.UNKNOWN_PRODUCT, product_id)
            if product.is_discontinued:
                return Rejection(RejectionReason.DISCONTINUED_PRODUCT, product_id)
            if product.sellable < quantity:
                return Rejection(
                    RejectionReason.INSUFFICIENT_STOCK,
                    product_id,
                    self._shortages(product_id, products),
                )
        return None

    def _shortages(self, first: str, products: StockById) -> tuple[Shortage, ...]:
        """Shortages, as far as they are known: lanes may hold more units of another product that is partial."""
        return tuple(
            Shortage.of(product, quantity)
            for product_id, quantity in self.quantities.items()
            if (product := products[product_id]) is not None
            and not product.is_discontinued
            and product.sellable < quantity
            and (product_id == first or not product.is_partial)
        )

    def deltas(self, products: StockById) -> Mapping[str, int]:  # noqa: ARG002
        return {product_id: -quantity for product_id, quantity in self.quantities.items()}

    def record(
        self, rejection: Rejection | None, after: Mapping[str, Stock], at: str
    ) -> OrderRecord:
        return OrderRecord(
            self.order_id,
            self.user_id,
            self.lines(after if rejection is None else None),
            OrderStatus.PENDING if rejection is None else OrderStatus.REJECTED,
            version=1,
            created_at=at,
            last_updated_at=at,
            reason=None if rejection is None else rejection.reason,
            shortages=() if rejection is None else rejection.shortages,
            hold_seconds=self.hold_seconds,
            expires_at=self._end_of_hold(at) if rejection is None else None,
            attributes=self.attributes,
        )

    def _end_of_hold(self, at: str) -> str | None:
        seconds = self.default_hold if self.hold_seconds is None else self.hold_seconds
        if seconds is None:
            return None
        end = datetime.fromisoformat(at) + timedelta(seconds=seconds)
        return end.isoformat(timespec="microseconds")

    def lines(self, taken_from: Mapping[str, Stock] | None = None) -> tuple[OrderLine, ...]:
        """The lines as they are stored, with where their units were taken from; None if no stock was taken."""
        return tuple(
            _line(product_id, quantity, None if taken_from is None else taken_from[product_id])
            for product_id, quantity in self.quantities.items()
        )

    def match(self, record: Record) -> MatchResult:
        stored = as_order(record)
        if stored.user_id is None:
            return CancelledBeforehand(self, stored.require_version())
        quantities = {line.product_id: line.quantity for line in stored.lines}
        same = quantities == self.quantities and stored.hold_seconds == self.hold_seconds
        # Of one whose user is forgotten, only what was ordered is left to compare.
        if stored.pseudonymised_at is None:
            same &= stored.user_id == self.user_id
            same &= _with_types(stored.attributes) == _with_types(self.attributes)
        return IdempotencyMatch.SAME_REQUEST if same else IdempotencyMatch.OTHER_REQUEST


@dataclass(frozen=True, slots=True)
class CancelledBeforehand(Change):
    """An order whose cancellation came first: it fills in the tombstone, ends as cancelled, and takes no stock.

    Attributes:
        order: What was ordered.
        tombstone: As read.
    """

    order: Order
    tombstone: OrderRecord

    stores_rejection: ClassVar = True
    id_reused_code: ClassVar = Order.id_reused_code

    @property
    def record_key(self) -> OrderKey:
        return self.order.record_key

    @property
    def group(self) -> str | None:
        return self.order.group

    @property
    def record_size(self) -> int:
        return self.order.record_size

    def record(
        self,
        rejection: Rejection | None,  # noqa: ARG002
        after: Mapping[str, Stock],  # noqa: ARG002
        at: str,
    ) -> OrderUpdate:
        return OrderUpdate(
            self.tombstone,
            replace(
                self.tombstone,
                user_id=self.order.user_id,
                lines=self.order.lines(),
                hold_seconds=self.order.hold_seconds,
                attributes=self.order.attributes,
                last_updated_at=at,
                version=self.tombstone.version + 1,
            ),
        )

    def match(self, record: Record) -> MatchResult:
        return self.order.match(record)


def sum_lines(lines: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Units by product id, in the order of first mention. Checked one by one, two lines of 5 would pass against 5."""
    quantities: dict[str, int] = {}
    for product_id, quantity in lines:
        quantities[product_id] = quantities.get(product_id, 0) + quantity
    return quantities


def _with_types(attributes: Mapping[str, Any]) -> dict[str, tuple[type, Any]]:
    """Attributes as they are compared: for Python `true` equals 1."""
    return {name: (type(value), value) for name, value in attributes.items()}


def _line(product_id: str, quantity: int, taken_from: Stock | None) -> OrderLine:
    if taken_from is None:
        return OrderLine(product_id, quantity)
    created_at, version = taken_from.created_at, taken_from.version
    if isinstance(taken_from, PageStock):
        page = str(taken_from.page)
        return OrderLine(product_id, quantity, created_at, lane_page=page, lane_version=version)
    return OrderLine(product_id, quantity, created_at, version)


def as_order(record: Record) -> OrderRecord:
    """A record that is an order's.

    Raises:
        TypeError: It is another one.
    """
    if not isinstance(record, OrderRecord):
        raise TypeError(f"{record.key} is no order")
    return record
