"""Reads files of orders, and converts them to messages to send."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from inventory_orders.errors import InvalidMessageError
from inventory_orders.messages.commands import MAX_QUANTITY, parse_order

from .cells import check_codes
from .errors import UserError
from .file_errors import FileError, FileRefusedError
from .text_files import (
    SAVE_AS_UTF8,
    check_json_lines,
    csv_rows,
    delimiter_of,
    first_line,
    not_utf8,
    opened,
    wrong_width,
)
from .words import counted

COLUMNS = ("orderId", "userId", "productId", "quantity")
"""The columns of a CSV file of orders: exactly these, in any sequence."""

_HEADER = ",".join(COLUMNS)
_EXAMPLE = '{"orderId": "o-1", "userId": "u-1", "items": [{"productId": "p-1", "quantity": 2}]}'


@dataclass(frozen=True, slots=True)
class OrderMessage:
    """A message for an order queue.

    Attributes:
        body: The message body, unchanged.
        order_id: Id of a valid order; None if the body is invalid.
        group: `MessageGroupId` for the FIFO queue. That queue derives the deduplication id from the body.
    """

    body: str
    order_id: str | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class _Entry:
    """An order in a file, or a line that is not an order.

    Attributes:
        message: The message to send.
        faults: The errors in its lines; none for a valid order.
        splits: Whether some rows of an order would be sent without its other rows.
    """

    message: OrderMessage
    faults: Sequence[FileError] = ()
    splits: bool = False


def read_orders(path: Path) -> Iterator[OrderMessage]:
    """Read orders from JSON lines, or from CSV with the header `COLUMNS` and one row per order line.

    Adjacent rows with the same `orderId` are one order. `count_orders` refuses rows of an order that appear again later:
    they may be a correction, so adding them up could invent an order. A file whose first non-empty line begins with `{` or `[`
    has JSON lines. Both formats may be compressed with gzip. Empty lines are skipped.

    Raises:
        UserError: The file cannot be read, or has neither format.
    """
    return (entry.message for entry in _entries(path))


def count_orders(path: Path, limit: int | None = None, *, unchecked: bool = False) -> int:
    """Check and count the first orders of a file. Reads the whole file, because more rows of an order may come at its end.

    Args:
        path: The file.
        limit: How many orders will be sent; None for all.
        unchecked: Whether lines that are not orders may be sent, too. An order must never be sent in part.

    Raises:
        UserError: The file cannot be read, or has lines that must not be sent; the message names the first ones.
    """
    count, bad, is_split = 0, list[FileError](), False
    for entry in _entries(path):
        is_sent = limit is None or count < limit
        count += is_sent
        if entry.splits or (is_sent and not unchecked):
            bad += entry.faults
            is_split |= entry.splits
    if not count:
        raise UserError(f"{path} contains no orders; nothing was sent")
    if bad:
        raise FileRefusedError(
            f"{path} has {counted(len(bad), 'error')} in {counted(count, 'order')}, so nothing was sent:",
            bad,
            "Correct them. --unchecked does not send them, because some orders would be placed only in part"
            if is_split
            else "Correct them, or send them unchanged with --unchecked (or `make demo UNCHECKED=1`); the service then "
            "dead-letters the lines that are not orders",
        )
    return count


def order_message(order_id: str, user_id: str, lines: Sequence[tuple[str, int]]) -> OrderMessage:
    """Build the message of an order."""
    items = [{"productId": product_id, "quantity": quantity} for product_id, quantity in lines]
    return message_of(json.dumps({"orderId": order_id, "userId": user_id, "items": items}))


def message_of(body: str) -> OrderMessage:
    """Build a message from a body, with the group for a FIFO queue."""
    return _checked(body)[0]


def _checked(body: str) -> tuple[OrderMessage, InvalidMessageError | None]:
    """Build a message from a body. Also returns an error if the body is not an order."""
    try:
        order = parse_order(body)
    except InvalidMessageError as error:
        # Invalid bodies are sent too, because the service has to answer them. Each gets its own group.
        digest = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
        return OrderMessage(body, None, f"unreadable-{digest[:16]}"), error
    return OrderMessage(body, order.order_id, next(iter(order.quantities))), None


# ---------------------------------------------------------------------- reading


def _entries(path: Path) -> Iterator[_Entry]:
    what = "a file of orders"
    with opened(path, what) as file:
        first = first_line(_utf8(path, file))
        file.seek(0)
        lines = _utf8(path, file)
        if first.lstrip().startswith(("{", "[")):
            check_json_lines(path, lines, what, _EXAMPLE)
            file.seek(0)
            yield from _json_lines(_utf8(path, file))
        else:
            yield from _csv(path, lines, delimiter_of(first))


def _utf8(path: Path, file: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(file, start=1):
        if place := not_utf8(line):
            raise UserError(f"{path}, line {number}, character {place}: not UTF-8; {SAVE_AS_UTF8}")
        yield line


def _json_lines(lines: Iterable[str]) -> Iterator[_Entry]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            message, error = _checked(line.rstrip("\r\n"))
            yield _Entry(message, [_in_json(number, error, line)] if error else [])


def _in_json(number: int, error: InvalidMessageError, line: str) -> FileError:
    document = None
    with suppress(ValueError, RecursionError):
        document = json.loads(line, parse_float=str)
    # The line number is the one in the file.
    message = error.message.replace(" at line 1, column ", " at column ")
    return FileError.in_line(number, error.code, message, document)


# ---------------------------------------------------------------------- CSV


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a CSV file: its line number and its cells."""

    line: int
    order_id: str
    user_id: str
    product_id: str
    quantity: str

    @property
    def item(self) -> dict[str, Any]:
        """The order line in the form of a message. A quantity that is not a number stays a string."""
        quantity = self.quantity
        number = int(quantity) if re.fullmatch("[0-9]{1,18}", quantity) else quantity
        return {"productId": self.product_id, "quantity": number}

    @property
    def cells(self) -> dict[str, str]:
        """Its cells by column."""
        return dict(
            zip(COLUMNS, (self.order_id, self.user_id, self.product_id, self.quantity), strict=True)
        )

    @property
    def fault(self) -> FileError | None:
        """The faulty column and how to correct it; None for a valid row."""
        number = self.item["quantity"]
        if not isinstance(number, int) or not 1 <= number <= MAX_QUANTITY:
            given = json.dumps(self.quantity[:80])
            return self.error(
                "SCHEMA_VIOLATION",
                f"quantity: must be a whole number from 1 to {MAX_QUANTITY:,}, but is {given}",
            )
        error = _checked(_body([self]))[1]
        return self.error(error.code, error.message.removeprefix("items[0].")) if error else None

    @property
    def rewritten(self) -> FileError | None:
        """The id that a spreadsheet has rewritten, if any. An order with it would be valid."""
        try:
            check_codes(self.cells, are_cells=True)
        except InvalidMessageError as error:
            return self.error(error.code, error.message)
        return None

    def error(self, code: str, message: str) -> FileError:
        """Build an error of the row."""
        return FileError.in_line(self.line, code, message, self.cells)


