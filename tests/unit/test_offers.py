"""Orders with several locations and transfers between locations: where orders are placed, and what they cost."""

import json
from dataclasses import replace

import pytest

from inventory_orders.domain.adjustment import Adjustment, Transfer
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.planner import Limits, Supply, plan
from inventory_orders.domain.record import OrderAction, OrderKey
from inventory_orders.errors import InvalidMessageError, Outcome
from inventory_orders.messages.commands import parse_order
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from testing.aws.values import size_of_item
from testing.schedules.in_turn.bench import Bench, one_attempt, product, statuses
from testing.schedules.in_turn.lanes import LaneShop
from testing.world.faults import cancels, leaves_out, of_product

APPLIED, REPLAYED, INVALID = Outcome.APPLIED, Outcome.REPLAYED, Outcome.INVALID
REJECTED, RETURNED = Outcome.REJECTED, Outcome.RETURNED
READ, UPDATE, WRITE = "BatchGetItem", "UpdateItem", "TransactWriteItems"


class PlaceShop(LaneShop):
    def stock_at(self, product_id="p", home=0, **places):
        """List a product with a number of units at each location."""
        self.list(product_id, home)
        for location, units in places.items():
            self.list(f"{product_id}#{location}", units)

    def receive(self, key, units=5):
        """Let another process book a receipt."""
        self.orders += 1
        assert self.do(Adjustment(key, f"r{self.orders}", units, "RECEIPT")) == [Outcome.APPLIED]

    def place(self, worker, *orders, seconds=23.0):
        """Let a worker place orders, and return the result of each."""
        began = self.clock.seconds
        report = self.sell(worker, *orders, seconds=seconds)
        self.seconds, self.measured = self.clock.seconds - began, report.stats.measured
        return [
            outcome.cause if outcome.kind is Outcome.RETURNED else self.locations_of(order)
            for order, outcome in zip(orders, report.outcomes, strict=True)
        ]

    def locations_of(self, order):
        """Return the locations of an order's lines, with `-` for the default one, or the reason why it was rejected."""
        row = self.order_row(order.order_id)
        places = " ".join(line.get("locationId", "-") for line in row["items"])
        return places if row["status"] == "PENDING" else row["reason"]

    def shortages(self, order):
        """Return the shortages in an order's row: product, location, units wanted and units available."""
        return [
            (each["productId"], each.get("locationId", "-"), each["wanted"], each["available"])
            for each in self.order_row(order.order_id).get("shortages", ())
        ]

    def order(self, *locations, units=1, product_id="p", **more):
        """Make an order with one line."""
        return self.wants({product_id: units}, *locations, **more)

    def wants(self, quantities, *locations, **more):
        """Make an order for some units of each product, at these locations if there are any."""
        self.orders += 1
        return Order(f"o{self.orders}", "u", quantities, locations=locations or None, **more)


@pytest.fixture
def shop():
    with PlaceShop().open() as shop:
        yield shop
        shop.calm()
        shop.check()


@pytest.fixture
def worker(shop):
    """Make a worker without a lane, which meets no contention."""
    return shop.worker()


@pytest.fixture
def busy(shop):
    """Make a worker that has met contention on every row, so that it sells at the depot and from its lane."""
    return shop.seller(lanes=2)


# ---------------------------------------------------------------------- the choice


STOCK = {"tea": {"a": 2, "b": 5, "c": 9}, "cup": {"a": 9, "b": 1, "c": 9}}


@pytest.mark.parametrize(
    ("quantities", "locations", "more", "result"),
    [
        ({"tea": 2}, "abc", {}, "a"),
        ({"tea": 2}, "cba", {}, "c"),
        ({"tea": 3}, "abc", {}, "b"),
        ({"tea": 9}, "abc", {}, "c"),
        ({"tea": 10}, "abc", {}, "INSUFFICIENT_STOCK"),
        ({"tea": 2, "cup": 2}, "abc", {}, "a a"),
        ({"tea": 3, "cup": 1}, "abc", {}, "b b"),
        ({"tea": 3, "cup": 2}, "abc", {}, "c c"),
        ({"tea": 3, "cup": 2}, "ab", {}, "INSUFFICIENT_STOCK"),
        # A location that has everything comes before a split, even if it is the last one.
        ({"tea": 3, "cup": 2}, "abc", {"split": True}, "c c"),
        ({"tea": 3, "cup": 2}, "ab", {"split": True}, "b a"),
        ({"tea": 3, "cup": 2}, "ba", {"split": True}, "b a"),
        ({"tea": 2, "cup": 1}, "ba", {"split": True}, "b b"),
        # A line is never divided.
        ({"tea": 6}, "ab", {"split": True}, "INSUFFICIENT_STOCK"),
        ({"tea": 2, "cup": 10}, "abc", {"split": True}, "INSUFFICIENT_STOCK"),
        # A line that names its location is taken from there; all other lines must come from one location.
        ({"tea": 3, "cup": 2}, "ab", {"asked_locations": {"cup": "c"}}, "b c"),
        ({"tea": 2, "cup": 2}, "ab", {"asked_locations": {"tea": "b"}}, "b a"),
        ({"tea": 9, "cup": 2}, "ab", {"asked_locations": {"cup": "c"}}, "INSUFFICIENT_STOCK"),
        ({"tea": 6}, "abc", {"asked_locations": {"tea": "b"}}, "INSUFFICIENT_STOCK"),
        ({"tea": 1}, "ab", {"asked_locations": {"tea": ""}}, "INSUFFICIENT_STOCK"),
        # No product is listed at location x or y.
        ({"tea": 1}, "xyb", {}, "b"),
        ({"tea": 1}, "xy", {}, "UNKNOWN_PRODUCT"),
        ({"tea": 3, "cup": 2}, "xab", {"split": True}, "b a"),
        # If the order names no locations, the setting applies.
        ({"tea": 3}, "", {"default_locations": ("a", "b")}, "b"),
        ({"tea": 3}, "", {}, "INSUFFICIENT_STOCK"),
        ({"tea": 3}, "c", {"default_locations": ("a", "b")}, "c"),
    ],
)
def test_an_order_is_placed_from_the_first_location_that_has_everything(
    shop, worker, quantities, locations, more, result
):
    for product_id, places in STOCK.items():
        shop.stock_at(product_id, **places)
    assert shop.place(worker, shop.wants(quantities, *locations, **more)) == [result]


@pytest.mark.parametrize("is_at_once", [True, False])
def test_orders_with_other_preferences_are_served_one_after_the_other(shop, worker, is_at_once):
    shop.stock_at(home=1, a=3, b=4)
    orders = [
        shop.order("a", "b", units=2),
        shop.order("a", "b", units=2),
        shop.order("b", "a", units=2),
        shop.order("b", "a"),
        shop.order("b", "a"),
        shop.order("b", "", "a"),
        shop.order("", "b", "a", units=2),
    ]
    results = ["a", "b", "b", "a", "INSUFFICIENT_STOCK", "-", "INSUFFICIENT_STOCK"]
    if is_at_once:
        assert shop.place(worker, *orders) == results
    else:
        assert [shop.place(worker, order)[0] for order in orders] == results


def test_in_a_group_the_order_that_comes_first_is_served_first(shop, worker):
    shop.stock_at(a=1, b=2)
    orders = [shop.order("a", "b", units=2, group="g"), shop.order("b", "a", group="g")]
    assert shop.place(worker, *orders, shop.order("b", "a")) == ["b", "a", "INSUFFICIENT_STOCK"]


