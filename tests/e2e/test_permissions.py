"""The embedded AWS enforces IAM, and every permission of a role is necessary: without it, the function is denied.

The embedded AWS does not enforce the permissions for logs and for Lambda's pollers; tests/infra checks those in the
template.
"""

import json
import re
import uuid
from datetime import UTC, datetime
from itertools import chain

import pytest

from infra.api import ROUTES
from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.domain.allotments import DEPOT, MAX_LANES, PageKey
from inventory_orders.domain.record import AdjustmentKey
from inventory_orders.retry import EARLY_DELIVERIES
from inventory_orders.store import movements
from inventory_orders.store.lane_leases import read_lane_leases, release_lane
from inventory_orders.store.rows import encode, key_item
from inventory_orders.store.tables import Table
from local.invoke import invoke_deployed
from testing.schedules.in_turn.lanes import lend
from testing.world.events import order_body, sqs_event
from testing.world.handlers import function_names
from testing.world.streams import change, order_row
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
        ("place_orders", "OrderQueueExpress"),
        ("adjust_stock", "StockQueue"),
        ("manage_products", "CatalogueQueue"),
        ("change_orders", "ExpiryQueue"),
    )
}
"""Permissions of Lambda's pollers, which are not enforced. For other queues, functions read the depth themselves."""
ONLY_AFTER_CONFLICTS = {
    (function, "dynamodb:ConditionCheckItem", table)
    for function in ("place_orders", "change_orders", "api")
    for table in ("ProductsTable", "PurchasesTable")
}
"""Permissions that are only needed if TransactGetItems keeps conflicting, which never happens in the embedded AWS."""


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

    def new(self, stock):
        """Make a command that lists a product."""
        return self.command("create", openingStock=stock, barcodes=[{"code": self.new_id}])

    def product(self, action="", **more):
        """Create a product with 10 units in stock, and return a command for it."""
        created = self.call("manage_products", self.new(10))
        if action == "delist":
            more = {"createdAt": created["createdAt"]}
        return self.command(action, **more)

    def limited(self, event):
        """Create a product with a purchase limit of 2, and return an event."""
        self.call("manage_products", self.new(10) | {"purchaseLimit": 2})
        return event

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

    def count_as_of_a_time(self):
        self.product()
        place = {"locationId": "", "adjustmentId": self.new_id}
        begun = self.call("count_stock", self.command("begin", **place))
        return self.command("count", **place, snapshot=begun["snapshot"], counted=9)

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

    def through(self, queue, body):
        return sqs_event(body, queue=self.aws.outputs[f"{queue}Url"].rsplit("/", 1)[-1])


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


def cancelled_within_the_limit(shop):
    shop.limited(None)
    shop.call("place_orders", shop.order())
    return sqs_event(shop.order_command("cancel"))


def amended_beyond_the_limit(shop):
    shop.limited(None)
    shop.call("place_orders", shop.order())
    items = [{"productId": shop.new_id, "quantity": 3}]
    return sqs_event(shop.order_command("amend") | {"stepId": "more", "items": items})


def cancelled_too_early(shop):
    shop.call("change_orders", sqs_event(shop.order_command("cancel")))
    shop.product()
    return sqs_event(shop.order())


def expiry_of_a_broken_order(shop):
    row = {"orderId": {"S": shop.new_id}, "items": {"S": "?"}}
    shop.aws.dynamodb.put_item(TableName=shop.aws.tables[Table.ORDERS], Item=row)
    return shop.through("ExpiryQueue", {"orderId": shop.new_id})


