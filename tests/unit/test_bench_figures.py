"""The benchmark's figures follow from observations, and its audit finds wrong stock."""

import json
import math
from dataclasses import replace

import pytest

from bench import figures, goals
from bench.capacity import Exchange
from bench.figures import Audit, Observations, Tally, Trial
from bench.studies.overhead import Overhead
from bench.workloads import Workload
from inventory_orders.domain.allotments import Page, PageEntry, PageKey
from operations.prices import Bill


def order(order_id, **lines):
    items = [{"productId": name, "quantity": quantity} for name, quantity in lines.items()]
    return order_id, json.dumps({"orderId": order_id, "userId": "u", "items": items})


WORKLOAD = Workload(
    "hot", "", {"a": 10, "b": 10}, dict([order("o-1", a=2), order("o-2", a=1, b=3)])
)


def exchange(operation, ended, order_ids=(), status=200, code=None):
    actions = [{"Update": {"TableName": "P", "Key": {"productId": {"S": "a"}}}}]
    actions += [{"Put": {"TableName": "O", "Item": {"orderId": {"S": i}}}} for i in order_ids]
    answer = {}
    if code:
        answer = {
            "__type": "#TransactionCanceledException",
            "CancellationReasons": [{"Code": code}, *({"Code": "None"} for _ in order_ids)],
        }
    request = {"TransactItems": actions} if order_ids else {"TableName": "P", "Key": {}}
    return Exchange(
        f"DynamoDB_20120810.{operation}",
        json.dumps(request).encode(),
        status,
        json.dumps(answer).encode(),
        ended - 0.01,
        ended,
    )


def observed(count=None, **more):
    exchanges = [
        exchange("GetItem", 100.1),
        exchange("TransactWriteItems", 100.2, ["o-1", "o-2"], 400, code="ConditionalCheckFailed"),
        exchange("TransactWriteItems", 100.5, ["o-1"]),
        exchange("TransactWriteItems", 102.0, ["o-2"]),
        Exchange("AmazonSQS.ChangeMessageVisibilityBatch", b"{}", 200, b"{}", 100.3, 100.4),
    ]
    tally = Tally("P", "O")
    for sent in exchanges[:count]:
        tally.add(sent)
    values = {
        "tally": tally,
        "began": 100.0,
        "received": {"o-1": 100.0, "o-2": 100.0},
        "deliveries": 3,
        "invocations": [1.0, 1.0],
    }
    return Observations(**(values | more))


CLEAN = Audit(placed=2, rejected=0, oversold=0, applied_twice=0, lost=0)


def reduce(seen, audited=CLEAN):
    return figures.reduce(Trial("embedded", "textbook", "hot", 2, 10, 1), seen, audited)


def test_figures_are_counted_from_requests():
    cell = reduce(observed())
    assert cell.seconds == pytest.approx(2.0)
    assert cell.orders_per_second == pytest.approx(1.0)
    assert cell.requests == 4 / 2
    assert cell.conflicts == 1 / 2
    assert cell.conflict_rate == pytest.approx(1 / 3)
    assert cell.retries == 1
    assert cell.retries_p95 == 1
    assert cell.write_units == (6 + 4 + 4) / 2
    assert cell.read_units == 0.5 / 2
    assert cell.p50_ms == pytest.approx(500)
    assert cell.p99_ms == pytest.approx(2000)
    bill = Bill(14 + 2, 0.5, 2, 2.0, 2, 3, 10, 1)
    assert cell.dollars_per_million == pytest.approx(bill.dollars / 2 * 1e6)


def test_work_after_the_window_does_not_change_the_rate():
    cell = reduce(observed(window=1.0))
    assert cell.seconds == 1.0
    assert cell.orders_per_second == 1.0
    assert cell.requests == 4 / 2, "work after the window still counts per order"


def test_an_order_without_an_answer_is_given_up_or_unfinished():
    seen = observed(count=3)
    assert reduce(seen).unfinished == 1
    seen.given_up.add("o-2")
    cell = reduce(seen)
    assert (cell.unfinished, cell.given_up) == (0, 1)


def test_figures_per_order_are_nan_without_placed_orders():
    cell = reduce(Observations(Tally("P", "O"), began=0.0), Audit(0, 0, 0, 0, 0))
    assert math.isnan(cell.requests)
    assert math.isnan(cell.orders_per_second)


def test_percentiles_use_the_nearest_rank():
    values = list(range(1, 101))
    assert figures.percentile(values, 50) == 50
    assert figures.percentile(values, 99) == 99
    assert figures.percentile([7], 1) == 7
    assert math.isnan(figures.percentile([], 50))


