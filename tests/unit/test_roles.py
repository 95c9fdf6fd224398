"""Roles: what each may do over HTTP, on every route, and at which locations."""

import json

import pytest

from infra.settings import SCHEMA
from inventory_orders.api.permissions import AMEND, ANY_PERMISSION, FOR_CUSTOMERS, PERMISSIONS
from inventory_orders.domain.record import OrderAction
from inventory_orders.store.tables import Table
from local.tokens import ROLES as LOCAL_ROLES
from tests.support.http import (
    BERLIN,
    CONTRACT,
    JSON,
    LOST,
    OPERATIONS,
    ROUTES,
    TEA,
    WAIT,
    Api,
    send,
)
from tests.support.movements import record_movements

GRANTS = LOCAL_ROLES["grants"] | {
    "tills": ["orders.place", "orders.confirm", "orders.return", "products.read"],
    "buyers": ["products.write"],
}
ROLES = {"claim": "cognito:groups", "grants": GRANTS, "locationsClaim": "custom:locations"}
OPERATOR = {"sub": "staff-1", "cognito:groups": "[operators]"}
CUP = "cup"


def staff(role, locations="*"):
    """The claims of a token with a role, as API Gateway passes them."""
    return {"sub": f"{role}-1", "cognito:groups": f"[{role}]", "custom:locations": locations}


@pytest.fixture
def api(tea_shop):
    """Make the API of a shop with roles."""
    tea_shop.restart(
        USER_ID_CLAIM="sub",
        OPERATORS_CLAIM_NAME="cognito:groups",
        OPERATORS_CLAIM_VALUE="operators",
        ROLES=json.dumps(ROLES),
        SHOW_STOCK="availability",
    )
    return Api(tea_shop)


# ---------------------------------------------------------------------- the table


def test_every_route_has_a_permission_everywhere(api):
    assert PERMISSIONS.keys() == api.functions.keys()
    assert {
        " ".join(route): CONTRACT["paths"][route[1]][route[0].lower()]["x-permission"]
        for route in OPERATIONS
    } == PERMISSIONS
    assert PERMISSIONS.keys() > FOR_CUSTOMERS
    grants = SCHEMA["properties"]["roles"]["properties"]["grants"]["additionalProperties"]
    assert {*grants["items"]["enum"], ANY_PERMISSION} == {*PERMISSIONS.values(), "*"}


NOT_FOR_ROLES = {"NOT_PERMITTED", "OPERATORS_ONLY", "OTHER_USER", "OTHER_LOCATION", "NO_SUBJECT"}


@pytest.mark.parametrize("role", [*GRANTS, "operators", "customer", "cleaners", None])
def test_each_role_may_call_exactly_the_routes_of_its_permissions(api, role):
    """Some requests fail later, because the order or product is not there; only the answer 403 matters."""
    api.shop.restart(CUSTOMERS_MAY_AMEND="true")
    claims = {None: None, "customer": {"sub": "u-7"}}.get(role, staff(role))
    granted = {None: "*", "operators": "*"}.get(role, GRANTS.get(role, ()))
    for name, (method, path) in ROUTES.items():
        route = f"{method} {path}"
        may = PERMISSIONS[route] in (*granted, ANY_PERMISSION) or "*" in granted
        if role in ("customer", "cleaners"):
            may = route in {*FOR_CUSTOMERS, AMEND}
        body = {"body": {"orderId": "o-1", "userId": claims["sub"], "items": []}} if claims else {}
        query = {"query": {"userId": claims["sub"]}} if claims else {}
        more = {"placeOrder": body, "listOrders": query}.get(name, {})
        said = send(api, name, claims=claims, **more)
        if may:
            assert said.status != 403, (role, route, said.text)
        else:
            assert said.code == (403, "NOT_PERMITTED"), (role, route)
            assert said.document["permission"] == PERMISSIONS[route]
            assert PERMISSIONS[route] in said.document["detail"]


