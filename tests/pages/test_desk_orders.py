"""Orders at the desk of an in-memory tea shop, in a browser: lists, one order, and the pick list."""

import json
import re

import pytest

from inventory_orders.store.tables import Table
from tests.support.desk import TEA, desk_for, said, show
from tests.support.hands import PERSON_MILLISECONDS, enter, scan

HOJICHA = "tea-hojicha"
# A blank presses a button, and a slash moves to the search.
SCANNED = "1 /2345"


def row(page, order_id):
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=order_id, exact=True))


def ids(page):
    page.locator("#view[aria-busy=false]").wait_for()
    return page.locator("tbody td.wide:not(.act) > div > a").all_inner_texts()


def test_selected_orders_are_handed_over_at_once_and_each_row_says_what_came_of_it(page, desk):
    desk.command("ManageProducts", action="change", productId=HOJICHA, backorderLimit=900)
    for number in (1, 2, 3):
        desk.sell(f"o-{number}")
    desk.sell("o-4", (HOJICHA, 900))
    show(page, desk, "orders", "Orders to ship")
    assert "Cannot ship: Hojicha (900 wanted, " in row(page, "o-4").inner_text()

    # By keyboard, all orders that can ship are selected, one with a tracking number. Enter moves to the next field.
    page.get_by_label("Select all that can ship (3)").press("Space")
    assert not page.get_by_label("Select o-4").is_checked()
    page.get_by_label("Tracking number of o-1").focus()
    page.keyboard.type("DHL-1")
    page.keyboard.press("Enter")
    page.keyboard.type("DHL-2")
    page.wait_for_timeout(PERSON_MILLISECONDS)
    assert page.get_by_label("Tracking number of o-2").input_value() == "DHL-2"
    desk.command("ChangeOrders", action="cancel", orderId="o-2")
    page.get_by_role("button", name="Hand over 3 orders").press("Enter")
    said(page, "2 of 3 handed over. 1 failed: see its row.", "alert")
    said(page, "Hand over o-1: done")
    said(page, "Hand over o-3: done")
    said(page, "Hand over o-2 failed: Cancelled", "alert")
    statuses = [desk.shop.status(f"o-{number}") for number in range(1, 5)]
    assert statuses == ["FULFILLED", "CANCELLED", "FULFILLED", "CONFIRMED"]

    # The rows stay where they are, and say what happened.
    assert ids(page) == ["o-1", "o-2", "o-3", "o-4"]
    for order_id, status in (("o-1", "shipped"), ("o-2", "cancelled")):
        row(page, order_id).get_by_text(status, exact=True).wait_for()
    assert row(page, "o-1").get_by_role("button", name="Hand over o-1").count() == 0
    show(page, desk, "order/o-1", "Order o-1")
    page.get_by_role("cell", name="DHL-1").wait_for()
    assert page.get_by_role("columnheader", name="Not in stock when ordered").count() == 0
    show(page, desk, "order/o-4", "Order o-4")
    page.get_by_role("columnheader", name="Not in stock when ordered").wait_for()


def test_lists_follow_what_happens_and_move_nothing(page, desk):
    desk.api.most = 2
    for number, seconds in enumerate((900, 600, 800)):
        desk.place(f"h-{number}", holdSeconds=seconds)
    show(page, desk, "orders", "Orders to ship")
    page.get_by_text("Nothing to ship.").wait_for()
    page.get_by_role("link", name="Waiting for payment").click()
    page.get_by_text("The first 2 orders.").wait_for()
    assert ids(page) == ["h-0", "h-1"]
    page.get_by_role("button", name="Show more").click()
    page.get_by_text("3 orders.").wait_for()
    assert ids(page) == ["h-0", "h-1", "h-2"]
    page.get_by_role("button", name="Confirm payment h-2").click()
    said(page, "Confirm payment of h-2: done")
    row(page, "h-2").get_by_text("paid, to ship").wait_for()
    desk.place("h-3", holdSeconds=300)
    desk.command("ChangeOrders", action="cancel", orderId="h-1")
    desk.happens(orderId="h-3")
    row(page, "h-1").get_by_text("cancelled").wait_for()
    assert ids(page) == ["h-0", "h-1", "h-2", "h-3"]
    page.get_by_role("button", name="Refresh").click()
    row(page, "h-1").wait_for(state="detached")
    assert ids(page) == ["h-0", "h-3"]
    page.get_by_role("link", name="auth0:anna").first.click()
    page.get_by_role("heading", level=1, name="Orders of auth0:anna").wait_for()
    assert ids(page) == ["h-3", "h-2"]
    row(page, "h-2").get_by_text("paid, to ship", exact=True).wait_for()
    assert page.get_by_text("Cannot tell").count() == 0
    desk.shop.edit(Table.PRODUCTS, TEA, onHand={"S": "many"})
    page.get_by_role("link", name="To ship").click()
    row(page, "h-2").get_by_text("It is unknown whether its products are in stock").wait_for()