def hold_and_idle_units(shop):
    shop.place(holdSeconds=60)
    store = shop.aws.store()
    for lease in read_lane_leases(store, range(1, MAX_LANES + 1)):
        release_lane(store, lease)
    lend(store, shop.new_id, 5, {1: 0})
    # Orders to ship are read, to find out which units are missing.
    paid = order_row(f"{shop.new_id}-paid", status="CONFIRMED", statusShard="CONFIRMED#00")
    paid["statusAt"] = paid["createdAt"]
    shop.aws.dynamodb.put_item(TableName=shop.aws.tables[Table.ORDERS], Item=encode(paid))
    then = {"S": "2026-01-01T00:00:00.000000+00:00"}
    # A transfer ended long ago.
    arrival = {"reason": {"S": "TRANSFER_IN"}, "reference": {"S": "van-7"}, "delta": {"N": "1"}}
    arrival |= {"transferShard": {"S": "00"}, "appliedAt": then}
    item = key_item(AdjustmentKey(shop.new_id, "m-1")) | arrival
    shop.aws.dynamodb.put_item(TableName=shop.aws.tables[Table.STOCK_ADJUSTMENTS], Item=item)
    page = PageKey.of(DEPOT, shop.new_id)
    shop.update(Table.ALLOTMENTS, page, "SET lastUpdatedAt = :value", then)
    # Movements were once recorded late.
    movements.note_late(store, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    return {"action": "sweep"}


def outcome(shop, **changes):
    return {"Records": [change(None, order_row(shop.new_id, **changes))]}


def late_outcome(shop):
    event = outcome(shop)
    changed_at = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    event["Records"][0]["dynamodb"]["ApproximateCreationDateTime"] = changed_at
    return event


_PATTERNS = {route: re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", route)) for route in ROUTES}


def asked(method, path, body=None, prefer="wait=1", **query):
    """Make an HTTP request in the form in which the function receives it. By default, its caller waits one second."""
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
        "headers": {"content-type": "application/json"} | ({"prefer": prefer} if prefer else {}),
        "queryStringParameters": query,
        "requestContext": {
            "authorizer": {"iam": {"userArn": "x"}},
            "stage": "$default",
            "http": {"method": method, "path": path},
        },
        "body": None if body is None else json.dumps(body),
    }


def asked_after(prepare, method, path, **more):
    def make(shop):
        prepare(shop)
        return asked(method, path.format(shop.new_id), **more)

    return make


EVENTS = {
    "order": lambda s: s.product() and sqs_event(s.order()),
    "order, placed before": again("place_orders", lambda s: s.product() and s.order()),
    "order, cancelled before it came": cancelled_too_early,
    "order of a leased product": lambda s: s.product() and s.leased(sqs_event(s.order())),
    "order of a leased product, FIFO": lambda s: (
        s.product() and s.leased(sqs_event(s.order(), group="g"))
    ),
    "order of a leased product, express": lambda s: (
        s.product() and s.leased(s.through("OrderQueueExpress", s.order()))
    ),
    "order of more than the row has": lambda s: s.lent() and sqs_event(s.order(10), group="g"),
    "order that two locations lack": lambda s: (
        s.product() and sqs_event(s.order(11, locations=["", "berlin"]))
    ),
    "order of a limited product": lambda s: s.limited(sqs_event(s.order())),
    "order beyond its limit": lambda s: s.limited(sqs_event(s.order(3))),
    "invalid": lambda s: sqs_event("invalid"),
    "invalid, FIFO": lambda s: sqs_event("invalid", group="g"),
    "invalid, express": lambda s: s.through("OrderQueueExpress", "invalid"),
    "receipt": lambda s: s.product() and s.adjustment(1),
    "receipt, booked before": again("adjust_stock", lambda s: s.product() and s.adjustment(1)),
    "receipt before its product": lambda s: sqs_event(s.adjustment(1)),
    "receipt long before its product": lambda s: often(s.adjustment(1)),
    "loss of more than the row has": lambda s: s.lent() and s.adjustment(-8),
    "loss of more than there is": lambda s: s.product() and s.adjustment(-11),
    "confirmation": lambda s: s.on_placed(sqs_event(s.order_command("confirm"))),
    "confirmation before its order": lambda s: sqs_event(s.order_command("confirm")),
    "confirmation long before its order": lambda s: often(s.order_command("confirm")),
    "cancellation": lambda s: s.on_placed(sqs_event(s.order_command("cancel"))),
    "cancellation that reclaims units": reclaiming_cancellation,
    "cancellation of a limited order": cancelled_within_the_limit,
    "amend beyond the limit": amended_beyond_the_limit,
    "cancellation before its order": lambda s: sqs_event(s.order_command("cancel")),
    "direct cancellation": lambda s: s.order_command("cancel"),
    "invalid among expiries": lambda s: s.through("ExpiryQueue", "invalid"),
    "expiry of a broken order": expiry_of_a_broken_order,
    "new product": lambda s: s.new(1),
    "price": lambda s: s.product("changePrice", price=1),
    "end of a product": lambda s: s.product("discontinue"),
    "end of a lent product": lambda s: s.lent("discontinue"),
    "delisting": lambda s: s.product("delist"),
    "details before their product": lambda s: sqs_event(early_detail(s)),
    "details long before their product": lambda s: often(early_detail(s)),
    "lease": lambda s: s.product("acquire", seconds=1),
    "lease of a lent product": lambda s: s.lent("acquire", seconds=1),
    "count": Preparation.count,
    "count, written before": again("count_stock", Preparation.count),
    "count as of a time": Preparation.count_as_of_a_time,
    "hold and idle units": hold_and_idle_units,
    "outcome": outcome,
    "outcome, recorded late": late_outcome,
    "outcome that cannot be published": lambda s: outcome(s, status="ON_HOLD"),
    "outcome that cannot be recorded": lambda s: outcome(s, createdAt="yesterday"),
    "POST order": lambda s: s.product() and asked("POST", "/orders", s.order()),
    "POST order of a leased product": lambda s: (
        s.product() and s.leased(asked("POST", "/orders", s.order()))
    ),
    "POST order without waiting": lambda s: (
        s.product() and asked("POST", "/orders", s.order(), prefer="")
    ),
    "POST order of a limited product": lambda s: s.limited(asked("POST", "/orders", s.order())),
    "POST order beyond its limit": lambda s: s.limited(asked("POST", "/orders", s.order(3))),
    "POST cancel": asked_after(reclaiming_cancellation, "POST", "/orders/{}/cancel"),
    "POST confirm": asked_after(Preparation.place, "POST", "/orders/{}/confirm"),
    "GET product": asked_after(Preparation.product, "GET", "/products/{}"),
    "GET products by a search": lambda s: asked("GET", "/products", search="tea"),
    "GET what was scanned": lambda s: asked("GET", "/barcodes", scan="4006381333931"),
    "GET order": asked_after(Preparation.place, "GET", "/orders/{}"),
    "GET orders of a user": lambda s: asked("GET", "/orders", userId=s.new_id),
    "GET orders to ship": lambda s: asked("GET", "/orders", status="CONFIRMED"),
    "GET late payments": lambda s: asked("GET", "/orders", latePayment="true"),
    "GET orders by reference": lambda s: asked("GET", "/orders", reference="1Z-1"),
    "GET all stock": lambda s: asked("GET", "/stock"),
    "GET stock that is low": lambda s: asked("GET", "/stock", status="LOW_STOCK"),
    "GET stock of a lent product": asked_after(Preparation.lent, "GET", "/stock/{}"),
    "GET adjustments": asked_after(Preparation.product, "GET", "/products/{}/adjustments"),
    "GET counts": lambda s: asked("GET", "/counts"),
    "GET counts of a stocktake": lambda s: asked("GET", "/counts", reference="Winter"),
    "GET transfers": lambda s: asked("GET", "/transfers"),
    "GET history": asked_after(Preparation.product, "GET", "/products/{}/history"),
}

# Events, and the permissions that the function needs for them. Sharing events between permissions saves most
# invocations. Permissions joined by a plus are taken away together, and each has to be denied. They belong to independent
# steps of a sweep, which continues after a step that fails. Each failed sweep costs a cold start.
LANES = "AllotmentsTable dynamodb:BatchGetItem dynamodb:UpdateItem dynamodb:ConditionCheckItem"
NEEDED = {
    "place_orders": f"""
        order: ProductsTable dynamodb:BatchGetItem dynamodb:UpdateItem
        order: OrdersTable dynamodb:BatchGetItem dynamodb:PutItem
        order that two locations lack: ProductsTable dynamodb:GetItem
        order of a limited product: PurchasesTable dynamodb:BatchGetItem dynamodb:UpdateItem
        order beyond its limit: PurchasesTable dynamodb:GetItem
        order, placed before: OrdersTable dynamodb:GetItem
        order, cancelled before it came: OrdersTable dynamodb:UpdateItem
        invalid: OrderDeadLetterQueue sqs:SendMessage
        invalid, FIFO: OrderFifoDeadLetterQueue sqs:SendMessage
        invalid, express: OrderExpressDeadLetterQueue sqs:SendMessage
        order of a leased product: OrderQueue sqs:ChangeMessageVisibility
        order of a leased product, FIFO: OrderQueueFifo sqs:ChangeMessageVisibility
        order of a leased product, express: OrderQueueExpress sqs:ChangeMessageVisibility
        order of more than the row has: {LANES}""",
    "adjust_stock": f"""
        receipt: ProductsTable dynamodb:BatchGetItem dynamodb:UpdateItem
        receipt: StockAdjustmentsTable dynamodb:BatchGetItem dynamodb:PutItem
        receipt, booked before: ProductsTable dynamodb:GetItem
        loss of more than there is: StockAdjustmentsTable dynamodb:GetItem
        invalid: StockDeadLetterQueue sqs:SendMessage
        receipt long before its product: StockQueue sqs:SendMessage
        receipt before its product: StockQueue sqs:ChangeMessageVisibility
        loss of more than the row has: {LANES}""",
    "change_orders": f"""
        cancellation: ProductsTable dynamodb:BatchGetItem dynamodb:UpdateItem
        confirmation: OrdersTable dynamodb:BatchGetItem dynamodb:UpdateItem
        direct cancellation: OrdersTable dynamodb:GetItem
        cancellation before its order: OrdersTable dynamodb:PutItem
        cancellation of a limited order: PurchasesTable dynamodb:UpdateItem
        amend beyond the limit: PurchasesTable dynamodb:BatchGetItem dynamodb:GetItem
        amend beyond the limit: ProductsTable dynamodb:GetItem
        invalid: OrderCommandDeadLetterQueue sqs:SendMessage
        invalid among expiries: ExpiryDeadLetterQueue sqs:SendMessage
        confirmation long before its order: OrderCommandQueue sqs:SendMessage
        confirmation before its order: OrderCommandQueue sqs:ChangeMessageVisibility
        expiry of a broken order: ExpiryQueue sqs:ChangeMessageVisibility
        expiry of a broken order: OrderCommandQueue sqs:GetQueueAttributes
        cancellation that reclaims units: {LANES}""",
    "manage_products": f"""
        end of a lent product: ProductsTable dynamodb:BatchGetItem
        end of a product: ProductsTable dynamodb:GetItem
        new product: ProductsTable dynamodb:PutItem
        price: ProductsTable dynamodb:UpdateItem
        delisting: ProductsTable dynamodb:DeleteItem
        new product: StockAdjustmentsTable dynamodb:PutItem
        new product: WordsTable dynamodb:PutItem
        delisting: WordsTable dynamodb:DeleteItem
        new product: BarcodesTable dynamodb:PutItem
        delisting: BarcodesTable dynamodb:DeleteItem
        invalid: CatalogueDeadLetterQueue sqs:SendMessage
        details long before their product: CatalogueQueue sqs:SendMessage
        details before their product: CatalogueQueue sqs:ChangeMessageVisibility
        end of a lent product: {LANES}""",
    "count_stock": f"""
        lease of a lent product: ProductsTable dynamodb:BatchGetItem
        count: ProductsTable dynamodb:GetItem
        lease: ProductsTable dynamodb:UpdateItem
        lease: AllotmentsTable dynamodb:GetItem
        count, written before: StockAdjustmentsTable dynamodb:GetItem
        count: StockAdjustmentsTable dynamodb:PutItem
        count as of a time: StockAdjustmentsTable dynamodb:BatchGetItem
        lease of a lent product: {LANES}""",
    "sweep": """
        hold and idle units: ProductsTable dynamodb:BatchGetItem
            + OrdersTable/byExpiry dynamodb:Query
            + OrdersTable dynamodb:DescribeTable
        hold and idle units: ProductsTable dynamodb:UpdateItem
            + ExpiryQueue sqs:SendMessage
            + ProductsTable dynamodb:DescribeTable
            + OrdersTable/byStatus dynamodb:Query
            + MovementsTable dynamodb:BatchWriteItem
        hold and idle units: AllotmentsTable dynamodb:BatchGetItem
            + ExpiryQueue sqs:GetQueueAttributes
            + mapping-of-OrdersTable-to-PublishEvents lambda:GetEventSourceMapping
            + MovementsTable dynamodb:Query
        hold and idle units: AllotmentsTable dynamodb:UpdateItem
            + StockAdjustmentsTable/byTransfer dynamodb:Query
            + mapping-of-ProductsTable-to-PublishEvents lambda:GetEventSourceMapping
        hold and idle units: AllotmentsTable dynamodb:ConditionCheckItem
            + OrdersTable/byLatePayment dynamodb:Query
            + StockAdjustmentsTable dynamodb:UpdateItem
            + mapping-of-OrdersTable-to-RecordMovements lambda:GetEventSourceMapping
        hold and idle units: OrdersTable dynamodb:BatchGetItem
            + MovementsTable dynamodb:UpdateItem
            + mapping-of-ProductsTable-to-RecordMovements lambda:GetEventSourceMapping""",
    "api": f"""
        GET product: ProductsTable dynamodb:BatchGetItem
        GET all stock: ProductsTable dynamodb:Scan
        GET stock that is low: ProductsTable/byLevel dynamodb:Query
        GET stock of a lent product: ProductsTable dynamodb:GetItem
        GET stock of a lent product: AllotmentsTable dynamodb:GetItem
        POST order: ProductsTable dynamodb:UpdateItem
        POST order: OrdersTable dynamodb:BatchGetItem dynamodb:PutItem
        GET order: OrdersTable dynamodb:GetItem
        POST confirm: OrdersTable dynamodb:UpdateItem
        GET orders of a user: OrdersTable/byUser dynamodb:Query
        GET orders to ship: OrdersTable/byStatus dynamodb:Query
        GET late payments: OrdersTable/byLatePayment dynamodb:Query
        GET orders by reference: MovementsTable/byReference dynamodb:Query
        GET history: StockAdjustmentsTable/byTime dynamodb:Query
        GET history: MovementsTable dynamodb:Query
        GET transfers: StockAdjustmentsTable/byTransfer dynamodb:Query
        GET counts: ProductsTable/byCount dynamodb:Query
        GET counts of a stocktake: StockAdjustmentsTable/byStocktake dynamodb:Query
        GET adjustments: StockAdjustmentsTable dynamodb:Query
        GET products by a search: WordsTable dynamodb:Query
        GET what was scanned: BarcodesTable dynamodb:GetItem
        POST order without waiting: OrderQueue sqs:SendMessage
        POST order of a leased product: OrderQueueExpress sqs:SendMessage
        POST order of a limited product: PurchasesTable dynamodb:BatchGetItem dynamodb:UpdateItem
        POST order beyond its limit: PurchasesTable dynamodb:GetItem
        POST cancel: {LANES}""",
    "publish_events": """
        outcome: EventBus events:PutEvents
        outcome that cannot be published: UndeliverableEventsQueue sqs:SendMessage""",
    "record_movements": """
        outcome: MovementsTable dynamodb:BatchWriteItem
        outcome: AllotmentsTable dynamodb:BatchGetItem dynamodb:UpdateItem
        outcome, recorded late: MovementsTable dynamodb:UpdateItem
        outcome that cannot be recorded: UnrecordedMovementsQueue sqs:SendMessage""",
}


def needed():
    """Return the permissions that each function needs for each event, as lists of pairs of action and resource.

    All permissions of a list are taken away together.
    """
    found = {}
    for function, lines in NEEDED.items():
        for line in re.sub(r"\n\s+\+", " +", lines.strip()).splitlines():
            event, _, text = line.strip().partition(": ")
            lists = found.setdefault((function, event), [])
            if " + " in text:
                lists.append([*chain.from_iterable(map(pairs, text.split(" + ")))])
            else:
                lists += [[pair] for pair in pairs(text)]
    return found


def pairs(permission):
    resource, *actions = permission.split()
    return [(action, resource.replace("-", " ")) for action in actions]


@pytest.fixture(scope="module", autouse=True)
def no_other_sweep(aws):
    """Disable the sweep's schedule, so that the only sweeps are the ones in these tests."""
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
    listed = {
        (function, *pair)
        for (function, _), lists in needed().items()
        for pair in chain.from_iterable(lists)
    }
    assert granted == listed | ONLY_FOR_POLLERS | ONLY_AFTER_CONFLICTS


@pytest.mark.parametrize(("function", "name"), needed())
def test_a_function_without_a_permission_is_denied(aws, deployed, function, name):
    event = EVENTS[name](Preparation(aws))
    for needs in needed()[function, name]:
        actions = {action for action, _ in needs}
        taken = {
            (action, arn)
            for action, arn in deployed[function]
            if action in actions and (action, name_of(aws, arn)) in needs
        }
        # A denial is recognised by its action.
        assert len(taken) == len(actions) == len(needs)
        for _ in range(5):
            needless = actions - denied(aws, function, event, actions, deployed[function], taken)
            if not needless:
                break
            # On a busy machine, the embedded AWS may deliver a log without its end, or the last denial may come after
            # the work is done.
            event = EVENTS[name](Preparation(aws))
        else:
            raise AssertionError(f"{function} does not need {needless} of {needs}")
    # The end of the last denial's log may arrive with the next log.
    logs = (said(invoke_deployed(aws, function, event)) for _ in range(3))
    assert any("not authorized" not in log for log in logs)


def denied(aws, function, event, actions, granted, taken):
    """Return which of these actions a function is denied when it lacks the permissions for them."""
    try:
        allow(aws, function, granted - taken)
        log = said(
            invoke_deployed(aws, function, event),
            may_fail=function in ("sweep", "publish_events", "record_movements"),
        )
        return {
            action
            for action in actions
            for name in (action, EMBEDDED_NAMES.get(action, action))
            if f"not authorized to perform: {name}" in log
        }
    finally:
        allow(aws, function, granted)


def said(invocation, *, may_fail=False):
    """Return an invocation's answer and log. A denied message must not be acknowledged."""
    assert not invocation.failed or may_fail, invocation.answer
    return json.dumps(invocation.answer) + invocation.logs