def test_a_refused_request_changes_nothing(api):
    place(api, "o-1", {TEA: ""})
    before = rows(api)
    for name in ROUTES:
        send(api, name, "o-1", claims={"sub": "u-9", "cognito:groups": "[cleaners]"}, body={})
    assert rows(api) == before


def test_roles_add_up_and_a_role_must_match_exactly(api):
    both = staff("pickers") | {"cognito:groups": "[support pickers]"}
    place(api, "o-1", {TEA: ""})
    assert api("POST", "/orders/o-1/cancel", claims=both).status == 200
    assert api("GET", "/orders", query={"status": "PENDING"}, claims=both).status == 200
    for claim in ("owner", "[owners2]", "owners x", "[no-owners]", ""):
        token = staff("owners") | {"cognito:groups": claim}
        said = api("GET", "/orders", query={"userId": "u-7"}, claims=token)
        assert said.code == (403, "OTHER_USER"), claim


def test_a_role_needs_a_user(api):
    for role in ("pickers", "operators"):
        said = api("GET", "/orders/o-1", claims={"cognito:groups": f"[{role}]"})
        assert said.code == (403, "NO_SUBJECT")


def test_without_the_setting_no_claim_makes_staff(api):
    del api.shop.variables["ROLES"]
    api.shop.restart()
    assert api("GET", "/stock", claims=staff("owners")).code == (403, "NOT_PERMITTED")


# ---------------------------------------------------------------------- names


def test_the_claim_for_names_names_staff_and_operators_but_no_customer(api):
    api.shop.restart(ROLES=json.dumps(ROLES | {"nameClaim": "email"}))
    for claims, name in (
        (staff("pickers") | {"email": "ann@shop.example"}, "ann@shop.example"),
        (OPERATOR | {"email": "bob@shop.example"}, "bob@shop.example"),
        (staff("pickers") | {"email": "a" * 200}, "a" * 128),
        (staff("pickers") | {"email": ""}, "pickers-1"),
        (staff("pickers"), "pickers-1"),
    ):
        assert api("GET", "/about", claims=claims).document["caller"]["name"] == name
    body = {"orderId": "o-1", "userId": "u-8", "items": [{"productId": TEA, "quantity": 1}]}
    said = api("POST", "/orders", body, WAIT, claims={"sub": "u-7", "email": "u-8"})
    assert said.code == (403, "OTHER_USER")


def test_the_actor_of_a_change_is_the_name_of_the_token(api):
    place(api, "o-1", {TEA: ""})
    body = {"actor": "another"}
    said = api("POST", "/orders/o-1/confirm", body, claims=staff("owners"))
    assert said.code == (400, "SCHEMA_VIOLATION")
    assert said.document["field"] == "actor"
    assert api("POST", "/orders/o-1/confirm", claims=staff("tills")).status == 200
    assert api("POST", "/orders/o-1/fulfil", claims=staff("pickers")).status == 200
    steps = api("GET", "/orders/o-1", claims=OPERATOR).document["steps"]
    assert [step["actor"] for step in steps] == ["tills-1", "pickers-1"]
    receipt = {"adjustmentId": "r-1", "delta": 1, "reason": "RECEIPT"}
    assert adjust(api, staff("stock"), **receipt).status == 200
    lease = count(api, staff("stock"), action="acquire", productId=TEA, seconds=9).document["lease"]
    commit = {"action": "commit", "lease": lease, "counted": 7, "adjustmentId": "c-1"}
    assert count(api, staff("stock"), **commit).status == 200
    listed = api("GET", f"/products/{TEA}/adjustments", claims=staff("stock")).document
    actors = {each["adjustmentId"]: each.get("actor") for each in listed["adjustments"]}
    assert (actors["r-1"], actors["c-1"]) == ("stock-1", "stock-1")


