"""Orders that are sold from lanes and at the depot: exactly once, to the unit, whatever happens meanwhile.

The real client and engine run on the simulated AWS, in virtual time. After each test the books of every product must
balance, and each row must name the lanes that hold its units.
"""

import base64
import json
from dataclasses import replace

import pytest
from botocore.exceptions import ReadTimeoutError

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import (
    DEPOT,
    MAX_PRODUCTS,
    PAGES,
    LaneLease,
    Page,
    PageEntry,
    PageKey,
)
from inventory_orders.domain.order import Order
from inventory_orders.domain.planner import Transaction
from inventory_orders.domain.product import stock_status
from inventory_orders.domain.record import OrderKey
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import Verdict
from inventory_orders.lanes.lane import LANE_SECONDS
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.store.lane_leases import lease_lane
from inventory_orders.store.rows import decode, encode, page_units, read_page, read_product
from inventory_orders.store.writes import transaction_actions
from testing.shop import open_shop
from testing.simulated_aws import ServiceError

APPLIED, REJECTED = Verdict.APPLIED, Verdict.REJECTED
REPLAYED, RETURNED = Verdict.REPLAYED, Verdict.RETURNED

READ, UPDATE, WRITE = "BatchGetItem", "UpdateItem", "TransactWriteItems"
VISIT = [UPDATE, READ, WRITE]
"""The depot's lease, pages and few rows, and all that is moved with the orders."""


class Shop:
    """Products, and workers that sell them from lanes."""

    def __init__(self, tables):
        self.tables = tables
        self.opening = {}
        # The products on whose rows nobody meets rivals: sold from there.
        self.without_rivals = {"warm-up"}
        self.orders = 0
        self.store = tables.store
        self.create("warm-up", 1000)

    # ------------------------------------------------------------------ what there is

    def create(self, product_id, stock=1000, **more):
        self.tables.list(product_id, stock, **more)
        self.opening[product_id] = stock

    def receive(self, product_id, units):
        """More units come in."""
        row = self.row(product_id)
        row = row.with_stock(row.stock_count + units, row.version + 1)
        written = {"stockCount": row.stock_count, "_version": row.version, "status": row.status}
        self.set("Products", product_id, **encode(written))
        self.opening[product_id] += units

    def worker(self, lanes=2, **more):
        """A worker that has its lane, if one is left: a new one asks for it when it visits the depot."""
        worker = self.new_worker(lanes, **more)
        worker.source.lane.take(Deadline.after(5.0, worker.client.clock), CommitStats())
        self.sell(worker, self.order("warm-up"))
        return worker

    def new_worker(self, lanes=2, **more):
        """A worker that has met rivals on all rows but those of `without_rivals`."""
        worker = self.tables.worker(lanes=lanes, **more)
        worker.client.rivals.are_met_on = lambda product_id: product_id not in self.without_rivals
        return worker

    def order(self, *product_ids, units=1, name=""):
        self.orders += 1
        return Order(name or f"o{self.orders}", "u", dict.fromkeys(product_ids, units))

    def sell(self, worker, *orders, **more):
        self.tables.calls.clear()
        return self.tables.commit(worker, *orders, **more)

    def statuses(self, worker, *orders, **more):
        return [outcome.verdict for outcome in self.sell(worker, *orders, **more).outcomes]

    def lend(self, product_id, lanes, depot=0, reach=2):
        """Set units aside as visits do: by lane."""
        keys = [PageKey.of(lane, product_id) for lane in (DEPOT, *lanes)]
        snapshot = self.store.read([product_id, *keys])
        allocation = Allocation(snapshot.products, snapshot.pages.values())
        allocation.lend(product_id, depot + sum(lanes.values()), reach)
        for lane, units in lanes.items():
            allocation.fill(lane, product_id, units)
        self.write(allocation)

    def write(self, allocation):
        client = self.tables.worker().client
        transaction = Transaction(*_of(allocation))
        request = transaction_actions(transaction, client.clock.now())
        soon = Deadline.after(5.0, SystemClock())
        client.write(request, soon, CommitStats())

    def item(self, table, *key):
        return self.tables.aws.dynamodb.tables[table].items.get(key)

    def set(self, table, key, **attributes):
        """Somebody else writes attributes of an item."""
        item = dict(self.item(table, key))
        self.tables.aws.dynamodb.answer("PutItem", {"TableName": table, "Item": item | attributes})

    def row(self, product_id):
        return read_product(self.item("Products", product_id))

    def pages(self):
        items = self.tables.aws.dynamodb.tables["Allotments"].items
        return [
            read_page(item | {"units": {"B": base64.b64decode(item["units"]["B"])}})
            for item in items.values()
            if "epoch" in item
        ]

    def known_at_the_depot(self):
        """The products that the depot has, or was emptied of."""
        shelves = [page for page in self.pages() if page.key.lane == DEPOT]
        return {name for page in shelves for name in (*page.entries, *page.emptied)}

    def held(self, product_id):
        """Units by lane, of lanes that have any."""
        return {page.key.lane: units for page in self.pages() if (units := page.units(product_id))}

    def placed(self, order_id):
        return decode(self.item("Orders", order_id))

    def source(self, order_id, line=0):
        """Where a line of an order was taken from: a lane, or None if it was the row."""
        page = self.placed(order_id)["items"][line].get("lanePage")
        return None if page is None else int(page.split("/")[0])

    # ------------------------------------------------------------------ faults

    def on(self, operation, action, when=lambda request: True):
        """Do something before each call of an operation about which something is true."""

        def before(called, request):
            return action(request) if called == operation and when(request) else None

        self.tables.before = before

    def calm(self):
        self.tables.before = lambda *_: None

    # ------------------------------------------------------------------ what must hold

    def check(self):
        sold = dict.fromkeys(self.opening, 0)
        for item in self.tables.aws.dynamodb.tables["Orders"].items.values():
            order = decode(item)
            for line in order["items"] if order["status"] == "PENDING" else ():
                sold[line["productId"]] += line["quantity"]
                if "lanePage" not in line:
                    assert line["productVersion"] > 1
        for product_id, opening in self.opening.items():
            item = self.item("Products", product_id)
            if item is None or "N" not in item["stockCount"]:
                continue
            row, held = self.row(product_id), self.held(product_id)
            assert row.stock_count + sum(held.values()) + sold[product_id] == opening, product_id
            assert held.keys() <= row.lent_to
            assert not row.lent_to or row.may_be_lent
            assert bool(row.lent_to) == (product_id in self.known_at_the_depot()), product_id
            assert row.status is stock_status(
                row.stock_count, row.backorder_limit, row.low_stock_threshold, row.status
            )


def _of(allocation):
    updates, pages, _ = allocation.drain()
    return updates, (), pages


@pytest.fixture
def shop():
    with open_shop() as tables:
        shop = Shop(tables)
        yield shop
        shop.check()


def of_product(product_id):
    """Whether a request is about a product's row."""
    key = {"productId": {"S": product_id}}
    return lambda request: json.dumps(key) in json.dumps(request)


