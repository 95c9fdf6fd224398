"""The desk in a real browser, on the tea shop in memory: an operator's day, by mouse and by keyboard."""

import json
import re
from contextlib import contextmanager

import pytest

from local.desk.trial import Trial
from operations.http_api import Reply
from tests.support.desk import TOKEN, desk_of_shop

TEA = "tea-earl-grey"
BELOW_FLOOR = {"adjustmentId": "r-9", "productId": TEA, "delta": -90, "reason": "DAMAGE"}


@contextmanager
def desk_for(page, **how):
    """A page leaves its desk before that ends: the answer to a late request would be an error."""
    with desk_of_shop(**how) as desk:
        yield desk
        page.goto("about:blank")


@pytest.fixture
def desk(page):
    with desk_for(page) as desk:
        yield desk


@pytest.fixture
def failing(chromium):
    """A page whose requests may fail, of which the browser complains."""
    opened = chromium.new_page()
    yield opened
    opened.close()


def place(desk, order_id, *, paid=True):
    lines = [{"productId": TEA, "quantity": 3}]
    desk.place({"orderId": order_id, "userId": "auth0:anna", "items": lines})
    if paid:
        desk.command("ChangeOrders", action="confirm", orderId=order_id)


def title(page, text):
    page.get_by_role("heading", level=1, name=text).wait_for()


def said(page, text):
    page.get_by_role("status").get_by_text(text).wait_for()


def test_a_day_at_the_desk(page, desk):
    before = desk.shop.stock(TEA)
    place(desk, "o-1")
    place(desk, "o-2")
    letter = desk.dead_letter("StockDeadLetterQueueUrl", json.dumps(BELOW_FLOOR), "BELOW_FLOOR")
    page.goto(desk.address())
    title(page, "Products")
    assert TOKEN not in page.url
    page.get_by_text("Embedded AWS on this machine: account 123456789012").wait_for()

    # Receives goods, by keyboard.
    page.keyboard.press("/")
    page.keyboard.type("EARL GREY")
    page.get_by_text("2 of 40 products.").wait_for()
    page.get_by_role("link", name=TEA, exact=True).press("Enter")
    title(page, "Earl Grey")
    page.get_by_label("Units that came in").fill("40")
    page.keyboard.press("Enter")
    said(page, f"Receive 40 {TEA}: done")
    assert desk.shop.stock(TEA) == before + 34
    page.locator(".stock").get_by_text(str(before + 34)).wait_for()
    numbers = page.locator(".stock").inner_text().split("\n")
    assert [text for text in numbers if text] == [
        *("On hand", str(before + 40), "Committed", "6", "Available", str(before + 34)),
    ]
    page.locator("#history canvas").wait_for()
    newest = page.locator("#history .list tbody tr").first.inner_text()
    assert re.search(rf"\+40\s+{before + 34}\s+\+40\s+{before + 40}\s+RECEIPT desk-", newest)

    # Repairs a dead letter: there is enough now.
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_text("What to do: book the missing units, then redrive.").wait_for()
    assert page.get_by_role("link", name=f"product {TEA}").is_visible()
    page.get_by_role("button", name=f"Send again unchanged: message {letter}").click()
    said(page, "sent to StockQueue")
    page.get_by_text("There are no dead letters.").wait_for()
    assert desk.shop.waiting("Stock") == [json.dumps(BELOW_FLOOR)]


def test_what_fails_is_said_and_a_lost_answer_is_sent_again_under_the_same_id(failing, desk):
    page = failing
    before = desk.shop.stock(TEA)
    page.goto(desk.address())
    page.goto(f"{desk.origin}/#/product/{TEA}")
    page.get_by_label("Units, such as -2 or 5").fill("-1000")
    page.get_by_role("button", name="Adjust").click()
    page.get_by_role("alert").get_by_text("BELOW_FLOOR: ").wait_for()
    lost = []

    def lose(route):
        lost.append(route.fetch().text())
        route.fulfill(status=504, body="the answer is lost")

    page.route("**/data/command", lose, times=1)
    page.get_by_label("Units that came in").fill("5")
    page.get_by_role("button", name="Receive").click()
    page.get_by_role("alert").get_by_text(
        "the answer is lost. It may have been done: look before you repeat it"
    ).wait_for()
    page.get_by_role("button", name="Receive").click()
    said(page, "done before, nothing changed")
    assert json.loads(lost[0])["done"]
    assert desk.shop.stock(TEA) == before + 5


