"""The client of the HTTP API: it covers the contract, repeats requests, and waits for outcomes."""

import inspect
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import starmap
from pathlib import Path
from types import UnionType
from typing import Literal, get_args, get_origin, get_type_hints, is_typeddict
from urllib.parse import urlsplit

import pytest
from botocore.credentials import Credentials
from botocore.exceptions import NoCredentialsError, NoRegionError

from client import ApiError, Client, bearer, fields, signed
from client.sending import Reply
from local import ROOT
from local.process import free_port
from testing.world.clock import ManualClock, virtual_time
from tests.support.http import OPERATIONS, ROUTES

PAGE = ROOT / "docs" / "api.md"
ORDER = {"orderId": "o-1", "userId": "u-7", "items": [{"productId": "tea", "quantity": 2}]}
OF_HEADERS = {"Prefer": "wait", "If-Match": "if_match", "If-None-Match": "if_none_match"}
KINDS = {"string": str, "integer": int, "boolean": bool, "object": Mapping, "array": Sequence}


class Server:
    """Answers requests with prepared replies, the last of which it repeats."""

    def __init__(self, *replies):
        self.replies = [*replies]
        self.requests = []

    def __call__(self, method, url, headers, body):
        self.requests.append((method, url, headers, body and json.loads(body)))
        reply = self.replies[0] if len(self.replies) == 1 else self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def reply(status, document=None, **headers):
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, named, b"" if document is None else json.dumps(document).encode())


LOST = ApiError(0, "NO_ANSWER", "no answer", {})
PROBLEM = {"title": "Conflict", "status": 409, "code": "INSUFFICIENT_STOCK", "detail": "none left"}


@pytest.fixture(autouse=True)
def clock():
    clock = ManualClock()
    with virtual_time(clock):
        yield clock


def call(server, name, **options):
    """Call the method of an operation with the least that it needs."""
    method = getattr(Client("https://api/", send=server, **options), snake(name))
    needed = {
        name: {"stepId": "s-1"} if name == "amend" else "x"
        for name, each in inspect.signature(method).parameters.items()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    }
    needed |= {name: {} for name in needed if name in ("body", "query", "order")}
    return method(**needed)


def snake(name):
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


# ---------------------------------------------------------------------- the contract


def test_the_client_has_a_method_for_each_operation_and_no_other():
    methods = {name for name in vars(Client) if not name.startswith("_")}
    assert methods == {snake(name) for name in ROUTES}


@pytest.mark.parametrize("name", ROUTES)
def test_a_method_takes_what_the_contract_lists(name):
    operation = OPERATIONS[ROUTES[name]]
    method = getattr(Client, snake(name))
    hints, signature = get_type_hints(method), inspect.signature(method)
    given = {each: hints[each] for each in signature.parameters if each != "self"}
    path = [part[1:-1] for part in ROUTES[name][1].split("/") if part.startswith("{")]
    assert all(given.pop(snake(each)) is str for each in path)
    headers = [each for each in operation.get("parameters", ()) if each["in"] == "header"]
    assert all(given.pop(OF_HEADERS[each["name"]]) for each in headers)
    wanted, is_needed = wanted_of(operation)
    for word, hint in given.items():
        # A single parameter may be an argument of its own.
        schema = wanted.get("properties", {}).get(word, wanted)
        assert fits(without_none(hint), schema)
        has_no_default = signature.parameters[word].default is inspect.Parameter.empty
        assert has_no_default or not is_needed
    assert len(given) == bool(wanted)


def wanted_of(operation):
    """The schema of an operation's body or query, and whether a request needs one."""
    if "requestBody" in operation:
        body = operation["requestBody"]
        return body["content"]["application/json"]["schema"], body.get("required", False)
    query = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
    needed = [each["name"] for each in query if each.get("required")]
    properties = {each["name"]: each["schema"] for each in query}
    return {"properties": properties, "required": needed} if query else {}, bool(needed)


def without_none(hint):
    found = [one for one in get_args(hint) if one is not type(None)]
    is_optional = get_origin(hint) is UnionType and len(found) == 1
    return found[0] if is_optional else hint


def fits(hint, schema):
    """Whether a type has exactly the fields of a schema."""
    if "oneOf" in schema:
        return all(starmap(fits, zip(get_args(hint), schema["oneOf"], strict=True)))
    if is_typeddict(hint):
        hints, properties = get_type_hints(hint), schema["properties"]
        assert hints.keys() == properties.keys(), hint
        assert hint.__required_keys__ == {*schema.get("required", ())}, hint
        return all(fits(hints[name], properties[name]) for name in hints)
    if get_origin(hint) is Literal:
        return {*get_args(hint)} == {*schema.get("enum", [schema.get("const")])}
    kind = get_origin(hint) or hint
    inner = schema["type"] != "array" or fits(get_args(hint)[0], schema["items"])
    return inner and kind is KINDS[schema["type"]]


