"""Every permission of every role is needed: without it the embedded AWS, which enforces IAM, denies the function.

It does not enforce the permissions for logs and for Lambda's pollers; tests/infra checks those on the template.
"""

import json
import re
import uuid
from collections import defaultdict

import pytest

from infra.api import ROUTES
from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.domain.allotments import DEPOT, MAX_LANES, PageKey
from inventory_orders.retry import EARLY_DELIVERIES
from inventory_orders.store.lane_leases import read_lane_leases, release_lane
from inventory_orders.store.rows import key_item
from inventory_orders.store.tables import Table
from local.invoke import invoke_deployed
from testing.events import order_body, sqs_event
from testing.handlers import function_names
from testing.lanes import lend
from testing.streams import change, order_row
from tests.support.roles import EMBEDDED_NAMES, allow, name_of, permissions
from tests.support.stack import unscheduled

NOT_ENFORCED = {
    *("sqs:ReceiveMessage", "sqs:DeleteMessage"),
    *("logs:CreateLogStream", "logs:PutLogEvents"),
    *("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"),
    "dynamodb:ListStreams",
}
ONLY_FOR_POLLERS = {
    (function, "sqs:GetQueueAttributes", queue)
    for function, queue in (
        ("place_orders", "OrderQueue"),
        ("place_orders", "OrderQueueFifo"),
        ("adjust_stock", "StockQueue"),
        ("manage_products", "CatalogueQueue"),
        ("change_orders", "ExpiryQueue"),
    )
}
"""Not enforced either. Of other queues the functions themselves ask how many messages wait."""


class Shop:
    """Prepares products and orders for an event, with all deployed permissions."""

    def __init__(self, aws):
        self.aws = aws
        self.new_id = uuid.uuid4().hex

    def call(self, function, event):
        answer = invoke_deployed(self.aws, function, event).answer
        assert answer.get("result") not in ("INVALID", "UNAVAILABLE"), answer
        return answer

    def product(self):
        """Create a product for the event, with 10 in stock. Returns the answer that describes it."""
        create = {"action": "create", "productId": self.new_id, "openingStock": 10}
        return self.call("manage_products", create)

    def lease(self):
        """Lease the product for a while."""
        seconds = {"seconds": 900, "outliveInvocation": True}
        acquire = {"action": "acquire", "productId": self.new_id, **seconds}
        return self.call("count_stock", acquire)["lease"]

    def lend(self):
        """Move half of the product to the depot, and say that a lane may hold some."""
        self.product()
        lend(self.aws.store(), self.new_id, 5, {1: 0})

    def order(self):
        """Place an order for the product."""
        self.product()
        return order_body(self.new_id, {self.new_id: 1})


def an_order(shop):
    return sqs_event(shop.order())


def an_order_that_is_placed_already(shop):
    order = shop.order()
    shop.call("place_orders", order)
    return order


def a_confirmation(shop):
    shop.call("place_orders", an_order(shop))
    return sqs_event({"action": "confirm", "orderId": shop.new_id})


def a_confirmation_before_its_order(shop):
    return sqs_event({"action": "confirm", "orderId": shop.new_id})


def looked_at_often(event):
    """Make an event whose messages are at their last delivery before they are sent again."""
    for record in event["Records"]:
        record["attributes"]["ApproximateReceiveCount"] = str(EARLY_DELIVERIES)
    return event


def a_confirmation_long_before_its_order(shop):
    return looked_at_often(a_confirmation_before_its_order(shop))


def a_cancellation(shop):
    shop.call("place_orders", an_order(shop))
    return sqs_event({"action": "cancel", "orderId": shop.new_id})


def raise_the_threshold_past_all_rules(shop):
    """As another program may, though units of the product lie in lanes."""
    lend(shop.aws.store(), shop.new_id, 5, {1: 0})
    shop.aws.dynamodb.update_item(
        TableName=shop.aws.tables[Table.PRODUCTS],
        Key=key_item(shop.new_id),
        UpdateExpression="SET lowStockThreshold = :all",
        ExpressionAttributeValues={":all": {"N": "10"}},
    )


def a_cancellation_that_reclaims_units(shop):
    event = a_cancellation(shop)
    raise_the_threshold_past_all_rules(shop)
    return event


def a_cancellation_before_its_order(shop):
    return sqs_event({"action": "cancel", "orderId": shop.new_id})


def a_direct_cancellation(shop):
    return {"action": "cancel", "orderId": shop.new_id}


def an_expiry(shop, body):
    return sqs_event(body, queue=shop.aws.outputs["ExpiryQueueUrl"].rsplit("/", 1)[-1])


