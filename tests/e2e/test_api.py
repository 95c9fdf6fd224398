"""The HTTP API on the embedded AWS: access control, and an order's life as a client sees it."""

import json
import os
import re
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from infra.api import ROUTES
from local import ROOT
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
    placed = api("POST", "/orders", order(new_id, new_id, user), {"Prefer": "wait=20"})
    assert placed.status == 201, placed
    assert placed.headers["location"] == f"/orders/{new_id}"
    seen = api("GET", placed.headers["location"])
    assert (seen.status, seen.said) == (200, placed.said)
    tag = seen.headers["etag"]
    again = api("GET", f"/orders/{new_id}", headers={"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    assert api("POST", f"/orders/{new_id}/confirm").said["status"] == "CONFIRMED"
    assert api("POST", f"/orders/{new_id}/cancel").said["stockReturned"] == {new_id: 1}
    listed = api("GET", f"/orders?userId={user}").said["orders"]
    assert [(one["orderId"], one["status"]) for one in listed] == [(new_id, "CANCELLED")]
    assert api("GET", f"/products/{new_id}").said["availability"] == "IN_STOCK"


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


def test_the_running_api_keeps_its_contract(aws, api, monkeypatch):
    """Schemathesis sends signed requests, and finds no answer that breaks the API's contract."""
    seconds = os.environ.get("API_SECONDS")
    # The long run of `make explore` uses new random data, tries the limits of every route's values, and also follows
    # links from one answer to the next request. The short run tries the limits of placing and listing orders.
    usual = ("--max-examples", "3", "--seed", "1", "--phases", "examples,fuzzing")
    with_limits = ("--phases", "examples,coverage,fuzzing")
    if seconds:
        usual = ("--max-time", seconds, "--max-examples", "1000")

    def tested(paths, *more):
        done = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("schemathesis")), "run", "docs/openapi.yaml"),
                *("--url", api.url, "--tls-verify", os.environ["AWS_CA_BUNDLE"]),
                *(*usual, "--workers", "1", "--no-color", "--include-path-regex", paths, *more),
                # API Gateway answers 404 to unknown routes and methods alike. The embedded AWS does not verify
                # signatures of an HTTP API, only the claimed identity, which other tests here cover. A delete of a
                # generation that is gone is a success, also where another one has the same id.
                *("--exclude-checks", "unsupported_method,ignored_auth,use_after_free"),
                *("--generation-database", "none"),
            ],
            cwd=ROOT,
            env=os.environ | {"SCHEMATHESIS_HOOKS": "tests.support.signed_requests"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return int(re.search(r"Tested: (\d+)", done.stdout)[1])

    # Two processes, which mostly wait for answers. Threads of one process would not work: Python 3.11's parser counts
    # its recursion depth across threads, and Hypothesis parses code.
    # Links lead from orders to one order's routes, so the long run keeps these together.
    of_orders = "orders" if seconds else "orders$"
    # While a count holds a product's lease, an order for it cannot be cancelled, so a 503 is right. The short run sends
    # both from one process, one after the other. The long run cannot, but no link leads to a count.
    others = f"^/(?!{of_orders}|counts)" if seconds else f"^/(?!{of_orders})"
    with ThreadPoolExecutor(2) as pool:
        orders = pool.submit(tested, f"^/{of_orders}", *(() if seconds else with_limits))
        routes = tested(others) + orders.result()
    if seconds:
        routes += tested("^/counts", *with_limits)
    assert routes == len(ROUTES)


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


def test_a_picker_ships_orders_of_the_tokens_locations_and_does_nothing_else(
    aws, api, with_tokens, issuer, new_id
):
    create(aws, new_id, 10)
    path = f"/orders/{new_id}"
    assert api("POST", "/orders", order(new_id, new_id), {"Prefer": "wait=20"}).status == 201
    assert api("POST", f"{path}/confirm").status == 200
    here, there = (
        bearer(
            issuer.token(
                sub="tom", **{"cognito:groups": ["pickers"], "custom:locations": locations}
            )
        )
        for locations in ("berlin (default)", ["berlin", "rome"])
    )
    refused = with_tokens("POST", f"{path}/cancel", headers=here)
    assert (refused.status, refused.said["permission"]) == (403, "orders.cancel")
    elsewhere = with_tokens("POST", f"{path}/fulfil", headers=there)
    assert (elsewhere.status, elsewhere.said["code"]) == (403, "OTHER_LOCATION")
    assert "(berlin, rome)" in elsewhere.said["detail"]
    assert with_tokens("POST", f"{path}/fulfil", headers=here).status == 200
    steps = with_tokens("GET", path, headers=here).said["steps"]
    assert steps[-1]["actor"] == "tom"


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
