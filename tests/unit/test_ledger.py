"""The independent books must find every unit that is missing, and the news every missing or overtaken event."""

import base64
import json
import zlib

import pytest

from testing.world.ledger import Change, Ledger
from testing.world.news import News
from testing.world.violation import ViolationError

SINCE = "2026-01-01T00:00:00.000000+00:00"


def page(name, *entries, version=1):
    content = base64.b64encode(zlib.compress(json.dumps(entries).encode())).decode()
    return {"page": name, "_version": version, "epoch": "e", "units": content}


def product(key="tea", **more):
    row = {"productId": key, "createdAt": SINCE, "_version": 3, "status": "ACTIVE"}
    return row | {"stockCount": 4, "onHand": 10, "lentTo": frozenset({"0", "1"})} | more


def place(key, stock, **more):
    product_id, _, location = key.partition("#")
    at = {"of": product_id, "locationId": location} if location else {}
    row = {"productId": key, "createdAt": SINCE, "_version": 1, "status": "ACTIVE"}
    return row | {"stockCount": stock, "onHand": stock} | at | more


def adjustment(key, adjustment_id, delta, reason="RECEIPT", **more):
    row = {"productId": key, "adjustmentId": adjustment_id, "delta": delta, "reason": reason}
    return row | {"productCreatedAt": SINCE} | more


def order(order_id, units, status="PENDING", steps=(), **more):
    line = {"productId": "tea", "quantity": units, "productCreatedAt": SINCE}
    row = {"orderId": order_id, "userId": "u", "status": status, "_version": 1, "createdAt": SINCE}
    return row | {"items": [line | more], "steps": list(steps)}


HANDED_OVER = {"action": "fulfil", "outPage": "out/0", "outVersion": 1}
# Four of the ten units are in the row, three in a lane, two in an open order, and one has left.
SHOP = {
    ("Products", ("tea",)): product(places=frozenset({"berlin"})),
    ("Products", ("tea#berlin",)): place("tea#berlin", 5),
    ("Allotments", ("0/0",)): page("0/0", ["tea"]),
    ("Allotments", ("1/0",)): page("1/0", ["tea", SINCE, 3, 0]),
    ("Allotments", ("out/0",)): page("out/0", ["tea", SINCE, 1]),
    ("StockAdjustments", ("tea", "a")): adjustment("tea", "a", 10),
    ("StockAdjustments", ("tea#berlin", "a")): adjustment("tea#berlin", "a", 5),
    ("Orders", ("open",)): order("open", 2),
    ("Orders", ("gone",)): order("gone", 1, "FULFILLED", [HANDED_OVER]),
}


def write(ledger, *edits):
    """Note a write that changes or adds rows: the table, the key, and the new attributes or None."""
    changes = []
    for table, key, more in edits:
        before = SHOP.get((table, key))
        rises = {"_version": before["_version"] + 1} if before and "_version" in before else {}
        after = None if more is None else (before or {}) | rises | more
        changes.append(Change((table, key), before, after))
    ledger.note(1, changes)


def test_the_books_of_a_shop_balance_and_show_where_its_units_are():
    (stock,) = Ledger(SHOP).stock["tea"]
    assert (stock.available, stock.on_hand) == (7, 9)


