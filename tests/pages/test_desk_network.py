"""The desk of an in-memory tea shop while its user is fast, its server is slow, or its network is gone."""

import json

import pytest

from tests.support.desk import card, desk_for, said, show

TEA = "tea-earl-grey"
# With `slow`, reads take so many milliseconds longer. With `isQuick`, whatever takes too long does so twenty times as fast.
SLOW = """
const { fetch: real, setTimeout: wait } = window, timeout = AbortSignal.timeout;
const least = (milliseconds) => milliseconds / (window.isQuick && milliseconds >= 10_000 ? 20 : 1);
window.slow = 0;
window.fetch = async (path, options) => {
  const answer = await real(path, options);
  if (!options.body && !path.includes("/changes")) await new Promise((go) => setTimeout(go, window.slow));
  return answer;
};
window.setTimeout = (work, milliseconds) => wait(work, least(milliseconds));
AbortSignal.timeout = (milliseconds) => timeout.call(AbortSignal, least(milliseconds));
"""


@pytest.fixture
def page(failing):
    failing.add_init_script(SLOW)
    failing.errors = []
    failing.on("pageerror", lambda error: failing.errors.append(str(error)))
    yield failing
    assert failing.errors == []


def hold_commands(page):
    """Hold the page's commands back. Returns a list that will receive them."""
    held = []

    def hold(route):
        if route.request.method == "GET":
            route.continue_()
        else:
            held.append(route)

    page.route("**/api/**", hold)
    return held


def wait_for(page, held, count):
    for _ in range(500):
        if len(held) >= count:
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"the page has sent {len(held)} commands")


# ---------------------------------------------------------------- clicks


def test_a_page_opened_while_another_waits_for_its_last_answer_is_shown(page, desk):
    desk.sell("o-1")
    show(page, desk, "products", "Products")
    held = []

    def hold(route):
        held.append(route)

    for path in ("**/local/attention", "**/api/orders?*"):
        page.route(path, hold)
    with page.expect_response("**/api/transfers"), page.expect_response("**/local/today"):
        page.goto(f"{desk.origin}/desk/#/today")
    # By then, Today has everything else.
    page.evaluate("new Promise((resolve) => setTimeout(resolve, 100))")
    with page.expect_request("**/api/orders?*"):
        page.goto(f"{desk.origin}/desk/#/orders")
    for path, route in zip(("**/local/attention", "**/api/orders?*"), held, strict=True):
        with page.expect_response(path):
            route.continue_()
    page.get_by_role("heading", level=1, name="Orders to ship", exact=True).wait_for(timeout=5000)
    assert page.get_by_role("link", name="o-1").is_visible()


def test_clicks_as_fast_as_a_person_makes_them_all_take_effect(page, desk):
    order_ids = [f"o-{number}" for number in range(4)]
    for order_id in order_ids:
        desk.sell(order_id)
    show(page, desk, "orders", "Orders to ship")
    reads = []
    page.on("request", lambda sent: "/api/orders?" in sent.url and reads.append(sent.url))
    page.evaluate("window.slow = 750")
    for order_id in order_ids:
        page.get_by_role("button", name=f"Hand over {order_id}").click()
        page.wait_for_timeout(300)
    for order_id in order_ids:
        said(page, f"Hand over {order_id}: done")
    assert {desk.shop.status(order_id) for order_id in order_ids} == {"FULFILLED"}
    assert len(reads) < len(order_ids), "those that wait share a read"


def test_the_same_form_is_sent_once_and_other_contents_wait_for_it(page, desk):
    before = desk.shop.stock(TEA)
    show(page, desk, f"product/{TEA}", "Earl Grey")
    held = hold_commands(page)
    units = page.get_by_label("Units that came in")
    units.fill("7")
    units.press("Enter")
    wait_for(page, held, 1)
    units.press("Enter")
    said(page, f"Receive 7 {TEA} … still in progress. Pressing again does not repeat it")
    units.fill("5")
    units.press("Enter")
    said(page, f"Receive 5 {TEA} …")
    units.fill("3")
    assert len(held) == 1
    held[0].continue_()
    said(page, f"Receive 7 {TEA}: done; Receive 5 {TEA} …")
    wait_for(page, held, 2)
    held[1].continue_()
    said(page, f"Receive 7 {TEA}: done; Receive 5 {TEA}: done")
    assert desk.shop.stock(TEA) == before + 12
    # What has been typed since stays.
    assert units.input_value() == "3"

    # A form that was left while it was sent is empty once it is done.
    units.press("Enter")
    wait_for(page, held, 3)
    show(page, desk, "products", "Products")
    page.go_back()
    said(page, f"Receive 3 {TEA} …")
    assert units.input_value() == "3"
    held[2].continue_()
    said(page, f"Receive 3 {TEA}: done")
    assert units.input_value() == ""


