"""Imports of other shops' exports: everything is checked before anything is written, and a proof compares the numbers."""

import csv
import itertools
import shutil
import tracemalloc

import pytest
from typer.testing import CliRunner

from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.location import stock_key
from inventory_orders.domain.order import Order
from inventory_orders.domain.record import OrderKey, OrderStatus
from inventory_orders.errors import ContentionError
from inventory_orders.messages.commands import order_in
from inventory_orders.store.tables import Table
from local import ROOT
from local.commands.main import app
from operations import load
from operations.cells import as_id, code_of
from operations.commands import imports as import_commands
from operations.commands import levels as level_commands
from operations.creations import Creation, create_many
from operations.errors import UserError
from operations.imports import shopify as shopify_files
from operations.imports import writing
from operations.imports.assignment import assigned
from operations.imports.staging import Staging
from operations.stock import read_stock


class Export:
    """A copy of a sample export, whose files a test may change before it imports them."""

    def __init__(self, kind, folder, files):
        self.kind, self.files = kind, files
        self.folder = shutil.copytree(ROOT / "events" / kind, folder)

    def path(self, name):
        return self.folder / self.files[name]

    def edit(self, **edits):
        """Replace texts, each of which occurs once in its file."""
        for name, changes in edits.items():
            text = self.path(name).read_bytes().decode()
            for old, new in changes.items():
                assert text.count(old) == 1
                text = text.replace(old, new)
            self.path(name).write_bytes(text.encode())

    def run(self, *more, without=(), **edits):
        self.edit(**edits)
        names = [name for name in self.files if name not in without]
        options = [part for name in names for part in (f"--{name}", str(self.path(name)))]
        command = ["import", self.kind, *options, *more]
        return CliRunner().invoke(app, command, env={"COLUMNS": "300"})

    def proof(self):
        (path,) = self.folder.glob("*.proof.csv")
        with path.open(encoding="utf-8-sig") as file:
            return list(csv.DictReader(file))


