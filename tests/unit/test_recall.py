"""Units that lie in lanes come back to whoever needs them, whatever happens at the same time, and none is lost.

The real client and engine run on the simulated AWS, in virtual time. A product's page has the same number in all lanes;
`p`, `t` and `u` have three different ones.
"""

from dataclasses import replace
from datetime import timedelta

import pytest
from botocore.exceptions import ReadTimeoutError

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.adjustment import Adjustment, Decrement
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import DEPOT, LaneLease, PageKey
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.planner import Limits, Transaction
from inventory_orders.domain.product import CatalogueEvent, NewProduct, ProductStatus
from inventory_orders.domain.record import OrderAction
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient, read
from inventory_orders.errors import (
    CorruptItemError,
    LeaseLostError,
    ProductNotFoundError,
    ThrottledError,
    Verdict,
)
from inventory_orders.lanes import recall as recall_module
from inventory_orders.lanes.depot import Depot
from inventory_orders.lanes.recall import Reclaim, recall, reclaim
from inventory_orders.lanes.source import engine_with_lanes
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.products.decrement import AtomicDecrement
from inventory_orders.products.lease import Lease
from inventory_orders.store.cancellations import TransactionCancelledError
from inventory_orders.store.lane_leases import lease_lane
from inventory_orders.store.writes import product_replace_action, transaction_actions
from testing.bench import one_attempt
from testing.shop import CALL_SECONDS, open_shop
from testing.simulated_aws import ServiceError

LARGEST_ROW = 400 * 1024
APPLIED, REJECTED, RETURNED = Verdict.APPLIED, Verdict.REJECTED, Verdict.RETURNED


def in_lanes(recalled):
    """The products that lanes other than the depot may still hold."""
    return {p for p, row in recalled.rows.items() if row is not None and row.lent_to - {DEPOT}}


class Lanes:
    """The tables, what was lent, and who sells from lanes."""

    def __init__(self, tables):
        self.tables = tables
        self.engine = tables.worker()
        self.client = self.engine.client
        self.stats = CommitStats()
        self.sold = 0

    def soon(self, seconds=20.0):
        return Deadline.after(seconds, SystemClock())

    def list_and_lend(self, product_id="p", stock=100, lanes=None, depot=10, reach=8, **more):
        """List a product and lend some of it: units by lane. By default what is left in the row is what has to be."""
        created, _ = ProductCatalogue(RetryingClient(self.tables.store)).create(
            NewProduct(product_id, stock, **more)
        )
        assert created
        self.lend(product_id, {1: 20, 2: 30} if lanes is None else lanes, depot, reach)

    def lend(self, product_id, lanes, depot=10, reach=8):
        allocation = self.allocation(product_id, {DEPOT})
        allocation.lend(product_id, depot + sum(lanes.values()), reach)
        self.write(allocation)
        for start in range(0, len(lanes), 99):
            some = list(lanes)[start : start + 99]
            allocation = self.allocation(product_id, {DEPOT, *some})
            for lane in some:
                allocation.fill(lane, product_id, lanes[lane])
            self.write(allocation)

    def fill(self, lane, product_id="p", units=1):
        """Somebody fills a lane from the depot."""
        self.write(self.filled(lane, product_id, units))

    def filled(self, lane, product_id="p", units=1):
        allocation = self.allocation(product_id, {DEPOT, lane})
        allocation.fill(lane, product_id, units)
        return allocation

    def allocation(self, product_id, lanes):
        keys = [PageKey.of(lane, product_id) for lane in sorted(lanes)]
        snapshot = read(self.client, [product_id, *keys], self.soon(), CommitStats())
        return Allocation(snapshot.products, snapshot.pages.values())

    def write(self, allocation):
        updates, pages, _ = allocation.drain()
        transaction = Transaction(updates, (), pages)
        request = transaction_actions(transaction, self.client.clock.now())
        self.client.write(request, self.soon(), CommitStats())

    def sell(self, lane, product_id="p", units=1):
        """Somebody sells from a lane, if it has so much."""
        allocation = self.allocation(product_id, {lane})
        if allocation.units(lane, product_id) >= units:
            allocation.add_units(product_id, -units, lane)
            self.write(allocation)
            self.sold += units

    def row(self, product_id="p"):
        return self.client.store.get_product(product_id)

    def in_lanes(self, product_id="p"):
        """Units by lane, of lanes that have any."""
        lanes = {
            int(name.split("/")[0])
            for (name,) in self.tables.aws.dynamodb.tables["Allotments"].items
        }
        allocation = self.allocation(product_id, lanes)
        return {lane: units for lane in lanes if (units := allocation.units(lane, product_id))}

    def total(self, product_id="p"):
        """All units: in the row, in lanes, and sold."""
        return (
            self.row(product_id).stock_count + sum(self.in_lanes(product_id).values()) + self.sold
        )

    def recall(self, *product_ids, reclaims=False, lanes=range(1, 9)):
        self.tables.calls.clear()
        to_row = Reclaim() if reclaims else None
        return recall(Depot(self.client), product_ids, self.soon(), self.stats, lanes, to_row)

    def reclaim(self, *product_ids, seconds=20.0):
        rows = [self.row(product_id) for product_id in product_ids]
        self.tables.calls.clear()
        return reclaim(Depot(self.client), rows, self.soon(seconds), self.stats)

    def before_each(self, operation, action):
        """Do something before each call of an operation, but for the calls of the action itself."""

        def before(called, request):
            if called == operation:
                self.tables.before = lambda *_: None
                action(request)
                self.tables.before = before

        self.tables.before = before

    def lose_response(self, number):
        """Lose the response to the call of this number, from 0."""
        left = number

        def before(called, request):
            nonlocal left
            left -= 1
            if left == -1:
                self.tables.aws.answer("dynamodb", called, request)
                raise ReadTimeoutError(endpoint_url="https://example.com")

        self.tables.before = before

    def requests(self, operation):
        """Collects the requests of an operation."""
        found = []
        self.tables.before = lambda called, request: (
            found.append(request) if called == operation else None
        )
        return found

    def change(self, table, key, **attributes):
        """Somebody writes attributes of an item past all rules; None removes one."""
        items = self.tables.aws.dynamodb.tables[table].items
        changed = items[key,] | attributes
        items[key,] = {name: value for name, value in changed.items() if value is not None}

    def lease(self, product_id="p", seconds=30.0, **more):
        return Lease.acquire(
            RetryingClient(self.tables.store, self.client.policy),
            product_id,
            seconds,
            self.soon(),
            **more,
        )

    @property
    def products(self):
        return ProductCatalogue(RetryingClient(self.tables.store, self.client.policy))


