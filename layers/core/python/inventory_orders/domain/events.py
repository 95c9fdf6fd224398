"""Derives events from a row before and after a change.

Events depend on nothing else, so the same change always leads to the same events, however often it is published.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

from inventory_orders.domain.location import product_of, public_key
from inventory_orders.domain.product import ProductStatus
from inventory_orders.domain.record import (
    NOTES,
    SCANNED,
    LineUnits,
    OrderAction,
    OrderStatus,
    move_units,
)
from inventory_orders.errors import UnpublishableError

Image = Mapping[str, Any]
"""A row as read from a stream."""

SOURCE = "inventory-orders"
SCHEMA_VERSION = 1

T = TypeVar("T")


class EventType(StrEnum):
    """The types of events, which are the `detail-type` on the bus."""

    ORDER_PLACED = "OrderPlaced"
    ORDER_REJECTED = "OrderRejected"
    ORDER_CONFIRMED = "OrderConfirmed"
    CONFIRMATION_REJECTED = "ConfirmationRejected"
    ORDER_PARTLY_FULFILLED = "OrderPartlyFulfilled"
    ORDER_FULFILLED = "OrderFulfilled"
    ORDER_PARTLY_CANCELLED = "OrderPartlyCancelled"
    ORDER_CANCELLED = "OrderCancelled"
    ORDER_EXPIRED = "OrderExpired"
    ORDER_RETURNED = "OrderReturned"
    ORDER_AMENDED = "OrderAmended"
    ORDER_AMEND_REJECTED = "OrderAmendRejected"
    ORDER_UNFULFILLED = "OrderUnfulfilled"
    PRODUCT_LOW_ON_STOCK = "ProductLowOnStock"
    PRODUCT_OUT_OF_STOCK = "ProductOutOfStock"
    PRODUCT_BACK_IN_STOCK = "ProductBackInStock"
    PRODUCT_STOCK_RECOVERED = "ProductStockRecovered"
    PRODUCT_STOCK_CHANGED = "ProductStockChanged"


@dataclass(frozen=True, slots=True)
class Event:
    """An event about an order or a product.

    Attributes:
        type: What happened: an `EventType`, or a type of the publisher's own.
        subject: The order's id, or the key of the product's row. Events about one subject are published one after the other.
        id: Identical however often the event is published.
        occurred_at: When the row was written.
        data: The public part of the row when it was written.
    """

    type: str
    subject: str
    id: str
    occurred_at: str
    data: Mapping[str, Any]

    def detail(self) -> dict[str, Any]:
        """The event's `detail`, as consumers receive it."""
        return {
            "metadata": {
                "eventId": self.id,
                "occurredAt": self.occurred_at,
                "schemaVersion": SCHEMA_VERSION,
            },
            "data": self.data,
        }


_OF_STATUS: Mapping[str, EventType] = {
    OrderStatus.PENDING: EventType.ORDER_PLACED,
    OrderStatus.REJECTED: EventType.ORDER_REJECTED,
    OrderStatus.CANCELLED: EventType.ORDER_CANCELLED,
    OrderStatus.CONFIRMED: EventType.ORDER_CONFIRMED,
    OrderStatus.FULFILLED: EventType.ORDER_FULFILLED,
    OrderStatus.EXPIRED: EventType.ORDER_EXPIRED,
}

_OF_PRODUCT_STATUSES = {
    (ProductStatus.ACTIVE, ProductStatus.LOW_STOCK): EventType.PRODUCT_LOW_ON_STOCK,
    (ProductStatus.ACTIVE, ProductStatus.OUT_OF_STOCK): EventType.PRODUCT_OUT_OF_STOCK,
    (ProductStatus.LOW_STOCK, ProductStatus.OUT_OF_STOCK): EventType.PRODUCT_OUT_OF_STOCK,
    (ProductStatus.OUT_OF_STOCK, ProductStatus.LOW_STOCK): EventType.PRODUCT_BACK_IN_STOCK,
    (ProductStatus.OUT_OF_STOCK, ProductStatus.ACTIVE): EventType.PRODUCT_BACK_IN_STOCK,
    (ProductStatus.LOW_STOCK, ProductStatus.ACTIVE): EventType.PRODUCT_STOCK_RECOVERED,
    (ProductStatus.DISCONTINUED, ProductStatus.LOW_STOCK): EventType.PRODUCT_BACK_IN_STOCK,
    (ProductStatus.DISCONTINUED, ProductStatus.ACTIVE): EventType.PRODUCT_BACK_IN_STOCK,
}
"""By status before and after. Discontinuing a product creates no event, because the shop did it itself. A product that is listed
again with stock may have been sold out before."""


