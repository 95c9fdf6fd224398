"""Hostile neighbours: huge rows, a throttled product, wrong clocks, a frozen worker.

The real client and engine run on the simulated AWS, in virtual time.
"""

import math
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ReadTimeoutError

from inventory_orders.clock import Deadline, SystemClock, timestamp
from inventory_orders.domain.adjustment import Adjustment, Decrement
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand, Part
from inventory_orders.domain.order_record import OrderAction
from inventory_orders.domain.product import CatalogueEvent, NewProduct
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import (
    CorruptItemError,
    LeaseLostError,
    StoreError,
    StoreUnavailableError,
    Verdict,
)
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.products.decrement import AtomicDecrement
from inventory_orders.products.lease import Lease
from inventory_orders.store.rows import decode
from testing.shop import INVOCATION_SECONDS, open_shop
from testing.simulated_aws import ServiceError
from testing.simulated_aws.values import size_of_item

APPLIED, REPLAYED, REJECTED = Verdict.APPLIED, Verdict.REPLAYED, Verdict.REJECTED
INVALID, RETURNED = Verdict.POISON, Verdict.RETURNED

HOUR = 3600.0
LARGEST_ROW = 400 * 1024


@pytest.fixture
def tables():
    with open_shop() as tables:
        yield tables


def order(number, *product_ids):
    return Order(f"o{number}", "u", dict.fromkeys(product_ids, 1))


def contested_worker(tables, lanes):
    """A worker that has met rivals, if it has a use for that: with lanes."""
    worker = tables.worker(lanes=lanes)
    for (product_id,) in tables.aws.dynamodb.tables["Products"].items if lanes else ():
        worker.client.rivals.observe(product_id)
    return worker


def statuses(report):
    return [outcome.verdict for outcome in report.outcomes]


# ---------------------------------------------------------------- huge rows


@pytest.mark.aws(
    "BatchGetItem returns at most 16 MB.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html",
)
def test_rows_of_300_kb_keep_no_order_from_being_placed(tables):
    """More than BatchGetItem answers at once (16 MB), and many times what one transaction holds (4 MB)."""
    large, small = [f"large{n}" for n in range(57)], [f"small{n}" for n in range(42)]
    for product_id in large:
        tables.list(product_id, size=300_000)
    for product_id in small:
        tables.list(product_id)
    worker, tables.calls = tables.worker(), []
    report = tables.commit(worker, *(order(i, i) for i in large + small))
    assert statuses(report) == [APPLIED] * 99
    assert tables.calls.count("BatchGetItem") == 3, (
        "200 keys at most, and once more for the rest of 17 MB"
    )
    assert tables.calls.count("TransactWriteItems") == 5, "as few as can hold 17 MB"
    assert set(tables.unexplained().values()) == {0}


def test_of_a_huge_row_nothing_is_remembered(tables):
    tables.list("large", size=300_000)
    tables.list("small")
    worker = tables.worker()
    for number in range(4):
        tables.commit(worker, order(number, "large"), order(-1 - number, "small"))
    reads = []
    for number, product_id in ((10, "small"), (11, "large")):
        tables.calls = []
        tables.commit(worker, order(number, product_id))
        reads.append(tables.calls.count("BatchGetItem"))
    assert reads == [0, 1]


def test_an_order_too_large_for_one_transaction_is_answered_by_name(tables):
    large = [f"p{n}" for n in range(14)]
    for product_id in large:
        tables.list(product_id, size=300_000)
    report = tables.commit(
        tables.worker(),
        *(order(i, i) for i in large),
        order("many", *large),
        order("few", *large[:9]),
    )
    assert statuses(report) == [APPLIED] * 14 + [INVALID, APPLIED]
    assert report.outcomes[14].cause == "REFUSED_BY_DYNAMODB"
    assert "4 MB" in report.outcomes[14].detail
    assert set(tables.unexplained().values()) == {0}


