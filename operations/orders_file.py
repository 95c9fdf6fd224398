"""Files of orders, read as the messages to send."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from inventory_orders.errors import PoisonMessageError
from inventory_orders.messages.parse import parse_order


@dataclass(frozen=True, slots=True)
class OrderMessage:
    """Something to send to an order queue.

    Attributes:
        body: As it goes over the wire.
        order_id: Of a valid order; None if the service must refuse to read it.
        group: `MessageGroupId` for the FIFO queue.
        deduplication_id: `MessageDeduplicationId` for the FIFO queue.
    """

    body: str
    order_id: str | None
    group: str
    deduplication_id: str


def read_orders(path: Path) -> Iterator[OrderMessage]:
    """Orders from JSON lines, or from a basket file: one order a line, product codes separated by commas.

    A file whose first line begins with `{` holds JSON lines. Either may be compressed (`.gz`).
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="") as lines:
        first = lines.readline()
        lines.seek(0)
        if first.lstrip().startswith("{"):
            yield from (_message(line.rstrip("\r\n")) for line in lines if line.strip())
        else:
            for number, codes in enumerate(csv.reader(lines), start=1):
                yield _basket(f"basket-{number:06}", [code for code in codes if code])


def read_baskets(path: Path, run: str, count: int) -> list[OrderMessage]:
    """The first orders of a file, under ids of this run, so each run places new orders."""
    return [
        _message(message.body.replace('"basket-', f'"{run}-basket-', 1))
        for message in islice(read_orders(path), count)
    ]


def order_message(order_id: str, user_id: str, lines: Sequence[tuple[str, int]]) -> OrderMessage:
    """An order as a message."""
    items = [{"productId": product_id, "quantity": quantity} for product_id, quantity in lines]
    return _message(json.dumps({"orderId": order_id, "userId": user_id, "items": items}))


def _message(body: str) -> OrderMessage:
    """A body as a message, with what the FIFO queue asks for beside it."""
    digest = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
    try:
        order = parse_order(body)
    except PoisonMessageError:
        # The service is to judge it, so it must get there: under a group of its own.
        return OrderMessage(body, None, f"unreadable-{digest[:16]}", digest)
    return OrderMessage(body, order.order_id, next(iter(order.quantities)), order.order_id)


def _basket(order_id: str, codes: Sequence[str]) -> OrderMessage:
    """The data has no quantities: 1 to 3, from a hash of the order and the product."""
    lines = [
        (code, hashlib.sha256(f"{order_id}/{code}".encode()).digest()[0] % 3 + 1) for code in codes
    ]
    return order_message(order_id, f"customer-{order_id[-4:]}", lines)
