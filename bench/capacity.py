"""Computes the capacity that requests to DynamoDB consume, in the same way for every contender.

Rules of the Amazon DynamoDB Developer Guide ("Read and write operations", "Transactions: how it works", "Item sizes and
formats"):

- A write takes 1 unit for each KB of the item, rounded up, and 2 in a transaction. A failed condition costs as much as
  the write would have. A cancelled transaction is charged for every action that it started.
- A strongly consistent read takes 1 unit for each 4 KB of the item, rounded up. An eventually consistent read takes
  half of that, and a transactional read takes 2. A missing item costs as much as the smallest item.
- A write of an order's row also writes the index `byUser`, which takes 1 more unit, and so does a new order in the index
  `byStatus`. These units are counted separately.

An update request does not show the size of the item. Products are far below 1 KB, so the size of the request's key
and values is close enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

from testing.aws.values import size_of_item

_LOST = ("ConditionalCheckFailed", "TransactionConflict")
_WRITES = {"PutItem": "Put", "UpdateItem": "Update", "DeleteItem": "Delete"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its response, in their wire format.

    Attributes:
        target: `X-Amz-Target`: service and operation, such as `DynamoDB_20120810.GetItem`.
        request: The body of the request: as sent, or parsed.
        status: HTTP status; 0 without a response.
        response: The body of the response: as received, or parsed.
        began: When the request was sent, in seconds on the engine's clock.
        ended: When the response arrived.
    """

    target: str
    request: bytes | Mapping[str, Any]
    status: int
    response: bytes | Mapping[str, Any]
    began: float
    ended: float

    @classmethod
    def of(cls, request: Any, response: Any, began: float, ended: float) -> Exchange:
        """Create an exchange from botocore's prepared request and its response. Without a response, pass None."""
        target, body = request.headers.get("X-Amz-Target", b""), request.body or b""
        return cls(
            target.decode() if isinstance(target, bytes) else target,
            body.encode() if isinstance(body, str) else bytes(body),
            response.status_code if response is not None else 0,
            response.content if response is not None else b"",
            began,
            ended,
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """Consumed capacity units. `index` counts the write units of the indexes, which `write` does not include."""

    write: float = 0.0
    index: float = 0.0
    read: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.write + other.write, self.index + other.index, self.read + other.read)


class Call:
    """A parsed request to DynamoDB.

    Args:
        exchange: The request and its response.
        products: Name of the Products table.
        orders: Name of the Orders table.
    """

    def __init__(self, exchange: Exchange, products: str, orders: str) -> None:
        self.exchange = exchange
        self.operation = exchange.target.rpartition(".")[2]
        self.ok = exchange.status == 200
        self._products = products
        self._orders = orders

    @cached_property
    def request(self) -> Mapping[str, Any]:
        """The request's parameters."""
        return _parsed(self.exchange.request)

    @cached_property
    def answer(self) -> Mapping[str, Any]:
        """The body of the response, which may be an error. Empty if there is no readable response."""
        try:
            return _parsed(self.exchange.response)
        except ValueError:
            return {}

    @property
    def reasons(self) -> list[str]:
        """The code for each action of a cancelled transaction; `None` for an action that did not fail."""
        return [reason.get("Code", "None") for reason in self.answer.get("CancellationReasons", ())]

    @cached_property
    def actions(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The kind and parameters of each requested write."""
        if self.operation == "TransactWriteItems":
            return [pair for action in self.request["TransactItems"] for pair in action.items()]
        if self.operation in _WRITES:
            return [(_WRITES[self.operation], self.request)]
        return []

    @property
    def is_attempt(self) -> bool:
        """Whether the request tried to write products or orders, so that a concurrent writer could make it fail."""
        return any(
            action["TableName"] in (self._products, self._orders) for _, action in self.actions
        )

    @property
    def is_conflict(self) -> bool:
        """Whether the request tried to write products or orders, but a condition or another writer made it fail."""
        if self.ok or not self.is_attempt:
            return False
        code = str(self.answer.get("__type", "")).rpartition("#")[2]
        return code.removesuffix("Exception") in _LOST or any(r in _LOST for r in self.reasons)

    @property
    def order_ids(self) -> Iterator[str]:
        """Ids of the orders that the request wrote or tried to write."""
        for kind, action in self.actions:
            if action["TableName"] == self._orders:
                key: Mapping[str, Any] = action["Item"] if kind == "Put" else action["Key"]
                yield key["orderId"]["S"]

    @property
    def usage(self) -> Usage:
        """The consumed capacity."""
        if self.exchange.status == 0 or self.exchange.status >= 500 or self._is_throttled:
            return Usage()
        if self.actions:
            return self._written()
        if self.operation == "GetItem":
            return Usage(read=_read_units(self.request, self.answer.get("Item")))
        if self.operation == "BatchGetItem":
            return Usage(read=self._batch_read())
        if self.operation == "TransactGetItems":
            responses = self.answer.get("Responses", ())
            return Usage(read=sum(2 * _blocks(entry.get("Item"), 4096) for entry in responses))
        return Usage()

    @property
    def _is_throttled(self) -> bool:
        kind = str(self.answer.get("__type", ""))
        return not self.ok and ("Throttl" in kind or "Throughput" in kind)

    def _written(self) -> Usage:
        factor = 2 if self.operation == "TransactWriteItems" else 1
        returned: Any = self.answer.get("CancellationReasons") or [self.answer] * len(self.actions)
        units = 0.0
        for (kind, action), reason in zip(self.actions, returned, strict=False):
            known = action["Item"] if kind == "Put" else {**action["Key"], **_values(action)}
            stored = reason.get("Item") or reason.get("Attributes")
            units += factor * max(_blocks(known, 1024), _blocks(stored, 1024))
        listed = ("statusShard" in action.get("Item", ()) for _, action in self.actions)
        indexed = sum(1 for _ in self.order_ids) + sum(listed) if self.ok else 0
        return Usage(write=units, index=indexed)

    def _batch_read(self) -> float:
        units = 0.0
        for table, wanted in self.request["RequestItems"].items():
            found = self.answer.get("Responses", {}).get(table, ())
            left_out = self.answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", ())
            missing = len(wanted["Keys"]) - len(found) - len(left_out)
            units += sum(_read_units(wanted, item) for item in found)
            units += missing * _read_units(wanted, None)
        return units


def _parsed(body: bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads(body or b"{}") if isinstance(body, bytes) else body
    return content


def _values(action: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = action.get("ExpressionAttributeValues", {})
    return values


def _blocks(item: Mapping[str, Any] | None, size: int) -> int:
    return max(1, ceil(size_of_item(item) / size)) if item else 1


def _read_units(request: Mapping[str, Any], item: Mapping[str, Any] | None) -> float:
    return _blocks(item, 4096) * (1.0 if request.get("ConsistentRead") else 0.5)
