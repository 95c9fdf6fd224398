"""Reads and writes `tests/contract/`: rows and events of each version, which every later version must read.

If rows or events have changed, save what the code writes now, under the next version that will be released:

$ python -m tests.support.contract 1.0
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tests.support.environment  # noqa: F401 - before any module of the project
from inventory_orders.clock import timestamp
from inventory_orders.domain.allotments import LaneLease, Page, PageKey
from inventory_orders.domain.outbound import Generation, OutboundKey, OutboundPage
from inventory_orders.domain.product import Product
from inventory_orders.domain.purchases import BuyerKey, Purchases
from inventory_orders.domain.record import Record
from inventory_orders.domain.words import WordKey
from inventory_orders.publishing.publisher import PROBE
from inventory_orders.store.recent_changes import recent_changes_in
from inventory_orders.store.rows import (
    decode,
    read_lease,
    read_outbound_page,
    read_page,
    read_product,
    read_purchases,
    read_record,
)
from inventory_orders.store.sweep_rows import StockPart, content_of, read_stock_part
from inventory_orders.store.tables import KEYS, Table
from inventory_orders.version import VERSION
from local import ROOT
from testing.aws import Item
from testing.shop import RunningShop
from testing.world.clock import ManualClock
from tests.support.contract_story import Story, opened, told

FOLDER = ROOT / "tests" / "contract"
EVENTS = "events"

Document = dict[str, Any]
Read = (
    Product
    | Record
    | Page
    | OutboundPage
    | Purchases
    | LaneLease
    | StockPart
    | tuple[WordKey, frozenset[str]]
    | tuple[str, Any]
    | dict[str, Any]
)


class Kept(NamedTuple):
    """A row that a released version wrote.

    Attributes:
        table: Its table.
        row: The stored row, in DynamoDB's wire format.
        expects: What the version read from it, as `meaning` returns it.
        sent: The message, if it is an order.
    """

    table: Table
    row: Item
    expects: Any
    sent: Document | None

    @property
    def key(self) -> tuple[str, ...]:
        """The values of the row's key attributes."""
        return tuple(self.row[name]["S"] for name in KEYS[self.table])

    def read(self) -> Read:
        """Read the row with today's code."""
        return read(self.table, self.row)


@dataclass(frozen=True)
class Version:
    """The rows and events that a version wrote.

    Args:
        name: The version, such as `1.0`.
    """

    name: str

    @property
    def folder(self) -> Path:
        """The folder with the version's files."""
        return FOLDER / self.name

    def _document(self, name: str) -> Document:
        found: Document = json.loads((self.folder / f"{name}.json").read_text("utf-8"))
        return found

    @cached_property
    def rows(self) -> list[Kept]:
        """The rows of all tables."""
        return [
            Kept(table, entry["row"], entry["expects"], entry.get("sent"))
            for table in Table
            for entry in self._document(file_of(table))["entries"].values()
        ]

    def rows_of(self, table: Table) -> list[Kept]:
        """The rows of a table."""
        return [kept for kept in self.rows if kept.table is table]

    @cached_property
    def events(self) -> dict[str, Document]:
        """All events by id, as consumers received them."""
        found: dict[str, Document] = self._document(EVENTS)["entries"]
        return found

    @contextmanager
    def open(self, **more: Any) -> Iterator[RunningShop]:
        """Open a shop with these rows, at the time when they were written. `more` adds attributes to each row."""
        written_at = self._document(file_of(Table.ORDERS))["writtenAt"]
        with opened(ManualClock(datetime.fromisoformat(written_at).timestamp())) as shop:
            for kept in self.rows:
                shop.items(kept.table)[kept.key] = {**kept.row, **more}
            yield shop


def versions() -> list[Version]:
    """Find all versions that have files, with the newest one last."""
    names = (path.name for path in FOLDER.iterdir() if path.is_dir())
    return [Version(name) for name in sorted(names, key=lambda name: [*map(int, name.split("."))])]


def is_released(version: str) -> bool:
    """Whether a version such as `1.0` is released. Until then, its files may be rewritten."""
    return not VERSION.startswith(f"{version}.0rc")


def file_of(table: Table) -> str:
    """Return the name of the file with a table's rows."""
    return {Table.STOCK_ADJUSTMENTS: "adjustments"}.get(table, table.lower())


# ---------------------------------------------------------------------- reading


def kind_of_page(row: Item) -> str:
    """Return the kind of a row of the Allotments table."""
    name = row["page"]["S"]
    first, _, last = name.partition("/")
    if first in ("out", "stock", "levels", "today", "changes"):
        return str(first)
    return "lease" if last == "lease" else "depot" if first == "0" else "lane"


