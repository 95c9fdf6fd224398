"""Orders that may be placed from several locations: from which one they are, when they wait, and what they cost."""

import pytest

from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.order import Order
from inventory_orders.domain.record import OrderKey
from inventory_orders.errors import Verdict
from inventory_orders.store.tables import Table
from testing.bench import Bench, product, statuses
from testing.lanes import LaneShop
from testing.simulated_aws.values import size_of_item

READ, WRITE = "BatchGetItem", "TransactWriteItems"


class PlaceShop(LaneShop):
    """A shop with stock at several locations."""

    def stock_at(self, product_id="p", home=0, **places):
        """List a product, with so many units at each location."""
        self.list(product_id, home)
        for location, units in places.items():
            self.list(f"{product_id}#{location}", units)

    def receive(self, key, units=5):
        """Let another process book a receipt."""
        self.orders += 1
        assert self.do(Adjustment(key, f"r{self.orders}", units, "RECEIPT")) == [Verdict.APPLIED]

    def place(self, worker, *orders, seconds=23.0):
        """Let a worker place orders. Returns what became of each."""
        began = self.clock.seconds
        report = self.sell(worker, *orders, seconds=seconds)
        self.seconds = self.clock.seconds - began
        return [
            outcome.cause if outcome.verdict is Verdict.RETURNED else self.locations_of(order)
            for order, outcome in zip(orders, report.outcomes, strict=True)
        ]

    def locations_of(self, order):
        """The locations of an order's lines, the default one as `-`; or why it was rejected."""
        row = self.order_row(order.order_id)
        places = " ".join(line.get("locationId", "-") for line in row["items"])
        return places if row["status"] == "PENDING" else row["reason"]

    def shortages(self, order):
        """What an order's row says of its shortages: product, location, units wanted and available."""
        return [
            (each["productId"], each.get("locationId", "-"), each["wanted"], each["available"])
            for each in self.order_row(order.order_id).get("shortages", ())
        ]

    def order(self, *locations, units=1, product_id="p", **more):
        """An order of one line."""
        return self.wants({product_id: units}, *locations, **more)

    def wants(self, quantities, *locations, **more):
        """An order, from these locations if there are any."""
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
    """A worker without a lane, which meets no rivals."""
    return shop.worker()


@pytest.fixture
def busy(shop):
    """A worker with a lane that has met rivals on every row, so that it sells at the depot and from its lane."""
    return shop.seller(lanes=2)


# ---------------------------------------------------------------------- a quiet shop


def test_a_location_is_passed_over_only_on_the_word_of_a_fresh_row(shop, worker):
    shop.stock_at(a=3, b=9)
    assert [shop.place(worker, shop.order("a", "b")) for _ in range(4)] == [["a"]] * 3 + [["b"]]
    assert shop.calls == [READ, READ, WRITE], "the first location again, then the second one"
    shop.receive("p#a")
    assert shop.place(worker, shop.order("a", "b")) == ["a"]


def test_a_cached_row_is_not_read_again_because_another_one_is_short(shop, worker):
    shop.stock_at(a=0, b=9)
    for calls in ([READ, READ, WRITE], [READ, READ, WRITE], [READ, WRITE]):
        assert shop.place(worker, shop.order("a", "b")) == ["b"]
        assert shop.calls == calls


def test_no_change_of_a_batch_is_overtaken_while_it_looks_at_another_location(shop, worker):
    """Without the second look, the second order would take the last tea at b before the first one knows of cups there."""
    shop.stock_at("tea", a=1, b=2)
    shop.stock_at("cup", a=5, b=5)
    first = shop.wants({"tea": 2, "cup": 1}, "a", "b")
    second = shop.wants({"tea": 1}, "b", "a")
    assert shop.place(worker, first, second) == ["b b", "a"]
    assert shop.calls == [READ, READ, WRITE], "one transaction for all of them"


def test_a_product_that_no_order_wanted_from_lanes_is_not_short(shop, busy):
    """There is no tea at a. So nobody looks for the cups there, most of which are at the depot."""
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
    assert shop.calls == ["UpdateItem", READ, WRITE], "with the pages"


def test_an_order_that_may_be_split_does_not_wait_for_rows_that_nobody_reads(shop, busy):
    """In the memory of the worker tea is short at both locations. So it looks for cups at the first one alone."""
    shop.stock_at("tea", a=1, b=1)
    shop.stock_at("cup", a=9, b=9)
    for _ in range(2):
        wants = shop.wants({"tea": 2, "cup": 1}, "a", "b", split=True)
        assert shop.place(busy, wants) == ["INSUFFICIENT_STOCK"]
        assert shop.seconds < 1


def test_what_is_short_for_sure_rejects_an_order_whatever_lanes_hold_of_the_rest(shop, busy):
    """Cups at b may be in lanes, but no order needs them there: there is no tea at the location that its line names."""
    shop.stock_at("tea", c=0)
    shop.stock_at("cup", a=200, b=20)
    shop.lend("cup#b", {7: 9}, 10)
    assert shop.place(busy, shop.order("b", "a", units=50, product_id="cup")) == ["a"]
    wants = shop.wants({"cup": 30, "tea": 1}, "a", "b", split=True, asked_locations={"tea": "c"})
    assert shop.place(busy, wants) == ["INSUFFICIENT_STOCK"]
    assert shop.seconds < 1
    assert shop.shortages(wants) == [("tea", "c", 1, 0)]
    assert shop.product("cup#b").lent_to, "nothing was recalled"


def test_a_depot_page_that_cannot_be_read_is_passed_over_once(shop, busy):
    """Even while the other location waits for a count."""
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
    """The lane sells of a leased product what it has. What it lacks comes back after the count."""
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
    """A product that is wanted behind it in the group is leased for longer than the batch can wait."""
    bench = Bench(product("p", 5), product("q", 5))
    bench.lease("p", 5)
    bench.lease("q", 600)
    orders = [Order(f"o-{each}", "u", {each: 1}, group="g") for each in ("p", "q")]
    report = bench.apply(*orders)
    assert statuses(report) == [Verdict.APPLIED, Verdict.RETURNED]
    assert report.outcomes[1].cause == "LEASED"
    assert report.stats.lease_wait == 5


def test_an_order_waits_for_the_location_whose_lease_ends_first():
    bench = Bench(product("p#a", 5), product("p#b", 5))
    for a, b, verdict in ((600, 5, Verdict.APPLIED), (600, 100, Verdict.RETURNED)):
        bench.lease("p#a", a)
        bench.lease("p#b", b)
        report = bench.apply(Order(f"o-{b}", "u", {"p": 1}, locations=("a", "b")))
        assert statuses(report) == [verdict]
    assert report.outcomes[0].retry_after == pytest.approx(100, abs=1)


def test_a_split_order_waits_for_each_line_where_that_is_of_use():
    """Neither location has both lines within the time that is left, but both together have."""
    stock = {"p#a": 5, "q#a": 5, "p#b": 5, "q#b": 0}
    bench = Bench(*(product(key, units) for key, units in stock.items()))
    bench.lease("p#a", 600)
    bench.lease("q#a", 5)
    order = Order("o", "u", {"p": 1, "q": 1}, locations=("a", "b"), split=True)
    assert statuses(bench.apply(order)) == [Verdict.APPLIED]
    lines = bench.record(OrderKey("o")).lines
    assert [line.location_id for line in lines] == ["b", "a"]


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize("stock", [0, 1_000_000])
def test_no_order_s_row_is_larger_than_the_plan_assumes(shop, worker, stock):
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
