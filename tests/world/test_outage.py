"""Tests of outages in which DynamoDB refuses all requests for hours, in virtual time."""

import json
import logging
from math import inf

import pytest
from botocore.exceptions import ReadTimeoutError

from inventory_orders.retry import LONGEST_DELAY_SECONDS
from inventory_orders.store.dynamodb import CLIENT_CONFIG
from inventory_orders.store.tables import Table
from testing.aws import ServiceError
from testing.schedules.in_turn.shop import Shop
from testing.schedules.scheduler import Scheduler, seeded
from testing.world.clock import ManualClock
from testing.world.events import event_of_received, order_body
from testing.world.tables import FEEDS

HOUR = 3600.0
BEGIN = 60.0
# As in the stack: the functions' timeout, and from it the queues' visibility timeout.
TIMEOUT = 30.0
VISIBILITY = 6 * TIMEOUT + 1
LONG_POLL = 5.0

# Queue -> size of its batches, and number of concurrent invocations.
POLLERS = {
    "Order": (99, 2),
    "OrderFifo": (10, 2),
    "Stock": (49, 1),
    "Catalogue": (10, 1),
    "OrderCommand": (10, 1),
    "Expiry": (10, 1),
}

# As in the stack, one for each worker of the order queues.
LANES = 4

# When orders are sent: before, during and after the outage.
MOMENTS = (0.0, BEGIN, BEGIN + 1500, BEGIN + 3000)
GROUPS = ("drop", "kettle")
# Sent when the outage begins, together with new orders.
COMMANDS = (
    ("confirm", "paid"),
    ("confirm", "o-0-1"),
    ("confirm", "o-1-1"),
    ("cancel", "o-1-0"),
    ("cancel", "o-1-2"),
    ("cancel", "never"),
)
# Placed before the outage, with holds (in seconds) that end during it.
HOLDS = {"unpaid": 600, "paid": 900}
# Sent during the outage, one after the other, each with its confirmation. Afterwards about half of the confirmations
# are delivered first.
PAID_AT_ONCE = tuple(f"paid-at-once-{number}" for number in range(8))
# The drop sells out among the orders that are sent during the outage, so the test can check their sequence.
DROP_STOCK = 7
# Deliveries after 1, 2, 4, ... 256 s, then every 450 s: the shortest possible delays.
MAX_IN_THE_FIRST_HOUR, MAX_IN_ANOTHER = 16, 8


def times_out(sleep):
    sleep(CLIENT_CONFIG.connect_timeout + CLIENT_CONFIG.read_timeout)
    raise ReadTimeoutError(endpoint_url="simulated")


def fails(sleep):
    sleep(2.0)
    raise ServiceError("InternalServerError", "We encountered an internal error", status=500)


def throttles(sleep):
    raise ServiceError("ThrottlingException", "Rate exceeded")


def denies(sleep):
    raise ServiceError("AccessDeniedException", "User is not authorized to perform this")


def has_no_table(sleep):
    raise ServiceError("ResourceNotFoundException", "Requested resource not found")


class ScheduledClock(ManualClock):
    """A clock that shows the time of a scheduler."""

    def __init__(self, scheduler):
        super().__init__()
        self.scheduler, self.began = scheduler, self.seconds

    def now(self):
        return self.began + self.scheduler.now

    def advance(self, seconds):
        self.scheduler.sleep(seconds)


class World(Shop):
    """A shop whose queues feed the handlers, and whose tables become unavailable at BEGIN.

    Args:
        refusals: The errors with which DynamoDB refuses requests, used in turn.
        hours: Length of the outage.

    Attributes:
        end: End of the outage.
        last_sent: When the last orders are sent.
        deliveries: When each message was delivered, by its body.
        ended: When each message was acknowledged.
    """

    visibility = VISIBILITY

    def __init__(self, refusals, hours):
        self.scheduler = Scheduler()
        super().__init__(clock=ScheduledClock(self.scheduler))
        self.before = self.refuse_for_hours
        self.refusals = refusals
        self.end = BEGIN + hours * HOUR
        self.last_sent = self.end + 60
        self.deliveries, self.ended = {}, {}

    def caller(self):
        return self.scheduler.current

    def refuse_for_hours(self, operation, request):
        passed = (self.scheduler.now - BEGIN) / (self.end - BEGIN)
        if "QueueUrl" not in request and 0 <= passed < 1:
            self.refusals[int(passed * len(self.refusals))](self.sleep)

    def invoke(self, function, event):
        ends = self.scheduler.now + TIMEOUT
        answer = super().invoke(function, event, TIMEOUT)
        assert self.scheduler.now < ends, "Lambda would have ended the invocation"
        return answer

    def create(self, product_id, stock):
        command = {"action": "create", "productId": product_id, "openingStock": stock}
        assert self.invoke("manage_products", command)["result"] == "APPLIED"

    def serve(self, name):
        """Pass batches of a queue to its function, as Lambda does, until the queue is empty."""
        size, _ = POLLERS[name]
        queue = self.queues[name]
        while queue.messages or self.scheduler.now <= self.last_sent:
            batch = []
            while len(batch) < size and (more := self.poll(queue, size - len(batch))):
                batch += more
            if not batch:
                self.sleep(LONG_POLL)
                continue
            for message in batch:
                self.deliveries.setdefault(message["Body"], []).append(self.scheduler.now)
            records = event_of_received(batch, queue.arn)["Records"]
            returned = self.feed(queue, FEEDS[name].function, records)
            for message in batch:
                if message["MessageId"] not in returned:
                    self.ended[message["Body"]] = self.scheduler.now

    def run(self, life):
        for name, (_, at_once) in POLLERS.items():
            for _ in range(at_once):
                self.scheduler.start(lambda name=name: self.serve(name))
        self.scheduler.start(lambda: life(self))
        with seeded(1), self.open():
            self.restart(LANES=str(LANES))
            self.scheduler.run()


