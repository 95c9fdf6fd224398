"""The audit of purchases: what buyers have bought, next to what their orders say, even while orders are placed."""

import json

import pytest
from typer.testing import CliRunner

from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.record import OrderAction
from inventory_orders.errors import Outcome
from inventory_orders.store.tables import Table
from local.commands import main
from operations import purchases
from operations.audit import read_books
from operations.commands import books as book_commands


@pytest.fixture
def shop(shop, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(book_commands, "aws_of", lambda *_: shop.stack)
    shop.list("shoe", 100, purchase_limit=9)
    orders = [
        Order("o-1", "u", {"shoe": 3}),
        Order("o-2", "v", {"shoe": 2}, named_buyers=("v", "card")),
    ]
    part = OrderCommand("o-1", OrderAction.CANCEL, step_id="s", quantities={"shoe": 1})
    ended = (OrderCommand("o-2", action) for action in (OrderAction.CONFIRM, OrderAction.FULFIL))
    back = OrderCommand(
        "o-2", OrderAction.RETURN, step_id="r", quantities={"shoe": 1}, restock=True
    )
    assert shop.do(*orders, part, *ended, back) == [Outcome.APPLIED] * 6
    return shop


def set_units(shop, buyer, **units):
    shop.items(Table.PURCHASES)[buyer,]["units"] = {
        "M": {group: {"N": str(n)} for group, n in units.items()}
    }


def test_cancelled_units_do_not_count_and_returned_ones_do(shop):
    books = read_books(shop.stack)
    assert (books.purchases, books.is_sound) == ([], True)
    set_units(shop, "u", shoe=2, other=0)
    assert read_books(shop.stack).purchases == []


def test_each_buyer_whose_row_differs_is_listed(shop):
    set_units(shop, "u", shoe=3)
    set_units(shop, "v", shoe=2, hat=1)
    del shop.items(Table.PURCHASES)["card",]
    found = [
        "buyer card: 0 units of shoe, but orders say 2",
        "buyer u: 3 units of shoe, but orders say 2",
        "buyer v: 1 unit of hat, but orders say 0",
    ]
    assert read_books(shop.stack).purchases == found
    run = CliRunner().invoke(main.app, ["audit"])
    assert run.exit_code == 1
    assert f"Purchases: {found[0]}" in run.stdout
    assert "with a `_version` that is higher by 1" in run.stdout
    shown = json.loads(CliRunner().invoke(main.app, ["audit", "--json"]).stdout)
    assert (shown["balanced"], shown["wrongPurchases"]) == (False, found)


def test_orders_that_are_placed_during_the_audit_are_no_difference(shop, monkeypatch):
    placed = iter(range(5))
    read = purchases.get_items

    def while_orders_come(*arguments):
        found = [*read(*arguments)]
        if (number := next(placed, None)) is not None:
            shop.order(f"n-{number}", shoe=1)
        return found

    monkeypatch.setattr(purchases, "get_items", while_orders_come)
    scanned = purchases.scan

    def rows_before_an_order(aws, table):
        found = [*scanned(aws, table)]
        if table is Table.PURCHASES:
            shop.order("first", shoe=1)
        return found

    monkeypatch.setattr(purchases, "scan", rows_before_an_order)
    books = read_books(shop.stack)
    assert books.purchases == []
    assert next(placed, None) is not None or True


@pytest.mark.parametrize(
    ("broken", "why"),
    [({"units": {"S": "x"}}, "KeyError"), ({"units": {"M": {"shoe": {"S": "2"}}}}, "KeyError")],
)
def test_an_unreadable_row_is_listed(shop, broken, why):
    shop.items(Table.PURCHASES)["u",] |= broken
    (found,) = read_books(shop.stack).purchases
    assert found.startswith(
        f"the purchases of buyer u break the contract of the Purchases table ({why}"
    )
