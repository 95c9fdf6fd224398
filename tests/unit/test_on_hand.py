"""The units on hand, committed and available: after hand-overs, folds, counts and losses, and under contention.

The real handlers and engine run on the simulated AWS, in virtual time.
"""

import json
import zlib
from functools import partial

import pytest

from inventory_orders.domain.change import Change
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.outbound import (
    OUTBOUND_KEYS,
    Generation,
    OutboundKey,
    OutboundPage,
)
from inventory_orders.domain.record import AdjustmentKey, OrderAction, OrderKey
from inventory_orders.engine import outbound as outbound_pages
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import Outcome, RejectedError
from inventory_orders.lanes.levels import read_level
from inventory_orders.products.fold import Fold
from inventory_orders.products.lease import Lease
from inventory_orders.store.rows import page_units
from inventory_orders.store.tables import Table
from testing.aws import ServiceError
from testing.schedules.in_turn.shop import Shop

APPLIED, REPLAYED, RETURNED = Outcome.APPLIED, Outcome.REPLAYED, Outcome.RETURNED


@pytest.fixture
def shop():
    with Shop().open() as shop:
        shop.list("tea", 10)
        shop.list("mug", 10)
        yield shop


def command(order_id: str, action: str, step_id=None, restock=None, **units: int) -> Change:
    return OrderCommand(order_id, OrderAction(action), "", step_id, units, restock)


def sell(shop: Shop, order_id: str, **units: int) -> None:
    assert shop.order(order_id, **units) is APPLIED
    assert shop.do(command(order_id, "confirm")) == [APPLIED]


def ship(shop: Shop, order_id: str, **units: int) -> None:
    """Sell units, and hand them over."""
    sell(shop, order_id, **units)
    assert shop.do(command(order_id, "fulfil")) == [APPLIED]


def level(shop: Shop, product_id: str = "tea") -> tuple[int, int, int]:
    """Return the units on hand, committed and available."""
    found = read_level(RetryingClient(shop.store), product_id, shop.soon(), CommitStats())
    assert found.on_hand == found.committed + found.available
    return found.on_hand, found.committed, found.available


def pages(shop: Shop) -> dict[int, OutboundPage]:
    """Return the existing outbound pages by number."""
    found = shop.store.read(OUTBOUND_KEYS).outbound.values()
    return {page.key.number: page for page in found if page.version}


def outbound(shop: Shop) -> dict[str, int]:
    """Return the units on all outbound pages by product id."""
    units: dict[str, int] = {}
    for page in pages(shop).values():
        for lot, n in page.units.items():
            units[lot.product_id] = units.get(lot.product_id, 0) + n
    return units


def fold(shop: Shop) -> Fold:
    return Fold(RetryingClient(shop.store), shop.soon()).run()


def lease(shop: Shop, product_id: str = "tea", seconds: float = 60.0) -> Lease:
    client = RetryingClient(shop.store)
    return Lease.acquire(client, product_id, seconds, shop.soon(), outlive_deadline=True)


def on_hand_of_row(shop: Shop, product_id: str = "tea") -> int:
    return shop.product(product_id).on_hand


# ---------------------------------------------------------------- effects on the three numbers


def test_each_change_moves_the_numbers_that_it_should(shop):
    assert level(shop) == (10, 0, 10)
    sell(shop, "o-1", tea=4)
    assert level(shop) == (10, 4, 6)
    assert shop.do(command("o-1", "fulfil", "f-1", tea=3)) == [APPLIED]
    assert level(shop) == (7, 1, 6)
    assert shop.do(command("o-1", "return", "r-1", restock=True, tea=1)) == [APPLIED]
    assert level(shop) == (8, 1, 7)
    assert shop.do(command("o-1", "return", "r-2", restock=False, tea=1)) == [APPLIED]
    assert level(shop) == (8, 1, 7)
    assert shop.do(command("o-1", "cancel")) == [APPLIED]
    assert level(shop) == (8, 0, 8)
    shop.order("o-2", tea=2)
    assert shop.do(command("o-2", "cancel")) == [APPLIED]
    assert level(shop) == (8, 0, 8)
    shop.invoke(
        "adjust_stock", {"productId": "tea", "adjustmentId": "a", "delta": 5, "reason": "RECEIPT"}
    )
    assert level(shop) == (13, 0, 13)
    taken = {"action": "decrement", "productId": "tea", "adjustmentId": "d", "quantity": 2}
    assert shop.invoke("adjust_stock", taken | {"mode": "atomic"})["path"] == "atomic"
    assert level(shop) == (11, 0, 11)
    fold(shop)
    assert (level(shop), outbound(shop), on_hand_of_row(shop)) == ((11, 0, 11), {}, 11)


