"""The HTTP API on the embedded AWS: access control, and an order's life as a client sees it."""

import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import boto3
import pytest

from client import Client, signed
from infra.api import ROUTES
from inventory_orders.api.permissions import ANY_PERMISSION, FOR_CUSTOMERS, PERMISSIONS
from local.tokens import ROLES
from tests.support.api import JsonApi
from tests.support.stack import create
from tests.support.tokens import Issuer, issued_by


@pytest.fixture(scope="module")
def api(aws):
    return JsonApi.of(aws)


@pytest.fixture
def new_id():
    return f"api-{uuid.uuid4().hex[:8]}"


def order(order_id, product_id, user="u-7", quantity=1):
    return {
        "orderId": order_id,
        "userId": user,
        "items": [{"productId": product_id, "quantity": quantity}],
    }


def test_an_order_from_outside_goes_through_its_life(aws, api, new_id):
    create(aws, new_id, 10)
    user = f"u-{new_id}"
    client = Client(api.url, signed())
    placed = client.place_order(order(new_id, new_id, user), wait=20).wait()
    assert client.get_order(new_id) == placed
    assert client.get_order(new_id, if_none_match=placed.etag) is None
    assert client.confirm_order(new_id)["status"] == "CONFIRMED"
    assert client.cancel_order(new_id)["stockReturned"] == {new_id: 1}
    listed = client.list_orders({"userId": user})["orders"]
    assert [(one["orderId"], one["status"]) for one in listed] == [(new_id, "CANCELLED")]
    product = client.get_product(new_id)
    assert product["availability"] == "IN_STOCK"
    assert client.get_product(new_id, if_none_match=product.etag) is None


def test_changes_of_orders_and_products_are_listed_within_seconds(aws, api, new_id):
    create(aws, new_id, 10)
    since, waiting = api("GET", "/changes").said["next"], {"orders", "products"}
    assert api("POST", "/orders", order(new_id, new_id), {"Prefer": "wait=20"}).status == 201
    until = time.monotonic() + 10
    while waiting and time.monotonic() < until:
        time.sleep(0.2)
        said = api("GET", f"/changes?since={since}").said
        assert said["isAll"]
        waiting -= {"orders"} if new_id in said["orders"] else set()
        waiting -= {"products"} if {"productId": new_id} in said["products"] else set()
        since = said["next"]
    assert not waiting


def test_requests_without_a_signature_or_permission_are_refused(api):
    iam = boto3.client("iam")
    name = f"nouser-{uuid.uuid4().hex[:8]}"
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    strangers = boto3.Session(key["AccessKeyId"], key["SecretAccessKey"])
    try:
        for path in ("/orders/o-1", "/orders?userId=u-7", "/products?ids=p"):
            assert api("GET", path, signed=False).status == 403
            assert replace(api, session=strangers)("GET", path).status == 403
    finally:
        iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
        iam.delete_user(UserName=name)


# ---------------------------------------------------------------------- with tokens


@pytest.fixture(scope="module")
def issuer():
    with Issuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def with_tokens(aws, issuer):
    """Make the customers' API accept a test's issuer.

    The configured issuer is the embedded AWS, which cannot reach itself over TLS.
    """
    api = JsonApi.of(aws, "CustomerApiUrl")
    with issued_by(api, issuer):
        yield api


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def staff(issuer, role, **claims):
    return bearer(issuer.token(sub=role, **{"cognito:groups": [role], **claims}))


def test_customers_with_a_token_see_their_own_orders_and_operators_all(
    aws, with_tokens, issuer, new_id
):
    create(aws, new_id, 10)
    api = with_tokens
    seven, eight = (bearer(issuer.token(sub=user)) for user in ("u-7", "u-8"))
    operator = bearer(issuer.token(sub="staff", **{"cognito:groups": ["staff", "operators"]}))
    wait = {"Prefer": "wait=20"}
    path = f"/orders/{new_id}"
    assert api("POST", "/orders", order(new_id, new_id), eight | wait).status == 403
    assert api("POST", "/orders", order(new_id, new_id), seven | wait).status == 201
    assert api("GET", path, headers=seven).status == 200
    hidden = api("GET", path, headers=eight)
    assert (hidden.status, hidden.said["code"]) == (404, "UNKNOWN_ORDER")
    assert new_id in json.dumps(api("GET", "/orders?userId=u-7", headers=seven).said)
    assert api("GET", "/orders?userId=u-7", headers=eight).status == 403
    assert api("POST", f"{path}/confirm", headers=seven).status == 403
    assert api("POST", f"{path}/confirm", headers=operator).status == 200