@pytest.mark.parametrize("action", [OrderAction.CANCEL, OrderAction.CONFIRM])
def test_orders_that_others_made_huge_go_on_all_the_same(tables, action):
    """What others have added to them is not read, so the planner does not know of it: halves find what fits."""
    tables.list("p", stock=20)
    worker = tables.worker()
    assert statuses(tables.commit(worker, *(order(n, "p") for n in range(20)))) == [APPLIED] * 20
    orders = tables.aws.dynamodb.tables["Orders"].items
    for key, row in list(orders.items()):
        orders[key] = row | {
            "othersAttribute": {"S": "x" * (LARGEST_ROW if key == ("o0",) else 300_000)}
        }
    ended = statuses(tables.commit(worker, *(OrderCommand(f"o{n}", action) for n in range(20))))
    assert ended == [INVALID] + [APPLIED] * 19
    assert tables.stock("p") == (19 if action is OrderAction.CANCEL else 0)
    assert tables.unexplained() == {"p": 0}


@pytest.mark.parametrize("lanes", [0, 1])
def test_a_row_without_room_returns_its_own_orders_by_name(tables, lanes):
    """An order adds `lastUpdatedAt` to a row that has none, and a loan `lentTo`: neither fits."""
    tables.list("other")
    tables.list("full")
    row = tables.row("full")
    del row["lastUpdatedAt"]
    row["othersAttribute"] = {"S": ""}
    row["othersAttribute"] = {"S": "x" * (LARGEST_ROW - size_of_item(row))}
    tables.aws.dynamodb.answer("PutItem", {"TableName": "Products", "Item": row})
    worker, tables.calls = contested_worker(tables, lanes), []
    report = tables.commit(
        worker,
        *(order(100 + n, "full") for n in range(50)),
        order(200, "full", "other"),
        *(order(300 + n, "other") for n in range(40)),
    )
    assert statuses(report) == [RETURNED] * 51 + [APPLIED] * 40
    assert {outcome.cause for outcome in report.outcomes[:51]} == {"CORRUPT_PRODUCT"}
    assert "row of product full" in report.outcomes[0].detail
    assert "maximum allowed size" in report.outcomes[0].detail
    assert tables.calls.count("TransactWriteItems") <= 3, (
        "the row is recognised, not searched for by halves"
    )
    assert report.failure is None


@pytest.mark.aws(
    "An item has at most 400 KB.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html",
)
@pytest.mark.parametrize("change", ["count", "details"])
def test_a_row_without_room_refuses_other_changes_and_stays_as_it_is(tables, change):
    tables.list("full", size=LARGEST_ROW)
    before, deadline = tables.row("full"), Deadline.after(60, SystemClock())
    event = CatalogueEvent("full", "e", "2026-01-01", {"name": "a name"})
    changes = {
        "count": lambda: Lease.acquire(RetryingClient(tables.store), "full", 30, deadline),
        "details": lambda: ProductCatalogue(RetryingClient(tables.store)).change_details(
            event, deadline
        ),
    }
    with pytest.raises(CorruptItemError, match=r"row of product full .*maximum allowed size"):
        changes[change]()
    assert tables.row("full") == before


# ---------------------------------------------------------------- a throttled product


def throttle(tables, product_id, seconds=math.inf):
    """Let DynamoDB throttle every write of a product for some time."""
    key, end = {"productId": {"S": product_id}}, tables.clock.now() + seconds

    def before(operation, request):
        if tables.clock.now() > end:
            return
        if operation == "UpdateItem" and request["Key"] == key:
            raise ServiceError("ThrottlingException")
        actions = request.get("TransactItems", ())
        keys = [next(iter(action.values())).get("Key") for action in actions]
        if key in keys:
            reasons = [{"Code": "ThrottlingError" if k == key else "None"} for k in keys]
            raise ServiceError(
                "TransactionCanceledException", extra={"CancellationReasons": reasons}
            )

    tables.before = before


