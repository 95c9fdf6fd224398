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
import yaml

from inventory_orders.api import orders, products, requests
from inventory_orders.api.products import availability
from inventory_orders.api.requests import encode_cursor, place_after
from inventory_orders.api.serving import Caller
from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.allotments import PageKey
from inventory_orders.domain.product import ProductStatus
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import (
    ConfigurationError,
    InvalidMessageError,
    StoreUnavailableError,
    ThrottledError,
)
from inventory_orders.invocation.runtime import Process
from inventory_orders.invocation.sqs import SqsCalls
from inventory_orders.messages.documents import json_schema
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.lists import ListPosition
from inventory_orders.store.rows import encode
from inventory_orders.store.tables import Table
from local import ROOT
from local.sample_orders import catalogue
from testing.aws import ServiceError
from testing.schedules.in_turn.bench import product
from testing.schedules.in_turn.lanes import lend
from testing.world.events import sqs_event
from tests.support.schemas import closed, is_open

TEA = "tea-earl-grey"  # the catalogue has 60 packets
ORDER = {"orderId": "o-1", "userId": "u-7", "items": [{"productId": TEA, "quantity": 2}]}
JSON = {"content-type": "application/json"}
OPERATOR = {"sub": "staff-1", "cognito:groups": "[staff operators]"}


# Every test process parses this file, and libyaml is ten times as fast.
CONTRACT = yaml.load((ROOT / "docs" / "openapi.yaml").read_text("utf-8"), yaml.CSafeLoader)


def resolved(value):
    """Replace all references in a part of the contract with their targets."""
    if isinstance(value, dict) and "$ref" in value:
        found = CONTRACT
        for name in value["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        return resolved(found)
    if isinstance(value, dict):
        return {name: resolved(inner) for name, inner in value.items()}
    return [resolved(inner) for inner in value] if isinstance(value, list) else value


OPERATIONS = {
    (method.upper(), path): resolved(operation)
    for path, operations in CONTRACT["paths"].items()
    for method, operation in operations.items()
    if method != "parameters"
}
FROM_API_GATEWAY_ONLY = {(*route, status) for route in OPERATIONS for status in (401, 429)} | {
    ("POST", "/orders", 500)
}


PATTERNS = {
    route: re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]*)", route[1])) for route in OPERATIONS
}


def check_contract(method, path, said):
    routes = [r for r in OPERATIONS if r[0] == method and PATTERNS[r].fullmatch(path)]
    if not routes:
        assert said.status == 404
        return
    answer = OPERATIONS[routes[0]]["responses"][str(said.status)]
    assert said.headers.keys() >= REQUIRED_HEADERS.get((*routes[0], said.status), set())
    if said.document is None:
        assert "content" not in answer
        return
    kind = said.headers["Content-Type"]
    key = (*routes[0], said.status, kind)
    if key not in VALIDATORS:
        VALIDATORS[key] = jsonschema.Draft202012Validator(closed(answer["content"][kind]["schema"]))
    VALIDATORS[key].validate(said.document)


VALIDATORS = {}
REQUIRED_HEADERS = {
    ("POST", "/orders", 200): {"Location", "ETag"},
    ("POST", "/orders", 201): {"Location", "ETag"},
    ("POST", "/orders", 202): {"Location", "Retry-After"},
    **{
        ("GET", path, status): {"ETag"}
        for path in ("/orders/{orderId}", "/products/{productId}")
        for status in (200, 304)
    },
    **{(*route, 503): {"Retry-After"} for route in OPERATIONS},
}


class Api:
    """Sends requests to the handler in API Gateway's format."""

    def __init__(self, shop):
        self.shop = shop
        self.functions = {
            route: name
            for name in ("api", "manage_products", "adjust_stock", "count_stock")
            for route in shop.handler(name)._ROUTES
        }

    def __call__(
        self, method, path, body=None, headers=JSON, query=None, claims=None, seconds=30.0, **more
    ):
        template, named = path, {}
        for route, pattern in PATTERNS.items():
            if route[0] == method and (found := pattern.fullmatch(path)):
                template, named = route[1], found.groupdict()
        authorizer = {"iam": {"userArn": "x"}} if claims is None else {"jwt": {"claims": claims}}
        event = {
            "version": "2.0",
            "routeKey": f"{method} {template}",
            "rawPath": path,
            "headers": headers,
            "requestContext": {
                "authorizer": authorizer,
                "http": {"method": method, "path": path},
                "stage": "$default",
            },
            "body": body if isinstance(body, str) or body is None else json.dumps(body),
            "isBase64Encoded": False,
            **({"queryStringParameters": query} if query else {}),
            **({"pathParameters": named} if named else {}),
            **more,
        }
        function = self.functions.get(event["routeKey"], "api")
        said = Said(self.shop.invoke(function, event, seconds))
        check_contract(method, path, said)
        return said

    @property
    def queued(self):
        """The bodies of the messages in the order queue."""
        return self.shop.waiting("Order")

    def work_off(self, *orders):
        """Let a worker place the given orders, or else the ones in the order queue."""
        if orders:
            self.shop.invoke("place_orders", sqs_event(*orders))
        else:
            self.shop.deliver("Order")

    def state(self):
        """Everything that a refused request must leave unchanged."""
        return self.shop.stock(TEA), dict(self.shop.items(Table.ORDERS))


OF_QUEUES = re.compile(r"\b(message|event|SQS|[qQ]ueue|\w+Queue|Lambda|invocation)\b(?!:)")


KEY_OF_A_PLACE = re.compile(r"\w#\w")


class Said:
    def __init__(self, answer):
        self.status = answer["statusCode"]
        self.text = answer.get("body") or ""
        self.document = json.loads(self.text) if self.text else None
        self.headers = dict(answer["headers"])
        assert not KEY_OF_A_PLACE.search(self.text), self.text
        if self.status >= 400:
            assert self.headers["Content-Type"] == "application/problem+json"
            assert self.document["status"] == self.status
            assert self.document["detail"]
            assert self.document["title"]
            assert not OF_QUEUES.search(self.document["detail"]), self.text

    @property
    def code(self):
        return self.status, self.document.get("code")


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
    return api("POST", "/orders", body | more, JSON | {"prefer": "wait=5"}, claims=claims)


# ---------------------------------------------------------------------- the contract


def test_the_contract_lists_only_headers_that_its_answers_have():
    listed = {
        (*route, int(status)): set(answer["headers"]) - {"Preference-Applied"}
        for route, operation in OPERATIONS.items()
        for status, answer in operation["responses"].items()
        if "headers" in answer
    }
    assert listed == REQUIRED_HEADERS


def test_the_contract_and_the_handlers_have_the_same_routes(api):
    assert {tuple(route.split()) for route in api.functions} == OPERATIONS.keys()


NAMED_BY_PATHS, OF_IDS = r"""(?!\.{1,2}$)[!"\$&-+.0->@-~-]""", r"""[!"\$-+.-~-]"""
"""The characters of ids that a path can contain, and the characters of all ids."""


def without_words(schema):
    """Remove descriptions from a schema, and allow ids that a path could not contain."""
    if isinstance(schema, str):
        return schema.replace(NAMED_BY_PATHS, OF_IDS)
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
        ("Cancellation", "change_orders", "cancel"),
        ("Return", "change_orders", "return"),
        ("NewProduct", "manage_products", "create"),
        ("ProductChange", "manage_products", "change"),
        ("NewAdjustment", "adjust_stock", "adjust"),
        ("NewTransfer", "adjust_stock", "transfer"),
    ):
        command = as_body(json_schema("commands")[function][action], is_new=name == "NewProduct")
        said = resolved(schemas[name])
        # The commands' patterns also exclude characters that cannot occur in JSON.
        texts = {n for n, inner in command["properties"].items() if "\\ud800" in str(inner)}
        said["properties"] |= {name: command["properties"][name] for name in texts}
        assert without_words(said) == without_words(command)
    counts = json_schema("commands")["count_stock"].values()
    for said, command in zip(schemas["Count"]["oneOf"], counts, strict=True):
        assert said["required"] == command["required"]
        assert said["properties"].keys() == command["properties"].keys() - {"actor"}
        for name in said["properties"].keys() - {"action", "reference"}:
            demanded = without_words(resolved(said["properties"][name]))
            assert demanded == without_words(command["properties"][name])


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


def test_every_example_of_the_contract_succeeds(api):
    """Send the requests in the sequence of an order's life."""
    path_of = {"orderId": "o-1001", "productId": TEA}
    for (method, path), operation in sorted(
        OPERATIONS.items(), key=lambda item: LIFE.index(item[1]["operationId"])
    ):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        parameters = operation.get("parameters", [])
        query = {
            parameter["name"]: given if isinstance(given, str) else ",".join(given)
            for parameter in parameters
            if parameter["in"] == "query" and (given := parameter.get("example"))
        }
        headers = {
            parameter["name"]: parameter["example"]
            for parameter in parameters
            if parameter["in"] == "header" and parameter["name"] == "Prefer"
        }
        where = re.sub(r"{(\w+)}", lambda found: path_of[found[1]], path)
        if operation["operationId"] == "transferStock":
            place = {"productId": TEA, "locationId": "berlin", "openingStock": 0}
            assert api("POST", "/products", place).status == 201
        said = api(method, where, content.get("example"), JSON | headers, query=query)
        assert said.status in (200, 201), (method, path, said.text)


LIFE = [
    *("placeOrder", "getOrder", "listOrders", "extendHold", "confirmOrder", "fulfilOrder"),
    "takeBack",
    *("getProducts", "getProduct", "cancelOrder", "createProduct", "changeProduct", "adjustStock"),
    *(
        "listAdjustments",
        "listHistory",
        "listStock",
        "getStock",
        "transferStock",
        "discontinueProduct",
        "listProductAgain",
    ),
    *("countStock", "delistProduct"),
]


BACK = {"stepId": "rt-1", "items": [{"productId": TEA, "quantity": 1}], "restock": True}

COMMANDS = {
    "extend": {"until": "2031-01-01T00:00:00Z"},
    "confirm": None,
    "fulfil": None,
    "cancel": None,
    "returns": BACK,
}
"""Commands, each with its request body."""

TOO_LARGE = "x" * 262_145


def statuses_seen(api, monkeypatch):
    """Send a request for each status of each route, and return the pairs of route and status."""
    seen = set()

    def see(method, path, *given, claims=OPERATOR, **more):
        route = re.sub("(?<=/orders/)[^/]+", "{orderId}", path)
        route = re.sub("(?<=/products/)[^/]+|(?<=/stock/)[^/]+", "{productId}", route)
        seen.add(((method, route), api(method, path, *given, claims=claims, **more).status))

    see_orders_placed(see)
    see_orders_and_products_read(see)
    see_commands(see, api)
    see_operators_requests(see, api)
    see_failures(see, monkeypatch)
    return seen


def see_orders_placed(see):
    wait = JSON | {"prefer": "wait=5"}
    for body, headers in (
        *((ORDER, wait), (ORDER, wait), (ORDER, JSON), (ORDER | {"userId": "u-8"}, wait)),
        *(("{", JSON), (ORDER, {}), (TOO_LARGE, JSON)),
    ):
        see("POST", "/orders", body, headers)
    see("POST", "/orders", ORDER, claims={"sub": "u-8"})