def test_a_product_is_listed_limited_and_taken_off_sale(page, desk):
    page.goto(desk.address())
    page.get_by_text("List a new product").click()
    page.get_by_label("Product id").fill("mug")
    page.get_by_label("Units on hand").fill("5")
    page.get_by_role("button", name="List it").click()
    said(page, "List mug: done")
    page.get_by_label("Show").select_option("in stock")
    page.get_by_role("link", name="mug").click()
    # Another tab changes the other limit.
    other = "{action: 'change', productId: 'mug', backorderLimit: 100}"
    assert page.evaluate(f"post('/data/command', {other})")["done"]
    page.get_by_role("button", name="Save").click()
    page.get_by_role("alert").get_by_text("these are the old ones").wait_for()
    page.get_by_label("Low at").fill("9")
    page.get_by_role("button", name="Save").click()
    page.locator(".level").get_by_text("low").wait_for()
    desk.place({"orderId": "o-1", "userId": "u", "items": [{"productId": "mug", "quantity": 2}]})
    dialog = page.get_by_role("dialog", name="Are you sure?")
    page.get_by_role("button", name="Discontinue").click()
    dialog.get_by_text("Units promised to open orders: 2, in 1 order.").wait_for()
    page.keyboard.press("Escape")
    assert desk.shop.row("mug")["status"] == {"S": "LOW_STOCK"}
    page.get_by_role("button", name="Discontinue").click()
    page.get_by_role("button", name="Yes, do it").click()
    page.get_by_role("button", name="List again").click()
    page.get_by_role("button", name="Discontinue").wait_for()
    mug = desk.shop.row("mug")
    assert (mug["lowStockThreshold"], mug["status"]) == ({"N": "9"}, {"S": "LOW_STOCK"})
    assert mug["backorderLimit"] == {"N": "100"}
    desk.command("ChangeOrders", action="cancel", orderId="o-1")
    page.get_by_role("button", name="Delist").click()
    dialog.get_by_text("No units are promised to open orders.").wait_for()
    page.get_by_role("button", name="Yes, do it").click()
    said(page, "Delist mug: done")
    title(page, "Products")
    assert page.get_by_role("link", name="mug").count() == 0


def begin_to_count(page, desk):
    page.goto(desk.address())
    page.goto(f"{desk.origin}/#/product/{TEA}")
    page.get_by_role("button", name="Begin to count").press("Enter")
    said(page, f"Count {TEA}: begun")


def test_a_count_goes_on_until_it_is_booked_also_when_the_page_is_read_again(failing, desk):
    page = failing
    there = desk.shop.stock(TEA)
    place(desk, "o-1")
    place(desk, "o-2")
    begin_to_count(page, desk)
    page.locator("[name=counted]:focus").wait_for()
    page.reload()
    page.get_by_text("also those promised to open orders").wait_for()
    numbers = page.locator(".stock").last.inner_text().split()
    assert numbers == ["On", "hand", str(there), "Committed", "6", "Available", str(there - 6)]
    # A parcel leaves, and more is promised than somebody has counted.
    desk.command("ChangeOrders", action="fulfil", orderId="o-1")
    counted = page.get_by_label("Units on the shelf")
    counted.fill("4")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("open orders hold 2 units more").wait_for()
    lost = []

    def lose(route):
        lost.append(route.fetch().text())
        route.fulfill(status=504, body="the answer is lost")

    page.route("**/data/command", lose, times=1)
    counted.fill(str(there + 5))
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("the answer is lost. It may have been done").wait_for()
    assert json.loads(lost[0])["handedOverSince"] == 3
    counted.press("Enter")
    said(page, f"Book {there + 5} {TEA} as counted: corrected by +5")
    page.get_by_role("button", name="Begin to count").wait_for()
    assert desk.shop.stock(TEA) == there + 5 - 6


