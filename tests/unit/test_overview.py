"""What the sweep stores for lists and for the desk's first page."""

import pytest

from inventory_orders import overview
from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.domain.allotments import DEPOT, PAGES, PageKey
from inventory_orders.lanes.levels import ALL_LANES, estimate_levels, list_levels
from inventory_orders.overview import store_overview
from inventory_orders.store.lists import list_products
from inventory_orders.store.sweep_rows import TODAY, read_swept
from inventory_orders.store.tables import Table
from testing.aws import ServiceError
from testing.schedules.in_turn.lanes import LaneShop
from tests.support.desk import TEA, desk_of_shop

LANES = dict.fromkeys(range(1, 91), 2)
"""Units in each lane of the default settings."""

SALE = [f"p{number}" for number in range(10)]


@pytest.fixture
def shop():
    with LaneShop().open() as shop:
        for product_id in SALE:
            shop.list(product_id, 1000)
        yield shop


def lend_all(shop):
    for product_id in SALE:
        first = {lane: units for lane, units in LANES.items() if lane <= 45}
        shop.lend(product_id, first, 20)
        shop.lend(product_id, {lane: LANES[lane] for lane in LANES.keys() - first.keys()})


def sweep(shop):
    at = timestamp(SystemClock().now())
    report = store_overview(shop.worker().client, shop.soon())
    assert (report.problems, report.unfinished) == ({}, "")
    return at


def listed(shop, read=list_levels):
    """List all products. Returns their levels, and the read units of their lanes."""
    client, table = shop.worker().client, shop.aws.dynamodb.tables[Table.ALLOTMENTS.value]
    rows, _ = list_products(shop.store, 100, None)
    before = table.consumed.reads
    levels = read(client, rows, shop.soon(), on_hand=False)
    return levels, table.consumed.reads - before


def test_a_list_costs_the_same_whatever_lanes_hold(shop):
    _, empty = listed(shop)
    lend_all(shop)
    exact, all_pages = listed(shop, estimate_levels)
    # One strongly consistent read of each page.
    assert (empty, all_pages) == (0, PAGES * (1 + len(LANES)))
    assert {sum(level.in_lanes.values()) for level in exact.values()} == {200}
    at = sweep(shop)
    levels, units = listed(shop)
    assert units <= PAGES / 2
    for product_id in SALE:
        level = levels[product_id]
        assert (level.available, level.in_lanes, level.is_exact) == (1000, {ALL_LANES: 200}, False)
        assert level.as_of >= at


def test_a_list_shows_the_units_of_the_last_sweep_until_the_next(shop):
    lend_all(shop)
    sweep(shop)
    shop.sell_from(1, "p0")
    # Units that move afterwards change nothing, because the row and the lanes were read together.
    shop.lend("p1", {}, 500)
    levels, _ = listed(shop)
    assert (levels["p0"].available, levels["p1"].available) == (1000, 1000)
    shop.clock.sleep(60)
    sweep(shop)
    levels, _ = listed(shop)
    assert (levels["p0"].available, levels["p1"].available) == (999, 1000)


def test_what_the_sweep_has_not_seen_is_read_from_the_lanes(shop):
    shop.lend("p0", {1: 20}, 30)
    sweep(shop)
    shop.lend("p1", {2: 40}, 10)
    levels, _ = listed(shop)
    assert levels["p0"].as_of
    assert (levels["p1"].as_of, levels["p1"].in_lanes) == ("", {DEPOT: 10, 2: 40})
    shop.clock.sleep(601)
    levels, _ = listed(shop)
    assert (levels["p0"].as_of, levels["p0"].in_lanes) == ("", {DEPOT: 30, 1: 20})


def test_a_stored_level_of_another_generation_or_an_unreadable_row_is_ignored(shop):
    shop.lend("p0", {1: 20}, 30)
    sweep(shop)
    key = f"levels/{PageKey.of(DEPOT, 'p0').number}"
    with shop.broken(Table.ALLOTMENTS, key, content={"B": "bm90aGluZw=="}):
        assert listed(shop)[0]["p0"].as_of == ""
    assert listed(shop)[0]["p0"].as_of
    created = {"createdAt": {"S": "2026-01-01T00:00:00.000000+00:00"}}
    with shop.broken(Table.PRODUCTS, "p0", **created):
        assert (listed(shop)[0]["p0"].as_of, listed(shop)[0]["p0"].available) == ("", 950)


def test_a_failed_read_is_left_to_the_next_sweep(shop):
    shop.lend("p0", {1: 20}, 30)
    shop.refuse("BatchGetItem", ServiceError("AccessDeniedException", "no"))
    report = store_overview(shop.worker().client, shop.soon())
    (problem,) = report.problems
    assert "AccessDenied" in problem
    shop.calm()
    assert listed(shop)[0]["p0"].as_of == ""
    # Orders are counted whether or not levels can be read.
    assert TODAY in read_swept(shop.store, [TODAY])


def test_the_counts_of_orders_say_which_are_oldest_and_what_they_lack():
    with desk_of_shop() as desk:
        there = desk.shop.stock(TEA)
        desk.command("ManageProducts", action="change", productId=TEA, backorderLimit=9)
        desk.sell("o-1")
        # One unit more than is in stock, so that all units are promised.
        desk.sell("o-2", (TEA, there))
        desk.place("o-3", (TEA, 1), holdSeconds=600)
        desk.place("o-4", (TEA, 1))
        with pytest.raises(AssertionError, match="INSUFFICIENT_STOCK"):
            desk.place("o-5", (TEA, 99))
        desk.aws.invoke("ChangeOrders", {"action": "confirm", "orderId": "o-5"})
        loss = {"adjustmentId": "r-1", "productId": TEA, "delta": -1, "reason": "LOSS"}
        desk.command("AdjustStock", action="adjust", **loss, actor="anna")
        desk.sweep()
        counts = desk.get("/api/today")
        counts.pop("asOf")
        assert counts == {
            "toShip": one_of(2, desk.shop.order_row("o-1")["confirmedAt"]),
            "unpaid": one_of(2, desk.shop.order_row("o-3")["createdAt"]),
            "paidLate": one_of(1, desk.shop.order_row("o-5")["confirmationRejected"]["at"]),
            "blocked": 1,
            "missing": {TEA: 1},
        }
        desk.shop.clock.sleep(8 * 86_400)
        desk.sweep()
        assert desk.get("/api/today")["paidLate"]["count"] == 0


def one_of(count, oldest):
    return {"count": count, "isAll": True, "oldest": oldest}


def test_counts_say_when_there_is_more_than_the_sweep_reads(monkeypatch):
    monkeypatch.setattr(overview, "MOST", 1)
    with desk_of_shop() as desk:
        for number in range(2):
            desk.sell(f"o-{number}")
            desk.place(f"h-{number}", (TEA, 1), holdSeconds=60)
        desk.sweep()
        counts = desk.get("/api/today")
    for name in ("toShip", "unpaid"):
        assert (counts[name]["count"], counts[name]["isAll"]) == (1, False)
