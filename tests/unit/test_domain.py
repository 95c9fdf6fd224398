"""The domain's rules: a product's status, rejections, and when two requests are the same."""

from dataclasses import replace

import pytest

from inventory_orders.domain.adjustment import Adjustment, Transfer
from inventory_orders.domain.change import IdempotencyMatch, OtherRequest
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import ProductStatus, stock_status
from inventory_orders.domain.rejection import Rejection, RejectionReason, Shortage
from inventory_orders.errors import id_reused_error
from testing.schedules.in_turn.bench import product


@pytest.mark.parametrize(
    ("stock", "backorder", "threshold", "expected"),
    [
        (10, 0, 5, ProductStatus.ACTIVE),
        (5, 0, 5, ProductStatus.LOW_STOCK),
        (1, 0, 0, ProductStatus.ACTIVE),
        (0, 0, 0, ProductStatus.OUT_OF_STOCK),
        (0, 0, 5, ProductStatus.OUT_OF_STOCK),
        (0, 3, 0, ProductStatus.LOW_STOCK),
        (-2, 3, 0, ProductStatus.LOW_STOCK),
        (-3, 3, 0, ProductStatus.OUT_OF_STOCK),
        (-3, 3, -5, ProductStatus.OUT_OF_STOCK),
    ],
)
def test_status_follows_from_the_stock(stock, backorder, threshold, expected):
    assert stock_status(stock, backorder, threshold) is expected
    discontinued = stock_status(stock, backorder, threshold, ProductStatus.DISCONTINUED)
    assert discontinued is ProductStatus.DISCONTINUED


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, RejectionReason.UNKNOWN_PRODUCT),
        (product("p", 9, status="DISCONTINUED"), RejectionReason.DISCONTINUED_PRODUCT),
        (product("p", 1), RejectionReason.INSUFFICIENT_STOCK),
        (product("p", 2), None),
        (product("p", -1, backorder_limit=3), None),
        (product("p", -2, backorder_limit=3), RejectionReason.INSUFFICIENT_STOCK),
    ],
)
def test_an_order_is_rejected_for_a_product_that_cannot_be_sold(value, reason):
    rejection = Order("o", "u", {"p": 2}).rejection({"p": value})
    assert (rejection and rejection.reason) == reason


def test_a_rejection_because_of_stock_says_how_much_was_missing():
    shelf = {"p": product("p", 1, backorder_limit=2)}
    assert Order("o", "u", {"p": 5}).rejection(shelf).shortages == (Shortage("p", 5, 3),)
    assert Adjustment("p", "a", -4, "LOSS").rejection(shelf).shortages == (Shortage("p", 4, 3),)


def test_a_rejection_lists_all_shortages_that_are_certain():
    shelf = {
        "enough": product("enough", 5),
        "first": product("first", 1),
        "second": product("second", 0),
        "in lanes": product("in lanes", 1, lent_to=frozenset({0})),
    }
    rejection = Order("o", "u", dict.fromkeys(shelf, 2)).rejection(shelf)
    assert rejection.shortages == (Shortage("first", 2, 1), Shortage("second", 2, 0))
    assert "first: 2 wanted, 1 available; there is not enough stock of second" in rejection.words


def test_an_adjustment_is_rejected_below_the_floor_or_without_its_product():
    take = Adjustment("p", "a", -3, "CORRECTION")
    assert take.rejection({"p": None}).reason is RejectionReason.UNKNOWN_PRODUCT
    assert take.rejection({"p": product("p", 2)}).reason is RejectionReason.BELOW_FLOOR
    assert take.rejection({"p": product("p", 2, backorder_limit=1)}) is None


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        (RejectionReason.UNKNOWN_PRODUCT, "; correct the id, or create the product if the id is"),
        (RejectionReason.BELOW_FLOOR, ". If a receipt is missing, book it first; if open orders"),
        (RejectionReason.NOT_OPEN, "can be returned once they are back"),
        (RejectionReason.ORDER_FULFILLED, "; return its units once they are back"),
        (RejectionReason.NOT_FULFILLED, "; if they were handed over, fulfil the order first"),
    ],
)
def test_advice_after_a_rejection_books_nothing_that_did_not_happen(reason, says):
    assert says in Rejection(reason, "x").words


NOW = "2026-11-20T09:30:00.000000+00:00"
PLACED = Order(
    "o",
    "u",
    {"p": 1, "q": 2},
    hold_seconds=60,
    attributes={"gift": True, "channel": "web", "points": 1},
    locations=("a", "b"),
    asked_locations={"q": "b"},
)
SHELF = {key: product(key, 9) for key in ("p#a", "p#b", "q#b")}