def test_a_hand_over_writes_its_order_and_one_page_and_no_product(shop):
    sell(shop, "o-1", tea=2, mug=3)
    sell(shop, "o-2", tea=1)
    before = shop.row("tea"), shop.row("mug")
    shop.calls.clear()
    done = shop.do(command("o-1", "fulfil"), command("o-2", "fulfil"))
    assert done == [APPLIED, APPLIED]
    assert shop.calls.count("TransactWriteItems") == 1
    assert (shop.row("tea"), shop.row("mug")) == before
    assert outbound(shop) == {"tea": 3, "mug": 3}
    ((number, page),) = pages(shop).items()
    steps = [shop.order_row(order_id)["steps"][-1] for order_id in ("o-1", "o-2")]
    assert {(step["outPage"], step["outVersion"]) for step in steps} == {(f"out/{number}", 1)}
    assert (page.version, "items" in steps[0]) == (1, False)


def test_a_process_keeps_its_page_and_reads_it_once(shop):
    worker = shop.worker()
    for number in range(4):
        sell(shop, f"o-{number}", tea=1)
    shop.calls.clear()
    for number in range(4):
        report = shop.commit(worker, command(f"o-{number}", "fulfil"))
        assert report.outcomes[0].kind is APPLIED
    # It reads the order each time, and all pages only the first time.
    assert (shop.calls.count("BatchGetItem"), shop.calls.count("TransactWriteItems")) == (5, 4)
    assert [page.version for page in pages(shop).values()] == [4]


def test_more_hand_overs_than_a_transaction_holds_go_one_after_the_other(shop):
    shop.list("cup", 100)
    orders = [f"o-{number}" for number in range(100)]
    for made in (
        partial(Order, user_id="u", quantities={"cup": 1}),
        partial(command, action="confirm"),
    ):
        assert set(shop.do(*(made(order_id) for order_id in orders))) == {APPLIED}
    sent = []
    shop.on("TransactWriteItems", lambda request: sent.append(len(request["TransactItems"])))
    assert set(shop.do(*(command(order_id, "fulfil") for order_id in orders))) == {APPLIED}
    assert (sent, outbound(shop)) == ([100, 2], {"cup": 100})


# ---------------------------------------------------------------- contention and faults of a hand-over


@pytest.mark.parametrize("code", ["TransactionConflict", "ThrottlingError", "ValidationError"])
def test_a_page_that_cannot_be_written_is_skipped_immediately(shop, code):
    worker = shop.worker()
    sell(shop, "o-0", tea=1)
    sell(shop, "o-1", tea=1)
    shop.commit(worker, command("o-0", "fulfil"))
    busy = str(worker._outbound._own)

    def refuse(request):
        actions = request["TransactItems"]
        of_page = [json.dumps(action).find(busy) >= 0 for action in actions]
        if any(of_page):
            reasons = [{"Code": code if hit else "None"} for hit in of_page]
            raise ServiceError(
                "TransactionCanceledException", extra={"CancellationReasons": reasons}
            )

    shop.on("TransactWriteItems", refuse)
    report = shop.commit(worker, command("o-1", "fulfil"))
    assert report.outcomes[0].kind is APPLIED
    assert report.stats.measured["RetryBackoffTime"] == []
    assert {str(OutboundKey(number)) for number in pages(shop)} - {busy}


FEW_ENTRIES = 100


