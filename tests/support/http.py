"""The HTTP API as its handlers serve it in the simulated world, and its contract."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import jsonschema
import yaml

from inventory_orders.store.tables import Table
from local import ROOT
from testing.world.api import WorldApi
from testing.world.events import sqs_event
from tests.support.schemas import closed

TEA = "tea-earl-grey"  # the catalogue has 60 packets
JSON = {"content-type": "application/json"}
WAIT = JSON | {"prefer": "wait=5"}
BERLIN = {"productId": TEA, "locationId": "berlin", "openingStock": 0}
LOST = {
    "productId": TEA,
    "createdAt": "2026-11-20T09:30:00.000000+00:00",
    "owner": "w",
    "version": 1,
    "expiresAt": "1795176300.000000",
}

# Every test process parses this file, and libyaml is ten times as fast.
CONTRACT: Any = yaml.load((ROOT / "docs" / "openapi.yaml").read_text("utf-8"), yaml.CSafeLoader)


def resolved(value: Any) -> Any:
    """Replace all references in a part of the contract with their targets."""
    if isinstance(value, dict) and "$ref" in value:
        found = CONTRACT
        for name in value["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        return resolved(found)
    if isinstance(value, dict):
        return {name: resolved(inner) for name, inner in value.items()}
    return [resolved(inner) for inner in value] if isinstance(value, list) else value


OPERATIONS: dict[tuple[str, str], Any] = {
    (method.upper(), path): resolved(operation)
    for path, operations in CONTRACT["paths"].items()
    for method, operation in operations.items()
    if method != "parameters"
}
ROUTES: dict[str, tuple[str, str]] = {
    operation["operationId"]: route for route, operation in OPERATIONS.items()
}


def check_contract(route: tuple[str, ...], said: Said) -> None:
    """Check an answer against the contract."""
    if route not in OPERATIONS:
        assert said.status == 404
        return
    answer = OPERATIONS[route]["responses"][str(said.status)]
    assert said.headers.keys() >= answer.get("headers", {}).keys() - {"Preference-Applied"}
    if said.document is None:
        assert "content" not in answer
    else:
        validator(*route, said.status, said.headers["Content-Type"]).validate(said.document)


@cache
def validator(method: str, path: str, status: int, kind: str) -> Any:
    """Make the validator of a kind of answer. It refuses fields that the contract does not list."""
    content = OPERATIONS[method, path]["responses"][str(status)]["content"]
    return jsonschema.Draft202012Validator(closed(content[kind]["schema"]))


class Api(WorldApi):
    """Sends requests to the handlers, and checks the answers against the contract."""

    def __init__(self, shop: Any) -> None:
        super().__init__(shop)
        self.shop = shop

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] = JSON,
        **more: Any,
    ) -> Said:
        """Send a request.

        Args:
            method: HTTP method.
            path: Path without query.
            body: The body, sent as JSON unless it is a string.
            headers: Headers by name in lower case.
            more: As in `WorldApi.send`.
        """
        text = body if isinstance(body, str) or body is None else json.dumps(body)
        said = Said(self.send(method, path, headers, text, **more))
        check_contract(tuple(self.target(method, path).route.split(" ", 1)), said)
        return said

    @property
    def queued(self) -> Any:
        """The bodies of the messages in the order queue."""
        return self.shop.waiting("Order")

    @property
    def express(self) -> Any:
        """The bodies of the messages in the queue of callers who wait."""
        return self.shop.waiting("OrderExpress")

    def work_off(self, *orders: Any) -> None:
        """Let a worker place the given orders, or else the ones in the queue of callers who wait."""
        if orders:
            self.shop.invoke("place_orders", sqs_event(*orders))
        else:
            self.shop.deliver("OrderExpress")

    def state(self) -> tuple[Any, ...]:
        """Everything that a refused request must leave unchanged."""
        return self.shop.stock(TEA), dict(self.shop.items(Table.ORDERS)), self.queued, self.express


OF_QUEUES = re.compile(r"\b(message|event|SQS|[qQ]ueue|\w+Queue|Lambda|invocation)\b(?!:)")


KEY_OF_A_PLACE = re.compile(r"\w#\w")


class Said:
    """An answer, which must be well-formed."""

    def __init__(self, answer: Any) -> None:
        self.status: int = answer["statusCode"]
        self.text: str = answer.get("body") or ""
        self.document: Any = json.loads(self.text) if self.text else None
        self.headers = dict(answer["headers"])
        assert self.headers["Cache-Control"] == "no-store", "browsers keep nothing"
        assert not KEY_OF_A_PLACE.search(self.text), self.text
        if self.document is not None and self.status >= 400:
            assert self.status < 500 or "secret" not in self.text
            assert self.headers["Content-Type"] == "application/problem+json"
            assert self.document["status"] == self.status
            assert self.document["detail"]
            assert self.document["title"]
            assert not OF_QUEUES.search(self.document["detail"]), self.text

    @property
    def code(self) -> tuple[int, str | None]:
        """The status, and the code of a problem."""
        return self.status, self.document.get("code")


def example_of(operation: Any) -> dict[str, Any]:
    """Return the body and the query in the examples of a route."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    query = {
        parameter["name"]: given if isinstance(given, str) else ",".join(given)
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "query" and (given := parameter.get("example"))
    }
    return {"body": content.get("example"), "query": query}


EXAMPLES = {name: example_of(OPERATIONS[route]) for name, route in ROUTES.items()}


def send(api: Api, name: str, order_id: str = "o-1001", product_id: str = TEA, **more: Any) -> Said:
    """Send the example of a route to an order or a product, with some parts replaced."""
    method, path = ROUTES[name]
    path = path.format(orderId=order_id, productId=product_id)
    return api(method, path, **{"headers": WAIT, **EXAMPLES[name], **more})