def see_orders_and_products_read(see):
    for path in ("/orders/o-1", f"/products/{TEA}"):
        see("GET", path)
        see("GET", path, headers={"if-none-match": "*"})
    for path in ("/orders/o-2", "/orders/o 2", "/products/p-2", "/products/p 2"):
        see("GET", path)
    see("GET", "/orders", query={"userId": "u-7"})
    see("GET", "/orders", query={"userId": "u-7"}, claims={"sub": "u-8"})
    see("GET", "/orders")
    see("GET", "/orders", claims={"sub": "u-7"})
    see("GET", "/orders", query={"limit": "0"})
    see("GET", "/products", query={"ids": TEA})
    see("GET", "/products")
    for path in ("/orders/o-1", "/products", f"/products/{TEA}"):
        see("GET", path, claims={})


def see_commands(see, api):
    see("POST", "/orders/o-1/fulfil")
    for command, body in COMMANDS.items():
        path = f"/orders/o-1/{command}"
        see("POST", path, body, claims={"sub": "u-7"})
        see("POST", f"/orders/o-2/{command}", body)
        see("POST", path, "{")
        see("POST", path, TOO_LARGE)
        see("POST", path, {"why": 1}, {})
        see("POST", path, BACK | {"stepId": "rt-2"} if body is BACK else body)
        if command == "fulfil":
            place(api, "o-3", claims=OPERATOR)
            api("POST", "/orders/o-3/cancel", claims=OPERATOR)
    see("POST", "/orders/o-1/cancel")
    place(api, "o-6", claims=OPERATOR, holdSeconds=900)
    see("POST", "/orders/o-6/extend", COMMANDS["extend"])
    place(api, "o-4", claims=OPERATOR)
    see("POST", "/orders/o-4/cancel")
    see("POST", "/orders/o-4/confirm")
    see("POST", "/orders/o-4/returns", BACK)
    api.shop.edit(Table.ORDERS, "o-5", userId={"S": "u"}, items={"S": "?"})
    for command, body in COMMANDS.items():
        see("POST", f"/orders/o-5/{command}", body)


OPERATORS_REQUESTS = (
    ("POST", "/products", {"productId": "mug", "openingStock": 4}),
    ("PATCH", "/products/mug", {"lowStockThreshold": 5}),
    ("POST", "/products/mug/adjustments", {"adjustmentId": "r-1", "delta": -2, "reason": "LOSS"}),
    ("POST", "/products/mug/transfers", {"transferId": "t", "from": "", "to": "x", "quantity": 1}),
    ("POST", "/counts", {"action": "acquire", "productId": "tea-hojicha", "seconds": 1}),
    ("POST", "/products/mug/discontinue", None),
    ("POST", "/products/mug/list-again", None),
    ("DELETE", "/products/mug", None),
)
"""Requests in a sequence in which each one succeeds."""

QUERIES = {"DELETE": {"createdAt": "2026-01-01T00:00:00.000000+00:00"}}
LOST = {
    "productId": "mug",
    "createdAt": "2026-11-20T09:30:00.000000+00:00",
    "owner": "w",
    "version": 1,
    "expiresAt": "1795176300.000000",
}


def see_operators_requests(see, api):
    for method, path, body in OPERATORS_REQUESTS:
        query = QUERIES.get(method)
        see(method, path, body, query=query, claims={"sub": "u-7"})
        see(method, path, body, query=query)
        see(method, path, "{", query=query)
        see(method, path, TOO_LARGE, query=query)
        see(method, path, {"why": 1}, {}, query=query)
        see(method, path.replace("mug", "cup"), body, query=query)
    see(*OPERATORS_REQUESTS[0])
    see("POST", "/products", OPERATORS_REQUESTS[0][2])
    see("PATCH", "/products/p 1", {"price": 1})
    too_many = {"adjustmentId": "r-2", "delta": -90, "reason": "LOSS"}
    see("POST", "/products/mug/adjustments", too_many)
    see("POST", "/products", {"productId": "pot", "openingStock": 1, "backorderLimit": 5})
    see("POST", "/products/pot/adjustments", too_many | {"delta": -3})
    see("PATCH", "/products/pot", {"backorderLimit": 1})
    for product_id in ("cup", "pot", "mug"):
        place = {"productId": product_id, "locationId": "berlin", "openingStock": 1}
        see("POST", "/products", place)
    for quantity in (1, 90):
        transfer = {"transferId": f"t-{quantity}", "from": "", "to": "berlin", "quantity": quantity}
        see("POST", "/products/mug/transfers", transfer)
    created_at = api.shop.row("pot")["createdAt"]["S"]
    see("DELETE", "/products/pot", query={"createdAt": created_at})
    see("POST", "/counts", {"action": "acquire", "productId": "cup", "seconds": 1})
    see("POST", "/counts", {"action": "release", "lease": LOST})
    see("POST", "/counts", {"action": "renew", "lease": LOST, "seconds": 9})
    history = "/products/mug/history"
    for path in ("/stock", "/stock/mug", "/products/mug/adjustments", history):
        see("GET", path)
        see("GET", path, claims={"sub": "u-7"})
        see("GET", path, query={"limit": "no"})
    see("GET", "/stock/cup")
    see("GET", "/products/cup/adjustments")
    see("GET", "/products/cup/history")


def see_failures(see, monkeypatch):
    for error in (
        ThrottledError("ThrottlingException", "x"),
        StoreUnavailableError("AccessDeniedException", "x"),
    ):
        broken(monkeypatch, error)
        monkeypatch.setattr(SqsCalls, "send_one", lambda *_: False)
        see("POST", "/orders", ORDER)
        for path in ("/orders/o-1", f"/products/{TEA}"):
            see("GET", path)
        see("GET", "/orders", query={"userId": "u-7"})
        see("GET", "/products", query={"ids": TEA})
        for command, body in COMMANDS.items():
            see("POST", f"/orders/o-1/{command}", body)
        for method, path, body in OPERATORS_REQUESTS:
            see(method, path, body, query=QUERIES.get(method))
        of_product = (f"/products/{TEA}/adjustments", f"/products/{TEA}/history")
        for path in ("/stock", f"/stock/{TEA}", *of_product):
            see("GET", path)


def broken(monkeypatch, error):
    """Make every request to the tables fail."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(RetryingClient, "pause", lambda *_: False)
    reads = "get_record get_product query scan read read_together"
    for name in (*reads.split(), "write", "update_product"):
        monkeypatch.setattr(Store, name, fail)


def good_requests():
    """Return a valid body and query for each route."""
    bodies = {
        ("POST", "/orders"): ORDER,
        **{("POST", f"/orders/{{orderId}}/{name}"): body for name, body in COMMANDS.items()},
        **{
            (method, path.replace("mug", "{productId}")): body
            for method, path, body in OPERATORS_REQUESTS
        },
    }
    queries = {
        ("GET", "/orders"): {"userId": "u-7"},
        ("GET", "/products"): {"ids": TEA},
        ("DELETE", "/products/{productId}"): QUERIES["DELETE"],
    }
    return {route: (bodies.get(route), queries.get(route, {})) for route in OPERATIONS}


def mistakes(method, path, body, query):
    """Yield requests with one mistake each: the place of the mistake, and the request's path, body and query."""
    yield "wrong", path, body, query | {"wrong": "1"}
    for name, value in query.items():
        yield name, path, body, {other: v for other, v in query.items() if other != name}
        yield name, path, body, query | {name: f"{value} 1"}
    for name in re.findall(r"{(\w+)}", path):
        for wrong in ("a b", "x" * 129, "a%20", ".."):
            yield name, path.replace(f"{{{name}}}", wrong), body, query
    path = path.format(orderId="o-1", productId="mug")
    if method == "GET":
        return
    for wrong in ("{", "[]", "1", "[1.5]", '{"a": 1, "a": 1}'):
        yield "", path, wrong, query
    whole = body or {}
    for name in (*whole, "wrong", "message", "action", "actor", "orderId", "productId"):
        yield name, path, {other: value for other, value in whole.items() if other != name}, query
        for wrong in ("", -1, [], {}, [{}], None):
            yield name, path, whole | {name: wrong}, query
    yield "", path, {**whole, "stepId": "s", "items": None}, query
    yield "", path, {"stepId": "s", **whole}, query
    yield "", path, {"items": BACK["items"], **whole}, query


OF_OTHER_INTERFACES = re.compile(
    r"\b(messages?|events?|commands?|actions?|actor|SQS|\w*[Qq]ueue|Lambda|invocations?)\b"
)


def test_every_refusal_is_in_terms_of_path_query_and_body(api):
    """No error about a request to the API mentions the format of queue messages or direct invocations."""
    place(api)
    refused = Counter()
    for (method, template), (body, query) in good_requests().items():
        in_path = re.findall(r"{(\w+)}", template)
        for where, path, wrong_body, wrong_query in mistakes(method, template, body, query):
            said = api(method, path, wrong_body, query=wrong_query)
            # Some routes accept some of these.
            if said.status != 400:
                continue
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


def test_every_route_refuses_an_unknown_query_parameter(api):
    """API Gateway may split `a%3Fb` in a path into the id `a` and a query `b`; such a request must not act on `a`."""
    place(api)
    before = api.state()
    for (method, template), (body, query) in good_requests().items():
        path = template.format(orderId="o-1", productId="mug")
        for name in ("b", ""):
            said = api(method, path, body, query=query | {name: ""})
            assert (said.code, said.document.get("field")) == (
                (400, "SCHEMA_VIOLATION"),
                name or '""',
            )
    assert api.state() == before


def test_every_status_of_the_contract_occurs(customers, monkeypatch):
    """The service returns every documented status, except the ones that only API Gateway returns."""
    seen = {(*route, status) for route, status in statuses_seen(customers, monkeypatch)}
    promised = {
        (*route, int(status))
        for route, operation in OPERATIONS.items()
        for status in operation["responses"]
    }
    assert promised - FROM_API_GATEWAY_ONLY == seen


# ---------------------------------------------------------------------- POST /orders


def test_an_order_goes_to_its_queue_and_the_answer_says_where_to_ask(api):
    said = api("POST", "/orders", ORDER)
    assert said.status == 202
    assert said.headers["Location"] == "/orders/o-1"
    assert said.document == {"orderId": "o-1", "status": "ACCEPTED", "location": "/orders/o-1"}
    assert [json.loads(body) for body in api.queued] == [ORDER]
    assert [message.group for message in api.shop.queues["Order"].messages] == ["u-7"]
    assert api("GET", "/orders/o-1").code == (404, "UNKNOWN_ORDER")
    api.work_off()
    assert api("GET", "/orders/o-1").document["status"] == "PENDING"


def test_a_waiting_caller_is_answered_immediately_without_the_queue(api):
    said = place(api, holdSeconds=900, attributes={"channel": "web"})
    assert said.status == 201
    assert said.headers["Location"] == "/orders/o-1"
    assert said.headers["ETag"] == '"1"'
    assert said.headers["Preference-Applied"] == "wait=5"
    assert said.document["status"] == "PENDING"
    assert said.document["items"] == [{"productId": TEA, "quantity": 2}]
    assert said.document["expiresAt"] > said.document["createdAt"]
    assert said.document["attributes"] == {"channel": "web"}
    assert (api.queued, api.shop.stock(TEA)) == ([], 58)