def test_each_status_has_a_list_that_can_be_saved(page, desk):
    desk.sell("o-1", user="=1+1")
    desk.command("ChangeOrders", action="fulfil", orderId="o-1")
    desk.place("o-2")
    desk.command("ChangeOrders", action="cancel", orderId="o-2")
    desk.shop.invoke("change_orders", {"action": "confirm", "orderId": "o-2"})
    items = [{"productId": TEA, "quantity": 900_000}]
    desk.shop.invoke("place_orders", {"orderId": "o-3", "userId": "auth0:anna", "items": items})
    show(page, desk, "orders", "Orders to ship")
    for tab, title, order_id, text in (
        ("Shipped", "Shipped orders", "o-1", "shipped"),
        ("To refund", "Orders to refund", "o-2", "cancelled"),
        ("Rejected", "Rejected orders", "o-3", "rejected: not enough Earl Grey"),
        ("Cancelled", "Cancelled orders", "o-2", "cancelled"),
        ("Not paid in time", "Orders not paid in time", None, "All orders were paid in time."),
    ):
        page.get_by_role("link", name=tab, exact=True).click()
        page.get_by_role("heading", level=1, name=title).wait_for()
        assert ids(page) == ([order_id] if order_id else [])
        (row(page, order_id) if order_id else page).get_by_text(text).first.wait_for()
    # The shop's clock is ahead of the browser's.
    page.goto(page.url.replace("/expired", "/shipped/yesterday"))
    page.get_by_text("Nothing was shipped.").wait_for()
    page.locator("[name=days]").select_option("week")
    row(page, "o-1").get_by_text("shipped").wait_for()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as CSV").click()
    assert saved.value.suggested_filename == "Shipped orders.csv"
    content = saved.value.path().read_text("utf-8")
    assert content.startswith("\ufefforderId,userId,status,")
    assert "o-1,'=1+1,FULFILLED," in content
    said(page, "Saved 1 order.")


def test_a_list_is_saved_though_the_api_fails_for_a_moment(failing):
    with desk_for(failing) as desk:
        for number in range(3):
            desk.sell(f"o-{number}")
        desk.api.most = 1
        show(failing, desk, "orders", "Orders to ship")
        busy = {"status": 503, "content_type": "application/json", "body": '{"message": "Busy"}'}
        failing.route("**/api/orders?*cursor=*", lambda route: route.fulfill(**busy), times=2)
        with failing.expect_download() as saved:
            failing.get_by_role("button", name="Save as CSV").click()
        assert len(saved.value.path().read_text("utf-8").splitlines()) == 1 + 3
        # This would fail again.
        refused = {"status": 403, "content_type": "application/json", "body": "{}"}
        failing.route("**/api/orders?*cursor=*", lambda route: route.fulfill(**refused))
        failing.get_by_role("button", name="Save as CSV").click()
        said(failing, "No file was saved: reading failed after 1 order: ", "alert")