def of_page(name):
    """Whether a request is about a page or a lease."""
    key = {"page": {"S": str(name)}}
    return lambda request: json.dumps(key) in json.dumps(request)


def throttles(request):
    raise ServiceError("ThrottlingException", "Rate exceeded")


def cancels(code, is_it):
    """Cancel transactions with an action about something."""

    def action(request):
        reasons = [{"Code": code if is_it(each) else "None"} for each in request["TransactItems"]]
        raise ServiceError("TransactionCanceledException", extra={"CancellationReasons": reasons})

    return action


def throttles_action(is_it):
    return cancels("ThrottlingError", is_it)


def refuses_action(is_it):
    return cancels("ValidationError", is_it)


def leaves_out(shop, is_it):
    """Answer a read without the keys about which something is true."""

    def action(request):
        wanted, left_out = {}, {}
        for table, entry in request["RequestItems"].items():
            for key in entry["Keys"]:
                part = left_out if is_it(key) else wanted
                part.setdefault(table, {**entry, "Keys": []})["Keys"].append(key)
        if not left_out:
            return None
        if not wanted:
            raise ServiceError("ThrottlingException", "Rate exceeded")
        answer = shop.tables.aws.answer("dynamodb", READ, {**request, "RequestItems": wanted})
        return {**answer, "UnprocessedKeys": left_out}

    return action


# ---------------------------------------------------------------------- what it costs


def test_a_product_is_sold_from_its_row_until_rivals_are_met_then_from_lanes(
    shop,
):
    shop.create("p")
    worker, rival = shop.tables.worker(lanes=2), shop.tables.worker()
    orders, costs = [], []

    def sell():
        orders.append(shop.order("p"))
        assert shop.statuses(worker, orders[-1]) == [APPLIED]
        costs.append(list(shop.tables.calls))

    def meet(_):
        shop.calm()
        assert shop.tables.commit(rival, shop.order("p")).outcomes[0].verdict is APPLIED

    for _ in range(3):
        sell()
    shop.on(WRITE, meet)
    sell()
    sell()
    assert costs[0] == costs[1] == [READ, WRITE]
    assert costs[2] == [WRITE], "from the cache"
    # The rival's two calls stand behind the write that lost; then the lane is taken, and the depot visited.
    assert costs[3] == [WRITE, READ, WRITE, READ, UPDATE, *VISIT]
    assert costs[4] == [WRITE]
    lane = shop.source(orders[4].order_id)
    assert [shop.source(order.order_id) for order in orders] == [None, None, None, lane, lane]
    assert shop.row("p").lent_to == {0, 1, 2}


def test_after_ten_quiet_seconds_a_row_sells_again_what_the_lane_does_not_have(
    shop,
):
    shop.create("p", 100_000)
    owner, other = (shop.tables.worker(lanes=1) for _ in range(2))
    for worker in (owner, other):
        worker.client.rivals.observe("p")

    def sources():
        for worker in (owner, other):
            assert shop.statuses(worker, shop.order("p")) == [APPLIED]
        return [shop.source(f"o{shop.orders - 1}"), shop.source(f"o{shop.orders}")]

    assert sources() == [1, DEPOT]
    shop.tables.clock.sleep(9.8)
    assert sources() == [1, DEPOT]
    shop.tables.clock.sleep(0.2)
    assert sources() == [1, None]


def test_a_few_products_that_the_lane_lacks_are_sold_from_rows_and_more_at_the_depot(shop):
    names = [f"p{n:02}" for n in range(11)]
    for name in names:
        shop.create(name)
    shop.without_rivals.update(names)
    worker = shop.worker()
    assert shop.statuses(worker, shop.order(*names[:10])) == [APPLIED]
    assert shop.tables.calls == [READ, WRITE]
    assert shop.statuses(worker, shop.order(*names)) == [APPLIED]
    assert shop.tables.calls == [UPDATE, READ, READ, WRITE], "so many rows only if they are needed"
    assert {shop.source(f"o{shop.orders}", line) for line in range(11)} == {
        worker.source.lane.keys[0].lane
    }


def test_where_others_wait_a_row_sells_what_the_lane_has_too_few_of(shop):
    shop.create("p")
    worker = shop.worker()
    shop.lend("p", {worker.source.lane.number: 5})
    worker.source.lane.forget()
    shop.without_rivals.add("p")
    worker.source.depot.line.observe(1.0)
    assert shop.statuses(worker, shop.order("p", units=6)) == [APPLIED]
    assert shop.tables.calls == [READ, READ, WRITE]
    assert shop.source(f"o{shop.orders}") is None
    assert shop.statuses(worker, shop.order("p", units=5)) == [APPLIED]
    assert shop.source(f"o{shop.orders}") == worker.source.lane.number


def test_an_order_of_more_than_the_row_can_spare_gets_what_the_lane_has(shop):
    shop.create("p")
    worker = shop.worker()
    shop.lend("p", {worker.source.lane.number: 5})
    worker.source.lane.forget()
    shop.without_rivals.add("p")
    worker.source.depot.line.observe(1.0)
    assert shop.statuses(worker, shop.order("p", units=1000)) == [APPLIED]
    assert shop.row("p").stock_count == 0


def test_where_nobody_waits_the_lane_is_filled_with_what_it_has_too_few_of(shop):
    shop.create("p")
    worker = shop.worker()
    shop.lend("p", {worker.source.lane.number: 5})
    worker.source.lane.forget()
    shop.without_rivals.add("p")
    assert shop.statuses(worker, shop.order("p", units=6)) == [APPLIED]
    assert shop.source(f"o{shop.orders}") is not None


def test_a_lane_gets_a_part_of_what_only_others_have_sold(shop):
    for product_id in ("tea", "cup"):
        shop.create(product_id, 10_000)
    one, other = shop.worker(), shop.worker()
    shop.sell(one, shop.order("tea"))
    at_depot = shop.held("tea")[DEPOT]
    assert at_depot > 1_000
    # By now it knows that two lanes are in use.
    shop.tables.clock.sleep(11.0)
    shop.sell(other, shop.order("cup"))
    assert shop.held("tea")[other.source.lane.number] == at_depot // 2 // 20


def test_a_batch_from_the_lane_is_one_transaction(shop):
    shop.create("p")
    worker = shop.worker()
    for _ in range(2):
        shop.sell(worker, *(shop.order("p") for _ in range(90)))
    assert shop.statuses(worker, *(shop.order("p") for _ in range(95))) == [APPLIED] * 95
    assert shop.tables.calls == [WRITE]


def test_environments_have_lanes_of_their_own_and_those_without_sell_at_the_depot(shop):
    shop.create("p", 5000)
    workers = [shop.worker(lanes=2) for _ in range(3)]
    sources = []
    for worker in workers:
        orders = [shop.order("p") for _ in range(3)]
        for order in orders:
            assert shop.statuses(worker, order) == [APPLIED]
        sources.append(shop.source(orders[-1].order_id))
    assert sorted(sources) == [0, 1, 2]
    assert sources[2] == DEPOT


