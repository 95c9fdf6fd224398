"""Reports of stock and orders at several locations."""

import json
import re

import pytest
from typer.testing import CliRunner

from inventory_orders.domain.adjustment import Adjustment, Transfer
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand, Terms
from inventory_orders.domain.record import OrderAction
from inventory_orders.errors import InvalidMessageError, Outcome
from inventory_orders.messages.commands import parse_adjustment, parse_order_command
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from local.commands import main
from operations.commands import reports
from operations.errors import UserError
from operations.movements import adjustment_of
from operations.stock import by_product, list_by_status, shown_total
from testing.schedules.in_turn.lanes import lend


@pytest.fixture
def shop(shop, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(reports, "aws_of", lambda stage, console: shop.stack)
    shop.list("tea", 1000, low_stock_threshold=10, name="Earl Grey", price=690)
    shop.list("tea#berlin", 0, low_stock_threshold=4)
    shop.list("tea#lyon", 30)
    shop.list("mug", 5, low_stock_threshold=5)
    lend(shop.store, "tea", 60, {1: 20, 9: 30})
    return shop


def run(*arguments):
    done = CliRunner().invoke(main.app, arguments)
    assert "#" not in done.output
    return done


def lines(*arguments):
    return [line.split() for line in run(*arguments).stdout.splitlines()]


def do(shop, *changes):
    assert set(shop.do(*changes)) == {Outcome.APPLIED}


# ---------------------------------------------------------------- stock


def test_a_list_by_status_has_all_locations_of_each_product(shop):
    levels, _, has_more = list_by_status(shop.stack, ["OUT_OF_STOCK"], 1)
    assert {level.product.product_id for level in levels} == {"tea", "tea#berlin", "tea#lyon"}
    (group,) = by_product(levels).values()
    total = shown_total(group, ())
    assert (total["name"], total["available"], has_more) == ("Earl Grey", 1030, False)


def test_the_limit_of_a_list_counts_the_rows_of_the_location(shop):
    for product_id in ("ale", "bun"):
        shop.list(product_id, 0)
    levels, _, has_more = list_by_status(shop.stack, ["OUT_OF_STOCK"], 1, "berlin")
    assert [each.product.product_id for each in levels if each.on_hand == 0] == ["tea#berlin"]
    assert not has_more
    assert lines("stock", "--out", "--location", "berlin", "--limit", "1")[1][0] == "tea"


def test_a_list_has_the_total_of_each_product_and_each_of_its_locations(shop):
    heading, *rows, summary = lines("stock")
    assert heading[:2] == ["product", "location"]
    assert [row[:5] for row in rows] == [
        ["tea", "(all)", "1,030", "0", "1,030"],
        ["tea", "(default)", "1,000", "0", "1,000"],
        ["tea", "berlin", "0", "0", "0"],
        ["tea", "lyon", "30", "0", "30"],
        ["mug", "(default)", "5", "0", "5"],
    ]
    assert rows[0][5:] == ["ACTIVE", "Earl", "Grey"]
    assert rows[2][5:] == ["4", "OUT_OF_STOCK"]
    said = "2 products of 2 in 4 rows (1 out of stock, 1 low, 0 discontinued)."
    assert " ".join(summary) == said


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        (["--out"], [("tea", "berlin"), ("tea", "rome")]),
        (["--low"], [("mug", None)]),
        (["--low", "--out"], [("tea", "berlin"), ("tea", "rome"), ("mug", None)]),
        (["--out", "--in-lanes"], []),
        (["--in-lanes"], [("tea", None)]),
        (["--location", "lyon"], [("tea", "lyon")]),
        (["--location", ""], [("mug", None), ("tea", None)]),
        (["--location", "berlin", "--out"], [("tea", "berlin")]),
        (["--location", "lyon", "--out"], []),
    ],
)
def test_a_filter_lists_the_matching_rows_without_a_total(shop, options, rows):
    shop.list("tea#rome", 0)
    found = json.loads(run("stock", "--json", *options).stdout)
    assert [(one["productId"], one.get("locationId")) for one in found] == rows
    *shown, _ = lines("stock", *options)
    headings = shown.pop(0) if shown else []
    # A list without other locations has no column for them.
    has_places = headings[1:2] == ["location"]
    assert has_places or not any(location for _, location in rows)
    assert [line[: 1 + has_places] for line in shown] == [
        [product, location or "(default)"][: 1 + has_places] for product, location in rows
    ]


