"""Transfers at the desk of an in-memory tea shop, in a browser: what is sent, on the way, received by scan, or lost."""

import pytest

from tests.support.desk import TEA, said, show
from tests.support.hands import scan

HOJICHA = "tea-hojicha"
SEND, ARRIVE = "Send a transfer", "Receive a transfer"


@pytest.fixture
def desk(desk):
    """List two products in berlin, where there are none of them yet."""
    for product_id in (TEA, HOJICHA):
        there = {"productId": product_id, "locationId": "berlin", "openingStock": 0}
        desk.command("ManageProducts", action="create", **there)
    return desk


def send(desk, reference="van-7", **units):
    for product_id, amount in units.items():
        sent = {"productId": product_id, "locationId": "", "delta": -amount, "sentTo": "berlin"}
        sent |= {"adjustmentId": f"s-{reference}", "reason": "TRANSFER_OUT", "reference": reference}
        desk.command("AdjustStock", action="adjust", **sent)


def stock(desk):
    names = (TEA, HOJICHA, f"{TEA}#berlin", f"{HOJICHA}#berlin")
    return [desk.shop.stock(name) for name in names]


def row(page, text):
    return page.get_by_role("row").filter(has=page.get_by_text(text, exact=True))


def test_goods_are_sent_received_in_parts_by_scan_and_the_rest_is_lost(page, desk):
    tea, hojicha, *_ = stock(desk)
    show(page, desk, "transfers", "Transfers")
    page.get_by_text("Nothing is on the way.").wait_for()
    page.get_by_role("link", name=SEND).click()
    page.locator("[name=to]:focus").wait_for()
    # No setting names this location.
    page.locator("#places option[value=berlin]").wait_for(state="attached")
    note = page.get_by_label("Transfer note").input_value()
    # Goods that are scanned too early do not become the place.
    page.locator("[name=to]").fill("Berlin")
    for product_id in (TEA, TEA, HOJICHA):
        scan(page, product_id, "Enter")
    page.get_by_text("Hojicha: 1 unit.").wait_for()
    assert page.locator("[name=to]").input_value() == "Berlin"
    page.get_by_role("textbox", name="Units of Earl Grey sent").fill("5")
    page.locator("[name=place]").fill("Berlin ")  # as a phone's keyboard completes it
    page.get_by_role("button", name="Book 2 lines").click()
    said(page, "Enter another location in From or To", "alert")
    page.locator("[name=place]").fill("")
    page.locator("[name=to]").fill("rome")
    page.get_by_role("button", name="Book 2 lines").click()
    said(page, "0 booked, 2 not booked: see their rows", "alert")
    row(page, TEA).get_by_text("the product is not listed at both places").wait_for()
    page.locator("[name=to]").fill("berlin")
    page.get_by_role("button", name="Book 2 lines").click()
    said(page, f"Send 2 lines under {note}: 2 booked")
    assert stock(desk) == [tea - 5, hojicha - 1, 0, 0]
    page.emulate_media(media="print")
    assert page.get_by_role("img", name=f"Barcode of {note}").is_visible()
    page.emulate_media(media="screen")

    show(page, desk, "today", "Today")
    page.get_by_role("link", name="transfer on the way").click()
    page.get_by_role("heading", level=1, name="Transfers").wait_for()
    cells = row(page, note).get_by_role("cell").all_inner_texts()
    assert cells[1:3] + cells[4:] == ["the default location", "berlin", "2", "6"]

    # The code on the note opens it. Some goods arrive, the others stay on the way.
    scan(page, "van-8", "Enter")
    said(page, "Nothing is on the way under van-8.", "alert")
    scan(page, note, "Enter")
    page.get_by_role("heading", level=1, name=ARRIVE).wait_for()
    assert page.get_by_label("Place").input_value() == "berlin"
    assert page.get_by_text("2 products differ").count() == 0  # nothing has been scanned yet
    for _ in range(3):
        scan(page, TEA, "Enter")
    said(page, "2 products differ from what is on the way.")
    page.get_by_label("Place").fill("")
    page.get_by_role("button", name="Book 1 line").click()
    question = page.get_by_role("dialog").get_by_text(
        "They were sent to berlin, not to the default"
    )
    question.wait_for()
    page.get_by_role("button", name="Go back").click()
    page.get_by_label("Place").fill("berlin")
    page.get_by_role("button", name="Book 1 line").click()
    said(page, "1 booked")
    assert stock(desk) == [tea - 5, hojicha - 1, 3, 0]
    page.get_by_text("3 units of 2 products. They stay on the way").wait_for()

    page.get_by_role("button", name="Start again").click()
    page.get_by_role("button", name="Everything arrived").click()
    page.get_by_role("textbox", name="Units of Earl Grey that arrived").fill("3")
    page.get_by_label("What happened to them").fill("fell off the van")
    page.get_by_role("button", name="Book the rest as lost").click()
    said(page, "Book what arrived first.", "alert")
    page.get_by_role("button", name="Book 2 lines").click()
    page.get_by_role("dialog").get_by_text("More units of 1 product arrived than").wait_for()
    page.get_by_role("button", name="Go back").click()
    page.get_by_role("button", name="Remove Earl Grey").click()
    page.get_by_role("button", name="Book 1 line").click()
    said(page, "1 booked")
    page.get_by_role("button", name="Book the rest as lost").click()
    page.get_by_role("dialog").get_by_role("button", name="Book the rest as lost").click()
    said(page, f"Loss of 2 units under {note}: done")
    page.get_by_text(f"Nothing is on the way under {note} any more.").wait_for()
    assert stock(desk) == [tea - 5, hojicha - 1, 3, 1]
    show(page, desk, f"product/{TEA}", "Earl Grey")
    page.get_by_role("table").get_by_text(f"Lost on the way, {note}, fell off the van").wait_for()