def order_events(before: Image | None, after: Image | None) -> tuple[Event, ...]:
    """Derive the events of one change to an order's row, in sequence.

    A tombstone has no events. Without `before`, or after a tombstone, the events report everything that the row shows.

    Args:
        before: The row before the change; None if it was created.
        after: The row after the change; None if it was deleted.

    Raises:
        UnpublishableError: The row after the change breaks its table's contract.
    """
    if after is None or (_is_tombstone(after) and _is_tombstone(before or after)):
        return ()
    before = _as_published(before)
    order = public_order(after)
    steps = order.get("steps", [])[_steps_of(before) :]
    # An order that was fulfilled is confirmed again once a hand-over is taken back, which is reported as that step.
    is_news = before.get("status") not in (order["status"], OrderStatus.FULFILLED)
    is_paid_late = order.get("confirmationRejected") not in (
        None,
        before.get("confirmationRejected"),
    )
    end = _end_of(order, steps) if is_news else None
    in_part = [step for step in steps if step is not end]
    return (
        *_of_steps(OrderAction.FULFIL, order, in_part),
        *_of_steps(OrderAction.CANCEL, order, in_part),
        *_of_steps(OrderAction.AMEND, order, in_part),
        *([_order_event(_status_event(order), order, end)] if is_news else ()),
        *([_order_event(EventType.CONFIRMATION_REJECTED, order, None)] if is_paid_late else ()),
        *_of_steps(OrderAction.RETURN, order, steps),
        *_of_steps(OrderAction.UNFULFIL, order, steps),
        *_of_rejected_amends(before, order),
    )


def _of_rejected_amends(before: Image, order: Mapping[str, Any]) -> list[Event]:
    """Build an event for each amend that was rejected in this change to an order."""
    earlier = [each["stepId"] for each in before.get("rejectedAmends", ())]
    new = [each for each in order.get("rejectedAmends", ()) if each["stepId"] not in earlier]
    return [
        _order_event(
            EventType.ORDER_AMEND_REJECTED,
            {**order, "rejectedAmend": each},
            None,
            f":{each['stepId']}" if len(new) > 1 else "",
        )
        for each in new
    ]


OF_STEPS = {
    OrderAction.FULFIL: EventType.ORDER_PARTLY_FULFILLED,
    OrderAction.CANCEL: EventType.ORDER_PARTLY_CANCELLED,
    OrderAction.RETURN: EventType.ORDER_RETURNED,
    OrderAction.AMEND: EventType.ORDER_AMENDED,
    OrderAction.UNFULFIL: EventType.ORDER_UNFULFILLED,
}
"""The event of a step that moves some of an order's units, by action."""

_ENDS = {
    OrderAction.FULFIL: OrderStatus.FULFILLED,
    OrderAction.CANCEL: OrderStatus.CANCELLED,
    OrderAction.AMEND: OrderStatus.CANCELLED,
    OrderAction.EXPIRE: OrderStatus.EXPIRED,
}
"""The status of an order whose last open units a step moved, by action."""


def _end_of(
    order: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """The step that ended the order, which the event of the new status reports; None if no step has this status as its end."""
    moves = [step for step in steps if step["action"] in _ENDS]
    return moves[-1] if moves and _ENDS[moves[-1]["action"]] == order["status"] else None


def _of_steps(
    action: OrderAction, order: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]
) -> list[Event]:
    """Build an event for each step of an action. If there are several, the id of each event ends with the id of the step."""
    of_action = [step for step in steps if step["action"] == action]
    return [
        _order_event(
            OF_STEPS[action],
            order,
            step,
            f":{step['stepId']}" if len(of_action) > 1 and "stepId" in step else "",
        )
        for step in of_action
    ]


def _as_published(before: Image | None) -> Image:
    """The row before the change, if it was published; otherwise an empty one."""
    return before if before is not None and "userId" in before else {}


def _steps_of(before: Image) -> int:
    """Count the steps that the row already had before the change; 0 if they are unreadable."""
    steps = before.get("steps")
    return len(steps) if isinstance(steps, list) else 0


def _is_tombstone(row: Image) -> bool:
    """Whether the row was written by a cancellation that came before its order. Other rows without `userId` are corrupt."""
    return "userId" not in row and row.get("status") == OrderStatus.CANCELLED