@pytest.fixture
def shopify(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(import_commands, "aws_of", lambda *_: shop.stack)
    files = {name: f"{name}_export.csv" for name in ("products", "inventory", "orders")}
    files |= {name: f"{name}.csv" for name in ("locations", "shipped")}
    return Export("shopify", tmp_path / "shopify", files)


@pytest.fixture
def woocommerce(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(import_commands, "aws_of", lambda *_: shop.stack)
    files = {name: f"{name}.csv" for name in ("products", "orders")}
    return Export("woocommerce", tmp_path / "woocommerce", files)


def rows_of(shop):
    tables = set(Table) - {Table.MOVEMENTS}
    return {table: dict(shop.items(table)) for table in tables}


def numbers(shop, product_id, location_id=""):
    level = read_stock(shop.stack, stock_key(product_id, location_id))
    return level.available, level.committed, level.on_hand


def refused(shop, done, *said):
    """Check that an import was refused for all of these reasons, and that nothing was written."""
    assert done.exit_code == 1, done.output
    assert "Nothing was written." in done.output
    for each in said:
        assert each in done.output
    assert not any(rows_of(shop).values())


def test_an_export_is_imported_with_a_proof_and_a_second_time_changes_nothing(shop, shopify):
    checked = shopify.run("--check")
    assert checked.exit_code == 0, checked.output
    assert not any(rows_of(shop).values())
    done = shopify.run()
    assert done.exit_code == 0, done.output
    assert "5 products and 5 open orders; other orders: 1 cancelled, 1 shipped" in done.output
    assert "Proof: 8 stock levels, all as in the export" in done.output
    assert numbers(shop, "JP-50", "berlin") == (34, 3, 37)
    assert numbers(shop, "OOLONG~20100", "berlin") == (23, 2, 25)
    assert numbers(shop, "POT-1") == (0, 0, 0), "its stock is elsewhere"
    product = shop.product("JP-50")
    assert (product.name, product.barcodes) == ("Jasmine Pearls - 50 g", {"04006381333931"})
    assert shop.product("MUG-1").is_discontinued, "it is archived"
    (line,) = (each for each in shopify.proof() if (each["productId"], each["locationId"]) == ("JP-50", "berlin"))  # fmt: skip
    assert (line["exported on hand"], line["onHand"], line["unavailable"]) == ("40", "37", "3")
    before = rows_of(shop)
    again = shopify.run()
    assert again.exit_code == 0, again.output
    assert rows_of(shop) == before


def test_open_orders_keep_their_ids_and_units_and_paid_ones_are_confirmed(shop, shopify):
    assert shopify.run().exit_code == 0
    orders = {key: shop.record(OrderKey(key)) for (key,) in shop.items(Table.ORDERS)}
    assert {key[-1]: order.status for key, order in orders.items()} == {
        "3": OrderStatus.CONFIRMED, "5": OrderStatus.CONFIRMED, "6": OrderStatus.CONFIRMED,
        "7": OrderStatus.PENDING, "8": OrderStatus.CONFIRMED,
    }  # fmt: skip
    unpaid, partial = orders["6105310000007"], orders["6105310000006"]
    assert (unpaid.expires_at, unpaid.user_id) == (None, "lee@example.com")
    assert unpaid.attributes == {"name": "#1007"}
    assert [(line.product_id, line.quantity) for line in partial.lines] == [("JP-50", 2)]
    assert orders["6105310000003"].user_id == "guest-6105310000003"


_INVENTORY = "SKU,Location,Unavailable,Committed,Available,On hand\n"


def _write_small(export):
    """Write an export of one product at one location, with two orders that have no Id."""
    products = "Handle,Title,Variant SKU,Variant Inventory Tracker\ntea,Tea,JP-50,shopify\n"
    orders = "Name,Financial Status,Created at,Lineitem quantity,Lineitem sku,Lineitem fulfillment status\n"
    for name, text in {
        "products": products,
        "inventory": f"{_INVENTORY}JP-50,Berlin,0,2,3,5\n",
        "orders": f"{orders}a b,paid,,1,JP-50,pending\na~20b,paid,,1,JP-50,pending\n",
    }.items():
        export.path(name).write_text(text)


def test_orders_whose_names_differ_little_have_ids_and_guests_of_their_own(shop, shopify):
    _write_small(shopify)
    done = shopify.run(without={"locations", "shipped"})
    assert done.exit_code == 0, done.output
    orders = {key: shop.record(OrderKey(key)) for (key,) in shop.items(Table.ORDERS)}
    assert {key: order.user_id for key, order in orders.items()} == {
        "a~20b": "guest-a~20b",
        "a~7E20b": "guest-a~7E20b",
    }


REFUSALS = {
    "a SKU is missing": ({"products": {"MUG-1": ""}}, "Variant SKU: is missing; give it an SKU"),
    "a row without a product": ({"products": {"jasmine-pearls,Jasmine": ",Jasmine", "JP-50": ""}}, "Variant SKU: is missing"),
    "a SKU occurs twice": ({"products": {"MUG-1": "POT-1"}}, "line 7 has the SKU POT-1, too"),
    "a spreadsheet has rounded a SKU": ({"products": {"MUG-1": "4.00638E+12"}}, "ROUNDED_CODE"),
    "a fraction of a unit": ({"inventory": {"23,25": "23.5,25"}}, 'but is "23.5"'),
    "numbers that do not add up": ({"inventory": {"23,25": "23,26"}}, "units add up to 25; export again"),
    "an oversold product": ({"inventory": {"1,0,1,": "1,-1,0,"}}, "Available: is oversold by 1"),
    "more shortage than orders": ({"inventory": {"1,0,1,": "1,-2,-1,"}}, "-1 would be on hand; count them"),
    "too many units": ({"inventory": {"0,0,4,4": "0,999999999,4,1000000003"}}, "must be a whole number", ""),
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
    refused(shop, shopify.run(**edits), *said)


def test_products_and_orders_of_woocommerce_are_imported_with_a_sound_proof(shop, woocommerce):
    done = woocommerce.run()
    assert done.exit_code == 0, done.output
    assert "4 products and 3 open orders; other orders: 1 cancelled, 1 completed" in done.output
    assert "NOT_TRACKED" in done.output
    assert numbers(shop, "beanie") == (12, 2, 14), "one of three units was refunded"
    assert numbers(shop, "hoodie") == (9, 2, 11), "two variations share its stock"
    assert numbers(shop, "tee-green") == (3, 2, 5)
    assert shop.status("105") == OrderStatus.PENDING
    assert shop.status("104") == shop.status("106") == OrderStatus.CONFIRMED
    assert {line["productId"] for line in woocommerce.proof()} == {"beanie", "hoodie", "tee-green", "tee-red"}  # fmt: skip
    before = rows_of(shop)
    assert woocommerce.run().exit_code == 0
    assert rows_of(shop) == before


WOOCOMMERCE_REFUSALS = {
    "oversold": ({"products": {"wool\",1,0,visible,,,,,taxable,,1,12": "wool\",1,0,visible,,,,,taxable,,1,'-2"}}, "Stock: is oversold by 2"),
    "an unknown status": ({"orders": {"on-hold": "part-shipped"}}, "part-shipped is unknown"),
    "a part of a line is refunded": ({"orders": {"|meta:_reduced_stock:2|refunded": "|refunded"}}, "export with a row for each line"),
    "an unknown product": ({"orders": {"sku:tee-green|": "sku:tee-blue|"}}, "tee-blue is not in the file of products"),
}  # fmt: skip


@pytest.mark.parametrize("why", WOOCOMMERCE_REFUSALS)
def test_an_import_of_woocommerce_is_refused_with_each_reason(shop, woocommerce, why):
    edits, *said = WOOCOMMERCE_REFUSALS[why]
    refused(shop, woocommerce.run(**edits), *said)


def test_oversold_products_get_a_backorder_limit_if_that_is_allowed(shop, shopify, woocommerce):
    done = shopify.run("--oversold", "allow", inventory={"1,0,1,": "1,-1,0,"})
    assert done.exit_code == 0, done.output
    assert numbers(shop, "POT-1", "lyon") == (-1, 1, 0)
    assert shop.product("POT-1#lyon").backorder_limit == 1
    edits = WOOCOMMERCE_REFUSALS["oversold"][0]
    assert woocommerce.run("--oversold", "allow", **edits).exit_code == 0
    assert numbers(shop, "beanie") == (-2, 2, 0)


def test_unavailable_units_become_safety_stock_if_that_is_asked_for(shop, shopify):
    done = shopify.run("--unavailable", "safety")
    assert done.exit_code == 0, done.output
    assert numbers(shop, "JP-50", "berlin") == (37, 3, 40)
    assert shop.product("JP-50#berlin").safety_stock == 3


def test_orders_after_the_inventory_was_exported_are_listed_and_not_imported(shop, shopify):
    levels = {"3,3,34,40": "3,1,36,40", "0,1,0,1": "0,0,1,1"}
    done = shopify.run("--as-of", "2026-11-20T16:00:00+01:00", inventory=levels)
    assert done.exit_code == 0, done.output
    assert "LATER_ORDER" in done.output
    assert "1 later" in done.output
    assert shop.status("6105310000008") is None
    assert shop.status("6105310000007") == OrderStatus.PENDING


@pytest.mark.parametrize("time", ["2026-11-20", "2026-11-20T18:00:00", "yesterday"])
def test_a_time_without_an_offset_is_refused_with_an_example(shopify, time):
    done = shopify.run("--as-of", time)
    assert done.exit_code == 2
    assert f"such as 2026-11-20T18:00:00+01:00, but is {time}" in done.output


def test_bad_lines_are_left_out_if_that_is_asked_for_but_contradictions_are_not(shop, shopify):
    done = shopify.run("--skip-bad", products={"MUG-1": ""}, inventory={"0,0,4,4": "0,x,4,4"})
    assert done.exit_code == 0, done.output
    assert "Variant SKU: is missing" in done.output
    assert "all as in the export, without 4 bad lines" in done.output
    products = {key for (key,) in shop.items(Table.PRODUCTS)}
    assert products == {"JP-50", "JP-50#berlin", "JP-50#lyon", "JP-250", "JP-250#berlin"} | {"POT-1", "POT-1#berlin", "POT-1#lyon"}  # fmt: skip
    assert shop.status("6105310000007") is None, "its only product was left out"
    with (shopify.folder / "inventory_export.csv.errors.csv").open(encoding="utf-8-sig") as file:
        assert [row["column"] for row in csv.DictReader(file)] == ["Committed", "SKU", "SKU"]


def test_lines_that_hold_no_stock_do_not_stop_an_import(shop, shopify):
    edits = {
        # A custom item has no SKU.
        "25.00,,,false,true,pending": "25.00,,,true,true,pending",
        # A fulfilled order may have a line that was removed before it was shipped.
        "JP-50,true,true,fulfilled,,,,,,,,,DE": "JP-50,true,true,pending,,,,,,,,,DE",
    }
    done = shopify.run(orders=edits)
    assert done.exit_code == 0, done.output
    assert "NO_SKU" in done.output
    assert shop.status("6105310000002") is None


def test_a_line_for_an_unknown_product_can_be_left_out_of_its_order(shop, shopify):
    edits = {"17:40:05 +0100,1,Glass Teapot,34.00,,POT-1": "17:40:05 +0100,1,Old Pot,34.00,,POT-0"}
    levels = {"0,1,0,1": "0,0,1,1"}
    done = shopify.run("--skip-bad", orders=edits, inventory=levels)
    assert done.exit_code == 0, done.output
    assert "POT-0 is not in the file of products" in done.output
    order = shop.record(OrderKey("6105310000008"))
    assert [(line.product_id, line.quantity) for line in order.lines] == [("JP-50", 2)]


def test_an_import_without_products_proves_nothing(shop, shopify):
    path = shopify.path("products")
    path.write_text(path.read_text().splitlines()[0])
    done = shopify.run("--skip-bad")
    assert done.exit_code == 1, done.output
    assert "Nothing was written: there is no product to import." in done.output
    assert "Proof" not in done.output


def test_contradictions_are_never_left_out(shop, shopify):
    done = shopify.run("--skip-bad", inventory={"0,2,23,25": "0,1,24,25"})
    refused(shop, done, "COMMITTED_DIFFERS")


def test_a_shop_with_one_location_needs_no_file_of_locations(shop, shopify):
    path = shopify.path("inventory")
    lines = [line for line in path.read_text().splitlines() if "Lyon" not in line]
    path.write_text("\n".join(lines))
    edits = {"3,3,34,40": "3,5,32,40", "0,0,5,5": "0,1,4,5"}
    done = shopify.run(without={"locations"}, inventory=edits)
    assert done.exit_code == 0, done.output
    assert numbers(shop, "JP-50") == (32, 5, 37)


def test_a_shop_without_open_orders_needs_no_file_of_orders(shop, shopify):
    levels = {"3,3,34,40": "3,0,37,40", "0,2,6,8": "0,0,8,8", "0,1,11,12": "0,0,12,12", "0,2,23,25": "0,0,25,25"}  # fmt: skip
    refused(shop, shopify.run(without={"orders", "shipped"}, inventory=levels), "1 unit of POT-1 committed")  # fmt: skip
    done = shopify.run(without={"orders", "shipped"}, inventory={"0,1,0,1": "0,0,1,1"})
    assert done.exit_code == 0, done.output
    assert numbers(shop, "POT-1", "lyon") == (1, 0, 1)


def test_parts_of_an_export_can_be_joined_with_their_headers(shop, shopify):
    path = shopify.path("inventory")
    header, *lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, *lines[:4], header, *lines[4:]]))
    done = shopify.run()
    assert done.exit_code == 0, done.output
    assert "Proof: 8 stock levels, all as in the export" in done.output


