"""The desk's server for the embedded AWS: requests to the HTTP API, and the list of products."""

import os
import signal
from types import SimpleNamespace

import boto3
import pytest
import yaml
from botocore.exceptions import EndpointConnectionError
from botocore.httpsession import URLLib3Session

from local.desk import server, trial
from local.desk.background import DeskServer
from local.desk.site import Site, serving
from local.desk.trial import Trial
from local.desk.work import Desk
from local.sample_orders import catalogue
from operations.errors import UserError
from tests.support.desk import TOKEN, LiveByHand, ask

HERE = "http://127.0.0.1:4566"
SAMPLES = [product.product_id for product in catalogue()]


class FakeAws:
    """An embedded AWS with an HTTP API and a table of a few products."""

    def __init__(self):
        self.requests = []
        self.listed = ["tea-of-mine", SAMPLES[0]]
        self.scans = []
        self.outputs = {
            "CustomerApiUrl": "http://c3d4.execute-api.localhost:4566",
        }
        self.tables = {"Products": "products"}
        self.dynamodb = SimpleNamespace(scan=self.scan, meta=SimpleNamespace(endpoint_url=HERE))
        self.session = boto3.Session("test", "test", region_name="us-east-1")
        self.answer = (201, "application/json", b'{"status": "PENDING"}')

    def scan(self, **how):
        self.scans.append(how)
        return {"Items": [{"productId": {"S": product_id}} for product_id in self.listed]}

    def send(self, request):
        self.requests.append(request)
        status, kind, content = self.answer
        headers = {"Content-Type": kind, "ETag": '"1"'}
        return SimpleNamespace(status_code=status, headers=headers, content=content)


@pytest.fixture
def aws(monkeypatch):
    fake = FakeAws()
    monkeypatch.setattr(URLLib3Session, "send", lambda _, request: fake.send(request))
    return fake


@pytest.fixture
def tried(aws):
    return Trial(lambda: aws)


@pytest.fixture
def origin(aws, tried):
    desk = Desk(lambda: aws, is_embedded=True)
    with serving(Site(desk, TOKEN, LiveByHand(), SimpleNamespace(), tried)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def tokens(monkeypatch):
    tokens = {"customer": lambda _: "of-u-7", "operator": lambda _: "of-staff"}
    monkeypatch.setattr(trial, "_TOKENS", tokens)


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_a_request_goes_to_the_api_with_the_token_of_whom_it_names(aws, tokens, origin, method):
    aws.answer = (409, "application/problem+json", b'{"code": "NOT_HELD"}')
    for caller, token in (("customer", "of-u-7"), ("operator", "of-staff")):
        body = None if method == "GET" else "{}"
        headers = {"Content_Type": "application/json", "Prefer": "wait=5", "Cookie": "a=b"}
        reply = ask(origin, method, f"/as/{caller}/orders/o%7C1?x=1", body, **headers)
        assert (reply.status, reply.body) == (409, b'{"code": "NOT_HELD"}')
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.headers["etag"] == '"1"'
        sent = aws.requests.pop()
        assert sent.method == method
        assert sent.url == f"{HERE}/_aws/execute-api/c3d4/$default/orders/o%7C1?x=1"
        assert sent.headers["Authorization"] == f"Bearer {token}"
        assert sent.body == (body and body.encode())
        passed = ("application/json", "wait=5")
        assert (sent.headers["Content-Type"], sent.headers["Prefer"]) == passed
        assert "Cookie" not in sent.headers


def test_nobody_calls_the_api_without_the_token_of_the_desk_or_for_another(aws, origin):
    for method in ("GET", "POST", "PATCH", "DELETE"):
        assert ask(origin, method, "/as/operator/orders", X_Desk_Token=None).status == 403
        reply = ask(origin, method, "/as/stranger/orders")
        assert reply.status == 503
        assert reply.said == "stranger is not a caller; use operator or customer\n"
    assert ask(origin, "DELETE", "/data/command", "{}").status == 404
    assert aws.requests == []


def test_the_contract_names_the_desk_as_its_server_on_the_embedded_aws_only(aws, origin):
    here = yaml.safe_load(ask(origin, "GET", "/openapi.yaml").body)
    assert [server["url"] for server in here.pop("servers")] == ["/as/operator", "/as/customer"]
    on_account = Desk(lambda: aws, is_embedded=False)
    with serving(Site(on_account, TOKEN, LiveByHand())) as port:
        there_at = f"http://127.0.0.1:{port}"
        there = yaml.safe_load(ask(there_at, "GET", "/openapi.yaml").body)
    assert there.pop("servers")[0]["url"].startswith("https://")
    assert here == there


def test_a_body_has_a_sensible_size(aws, origin):
    assert ask(origin, "POST", "/data").status == 404
    for length in (str(1 << 30), "-1"):
        assert ask(origin, "POST", "/as/operator/orders", Content_Length=length).status == 413
    assert aws.requests == []


def test_what_cannot_be_reached_is_said_in_words(monkeypatch, aws, tokens, tried, origin):
    def refuse(_):
        raise EndpointConnectionError(endpoint_url=HERE)

    monkeypatch.setattr(aws, "send", refuse)
    reply = ask(origin, "GET", "/as/operator/products?ids=a")
    assert reply.status == 503
    assert reply.said.startswith("the HTTP API does not answer: ")
    del aws.outputs["CustomerApiUrl"]
    assert "set `api` to true in cdk.json" in ask(origin, "GET", "/as/operator/products?ids=a").said

    def no_stack():
        raise UserError("the stack is not read yet")

    tried._stack = no_stack
    reply = ask(origin, "GET", "/data/shelf")
    assert (reply.status, reply.said) == (503, "the stack is not read yet\n")


def test_the_shelf_begins_with_the_samples_and_is_what_the_api_shows_at_once(aws, origin):
    reply = ask(origin, "GET", "/data/shelf")
    assert (reply.status, reply.said) == (200, [*SAMPLES, "tea-of-mine"])
    assert aws.scans == [
        {"TableName": "products", "ProjectionExpression": "productId", "Limit": 100}
    ]
    aws.listed = [f"p-{number:03}" for number in range(100)]
    shown = ask(origin, "GET", "/data/shelf").said
    assert len(shown) == 100
    assert shown[: len(SAMPLES) + 1] == [*SAMPLES, "p-000"]


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