@pytest.mark.parametrize(
    ("key", "more", "found"),
    [
        ("tea", {"stockCount": 3}, "tea has 6 available, but adjustments and orders leave 7"),
        ("tea", {"onHand": 9}, "tea has 8 on hand, but adjustments and orders leave 9"),
        ("tea#berlin", {"stockCount": 4}, "tea#berlin has 4 available"),
        ("tea#berlin", {"onHand": 6}, "tea#berlin has 6 on hand"),
        ("tea#berlin", {"stockCount": 0}, "tea#berlin is ACTIVE with a stock of 0"),
        ("tea#berlin", {"stockCount": -1}, "oversold"),
        ("tea", {"lentTo": frozenset({"0"})}, "lane 1 holds tea, lentTo is ['0']"),
        ("tea", {"lowStockThreshold": 4, "status": "LOW_STOCK"}, "tea is lent to ['0', '1'], and"),
        ("tea", {"places": frozenset()}, "tea lists [], and is at ['berlin']"),
        ("tea", {"places": frozenset({"berlin", "lyon"})}, "tea lists ['berlin', 'lyon']"),
        ("tea#berlin", {"locationId": "lyon"}, "locationId of Products tea#berlin was changed"),
        ("tea#berlin", {"_version": 3}, "went from version 1 to 3"),
        ("tea#berlin", None, "tea#berlin was delisted, and adjustments and orders leave 5"),
        ("mug", {"_version": 1}, "of no product"),
    ],
)
def test_a_wrong_row_of_a_product_is_found(key, more, found):
    ledger = Ledger(SHOP)
    also = [("Products", ("tea",), {"places": frozenset()})] if more is None else []
    with pytest.raises(ViolationError) as error:
        write(ledger, ("Products", (key,), more), *also)
    assert found in str(error.value)


def test_units_stolen_by_hand_are_found_at_the_next_write_of_the_product():
    ledger = Ledger(SHOP)
    sold = {"stockCount": 2, "onHand": 5}
    with pytest.raises(ViolationError, match="tea#berlin has 2 available"):
        write(ledger, ("Products", ("tea#berlin",), sold))


@pytest.mark.parametrize(
    ("table", "key", "more", "found"),
    [
        ("Allotments", "1/0", page("1/0", ["tea", SINCE, 2, 0], version=2), "tea has 6 available"),
        ("Allotments", "2/0", page("2/0", ["tea", SINCE, 1, 0]), "lane 2 holds tea"),
        ("Allotments", "0/0", page("0/0", version=2), "on no page of the depot"),
        ("Allotments", "0/0", page("0/0", ["tea", SINCE, 1, 2], version=2), "to lanes up to 2"),
        ("Allotments", "out/0", page("out/0", version=2), "tea has 10 on hand"),
        ("Allotments", "out/0", page("out/0", ["tea", SINCE, 2], version=2), "but pages gained 1"),
        ("Orders", "open", {"status": "FULFILLED"}, "tea has 2 committed"),
        (
            "Orders",
            "new",
            order("new", 1),
            "tea has 7 available, but adjustments and orders leave 6",
        ),
        ("Orders", "new", order("new", 1, backordered=1), "but new orders name {'tea': 1}"),
        ("Orders", "open", None, "Orders open was deleted"),
        ("Orders", "open", {"status": "FULFILLED", "steps": [HANDED_OVER]}, "but pages gained no"),
    ],
)
def test_a_wrong_page_or_order_is_found(table, key, more, found):
    ledger = Ledger(SHOP)
    with pytest.raises(ViolationError) as error:
        write(ledger, (table, (key,), more))
    assert found in str(error.value)


OUT = adjustment("tea", "t", -2, "TRANSFER_OUT", transferWith="tea#berlin")
IN = adjustment("tea#berlin", "t", 2, "TRANSFER_IN", transferWith="tea")
LEFT = ("Products", ("tea",), {"stockCount": 2, "onHand": 8})
CAME = ("Products", ("tea#berlin",), {"stockCount": 7, "onHand": 7})


def test_a_transfer_with_both_sides_is_right():
    ledger = Ledger(SHOP)
    sides = [("StockAdjustments", (row["productId"], "t"), row) for row in (OUT, IN)]
    write(ledger, *sides, LEFT, CAME)
    assert ledger.stock["tea#berlin"][-1].available == 7


@pytest.mark.parametrize(
    "sides",
    [[OUT], [IN], [OUT, IN | {"delta": 3}], [OUT, IN | {"transferWith": "mug"}]],
)
def test_a_transfer_with_a_missing_or_another_side_is_found(sides):
    booked = [("StockAdjustments", (row["productId"], "t"), row) for row in sides]
    with pytest.raises(ViolationError, match="the transfer t books"):
        write(Ledger(SHOP), *booked, LEFT, CAME)