def test_several_locations_need_a_file_of_locations(shop, shopify):
    refused(shop, shopify.run(without={"locations"}), "name a file with --locations")


def test_barcodes_that_cannot_be_taken_are_listed_and_left_out(shop, shopify):
    done = shopify.run(products={"'4006381333931": "'4006381333932"})
    assert done.exit_code == 0, done.output
    assert "BAD_CHECK_DIGIT" in done.output
    assert shop.product("JP-50").barcodes == frozenset()


def test_products_have_the_names_of_new_exports_too(shop, shopify):
    new = {"Handle": "URL handle", "Variant SKU": "SKU", "Variant Price": "Price", "Option1 Value": "Option1 value", "Variant Inventory Tracker": "Inventory tracker", "Variant Barcode": "Barcode"}  # fmt: skip
    done = shopify.run(products={f",{old},": f",{name}," for old, name in new.items() if old != "Handle"} | {"Handle,": "URL handle,"})  # fmt: skip
    assert done.exit_code == 0, done.output
    assert shop.product("JP-50").name == "Jasmine Pearls - 50 g"


def test_what_the_tables_contradict_is_found_before_anything_is_written(shop, shopify):
    shop.list("JP-50", 7)
    shop.list("OOLONG~20100", 0, name="Oolong")
    shop.list("glass", 5)
    shop.order("6105310000005", glass=1)
    before = rows_of(shop)
    done = shopify.run()
    assert done.exit_code == 1
    for said in (
        "PRODUCT_EXISTS",
        "with another barcodes, name, openingStock",
        "Nothing was written",
    ):
        assert said in done.output
    assert "there is another order 6105310000005" in done.output
    assert rows_of(shop) == before


