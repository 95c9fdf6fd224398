"""Builds the conditional writes for each kind of item, and the actions of transactions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum, auto
from typing import Any

from inventory_orders.clock import timestamp
from inventory_orders.domain.allotments import Page, PageKey
from inventory_orders.domain.barcode import key_of_barcode
from inventory_orders.domain.change import Transaction, Update
from inventory_orders.domain.location import MAX_PLACES, location_of, product_of
from inventory_orders.domain.outbound import Generation, OutboundKey, OutboundPage
from inventory_orders.domain.product import (
    DETAILS,
    CatalogueEvent,
    Product,
    ProductStatus,
    sortable_id,
)
from inventory_orders.domain.purchases import BuyerKey, Purchases
from inventory_orders.domain.record import OrderRecord, Record, RecordKey
from inventory_orders.domain.words import WordKey
from inventory_orders.store.rows import (
    LOCK,
    Key,
    ListingKey,
    Row,
    adjustment_row,
    barcode_row,
    drop_none,
    encode,
    key_of,
    order_row,
    page_units,
    product_row,
    word_row,
)
from inventory_orders.store.tables import KEYS

_ALIAS = re.compile(r"#(\w+)")

# The version alone is not enough: it restarts at 1 when a product is deleted and created again.
AS_READ = "#_version = :version AND #createdAt = :createdAt"
"""Condition: the product is the one that was read, unchanged."""

NO_LIVE_LEASE = "(attribute_not_exists(#lockTime) OR #lockTime <= :now)"
"""Condition of every write to a product, except the lease owner's."""

OWNED = "#lockedBy = :owner"
"""Condition: no other owner has taken the lease since, even if it has expired."""

