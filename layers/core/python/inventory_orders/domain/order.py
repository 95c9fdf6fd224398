"""Orders and their cancellations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from inventory_orders.domain.change import (
    Change,
    IdempotencyMatch,
    NewRecord,
    OrderKey,
    OrderLine,
    OrderRecord,
    OrderStatus,
    OrderUpdate,
    Record,
    Rejection,
    RejectionReason,
)
from inventory_orders.domain.product import Product, Products, ProductStatus
from inventory_orders.errors import CorruptItemError


@dataclass(frozen=True, slots=True)
class Order:
    """A customer's order: all of its lines, or none.

    Attributes:
        order_id: Given by the sender: the idempotency key.
        user_id: Who orders.
        quantities: Units by product id, lines of one product added up, in the order of first mention.
        group: `MessageGroupId`, when the order came through the FIFO queue.
    """

    order_id: str
    user_id: str
    quantities: Mapping[str, int]
    group: str | None = None

    @classmethod
    def of(
        cls,
        order_id: str,
        user_id: str,
        lines: Iterable[tuple[str, int]],
        group: str | None = None,
    ) -> Order:
        """Add up the lines of each product: checked one by one, two lines of 5 would pass against 5."""
        quantities: dict[str, int] = {}
        for product_id, quantity in lines:
            quantities[product_id] = quantities.get(product_id, 0) + quantity
        return cls(order_id, user_id, quantities, group)

    @property
    def record_key(self) -> OrderKey:
        return OrderKey(self.order_id)

    @property
    def product_ids(self) -> Collection[str]:
        return self.quantities.keys()

    @property
    def wanted(self) -> Mapping[str, int]:
        return self.quantities

    @property
    def stores_rejection(self) -> bool:
        return True

    @property
    def record_size(self) -> int:
        # Ids are ASCII; 600 and 120 cover the attribute names, times and numbers of a row and of a line.
        return 600 + sum(120 + len(product_id) for product_id in self.quantities)

    def rejection(self, products: Products) -> Rejection | None:
        for product_id, quantity in self.quantities.items():
            product = products[product_id]
            if product is None:
                return Rejection(RejectionReason.UNKNOWN_PRODUCT, product_id)
            if product.status is ProductStatus.DISCONTINUED:
                return Rejection(RejectionReason.DISCONTINUED_PRODUCT, product_id)
            if product.available < quantity:
                return Rejection.for_want_of_stock(
                    RejectionReason.INSUFFICIENT_STOCK, product, quantity
                )
        return None

    def deltas(self, products: Products) -> Mapping[str, int]:  # noqa: ARG002
        return {product_id: -quantity for product_id, quantity in self.quantities.items()}

    def record(self, rejection: Rejection | None, after: Products, at: str) -> NewRecord:
        lines = self.lines()
        if rejection is None:
            lines = tuple(_taken(line, after[line.product_id]) for line in lines)
        return NewRecord(
            OrderRecord(
                self.order_id,
                self.user_id,
                lines,
                OrderStatus.PENDING if rejection is None else OrderStatus.REJECTED,
                version=1,
                created_at=at,
                last_updated_at=at,
                reason=None if rejection is None else rejection.reason,
                shortage=None if rejection is None else rejection.shortage,
            )
        )

    def lines(self) -> tuple[OrderLine, ...]:
        """The lines as they are stored before stock is taken."""
        return tuple(
            OrderLine(product_id, quantity) for product_id, quantity in self.quantities.items()
        )

    def recognise(self, record: Record) -> IdempotencyMatch | Change:
        stored = _order(record)
        if stored.user_id is None:
            return CancelledBeforehand(self, _with_version(stored))
        quantities = {line.product_id: line.quantity for line in stored.lines}
        if stored.user_id == self.user_id and quantities == self.quantities:
            return IdempotencyMatch.SAME_REQUEST
        return IdempotencyMatch.OTHER_REQUEST

    def is_same_request(self, other: Change) -> bool:
        return (
            isinstance(other, Order)
            and other.user_id == self.user_id
            and other.quantities == self.quantities
        )


class _TouchesNoStock:
    """A change of an order's record alone, which the business never rejects."""

    __slots__ = ()

    @property
    def product_ids(self) -> Collection[str]:
        return ()

    @property
    def wanted(self) -> Mapping[str, int]:
        return {}

    def rejection(self, products: Products) -> Rejection | None:  # noqa: ARG002
        return None

    def deltas(self, products: Products) -> Mapping[str, int]:  # noqa: ARG002
        return {}