def test_where_others_wait_the_depot_is_released_before_the_own_lane_sells(shop):
    shop.create("p")
    shop.create("q")
    one, two = shop.worker(), shop.worker()
    for _ in range(3):
        shop.sell(one, shop.order("p"))

    def visit(request):
        now = two.client.clock.now()
        shop.calm()
        lease_lane(shop.store, LaneLease(DEPOT, "rival", now.timestamp() + 0.3, 0.5), now)

    shop.sell(one, shop.order("q"))
    shop.on(UPDATE, visit)
    assert shop.statuses(one, shop.order("p"), shop.order("q", units=900)) == [APPLIED] * 2
    assert shop.tables.calls[-2:] == [WRITE, WRITE]


def test_units_of_every_source_add_up_in_one_order(shop):
    """One line is in the lane, one at the depot because it is scarce, and one in its row, which lends nothing."""
    for product_id, stock in (("deep", 1000), ("scarce", 30), ("last", 2)):
        shop.create(product_id, stock)
    worker, _ = shop.worker(), shop.worker()
    shop.sell(worker, shop.order("deep"))
    lane = shop.source(f"o{shop.orders}")
    shop.lend("scarce", {}, depot=20, reach=0)
    shop.sell(worker, shop.order("last"))
    order = Order("mixed", "u", {"deep": 1, "scarce": 6, "last": 1})
    assert shop.statuses(worker, order) == [APPLIED]
    assert [shop.source("mixed", line) for line in range(3)] == [lane, DEPOT, None]


# ---------------------------------------------------------------------- leases


def test_a_lane_is_taken_over_with_what_is_in_it(shop):
    shop.create("p")
    one = shop.worker(lanes=1)
    for _ in range(3):
        shop.sell(one, shop.order("p"))
    held = shop.held("p")[1]
    shop.tables.clock.sleep(LANE_SECONDS + 1)
    two = shop.worker(lanes=1)
    for _ in range(2):
        assert shop.statuses(two, shop.order("p")) == [APPLIED]
    assert shop.source(f"o{shop.orders}") == 1
    assert shop.held("p")[1] >= held - 2
    woken = shop.order("p")
    assert shop.statuses(one, woken) == [APPLIED]
    assert shop.source(woken.order_id) != 1, "it has no lane any more"


def test_an_owner_whose_clock_is_wrong_sells_nothing_twice(shop):
    """It believes that the lane is its own. The page's version tells it otherwise."""
    shop.create("p", 100)
    one = shop.worker(lanes=1, off=-3600.0)
    for _ in range(3):
        shop.sell(one, shop.order("p"))
    two = shop.worker(lanes=1)
    for _ in range(2):
        assert shop.statuses(two, shop.order("p")) == [APPLIED]
    assert shop.source(f"o{shop.orders}") == 1
    assert shop.statuses(one, shop.order("p"), shop.order("p")) == [APPLIED, APPLIED]
    assert shop.statuses(two, shop.order("p")) == [APPLIED]
    units = shop.row("p").stock_count + sum(shop.held("p").values())
    assert units == 100 - 8


def test_an_owner_whose_lease_had_ended_reads_its_pages_again(shop):
    """Meanwhile the table was restored, and its page came to the same version with other units in it."""
    shop.create("p", 100)
    one = shop.worker(lanes=1)
    for _ in range(3):
        shop.sell(one, shop.order("p"))
    (page,) = [page for page in shop.pages() if page.key.lane == 1 and page.units("p")]
    two_left = replace(page, entries={"p": replace(page.entries["p"], units=2)})
    lost = page.units("p") - 2
    shop.opening["p"] -= lost
    shop.set(
        "Allotments", str(page.key), units={"B": base64.b64encode(page_units(two_left)).decode()}
    )
    shop.tables.clock.sleep(LANE_SECONDS + 1)
    assert shop.statuses(one, shop.order("p")) == [APPLIED]
    assert shop.held("p")[1] == 1


def test_a_lane_in_use_is_kept(shop):
    shop.create("p", 10_000)
    one = shop.worker(lanes=1)
    for _ in range(10):
        shop.tables.clock.sleep(LANE_SECONDS * 0.8)
        shop.sell(one, shop.order("p"))
    assert shop.worker(lanes=1).source.lane.keys == []
    assert {key.lane for key in one.source.lane.keys} == {1}


def test_a_dead_holder_of_the_depot_stops_visits_for_two_seconds(shop):
    shop.create("p")
    worker = shop.worker()
    now = worker.client.clock.now()
    lease_lane(shop.store, LaneLease(DEPOT, "dead", now.timestamp() + 2.0), now)
    report = shop.sell(worker, shop.order("p"))
    assert [outcome.verdict for outcome in report.outcomes] == [APPLIED]
    assert 1.5 < report.stats.of_source["DepotWait"][0] / 1000 < 3.0
    assert len(shop.tables.calls) < 50, "each refusal costs a write unit of one item"


@pytest.mark.parametrize(
    "lock", [{"lockedBy": {"S": "x"}, "lockTime": {"S": "soon"}}, {"lockTime": {"N": "9999999999"}}]
)
def test_a_lease_of_the_depot_that_cannot_be_read_is_over(shop, lock):
    shop.create("p")
    worker = shop.worker()
    lease = {"page": {"S": "0/lease"}} | lock
    shop.tables.aws.dynamodb.answer("PutItem", {"TableName": "Allotments", "Item": lease})
    assert shop.statuses(worker, shop.order("p")) == [APPLIED]
    assert shop.tables.calls == VISIT


def test_where_every_visit_of_the_depot_takes_too_long_it_gets_through_all_the_same(shop):
    """DynamoDB is slow, so that everybody's lease is taken over by the next one before it comes to its write."""
    shop.create("p")
    worker = shop.worker()

    def takes_long(_):
        shop.tables.clock.sleep(2.1)
        now = SystemClock().now()
        lease_lane(shop.store, LaneLease(DEPOT, f"next at {now}", now.timestamp() + 2.0), now)

    shop.on(READ, takes_long, of_product("p"))
    assert shop.statuses(worker, shop.order("p")) == [APPLIED]
    assert shop.tables.calls.count(WRITE) == 1
    lease = shop.item("Allotments", "0/lease")
    assert lease["lockedBy"]["S"].startswith("next")


# ---------------------------------------------------------------------- answers


def test_a_replayed_order_takes_nothing_from_a_lane(shop):
    shop.create("p")
    worker = shop.worker()
    first = shop.order("p")
    for order in (first, shop.order("p"), shop.order("p")):
        shop.sell(worker, order)
    redelivered = shop.order("p")
    assert shop.statuses(worker, redelivered) == [APPLIED]
    other = shop.order("p")
    assert shop.statuses(worker, redelivered, other, first) == [REPLAYED, APPLIED, REPLAYED]


def test_another_body_under_a_used_id_takes_nothing_from_a_lane(shop):
    shop.create("p")
    worker = shop.worker()
    for name in ("a", "b", "c"):
        shop.sell(worker, shop.order("p", name=name))
    assert shop.statuses(
        worker, shop.order("p", name="c", units=2), shop.order("p", name="c"), shop.order("p")
    ) == [Verdict.POISON, REPLAYED, APPLIED]