@pytest.mark.parametrize(("delta", "is_right"), [(-1, True), (0, False), (1, False)])
def test_a_count_books_the_difference_from_the_units_on_hand_when_it_began(delta, is_right):
    at = ("tea#berlin",)
    leased = SHOP | {("Products", at): SHOP["Products", at] | {"lockOnHand": 5}}
    booked = adjustment(*at, "c", delta, "COUNT", counted=4)
    after = leased["Products", at] | {"stockCount": 5 + delta, "onHand": 5 + delta, "_version": 2}
    changes = [
        Change(("StockAdjustments", (*at, "c")), None, booked),
        Change(("Products", at), leased["Products", at], after),
    ]
    ledger = Ledger(leased)
    if is_right:
        ledger.note(1, changes)
    else:
        with pytest.raises(ViolationError, match="a count found 4 units"):
            ledger.note(1, changes)


def test_an_adjustment_is_booked_once_and_never_changed():
    with pytest.raises(ViolationError, match="was changed after it was booked"):
        write(Ledger(SHOP), ("StockAdjustments", ("tea", "a"), {"delta": 11}))


# ---------------------------------------------------------------------- news


def told(event_id, **data):
    return {"metadata": {"eventId": event_id}, "data": data}


def of_order(version, kind):
    return told(f"o#{version}#{kind}", orderId="o")


PLACED = order("o", 1)
PAID = PLACED | {"status": "CONFIRMED", "_version": 2}
LATE = PLACED | {"status": "EXPIRED", "_version": 2}
REFUSED = LATE | {"confirmationRejected": {"reason": "ORDER_EXPIRED"}, "_version": 3}


def news_of(*states, table="Orders", key="o"):
    news = News()
    for before, after in zip([None, *states], states, strict=False):
        news.note([Change((table, (key,)), before, after)])
    return news


@pytest.mark.parametrize(
    ("states", "kinds"),
    [
        ([PLACED, PAID], ["OrderPlaced", "OrderConfirmed"]),
        ([PLACED, LATE, REFUSED], ["OrderPlaced", "OrderExpired", "ConfirmationRejected"]),
        ([{"orderId": "o", "status": "CANCELLED", "_version": 1, "items": []}], []),
    ],
)
def test_each_change_of_an_order_is_published_once_and_in_order(states, kinds):
    news = news_of(*states)
    events = [of_order(number + 1, kind) for number, kind in enumerate(kinds)]
    assert [news.hear(event) for event in events] == [True] * len(kinds)
    assert not any(news.hear(event) for event in events), "duplicates are allowed"
    news.check_end()


@pytest.mark.parametrize(
    "events",
    [
        [of_order(2, "OrderConfirmed"), of_order(1, "OrderPlaced")],
        [of_order(1, "OrderPlaced"), of_order(2, "OrderCancelled")],
        [of_order(1, "OrderPlaced"), of_order(1, "OrderPlaced"), of_order(3, "OrderConfirmed")],
        [told("x#1#OrderPlaced", orderId="x")],
    ],
)
def test_an_event_that_overtakes_or_that_no_change_calls_for_is_found(events):
    news = news_of(PLACED, PAID)
    with pytest.raises(ViolationError, match="was published"):
        list(map(news.hear, events))


def test_an_event_that_was_not_published_is_found():
    news = news_of(PLACED, PAID)
    news.hear(of_order(1, "OrderPlaced"))
    with pytest.raises(ViolationError, match="events of o on the bus"):
        news.check_end()


def test_the_status_of_a_product_at_a_location_is_published():
    states = [
        place("tea#berlin", units, status=status, _version=version)
        for version, (units, status) in enumerate(
            [(9, "ACTIVE"), (4, "LOW_STOCK"), (0, "OUT_OF_STOCK"), (2, "LOW_STOCK"), (9, "ACTIVE")]
        )
    ]
    news = news_of(*states, table="Products", key="tea#berlin")
    names = ["LowOnStock", "OutOfStock", "BackInStock", "StockRecovered"]
    for version, name in enumerate(names, 1):
        event_id = f"tea@{SINCE}#{version}#Product{name}#berlin"
        assert news.hear(told(event_id, productId="tea", locationId="berlin"))
    news.check_end()