_MINE = "#lockedBy = :owner AND #_version = #lockVersion"
"""Condition: this owner was the last writer."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write of one item, and the condition on which it is applied.

    Attributes:
        update: The update expression, with attributes as `#name`; empty if nothing is updated.
        condition: The condition expression.
        values: Values for the placeholders of both, named without the colon.
        row: All attributes of a new item; empty for an update.
        names: What other aliases than the attributes' own names stand for.
    """

    update: str = ""
    condition: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    row: Row = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def on(self, condition: str, **values: Any) -> Write:
        """Add a condition, and the values of its placeholders."""
        conditions = f"{self.condition} AND {condition}" if self.condition else condition
        return replace(self, condition=conditions, values={**self.values, **values})

    def on_unchanged(self, product: Product, now: datetime, owner: str | None = None) -> Write:
        """Add the condition that the product has not changed since it was read, and that no other owner has a lease on it."""
        write = self.on(AS_READ, version=product.version, createdAt=product.created_at)
        return write.on(OWNED, owner=owner) if owner else write.on(NO_LIVE_LEASE, now=unix(now))

    def moving(self, units: int) -> Write:
        """Make the write also add units to the units on hand.

        The addition is relative, because a fold changes the units on hand without raising the version.
        """
        update = self.update.replace("SET ", "SET #onHand = #onHand + :moved, ", 1)
        return replace(self, update=update, values={**self.values, "moved": units})

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters for DynamoDB, without empty ones. All names have aliases, because many of them are reserved words."""
        names = _ALIAS.findall(f"{self.update} {self.condition}")
        parameters = {
            "Item": encode(self.row),
            "UpdateExpression": self.update,
            "ConditionExpression": self.condition,
            "ExpressionAttributeNames": {f"#{name}": self.names.get(name, name) for name in names},
            "ExpressionAttributeValues": encode({f":{k}": v for k, v in self.values.items()}),
        }
        return {name: value for name, value in parameters.items() if value}


def unix(moment: datetime) -> Decimal:
    """Convert a time into Unix seconds with six decimals, the format in which lease times are stored and compared."""
    return Decimal(f"{moment.timestamp():.6f}")


def assign(changed: Row, gone: Iterable[str] = (), computed: str = "") -> Write:
    """Build the write that sets some attributes and removes others.

    Args:
        changed: New values by attribute.
        gone: Attributes to remove.
        computed: Further assignments, computed from stored values.
    """
    settings = [f"#{name} = :new_{name}" for name in changed]
    update = "SET " + ", ".join([*settings, computed] if computed else settings)
    if removals := ", ".join(f"#{name}" for name in gone):
        update += f" REMOVE {removals}"
    return Write(update, "", {f"new_{name}": value for name, value in changed.items()})


def difference(before: Row, after: Row) -> Write:
    """Build the write that turns one state of a row into another."""
    gone = [name for name in before if name not in after]
    return assign({name: value for name, value in after.items() if value != before.get(name)}, gone)


def _raise_version(
    changed: Row, gone: Iterable[str] = (), computed: str = "#_version = #_version + :one"
) -> Write:
    """Build a write that also raises the version of the row, whatever its value is."""
    write = assign(changed, gone, computed)
    return replace(write, values={**write.values, "one": 1})


def details_write(event: CatalogueEvent, moment: datetime) -> Write:
    """Build the write that applies a catalogue event, unless a newer event was applied, or the event has another name."""
    details = {name: event.details.get(name) for name in DETAILS} | {
        # Even an unchanged price gets the time of the event, so that the sequence in which events arrive does not matter.
        "priceChangedAt": event.event_time if "price" in event.details else None
    }
    changed = drop_none(details) | {
        "detailsEventTime": event.event_time,
        "detailsEventId": sortable_id(event.event_id),
        "lastUpdatedAt": timestamp(moment),
    }
    gone = [name for name, value in details.items() if value is None]
    same = "#name = :new_name" if "name" in changed else "attribute_not_exists(#name)"
    return _raise_version(changed, gone).on(
        "(attribute_not_exists(#detailsEventTime) OR #detailsEventTime < :time OR "
        f"(#detailsEventTime = :time AND #detailsEventId < :id)) AND {same} AND {NO_LIVE_LEASE}",
        time=event.event_time,
        id=changed["detailsEventId"],
        now=unix(moment),
    )


def price_write(price: int, moment: datetime, latest: str) -> Write:
    """Build the write that sets a price, unless the product is discontinued, or has a newer price or newer details.

    Args:
        price: The new price, in minor units of the currency.
        moment: The current time.
        latest: A price that was set after this time stays.
    """
    at = timestamp(moment)
    changed = {
        "price": price,
        "priceChangedAt": at,
        "lastUpdatedAt": at,
        "detailsEventTime": at,
        "detailsEventId": sortable_id("price-change"),
    }
    return _raise_version(changed).on(
        "#status <> :discontinued AND "
        "(attribute_not_exists(#priceChangedAt) OR #priceChangedAt <= :latest) AND "
        "(attribute_not_exists(#detailsEventTime) OR #detailsEventTime <= :at) AND "
        f"{NO_LIVE_LEASE}",
        discontinued=ProductStatus.DISCONTINUED,
        latest=latest,
        at=at,
        now=unix(moment),
    )


def decrement_write(
    product: Product, quantity: int, moment: datetime, *, has_one_location: bool
) -> Write:
    """Build the write that takes units away, on condition that the product stays `ACTIVE`.

    Args:
        product: The product as last seen. Its generation, threshold and limit must equal the stored ones.
        quantity: Units to take away.
        moment: The current time.
        has_one_location: Whether the product must have no other location.
    """
    # While the stock is above this, the status stays `ACTIVE`.
    floor = product.safety_stock + max(product.low_stock_threshold, -product.backorder_limit)
    write = (
        _taking(product, quantity, floor, moment)
        .on(
            "(attribute_not_exists(#lentTo) OR #stockCount > :leastIfLent) AND "
            f"{_same('backorderLimit')}",
            leastIfLent=max(0, floor) + quantity,
            backorderLimit=product.backorder_limit,
        )
        .moving(-quantity)
    )
    return write.on("attribute_not_exists(#places)") if has_one_location else write


def _taking(product: Product, units: int, floor: int, moment: datetime) -> Write:
    """Build the write that takes units from a row, whatever its version, on condition that more than `floor` are left.

    The row has to be `ACTIVE` and without a live lease. Its generation, threshold and safety stock must equal the known ones.
    """
    computed = "#stockCount = #stockCount - :units, #_version = #_version + :one"
    return _raise_version({"lastUpdatedAt": timestamp(moment)}, computed=computed).on(
        "#createdAt = :createdAt AND #status = :active AND #stockCount > :least AND "
        f"{_same('lowStockThreshold')} AND {_same('safetyStock')} AND {NO_LIVE_LEASE}",
        units=units,
        createdAt=product.created_at,
        active=ProductStatus.ACTIVE,
        least=floor + units,
        lowStockThreshold=product.low_stock_threshold,
        safetyStock=product.safety_stock,
        zero=0,
        now=unix(moment),
    )


def _same(name: str) -> str:
    """Build the condition that an optional value has not changed since it was last read. A missing value counts as 0."""
    return f"(#{name} = :{name} OR (attribute_not_exists(#{name}) AND :{name} = :zero))"


# ---------------------------------------------------------------------- leases


def take_lease(before: Product, owner: str, moment: datetime, until: Decimal) -> Write:
    """Build the write that takes a lease on a product, if the product has not changed since it was read."""
    return _lock(owner, moment, until, gone=("lockOnHand",)).on_unchanged(before, moment)


def keep_lease(
    owner: str, version: int, moment: datetime, until: Decimal, on_hand: int | None = None
) -> Write:
    """Build the write that sets a new end for a live lease, if its owner was the last writer of the product.

    Args:
        owner: The owner.
        version: The version that the owner knows.
        moment: The current time.
        until: When it ends.
        on_hand: Units on hand when the count begins; None if they are already written.
    """
    return _lock(owner, moment, until, on_hand).on(
        f"{_MINE} AND #_version = :version AND #lockTime > :now",
        owner=owner,
        version=version,
        now=unix(moment),
    )


def _lock(
    owner: str,
    moment: datetime,
    until: Decimal,
    on_hand: int | None = None,
    gone: Iterable[str] = (),
) -> Write:
    changed = {"lockedBy": owner, "lockTime": until, "lastUpdatedAt": timestamp(moment)}
    computed = "#lockVersion = #_version + :one, #_version = #_version + :one"
    return _raise_version(drop_none({**changed, "lockOnHand": on_hand}), gone, computed)


def end_lane_lease(owner: str) -> Write:
    """Build the write that releases the lease of a lane, if this owner still has it."""
    return Write("REMOVE #lockedBy, #lockTime, #lockWait", OWNED, {"owner": owner})


def end_lease(owner: str, moment: datetime) -> Write:
    """Build the write that releases the lease of a product, if its owner was the last writer of the product."""
    return _raise_version({"lastUpdatedAt": timestamp(moment)}, LOCK).on(_MINE, owner=owner)


def count_write(before: Product, after: Product, owner: str, moment: datetime) -> Write:
    """Build the write that records a count and releases the lease, if its owner was the last writer of the product.

    Args:
        before: The product as the owner knows it, with the units on hand when the count began.
        after: The product with the counted stock.
        owner: The owner.
        moment: The current time.
    """
    changed = {
        "stockCount": after.stock_count,
        "status": after.status,
        "lastUpdatedAt": timestamp(moment),
        "countedAt": timestamp(moment),
    }
    return (
        _raise_version(changed, LOCK)
        .on(
            f"{_MINE} AND #_version = :version AND #lockTime > :now AND #createdAt = :createdAt "
            "AND #lockOnHand = :onHand AND attribute_not_exists(#lentTo)",
            owner=owner,
            version=after.version - 1,
            now=unix(moment),
            createdAt=before.created_at,
            onHand=before.lock_on_hand or 0,
        )
        .moving(after.stock_count - before.stock_count)
    )


# ---------------------------------------------------------------------- actions of transactions


class ActionKind(Enum):
    """The kind of item that an action writes or checks."""

    PRODUCT = auto()
    PLACES = auto()
    """The list of locations in a product's own row."""
    PAGE = auto()
    """A page of a lane, or of the depot."""
    OUTBOUND = auto()
    """An outbound page."""
    PURCHASES = auto()
    """What a buyer has bought."""
    LANE = auto()
    """The lease of a lane."""
    RECORD = auto()
    WORD = auto()
    """The row that lists a product under a word."""
    BARCODE = auto()