@pytest.fixture
def lanes():
    with open_shop() as tables:
        yield Lanes(tables)


def test_one_read_and_one_transaction_recall_products_from_all_lanes(lanes):
    for product_id in ("p", "t", "u"):
        lanes.list_and_lend(product_id)
    recalled = lanes.recall("p", "t", "u")
    assert lanes.tables.calls == ["BatchGetItem", "TransactWriteItems"]
    for product_id in ("p", "t", "u"):
        assert lanes.in_lanes(product_id) == {DEPOT: 60}
        assert lanes.row(product_id).lent_to == {DEPOT}
        assert lanes.row(product_id).is_same_version(recalled.rows[product_id])
    assert in_lanes(recalled) == set()


def test_after_a_recall_the_depot_fills_no_lane_with_the_product(lanes):
    lanes.list_and_lend()
    lanes.recall("p")
    with pytest.raises(ValueError, match="lane 1 may not hold p"):
        lanes.allocation("p", {DEPOT, 1}).fill(1, "p", 1)


def test_what_is_reclaimed_is_in_the_row_alone(lanes):
    lanes.list_and_lend()
    recalled = lanes.recall("p", reclaims=True)
    assert lanes.tables.calls == ["BatchGetItem", "TransactWriteItems"]
    assert (recalled.lent, lanes.in_lanes()) == ({}, {})
    assert (lanes.row().stock_count, lanes.row().lent_to) == (100, frozenset())


def test_a_recall_of_what_only_the_depot_holds_writes_nothing(lanes):
    lanes.list_and_lend(lanes={}, reach=0)
    assert in_lanes(lanes.recall("p")) == set()
    assert lanes.tables.calls == ["BatchGetItem"]


@pytest.mark.parametrize("reclaims", [False, True])
def test_a_lane_that_sells_in_between_loses_its_units_in_a_later_attempt(lanes, reclaims):
    lanes.list_and_lend()
    lanes.tables.once("TransactWriteItems", lambda _: lanes.sell(1))
    recalled = lanes.recall("p", reclaims=reclaims)
    # The second attempt leaves the busy lane out, the third has it again. Neither reads.
    assert lanes.tables.calls.count("BatchGetItem") == 2
    assert in_lanes(recalled) == set()
    assert (lanes.total(), lanes.sold) == (100, 1)
    assert lanes.in_lanes() == ({} if reclaims else {DEPOT: 59})


def test_the_last_attempt_leaves_out_only_what_was_busy_in_the_one_before(lanes):
    lanes.list_and_lend()
    busy, idle = iter([1, 2, 2]), 8
    lanes.before_each("TransactWriteItems", lambda _: lanes.sell(next(busy, idle)))
    recalled = lanes.recall("p")
    assert recalled.rows["p"].lent_to == {DEPOT, 2}
    assert lanes.total() == 100


def test_a_lane_that_never_rests_keeps_its_units_and_stays_named(lanes):
    lanes.list_and_lend()
    lanes.before_each("TransactWriteItems", lambda _: lanes.sell(2))
    recalled = lanes.recall("p", reclaims=True)
    lanes.tables.before = lambda *_: None
    assert in_lanes(recalled) == {"p"}
    assert lanes.row().lent_to == {DEPOT, 2}
    assert lanes.in_lanes() == {DEPOT: 30, 2: 30 - lanes.sold}
    assert lanes.total() == 100


def test_more_lanes_than_a_transaction_holds_are_recalled_step_by_step(lanes):
    lanes.list_and_lend(stock=200, lanes=dict.fromkeys(range(1, 121), 1), reach=120)
    written = lanes.requests("TransactWriteItems")
    lanes.recall("p", reclaims=True, lanes=range(1, 121))
    assert [len(request["TransactItems"]) for request in written] == [92, 32]
    assert (lanes.row().stock_count, lanes.row().lent_to, lanes.in_lanes()) == (
        200,
        frozenset(),
        {},
    )


def test_between_the_steps_of_a_recall_the_lanes_that_are_left_are_named(lanes):
    lanes.list_and_lend(stock=200, lanes=dict.fromkeys(range(1, 121), 1), reach=120)
    seen = []
    lanes.before_each(
        "TransactWriteItems", lambda _: seen.append((lanes.row().lent_to, set(lanes.in_lanes())))
    )
    lanes.recall("p", lanes=range(1, 121))
    left = {DEPOT, *range(91, 121)}
    assert seen == [(set(range(121)), set(range(121))), (left, left)]
    lanes.tables.before = lambda *_: None
    assert (lanes.row().lent_to, lanes.in_lanes()) == ({DEPOT}, {DEPOT: 130})


def test_more_products_than_a_transaction_holds_are_reclaimed_in_several(lanes, monkeypatch):
    ids = [name for n in range(99) if PageKey.of(DEPOT, name := f"p{n}").number == 0][:11]
    for product_id in ids:
        lanes.list_and_lend(product_id, stock=10, lanes={}, depot=5, reach=1)
    monkeypatch.setattr(recall_module, "Limits", lambda: Limits(actions=10))
    written = lanes.requests("TransactWriteItems")
    recalled = lanes.recall(*ids, reclaims=True, lanes=[1])
    assert [len(request["TransactItems"]) for request in written] == [10, 5]
    assert recalled.lent == {}
    assert {lanes.row(product_id).stock_count for product_id in ids} == {10}


def test_pages_too_large_for_one_transaction_are_recalled_in_several(lanes, monkeypatch):
    lanes.list_and_lend(lanes=dict.fromkeys(range(1, 7), 5))
    of_page = lanes.client.store.read([PageKey.of(1, "p")]).pages[PageKey.of(1, "p")].size
    # Two pages of lanes and the depot's.
    monkeypatch.setattr(recall_module, "Limits", lambda: Limits(size=5 * of_page))
    written = lanes.requests("TransactWriteItems")
    lanes.recall("p", lanes=range(1, 9))
    assert len(written) > 1
    assert lanes.in_lanes() == {DEPOT: 40}
    assert lanes.row().lent_to == {DEPOT}


