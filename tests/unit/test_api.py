"""The HTTP API: every route, and every status code that it can return."""

import base64
import json
import random
import re
from collections import Counter
from itertools import chain
from urllib.parse import quote

import jsonschema
import pytest

from inventory_orders.api import orders, products, requests
from inventory_orders.api.products import availability
from inventory_orders.api.requests import encode_cursor, place_after
from inventory_orders.api.serving import Caller
from inventory_orders.clock import Deadline, SystemClock, timestamp
from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.allotments import PageKey
from inventory_orders.domain.product import ProductStatus
from inventory_orders.domain.record import OrderStatus
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import (
    InvalidMessageError,
    Outcome,
    StoreUnavailableError,
    ThrottledError,
)
from inventory_orders.invocation.runtime import Process
from inventory_orders.invocation.sqs import SqsCalls
from inventory_orders.messages.documents import json_schema
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.lists import ListPosition
from inventory_orders.store.tables import Table
from local.sample_orders import catalogue
from operations import emf
from testing.aws import ServiceError
from testing.schedules.in_turn.bench import product
from testing.schedules.in_turn.lanes import lend
from testing.schedules.in_turn.shop import Fault
from testing.world.events import sqs_event
from testing.world.faults import cancelled
from tests.support.http import (
    BERLIN,
    CONTRACT,
    EXAMPLES,
    JSON,
    LOST,
    OPERATIONS,
    ROUTES,
    TEA,
    WAIT,
    Api,
    resolved,
    send,
)
from tests.support.movements import record_movements
from tests.support.schemas import is_open

ORDER = {"orderId": "o-1", "userId": "u-7", "items": [{"productId": TEA, "quantity": 2}]}
OPERATOR = {"sub": "staff-1", "cognito:groups": "[staff operators]"}


FROM_API_GATEWAY_ONLY = {(*route, status) for route in OPERATIONS for status in (401, 429)} | {
    ("POST", "/orders", 500),
    ("GET", "/about", 500),
    ("GET", "/about", 503),
}


@pytest.fixture
def api(tea_shop):
    """Make the API of a shop that has just opened."""
    return Api(tea_shop)


@pytest.fixture
def customers(api):
    """Make the API that customers call with a token."""
    group = {"OPERATORS_CLAIM_NAME": "cognito:groups", "OPERATORS_CLAIM_VALUE": "operators"}
    api.shop.restart(USER_ID_CLAIM="sub", **group)
    return api


def place(api, order_id="o-1", quantity=2, product_id=TEA, user="u-7", claims=None, **more):
    body = {
        "orderId": order_id,
        "userId": user,
        "items": [{"productId": product_id, "quantity": quantity}],
    }
    return api("POST", "/orders", body | more, WAIT, claims=claims)


# ---------------------------------------------------------------------- the contract


def test_the_contract_and_the_handlers_have_the_same_routes(api):
    assert {tuple(route.split()) for route in api.functions} == OPERATIONS.keys()


NAMED_BY_PATHS, OF_IDS = r"""(?!\.{1,2}$)[!"\$&-+.0->@-~-]""", r"""[!"\$-+.-~-]"""
"""The characters of ids that a path can contain, and the characters of all ids."""

NOT_IN_JSON = r"\ud800-\udfff"
"""Characters that the patterns of messages exclude, and that cannot occur in the JSON of a request."""


def without_words(schema):
    """Remove descriptions and what cannot occur from a schema, and allow ids that a path could not contain."""
    if isinstance(schema, str):
        return schema.replace(NAMED_BY_PATHS, OF_IDS).replace(NOT_IN_JSON, "")
    if isinstance(schema, dict):
        return {
            name: without_words(inner)
            for name, inner in schema.items()
            if name not in ("$schema", "title", "description", "examples", "refused")
        }
    return schema


def test_the_contracts_schemas_match_the_messages_schemas():
    schemas = CONTRACT["components"]["schemas"]
    assert without_words(resolved(schemas["NewOrder"])) == without_words(json_schema("order"))
    for name, function, action in (
        ("Confirmation", "change_orders", "confirm"),
        ("Extension", "change_orders", "extend"),
        ("Part", "change_orders", "fulfil"),
        ("Amend", "change_orders", "amend"),
        ("Undoing", "change_orders", "unfulfil"),
        ("Cancellation", "change_orders", "cancel"),
        ("Return", "change_orders", "return"),
        ("NewProduct", "manage_products", "create"),
        ("ProductChange", "manage_products", "change"),
        ("NewAdjustment", "adjust_stock", "adjust"),
        ("NewTransfer", "adjust_stock", "transfer"),
    ):
        command = as_body(json_schema("commands")[function][action], is_new=name == "NewProduct")
        said = resolved(schemas[name])
        texts = {n for n, inner in command["properties"].items() if "\\ud800" in str(inner)}
        said["properties"] |= {name: command["properties"][name] for name in texts}
        if "product" in name.lower():
            # The catalogue enforces this, whatever the interface: see the next test.
            del said["not"]
        if name == "Amend":
            # The parser enforces this, with a plainer message than a schema's.
            del said["anyOf"]
        assert without_words(said) == without_words(command)
    counts = json_schema("commands")["count_stock"].values()
    for said, command in zip(schemas["Count"]["oneOf"], counts, strict=True):
        assert said["required"] == command["required"]
        assert said["properties"].keys() == command["properties"].keys() - {"actor"}
        for name in said["properties"].keys() - {"action", "reference", "scanned"}:
            demanded = without_words(resolved(said["properties"][name]))
            assert demanded == without_words(command["properties"][name])


@pytest.mark.parametrize("location", ["", "berlin"])
def test_the_contract_says_that_all_locations_share_name_and_price(api, location):
    schemas = CONTRACT["components"]["schemas"]

    def fits(name, body):
        return jsonschema.Draft202012Validator(resolved(schemas[name])).is_valid(body)

    for field, value in (("name", "Earl Grey"), ("price", 720)):
        body = {field: value, "locationId": location}
        said = api("PATCH", f"/products/{TEA}", body)
        assert fits("ProductChange", body) is (said.status == 200) is (location == "")
        assert said.status == 200 or said.code == (400, "SCHEMA_VIOLATION")
        new = body | {"productId": f"new-{field}", "openingStock": 1}
        assert fits("NewProduct", new) is (api("POST", "/products", new).status == 201)


def as_body(command, *, is_new):
    """Turn a command's schema into the schema of a request body.

    The path and the caller provide the other fields, and OpenAPI uses newer keywords.
    """
    names = {"action", "actor"} | (set() if is_new else {"orderId", "productId"})
    required = [name for name in command["required"] if name not in names]
    properties = {n: inner for n, inner in command["properties"].items() if n not in names}
    newer = {"dependencies": "dependentRequired"}
    whole = {newer.get(key, key): value for key, value in command.items()}
    whole |= {"required": required, "properties": properties}
    return whole if required else {k: v for k, v in whole.items() if k != "required"}


def test_answers_may_have_further_fields():
    assert all(is_open(operation["responses"]) for operation in OPERATIONS.values())


def test_generators_of_clients_can_read_all_constants():
    """`openapi-python-client` 0.29 writes invalid code for a constant that is not a string."""

    def constants(part):
        if isinstance(part, dict):
            yield from (value for name, value in part.items() if name == "const")
            # Generators ignore conditions.
            rest = (v for name, v in part.items() if name not in ("if", "then", "else"))
            yield from chain.from_iterable(map(constants, rest))
        if isinstance(part, list):
            yield from chain.from_iterable(map(constants, part))

    assert {type(value) for value in constants(CONTRACT)} == {str}


LIFE = (
    *("getAbout", "getToday", "listChanges"),
    *("placeOrder", "getOrder", "listOrders", "extendHold", "amendOrder", "confirmOrder"),
    *(
        "fulfilOrder",
        "undoHandOver",
        "takeBack",
        "cancelOrder",
        "getProducts",
        "getProduct",
        "createProduct",
        "findScanned",
    ),
    *("changeProduct", "adjustStock", "listAdjustments", "listHistory", "listStock", "getStock"),
    *("transferStock", "listTransfers", "listCounts"),
    *("discontinueProduct", "listProductAgain", "countStock", "delistProduct"),
)
"""The routes in a sequence in which each example succeeds."""


TOO_LARGE = "x" * 262_145


def test_every_example_of_the_contract_succeeds_and_every_status_occurs(customers, monkeypatch):
    """The service returns every documented status, except the ones that only API Gateway returns."""
    seen = set()

    def see(name, *ids, **more):
        said = send(customers, name, *ids, **{"claims": OPERATOR} | more)
        seen.add((*ROUTES[name], said.status))
        return said

    see_answers(see)
    see_conflicts(see, customers)
    see_failures(see, monkeypatch)
    promised = {
        (*route, int(status))
        for route, operation in OPERATIONS.items()
        for status in operation["responses"]
    }
    assert promised - FROM_API_GATEWAY_ONLY == seen


def see_answers(see):
    """Send each example while it succeeds, and then with a wrong id, query, body, type and caller."""
    for name in LIFE:
        if name == "transferStock":
            see("createProduct", body=BERLIN)
        said = see(name)
        assert said.status in (200, 201), (name, said.text)
        see(name, "o-9", "p-9")
        if ROUTES[name][0] == "GET":
            see(name, headers={"if-none-match": "*"})
        else:
            see(name, body=TOO_LARGE)
            see(name, body={"why": 1}, headers={})
        see(name, claims={})
        see(name, query={"wrong": "1"})
    see("findScanned", query={"scan": "4006381333948"})
    see("placeOrder")
    see("placeOrder", headers=JSON)
    see("createProduct", body=BERLIN | {"productId": "unknown"})
    see("countStock", body={"action": "acquire", "productId": "unknown", "seconds": 1})


def see_conflicts(see, api):
    """Send commands that the status of an order, of a product or of a lease does not allow."""
    api.shop.clock.sleep(300)
    see("placeOrder", body=ORDER)
    see("placeOrder", body=ORDER | {"userId": "u-8"})
    see("fulfilOrder", "o-1")
    see("undoHandOver", "o-1")
    see("amendOrder", "o-1", body={"stepId": "a", "items": [{"productId": "mug", "quantity": 1}]})
    see("amendOrder", "o-1", headers=WAIT | {"if-match": '"9"'})
    see("confirmOrder", "o-1", body={"ifVersion": 9})
    lease = see("countStock").document["lease"]
    see("amendOrder", "o-1")
    see("countStock", body={"action": "release", "lease": lease})
    see("takeBack", "o-1")
    see("cancelOrder", "o-1", body=None)
    see("confirmOrder", "o-1")
    see("extendHold", "o-1")
    see("cancelOrder", body={"stepId": "c-9", "items": ORDER["items"]})
    see("createProduct")
    see("countStock", body={"action": "renew", "lease": LOST, "seconds": 9})
    berlin = {"locationId": "berlin"}
    see("changeProduct", body={"backorderLimit": 9} | berlin)
    see("adjustStock", body={"adjustmentId": "r-1", "delta": -9, "reason": "LOSS"} | berlin)
    see("adjustStock", body={"adjustmentId": "r-1", "delta": -8, "reason": "LOSS"} | berlin)
    see("changeProduct", body={"backorderLimit": 1} | berlin)
    see("transferStock", body=EXAMPLES["transferStock"]["body"] | {"quantity": 999})
    see("delistProduct", query={"createdAt": api.shop.row(TEA)["createdAt"]["S"]})
    for product_id, gtin in ((TEA, "00000001234565"), ("mug-large", "00012345000065")):
        see("changeProduct", product_id=product_id, body={"barcodes": [{"code": gtin}]})
    see("findScanned", query={"scan": "01234565"})


