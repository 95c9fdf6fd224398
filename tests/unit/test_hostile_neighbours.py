"""Difficult neighbours: huge rows, a throttled product, wrong clocks, and a frozen worker.

The real client and engine run on the simulated AWS, in virtual time.
"""

import math
from datetime import datetime

import pytest

from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.product import CatalogueEvent, NewProduct
from inventory_orders.domain.record import OrderAction
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import (
    CorruptItemError,
    Outcome,
    StoreError,
    StoreUnavailableError,
)
from inventory_orders.products.lease import Lease
from inventory_orders.store.tables import Table
from testing.aws import ServiceError
from testing.schedules.in_turn.bench import statuses
from testing.world.faults import LOST, THROTTLED, cancels, leaves_out, of_product
from testing.world.world import INVOCATION_SECONDS

APPLIED, REPLAYED, REJECTED = Outcome.APPLIED, Outcome.REPLAYED, Outcome.REJECTED
INVALID, RETURNED = Outcome.INVALID, Outcome.RETURNED

HOUR = 3600.0
LARGEST_ROW = 400 * 1024
EVENT = CatalogueEvent("full", "e", "2026-01-01", {"name": "a name"})


def order(number, *product_ids):
    return Order(f"o{number}", "u", dict.fromkeys(product_ids, 1))


def contested_worker(shop, lanes):
    """Make a worker. A worker with lanes has already met concurrent writers."""
    worker = shop.worker(lanes=lanes)
    for (product_id,) in shop.items(Table.PRODUCTS) if lanes else ():
        worker.client.rivals.observe(product_id)
    return worker


def throttle(shop, product_id, seconds=math.inf):
    """Make DynamoDB throttle every write of a product for some seconds."""
    is_it, end = of_product(product_id), shop.clock.now() + seconds
    cancel = cancels("ThrottlingError", is_it)

    def before(operation, request):
        if shop.clock.now() > end or not is_it(request):
            return
        if operation == "UpdateItem":
            raise THROTTLED
        if operation == "TransactWriteItems":
            cancel(request)

    shop.before = before


# ---------------------------------------------------------------- huge rows


def test_orders_are_placed_although_rows_have_300_kb(shop):
    """The rows exceed the 16 MB of a BatchGetItem, and are many times as large as the 4 MB of a transaction."""
    large, small = [f"large{n}" for n in range(57)], [f"small{n}" for n in range(42)]
    shop.list_all(*large, size=300_000)
    shop.list_all(*small)
    worker, shop.calls = shop.worker(), []
    report = shop.commit(worker, *(order(i, i) for i in large + small))
    assert statuses(report) == [APPLIED] * 99
    assert shop.calls.count("BatchGetItem") == 3, (
        "two reads of at most 100 keys, and one for the rest of 17 MB"
    )
    assert shop.calls.count("TransactWriteItems") == 5, "no fewer transactions can hold 17 MB"
    assert set(shop.unexplained().values()) == {0}


def test_huge_rows_are_not_cached(shop):
    shop.list("large", size=300_000)
    shop.list("small")
    worker = shop.worker()
    for number in range(4):
        shop.commit(worker, order(number, "large"), order(-1 - number, "small"))
    reads = []
    for number, product_id in ((10, "small"), (11, "large")):
        shop.calls = []
        shop.commit(worker, order(number, product_id))
        reads.append(shop.calls.count("BatchGetItem"))
    assert reads == [0, 1]


def test_an_order_too_large_for_one_transaction_is_answered_by_name(shop):
    large = [f"p{n}" for n in range(14)]
    shop.list_all(*large, size=300_000)
    report = shop.commit(
        shop.worker(),
        *(order(i, i) for i in large),
        order("many", *large),
        order("few", *large[:9]),
    )
    assert statuses(report) == [APPLIED] * 14 + [INVALID, APPLIED]
    assert report.outcomes[14].cause == "REFUSED_BY_DYNAMODB"
    assert "4 MB" in report.outcomes[14].detail
    assert set(shop.unexplained().values()) == {0}


@pytest.mark.parametrize("action", [OrderAction.CANCEL, OrderAction.CONFIRM])
def test_orders_that_another_program_made_huge_continue_their_life(shop, action):
    """The engine does not read other programs' attributes, so it halves the batch until the unknown sizes fit."""
    shop.list("p", stock=20)
    worker = shop.worker()
    assert statuses(shop.commit(worker, *(order(n, "p") for n in range(20)))) == [APPLIED] * 20
    orders = shop.items(Table.ORDERS)
    for key, row in list(orders.items()):
        orders[key] = row | {
            "othersAttribute": {"S": "x" * (LARGEST_ROW if key == ("o0",) else 300_000)}
        }
    ended = statuses(shop.commit(worker, *(OrderCommand(f"o{n}", action) for n in range(20))))
    assert ended == [INVALID] + [APPLIED] * 19
    assert shop.stock("p") == (19 if action is OrderAction.CANCEL else 0)
    assert shop.unexplained() == {"p": 0}


