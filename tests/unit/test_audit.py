"""The audit reads a product and what happened to it up to that version, and nothing later."""

from types import SimpleNamespace

import pytest

from operations import audit
from operations.audit import Account, Books, add_up, history

BORN = "2026-01-01T00:00:00.000000+00:00"


def product(stock, version):
    return {
        "productId": "p",
        "createdAt": BORN,
        "stockCount": stock,
        "_version": version,
        "status": "ACTIVE",
    }


def adjustment(name, delta, version=None, reason="RECEIPT"):
    row = {
        "productId": "p",
        "adjustmentId": name,
        "productCreatedAt": BORN,
        "delta": delta,
        "reason": reason,
        "appliedAt": f"2026-01-01T00:00:{version or 0:02}",
    }
    return row if version is None else row | {"productVersion": version}


def order(name, quantity, version, returned=None, status="PENDING"):
    line = {"productId": "p", "quantity": quantity, "productCreatedAt": BORN}
    line |= {"productVersion": version}
    if returned is not None:
        line["returnedVersion"] = returned
    at = f"2026-01-01T00:00:{version:02}"
    return {
        "orderId": name,
        "items": [line],
        "status": status,
        "createdAt": at,
        "lastUpdatedAt": at,
    }


OPENING = adjustment("opening", 10, 1, "OPENING")


@pytest.mark.parametrize(
    ("row", "orders"),
    [
        (product(8, 2), [order("a", 2, 2)]),
        (product(8, 2), [order("a", 2, 2), order("later", 5, 3)]),
        (product(10, 3), [order("a", 2, 2, returned=3, status="CANCELLED")]),
        (product(8, 2), [order("a", 2, 2, returned=3, status="CANCELLED")]),
        (product(10, 1), [order("a", 2, 2, returned=3, status="CANCELLED")]),
        (product(10, 1), [{"orderId": "rejected", "items": [{"productId": "p", "quantity": 2}]}]),
        (product(8, 2), [order("shipped", 2, 2, status="SHIPPED"), {"orderId": "odd"}]),
    ],
)
def test_what_has_a_later_version_than_the_row_is_left_out(row, orders):
    (account,) = add_up([row], [OPENING], orders)
    assert account.difference == 0


def test_a_later_adjustment_is_left_out_and_one_without_version_counts():
    adjustments = [OPENING, adjustment("late", 5, 9), adjustment("atomic", -1)]
    (account,) = add_up([product(9, 2)], adjustments, [])
    assert (account.adjusted, account.difference) == (9, 0)


def test_a_unit_taken_by_hand_is_a_difference():
    (account,) = add_up([product(7, 2)], [OPENING], [order("a", 2, 2)])
    assert account.difference == account.unexplained == -1


def test_a_difference_that_is_not_settled_is_not_unexplained():
    (account,) = add_up([product(7, 2)], [OPENING], [], unsettled={"p"})
    assert (account.difference, account.unexplained) == (-3, 0)


@pytest.mark.parametrize("looks", [5, 6])
def test_a_difference_is_found_beside_a_product_that_never_settles(monkeypatch, looks):
    busy = "busy"
    rows = {
        "ProductsTableName": [product(7, 2), product(7, 2) | {"productId": busy}],
        "StockAdjustmentsTableName": [OPENING, OPENING | {"productId": busy}],
        "OrdersTableName": [order("a", 2, 2)],
    }

    def look_at(_, product_id):
        of_product = [
            next(row for row in rows[table] if row["productId"] == product_id)
            for table in ("ProductsTableName", "StockAdjustmentsTableName")
        ]
        return audit._Look(product_id, of_product[0], of_product[1:], product_id != busy)

    monkeypatch.setattr(audit, "read_rows", lambda _, table: iter(rows[table]))
    monkeypatch.setattr(audit, "_look_at", look_at)
    monkeypatch.setattr(audit, "_PAUSE", 0)
    monkeypatch.setattr(audit, "_LOOKS", looks)
    found = {account.product_id: account for account in audit.read_books(None).accounts}
    assert found["p"].unexplained == -1
    assert not found[busy].settled


def test_a_delisted_incarnation_comes_to_nothing():
    closing = adjustment("closing", -8, 3, "CLOSING")
    sold = order("a", 2, 2, status="CANCELLED")
    (account,) = add_up([], [OPENING, closing], [sold])
    assert (account.status, account.stock, account.difference) == ("DELISTED", 0, 0)


def test_a_history_ends_at_the_version_that_was_read():
    orders = {"a": order("a", 2, 2), "later": order("later", 5, 3)}
    account = Account("p", BORN, "ACTIVE", 2, 8, 10, 2)
    entries = history(Books((account,), orders, [OPENING]), account)
    assert [(entry.version, entry.stock) for entry in entries] == [(1, 10), (2, 8)]


class PagedTables:
    """A product whose books do not balance, in tables that are read a page at a time."""

    def __init__(self):
        self.inconsistent = []
        self.row = {
            name: {"N": str(value)} if isinstance(value, int) else {"S": value}
            for name, value in product(5, version=1).items()
        }

    def get_paginator(self, operation):
        return SimpleNamespace(paginate=lambda **request: self.pages(operation, **request))

    def pages(self, operation, TableName, ConsistentRead=False, **_):
        self.inconsistent += [] if ConsistentRead else [operation]
        return [{"Items": []}, {"Items": [self.row] if TableName == "Products" else []}]

    def get_item(self, ConsistentRead=False, **_):
        self.inconsistent += [] if ConsistentRead else ["get_item"]
        return {"Item": self.row}


def test_every_page_is_read_and_all_with_strong_consistency(monkeypatch):
    monkeypatch.setattr(audit.time, "sleep", lambda _: None)
    names = ("Products", "Orders", "StockAdjustments")
    tables = PagedTables()
    aws = SimpleNamespace(dynamodb=tables, outputs={f"{name}TableName": name for name in names})
    (account,) = audit.read_books(aws).accounts
    assert account.unexplained == 5
    assert tables.inconsistent == []
