"""The desk's server without a browser: who may use it, what it serves, and what it forwards to the HTTP API."""

import gzip
import os
import signal
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import boto3
import pytest
import yaml
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.httpsession import URLLib3Session
from typer.testing import CliRunner

from infra.desk_files import desk_files
from inventory_orders.store.tables import Table
from local.commands import main, this_machine
from local.desk import api, server
from local.desk.background import DeskServer
from local.desk.site import Site, serving
from operations.errors import UserError
from tests.support.desk import TEA, TOKEN, ask, config_in, desk_of_shop

PAGES = ("/desk/", "/desk/dashboard", "/desk/try", "/desk/contract")
READS = ("attention", "today", "dead-letters", "lanes", "dashboard?range=latest")
HERE = "http://127.0.0.1:4566"


@pytest.fixture
def desk():
    with desk_of_shop() as desk:
        yield desk


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Desk_Token": None},
        {"X_Desk_Token": "another"},
        {"Host": "attacker.example"},
        {"Host": "attacker.example", "Origin": "http://attacker.example"},
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_a_page_of_another_origin_reads_nothing_and_changes_nothing(desk, headers):
    letter = desk.dead_letter("StockDeadLetterQueueUrl", "{}", "BELOW_FLOOR")
    delete = {"queue": "StockDeadLetterQueueUrl", "messageId": letter, "action": "delete"}
    requests = [("GET", f"/local/{path}", None) for path in READS]
    requests += [("POST", "/local/dead-letter", delete)]
    for where in ("/api", "/as/operator"):
        requests += [("GET", f"{where}/about", None), ("POST", f"{where}/orders", {})]
        requests += [(method, f"{where}/products/{TEA}", {}) for method in ("PATCH", "DELETE")]
    for method, path, body in requests:
        reply = ask(desk.origin, method, path, body, **headers)
        assert (reply.status, reply.said.count("\n")) == (403, 1), path
    assert desk.api.calls == []
    assert desk.shop.waiting("StockDeadLetter") == ["{}"]


def test_the_files_hold_no_secret_and_are_for_this_machine_only(desk):
    for path in (*PAGES, *(f"/desk/{name}" for name in desk_files({}))):
        reply = ask(desk.origin, "GET", path, X_Desk_Token=None)
        assert reply.status == 200
        is_compressed = reply.headers.get("content-encoding") == "gzip"
        content = gzip.decompress(reply.body) if is_compressed else reply.body
        assert TOKEN.encode() not in content
        assert ask(desk.origin, "GET", path, Host="attacker.example").status == 403
    assert ask(desk.origin, "GET", "/desk/../pyproject.toml").status == 404
    for path in ("/", "/desk"):
        assert ask(desk.origin, "GET", path, X_Desk_Token=None).headers["location"] == "/desk/"


def test_only_files_with_a_digest_in_their_names_are_cached(desk):
    script = next(name for name in desk_files({}) if name.startswith("app-"))
    kept = [
        "immutable" in ask(desk.origin, "GET", f"/desk/{name}").headers["cache-control"]
        for name in ("", "contract", "openapi.yaml", script)
    ]
    assert kept == [False, False, False, True]
    assert ask(desk.origin, "GET", "/api/about").headers["cache-control"] == "no-store"


