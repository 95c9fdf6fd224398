"""The sweep empties idle lanes, leaves lanes in use alone, and loses no unit."""

import pytest
from botocore.exceptions import ReadTimeoutError

from docs_generator import costs
from inventory_orders.clock import SystemClock
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import DEPOT, MAX_LANES, PAGES, LaneLease, PageKey
from inventory_orders.domain.order import Order
from inventory_orders.domain.planner import Transaction
from inventory_orders.domain.product import NewProduct
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import Verdict
from inventory_orders.lanes.idle import (
    IDLE_SECONDS,
    IdleReport,
    RepairNeededError,
    return_idle_units,
)
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.store.cancellations import TransactionCancelledError
from inventory_orders.store.lane_leases import lease_lane
from inventory_orders.store.rows import encode
from inventory_orders.store.writes import transaction_actions
from testing import lanes
from testing.bench import one_attempt
from testing.simulated_aws import ServiceError

WRITES = {"UpdateItem", "TransactWriteItems"}
LEASE_SECONDS = 30


def lend(shop, product_id, units, fills=None):
    """Move units to the depot, and from there to lanes, each of which gets an owner."""
    fills = fills or {}
    lanes.lend(shop.store, product_id, units - sum(fills.values()), fills)
    for lane, filled in fills.items():
        if filled:
            lease(shop, lane)


def lease(shop, lane):
    until = shop.clock.now() + LEASE_SECONDS
    lease_lane(shop.store, LaneLease(lane, "owner", until), SystemClock().now())


def allocation(shop, product_id, *lanes):
    keys = [PageKey.of(lane, product_id) for lane in (DEPOT, *lanes)]
    found = shop.store.read([product_id, *keys])
    return Allocation(found.products, found.pages.values())


def write(shop, allocation):
    updates, pages, _ = allocation.drain()
    request = transaction_actions(Transaction(updates, (), pages), SystemClock().now())
    shop.store.write(request, f"write-at-{shop.clock.now()}")


def sweep(shop, seconds=40.0):
    return return_idle_units(shop.store, shop.soon(seconds))


def where(shop, product_id):
    """Units in the row, units by lane, and the lanes that may hold some."""
    keys = [PageKey.of(lane, product_id) for lane in (*range(6), MAX_LANES)]
    found = shop.store.read([product_id, *keys])
    row = found.products[product_id]
    held = {key.lane: page.units(product_id) for key, page in found.pages.items()}
    return row.stock_count, {lane: n for lane, n in held.items() if n}, set(row.lent_to)


def in_one_page(count):
    names = (f"p{number}" for number in range(count * PAGES * 2))
    return [name for name in names if PageKey.of(DEPOT, name).number == 0][:count]


def test_a_lane_without_a_live_lease_is_emptied_into_the_depot(shop):
    for product_id in ("a", "b", "c"):
        shop.list(product_id, 100)
        lend(shop, product_id, 50, {1: 20, 2: 5})
    shop.clock.sleep(LEASE_SECONDS)
    lease(shop, 2)
    assert sweep(shop) == IdleReport(lanes=[1])
    for product_id in ("a", "b", "c"):
        assert where(shop, product_id) == (50, {0: 45, 2: 5}, {0, 1, 2})


def test_an_emptied_lane_costs_one_visit_of_four_requests(shop):
    for number in range(40):
        shop.list(f"p{number}", 100)
        lend(shop, f"p{number}", 50, {1: 20})
    shop.clock.sleep(LEASE_SECONDS)
    shop.calls = []
    assert sweep(shop).lanes == [1]
    leases_and_pages = ["BatchGetItem", "BatchGetItem"]
    visit = ["UpdateItem", "BatchGetItem", "TransactWriteItems"]
    assert shop.calls == [*leases_and_pages, *visit, "BatchGetItem"]
    shop.calls = []
    assert sweep(shop) == IdleReport()
    assert shop.calls == ["BatchGetItem"] * 3, "nothing to do is three reads"


def test_a_sweep_without_lanes_reads_as_much_as_the_costs_say(shop):
    assert sweep(shop) == IdleReport()
    reads = shop.aws.dynamodb.tables["Allotments"].consumed.reads
    assert reads == costs.READ_UNITS_OF_LANES


