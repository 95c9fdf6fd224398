"""Commands on orders, and the change that each makes, by the order's status."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar

from inventory_orders.domain.change import (
    Change,
    ConfirmationRejection,
    IdempotencyMatch,
    LineReturn,
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
from inventory_orders.domain.order import as_order
from inventory_orders.domain.product import Stock, StockById
from inventory_orders.errors import CorruptItemError


class OrderAction(StrEnum):
    """The action of a command."""

    CONFIRM = "confirm"
    """It is paid."""
    FULFIL = "fulfil"
    """It was handed over."""
    CANCEL = "cancel"
    EXPIRE = "expire"
    """Its hold has ended."""
    RETURN = "return"
    """Some of it came back after it was handed over."""


_OVER = {
    OrderStatus.REJECTED: RejectionReason.ORDER_REJECTED,
    OrderStatus.CANCELLED: RejectionReason.ORDER_CANCELLED,
    OrderStatus.EXPIRED: RejectionReason.ORDER_EXPIRED,
}
"""Why an order that holds no stock is final."""


@dataclass(frozen=True, slots=True)
class Return:
    """Units that came back.

    Attributes:
        return_id: Given by the sender: the idempotency key, within the order.
        quantities: Units by product id.
        restock: Whether they can be sold again.
    """

    return_id: str
    quantities: Mapping[str, int] = field(hash=False)
    restock: bool


Meaning = IdempotencyMatch | Rejection | Change
"""The result of matching a command with an order's record: an answer, or the change that carries it out."""


