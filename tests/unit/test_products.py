"""Product changes and leases on the simulated AWS, some of them also on Dynoxide, with a clock that the tests set."""

import itertools
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

import pytest
from botocore.exceptions import ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.adjustment import Adjustment, Decrement
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import CatalogueEvent, NewProduct, sortable_id
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import (
    CorruptItemError,
    LeaseHeldError,
    LeaseLostError,
    Outcome,
    OutcomeUnknownError,
    ProductNotFoundError,
    RejectedError,
    RequestInvalidError,
)
from inventory_orders.lanes.source import engine_with_lanes
from inventory_orders.products.catalogue import AtomicDecrement, ProductCatalogue
from inventory_orders.products.lease import Lease
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.cancellations import CancellationReason, TransactionCancelledError
from inventory_orders.store.tables import KEYS, Table
from operations.creations import create_many
from testing.world.clock import FakeClock
from testing.world.faults import lose_responses


class Bench:
    def __init__(self, store):
        self.store = store
        self.clock = FakeClock(seconds=1000.0)
        self.policy = RetryPolicy(5, 0.01, 0.02, random=lambda: 0.5)
        self.products = ProductCatalogue(self.client)

    def create(self, product_id="p", stock=10, **more):
        created, product = self.products.create(NewProduct(product_id, stock, **more), self.soon())
        assert created
        return product

    @property
    def client(self):
        return RetryingClient(self.store, self.policy, self.clock)

    def create_many(self, new):
        return create_many(self.client, new, self.soon())

    def soon(self, seconds=60.0):
        return Deadline.after(seconds, self.clock)

    def acquire(self, seconds=30.0, **more):
        return Lease.acquire(self.client, "p", seconds, self.soon(), **more)

    def resume(self, token):
        return Lease.resume(self.client, token, self.soon())

    def order(self, number=1, quantity=1, seconds=1.0):
        order = Order(f"o{number}", "u", {"p": quantity})
        return self.engine().apply([order], self.soon(seconds)).outcomes[0]

    @cached_property
    def atomic(self):
        """Make the atomic decrements of a new process."""
        return AtomicDecrement(self.engine())

    def engine(self):
        return engine_with_lanes(self.store, self.policy, self.clock)

    def take(self, adjustment_id, units, seconds=60.0):
        """Take units with an atomic decrement, and return its outcome."""
        decrement = Decrement("p", adjustment_id, -units)
        return self.atomic.apply(decrement, self.soon(seconds)).outcomes[0]

    def adjustments(self):
        rows = self.store._client.scan(TableName="StockAdjustments")["Items"]
        return {row["adjustmentId"]["S"]: int(row["delta"]["N"]) for row in rows}

    def at(self, seconds):
        self.clock.seconds = float(seconds)

    def lose_next_response(self, times=1, operation=""):
        lose_responses(self.store._client, operation, times)


def hold_back(bench, operation, times=1):
    """Hold back some requests of an operation while their sender gets timeouts.

    Returns a function that lets the first one arrive.
    """
    endpoint, held = bench.store._client._endpoint, []
    send = endpoint._do_get_response

    def slow(request, model, context):
        if len(held) == times or model.name != operation:
            return send(request, model, context)
        held.append((request, model, context))
        return None, ReadTimeoutError(endpoint_url=request.url)

    endpoint._do_get_response = slow
    return lambda: send(*held[0])


@pytest.fixture
def engine():
    return "simulated"


@pytest.fixture
def bench(engine, request):
    return Bench(request.getfixturevalue(f"{engine}_store"))


# Together, these tests send every expression of the catalogue and of leases.
on_each_engine = pytest.mark.parametrize("engine", ["simulated", "dynoxide"])


def state(bench):
    return bench.products.get("p", bench.soon())


# ---------------------------------------------------------------- optimistic updates


@on_each_engine
def test_update_with_retry_writes_the_change_and_the_status_that_follows(bench):
    bench.create(stock=10, low_stock_threshold=5)
    updated = bench.products.update_with_retry(
        "p", lambda p: replace(p, low_stock_threshold=20, other={"shelf": "B-7"}), bench.soon()
    )
    assert (updated.before.version, updated.after.version) == (1, 2)
    assert state(bench) == updated.after
    assert (updated.after.status, updated.after.other["shelf"]) == ("LOW_STOCK", "B-7")
    removed = bench.products.update_with_retry("p", lambda p: replace(p, other={}), bench.soon())
    assert state(bench).other == {}
    assert removed.after.version == 3


