"""The table `Movements`: the units that orders moved, by product, location and month, derived from the rows of orders.

Nothing is ever decided from it. Each row follows from its order alone, so it may be written again at any time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from heapq import merge
from itertools import chain, groupby, islice, takewhile
from typing import Any

from inventory_orders.clock import timestamp
from inventory_orders.domain.record import (
    SCANNED,
    LineUnits,
    OrderAction,
    OrderLine,
    OrderRecord,
    Step,
    move_units,
)
from inventory_orders.errors import ThrottledError, UnpublishableError
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.lists import ListPosition, OrderFilter, read_range
from inventory_orders.store.rows import Row, drop_none, encode, read_order
from inventory_orders.store.tables import BY_REFERENCE, BY_TIME, KEYS, Index, Table
from inventory_orders.store.writes import assign

PLACE = "place"
"""The action of a movement that an order's placement made. All others are `OrderAction`s."""

BATCH = 25
"""Maximum rows in a request: docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html"""

# A key takes 1,000 write units a second. Only products in lanes are sold faster.
_LANE_SHARDS = 8

_MONTHS = "months"
_PROGRESS, _LATE = "progress", "late"

LATE_SECONDS = 20
"""An invocation that begins this long after one of its changes notes that recording is late."""

_ON_TIME_SECONDS = 60
"""More than an invocation that is not late takes, including its attempts that fail before they are."""

_NEVER_AGAIN = "never again"  # sorts after all times

_FORGET_LATE_SECONDS = 300
"""More than Lambda waits between two attempts, or between two batches of a shard that is behind."""

Key = tuple[str, str]
Rows = Mapping[Key, Row | None]
"""Rows of the table by key; None for a row to delete."""


# ---------------------------------------------------------------------- rows


def changed_rows(before: Row | None, after: Row | None) -> dict[Key, Row | None]:
    """Find the rows that a change to an order adds, changes and removes.

    Args:
        before: The order's row before the change; None to return all rows of `after`. An unreadable one counts as none.
        after: The order's row after the change; None if it is gone.

    Raises:
        UnpublishableError: The row is unreadable.
    """
    new, old = rows_of(after), dict[Key, Row]()
    with suppress(UnpublishableError):
        old = rows_of(before)
    return {key: new.get(key) for key in old | new if old.get(key) != new.get(key)}


def moved_on_pages(before: Row | None, after: Row | None) -> list[str]:
    """The keys of the products whose units a change to an order moved on a page, which leaves their own rows unchanged.

    Raises:
        UnpublishableError: The order's row after the change is unreadable.
    """
    return [
        month[10:]
        for (month, _), row in changed_rows(before, after).items()
        if row and "page" in row
    ]


def rows_of(order: Row | None) -> dict[Key, Row]:
    """Derive all rows of an order from its own row.

    Raises:
        UnpublishableError: The order's row is unreadable.
    """
    try:
        found = [] if order is None else _with_first_references(_movements(read_order(order)))
        return {(row["stockMonth"], row["movementId"]): row for row in found}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnpublishableError(
            f"the order's row is unreadable ({type(error).__name__}: {error})"
        ) from error


def _movements(order: OrderRecord) -> Iterator[Row]:
    units = {line.product_id: LineUnits(line.quantity) for line in order.as_asked.lines}
    taken = {line.product_id: line for line in order.as_asked.lines if line.product_created_at}
    for line in taken.values():
        yield _row(order, line, 0, order.created_at, line.quantity) | _taken(line, PLACE)
    number = 1
    for step in order.steps:
        moved = move_units(units, step.action, step.quantities, step.more)
        for product_id in sorted(moved.keys() & taken.keys()):
            yield (
                _row(order, taken[product_id], number, step.at, moved[product_id])
                | _of_step(step, product_id, moved[product_id])
            )
        for line in step.added:
            yield (
                _row(order, line, number, step.at, line.quantity)
                | _notes(step)
                | _taken(line, step.action)
            )
        # Later steps concern the units where the last ones were taken.
        taken |= {line.product_id: line for line in step.added}
        # Steps that moved no units do not count, because a second extension replaces the first.
        number += bool(moved or step.added)


def _with_first_references(rows: Iterable[Row]) -> Iterator[Row]:
    """Note a reference in the first row of an order that has it, and drop attributes without a value."""
    first = dict[object, Row]()
    for row in rows:
        reference = row.get("reference")
        is_first = first.setdefault(reference, row) is row
        yield drop_none(row | {"firstReference": reference if is_first else None})


def _taken(line: OrderLine, action: str) -> Row:
    return {
        "action": action,
        "delta": -line.quantity,
        "page": line.lane_page,
        "version": line.product_version if line.lane_page is None else line.lane_version,
    }


