"""All kinds of messages at once on the deployed stack, with every unit explained at the end."""

import json
import multiprocessing
import random
import time
from datetime import UTC, datetime, timedelta
from functools import partial

from inventory_orders.clock import timestamp
from local import stack
from local.invoke import invoke_deployed
from operations import queues
from operations.audit import read_books
from operations.aws import Aws
from operations.books import history
from operations.orders_file import OrderMessage
from testing.events import order_body
from tests.support.stack import cli, create, wait_until, wait_until_settled

PRODUCTS = [f"soak-{number}" for number in range(12)]
DELISTED, COUNTED = PRODUCTS[0], PRODUCTS[1]
# Enough to sell out while all kinds are under way; `make soak` sends 10,000 orders.
ORDERS, CANCELLATIONS, RECEIPTS, EVENTS = 240, 36, 30, 36
STOCK = 18


def message(body):
    return OrderMessage(json.dumps(body))


def workloads():
    chance = random.Random(11)
    orders = [
        order_body(f"soak-order-{n}", {i: chance.randint(1, 2) for i in chance.sample(PRODUCTS, 2)})
        for n in range(ORDERS)
    ]
    cancelled = chance.sample(range(ORDERS), CANCELLATIONS)
    receipts = [
        {
            "adjustmentId": f"receipt-{n}",
            "productId": chance.choice(PRODUCTS[2:]),
            "delta": chance.randint(1, 3),
            "reason": "RECEIPT",
        }
        for n in range(RECEIPTS)
    ]
    begin = datetime.now(UTC) - timedelta(hours=1)
    events = [
        {
            "eventId": f"e-{n}",
            "eventTime": timestamp(begin + timedelta(seconds=n)),
            "productId": chance.choice(PRODUCTS[2:]),
            "details": {"name": f"Soaked {n}", "price": n},
        }
        for n in range(EVENTS)
    ]
    newest = {event["productId"]: event["details"]["price"] for event in events}
    chance.shuffle(events)
    half = ORDERS // 2
    return newest, [
        (queues.STANDARD, orders[:half]),
        (queues.STANDARD, orders[half:]),
        (queues.COMMANDS, [{"action": "cancel", "orderId": f"soak-order-{n}"} for n in cancelled]),
        (queues.STOCK, receipts + chance.sample(receipts, RECEIPTS)),
        (queues.CATALOGUE, events),
    ]


def send(queue, bodies):
    queues.send(Aws.of_stack(stack.STACK_NAME), queue, [message(body) for body in bodies])


def counted(aws):
    """Count a product under a lease, while orders for it wait. False if the lease ended before the commit."""
    # Short: messages stay hidden until its end, though the commit ends it earlier.
    lease = {"seconds": 5, "outliveInvocation": True}
    acquire = {"action": "acquire", "productId": COUNTED, **lease}
    acquired = invoke_deployed(aws, "count_stock", acquire).answer
    assert acquired["result"] == "ACQUIRED"
    time.sleep(1.0)
    commit = {
        "action": "commit",
        "lease": acquired["lease"],
        "counted": max(0, acquired["stockCount"] - 3),
        "adjustmentId": "soak-count",
    }
    committed = invoke_deployed(aws, "count_stock", commit).answer
    assert committed["result"] in ("COMMITTED", "LEASE_LOST"), committed
    return committed["result"] == "COMMITTED"


def test_every_unit_is_explained_after_all_kinds_of_messages_at_once(embedded_aws):
    aws = embedded_aws[0]
    for product_id in PRODUCTS:
        create(aws, product_id, STOCK, lowStockThreshold=10)
    newest, work = workloads()
    context = multiprocessing.get_context("fork")
    senders = [context.Process(target=send, args=job) for job in work]
    for sender in senders:
        sender.start()

    place = {"TableName": aws.outputs["ProductsTableName"], "Key": {"productId": {"S": DELISTED}}}
    wait_until(aws, lambda: int(aws.dynamodb.get_item(**place)["Item"]["_version"]["N"]) > 1)
    created_at = aws.dynamodb.get_item(**place)["Item"]["createdAt"]["S"]
    delist = {"action": "delist", "productId": DELISTED, "createdAt": created_at}

    def delisted():
        answer = invoke_deployed(aws, "manage_products", delist).answer
        assert answer["result"] in ("APPLIED", "RETRY_LATER"), answer
        return answer["result"] == "APPLIED"

    wait_until(aws, delisted)
    create(aws, DELISTED, 40)
    assert invoke_deployed(aws, "manage_products", delist).answer["result"] == "STALE"
    wait_until(aws, partial(counted, aws))

    wait_until(aws, lambda: all(sender.exitcode is not None for sender in senders))
    assert [sender.exitcode for sender in senders] == [0] * len(senders)
    wait_until_settled(aws)

    books = read_books(aws)
    orders = {k: row for k, row in books.orders.items() if k.startswith("soak-order-")}
    assert len(orders) == ORDERS
    assert {row["status"] for row in orders.values()} == {"PENDING", "REJECTED", "CANCELLED"}
    accounts = [a for a in books.accounts if a.product_id in PRODUCTS]
    assert len(accounts) == len(PRODUCTS) + 1, "one product has had two incarnations"
    assert [a for a in accounts if not a.balances] == books.corrupt == []
    assert (
        sum(row["reason"] == "RECEIPT" for row in books.adjustments if "soak" in row["productId"])
        == RECEIPTS
    )
    for account in accounts:
        assert history(books, account)[-1].stock == account.on_hand
    for product_id, price in newest.items():
        item = aws.dynamodb.get_item(
            TableName=aws.outputs["ProductsTableName"], Key={"productId": {"S": product_id}}
        )["Item"]
        assert item["price"]["N"] == str(price), "the newest event has won"

    assert "no difference" in cli("audit").stdout
    why = cli("audit", COUNTED).stdout
    assert f"Why is {COUNTED}" in why
    assert "COUNT soak-count" in why
    assert "OPENING" in why