@pytest.mark.parametrize("headers", [JSON, WAIT])
def test_an_order_names_the_member_of_staff_who_placed_it_but_not_to_customers(api, headers):
    body = {"orderId": "o-1", "userId": "u-7", "items": [{"productId": TEA, "quantity": 1}]}
    assert api("POST", "/orders", body, headers, claims=staff("tills")).status in (201, 202)
    own = body | {"orderId": "o-2"}
    assert api("POST", "/orders", own, headers, claims={"sub": "u-7"}).status in (201, 202)
    api.shop.deliver("Order")
    shown = [api("GET", f"/orders/{each}", claims=staff("pickers")) for each in ("o-1", "o-2")]
    assert [each.document.get("placedBy") for each in shown] == ["tills-1", None]
    (listed, _) = api("GET", "/orders", query={"userId": "u-7"}, claims={"sub": "u-7"}).document[
        "orders"
    ]
    assert "placedBy" not in listed
    assert "placedBy" not in api("GET", "/orders/o-1", claims={"sub": "u-7"}).document
    # The same order from another member of staff is the same order.
    assert api("POST", "/orders", body, WAIT, claims=staff("owners")).status == 200
    assert api.shop.order_row("o-1")["placedBy"] == "tills-1"


def test_a_product_names_who_last_changed_it(api):
    buyer, owner = staff("buyers"), staff("owners")
    mug = {"productId": "mug", "openingStock": 5}
    said = api("POST", "/products", mug, claims=buyer)

    def changed_by():
        shown = api("GET", "/stock/mug", claims=owner).document
        assert shown["changedAt"] >= shown["createdAt"]
        return shown["changedBy"]

    assert changed_by() == "buyers-1"

    # What changes nothing leaves no name.
    same = {"lowStockThreshold": 0}
    assert api("PATCH", "/products/mug", same, claims=owner).document["result"] == "REPLAYED"
    assert changed_by() == "buyers-1"
    for path in ("discontinue", "list-again"):
        assert api("POST", f"/products/mug/{path}", claims=owner).status == 200
        assert changed_by() == "owners-1"
    assert api("PATCH", "/products/mug", {"price": 7}, claims=buyer).status == 200
    place(api, "o-1", {"mug": ""})
    assert changed_by() == "buyers-1"
    assert "changedBy" not in api("GET", "/products/mug", claims=owner).document
    listed_at = {"createdAt": said.document["createdAt"]}
    assert api("DELETE", "/products/mug", query=listed_at, claims=owner).status == 200
    listed = api("GET", "/products/mug/adjustments", claims=owner).document["adjustments"]
    actors = {each["reason"]: each["actor"] for each in listed}
    assert actors == {"OPENING": "buyers-1", "CLOSING": "owners-1"}


# ---------------------------------------------------------------------- locations


def place(api, order_id, lines, quantity=1):
    """Place an order with lines from these locations, by product, as a server."""
    items = [
        {"productId": each, "quantity": quantity, "locationId": there}
        for each, there in lines.items()
    ]
    body = {"orderId": order_id, "userId": "u-7", "items": items}
    assert api("POST", "/orders", body, WAIT).status == 201
    return body


def adjust(api, claims, **body):
    return api("POST", f"/products/{TEA}/adjustments", body, claims=claims)


def count(api, claims, **body):
    return api("POST", "/counts", body, claims=claims)


@pytest.fixture
def places(api):
    """Make a shop that sells tea in three places and cups in two, with an order for each and one from two places."""
    for location in ("berlin", "rome"):
        there = BERLIN | {"locationId": location, "openingStock": 9}
        assert api("POST", "/products", there).status == 201
    for location in ("", "berlin"):
        cups = {"productId": CUP, "locationId": location, "openingStock": 9}
        assert api("POST", "/products", cups).status == 201
    place(api, "o-default", {TEA: ""})
    place(api, "o-berlin", {TEA: "berlin"})
    place(api, "o-rome", {TEA: "rome"})
    place(api, "o-both", {TEA: "rome", CUP: "berlin"})
    assert send_rejected(api).status == 409
    return api