_KINDS = {
    PageKey: ActionKind.PAGE,
    OutboundKey: ActionKind.OUTBOUND,
    BuyerKey: ActionKind.PURCHASES,
}
"""The kinds of items that have a version and an epoch, by the type of their key."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a transaction.

    Attributes:
        kind: The kind of item.
        subject: The key of the item: a product's id, the key of a page, record, word, barcode or buyer, or the number of a lane.
        write: What to write or check.
        operation: DynamoDB's operation: `Put`, `Update`, `Delete` or `ConditionCheck`.
        by_version: Whether it is conditioned on the version that was read, so that a failure means a concurrent writer.
    """

    kind: ActionKind
    subject: Key | ListingKey | int
    write: Write
    operation: str = "Update"
    by_version: bool = False


def transaction_actions(transaction: Transaction, now: datetime) -> list[Action]:
    """Build the actions of a transaction: rows, pages, buyers, the release of a lane, and records, in this sequence.

    Args:
        transaction: What to write.
        now: The current time.
    """
    at = timestamp(now)
    outbound = () if transaction.outbound is None else (transaction.outbound,)
    counted = (*transaction.pages, *outbound, *transaction.purchases)
    decided = zip(transaction.decisions, transaction.stock_after_each(), strict=True)
    lease = transaction.release
    return [
        *(
            (_loan if transaction.is_loan(u) else product_update_action)(u.before, u.after, now)
            for u in transaction.updates
        ),
        *(fold_action(lot, -units, now) for lot, units in transaction.on_hand.items()),
        *(page_action(update, at) for update in counted),
        *(refund_action(key, units, at) for key, units in transaction.refunds.items()),
        *([Action(ActionKind.LANE, lease.lane, end_lane_lease(lease.owner))] if lease else []),
        *(
            record_action(part.record_key, part.record(decision.rejection, after, at))
            for decision, after in decided
            for part in decision.records
        ),
    ]


