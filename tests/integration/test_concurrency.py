"""Concurrency: rivals for one product oversell nothing, lose nothing and apply nothing twice."""

import random
from collections import Counter
from dataclasses import replace

import boto3

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.order import Order
from inventory_orders.engine.committer import Committer
from inventory_orders.engine.outcomes import ChangeStatus
from inventory_orders.engine.stats import CommitStats
from inventory_orders.invocation.telemetry import emit_stats, metrics
from inventory_orders.products.catalogue import Products
from inventory_orders.retry import RetryPolicy
from local.examples import Sandbox
from local.invoke import FakeContext, load_handler
from operations import emf
from operations.audit import read_books
from tests.support.messages import order_body, sqs_event
from tests.support.parallel import in_processes, in_threads, set_environment


def soon():
    return Deadline.after(60, SystemClock())


def call_handler(environment, batches):
    """Act as one Lambda environment: one invocation after the other."""
    set_environment(environment)
    handler = load_handler("place_orders")
    returned = 0
    for batch in batches:
        answer = handler.lambda_handler(sqs_event(*batch), FakeContext("place_orders"))
        returned += len(answer["batchItemFailures"])
    return returned


def statuses(shop, prefix):
    rows = read_books(shop.aws).orders
    return Counter(row["status"] for key, row in rows.items() if key.startswith(prefix))


def assert_books_balance(shop, prefix):
    accounts = [a for a in read_books(shop.aws).accounts if a.product_id.startswith(prefix)]
    assert accounts
    assert [a for a in accounts if a.difference] == []


def test_20_workers_with_10_orders_each_place_exactly_the_last_100(shop):
    shop.create("last-100", 100)
    arguments = [
        (
            shop.environment,
            [[order_body(f"last-100-{worker}-{n}", {"last-100": 1})] for n in range(10)],
        )
        for worker in range(20)
    ]
    assert sum(in_processes(call_handler, arguments)) == 0
    assert statuses(shop, "last-100-") == {"PENDING": 100, "REJECTED": 100}
    product = shop.product("last-100")
    assert product.stock_count == 0
    assert product.version == 1 + 100, "one for each change that was applied, none for a rejection"
    assert_books_balance(shop, "last-100")


def test_batches_take_one_write_of_the_product_each(shop):
    shop.create("batch-100", 100)
    arguments = [
        (
            shop.environment,
            [[order_body(f"batch-100-{worker}-{n}", {"batch-100": 1}) for n in range(10)]],
        )
        for worker in range(20)
    ]
    assert sum(in_processes(call_handler, arguments)) == 0
    assert statuses(shop, "batch-100-") == {"PENDING": 100, "REJECTED": 100}
    product = shop.product("batch-100")
    assert (product.stock_count, product.version) == (0, 1 + 10)
    assert_books_balance(shop, "batch-100")


def test_duplicates_from_many_processes_are_placed_once(shop):
    """Eight environments place the same 160 orders for several products each, in different batches."""
    ids = [f"mix-{n}" for n in range(12)]
    for product_id in ids:
        shop.create(product_id, 25)
    chance = random.Random(7)
    orders = [
        order_body(f"mix-order-{n}", {i: chance.randint(1, 3) for i in chance.sample(ids, 3)})
        for n in range(160)
    ]

    def batches():
        mixed = chance.sample(orders, len(orders))
        return [mixed[start : start + 20] for start in range(0, len(mixed), 20)]

    returned = in_processes(call_handler, [(shop.environment, batches()) for _ in range(8)])
    assert sum(returned) == 0
    assert sum(statuses(shop, "mix-order-").values()) == 160
    assert statuses(shop, "mix-order-")["PENDING"] > 0
    assert all(shop.product(product_id).stock_count >= 0 for product_id in ids)
    assert_books_balance(shop, "mix-")


def test_5_threads_that_add_10_each_to_one_row_add_50(shop):
    shop.create("add-50", 0)

    def add(worker):
        committer = shop.new_committer()
        for number in range(10):
            change = Adjustment("add-50", f"{worker}-{number}", 1, "RECEIPT")
            (outcome,) = committer.apply([change], soon()).outcomes
            assert outcome.status is ChangeStatus.APPLIED

    in_threads(add, 5)
    product = shop.product("add-50")
    assert (product.stock_count, product.version) == (50, 51)


def test_the_naive_read_then_put_loses_updates_under_the_same_load(shop):
    """For comparison, the code of many tutorials: read, add, put the whole item back."""
    shop.create("naive-50", 0)
    table = shop.aws.outputs["ProductsTableName"]

    def add(_):
        client = boto3.client("dynamodb")
        key = {"productId": {"S": "naive-50"}}
        for _ in range(10):
            item = client.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
            item["stockCount"] = {"N": str(int(item["stockCount"]["N"]) + 1)}
            client.put_item(TableName=table, Item=item)

    in_threads(add, 5)
    assert shop.product("naive-50").stock_count < 50
    Sandbox(shop.tables).forget("naive-50")


def test_a_batch_of_99_for_one_product_costs_two_requests(shop):
    shop.create("two-requests", 500)
    requests = []
    store = shop.new_store()
    store._client.meta.events.register(
        "before-send.dynamodb",
        lambda request, **_: requests.append(request.headers["X-Amz-Target"]),
    )
    report = Committer(store).apply(
        [Order(f"two-{n}", "u", {"two-requests": 1}) for n in range(99)], soon()
    )
    assert {outcome.status for outcome in report.outcomes} == {ChangeStatus.APPLIED}
    operations = [target.decode().split(".")[1] for target in requests]
    assert operations == ["BatchGetItem", "TransactWriteItems"]


def test_100_threads_update_one_row_with_retry_and_lose_nothing(shop, capsys):
    shop.create("update-100", 0)
    # They fight as much, and sleep less.
    products = Products(shop.store, RetryPolicy(1000, cap=0.25))

    def one_more(product):
        return replace(product, other={"counter": product.other.get("counter", 0) + 1})

    def add(_):
        own = Products(products.store, products.policy)
        own.update_with_retry("update-100", one_more, soon())
        return own

    done = in_threads(add, 100)
    assert products.get("update-100", soon()).other["counter"] == 100
    assert shop.product("update-100").version == 101
    stats = CommitStats()
    for own in done:
        stats.add(own.stats)
    retries = [count for own in done for count in own.retries]
    assert len(retries) == 100

    metrics.clear_metrics()
    emit_stats(stats, retries)
    metrics.flush_metrics()
    out = capsys.readouterr().out
    samples = list(emf.parse(out.splitlines()))
    assert sum(emf.values_of(samples, "Retries")) == sum(retries)
    assert len(emf.values_of(samples, "VersionConflict")) == len(stats.version_conflicts)
    with capsys.disabled():
        rate = sum(stats.version_conflicts) / len(stats.version_conflicts)
        print(
            f"\n100 threads, one row: {sum(retries) / 100:.1f} retries on average, conflict rate {rate:.0%}"
        )
