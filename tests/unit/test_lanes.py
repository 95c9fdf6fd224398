"""Orders that are sold from lanes and at the depot, exactly once and to the last unit, under all kinds of faults.

The real client and engine run on the simulated AWS, in virtual time. After each test the books of every product must
balance, and each row must name the lanes that hold its units.
"""

import base64
import json
import random
from dataclasses import replace

import pytest

from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.allotments import (
    DEPOT,
    MAX_PRODUCTS,
    PAGES,
    Page,
    PageEntry,
    PageKey,
)
from inventory_orders.domain.amendment import Amend
from inventory_orders.domain.order import Order
from inventory_orders.domain.record import OrderAction
from inventory_orders.engine.retrying_client import CommitStats
from inventory_orders.errors import Outcome
from inventory_orders.lanes.lane import LANE_SECONDS, PASSED_ON
from inventory_orders.store.lane_leases import read_lane_leases
from inventory_orders.store.rows import encode, page_units
from inventory_orders.store.tables import Table
from testing.aws import ServiceError
from testing.schedules.in_turn.lanes import LaneShop
from testing.world.faults import THROTTLED, cancels, leaves_out, of_page, of_product

APPLIED, REJECTED = Outcome.APPLIED, Outcome.REJECTED
REPLAYED, RETURNED = Outcome.REPLAYED, Outcome.RETURNED

READ, UPDATE, WRITE = "BatchGetItem", "UpdateItem", "TransactWriteItems"
VISIT = [UPDATE, READ, WRITE]
"""The calls of a visit: lease the depot, read pages and a few rows, and write all moves together with the orders."""


@pytest.fixture
def shop():
    with LaneShop().open() as shop:
        yield shop
        shop.calm()
        shop.check()


# ---------------------------------------------------------------------- costs


def test_a_product_is_sold_from_its_row_until_contention_then_from_lanes(shop):
    shop.list("p")
    worker, rival = shop.worker(lanes=2), shop.worker()
    orders, costs = [], []

    def sell():
        orders.append(shop.new_order("p"))
        assert shop.outcomes(worker, orders[-1]) == [APPLIED]
        costs.append(list(shop.calls))

    for _ in range(3):
        sell()
    shop.once(WRITE, lambda _: shop.commit(rival, shop.new_order("p")) and None)
    sell()
    sell()
    assert costs[0] == costs[1] == [READ, WRITE]
    assert costs[2] == [WRITE], "from the cache"
    # The concurrent writer's two calls follow the failed write. Then the worker leases a lane, and its visit counts lanes again.
    assert costs[3] == [WRITE, READ, WRITE, READ, UPDATE, READ, UPDATE, READ, WRITE]
    assert costs[4] == [WRITE]
    lane = shop.source(orders[4].order_id)
    assert [shop.source(order.order_id) for order in orders] == [None, None, None, lane, lane]
    assert shop.product("p").lent_to == {0, 1, 2}


def test_after_ten_quiet_seconds_the_row_sells_what_the_lane_lacks(shop):
    shop.list_all("p", "q", "r")
    worker = shop.worker(lanes=1)
    worker.client.rivals.observe("p", "q", "r")

    def source_of(product_id):
        assert shop.outcomes(worker, shop.new_order(product_id)) == [APPLIED]
        return shop.source(f"o{shop.orders}")

    assert source_of("p") == 1
    shop.clock.sleep(9.8)
    assert source_of("q") == 1
    shop.clock.sleep(0.2)
    assert source_of("r") is None


def test_a_few_products_that_the_lane_lacks_are_sold_from_rows_and_more_at_the_depot(shop):
    names = [f"p{n:02}" for n in range(11)]
    shop.list_all(*names)
    shop.quiet.update(names)
    worker = shop.owner()
    assert shop.outcomes(worker, shop.new_order(*names[:10])) == [APPLIED]
    assert shop.calls == [READ, WRITE]
    assert shop.outcomes(worker, shop.new_order(*names)) == [APPLIED]
    assert shop.calls == [UPDATE, READ, READ, WRITE], (
        "more than ten rows are read only if they are needed"
    )
    assert {shop.source(f"o{shop.orders}", line) for line in range(11)} == {
        worker.source.lane.keys[0].lane
    }


def test_products_reach_only_low_lanes_once_it_is_known_that_few_are_in_use(shop):
    """A recall reads and checks a page of each lane within reach."""
    shop.list_all("p", "r")
    shop.list("q", 1_000_000)
    workers = [shop.owner(lanes=60) for _ in range(3)]

    def reach_of(product_id, worker):
        worker.client.rivals.observe(product_id)
        assert shop.outcomes(worker, shop.new_order(product_id)) == [APPLIED]
        assert shop.source(f"o{shop.orders}") == worker.source.lane.number
        return max(shop.product(product_id).lent_to)

    assert max(worker.source.lane.number for worker in workers) <= 20
    assert reach_of("p", workers[0]) == 60
    shop.clock.sleep(10.1)
    assert reach_of("q", workers[0]) == 20
    for lane in range(1, 21):
        shop.occupy(lane, 60.0, str(lane))
    late = shop.owner(lanes=60)
    assert 20 < late.source.lane.number <= 40
    assert reach_of("q", late) == 60, "otherwise its lane could not be filled"
    shop.clock.sleep(10.1)
    assert reach_of("r", workers[1]) == 40


@pytest.mark.parametrize("is_crowded", [True, False])
@pytest.mark.parametrize("in_lane", [0, 5])
def test_a_lane_with_too_few_units_is_filled_and_an_empty_one_only_if_others_wait(
    shop, in_lane, is_crowded
):
    shop.list("p")
    worker = shop.owner()
    if in_lane:
        shop.lend("p", {worker.source.lane.number: in_lane}, reach=2)
        worker.source.lane.forget()
    shop.quiet.add("p")
    if is_crowded:
        worker.source.depot.line.observe(1.0)
    assert shop.outcomes(worker, shop.new_order("p", units=6)) == [APPLIED]
    source = worker.source.lane.number if in_lane or is_crowded else None
    assert shop.source(f"o{shop.orders}") == source