def test_a_pick_list_names_what_is_still_to_ship(page, desk):
    desk.command("ManageProducts", action="change", productId=HOJICHA, backorderLimit=900)
    berlin = {"productId": TEA, "locationId": "berlin"}
    desk.command("ManageProducts", action="create", **berlin, openingStock=20)
    desk.sell("o-1", (HOJICHA, 2), (TEA, 3))
    desk.sell("o-2", {**berlin, "quantity": 4}, (HOJICHA, 900))
    desk.sell("o-3")
    part = [{"productId": TEA, "quantity": 1}]
    desk.command("ChangeOrders", action="fulfil", orderId="o-1", stepId="s", items=part)
    desk.command("ChangeOrders", action="fulfil", orderId="o-3")
    show(page, desk, "orders", "Orders to ship")
    for order_id in ("o-1", "o-2"):
        page.get_by_label(f"Select {order_id}").check()
    page.get_by_role("link", name="Pick list").click()

    def lines(label):
        rows = page.get_by_role("table", name=label).locator("tbody tr").all()
        return [" ".join(each.inner_text().split()) for each in rows]

    page.get_by_role("table", name="Products").wait_for()
    here = "the default location"
    assert lines("Products") == [
        f"4 Earl Grey {TEA} berlin",
        f"2 Earl Grey {TEA} {here}",
        f"902 Hojicha {HOJICHA} {here}",
    ]
    assert lines("o-1") == [f"2 Hojicha {HOJICHA} {here}", f"2 Earl Grey {TEA} {here}"]
    assert page.get_by_text("Cannot ship: Hojicha (900 wanted").count() == 1
    page.locator("[name=location]").select_option("berlin")
    assert lines("Products") == [f"4 Earl Grey {TEA} berlin"]
    desk.command("ChangeOrders", action="cancel", orderId="o-2")
    desk.happens(orderId="o-2")
    page.get_by_text("Nothing to pick: cancelled.").wait_for()

    # Three bars for each character, the start and the check, and four at the end, between white margins.
    code = page.get_by_role("img", name="Barcode of o-1")
    bars = [*map(int, re.findall(r"[Mh](\d+)", code.locator("path").get_attribute("d")))]
    assert len(bars) == 2 * (3 * (len("o-1") + 2) + 4)
    assert (bars[0], sum(bars[-2:]) + 11) == (11, int(code.get_attribute("width")))
    # The printed page has only the list, with boxes to tick, even in dark mode.
    show(page, desk, "pick/*/o-1/o-3", "Pick list")
    page.get_by_text("Nothing to pick: shipped.").wait_for()
    page.emulate_media(media="print", color_scheme="dark")
    shown = page.locator("body").inner_text()
    assert shown.split()[:4] == ["Pick", "list", "2", "orders,"]
    assert "Print" not in shown
    assert page.locator(".tick").count() == 4
    colours = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert colours == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]


def test_a_pick_list_has_what_was_selected_far_down_the_list_of_one_location(page, desk):
    berlin = {"productId": TEA, "locationId": "berlin"}
    desk.command("ManageProducts", action="create", **berlin, openingStock=20)
    for number in range(4):
        desk.sell(f"o-{number}")
    for number in range(5):
        desk.sell(f"b-{number}", {**berlin, "quantity": 1 + number})
    desk.api.most = 1
    show(page, desk, "orders/at/berlin", "Orders to ship from berlin")
    for number in range(1, 5):
        page.get_by_role("button", name="Show more").click()
        row(page, f"b-{number}").wait_for()
    page.get_by_label("Select all that can ship (5)").check()
    desk.api.calls.clear()
    page.get_by_role("link", name="Pick list").click()
    page.get_by_role("cell", name="15").wait_for()
    assert len(desk.api.calls) <= 5
    desk.command("ChangeOrders", action="cancel", orderId="b-4")
    desk.happens(orderId="b-4")
    page.get_by_text("Nothing to pick: cancelled.").wait_for()

    page.reload()
    page.get_by_text("Order b-4 is not among the oldest orders to ship").wait_for()
    assert len(page.get_by_role("img", name="Barcode of b-").all()) == 4