def test_an_order_at_one_location_costs_what_it_did_before_there_were_more(shop, worker):
    for calls in ([READ, WRITE], [READ, WRITE], [WRITE]):
        if not shop.items(Table.PRODUCTS):
            shop.stock_at(home=9, a=9)
        assert shop.place(worker, shop.order()) == ["-"]
        assert shop.calls == calls
    assert shop.place(worker, shop.order(units=9)) == ["INSUFFICIENT_STOCK"]
    assert shop.calls == [READ, WRITE]
    assert shop.place(worker, shop.order("a"), shop.order("a", "")) == ["a", "a"]
    assert shop.calls == [READ, WRITE]


def test_each_location_with_too_few_units_costs_one_request(shop, worker):
    shop.stock_at(a=1, b=1, c=9)
    orders = [shop.order("a", "b", "c") for _ in range(5)]
    assert shop.place(worker, *orders) == ["a", "b", "c", "c", "c"]
    assert shop.calls == [READ, READ, READ, WRITE]
    assert shop.place(worker, shop.order("c", "a")) == ["c"]
    assert shop.calls == [READ, WRITE]


# ---------------------------------------------------------------------- rejections


@pytest.mark.parametrize(
    ("quantities", "locations", "more", "reason", "shortages"),
    [
        (
            {"tea": 10},
            "abc",
            {},
            "INSUFFICIENT_STOCK",
            [("tea", "a", 10, 2), ("tea", "b", 10, 5), ("tea", "c", 10, 9)],
        ),
        # The first short line of each location is reported.
        (
            {"tea": 3, "cup": 10},
            "bac",
            {},
            "INSUFFICIENT_STOCK",
            [("cup", "b", 10, 1), ("tea", "a", 3, 2), ("cup", "c", 10, 9)],
        ),
        # The shortage is the same for each location, and is reported once.
        (
            {"tea": 6, "cup": 1},
            "ab",
            {"asked_locations": {"tea": "b"}},
            "INSUFFICIENT_STOCK",
            [("tea", "b", 6, 5)],
        ),
        # A location where a product is not listed, or is discontinued, has no units of it.
        ({"tea": 6}, "xb", {}, "INSUFFICIENT_STOCK", [("tea", "x", 6, 0), ("tea", "b", 6, 5)]),
        ({"end": 1}, "ac", {}, "INSUFFICIENT_STOCK", [("end", "a", 1, 0), ("end", "c", 1, 0)]),
        # Every row of a product is delisted or discontinued.
        ({"end": 1}, "ab", {}, "DISCONTINUED_PRODUCT", []),
        ({"tea": 1, "end": 1}, "xab", {}, "DISCONTINUED_PRODUCT", []),
        ({"tea": 1, "none": 1}, "ab", {}, "UNKNOWN_PRODUCT", []),
        ({"tea": 10, "cup": 1}, "xy", {"split": True}, "UNKNOWN_PRODUCT", []),
        # The reason does not depend on the sequence of lines.
        ({"end": 1, "none": 1}, "ab", {}, "UNKNOWN_PRODUCT", []),
        ({"none": 1, "end": 1}, "ab", {}, "UNKNOWN_PRODUCT", []),
        ({"tea": 10, "end": 1, "none": 1}, "a", {}, "UNKNOWN_PRODUCT", []),
        ({"tea": 10, "end": 1}, "a", {}, "DISCONTINUED_PRODUCT", []),
        # With one location, all short lines are reported.
        (
            {"tea": 3, "cup": 10},
            "a",
            {},
            "INSUFFICIENT_STOCK",
            [("tea", "a", 3, 2), ("cup", "a", 10, 9)],
        ),
        ({"end": 1}, "a", {}, "DISCONTINUED_PRODUCT", []),
        ({"tea": 1}, "x", {}, "UNKNOWN_PRODUCT", []),
    ],
)
def test_a_rejection_says_why_at_each_location(
    shop, worker, quantities, locations, more, reason, shortages
):
    for product_id, places in STOCK.items():
        shop.stock_at(product_id, **places)
    shop.stock_at("end", a=9, b=9, c=0)
    for place in "ab":
        shop.products.discontinue(f"end#{place}", shop.soon())
    order = shop.wants(quantities, *locations, **more)
    assert shop.place(worker, order) == [reason]
    assert shop.shortages(order) == shortages


def test_the_text_of_a_rejection_names_locations(shop, worker):
    shop.stock_at(a=1, b=2)
    report = shop.sell(worker, shop.order("a", "b", "", units=3), shop.order("x", "y"))
    assert [outcome.detail for outcome in report.outcomes] == [
        "there is not enough stock of p at a: 3 wanted, 1 available; "
        "there is not enough stock of p at b: 3 wanted, 2 available; "
        "there is not enough stock of p: 3 wanted, 0 available; locations asked: a, b, the default location",
        "there is no product p; correct the id, or create the product if the id is right; locations asked: x, y",
    ]


def test_a_rejection_follows_what_it_depends_on_and_other_locations_run_side_by_side():
    """Orders at two locations share nothing, although each could have been placed at the other location."""

    def planned(*orders):
        rows = {f"p#{place}": product(f"p#{place}", 2) for place in "abc"}
        chains = plan(orders, Supply(Allocation(rows)), limits=Limits(changes=1)).chains
        return [
            [sorted(d.change.order_id for t in wave for d in t.decisions) for wave in chain]
            for chain in chains
        ]

    def order(name, *locations, units=2):
        return Order(name, "u", {"p": units}, locations=locations)

    assert planned(order("1", "a", "b"), order("2", "b", "a")) == [[["1"]], [["2"]]]
    assert planned(order("1", "a", "b"), order("2", "a", "b"), order("3", "c")) == [
        *([["1"]], [["2"]], [["3"]]),
    ]
    assert planned(order("1", "a"), order("2", "b"), order("3", "a", "b"), order("4", "c")) == [
        *([["1"]], [["2"]], [["4"]]),
    ]


# ---------------------------------------------------------------------- a quiet shop


def test_a_location_is_skipped_only_after_a_fresh_read(shop, worker):
    shop.stock_at(a=3, b=9)
    assert [shop.place(worker, shop.order("a", "b")) for _ in range(4)] == [["a"]] * 3 + [["b"]]
    assert shop.calls == [READ, READ, WRITE], (
        "the first location is read again, then the second one"
    )
    shop.receive("p#a")
    assert shop.place(worker, shop.order("a", "b")) == ["a"]


def test_a_cached_row_is_not_read_again_because_another_one_is_short(shop, worker):
    shop.stock_at(a=0, b=9)
    for calls in ([READ, READ, WRITE], [READ, READ, WRITE], [READ, WRITE]):
        assert shop.place(worker, shop.order("a", "b")) == ["b"]
        assert shop.calls == calls


def test_no_change_of_a_batch_is_overtaken_while_it_looks_at_another_location(shop, worker):
    """Only location b has enough for the first order, so the second one must not take units there first."""
    shop.stock_at("tea", a=1, b=2)
    shop.stock_at("cup", a=5, b=5)
    first = shop.wants({"tea": 2, "cup": 1}, "a", "b")
    second = shop.wants({"tea": 1}, "b", "a")
    assert shop.place(worker, first, second) == ["b b", "a"]
    assert shop.calls == [READ, READ, WRITE], "all changes are in one transaction"