def fill_pages(shop, monkeypatch, room=0):
    """Fill every outbound page with delisted products, but leave some room on the first one."""
    monkeypatch.setattr(outbound_pages, "MAX_OUTBOUND_ENTRIES", FEW_ENTRIES)
    lots = [Generation(f"p{n}", "then") for n in range(FEW_ENTRIES)]
    for key in OUTBOUND_KEYS:
        page = OutboundPage(key, 1, "e", dict.fromkeys(lots[0 if key.number else room :], 1))
        row = {"page": str(key), "_version": 1, "epoch": "e", "units": page_units(page)}
        shop.write(Table.ALLOTMENTS, row)


def test_a_full_page_is_skipped_and_without_room_a_hand_over_is_returned(shop, monkeypatch):
    fill_pages(shop, monkeypatch, room=1)
    sell(shop, "o-0", tea=1)
    sell(shop, "o-1", mug=1)
    report = shop.commit(shop.worker(), command("o-0", "fulfil"), command("o-1", "fulfil"))
    assert [outcome.kind for outcome in report.outcomes] == [APPLIED, RETURNED]
    assert report.outcomes[1].cause == "OUTBOUND_PAGES_FULL"
    assert fold(shop).folded == 8 * FEW_ENTRIES
    assert shop.do(command("o-1", "fulfil")) == [APPLIED]
    assert (level(shop), level(shop, "mug")) == ((9, 0, 9), (9, 0, 9))


def test_a_page_that_cannot_be_read_stops_no_hand_over_and_is_reported(shop):
    row = {"_version": 1, "epoch": "e", "units": zlib.compress(b'[["tea","then",-1]]')}
    shop.write(Table.ALLOTMENTS, *({"page": f"out/{n}", **row} for n in range(7)))
    sell(shop, "o-0", tea=1)
    assert shop.do(command("o-0", "fulfil")) == [APPLIED]
    assert shop.item(Table.ALLOTMENTS, "out/7") is not None
    assert len(fold(shop).problems) == 7


# ---------------------------------------------------------------- folds


def test_the_sweep_folds_and_says_so(shop):
    ship(shop, "o-1", tea=2)
    assert shop.invoke("sweep", {"action": "sweep"})["folded"] == 1
    assert on_hand_of_row(shop) == 8


def test_a_fold_drops_delisted_products_and_keeps_generations_apart(shop):
    sell(shop, "o-1", tea=2)
    sell(shop, "o-2", mug=1)
    shop.delist("tea")
    shop.list("tea", 5)
    sell(shop, "o-3", tea=1)
    done = shop.do(*(command(f"o-{number}", "fulfil") for number in (1, 2, 3)))
    assert done == [APPLIED] * 3
    ((_, page),) = pages(shop).items()
    assert sorted(lot.product_id for lot in page.units) == ["mug", "tea", "tea"]
    assert level(shop) == (4, 0, 4)
    assert fold(shop).folded == 3
    assert (on_hand_of_row(shop), on_hand_of_row(shop, "mug"), outbound(shop)) == (4, 9, {})


def test_a_row_that_cannot_be_written_is_reported_and_stops_no_other(shop):
    ship(shop, "o-1", tea=2, mug=3)
    row = shop.row("tea")
    del row["onHand"]
    shop.items(Table.PRODUCTS)["tea",] = row
    done = fold(shop)
    assert (done.folded, outbound(shop), on_hand_of_row(shop, "mug")) == (1, {"tea": 2}, 7)
    (problem,) = done.problems
    assert "tea" in problem