def test_a_second_click_or_enter_presses_nothing_else(page, desk):
    before = desk.shop.stock(TEA)
    for order_id in ("o-1", "o-2"):
        desk.place(order_id)

    def click_twice(button, text):
        # Unlike the mouse, this waits until the page has stopped moving.
        button.click()
        said(page, text)
        page.mouse.down(click_count=2)
        page.mouse.up(click_count=2)
        said(page, text)

    # Then other buttons are where these were.
    show(page, desk, "orders/of/auth0:anna", "Orders of auth0:anna")
    click_twice(
        page.get_by_role("button", name="Confirm payment o-1"), "Confirm payment of o-1: done"
    )
    show(page, desk, "order/o-2", "Order o-2")
    page.get_by_role("button", name="Confirm payment").press("Enter")
    said(page, "Confirm payment of o-2: done")
    page.keyboard.press("Enter")
    show(page, desk, f"product/{TEA}", "Earl Grey")
    page.get_by_label("Units that came in").fill("7")
    click_twice(page.get_by_role("button", name="Receive"), f"Receive 7 {TEA}: done")
    assert page.get_by_role("alert").get_by_text("Please fill out").count() == 0
    assert [desk.shop.status(order_id) for order_id in ("o-1", "o-2")] == ["CONFIRMED"] * 2
    assert desk.shop.stock(TEA) == before - 6 + 7


def test_questions_are_asked_one_after_the_other(page):
    with desk_for(page, is_embedded=False, is_production=True) as desk:
        show(page, desk, f"product/{TEA}", "Earl Grey")
        page.get_by_label("Units that came in").fill("7")
        # Both are pressed before the first question is there.
        page.evaluate(
            """() => {
              for (const text of ["Receive", "Begin to count"])
                [...document.querySelectorAll("button")].find((one) => one.innerText === text).click();
            }"""
        )
        dialog = page.get_by_role("dialog")
        dialog.get_by_text(f"Receive 7 {TEA}?").wait_for()
        dialog.get_by_role("button", name="Yes, do it").click()
        dialog.get_by_text(f"Count {TEA}?").wait_for()
        dialog.get_by_role("button", name="Yes, do it").click()
        said(page, f"Receive 7 {TEA}: done")
        said(page, f"Count {TEA}: begun")


def test_what_came_of_an_action_is_said_on_whatever_page_the_reader_is(page, desk):
    desk.sell("o-1")
    desk.sell("o-2")
    show(page, desk, "orders", "Orders to ship")
    held = hold_commands(page)
    for order_id in ("o-1", "o-2"):
        page.get_by_role("button", name=f"Hand over {order_id}").click()
    wait_for(page, held, 2)
    show(page, desk, "products", "Products")
    desk.command("ChangeOrders", action="cancel", orderId="o-2")
    for route in held:
        route.continue_()
    said(page, "Hand over o-1: done")
    said(page, "Hand over o-2 failed: Cancelled", "alert")
    show(page, desk, "scan", "Scan")
    said(page, "Hand over o-2 failed", "alert")
    page.keyboard.press("Escape")
    page.locator("#said .close").first.wait_for(state="detached")


# ---------------------------------------------------------------- the network


def test_a_stage_that_notes_no_changes_is_not_live_and_is_refreshed_by_hand(page):
    with desk_for(page, notes_changes=False) as desk:
        show(page, desk, "orders", "Orders to ship")
        page.locator("#live.off").get_by_text(
            "not live: this stage does not note changes"
        ).wait_for()
        desk.sell("o-1")
        page.get_by_role("button", name="Refresh").click()
        page.get_by_role("link", name="o-1").wait_for()


def test_a_change_that_was_not_noted_is_shown_after_ten_minutes(page, desk):
    show(page, desk, "orders", "Orders to ship")
    desk.sell("o-1")
    page.evaluate("{ const now = Date.now; Date.now = () => now() + 600_000; }")
    page.get_by_role("link", name="o-1").wait_for()


