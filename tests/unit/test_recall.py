"""Recalls: units in lanes are reclaimed when they are needed, and none is lost, whatever happens at the same time.

The real client and engine run on the simulated AWS, in virtual time. A product's page has the same number in all lanes;
`p`, `t` and `u` have different numbers.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from inventory_orders.domain.adjustment import Adjustment, Decrement
from inventory_orders.domain.allotments import DEPOT, PageKey
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.planner import Limits
from inventory_orders.domain.product import CatalogueEvent, ProductStatus
from inventory_orders.domain.record import AdjustmentRecord, OrderAction
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import (
    CorruptItemError,
    LeaseLostError,
    Outcome,
    ProductNotFoundError,
    ThrottledError,
)
from inventory_orders.lanes import recall as recall_module
from inventory_orders.lanes.depot import Depot
from inventory_orders.lanes.recall import Recall, reclaim
from inventory_orders.products.catalogue import AtomicDecrement
from inventory_orders.products.lease import Lease
from inventory_orders.store.cancellations import TransactionCancelledError
from inventory_orders.store.tables import Table
from inventory_orders.store.writes import product_replace_action
from testing.aws import ServiceError
from testing.schedules.in_turn.lanes import LENT, LaneShop
from testing.schedules.in_turn.shop import CALL_SECONDS
from testing.world.faults import cancels, of_product

LARGEST_ROW = 400 * 1024
APPLIED, REJECTED, RETURNED = Outcome.APPLIED, Outcome.REJECTED, Outcome.RETURNED
WHERE = {DEPOT: 10, **LENT}
"""The units of a lent product in pages, by lane."""


@pytest.fixture
def shop():
    with LaneShop().open() as shop:
        yield shop


def recall_units(shop, *product_ids, reclaims=False, lanes=range(1, 9)):
    shop.calls.clear()
    visit = Recall(Depot(shop.worker().client), shop.soon(), CommitStats(), to_row=reclaims)
    return visit.run(product_ids, lanes)


def reclaim_units(shop, *rows, seconds=20.0):
    shop.calls.clear()
    return reclaim(Depot(shop.worker().client), rows, shop.soon(seconds), CommitStats())


def in_lanes(recalled):
    """Return the products that lanes other than the depot may still hold."""
    return {p for p, row in recalled.rows.items() if row is not None and row.lent_to - {DEPOT}}


def sizes_of_transactions(shop):
    """Record the number of actions in each transaction from now on."""
    sizes = []
    shop.on("TransactWriteItems", lambda request: sizes.append(len(request["TransactItems"])))
    return sizes


def lease(shop, seconds=30.0):
    return Lease.acquire(RetryingClient(shop.store), "p", seconds, shop.soon())


def test_one_read_and_one_transaction_recall_products_from_all_lanes(shop):
    for product_id in ("p", "t", "u"):
        shop.list_lent(product_id)
    recalled = recall_units(shop, "p", "t", "u")
    assert shop.calls == ["BatchGetItem", "TransactWriteItems"]
    for product_id in ("p", "t", "u"):
        assert shop.held(product_id) == {DEPOT: 60}
        assert shop.product(product_id).lent_to == {DEPOT}
        assert shop.product(product_id).is_same_version(recalled.rows[product_id])
    assert in_lanes(recalled) == set()


def test_a_recall_of_units_that_only_the_depot_holds_writes_nothing(shop):
    shop.list_lent(lanes={}, reach=0)
    assert in_lanes(recall_units(shop, "p")) == set()
    assert shop.calls == ["BatchGetItem"]


@pytest.mark.parametrize("reclaims", [False, True])
def test_a_lane_that_sells_in_between_loses_its_units_in_a_later_attempt(shop, reclaims):
    shop.list_lent()
    shop.once("TransactWriteItems", lambda _: shop.sell_from(1))
    recalled = recall_units(shop, "p", reclaims=reclaims)
    # The second attempt leaves the busy lane out, and the third includes it again. Neither of them reads.
    assert shop.calls.count("BatchGetItem") == 2
    assert in_lanes(recalled) == set()
    assert (shop.total(), shop.sold) == (100, 1)
    assert shop.held() == ({} if reclaims else {DEPOT: 59})


def test_the_last_attempt_only_leaves_out_lanes_that_were_busy_before(shop):
    shop.list_lent()
    busy, idle = iter([1, 2, 2]), 8
    shop.before_each("TransactWriteItems", lambda: shop.sell_from(next(busy, idle)))
    recalled = recall_units(shop, "p")
    assert recalled.rows["p"].lent_to == {DEPOT, 2}
    assert shop.total() == 100


def test_a_permanently_busy_lane_keeps_its_units_and_stays_named(shop):
    shop.list_lent()
    shop.before_each("TransactWriteItems", lambda: shop.sell_from(2))
    recalled = recall_units(shop, "p", reclaims=True)
    shop.calm()
    assert in_lanes(recalled) == {"p"}
    assert shop.product().lent_to == {DEPOT, 2}
    assert shop.held() == {DEPOT: 30, 2: 30 - shop.sold}
    assert shop.total() == 100


def test_more_lanes_than_a_transaction_holds_are_recalled_step_by_step(shop):
    """Between the steps, the row names the remaining lanes."""
    shop.list_lent(stock=200, lanes=dict.fromkeys(range(1, 121), 1), reach=120)
    seen = []
    shop.before_each(
        "TransactWriteItems", lambda: seen.append((shop.product().lent_to, set(shop.held())))
    )
    recall_units(shop, "p", lanes=range(1, 121))
    left = {DEPOT, *range(91, 121)}
    assert seen == [(set(range(121)), set(range(121))), (left, left)]
    assert (shop.product().lent_to, shop.held()) == ({DEPOT}, {DEPOT: 130})


def test_more_products_than_a_transaction_holds_are_reclaimed_in_several(shop, monkeypatch):
    ids = [name for n in range(99) if PageKey.of(DEPOT, name := f"p{n}").number == 0][:11]
    for product_id in ids:
        shop.list_lent(product_id, stock=10, lanes={}, depot=5, reach=1)
    monkeypatch.setattr(recall_module, "Limits", lambda: Limits(actions=10))
    sizes = sizes_of_transactions(shop)
    assert recall_units(shop, *ids, reclaims=True, lanes=[1]).lent == {}
    assert sizes == [10, 5]
    assert {shop.stock(product_id) for product_id in ids} == {10}


def test_pages_too_large_for_one_transaction_are_recalled_in_several(shop, monkeypatch):
    shop.list_lent(lanes=dict.fromkeys(range(1, 7), 5))
    of_page = shop.store.read([PageKey.of(1, "p")]).pages[PageKey.of(1, "p")].size
    # This leaves room for the pages of two lanes and the depot's page.
    monkeypatch.setattr(recall_module, "Limits", lambda: Limits(size=5 * of_page))
    sizes = sizes_of_transactions(shop)
    recall_units(shop, "p")
    assert len(sizes) > 1
    assert (shop.held(), shop.product().lent_to) == ({DEPOT: 40}, {DEPOT})


def test_a_delisted_or_leased_product_is_left_alone(shop):
    shop.list_lent()
    shop.list_lent("t")
    shop.count("t", seconds=600)
    recalled = recall_units(shop, "p", "t", "unknown", reclaims=True)
    assert (recalled.rows["unknown"], set(recalled.lent)) == (None, {"t"})
    assert in_lanes(recalled) == {"t"}
    assert (shop.product("t").lent_to, shop.held("t"), shop.held("p")) == (set(range(9)), WHERE, {})


@pytest.mark.parametrize("lane", [DEPOT, 1])
def test_a_corrupt_page_is_named_and_the_other_products_are_reclaimed(shop, lane):
    shop.list_lent()
    shop.list_lent("t")
    with (
        shop.broken_page(lane, "p"),
        pytest.raises(CorruptItemError, match=f"page {PageKey.of(lane, 'p')} breaks") as raised,
    ):
        recall_units(shop, "p", "t", reclaims=True)
    assert raised.value.code == "CORRUPT_PAGE"
    assert (shop.held("t"), shop.stock("t")) == ({}, 100)
    assert shop.total() == 100
    assert recall_units(shop, "p", reclaims=True).lent == {}


def test_units_of_a_delisted_generation_are_named_and_not_moved(shop):
    shop.list_lent()
    shop.list_lent("r")
    assert PageKey.of(DEPOT, "p") == PageKey.of(DEPOT, "r")
    shop.edit(Table.PRODUCTS, "p", createdAt={"S": "2026-01-01T00:00:00.000000+00:00"})
    with pytest.raises(CorruptItemError, match="of a generation of p that was created at 2027"):
        recall_units(shop, "p", "r", reclaims=True)
    assert shop.held() == WHERE
    assert (shop.held("r"), shop.stock("r")) == ({}, 100)


def test_a_row_that_is_only_older_than_the_pages_is_read_again(shop):
    """The product is relisted between the two reads."""
    shop.list_lent()

    def list_again(_):
        shop.delist("p")
        shop.list_lent(stock=50, lanes={1: 5}, depot=5)

    shop.once("BatchGetItem", lambda _: shop.once("BatchGetItem", list_again))
    assert recall_units(shop, "p", reclaims=True, lanes=()).lent == {}
    assert (shop.stock("p"), shop.held()) == (50, {})


@pytest.mark.parametrize(
    "broken", [{"lowStockThreshold": {"N": "60"}}, {"status": {"S": "DISCONTINUED"}}]
)
def test_an_invalid_lent_row_delays_no_other_and_can_reclaim(shop, broken):
    """Another program wrote the row directly."""
    shop.list_lent()
    shop.list_lent("r")
    shop.edit(Table.PRODUCTS, "p", **broken)
    with pytest.raises(CorruptItemError, match="product p is in lanes, but its row is") as raised:
        recall_units(shop, "p", "r")
    assert raised.value.code == "CORRUPT_PRODUCT"
    assert (shop.product("p").lent_to, shop.product("r").lent_to) == (set(range(9)), {DEPOT})
    assert recall_units(shop, "p", reclaims=True).lent == {}
    assert shop.stock("p") == 100


def test_a_row_that_dynamodb_does_not_take_is_named(shop):
    """A write would add `lastUpdatedAt` to a row that has no room for it."""
    shop.list_lent()
    del shop.items(Table.PRODUCTS)["p",]["lastUpdatedAt"]
    shop.edit(Table.PRODUCTS, "p", others={"S": ""})
    shop.edit(Table.PRODUCTS, "p", others={"S": "x" * (LARGEST_ROW - shop.size("p"))})
    with pytest.raises(CorruptItemError, match="DynamoDB does not accept p") as raised:
        recall_units(shop, "p")
    assert raised.value.code == "CORRUPT_PRODUCT"
    assert shop.total() == 100


# ---------------------------------------------------------------- contention, and lost responses


@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("is_busy", [False, True])
def test_reclaiming_survives_the_loss_of_any_response(shop, number, is_busy):
    shop.list_lent()
    row = shop.product()
    shop.lose_responses(number)
    if is_busy:
        lose, sales = shop.before, iter([1, 2])

        def before(called, request):
            if called == "TransactWriteItems" and (lane := next(sales, None)):
                shop.calm()
                shop.sell_from(lane)
                shop.before = before
            lose(called, request)

        shop.before = before
    reclaim_units(shop, row)
    shop.calm()
    assert (shop.product().lent_to, shop.held()) == (frozenset(), {})
    assert (shop.total(), shop.sold) == (100, 2 * is_busy)


def test_conflicts_in_every_attempt_are_contention(shop):
    shop.list_lent()
    row = shop.product()
    shop.on("TransactWriteItems", cancels("TransactionConflict", of_product("p")))
    with pytest.raises(ThrottledError, match="CONTENTION"):
        reclaim_units(shop, row, seconds=0.5)
    assert shop.held() == WHERE


def test_two_recalls_reclaim_each_unit_once(shop):
    shop.list_lent()
    shop.once("TransactWriteItems", lambda _: recall_units(shop, "p", reclaims=True) and None)
    recalled = recall_units(shop, "p")
    assert recalled.rows["p"].is_same_version(shop.product())
    assert (shop.stock("p"), shop.held()) == (100, {})


@pytest.mark.parametrize("reclaims", [False, True])
def test_a_fill_or_sale_that_was_planned_before_a_recall_is_lost(shop, reclaims):
    shop.list_lent()
    fill, sale = shop.filled(3), shop.allocation("p", 1)
    sale.add_units("p", -1, PageKey.of(1, "p"))
    recall_units(shop, "p", reclaims=reclaims)
    for late in (fill, sale):
        with pytest.raises(TransactionCancelledError):
            shop.write_down(late)
    assert not {1, 3} & shop.held().keys()
    assert shop.total() == 100


def test_a_lane_without_the_product_is_checked_as_well(shop):
    """The lane may get units between the read and the write."""
    shop.list_lent(lanes={1: 20})
    filled = shop.filled(2)
    shop.once("TransactWriteItems", lambda _: shop.write_down(filled))
    recall_units(shop, "p", reclaims=True)
    assert (shop.stock("p"), shop.held()) == (100, {})


# ---------------------------------------------------------------- the line at the depot


def test_reclaiming_takes_three_requests_of_which_the_last_releases_the_depot(shop):
    shop.list_lent()
    reclaim_units(shop, shop.product())
    assert shop.calls == ["UpdateItem", "BatchGetItem", "TransactWriteItems"]
    assert set(shop.item(Table.ALLOTMENTS, "0/lease")) == {"page"}
    assert (shop.stock("p"), shop.held(), shop.product().lent_to) == (100, {}, frozenset())


def test_reclaiming_a_product_that_is_not_lent_sends_nothing(shop):
    shop.list("p")
    reclaim_units(shop, shop.product())
    assert shop.calls == []


def test_if_units_are_already_reclaimed_the_depot_is_released_immediately(shop):
    shop.list_lent()
    row = shop.product()
    recall_units(shop, "p", reclaims=True)
    reclaim_units(shop, row)
    assert shop.calls == ["UpdateItem", "BatchGetItem", "UpdateItem"]


def test_reclaiming_waits_for_the_depot_and_gives_up_in_time(shop):
    shop.list_lent()
    row, began = shop.product(), shop.clock.seconds
    shop.before_each("UpdateItem", lambda: shop.occupy_depot(2.0))
    with pytest.raises(ThrottledError, match="CONTENTION: no time was left to wait for the depot"):
        reclaim_units(shop, row, seconds=0.5)
    assert shop.clock.seconds - began < 0.5 + 3 * CALL_SECONDS
    assert shop.total() == 100


def test_a_permanently_busy_lane_is_waited_for_until_the_deadline(shop):
    shop.list_lent(stock=2000, lanes={1: 20, 2: 1500})
    row = shop.product()
    shop.before_each("TransactWriteItems", lambda: shop.sell_from(2))
    with pytest.raises(ThrottledError, match="CONTENTION: no time was left to reclaim p"):
        reclaim_units(shop, row, seconds=0.5)
    assert shop.product().lent_to == {DEPOT, 2}
    assert shop.total() == 2000


def test_a_visitor_whose_lease_was_taken_over_still_reclaims(shop):
    shop.list_lent()
    row = shop.product()

    def take_over(_):
        shop.clock.sleep(3.0)
        shop.occupy_depot(2.0, "next")

    shop.once("TransactWriteItems", take_over)
    reclaim_units(shop, row)
    assert (shop.stock("p"), shop.held()) == (100, {})
    assert shop.item(Table.ALLOTMENTS, "0/lease")["lockedBy"] == {"S": "next"}


def test_a_change_whose_record_exists_already_releases_the_depot(shop):
    """Otherwise, the next visitor would wait until an unused lease ends."""
    shop.list_lent()
    row = shop.product()
    closing = f"closing-{row.created_at.removesuffix('+00:00')}"
    shop.put_record(AdjustmentRecord("p", closing, -1, "CLOSING", row.created_at, 9, "then"))
    with pytest.raises(ThrottledError):
        shop.products.delist("p", row.created_at, shop.soon(0.5))
    assert set(shop.item(Table.ALLOTMENTS, "0/lease")) == {"page"}
    assert (shop.product().is_same_version(row), shop.total()) == (True, 100)


# ---------------------------------------------------------------- the engine, where rows are sold from


@pytest.mark.parametrize(
    ("units", "ending", "left"),
    [(39, APPLIED, None), (40, APPLIED, 60), (100, APPLIED, 0), (101, REJECTED, 100)],
)
@pytest.mark.parametrize("is_order", [True, False])
def test_the_row_sells_its_spare_units_first_and_then_all_units(
    shop, is_order, units, ending, left
):
    """There are 100 units, 60 of them in lanes. The row must keep at least one of its 40."""
    shop.list_lent()
    order, loss = Order("o", "u", {"p": units}), Adjustment("p", "a", -units, "CORRECTION")
    (outcome,) = shop.sell(shop.worker(), order if is_order else loss).outcomes
    assert outcome.kind is ending
    if ending is REJECTED:
        assert outcome.cause == ("INSUFFICIENT_STOCK" if is_order else "BELOW_FLOOR")
    if left is None:
        assert (shop.stock("p"), shop.product().status) == (1, ProductStatus.ACTIVE)
        assert shop.held() == WHERE
    else:
        assert (shop.stock("p"), shop.product().lent_to, shop.held()) == (left, set(), {})


def test_units_that_a_lane_sells_during_a_recall_are_not_promised(shop):
    shop.list_lent()
    shop.once("TransactWriteItems", lambda _: shop.sell_from(1))
    report = shop.sell(shop.worker(), Order("o", "u", {"p": 100}))
    (outcome,) = report.outcomes
    assert (outcome.kind, outcome.rejection.shortages[0].available) == (REJECTED, 99)
    assert shop.total() == 100


def outcomes(report):
    return [(outcome.kind, outcome.cause) for outcome in report.outcomes]


def test_a_batch_sells_everything_else_before_it_waits_for_the_depot(shop):
    shop.list_lent()
    shop.list("t")
    shop.calls.clear()
    report = shop.sell(shop.worker(), Order("o1", "u", {"p": 50}), Order("o2", "u", {"t": 1}))
    assert outcomes(report) == [(APPLIED, "")] * 2
    # The other product is written before the wait for the depot, which starts with an update.
    assert shop.calls.index("TransactWriteItems") < shop.calls.index("UpdateItem")


def test_orders_whose_units_cannot_be_reclaimed_in_time_are_returned(shop):
    shop.list_lent()
    shop.list("t")
    shop.occupy_depot(60.0)
    orders = [Order("o1", "u", {"p": 50}), Order("o2", "u", {"t": 1}), Order("o3", "u", {"p": 1})]
    report = shop.sell(shop.worker(), *orders, seconds=0.5)
    assert outcomes(report) == [(RETURNED, "CONTENTION"), (APPLIED, ""), (APPLIED, "")]
    assert shop.held() == WHERE


def test_a_corrupt_page_returns_only_the_orders_that_need_it(shop):
    shop.list_lent()
    shop.list_lent("t")
    orders = [Order("o1", "u", {"p": 50}), Order("o2", "u", {"t": 50}), Order("o3", "u", {"p": 1})]
    with shop.broken_page(1, "p"):
        report = shop.sell(shop.worker(), *orders)
    assert outcomes(report) == [(RETURNED, "CORRUPT_PAGE"), (APPLIED, ""), (APPLIED, "")]
    assert "page 1/1 breaks the contract" in report.outcomes[0].detail


def test_a_denied_recall_returns_everything_loudly(shop):
    shop.list_lent()
    shop.refuse("UpdateItem", ServiceError("AccessDeniedException", "not authorized"))
    report = shop.sell(shop.worker(), Order("o", "u", {"p": 50}))
    assert report.failure is not None
    assert outcomes(report) == [(RETURNED, "AccessDeniedException")]


def test_a_product_that_is_leased_before_it_is_reclaimed_makes_its_order_wait(shop):
    shop.list_lent()
    shop.once("UpdateItem", lambda _: shop.count("p", seconds=600))
    report = shop.sell(shop.worker(), Order("o", "u", {"p": 50}))
    assert outcomes(report) == [(RETURNED, "LEASED")]


def test_nothing_is_reclaimed_because_of_a_cached_row(shop):
    """A row that only this process has written for a while is not read again until a decision depends on it."""
    shop.list_lent()
    worker = shop.worker()
    for _ in range(3):
        shop.sell(worker, shop.new_order("p"))
    recall_units(shop, "p", reclaims=True)
    assert shop.outcomes(worker, shop.new_order("p", units=90)) == [APPLIED]
    assert "UpdateItem" not in shop.calls


def test_a_process_that_reclaims_from_its_own_lane_knows_what_is_left(shop):
    shop.list_lent(lanes={1: 20})
    shop.list_lent("r", lanes={1: 20})
    worker = shop.worker(lanes=1)
    worker.source.lane.take(shop.soon(), CommitStats())
    changes = [Adjustment("p", "a", -90, "CORRECTION"), shop.new_order("r")]
    assert shop.outcomes(worker, *changes) == [APPLIED, APPLIED]
    assert shop.outcomes(worker, shop.new_order("r")) == [APPLIED]
    assert shop.calls == ["TransactWriteItems"]


def test_a_refused_loss_of_a_busy_lent_product_is_decided_by_one_visit(shop):
    shop.list_lent()

    def write(_):
        version = str(shop.product().version + 1)
        shop.edit(Table.PRODUCTS, "p", _version={"N": version})

    shop.on("UpdateItem", write)
    report = shop.sell(shop.worker(), Adjustment("p", "a", -101, "CORRECTION"))
    assert outcomes(report) == [(REJECTED, "BELOW_FLOOR")]
    assert shop.calls.count("UpdateItem") == 1
    assert (shop.stock("p"), shop.held()) == (100, {})


@pytest.mark.parametrize("delta", [1, -1])
@pytest.mark.parametrize(
    "broken", [{"lowStockThreshold": {"N": "60"}}, {"status": {"S": "DISCONTINUED"}}]
)
def test_an_invalid_lent_row_reclaims_before_it_changes(shop, broken, delta):
    """Another program wrote the row directly. This must not block changes of this product or of others forever."""
    shop.list_lent()
    shop.list_lent("r")
    shop.edit(Table.PRODUCTS, "p", **broken)
    changes = [Adjustment(product_id, "a", delta, "CORRECTION") for product_id in ("p", "r")]
    report = shop.sell(shop.worker(), *changes)
    assert outcomes(report) == [(APPLIED, "")] * 2
    assert (shop.stock("p"), shop.product().lent_to) == (100 + delta, set())
    assert shop.stock("r") == 40 + delta


def test_receipts_and_cancellations_go_to_the_row_and_recall_nothing(shop):
    shop.list_lent()
    shop.sell(shop.worker(), Order("o", "u", {"p": 5}))
    allotted = dict(shop.items(Table.ALLOTMENTS))
    report = shop.sell(
        shop.worker(), Adjustment("p", "a", 7, "RECEIPT"), OrderCommand("o", OrderAction.CANCEL)
    )
    assert outcomes(report) == [(APPLIED, "")] * 2
    assert (shop.stock("p"), shop.product().lent_to) == (47, set(range(9)))
    assert shop.items(Table.ALLOTMENTS) == allotted


# ---------------------------------------------------------------- operators


def threshold(units):
    return lambda product: replace(product, low_stock_threshold=units)


CHANGES = {
    "discontinue": lambda p: replace(p, status=ProductStatus.DISCONTINUED),
    "a threshold above the row": threshold(99),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_that_needs_all_units_is_written_with_their_recall(shop, change):
    """Sales from a lane make attempts fail. The lane cannot be filled between the recall and the change."""
    shop.list_lent()
    sales = iter([1, 2])

    def sell_and_refill():
        if lane := next(sales, None):
            shop.sell_from(lane)
            shop.fill(lane)

    shop.before_each("TransactWriteItems", sell_and_refill)
    updated = shop.products.update_with_retry("p", change, shop.soon())
    assert (updated.after.stock_count, updated.after.lent_to) == (98, frozenset())
    assert shop.product().is_same_version(updated.after)
    assert shop.product().status is not ProductStatus.ACTIVE
    assert (shop.held(), shop.total()) == ({}, 100)


@pytest.mark.parametrize("fault", ["none", "lost request", "lost response"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_such_a_change_is_made_once_in_one_transaction_of_the_depots_visit(shop, change, fault):
    shop.list_lent()
    before, calls = shop.product(), []

    def count(product):
        calls.append(product)
        return replace(change(product), other={"changes": len(calls)})

    shop.calls.clear()
    if fault != "none":
        is_applied = fault == "lost response"
        shop.lose_responses(1, operations=["TransactWriteItems"], is_applied=is_applied)
    updated = shop.products.update_with_retry("p", count, shop.soon())
    if fault == "none":
        assert shop.calls == ["GetItem", "UpdateItem", "BatchGetItem", "TransactWriteItems"]
    assert shop.product().is_same_version(updated.after)
    assert (shop.product().version, shop.stock("p")) == (before.version + 1, 100)
    assert shop.product().other == updated.after.other
    assert (shop.product().lent_to, shop.held()) == (frozenset(), {})


EVENT = CatalogueEvent("p", "e1", "2026-02-01T00:00:00.000000+00:00", {"name": "Tea"})
HARMLESS = {
    "a threshold below the row": threshold(39),
    "details": lambda p: replace(p, name="Tea", price=3),
    "backorders": lambda p: replace(p, backorder_limit=5),
}


@pytest.mark.parametrize("name", [*HARMLESS, "event", "price"])
def test_a_change_that_does_not_need_all_units_recalls_nothing(shop, name):
    shop.list_lent()
    if name == "event":
        assert shop.products.change_details(EVENT, shop.soon())[0]
    elif name == "price":
        assert shop.products.change_price("p", 3, timedelta(0), shop.soon()).price == 3
    else:
        shop.products.update_with_retry("p", HARMLESS[name], shop.soon())
    assert shop.product().lent_to == set(range(9))
    assert (shop.product().status, shop.held()) == ("ACTIVE", WHERE)


def test_an_update_function_cannot_change_lanes(shop):
    shop.list_lent()
    with pytest.raises(ValueError, match="an update function must not change a product's lent_to"):
        shop.products.update_with_retry("p", lambda p: replace(p, lent_to=frozenset()), shop.soon())


def test_no_invalid_lent_row_is_written(shop):
    shop.list_lent()
    row, now = shop.product(), datetime.now(UTC)
    for after in (replace(row, status=ProductStatus.DISCONTINUED), replace(row, stock_count=0)):
        with pytest.raises(ValueError, match="p is in lanes"):
            product_replace_action(row, after, now)


def bookings(shop):
    """Return the deltas of the adjustments that open and close a product's books."""
    return sorted(int(item["delta"]["N"]) for item in shop.items(Table.STOCK_ADJUSTMENTS).values())


