"""Product files with several locations: what their lines mean, and that each line takes effect once."""

from datetime import UTC, datetime
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.domain.location import MAX_PLACES, location_of, product_of
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import NewProduct
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import CorruptItemError, ProductNotFoundError, RejectedError
from inventory_orders.products.lease import Lease
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from local.commands.main import app
from operations import load as loading
from operations.commands import load as load_command
from operations.creations import MAX_AT_ONCE, create_many
from operations.currency import NONE
from operations.load import Done
from testing.world.faults import cancels
from tests.support.movements import record_movements
from tests.support.shelf import Shelf, codes, findings

STOCK = (
    "productId,locationId,openingStock,lowStockThreshold,name,price\n"
    "tea,berlin,20,3,,\n"
    "tea,lyon,30,,,\n"
    "tea,,10,5,Earl Grey,690\n"
    "cup,lyon,4,,,\n"
    "cup,,0,,Cup,\n"
)


@pytest.fixture
def shelf(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "_WORKERS", 1)
    return Shelf(shop, tmp_path / "stock.csv")


def units(shelf):
    return {key: shelf.shop.stock(key) for (key,) in shelf.shop.items(Table.PRODUCTS)}


# ---------------------------------------------------------------- meaning of lines


@pytest.mark.parametrize("location", ["", ",", ',""'])
def test_a_file_with_an_empty_location_means_what_one_without_means(shelf, location):
    header, cell = (",locationId", location) if location else ("", "")
    lines = {"openingStock": "5", "delta,reason": "5,RECEIPT", "counted": "5", "name,price": ",5"}
    files, without = (
        [shelf.file(f"productId{more},{columns}\np{at},{row}\n") for columns, row in lines.items()]
        for more, at in ((header, cell), ("", ""))
    )
    assert files == without
    # Only the line with the column has named a location, in case the product has several.
    of_stock = [file.adjustments + file.counts for file in (*files[1:3], *without[1:3])]
    named = [line.content.names_location for (line,) in of_stock]
    assert named == [bool(location)] * 2 + [False] * 2
    assert shelf.file('{"productId": "p", "locationId": "", "counted": 5}').counts[0].content == (
        files[2].counts[0].content
    )


def test_the_same_units_at_two_locations_are_two_bookings(shelf):
    file = shelf.file(
        "productId,locationId,delta,reason\np,a,2,RECEIPT\np,b,2,RECEIPT\np,,2,RECEIPT\n"
        "p,a,2,RECEIPT\n"
    )
    keys = [line.content.record_key for line in file.adjustments]
    assert [key.product_id for key in keys] == ["p#b", "p"]
    assert len({key.adjustment_id for key in keys}) == 1
    for bad in file.bad:
        assert (bad.ids, bad.code) == ({"productId": "p", "locationId": "a"}, "DUPLICATE_LINE")
        assert bad.message.startswith("lines 2 and 5 adjust p at a by the same units")
    assert len(file.bad) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "productId,locationId,openingStock,name\np,berlin,5,Tea\n",
            "name: a product has the same name at all locations; set it in a line "
            "without a locationId, and leave this cell empty",
        ),
        (
            "productId,locationId,price\np,berlin,690\n",
            "price: a product has the same price at all locations; set it in a line",
        ),
        (
            '{"productId": "p", "locationId": "berlin", "price": 0, "lowStockThreshold": 4}\n',
            "price: a product has the same price at all locations",
        ),
        (
            "action,productId,locationId,name\nchangeDetails,p,berlin,\n",
            "locationId: changeDetails applies to all locations; leave this cell",
        ),
        (
            "productId,locationId,name\np,berlin,\n",
            "the line changes nothing; it needs one of lowStockThreshold, backorderLimit",
        ),
        (
            "productId,locationId,counted\np,ber#lin,1\n",
            "locationId: must be a location: 1 to 32 characters of A-Z a-z 0-9 . _ -, or",
        ),
        ("productId,locationId,counted\np,1.5E+12,1\n", "locationId: a spreadsheet has rounded"),
        ("productId,counted\np#berlin,1\n", "productId: must be 1 to 64 printable ASCII"),
    ],
)
def test_what_a_line_with_a_location_cannot_say_is_a_bad_line(shelf, content, said):
    file = shelf.file(content)
    (bad,) = file.bad
    assert bad.code in ("SCHEMA_VIOLATION", "ROUNDED_CODE")
    assert bad.message.startswith(said)


