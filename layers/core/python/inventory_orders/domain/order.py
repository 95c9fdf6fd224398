"""Orders that customers place, including orders that are cancelled before they arrive."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

from inventory_orders.domain.change import Change, IdempotencyMatch, MatchResult, Update
from inventory_orders.domain.location import DEFAULT_LOCATION, location_of, product_of, stock_key
from inventory_orders.domain.product import PageStock, Stock, StockById
from inventory_orders.domain.record import (
    MAX_ATTRIBUTES_SIZE,
    SIZE_OF_LINE,
    OrderKey,
    OrderLine,
    OrderRecord,
    OrderStatus,
    Record,
)
from inventory_orders.domain.rejection import Rejection, RejectionReason, Shortage


@dataclass(frozen=True)
class Order(Change):
    """A customer's order. All of its lines are placed, or none of them.

    Attributes:
        order_id: The sender's idempotency key.
        user_id: The customer.
        quantities: Units by product id, summed over a product's lines, in order of first mention.
        group: `MessageGroupId`, when the order came through the FIFO queue.
        hold_seconds: How long its stock is held without payment; None if the sender did not say.
        default_hold: How long stock is held if the order has no `hold_seconds`; None for no limit.
        attributes: The shop's own attributes, which the service only stores.
        locations: Where its units may come from, best first; None if the sender did not say.
        split: Whether its lines may come from several locations if none has them all.
        asked_locations: The location that a line requires, by product id.
        default_locations: Used if the order has no `locations`.
        request_id: The HTTP request that waits for the order; None if none does.
    """

    order_id: str
    user_id: str
    quantities: Mapping[str, int]
    group: str | None = None
    hold_seconds: int | None = None
    default_hold: int | None = None
    attributes: Mapping[str, str | int | bool] = field(default_factory=dict)
    locations: tuple[str, ...] | None = None
    split: bool = False
    asked_locations: Mapping[str, str] = field(default_factory=dict)
    default_locations: tuple[str, ...] = (DEFAULT_LOCATION,)
    request_id: str | None = None

    stores_rejection: ClassVar = True
    id_reused_code: ClassVar = "ORDER_ID_REUSED"

    @property
    def record_key(self) -> OrderKey:
        return OrderKey(self.order_id)

    @cached_property
    def offers(self) -> tuple[tuple[str, ...], ...]:
        """One offer for each location: the rows of all lines there. A line that names a location keeps it in every offer."""
        locations = self.default_locations if self.locations is None else self.locations
        offers = (
            tuple(stock_key(p, self.asked_locations.get(p, location)) for p in self.quantities)
            for location in locations
        )
        return tuple(dict.fromkeys(offers))

    @property
    def product_ids(self) -> Collection[str]:
        return dict.fromkeys(chain.from_iterable(self.offers)).keys()

    def lane_units(self, short: Set[str]) -> Mapping[str, int]:
        fresh = [offer for offer in self.offers if short.isdisjoint(offer)]
        wanted = fresh[:1] or (self._lines_without(short) if self.split else self.offers)
        return {p: self.quantities[product_of(p)] for offer in wanted for p in offer}

    def _lines_without(self, short: Set[str]) -> Iterator[Sequence[str]]:
        """For each line, yield its first row that is not short, or all of its rows if they all are."""
        for line in zip(*self.offers, strict=True):
            yield [product_id for product_id in line if product_id not in short][:1] or line

    @property
    def record_size(self) -> int:
        # Ids are ASCII; 1,200 covers the attribute names, times and numbers of a row, and its locations. A shortage is
        # stored instead of a line's times, and there may be one for each offer.
        lines = sum(SIZE_OF_LINE + len(product_id) for product_id in self.quantities)
        shortages = SIZE_OF_LINE * len(self.offers)
        return 1_200 + lines + shortages + (MAX_ATTRIBUTES_SIZE if self.attributes else 0)

    def rejection(self, products: StockById) -> Rejection | None:
        # Partial products come last: if another product is a reason to reject, their units need no recall.
        for product_id, product in sorted(
            products.items(), key=lambda item: bool(item[1] and item[1].is_partial)
        ):
            if product is None:
                return Rejection(RejectionReason.UNKNOWN_PRODUCT, product_id)
            if product.is_discontinued:
                return Rejection(RejectionReason.DISCONTINUED_PRODUCT, product_id)
            quantity = self.quantities[product_of(product_id)]
            if product.sellable < quantity:
                return Rejection(
                    RejectionReason.INSUFFICIENT_STOCK,
                    product_id,
                    self._shortages(product_id, products),
                )
        return None

    def final_rejection(self, rejections: Sequence[Rejection], products: StockById) -> Rejection:
        first = rejections[0]
        if len(self.offers) == 1:
            return first
        for keys in zip(*self.offers, strict=True):
            rows = [row for row in map(products.__getitem__, keys) if row is not None]
            product_id = product_of(keys[0])
            if not rows:
                return Rejection(RejectionReason.UNKNOWN_PRODUCT, product_id)
            if all(row.is_discontinued for row in rows):
                return Rejection(RejectionReason.DISCONTINUED_PRODUCT, product_id)
        shortages = (
            each.shortages[0]
            if each.shortages
            else Shortage(each.subject, self.quantities[product_of(each.subject)], 0)
            for each in rejections[: len(self.offers)]
        )
        return Rejection(
            RejectionReason.INSUFFICIENT_STOCK, first.subject, tuple(dict.fromkeys(shortages))
        )

    def _shortages(self, first: str, products: StockById) -> tuple[Shortage, ...]:
        """List the known shortages. Products other than the first are left out if lanes may hold more units of them."""
        return tuple(
            Shortage.of(product, quantity)
            for product_id, product in products.items()
            if product is not None
            and not product.is_discontinued
            and product.sellable < (quantity := self.quantities[product_of(product_id)])
            and (product_id == first or not product.is_partial)
        )

    def deltas(self, products: StockById) -> Mapping[str, int]:
        return {product_id: -self.quantities[product_of(product_id)] for product_id in products}

    def record(
        self, rejection: Rejection | None, after: Mapping[str, Stock], at: str
    ) -> OrderRecord:
        hold = self.default_hold if self.hold_seconds is None else self.hold_seconds
        end = None
        if rejection is None and hold is not None:
            moment = datetime.fromisoformat(at) + timedelta(seconds=hold)
            end = moment.isoformat(timespec="microseconds")
        return OrderRecord(
            self.order_id,
            self.user_id,
            self.lines(after),
            OrderStatus.PENDING if rejection is None else OrderStatus.REJECTED,
            version=1,
            created_at=at,
            last_updated_at=at,
            reason=None if rejection is None else rejection.reason,
            shortages=() if rejection is None else rejection.shortages,
            hold_seconds=self.hold_seconds,
            expires_at=end,
            attributes=self.attributes,
            locations=self.locations,
            split=self.split,
            request_id=self.request_id,
        )

    def lines(self, taken_from: Mapping[str, Stock]) -> tuple[OrderLine, ...]:
        """Build the lines to store. Each names the row or page from which its units were taken, if any were."""
        stock_of = {product_of(p): stock for p, stock in taken_from.items()}
        lines = []
        for product_id, quantity in self.quantities.items():
            asked, stock = self.asked_locations.get(product_id), stock_of.get(product_id)
            line = OrderLine(product_id, quantity, asked_location=asked)
            if stock is not None:
                location, at = location_of(stock.product_id), stock.created_at
                line = replace(line, location_id=location, product_created_at=at)
            if isinstance(stock, PageStock):
                line = replace(line, lane_page=str(stock.page), lane_version=stock.version)
            elif stock is not None:
                line = replace(line, product_version=stock.version)
            lines.append(line)
        return tuple(lines)

    def match(self, record: Record) -> MatchResult:
        stored = as_order(record)
        if stored.user_id is None:
            return CancelledBeforehand(self, stored.require_version())
        quantities = {line.product_id: line.quantity for line in stored.lines}
        asked = {line.product_id: line.asked_location for line in stored.lines}
        same = quantities == self.quantities and stored.hold_seconds == self.hold_seconds
        same &= asked == {p: self.asked_locations.get(p) for p in quantities}
        same &= (stored.locations, stored.split) == (self.locations, self.split)
        # Once the user is replaced by a pseudonym, only the ordered items can be compared.
        if stored.pseudonymised_at is None:
            same &= stored.user_id == self.user_id
            same &= _with_types(stored.attributes) == _with_types(self.attributes)
        return IdempotencyMatch.SAME_REQUEST if same else IdempotencyMatch.OTHER_REQUEST


@dataclass(frozen=True, slots=True)
class CancelledBeforehand(Change):
    """An order that was cancelled before it arrived. It is added to the cancellation's row, and takes no stock.

    Attributes:
        order: The order that has now arrived.
        tombstone: The row that the cancellation wrote, as read.
    """

    order: Order
    tombstone: OrderRecord

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
    ) -> Update[OrderRecord]:
        return Update(
            self.tombstone,
            replace(
                self.tombstone,
                user_id=self.order.user_id,
                lines=self.order.lines({}),
                hold_seconds=self.order.hold_seconds,
                attributes=self.order.attributes,
                locations=self.order.locations,
                split=self.order.split,
                last_updated_at=at,
                version=self.tombstone.version + 1,
            ),
        )


def _with_types(attributes: Mapping[str, Any]) -> dict[str, tuple[type, Any]]:
    """Pair attributes with their types, so that they can be compared: in Python, `True == 1`."""
    return {name: (type(value), value) for name, value in attributes.items()}


def as_order(record: Record) -> OrderRecord:
    """Narrow a record to an order.

    Raises:
        TypeError: The record is not an order.
    """
    if not isinstance(record, OrderRecord):
        raise TypeError(f"{record.key} is not an order")
    return record