def test_a_placed_order_is_answered_as_stored_without_another_read(api, monkeypatch):
    store = api.shop.process("api").impatient_engine.client.store
    with monkeypatch.context() as patched:
        patched.setattr(store, "get_record", lambda *_: pytest.fail("it was read"))
        said = place(api, holdSeconds=900, attributes={"channel": "web"})
    stored = api("GET", "/orders/o-1")
    assert said.status == 201
    assert said.document == stored.document
    assert said.headers["ETag"] == stored.headers["ETag"]


def test_a_rejection_is_an_answer_and_is_repeated(api):
    for _ in range(2):
        said = place(api, quantity=61)
        assert said.code == (409, "INSUFFICIENT_STOCK")
        assert said.document["order"]["status"] == "REJECTED"
        assert said.document["order"]["shortages"][0]["available"] == 60
        assert "not enough stock of tea-earl-grey" in said.document["detail"]
        assert said.headers["Preference-Applied"] == "wait=5"


def test_an_order_of_an_unknown_product_is_rejected_with_its_reason(api):
    said = place(api, product_id="no-such-tea")
    assert said.code == (409, "UNKNOWN_PRODUCT")
    assert "there is no product no-such-tea" in said.document["detail"]
    assert "under a new orderId" in said.document["detail"]
    # The order's stored row does not name the product, so neither does the repeated answer.
    again = place(api, product_id="no-such-tea")
    assert "GET /products shows which" in again.document["detail"]


def test_another_body_under_a_used_id_is_refused_if_the_order_is_known(api):
    place(api)
    assert place(api, user="u-8").code == (409, "ORDER_ID_REUSED")
    assert "only for a second purchase" in place(api, quantity=7).document["detail"]
    assert "(stored 2, sent 7)" in place(api, quantity=7).document["detail"]
    other_user = place(api, user="u-8", quantity=7).document["detail"]
    assert other_user.endswith("The two differ in userId")
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
def waits(api, monkeypatch):
    """Make a product contested, and record the waits that follow."""
    waits = Waits(api.shop.clock)
    monkeypatch.setattr(SystemClock, "sleep", lambda _, seconds: waits.sleep(seconds))
    api.shop.process("api").impatient_engine.client.rivals.observe(TEA)
    return waits


def test_an_order_under_contention_is_queued_and_the_call_waits_for_it(api, waits):
    waits.meanwhile = lambda: len(waits.slept) == 2 and api.work_off()
    said = place(api)
    assert (said.status, said.document["status"]) == (201, "PENDING")
    assert waits.slept == [0.1, 0.2]
    assert api.shop.stock(TEA) == 58


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


@pytest.mark.parametrize("is_contested", [False, True])
def test_of_two_equal_orders_sent_at_once_exactly_one_is_new(api, waits, is_contested):
    rivals = api.shop.process("api").impatient_engine.client.rivals
    for at in range(100):
        rivals[TEA] = SystemClock().monotonic() if is_contested else float("-inf")
        statuses = placed_twice(api, waits, f"o-{at}", at)
        assert sorted(statuses) == [200, 201][-len(statuses) :], (at, statuses)
        if len(statuses) == 1:
            break
    assert 1 < at < 99


def test_a_caller_is_told_to_ask_later_if_the_order_takes_too_long(api, waits):
    said = api("POST", "/orders", ORDER, JSON | {"prefer": "respond-async, wait=60"})
    assert said.status == 202
    assert said.headers["Location"] == "/orders/o-1"
    assert said.headers["Retry-After"] == "1"
    assert said.headers["Preference-Applied"] == "wait=25"
    assert 23 < sum(waits.slept) <= 25, "API Gateway ends a request after 30 s"
    assert max(waits.slept) == 0.25, "a result is noticed soon"
    assert len(api.queued) == 1


def test_no_call_waits_longer_than_the_function_may_run(api, waits):
    said = api("POST", "/orders", ORDER, JSON | {"prefer": "wait=25"}, seconds=10.0)
    assert said.status == 202
    assert sum(waits.slept) <= 6.0


@pytest.fixture
def uncontested(waits, api):
    api.shop.process("api").impatient_engine.client.rivals[TEA] = float("-inf")
    return waits


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
    assert (said.status, reads, uncontested.slept, len(api.queued)) == (202, 1, [], 1)
    assert 299 <= int(said.headers["Retry-After"]) <= 300
    uncontested.meanwhile = lambda: len(uncontested.slept) == 3 and api.work_off()
    said, reads = counted(2)
    assert (said.status, reads) == (201, 4), "this count ends in time"


def test_an_order_that_needs_a_repair_first_is_answered_at_once(api, uncontested):
    api.shop.edit(Table.PRODUCTS, TEA, status={"S": "?"})
    said = place(api)
    assert (said.status, said.headers["Retry-After"], uncontested.slept) == (202, "60", [])
    assert len(api.queued) == 1


def test_an_order_whose_confirmation_was_lost_is_new(api, uncontested):
    def lose(request):
        api.shop.aws.answer("dynamodb", "TransactWriteItems", request)
        raise ServiceError("InternalServerError", "lost", 500)

    api.shop.once("TransactWriteItems", lose)
    assert (place(api).status, api.queued, api.shop.stock(TEA)) == (201, [], 58)


def test_an_order_that_was_placed_before_is_not_new_and_not_queued_again(api, waits):
    api.work_off(json.dumps(ORDER))
    said = place(api)
    assert (said.status, said.document["status"], api.queued) == (200, "PENDING", [])


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


NO_ORDERS = [
    ("{", "INVALID_JSON", None),
    ("", "INVALID_JSON", None),
    ('{"orderId": "o", "orderId": "o"}', "INVALID_JSON", "orderId"),
    ("[" * 100_000, "INVALID_JSON", None),
    (f'{json.dumps(ORDER)[:-1]}, "locations": [{"[" * 500}{"]" * 500}]}}', "INVALID_JSON", None),
    ("[]", "SCHEMA_VIOLATION", None),
    ("null", "SCHEMA_VIOLATION", None),
    ("{}", "SCHEMA_VIOLATION", "orderId"),
    (ORDER | {"action": "place"}, "SCHEMA_VIOLATION", "action"),
    (ORDER | {"orderId": "o 1"}, "SCHEMA_VIOLATION", "orderId"),
    (ORDER | {"orderId": "' OR '1'='1"}, "SCHEMA_VIOLATION", "orderId"),
    (ORDER | {"items": []}, "SCHEMA_VIOLATION", "items"),
    (ORDER | {"price": 1}, "SCHEMA_VIOLATION", "price"),
    (
        ORDER | {"items": [{"productId": f"p{n}", "quantity": 1} for n in range(100)]},
        "TOO_MANY_PRODUCTS",
        "items",
    ),
]


@pytest.mark.parametrize("prefer", [{}, {"prefer": "wait=5"}])
def test_an_invalid_order_is_refused_and_not_queued(api, prefer):
    for body, code, field in NO_ORDERS:
        said = api("POST", "/orders", body, JSON | prefer)
        assert said.code == (400, code), body
        assert said.document.get("field") == field
    assert api.queued == []


def test_a_body_may_have_256_kib(api):
    fits = json.dumps(ORDER).ljust(262_144)
    assert api("POST", "/orders", fits).status == 202
    assert api("POST", "/orders", fits + " ").code == (413, "BODY_TOO_LARGE")
    in_two_bytes = '"' + "é" * 131_072 + '"'
    assert api("POST", "/orders", in_two_bytes).code == (413, "BODY_TOO_LARGE")


def test_a_body_of_another_type_is_refused(api):
    for kind in ("application/x-www-form-urlencoded", "application/json; charset=latin-1"):
        said = api("POST", "/orders", ORDER, {"content-type": kind})
        assert said.code == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert api("POST", "/orders", ORDER, {}).code == (415, "UNSUPPORTED_MEDIA_TYPE")


def test_a_body_may_come_in_base64_and_say_that_it_is_utf_8(api):
    headers = {"Content-Type": 'Application/JSON; charset="UTF-8"'}
    text = base64.b64encode(json.dumps(ORDER).encode()).decode()
    assert api("POST", "/orders", text, headers, isBase64Encoded=True).status == 202
    wrong = base64.b64encode(b'"\xff"').decode()
    said = api("POST", "/orders", wrong, headers, isBase64Encoded=True)
    assert said.code == (400, "INVALID_JSON")


def test_if_the_queue_accepts_nothing_the_caller_is_told_to_retry(api):
    api.shop.restart(ORDER_QUEUE_URL="https://sqs.eu-central-1.amazonaws.com/1/gone")
    said = api("POST", "/orders", ORDER)
    assert said.code == (503, "QUEUE_UNAVAILABLE")
    assert int(said.headers["Retry-After"]) >= 1


def test_each_order_that_the_queue_refuses_is_logged_with_its_own_error_only(api, capsys):
    api.shop.restart(ORDER_QUEUE_URL="https://sqs/none")
    for number in range(3):
        assert api("POST", "/orders", ORDER | {"orderId": f"o-{number}"}).status == 503
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    errors = [line["errors"] for line in lines if "errors" in line]
    assert [len(each) for each in errors] == [1, 1, 1]


# ---------------------------------------------------------------------- GET /orders


def test_an_order_is_shown_without_internal_attributes(api):
    place(api)
    said = api("GET", "/orders/o-1")
    assert said.status == 200
    assert said.headers["ETag"] == '"1"'
    assert said.headers["Cache-Control"] == "private, no-cache"
    times = (said.document.pop("createdAt"), said.document.pop("lastUpdatedAt"))
    assert times[0] == times[1]
    assert said.document == ORDER | {"status": "PENDING", "version": 1}


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
        assert (said.status, said.headers["ETag"]) == (200, '"2"')


def test_an_id_in_a_path_may_have_every_character_that_survives_its_decoding(api):
    order_id = """auth0|5!c\\d=e&f+g"';`^{}[]<>~@:_*()$-."""
    said = place(api, order_id)
    assert said.headers["Location"] == f"/orders/{quote(order_id, safe='')}"
    shown = api("GET", "/orders/x", pathParameters={"orderId": order_id})
    assert shown.document["orderId"] == order_id
    assert api("POST", "/orders/x/confirm", pathParameters={"orderId": order_id}).status == 200


@pytest.mark.parametrize("sent", ["{}%2D5", "{}/5", "{}?5", "{}%", "..", "{}%252F5", "%6F-1"])
def test_no_request_acts_on_another_id_than_its_path_names(api, sent):
    """An id that API Gateway may have cut off never reaches a route."""
    orders = [ORDER | {"orderId": order_id} for order_id in ("o-1", "o-1%2D5", "o-1-5", "o-1/5")]
    api.work_off(*map(json.dumps, orders))
    before = api.state()
    seen = set()
    for method, path in OPERATIONS:
        ids = {"orderId": sent.format("o-1"), "productId": sent.format(TEA)}
        named = {name: ids[name] for name in re.findall(r"{(\w+)}", path)}
        if named:
            said = api(method, path, pathParameters=named, query=QUERIES.get(method))
            assert said.code == (400, "SCHEMA_VIOLATION")
            assert said.document["field"] in named
            seen.add(path)
    assert len(seen) > 10
    assert api.state() == before


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


@pytest.mark.parametrize("broken", [{"items": {"S": "?"}}, {"_version": {"S": "1"}}])
def test_an_order_that_cannot_be_read_does_not_hide_the_others_of_a_list(api, broken):
    place(api)
    place(api, "o-2", 1)
    api.shop.edit(Table.ORDERS, "o-1", **broken)
    page = api("GET", "/orders", query={"userId": "u-7"}).document
    assert [order["orderId"] for order in page["orders"]] == ["o-2"]
    assert page["unreadable"] == ["o-1"]
    assert api("GET", "/orders/o-1").status == 500