@dataclass(frozen=True, slots=True)
class OrderCommand(Change):
    """A command on an order that was not read yet. Without a record a cancellation leaves a tombstone.

    Attributes:
        order_id: The order.
        action: What is asked.
        ended_by: Of an expiry: it ends the holds that ended at this moment or before. Two that differ in nothing else are
            the same command, of which the first counts.
        returned: What came back, with `OrderAction.RETURN`.
    """

    order_id: str
    action: OrderAction
    ended_by: str = field(default="", compare=False)
    returned: Return | None = None

    id_reused_code: ClassVar = "RETURN_ID_REUSED"

    @property
    def record_key(self) -> OrderKey:
        return OrderKey(self.order_id)

    def rejection(self, products: StockById) -> Rejection | None:  # noqa: ARG002
        match self.action:
            case OrderAction.CANCEL:
                return None
            case OrderAction.EXPIRE:
                return Rejection(RejectionReason.NOT_HELD, self.order_id)
            case _:
                return Rejection(RejectionReason.UNKNOWN_ORDER, self.order_id)

    def record(self, rejection: Rejection | None, after: StockById, at: str) -> NewRecord:  # noqa: ARG002
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

    def match(self, record: Record) -> Meaning:
        order = as_order(record)
        try:
            status = OrderStatus(order.status)
        except ValueError:
            return Rejection(RejectionReason.UNKNOWN_ORDER_STATUS, str(order.status))
        match self.action:
            case OrderAction.CONFIRM:
                return self._confirm(order, status)
            case OrderAction.FULFIL:
                return self._fulfil(order, status)
            case OrderAction.CANCEL:
                return self._cancel(order, status)
            case OrderAction.EXPIRE:
                return self._expire(order, status)
            case OrderAction.RETURN:
                return self._return(order, status)

    # ------------------------------------------------------------------ what it means, by status

    def _confirm(self, order: OrderRecord, status: OrderStatus) -> Meaning:
        told = order.confirmation_rejected
        if told is not None:
            # The refund was asked for and may have been made: that answer stays.
            return Rejection(_reason_told(order, told), order.order_id)
        if status in (OrderStatus.CONFIRMED, OrderStatus.FULFILLED):
            return IdempotencyMatch.SAME_REQUEST
        if status is OrderStatus.PENDING:
            return self._to(OrderStatus.CONFIRMED, order)
        if status is not OrderStatus.REJECTED and order.confirmed_at is not None:
            return IdempotencyMatch.SAME_REQUEST
        # A late payment: the row keeps it.
        rejection = Rejection(_OVER[status], order.order_id)
        return Transition(self, order.with_sound_version(), order.status, rejected=rejection)

    def _fulfil(self, order: OrderRecord, status: OrderStatus) -> Meaning:
        match status:
            case OrderStatus.PENDING:
                return Rejection(RejectionReason.NOT_CONFIRMED, order.order_id)
            case OrderStatus.CONFIRMED:
                return self._to(OrderStatus.FULFILLED, order)
            case OrderStatus.FULFILLED:
                return IdempotencyMatch.SAME_REQUEST
            case _:
                return Rejection(_OVER[status], order.order_id)

    def _cancel(self, order: OrderRecord, status: OrderStatus) -> Meaning:
        match status:
            case OrderStatus.PENDING | OrderStatus.CONFIRMED:
                return self._to(OrderStatus.CANCELLED, order, _units_held(order))
            case OrderStatus.FULFILLED:
                return Rejection(RejectionReason.ORDER_FULFILLED, order.order_id)
            case OrderStatus.REJECTED:
                return Rejection(RejectionReason.ORDER_REJECTED, order.order_id)
            case _:
                return IdempotencyMatch.SAME_REQUEST

    def _expire(self, order: OrderRecord, status: OrderStatus) -> Meaning:
        if status is OrderStatus.EXPIRED:
            return IdempotencyMatch.SAME_REQUEST
        if status is not OrderStatus.PENDING or order.expires_at is None:
            return Rejection(RejectionReason.NOT_HELD, order.order_id)
        if _end_of_hold(order) > self.ended_by:
            return Rejection(RejectionReason.HOLD_NOT_ENDED, order.order_id)
        return self._to(OrderStatus.EXPIRED, order, _units_held(order))

    def _return(self, order: OrderRecord, status: OrderStatus) -> Meaning:
        if self.returned is None:
            raise ValueError(f"it is not said what of order {order.order_id} came back")
        if status in _OVER:
            return Rejection(_OVER[status], order.order_id)
        if status is not OrderStatus.FULFILLED:
            return Rejection(RejectionReason.NOT_FULFILLED, order.order_id)
        return_id, quantities = self.returned.return_id, self.returned.quantities
        delivered = _units_held(order)
        before = {
            line.product_id: line.returned[return_id]
            for line in order.lines
            if return_id in line.returned
        }
        if before:
            same = {product_id: came.quantity for product_id, came in before.items()}
            restocked = {came.restock for came in before.values()}
            if same == quantities and restocked == {self.returned.restock}:
                return IdempotencyMatch.SAME_REQUEST
            return IdempotencyMatch.OTHER_REQUEST
        for line in order.lines:
            delivered[line.product_id] -= sum(came.quantity for came in line.returned.values())
        for product_id, quantity in quantities.items():
            if quantity > delivered.get(product_id, 0):
                return Rejection(RejectionReason.NOT_DELIVERED, product_id)
        return self._to(OrderStatus.FULFILLED, order, quantities if self.returned.restock else None)

    def _to(
        self,
        status: OrderStatus,
        order: OrderRecord,
        gives_back: Mapping[str, int] | None = None,
    ) -> Change:
        return Transition(self, order.with_sound_version(), status, gives_back or {})


