"""Holds that end together: what the benchmark on the embedded AWS places, and when it calls its end clean."""

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from bench import holds
from bench.workloads import zipf
from inventory_orders.clock import timestamp
from inventory_orders.store.rows import decode
from local.demo import place_unpaid
from operations.audit import Account, Books
from tests.support.tables_in_memory import tables_in_memory

BORN = "2026-01-01T00:00:00.000000+00:00"


def test_all_holds_end_at_the_same_moment():
    workload = zipf(5, 1)
    orders = holds.unpaid(workload, 200, 60, seed=1)
    with tables_in_memory() as tables:
        for product_id in {name for order in orders for name in order.quantities}:
            tables.create(product_id, 10_000)
        aws = tables.operated
        aws.outputs["SweepFunctionName"] = "sweep"
        functions = SimpleNamespace(invoke=lambda **_: None)
        place_unpaid(replace(aws, functions=functions), orders, holds.StoppedClock(1_000_000.0))
        rows = [decode(item) for item in tables.aws.dynamodb.tables["Orders"].items.values()]
    end = timestamp(datetime.fromtimestamp(1_000_060.0, UTC))
    assert [row["expiresAt"] for row in rows] == [end] * 200
    wanted = [workload.quantities(order_id) for order_id in workload.bodies]
    assert all(dict(order.quantities) in wanted for order in orders)


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
    assert holds.is_clean(books, 1) is clean
    assert not holds.is_clean(books, 2)
