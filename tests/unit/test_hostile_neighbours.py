"""Difficult neighbours: huge rows, a throttled product, wrong clocks, and a frozen worker.

The real client and engine run on the simulated AWS, in virtual time.
"""

import json
import math
from datetime import UTC, datetime

import pytest

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.adjustment import Adjustment, Decrement
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.product import CatalogueEvent, NewProduct
from inventory_orders.domain.record import OrderAction
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import (
    CorruptItemError,
    LeaseLostError,
    Outcome,
    StoreError,
    StoreUnavailableError,
)
from inventory_orders.products.catalogue import AtomicDecrement
from inventory_orders.products.lease import Lease
from inventory_orders.store.tables import Table
from testing.aws import ServiceError
from testing.schedules.in_turn.bench import statuses
from testing.world.events import order_body
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


# ---------------------------------------------------------------- hostile bodies


LONG = 250_000
LISTS = 500
"""As many levels as a parsed body may have, but more than a recursive search of it may have."""

GOOD = {
    "Order": order_body("o1", {"tea": 1}),
    "OrderFifo": order_body("o1", {"tea": 1}),
    "Stock": {"adjustmentId": "a", "productId": "tea", "delta": 5, "reason": "RECEIPT"},
    "Catalogue": {
        "eventId": "e",
        "eventTime": "2026-01-01T00:00:00Z",
        "productId": "tea",
        "details": {"name": "Tea"},
    },
    "OrderCommand": {"orderId": "paid", "action": "confirm"},
    "Expiry": {"orderId": "paid"},
}
"""A good message for each queue."""


