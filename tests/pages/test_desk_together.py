"""Two people who act on the same order, in a browser: the second one is told who was first, and when."""

import json
import re

from tests.support.desk import TEA, desk_for, said, show
from tests.support.http import WAIT


def test_the_second_person_is_told_who_was_first(failing):
    page = failing  # its console reports the refused request
    with desk_for(page) as desk:
        _act_together(page, desk)


def _act_together(page, desk):
    for order_id, actor in (("o-1", "ben"), ("o-2", "x")):
        desk.sell(order_id)
        show(page, desk, f"order/{order_id}", f"Order {order_id}")
        desk.command("ChangeOrders", action="fulfil", orderId=order_id, actor=actor)
        page.get_by_role("button", name="Hand over", exact=True).click()
        who = "ben" if actor == "ben" else "you"
        said(page, f"Hand over {order_id}: Handed over by {who}, Jan 15")

    # Ben has handed over the units of this part.
    desk.sell("o-3")
    show(page, desk, "order/o-3", "Order o-3")
    part = {"stepId": "s-1", "items": [{"productId": TEA, "quantity": 2}]}
    desk.command("ChangeOrders", action="fulfil", orderId="o-3", actor="ben", **part)
    page.get_by_text("Hand over part of it").click()
    page.get_by_label("Units of").first.fill("2")
    page.get_by_role("button", name="Hand over these units").click()
    said(page, "failed: Handed over by ben, Jan 15", "alert")
    words = page.get_by_role("alert").filter(has_text="by ben").inner_text()
    assert words.endswith(": nothing was changed")
    assert len(words) < 120


def test_orders_and_products_name_the_member_of_staff_behind_them(page):
    with desk_for(page) as desk:
        desk.command("ManageProducts", action="change", productId=TEA, price=7, actor="ben")
        body = {"orderId": "o-1", "userId": "u-7", "items": [{"productId": TEA, "quantity": 1}]}
        desk.api.call("operator", "POST", "/orders", WAIT, json.dumps(body).encode())
        show(page, desk, "order/o-1", "Order o-1")
        assert page.get_by_role("definition").filter(has_text=re.compile("^x$")).count() == 1
        show(page, desk, f"product/{TEA}", "Earl Grey")
        page.get_by_text("For operators: where its units are").click()
        page.get_by_text("by ben, Jan 15").wait_for()