def test_a_product_that_no_order_wanted_from_lanes_is_not_short(shop, busy):
    """Location a has no tea, so the worker must not look for the cups there, although most of them are at the depot."""
    shop.stock_at("tea", a=0, b=9)
    shop.stock_at("cup", a=50, b=50)
    shop.lend("cup#a", {}, 49)
    assert shop.place(busy, shop.order("a", "b", product_id="tea")) == ["b"]
    assert shop.place(busy, shop.wants({"cup": 20, "tea": 1}, "a", "b")) == ["b b"]
    assert shop.place(busy, shop.order("a", "b", units=20, product_id="cup")) == ["a"]


# ---------------------------------------------------------------------- with lanes


def test_a_visit_of_the_depot_looks_at_rows_that_were_short_before(shop, busy):
    shop.stock_at(a=0, b=900)
    assert shop.place(busy, shop.order("a", "b")) == ["b"]
    shop.receive("p#a", 800)
    assert shop.place(busy, shop.order("a", "b", units=800)) == ["a"]
    assert shop.calls == [UPDATE, READ, WRITE], "the row is read together with the pages"


def test_a_split_order_does_not_wait_for_rows_that_are_not_read(shop, busy):
    """The worker remembers that both locations are short of tea, and looks for cups only at the first one."""
    shop.stock_at("tea", a=1, b=1)
    shop.stock_at("cup", a=9, b=9)
    for _ in range(2):
        wants = shop.wants({"tea": 2, "cup": 1}, "a", "b", split=True)
        assert shop.place(busy, wants) == ["INSUFFICIENT_STOCK"]
        assert shop.seconds < 1


def test_a_certain_shortage_rejects_an_order_whatever_lanes_hold_of_the_rest(shop, busy):
    """One line allows only a location without tea, so the order is rejected without a search for cups in lanes."""
    shop.stock_at("tea", c=0)
    shop.stock_at("cup", a=200, b=20)
    shop.lend("cup#b", {7: 9}, 10)
    assert shop.place(busy, shop.order("b", "a", units=50, product_id="cup")) == ["a"]
    wants = shop.wants({"cup": 30, "tea": 1}, "a", "b", split=True, asked_locations={"tea": "c"})
    assert shop.place(busy, wants) == ["INSUFFICIENT_STOCK"]
    assert shop.seconds < 1
    assert shop.shortages(wants) == [("tea", "c", 1, 0)]
    assert shop.product("cup#b").lent_to, "nothing was recalled"


def test_only_a_rejection_recalls_units_from_lanes(shop, busy):
    """Most tea at location a is in another worker's lane."""
    shop.stock_at(a=30, b=9, c=1)
    shop.lend("p#a", {7: 25}, 2, reach=8)
    assert shop.place(busy, shop.order("a", "b", units=8)) == ["b"]
    assert shop.held("p#a") == {0: 2, 7: 25}
    assert "Recalls" not in shop.measured
    assert shop.place(busy, shop.order("a", "b", "c", units=28)) == ["a"]
    assert 7 not in shop.held("p#a")
    order = shop.order("c", "b", "a", units=20)
    assert shop.place(busy, order) == ["INSUFFICIENT_STOCK"]
    assert shop.shortages(order) == [("p", "c", 20, 1), ("p", "b", 20, 1), ("p", "a", 20, 2)]


@pytest.mark.parametrize("kind", ["with a lane", "without"])
def test_if_all_locations_are_short_one_visit_recalls_all_units(shop, kind):
    """Before an order is rejected, every row must have all its units back."""
    worker = shop.seller(lanes=2) if kind == "with a lane" else shop.worker()
    shop.stock_at(a=30, b=30)
    for place in "ab":
        shop.lend(f"p#{place}", {7: 20}, 5, reach=8)
    order = shop.order("a", "b", units=31)
    assert shop.place(worker, order) == ["INSUFFICIENT_STOCK"]
    assert shop.shortages(order) == [("p", "a", 31, 30), ("p", "b", 31, 30)]
    assert not shop.product("p#a").lent_to
    assert shop.measured["Recalls"] == [1]
    assert shop.place(worker, shop.order("a", "b", units=30)) == ["a"]


def test_an_order_at_several_locations_is_sold_from_the_lane_like_any_other(shop):
    shop.stock_at(a=2_000, b=2_000)
    owner = shop.owner()
    for _ in range(2):
        assert shop.place(owner, shop.order("a", "b", units=5)) == ["a"]
    assert shop.calls == [WRITE]
    assert shop.source(f"o{shop.orders}") == owner.source.lane.number
    line = shop.order_row(f"o{shop.orders}")["items"][0]
    assert line["locationId"] == "a"
    assert line["lanePage"].startswith(f"{owner.source.lane.number}/")
    assert shop.place(owner, shop.order("b", "a", units=5), shop.order("a", "b")) == ["b", "a"]


def test_a_depot_page_that_cannot_be_read_is_passed_over_once(shop, busy):
    """At the same time, a count locks the other location."""
    shop.stock_at(a=9, b=9)
    shop.stock_at("q", home=9)
    shop.lend("p#a", {}, 2, reach=2)
    with shop.broken_page(0, "p#a"):
        shop.count("p#b", 2)
        assert shop.place(busy, shop.order("a", "b"), shop.order(product_id="q")) == ["b", "-"]
        assert shop.seconds < 3
        assert shop.place(busy, shop.order("a", "b", units=20)) == ["CORRUPT_PAGE"]
        assert shop.seconds < 1


def test_units_that_a_count_keeps_in_lanes_are_not_recalled_again_and_again(shop, busy):
    """The lane sells its units of a leased product. Orders for more units are redelivered after the count."""
    shop.list_lent("p", lanes={7: 50})
    assert shop.place(busy, shop.order()) == ["-"]
    shop.count("p", 600)
    assert shop.place(busy, shop.order(), shop.order(units=90)) == ["-", "LEASED"]
    assert shop.seconds < 1
    shop.count("p", 3)
    assert shop.place(busy, shop.order(units=90)) == ["-"]
    assert 2 < shop.seconds < 4


# ---------------------------------------------------------------------- waits


def test_a_group_that_waits_for_a_lease_does_not_spin():
    """A product of a later order in the group is leased for longer than the batch can wait."""
    bench = Bench(product("p", 5), product("q", 5))
    bench.lease("p", 5)
    bench.lease("q", 600)
    orders = [Order(f"o-{each}", "u", {each: 1}, group="g") for each in ("p", "q")]
    report = bench.apply(*orders)
    assert statuses(report) == [Outcome.APPLIED, Outcome.RETURNED]
    assert report.outcomes[1].cause == "LEASED"
    assert report.stats.lease_wait == 5


def test_an_order_waits_for_the_location_whose_lease_ends_first():
    bench = Bench(product("p#a", 5), product("p#b", 5))
    for a, b, ending in ((600, 5, Outcome.APPLIED), (600, 100, Outcome.RETURNED)):
        bench.lease("p#a", a)
        bench.lease("p#b", b)
        report = bench.apply(Order(f"o-{b}", "u", {"p": 1}, locations=("a", "b")))
        assert statuses(report) == [ending]
    assert report.outcomes[0].retry_after == pytest.approx(100, abs=1)


def test_a_split_order_waits_for_each_line_only_where_that_helps():
    """Neither location can serve both lines in the remaining time, but together they can."""
    stock = {"p#a": 5, "q#a": 5, "p#b": 5, "q#b": 0}
    bench = Bench(*(product(key, units) for key, units in stock.items()))
    bench.lease("p#a", 600)
    bench.lease("q#a", 5)
    order = Order("o", "u", {"p": 1, "q": 1}, locations=("a", "b"), split=True)
    assert statuses(bench.apply(order)) == [Outcome.APPLIED]
    lines = bench.record(OrderKey("o")).lines
    assert [line.location_id for line in lines] == ["b", "a"]