def test_on_other_pages_a_scan_presses_nothing_and_is_not_lost(page, desk):
    for number in (1, 2):
        desk.sell(f"o-{number}")
    there = desk.shop.stock(TEA)
    show(page, desk, "orders", "Orders to ship")
    ends = (("Enter",), ("Enter", "Enter"), ("Tab",), ())

    def scan_at(control, *ends):
        control.focus()
        scan(page, SCANNED, *ends)
        page.get_by_text(f"Scanned {SCANNED}: nothing was done with it on this page.").wait_for()
        assert control.evaluate("control => control === document.activeElement")
        page.keyboard.press("Escape")

    for control in (
        page.get_by_role("button", name="Hand over o-1"),
        page.get_by_label("Select o-1"),
    ):
        for each in ends:
            scan_at(control, *each)
    assert not page.get_by_label("Select o-1").is_checked()
    assert [desk.shop.status(one) for one in ("o-1", "o-2")] == ["CONFIRMED"] * 2
    # Tracking numbers go on to the next field, and do not press the button behind the last one.
    page.get_by_label("Select all").check()
    page.get_by_label("Tracking number of o-1").focus()
    for each, order_id in zip(ends, ("o-1", "o-2"), strict=False):
        scan(page, f"DHL-{order_id}", *each)
        assert (
            page.get_by_label(f"Tracking number of {order_id}").input_value() == f"DHL-{order_id}"
        )
    assert page.get_by_role("button", name="Hand over 2 orders").evaluate(
        "one => one.matches(':focus')"
    )

    # A number or a choice stays as it was, a text is kept, and a search begins.
    show(page, desk, "products", "Products")
    scan_at(page.get_by_label("Show"), "Enter")
    assert page.get_by_label("Show").input_value() == ""
    for text in ("mug", TEA):
        page.get_by_label("Filter").focus()
        scan(page, text, "Enter")
    assert page.get_by_label("Filter").input_value() == TEA
    show(page, desk, f"product/{TEA}", "Earl Grey")
    page.get_by_label("Units that came in").fill("7")
    scan_at(page.get_by_label("Units that came in"), "Tab")
    assert page.get_by_label("Units that came in").input_value() == "7"
    # This field takes some letters, such as an "e".
    page.get_by_label("Units that came in").fill("")
    scan(page, TEA, "Enter")
    page.get_by_text(f"Scanned {TEA}").wait_for()
    assert not page.get_by_label("Units that came in").evaluate("one => one.validity.badInput")
    scan_at(page.get_by_label("Price"), "Enter")
    page.get_by_label("Reference").first.focus()
    scan(page, "dn-17", "Enter", "Enter")
    assert page.get_by_label("Reference").first.input_value() == "dn-17"
    assert desk.shop.stock(TEA) == there
    page.get_by_role("searchbox").focus()
    scan(page, "o-2", "Tab")
    page.get_by_role("heading", level=1, name="Order o-2").wait_for()