def test_products_that_are_low_or_out_are_read_from_an_index_up_to_a_limit(shop):
    for number in range(5):
        shop.list(f"out-{number}", 0)
    shop.calls.clear()
    done = run("stock", "--out", "--limit", "3")
    assert "Scan" not in shop.calls
    assert [line.split()[0] for line in done.stdout.splitlines()[1:-1]] == [
        "out-0",
        "out-1",
        "out-2",
    ]
    assert "There are more. --limit 6 shows more of them." in done.stderr
    assert "more" not in run("stock", "--out").stderr
    assert "Reading about 9 rows" in run("stock").stderr, (
        "a list of all products says what it costs"
    )


def test_out_of_stock_leaves_out_unused_rows_of_the_default_location_and_says_so(shop, monkeypatch):
    shop.list("cup", 0, low_stock_threshold=1)
    shop.list("cup#lyon", 5)
    shop.list("hat", 0)
    shop.list("jar", 0, backorder_limit=1)
    shop.list("jar#lyon", 5)
    # Orders that name no locations look for units at the default location.
    assert ["cup", "(default)"] in [line[:2] for line in lines("stock", "--out")]
    monkeypatch.setattr(type(shop.stack), "locations", ("berlin", "lyon"))
    done = run("stock", "--out")
    found = [line.split()[:2] for line in done.stdout.splitlines()[1:-1]]
    assert found == [["hat", "(default)"], ["tea", "berlin"]]
    assert done.stdout.splitlines()[-1] == "2 products."
    assert "Not listed: 1 empty row of the default location" in done.stderr
    found = json.loads(run("stock", "--out", "--json").stdout)
    assert [one["productId"] for one in found] == ["hat", "tea"]
    assert "cup" in run("stock", "--out", "--location", "").stdout
    assert "Not listed" not in run("stock").stderr


def test_a_product_whose_own_row_cannot_be_read_is_listed_with_the_others(shop):
    shop.edit(Table.PRODUCTS, "tea", status={"S": "?"})
    done = run("stock")
    assert "product tea breaks the contract" in done.stderr
    assert ["tea", "(all)", "30"] in [line.split()[:3] for line in done.stdout.splitlines()]
    (tea, _) = json.loads(run("stock", "--json").stdout)
    assert (tea["productId"], tea["onHand"], "locationId" in tea) == ("tea", 30, False)


def test_without_other_locations_a_list_has_no_location_column(shop):
    for key in ("tea#berlin", "tea#lyon"):
        shop.delist(key)
    heading, *_, summary = lines("stock")
    assert "location" not in heading
    assert " ".join(summary).startswith("2 products of 2 (0 out of stock")


def test_one_product_is_shown_in_total_and_by_location(shop):
    do(shop, Order("o-1", "u", {"tea": 3}, locations=("lyon",)))
    heading, *rows, summary = lines("stock", "tea")
    assert heading[0] == "location"
    assert [row[:4] for row in rows] == [
        ["(default)", "1,000", "0", "1,000"],
        ["berlin", "0", "0", "0"],
        ["lyon", "30", "3", "27"],
    ]
    assert " ".join(summary) == (
        "tea: 1,030 on hand, 3 committed, 1,027 available at 3 locations. "
        "Left to sell: 1,027, and 1,000 to orders that name no locations."
    )
    found = json.loads(run("stock", "tea", "--json").stdout)
    assert (found["committed"], found["isExact"], found["onTheWay"]) == (3, True, [])
    assert len(found["places"]) == 3