def test_a_product_without_rivals_goes_to_the_depot_with_its_batch(shop):
    for product_id in ("hot", "slow"):
        shop.create(product_id)
    shop.without_rivals.add("slow")
    worker = shop.new_worker()
    assert shop.statuses(worker, shop.order("slow")) == [APPLIED]
    assert shop.held("slow") == {}
    assert shop.statuses(worker, shop.order("slow"), shop.order("hot")) == [APPLIED, APPLIED]
    assert shop.held("slow")
    assert shop.held("hot")


def test_an_order_that_was_cancelled_before_it_came_takes_nothing(shop):
    shop.create("p")
    worker = shop.worker()
    for _ in range(2):
        shop.sell(worker, shop.order("p"))
    tombstone = {"orderId": "o", "items": [], "status": "CANCELLED", "_version": 1}
    item = encode(tombstone | {"createdAt": "then", "lastUpdatedAt": "then"})
    shop.tables.aws.dynamodb.answer("PutItem", {"TableName": "Orders", "Item": item})
    report = shop.sell(worker, shop.order("p", name="o"), shop.order("p"))
    assert [outcome.verdict for outcome in report.outcomes] == [APPLIED, APPLIED]
    assert report.stats.of_source["OrdersFromLanes"] == [True], "it was not sold at all"
    assert shop.placed("o")["status"] == "CANCELLED"
    assert shop.placed("o")["userId"] == "u"


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_what_cannot_be_sold_is_rejected_for_the_right_reason(shop, batches):
    """Without rivals a batch goes by the rows, else the first by the depot, and the second by the lane."""
    shop.create("p")
    shop.create("ended")
    shop.create("empty", 0)
    shop.set("Products", "ended", status={"S": "DISCONTINUED"})
    if not batches:
        shop.without_rivals |= {"p", "unknown", "ended", "empty"}
    worker = shop.worker()
    for _ in range(max(1, batches)):
        wanted = ["p", "unknown", "ended", "empty", "p"]
        orders = [shop.order(product_id) for product_id in wanted]
        both = shop.order("p", "empty")
        report = shop.sell(worker, *orders, both)
    assert [outcome.verdict for outcome in report.outcomes] == [
        *(APPLIED, REJECTED, REJECTED, REJECTED, APPLIED),
        REJECTED,
    ]
    reasons = [outcome.rejection.reason.value for outcome in report.outcomes if outcome.rejection]
    assert reasons == [
        *("UNKNOWN_PRODUCT", "DISCONTINUED_PRODUCT", "INSUFFICIENT_STOCK"),
        "INSUFFICIENT_STOCK",
    ]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("threshold", [0, 7])
def test_the_last_unit_is_sold_before_anybody_is_rejected(shop, workers, threshold):
    shop.create("p", 60, low_stock_threshold=threshold)
    team = [shop.worker(lanes=2) for _ in range(workers)]
    placed = 0
    for number in range(32):
        worker = team[number % workers]
        statuses = shop.statuses(worker, shop.order("p"), shop.order("p"))
        placed += statuses.count(APPLIED)
        assert REJECTED not in statuses or placed == 60
        assert RETURNED not in statuses
    assert placed == 60
    assert (shop.row("p").stock_count, shop.row("p").lent_to) == (0, frozenset())
    assert shop.row("p").status == "OUT_OF_STOCK"


def test_an_order_for_all_that_there_is_gets_it(shop):
    """Units lie in both lanes, at the depot and in the row."""
    shop.create("p", 100)
    shop.lend("p", {1: 20, 2: 30}, depot=10)
    worker = shop.worker()
    assert shop.statuses(worker, shop.order("p", units=101)) == [REJECTED]
    assert shop.statuses(worker, shop.order("p", units=100)) == [APPLIED]
    assert shop.row("p").status == "OUT_OF_STOCK"


def test_a_product_at_its_threshold_is_sold_from_its_row(shop):
    shop.create("p", 5, low_stock_threshold=5)
    worker = shop.worker()
    orders = [shop.order("p") for _ in range(6)]
    assert [shop.statuses(worker, order) for order in orders] == [[APPLIED]] * 5 + [[REJECTED]]
    assert {shop.source(order.order_id) for order in orders[:5]} == {None}


def test_backorders_are_taken_from_the_row(shop):
    shop.create("p", 12, backorder_limit=10)
    worker = shop.worker()
    placed = 0
    for _ in range(25):
        placed += shop.statuses(worker, shop.order("p")).count(APPLIED)
    assert placed == 22
    assert (shop.row("p").stock_count, shop.row("p").lent_to) == (-10, frozenset())


# ---------------------------------------------------------------------- items that are corrupt


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_corrupt_row_beside_healthy_ones_holds_up_nobody(shop, batches):
    for product_id in ("p", "broken", "q"):
        shop.create(product_id)
    shop.set("Products", "broken", stockCount={"S": "many"})
    if not batches:
        shop.without_rivals |= {"p", "broken", "q"}
    worker = shop.worker()
    for _ in range(max(1, batches)):
        wanted = [shop.order("p"), shop.order("broken"), shop.order("p", "broken"), shop.order("q")]
        began = shop.tables.clock.seconds
        report = shop.sell(worker, *wanted)
        assert [o.verdict for o in report.outcomes] == [APPLIED, RETURNED, RETURNED, APPLIED]
        assert {o.cause for o in report.outcomes if o.cause} == {"CORRUPT_PRODUCT"}
        assert shop.tables.clock.seconds - began < 2.0


def test_a_row_that_became_corrupt_while_it_was_lent_holds_up_nobody(shop):
    """A recall of another product would bring it back too."""
    shop.create("p", 40)
    neighbour = neighbour_of("p")
    shop.create(neighbour)
    shop.lend("p", {1: 10, 2: 15}, depot=2)
    shop.lend(neighbour, {1: 1, 2: 1}, depot=1)
    shop.set("Products", neighbour, stockCount={"S": "many"})
    worker = shop.worker()
    worker.source.demand.observe_orders([{neighbour: 5}])
    began = shop.tables.clock.seconds
    report = shop.sell(worker, shop.order("p", units=38), shop.order("warm-up"))
    assert [o.verdict for o in report.outcomes] == [APPLIED, APPLIED]
    assert shop.tables.clock.seconds - began < 2.0


@pytest.mark.parametrize("lane", [0, 1])
def test_a_corrupt_page_returns_orders_by_its_name_and_loses_nothing(shop, lane):
    shop.create("p")
    worker = shop.worker(lanes=1)
    shop.sell(worker, shop.order("p"))
    key = str(PageKey.of(lane, "p"))
    units = shop.row("p").stock_count + sum(shop.held("p").values())
    sound = shop.item("Allotments", key)["units"]
    shop.set("Allotments", key, units={"B": "bm90aGluZw=="})
    shop.tables.clock.sleep(LANE_SECONDS)
    worker = shop.new_worker(lanes=1)
    report = shop.sell(worker, shop.order("p", units=units))
    assert report.outcomes[0].verdict is RETURNED
    assert report.outcomes[0].cause == "CORRUPT_PAGE"
    assert f"page {key} " in report.outcomes[0].detail
    shop.set("Allotments", key, units=sound)
    assert shop.statuses(worker, shop.order("p")) == [APPLIED]