def test_a_count_is_cancelled_and_one_that_took_too_long_books_nothing(page, desk):
    begin_to_count(page, desk)
    page.get_by_role("button", name="Cancel the count").click()
    said(page, f"Cancel the count of {TEA}: nothing was booked")
    page.get_by_role("button", name="Begin to count").click()
    page.get_by_label("Units on the shelf").fill("1")
    there = desk.shop.stock(TEA)
    desk.shop.clock.advance(601)
    place(desk, "o-1")
    page.get_by_role("button", name="Book the count").click()
    page.get_by_role("alert").get_by_text("nothing was booked, because it took too long").wait_for()
    page.get_by_role("button", name="Begin to count").wait_for()
    assert desk.shop.stock(TEA) == there - 3


def test_a_day_at_several_locations(page, desk):
    at_home, milk = desk.shop.stock(TEA), "tea-hojicha"
    page.goto(desk.address())
    page.goto(f"{desk.origin}/#/product/{TEA}")
    title(page, "Earl Grey")
    assert not page.get_by_text("locations").or_(page.get_by_text("Transfer")).count()

    # Lists the product at another location, and receives goods there, by keyboard.
    page.get_by_text("List it at another location").press("Enter")
    page.get_by_label("Location id").fill("berlin")
    page.get_by_label("Low there at").fill("9")
    page.keyboard.press("Enter")
    said(page, f"List {TEA} at berlin: done")
    page.get_by_role("link", name="berlin").press("Enter")
    title(page, "Earl Grey at berlin")
    page.get_by_label("Units that came in").fill("20")
    page.keyboard.press("Enter")
    said(page, f"Receive 20 {TEA} at berlin: done")
    page.locator("#history").get_by_text("RECEIPT").wait_for()
    assert (desk.shop.stock(TEA), desk.shop.stock(f"{TEA}#berlin")) == (at_home, 20)

    # Transfers units at once, and others that are on the way for a while.
    page.get_by_label("Units to transfer").fill("5")
    page.keyboard.press("Enter")
    said(page, f"Transfer 5 {TEA} from berlin to the default location: done")
    page.locator("#history").get_by_text("TRANSFER_OUT").first.wait_for()
    page.locator("[name=to]").first.select_option("a location where they arrive later")
    page.get_by_label("Units to transfer").fill("4")
    page.locator("[name=reference]").first.fill("van-7")
    page.get_by_role("button", name="Transfer").click()
    said(page, f"Transfer 4 {TEA} from berlin: done")
    page.get_by_label("Units of van-7 that arrived").fill("3")
    page.keyboard.press("Enter")
    said(page, f"Arrival of 3 {TEA} at the default location: done")
    page.get_by_role("row", name="van-7 berlin").get_by_role(
        "cell", name="1", exact=True
    ).wait_for()
    assert (desk.shop.stock(TEA), desk.shop.stock(f"{TEA}#berlin")) == (at_home + 8, 11)

    # Berlin ships one of two orders.
    lines = [{"productId": TEA, "quantity": 2, "locationId": "berlin"}]
    for order_id, more in (("o-1", []), ("o-2", [{"productId": milk, "quantity": 1}])):
        desk.place({"orderId": order_id, "userId": "u", "items": lines + more})
        desk.command("ChangeOrders", action="confirm", orderId=order_id)
    desk.command("ChangeOrders", action="fulfil", orderId="o-2")
    page.goto(f"{desk.origin}/#/product/{TEA}/berlin")

    # Counts at one location.
    page.get_by_role("link", name=TEA).click()
    page.get_by_role("button", name="Begin to count").press("Enter")
    page.locator("[name=counted]:focus").wait_for()
    page.keyboard.type("8")
    page.keyboard.press("Enter")
    said(page, f"Book 8 {TEA} at berlin as counted: corrected by -1")

    # The list has the product once, with its total. A product that only berlin sells is not out of stock.
    for where in ({"openingStock": 0}, {"openingStock": 5, "locationId": "berlin"}):
        desk.command("ManageProducts", action="create", productId="mug", **where)
    page.get_by_role("link", name="Products").click()
    title(page, "Products")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=TEA, exact=True))
    numbers = [str(at_home + 8 + 8), "2", str(at_home + 8 + 6)]
    assert row.inner_text().split("\t")[2:5] == numbers
    for level, found in (("out of stock", 0), ("low", 1)):
        page.get_by_label("Show").select_option(level)
        page.get_by_text(f"{found} of 41 products.").wait_for()
    page.get_by_role("button", name=f"2 locations of {TEA}").press("Enter")
    berlin = page.get_by_role("row").filter(has=page.get_by_role("link", name="berlin"))
    assert berlin.inner_text().split("\t")[2:5] == ["8", "2", "6"]
    assert "#" not in page.locator("body").inner_text()

    # Delists it at one location.
    page.get_by_role("link", name="berlin").press("Enter")
    title(page, "Earl Grey at berlin")
    page.get_by_role("button", name="Delist").click()
    page.get_by_text("Units promised to open orders: 2, in 1 order.").wait_for()
    page.get_by_role("button", name="Yes, do it").click()
    said(page, f"Delist {TEA} at berlin: done")
    title(page, re.compile("Earl Grey$"))
    assert page.get_by_text("At all locations").count() == 0


