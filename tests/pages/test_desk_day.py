"""Work at the desk with every kind of control, by keyboard alone."""

import json

import pytest

from tests.support.desk import TEA, desk_for
from tests.support.hands import Keyboard
from tests.support.pages import MILK

WRONG = {"orderId": "o-9", "userId": "auth0:ben", "items": [{"productId": TEA, "quantity": "2"}]}
RIGHT = {**WRONG, "items": [{"productId": TEA, "quantity": 2}]}


@pytest.fixture
def desk(page):
    with desk_for(page) as desk:
        for number in range(1, 5):
            desk.sell(f"o-{number}", (TEA, 2), (MILK, 1))
        desk.letter = desk.dead_letter(
            "OrderDeadLetterQueueUrl", json.dumps(WRONG), "SCHEMA_VIOLATION"
        )
        yield desk


def title(hands, text):
    hands.page.get_by_role("heading", level=1, name=text, exact=True).wait_for()
    hands.page.locator("#view[aria-busy=false]").wait_for()


def said(hands, text):
    hands.page.get_by_role("status").get_by_text(text).wait_for()


def find(hands, text, heading):
    hands.search(text)
    title(hands, heading)


def receive_goods(hands):
    find(hands, TEA, "Earl Grey")
    hands.write("Units that came in", "40")
    hands.send()
    said(hands, f"Receive 40 {TEA}: done")


def count(hands, desk):
    find(hands, MILK, "Hojicha")
    there = desk.stock(MILK)["onHand"]
    hands.press("Begin to count")
    said(hands, f"Count {MILK}: begun")
    hands.write("Units on the shelf", str(there - 1))
    hands.send()
    said(hands, f"Book {there - 1} {MILK} as counted: corrected by -1")


def ship_three_at_once_with_a_pick_list(hands):
    hands.go("Orders")
    title(hands, "Orders to ship")
    for number in (1, 2, 3):
        hands.press(f"Select o-{number}", "checkbox")
    hands.write("Tracking number of o-2", "1Z-2")
    hands.press("Pick list", "link")
    title(hands, "Pick list")
    hands.go("Orders")
    title(hands, "Orders to ship")
    hands.press("Hand over 3 orders")
    said(hands, "3 of 3 handed over")


def lose_a_unit(hands):
    find(hands, "o-4", "Order o-4")
    hands.unfold("Cancel")
    hands.write("Units of Earl Grey to cancel", "1")
    hands.press("Lost or broken: do not sell again", "checkbox")
    hands.press("Cancel these units")
    hands.press("Yes, cancel")
    said(hands, "Cancel 1 Earl Grey of o-4: done")


def edit_a_dead_letter(hands, desk):
    hands.go("Dead letters")
    title(hands, "Dead letters")
    hands.press(f"Edit and send again: message {desk.letter}")
    hands.write("Quantity", "2")
    hands.press("Send edited message")
    said(hands, "it is back in OrderQueue")


def test_a_day_at_the_desk(page, desk):
    hands = Keyboard(page)
    before = desk.stock(TEA)["onHand"]
    receive_goods(hands)
    count(hands, desk)
    ship_three_at_once_with_a_pick_list(hands)
    lose_a_unit(hands)
    edit_a_dead_letter(hands, desk)
    shipped, lost = 3 * 2, 1
    tea = desk.stock(TEA)
    assert (tea["onHand"], tea["committed"]) == (before + 40 - shipped - lost, 1)
    assert {desk.shop.status(f"o-{number}") for number in (1, 2, 3)} == {"FULFILLED"}
    assert [json.loads(body) for body in desk.shop.waiting("Order")] == [RIGHT]
    assert set(desk.shop.unexplained().values()) == {0}
