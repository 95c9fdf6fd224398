"""Dead letters in a browser: sent again, corrected, deleted, and left alone while they are being edited."""

import json
import re

import pytest

from local.desk import letters
from operations.redrive import settle
from tests.support.desk import desk_of_shop

TEA = "tea-earl-grey"
STOCK, ORDERS = "StockDeadLetterQueueUrl", "OrderDeadLetterQueueUrl"


def damage(number):
    said = {"adjustmentId": f"r-{number}", "productId": TEA, "delta": -90, "reason": "DAMAGE"}
    return json.dumps(said)


@pytest.fixture
def desk(page):
    with desk_of_shop() as desk:
        yield desk
        # The answer to a late request would be an error.
        page.goto("about:blank")


def open_letters(page, desk):
    page.goto(desk.address())
    # From here on, the page notices other dead letters.
    with page.expect_response("**/local/attention"):
        page.get_by_role("link", name="Dead letters", exact=True).click()
    page.get_by_role("heading", level=1, name="Dead letters").wait_for()


def letter(page, message_id):
    return page.get_by_role("listitem").filter(has_text=message_id)


def field(letter, name, nth=0):
    return letter.get_by_role("textbox", name=name, exact=True).nth(nth)


def waiting(desk, queue):
    return [json.loads(body) for body in desk.shop.waiting(queue)]


def test_letters_of_one_cause_are_sent_again_or_deleted(page, desk):
    first, second, third = (desk.dead_letter(STOCK, damage(n), "BELOW_FLOOR") for n in range(3))
    open_letters(page, desk)
    group = page.locator("section", has_text="BELOW_FLOOR").first
    group.get_by_text(
        "What to do: book the receipt that is missing, or cancel lost units in the orders that hold them, then send it again."
    ).wait_for()
    assert "3 messages, the first in" in group.inner_text()
    assert re.search(r"Units\s+-90", letter(page, first).inner_text())
    letter(page, first).get_by_text("Show as JSON").click()
    assert '{\n  "adjustmentId": "r-0",\n' in letter(page, first).locator("pre").inner_text()

    # A letter is deleted only after a confirmation.
    delete = page.get_by_role("button", name=f"Delete: message {second}")
    delete.click()
    page.get_by_role("button", name="Go back").click()
    delete.click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    letter(page, second).get_by_role("status").get_by_text("deleted").wait_for()
    letter(page, second).get_by_text("Deleted at ").wait_for()

    group.get_by_role("button", name="Send all 2 again unchanged").click()
    group.get_by_role("status").get_by_text("all of them are back in their queue").wait_for()
    letter(page, third).get_by_role("status").get_by_text("it is back in StockQueue").wait_for()
    assert desk.shop.waiting("Stock") == [damage(0), damage(2)]
    page.get_by_text("There are no dead letters.").wait_for()

    # One is booked once there are enough units, and the other one comes back.
    desk.command("AdjustStock", action="adjust", **json.loads(damage(9)) | {"delta": 90})
    desk.shop.deliver("Stock")
    letter(page, first).get_by_text(f"Booked: {TEA}").wait_for()
    letter(page, third).get_by_text("No outcome yet.").wait_for()