def see_failures(see, monkeypatch):
    """Send all examples while every request to the tables and to the queue fails."""
    monkeypatch.setattr(RetryingClient, "pause", lambda *_: False)
    monkeypatch.setattr(SqsCalls, "send_one", lambda *_: False)
    for error in (
        ThrottledError("ThrottlingException", "secret"),
        StoreUnavailableError("AccessDeniedException", "secret"),
    ):
        broken(monkeypatch, error)
        monkeypatch.setattr(Process, "customers_may_amend", True)
        see("amendOrder", claims={"sub": "u-7"})
        for name in LIFE:
            see(name)


def broken(monkeypatch, error):
    """Make every request to the tables fail."""

    def fail(*_, **__):
        raise error

    reads = "get query scan read read_items read_together"
    for name in (*reads.split(), "write", "update_product"):
        monkeypatch.setattr(Store, name, fail)


def mistakes(method, path, body, query):
    """Yield requests with one mistake each: the place of the mistake, and the request's path, body and query."""
    names, template = re.findall(r"{(\w+)}", path), path
    path = path.format(orderId="o-1", productId="mug")
    # API Gateway may split `a%3Fb` in a path into the id `a` and a query `b`; such a request must not act on `a`.
    yield "b", path, body, query | {"b": ""}
    yield '""', path, body, query | {"": ""}
    for name, value in query.items():
        yield name, path, body, {other: v for other, v in query.items() if other != name}
        # Any text may be printed on goods.
        yield name, path, body, query | {name: "" if name == "scan" else f"{value} 1"}
    for name in names:
        for wrong in ("a b", "x" * 129, "..", "o-1%", "o-1%2D5", "mug?5"):
            yield name, template.replace(f"{{{name}}}", wrong), body, query
    if method == "GET":
        return
    for wrong in ("{", "[]", "1", "null", "[1.5]", '{"a": 1, "a": 1}'):
        yield "", path, wrong, query
    whole = body or {}
    for name in (*whole, "wrong", "message", "action", "actor", "orderId", "productId"):
        yield name, path, {other: value for other, value in whole.items() if other != name}, query
        for wrong in ("", -1, [], {}, [{}], None):
            yield name, path, whole | {name: wrong}, query
    yield "", path, {**whole, "stepId": "s", "items": None}, query
    yield "", path, {"stepId": "s", **whole}, query
    yield "", path, {"items": ORDER["items"], **whole}, query


OF_OTHER_INTERFACES = re.compile(
    r"\b(messages?|events?|commands?|actions?|actor|SQS|\w*[Qq]ueue|Lambda|invocations?)\b"
)


def test_every_refusal_is_in_terms_of_path_query_and_body(api):
    """No error about a request mentions the format of queue messages or direct invocations, and no refusal has effects."""
    place(api)
    refused = Counter()
    for (method, template), name in zip(OPERATIONS, ROUTES, strict=True):
        in_path = re.findall(r"{(\w+)}", template)
        good_path = template.format(orderId="o-1", productId="mug")
        body, query = EXAMPLES[name].values()
        for where, path, wrong_body, wrong_query in mistakes(method, template, body, query):
            before = api.state()
            said = api(method, path, wrong_body, query=wrong_query)
            if said.status != 400:
                # Some routes accept some of the wrong fields.
                assert (path, wrong_query) == (good_path, query), said.text
                assert not isinstance(wrong_body, str)
                continue
            assert api.state() == before
            # An empty change has no particular field that is missing.
            assert where in said.document.get("field", "") or wrong_body == {}, said.text
            # The error may quote the caller's own values.
            words = said.document["detail"].removeprefix(f"{where}: ")
            others = set(OF_OTHER_INTERFACES.findall(words))
            assert others <= ({"action"} if path == "/counts" else set()), said.text
            allowed = words.partition("one of ")[2].split(", ")
            assert not {*in_path, "actor"} & set(allowed), said.text
            refused[method, template] += 1
    assert refused.keys() == OPERATIONS.keys()
    assert refused.total() > 500


# ---------------------------------------------------------------------- POST /orders


def test_an_order_goes_to_its_queue_and_the_answer_says_where_to_ask(api):
    said = api("POST", "/orders", ORDER)
    assert said.status == 202
    assert said.headers["Location"] == "/orders/o-1"
    assert said.document == {"orderId": "o-1", "status": "ACCEPTED", "location": "/orders/o-1"}
    assert [json.loads(body) for body in api.queued] == [ORDER]
    assert [message.group for message in api.shop.queues["Order"].messages] == ["u-7"]
    assert api("GET", "/orders/o-1").code == (404, "UNKNOWN_ORDER")
    api.shop.deliver("Order")
    assert api("GET", "/orders/o-1").document["status"] == "PENDING"


def test_a_waiting_caller_is_answered_without_the_queue_or_another_read(api):
    api.shop.calls.clear()
    said = place(api, holdSeconds=900, attributes={"channel": "web"})
    assert "GetItem" not in api.shop.calls
    assert (said.status, api.queued, api.shop.stock(TEA)) == (201, [], 58)
    assert said.headers["Location"] == "/orders/o-1"
    assert said.headers["Preference-Applied"] == "wait=5"
    stored = api("GET", "/orders/o-1")
    assert (said.document, said.headers["ETag"]) == (stored.document, stored.headers["ETag"])
    assert said.document["status"] == "PENDING"
    assert said.document["expiresAt"] > said.document["createdAt"]
    assert said.document["attributes"] == {"channel": "web"}


def test_a_rejection_is_an_answer_and_is_repeated(api):
    # The stored row of an order for an unknown product does not name it, so neither does the repeated answer.
    unknown = ["there is no product no-such-tea", "GET /products shows which"]
    for product_id, code, says in (
        (TEA, "INSUFFICIENT_STOCK", ["not enough stock of tea-earl-grey"] * 2),
        ("no-such-tea", "UNKNOWN_PRODUCT", unknown),
    ):
        for words in says:
            said = place(api, f"o-{product_id}", 61, product_id)
            assert said.code == (409, code)
            assert said.document["order"]["status"] == "REJECTED"
            assert words in said.document["detail"]
            assert "under a new orderId" in said.document["detail"]
            assert said.headers["Preference-Applied"] == "wait=5"
    shortages = api("GET", f"/orders/o-{TEA}").document["shortages"]
    assert shortages == [{"productId": TEA, "wanted": 61, "available": 60}]


def test_another_body_under_a_used_id_is_refused_if_the_order_is_known(api):
    place(api)
    # A customer does not learn what another one has ordered.
    said = place(api, user="u-8", quantity=7)
    assert said.code == (409, "ORDER_ID_REUSED")
    assert said.document["detail"].endswith("The two differ in userId")
    assert api("POST", "/orders", ORDER | {"userId": "u-8"}).status == 202


class Waits:
    """Records how long the service sleeps, and lets a test act during each sleep."""

    def __init__(self, clock):
        self.clock, self.slept, self.meanwhile = clock, [], lambda: None

    def sleep(self, seconds):
        self.clock.sleep(seconds)
        self.slept.append(seconds)
        self.meanwhile()


@pytest.fixture
def uncontested(api, monkeypatch):
    """Record the waits."""
    waits = Waits(api.shop.clock)
    monkeypatch.setattr(SystemClock, "sleep", lambda _, seconds: waits.sleep(seconds))
    return waits


@pytest.fixture
def waits(api, uncontested):
    """Let concurrent writers win over the next order, whose product is too scarce for lanes, and record the waits."""
    contend(api)
    return uncontested


def contend(api):
    lost = Fault(error=cancelled("TransactionConflict", "None"))
    api.shop.planned["TransactWriteItems"].extend([lost, lost])


def test_an_order_under_contention_is_queued_and_the_call_waits_for_it(api, waits):
    def work():
        assert (len(api.express), api.queued) == (1, [])
        if len(waits.slept) == 2:
            api.work_off()

    waits.meanwhile = work
    said = place(api)
    assert (said.status, said.document["status"]) == (201, "PENDING")
    assert 0.1 < waits.slept[0] < sum(waits.slept) < 1.0
    assert api.shop.stock(TEA) == 58


def test_the_row_is_read_shortly_after_the_time_that_earlier_orders_took(api, waits):
    process = api.shop.process("api")
    process.express_seconds, waits.meanwhile = 1.0, api.work_off
    assert place(api).status == 201
    (slept,) = waits.slept
    assert 1.0 < slept < process.express_seconds < 2.0, "this order took longer than earlier ones"


def test_after_a_worker_has_rejected_an_order_the_next_one_needs_no_queue(api, waits):
    def sell_out():
        assert api.shop.do(Adjustment(TEA, "lost", -60, "LOSS")) == [Outcome.APPLIED]
        api.work_off()

    waits.meanwhile = sell_out
    assert place(api).code == (409, "INSUFFICIENT_STOCK")
    waits.slept.clear()
    assert place(api, "o-2").code == (409, "INSUFFICIENT_STOCK")
    assert (waits.slept, api.express) == ([], [])


def placed_twice(api, waits, order_id, at):
    """Place an order, and place it again during call or sleep number `at` of the first request. Workers run in all sleeps.

    Returns the statuses of both answers. There is only one if the first request had fewer calls and sleeps.
    """
    steps, statuses = iter(range(at + 1)), []

    def step(*_):
        if next(steps, None) == at:
            statuses.append(place(api, order_id, 1).status)

    def work():
        step()
        api.work_off()

    api.shop.before, waits.meanwhile = step, work
    statuses.append(place(api, order_id, 1).status)
    api.shop.calm()
    return statuses


@pytest.mark.parametrize("source", ["row", "queue", "lane"])
def test_of_two_equal_orders_sent_at_once_exactly_one_is_new(api, uncontested, source):
    api.shop.do(Adjustment(TEA, "r", 1000, "RECEIPT"))
    lanes = set()
    for at in range(100):
        # By now the lane of the previous process is free again.
        api.shop.clock.sleep(6)
        api.shop.restart(API_LANES=str(int(source == "lane")))
        if source != "row":
            contend(api)
        statuses = placed_twice(api, uncontested, f"o-{at}", at)
        assert sorted(statuses) == [200, 201][-len(statuses) :], (at, statuses)
        (line,) = api.shop.order_row(f"o-{at}")["items"]
        lanes.add(line.get("lanePage", "none").partition("/")[0])
        if len(statuses) == 1:
            break
    assert 1 < at < 99
    assert ("3" in lanes) == (source == "lane"), "the workers have two lanes"


def test_a_caller_is_told_to_ask_later_if_the_order_takes_too_long(api, waits, capsys):
    api.shop.process("api").express_seconds = 3.0
    said = api("POST", "/orders", ORDER, JSON | {"prefer": "respond-async, wait=60"})
    assert said.status == 202
    told = ("Location", "Retry-After", "Preference-Applied")
    assert [said.headers[name] for name in told] == ["/orders/o-1", "1", "wait=25"]
    assert 24 < sum(waits.slept) <= 25, "API Gateway ends a request after 30 s"
    assert api.shop.calls.count("GetItem") == len(waits.slept) == 4
    assert len(api.express) == 1
    samples = list(emf.parse(capsys.readouterr().out.splitlines()))
    (waited,) = emf.values_of(samples, "CallerWait")
    assert sum(waits.slept) <= waited / 1000 < 25.2
    assert emf.values_of(samples, "OrdersDirect") == []


def test_a_caller_learns_early_that_the_order_takes_unusually_long(api, waits):
    process = api.shop.process("api")
    before = process.express_seconds
    assert api("POST", "/orders", ORDER, JSON | {"prefer": "wait=25"}).status == 202
    assert 1.8 < sum(waits.slept) < 10
    assert process.express_seconds == 2 * before, "the next order is given more time"


