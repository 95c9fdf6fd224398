"""The desk's frame and the API's page, in a browser, for an in-memory tea shop."""

import pytest

from tests.support.desk import TOKEN, desk_of_shop


@pytest.fixture
def desk(failing):
    with desk_of_shop() as desk:
        yield desk
        failing.goto("about:blank")


def title(page, text):
    page.get_by_role("heading", level=1, name=text).wait_for()


def test_without_the_token_the_page_says_which_address_to_open(failing, desk):
    failing.goto(desk.address().replace(TOKEN, "old"))
    failing.get_by_text("open the address that make desk").wait_for()
    failing.goto(desk.address())
    title(failing, "Today")
    assert TOKEN not in failing.url
    with failing.context.expect_page() as opened:
        failing.get_by_role("link", name="Products", exact=True).click(modifiers=["Control"])
    title(opened.value, "Products")
    opened.value.get_by_role("link", name="Lady Grey").wait_for()
    opened.value.close()
    failing.get_by_text("Embedded AWS on this machine: account 123456789012").wait_for()


def test_a_refresh_stops_no_reader_on_the_way_to_another_page(failing, desk):
    page = failing
    page.goto(desk.address())
    title(page, "Today")
    # A product may be called as what every object has.
    items = "[{productId: 'constructor', quantity: 1}]"
    words = page.evaluate(f"import('/format.js').then((all) => all.itemsInWords({items}, {{}}))")
    assert words == "1 constructor"
    held = []
    page.route("**/scan.js", lambda route: held.append(route))  # noqa: PLW0108 - Playwright takes no built-in method
    page.get_by_role("link", name="Scan", exact=True).click()
    while not held:
        page.wait_for_timeout(20)
    # News does the same as the button.
    page.get_by_role("button", name="Refresh").click()
    page.locator("#view[aria-busy=false]").wait_for()
    held[0].continue_()
    title(page, "Scan")
    assert page.locator("#title").all_inner_texts() == ["Scan"]