def send_rejected(api):
    items = [{"productId": TEA, "quantity": 99, "locationId": "berlin"}]
    body = {"orderId": "o-rejected", "userId": "u-7", "items": items}
    return api("POST", "/orders", body, WAIT)


SEEN = {
    "berlin": {"o-berlin", "o-both"},
    "[berlin]": {"o-berlin", "o-both"},
    "rome (default)": {"o-default", "o-rome", "o-both"},
    "[(default) rome]": {"o-default", "o-rome", "o-both"},
    "(default)": {"o-default"},
    "paris": set(),
    "": set(),
    "[]": set(),
    "default": set(),
    "*": {"o-default", "o-berlin", "o-rome", "o-both", "o-rejected"},
}


@pytest.mark.parametrize("locations", SEEN)
def test_staff_see_the_orders_of_their_locations(places, locations):
    claims = staff("pickers", locations)

    def listed(**query):
        found, query = set(), {"limit": "1", **query}
        while True:
            page = places("GET", "/orders", query=query, claims=claims).document
            found |= {order["orderId"] for order in page["orders"]}
            if "next" not in page:
                return found
            query["cursor"] = page["next"]

    seen = SEEN[locations]
    assert listed(userId="u-7") == seen
    assert listed(status="PENDING") == seen - {"o-rejected"}
    assert listed(status="REJECTED") == seen & {"o-rejected"}
    for order_id in SEEN["*"]:
        said = places("GET", f"/orders/{order_id}", claims=claims)
        assert (said.status == 200) is (order_id in seen)
        assert said.status == 200 or said.code == (403, "OTHER_LOCATION")


def test_a_token_without_the_claim_for_locations_has_none(places):
    claims = staff("owners")
    del claims["custom:locations"]
    said = places("GET", "/orders/o-default", claims=claims)
    assert said.code == (403, "OTHER_LOCATION")
    assert "(none)" in said.document["detail"]
    assert places("GET", "/stock", claims=claims).document["products"] == []
    everywhere = {name: value for name, value in ROLES.items() if name != "locationsClaim"}
    places.shop.restart(USER_ID_CLAIM="sub", ROLES=json.dumps(everywhere))
    assert places("GET", "/orders/o-default", claims=claims).status == 200


def test_operators_and_servers_work_at_all_locations(places):
    for claims in (OPERATOR, OPERATOR | {"custom:locations": "berlin"}, None):
        assert places("GET", "/orders/o-rome", claims=claims).status == 200
        query = {"limit": "100"}
        stock = places("GET", "/stock", query=query, claims=claims).document["products"]
        assert {each.get("locationId", "") for each in stock} == {"", "berlin", "rome"}


def test_orders_of_a_reference_or_product_are_those_of_the_tokens_locations(places):
    for order_id in ("o-berlin", "o-rome", "o-both"):
        said = places("POST", f"/orders/{order_id}/confirm", {"reference": "paid-7"})
        assert said.status == 200
        assert places("POST", f"/orders/{order_id}/fulfil", {"reference": "1Z"}).status == 200
    record_movements(places.shop)
    claims = staff("pickers", "berlin")
    for query, seen in (
        ({"reference": "1Z"}, {"o-berlin", "o-both"}),
        ({"productId": CUP, "locationId": "berlin"}, {"o-both"}),
        ({"productId": TEA}, set()),
    ):
        page = places("GET", "/orders", query=query, claims=claims).document
        assert {order["orderId"] for order in page["orders"]} == seen
    query = {"productId": TEA, "locationId": "rome"}
    assert places("GET", "/orders", query=query, claims=claims).code == (403, "OTHER_LOCATION")


def test_a_list_finds_the_orders_of_a_location_without_reading_those_of_others(places):
    for number in range(9):
        place(places, f"o-{number}", {CUP: ""})
    places.shop.calls.clear()
    query = {"status": "PENDING", "limit": "1"}
    page = places("GET", "/orders", query=query, claims=staff("pickers", "berlin")).document
    assert [order["orderId"] for order in page["orders"]] == ["o-berlin"]
    assert places.shop.calls.count("BatchGetItem") == 1