def test_units_that_were_sold_since_are_missed_before_anything_is_written(shop, shopify):
    shop.list("POT-1", 0, name="Glass Teapot")
    shop.list("POT-1#lyon", 1)
    shop.do(Order("o-1", "u", {"POT-1": 1}, locations=("lyon",)))
    before = rows_of(shop)
    done = shopify.run()
    assert done.exit_code == 1
    assert "POT-1 at lyon has only 0 of the 1 units that open orders need" in done.output
    assert rows_of(shop) == before


@pytest.mark.parametrize("name", ["orders_export.csv", "missing/proof.csv"])
def test_a_proof_that_cannot_be_written_stops_an_import_at_once(shop, shopify, name):
    done = shopify.run("--proof", str(shopify.folder / name))
    assert isinstance(done.exception, UserError)
    assert "name another file with --proof" in str(done.exception)
    assert not any(rows_of(shop).values())


@pytest.mark.parametrize("call", range(1, 12, 2))
def test_an_import_that_stops_anywhere_is_completed_by_the_next_one(shop, shopify, call):
    calls = itertools.count(1)

    def stop(_):
        if next(calls) == call:
            raise KeyboardInterrupt

    shop.on("TransactWriteItems", stop)
    stopped = shopify.run()
    shop.calm()
    done = shopify.run()
    assert done.exit_code == 0, done.output
    assert (stopped.exit_code, "Not finished" in stopped.output) in {(130, True), (0, False)}
    assert "Proof: 8 stock levels, all as in the export" in done.output
    assert shop.status("6105310000003") == OrderStatus.CONFIRMED