def test_a_corrupt_page_of_another_lane_returns_only_what_it_may_hold(shop):
    shop.create("p", 40)
    shop.lend("p", {1: 10, 2: 15}, depot=2)
    worker = shop.worker(lanes=1)
    key = str(PageKey.of(2, "p"))
    sound = shop.item("Allotments", key)["units"]
    shop.set("Allotments", key, units={"B": "bm90aGluZw=="})
    report = shop.sell(worker, shop.order("p", units=38), shop.order("warm-up"))
    assert [o.verdict for o in report.outcomes] == [RETURNED, APPLIED]
    assert f"page {key} " in report.outcomes[0].detail
    shop.set("Allotments", key, units=sound)
    assert shop.statuses(worker, shop.order("p", units=38)) == [APPLIED]


@pytest.mark.parametrize("lane", [0, 1])
def test_a_page_that_dynamodb_does_not_take_is_not_the_fault_of_its_orders(shop, lane):
    """It would be larger than an item may be. No order ends as a dead letter for it."""
    shop.create("p")
    worker = shop.worker(lanes=1)
    page = of_page(PageKey.of(lane, "p"))
    shop.on(WRITE, refuses_action(page), page)
    orders = [shop.order("p"), shop.order("p")]
    report = shop.sell(worker, *orders)
    assert [(o.verdict, o.cause) for o in report.outcomes] == [(RETURNED, "CORRUPT_PAGE")] * 2
    shop.calm()
    assert shop.statuses(worker, *orders) == [APPLIED] * 2


def test_a_page_of_another_lane_that_dynamodb_does_not_take_is_called_a_page(shop):
    shop.create("p", 40)
    shop.lend("p", {1: 10, 2: 15}, depot=2)
    worker = shop.worker(lanes=1)
    page = of_page(PageKey.of(2, "p"))
    shop.on(WRITE, refuses_action(page), page)
    order = shop.order("p", units=38)
    report = shop.sell(worker, order)
    assert [(o.verdict, o.cause) for o in report.outcomes] == [(RETURNED, "CORRUPT_PAGE")]
    shop.calm()
    assert shop.statuses(worker, order) == [APPLIED]


def test_units_of_a_product_that_was_listed_again_hold_up_nobody(shop):
    """Somebody deleted the row with units in lanes, and made it again."""
    shop.create("p")
    shop.create("q")
    worker = shop.worker()
    for _ in range(2):
        shop.sell(worker, shop.order("p"), shop.order("q"))
    shop.set("Products", "p", createdAt={"S": "2030-01-01T00:00:00.000000+00:00"})
    more = sum(shop.held("p").values()) + 1
    report = shop.sell(worker, shop.order("p", units=more), shop.order("q"))
    assert report.outcomes[1].verdict is APPLIED
    assert report.outcomes[0].verdict is RETURNED
    assert report.outcomes[0].cause == "CORRUPT_PRODUCT"


# ---------------------------------------------------------------------- throttles


@pytest.mark.parametrize("without_rivals", [True, False])
def test_a_row_whose_writes_are_throttled_delays_only_its_orders(shop, without_rivals):
    """Sold from their rows, and at the depot."""
    for product_id in ("slow", "p", "q"):
        shop.create(product_id)
    if without_rivals:
        shop.without_rivals |= {"slow", "p", "q"}
    worker = shop.worker()
    began, since = shop.tables.clock.seconds, []
    slow = of_product("slow")

    def before(called, request):
        if called != WRITE:
            return
        if slow(request) and shop.tables.clock.seconds < began + 5.0:
            throttles_action(slow)(request)
        since.append(shop.tables.clock.seconds - began)

    shop.tables.before = before
    report = shop.sell(worker, shop.order("slow"), shop.order("p"), shop.order("q"))
    assert [o.verdict for o in report.outcomes] == [APPLIED] * 3
    assert since[0] < 0.5, "the others"
    assert since[-1] >= 5.0


@pytest.mark.parametrize("fails", [throttles_action, refuses_action])
def test_a_row_that_runs_low_and_takes_no_write_delays_no_orders_for_other_products(shop, fails):
    """A visit lends what runs low beside what it needs. That loan must not keep the batch."""
    shop.create("slow")
    shop.create("p")
    worker = shop.worker()
    for _ in range(3):
        shop.sell(worker, *(shop.order("slow", units=3) for _ in range(30)))
    shop.tables.clock.sleep(15)
    shop.receive("slow", 100_000)
    shop.sell(worker, shop.order("p"))
    shop.on(WRITE, fails(of_product("slow")), of_product("slow"))
    began = shop.tables.clock.seconds
    assert shop.statuses(worker, shop.order("p")) == [APPLIED]
    assert shop.tables.clock.seconds - began < 1.0


def neighbour_of(product_id):
    """Another product on the same page."""
    number = PageKey.of(0, product_id).number
    return next(f"n{n}" for n in range(99) if PageKey.of(0, f"n{n}").number == number)


def test_a_throttled_row_that_a_recall_would_bring_back_too_delays_nobody(shop):
    shop.create("p", 40)
    slow = neighbour_of("p")
    shop.create(slow, 40)
    shop.lend("p", {1: 10, 2: 15}, depot=2)
    shop.lend(slow, {1: 1, 2: 1}, depot=1)
    worker = shop.worker()
    worker.source.demand.observe_orders([{slow: 5}])
    shop.on(WRITE, throttles_action(of_product(slow)), of_product(slow))
    began = shop.tables.clock.seconds
    assert shop.statuses(worker, shop.order("p", units=38), shop.order("warm-up")) == [APPLIED] * 2
    assert shop.tables.clock.seconds - began < 2.0


def test_a_row_that_no_read_answers_for_delays_only_its_orders(shop):
    for product_id in ("slow", "p"):
        shop.create(product_id)
    worker = shop.worker()
    shop.on(READ, leaves_out(shop, of_product("slow")))
    report = shop.sell(worker, shop.order("slow"), shop.order("p"))
    assert [o.verdict for o in report.outcomes] == [RETURNED, APPLIED]
    shop.calm()
    assert shop.statuses(worker, shop.order("slow")) == [APPLIED]


@pytest.mark.parametrize("lane", [0, 1])
def test_a_page_that_no_read_answers_for_returns_the_batch(shop, lane):
    shop.create("p")
    worker = shop.worker(lanes=1)
    shop.sell(worker, shop.order("p"))
    worker.source.lane.forget()
    shop.on(READ, leaves_out(shop, of_page(PageKey.of(lane, "p"))))
    order = shop.order("p", units=shop.held("p")[1] + 1)
    report = shop.sell(worker, order)
    assert report.outcomes[0].verdict is RETURNED
    assert report.outcomes[0].cause == "UNPROCESSED_KEYS"
    shop.calm()
    assert shop.statuses(worker, order) == [APPLIED]