def test_the_orders_to_ship_come_page_by_page_with_the_oldest_confirmation_first(api):
    numbers = random.Random(1).sample(range(15), 15)
    for number in numbers:
        place(api, f"o-{number}", 1)
    for number in numbers[:12]:
        api("POST", f"/orders/o-{number}/confirm")
    expected = [f"o-{number}" for number in numbers[:12]]
    for limit in (1, 5, 12, 100):
        found = to_ship(api, limit)
        assert [order for page in found for order in page] == expected
        assert all(len(page) == limit for page in found[:-1])
    first = api("GET", "/orders", query={"status": "CONFIRMED"}).document["orders"][0]
    assert first["items"] == [{"productId": TEA, "quantity": 1}]
    api("POST", f"/orders/{expected[0]}/fulfil")
    api("POST", f"/orders/{expected[1]}/cancel")
    assert to_ship(api, 100) == [expected[2:]]
    ours = api("GET", "/orders", query={"userId": "u-7", "status": "CONFIRMED", "limit": "100"})
    assert {order["orderId"] for order in ours.document["orders"]} == set(expected[2:])


def test_orders_confirmed_at_the_same_moment_are_each_on_one_page(api):
    for number in range(20):
        place(api, f"o-{number}", 1)
        api("POST", f"/orders/o-{number}/confirm")
        at = {"S": "2026-01-01T00:00:00.000000+00:00"}
        api.shop.edit(Table.ORDERS, f"o-{number}", confirmedAt=at, fulfilShard={"S": "03"})
    assert [order for page in to_ship(api, 3) for order in page] == sorted(
        f"o-{number}" for number in range(20)
    )


def test_a_fulfilled_order_that_a_stale_index_shows_is_not_to_ship(api):
    place(api)
    api("POST", "/orders/o-1/confirm")
    api("POST", "/orders/o-1/fulfil")
    api.shop.edit(Table.ORDERS, "o-1", fulfilShard={"S": "03"})
    assert to_ship(api, 100) == [[]]


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


def test_each_order_to_ship_names_its_own_missing_units(backordered):
    assert marks(backordered) == dict.fromkeys(["o-0", "o-1", "o-2"], (True, None))
    backordered("POST", "/orders/o-1/fulfil")
    short = [{"productId": "cup", "wanted": 2, "onHand": 0}]
    assert marks(backordered) == dict.fromkeys(["o-0", "o-2"], (False, short))
    backordered.shop.invoke("sweep", {"action": "sweep"})
    assert marks(backordered) == dict.fromkeys(["o-0", "o-2"], (False, short)), (
        "a fold does not change the marks"
    )
    assert backordered("POST", "/orders/o-0/fulfil").status == 200, "a hand-over is never refused"
    short[0]["onHand"] = -2
    assert marks(backordered) == {"o-2": (False, short)}
    receipt = {"adjustmentId": "r", "delta": 4, "reason": "RECEIPT"}
    assert backordered("POST", "/products/cup/adjustments", receipt).status == 200
    assert marks(backordered) == {"o-2": (True, None)}


def test_only_open_units_of_an_order_have_to_be_on_hand(backordered):
    parcel = {"stepId": "p-1", "items": lines(cup=2)}
    backordered("POST", "/orders/o-0/fulfil", parcel)
    backordered("POST", "/orders/o-1/cancel", parcel | {"items": lines(cup=1)})
    assert marks(backordered) == {
        "o-0": (True, None),
        "o-1": (False, [{"productId": "cup", "wanted": 1, "onHand": 0}]),
        "o-2": (False, [{"productId": "cup", "wanted": 2, "onHand": 0}]),
    }
    backordered("POST", "/orders/o-2/fulfil")
    assert numbers(backordered, "cup")[0] == -2
    assert marks(backordered)["o-0"] == (True, None)


def test_an_order_for_a_delisted_product_misses_all_its_units(backordered):
    created_at = backordered("GET", "/stock/cup").document["createdAt"]
    assert backordered("DELETE", "/products/cup", query={"createdAt": created_at}).status == 200
    missing = (False, [{"productId": "cup", "wanted": 2, "onHand": 0}])
    assert set(map(str, marks(backordered).values())) == {str(missing)}
    backordered("POST", "/products", {"productId": "cup", "openingStock": 50})
    assert set(map(str, marks(backordered).values())) == {str(missing)}, (
        "the other products are in stock"
    )


@pytest.mark.parametrize("key", [("Products", "cup"), ("Allotments", "out/0")])
def test_an_order_whose_stock_cannot_be_read_is_listed_without_a_mark(backordered, key):
    sold(backordered, "o-tea")
    table, name = key
    backordered("POST", "/orders/o-1/fulfil")
    broken = {"units": {"S": "?"}} if name == "out/0" else {"status": {"S": "?"}}
    backordered.shop.edit(Table(table), name, **broken)
    unknown = dict.fromkeys(["o-0", "o-2"], (None, None))
    assert marks(backordered) == unknown | {
        "o-tea": (None if name == "out/0" else True, None),
    }


def test_a_page_of_orders_to_ship_ends_at_300_products(api, monkeypatch):
    for number in range(9):
        api("POST", "/products", {"productId": f"p-{number}", "openingStock": 9})
    for number in range(4):
        names = [f"p-{each}" for each in range(2 * number, 2 * number + 3)]
        sold(api, f"o-{number}", items=lines(**dict.fromkeys(names, 1)))
    assert orders._MOST_PRODUCTS == 300
    for most, expected in (
        (300, [["o-0", "o-1", "o-2", "o-3"]]),
        (9, [["o-0", "o-1", "o-2", "o-3"]]),
        (7, [["o-0", "o-1", "o-2"], ["o-3"]]),
        (5, [["o-0", "o-1"], ["o-2", "o-3"]]),
        (2, [["o-0"], ["o-1"], ["o-2"], ["o-3"]]),
    ):
        monkeypatch.setattr(orders, "_MOST_PRODUCTS", most)
        assert to_ship(api, 100) == expected
        (own,) = pages(api, "/orders", userId="u-7")
        assert len(own["orders"]) == 4, "other lists read no products"
        assert not any("shippable" in order for order in own["orders"])


def test_a_page_of_orders_to_ship_has_room_for_shortages(backordered, monkeypatch):
    backordered("POST", "/orders/o-0/fulfil")
    (whole,) = pages(backordered, "/orders", status="CONFIRMED")
    size = sum(len(json.dumps(order)) for order in whole["orders"])
    monkeypatch.setattr(requests, "_MAX_LISTED_BYTES", size)
    assert to_ship(backordered, 100) == [["o-1", "o-2"]]
    monkeypatch.setattr(requests, "_MAX_LISTED_BYTES", size - 1)
    assert to_ship(backordered, 100) == [["o-1"], ["o-2"]]


def test_a_page_of_orders_to_ship_reads_rows_and_outbound_pages_at_once(api, monkeypatch):
    for number in range(3):
        sold(api, f"o-{number}")
    api.shop.calls.clear()
    assert set(marks(api).values()) == {(True, None)}
    assert Counter(api.shop.calls) == {"Query": 16, "BatchGetItem": 2}


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
    api("PATCH", f"/products/{TEA}", {"lowStockThreshold": 60})
    for path, query in (
        ("/orders", {"userId": "u-7", "status": "CONFIRMED", "limit": "2"}),
        ("/stock", {"status": "LOW_STOCK", "limit": "2"}),
        (f"/products/{TEA}/history", {}),
    ):
        found = pages(api, path, **query)
        entries = [
            sum(map(len, (v for v in page.values() if isinstance(v, list)))) for page in found
        ]
        assert all(entries[:-1]) is (seconds == 60), (path, entries)
        assert sum(entries) == {"/orders": 1, "/stock": 1}.get(path, 3)


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


def test_a_wrong_request_for_a_list_says_what_to_fix(api):
    for query, field in (
        ({}, "userId"),
        ({"limit": "5"}, "userId"),
        ({"status": "PENDING"}, "status"),
        ({"userId": "u 7"}, "userId"),
        ({"userId": ""}, "userId"),
        ({"userId": "u-7", "limit": "0"}, "limit"),
        ({"userId": "u-7", "limit": "101"}, "limit"),
        ({"userId": "u-7", "limit": "1,2"}, "limit"),
        ({"userId": "u-7", "limit": "٣"}, "limit"),
        ({"userID": "u-7"}, "userID"),
    ):
        said = api("GET", "/orders", query=query)
        assert said.code == (400, "SCHEMA_VIOLATION")
        assert said.document["field"] == field


# ---------------------------------------------------------------------- an order's life


def test_an_order_is_taken_through_its_life(api):
    place(api)
    said = api("POST", "/orders/o-1/confirm")
    assert said.status == 200
    assert said.document == {
        "orderId": "o-1",
        "result": "APPLIED",
        "status": "CONFIRMED",
        "version": 2,
        "stockReturned": {},
    }
    again = api("POST", "/orders/o-1/confirm", {}).document
    assert (again["result"], again["status"]) == ("REPLAYED", "CONFIRMED")
    assert api("POST", "/orders/o-1/fulfil", "").document["status"] == "FULFILLED"
    back = {"stepId": "rt-1", "items": [{"productId": TEA, "quantity": 1}], "restock": True}
    said = api("POST", "/orders/o-1/returns", back)
    assert (said.status, said.document["stockReturned"], api.shop.stock(TEA)) == (200, {TEA: 1}, 59)
    shown = api("GET", "/orders/o-1").document
    (line,) = shown["items"]
    assert (line["fulfilled"], line["returned"]) == (2, 1)
    assert [step["action"] for step in shown["steps"]] == ["confirm", "fulfil", "return"]
    other = back | {"restock": False}
    assert api("POST", "/orders/o-1/returns", other).code == (409, "STEP_ID_REUSED")
    assert api("POST", "/orders/o-1/cancel").code == (409, "ORDER_FULFILLED")


def test_a_step_names_the_caller_and_only_operators_see_it(customers):
    place(customers, claims=OPERATOR)
    customers("POST", "/orders/o-1/confirm", claims=OPERATOR | {"sub": "ann"})
    part = {"stepId": "c-1", "items": [{"productId": TEA, "quantity": 1}], "reason": "broken"}
    said = customers("POST", "/orders/o-1/cancel", part, claims=OPERATOR | {"sub": "ann"})
    assert (said.document["status"], said.document["stockReturned"]) == ("CONFIRMED", {TEA: 1})
    named = customers("POST", "/orders/o-1/fulfil", {"actor": "bob"}, claims=OPERATOR)
    assert (named.code, named.document["field"]) == ((400, "SCHEMA_VIOLATION"), "actor")
    step = customers("GET", "/orders/o-1", claims=OPERATOR).document["steps"][-1]
    assert (step["actor"], step["reason"]) == ("ann", "broken")
    step = customers("GET", "/orders/o-1", claims={"sub": "u-7"}).document["steps"][-1]
    assert (step["stepId"], "actor" in step, "reason" in step) == ("c-1", False, False)
    receipt = {"adjustmentId": "r-9", "delta": 3, "reason": "RECEIPT", "reference": "DN 7"}
    path = f"/products/{TEA}/adjustments"
    customers("POST", path, receipt, claims=OPERATOR | {"sub": "ann"})
    rows = customers("GET", path, claims=OPERATOR).document["adjustments"]
    (row,) = (row for row in rows if row["adjustmentId"] == "r-9")
    assert (row["actor"], row["reference"]) == ("ann", "DN 7")