@pytest.mark.aws(
    "A cancellation names a throttled item by the reason `ThrottlingError` or "
    "`ProvisionedThroughputExceeded`.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html",
)
@pytest.mark.parametrize("lanes", [0, 1])
def test_a_throttled_product_does_not_hold_up_the_rest_of_its_batch(tables, lanes):
    tables.list("hot")
    for number in range(8):
        tables.list(f"p{number}")
    worker = contested_worker(tables, lanes)
    throttle(tables, "hot")
    began = tables.clock.now()
    report = tables.commit(
        worker,
        *(order(n, *(["hot", f"p{n % 8}"] if n % 3 == 0 else [f"p{n % 8}"])) for n in range(33)),
    )
    ended = statuses(report)
    assert ended == [APPLIED if n % 3 else RETURNED for n in range(33)]
    rows = tables.aws.dynamodb.tables["Orders"].items.values()
    last = max(SystemClock().now().fromisoformat(row["createdAt"]["S"]).timestamp() for row in rows)
    assert last - began < 1
    assert tables.clock.now() - began < INVOCATION_SECONDS
    tables.before = lambda *_: None
    again = tables.commit(worker, *(order(n, "hot", f"p{n % 8}") for n in range(0, 33, 3)))
    assert statuses(again) == [APPLIED] * 11
    assert set(tables.unexplained().values()) == {0}


def leave_out_of_reads(tables, product_id, *, refuse):
    """Let DynamoDB leave a product out of all reads. If nothing else is asked for, it may refuse the request."""
    key = {"productId": {"S": product_id}}

    def before(operation, request):
        wanted = request.get("RequestItems", {})
        keys = wanted.get("Products", {"Keys": []})["Keys"]
        if operation != "BatchGetItem" or key not in keys:
            return None
        left_out = {"Products": wanted["Products"] | {"Keys": [key]}}
        keys.remove(key)
        if not keys:
            del wanted["Products"]
        if not wanted and refuse:
            raise ServiceError("ProvisionedThroughputExceededException")
        found = tables.aws.dynamodb.answer("BatchGetItem", request) if wanted else {"Responses": {}}
        return found | {"UnprocessedKeys": left_out}

    tables.before = before


@pytest.mark.aws(
    "BatchGetItem takes 100 keys, none twice. What it leaves out is in `UnprocessedKeys`, and is "
    "not missing.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html",
)
@pytest.mark.parametrize("refuse", [False, True])
def test_a_product_that_no_read_answers_for_returns_its_own_orders_only(tables, refuse):
    tables.list("hot")
    tables.list("p")
    leave_out_of_reads(tables, "hot", refuse=refuse)
    began = tables.clock.now()
    report = tables.commit(tables.worker(), order(1, "hot"), order(2, "p"))
    assert statuses(report) == [RETURNED, APPLIED]
    assert report.outcomes[0].cause == "UNPROCESSED_KEYS"
    assert tables.clock.now() - began < 2


def test_a_replay_is_answered_although_no_read_answers_for_its_product(tables):
    tables.list("hot")
    tables.list("p")
    worker = tables.worker()
    assert statuses(tables.commit(worker, order(1, "hot"), order(2, "p"))) == [APPLIED, APPLIED]
    assert statuses(tables.commit(worker, order(2, "p"))) == [REPLAYED]
    leave_out_of_reads(tables, "hot", refuse=False)
    report = tables.commit(worker, order(1, "hot"), order(3, "hot"))
    assert statuses(report) == [REPLAYED, RETURNED]


def test_a_product_is_throttled_for_moments_while_another_is_counted(tables):
    tables.list("hot")
    tables.list("counted")
    worker = tables.worker()
    deadline = Deadline.after(INVOCATION_SECONDS, SystemClock())
    Lease.acquire(RetryingClient(tables.store), "counted", 10, deadline, outlive_deadline=True)
    throttle(tables, "hot", seconds=2)
    report = tables.commit(worker, order(1, "hot"), order(2, "counted"))
    assert statuses(report) == [APPLIED, APPLIED]


