"""A client of the HTTP API: a method for each operation of docs/openapi.yaml, named like it in snake case.

    client = Client("https://a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com", signed())
    order = {"orderId": "o-1", "userId": "u-7", "items": [{"productId": "tea", "quantity": 2}]}
    placed = client.place_order(order).wait()

Requests and answers have the fields of the contract. Requests without an answer, and those answered with 429, 500 or
503, are repeated with the same ids, so they take effect once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode

from client import fields
from client.sending import (
    ApiError,
    Authorize,
    Http,
    Reply,
    Send,
    bearer,
    repeat,
    seconds_to_wait,
    send_once,
    signed,
)

_PAUSE_SECONDS = 1.0
_LIMITS = ("purchaseLimit", "limitGroup")
_SHOWN = (
    *("productId", "locationId", "name", "price", "safetyStock", "stockCount", "version"),
    *_LIMITS,
)
"""Fields of an answer that show whether a new product is the wanted one. Answers leave out empty ones."""


class Answer(dict[str, Any]):
    """The fields of an answer.

    Attributes:
        etag: The version of the order or product, to send as `if_none_match` or `if_match`; None if it has none.
    """

    etag: str | None = None

    @classmethod
    def of(cls, reply: Reply) -> Answer:
        """The answer in a reply."""
        answer = cls(reply.said if reply.body else {})
        answer.etag = reply.headers.get("etag")
        return answer


class Outcome:
    """The outcome of an order or an amend, which the API may not have decided yet.

    Attributes:
        answer: The answer; None while there is none.
    """

    def __init__(self, reply: Reply, ask: Callable[[], Answer | None]) -> None:
        self.answer = None if reply.status == 202 else Answer.of(reply)
        self._pause = seconds_to_wait(reply) or _PAUSE_SECONDS
        self._ask = ask

    def wait(self, seconds: float = 60.0) -> Answer:
        """Wait for the answer.

        Raises:
            ApiError: The order or amend was rejected.
            TimeoutError: It is still undecided.
        """
        end = time.monotonic() + seconds
        while self.answer is None:
            if time.monotonic() + self._pause > end:
                raise TimeoutError(f"still undecided after {seconds} s; wait again")
            time.sleep(self._pause)
            self.answer = self._ask()
        return self.answer


class Client:
    """Calls the HTTP API of a stack. Threads may share it.

    Args:
        url: The output `ApiUrl`, or `CustomerApiUrl` for tokens.
        authorize: `signed()`, or `bearer(token)`; by default, requests are sent as they are, as in tests.
        attempts: The most times to send a request.
        send: How to send requests; by default over the network.

    All methods raise `ApiError`.
    """

    def __init__(
        self,
        url: str,
        authorize: Authorize | None = None,
        *,
        attempts: int = 5,
        send: Send | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._once = partial(send_once, send or Http(url), authorize)
        self._attempts = attempts

    # ------------------------------------------------------------------ orders

    def place_order(self, order: fields.NewOrder, *, wait: int | None = 10) -> Outcome:
        """Place an order.

        Args:
            order: The order.
            wait: Seconds that the API may take to decide, at most 25; None leaves the order to a queue.

        Raises:
            ApiError: With status 409, the order was rejected for good; `code` is the reason.
        """
        send = partial(self._send, "POST", "/orders", body=order)

        def ask() -> Answer | None:
            # The stored order with this id may be another one. The answer to the same request says which.
            reply = send(headers={"Prefer": "wait=25"})
            return None if reply.status == 202 else Answer.of(reply)

        prefer = None if wait is None else f"wait={wait}"
        return Outcome(send(headers={"Prefer": prefer}), ask)

    def list_orders(self, query: fields.OrderFilter) -> Answer:
        """List orders."""
        return self._get("/orders", query)

    def get_order(self, order_id: str, *, if_none_match: str | None = None) -> Answer | None:
        """Get an order; None if it is still the one with this `etag`."""
        return self._get_new(f"/orders/{_id(order_id)}", if_none_match)

    def amend_order(
        self, order_id: str, amend: fields.Amend, *, if_match: str | None = None
    ) -> Outcome:
        """Change the units or attributes of an order. If the API does not decide at once, the answer is the whole order.

        Args:
            order_id: The order.
            amend: The change.
            if_match: The `etag` of the order on which the change is based.
        """
        path, step_id = f"/orders/{_id(order_id)}", amend["stepId"]

        def ask() -> Answer | None:
            # Until the step is stored, even a refusal of the same request does not mean that it was not made.
            order = self._get(path, {})
            for refused in order.get("rejectedAmends", ()):
                if refused["stepId"] == step_id:
                    why = f"the amend {step_id} was rejected"
                    raise ApiError(409, refused["reason"], why, refused)
            is_made = any(step.get("stepId") == step_id for step in order.get("steps", ()))
            return order if is_made else None

        reply = self._send("PATCH", path, body=amend, headers={"If-Match": if_match})
        return Outcome(reply, ask)

    def confirm_order(self, order_id: str, body: fields.Confirmation | None = None) -> Answer:
        """Confirm a paid order."""
        return self._post(f"/orders/{_id(order_id)}/confirm", body)

    def extend_hold(self, order_id: str, body: fields.Extension) -> Answer:
        """Extend the hold of an order."""
        return self._post(f"/orders/{_id(order_id)}/extend", body)

    def fulfil_order(self, order_id: str, body: fields.Part | None = None) -> Answer:
        """Hand over units of an order."""
        return self._post(f"/orders/{_id(order_id)}/fulfil", body)

    def undo_hand_over(self, order_id: str, body: fields.Undoing) -> Answer:
        """Undo a hand-over that did not take place."""
        return self._post(f"/orders/{_id(order_id)}/unfulfil", body)

    def cancel_order(self, order_id: str, body: fields.Cancellation | None = None) -> Answer:
        """Cancel units of an order."""
        return self._post(f"/orders/{_id(order_id)}/cancel", body)

    def take_back(self, order_id: str, body: fields.Return) -> Answer:
        """Take back units that were handed over."""
        return self._post(f"/orders/{_id(order_id)}/returns", body)

    # ------------------------------------------------------------------ products

    def get_products(self, query: fields.ProductFilter) -> Answer:
        """Get up to 100 products at once, or find products."""
        return self._get("/products", query)

    def get_product(self, product_id: str, *, if_none_match: str | None = None) -> Answer | None:
        """Get a product; None if it is still the one with this `etag`."""
        return self._get_new(f"/products/{_id(product_id)}", if_none_match)

    def find_scanned(self, scan: str) -> Answer:
        """Find the product or order that a scanned code means."""
        return self._get("/barcodes", {"scan": scan})

    def create_product(self, body: fields.NewProduct) -> Answer:
        """List a product, or list it at another location.

        If an answer was lost, and the next attempt finds a new product with these values, as far as answers show them, `result` is
        `REPLAYED`.

        Raises:
            ApiError: With `code` PRODUCT_EXISTS, the product in `problem` was listed before, or has changed since.
        """
        try:
            return self._post("/products", body)
        except ApiError as error:
            found = error.problem.get("product", {})
            if error.attempts > 1 and _is_listed(body, found):
                return Answer(found, result="REPLAYED")
            raise

    def change_product(self, product_id: str, body: fields.ProductChange) -> Answer:
        """Change a product's name, price, limits or barcodes."""
        return Answer.of(self._send("PATCH", f"/products/{_id(product_id)}", body=body))

    def delist_product(self, product_id: str, query: fields.Generation) -> Answer:
        """Delist a product."""
        return Answer.of(self._send("DELETE", f"/products/{_id(product_id)}", query=query))

    def discontinue_product(self, product_id: str, body: fields.AtLocation | None = None) -> Answer:
        """Stop taking orders for a product."""
        return self._post(f"/products/{_id(product_id)}/discontinue", body)

    def list_product_again(self, product_id: str, body: fields.AtLocation | None = None) -> Answer:
        """Take orders for a discontinued product again."""
        return self._post(f"/products/{_id(product_id)}/list-again", body)

    # ------------------------------------------------------------------ stock

    def list_stock(self, query: fields.StockFilter | None = None) -> Answer:
        """List the stock of all products."""
        return self._get("/stock", query)

    def get_stock(self, product_id: str, query: fields.AtLocation | None = None) -> Answer:
        """Get the stock of a product, by location."""
        return self._get(f"/stock/{_id(product_id)}", query)

    def adjust_stock(self, product_id: str, body: fields.NewAdjustment) -> Answer:
        """Book a receipt, a correction or a transfer's step."""
        return self._post(f"/products/{_id(product_id)}/adjustments", body)

    def list_adjustments(self, product_id: str, query: fields.LocationPage | None = None) -> Answer:
        """List a product's adjustments."""
        return self._get(f"/products/{_id(product_id)}/adjustments", query)

    def list_history(self, product_id: str, query: fields.HistoryFilter | None = None) -> Answer:
        """List a product's stock changes."""
        return self._get(f"/products/{_id(product_id)}/history", query)

    def transfer_stock(self, product_id: str, body: fields.NewTransfer) -> Answer:
        """Transfer units to another location."""
        return self._post(f"/products/{_id(product_id)}/transfers", body)

    def list_transfers(self) -> Answer:
        """List the transfers in transit."""
        return self._get("/transfers")

    def count_stock(self, body: fields.Count) -> Answer:
        """Count a product."""
        return self._post("/counts", body)

    def list_counts(self, query: fields.CountFilter | None = None) -> Answer:
        """List the counts of a stocktake, or what to count next."""
        return self._get("/counts", query)

    # ------------------------------------------------------------------ staff

    def get_about(self) -> Answer:
        """Get your own permissions, and facts about the stage."""
        return self._get("/about")

    def get_today(self) -> Answer:
        """Get how many orders need attention."""
        return self._get("/today")

    def list_changes(self, since: str | None = None) -> Answer:
        """List the orders and products that changed after the `next` of an earlier answer."""
        return self._get("/changes", {} if since is None else {"since": since})

    # ------------------------------------------------------------------ sending

    def _get(self, path: str, query: Mapping[str, Any] | None = None) -> Answer:
        return Answer.of(self._send("GET", path, query=query))

    def _get_new(self, path: str, known: str | None) -> Answer | None:
        reply = self._send("GET", path, headers={"If-None-Match": known})
        return None if reply.status == 304 else Answer.of(reply)

    def _post(self, path: str, body: Mapping[str, Any] | None) -> Answer:
        return Answer.of(self._send("POST", path, body=body))

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] = MappingProxyType({}),
    ) -> Reply:
        """Send a request with those headers that are not None."""
        named = {name: value for name, value in headers.items() if value is not None}
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            named["Content-Type"] = "application/json"
        texts = {name: _text(value) for name, value in (query or {}).items()}
        text = urlencode(texts, quote_via=quote)
        url = f"{self._url}{path}{text and '?'}{text}"
        return repeat(partial(self._once, method, url, named, content), self._attempts)


def _is_listed(body: fields.NewProduct, found: Mapping[str, Any]) -> bool:
    """Whether a product is as it was to be listed, and has not changed since."""
    # Another location has the product's limits unless it is given others.
    limits = {name: found.get(name) for name in _LIMITS if body.get("locationId")}
    wanted = {**limits, **body, "version": 1, "stockCount": body.get("openingStock")}
    return all((wanted.get(name) or None) == (found.get(name) or None) for name in _SHOWN)


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else ",".join(value)


def _id(name: str) -> str:
    return quote(name, safe="")


__all__ = ["Answer", "ApiError", "Client", "Outcome", "bearer", "signed"]