def test_rows_too_large_for_one_transaction_are_reclaimed_in_several(lanes):
    ids = [name for n in range(99) if PageKey.of(DEPOT, name := f"p{n}").number == 0][:12]
    for product_id in ids:
        lanes.list_and_lend(product_id, lanes={1: 5})
        lanes.change("Products", product_id, others={"S": "x" * 390_000})
    assert lanes.recall(*ids, reclaims=True, lanes=[1]).lent == {}
    assert {lanes.row(product_id).stock_count for product_id in ids} == {100}


def test_a_product_that_is_gone_or_leased_by_another_is_left_alone(lanes):
    lanes.list_and_lend()
    lanes.list_and_lend("t")
    token = lanes.row("t").lent_to
    lanes.change(
        "Products",
        "t",
        lockedBy={"S": "count-1"},
        lockTime={"N": "1900000000"},
        lockVersion={"N": "2"},
    )
    recalled = lanes.recall("p", "t", "unknown", reclaims=True)
    assert (recalled.rows["unknown"], set(recalled.lent), in_lanes(recalled)) == (
        None,
        {"t"},
        {"t"},
    )
    assert lanes.row("t").lent_to == token
    assert lanes.in_lanes("t") == {DEPOT: 10, 1: 20, 2: 30}
    assert lanes.in_lanes("p") == {}


@pytest.mark.parametrize("lane", [DEPOT, 1])
def test_a_corrupt_page_is_named_and_the_other_products_are_reclaimed(lanes, lane):
    lanes.list_and_lend()
    lanes.list_and_lend("t")
    sound = lanes.tables.aws.dynamodb.tables["Allotments"].items[str(PageKey.of(lane, "p")),]
    lanes.change("Allotments", str(PageKey.of(lane, "p")), units={"B": "bm90IGEgcGFnZQ=="})
    with pytest.raises(CorruptItemError, match=f"page {PageKey.of(lane, 'p')} breaks") as raised:
        lanes.recall("p", "t", reclaims=True)
    assert raised.value.code == "CORRUPT_PAGE"
    assert (lanes.in_lanes("t"), lanes.row("t").stock_count) == ({}, 100)
    lanes.change("Allotments", str(PageKey.of(lane, "p")), **sound)
    assert lanes.total() == 100
    assert lanes.recall("p", reclaims=True).lent == {}


def test_units_of_an_incarnation_that_is_gone_are_named_and_left_where_they_are(lanes):
    lanes.list_and_lend()
    lanes.list_and_lend("r")
    assert PageKey.of(DEPOT, "p") == PageKey.of(DEPOT, "r")
    lanes.change("Products", "p", createdAt={"S": "2026-01-01T00:00:00.000000+00:00"})
    with pytest.raises(CorruptItemError, match="of the incarnation of p that was created at 2027"):
        lanes.recall("p", "r", reclaims=True)
    assert lanes.in_lanes() == {DEPOT: 10, 1: 20, 2: 30}
    assert (lanes.in_lanes("r"), lanes.row("r").stock_count) == ({}, 100)


def test_a_row_that_is_only_older_than_the_pages_is_read_again(lanes):
    """It was listed again between the two reads."""
    lanes.list_and_lend()
    former = lanes.row().created_at

    def list_again(_):
        assert lanes.products.delist("p", former, lanes.soon())
        lanes.list_and_lend(stock=50, lanes={1: 5}, depot=5)

    lanes.tables.once(
        "BatchGetItem", lambda _: lanes.tables.once("BatchGetItem", list_again) and None
    )
    recalled = lanes.recall("p", reclaims=True, lanes=())
    assert recalled.lent == {}
    assert (lanes.row().stock_count, lanes.in_lanes()) == (50, {})


@pytest.mark.parametrize(
    "broken", [{"lowStockThreshold": {"N": "60"}}, {"status": {"S": "DISCONTINUED"}}]
)
def test_a_row_that_lent_products_may_not_have_holds_up_no_other_and_can_reclaim(lanes, broken):
    """Somebody wrote it past all rules."""
    lanes.list_and_lend()
    lanes.list_and_lend("r")
    lanes.change("Products", "p", **broken)
    with pytest.raises(
        CorruptItemError, match="product p is in lanes, with a row that is"
    ) as raised:
        lanes.recall("p", "r")
    assert raised.value.code == "CORRUPT_PRODUCT"
    assert (lanes.row("p").lent_to, lanes.row("r").lent_to) == (set(range(9)), {DEPOT})
    assert lanes.recall("p", reclaims=True).lent == {}
    assert lanes.row().stock_count == 100


def test_a_row_that_dynamodb_does_not_take_is_named(lanes):
    """A write adds `lastUpdatedAt` to a row that has none and no room for it."""
    lanes.list_and_lend()
    lanes.change("Products", "p", lastUpdatedAt=None, others={"S": ""})
    lanes.change("Products", "p", others={"S": "x" * (LARGEST_ROW - lanes.tables.size("p"))})
    with pytest.raises(CorruptItemError, match="DynamoDB does not take p") as raised:
        lanes.recall("p")
    assert raised.value.code == "CORRUPT_PRODUCT"
    assert lanes.total() == 100


# ---------------------------------------------------------------- rivals, and lost responses


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("is_busy", [False, True])
def test_reclaiming_survives_the_loss_of_any_response(lanes, number, is_busy):
    lanes.list_and_lend()
    row = lanes.row()
    lanes.lose_response(number)
    if is_busy:
        lose, sales = lanes.tables.before, iter([1, 2])

        def before(called, request):
            if called == "TransactWriteItems" and (lane := next(sales, None)):
                lanes.tables.before = lambda *_: None
                lanes.sell(lane)
                lanes.tables.before = before
            lose(called, request)

        lanes.tables.before = before
    reclaim(Depot(lanes.client), [row], lanes.soon(), lanes.stats)
    lanes.tables.before = lambda *_: None
    assert (lanes.row().lent_to, lanes.in_lanes()) == (frozenset(), {})
    assert (lanes.total(), lanes.sold) == (100, 2 * is_busy)