def test_a_message_is_mended_in_a_form_and_its_outcome_is_shown(failing, desk):
    page = failing  # its console reports orders that are not there yet
    items = [
        {"productId": TEA, "quantity": "2"},
        {"productId": "x", "quantity": 1, "colour": "red"},
    ]
    attributes = {"till": 12345678901234567890, "gift": True, "channel": "web"}
    order = {"orderId": "o-1", "userId": "u", "items": items, "attributes": attributes}
    bad = desk.dead_letter(
        ORDERS,
        json.dumps(order),
        "SCHEMA_VIOLATION",
        message='items[0].quantity: must be a whole number, but is "2"',
    )
    open_letters(page, desk)
    row = letter(page, bad)

    # The fault is in the message, so sending it again unchanged cannot help.
    assert row.get_by_role("button").all_inner_texts() == ["Edit and send again", "Delete"]
    assert row.get_by_role("link").all_inner_texts() == ["order o-1", TEA, "x"]
    row.get_by_role("button", name="Edit and send again").press("Enter")
    assert field(row, "Order id").evaluate("input => input === document.activeElement")
    wrong = row.locator('[aria-invalid="true"]')
    assert wrong.get_attribute("name") == "items[0].quantity"
    described = page.locator(f"[id='{wrong.get_attribute('aria-describedby')}']")
    assert described.inner_text() == 'must be a whole number, but is "2"'

    # The service would refuse what is wrong as well, and nothing is sent.
    send = row.get_by_role("button", name="Send edited message")
    field(row, "Quantity", 1).fill("0")
    send.click()
    row.get_by_role("alert").get_by_text("items[1].quantity: must be").wait_for()
    assert field(row, "Quantity", 1).get_attribute("aria-invalid") == "true"
    field(row, "Quantity", 1).fill("1")
    send.click()
    row.get_by_role("alert").get_by_text("unknown field of items[1]").wait_for()
    field(row, "colour (unknown field)").fill("")
    field(row, "Quantity", 1).fill("one")
    send.click()
    row.get_by_role("alert").get_by_text("Quantity: write a whole number").wait_for()
    # Other letters come and go, and the page is loaded again, but what is typed stays.
    field(row, "Quantity", 1).fill("")
    field(row, "Product", 1).fill("")
    row.get_by_role("button", name="Add a line").click()
    field(row, "Product", 2).fill("tea-peppermint")
    field(row, "Quantity", 2).fill("3")
    field(row, "Location", 2).fill("(default)")
    added = desk.dead_letter(STOCK, damage(3), "BELOW_FLOOR")
    letter(page, added).wait_for()
    page.reload()
    field(row, "Product", 2).wait_for()
    send.click()
    row.get_by_role("status").get_by_text("it is back in OrderQueue.").wait_for()
    (sent,) = desk.shop.waiting("Order")
    assert "12345678901234567890" in sent
    lines = [{"productId": TEA, "quantity": 2}]
    lines += [{"productId": "tea-peppermint", "quantity": 3, "locationId": ""}]
    assert json.loads(sent) == order | {"items": lines}
    assert desk.shop.waiting("OrderDeadLetter") == []

    # The row stays even while another reader hides the message, and shows what became of it.
    row.get_by_text("No outcome yet.").wait_for()
    assert row.get_by_role("button", name=re.compile("Send|Edit|Delete")).count() == 0
    desk.shop.deliver("Order")
    row.get_by_text("order o-1: waiting for payment").wait_for()
    assert row.get_by_text("no longer in the dead-letter queue").count() == 0


def test_a_command_is_followed_until_it_is_carried_out_or_fails_again(failing, desk):
    page = failing  # its console reports orders that are not there yet
    commands = "OrderCommandDeadLetterQueueUrl"
    bad = json.dumps({"action": "fulfill", "orderId": "o-1", "until": None, "note": {"by": "ann"}})
    good = json.dumps({"action": "fulfil", "orderId": "o-1"})
    fault = "action: must be one of confirm, extend, fulfil, cancel, return"
    first = desk.dead_letter(commands, bad, "SCHEMA_VIOLATION", message=fault)
    second = desk.dead_letter(commands, good, "NOT_CONFIRMED")
    open_letters(page, desk)
    row, other = letter(page, first), letter(page, second)
    row.get_by_role("button", name="Edit and send again").click()
    row.get_by_text("must be one of confirm").last.wait_for()
    row.get_by_role("combobox", name="Action").select_option("confirm")
    note = field(row, "note (unknown field)")
    assert note.input_value() == '{"by": "ann"}'
    note.fill("")
    row.get_by_role("button", name="Send edited message").click()
    row.get_by_text("No outcome yet.").wait_for()
    assert waiting(desk, "OrderCommand") == [{"action": "confirm", "orderId": "o-1"}]
    desk.place("o-1")
    other.get_by_role("button", name="Send again unchanged").click()
    other.get_by_text("Not carried out so far.").wait_for()
    other.get_by_text("order o-1: waiting for payment").wait_for()
    desk.shop.deliver("OrderCommand")
    row.get_by_text("order o-1: ").wait_for()

    # Amends come through the queues for orders, too.
    amend = {"action": "amend", "orderId": "o-1", "stepId": "a", "attributes": {"gift": True}}
    desk.place("o-1b")
    body = json.dumps(amend | {"orderId": "o-1b", "ifVersion": 0})
    third = desk.dead_letter("OrderDeadLetterQueueUrl", body, "SCHEMA_VIOLATION")
    page.get_by_role("button", name="Refresh").click()
    row = letter(page, third)
    row.get_by_role("button", name="Edit and send again").click()
    field(row, "Only this version").fill("1")
    row.get_by_role("button", name="Send edited message").click()
    row.get_by_text("Not carried out so far.").wait_for()
    desk.shop.deliver("Order")
    row.get_by_text("order o-1b: waiting for payment").wait_for()
    assert desk.get("/api/orders/o-1b")["attributes"] == {"gift": True}


