"""Purchase limits, safety stock and the buyers of orders, as people set and see them."""

import json

import pytest

from inventory_orders.api.products import availability
from inventory_orders.domain.adjustment import Decrement
from inventory_orders.domain.events import order_events
from inventory_orders.domain.product import ProductStatus
from inventory_orders.errors import InvalidMessageError, Outcome
from inventory_orders.store.cancellations import TransactionCancelledError
from inventory_orders.store.rows import decode, product_row
from inventory_orders.store.tables import Table
from operations.load import Done
from testing.schedules.in_turn.bench import product
from testing.schedules.in_turn.lanes import LaneShop
from testing.world.events import order_body
from tests.support.orders import parse_order
from tests.support.shelf import Shelf, codes, findings

LIMITS = ("purchaseLimit", "limitGroup", "safetyStock")
ANSWER = {"purchaseLimit": 2, "limitGroup": "drop", "safetyStock": 3}


@pytest.fixture
def shop():
    with LaneShop().open() as shop:
        yield shop


def command(shop, action="change", product_id="tea", **fields):
    return shop.invoke("manage_products", {"action": action, "productId": product_id, **fields})


def create(shop, location="", stock=10, **fields):
    there = {"locationId": location} if location else {}
    answer = command(shop, "create", openingStock=stock, **there, **fields)
    assert answer["result"] == "APPLIED"
    return answer


def stored(shop, key="tea"):
    """Return a row's limits and safety stock."""
    row = decode(shop.row(key))
    return {name: row[name] for name in LIMITS if name in row}


def ordered(**more):
    return order_body("o-1", {"tea": 1}) | more


# ---------------------------------------------------------------- what a row has


def test_a_product_is_created_with_limits_and_its_row_has_only_those_that_it_has(shop):
    created = create(shop, **ANSWER)
    assert {name: created[name] for name in LIMITS} == ANSWER == stored(shop)
    assert shop.product("tea").status is ProductStatus.ACTIVE
    off = command(shop, purchaseLimit=0, safetyStock=0)
    assert (off["result"], off.keys() & {*LIMITS}) == ("APPLIED", {"limitGroup"})
    assert stored(shop) == {"limitGroup": "drop"}
    assert product_row(product("p", 1)).keys().isdisjoint(LIMITS)


def test_a_change_without_a_location_sets_limits_everywhere_and_can_be_repeated(shop):
    create(shop)
    for place in ("berlin", "lyon"):
        create(shop, place)
    everywhere = {"purchaseLimit": 2, "limitGroup": "drop"}
    shop.count("tea#lyon", seconds=900)
    answer = command(shop, **everywhere, lowStockThreshold=1, safetyStock=4)
    assert (answer["result"], answer["code"]) == ("RETRY_LATER", "LEASED")
    assert (stored(shop, "tea#berlin"), stored(shop, "tea#lyon")) == (everywhere, {})
    shop.clock.seconds += 901
    answer = command(shop, **everywhere)
    assert (answer["result"], answer["purchaseLimit"]) == ("APPLIED", 2)
    assert stored(shop) == everywhere | {"safetyStock": 4}
    assert stored(shop, "tea#lyon") == stored(shop, "tea#berlin") == everywhere
    assert shop.product("tea#berlin").low_stock_threshold == 0
    assert command(shop, **everywhere)["result"] == "REPLAYED"
    # A location that is named, even as the default one, is changed alone.
    assert command(shop, purchaseLimit=3, locationId="")["result"] == "APPLIED"
    assert command(shop, purchaseLimit=4, locationId="lyon")["result"] == "APPLIED"
    limits = [shop.product(key).purchase_limit for key in ("tea", "tea#berlin", "tea#lyon")]
    assert limits == [3, 2, 4]


def test_setting_a_limit_reclaims_the_units_in_lanes(shop):
    shop.list_lent("tea", stock=100)
    assert command(shop, purchaseLimit=2)["result"] == "APPLIED"
    row = shop.product("tea")
    assert (row.lent_to, row.stock_count, sum(shop.held("tea").values())) == (frozenset(), 100, 0)
    assert not row.may_be_lent
    assert command(shop, purchaseLimit=0)["result"] == "APPLIED"
    assert shop.product("tea").may_be_lent