# ---------------------------------------------------------------------- obstacles


OBSTACLES = {
    "leased": lambda shop: shop.count("p#a", 2),
    "unreadable": lambda shop: shop.edit(Table.PRODUCTS, "p#a", status={"S": "BROKEN"}),
    "not listed": lambda shop: shop.delist("p#a"),
    "discontinued": lambda shop: shop.products.discontinue("p#a", shop.soon()),
    "not read": lambda shop: shop.on(READ, leaves_out(shop, lambda key: key == KEY)),
    "throttled": lambda shop: shop.on(WRITE, THROTTLE, of_product("p#a")),
    "too large to write": lambda shop: shop.on(WRITE, REFUSE, of_product("p#a")),
}
KEY = {"productId": {"S": "p#a"}}
THROTTLE = cancels("ThrottlingError", of_product("p#a"))
REFUSE = cancels("ValidationError", of_product("p#a"))


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_location_that_cannot_sell_now_is_passed_over_if_another_one_can(shop, worker, obstacle):
    shop.stock_at(a=9, b=9)
    sound = shop.row("p#a")
    OBSTACLES[obstacle](shop)
    orders = [shop.order("a", "b"), shop.order("b", "a"), shop.order("a", "b", split=True)]
    assert shop.place(worker, *orders) == ["b", "b", "b"]
    assert shop.seconds < 1
    if obstacle == "unreadable":
        shop.edit(Table.PRODUCTS, "p#a", **sound)


@pytest.mark.parametrize(
    ("obstacle", "result"),
    [
        ("leased", "a"),
        ("unreadable", "CORRUPT_PRODUCT"),
        ("not read", "CONTENTION"),
        ("throttled", "CONTENTION"),
        ("too large to write", "CORRUPT_PRODUCT"),
    ],
)
def test_an_order_waits_for_a_location_if_no_other_one_sells(shop, worker, obstacle, result):
    shop.stock_at(a=9, b=1)
    sound = shop.row("p#a")
    OBSTACLES[obstacle](shop)
    assert shop.place(worker, shop.order("b", "a", units=2)) == [result]
    assert (shop.seconds > 10) == (obstacle in ("not read", "throttled"))
    if obstacle == "unreadable":
        shop.edit(Table.PRODUCTS, "p#a", **sound)


def test_an_unreadable_location_does_not_affect_other_orders(shop, worker):
    """The location's row is read separately, and DynamoDB refuses that read."""
    shop.stock_at(a=9, b=1, c=9)
    OBSTACLES["not read"](shop)
    orders = [shop.order("b", "a", units=2), shop.order("c")]
    assert shop.place(worker, *orders) == ["CONTENTION", "c"]


def test_an_order_is_returned_until_the_first_lease_ends(shop, worker):
    shop.stock_at(a=9, b=9, c=0)
    for place, seconds in (("a", 600), ("b", 300)):
        shop.count(f"p#{place}", seconds)
    report = shop.sell(worker, shop.order("a", "b", "c"), shop.order("a", "c"), shop.order("c"))
    assert [outcome.cause for outcome in report.outcomes] == [
        *("LEASED", "LEASED", "INSUFFICIENT_STOCK"),
    ]
    assert [round(o.retry_after) for o in report.outcomes] == [300, 600, 0]
    assert shop.calls == [READ, READ, WRITE], "it waits for nothing"


def test_a_location_whose_lease_ends_early_serves_the_order_immediately(shop, worker):
    shop.stock_at(a=9, b=0)
    shop.count("p#a", 20)
    shop.before_each(READ, lambda: shop.clock.seconds > 1_800_000_003 and release(shop, "p#a"))
    assert shop.place(worker, shop.order("a", "b")) == ["a"]
    assert 3 < shop.seconds < 4


def release(shop, key):
    for name in ("lockedBy", "lockTime", "lockVersion"):
        shop.items(Table.PRODUCTS)[key,].pop(name, None)


def test_while_tables_are_throttled_an_order_waits_once_for_all_its_locations(shop, worker):
    """After throttled requests, the process slows down only writes, so reads of other locations need not wait."""
    shop.stock_at(a=0, b=0, c=9)
    for _ in range(7):
        worker.client.pace.observe_throttle()
    assert 3 < worker.client.pace.wait < 7
    assert shop.place(worker, shop.order("a", "b", "c")) == ["c"]
    assert shop.seconds < 7


# ---------------------------------------------------------------------- concurrent writers


def sells_out(shop, key="p#a"):
    """Return a hook in which a concurrent writer takes all units."""
    return lambda _: shop.do(Adjustment(key, "theft", -shop.stock(key), "CORRECTION")) and None


def test_an_order_that_loses_its_location_goes_to_the_next_one(shop, worker):
    shop.stock_at(a=2, b=2)
    shop.once(WRITE, sells_out(shop))
    assert shop.place(worker, shop.order("a", "b"), shop.order("a")) == ["b", "INSUFFICIENT_STOCK"]


def test_an_order_that_loses_a_race_goes_to_the_same_location_if_that_still_has_all(shop, worker):
    shop.stock_at(a=2, b=2)
    shop.once(WRITE, lambda _: shop.receive("p#a", 1))
    assert shop.place(worker, shop.order("a", "b")) == ["a"]


def test_after_a_lost_race_a_rejection_still_considers_each_location(shop, worker):
    shop.stock_at(a=2, b=1)
    shop.once(WRITE, sells_out(shop))
    order = shop.order("a", "b", units=2)
    assert shop.place(worker, order) == ["INSUFFICIENT_STOCK"]
    assert shop.shortages(order) == [("p", "a", 2, 0), ("p", "b", 2, 1)]


@pytest.mark.parametrize("is_applied", [True, False])
def test_after_a_lost_response_an_order_is_placed_once(shop, worker, is_applied):
    shop.stock_at(a=2, b=2)
    shop.lose_responses(1, operations=[WRITE], is_applied=is_applied)
    assert shop.place(worker, shop.order("a", "b", units=2)) == ["a"]
    assert (shop.stock("p#a"), shop.stock("p#b")) == (0, 2)


# ---------------------------------------------------------------------- the proof of a rejection


PROOF = "TransactGetItems"


def moves(shop, source, target, units=2):
    """Return a hook in which units are transferred, once."""

    def act(_):
        shop.calm()
        assert shop.do(transfer(source, target, units)) == [APPLIED]

    return act


@pytest.mark.parametrize("split", [False, True])
def test_units_that_move_between_two_reads_are_found(shop, worker, split):
    shop.stock_at(a=0, b=2)
    shop.on(READ, moves(shop, "b", "a"), of_product("p#b"))
    assert shop.place(worker, shop.order("a", "b", units=2, split=split)) == ["a"]
    assert shop.calls.count(PROOF) == 1


def test_a_sale_here_and_a_receipt_there_are_no_reason_to_reject(shop, worker):
    """After the second order has taken the last unit of location b, location a has one."""
    shop.stock_at(a=0, b=1)
    shop.once(WRITE, lambda _: shop.receive("p#a", 1))
    assert shop.place(worker, shop.order("b"), shop.order("a", "b")) == ["b", "a"]


