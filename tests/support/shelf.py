"""A catalogue file that tests write, check and load into a shop in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.domain.product import Product
from inventory_orders.store.tables import Table
from operations.catalogue_file import CatalogueFile, read_catalogue
from operations.load import Load
from testing.schedules.in_turn.shop import Shop
from tests.support.movements import record_movements


class Shelf:
    """A shop and a catalogue file, which is saved at the shop's time.

    Attributes:
        shop: The shop.
        store: Its tables.
        path: The file.
        counted_at: The time of the counts in all later files.
        has_recorder: Whether movements are recorded before a file with counts is read.
    """

    has_recorder = True

    def __init__(self, shop: Shop, path: Path) -> None:
        self.shop, self.store, self.path = shop, shop.store, path
        self.counted_at = timestamp(SystemClock().now())

    def begin_count(self) -> None:
        """Make now the time of the counts in all later files."""
        self.counted_at = timestamp(SystemClock().now())

    def file(self, content: str | None = None) -> CatalogueFile:
        """Write the file, unless its content stays, and read it."""
        if content is not None:
            self.path.write_text(content)
            now = self.shop.clock.now()
            os.utime(self.path, (now, now))
        return read_catalogue(self.path, counted_at=self.counted_at)

    def _recorded(self, content: str | None) -> CatalogueFile:
        """Write and read the file, and record movements if it has counts."""
        found = self.file(content)
        if found.counts and self.has_recorder:
            record_movements(self.shop, ahead=3600)
        return found

    def load(self, content: str | None = None, **options: Any) -> Load:
        """Load the file."""
        load = Load(self._recorded(content), self.store, **options)
        load.run()
        return load

    def check(self, content: str | None = None) -> Load:
        """Check the file, which writes nothing."""
        file = self._recorded(content)
        before = self.rows()
        load = Load(file, self.store)
        load.check()
        assert self.rows() == before
        return load

    def check_and_load(self, content: str) -> Iterator[Load]:
        """Check the file, and then load it: both have the same findings."""
        yield self.check(content)
        yield self.load(content)

    def rows(self) -> Mapping[Table, Any]:
        """All rows but movements, by table."""
        tables = set(Table) - {Table.MOVEMENTS}
        return {table: dict(self.shop.items(table)) for table in tables}

    def product(self, key: str) -> Product | None:
        """A product as stored; None if there is none."""
        return self.store.get(key)


def codes(load: Load) -> list[tuple[int, str, str]]:
    """The bad lines of a load: their numbers, products and codes."""
    return sorted((bad.number, bad.ids["productId"], bad.code) for bad in load.bad)


def findings(load: Load) -> list[tuple[int, str, str]]:
    """What a load did or would do: line number, product and words."""
    return sorted((number, name, found.words) for number, name, found in load.findings)
