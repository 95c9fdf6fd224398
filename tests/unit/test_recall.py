"""Recalls: units in lanes are reclaimed when they are needed, and none is lost, whatever happens at the same time.

The real client and engine run on the simulated AWS, in virtual time. A product's page has the same number in all lanes;
`p`, `t` and `u` have different numbers.
"""

from dataclasses import replace
from datetime import timedelta

import pytest

from inventory_orders.domain.adjustment import Adjustment, Decrement
from inventory_orders.domain.allotments import DEPOT, PageKey
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.product import CatalogueEvent, ProductStatus
from inventory_orders.domain.record import OrderAction
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import (
    CorruptItemError,
    LeaseLostError,
    Outcome,
    ThrottledError,
)
from inventory_orders.lanes.depot import Depot
from inventory_orders.lanes.recall import Recall, reclaim
from inventory_orders.products.catalogue import AtomicDecrement
from inventory_orders.products.lease import Lease
from inventory_orders.store.tables import Table
from testing.aws import ServiceError
from testing.schedules.in_turn.lanes import LENT, LaneShop
from testing.schedules.in_turn.shop import CALL_SECONDS

APPLIED, REJECTED, RETURNED = Outcome.APPLIED, Outcome.REJECTED, Outcome.RETURNED
WHERE = {DEPOT: 10, **LENT}
"""The units of a lent product in pages, by lane."""


@pytest.fixture
def empty():
    """Open a shop without products."""
    with LaneShop().open() as shop:
        yield shop


@pytest.fixture
def shop(empty):
    """Open a shop with the product `p`, which has units in the row, at the depot and in lanes."""
    empty.list_lent()
    return empty


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


def lease(shop, seconds=30.0):
    return Lease.acquire(RetryingClient(shop.store), "p", seconds, shop.soon())


def test_one_read_and_one_transaction_recall_products_from_all_lanes(empty):
    for product_id in ("p", "t", "u"):
        empty.list_lent(product_id)
    recalled = recall_units(empty, "p", "t", "u")
    assert empty.calls == ["BatchGetItem", "TransactWriteItems"]
    for product_id in ("p", "t", "u"):
        assert empty.held(product_id) == {DEPOT: 60}
        assert empty.product(product_id).lent_to == {DEPOT}
        assert empty.product(product_id).is_same_version(recalled.rows[product_id])
    assert in_lanes(recalled) == set()


def test_a_recall_of_units_that_only_the_depot_holds_writes_nothing(empty):
    empty.list_lent(lanes={}, reach=0)
    assert in_lanes(recall_units(empty, "p")) == set()
    assert empty.calls == ["BatchGetItem"]


@pytest.mark.parametrize("reclaims", [False, True])
def test_a_lane_that_sells_in_between_loses_its_units_in_a_later_attempt(shop, reclaims):
    shop.once("TransactWriteItems", lambda _: shop.sell_from(1))
    recalled = recall_units(shop, "p", reclaims=reclaims)
    # The second attempt leaves the busy lane out, and the third includes it again. Neither of them reads.
    assert shop.calls.count("BatchGetItem") == 2
    assert in_lanes(recalled) == set()
    assert (shop.total(), shop.sold) == (100, 1)
    assert shop.held() == ({} if reclaims else {DEPOT: 59})


def test_more_lanes_than_a_transaction_holds_are_recalled_step_by_step(empty):
    """Between the steps, the row names the remaining lanes."""
    empty.list_lent(stock=200, lanes=dict.fromkeys(range(1, 121), 1), reach=120)
    seen = []
    empty.before_each(
        "TransactWriteItems", lambda: seen.append((empty.product().lent_to, set(empty.held())))
    )
    recall_units(empty, "p", lanes=range(1, 121))
    left = {DEPOT, *range(81, 121)}
    assert seen == [(set(range(121)), set(range(121))), (left, left)]
    assert (empty.product().lent_to, empty.held()) == ({DEPOT}, {DEPOT: 130})


def test_a_delisted_or_leased_product_is_left_alone(shop):
    shop.list_lent("t")
    shop.count("t", seconds=600)
    recalled = recall_units(shop, "p", "t", "unknown", reclaims=True)
    assert (recalled.rows["unknown"], set(recalled.lent)) == (None, {"t"})
    assert in_lanes(recalled) == {"t"}
    assert (shop.product("t").lent_to, shop.held("t"), shop.held("p")) == (set(range(9)), WHERE, {})


@pytest.mark.parametrize("lane", [DEPOT, 1])
def test_a_corrupt_page_is_named_and_the_other_products_are_reclaimed(shop, lane):
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
    shop.list_lent("r")
    assert PageKey.of(DEPOT, "p") == PageKey.of(DEPOT, "r")
    shop.edit(Table.PRODUCTS, "p", createdAt={"S": "2026-01-01T00:00:00.000000+00:00"})
    with pytest.raises(CorruptItemError, match="of a generation of p that was created at 2027"):
        recall_units(shop, "p", "r", reclaims=True)
    assert shop.held() == WHERE
    assert (shop.held("r"), shop.stock("r")) == ({}, 100)