def test_units_that_move_while_an_order_waits_for_a_count_are_found(shop, worker):
    shop.stock_at(a=0, b=2)
    shop.count("p#b", 5)
    move = moves(shop, "b", "a")
    # The count has just ended.
    shop.on(READ, lambda _: move(_) if shop.clock.seconds > 1_800_000_005 else None)
    assert shop.place(worker, shop.order("a", "b", units=2)) == ["a"]


def test_a_proof_reads_one_short_row_of_each_location_and_serves_all_orders(shop, worker):
    shop.stock_at("tea", a=0, b=9)
    shop.stock_at("cup", a=9, b=0)
    orders = [shop.wants({"tea": 1, "cup": 1}, "a", "b") for _ in range(3)]
    read = []
    shop.on(PROOF, lambda request: read.append(request["TransactItems"]))
    assert shop.place(worker, *orders, shop.order("x", "y")) == [
        *["INSUFFICIENT_STOCK"] * 3,
        "UNKNOWN_PRODUCT",
    ]
    assert shop.calls == [READ, READ, PROOF, WRITE]
    keys = {item["Get"]["Key"]["productId"]["S"] for item in read[0]}
    assert keys == {"tea#a", "cup#b", "p#x", "p#y"}


def test_the_proof_of_a_split_order_reads_one_product(shop, worker):
    shop.stock_at("tea", a=0, b=9)
    shop.stock_at("cup", a=2, b=1)
    read = []
    shop.on(PROOF, lambda request: read.append(request["TransactItems"]))
    wants = shop.wants({"tea": 1, "cup": 3}, "a", "b", split=True)
    assert shop.place(worker, wants) == ["INSUFFICIENT_STOCK"]
    keys = {item["Get"]["Key"]["productId"]["S"] for item in read[0]}
    assert keys == {"cup#a", "cup#b"}


CONFLICT = cancels("TransactionConflict", lambda item: True)


def test_if_the_proof_keeps_conflicting_the_rejection_checks_the_rows(shop, worker):
    shop.stock_at(a=1, b=0)
    shop.on(PROOF, CONFLICT)
    order = shop.order("a", "b", units=2)
    assert shop.place(worker, order) == ["INSUFFICIENT_STOCK"]
    assert shop.calls == [READ, READ, PROOF, PROOF, PROOF, WRITE]
    assert shop.shortages(order) == [("p", "a", 2, 1), ("p", "b", 2, 0)]


def test_a_check_notices_units_that_came_in_the_meantime(shop, worker):
    shop.stock_at(a=1, b=0)

    def before(called, request):
        if called == PROOF:
            CONFLICT(request)
        if called == WRITE:
            shop.calm()
            shop.receive("p#b", 2)

    shop.before = before
    assert shop.place(worker, shop.order("a", "b", units=2)) == ["b"]


def test_if_the_checks_conflict_too_the_order_is_returned(shop, worker):
    shop.stock_at(a=1, b=0)
    shop.on("", CONFLICT, lambda request: "TransactItems" in request)
    assert shop.place(worker, shop.order("a", "b", units=2)) == ["CONTENTION"]
    shop.calm()
    assert not shop.item(Table.ORDERS, f"o{shop.orders}")


def test_if_a_location_is_not_listed_and_the_proof_conflicts_the_order_is_returned(shop, worker):
    """A missing row has no version to check."""
    shop.stock_at(a=1)
    shop.on(PROOF, CONFLICT)
    assert shop.place(worker, shop.order("a", "x", units=2)) == ["CONTENTION"]


def test_units_that_were_lent_since_are_recalled_before_a_rejection(shop, worker):
    shop.stock_at(a=1, b=0)

    def lends(_):
        shop.calm()
        shop.receive("p#b", 30)
        shop.lend("p#b", {7: 20}, 5, reach=8)

    shop.on(PROOF, lends)
    assert shop.place(worker, shop.order("a", "b", units=28)) == ["b"]
    assert not shop.product("p#b").lent_to


def test_in_a_group_no_order_overtakes_one_whose_rejection_has_to_be_proven(shop, worker):
    shop.stock_at(a=1, b=1)
    orders = [shop.order("a", "b", units=2, group="g"), shop.order("a", group="g")]
    assert shop.place(worker, *orders) == ["INSUFFICIENT_STOCK", "a"]
    first, second = (shop.order_row(order.order_id)["createdAt"] for order in orders)
    assert first < second


# ---------------------------------------------------------------------- backorders


@pytest.mark.parametrize(
    ("stock", "locations", "more", "result"),
    [
        # Goods on a shelf come before a backorder at a preferred location.
        ({"a": 0, "b": 10}, "ab", {}, "b"),
        ({"a": 1, "b": 10}, "ab", {}, "b"),
        ({"a": 2, "b": 10}, "ab", {}, "a"),
        ({"a": 0, "b": 1}, "ab", {}, "a"),
        ({"a": 0, "b": 0}, "ba", {}, "b"),
        ({"a": 0, "b": 10}, "ab", {"split": True}, "b"),
        ({"a": 0, "b": 10}, "ab", {"asked_locations": {"p": "a"}}, "a"),
    ],
)
@pytest.mark.parametrize("kind", ["rows", "lanes"])
def test_goods_come_before_backorders(shop, kind, stock, locations, more, result):
    worker = shop.worker() if kind == "rows" else shop.seller(lanes=2)
    shop.list("p", 0)
    for place, units in stock.items():
        shop.list(f"p#{place}", units, backorder_limit=5)
    assert shop.place(worker, shop.order(*locations, units=2, **more)) == [result]


def test_a_split_order_backorders_only_what_no_location_has(shop, worker):
    for product_id, a, b in (("tea", 0, 0), ("cup", 0, 3)):
        shop.list(product_id, 0)
        shop.list(f"{product_id}#a", a, backorder_limit=5)
        shop.list(f"{product_id}#b", b)
    wants = shop.wants({"tea": 2, "cup": 2}, "a", "b", split=True)
    # One location that can serve all lines, even on backorder, comes before a split without goods for all of them.
    assert shop.place(worker, wants) == ["a a"]
    shop.list("mug", 0)
    shop.list("mug#b", 3)
    wants = shop.wants({"tea": 1, "cup": 1, "mug": 1}, "a", "b", split=True)
    assert shop.place(worker, wants) == ["a b b"]


@pytest.mark.parametrize("kind", ["rows", "lanes"])
def test_units_in_lanes_come_before_a_backorder_elsewhere(shop, kind):
    worker = shop.worker() if kind == "rows" else shop.seller(lanes=2)
    shop.list("p", 0)
    shop.list("p#a", 0, backorder_limit=50)
    shop.list("p#b", 30)
    shop.lend("p#b", {7: 20}, 5, reach=8)
    assert shop.place(worker, shop.order("a", "b", units=28)) == ["b"]
    assert shop.place(worker, shop.order("a", "b", units=28)) == ["a"]


def test_a_location_that_is_being_counted_does_not_keep_an_order_from_a_backorder(shop, worker):
    shop.list("p", 0)
    shop.list("p#a", 0, backorder_limit=5)
    shop.list("p#b", 9)
    shop.count("p#b", 600)
    assert shop.place(worker, shop.order("a", "b", units=2)) == ["a"]
    assert shop.seconds < 1