def test_a_throttled_page_of_the_depot_is_waited_for(shop):
    shop.create("p")
    worker = shop.worker()
    page = of_page(PageKey.of(DEPOT, "p"))
    began = shop.tables.clock.seconds

    def before(called, request):
        if called == WRITE and page(request) and shop.tables.clock.seconds < began + 1.0:
            throttles_action(page)(request)

    shop.tables.before = before
    assert shop.statuses(worker, shop.order("p")) == [APPLIED]
    assert shop.tables.clock.seconds - began < 5.0


def test_what_is_throttled_for_too_long_is_returned(shop):
    shop.create("p")
    worker = shop.worker()
    shop.on(WRITE, throttles)
    order = shop.order("p")
    assert shop.statuses(worker, order) == [RETURNED]
    shop.calm()
    assert shop.statuses(worker, order) == [APPLIED]


# ---------------------------------------------------------------------- lost responses, and no time


def visit_and_more(shop, *, crowded=False):
    """A worker with units in its lane, and a batch that takes a visit, the row, the depot and the lane.

    Where others wait, the own lane's part is a transaction of its own.
    """
    for product_id, stock in (("deep", 1000), ("new", 1000), ("scarce", 30), ("last", 2)):
        shop.create(product_id, stock)
    worker = shop.worker()
    shop.sell(worker, shop.order("deep"))
    shop.lend("scarce", {}, depot=20, reach=0)
    if crowded:
        worker.source.depot.line.observe(0.5)
    return worker, [shop.order(p) for p in ("deep", "new", "scarce", "last")]


@pytest.mark.parametrize("lost", range(3))
def test_a_lost_response_at_any_write_applies_each_order_once(shop, lost):
    worker, orders = visit_and_more(shop, crowded=True)
    seen = []

    def before(called, request):
        if called == READ:
            return
        seen.append(called)
        if len(seen) == lost + 1:
            shop.tables.aws.answer("dynamodb", called, request)
            raise ReadTimeoutError(endpoint_url="simulated")

    shop.tables.before = before
    assert shop.statuses(worker, *orders) == [APPLIED] * 4
    assert len(seen) > lost
    shop.calm()
    assert shop.statuses(worker, *orders) == [REPLAYED] * 4


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize("after", range(3))
def test_what_stays_unknown_is_forgotten_and_found_again(shop, after, is_applied):
    """From one write on every response is lost, and the engine gives up."""
    worker, orders = visit_and_more(shop, crowded=True)
    seen = []

    def before(called, request):
        if called != WRITE:
            return
        seen.append(called)
        if len(seen) > after:
            if is_applied:
                shop.tables.aws.answer("dynamodb", called, request)
            raise ReadTimeoutError(endpoint_url="simulated")

    shop.tables.before = before
    assert (RETURNED in shop.statuses(worker, *orders)) == (after < 2)
    shop.calm()
    assert set(shop.statuses(worker, *orders)) <= {APPLIED, REPLAYED}
    shop.check()
    assert shop.statuses(worker, shop.order("deep"), shop.order("new")) == [APPLIED, APPLIED]


@pytest.mark.parametrize("seconds", [0.0, 0.015, 0.025, 0.035, 0.045])
def test_a_batch_without_time_is_returned_and_loses_nothing(shop, seconds):
    worker, orders = visit_and_more(shop)
    began = shop.tables.clock.seconds
    asked = []
    shop.tables.before = lambda *call: asked.append((shop.tables.clock.seconds - began, call))
    statuses = shop.statuses(worker, *orders, seconds=seconds)
    assert set(statuses) <= {RETURNED, APPLIED}
    if seconds < 0.02:
        assert statuses == [RETURNED] * 4
    late = [request for at, (_, request) in asked if at - 0.01 > seconds]
    assert all("REMOVE #lockedBy" in json.dumps(request) for request in late), "but the release"
    shop.calm()
    assert set(shop.statuses(worker, *orders)) <= {APPLIED, REPLAYED}


def test_a_new_environment_without_time_asks_for_nothing(shop):
    worker = shop.tables.worker(lanes=2)
    assert shop.statuses(worker, shop.order("warm-up"), seconds=0.0) == [RETURNED]
    assert shop.tables.calls == []


# ---------------------------------------------------------------------- rows under a lease


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_product_under_a_long_lease_returns_only_what_the_lane_does_not_have(shop, batches):
    shop.create("p", 100)
    shop.create("q", 100)
    if not batches:
        shop.without_rivals |= {"p", "q"}
    worker = shop.worker()
    for _ in range(batches - 1):
        shop.sell(worker, shop.order("p"), shop.order("q"))
    until = shop.tables.clock.seconds + 600
    lock = {"lockedBy": "counter", "lockTime": until, "lockVersion": shop.row("p").version}
    shop.set("Products", "p", **encode(lock | {"lockTime": int(until)}))
    report = shop.sell(worker, shop.order("p"), shop.order("q"))
    assert report.outcomes[1].verdict is APPLIED
    if batches == 2:
        assert report.outcomes[0].verdict is APPLIED, "its lane has it"
    else:
        assert report.outcomes[0].verdict is RETURNED
        assert report.outcomes[0].cause == "LEASED"
        assert report.outcomes[0].retry_after == pytest.approx(600, abs=1)


def test_who_waits_for_a_lease_looks_at_the_row_alone(shop):
    shop.create("p", 100)
    worker = shop.worker()
    until = int(shop.tables.clock.seconds) + 3
    lock = {"lockedBy": "counter", "lockTime": until, "lockVersion": shop.row("p").version}
    shop.set("Products", "p", **encode(lock))
    assert shop.statuses(worker, shop.order("p")) == [APPLIED]
    assert shop.tables.calls.count(UPDATE) == 2, "visits: one before the wait and one after it"


# ---------------------------------------------------------------------- much at once


def fill_the_depots_page(shop, product_id, products, emptied=0):
    """Make the depot's page of a product name so many others: those it holds, which nobody wants, and those it ran out of."""
    key = PageKey.of(DEPOT, product_id)
    created = "2026-01-01T00:00:00.000000+00:00"
    entries = {f"x{n}": PageEntry(created, 1) for n in range(products)}
    page = Page(key, 1, "epoch", entries, emptied=frozenset(f"y{n}" for n in range(emptied)))
    item = encode({"page": str(key), "_version": 1, "epoch": "epoch"})
    item |= {"units": {"B": base64.b64encode(page_units(page)).decode()}}
    shop.tables.aws.dynamodb.answer("PutItem", {"TableName": "Allotments", "Item": item})


@pytest.mark.parametrize(
    ("products", "emptied", "is_lent"),
    [(MAX_PRODUCTS, 0, False), (1, MAX_PRODUCTS - 1, False), (100, 100, True)],
)
def test_what_does_not_fit_into_the_depots_page_is_sold_from_its_row(
    shop, products, emptied, is_lent
):
    shop.create("p")
    worker = shop.worker()
    fill_the_depots_page(shop, "p", products, emptied)
    for _ in range(3):
        assert shop.statuses(worker, shop.order("p")) == [APPLIED]
    assert (shop.source(f"o{shop.orders}") is not None) == is_lent
    assert bool(shop.row("p").lent_to) == is_lent