@pytest.mark.parametrize(
    ("changed", "differences"),
    [
        ({"quantities": {"p": 1, "q": 3}}, ["quantity of q (stored 2, sent 3)"]),
        ({"quantities": {"q": 2}}, ["quantity of p (stored 1, sent nothing)"]),
        ({"hold_seconds": None, "default_hold": 60}, ["holdSeconds (stored 60, sent nothing)"]),
        ({"locations": ("b", "a")}, ['locations (stored ["a", "b"], sent ["b", "a"])']),
        ({"locations": None}, ['locations (stored ["a", "b"], sent nothing)']),
        ({"asked_locations": {}}, ['locationId of q (stored "b", sent nothing)']),
        ({"asked_locations": {"p": "a", "q": "b"}}, ['locationId of p (stored nothing, sent "a")']),
        ({"split": True}, ["split (stored false, sent true)"]),
        (
            {"attributes": {"gift": 1, "channel": "web" * 99, "points": "1"}},
            [
                "attributes.gift (stored true, sent 1)",
                f'attributes.channel (stored "web", sent "{"web" * 13})',
                'attributes.points (stored 1, sent "1")',
            ],
        ),
        # Another user's order is not described.
        ({"user_id": "other", "quantities": {"p": 9}}, ["userId"]),
    ],
)
def test_another_order_under_the_same_id_names_what_differs(changed, differences):
    record = PLACED.record(None, SHELF, NOW)
    assert replace(PLACED, **changed).match(record) == OtherRequest(differences)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"default_hold": 900, "default_locations": ("b",)},
        {"attributes": {"points": 1, "channel": "web", "gift": True}},
        {"quantities": {"q": 2, "p": 1}},
    ],
)
def test_the_settings_and_the_sequence_of_names_are_not_part_of_an_order(changed):
    record = PLACED.record(None, SHELF, NOW)
    assert replace(PLACED, **changed).match(record) is IdempotencyMatch.SAME_REQUEST


def test_a_forgotten_customers_order_is_not_described():
    forgotten = {"user_id": "pseudonym", "pseudonymised_at": NOW, "attributes": {}}
    record = replace(PLACED.record(None, SHELF, NOW), **forgotten)
    assert PLACED.match(record) is IdempotencyMatch.SAME_REQUEST
    assert replace(PLACED, hold_seconds=61).match(record) == OtherRequest(["userId"])


@pytest.mark.parametrize(
    ("sent", "differences"),
    [
        (Adjustment("p", "a", 41, "RECEIPT"), ["delta (stored 40, sent 41)"]),
        (Adjustment("p", "a", 40, "RETURN"), ['reason (stored "RECEIPT", sent "RETURN")']),
        (
            Transfer("p", "p#lyon", "a", 40),
            [
                'reason (stored "RECEIPT", sent nothing)',
                'from (stored nothing, sent "")',
                'to (stored nothing, sent "lyon")',
            ],
        ),
    ],
)
def test_another_adjustment_under_the_same_id_names_what_differs(sent, differences):
    record = Adjustment("p", "a", 40, "RECEIPT").record(None, {"p": product("p", 1)}, NOW)
    assert sent.match(record) == OtherRequest(differences)


def test_another_transfer_under_the_same_id_names_the_fields_of_transfers():
    products = {key: product(key, 9) for key in ("p", "p#lyon")}
    stored = Transfer("p", "p#lyon", "t", 9).parts[0].record(None, products, NOW)
    assert Transfer("p", "p#lyon", "t", 9).match(stored) is IdempotencyMatch.SAME_REQUEST
    for sent, differences in (
        (Transfer("p", "p#lyon", "t", 8), ["quantity (stored 9, sent 8)"]),
        (Transfer("p", "p#berlin", "t", 9), ['to (stored "lyon", sent "berlin")']),
    ):
        assert sent.match(stored) == OtherRequest(differences)


@pytest.mark.parametrize(
    ("code", "begins"),
    [
        (
            "ORDER_ID_REUSED",
            "orderId: another order is stored under this id. It may be the same purchase, so look at the stored order first, "
            "and use a new orderId only for a second purchase. ",
        ),
        (
            "STEP_ID_REUSED",
            "stepId: another step is stored under this id. It may be the same step, so look at the stored step first, and use "
            "a new stepId only for a second step. ",
        ),
    ],
)
def test_advice_about_a_used_id_does_not_lead_to_a_second_purchase(code, begins):
    error = id_reused_error(code, ["a", "b", "c", "d", "e"])
    assert error.message == f"{begins}The two differ in a, b, c and 2 more"