# ---------------------------------------------------------------------- lanes whose owners wait


def waits(shop, worker, **units):
    """Let a worker publish what it waits for."""
    worker.source.lane.publish(units, 10, shop.soon(), CommitStats())


def needs_row(**changed):
    """Needs as stored, which never end, with some values changed."""
    sound = {"units": {"M": {"p": {"N": "3"}}}, "orders": {"N": "1"}, "version": {"N": "0"}}
    return {"M": {**sound, "until": {"N": "99999999999"}, **changed}}


def visits(shop, visitor):
    """Let a worker visit the depot for product `warm-up`, at which others wait."""
    visitor.source.depot.line.observe(1.0)
    visitor.source.lane.forget()
    need = shop.held("warm-up").get(visitor.source.lane.number, 0) + 1
    assert shop.outcomes(visitor, shop.new_order("warm-up", units=need)) == [APPLIED]


def test_a_visitor_borrows_for_those_who_wait_and_fills_their_lanes(shop):
    shop.list_all("p", "q")
    visitor, owner = shop.owner(), shop.owner()
    waits(shop, owner, p=3, q=2)
    visits(shop, visitor)
    lane = owner.source.lane.number
    for product_id, least in (("p", 3), ("q", 2)):
        assert shop.held(product_id)[lane] >= least
    owner.source.lane.forget()
    assert shop.outcomes(owner, shop.new_order("p", "q", units=2)) == [APPLIED]
    assert UPDATE not in shop.calls, "the owner has not visited the depot"
    assert {shop.source(f"o{shop.orders}", line) for line in range(2)} == {lane}


def test_a_worker_that_waits_publishes_its_needs_and_leaves_once_its_lane_is_filled(shop):
    shop.list_lent("p", 100, {}, depot=50)
    worker = shop.owner()
    shop.occupy(DEPOT, 1_000.0)
    lane, seen = worker.source.lane.number, []

    def act(request):
        seen.append(request["Key"]["page"]["S"])
        if seen.count("0/lease") < 3:
            shop.once(UPDATE, act)
        else:
            shop.fill(lane, "p", 5)

    shop.once(UPDATE, act)
    assert shop.outcomes(worker, shop.new_order("p", units=4)) == [APPLIED]
    assert shop.source(f"o{shop.orders}") == lane
    assert seen.count(f"{lane}/lease") == 1, "the needs are published once"
    (lease,) = read_lane_leases(shop.store, [lane])
    assert (lease.needs.units, lease.needs.orders) == ({"p": 4}, 1)


@pytest.mark.parametrize("why", ["sold", "late", "ended", "scarce", "unreadable"])
def test_the_lane_of_an_owner_that_does_not_wait_is_left_alone(shop, why):
    shop.list("p", 2 if why == "scarce" else 100)
    shop.list("q")
    visitor, owner = shop.owner(), shop.owner()
    lane = owner.source.lane.number
    shop.lend("q", {lane: 5}, reach=2)
    owner.source.lane.forget()
    assert shop.outcomes(owner, shop.new_order("q")) == [APPLIED]
    waits(shop, owner, p=3)
    if why == "sold":
        assert shop.outcomes(owner, shop.new_order("q")) == [APPLIED]
    elif why == "late":
        shop.clock.sleep(6.0)
    elif why == "ended":
        shop.edit(Table.ALLOTMENTS, f"{lane}/lease", lockTime={"N": "0"})
    if why == "unreadable":
        with shop.broken_page(lane, "q"):
            visits(shop, visitor)
    else:
        visits(shop, visitor)
    assert lane not in shop.held("p")


@pytest.mark.parametrize(
    "broken",
    [
        {"S": "many"},
        needs_row(units={"S": "p"}),
        needs_row(units={"M": {"p": {"S": "3"}}}),
        needs_row(units={"M": {"p": {"N": "1.5"}}}),
        needs_row(units={"M": {"": {"N": "3"}}}),
        needs_row(orders={"N": "-7"}),
        needs_row(until={"S": "soon"}),
    ],
)
def test_unreadable_needs_count_as_none_and_their_lease_stays_valid(shop, broken):
    shop.list("p")
    visitor, owner = shop.owner(), shop.owner()
    lane = owner.source.lane.number
    waits(shop, owner, p=3)
    shop.edit(Table.ALLOTMENTS, f"{lane}/lease", needs=broken)
    visits(shop, visitor)
    assert lane not in shop.held("p")
    assert shop.owner().source.lane.number is None, "both lanes are in use"


def test_a_page_of_another_lane_that_cannot_be_read_costs_its_owner_only(shop):
    shop.list("p")
    visitor, owner = shop.owner(), shop.owner()
    waits(shop, owner, p=3)
    page = of_page(owner.source.lane.number, "p")
    shop.on(READ, leaves_out(shop, page))
    visits(shop, visitor)
    assert owner.source.lane.number not in shop.held("p")


def test_a_new_page_of_another_lane_that_is_unreadable_costs_its_owner_only(shop):
    shop.list("p")
    visitor, owner = shop.owner(), shop.owner()
    waits(shop, owner, p=3)
    key = PageKey.of(owner.source.lane.number, "p")
    assert owner.source.lane.pages[key.number].version == 0
    shop.edit(Table.ALLOTMENTS, str(key), units={"B": "bm90aGluZw=="})
    visits(shop, visitor)
    assert UPDATE in shop.calls
    shop.items(Table.ALLOTMENTS).pop((str(key),))


