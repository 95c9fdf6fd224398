"""The actions of transactions: what each kind of item is written with, and on which condition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from inventory_orders.clock import timestamp
from inventory_orders.domain.record import NewRecord, OrderUpdate, RecordKey
from inventory_orders.store.expressions import Write, assign, difference, end_lane_lease
from inventory_orders.store.record_rows import record_row
from inventory_orders.store.rows import Key, Row, encode, key_item, key_of, page_units, product_row
from inventory_orders.store.tables import KEYS

if TYPE_CHECKING:
    from datetime import datetime

    from inventory_orders.domain.allocation import PageUpdate
    from inventory_orders.domain.planner import Transaction
    from inventory_orders.domain.product import Product


class ActionKind(Enum):
    """The kind of item that an action writes, or checks."""

    PRODUCT = auto()
    PAGE = auto()
    LANE = auto()
    """The lease of a lane."""
    RECORD = auto()


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a transaction.

    Attributes:
        kind: What it writes.
        subject: The key of the item: a product's id, a page's or a record's key, or the number of a lane.
        operation: Of DynamoDB: `Put`, `Update`, `Delete` or `ConditionCheck`.
        parameters: As DynamoDB takes them, but for the table's name.
        by_version: Whether its condition is the version that was read, so that a failed one means a faster rival.
    """

    kind: ActionKind
    subject: Key | int
    operation: str
    parameters: Mapping[str, Any]
    by_version: bool = False


def transaction_actions(transaction: Transaction, now: datetime) -> list[Action]:
    """The actions of a transaction: its updates, its pages, the release of a lane, and its records, in their order.

    Args:
        transaction: What to write.
        now: The moment.
    """
    at, after = timestamp(now), transaction.stock_after
    actions = [_row_update(u.before, u.after, now) for u in transaction.updates]
    actions += [_page_action(update, at) for update in transaction.pages]
    if transaction.release is not None:
        lease = transaction.release
        actions.append(_action(ActionKind.LANE, lease.lane, end_lane_lease(lease.owner)))
    actions += [
        record_action(decision.change.record(decision.rejection, after, at))
        for decision in transaction.decisions
        if decision.has_record
    ]
    return actions


def record_action(write: NewRecord | OrderUpdate) -> Action:
    """The action that writes a record."""
    if isinstance(write, NewRecord):
        return _put_action(ActionKind.RECORD, write.record.key, record_row(write.record))
    before = record_row(write.before)
    update = difference(before, record_row(write.after)).on(
        "#_version = :version AND #status = :status",
        version=before["_version"],
        status=before["status"],
    )
    if "userId" in before:
        update = update.on("#userId = :userId", userId=before["userId"])
    else:
        update = update.on("attribute_not_exists(#userId)")
    return _action(ActionKind.RECORD, write.before.key, update)


def product_create_action(product: Product) -> Action:
    """The action that creates a product, which must not exist."""
    return _put_action(ActionKind.PRODUCT, product.product_id, product_row(product))


def product_action(product_id: str, write: Write, *, by_version: bool = False) -> Action:
    """The action that changes a product, which must exist; parameters as of `Action`."""
    return _action(ActionKind.PRODUCT, product_id, write, by_version=by_version)


def product_replace_action(before: Product, after: Product, now: datetime) -> Action:
    """The action that takes a product from one state to another, attribute by attribute.

    Args:
        before: As it was read.
        after: As it is to be.
        now: The moment.

    Raises:
        ValueError: Lanes may hold more of it, and would not be allowed to.
    """
    if after.lent_to and not after.may_be_lent:
        raise ValueError(
            f"{after.product_id} is in lanes: reclaim its units before it becomes {after}"
        )
    return _row_update(before, after, now)


def product_delete_action(product: Product, now: datetime) -> Action:
    """The action that deletes a product, which must be as it was read.

    Args:
        product: As it was read.
        now: The moment. The same transaction has to reclaim what lanes hold of it.
    """
    return _action(
        ActionKind.PRODUCT,
        product.product_id,
        Write().on_unchanged(product, now),
        "Delete",
        by_version=True,
    )


def _action(
    kind: ActionKind,
    key: Key | int,
    write: Write,
    operation: str = "Update",
    *,
    by_version: bool = False,
) -> Action:
    return Action(kind, key, operation, {"Key": key_item(key), **write.parameters}, by_version)


def _row_update(before: Product, after: Product, now: datetime) -> Action:
    """The action that changes a row as it was read. Only a lease's owner takes its fence along."""
    is_owner = after.lock_version != before.lock_version
    row = product_row(after) | {"lastUpdatedAt": timestamp(now)}
    write = difference(product_row(before), row).on_unchanged(
        before, now, before.locked_by if is_owner else None
    )
    return product_action(before.product_id, write, by_version=True)


def _page_action(update: PageUpdate, at: str) -> Action:
    before, after = update.before, update.after
    write, operation = Write(), "ConditionCheck"
    if not update.is_check:
        operation = "Update"
        write = assign(
            {
                "units": page_units(after),
                "_version": after.version,
                "epoch": after.epoch,
                "lastUpdatedAt": at,
            }
        )
    if before.version:
        write = write.on(
            "#_version = :version AND #epoch = :epoch", version=before.version, epoch=before.epoch
        )
    else:
        write = write.on("attribute_not_exists(#page)")
    return _action(ActionKind.PAGE, before.key, write, operation, by_version=True)


def _put_action(kind: ActionKind, key: str | RecordKey, row: Row) -> Action:
    """The action that writes a row which must not exist."""
    table, _ = key_of(key)
    absent = Write().on(f"attribute_not_exists(#{KEYS[table][0]})")
    return Action(kind, key, "Put", {"Item": encode(row), **absent.parameters})