def test_a_type_that_lacks_a_field_of_the_contract_is_found():
    order = OPERATIONS[ROUTES["placeOrder"]]["requestBody"]["content"]["application/json"]["schema"]
    with pytest.raises(AssertionError):
        fits(fields.Amend, order)
    assert not fits(int, {"type": "string"})


@pytest.mark.parametrize("name", ROUTES)
def test_each_error_is_raised_with_its_code_and_repeated_if_that_may_help(name):
    errors = {int(status) for status in OPERATIONS[ROUTES[name]]["responses"] if status >= "400"}
    assert {400, 401, 429, 500, 503} <= errors
    method, path = ROUTES[name]
    for status in sorted(errors):
        server = Server(reply(status, PROBLEM | {"status": status}))
        with pytest.raises(ApiError, match="none left") as found:
            call(server, name)
        assert (found.value.status, found.value.code) == (status, "INSUFFICIENT_STOCK")
        assert len(server.requests) == (5 if status in (429, 500, 503) else 1), status
        sent, url, *_ = server.requests[-1]
        ids = {"orderId": "x", "productId": "x"}
        assert (sent, urlsplit(url).path) == (method, path.format(**ids))


def test_the_documented_command_generates_types_for_every_operation(tmp_path):
    (command,) = re.findall("^npx .*", PAGE.read_text(), re.MULTILINE)
    for name in ("docs", "node_modules"):
        (tmp_path / name).symlink_to(ROOT / name)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    offline = os.environ | {"PATH": path, "npm_config_offline": "true"}
    subprocess.run(command, shell=True, cwd=tmp_path, env=offline, check=True, capture_output=True)
    generated = (tmp_path / "api.d.ts").read_text()
    assert {*re.findall(r'operations\["(\w+)"\]', generated)} == ROUTES.keys()


# ---------------------------------------------------------------------- sending


def test_a_request_is_repeated_unchanged_until_it_is_answered(clock):
    server = Server(LOST, reply(429, {"message": "slow"}), reply(503, PROBLEM, retry_after="7"))
    server.replies.append(reply(201, ORDER, etag='"1"'))
    placed = Client("https://api", send=server).place_order(ORDER)
    assert placed.wait() == ORDER
    assert placed.answer.etag == '"1"'
    assert len(server.requests) == 4
    assert all(request == server.requests[0] for request in server.requests)
    longest = 2, 4, 7 + 8
    assert all(slept <= most for slept, most in zip(clock.slept, longest, strict=True))
    assert clock.slept[2] >= 7


@pytest.mark.parametrize(("seconds", "paused"), [(90.0, 90.0), (-90.0, 0.0), (None, 0.0)])
def test_the_time_after_which_to_repeat_may_be_a_date(clock, seconds, paused):
    at = None if seconds is None else datetime.fromtimestamp(clock.seconds + seconds, UTC)
    after = "soon" if at is None else format_datetime(at, usegmt=True)
    call(Server(reply(503, PROBLEM, retry_after=after), reply(200, {})), "getToday")
    (slept,) = clock.slept
    assert paused <= slept <= paused + 2


def test_the_last_attempt_is_final():
    server = Server(LOST)
    with pytest.raises(ApiError, match="no answer") as found:
        call(server, "getToday", attempts=2)
    assert (found.value.code, found.value.attempts) == ("NO_ANSWER", 2)
    assert len(server.requests) == 2


def test_an_address_without_a_server_gives_no_answer():
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ApiError) as found:
        Client(url, attempts=2).get_about()
    assert (
        str(found.value) == f"no answer from {url}: Connection refused; is this the API's address?"
    )
    error = found.value
    assert (error.status, error.code, error.attempts) == (0, "NO_ANSWER", 2)


@pytest.mark.parametrize(
    ("url", "number", "attempts", "why"),
    [
        ("https://api", socket.EAI_NONAME, 1, "the name does not resolve"),
        ("https://api", socket.EAI_AGAIN, 5, "try later"),
        ("https://api:99999", 0, 1, "Failed to parse: .*"),
        ("https://api..eu", 0, 1, "label empty or too long"),
    ],
)
def test_a_wrong_address_is_not_tried_again(monkeypatch, url, number, attempts, why):
    def resolve(*_, **__):
        raise socket.gaierror(number, "try later")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(ApiError, match=f"no answer from {url}: {why}; is this") as found:
        Client(url).get_about()
    assert found.value.attempts == attempts
    assert found.value.code == ("WRONG_ADDRESS" if attempts == 1 else "NO_ANSWER")