def product_events(before: Image | None, after: Image | None) -> tuple[Event, ...]:
    """Derive the event of one change to a product's row, if there is one.

    Args:
        before: The row before the change; None if it was created.
        after: The row after the change; None if it was deleted.

    Raises:
        UnpublishableError: The row after the change breaks its table's contract, or the status before the change is invalid.
    """
    if before is None or after is None or before.get("status") == after.get("status"):
        return ()
    previous, status = _product_status(before), _product_status(after)
    kind = _OF_PRODUCT_STATUSES.get((previous, status))
    if kind is None:
        return ()
    key = _take(after, "productId", str)
    product = {
        **public_key(key),
        "status": status,
        "previousStatus": previous,
        "version": _version(after),
        "stockCount": _take(after, "stockCount", int),
        "lowStockThreshold": 0,
        "backorderLimit": 0,
        "createdAt": _take(after, "createdAt", str),
        "lastUpdatedAt": _take(after, "lastUpdatedAt", str),
        **_optional(after, _OPTIONAL_OF_PRODUCT),
    }
    event_id = _id_of_product(key, product["createdAt"], product["version"], kind)
    return (Event(kind, key, event_id, product["lastUpdatedAt"], product),)


def _id_of_product(key: str, created_at: str, moment: int | str, kind: EventType) -> str:
    """Build the id of a product's event, which ends with the location unless it is the default one."""
    own = product_of(key)
    return f"{own}@{created_at}#{moment}#{kind}{key.removeprefix(own)}"


Level = tuple[str, int, int, str]
"""The published state of a product: its `createdAt`, units on hand, available units, and status."""


def stock_event(product_id: str, level: Level, at: str) -> Event:
    """Build the event for a product whose units or status have changed.

    Args:
        product_id: The key of its row.
        level: Its units and status.
        at: When they were read.
    """
    kind, (created_at, on_hand, available, status) = EventType.PRODUCT_STOCK_CHANGED, level
    data = {
        **public_key(product_id),
        "onHand": on_hand,
        "committed": on_hand - available,
        "available": available,
        "status": status,
        "at": at,
    }
    return Event(kind, product_id, _id_of_product(product_id, created_at, at, kind), at, data)


def _product_status(row: Image) -> ProductStatus:
    status = _take(row, "status", str)
    try:
        return ProductStatus(status)
    except ValueError:
        raise UnpublishableError(
            f"status is {status!a}, which is not a known status; correct it"
        ) from None


def _order_event(
    kind: EventType, order: Mapping[str, Any], step: Mapping[str, Any] | None, ending: str = ""
) -> Event:
    event_id = f"{order['orderId']}#{order['version']}#{kind}{ending}"
    data = order if step is None else {**order, "step": step}
    return Event(kind, order["orderId"], event_id, order["lastUpdatedAt"], data)


def _status_event(order: Mapping[str, Any]) -> EventType:
    status = order["status"]
    if status not in _OF_STATUS:
        raise UnpublishableError(
            f"order {order['orderId']} has the unknown status {status!a}, so the service cannot tell what "
            "happened to the order",
            "UNKNOWN_ORDER_STATUS",
        )
    return _OF_STATUS[status]


# Published unchanged if the row has them.
_OPTIONAL_OF_ORDER = {
    "holdSeconds": int,
    "expiresAt": str,
    "confirmedAt": str,
    "fulfilledAt": str,
    "confirmationRejected": dict,
    "reason": str,
    "shortages": list,
    "limits": list,
    "attributes": dict,
    "locations": list,
    "locationsAsked": list,
    "split": bool,
}
_OPTIONAL_OF_PRODUCT = {
    "lowStockThreshold": int,
    "backorderLimit": int,
    "safetyStock": int,
    "name": str,
    "price": int,
}


def public_order(row: Image, *, with_notes: bool = False) -> dict[str, Any]:
    """Select the public part of an order's row, without attributes that only the books need.

    Args:
        row: The row as stored.
        with_notes: Whether it says which member of staff placed it, who its buyer is, and each step who gave the command, and why.

    Raises:
        UnpublishableError: The row breaks its table's contract.
    """
    of_staff = {"placedBy": str, "buyers": list} if with_notes else {}
    order = {
        "orderId": _take(row, "orderId", str),
        "userId": _take(row, "userId", str),
        "status": _take(row, "status", str),
        "version": _version(row),
        "items": _lines(row),
        "createdAt": _take(row, "createdAt", str),
        "lastUpdatedAt": _take(row, "lastUpdatedAt", str),
        **_optional(row, _OPTIONAL_OF_ORDER | of_staff),
    }
    if "rejectedAmends" in row:
        order["rejectedAmends"] = [
            _rejected_amend(each, order["orderId"]) for each in _take(row, "rejectedAmends", list)
        ]
    if "steps" in row:
        order["steps"] = [
            _step(step, _KINDS_OF_NOTES if with_notes else {}) for step in _take(row, "steps", list)
        ]
        asked = _lines(_take(row, "asked", dict)) if "asked" in row else order["items"]
        _add_up(asked, order["items"], order["steps"])
    return order