# ---------------------------------------------------------------- creating


def test_lines_of_new_locations_take_over_the_limit_of_their_product(shelf):
    header = "productId,locationId,openingStock,purchaseLimit,limitGroup\n"
    content = (
        header + "tea,,1,2,leaves\ntea,berlin,1,,\ntea,lyon,1,3,\ncup,,1,,\ncup,rome,1,,leaves\n"
    )
    for load in shelf.check_and_load(content):
        ((number, code),) = [(bad.number, bad.code) for bad in load.bad]
        assert (number, code) == (6, "SCHEMA_VIOLATION")
        assert load.done == {Done.CREATED: 2, Done.LISTED: 2}
    rows = [decode(shelf.shop.row(key)) for key in ("tea#berlin", "tea#lyon")]
    assert [(row["purchaseLimit"], row["limitGroup"]) for row in rows] == [
        (2, "leaves"),
        (3, "leaves"),
    ]
    again = header + "tea,,1,2,leaves\ntea,berlin,1,,\ntea,rome,1,,\n"
    for load in shelf.check_and_load(again):
        assert load.done == {Done.THERE: 1, Done.LISTED_BEFORE: 1}
        (bad,) = load.bad
        assert bad.message.startswith("purchaseLimit: tea has different limits at its locations")


def test_products_come_before_their_locations_whatever_the_order_of_the_lines(shelf):
    for load in shelf.check_and_load(STOCK):
        assert (load.bad, load.done) == ([], {Done.CREATED: 2, Done.LISTED: 3})
    assert units(shelf) == {"tea": 10, "tea#berlin": 20, "tea#lyon": 30, "cup": 0, "cup#lyon": 4}
    assert shelf.product("tea").places == {"berlin", "lyon"}
    berlin = decode(shelf.shop.row("tea#berlin"))
    assert (berlin["of"], berlin["locationId"], berlin["lowStockThreshold"]) == (
        *("tea", "berlin"),
        3,
    )
    assert "name" not in berlin
    assert set(shelf.shop.unexplained().values()) == {0}
    rows = shelf.rows()
    for load in shelf.check_and_load(STOCK):
        assert (load.bad, load.done) == ([], {Done.THERE: 2, Done.LISTED_BEFORE: 3})
    assert shelf.rows() == rows


def test_a_location_of_an_unknown_product_is_a_bad_line_and_creates_none(shelf):
    content = "productId,locationId,openingStock\npot,berlin,3\ntea,berlin,2\ntea,,1\n"
    for load in shelf.check_and_load(content):
        assert codes(load) == [(2, "pot", "UNKNOWN_PRODUCT")]
        assert load.bad[0].message == (
            "there is no product pot; a line without a locationId creates it"
        )
    assert units(shelf) == {"tea": 1, "tea#berlin": 2}


def test_a_product_has_no_more_locations_than_it_may(shelf):
    lines = "".join(f"tea,l{n},1\n" for n in range(MAX_PLACES + 2))
    content = f"productId,locationId,openingStock\ntea,,0\ncup,,0\n{lines}cup,l,1\n"
    for load in shelf.check_and_load(content):
        last = MAX_PLACES + 4
        assert codes(load) == [(n, "tea", "TOO_MANY_PLACES") for n in (last, last + 1)]
        assert (
            "tea is already listed at the maximum of 40 locations (not counting"
            in load.bad[0].message
        )
        assert load.done == {Done.CREATED: 2, Done.LISTED: MAX_PLACES + 1}
    assert len(shelf.product("tea").places) == MAX_PLACES


# ---------------------------------------------------------------- many at once


def test_no_transaction_writes_the_list_of_a_product_twice(shelf):
    content = "productId,locationId,openingStock\n" + "".join(
        f"p{n},l{m},1\n" for n in range(40) for m in range(3)
    )
    batches = list(loading._of_distinct_products(shelf.file(content).creations, MAX_AT_ONCE))
    assert sum(map(len, batches)) == 120
    for batch in batches:
        products = [product_of(line.content.product_id) for line in batch]
        assert len(batch) <= MAX_AT_ONCE
        assert len(set(products)) == len(batch)
    client = RetryingClient(shelf.store)
    for new in (
        [NewProduct("tea#a", 1), NewProduct("tea#b", 1)],
        [NewProduct("tea", 1), NewProduct("tea#b", 1)],
        [NewProduct(f"p{n}#a", 1) for n in range(MAX_AT_ONCE + 1)],
    ):
        with pytest.raises(ValueError, match="create_many takes at most 50 products"):
            create_many(client, new, shelf.shop.soon())


