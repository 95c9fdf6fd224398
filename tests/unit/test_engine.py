"""The engine under every kind of cancelled transaction, unknown outcome and failure."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.planner import Limits
from inventory_orders.domain.product import ProductStatus
from inventory_orders.domain.record import OrderAction
from inventory_orders.errors import Outcome
from inventory_orders.store.tables import Table
from testing.aws import ServiceError
from testing.schedules.in_turn.bench import Bench, product, statuses
from testing.schedules.in_turn.shop import Fault
from testing.world.faults import LOST, THROTTLED, cancelled

APPLIED, REJECTED, INVALID = Outcome.APPLIED, Outcome.REJECTED, Outcome.INVALID
REPLAYED, RETURNED = Outcome.REPLAYED, Outcome.RETURNED

CONFLICT = cancelled("TransactionConflict", "None")


def order(number=1, quantity=1, product_id="p", **more):
    return Order(f"o{number}", "u", {product_id: quantity}, **more)


def orders_of(request):
    """Return the ids of the orders that a transaction writes, in sequence."""
    writes = [next(iter(action.values())) for action in request["TransactItems"]]
    rows = [write.get("Item") or write["Key"] for write in writes]
    return [row["orderId"]["S"] for row in rows if "orderId" in row]


def test_without_contention_a_batch_costs_one_read_and_one_write():
    bench = Bench(product("p", 500))
    report = bench.apply(*(order(number) for number in range(99)))
    assert statuses(report) == [APPLIED] * 99
    assert (len(bench.reads), len(bench.writes)) == (1, 1)
    assert (bench.stock(), bench.product("p").version) == (401, 2)
    assert report.stats.measured["Retries"] == [0] * 99
    assert report.stats.measured["VersionConflict"] == [False]
    assert report.stats.changes_per_transaction == [99]


def test_after_a_version_conflict_the_plan_uses_the_returned_item():
    bench = Bench(product("p", 10))
    bench.faults.append(Fault(rival=lambda bench: bench.sell("p", 9)))
    report = bench.apply(order(1), order(2))
    assert statuses(report) == [APPLIED, REJECTED]
    assert bench.stock() == 0
    assert len(bench.reads) == 1, "there is no second read"
    assert report.stats.measured["VersionConflict"] == [True, False]
    assert report.stats.measured["Retries"] == [1, 1]
    assert report.stats.measured["RetriesExhausted"] == [False, False]


def test_a_reason_none_does_not_mean_that_the_action_was_applied():
    """If the version of q has changed, DynamoDB gives no reason for p, although it did not write p either."""
    bench = Bench(product("p", 10), product("q", 10))
    bench.faults.append(Fault(rival=lambda bench: bench.sell("q", 10)))
    report = bench.apply(Order("o", "u", {"p": 1, "q": 1}), order(2))
    assert statuses(report) == [REJECTED, APPLIED]
    assert (bench.stock("p"), bench.stock("q")) == (9, 0)


def test_a_rejection_is_never_durable_before_the_change_that_it_depends_on():
    bench = Bench(product("p", 1), limits=Limits(changes=1))
    bench.faults.append(Fault(error=LOST))
    assert statuses(bench.apply(order(1), order(2))) == [APPLIED, REJECTED]
    assert [orders_of(request) for request in bench.writes] == [["o1"], ["o1"], ["o2"]]


@pytest.mark.parametrize("hidden", [False, True])
def test_a_redelivered_order_is_answered_from_its_row_and_another_body_is_invalid(hidden):
    """The answer comes from the read, or, if the read misses the row, from the failed condition of the write."""
    bench = Bench(product("p", 10))
    bench.apply(order(1))
    bench.hides_records = hidden
    report = bench.apply(order(1), order(2))
    assert statuses(report) == [REPLAYED, APPLIED]
    assert bench.clock.slept == [], "this is not contention, so there is no backoff"
    report = bench.apply(order(1, quantity=2), order(1), order(3))
    assert statuses(report) == [INVALID, REPLAYED, APPLIED]
    writes = len(bench.writes)
    assert statuses(bench.apply(order(1))) == [REPLAYED]
    assert (len(bench.writes) == writes) is not hidden
    assert bench.stock() == 7


def test_the_first_of_several_duplicates_in_a_batch_counts():
    bench = Bench(product("p", 10))
    report = bench.apply(order(1), order(1), order(1, quantity=2))
    assert statuses(report) == [APPLIED, REPLAYED, INVALID]
    assert bench.stock() == 9


def test_a_duplicate_is_not_answered_before_the_first_is_durable():
    bench = Bench(product("p", 10), attempts=2)
    bench.faults.extend([Fault(error=THROTTLED)] * 5)
    report = bench.apply(order(1), order(1), order(1, quantity=2))
    assert statuses(report) == [RETURNED] * 3


def test_after_a_transaction_conflict_the_row_is_read_again():
    bench = Bench(product("p", 10))
    bench.faults.extend([Fault(error=CONFLICT)] * 3)
    report = bench.apply(order())
    assert statuses(report) == [APPLIED]
    assert bench.clock.slept == [0.005, 0.01, 0.02], "half of 10, 20 and 40 ms"
    assert report.stats.measured["TransactionConflict"] == [True, True, True, False]
    assert report.stats.measured["VersionConflict"] == [False] * 4
    assert report.stats.measured["Retries"] == [3]
    assert len(bench.reads) == 1 + 3, "each conflict came without an item"


@pytest.mark.parametrize(
    "fault", [Fault(error=CONFLICT), Fault(rival=lambda bench: bench.sell("p", 1))]
)
def test_contention_is_given_up_after_the_last_attempt(fault):
    bench = Bench(product("p", 100), attempts=3)
    bench.faults.extend([fault] * 9)
    report = bench.apply(order())
    assert [(o.kind, o.cause) for o in report.outcomes] == [(RETURNED, "CONTENTION")]
    assert len(bench.writes) == 3
    assert report.stats.measured["RetriesExhausted"] == [True]


def test_no_wait_exceeds_the_deadline():
    bench = Bench(product("p", 100), attempts=1000)
    bench.faults.extend([Fault(error=CONFLICT)] * 1000)
    began = bench.clock.now()
    report = bench.apply(order(), seconds=0.1)
    assert statuses(report) == [RETURNED]
    assert bench.clock.now() - began < 0.1


@pytest.mark.parametrize("seconds", [0, -1])
def test_without_time_left_nothing_is_sent(seconds):
    bench = Bench(product("p", 100))
    assert statuses(bench.apply(order(), seconds=seconds)) == [RETURNED]
    assert bench.calls == []


@pytest.mark.parametrize("error", [LOST, ServiceError("InternalServerError", status=500)])
def test_a_lost_response_is_recognised_by_its_token(error):
    bench = Bench(product("p", 10))
    bench.faults.append(Fault(error=error, applied=True))
    report = bench.apply(order())
    assert statuses(report) == [APPLIED]
    assert bench.stock() == 9
    assert len(bench.writes) == 2
    assert len(bench.tokens) == 1, "the same request is sent again with the same token"


@pytest.mark.parametrize("is_unknown", [True, False])
def test_an_unknown_outcome_keeps_its_token_through_conflicts(is_unknown):
    """The conflict may be with the engine's own first attempt, which only the same token recognises.

    After other conflicts, the engine uses a new token.
    """
    bench = Bench(product("p", 10))
    bench.faults.extend([Fault(error=LOST)] * is_unknown + [Fault(error=CONFLICT)])
    assert statuses(bench.apply(order())) == [APPLIED]
    assert len(bench.tokens) == (1 if is_unknown else 2)


@pytest.mark.parametrize("is_reason", [False, True])
def test_an_invalid_change_is_isolated_and_the_others_are_applied(is_reason):
    bench = Bench(product("p", 100))

    def refuse(request):
        keys = orders_of(request)
        if "o5" in keys and not is_reason:
            raise ServiceError("ValidationException", "o5 is bad")
        if "o5" in keys:
            raise cancelled("None", *("ValidationError" if key == "o5" else "None" for key in keys))

    bench.on("TransactWriteItems", refuse)
    report = bench.apply(*(order(number) for number in range(10)))
    assert statuses(report) == [INVALID if number == 5 else APPLIED for number in range(10)]
    assert bench.stock() == 91


@pytest.mark.parametrize("code", ["AccessDeniedException", "ResourceNotFoundException"])
@pytest.mark.parametrize("operation", ["BatchGetItem", "TransactWriteItems"])
def test_an_error_of_the_account_returns_everything_and_is_logged(operation, code):
    bench = Bench(product("p", 100), product("q", 100), limits=Limits(changes=1))
    faults = bench.faults if operation == "TransactWriteItems" else bench.read_faults
    faults.append(Fault(error=ServiceError(code, "no")))
    report = bench.apply(order(1), order(2), order(3, product_id="q"))
    assert RETURNED in statuses(report)
    assert report.failure.code == code
    assert bench.stock("p") == 100


def test_a_throttled_read_is_retried():
    bench = Bench(product("p", 100))
    bench.read_faults.extend([Fault(error=THROTTLED), Fault(error=LOST)])
    assert statuses(bench.apply(order())) == [APPLIED]
    assert len(bench.reads) == 3
    assert len(bench.clock.slept) == 2


def test_a_read_that_stays_throttled_rejects_no_order():
    bench = Bench(attempts=2)
    bench.read_faults.extend([Fault(error=THROTTLED)] * 5)
    report = bench.apply(order())
    assert statuses(report) == [RETURNED]
    assert report.outcomes[0].cause == "ThrottlingException"


@pytest.mark.parametrize("table", [Table.PRODUCTS, Table.ORDERS])
def test_a_corrupt_row_returns_only_its_own_orders(table):
    bench = Bench(product("q", 5))
    bench.edit(table, "p" if table is Table.PRODUCTS else "o1")
    report = bench.apply(order(1), order(2, product_id="q"))
    assert statuses(report) == [RETURNED, APPLIED]
    cause = "CORRUPT_PRODUCT" if table is Table.PRODUCTS else "CORRUPT_RECORD"
    assert report.outcomes[0].cause == cause


@pytest.mark.parametrize("is_released", [False, True])
def test_a_lease_that_ends_in_time_or_is_released_is_waited_for(is_released):
    bench = Bench(product("p", 5))
    bench.lease("p", 15 if is_released else 3)
    if is_released:
        bench.clock.on_sleep = lambda: bench.put(product("p", 5, version=3))
    report = bench.apply(order(1))
    assert statuses(report) == [APPLIED]
    assert report.stats.lease_wait == pytest.approx(0 if is_released else 3, abs=0.3)


@pytest.mark.parametrize("is_read", [True, False])
def test_a_longer_lease_returns_only_its_orders_with_its_remaining_time(is_read):
    """In one case, the lease begins between the read and the write."""
    bench = Bench(product("p", 5), product("q", 5))
    if is_read:
        bench.lease("p", 600)
    else:
        bench.faults.append(Fault(rival=lambda bench: bench.lease("p", 600)))
    report = bench.apply(order(1), order(2, product_id="q"))
    assert statuses(report) == [RETURNED, APPLIED]
    assert report.outcomes[0].cause == "LEASED"
    assert report.outcomes[0].retry_after == pytest.approx(600, abs=1)
    assert bench.stock() == 5


def test_no_change_overtakes_a_waiting_change_of_its_group():
    bench = Bench(product("p", 5), product("q", 5))
    bench.lease("p", 600)
    report = bench.apply(
        order(1, group="g"),
        order(2, product_id="q", group="g"),
        order(3, product_id="q", group="other"),
    )
    assert statuses(report) == [RETURNED, RETURNED, APPLIED]


def test_a_chain_that_loses_does_not_delay_other_chains():
    shelf = [product(f"p{n}", 5) for n in range(4)]
    with ThreadPoolExecutor(4) as executor:
        bench = Bench(*shelf, limits=Limits(changes=1), executor=executor)
        bench.faults.append(Fault(error=CONFLICT))
        report = bench.apply(*(order(n, product_id=f"p{n}") for n in range(4)))
    assert statuses(report) == [APPLIED] * 4
    assert sum(report.stats.measured["Retries"]) == 1


def test_a_transaction_that_loses_delays_only_those_that_depend_on_it():
    """A third transaction depends on two parallel ones. The first of these fails, so only the second is durable."""
    bench = Bench(*(product(f"p{n}", 5) for n in range(8)), limits=Limits(actions=5))
    left = Order("left", "u", dict.fromkeys(("p0", "p1", "p2", "p3"), 1))
    joint = Order("joint", "u", {"p0": 1, "p4": 1})
    right = Order("right", "u", dict.fromkeys(("p4", "p5", "p6", "p7"), 1))
    bench.faults.append(Fault(rival=lambda bench: bench.sell("p0", 4)))
    report = bench.apply(left, joint, right)
    assert statuses(report) == [APPLIED, REJECTED, APPLIED]
    assert report.stats.measured["Retries"] == [1, 0, 0], (
        "the dependent transaction was not tried with the lost one's state"
    )
    assert [bench.stock("p0"), bench.stock("p4")] == [0, 4]


def test_an_adjustment_goes_through_the_same_engine():
    bench = Bench(product("p", 0, low_stock_threshold=2))
    receipt = Adjustment("p", "r-1", 40, "RECEIPT")
    report = bench.apply(order(1), receipt, order(2), receipt)
    assert statuses(report) == [REJECTED, APPLIED, APPLIED, REPLAYED]
    assert bench.stock() == 39
    assert bench.product("p").status is ProductStatus.ACTIVE
    assert statuses(bench.apply(Adjustment("p", "r-1", 41, "RECEIPT"))) == [INVALID]


def test_a_product_that_runs_low_is_reported_once():
    bench = Bench(product("p", 10, low_stock_threshold=5))
    first = bench.apply(order(1, quantity=6))
    second = bench.apply(order(2, quantity=1))
    assert [low.product_id for low in first.stats.low_stock] == ["p"]
    assert second.stats.low_stock == []


@pytest.mark.parametrize("code", ["AccessDenied", "SomethingNew"])
def test_an_unknown_reason_dead_letters_no_message(code):
    bench = Bench(product("p", 5))
    bench.faults.append(Fault(error=cancelled(code, "None")))
    report = bench.apply(order(1))
    assert statuses(report) == [RETURNED]
    assert report.failure is not None


@pytest.mark.parametrize("knows", ["the product", "nothing"])
def test_a_booked_adjustment_is_never_answered_with_insufficient_stock(knows):
    """A rejected adjustment leaves no record. Only a consistent read shows whether an adjustment was booked before."""
    bench = Bench(product("p", 4))
    taken = [Adjustment("p", f"a-{number}", -1, "CORRECTION") for number in range(4)]
    for each in taken:
        assert statuses(bench.apply(each)) == [APPLIED]
    if knows == "nothing":
        bench.engine._cache.forget("p")
        bench.hides_records = True
    assert statuses(bench.apply(taken[-1])) == [REPLAYED]
    assert statuses(bench.apply(replace(taken[-1], adjustment_id="b"))) == [REJECTED]
    assert bench.stock() == 0


@pytest.mark.parametrize("is_leased", [False, True])
def test_in_a_group_nothing_takes_effect_before_an_earlier_duplicate(is_leased):
    """The duplicate waits for the first copy, which is in another group. Later messages of its group wait as well."""
    bench = Bench(product("p", 5), product("q", 5))
    if is_leased:
        bench.lease("p", 600)
    changes = (order(1, product_id="p", group="g"), order(1, product_id="p", group="h"))
    behind = Order("o2", "u", {"q": 1}, group="h")
    report = bench.apply(*changes, behind)
    if is_leased:
        assert [o.cause for o in report.outcomes] == [
            *("LEASED", "BEHIND_A_DUPLICATE", "BEHIND_A_RETURNED_MESSAGE"),
        ]
        assert bench.writes == []
    else:
        assert statuses(report) == [APPLIED, REPLAYED, APPLIED]
        assert [orders_of(request) for request in bench.writes] == [["o1"], ["o2"]]


# ---------------------------------------------------------------------- commands


def test_no_plan_is_made_twice_from_the_same_record():
    bench = Bench(product("p", 5))
    bench.apply(order(1, quantity=2))
    found = bench.item(Table.ORDERS, "o1")
    bench.faults.append(Fault(error=cancelled("None", "ConditionalCheckFailed", item=found)))
    report = bench.apply(OrderCommand("o1", OrderAction.CANCEL))
    assert [o.cause for o in report.outcomes] == ["CORRUPT_RECORD"]
    assert len(bench.writes) == 2, "the order is written once, and its cancellation once"


# ---------------------------------------------------------------------- one attempt


def hasty(*products):
    """Make a shop whose engine does not wait: it returns changes that it cannot apply immediately."""
    return Bench(*products, patient=False)


def cause_of_return(bench, change):
    (outcome,) = bench.apply(change).outcomes
    assert outcome.kind is RETURNED
    assert bench.clock.slept == [], "it does not wait"
    assert set(bench.calls) <= {"BatchGetItem", "TransactWriteItems"}, "it locks nothing"
    return outcome.cause


def test_without_contention_one_attempt_is_enough():
    bench = hasty(product("p", 10))
    assert statuses(bench.apply(order(1))) == [APPLIED]
    assert statuses(bench.apply(order(1))) == [REPLAYED]
    assert statuses(bench.apply(order(1, quantity=2))) == [INVALID]
    assert statuses(bench.apply(order(2, quantity=10))) == [REJECTED]
    assert len(bench.reads) == 4, "a stale copy would cost the only attempt"
    assert bench.stock() == 9


@pytest.mark.parametrize(
    ("fault", "attempts"),
    [
        (Fault(rival=lambda bench: bench.sell("p", 1)), 2),
        (Fault(error=CONFLICT), 2),
        (Fault(error=THROTTLED), 1),
        (Fault(error=LOST), 1),
    ],
    ids=["moved version", "conflict", "throttle", "unknown outcome"],
)
def test_without_a_lane_an_order_is_tried_again_once_and_only_after_a_conflict(fault, attempts):
    for quantities in ({"p": 1}, {"p": 1, "q": 1}):
        bench = hasty(product("p", 10), product("q", 10))
        bench.faults.extend([fault] * attempts)
        assert cause_of_return(bench, Order("o", "u", quantities))
        assert len(bench.writes) == attempts


@pytest.mark.parametrize("obstacle", ["lease", "lanes", "lanes of a broken row", "throttled read"])
def test_one_attempt_waits_for_no_lease_no_lanes_and_no_read(obstacle):
    lent = {"lent_to": frozenset({0, 3})} if "lanes" in obstacle else {}
    broken = {"low_stock_threshold": 60} if "broken" in obstacle else {}
    bench = hasty(product("p", 10, **lent, **broken))
    if obstacle == "lease":
        bench.lease("p", 2.0)
    if obstacle == "throttled read":
        bench.read_faults.append(Fault(error=THROTTLED))
    cause = cause_of_return(bench, order(1, quantity=1 if broken else 10))
    assert cause == ("ThrottlingException" if obstacle == "throttled read" else "CONTENTION")
    assert (len(bench.reads), len(bench.writes)) == (1, 0)


def test_one_attempt_sells_the_spare_units_of_a_lent_row():
    bench = hasty(product("p", 10, lent_to=frozenset({0, 3})))
    assert statuses(bench.apply(order(2, quantity=9))) == [APPLIED]
    assert bench.product("p").lent_to == {0, 3}
