"""The parts of the desk for the embedded AWS: requests to the HTTP API, the shelf, and events as they happen."""

import contextlib
import http.client
import json
import socket
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import SimpleNamespace

import boto3
import pytest
import yaml

from local.desk import trial
from local.desk.site import Site, serving
from local.desk.trial import Trial
from local.desk.work import Desk
from local.sample_orders import catalogue
from operations.errors import UserError
from operations.follow import Heard
from tests.support.desk import TOKEN

SAMPLES = [product.product_id for product in catalogue()]


class FakeAws:
    """An embedded AWS of which only the HTTP API answers, and a table that holds some products."""

    def __init__(self):
        self.requests = []
        self.listed = ["tea-of-mine", SAMPLES[0]]
        self.scans = []
        self.outputs = {"ApiUrl": "http://a1b2.execute-api.localhost:4566"}
        self.tables = {"Products": "products"}
        self.answer = (201, "application/json", b'{"status": "PENDING"}')
        self.dynamodb = SimpleNamespace(scan=self.scan, meta=SimpleNamespace(endpoint_url=""))
        self.session = boto3.Session("test", "test", region_name="us-east-1")

    def scan(self, **how):
        self.scans.append(how)
        return {"Items": [{"productId": {"S": product_id}} for product_id in self.listed]}

    def handler(self):
        fake = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self):
                length = int(self.headers.get("Content-Length", 0))
                fake.requests.append(
                    (self.command, self.path, dict(self.headers), self.rfile.read(length))
                )
                status, kind, body = fake.answer
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("ETag", '"1"')
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 - as http.server wants it

            def log_message(self, *_):
                pass

        return Answers


@pytest.fixture
def aws():
    fake = FakeAws()
    with ThreadingHTTPServer(("127.0.0.1", 0), fake.handler()) as server:
        server.daemon_threads = True
        Thread(target=partial(server.serve_forever, 0.01), daemon=True).start()
        fake.dynamodb.meta.endpoint_url = f"http://127.0.0.1:{server.server_address[1]}"
        yield fake
        server.shutdown()


@pytest.fixture
def tried(aws):
    return Trial(lambda: aws)


@pytest.fixture
def port(aws, tried):
    with serving(Site(Desk(lambda: aws, is_embedded=True), TOKEN, SimpleNamespace(), tried)) as at:
        yield at


def send(port, method, path, body=None, **headers):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as to:
        given = {"X-Desk-Token": TOKEN} | {n.replace("_", "-"): v for n, v in headers.items()}
        to.request(method, path, body, {n: v for n, v in given.items() if v is not None})
        answer = to.getresponse()
        return answer.status, answer.read().decode()


def test_a_request_goes_to_the_api_signed_and_as_it_is(aws, port):
    headers = {"Content_Type": "application/json", "Prefer": "wait=5", "Cookie": "of=others"}
    status, text = send(port, "POST", "/api/orders?x=1", '{"orderId": "o"}', **headers)
    assert status == 200
    assert json.loads(text) == {"status": 201, "phrase": "Created", "said": {"status": "PENDING"}}
    ((method, path, sent, body),) = aws.requests
    assert (method, path) == ("POST", "/_aws/execute-api/a1b2/$default/orders?x=1")
    assert body == b'{"orderId": "o"}'
    assert (sent["Content-Type"], sent["Prefer"]) == ("application/json", "wait=5")
    assert sent["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=test/")
    assert "/execute-api/aws4_request" in sent["Authorization"]
    assert "Cookie" not in sent


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            (409, "application/problem+json", b'{"code": "INSUFFICIENT_STOCK"}'),
            {"status": 409, "phrase": "Conflict", "said": {"code": "INSUFFICIENT_STOCK"}},
        ),
        (
            (502, "text/html", b"<b>broken"),
            {"status": 502, "phrase": "Bad Gateway", "said": "<b>broken"},
        ),
    ],
)
def test_a_refusal_by_the_api_is_handed_on(aws, port, answer, said):
    aws.answer = answer
    status, text = send(port, "GET", "/api/orders/o-1")
    assert (status, json.loads(text)) == (200, said)


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_the_page_of_the_api_calls_it_with_the_token_of_whom_it_names(
    monkeypatch, aws, port, method
):
    aws.outputs["CustomerApiUrl"] = "http://c3d4.execute-api.localhost:4566"
    tokens = {"customer": lambda _: "of-u-7", "operator": lambda _: "of-staff"}
    monkeypatch.setattr(trial, "_TOKENS", tokens)
    aws.answer = (409, "application/problem+json", b'{"code": "NOT_HELD"}')
    for caller, token in (("customer", "of-u-7"), ("operator", "of-staff")):
        body = None if method == "GET" else "{}"
        given = {"Content_Type": "application/json", "Cookie": "of=others"}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as to:
            headers = {"X-Desk-Token": TOKEN} | {n.replace("_", "-"): v for n, v in given.items()}
            to.request(method, f"/as/{caller}/orders/o%7C1?x=1", body, headers)
            answer = to.getresponse()
            assert (answer.status, answer.read()) == (409, b'{"code": "NOT_HELD"}')
            assert (answer.headers["Content-Type"], answer.headers["ETag"]) == (
                "application/problem+json",
                '"1"',
            )
        sent_method, path, sent, sent_body = aws.requests.pop()
        assert (sent_method, path) == (method, "/_aws/execute-api/c3d4/$default/orders/o%7C1?x=1")
        assert sent["Authorization"] == f"Bearer {token}"
        assert sent_body == (body or "").encode()
        assert "Cookie" not in sent


