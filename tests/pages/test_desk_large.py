"""The desk of a shop with 2,000 products and 7,000 orders, in a browser: counts are right, and what is left out is said."""

import pytest
from playwright.sync_api import expect

from tests.support import large_shop
from tests.support.desk import desk_of_shop
from tests.support.large_shop import order_id, sku


@pytest.fixture(scope="module")
def desk():
    with desk_of_shop(products=()) as desk:
        large_shop.fill(desk.shop)
        yield desk


@pytest.fixture(scope="module")
def page(context, forget, desk):
    """Open a page that all tests share, because none of them changes anything."""
    page = context.new_page()
    page.goto(desk.address())
    yield page
    page.goto("about:blank")
    forget()


def show(page, desk, path, title):
    page.goto(f"{desk.origin}/#/{path}")
    page.get_by_role("heading", level=1, name=title, exact=True).wait_for()
    page.locator("#view[aria-busy=false]").wait_for()


def rows(page):
    return page.locator("tbody tr")


def test_today_counts_products_exactly_and_says_that_it_read_the_oldest_orders(page):
    page.get_by_role("heading", name="5 things need your attention").wait_for()
    needs = [text.split(".")[0] for text in page.locator(".summary li").all_inner_texts()]
    assert needs == [
        "Ship 98+ paid orders",
        "2 of the oldest 100 paid orders cannot ship",
        f"{large_shop.SHORT} products have more units promised than on hand",
        f"{large_shop.OUT} products out of stock",
        f"{large_shop.LOW} products low on stock",
    ]
    figures = [text.split("\n")[0] for text in page.locator(".figure").all_inner_texts()]
    assert figures == ["100+", "100+", "40", "44", "4", "0"]
    page.get_by_text("Total: 2,000 products.").wait_for()


def test_products_that_are_not_listed_are_found_by_filters(page, desk):
    show(page, desk, "products", "Products")
    page.get_by_text("2,000 products. The first 300 are listed: filter to see others.").wait_for()
    assert rows(page).count() == 301
    assert rows(page).last.inner_text().startswith("Total of 2,000 products")
    page.get_by_label("Show").select_option("LOW_STOCK")
    expect(rows(page)).to_have_count(large_shop.LOW + 1)
    page.get_by_label("Filter").fill("article 1951")
    expect(rows(page)).to_have_count(2)
    assert rows(page).first.inner_text().startswith("Article 1951")


def test_lists_of_orders_begin_with_a_hundred_and_show_more(page, desk):
    for path, title, step, status in (
        ("orders", "Orders to ship", 10, "Cannot ship: Article 2 (1 wanted, 0 on hand)"),
        ("orders/held", "Orders waiting for payment", 20, "waiting for payment"),
    ):
        show(page, desk, path, title)
        page.get_by_text("The first 100 orders.").wait_for()
        rows(page).first.get_by_text(status).wait_for()
        page.get_by_role("button", name="Show more").click()
        page.get_by_text("The first 200 orders.").wait_for()
        shown = page.locator("tbody td.wide:not(.act) > div > a").all_inner_texts()
        assert shown == [order_id(number * step + step // 20) for number in range(200)]


def test_an_id_is_found_among_all_orders_and_nothing_found_is_said(page, desk):
    for text, title in ((order_id(4243), f"Order {order_id(4243)}"), (sku(1999), "Article 1999")):
        page.get_by_role("searchbox", name="Find an order").fill(text)
        page.keyboard.press("Enter")
        page.get_by_role("heading", level=1, name=title).wait_for()
    show(page, desk, "search/no-such-thing", "Search: no-such-thing")
    assert page.locator("#view").inner_text()


def test_a_product_has_its_whole_history_and_its_books_balance(page, desk):
    show(page, desk, f"product/{sku(4)}", "Article 4")
    page.get_by_text("17 changes, newest first.").wait_for()
    changes = page.get_by_role("table", name="History").locator("tbody tr")
    assert "Opening stock" in changes.last.inner_text()
    assert page.get_by_text("do not balance").count() == 0