def test_late_payments_and_unreadable_orders_of_other_locations_are_not_listed(places):
    for order_id in ("o-berlin", "o-rome"):
        assert places("POST", f"/orders/{order_id}/cancel").status == 200
        assert places("POST", f"/orders/{order_id}/confirm").status == 409
    query = {"latePayment": "true"}
    page = places("GET", "/orders", query=query, claims=staff("pickers", "berlin")).document
    assert [order["orderId"] for order in page["orders"]] == ["o-berlin"]
    places.shop.edit(Table.ORDERS, "o-rome", items={"S": "?"})
    for claims, unreadable in ((staff("pickers", "rome"), []), (staff("pickers"), ["o-rome"])):
        page = places("GET", "/orders", query=query, claims=claims).document
        assert page["unreadable"] == unreadable


def test_an_order_from_two_places_is_shown_whole(places):
    shown = places("GET", "/orders/o-both", claims=staff("pickers", "berlin"))
    assert shown.document == places("GET", "/orders/o-both", claims=OPERATOR).document
    query = {"userId": "u-7"}
    page = places("GET", "/orders", query=query, claims=staff("pickers", "rome")).document
    whole = {order["orderId"]: len(order["items"]) for order in page["orders"]}
    assert whole == {"o-rome": 1, "o-both": 2}


def items(*products, step="s-1"):
    lines = [{"productId": each, "quantity": 1} for each in products]
    return {"stepId": step, "items": lines}


BOTH = {"until": "2027-01-15T09:00:00Z"}
COMMANDS = {
    "confirm": ("confirm", {}, None),
    "extend": ("extend", {}, None),
    "fulfil": ("fulfil", {}, {}),
    "cancel": ("cancel", {}, {}),
    "return": ("returns", {"restock": True}, {"restock": True}),
    "unfulfil": ("unfulfil", {}, {}),
}


AFTER_HAND_OVER = ("return", "unfulfil")


def test_every_command_on_orders_is_tried():
    assert COMMANDS.keys() == {action.value for action in OrderAction if action.path}


@pytest.mark.parametrize("action", COMMANDS)
def test_commands_touch_only_lines_of_the_tokens_locations(places, action):
    """Each command is tried on the whole order, on a line from elsewhere, on both lines, and on the line from Berlin."""
    path, more, of_items = COMMANDS[action]
    owner = staff("owners", "berlin")
    whole = BOTH if action == "extend" else more
    if action in ("fulfil", *AFTER_HAND_OVER):
        assert places("POST", "/orders/o-both/confirm").status == 200
    if action in AFTER_HAND_OVER:
        assert places("POST", "/orders/o-both/fulfil").status == 200
    refused = [("o-rome", items(TEA) | more), ("o-both", items(TEA) | more)]
    refused += [("o-both", items(TEA, CUP) | more)]
    if of_items is None:
        refused = [("o-rome", whole), ("o-both", whole)]
    elif action not in AFTER_HAND_OVER:
        refused += [("o-rome", whole), ("o-both", whole), ("o-rejected", whole)]
    before = places.state()
    for order_id, body in refused:
        said = places("POST", f"/orders/{order_id}/{path}", body, claims=owner)
        assert said.code == (403, "OTHER_LOCATION"), (order_id, body)
        assert "(berlin)" in said.document["detail"]
    assert places.state() == before
    unknown = items(TEA) | more if action in AFTER_HAND_OVER else whole
    said = places("POST", f"/orders/o-9/{path}", unknown, claims=owner)
    assert said.code == (404, "UNKNOWN_ORDER")
    theirs = ("o-berlin", whole) if of_items is None else ("o-both", items(CUP) | more)
    assert places("POST", f"/orders/{theirs[0]}/{path}", theirs[1], claims=owner).status != 403
    two = staff("owners", "[rome berlin]")
    body = whole if of_items is None else items(TEA, step="s-2") | more
    assert places("POST", f"/orders/o-both/{path}", body, claims=two).status != 403