def test_no_order_is_placed_while_a_product_is_missing(shop, shopify, monkeypatch):
    def fail(client, missing, deadline):
        made = create_many(
            client, [each for each in missing if "#" not in each.product_id], deadline
        )
        busy = Creation(created=False, error=ContentionError("POT-1#lyon"))
        return [*made, *(busy for each in missing if "#" in each.product_id)]

    with monkeypatch.context() as patched:
        patched.setattr(load, "create_many", fail)
        stopped = shopify.run()
    assert stopped.exit_code == 1
    assert "Not finished: products could not be written, so no order was placed" in stopped.output
    assert not shop.items(Table.ORDERS), "they would be rejected for good"
    done = shopify.run()
    assert done.exit_code == 0, done.output
    assert shop.status("6105310000008") == OrderStatus.CONFIRMED


def test_products_are_sold_until_all_their_orders_are_placed(shop, shopify, monkeypatch):
    # The order with the teapot at lyon becomes one for the archived mug.
    edits = {"17:40:05 +0100,1,Glass Teapot,34.00,,POT-1": "17:40:05 +0100,1,Travel Mug,34.00,,MUG-1"}  # fmt: skip
    levels = {"0,1,0,1": "0,0,1,1", "0,0,2,2,": "0,1,1,2,"}
    with monkeypatch.context() as patched:
        patched.setattr(writing, "PATIENCE_SECONDS", 0.0)
        stopped = shopify.run(orders=edits, inventory=levels)
    assert stopped.exit_code == 1
    assert not shop.product("MUG-1").is_discontinued
    done = shopify.run()
    assert done.exit_code == 0, done.output
    assert shop.product("MUG-1").is_discontinued
    assert shop.status("6105310000008") == OrderStatus.CONFIRMED


