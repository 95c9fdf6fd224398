"""Audits the books, even while orders are placed, and explains the stock of every product at every location.

In this module, a product id is the key of a row (`inventory_orders.domain.location`).

The audit reads a product's row and its pages first, then its adjustments and orders. These record which version of the
row or page they wrote, in the same transaction. So the audit finds every change up to the version that it read, and
ignores changes with a later version.

It reads a product again in three cases. An atomic decrement does not record a version, so a product with recent
decrements is read again until no decrement arrives during the read. If units moved during the read, between row and
lanes or from an outbound page into the row, they may be missing or counted twice. If the books differ, the difference
counts only if the next read shows it too.

Source: a strongly consistent read returns all writes that succeeded before it,
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.ReadConsistency.html
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, count
from typing import Any

from inventory_orders.clock import timestamp
from inventory_orders.domain.allotments import DEPOT, PageKey
from inventory_orders.domain.location import product_of, stock_key
from inventory_orders.domain.outbound import Generation
from inventory_orders.errors import UnpublishableError
from inventory_orders.store import movements
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import KEYS, Table

from .aws import Aws, get_items, query, scan
from .barcodes import stray_barcodes
from .books import (
    FINE,
    GONE,
    Account,
    Books,
    Finding,
    add_up_places,
    booked,
)
from .faults import faults_of, problems_of
from .lanes import Pages, Places, read_all, read_outbound, read_pages, read_places
from .movements import Row, adjustment_of, check_types, movements_of
from .purchases import wrong_purchases

# An adjustment has the time at which its invocation began. It may be in flight for as long as an invocation lasts (at
# most 15 minutes), by a clock that may be a minute off.
_IN_FLIGHT_SECONDS = 16 * 60

# The number of times that the audit reads doubtful products again, and its pause before each read, in seconds.
_REREADS = 6
_PAUSE = 0.25
# The number of times that products are read again immediately, until no atomic decrement arrives in between.
_TRIES = 20
_SIDE_BY_SIDE = 8


def audited_tables(aws: Aws) -> list[Table]:
    """The tables that `read_books` reads."""
    tables = [Table.PRODUCTS, Table.STOCK_ADJUSTMENTS, Table.ORDERS, Table.ALLOTMENTS]
    tables += [Table.BARCODES, Table.PURCHASES]
    return [*tables, Table.MOVEMENTS] if aws.has_movements else tables


_PROGRESS_ROWS = 1_000


def read_books(aws: Aws, on_progress: Callable[[int], object] = lambda _: None) -> Books:
    """Read all tables with strong consistency, and add up the books. The result is correct even while other programs write.

    Args:
        aws: The stack.
        on_progress: Called with the number of adjustments and orders read so far.
    """
    corrupt: dict[str, str] = {}
    reading, corrupt_pages = _read_tables(aws, corrupt, on_progress)
    reading = _confirmed(aws, reading, corrupt)
    accounts = tuple(account for _, account in sorted(reading.accounts.items()))
    wrong = _compare_movements(aws, reading.orders.values()) if aws.has_movements else (0, 0)
    strays = stray_barcodes(aws)
    return Books(
        *(accounts, reading.orders, reading.adjustments, corrupt_pages, corrupt, wrong, strays),
        wrong_purchases(aws, reading.orders.values()),
    )


def _compare_movements(aws: Aws, orders: Iterable[dict[str, Any]]) -> tuple[int, int]:
    """Compare movements with orders that have not changed since movements are complete.

    Returns:
        How many movements are missing or differ, and how many no order accounts for.
    """
    until = movements.complete_until(aws.store()) or ""
    settled = {each["orderId"]: each for each in orders if each.get("lastUpdatedAt", "~") <= until}
    rows = (row for row in read_rows(aws, Table.MOVEMENTS) if row.get("orderId") in settled)
    stored = {(row["stockMonth"], row["movementId"]): row for row in rows}
    differing = map(partial(_differing, stored), settled.values())
    wrong = Counter(chain.from_iterable(differing))
    surplus = Counter(row["orderId"] for row in stored.values())
    # An order may have changed after it was read, and its movements with it.
    now = read_orders(aws, (wrong + surplus).keys())
    same = [order_id for order_id, order in now.items() if order == settled[order_id]]
    return sum(map(wrong.__getitem__, same)), sum(map(surplus.__getitem__, same))


def _differing(stored: dict[movements.Key, dict[str, Any]], order: dict[str, Any]) -> Iterator[str]:
    """Yield the order's id for each of its movements that is not stored like that. Removes them from the stored ones."""
    with suppress(UnpublishableError):
        for key, row in movements.rows_of(order).items():
            if stored.pop(key, None) != row:
                yield order["orderId"]


