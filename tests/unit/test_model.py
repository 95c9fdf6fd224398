"""Status, refusals and the sameness of requests."""

import pytest

from inventory_orders.model import (
    Adjustment,
    Known,
    Order,
    ProductStatus,
    RefusalReason,
    stock_status,
)
from tests.support.memory_store import product


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


def test_lines_of_one_product_are_added_up_before_they_are_checked():
    order = Order.of("o", "u", [("p", 5), ("q", 1), ("p", 5)])
    assert order.quantities == {"p": 10, "q": 1}
    shelf = {"p": product("p", 5), "q": product("q", 5)}
    assert order.refusal(shelf).reason is RefusalReason.INSUFFICIENT_STOCK


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, RefusalReason.UNKNOWN_PRODUCT),
        (product("p", 9, status="DISCONTINUED"), RefusalReason.DISCONTINUED_PRODUCT),
        (product("p", 1), RefusalReason.INSUFFICIENT_STOCK),
        (product("p", 2), None),
        (product("p", -1, backorder_limit=3), None),
        (product("p", -2, backorder_limit=3), RefusalReason.INSUFFICIENT_STOCK),
    ],
)
def test_refusals_of_an_order(value, reason):
    refusal = Order("o", "u", {"p": 2}).refusal({"p": value})
    assert (refusal and refusal.reason) == reason


def test_refusals_of_an_adjustment():
    take = Adjustment("p", "a", -3, "CORRECTION")
    assert take.refusal({"p": None}).reason is RefusalReason.UNKNOWN_PRODUCT
    assert take.refusal({"p": product("p", 2)}).reason is RefusalReason.BELOW_FLOOR
    assert take.refusal({"p": product("p", 2, backorder_limit=1)}) is None


def test_the_same_request_means_the_same_user_and_the_same_added_up_lines():
    order = Order.of("o", "u", [("p", 1), ("q", 2)])
    row = order.record(None, {"p": product("p", 1), "q": product("q", 1)}, "now").row
    assert order.recognise(row) is Known.SAME_REQUEST
    reordered = Order.of("o", "u", [("q", 1), ("p", 1), ("q", 1)])
    assert reordered.recognise(row) is Known.SAME_REQUEST
    assert Order.of("o", "other", [("p", 1), ("q", 2)]).recognise(row) is Known.OTHER_REQUEST
    assert Order.of("o", "u", [("p", 1), ("q", 3)]).recognise(row) is Known.OTHER_REQUEST


def test_a_placed_order_names_the_versions_that_it_made_and_a_rejected_one_its_reason():
    order = Order("o", "u", {"p": 2})
    placed = order.record(None, {"p": product("p", 3, version=8)}, "now").row
    assert placed == {
        "orderId": "o",
        "userId": "u",
        "items": [
            {
                "productId": "p",
                "quantity": 2,
                "productCreatedAt": "2026-01-01T00:00:00.000000+00:00",
                "productVersion": 8,
            }
        ],
        "status": "PENDING",
        "createdAt": "now",
        "lastUpdatedAt": "now",
        "_version": 1,
    }
    refusal = order.refusal({"p": product("p", 0)})
    rejected = order.record(refusal, {}, "now").row
    assert rejected["status"] == "REJECTED"
    assert rejected["reason"] == "INSUFFICIENT_STOCK"
    assert rejected["items"] == [{"productId": "p", "quantity": 2}]
