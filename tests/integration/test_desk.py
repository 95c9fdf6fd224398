"""The desk of a machine in a browser: its pages use the HTTP API of the stack, and follow what changes."""

import uuid

import pytest

from local.desk import background
from testing.world.events import order_body
from tests.support.desk import ask
from tests.support.stack import create


@pytest.fixture(scope="module")
def server(aws):
    yield background.start()
    background.stop()


def test_an_order_reaches_the_desk_and_is_handed_over_there(aws, page, server):
    about = ask(server.endpoint, "GET", "/api/about", X_Desk_Token=server.token).said
    assert about.pop("caller") == {"name": "operator", "permissions": ["*"], "locations": None}
    here = {"stage": "dev", "production": False, "currency": {"code": "EUR", "digits": 2}}
    here |= {"movements": True, "changes": True, "amendPaid": False}
    assert about == here | {"locations": [""]}

    product = create(aws, f"drop-{uuid.uuid4().hex[:6]}", 3)["productId"]
    page.goto(server.address())
    page.goto(f"{server.endpoint}/desk/#/orders")
    page.locator("#live.on").wait_for()
    order_id = f"{product}-1"
    aws.invoke("PlaceOrders", order_body(order_id, {product: 2}))
    aws.invoke("ChangeOrders", {"action": "confirm", "orderId": order_id})
    page.get_by_role("button", name=f"Hand over {order_id}").click()
    page.get_by_role("status").get_by_text(f"Hand over {order_id}: done").wait_for()
    page.goto(f"{server.endpoint}/desk/#/drop/{product}")
    page.get_by_text("Nothing sold yet").wait_for()
    aws.invoke("PlaceOrders", order_body(f"{product}-2", {product: 1}))
    page.get_by_text("Sold out at").wait_for()
    sold, left, *_ = page.locator(".big div").all_inner_texts()
    assert (sold.split()[0], left.split()[0]) == ("1", "0")
    page.goto("about:blank")
