"""Pages, lists and searches: what they cost in a shop with few orders and in one with many."""

import re

import pytest

from bench.grown.shop import GrownShop
from bench.studies import growth
from operations.audit import read_books
from testing.world.handlers import load_handler


def test_the_books_of_a_grown_shop_balance():
    with GrownShop(200, in_use=True).open() as shop:
        books = read_books(shop.stack)
    assert all(account.balances for account in books.accounts)
    assert not books.corrupt
    assert len(books.orders) == 239


def test_every_page_of_the_api_is_measured():
    calls = [re.sub(r"{(\w+)}", "ID", page.call).partition("?")[0] for page in growth.PAGES]
    routes = {re.sub(r"{(\w+)}", "ID", route) for route in load_handler("api")._ROUTES}
    assert {call for call in calls if call.startswith("GET ")} == {
        route for route in routes if route.startswith("GET ")
    }


@pytest.mark.parametrize(
    ("now", "flat"),
    [
        ({"requests": 11, "units": 110.0, "entries": 20}, True),
        ({"requests": 12, "units": 100.0, "entries": 20}, False),
        ({"requests": 10, "units": 110.5, "entries": 20}, False),
        ({"requests": 10, "units": 100.0, "entries": 0}, False),
        ({"refused": "why"}, False),
    ],
)
def test_a_page_is_flat_if_it_costs_and_shows_about_the_same_in_all_shops(now, flat):
    assert growth.is_flat([{"requests": 10, "units": 100.0, "entries": 20}, now]) is flat


def test_pages_cost_the_same_with_four_times_as_many_orders(monkeypatch):
    flat = tuple(page for page in growth.PAGES if not page.grows)
    monkeypatch.setattr(growth, "PAGES", flat)
    found = [
        ({"orders": orders, "lanes": "in use"}, growth.measure(orders, "in use"))
        for orders in growth.SIZES["tiny"]
    ]
    assert growth.growing(found) == []
