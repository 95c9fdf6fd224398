"""Finds the products whose units on hand have changed since they were counted.

A count corrects the units on hand by the difference. If parcels left between count and booking, that difference includes
their units, so booking it would put them back into stock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

from inventory_orders.clock import Deadline
from inventory_orders.domain.outbound import OUTBOUND_KEYS
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import KEYS, Table

from .catalogue_file import Count
from .errors import UserError
from .movements import Movement, Row, adjustment_of, movements_of

_TIMES = {Table.STOCK_ADJUSTMENTS: "appliedAt", Table.ORDERS: "lastUpdatedAt"}
"""The attribute with the time of the last change, by table."""

# Rows that orders keep changing are often in conflict, and then the whole transaction is repeated.
_READ_TOGETHER = 10
_SECONDS = 300.0

_REMEDY = "count again, or book the difference as a receipt or a loss (`delta` and `reason`)"


@dataclass(frozen=True, slots=True)
class Level:
    """The units on hand of one generation of a product at a location."""

    created_at: str
    on_hand: int


@dataclass(frozen=True, slots=True)
class Moves:
    """The changes to the units on hand of counted products since the earliest count.

    Attributes:
        before: The units on hand before orders and adjustments were read, by key.
        since: The changes, by key.
    """

    before: dict[str, Level] = field(default_factory=dict)
    since: dict[str, list[Movement]] = field(default_factory=dict)

    def objection(self, count: Count, now: Level) -> str:
        """Say why a count must not be booked; empty if it may be.

        Args:
            count: The count.
            now: The units on hand now. A change that came after the read shows in them.
        """
        before, since = self.before.get(count.product_id), self.since.get(count.product_id, ())
        if later := [move for move in since if _is_later(move, count)]:
            last = max(later, key=attrgetter("at"))
            return f"units moved at {last.at} ({last.what}), after the count at {count.counted_at}: {_REMEDY}"
        if before != now:
            return f"{before.on_hand if before else 0:,} units were on hand when the load began, {now.on_hand:,} are now: {_REMEDY}"
        return ""


def read_moves(
    client: RetryingClient, counts: Sequence[Count], on_read: Callable[[int], None]
) -> Moves:
    """Read the products, and then all orders and adjustments since the earliest count.

    Args:
        client: The client for the tables.
        counts: The counts; with none, nothing is read.
        on_read: Called with the number of rows read.

    Raises:
        UserError: A row is unreadable.
        StoreError: DynamoDB failed.
    """
    keys = [count.product_id for count in counts]
    moves = Moves(since={key: [] for key in keys})
    if not counts:
        return moves
    for start in range(0, len(keys), _READ_TOGETHER):
        moves.before.update(_levels(client, keys[start : start + _READ_TOGETHER]))
    since = min(count.counted_at for count in counts)
    for table in _TIMES:
        for row in _rows_since(client, table, since, on_read):
            for move in _movements(table, row):
                if (key := move.generation.product_id) in moves.since:
                    moves.since[key].append(move)
    return moves


def _is_later(move: Movement, count: Count) -> bool:
    """Whether a change came after a count, other than the same line of the same file with another number."""
    is_same = bool(count.stem) and move.facts.get("adjustmentId", "").startswith(count.stem)
    return move.at >= count.counted_at and not is_same


def _levels(client: RetryingClient, keys: Sequence[str]) -> Iterator[tuple[str, Level]]:
    """Read the units on hand of products that exist and are readable, in one transaction."""
    request = partial(client.store.read_together, [*keys, *OUTBOUND_KEYS])
    found = client.call(request, Deadline.after(_SECONDS, client.clock))
    for key, row in found.products.items():
        if row is not None:
            yield key, Level(row.created_at, row.on_hand - found.outbound_units(row))


def _rows_since(
    client: RetryingClient, table: Table, since: str, on_read: Callable[[int], None]
) -> Iterator[Row]:
    """Yield the rows of a table that were changed since a time. This scans the whole table."""
    parameters: dict[str, Any] = {
        "ConsistentRead": True,
        "FilterExpression": "#at >= :since",
        "ExpressionAttributeNames": {"#at": _TIMES[table]},
        "ExpressionAttributeValues": {":since": {"S": since}},
    }
    while True:
        request = partial(client.store.scan, table, **parameters)
        page = client.call(request, Deadline.after(_SECONDS, client.clock))
        yield from map(decode, page["Items"])
        on_read(page["ScannedCount"])
        if "LastEvaluatedKey" not in page:
            return
        parameters["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def _movements(table: Table, row: Row) -> list[Movement]:
    """Find the changes of units on hand in a row. A count is one even if it found no difference: the newer count wins."""
    try:
        found = [*_recorded(table, row)]
        for move in found:
            move.check()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        key = "/".join(map(str, (row[name] for name in KEYS[table])))
        raise UserError(
            f"{key} breaks the contract of the {table.value} table ({type(error).__name__}: {error}), so it is unknown what "
            "moved since the count; repair its item, and load the file again. Nothing was loaded"
        ) from error
    return [move for move in found if move.on_hand or move.facts.get("kind") == "COUNT"]


def _recorded(table: Table, row: Row) -> Iterable[Movement]:
    if table is Table.ORDERS:
        return movements_of(row)
    return () if "rejected" in row else (adjustment_of(row),)
