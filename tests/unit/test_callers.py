"""Orders of callers who wait: from rows at first, then from a lane of the API, and never after a wait for other processes."""

import pytest

from inventory_orders.domain.allotments import DEPOT
from inventory_orders.errors import Outcome
from testing.schedules.in_turn.lanes import LaneShop
from testing.schedules.in_turn.shop import Fault
from testing.world.faults import cancelled, cancels

APPLIED, REJECTED, RETURNED = Outcome.APPLIED, Outcome.REJECTED, Outcome.RETURNED
READ, UPDATE, WRITE = "BatchGetItem", "UpdateItem", "TransactWriteItems"
LOST = Fault(error=cancelled("TransactionConflict", "None"))
LANE = 2
"""The lane of the only process of the API that has one: the shop's workers have lane 1."""


class Door(LaneShop):
    """A shop whose orders come through a process of the API."""

    def order(self, process, *product_ids, losses=0, units=1):
        """Let a process place an order, and let concurrent writers win over its first transactions. Returns its outcome."""
        self.planned[WRITE].extend([LOST] * losses)
        (outcome,) = self.outcomes(process, self.new_order(*product_ids, units=units))
        assert not self.planned[WRITE], "the order was tried as often as planned"
        return outcome

    @property
    def last_source(self):
        return self.source(f"o{self.orders}")


@pytest.fixture
def shop():
    with Door().open() as shop:
        yield shop
        shop.check()


def test_each_attempt_from_a_row_takes_one_read_and_one_transaction(shop):
    shop.list("p")
    process = shop.api()
    for losses in (0, 0, 1):
        assert shop.order(process, "p", losses=losses) is APPLIED
        assert shop.calls == [READ, WRITE] * (1 + losses)
    assert (shop.last_source, shop.product().lent_to) == (None, frozenset())


def test_after_a_lost_attempt_orders_come_from_a_lane_with_one_request(shop):
    shop.list("p", 10_000)
    process = shop.api()
    assert shop.order(process, "p", losses=1) is APPLIED
    assert shop.order(process, "p") is APPLIED
    take_a_lane, look_at_stock, visit = [READ, UPDATE], [READ], [READ, READ, UPDATE, READ, WRITE]
    assert shop.calls == [*take_a_lane, *look_at_stock, *visit]
    for _ in range(20):
        assert shop.order(process, "p") is APPLIED
        assert (shop.calls, shop.last_source) == ([WRITE], LANE)


def test_an_order_is_tried_twice_at_most(shop):
    shop.list("p", 10_000)
    process = shop.api()
    shop.on(WRITE, cancels("TransactionConflict", lambda _: True))
    for _ in range(2):
        assert shop.order(process, "p") is RETURNED
        assert shop.calls.count(WRITE) == 2


def test_a_scarce_product_is_soon_tried_again_after_a_single_loss(shop):
    """A process that sold on without a pause would keep the workers' loans from succeeding."""
    shop.list("p", 40)
    process = shop.api()
    assert shop.order(process, "p", losses=1) is APPLIED
    assert shop.order(process, "p") is RETURNED
    shop.clock.sleep(0.6)
    assert shop.order(process, "p") is APPLIED
    assert shop.last_source is None


def test_without_lanes_everything_is_sold_from_rows(shop):
    shop.list("p", 10_000)
    process, worker = shop.api(0, 0), shop.seller(lanes=0)
    assert shop.order(process, "p", losses=1) is APPLIED
    assert shop.order(process, "p") is RETURNED, "a worker of the express queue sells it"
    assert shop.outcomes(worker, shop.new_order("p")) == [APPLIED]
    assert shop.calls == [READ, WRITE]
    assert (shop.last_source, shop.product().lent_to) == (None, frozenset())


@pytest.mark.parametrize("obstacle", ["no lane", "scarce", "depot in use"])
def test_an_order_for_which_no_lane_can_be_filled_is_returned(shop, obstacle):
    shop.list("p", 39 if obstacle == "scarce" else 40)
    process = shop.api()
    if obstacle == "no lane":
        shop.occupy(LANE, 60)
    if obstacle == "depot in use":
        shop.occupy(DEPOT, 60)
    began = shop.clock.seconds
    assert shop.order(process, "p", losses=2) is RETURNED
    assert shop.clock.seconds - began < 0.5
    assert shop.order(process, "p") is RETURNED
    assert WRITE not in shop.calls, "for a while, no attempt is made"
    shop.clock.sleep(11)
    assert shop.order(process, "p") is APPLIED
    assert (shop.last_source, shop.calls) == (None, [READ, WRITE])


