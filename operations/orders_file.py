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
    """A message for an order queue.

    Attributes:
        body: The message body, exactly as it is sent.
        order_id: Id of a valid order; None if the body is poison.
        group: `MessageGroupId` for the FIFO queue.
        deduplication_id: `MessageDeduplicationId` for the FIFO queue.
    """

    body: str
    order_id: str | None
    group: str
    deduplication_id: str


def read_orders(path: Path) -> Iterator[OrderMessage]:
    """Read orders from JSON lines, or from a basket file: one order per line, product codes separated by commas.

    A file whose first line begins with `{` holds JSON lines. Both kinds may be compressed (`.gz`).
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
    """Read the first orders of a file, with ids of this run, so that each run places new orders."""
    return [
        _message(message.body.replace('"basket-', f'"{run}-basket-', 1))
        for message in islice(read_orders(path), count)
    ]


def order_message(order_id: str, user_id: str, lines: Sequence[tuple[str, int]]) -> OrderMessage:
    """Make the message of an order."""
    items = [{"productId": product_id, "quantity": quantity} for product_id, quantity in lines]
    return _message(json.dumps({"orderId": order_id, "userId": user_id, "items": items}))


def _message(body: str) -> OrderMessage:
    """Make a message from a body, with the group and the deduplication id that a FIFO queue needs."""
    digest = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
    try:
        order = parse_order(body)
    except PoisonMessageError:
        # Poison is sent too, because the service has to answer it. A group of its own keeps it apart.
        return OrderMessage(body, None, f"unreadable-{digest[:16]}", digest)
    return OrderMessage(body, order.order_id, next(iter(order.quantities)), order.order_id)


def _basket(order_id: str, codes: Sequence[str]) -> OrderMessage:
    """A basket has no quantities, so a hash of order and product chooses 1 to 3."""
    lines = [
        (code, hashlib.sha256(f"{order_id}/{code}".encode()).digest()[0] % 3 + 1) for code in codes
    ]
    return order_message(order_id, f"customer-{order_id[-4:]}", lines)