def test_a_total_shows_what_is_left_to_sell_if_a_location_owes_units(shop):
    shop.list("cup", 0)
    shop.list("cup#berlin", 0, backorder_limit=50)
    shop.list("cup#lyon", 5)
    do(shop, Order("o-1", "u", {"cup": 40}, locations=("berlin",)))
    (total,) = [line for line in lines("stock") if line[:2] == ["cup", "(all)"]]
    assert " ".join(total).startswith("cup (all) 5 40 -35 (5 left to sell) ")
    (cup,) = [one for one in json.loads(run("stock", "--json").stdout) if one["productId"] == "cup"]
    assert (cup["available"], cup["leftToSell"], cup["leftByDefault"]) == (-35, 5, 0)


def test_one_location_of_a_product_can_be_shown(shop):
    shown = run("stock", "tea", "--location", "lyon").stdout
    assert shown.startswith("tea at lyon: 30 on hand, 0 committed, 30 available, ACTIVE")
    assert "Note: orders that name no locations cannot buy tea at lyon: add" in shown
    found = json.loads(run("stock", "tea", "--location", "lyon", "--json").stdout)
    assert (found["productId"], found["locationId"], found["available"]) == ("tea", "lyon", 30)
    own = run("stock", "tea", "--location", "").stdout
    assert "its row" in own
    assert "Note" not in own
    assert "tea: 1,000 on hand" in own
    error = run("stock", "tea", "--location", "rome").exception
    assert isinstance(error, UserError)
    assert str(error) == "there is no product tea at rome"


def test_goods_on_their_way_are_listed_until_they_have_arrived(shop):
    first, second = ({"reference": name} for name in ("truck 7", "truck 8"))
    do(shop, Adjustment("tea#lyon", "out-7", -6, "TRANSFER_OUT", first | {"sentTo": ""}))
    do(shop, Adjustment("tea", "out-8", -5, "TRANSFER_OUT", second))
    do(shop, Transfer("tea", "tea#berlin", "at-once", 3, first))
    do(shop, Adjustment("tea", "in-7", 4, "TRANSFER_IN", first))
    do(shop, Adjustment("mug", "in-mug", 2, "TRANSFER_IN", first))
    do(shop, Adjustment("mug", "out-mug", -1, "TRANSFER_OUT", second))
    shown = lines("stock", "tea")
    seven = ["2", "tea", "lyon", "(default)", "truck", "7"]
    eight = ["5", "tea", "(default)", "truck", "8"]
    assert [line[:-1] for line in shown if "truck" in line] == [seven, eight]
    every = lines("transfers")
    mug = ["1", "mug", "(default)", "truck", "8"]
    assert [line[:-1] for line in every if "truck" in line] == [seven, eight, mug]
    assert " ".join(every[-1]) == "8 units on the way, under 2 references."
    there = json.loads(run("transfers", "--location", "lyon", "--json").stdout)
    assert [lot["reference"] for lot in there] == ["truck 7"]
    assert "available at 3 locations, and 7 on the way. Left" in " ".join(shown[-1])
    found = json.loads(run("stock", "tea", "--json").stdout)["onTheWay"]
    assert [(lot["reference"], lot["units"], lot["from"]) for lot in found] == [
        *(("truck 7", 2, ["lyon"]), ("truck 8", 5, [""])),
    ]
    do(shop, Adjustment("tea#berlin", "in-7", 2, "TRANSFER_IN", first))
    do(shop, Adjustment("tea#berlin", "in-8", 6, "TRANSFER_IN", second))
    assert json.loads(run("stock", "tea", "--json").stdout)["onTheWay"] == []
    assert set(shop.unexplained().values()) == {0}


