"""Finds the units of products, whether in rows or in lanes, and reclaims all units from lanes.

Reclaiming covers all existing pages and rows, whatever the settings are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from botocore.exceptions import ClientError

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.allotments import DEPOT, LaneLease, Page, PageKey
from inventory_orders.domain.outbound import OUTBOUND_KEYS, OutboundPage
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import CorruptItemError
from inventory_orders.lanes.depot import Depot
from inventory_orders.lanes.recall import reclaim
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.rows import (
    Item,
    decode,
    key_item,
    read_lease,
    read_outbound_page,
    read_page,
)
from inventory_orders.store.tables import Table

from .aws import Aws, get_items, scan

Row = Mapping[str, Any]

_PAGE = re.compile(r"\d+/\d+")
_LEASE = re.compile(r"\d+/lease")
_OUTBOUND = {str(key): key for key in OUTBOUND_KEYS}

# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactGetItems.html
_MAX_IN_TRANSACTION = 100
_NOT_TOGETHER = {"TransactionCanceledException", "ValidationException"}
# The number of products that one visit to the depot reclaims, so that orders get their turn, and the longest visit, in
# seconds.
_RECLAIMED_TOGETHER = 50
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages that were read one after another. A corrupt page counts as empty.

    Attributes:
        by_name: All pages of lanes, by `<lane>/<number>`.
        outbound: All outbound pages, by `out/<number>`.
        corrupt: Errors of pages that break the table's contract, by name.
    """

    by_name: Mapping[str, Page] = field(default_factory=dict)
    outbound: Mapping[str, OutboundPage] = field(default_factory=dict)
    corrupt: Mapping[str, str] = field(default_factory=dict)

    def version(self, name: str) -> int:
        """Return the version of a page; 0 if it does not exist."""
        page = self.by_name.get(name) or self.outbound.get(name)
        return page.version if page else 0

    def plus(self, others: Pages) -> Pages:
        """Combine these pages with others, which replace pages of the same name."""
        return Pages(
            {**self.by_name, **others.by_name},
            {**self.outbound, **others.outbound},
            {**self.corrupt, **others.corrupt},
        )

    def units(self, product_id: str) -> dict[int, int]:
        """Return the units of a product, by lane."""
        number = PageKey.of(DEPOT, product_id).number
        return {
            page.key.lane: page.units(product_id)
            for page in self.by_name.values()
            if page.key.number == number and product_id in page.entries
        }


@dataclass(frozen=True, slots=True)
class Places:
    """Rows and pages that were read together.

    Pages are read before the rows and once more after them. Every move of units writes a page. So if the two reads of a
    product's pages differ only by sales and hand-overs, its row and the first read of the pages are consistent.

    Attributes:
        rows: Existing rows, by key.
        before: The pages before the rows.
        after: The pages after the rows. Pages of lanes are the same in both if one transaction read them with the rows.
        unreadable: Keys of existing rows that break the table's contract.
    """

    rows: Mapping[str, Row]
    before: Pages
    after: Pages
    unreadable: frozenset[str] = frozenset()

    def available(self, product_id: str) -> int:
        """Count the available units of a product, in its row and in all pages of lanes."""
        row = self.rows.get(product_id)
        return (row["stockCount"] if row else 0) + sum(self.before.units(product_id).values())

    @property
    def products(self) -> set[str]:
        """The products that have a row, or are in a page of a lane."""
        every = (*self.before.by_name.values(), *self.after.by_name.values())
        return {*self.rows, *(product_id for page in every for product_id in page.entries)}

    @property
    def lent(self) -> set[str]:
        """The products that are in pages of lanes, or may be according to their rows."""
        named = {product_id for product_id, row in self.rows.items() if row.get("lentTo")}
        return named.union(*(page.entries for page in self.before.by_name.values()))


def read_all(aws: Aws) -> Places:
    """Read all rows of products and all pages."""
    before = read_pages(aws)
    rows = _rows(scan(aws, Table.PRODUCTS))
    return Places(rows, before, read_pages(aws))


def read_pages(aws: Aws) -> Pages:
    """Read all outbound pages, and all pages of every lane that was ever in use."""
    return pages_of(scan(aws, Table.ALLOTMENTS))


def read_outbound(aws: Aws) -> Pages:
    """Read only the outbound pages."""
    keys = [{"page": {"S": name}} for name in sorted(_OUTBOUND)]
    return pages_of(get_items(aws, Table.ALLOTMENTS, keys))


def read_places(aws: Aws, product_ids: Collection[str], page_names: Iterable[str]) -> Places:
    """Read the rows of some products, the pages of lanes that may hold their units, and the outbound pages.

    Hand-overs write the outbound pages constantly, and would cancel a transaction that reads them. These pages are
    therefore read before and after it. The two reads differ by hand-overs only, except in the rare moment when a sweep
    folds the pages.

    Args:
        aws: The stack.
        product_ids: The products.
        page_names: The pages of lanes that exist.
    """
    numbers = {f"{PageKey.of(DEPOT, product_id).number}" for product_id in product_ids}
    rows = [key_item(product_id) for product_id in product_ids]
    pages = [{"page": {"S": name}} for name in page_names if name.split("/")[1] in numbers]
    before = read_outbound(aws)
    places = (pages and _read_at_once(aws, rows, pages)) or _read_in_turn(aws, rows, pages)
    after = read_outbound(aws)
    return replace(places, before=places.before.plus(before), after=places.after.plus(after))


def _read_in_turn(aws: Aws, rows: Sequence[Item], pages: Sequence[Item]) -> Places:
    before = pages_of(get_items(aws, Table.ALLOTMENTS, pages))
    found = _rows(get_items(aws, Table.PRODUCTS, rows))
    return Places(found, before, pages_of(get_items(aws, Table.ALLOTMENTS, pages)))


