"""With concurrent writers of one product, nothing is oversold, lost or applied twice."""

import random
from collections import Counter
from dataclasses import replace

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.order import Order
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import Outcome
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.retry import RetryPolicy
from operations.audit import read_books
from testing.schedules.in_turn.bench import one_attempt
from testing.world.events import order_body
from tests.support.parallel import in_processes, in_threads


def soon():
    return Deadline.after(60, SystemClock())


def placing(environment, batches):
    """Make the arguments of `in_processes` for batches of orders."""
    return environment, [("place_orders", batch) for batch in batches]


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
        placing(
            shop.environment | {"LANES": "5"},
            [[order_body(f"last-100-{worker}-{n}", {"last-100": 1})] for n in range(10)],
        )
        for worker in range(20)
    ]
    in_processes(arguments)
    assert statuses(shop, "last-100-") == {"PENDING": 100, "REJECTED": 100}
    product = shop.product("last-100")
    assert product.stock_count == 0
    assert product.version < 1 + 100, "the depot sells many orders for each write of the row"
    assert_books_balance(shop, "last-100")


def test_10_workers_sell_out_three_locations_before_they_reject_an_order(shop):
    """Each order takes one unit, and names the locations in a random order. Most units are at the first location."""
    units = {"three": 30, "three#berlin": 15, "three#store": 5}
    for key, stock in units.items():
        shop.create(key, stock)
    chance = random.Random(5)

    def batch(worker, first):
        return [
            order_body(f"three-{worker}-{n}", {"three": 1})
            | {"locations": chance.sample(["", "berlin", "store"], 3)}
            for n in range(first, first + 2)
        ]

    arguments = [
        placing(shop.environment | {"LANES": "5"}, [batch(worker, n) for n in (0, 2, 4)])
        for worker in range(10)
    ]
    in_processes(arguments)
    assert statuses(shop, "three-") == {"PENDING": 50, "REJECTED": 10}
    assert {key: shop.product(key).stock_count for key in units} == dict.fromkeys(units, 0)
    assert_books_balance(shop, "three")