def test_delisting_reclaims_all_units_and_closes_the_books(shop):
    shop.list_lent()
    shop.once("TransactWriteItems", lambda _: shop.sell_from(2))
    shop.delist("p")
    assert (shop.item(Table.PRODUCTS, "p"), shop.held(), bookings(shop)) == (None, {}, [-99, 100])


@pytest.mark.parametrize("is_applied", [True, False])
def test_delisting_a_lent_product_is_done_once_despite_a_lost_response(shop, is_applied):
    shop.list_lent()
    writes = shop.lose_responses(1, operations=["TransactWriteItems"], is_applied=is_applied)
    assert shop.products.delist("p", shop.product().created_at, shop.soon())
    assert (shop.item(Table.PRODUCTS, "p"), shop.held(), bookings(shop)) == (None, {}, [-100, 100])
    assert len(writes) == 2


@pytest.mark.parametrize("operation", ["UpdateItem", "BatchGetItem", "TransactWriteItems"])
@pytest.mark.parametrize("is_lent", [True, False])
def test_operators_changes_do_not_touch_a_product_relisted_in_between(shop, operation, is_lent):
    shop.list_lent()
    former = shop.product().created_at

    def list_again(_):
        shop.delist("p")
        shop.list("p", 50)
        if is_lent:
            shop.lend("p", {1: 5}, depot=10)

    shop.once(operation, list_again)
    assert not shop.products.delist("p", former, shop.soon())
    shop.calm()
    assert not shop.products.delist("p", former, shop.soon()), (
        "a late request does not delist it either"
    )
    if is_lent:
        shop.once(operation, list_again)
        with pytest.raises(ProductNotFoundError):
            shop.products.update_with_retry("p", threshold(99), shop.soon())
    assert (shop.product().low_stock_threshold, shop.total()) == (0, 50)
    assert shop.held() == ({DEPOT: 10, 1: 5} if is_lent else {})