def _csv(path: Path, lines: Iterable[str], delimiter: str) -> Iterator[_Entry]:
    """Build an order from adjacent rows with the same `orderId`."""
    begun: dict[str, _Row] = {}
    order: list[_Row] = []
    for number, cells, fields in _rows(path, lines, delimiter):
        if len(cells) != len(COLUMNS):
            # The row may belong to the order next to it.
            fault = f"the row {wrong_width(len(cells), len(COLUMNS), delimiter)}"
            error = FileError.in_line(number, "BAD_ROW", fault, fields)
            yield _Entry(message_of(delimiter.join(cells)), [error], splits=True)
            continue
        row = _Row(number, *(fields[name] for name in COLUMNS))
        if order and (row.order_id, row.user_id) != (order[0].order_id, order[0].user_id):
            yield _order(order, begun)
            order = []
        order.append(row)
    if order:
        yield _order(order, begun)


def _order(rows: Sequence[_Row], begun: dict[str, _Row]) -> _Entry:
    """Build an order from its rows. `begun` maps ids of earlier orders to their first rows; this order is added."""
    first = rows[0]
    message, error = _checked(_body(rows))
    began = begun.setdefault(first.order_id, first)
    if began is not first:
        return _Entry(message, [first.error("SPLIT_ORDER", _split(began, first))], splits=True)
    found = ((row.fault if error else None) or row.rewritten for row in rows)
    faults = [fault for fault in found if fault]
    if error is not None and not faults:
        faults = [first.error(error.code, error.message)]
    return _Entry(message, faults)


def _split(began: _Row, row: _Row) -> str:
    """Describe a row of an order that began earlier, and how to correct the file."""
    where = f"the order {row.order_id} began at line {began.line}"
    if row.user_id != began.user_id:
        return (
            f"userId: {where} with another userId; give all its rows the same one, or, if this is another order, "
            "another orderId"
        )
    return (
        f"orderId: {where}; sort the file by orderId, so that all its rows are next to each other. If this row "
        "corrects an earlier one, remove that one first"
    )


def _body(rows: Sequence[_Row]) -> str:
    items = [row.item for row in rows]
    return json.dumps({"orderId": rows[0].order_id, "userId": rows[0].user_id, "items": items})


def _rows(
    path: Path, lines: Iterable[str], delimiter: str
) -> Iterator[tuple[int, list[str], dict[str, str]]]:
    """Read the rows below the header: their line numbers, their cells, and their cells by column."""
    rows = csv_rows(path, lines, delimiter)
    header = list[str]()
    for number, header in islice(rows, 1):
        _check_header(f"{path}, line {number}", header)
    for number, cells in rows:
        yield number, cells, dict(zip(header, cells, strict=False))


def _check_header(where: str, header: Sequence[str]) -> None:
    """Check that a header has each of the `COLUMNS` once, and no other one."""
    if not {*COLUMNS} & {*header}:
        raise UserError(
            f"{where}, is neither an order in JSON nor the header {_HEADER}: {', '.join(header)[:80]}. "
            "A CSV file of orders begins with this header and has one row per order line"
        )
    faults = [f"the column {name} is missing" for name in COLUMNS if name not in header]
    faults += [f'the column "{name[:64]}" is unknown' for name in header if name not in COLUMNS]
    faults += [f"the column {name} appears twice" for name in COLUMNS if header.count(name) > 1]
    if faults:
        raise UserError(
            f"{where}: {'; '.join(faults)}. The columns of orders are {_HEADER}; for other fields, such as locations, send the "
            "orders as JSON lines"
        )