def test_20_workers_without_lanes_take_the_last_100_with_one_write_per_batch(shop):
    """The decrements take units from the product's row. Its version counts every write; a rejection writes nothing."""
    name = "taken"
    shop.create(name, 100)

    def take(worker):
        keys = (f"{name}-{worker}-{n}" for n in range(10))
        changes = [Adjustment(name, key, -1, "DAMAGE") for key in keys]
        report = shop.new_engine().apply(changes, soon())
        return Counter(outcome.kind for outcome in report.outcomes)

    assert sum(in_threads(take, 20), Counter()) == {Outcome.APPLIED: 100, Outcome.REJECTED: 100}
    product = shop.product(name)
    assert (product.stock_count, product.version) == (0, 1 + 100 // 10)
    assert_books_balance(shop, name)


def test_api_callers_and_workers_together_place_exactly_the_last_60(shop):
    """The API sells from the row. Under contention it queues the order for the workers, which sell from lanes."""
    shop.create("both-60", 60)

    def place(worker):
        is_caller = worker % 2 == 0
        engine = one_attempt(shop.new_store()) if is_caller else shop.new_engine(lanes=5)
        handed_on = []
        for n in range(10):
            order = Order(f"both-60-{worker}-{n}", "u", {"both-60": 1})
            (outcome,) = engine.apply([order], soon()).outcomes
            assert is_caller or not outcome.is_open
            if outcome.is_open:
                handed_on.append(order)
        return handed_on

    left = [order for handed_on in in_threads(place, 12) for order in handed_on]
    report = shop.new_engine(lanes=5).apply(left, soon())
    assert not any(outcome.is_open for outcome in report.outcomes)
    assert statuses(shop, "both-60-") == {"PENDING": 60, "REJECTED": 60}
    assert shop.product("both-60").stock_count == 0
    assert_books_balance(shop, "both-60")


def test_duplicates_from_many_processes_are_placed_once(shop):
    """Four Lambda environments place the same 60 orders, each for several products, in different batches."""
    ids = [f"mix-{n}" for n in range(12)]
    for product_id in ids:
        shop.create(product_id, 25)
    chance = random.Random(7)
    orders = [
        order_body(f"mix-order-{n}", {i: chance.randint(1, 3) for i in chance.sample(ids, 3)})
        for n in range(60)
    ]

    def batches():
        mixed = chance.sample(orders, len(orders))
        return [mixed[start : start + 20] for start in range(0, len(mixed), 20)]

    in_processes([placing(shop.environment, batches()) for _ in range(4)])
    assert sum(statuses(shop, "mix-order-").values()) == 60
    assert statuses(shop, "mix-order-")["PENDING"] > 0
    assert all(shop.product(product_id).stock_count >= 0 for product_id in ids)
    assert_books_balance(shop, "mix-")


def test_orders_receipts_and_cancellations_of_four_processes_balance(shop_on_dynoxide):
    """Each message is delivered twice, to any of the processes, which start fresh with their own clients."""
    shop, chance = shop_on_dynoxide, random.Random(11)
    ids = [f"all-{n}" for n in range(5)]
    for product_id in ids:
        shop.create(product_id, 20)
    orders = {
        f"all-order-{n}": {i: chance.randint(1, 3) for i in chance.sample(ids, 2)}
        for n in range(90)
    }
    cancelled = chance.sample(list(orders), 30)
    receipts = {f"all-receipt-{n}": (chance.choice(ids), chance.randint(1, 4)) for n in range(30)}
    bodies = {
        "place_orders": [order_body(order_id, lines) for order_id, lines in orders.items()],
        "change_orders": [{"action": "cancel", "orderId": order_id} for order_id in cancelled],
        "adjust_stock": [
            {"adjustmentId": key, "productId": i, "delta": units, "reason": "RECEIPT"}
            for key, (i, units) in receipts.items()
        ],
    }

    def batches(worker):
        found = []
        for name, sent in twice.items():
            mine = sent[worker::4]
            found += [(name, mine[start : start + 6]) for start in range(0, len(mine), 6)]
        return chance.sample(found, len(found))

    twice = {name: chance.sample(sent * 2, len(sent) * 2) for name, sent in bodies.items()}
    outputs = shop.aws.outputs
    environment = shop.environment | {
        "EXPIRY_QUEUE_URL": outputs["ExpiryQueueUrl"],
        "EXPIRY_DEAD_LETTER_QUEUE_URL": outputs["ExpiryDeadLetterQueueUrl"],
    }
    arguments = [(environment, batches(worker)) for worker in range(4)]
    in_processes(arguments, start="spawn")

    books = read_books(shop.aws)
    rows = {key: row for key, row in books.orders.items() if key.startswith("all-order-")}
    assert rows.keys() == orders.keys()
    assert {rows[key]["status"] for key in cancelled} <= {"CANCELLED", "REJECTED"}
    placed = [key for key, row in rows.items() if row["status"] == "PENDING"]
    assert placed
    for product_id in ids:
        received = sum(units for i, units in receipts.values() if i == product_id)
        sold = sum(orders[key].get(product_id, 0) for key in placed)
        available = next(a.available for a in books.accounts if a.product_id == product_id)
        assert available == 20 + received - sold >= 0
    assert_books_balance(shop, "all-")


THREADS = 40


def test_40_threads_update_one_row_with_retry_and_lose_nothing(shop):
    shop.create("update-40", 0)
    # Shorter sleeps cause the same contention in less time.
    products = ProductCatalogue(RetryingClient(shop.store, RetryPolicy(1000, cap=0.25)))

    def one_more(product):
        return replace(product, other={"counter": product.other.get("counter", 0) + 1})

    def add(_):
        own = ProductCatalogue(RetryingClient(products.client.store, products.client.policy))
        own.update_with_retry("update-40", one_more, soon())
        return own

    done = in_threads(add, THREADS)
    assert products.get("update-40", soon()).other["counter"] == THREADS
    assert shop.product("update-40").version == 1 + THREADS
    assert len([retries for own in done for retries in own.stats.measured["Retries"]]) == THREADS