def _absent(key: Key) -> str:
    """Build the condition that no item has this key."""
    return f"attribute_not_exists(#{KEYS[key_of(key)[0]][0]})"


def record_action(key: RecordKey, write: Record | Update[OrderRecord]) -> Action:
    """Build the action that writes a new record, or updates an order if it has not changed since it was read."""
    if not isinstance(write, Update):
        row = order_row(write) if isinstance(write, OrderRecord) else adjustment_row(write)
        return Action(ActionKind.RECORD, key, Write(row=row).on(_absent(key)), "Put")
    before = order_row(write.before)
    update = difference(before, order_row(write.after)).on(
        "#_version = :version AND #status = :status",
        version=before["_version"],
        status=before["status"],
    )
    user_id = write.before.user_id
    update = (
        update.on("attribute_not_exists(#userId)")
        if user_id is None
        else update.on("#userId = :userId", userId=user_id)
    )
    return Action(ActionKind.RECORD, key, update)


def product_create_action(product: Product) -> Action:
    """Build the action that creates a product if it does not exist."""
    new = Write(row=product_row(product)).on(_absent(product.product_id))
    return Action(ActionKind.PRODUCT, product.product_id, new, "Put")


def word_actions(product_id: str, before: frozenset[str], after: frozenset[str]) -> list[Action]:
    """Build the actions that list a product under other words. Each row contains all words, so a change writes all rows.

    They have no condition, because the same transaction has one on the product's row.

    Args:
        product_id: The product.
        before: Its words as read; empty if it is created.
        after: Its new words; empty if it is deleted.
    """
    return [
        Action(
            ActionKind.WORD,
            WordKey(word, product_id),
            Write(row=word_row(word, product_id, after)),
            "Put",
        )
        if word in after
        else Action(ActionKind.WORD, WordKey(word, product_id), Write(), "Delete")
        for word in sorted(before | after)
        if before != after
    ]


def barcode_actions(product: Product, before: frozenset[str]) -> list[Action]:
    """Build the actions that list a product's barcodes, each unless it is another product's, and remove those it no longer has.

    The removals have no condition, because each barcode of a row points back to it, and the same transaction has a condition
    on the row.

    Args:
        product: The product with its new barcodes; none if it is deleted.
        before: Its barcodes as read; empty if it is created.
    """
    new = {key_of_barcode(each): each for each in product.barcodes - before}
    gone = {*map(key_of_barcode, before)}.difference(map(key_of_barcode, product.barcodes))
    return [
        *(
            Action(
                ActionKind.BARCODE,
                key,
                Write(row=barcode_row(barcode, product)).on(
                    "attribute_not_exists(#code) OR #productId = :productId",
                    productId=product.product_id,
                ),
                "Put",
            )
            for key, barcode in sorted(new.items())
        ),
        *(Action(ActionKind.BARCODE, key, Write(), "Delete") for key in sorted(gone)),
    ]


def place_actions(key: str, own: Product | None = None, *, is_new: bool) -> list[Action]:
    """Build the action that adds a location to the list in the product's own row, or removes it. The default one is not listed.

    A location is added if the product's purchase limit, which it may have taken over, has not changed. The action neither raises the version nor respects leases, because the list does not affect any decision that the version guards.
    So it does not compete with counts or orders at the default location. Only the row's deletion has a condition on the list.

    Args:
        key: The key of the row at the location.
        own: The product's own row as read, if the location is added; None if there is none.
        is_new: Whether the location is added.
    """
    place = {"place": frozenset({location_of(key)})}
    write = Write("DELETE #places :place", "attribute_exists(#productId)", place)
    if is_new:
        write = replace(write, update="ADD #places :place").on(
            "(attribute_not_exists(#places) OR size(#places) < :most) AND "
            f"{_same('purchaseLimit')} AND {_same('limitGroup')}",
            most=MAX_PLACES,
            purchaseLimit=own.purchase_limit if own else 0,
            limitGroup=(own and own.limit_group) or 0,
            zero=0,
        )
    return [Action(ActionKind.PLACES, product_of(key), write)] if location_of(key) else []


