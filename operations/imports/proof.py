"""Compares what the tables have after an import with what the export says."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient, read_all
from inventory_orders.lanes.levels import StockLevel, estimate_levels
from inventory_orders.store.dynamodb import Store

from ..csv_text import cell_of
from .staging import Level, Staging

_AT_ONCE = 500
_PATIENCE = 60.0
_HEADINGS = (
    *("productId", "locationId", "available", "exported available", "committed"),
    *("exported committed", "onHand", "exported on hand", "unavailable", "differs"),
)


class Compared(NamedTuple):
    """The numbers of a product at a location.

    Attributes:
        level: The numbers in the export.
        found: The units in the tables that are available, committed and on hand; None if the product is not there.
        wanted: What they should be. Unavailable units were not imported, or are safety stock, which is available here.
    """

    level: Level
    found: tuple[int, int, int] | None
    wanted: tuple[int, int, int]

    @property
    def differs(self) -> bool:
        """Whether the numbers differ."""
        return self.found != self.wanted

    @property
    def numbers(self) -> list[int | str]:
        """The numbers in the tables, each before the export's own, and the unavailable units."""
        level, (available, committed, on_hand) = self.level, self.found or ("missing",) * 3
        return [
            *(available, level.available, committed, level.committed),
            *(on_hand, level.on_hand, level.unavailable),
        ]


def compare(staging: Staging, store: Store) -> Iterator[Compared]:
    """Read the stock of each product of an export at each location, and put it next to the export's own numbers."""
    client = RetryingClient(store)
    levels = staging.levels()
    while batch := list(islice(levels, _AT_ONCE)):
        deadline = Deadline.after(_PATIENCE, SystemClock())
        snapshot = read_all(client, [level.key for level in batch], deadline, CommitStats())
        stored = estimate_levels(client, snapshot, deadline)
        for level in batch:
            kept = level.unavailable if staging.keeps_unavailable else 0
            on_hand = level.on_hand - level.unavailable + kept
            wanted = (level.available + kept, level.committed, on_hand)
            yield Compared(level, _numbers(stored.get(level.key)), wanted)


def _numbers(stored: StockLevel | None) -> tuple[int, int, int] | None:
    return None if stored is None else (stored.available, stored.committed, stored.on_hand)


def write_proof(path: Path, compared: Iterator[Compared]) -> Iterator[Compared]:
    """Write a proof to a CSV file, line by line, while it is read."""
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(_HEADINGS)
        for each in compared:
            level, differs = each.level, "yes" if each.differs else ""
            lines.writerow([cell_of(level.product_id), level.location_id, *each.numbers, differs])
            yield each


def is_proof(path: Path) -> bool:
    """Whether a file begins like a proof."""
    with path.open("rb") as file:
        return file.readline(500).decode("utf-8-sig", "replace").startswith(",".join(_HEADINGS))