@pytest.mark.parametrize(
    ("code", "requests", "problems"),
    [("TransactionConflict", 8, 0), ("ThrottlingError", 8, 0), ("SomethingNew", 1, 1)],
)
def test_a_page_that_a_fold_cannot_write_is_left_to_the_next_sweep(shop, code, requests, problems):
    ship(shop, "o-1", tea=2)
    reasons = [{"Code": code}, {"Code": "None"}]
    refusal = ServiceError("TransactionCanceledException", extra={"CancellationReasons": reasons})
    shop.refuse("TransactWriteItems", refusal)
    shop.calls.clear()
    done = fold(shop)
    assert (shop.calls.count("TransactWriteItems"), len(done.problems)) == (requests, problems)
    shop.calm()
    assert fold(shop).folded == 1


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalServerError"])
def test_a_fold_without_an_answer_is_unfinished_but_not_a_problem(shop, code):
    ship(shop, "o-1", tea=2)
    shop.refuse("TransactWriteItems", ServiceError(code))
    done = fold(shop)
    assert (code in done.unfinished, done.problems, outbound(shop)) == (True, {}, {"tea": 2})


def test_a_fold_of_a_page_with_many_products_takes_several_transactions(shop):
    for number in range(120):
        shop.list(f"p{number}", 1)
    worker = shop.worker()
    for first in (0, 60):
        units = {f"p{number}": 1 for number in range(first, first + 60)}
        sell(shop, f"o-{first}", **units)
        shop.commit(worker, command(f"o-{first}", "fulfil"))
    sent = []
    shop.on("TransactWriteItems", lambda request: sent.append(len(request["TransactItems"])))
    assert (fold(shop).folded, sent) == (120, [99, 23])
    assert outbound(shop) == {}
    assert all(on_hand_of_row(shop, f"p{number}") == 0 for number in range(120))


def test_the_fullest_page_is_folded_first(shop):
    for number, size in enumerate((1, 3, 2)):
        lots = [Generation(f"p{n}", "then") for n in range(size)]
        page = OutboundPage(OutboundKey(number), 1, "e", dict.fromkeys(lots, 1))
        row = {"page": str(page.key), "_version": 1, "epoch": "e", "units": page_units(page)}
        shop.write(Table.ALLOTMENTS, row)
    shop.once("TransactWriteItems", lambda request: sent.append(json.dumps(request)))
    sent = []
    fold(shop)
    assert "out/1" in sent[0]


def test_rows_that_are_too_large_for_one_transaction_are_folded_in_several(shop):
    units = {f"p{number}": 1 for number in range(12)}
    for product_id in units:
        shop.list(product_id, 5, size=390_000)
    for first in (0, 6):
        some = list(units)[first : first + 6]
        sell(shop, f"o-{first}", **dict.fromkeys(some, 1))
        shop.do(command(f"o-{first}", "fulfil"))
    ship(shop, "o-tea", tea=1)
    done = fold(shop)
    assert (done.folded, done.problems, outbound(shop)) == (13, {}, {})
    assert {on_hand_of_row(shop, product_id) for product_id in units} == {4}


# ---------------------------------------------------------------- counts


def test_units_handed_over_during_a_count_count_as_on_hand(shop):
    sell(shop, "o-1", tea=3)
    shop.do(command("o-1", "fulfil", "f-1", tea=1))
    begun = lease(shop)
    assert begun.product.lock_on_hand == 9
    shop.do(command("o-1", "fulfil", "f-2", tea=1))
    assert fold(shop).folded == 0, "nothing is folded during a count"
    count = begun.commit(8, "count", shop.soon())
    assert (count.delta, begun.handed_over) == (-1, 1)
    assert level(shop) == (7, 1, 6)
    fold(shop)
    assert (level(shop), on_hand_of_row(shop)) == ((7, 1, 6), 7)


@pytest.mark.parametrize("fault", ["damaged", "busy"])
def test_a_count_is_booked_although_pages_are_unreadable(shop, fault):
    begun = lease(shop)
    if fault == "damaged":
        shop.write(Table.ALLOTMENTS, {"page": "out/0", "_version": 1, "epoch": "e", "units": b"?"})
    else:
        reasons = {"CancellationReasons": [{"Code": "TransactionConflict"}]}
        shop.refuse("TransactGetItems", ServiceError("TransactionCanceledException", extra=reasons))
    assert begun.commit(9, "count", shop.soon()).delta == -1
    assert begun.handed_over is None


