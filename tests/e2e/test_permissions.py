"""The embedded AWS enforces IAM: with its role, each function can do all of its work, and without it, nothing.

test_access.py asserts each permission in the template.
"""

import json
import uuid

import pytest

from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.domain.allotments import DEPOT, MAX_LANES, PageKey
from inventory_orders.retry import EARLY_DELIVERIES
from inventory_orders.store.lane_leases import read_lane_leases, release_lane
from inventory_orders.store.rows import key_item
from inventory_orders.store.tables import Table
from local.invoke import invoke_deployed
from testing.schedules.in_turn.lanes import lend
from testing.world.events import order_body, sqs_event
from testing.world.handlers import function_names
from testing.world.streams import change, order_row
from tests.support.api import api_of
from tests.support.roles import allow, permissions
from tests.support.stack import unscheduled


class Preparation:
    """Prepares the products and orders that an event needs.

    All of them share one new id, and the functions have all permissions.
    """

    def __init__(self, aws):
        self.aws = aws
        self.new_id = uuid.uuid4().hex

    def call(self, function, event):
        answer = invoke_deployed(self.aws, function, event).answer
        assert answer.get("result") not in ("INVALID", "UNAVAILABLE"), answer
        return answer

    def command(self, action, **more):
        return {"action": action, "productId": self.new_id, **more}

    def product(self, action="", **more):
        """Create a product with 10 units in stock, and return a command for it."""
        created = self.call("manage_products", self.command("create", openingStock=10))
        if action == "delist":
            more = {"createdAt": created["createdAt"]}
        return self.command(action, **more)

    def lent(self, action="", **more):
        """Create a product with half of its units lent to the depot and a lane, and return a command for it."""
        self.product()
        lend(self.aws.store(), self.new_id, 5, {1: 0})
        return self.command(action, **more)

    def leased(self, event):
        """Lease the product, and return an event that was made before the lease."""
        self.lease()
        return event

    def lease(self):
        acquire = self.command("acquire", seconds=900, outliveInvocation=True)
        return self.call("count_stock", acquire)["lease"]

    def count(self):
        self.product()
        more = {"counted": 9, "adjustmentId": self.new_id}
        return {"action": "commit", "lease": self.lease(), **more}

    def adjustment(self, delta):
        reason = {"reason": "RECEIPT" if delta > 0 else "CORRECTION"}
        return {"adjustmentId": self.new_id, "productId": self.new_id, "delta": delta, **reason}

    def order(self, quantity=1, **more):
        return order_body(self.new_id, {self.new_id: quantity}) | more

    def place(self, **more):
        self.product()
        self.call("place_orders", self.order(**more))

    def order_command(self, action):
        return {"action": action, "orderId": self.new_id}

    def on_placed(self, event):
        """Place an order before returning the event."""
        self.place()
        return event

    def update(self, table, key, expression, value):
        self.aws.dynamodb.update_item(
            TableName=self.aws.tables[table],
            Key=key_item(key),
            UpdateExpression=expression,
            ExpressionAttributeValues={":value": value},
        )

    def expiry(self, body):
        return sqs_event(body, queue=self.aws.outputs["ExpiryQueueUrl"].rsplit("/", 1)[-1])


def again(function, event):
    """Return a function that makes an event and processes it once, so that the test processes a repetition."""

    def make(shop):
        made = event(shop)
        shop.call(function, made)
        return made

    return make


def often(body):
    """Make an event whose message has been delivered so often that the handler is about to resend it."""
    return sqs_event(body, receive_count=EARLY_DELIVERIES)


def early_detail(shop):
    now = timestamp(SystemClock().now())
    return {"eventId": "e", "eventTime": now, "productId": shop.new_id, "details": {}}


def reclaiming_cancellation(shop):
    """Raise the threshold directly, as another program might, while units of the product are in lanes."""
    shop.place()
    lend(shop.aws.store(), shop.new_id, 5, {1: 0})
    shop.update(Table.PRODUCTS, shop.new_id, "SET lowStockThreshold = :value", {"N": "10"})
    return sqs_event(shop.order_command("cancel"))


def cancelled_too_early(shop):
    shop.call("change_orders", sqs_event(shop.order_command("cancel")))
    shop.product()
    return sqs_event(shop.order())


def expiry_of_a_broken_order(shop):
    row = {"orderId": {"S": shop.new_id}, "items": {"S": "?"}}
    shop.aws.dynamodb.put_item(TableName=shop.aws.tables[Table.ORDERS], Item=row)
    return shop.expiry({"orderId": shop.new_id})


def hold_and_idle_units(shop):
    shop.place(holdSeconds=60)
    store = shop.aws.store()
    for lease in read_lane_leases(store, range(1, MAX_LANES + 1)):
        release_lane(store, lease)
    lend(store, shop.new_id, 5, {1: 0})
    then = {"S": "2026-01-01T00:00:00.000000+00:00"}
    page = PageKey.of(DEPOT, shop.new_id)
    shop.update(Table.ALLOTMENTS, page, "SET lastUpdatedAt = :value", then)
    return {"action": "sweep"}


def outcome(shop, **changes):
    return {"Records": [change(None, order_row(shop.new_id, **changes))]}


