"""Reads files of orders, and converts them to messages to send."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from inventory_orders.errors import InvalidMessageError
from inventory_orders.messages.commands import MAX_QUANTITY, order_in
from inventory_orders.messages.documents import strict_json

from .cells import attributes_in, check_codes, location_in, number_in
from .columns import AS_NAMED, HINT, ColumnMap, faults_in
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
"""The columns that every CSV file of orders has, in any sequence."""

_OPTIONAL = ("locationId", "locations", "holdSeconds", "attributes.NAME")
_ALL = (*COLUMNS, *_OPTIONAL)
_OF_LINE = ("productId", "quantity", "locationId")
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


def read_orders(path: Path, columns: ColumnMap = AS_NAMED) -> Iterator[OrderMessage]:
    """Read orders from JSON lines, or from CSV with `COLUMNS`, perhaps others, and one row per order line.

    Adjacent rows with the same `orderId` are one order. `count_orders` refuses rows of an order that appear again later:
    they may be a correction, so adding them up could invent an order. A file whose first non-empty line begins with `{` or `[`
    has JSON lines. Both formats may be compressed with gzip. Empty lines are skipped.

    Raises:
        UserError: The file cannot be read, or has neither format.
    """
    return (entry.message for entry in _entries(path, columns))


def count_orders(
    path: Path,
    limit: int | None = None,
    *,
    unchecked: bool = False,
    columns: ColumnMap = AS_NAMED,
) -> int:
    """Check and count the first orders of a file. Reads the whole file, because more rows of an order may come at its end.

    Args:
        path: The file.
        limit: How many orders will be sent; None for all.
        unchecked: Whether lines that are not orders may be sent, too. An order must never be sent in part.
        columns: The meaning of columns with other names.

    Raises:
        UserError: The file cannot be read, or has lines that must not be sent; the message names the first ones.
    """
    count, bad, is_split = 0, list[FileError](), False
    for entry in _entries(path, columns):
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
            [*map(columns.named_in_file, bad)],
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
        order = order_in(strict_json(body))
    except InvalidMessageError as error:
        # Invalid bodies are sent too, because the service has to answer them. Each gets its own group.
        digest = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
        return OrderMessage(body, None, f"unreadable-{digest[:16]}"), error
    return OrderMessage(body, order.order_id, next(iter(order.quantities))), None


# ---------------------------------------------------------------------- reading


def _entries(path: Path, columns: ColumnMap) -> Iterator[_Entry]:
    what = "a file of orders"
    with opened(path, what) as file:
        first = first_line(_utf8(path, file))
        file.seek(0)
        lines = _utf8(path, file)
        if first.lstrip().startswith(("{", "[")):
            columns.check_not_json(path)
            check_json_lines(path, lines, what, _EXAMPLE)
            file.seek(0)
            yield from _json_lines(_utf8(path, file))
        else:
            yield from _csv(path, lines, delimiter_of(first), columns)


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
    """A row of a CSV file.

    Attributes:
        line: Its line number.
        cells: Its cells by column.
        of_order: Its cells about the order as a whole, which all rows of an order have in common.
    """

    line: int
    cells: Mapping[str, str]
    of_order: tuple[str, ...]

    @property
    def item(self) -> dict[str, Any]:
        """The order line in the form of a message. A quantity that is not a number stays a string."""
        cells = self.cells
        item = {"productId": cells["productId"], "quantity": number_in(cells["quantity"])}
        if location := cells.get("locationId"):
            item["locationId"] = location_in(location)
        return item

    @property
    def fault(self) -> FileError | None:
        """The faulty column and how to correct it; None for a valid row."""
        number = self.item["quantity"]
        if not isinstance(number, int) or not 1 <= number <= MAX_QUANTITY:
            given = json.dumps(self.cells["quantity"][:80])
            return self.error(
                "SCHEMA_VIOLATION",
                f"quantity: must be a whole number from 1 to {MAX_QUANTITY:,}, but is {given}",
            )
        error = _checked(_body([self]))[1]
        if error is None:
            return None
        # The row is the only line here, and has one cell for all locations.
        message = re.sub(r"^(?:items\[0\]\.)?(\w+)(?:\[[0-9]\])?", r"\1", error.message)
        return self.error(error.code, message)

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


def _csv(path: Path, lines: Iterable[str], delimiter: str, columns: ColumnMap) -> Iterator[_Entry]:
    """Build an order from adjacent rows with the same `orderId`."""
    begun: dict[str, _Row] = {}
    order: list[_Row] = []
    rows = csv_rows(path, lines, delimiter)
    number, header = next(rows, (1, []))
    if not header:
        return
    header = _translated(f"{path}, line {number}", header, columns)
    of_order = itemgetter(*(n for n, name in enumerate(header) if name and name not in _OF_LINE))
    for number, cells in rows:
        fields = dict(zip(header, cells, strict=False))
        if len(cells) != len(header):
            # The row may belong to the order next to it.
            fault = f"the row {wrong_width(len(cells), len(header), delimiter)}"
            error = FileError.in_line(number, "BAD_ROW", fault, fields)
            yield _Entry(message_of(delimiter.join(cells)), [error], splits=True)
            continue
        row = _Row(number, fields, of_order(cells))
        if order and row.of_order != order[0].of_order:
            yield _order(order, begun)
            order = []
        order.append(row)
    if order:
        yield _order(order, begun)


def _order(rows: Sequence[_Row], begun: dict[str, _Row]) -> _Entry:
    """Build an order from its rows. `begun` maps ids of earlier orders to their first rows; this order is added."""
    first = rows[0]
    message, error = _checked(_body(rows))
    began = begun.setdefault(first.cells["orderId"], first)
    if began is not first:
        return _Entry(message, [first.error("SPLIT_ORDER", _split(began, first))], splits=True)
    found = ((row.fault if error else None) or row.rewritten for row in rows)
    faults = [fault for fault in found if fault]
    if error is not None and not faults:
        faults = [first.error(error.code, error.message)]
    return _Entry(message, faults)


def _split(began: _Row, row: _Row) -> str:
    """Describe a row of an order that began earlier, and how to correct the file."""
    where = f"the order {row.cells['orderId']} began at line {began.line}"
    for name, cell in row.cells.items():
        if name and name not in _OF_LINE and cell != began.cells[name]:
            return (
                f"{name}: {where} with another {name}; give all its rows the same one, or, if this is another order, "
                "another orderId"
            )
    return (
        f"orderId: {where}; sort the file by orderId, so that all its rows are next to each other. If this row "
        "corrects an earlier one, remove that one first"
    )


def _body(rows: Sequence[_Row]) -> str:
    cells, items = rows[0].cells, [row.item for row in rows]
    order = {"orderId": cells["orderId"], "userId": cells["userId"], "items": items}
    return json.dumps(order if len(cells) == len(COLUMNS) else order | _terms_in(cells))


def _terms_in(cells: Mapping[str, str]) -> dict[str, Any]:
    """Find the optional fields of an order. Cells that are not what they should be stay strings, which are refused."""
    terms: dict[str, Any] = {}
    if hold := cells.get("holdSeconds"):
        terms["holdSeconds"] = number_in(hold)
    if locations := cells.get("locations"):
        terms["locations"] = [*map(location_in, locations.split())]
    return terms | attributes_in(cells)


def _translated(where: str, header: Sequence[str], columns: ColumnMap) -> list[str]:
    """Translate a header, and check that it has each of the `COLUMNS` once, and no unknown one."""
    header = columns.header(where, header, _ALL)
    if not {*COLUMNS} & {*header}:
        raise UserError(
            f"{where}, is neither an order in JSON nor the header {_HEADER}: {', '.join(header)[:80]}. "
            f"A CSV file of orders begins with this header and has one row per order line; {HINT}"
        )
    if faults := [*faults_in(header, _ALL, COLUMNS)]:
        raise UserError(
            f"{where}: {'; '.join(faults)}. The columns of orders are {_HEADER} and perhaps {', '.join(_OPTIONAL)}; {HINT}. "
            "For other fields, such as buyers, send the orders as JSON lines"
        )
    return header