def test_slow_reads_do_not_cost_the_last_look(api, waits):
    def work():
        if len(waits.slept) == 4:
            api.shop.calm()
            api.work_off()

    waits.meanwhile = work
    api.shop.before = lambda *_: api.shop.clock.sleep(0.05)
    assert api("POST", "/orders", ORDER, JSON | {"prefer": "wait=25"}).status == 201


def test_no_call_waits_longer_than_the_function_may_run(api, waits):
    said = api("POST", "/orders", ORDER, JSON | {"prefer": "wait=25"}, seconds=10.0)
    assert said.status == 202
    assert sum(waits.slept) <= 6.0


def test_an_order_for_a_product_under_a_long_count_is_answered_at_once(api, uncontested):
    def counted(seconds):
        acquire = {"action": "acquire", "productId": TEA, "seconds": seconds}
        lease = api("POST", "/counts", acquire).document["lease"]
        api.shop.calls.clear()
        said = place(api, f"o-{seconds}")
        reads = api.shop.calls.count("GetItem")
        api("POST", "/counts", {"action": "release", "lease": lease})
        return said, reads

    said, reads = counted(300)
    assert (said.status, reads, uncontested.slept, len(api.express)) == (202, 0, [], 1)
    assert 299 <= int(said.headers["Retry-After"]) <= 300
    uncontested.meanwhile = lambda: len(uncontested.slept) == 3 and api.work_off()
    said, reads = counted(2)
    assert (said.status, reads) == (201, 3), "this count ends in time"


def test_an_order_that_needs_a_repair_first_is_answered_at_once(api, uncontested):
    api.shop.edit(Table.PRODUCTS, TEA, status={"S": "?"})
    said = place(api)
    assert (said.status, said.headers["Retry-After"], uncontested.slept) == (202, "60", [])
    assert len(api.express) == 1


def test_another_order_placed_first_under_the_id_is_reported(api, waits):
    waits.meanwhile = lambda: api.work_off(json.dumps(ORDER | {"userId": "u-8"}))
    assert place(api).code == (409, "ORDER_ID_REUSED")


def test_an_order_that_was_cancelled_beforehand_says_so(api):
    api.shop.send("OrderCommand", {"action": "cancel", "orderId": "o-1"})
    assert api.shop.deliver("OrderCommand") == 0
    assert api("GET", "/orders/o-1").code == (404, "UNKNOWN_ORDER")
    said = place(api)
    assert (said.status, said.document["status"], api.shop.stock(TEA)) == (200, "CANCELLED", 60)


def test_a_preference_that_cannot_be_understood_is_ignored(api):
    for prefer in ("wait=soon", "wait=-1", "wait", "return=minimal", "wait=" + "9" * 10):
        said = api("POST", "/orders", ORDER, JSON | {"prefer": prefer})
        assert said.status == 202
        assert "Preference-Applied" not in said.headers


def test_a_body_may_have_256_kib_of_json(api):
    fits = json.dumps(ORDER).ljust(262_144)
    assert api("POST", "/orders", fits).status == 202
    for too_large in (fits + " ", '"' + "é" * 131_072 + '"'):
        assert api("POST", "/orders", too_large).code == (413, "BODY_TOO_LARGE")
    form, latin = "application/x-www-form-urlencoded", "application/json; charset=latin-1"
    for headers in ({"content-type": form}, {"content-type": latin}, {}):
        assert api("POST", "/orders", ORDER, headers).code == (415, "UNSUPPORTED_MEDIA_TYPE")


def test_a_body_may_come_in_base64_and_say_that_it_is_utf_8(api):
    headers = {"Content-Type": 'Application/JSON; charset="UTF-8"'}
    text = base64.b64encode(json.dumps(ORDER).encode()).decode()
    assert api("POST", "/orders", text, headers, isBase64Encoded=True).status == 202
    wrong = base64.b64encode(b'"\xff"').decode()
    said = api("POST", "/orders", wrong, headers, isBase64Encoded=True)
    assert said.code == (400, "INVALID_JSON")


def test_if_the_queue_accepts_nothing_the_caller_is_told_to_retry(api, capsys):
    api.shop.restart(ORDER_QUEUE_URL="https://sqs.eu-central-1.amazonaws.com/1/gone")
    for number in range(3):
        said = api("POST", "/orders", ORDER | {"orderId": f"o-{number}"})
        assert said.code == (503, "QUEUE_UNAVAILABLE")
        assert int(said.headers["Retry-After"]) >= 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    errors = [line["errors"] for line in lines if "errors" in line]
    assert [len(each) for each in errors] == [1, 1, 1], "each order's log has its own error only"


# ---------------------------------------------------------------------- GET /orders


def test_a_customers_cached_copy_is_not_valid_for_an_operator(customers):
    place(customers, claims=OPERATOR)
    tag = customers("GET", "/orders/o-1", claims=OPERATOR).headers["ETag"]
    own = {"claims": {"sub": "u-7"}, "headers": {"if-none-match": tag}}
    assert customers("GET", "/orders/o-1", **own).status == 200


def test_an_unchanged_order_is_answered_without_a_body(api):
    place(api)
    tags = ('"1"', 'W/"1"', '"7", "1"', "*")
    for tag in tags:
        said = api("GET", "/orders/o-1", headers={"if-none-match": tag})
        assert (said.status, said.text, said.headers["ETag"]) == (304, "", '"1"')
    api("POST", "/orders/o-1/confirm")
    for tag in tags[:-1]:
        said = api("GET", "/orders/o-1", headers={"if-none-match": tag})
        assert (said.status, said.headers["ETag"][:3]) == (200, '"2-')


def test_an_id_in_a_path_may_have_every_character_that_survives_its_decoding(api):
    order_id = """auth0|5!c\\d=e&f+g"';`^{}[]<>~@:_*()$-."""
    said = place(api, order_id)
    assert said.headers["Location"] == f"/orders/{quote(order_id, safe='')}"
    shown = api("GET", "/orders/x", pathParameters={"orderId": order_id})
    assert shown.document["orderId"] == order_id
    assert api("POST", "/orders/x/confirm", pathParameters={"orderId": order_id}).status == 200


def test_orders_are_listed_page_by_page_with_the_newest_first(api):
    for number in range(5):
        place(api, f"o-{number}", 1)
    place(api, "o-other", 1, user="u-8")
    found = ids_of(pages(api, "/orders", userId="u-7", limit="2"))
    assert found == [["o-4", "o-3"], ["o-2", "o-1"], ["o-0"]]
    page = api("GET", "/orders", query={"userId": "u-7", "limit": "5"}).document
    assert "next" not in page, "the last page has no next page"
    listed = api("GET", "/orders", query={"userId": "u-7"}).document["orders"]
    assert listed[0] == api("GET", "/orders/o-4").document
    nothing = {"orders": [], "unreadable": []}
    assert api("GET", "/orders", query={"userId": "u-unknown"}).document == nothing


def test_a_page_holds_as_many_orders_as_an_answer_can(api, monkeypatch):
    for number in range(5):
        place(api, f"o-{number}", 1)
    (whole,) = pages(api, "/orders", userId="u-7")
    assert len(json.dumps(whole)) < requests._MAX_LISTED_BYTES
    size = len(json.dumps(whole["orders"][0]))
    for room, expected in ((2.5 * size, [2, 2, 1]), (1, [1] * 5)):
        monkeypatch.setattr(requests, "_MAX_LISTED_BYTES", room)
        found = pages(api, "/orders", userId="u-7")
        assert [len(page["orders"]) for page in found] == expected
        assert [order for page in found for order in page["orders"]] == whole["orders"]


def test_orders_that_cannot_be_read_do_not_hide_the_others_of_a_list(api):
    for number, broken in enumerate(({}, {"items": {"S": "?"}}, {"_version": {"S": "1"}})):
        place(api, f"o-{number}", 1)
        api.shop.edit(Table.ORDERS, f"o-{number}", **broken)
    page = api("GET", "/orders", query={"userId": "u-7"}).document
    assert [order["orderId"] for order in page["orders"]] == ["o-0"]
    assert sorted(page["unreadable"]) == ["o-1", "o-2"]
    assert api("GET", "/orders/o-1").status == 500


def test_the_orders_to_ship_come_page_by_page_with_the_oldest_confirmation_first(api):
    ids = [f"o-{number}" for number in random.Random(1).sample(range(9), 9)]
    for order_id in ids:
        place(api, order_id, 1)
    for order_id in ids[:7]:
        api("POST", f"/orders/{order_id}/confirm")
    assert to_ship(api, 3) == [ids[:3], ids[3:6], ids[6:7]]
    (shown,) = api("GET", "/orders", query={"status": "CONFIRMED", "limit": "1"}).document["orders"]
    assert shown["items"] == [{"productId": TEA, "quantity": 1}]
    api("POST", f"/orders/{ids[0]}/fulfil")
    # The index is stale: it still lists the fulfilled order.
    api.shop.edit(Table.ORDERS, ids[0], statusShard={"S": "CONFIRMED#03"})
    api("POST", f"/orders/{ids[1]}/cancel")
    assert to_ship(api, 100) == [ids[2:7]]
    ours = api("GET", "/orders", query={"userId": "u-7", "status": "CONFIRMED", "limit": "100"})
    assert {order["orderId"] for order in ours.document["orders"]} == set(ids[2:7])
    for order_id in ids[2:7]:
        at_once = {"S": "2026-01-01T00:00:00.000000+00:00"}
        api.shop.edit(Table.ORDERS, order_id, statusAt=at_once, statusShard={"S": "CONFIRMED#03"})
    same_moment = chain.from_iterable(to_ship(api, 2))
    assert [*same_moment] == sorted(ids[2:7])


def test_orders_are_listed_by_status_and_time(api):
    for number in range(6):
        place(api, f"o-{number}", 1 if number else 9_999)
    for order_id, *actions in (("o-2", "cancel"), ("o-3", "confirm"), ("o-4", "confirm", "fulfil")):
        for action in actions:
            assert api("POST", f"/orders/{order_id}/{action}").status == 200
    assert api("POST", "/orders/o-2/confirm").status == 409

    def listed(**query):
        return [order_id for page in ids_of(pages(api, "/orders", **query)) for order_id in page]

    by_status = {status: listed(status=status, limit="1") for status in OrderStatus}
    assert by_status == {
        "PENDING": ["o-1", "o-5"],
        "CONFIRMED": ["o-3"],
        "FULFILLED": ["o-4"],
        "REJECTED": ["o-0"],
        "CANCELLED": ["o-2"],
        "EXPIRED": [],
    }
    (rejected,) = api("GET", "/orders", query={"status": "REJECTED"}).document["orders"]
    assert (rejected["reason"], rejected["statusAt"]) == (
        "INSUFFICIENT_STOCK",
        rejected["createdAt"],
    )
    (late,) = api("GET", "/orders", query={"latePayment": "true"}).document["orders"]
    assert (late["orderId"], late["confirmationRejected"]["reason"]) == ("o-2", "ORDER_CANCELLED")
    waiting = api("GET", "/orders/o-5").document["statusAt"]
    assert listed(status="PENDING", to=waiting) == ["o-1"]
    assert listed(status="PENDING", **{"from": waiting}) == ["o-5"]
    paid_at = late["confirmationRejected"]["at"].replace("+00:00", "Z")
    assert listed(latePayment="true", to=paid_at) == []
    assert listed(latePayment="true", **{"from": paid_at}) == ["o-2"]
    assert listed(userId="u-7", status="PENDING") == ["o-5", "o-1"]
    shipped = api("GET", "/orders/o-4").document["statusAt"]
    assert listed(userId="u-7", **{"from": shipped}) == ["o-4"]
    first = api("GET", "/orders", query={"status": "PENDING", "limit": "1"}).document
    other = {"status": "PENDING", "to": waiting, "cursor": first["next"]}
    assert api("GET", "/orders", query=other).code == (400, "INVALID_CURSOR")