def test_an_order_that_was_rejected_before_is_found_before_anything_is_written(shop, shopify):
    item = {"productId": "OOLONG~20100", "quantity": 1, "locationId": "berlin"}
    fields = {"orderId": "6105310000007", "userId": "lee@example.com", "items": [item]}
    shop.do(order_in(fields | {"attributes": {"name": "#1007"}}, None, None, whole="the order"))
    before = rows_of(shop)
    done = shopify.run()
    assert done.exit_code == 1
    assert "the order was rejected before (UNKNOWN_PRODUCT), and stays so" in done.output
    assert rows_of(shop) == before


def test_lines_of_woocommerce_may_have_rows_of_their_own(shop, woocommerce):
    woocommerce.path("orders").write_text(
        "order_id,order_number,status,customer_email,item_sku,item_quantity,item_refunded_qty\n"
        "9,9,processing,a@example.com,beanie,3,1\n9,9,processing,a@example.com,hoodie-m,1,\n"
    )
    done = woocommerce.run()
    assert done.exit_code == 0, done.output
    assert numbers(shop, "beanie") == (12, 2, 14)
    assert numbers(shop, "hoodie") == (9, 1, 10)


@pytest.mark.parametrize(
    ("sku", "product_id"),
    [
        *(("JP-50", "JP-50"), ("1001", "1001"), ("#1001", "~231001"), ("A/1", "A~2F1")),
        *(("a b", "a~20b"), ("a~20b", "a~7E20b"), ("5%?", "5~25~3F"), ("x~y", "x~7Ey")),
    ],
)
def test_a_sku_becomes_an_id_that_the_api_accepts_and_is_found_again(sku, product_id):
    assert as_id(sku) == product_id
    assert code_of(product_id) == sku


@pytest.mark.parametrize(
    ("units", "rooms"),
    [([3, 3, 2], [5, 3]), ([4, 3, 3, 2, 2], [7, 7]), ([5, 4, 3, 3], [6, 9]), ([1] * 50, [9, 41])],
)
def test_lines_are_assigned_so_that_each_location_supplies_its_units(units, rooms):
    left = list(rooms)
    for quantity, place in zip(units, assigned(units, rooms), strict=True):
        left[place] -= quantity
    assert left == [0] * len(rooms)


def test_lines_that_no_locations_can_supply_are_not_assigned():
    assert assigned([3, 3], [4, 2]) is None
    assert assigned([6, 6, 6], [9, 9]) is None


def test_levels_are_written_back_to_the_lines_of_shopifys_export(shop, shopify, monkeypatch):
    monkeypatch.setattr(level_commands, "aws_of", lambda *_: shop.stack)
    assert shopify.run().exit_code == 0
    shop.do(Adjustment("JP-50#lyon", "a-1", 5, "RECEIPT"))
    options = ["--inventory", str(shopify.path("inventory")), "--locations", str(shopify.path("locations"))]  # fmt: skip
    done = CliRunner().invoke(app, ["levels", "shopify", *options])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert list(rows[0]) == next(csv.reader(shopify.path("inventory").read_text().splitlines()))
    assert [(row["SKU"], row["Location"][0], row["On hand (new)"]) for row in rows] == [
        *(("JP-50", "B", "40"), ("JP-50", "S", "13"), ("JP-250", "B", "12")),
        *(("OOLONG 100", "B", "25"), ("OOLONG 100", "S", "4")),
        *(("POT-1", "B", "5"), ("POT-1", "S", "1"), ("MUG-1", "B", "2")),
    ]