@pytest.mark.parametrize(
    "broken", [{"lowStockThreshold": {"N": "60"}}, {"status": {"S": "DISCONTINUED"}}]
)
def test_an_invalid_lent_row_delays_no_other_and_can_reclaim(shop, broken):
    """Another program wrote the row directly."""
    shop.list_lent("r")
    shop.edit(Table.PRODUCTS, "p", **broken)
    with pytest.raises(CorruptItemError, match="product p is in lanes, but its row is") as raised:
        recall_units(shop, "p", "r")
    assert raised.value.code == "CORRUPT_PRODUCT"
    assert (shop.product("p").lent_to, shop.product("r").lent_to) == (set(range(9)), {DEPOT})
    assert recall_units(shop, "p", reclaims=True).lent == {}
    assert shop.stock("p") == 100


# ---------------------------------------------------------------- contention, and lost responses


@pytest.mark.parametrize("number", range(1, 5))
def test_reclaiming_survives_the_loss_of_any_response(shop, number):
    row = shop.product()
    shop.lose_responses(number)
    reclaim_units(shop, row)
    assert (shop.product().lent_to, shop.held(), shop.total()) == (frozenset(), {}, 100)


# ---------------------------------------------------------------- the line at the depot


def test_reclaiming_takes_three_requests_of_which_the_last_releases_the_depot(shop):
    reclaim_units(shop, shop.product())
    assert shop.calls == ["UpdateItem", "BatchGetItem", "TransactWriteItems"]
    assert set(shop.item(Table.ALLOTMENTS, "0/lease")) == {"page"}
    assert (shop.stock("p"), shop.held(), shop.product().lent_to) == (100, {}, frozenset())


def test_reclaiming_a_product_that_is_not_lent_sends_nothing(empty):
    empty.list("p")
    reclaim_units(empty, empty.product())
    assert empty.calls == []


def test_reclaiming_waits_for_the_depot_and_gives_up_in_time(shop):
    row, began = shop.product(), shop.clock.seconds
    shop.before_each("UpdateItem", lambda: shop.occupy(DEPOT, 2.0))
    with pytest.raises(ThrottledError, match="CONTENTION: no time was left to wait for the depot"):
        reclaim_units(shop, row, seconds=0.5)
    assert shop.clock.seconds - began < 0.5 + 3 * CALL_SECONDS
    assert shop.total() == 100


def test_a_permanently_busy_lane_is_waited_for_until_the_deadline(empty):
    empty.list_lent(stock=2000, lanes={1: 20, 2: 1500})
    row = empty.product()
    empty.before_each("TransactWriteItems", lambda: empty.sell_from(2))
    with pytest.raises(ThrottledError, match="CONTENTION: no time was left to reclaim p"):
        reclaim_units(empty, row, seconds=0.5)
    assert empty.product().lent_to == {DEPOT, 2}
    assert empty.total() == 2000


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


def outcomes(report):
    return [(outcome.kind, outcome.cause) for outcome in report.outcomes]


def test_a_batch_sells_everything_else_before_it_waits_for_the_depot(shop):
    shop.list("t")
    shop.calls.clear()
    report = shop.sell(shop.worker(), Order("o1", "u", {"p": 50}), Order("o2", "u", {"t": 1}))
    assert outcomes(report) == [(APPLIED, "")] * 2
    # The other product is written before the wait for the depot, which starts with an update.
    assert shop.calls.index("TransactWriteItems") < shop.calls.index("UpdateItem")


def test_orders_whose_units_cannot_be_reclaimed_in_time_are_returned(shop):
    shop.list("t")
    shop.occupy(DEPOT, 60.0)
    orders = [Order("o1", "u", {"p": 50}), Order("o2", "u", {"t": 1}), Order("o3", "u", {"p": 1})]
    report = shop.sell(shop.worker(), *orders, seconds=0.5)
    assert outcomes(report) == [(RETURNED, "CONTENTION"), (APPLIED, ""), (APPLIED, "")]
    assert shop.held() == WHERE


def test_a_denied_recall_returns_everything_loudly(shop):
    shop.refuse("UpdateItem", ServiceError("AccessDeniedException", "not authorized"))
    report = shop.sell(shop.worker(), Order("o", "u", {"p": 50}))
    assert report.failure is not None
    assert outcomes(report) == [(RETURNED, "AccessDeniedException")]


def test_nothing_is_reclaimed_because_of_a_cached_row(shop):
    """A row that only this process has written for a while is not read again until a decision depends on it."""
    worker = shop.worker()
    for _ in range(3):
        shop.sell(worker, shop.new_order("p"))
    recall_units(shop, "p", reclaims=True)
    assert shop.outcomes(worker, shop.new_order("p", units=90)) == [APPLIED]
    assert "UpdateItem" not in shop.calls