@dataclass(frozen=True, slots=True)
class Transition(Change):
    """A stored order on its way to where a command takes it.

    What goes back into stock goes to the incarnations of products that it was taken from.

    Attributes:
        command: The command.
        order: As stored.
        status: Where the order stands afterwards.
        gives_back: Units by product id that go back into stock.
        rejected: Why the confirmation is a late payment, if it is one.
    """

    command: OrderCommand
    order: OrderRecord
    status: str
    gives_back: Mapping[str, int] = field(default_factory=dict, hash=False)
    rejected: Rejection | None = None

    stores_rejection: ClassVar = True
    id_reused_code: ClassVar = OrderCommand.id_reused_code

    @property
    def record_key(self) -> OrderKey:
        return self.order.key

    @property
    def product_ids(self) -> Collection[str]:
        return self.gives_back.keys()

    @property
    def record_size(self) -> int:
        came_back = self.command.returned
        more = (
            0 if came_back is None else len(came_back.quantities) * (len(came_back.return_id) + 80)
        )
        return self.order.size + more

    def rejection(self, products: StockById) -> Rejection | None:  # noqa: ARG002
        return self.rejected

    def deltas(self, products: StockById) -> Mapping[str, int]:
        return {
            line.product_id: self.gives_back[line.product_id]
            for line in self.order.lines
            if line.product_id in self.gives_back
            and _is_incarnation(products[line.product_id], line)
        }

    def record(self, rejection: Rejection | None, after: StockById, at: str) -> OrderUpdate:
        changed: dict[str, Any] = {"last_updated_at": at, "version": self.order.version + 1}
        if rejection is not None:
            changed["confirmation_rejected"] = ConfirmationRejection(at, rejection.reason)
        else:
            changed["status"] = self.status
            changed["lines"] = tuple(
                self._line(line, after.get(line.product_id)) for line in self.order.lines
            )
            if self.command.action is OrderAction.CONFIRM:
                changed["confirmed_at"] = at
            elif self.command.action is OrderAction.FULFIL:
                changed["fulfilled_at"] = at
            # A hold ends with the status that it belongs to.
            changed["expires_at"] = None
        return OrderUpdate(self.order, replace(self.order, **changed))

    def _line(self, line: OrderLine, product: Stock | None) -> OrderLine:
        """A line as it is afterwards. A version tells the books that units came back, and when."""
        is_back = line.product_id in self.gives_back and _is_incarnation(product, line)
        version = product.version if is_back and product is not None else None
        came_back = self.command.returned
        if came_back is None:
            return line if version is None else replace(line, returned_version=version)
        quantity = came_back.quantities.get(line.product_id)
        if quantity is None:
            return line
        entry = LineReturn(quantity, came_back.restock, version)
        return replace(line, returned={**line.returned, came_back.return_id: entry})

    def match(self, record: Record) -> Meaning:
        return self.command.match(record)


def _units_held(order: OrderRecord) -> dict[str, int]:
    """Units by product id that an order took.

    Raises:
        CorruptItemError: A line does not say, or not what came back.
    """
    for line in order.lines:
        if not isinstance(line.quantity, int) or not isinstance(line.product_created_at, str):
            raise CorruptItemError(
                f"order {order.order_id} is {order.status}, but its line of {line.product_id} does not say how many "
                "units it took (quantity) of which incarnation (productCreatedAt); repair the item"
            )
        for return_id, came in line.returned.items():
            if not isinstance(came.quantity, int) or not isinstance(came.restock, bool):
                raise CorruptItemError(
                    f"order {order.order_id} does not say how much of {line.product_id} came back with {return_id} "
                    "(quantity), or whether into stock (restock); repair the item"
                )
    return {line.product_id: line.quantity for line in order.lines}


def _reason_told(order: OrderRecord, told: ConfirmationRejection) -> RejectionReason:
    """Why an order's confirmation was rejected.

    Raises:
        CorruptItemError: For none of the reasons for which the service rejects one.
    """
    if told.reason not in _OVER.values():
        raise CorruptItemError(
            f"order {order.order_id} has a confirmationRejected with the reason {told.reason!a}, which is none of "
            f"{', '.join(_OVER.values())}; repair the item"
        )
    return RejectionReason(told.reason)


def _end_of_hold(order: OrderRecord) -> str:
    """When an order's hold ends, which it must have.

    Raises:
        CorruptItemError: It is no time, or written so that it cannot be compared as text.
    """
    end = order.expires_at
    try:
        moment = datetime.fromisoformat(end or "").astimezone(UTC)
        written = moment.isoformat(timespec="microseconds")
    except (TypeError, ValueError, OverflowError):
        written = ""
    if end != written:
        raise CorruptItemError(
            f"order {order.order_id} has an expiresAt that is no time as the service writes it; repair the item"
        )
    return written


def _is_incarnation(product: Stock | None, line: OrderLine) -> bool:
    """Whether a product is the one that an order's line was taken from."""
    return product is not None and product.created_at == line.product_created_at
