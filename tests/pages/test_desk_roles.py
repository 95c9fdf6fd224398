"""What callers of a role see at the desk, and the calls that its pages make."""

import json

import pytest

from local.tokens import ROLES
from tests.support.desk import TEA, desk_for, said, show
from tests.support.hands import scan
from tests.support.pages import PAGES, fill

MOST_CALLS = 5
BERLIN = {"productId": TEA, "locationId": "berlin"}
OF_SERVER = ("Dead letters", "Lanes", "Dashboard", "Try it", "API")


@pytest.fixture
def desk(page):
    with desk_for(page, USER_ID_CLAIM="sub", ROLES=json.dumps(ROLES)) as desk:
        fill(desk)
        yield desk


def act_as(page, desk, role, locations="*"):
    """Let the page call the API as anna, who has a role."""
    desk.api.claims = {
        "sub": "anna",
        "cognito:groups": f"[{role}]",
        "custom:locations": locations,
    }
    page.reload()
    page.locator("#view[aria-busy=false]").wait_for()


def parts(page):
    links = page.get_by_role("navigation", name="Pages").get_by_role("link")
    return [text for text in links.all_inner_texts() if text not in OF_SERVER]


def controls(page):
    page.locator("#view[aria-busy=false]").wait_for()
    return page.locator("main :is(button:not(.close), summary)").all_text_contents()


def test_a_role_sees_what_it_may_do(page, desk):
    all_parts = ["Today", "Orders", "Scan", "Products", "Count", "Transfers"]
    for role, allowed in (
        ("pickers", ["Today", "Orders", "Scan"]),
        ("stock", ["Today", "Products", "Count", "Transfers"]),
        ("support", ["Today", "Orders"]),
        ("owners", all_parts),
    ):
        act_as(page, desk, role)
        assert parts(page) == allowed, role
        assert page.locator("#who").inner_text().startswith("You are anna")
    assert "may" not in page.locator("#who").inner_text()

    act_as(page, desk, "support")
    show(page, desk, "order/o-1", "Order o-1")
    cancel = ["Cancel", "Cancel everything not shipped yet", "Cancel these units"]
    assert controls(page) == ["Change the order", *cancel]
    # Names of products are for those who may read products.
    page.get_by_role("cell", name=TEA).first.wait_for()
    # Pages of products are for those who may read stock.
    act_as(page, desk, "pickers")
    page.get_by_role("cell", name="Earl Grey").first.wait_for()
    show(page, desk, f"search/{TEA}", f"Search: {TEA}")
    page.locator("main li").filter(has_text="Earl Grey").wait_for()
    assert page.locator("main a").count() == 0
    # Nothing is scanned that cannot be booked.
    page.goto(f"{desk.origin}/desk/#/receive")
    page.get_by_text("your role does not include the permission stock.adjust").wait_for()
    desk.command(
        "ManageProducts", action="change", productId=TEA, barcodes=[{"code": "case-7", "units": 12}]
    )
    act_as(page, desk, "stock")
    show(page, desk, f"product/{TEA}", "Earl Grey")
    show(page, desk, f"product/{TEA}/berlin", "Earl Grey at berlin")
    assert "Receive" in controls(page)
    page.get_by_text("Barcodes: case-7*12").wait_for()
    assert not {"Discontinue", "Save limits", "List it at another location"} & {*controls(page)}
    page.goto(f"{desk.origin}/desk/#/orders")
    page.get_by_text("your role does not include the permission orders.read").wait_for()


def test_whoever_works_at_one_location_begins_there_and_handles_its_lines(page, desk):
    desk.sell("o-x", {**BERLIN, "quantity": 2}, ("tea-hojicha", 1))
    desk.sell("o-y", {**BERLIN, "quantity": 1})
    page.goto("about:blank")
    page.goto(f"{desk.origin}/desk/")
    act_as(page, desk, "pickers", "berlin")
    page.get_by_role("heading", level=1, name="Orders to ship from berlin").wait_for()
    assert page.get_by_label("Ships from").locator("option").all_inner_texts() == [
        *("all locations", "berlin"),
    ]
    assert page.get_by_text("o-1").count() == 0
    page.get_by_role("button", name="Hand over o-x").click()
    said(page, "Hand over 2 Earl Grey of o-x from berlin: done")
    show(page, desk, "order/o-y", "Order o-y")
    page.get_by_role("button", name="Hand over", exact=True).click()
    said(page, "Hand over o-y: done")
    assert [desk.shop.status(one) for one in ("o-x", "o-y")] == ["CONFIRMED", "FULFILLED"]
    # It has nothing more to do with the rest.
    show(page, desk, "order/o-x", "Order o-x")
    undo = ["Undo a hand-over", "Undo the hand-over"]
    assert controls(page) == ["Hand over part of it", *undo]
    page.goto(f"{desk.origin}/desk/#/order/o-1")
    page.get_by_text("(OTHER_LOCATION)").wait_for()
    show(page, desk, "scan", "Scan")
    scan(page, "o-1", "Enter")
    said(page, "Order o-1 ships from another location.", "alert")
    act_as(page, desk, "stock", "berlin")
    show(page, desk, "receive", "Receive a delivery")
    page.get_by_label("Delivery note").fill("LS-1")
    assert page.get_by_label("Place").input_value() == "berlin"
    page.get_by_label("Place").fill("munich")
    page.get_by_label("Product or code").focus()
    scan(page, TEA, "Enter")
    page.get_by_role("button", name="Book 1 line").click()
    said(page, "Nothing was booked, because your role does not work at munich.", "alert")
    # It receives what is sent to it.
    show(page, desk, "transfers", "Transfers")
    page.get_by_role("link", name="van-7").click()
    page.get_by_role("button", name="Everything arrived").click()
    page.get_by_role("button", name="Book 1 line").click()
    said(page, "Book 1 line of van-7: 1 booked")
    page.get_by_text("Nothing is on the way under van-7 from or to your locations.").wait_for()


def test_each_page_makes_few_calls(page, desk):
    calls = {}
    for shown in PAGES:
        # Staff search, but only operators of this machine try the API.
        page.goto("about:blank")
        page.goto(f"{desk.origin}/desk/{shown.path}")
        page.get_by_role("heading", level=1, name=shown.title, exact=True).wait_for()
        page.locator("#view[aria-busy=false]").wait_for()
        page.wait_for_timeout(50)
        calls[shown.path] = {call for call in desk.api.calls if call != "GET /about"}
        desk.api.calls.clear()
    assert {path: some for path, some in calls.items() if len(some) > MOST_CALLS} == {}