def test_goods_that_arrive_while_the_page_reads_again_are_compared_with_the_transfer(page, desk):
    send(desk, **{TEA: 5, HOJICHA: 2})
    show(page, desk, "arrive/van-7", ARRIVE)
    scan(page, TEA, "Enter")
    page.get_by_role("button", name="Book 1 line").click()
    said(page, "1 booked")
    page.get_by_text("6 units of 2 products. They stay on the way").wait_for()
    reads = []

    def hold(route):
        reads.append(route)

    page.route("**/api/transfers", hold)
    with page.expect_request("**/api/transfers"):
        page.get_by_role("button", name="Start again").click()
    page.get_by_role("button", name="Everything arrived").click()
    reads[0].continue_()
    said(page, "Everything arrived as it was sent.")


def test_two_people_receive_one_transfer_at_the_same_time_and_each_is_told(page, context, desk):
    send(desk, **{TEA: 5, HOJICHA: 2})
    other = context.new_page()
    other.goto(desk.address())
    for one in (page, other):
        show(one, desk, "arrive/van-7", ARRIVE)
        one.get_by_role("button", name="Everything arrived").click()
        one.get_by_role("button", name="Book 2 lines").wait_for()
    page.get_by_role("button", name="Book 2 lines").click()
    said(page, "2 booked")
    other.get_by_role("button", name="Book 2 lines").click()
    said(other, "0 booked, 2 booked before")
    said(other, "2 lines of van-7 were booked before, and not again", "alert")
    assert stock(desk)[2:] == [5, 2]
    # Nothing is left for those who come later.
    other.get_by_role("button", name="No, nothing more").click()
    other.get_by_role("button", name="Start again").click()
    other.get_by_text("Nothing is on the way under van-7 any more.").wait_for()
    other.close()
    show(page, desk, "transfers", "Transfers")
    page.get_by_text("Nothing is on the way.").wait_for()