def test_a_lease_lasts_from_when_it_was_taken_however_long_its_acquisition(shop):
    began = shop.clock.now()
    shop.once("TransactGetItems", lambda _: shop.clock.sleep(4.0))
    begun = lease(shop, seconds=10.0)
    assert float(begun.expires_at) == pytest.approx(began + 10.0, abs=0.1)
    assert begun.product.lock_on_hand == 10


def test_a_count_below_what_orders_hold_books_nothing_and_keeps_the_lease(shop):
    sell(shop, "o-1", tea=4)
    begun = lease(shop)
    with pytest.raises(
        RejectedError, match="2 more units of tea than that count allows"
    ) as refused:
        begun.commit(2, "count", shop.soon())
    assert refused.value.code == "BELOW_FLOOR"
    assert (level(shop), shop.record(AdjustmentKey("tea", "count"))) == ((10, 4, 6), None)
    assert begun.commit(4, "count", shop.soon()).delta == -6
    assert level(shop) == (4, 4, 0)


def test_a_count_may_leave_units_on_backorder_and_is_booked_where_it_takes_none(shop):
    shop.list("rare", 4, backorder_limit=5)
    sell(shop, "o-1", rare=4)
    assert lease(shop, "rare").commit(1, "count", shop.soon()).delta == -3
    assert level(shop, "rare") == (1, 4, -3)
    # Another program sets a limit below the current backorders.
    shop.edit(Table.PRODUCTS, "rare", backorderLimit={"N": "0"})
    assert lease(shop, "rare").commit(2, "again", shop.soon()).delta == 1


def test_units_shipped_before_their_receipt_are_named_when_a_count_begins(shop):
    shop.list("early", 0, backorder_limit=5)
    ship(shop, "o-1", early=2)
    asked = {"action": "acquire", "productId": "early", "seconds": 60}
    answer = shop.invoke("count_stock", asked)
    assert (answer["onHand"], answer["committed"], answer["available"]) == (-2, 0, -2)
    assert "before their receipt" in answer["message"]


# ---------------------------------------------------------------- lost units, delisting


def test_a_unit_lost_after_its_order_was_cancelled_is_refused_and_not_called_done(shop):
    """The unit is on sale again, so a correction has to remove it."""
    sell(shop, "o-1", tea=2)
    lost = command("o-1", "cancel", "lost", restock=False, tea=1)
    assert shop.do(command("o-1", "cancel")) == [APPLIED]
    (outcome,) = shop.commit(shop.worker(), lost).outcomes
    assert (outcome.kind, outcome.cause) == (Outcome.REJECTED, "ORDER_CANCELLED")
    assert shop.do(command("o-1", "cancel", "part", tea=1)) == [REPLAYED]
    sell(shop, "o-2", tea=2)
    lost = command("o-2", "cancel", "lost", restock=False, tea=2)
    assert shop.do(lost, lost, command("o-2", "cancel")) == [APPLIED, REPLAYED, REPLAYED]
    assert level(shop) == (8, 0, 8)


def test_a_closing_says_what_the_row_had_on_hand_also_after_a_fold(shop):
    sell(shop, "o-1", tea=3)
    shop.do(command("o-1", "fulfil", "f", tea=2))
    created = shop.product("tea").created_at
    shop.once("TransactWriteItems", lambda _: fold(shop) and None)
    shop.delist("tea")
    closing = AdjustmentKey("tea", f"closing-{created.removesuffix('+00:00')}")
    record = shop.record(closing)
    assert (record.delta, record.on_hand_delta) == (-7, -8)
    # Later hand-overs are dropped.
    assert shop.do(command("o-1", "fulfil")) == [APPLIED]
    fold(shop)
    assert outbound(shop) == {}


def test_an_order_that_does_not_say_what_it_took_is_not_handed_over(shop):
    sell(shop, "o-1", tea=1)
    row = shop.order_row("o-1")
    del row["items"][0]["productCreatedAt"]
    shop.write(Table.ORDERS, row)
    assert shop.do(command("o-1", "fulfil")) == [RETURNED]
    assert (outbound(shop), shop.record(OrderKey("o-1")).status) == ({}, "CONFIRMED")
