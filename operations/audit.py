"""The books: every product's stock, explained by its adjustments and orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inventory_orders.domain.change import OrderStatus
from inventory_orders.store.rows import decode
from operations.aws import Aws

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True, slots=True)
class Account:
    """One incarnation of a product.

    Attributes:
        product_id: The product.
        created_at: Which incarnation.
        status: The product's status; `DELISTED` if its row is gone.
        version: The row's version; 0 if the row is gone.
        stock: Units on hand, from the row; 0 if the row is gone.
        adjusted: Sum of its adjustments, in units.
        sold: Units in orders that hold stock.
    """

    product_id: str
    created_at: str
    status: str
    version: int
    stock: int
    adjusted: int
    sold: int

    @property
    def difference(self) -> int:
        """Unexplained units; 0 when the books balance."""
        return self.stock - (self.adjusted - self.sold)


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
    """Read all three tables with strong consistency, and add up.

    Exact only while nothing writes: the tables are read one after the other.
    """
    products = {
        (row["productId"], row["createdAt"]): row for row in read_rows(aws, "ProductsTableName")
    }
    adjustments = list(read_rows(aws, "StockAdjustmentsTableName"))
    adjusted: dict[tuple[str, str], int] = {}
    for row in adjustments:
        key = (row["productId"], row["productCreatedAt"])
        adjusted[key] = adjusted.get(key, 0) + row["delta"]
    sold: dict[tuple[str, str], int] = {}
    orders = {row["orderId"]: row for row in read_rows(aws, "OrdersTableName")}
    for row in orders.values():
        for line in row["items"]:
            if _holds_stock(row, line):
                key = (line["productId"], line["productCreatedAt"])
                sold[key] = sold.get(key, 0) + line["quantity"]
    gone = {"stockCount": 0, "status": "DELISTED", "_version": 0}
    accounts = [
        Account(
            product_id=key[0],
            created_at=key[1],
            status=(row := products.get(key, gone))["status"],
            version=row["_version"],
            stock=row["stockCount"],
            adjusted=adjusted.get(key, 0),
            sold=sold.get(key, 0),
        )
        for key in sorted(products.keys() | adjusted.keys() | sold.keys())
    ]
    return Books(tuple(accounts), orders, adjustments)


def _holds_stock(order: Mapping[str, Any], line: Mapping[str, Any]) -> bool:
    """Whether a line counts as sold.

    A cancelled line whose incarnation was already delisted returned no units, so it still counts.
    """
    taken = "productCreatedAt" in line
    return taken and (order["status"] == OrderStatus.PENDING or "returnedVersion" not in line)


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
    """List every change of a product's stock in order of version, with the gaps between them."""
    key = (account.product_id, account.created_at)
    found: list[tuple[int | None, str, int, str]] = [
        (
            row.get("productVersion"),
            row["appliedAt"],
            row["delta"],
            f"{row['reason']} {row['adjustmentId']}",
        )
        for row in books.adjustments
        if (row["productId"], row["productCreatedAt"]) == key
    ]
    for order in books.orders.values():
        for line in order["items"]:
            if (line["productId"], line.get("productCreatedAt")) != key:
                continue
            name = f"order {order['orderId']}"
            version, quantity = line["productVersion"], line["quantity"]
            found.append((version, order["createdAt"], -quantity, name))
            if not _holds_stock(order, line):
                returned = line["returnedVersion"]
                found.append((returned, order["lastUpdatedAt"], quantity, f"{name} cancelled"))
    entries: list[Entry] = []
    stock, seen = 0, 0
    for version, at, delta, what in _by_version(found):
        if version is not None and version > seen + 1:
            missing = f"{seen + 1}" if version == seen + 2 else f"{seen + 1} to {version - 1}"
            entries.append(Entry(None, "", 0, f"(version {missing}: {_GAP})", stock))
        stock += delta
        entries.append(Entry(version, at, delta, what, stock))
        seen = max(seen, version or 0)
    if account.version > seen:
        left = f"{seen + 1}" if account.version == seen + 1 else f"{seen + 1} to {account.version}"
        entries.append(Entry(None, "", 0, f"(version {left}: {_GAP})", stock))
    return entries


_GAP = "no change of stock by version: details, price, lease, or an atomic decrement"


def _by_version(
    found: list[tuple[int | None, str, int, str]],
) -> list[tuple[int | None, str, int, str]]:
    """Sort by version; a change without a version is placed by its time."""
    with_version = sorted((entry for entry in found if entry[0] is not None), key=lambda e: e[:2])
    result = list(with_version)
    for entry in sorted((entry for entry in found if entry[0] is None), key=lambda e: e[1]):
        position = next((i for i, other in enumerate(result) if other[1] > entry[1]), len(result))
        result.insert(position, entry)
    return result


def read_rows(aws: Aws, output: str) -> Iterator[dict[str, Any]]:
    """Yield all rows of a table, read with strong consistency.

    Args:
        aws: The stack that the table belongs to.
        output: Name of the stack output that holds the table's name.
    """
    client: DynamoDBClient = aws.dynamodb
    pages = client.get_paginator("scan").paginate(
        TableName=aws.outputs[output], ConsistentRead=True
    )
    for page in pages:
        for item in page["Items"]:
            yield decode(item)