def test_a_lane_beyond_what_the_settings_allow_today_is_emptied(shop):
    shop.list("a", 100)
    lend(shop, "a", 50, {MAX_LANES: 20})
    shop.clock.sleep(LEASE_SECONDS)
    assert sweep(shop).lanes == [MAX_LANES]
    shop.clock.sleep(IDLE_SECONDS)
    assert sweep(shop) == IdleReport(products=1)
    assert where(shop, "a") == (100, {}, set())


def test_a_row_of_which_lanes_have_sold_all_units_names_no_lane_any_more(shop):
    """Else the API could not sell the last units: they are kept back while lanes may hold more."""
    shop.list("a", 100)
    lend(shop, "a", 90, {1: 20})
    for lane, units in ((1, 20), (DEPOT, 70)):
        moved = allocation(shop, "a", lane)
        moved.add_units("a", -units, lane)
        write(shop, moved)
    assert where(shop, "a") == (10, {}, {0, 1})
    shop.clock.sleep(max(LEASE_SECONDS, IDLE_SECONDS))
    assert sweep(shop) == IdleReport(products=1)
    assert where(shop, "a") == (10, {}, set())
    api = one_attempt(shop.store, clock=SystemClock())
    order = Order("o", "u", {"a": 10})
    assert [o.verdict for o in shop.commit(api, order).outcomes] == [Verdict.APPLIED]
    shop.calls = []
    assert sweep(shop) == IdleReport()
    assert shop.calls == ["BatchGetItem"] * 3, "nothing to do is three reads"


def test_the_units_of_an_idle_depot_are_reclaimed_in_several_transactions(shop):
    products = in_one_page(95)
    for number, product_id in enumerate(products):
        shop.list(product_id, 100)
        lend(shop, product_id, 50, {5: 0} if number % 2 else {})
    shop.clock.sleep(IDLE_SECONDS)
    shop.calls = []
    assert sweep(shop) == IdleReport(products=95)
    assert shop.calls.count("TransactWriteItems") == 2
    assert all(where(shop, product_id) == (100, {}, set()) for product_id in products)


def test_a_depot_that_is_in_use_stays_and_so_does_what_a_lane_in_use_may_hold(shop):
    recent, lent = in_one_page(2)
    elsewhere = next(p for p in "abcdefgh" if PageKey.of(DEPOT, p).number != 0)
    for product_id in (recent, lent, elsewhere):
        shop.list(product_id, 100)
    lend(shop, elsewhere, 50, {3: 1})
    lend(shop, lent, 50)
    shop.clock.sleep(IDLE_SECONDS - 1)
    lease(shop, 3)
    lend(shop, recent, 50)
    assert sweep(shop) == IdleReport()
    shop.clock.sleep(1)
    assert sweep(shop) == IdleReport()
    assert where(shop, lent) == where(shop, recent) == (50, {0: 50}, {0})
    assert where(shop, elsewhere) == (50, {0: 49, 3: 1}, {0, 1, 2, 3})


def test_a_leased_product_waits_and_the_others_are_reclaimed(shop):
    counted, other = in_one_page(2)
    for product_id in (counted, other):
        shop.list(product_id, 100)
        lend(shop, product_id, 50)
    shop.clock.sleep(IDLE_SECONDS)
    lock = encode({"lockedBy": "counter", "lockTime": int(shop.clock.now()) + 60})
    shop.aws.dynamodb.tables["Products"].items[counted,] = shop.row(counted) | lock
    assert sweep(shop) == IdleReport(products=1)
    assert where(shop, counted) == (50, {0: 50}, {0})
    shop.clock.sleep(IDLE_SECONDS)
    assert sweep(shop) == IdleReport(products=1)


def test_a_status_stays_what_it_was(shop):
    ProductCatalogue(RetryingClient(shop.store)).create(
        NewProduct("a", 100, low_stock_threshold=20)
    )
    lend(shop, "a", 70, {1: 3})
    shop.clock.sleep(LEASE_SECONDS)
    before = shop.store.get_product("a")
    assert sweep(shop).lanes == [1]
    shop.clock.sleep(IDLE_SECONDS)
    assert sweep(shop).products == 1
    after = shop.store.get_product("a")
    assert (after.status, after.stock_count) == (before.status, 100)
    assert after.version == before.version + 1