def test_a_product_that_is_throttled_for_moments_is_served_in_the_same_batch(tables):
    tables.list("hot")
    tables.list("p")
    throttle(tables, "hot", seconds=2)
    report = tables.commit(tables.worker(), order(1, "hot"), order(2, "p"), order(3, "hot", "p"))
    assert statuses(report) == [APPLIED] * 3
    assert tables.unexplained() == {"hot": 0, "p": 0}


def test_behind_a_throttled_product_a_group_keeps_its_order(tables):
    tables.list("hot")
    tables.list("p")
    throttle(tables, "hot")
    in_groups = [("hot", "g"), ("p", "g"), ("p", "h")]
    orders = [Order(f"o{n}", "u", {i: 1}, group=g) for n, (i, g) in enumerate(in_groups)]
    assert statuses(tables.commit(tables.worker(), *orders)) == [RETURNED, RETURNED, APPLIED]


# ---------------------------------------------------------------- wrong clocks


@pytest.mark.parametrize("off", [300.0, -300.0])
def test_workers_whose_clocks_are_minutes_apart_keep_the_books(tables, off):
    tables.list("p", stock=30)
    wrong, right = tables.worker(off), tables.worker()
    pending = {n: order(n, "p") for n in range(40)}
    answered = {}

    def deliver(worker):
        batch = [pending[n] for n in sorted(pending)[:5]]
        for done, outcome in zip(batch, tables.commit(worker, *batch).outcomes, strict=True):
            if outcome.verdict is not RETURNED:
                answered.setdefault(done.order_id, outcome.verdict)
                pending.pop(int(done.order_id[1:]), None)

    for number in range(100):
        if not pending:
            break
        mine, others = (wrong, right) if number % 2 else (right, wrong)
        # The same messages, between the read of one worker and its commit.
        tables.once("TransactWriteItems", lambda _, others=others: deliver(others))
        deliver(mine)
    assert not pending
    rows = tables.aws.dynamodb.tables["Orders"].items.values()
    assert sorted(row["status"]["S"] for row in rows) == ["PENDING"] * 30 + ["REJECTED"] * 10
    assert (tables.stock("p"), tables.unexplained()) == (0, {"p": 0})


@pytest.mark.parametrize("off", [300.0, -300.0])
def test_a_count_by_a_wrong_clock_excludes_others_or_is_refused(tables, off):
    """A slow clock's lease protects nothing, so it must not be taken for one that did."""
    tables.list("p", stock=10)
    owner, seller = tables.worker(off), tables.worker()
    clock = owner.client.clock
    deadline = Deadline.after(INVOCATION_SECONDS, clock)
    lease = Lease.acquire(
        RetryingClient(tables.store, clock=clock), "p", 60, deadline, outlive_deadline=True
    )
    outcome = tables.commit(seller, order(1, "p"), seconds=5).outcomes[0]
    if off > 0:
        assert (outcome.verdict, outcome.cause) == (RETURNED, "LEASED")
        assert 350 < outcome.retry_after < 361
        assert lease.commit(7, "count", deadline).delta == -3
    else:
        assert outcome.verdict is APPLIED
        with pytest.raises(LeaseLostError):
            lease.commit(7, "count", deadline)
    assert tables.unexplained() == {"p": 0}


@pytest.mark.aws(
    "AWS refuses a request if its sender's clock is more than five minutes off.",
    "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_aws-signing.html",
)
def test_a_clock_that_aws_does_not_accept_loses_no_order(tables):
    """Off by more than 5 minutes, every request is refused for its signature, and the SDK corrects no clock."""

    def refuse(*_):
        raise ServiceError("InvalidSignatureException", "Signature expired")

    tables.list("p")
    tables.before = refuse
    report = tables.commit(tables.worker(-400.0), order(1, "p"))
    assert statuses(report) == [RETURNED]
    assert isinstance(report.failure, StoreUnavailableError)
    tables.before = lambda *_: None
    assert statuses(tables.commit(tables.worker(), order(1, "p"))) == [APPLIED]


# ---------------------------------------------------------------- a frozen worker