def test_a_refused_decrement_is_listed_but_not_part_of_the_history(api):
    take = {"action": "decrement", "adjustmentId": "d", "productId": TEA, "quantity": 999}
    refused = api.shop.invoke("adjust_stock", take)
    listed = api("GET", f"/products/{TEA}/adjustments").document["adjustments"]
    (shown,) = (one for one in listed if one["adjustmentId"] == "d")
    assert shown["rejected"] == {"delta": -999, "reason": refused["code"]}
    assert (shown["delta"], shown["shortages"]) == (0, refused["shortages"])
    history = api("GET", f"/products/{TEA}/history").document["entries"]
    assert [one["adjustmentId"] for one in history] == [listed[-1]["adjustmentId"]]


def test_a_history_does_not_begin_with_empty_pages_after_many_refused_decrements(api, monkeypatch):
    monkeypatch.setattr("inventory_orders.api.products.MAX_LISTED", 1)
    take = {"action": "decrement", "productId": TEA, "quantity": 999}
    for number in range(3):
        api.shop.invoke("adjust_stock", take | {"adjustmentId": f"d{number}"})
    (opening,) = api("GET", f"/products/{TEA}/history").document["entries"]
    assert opening["reason"] == "OPENING"


def test_a_cancelled_order_returns_its_stock(api):
    place(api)
    said = api("POST", "/orders/o-1/cancel")
    assert (said.document["status"], said.document["stockReturned"]) == ("CANCELLED", {TEA: 2})
    assert api.shop.stock(TEA) == 60
    assert api("POST", "/orders/o-1/fulfil").code == (409, "ORDER_CANCELLED")


LOST_UNIT = {"stepId": "l-1", "items": [{"productId": TEA, "quantity": 1}], "restock": False}


def numbers(api, product_id=TEA):
    """Return the units on hand, committed and available."""
    found = api("GET", f"/stock/{product_id}").document
    return found["onHand"], found["committed"], found["available"]


def test_a_lost_unit_is_neither_on_hand_nor_back_on_sale(api):
    sold(api, "o-1", quantity=3)
    assert numbers(api) == (60, 3, 57)
    said = api("POST", "/orders/o-1/cancel", LOST_UNIT).document
    assert (said["result"], said["status"], said["stockReturned"]) == ("APPLIED", "CONFIRMED", {})
    assert numbers(api) == (59, 2, 57)
    shown = api("GET", "/orders/o-1").document
    assert (shown["items"][0]["cancelled"], shown["steps"][-1]["restock"]) == (1, False)
    again = api("POST", "/orders/o-1/cancel", LOST_UNIT)
    assert (again.document["result"], numbers(api)) == ("REPLAYED", (59, 2, 57))
    api("POST", "/orders/o-1/fulfil")
    assert numbers(api) == (57, 0, 57)
    back = BACK | {"items": [{"productId": TEA, "quantity": 3}]}
    assert api("POST", "/orders/o-1/returns", back).code == (409, "NOT_DELIVERED")


def test_restock_true_is_the_default_and_false_is_another_command(api):
    sold(api, "o-1", quantity=3)
    plain = {name: value for name, value in LOST_UNIT.items() if name != "restock"}
    said = api("POST", "/orders/o-1/cancel", LOST_UNIT | {"restock": True}).document
    assert (said["result"], said["stockReturned"]) == ("APPLIED", {TEA: 1})
    assert api("POST", "/orders/o-1/cancel", plain).document["result"] == "REPLAYED"
    assert api("POST", "/orders/o-1/cancel", LOST_UNIT).code == (409, "STEP_ID_REUSED")
    assert "restock" not in api("GET", "/orders/o-1").document["steps"][-1]
    assert numbers(api) == (60, 2, 58)


def test_lost_units_are_named_and_others_are_not_lost(api):
    sold(api, "o-1")
    said = api("POST", "/orders/o-1/cancel", {"restock": False})
    assert said.code == (400, "SCHEMA_VIOLATION")
    assert said.document["field"] == "items"
    assert said.document["detail"] == "items: is missing in the body; restock needs it"
    assert api("POST", "/orders/o-1/fulfil", LOST_UNIT).document["field"] == "restock"
    assert numbers(api) == (60, 2, 58)


def test_a_command_without_a_body_accepts_none(api):
    place(api)
    for body in ({"why": "x"}, [], "null", "1"):
        assert api("POST", "/orders/o-1/confirm", body).code == (400, "SCHEMA_VIOLATION")
    assert api("POST", "/orders/o-1/confirm", "{").code == (400, "INVALID_JSON")
    assert api("GET", "/orders/o-1").document["status"] == "PENDING"


def test_an_order_for_a_product_being_counted_cannot_be_cancelled_yet(api):
    place(api)
    acquire = {"action": "acquire", "productId": TEA, "seconds": 600, "outliveInvocation": True}
    api.shop.invoke("count_stock", acquire)
    said = api("POST", "/orders/o-1/cancel")
    assert said.code == (503, "LEASED")
    assert said.document["detail"] == "a product is being counted; send the same request again"
    assert 590 <= int(said.headers["Retry-After"]) <= 600


# ---------------------------------------------------------------------- products


def test_a_product_is_shown_as_to_customers(api):
    said = api("GET", f"/products/{TEA}")
    assert said.status == 200
    assert said.document["availability"] == "IN_STOCK"
    assert said.document["units"] == 60
    assert set(said.document) == {"productId", "availability", "name", "price", "units"}
    again = api("GET", f"/products/{TEA}", headers={"if-none-match": said.headers["ETag"]})
    assert again.status == 304
    place(api)
    again = api("GET", f"/products/{TEA}", headers={"if-none-match": said.headers["ETag"]})
    assert (again.status, again.document["units"]) == (200, 58)
    api.shop.restart(SHOW_STOCK="availability")
    assert "units" not in api("GET", f"/products/{TEA}").document


def test_shown_stock_includes_units_in_lanes(api):
    created = {"productId": "cup", "openingStock": 500}
    assert api("POST", "/products", created).status == 201
    lend(api.shop.store, "cup", 60, {1: 20})
    shown = api("GET", "/products/cup")
    assert (shown.document["availability"], shown.document["units"]) == ("IN_STOCK", 500)
    found = api("GET", "/stock/cup").document
    assert (found["available"], found["stockCount"], found["isExact"]) == (500, 420, True)
    assert found["inLanes"] == {"0": 60, "1": 20}
    listed = api("GET", "/stock", query={"inLanes": "true", "limit": "100"}).document
    assert [product["productId"] for product in listed["products"]] == ["cup"]
    # Sales from lanes do not change the product's row.
    del api.shop.items(Table.ALLOTMENTS)[str(PageKey.of(1, "cup")),]
    again = api("GET", "/products/cup", headers={"if-none-match": shown.headers["ETag"]})
    assert (again.status, again.document["units"]) == (200, 480)


def test_all_stock_is_listed_page_by_page(api):
    listed = [page["products"] for page in pages(api, "/stock", limit="7")]
    assert max(map(len, listed)) <= 7
    found = [product["productId"] for page in listed for product in page]
    assert sorted(found) == sorted(product.product_id for product in catalogue())
    api("PATCH", f"/products/{TEA}", {"lowStockThreshold": 60})
    sold(api, "o-1", quantity=5)
    parcel = {"stepId": "p-1", "items": [{"productId": TEA, "quantity": 2}]}
    api("POST", "/orders/o-1/fulfil", parcel)
    low = api("GET", "/stock", query={"status": "LOW_STOCK", "limit": "100"}).document
    assert [product["productId"] for product in low["products"]] == [TEA]
    (tea,) = low["products"]
    assert (tea["onHand"], tea["committed"], tea["available"]) == (58, 3, 55)
    for query in ({"status": "FEW"}, {"inLanes": "no"}, {"cursor": "x"}):
        assert api("GET", "/stock", query=query).status == 400


def test_operators_list_change_adjust_and_delist_a_product(api):
    created = {"productId": "cup", "openingStock": 5, "name": "Cup"}
    first = api("POST", "/products", created).document
    assert (first["result"], first["stockCount"]) == ("APPLIED", 5)
    again = api("POST", "/products", created)
    assert again.code == (409, "PRODUCT_EXISTS")
    assert again.document["product"]["createdAt"] == first["createdAt"]
    change = {"lowStockThreshold": 5, "price": 400, "name": "Mug"}
    changed = api("PATCH", "/products/cup", change).document
    assert (changed["result"], changed["status"]) == ("APPLIED", "LOW_STOCK")
    assert (changed["price"], changed["name"]) == (400, "Mug")
    assert api("PATCH", "/products/cup", change).document["result"] == "REPLAYED"
    receipt = {"adjustmentId": "r-1", "delta": 40, "reason": "RECEIPT"}
    for result in ("APPLIED", "REPLAYED"):
        booked = api("POST", "/products/cup/adjustments", receipt).document
        assert (booked["result"], booked["stockCount"]) == (result, 45)
    other = api("POST", "/products/cup/adjustments", receipt | {"delta": 1})
    assert other.code == (409, "ADJUSTMENT_ID_REUSED")
    listed = api("GET", "/products/cup/adjustments", query={"limit": "1"}).document
    (opening,) = listed["adjustments"]
    assert (opening["reason"], opening["delta"]) == ("OPENING", 5)
    more = api("GET", "/products/cup/adjustments", query={"cursor": listed["next"]}).document
    assert [one["adjustmentId"] for one in more["adjustments"]] == ["r-1"]
    assert "next" not in more
    assert api("POST", "/products/cup/discontinue").document["status"] == "DISCONTINUED"
    assert api("POST", "/products/cup/list-again").document["status"] == "ACTIVE"
    assert api("POST", "/products/cup/list-again").document["result"] == "REPLAYED"
    query = {"createdAt": first["createdAt"]}
    delisted = api("DELETE", "/products/cup", query=query).document
    assert delisted["result"] == "APPLIED"
    assert "open orders keep its units" in delisted["message"]
    assert delisted["committed"] == 0
    assert api("DELETE", "/products/cup", query=query).document["result"] == "STALE"
    assert api("GET", "/stock/cup").code == (404, "UNKNOWN_PRODUCT")


def test_discontinuing_and_delisting_say_how_many_units_open_orders_hold(api):
    created = api("POST", "/products", {"productId": "cup", "openingStock": 500}).document
    lend(api.shop.store, "cup", 60, {1: 20})
    sold(api, "o-1", product_id="cup", quantity=7)
    parcel = {"stepId": "p-1", "items": lines(cup=3)}
    assert api("POST", "/orders/o-1/fulfil", parcel).status == 200
    for result in ("APPLIED", "REPLAYED"):
        said = api("POST", "/products/cup/discontinue").document
        assert (said["result"], said["committed"]) == (result, 4)
    query = {"createdAt": created["createdAt"]}
    assert api("DELETE", "/products/cup", query=query).document["committed"] == 4
    again = api("DELETE", "/products/cup", query=query).document
    assert (again["result"], "committed" in again) == ("STALE", False)
    newer = api("POST", "/products", {"productId": "cup", "openingStock": 1}).document
    assert "committed" not in api("DELETE", "/products/cup", query=query).document
    query = {"createdAt": newer["createdAt"]}
    assert api("DELETE", "/products/cup", query=query).document["committed"] == 0