def test_no_page_runs_scripts_of_others_and_the_contract_alone_shows_images(desk):
    policies = []
    for path in PAGES:
        headers = ask(desk.origin, "GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "Python" not in headers["server"]
        policies.append(headers["content-security-policy"])
    *others, of_contract = policies
    (policy,) = set(others)
    assert "default-src 'none'" in policy
    assert policy.count("unsafe") == policy.count("'wasm-unsafe-eval'") == 1
    assert "data:" not in policy
    assert of_contract == policy.replace("img-src 'self'", "img-src 'self' data:")


def test_on_an_account_there_is_nothing_of_the_embedded_aws():
    with desk_of_shop(is_embedded=False, is_production=True) as desk:
        config = config_in(ask(desk.origin, "GET", "/desk/"))
        assert config == {"desk": "local", "api": "../api", "embedded": False, "signIn": None}
        about = desk.get("/api/about")
        assert (about["production"], about["currency"]["code"]) == (True, "EUR")
        for path in ("/desk/try", "/desk/dashboard", "/local/dashboard", "/as/operator/orders/o"):
            reply = ask(desk.origin, "GET", path)
            assert (reply.status, reply.said) == (404, "the desk has no such page\n")


def test_the_command_serves_an_account_until_ctrl_c_under_a_secret_address(desk, monkeypatch):
    addresses = []

    def interrupt(address, *_, **__):
        addresses.append(address)
        origin, token = address.split("/desk/#token=")
        refused = ask(origin, "GET", "/local/lanes")
        assert refused.status == 403, "a request without the token is refused"
        assert ask(origin, "GET", "/local/lanes", X_Desk_Token=token).status == 200
        raise KeyboardInterrupt

    monkeypatch.setattr(this_machine, "aws_of", lambda stage, console: desk.aws)
    monkeypatch.setattr(this_machine, "_open", interrupt)
    before = set(threading.enumerate())
    for _ in range(2):
        done = CliRunner().invoke(main.app, ["desk", "--stage", "shop"], catch_exceptions=False)
        assert done.exit_code == 0
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
        assert not thread.is_alive(), "the server still runs after Ctrl-C"
    first, second = (address.split("#token=")[1] for address in addresses)
    assert first != second
    assert len(first) >= 43, "the secret has 256 bits"


def test_the_server_ends_with_the_embedded_aws(monkeypatch):
    lives, noted = iter([True, True, False]), []
    running = SimpleNamespace(endpoint=HERE, is_alive=lambda: next(lives))
    monkeypatch.setattr(server.emulator, "running", lambda: running)
    monkeypatch.setattr(server, "use_embedded", lambda _: None)
    monkeypatch.setattr(server, "Service", lambda *_: SimpleNamespace(poll=lambda: None))
    monkeypatch.setattr(server, "POLL_SECONDS", 0)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(DeskServer, "write", lambda noting, _: noted.append(noting))
    assert server.main() == 0
    assert list(lives) == []
    assert [one.pid for one in noted] == [os.getpid()]


# ---------------------------------------------------------------- what needs AWS permissions


def test_a_quiet_day_reads_no_dead_letters(desk):
    desk.shop.calls.clear()
    assert desk.get("/local/today") == {"deadLetters": {"count": 0, "causes": []}}
    assert not {"ReceiveMessage", "Scan"} & {*desk.shop.calls}


def test_what_needs_attention_changes_with_dead_letters_and_alarms():
    on = []
    alarms = SimpleNamespace(alarms=lambda: {"on": [*on]}, orders=lambda *_: {"placed": [3.0]})
    with desk_of_shop(signals=alarms) as desk:
        seen = [desk.get("/local/attention")]
        for code in ("INVALID_JSON", "INVALID_JSON", "SCHEMA_VIOLATION"):
            desk.dead_letter("OrderDeadLetterQueueUrl", "x", code)
        seen.append(desk.get("/local/attention"))
        on.append({"name": "Retries"})
        seen.append(desk.get("/local/attention"))
        assert seen[0] != seen[1] != seen[2]
        shown = desk.get("/local/today")
        causes = [(cause["code"], cause["count"]) for cause in shown["deadLetters"]["causes"]]
        assert causes == [("INVALID_JSON", 2), ("SCHEMA_VIOLATION", 1)]
        assert "not JSON" in shown["deadLetters"]["causes"][0]["meaning"]
        assert (shown["alarms"], shown["lastHour"]["placed"]) == ({"on": on}, [3.0])


def test_lanes_are_listed_and_unreadable_pages_described(desk):
    assert desk.get("/local/lanes") == {"lanes": [], "unreadable": {}}
    desk.shop.edit(Table.ALLOTMENTS, "1/0", entries={"S": "none"})
    shown = desk.get("/local/lanes")
    assert "1/0" in shown["unreadable"]


def test_what_may_have_been_done_is_no_plain_failure(desk, monkeypatch):
    def failed(status):
        response = {"Error": {"Code": "X"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        return ClientError(response, "X")

    letter = {"queue": "StockDeadLetterQueueUrl", "messageId": "m", "action": "delete"}
    for came, status in ((failed(502), 504), (failed(429), 503)):
        monkeypatch.setattr(desk.aws.sqs, "receive_message", Mock(side_effect=came))
        assert ask(desk.origin, "POST", "/local/dead-letter", letter).status == status, came
    reply = ask(desk.origin, "GET", "/local/unknown")
    assert (reply.status, reply.said) == (404, "the desk has no such page\n")
    assert ask(desk.origin, "DELETE", "/local/dead-letter", letter).status == 404
    del desk.aws.outputs["AllotmentsTableName"]
    reply = ask(desk.origin, "GET", "/local/lanes")
    assert (reply.status, reply.said) == (500, "KeyError: 'AllotmentsTableName'\n")


# ---------------------------------------------------------------- requests to the HTTP API


class FakeAws:
    """A stack with two HTTP APIs, which take every request."""

    def __init__(self):
        self.requests = []
        self.outputs = {
            "ApiUrl": "http://a1b2.execute-api.localhost:4566",
            "CustomerApiUrl": "http://c3d4.execute-api.localhost:4566",
        }
        self.dynamodb = SimpleNamespace(meta=SimpleNamespace(endpoint_url=HERE))
        self.session = boto3.Session("test", "test", region_name="us-east-1")
        self.answer = (201, "application/json", b'{"status": "PENDING"}')

    def send(self, request):
        self.requests.append(request)
        status, kind, content = self.answer
        headers = {"Content-Type": kind, "ETag": '"1"', "Set-Cookie": "a=b"}
        return SimpleNamespace(status_code=status, headers=headers, content=content)


@pytest.fixture
def aws(monkeypatch):
    fake = FakeAws()
    monkeypatch.setattr(URLLib3Session, "send", lambda _, request: fake.send(request))
    tokens = {"customer": lambda _: "of-u-7", "operator": lambda _: "of-staff"}
    monkeypatch.setattr(api, "_TOKENS", tokens)
    return fake


@pytest.fixture
def origin(aws):
    with serving(Site(lambda: aws, TOKEN, dashboard=SimpleNamespace())) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_a_request_goes_to_the_api_with_the_token_of_whom_it_names(aws, origin, method):
    aws.answer = (409, "application/problem+json", b'{"code": "NOT_HELD"}')
    for where, own, token in (
        ("/as/customer", None, "of-u-7"),
        ("/as/operator", None, "of-staff"),
        ("/api", None, "of-staff"),
        ("/api", "Bearer of-anna", "of-anna"),
    ):
        body = None if method == "GET" else "{}"
        headers = {"Content_Type": "application/json", "Prefer": "wait=5", "Cookie": "a=b"}
        path = f"{where}/orders/o%7C1?x=1"
        reply = ask(origin, method, path, body, **headers, Authorization=own)
        assert (reply.status, reply.body) == (409, b'{"code": "NOT_HELD"}')
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.headers["etag"] == '"1"'
        assert "set-cookie" not in reply.headers
        sent = aws.requests.pop()
        assert sent.method == method
        assert sent.url == f"{HERE}/_aws/execute-api/c3d4/$default/orders/o%7C1?x=1"
        assert sent.headers["Authorization"] == f"Bearer {token}"
        assert sent.body == (body and body.encode())
        passed = ("application/json", "wait=5")
        assert (sent.headers["Content-Type"], sent.headers["Prefer"]) == passed
        assert "Cookie" not in sent.headers
        assert "X-Desk-Token" not in sent.headers


def test_on_an_account_requests_have_the_signature_of_the_operator(aws):
    with serving(Site(lambda: aws, TOKEN)) as port:
        reply = ask(f"http://127.0.0.1:{port}", "GET", "/api/about", Authorization="Bearer of-anna")
    assert reply.status == 201
    (sent,) = aws.requests
    assert sent.url == f"{HERE}/_aws/execute-api/a1b2/$default/about"
    assert sent.headers["Authorization"].startswith("AWS4-HMAC-SHA256 ")


def test_nobody_calls_the_api_for_another(aws, origin):
    for method in ("GET", "POST", "PATCH", "DELETE"):
        reply = ask(origin, method, "/as/stranger/orders")
        assert reply.status == 503
        assert reply.said == "stranger is not a caller; use customer or operator\n"
    assert aws.requests == []


def test_the_contract_names_the_desk_as_its_server_on_the_embedded_aws_only(aws, origin):
    here = yaml.safe_load(ask(origin, "GET", "/desk/openapi.yaml").body)
    assert [server["url"] for server in here.pop("servers")] == ["/as/operator", "/as/customer"]
    with serving(Site(lambda: aws, TOKEN)) as port:
        there = yaml.safe_load(ask(f"http://127.0.0.1:{port}", "GET", "/desk/openapi.yaml").body)
    assert there.pop("servers")[0]["url"].startswith("https://")
    assert here == there


def test_a_body_has_a_sensible_size(aws, origin):
    for length in (str(1 << 30), "-1"):
        assert ask(origin, "POST", "/api/orders", Content_Length=length).status == 413
    assert aws.requests == []


def test_an_api_that_cannot_be_reached_is_said_in_words(monkeypatch, aws, origin):
    def refuse(_):
        raise EndpointConnectionError(endpoint_url=HERE)

    monkeypatch.setattr(aws, "send", refuse)
    reply = ask(origin, "GET", "/api/products?ids=a")
    assert reply.status == 503
    assert reply.said.startswith("no answer from http://127.0.0.1:4566/")
    del aws.outputs["CustomerApiUrl"]
    assert "set `api` to true in cdk.json" in ask(origin, "GET", "/api/products?ids=a").said
    del aws.outputs

    def no_stack(*_):
        raise UserError("the stack is not read yet")

    monkeypatch.setattr(api.HttpApi, "of", no_stack)
    assert ask(origin, "GET", "/api/about").said == "the stack is not read yet\n"