WORK = {
    "place_orders": {
        "order": lambda s: s.product() and sqs_event(s.order()),
        "repeated order": again("place_orders", lambda s: s.product() and s.order()),
        "order, cancelled before it came": cancelled_too_early,
        "order of a leased product": lambda s: s.product() and s.leased(sqs_event(s.order())),
        "order of a leased product, FIFO": lambda s: (
            s.product() and s.leased(sqs_event(s.order(), group="g"))
        ),
        "order of more than the row has": lambda s: s.lent() and sqs_event(s.order(10), group="g"),
        "order that two locations lack": lambda s: (
            s.product() and sqs_event(s.order(11, locations=["", "berlin"]))
        ),
        "invalid": lambda _: sqs_event("invalid"),
        "invalid, FIFO": lambda _: sqs_event("invalid", group="g"),
    },
    "adjust_stock": {
        "receipt": lambda s: s.product() and s.adjustment(1),
        "repeated receipt": again("adjust_stock", lambda s: s.product() and s.adjustment(1)),
        "receipt before its product": lambda s: sqs_event(s.adjustment(1)),
        "receipt long before its product": lambda s: often(s.adjustment(1)),
        "loss of more than the row has": lambda s: s.lent() and s.adjustment(-8),
        "loss of more than there is": lambda s: s.product() and s.adjustment(-11),
        "invalid": lambda _: sqs_event("invalid"),
    },
    "change_orders": {
        "confirmation": lambda s: s.on_placed(sqs_event(s.order_command("confirm"))),
        "confirmation before its order": lambda s: sqs_event(s.order_command("confirm")),
        "confirmation long before its order": lambda s: often(s.order_command("confirm")),
        "cancellation": lambda s: s.on_placed(sqs_event(s.order_command("cancel"))),
        "cancellation that reclaims units": reclaiming_cancellation,
        "cancellation before its order": lambda s: sqs_event(s.order_command("cancel")),
        "direct cancellation": lambda s: s.order_command("cancel"),
        "expiry of a broken order": expiry_of_a_broken_order,
        "invalid": lambda _: sqs_event("invalid"),
        "invalid among expiries": lambda s: s.expiry("invalid"),
    },
    "manage_products": {
        "new product": lambda s: s.command("create", openingStock=1),
        "price": lambda s: s.product("changePrice", price=1),
        "end of a product": lambda s: s.product("discontinue"),
        "end of a lent product": lambda s: s.lent("discontinue"),
        "delisting": lambda s: s.product("delist"),
        "details before their product": lambda s: sqs_event(early_detail(s)),
        "details long before their product": lambda s: often(early_detail(s)),
        "invalid": lambda _: sqs_event("invalid"),
    },
    "count_stock": {
        "lease": lambda s: s.product("acquire", seconds=1),
        "lease of a lent product": lambda s: s.lent("acquire", seconds=1),
        "count": Preparation.count,
        "repeated count": again("count_stock", Preparation.count),
    },
    "sweep": {"hold and idle units": hold_and_idle_units},
    "publish_events": {
        "outcome": outcome,
        "outcome that cannot be published": lambda s: outcome(s, status="ON_HOLD"),
    },
}
"""Events by function. Together, those of a function need all permissions of its role."""


@pytest.fixture(scope="module", autouse=True)
def no_other_sweep(aws):
    """Disable the sweep's schedule, so that the only sweeps are the ones in these tests."""
    with unscheduled(aws):
        yield


@pytest.mark.parametrize("function", WORK)
def test_a_function_can_do_all_of_its_work_with_its_role_and_nothing_without_it(aws, function):
    for name, make in WORK[function].items():
        done = invoke_deployed(aws, function, make(Preparation(aws)))
        assert not done.failed, (name, done.answer)
        assert "not authorized" not in json.dumps(done.answer) + done.logs, name
    event, granted = make(Preparation(aws)), permissions(aws, function)
    try:
        allow(aws, function, {pair for pair in granted if pair[0].startswith("logs:")})
        # On a busy machine, the embedded AWS may deliver a log without its end.
        assert any("not authorized" in invoke_deployed(aws, function, event).logs for _ in range(5))
    finally:
        allow(aws, function, granted)


def test_the_api_can_answer_every_kind_of_request_with_its_role(aws):
    assert {*WORK, "api"} == {*function_names()}
    api, shop = api_of(aws), Preparation(aws)
    reclaiming_cancellation(shop)
    order, product = f"/orders/{shop.new_id}", f"/products/{shop.new_id}"
    for path in (order, product, f"{product}/adjustments", f"{product}/history", "/stock"):
        assert api("GET", path).status == 200, path
    for path in (f"/stock/{shop.new_id}", f"/orders?userId={shop.new_id}"):
        assert api("GET", path).status == 200, path
    assert api("GET", "/orders?status=CONFIRMED").status == 200
    for action in ("confirm", "cancel"):
        assert api("POST", f"{order}/{action}").status == 200, action
    new = Preparation(aws)
    new.product()
    assert api("POST", "/orders", new.order()).status == 202
    assert api("POST", "/orders", new.order(), {"Prefer": "wait=20"}).status in (200, 201)
