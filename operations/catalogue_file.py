"""Files that fill a catalogue: products to create, details to change and stock to book, as CSV or JSON lines.

Every line is a command as the handlers take it, validated by their schemas. Fields that a file leaves out follow from
the file alone, so that a second load means the same:

- the id of an adjustment follows from its product, delta and reason;
- the time of a change of details is when the file was last saved, and its id follows from the details.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from inventory_orders.clock import timestamp
from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.product import CatalogueEvent, NewProduct
from inventory_orders.domain.record import NOTES_OF_ADJUSTMENT
from inventory_orders.errors import PoisonMessageError
from inventory_orders.messages.commands import catalogue_event, notes_in, validated_part
from inventory_orders.messages.documents import checked_id, json_schema, not_one_of, strict_json
from operations.errors import UserError
from operations.text_files import (
    DELIMITERS,
    SAVE_AS_UTF8,
    check_json_lines,
    csv_rows,
    delimiter_of,
    first_line,
    not_utf8,
    opened,
)

FUNCTIONS = {
    "create": "manage_products",
    "changeDetails": "manage_products",
    "adjust": "adjust_stock",
}
"""The actions of a line, each with the function that takes the command."""

COLUMNS = (
    *("action", "productId", "openingStock", "lowStockThreshold", "backorderLimit"),
    *("name", "price", "adjustmentId", "delta", "reason", "eventId", "eventTime"),
)
"""The columns that a CSV file may have."""

_EXAMPLE = '{"productId": "p-1", "openingStock": 40}'
_NUMBERS = {"openingStock", "lowStockThreshold", "backorderLimit", "price", "delta"}
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_DETAILS = {"name", "price"}

T = TypeVar("T", NewProduct, CatalogueEvent, Adjustment)


@dataclass(frozen=True, slots=True)
class Line(Generic[T]):
    """A good line.

    Attributes:
        number: Its number in the file, from 1; where it begins, if it spans several.
        content: The change that it asks for.
    """

    number: int
    content: T


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that was not carried out.

    Attributes:
        number: Its number in the file, from 1.
        product_id: Its product; empty if it names none.
        code: The reason, as a stable code.
        message: The repair, in words.
    """

    number: int
    product_id: str
    code: str
    message: str


@dataclass(slots=True)
class CatalogueFile:
    """The commands of a file.

    Attributes:
        creations: Products to create.
        changes: Details to change.
        adjustments: Stock to book.
        bad: The other lines, with their errors.
    """

    creations: list[Line[NewProduct]] = field(default_factory=list)
    changes: list[Line[CatalogueEvent]] = field(default_factory=list)
    adjustments: list[Line[Adjustment]] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)

    @property
    def good(self) -> int:
        """The number of lines that are correct, by the file alone."""
        return len(self.creations) + len(self.changes) + len(self.adjustments)


def read_catalogue(path: Path) -> CatalogueFile:
    """Read a file, which may be compressed with gzip.

    `.jsonl`, `.ndjson` and `.json` are JSON lines; for other names the first line decides whether it is CSV.

    Raises:
        UserError: The file cannot be read, or is neither.
    """
    if is_report(path):
        raise UserError(
            f"{path} is a report of bad lines. Correct these lines in the file that it is about, and load that file again"
        )
    what = "a catalogue"
    with opened(path, what) as lines:
        first = first_line(lines)
        if not first.strip():
            raise UserError(f"{path} is empty; a catalogue has one line for each product")
        lines.seek(0)
        saved = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        reader = _Reader(timestamp(saved))
        # Bytes that are not UTF-8 make their line a bad one, and do not end the read.
        if _holds_json(path, first):
            check_json_lines(path, lines, what, _EXAMPLE)
            lines.seek(0)
            reader.read_json(lines)
        else:
            reader.read_csv(path, lines, delimiter_of(first))
    return reader.file