def test_a_location_that_cannot_be_listed_does_not_affect_others(shop):
    for key in ("a", "b", "full", *(f"full#{n}" for n in range(MAX_PLACES))):
        shop.list(key)
    new = [NewProduct(f"{name}#x", 2) for name in ("a", "gone", "full", "b")]
    made = create_many(RetryingClient(shop.store), new, shop.soon())
    assert [creation.created for creation in made] == [True, False, False, True]
    errors = [type(creation.error) for creation in made if creation.error]
    assert errors == [ProductNotFoundError, RejectedError]


def test_a_list_that_dynamodb_refuses_needs_an_operator(shop):
    shop.list("a")
    shop.list("b")

    def is_list_of_b(action):
        return action.get("Update", {}).get("Key") == {"productId": {"S": "b"}}

    shop.on(
        "TransactWriteItems",
        cancels("ValidationError", is_list_of_b),
        lambda request: any(map(is_list_of_b, request["TransactItems"])),
    )
    new = [NewProduct("a#x", 1), NewProduct("b#x", 1)]
    first, second = create_many(RetryingClient(shop.store), new, shop.soon())
    assert (first.created, second.created) == (True, False)
    assert isinstance(second.error, CorruptItemError)
    assert "the list `places` in the row of product b cannot be changed" in str(second.error)


# ---------------------------------------------------------------- changes, receipts, counts


def test_limits_receipts_and_counts_of_one_location_leave_the_others_alone(shelf):
    shelf.load(STOCK)
    shelf.shop.do(Order("o", "u", {"tea": 4}, locations=("berlin",)))
    shelf.begin_count()
    content = (
        "action,productId,locationId,lowStockThreshold,backorderLimit,delta,reason,counted,name\n"
        "change,tea,berlin,40,7,,,,\nadjust,tea,lyon,,,5,RECEIPT,,\ncount,tea,berlin,,,,,19,\n"
    )
    wanted = [
        (2, "tea at berlin", "lowStockThreshold from 3 to 40; backorderLimit from 0 to 7"),
        (4, "tea at berlin", "counted 19, corrected by -1"),
    ]
    for load in shelf.check_and_load(content):
        assert (load.bad, findings(load)) == ([], wanted)
        assert load.done == {Done.CHANGED: 1, Done.BOOKED: 1, Done.COUNTED: 1}
    berlin = shelf.product("tea#berlin")
    assert (berlin.on_hand, berlin.stock_count, berlin.status) == (19, 15, "LOW_STOCK")
    assert (units(shelf)["tea"], units(shelf)["tea#lyon"]) == (10, 35)
    assert (shelf.product("tea").low_stock_threshold, shelf.product("tea").name) == (
        *(5, "Earl Grey"),
    )
    again = shelf.load(content)
    assert again.done == {Done.SAME: 1, Done.BOOKED_BEFORE: 1, Done.COUNTED_BEFORE: 1}
    assert set(shelf.shop.unexplained().values()) == {0}


def test_a_product_is_discontinued_and_listed_again_at_all_its_locations(shelf):
    shelf.load(STOCK)
    steps = (
        ("discontinue,tea,", "discontinued; discontinued at berlin; discontinued at lyon"),
        ("discontinue,tea,", None),
        ("listAgain,tea,lyon", "listed again"),
        ("discontinue,tea,", "discontinued at lyon"),
        ("listAgain,tea,", "listed again; listed again at berlin; listed again at lyon"),
        ("listAgain,tea,", None),
        ("discontinue,tea,berlin", "discontinued"),
    )
    for line, words in steps:
        name = "tea" if line.endswith(",") else f"tea at {line.rpartition(',')[2]}"
        content = f"action,productId,locationId\n{line}\n"
        for load in shelf.check_and_load(content):
            assert load.done == {Done.CHANGED if words else Done.SAME: 1}
            assert findings(load) == ([(2, name, words)] if words else [])
    statuses = {location_of(key): shelf.product(key).status for key in ("tea", "tea#berlin")}
    assert statuses == {"": "ACTIVE", "berlin": "DISCONTINUED"}
    assert shelf.product("cup#lyon").status == "ACTIVE"