def test_what_is_wrong_beyond_a_form_is_edited_as_json(failing, desk):
    page = failing  # its console reports orders that are not there yet
    twice = '{"orderId": "o-1", "orderId": "o-2", "userId": "u", "items": []}'
    letters = [desk.dead_letter(ORDERS, body, "TOO_MANY_DELIVERIES") for body in (twice, "[1]")]
    order = {"orderId": "o-3", "userId": "u", "items": [{"productId": TEA, "quantity": 1}]}
    letters.append(desk.dead_letter(ORDERS, json.dumps(order), "UNKNOWN_PRODUCT"))
    open_letters(page, desk)
    for each in letters:
        letter(page, each).get_by_role("button", name="Edit and send again").click()
    body = page.get_by_role("textbox", name="Body of the message")
    assert body.count() == 2
    row = letter(page, letters[2])
    row.get_by_role("button", name="Edit as JSON").click()
    text = row.get_by_role("textbox", name="Body of the message")
    assert text.evaluate("area => area === document.activeElement")
    text.fill('{"orderId": "o-1",\n"items"}')
    row.get_by_role("button", name="Send edited message").click()
    row.get_by_role("alert").get_by_text("line 2, column 8").wait_for()
    assert text.get_attribute("aria-invalid") == "true"
    row.get_by_role("button", name="Discard changes").click()
    edit = row.get_by_role("button", name="Edit and send again")
    edit.wait_for()
    assert edit.evaluate("button => button === document.activeElement")
    # A message that was not mended fails again, and is found by its link.
    first = letter(page, letters[0])
    first.get_by_role("button", name="Send edited message").click()
    first.get_by_role("status").get_by_text("it is back in OrderQueue").wait_for()
    desk.shop.deliver("Order")
    first.get_by_role("link", name="It failed again: INVALID_JSON").click()
    page.locator("li:focus", has_text="INVALID_JSON").or_(page.locator("li:focus")).wait_for()