def _holds_json(path: Path, first: str) -> bool:
    kind = Path(path.name.removesuffix(".gz")).suffix.lower()
    return kind in {".jsonl", ".ndjson", ".json"} or first.lstrip("\ufeff \t").startswith(
        ("{", "[")
    )


class _Reader:
    """Sorts the lines of one file by their commands. `saved` is when the file was last saved."""

    def __init__(self, saved: str) -> None:
        self.file = CatalogueFile()
        self._saved = saved
        self._now = datetime.now(UTC)
        self._first: dict[tuple[str, ...], int] = {}

    def read_json(self, lines: Iterable[str]) -> None:
        """Read JSON lines, one object in each."""
        for number, line in enumerate(lines, start=1):
            text = line.strip().removeprefix("\ufeff")
            if text:
                self._take(number, [text], partial(_parsed, text))

    def read_csv(self, path: Path, lines: Iterable[str], delimiter: str) -> None:
        """Read CSV with a header. An empty cell means that the field is absent."""
        rows = csv_rows(path, lines, delimiter)
        number, header = next(rows, (1, []))
        _check_header(f"{path}, line {number},", header)
        for number, cells in rows:
            self._take(number, cells, partial(_document, header, cells, delimiter))

    def _take(self, number: int, texts: Sequence[str], read: Callable[[], Any]) -> None:
        """Take a line: its texts, and the function that makes a document of them."""
        document: Any = None
        try:
            _check_utf8(texts)
            document = read()
            self._add(number, document)
        except PoisonMessageError as error:
            bad = BadLine(number, _product_id(document), error.code, error.message)
            self.file.bad.append(bad)

    def _add(self, number: int, document: Any) -> None:
        if not isinstance(document, dict):
            raise PoisonMessageError(
                "SCHEMA_VIOLATION", f"a line must be an object, such as {_EXAMPLE}"
            )
        if "orderId" in document:
            raise UserError(
                f"line {number} is about an order, and a catalogue has products; send orders with inventory-orders send"
            )
        action = document.get("action", "create")
        if not isinstance(action, str) or action not in FUNCTIONS:
            raise PoisonMessageError(
                "UNSUPPORTED_ACTION",
                f"{not_one_of('action', FUNCTIONS, action)}; without one a line is a create",
            )
        fields = {"action": action, **document}
        if action == "create":
            self._add_creation(number, fields)
        elif action == "adjust":
            self._add_adjustment(number, fields)
        else:
            self._add_change(number, fields)

    def _add_creation(self, number: int, fields: dict[str, Any]) -> None:
        command = _command("create", fields)
        product_id = command["productId"]
        self._must_be_first(number, f"creates {product_id}", "remove one", "create", product_id)
        new = NewProduct(
            product_id,
            command["openingStock"],
            low_stock_threshold=command.get("lowStockThreshold", 0),
            backorder_limit=command.get("backorderLimit", 0),
            name=command.get("name"),
            price=command.get("price"),
        )
        self.file.creations.append(Line(number, new))

    def _add_adjustment(self, number: int, fields: dict[str, Any]) -> None:
        derived = [fields.get(name) for name in ("productId", "delta", "reason")]
        command = _command("adjust", {"adjustmentId": _digest(derived), **fields})
        product_id, adjustment_id = command["productId"], command["adjustmentId"]
        how = f"as {adjustment_id}" if "adjustmentId" in fields else "in the same way"
        what, fix = f"adjusts {product_id} {how}", "give each an adjustmentId of its own"
        self._must_be_first(number, what, fix, "adjust", product_id, adjustment_id)
        notes = notes_in(command, NOTES_OF_ADJUSTMENT)
        change = Adjustment(
            product_id, adjustment_id, command["delta"], command["reason"], notes=notes
        )
        self.file.adjustments.append(Line(number, change))

    def _add_change(self, number: int, fields: dict[str, Any]) -> None:
        given = {"eventId": _digest(fields.get("details")), "eventTime": self._saved} | fields
        command = _command("changeDetails", given)
        event = catalogue_event(command, self._now)
        # A derived id does not say which of two changes is newer.
        event_id = fields.get("eventId", "")
        what, fix = f"changes {event.product_id} at the same time", "give each an eventTime"
        self._must_be_first(
            number, what, fix, "change", event.product_id, event.event_time, event_id
        )
        self.file.changes.append(Line(number, event))

    def _must_be_first(self, number: int, what: str, fix: str, *key: str) -> None:
        first = self._first.setdefault(key, number)
        if first != number:
            raise PoisonMessageError("DUPLICATE_LINE", f"line {first} {what}; {fix}")