def test_a_relisted_product_gets_no_units_of_its_earlier_generation(shop):
    shop.list_lent()
    stale = [shop.filled(3), shop.allocation("p")]
    stale[1].lend("p", 5, 8)
    shop.delist("p")
    shop.list("p", 7)
    for allocation in stale:
        with pytest.raises(TransactionCancelledError):
            shop.write_down(allocation)
    assert (shop.stock("p"), shop.product().lent_to, shop.held()) == (7, frozenset(), {})


def test_a_change_that_cannot_have_its_units_in_time_changes_nothing(shop):
    shop.list_lent()
    row = shop.product()
    shop.occupy_depot(60.0)
    with pytest.raises(ThrottledError, match="CONTENTION"):
        shop.products.discontinue("p", shop.soon(0.3))
    with pytest.raises(ThrottledError, match="CONTENTION"):
        shop.products.delist("p", row.created_at, shop.soon(0.3))
    assert shop.product() == row


# ---------------------------------------------------------------- counts


def test_a_count_begins_when_all_units_are_in_the_row(shop):
    shop.list_lent()
    shop.once("TransactWriteItems", lambda _: shop.sell_from(1))
    begun = lease(shop)
    assert (begun.product.stock_count, begun.product.lent_to) == (99, frozenset())
    assert shop.held() == {}
    count = begun.commit(98, "c1", shop.soon())
    # One of the counted units is sold but not handed over.
    assert (count.delta, shop.stock("p"), shop.product().locked_by) == (-2, 97, None)


