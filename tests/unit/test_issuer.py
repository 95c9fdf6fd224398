"""The local issuer refuses what a strict issuer refuses, so that the desk's sign-in is tested against one."""

import base64
import hashlib
import json
from dataclasses import replace
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from typer.testing import CliRunner

from local import issuer as issuing
from local import tokens
from local.commands import main, this_machine
from local.desk import background
from local.desk.background import DeskServer
from local.issuer import Issuer
from operations.errors import UserError
from tests.support.desk import ask, claims_of, config_in, desk_of_shop, unsigned

DESK = "http://127.0.0.1:1/hosted/desk/page.html"
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=")
ASKED = {
    "response_type": "code",
    "client_id": "local",
    "redirect_uri": DESK,
    "scope": "openid",
    "state": "s",
    "nonce": "n",
    "code_challenge": CHALLENGE.decode(),
    "code_challenge_method": "S256",
}


@pytest.fixture
def issuer():
    return Issuer(unsigned, "page.css")


def send(issuer, method, name, query=None, body=None):
    answer = issuer.answer(
        method, name, urlencode(query or {}), urlencode(body or {}).encode(), DESK
    )
    return answer.status, answer


def code_of(issuer, role="pickers", locations="berlin", **asked):
    status, answer = send(
        issuer, "POST", "authorize", ASKED | asked, {"role": role, "locations": locations}
    )
    assert status == 302
    to = urlsplit(answer.headers["Location"])
    assert to._replace(query="").geturl() == DESK
    said = parse_qs(to.query)
    assert said["state"] == ["s"]
    return said["code"][0]


def redeem(issuer, code, **other):
    body = {
        "grant_type": "authorization_code",
        "client_id": "local",
        "redirect_uri": DESK,
        "code": code,
        "code_verifier": VERIFIER,
    }
    status, answer = send(issuer, "POST", "token", body=body | other)
    return status, json.loads(answer.content)


def renew(issuer, token):
    body = {"grant_type": "refresh_token", "client_id": "local", "refresh_token": token}
    status, answer = send(issuer, "POST", "token", body=body)
    return status, json.loads(answer.content)


def test_a_user_signs_in_as_a_role_at_some_locations(issuer):
    status, form = send(issuer, "GET", "authorize", ASKED)
    assert (status, b"<option>pickers" in form.content) == (200, False), "it is chosen"
    status, said = redeem(issuer, code_of(issuer))
    assert (status, said["token_type"], said["expires_in"]) == (200, "Bearer", 3600)
    claims = claims_of(said["id_token"])
    assert (claims["sub"], claims["nonce"], claims["aud"]) == ("pickers", "n", "local")
    assert (claims["cognito:groups"], claims["custom:locations"]) == ("[pickers]", "berlin")
    assert int(claims["exp"]) - int(claims["iat"]) == 3600


@pytest.mark.parametrize(
    "change",
    [
        {"redirect_uri": DESK + "/"},
        {"redirect_uri": DESK + "?next=https://evil.example"},
        {"redirect_uri": "https://evil.example/hosted/desk/page.html"},
        {"redirect_uri": DESK.replace("page.html", "../desk/page.html")},
        {"redirect_uri": ""},
        {"client_id": "shop"},
        {"response_type": "token"},
        {"response_type": "code id_token"},
        {"code_challenge": ""},
        {"code_challenge": VERIFIER, "code_challenge_method": "plain"},
        {"code_challenge_method": ""},
    ],
)
def test_a_request_that_is_not_the_desks_sends_nobody_anywhere(issuer, change):
    for method in ("GET", "POST"):
        status, answer = send(issuer, method, "authorize", ASKED | change, {"role": "owners"})
        assert (status, "Location" in answer.headers) == (400, False)


@pytest.mark.parametrize(
    "other",
    [
        {"code_verifier": "w" * 43},
        {"code_verifier": ""},
        {"code_verifier": CHALLENGE.decode()},
        {"redirect_uri": "https://evil.example"},
        {"client_id": "shop"},
    ],
)
def test_a_stolen_code_is_worth_nothing(issuer, other):
    status, said = redeem(issuer, code_of(issuer), **other)
    assert (status, said["error"]) == (400, "invalid_grant")
    assert redeem(issuer, "guessed")[0] == 400