def test_orders_are_listed_by_reference_and_by_product(api, monkeypatch):
    def listed(**query):
        found = pages(api, "/orders", **query)
        return [order["orderId"] for page in found for order in page["orders"]]

    for number in range(5):
        place(api, f"o-{number}", 1)
    place(api, "o-other", items=[{"productId": f"{TEA}-decaf", "quantity": 1}])
    for order_id in ("o-1", "o-3"):
        api("POST", f"/orders/{order_id}/confirm", {"reference": "paid-7"})
        api("POST", f"/orders/{order_id}/fulfil", {"reference": "1Z 7"})
    (page,) = pages(api, "/orders", productId=TEA)
    assert page == {"orders": [], "unreadable": [], "completeUntil": None}
    record_movements(api.shop)
    (page,) = pages(api, "/orders", reference="1Z 7")
    assert page["orders"][0] == api("GET", "/orders/o-3").document
    assert page["completeUntil"] > page["orders"][0]["statusAt"]
    for limit in ("1", "2", "100"):
        assert listed(reference="1Z 7", limit=limit) == ["o-3", "o-1"]
        assert listed(productId=TEA, limit=limit) == ["o-4", "o-3", "o-2", "o-1", "o-0"]
        assert listed(productId=TEA, limit=limit, status="FULFILLED") == ["o-3", "o-1"]
    assert listed(reference="1Z 7", status="PENDING") == listed(reference="1Z") == []
    assert listed(productId=TEA, **at("berlin")) == []
    times = {"from": stored_at(api, "o-1"), "to": stored_at(api, "o-3")}
    assert listed(productId=TEA, limit="1", **times) == ["o-2", "o-1"]
    monkeypatch.setattr(Process, "has_movements", False)
    for field, value in (("productId", TEA), ("reference", "1Z 7")):
        said = api("GET", "/orders", query={field: value})
        assert (said.code, said.document["field"]) == ((400, "SCHEMA_VIOLATION"), field)
        assert "the setting movements is off" in said.document["detail"]


def stored_at(api, order_id):
    return api("GET", f"/orders/{order_id}").document["createdAt"]


def test_an_order_that_was_cancelled_before_it_arrived_is_listed_once_it_has(api):
    for action in ("cancel", "confirm"):
        event = sqs_event({"action": action, "orderId": "o-1"}, queue="OrderCommandQueue")
        assert api.shop.invoke("change_orders", event) == {"batchItemFailures": []}
    assert "confirmationRejected" in api.shop.order_row("o-1")
    for query in ({"status": "CANCELLED"}, {"latePayment": "true"}):
        assert api("GET", "/orders", query=query).document == {"orders": [], "unreadable": []}
    place(api)
    for query in ({"status": "CANCELLED"}, {"latePayment": "true"}):
        assert ids_of(pages(api, "/orders", **query)) == [["o-1"]]


# ---------------------------------------------------------------------- what can be shipped


def marks(api):
    """Return, for each order to ship, whether it is shippable and which products are missing."""
    listed = [
        order for page in pages(api, "/orders", status="CONFIRMED") for order in page["orders"]
    ]
    return {order["orderId"]: (order.get("shippable"), order.get("missing")) for order in listed}


def sold(api, order_id, **more):
    """Place an order and confirm it."""
    assert place(api, order_id, **more).status == 201
    assert api("POST", f"/orders/{order_id}/confirm").status == 200


def lines(**units):
    return [{"productId": name, "quantity": quantity} for name, quantity in units.items()]


@pytest.fixture
def backordered(api):
    """Make a shop with 2 cups and 9 pots, and three orders for two cups and one pot each."""
    for name, stock in (("cup", 2), ("pot", 9)):
        created = {"productId": name, "openingStock": stock, "backorderLimit": 50}
        assert api("POST", "/products", created).status == 201
    for number in range(3):
        sold(api, f"o-{number}", items=lines(cup=2, pot=1))
    return api


IN_STOCK = (True, None)


def lacking(wanted, on_hand):
    """Return the mark of an order that misses cups."""
    return False, [{"productId": "cup", "wanted": wanted, "onHand": on_hand}]


def test_each_order_to_ship_names_its_own_missing_units(backordered):
    assert marks(backordered) == dict.fromkeys(["o-0", "o-1", "o-2"], IN_STOCK)
    backordered("POST", "/orders/o-1/fulfil")
    assert marks(backordered) == dict.fromkeys(["o-0", "o-2"], lacking(2, 0))
    backordered.shop.invoke("sweep", {"action": "sweep"})
    # A fold does not change the marks.
    assert marks(backordered) == dict.fromkeys(["o-0", "o-2"], lacking(2, 0))
    assert backordered("POST", "/orders/o-0/fulfil").status == 200, "a hand-over is never refused"
    assert marks(backordered) == {"o-2": lacking(2, -2)}
    receipt = {"adjustmentId": "r", "delta": 4, "reason": "RECEIPT"}
    assert backordered("POST", "/products/cup/adjustments", receipt).status == 200
    assert marks(backordered) == {"o-2": IN_STOCK}


def test_only_open_units_of_a_listed_product_can_be_on_hand(backordered):
    parcel = {"stepId": "p-1", "items": lines(cup=2)}
    backordered("POST", "/orders/o-0/fulfil", parcel)
    backordered("POST", "/orders/o-1/cancel", parcel | {"items": lines(cup=1)})
    shown = {"o-0": IN_STOCK, "o-1": lacking(1, 0), "o-2": lacking(2, 0)}
    assert marks(backordered) == shown
    query = {"createdAt": backordered("GET", "/stock/cup").document["createdAt"]}
    assert backordered("DELETE", "/products/cup", query=query).status == 200
    assert marks(backordered) == shown
    backordered("POST", "/products", {"productId": "cup", "openingStock": 50})
    assert marks(backordered) == shown, "the new product's units are others"


@pytest.mark.parametrize(
    ("table", "key", "part", "tea"),
    [("Products", "cup", "status", True), ("Allotments", "out/0", "units", None)],
)
def test_an_order_whose_stock_cannot_be_read_is_listed_without_a_mark(
    backordered, table, key, part, tea
):
    sold(backordered, "o-tea")
    backordered("POST", "/orders/o-1/fulfil")
    backordered.shop.edit(Table(table), key, **{part: {"S": "?"}})
    unknown = (None, None)
    assert marks(backordered) == {"o-0": unknown, "o-2": unknown, "o-tea": (tea, None)}


def test_a_page_of_orders_to_ship_ends_at_300_products(api, monkeypatch):
    for number in range(5):
        api("POST", "/products", {"productId": f"p-{number}", "openingStock": 9})
    for number in range(3):
        names = [f"p-{number + each}" for each in range(3)]
        sold(api, f"o-{number}", items=lines(**dict.fromkeys(names, 1)))
    assert orders._MOST_PRODUCTS == 300
    for most, expected in (
        (5, [["o-0", "o-1", "o-2"]]),
        (4, [["o-0", "o-1"], ["o-2"]]),
        (2, [["o-0"], ["o-1"], ["o-2"]]),
    ):
        monkeypatch.setattr(orders, "_MOST_PRODUCTS", most)
        assert to_ship(api, 100) == expected
    (own,) = pages(api, "/orders", userId="u-7")
    # Other lists read no products.
    assert [order.get("shippable") for order in own["orders"]] == [None] * 3


def test_a_page_of_orders_to_ship_has_room_for_shortages(backordered, monkeypatch):
    backordered("POST", "/orders/o-0/fulfil")
    (whole,) = pages(backordered, "/orders", status="CONFIRMED")
    size = sum(len(json.dumps(order)) for order in whole["orders"])
    monkeypatch.setattr(requests, "_MAX_LISTED_BYTES", size)
    assert to_ship(backordered, 100) == [["o-1", "o-2"]]
    monkeypatch.setattr(requests, "_MAX_LISTED_BYTES", size - 1)
    assert to_ship(backordered, 100) == [["o-1"], ["o-2"]]


@pytest.mark.parametrize("seconds", [1, 60])
def test_a_page_without_entries_has_a_next_page_only_if_time_is_short(api, monkeypatch, seconds):
    """This covers all lists whose filters may leave a page empty."""
    client, _ = requests.reading()
    for module in (orders, products):
        reading = lambda: (client, Deadline.after(seconds, client.clock))  # noqa: E731
        monkeypatch.setattr(module, "reading", reading)
    scan = Store.scan
    monkeypatch.setattr(Store, "scan", lambda *given, **more: scan(*given, **{**more, "Limit": 2}))
    for number in range(8):
        place(api, f"o-{number}", 1, TEA if number in (0, 5) else "tea-hojicha")
    api("POST", "/orders/o-0/confirm")
    stock(api, berlin=5)
    for path, query in (("/stock", at("berlin", limit="2")),):
        found = pages(api, path, **query)
        entries = [
            sum(map(len, (v for v in page.values() if isinstance(v, list)))) for page in found
        ]
        assert all(entries[:-1]) is (seconds == 60), (path, entries)
        assert sum(entries) == 1


PLACE = ListPosition("2026-01-01T00:00:00.000000+00:00", "o-1")


def test_a_cursor_leads_back_to_its_place_in_its_list_only():
    # Another program may have written the second position.
    for place in (PLACE, ListPosition("2099-01-01 00:00:00", "Earl Grey")):
        cursor = encode_cursor("u-7", place)
        assert place_after("u-7", {"cursor": cursor}) == place
    assert "o-1" not in cursor
    with pytest.raises(InvalidMessageError):
        place_after("u-8", {"cursor": cursor})


def test_a_cursor_that_was_tampered_with_is_refused(api):
    cursor = encode_cursor("u-7", PLACE)
    for number in range(len(cursor)):
        for other in "Az0-_":
            changed = cursor[:number] + other + cursor[number + 1 :]
            if changed != cursor:
                with pytest.raises(InvalidMessageError, match="INVALID_CURSOR"):
                    place_after("u-7", {"cursor": changed})
    for wrong in ("", "a", cursor[:-1], cursor + "A", cursor + "=", "é", "{}", "\n", "/" * 40):
        query = {"userId": "u-7", "cursor": wrong}
        said = api("GET", "/orders", query=query)
        assert said.code == (400, "INVALID_CURSOR")
        assert said.document["field"] == "cursor"


# Late payments are one list for all customers, statuses and locations.
LISTS = ({"userId": "u-7"}, {"status": "EXPIRED"}, {"locationId": ""})
BOTH = ({}, {"limit": "5"}, *({"ids": TEA} | more for more in ({"search": "tea"}, {"limit": "5"})))
OF_OTHERS = ({"userId": "u-7"}, {"status": "REJECTED"}, {"locationId": ""}, {"productId": TEA})