def everything_idle(shop):
    """Two lanes and a depot with units, of which nobody is the owner any more."""
    products = [*in_one_page(1), "x"]
    for product_id in products:
        shop.list(product_id, 100)
        lend(shop, product_id, 50, {1: 20, 2: 5})
    shop.clock.sleep(IDLE_SECONDS)
    return products


def until_reclaimed(shop, sweeps=5):
    for _ in range(sweeps):
        sweep(shop)
        shop.clock.sleep(60)


class Interrupt:
    """Does something at the n-th write."""

    def __init__(self, number, action):
        self.left, self.action = number, action
        self.happened = False

    def __call__(self, operation, request):
        if operation in WRITES and not self.happened:
            self.left -= 1
            if self.left < 0:
                self.happened = True
                self.action(operation, request)


def loses_the_response(shop, operation, request):
    shop.aws.answer("dynamodb", operation, request)
    raise ReadTimeoutError(endpoint_url="simulated")


def is_throttled(shop, operation, request):
    raise ServiceError("ThrottlingException", "slow down")


def interrupted_everywhere(shop, set_up, action):
    """Sweep, interrupted at the first write; sweep anew, interrupted at the second; and so on. Yields the products."""
    for number in range(100):
        shop.reset()
        products = set_up(shop)
        shop.before = interrupt = Interrupt(number, action)
        until_reclaimed(shop)
        shop.before = lambda operation, request: None
        yield from products
        if not interrupt.happened:
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("action", [loses_the_response, is_throttled])
def test_a_lost_response_or_a_throttle_loses_no_unit(shop, action):
    def interrupt(operation, request):
        action(shop, operation, request)

    checked = 0
    for product_id in interrupted_everywhere(shop, everything_idle, interrupt):
        assert where(shop, product_id) == (100, {}, set())
        checked += 1
    assert checked >= 2 * 8


def test_another_sweep_at_the_same_time_loses_no_unit(shop):
    for product_id in interrupted_everywhere(shop, everything_idle, lambda *_: sweep(shop)):
        assert where(shop, product_id) == (100, {}, set())


def test_an_owner_that_wakes_up_sells_or_learns_that_its_lane_is_empty(shop):
    ends = []

    def wakes(operation, request):
        stale.add_units("x", -1, 1)
        try:
            write(shop, stale)
            ends.append("sold")
        except TransactionCancelledError:
            ends.append("lost")

    def set_up(shop):
        nonlocal stale
        products = everything_idle(shop)
        stale = allocation(shop, "x", 1)
        return products

    stale = None
    for product_id in interrupted_everywhere(shop, set_up, wakes):
        sold = int(product_id == "x" and ends[-1:] == ["sold"])
        assert where(shop, product_id) == (100 - sold, {}, set())
    assert {"sold", "lost"} <= set(ends)


def test_a_visit_that_moved_nothing_ends_at_once(shop):
    shop.list("x", 100)
    lend(shop, "x", 50, {1: 20})
    shop.clock.sleep(LEASE_SECONDS)

    def sells(_):
        moved = allocation(shop, "x", 1)
        moved.add_units("x", -1, 1)
        write(shop, moved)

    shop.once("TransactWriteItems", sells)
    assert sweep(shop) == IdleReport()
    assert where(shop, "x") == (50, {0: 30, 1: 19}, {0, 1})
    assert shop.aws.dynamodb.tables["Allotments"].items["0/lease",].keys() == {"page"}


def test_a_lane_that_is_filled_between_the_look_and_the_write_loses_no_unit(shop):
    shop.list("a", 100)
    lend(shop, "a", 50, {1: 0})
    shop.clock.sleep(IDLE_SECONDS)

    def fills(operation, request):
        moved = allocation(shop, "a", 1)
        moved.fill(1, "a", 10)
        write(shop, moved)

    shop.before = Interrupt(1, fills)
    sweep(shop)
    assert where(shop, "a") == (100, {}, set())