def _rejected_amend(row: Any, order_id: str) -> dict[str, Any]:
    return {
        **{name: _take(row, name, str) for name in ("stepId", "at", "reason")},
        **({} if row.get("subject") == order_id else public_key(_take(row, "subject", str))),
        **_optional(row, {"shortages": list, "limits": list}),
    }


_KINDS_OF_NOTES: Mapping[str, type] = {**dict.fromkeys(NOTES, str), SCANNED: dict}


def _lines(row: object) -> list[dict[str, Any]]:
    """Read the lines of an order, or the units of a step."""
    lines = _take(row, "items", list)
    if not all(isinstance(line, Mapping) for line in lines):
        raise UnpublishableError(f"items is {lines!r}, not a list of maps; repair the item")
    return [
        {
            "productId": _take(line, "productId", str),
            **_optional(line, {"locationId": str}),
            "quantity": _take(line, "quantity", int),
            **_optional(line, {"backordered": int}),
        }
        for line in lines
    ]


def _step(step: Any, notes: Mapping[str, type]) -> dict[str, Any]:
    return {
        "action": _take(step, "action", str),
        "at": _take(step, "at", str),
        **_optional(step, {"stepId": str, "restock": bool, **notes}),
        **({"items": _lines(step)} if "items" in step else {}),
        **({"added": _lines({"items": step["added"]})} if "added" in step else {}),
    }


_OF_PAID: Mapping[str, Mapping[str, bool]] = {
    OrderAction.CANCEL: {"refund": True},
    OrderAction.RETURN: {"refund": True},
    OrderAction.AMEND: {"paid": True},
}
"""What is said of a step of an order that was paid, by action."""


def _add_up(
    asked: Sequence[dict[str, Any]],
    items: Sequence[dict[str, Any]],
    steps: Sequence[dict[str, Any]],
) -> None:
    """Add to each step the units that it moved and whether to refund them, and to each line what became of its units.

    Args:
        asked: The lines that were ordered first.
        items: The lines.
        steps: The steps.
    """
    units = {product_id: LineUnits(n) for product_id, n in _quantities(asked).items()}
    is_paid = False
    for step in steps:
        _add_units(step, units)
        is_paid |= step["action"] == OrderAction.CONFIRM
        step.update(_OF_PAID.get(step["action"], {}) if is_paid else {})
    for item in items:
        moved = units[item["productId"]].moved
        item |= {_COUNTS[action]: n for action, n in moved.items() if n and action in _COUNTS}


def _add_units(step: dict[str, Any], units: dict[str, LineUnits]) -> None:
    """Add to a step the units that it moved, and these to their lines."""
    named = _quantities(step["items"]) if "items" in step else None
    try:
        moved = move_units(units, step["action"], named, _quantities(step.get("added", ())))
    except KeyError as error:
        raise UnpublishableError(
            f"a step names {error}, but no line has this product; repair the item"
        ) from None
    if moved:
        step["items"] = [{"productId": p, "quantity": n} for p, n in moved.items()]


def _quantities(items: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {item["productId"]: item["quantity"] for item in items}


_COUNTS: Mapping[str, str] = {
    action: action.counted_as for action in OrderAction if action.counted_as
}


def _version(row: Image) -> int:
    version = _take(row, "_version", int)
    if version < 1:
        raise UnpublishableError(f"_version is {version}, but must be 1 or more; repair the item")
    return version


def _take(row: object, name: str, kind: type[T]) -> T:
    """Read an attribute of a row.

    Raises:
        UnpublishableError: The attribute is missing, or has another type.
    """
    value = row.get(name) if isinstance(row, Mapping) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UnpublishableError(f"{name} is {value!r}, not a {_KINDS[kind]}; repair the item")
    return value


def _optional(row: Image, kinds: Mapping[str, type]) -> dict[str, Any]:
    return {name: _take(row, name, kind) for name, kind in kinds.items() if name in row}


_KINDS: Mapping[type, str] = {
    str: "string",
    int: "whole number",
    bool: "boolean",
    list: "list",
    dict: "map",
}


def to_json(value: object) -> float | str:
    """Convert fractional numbers into floats and bytes into Base64, as the `default` of `json.dumps`."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"an event cannot contain {type(value).__name__}")