def test_units_about_to_be_counted_are_neither_lent_nor_reclaimed(shop):
    shop.list_lent()
    loan = shop.allocation("p")
    loan.lend("p", 5, 8)
    row, refused = shop.product(), []

    def rivals(_):
        with pytest.raises(TransactionCancelledError):
            shop.write_down(loan)
        refused.append(recall_units(shop, "p", reclaims=True, lanes=()).lent.keys())

    shop.once("BatchGetItem", rivals)
    begun = lease(shop)
    assert refused == [{"p"}]
    assert row.version + 3 == begun.product.version
    assert begun.product.stock_count == 100


@pytest.mark.parametrize("held", [LENT, dict.fromkeys(range(1, 121), 1)])
def test_the_fence_of_a_count_is_written_with_its_recall(shop, held):
    """If there are few lanes, they are recalled in one transaction; otherwise, in several."""
    stock = 2 * sum(held.values())
    shop.list_lent(stock=stock, lanes=held, reach=len(held))
    begun = lease(shop)
    row = shop.product()
    assert row.lock_version == row.version == begun.product.version
    begun.renew(60.0, shop.soon())
    resumed = Lease.resume(RetryingClient(shop.store), begun.token, shop.soon())
    assert resumed.commit(stock, "c1", shop.soon()).delta == 0


