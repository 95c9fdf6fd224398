"""The workloads that the benchmark's contenders process."""

import gzip
from collections import Counter
from itertools import islice

import pytest

from bench import workloads
from local import ROOT
from operations.errors import UserError
from tests.support.orders import parse_order


@pytest.mark.parametrize(
    "make",
    [
        *(workloads.hot_product, workloads.zipf, workloads.groups, workloads.sell_out),
        workloads.scarce,
    ],
)
def test_a_seed_determines_a_workload_of_valid_orders(make):
    first = make(200, 7)
    assert first == make(200, 7)
    assert first.bodies != make(200, 8).bodies
    assert len(first.bodies) == 200
    for order_id, body in first.bodies.items():
        order = parse_order(body)
        assert order.order_id == order_id
        assert order.quantities == first.quantities(order_id)
        assert order.quantities.keys() <= first.stock.keys()


def test_scarce_products_have_half_of_the_units_that_are_ordered():
    workload = workloads.scarce(2_000, 1)
    quantities = [workload.quantities(order_id) for order_id in workload.bodies]
    assert {len(wanted) for wanted in quantities} == {1, 2, 3, 4, 5}
    ordered = sum(sum(wanted.values()) for wanted in quantities)
    assert sum(workload.stock.values()) == pytest.approx(ordered / 2, rel=0.05)


def test_endless_orders_are_shuffled_each_time_and_get_new_ids():
    workload = workloads.zipf(30, 1)
    orders = list(islice(workloads.endless(workload, 1), 60))
    assert len({order_id for order_id, _, _ in orders}) == 60
    first, second = ([wanted for _, _, wanted in part] for part in (orders[:30], orders[30:]))
    assert first != second
    assert sorted(map(repr, first)) == sorted(map(repr, second))
    for order_id, body, wanted in orders:
        assert (parse_order(body).order_id, parse_order(body).quantities) == (order_id, wanted)


def test_stock_lasts_for_its_depth_at_500_orders_a_second():
    workload = workloads.zipf(200, 1)
    wanted = Counter()
    for order_id in workload.bodies:
        wanted.update(workload.quantities(order_id))
    a_second = sum(wanted.values()) / 200 * 500
    stock = workloads.with_depth(workload, 60.0).stock
    assert sum(stock.values()) == pytest.approx(60 * a_second, rel=0.02)


def test_zipf_has_best_sellers_and_a_long_tail():
    workload = workloads.zipf(3000, 1)
    chosen = Counter(product_id for o in workload.bodies for product_id in workload.quantities(o))
    assert chosen["product-0001"] > 5 * chosen["product-0020"] > 0
    assert len(chosen) > 700
    assert {len(workload.quantities(order_id)) for order_id in workload.bodies} == {1, 2, 3, 4, 5}


def orders_file(folder, *orders):
    """Write a file of orders, each given as the product ids of its lines."""
    path = folder / "orders.csv.gz"
    rows = (f"o-{n},u-1,{code},2" for n, order in enumerate(orders) for code in order.split())
    path.write_bytes(
        gzip.compress("\n".join(["orderId,userId,productId,quantity", *rows]).encode())
    )
    return path


def test_real_orders_have_plenty_or_just_enough_and_fit_into_a_transaction(
    tmp_path,
):
    file = orders_file(tmp_path, "A1 B2", " ".join(f"P{n}" for n in range(100)), "A1")
    workload = workloads.real_orders(2, str(file))
    assert [set(workload.quantities(order_id)) for order_id in workload.bodies] == [
        {"A1", "B2"},
        {"A1"},
    ]
    wanted = Counter()
    for order_id in workload.bodies:
        wanted.update(workload.quantities(order_id))
    assert workload.stock == dict.fromkeys(wanted, workloads.PLENTY)
    scarce = workloads.make("real-scarce", 2, 1, str(file))
    assert (scarce.stock, scarce.bodies) == (wanted, workload.bodies)


def test_real_orders_begin_again_with_new_ids_when_their_file_ends(tmp_path):
    file = orders_file(tmp_path, "A1 B2", "A1")
    workload = workloads.real_orders(5, str(file))
    assert [set(workload.quantities(order_id)) for order_id in workload.bodies] == [
        *({"A1", "B2"}, {"A1"}, {"A1", "B2"}, {"A1"}, {"A1", "B2"})
    ]


def test_the_real_orders_of_the_repository_are_those_that_their_page_describes():
    with gzip.open(ROOT / workloads.REAL_ORDERS, "rt") as lines:
        orders = [set(line.rstrip("\n").split(",")) for line in lines]
    sizes = sorted(map(len, orders))
    assert (len(orders), sizes[2_500], sizes[4_750]) == (5_000, 13, 71)
    assert len(workloads.make("real", 20, 1).stock) > 20


def test_a_file_without_real_orders_is_a_mistake(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        workloads.make("real", 10, 1, str(tmp_path / "missing.csv"))
    file = orders_file(tmp_path, " ".join(f"P{n}" for n in range(100)))
    with pytest.raises(UserError, match="no orders that fit into a transaction"):
        workloads.make("real", 10, 1, str(file))


def test_a_workload_that_does_not_exist_is_a_mistake():
    assert workloads.make("hot", 3, 1).name == "hot"
    with pytest.raises(UserError, match="nope is not a workload; the workloads are hot, zipf"):
        workloads.make("nope", 3, 1)


def test_orders_at_three_locations_prefer_each_as_often_and_stock_is_shared():
    workload = workloads.at_locations(workloads.hot_product(30, 1), ["", "berlin", "lyon"])
    assert sum(workload.stock.values()) == workloads.PLENTY
    assert set(workload.stock) == {"drop", "drop#berlin", "drop#lyon"}
    preferred = Counter(key for order_id in workload.bodies for key in workload.preferred(order_id))
    assert preferred == {"drop": 10, "drop#berlin": 10, "drop#lyon": 10}
    for body in workload.bodies.values():
        assert set(parse_order(body).product_ids) == set(workload.stock)


def test_a_location_that_all_orders_prefer_has_the_given_stock():
    made = workloads.hot_product(30, 1)
    workload = workloads.at_locations(made, ["", "berlin", "lyon"], first=10)
    assert (workload.stock["drop"], sum(workload.stock.values())) == (10, workloads.PLENTY)
    assert {parse_order(body).locations for body in workload.bodies.values()} == {
        ("", "berlin", "lyon")
    }