def test_a_wrong_query_says_what_to_fix(customers):
    lists = ("/stock", f"/stock/{TEA}", f"/products/{TEA}/history", "/orders")
    many = ",".join(f"p{n}" for n in range(101))
    for path, query, field in (
        ("/orders", {"limit": "5"}, "userId"),
        ("/orders", {"status": "PAID"}, "status"),
        *(
            ("/orders", {"status": "PENDING", "from": at}, "from")
            for at in ("", "2026-11-21", "now")
        ),
        ("/orders", {"userId": "u-7", "to": "2026-02-30T00:00:00Z"}, "to"),
        ("/orders", {"latePayment": "yes"}, "latePayment"),
        *(("/orders", {"latePayment": "true"} | more, "latePayment") for more in LISTS),
        ("/orders", {"status": "REJECTED"} | at("berlin"), "locationId"),
        ("/orders", {"userId": ""}, "userId"),
        *(("/orders", {"userId": "u-7", "limit": n}, "limit") for n in ("0", "101", "1,2", "٣")),
        *((path, at("a b"), "locationId") for path in lists),
        ("/orders", at("berlin"), "userId"),
        *(("/products", {"ids": ids}, "ids") for ids in ("", ",", "a,,b", many)),
        *(("/products", query, "ids") for query in BOTH),
        *(("/products", {"search": text}, "search") for text in ("", "a b")),
        ("/products", {"search": "tea", "limit": "0"}, "limit"),
        *(("/orders", {"reference": "1Z-1"} | more, "reference") for more in OF_OTHERS),
        ("/orders", {"reference": ""}, "reference"),
        ("/orders", {"productId": TEA, "userId": "u-7"}, "productId"),
        ("/orders", {"productId": TEA, "status": "REJECTED"}, "productId"),
        (f"/products/{TEA}/history", {"to": "now"}, "to"),
        ("/stock", {"status": "FEW"}, "status"),
        ("/stock", {"inLanes": "no"}, "inLanes"),
    ):
        said = customers("GET", path, query=query, claims=OPERATOR)
        assert (said.code, said.document["field"]) == ((400, "SCHEMA_VIOLATION"), field), query
    place(customers, "o-8", user="u-8", claims=OPERATOR)
    others = customers("GET", "/orders", query={"status": "PENDING"}, claims={"sub": "u-7"})
    assert others.document["orders"] == [], "customers list only their own orders"
    for field, value in (("latePayment", "true"), ("reference", "1Z-1"), ("productId", TEA)):
        said = customers("GET", "/orders", query={field: value}, claims={"sub": "u-7"})
        assert (said.code, said.document["field"]) == ((400, "SCHEMA_VIOLATION"), field)


# ---------------------------------------------------------------------- an order's life


def test_a_step_names_the_caller_and_only_operators_see_it(customers):
    ann = OPERATOR | {"sub": "ann"}
    place(customers, claims=OPERATOR)
    customers("POST", "/orders/o-1/confirm", claims=ann)
    part = {"stepId": "c-1", "items": [{"productId": TEA, "quantity": 1}], "reason": "broken"}
    said = customers("POST", "/orders/o-1/cancel", part, claims=ann)
    assert (said.document["status"], said.document["stockReturned"]) == ("CONFIRMED", {TEA: 1})
    step = customers("GET", "/orders/o-1", claims=OPERATOR).document["steps"][-1]
    assert (step["actor"], step["reason"]) == ("ann", "broken")
    step = customers("GET", "/orders/o-1", claims={"sub": "u-7"}).document["steps"][-1]
    assert (step["stepId"], "actor" in step, "reason" in step) == ("c-1", False, False)
    receipt = {"adjustmentId": "r-9", "delta": 3, "reason": "RECEIPT", "reference": "DN 7"}
    path = f"/products/{TEA}/adjustments"
    customers("POST", path, receipt, claims=ann)
    rows = customers("GET", path, claims=OPERATOR).document["adjustments"]
    assert ("ann", "DN 7") in [(row.get("actor"), row.get("reference")) for row in rows]


def test_a_refused_decrement_is_listed_but_not_part_of_the_history(located):
    take = {"action": "decrement", "adjustmentId": "d", "productId": TEA, "quantity": 999}
    refused = located.shop.invoke("adjust_stock", take | at("berlin"))
    path = f"/products/{TEA}"
    listed = located("GET", f"{path}/adjustments", query=at("berlin")).document["adjustments"]
    (shown,) = (one for one in listed if one["adjustmentId"] == "d")
    assert shown["rejected"] == {"delta": -999, "reason": refused["code"]}
    short = {"productId": TEA, "locationId": "berlin", "wanted": 999, "available": 5}
    assert (shown["delta"], shown["shortages"]) == (0, [short])
    history = located("GET", f"{path}/history", query=at("berlin")).document["entries"]
    assert [one["adjustmentId"] for one in history] == [listed[-1]["adjustmentId"]]


def numbers(api, product_id=TEA):
    """Return the units on hand, committed and available."""
    found = api("GET", f"/stock/{product_id}").document
    return found["onHand"], found["committed"], found["available"]


# ---------------------------------------------------------------------- products


def test_the_shop_chooses_whether_customers_see_units(api):
    assert api("GET", f"/products/{TEA}").document["units"] == 60
    api.shop.restart(SHOW_STOCK="availability")
    assert "units" not in api("GET", f"/products/{TEA}").document


def test_a_list_by_status_comes_from_an_index(located):
    for number in range(5):
        out = {"productId": f"out-{number}", "openingStock": 0}
        assert located("POST", "/products", out).status == 201
    low = {"locationId": "berlin", "lowStockThreshold": 9}
    assert located("PATCH", f"/products/{TEA}", low).status == 200
    located.shop.calls.clear()
    out = [*pages(located, "/stock", status="OUT_OF_STOCK", limit="2")]
    assert "Scan" not in located.shop.calls
    found = [product["productId"] for page in out for product in page["products"]]
    assert found == [f"out-{number}" for number in range(5)]
    assert [len(page["products"]) for page in out[:2]] == [2, 2]
    (low,) = located("GET", "/stock", query={"status": "LOW_STOCK"}).document["products"]
    assert (low["productId"], low["locationId"]) == (TEA, "berlin")
    berlin = {"status": "OUT_OF_STOCK"} | at("berlin")
    assert located("GET", "/stock", query=berlin).document["products"] == []
    # The index is eventually consistent, and may still contain a product that has changed.
    receipt = {"adjustmentId": "r-1", "delta": 3, "reason": "RECEIPT"}
    stale = dict(located.shop.items(Table.PRODUCTS)["out-0",])
    located("POST", "/products/out-0/adjustments", receipt)
    row = located.shop.items(Table.PRODUCTS)["out-0",]
    with_old_index = {"Items": [stale], "Count": 1, "ScannedCount": 1}
    located.shop.once("Query", lambda _: with_old_index)
    assert row["status"] == {"S": "ACTIVE"}
    assert located("GET", "/stock", query={"status": "OUT_OF_STOCK"}).document["products"] == []


def test_a_list_of_products_in_lanes_says_how_old_its_figures_are(api):
    assert api("POST", "/products", {"productId": "cup", "openingStock": 500}).status == 201
    lend(api.shop.store, "cup", 60, {1: 20})
    api.shop.invoke("sweep", {"action": "sweep"})
    cup, tea = (
        next(one for one in page["products"] if one["productId"] == product_id)
        for page in [api("GET", "/stock", query={"limit": "100"}).document]
        for product_id in ("cup", TEA)
    )
    swept = timestamp(SystemClock().now())
    assert (cup["available"], cup["isExact"], cup["asOf"] <= swept) == (500, False, True)
    assert (cup["inLanes"], "asOf" in tea, tea["inLanes"]) == ({"all": 80}, False, {})
    assert "asOf" not in api("GET", "/stock/cup").document, "a single product is exact"
    consumed = api.shop.aws.dynamodb.tables["Allotments"].consumed
    before = consumed.reads
    assert api("GET", "/products/cup").document["units"] == 500
    assert consumed.reads - before == 0.5, "the lanes are not read again"


def test_products_in_lanes_are_listed_page_by_page_without_reading_the_others(api):
    for product_id in ("cup", "jug", "pot"):
        api("POST", "/products", {"productId": product_id, "openingStock": 500})
        lend(api.shop.store, product_id, 60, {1: 20})
    consumed = api.shop.aws.dynamodb.tables["Products"].consumed
    found, query = [], {"inLanes": "true", "limit": "2"}
    while query:
        before = consumed.reads
        page = api("GET", "/stock", query=query).document
        assert consumed.reads - before <= 1, "two rows, half a unit each"
        found.append([product["productId"] for product in page["products"]])
        query = query | {"cursor": page["next"]} if "next" in page else None
    assert found == [["cup", "jug"], ["pot"]]


def test_shown_stock_includes_units_in_lanes(api):
    created = {"productId": "cup", "openingStock": 500}
    assert api("POST", "/products", created).status == 201
    lend(api.shop.store, "cup", 60, {1: 20})
    shown = api("GET", "/products/cup")
    assert (shown.document["availability"], shown.document["units"]) == ("IN_STOCK", 500)
    found = api("GET", "/stock/cup").document
    assert (found["available"], found["stockCount"], found["isExact"]) == (500, 420, True)
    assert found["inLanes"] == {"0": 60, "1": 20}
    listed = api("GET", "/stock", query={"inLanes": "true"}).document
    assert ([product["productId"] for product in listed["products"]], "next" in listed) == (
        ["cup"],
        False,
    )
    # Sales from lanes do not change the product's row.
    del api.shop.items(Table.ALLOTMENTS)[str(PageKey.of(1, "cup")),]
    again = api("GET", "/products/cup", headers={"if-none-match": shown.headers["ETag"]})
    assert (again.status, again.document["units"]) == (200, 480)


def test_all_stock_is_listed_page_by_page_at_each_location(located):
    def listed(**query):
        found = [page["products"] for page in pages(located, "/stock", **query)]
        assert max(map(len, found)) <= int(query["limit"])
        return {
            (one["productId"], one.get("locationId", "")): one for page in found for one in page
        }

    own = {(each.product_id, "") for each in catalogue()} | {("cup", "")}
    found = listed(limit="7")
    assert found.keys() == own | {(TEA, "berlin"), (TEA, "lyon")}
    assert not any("places" in one for one in found.values())
    assert listed(limit="100", locationId="").keys() == own
    assert listed(limit="100", locationId="berlin") == {(TEA, "berlin"): found[TEA, "berlin"]}
    assert listed(limit="100", locationId="nowhere") == {}
    located("PATCH", f"/products/{TEA}", {"lowStockThreshold": 60})
    sold(located, "o-1", quantity=5)
    parcel = {"stepId": "p-1", "items": [{"productId": TEA, "quantity": 2}]}
    located("POST", "/orders/o-1/fulfil", parcel)
    low = listed(limit="100", status="LOW_STOCK")
    assert low.keys() == {(TEA, "")}
    told = ("onHand", "committed", "available")
    assert [low[TEA, ""][name] for name in told] == [58, 3, 55]
    assert located("GET", "/stock", query={"cursor": "x"}).code == (400, "INVALID_CURSOR")


def test_a_product_that_exists_is_in_the_answer(api):
    created = {"productId": "cup", "openingStock": 5}
    first = api("POST", "/products", created).document
    again = api("POST", "/products", created)
    assert again.code == (409, "PRODUCT_EXISTS")
    assert again.document["product"]["createdAt"] == first["createdAt"]


def test_adjustments_are_listed_page_by_page(api):
    send(api, "adjustStock")
    listed = pages(api, f"/products/{TEA}/adjustments", limit="1")
    shown = [(one["reason"], one["delta"]) for page in listed for one in page["adjustments"]]
    assert shown == [("OPENING", 60), ("RECEIPT", 40)]


