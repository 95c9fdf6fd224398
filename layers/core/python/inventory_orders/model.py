"""The domain: products, and the changes of stock that orders, cancellations and adjustments are. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from typing import Any, Protocol

Products = Mapping[str, "Product | None"]
"""Products by id as read, strongly consistent; None where there is no such product."""


class Table(StrEnum):
    """The tables of the service."""

    PRODUCTS = "Products"
    ORDERS = "Orders"
    STOCK_ADJUSTMENTS = "StockAdjustments"


class ProductStatus(StrEnum):
    """What can be done with a product."""

    ACTIVE = "ACTIVE"
    LOW_STOCK = "LOW_STOCK"
    OUT_OF_STOCK = "OUT_OF_STOCK"
    DISCONTINUED = "DISCONTINUED"


class OrderStatus(StrEnum):
    """Where an order stands."""

    PENDING = "PENDING"
    REJECTED = "REJECTED"
    CANCELLED = "CANCELLED"


class RefusalReason(StrEnum):
    """Why the business says no to a change. An answer, not a failure."""

    UNKNOWN_PRODUCT = "UNKNOWN_PRODUCT"
    DISCONTINUED_PRODUCT = "DISCONTINUED_PRODUCT"
    INSUFFICIENT_STOCK = "INSUFFICIENT_STOCK"
    BELOW_FLOOR = "BELOW_FLOOR"
    ORDER_REJECTED = "ORDER_REJECTED"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused change: the reason, and the product that it is about, if it is about one."""

    reason: RefusalReason
    product_id: str


@dataclass(frozen=True, slots=True)
class Product:
    """A product as it was read, or as a plan would leave it.

    Attributes:
        product_id: Its id.
        stock_count: Units on hand; negative when units are on backorder.
        version: Rises by one with every successful change of the item.
        created_at: Names this incarnation: deleted and made again, a product has another one.
        status: Derived from the stock, unless the product is discontinued.
        backorder_limit: How far below zero the stock may go.
        low_stock_threshold: At or below it the product counts as low in stock.
        lock_time: Unix second at which the lease on it ends; None if there is none.
        lock_wait: Seconds for which the owner of a claim waited for it; None if the lease is no claim.
        size: Bytes of the stored item, for the size limit of transactions.
    """

    product_id: str
    stock_count: int
    version: int
    created_at: str
    status: ProductStatus
    backorder_limit: int = 0
    low_stock_threshold: int = 0
    lock_time: float | None = None
    lock_wait: float | None = None
    size: int = field(default=0, compare=False)

    @property
    def available(self) -> int:
        """Units that can still be sold, those on backorder included."""
        return self.stock_count + self.backorder_limit

    def lease_left(self, now: float) -> float:
        """Seconds for which a lease still locks the product; 0 if none does. `now` is a Unix second."""
        return max(0.0, self.lock_time - now) if self.lock_time is not None else 0.0

    def with_stock(self, stock_count: int, version: int) -> Product:
        """The product after a write that leaves so much stock and makes this version."""
        return replace(
            self,
            stock_count=stock_count,
            version=version,
            status=stock_status(
                stock_count, self.backorder_limit, self.low_stock_threshold, self.status
            ),
        )


def stock_status(
    stock_count: int,
    backorder_limit: int = 0,
    low_stock_threshold: int = 0,
    current: ProductStatus = ProductStatus.ACTIVE,
) -> ProductStatus:
    """The status that belongs to a level of stock; a discontinued product stays discontinued."""
    if current is ProductStatus.DISCONTINUED:
        return current
    if stock_count <= -backorder_limit:
        return ProductStatus.OUT_OF_STOCK
    if stock_count <= low_stock_threshold:
        return ProductStatus.LOW_STOCK
    return ProductStatus.ACTIVE


@dataclass(frozen=True, slots=True)
class RecordKey:
    """Primary key of the row that makes a change exactly-once."""

    table: Table
    key: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Put:
    """Write a row that must not exist yet."""

    table: Table
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Amend:
    """Change a row that must stand as it was read.

    Attributes:
        key: Which row.
        values: Attributes to set.
        expected: Attributes that must have these values; None for one that must be absent.
    """

    key: RecordKey
    values: Mapping[str, Any]
    expected: Mapping[str, Any]


