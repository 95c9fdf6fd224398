"""The sweep empties idle lanes, leaves lanes in use alone, and loses no unit."""

import pytest

from docs_generator import costs
from inventory_orders.clock import SystemClock
from inventory_orders.domain.allotments import DEPOT, MAX_LANES, PAGES, LaneLease, PageKey
from inventory_orders.domain.order import Order
from inventory_orders.errors import Outcome
from inventory_orders.lanes.idle import (
    IDLE_SECONDS,
    IdleReport,
    return_idle_units,
)
from inventory_orders.store.lane_leases import lease_lane
from inventory_orders.store.tables import Table
from testing.aws import ServiceError
from testing.schedules.in_turn.bench import one_attempt
from testing.schedules.in_turn.lanes import LaneShop

LEASE_SECONDS = 30
ANOTHER = {"S": "2026-01-01T00:00:00.000000+00:00"}
"""The creation time of another generation."""


@pytest.fixture
def shop():
    with LaneShop().open() as shop:
        yield shop


def list_and_lend(shop, units, fills=None, *product_ids, **details):
    """List products with 100 units each, and move some units to the depot and on to lanes that have owners."""
    for product_id in product_ids:
        shop.list(product_id, 100, **details)
        lend(shop, product_id, units, fills)


def lend(shop, product_id, units, fills=None):
    fills = fills or {}
    shop.lend(product_id, fills, units - sum(fills.values()))
    for lane, filled in fills.items():
        if filled:
            lease(shop, lane)


def lease(shop, lane):
    until = shop.clock.now() + LEASE_SECONDS
    lease_lane(shop.store, LaneLease(lane, "owner", until), SystemClock().now())


def sweep(shop, seconds=40.0):
    return return_idle_units(shop.store, shop.soon(seconds))


def where(shop, product_id):
    """Return the units in the row, the units by lane, and the lanes that may hold units."""
    return shop.stock(product_id), shop.held(product_id), set(shop.product(product_id).lent_to)


def in_one_page(count):
    names = (f"p{number}" for number in range(count * PAGES * 2))
    return [name for name in names if PageKey.of(DEPOT, name).number == 0][:count]


def test_a_lane_without_a_live_lease_is_emptied_into_the_depot(shop):
    list_and_lend(shop, 50, {1: 20, 2: 5}, "a", "b", "c")
    shop.clock.sleep(LEASE_SECONDS)
    lease(shop, 2)
    assert sweep(shop) == IdleReport(lanes=[1])
    for product_id in ("a", "b", "c"):
        assert where(shop, product_id) == (50, {0: 45, 2: 5}, {0, 1, 2})


def test_an_emptied_lane_costs_one_visit_of_four_requests(shop):
    list_and_lend(shop, 50, {1: 20}, *(f"p{number}" for number in range(40)))
    shop.clock.sleep(LEASE_SECONDS)
    shop.calls = []
    assert sweep(shop).lanes == [1]
    leases_and_pages = ["BatchGetItem", "BatchGetItem"]
    visit = ["UpdateItem", "BatchGetItem", "TransactWriteItems"]
    assert shop.calls == [*leases_and_pages, *visit, "BatchGetItem"]
    shop.calls = []
    assert sweep(shop) == IdleReport()
    assert shop.calls == ["BatchGetItem"] * 3, "a sweep without work takes three reads"


def test_a_sweep_without_lanes_reads_as_much_as_the_costs_say(shop):
    assert sweep(shop) == IdleReport()
    reads = shop.aws.dynamodb.tables[Table.ALLOTMENTS.value].consumed.reads
    assert reads == costs.READ_UNITS_OF_LANES


def test_a_lane_beyond_what_the_settings_allow_today_is_emptied_and_a_status_stays(shop):
    list_and_lend(shop, 70, {MAX_LANES: 20}, "a", low_stock_threshold=20)
    before = shop.product("a")
    shop.clock.sleep(LEASE_SECONDS)
    assert sweep(shop).lanes == [MAX_LANES]
    shop.clock.sleep(IDLE_SECONDS)
    assert sweep(shop) == IdleReport(products=1)
    assert where(shop, "a") == (100, {}, set())
    after = shop.product("a")
    assert (after.status, after.version) == (before.status, before.version + 1)


