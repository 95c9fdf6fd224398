"""Lists of orders: every order exactly once and in sequence, with few requests, whatever the number of orders."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from inventory_orders.clock import timestamp
from inventory_orders.store import lists
from inventory_orders.store.lists import ListPosition, OrderFilter, list_orders
from inventory_orders.store.rows import encode, shard_of
from inventory_orders.store.tables import OTHER_STATUS_SHARDS, STATUS_SHARDS

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def at(number):
    return timestamp(BEGAN + timedelta(seconds=number))


def put(shop, order_id, status, second, **more):
    row = {"orderId": order_id, "status": status, "statusAt": at(second), "userId": "u-7"}
    shards = STATUS_SHARDS.get(status, OTHER_STATUS_SHARDS)
    row |= {"statusShard": shard_of(order_id, shards, f"{status}#"), "createdAt": at(second)} | more
    shop.aws.dynamodb.tables["Orders"].items[order_id,] = encode(row)


def fill(shop, status, count, **more):
    """Store orders, one a second, and return their ids, the oldest first."""
    ids = [f"o-{number:04}" for number in range(count)]
    for number, order_id in enumerate(ids):
        put(shop, order_id, status, number, **more)
    return ids


def pages(shop, wanted, limit):
    """Read a list to its end, and return the ids on each page."""
    found, after = [], None
    while True:
        places, after = list_orders(shop.store, wanted, limit, after)
        found.append([place.id for place in places])
        if after is None:
            return found


def flat(found):
    return [order_id for page in found for order_id in page]


@pytest.mark.parametrize("wanted", [OrderFilter(), OrderFilter(status="SHIPPED")])
def test_a_filter_without_a_known_status_is_an_error(shop, wanted):
    with pytest.raises(ValueError, match="is not a valid OrderStatus"):
        pages(shop, wanted, 1)


@pytest.mark.parametrize("limit", [7, 100])
@pytest.mark.parametrize(
    ("status", "is_oldest_first"),
    [("PENDING", True), ("CONFIRMED", True), ("FULFILLED", False), ("REJECTED", False)],
)
def test_a_list_has_each_order_once_and_in_sequence(shop, status, is_oldest_first, limit):
    ids = fill(shop, status, 90)
    put(shop, "another", "CANCELLED", 7)
    found = pages(shop, OrderFilter(status=status), limit)
    assert flat(found) == (ids if is_oldest_first else ids[::-1])
    assert {len(page) for page in found[:-1]} <= {limit}


@pytest.mark.parametrize(("status", "requests"), [("PENDING", 64), ("FULFILLED", 16)])
@pytest.mark.parametrize("count", [100, 1_500])
def test_a_page_costs_the_same_however_many_orders_there_are(shop, status, requests, count):
    fill(shop, status, count)
    consumed = shop.aws.dynamodb.tables["Orders"].consumed
    shop.calls.clear()
    places, _ = list_orders(shop.store, OrderFilter(status=status), 20, None)
    assert len(places) == 20
    # A few shards have more than their share of the page.
    assert requests <= shop.calls.count("Query") <= requests + 2
    assert consumed.index_reads["byStatus"] == shop.calls.count("Query") / 2


def test_shards_with_more_than_their_share_are_read_on(shop):
    for number in range(60):
        shard = f"CONFIRMED#{0 if number < 40 else number % 16:02}"
        put(shop, f"o-{number:04}", "CONFIRMED", number, statusShard=shard)
    expected = [f"o-{number:04}" for number in range(60)]
    assert flat(pages(shop, OrderFilter(status="CONFIRMED"), 25)) == expected


def test_orders_with_the_same_time_are_listed_once(shop, monkeypatch):
    # All rounds together read fewer entries than there are.
    monkeypatch.setattr(lists, "_SPARE", 1)
    ids = [f"o-{number:04}" for number in random.Random(1).sample(range(60), 60)]
    for order_id in ids:
        put(shop, order_id, "FULFILLED", 5, statusShard="FULFILLED#03")
    for limit in (1, 25, 60):
        found = pages(shop, OrderFilter(status="FULFILLED"), limit)
        assert flat(found) == sorted(ids, reverse=True)


def test_many_orders_with_the_same_time_take_few_requests(shop):
    for number in range(1_600):
        put(shop, f"o-{number:04}", "CANCELLED", 5)
    shop.calls.clear()
    places, after = list_orders(shop.store, OrderFilter(status="CANCELLED"), 100, None)
    assert (len(places), after) == (100, places[-1])
    # Each request reads twice as many entries as the one before, so 16 keys take at most four each.
    assert shop.calls.count("Query") <= 4 * 16


@pytest.mark.parametrize("status", ["CONFIRMED", "CANCELLED"])
def test_a_time_range_includes_its_beginning_and_not_its_end(shop, status):
    ids = fill(shop, status, 40)
    wanted = OrderFilter(status=status, since=at(10), until=at(20))
    assert sorted(flat(pages(shop, wanted, 4))) == ids[10:20]
    of_user = OrderFilter("u-7", since=at(10), until=at(20))
    assert flat(pages(shop, of_user, 4)) == ids[19:9:-1]
    empty = OrderFilter(status=status, since=at(20), until=at(10))
    assert pages(shop, empty, 4) == [[]]
    beyond = ListPosition(at(50), "o") if status == "CONFIRMED" else ListPosition(at(5), "o")
    assert list_orders(shop.store, wanted, 4, beyond) == ([], None)


def test_a_list_of_a_location_goes_on_behind_orders_of_other_locations(shop, monkeypatch):
    assert lists._FILTERED == 100
    monkeypatch.setattr(lists, "_FILTERED", 10)
    fill(shop, "FULFILLED", 200, suppliedFrom=["berlin"])
    put(shop, "at-both", "FULFILLED", -2, suppliedFrom=["", "lyon"])
    put(shop, "at-default", "FULFILLED", -1)
    lyon = OrderFilter(status="FULFILLED", location_id="lyon")
    shop.calls.clear()
    places, after = list_orders(shop.store, lyon, 20, None)
    # The page is empty, because it would take too long to find an order.
    assert (places, after is None) == ([], False)
    assert 16 <= shop.calls.count("Query") <= 16 + 4
    assert flat(pages(shop, lyon, 20)) == ["at-both"]
    default = OrderFilter(status="FULFILLED", location_id="")
    assert flat(pages(shop, default, 20)) == ["at-default", "at-both"]
    berlin = OrderFilter("u-7", "FULFILLED", location_id="berlin")
    assert len(flat(pages(shop, berlin, 100))) == 200


@pytest.mark.parametrize("more", [{"since": at(-9), "until": at(0)}, {"status": "EXPIRED"}])
def test_a_filtered_list_of_a_user_with_many_orders_goes_on_page_by_page(shop, monkeypatch, more):
    monkeypatch.setattr(lists, "_FILTERED", 10)
    fill(shop, "PENDING", 35)
    put(shop, "o-old", "EXPIRED", -5)
    shop.calls.clear()
    found = pages(shop, OrderFilter("u-7", **more), 20)
    assert (flat(found), len(found)) == (["o-old"], 6)
    assert shop.calls.count("Query") == 6, "each page takes one request"


def test_late_payments_are_listed_by_the_time_of_their_rejection(shop):
    for number, second in enumerate((30, 10, 20)):
        late = {"latePaymentAt": at(second), "latePaymentShard": f"{number:02}"}
        put(shop, f"o-{number}", "EXPIRED", number, **late)
    put(shop, "o-9", "EXPIRED", 9)
    late = OrderFilter(paid_late=True)
    assert flat(pages(shop, late, 2)) == ["o-0", "o-2", "o-1"]
    assert flat(pages(shop, OrderFilter(paid_late=True, since=at(20), until=at(30)), 2)) == ["o-2"]


def test_shards_are_read_side_by_side(shop):
    fill(shop, "CONFIRMED", 30)
    rounds = []

    def side_by_side(read, parts):
        rounds.append(len(parts))
        return [*map(read, parts)]

    list_orders(shop.store, OrderFilter(status="CONFIRMED"), 20, None, side_by_side)
    assert rounds[0] == 16