def test_from_a_page_that_is_used_again_no_more_is_reclaimed(shop):
    products = sorted(in_one_page(95))
    for product_id in products:
        shop.list(product_id, 100)
        lend(shop, product_id, 50)
    shop.clock.sleep(IDLE_SECONDS)

    def sells(operation, request):
        if operation == "BatchGetItem" and "TransactWriteItems" in shop.calls:
            shop.before = lambda operation, request: None
            moved = allocation(shop, products[-1])
            moved.add_units(products[-1], -1, DEPOT)
            write(shop, moved)

    shop.before, shop.calls = sells, []
    assert sweep(shop) == IdleReport(products=90)
    assert where(shop, products[-1]) == (50, {0: 49}, {0})
    assert where(shop, products[0])[0] == 100


def test_what_a_visitor_moves_while_a_sweep_waits_for_the_depot_is_left_to_it(shop):
    products = sorted(in_one_page(95))
    for product_id in products:
        shop.list(product_id, 100)
        lend(shop, product_id, 50, {1: 0})
    shop.clock.sleep(IDLE_SECONDS)

    def fills(operation, request):
        if operation == "UpdateItem":
            shop.before = lambda operation, request: None
            moved = allocation(shop, products[-1], 1)
            moved.fill(1, products[-1], 50)
            write(shop, moved)

    shop.before = fills
    assert sweep(shop) == IdleReport(products=94)
    assert where(shop, products[-1]) == (50, {1: 50}, {0, 1})


def change(shop, table, key, **attributes):
    items = shop.aws.dynamodb.tables[table].items
    items[key,] = items[key,] | attributes


def test_what_does_not_fit_together_stays_and_is_named_and_the_rest_is_reclaimed(shop):
    other, fine = in_one_page(2)
    for product_id in (other, fine):
        shop.list(product_id, 100)
        lend(shop, product_id, 50)
    change(shop, "Products", other, createdAt={"S": "2026-01-01T00:00:00.000000+00:00"})
    shop.clock.sleep(IDLE_SECONDS)
    with pytest.raises(RepairNeededError, match=f"0/0 holds 50 of {other} unknown to its row$"):
        sweep(shop)
    assert where(shop, other) == (50, {0: 50}, {0})
    assert where(shop, fine) == (100, {}, set())


def test_a_lane_with_another_incarnation_than_the_depot_keeps_it(shop):
    other, fine = in_one_page(2)
    for product_id in (other, fine):
        shop.list(product_id, 100)
        lend(shop, product_id, 50, {1: 10})
    moved = allocation(shop, other)
    moved.add_units(other, -40, DEPOT)
    write(shop, moved)
    change(shop, "Products", other, createdAt={"S": "2026-01-01T00:00:00.000000+00:00"})
    lend(shop, other, 5)
    shop.clock.sleep(LEASE_SECONDS)
    with pytest.raises(
        RepairNeededError, match=f"1/0 and 0/0 hold different incarnations of {other}"
    ):
        sweep(shop)
    assert where(shop, other)[1] == {0: 5, 1: 10}
    assert where(shop, fine)[1] == {0: 50}


def test_a_page_that_cannot_be_read_is_named_and_the_others_are_emptied(shop):
    broken, fine = "a", next(p for p in "bcdefgh" if PageKey.of(0, p) != PageKey.of(0, "a"))
    for product_id in (broken, fine):
        shop.list(product_id, 100)
        lend(shop, product_id, 50, {1: 10})
    page = str(PageKey.of(1, broken))
    change(shop, "Allotments", page, units={"B": "AAAA"})
    shop.clock.sleep(LEASE_SECONDS)
    with pytest.raises(RepairNeededError, match=f"page {page} breaks the contract"):
        sweep(shop)
    assert where(shop, fine)[1] == {0: 50}


def test_without_permission_it_fails_and_without_time_it_leaves_the_rest(shop):
    everything_idle(shop)
    assert "OUT_OF_TIME" in sweep(shop, 0.0).unfinished
    assert "no time was left" in sweep(shop, 0.05).unfinished

    def denies(operation, request):
        raise ServiceError("AccessDeniedException", "not authorized")

    shop.before = Interrupt(0, denies)
    with pytest.raises(RepairNeededError, match="not authorized"):
        sweep(shop)