def test_each_caller_may_use_exactly_the_routes_of_its_permissions(with_tokens, issuer):
    """The requests change nothing: what they name does not exist, and their bodies are empty."""
    granted = {role: {ANY_PERMISSION, *allowed} for role, allowed in ROLES["grants"].items()}
    callers = {role: staff(issuer, role, **{"custom:locations": "*"}) for role in granted}
    callers |= {"operators": staff(issuer, "operators"), "customer": staff(issuer, "cleaners")}

    def may(caller, route):
        if caller == "customer":
            return route in FOR_CUSTOMERS
        return not granted.get(caller, {"*"}).isdisjoint({PERMISSIONS[route], "*"})

    def tried(caller, route):
        method, path = route.split()
        path = path.format(orderId="nothing", productId="nothing")
        body = None if method == "GET" else {}
        said = with_tokens(method, path, body, callers.get(caller), signed=False)
        is_refused = said.status in (401, 403) or said.status >= 500
        return said.status if is_refused else None, said.said.get("permission")

    tries = {(caller, route) for caller in [*callers, "no token"] for route in ROUTES}
    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(tries, pool.map(lambda each: tried(*each), tries), strict=True))
    refused = {each: (403, PERMISSIONS[each[1]]) for each in tries if not may(*each)}
    refused |= {("no token", route): (401, None) for route in ROUTES}
    assert found == {each: refused.get(each, (None, None)) for each in tries}


def test_staff_see_and_change_only_what_is_at_the_locations_of_their_token(
    aws, api, with_tokens, issuer, new_id
):
    berlin, rome = f"{new_id}-berlin", f"{new_id}-rome"
    places = {"", berlin, rome}
    products = (new_id, f"{new_id}-cup")
    for product_id in products:
        for place in sorted(places):
            create(aws, product_id, 9, locationId=place)
    lines = {"default": [""], "berlin": [berlin], "both": [berlin, rome]}
    for name, taken_from in lines.items():
        items = [
            {"productId": product_id, "quantity": 1, "locationId": place}
            for product_id, place in zip(products, taken_from, strict=False)
        ]
        body = {"orderId": f"{new_id}-{name}", "userId": new_id, "items": items}
        assert api("POST", "/orders", body, {"Prefer": "wait=20"}).status == 201

    def may(method, path, body=None):
        """Whether a request to an order, or to the product at a location, is not refused."""
        said = with_tokens(method, path, body, headers)
        assert said.status == 200 or said.said["code"] == "OTHER_LOCATION"
        return said.status == 200

    def receipt(place):
        return {"adjustmentId": place or "r", "delta": 1, "reason": "RECEIPT", "locationId": place}

    everything = {*lines}
    for claim, seen, changed, at in (
        (berlin, {"berlin", "both"}, {"berlin"}, {berlin}),
        ([berlin, rome], {"berlin", "both"}, {"berlin", "both"}, {berlin, rome}),
        (f"{rome} (default)", {"default", "both"}, {"default"}, {"", rome}),
        ("(default)", {"default"}, {"default"}, {""}),
        ("*", everything, everything, places),
        ("", set(), set(), set()),
        (None, set(), set(), set()),
    ):
        headers = staff(issuer, "owners", **({} if claim is None else {"custom:locations": claim}))
        listed = with_tokens("GET", f"/orders?userId={new_id}", headers=headers).said["orders"]
        assert {order["orderId"].removeprefix(f"{new_id}-") for order in listed} == seen
        path = f"/orders/{new_id}"
        assert {name for name in lines if may("GET", f"{path}-{name}")} == seen
        # Later confirmations are repetitions, which succeed.
        assert {name for name in lines if may("POST", f"{path}-{name}/confirm")} == changed
        path = f"/products/{new_id}"
        assert {place for place in places if may("GET", f"{path}/history?locationId={place}")} == at
        assert {each for each in places if may("POST", f"{path}/adjustments", receipt(each))} == at
        stock = with_tokens("GET", f"/stock/{new_id}", headers=headers)
        assert (stock.status == 200) is bool(at)
        levels = stock.said.get("places", [stock.said]) if at else []
        assert {each.get("locationId", "") for each in levels} == at
    for name in lines:
        steps = api("GET", f"/orders/{new_id}-{name}").said["steps"]
        assert [step["actor"] for step in steps] == ["owners"]


def test_a_token_for_another_api_is_refused(with_tokens, issuer):
    with Issuer() as stranger:
        forged = stranger.token(sub="u-7", iss=issuer.url)
    for token, status in (
        ("", 401),
        (issuer.token(sub="u-7", aud="another"), 401),
        (issuer.token(sub="u-7", iss="https://elsewhere.example"), 401),
        (forged, 401),
        (issuer.token(sub="u-7"), 200),
    ):
        said = with_tokens("GET", "/products?ids=p", headers=bearer(token))
        assert said.status == status, token
