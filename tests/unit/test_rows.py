"""The layout of rows, which keep attributes of other programs, and of pages."""

import json
import random
import zlib
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory_orders.clock import timestamp
from inventory_orders.domain.adjustment import Decrement
from inventory_orders.domain.allotments import MAX_PRODUCTS, Page, PageEntry, PageKey
from inventory_orders.domain.change import OtherRequest
from inventory_orders.domain.order import Order
from inventory_orders.domain.record import OrderLine, OrderRecord, Step
from inventory_orders.errors import CorruptItemError
from inventory_orders.store.rows import (
    adjustment_row,
    decode,
    encode,
    order_row,
    page_units,
    product_row,
    read_page,
    read_product,
    read_record,
)
from testing.schedules.in_turn.bench import product


def test_a_placed_order_names_its_product_versions_and_a_rejected_one_its_reason():
    order = Order("o", "u", {"p": 2})
    placed = order_row(order.record(None, {"p": product("p", 3, version=8)}, "now"))
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
        "statusAt": "now",
        "statusShard": "PENDING#04",
        "createdAt": "now",
        "lastUpdatedAt": "now",
        "_version": 1,
    }
    rejection = order.rejection({"p": product("p", 0)})
    rejected = order_row(order.record(rejection, {}, "now"))
    assert rejected["status"] == "REJECTED"
    assert rejected["reason"] == "INSUFFICIENT_STOCK"
    assert rejected["shortages"] == [{"productId": "p", "wanted": 2, "available": 0}]
    assert rejected["items"] == [{"productId": "p", "quantity": 2}]


@pytest.mark.parametrize("shelf", [{"p": product("p", 3)}, {"p": None}])
def test_a_refused_decrement_is_read_as_it_was_written_and_moves_nothing(shelf):
    asked = Decrement("p", "d", -5, "DECREMENT")
    refused = asked.record(asked.rejection(shelf), {}, "now")
    row = adjustment_row(refused)
    assert (row["delta"], row["rejected"]["delta"], "productCreatedAt" in row) == (0, -5, False)
    assert read_record(encode(row)) == refused
    assert asked.match(refused) == asked.rejection(shelf)
    other = Decrement("p", "d", -4, "DECREMENT")
    assert other.match(refused) == OtherRequest(["delta (stored -5, sent -4)"])
    row["rejected"] = {"delta": -5, "reason": "OF_SOMEBODY_ELSE"}
    with pytest.raises(CorruptItemError, match="OF_SOMEBODY_ELSE"):
        read_record(encode(row))


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
        counted_at="t4",
        other={"shelf": "B-7", "tags": ["x"]},
    )
    assert read_product(encode(product_row(whole))) == whole


def test_an_order_keeps_foreign_attributes_of_its_lines_and_steps():
    line = OrderLine("p", 2, "t0", 4, other={"gift": True})
    step = Step("confirm", "t1", notes={"actor": "ann"}, other={"payment": "visa"})
    order = OrderRecord("o", "u", (line,), "CONFIRMED", 1, "t1", "t1", steps=(step,))
    assert read_record(encode(order_row(order))) == order


PRODUCT = product_row(product("p", 7))
ORDER = {"orderId": "o", "userId": "u", "status": "PENDING", "_version": 1, "items": []}


@pytest.mark.parametrize(
    ("row", "broken"),
    [
        *(
            (PRODUCT, {name: 7})
            for name in ("priceChangedAt", "detailsEventTime", "detailsEventId")
        ),
        *((PRODUCT, {"stockCount": units}) for units in ("7", Decimal("7.5"))),
        *((PRODUCT, {"status": status}) for status in ("HAPPY", None)),
        *((PRODUCT, {name: None}) for name in ("_version", "createdAt", "onHand")),
        *((ORDER, {"items": lines}) for lines in (None, ["x"], [{}])),
        (ORDER, {"items": [{"productId": 7, "quantity": 1}]}),
        *((ORDER, {"attributes": other}) for other in ("", 0, [], False)),
    ],
)
def test_a_row_that_breaks_its_tables_contract_is_corrupt(row, broken):
    """Another program wrote it. None stands for a missing attribute."""
    item = encode({name: value for name, value in (row | broken).items() if value is not None})
    read = read_product if row is PRODUCT else read_record
    with pytest.raises(
        CorruptItemError, match=r"breaks (the contract of the Products table|its table)"
    ):
        read(item)


