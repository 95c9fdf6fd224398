"""Runs the desk of an in-memory tea shop for tests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from threading import Event
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

from local.desk.live import Live, News
from local.desk.site import Site, serving
from local.desk.trial import Trial
from local.desk.work import Desk
from local.sample_orders import catalogue
from operations.aws import Aws
from operations.currency import Currency
from operations.follow import Heard
from operations.http_api import Reply
from testing.schedules.in_turn.shop import Shop, open_shop

TOKEN = "a-secret"
TEA = "tea-earl-grey"
EURO = Currency("EUR", 2)


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


class LiveByHand(Live):
    """Sends the events that a test chooses to the desk's pages."""

    def __init__(self) -> None:
        super().__init__(_no_stack, list, 1)

    def _listen(self) -> None:
        while self._goes_on():
            self.tell({})
            # This waits in real time: `time` is the shop's clock here.
            Event().wait(0.2)

    def tell(self, news: News) -> None:
        if "event" in news:
            self.heard(Heard(news["event"], 0.0))
        self._tell(news)


def _no_stack() -> Aws:
    raise AssertionError("nothing listens to AWS here")


@dataclass
class DeskOfShop:
    """A desk that is being served.

    Attributes:
        shop: The shop that it works on.
        aws: The stack of the shop.
        origin: The desk's address.
        live: Sends the events that the test chooses to the desk's pages.
    """

    shop: Shop
    aws: Aws
    origin: str
    live: LiveByHand

    def address(self, part: str = "") -> str:
        return f"{self.origin}/{part}#token={TOKEN}"

    def get(self, path: str) -> Any:
        """Read the data of a page."""
        return self._data("GET", path)

    def post(self, path: str, body: Any) -> Any:
        """Send a change as the page does."""
        return self._data("POST", path, body)

    def _data(self, method: str, path: str, body: Any = None) -> Any:
        where = path if path.startswith("/") else f"/data/{path}"
        reply = ask(self.origin, method, where, body)
        assert reply.status == 200, reply.said
        return reply.said

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

    def happens(self, **data: Any) -> None:
        """Send an event with this data to the desk's pages."""
        self.live.tell({"event": {"detail": {"data": data}}})

    def dead_letter(
        self, queue: str, body: str, code: str, group: str = "", attributes: Any = None
    ) -> str:
        """Put a dead letter into a dead-letter queue, with a group if that is a FIFO queue. Returns the letter's id."""
        texts = {"errorCode": code, "errorMessage": f"why it is {code}", "originalMessageId": "m"}
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


class TrialOfShop(Trial):
    """The HTTP API of an in-memory shop."""

    def __init__(self, shop: Shop, aws: Aws) -> None:
        super().__init__(lambda: aws)
        self._shop = shop

    def call(
        self, caller: str, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        assert caller == "operator"
        url = urlsplit(path)
        for route in self._shop.handler("api")._ROUTES:
            verb, template = route.split()
            found = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", template), url.path)
            if verb != method or found is None:
                continue
            signed = {"authorizer": {"iam": {"userArn": "x"}}, "http": {"method": method}}
            event = {
                "version": "2.0",
                "routeKey": route,
                "rawPath": url.path,
                "headers": {name.lower(): value for name, value in headers.items()},
                "queryStringParameters": dict(parse_qsl(url.query)),
                "pathParameters": found.groupdict(),
                "requestContext": signed,
                "isBase64Encoded": False,
                "body": body and body.decode(),
            }
            answer = self._shop.invoke("api", event)
            headers = {name.lower(): text for name, text in answer["headers"].items()}
            return Reply(answer["statusCode"], headers, answer["body"].encode())
        raise AssertionError(f"there is no route {method} {path}")


@contextmanager
def desk_of_shop(
    *,
    is_embedded: bool = True,
    is_production: bool = False,
    currency: Currency = EURO,
    signals: Any = None,
) -> Iterator[DeskOfShop]:
    """Serve the desk of a new tea shop. `signals` is its monitoring."""
    with open_shop(catalogue()) as shop:
        stack_id = "arn:aws:cloudformation:us-east-1:123456789012:stack/InventoryOrders-shop/1"
        aws = shop.stack_with(stack_id=stack_id, is_production=is_production)
        aws = replace(aws, outputs={**aws.outputs, "Currency": json.dumps(currency._asdict())})
        desk = Desk(lambda: aws, is_embedded=is_embedded, signals=signals)
        here: Any = (SimpleNamespace(), TrialOfShop(shop, aws)) if is_embedded else ()
        live = LiveByHand()
        with serving(Site(desk, TOKEN, live, *here)) as port:
            yield DeskOfShop(shop, aws, f"http://127.0.0.1:{port}", live)
        live.close(0)


@contextmanager
def desk_for(page: Any, **how: Any) -> Iterator[DeskOfShop]:
    """Open a desk in a browser page.

    The browser leaves the page before the desk stops, because a late request would be answered with an error.
    """
    with desk_of_shop(**how) as desk:
        page.goto(desk.address())
        yield desk
        page.goto("about:blank")


def show(page: Any, desk: DeskOfShop, path: str, title: str) -> None:
    """Open a page of the desk, and wait for its heading."""
    page.goto(f"{desk.origin}/#/{path}")
    page.get_by_role("heading", level=1, name=title, exact=True).wait_for()


def said(page: Any, text: str, role: str = "status") -> None:
    """Wait until a page says something; with the role `alert`, that something is wrong."""
    page.get_by_role(role).get_by_text(text).wait_for()


def card(page: Any, title: str) -> Any:
    """Find a card of a page by its heading."""
    return page.locator(".card").filter(has=page.get_by_role("heading", name=title, exact=True))