def test_discontinuing_continues_where_an_earlier_load_met_a_count(shelf, monkeypatch):
    shelf.load(STOCK)
    monkeypatch.setattr(loading, "_LEASE_SECONDS", 0.3)
    lease = Lease.acquire(RetryingClient(shelf.store), "tea#berlin", 600.0, shelf.shop.soon())
    content = "action,productId\ndiscontinue,tea\n"
    load = shelf.load(content)
    assert codes(load) == [(2, "tea", "LEASED")]
    assert load.bad[0].message.startswith("tea at berlin is leased for")
    assert load.bad[0].message.endswith("load the file again later")
    assert shelf.product("tea").is_discontinued
    lease.release(shelf.shop.soon())
    assert findings(shelf.load(content)) == [
        (2, "tea", "discontinued at berlin; discontinued at lyon")
    ]
    shelf.shop.edit(Table.PRODUCTS, "tea#lyon", stockCount={"S": "?"})
    for load in shelf.check_and_load(content):
        assert codes(load) == [(2, "tea", "CORRUPT_PRODUCT")]


def test_lines_about_all_locations_of_a_product_are_carried_out_in_their_order(shelf):
    shelf.load(STOCK)
    content = (
        "action,productId,locationId\ndiscontinue,tea,\ndiscontinue,cup,\nlistAgain,tea,berlin\n"
    )
    batches = loading._by_product(shelf.file(content).changes, 1)
    assert [[line.number for line in batch] for batch in batches] == [[2, 4], [3]]
    shelf.load(content)
    assert not shelf.product("tea#berlin").is_discontinued
    assert shelf.product("tea#lyon").is_discontinued


def test_a_line_of_stock_needs_a_location_if_its_product_has_several(shelf):
    """Units counted or received elsewhere would be booked at the default location."""
    shelf.load(STOCK)
    shelf.begin_count()
    rows = shelf.rows()
    for content in ("productId,counted\ntea,60\n", "productId,delta,reason\ntea,5,RECEIPT\n"):
        for load in shelf.check_and_load(content):
            assert codes(load) == [(2, "tea", "LOCATION_REQUIRED")]
            assert load.bad[0].message.startswith("tea is also at berlin, lyon; name the location")
    assert shelf.rows() == rows
    named = "productId,locationId,delta,reason\ntea,,5,RECEIPT\n"
    for load in shelf.check_and_load(named):
        assert load.done == {Done.BOOKED: 1}
    # Products with one location need no name for it, also if the file has created it.
    alone = "productId,openingStock,delta,reason,action\ncosy,3,,,\ncosy,,5,RECEIPT,adjust\n"
    for load in shelf.check_and_load(alone):
        assert load.done == {Done.CREATED: 1, Done.BOOKED: 1}


# ---------------------------------------------------------------- counts that come late

COUNTS = "productId,locationId,counted\ntea,berlin,20\ntea,lyon,29\n"


def adjusted(action="adjust", **fields):
    ids = {"action": action, "adjustmentId": "a", "productId": "tea", "locationId": "berlin"}
    return "adjust_stock", ids | fields


def commanded(action, order_id, *items, **fields):
    items = {"items": list(items), "stepId": f"{action}-{order_id}"} if items else {}
    return "change_orders", {"action": action, "orderId": order_id} | items | fields


ONE = {"productId": "tea", "quantity": 1}
MOVES = {
    "fulfil order o-1": commanded("fulfil", "o-1"),
    "cancel order o-1, units lost": commanded("cancel", "o-1", ONE, restock=False),
    "return order o-2": commanded("return", "o-2", ONE, restock=True),
    "RECEIPT a": adjusted(delta=3, reason="RECEIPT"),
    "DECREMENT a": adjusted("decrement", quantity=3, mode="atomic"),
    "TRANSFER_OUT t": (
        "adjust_stock",
        {"action": "transfer", "transferId": "t", "productId": "tea", "from": "berlin", "to": ""}
        | {"quantity": 3},
    ),
}
STAYS = {
    "cancel": commanded("cancel", "o-1"),
    "return of damaged units": commanded("return", "o-2", ONE, restock=False),
    "change": ("manage_products", {"action": "change", "productId": "tea", "name": "Tea"}),
}