def poison_among_expiries(shop):
    return an_expiry(shop, "poison")


def a_hold(shop, seconds):
    shop.call("place_orders", sqs_event(shop.order() | {"holdSeconds": seconds}))


def an_expiry_of_a_broken_order(shop):
    row = {"orderId": {"S": shop.new_id}, "items": {"S": "?"}}
    shop.aws.dynamodb.put_item(TableName=shop.aws.tables[Table.ORDERS], Item=row)
    return an_expiry(shop, {"orderId": shop.new_id})


def a_hold_that_ends_soon(shop):
    a_hold(shop, 60)
    return {"action": "sweep"}


def an_order_of_more_than_the_row_has(shop):
    shop.lend()
    return sqs_event(order_body(shop.new_id, {shop.new_id: 10}), group="g")


def an_order_that_was_cancelled_before_it_came(shop):
    shop.call("change_orders", a_cancellation_before_its_order(shop))
    return an_order(shop)


def an_order_of_a_leased_product(shop):
    event = an_order(shop)
    shop.lease()
    return event


def an_order_of_a_leased_product_in_its_group(shop):
    order = shop.order()
    shop.lease()
    return sqs_event(order, group="g")


def poison(shop):
    return sqs_event("poison")


def poison_in_a_group(shop):
    return sqs_event("poison", group="g")


def a_receipt(shop):
    shop.product()
    receipt = {"productId": shop.new_id, "delta": 1, "reason": "RECEIPT"}
    return {"adjustmentId": shop.new_id, **receipt}


def a_loss_of_more_than_the_row_has(shop):
    shop.lend()
    loss = {"productId": shop.new_id, "delta": -8, "reason": "CORRECTION"}
    return {"adjustmentId": shop.new_id, **loss}


def a_loss_of_more_than_there_is(shop):
    shop.product()
    loss = {"productId": shop.new_id, "delta": -11, "reason": "CORRECTION"}
    return {"adjustmentId": shop.new_id, **loss}


def a_receipt_that_is_booked_already(shop):
    receipt = a_receipt(shop)
    shop.call("adjust_stock", receipt)
    return receipt


def a_receipt_of_a_product_that_is_not_there_yet(shop):
    receipt = {"productId": shop.new_id, "delta": 1, "reason": "RECEIPT"}
    return sqs_event({"adjustmentId": shop.new_id, **receipt})


def a_receipt_long_before_its_product(shop):
    return looked_at_often(a_receipt_of_a_product_that_is_not_there_yet(shop))


def a_new_product(shop):
    return {"action": "create", "productId": shop.new_id, "openingStock": 1}


def a_price(shop):
    shop.product()
    return {"action": "changePrice", "productId": shop.new_id, "price": 1}


def the_end_of_a_product(shop):
    shop.product()
    return {"action": "discontinue", "productId": shop.new_id}


def the_end_of_a_product_that_is_lent(shop):
    shop.lend()
    return {"action": "discontinue", "productId": shop.new_id}


def a_delisting(shop):
    created_at = shop.product()["createdAt"]
    return {"action": "delist", "productId": shop.new_id, "createdAt": created_at}


def an_event_of_a_product_that_is_not_there_yet(shop):
    now = timestamp(SystemClock().now())
    event = {"eventId": "e", "eventTime": now, "productId": shop.new_id}
    return sqs_event({**event, "details": {}})


def an_event_long_before_its_product(shop):
    return looked_at_often(an_event_of_a_product_that_is_not_there_yet(shop))


def a_lease(shop):
    shop.product()
    return {"action": "acquire", "productId": shop.new_id, "seconds": 1}


def a_lease_on_a_product_that_is_lent(shop):
    shop.lend()
    return {"action": "acquire", "productId": shop.new_id, "seconds": 1}


def units_that_nobody_uses(shop):
    store = shop.aws.store()
    for lease in read_lane_leases(store, range(1, MAX_LANES + 1)):
        release_lane(store, lease)
    shop.lend()
    shop.aws.dynamodb.update_item(
        TableName=shop.aws.tables[Table.ALLOTMENTS],
        Key=key_item(PageKey.of(DEPOT, shop.new_id)),
        UpdateExpression="SET lastUpdatedAt = :then",
        ExpressionAttributeValues={":then": {"S": "2026-01-01T00:00:00.000000+00:00"}},
    )
    return {"action": "sweep"}


def a_count(shop):
    shop.product()
    lease = shop.lease()
    return {"action": "commit", "lease": lease, "counted": 9, "adjustmentId": shop.new_id}


