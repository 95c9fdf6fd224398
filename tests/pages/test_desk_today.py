"""The desk's Today page, drop page and search, in a browser, for an in-memory tea shop."""

import pytest
from playwright.sync_api import expect

from inventory_orders import overview
from local.desk import letters
from tests.support.desk import HURRY, TEA, card, desk_of_shop
from tests.support.hands import PERSON_MILLISECONDS
from tests.support.movements import record_movements

HOT = "tea-first-flush-drop"
MINUTES = [0.0] * 58
ON = {"name": "Retries Exhausted", "step": "Read the code.", "runbook": "RetriesExhausted"}
OF_LETTERS = {"name": "Stock Dead Letters", "step": "Run `status`.", "runbook": "DeadLetters"}


class Signals:
    """The shop's alarms and metrics, which the test sets."""

    def __init__(self):
        self.on = []
        self.problem = {}
        self.measured = {"placed": [*MINUTES, 3.0, 4.0], "rejected": [*MINUTES, 0.0, 1.0]}

    def alarms(self):
        return self.problem or {"on": self.on, "count": 58}

    def orders(self, metrics, window):
        return self.measured


@pytest.fixture
def signals():
    return Signals()


@pytest.fixture
def desk(page, signals):
    with desk_of_shop(signals=signals) as desk:
        desk.page = page
        desk.sweep()
        yield desk
        page.goto("about:blank")


def test_today_says_what_comes_first_and_follows_what_happens(page, desk, signals, monkeypatch):
    page.goto(desk.address())
    page.get_by_role("heading", name="All is well").wait_for()
    page.get_by_text("No order is waiting to be shipped.").wait_for()
    expect(card(page, "Orders in the last hour")).to_contain_text("7 placed and 1 rejected")
    page.locator(".today canvas").wait_for()

    desk.command("ManageProducts", action="change", productId=TEA, backorderLimit=900)
    desk.sell("o-1")
    desk.sell("o-2", (TEA, 70))
    desk.place("o-3", holdSeconds=60)
    desk.dead_letter("StockDeadLetterQueueUrl", "{}", "BELOW_FLOOR")
    signals.on = [ON, ON | {"name": "Sweep Errors"}, OF_LETTERS]
    desk.sweep()
    desk.happens(productId=TEA)
    # One problem counts once: the dead letter has an alarm, and the product that the order waits for is low.
    page.get_by_role("heading", name="4 things need your attention").wait_for()
    needs = page.locator(".summary li").all_inner_texts()
    assert needs[1] == "Alarms: Retries Exhausted, Sweep Errors.\nRead the code."
    assert [need.split(".")[0] for need in needs] == [
        "Ship 1 paid order",
        "Alarms: Retries Exhausted, Sweep Errors",
        "1 dead letter",
        "1 paid order cannot ship",
    ]
    links = page.locator("main a").evaluate_all(
        "all => all.map((one) => [one.textContent, one.hash])"
    )
    for link in (
        ["1 dead letter.", "#/dead-letters"],
        ["Ship 1 paid order.", "#/orders"],
        ["waiting for payment", "#/orders/held"],
        ["Earl Grey", f"#/product/{TEA}"],
        ["out of stock", "#/products/OUT_OF_STOCK"],
        ["low on stock", "#/products/LOW_STOCK"],
        ["more units promised than on hand", "#/products/PROMISED"],
    ):
        assert link in links
    alarm = page.get_by_role("link", name="Alarms: Retries Exhausted")
    assert alarm.get_attribute("href") == "dashboard"
    assert "1 BELOW_FLOOR" in card(page, "Dead letters").inner_text()

    # A finished item keeps its place, and an unknown number is not shown as 0.
    signals.problem, signals.measured = {"problem": "AccessDenied"}, dict.fromkeys(signals.measured)
    page.locator(".summary").get_by_text("The state of the alarms is unknown.").wait_for()
    assert page.locator(".summary li").nth(1).inner_text().endswith("No longer there.")
    expect(card(page, "Alarms")).to_contain_text("Unknown: AccessDenied")
    assert "its setting monitoring is basic" in card(page, "Orders in the last hour").inner_text()

    # The sweep counts the oldest orders of a longer list.
    monkeypatch.setattr(overview, "MOST", 1)
    desk.sweep()
    page.get_by_role("button", name="Refresh").click()
    page.get_by_role("link", name="Ship 1+ paid order").wait_for()


