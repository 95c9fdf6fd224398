"""The rows of orders and adjustments, from their records and back."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from inventory_orders.domain.record import (
    NOTES,
    NOTES_OF_ADJUSTMENT,
    AdjustmentRecord,
    ConfirmationRejection,
    OrderLine,
    OrderRecord,
    OrderStatus,
    Record,
    Step,
)
from inventory_orders.domain.rejection import Rejection, RejectionReason, Shortage
from inventory_orders.errors import CorruptItemError
from inventory_orders.store.rows import Item, Row, decode, drop_none
from inventory_orders.store.tables import EXPIRY_SHARDS, FULFIL_SHARDS, shard_name

_OWN_OF_LINE = {
    *("productId", "quantity", "productCreatedAt", "productVersion", "lanePage", "laneVersion"),
}

_OWN_OF_STEP = {*("action", "at", "stepId", "items", "restock"), *NOTES}


def record_row(record: Record) -> Row:
    """A record as it is stored."""
    if isinstance(record, OrderRecord):
        return drop_none(_order_row(record))
    return drop_none(_adjustment_row(record))


def _order_row(order: OrderRecord) -> Row:
    late_payment = order.confirmation_rejected
    return {
        "orderId": order.order_id,
        "userId": order.user_id,
        "items": [_line_row(line) for line in order.lines],
        "status": order.status,
        "reason": order.reason,
        "shortages": shortage_rows(order.shortages) or None,
        "createdAt": order.created_at,
        "lastUpdatedAt": order.last_updated_at,
        "_version": order.version,
        "holdSeconds": order.hold_seconds,
        "expiresAt": order.expires_at,
        "expiryShard": None if order.expires_at is None else _shard(order.order_id, EXPIRY_SHARDS),
        "confirmedAt": order.confirmed_at,
        "fulfilShard": _shard(order.order_id, FULFIL_SHARDS)
        if order.status == OrderStatus.CONFIRMED
        else None,
        "fulfilledAt": order.fulfilled_at,
        "steps": [_step_row(step) for step in order.steps] or None,
        "confirmationRejected": None
        if late_payment is None
        else {"at": late_payment.at, "reason": late_payment.reason},
        "attributes": dict(order.attributes) or None,
        "pseudonymisedAt": order.pseudonymised_at,
    }


def _adjustment_row(adjustment: AdjustmentRecord) -> Row:
    delta, rejection = adjustment.delta, adjustment.rejection
    return dict(adjustment.notes) | {
        "productId": adjustment.product_id,
        "adjustmentId": adjustment.adjustment_id,
        # A rejection moves nothing, so the sum over all rows is right.
        "delta": delta if rejection is None else 0,
        "reason": adjustment.reason,
        "productCreatedAt": adjustment.product_created_at or None,
        "productVersion": adjustment.product_version,
        "appliedAt": adjustment.applied_at,
        "counted": adjustment.counted,
        "rejected": None if rejection is None else {"delta": delta, "reason": rejection.reason},
        "shortages": shortage_rows(rejection.shortages if rejection else ()) or None,
    }


def shortage_rows(shortages: Iterable[Shortage]) -> list[Row]:
    """What is missing, as it is stored and answered."""
    return [
        {"productId": each.product_id, "wanted": each.wanted, "available": each.available}
        for each in shortages
    ]


def read_record(item: Item) -> Record:
    """A record from its item. Only what identifies it has to be there: its reader judges the rest.

    Raises:
        CorruptItemError: It breaks its table's contract.
    """
    row = decode(item)
    try:
        return read_order(row) if "orderId" in row else _read_adjustment(row)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CorruptItemError(
            f"the stored record breaks its table's contract ({type(error).__name__}: {error}); repair the item"
        ) from error


def read_order(row: Row) -> OrderRecord:
    """An order from its row."""
    return OrderRecord(
        order_id=row["orderId"],
        user_id=row.get("userId"),
        lines=tuple(_read_line(line) for line in row["items"]),
        status=row.get("status", ""),
        version=row.get("_version", 0),
        created_at=row.get("createdAt", ""),
        last_updated_at=row.get("lastUpdatedAt", ""),
        reason=row.get("reason"),
        shortages=_read_shortages(row),
        hold_seconds=row.get("holdSeconds"),
        expires_at=row.get("expiresAt"),
        confirmed_at=row.get("confirmedAt"),
        fulfilled_at=row.get("fulfilledAt"),
        steps=tuple(_read_step(step) for step in row.get("steps", ())),
        confirmation_rejected=ConfirmationRejection(refused["at"], refused["reason"])
        if (refused := row.get("confirmationRejected")) is not None
        else None,
        attributes=_mapping(row.get("attributes")),
        pseudonymised_at=row.get("pseudonymisedAt"),
    )


def _read_adjustment(row: Row) -> AdjustmentRecord:
    asked, rejection = row, None
    if "rejected" in row:
        asked = row["rejected"]
        reason = RejectionReason[asked["reason"]]
        rejection = Rejection(reason, row["productId"], _read_shortages(row))
    return AdjustmentRecord(
        product_id=row["productId"],
        adjustment_id=row["adjustmentId"],
        delta=asked["delta"],
        reason=row["reason"],
        product_created_at=row.get("productCreatedAt", ""),
        product_version=row.get("productVersion"),
        applied_at=row.get("appliedAt", ""),
        counted=row.get("counted"),
        notes={name: row[name] for name in NOTES_OF_ADJUSTMENT if name in row},
        rejection=rejection,
    )


def _read_shortages(row: Row) -> tuple[Shortage, ...]:
    return tuple(
        Shortage(each["productId"], each["wanted"], each["available"])
        for each in row.get("shortages", ())
    )


def _shard(order_id: str, shards: int) -> str:
    return shard_name(zlib.crc32(order_id.encode()) % shards)


def _mapping(value: Any) -> Mapping[str, Any]:
    """A map, or nothing."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no map")
    return value