def test_goods_lost_on_their_way_are_not_listed_and_the_books_balance(shop):
    notes = {"reference": "truck 7"}
    do(shop, Adjustment("tea#lyon", "out-7", -6, "TRANSFER_OUT", notes | {"sentTo": ""}))
    do(shop, Adjustment("tea", "in-7", 4, "TRANSFER_IN", notes))
    loss = {"productId": "tea", "locationId": "lyon", "adjustmentId": "lost-7", "delta": 0}
    loss |= {"reason": "TRANSFER_LOST", "comment": "fell off", **notes}
    do(shop, parse_adjustment(json.dumps(loss)))
    assert json.loads(run("stock", "tea", "--json").stdout)["onTheWay"] == []
    assert (shop.stock("tea#lyon"), set(shop.unexplained().values())) == (24, {0})
    told = {adjustment_of(decode(row)).what for row in shop.items(Table.STOCK_ADJUSTMENTS).values()}
    assert told > {
        *("TRANSFER_OUT out-7 to (default) (truck 7)", "TRANSFER_IN in-7 (truck 7)"),
        "TRANSFER_LOST lost-7 (truck 7, fell off)",
    }
    # The same reference may be used again, and lost units may turn up.
    do(shop, Adjustment("tea#lyon", "out-8", -3, "TRANSFER_OUT", notes))
    (lot,) = json.loads(run("stock", "tea", "--json").stdout)["onTheWay"]
    assert lot["units"] == 3
    do(shop, Adjustment("tea", "in-8", 5, "TRANSFER_IN", notes))
    assert json.loads(run("stock", "tea", "--json").stdout)["onTheWay"] == []
    assert set(shop.unexplained().values()) == {0}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"delta": -2}, "delta: must be 0 with the reason TRANSFER_LOST, because the units have"),
        ({"reference": ""}, "reference: "),
        ({"reason": "LOSS"}, "delta: must be a whole number from -1,000,000 to 1,000,000 other"),
    ],
)
def test_only_a_loss_in_transit_is_an_adjustment_by_zero(fields, said):
    loss = {"productId": "tea", "adjustmentId": "lost-7", "delta": 0, "reason": "TRANSFER_LOST"}
    with pytest.raises(InvalidMessageError, match=re.escape(said)):
        parse_adjustment(json.dumps(loss | {"reference": "7"} | fields))


def test_a_product_at_one_location_costs_no_read_of_adjustments(shop):
    shop.calls.clear()
    run("stock", "mug")
    # The first one looks for a barcode.
    assert shop.calls == ["GetItem", "TransactGetItems"]


# ---------------------------------------------------------------- orders


@pytest.fixture
def placed(shop):
    """Place orders to ship, oldest first: from lyon, from both locations, and from the default location."""
    do(shop, Order("o-1", "u-7", {"tea": 3}, locations=("berlin", "lyon")))
    do(shop, Order("o-2", "u-7", {"tea": 2, "mug": 1}, asked_locations={"tea": "lyon"}))
    do(shop, Order("o-3", "u-7", {"mug": 1}))
    do(shop, *(OrderCommand(f"o-{n}", OrderAction.CONFIRM) for n in (1, 2, 3)))


def to_ship(*options):
    found = [(line[0], line[4:]) for line in lines("orders", "--status", "CONFIRMED", *options)[1:]]
    return {order: " ".join(items) for order, items in found}


def test_one_warehouses_list_has_its_orders_with_its_units(shop, placed):
    assert to_ship() == {"o-1": "3 tea at lyon", "o-2": "2 tea at lyon, 1 mug", "o-3": "1 mug"}
    assert to_ship("--location", "lyon") == {"o-1": "3 tea at lyon", "o-2": "2 tea at lyon"}
    assert to_ship("--location", "") == {"o-2": "1 mug", "o-3": "1 mug"}
    assert run("orders", "--status", "CONFIRMED", "--location", "berlin").stdout == "No orders.\n"
    listed = json.loads(
        run("orders", "--status", "CONFIRMED", "--location", "lyon", "--json").stdout
    )
    assert [one["orderId"] for one in listed] == ["o-1", "o-2"]
    assert listed[1]["items"][0] == {"productId": "tea", "locationId": "lyon", "quantity": 2}


def test_orders_that_a_warehouse_has_shipped_are_not_on_its_list(shop, placed):
    do(shop, OrderCommand("o-2", OrderAction.FULFIL, step_id="parcel", quantities={"tea": 2}))
    assert to_ship("--location", "lyon") == {"o-1": "3 tea at lyon"}
    assert to_ship("--location", "") == {"o-2": "1 mug", "o-3": "1 mug"}
    assert "2 tea" in run("orders", "o-2").stdout