def test_today_says_that_orders_are_not_counted(page):
    with desk_of_shop() as desk:
        desk.sell("o-1")
        page.goto(desk.address())
        page.get_by_role("heading", name="1 thing needs your attention").wait_for()
        expect(page.locator(".summary")).to_contain_text("Orders have not been counted yet.")
        expect(card(page, "Orders")).to_contain_text("Orders have not been counted yet.")
        desk.sweep()
        page.get_by_role("button", name="Refresh").click()
        page.get_by_role("link", name="Ship 1 paid order").wait_for()
        expect(card(page, "Orders")).to_contain_text("Counted at")
        # The sweep has stopped. A browser's clock is real, and the shop's is not.
        page.evaluate("const now = Date.now; Date.now = () => now() + 1e12")
        page.get_by_role("button", name="Refresh").click()
        expect(page.locator(".summary")).to_contain_text("Orders were last counted")
        page.goto("about:blank")


def test_today_says_what_was_not_checked(page, desk, monkeypatch):
    monkeypatch.setattr(overview, "MOST", 1)
    desk.api.most = 1
    desk.command("ManageProducts", action="change", productId=TEA, backorderLimit=900)
    desk.sell("o-1", (TEA, 70))
    desk.sell("o-2", (HOT, 1))
    # Their rows of the default location are unused.
    for product_id in ("aaa", "aab"):
        create = {"action": "create", "productId": product_id}
        desk.command("ManageProducts", **create, openingStock=0)
        desk.command("ManageProducts", **create, openingStock=9, locationId="berlin")
    desk.sweep()
    page.goto(desk.address())
    page.get_by_role("heading", name="attention").wait_for()
    assert [need.split(".")[0] for need in page.locator(".summary li").all_inner_texts()] == [
        "Ship newer paid orders",
        "1 of the oldest 1 paid orders cannot ship",
        "Some products were not checked",
    ]


def test_on_an_account_an_alarm_names_its_heading_in_the_runbook(page, signals):
    # The dead letters have gone, but not yet their alarm.
    signals.on = [ON, OF_LETTERS]
    with desk_of_shop(is_embedded=False, signals=signals) as desk:
        desk.sweep()
        page.goto(desk.address())
        page.get_by_role("heading", name="2 things need your attention").wait_for()
        first, second = page.locator(".summary li").all_inner_texts()
        assert "under RetriesExhausted." in first
        assert second == "Alarm: Stock Dead Letters.\nThe dead letters say why."
        page.goto("about:blank")


def test_a_hidden_tab_asks_for_nothing_and_reads_again_later(page, desk):
    def look(*, hidden):
        page.evaluate(f"""
          Object.defineProperty(document, "hidden", {{ configurable: true, value: {str(hidden).lower()} }});
          document.dispatchEvent(new Event("visibilitychange"));
        """)

    asked = []
    page.on("request", lambda sent: asked.append(sent.url))
    page.add_init_script(HURRY)
    page.goto(desk.address())
    page.goto(f"{desk.origin}/desk/#/orders")
    page.get_by_text("Nothing to ship.").wait_for()
    look(hidden=True)
    page.wait_for_timeout(100)
    asked.clear()
    desk.sell("o-1")
    desk.happens(orderId="o-1")
    page.wait_for_timeout(600)
    assert asked == []
    look(hidden=False)
    page.get_by_role("link", name="o-1").wait_for()