def test_each_line_says_how_many_units_were_not_in_stock(shop, worker):
    """Together, the orders of a batch owe what the row owes."""
    shop.list("p", 3, backorder_limit=50)
    for sizes, left in (([2, 2, 3], -4), ([1], -5)):
        orders = [shop.order(units=units) for units in sizes]
        assert shop.place(worker, *orders) == ["-"] * len(orders)
        owed = [shop.order_row(o.order_id)["items"][0].get("backordered", 0) for o in orders]
        assert shop.stock("p") == left
        assert all(0 <= units <= size for units, size in zip(owed, sizes, strict=True))
        if len(sizes) > 1:
            assert sum(owed) == 4
    assert owed == [1]


class TestOneAttempt:
    """Places orders through the API's engine, which makes one attempt and does not wait."""

    @pytest.fixture
    def worker(self, shop):
        return one_attempt(shop.store)

    def test_reads_all_locations_in_one_request(self, shop, worker):
        shop.stock_at(a=1, b=9)
        assert shop.place(worker, shop.order("a", "b", units=2)) == ["b"]
        assert shop.calls == [READ, WRITE]

    def test_rejects_an_order_at_once_if_one_read_shows_that_no_location_has_enough(
        self, shop, worker
    ):
        shop.stock_at(a=1, b=0)
        assert shop.place(worker, shop.order("a", "b", units=2)) == ["INSUFFICIENT_STOCK"]
        assert shop.calls == [READ, PROOF, WRITE]
        shop.on(PROOF, moves(shop, "a", "b", 1))
        shop.receive("p#b", 1)
        assert shop.place(worker, shop.order("a", "b", units=2)) == ["CONTENTION"]

    def test_passes_over_a_location_with_concurrent_writers(self, shop, worker):
        shop.stock_at(a=9, b=9)
        worker.client.rivals.observe("p#a")
        assert shop.place(worker, shop.order("a", "b"), shop.order("b", "a")) == ["b", "b"]
        assert shop.order_row("o1")["locations"] == ["a", "b"]
        report = shop.sell(worker, shop.order("a"))
        assert report.outcomes[0].cause == "CONTENTION"
        shop.clock.sleep(6)
        assert shop.place(worker, shop.order("a", "b")) == ["a"]

    @pytest.mark.parametrize("code", ["TransactionConflict", "ThrottlingError"])
    def test_passes_over_a_location_that_it_lost(self, shop, worker, code):
        shop.stock_at(a=9, b=9)
        shop.once(WRITE, cancels(code, of_product("p#a")))
        assert shop.place(worker, shop.order("a", "b")) == ["b"]
        assert set(shop.calls) == {READ, WRITE}
        assert shop.clock.slept == []

    def test_passes_over_a_location_whose_version_moved(self, shop, worker):
        shop.stock_at(a=9, b=9)
        shop.once(WRITE, lambda _: shop.receive("p#a"))
        assert shop.place(worker, shop.order("a", "b")) == ["b"]

    def test_gives_up_where_every_location_is_lost_leased_or_partial(self, shop, worker):
        shop.stock_at(a=9, b=9)
        shop.on(WRITE, cancels("TransactionConflict", of_product("p#b")), of_product("p#b"))
        shop.count("p#a", 2)
        report = shop.sell(worker, shop.order("a", "b"))
        assert [(o.kind, o.cause) for o in report.outcomes] == [(RETURNED, "CONTENTION")]
        shop.calm()
        shop.lend("p#b", {7: 6}, 2)
        shop.clock.sleep(6)
        orders = [shop.order("b", "x", units=5), shop.order("b", "a", units=5)]
        assert shop.place(worker, *orders) == ["CONTENTION", "a"]


# ---------------------------------------------------------------------- the same order again


@pytest.mark.parametrize(
    ("changed", "ending"),
    [
        ({}, REPLAYED),
        # The setting is not part of the request.
        ({"default_locations": ("b",)}, REPLAYED),
        ({"locations": ("b", "a")}, INVALID),
        ({"locations": ("a",)}, INVALID),
        ({"locations": None}, INVALID),
        ({"split": True}, INVALID),
        ({"asked_locations": {"cup": "a"}}, INVALID),
        ({"asked_locations": {"tea": "b", "cup": "a"}}, INVALID),
        ({"asked_locations": {}}, INVALID),
    ],
)
@pytest.mark.parametrize("kind", ["placed", "rejected", "cancelled before"])
def test_orders_with_different_locations_are_different(shop, worker, changed, ending, kind):
    places = {"a": 5, "b": 0 if kind == "rejected" else 5}
    shop.stock_at("tea", **places)
    shop.stock_at("cup", **places)
    order = shop.wants({"tea": 1, "cup": 1}, "a", "b", asked_locations={"tea": "b"})
    if kind == "cancelled before":
        assert shop.do(cancel(order)) == [APPLIED]
    (first,) = shop.commit(worker, order).outcomes
    assert first.kind is (REJECTED if kind == "rejected" else APPLIED)
    before = shop.order_row(order.order_id)
    assert shop.do(replace(order, **changed)) == [ending]
    assert shop.order_row(order.order_id) == before
    assert (before["locations"], before.get("split")) == (["a", "b"], None)
    assert [line.get("askedLocationId") for line in before["items"]] == ["b", None]
    taken_from = [line.get("locationId") for line in before["items"]]
    assert taken_from == (["b", "a"] if kind == "placed" else [None, None])


def test_an_order_without_locations_is_the_same_under_any_setting(shop, worker):
    shop.stock_at(home=1, a=1)
    order = shop.order(split=False)
    assert shop.place(worker, order) == ["-"]
    assert shop.do(replace(order, default_locations=("a", ""))) == [REPLAYED]
    assert shop.do(replace(order, locations=("",))) == [INVALID]
    row = shop.order_row(order.order_id)
    assert not {"locations", "split"} & row.keys()
    assert not {"locationId", "askedLocationId"} & row["items"][0].keys()


# ---------------------------------------------------------------------- after it was placed


def cancel(order, step_id=None, **units):
    return command(order, OrderAction.CANCEL, step_id, **units)


def command(order, action, step_id=None, restock=None, **units):
    return OrderCommand(order.order_id, action, "9", step_id, units, restock)


def test_units_are_returned_to_and_shipped_from_their_own_location(shop, worker):
    shop.stock_at("tea", home=5, a=5, b=5)
    shop.stock_at("cup", home=5, a=0, b=5)

    def levels():
        return [
            (shop.stock(key), shop.product(key).on_hand)
            for key in ("tea", "tea#a", "tea#b", "cup", "cup#a", "cup#b")
        ]

    untouched = levels()
    order = shop.wants({"tea": 4, "cup": 4}, "a", "b", split=True, asked_locations={"tea": "a"})
    assert shop.place(worker, order) == ["a b"]
    assert levels() == [(5, 5), (1, 5), (5, 5), (5, 5), (0, 0), (1, 5)]
    assert shop.do(cancel(order, "s1", tea=1)) == [APPLIED]
    assert levels()[1] == (2, 5)
    # The lost unit is on an outbound page, like shipped units, and is folded into the row later.
    assert shop.do(command(order, OrderAction.CANCEL, "s2", restock=False, tea=1)) == [APPLIED]
    assert shop.do(command(order, OrderAction.CONFIRM)) == [APPLIED]
    assert shop.do(command(order, OrderAction.FULFIL, "s3", cup=3)) == [APPLIED]
    assert shop.do(command(order, OrderAction.RETURN, "s4", restock=True, cup=2)) == [APPLIED]
    assert levels()[5] == (3, 7)
    accounts = {account.product_id: account for account in shop.accounts()}
    assert (accounts["tea#a"].outbound, accounts["cup#b"].outbound) == (1, 3)
    assert shop.do(cancel(order)) == [APPLIED]
    assert [units for units, _ in levels()] == [5, 4, 5, 5, 0, 4]
    again = shop.wants({"tea": 4, "cup": 4}, "b", hold_seconds=60)
    assert shop.place(worker, again) == ["b b"]
    assert shop.do(command(again, OrderAction.EXPIRE)) == [APPLIED]
    assert shop.status(again.order_id) == "EXPIRED"
    assert levels()[2] == untouched[2]


