"""Files of commands on orders for `send --commands`, as CSV or JSON lines.

Fields have the names and limits of the messages of `OrderCommandQueue`. In a CSV file, adjacent rows that differ in product and
quantity only are one command. If a command that names units has no `stepId`, its id is derived from the units and its `reference`,
so that sending the file a second time has no further effect.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from inventory_orders.clock import Deadline, SystemClock, timestamp
from inventory_orders.domain.amendment import Amendment
from inventory_orders.domain.change import OtherRequest
from inventory_orders.domain.order_command import OrderCommand, Transition
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.domain.record import OrderKey
from inventory_orders.domain.rejection import Rejection
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient, read_all
from inventory_orders.errors import CorruptItemError, InvalidMessageError, id_reused_error
from inventory_orders.messages.commands import action_in, order_command
from inventory_orders.messages.documents import json_schema, strict_json, validated

from .aws import Aws
from .cells import ATTRIBUTES, attributes_in, check_codes, location_in, number_in
from .columns import AS_NAMED, HINT, ColumnMap, faults_in
from .errors import UserError
from .file_errors import FileError, FileRefusedError
from .orders_file import OrderMessage
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
from .words import counted, numbered

_OF_UNITS: Mapping[str, Callable[[str], Any]] = {
    "productId": str,
    "quantity": number_in,
    "locationId": location_in,
}
"""The columns about units, with the functions that read their cells."""

COLUMNS = (
    *("action", "orderId", "stepId", *_OF_UNITS, "restock", "force"),
    *("until", "ifVersion", "actor", "reference", "reason", "attributes.NAME"),
)
"""The columns of a CSV file of commands. `action` and `orderId` are required."""

_WHAT = "a file of commands"
_EXAMPLE = '{"action": "confirm", "orderId": "o-1"}'
_SAID = {"true": True, "false": False}
_READ_TOGETHER = 100
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command in a file.

    Attributes:
        number: The number of its first line.
        command: The command.
        document: Its fields, as they are sent.
    """

    number: int
    command: OrderCommand
    document: Mapping[str, Any]

    @property
    def is_anonymous(self) -> bool:
        """Whether a further step with the same units would get the same id, because its sender gave it none, and no reference."""
        return "reference" not in self.document and (
            self.document.get("stepId") == _derived_id(self.document)
        )

    @property
    def message(self) -> OrderMessage:
        """The message to send."""
        return OrderMessage(json.dumps(self.document), self.command.order_id)


def read_commands(
    path: Path, limit: int | None = None, columns: ColumnMap = AS_NAMED
) -> list[CommandLine]:
    """Read a file of commands, which may be compressed with gzip. A command that repeats another one about a whole order is left out.

    Args:
        path: The file.
        limit: Read only this many commands.
        columns: The meaning of columns with other names.

    Raises:
        UserError: The file cannot be read, has neither format, or has lines that must not be sent.
    """
    reader = _Reader()
    with opened(path, _WHAT) as lines:
        first = first_line(lines)
        lines.seek(0)
        if first.lstrip("\ufeff \t").startswith(("{", "[")):
            columns.check_not_json(path)
            check_json_lines(path, lines, _WHAT, _EXAMPLE)
            lines.seek(0)
            documents = reader.json_lines(lines)
        else:
            documents = reader.csv(path, lines, delimiter_of(first), columns)
        for number, document in islice(documents, limit):
            reader.add(number, document)
    bad = [*map(columns.named_in_file, (*reader.bad, *reader.repeated()))]
    if bad:
        read = counted(len(reader.found), "command")
        raise FileRefusedError(
            f"{path} has {counted(len(bad), 'error')} besides {read}, so nothing was sent:",
            bad,
            "Correct them",
        )
    if not reader.found:
        raise UserError(f"{path} contains no commands; nothing was sent")
    return list(reader.found.values())