def test_the_line_of_another_place_stays_open(places):
    assert places("POST", "/orders/o-both/confirm").status == 200
    picker = staff("pickers", "berlin")
    assert places("POST", "/orders/o-both/fulfil", items(CUP), claims=picker).status == 200
    shown = places("GET", "/orders/o-both", claims=picker).document
    assert shown["status"] == "CONFIRMED"
    assert {each["productId"]: each.get("fulfilled", 0) for each in shown["items"]} == {
        TEA: 0,
        CUP: 1,
    }


@pytest.mark.parametrize(
    ("where", "may"),
    [
        ({"locations": ["berlin"]}, True),
        ({"locations": ["berlin", "rome"]}, False),
        ({"locations": [""]}, False),
        ({}, False),
        ({"of_line": "berlin"}, True),
        ({"of_line": "rome"}, False),
    ],
)
@pytest.mark.parametrize("headers", [JSON, WAIT])
def test_staff_sell_only_from_their_locations(places, where, may, headers):
    line = {"productId": TEA, "quantity": 1}
    if "of_line" in where:
        line["locationId"] = where["of_line"]
    more = {name: value for name, value in where.items() if name != "of_line"}
    body = {"orderId": "o-1", "userId": "u-7", "items": [line], **more}
    before = places.state()
    said = places("POST", "/orders", body, headers, claims=staff("owners", "berlin"))
    assert (said.status in (201, 202)) is may
    assert may or said.code == (403, "OTHER_LOCATION")
    assert may or places.state() == before


def test_staff_see_the_stock_of_their_locations(places):
    claims = staff("stock", "berlin rome")

    def stock(**query):
        query = {"limit": "100", **query}
        page = places("GET", "/stock", query=query, claims=claims).document
        return {(each["productId"], each.get("locationId", "")) for each in page["products"]}

    theirs = {(TEA, "berlin"), (TEA, "rome"), (CUP, "berlin")}
    assert stock() == theirs
    assert stock(status="ACTIVE") == theirs
    assert stock(locationId="berlin") == {(TEA, "berlin"), (CUP, "berlin")}
    assert stock(locationId="") == set()
    shown = places("GET", f"/stock/{TEA}", claims=claims).document
    assert shown["productId"] == TEA
    assert {each["locationId"] for each in shown["places"]} == {"berlin", "rome"}
    assert shown["available"] == sum(each["available"] for each in shown["places"]) == 15
    one = places("GET", f"/stock/{CUP}", claims=claims).document
    assert (one["locationId"], one["available"]) == ("berlin", 8)


@pytest.mark.parametrize("of", ["stock/{}", "products/{}/adjustments", "products/{}/history"])
def test_stock_and_its_changes_at_other_locations_are_refused(places, of):
    path = f"/{of.format(TEA)}"
    for claim, query, may in (
        ("berlin", {"locationId": "berlin"}, True),
        ("berlin", {"locationId": "rome"}, False),
        ("berlin", {"locationId": ""}, False),
        ("berlin", None, "stock" in of.split("/")[0]),
        ("(default)", None, True),
        ("paris", None, False),
    ):
        said = places("GET", path, query=query, claims=staff("stock", claim))
        assert said.status == (200 if may else 403), (claim, query, said.text)
        assert may or said.code == (403, "OTHER_LOCATION")
    query = {"status": "PENDING", "locationId": "rome"}
    said = places("GET", "/orders", query=query, claims=staff("pickers", "berlin"))
    assert said.code == (403, "OTHER_LOCATION")


RECEIPT = {"adjustmentId": "r-1", "delta": 1, "reason": "RECEIPT"}
TRANSFER = {"transferId": "t-1", "quantity": 1}