def test_rivals_in_every_attempt_are_contention(lanes):
    lanes.list_and_lend()
    reasons = {"CancellationReasons": [{"Code": "None"}, {"Code": "TransactionConflict"}]}

    def conflict(called, request):
        if called == "TransactWriteItems":
            raise ServiceError("TransactionCanceledException", extra=reasons)

    lanes.tables.before = conflict
    with pytest.raises(ThrottledError, match="CONTENTION"):
        lanes.reclaim("p", seconds=0.5)
    lanes.tables.before = lambda *_: None
    assert lanes.in_lanes() == {DEPOT: 10, 1: 20, 2: 30}


def test_of_two_recalls_each_unit_arrives_once(lanes):
    lanes.list_and_lend()
    lanes.tables.once("TransactWriteItems", lambda _: lanes.recall("p", reclaims=True) and None)
    recalled = lanes.recall("p")
    assert recalled.rows["p"].is_same_version(lanes.row())
    assert (lanes.row().stock_count, lanes.in_lanes()) == (100, {})


def test_a_fill_in_between_loses_a_recall_and_the_next_attempt_brings_its_units(lanes):
    lanes.list_and_lend()
    lanes.tables.once("TransactWriteItems", lambda _: lanes.fill(3))
    assert in_lanes(lanes.recall("p")) == set()
    assert (lanes.in_lanes(), lanes.row().lent_to) == ({DEPOT: 60}, {DEPOT})


@pytest.mark.parametrize("reclaims", [False, True])
def test_a_fill_that_was_planned_before_a_recall_is_lost(lanes, reclaims):
    lanes.list_and_lend()
    fill = lanes.filled(3)
    lanes.recall("p", reclaims=reclaims)
    with pytest.raises(TransactionCancelledError):
        lanes.write(fill)
    assert 3 not in lanes.in_lanes()
    assert lanes.total() == 100


def test_a_lane_that_wakes_up_after_a_recall_cannot_sell_what_it_held(lanes):
    lanes.list_and_lend()
    woken = lanes.allocation("p", {1})
    woken.add_units("p", -1, 1)
    lanes.recall("p", reclaims=True)
    with pytest.raises(TransactionCancelledError):
        lanes.write(woken)
    assert lanes.row().stock_count == 100


def test_a_lane_without_the_product_is_checked_as_well(lanes):
    """It may get some between the read and the write."""
    lanes.list_and_lend(lanes={1: 20})
    filled = lanes.filled(2)
    lanes.tables.once("TransactWriteItems", lambda _: lanes.write(filled))
    lanes.recall("p", reclaims=True)
    assert (lanes.row().stock_count, lanes.in_lanes()) == (100, {})


# ---------------------------------------------------------------- the line at the depot


def test_reclaiming_takes_three_requests_of_which_the_last_releases_the_depot(lanes):
    lanes.list_and_lend()
    lanes.reclaim("p")
    assert lanes.tables.calls == ["UpdateItem", "BatchGetItem", "TransactWriteItems"]
    lease = lanes.tables.aws.dynamodb.tables["Allotments"].items["0/lease",]
    assert set(lease) == {"page"}
    assert (lanes.row().stock_count, lanes.in_lanes()) == (100, {})


def test_reclaiming_what_is_not_lent_sends_nothing(lanes):
    lanes.tables.list("p")
    lanes.reclaim("p")
    assert lanes.tables.calls == []


def test_what_is_reclaimed_already_releases_the_depot_at_once(lanes):
    lanes.list_and_lend()
    row = lanes.row()
    lanes.recall("p", reclaims=True)
    lanes.tables.calls.clear()
    reclaim(Depot(lanes.client), [row], lanes.soon(), lanes.stats)
    assert lanes.tables.calls == ["UpdateItem", "BatchGetItem", "UpdateItem"]


def test_reclaiming_waits_for_the_depot_and_gives_up_in_time(lanes):
    lanes.list_and_lend()
    store, clock = lanes.client.store, lanes.client.clock

    def visit_for_ever(_):
        lease_lane(
            store, LaneLease(DEPOT, "other", clock.now().timestamp() + 2.0), clock.now(), "other"
        )

    lanes.before_each("UpdateItem", visit_for_ever)
    began = clock.monotonic()
    with pytest.raises(ThrottledError, match="CONTENTION: no time was left to wait for the depot"):
        lanes.reclaim("p", seconds=0.5)
    assert clock.monotonic() - began < 0.5 + 3 * CALL_SECONDS
    lanes.tables.before = lambda *_: None
    assert lanes.total() == 100


def test_a_lane_that_never_rests_is_waited_for_until_the_deadline(lanes):
    lanes.list_and_lend(stock=2000, lanes={1: 20, 2: 1500})
    lanes.before_each("TransactWriteItems", lambda _: lanes.sell(2))
    with pytest.raises(ThrottledError, match="CONTENTION: no time was left to reclaim p"):
        lanes.reclaim("p", seconds=0.5)
    lanes.tables.before = lambda *_: None
    assert lanes.row().lent_to == {DEPOT, 2}
    assert lanes.total() == 2000


def test_a_visitor_whose_lease_passed_on_reclaims_all_the_same(lanes):
    lanes.list_and_lend()
    store, clock = lanes.client.store, lanes.client.clock

    def take_over(_):
        clock.sleep(3.0)
        lease_lane(store, LaneLease(DEPOT, "next", clock.now().timestamp() + 2.0), clock.now())

    row = lanes.row()
    lanes.tables.once("TransactWriteItems", take_over)
    reclaim(Depot(lanes.client), [row], lanes.soon(), lanes.stats)
    assert (lanes.row().stock_count, lanes.in_lanes()) == (100, {})
    lease = lanes.tables.aws.dynamodb.tables["Allotments"].items["0/lease",]
    assert lease["lockedBy"] == {"S": "next"}


# ---------------------------------------------------------------- the engine, where rows are sold from


