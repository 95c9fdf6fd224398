"""The books: every product's stock, explained by its adjustments and orders, also while orders go on.

A product's row is read first, then what happened to it. Adjustments and order lines say which version of the product
they made, in the same transaction as the row. So all that happened up to the row's version is there to be read, and
what has a later version is left out.

Two things need a second look. An atomic decrement knows no version, so a product with recent ones is read again until
none came in between. And a difference counts only if it persists.

Source: a strongly consistent read returns all writes that succeeded before it,
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.ReadConsistency.html
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from inventory_orders.clock import timestamp
from inventory_orders.store.dynamodb import BATCH_GET_LIMIT
from inventory_orders.store.rows import decode
from operations.aws import Aws

Row = Mapping[str, Any]
_Incarnation = tuple[str, str]

# An adjustment bears the time at which its invocation began to write it, so it may be in flight for as long as an
# invocation lasts (15 minutes at the most), by a clock that is a minute off.
_IN_FLIGHT_SECONDS = 16 * 60

# How often what is in doubt is read again, and with what pause before, in seconds.
_LOOKS = 6
_PAUSE = 0.25
# How often one product is read again at once, until no atomic decrement comes in between.
_TRIES = 20
_SIDE_BY_SIDE = 8


@dataclass(frozen=True, slots=True)
class Account:
    """One incarnation of a product, at one version of it.

    Attributes:
        product_id: The product.
        created_at: Which incarnation.
        status: The product's status; `DELISTED` if its row is gone.
        version: The row's version; 0 if the row is gone.
        stock: Units on hand, from the row; 0 if the row is gone.
        adjusted: Sum of its adjustments, in units.
        sold: Units in orders that hold stock.
        settled: Whether this is certain. If not, the product changes too fast to be read.
    """

    product_id: str
    created_at: str
    status: str
    version: int
    stock: int
    adjusted: int
    sold: int
    settled: bool = True

    @property
    def difference(self) -> int:
        """Units by which the row and what happened differ; 0 when the books balance."""
        return self.stock - (self.adjusted - self.sold)

    @property
    def unexplained(self) -> int:
        """Units that are certainly unexplained."""
        return self.difference if self.settled else 0


@dataclass(frozen=True, slots=True)
class Books:
    """All accounts, and the rows that they are computed from.

    Attributes:
        accounts: One for each incarnation of a product.
        orders: All orders, by id.
        adjustments: All adjustments.
    """

    accounts: tuple[Account, ...]
    orders: Mapping[str, dict[str, Any]]
    adjustments: Sequence[Mapping[str, Any]]


def read_books(aws: Aws) -> Books:
    """Read all three tables with strong consistency, and add up. True also while others write."""
    began = time.time()
    products = list(read_rows(aws, "ProductsTableName"))
    adjustments: Sequence[Row] = list(read_rows(aws, "StockAdjustmentsTableName"))
    orders = _read_orders(aws)
    recent = timestamp(datetime.fromtimestamp(began - _IN_FLIGHT_SECONDS, UTC))
    accounts = {
        (account.product_id, account.created_at): account
        for account in add_up(
            products, adjustments, orders.values(), unsettled=_without_version(adjustments, recent)
        )
    }
    # A product whose row was not there may have been created since.
    closed = {_adjustment(row).incarnation for row in adjustments if row["reason"] == "CLOSING"}
    for key, account in accounts.items():
        if account.status == _GONE["status"] and key not in closed:
            accounts[key] = replace(account, settled=False)
    confirmed: dict[_Incarnation, int] = {}
    for _ in range(_LOOKS):
        doubtful = {key for key, account in accounts.items() if _is_doubtful(account, confirmed)}
        if not doubtful:
            break
        confirmed |= {key: accounts[key].difference for key in doubtful if accounts[key].settled}
        time.sleep(_PAUSE)
        again, adjustments, orders = _look_again(aws, {key[0] for key in doubtful}, adjustments)
        accounts = {key: a for key, a in accounts.items() if key not in doubtful} | {
            (account.product_id, account.created_at): account for account in again
        }
    return Books(
        tuple(
            replace(account, settled=account.settled and not _is_doubtful(account, confirmed))
            for _, account in sorted(accounts.items())
        ),
        orders,
        adjustments,
    )


def read_accounts(aws: Aws, product_ids: Iterable[str], order_ids: Iterable[str]) -> list[Account]:
    """Read the accounts of some products, without reading whole tables.

    Args:
        aws: The stack.
        product_ids: The products.
        order_ids: All orders that may have taken their stock.
    """
    wanted = list(product_ids)
    looks = [_look_at(aws, product_id) for product_id in wanted]
    return add_up(
        [look.product for look in looks if look.product is not None],
        [row for look in looks for row in look.adjustments],
        read_orders(aws, order_ids).values(),
        unsettled={look.product_id for look in looks if not look.settled},
        product_ids=wanted,
    )


def _is_doubtful(account: Account, confirmed: Mapping[_Incarnation, int]) -> bool:
    """Whether an account has to be read again: it is unsettled, or its difference was not seen twice."""
    key = (account.product_id, account.created_at)
    return not account.settled or account.difference not in (0, confirmed.get(key))


def _look_again(
    aws: Aws, product_ids: Collection[str], adjustments: Sequence[Row]
) -> tuple[list[Account], list[Row], dict[str, dict[str, Any]]]:
    """Read some products again, each with its adjustments, and then all orders."""
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        looks = list(pool.map(lambda product_id: _look_at(aws, product_id), sorted(product_ids)))
    orders = _read_orders(aws)
    theirs = [row for look in looks for row in look.adjustments]
    accounts = add_up(
        [look.product for look in looks if look.product is not None],
        theirs,
        orders.values(),
        unsettled={look.product_id for look in looks if not look.settled},
        product_ids=product_ids,
    )
    others = [row for row in adjustments if row["productId"] not in product_ids]
    return accounts, [*others, *theirs], orders


@dataclass(frozen=True, slots=True)
class _Look:
    """A product's row, and the adjustments up to it; settled if no atomic decrement came in between."""

    product_id: str
    product: Row | None
    adjustments: Sequence[Row]
    settled: bool