def test_a_count_that_died_while_it_recalled_leaves_a_lease_that_ends(shop):
    class DeadError(BaseException):
        pass

    shop.list_lent()
    shop.refuse("TransactWriteItems", DeadError())
    with pytest.raises(DeadError):
        lease(shop)
    shop.calm()
    assert shop.product().lent_to == set(range(9))
    shop.clock.sleep(31.0)
    assert recall_units(shop, "p", reclaims=True).lent == {}
    assert shop.stock("p") == 100


def test_an_owner_whose_lease_has_expired_gets_no_fence(shop):
    shop.list("p", 101)
    owner = lease(shop, seconds=5.0).owner
    shop.clock.sleep(6.0)
    shop.do(shop.new_order("p"))
    shop.lend("p", {1: 20})
    assert shop.product().locked_by == owner
    depot, rows = Depot(shop.worker().client), [shop.product()]
    reclaimed = reclaim(depot, rows, shop.soon(), CommitStats(), owner)
    assert (reclaimed.lent, shop.stock("p")) == ({}, 100)
    assert shop.product().lock_version != shop.product().version
    assert reclaimed.rows["p"].lock_version != reclaimed.rows["p"].version


def test_a_count_is_not_committed_while_lanes_may_hold_the_product(shop):
    shop.list("p", 10)
    begun = lease(shop)
    shop.edit(Table.PRODUCTS, "p", lentTo={"SS": ["0"]})
    with pytest.raises(LeaseLostError):
        begun.commit(9, "c1", shop.soon())


