"""A double of a Shopify shop, written from its documentation: stock, tokens, and signed webhooks.

The pages, all of the Admin API 2026-10: https://shopify.dev/docs/api/admin-graphql/2026-10/mutations/inventorySetQuantities,
https://shopify.dev/docs/api/usage/implementing-idempotency, https://shopify.dev/docs/apps/build/webhooks/verify-deliveries
and https://shopify.dev/docs/apps/build/authentication-authorization/client-credentials-grant.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from graphql import GraphQLResolveInfo, build_schema, get_directive_values, graphql_sync

CREDENTIALS = {"clientId": "app-1", "clientSecret": "shpss_not-a-secret"}
LOCATION = "gid://shopify/Location/1"
_TOKEN = "shpat_not-a-secret"
_PATH = "/admin/api/2026-10/graphql.json"

_SCHEMA = build_schema(
    """
    directive @idempotent(key: String!) on FIELD
    type Query { inventoryItems(first: Int, query: String): InventoryItemConnection! }
    type InventoryItemConnection { nodes: [InventoryItem!]! }
    type InventoryItem { id: ID!, sku: String, inventoryLevel(locationId: ID!): InventoryLevel }
    type InventoryLevel { quantities(names: [String!]!): [InventoryQuantity!]! }
    type InventoryQuantity { name: String!, quantity: Int! }
    type Mutation { inventorySetQuantities(input: InventorySetQuantitiesInput!): InventorySetQuantitiesPayload }
    input InventorySetQuantitiesInput {
      name: String!, quantities: [InventoryQuantityInput!]!, reason: String!, referenceDocumentUri: String
    }
    input InventoryQuantityInput {
      inventoryItemId: ID!, locationId: ID!, quantity: Int!, changeFromQuantity: Int
    }
    type InventorySetQuantitiesPayload { userErrors: [InventorySetQuantitiesUserError!]! }
    type InventorySetQuantitiesUserError { code: String, field: [String!], message: String! }
    """
)
_IDEMPOTENT = next(each for each in _SCHEMA.directives if each.name == "idempotent")


class Shopify:
    """The shop.

    Attributes:
        available: Units for sale at the location, by SKU. Other products are not stocked there.
        skus: The SKUs of all inventory items; two may have the same one.
        requests: The number of GraphQL requests so far.
        before_answer: Called before each of them is answered, for what happens at the same time.
        is_throttled: Whether it refuses all requests.
        url: Its address.
    """

    def __init__(self, available: Mapping[str, int]) -> None:
        self.available = dict(available)
        self.skus = [*available]
        self.requests = 0
        self.tokens = 0
        self.before_answer: Callable[[], None] = lambda: None
        self.is_throttled = False
        self.url = ""
        self._answers: dict[str, tuple[Any, Any]] = {}

    def webhook(self, topic: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """Sign a webhook, as the event of a function URL."""
        # Shopify does not sort keys, and writes slashes and other characters in its own way.
        body = json.dumps(order, ensure_ascii=False).replace("/", "\\/")
        digest = hmac.new(CREDENTIALS["clientSecret"].encode(), body.encode(), hashlib.sha256)
        headers = {
            "content-type": "application/json",
            "x-shopify-topic": topic,
            "x-shopify-hmac-sha256": base64.b64encode(digest.digest()).decode(),
        }
        return {"version": "2.0", "headers": headers, "body": body, "isBase64Encoded": False}

    def token(self, form: Mapping[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """Exchange the credentials for a token that lasts a day."""
        wanted = [CREDENTIALS["clientId"], CREDENTIALS["clientSecret"], "client_credentials"]
        given = [form[name][0] for name in ("client_id", "client_secret", "grant_type")]
        if given != wanted:
            return 400, {"error": "invalid_client"}
        self.tokens += 1
        return 200, {"access_token": _TOKEN, "scope": "write_inventory", "expires_in": 86399}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a GraphQL request."""
        self.requests += 1
        self.before_answer()
        if self.is_throttled:
            return {"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}]}
        result = graphql_sync(
            *(_SCHEMA, request["query"], self), variable_values=request["variables"]
        )
        return dict(result.formatted)

    # ------------------------------------------------------------------ fields of the schema

    def inventoryItems(self, _info: Any, first: int, query: str) -> dict[str, Any]:  # noqa: N802
        """Find items whose SKU begins like one that is asked for, as a search may."""
        wanted = [
            re.sub(r"\\(.)", r"\1", sku) for sku in re.findall(r'sku:"((?:[^"\\]|\\.)*)"', query)
        ]
        found = [
            {
                "id": f"gid://shopify/InventoryItem/{number}",
                "sku": sku,
                "inventoryLevel": self._level(sku),
            }
            for number, sku in enumerate(self.skus)
            if any(sku.startswith(each) for each in wanted)
        ]
        return {"nodes": found[:first]}

    def _level(self, sku: str) -> Callable[..., Any]:
        def level(_info: Any, locationId: str) -> Any:
            if locationId != LOCATION or sku not in self.available:
                return None
            quantity = {"name": "available", "quantity": self.available[sku]}
            return {"quantities": lambda _info, names: [quantity for _ in names]}

        return level

    def inventorySetQuantities(  # noqa: N802
        self,
        info: GraphQLResolveInfo[Any],
        input: Mapping[str, Any],  # noqa: A002
    ) -> dict[str, Any]:
        """Set quantities, all or none, if they are what the caller believes."""
        (field,) = info.field_nodes
        directive = get_directive_values(_IDEMPOTENT, field, info.variable_values)
        if directive is None:
            raise ValueError("the @idempotent directive is required")
        key = directive["key"]
        if key in self._answers:
            asked, answer = self._answers[key]
            code = "IDEMPOTENCY_KEY_PARAMETER_MISMATCH"
            return answer if asked == input else _refused(code)
        answer = self._set(input)
        self._answers[key] = input, answer
        return answer

    def _set(self, input: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002
        if input["name"] != "available" or input["reason"] != "correction":
            return _refused("INVALID_REASON")
        for each in input["quantities"]:
            sku = self.skus[int(each["inventoryItemId"].rpartition("/")[2])]
            if "changeFromQuantity" not in each:
                raise ValueError("changeFromQuantity is required, even if it is null")
            if each["changeFromQuantity"] not in (None, self.available[sku]):
                return _refused("CHANGE_FROM_QUANTITY_STALE")
            self.available[sku] = each["quantity"]
        return {"userErrors": []}


def _refused(code: str) -> dict[str, Any]:
    return {"userErrors": [{"code": code, "field": ["input"], "message": code.lower()}]}


@contextmanager
def served(shopify: Shopify) -> Iterator[Shopify]:
    """Serve a shop on a free loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = 401, dict[str, Any](errors="[API] Invalid API key or access token")
            if self.path == "/admin/oauth/access_token":
                status, answer = shopify.token(parse_qs(body.decode()))
            elif self.path == _PATH and self.headers["X-Shopify-Access-Token"] == _TOKEN:
                status, answer = 200, shopify.answer(json.loads(body))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        shopify.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield shopify
        finally:
            server.shutdown()
            thread.join()