@dataclass(slots=True)
class _Reader:
    """Reads the commands of one file.

    Attributes:
        found: The commands, by what makes them unique in the file.
        bad: The invalid lines.
        copies: The further numbers of lines that have the same step of an order as an earlier one.
    """

    found: dict[tuple[str, ...], CommandLine] = field(default_factory=dict)
    bad: list[FileError] = field(default_factory=list)
    copies: dict[tuple[str, ...], list[int]] = field(default_factory=dict)

    def json_lines(self, lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read JSON lines, one object in each."""
        for number, line in enumerate(lines, start=1):
            text = line.strip().removeprefix("\ufeff")
            if not text:
                continue
            try:
                document = _object(text)
            except InvalidMessageError as error:
                # The line number is the one in the file.
                message = error.message.replace(" at line 1, column ", " at column ")
                self.bad.append(FileError.in_line(number, error.code, message, None))
                continue
            yield number, document

    def csv(
        self, path: Path, lines: Iterable[str], delimiter: str, columns: ColumnMap
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read CSV with a header. Adjacent rows that differ in their units only are one document."""
        rows = csv_rows(path, lines, delimiter)
        number, header = next(rows, (1, []))
        header = _translated(f"{path}, line {number},", header, columns)
        for (_, about), group in groupby(self._rows(rows, header, delimiter), _command_of):
            yield from self._documents(dict(about), list(group))

    def _rows(
        self, rows: Iterable[tuple[int, list[str]]], header: Sequence[str], delimiter: str
    ) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the cells of each row by column, without empty ones."""
        for number, cells in rows:
            row = {name: cell for name, cell in zip(header, cells, strict=False) if name and cell}
            if len(cells) != len(header):
                fault = f"the row {wrong_width(len(cells), len(header), delimiter)}"
                self.bad.append(FileError.in_line(number, "BAD_ROW", fault, row))
                continue
            yield number, row

    def _documents(
        self, about: dict[str, str], rows: Sequence[tuple[int, dict[str, str]]]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Build the command of adjacent rows, and find the row that is at fault."""
        faults = [*filter(None, (_fault_of(*row) for row in rows))] or [*_repeated_products(rows)]
        self.bad += faults
        if not faults:
            yield rows[0][0], _document(about, [row for _, row in rows])

    def add(self, number: int, document: dict[str, Any]) -> None:
        """Add a command, or its error."""
        document = _with_step_id(document)
        try:
            command = _parsed(document)
        except InvalidMessageError as error:
            self.bad.append(FileError.of_invalid(number, error, document))
            return
        key: tuple[str, ...] = (command.order_id, command.action, command.until)
        if command.step_id is not None:
            key = (command.order_id, command.step_id)
        if key not in self.found:
            self.found[key] = CommandLine(number, command, document)
        elif command.step_id is not None:
            self.copies.setdefault(key, []).append(number)

    def repeated(self) -> Iterator[FileError]:
        """Take out the steps that occur more than once, and yield the error of each: which one is right is unknown."""
        for key, others in self.copies.items():
            first = self.found.pop(key)
            numbers, step_id = [first.number, *others], first.document["stepId"]
            what = f"have the same stepId, {step_id}"
            if step_id == _derived_id(first.document):
                what = f"name the same units of order {first.command.order_id} and no stepId"
            message = (
                f"stepId: {numbered('line', numbers)} {what}; keep one, write the rows of one step next to each other or, if each of "
                "them happened, give each a stepId of its own"
            )
            for number in numbers:
                yield FileError.in_line(number, "DUPLICATE_LINE", message, first.document)


def _object(text: str) -> dict[str, Any]:
    _check_utf8(text)
    document = strict_json(text)
    if not isinstance(document, dict):
        raise InvalidMessageError(
            "SCHEMA_VIOLATION", f"a line must be an object, such as {_EXAMPLE}"
        )
    return document


def _parsed(document: dict[str, Any]) -> OrderCommand:
    """Parse a command. Times in the document are normalised.

    Raises:
        InvalidMessageError: It can never be carried out.
    """
    action = action_in(document, "change_orders")
    schema = json_schema("commands")["change_orders"][action]
    return order_command(validated(document, f"{action} in a file", schema, "the line"))


def _with_step_id(document: dict[str, Any]) -> dict[str, Any]:
    """Complete a command that names units, or should, with the id of its step."""
    names_units = "items" in document or document.get("action") in ("return", "amend", "unfulfil")
    if not names_units or "stepId" in document:
        return document
    return {**document, "stepId": _derived_id(document)}


def _derived_id(document: Mapping[str, Any]) -> str:
    """Derive the id of a step from what it does, and from its reference, such as the number of a parcel or a return."""
    names = ("action", "orderId", "items", "attributes", "restock", "reference")
    content = [document.get(name) for name in names]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return f"file-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _check_utf8(text: str) -> None:
    if not_utf8(text):
        raise InvalidMessageError("NOT_UTF8", f"the line is not UTF-8; {SAVE_AS_UTF8}")


# ---------------------------------------------------------------------- CSV


def _translated(where: str, header: Sequence[str], columns: ColumnMap) -> list[str]:
    """Translate and check the header of a CSV file."""
    header = columns.header(where, header, COLUMNS)
    if faults := [*faults_in(header, COLUMNS, COLUMNS[:2])]:
        raise UserError(
            f"{where} is not a valid header: {'; '.join(faults)}. A CSV file of commands needs action and "
            f"orderId, and may have the columns {', '.join(COLUMNS)}; {HINT}"
        )
    return header


def _command_of(
    numbered_row: tuple[int, dict[str, str]],
) -> tuple[int, tuple[tuple[str, str], ...]]:
    """What the rows of one command have in common. A row about a whole order is a command of its own."""
    number, row = numbered_row
    about = tuple((name, cell) for name, cell in row.items() if name not in _OF_UNITS)
    return 0 if len(about) < len(row) else number, about


def _document(about: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Build a command from its rows. Cells that are not what they should be stay strings, which are refused."""
    document: dict[str, Any] = {
        name: cell for name, cell in about.items() if not name.startswith(ATTRIBUTES)
    } | attributes_in(about)
    for name in ("restock", "force"):
        if name in document:
            document[name] = _SAID.get(document[name].lower(), document[name])
    if "ifVersion" in document:
        document["ifVersion"] = number_in(document["ifVersion"])
    items = [
        {name: read(row[name]) for name, read in _OF_UNITS.items() if name in row} for row in rows
    ]
    return {**document, "items": items} if any(items) else document


def _repeated_products(rows: Sequence[tuple[int, dict[str, str]]]) -> Iterator[FileError]:
    """Refuse rows of one command that name the same product: whether they are copies or add up is unknown."""
    lines: dict[str, list[int]] = {}
    for number, row in rows:
        lines.setdefault(row.get("productId", ""), []).append(number)
    for number, row in rows:
        if len(numbers := lines[row.get("productId", "")]) > 1:
            message = (
                f"productId: {numbered('line', numbers)} name {row.get('productId')} in one command; keep one, write their sum in one "
                "line or, if each of them happened, give each a stepId of its own"
            )
            yield FileError.in_line(number, "DUPLICATE_LINE", message, row)


def _fault_of(number: int, row: dict[str, str]) -> FileError | None:
    """Find the error of a row on its own, in terms of its columns."""
    about = {name: cell for name, cell in row.items() if name not in _OF_UNITS}
    try:
        for text in row.values():
            _check_utf8(text)
        check_codes(row, are_cells=True)
        _parsed(_with_step_id(_document(about, [row])))
    except InvalidMessageError as error:
        message = _in_columns(error.message, row)
        return FileError.in_line(number, error.code, message, row)
    return None


def _in_columns(message: str, row: Mapping[str, str]) -> str:
    """Write the error of a command in terms of the columns of its row."""
    if message.startswith("items: unknown"):
        return (
            f"productId: {row['action']} is about a whole order; leave productId and quantity empty"
        )
    message = message.removeprefix("items[0].").replace("items[0]", "the line")
    found = re.match("(items|productId|quantity): is missing", message)
    if found is None:
        return message
    return f"{found[1].replace('items', 'productId')}: is missing; name a product and its quantity"


# ---------------------------------------------------------------------- what would happen


Expected = Counter[tuple[str, bool]]
"""Numbers of commands by action, and by whether they were carried out before."""


def expected(aws: Aws, lines: Sequence[CommandLine]) -> tuple[Expected, list[FileError]]:
    """Find out what commands would do now, one after the other, without carrying them out.

    Returns:
        The numbers of commands that would succeed, and the errors of the others.
    """
    client, found, bad = RetryingClient(aws.store()), Expected(), list[FileError]()
    orders: dict[OrderKey, Any] = {}
    keys = list(dict.fromkeys(line.command.record_key for line in lines))
    for start in range(0, len(keys), _READ_TOGETHER):
        some = keys[start : start + _READ_TOGETHER]
        deadline = Deadline.after(_PATIENCE, SystemClock())
        read = read_all(client, some, deadline, CommitStats(), consistent_records=True)
        orders |= {key: read.records.get(key) for key in some}
    now = timestamp(SystemClock().now())
    for line in lines:
        try:
            is_new = _apply(line.command, orders, now)
        except _RefusedError as error:
            bad.append(FileError.in_line(line.number, error.code, str(error), line.document))
        else:
            found[line.command.action, is_new] += 1
    return found, bad


class _RefusedError(Exception):
    """A command would be refused."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _stock_of(change: Transition | Amendment, at: str) -> dict[str, Product]:
    """Stand for the stock that an amend would take. Only the service knows what there is."""
    if not isinstance(change, Amendment):
        return {}
    known = {line.key: line.product_created_at for line in change.lines_before.values()}
    return {
        key: Product(key, 0, 0, 1, known.get(key) or at, ProductStatus.ACTIVE)
        for key in change.offers[0]
    }


def _apply(command: OrderCommand, orders: dict[OrderKey, Any], now: str) -> bool:
    """Carry out a command on an order in memory. Returns False if it was carried out before.

    Raises:
        _RefusedError: The service would refuse it, or let it wait.
    """
    key = command.record_key
    order = orders[key]
    if isinstance(order, CorruptItemError):
        raise _RefusedError(order.code, str(order))
    try:
        meaning = command.rejection({}) if order is None else command.match(order)
    except CorruptItemError as error:
        raise _RefusedError(error.code, str(error)) from None
    match meaning:
        case None:
            orders[key] = command.record(None, {}, now)
        case Transition(rejected=None) | Amendment():
            orders[key] = meaning.record(None, _stock_of(meaning, now), now).after
        case Transition(rejected=Rejection() as refused) | (Rejection() as refused):
            raise _RefusedError(refused.reason.value, refused.words)
        case OtherRequest():
            reused = id_reused_error(command.id_reused_code, meaning.differences)
            raise _RefusedError(reused.code, str(reused))
        case _:
            return False
    return True