def test_a_count_that_cannot_have_its_units_in_time_releases_the_product(shop):
    shop.list_lent()
    shop.occupy_depot(60.0)
    with pytest.raises(ThrottledError, match="CONTENTION"):
        lease(shop, seconds=0.5)
    assert shop.product().locked_by is None
    assert shop.held() == WHERE


@pytest.mark.parametrize("number", range(1, 6))
def test_a_count_survives_the_loss_of_any_response(shop, number):
    shop.list_lent()
    shop.lose_responses(number)
    begun = lease(shop)
    assert begun.product.stock_count == 100
    assert begun.commit(99, "c1", shop.soon()).delta == -1
    assert (shop.stock("p"), shop.held()) == (99, {})


# ---------------------------------------------------------------- atomic decrements


@pytest.mark.parametrize(
    ("details", "units", "is_atomic"),
    [
        ({}, 39, True),
        ({}, 40, False),
        ({"backorder_limit": 5}, 39, True),
        ({"backorder_limit": 5}, 40, False),
        ({"low_stock_threshold": 10}, 29, True),
        ({"low_stock_threshold": 10}, 30, False),
        # With a negative threshold, a product on backorder is `ACTIVE`, so it may be sold atomically.
        ({"low_stock_threshold": -5, "backorder_limit": 10}, 42, False),
    ],
)
def test_an_atomic_decrement_leaves_the_units_reserved_for_a_lent_row(
    shop, details, units, is_atomic
):
    """If the row has too few units, the engine reclaims the rest."""
    shop.list_lent(**details)
    report = AtomicDecrement(shop.worker()).apply(Decrement("p", "d1", -units), shop.soon())
    assert outcomes(report) == [(APPLIED, "")]
    assert (report.outcomes[0].applied is None) == is_atomic
    assert bool(shop.product().lent_to) == is_atomic
    assert shop.total() == 100 - units