@pytest.fixture
def counted(shelf):
    """Load stock, and begin a count, with a paid order to ship and an order that was shipped."""
    shelf.load(STOCK)
    for order_id in ("o-1", "o-2"):
        shelf.shop.do(Order(order_id, "u", {"tea": 2}, locations=("berlin",)))
        shelf.shop.invoke(*commanded("confirm", order_id))
    shelf.shop.invoke(*commanded("fulfil", "o-2"))
    shelf.shop.invoke(*adjusted(adjustmentId="shipped", delta=2, reason="RECEIPT"))
    shelf.begin_count()
    return shelf


@pytest.mark.parametrize(
    ("what", "moved"), list(zip((*MOVES, *STAYS), (-2, -1, 1, 3, -3, -3, 0, 0, 0), strict=True))
)
def test_a_count_is_booked_as_of_the_time_when_it_was_made(counted, what, moved):
    """Parcels that left since stay gone, and goods that came in since are added."""
    assert counted.shop.invoke(*(MOVES | STAYS)[what])["result"] == "APPLIED"
    # A decrement may be in flight for as long as an invocation.
    counted.shop.clock.sleep(1300)
    for load in counted.check_and_load(COUNTS):
        assert load.bad == []
        assert findings(load) == [(3, "tea at lyon", "counted 29, corrected by -1")]
    (berlin,) = (each for each in counted.shop.accounts() if each.product_id == "tea#berlin")
    assert berlin.on_hand == 20 + moved
    assert set(counted.shop.unexplained().values()) == {0}


def test_a_count_of_wrong_units_is_corrected_as_of_its_time(counted):
    counted.shop.invoke(*MOVES["fulfil order o-1"])
    counted.shop.invoke(*MOVES["RECEIPT a"])
    for load in counted.check_and_load(COUNTS.replace("20", "18")):
        assert findings(load)[0] == (2, "tea at berlin", "counted 18, corrected by -2")
    record = counted.store.get(counted.file().counts[0].content.record_key)
    assert (record.counted, record.delta) == (18, -2)
    # Loaded again, it is not booked again.
    assert counted.load(COUNTS.replace("20", "18")).done == {Done.COUNTED_BEFORE: 2}


def test_an_older_count_undoes_no_newer_one_but_a_number_can_be_corrected(counted):
    old, counted.path = counted.path, counted.path.with_name("newer.csv")
    assert counted.load(COUNTS.replace("29", "30")).bad == []
    counted.path = old
    load = counted.load(COUNTS)
    assert codes(load) == [(n, "tea", "MOVED_SINCE_COUNT") for n in (2, 3)]
    assert "a count was booked at" in load.bad[0].message
    counted.path = old.with_name("newer.csv")
    counted.shop.invoke(*MOVES["fulfil order o-1"])
    corrected = counted.load(COUNTS)
    assert (corrected.bad, counted.product("tea#lyon").on_hand) == ([], 29)
    assert corrected.done == {Done.COUNTED_BEFORE: 1, Done.COUNTED: 1}


def test_the_same_count_next_week_is_another_one(counted):
    assert counted.load(COUNTS).done == {Done.COUNTED: 2}
    counted.shop.invoke(*adjusted(delta=3, reason="CORRECTION"))
    assert counted.load(COUNTS).done == {Done.COUNTED_BEFORE: 2}
    counted.begin_count()
    assert findings(counted.load(COUNTS)) == [(2, "tea at berlin", "counted 20, corrected by -3")]


def test_units_that_move_during_the_load_are_neither_lost_nor_booked_back(counted):
    moves = iter((MOVES["RECEIPT a"], MOVES["fulfil order o-1"]))

    def move(_):
        if command := next(moves, None):
            counted.shop.invoke(*command)

    load = counted.load(COUNTS.replace("20", "19"), on_read=move)
    assert findings(load)[0] == (2, "tea at berlin", "counted 19, corrected by -1")
    assert set(counted.shop.unexplained().values()) == {0}