@pytest.mark.parametrize(
    ("route", "here", "elsewhere"),
    [
        (
            f"POST /products/{TEA}/adjustments",
            [RECEIPT | {"locationId": "berlin"}],
            [RECEIPT, RECEIPT | {"locationId": ""}, RECEIPT | {"locationId": "rome"}],
        ),
        (
            f"POST /products/{TEA}/transfers",
            [TRANSFER | {"from": "berlin", "to": "milan"}],
            [
                TRANSFER | {"from": "berlin", "to": ""},
                TRANSFER | {"from": "rome", "to": "berlin"},
                TRANSFER | {"from": "", "to": "rome"},
            ],
        ),
        (
            "POST /counts",
            [
                {"action": "acquire", "productId": TEA, "locationId": "berlin", "seconds": 1},
                {"action": "release", "lease": LOST | {"locationId": "berlin"}},
            ],
            [
                {"action": "acquire", "productId": TEA, "seconds": 1},
                {"action": "acquire", "productId": TEA, "locationId": "rome", "seconds": 1},
                {"action": "renew", "lease": LOST, "seconds": 9},
                {"action": "release", "lease": LOST | {"locationId": "rome"}},
                {"action": "commit", "lease": LOST, "counted": 1, "adjustmentId": "c-1"},
            ],
        ),
        (
            "POST /products",
            [BERLIN | {"productId": CUP, "locationId": "milan"}],
            [
                {"productId": "new", "openingStock": 1},
                BERLIN | {"productId": CUP, "locationId": "rome"},
            ],
        ),
        (
            f"PATCH /products/{TEA}",
            [{"lowStockThreshold": 1, "locationId": "berlin"}],
            [{"price": 1}, {"name": "x"}, {"lowStockThreshold": 1, "locationId": "rome"}],
        ),
        (
            f"POST /products/{TEA}/discontinue",
            [{"locationId": "berlin"}],
            [None, {"locationId": ""}, {"locationId": "rome"}],
        ),
        (
            f"POST /products/{TEA}/list-again",
            [{"locationId": "berlin"}],
            [None, {"locationId": ""}, {"locationId": "rome"}],
        ),
    ],
)
def test_staff_change_only_products_and_stock_at_their_locations(places, route, here, elsewhere):
    method, path = route.split()
    owner, before = staff("owners", "berlin milan"), rows(places)
    for body in elsewhere:
        said = places(method, path, body, claims=owner)
        assert said.code == (403, "OTHER_LOCATION"), body
    assert rows(places) == before
    for body in here:
        assert places(method, path, body, claims=owner).status != 403, body


def test_only_all_locations_together_may_be_discontinued_at_once(places):
    path = f"/products/{TEA}/discontinue"
    said = places("POST", path, claims=staff("owners", "berlin rome (default)"))
    assert said.code == (403, "OTHER_LOCATION")
    assert places("POST", path, claims=staff("owners")).status == 200


def test_staff_delist_only_at_their_locations(places):
    created = {"createdAt": "2026-11-20T09:30:00Z"}
    for location, may in (({"locationId": "rome"}, False), ({}, False)):
        query = created | location
        said = places("DELETE", f"/products/{TEA}", query=query, claims=staff("owners", "berlin"))
        assert (said.code == (403, "OTHER_LOCATION")) is not may
    query = created | {"locationId": "berlin"}
    said = places("DELETE", f"/products/{TEA}", query=query, claims=staff("owners", "berlin"))
    assert said.status == 200


def test_customers_are_not_limited_to_locations(places):
    claims = {"sub": "u-7", "custom:locations": "paris"}
    assert places("GET", "/orders/o-rome", claims=claims).status == 200
    assert len(places("GET", "/orders", claims=claims).document["orders"]) == 5


def rows(api):
    """All rows that a refused command must leave unchanged."""
    return {table: dict(api.shop.items(table)) for table in Table}