def test_discontinuing_and_delisting_say_how_many_units_open_orders_hold(api):
    query = api("POST", "/products", {"productId": "cup", "openingStock": 500}).document
    query = {"createdAt": query["createdAt"]}
    lend(api.shop.store, "cup", 60, {1: 20})
    sold(api, "o-1", product_id="cup", quantity=7)
    parcel = {"stepId": "p-1", "items": lines(cup=3)}
    assert api("POST", "/orders/o-1/fulfil", parcel).status == 200

    def discontinued():
        said = api("POST", "/products/cup/discontinue").document
        assert said["status"] == "DISCONTINUED"
        return said["result"], said.get("committed")

    assert [discontinued(), discontinued()] == [("APPLIED", 4), ("REPLAYED", 4)]
    (page,) = [key for (key,) in api.shop.items(Table.ALLOTMENTS) if key.startswith("out/")]
    sound = api.shop.item(Table.ALLOTMENTS, page)["units"]
    api.shop.edit(Table.ALLOTMENTS, page, units={"S": "?"})
    assert discontinued() == ("REPLAYED", None), "the units cannot be read"
    api.shop.edit(Table.ALLOTMENTS, page, units=sound)
    throttled = ServiceError("ThrottlingException", "slow down")
    api.shop.refuse("", throttled, lambda request: "out/0" in json.dumps(request))
    assert discontinued() == ("REPLAYED", None)
    api.shop.calm()
    delisted = api("DELETE", "/products/cup", query=query).document
    assert (delisted["result"], delisted["committed"]) == ("APPLIED", 4)
    assert "open orders keep its units" in delisted["message"]
    again = api("DELETE", "/products/cup", query=query).document
    assert (again["result"], "committed" in again) == ("STALE", False)
    assert api("GET", "/stock/cup").code == (404, "UNKNOWN_PRODUCT")


def test_the_history_of_a_product_adds_up_to_its_stock(api):
    for number in range(4):
        place(api, f"o-{number}")
    api("POST", "/orders/o-1/cancel")
    for step in ("confirm", "fulfil"):
        api("POST", f"/orders/o-2/{step}")
    send(api, "takeBack", "o-2")
    place(api, "o-9", items=[{"productId": TEA, "quantity": 10_000}])
    found = {"adjustmentId": "r", "delta": 4, "reason": "FOUND"}
    api("POST", f"/products/{TEA}/adjustments", found)
    path = f"/products/{TEA}/history"
    (unknown,) = pages(api, path)
    assert unknown["completeUntil"] is None
    assert {entry["action"] for entry in unknown["entries"]} == {"adjust"}
    record_movements(api.shop)
    (whole,) = pages(api, path)
    entries = whole["entries"]
    assert whole["completeUntil"] > entries[0]["at"]
    assert [entry["at"] for entry in entries] == sorted((e["at"] for e in entries), reverse=True)
    assert sum(entry["delta"] for entry in entries) == numbers(api)[2]
    assert sum(entry["onHandDelta"] for entry in entries) == numbers(api)[0]
    actions = Counter(entry["action"] for entry in entries)
    assert actions == {"adjust": 2, "place": 4, "cancel": 1, "fulfil": 1, "return": 1}
    returned = next(entry for entry in entries if entry["action"] == "return")
    assert (returned["orderId"], returned["stepId"], returned["delta"]) == ("o-2", "rt-1", 1)
    parts = pages(api, path, limit="2")
    assert [len(part["entries"]) for part in parts] == [2, 2, 2, 2, 1]
    assert [entry for part in parts for entry in part["entries"]] == entries
    times = {"from": entries[5]["at"], "to": entries[1]["at"]}
    parts = pages(api, path, limit="2", **times)
    assert [entry for part in parts for entry in part["entries"]] == entries[2:6]
    assert pages(api, path, to=entries[-1]["at"])[0]["entries"] == []


def test_without_movements_the_history_shows_only_adjustments(api, monkeypatch):
    place(api, "o-1")
    record_movements(api.shop)
    monkeypatch.setattr(Process, "has_movements", False)
    (page,) = pages(api, f"/products/{TEA}/history")
    assert [entry["action"] for entry in page["entries"]] == ["adjust"]
    assert page["completeUntil"] is None


def test_customers_find_products(customers):
    query = {"search": "grey", "limit": "1"}
    first = customers("GET", "/products", query=query, claims={"sub": "u-7"}).document
    assert first["products"] == [customers("GET", f"/products/{TEA}").document]
    rest = customers("GET", "/products", query=query | {"cursor": first["next"]}).document
    assert [product["productId"] for product in rest["products"]] == [f"{TEA}-decaf"]
    wrong = {"search": "tea", "cursor": first["next"]}
    assert customers("GET", "/products", query=wrong).code == (400, "INVALID_CURSOR")


def ids_of(found):
    """Return the ids of the orders on each page."""
    return [[order["orderId"] for order in page["orders"]] for page in found]


def to_ship(api, limit):
    return ids_of(pages(api, "/orders", status="CONFIRMED", limit=str(limit)))


def pages(api, path, **query):
    """Read a list to its last page."""
    found = [api("GET", path, query=query).document]
    while "next" in found[-1]:
        found.append(api("GET", path, query={**query, "cursor": found[-1]["next"]}).document)
    return found


def test_a_request_names_the_location_in_its_body_and_a_delete_in_its_query(api):
    berlin = {"locationId": "berlin"}
    created = api("POST", "/products", {"productId": TEA, "openingStock": 5, **berlin})
    assert created.status == 201
    where = {"productId": TEA, **berlin}
    said = [
        api("PATCH", f"/products/{TEA}", {"lowStockThreshold": 1, **berlin}),
        api("POST", f"/products/{TEA}/discontinue", berlin),
        api("POST", f"/products/{TEA}/list-again", berlin),
        api("POST", "/counts", ACQUIRE | berlin),
    ]
    assert [one.document | where for one in said] == [one.document for one in said]
    assert api.shop.row(TEA)["_version"] == {"N": "1"}
    release = {"action": "release", "lease": said[-1].document["lease"]}
    assert api("POST", "/counts", release).document["result"] == "RELEASED"
    for body, field in (({"price": 1, **berlin}, "price"), (berlin, None)):
        refused = api("PATCH", f"/products/{TEA}", body)
        assert (refused.status, refused.document.get("field")) == (400, field)
    query = {"createdAt": created.document["createdAt"], **berlin}
    assert api("DELETE", f"/products/{TEA}", berlin, query=query).status == 400
    gone = api("DELETE", f"/products/{TEA}", query=query).document
    assert gone | where | {"result": "APPLIED"} == gone


ACQUIRE = {"action": "acquire", "productId": TEA, "seconds": 60}


def test_a_lease_over_http_lasts_as_long_as_asked_and_commits_a_count(api):
    sold(api, "o-1", quantity=5)
    granted = api("POST", "/counts", ACQUIRE).document
    assert (granted["grantedSeconds"], "message" in granted) == (60, False)
    assert (granted["onHand"], granted["committed"], granted["available"]) == (60, 5, 55)
    api.shop.clock.sleep(45)
    renew = {"action": "renew", "lease": granted["lease"], "seconds": 600}
    granted = api("POST", "/counts", renew).document
    assert (granted["grantedSeconds"], "message" in granted) == (600, False)
    api.shop.clock.sleep(590)
    commit = {"action": "commit", "lease": granted["lease"], "counted": 4, "adjustmentId": "c-1"}
    assert api("POST", "/counts", commit).code == (409, "BELOW_FLOOR")
    done = api("POST", "/counts", commit | {"counted": 50}).document
    assert (done["result"], done["counted"], done["delta"]) == ("COMMITTED", 50, -10)
    short = api("POST", "/counts", ACQUIRE | {"outliveInvocation": False}).document
    assert short["grantedSeconds"] <= 5
    assert "instead of 60 s" in short["message"]


def test_a_longer_lease_is_reported_immediately(api):
    place(api)
    acquire = ACQUIRE | {"seconds": 20}
    api("POST", "/counts", acquire)
    receipt = {"adjustmentId": "r-1", "delta": 1, "reason": "RECEIPT"}
    for method, path, body in (
        ("POST", f"/products/{TEA}/adjustments", receipt),
        ("PATCH", f"/products/{TEA}", {"price": 1}),
        ("POST", "/counts", acquire),
    ):
        said = api(method, path, body)
        assert said.code == (503, "LEASED")
        assert 15 <= int(said.headers["Retry-After"]) <= 20
    api.shop.clock.sleep(20)
    api("POST", "/counts", ACQUIRE)
    said = api("POST", "/orders/o-1/cancel")
    assert said.code == (503, "LEASED")
    assert said.document["detail"] == "a product is being counted; send the same request again"


def test_customers_see_purchase_limits_but_neither_safety_stock_nor_buyers(
    customers,
):
    limits = {"purchaseLimit": 2, "limitGroup": "drop", "safetyStock": 50}
    assert customers("PATCH", f"/products/{TEA}", limits, claims=OPERATOR).status == 200
    shown = customers("GET", f"/products/{TEA}", claims={"sub": "u-7"}).document
    assert (shown["purchaseLimit"], shown["units"]) == (2, 10)
    assert shown.keys().isdisjoint({"limitGroup", "safetyStock"})
    stock = customers("GET", f"/stock/{TEA}", claims=OPERATOR).document
    assert (stock["available"], stock["onHand"], stock["leftToSell"]) == (60, 60, 10)
    assert {name: stock[name] for name in limits} == limits
    assert place(customers, buyers=["card"], claims=OPERATOR).status == 201
    seen = [
        customers("GET", "/orders/o-1", claims=who).document for who in (OPERATOR, {"sub": "u-7"})
    ]
    assert [order.get("buyers") for order in seen] == [["card"], None]


def test_customers_may_not_do_what_operators_do(customers):
    theirs = {"placeOrder", "listOrders", "getOrder", "getProducts", "getProduct"}
    for name in ROUTES.keys() - theirs:
        assert send(customers, name, claims={"sub": "u-7"}).code == (403, "NOT_PERMITTED")


@pytest.mark.parametrize(("claims", "per_row"), [({"sub": "u-7"}, 0.5), (None, 1.0)])
def test_one_request_for_products_reads_at_most_300_rows(customers, claims, per_row):
    """Lists are eventually consistent, and so is what customers read. That costs half as much."""
    ids, places = [f"p{number}" for number in range(100)], [f"l{number}" for number in range(40)]
    shop = customers.shop
    shop.put(*(product(each, 9, places=frozenset(places)) for each in ids))
    shop.put(*(product(f"{each}#{place}", 9) for each in ids[:6] for place in places))
    query = {"ids": ",".join(ids)}
    consumed = shop.aws.dynamodb.tables["Products"].consumed
    before = consumed.reads
    document = customers("GET", "/products", query=query, claims=claims).document
    assert consumed.reads - before == 300 * 0.5
    shown = [(each["productId"], each["units"]) for each in document["products"]]
    assert shown == [(each, 9) for each in ids[:5]]
    assert [len(each["elsewhere"]) for each in document["products"]] == [40] * 5
    assert (document["unknown"], document["unreadable"]) == ([], [])
    assert document["remaining"] == ids[5:]
    lend(shop.store, "p0", 5, {1: 2})
    consumed = shop.aws.dynamodb.tables["Allotments"].consumed
    before = consumed.reads
    one = customers("GET", "/products/p0", claims=claims).document
    # Two pages, and the row that the sweep would have written.
    assert (one["units"], consumed.reads - before) == (9, 2 * per_row + 0.5)


@pytest.mark.parametrize(
    ("stock", "more", "shown"),
    [
        (10, {}, "IN_STOCK"),
        (3, {"low_stock_threshold": 3}, "LOW"),
        (0, {}, "OUT"),
        (-4, {"backorder_limit": 4}, "OUT"),
        (0, {"backorder_limit": 4}, "BACKORDER"),
        (-3, {"backorder_limit": 4}, "BACKORDER"),
        (1, {"backorder_limit": 4, "low_stock_threshold": 1}, "LOW"),
        (10, {"status": ProductStatus.DISCONTINUED}, "DISCONTINUED"),
        (0, {"status": ProductStatus.DISCONTINUED}, "DISCONTINUED"),
        (2, {"lent_to": frozenset({0})}, "IN_STOCK"),
        (4, {"safety_stock": 4}, "OUT"),
        (7, {"safety_stock": 4, "low_stock_threshold": 3}, "LOW"),
    ],
)
def test_availability_follows_from_the_row_alone(stock, more, shown):
    assert availability(product("p", stock, **more)) == shown