def test_without_the_token_the_page_says_which_address_to_open(failing, desk):
    failing.goto(desk.address().replace(TOKEN, "old"))
    failing.get_by_text("open the address that make desk").wait_for()
    assert failing.get_by_role("link", name=TEA, exact=True).count() == 0
    failing.goto(desk.address())
    failing.get_by_role("link", name=TEA, exact=True).wait_for()


@pytest.mark.parametrize("caller", ["operator", "customer"])
def test_the_page_of_the_api_sends_a_request_with_the_token_that_one_chooses(
    page, desk, monkeypatch, caller
):
    sent = []

    def answer(_, *request):
        sent.append(request)
        return Reply(200, {"content-type": "application/json"}, b'{"result": "REPLAYED"}')

    monkeypatch.setattr(Trial, "call_as", answer)
    page.goto(desk.address("contract"))
    page.locator(".servers select").select_option(f"/as/{caller}")
    page.locator("#operations-orders-extendHold .opblock-summary-control").click()
    operation = page.locator("#operations-orders-extendHold")
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_placeholder("orderId").fill("o|1")
    operation.get_by_role("button", name="Execute").click()
    operation.locator(".live-responses-table").get_by_text("REPLAYED").wait_for()
    ((named, method, path, headers, body),) = sent
    assert (named, method, path) == (caller, "POST", "/orders/o%7C1/extend")
    assert headers == {"Content-Type": "application/json"}
    assert json.loads(body) == {"until": "2026-11-20T09:45:00Z"}


def test_the_page_of_the_api_sends_nothing_on_an_account(page):
    with desk_for(page, is_embedded=False) as desk:
        page.goto(desk.address("contract"))
        page.locator("#operations-orders-extendHold .opblock-summary-control").click()
        page.locator("#operations-orders-extendHold").get_by_text("Request body").wait_for()
        assert page.get_by_role("button", name="Try it out").count() == 0


def test_products_without_a_name_and_levels_of_stock_are_shown(failing, desk):
    page = failing
    page.goto(desk.address())
    title(page, "Products")
    order = "{items: [{productId: 'constructor', quantity: 1}]}"
    assert page.evaluate(f"itemsOf({order}, {{}})") == "1 constructor"
    page.goto(desk.address("try"))
    assert page.evaluate("subjectOf({productId: 'tea', available: 7})") == "tea: 7 available"