def test_changes_one_after_the_other_are_read_every_five_seconds(page, desk):
    show(page, desk, "orders", "Orders to ship")
    page.locator("#view[aria-busy=false]").wait_for()
    page.evaluate("performance.clearResourceTimings()")
    desk.sell("o-1")
    desk.happens(orderId="o-1")
    page.get_by_role("link", name="o-1").wait_for(timeout=2000)
    for order_id in ("o-2", "o-3"):
        desk.sell(order_id)
        desk.happens(orderId=order_id)
        page.wait_for_timeout(500)
    for order_id in ("o-2", "o-3"):
        page.get_by_role("link", name=order_id).wait_for()
    first, second = page.evaluate(
        """performance.getEntriesByType("resource").filter(({ name }) => name.includes("/api/orders?"))
          .map(({ startTime }) => startTime)"""
    )
    assert second - first == pytest.approx(5000, abs=200)


def test_what_happened_while_the_api_did_not_answer_is_read_again(page, desk):
    show(page, desk, "orders", "Orders to ship")
    busy = {"status": 429, "content_type": "application/json", "body": '{"message": "Too Many"}'}
    page.route("**/api/changes*", lambda route: route.fulfill(**busy))
    page.evaluate("dispatchEvent(new Event('online'))")
    page.locator("#live.off").get_by_text("not live: there are too many requests").wait_for()
    desk.sell("o-1")
    desk.api.change("orders", "o-1")
    page.unroute("**/api/changes*")
    page.evaluate("dispatchEvent(new Event('online'))")
    page.locator("#live.on").wait_for()
    page.get_by_role("link", name="o-1").wait_for()


def test_a_network_that_is_gone_is_said_and_what_was_pressed_can_be_pressed_again(page, desk):
    before = desk.shop.stock(TEA)
    show(page, desk, f"product/{TEA}", "Earl Grey")
    page.locator("#live.on").wait_for()
    page.context.set_offline(True)
    try:
        page.locator("#live.off").get_by_text("not live: no answer").wait_for()
        page.get_by_label("Units that came in").fill("7")
        page.get_by_role("button", name="Receive").click()
        said(page, f"Receive 7 {TEA} failed: no answer", "alert")
        page.get_by_role("link", name="Lanes", exact=True).click()
        page.get_by_text("no answer: the desk's command has ended").first.wait_for()
    finally:
        page.context.set_offline(False)
    page.get_by_role("button", name="Refresh").click()
    page.get_by_role("heading", level=1, name="Lanes").wait_for()
    page.go_back()
    # The server does what it is asked, and its answer never comes.
    page.evaluate("window.isQuick = true")
    lost = []
    page.route("**/adjustments", lambda route: lost.append(route.fetch().text()), times=1)
    page.get_by_text("You typed this earlier.").wait_for()
    page.get_by_role("button", name="Receive").click()
    said(page, "no answer within 30 s. The change may have been made", "alert")
    # It is the same change after a reload too, and if something else was typed in between.
    page.reload()
    page.get_by_text("You typed this earlier.").wait_for()
    for text in ("", "70", "7"):
        page.get_by_label("Units that came in").fill(text)
    page.get_by_role("button", name="Receive").click()
    said(page, f"Receive 7 {TEA}: done before, nothing changed")
    assert json.loads(lost[0])["result"] == "APPLIED"
    assert desk.shop.stock(TEA) == before + 7


def test_no_address_leaves_the_page_loading_and_no_search_takes_a_reader_away(page, desk):
    for path, text in (
        ("orders/sent", "there is no list of orders called sent"),
        ("orders/of", "there is no list of orders called of"),
        ("orders/of/100%", "Orders of 100%"),
        ("order/%E0%A4%A", "Cannot show this page"),
        ("products/SOON", "Lady Grey"),
    ):
        page.goto(f"{desk.origin}/desk/#/{path}")
        page.get_by_text(text).first.wait_for()

    # A search takes no reader away from the next page.
    desk.sell("o-1")
    page.evaluate("window.slow = 500")
    page.locator("#search").fill("o-1")
    with page.expect_response("**/api/orders/o-1"):
        page.keyboard.press("Enter")
    page.get_by_role("link", name="Products", exact=True).click()
    page.get_by_role("heading", level=1, name="Products").wait_for()
    page.get_by_role("link", name="Earl Grey", exact=True).wait_for()
    assert page.url == f"{desk.origin}/desk/#/products"


