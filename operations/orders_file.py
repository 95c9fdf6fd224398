"""Files of orders, read as the messages to send."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from inventory_orders.errors import PoisonMessageError
from inventory_orders.messages.parse import parse_order
from operations.errors import UserError
from operations.words import counted

BASKETS = 1000
"""How many orders of a file the demonstration sends."""


@dataclass(frozen=True, slots=True)
class OrderMessage:
    """A message for an order queue.

    Attributes:
        body: The message body, unchanged.
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

    A file whose first non-empty line begins with `{` holds JSON lines. Both kinds may be compressed (`.gz`). Empty lines are
    skipped. The id of a basket follows from its line number and from the content of the whole file, so the same file
    always means the same orders.

    Raises:
        UserError: The file cannot be read.
    """
    return (message for _, message in _numbered(path))


def count_orders(path: Path, limit: int | None = None) -> int:
    """Read the first orders of a file, and count them.

    Raises:
        UserError: The file cannot be read, or some lines are not orders; the message names them with their faults.
    """
    count, bad = 0, []
    for number, message in islice(_numbered(path), limit):
        count += 1
        if message.order_id is None:
            bad.append((number, message.body))
    if not count:
        raise UserError(f"{path} holds no orders; nothing was sent")
    if bad:
        shown = "".join(f"\n  line {number}: {_fault(body)}" for number, body in bad[:_SHOWN])
        more = f"\n  and {len(bad) - _SHOWN:,} more" if len(bad) > _SHOWN else ""
        raise UserError(
            f"{len(bad):,} of {counted(count, 'line')} of {path} are not orders, so nothing was sent:{shown}{more}\n"
            "Correct them. --unchecked (with make demo: UNCHECKED=1) sends every line, and the service "
            "dead-letters those that are not orders"
        )
    return count


_SHOWN = 3


def _fault(body: str) -> str:
    if not body.lstrip().startswith("{") and _is_header(body.split(",")):
        return "is a header; a basket file has none, only product codes"
    try:
        parse_order(body)
    except PoisonMessageError as error:
        return error.message
    return ""


def _numbered(path: Path) -> Iterator[tuple[int, OrderMessage]]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
            first = next((line for line in lines if line.strip()), "")
            lines.seek(0)
            if first.lstrip().startswith("{"):
                for number, line in enumerate(lines, start=1):
                    if line.strip():
                        yield number, _message(line.rstrip("\r\n"))
            else:
                content = lines.read()
                digest = hashlib.sha256(content.encode()).hexdigest()[:12]
                rows = enumerate(csv.reader(io.StringIO(content)), start=1)
                baskets = ((number, codes) for number, codes in rows if "".join(codes).strip())
                for index, (number, codes) in enumerate(baskets):
                    if index == 0 and _is_header(codes):
                        yield number, _message(",".join(codes))
                    else:
                        yield number, _basket(digest, number, [code for code in codes if code])
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(
            f"{path} is not a whole .gz file ({error}); make or fetch it again"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text; name a file of orders") from error
    except csv.Error as error:
        raise UserError(f"{path} is not a file of orders: {error}") from error
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise UserError(f"{path} cannot be read ({what}); name a file of orders") from error


# Names of columns, in lower case, without marks that no product id has and a number after a space.
_COLUMN = re.compile(
    "basket|(customer|item|order|product|user)s?(-?(id|code))?|sku|(stock)?code|invoice(no|date)?|description|country"
    "|(unit)?price|quantity|qty"
)
_MARKS = re.compile(" [0-9]+$|[^a-z0-9-]")


def _is_header(cells: Sequence[str]) -> bool:
    return any(_COLUMN.fullmatch(_MARKS.sub("", cell.lower())) for cell in cells)


def read_baskets(path: Path, run: str, count: int) -> list[OrderMessage]:
    """Read the first orders of a file, with ids of this run, so that each run places new orders."""
    return [
        message
        if message.order_id is None
        else _message(
            json.dumps(json.loads(message.body) | {"orderId": f"{run}-{message.order_id}"})
        )
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
        # Poison is sent too, because the service has to answer it. It gets a group of its own.
        return OrderMessage(body, None, f"unreadable-{digest[:16]}", digest)
    return OrderMessage(body, order.order_id, next(iter(order.quantities)), order.order_id)


def _basket(digest: str, number: int, codes: Sequence[str]) -> OrderMessage:
    """A basket has no quantities, so a hash of its number and the product chooses 1 to 3."""
    lines = [
        (code, hashlib.sha256(f"basket-{number:06}/{code}".encode()).digest()[0] % 3 + 1)
        for code in codes
    ]
    return order_message(f"basket-{digest}-{number:06}", f"customer-{number % 10_000:04}", lines)