def test_a_product_with_unreadable_units_can_be_delisted(api):
    created = api("POST", "/products", {"productId": "cup", "openingStock": 5}).document
    sold(api, "o-1", product_id="cup")
    api("POST", "/orders/o-1/fulfil")
    (page,) = [key for (key,) in api.shop.items(Table.ALLOTMENTS) if key.startswith("out/")]
    sound = api.shop.item(Table.ALLOTMENTS, page)["units"]
    api.shop.edit(Table.ALLOTMENTS, page, units={"S": "?"})
    said = api("POST", "/products/cup/discontinue").document
    assert (said["status"], "committed" in said) == ("DISCONTINUED", False)
    api.shop.edit(Table.ALLOTMENTS, page, units=sound)
    assert api("POST", "/products/cup/discontinue").document["committed"] == 0
    throttled = ServiceError("ThrottlingException", "slow down")
    api.shop.refuse("", throttled, lambda request: "out/0" in json.dumps(request))
    said = api("POST", "/products/cup/discontinue").document
    assert (said["status"], "committed" in said) == ("DISCONTINUED", False)
    query = {"createdAt": created["createdAt"]}
    assert api("DELETE", "/products/cup", query=query).document["result"] == "APPLIED"


def test_the_history_of_a_product_adds_up_to_its_stock(api, monkeypatch):
    for number in range(4):
        place(api, f"o-{number}")
    api("POST", "/orders/o-1/cancel")
    api("POST", "/orders/o-2/confirm")
    api("POST", "/orders/o-2/fulfil")
    api("POST", "/orders/o-2/returns", BACK)
    place(api, "o-9", items=[{"productId": TEA, "quantity": 10_000}])
    for row in (
        {"S": "?"},
        {"L": [{"M": encode({"productId": TEA, "quantity": "2"})}]},
    ):
        api.shop.edit(Table.ORDERS, f"bad-{(row.keys() & {'L'} and 2) or 1}", items=row)
    api(
        "POST", f"/products/{TEA}/adjustments", {"adjustmentId": "r", "delta": 4, "reason": "FOUND"}
    )
    path = f"/products/{TEA}/history"
    (whole,) = pages(api, path)
    assert sum(entry["delta"] for entry in whole["entries"]) == api.shop.stock(TEA)
    assert sorted(whole["unreadable"]) == ["bad-1", "bad-2"]
    actions = Counter(entry["action"] for entry in whole["entries"])
    assert actions == {"adjust": 2, "place": 4, "cancel": 1, "return": 1}
    returned = next(entry for entry in whole["entries"] if entry["action"] == "return")
    assert (returned["orderId"], returned["stepId"], returned["delta"]) == ("o-2", "rt-1", 1)

    monkeypatch.setattr(products, "MAX_LISTED", 1)
    scan = api.shop.store.scan
    monkeypatch.setattr(Store, "scan", lambda _, *given, **more: scan(*given, Limit=2, **more))
    parts = pages(api, path)
    assert len(parts) > 3
    seen = [entry for part in parts for entry in part["entries"]]
    assert sorted(map(str, seen)) == sorted(map(str, whole["entries"]))


def test_a_history_continues_with_orders_after_its_last_adjustment(api, monkeypatch):
    for number in range(3):
        place(api, f"o-{number}")
    scan = api.shop.store.scan
    monkeypatch.setattr(Store, "scan", lambda _, *given, **more: scan(*given, Limit=1, **more))
    (page,) = pages(api, "/products/tea-gyokuro/history")
    assert [entry["action"] for entry in page["entries"]] == ["adjust"]


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


def test_a_count_over_http_continues_with_the_returned_lease(api):
    sold(api, "o-1", quantity=5)
    granted = api("POST", "/counts", ACQUIRE).document
    assert granted["result"] == "ACQUIRED"
    assert (granted["onHand"], granted["committed"], granted["available"]) == (60, 5, 55)
    parcel = {"stepId": "p-1", "items": [{"productId": TEA, "quantity": 2}]}
    assert api("POST", "/orders/o-1/fulfil", parcel).status == 200
    commit = {"action": "commit", "lease": granted["lease"], "counted": 4, "adjustmentId": "c-1"}
    refused = api("POST", "/counts", commit)
    assert refused.code == (409, "BELOW_FLOOR")
    assert "open orders hold 1 more units" in refused.document["detail"]
    done = api("POST", "/counts", commit | {"counted": 50}).document
    assert done["result"] == "COMMITTED"
    assert (done["counted"], done["delta"], done["handedOverSince"]) == (50, -10, 2)
    assert numbers(api) == (48, 3, 45)


ACQUIRE = {"action": "acquire", "productId": TEA, "seconds": 60}


def test_a_lease_over_http_lasts_as_long_as_asked(api):
    granted = api("POST", "/counts", ACQUIRE).document
    assert (granted["grantedSeconds"], "message" in granted) == (60, False)
    api.shop.clock.sleep(45)
    renew = {"action": "renew", "lease": granted["lease"], "seconds": 600}
    granted = api("POST", "/counts", renew).document
    assert (granted["grantedSeconds"], "message" in granted) == (600, False)
    api.shop.clock.sleep(590)
    release = {"action": "release", "lease": granted["lease"]}
    assert api("POST", "/counts", release).document["result"] == "RELEASED"
    short = api("POST", "/counts", ACQUIRE | {"outliveInvocation": False}).document
    assert short["grantedSeconds"] <= 5
    assert "instead of 60 s" in short["message"]


def test_a_longer_lease_is_reported_immediately(api):
    acquire = {"action": "acquire", "productId": TEA, "seconds": 20, "outliveInvocation": True}
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


def test_a_limit_that_the_backorders_exceed_and_an_older_price_are_refused(api):
    api("POST", "/products", {"productId": "cup", "openingStock": 0, "backorderLimit": 5})
    api("POST", "/products/cup/adjustments", {"adjustmentId": "l", "delta": -3, "reason": "LOSS"})
    assert api("PATCH", "/products/cup", {"backorderLimit": 2}).code == (409, "BELOW_FLOOR")
    assert api("PATCH", "/products/cup", {"backorderLimit": 3}).document["status"] == "OUT_OF_STOCK"
    late = {"S": "2999-01-01T00:00:00.000000+00:00"}
    api.shop.edit(Table.PRODUCTS, "cup", detailsEventTime=late)
    assert api("PATCH", "/products/cup", {"price": 2}).code == (409, "NEWER_EVENT_APPLIED")
    assert api("PATCH", "/products/cup", {"backorderLimit": 4}).status == 200


def test_customers_may_not_do_what_operators_do(customers):
    commands = [("POST", f"/orders/o-1/{name}", body) for name, body in COMMANDS.items()]
    for method, path, body in (*OPERATORS_REQUESTS, *commands):
        said = customers(method, path, body, query=QUERIES.get(method), claims={"sub": "u-7"})
        assert said.code == (403, "OPERATORS_ONLY")
    of_product = (f"/products/{TEA}/adjustments", f"/products/{TEA}/history")
    for path in ("/stock", f"/stock/{TEA}", *of_product):
        assert customers("GET", path, claims={"sub": "u-7"}).code == (403, "OPERATORS_ONLY")


def test_a_hundred_products_are_read_in_one_request(api, monkeypatch):
    ids = [TEA, "no-such-tea", *(f"p{n}" for n in range(97))]
    store, reads = api.shop.process("api").store, []
    read = store.read

    def counted(keys, **more):
        reads.append(len(keys))
        return read(keys, **more)

    monkeypatch.setattr(store, "read", counted)
    said = api("GET", "/products", query={"ids": ",".join([*ids, TEA])})
    assert reads == [99], "a product that is named twice is read once"
    assert [shown["productId"] for shown in said.document["products"]] == [TEA]
    assert said.document["unknown"] == ids[1:]


@pytest.mark.parametrize(("claims", "per_row"), [({"sub": "u-7"}, 0.5), (None, 1.0)])
def test_one_request_for_products_reads_at_most_300_rows(customers, claims, per_row):
    """Customers' reads are eventually consistent, which costs half as much."""
    ids, places = [f"p{number}" for number in range(100)], [f"l{number}" for number in range(40)]
    shop = customers.shop
    shop.put(*(product(each, 9, places=frozenset(places)) for each in ids))
    shop.put(*(product(f"{each}#{place}", 9) for each in ids[:6] for place in places))
    query = {"ids": ",".join(ids)}
    consumed = shop.aws.dynamodb.tables["Products"].consumed
    before = consumed.reads
    document = customers("GET", "/products", query=query, claims=claims).document
    assert consumed.reads - before == 300 * per_row
    shown = [(each["productId"], each["units"]) for each in document["products"]]
    assert shown == [(each, 9) for each in ids[:5]]
    assert [len(each["elsewhere"]) for each in document["products"]] == [40] * 5
    assert (document["unknown"], document["unreadable"]) == ([], [])
    assert document["remaining"] == ids[5:]
    lend(shop.store, "p0", 5, {1: 2})
    consumed = shop.aws.dynamodb.tables["Allotments"].consumed
    before = consumed.reads
    one = customers("GET", "/products/p0", claims=claims).document
    assert (one["units"], consumed.reads - before) == (9, 2 * per_row)


def test_wrong_requests_for_products_are_refused(api):
    for ids in ("", ",", "a,,b", "a b", ",".join(f"p{n}" for n in range(101))):
        said = api("GET", "/products", query={"ids": ids})
        assert said.code == (400, "SCHEMA_VIOLATION")
    assert api("GET", "/products").code == (400, "SCHEMA_VIOLATION")


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
    ],
)
def test_availability_follows_from_the_row_alone(stock, more, shown):
    assert availability(product("p", stock, **more)) == shown


def test_a_product_that_cannot_be_read_is_an_error_of_the_service(api):
    api.shop.edit(Table.PRODUCTS, "p")
    assert api("GET", "/products/p").code == (500, "CORRUPT_PRODUCT")
    said = api("GET", "/products", query={"ids": f"p,{TEA},q"}).document
    assert [shown["productId"] for shown in said["products"]] == [TEA], (
        "the other product is still listed"
    )
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
    lend(located.shop.store, f"{TEA}#lyon", 60, {1: 20})
    located.shop.calls.clear()
    first = located("GET", path)
    assert Counter(located.shop.calls) == {"BatchGetItem": 2}, "units elsewhere are not counted"
    assert (first.document["availability"], first.document["units"]) == ("IN_STOCK", 60)
    assert first.document["elsewhere"] == {"berlin": "IN_STOCK", "lyon": "IN_STOCK"}
    (listed,) = located("GET", "/products", query={"ids": TEA}).document["products"]
    assert listed == first.document
    known = {"if-none-match": first.headers["ETag"]}
    assert located("GET", path, headers=known).status == 304
    place(located, quantity=5, locations=["berlin"])
    again = located("GET", path, headers=known)
    assert (again.status, again.document["elsewhere"]) == (200, {"lyon": "IN_STOCK"})
    located.shop.restart(LOCATIONS=",lyon")
    assert located("GET", path).document["units"] == 300, "with the units in lanes"


def test_shown_units_are_those_that_one_order_can_take(located):
    located.shop.restart(LOCATIONS=",lyon")
    shown = located("GET", f"/products/{TEA}").document
    assert (shown["units"], shown["elsewhere"]) == (300, {"berlin": "IN_STOCK"})
    assert place(located, "o-1", shown["units"] + 1).status == 409
    assert place(located, "o-2", shown["units"]).status == 201
    assert located("GET", f"/products/{TEA}").document["units"] == 60