def receipt(adjustment_id, product_id):
    return {
        "adjustmentId": adjustment_id,
        "productId": product_id,
        "delta": 3,
        "reason": "RECEIPT",
    }


def life(world):
    """Generate the shop's traffic before, during and after the outage."""
    for product_id, stock in (("tea", 100), ("kettle", 100), ("drop", DROP_STOCK)):
        world.create(product_id, stock)
    for number, moment in enumerate((*MOMENTS, world.last_sent)):
        world.sleep(moment - world.scheduler.now)
        for order in range(4):
            world.send("Order", order_body(f"o-{number}-{order}", {"tea": 1, "kettle": 1}))
        if moment == 0.0:
            for order_id, hold in HOLDS.items():
                world.send("Order", order_body(order_id, {"tea": 1}) | {"holdSeconds": hold})
        for order in range(3):
            for group in GROUPS:
                fifo = order_body(f"{group}-{number}-{order}", {group: 1})
                world.send("OrderFifo", fifo, MessageGroupId=group)
        if moment == BEGIN + 1500:
            for order_id in PAID_AT_ONCE:
                world.send("Order", order_body(order_id, {"tea": 1}))
                world.send("OrderCommand", {"action": "confirm", "orderId": order_id})
                world.sleep(60)
        if moment == BEGIN:
            world.send("Stock", receipt("r-1", "kettle"))
            world.send("Stock", receipt("early", "cup"))
            for action, order_id in COMMANDS:
                world.send("OrderCommand", {"action": action, "orderId": order_id})
            for order_id, hold in HOLDS.items():
                world.send("Expiry", {"orderId": order_id}, DelaySeconds=hold)
            details = {"productId": "tea", "details": {"price": 540}}
            at = "2026-11-20T09:30:00.000000+00:00"
            world.send("Catalogue", {"eventId": "e-1", "eventTime": at, **details})
    # By then its receipt has been returned once.
    world.sleep(world.end + LONGEST_DELAY_SECONDS + TIMEOUT - world.scheduler.now)
    world.create("cup", 1)
    fulfil = {"action": "fulfil", "orderId": "o-0-1"}
    assert world.invoke("change_orders", fulfil)["result"] == "APPLIED"


@pytest.fixture(autouse=True)
def no_logs():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("refusals", "hours"),
    [((times_out, fails, throttles), 1), ((denies, has_no_table), 6)],
    ids=["busy", "broken"],
)
def test_hours_without_dynamodb_lose_nothing_and_reorder_nothing(refusals, hours):
    world = World(refusals, hours)
    world.run(life)
    left = {queue.name: len(queue.messages) for queue in world.aws.sqs.queues.values()}
    assert {name: count for name, count in left.items() if count} == {}

    orders = {row["orderId"]: row for row in world.rows(Table.ORDERS)}
    sent = [f"{number}-{order}" for number in range(len(MOMENTS) + 1) for order in range(3)]
    placed = {f"o-{number}-{order}" for number in range(len(MOMENTS) + 1) for order in range(4)}
    placed |= {f"kettle-{order}" for order in sent}
    expected = dict.fromkeys(placed, "PENDING") | {"o-1-0": "CANCELLED"}
    expected |= {"o-0-1": "FULFILLED", "o-1-1": "CONFIRMED", "o-1-2": "CANCELLED"}
    expected |= {"unpaid": "EXPIRED", "never": "CANCELLED"}
    expected |= dict.fromkeys(PAID_AT_ONCE, "CONFIRMED")
    # Whether its confirmation or its expiry is delivered first is random, but no payment is lost.
    paid = orders.pop("paid")
    assert "confirmedAt" in paid or paid["confirmationRejected"]["reason"] == "ORDER_EXPIRED"
    for place, order in enumerate(sent):
        expected[f"drop-{order}"] = "PENDING" if place < DROP_STOCK else "REJECTED"
    assert {order_id: row["status"] for order_id, row in orders.items()} == expected
    moments = [orders[f"kettle-{order}"]["createdAt"] for order in sent]
    assert moments == sorted(moments)

    adjustments = world.rows(Table.STOCK_ADJUSTMENTS)
    assert {"r-1", "early"} < {row["adjustmentId"] for row in adjustments}
    products = world.rows(Table.PRODUCTS)
    assert {row["productId"]: row.get("price") for row in products}["tea"] == 540
    assert world.unexplained() == dict.fromkeys(("tea", "kettle", "drop", "cup"), 0)
    assert any("lanePage" in line for order in orders.values() for line in order["items"])

    for times in world.deliveries.values():
        in_outage = _within(times, BEGIN, world.end)
        assert len(in_outage) <= MAX_IN_THE_FIRST_HOUR + (hours - 1) * MAX_IN_ANOTHER
    first = world.deliveries[json.dumps(receipt("r-1", "kettle"))]
    assert len(_within(first, BEGIN, BEGIN + 600)) >= 8
    assert len(_within(first, world.end - 900, world.end)) <= 3, "polling slows down"

    early = {
        body for body, times in world.deliveries.items() if len(_within(times, world.end, inf)) > 1
    }
    assert json.dumps(receipt("early", "cup")) in early
    confirmations = {
        json.dumps({"action": "confirm", "orderId": order_id}) for order_id in PAID_AT_ONCE
    }
    assert early & confirmations, "some arrived before their order, and were retried"
    recovered = {body: at for body, at in world.ended.items() if body not in early}
    assert max(recovered.values()) < world.end + LONGEST_DELAY_SECONDS + TIMEOUT


def _within(times, begin, end):
    return [at for at in times if begin <= at < end]