@on_each_engine
def test_update_with_retry_decides_again_on_the_returned_item(bench):
    bench.create(stock=10)
    seen = []

    def change(current):
        seen.append(current.stock_count)
        if len(seen) == 1:
            assert bench.order(1, 4).kind is Outcome.APPLIED
        return replace(current, low_stock_threshold=current.stock_count)

    updated = bench.products.update_with_retry("p", change, bench.soon())
    assert seen == [10, 6]
    assert (bench.products.stats.measured["Retries"], updated.after.low_stock_threshold) == ([1], 6)
    assert state(bench).low_stock_threshold == 6
    assert bench.products.stats.measured["VersionConflict"][-2:] == [True, False]


def test_update_with_retry_can_end_without_a_change_or_with_an_error(bench):
    bench.create()
    unchanged = bench.products.update_with_retry("p", lambda s: s, bench.soon())
    assert (unchanged.before, bench.products.stats.measured["Retries"]) == (unchanged.after, [0])
    with pytest.raises(ZeroDivisionError):
        bench.products.update_with_retry("p", lambda s: 1 // 0, bench.soon())
    with pytest.raises(ValueError, match="stock_count"):
        bench.products.update_with_retry("p", lambda p: replace(p, stock_count=9), bench.soon())
    with pytest.raises(ValueError, match="version"):
        bench.products.update_with_retry("p", lambda p: replace(p, version=9), bench.soon())
    with pytest.raises(ProductNotFoundError):
        bench.products.update_with_retry("q", lambda s: s, bench.soon())
    assert state(bench).version == 1


# ---------------------------------------------------------------- catalogue events


def event(number, seconds, product_id="p", **details):
    moment = datetime.fromtimestamp(seconds, UTC)
    return CatalogueEvent(product_id, f"e-{number}", timestamp(moment), details)


EVENTS = (
    (1, 100, {"name": "One", "price": 100}),
    (2, 200, {"name": "Two", "price": 200}),
    (3, 200, {"name": "Three"}),
    (4, 150, {"price": 150}),
)


def test_events_in_any_order_end_with_the_newest(bench):
    for number, events in enumerate(itertools.permutations(EVENTS)):
        product_id = f"p{number}"
        bench.create(product_id)
        for name, seconds, details in events:
            bench.products.change_details(event(name, seconds, product_id, **details), bench.soon())
        final = bench.products.get(product_id, bench.soon())
        assert (final.name, final.price, final.price_changed_at) == ("Three", None, None)
        found = (final.details_event_id, final.details_event_time)
        assert found == (sortable_id("e-3"), event(3, 200).event_time)


@pytest.mark.parametrize(("first", "second"), [(9, 10), (10, 9)])
def test_of_events_with_the_same_time_the_one_with_the_greater_number_wins(
    each_store, first, second
):
    bench = Bench(each_store)
    bench.create("p", 1)
    applied, _ = bench.products.change_details(event(first, 100, name=f"{first}"), bench.soon())
    then, _ = bench.products.change_details(event(second, 100, name=f"{second}"), bench.soon())
    assert (applied, then) == (True, first == 9)
    final = bench.products.get("p", bench.soon())
    assert (final.name, final.details_event_id) == ("10", "e-00210 e-10")
    again, _ = bench.products.change_details(event(10, 100, name="10"), bench.soon())
    assert again, "a repeated event is not stale"


def parts_of(event_id):
    """The characters and numbers of an id. A number sorts as a digit does, then by its value."""
    found = re.findall("[0-9]+|[^0-9]", event_id)
    return [("0", int(part)) if part.isdigit() else (part, 0) for part in found]


IDS = st.one_of(
    st.text(sorted({*map(chr, range(0x21, 0x7F))} - {"#", ","}), min_size=1, max_size=128),
    st.text("019", min_size=1, max_size=128),
    st.lists(
        st.sampled_from([*"e!:~", "0", "00", "7", "10", "9" * 40]), min_size=1, max_size=3
    ).map("".join),
)


@given(IDS, IDS)
def test_stored_ids_of_events_sort_by_their_numbers_and_stay_different(one, other):
    stored = sortable_id(one), sortable_id(other)
    assert [each.rpartition(" ")[2] for each in stored] == [one, other]
    assert max(map(len, stored)) <= 449
    if parts_of(one) != parts_of(other):
        assert (stored[0] < stored[1]) is (parts_of(one) < parts_of(other))


@on_each_engine
def test_many_products_are_created_like_one(bench):
    rows = {}
    for create in (
        lambda new: [bench.products.create(each, bench.soon()) for each in new],
        bench.create_many,
    ):
        create(
            [
                NewProduct(
                    f"p-{n}", n, low_stock_threshold=3, backorder_limit=2, name=f"P{n}", price=100
                )
                for n in range(5)
            ]
        )
        for table, keys in KEYS.items():
            found = bench.store._client.scan(TableName=table)["Items"]
            texts = sorted(json.dumps(row, sort_keys=True) for row in found)
            rows.setdefault(table, []).append(texts)
            for row in found:
                key = {name: row[name] for name in keys}
                bench.store._client.delete_item(TableName=table, Key=key)
    assert all(one == many for one, many in rows.values())
    assert len(rows[Table.PRODUCTS][0]) == len(rows[Table.STOCK_ADJUSTMENTS][0]) == 5


def test_of_many_products_existing_ones_are_kept_and_the_others_created(bench):
    old = bench.create("p-1", 7, name="Old")
    bench.store._client.put_item(TableName="Products", Item={"productId": {"S": "p-3"}})
    bench.at(2000)
    many = bench.create_many([NewProduct(f"p-{n}", 1, name="New") for n in range(5)])
    assert [each.created for each in many] == [True, False, True, False, True]
    assert many[1].product == old == bench.products.get("p-1", bench.soon())
    assert isinstance(many[3].error, CorruptItemError)
    assert [bench.products.get(f"p-{n}", bench.soon()) for n in (0, 2, 4)] == [
        each.product for each in many if each.created
    ]
    rows = bench.store._client.scan(TableName="StockAdjustments")["Items"]
    assert sorted(row["productId"]["S"] for row in rows) == ["p-0", "p-1", "p-2", "p-4"]


@pytest.mark.parametrize("as_reason", [True, False])
def test_a_product_that_dynamodb_refuses_does_not_affect_the_others(bench, monkeypatch, as_reason):
    write = bench.store.write

    def picky(actions, token):
        names = [action.write.row.get("name") for action in actions]
        if "bad" in names and not as_reason:
            raise RequestInvalidError("ValidationException", "no")
        if "bad" in names:
            codes = ["ValidationError" if name == "bad" else "None" for name in names]
            raise TransactionCancelledError([*map(CancellationReason, actions, codes)])
        write(actions, token)

    monkeypatch.setattr(bench.store, "write", picky)
    new = [NewProduct(f"p-{n}", 1, name="bad" if n == 4 else "good") for n in range(7)]
    many = bench.create_many(new)
    assert [each.created for each in many] == [n != 4 for n in range(7)]
    assert isinstance(
        many[4].error, TransactionCancelledError if as_reason else RequestInvalidError
    )


def test_many_products_are_too_many_or_not_distinct(bench):
    for new in ([NewProduct(f"p-{n}", 1) for n in range(51)], [NewProduct("p", 1)] * 2):
        with pytest.raises(ValueError, match="at most 50 products with distinct ids"):
            bench.create_many(new)
    assert bench.create_many([]) == []


def test_an_event_for_an_unknown_or_leased_product_is_not_applied(bench):
    with pytest.raises(ProductNotFoundError):
        bench.products.change_details(event(1, 100), bench.soon())
    bench.create()
    bench.acquire(30)
    with pytest.raises(LeaseHeldError) as held:
        bench.products.change_details(event(1, 100), bench.soon())
    assert held.value.retry_after == 30


# ---------------------------------------------------------------- price, discontinue, delist


@on_each_engine
def test_a_price_changes_only_when_all_conditions_hold(bench):
    hour = timedelta(hours=1)
    bench.create(price=100)
    with pytest.raises(RejectedError) as rejected:
        bench.products.change_price("p", 110, hour, bench.soon())
    assert rejected.value.code == "PRICE_CHANGED_RECENTLY"
    bench.at(1000 + 3600)
    assert bench.products.change_price("p", 110, hour, bench.soon()).price == 110
    bench.at(1000 + 9000)
    bench.products.discontinue("p", bench.soon())
    with pytest.raises(RejectedError) as rejected:
        bench.products.change_price("p", 120, hour, bench.soon())
    assert rejected.value.code == "DISCONTINUED_PRODUCT"
    with pytest.raises(ProductNotFoundError):
        bench.products.change_price("q", 120, hour, bench.soon())
    assert state(bench).price == 110


def test_delisting_closes_the_books_and_a_stale_delete_is_a_success(bench):
    old = bench.create(stock=7)
    assert bench.products.delist("p", old.created_at, bench.soon())
    assert sorted(bench.adjustments().values()) == [-7, 7]
    assert not bench.products.delist("p", old.created_at, bench.soon()), "the generation is gone"
    bench.at(2000)
    bench.create(stock=3)
    assert not bench.products.delist("p", old.created_at, bench.soon()), (
        "the generation was replaced"
    )
    assert state(bench).stock_count == 3


# ---------------------------------------------------------------- leases


def test_a_lease_excludes_others_until_it_expires(bench):
    bench.create(stock=10)
    first = bench.acquire(30)
    bench.at(1015)
    with pytest.raises(LeaseHeldError) as held:
        bench.acquire(30)
    assert held.value.retry_after == 15
    bench.at(1031)
    second = bench.acquire(30)
    with pytest.raises(LeaseLostError):
        first.commit(3, "count-1", bench.soon())
    assert state(bench).stock_count == 10
    second.commit(8, "count-2", bench.soon())
    assert (state(bench).stock_count, bench.adjustments()["count-2"]) == (8, -2)
    assert "count-1" not in bench.adjustments()


def test_a_lease_makes_orders_wait_and_rejects_none(bench):
    bench.create(stock=10)
    lease = bench.acquire(30)
    outcome = bench.order(1)
    assert (outcome.kind, outcome.cause) == (Outcome.RETURNED, "LEASED")
    after = lease.commit(4, "count", bench.soon())
    assert after.product_version == 4
    final = state(bench)
    assert (final.stock_count, final.on_hand, final.version) == (4, 4, 4)
    assert (final.locked_by, final.lock_time, final.lock_on_hand) == (None, None, None)
    assert bench.order(1).kind is Outcome.APPLIED


def test_a_lease_never_outlasts_the_invocation_unless_told_to_and_is_never_shortened(bench):
    bench.create()
    assert bench.acquire(300).seconds_left() == 60
    bench.at(1100)
    lease = bench.acquire(300, outlive_deadline=True)
    assert lease.seconds_left() == 300
    bench.at(1380)
    for seconds, deadline, outlives, left in (
        *((10, 5, False, 20), (10, 5, True, 20)),
        *((300, 40, False, 40), (300, 20, True, 300)),
    ):
        lease.renew(seconds, bench.soon(deadline), outlive_deadline=outlives)
        assert (lease.seconds_left(), lease.granted) == (left, left)
    bench.at(1675)
    lease.commit(3, "count", bench.soon())
    assert state(bench).stock_count == 3


@pytest.mark.parametrize("times", [1, 2])
def test_an_own_write_with_a_lost_response_is_recognised(bench, times):
    bench.create()
    bench.lose_next_response(times)
    lease = bench.acquire(30)
    # The lease locks the product, then records the units on hand.
    assert state(bench).version == lease.product.version
    assert state(bench).lock_on_hand == 10
    bench.lose_next_response(times)
    lease.renew(50, bench.soon())
    assert state(bench).version == lease.product.version
    bench.lose_next_response(times)
    assert not lease.release(bench.soon()), "the first attempt has ended the lease"
    assert state(bench).locked_by is None


@pytest.mark.parametrize("times", [1, 3])
def test_a_read_with_a_lost_response_is_repeated(bench, times):
    created = bench.create().created_at
    bench.lose_next_response(times)
    assert state(bench).stock_count == 10
    lease = bench.acquire(30)
    bench.lose_next_response(times)
    resumed = bench.resume(lease.token)
    resumed.commit(4, "count", bench.soon())
    # The condition of the write fails, so a read shows whether the first attempt succeeded.
    bench.lose_next_response(times, "GetItem")
    assert lease.commit(4, "count", bench.soon()).counted == 4
    bench.lose_next_response(times)
    assert bench.products.delist("p", created, bench.soon())


@pytest.mark.parametrize(("seconds", "attempts"), [(60.0, 5), (0.012, 2)])
def test_a_read_is_given_up_after_some_attempts_or_at_the_deadline(bench, seconds, attempts):
    bench.create()
    bench.lose_next_response(100)
    with pytest.raises(OutcomeUnknownError):
        bench.products.get("p", bench.soon(seconds))
    assert len(bench.clock.slept) == attempts - 1


@on_each_engine
def test_an_earlier_count_under_the_same_id_is_not_taken_for_this_one(bench):
    bench.create(stock=10)
    bench.acquire(30).commit(8, "count", bench.soon())
    bench.order(1, 3)
    lease = bench.acquire(30)
    with pytest.raises(RejectedError) as rejected:
        lease.commit(8, "count", bench.soon())
    assert rejected.value.code == "ADJUSTMENT_ID_REUSED"
    assert lease.release(bench.soon()), "the lease is still held, and can be released"
    assert state(bench).stock_count == 5


def test_an_older_event_does_not_undo_a_newer_price(bench):
    bench.at(10_000)
    bench.create(price=100)
    bench.products.change_price("p", 720, timedelta(0), bench.soon())
    applied, after = bench.products.change_details(event(1, 9_000, price=500), bench.soon())
    assert (applied, after.price) == (False, 720)
    bench.at(20_000)
    applied, after = bench.products.change_details(event(2, 15_000, price=500), bench.soon())
    assert (applied, after.price) == (True, 500)


def test_another_event_with_the_same_id_and_time_is_an_error(bench):
    bench.create()
    bench.products.change_details(event(7, 200, name="A"), bench.soon())
    with pytest.raises(RejectedError) as rejected:
        bench.products.change_details(event(7, 200, name="B"), bench.soon())
    assert rejected.value.code == "EVENT_ID_REUSED"
    assert 'name (stored "A", sent "B"). If the details sent now are' in str(rejected.value)
    assert "a later eventTime" in str(rejected.value)


@on_each_engine
def test_a_corrupt_product_is_not_changed(bench):
    bench.create()
    client = bench.store._client
    item = client.get_item(TableName="Products", Key={"productId": {"S": "p"}})["Item"]
    item |= {"stockCount": {"S": "5"}}
    client.put_item(TableName="Products", Item=item)
    for change in (
        lambda: bench.products.discontinue("p", bench.soon()),
        lambda: bench.products.delist("p", "x", bench.soon()),
        lambda: bench.products.change_details(event(1, 100), bench.soon()),
        lambda: bench.products.change_price("p", 1, timedelta(0), bench.soon()),
        bench.acquire,
    ):
        with pytest.raises(CorruptItemError):
            change()
    after = client.get_item(TableName="Products", Key={"productId": {"S": "p"}})["Item"]
    assert after == item


def test_a_price_of_the_future_is_a_newer_event_and_not_a_young_price(bench):
    bench.at(10_000)
    bench.create(price=100)
    bench.products.change_details(event(1, 10_600, price=500), bench.soon())
    with pytest.raises(RejectedError) as rejected:
        bench.products.change_price("p", 720, timedelta(0), bench.soon())
    assert rejected.value.code == "NEWER_EVENT_APPLIED"


def test_an_unknown_product_cannot_be_leased(bench):
    with pytest.raises(ProductNotFoundError):
        bench.acquire()
    assert bench.store._client.scan(TableName="Products")["Items"] == []


# ---------------------------------------------------------------- leases, requests that arrive late


def commit_without_an_answer(bench):
    """Send a commit just before its lease ends, and hold it back.

    Returns the lease's token, and a function that lets the commit arrive.
    """
    bench.create(stock=10)
    token = bench.acquire(30).token
    bench.at(1029.999)
    arrive = hold_back(bench, "TransactWriteItems")
    with pytest.raises(OutcomeUnknownError):
        bench.resume(token).commit(4, "count", bench.soon())
    return token, arrive


@on_each_engine
@pytest.mark.parametrize("asked", ["commit", "renew", "release"])
def test_after_a_refusal_an_earlier_commit_that_arrives_late_books_nothing(bench, asked):
    token, arrive = commit_without_an_answer(bench)
    bench.at(1031)
    again = bench.resume(token)
    if asked == "commit":
        with pytest.raises(LeaseLostError, match="count was not booked"):
            again.commit(4, "count", bench.soon())
    elif asked == "renew":
        with pytest.raises(LeaseLostError, match="repeat that first"):
            again.renew(30, bench.soon())
    else:
        assert again.release(bench.soon())
    arrive()
    assert (state(bench).stock_count, state(bench).locked_by) == (10, None)
    assert "count" not in bench.adjustments()
    with pytest.raises(LeaseLostError):
        bench.resume(token).commit(4, "count", bench.soon())


@pytest.mark.parametrize("goes_on", ["stays", "is delisted", "is listed again"])
def test_a_commit_that_arrives_before_its_refusal_is_final_succeeds(bench, goes_on):
    token, arrive = commit_without_an_answer(bench)
    bench.at(1031)
    again, update = bench.resume(token), bench.store.update_product

    def arrives_first(*request):
        bench.store.update_product = update
        arrive()
        if goes_on != "stays":
            bench.products.delist("p", token["createdAt"], bench.soon())
        if goes_on == "is listed again":
            bench.create(stock=7)
        return update(*request)

    bench.store.update_product = arrives_first
    assert again.commit(4, "count", bench.soon()).delta == -6


# ---------------------------------------------------------------- atomic decrements


def is_atomic(outcome):
    """Whether a decrement succeeded without the help of the engine."""
    return outcome.kind is Outcome.APPLIED and outcome.applied is None


def test_the_atomic_decrement_needs_no_read_of_a_known_product(bench):
    bench.create(stock=100, low_stock_threshold=10)
    asked = []
    get, read = bench.store.get, bench.store.read
    bench.store.get = lambda key: asked.append("get") or get(key)
    bench.store.read = lambda keys, **how: asked.append("batch") or read(keys, **how)
    done = [bench.take(f"d{n}", 5) for n in range(5)]
    assert all(map(is_atomic, done))
    assert asked == ["get"]
    final = state(bench)
    assert (final.stock_count, final.version, final.status) == (75, 6, "ACTIVE")


@on_each_engine
def test_the_atomic_decrement_leaves_a_change_of_status_to_the_engine(bench):
    bench.create(stock=20, low_stock_threshold=10)
    bench.take("d0", 1)
    assert is_atomic(bench.take("d1", 8))
    down = bench.take("d2", 5)
    assert down.kind is Outcome.APPLIED
    assert (state(bench).stock_count, state(bench).status) == (6, "LOW_STOCK")
    rejected = bench.take("d3", 7)
    assert rejected.rejection.reason == "BELOW_FLOOR"
    assert state(bench).stock_count == 6


@on_each_engine
@pytest.mark.parametrize("first", ["unanswered", "in time", "out of time"])
def test_a_refused_decrement_stays_refused_however_late_its_first_attempt_arrives(bench, first):
    """The delayed attempt comes from the refusing invocation, an earlier one, or one that ran out of time."""
    bench.create(stock=10)
    bench.take("d0", 1)
    endpoint = bench.store._client._endpoint
    send = endpoint._do_get_response
    if first == "in time":
        bench.order(1, 6)
        arrive = hold_back(bench, "TransactWriteItems", 5)
    else:
        arrive = hold_back(bench, "TransactWriteItems", 1000)
        seconds = 60.0 if first == "unanswered" else 0.02
        cut_off = bench.take("d1", 5, seconds)
        assert (cut_off.kind, cut_off.retry_after) == (Outcome.RETURNED, 0.0)
        endpoint._do_get_response = send
        bench.order(1, 6)
    refused = bench.take("d1", 5)
    bench.engine().apply([Adjustment("p", "r", 10, "RECEIPT")], bench.soon())
    arrive()
    again = bench.take("d1", 5)
    assert [refused.kind, again.kind] == [Outcome.REJECTED] * 2
    assert again.detail == refused.detail
    assert state(bench).stock_count == 13
    assert bench.take("d1", 4).cause == "ADJUSTMENT_ID_REUSED"
    assert bench.take("d2", 5).kind is Outcome.APPLIED
