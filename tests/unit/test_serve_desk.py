"""The function of the hosted desk: it serves the files with strict headers, and logs reports without what they may reveal."""

import base64
import gzip
import json
import logging
import re

import pytest

from infra.desk_files import PAGE, answers_file, desk_files
from infra.settings import Desk, Domain
from testing.world.handlers import FUNCTIONS, load

ISSUER = "https://id.example"
DESK = Desk(
    client_id="desk",
    authorize="https://sign-in.example/oauth2/authorize",
    token="https://sign-in.example/oauth2/token",
    sign_out="https://sign-in.example/logout",
    scope="openid",
    domain=None,
)


@pytest.fixture
def function(monkeypatch, tmp_path):
    return loaded(monkeypatch, tmp_path, DESK)


def loaded(monkeypatch, folder, desk):
    module = load("serve_desk", FUNCTIONS / "serve_desk" / "handler.py")
    monkeypatch.setattr(module, "_ANSWERS", answers_file(desk, ISSUER, folder))
    return lambda event: module.lambda_handler(event, None)


def request(name, **more):
    return {
        "routeKey": "GET /desk/{file+}",
        "rawPath": f"/desk/{name}",
        "pathParameters": {"file": name},
        "queryStringParameters": {"code": "a-code", "state": "s"},
    } | more


def content_of(answer):
    content = base64.b64decode(answer["body"])
    is_compressed = answer["headers"].get("Content-Encoding") == "gzip"
    return gzip.decompress(content) if is_compressed else content


def test_each_file_is_served_with_strict_headers(function):
    for name, file in desk_files({}).items():
        answer = function(request(name))
        headers = answer["headers"]
        assert answer["statusCode"] == 200
        assert name == PAGE or base64.b64decode(answer["body"]) == file.content
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert (
            policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
        )
        # The decoder of the camera is WebAssembly.
        assert policy["script-src"] == "'self' 'wasm-unsafe-eval'"
        assert policy["connect-src"] == "'self' https://sign-in.example"
        assert policy["report-uri"] == "reports"
        assert headers["Content-Security-Policy"].count("unsafe") == 1
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Strict-Transport-Security" not in headers


def test_the_page_is_never_cached(function):
    """The address of the page may contain the issuer's code."""
    assert function(request(PAGE))["headers"]["Cache-Control"] == "no-store"


def test_the_page_tells_its_script_how_to_sign_in(function):
    page = content_of(function(request(PAGE))).decode()
    (config,) = re.findall('type="application/json">(.*)</script>', page)
    assert json.loads(config) == {
        "desk": "hosted",
        "api": "..",
        "signIn": {
            "issuer": ISSUER,
            "clientId": "desk",
            "authorize": DESK.authorize,
            "token": DESK.token,
            "signOut": DESK.sign_out,
            "scope": "openid",
        },
    }


def test_a_domain_is_used_over_tls_only(monkeypatch, tmp_path):
    domain = Domain("desk.example", "arn")
    fields = {**vars(DESK), "domain": domain}
    answer = loaded(monkeypatch, tmp_path, Desk(**fields))(request(PAGE))
    assert answer["headers"]["Strict-Transport-Security"] == "max-age=31536000"


@pytest.mark.parametrize(
    ("path", "to"), [("/desk", "desk/page.html"), ("/a/$default/desk/", "page.html")]
)
def test_the_short_address_leads_to_the_page(function, path, to):
    event = {"routeKey": "GET /desk", "rawPath": path, "pathParameters": None}
    assert function(event) == {"statusCode": 302, "headers": {"Location": to}}


@pytest.mark.parametrize(
    "name", ["app.js", "../handler.py", "answers.json", "page.html/", "constructor", "%70age.html"]
)
def test_there_are_no_other_files(function, name):
    assert function(request(name)) == {"statusCode": 404}


REPORT = {
    "document-uri": "https://desk.example/desk/page.html?code=a-code&state=s",
    "referrer": "",
    "blocked-uri": "https://evil.example/x?token=secret",
    "effective-directive": "script-src-elem",
    "source-file": "https://desk.example/desk/app-00000000.js?code=a-code",
    "line-number": 7,
}


def report(body):
    return {"routeKey": "POST /desk/reports", "rawPath": "/desk/reports", "body": body}


def test_a_report_is_logged_without_codes_and_tokens(function, caplog):
    text = json.dumps({"csp-report": REPORT})
    encoded = base64.b64encode(text.encode()).decode()
    with caplog.at_level(logging.WARNING):
        answer = function(report(text))
        again = function(report(encoded) | {"isBase64Encoded": True})
    assert answer == again == {"statusCode": 204}
    logged, repeated = caplog.messages
    assert logged == repeated
    said = json.loads(logged.removeprefix("content security policy violated: "))
    assert said == {
        "directive": "script-src-elem",
        "blocked": "evil.example",
        "file": "app-00000000.js",
        "line": "7",
    }


@pytest.mark.parametrize(
    "change",
    [
        *({"blocked-uri": "inline"}, {"blocked-uri": "x" * 5000}),
        {"effective-directive": ["x" * 5000]},
    ],
)
def test_a_report_takes_little_room_in_the_log(function, caplog, change):
    assert function(report(json.dumps({"csp-report": REPORT | change}))) == {"statusCode": 204}
    assert len(caplog.text) < 500


@pytest.mark.parametrize(
    "body",
    [
        *(None, "", "{", "[]", "null", '"csp-report"', '{"csp-report": []}', '{"csp-report": {}}'),
        *(
            json.dumps({"csp-report": REPORT | {name: 5}})
            for name in ("blocked-uri", "source-file")
        ),
        json.dumps({"csp-report": REPORT | {"blocked-uri": "http://[x"}}),
        json.dumps({"csp-report": REPORT | {"effective-directive": "a\nforged line" * 1000}}),
        "[" * 8000,
    ],
)
def test_anything_else_is_refused_and_not_logged(function, caplog, body):
    assert function(report(body)) == {"statusCode": 400}
    assert caplog.messages == []