@pytest.mark.parametrize(
    ("before", "fields"),
    [
        ({}, {"safetyStock": 2, "backorderLimit": 1}),
        ({"safetyStock": 2}, {"backorderLimit": 1}),
        ({"backorderLimit": 1}, {"safetyStock": 2}),
    ],
)
def test_a_product_has_no_safety_stock_together_with_backorders(shop, before, fields):
    create(shop, **before)
    refused = command(shop, **fields)
    assert (refused["result"], refused["field"]) == ("INVALID", "safetyStock")
    assert refused["message"].startswith("safetyStock: must be 0 while backorderLimit is not 0")
    new = command(shop, "create", "cup", openingStock=1, **before, **fields)
    assert (new["result"], new["field"]) == ("INVALID", "safetyStock")
    both_at_once = dict.fromkeys(("safetyStock", "backorderLimit"), 0) | fields
    if len(fields) == 1:
        assert command(shop, **both_at_once)["result"] == "APPLIED"


@pytest.mark.parametrize("limit", [-1, 1_000_001, 1.5, "2"])
def test_a_limit_is_a_whole_number_up_to_a_million(shop, limit):
    refused = command(shop, purchaseLimit=limit)
    assert (refused["result"], refused["field"]) == ("INVALID", "purchaseLimit")


# ---------------------------------------------------------------- safety stock


@pytest.mark.parametrize(
    ("stock", "threshold", "status", "shown"),
    [
        (5, 0, ProductStatus.OUT_OF_STOCK, "OUT"),
        (6, 0, ProductStatus.ACTIVE, "IN_STOCK"),
        (8, 3, ProductStatus.LOW_STOCK, "LOW"),
        (9, 3, ProductStatus.ACTIVE, "IN_STOCK"),
    ],
)
def test_safety_stock_is_subtracted_for_the_status_and_for_customers(
    shop, stock, threshold, status, shown
):
    create(shop, stock=stock, safetyStock=5, lowStockThreshold=threshold)
    row = shop.product("tea")
    assert (row.status, availability(row)) == (status, shown)
    assert row.may_be_lent is (status is ProductStatus.ACTIVE)


def test_orders_leave_the_safety_stock_and_their_shortages_do_not_count_it(shop):
    create(shop, stock=8, safetyStock=5)
    assert shop.order("o-1", tea=4) is Outcome.REJECTED
    (shortage,) = shop.order_row("o-1")["shortages"]
    assert (shortage["wanted"], shortage["available"]) == (4, 3)
    assert shop.order("o-2", tea=3) is Outcome.APPLIED
    assert shop.product("tea").status is ProductStatus.OUT_OF_STOCK


@pytest.mark.parametrize("mode", ["optimistic", "atomic"])
def test_decrements_leave_the_safety_stock_unless_they_may_use_it(shop, mode):
    create(shop, stock=8, safetyStock=5)

    def take(quantity, **more):
        fields = {"adjustmentId": f"d-{quantity}-{len(more)}", "quantity": quantity, "mode": mode}
        answer = shop.invoke(
            "adjust_stock", {"action": "decrement", "productId": "tea"} | fields | more
        )
        return answer["result"], answer.get("shortages", [{}])[0].get("available")

    assert take(4) == ("REFUSED", 3)
    assert take(2) == ("APPLIED", None)
    assert take(6, useSafety=True) == ("APPLIED", None)
    assert shop.stock("tea") == 0


def test_an_atomic_decrement_notices_that_the_safety_stock_has_changed_since(shop):
    create(shop, stock=8)
    atomic = {"action": "decrement", "productId": "tea", "quantity": 1, "mode": "atomic"}
    assert shop.invoke("adjust_stock", atomic | {"adjustmentId": "d-1"})["result"] == "APPLIED"
    command(shop, safetyStock=7)
    assert shop.invoke("adjust_stock", atomic | {"adjustmentId": "d-2"})["result"] == "REFUSED"


