"""Stores what only the sweep writes: the published stock levels, and what it has read for lists and the desk's first page."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from inventory_orders.domain.events import Level
from inventory_orders.errors import CorruptItemError
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.rows import Item, Row
from inventory_orders.store.tables import Table
from inventory_orders.store.writes import assign

STOCK_PARTS = 100
"""Number of items with the published stock levels of all products. One request reads them; with 50,000 products, each has
11 KB."""

TODAY = "today"
"""The key of the row for the desk's first page."""


@dataclass(frozen=True, slots=True)
class StockPart:
    """One item with the stock levels that were last published for some of the products.

    Attributes:
        number: Its number, below `STOCK_PARTS`.
        version: Rises by one with every write; 0 if it was never written.
        at: When the newest levels were read.
        levels: Levels by product id.
        pending: Products whose levels as of `at` may not have been published yet.
    """

    number: int
    version: int = 0
    at: str = ""
    levels: dict[str, Level] = field(default_factory=dict)
    pending: Sequence[str] = ()

    @staticmethod
    def of(product_id: str) -> int:
        """The number of the part that contains a product."""
        return zlib.crc32(product_id.encode()) % STOCK_PARTS


def stock_part_key(number: int) -> dict[str, Any]:
    """The primary key of a part."""
    return {"page": {"S": f"stock/{number}"}}


def stock_part_row(part: StockPart) -> Row:
    """Convert a part into its row, without the key."""
    return {
        "levels": zlib.compress(json.dumps([part.levels, part.pending]).encode()),
        "at": part.at,
        "_version": part.version,
    }


def read_stock_part(item: Item) -> StockPart:
    """Convert an item into a part.

    Raises:
        CorruptItemError: The item breaks the table's contract.
    """
    try:
        levels, pending = json.loads(zlib.decompress(bytes(item["levels"]["B"])))
        return StockPart(
            int(item["page"]["S"].split("/")[1]),
            version=int(item["_version"]["N"]),
            at=item["at"]["S"],
            levels={product_id: tuple(level) for product_id, level in levels.items()},
            pending=pending,
        )
    except (KeyError, ValueError, TypeError, AttributeError, zlib.error) as error:
        raise CorruptItemError(
            f"{item['page']['S']} of the Allotments table is unreadable ({type(error).__name__}: {error}); delete "
            "the item, and the stock of its products will be published again",
            "CORRUPT_PAGE",
        ) from error


def read_stock_parts(store: Store) -> dict[int, StockPart]:
    """Read all parts, by number. They are a hint, because the read is eventually consistent. Missing parts are empty.

    Raises:
        CorruptItemError: A part breaks the table's contract.
    """
    parts = {number: StockPart(number) for number in range(STOCK_PARTS)}
    items = store.read_items(Table.ALLOTMENTS, [*map(stock_part_key, parts)])
    return parts | {part.number: part for part in map(read_stock_part, items)}


def write_stock_part(store: Store, part: StockPart) -> StockPart:
    """Replace a part unless another sweep has written it since it was read. Returns the part as stored.

    Raises:
        ConditionFailedError: Another sweep was faster.
    """
    after = replace(part, version=part.version + 1)
    write = assign(stock_part_row(after)).on(
        "attribute_not_exists(#page) OR #_version = :version", version=part.version
    )
    store.update(Table.ALLOTMENTS, stock_part_key(part.number), write)
    return after


def write_swept(store: Store, name: str, at: str, content: Any) -> None:
    """Replace a row that only the sweep writes.

    Args:
        store: The tables.
        name: The key of the row in `Allotments`.
        at: When the content was read.
        content: The content, in a form that JSON has.
    """
    packed = zlib.compress(json.dumps(content, separators=(",", ":")).encode())
    store.update(Table.ALLOTMENTS, {"page": {"S": name}}, assign({"at": at, "content": packed}))


def read_swept(store: Store, names: Iterable[str]) -> dict[str, tuple[str, Any]]:
    """Read rows with eventual consistency. Missing and unreadable ones are left out: the next sweep writes them.

    Returns:
        When the content of each row was read, and the content, by the key of the row.
    """
    keys, found = [{"page": {"S": name}} for name in names], dict[str, tuple[str, Any]]()
    for item in store.read_items(Table.ALLOTMENTS, keys) if keys else ():
        with suppress(KeyError, TypeError, ValueError, zlib.error):
            found[item["page"]["S"]] = content_of(item)
    return found


def content_of(item: Item) -> tuple[str, Any]:
    """Convert an item into its time and its content."""
    return item["at"]["S"], json.loads(zlib.decompress(bytes(item["content"]["B"])))