@dataclass(frozen=True, slots=True)
class CancelledBeforehand(_TouchesNoStock):
    """An order whose cancellation came first: it fills in the tombstone, ends as cancelled, and takes no stock.

    Attributes:
        order: What was ordered.
        tombstone: As read.
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
    def stores_rejection(self) -> bool:
        return True

    @property
    def record_size(self) -> int:
        return self.order.record_size

    def record(self, rejection: Rejection | None, after: Products, at: str) -> OrderUpdate:  # noqa: ARG002
        filled_in = replace(
            self.tombstone,
            user_id=self.order.user_id,
            lines=self.order.lines(),
            last_updated_at=at,
            version=self.tombstone.version + 1,
        )
        return OrderUpdate(self.tombstone, filled_in)

    def recognise(self, record: Record) -> IdempotencyMatch | Change:
        return self.order.recognise(record)

    def is_same_request(self, other: Change) -> bool:
        return self.order.is_same_request(other)


@dataclass(frozen=True, slots=True)
class Cancellation(_TouchesNoStock):
    """The wish to cancel an order of which nothing is known yet: without a record it leaves a tombstone.

    Attributes:
        order_id: The order.
        group: None: cancellations may be applied in any order.
    """

    order_id: str
    group: str | None = None

    @property
    def record_key(self) -> OrderKey:
        return OrderKey(self.order_id)

    @property
    def stores_rejection(self) -> bool:
        return False

    @property
    def record_size(self) -> int:
        return 600

    def record(self, rejection: Rejection | None, after: Products, at: str) -> NewRecord:  # noqa: ARG002
        tombstone = OrderRecord(
            self.order_id,
            None,
            (),
            OrderStatus.CANCELLED,
            version=1,
            created_at=at,
            last_updated_at=at,
        )
        return NewRecord(tombstone)

    def recognise(self, record: Record) -> IdempotencyMatch | Rejection | Change:
        stored = _order(record)
        if stored.status == OrderStatus.CANCELLED:
            return IdempotencyMatch.SAME_REQUEST
        if stored.status == OrderStatus.REJECTED:
            return Rejection(RejectionReason.ORDER_REJECTED)
        if stored.status != OrderStatus.PENDING:
            return Rejection(RejectionReason.UNKNOWN_ORDER_STATUS, str(stored.status))
        for line in stored.lines:
            if not isinstance(line.quantity, int) or not isinstance(line.product_created_at, str):
                raise CorruptItemError(
                    f"order {stored.order_id} is PENDING, but its line of {line.product_id} does not say how many "
                    "units it took (quantity) of which incarnation (productCreatedAt); repair the item"
                )
        return PlacedOrderCancellation(_with_version(stored))

    def is_same_request(self, other: Change) -> bool:
        return isinstance(other, Cancellation)


@dataclass(frozen=True, slots=True)
class PlacedOrderCancellation:
    """A placed order on its way to CANCELLED: its stock goes back to the incarnations that it was taken from.

    Attributes:
        order: As stored.
        group: None: cancellations may be applied in any order.
    """

    order: OrderRecord
    group: str | None = None

    @property
    def record_key(self) -> OrderKey:
        return self.order.key

    @property
    def product_ids(self) -> Collection[str]:
        return {line.product_id: None for line in self.order.lines}.keys()

    @property
    def wanted(self) -> Mapping[str, int]:
        return {}

    @property
    def stores_rejection(self) -> bool:
        return False

    @property
    def record_size(self) -> int:
        return 600 + sum(160 + len(line.product_id) for line in self.order.lines)

    def rejection(self, products: Products) -> Rejection | None:  # noqa: ARG002
        return None

    def deltas(self, products: Products) -> Mapping[str, int]:
        return {
            line.product_id: line.quantity
            for line in self.order.lines
            if _is_incarnation(products[line.product_id], line)
        }

    def record(self, rejection: Rejection | None, after: Products, at: str) -> OrderUpdate:  # noqa: ARG002
        cancelled = replace(
            self.order,
            lines=tuple(_given_back(line, after.get(line.product_id)) for line in self.order.lines),
            status=OrderStatus.CANCELLED,
            last_updated_at=at,
            version=self.order.version + 1,
        )
        return OrderUpdate(self.order, cancelled)

    def recognise(self, record: Record) -> IdempotencyMatch | Rejection | Change:
        return Cancellation(self.order.order_id).recognise(record)

    def is_same_request(self, other: Change) -> bool:
        return isinstance(other, Cancellation)


def _taken(line: OrderLine, product: Product | None) -> OrderLine:
    """A line whose units were taken from the stock."""
    if product is None:
        raise ValueError(f"an order of the unknown product {line.product_id} was accepted")
    if product.page is None:
        return replace(line, product_created_at=product.created_at, product_version=product.version)
    return replace(
        line,
        product_created_at=product.created_at,
        lane_page=str(product.page),
        lane_version=product.version,
    )


def _given_back(line: OrderLine, product: Product | None) -> OrderLine:
    """A line of a cancelled order. Its version tells the books that the units came back, and when."""
    if product is None or not _is_incarnation(product, line):
        return line
    return replace(line, returned_version=product.version)


def _is_incarnation(product: Product | None, line: OrderLine) -> bool:
    """Whether a product is the one that an order's line was taken from."""
    return product is not None and product.created_at == line.product_created_at


def _order(record: Record) -> OrderRecord:
    if not isinstance(record, OrderRecord):
        raise TypeError(f"{record.key} is no order")
    return record


def _with_version(order: OrderRecord) -> OrderRecord:
    """The same, if its version can be raised.

    Raises:
        CorruptItemError: It has none.
    """
    if not isinstance(order.version, int) or order.version < 1:
        raise CorruptItemError(f"order {order.order_id} has no _version; repair the item")
    return order