def test_corrections_transfers_and_counts_do_not_know_safety_stock(shop):
    create(shop, stock=8, safetyStock=5)
    create(shop, "berlin")
    adjust = {"action": "adjust", "productId": "tea", "adjustmentId": "a-1", "locationId": ""}
    assert shop.invoke("adjust_stock", adjust | {"delta": -6, "reason": "DAMAGE"})["result"] == (
        "APPLIED"
    )
    move = {"action": "transfer", "transferId": "t", "from": "", "to": "berlin", "quantity": 2}
    assert shop.invoke("adjust_stock", move | {"productId": "tea"})["result"] == "APPLIED"
    assert (shop.stock("tea"), shop.stock("tea#berlin")) == (0, 12)


def test_lanes_are_lent_only_units_above_the_safety_stock():
    lent = product("p", 1000, safety_stock=900, low_stock_threshold=10, lent_to=frozenset({1}))
    assert lent.spare_units == 89
    assert (lent.may_change_by(-89), lent.may_change_by(-90)) == (True, False)


@pytest.mark.parametrize("change", [{"safetyStock": 960}, {"purchaseLimit": 2}])
def test_a_loan_notices_that_the_row_may_not_lend_as_much_any_more(shop, change):
    create(shop, stock=1000)
    allocation = shop.allocation("tea")
    allocation.lend("tea", 50, 0)
    command(shop, **change)
    with pytest.raises(TransactionCancelledError):
        shop.write_down(allocation)
    assert (shop.stock("tea"), shop.held("tea")) == (1000, {})


def test_a_decrement_is_the_same_change_whether_or_not_it_may_use_the_safety_stock():
    assert Decrement("p", "d", -1) == Decrement("p", "d", -1, uses_safety=True)


# ---------------------------------------------------------------- files


def test_a_file_sets_limits_at_all_locations_and_safety_stock_at_its_own(shop, tmp_path):
    shelf = Shelf(shop, tmp_path / "stock.csv")
    for load in shelf.check_and_load(
        "productId,locationId,openingStock,purchaseLimit,limitGroup,safetyStock\n"
        "tea,,10,2,drop,3\ntea,berlin,5,2,drop,\n"
    ):
        assert codes(load) == []
    both = {"purchaseLimit": 2, "limitGroup": "drop"}
    assert (stored(shop), stored(shop, "tea#berlin")) == (both | {"safetyStock": 3}, both)
    changed = "productId,purchaseLimit,limitGroup,safetyStock\ntea,4,,1\n"
    for load in shelf.check_and_load(changed):
        ((*_, said),) = findings(load)
        assert said == (
            'safetyStock from 3 to 1; purchaseLimit from 2 to 4; limitGroup "drop" removed; '
            'purchaseLimit from 2 to 4; limitGroup "drop" removed at berlin'
        )
    assert stored(shop) == {"purchaseLimit": 4, "safetyStock": 1}
    assert stored(shop, "tea#berlin") == {"purchaseLimit": 4}
    assert shelf.load(changed).done == {Done.SAME: 1}
    # A line about one location changes that location alone.
    shelf.load("productId,locationId,purchaseLimit\ntea,berlin,1\n")
    assert [shop.product(key).purchase_limit for key in ("tea", "tea#berlin")] == [4, 1]


def test_a_stale_line_of_a_file_changes_no_limits_anywhere(shop, tmp_path):
    create(shop, name="Tea")
    create(shop, "berlin")
    command(shop, name="Earl Grey")
    shelf = Shelf(shop, tmp_path / "stock.csv")
    old = "productId,name,purchaseLimit,eventTime\ntea,Old,2,2020-01-01T00:00:00Z\n"
    for load in shelf.check_and_load(old):
        assert load.done == {Done.STALE: 1}
    assert stored(shop) == stored(shop, "tea#berlin") == {}


def test_a_file_with_safety_stock_and_backorders_is_refused_line_by_line(shop, tmp_path):
    create(shop, backorderLimit=5)
    shelf = Shelf(shop, tmp_path / "stock.csv")
    for load in shelf.check_and_load("productId,safetyStock\ntea,3\n"):
        assert codes(load) == [(2, "tea", "SCHEMA_VIOLATION")]
    both = shelf.check("productId,openingStock,safetyStock,backorderLimit\ncup,1,1,1\n")
    assert codes(both) == [(2, "cup", "SCHEMA_VIOLATION")]