def test_without_a_free_lane_rows_that_others_just_wrote_are_left_to_workers(shop):
    shop.list("p", 10_000)
    shop.list("q")
    process, other = shop.api(), shop.api()
    shop.occupy(LANE, 60)
    assert [shop.order(each, "q") for each in (other, process)] == [APPLIED, APPLIED], "not known"
    for losses in (2, 0):
        assert shop.order(process, "p", losses=losses) is RETURNED
    assert shop.order(other, "q") is APPLIED
    assert shop.order(process, "q") is RETURNED
    assert shop.calls == [READ]
    shop.clock.sleep(0.1)
    for _ in range(2):
        assert shop.order(process, "q") is APPLIED, "its own order does not matter"
    assert shop.last_source is None
    shop.clock.sleep(5)
    assert [shop.order(each, "q") for each in (other, process)] == [APPLIED, APPLIED], "too old"


def test_the_api_stays_away_from_a_depot_that_others_wait_for(shop):
    shop.list("p", 10_000)
    process = shop.api()
    assert shop.order(process, "p", losses=1) is APPLIED
    for _ in range(10):
        process.source.depot.line.observe(0.1)
    assert shop.order(process, "p") is RETURNED
    assert not shop.calls
    shop.clock.sleep(2.1)
    assert shop.order(process, "p", losses=1) is APPLIED
    assert shop.order(process, "p") is APPLIED
    assert shop.last_source == LANE


def test_the_api_recalls_no_units(shop):
    """Another process empties the depot just before the visit, when the depot has seemed to have enough."""
    shop.list_lent(stock=101, lanes={1: 0}, depot=100)
    process = shop.api()
    leases = []

    def fill_another_lane(request):
        leases.append(request)
        if len(leases) == 2:
            shop.fill(1, units=100)

    assert shop.order(process, "p", units=2) is RETURNED, "its row has too few"
    shop.on(UPDATE, fill_another_lane)
    assert shop.order(process, "p", units=2) is RETURNED
    assert len(leases) >= 2
    assert (shop.stock(), shop.held()) == (1, {1: 100})


def test_a_lane_of_the_api_has_at_most_twenty_products(shop):
    names = [f"p{number:02}" for number in range(30)]
    for product_id in names:
        shop.list(product_id, 10_000)
    process = shop.api()
    for product_id in names:
        shop.order(process, product_id, losses=2)
        shop.order(process, product_id)
        in_lane = [p for p in names if LANE in shop.held(p)]
        assert len(in_lane) <= 20
    assert len(in_lane) >= 15


def test_units_of_a_dead_process_are_back_within_ten_seconds(shop):
    shop.list("p", 10_000)
    dead, other = shop.api(api_lanes=2), shop.api(api_lanes=2)
    for process in (dead, other):
        shop.order(process, "p", losses=1)
        shop.order(process, "p")
    lane = dead.source.lane.number
    assert shop.held()[lane] > 20
    for _ in range(10):
        shop.clock.sleep(1)
        assert shop.order(other, "p") is APPLIED
    assert lane not in shop.held()


def test_a_process_that_was_paused_sells_nothing_from_its_lane_once_it_is_empty(shop):
    """It is paused after it has decided to sell from the lane, and while its lease ends."""
    shop.list("p", 100)
    paused, worker = shop.api(), shop.owner(lanes=1)
    worker.source.lane.last = LANE
    shop.order(paused, "p", losses=1)
    shop.order(paused, "p")
    held = shop.held()[LANE]

    def sell_out(_):
        shop.clock.sleep(6)
        assert shop.outcomes(worker, shop.new_order("p", units=98)) == [APPLIED]

    shop.once(WRITE, sell_out)
    assert shop.order(paused, "p", units=held) in (REJECTED, RETURNED)
    assert (shop.stock(), shop.held()) == (0, {})
