"""The desk's frame and the API's page, in a browser, for an in-memory tea shop."""

import pytest

from tests.support.desk import TOKEN, desk_for, desk_of_shop
from tests.support.pages import module


@pytest.fixture
def desk(failing):
    with desk_of_shop() as desk:
        yield desk
        failing.goto("about:blank")


def title(page, text):
    page.get_by_role("heading", level=1, name=text).wait_for()


def test_without_the_token_the_page_says_which_address_to_open(failing, desk):
    failing.goto(desk.address().replace(TOKEN, "old"))
    failing.get_by_text("open the address that the desk's command printed").wait_for()
    failing.goto(desk.address())
    title(failing, "Today")
    assert TOKEN not in failing.url
    with failing.context.expect_page() as opened:
        failing.get_by_role("link", name="Products", exact=True).click(modifiers=["Control"])
    title(opened.value, "Products")
    opened.value.get_by_role("link", name="Lady Grey").wait_for()
    opened.value.close()
    failing.get_by_text("Embedded AWS on this machine: stage shop").wait_for()


def test_an_unknown_address_says_so(page):
    with desk_for(page) as desk:
        page.goto(f"{desk.origin}/desk/#/ordres")
        page.get_by_text("the desk has no page #/ordres: choose one above, or search").wait_for()
        assert page.get_by_role("navigation").get_by_role("link", name="Orders").is_visible()
        page.goto(f"{desk.origin}/desk/#/")
        page.get_by_role("heading", level=1, name="Today").wait_for()


def test_a_product_may_be_called_as_what_every_object_has(page):
    script = module("format.js")
    items = "[{productId: 'constructor', quantity: 1}]"
    assert page.evaluate(f"{script}; tested.itemsInWords({items}, {{}})") == "1 constructor"