def test_what_nobody_wants_any_more_goes_back_to_the_depot(shop):
    """Otherwise a lane would gather a few units of each product, and each of its orders would pay for so large a page."""
    shop.create("p", 100)
    shop.create("q")
    worker = shop.worker()
    lane = worker.source.lane.keys[0].lane
    shop.lend("p", {lane: 2})
    worker.source.demand.observe_orders([{"p": 1}])
    for _ in range(3):
        shop.sell(worker, shop.order("q"))
    assert shop.held("p")[lane] == 2
    for _ in range(4):
        shop.tables.clock.sleep(50)
        shop.sell(worker, shop.order("q"), shop.order("warm-up"))
    assert shop.statuses(worker, shop.order("q", units=sum(shop.held("q").values()))) == [APPLIED]
    assert lane not in shop.held("p")


def test_many_loans_are_written_before_the_visit_ends(shop):
    names = [f"p{n:02}" for n in range(60)]
    for product_id in names:
        shop.create(product_id)
    worker = shop.worker()
    batch = [[shop.order(*names[start : start + 20]) for start in (0, 20, 40)] for _ in range(2)]
    first = shop.sell(worker, *batch[0])
    assert [outcome.verdict for outcome in first.outcomes] == [APPLIED] * 3
    assert 0 not in first.stats.changes_per_transaction, "moves alone place no orders"
    assert shop.tables.calls[:2] == [UPDATE, READ], "more than ten products: at the depot"
    assert shop.tables.calls.count(WRITE) >= PAGES + 1
    assert shop.statuses(worker, *batch[1]) == [APPLIED] * 3
    assert all(shop.row(product_id).lent_to for product_id in names)


def test_rows_too_large_for_one_transaction_lend_and_reclaim_in_several(shop):
    names = [f"n{n}" for n in range(99) if PageKey.of(DEPOT, f"n{n}").number == 0][:15]
    for name in names:
        shop.create(name, size=300_000)
    worker, orders = shop.worker(), [shop.order(name) for name in names]
    assert shop.statuses(worker, *orders) == [APPLIED] * 15
    assert all(shop.row(name).lent_to for name in names)
    for name in names:
        shop.receive(name, -shop.row(name).stock_count + 1)
    orders = [shop.order(name, units=sum(shop.held(name).values()) + 1) for name in names]
    assert shop.statuses(worker, *orders) == [APPLIED] * 15


@pytest.mark.parametrize("lost", [1, 3, 5])
def test_a_lost_response_to_loans_that_come_first_lends_nothing_twice(shop, lost):
    names = [f"p{n:02}" for n in range(45)]
    for product_id in names:
        shop.create(product_id)
    worker, seen = shop.worker(), []

    def before(called, request):
        if called == READ:
            return
        seen.append(called)
        if len(seen) > lost:
            shop.calm()
            shop.tables.aws.answer("dynamodb", called, request)
            raise ReadTimeoutError(endpoint_url="simulated")

    shop.tables.before = before
    assert shop.statuses(worker, shop.order(*names)) == [APPLIED]
    assert len(seen) == lost + 1


def test_a_lost_loan_costs_no_order(shop):
    names = [f"p{n:02}" for n in range(60)]
    for product_id in names:
        shop.create(product_id)
    worker, rival = shop.worker(), shop.tables.worker()

    def sell_one(request):
        shop.calm()
        assert shop.tables.commit(rival, shop.order(names[7])).outcomes[0].verdict is APPLIED

    shop.on(WRITE, sell_one)
    assert shop.statuses(worker, shop.order(*names[:30]), shop.order(*names[30:])) == [APPLIED] * 2


@pytest.mark.parametrize("stock", [1, 5, 1000])
def test_orders_of_99_lines_are_placed(shop, stock):
    names = [f"p{n:02}" for n in range(99)]
    for product_id in names:
        shop.create(product_id, stock)
    worker = shop.worker()
    for number in range(3):
        (status,) = shop.statuses(worker, shop.order(*names))
        assert status is (APPLIED if number < stock else REJECTED)


def test_a_full_batch_of_real_orders_is_placed(shop):
    names = [f"p{n:03}" for n in range(200)]
    for product_id in names:
        shop.create(product_id)
    worker = shop.worker()
    for start in range(2):
        orders = [shop.order(*names[(start + 2 * n) % 187 :][:7]) for n in range(96)]
        assert shop.statuses(worker, *orders) == [APPLIED] * 96


# ---------------------------------------------------------------------- fewer lanes than before


def test_what_lies_in_lanes_is_sold_when_the_setting_has_fewer(shop):
    shop.create("p", 100)
    shop.lend("p", {1: 20, 2: 30}, depot=40)
    worker = shop.tables.worker(lanes=1)
    placed = sum(shop.statuses(worker, shop.order("p", units=9)).count(APPLIED) for _ in range(12))
    assert placed == 11
    assert shop.row("p").stock_count + sum(shop.held("p").values()) == 1


# ---------------------------------------------------------------------- groups, and what is for the row


def test_orders_of_the_fifo_queue_are_sold_from_lanes(shop):
    shop.create("p")
    worker = shop.worker()
    for calls in (VISIT, [WRITE]):
        orders = [Order(f"{n}-{len(calls)}", "u", {"p": 1}, group="g") for n in range(3)]
        assert shop.statuses(worker, *orders) == [APPLIED] * 3
        assert shop.tables.calls == calls
        assert {shop.source(order.order_id) for order in orders} == {
            worker.source.lane.keys[0].lane
        }


def test_a_group_finds_all_that_lies_in_lanes_and_keeps_its_order(shop):
    shop.create("p", 100)
    shop.lend("p", {1: 20, 2: 30}, depot=40)
    worker = shop.worker()
    orders = [
        Order("f1", "u", {"p": 60}, group="g"),
        Order("f2", "u", {"p": 60}, group="g"),
        Order("f3", "u", {"p": 40}, group="g"),
    ]
    assert shop.statuses(worker, *orders) == [APPLIED, REJECTED, APPLIED]
    assert shop.source("f1") is None


def test_of_a_group_nothing_is_placed_before_an_earlier_order(shop):
    """Others wait, so the depot's part goes first; then every transaction from the second on is lost for good."""
    for product_id, stock in (("deep", 1000), ("scarce", 30)):
        shop.create(product_id, stock)
    worker = shop.worker()
    shop.sell(worker, shop.order("deep"))
    shop.lend("scarce", {}, depot=20, reach=0)
    worker.source.depot.line.observe(0.5)
    orders = [
        Order("f1", "u", {"deep": 1}, group="g"),
        Order("f2", "u", {"scarce": 6}, group="g"),
        Order("f3", "u", {"deep": 1}, group="h"),
    ]
    writes = []

    def only_one(request):
        writes.append(request)
        if len(writes) > 1:
            throttles(request)

    shop.on(WRITE, only_one)
    assert shop.statuses(worker, *orders) == [APPLIED, APPLIED, RETURNED]
    shop.calm()
    assert shop.statuses(shop.new_worker(), *orders) == [REPLAYED, REPLAYED, APPLIED]