def read_accounts(aws: Aws, product_ids: Iterable[str], order_ids: Iterable[str]) -> list[Account]:
    """Read the accounts of some products without scanning tables.

    `order_ids` must include every order that may have taken their stock.
    """
    corrupt: dict[str, str] = {}
    products = _read_products(aws, product_ids, read_pages(aws).by_name, corrupt)
    orders = _readable(Table.ORDERS, read_orders(aws, order_ids).values(), corrupt)
    return _add_up_products(products, list(orders), read_outbound(aws))


@dataclass(frozen=True, slots=True)
class _Reading:
    """The result of reading the tables once: accounts by generation, and the rows that they are computed from."""

    accounts: Mapping[Generation, Account] = field(default_factory=dict)
    adjustments: Sequence[Row] = ()
    orders: Mapping[str, dict[str, Any]] = field(default_factory=dict)


def _confirmed(aws: Aws, reading: _Reading, corrupt: dict[str, str]) -> _Reading:
    """Read doubtful products again until two reads agree. Products whose reads never agree stay unsettled."""
    confirmed: dict[Generation, Finding] = {}

    def is_doubtful(account: Account) -> bool:
        fine = account.finding in (FINE, confirmed.get(account.generation))
        return not (account.settled and fine)

    for _ in range(_REREADS):
        doubtful = [account for account in reading.accounts.values() if is_doubtful(account)]
        if not doubtful:
            break
        confirmed |= {a.generation: a.finding for a in doubtful if a.settled}
        time.sleep(_PAUSE)
        reading = _read_again(aws, _with_locations(doubtful, reading), reading, corrupt)
    accounts = {
        key: replace(account, settled=not is_doubtful(account))
        for key, account in reading.accounts.items()
    }
    return replace(reading, accounts=accounts)


def _with_locations(doubtful: Iterable[Account], reading: _Reading) -> set[str]:
    """Return the keys of doubtful products at all locations, because the rows and adjustments refer to each other."""
    products = {product_of(account.product_id) for account in doubtful}
    keys = {account.product_id for account in doubtful}
    for account in reading.accounts.values():
        if (product := product_of(account.product_id)) in products:
            keys |= {account.product_id, *(stock_key(product, place) for place in account.places)}
    return keys | products


def _read_tables(
    aws: Aws, corrupt: dict[str, str], on_progress: Callable[[int], object]
) -> tuple[_Reading, Mapping[str, str]]:
    """Read all tables once. Also returns the errors of pages, by page name."""
    number = count(1)

    def read(table: Table) -> Iterator[dict[str, Any]]:
        for row in read_rows(aws, table):
            if (so_far := next(number)) % _PROGRESS_ROWS == 0:
                on_progress(so_far)
            yield row

    recent = timestamp(datetime.fromtimestamp(time.time() - _IN_FLIGHT_SECONDS, UTC))
    places = _readable_places(read_all(aws), corrupt)
    rows = booked(read(Table.STOCK_ADJUSTMENTS))
    adjustments = list(_readable(Table.STOCK_ADJUSTMENTS, rows, corrupt))
    orders = _by_id(_readable(Table.ORDERS, read(Table.ORDERS), corrupt))
    # These decrements have no version, so they may have been booked after the product's row was read.
    unsettled = {
        row["productId"]
        for row in adjustments
        if "productVersion" not in row and row["appliedAt"] >= recent
    }
    accounts = add_up_places(
        dict.fromkeys(places.products, places),
        adjustments,
        orders.values(),
        read_outbound(aws),
        unsettled=unsettled,
    )
    closed = {adjustment_of(row).generation for row in adjustments if row["reason"] == "CLOSING"}
    by_generation = {
        account.generation: account
        if account.status != GONE["status"] or account.generation in closed
        # A product without a row may have been created since.
        else replace(account, settled=False)
        for account in accounts
    }
    return _Reading(by_generation, adjustments, orders), places.before.corrupt


def _read_again(
    aws: Aws, product_ids: Collection[str], before: _Reading, corrupt: dict[str, str]
) -> _Reading:
    """Read some products again, each with its adjustments, and then all orders."""
    products = _read_products(aws, product_ids, read_pages(aws).by_name, corrupt)
    orders = _read_all_orders(aws, corrupt)
    added = _add_up_products(products, orders.values(), read_outbound(aws))
    adjustments = [row for row in before.adjustments if row["productId"] not in product_ids]
    adjustments += [row for product in products.values() for row in product.adjustments]
    accounts = {key: a for key, a in before.accounts.items() if a.product_id not in product_ids}
    accounts |= {a.generation: a for a in added}
    return _Reading(accounts, adjustments, orders)


# ---------------------------------------------------------------------- single products


@dataclass(frozen=True, slots=True)
class _Product:
    """A product's units and adjustments, read together.

    It is settled if no atomic decrement arrived during the read.
    """

    places: Places
    adjustments: Sequence[Row]
    settled: bool