def test_a_product_that_cannot_be_read_is_an_error_of_the_service(api):
    api.shop.edit(Table.PRODUCTS, "p")
    assert api("GET", "/products/p").code == (500, "CORRUPT_PRODUCT")
    api.shop.calls.clear()
    # A product that is named twice is read once.
    said = api("GET", "/products", query={"ids": f"p,{TEA},q,{TEA}"}).document
    assert api.shop.calls == ["BatchGetItem"]
    assert [shown["productId"] for shown in said["products"]] == [TEA]
    assert (said["unknown"], said["unreadable"]) == (["q"], ["p"])


# ---------------------------------------------------------------------- several locations


@pytest.fixture
def located(api):
    """List a tea: 60 units at the default location, 5 at berlin, 300 at lyon. List a cup at the default location."""
    stock(api, berlin=5, lyon=300)
    assert api("POST", "/products", {"productId": "cup", "openingStock": 7}).status == 201
    return api


def stock(api, product_id=TEA, **units):
    """List a product at other locations, with their units."""
    for location_id, opening in units.items():
        new = {"productId": product_id, "locationId": location_id, "openingStock": opening}
        assert api("POST", "/products", new).status == 201


def at(location_id, **more):
    return {"locationId": location_id, **more}


def test_customers_see_what_an_order_can_buy_and_where_one_that_names_a_location_can(located):
    path = f"/products/{TEA}"
    for product_id, requests_sent in (("cup", 1), (TEA, 2)):
        located.shop.calls.clear()
        first = located("GET", f"/products/{product_id}")
        # Units elsewhere are not counted.
        assert Counter(located.shop.calls) == {"BatchGetItem": requests_sent}
        located.shop.calls.clear()
        assert located("GET", f"/stock/{product_id}").status == 200
        assert Counter(located.shop.calls) == {"TransactGetItems": requests_sent}
    assert (first.document["availability"], first.document["units"]) == ("IN_STOCK", 60)
    assert first.document["elsewhere"] == {"berlin": "IN_STOCK", "lyon": "IN_STOCK"}
    (listed,) = located("GET", "/products", query={"ids": TEA}).document["products"]
    assert listed == first.document
    known = {"if-none-match": first.headers["ETag"]}
    assert located("GET", path, headers=known).status == 304
    place(located, quantity=5, locations=["berlin"])
    again = located("GET", path, headers=known)
    assert (again.status, again.document["elsewhere"]) == (200, {"lyon": "IN_STOCK"})
    lend(located.shop.store, f"{TEA}#lyon", 60, {1: 20})
    located.shop.restart(LOCATIONS="lyon")
    assert located("GET", path).document["units"] == 300, "with the units in lanes"
    shown = located("GET", "/products/cup").document
    assert (shown["availability"], shown["units"]) == ("OUT", 0)
    assert shown["elsewhere"] == {"": "IN_STOCK"}
    assert place(located, "o-1", product_id="cup").status == 409
    assert place(located, "o-2", product_id="cup", locations=[""]).status == 201
    assert located("POST", "/products/cup/discontinue").status == 200
    shown = located("GET", "/products/cup").document
    assert (shown["availability"], "elsewhere" in shown) == ("OUT", False)


def test_a_products_availability_is_the_best_of_the_locations_in_the_setting(located):
    located.shop.restart(LOCATIONS=",berlin,lyon")
    path, orders = f"/products/{TEA}", iter("123456789")

    def sell(location_id, quantity):
        assert place(located, next(orders), quantity, locations=[location_id]).status == 201

    located("PATCH", path, {"backorderLimit": 9, **at("berlin")})
    sell("berlin", 12)
    receipt = {"adjustmentId": "r", "delta": 500, "reason": "RECEIPT"}
    for change, shown in (
        # A line takes its units from one location, and backorders take nothing from another.
        (lambda: sell("", 50), ("IN_STOCK", 300)),
        (lambda: sell("", 10), ("IN_STOCK", 300)),
        (lambda: located("PATCH", path, {"lowStockThreshold": 300, **at("lyon")}), ("LOW", 300)),
        (lambda: sell("lyon", 300), ("BACKORDER", 0)),
        (lambda: sell("berlin", 2), ("OUT", 0)),
        (lambda: located("POST", f"{path}/adjustments", receipt | at("")), ("IN_STOCK", 500)),
        (lambda: located("POST", f"{path}/discontinue"), ("DISCONTINUED", 0)),
        # A discontinued product cannot be ordered.
        (lambda: located("POST", f"{path}/list-again", at("berlin")), ("OUT", 0)),
    ):
        change()
        document = located("GET", path).document
        assert (document["availability"], document["units"]) == shown


def test_a_location_that_cannot_be_read_hides_a_product_from_operators_only(located, capsys):
    located.shop.edit(Table.PRODUCTS, f"{TEA}#lyon", status={"S": "?"})
    shown = located("GET", f"/products/{TEA}").document
    assert (shown["availability"], shown["elsewhere"]) == ("IN_STOCK", {"berlin": "IN_STOCK"})
    assert f"{TEA} at lyon" in capsys.readouterr().out
    several = located("GET", "/products", query={"ids": f"{TEA},cup"}).document
    assert [product["productId"] for product in several["products"]] == [TEA, "cup"]
    assert several["unreadable"] == []
    # A total without this location would be wrong.
    assert located("GET", f"/stock/{TEA}").code == (500, "CORRUPT_PRODUCT")
    assert located("GET", f"/stock/{TEA}", query=at("berlin")).document["onHand"] == 5
    lyon = [f"{TEA} at lyon"]
    for query, unreadable in (({}, lyon), (at("lyon"), lyon), (at(""), [])):
        listed = located("GET", "/stock", query=query | {"limit": "100"}).document
        assert listed["unreadable"] == unreadable


def test_operators_see_the_stock_of_all_locations_and_of_each(located):
    limits = {"lowStockThreshold": 5, "backorderLimit": 2}
    located("PATCH", f"/products/{TEA}", limits | at("berlin"))
    lend(located.shop.store, TEA, 10, {1: 20})
    lend(located.shop.store, f"{TEA}#lyon", 60, {1: 4, 2: 6})
    sold(located, "o-1", quantity=4, locations=["berlin"])
    parcel = {"stepId": "p-1", "items": lines(**{TEA: 1})}
    assert located("POST", "/orders/o-1/fulfil", parcel).status == 200
    whole = located("GET", f"/stock/{TEA}").document
    own, berlin, lyon = whole.pop("places")
    assert whole == {name: own[name] for name in ("productId", "name", "price")} | {
        **dict.fromkeys(("available", "leftToSell"), 361),
        "onHand": 364,
        "committed": 3,
        "leftByDefault": 60,
        "inLanes": {"0": 70, "1": 24, "2": 6},
        "isExact": True,
    }
    assert [one["available"] for one in (own, berlin, lyon)] == [60, 1, 300]
    shown = limits | at("berlin", onHand=4, committed=3, status="LOW_STOCK")
    assert berlin | shown == berlin
    assert lyon["inLanes"] == {"0": 60, "1": 4, "2": 6}
    for alone, location_id in ((own, ""), (berlin, "berlin"), (lyon, "lyon")):
        assert located("GET", f"/stock/{TEA}", query=at(location_id)).document == alone
        assert alone.get("locationId", "") == location_id
    cup = located("GET", "/stock/cup").document
    assert (cup["available"], "places" in cup, "locationId" in cup) == (7, False, False)
    missing = located("GET", "/stock/cup", query=at("berlin"))
    assert missing.code == (404, "UNKNOWN_PRODUCT")
    assert missing.document["detail"] == "there is no product cup at berlin"


def test_a_location_that_owes_units_lowers_the_sum_but_not_what_is_left_to_sell(located):
    def totals():
        found = located("GET", f"/stock/{TEA}").document
        return found["available"], found["leftToSell"], found["leftByDefault"]

    located("PATCH", f"/products/{TEA}", {"backorderLimit": 500, **at("berlin")})
    sold(located, "o-1", quantity=405, locations=["berlin"])
    assert totals() == (-40, 360, 60)
    located.shop.restart(LOCATIONS="lyon,berlin")
    assert totals() == (-40, 360, 300)
    located("POST", f"/products/{TEA}/discontinue", at("lyon"))
    assert totals() == (-40, 60, 0)
    listed = located("GET", "/stock", query=at("") | {"limit": "100"}).document["products"]
    (tea,) = (one for one in listed if one["productId"] == TEA)
    assert (tea["leftToSell"], tea["leftByDefault"]) == (60, 0)


def test_stock_of_several_locations_is_exact_only_if_all_was_read_at_one_moment(located):
    """With several reads, units transferred in between could be counted twice, or not at all."""

    def transfer(_):
        body = {"transferId": "t", "from": "", "to": "lyon", "quantity": 7}
        assert located("POST", f"/products/{TEA}/transfers", body).status == 200

    located.shop.once("TransactGetItems", transfer)
    found = located("GET", f"/stock/{TEA}").document
    assert [one["available"] for one in found["places"]] == [53, 5, 307]
    assert (found["available"], found["isExact"]) == (365, True)
    located.shop.refuse("TransactGetItems", ServiceError("TransactionCanceledException", "busy"))
    found = located("GET", f"/stock/{TEA}").document
    assert {found["isExact"], *(one["isExact"] for one in found["places"])} == {False}
    assert (found["available"], len(found["places"])) == (365, 3)
    alone = located("GET", f"/stock/{TEA}", query=at("")).document
    assert (alone["available"], alone["isExact"], "places" in alone) == (53, False, False)


def test_stock_of_more_rows_and_pages_than_one_request_reads_is_an_estimate(api):
    stock(api, **{f"l-{number}": 200 for number in range(40)})
    lend(api.shop.store, f"{TEA}#l-7", 20, dict.fromkeys(range(1, 51), 1))
    found = api("GET", f"/stock/{TEA}").document
    assert (found["available"], len(found["places"]), found["isExact"]) == (8_060, 41, True)
    lend(api.shop.store, f"{TEA}#l-8", 20, {51: 5})
    found = api("GET", f"/stock/{TEA}").document
    assert (found["available"], len(found["places"]), found["isExact"]) == (8_060, 41, False)
    assert (found["inLanes"]["0"], found["inLanes"]["51"]) == (40, 5)
    alone = api("GET", f"/stock/{TEA}", query=at("l-8")).document
    assert (alone["available"], alone["isExact"]) == (200, True)


