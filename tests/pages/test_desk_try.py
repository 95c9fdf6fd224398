"""The pages for developers in a browser: placing orders by hand, and the contract of the HTTP API."""

import json

import yaml

from client.sending import Reply
from local import ROOT
from tests.support.desk import TEA, ApiOfShop, desk_for

CONTRACT = yaml.load((ROOT / "docs" / "openapi.yaml").read_text("utf-8"), yaml.CSafeLoader)


def test_an_order_is_placed_and_taken_further_and_followed(page, desk):
    page.goto(desk.address("try"))
    page.get_by_role("radio", name="Earl Grey tea-earl-grey €6.80 in stock (60)").check()
    page.get_by_label("Quantity").fill("3")
    page.get_by_role("button", name="Place order").click()
    page.get_by_role("status").get_by_text("placed, 201 Created after").wait_for()
    order = page.locator("[data-order]", has_text="3 Earl Grey")
    order.get_by_text("waiting for payment").wait_for()
    order.get_by_role("button", name="Confirm payment").click()
    order.get_by_role("status").get_by_text("done, 200 OK after").wait_for()
    order.get_by_text("paid, to ship").wait_for()
    assert not order.get_by_role("button", name="Confirm payment").count()

    # After a final outcome, the page orders again under another id.
    page.get_by_label("Quantity").fill("3000")
    for number in (1, 2):
        page.get_by_role("button", name="Place order").click()
        page.locator("[data-order] .bad").nth(number - 1).wait_for()
        page.get_by_role("alert").get_by_text("(INSUFFICIENT_STOCK)").wait_for()

    # A change shows the order's progress and the changed stock.
    page.get_by_text("in stock (57)").wait_for()
    desk.command(
        "AdjustStock", action="adjust", adjustmentId="a", productId=TEA, delta=-7, reason="DAMAGE"
    )
    order_id = order.get_attribute("data-order")
    desk.command("ChangeOrders", action="fulfil", orderId=order_id)
    desk.happens(orderId=order_id)
    order.get_by_text("shipped", exact=True).wait_for()
    page.get_by_text("in stock (50)").wait_for()
    assert page.get_by_role("radio", name="Earl Grey tea-earl-grey").is_checked()

    # The orders are listed again after a reload.
    page.reload()
    order.get_by_text("shipped", exact=True).wait_for()
    assert page.locator("[data-order]").count() == 3


def open_route(page, name):
    route = page.locator(f"#operations-{name}")
    route.locator(".opblock-summary-control").click()
    return route


def test_the_contract_has_every_route_and_sends_a_request_with_the_chosen_token(
    page, desk, monkeypatch
):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(desk.address("contract"))
    page.locator(".models").wait_for()
    routes = [
        f"{method.upper()} {path} {operation['summary']}"
        for path, item in CONTRACT["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    ]
    heads = page.locator(".opblock-summary").all_inner_texts()
    # Paths may contain invisible spaces, where they may break.
    assert sorted(" ".join(head.replace("\u200b", "").split()) for head in heads) == sorted(routes)
    schemas = page.locator(".models [data-json-schema-level='0'] .json-schema-2020-12__title")
    assert schemas.all_inner_texts() == list(CONTRACT["components"]["schemas"])
    assert page.locator(".errors-wrapper").count() == 0

    sent = []

    def answer(_, *request):
        if not request[2].startswith("/changes"):
            sent.append(request)
        return Reply(200, {"content-type": "application/json"}, b'{"result": "REPLAYED"}')

    monkeypatch.setattr(ApiOfShop, "call", answer)
    operation = open_route(page, "orders-extendHold")
    assert page.url.endswith("/contract#/orders/extendHold")
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_label("orderId", exact=True).fill("o|1")
    page.get_by_label("Server (").select_option("/as/customer")
    operation.get_by_role("button", name="Execute").click()
    operation.locator(".live-responses-table", has_text="REPLAYED").wait_for()
    ((caller, method, path, headers, body),) = sent
    assert (caller, method, path) == ("customer", "POST", "/orders/o%7C1/extend")
    assert headers == {"Content-Type": "application/json"}
    assert json.loads(body) == {"until": "2026-11-20T09:45:00Z"}
    # Images in the style sheet are not loaded from another server.
    assert [one for one in asked if not one.startswith((desk.origin, "data:"))] == []


def test_a_link_opens_one_route_on_a_phone_and_an_account_is_only_read(page):
    page.set_viewport_size({"width": 400, "height": 800})
    with desk_for(page, is_embedded=False) as desk:
        # The page is at the desk's address already: opening it again would begin a reload, which may stop the next step.
        page.goto(f"{desk.origin}/desk/contract#/orders/placeOrder")
        page.locator(".responses-table").wait_for()
        page.get_by_text("Request body").wait_for()
        shown = page.inner_text(".opblock.is-open")
        route = CONTRACT["paths"]["/orders"]["post"]
        body = CONTRACT["components"]["schemas"]["NewOrder"]["properties"]
        wanted = (route["parameters"][0]["name"], *body, *route["responses"])
        assert [one for one in wanted if one not in shown] == []
        assert "Try it out" not in shown
        assert page.evaluate("document.documentElement.scrollWidth") == 400