def test_the_search_leads_to_the_only_hit_and_lists_several(page, desk, monkeypatch):
    def find(text):
        page.keyboard.press("/")
        page.wait_for_timeout(PERSON_MILLISECONDS)
        page.keyboard.type(text)
        page.keyboard.press("Enter")

    page.goto(desk.address())
    page.get_by_role("heading", name="All is well").wait_for()
    find("grey dec")
    page.get_by_role("heading", level=1, name="Earl Grey Decaf").wait_for()
    page.go_back()
    page.get_by_role("heading", level=1, name="Today").wait_for()
    find("grey")
    page.get_by_role("heading", level=1, name="Search: grey").wait_for()
    hits = page.locator("main a").evaluate_all("all => all.map((one) => one.hash)")
    assert hits == [f"#/product/{tea}" for tea in (TEA, f"{TEA}-decaf", "tea-lady-grey")]
    page.get_by_text("Not all tracking numbers and other references were searched").wait_for()
    page.wait_for_timeout(2 * PERSON_MILLISECONDS)
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="Earl Grey", exact=True).wait_for()
    desk.place("o|1", user="auth0|anna")
    for text, title in (("o|1", "Order o|1"), ("auth0|anna", "Orders of auth0|anna")):
        find(text)
        page.get_by_role("heading", level=1, name=title).wait_for()
    for action, notes in (("confirm", {}), ("fulfil", {"reference": "1Z 7"})):
        desk.command("ChangeOrders", action=action, orderId="o|1", **notes)
    record_movements(desk.shop)
    find("1Z 7")
    page.get_by_role("heading", level=1, name="Order o|1").wait_for()
    find("o/1%|#")
    page.get_by_role("heading", level=1, name="Search: o/1%|#").wait_for()
    page.get_by_text("Type the whole id of an order or customer").wait_for()
    page.get_by_role("heading", level=2, name="Nothing found in what was searched").wait_for()
    page.get_by_text("shipments, cancellations and returns were searched up to").wait_for()

    # An order that is a dead letter is found, and has the focus among the others.
    dead = [
        desk.dead_letter("OrderDeadLetterQueueUrl", f'{{"orderId": "o-dead-{n}"}}', "INVALID_JSON")
        for n in range(9)
    ]
    find("o-dead-8")
    page.locator("li:focus", has_text=dead[-1]).wait_for()
    # What was not searched is said.
    monkeypatch.setattr(letters, "MOST_DEAD_LETTERS", 2)
    find("o-dead-9")
    page.get_by_role("heading", level=2, name="Nothing found in what was searched").wait_for()
    about = page.locator("#about").inner_text()
    assert "Only 2 dead letters of OrderQueue were searched" in about


def test_a_drop_is_seen_until_it_is_sold_out(page, desk):
    elsewhere = {"productId": HOT, "locationId": "berlin", "openingStock": 200}
    desk.command("ManageProducts", action="create", **elsewhere)
    page.goto(desk.address())
    page.goto(f"{desk.origin}/desk/#/drop/{HOT}")
    page.get_by_role("heading", level=1, name="Drop: First Flush 2026, limited drop").wait_for()
    big, end, left = page.locator(".big"), page.locator(".end"), desk.shop.stock(HOT)
    expect(end).to_have_text("Nothing sold yet")
    expect(big).to_contain_text(f"{left + 200}left")
    desk.place("o-1", (HOT, 3))
    expect(end).to_contain_text("Sold out in about")
    expect(big).to_contain_text(f"3units sold{left + 197}left")
    page.get_by_text(f"Left: the default location {left - 3}, berlin 200.").wait_for()
    # A receipt is not a sale.
    receipt = {"adjustmentId": "r-1", "productId": HOT, "delta": 10, "reason": "RECEIPT"}
    desk.command("AdjustStock", action="adjust", **receipt, locationId="")
    expect(big).to_contain_text(f"3units sold{left + 207}left")
    page.locator("main canvas").wait_for()
    desk.place("o-2", (HOT, left + 7))
    desk.place("o-3", {"productId": HOT, "locationId": "berlin", "quantity": 200})
    expect(end).to_contain_text("Sold out at")
    expect(big).to_contain_text(f"{left + 210}units sold0left")