def _row(order: OrderRecord, line: OrderLine, number: int, at: str, quantity: int) -> Row:
    shard = 0 if line.lane_page is None else 1 + zlib.crc32(order.order_id.encode()) % _LANE_SHARDS
    datetime.fromisoformat(at)
    return {
        "stockMonth": f"{at[:7]}#{shard}#{line.key}",
        "movementId": f"{at}#{order.order_id}#{number:03d}",
        "orderId": order.order_id,
        "quantity": quantity,
        "productCreatedAt": line.product_created_at,
    }


def _of_step(step: Step, product_id: str, quantity: int) -> Row:
    version = step.restocked_versions.get(product_id)
    # If the product had been delisted, no units go back into stock.
    restocked = None if version is None else quantity
    is_lost = step.action == OrderAction.CANCEL and step.restock is False
    row = _notes(step) | {
        "action": step.action,
        "page": step.restocked_pages.get(product_id),
        "version": version,
    }
    is_undone = step.action == OrderAction.UNFULFIL
    if is_lost or is_undone or step.action == OrderAction.FULFIL:
        return row | {
            "onHandDelta": quantity if is_undone else -quantity,
            "isLost": is_lost or None,
            "page": step.out_page,
            "version": step.out_version,
        }
    return row | {
        "delta": restocked,
        "onHandDelta": restocked if step.action == OrderAction.RETURN else None,
    }


def _notes(step: Step) -> Row:
    return {n: note for n, note in step.notes.items() if n != SCANNED} | {"stepId": step.step_id}


# ---------------------------------------------------------------------- writing


def write_rows(store: Store, rows: dict[Key, Row | None]) -> None:
    """Write up to `BATCH` rows, and remove them from `rows`.

    Raises:
        ThrottledError: DynamoDB left out those that are still in `rows`.
    """
    requests: dict[Key, dict[str, Any]] = {
        key: {"DeleteRequest": {"Key": _key(*key)}}
        if row is None
        else {"PutRequest": {"Item": encode(row)}}
        for key, row in rows.items()
    }
    left = store.write_items(Table.MOVEMENTS, list(requests.values()))
    for key, request in requests.items():
        if request not in left:
            del rows[key]
    if rows:
        raise ThrottledError("UNPROCESSED_KEYS", "DynamoDB left movements unprocessed")


def list_months(rows: Rows) -> dict[Key, Row]:
    """Build the rows that list the months and shards of other rows by product and location. Readers find only these months."""
    keys = dict.fromkeys(
        (f"{_MONTHS}#{stock_month[10:]}", stock_month[:9])
        for (stock_month, _), row in rows.items()
        if row is not None
    )
    return {key: dict(zip(KEYS[Table.MOVEMENTS], key, strict=True)) for key in keys}


def _key(stock_month: str, movement_id: str) -> dict[str, Any]:
    return encode(dict(zip(KEYS[Table.MOVEMENTS], (stock_month, movement_id), strict=True)))


# ---------------------------------------------------------------------- how far recording is behind


def note_late(store: Store, changed_at: datetime, now: datetime | None) -> None:
    """Note that changes of this minute are being recorded late.

    Args:
        store: The tables.
        changed_at: When the first of them was made.
        now: The time of this attempt; None if it is the last one, as a change is unreadable.
    """
    # Both notes may be of the same minute.
    minute = timestamp(changed_at.replace(second=0, microsecond=int(now is None)))
    tried_at = _NEVER_AGAIN if now is None else timestamp(now)
    store.update(Table.MOVEMENTS, _key(_LATE, minute), assign({"triedAt": tried_at}))


def missing(store: Store) -> Rows:
    """The notes of changes that only a rebuild can record, as rows to delete."""
    return {
        (_LATE, row["movementId"]): None
        for row in _partition(store, _LATE)
        if row["triedAt"] == _NEVER_AGAIN
    }


def advance(store: Store, now: datetime) -> None:
    """Note up to which time movements are complete, while Lambda reads the stream. Call this at regular intervals.

    Changes that are not recorded within a minute are noted by each attempt to record them. So without such a note, all
    changes up to a minute ago are recorded, even if no order has changed since.
    """
    until = timestamp(now - timedelta(seconds=_ON_TIME_SECONDS))
    forgotten = timestamp(now - timedelta(seconds=_FORGET_LATE_SECONDS))
    for row in _partition(store, _LATE):
        minute = row["movementId"]
        if row["triedAt"] >= forgotten:
            until = min(until, minute)
        else:
            write_rows(store, {(_LATE, minute): None})
    store.update(Table.MOVEMENTS, _key(_PROGRESS, _PROGRESS), assign({"completeUntil": until}))


def complete_until(store: Store) -> str | None:
    """The time up to which all movements are recorded; None if this is not known yet."""
    return next((row["completeUntil"] for row in _partition(store, _PROGRESS)), None)