def _look_at(aws: Aws, product_id: str) -> _Look:
    for left in reversed(range(_TRIES)):
        before = _read_adjustments(aws, product_id)
        found = aws.dynamodb.get_item(
            TableName=aws.outputs["ProductsTableName"],
            Key={"productId": {"S": product_id}},
            ConsistentRead=True,
        ).get("Item")
        after = _read_adjustments(aws, product_id)
        settled = _decrements(before) == _decrements(after)
        if settled or not left:
            break
    return _Look(product_id, None if found is None else decode(found), after, settled)


def _decrements(adjustments: Iterable[Row]) -> set[str]:
    return {row["adjustmentId"] for row in adjustments if "productVersion" not in row}


def _without_version(adjustments: Iterable[Row], since: str) -> set[str]:
    """Products with adjustments that bear no version and may have come after the product's row was read."""
    return {
        row["productId"]
        for row in adjustments
        if "productVersion" not in row and row["appliedAt"] >= since
    }


_GONE: Row = {"stockCount": 0, "status": "DELISTED", "_version": 0}


def add_up(
    products: Iterable[Row],
    adjustments: Iterable[Row],
    orders: Iterable[Row],
    *,
    unsettled: Collection[str] = (),
    product_ids: Collection[str] | None = None,
) -> list[Account]:
    """Compare each product's row with what happened to it up to the row's version.

    Args:
        products: Rows of products.
        adjustments: Adjustments, read after the products.
        orders: Orders, read after the products.
        unsettled: Ids of products of which it is not certain that the rows belong together.
        product_ids: Only these products; all if not given.
    """
    rows = {(row["productId"], row["createdAt"]): row for row in products}
    limits = {key: row["_version"] for key, row in rows.items()}
    adjusted: dict[_Incarnation, int] = {}
    sold: dict[_Incarnation, int] = {}
    for sums, movements in (
        (adjusted, (_adjustment(row) for row in adjustments)),
        (sold, (movement for order in orders for movement in _sales(order))),
    ):
        for movement in movements:
            key = movement.incarnation
            if product_ids is not None and key[0] not in product_ids:
                continue
            if movement.version is None or movement.version <= limits.get(key, movement.version):
                sums[key] = sums.get(key, 0) + movement.delta
    return [
        Account(
            product_id=key[0],
            created_at=key[1],
            status=(row := rows.get(key, _GONE))["status"],
            version=row["_version"],
            stock=row["stockCount"],
            adjusted=adjusted.get(key, 0),
            sold=-sold.get(key, 0),
            settled=key[0] not in unsettled,
        )
        for key in sorted(rows.keys() | adjusted.keys() | sold.keys())
    ]


@dataclass(frozen=True, slots=True)
class _Movement:
    """One change of a product's stock.

    Attributes:
        incarnation: Of the product.
        version: Which version it made; None if that is not known.
        at: When.
        delta: Units.
        what: In words.
    """

    incarnation: _Incarnation
    version: int | None
    at: str
    delta: int
    what: str


def _adjustment(row: Row) -> _Movement:
    return _Movement(
        (row["productId"], row["productCreatedAt"]),
        row.get("productVersion"),
        row["appliedAt"],
        row["delta"],
        f"{row['reason']} {row['adjustmentId']}",
    )