class Known(Enum):
    """What a stored row says about a change with its key."""

    SAME_REQUEST = auto()
    OTHER_REQUEST = auto()


class Change(Protocol):
    """A set of product deltas, and one record that makes them exactly-once."""

    @property
    def record_key(self) -> RecordKey:
        """Where the record lies: two changes with one key are one change, or one of them is a mistake."""
        ...

    @property
    def product_ids(self) -> Collection[str]:
        """The products that it is about."""
        ...

    @property
    def group(self) -> str | None:
        """Changes of one group take effect in the order in which they arrived; None if order is free."""
        ...

    @property
    def records_refusal(self) -> bool:
        """Whether a refusal is stored too, and so is final."""
        ...

    @property
    def record_size(self) -> int:
        """Upper bound of the record's size in bytes."""
        ...

    def refusal(self, products: Products) -> Refusal | None:
        """Why this change is refused while the products stand so; None if it is accepted."""
        ...

    def deltas(self, products: Products) -> Mapping[str, int]:
        """Change of stock by product id, in units, while the products stand so and it is accepted."""
        ...

    def record(self, refusal: Refusal | None, after: Products, at: str) -> Put | Amend:
        """What to write: what was decided, and the products as the same transaction leaves them."""
        ...

    def recognise(self, record: Mapping[str, Any]) -> Known | Refusal | Change:
        """What a stored row means for this change: it is answered, or another change takes its place."""
        ...

    def is_same_request(self, other: Change) -> bool:
        """Whether another change with the same record key asks for the same."""
        ...


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
    def record_key(self) -> RecordKey:
        return order_key(self.order_id)

    @property
    def product_ids(self) -> Collection[str]:
        return self.quantities.keys()

    @property
    def records_refusal(self) -> bool:
        return True

    @property
    def record_size(self) -> int:
        # Ids are ASCII; 600 and 120 cover the attribute names, times and numbers of a row and of a line.
        return 600 + sum(120 + len(product_id) for product_id in self.quantities)

    def refusal(self, products: Products) -> Refusal | None:
        for product_id, quantity in self.quantities.items():
            product = products[product_id]
            if product is None:
                return Refusal(RefusalReason.UNKNOWN_PRODUCT, product_id)
            if product.status is ProductStatus.DISCONTINUED:
                return Refusal(RefusalReason.DISCONTINUED_PRODUCT, product_id)
            if product.available < quantity:
                return Refusal(RefusalReason.INSUFFICIENT_STOCK, product_id)
        return None

    def deltas(self, products: Products) -> Mapping[str, int]:  # noqa: ARG002
        return {product_id: -quantity for product_id, quantity in self.quantities.items()}

    def record(self, refusal: Refusal | None, after: Products, at: str) -> Put:
        items = self.lines()
        if refusal is None:
            for line in items:
                product = after[line["productId"]]
                if product is not None:
                    line["productCreatedAt"] = product.created_at
                    line["productVersion"] = product.version
        row: dict[str, Any] = {
            "orderId": self.order_id,
            "userId": self.user_id,
            "items": items,
            "status": OrderStatus.PENDING if refusal is None else OrderStatus.REJECTED,
            "createdAt": at,
            "lastUpdatedAt": at,
            "_version": 1,
        }
        if refusal is not None:
            row["reason"] = refusal.reason
        return Put(Table.ORDERS, row)

    def lines(self) -> list[dict[str, Any]]:
        """The lines as the order's row holds them before stock is taken."""
        return [
            {"productId": product_id, "quantity": quantity}
            for product_id, quantity in self.quantities.items()
        ]

    def recognise(self, record: Mapping[str, Any]) -> Known | Change:
        if "userId" not in record:
            return CancelledBeforehand(self, _whole(record["_version"]))
        stored = {line["productId"]: line["quantity"] for line in record["items"]}
        if record["userId"] == self.user_id and stored == self.quantities:
            return Known.SAME_REQUEST
        return Known.OTHER_REQUEST

    def is_same_request(self, other: Change) -> bool:
        return (
            isinstance(other, Order)
            and other.user_id == self.user_id
            and other.quantities == self.quantities
        )


class _TouchesNoStock:
    """A change of an order's row alone, to which the business never says no."""

    __slots__ = ()

    @property
    def product_ids(self) -> Collection[str]:
        return ()

    def refusal(self, products: Products) -> Refusal | None:  # noqa: ARG002
        return None

    def deltas(self, products: Products) -> Mapping[str, int]:  # noqa: ARG002
        return {}