def _line_row(line: OrderLine) -> Row:
    return drop_none(
        dict(line.other)
        | {
            "productId": line.product_id,
            "quantity": line.quantity,
            "productCreatedAt": line.product_created_at,
            "productVersion": line.product_version,
            "lanePage": line.lane_page,
            "laneVersion": line.lane_version,
        }
    )


def _text(row: Row, name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}")
    return value


def _read_line(line: Row) -> OrderLine:
    return OrderLine(
        product_id=_text(line, "productId"),
        quantity=line["quantity"],
        product_created_at=line.get("productCreatedAt"),
        product_version=line.get("productVersion"),
        lane_page=line.get("lanePage"),
        lane_version=line.get("laneVersion"),
        other={name: value for name, value in line.items() if name not in _OWN_OF_LINE},
    )


def _step_row(step: Step) -> Row:
    items = [
        drop_none(
            {
                "productId": product_id,
                "quantity": quantity,
                "returnedVersion": step.restocked_versions.get(product_id),
            }
        )
        for product_id, quantity in (step.quantities or {}).items()
    ]
    return drop_none(
        {**step.other, **step.notes}
        | {
            "action": step.action,
            "at": step.at,
            "stepId": step.step_id,
            "items": None if step.quantities is None else items,
            "restock": step.restock,
        }
    )


def _read_units(item: Row) -> tuple[str, int]:
    quantity = item["quantity"]
    if not isinstance(quantity, int):
        raise TypeError(f"a step moves {quantity!r} units")
    return _text(item, "productId"), quantity


def _read_step(row: Row) -> Step:
    items = row.get("items")
    return Step(
        action=_text(row, "action"),
        at=_text(row, "at"),
        step_id=row.get("stepId"),
        quantities=None if items is None else dict(map(_read_units, items)),
        restocked_versions={
            item["productId"]: item["returnedVersion"]
            for item in items or ()
            if "returnedVersion" in item
        },
        restock=row.get("restock"),
        notes={name: _text(row, name) for name in NOTES if name in row},
        other={name: value for name, value in row.items() if name not in _OWN_OF_STEP},
    )
