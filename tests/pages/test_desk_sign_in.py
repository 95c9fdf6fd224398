"""The desk with a sign-in, in a browser: what each role sees, and what becomes of a session."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from local import tokens
from tests.support.accessibility import find
from tests.support.desk import HURRY, TEA, TOKEN, desk_of_shop, said, unsigned

PHONE = {"width": 390, "height": 844}
BERLIN = {"productId": TEA, "locationId": "berlin"}
FIRST_LOAD_REQUESTS, FIRST_LOAD_BYTES = 8, 150_000
ROLES = {**tokens.ROLES, "grants": {**tokens.ROLES["grants"], "tills": ["orders.place"]}}

# All files, also those that come from the cache.
BYTES = """
performance.getEntriesByType("navigation").concat(performance.getEntriesByType("resource"))
  .reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0)
"""


@pytest.fixture
def page(failing):
    """Open a page on a phone. The browser reports each refusal, and the page shows it too."""
    failing.set_viewport_size(PHONE)
    return failing


@pytest.fixture
def desk(page):
    with desk_of_shop(USER_ID_CLAIM="sub", ROLES=json.dumps(ROLES)) as desk:
        desk.command("ManageProducts", action="create", **BERLIN, openingStock=20)
        desk.page = page
        yield desk
        page.goto("about:blank")


def sign_in(page, desk, role, locations="*"):
    page.goto(f"{desk.origin}/issuer/as/{role}#token={TOKEN}")
    confirm(page, locations)


def confirm(page, locations="*"):
    """Fill in the issuer's page."""
    page.get_by_role("heading", name="Sign in").wait_for()
    page.get_by_label("Locations").fill(locations)
    page.get_by_role("button", name="Sign in").click()


def heading(page, name):
    page.get_by_role("heading", level=1, name=name, exact=True).wait_for()


def end_session(page, desk):
    """Let the token end, and the issuer renew no session."""
    desk.issuer._sessions.clear()
    page.evaluate(
        "sessionStorage.session = JSON.stringify({ ...JSON.parse(sessionStorage.session), until: Date.now() - 1 })"
    )


def test_a_picker_on_a_phone_ships_five_orders_of_one_location_and_sees_nothing_else(page, desk):
    for number in range(5):
        desk.sell(f"o-{number}", {**BERLIN, "quantity": 1})
    desk.sell("o-9", (TEA, 1))
    requests = []
    page.on("request", lambda request: requests.append(urlsplit(request.url)))
    sign_in(page, desk, "pickers", "berlin")
    heading(page, "Orders to ship from berlin")
    page.get_by_label("Select all that can ship (5)").wait_for()
    paths = [address.path for address in requests if "since=" not in address.query]
    first = len(paths) - 1 - paths[::-1].index("/hosted/desk/page.html")
    assert len(paths[first:]) <= FIRST_LOAD_REQUESTS, paths[first:]
    assert page.evaluate(BYTES) <= FIRST_LOAD_BYTES
    browser = page.context.new_cdp_session(page)
    assert browser.send("Page.getInstallabilityErrors") == {"installabilityErrors": []}
    browser.detach()
    assert page.locator("nav a").all_inner_texts() == ["Orders", "Scan"]
    assert page.locator("#who").inner_text() == (
        "You are pickers at berlin. You may hand over orders, see orders and see products."
    )
    assert page.get_by_text("o-9").count() == 0
    page.get_by_label("Select all that can ship (5)").check()
    page.get_by_role("button", name="Hand over 5 orders").click()
    for number in range(5):
        said(page, f"Hand over o-{number}: done")
        assert desk.get(f"/api/orders/o-{number}")["status"] == "FULFILLED"
    page.goto(f"{desk.origin}/hosted/desk/page.html#/order/o-9")
    page.get_by_text("OTHER_LOCATION").or_(page.get_by_text("UNKNOWN_ORDER")).first.wait_for()
    page.goto(f"{desk.origin}/hosted/desk/page.html#/products")
    page.get_by_text("your role does not include the permission").first.wait_for()
    page.goto(f"{desk.origin}/hosted/desk/page.html#/dead-letters")
    page.get_by_text("the desk has no page #/dead-letters").wait_for()

    # Neither codes nor tokens are in an address that stays, and no request has them but those that must.
    assert "code=" not in page.url
    assert page.evaluate("Object.keys(localStorage)") == ["token"], "the secret of this server"
    with_codes = {address.path for address in requests if "code=" in address.query}
    assert with_codes == {"/hosted/desk/page.html"}
    assert not [address for address in requests if "eyJ" in address.query + address.path]


def test_who_has_no_role_is_told_so(page, desk):
    desk.issuer.taken_away.add("stock")
    page.add_init_script(HURRY)
    sign_in(page, desk, "stock")
    page.get_by_text("you have no role that may use the desk").wait_for()
    desk.api.calls.clear()
    page.wait_for_timeout(500)
    assert desk.api.calls == [], "only Refresh asks again"
    with page.expect_response("**/about"):
        page.get_by_role("button", name="Refresh").click()


def test_who_may_open_no_page_is_told_so(page, desk):
    desk.issuer.sign = lambda given, seconds: unsigned(
        given, seconds, **{tokens.ROLES["claim"]: ["tills"]}
    )
    sign_in(page, desk, "owners")
    heading(page, "Cannot show this page")
    page.get_by_text("your role opens no page of the desk").wait_for()
    assert page.locator("nav a").count() == 0