def _sales(order: Row) -> Iterator[_Movement]:
    """What the lines of an order took, and gave back.

    A cancelled line whose incarnation was already delisted gave nothing back.
    """
    name = f"order {order['orderId']}"
    for line in order.get("items", ()):
        if "productCreatedAt" not in line:
            continue
        key, quantity = (line["productId"], line["productCreatedAt"]), line["quantity"]
        yield _Movement(key, line.get("productVersion"), order["createdAt"], -quantity, name)
        if "returnedVersion" in line:
            yield _Movement(
                key,
                line["returnedVersion"],
                order["lastUpdatedAt"],
                quantity,
                f"{name} cancelled",
            )


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a product's history.

    Attributes:
        version: The product's version after the change; None for an atomic decrement, which does not read one.
        at: Time of the change, ISO 8601; empty for a gap.
        delta: Change of stock, in units; 0 for a gap.
        what: The change, in words.
        stock: Units on hand after the change.
    """

    version: int | None
    at: str
    delta: int
    what: str
    stock: int


def history(books: Books, account: Account) -> list[Entry]:
    """List every change of a product's stock up to its version, in order, with the gaps between them."""
    key = (account.product_id, account.created_at)
    movements = [
        *map(_adjustment, books.adjustments),
        *(movement for order in books.orders.values() for movement in _sales(order)),
    ]
    found = [
        movement
        for movement in movements
        if movement.incarnation == key
        and (not account.version or (movement.version or 0) <= account.version)
    ]
    entries: list[Entry] = []
    stock, seen = 0, 0
    for movement in _by_version(found):
        version = movement.version
        if version is not None and version > seen + 1:
            missing = f"{seen + 1}" if version == seen + 2 else f"{seen + 1} to {version - 1}"
            entries.append(Entry(None, "", 0, f"(version {missing}: {_GAP})", stock))
        stock += movement.delta
        entries.append(Entry(version, movement.at, movement.delta, movement.what, stock))
        seen = max(seen, version or 0)
    if account.version > seen:
        left = f"{seen + 1}" if account.version == seen + 1 else f"{seen + 1} to {account.version}"
        entries.append(Entry(None, "", 0, f"(version {left}: {_GAP})", stock))
    return entries


_GAP = "no change of stock by version: details, price, lease, or an atomic decrement"


def _by_version(found: Iterable[_Movement]) -> list[_Movement]:
    """Sort by version; a change without a version is placed by its time."""
    every = sorted(found, key=lambda movement: movement.at)
    result = sorted((m for m in every if m.version is not None), key=lambda m: m.version or 0)
    for movement in (m for m in every if m.version is None):
        position = next((i for i, m in enumerate(result) if m.at > movement.at), len(result))
        result.insert(position, movement)
    return result


def read_orders(aws: Aws, order_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Read some orders with strong consistency. Returns those that exist, by id."""
    table = aws.outputs["OrdersTableName"]
    left = [{"orderId": {"S": order_id}} for order_id in order_ids]
    found: dict[str, dict[str, Any]] = {}
    while left:
        now, left = left[:BATCH_GET_LIMIT], left[BATCH_GET_LIMIT:]
        answer: Any = aws.dynamodb.batch_get_item(
            RequestItems={table: {"Keys": now, "ConsistentRead": True}}
        )
        for item in answer["Responses"].get(table, []):
            row = decode(item)
            found[row["orderId"]] = row
        left += answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
    return found


def _read_orders(aws: Aws) -> dict[str, dict[str, Any]]:
    return {row["orderId"]: row for row in read_rows(aws, "OrdersTableName")}


def _read_adjustments(aws: Aws, product_id: str) -> list[Row]:
    pages = aws.dynamodb.get_paginator("query").paginate(
        TableName=aws.outputs["StockAdjustmentsTableName"],
        KeyConditionExpression="#productId = :productId",
        ExpressionAttributeNames={"#productId": "productId"},
        ExpressionAttributeValues={":productId": {"S": product_id}},
        ConsistentRead=True,
    )
    return [decode(item) for page in pages for item in page["Items"]]


def read_rows(aws: Aws, output: str) -> Iterator[dict[str, Any]]:
    """Yield all rows of a table, read with strong consistency.

    Args:
        aws: The stack that the table belongs to.
        output: Name of the stack output that holds the table's name.
    """
    pages = aws.dynamodb.get_paginator("scan").paginate(
        TableName=aws.outputs[output], ConsistentRead=True
    )
    for page in pages:
        for item in page["Items"]:
            yield decode(item)