def test_a_count_that_is_booked_during_the_load_is_not_booked_again(counted):
    place = {"productId": "tea", "locationId": "berlin", "adjustmentId": "by-a-colleague"}
    once = [{"action": "begin", **place}]

    def book(_):
        if once:
            begun = counted.shop.invoke("count_stock", once.pop())
            count = {"action": "count", **place, "snapshot": begun["snapshot"], "counted": 19}
            assert counted.shop.invoke("count_stock", count)["delta"] == -1

    load = counted.load(COUNTS.replace("20", "19"), on_read=book)
    assert codes(load) == [(2, "tea", "COUNTED_SINCE")]
    # Two more have left, and are on an outbound page.
    assert counted.product("tea#berlin").on_hand == 19 + 2


def test_a_movement_that_came_after_the_units_were_read_is_not_subtracted(counted):
    """It is recorded before the load has read the movements, but the units on hand do not show it."""
    read, once = Store.read_together, [None]

    def read_and_move(store, keys):
        found = read(store, keys)
        if once:
            once.clear()
            counted.shop.invoke(*MOVES["fulfil order o-1"])
            counted.shop.invoke(*MOVES["RECEIPT a"])
            record_movements(counted.shop, ahead=3600)
        return found

    with patch.object(Store, "read_together", read_and_move):
        load = counted.load(COUNTS.replace("20", "18"))
    assert findings(load)[0] == (2, "tea at berlin", "counted 18, corrected by -2")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            "action,productId,locationId,counted,delta,reason\n"
            "count,tea,berlin,20,,\nadjust,tea,berlin,,1,RECEIPT\n",
            "the file also books stock of the product",
        ),
        ("productId,locationId,counted\ntea,berlin,20\n", "units were taken at"),
    ],
)
def test_a_count_that_may_be_wrong_is_refused(counted, content, why):
    if "taken" in why:
        counted.shop.invoke(*MOVES["DECREMENT a"])
    for load in counted.check_and_load(content):
        assert codes(load) == [(2, "tea", "MOVED_SINCE_COUNT")]
        assert load.bad[0].message.startswith(why)


def test_a_load_waits_for_movements_and_refuses_counts_if_they_stay_behind(counted, monkeypatch):
    counted.has_recorder = False
    record_movements(counted.shop)
    clock = counted.shop.clock
    clock.sleep(100)
    counted.shop.invoke(*MOVES["fulfil order o-1"])
    # How far the clock of this machine is off makes no difference.
    slow = datetime.fromtimestamp(clock.now() - 280, UTC)
    monkeypatch.setattr(loading.StoppableClock, "now", lambda _: slow)
    began = clock.now()
    monkeypatch.setattr(loading.StoppableClock, "sleep", lambda _, seconds: clock.sleep(seconds))
    load = counted.load(COUNTS)
    assert codes(load) == [(n, "tea", "MOVED_SINCE_COUNT") for n in (2, 3)]
    assert "movements of orders are complete only up to" in load.bad[0].message
    assert 290 < clock.now() - began < 310

    def sweep(_, seconds):
        clock.sleep(seconds)
        record_movements(counted.shop)

    monkeypatch.setattr(loading.StoppableClock, "sleep", sweep)
    assert counted.load(COUNTS).bad == []


def test_a_stage_without_movements_refuses_counts_and_reads_no_table(counted):
    load = counted.load(COUNTS, has_movements=False)
    assert codes(load) == [(n, "tea", "MOVED_SINCE_COUNT") for n in (2, 3)]
    assert "movements: false" in load.bad[0].message


def test_a_product_that_was_listed_anew_since_is_not_counted(counted):
    counted.shop.invoke(*MOVES["RECEIPT a"])
    later = {"S": timestamp(SystemClock().now())}
    counted.shop.edit(Table.PRODUCTS, "tea#berlin", createdAt=later)
    load = counted.load(COUNTS)
    assert codes(load) == [(2, "tea", "MOVED_SINCE_COUNT")]
    assert load.bad[0].message.startswith("the product was delisted after the count")


# ---------------------------------------------------------------- the command