def freeze(tables, meanwhile):
    """Freeze the worker of the next transaction before it arrives, for an hour in which others work."""

    def frozen(_request):
        tables.clock.sleep(HOUR)
        meanwhile()

    tables.once("TransactWriteItems", frozen)


def lose_and_freeze(tables, meanwhile):
    """Apply the next transaction, lose the answer, and freeze its worker before its repetition arrives.

    By then DynamoDB has forgotten the token, so it takes the repetition for a request of its own.
    """

    def lose(request):
        tables.aws.answer("dynamodb", "TransactWriteItems", request)
        freeze(tables, meanwhile)
        raise ReadTimeoutError(endpoint_url="simulated")

    tables.once("TransactWriteItems", lose)


@pytest.mark.aws(
    "After 10 minutes a token is forgotten: the same request is a new one, and only its "
    "conditions stop it.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html",
)
@pytest.mark.parametrize("lanes", [0, 1])
@pytest.mark.parametrize("stop", [freeze, lose_and_freeze])
def test_a_worker_frozen_for_an_hour_places_nothing_twice(tables, stop, lanes):
    """Also while it visits the depot."""
    tables.list("p", stock=10)
    frozen, other = contested_worker(tables, lanes), tables.worker()
    orders = [order(1, "p"), order(2, "p")]

    def meanwhile():
        done = APPLIED if stop is freeze else REPLAYED
        assert statuses(tables.commit(other, *orders, order(3, "p"))) == [done, done, APPLIED]
        assert statuses(tables.commit(other, OrderCommand("o2", OrderAction.CANCEL))) == [APPLIED]

    stop(tables, meanwhile)
    assert statuses(tables.commit(frozen, *orders)) == [REPLAYED, REPLAYED]
    assert tables.unexplained() == {"p": 0}
    assert statuses(tables.commit(tables.worker(), Order("all", "u", {"p": 8}))) == [APPLIED]
    assert (tables.stock("p"), tables.unexplained()) == (0, {"p": 0})


@pytest.mark.parametrize("stop", [freeze, lose_and_freeze])
@pytest.mark.parametrize("first", [OrderAction.CONFIRM, OrderAction.CANCEL, OrderAction.EXPIRE])
@pytest.mark.parametrize("second", [OrderAction.CONFIRM, OrderAction.CANCEL, OrderAction.EXPIRE])
def test_commands_frozen_for_an_hour_end_an_order_once(tables, stop, first, second):
    """Whoever of the two is first, the other finds the order where that one has left it."""
    tables.list("p", stock=10)
    frozen, other = tables.worker(), tables.worker()
    held = Order("o", "u", {"p": 3}, hold_seconds=60)
    tables.commit(other, held)
    over = timestamp(datetime.fromtimestamp(tables.clock.now() + 61, UTC))
    one, two = (OrderCommand("o", action, over) for action in (first, second))
    stop(tables, lambda: tables.commit(other, two, held))
    tables.commit(frozen, one, held)
    # It had no time left to write down what it found: its message comes back.
    tables.commit(other, one)
    row = decode(tables.aws.dynamodb.tables["Orders"].items["o",])
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
    assert (tables.stock("p"), tables.unexplained()) == (7 if holds else 10, {"p": 0})


@pytest.mark.parametrize("stop", [freeze, lose_and_freeze])
def test_a_return_frozen_for_an_hour_is_booked_once(tables, stop):
    tables.list("p", stock=10)
    frozen, other = tables.worker(), tables.worker()
    steps = [OrderCommand("o1", action) for action in (OrderAction.CONFIRM, OrderAction.FULFIL)]
    tables.commit(other, order(1, "p"))
    tables.commit(other, *steps)
    came = OrderCommand("o1", OrderAction.RETURN, "", Part("rt-1", {"p": 1}, restock=True))
    stop(tables, lambda: tables.commit(other, came))
    assert statuses(tables.commit(frozen, came)) == [REPLAYED]
    assert (tables.stock("p"), tables.unexplained()) == (10, {"p": 0})


