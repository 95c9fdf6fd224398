"""With concurrent writers of one product, nothing is oversold, lost or applied twice."""

import random

from operations.audit import read_books
from testing.world.events import order_body
from tests.support.parallel import in_processes


def assert_books_balance(shop, prefix):
    accounts = [a for a in read_books(shop.aws).accounts if a.product_id.startswith(prefix)]
    assert accounts
    assert [a for a in accounts if a.difference] == []


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
    in_processes(arguments)

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