def test_the_command_names_locations_and_reports_products(shelf, monkeypatch, tmp_path):
    aws = SimpleNamespace(store=lambda: shelf.store, locations=("", "lyon"), currency=NONE)
    aws.has_movements = True
    record_movements(shelf.shop, ahead=3600)
    monkeypatch.setattr(load_command, "aws_of", lambda account: aws)
    shelf.load(STOCK)
    at = timestamp(SystemClock().now())
    rows = "".join(f"tea,{row},{at}\n" for row in ("berlin,1", "rome,2", ",9"))
    shelf.path.write_text(f"productId,locationId,counted,countedAt\n{rows}")
    done = CliRunner().invoke(app, ["load", str(shelf.path)], env={"COLUMNS": "200"})
    said = " ".join(done.output.split())
    assert done.exit_code == 1
    assert "line product what happened 2 tea at berlin counted 1, corrected by -19" in said
    assert "4 tea at the default location counted 9, corrected by -1" in said
    assert "line 3: there is no product tea at rome" in said
    # A bad line puts no stock anywhere.
    assert " ".join(done.stderr.split()).endswith(
        "Warning: orders that name no locations cannot buy the stock of 1 line at berlin: "
        'add "berlin" to the setting `locations`, or send orders with `locations`'
    )
    report = shelf.path.with_name("stock.csv.errors.csv").read_text("utf-8-sig").splitlines()
    assert report[1].startswith("3,tea,rome,,,UNKNOWN_PRODUCT,")
    assert "#" not in said


LOSSES = ((-1, "TRANSFER_OUT"), (0, "TRANSFER_LOST"))
TRANSFERS = (
    "productId,from,to,quantity,transferId,reference\n"
    "tea,berlin,lyon,4,,truck 7\n"
    "tea,,berlin,6,t-8,\n"
    "tea,lyon,,40,,\n"
    "cup,lyon,rome,1,,\n"
    "tea,lyon,lyon,1,,\n"
    "cup,lyon,,1,,\n"
    "cup,lyon,,1,,\n"
)


def test_units_are_transferred_by_file_once_and_a_check_says_the_same(shelf):
    shelf.load(STOCK)
    refused = [
        (4, "tea", "BELOW_FLOOR"),
        (5, "cup", "UNKNOWN_PRODUCT"),
        (6, "tea", "SCHEMA_VIOLATION"),
        *((line, "cup", "DUPLICATE_LINE") for line in (7, 8)),
    ]
    for load in shelf.check_and_load(TRANSFERS):
        assert (codes(load), load.done) == (refused, {Done.MOVED: 2})
        assert load.stocked == {"lyon": 1, "berlin": 1}
    for load in shelf.check_and_load(TRANSFERS):
        assert (codes(load), load.done) == (refused, {Done.MOVED_BEFORE: 2})
    assert [shelf.shop.stock(key) for key in ("tea", "tea#berlin", "tea#lyon")] == [4, 22, 34]
    assert set(shelf.shop.unexplained().values()) == {0}
    # A field of transfers only.
    other = "action,productId,from,to,quantity,transferId\ntransfer,tea,,berlin,7,t-8\n"
    for load in shelf.check_and_load(other):
        assert codes(load) == [(2, "tea", "TRANSFER_ID_REUSED")]
        assert "quantity (stored 6, sent 7)" in load.bad[0].message


def test_the_losses_of_two_transfers_are_two_adjustments(shelf):
    shelf.load(STOCK)
    rows = [
        f"tea,berlin,{delta * n},{reason},truck {n}" for n in (7, 8) for delta, reason in LOSSES
    ]
    load = shelf.load("\n".join(["productId,locationId,delta,reason,reference", *rows, ""]))
    assert (codes(load), load.done) == ([], {Done.BOOKED: 4})
    bad = shelf.load("productId,locationId,delta,reason,reference\ntea,,0,LOSS,7\n")
    assert "delta: must be a whole number from -1,000,000 to" in bad.bad[0].message


def test_lines_that_put_units_at_a_location_are_counted_by_location(shelf):
    for content, stocked in (
        ("openingStock\ntea,,9\ntea,lyon,9\ntea,berlin,0\nrum,lyon,9\n", {"": 1, "lyon": 1}),
        ("delta,reason\ntea,lyon,-5,LOSS\ntea,berlin,5,RECEIPT\n", {"berlin": 1}),
        ("counted\ntea,berlin,0\ntea,lyon,4\n", {"lyon": 1}),
        ("lowStockThreshold\ntea,lyon,4\n", {}),
    ):
        shelf.begin_count()
        assert shelf.check(f"productId,locationId,{content}").stocked == stocked
        assert shelf.load(f"productId,locationId,{content}").stocked == stocked