# ---------------------------------------------------------------- what was typed


def test_what_was_typed_stays_across_a_reload_and_what_a_colleague_changes(page, desk):
    show(page, desk, f"product/{TEA}", "Earl Grey")
    page.get_by_text("List it at another location").click()
    page.get_by_label("Location id").fill("berlin")
    card(page, "Correct the stock").get_by_label("Reason").select_option("Damage")
    limits = card(page, "Limits")
    limits.get_by_label("Low at").fill("9")
    page.reload()
    limits.get_by_text("You typed this earlier.").wait_for()
    assert page.get_by_label("Location id").input_value() == "berlin"
    assert page.get_by_label("Location id").is_visible()
    assert card(page, "Correct the stock").get_by_label("Reason").input_value() == "DAMAGE"
    # A colleague sets both limits. The field that was typed in stays, and the other one is not sent.
    change = {"action": "change", "productId": TEA}
    desk.command("ManageProducts", **change, lowStockThreshold=4, backorderLimit=6)
    desk.happens(productId=TEA)
    backorders = limits.get_by_label("Backorders")
    limits.locator('[name=backorderLimit][value="6"]').wait_for()
    assert backorders.input_value() == "6"
    assert limits.get_by_label("Low at").input_value() == "9"
    show(page, desk, "products", "Products")
    page.go_back()
    page.get_by_role("button", name="Save limits").click()
    said(page, f"Change {TEA}: warns at 9 available units")
    assert limits.get_by_text("You typed this earlier.").count() == 0
    assert desk.shop.row(TEA)["backorderLimit"] == {"N": "6"}
    correct = card(page, "Correct the stock")
    correct.get_by_role("button", name="Discard it").click()
    assert correct.get_by_label("Reason").input_value() == "CORRECTION"
    page.reload()
    page.get_by_role("button", name="Save limits").wait_for()
    assert page.get_by_text("You typed this earlier.").count() == 1


def test_what_was_chosen_and_edited_stays_across_a_reload_until_discarded(page, desk):
    page.goto(f"{desk.origin}/desk/try")
    product, wait = page.get_by_role("radio").nth(2), page.get_by_role("checkbox")
    product.check()
    wait.uncheck()
    page.reload()
    page.get_by_text("You typed this earlier.").wait_for()
    assert product.is_checked()
    assert not wait.is_checked()
    page.get_by_role("button", name="Discard it").click()
    assert page.get_by_role("radio").first.is_checked()
    assert wait.is_checked()

    desk.sell("o-1")
    letter = desk.dead_letter("StockDeadLetterQueueUrl", "{}", "SCHEMA_VIOLATION")
    show(page, desk, "dead-letters", "Dead letters")
    page.get_by_role("button", name=f"Edit and send again: message {letter}").click()
    page.get_by_role("button", name="Edit as JSON").click()
    body = page.get_by_role("textbox", name="Body of the message")
    body.fill('{"a": 1}')
    show(page, desk, "orders", "Orders to ship")
    page.get_by_label("Select o-1").check()
    page.get_by_label("Tracking number of o-1").fill("DHL-1")
    page.reload()
    number = page.get_by_label("Tracking number of o-1")
    number.wait_for()
    assert number.input_value() == "DHL-1"
    page.get_by_role("button", name="Hand over o-1").click()
    said(page, "Hand over o-1: done")
    assert desk.shop.order_row("o-1")["steps"][-1]["reference"] == "DHL-1"
    page.get_by_role("link", name="Dead letters", exact=True).click()
    body.wait_for()
    assert body.input_value() == '{"a": 1}'
    page.locator("li.letter").get_by_role("button", name="Discard").first.click()
    body.wait_for(state="detached")


def test_units_of_a_line_stay_with_it(page, desk):
    desk.sell("o-1", (TEA, 3), ("tea-hojicha", 3))
    show(page, desk, "order/o-1", "Order o-1")
    page.get_by_text("Hand over part of it").click()
    page.get_by_label("Units of Hojicha to hand over").fill("2")
    part = {"stepId": "s", "items": [{"productId": TEA, "quantity": 3}]}
    desk.command("ChangeOrders", action="fulfil", orderId="o-1", **part)
    desk.happens(orderId="o-1")
    page.get_by_label("Units of Earl Grey to hand over").wait_for(state="detached")
    assert page.get_by_label("Units of Hojicha to hand over").input_value() == "2"
