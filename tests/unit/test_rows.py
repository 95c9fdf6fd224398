"""The layout of rows, which keeps the attributes of other programs."""

import pytest

from inventory_orders.domain.change import OrderLine, OrderRecord
from inventory_orders.domain.order import Order
from inventory_orders.errors import CorruptItemError
from inventory_orders.store.rows import encode, product_row, read_product, read_record, record_row
from tests.support.memory_store import product


def test_a_placed_order_names_its_product_versions_and_a_rejected_one_its_reason():
    order = Order("o", "u", {"p": 2})
    placed = record_row(order.record(None, {"p": product("p", 3, version=8)}, "now").record)
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
    rejection = order.rejection({"p": product("p", 0)})
    rejected = record_row(order.record(rejection, {}, "now").record)
    assert rejected["status"] == "REJECTED"
    assert rejected["reason"] == "INSUFFICIENT_STOCK"
    assert rejected["shortage"] == {"productId": "p", "wanted": 2, "available": 0}
    assert rejected["items"] == [{"productId": "p", "quantity": 2}]


def test_a_product_is_read_as_it_was_written():
    whole = product(
        "p",
        7,
        version=3,
        backorder_limit=2,
        low_stock_threshold=5,
        name="Tea",
        price=450,
        price_changed_at="t1",
        details_event_time="t2",
        details_event_id="e",
        last_updated_at="t3",
        locked_by="owner",
        lock_time=1790000000.123456,
        lock_version=3,
        lock_wait=0.25,
        other={"shelf": "B-7", "tags": ["x"]},
    )
    assert read_product(encode(product_row(whole))) == whole


def test_an_order_keeps_foreign_attributes_of_its_lines():
    line = OrderLine("p", 2, "t0", 4, other={"gift": True})
    order = OrderRecord("o", "u", (line,), "PENDING", 1, "t1", "t1")
    assert read_record(encode(record_row(order))) == order


@pytest.mark.parametrize(
    "broken",
    [
        {"items": None},
        {"items": ["x"]},
        {"items": [{"productId": 7, "quantity": 1}]},
        {"items": [{}]},
    ],
)
def test_an_order_with_unreadable_lines_is_corrupt(broken):
    row = {"orderId": "o", "userId": "u", "status": "PENDING", "_version": 1} | broken
    item = encode({name: value for name, value in row.items() if value is not None})
    with pytest.raises(CorruptItemError, match="breaks its table's contract"):
        read_record(item)