@pytest.mark.parametrize("stop", [freeze, lose_and_freeze])
def test_an_adjustment_frozen_for_an_hour_is_booked_once(tables, stop):
    tables.list("p", stock=10)
    frozen, other = tables.worker(), tables.worker()
    receipt = Adjustment("p", "r", 5, "RECEIPT")
    stop(tables, lambda: tables.commit(other, receipt, Adjustment("p", "s", 1, "RECEIPT")))
    assert statuses(tables.commit(frozen, receipt)) == [REPLAYED]
    assert (tables.stock("p"), tables.unexplained()) == (16, {"p": 0})


@pytest.mark.parametrize("stop", [freeze, lose_and_freeze])
def test_an_atomic_decrement_frozen_for_an_hour_is_booked_once(tables, stop):
    """Its condition names no version: what fences it is its row."""
    tables.list("p", stock=10)
    frozen, other = tables.worker(), tables.worker()
    soon = Deadline.after(2 * HOUR, SystemClock())
    stop(tables, lambda: AtomicDecrement(other).apply(Decrement.of("p", "d", 2), soon))
    report = AtomicDecrement(frozen).apply(Decrement.of("p", "d", 2), soon)
    assert statuses(report) == [REPLAYED]
    assert (tables.stock("p"), tables.unexplained()) == (8, {"p": 0})


def see_half(tables, *adjustment):
    """Let a transaction be seen without its record, until somebody reads that with all that it changed: then as a whole."""
    rows = tables.aws.dynamodb.tables["StockAdjustments"].items
    unseen = rows.pop(adjustment)
    conflict = {"Code": "TransactionConflict"}

    def before(operation, request):
        if "TransactItems" not in request:
            return
        if operation == "TransactGetItems":
            rows[adjustment], tables.before = unseen, lambda *_: None
        reasons = {"CancellationReasons": [{"Code": "ConditionalCheckFailed"}, conflict]}
        raise ServiceError("TransactionCanceledException", extra=reasons)

    tables.before = before


@pytest.mark.aws(
    "Beside a transaction, single reads may see one item as it was before and another as it is after. A "
    "TransactGetItems sees all or nothing, or is cancelled.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html",
)
def test_a_repeated_correction_that_meets_half_of_the_first_one_is_not_refused(tables):
    tables.list("p", stock=3)
    all_of_it = Adjustment("p", "c", -3, "CORRECTION")
    tables.commit(tables.worker(), all_of_it)
    see_half(tables, "p", "c")
    assert statuses(tables.commit(tables.worker(), all_of_it)) == [REPLAYED]


@pytest.mark.aws(
    "TransactGetItems reads up to 100 items.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactGetItems.html",
)
def test_refusals_of_a_row_that_never_rests_take_one_look_each_after_its_neighbours(tables):
    """They are more than one read can have, and each read of the row finds it written again."""
    tables.list("p", stock=5)
    tables.list("q")

    def before(operation, request):
        if operation == "TransactGetItems":
            version = str(int(tables.row("p")["_version"]["N"]) + 1)
            row = tables.row("p") | {"_version": {"N": version}}
            tables.aws.dynamodb.answer("PutItem", {"TableName": "Products", "Item": row})

    tables.before, tables.calls = before, []
    short = [Adjustment("p", f"c{number}", -50, "CORRECTION") for number in range(250)]
    report = tables.commit(tables.worker(), *short, Adjustment("q", "r", 7, "RECEIPT"))
    assert statuses(report) == [REJECTED] * 250 + [APPLIED]
    looks = ["TransactGetItems"] * 3
    assert [name for name in tables.calls if name != "BatchGetItem"] == [
        "TransactWriteItems",
        *looks,
    ]


def test_a_refusal_that_is_true_no_more_was_true_all_the_same(tables):
    """What it rests on is past. That it was no effect of its own the record shows, which is missing."""
    tables.list("p", stock=5)
    receipt = Adjustment("p", "r", 100, "RECEIPT")
    tables.once("TransactGetItems", lambda _: tables.commit(tables.worker(), receipt) and None)
    report = tables.commit(tables.worker(), Adjustment("p", "c", -50, "CORRECTION"))
    assert statuses(report) == [REJECTED]
    assert report.outcomes[0].rejection.shortages[0].available == 5


