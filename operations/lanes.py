"""Where the units of products are: in their rows and in the pages of lanes, read so that they belong together."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from inventory_orders.domain.allotments import DEPOT, Page, PageKey
from inventory_orders.errors import CorruptItemError
from inventory_orders.store.rows import Item, Table, decode, key_item, read_page
from operations.aws import Aws, get_items, scan

Row = Mapping[str, Any]

_PAGE = re.compile(r"\d+/\d+")

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactGetItems.html
_MOST_IN_TRANSACTION = 100
# How often some products are read again, until no unit moves meanwhile.
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages as they were read, one after the other.

    Attributes:
        by_name: All pages, by `<lane>/<number>`. A corrupt one counts as empty.
        corrupt: What is wrong with pages that break the table's contract, by name.
    """

    by_name: Mapping[str, Page] = field(default_factory=dict)
    corrupt: Mapping[str, str] = field(default_factory=dict)

    def units(self, product_id: str) -> dict[int, int]:
        """Units of a product, by lane."""
        number = PageKey.of(DEPOT, product_id).number
        return {
            page.key.lane: page.units(product_id)
            for page in self.by_name.values()
            if page.key.number == number and product_id in page.holdings
        }


@dataclass(frozen=True, slots=True)
class Places:
    """Rows and pages that were read together.

    Pages are read before the rows and once more after them. Whatever brings units from one place to another writes a
    page. So if no page gained or lost units of a product in between, but for its sales, then its row and the pages as
    they were read first belong together.

    Attributes:
        rows: By product id, where there is one.
        before: The pages before the rows.
        after: The pages after them. The same, if one transaction has read all.
    """

    rows: Mapping[str, Row]
    before: Pages
    after: Pages

    def on_hand(self, product_id: str) -> int:
        """Units in the row and in all pages."""
        row = self.rows.get(product_id)
        return (row["stockCount"] if row else 0) + sum(self.before.units(product_id).values())


def read_all(aws: Aws) -> Places:
    """Read all rows and all pages."""
    before = read_pages(aws)
    rows = _rows(scan(aws, Table.PRODUCTS))
    return Places(rows, before, read_pages(aws))


def read_pages(aws: Aws) -> Pages:
    """Read all pages, of all lanes that ever were in use."""
    return _pages(scan(aws, Table.ALLOTMENTS))


def read_places(aws: Aws, product_ids: Collection[str], page_names: Iterable[str]) -> Places:
    """Read the rows of some products, and the pages that may hold units of them.

    Args:
        aws: The stack.
        product_ids: The products.
        page_names: Names of all pages that there are.
    """
    numbers = {f"{PageKey.of(DEPOT, product_id).number}" for product_id in product_ids}
    rows = [key_item(product_id) for product_id in product_ids]
    pages = [{"page": {"S": name}} for name in page_names if name.split("/")[1] in numbers]
    if pages and len(rows) + len(pages) <= _MOST_IN_TRANSACTION:
        wanted = [
            {"Get": {"TableName": aws.tables[table], "Key": key}}
            for table, keys in ((Table.PRODUCTS, rows), (Table.ALLOTMENTS, pages))
            for key in keys
        ]
        try:
            answer: Any = aws.dynamodb.transact_get_items(TransactItems=wanted)  # type: ignore[arg-type]
        except aws.dynamodb.exceptions.TransactionCanceledException:
            # An order or a move was under way. It goes on, only the read was cancelled: in a busy shop it always is.
            pass
        else:
            items = [found["Item"] for found in answer["Responses"] if found.get("Item")]
            together = _pages(item for item in items if "page" in item)
            return Places(_rows(item for item in items if "page" not in item), together, together)
    before = _pages(get_items(aws, Table.ALLOTMENTS, pages))
    found = _rows(get_items(aws, Table.PRODUCTS, rows))
    return Places(found, before, _pages(get_items(aws, Table.ALLOTMENTS, pages)))


def read_on_hand(aws: Aws, product_id: str) -> int | None:
    """Read how many units of a product there are, in its row and in lanes. None if there is no such product."""
    lanes: Collection[str] = ()
    for _ in range(_TRIES):
        names = [str(PageKey.of(int(lane), product_id)) for lane in lanes]
        places = read_places(aws, [product_id], names)
        row = places.rows.get(product_id)
        if row is None:
            return None
        lent_to = row.get("lentTo", ())
        is_same = places.before.units(product_id) == places.after.units(product_id)
        if is_same and set(lanes) == set(lent_to):
            break
        lanes = lent_to
    return places.on_hand(product_id)


def _rows(items: Iterable[Item]) -> dict[str, Row]:
    return {row["productId"]: row for row in map(decode, items)}


def _pages(items: Iterable[Item]) -> Pages:
    by_name: dict[str, Page] = {}
    corrupt: dict[str, str] = {}
    for item in items:
        name = item["page"]["S"]
        if not _PAGE.fullmatch(name):
            continue
        try:
            by_name[name] = read_page(item)
        except CorruptItemError as error:
            lane, number = map(int, name.split("/"))
            version = item.get("_version", {}).get("N", "0")
            by_name[name] = Page(PageKey(lane, number), int(version), "")
            corrupt[name] = str(error)
    return Pages(by_name, corrupt)


def lane_name(lane: int) -> str:
    """A lane, in words."""
    return "the depot" if lane == DEPOT else f"lane {lane}"
