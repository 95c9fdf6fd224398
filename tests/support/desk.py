"""Runs the desk of an in-memory tea shop for tests."""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import uuid4

from client.sending import Reply
from local import tokens
from local.desk.api import Api
from local.desk.site import Site, serving
from local.issuer import Issuer
from local.sample_orders import catalogue
from operations.aws import Aws
from operations.currency import Currency
from operations.errors import UserError
from testing.schedules.in_turn.shop import Shop, open_shop
from tests.support import http

TOKEN = "a-secret"
TEA = "tea-earl-grey"
EURO = Currency("EUR", 2)


HURRY = "{ const wait = setTimeout; window.setTimeout = (work, milliseconds) => wait(work, milliseconds / 10); }"
"""A script for a page that has nothing to scan: whatever it waits for comes ten times as fast."""


def ask(origin: str, method: str, path: str, body: Any = None, **headers: str | None) -> Reply:
    """Send a request as the desk's page does. `headers` replace the page's headers, and None leaves one out."""
    given: dict[str, str | None] = {"X-Desk-Token": TOKEN, "Origin": origin}
    given["Sec-Fetch-Site"] = "same-origin"
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    content = body if body is None or isinstance(body, str) else json.dumps(body)
    with closing(HTTPConnection(urlsplit(origin).netloc, timeout=60)) as connection:
        connection.request(method, path, content, {n: v for n, v in given.items() if v is not None})
        answer = connection.getresponse()
        named = {name.lower(): value for name, value in answer.headers.items()}
        return Reply(answer.status, named, answer.read())


def unsigned(claims: Mapping[str, Any], seconds: int, **other: Any) -> str:
    """Make a token that only the in-memory shop accepts. `other` claims replace those that an issuer would set."""
    now = int(time.time())
    times = {"iat": now, "exp": now + seconds}
    content = {
        "iss": tokens.SETTING["issuer"],
        "aud": tokens.DESK["clientId"],
        **claims,
        **times,
        **other,
    }
    text = base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
    return f"e30.{text}.e30"


def claims_of(token: str) -> Mapping[str, Any]:
    """Read the claims of a token, as API Gateway passes them on: as text."""
    text = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return {
        name: f"[{' '.join(value)}]" if isinstance(value, list) else str(value)
        for name, value in claims.items()
    }