@pytest.mark.parametrize(
    ("quantity", "status", "left"),
    [(39, APPLIED, None), (40, APPLIED, 60), (100, APPLIED, 0), (101, REJECTED, 100)],
)
def test_the_row_sells_what_it_can_spare_and_then_all_there_is(lanes, quantity, status, left):
    """100 units, of which 60 lie in lanes; the row must keep one of its 40."""
    lanes.list_and_lend()
    report = lanes.tables.commit(lanes.engine, Order("o", "u", {"p": quantity}))
    assert [outcome.verdict for outcome in report.outcomes] == [status]
    if left is None:
        assert (lanes.row().stock_count, lanes.row().status) == (1, ProductStatus.ACTIVE)
        assert sum(lanes.in_lanes().values()) == 60
    else:
        assert (lanes.row().stock_count, lanes.in_lanes()) == (left, {})


def test_what_a_lane_sells_before_an_order_is_rejected_is_not_promised(lanes):
    lanes.list_and_lend()
    lanes.tables.once("TransactWriteItems", lambda _: lanes.sell(1))
    report = lanes.tables.commit(lanes.engine, Order("o", "u", {"p": 100}))
    (outcome,) = report.outcomes
    assert (outcome.verdict, outcome.rejection.shortages[0].available) == (REJECTED, 99)
    assert lanes.total() == 100


def fifo(number, product_id="p", quantity=1):
    return Order(f"f{number}", "u", {product_id: quantity}, group="g")


def outcomes(report):
    return [(outcome.verdict, outcome.cause) for outcome in report.outcomes]


def test_a_group_is_served_in_its_order_when_its_units_lie_in_lanes(lanes):
    lanes.list_and_lend()
    orders = [fifo(1, quantity=30), fifo(2, quantity=71), fifo(3, quantity=70)]
    report = lanes.tables.commit(lanes.engine, *orders)
    assert outcomes(report) == [(APPLIED, ""), (REJECTED, "INSUFFICIENT_STOCK"), (APPLIED, "")]
    assert (lanes.row().stock_count, lanes.in_lanes()) == (0, {})


def test_a_batch_sells_everything_else_before_it_waits_for_the_depot(lanes):
    lanes.list_and_lend()
    lanes.tables.list("t")
    lanes.tables.calls.clear()
    report = lanes.tables.commit(
        lanes.engine, Order("o1", "u", {"p": 50}), Order("o2", "u", {"t": 1})
    )
    assert outcomes(report) == [(APPLIED, "")] * 2
    # Of the other product; then the line at the depot, which begins with an update.
    assert lanes.tables.calls.index("TransactWriteItems") < lanes.tables.calls.index("UpdateItem")


def test_what_cannot_be_reclaimed_in_time_is_returned_and_the_rest_is_served(lanes):
    lanes.list_and_lend()
    lanes.tables.list("t")
    clock = lanes.client.clock
    lease_lane(
        lanes.client.store, LaneLease(DEPOT, "other", clock.now().timestamp() + 60.0), clock.now()
    )
    orders = [Order("o1", "u", {"p": 50}), Order("o2", "u", {"t": 1}), Order("o3", "u", {"p": 1})]
    report = lanes.tables.commit(lanes.engine, *orders, seconds=0.5)
    assert outcomes(report) == [(RETURNED, "CONTENTION"), (APPLIED, ""), (APPLIED, "")]
    assert lanes.in_lanes() == {DEPOT: 10, 1: 20, 2: 30}


def test_a_corrupt_page_returns_only_the_orders_that_need_it(lanes):
    lanes.list_and_lend()
    lanes.list_and_lend("t")
    lanes.change("Allotments", str(PageKey.of(1, "p")), units={"B": "bm90IGEgcGFnZQ=="})
    orders = [Order("o1", "u", {"p": 50}), Order("o2", "u", {"t": 50}), Order("o3", "u", {"p": 1})]
    report = lanes.tables.commit(lanes.engine, *orders)
    assert outcomes(report) == [(RETURNED, "CORRUPT_PAGE"), (APPLIED, ""), (APPLIED, "")]
    assert "page 1/1 breaks the contract" in report.outcomes[0].detail


def test_a_denied_recall_returns_everything_loudly(lanes):
    lanes.list_and_lend()

    def deny(called, request):
        if called == "UpdateItem":
            raise ServiceError("AccessDeniedException", "not authorized")

    lanes.tables.before = deny
    report = lanes.tables.commit(lanes.engine, Order("o", "u", {"p": 50}))
    assert report.failure is not None
    assert outcomes(report) == [(RETURNED, "AccessDeniedException")]


def test_a_product_that_is_leased_before_it_is_reclaimed_makes_its_order_wait(lanes):
    lanes.list_and_lend()
    until = {"N": str(lanes.client.clock.now().timestamp() + 600.0)}
    locked = {"lockedBy": {"S": "count-1"}, "lockTime": until, "_version": {"N": "9"}}
    lanes.tables.once("UpdateItem", lambda _: lanes.change("Products", "p", **locked))
    report = lanes.tables.commit(lanes.engine, Order("o", "u", {"p": 50}))
    assert outcomes(report) == [(RETURNED, "LEASED")]


def test_nothing_is_reclaimed_on_the_word_of_a_cache(lanes):
    """A row that only this process wrote for a while is not read again, until something rests on it."""
    lanes.list_and_lend()
    for number in range(3):
        lanes.tables.commit(lanes.engine, Order(f"o{number}", "u", {"p": 1}))
    lanes.recall("p", reclaims=True)
    lanes.tables.calls.clear()
    report = lanes.tables.commit(lanes.engine, Order("o", "u", {"p": 90}))
    assert outcomes(report) == [(APPLIED, "")]
    assert "UpdateItem" not in lanes.tables.calls


def test_a_process_that_reclaims_what_its_own_lane_holds_knows_what_is_left_there(lanes):
    lanes.list_and_lend(lanes={1: 20})
    lanes.list_and_lend("r", lanes={1: 20})
    engine = engine_with_lanes(lanes.client.store, lanes.client.policy, SystemClock(), lanes=1)
    engine.source.lane.take(lanes.soon(), CommitStats())
    changes = [Adjustment("p", "a", -90, "CORRECTION"), Order("o", "u", {"r": 1})]
    assert outcomes(lanes.tables.commit(engine, *changes)) == [(APPLIED, "")] * 2
    lanes.tables.calls.clear()
    assert outcomes(lanes.tables.commit(engine, Order("q", "u", {"r": 1}))) == [(APPLIED, "")]
    assert lanes.tables.calls == ["TransactWriteItems"]