def _partition(store: Store, stock_month: str) -> list[Row]:
    """Read a partition with few rows, with strong consistency."""
    rows, _ = store.query(
        Table.MOVEMENTS, "#stockMonth = :name", {"name": stock_month}, None, ConsistentRead=True
    )
    return rows


# ---------------------------------------------------------------------- lists


def list_history(
    store: Store,
    key: str,
    limit: int,
    after: ListPosition | None,
    *,
    has_movements: bool,
    since: str = " ",
    until: str = "~",
) -> tuple[list[Row], ListPosition | None]:
    """List the changes to a product's stock at a location, newest first. The list is eventually consistent.

    Args:
        store: The tables.
        key: The key of the product's row.
        limit: Maximum number of entries.
        after: The position to continue after; None for the beginning.
        has_movements: Whether the stage records movements. Otherwise, only adjustments are listed.
        since: The earliest time, as stored.
        until: Leave out changes at this time, as stored, and later.

    Returns:
        The changes, which are rows in `StockAdjustments` and `Movements`, and where to continue; None at the end.
    """
    end = after or ListPosition(until, "")
    found = changes(store, key, limit + 1, end.at, has_movements=has_movements)
    return _page(found, since, end, limit)


def position_of(row: Row) -> ListPosition:
    """The position of an adjustment or a movement in a history. Movements come after adjustments of the same time."""
    if "movementId" in row:
        return ListPosition(_order(row).at, f"1{row['movementId']}")
    return ListPosition(row["appliedAt"], f"0{row['adjustmentId']}")


def changes(
    store: Store, key: str, size: int, until: str = "~", *, has_movements: bool = True
) -> Iterator[Row]:
    """Yield the changes to a product's stock at a location, newest first. Refused decrements are left out.

    Args:
        store: The tables.
        key: The key of the product's row.
        size: How many rows to read with the first request.
        until: Leave out later changes.
        has_movements: Whether the stage records movements.
    """
    booked = (row for row in _newest(store, BY_TIME, key, size, until) if "rejected" not in row)
    moved = movements(store, key, size, until) if has_movements else ()
    return merge(moved, booked, key=position_of, reverse=True)


def movements(store: Store, key: str, size: int, until: str = "~") -> Iterator[Row]:
    """Yield the movements of a product at a location, newest first. The arguments are those of `changes`."""
    # Two more show where the last month that is needed ends.
    months = _newest(store, None, f"{_MONTHS}#{key}", size + 2, until)
    return chain.from_iterable(
        merge(
            *(_newest(store, None, f"{row['movementId']}#{key}", size, until) for row in of_month),
            key=lambda row: row["movementId"],
            reverse=True,
        )
        for _, of_month in groupby(months, lambda row: row["movementId"][:7])
    )


def list_orders(
    store: Store, wanted: OrderFilter, limit: int, after: ListPosition | None
) -> tuple[list[ListPosition], ListPosition | None]:
    """List the orders with a reference, or those that took units of a product at a location. The list is eventually consistent.

    Orders with a reference are sorted by their first step that has it, a product's orders by their creation, the newest first.

    Args:
        store: The tables.
        wanted: Which orders, by `reference` or `product_key`, and the times of these steps or of their creation.
        limit: Maximum number of entries.
        after: The position to continue after; None for the beginning.

    Returns:
        The orders, and where to continue; None at the end.
    """
    end = (
        ListPosition(wanted.until, "")
        if after is None
        else ListPosition(after.at, f"1{after.at}#{after.id}#")
    )
    rows = (
        (row for row in movements(store, key, limit + 1, end.at) if row["action"] == PLACE)
        if (key := wanted.product_key)
        else _newest(store, BY_REFERENCE, wanted.reference or "", limit + 1, end.at)
    )
    page, last = _page(rows, wanted.since, end, limit)
    orders = [*map(_order, page)]
    return orders, orders[-1] if last else None


def _order(row: Row) -> ListPosition:
    at, order_id = row["movementId"].split("#", 1)
    return ListPosition(at, order_id.rpartition("#")[0])


def _page(
    found: Iterable[Row], since: str, end: ListPosition, limit: int
) -> tuple[list[Row], ListPosition | None]:
    """The first rows before a position and not before a time, and where to continue; None at the end."""
    rest = (row for row in found if position_of(row) < end)
    first = list(islice(takewhile(lambda row: position_of(row).at >= since, rest), limit + 1))
    return first[:limit], position_of(first[limit - 1]) if len(first) > limit else None


def _newest(store: Store, index: Index | None, key: str, size: int, until: str) -> Iterator[Row]:
    """Yield the rows of a partition of `Movements` or of an index, newest first."""
    table = Table.STOCK_ADJUSTMENTS if index is BY_TIME else Table.MOVEMENTS
    # All ids of movements at this time begin with the time and `#`, which comes before `$`.
    return read_range(store, table, index, key, (" ", f"{until}$"), size)