def test_a_code_works_once_and_for_a_minute(issuer, monkeypatch):
    code = code_of(issuer)
    assert redeem(issuer, code)[0] == 200
    assert redeem(issuer, code)[0] == 400
    code = code_of(issuer)
    assert redeem(issuer, code, code_verifier="w" * 43)[0] == 400
    assert redeem(issuer, code)[0] == 400, "a failed attempt uses it up"
    late = code_of(issuer)
    now = issuing.time.monotonic()
    monkeypatch.setattr(issuing.time, "monotonic", lambda: now + 61)
    assert redeem(issuer, late)[0] == 400


def test_a_session_is_renewed_with_new_roles_and_each_refresh_token_works_once(issuer):
    _, first = redeem(issuer, code_of(issuer))
    status, second = renew(issuer, first["refresh_token"])
    assert (status, claims_of(second["id_token"])["cognito:groups"]) == (200, "[pickers]")
    assert renew(issuer, first["refresh_token"])[0] == 400
    issuer.taken_away.add("pickers")
    status, third = renew(issuer, second["refresh_token"])
    assert status == 200
    assert "cognito:groups" not in claims_of(third["id_token"])


def test_other_requests_are_refused(issuer):
    assert send(issuer, "POST", "authorize", ASKED, {"role": "<root>"})[0] == 400
    assert send(issuer, "GET", "token")[0] == 404
    assert send(issuer, "GET", "sign-out", {"logout_uri": "https://evil.example"})[0] == 400
    status, answer = send(issuer, "GET", "sign-out", {"logout_uri": DESK})
    assert (status, answer.headers["Location"]) == (302, DESK)


def test_a_role_can_be_chosen_in_advance_and_is_never_markup(issuer):
    status, answer = send(issuer, "GET", "as/owners")
    assert (status, answer.headers["Location"]) == (302, DESK)
    assert b"<option selected>owners" in send(issuer, "GET", "authorize", ASKED)[1].content
    send(issuer, "GET", "as/<script>")
    assert b"<script" not in send(issuer, "GET", "authorize", ASKED)[1].content


def test_the_issuer_answers_pages_of_this_server_only_and_only_on_the_embedded_aws():
    with desk_of_shop() as desk:
        path = f"/issuer/authorize?{urlencode(ASKED | {'redirect_uri': desk.origin + '/hosted/desk/page.html'})}"
        answer = ask(desk.origin, "GET", path, X_Desk_Token=None, Sec_Fetch_Site="none")
        assert answer.status == 200
        assert "form-action 'self'" in answer.headers["content-security-policy"]
        for headers in ({"Origin": "https://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
            assert ask(desk.origin, "POST", path, "role=owners", **headers).status == 403
        config = config_in(ask(desk.origin, "GET", "/hosted/desk/page.html"))
        assert (config["desk"], config["signIn"]["issuer"]) == ("hosted", tokens.SETTING["issuer"])
    with desk_of_shop(is_embedded=False) as desk:
        for path in ("/issuer/authorize", "/hosted/desk/page.html"):
            assert ask(desk.origin, "GET", path).status == 404


def test_the_command_opens_the_desk_as_a_role(monkeypatch):
    server = replace(DeskServer.of_process(1, 8000), token="secret")
    monkeypatch.setattr(this_machine, "start_embedded", lambda _: None)
    monkeypatch.setattr(background, "start", lambda: server)
    run = CliRunner().invoke
    done = run(main.app, ["desk", "--url", "--role", "pickers"])
    assert done.output == "http://127.0.0.1:8000/issuer/as/pickers#token=secret\n"
    refused = run(main.app, ["desk", "--role", "king"]).exception
    assert isinstance(refused, UserError)
    assert str(refused).startswith('there is no role "king"; the roles are pickers, ')