def _read_at_once(aws: Aws, rows: Sequence[Item], pages: Sequence[Item]) -> Places | None:
    """Read rows and pages in one transaction. Returns None if there are too many, or a concurrent writer changes one."""
    if len(rows) + len(pages) > _MAX_IN_TRANSACTION:
        return None
    wanted: Any = [
        {"Get": {"TableName": aws.tables[table], "Key": key}}
        for table, keys in ((Table.PRODUCTS, rows), (Table.ALLOTMENTS, pages))
        for key in keys
    ]
    try:
        answers = aws.dynamodb.transact_get_items(TransactItems=wanted)["Responses"]
    except ClientError as error:
        # A concurrent write of one of these items cancelled this read, and was not cancelled itself: usual in a busy
        # shop.
        # Otherwise, the items exceed 4 MB together, which makes the read invalid.
        if error.response["Error"]["Code"] in _NOT_TOGETHER:
            return None
        raise
    products, allotments = answers[: len(rows)], answers[len(rows) :]
    together = pages_of(found["Item"] for found in allotments if found.get("Item"))
    return Places(_rows(each["Item"] for each in products if each.get("Item")), together, together)


def _rows(items: Iterable[Item]) -> dict[str, Row]:
    return {row["productId"]: row for row in map(decode, items)}


def pages_of(items: Iterable[Item]) -> Pages:
    """Extract the pages from items of the table."""
    by_name: dict[str, Page] = {}
    outbound: dict[str, OutboundPage] = {}
    corrupt: dict[str, str] = {}
    for item in items:
        name = item["page"]["S"]
        try:
            if name in _OUTBOUND:
                outbound[name] = OutboundPage(_OUTBOUND[name], _version_of(item), "")
                outbound[name] = read_outbound_page(item)
            elif _PAGE.fullmatch(name):
                by_name[name] = Page(PageKey(*map(int, name.split("/"))), _version_of(item), "")
                by_name[name] = read_page(item)
        except CorruptItemError as error:
            corrupt[name] = str(error)
    return Pages(by_name, outbound, corrupt)


def _version_of(item: Item) -> int:
    return int(item.get("_version", {}).get("N", "0"))


@dataclass(frozen=True, slots=True)
class Lane:
    """The state of a lane.

    Attributes:
        number: Its number; 0 for the depot.
        lease: The lease of its current or last worker, if any.
        products: The number of products that it holds.
        units: The number of units of all products.
        written_at: Time of the last write to one of its pages, ISO 8601; empty if it has no pages.
    """

    number: int
    lease: LaneLease | None
    products: int
    units: int
    written_at: str

    @classmethod
    def of(cls, number: int, lease: LaneLease | None, pages: Sequence[Page]) -> Lane:
        """Describe a lane from its lease and pages."""
        entries = [entry for page in pages for entry in page.entries.values()]
        units = sum(entry.units for entry in entries)
        written_at = max((page.last_updated_at for page in pages), default="")
        return cls(number, lease, len(entries), units, written_at)

    def shown(self, now: float) -> dict[str, Any]:
        """Describe the lane for other programs. If no lease is valid at `now` (Unix seconds), it has no worker."""
        seconds = max(0.0, self.lease.ends_at - now) if self.lease else 0.0
        return {
            "lane": self.number,
            "worker": self.lease.owner if self.lease and seconds else None,
            "leaseSeconds": round(seconds),
            "products": self.products,
            "units": self.units,
            "writtenAt": self.written_at,
        }


def read_lanes(aws: Aws) -> tuple[list[Lane], Pages]:
    """Read every lane that was ever in use, and the lanes' pages."""
    items = list(scan(aws, Table.ALLOTMENTS))
    pages = pages_of(items)
    leases = {
        lease.lane: lease
        for item in items
        if _LEASE.fullmatch(item["page"]["S"]) and (lease := read_lease(item)).owner
    }
    by_lane: dict[int, list[Page]] = {lane: [] for lane in leases}
    for page in pages.by_name.values():
        by_lane.setdefault(page.key.lane, []).append(page)
    lanes = [Lane.of(number, leases.get(number), by_lane[number]) for number in sorted(by_lane)]
    return lanes, pages


def empty_lanes(
    store: Store, product_ids: Collection[str], on_progress: Callable[[int], None]
) -> list[str]:
    """Reclaim all units of products from lanes. It may be interrupted and run again.

    `on_progress` is called with the number of products that were just completed.

    Returns:
        Errors of items that cannot be read. The units in all other items were reclaimed, except units of products with
            a lease that does not end in time.
    """
    clock, policy = SystemClock(), RetryPolicy()
    client = RetryingClient(store, policy, clock)
    problems: list[str] = []
    # Reclaiming products on the same pages needs few writes.
    left = sorted(product_ids, key=lambda product_id: PageKey.of(DEPOT, product_id))
    while left:
        now, left = left[:_RECLAIMED_TOGETHER], left[_RECLAIMED_TOGETHER:]
        deadline, stats = Deadline.after(_PATIENCE, clock), CommitStats()
        snapshot = store.read(now)
        problems += map(str, snapshot.unreadable.values())
        left += [key for key in snapshot.unprocessed if isinstance(key, str)]
        rows = [row for row in snapshot.products.values() if row is not None]
        try:
            reclaim(Depot(client), rows, deadline, stats)
        except CorruptItemError as error:
            problems.append(str(error))
        on_progress(len(now) - len(snapshot.unprocessed))
    return problems