@pytest.mark.parametrize(
    ("delta", "status", "left"), [(-39, APPLIED, 1), (-40, APPLIED, 60), (-101, REJECTED, 100)]
)
def test_a_negative_adjustment_takes_what_the_row_can_spare_or_all_there_is(
    lanes, delta, status, left
):
    lanes.list_and_lend()
    report = lanes.tables.commit(lanes.engine, Adjustment("p", "a", delta, "CORRECTION"))
    cause = "BELOW_FLOOR" if status is REJECTED else ""
    assert outcomes(report) == [(status, cause)]
    assert lanes.row().stock_count == left
    assert (not lanes.row().lent_to) == (left != 1)


def test_a_refused_loss_of_a_busy_lent_product_is_decided_by_one_visit(lanes):
    lanes.list_and_lend()

    def before(called, request):
        if called == "UpdateItem":
            version = str(int(lanes.tables.row("p")["_version"]["N"]) + 1)
            lanes.change("Products", "p", _version={"N": version})

    lanes.tables.before = before
    lanes.tables.calls.clear()
    report = lanes.tables.commit(lanes.engine, Adjustment("p", "a", -101, "CORRECTION"))
    assert outcomes(report) == [(REJECTED, "BELOW_FLOOR")]
    assert lanes.tables.calls.count("UpdateItem") == 1
    assert (lanes.row().stock_count, lanes.in_lanes()) == (100, {})


@pytest.mark.parametrize("delta", [1, -1])
@pytest.mark.parametrize(
    "broken", [{"lowStockThreshold": {"N": "60"}}, {"status": {"S": "DISCONTINUED"}}]
)
def test_a_row_that_lent_products_may_not_have_reclaims_before_it_changes(lanes, broken, delta):
    """Somebody wrote it past all rules. That returns neither its own changes nor those of others for ever."""
    lanes.list_and_lend()
    lanes.list_and_lend("r")
    lanes.change("Products", "p", **broken)
    changes = [Adjustment(product_id, "a", delta, "CORRECTION") for product_id in ("p", "r")]
    report = lanes.tables.commit(lanes.engine, *changes)
    assert outcomes(report) == [(APPLIED, "")] * 2
    assert (lanes.row().stock_count, lanes.row().lent_to) == (100 + delta, set())
    assert lanes.row("r").stock_count == 40 + delta


def test_who_has_no_time_to_wait_reclaims_nothing(lanes):
    """Not even where somebody wrote a row past all rules: the order goes on to those who wait."""
    lanes.list_and_lend()
    lanes.change("Products", "p", lowStockThreshold={"N": "60"})
    hasty = one_attempt(lanes.tables.store)
    before = len(lanes.tables.calls)
    report = lanes.tables.commit(hasty, Order("o", "u", {"p": 1}))
    assert outcomes(report) == [(Verdict.RETURNED, "CONTENTION")]
    assert lanes.tables.calls[before:] == ["BatchGetItem"]


def test_receipts_and_cancellations_go_to_the_row_and_recall_nothing(lanes):
    lanes.list_and_lend()
    lanes.tables.commit(lanes.engine, Order("o", "u", {"p": 5}))
    allotted = dict(lanes.tables.aws.dynamodb.tables["Allotments"].items)
    report = lanes.tables.commit(
        lanes.engine, Adjustment("p", "a", 7, "RECEIPT"), OrderCommand("o", OrderAction.CANCEL)
    )
    assert outcomes(report) == [(APPLIED, "")] * 2
    assert (lanes.row().stock_count, lanes.row().lent_to) == (47, set(range(9)))
    assert lanes.tables.aws.dynamodb.tables["Allotments"].items == allotted


@pytest.mark.parametrize("number", range(6))
def test_an_order_that_needs_what_lies_in_lanes_survives_the_loss_of_any_response(lanes, number):
    lanes.list_and_lend()
    lanes.lose_response(number)
    report = lanes.tables.commit(lanes.engine, Order("o", "u", {"p": 90}))
    lanes.tables.before = lambda *_: None
    assert outcomes(report) == [(APPLIED, "")]
    assert (lanes.row().stock_count, lanes.in_lanes()) == (10, {})


# ---------------------------------------------------------------- operators


def threshold(units):
    return lambda product: replace(product, low_stock_threshold=units)