def in_sdk_format(row: Item) -> Item:
    """Convert a row to the SDK's format, with binary values as bytes."""
    return {
        name: {"B": base64.b64decode(value["B"])} if "B" in value else value
        for name, value in row.items()
    }


def read(table: Table, row: Item) -> Read:
    """Read a row with today's code, as the service does."""
    item = in_sdk_format(row)
    if table is Table.PRODUCTS:
        return read_product(item)
    if table in (Table.MOVEMENTS, Table.BARCODES):
        return decode(item)
    if table is Table.WORDS:
        stored = decode(item)
        return WordKey(*stored["word"].split("#")), frozenset(stored["words"])
    if table is Table.PURCHASES:
        return read_purchases(item)
    if table is not Table.ALLOTMENTS:
        return read_record(item)
    match kind_of_page(row):
        case "out":
            return read_outbound_page(item)
        case "lease":
            return read_lease(item)
        case "stock":
            return read_stock_part(item)
        case "levels" | "today":
            return content_of(item)
        case "changes":
            found = recent_changes_in(item)
            entries = [[*key, *entry] for key, entry in found.entries.items()]
            return {"version": found.version, "lost": found.lost, "entries": entries}
        case _:
            return read_page(item)


def meaning(value: Any) -> Any:
    """Convert a domain object to JSON, without attributes that have their default values.

    Attributes added by a later version therefore do not change the JSON, as long as they have their defaults.
    """
    match value:
        case PageKey() | OutboundKey() | BuyerKey():
            return str(value)
        case Generation(product_id, created_at):
            return f"{product_id} of {created_at}"
        case _ if is_dataclass(value):
            return {
                field.name: meaning(content)
                for field in fields(value)
                if field.compare and (content := getattr(value, field.name)) != _default(field)
            }
        case Mapping():
            return {meaning(name): meaning(content) for name, content in value.items()}
        case frozenset():
            return sorted(meaning(content) for content in value)
        case tuple() | list():
            return [meaning(content) for content in value]
        case str():
            return str(value)
        case _:
            return value


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


# ---------------------------------------------------------------------- writing


def documents() -> dict[str, Document]:
    """Make the documents that today's code writes, by file name."""
    story = told()
    at = timestamp(datetime.fromtimestamp(story.shop.clock.now(), tz=UTC))
    entries = {file_of(table): _rows(story, table) for table in Table}
    entries[EVENTS] = _events(story)
    return {name: {"writtenAt": at, "entries": found} for name, found in entries.items()}


def _rows(story: Story, table: Table) -> Document:
    found: Document = {}
    for key, row in sorted(story.shop.items(table).items()):
        entry = found[" ".join(key)] = {"row": row, "expects": meaning(read(table, row))}
        if table is Table.ORDERS and key[0] in story.sent:
            entry["sent"] = story.sent[key[0]]
    return found


def _events(story: Story) -> Document:
    """Return the events that the bus accepted, by id."""
    bus, found = story.shop.bus, dict[str, Any]()
    accepted = {event["detail"]["metadata"]["eventId"] for event in bus.taken}
    for entry in (entry for call in bus.calls for entry in call if entry["DetailType"] != PROBE):
        detail = json.loads(entry["Detail"])
        event_id = detail["metadata"]["eventId"]
        if event_id in accepted:
            kind = entry["DetailType"]
            found[event_id] = {"source": entry["Source"], "detail-type": kind, "detail": detail}
    return found


def _text(value: Any, depth: int, margin: str = "") -> str:
    """Format JSON with one line for each attribute of an entry."""
    if not (isinstance(value, dict) and depth and value):
        return json.dumps(value, ensure_ascii=False)
    inner = margin + "  "
    lines = (
        f"{inner}{json.dumps(name)}: {_text(content, depth - 1, inner)}"
        for name, content in value.items()
    )
    return "{\n" + ",\n".join(lines) + f"\n{margin}}}"


def main() -> None:
    """Write the files of a version that is not released."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", help="the version that is to be released, such as 1.1")
    version = parser.parse_args().version
    target = FOLDER / version
    if target.exists():
        if is_released(version):
            sys.exit(f"{version} is released, and its files never change: name the next one")
        shutil.rmtree(target)
    target.mkdir(parents=True)
    for name, document in documents().items():
        text = _text(document, 5 if name == EVENTS else 4) + "\n"
        (target / f"{name}.json").write_text(text, "utf-8")
    print(
        f"{version} is written to {target}; when it is released, add its digest to tests/unit/test_contract.py"
    )


if __name__ == "__main__":
    main()