def _check_header(where: str, header: Sequence[str]) -> None:
    """Check the header of a CSV file."""
    if any(map(not_utf8, header)):
        raise UserError(f"{where} is not UTF-8; {SAVE_AS_UTF8}")
    faults = [f'the column "{name[:64]}" is unknown' for name in header if name not in COLUMNS]
    faults += [f"the column {name} is there twice" for name in header if header.count(name) > 1]
    if "productId" not in header:
        faults.append("the column productId is missing")
    if faults:
        raise UserError(
            f"{where} is not the header of a catalogue: {faults[0]}. A catalogue has productId and others of the columns "
            f"{', '.join(COLUMNS)}"
        )


def _document(header: Sequence[str], cells: Sequence[str], delimiter: str) -> dict[str, Any]:
    """Make a command of a row."""
    if len(cells) != len(header):
        raise PoisonMessageError(
            "BAD_ROW",
            f"the row has {len(cells)} cells, but the header has {len(header)}; "
            f"put quotation marks around a value that contains {DELIMITERS[delimiter]}",
        )
    fields: dict[str, Any] = {
        name: int(cell) if name in _NUMBERS and _WHOLE_NUMBER.fullmatch(cell) else cell
        for name, cell in zip(header, cells, strict=True)
        if cell
    }
    if fields.get("action") == "changeDetails":
        details = {name: fields.pop(name) for name in _DETAILS & fields.keys()}
        fields["details"] = dict(sorted(details.items()))
    return fields


def _parsed(text: str) -> Any:
    try:
        return strict_json(text)
    except PoisonMessageError as error:
        # The report gives the number of the line in the file.
        message = error.message.replace(" at line 1, column ", " at column ")
        raise PoisonMessageError(error.code, message, error.field) from None


def _command(action: str, fields: dict[str, Any]) -> dict[str, Any]:
    function = FUNCTIONS[action]
    known = json_schema("commands")[function][action]["properties"]
    return validated_part(fields, function, action, known, "the line")


def _digest(content: Any) -> str:
    """Make an id that follows from content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return f"load-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _check_utf8(texts: Iterable[str]) -> None:
    if any(map(not_utf8, texts)):
        raise PoisonMessageError("NOT_UTF8", f"the line is not UTF-8; {SAVE_AS_UTF8}")


def _product_id(document: Any) -> str:
    try:
        return checked_id("productId", document["productId"])
    except (TypeError, LookupError, PoisonMessageError):
        return ""


REPORT_HEADER = ("line", "productId", "code", "message")

# https://owasp.org/www-community/attacks/CSV_Injection
_FORMULA = re.compile(r"[=+\-@\t\r\n]")


def write_report(path: Path, bad: Iterable[BadLine]) -> None:
    """Write the bad lines to a CSV file, in the order of the file that they come from.

    A spreadsheet takes text that begins with one of `=+-@` for a formula, so an apostrophe is put before it.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(REPORT_HEADER)
        for line in sorted(bad, key=lambda line: line.number):
            texts = (line.product_id, line.code, line.message)
            cells = (f"'{text}" if _FORMULA.match(text) else text for text in texts)
            rows.writerow((line.number, *cells))


def is_report(path: Path) -> bool:
    """Whether a file begins as `write_report` begins one."""
    with path.open("rb") as file:
        return file.readline(200).rstrip() == ",".join(REPORT_HEADER).encode()
