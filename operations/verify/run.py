"""One run against a stack: creates its own products and orders, waits with time limits, and cleans up."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.domain.location import (
    DEFAULT_LOCATION,
    in_words,
    location_of,
    product_of,
    public_key,
    stock_key,
)
from inventory_orders.lanes.levels import StockLevel
from inventory_orders.store.rows import decode

from .. import queues
from ..audit import read_orders
from ..aws import Aws
from ..dead_letters import DeadLetter, DeadLetterReader
from ..errors import UserError
from ..orders_file import OrderMessage
from ..stock import read_stock
from ..words import counted
from .deployed import Deployed
from .report import CheckFailedError, what_went_wrong

PREFIX = "verify-"
"""The prefix of all products, orders and users of a run. Consumers of `Orders` can ignore users with it."""

A_RUN_LASTS = timedelta(minutes=15)
"""Products of another run are left-overs once they are this old. Newer ones may be in use."""

# This name matches no other program's product or message.
_OF_A_RUN = re.compile(rf'(?:{{"orderId": ")?{PREFIX}\d{{6}}-\d{{6}}-[0-9a-f]{{4}}[- ]')

_MARK = "-mark"
"""The end of the id of a run's first product, which no order contains."""

_CLEAN_UP_SECONDS = 20.0

T = TypeVar("T")
Row = Mapping[str, Any]


def _new_name() -> str:
    return f"{PREFIX}{datetime.now(UTC):%y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"