def test_a_receipt_a_correction_and_an_order_of_one_product_have_one_source(shop):
    """The row, although the product is contested and its lane has some."""
    shop.create("p", 100_000)
    worker = shop.worker()
    shop.sell(worker, shop.order("p"))
    changes = [
        Adjustment("p", "receipt", 5, "RECEIPT"),
        shop.order("p", units=2),
        Adjustment("p", "correction", -3, "CORRECTION"),
    ]
    before = shop.row("p"), shop.held("p")
    assert shop.statuses(worker, *changes) == [APPLIED] * 3
    assert shop.tables.calls == [READ, WRITE]
    assert shop.source(f"o{shop.orders}") is None
    assert (shop.row("p").stock_count, shop.held("p")) == (before[0].stock_count, before[1])
    shop.opening["p"] += 2


def test_a_loan_from_a_row_beside_a_receipt_for_it_makes_no_unit(shop):
    """The depot runs low of a fast seller, whose row another change of the batch needs."""
    for product_id in ("p", "fast"):
        shop.create(product_id, 400)
    worker = shop.worker()
    shop.without_rivals |= {"p", "fast"}
    for _ in range(2):
        shop.sell(worker, shop.order("p"), shop.order("fast"))
    shop.without_rivals -= {"p", "fast"}
    changes = [shop.order("p"), shop.order("fast"), Adjustment("fast", "r", 5, "RECEIPT")]
    assert shop.statuses(worker, *changes) == [APPLIED] * 3
    shop.opening["fast"] += 5
    assert shop.held("fast"), "its row has lent"


@pytest.mark.parametrize(("lanes", "depot", "writes"), [({}, 90, 1), ({1: 20, 2: 30}, 40, 2)])
def test_a_correction_that_needs_what_is_lent_is_written_as_it_is_reclaimed(
    shop, lanes, depot, writes
):
    """Beside the reads of a visit it costs one transaction, and before that a recall of what other lanes hold."""
    shop.create("p", 100)
    shop.lend("p", lanes, depot, reach=max(lanes, default=0))
    worker, sent = shop.tables.worker(), []
    shop.on(WRITE, lambda request: sent.append((shop.row("p").stock_count, request)))
    assert shop.statuses(worker, Adjustment("p", "a", -95, "CORRECTION")) == [APPLIED]
    shop.opening["p"] -= 95
    assert len(sent) == writes
    stock, request = sent[-1]
    assert stock == 10, "no unit is reclaimed before"
    assert of_product("p")(request)
    assert "StockAdjustments" in json.dumps(request)
    assert (shop.row("p").stock_count, shop.row("p").lent_to, shop.held("p")) == (5, set(), {})


def test_a_process_without_lanes_reads_again_where_a_rival_is_faster(shop):
    """The rival's transaction is under way, so nothing comes back with the loss."""
    shop.create("p", 1000)
    worker, rival = shop.tables.worker(), shop.tables.worker()
    order = shop.order("p")

    def conflict(request):
        shop.calm()
        assert shop.tables.commit(rival, shop.order("p")).outcomes[0].verdict is APPLIED
        cancels("TransactionConflict", of_product("p"))(request)

    shop.on(WRITE, conflict)
    assert shop.statuses(worker, order) == [APPLIED]
    assert shop.tables.calls == [READ, WRITE, READ, WRITE, READ, WRITE], "with the rival's two"


def test_a_process_without_lanes_gives_up_where_rivals_are_always_faster(shop):
    shop.create("p", 1000)
    worker = shop.tables.worker()
    shop.on(WRITE, cancels("TransactionConflict", of_product("p")))
    report = shop.sell(worker, shop.order("p"))
    assert [(o.verdict, o.cause) for o in report.outcomes] == [(RETURNED, "CONTENTION")]
    most = worker.client.policy.max_attempts
    assert (shop.tables.calls.count(READ), shop.tables.calls.count(WRITE)) == (most, most)


def test_two_deliveries_of_one_order_at_two_workers_apply_it_once(shop):
    shop.create("p")
    one, two = shop.worker(), shop.worker()
    for worker in (one, two):
        for _ in range(2):
            shop.sell(worker, shop.order("p"))
    order = shop.order("p")

    def deliver_again(request):
        shop.calm()
        assert shop.tables.commit(two, order).outcomes[0].verdict is APPLIED

    shop.on(WRITE, deliver_again)
    assert shop.statuses(one, order, shop.order("p")) == [REPLAYED, APPLIED]
    assert shop.store.get_record(OrderKey(order.order_id)).status == "PENDING"


def test_a_corrupt_page_of_the_depot_holds_up_only_what_belongs_there(shop):
    shop.create("p")
    other = next(name for n in range(99) if of_other_page(name := f"q{n}", "p"))
    shop.create(other)
    worker = shop.worker(lanes=1)
    for _ in range(2):
        shop.sell(worker, shop.order("p"), shop.order(other))
    more = {name: shop.held(name)[1] + 1 for name in ("p", other)}
    held_up = shop.order("p", units=more["p"])
    key = str(PageKey.of(0, "p"))
    sound = shop.item("Allotments", key)["units"]
    shop.set("Allotments", key, units={"B": "bm90aGluZw=="})
    report = shop.sell(worker, shop.order(other, units=more[other]), held_up)
    assert [(o.verdict, o.cause) for o in report.outcomes] == [
        (APPLIED, ""),
        (RETURNED, "CORRUPT_PAGE"),
    ]
    shop.set("Allotments", key, units=sound)
    assert shop.statuses(worker, held_up) == [APPLIED]


def test_a_lane_with_a_corrupt_page_is_given_up_for_another(shop):
    shop.create("p", 1000)
    shop.lend("p", {1: 10, 2: 0}, depot=100)
    key = str(PageKey.of(1, "p"))
    sound = shop.item("Allotments", key)["units"]
    shop.set("Allotments", key, units={"B": "bm90aGluZw=="})
    worker = shop.worker(lanes=2)
    for _ in range(4):
        assert shop.statuses(worker, shop.order("p")) == [APPLIED]
    worker.source.lane.take(Deadline.after(1.0, worker.client.clock), CommitStats())
    assert worker.source.lane.number == 2
    shop.set("Allotments", key, units=sound)


def of_other_page(first, second):
    return PageKey.of(0, first).number != PageKey.of(0, second).number


def test_what_is_listed_again_during_a_visit_is_not_taken_for_broken(shop):
    shop.create("a")
    shop.lend("a", {}, depot=1)
    worker, products, reads = shop.worker(), ProductCatalogue(RetryingClient(shop.store)), []

    def before(operation, _):
        reads.append(operation)
        # The pages were read, and the row is read next.
        if reads[-3:] == [UPDATE, READ, READ]:
            shop.tables.before = lambda *_: None
            soon = Deadline.after(10.0, SystemClock())
            assert products.delist("a", shop.row("a").created_at, soon)
            shop.create("a")

    shop.tables.before = before
    assert shop.statuses(worker, shop.order("a", units=5)) == [APPLIED]