def test_the_reason_for_no_answer_is_not_an_error_that_the_caller_handles():
    try:
        raise socket.gaierror(socket.EAI_NONAME, "another service's name")
    except OSError:
        with pytest.raises(ApiError, match="Connection refused") as found:
            Client(f"http://127.0.0.1:{free_port()}", attempts=1).get_about()
    assert found.value.code == "NO_ANSWER"


def test_an_answer_of_a_gateway_that_is_not_json_is_shown():
    with pytest.raises(ApiError, match="403 : <html>"):
        call(Server(Reply(403, {}, b"<html>")), "getAbout")


def test_a_token_is_asked_for_each_time_and_a_signature_is_of_its_time(clock):
    server, tokens = Server(LOST, reply(200, {})), iter(["first", "second"])
    Client("https://api", bearer(lambda: next(tokens)), send=server).get_about()
    sent = [headers["Authorization"] for _, _, headers, _ in server.requests]
    assert sent == ["Bearer first", "Bearer second"]
    server = Server(reply(200, {}))
    keys = Credentials("key", "secret", "session")
    Client("https://api", signed(keys, "eu-west-1"), send=server).list_stock({"limit": 5})
    ((_, url, headers, _),) = server.requests
    today = datetime.now(UTC).strftime("%Y%m%d")
    assert headers["Authorization"].startswith(
        f"AWS4-HMAC-SHA256 Credential=key/{today}/eu-west-1/execute-api/aws4_request"
    )
    assert (url, headers["X-Amz-Security-Token"]) == ("https://api/stock?limit=5", "session")


@pytest.mark.parametrize(
    ("lacks", "error"),
    [("AWS_DEFAULT_REGION", NoRegionError), ("AWS_ACCESS_KEY_ID", NoCredentialsError)],
)
def test_a_request_without_region_or_credentials_is_not_sent(monkeypatch, lacks, error):
    monkeypatch.delenv(lacks)
    server = Server(reply(200, {}))
    with pytest.raises(error):
        Client("https://api", signed(), send=server).get_about()
    assert server.requests == []


def test_ids_and_queries_are_encoded_once():
    server = Server(reply(200, {}))
    client = Client("https://api", send=server)
    client.get_order("a+b c")
    client.get_products({"ids": ["a&b", "c"]})
    client.find_scanned("(01)0 1")
    assert [url.removeprefix("https://api") for _, url, _, _ in server.requests] == [
        "/orders/a%2Bb%20c",
        "/products?ids=a%26b%2Cc",
        "/barcodes?scan=%2801%290%201",
    ]


def test_the_example_of_the_page_places_an_order(monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    server = Server(reply(201, {"status": "PENDING"}))
    monkeypatch.setattr("client.Http", lambda url: server)
    names = {"SERVER_API": "https://api"}
    exec(code.replace("inventory_orders.client", "client"), names)
    assert names["order"] == {"status": "PENDING"}
    ((method, url, headers, body),) = server.requests
    assert (method, url, headers["Prefer"]) == ("POST", "https://api/orders", "wait=10")
    assert headers["Authorization"].startswith("AWS4-HMAC-SHA256")
    assert body["userId"] == "u-7"


# ---------------------------------------------------------------------- outcomes

ACCEPTED = reply(202, {"status": "ACCEPTED"}, retry_after="2")


def test_an_undecided_order_is_sent_again_until_it_is_decided(clock):
    server = Server(ACCEPTED, ACCEPTED, reply(409, PROBLEM))
    outcome = Client("https://api", send=server).place_order(ORDER, wait=None)
    assert outcome.answer is None
    with pytest.raises(ApiError, match="none left"):
        outcome.wait()
    assert [request[2].get("Prefer") for request in server.requests] == [None, *["wait=25"] * 2]
    assert clock.slept == [2, 2]


def test_waiting_ends_in_time(clock):
    outcome = Client("https://api", send=Server(ACCEPTED)).place_order(ORDER)
    with pytest.raises(TimeoutError, match="still undecided after 5 s"):
        outcome.wait(5)
    assert clock.slept == [2, 2]


@pytest.mark.parametrize("is_made", [True, False])
def test_an_undecided_amend_is_looked_for_in_its_order(is_made):
    others = {"steps": [{"action": "confirm"}, {"action": "amend", "stepId": "other"}]}
    made = {"steps": [{"action": "amend", "stepId": "s-1"}]}
    rejected = {"rejectedAmends": [{"stepId": "s-1", "reason": "INSUFFICIENT_STOCK"}]}
    after = reply(200, made if is_made else rejected)
    server = Server(ACCEPTED, reply(200, others), after)
    outcome = call(server, "amendOrder")
    if is_made:
        assert outcome.wait() == made
    else:
        with pytest.raises(ApiError) as found:
            outcome.wait()
        assert found.value.code == "INSUFFICIENT_STOCK"
    assert [request[0] for request in server.requests] == ["PATCH", "GET", "GET"]