@dataclass
class Run:
    """One run, with the state that its checks share. Unexpected observations raise a `CheckFailedError`.

    Attributes:
        aws: The stack.
        stack_name: Its name in CloudFormation.
        embedded: Whether it is the embedded AWS.
        orders: The number of orders for the hot product.
        patience: Maximum seconds to wait for the service to answer; `verify` adds the longest batching window.
        metrics_patience: Maximum seconds to wait for CloudWatch.
        say: Called with a description of what the run is waiting for.
        name: Id of the run, and prefix of everything that it creates.
        began: Unix seconds.
        products: Keys of its products' rows that may still exist.
        order_ids: Ids of its orders.
        placed: The number of its orders that were seen as placed.
        held: Row of its order that stays unconfirmed until the end of its hold.
        dead_letters: Ids of messages that will be dead-lettered, by output of the dead-letter queue.
        figures: Measured figures, by name.
    """

    aws: Aws
    stack_name: str
    embedded: bool
    orders: int = 1000
    patience: float = 60.0
    # Metrics of a queue that was quiet for hours arrive up to 15 minutes late:
    # docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/monitoring-using-cloudwatch.html
    metrics_patience: float = 15 * 60.0
    say: Callable[[str], None] = lambda _: None
    name: str = field(default_factory=_new_name)
    began: float = field(default_factory=time.time)
    products: list[str] = field(default_factory=list)
    order_ids: list[str] = field(default_factory=list)
    placed: int = 0
    held: Row | None = None
    dead_letters: dict[str, set[str]] = field(default_factory=dict)
    figures: dict[str, float | None] = field(default_factory=dict)
    _clients: dict[str, Any] = field(default_factory=dict)

    @property
    def started_at(self) -> str:
        """The time of the start, ISO 8601."""
        return timestamp(datetime.fromtimestamp(self.began, UTC))

    def client(self, service: str) -> Any:
        """Create a client for an AWS service."""
        if service not in self._clients:
            self._clients[service] = self.aws.client(service)
        return self._clients[service]

    @cached_property
    def deployed(self) -> Deployed:
        """The template that the service was deployed with."""
        cloudformation, orders = self.client("cloudformation"), self.aws.outputs["OrdersTableName"]
        return Deployed.of(cloudformation, self.aws.dynamodb, self.stack_name, orders)

    @cached_property
    def pause(self) -> float:
        """The seconds between two reads while waiting."""
        return 0.05 if self.embedded else 0.5

    # ------------------------------------------------------------------ asking

    def invoke(self, function: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """Invoke a function with a command, and return its answer.

        Raises:
            CheckFailedError: The function raised an exception.
        """
        try:
            return self.aws.invoke(function, command)
        except UserError as error:
            raise CheckFailedError(str(error)) from error

    def command(self, function: str, command: Mapping[str, Any], wanted: str) -> dict[str, Any]:
        """Invoke a function with a command, and check the `result` of the answer."""
        answer = self.invoke(function, command)
        what = f"{function} answered {command.get('action', 'a command')} with"
        expect(answer.get("result") == wanted, f"{what} {_short(answer)}, not {wanted}")
        return answer

    def list_product(
        self, name: str, stock: int, location: str = DEFAULT_LOCATION, **more: Any
    ) -> str:
        """Create a product of this run, or list it at a location. `more` has further fields. Returns its id."""
        if not self.products:
            self._create(f"{self.name}{_MARK}", 0)
        product_id = f"{self.name}-{name}"
        self._create(stock_key(product_id, location), stock, **more)
        return product_id

    def _create(self, key: str, stock: int, **more: Any) -> None:
        # The key is noted before the command, so that the product is delisted in any case.
        self.products.append(key)
        create = {"action": "create", **public_key(key), "openingStock": stock, **more}
        self.command("ManageProducts", create, "APPLIED")

    def product(self, product_id: str) -> dict[str, Any] | None:
        """Read a row by its key with strong consistency."""
        found = self.aws.dynamodb.get_item(
            TableName=self.aws.outputs["ProductsTableName"],
            Key={"productId": {"S": product_id}},
            ConsistentRead=True,
        ).get("Item")
        return None if found is None else decode(found)

    def level(self, product_id: str) -> StockLevel:
        """Read how many units of a product are on hand, committed and available."""
        level = read_stock(self.aws, product_id)
        if level is None:
            raise CheckFailedError(f"{in_words(product_id)} is gone")
        return level

    def stock(self, product_id: str) -> int:
        """Read how many units of a product are available."""
        return self.level(product_id).available

    def order(self, name: str, lines: Mapping[str, int], **more: Any) -> dict[str, Any]:
        """Make an order of this run, for units at the default location. `more` has further fields."""
        order_id = f"{self.name}-{name}"
        self.order_ids.append(order_id)
        items = [{"productId": p, "quantity": quantity} for p, quantity in lines.items()]
        # The setting `locations` may leave out the default location, where this run lists its products.
        whose = {"orderId": order_id, "userId": f"{self.name}-user"}
        return whose | {"items": items, "locations": [""], **more}

    def send(self, queue: str, *bodies: Mapping[str, Any] | str, group: str = "") -> list[str]:
        """Send messages to a queue, and return their ids.

        The queue is named by its output. Strings are sent unchanged and anything else as JSON.
        """
        messages = []
        for body in bodies:
            text = body if isinstance(body, str) else json.dumps(body)
            messages.append(OrderMessage(text, group=group))
        return queues.send(self.aws, queue, messages)

    # ------------------------------------------------------------------ waiting

    def wait(self, look: Callable[[], T | None], what: str, seconds: float | None = None) -> T:
        """Repeat a read until it returns a value. Raises a `CheckFailedError` if that takes too long."""
        seconds = self.patience if seconds is None else seconds
        until = time.monotonic() + seconds
        while True:
            found = look()
            if found:
                return found
            if time.monotonic() >= until:
                raise CheckFailedError(f"{what}: still nothing after {seconds:.0f} s")
            time.sleep(self.pause)

    def row(self, order: Mapping[str, Any]) -> dict[str, Any] | None:
        """Read an order's row with strong consistency."""
        return read_orders(self.aws, [order["orderId"]]).get(order["orderId"])

    def answer(
        self,
        order: Mapping[str, Any],
        queue: str = "OrderQueue",
        meanwhile: Callable[[], object] = lambda: None,
    ) -> dict[str, Any]:
        """Wait for the row of an order sent to `queue`. Calls `meanwhile` before each read."""

        def look() -> dict[str, Any] | None:
            meanwhile()
            return self.row(order)

        row = self.wait(
            look, f"no answer to an order through {queue} (check its event source mapping)"
        )
        self.placed += row["status"] == "PENDING"
        return row

    # ------------------------------------------------------------------ dead letters

    def take_dead_letters(self, queue: str, seconds: float) -> list[DeadLetter]:
        """Take the dead letters of this run out of a queue, named by its output, and leave all other messages there."""
        wanted = self.dead_letters.setdefault(queue, set())
        until = time.monotonic() + seconds
        taken: list[DeadLetter] = []
        with DeadLetterReader(self.aws.sqs, self.aws.outputs[queue]) as reader:
            while wanted and time.monotonic() < until:
                for delivery in reader.receive():
                    if delivery.content.original_message_id in wanted:
                        reader.delete(delivery)
                        wanted.remove(delivery.content.original_message_id)
                        taken.append(delivery.content)
        return taken

    # ------------------------------------------------------------------ cleaning up

    def clean_up(self, other_orders: Sequence[str] = ()) -> list[str]:
        """Delist all products of this run, cancel its open orders, and remove its dead letters.

        Orders are cancelled once their products are delisted: then no late order can be placed, and no product's row is
        contended. If that is interrupted or fails, the next run finds the orders by the run's mark, which goes last.

        Args:
            other_orders: Orders of other runs to cancel with them.

        Returns:
            Descriptions of what remains.
        """
        marks = [key for key in self.products if key.endswith(_MARK)]
        left = self._delist_all(key for key in self.products if key not in marks)
        still_open = self._cancel_open([*self.order_ids, *other_orders])
        left += still_open or self._delist_all(marks)
        for queue, wanted in self.dead_letters.items():
            try:
                self.take_dead_letters(queue, _CLEAN_UP_SECONDS)
            except (BotoCoreError, ClientError) as error:
                left.append(f"{queue.removesuffix('Url')}: {what_went_wrong(error)}")
            if wanted:
                left.append(
                    f"{queue.removesuffix('Url')}: {counted(len(wanted), 'dead letter')} not arrived yet"
                )
        return left

    def _cancel_open(self, order_ids: Sequence[str]) -> list[str]:
        """Cancel those of these orders that staff would otherwise see as unpaid or as ready to ship.

        Returns the reason if some are still open.
        """
        try:
            found = self._open(order_ids)
            if not found:
                return []
            cancels = [{"action": "cancel", "orderId": order_id} for order_id in found]
            self.send(queues.COMMANDS, *cancels)
            self.wait(
                lambda: not self._open(found),
                f"some of {counted(len(found), 'open order')} not cancelled through OrderCommandQueue (check its event "
                "source mapping)",
            )
        except (BotoCoreError, ClientError) as error:
            return [f"open orders: {what_went_wrong(error)}"]
        except (CheckFailedError, UserError) as error:
            return [str(error)]
        return []

    def _open(self, order_ids: Sequence[str]) -> list[str]:
        """Return the orders that are placed and neither cancelled, expired nor handed over."""
        rows = read_orders(self.aws, order_ids)
        return [name for name, row in rows.items() if row.get("status") in ("PENDING", "CONFIRMED")]

    def _delist_all(self, keys: Iterable[str]) -> list[str]:
        """Delist the rows with these keys. Returns the reasons of those that are still listed."""
        left = []
        # A product's own row is deleted after the rows of its locations.
        for key in sorted(keys, key=lambda key: not location_of(key)):
            if reason := self._delist(key):
                left.append(reason)
            else:
                self.products.remove(key)
        return left

    def _delist(self, key: str) -> str:
        """Delist the row with this key. Returns the reason if it is still listed, else an empty string."""
        until, name = time.monotonic() + _CLEAN_UP_SECONDS, in_words(key)
        while True:
            try:
                row = self.product(key)
                if row is None:
                    return ""
                delist = {"action": "delist", **public_key(key), "createdAt": row["createdAt"]}
                answer = self.invoke("ManageProducts", delist)
            except (BotoCoreError, ClientError) as error:
                return f"{name}: {what_went_wrong(error)}"
            except CheckFailedError as error:
                return f"{name}: {error}"
            if answer.get("result") in ("APPLIED", "STALE"):
                return ""
            if answer.get("result") != "RETRY_LATER" or time.monotonic() > until:
                return f"{name}: {_short(answer)}"
            time.sleep(min(1.0, answer.get("retryAfterSeconds", 1.0)))

    def leftovers(self) -> tuple[list[str], int]:
        """Find rows of other runs' products.

        Returns the keys of leftovers, and the number of products that may be in use.
        """
        pages = self.aws.dynamodb.get_paginator("scan").paginate(
            TableName=self.aws.outputs["ProductsTableName"],
            FilterExpression="begins_with(#productId, :prefix)",
            ProjectionExpression="#productId, #createdAt",
            ExpressionAttributeNames={"#productId": "productId", "#createdAt": "createdAt"},
            ExpressionAttributeValues={":prefix": {"S": PREFIX}},
        )
        rows = [decode(item) for page in pages for item in page["Items"]]
        limit = timestamp(SystemClock().now() - A_RUN_LASTS)
        others = [
            row
            for row in rows
            if _OF_A_RUN.match(row["productId"]) and not row["productId"].startswith(self.name)
        ]
        old = [row["productId"] for row in others if row["createdAt"] < limit]
        in_use = {product_of(row["productId"]) for row in others} - set(map(product_of, old))
        return old, len(in_use)

    def remove_old_dead_letters(self) -> int:
        """Remove leftover dead letters of other runs, and return their number.

        In a queue with many thousands of dead letters, it reads only a part: the first ones would become visible again
        before it reached the end.
        """
        limit = (time.time() - A_RUN_LASTS.total_seconds()) * 1000
        removed = 0
        for _, queue in queues.pairs(self.aws):
            if not queues.depth(self.aws, queue).waiting:
                continue
            until = time.monotonic() + _CLEAN_UP_SECONDS
            with DeadLetterReader(self.aws.sqs, self.aws.outputs[queue]) as reader:
                while time.monotonic() < until and (found := reader.receive()):
                    for delivery in found:
                        if delivery.sent_at < limit and _OF_A_RUN.match(delivery.content.body):
                            reader.delete(delivery)
                            removed += 1
        return removed


def expect(holds: object, otherwise: str) -> None:
    """Raise a `CheckFailedError` unless a condition holds."""
    if not holds:
        raise CheckFailedError(otherwise)


def _short(answer: object) -> str:
    return json.dumps(answer)[:300]


def names(found: Collection[str]) -> str:
    """List the first names, and count the rest."""
    first = sorted(found)[:3]
    return ", ".join(first) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