def test_today_is_not_well_for_who_may_not_see_it(page, desk):
    sign_in(page, desk, "pickers", "berlin")
    heading(page, "Orders to ship from berlin")
    page.goto(f"{desk.origin}/hosted/desk/page.html#/today")
    page.get_by_text("your role does not include the permission stock.read").wait_for()


def test_a_session_that_is_being_renewed_ends_when_its_user_signs_out(page, desk):
    sign_in(page, desk, "owners")
    heading(page, "Today")
    held = {}
    page.route("**/issuer/token", lambda route: held.setdefault("renewal", route))
    page.route("**/issuer/sign-out*", lambda route: held.setdefault("end", route))
    page.evaluate(
        "sessionStorage.session = JSON.stringify({ ...JSON.parse(sessionStorage.session), until: Date.now() + 30_000 })"
    )
    with page.expect_request("**/issuer/token"):
        page.get_by_role("button", name="Refresh").click()
    with page.expect_request("**/issuer/sign-out*"):
        page.evaluate("document.querySelector('#session ~ button').click()")
    with page.expect_event("requestfinished"):
        held["renewal"].continue_()
    held["end"].continue_()
    page.get_by_role("heading", name="Sign in").wait_for()
    assert page.evaluate("Object.keys(sessionStorage)") == ["sign-in"]


def test_a_session_that_ends_in_the_middle_of_a_form_keeps_the_form(page, desk):
    before = desk.shop.stock(TEA)
    sign_in(page, desk, "owners")
    heading(page, "Today")
    page.goto(f"{desk.origin}/hosted/desk/page.html#/product/{TEA}")
    heading(page, "Earl Grey")
    form = page.locator("form[name^=receive]")
    form.get_by_label("Units").fill("12")
    end_session(page, desk)
    form.get_by_role("button").first.click()
    page.get_by_role("alert").get_by_text("Your session has ended").first.wait_for()
    assert find(page) == []
    page.get_by_role("button", name="Sign in").click()
    confirm(page)
    heading(page, "Earl Grey")
    assert form.get_by_label("Units").input_value() == "12"
    page.get_by_text("You typed this earlier.").first.wait_for()
    assert desk.shop.stock(TEA) == before
    form.get_by_role("button", name="Receive").click()
    said(page, "done")
    assert desk.shop.stock(TEA) == before + 12
    # Another user finds nothing of it.
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    assert page.evaluate("Object.keys(sessionStorage)") == ["sign-in"]


def test_another_user_of_the_tab_finds_nothing_of_what_was_typed(page, desk):
    sign_in(page, desk, "owners")
    heading(page, "Today")
    page.goto(f"{desk.origin}/hosted/desk/page.html#/product/{TEA}")
    heading(page, "Earl Grey")
    field = page.locator("form[name^=receive]").get_by_label("Units")
    field.fill("12")
    end_session(page, desk)
    page.get_by_role("button", name="Refresh").click()
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Role").select_option("stock")
    confirm(page)
    heading(page, "Earl Grey")
    assert field.input_value() == ""


def test_a_role_that_is_taken_away_works_until_the_page_says(page, desk):
    page.add_init_script(HURRY)
    sign_in(page, desk, "stock")
    heading(page, "Today")
    until = page.locator("#session").inner_text()
    assert re.fullmatch(r"Role changes apply by \d+:\d\d.[AP]M", until)
    desk.issuer.taken_away.add("stock")
    page.get_by_role("link", name="Products").click()
    heading(page, "Products")
    # The token is about to end, so the page renews it.
    page.evaluate(
        "sessionStorage.session = JSON.stringify({ ...JSON.parse(sessionStorage.session), until: Date.now() + 30_000 })"
    )
    page.get_by_role("button", name="Refresh").click()
    page.get_by_text(re.compile("your role does not include|you have no role")).first.wait_for()
    page.locator("nav a").first.wait_for(state="detached")
    asked = []
    page.on("request", lambda sent: asked.append(sent.url))
    page.wait_for_timeout(600)
    assert asked == []


@pytest.mark.parametrize(
    "claims",
    [{"nonce": "another"}, {"iss": "https://evil.example"}, {"aud": "shop"}, {"exp": 0}],
    ids=["nonce", "issuer", "audience", "time"],
)
def test_a_token_that_does_not_answer_the_pages_request_signs_nobody_in(page, desk, claims):
    desk.issuer.sign = lambda given, seconds: unsigned(given, seconds, **claims)
    sign_in(page, desk, "owners")
    page.get_by_role("alert").get_by_text("You could not be signed in").wait_for()
    assert page.evaluate("Object.keys(sessionStorage)") == []
    assert desk.api.calls == []
    assert find(page) == []


@pytest.mark.parametrize(
    "query", ["code=stolen&state=another", "error=access_denied&state=another"]
)
def test_an_answer_to_another_request_signs_nobody_in(page, desk, query):
    """Someone who sends such a link would like the reader to work with the sender's session."""
    page.goto(f"{desk.origin}/issuer/as/owners#token={TOKEN}")
    page.get_by_role("heading", name="Sign in").wait_for()
    page.goto(f"{desk.origin}/hosted/desk/page.html?{query}#token={TOKEN}")
    page.get_by_role("alert").get_by_text("does not belong to this page's request").wait_for()
    assert urlsplit(page.url).query == ""
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    assert find(page) == []
    asked = parse_qs(urlsplit(page.url).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["redirect_uri"] == [f"{desk.origin}/hosted/desk/page.html"]