def test_units_of_another_generation_in_a_waiting_lane_cost_the_visitor_nothing(shop):
    shop.list("q")
    visitor, owner = shop.owner(), shop.owner()
    lane = owner.source.lane.number
    shop.lend("q", {lane: 5}, depot=50, reach=2)
    owner.source.lane.forget()
    assert shop.outcomes(owner, shop.new_order("q")) == [APPLIED]
    waits(shop, owner, q=20)
    page = owner.source.lane.pages[PageKey.of(lane, "q").number]
    older = {"q": replace(page.entries["q"], created_at="2020-01-01T00:00:00.000000+00:00")}
    units = base64.b64encode(page_units(replace(page, entries=older))).decode()
    with shop.broken(Table.ALLOTMENTS, str(page.key), units={"B": units}):
        visits(shop, visitor)


@pytest.mark.parametrize("code", ["ValidationError", "ThrottlingError"])
def test_a_lane_whose_page_dynamodb_refuses_is_not_filled_again_and_again(shop, code):
    shop.list("p")
    visitor, owner = shop.owner(), shop.owner()
    waits(shop, owner, p=3)
    page = of_page(owner.source.lane.number, "p")
    shop.on(WRITE, cancels(code, page), page)
    began = shop.clock.seconds
    visits(shop, visitor)
    assert shop.clock.seconds - began < 1.0


def test_a_worker_whose_needs_cannot_be_published_still_waits(shop):
    shop.list("p")
    worker = shop.owner()
    worker.source.depot.line.observe(1.0)
    lane = {"page": {"S": f"{worker.source.lane.number}/lease"}}
    error = ServiceError("ThrottlingException", "Rate exceeded")
    shop.refuse(UPDATE, error, lambda request: request["Key"] == lane)
    assert shop.outcomes(worker, shop.new_order("p")) == [APPLIED]


def test_a_worker_waits_for_units_of_lanes_although_rows_have_none_to_spare(shop):
    shop.list_lent("p", 11, {2: 10}, depot=0)
    worker = shop.owner(lanes=1)
    worker.source.lane.last = 2
    worker.source.depot.drained.observe("p")
    shop.occupy(DEPOT, 1_000.0)
    began = shop.clock.seconds
    assert shop.outcomes(worker, shop.new_order("p", units=3)) == [APPLIED]
    assert shop.clock.seconds - began < 5.0, (
        "it did not leave, and noticed that the visitor is dead"
    )


def test_a_visitor_fills_as_many_lanes_as_fit_into_its_transaction(shop):
    """Twenty lanes have 80 pages, and a transaction may have 100 actions. The visit also writes 20 rows and 8 pages."""
    products = [f"p{number}" for number in range(20)]
    assert len({PageKey.of(DEPOT, p) for p in products}) == PAGES
    shop.list_all(*products)
    visitor, *owners = (shop.owner(lanes=21) for _ in range(21))
    visitor.source.lane.look_around(shop.soon(), CommitStats(), is_needed=True)
    for owner in owners:
        waits(shop, owner, **dict.fromkeys(products, 1))
    visitor.source.depot.line.observe(1.0)
    assert shop.outcomes(visitor, shop.new_order(*products)) == [APPLIED]
    assert 5 < len(shop.held("p0")) < 15


def test_a_visitor_fills_fewer_lanes_if_their_pages_will_be_large(shop):
    """A page of 108 KB in each place would exceed the 4 MB of a transaction."""
    visitor, *owners = (shop.owner(lanes=21) for _ in range(21))
    chance, entries = random.Random(1), [dict[str, PageEntry]() for _ in range(PAGES)]
    for _ in range(1_000):
        name = f"{chance.getrandbits(3_000):x}"
        entries[PageKey.of(DEPOT, name).number][name] = PageEntry("2026", 1_000, reach=21)
    for number, products in enumerate(entries):
        page = shop.store.read([key := PageKey(DEPOT, number)]).pages[key]
        units = page_units(replace(page, entries={**page.entries, **products}))
        encoded = {"B": base64.b64encode(units).decode()}
        sound = encode({"page": str(key), "_version": page.version + 1, "epoch": page.epoch or "e"})
        shop.edit(Table.ALLOTMENTS, str(key), **sound, units=encoded)
    for owner in owners:
        waits(shop, owner, **{"warm-up": 500})
    visits(shop, visitor)
    assert shop.calls.count(WRITE) == 2, "the moves, and the order from the visitor's lane"


def test_units_that_a_visitor_sells_at_the_depot_do_not_fill_the_lanes_of_others(shop):
    """Otherwise, the visitor would recall them from there at once."""
    shop.list("p", 100, low_stock_threshold=19)
    visitor, *owners = (shop.owner(lanes=12) for _ in range(11))
    shop.lend("p", {}, depot=80, reach=12)
    visitor.source.lane.look_around(shop.soon(), CommitStats(), is_needed=True)
    for owner in owners:
        waits(shop, owner, p=1)
    visitor.source.depot.line.observe(1.0)
    orders = [shop.new_order("p") for _ in range(50)]
    assert shop.outcomes(visitor, *orders) == [APPLIED] * 50
    assert shop.calls.count(WRITE) == 1
    assert sum(shop.held("p").values()) == 30


def test_a_small_batch_neither_fills_the_lanes_of_others_nor_asks_for_that(shop):
    shop.list("p")
    visitor, owner = shop.owner(), shop.owner()
    lane = visitor.source.lane.number
    waits(shop, owner, p=3)
    visitor.source.small_batch = 1
    visits(shop, visitor)
    assert owner.source.lane.number not in shop.held("p")
    assert "needs" not in shop.item(Table.ALLOTMENTS, f"{lane}/lease")
    visitor.source.small_batch = 0
    visits(shop, visitor)
    assert owner.source.lane.number in shop.held("p")


def test_a_small_batch_for_several_products_fills_the_lanes_of_others(shop):
    shop.list_all("p", "q", "r")
    visitor, owner = shop.owner(), shop.owner()
    waits(shop, owner, p=3)
    visitor.source.small_batch = 10
    visitor.source.depot.line.observe(1.0)
    shop.outcomes(visitor, shop.new_order("p", "q", "r"))
    assert owner.source.lane.number in shop.held("p")