def a_count_that_is_written_already(shop):
    count = a_count(shop)
    shop.call("count_stock", count)
    return count


def an_outcome(shop):
    return {"Records": [change(None, order_row(shop.new_id))]}


def an_outcome_that_cannot_be_published(shop):
    return {"Records": [change(None, order_row(shop.new_id, status="ON_HOLD"))]}


_PATTERNS = {route: re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", route)) for route in ROUTES}


def asked(method, path, body=None, **query):
    """A request of the HTTP API, as the function gets it. It waits for an answer, but not for long."""
    route, named = next(
        (route, found.groupdict())
        for route, pattern in _PATTERNS.items()
        if (found := pattern.fullmatch(f"{method} {path}"))
    )
    return {
        "version": "2.0",
        "routeKey": route,
        "pathParameters": named,
        "rawPath": path,
        "headers": {"content-type": "application/json", "prefer": "wait=1"},
        "queryStringParameters": query,
        "requestContext": {
            "authorizer": {"iam": {"userArn": "x"}},
            "stage": "$default",
            "http": {"method": method, "path": path},
        },
        "body": None if body is None else json.dumps(body),
    }


def an_order_that_is_asked_for(shop):
    return asked("POST", "/orders", shop.order())


def an_order_that_nobody_waits_for(shop):
    event = an_order_that_is_asked_for(shop)
    del event["headers"]["prefer"]
    return event


def a_look_at_a_product(shop):
    shop.product()
    return asked("GET", f"/products/{shop.new_id}")


def a_look_at_an_order(shop):
    shop.call("place_orders", an_order(shop))
    return asked("GET", f"/orders/{shop.new_id}")


def a_list_of_orders(shop):
    return asked("GET", "/orders", userId=shop.new_id)


def the_orders_to_ship(shop):
    return asked("GET", "/orders", status="CONFIRMED")


def all_stock(shop):
    return asked("GET", "/stock")


def the_stock_of_a_product_that_is_lent(shop):
    shop.lend()
    return asked("GET", f"/stock/{shop.new_id}")


def the_adjustments_of_a_product(shop):
    shop.product()
    return asked("GET", f"/products/{shop.new_id}/adjustments")


def the_history_of_a_product(shop):
    shop.product()
    return asked("GET", f"/products/{shop.new_id}/history")


def a_cancellation_that_is_asked_for(shop):
    a_cancellation_that_reclaims_units(shop)
    return asked("POST", f"/orders/{shop.new_id}/cancel")


def a_confirmation_that_is_asked_for(shop):
    shop.call("place_orders", an_order(shop))
    return asked("POST", f"/orders/{shop.new_id}/confirm")


NEEDED_FOR = {
    ("place_orders", "dynamodb:BatchGetItem", "ProductsTable"): an_order,
    ("place_orders", "dynamodb:UpdateItem", "ProductsTable"): an_order,
    ("place_orders", "dynamodb:BatchGetItem", "OrdersTable"): an_order,
    ("place_orders", "dynamodb:GetItem", "OrdersTable"): an_order_that_is_placed_already,
    ("place_orders", "dynamodb:PutItem", "OrdersTable"): an_order,
    (
        "place_orders",
        "dynamodb:UpdateItem",
        "OrdersTable",
    ): an_order_that_was_cancelled_before_it_came,
    ("place_orders", "sqs:SendMessage", "OrderDeadLetterQueue"): poison,
    ("place_orders", "sqs:SendMessage", "OrderFifoDeadLetterQueue"): poison_in_a_group,
    ("place_orders", "sqs:ChangeMessageVisibility", "OrderQueue"): an_order_of_a_leased_product,
    (
        "place_orders",
        "sqs:ChangeMessageVisibility",
        "OrderQueueFifo",
    ): an_order_of_a_leased_product_in_its_group,
    ("adjust_stock", "dynamodb:BatchGetItem", "ProductsTable"): a_receipt,
    ("adjust_stock", "dynamodb:GetItem", "ProductsTable"): a_receipt_that_is_booked_already,
    ("adjust_stock", "dynamodb:UpdateItem", "ProductsTable"): a_receipt,
    ("adjust_stock", "dynamodb:BatchGetItem", "StockAdjustmentsTable"): a_receipt,
    ("adjust_stock", "dynamodb:GetItem", "StockAdjustmentsTable"): a_loss_of_more_than_there_is,
    ("adjust_stock", "dynamodb:PutItem", "StockAdjustmentsTable"): a_receipt,
    ("adjust_stock", "sqs:SendMessage", "StockDeadLetterQueue"): poison,
    ("adjust_stock", "sqs:SendMessage", "StockQueue"): a_receipt_long_before_its_product,
    (
        "adjust_stock",
        "sqs:ChangeMessageVisibility",
        "StockQueue",
    ): a_receipt_of_a_product_that_is_not_there_yet,
    ("change_orders", "dynamodb:BatchGetItem", "ProductsTable"): a_cancellation,
    ("change_orders", "dynamodb:UpdateItem", "ProductsTable"): a_cancellation,
    ("change_orders", "dynamodb:BatchGetItem", "OrdersTable"): a_confirmation,
    ("change_orders", "dynamodb:GetItem", "OrdersTable"): a_direct_cancellation,
    ("change_orders", "dynamodb:PutItem", "OrdersTable"): a_cancellation_before_its_order,
    ("change_orders", "dynamodb:UpdateItem", "OrdersTable"): a_confirmation,
    ("change_orders", "sqs:SendMessage", "OrderCommandDeadLetterQueue"): poison,
    ("change_orders", "sqs:SendMessage", "ExpiryDeadLetterQueue"): poison_among_expiries,
    ("change_orders", "sqs:SendMessage", "OrderCommandQueue"): a_confirmation_long_before_its_order,
    (
        "change_orders",
        "sqs:ChangeMessageVisibility",
        "OrderCommandQueue",
    ): a_confirmation_before_its_order,
    ("change_orders", "sqs:ChangeMessageVisibility", "ExpiryQueue"): an_expiry_of_a_broken_order,
    ("change_orders", "sqs:GetQueueAttributes", "OrderCommandQueue"): an_expiry_of_a_broken_order,
    (
        "manage_products",
        "dynamodb:BatchGetItem",
        "ProductsTable",
    ): the_end_of_a_product_that_is_lent,
    ("manage_products", "dynamodb:GetItem", "ProductsTable"): the_end_of_a_product,
    ("manage_products", "dynamodb:PutItem", "ProductsTable"): a_new_product,
    ("manage_products", "dynamodb:UpdateItem", "ProductsTable"): a_price,
    ("manage_products", "dynamodb:DeleteItem", "ProductsTable"): a_delisting,
    ("manage_products", "dynamodb:PutItem", "StockAdjustmentsTable"): a_new_product,
    ("manage_products", "sqs:SendMessage", "CatalogueDeadLetterQueue"): poison,
    ("manage_products", "sqs:SendMessage", "CatalogueQueue"): an_event_long_before_its_product,
    (
        "manage_products",
        "sqs:ChangeMessageVisibility",
        "CatalogueQueue",
    ): an_event_of_a_product_that_is_not_there_yet,
    ("count_stock", "dynamodb:BatchGetItem", "ProductsTable"): a_lease_on_a_product_that_is_lent,
    ("count_stock", "dynamodb:GetItem", "ProductsTable"): a_count,
    ("count_stock", "dynamodb:UpdateItem", "ProductsTable"): a_lease,
    ("count_stock", "dynamodb:GetItem", "StockAdjustmentsTable"): a_count_that_is_written_already,
    ("count_stock", "dynamodb:PutItem", "StockAdjustmentsTable"): a_count,
    **{
        (function, f"dynamodb:{operation}", "AllotmentsTable"): event
        for function, event in (
            ("place_orders", an_order_of_more_than_the_row_has),
            ("adjust_stock", a_loss_of_more_than_the_row_has),
            ("manage_products", the_end_of_a_product_that_is_lent),
            ("count_stock", a_lease_on_a_product_that_is_lent),
            ("change_orders", a_cancellation_that_reclaims_units),
            ("api", a_cancellation_that_is_asked_for),
            ("sweep", units_that_nobody_uses),
        )
        for operation in ("BatchGetItem", "UpdateItem", "ConditionCheckItem")
    },
    ("sweep", "dynamodb:BatchGetItem", "ProductsTable"): units_that_nobody_uses,
    ("sweep", "dynamodb:UpdateItem", "ProductsTable"): units_that_nobody_uses,
    ("sweep", "dynamodb:Query", "OrdersTable/byExpiry"): a_hold_that_ends_soon,
    ("sweep", "sqs:SendMessage", "ExpiryQueue"): a_hold_that_ends_soon,
    ("sweep", "sqs:GetQueueAttributes", "ExpiryQueue"): a_hold_that_ends_soon,
    ("sweep", "dynamodb:DescribeTable", "OrdersTable"): a_hold_that_ends_soon,
    ("sweep", "dynamodb:DescribeTable", "ProductsTable"): a_hold_that_ends_soon,
    ("sweep", "lambda:GetEventSourceMapping", "mapping of OrdersTable"): a_hold_that_ends_soon,
    ("sweep", "lambda:GetEventSourceMapping", "mapping of ProductsTable"): a_hold_that_ends_soon,
    ("api", "dynamodb:BatchGetItem", "ProductsTable"): a_look_at_a_product,
    ("api", "dynamodb:UpdateItem", "ProductsTable"): an_order_that_is_asked_for,
    ("api", "dynamodb:BatchGetItem", "OrdersTable"): an_order_that_is_asked_for,
    ("api", "dynamodb:GetItem", "OrdersTable"): a_look_at_an_order,
    ("api", "dynamodb:PutItem", "OrdersTable"): an_order_that_is_asked_for,
    ("api", "dynamodb:UpdateItem", "OrdersTable"): a_confirmation_that_is_asked_for,
    ("api", "dynamodb:Query", "OrdersTable/byUser"): a_list_of_orders,
    ("api", "dynamodb:Query", "OrdersTable/byToFulfil"): the_orders_to_ship,
    ("api", "dynamodb:Scan", "ProductsTable"): all_stock,
    ("api", "dynamodb:GetItem", "ProductsTable"): the_stock_of_a_product_that_is_lent,
    ("api", "dynamodb:GetItem", "AllotmentsTable"): the_stock_of_a_product_that_is_lent,
    ("api", "dynamodb:Scan", "OrdersTable"): the_history_of_a_product,
    ("api", "dynamodb:Query", "StockAdjustmentsTable"): the_adjustments_of_a_product,
    ("api", "sqs:SendMessage", "OrderQueue"): an_order_that_nobody_waits_for,
    ("publish_events", "events:PutEvents", "EventBus"): an_outcome,
    (
        "publish_events",
        "sqs:SendMessage",
        "UndeliverableEventsQueue",
    ): an_outcome_that_cannot_be_published,
}


@pytest.fixture(scope="module")
def aws(embedded_aws):
    return embedded_aws[0]


@pytest.fixture(scope="module", autouse=True)
def no_other_sweep(aws):
    """What is to be swept here stays until it is."""
    with unscheduled(aws):
        yield


@pytest.fixture(scope="module")
def deployed(aws):
    return {function: permissions(aws, function) for function in function_names()}


def test_there_is_an_event_for_every_permission(aws, deployed):
    granted = {
        (function, action, name_of(aws, arn))
        for function, pairs in deployed.items()
        for action, arn in pairs
        if action not in NOT_ENFORCED
    }
    assert granted == NEEDED_FOR.keys() | ONLY_FOR_POLLERS


def events():
    """What each event needs: one event for several permissions saves most of the invocations."""
    found = defaultdict(list)
    for (function, action, resource), event in NEEDED_FOR.items():
        found[function, event].append((action, resource))
    return [
        pytest.param(function, event, needed, id=f"{function}-{event.__name__}")
        for (function, event), needed in found.items()
    ]


@pytest.mark.parametrize(("function", "make", "needed"), events())
def test_a_function_without_a_permission_is_denied(aws, deployed, function, make, needed):
    event = make(Shop(aws))
    for action, resource in needed:
        taken = {
            (name, arn)
            for name, arn in deployed[function]
            if name == action and name_of(aws, arn) == resource
        }
        assert len(taken) == 1
        for _ in range(5):
            if is_denied(aws, function, event, action, deployed[function], taken):
                break
            # On a busy machine the embedded AWS may hand over a log without its end. Or the last denial came too late
            # to leave anything to do.
            event = make(Shop(aws))
        else:
            raise AssertionError(f"{function} does not need {action} on {resource}")
    # The end of the log of the last denial may come with the next one's.
    logs = (said(invoke_deployed(aws, function, event)) for _ in range(3))
    assert any("not authorized" not in log for log in logs)


def is_denied(aws, function, event, action, granted, taken):
    """Whether a function is refused an action while a permission is taken away from it."""
    denials = [
        f"not authorized to perform: {name}"
        for name in (action, EMBEDDED_NAMES.get(action, action))
    ]
    try:
        allow(aws, function, granted - taken)
        log = said(
            invoke_deployed(aws, function, event),
            may_fail=function in ("sweep", "publish_events"),
        )
        return any(denial in log for denial in denials)
    finally:
        allow(aws, function, granted)


def said(invocation, *, may_fail=False):
    """Collect what an invocation answered and logged. A denied message must not be acknowledged."""
    assert not invocation.failed or may_fail, invocation.answer
    return json.dumps(invocation.answer) + invocation.logs
