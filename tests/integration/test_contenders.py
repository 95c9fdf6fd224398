"""All of the benchmark's contenders place orders correctly on the embedded AWS."""

import importlib.util
import math

import pytest

from bench import contenders, workloads
from bench.embedded import Engine

ALL = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            name == "pynamodb_transaction" and importlib.util.find_spec("pynamodb") is None,
            reason="PynamoDB comes with the benchmarks' own requirements: `make bench` installs them",
        ),
    )
    for name in contenders.NAMES
]


@pytest.fixture(scope="module")
def engine(embedded_aws):
    return Engine(embedded_aws[1].endpoint)


@pytest.mark.parametrize("name", ALL)
def test_every_contender_answers_every_order_once(engine, name):
    workload = workloads.sell_out(40, 1)
    cell = engine.run(name, workload, 2, 1)
    assert cell.clean, cell
    assert cell.placed + cell.refused == cell.orders == len(workload.bodies)
    assert (cell.given_up, cell.unfinished) == (0, 0)
    assert min(cell.placed, cell.refused) > 10
    # The minimum is one transaction of 100 actions for a batch of orders, with two units each.
    assert cell.requests >= 1 / cell.batch
    assert cell.write_units >= 2
    assert 0 < cell.p50_ms <= cell.p99_ms < 60_000
    assert not math.isnan(cell.orders_per_second)


def test_a_window_ends_a_cell_before_all_orders_are_delivered(engine):
    cell = engine.run("textbook", workloads.hot_product(100_000, 1), 1, 1, window=0.2)
    assert cell.clean, cell
    assert 0 < cell.orders < 100_000
    assert cell.seconds <= 0.2 + 1e-6, "the difference of two times is rounded"