@pytest.mark.parametrize("lanes", [0, 1])
def test_a_row_without_room_returns_its_own_orders_by_name(shop, lanes):
    """An order would add `lastUpdatedAt` to the row, and a loan would add `lentTo`; neither fits."""
    shop.list_all("other", "full")
    del shop.items(Table.PRODUCTS)["full",]["lastUpdatedAt"]
    shop.edit(Table.PRODUCTS, "full", others={"S": ""})
    shop.edit(Table.PRODUCTS, "full", others={"S": "x" * (LARGEST_ROW - shop.size("full"))})
    worker, shop.calls = contested_worker(shop, lanes), []
    report = shop.commit(
        worker,
        *(order(100 + n, "full") for n in range(50)),
        order(200, "full", "other"),
        *(order(300 + n, "other") for n in range(40)),
    )
    assert statuses(report) == [RETURNED] * 51 + [APPLIED] * 40
    assert {outcome.cause for outcome in report.outcomes[:51]} == {"CORRUPT_PRODUCT"}
    assert "row of product full" in report.outcomes[0].detail
    assert "maximum allowed size" in report.outcomes[0].detail
    assert shop.calls.count("TransactWriteItems") <= 3, "it is recognised, not found by halving"
    assert report.failure is None


@pytest.mark.parametrize(
    "change",
    [
        lambda shop: Lease.acquire(RetryingClient(shop.store), "full", 30, shop.soon()),
        lambda shop: shop.products.change_details(EVENT, shop.soon()),
    ],
    ids=["count", "details"],
)
def test_a_row_without_room_refuses_other_changes_and_is_unchanged(shop, change):
    shop.list("full", size=LARGEST_ROW)
    before = shop.row("full")
    with pytest.raises(CorruptItemError, match=r"row of product full .*maximum allowed size"):
        change(shop)
    assert shop.row("full") == before


# ---------------------------------------------------------------- a throttled product


@pytest.mark.parametrize("lanes", [0, 1])
@pytest.mark.parametrize("seconds", [5, math.inf])
def test_a_throttled_product_does_not_delay_the_rest_of_its_batch(shop, lanes, seconds):
    """If throttling ends soon, the throttled product's own orders are placed in the same batch, otherwise later."""
    shop.list_all("hot", "p", "q")
    worker, began = contested_worker(shop, lanes), shop.clock.now()
    throttle(shop, "hot", seconds)
    own = [order("own1", "hot"), order("own2", "hot", "p")]
    others = [order(n, ("p", "q")[n % 2]) for n in range(12)]
    report = shop.commit(worker, *own, *others)
    assert statuses(report)[2:] == [APPLIED] * 12
    placed = (datetime.fromisoformat(shop.order_row(o.order_id)["createdAt"]) for o in others)
    assert max(placed).timestamp() - began < 1
    assert shop.clock.now() - began < INVOCATION_SECONDS
    assert statuses(report)[:2] == [RETURNED if seconds == math.inf else APPLIED] * 2
    shop.calm()
    again = REPLAYED if seconds == 5 else APPLIED
    assert statuses(shop.commit(worker, *own)) == [again] * 2
    assert set(shop.unexplained().values()) == {0}


@pytest.mark.parametrize("lanes", [0, 1])
@pytest.mark.parametrize("refuses", [False, True])
def test_a_product_that_cannot_be_read_only_returns_its_own_orders(shop, lanes, refuses):
    shop.list_all("hot", "p")
    worker = contested_worker(shop, lanes)
    shop.on("BatchGetItem", leaves_out(shop, of_product("hot"), refuses=refuses))
    began = shop.clock.now()
    report = shop.commit(worker, order(1, "hot"), order(2, "p"))
    assert statuses(report) == [RETURNED, APPLIED]
    assert report.outcomes[0].cause == "UNPROCESSED_KEYS"
    assert lanes or shop.clock.now() - began < 2
    shop.calm()
    assert statuses(shop.commit(worker, order(1, "hot"))) == [APPLIED]