def test_a_product_that_the_setting_leaves_out_can_be_bought_by_naming_its_location(located):
    located.shop.restart(LOCATIONS="berlin,lyon")
    shown = located("GET", "/products/cup").document
    assert (shown["availability"], shown["units"]) == ("OUT", 0)
    assert shown["elsewhere"] == {"": "IN_STOCK"}
    assert place(located, product_id="cup").status == 409
    assert place(located, "o-2", product_id="cup", locations=[""]).status == 201
    assert located("POST", "/products/cup/discontinue").status == 200
    (shown,) = located("GET", "/products", query={"ids": "cup"}).document["products"]
    assert (shown["availability"], "elsewhere" in shown) == ("OUT", False)


def test_a_products_availability_is_the_best_of_the_locations_in_the_setting(located):
    located.shop.restart(LOCATIONS=",berlin,lyon")

    def shown():
        document = located("GET", f"/products/{TEA}").document
        return document["availability"], document["units"]

    def sell(location_id, quantity):
        order_id = f"o-{location_id}-{quantity}"
        assert place(located, order_id, quantity, locations=[location_id]).status == 201

    limit = {"backorderLimit": 9}
    located("PATCH", f"/products/{TEA}", limit | at("berlin"))
    sell("berlin", 12)
    sell("", 60)
    assert shown() == ("IN_STOCK", 300), "backorders at one location take nothing from another"
    located("PATCH", f"/products/{TEA}", {"lowStockThreshold": 300, **at("lyon")})
    assert shown() == ("LOW", 300)
    sell("lyon", 300)
    assert shown() == ("BACKORDER", 0)
    sell("berlin", 2)
    assert shown() == ("OUT", 0)
    receipt = {"adjustmentId": "r", "delta": 500, "reason": "RECEIPT"}
    unnamed = located("POST", f"/products/{TEA}/adjustments", receipt)
    assert unnamed.code == (409, "LOCATION_REQUIRED")
    assert f"{TEA} is also at berlin, lyon; name" in unnamed.document["detail"]
    booked = located("POST", f"/products/{TEA}/adjustments", receipt | {"locationId": ""})
    assert booked.document["locationId"] == ""
    assert shown() == ("IN_STOCK", 500)
    located("POST", f"/products/{TEA}/discontinue")
    assert shown() == ("DISCONTINUED", 0)
    located("POST", f"/products/{TEA}/list-again", at("berlin"))
    assert shown() == ("OUT", 0), "a discontinued product cannot be ordered"


def test_a_product_without_other_locations_costs_no_extra_request(located):
    for product_id, requests_sent in (("cup", 1), (TEA, 2)):
        located.shop.calls.clear()
        assert located("GET", f"/products/{product_id}").status == 200
        assert Counter(located.shop.calls) == {"BatchGetItem": requests_sent}
        located.shop.calls.clear()
        assert located("GET", f"/stock/{product_id}").status == 200
        assert Counter(located.shop.calls) == {"TransactGetItems": requests_sent}
    located.shop.calls.clear()
    query = {"ids": ",".join(product.product_id for product in catalogue())}
    assert located("GET", "/products", query=query).status == 200
    assert Counter(located.shop.calls) == {"BatchGetItem": 2}


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
    receipt = {"productId": TEA, "adjustmentId": "r", "delta": 1, "reason": "RECEIPT"}
    direct = located.shop.invoke("adjust_stock", receipt | at("lyon"))
    assert direct["message"].startswith(f"product {TEA} at lyon breaks the contract")
    assert located("GET", f"/stock/{TEA}", query=at("berlin")).document["onHand"] == 5
    for query, unreadable in (
        ({}, [f"{TEA} at lyon"]),
        (at("lyon"), [f"{TEA} at lyon"]),
        (at(""), []),
    ):
        listed = located("GET", "/stock", query=query | {"limit": "100"}).document
        assert listed["unreadable"] == unreadable
    located.shop.edit(Table.PRODUCTS, TEA, status={"S": "?"})
    assert located("GET", "/products", query={"ids": TEA}).document["unreadable"] == [TEA]


def test_operators_see_the_stock_of_all_locations_and_of_each(located):
    located(
        "PATCH", f"/products/{TEA}", {"lowStockThreshold": 5, "backorderLimit": 2, **at("berlin")}
    )
    lend(located.shop.store, TEA, 10, {1: 20})
    lend(located.shop.store, f"{TEA}#lyon", 60, {1: 4, 2: 6})
    sold(located, "o-1", quantity=4, locations=["berlin"])
    parcel = {"stepId": "p-1", "items": lines(**{TEA: 1})}
    assert located("POST", "/orders/o-1/fulfil", parcel).status == 200
    whole = located("GET", f"/stock/{TEA}").document
    own, berlin, lyon = whole.pop("places")
    name = {name: own[name] for name in ("productId", "name", "price")}
    assert whole == name | {
        "onHand": 364,
        "committed": 3,
        "available": 361,
        "leftToSell": 361,
        "leftByDefault": 60,
        "inLanes": {"0": 70, "1": 24, "2": 6},
        "isExact": True,
    }
    assert [one.get("locationId") for one in (own, berlin, lyon)] == [None, "berlin", "lyon"]
    assert [one["available"] for one in (own, berlin, lyon)] == [60, 1, 300]
    assert (berlin["onHand"], berlin["committed"], berlin["status"]) == (4, 3, "LOW_STOCK")
    assert (berlin["lowStockThreshold"], berlin["backorderLimit"]) == (5, 2)
    assert lyon["inLanes"] == {"0": 60, "1": 4, "2": 6}
    for alone in (own, berlin, lyon):
        query = at(alone.get("locationId", ""))
        assert located("GET", f"/stock/{TEA}", query=query).document == alone
    cup = located("GET", "/stock/cup").document
    assert (cup["available"], "places" in cup, "locationId" in cup) == (7, False, False)
    assert located("GET", "/stock/cup", query=at("")).document == cup
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


def test_all_stock_is_listed_at_each_location(located):
    def listed(**query):
        found = [page["products"] for page in pages(located, "/stock", limit="100", **query)]
        return [one for page in found for one in page]

    teas = [one for one in listed() if one["productId"] == TEA]
    assert sorted((one.get("locationId", ""), one["available"]) for one in teas) == [
        *(("", 60), ("berlin", 5), ("lyon", 300)),
    ]
    assert not any("places" in one for one in teas)
    (berlin,) = listed(locationId="berlin")
    assert (berlin["productId"], berlin["locationId"], berlin["onHand"]) == (TEA, "berlin", 5)
    own = listed(locationId="")
    assert len(own) == len(catalogue()) + 1
    assert not any("locationId" in one for one in own)
    assert listed(locationId="nowhere") == []
    for path in ("/stock", f"/stock/{TEA}", f"/products/{TEA}/history", "/orders"):
        said = located("GET", path, query=at("a b"))
        assert (said.code, said.document["field"]) == ((400, "SCHEMA_VIOLATION"), "locationId")


def test_adjustments_and_history_are_those_of_one_location(located):
    path = f"/products/{TEA}"
    booked = {"adjustmentId": "r", "delta": 3, "reason": "RECEIPT", **at("berlin")}
    assert located("POST", f"{path}/adjustments", booked).status == 200
    out = {"transferId": "t", "from": "berlin", "to": "", "quantity": 2}
    assert located("POST", f"{path}/transfers", out).document["from"]["stockCount"] == 6
    place(located, "o-1", 2, locations=["berlin", ""])
    place(located, "o-2", 1, locations=["berlin", ""])
    place(located, "o-3", 7, locations=["berlin", ""])
    located("POST", "/orders/o-1/cancel", {"stepId": "c", "items": lines(**{TEA: 1})})

    def deltas(name, location_id):
        (page,) = pages(located, f"{path}/{name}", locationId=location_id)
        return sorted(
            one["delta"] for one in page["entries" if name == "history" else "adjustments"]
        )

    assert (deltas("adjustments", "berlin"), deltas("adjustments", "")) == ([-2, 3, 5], [2, 60])
    assert deltas("history", "berlin") == [-2, -2, -1, 1, 3, 5]
    assert deltas("history", "") == [-7, 2, 60]
    for location_id in ("berlin", "lyon", ""):
        key = f"{TEA}#{location_id}".removesuffix("#")
        assert sum(deltas("history", location_id)) == located.shop.stock(key)
    for name, part in (("adjustments", "adjustments"), ("history", "entries")):
        own = located("GET", f"{path}/{name}").document
        assert own == located("GET", f"{path}/{name}", query=at("")).document
        (moved,) = (one for one in own[part] if one.get("transferWith"))
        assert (moved["transferWith"], moved["reason"]) == ("berlin", "TRANSFER_IN")
        other = located("GET", f"{path}/{name}", query=at("berlin")).document
        assert [one["transferWith"] for one in other[part] if "transferWith" in one] == [""]
        missing = located("GET", f"{path}/{name}", query=at("paris"))
        assert missing.code == (404, "UNKNOWN_PRODUCT")
        assert missing.document["detail"] == f"there is no product {TEA} at paris"
    first = located("GET", f"{path}/adjustments", query=at("berlin", limit="1")).document
    query = at("lyon", cursor=first["next"])
    assert located("GET", f"{path}/adjustments", query=query).code == (400, "INVALID_CURSOR")


def test_a_refused_decrement_names_the_location_in_its_shortage(located):
    take = {"action": "decrement", "adjustmentId": "d", "productId": TEA, "quantity": 99}
    located.shop.invoke("adjust_stock", take | at("berlin"))
    listed = located("GET", f"/products/{TEA}/adjustments", query=at("berlin")).document
    (refused,) = (one for one in listed["adjustments"] if "rejected" in one)
    short = {"productId": TEA, "locationId": "berlin", "wanted": 99, "available": 5}
    assert refused["shortages"] == [short]


@pytest.fixture
def split_up(located):
    """Place three orders to ship: one from two locations together, and one from each of these locations."""
    located("PATCH", f"/products/{TEA}", {"backorderLimit": 9, **at("berlin")})
    items = [*lines(cup=1), {"productId": TEA, "quantity": 3, "locationId": "berlin"}]
    sold(located, "o-both", items=items)
    sold(located, "o-cup", items=lines(cup=1))
    sold(located, "o-berlin", quantity=2, locations=["berlin"])
    return located


def ships_from(api, location_id):
    """Return the orders to ship from a location."""
    query = {"status": "CONFIRMED", "locationId": location_id}
    listed = [order for page in pages(api, "/orders", **query) for order in page["orders"]]
    return {order["orderId"]: (order["shippable"], order.get("missing")) for order in listed}


def test_orders_to_ship_are_listed_by_location_with_its_shortages(split_up):
    assert ships_from(split_up, "berlin") == dict.fromkeys(("o-both", "o-berlin"), (True, None))
    assert ships_from(split_up, "") == dict.fromkeys(("o-both", "o-cup"), (True, None))
    assert ships_from(split_up, "lyon") == {}
    lost = {"adjustmentId": "l", "delta": -4, "reason": "LOSS", **at("berlin")}
    assert split_up("POST", f"/products/{TEA}/adjustments", lost).status == 200
    short = {"productId": TEA, "locationId": "berlin", "onHand": 1}
    assert ships_from(split_up, "berlin") == {
        "o-both": (False, [short | {"wanted": 3}]),
        "o-berlin": (False, [short | {"wanted": 2}]),
    }
    assert ships_from(split_up, "") == dict.fromkeys(("o-both", "o-cup"), (True, None))
    assert marks(split_up)["o-both"] == (False, [short | {"wanted": 3}])