def test_a_row_whose_lanes_have_sold_all_units_no_longer_names_lanes(shop):
    """If the row still named lanes, the API could not sell the row's last units, which would stay reserved."""
    list_and_lend(shop, 90, {1: 20}, "a")
    shop.sell_from(1, "a", 20)
    shop.sell_from(DEPOT, "a", 70)
    assert where(shop, "a") == (10, {}, {0, 1})
    shop.clock.sleep(max(LEASE_SECONDS, IDLE_SECONDS))
    assert sweep(shop) == IdleReport(products=1)
    assert where(shop, "a") == (10, {}, set())
    api = one_attempt(shop.store, clock=SystemClock())
    assert shop.outcomes(api, Order("o", "u", {"a": 10})) == [Outcome.APPLIED]
    shop.calls = []
    assert sweep(shop) == IdleReport()
    assert shop.calls == ["BatchGetItem"] * 3, "a sweep without work takes three reads"


def test_the_units_of_an_idle_depot_are_reclaimed_in_several_transactions(shop):
    products = in_one_page(95)
    list_and_lend(shop, 50, {5: 0}, *products[::2])
    list_and_lend(shop, 50, {}, *products[1::2])
    shop.clock.sleep(IDLE_SECONDS)
    shop.calls = []
    assert sweep(shop) == IdleReport(products=95)
    assert shop.calls.count("TransactWriteItems") == 2
    assert all(where(shop, product_id) == (100, {}, set()) for product_id in products)


def test_a_depot_in_use_and_products_of_a_lane_in_use_are_left_alone(shop):
    recent, lent = in_one_page(2)
    elsewhere = next(p for p in "abcdefgh" if PageKey.of(DEPOT, p).number != 0)
    list_and_lend(shop, 50, {3: 1}, elsewhere)
    list_and_lend(shop, 50, {}, lent)
    shop.clock.sleep(IDLE_SECONDS - 1)
    lease(shop, 3)
    list_and_lend(shop, 50, {}, recent)
    assert sweep(shop) == IdleReport()
    shop.clock.sleep(1)
    assert sweep(shop) == IdleReport()
    assert where(shop, lent) == where(shop, recent) == (50, {0: 50}, {0})
    assert where(shop, elsewhere) == (50, {0: 49, 3: 1}, {0, 1, 2, 3})


def test_a_leased_product_waits_and_the_others_are_reclaimed(shop):
    counted, other = in_one_page(2)
    list_and_lend(shop, 50, {}, counted, other)
    shop.clock.sleep(IDLE_SECONDS)
    shop.count(counted, seconds=60)
    assert sweep(shop) == IdleReport(products=1)
    assert where(shop, counted) == (50, {0: 50}, {0})
    shop.clock.sleep(IDLE_SECONDS)
    assert sweep(shop) == IdleReport(products=1)


def test_units_that_a_visitor_moves_while_a_sweep_waits_are_left_alone(shop):
    products = sorted(in_one_page(95))
    list_and_lend(shop, 50, {1: 0}, *products)
    shop.clock.sleep(IDLE_SECONDS)
    shop.once("UpdateItem", lambda _: shop.fill(1, products[-1], 50))
    assert sweep(shop) == IdleReport(products=94)
    assert where(shop, products[-1]) == (50, {1: 50}, {0, 1})


def test_contradictory_pages_are_named_and_kept_and_the_rest_is_reclaimed(shop):
    other, fine = in_one_page(2)
    list_and_lend(shop, 50, {}, other, fine)
    shop.edit(Table.PRODUCTS, other, createdAt=ANOTHER)
    shop.clock.sleep(IDLE_SECONDS)
    (problem,) = sweep(shop).problems
    assert problem.endswith(f"0/0 holds 50 of {other} unknown to its row")
    assert where(shop, other) == (50, {0: 50}, {0})
    assert where(shop, fine) == (100, {}, set())


def test_a_page_that_cannot_be_read_is_named_and_the_others_are_emptied(shop):
    broken, fine = "a", next(p for p in "bcdefgh" if PageKey.of(0, p) != PageKey.of(0, "a"))
    list_and_lend(shop, 50, {1: 10}, broken, fine)
    shop.clock.sleep(LEASE_SECONDS)
    with shop.broken_page(1, broken):
        (problem,) = sweep(shop).problems
    assert f"page {PageKey.of(1, broken)} breaks the contract" in problem
    assert where(shop, fine)[1] == {0: 50}


def test_without_permission_it_fails_and_without_time_it_leaves_the_rest(shop):
    list_and_lend(shop, 50, {1: 20, 2: 5}, "a")
    shop.clock.sleep(IDLE_SECONDS)
    assert "OUT_OF_TIME" in sweep(shop, 0.0).unfinished
    assert "no time was left" in sweep(shop, 0.05).unfinished
    shop.refuse("UpdateItem", ServiceError("AccessDeniedException", "not authorized"))
    (problem,) = sweep(shop).problems
    assert "not authorized" in problem
