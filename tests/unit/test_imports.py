"""Imports of other shops' exports: everything is checked before anything is written, and a proof compares the numbers."""

import csv
import shutil

import pytest
from typer.testing import CliRunner

from inventory_orders.domain.location import stock_key
from inventory_orders.domain.record import OrderKey, OrderStatus
from inventory_orders.store.tables import Table
from local import ROOT
from local.commands.main import app
from operations.commands import imports as import_commands
from operations.stock import read_stock

SHOPIFY = ROOT / "events" / "shopify"


@pytest.fixture
def shopify(shop, tmp_path, monkeypatch):
    """Import copies of the sample export, some of whose lines may be changed before."""
    monkeypatch.setattr(import_commands, "aws_of", lambda *_: shop.stack)
    folder = shutil.copytree(SHOPIFY, tmp_path / "shopify")

    def run(*more, without=(), **edits):
        for name, changes in edits.items():
            path = next(folder.glob(f"{name}*.csv"))
            text = path.read_bytes().decode()
            for old, new in changes.items():
                assert text.count(old) == 1
                text = text.replace(old, new)
            path.write_bytes(text.encode())
        exports = ("products", "inventory", "orders")
        files = {name: f"{name}_export.csv" for name in exports}
        files |= {name: f"{name}.csv" for name in ("locations", "shipped") if name not in without}
        options = [part for name in files for part in (f"--{name}", str(folder / files[name]))]
        command = ["import", "shopify", *options, *more]
        return CliRunner().invoke(app, command, env={"COLUMNS": "300"})

    run.folder = folder
    return run


def rows_of(shop):
    tables = set(Table) - {Table.MOVEMENTS}
    return {table: dict(shop.items(table)) for table in tables}


def numbers(shop, product_id, location_id=""):
    level = read_stock(shop.stack, stock_key(product_id, location_id))
    return level.available, level.committed, level.on_hand


def proof(folder):
    with (folder / "inventory_export.csv.proof.csv").open(encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def refused(shop, done, *said):
    """Check that an import was refused for all of these reasons, and that nothing was written."""
    assert done.exit_code == 1, done.output
    assert "Nothing was written." in done.output
    for each in said:
        assert each in done.output
    assert not any(rows_of(shop).values())


def test_an_export_is_imported_with_a_proof_and_a_second_time_changes_nothing(shop, shopify):
    checked = shopify("--check")
    assert checked.exit_code == 0, checked.output
    assert not any(rows_of(shop).values())
    done = shopify()
    assert done.exit_code == 0, done.output
    assert "5 products and 5 open orders; other orders: 1 cancelled, 1 shipped" in done.output
    assert "Proof: 8 stock levels, all as in the export" in done.output
    assert numbers(shop, "JP-50", "berlin") == (34, 3, 37)
    assert numbers(shop, "OOLONG~20100", "berlin") == (23, 2, 25)
    assert numbers(shop, "POT-1") == (0, 0, 0), "its stock is elsewhere"
    product = shop.product("JP-50")
    assert (product.name, product.barcodes) == ("Jasmine Pearls - 50 g", {"04006381333931"})
    assert shop.product("MUG-1").is_discontinued, "it is archived"
    (line,) = (each for each in proof(shopify.folder) if (each["productId"], each["locationId"]) == ("JP-50", "berlin"))  # fmt: skip
    assert (line["exported on hand"], line["onHand"], line["unavailable"]) == ("40", "37", "3")
    before = rows_of(shop)
    again = shopify()
    assert again.exit_code == 0, again.output
    assert rows_of(shop) == before


def test_open_orders_keep_their_ids_and_units_and_paid_ones_are_confirmed(shop, shopify):
    assert shopify().exit_code == 0
    orders = {key: shop.record(OrderKey(key)) for (key,) in shop.items(Table.ORDERS)}
    assert {key[-1]: order.status for key, order in orders.items()} == {
        "3": OrderStatus.CONFIRMED, "5": OrderStatus.CONFIRMED, "6": OrderStatus.CONFIRMED,
        "7": OrderStatus.PENDING, "8": OrderStatus.CONFIRMED,
    }  # fmt: skip
    unpaid, partial = orders["6105310000007"], orders["6105310000006"]
    assert (unpaid.expires_at, unpaid.user_id) == (None, "lee@example.com")
    assert unpaid.attributes == {"orderName": "#1007"}
    assert [(line.product_id, line.quantity) for line in partial.lines] == [("JP-50", 2)]
    assert orders["6105310000003"].user_id == "guest"


REFUSALS = {
    "a SKU is missing": ({"products": {"MUG-1": ""}}, "Variant SKU: is missing; give it an SKU"),
    "a SKU occurs twice": ({"products": {"MUG-1": "POT-1"}}, "line 7 has the SKU POT-1, too"),
    "a spreadsheet has rounded a SKU": ({"products": {"MUG-1": "4.00638E+12"}}, "ROUNDED_CODE"),
    "a fraction of a unit": ({"inventory": {"23,25": "23.5,25"}}, 'but is "23.5"'),
    "numbers that do not add up": ({"inventory": {"23,25": "23,26"}}, "units add up to 25; export again"),
    "an oversold product": ({"inventory": {"1,0,1,": "1,-1,0,"}}, "Available: 1 units are oversold"),
    "more shortage than orders": ({"inventory": {"1,0,1,": "1,-2,-1,"}}, "-1 units are left; count them"),
    "an unknown location": ({"locations": {"Shop Lyon": "Lyon"}}, "Shop Lyon is not in the file"),
    "different products": ({"products": {"POT-1": "POT-2"}}, "POT-1 is not in the file of products", "POT-2 is not in the file of inventory"),
    "another number of committed units": ({"inventory": {"0,2,23,25": "0,1,24,25"}}, "1 unit of OOLONG~20100 committed (1 at berlin), but 2 units in open orders (1 in #1007, 1 in #1005)"),
    "no order for a location": ({"orders": {"17:40:05 +0100,1,": "17:40:05 +0100,2,"}, "inventory": {"0,0,5,5": "0,1,4,5"}}, "2 units of POT-1 committed (1 at berlin, 1 at lyon), but 2 units in open orders (2 in #1008)"),
    "an unknown status of payment": ({"orders": {"partially_refunded": "disputed"}}, "disputed is unknown"),
    "a partly shipped line without a number": ({"shipped": {"#1006,JP-50,1\n": ""}}, "PARTLY_SHIPPED"),
    "a number for an unknown line": ({"shipped": {"#1006": "#1106"}}, "no open order of the export has this name and SKU"),
    "an order exported twice": ({"orders": {"6105310000007": "6105310000008"}}, "the order is at line 2, too"),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSALS)
def test_an_import_is_refused_with_each_reason_before_anything_is_written(shop, shopify, why):
    edits, *said = REFUSALS[why]
    refused(shop, shopify(**edits), *said)