def test_a_replay_is_answered_although_its_product_cannot_be_read(shop):
    shop.list_all("hot", "p")
    worker = shop.worker()
    assert statuses(shop.commit(worker, order(1, "hot"), order(2, "p"))) == [APPLIED, APPLIED]
    assert statuses(shop.commit(worker, order(2, "p"))) == [REPLAYED]
    shop.on("BatchGetItem", leaves_out(shop, of_product("hot")))
    report = shop.commit(worker, order(1, "hot"), order(3, "hot"))
    assert statuses(report) == [REPLAYED, RETURNED]


# ---------------------------------------------------------------- wrong clocks


def test_no_order_is_lost_by_a_clock_that_aws_refuses(shop):
    """If a clock is off by more than 5 minutes, AWS refuses every signature, and the SDK does not correct the clock."""
    shop.list("p")
    refused = ServiceError("InvalidSignatureException", "Signature expired")
    shop.refuse("BatchGetItem", refused)
    report = shop.commit(shop.worker(-400.0), order(1, "p"))
    assert statuses(report) == [RETURNED]
    assert isinstance(report.failure, StoreUnavailableError)
    shop.calm()
    assert shop.do(order(1, "p")) == [APPLIED]


# ---------------------------------------------------------------- a frozen worker


def freeze(shop, meanwhile):
    """Freeze the next transaction's worker for an hour before the request arrives, while other workers continue."""

    def frozen(_request):
        shop.clock.sleep(HOUR)
        meanwhile()

    shop.once("TransactWriteItems", frozen)


def lose_and_freeze(shop, meanwhile):
    """Apply the next transaction, lose its response, and freeze its worker before it repeats the request.

    By then DynamoDB has forgotten the token, so it treats the repetition as a new request.
    """

    def lose(request):
        shop.aws.answer("dynamodb", "TransactWriteItems", request)
        freeze(shop, meanwhile)
        raise LOST

    shop.once("TransactWriteItems", lose)


@pytest.mark.parametrize("lanes", [0, 1])
@pytest.mark.parametrize("stop", [freeze, lose_and_freeze])
def test_a_worker_frozen_for_an_hour_places_nothing_twice(shop, stop, lanes):
    """In some cases, the frozen worker is visiting the depot."""
    shop.list("p", stock=10)
    frozen, other = contested_worker(shop, lanes), shop.worker()
    orders = [order(1, "p"), order(2, "p")]

    def meanwhile():
        done = APPLIED if stop is freeze else REPLAYED
        assert statuses(shop.commit(other, *orders, order(3, "p"))) == [done, done, APPLIED]
        assert statuses(shop.commit(other, OrderCommand("o2", OrderAction.CANCEL))) == [APPLIED]

    stop(shop, meanwhile)
    assert statuses(shop.commit(frozen, *orders)) == [REPLAYED, REPLAYED]
    assert shop.unexplained() == {"p": 0}
    assert shop.do(Order("all", "u", {"p": 8})) == [APPLIED]
    assert (shop.stock("p"), shop.unexplained()) == (0, {"p": 0})


def test_refusals_for_a_busy_row_take_one_read_each_after_other_changes(shop):
    """One read does not cover all refusals, and after each read, the product's row has changed again."""
    shop.list("p", stock=5)
    shop.list("q")

    def write(_):
        version = str(int(shop.row("p")["_version"]["N"]) + 1)
        shop.edit(Table.PRODUCTS, "p", _version={"N": version})

    shop.calls.clear()
    shop.on("TransactGetItems", write)
    short = [Adjustment("p", f"c{number}", -50, "CORRECTION") for number in range(250)]
    assert shop.do(*short, Adjustment("q", "r", 7, "RECEIPT")) == [REJECTED] * 250 + [APPLIED]
    asked = [name for name in shop.calls if name != "BatchGetItem"]
    assert asked == ["TransactWriteItems", *["TransactGetItems"] * 3]


def test_a_refusal_that_cannot_be_checked_does_not_delay_others(shop):
    shop.list("p", stock=5)
    shop.list("q")
    shop.refuse("TransactGetItems", THROTTLED)
    short, receipt = Adjustment("p", "c", -50, "CORRECTION"), Adjustment("q", "r", 7, "RECEIPT")
    assert shop.do(short, receipt) == [RETURNED, APPLIED]


def test_a_product_delisted_while_its_creator_was_frozen_stays_delisted(shop):
    lose_and_freeze(shop, lambda: shop.delist("p"))
    with pytest.raises(StoreError):
        shop.products.create(NewProduct("p", 10), shop.soon(2 * HOUR))
    assert not shop.items(Table.PRODUCTS)
    assert shop.unexplained() == {"p": 0}