def test_one_order_from_payment_to_return(page, desk):
    there = desk.shop.stock(TEA)
    desk.place("o-1", (TEA, 4), attributes={"channel": "web"})
    show(page, desk, "order/o-1", "Order o-1")
    page.get_by_role("heading", name="waiting for payment").wait_for()
    page.get_by_text("web", exact=True).wait_for()
    page.get_by_role("button", name="Confirm payment").press("Enter")
    said(page, "Confirm payment of o-1: done")

    # A part is lost and not sold again. The desk asks first, and offers no tracking number.
    page.get_by_text("Cancel", exact=True).press("Enter")
    cancel = page.locator("details[open]")
    assert cancel.get_by_label("Tracking number").count() == 0
    cancel.get_by_role("button", name="Cancel these units").click()
    said(page, "Enter the units of at least one line.", "alert")
    cancel.get_by_label("Units of Earl Grey to cancel").fill("1")
    cancel.get_by_label("Lost or broken: do not sell again").check()
    cancel.get_by_role("button", name="Cancel these units").click()
    page.get_by_text("The units are written off and not sold again.").wait_for()
    page.get_by_role("button", name="Yes, cancel").press("Enter")
    said(page, "Cancel 1 Earl Grey of o-1: done")
    page.get_by_role("cell", name="Cancelled, not to be sold again").wait_for()

    page.get_by_text("Hand over part of it").press("Enter")
    page.get_by_label("Units of Earl Grey to hand over").fill("1")
    page.get_by_label("Units of Earl Grey to hand over").press("Enter")
    said(page, "Hand over 1 Earl Grey of o-1: done")
    page.get_by_role("heading", name="paid, 1 of 3 shipped").wait_for()
    page.get_by_role("button", name="Hand over the rest").click()
    said(page, "Hand over o-1: done")

    page.get_by_text("Take back").first.press("Enter")
    page.get_by_label("Units of Earl Grey that came back").fill("2")
    page.locator("form[name^=return]").get_by_label("Reason").fill("too small")
    page.get_by_role("button", name="Take back").click()
    said(page, "Take back 2 Earl Grey of o-1: done")
    page.get_by_role("heading", name="shipped, 1 cancelled, 2 returned").wait_for()
    assert desk.shop.stock(TEA) == there - 2
    newest = page.get_by_role("table", name="What happened").get_by_role("row").last.inner_text()
    assert "Taken back" in newest
    assert newest.endswith("too small")

    # The whole order is cancelled after a confirmation. A later payment must be refunded.
    desk.place("o-2")
    show(page, desk, "order/o-2", "Order o-2")
    page.get_by_text("Cancel", exact=True).press("Enter")
    page.get_by_role("button", name="Cancel the whole order").press("Enter")
    page.keyboard.press("Escape")
    # The browser reports in its next task that the dialog has closed.
    page.evaluate("() => new Promise(requestAnimationFrame)")
    assert desk.shop.status("o-2") == "PENDING"
    page.get_by_role("button", name="Cancel the whole order").press("Enter")
    page.get_by_text("The units go back into stock. This cannot be undone.").wait_for()
    page.get_by_role("button", name="Yes, cancel").press("Enter")
    page.get_by_role("heading", name="cancelled", exact=True).wait_for()
    # The result appears where the form was.
    form = page.locator("details", has=page.get_by_role("status", name=""))
    form.get_by_text("Cancel o-2: done").wait_for()
    assert page.locator(".parts details:visible").count() == 1
    desk.aws.invoke("ChangeOrders", {"action": "confirm", "orderId": "o-2"})
    desk.happens(orderId="o-2")
    page.get_by_text("A late payment arrived").wait_for()


def test_a_location_hands_over_its_part_once(failing):
    page, berlin = failing, {"productId": TEA, "locationId": "berlin"}
    with desk_for(page) as desk:
        desk.command("ManageProducts", action="create", **berlin, openingStock=20)
        desk.sell("o-1", {**berlin, "quantity": 2})
        desk.sell("o-2", {**berlin, "quantity": 2}, (HOJICHA, 1))
        show(page, desk, "orders", "Orders to ship")
        page.get_by_text("2 Earl Grey at berlin, 1 Hojicha").wait_for()
        page.get_by_label("Ships from").select_option("berlin")
        page.get_by_role("heading", level=1, name="Orders to ship from berlin").wait_for()
        lost = []

        def lose(route):
            lost.append(route.fetch().text())
            route.fulfill(status=504, body="the answer is lost")

        # The button is pressed again after a lost answer, but nothing ships twice.
        page.route("**/api/orders/o-2/fulfil", lose, times=1)
        page.get_by_role("button", name="Hand over o-2").click()
        said(page, "Hand over 2 Earl Grey of o-2 from berlin failed: the answer is lost.", "alert")
        assert json.loads(lost[0])["result"] == "APPLIED"
        page.get_by_role("button", name="Hand over o-2").click()
        said(page, "done before, nothing changed; the order is paid, to ship")
        row(page, "o-2").get_by_text("paid, 2 of 3 units shipped").wait_for()
        page.get_by_label("Ships from").select_option("the default location")
        row(page, "o-1").wait_for(state="detached")
        page.get_by_role("button", name="Hand over o-2").click()
        said(page, "Hand over o-2: done")
        assert [desk.shop.status(one) for one in ("o-1", "o-2")] == ["CONFIRMED", "FULFILLED"]