def product_update_action(before: Product, after: Product, now: datetime) -> Action:
    """Build the action that updates a product's row, or checks it, if it has not changed since it was read.

    Args:
        before: The product as read.
        after: Its new state. Only the attributes that differ are written. If it is the same object, the row is only checked.
        now: The current time.
    """
    if before is after:
        check = Write().on(AS_READ, version=before.version, createdAt=before.created_at)
        return Action(
            ActionKind.PRODUCT, before.product_id, check, "ConditionCheck", by_version=True
        )
    is_owner = after.lock_version != before.lock_version
    row = product_row(replace(after, on_hand=before.on_hand, last_updated_at=timestamp(now)))
    write = difference(product_row(before), row)
    if after.on_hand != before.on_hand:
        write = write.moving(after.on_hand - before.on_hand)
    write = write.on_unchanged(before, now, before.locked_by if is_owner else None)
    return Action(ActionKind.PRODUCT, before.product_id, write, by_version=True)


def product_delete_action(product: Product, now: datetime) -> Action:
    """Build the action that deletes a product, if it has not changed since it was read.

    The same transaction has to reclaim the product's units from lanes.

    Args:
        product: The product as read.
        now: The current time.
    """
    # The closing adjustment books the units on hand. Neither a fold nor a new location raises the version.
    unmoved = "#onHand = :onHand AND attribute_not_exists(#places)"
    write = Write().on_unchanged(product, now).on(unmoved, onHand=product.on_hand)
    return Action(ActionKind.PRODUCT, product.product_id, write, "Delete", by_version=True)


def fold_action(lot: Generation, units: int, now: datetime) -> Action:
    """Build the action that subtracts units that have left from the units on hand in their product's row, or adds units that have not."""
    write = Write(
        "SET #onHand = #onHand - :units",
        f"#createdAt = :createdAt AND {NO_LIVE_LEASE}",
        {"units": units, "createdAt": lot.created_at, "now": unix(now)},
    )
    return Action(ActionKind.PRODUCT, lot.product_id, write, by_version=True)


def _loan(before: Product, after: Product, now: datetime) -> Action:
    """Build the action that lends units to the depot, even if orders have changed the row since it was read.

    Only transactions that write the depot's page change `lentTo`, and this one writes that page on condition of its version.
    """
    units = before.stock_count - after.stock_count
    write = _taking(before, units, before.least_if_lent - 1, now)
    write = replace(
        write.on("attribute_not_exists(#purchaseLimit)"),
        update=f"{write.update} ADD #lentTo :lanes",
        values={**write.values, "lanes": after.lent_to},
    )
    return Action(ActionKind.PRODUCT, before.product_id, write, by_version=True)


def page_action(update: Update[Page] | Update[OutboundPage] | Update[Purchases], at: str) -> Action:
    """Build the action that writes a page or purchases, or checks that they have not changed; `at` is the current time."""
    before, after = update.before, update.after
    write = Write()
    if before is not after:
        write = assign(
            {
                "units": after.units if isinstance(after, Purchases) else page_units(after),
                "_version": after.version,
                "epoch": after.epoch,
                "lastUpdatedAt": at,
            }
        )
    write = (
        write.on(
            "#_version = :version AND #epoch = :epoch", version=before.version, epoch=before.epoch
        )
        if before.version
        else write.on(_absent(before.key))
    )
    operation = "Update" if write.update else "ConditionCheck"
    return Action(_KINDS[type(before.key)], before.key, write, operation, by_version=True)


def refund_action(key: BuyerKey, units: Mapping[str, int], at: str) -> Action:
    """Build the action that subtracts units, by group, from what a buyer has bought, if the row has that many of each.

    It needs no read, but raises the version: an order that was planned before must not write the units again.
    """
    names = {f"g{number}": group for number, group in enumerate(units)}
    less = "".join(f", #units.#{name} = #units.#{name} - :{name}" for name in names)
    write = _raise_version({"lastUpdatedAt": at}, computed=f"#_version = #_version + :one{less}")
    return Action(
        ActionKind.PURCHASES,
        key,
        replace(write, names=names).on(
            " AND ".join(f"#units.#{name} >= :{name}" for name in names),
            **{name: units[group] for name, group in names.items()},
        ),
    )