def test_where_a_refusal_cannot_be_read_its_neighbours_go_on(tables):
    tables.list("p", stock=5)
    tables.list("q")

    def before(operation, request):
        if operation == "TransactGetItems":
            raise ServiceError("ThrottlingException")

    tables.before = before
    short, receipt = Adjustment("p", "c", -50, "CORRECTION"), Adjustment("q", "r", 7, "RECEIPT")
    report = tables.commit(tables.worker(), short, receipt)
    assert statuses(report) == [RETURNED, APPLIED]


def test_an_order_after_its_tombstone_is_no_corrupt_one_beside_a_conflict(tables):
    """All products come from the cache, so that the tombstone is met by a write, and then comes again with a row."""
    products = [f"p{number}" for number in range(10)]
    for product_id in products:
        tables.list(product_id)
    worker = tables.worker()
    for number in range(2):
        tables.commit(worker, order(f"-warm{number}", *products))
    tables.commit(tables.worker(), OrderCommand("o0", OrderAction.CANCEL))

    def conflict(request):
        """Another transaction is at the row of p5."""
        keys = [action.get("Update", {}).get("Key") for action in request["TransactItems"]]
        if {"productId": {"S": "p5"}} not in keys:
            tables.once("TransactWriteItems", conflict)
            return
        met = ["TransactionConflict" if k == {"productId": {"S": "p5"}} else "None" for k in keys]
        reasons = {"CancellationReasons": [{"Code": code} for code in met]}
        raise ServiceError("TransactionCanceledException", extra=reasons)

    tables.once("TransactWriteItems", conflict)
    orders = [order(number, products[number % 10]) for number in range(96)]
    assert statuses(tables.commit(worker, *orders)) == [APPLIED] * 96
    assert decode(tables.aws.dynamodb.tables["Orders"].items["o0",])["status"] == "CANCELLED"


def test_a_repeated_count_that_meets_half_of_the_first_one_is_not_lost(tables):
    tables.list("p", stock=3)
    client, soon = RetryingClient(tables.store), Deadline.after(20, SystemClock())
    lease = Lease.acquire(client, "p", 20, soon)
    again = Lease(client, lease.product, lease.owner)
    count = lease.commit(2, "c", soon)
    see_half(tables, "p", "c")
    assert again.commit(2, "c", soon) == count


def test_a_product_delisted_while_its_creator_was_frozen_stays_so(tables):
    products = ProductCatalogue(RetryingClient(tables.store))

    def delist():
        created_at = tables.row("p")["createdAt"]["S"]
        assert products.delist("p", created_at, Deadline.after(20, SystemClock()))

    lose_and_freeze(tables, delist)
    with pytest.raises(StoreError):
        products.create(NewProduct("p", 10), Deadline.after(2 * HOUR, SystemClock()))
    assert not tables.aws.dynamodb.tables["Products"].items
    assert tables.unexplained() == {"p": 0}


@pytest.mark.parametrize("stop", [freeze, lose_and_freeze])
def test_a_count_frozen_for_an_hour_is_committed_once_or_not_at_all(tables, stop):
    tables.list("p", stock=10)
    seller = tables.worker()
    deadline = Deadline.after(2 * HOUR, SystemClock())
    lease = Lease.acquire(RetryingClient(tables.store), "p", 600, deadline, outlive_deadline=True)
    stop(tables, lambda: tables.commit(seller, order(1, "p")))
    if stop is freeze:
        with pytest.raises(LeaseLostError):
            lease.commit(7, "count", deadline)
        assert tables.stock("p") == 9
    else:
        assert lease.commit(7, "count", deadline).delta == -3
        assert tables.stock("p") == 6
    assert tables.unexplained() == {"p": 0}
