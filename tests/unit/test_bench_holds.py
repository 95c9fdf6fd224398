"""Holds that end together: what the benchmark on the embedded AWS places, and when it calls its end clean."""

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from bench.studies import holds_embedded as holds
from bench.workloads import zipf
from inventory_orders.clock import timestamp
from inventory_orders.store.rows import decode
from local.demo import place_unpaid
from operations.books import Account, Books
from tests.support.tables_in_memory import tables_in_memory

BORN = "2026-01-01T00:00:00.000000+00:00"


def test_holds_end_together():
    workload = zipf(5, 1)
    orders = holds.never_paid(workload, 200, 60, seed=1)
    with tables_in_memory() as tables:
        for product_id in {name for order in orders for name in order.quantities}:
            tables.create(product_id, 10_000)
        aws = tables.operated
        aws.outputs["SweepFunctionName"] = "sweep"
        functions = SimpleNamespace(invoke=lambda **_: None)
        place_unpaid(replace(aws, functions=functions), orders, holds.StoppedClock(1_000_000.0))
        rows = [decode(item) for item in tables.aws.dynamodb.tables["Orders"].items.values()]
    ends = {datetime.fromisoformat(row["expiresAt"]).timestamp() for row in rows}
    assert ends == {1_000_060.0}
    wanted = [workload.quantities(order_id) for order_id in workload.bodies]
    assert all(dict(order.quantities) in wanted for order in orders)


def test_the_pace_is_that_of_orders_from_the_first_expiry_to_the_last():
    orders = holds.never_paid(zipf(5, 1), 2, 60, seed=1)
    ended = [timestamp(datetime.fromtimestamp(at, UTC)) for at in (1064.0, 1075.5)]
    rows = {
        order.order_id: {"orderId": order.order_id, "createdAt": BORN, "lastUpdatedAt": at}
        for order, at in zip(orders, ended, strict=True)
    }
    at = timestamp(datetime.fromtimestamp(1070.0, UTC))
    rows |= {"o": {"orderId": "o", "createdAt": at, "lastUpdatedAt": BORN}}
    pace = holds.pace_of(Books((), rows, []), orders, 1060.0)
    assert (pace.holds, pace.first, pace.last) == (2, 4.0, 15.5)
    assert pace.meanwhile == pytest.approx(1 / 11.5)


@pytest.mark.parametrize(
    ("status", "version", "sold", "clean"),
    [
        ("EXPIRED", 2, 0, True),
        ("PENDING", 1, 0, False),
        ("EXPIRED", 3, 0, False),
        ("EXPIRED", 2, 1, False),
    ],
)
def test_it_is_clean_if_each_hold_has_expired_once_and_the_books_balance(
    status, version, sold, clean
):
    rows = [
        {"orderId": "held-0000000", "status": status, "_version": version},
        {"orderId": "zipf-000001-0", "status": "PENDING", "_version": 1},
    ]
    account = Account("tea", BORN, "ACTIVE", 4, 92, 100, 8 + sold)
    books = Books((account,), {row["orderId"]: row for row in rows}, [])
    orders = holds.never_paid(zipf(5, 1), 2, 60, seed=1)
    assert holds.is_clean(books, orders[:1]) is clean
    assert not holds.is_clean(books, orders), "one has no row"
    for wrong in (
        replace(books, accounts=(replace(account, settled=False),)),
        replace(books, accounts=(replace(account, problems=("below its floor",)),)),
        replace(books, corrupt_rows={"Orders o-9": "o-9 breaks the contract"}),
    ):
        assert not holds.is_clean(wrong, orders[:1])