def test_adjustments_and_history_are_those_of_one_location(located):
    path = f"/products/{TEA}"
    booked = {"adjustmentId": "r", "delta": 3, "reason": "RECEIPT", **at("berlin")}
    assert located("POST", f"{path}/adjustments", booked).status == 200
    out = {"transferId": "t", "from": "berlin", "to": "", "quantity": 2}
    assert located("POST", f"{path}/transfers", out).document["from"]["stockCount"] == 6
    for order_id, quantity in (("o-1", 2), ("o-2", 1), ("o-3", 7)):
        place(located, order_id, quantity, locations=["berlin", ""])
    located("POST", "/orders/o-1/cancel", {"stepId": "c", "items": lines(**{TEA: 1})})
    record_movements(located.shop)

    def listed(name, **query):
        (page,) = pages(located, f"{path}/{name}", **query)
        entries = page["entries" if name == "history" else "adjustments"]
        moved = [one["transferWith"] for one in entries if "transferWith" in one]
        return sorted(one["delta"] for one in entries), moved

    for name, of_berlin, own in (
        ("adjustments", [-2, 3, 5], [2, 60]),
        ("history", [-2, -2, -1, 1, 3, 5], [-7, 2, 60]),
    ):
        assert listed(name, **at("berlin")) == (of_berlin, [""])
        assert listed(name) == listed(name, **at("")) == (own, ["berlin"])
        missing = located("GET", f"{path}/{name}", query=at("paris"))
        assert missing.code == (404, "UNKNOWN_PRODUCT")
        assert missing.document["detail"] == f"there is no product {TEA} at paris"
    assert (located.shop.stock(f"{TEA}#berlin"), located.shop.stock(TEA)) == (4, 55)
    first = located("GET", f"{path}/adjustments", query=at("berlin", limit="1")).document
    query = at("lyon", cursor=first["next"])
    assert located("GET", f"{path}/adjustments", query=query).code == (400, "INVALID_CURSOR")


def ships_from(api, location_id):
    """Return the orders to ship from a location."""
    query = {"status": "CONFIRMED", "locationId": location_id}
    listed = [order for page in pages(api, "/orders", **query) for order in page["orders"]]
    return {order["orderId"]: (order["shippable"], order.get("missing")) for order in listed}


def test_orders_to_ship_are_listed_by_location_with_its_shortages(located):
    items = [*lines(cup=1), {"productId": TEA, "quantity": 3, "locationId": "berlin"}]
    sold(located, "o-both", items=items)
    sold(located, "o-cup", items=lines(cup=1))
    sold(located, "o-berlin", quantity=2, locations=["berlin"])
    is_there = (True, None)
    assert ships_from(located, "berlin") == dict.fromkeys(("o-both", "o-berlin"), is_there)
    assert ships_from(located, "") == dict.fromkeys(("o-both", "o-cup"), is_there)
    found = pages(located, "/orders", limit="1", status="CONFIRMED", locationId="berlin")
    assert ids_of(found) == [["o-both"], ["o-berlin"]]
    located.shop.calls.clear()
    assert ships_from(located, "lyon") == {}
    # The index shows where orders are supplied from, so no rows are read.
    assert Counter(located.shop.calls) == {"Query": 16}
    lost = {"adjustmentId": "l", "delta": -4, "reason": "LOSS", **at("berlin")}
    located("PATCH", f"/products/{TEA}", {"backorderLimit": 9, **at("berlin")})
    assert located("POST", f"/products/{TEA}/adjustments", lost).status == 200
    short = {"productId": TEA, "locationId": "berlin", "onHand": 1}
    assert ships_from(located, "berlin") == {
        "o-both": (False, [short | {"wanted": 3}]),
        "o-berlin": (False, [short | {"wanted": 2}]),
    }
    assert ships_from(located, "") == dict.fromkeys(("o-both", "o-cup"), is_there)
    assert marks(located)["o-both"] == (False, [short | {"wanted": 3}])
    parcel = {"stepId": "p-1", "items": lines(**{TEA: 3})}
    assert located("POST", "/orders/o-both/fulfil", parcel).status == 200
    # The first order has no open units at berlin any more.
    assert set(ships_from(located, "berlin")) == {"o-berlin"}
    assert set(ships_from(located, "")) == {"o-both", "o-cup"}


# ---------------------------------------------------------------------- who may do what


def test_the_order_of_a_forgotten_customer_has_no_owner(customers):
    wait = WAIT
    for user, status in (("u-7", 201), ("u-8", 409), ("u-7", 409)):
        body = ORDER | {"userId": user}
        said = customers("POST", "/orders", body, wait, claims={"sub": user})
        assert said.status == status, said.document
        customers.shop.edit(
            Table.ORDERS, "o-1", userId={"S": "forgotten-1"}, pseudonymisedAt={"S": "2026"}
        )
    assert said.document["code"] == "ORDER_ID_REUSED"


def test_an_id_that_no_path_can_name_is_refused(api):
    schemas = CONTRACT["components"]["schemas"]
    for path, body, name, schema in (
        ("/orders", ORDER, "orderId", "NewOrderId"),
        ("/products", {"productId": "p", "openingStock": 1}, "productId", "NewProductId"),
    ):
        for given in ("o%2D5", "50%-off", "%", "a/b", "a?b", ".", ".."):
            said = api("POST", path, body | {name: given}, JSON)
            assert (said.code, said.document["field"]) == ((400, "SCHEMA_VIOLATION"), name)
            assert not re.search(schemas[schema]["pattern"], given)
        for given in ("...", ".5", "-5", "a|b;c=d&e+f", "~!\"$'()*:<>@[\\]^_`{}"):
            assert api("POST", path, body | {name: given}, JSON).status in (201, 202)
            assert re.search(schemas[schema]["pattern"], given)


def test_customers_place_see_and_list_their_own_orders_only(customers):
    def asked(user, path, **query):
        return customers("GET", path, claims={"sub": user}, query=query)

    assert place(customers, claims={"sub": "u-7"}).status == 201
    assert place(customers, "o-2", claims={"sub": "u-8"}).code == (403, "OTHER_USER")
    assert asked("u-7", "/orders/o-1").status == 200
    hidden, missing = asked("u-8", "/orders/o-1"), asked("u-8", "/orders/o-9")
    assert hidden.code == (404, "UNKNOWN_ORDER")
    # Another customer's order looks like a missing one.
    assert hidden.text == missing.text.replace("o-9", "o-1")
    for own in ({"userId": "u-7"}, {}):
        assert ids_of([asked("u-7", "/orders", **own).document]) == [["o-1"]]
    assert asked("u-8", "/orders").document["orders"] == []
    assert asked("u-8", "/orders", userId="u-7").code == (403, "OTHER_USER")
    assert asked("u-8", f"/products/{TEA}").status == 200


LINES = [{"productId": TEA, "quantity": 1}, {"productId": "cup", "quantity": 1, "locationId": ""}]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"holdSeconds": 601}, "holdSeconds"),
        ({"locations": [""]}, "locations"),
        ({"split": False}, "split"),
        ({"attributes": {"paid": True}}, "attributes"),
        ({"items": LINES}, "items[1].locationId"),
        ({"buyers": ["u-7"]}, "buyers"),
    ],
)
def test_customers_set_only_the_fields_that_are_left_to_them(customers, given, field):
    def order(claims, **variables):
        customers.shop.restart(HOLD_SECONDS="600", **variables)
        return customers("POST", "/orders", ORDER | given, claims=claims)

    before = customers.state()
    said = order({"sub": "u-7"})
    assert said.code == (403, "OPERATORS_ONLY")
    assert said.document["field"] == field
    assert said.document["detail"].startswith(f"{field}: ")
    assert customers.state() == before
    said = order({"sub": "u-7"}, CUSTOMERS_MAY_SET="attributes,locations,split")
    assert (said.status == 403) is (field in ("holdSeconds", "buyers"))
    assert order(OPERATOR).status != 403


@pytest.mark.parametrize(("setting", "hold"), [("600", 600), ("600", 60), ("", 604_800)])
def test_customers_may_hold_stock_as_long_as_the_shop_does(customers, setting, hold):
    customers.shop.restart(**({"HOLD_SECONDS": setting} if setting else {}))
    for status in (201, 200):
        assert place(customers, holdSeconds=hold, claims={"sub": "u-7"}).status == status


def test_a_rejection_shows_stock_to_customers_only_if_allowed(customers, monkeypatch):
    wait = WAIT
    order = ORDER | {"items": [{"productId": TEA, "quantity": 61}]}

    def tells(claims):
        said = customers("POST", "/orders", order, wait, claims=claims).document
        shown = customers("GET", "/orders/o-1", claims=claims).document
        assert "60" not in said["detail"]
        return ["available" in each["shortages"][0] for each in (said["order"], shown)]

    customers.shop.restart(SHOW_STOCK="availability")
    assert not any(tells({"sub": "u-7"}))
    assert all(tells(OPERATOR))
    customers.shop.restart(SHOW_STOCK="numbers")
    assert all(tells({"sub": "u-7"}))


def test_a_rejection_tells_customers_the_limit_but_not_what_was_bought(customers):
    limit = {"purchaseLimit": 2, "limitGroup": "drop"}
    assert customers("PATCH", f"/products/{TEA}", limit, claims=OPERATOR).status == 200
    buyers = {"buyers": ["u-7", "card"]}
    assert place(customers, "o-1", 2, user="u-6", claims=OPERATOR, **buyers).status == 201
    said = place(customers, "o-2", 1, claims={"sub": "u-7"})
    assert said.code == (409, "PURCHASE_LIMIT")
    assert said.document["detail"].startswith("at most 2 of these per customer. This is final")
    again = place(customers, "o-2", 1, claims={"sub": "u-7"})
    assert again.document == said.document
    shown = [
        customers("GET", "/orders/o-2", claims=who).document for who in ({"sub": "u-7"}, OPERATOR)
    ]
    reached = {"group": "drop", "limit": 2, "wanted": 1}
    assert said.document["order"]["limits"] == shown[0]["limits"] == [reached]
    assert shown[1]["limits"] == [reached | {"bought": 2}]


def test_a_token_without_a_subject_is_refused(customers):
    for claims in ({}, {"sub": ""}, {"sub": None}, {"sub": 7}, {"sub": ["u-7"]}):
        for path in ("/orders", "/orders/o-1", f"/products/{TEA}"):
            assert customers("GET", path, claims=claims).code == (403, "NO_SUBJECT")
    without_authorizer = {"http": {"method": "GET", "path": "/"}, "stage": "$default"}
    said = customers("GET", "/orders/o-1", requestContext=without_authorizer)
    assert said.code == (403, "NO_SUBJECT")


def test_a_caller_with_the_claim_is_an_operator():
    settings = {"USER_ID_CLAIM": "sub", "SHOW_STOCK": "availability"}
    operators = {"OPERATORS_CLAIM_NAME": "groups", "OPERATORS_CLAIM_VALUE": "operators"}

    def is_operator(claim, more=operators):
        token = {"jwt": {"claims": {"sub": "u", "groups": claim}}}
        return Caller.of(token, Process(settings | more)).customer is None

    for claim in ("operators", "[operators]", "[staff operators]", "[staff, operators]"):
        assert is_operator(claim)
        assert not is_operator(claim, {}), "no operators without the setting"
    others = ("operators2", "[no-operators]", "staff operators", "", "true", None, ["operators"])
    assert [claim for claim in others if is_operator(claim)] == []


def test_the_shop_chooses_the_claim_that_names_the_user(customers, monkeypatch):
    customers.shop.restart(USER_ID_CLAIM="https://shop.example/customer")
    claims = {"sub": "auth0|5f7c", "https://shop.example/customer": "u-7"}
    assert place(customers, claims=claims).status == 201
    assert customers("GET", "/orders/o-1", claims={"sub": "u-7"}).code == (403, "NO_SUBJECT")
    assert customers("GET", "/orders/o-1").status == 200, "a signed request has full access"


# ---------------------------------------------------------------------- failures


def test_missing_resources_are_not_found(api):
    for method, path in (
        ("GET", "/"),
        ("DELETE", "/orders/o-1"),
        ("GET", "/orders/o-1/confirm"),
        ("PUT", "/products"),
        ("GET", "/orders/a/b"),
    ):
        assert api(method, path).code == (404, "UNKNOWN_ROUTE")


def test_logs_contain_nothing_of_the_body(api, capsys):
    api("POST", "/orders", ORDER | {"orderId": "a secret"})
    logged = capsys.readouterr().out
    assert "SCHEMA_VIOLATION" in logged
    assert "secret" not in logged
    assert "u-7" not in logged