def _read_products(
    aws: Aws, product_ids: Iterable[str], page_names: Collection[str], corrupt: dict[str, str]
) -> dict[str, _Product]:
    """Read some products, and repeat this until no atomic decrement arrives during the read."""
    products: dict[str, _Product] = {}
    left = sorted(product_ids)
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        before = _read_adjustments(aws, left, pool, corrupt)
        for _ in range(_TRIES):
            places = _read_places(aws, left, page_names, pool, corrupt)
            after = _read_adjustments(aws, left, pool, corrupt)
            for product_id in left:
                settled = _decrements(before[product_id]) == _decrements(after[product_id])
                products[product_id] = _Product(places[product_id], after[product_id], settled)
            left = [product_id for product_id in left if not products[product_id].settled]
            if not left:
                break
            before = after
    return products


def _read_adjustments(
    aws: Aws, product_ids: Sequence[str], pool: Executor, corrupt: dict[str, str]
) -> dict[str, list[Row]]:
    """Read the adjustments of products, by product id."""

    def read(product_id: str) -> list[Row]:
        return list(map(decode, query(aws, Table.STOCK_ADJUSTMENTS, "productId", product_id)))

    return {
        product_id: list(_readable(Table.STOCK_ADJUSTMENTS, booked(rows), corrupt))
        for product_id, rows in zip(product_ids, pool.map(read, product_ids), strict=True)
    }


def _read_places(
    aws: Aws,
    product_ids: Sequence[str],
    page_names: Collection[str],
    pool: Executor,
    corrupt: dict[str, str],
) -> dict[str, Places]:
    """Find the units of products, in rows and pages, by product id. Products on the same pages are read together."""
    groups: dict[int, list[str]] = {}
    for product_id in product_ids:
        groups.setdefault(PageKey.of(DEPOT, product_id).number, []).append(product_id)
    found = pool.map(lambda ids: read_places(aws, ids, page_names), groups.values())
    places: dict[str, Places] = {}
    for ids, read in zip(groups.values(), found, strict=True):
        places |= dict.fromkeys(ids, _readable_places(read, corrupt))
    return places


def _decrements(adjustments: Iterable[Row]) -> set[str]:
    return {row["adjustmentId"] for row in adjustments if "productVersion" not in row}


def _add_up_products(
    products: Mapping[str, _Product], orders: Iterable[Row], latest: Pages
) -> list[Account]:
    accounts = add_up_places(
        {product_id: product.places for product_id, product in products.items()},
        (row for product in products.values() for row in product.adjustments),
        orders,
        latest,
        unsettled={product_id for product_id, each in products.items() if not each.settled},
        read=products.keys(),
    )
    return [account for account in accounts if account.product_id in products]


# ---------------------------------------------------------------------- rows


def _readable(table: Table, rows: Iterable[Row], corrupt: dict[str, str]) -> Iterator[Any]:
    """Yield the readable rows, and record the errors of unreadable rows by table and key."""
    for row in rows:
        try:
            _CHECKS[table](row)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            key = "/".join(row[name] for name in KEYS[table])
            corrupt[f"{table.value} {key}"] = (
                f"{key} breaks the contract of the {table.value} table ({type(error).__name__}: {error}); repair its item"
            )
        else:
            yield row


def _check_product(row: Row) -> None:
    check_types(int, row["stockCount"], row["onHand"], row["_version"])
    check_types(str, row["createdAt"], row["status"])
    list(problems_of(row, {}))


def _check_order(row: Row) -> None:
    for movement in movements_of(row):
        movement.check()
    check_types(str, *(fault.key for fault in faults_of(row)))
    check_types(str, *(line.get("locationId", "") for line in row.get("items", ())))


_CHECKS: Mapping[Table, Callable[[Row], None]] = {
    Table.PRODUCTS: _check_product,
    Table.ORDERS: _check_order,
    Table.STOCK_ADJUSTMENTS: lambda row: adjustment_of(row).check(),
}
"""Functions that read every attribute of a row that the books need, by table. Any exception means that the row is
corrupt.
"""


def _readable_places(places: Places, corrupt: dict[str, str]) -> Places:
    readable = _readable(Table.PRODUCTS, places.rows.values(), corrupt)
    rows = {row["productId"]: row for row in readable}
    return replace(places, rows=rows, unreadable=frozenset(places.rows.keys() - rows.keys()))


def read_orders(aws: Aws, order_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Read some orders with strong consistency, and return the existing ones by id."""
    keys = [{"orderId": {"S": order_id}} for order_id in order_ids]
    return _by_id(map(decode, get_items(aws, Table.ORDERS, keys)))


def _by_id(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["orderId"]: row for row in rows}


def _read_all_orders(aws: Aws, corrupt: dict[str, str]) -> dict[str, dict[str, Any]]:
    return _by_id(_readable(Table.ORDERS, read_rows(aws, Table.ORDERS), corrupt))


def read_rows(aws: Aws, table: Table) -> Iterator[dict[str, Any]]:
    """Yield all rows of a table, read with strong consistency."""
    return map(decode, scan(aws, table))