def test_an_order_without_attributes_or_with_null_has_none():
    for attributes in ({}, {"attributes": {"NULL": True}}):
        assert read_record(encode(ORDER) | attributes).attributes == {}


def test_the_largest_and_the_smallest_number_are_read_and_none_beyond():
    largest, smallest = "9" * 38 + "0" * 88, "1E-130"
    row = {"largest": int(largest), "least": -int(largest), "smallest": Decimal(smallest)}
    assert decode(encode(row)) == row
    for number in ("1E+126", "-1E+126", "1E+999999999", "Infinity", "NaN"):
        with pytest.raises((ValueError, ArithmeticError)):
            decode({"n": {"N": number}})


# ---------------------------------------------------------------------- pages


def page_item(page, **more):
    attributes = {"page": str(page.key), "_version": page.version, "epoch": page.epoch}
    return encode(attributes | {"units": page_units(page), "lastUpdatedAt": "now"} | more)


def compressed(content):
    return zlib.compress(json.dumps(content).encode())


def words(most):
    # By default, Hypothesis would first compute which characters UTF-8 can encode: all but these.
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=most)


@given(
    st.dictionaries(
        words(20),
        st.builds(PageEntry, words(32), st.integers(1, 10**15), st.integers(0, 99)),
        max_size=30,
    ),
    st.frozensets(words(20), max_size=5),
    st.integers(0, 99),
    st.integers(0, 3),
    st.integers(1, 10**12),
)
def test_a_page_is_read_as_it_was_written(entries, emptied, lane, number, version):
    page = Page(PageKey(lane, number), version, "epoch", entries, "now", emptied=emptied)
    assert read_page(page_item(page)) == page


@pytest.mark.parametrize(
    "broken",
    [
        {"units": b"not compressed"},
        {"units": zlib.compress(b"not JSON")},
        {"units": zlib.compress(b"\xff\xff")},
        {"units": page_units(Page(PageKey(1, 2), 1, "e", {"p": PageEntry("then", 5)}))[:-4]},
        {"units": compressed(None)},
        {"units": compressed({"p": 5})},
        {"units": compressed([["p", "then", 5]])},
        {"units": compressed([[5]])},
        {"units": compressed([["p", "then", "5", 0]])},
        {"units": compressed([["p", "then", -5, 0]])},
        {"units": compressed([["p", "then", 0, 0]])},
        {"units": compressed([["p", "then", 5, None]])},
        {"units": compressed([[["p"], "then", 5, 0]])},
        {"units": compressed([["p", None, 5, 0]])},
        {"units": "text"},
        {"units": None},
        {"_version": None},
        {"_version": "one"},
        {"epoch": None},
        {"epoch": 7},
    ],
)
def test_a_page_that_breaks_its_contract_is_corrupt_by_its_name(broken):
    item = page_item(Page(PageKey(1, 2), 1, "epoch", {"p": PageEntry("then", 5)}))
    item = {name: value for name, value in item.items() if name not in broken}
    item |= encode({name: value for name, value in broken.items() if value is not None})
    with pytest.raises(CorruptItemError, match="page 1/2 breaks the contract") as raised:
        read_page(item)
    assert raised.value.code == "CORRUPT_PAGE"


def test_a_full_page_is_far_smaller_than_an_item_may_be():
    """The size of 3,000 products depends on their ids: 46 KB with short ids, and 107 KB with UUIDs."""
    chance = random.Random(1)
    opened = datetime(2026, 1, 1, tzinfo=UTC)

    def size(name_of):
        entries = {
            name_of(number): PageEntry(
                timestamp(opened + timedelta(microseconds=chance.randrange(10**12))),
                chance.randrange(1, 5000),
                8,
            )
            for number in range(MAX_PRODUCTS)
        }
        return len(page_units(Page(PageKey(0, 1), 1, "epoch", entries)))

    assert size(lambda number: f"{10_000 + number * 7}B") < 50_000
    assert size(lambda _: f"{chance.getrandbits(128):032x}") < 110_000
    assert size(lambda _: f"{chance.getrandbits(256):064x}") < 180_000