@dataclass(frozen=True, slots=True)
class CancelledBeforehand(_TouchesNoStock):
    """An order whose cancellation came first: it fills in the tombstone, ends as cancelled, and takes no stock.

    Attributes:
        order: What was ordered.
        version: Of the tombstone as read.
    """

    order: Order
    version: int

    @property
    def record_key(self) -> RecordKey:
        return self.order.record_key

    @property
    def group(self) -> str | None:
        return self.order.group

    @property
    def records_refusal(self) -> bool:
        return True

    @property
    def record_size(self) -> int:
        return self.order.record_size

    def record(self, refusal: Refusal | None, after: Products, at: str) -> Amend:  # noqa: ARG002
        return Amend(
            self.record_key,
            {
                "userId": self.order.user_id,
                "items": self.order.lines(),
                "lastUpdatedAt": at,
                "_version": self.version + 1,
            },
            {"_version": self.version, "userId": None},
        )

    def recognise(self, record: Mapping[str, Any]) -> Known | Change:
        return self.order.recognise(record)

    def is_same_request(self, other: Change) -> bool:
        return self.order.is_same_request(other)


@dataclass(frozen=True, slots=True)
class Cancellation(_TouchesNoStock):
    """The wish to cancel an order of which nothing is known yet: without a row it leaves a tombstone.

    Attributes:
        order_id: The order.
        group: None: cancellations may be applied in any order.
    """

    order_id: str
    group: str | None = None

    @property
    def record_key(self) -> RecordKey:
        return order_key(self.order_id)

    @property
    def records_refusal(self) -> bool:
        return False

    @property
    def record_size(self) -> int:
        return 600

    def record(self, refusal: Refusal | None, after: Products, at: str) -> Put:  # noqa: ARG002
        return Put(
            Table.ORDERS,
            {
                "orderId": self.order_id,
                "items": [],
                "status": OrderStatus.CANCELLED,
                "createdAt": at,
                "lastUpdatedAt": at,
                "_version": 1,
            },
        )

    def recognise(self, record: Mapping[str, Any]) -> Known | Refusal | Change:
        if record["status"] == OrderStatus.CANCELLED:
            return Known.SAME_REQUEST
        if record["status"] == OrderStatus.REJECTED:
            return Refusal(RefusalReason.ORDER_REJECTED, "")
        for line in record["items"]:
            _whole(line["quantity"])
            if not isinstance(line["productCreatedAt"], str):
                raise TypeError("productCreatedAt is no text")
        return PlacedOrderCancellation(
            self.order_id,
            _whole(record["_version"]),
            {line["productId"]: line for line in record["items"]},
        )

    def is_same_request(self, other: Change) -> bool:
        return isinstance(other, Cancellation)


@dataclass(frozen=True, slots=True)
class PlacedOrderCancellation:
    """A placed order on its way to CANCELLED: its stock goes back to the incarnations that it was taken from.

    Attributes:
        order_id: The order.
        version: Of its row as read.
        lines: Of the order as stored, by product id.
        group: None: cancellations may be applied in any order.
    """

    order_id: str
    version: int
    lines: Mapping[str, Mapping[str, Any]]
    group: str | None = None

    @property
    def record_key(self) -> RecordKey:
        return order_key(self.order_id)

    @property
    def product_ids(self) -> Collection[str]:
        return self.lines.keys()

    @property
    def records_refusal(self) -> bool:
        return False

    @property
    def record_size(self) -> int:
        return 600 + sum(160 + len(product_id) for product_id in self.lines)

    def refusal(self, products: Products) -> Refusal | None:  # noqa: ARG002
        return None

    def deltas(self, products: Products) -> Mapping[str, int]:
        return {
            product_id: line["quantity"]
            for product_id, line in self.lines.items()
            if _is_incarnation(products[product_id], line)
        }

    def record(self, refusal: Refusal | None, after: Products, at: str) -> Amend:  # noqa: ARG002
        items = []
        for product_id, line in self.lines.items():
            product = after.get(product_id)
            if product is not None and _is_incarnation(product, line):
                # Tells the books apart what came back from what went with its incarnation.
                items.append({**line, "returnedVersion": product.version})
            else:
                items.append(dict(line))
        return Amend(
            self.record_key,
            {
                "status": OrderStatus.CANCELLED,
                "items": items,
                "lastUpdatedAt": at,
                "_version": self.version + 1,
            },
            {"_version": self.version, "status": OrderStatus.PENDING},
        )

    def recognise(self, record: Mapping[str, Any]) -> Known | Refusal | Change:
        return Cancellation(self.order_id).recognise(record)

    def is_same_request(self, other: Change) -> bool:
        return isinstance(other, Cancellation)