def test_in_production_each_change_asks_and_scan_mode_once(page):
    with desk_for(page, is_embedded=False, is_production=True) as desk:
        desk.place("o-1")
        for order_id in ("o-2", "o-3"):
            desk.sell(order_id, (TEA, 1))
        page.get_by_text("PRODUCTION: stage shop").wait_for()
        parts = page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()
        assert {"Dashboard", "Try it"}.isdisjoint(parts)
        show(page, desk, "order/o-1", "Order o-1")
        page.get_by_role("button", name="Confirm payment").click()
        dialog = page.get_by_role("dialog", name="In production")
        assert "Confirm payment of o-1? This is the stage shop." in dialog.inner_text()
        assert page.evaluate("document.activeElement.textContent") == "Go back"
        page.keyboard.press("Escape")
        dialog.wait_for(state="hidden")
        assert desk.shop.status("o-1") == "PENDING"
        # Another desk is faster.
        for action in ("confirm", "fulfil"):
            desk.command("ChangeOrders", action=action, orderId="o-1")
        page.get_by_role("button", name="Confirm payment").click()
        dialog.get_by_role("button", name="Yes, do it").press("Enter")
        said(page, "Confirm payment of o-1: Payment confirmed")
        said(page, "done before, nothing changed; the order is shipped")

        show(page, desk, "scan", "Scan")
        for order_id in ("o-2", "o-3"):
            for text in (order_id, TEA):
                scan(page, text, "Enter")
            said(page, "That is all")
            enter(page)
            if order_id == "o-2":
                # What is scanned while the desk asks waits for the answer.
                dialog.wait_for()
                scan(page, "o-3", "Enter", "Enter")
                assert dialog.is_visible()
                dialog.get_by_role("button", name="Yes, do it").click()
                said(page, "Order o-3: 1 unit to pack.")
                page.get_by_text("Order o-2: 1 Earl Grey").wait_for()
            else:
                said(page, f"Hand over {order_id}: done")
        assert [desk.shop.status(one) for one in ("o-2", "o-3")] == ["FULFILLED", "FULFILLED"]


def summary(page):
    return page.locator("form[name^=amend] p[role=status]").inner_text()


def test_an_order_is_changed_in_place_and_the_desk_says_first_what_that_changes(page):
    with desk_for(page, LOCATIONS=",berlin") as desk:
        berlin = {"productId": TEA, "locationId": "berlin"}
        desk.command("ManageProducts", action="create", **berlin, openingStock=20)
        desk.place("o-1", (TEA, 3), (HOJICHA, 2))
        show(page, desk, "order/o-1", "Order o-1")
        page.get_by_text("Change the order").first.click()
        assert summary(page) == "Nothing is changed yet."
        page.get_by_role("button", name="Change the order").click()
        said(page, "Change the units of at least one product.", "alert")
        page.get_by_label("Units of Earl Grey in the order").fill("5")
        page.get_by_label("Units of Hojicha in the order").fill("0")
        page.get_by_label("Add another product (id)").fill("tea-sencha-daily")
        page.get_by_label("Units to add").fill("1")
        assert summary(page) == "Changes: +2 Earl Grey, -2 Hojicha, +1 tea-sencha-daily."
        page.get_by_role("button", name="Change the order").click()
        said(page, "Change o-1: +2 Earl Grey, -2 Hojicha, +1 tea-sencha-daily: done")
        newest = (
            page.get_by_role("table", name="What happened").get_by_role("row").last.inner_text()
        )
        assert newest.split("\t")[1].split() == ["Changed"]
        order = desk.get("/api/orders/o-1")
        open_units = {
            each["productId"]: each["quantity"] - each.get("cancelled", 0)
            for each in order["items"]
        }
        assert open_units == {TEA: 5, HOJICHA: 0, "tea-sencha-daily": 1}

        # A refusal changes nothing, and what was typed stays. Units move to another location.
        page.get_by_label("Units of Earl Grey in the order").fill("900")
        page.get_by_role("button", name="Change the order").click()
        said(page, "not enough Earl Grey (895 wanted, ", "alert")
        assert page.get_by_label("Units of Earl Grey in the order").input_value() == "900"
        page.get_by_label("Units of Earl Grey in the order").fill("4")
        page.get_by_label("Location of Earl Grey").select_option("berlin")
        assert summary(page) == "Changes: -1 Earl Grey, Earl Grey from berlin."
        page.get_by_role("button", name="Change the order").click()
        said(page, "Earl Grey from berlin: done")
        assert desk.get("/api/stock/tea-earl-grey?locationId=berlin")["available"] == 16

        # Another desk was faster, so this one looks again.
        desk.command(
            "ChangeOrders",
            action="amend",
            orderId="o-1",
            stepId="elsewhere",
            items=[{"productId": TEA, "quantity": 3}],
        )
        page.get_by_label("Units of Earl Grey at berlin in the order").fill("6")
        page.get_by_role("button", name="Change the order").click()
        said(page, "has changed since that version", "alert")
        assert summary(page) == "Changes: +3 Earl Grey at berlin."

        # Without units, the order ends: the desk asks.
        for name in ("Earl Grey", "Sencha Daily"):
            page.get_by_label(re.compile(f"Units of {name}.* in the order")).fill("0")
        page.get_by_role("button", name="Change the order").click()
        page.get_by_text("Nothing is left to ship, so this cancels the order.").wait_for()
        page.get_by_role("button", name="Yes, change it").click()
        page.get_by_role("heading", name="cancelled", exact=True).wait_for()