class ApiOfShop(Api):
    """The HTTP API of an in-memory shop, whose answers must keep its contract. A test says what has changed.

    Attributes:
        claims: The claims of a caller without a token; None for an operator.
        calls: The method and path of each call, but not of questions for changes.
        most: The most rows of a page of a list.
    """

    def __init__(self, shop: Shop) -> None:
        self.claims: Mapping[str, Any] | None = None
        self.calls: list[str] = []
        self.most = 100
        self._send = http.Api(shop)
        self._changes: list[tuple[str, Any]] = []

    def change(self, kind: str, what: Any) -> None:
        """Note that an order (`orders`) or a product (`products`) has changed."""
        self._changes.append((kind, what))

    def call(
        self, caller: str, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        assert caller == "operator"
        url = urlsplit(path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        if url.path == "/changes":
            return self._news(query.get("since"))
        self.calls.append(f"{method} {path}")
        if "limit" in query:
            query["limit"] = f"{min(int(query['limit']), self.most)}"
        named = {name.lower(): value for name, value in headers.items()}
        text, claims = body and body.decode(), self.claims
        if "authorization" in named:
            claims = claims_of(named["authorization"].removeprefix("Bearer "))
        said = self._send(method, unquote(url.path), text, named, query=query, claims=claims)
        kept = {name.lower(): value for name, value in said.headers.items()}
        return Reply(said.status, kept, said.text.encode())

    def _news(self, since: str | None) -> Reply:
        end = len(self._changes)
        new = self._changes[int(since or end) :]
        news = {kind: [what for one, what in new if one == kind] for kind in ("orders", "products")}
        text = json.dumps(news | {"isAll": True, "next": f"{end}"})
        return Reply(200, {"content-type": "application/json"}, text.encode())


def no_stack() -> Aws:
    """Stand for a stack that cannot be read, in tests of pages that need none."""
    raise UserError("there is no stack")


@dataclass
class DeskOfShop:
    """A desk that is being served.

    Attributes:
        shop: The shop that it works on.
        aws: The stack of the shop.
        origin: The origin of the desk's address.
        api: The shop's HTTP API.
        issuer: Signs in its users; None if the desk is of an account.
        page: The browser page that shows the desk, if there is one.
    """

    shop: Shop
    aws: Aws
    origin: str
    api: ApiOfShop
    issuer: Issuer | None = None
    page: Any = None

    def address(self, part: str = "") -> str:
        return f"{self.origin}/desk/{part}#token={TOKEN}"

    def get(self, path: str) -> Any:
        """Read an address of the desk's server."""
        reply = ask(self.origin, "GET", path)
        assert reply.status == 200, reply.said
        return reply.said

    def post(self, path: str, body: Any) -> Any:
        """Send a change as the page does."""
        reply = ask(self.origin, "POST", path, body)
        assert reply.status == 200, reply.said
        return reply.said

    def stock(self, product_id: str) -> Any:
        """Read the stock of a product from the API."""
        return self.get(f"/api/stock/{product_id}")

    def command(self, function: str, **command: Any) -> None:
        answer = self.aws.invoke(function, command)
        assert answer["result"] == "APPLIED", answer

    def place(self, order_id: str, *lines: Any, user: str = "auth0:anna", **more: Any) -> None:
        """Place an order. A line is a dict, or a product and a quantity. By default, it is for 3 units of tea."""
        items = [
            line if isinstance(line, dict) else {"productId": line[0], "quantity": line[1]}
            for line in lines or [(TEA, 3)]
        ]
        self.command("PlaceOrders", orderId=order_id, userId=user, items=items, **more)

    def sell(self, order_id: str, *lines: Any, **more: Any) -> None:
        """Place an order, and confirm it."""
        self.place(order_id, *lines, **more)
        self.command("ChangeOrders", action="confirm", orderId=order_id)

    def sweep(self) -> None:
        """Sweep, as the schedule does once a minute."""
        assert self.aws.invoke("Sweep", {"action": "sweep"})["result"] == "SWEPT"

    def happens(self, *, orderId: str = "", productId: str = "") -> None:
        """Note a change of an order or a product, and let the page that shows the desk ask for changes at once."""
        if orderId:
            self.api.change("orders", orderId)
        if productId:
            self.api.change("products", {"productId": productId})
        if self.page is not None:
            self.page.evaluate("dispatchEvent(new Event('online'))")

    def dead_letter(
        self,
        queue: str,
        body: str,
        code: str,
        group: str = "",
        attributes: Any = None,
        message: str = "",
    ) -> str:
        """Put a dead letter into a dead-letter queue, with a group if that is a FIFO queue. Returns the letter's id."""
        why = message or f"why it is {code}"
        texts = {"errorCode": code, "errorMessage": why, "originalMessageId": "m"}
        cause: Any = {
            name: {"DataType": "String", "StringValue": text} for name, text in texts.items()
        }
        fifo: Any = group and {"MessageGroupId": group, "MessageDeduplicationId": uuid4().hex}
        return self.aws.sqs.send_message(
            QueueUrl=self.aws.outputs[queue],
            MessageBody=body,
            MessageAttributes=cause | (attributes or {}),
            **(fifo or {}),
        )["MessageId"]


@contextmanager
def desk_of_shop(
    *,
    is_embedded: bool = True,
    is_production: bool = False,
    currency: Currency = EURO,
    notes_changes: bool = True,
    signals: Any = None,
    **variables: str,
) -> Iterator[DeskOfShop]:
    """Serve the desk of a new tea shop. `signals` is its monitoring, and `variables` are further settings of its functions."""
    with open_shop(catalogue()) as shop:
        about = {
            "stage": "shop",
            "production": is_production,
            "currency": currency._asdict(),
            "changes": notes_changes,
            "amendPaid": "AMEND_PAID" in variables,
        }
        shop.restart(ABOUT=json.dumps(about), **variables)
        stack_id = "arn:aws:cloudformation:us-east-1:123456789012:stack/InventoryOrders-shop/1"
        aws = shop.stack_with(stack_id=stack_id, is_production=is_production)
        dashboard: Any = SimpleNamespace() if is_embedded else None
        site = Site(lambda: aws, TOKEN, signals=signals, dashboard=dashboard)
        site.api = api = ApiOfShop(shop)
        if site.issuer is not None:
            site.issuer.sign = unsigned
        with serving(site) as port:
            yield DeskOfShop(shop, aws, f"http://127.0.0.1:{port}", api, site.issuer)


@contextmanager
def desk_for(page: Any, **how: Any) -> Iterator[DeskOfShop]:
    """Open a desk in a browser page.

    The browser leaves the page before the desk stops, because a late request would be answered with an error.
    """
    with desk_of_shop(**how) as desk:
        desk.page = page
        page.goto(desk.address())
        yield desk
        page.goto("about:blank")


def show(page: Any, desk: DeskOfShop, path: str, title: str) -> None:
    """Open a page of the desk, and wait for its heading."""
    page.goto(f"{desk.origin}/desk/#/{path}")
    page.get_by_role("heading", level=1, name=title, exact=True).wait_for()


def config_in(reply: Reply) -> Any:
    """Read what a page tells its script."""
    (found,) = re.findall(rb'type="application/json">(.*)</script>', gzip.decompress(reply.body))
    return json.loads(found)


def said(page: Any, text: str, role: str = "status") -> None:
    """Wait until a page says something; with the role `alert`, that something is wrong."""
    page.get_by_role(role).get_by_text(text).wait_for()


def card(page: Any, title: str) -> Any:
    """Find a card of a page by its heading."""
    return page.locator(".card").filter(has=page.get_by_role("heading", name=title, exact=True))