@pytest.mark.parametrize("is_known", [True, False])
def test_the_pages_of_an_owner_that_needs_only_scarce_products_are_not_read(shop, is_known):
    shop.list("p", 2)
    visitor, owner = shop.owner(), shop.owner()
    waits(shop, owner, p=3)
    if is_known:
        visitor.source.depot.drained.observe("p")
    read = []
    shop.on(READ, lambda request: read.append(str(request)))
    visits(shop, visitor)
    assert (f"'{owner.source.lane.number}/0'" in str(read)) is not is_known


@pytest.mark.parametrize("small_batch", [10, 0])
def test_a_small_batch_is_sold_from_rows_while_others_wait_for_the_depot(shop, small_batch):
    shop.list("p")
    worker = shop.owner()
    shop.quiet.add("p")
    worker.source.depot.line.observe(1.0)
    worker.source.small_batch = small_batch
    assert shop.outcomes(worker, shop.new_order("p")) == [APPLIED]
    assert (shop.held("p") == {}) == (small_batch == 10)


def test_lanes_in_use_are_not_counted_at_every_visit(shop):
    """Shares that shrink with each process that joins would sell too much at the depot."""
    shop.list("p")
    visitor = shop.owner()
    counted = visitor.source.lane.in_use
    owner = shop.owner()
    waits(shop, owner, p=3)
    visits(shop, visitor)
    assert visitor.source.lane.in_use == counted == 1
    shop.clock.sleep(11)
    visitor.source.lane.look_around(shop.soon(), CommitStats(), is_needed=True)
    assert visitor.source.lane.in_use == 2


def test_a_row_with_nothing_to_lend_is_not_written(shop):
    """The depot may fill lanes with the product, but now it has too few units for that."""
    shop.list_lent("p", 11, {}, depot=10)
    worker = shop.owner(lanes=8)
    version = shop.product("p").version
    assert shop.outcomes(worker, shop.new_order("p", units=9)) == [APPLIED]
    assert shop.source(f"o{shop.orders}") == DEPOT
    assert shop.product("p").version == version


def test_a_lane_gets_some_of_what_only_other_lanes_have_sold(shop):
    for product_id in ("tea", "cup"):
        shop.list(product_id, 10_000)
    one, other = shop.owner(), shop.owner()
    shop.sell(one, shop.new_order("tea"))
    at_depot = shop.held("tea")[DEPOT]
    assert at_depot > 1_000
    for _ in range(3):
        shop.clock.sleep(LANE_SECONDS / 2)
        shop.sell(one, shop.new_order("warm-up"))
    # By now the worker knows that two lanes are in use.
    shop.sell(other, shop.new_order("cup"))
    assert shop.held("tea")[other.source.lane.number] == at_depot // 2 // 20


def test_each_lane_in_use_has_an_equal_share_and_so_does_the_depot(shop):
    shop.list("p", 100)
    _, second = shop.owner(), shop.owner()
    shop.sell(second, shop.new_order("p"))
    assert shop.held() == {DEPOT: 60, second.source.lane.number: 30 - 1}
    assert shop.stock("p") == 10, "the contested row keeps a tenth"


# ---------------------------------------------------------------------- loans


def test_a_loan_does_not_fail_because_orders_change_the_row(shop):
    shop.list("p")
    worker, rival = shop.owner(), shop.worker()
    shop.once(WRITE, lambda _: shop.commit(rival, shop.new_order("p", units=99)) and None)
    assert shop.outcomes(worker, shop.new_order("p")) == [APPLIED]
    assert shop.calls == [*VISIT, READ, WRITE], "the last two calls are the rival's"
    assert shop.product("p").lent_to


@pytest.mark.parametrize(
    "change",
    [
        lambda shop: shop.edit(Table.PRODUCTS, "p", lowStockThreshold={"N": "1"}),
        lambda shop: shop.edit(Table.PRODUCTS, "p", status={"S": "DISCONTINUED"}),
        lambda shop: shop.commit(shop.worker(), shop.new_order("p", units=999)),
        lambda shop: shop.count("p", 2),
        lambda shop: shop.delist("p") or shop.list("p"),
    ],
    ids=["threshold", "status", "stock", "count", "generation"],
)
def test_a_loan_fails_if_the_row_may_no_longer_lend(shop, change):
    shop.list("p")
    worker = shop.owner()
    shop.once(WRITE, lambda _: change(shop) and None)
    report = shop.sell(worker, shop.new_order("p"))
    assert report.stats.measured["LoansLost"][0]


# ---------------------------------------------------------------------- leases


def test_a_lane_is_taken_over_with_its_units(shop):
    shop.list("p")
    one = shop.owner(lanes=1)
    for _ in range(3):
        shop.sell(one, shop.new_order("p"))
    held = shop.held("p")[1]
    shop.clock.sleep(LANE_SECONDS + 1)
    two = shop.owner(lanes=1)
    for _ in range(2):
        assert shop.outcomes(two, shop.new_order("p")) == [APPLIED]
    assert shop.source(f"o{shop.orders}") == 1
    assert shop.held("p")[1] >= held - 2


def sells_from(shop, worker):
    """Let a worker sell a product, and return the lane that it came from."""
    assert shop.outcomes(worker, shop.new_order("p")) == [APPLIED]
    return shop.source(f"o{shop.orders}")


