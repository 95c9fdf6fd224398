"""Orders with several locations and transfers between locations: where orders are placed, and what they cost."""

import pytest

from inventory_orders.domain.adjustment import Adjustment, Transfer
from inventory_orders.domain.order import Order
from inventory_orders.errors import Outcome
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from testing.aws.values import size_of_item
from testing.schedules.in_turn.bench import Bench, product, statuses
from testing.schedules.in_turn.lanes import LaneShop
from testing.world.faults import cancels, leaves_out, of_product

APPLIED, REPLAYED, INVALID = Outcome.APPLIED, Outcome.REPLAYED, Outcome.INVALID
REJECTED, RETURNED = Outcome.REJECTED, Outcome.RETURNED
READ, WRITE = "BatchGetItem", "TransactWriteItems"


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


BOTH_SHORT = {"tea": 3, "cup": 10}
STOCK = {"tea": {"a": 2, "b": 5, "c": 9}, "cup": {"a": 9, "b": 1, "c": 9}}


@pytest.mark.parametrize(
    ("quantities", "locations", "more", "result"),
    [
        ({"tea": 2}, "abc", {}, "a"),
        ({"tea": 2}, "cba", {}, "c"),
        ({"tea": 3}, "abc", {}, "b"),
        ({"tea": 10}, "abc", {}, "INSUFFICIENT_STOCK"),
        ({"tea": 3, "cup": 1}, "abc", {}, "b b"),
        ({"tea": 3, "cup": 2}, "abc", {}, "c c"),
        ({"tea": 3, "cup": 2}, "ab", {}, "INSUFFICIENT_STOCK"),
        # A location that has everything comes before a split, even if it is the last one.
        ({"tea": 3, "cup": 2}, "abc", {"split": True}, "c c"),
        ({"tea": 3, "cup": 2}, "ba", {"split": True}, "b a"),
        ({"tea": 2, "cup": 1}, "ba", {"split": True}, "b b"),
        # A line is never divided.
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


def test_each_location_with_too_few_units_costs_one_request(shop, worker):
    shop.stock_at(a=1, b=1, c=9)
    orders = [shop.order("a", "b", "c") for _ in range(5)]
    assert shop.place(worker, *orders) == ["a", "b", "c", "c", "c"]
    assert shop.calls == [READ, READ, READ, WRITE]
    assert shop.place(worker, shop.order("c", "a")) == ["c"]
    assert shop.calls == [READ, WRITE]


# ---------------------------------------------------------------------- rejections


def list_all(shop):
    """List the products above, and one that is discontinued everywhere except at location c, which has no units of it."""
    for product_id, places in STOCK.items():
        shop.stock_at(product_id, **places)
    shop.stock_at("end", a=9, b=9, c=0)
    for place in "ab":
        shop.products.discontinue(f"end#{place}", shop.soon())


@pytest.mark.parametrize(
    ("quantities", "locations", "more", "shortages"),
    [
        ({"tea": 10}, "abc", {}, [("tea", "a", 10, 2), ("tea", "b", 10, 5), ("tea", "c", 10, 9)]),
        # The first short line of each location is reported. With one location, all short lines are.
        (BOTH_SHORT, "bac", {}, [("cup", "b", 10, 1), ("tea", "a", 3, 2), ("cup", "c", 10, 9)]),
        (BOTH_SHORT, "a", {}, [("tea", "a", 3, 2), ("cup", "a", 10, 9)]),
        # The shortage is the same for each location, and is reported once.
        ({"tea": 6, "cup": 1}, "ab", {"asked_locations": {"tea": "b"}}, [("tea", "b", 6, 5)]),
        # A location where a product is not listed, or is discontinued, has no units of it.
        ({"tea": 6}, "xb", {}, [("tea", "x", 6, 0), ("tea", "b", 6, 5)]),
        ({"end": 1}, "ac", {}, [("end", "a", 1, 0), ("end", "c", 1, 0)]),
    ],
)
def test_a_rejection_says_what_is_short_at_each_location(
    shop, worker, quantities, locations, more, shortages
):
    list_all(shop)
    order = shop.wants(quantities, *locations, **more)
    assert shop.place(worker, order) == ["INSUFFICIENT_STOCK"]
    assert shop.shortages(order) == shortages


@pytest.mark.parametrize(
    ("quantities", "locations", "more", "reason"),
    [
        # Every row of a product is delisted or discontinued.
        ({"end": 1}, "ab", {}, "DISCONTINUED_PRODUCT"),
        ({"tea": 1, "end": 1}, "xab", {}, "DISCONTINUED_PRODUCT"),
        ({"tea": 1, "none": 1}, "ab", {}, "UNKNOWN_PRODUCT"),
        ({"tea": 10, "cup": 1}, "xy", {"split": True}, "UNKNOWN_PRODUCT"),
        ({"end": 1, "none": 1}, "ab", {}, "UNKNOWN_PRODUCT"),
        ({"tea": 10, "end": 1, "none": 1}, "a", {}, "UNKNOWN_PRODUCT"),
        ({"tea": 1}, "x", {}, "UNKNOWN_PRODUCT"),
    ],
)
def test_a_product_that_is_sold_nowhere_is_the_reason_before_any_shortage(
    shop, worker, quantities, locations, more, reason
):
    list_all(shop)
    order = shop.wants(quantities, *locations, **more)
    assert shop.place(worker, order) == [reason]
    assert shop.shortages(order) == []


def test_the_text_of_a_rejection_names_locations(shop, worker):
    shop.stock_at(a=1, b=2)
    report = shop.sell(worker, shop.order("a", "b", "", units=3), shop.order("x", "y"))
    assert [outcome.detail for outcome in report.outcomes] == [
        "there is not enough stock of p at a: 3 wanted, 1 available; "
        "there is not enough stock of p at b: 3 wanted, 2 available; "
        "there is not enough stock of p: 3 wanted, 0 available; locations asked: a, b, the default location",
        "there is no product p; correct the id, or create the product if the id is right; locations asked: x, y",
    ]


# ---------------------------------------------------------------------- a quiet shop


def test_no_change_of_a_batch_is_overtaken_while_it_looks_at_another_location(shop, worker):
    """Only location b has enough for the first order, so the second one must not take units there first."""
    shop.stock_at("tea", a=1, b=2)
    shop.stock_at("cup", a=5, b=5)
    first = shop.wants({"tea": 2, "cup": 1}, "a", "b")
    second = shop.wants({"tea": 1}, "b", "a")
    assert shop.place(worker, first, second) == ["b b", "a"]
    assert shop.calls == [READ, READ, WRITE], "all changes are in one transaction"


# ---------------------------------------------------------------------- with lanes


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


# ---------------------------------------------------------------------- waits


def test_an_order_waits_for_the_location_whose_lease_ends_first():
    bench = Bench(product("p#a", 5), product("p#b", 5))
    for a, b, ending in ((600, 5, Outcome.APPLIED), (600, 100, Outcome.RETURNED)):
        bench.lease("p#a", a)
        bench.lease("p#b", b)
        report = bench.apply(Order(f"o-{b}", "u", {"p": 1}, locations=("a", "b")))
        assert statuses(report) == [ending]
    assert report.outcomes[0].retry_after == pytest.approx(100, abs=1)


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


# ---------------------------------------------------------------------- concurrent writers


def sells_out(shop, key="p#a"):
    """Return a hook in which a concurrent writer takes all units."""
    return lambda _: shop.do(Adjustment(key, "theft", -shop.stock(key), "CORRECTION")) and None


def test_an_order_that_loses_its_location_goes_to_the_next_one(shop, worker):
    shop.stock_at(a=2, b=2)
    shop.once(WRITE, sells_out(shop))
    assert shop.place(worker, shop.order("a", "b"), shop.order("a")) == ["b", "INSUFFICIENT_STOCK"]


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


CONFLICT = cancels("TransactionConflict", lambda item: True)


def test_if_the_proof_keeps_conflicting_the_rejection_checks_the_rows(shop, worker):
    shop.stock_at(a=1, b=0)
    shop.on(PROOF, CONFLICT)
    order = shop.order("a", "b", units=2)
    assert shop.place(worker, order) == ["INSUFFICIENT_STOCK"]
    assert shop.calls == [READ, READ, PROOF, PROOF, PROOF, WRITE]
    assert shop.shortages(order) == [("p", "a", 2, 1), ("p", "b", 2, 0)]


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
    """Places orders through the API's engine, which does not wait, while its only lane is taken."""

    @pytest.fixture
    def worker(self, shop):
        shop.occupy(2, 600)
        return shop.api(lanes=1, api_lanes=1)

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

    @pytest.mark.parametrize(
        ("code", "attempts"), [("TransactionConflict", 2), ("ThrottlingError", 1)]
    )
    def test_passes_over_a_location_that_it_lost(self, shop, worker, code, attempts):
        shop.stock_at(a=9, b=9)
        shop.on(WRITE, cancels(code, of_product("p#a")), of_product("p#a"))
        assert shop.place(worker, shop.order("a", "b")) == ["b"]
        assert shop.order_row("o1")["locations"] == ["a", "b"]
        assert shop.calls.count(WRITE) == attempts + 1
        assert shop.clock.slept == []

    def test_passes_over_a_location_with_concurrent_writers(self, shop, worker):
        shop.stock_at(a=9, b=9)
        shop.on(WRITE, cancels("TransactionConflict", of_product("p#a")), of_product("p#a"))
        shop.place(worker, shop.order("a", "b"))
        shop.calm()
        assert shop.place(worker, shop.order("a", "b"), shop.order("b", "a")) == ["b", "b"]
        assert shop.place(worker, shop.order("a")) == ["CONTENTION"]
        shop.clock.sleep(6)
        assert shop.place(worker, shop.order("a", "b")) == ["a"]

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


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize("stock", [0, 1_000_000])
@pytest.mark.parametrize("limit", [0, 999_999, 1_000_000])
def test_no_orders_row_is_larger_than_the_plan_assumes(shop, worker, stock, limit):
    product_id, names = "p" * 64, [f"{n:032}" for n in range(10)]
    shop.stock_at(product_id, **dict.fromkeys(names, stock))
    for limits in ({"purchase_limit": 1, "limit_group": "g" * 128}, {"purchase_limit": limit}):
        shop.products.change(product_id, limits, shop.soon())
    order = Order(
        "o" * 128,
        "u" * 128,
        {product_id: 1_000_000},
        hold_seconds=604_800,
        locations=tuple(names),
        split=True,
        named_buyers=tuple(chr(0x1F600 + n) * 128 for n in range(3)),
    )
    shop.place(worker, order)
    (item,) = shop.items(Table.ORDERS).values()
    assert size_of_item(item) <= order.record_size
    assert size_of_item(item) <= shop.record(order.record_key).size


# ---------------------------------------------------------------------- the setting


def test_queued_orders_without_locations_use_the_setting(shop):
    shop.stock_at(home=1, a=1, b=1)
    shop.restart(LOCATIONS="b,,a")
    for number in range(4):
        line = {"productId": "p", "quantity": 1} | ({"locationId": "a"} if number == 1 else {})
        shop.send("Order", {"orderId": f"q{number}", "userId": "u", "items": [line]})
        assert shop.deliver("Order") == 0
    rows = [shop.order_row(f"q{number}") for number in range(4)]
    assert [row["items"][0].get("locationId", "-") for row in rows[:3]] == ["b", "a", "-"]
    assert [short.get("locationId", "-") for short in rows[3]["shortages"]] == ["b", "-", "a"]