def test_levels_of_several_locations_need_a_file_of_locations(shop, shopify, monkeypatch):
    monkeypatch.setattr(level_commands, "aws_of", lambda *_: shop.stack)
    assert shopify.run().exit_code == 0
    done = CliRunner().invoke(app, ["levels", "shopify", "--inventory", str(shopify.path("inventory"))])  # fmt: skip
    assert isinstance(done.exception, UserError)
    assert "name a file with --locations" in str(done.exception)
    assert done.stdout == "", (
        "the default location has no stock, so the file would delete Shopify's"
    )


def test_levels_of_a_location_with_an_id_are_not_those_of_the_default_one(
    shop, shopify, monkeypatch
):
    monkeypatch.setattr(level_commands, "aws_of", lambda *_: shop.stack)
    _write_small(shopify)
    shopify.path("locations").write_text("location,locationId\nBerlin,b-1\n")
    assert shopify.run(without={"shipped"}).exit_code == 0
    options = ["levels", "shopify", "--inventory", str(shopify.path("inventory"))]
    sound = shopify.path("inventory").read_text()
    shop.list("POT-1", 3)
    shopify.path("inventory").write_text(sound.replace("\nJP", "\nPOT-1,Berlin,0,0,4,4\nJP"))
    done = CliRunner().invoke(app, options)
    assert "JP-50 is also at b-1; name a file with --locations" in str(done.exception)
    assert done.stdout == "", "the default location has no JP-50, and a part of the file is useless"
    done = CliRunner().invoke(app, [*options, "--locations", str(shopify.path("locations"))])
    (row,) = csv.DictReader(done.stdout.splitlines())
    assert (row["SKU"], row["Location"], row["On hand"]) == ("JP-50", "Berlin", "5")
    shopify.path("inventory").write_text(f"{_INVENTORY}JP-51,Berlin,0,0,1,1\n")
    done = CliRunner().invoke(app, options)
    assert "has no product and location that are here" in str(done.exception)


def test_levels_are_written_for_woocommerce_with_the_skus_that_it_knows(shop, shopify, monkeypatch):
    monkeypatch.setattr(level_commands, "aws_of", lambda *_: shop.stack)
    assert shopify.run().exit_code == 0
    done = CliRunner().invoke(app, ["levels", "woocommerce"])
    assert done.stdout.split() == ["SKU,Stock", "JP-250,11", "JP-50,40", "OOLONG", "100,27", "POT-1,5"]  # fmt: skip


def write_many(folder, count):
    """Write an export with this number of orders."""
    skus = [f"sku-{number}" for number in range(count // 4)]
    products = [f"{sku},{sku},{sku},shopify\n" for sku in skus]
    inventory = [f"{sku},berlin,0,4,1,5\n" for sku in skus]
    orders = [f"#{n},{n},paid,,1,sku-{n % len(skus)},pending\n" for n in range(count)]
    columns = "Name,Id,Financial Status,Created at,Lineitem quantity,Lineitem sku,Lineitem fulfillment status\n"
    (folder / "p").write_text("Handle,Title,Variant SKU,Variant Inventory Tracker\n" + "".join(products))  # fmt: skip
    (folder / "i").write_text("SKU,Location,Unavailable,Committed,Available,On hand\n" + "".join(inventory))  # fmt: skip
    (folder / "o").write_text(columns + "".join(orders))


def read_many(folder):
    """Read an export as the command does. Returns the memory that it took at most."""
    tracemalloc.start()
    products, inventory = (
        shopify_files.products_file(folder / "p"),
        shopify_files.inventory_file(folder / "i"),
    )
    orders, staging = shopify_files.orders_file(folder / "o"), Staging()
    shopify_files.read_products(products, staging, None)
    shopify_files.read_inventory(inventory, staging, {}, oversold=False)
    shopify_files.read_orders(orders, staging, None)
    shopify_files.check_together(products, inventory, None, staging)
    assert products.bad == inventory.bad == orders.bad == []
    assert sum(1 for _ in staging.orders()) == staging.count()[1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_number_of_lines(tmp_path):
    peaks = []
    # The first export fills caches.
    for count in (20, 100, 400):
        write_many(tmp_path, count)
        peaks.append(read_many(tmp_path))
    assert peaks[2] < 1.3 * peaks[1]