def rows(a, b, **states):
    orders = [{"orderId": f"o-{n[1:]}", "status": state} for n, state in states.items()]
    return [{"productId": "a", "stockCount": a}, {"productId": "b", "stockCount": b}], orders


@pytest.mark.parametrize(
    ("a", "b", "states", "expected"),
    [
        (7, 7, {"o1": "PENDING", "o2": "PENDING"}, Audit(2, 0, 0, 0, 0)),
        (8, 10, {"o1": "PENDING", "o2": "REJECTED"}, Audit(1, 1, 0, 0, 0)),
        # No units were taken for o-2.
        (8, 10, {"o1": "PENDING", "o2": "PENDING"}, Audit(2, 0, 4, 0, 0)),
        # The units for o-1 were taken twice.
        (5, 7, {"o1": "PENDING", "o2": "PENDING"}, Audit(2, 0, 0, 2, 0)),
        # The order o-2 was acknowledged, but has no row.
        (8, 10, {"o1": "PENDING"}, Audit(1, 0, 0, 0, 1)),
    ],
)
def test_the_audit_finds_oversold_doubled_and_lost_orders(a, b, states, expected):
    products, orders = rows(a, b, **states)
    found = figures.audit(WORKLOAD, products, orders, ["o-1", "o-2"])
    assert found == expected
    assert found.clean == (expected.oversold + expected.applied_twice + expected.lost == 0)


def test_units_in_lanes_count_as_stock():
    products, orders = rows(3, 7, o1="PENDING", o2="PENDING")
    page = Page(PageKey(1, 0), 1, "e", {"a": PageEntry("", 4)})
    assert figures.audit(WORKLOAD, products, orders, [], [page]).clean
    assert figures.audit(WORKLOAD, products, orders, []).applied_twice == 4


def test_on_hand_is_incoming_units_minus_handed_over_units():
    books = figures.Books()
    books.owed.update({"a": 5, "b": 0})
    products, _ = rows(10, 10)
    for row, on_hand in zip(products, (15, 9), strict=True):
        row["onHand"] = on_hand

    def miscounted(outbound):
        return books.audit(WORKLOAD.stock, products, [], 0, outbound).miscounted

    assert miscounted({}) == 1
    assert miscounted({"a": 3}) == 4
    books.owed.update({"a": -3, "b": -1})
    assert miscounted({"a": 3}) == 0
    assert not replace(CLEAN, miscounted=1).clean


def test_stock_below_zero_is_oversold():
    scarce = replace(WORKLOAD, stock={"a": 2, "b": 10})
    products, orders = rows(-1, 7, o1="PENDING", o2="PENDING")
    assert figures.audit(scarce, products, orders, []).oversold == 1


def test_a_bill_adds_up_dynamodb_lambda_and_sqs():
    """The expected bill for a million orders, each with one transaction and one message, was computed by hand."""
    bill = Bill(
        write_units=5e6,
        read_units=2e6,
        invocations=100_000,
        seconds=50_000,
        messages=1_000_000,
        deliveries=1_000_000,
        messages_per_poll=10,
    )
    dynamodb = 5 * 0.625 + 2 * 0.125
    functions = 0.1 * 0.20 + 50_000 * 0.0000133334
    queue = 1.2 * 0.40
    assert bill.dollars == pytest.approx(dynamodb + functions + queue)


def test_a_goal_is_met_or_missed_or_not_measured():
    theirs = replace(reduce(observed()), workers=8, requests=2.0, orders_per_second=50.0)
    ours = replace(
        theirs,
        contender="ours_lanes",
        requests=0.02,
        orders_per_second=1000.0,
        write_units=2.6,
        conflict_rate=0.04,
        retries=0.0,
    )
    overhead = Overhead(
        {"place_orders": 50.0, "usual": 100.0},
        9_000_000,
        {"ours_lanes": 10.0, "powertools_batch": 100.0},
    )
    stands = {goal.figure: goal.met for goal in goals.check([theirs, ours], overhead)}
    assert stands["hot product, requests per order, 8 workers"] is True
    assert stands["hot product, requests per order, no rivals"] is None, (
        "this goal was not measured"
    )
    assert stands["hot product, 8 workers, orders/s"] is False
    assert stands["hot product, 8 workers: write units per order, no index"] is False
    assert stands["hot product, 8 workers: conflict rate"] is True
    assert stands["the layer, MB"] is False
    assert stands["warm CPU per order, share of Powertools'"] is True
    assert stands["never oversold, lost or applied twice"] is True
    unmeasured = goals.check([], None)
    assert all(goal.met is None for goal in unmeasured)


def test_a_faulty_cell_of_ours_misses_the_goal_of_correctness():
    dirty = replace(reduce(observed()), contender="ours_99", lost=1)
    assert not dirty.clean
    assert goals.check([dirty], None)[-1].met is False