def test_units_of_a_delisted_location_are_not_returned_elsewhere(shop, worker):
    shop.stock_at(home=5, a=5)
    order = shop.order("a", "", units=2)
    assert shop.place(worker, order) == ["a"]
    shop.delist("p#a")
    assert shop.do(cancel(order)) == [APPLIED]
    assert shop.stock("p") == 5
    shop.list("p#a", 1)
    assert shop.place(worker, shop.order("a", "", units=2)) == ["-"]


# ---------------------------------------------------------------------- messages


def body(*lines, **more):
    items = [
        dict(zip(("productId", "quantity", "locationId"), line, strict=False)) for line in lines
    ]
    return json.dumps({"orderId": "o", "userId": "u", "items": items, **more})


def test_lines_of_one_product_add_up_at_the_location_that_one_of_them_names():
    order = parse_order(
        body(("tea", 1), ("cup", 2), ("tea", 3, "b"), ("tea", 5)), None, None, ("a", "")
    )
    assert order.quantities == {"tea": 9, "cup": 2}
    assert order.asked_locations == {"tea": "b"}
    assert order.offers == (("tea#b", "cup#a"), ("tea#b", "cup"))
    named = parse_order(body(("tea", 1, ""), ("cup", 1, "a"), locations=["a", "b"], split=True))
    assert named.offers == (("tea", "cup#a"),), "every line names its location"
    same = body(("tea", 1), split=False)
    assert parse_order(same) == parse_order(body(("tea", 1)))


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (body(("tea", 1, "a"), ("tea", 1, "b")), "SCHEMA_VIOLATION", 'locations "a" and "b"'),
        (body(("tea", 1, "a"), ("tea", 1, "")), "SCHEMA_VIOLATION", 'locations "a" and ""'),
        (body(("tea#a", 1)), "SCHEMA_VIOLATION", "productId"),
        (body(("tea", 1, "a#b")), "SCHEMA_VIOLATION", "locationId"),
        (body(("tea", 1), locations=[]), "SCHEMA_VIOLATION", "locations"),
        (body(("tea", 1), locations=["a", "a"]), "SCHEMA_VIOLATION", "locations"),
        (body(("tea", 1), locations=[*"abcdefghijk"]), "SCHEMA_VIOLATION", "locations"),
        (body(("tea", 1), locations=["x" * 33]), "SCHEMA_VIOLATION", "locations"),
        (body(("tea", 1), split=1), "SCHEMA_VIOLATION", "split"),
    ],
)
def test_an_order_that_fits_no_location_is_refused_immediately(text, code, words):
    with pytest.raises(InvalidMessageError) as error:
        parse_order(text)
    assert (error.value.code, words in str(error.value)) == (code, True)


def test_an_order_has_at_most_200_candidates():
    """A line has one candidate for each of the order's locations, but only one if it names its own location."""
    lines = [(f"p{number}", 1) for number in range(20)]
    ten = [*"abcdefghij"]
    assert len(parse_order(body(*lines, locations=ten)).product_ids) == 200
    named = [(f"q{number}", 1, "z") for number in range(20)]
    assert parse_order(body(*lines[1:], *named[:10], locations=ten))
    for text, defaults in (
        (body(*lines, ("q", 1), locations=ten), ("",)),
        (body(*lines, *named[:1], locations=ten), ("",)),
        (body(*lines, ("q", 1)), tuple(ten)),
    ):
        with pytest.raises(InvalidMessageError) as error:
            parse_order(text, None, None, defaults)
        assert error.value.code == "TOO_MANY_PRODUCTS"
        assert "at most 200" in error.value.message
    with pytest.raises(InvalidMessageError, match="at most 99 distinct products"):
        parse_order(body(*((f"p{number}", 1) for number in range(100)), locations=["a", "b"]))


def test_queued_orders_without_locations_use_the_setting(shop):
    shop.stock_at(home=1, a=1, b=1)
    shop.restart(LOCATIONS="b,,a")
    orders = [{"orderId": f"q{number}", "userId": "u"} for number in range(5)]
    for order in orders:
        order["items"] = [{"productId": "p", "quantity": 1}]
    orders[1]["items"][0]["locationId"] = "a"
    orders[4]["locations"] = ["a"]
    for order in orders:
        shop.send("Order", order)
        assert shop.deliver("Order") == 0
    rows = [shop.order_row(order["orderId"]) for order in orders]
    places = [row["items"][0].get("locationId", "-") for row in rows]
    assert places == ["b", "a", "-", "-", "-"]
    assert [row["status"] for row in rows] == ["PENDING"] * 3 + ["REJECTED"] * 2
    assert [[each.get("locationId", "-") for each in row["shortages"]] for row in rows[3:]] == [
        ["b", "-", "a"],
        ["a"],
    ]
    shop.restart(LOCATIONS="")
    shop.send("Order", orders[2])
    assert shop.deliver("Order") == 0
    assert shop.dead_letters("Order") == []


# ---------------------------------------------------------------------- transfers


def transfer(source="a", target="b", units=2, transfer_id="t"):
    return Transfer(
        f"p#{source}" if source else "p", f"p#{target}" if target else "p", transfer_id, units
    )


def units(shop):
    """Return the units in rows and pages, and the units on hand, by location."""
    return {
        key.partition("#")[2] or "-": (
            shop.stock(key) + sum(shop.held(key).values()),
            shop.product(key).on_hand,
        )
        for (key,) in shop.items(Table.PRODUCTS)
    }


def book(shop):
    """Return the adjustments with the transfer's id."""
    rows = [decode(item) for item in shop.items(Table.STOCK_ADJUSTMENTS).values()]
    return sorted(
        (row["productId"], row["delta"], row["reason"], row.get("transferWith"))
        for row in rows
        if row["adjustmentId"] == "t"
    )


BOTH = [("p#a", -2, "TRANSFER_OUT", "p#b"), ("p#b", 2, "TRANSFER_IN", "p#a")]


def test_a_transfer_moves_units_once(shop):
    shop.stock_at(home=1, a=5, b=0)
    assert shop.do(transfer()) == [APPLIED]
    assert units(shop) == {"-": (1, 1), "a": (3, 3), "b": (2, 2)}
    assert book(shop) == BOTH
    assert shop.do(transfer(), transfer()) == [REPLAYED, REPLAYED]
    others = [transfer(units=1), transfer(target=""), transfer("", units=1), transfer("b", "a")]
    assert [shop.do(other)[0] for other in others] == [INVALID] * 4
    assert units(shop) == {"-": (1, 1), "a": (3, 3), "b": (2, 2)}
    assert shop.do(transfer("", "a", 1, "home")) == [APPLIED]
    assert units(shop) == {"-": (0, 0), "a": (4, 4), "b": (2, 2)}