def test_a_warehouses_list_shows_its_own_shortages(shop, placed):
    do(shop, Adjustment("tea#lyon", "lost", -25, "CORRECTION"))
    shop.edit(Table.PRODUCTS, "tea#lyon", onHand={"N": "1"})
    shown = run("orders", "--status", "CONFIRMED", "--location", "lyon").stdout
    assert "only 1 of 3 tea at lyon" in shown
    shown = run("orders", "--status", "CONFIRMED", "--location", "").stdout.splitlines()
    there, elsewhere = shown[1:]
    assert (there.split()[1], elsewhere.split()[1]) == ("ready", "ready")


@pytest.mark.parametrize("arguments", [("o-1",), ("--status", "REJECTED"), ("--late-payments",)])
def test_a_location_does_not_filter_all_lists(shop, placed, arguments):
    assert run("orders", *arguments, "--location", "lyon").exit_code == 2


def test_a_location_filters_the_orders_of_a_user_and_those_that_have_ended(shop, placed):
    def ids(*options):
        return [line[0] for line in lines("orders", *options)[1:]]

    assert ids("--user", "u-7", "--location", "lyon") == ["o-2", "o-1"]
    shop.do(OrderCommand("o-1", OrderAction.FULFIL))
    assert ids("--user", "u-7", "--location", "lyon") == ["o-2", "o-1"]
    assert ids("--user", "u-7", "--location", "lyon", "--status", "FULFILLED") == ["o-1"]
    assert ids("--status", "FULFILLED", "--location", "lyon") == ["o-1"]
    assert run("orders", "--status", "FULFILLED", "--location", "").stdout == "No orders.\n"


def test_an_order_shows_what_it_was_short_of_where_and_whether_it_has_to_be_refunded(shop):
    offers = {"locations": ("berlin", "lyon")}
    assert shop.do(Order("o-short", "u-8", {"tea": 40}, **offers)) == [Outcome.REJECTED]
    pay = OrderCommand("o-short", OrderAction.CONFIRM)
    assert shop.do(pay) == [Outcome.REJECTED]
    shown = lines("orders", "o-short")
    assert shown[1][:3] == ["o-short", "REJECTED", "INSUFFICIENT_STOCK,"]
    start = shown.index(["short", "of", "location", "wanted", "available"])
    assert shown[start + 1 : start + 3] == [
        ["tea", "berlin", "40", "0"],
        ["tea", "lyon", "40", "30"],
    ]
    refund = " ".join(shown[-1])
    assert refund.startswith("Refund it: the payment of 2")
    assert refund.endswith("came too late (ORDER_REJECTED).")
    assert "INSUFFICIENT_STOCK, paid too late" in run("orders", "--user", "u-8").stdout
    assert "Refund" not in run("orders", "--user", "u-8").stdout


def test_an_order_that_named_no_locations_shows_where_its_units_were_looked_for(shop):
    asked = {"default_locations": ("lyon", "")}
    assert shop.do(Order("o-short", "u-8", {"tea": 4000}, **asked)) == [Outcome.REJECTED]
    assert "Looked for at: lyon, (default)." in run("orders", "o-short").stdout


def test_an_order_shows_how_it_was_amended_and_which_payment_was_for_another_version(shop):
    order = {"orderId": "o-1"}
    more = [{"productId": "tea", "quantity": 3}, {"productId": "mug", "quantity": 0}]
    most = [{"productId": "tea", "quantity": 4000}]
    assert shop.do(Order("o-1", "u-8", {"tea": 2, "mug": 1}, locations=("lyon", ""))) == [
        Outcome.APPLIED
    ]
    terms = Terms(keeps_rejections=True)
    for command in (
        {"action": "amend", "stepId": "more", "items": more},
        {"action": "amend", "stepId": "most", "items": most},
        {"action": "confirm", "ifVersion": 1},
    ):
        shop.do(parse_order_command(json.dumps(order | command), terms))
    shown = run("orders", "o-1").stdout
    assert "+1 tea, -1 mug" in shown
    assert "The amend most was rejected at 2" in shown
    assert "INSUFFICIENT_STOCK." in shown
    assert "PENDING, another version was paid" in shown
    assert "was for another version of the order (VERSION_CHANGED)." in " ".join(shown.split())
