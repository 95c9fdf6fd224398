"""Stores which orders and products changed most recently, in one small row that pages for staff ask for every few seconds."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inventory_orders.store.dynamodb import Store
from inventory_orders.store.rows import Item
from inventory_orders.store.tables import Table
from inventory_orders.store.writes import Write, assign

MOST = 200
"""Maximum number of orders and products in the row."""

_STALE_BY = 4
"""By how many versions a read may be older than the reader's cursor. A cursor that is further ahead is of another table."""

Changed = Mapping[tuple[str, str], Sequence[str]]
"""The locations of each changed order or product's row, by table and key. Orders that took no units have none."""

_KEY = {"page": {"S": "changes"}}


@dataclass(frozen=True, slots=True)
class RecentChanges:
    """The orders and products that changed most recently.

    Attributes:
        version: Rises by one with each write; 0 if the row was never written.
        lost: Changes up to this version are not listed.
        entries: What changed, once each: the version that first listed its last change, and its locations.
    """

    version: int = 0
    lost: int = 0
    entries: Mapping[tuple[str, str], tuple[int, Sequence[str]]] = field(default_factory=dict)

    def since(self, cursor: str) -> Changed | None:
        """The changes that a reader of the version `cursor` does not know; None if some of them may not be listed.

        A row that was just created is never stale: rather, the one that the reader knows was deleted.
        """
        known = int(cursor) if re.fullmatch("[0-9]{1,15}", cursor) else -1
        newest = self.version + (_STALE_BY if self.version > _STALE_BY else 0)
        if not self.lost <= known <= newest:
            return None
        return {key: at for key, (version, at) in self.entries.items() if version > known}

    def with_changes(self, changed: Changed) -> RecentChanges:
        """Add changes. If there are too many, the oldest are lost."""
        version = self.version + 1
        entries = {**self.entries, **{key: (version, at) for key, at in changed.items()}}
        lost = max([self.lost, *sorted(each for each, _ in entries.values())[:-MOST]])
        kept = {key: entry for key, entry in entries.items() if entry[0] > lost}
        return RecentChanges(version, lost, kept)


def recent_changes_in(item: Item | None) -> RecentChanges:
    """Convert an item. A missing or unreadable one is as if it had never been written."""
    try:
        version = int(item["_version"]["N"]) if item else 0
        if not item or "content" not in item:
            return RecentChanges(version, version)
        lost, entries = json.loads(zlib.decompress(bytes(item["content"]["B"])))
        return RecentChanges(
            version, lost, {(table, key): (n, at) for table, key, n, at in entries}
        )
    except (KeyError, TypeError, ValueError, zlib.error):
        return RecentChanges()


def read_recent_changes(store: Store) -> RecentChanges:
    """Read the row with eventual consistency."""
    found = store.read_items(Table.ALLOTMENTS, [_KEY])
    return recent_changes_in(found[0] if found else None)


def write_recent_changes(store: Store, before: RecentChanges, after: RecentChanges) -> None:
    """Replace the row unless another process has written it since it was read.

    Raises:
        ConditionFailedError: Another process was faster. The error contains the row as stored.
    """
    entries = [[*key, version, at] for key, (version, at) in after.entries.items()]
    content = zlib.compress(json.dumps([after.lost, entries], separators=(",", ":")).encode())
    write = assign({"_version": after.version, "content": content}).on(
        "attribute_not_exists(#page) OR #_version = :version", version=before.version
    )
    store.update(Table.ALLOTMENTS, _KEY, write, ReturnValuesOnConditionCheckFailure="ALL_OLD")


def note_many_changes(store: Store) -> None:
    """Note that more has changed than the row can list, whatever it contains. Without content, it lists nothing."""
    write = Write("ADD #_version :one REMOVE #content", values={"one": 1})
    store.update(Table.ALLOTMENTS, _KEY, write)
