"""The desk in a real browser, on the tea shop in memory: its frame, and the page of the API."""

import json
from contextlib import contextmanager

import pytest

from local.desk.trial import Trial
from operations.http_api import Reply
from tests.support.desk import TOKEN, desk_of_shop


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


def title(page, text):
    page.get_by_role("heading", level=1, name=text).wait_for()


def test_without_the_token_the_page_says_which_address_to_open(failing, desk):
    failing.goto(desk.address().replace(TOKEN, "old"))
    failing.get_by_text("open the address that make desk").wait_for()
    failing.goto(desk.address())
    title(failing, "Today")
    assert TOKEN not in failing.url
    failing.get_by_text("Embedded AWS on this machine: account 123456789012").wait_for()


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
    title(page, "Today")
    items = "[{productId: 'constructor', quantity: 1}]"
    words = page.evaluate(f"import('/format.js').then((all) => all.itemsInWords({items}, {{}}))")
    assert words == "1 constructor"
    page.goto(desk.address("try"))
    assert page.evaluate("subjectOf({productId: 'tea', available: 7})") == "tea: 7 available"