def test_workers_without_a_lane_take_turns_with_others(shop):
    shop.list("p", 100_000)
    workers = [shop.owner(lanes=2) for _ in range(2)]
    lanes = [worker.source.lane.number for worker in workers]
    assert [sells_from(shop, worker) for worker in workers] == lanes
    three = shop.owner(lanes=2)
    assert sells_from(shop, three) == DEPOT, "no one else uses it"
    shop.occupy(DEPOT, 60.0)
    shared = sells_from(shop, three)
    assert three.source.lane.number is None, "it has passed on the lane that it has taken over"
    assert sells_from(shop, three) == shared
    assert shop.calls == [UPDATE, READ, WRITE, UPDATE], "take the lane, read, sell, pass it on"
    assert shop.outcomes(three, Adjustment("p", "in", 1, "RECEIPT")) == [APPLIED]
    assert UPDATE not in shop.calls, "what only needs rows takes no lane"
    robbed, spared = workers if shared == lanes[0] else workers[::-1]
    # The worker that had the lane before learns it from the write that fails.
    assert sells_from(shop, robbed) == shared
    assert shop.calls[:2] == [WRITE, UPDATE]
    assert shop.calls[-3:] == [READ, WRITE, UPDATE]
    assert sells_from(shop, robbed) == sells_from(shop, three) == shared
    assert not spared.source.lane.is_crowded
    assert sells_from(shop, spared) == spared.source.lane.number
    assert shop.calls == [WRITE]
    # Without others, a worker keeps its lane again.
    for _ in range(3):
        shop.clock.sleep(11)
        sells_from(shop, robbed)
    assert not robbed.source.lane.is_crowded
    assert robbed.source.lane.number == shared


def test_a_worker_without_a_lane_tries_again_while_it_waits_for_the_depot(shop):
    shop.list("p", 100_000)
    one = shop.owner(lanes=1)
    assert sells_from(shop, one) == 1
    two = shop.owner(lanes=1)
    shop.occupy(DEPOT, 60.0)
    assert [sells_from(shop, two) for _ in range(2)] == [1, 1]
    shop.occupy(1, 60.0)
    # The lane is passed on after the first request for the depot's lease.
    requests = iter(range(100))
    shop.before_each(UPDATE, lambda: next(requests) == 4 and shop.occupy(1, 60.0, PASSED_ON))
    assert sells_from(shop, two) == 1


def test_a_worker_that_passes_its_lane_on_may_find_all_leases_over(shop):
    shop.list("p", 100_000)
    one = shop.owner(lanes=1)
    one.source.lane.is_crowded = True
    assert sells_from(shop, one) == 1
    shop.clock.sleep(LANE_SECONDS + 1)
    assert sells_from(shop, one) == 1
    assert one.source.lane.number == 1, "it has met no other worker"


def test_a_worker_does_not_remember_the_units_of_a_lane_that_it_has_passed_on(shop):
    shop.list("p", 100_000)
    one = shop.owner(lanes=1)
    one.source.lane.is_crowded = True
    assert sells_from(shop, one) == 1
    # A visit that needed no lane has counted the lanes, and found no contest.
    one.source.lane.is_crowded = False
    assert sells_from(shop, one) in (1, DEPOT)


def test_after_throttles_a_worker_asks_for_the_depot_less_often(shop):
    """Otherwise, requests that are refused use up the capacity that the visitor needs to release the lease."""
    shop.list("p", 100_000)

    def requests(throttled):
        worker, left = shop.owner(), iter(range(throttled))
        shop.occupy(DEPOT, 60.0)

        def refuse(_):
            if next(left, None) is not None:
                raise THROTTLED

        shop.on(UPDATE, refuse)
        shop.sell(worker, shop.new_order("p"))
        shop.calm()
        return shop.calls.count(UPDATE)

    assert requests(8) - 8 < requests(0) / 2


def test_passing_a_lane_on_does_not_hold_a_finished_batch(shop):
    shop.list("p", 100_000)
    one = shop.owner(lanes=1)
    assert sells_from(shop, one) == 1
    one.source.lane.is_crowded = True
    began = shop.clock.seconds

    def refuse(_):
        raise THROTTLED

    shop.on(UPDATE, refuse)
    assert sells_from(shop, one) == 1
    assert shop.clock.seconds - began < 0.1


def test_a_process_of_the_api_takes_over_no_lane(shop):
    one, two = shop.api(), shop.api()
    for api in (one, two):
        api.source.lane.take(shop.soon(), CommitStats())
        api.source.lane.take_turn(shop.soon(), CommitStats())
    assert [api.source.lane.number for api in (one, two)] == [2, None]
    # No worker takes its lane over either.
    worker = shop.seller(lanes=1)
    for _ in range(20):
        worker.source.lane.take_turn(shop.soon(), CommitStats())
        assert worker.source.lane.number == 1
        worker.source.lane.pass_on(shop.soon(), CommitStats())


def test_a_lane_in_use_is_kept(shop):
    shop.list("p", 10_000)
    one = shop.owner(lanes=1)
    for _ in range(10):
        shop.clock.sleep(LANE_SECONDS * 0.8)
        shop.sell(one, shop.new_order("p"))
    assert shop.owner(lanes=1).source.lane.keys == []
    assert {key.lane for key in one.source.lane.keys} == {1}


def test_a_dead_owner_of_the_depots_lease_blocks_visits_for_two_seconds(shop):
    shop.list("p")
    worker = shop.owner()
    shop.occupy(DEPOT, 2.0)
    report = shop.sell(worker, shop.new_order("p"))
    assert [outcome.kind for outcome in report.outcomes] == [APPLIED]
    assert 1.5 < report.stats.measured["DepotWait"][0] / 1000 < 3.0
    assert shop.calls.count(UPDATE) < 50, "each attempt to take the lease costs a write unit"


@pytest.mark.parametrize(("units", "outcome"), [(4, REJECTED), (2, APPLIED)])
def test_once_a_product_is_sold_out_nobody_waits_for_the_depot(shop, units, outcome):
    shop.list("p", 5)
    worker, other = shop.owner(), shop.owner()
    shop.sell(worker, shop.new_order("p"))
    shop.sell(other, shop.new_order("p", units=units))
    shop.occupy(DEPOT, 2.0)
    began = shop.clock.seconds
    assert shop.outcomes(worker, shop.new_order("p", units=2)) == [outcome]
    assert (shop.clock.seconds - began > 1.5) == (outcome is APPLIED)