def hostile(good):
    """Bodies of up to 256 KB, some of which are almost a good message."""
    deep = "[" * LISTS + "]" * LISTS
    almost = json.dumps(good)[:-1]
    return [
        "[" * LONG,
        "[" * LISTS + "0," * (LONG // 2) + "NaN" + "]" * LISTS,
        '{"a":' * LISTS + "[" + '{"a":1,"a":2},' * (LONG // 15) + "0]" + "}" * LISTS,
        f'{almost}, "locations": [{deep}], "items": [{deep}]}}',
        f'{almost}, "locations": [{deep}]}}',
        f'{almost}, "attributes": {{"{"k" * LONG}": null}}}}',
        f'{almost}, "attributes": {{"\\ud800": null}}, "\\ud800": 1}}',
        f'{{"orderId": {"9" * LONG}}}',
        "\ufeff",
    ]


@pytest.mark.parametrize("queue", GOOD)
def test_hostile_bodies_end_at_their_first_delivery_and_a_good_message_is_applied(shop, queue):
    shop.list("tea", stock=10)
    shop.commit(shop.worker(), Order("paid", "u", {"tea": 1}))
    before, bodies = (shop.items(Table.PRODUCTS) | shop.items(Table.ORDERS)), hostile(GOOD[queue])
    group = {"MessageGroupId": "g"} if queue == "OrderFifo" else {}
    for body in [*bodies, json.dumps(GOOD[queue])]:
        request = {"QueueUrl": shop.queues[queue].url, "MessageBody": body, **group}
        shop.aws.sqs.answer("SendMessage", request)
    assert shop.deliver(queue) == 0
    assert not shop.queues[queue].messages
    assert [letter.body for letter in shop.dead_letters(queue)] == bodies
    after = shop.items(Table.PRODUCTS) | shop.items(Table.ORDERS)
    assert (after == before) is (queue == "Expiry"), "an order without a hold does not expire"


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


def test_a_product_is_throttled_briefly_while_another_is_counted(shop):
    shop.list_all("hot", "counted")
    worker = shop.worker()
    deadline = shop.soon(INVOCATION_SECONDS)
    Lease.acquire(RetryingClient(shop.store), "counted", 10, deadline, outlive_deadline=True)
    throttle(shop, "hot", seconds=2)
    report = shop.commit(worker, order(1, "hot"), order(2, "counted"))
    assert statuses(report) == [APPLIED, APPLIED]


def test_a_group_keeps_its_sequence_behind_a_throttled_product(shop):
    shop.list_all("hot", "p")
    throttle(shop, "hot")
    in_groups = [("hot", "g"), ("p", "g"), ("p", "h")]
    orders = [Order(f"o{n}", "u", {i: 1}, group=g) for n, (i, g) in enumerate(in_groups)]
    assert shop.do(*orders) == [RETURNED, RETURNED, APPLIED]


# ---------------------------------------------------------------- wrong clocks


@pytest.mark.parametrize("off", [300.0, -300.0])
def test_a_count_by_a_wrong_clock_excludes_others_or_is_refused(shop, off):
    """A lease whose end comes from a slow clock protects nothing, so the count must not rely on it."""
    shop.list("p", stock=10)
    owner, seller = shop.worker(off), shop.worker()
    clock = owner.client.clock
    deadline = Deadline.after(INVOCATION_SECONDS, clock)
    lease = Lease.acquire(
        RetryingClient(shop.store, clock=clock), "p", 60, deadline, outlive_deadline=True
    )
    outcome = shop.commit(seller, order(1, "p"), seconds=5).outcomes[0]
    if off > 0:
        assert (outcome.kind, outcome.cause) == (RETURNED, "LEASED")
        assert 350 < outcome.retry_after < 361
        assert lease.commit(7, "count", deadline).delta == -3
    else:
        assert outcome.kind is APPLIED
        with pytest.raises(LeaseLostError):
            lease.commit(7, "count", deadline)
    assert shop.unexplained() == {"p": 0}


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


@pytest.mark.parametrize("stop", [freeze, lose_and_freeze])
@pytest.mark.parametrize("first", [OrderAction.CONFIRM, OrderAction.CANCEL, OrderAction.EXPIRE])
@pytest.mark.parametrize("second", [OrderAction.CONFIRM, OrderAction.CANCEL, OrderAction.EXPIRE])
def test_commands_frozen_for_an_hour_end_an_order_once(shop, stop, first, second):
    """Whichever command comes first, the other one finds the order in the resulting status."""
    shop.list("p", stock=10)
    frozen, other = shop.worker(), shop.worker()
    held = Order("o", "u", {"p": 3}, hold_seconds=60)
    shop.commit(other, held)
    over = timestamp(datetime.fromtimestamp(shop.clock.now() + 61, UTC))
    one, two = (OrderCommand("o", action, over) for action in (first, second))
    stop(shop, lambda: shop.commit(other, two, held))
    shop.commit(frozen, one, held)
    # The worker had no time left to write its result, so its message is redelivered.
    shop.commit(other, one)
    row = shop.order_row("o")
    came = [first, second] if stop is lose_and_freeze else [second, first]
    ends = {
        OrderAction.CANCEL: "CANCELLED",
        OrderAction.EXPIRE: "EXPIRED",
        # A confirmed order can still be cancelled.
        OrderAction.CONFIRM: "CANCELLED" if OrderAction.CANCEL in came else "CONFIRMED",
    }
    assert row["status"] == ends[came[0]]
    assert ("confirmationRejected" in row) is (
        OrderAction.CONFIRM in came and "confirmedAt" not in row
    )
    holds = row["status"] == "CONFIRMED"
    assert (shop.stock("p"), shop.unexplained()) == (7 if holds else 10, {"p": 0})


PLACED = order(1, "p")
CONFIRMED, FULFILLED = (OrderCommand("o1", OrderAction(name)) for name in ("confirm", "fulfil"))
CAME_BACK = OrderCommand("o1", OrderAction.RETURN, "", "rt-1", {"p": 1}, restock=True)


@pytest.mark.parametrize("stop", [freeze, lose_and_freeze])
@pytest.mark.parametrize(
    ("change", "stock"),
    [
        (CAME_BACK, 10),
        (Adjustment("p", "r", 5, "RECEIPT"), 14),
        # Its condition has no version; the row of its adjustment prevents a second booking.
        (Decrement("p", "d", -2), 7),
    ],
)
def test_a_change_of_stock_frozen_for_an_hour_is_booked_once(shop, stop, change, stock):
    shop.list("p", stock=10)
    shop.do(PLACED)
    shop.do(CONFIRMED, FULFILLED)

    def apply(worker):
        if isinstance(change, Decrement):
            return AtomicDecrement(worker).apply(change, shop.soon(2 * HOUR))
        return shop.commit(worker, change)

    frozen, other = shop.worker(), shop.worker()
    stop(shop, lambda: apply(other))
    assert statuses(apply(frozen)) == [REPLAYED]
    assert (shop.stock("p"), shop.unexplained()) == (stock, {"p": 0})


def see_half(shop, *adjustment):
    """Hide a transaction's record until a request reads it together with all changed rows."""
    rows = shop.items(Table.STOCK_ADJUSTMENTS)
    unseen = rows.pop(adjustment)
    conflict = {"Code": "TransactionConflict"}

    def before(operation, request):
        if "TransactItems" not in request:
            return
        if operation == "TransactGetItems":
            rows[adjustment], shop.before = unseen, lambda *_: None
        reasons = {"CancellationReasons": [{"Code": "ConditionalCheckFailed"}, conflict]}
        raise ServiceError("TransactionCanceledException", extra=reasons)

    shop.before = before


def test_a_repeated_correction_that_meets_half_of_the_first_one_is_not_refused(shop):
    shop.list("p", stock=3)
    all_of_it = Adjustment("p", "c", -3, "CORRECTION")
    shop.commit(shop.worker(), all_of_it)
    see_half(shop, "p", "c")
    assert shop.do(all_of_it) == [REPLAYED]


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


def test_a_refusal_stands_even_if_its_reason_has_passed(shop):
    """The reason is out of date when the answer is given, but the missing record shows that it was true."""
    shop.list("p", stock=5)
    receipt = Adjustment("p", "r", 100, "RECEIPT")
    shop.once("TransactGetItems", lambda _: shop.commit(shop.worker(), receipt) and None)
    report = shop.commit(shop.worker(), Adjustment("p", "c", -50, "CORRECTION"))
    assert statuses(report) == [REJECTED]
    assert report.outcomes[0].rejection.shortages[0].available == 5


def test_a_refusal_that_cannot_be_checked_does_not_delay_others(shop):
    shop.list("p", stock=5)
    shop.list("q")
    shop.refuse("TransactGetItems", THROTTLED)
    short, receipt = Adjustment("p", "c", -50, "CORRECTION"), Adjustment("q", "r", 7, "RECEIPT")
    assert shop.do(short, receipt) == [RETURNED, APPLIED]


def test_an_order_after_its_tombstone_is_not_corrupt_despite_a_conflict(shop):
    """All products come from the cache, so only the write finds the tombstone. It is then read with a product's row."""
    products = [f"p{number}" for number in range(10)]
    shop.list_all(*products)
    worker, is_busy = shop.worker(), of_product("p5")
    for number in range(2):
        shop.commit(worker, order(f"-warm{number}", *products))
    shop.do(OrderCommand("o0", OrderAction.CANCEL))

    def conflict(request):
        shop.calm()
        cancels("TransactionConflict", is_busy)(request)

    shop.on("TransactWriteItems", conflict, is_busy)
    orders = [order(number, products[number % 10]) for number in range(96)]
    assert statuses(shop.commit(worker, *orders)) == [APPLIED] * 96
    assert shop.status("o0") == "CANCELLED"


def test_a_repeated_count_that_meets_half_of_the_first_one_is_not_lost(shop):
    shop.list("p", stock=3)
    client, soon = RetryingClient(shop.store), shop.soon(20)
    lease = Lease.acquire(client, "p", 20, soon)
    again = Lease(client, lease.product, lease.owner)
    count = lease.commit(2, "c", soon)
    see_half(shop, "p", "c")
    assert again.commit(2, "c", soon) == count


def test_a_product_delisted_while_its_creator_was_frozen_stays_delisted(shop):
    lose_and_freeze(shop, lambda: shop.delist("p"))
    with pytest.raises(StoreError):
        shop.products.create(NewProduct("p", 10), shop.soon(2 * HOUR))
    assert not shop.items(Table.PRODUCTS)
    assert shop.unexplained() == {"p": 0}


@pytest.mark.parametrize("stop", [freeze, lose_and_freeze])
def test_a_count_frozen_for_an_hour_is_committed_once_or_not_at_all(shop, stop):
    shop.list("p", stock=10)
    seller = shop.worker()
    deadline = shop.soon(2 * HOUR)
    lease = Lease.acquire(RetryingClient(shop.store), "p", 600, deadline, outlive_deadline=True)
    stop(shop, lambda: shop.commit(seller, order(1, "p")))
    if stop is freeze:
        with pytest.raises(LeaseLostError):
            lease.commit(7, "count", deadline)
        assert shop.stock("p") == 9
    else:
        assert lease.commit(7, "count", deadline).delta == -3
        assert shop.stock("p") == 6
    assert shop.unexplained() == {"p": 0}