def test_the_same_transfer_twice_in_a_batch_or_concurrently_counts_once(shop):
    shop.stock_at(a=5, b=0)
    shop.once(WRITE, lambda _: shop.do(transfer()) and None)
    assert shop.do(transfer(), transfer()) == [REPLAYED, REPLAYED]
    assert (units(shop)["a"], book(shop)) == ((3, 3), BOTH)
    assert shop.do(transfer(transfer_id="u"), transfer("b", "a", 3, "v")) == [APPLIED, APPLIED]
    assert units(shop)["a"] == (4, 4)


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize("last", [1, 2, 3])
def test_lost_responses_to_a_transfer_move_nothing_twice(shop, is_applied, last):
    shop.stock_at(a=2, b=0)
    shop.lose_responses(1, last, operations=[WRITE], is_applied=is_applied)
    assert shop.do(transfer()) == [APPLIED]
    assert (units(shop), book(shop)) == ({"-": (0, 0), "a": (0, 0), "b": (2, 2)}, BOTH)
    shop.calm()
    assert shop.do(transfer()) == [REPLAYED], "although too few units are left for another transfer"


@pytest.mark.parametrize("key", ["p#a", "p#b"])
@pytest.mark.parametrize("is_in_one_batch", [True, False])
@pytest.mark.parametrize("comes_first", ["adjustment", "transfer"])
def test_an_id_used_by_the_other_kind_at_either_side_is_refused(
    shop, key, is_in_one_batch, comes_first
):
    shop.stock_at(a=5, b=5)
    alike = {"p#a": (-2, "TRANSFER_OUT"), "p#b": (2, "TRANSFER_IN")}[key]
    changes = [Adjustment(key, "t", *alike), transfer()]
    if comes_first == "transfer":
        changes.reverse()
    if is_in_one_batch:
        assert shop.do(*changes) == [APPLIED, INVALID]
    else:
        assert [shop.do(change)[0] for change in changes] == [APPLIED, INVALID]
    assert len(book(shop)) == (2 if comes_first == "transfer" else 1)


@pytest.mark.parametrize("key", ["p#a", "p#b"])
def test_no_adjustment_overtakes_a_transfer_of_its_id_that_is_returned(shop, key):
    shop.stock_at(a=5, b=5)
    shop.count("p#a", 600)
    changes = [transfer(), Adjustment(key, "t", 1, "RECEIPT")]
    causes = [outcome.cause for outcome in shop.commit(shop.worker(), *changes).outcomes]
    assert causes == ["LEASED", "BEHIND_A_DUPLICATE"]
    changes.reverse()
    shop.count("p#b", 600)
    causes = [outcome.cause for outcome in shop.commit(shop.worker(), *changes).outcomes]
    assert causes == ["LEASED", "BEHIND_A_DUPLICATE"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (transfer(units=6), "BELOW_FLOOR"),
        (transfer(target="x"), "UNKNOWN_PRODUCT"),
        (transfer(source="x"), "UNKNOWN_PRODUCT"),
        (transfer("x", "y"), "UNKNOWN_PRODUCT"),
    ],
)
def test_a_refused_transfer_books_nothing_and_may_be_repeated(shop, change, reason):
    shop.stock_at(a=5, b=0)
    (outcome,) = shop.commit(shop.worker(), change).outcomes
    assert (outcome.kind, outcome.cause) == (REJECTED, reason)
    assert book(shop) == []
    assert shop.do(change) == [REJECTED]
    for place in "xy":
        shop.list(f"p#{place}", 9)
    shop.receive("p#a", 1)
    assert shop.do(change) == [APPLIED]
    assert len(book(shop)) == 2


def test_a_transfer_may_go_below_zero_as_far_as_backorders_do(shop):
    shop.list("p", 0)
    shop.list("p#a", 1, backorder_limit=1)
    shop.list("p#b", 0)
    assert shop.do(transfer()) == [APPLIED]
    assert units(shop)["a"] == (-1, -1)


@pytest.mark.parametrize("amount", [3, 29, 30, 31])
@pytest.mark.parametrize("lent", ["p#a", "p#b"])
def test_a_transfer_takes_units_that_lanes_hold_if_the_row_can_spare_too_few(shop, amount, lent):
    shop.stock_at(a=30, b=30)
    shop.lend(lent, {7: 15}, 10, reach=8)
    (outcome,) = shop.commit(shop.worker(), transfer(units=amount)).outcomes
    if amount > 30:
        assert outcome.cause == "BELOW_FLOOR"
        assert outcome.rejection.shortages[0].available == 30
    else:
        assert outcome.kind is APPLIED
        assert units(shop)["b"] == (30 + amount, 30 + amount)
    # Incoming units, and units that the row can spare, do not affect lanes.
    is_recalled = lent == "p#a" and amount > 4
    assert (7 in shop.held(lent)) != is_recalled


@pytest.mark.parametrize("key", ["p#a", "p#b"])
def test_a_transfer_waits_for_a_count_at_either_side(shop, key):
    shop.stock_at(a=5, b=5)
    shop.count(key, 600)
    (outcome,) = shop.commit(shop.worker(), transfer()).outcomes
    assert (outcome.kind, outcome.cause) == (RETURNED, "LEASED")
    shop.count(key, 2)
    assert shop.do(transfer()) == [APPLIED]


def test_a_transfer_that_loses_a_race_is_decided_again(shop):
    shop.stock_at(a=2, b=0)
    shop.once(WRITE, sells_out(shop))
    assert shop.do(transfer()) == [REJECTED]
    shop.receive("p#a", 2)
    shop.once(WRITE, lambda _: shop.receive("p#b"))
    assert shop.do(transfer()) == [APPLIED]


def test_the_function_answers_a_transfer_with_both_locations(shop):
    shop.stock_at(a=5, b=0)
    command = {"action": "transfer", "transferId": "t", "productId": "p", "from": "a", "to": "b"}
    answer = shop.invoke("adjust_stock", {**command, "quantity": 2, "actor": "me"})
    left, arrived = (
        {
            "productId": "p",
            "locationId": place,
            "stockCount": stock,
            "version": 2,
            "status": "ACTIVE",
        }
        for place, stock in (("a", 3), ("b", 2))
    )
    assert answer == {
        "result": "APPLIED",
        "productId": "p",
        "transferId": "t",
        "from": left,
        "to": arrived,
    }
    again = shop.invoke("adjust_stock", {**command, "quantity": 2})
    assert again["result"] == "REPLAYED"
    assert [again[side]["stockCount"] for side in ("from", "to")] == [3, 2]
    refused = shop.invoke("adjust_stock", {**command, "transferId": "u", "quantity": 9})
    assert (refused["result"], refused["code"]) == ("REFUSED", "BELOW_FLOOR")
    assert refused["shortages"] == [
        {"productId": "p", "locationId": "a", "wanted": 9, "available": 3}
    ]
    same = shop.invoke("adjust_stock", {**command, "to": "a", "quantity": 1})
    assert (same["result"], same["field"]) == ("INVALID", "to")


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize("stock", [0, 1_000_000])
def test_no_orders_row_is_larger_than_the_plan_assumes(shop, worker, stock):
    product_id, names = "p" * 64, [f"{n:032}" for n in range(10)]
    shop.stock_at(product_id, **dict.fromkeys(names, stock))
    order = Order(
        "o" * 128,
        "u" * 128,
        {product_id: 1_000_000},
        hold_seconds=604_800,
        locations=tuple(names),
        split=True,
    )
    shop.place(worker, order)
    (item,) = shop.items(Table.ORDERS).values()
    assert size_of_item(item) <= order.record_size
    assert size_of_item(item) <= shop.record(order.record_key).size