@pytest.fixture
def with_clock(chromium):
    """Open a page whose clock the test sets, in a context of its own: Playwright sets the clock of all pages of a context."""
    with chromium.new_context() as context:
        yield context.new_page()


def test_a_mistaken_hand_over_is_undone_at_once_or_by_line(with_clock, desk):
    page = with_clock
    desk.sell("o-1", (TEA, 3), (HOJICHA, 1))
    on_hand = desk.stock(TEA)["onHand"]
    page.clock.install(time=desk.shop.clock.now())
    page.goto(desk.address())
    show(page, desk, "order/o-1", "Order o-1")
    page.get_by_role("button", name="Hand over", exact=True).click()
    said(page, "Hand over o-1: done")
    first = page.locator(".order button:visible").first
    assert first.inner_text() == "Undo the hand-over"
    first.click()
    said(page, "Undo the hand-over of 3 Earl Grey, 1 Hojicha of o-1: done")
    page.get_by_role("heading", name="paid, to ship").wait_for()
    assert desk.stock(TEA)["onHand"] == on_hand
    # The next hand-over is not a duplicate of the first one, in lists either.
    page.get_by_role("link", name="Orders", exact=True).click()
    page.get_by_role("button", name="Hand over o-1").click()
    said(page, "Hand over o-1: done")
    show(page, desk, "order/o-1", "Order o-1")
    assert first.inner_text() == "Undo the hand-over"

    # Later, it is undone by line, and after a day only on purpose.
    page.clock.fast_forward("06:00")
    page.get_by_role("button", name="Refresh").click()
    first.get_by_text("Undo the hand-over").wait_for(state="detached")
    page.get_by_text("Undo a hand-over").click()
    assert page.get_by_label("They were handed over more than 24 hours ago").count() == 0
    page.clock.fast_forward("25:00:00")
    desk.shop.clock.sleep(25 * 3600)
    page.get_by_role("button", name="Refresh").click()
    page.get_by_label("They were handed over more than 24 hours ago").check()
    page.get_by_label("Units of Earl Grey that are still here").fill("1")
    page.get_by_role("button", name="Undo the hand-over").click()
    said(page, "Undo the hand-over of 1 Earl Grey of o-1: done")
    page.get_by_role("heading", name="paid, 3 of 4 units shipped").wait_for()
    assert desk.stock(TEA)["onHand"] == on_hand - 2