CHANGES = {
    "discontinue": lambda p: replace(p, status=ProductStatus.DISCONTINUED),
    "a threshold above the row": threshold(99),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_that_lent_products_may_not_have_is_written_with_their_units(lanes, change):
    """A lane that sells fast makes it lose, and cannot be filled between the units and the change."""
    lanes.list_and_lend()
    sales = iter([1, 2])

    def sell_and_refill(_):
        if lane := next(sales, None):
            lanes.sell(lane)
            lanes.fill(lane)

    lanes.before_each("TransactWriteItems", sell_and_refill)
    updated = lanes.products.update_with_retry("p", change, lanes.soon())
    assert (updated.after.stock_count, updated.after.lent_to) == (98, frozenset())
    assert lanes.row().is_same_version(updated.after)
    assert lanes.row().status is not ProductStatus.ACTIVE
    assert (lanes.in_lanes(), lanes.total()) == ({}, 100)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_such_a_change_is_one_transaction_of_the_depots_visit(lanes, change):
    lanes.list_and_lend()
    before = lanes.row()
    lanes.tables.calls.clear()
    lanes.products.update_with_retry("p", change, lanes.soon())
    assert lanes.tables.calls == ["GetItem", "UpdateItem", "BatchGetItem", "TransactWriteItems"]
    assert lanes.row().version == before.version + 1


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_such_a_change_is_made_once_although_its_response_is_lost(lanes, change, is_applied):
    lanes.list_and_lend()
    before, calls = lanes.row(), []

    def count(product):
        calls.append(product)
        return replace(change(product), other={"changes": len(calls)})

    def lose(request):
        if is_applied:
            lanes.tables.aws.answer("dynamodb", "TransactWriteItems", request)
        raise ReadTimeoutError(endpoint_url="https://example.com")

    lanes.tables.once("TransactWriteItems", lose)
    updated = lanes.products.update_with_retry("p", count, lanes.soon())
    assert lanes.row().is_same_version(updated.after)
    assert (lanes.row().version, lanes.row().stock_count) == (before.version + 1, 100)
    assert lanes.row().other == updated.after.other
    assert (lanes.row().lent_to, lanes.in_lanes()) == (frozenset(), {})


@pytest.mark.parametrize(
    "change",
    [
        threshold(39),
        lambda p: replace(p, name="Tea", price=3),
        lambda p: replace(p, backorder_limit=5),
    ],
    ids=["a threshold below the row", "details", "backorders"],
)
def test_a_change_that_lent_products_may_have_recalls_nothing(lanes, change):
    lanes.list_and_lend()
    lanes.products.update_with_retry("p", change, lanes.soon())
    assert lanes.row().lent_to == set(range(9))
    assert (lanes.row().status, lanes.in_lanes()) == ("ACTIVE", {DEPOT: 10, 1: 20, 2: 30})


def test_catalogue_events_and_prices_leave_lanes_alone(lanes):
    lanes.list_and_lend()
    event = CatalogueEvent("p", "e1", "2026-02-01T00:00:00.000000+00:00", {"name": "Tea"})
    assert lanes.products.change_details(event)[0]
    assert lanes.products.change_price("p", 3, timedelta(0)).price == 3
    assert lanes.row().lent_to == set(range(9))


def test_lanes_are_nothing_for_an_update_function_to_change(lanes):
    lanes.list_and_lend()
    with pytest.raises(ValueError, match="lent_to of a product is not for an update function"):
        lanes.products.update_with_retry(
            "p", lambda p: replace(p, lent_to=frozenset()), lanes.soon()
        )


def test_no_row_is_written_that_lent_products_may_not_have(lanes):
    lanes.list_and_lend()
    row, now = lanes.row(), lanes.client.clock.now()
    for after in (replace(row, status=ProductStatus.DISCONTINUED), replace(row, stock_count=0)):
        with pytest.raises(ValueError, match="p is in lanes"):
            product_replace_action(row, after, now)


def closings(lanes):
    """What was booked for a product's opening and closing."""
    booked = lanes.tables.aws.dynamodb.tables["StockAdjustments"].items.values()
    return sorted(int(item["delta"]["N"]) for item in booked)


def test_delisting_takes_all_units_along_and_closes_the_books(lanes):
    lanes.list_and_lend()
    row = lanes.row()
    lanes.tables.once("TransactWriteItems", lambda _: lanes.sell(2))
    assert lanes.products.delist("p", row.created_at, lanes.soon())
    assert (lanes.row(), lanes.in_lanes(), closings(lanes)) == (None, {}, [-99, 100])


@pytest.mark.parametrize("is_applied", [True, False])
def test_delisting_what_is_lent_is_done_once_although_its_response_is_lost(lanes, is_applied):
    lanes.list_and_lend()
    row = lanes.row()

    def lose(request):
        if is_applied:
            lanes.tables.aws.answer("dynamodb", "TransactWriteItems", request)
        raise ReadTimeoutError(endpoint_url="https://example.com")

    lanes.tables.calls.clear()
    lanes.tables.once("TransactWriteItems", lose)
    assert lanes.products.delist("p", row.created_at, lanes.soon())
    assert (lanes.row(), lanes.in_lanes(), closings(lanes)) == (None, {}, [-100, 100])
    assert lanes.tables.calls.count("TransactWriteItems") == 2


@pytest.mark.parametrize("operation", ["UpdateItem", "BatchGetItem", "TransactWriteItems"])
@pytest.mark.parametrize("is_lent", [True, False])
def test_operators_changes_of_what_is_listed_again_meanwhile_touch_nothing(
    lanes, operation, is_lent
):
    lanes.list_and_lend()
    former = lanes.row().created_at

    def list_again(_):
        assert lanes.products.delist("p", lanes.row().created_at, lanes.soon())
        lanes.tables.list("p", 50)
        if is_lent:
            lanes.lend("p", {1: 5})

    lanes.tables.once(operation, list_again)
    assert not lanes.products.delist("p", former, lanes.soon())
    lanes.tables.once(operation, list_again if is_lent else lambda _: None)
    if is_lent:
        with pytest.raises(ProductNotFoundError):
            lanes.products.update_with_retry("p", threshold(99), lanes.soon())
    assert (lanes.row().low_stock_threshold, lanes.total()) == (0, 50)


def test_what_is_listed_again_gets_no_units_of_its_former_life(lanes):
    lanes.list_and_lend()
    stale = [lanes.filled(3), lanes.allocation("p", {DEPOT})]
    stale[1].lend("p", 5, 8)
    assert lanes.products.delist("p", lanes.row().created_at, lanes.soon())
    lanes.tables.list("p", 7)
    for allocation in stale:
        with pytest.raises(TransactionCancelledError):
            lanes.write(allocation)
    assert (lanes.row().stock_count, lanes.row().lent_to, lanes.in_lanes()) == (7, frozenset(), {})


def test_a_delete_that_waited_for_the_depot_leaves_the_next_incarnation_alone(lanes):
    lanes.list_and_lend()
    row = lanes.row()

    def relist(_):
        assert lanes.products.delist("p", row.created_at, lanes.soon())
        lanes.list_and_lend()

    lanes.tables.once("UpdateItem", relist)
    assert not lanes.products.delist("p", row.created_at, lanes.soon())
    assert lanes.row().created_at != row.created_at
    assert lanes.in_lanes() == {DEPOT: 10, 1: 20, 2: 30}


def test_a_stale_delete_of_a_lent_product_recalls_nothing(lanes):
    lanes.list_and_lend()
    assert not lanes.products.delist("p", "2026-01-01T00:00:00.000000+00:00", lanes.soon())
    assert lanes.in_lanes() == {DEPOT: 10, 1: 20, 2: 30}


def test_a_change_that_cannot_have_its_units_in_time_changes_nothing(lanes):
    lanes.list_and_lend()
    row, clock = lanes.row(), lanes.client.clock
    lease_lane(
        lanes.client.store, LaneLease(DEPOT, "other", clock.now().timestamp() + 60.0), clock.now()
    )
    with pytest.raises(ThrottledError, match="CONTENTION"):
        lanes.products.discontinue("p", lanes.soon(0.3))
    with pytest.raises(ThrottledError, match="CONTENTION"):
        lanes.products.delist("p", row.created_at, lanes.soon(0.3))
    assert lanes.row() == row


# ---------------------------------------------------------------- counts


def test_a_count_begins_when_all_units_are_in_the_row(lanes):
    lanes.list_and_lend()
    lanes.tables.once("TransactWriteItems", lambda _: lanes.sell(1))
    lease = lanes.lease()
    assert (lease.product.stock_count, lease.product.lent_to, lanes.in_lanes()) == (
        99,
        frozenset(),
        {},
    )
    count = lease.commit(98, "c1", lanes.soon())
    assert (count.delta, lanes.row().stock_count, lanes.row().locked_by) == (-1, 98, None)


def test_nobody_lends_or_reclaims_what_is_about_to_be_counted(lanes):
    lanes.list_and_lend()
    loan = lanes.allocation("p", {DEPOT})
    loan.lend("p", 5, 8)
    row, refused = lanes.row(), []

    def rivals(_):
        with pytest.raises(TransactionCancelledError):
            lanes.write(loan)
        recalled = lanes.recall("p", reclaims=True, lanes=())
        refused.append(recalled.lent.keys())

    lanes.tables.once("BatchGetItem", rivals)
    lease = lanes.lease()
    assert refused == [{"p"}]
    assert row.version + 2 == lease.product.version
    assert lease.product.stock_count == 100


@pytest.mark.parametrize("held", [{1: 20, 2: 30}, dict.fromkeys(range(1, 121), 1)])
def test_the_fence_of_a_count_goes_along_with_its_recall(lanes, held):
    """Of a few lanes in one transaction, of many in several."""
    stock = 2 * sum(held.values())
    lanes.list_and_lend(stock=stock, lanes=held, reach=len(held))
    lease = lanes.lease()
    row = lanes.row()
    assert row.lock_version == row.version == lease.product.version
    lease.renew(60.0, lanes.soon())
    resumed = Lease.resume(RetryingClient(lanes.tables.store), lease.token, lanes.soon())
    assert resumed.commit(stock, "c1", lanes.soon()).delta == 0


def test_a_count_that_died_while_it_recalled_leaves_a_lease_that_ends(lanes):
    lanes.list_and_lend()

    class DeadError(BaseException):
        pass

    def die(_):
        raise DeadError

    lanes.tables.once("TransactWriteItems", die)
    with pytest.raises(DeadError):
        lanes.lease(seconds=30.0)
    lanes.tables.before = lambda *_: None
    assert lanes.row().lent_to == set(range(9))
    lanes.client.clock.sleep(31.0)
    assert lanes.recall("p", reclaims=True).lent == {}
    assert lanes.row().stock_count == 100


def test_an_owner_whose_lease_is_over_gets_no_fence_back(lanes):
    lanes.tables.list("p", 101)
    lease = lanes.lease(seconds=5.0)
    lanes.client.clock.sleep(6.0)
    lanes.tables.commit(lanes.engine, Order("o", "u", {"p": 1}))
    lanes.lend("p", {1: 20})
    owner = lanes.row().locked_by
    reclaimed = reclaim(
        Depot(lanes.client), [lanes.row()], lanes.soon(), lanes.stats, Reclaim(owner)
    )
    assert (owner, reclaimed.lent, lanes.row().stock_count) == (lease.owner, {}, 100)
    assert lanes.row().lock_version != lanes.row().version
    assert reclaimed.rows["p"].lock_version != reclaimed.rows["p"].version


def test_a_count_is_not_committed_while_lanes_may_hold_the_product(lanes):
    lanes.tables.list("p", 10)
    lease = lanes.lease()
    lanes.change("Products", "p", lentTo={"SS": ["0"]})
    with pytest.raises(LeaseLostError):
        lease.commit(9, "c1", lanes.soon())


def test_a_count_that_cannot_have_its_units_in_time_gives_the_product_back(lanes):
    lanes.list_and_lend()
    clock = lanes.client.clock
    lease_lane(
        lanes.client.store, LaneLease(DEPOT, "other", clock.now().timestamp() + 60.0), clock.now()
    )
    with pytest.raises(ThrottledError, match="CONTENTION"):
        lanes.lease(seconds=0.5)
    assert lanes.row().locked_by is None
    assert lanes.in_lanes() == {DEPOT: 10, 1: 20, 2: 30}


@pytest.mark.parametrize("number", range(5))
def test_a_count_survives_the_loss_of_any_response(lanes, number):
    lanes.list_and_lend()
    lanes.lose_response(number)
    lease = lanes.lease()
    assert lease.product.stock_count == 100
    assert lease.commit(99, "c1", lanes.soon()).delta == -1
    lanes.tables.before = lambda *_: None
    assert (lanes.row().stock_count, lanes.in_lanes()) == (99, {})


# ---------------------------------------------------------------- atomic decrements


@pytest.mark.parametrize(
    ("limits", "quantity", "is_atomic"),
    [
        ({}, 39, True),
        ({}, 40, False),
        ({"backorder_limit": 5}, 39, True),
        ({"backorder_limit": 5}, 40, False),
        ({"low_stock_threshold": 10}, 29, True),
        ({"low_stock_threshold": 10}, 30, False),
    ],
)
def test_an_atomic_decrement_leaves_in_the_row_what_lent_products_have(
    lanes, limits, quantity, is_atomic
):
    """And what it cannot take there the engine reclaims."""
    lanes.list_and_lend(**limits)
    decrement = AtomicDecrement(lanes.engine)
    report = decrement.apply(Decrement.of("p", "d1", quantity), lanes.soon())
    assert outcomes(report) == [(APPLIED, "")]
    assert (report.outcomes[0].applied is None) == is_atomic
    assert bool(lanes.row().lent_to) == is_atomic
    assert sum(lanes.in_lanes().values()) + lanes.row().stock_count == 100 - quantity


def test_an_atomic_decrement_below_zero_is_left_to_the_engine_while_lanes_hold_units(lanes):
    """With a negative threshold a product on backorder is `ACTIVE`, so it may be sold atomically."""
    lanes.list_and_lend(low_stock_threshold=-5, backorder_limit=10)
    report = AtomicDecrement(lanes.engine).apply(Decrement.of("p", "d1", 42), lanes.soon())
    assert outcomes(report) == [(APPLIED, "")]
    assert (lanes.row().stock_count, lanes.row().lent_to) == (58, frozenset())
