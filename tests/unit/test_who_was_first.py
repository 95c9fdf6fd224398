"""Who did what a second person asks for, or prevents it, and when: in answers to commands on orders."""

import json

import pytest

from local.tokens import ROLES
from tests.support.http import TEA, WAIT, Api


def staff(name, locations="*"):
    return {"sub": name, "cognito:groups": "[owners]", "custom:locations": locations}


def part(step, units, **more):
    return {"stepId": step, "items": [{"productId": TEA, "quantity": units}], **more}


@pytest.fixture
def api(tea_shop):
    """Make the API of a shop with roles, and place an order for three packets of tea."""
    tea_shop.restart(
        USER_ID_CLAIM="sub", ROLES=json.dumps(ROLES | {"locationsClaim": "custom:locations"})
    )
    api = Api(tea_shop)
    order = {"orderId": "o-1", "userId": "u-7", "items": [{"productId": TEA, "quantity": 3}]}
    api("POST", "/orders", order, headers=WAIT)
    return api


def send(api, name, path, body=None):
    return api("POST", f"/orders/o-1/{path}", body, claims=staff(name))


def steps(api):
    return api("GET", "/orders/o-1", claims=staff("anna")).document.get("steps", [])


CONFIRM, FULFIL, CANCEL = "confirm", "fulfil", "cancel"
ALL = ("anna", FULFIL, None)
ONE, TWO = ("anna", FULFIL, part("s-1", 1)), ("ben", FULFIL, part("s-2", 2))
LOST = ("ben", CANCEL, part("s-3", 2, restock=False))
BACK = ("anna", "returns", part("s-4", 3, restock=True))
PAID, OFF = ("anna", CONFIRM, None), ("anna", CANCEL, None)


@pytest.mark.parametrize(
    ("before", "second", "code", "first"),
    [
        ([PAID], (CONFIRM, None), "REPLAYED", 0),
        ([PAID, ALL], (FULFIL, None), "REPLAYED", 1),
        ([PAID, ALL], (CONFIRM, None), "REPLAYED", 0),
        ([OFF], (CANCEL, None), "REPLAYED", 0),
        ([OFF], (CONFIRM, None), "ORDER_CANCELLED", 0),
        ([OFF], (FULFIL, None), "ORDER_CANCELLED", 0),
        ([PAID, ALL], (CANCEL, None), "ORDER_FULFILLED", 1),
        # Two people hand over parts: the last one took the units, however many came before.
        ([PAID, ONE, TWO], (FULFIL, None), "REPLAYED", 2),
        ([PAID, ONE, TWO], (FULFIL, part("s-9", 1)), "NOT_OPEN", 2),
        ([PAID, ONE], (FULFIL, part("s-9", 3)), "NOT_OPEN", 1),
        ([PAID, ONE, LOST], (FULFIL, part("s-9", 1)), "NOT_OPEN", 2),
        # A part that is sent again is recognised by its step, not as the latest one.
        ([PAID, ONE, TWO], (FULFIL, part("s-1", 1)), "REPLAYED", 1),
        ([PAID, ALL, BACK], ("returns", part("s-9", 1, restock=True)), "NOT_DELIVERED", 2),
        ([PAID], ("extend", {"until": "2027-01-15T09:00:00Z"}), "NOT_HELD", 0),
    ],
)
def test_the_second_person_is_told_who_was_first_and_when(api, before, second, code, first):
    for name, path, body in before:
        assert send(api, name, path, body).status == 200
    said = send(api, "carla", *second)
    step = steps(api)[first]
    assert said.document["earlierStep"] == {name: step[name] for name in ("action", "at", "actor")}
    assert code == said.document.get("result", said.document.get("code"))
    words = said.document["message" if said.status == 200 else "detail"]
    assert f"ed by {step['actor']} at {step['at']}" in words
    assert len(steps(api)) == len(before), "the second command changes nothing"


def test_the_step_is_one_that_moved_the_same_product(api):
    api.shop.invoke("manage_products", {"action": "create", "productId": "cup", "openingStock": 9})
    both = [{"productId": each, "quantity": 1} for each in (TEA, "cup")]
    api("POST", "/orders", {"orderId": "o-2", "userId": "u-7", "items": both}, headers=WAIT)
    api("POST", "/orders/o-2/confirm")
    for name, item in zip(("anna", "ben"), both, strict=True):
        step = {"stepId": name, "items": [item]}
        assert api("POST", "/orders/o-2/fulfil", step, claims=staff(name)).status == 200
    said = api("POST", "/orders/o-2/fulfil", {"stepId": "s-9", "items": both[:1]})
    assert said.code == (409, "NOT_OPEN")
    assert said.document["earlierStep"]["actor"] == "anna"


@pytest.mark.parametrize(
    ("before", "second", "code"),
    [
        ([], (FULFIL, None), "NOT_CONFIRMED"),
        ([], (FULFIL, part("s-9", 4)), "NOT_CONFIRMED"),
        ([PAID], (FULFIL, part("s-9", 4)), "NOT_OPEN"),
        ([PAID, ONE], ("returns", part("s-9", 2, restock=True)), "NOT_FULFILLED"),
    ],
)
def test_what_nobody_has_prevented_names_nobody(api, before, second, code):
    for name, path, body in before:
        assert send(api, name, path, body).status == 200
    said = send(api, "carla", *second)
    assert (said.document["code"], "earlierStep" in said.document) == (code, False)


def test_the_first_answer_names_nobody_and_direct_commands_are_told_the_same(api):
    assert "earlierStep" not in send(api, "anna", CONFIRM).document
    command = {"action": "confirm", "orderId": "o-1", "actor": "ben"}
    said = api.shop.invoke("change_orders", command)
    (step,) = steps(api)
    earlier = {"action": "confirm", "at": step["at"], "actor": "anna"}
    assert (said["result"], said["earlierStep"]) == ("REPLAYED", earlier)
    api.shop.invoke("change_orders", {"action": "fulfil", "orderId": "o-1"})
    said = api.shop.invoke("change_orders", {"action": "cancel", "orderId": "o-1"})
    assert said["earlierStep"].keys() == {"action", "at"}, "the sender named no actor"
    assert said["message"].endswith(f"(already fulfilled at {said['earlierStep']['at']})")


def test_only_who_may_act_on_a_line_is_told_who_was_first(api):
    there = {"productId": TEA, "locationId": "berlin"}
    api.shop.invoke("manage_products", {"action": "create", **there, "openingStock": 9})
    order = {"orderId": "o-2", "userId": "u-7", "items": [there | {"quantity": 2}]}
    api("POST", "/orders", order, headers=WAIT)
    api("POST", "/orders/o-2/confirm")
    parcel = part("s-1", 2)
    first, second = staff("anna", "berlin"), staff("ben", "[rome berlin]")
    assert api("POST", "/orders/o-2/fulfil", parcel, claims=first).status == 200
    said = api("POST", "/orders/o-2/fulfil", part("s-2", 2), claims=second)
    assert (said.document["code"], said.document["earlierStep"]["actor"]) == ("NOT_OPEN", "anna")
    for claims in (staff("carla", "rome"), {"sub": "u-7"}):
        said = api("POST", "/orders/o-2/fulfil", parcel, claims=claims)
        assert said.status == 403
        assert "anna" not in said.text