# ---------------------------------------------------------------- buyers


@pytest.mark.parametrize(
    ("buyers", "field"),
    [
        ([], "buyers"),
        (["a", "b", "c", "d"], "buyers"),
        ([""], "buyers[0]"),
        (["a", "x" * 129], "buyers[1]"),
        ([7], "buyers[0]"),
        ("u-7", "buyers"),
    ],
)
def test_an_order_names_one_to_three_keys_of_its_buyer(buyers, field):
    with pytest.raises(InvalidMessageError) as raised:
        parse_order(json.dumps(ordered(buyers=buyers)))
    assert (raised.value.code, raised.value.field) == ("SCHEMA_VIOLATION", field)


def test_buyers_are_those_that_the_order_names_or_else_what_the_setting_says():
    def buyers(counts_users=True, **more):
        body = json.dumps(ordered(**more))
        return [*parse_order(body, counts_users=counts_users).buyers]

    assert (buyers(), buyers(counts_users=False)) == ([("u-1",)], [])
    assert buyers(buyers=["card", "u", "card"], counts_users=False) == [("card",), ("u",)]
    assert buyers(buyers=["é" * 128]) == [("é" * 128,)]


def test_buyers_are_part_of_the_request_and_stored_as_sent(shop):
    create(shop)

    def place(**more):
        answer = shop.invoke("place_orders", ordered(**more))
        return answer["result"], answer.get("code"), answer.get("message", "")

    assert place(buyers=["card", "u"])[0] == "APPLIED"
    assert shop.order_row("o-1")["buyers"] == ["card", "u"]
    assert place(buyers=["card", "u"])[0] == "REPLAYED"
    result, code, message = place(buyers=["u", "card"])
    assert (result, code) == ("INVALID", "ORDER_ID_REUSED")
    assert message.endswith("The two differ in buyers"), "the keys themselves are not shown"
    assert place()[1] == "ORDER_ID_REUSED"


def test_the_setting_for_buyers_is_not_part_of_an_order(shop):
    create(shop)
    body = ordered()
    assert shop.invoke("place_orders", body)["result"] == "APPLIED"
    shop.restart(BUYERS_DEFAULT="none")
    assert shop.invoke("place_orders", body)["result"] == "REPLAYED"
    assert "buyers" not in shop.order_row("o-1")


def test_a_cancellation_that_comes_before_its_order_keeps_the_orders_buyers(shop):
    create(shop)
    shop.send("OrderCommand", {"action": "cancel", "orderId": "o-1"})
    shop.deliver("OrderCommand")
    body = ordered(buyers=["card"])
    shop.send("Order", body)
    shop.deliver("Order")
    assert shop.order_row("o-1")["buyers"] == ["card"]
    assert shop.invoke("place_orders", body)["result"] == "REPLAYED"
    assert set(shop.items(Table.ORDERS)) == {("o-1",)}


def test_events_have_the_limits_that_an_order_exceeded_but_not_the_keys_of_its_buyer(shop):
    create(shop, purchaseLimit=2, safetyStock=7)
    assert shop.invoke("place_orders", ordered(buyers=["card"]))["result"] == "APPLIED"
    order = ordered(orderId="o-2", buyers=["card"]) | {
        "items": [{"productId": "tea", "quantity": 2}]
    }
    refused = shop.invoke("place_orders", order)
    assert (refused["code"], refused["message"]) == (
        "PURCHASE_LIMIT",
        "at most 2 of tea per buyer: 2 wanted, 1 bought before",
    )
    reached = [{"group": "tea", "limit": 2, "bought": 1, "wanted": 2}]
    assert refused["limits"] == reached
    assert shop.invoke("place_orders", order)["limits"] == reached
    (placed,), (rejected,) = (order_events(None, shop.order_row(f"o-{n}")) for n in (1, 2))
    assert (rejected.type, rejected.data["limits"]) == ("OrderRejected", reached)
    for event in (placed, rejected):
        assert "buyers" not in event.data
        assert "limitGroup" not in event.data["items"][0]