def test_what_is_not_known_about_a_letter_is_said(failing, desk, monkeypatch):
    page, cause = failing, "UNKNOWN_ORDER_STATUS"
    body = '{"orderId": "o-1", "big": 12345678901234567890, "a": {}, "a": ["x, {y}", 1.0]}'
    first, second = desk.dead_letter(ORDERS, body, cause), desk.dead_letter(ORDERS, "{}", cause)
    monkeypatch.setattr(letters, "MOST_DEAD_LETTERS", 2)
    open_letters(page, desk)
    page.get_by_text("OrderQueue holds more messages than the 2 shown here").wait_for()
    # The page keeps its content when it cannot be read again, and updates when it can.
    page.route("**/local/dead-letters", lambda route: route.fulfill(status=503, body="no"))
    page.get_by_role("button", name="Refresh").click()
    page.get_by_text("Cannot refresh this page: no").wait_for()
    page.unroute("**/local/dead-letters")
    page.get_by_role("button", name="Refresh").click()
    page.locator("#said-page .close").wait_for(state="detached")
    # No part of a body is rounded or dropped.
    shown = letter(page, first).locator("pre").inner_text()
    assert "".join(shown.split()) == body.replace(" ", "")
    page.route("**/local/dead-letter", lambda route: route.fulfill(status=504, body="timed out"))
    letter(page, first).get_by_role("button", name="Send again unchanged").click()
    letter(page, first).get_by_role("alert").get_by_text("applied only once").wait_for()
    page.unroute("**/local/dead-letter")
    # Another reader deletes a letter that is still listed.
    settle(desk.aws.sqs, desk.aws.outputs[ORDERS], second, None)
    page.get_by_role("button", name="Send all 2 again unchanged").click()
    page.get_by_role("alert").get_by_text("1 of 2 sent").wait_for()
    letter(page, second).get_by_role("alert").get_by_text("not in the dead-letter queue").wait_for()
    assert desk.shop.waiting("Order") == [body]


def test_a_deep_or_long_letter_hides_no_other_and_is_sent_as_it_was(page, desk):
    deep, far = "[" * 60_000 + "]" * 60_000, '{"a":' * 40 + "1" + "}" * 40
    bodies = (deep, json.dumps({"orderId": "o-1", "note": "x" * 200_000}), far, "a\r\nb")
    sent = [desk.dead_letter(ORDERS, body, "INVALID_JSON") for body in bodies]
    small = desk.dead_letter(ORDERS, damage(1), "SCHEMA_VIOLATION")
    open_letters(page, desk)
    letter(page, small).get_by_text("-90", exact=True).wait_for()
    first, second, third, fourth = (letter(page, each) for each in sent)
    second.get_by_role("link", name="order o-1").wait_for()
    assert third.locator("pre").inner_text().count("\n") == 80
    # A part is shown, and the rest is there.
    shown = first.locator("pre").first
    assert shown.inner_text() == deep[:50_000]
    first.get_by_text("Show 70,000 more characters").click()
    assert first.locator("pre").last.inner_text() == deep[50_000:]

    # What is not edited goes back as it was sent.
    fourth.get_by_role("button", name="Edit and send again").click()
    fourth.get_by_role("button", name="Send edited message").click()
    fourth.get_by_role("status").get_by_text("it is back in OrderQueue.").wait_for()
    assert desk.shop.waiting("Order") == ["a\r\nb"]


def test_a_letter_that_two_presses_send_is_sent(failing, desk):
    page = failing  # its console reports the second request
    first, *_ = [desk.dead_letter(STOCK, damage(n), "BELOW_FLOOR") for n in range(3)]
    open_letters(page, desk)
    held = []
    page.route(
        "**/local/dead-letter",
        lambda route: held.append(route) if len(held) < 2 else route.continue_(),
    )
    letter(page, first).get_by_role("button", name="Send again unchanged").click()
    page.get_by_role("button", name="Send all 3").click()
    while len(held) < 2:
        page.wait_for_timeout(20)
    held[0].continue_()
    letter(page, first).get_by_text("Send again unchanged: it is back in").wait_for()
    held[1].continue_()
    page.get_by_text("Send all 3 again unchanged: all of them are back").wait_for()
    assert page.get_by_text("failed").count() == 0


def test_a_row_that_cannot_be_drawn_hides_no_other(failing, desk):
    page = failing
    good, bad = (desk.dead_letter(STOCK, damage(n), "BELOW_FLOOR") for n in range(2))

    def spoil(route):
        found = route.fetch().json()
        for one in found["deadLetters"]:
            if bad in one.values():
                one["body"] = None
        route.fulfill(json=found)

    page.route("**/local/dead-letters", spoil)
    open_letters(page, desk)
    letter(page, good).get_by_role("button", name="Send again unchanged").wait_for()
    page.get_by_role("listitem").get_by_text(f"Cannot show {STOCK}/{bad}: ").wait_for()