def test_a_process_that_reclaims_from_its_own_lane_knows_what_is_left(empty):
    empty.list_lent(lanes={1: 20})
    empty.list_lent("r", lanes={1: 20})
    worker = empty.worker(lanes=1)
    worker.source.lane.take(empty.soon(), CommitStats())
    changes = [Adjustment("p", "a", -90, "CORRECTION"), empty.new_order("r")]
    assert empty.outcomes(worker, *changes) == [APPLIED, APPLIED]
    assert empty.outcomes(worker, empty.new_order("r")) == [APPLIED]
    assert empty.calls == ["TransactWriteItems"]


@pytest.mark.parametrize("delta", [1, -1])
@pytest.mark.parametrize(
    "broken", [{"lowStockThreshold": {"N": "60"}}, {"status": {"S": "DISCONTINUED"}}]
)
def test_an_invalid_lent_row_reclaims_before_it_changes(shop, broken, delta):
    """Another program wrote the row directly. This must not block changes of this product or of others forever."""
    shop.list_lent("r")
    shop.edit(Table.PRODUCTS, "p", **broken)
    changes = [Adjustment(product_id, "a", delta, "CORRECTION") for product_id in ("p", "r")]
    report = shop.sell(shop.worker(), *changes)
    assert outcomes(report) == [(APPLIED, "")] * 2
    assert (shop.stock("p"), shop.product().lent_to) == (100 + delta, set())
    assert shop.stock("r") == 40 + delta


def test_receipts_and_cancellations_go_to_the_row_and_recall_nothing(shop):
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


@pytest.mark.parametrize("fault", ["none", "lost request", "lost response"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_such_a_change_is_made_once_in_one_transaction_of_the_depots_visit(shop, change, fault):
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
    if name == "event":
        assert shop.products.change_details(EVENT, shop.soon())[0]
    elif name == "price":
        assert shop.products.change_price("p", 3, timedelta(0), shop.soon()).price == 3
    else:
        shop.products.update_with_retry("p", HARMLESS[name], shop.soon())
    assert shop.product().lent_to == set(range(9))
    assert (shop.product().status, shop.held()) == ("ACTIVE", WHERE)


def test_an_update_function_cannot_change_lanes(shop):
    with pytest.raises(ValueError, match="an update function must not change a product's lent_to"):
        shop.products.update_with_retry("p", lambda p: replace(p, lent_to=frozenset()), shop.soon())


# ---------------------------------------------------------------- counts


def test_a_count_begins_when_all_units_are_in_the_row(shop):
    shop.once("TransactWriteItems", lambda _: shop.sell_from(1))
    begun = lease(shop)
    assert (begun.product.stock_count, begun.product.lent_to) == (99, frozenset())
    assert shop.held() == {}
    count = begun.commit(98, "c1", shop.soon())
    # One of the counted units is sold but not handed over.
    assert (count.delta, shop.stock("p"), shop.product().locked_by) == (-2, 97, None)


@pytest.mark.parametrize("held", [LENT, dict.fromkeys(range(1, 121), 1)])
def test_the_fence_of_a_count_is_written_with_its_recall(empty, held):
    """If there are few lanes, they are recalled in one transaction; otherwise, in several."""
    stock = 2 * sum(held.values())
    empty.list_lent(stock=stock, lanes=held, reach=len(held))
    begun = lease(empty)
    row = empty.product()
    assert row.lock_version == row.version == begun.product.version
    begun.renew(60.0, empty.soon())
    resumed = Lease.resume(RetryingClient(empty.store), begun.token, empty.soon())
    assert resumed.commit(stock, "c1", empty.soon()).delta == 0


def test_a_count_is_not_committed_while_lanes_may_hold_the_product(empty):
    empty.list("p", 10)
    begun = lease(empty)
    empty.edit(Table.PRODUCTS, "p", lentTo={"SS": ["0"]})
    with pytest.raises(LeaseLostError):
        begun.commit(9, "c1", empty.soon())


def test_a_count_that_cannot_have_its_units_in_time_releases_the_product(shop):
    shop.occupy(DEPOT, 60.0)
    with pytest.raises(ThrottledError, match="CONTENTION"):
        lease(shop, seconds=0.5)
    assert shop.product().locked_by is None
    assert shop.held() == WHERE


# ---------------------------------------------------------------- atomic decrements


@pytest.mark.parametrize(
    ("details", "units", "is_atomic"),
    [
        ({}, 39, True),
        ({}, 40, False),
        ({"backorder_limit": 5}, 40, False),
        ({"low_stock_threshold": 10}, 29, True),
        ({"low_stock_threshold": 10}, 30, False),
        # With a negative threshold, a product on backorder is `ACTIVE`, so it may be sold atomically.
        ({"low_stock_threshold": -5, "backorder_limit": 10}, 42, False),
    ],
)
def test_an_atomic_decrement_leaves_the_units_reserved_for_a_lent_row(
    empty, details, units, is_atomic
):
    """If the row has too few units, the engine reclaims the rest."""
    empty.list_lent(**details)
    report = AtomicDecrement(empty.worker()).apply(Decrement("p", "d1", -units), empty.soon())
    assert outcomes(report) == [(APPLIED, "")]
    assert (report.outcomes[0].applied is None) == is_atomic
    assert bool(empty.product().lent_to) == is_atomic
    assert empty.total() == 100 - units