def test_an_order_without_open_units_at_a_location_is_not_to_ship_from_there(split_up):
    parcel = {"stepId": "p-1", "items": lines(**{TEA: 3})}
    assert split_up("POST", "/orders/o-both/fulfil", parcel).status == 200
    assert set(ships_from(split_up, "berlin")) == {"o-berlin"}
    assert set(ships_from(split_up, "")) == {"o-both", "o-cup"}
    assert set(marks(split_up)) == {"o-both", "o-cup", "o-berlin"}


def test_a_page_of_one_locations_orders_skips_orders_of_others(split_up):
    query = {"status": "CONFIRMED", "locationId": "berlin"}
    assert ids_of(pages(split_up, "/orders", limit="1", **query)) == [["o-both"], ["o-berlin"]]
    rows = split_up.shop.calls
    rows.clear()
    ships_from(split_up, "lyon")
    assert Counter(rows) == {"Query": 16, "BatchGetItem": 1}, (
        "rows are read only for orders on the page"
    )


def test_a_location_is_only_for_orders_to_ship(customers):
    for query, claims in (
        ({"userId": "u-7"}, OPERATOR),
        ({"userId": "u-7", "status": "CONFIRMED"}, OPERATOR),
        ({"status": "CONFIRMED"}, {"sub": "u-7"}),
    ):
        said = customers("GET", "/orders", query=query | at("berlin"), claims=claims)
        assert (said.code, said.document["field"]) == ((400, "SCHEMA_VIOLATION"), "locationId")
    said = customers("GET", "/orders", query=at("berlin"), claims=OPERATOR)
    assert (said.code, said.document["field"]) == ((400, "SCHEMA_VIOLATION"), "userId")


def test_an_order_shows_its_lines_locations_and_its_shortages(located):
    more = {"locations": ["berlin", "lyon", ""], "split": True}
    items = [{"productId": TEA, "quantity": 61}, *lines(cup=2)]
    shown = place(located, "o-1", items=items, **more).document
    assert shown == located("GET", "/orders/o-1").document
    assert (shown["locations"], shown["split"]) == (more["locations"], True)
    assert [line.get("locationId") for line in shown["items"]] == ["lyon", None]
    confirmed = located("POST", "/orders/o-1/confirm").document
    assert [line.get("locationId") for line in confirmed["items"]] == ["lyon", None]
    short = place(located, "o-2", 301, locations=["berlin", "lyon"])
    assert short.code == (409, "INSUFFICIENT_STOCK")
    found = [(one["locationId"], one["available"]) for one in short.document["order"]["shortages"]]
    assert found == [("berlin", 5), ("lyon", 239)]
    assert f"not enough stock of {TEA}" in short.document["detail"]


def test_units_move_from_one_location_to_another_once(located):
    body = {"transferId": "t", "from": "lyon", "to": "", "quantity": 9}
    for result in ("APPLIED", "REPLAYED"):
        said = located("POST", f"/products/{TEA}/transfers", body).document
        assert (said["result"], said["transferId"]) == (result, "t")
        assert (said["from"]["locationId"], said["from"]["stockCount"]) == ("lyon", 291)
        assert (said["to"]["locationId"], said["to"]["stockCount"]) == ("", 69)
    for change, code in (
        ({"quantity": 8}, (409, "TRANSFER_ID_REUSED")),
        ({"transferId": "t-2", "quantity": 999}, (409, "BELOW_FLOOR")),
        ({"transferId": "t-2", "to": "paris"}, (404, "UNKNOWN_PRODUCT")),
        ({"to": "lyon"}, (400, "SCHEMA_VIOLATION")),
    ):
        said = located("POST", f"/products/{TEA}/transfers", body | change)
        assert said.code == code
        if code[1] == "TRANSFER_ID_REUSED":
            assert said.document["detail"].startswith("transferId: another transfer is stored")
            assert said.document["detail"].endswith("differ in quantity (stored 9, sent 8)")


# ---------------------------------------------------------------------- who may do what


def test_the_order_of_a_forgotten_customer_has_no_owner(customers):
    wait = JSON | {"prefer": "wait=5"}
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
    wait = JSON | {"prefer": "wait=5"}
    seven, eight = {"sub": "u-7"}, {"sub": "u-8"}
    assert customers("POST", "/orders", ORDER, wait, claims=seven).status == 201
    other = ORDER | {"orderId": "o-2"}
    assert customers("POST", "/orders", other, wait, claims=eight).code == (403, "OTHER_USER")
    assert customers("GET", "/orders/o-1", claims=seven).status == 200
    assert customers("GET", "/orders/o-1", claims=eight).code == (404, "UNKNOWN_ORDER")
    hidden = customers("GET", "/orders/o-1", claims=eight).text
    missing = customers("GET", "/orders/o-9", claims=eight).text
    assert hidden == missing.replace("o-9", "o-1"), (
        "another customer's order looks like a missing one"
    )
    for own in ({"userId": "u-7"}, None):
        listed = customers("GET", "/orders", query=own, claims=seven).document["orders"]
        assert [order["orderId"] for order in listed] == ["o-1"]
    assert customers("GET", "/orders", claims=eight).document["orders"] == []
    assert customers("GET", "/orders", query={"userId": "u-7"}, claims=eight).code == (
        403,
        "OTHER_USER",
    )
    assert customers("GET", f"/products/{TEA}", claims=eight).status == 200


LINES = [{"productId": TEA, "quantity": 1}, {"productId": "cup", "quantity": 1, "locationId": ""}]


@pytest.mark.parametrize("prefer", [{}, {"prefer": "wait=5"}])
@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"holdSeconds": 601}, "holdSeconds"),
        ({"locations": [""]}, "locations"),
        ({"split": False}, "split"),
        ({"attributes": {"paid": True}}, "attributes"),
        ({"items": LINES}, "items[1].locationId"),
    ],
)
def test_customers_set_only_the_fields_that_are_left_to_them(customers, prefer, given, field):
    def order(claims, **variables):
        customers.shop.restart(HOLD_SECONDS="600", **variables)
        return customers("POST", "/orders", ORDER | given, JSON | prefer, claims=claims)

    before = customers.state()
    said = order({"sub": "u-7"})
    assert said.code == (403, "OPERATORS_ONLY")
    assert said.document["field"] == field
    assert said.document["detail"].startswith(f"{field}: ")
    assert (customers.state(), customers.queued) == (before, [])
    said = order({"sub": "u-7"}, CUSTOMERS_MAY_SET="attributes,locations,split")
    assert (said.status == 403) is (field == "holdSeconds")
    assert order(OPERATOR).status != 403


@pytest.mark.parametrize(("setting", "hold"), [("600", 600), ("600", 60), ("", 604_800)])
def test_customers_may_hold_stock_as_long_as_the_shop_does(customers, setting, hold):
    customers.shop.restart(**({"HOLD_SECONDS": setting} if setting else {}))
    for status in (201, 200):
        assert place(customers, holdSeconds=hold, claims={"sub": "u-7"}).status == status


def test_a_rejection_shows_stock_to_customers_only_if_allowed(customers, monkeypatch):
    wait = JSON | {"prefer": "wait=5"}
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


def test_a_token_without_a_subject_is_refused(customers):
    for claims in ({}, {"sub": ""}, {"sub": None}, {"sub": 7}, {"sub": ["u-7"]}):
        for path in ("/orders", "/orders/o-1", f"/products/{TEA}"):
            assert customers("GET", path, claims=claims).code == (403, "NO_SUBJECT")
    without_authorizer = {"http": {"method": "GET", "path": "/"}, "stage": "$default"}
    said = customers("GET", "/orders/o-1", requestContext=without_authorizer)
    assert said.code == (403, "NO_SUBJECT")


@pytest.mark.parametrize(
    ("claim", "is_operator"),
    [
        ("operators", True),
        ("[operators]", True),
        ("[staff operators]", True),
        ("[staff, operators]", True),
        ("operators2", False),
        ("[no-operators]", False),
        ("staff operators", False),
        ("", False),
        ("true", False),
        (None, False),
        (["operators"], False),
    ],
)
def test_a_caller_with_the_claim_is_an_operator(claim, is_operator):
    settings = {"USER_ID_CLAIM": "sub", "SHOW_STOCK": "availability"}
    operators = {"OPERATORS_CLAIM_NAME": "groups", "OPERATORS_CLAIM_VALUE": "operators"}
    token = {"jwt": {"claims": {"sub": "u", "groups": claim}}}
    caller = Caller.of(token, Process(settings | operators))
    assert (caller.customer is None) is is_operator
    assert Caller.of(token, Process(settings)).customer == "u", "no operators without the setting"


def test_the_shop_chooses_the_claim_that_names_the_user(customers, monkeypatch):
    customers.shop.restart(USER_ID_CLAIM="https://shop.example/customer")
    claims = {"sub": "auth0|5f7c", "https://shop.example/customer": "u-7"}
    assert place(customers, claims=claims).status == 201
    assert customers("GET", "/orders/o-1", claims={"sub": "u-7"}).code == (403, "NO_SUBJECT")
    assert customers("GET", "/orders/o-1").status == 200, "a signed request has full access"


@pytest.mark.parametrize("wrong", [{"SHOW_STOCK": ""}, {"SHOW_STOCK": "yes"}])
def test_malformed_identities_are_refused(api, wrong):
    ((name, _),) = wrong.items()
    api.shop.restart(**wrong)
    with pytest.raises(ConfigurationError, match=name):
        api("GET", f"/products/{TEA}")


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


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ThrottledError("ThrottlingException", "secret"), (503, "ThrottlingException")),
        (StoreUnavailableError("AccessDeniedException", "secret"), (500, "UNAVAILABLE")),
    ],
)
def test_unavailable_tables_are_an_error_of_the_service(api, monkeypatch, error, expected):
    broken(monkeypatch, error)
    began = api.shop.clock.now()
    for method, path, query in (
        ("GET", "/orders/o-1", None),
        ("GET", "/orders", {"userId": "u-7"}),
        ("GET", f"/products/{TEA}", None),
        ("POST", "/orders/o-1/confirm", None),
    ):
        said = api(method, path, query=query)
        assert said.code == expected
        assert "secret" not in said.text
        assert ("Retry-After" in said.headers) is (expected[0] == 503)
    assert api.shop.clock.now() - began <= 10, "each of the three reads takes at most 3 s"


def test_an_order_is_queued_if_the_tables_do_not_answer(api, waits, monkeypatch):
    def fail(*_, **__):
        raise StoreUnavailableError("AccessDeniedException", "secret")

    client = api.shop.process("api").impatient_engine.client
    client.rivals[TEA] = float("-inf")
    for name in ("get_record", "read"):
        monkeypatch.setattr(client.store, name, fail)
    assert place(api).status == 202
    assert len(api.queued) == 1


def test_logs_contain_nothing_of_the_body(api, capsys, monkeypatch):
    api("POST", "/orders", ORDER | {"orderId": "a secret"})
    logged = capsys.readouterr().out
    assert "SCHEMA_VIOLATION" in logged
    assert "secret" not in logged
    assert "u-7" not in logged