def test_a_worker_that_knows_no_row_sees_while_it_waits_that_a_product_is_sold_out(shop):
    shop.list("p", 5)
    worker, other = shop.owner(), shop.owner()
    shop.once(UPDATE, lambda _: shop.commit(other, shop.new_order("p", units=5)) and None)
    worker.client.rivals.observe("p")
    shop.occupy(DEPOT, 1_000.0)
    began = shop.clock.seconds
    assert shop.outcomes(worker, shop.new_order("p", units=2)) == [REJECTED]
    assert shop.clock.seconds - began < 1.0


@pytest.mark.parametrize(
    "lock", [{"lockedBy": {"S": "x"}, "lockTime": {"S": "soon"}}, {"lockTime": {"N": "9999999999"}}]
)
def test_an_unreadable_lease_of_the_depot_counts_as_expired(shop, lock):
    shop.list("p")
    worker = shop.owner()
    shop.edit(Table.ALLOTMENTS, "0/lease", **lock)
    assert shop.outcomes(worker, shop.new_order("p")) == [APPLIED]
    assert shop.calls == VISIT


# ---------------------------------------------------------------------- answers


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_orders_that_cannot_be_placed_are_rejected_for_the_right_reason(shop, batches):
    """Without contention, rows decide the orders. With it, the depot decides the first batch, and the lane the next."""
    shop.list_all("p", "ended")
    shop.list("empty", 0)
    shop.edit(Table.PRODUCTS, "ended", status={"S": "DISCONTINUED"})
    if not batches:
        shop.quiet |= {"p", "unknown", "ended", "empty"}
    worker = shop.owner()
    for _ in range(max(1, batches)):
        wanted = ["p", "unknown", "ended", "empty", "p"]
        orders = [shop.new_order(product_id) for product_id in wanted]
        both = shop.new_order("p", "empty")
        report = shop.sell(worker, *orders, both)
    assert [outcome.kind for outcome in report.outcomes] == [
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
def test_the_last_unit_is_sold_before_any_order_is_rejected(shop, workers, threshold):
    shop.list("p", 60, low_stock_threshold=threshold)
    team = [shop.owner(lanes=2) for _ in range(workers)]
    placed = 0
    for number in range(32):
        worker = team[number % workers]
        statuses = shop.outcomes(worker, shop.new_order("p"), shop.new_order("p"))
        placed += statuses.count(APPLIED)
        assert REJECTED not in statuses or placed == 60
        assert RETURNED not in statuses
    assert placed == 60
    assert (shop.product("p").stock_count, shop.product("p").lent_to) == (0, frozenset())
    assert shop.product("p").status == "OUT_OF_STOCK"


@pytest.mark.parametrize(
    ("stock", "details", "placed"),
    [(5, {"low_stock_threshold": 5}, 5), (12, {"backorder_limit": 10}, 22)],
)
def test_a_product_at_its_threshold_and_backorders_are_sold_from_the_row(
    shop, stock, details, placed
):
    shop.list("p", stock, **details)
    worker = shop.owner()
    outcomes = [shop.outcomes(worker, shop.new_order("p")) for _ in range(placed + 1)]
    assert outcomes == [[APPLIED]] * placed + [[REJECTED]]
    assert (shop.stock("p"), shop.product("p").lent_to) == (stock - placed, frozenset())


# ---------------------------------------------------------------------- items that are corrupt


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_corrupt_row_does_not_delay_other_orders(shop, batches):
    shop.list_all("p", "broken", "q")
    if not batches:
        shop.quiet |= {"p", "broken", "q"}
    worker = shop.owner()
    with shop.broken(Table.PRODUCTS, "broken", stockCount={"S": "many"}):
        for _ in range(max(1, batches)):
            orders = [shop.new_order(*ids) for ids in (["p"], ["broken"], ["p", "broken"], ["q"])]
            began = shop.clock.seconds
            report = shop.sell(worker, *orders)
            assert [o.kind for o in report.outcomes] == [APPLIED, RETURNED, RETURNED, APPLIED]
            assert {o.cause for o in report.outcomes if o.cause} == {"CORRUPT_PRODUCT"}
            assert shop.clock.seconds - began < 2.0


@pytest.mark.parametrize("lane", [0, 1])
def test_a_corrupt_page_returns_orders_by_its_name_and_loses_nothing(shop, lane):
    shop.list("p")
    shop.sell(shop.owner(lanes=1), shop.new_order("p"))
    units = shop.stock("p") + sum(shop.held("p").values())
    shop.clock.sleep(LANE_SECONDS)
    worker = shop.seller(lanes=1)
    with shop.broken_page(lane, "p"):
        (outcome,) = shop.sell(worker, shop.new_order("p", units=units)).outcomes
    assert (outcome.kind, outcome.cause) == (RETURNED, "CORRUPT_PAGE")
    assert f"page {PageKey.of(lane, 'p')} " in outcome.detail
    assert shop.outcomes(worker, shop.new_order("p")) == [APPLIED]


@pytest.mark.parametrize("lane", [0, 1, 2])
def test_no_order_is_dead_lettered_because_dynamodb_refuses_a_page(shop, lane):
    """The page would exceed the item size limit, so its orders are returned."""
    shop.list("p", 40)
    shop.lend("p", {1: 10, 2: 15}, depot=2)
    worker, page = shop.owner(lanes=1), of_page(lane, "p")
    shop.on(WRITE, cancels("ValidationError", page), page)
    orders = [shop.new_order("p", units=19), shop.new_order("p", units=19)]
    report = shop.sell(worker, *orders)
    assert [(o.kind, o.cause) for o in report.outcomes] == [(RETURNED, "CORRUPT_PAGE")] * 2
    shop.calm()
    assert shop.outcomes(worker, *orders) == [APPLIED] * 2


def test_units_of_an_amend_go_back_to_a_row_that_another_program_has_broken(shop):
    shop.list("p")
    order = shop.new_order("p", units=3)
    assert shop.outcomes(shop.seller(lanes=0), order) == [APPLIED]
    shop.lend("p", {1: 1}, reach=2)
    shop.edit(Table.PRODUCTS, "p", lowStockThreshold={"N": "5000"})
    amend = Amend(order.order_id, OrderAction.AMEND, step_id="s", quantities={"p": 1})
    assert shop.outcomes(shop.seller(), amend) == [APPLIED]
    assert (shop.stock("p"), shop.product("p").lent_to) == (999, frozenset())


# ---------------------------------------------------------------------- throttles


@pytest.mark.parametrize("code", ["ThrottlingError", "ValidationError"])
def test_a_throttled_row_that_runs_low_delays_no_orders_for_other_products(shop, code):
    """A visit to the depot also lends units of other products that run low. Such a loan must not delay the batch."""
    shop.list_all("slow", "p")
    worker = shop.owner()
    for _ in range(3):
        shop.sell(worker, *(shop.new_order("slow", units=3) for _ in range(30)))
    shop.clock.sleep(15)
    shop.do(Adjustment("slow", "r", 100_000, "RECEIPT"))
    shop.sell(worker, shop.new_order("p"))
    shop.on(WRITE, cancels(code, of_product("slow")), of_product("slow"))
    began = shop.clock.seconds
    assert shop.outcomes(worker, shop.new_order("p")) == [APPLIED]
    assert shop.clock.seconds - began < 1.0


@pytest.mark.parametrize("lane", [0, 1])
def test_a_page_that_cannot_be_read_returns_the_batch(shop, lane):
    shop.list("p")
    worker = shop.owner(lanes=1)
    shop.sell(worker, shop.new_order("p"))
    worker.source.lane.forget()
    shop.on(READ, leaves_out(shop, of_page(lane, "p")))
    order = shop.new_order("p", units=shop.held("p")[1] + 1)
    (outcome,) = shop.sell(worker, order).outcomes
    assert (outcome.kind, outcome.cause) == (RETURNED, "UNPROCESSED_KEYS")
    shop.calm()
    assert shop.outcomes(worker, order) == [APPLIED]


# ---------------------------------------------------------------------- lost responses, and no time


def visit_and_more(shop, *, crowded=False):
    """Make a worker with units in its lane, and a batch with orders for rows, for the depot and for the lane.

    The batch needs a visit to the depot. If other workers wait, the orders for the lane are a separate transaction.
    """
    for product_id, stock in (("deep", 1000), ("new", 1000), ("scarce", 30), ("last", 2)):
        shop.list(product_id, stock)
    worker = shop.owner()
    shop.sell(worker, shop.new_order("deep"))
    shop.lend("scarce", {}, depot=20, reach=0)
    if crowded:
        worker.source.depot.line.observe(0.5)
    return worker, [shop.new_order(p) for p in ("deep", "new", "scarce", "last")]


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize("after", range(3))
def test_pages_with_an_unknown_outcome_are_forgotten_and_read_again(shop, after, is_applied):
    """From a certain write on, every response is lost, and the engine gives up."""
    worker, orders = visit_and_more(shop, crowded=True)
    shop.lose_responses(after + 1, 1000, [WRITE], is_applied=is_applied)
    assert (RETURNED in shop.outcomes(worker, *orders)) == (after < 2)
    shop.calm()
    assert set(shop.outcomes(worker, *orders)) <= {APPLIED, REPLAYED}
    shop.check()
    assert shop.outcomes(worker, shop.new_order("deep"), shop.new_order("new")) == [APPLIED] * 2


@pytest.mark.parametrize("seconds", [0.0, 0.015, 0.025, 0.035, 0.045])
def test_a_batch_without_time_is_returned_and_loses_nothing(shop, seconds):
    worker, orders = visit_and_more(shop)
    began = shop.clock.seconds
    asked = []
    shop.before = lambda *call: asked.append((shop.clock.seconds - began, call))
    statuses = shop.outcomes(worker, *orders, seconds=seconds)
    assert set(statuses) <= {RETURNED, APPLIED}
    if seconds < 0.02:
        assert statuses == [RETURNED] * 4
    late = [request for at, (_, request) in asked if at - 0.01 > seconds]
    assert all("REMOVE #lockedBy" in json.dumps(request) for request in late), (
        "only the release of the depot may follow"
    )
    shop.calm()
    assert set(shop.outcomes(worker, *orders)) <= {APPLIED, REPLAYED}


# ---------------------------------------------------------------------- rows under a lease


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_long_lease_returns_only_orders_that_the_lane_cannot_serve(shop, batches):
    shop.list("p", 100)
    shop.list("q", 100)
    if not batches:
        shop.quiet |= {"p", "q"}
    worker = shop.owner()
    for _ in range(batches - 1):
        shop.sell(worker, shop.new_order("p"), shop.new_order("q"))
    shop.count("p", seconds=600)
    one, other = shop.sell(worker, shop.new_order("p"), shop.new_order("q")).outcomes
    assert other.kind is APPLIED
    if batches == 2:
        assert one.kind is APPLIED, "its lane has units"
    else:
        assert (one.kind, one.cause) == (RETURNED, "LEASED")
        assert one.retry_after == pytest.approx(600, abs=1)


def test_waiting_for_a_lease_only_reads_the_row(shop):
    shop.list("p", 100)
    worker = shop.owner()
    shop.count("p", seconds=2)
    assert shop.outcomes(worker, shop.new_order("p")) == [APPLIED]
    assert shop.calls.count(UPDATE) == 2, "one visit before the wait, and one after it"


# ---------------------------------------------------------------------- large batches and pages


def fill_the_depots_page(shop, product_id, products, emptied=0):
    """Add many other products to a depot page: some with unwanted units, and some that it has run out of."""
    key = PageKey.of(DEPOT, product_id)
    created = "2026-01-01T00:00:00.000000+00:00"
    entries = {f"x{n}": PageEntry(created, 1) for n in range(products)}
    page = Page(key, 1, "epoch", entries, emptied=frozenset(f"y{n}" for n in range(emptied)))
    item = encode({"page": str(key), "_version": 1, "epoch": "epoch"})
    item |= {"units": {"B": base64.b64encode(page_units(page)).decode()}}
    shop.aws.dynamodb.answer("PutItem", {"TableName": Table.ALLOTMENTS.value, "Item": item})


@pytest.mark.parametrize(
    ("products", "emptied", "is_lent"),
    [(MAX_PRODUCTS, 0, False), (1, MAX_PRODUCTS - 1, False), (100, 100, True)],
)
def test_a_product_that_does_not_fit_on_the_depots_page_is_sold_from_its_row(
    shop, products, emptied, is_lent
):
    shop.list("p")
    worker = shop.owner()
    fill_the_depots_page(shop, "p", products, emptied)
    for _ in range(3):
        assert shop.outcomes(worker, shop.new_order("p")) == [APPLIED]
    assert (shop.source(f"o{shop.orders}") is not None) == is_lent
    assert bool(shop.product("p").lent_to) == is_lent


def test_units_without_demand_are_returned_to_the_depot(shop):
    """A lane that kept a few units of each product would have a large page, which makes each order more expensive."""
    shop.list("p", 100)
    shop.list("q")
    worker = shop.owner()
    lane = worker.source.lane.keys[0].lane
    shop.lend("p", {lane: 2})
    worker.source.demand.observe_orders([{"p": 1}])
    for _ in range(3):
        shop.sell(worker, shop.new_order("q"))
    assert shop.held("p")[lane] == 2
    for _ in range(4):
        shop.clock.sleep(50)
        shop.sell(worker, shop.new_order("q"), shop.new_order("warm-up"))
    assert shop.outcomes(worker, shop.new_order("q", units=sum(shop.held("q").values()))) == [
        APPLIED
    ]
    assert lane not in shop.held("p")


def test_many_loans_are_written_before_the_visit_ends(shop):
    names = [f"p{n:02}" for n in range(60)]
    shop.list_all(*names)
    worker = shop.owner()
    batch = [
        [shop.new_order(*names[start : start + 20]) for start in (0, 20, 40)] for _ in range(2)
    ]
    first = shop.sell(worker, *batch[0])
    assert [outcome.kind for outcome in first.outcomes] == [APPLIED] * 3
    assert 0 not in first.stats.changes_per_transaction, "these transactions only move units"
    assert shop.calls[:2] == [UPDATE, READ], "more than ten products are sold at the depot"
    assert shop.calls.count(WRITE) >= PAGES + 1
    assert shop.outcomes(worker, *batch[1]) == [APPLIED] * 3
    assert all(shop.product(product_id).lent_to for product_id in names)


# ---------------------------------------------------------------------- fewer lanes than before


def test_units_in_lanes_are_sold_after_the_number_of_lanes_is_reduced(shop):
    shop.list("p", 100)
    shop.lend("p", {1: 20, 2: 30}, depot=40)
    worker = shop.worker(lanes=1)
    placed = sum(
        shop.outcomes(worker, shop.new_order("p", units=9)).count(APPLIED) for _ in range(12)
    )
    assert placed == 11
    assert shop.product("p").stock_count + sum(shop.held("p").values()) == 1


# ---------------------------------------------------------------------- groups, and changes for the row


def test_orders_of_the_fifo_queue_are_sold_from_lanes(shop):
    shop.list("p")
    worker = shop.owner()
    for calls in (VISIT, [WRITE]):
        orders = [Order(f"{n}-{len(calls)}", "u", {"p": 1}, group="g") for n in range(3)]
        assert shop.outcomes(worker, *orders) == [APPLIED] * 3
        assert shop.calls == calls
        assert {shop.source(order.order_id) for order in orders} == {
            worker.source.lane.keys[0].lane
        }


@pytest.mark.parametrize(("lanes", "depot", "writes"), [({}, 90, 1), ({1: 20, 2: 30}, 40, 2)])
def test_a_correction_that_needs_lent_units_is_written_with_their_recall(
    shop, lanes, depot, writes
):
    """The correction is a single transaction during a visit to the depot, after units in other lanes have been recalled."""
    shop.list("p", 100)
    shop.lend("p", lanes, depot, reach=max(lanes, default=0))
    worker, sent = shop.worker(), []
    shop.on(WRITE, lambda request: sent.append((shop.product("p").stock_count, request)))
    assert shop.outcomes(worker, Adjustment("p", "a", -95, "CORRECTION")) == [APPLIED]
    assert len(sent) == writes
    stock, request = sent[-1]
    assert stock == 10, "no units are reclaimed by an earlier write"
    assert of_product("p")(request)
    assert "StockAdjustments" in json.dumps(request)
    assert (shop.product("p").stock_count, shop.product("p").lent_to, shop.held("p")) == (
        5,
        set(),
        {},
    )


def test_a_corrupt_page_of_the_depot_only_delays_its_own_products(shop):
    other = next(name for n in range(99) if PageKey.of(0, name := f"q{n}") != PageKey.of(0, "p"))
    shop.list_all("p", other)
    worker = shop.owner(lanes=1)
    for _ in range(2):
        shop.sell(worker, shop.new_order("p"), shop.new_order(other))
    orders = [shop.new_order(name, units=shop.held(name)[1] + 1) for name in (other, "p")]
    with shop.broken_page(DEPOT, "p"):
        report = shop.sell(worker, *orders)
    ends = [(o.kind, o.cause) for o in report.outcomes]
    assert ends == [(APPLIED, ""), (RETURNED, "CORRUPT_PAGE")]
    assert shop.outcomes(worker, orders[1]) == [APPLIED]


def test_a_lane_with_a_corrupt_page_is_given_up_for_another(shop):
    shop.list("p", 1000)
    shop.lend("p", {1: 10, 2: 0}, depot=100)
    with shop.broken_page(1, "p"):
        worker = shop.owner(lanes=2)
        for _ in range(4):
            assert shop.outcomes(worker, shop.new_order("p")) == [APPLIED]
        worker.source.lane.take(shop.soon(), CommitStats())
        assert worker.source.lane.number == 2