def test_nobody_calls_the_api_without_the_token_of_the_desk_or_for_another(aws, port):
    for method in ("GET", "POST", "PATCH", "DELETE"):
        assert send(port, method, "/as/operator/orders", X_Desk_Token=None)[0] == 403
        assert send(port, method, "/as/nobody/orders") == (
            503,
            "nobody is not a caller; use operator or customer\n",
        )
    assert send(port, "DELETE", "/data/command", "{}")[0] == 404
    assert aws.requests == []


def test_the_contract_names_the_desk_as_its_server_on_the_embedded_aws_only(aws, port):
    here = yaml.safe_load(send(port, "GET", "/openapi.yaml")[1])
    assert [server["url"] for server in here.pop("servers")] == ["/as/operator", "/as/customer"]
    with serving(Site(Desk(lambda: aws, is_embedded=False), TOKEN)) as on_account:
        there = yaml.safe_load(send(on_account, "GET", "/openapi.yaml")[1])
        assert send(on_account, "GET", "/as/operator/orders")[0] == 404
        assert send(on_account, "PATCH", "/as/operator/orders")[0] == 404
    assert there.pop("servers")[0]["url"].startswith("https://")
    assert here == there


def test_a_body_has_a_sensible_size(aws, port):
    assert send(port, "POST", "/data")[0] == 404
    assert send(port, "POST", "/api/orders", Content_Length=str(1 << 30))[0] == 413
    assert send(port, "POST", "/api/orders", Content_Length="-1")[0] == 413
    assert aws.requests == []


def test_what_cannot_be_reached_is_said_in_words(aws, tried, port):
    aws.dynamodb.meta.endpoint_url = "http://127.0.0.1:1"
    status, text = send(port, "GET", "/api/products?ids=a")
    assert status == 503
    assert text.startswith("the HTTP API does not answer: ")
    del aws.outputs["ApiUrl"]
    assert "set `api` to true in cdk.json" in send(port, "GET", "/api/products?ids=a")[1]

    def no_stack():
        raise UserError("the stack is not read yet")

    tried._stack = no_stack
    assert send(port, "GET", "/data/shelf") == (503, "the stack is not read yet\n")


def test_the_shelf_begins_with_the_samples_and_is_what_the_api_shows_at_once(aws, port):
    status, text = send(port, "GET", "/data/shelf")
    assert (status, json.loads(text)) == (200, [*SAMPLES, "tea-of-mine"])
    assert aws.scans == [
        {"TableName": "products", "ProjectionExpression": "productId", "Limit": 100}
    ]
    aws.listed = [f"p-{number:03}" for number in range(100)]
    shown = json.loads(send(port, "GET", "/data/shelf")[1])
    assert len(shown) == 100
    assert shown[: len(SAMPLES) + 1] == [*SAMPLES, "p-000"]


class Bus:
    """What is listened to: news, until there are no more, and whether anybody listens."""

    def __init__(self, monkeypatch):
        self.news = []
        self.listens = Event()
        self.ended = Event()
        monkeypatch.setattr(trial, "listening", self.listening)

    @contextmanager
    def listening(self, _):
        self.listens.set()
        try:
            yield self.hear
        finally:
            self.ended.set()

    def hear(self, seconds):
        assert seconds == 1
        while self.news:
            yield Heard(self.news.pop(0), None)
        self.ended.wait(0.01)


@pytest.fixture
def bus(monkeypatch):
    return Bus(monkeypatch)


@contextmanager
def stream(port):
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as to,
        to.makefile("r") as lines,
    ):
        headers = f"Host: 127.0.0.1\r\nX-Desk-Token: {TOKEN}\r\n\r\n"
        to.sendall(f"GET /data/events HTTP/1.1\r\n{headers}".encode())
        assert "200" in next(lines)
        while next(lines).strip():
            pass
        yield lines


def hear(lines):
    return json.loads(next(lines))


def test_events_are_sent_as_they_happen_until_the_page_goes_away(bus, port):
    event = {"detail-type": "OrderPlaced", "detail": {"data": {"name": "a\nb"}}}
    with stream(port) as lines:
        assert hear(lines) == {}
        bus.news.append(event)
        while (heard := hear(lines)) == {}:
            pass
        assert heard == {"event": event}
        assert hear(lines) == {}
        assert not bus.ended.is_set()
    assert bus.ended.wait(60), "the queue and the rule are removed"


def test_when_the_server_ends_nobody_listens_any_more(bus, tried, port):
    with stream(port) as lines:
        assert hear(lines) == {}
        tried.close(10.0)
        assert bus.ended.is_set(), "the queue and the rule are removed"
        assert "problem" not in lines.read(), "the stream ends"


def test_why_nobody_can_listen_is_said(monkeypatch, port):
    def refuse(_):
        raise UserError("AWS does not let you listen")

    monkeypatch.setattr(trial, "listening", refuse)
    with stream(port) as lines:
        assert hear(lines) == {"problem": "AWS does not let you listen"}
