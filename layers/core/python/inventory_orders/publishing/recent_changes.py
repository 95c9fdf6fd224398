"""Notes which orders and products a batch of changes concerns, so that pages for staff learn of it within seconds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from inventory_orders.clock import Deadline
from inventory_orders.domain.location import DEFAULT_LOCATION, location_of
from inventory_orders.domain.record import OrderStatus
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import UnpublishableError
from inventory_orders.publishing.streams import rows_in
from inventory_orders.store import movements
from inventory_orders.store.cancellations import ConditionFailedError
from inventory_orders.store.recent_changes import (
    Changed,
    note_many_changes,
    read_recent_changes,
    recent_changes_in,
    write_recent_changes,
)
from inventory_orders.store.tables import KEYS, STREAM_BATCH, Table

_TRIES = 3
"""How often to list changes while other processes write the row, before noting only that there are many."""


class Noter:
    """Notes changes. After a failure, it notes with the next batch that more has changed.

    Args:
        client: Writes the row.
    """

    def __init__(self, client: RetryingClient) -> None:
        self._client = client
        self._has_gap = False

    def note(self, records: Sequence[Any], deadline: Deadline) -> None:
        """Note which orders and products changed; after a full batch, only that many did, because more may follow at once.

        Args:
            records: The records of a stream.
            deadline: When to stop.

        Raises:
            StoreError: DynamoDB failed, or time ran out.
        """
        may_list = not self._has_gap and len(records) < STREAM_BATCH
        self._has_gap = True
        if not (may_list and self._list(records, deadline)):
            self._client.ask(note_many_changes, deadline)
        self._has_gap = False

    def _list(self, records: Sequence[Any], deadline: Deadline) -> bool:
        """List the changes, unless one is unreadable, or other processes keep writing the row."""
        try:
            changed = dict(chain.from_iterable(_changed(record).items() for record in records))
        except (UnpublishableError, KeyError):
            return False
        known = self._client.ask(read_recent_changes, deadline)
        for _ in range(_TRIES):
            after = known.with_changes(changed)
            try:
                self._client.ask(write_recent_changes, deadline, known, after)
            except ConditionFailedError as failed:
                known = recent_changes_in(failed.item)
            else:
                return True
        return False


def _changed(record: Any) -> Changed:
    """List what a change to a row concerns: its order or product, and the products whose units an order moved on pages."""
    table, before, after = rows_in(record)
    row = after or before or {}
    key = row[KEYS[table][0]]
    if table is Table.PRODUCTS:
        return {(table.value, key): [location_of(key)]}
    # An order that took no units is at no location.
    has_units = "userId" in row and row.get("status") != OrderStatus.REJECTED
    supplied_from = row.get("suppliedFrom", [DEFAULT_LOCATION]) if has_units else []
    changed: dict[tuple[str, str], Sequence[str]] = {(table.value, key): supplied_from}
    with suppress(UnpublishableError):
        changed |= {
            (Table.PRODUCTS.value, each): [location_of(each)]
            for each in movements.moved_on_pages(before, after)
        }
    return changed