def _is_incarnation(product: Product | None, line: Mapping[str, Any]) -> bool:
    """Whether a product is the one that an order's line was taken from."""
    return product is not None and product.created_at == line["productCreatedAt"]


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A change of stock that is no order: a receipt, a correction, a return.

    Attributes:
        product_id: The product.
        adjustment_id: Given by the sender: the idempotency key, within the product.
        delta: Units to add; negative to take away.
        reason: Why, in one word: `RECEIPT`, `CORRECTION`, ...
        group: None: adjustments may be applied in any order.
    """

    product_id: str
    adjustment_id: str
    delta: int
    reason: str
    group: str | None = None

    @property
    def record_key(self) -> RecordKey:
        return adjustment_key(self.product_id, self.adjustment_id)

    @property
    def product_ids(self) -> Collection[str]:
        return (self.product_id,)

    @property
    def records_refusal(self) -> bool:
        return False

    @property
    def record_size(self) -> int:
        return 600

    def refusal(self, products: Products) -> Refusal | None:
        product = products[self.product_id]
        if product is None:
            return Refusal(RefusalReason.UNKNOWN_PRODUCT, self.product_id)
        if self.delta < 0 and product.available + self.delta < 0:
            return Refusal(RefusalReason.BELOW_FLOOR, self.product_id)
        return None

    def deltas(self, products: Products) -> Mapping[str, int]:  # noqa: ARG002
        return {self.product_id: self.delta}

    def record(self, refusal: Refusal | None, after: Products, at: str) -> Put:  # noqa: ARG002
        product = after[self.product_id]
        if product is None:
            raise ValueError(f"an adjustment of the unknown product {self.product_id} was accepted")
        return Put(
            Table.STOCK_ADJUSTMENTS,
            adjustment_row(
                self.product_id,
                self.adjustment_id,
                self.delta,
                self.reason,
                product.created_at,
                product.version,
                at,
            ),
        )

    def recognise(self, record: Mapping[str, Any]) -> Known:
        same = (record["delta"], record["reason"]) == (self.delta, self.reason)
        return Known.SAME_REQUEST if same else Known.OTHER_REQUEST

    def is_same_request(self, other: Change) -> bool:
        return (
            isinstance(other, Adjustment)
            and other.delta == self.delta
            and other.reason == self.reason
        )


def _whole(value: object) -> int:
    """A stored number, or the error that tells that the row breaks its contract."""
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def product_key(product_id: str) -> RecordKey:
    """Where a product lies."""
    return RecordKey(Table.PRODUCTS, (("productId", product_id),))


def order_key(order_id: str) -> RecordKey:
    """Where an order's row lies."""
    return RecordKey(Table.ORDERS, (("orderId", order_id),))


def adjustment_key(product_id: str, adjustment_id: str) -> RecordKey:
    """Where an adjustment's row lies."""
    return RecordKey(
        Table.STOCK_ADJUSTMENTS,
        (("productId", product_id), ("adjustmentId", adjustment_id)),
    )


def adjustment_row(
    product_id: str,
    adjustment_id: str,
    delta: int,
    reason: str,
    created_at: str,
    version: int | None,
    at: str,
) -> dict[str, Any]:
    """A row of StockAdjustments.

    Args:
        product_id: The product.
        adjustment_id: What makes it exactly-once, within the product.
        delta: Units added.
        reason: Why, in one word.
        created_at: The incarnation of the product.
        version: The version that the change made; None if the change was made without reading one.
        at: When.
    """
    row: dict[str, Any] = {
        "productId": product_id,
        "adjustmentId": adjustment_id,
        "delta": delta,
        "reason": reason,
        "productCreatedAt": created_at,
        "appliedAt": at,
    }
    if version is not None:
        row["productVersion"] = version
    return row
