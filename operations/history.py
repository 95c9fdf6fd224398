"""Reads the history of a product's stock at a location, newest first, and records all movements again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import UnpublishableError
from inventory_orders.publishing.movements import Recorder
from inventory_orders.retry import RetryPolicy
from inventory_orders.store import movements
from inventory_orders.store.lists import ListPosition
from inventory_orders.store.rows import Row, decode, encode
from inventory_orders.store.tables import KEYS, Table

from .audit import read_orders
from .aws import Aws

_PATIENCE = 10.0

# A table that is new or was idle has to scale with the writes, so throttling may last for minutes.
_POLICY = RetryPolicy(max_attempts=1_000_000, base=0.05, cap=5.0)
_PATIENCE_WITH_WRITES = 300.0

SEGMENTS = 16
"""Parts of a table that are read in parallel."""

_REBUILD = "rebuild"


def read_history(
    aws: Aws, key: str, limit: int, after: ListPosition | None = None
) -> tuple[list[Row], bool, str | None]:
    """Read a part of the history of the row with this key.

    Returns:
        The changes; none if there never was such a row. Whether there are older ones. The time up to which no movement is
        missing; None if this is not known, or if the stage records none.
    """
    client = RetryingClient(aws.store())
    deadline = Deadline.after(_PATIENCE, SystemClock())
    until = movements.complete_until(client.store) if aws.has_movements else None
    read = partial(movements.list_history, client.store, key, limit, after)
    rows, last = client.call(lambda: read(has_movements=aws.has_movements), deadline)
    return rows, last is not None, until


# ---------------------------------------------------------------------- all movements


class Estimate(NamedTuple):
    """What recording all movements again will take.

    Attributes:
        orders: The number of orders. On AWS, it may be up to six hours old, as are the others.
        read_units: Read units, for both tables.
        write_units: Write units, if the first orders are typical.
    """

    orders: int
    read_units: int
    write_units: int


def estimate(aws: Aws) -> Estimate:
    """Estimate what recording all movements again will take, from the tables' sizes and the first orders."""
    sizes = {}
    for table in (Table.ORDERS, Table.MOVEMENTS):
        described = aws.dynamodb.describe_table(TableName=aws.tables[table])["Table"]
        sizes[table] = described["ItemCount"], described.get("TableSizeBytes", 0)
    first = aws.dynamodb.scan(TableName=aws.tables[Table.ORDERS], Limit=100)["Items"]
    written = sum(len(_rows_of(decode(item))) for item in first)
    orders, _ = sizes[Table.ORDERS]
    reads = sum(size // 4096 for _, size in sizes.values()) + sizes[Table.MOVEMENTS][0]
    return Estimate(orders, reads, round(orders * written / max(1, len(first))))


@dataclass(slots=True)
class Rebuilt:
    """What recording all movements again came to.

    Attributes:
        orders: Orders read, including those of earlier runs that were interrupted.
        written: Rows written by this run.
        deleted: Rows deleted by this run, because no order accounts for them.
        unreadable: Orders whose rows cannot be read.
    """

    orders: int = 0
    written: int = 0
    deleted: int = 0
    unreadable: int = 0


class Rebuild:
    """Records the movements of all orders again, and deletes rows that no order accounts for.

    An order may change after it was read. So all rows are compared with the orders afterwards.

    It notes how far it got in the table itself, so a run that was interrupted continues where it stopped.

    Args:
        aws: The stack.
        on_progress: Called with the result so far.
    """

    def __init__(self, aws: Aws, on_progress: Callable[[Rebuilt], None]) -> None:
        self._aws = aws
        self._on_progress = on_progress
        self._recorder = Recorder(RetryingClient(aws.store(), _POLICY))
        self._lock = Lock()
        self.done = Rebuilt()

    def run(self) -> Rebuilt:
        """Continue until everything is done."""
        missing = movements.missing(self._aws.store())
        work = {Table.ORDERS: self._record, Table.MOVEMENTS: self._clean}
        for table, carry_out in work.items():
            with ThreadPoolExecutor(SEGMENTS) as pool:
                list(pool.map(partial(self._segment, table, carry_out), range(SEGMENTS)))
        for table in work:
            for segment in range(SEGMENTS):
                self._movements("delete_item", Key=_place(table, segment))
        if not self.done.unreadable:
            self._write(missing)
        return self.done

    def _segment(self, table: Table, carry_out: Callable[[list[Row]], None], segment: int) -> None:
        """Read one segment of a table page by page, from the place that an earlier run had reached."""
        place = _place(table, segment)
        note = decode(self._movements("get_item", Key=place, ConsistentRead=True).get("Item", {}))
        with self._lock:
            self.done.orders += note.get("orders", 0)
        while "isDone" not in note:
            start: Any = {"ExclusiveStartKey": encode(note["after"])} if "after" in note else {}
            page = self._aws.dynamodb.scan(
                TableName=self._aws.tables[table],
                ConsistentRead=True,
                Segment=segment,
                TotalSegments=SEGMENTS,
                **start,
            )
            rows = list(map(decode, page["Items"]))
            carry_out(rows)
            last = page.get("LastEvaluatedKey")
            reached = {"isDone": True} if last is None else {"after": decode(last)}
            note = {"orders": note.get("orders", 0) + len(rows)} if table is Table.ORDERS else {}
            note |= reached
            self._movements("put_item", Item=place | encode(note))
            self._on_progress(self.done)

    def _record(self, orders: list[Row]) -> None:
        rows, unreadable = dict[movements.Key, Row | None](), 0
        for order in orders:
            try:
                rows |= movements.rows_of(order)
            except UnpublishableError:
                unreadable += 1
        self._write(rows)
        with self._lock:
            self.done.unreadable += unreadable
            self.done.orders += len(orders)
            self.done.written += len(rows)

    def _clean(self, found: list[Row]) -> None:
        """Make rows agree with their orders, until no order has changed since it was read."""
        stored: dict[movements.Key, Row | None] = {
            (row["stockMonth"], row["movementId"]): row for row in found if "orderId" in row
        }
        order_ids = {row["orderId"] for row in found if "orderId" in row}
        while wrong := _differences(stored, read_orders(self._aws, order_ids).values()):
            self._write(wrong)
            stored |= wrong
            with self._lock:
                self.done.deleted += sum(row is None for row in wrong.values())

    def _write(self, rows: movements.Rows) -> None:
        self._recorder.write(rows, Deadline.after(_PATIENCE_WITH_WRITES, SystemClock()))

    def _movements(self, operation: str, **request: Any) -> Any:
        call = getattr(self._aws.dynamodb, operation)
        return call(TableName=self._aws.tables[Table.MOVEMENTS], **request)


def _place(table: Table, segment: int) -> dict[str, Any]:
    """Build the key of the row that notes how far a segment of a table was read."""
    values = (_REBUILD, f"{table.value} {segment:02d}")
    return encode(dict(zip(KEYS[Table.MOVEMENTS], values, strict=True)))


def _differences(stored: movements.Rows, orders: Iterable[Row]) -> movements.Rows:
    """Find the rows that differ from what their orders say, with their right content; None for those that no order has."""
    expected = {key: row for order in orders for key, row in _rows_of(order).items()}
    return {key: expected.get(key) for key, row in stored.items() if row != expected.get(key)}


def _rows_of(order: Row) -> Mapping[movements.Key, Row]:
    try:
        return movements.rows_of(order)
    except UnpublishableError:
        return {}
