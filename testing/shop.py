"""A shop in memory for tests of code that uses the service: its real handlers, its events, and faults on request.

with RunningShop().open() as shop:
    shop.list("tea", 5)
    assert shop.place("o-1", {"tea": 2}) == "PENDING"
    shop.change("confirm", "o-1")
    assert [event["detail-type"] for event in shop.events] == ["OrderPlaced", "OrderConfirmed"]
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Self
from unittest.mock import patch
from urllib.parse import parse_qsl, unquote, urlsplit

from client import Client
from client.sending import ApiError, Reply, Send
from inventory_orders.domain.events import SOURCE
from inventory_orders.domain.location import stock_key
from inventory_orders.domain.product import NewProduct
from inventory_orders.store.tables import KEYS, STREAM_BATCH, STREAMED, Table
from testing.aws import Item
from testing.aws.streams import record
from testing.schedules.in_turn.shop import Shop
from testing.world.api import WorldApi
from testing.world.clock import ManualClock
from testing.world.events import event_of_received, order_body
from testing.world.tables import FEEDS

_WRITES = {"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"}
_SWEEP_SECONDS = 60.0
# So that code which makes clients of its own needs neither a region nor credentials.
_ENVIRONMENT = {
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
}


class RunningShop(Shop):
    """A shop whose queues and streams are read, as in a deployed stack, and whose time only passes in `wait`.

    While it is open, it answers all AWS clients of the process, so code can send messages to the queues in `urls`.

    Attributes:
        changes: The changes to orders and products that have not been published, in the format of the tables' streams.
        unanswered: How many of the next requests over HTTP are processed without their answers arriving.
    """

    def __init__(
        self, products: Sequence[NewProduct] = (), clock: ManualClock | None = None
    ) -> None:
        self.changes: list[dict[str, Any]] = []
        self.unanswered = 0
        self._adjustments = 0
        super().__init__(products, clock)
        self.variables["USER_ID_CLAIM"] = "sub"

    @contextmanager
    def open(self) -> Iterator[Self]:
        with patch.dict(os.environ, _ENVIRONMENT), super().open():
            yield self

    # ------------------------------------------------------------------ commands

    def ask(self, function: str, **command: Any) -> dict[str, Any]:
        """Invoke a function with a command, and return its answer."""
        answer: dict[str, Any] = self.invoke(function, command)
        return answer

    def place(self, order_id: str, units: Mapping[str, int], **fields: Any) -> str | None:
        """Send an order for some units of products.

        Args:
            order_id: The order's id.
            units: Units by product.
            fields: Other fields of the message, such as `userId` or `holdSeconds`.

        Returns:
            The order's status; None if there is no order, because the message is a dead letter or waits.
        """
        self.send("Order", order_body(order_id, dict(units)) | fields)
        self.work()
        return self.status(order_id)

    def change(self, action: str, order_id: str, **fields: Any) -> str | None:
        """Send a command about an order, such as `confirm`. Returns the order's status."""
        self.send("OrderCommand", {"action": action, "orderId": order_id, **fields})
        self.work()
        return self.status(order_id)

    def receive(self, product_id: str, units: int, **fields: Any) -> int:
        """Book a receipt, perhaps at a `locationId`. Returns the units that are available there."""
        self._adjustments += 1
        receipt = {"adjustmentId": f"receipt-{self._adjustments}", "reason": "RECEIPT"}
        self.send("Stock", {"productId": product_id, "delta": units, **receipt, **fields})
        self.work()
        return self.stock(stock_key(product_id, fields.get("locationId", "")))

    def work(self) -> None:
        """Deliver all visible messages, then the changes that result from them."""
        while any(self._deliver(queue) for queue in FEEDS):
            pass
        self._deliver_changes("publish_events", "record_movements")

    def _deliver(self, name: str) -> bool:
        """Deliver up to ten messages of a queue. Returns whether there were any."""
        queue = self.queues[name]
        messages = self.poll(queue)
        if messages:
            records = event_of_received(messages, queue.arn)["Records"]
            self.feed(queue, FEEDS[name].function, records)
        return bool(messages)

    def wait(self, seconds: float) -> None:
        """Let time pass, with a sweep each minute, so that holds end and returned messages come back."""
        until = self.clock.seconds + seconds
        while self.clock.seconds < until:
            self.clock.sleep(min(_SWEEP_SECONDS, until - self.clock.seconds))
            self.ask("sweep", action="sweep")
            self.work()

    # ------------------------------------------------------------------ events

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events so far, in the order in which they were published."""
        return [{"source": SOURCE, **event} for event in self.bus.taken if event["detail"]["data"]]

    def publish(self) -> None:
        """Let the service publish the changes since the last call."""
        self._deliver_changes("publish_events")

    def _deliver_changes(self, *readers: str) -> None:
        """Deliver the changes since the last call to the functions that read the streams."""
        while batch := self.changes[:STREAM_BATCH]:
            for function in readers:
                self.invoke(function, {"Records": batch})
            del self.changes[: len(batch)]

    def answer(self, service: str, operation: str, request: dict[str, Any]) -> Any:
        if operation not in _WRITES:
            return super().answer(service, operation, request)
        before = {table: dict(self.items(table)) for table in STREAMED}
        try:
            return super().answer(service, operation, request)
        finally:
            for table in STREAMED:
                self._record(table, before[table], self.items(table))

    def _record(self, table: Table, before: Mapping[Any, Item], after: Mapping[Any, Item]) -> None:
        for key in dict.fromkeys([*before, *after]):
            old, new = before.get(key), after.get(key)
            if old is not new:
                keys = {name: {"S": part} for name, part in zip(KEYS[table], key, strict=True)}
                self.changes.append(record(keys, old, new, len(self.changes)))

    # ------------------------------------------------------------------ HTTP

    @cached_property
    def _api(self) -> WorldApi:
        return WorldApi(self)

    def client(self, claims: Mapping[str, Any] | None = None) -> Client:
        """A client of the shop's HTTP API.

        Args:
            claims: The claims of a token, whose user is `sub`; by default, requests are signed.
        """
        return Client("https://shop", send=self.sender(claims))

    def sender(self, claims: Mapping[str, Any] | None = None) -> Send:
        """Make the function with which a client sends its requests."""

        def send(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
            parts = urlsplit(url)
            answer = self._api.send(
                method,
                unquote(parts.path),
                {name.lower(): value for name, value in headers.items()},
                None if body is None else body.decode(),
                query=dict(parse_qsl(parts.query, keep_blank_values=True)),
                claims=claims,
            )
            self.work()
            if self.unanswered:
                self.unanswered -= 1
                raise ApiError(0, "NO_ANSWER", "the answer was lost", {})
            named = {name.lower(): str(value) for name, value in answer["headers"].items()}
            return Reply(answer["statusCode"], named, (answer.get("body") or "").encode())

        return send
