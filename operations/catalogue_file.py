"""Files for `load`: products to create or change, stock to book, and counts, as CSV or JSON lines.

Fields are named and limited as in the commands of the handlers. In a change, a column that is missing changes nothing, and
an empty cell (`null` in JSON) removes. Elsewhere an empty cell is an absent field.

A line with a `locationId` is about the product's stock there. Name and price are the product's own: a line with a location
has none, and its empty cells in these columns mean nothing.

Fields that a file leaves out follow from the file alone, so that a second load means the same:

- the action of a line follows from its columns;
- the id of an adjustment follows from its product, delta and reason;
- the time of a change of details is when the file was last saved, and its id follows from the details;
- the id of a count follows from the name of the file, the product and the units: the same file again books nothing,
  another number in it books a new count, and so does a file of another name.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

from inventory_orders.clock import timestamp
from inventory_orders.domain.adjustment import Adjustment
from inventory_orders.domain.location import in_words, key_in
from inventory_orders.domain.product import DETAILS, NewProduct, Product, ProductStatus
from inventory_orders.domain.record import NOTES_OF_ADJUSTMENT, AdjustmentKey
from inventory_orders.errors import InvalidMessageError, RejectedError, id_reused_error
from inventory_orders.messages.commands import catalogue_event, notes_in
from inventory_orders.messages.documents import (
    Decimal,
    checked_id,
    json_schema,
    not_one_of,
    strict_json,
    validated,
)
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
from operations.words import counted

_NOTES = ("actor", "reference")
_FIELDS = {
    "create": ("openingStock", "lowStockThreshold", "backorderLimit", "name", "price"),
    "change": ("lowStockThreshold", "backorderLimit", "name", "price", "eventId", "eventTime"),
    "changeDetails": ("name", "price", "eventId", "eventTime"),
    "adjust": ("delta", "reason", "adjustmentId", *_NOTES),
    "count": ("counted", "adjustmentId", *_NOTES),
    "discontinue": (),
    "listAgain": (),
}
"""The fields of a line by its action, besides `action`, `productId` and `locationId`."""

_REQUIRED = {"productId", "openingStock", "delta", "reason", "counted"}

_DEFAULT_ACTIONS = {"openingStock": "create", "counted": "count", "delta": "adjust"}
"""The action of a line that names none, by a field that it has. A line without any of them is a change."""

_OF_ALL = ("action", "productId", "locationId")

COLUMNS = tuple(dict.fromkeys([*_OF_ALL, *chain(*_FIELDS.values())]))
"""The columns that a CSV file may have."""

ATTRIBUTES = {
    "name": "name",
    "price": "price",
    "lowStockThreshold": "low_stock_threshold",
    "backorderLimit": "backorder_limit",
}
"""The attributes of a product that a file may change, by column."""

_STATUS = {
    "discontinue": {"status": ProductStatus.DISCONTINUED},
    "listAgain": {"status": ProductStatus.ACTIVE},
}

_EXAMPLE = '{"productId": "p-1", "openingStock": 40}'
_NUMBERS = {"openingStock", "lowStockThreshold", "backorderLimit", "price", "delta", "counted"}
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_IDS = ("productId", "locationId", "adjustmentId", "eventId")
_ROUNDED = re.compile(r"[0-9]([.,][0-9]+)?[eE]\+[0-9]+")
_DECIMALS = re.compile(r"[0-9][.,][0-9]")
_PRICE = re.compile(r"([0-9]{1,10})(?:[.,]([0-9]+))?")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a product, or of its stock at a location.

    Attributes:
        product_id: The key of its row.
        details: The details to set; one that is None is removed.
        others: Other attributes of `Product` to set.
        event_time: When the details were so, in the format of all times.
        event_id: Breaks ties between changes of details of the same moment.
    """

    product_id: str
    details: Mapping[str, Any]
    others: Mapping[str, Any]
    event_time: str
    event_id: str

    def is_stale(self, product: Product) -> bool:
        """Whether a product has newer details than these. Then nothing of the change is carried out."""
        return bool(self.details) and _newest(product) > self._moment

    def applied_to(self, product: Product) -> Product:
        """Make the product that it leaves: the same if it is stale, or if the product is like this already.

        Raises:
            RejectedError: `EVENT_ID_REUSED`: other details of this id and moment were applied; or `BELOW_FLOOR`: more units
                are on backorder than the limit would allow.
        """
        if self.is_stale(product):
            return product
        changes: dict[str, Any] = {**self.details, **self.others}
        if self.details:
            same = all(getattr(product, name) == self.details[name] for name in self.details)
            if _newest(product) == self._moment and not same:
                words = id_reused_error("EVENT_ID_REUSED")
                raise RejectedError(words.message, words.code)
            changes |= {"details_event_time": self.event_time, "details_event_id": self.event_id}
        if "price" in self.details:
            changes["price_changed_at"] = self.event_time if changes["price"] is not None else None
        after = replace(product, **changes)
        is_lower = after.backorder_limit < product.backorder_limit
        if is_lower and after.stock_count < -after.backorder_limit:
            raise RejectedError(
                f"backorderLimit: {-product.stock_count:,} units of {in_words(self.product_id)} are on backorder, so the limit cannot "
                f"be {after.backorder_limit:,}",
                "BELOW_FLOOR",
            )
        return after.with_stock(after.stock_count, product.version)

    @property
    def status(self) -> ProductStatus | None:
        """The status that it sets, at all locations of a product; None if it sets none."""
        return self.others.get("status")

    @property
    def _moment(self) -> tuple[str, str]:
        return self.event_time, self.event_id


def _newest(product: Product) -> tuple[str, str]:
    """The time and the id of the newest change of a product's details."""
    return product.details_event_time or "", product.details_event_id or ""


@dataclass(frozen=True, slots=True)
class Count:
    """Units of a product that were counted on the shelf.

    Attributes:
        product_id: The key of its row.
        adjustment_id: What makes the count exactly-once, within the product.
        counted: The units.
        notes: Who counted, and what for.
    """

    product_id: str
    adjustment_id: str
    counted: int
    notes: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def record_key(self) -> AdjustmentKey:
        """Where it is booked."""
        return AdjustmentKey(self.product_id, self.adjustment_id)


T = TypeVar("T", NewProduct, Change, Adjustment, Count)


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
        changes: Products to change.
        adjustments: Stock to book.
        counts: Counts to book.
        bad: The other lines, with their errors.
    """

    creations: list[Line[NewProduct]] = field(default_factory=list)
    changes: list[Line[Change]] = field(default_factory=list)
    adjustments: list[Line[Adjustment]] = field(default_factory=list)
    counts: list[Line[Count]] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)

    @property
    def good(self) -> int:
        """The number of lines that are correct, by the file alone."""
        return sum(
            len(lines) for lines in (self.creations, self.changes, self.adjustments, self.counts)
        )


def read_catalogue(path: Path, currency_decimals: int | None = None) -> CatalogueFile:
    """Read a file, which may be compressed with gzip.

    `.jsonl`, `.ndjson` and `.json` are JSON lines; for other names the first line decides whether it is CSV.

    Args:
        path: The file.
        currency_decimals: How many decimals the currency of its prices has; None if they are in minor units (cents, pence).

    Raises:
        UserError: The file cannot be read, or is neither, or has prices in an unknown unit.
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
        reader = _Reader(path.name, timestamp(saved), currency_decimals)
        # Bytes that are not UTF-8 make their line a bad one, and do not end the read.
        if _holds_json(path, first):
            check_json_lines(path, lines, what, _EXAMPLE)
            lines.seek(0)
            reader.read_json(lines)
        else:
            reader.read_csv(path, lines, delimiter_of(first))
    return reader.file


def _holds_json(path: Path, first: str) -> bool:
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    return kind in {".jsonl", ".ndjson", ".json"} or first.lstrip("\ufeff \t").startswith(
        ("{", "[")
    )


class _Reader:
    """Sorts the lines of one file by their commands: by its name, when it was last saved, and the decimals of its prices."""

    def __init__(self, name: str, saved: str, currency_decimals: int | None) -> None:
        self.file = CatalogueFile()
        self._name = name
        self._saved = saved
        self._currency_decimals = currency_decimals
        self._now = datetime.now(UTC)
        self._first: dict[tuple[str, ...], int] = {}

    def read_json(self, lines: Iterable[str]) -> None:
        """Read JSON lines, one object in each."""
        for number, line in enumerate(lines, start=1):
            text = line.strip().removeprefix("\ufeff")
            if text:
                self._take(number, [text], partial(_parsed, text))

    def read_csv(self, path: Path, lines: Iterable[str], delimiter: str) -> None:
        """Read CSV with a header. An empty cell is None."""
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
        except InvalidMessageError as error:
            bad = BadLine(number, _product_id(document), error.code, error.message)
            self.file.bad.append(bad)

    def _add(self, number: int, document: Any) -> None:
        if not isinstance(document, dict):
            raise InvalidMessageError(
                "SCHEMA_VIOLATION", f"a line must be an object, such as {_EXAMPLE}"
            )
        if "orderId" in document:
            raise UserError(
                f"line {number} is about an order, and a catalogue has products; send orders with inventory-orders send"
            )
        by_fields = (_DEFAULT_ACTIONS[name] for name in _DEFAULT_ACTIONS if name in document)
        action = document.get("action") or next(by_fields, "change")
        if not isinstance(action, str) or action not in _FIELDS:
            raise InvalidMessageError("UNSUPPORTED_ACTION", not_one_of("action", _FIELDS, action))
        fields = {**document, "action": action}
        if isinstance(document.get("details"), dict):
            # A whole snapshot, as the command has it.
            fields = dict.fromkeys(DETAILS) | fields.pop("details") | fields
        _check_ids(fields)
        _check_location(fields)
        if "price" in fields:
            fields["price"] = self._minor_units(number, fields["price"])
        add = {
            "create": self._add_creation,
            "adjust": self._add_adjustment,
            "count": self._add_count,
        }.get(action, self._add_change)
        add(number, fields)

    def _minor_units(self, number: int, price: Any) -> Any:
        """Make minor units of a price, such as 1250 of 12.50. What is not a price stays as it is."""
        text, decimals = _text(price), self._currency_decimals
        if decimals is None and _DECIMALS.search(text):
            raise UserError(
                f"line {number} has the price {text[:40]}, but without --currency-decimals prices are in the smallest unit of "
                "the currency, and 79 would be 79 cents. Add --currency-decimals 2: then 12.5 is 12.50, and 79 is 79.00. "
                "Or write every price in the smallest unit, such as 1250"
            )
        if decimals is None or price is None:
            return price
        found = _PRICE.fullmatch(text)
        fraction = (found[2] or "") if found else ""
        if found is None or len(fraction) > decimals:
            raise InvalidMessageError(
                "SCHEMA_VIOLATION",
                f'price: must be a number with at most {counted(decimals, "decimal")}, but is "{text[:40]}"',
            )
        return int(found[1] + fraction.ljust(decimals, "0"))

    def _add_creation(self, number: int, fields: dict[str, Any]) -> None:
        command = _checked(fields)
        key = key_in(command)
        self._must_be_first(number, f"creates {in_words(key)}", "remove one", "create", key)
        new = NewProduct(
            key,
            command["openingStock"],
            low_stock_threshold=command.get("lowStockThreshold", 0),
            backorder_limit=command.get("backorderLimit", 0),
            name=command.get("name"),
            price=command.get("price"),
        )
        self.file.creations.append(Line(number, new))

    def _add_adjustment(self, number: int, fields: dict[str, Any]) -> None:
        derived = [fields.get(name) for name in ("productId", "delta", "reason")]
        command = _checked(fields, adjustmentId=_digest(derived))
        key, adjustment_id = key_in(command), command["adjustmentId"]
        how = f"as {adjustment_id}" if fields.get("adjustmentId") else "in the same way"
        what, fix = f"adjusts {in_words(key)} {how}", "give each an adjustmentId of its own"
        self._must_be_first(number, what, fix, "adjust", key, adjustment_id)
        notes = notes_in(command, NOTES_OF_ADJUSTMENT)
        change = Adjustment(key, adjustment_id, command["delta"], command["reason"], notes=notes)
        self.file.adjustments.append(Line(number, change))

    def _add_count(self, number: int, fields: dict[str, Any]) -> None:
        derived = [self._name, fields.get("productId"), fields.get("counted")]
        command = _checked(fields, adjustmentId=_digest(derived))
        key, fix = key_in(command), "add the units up in one line"
        self._must_be_first(number, f"counts {in_words(key)}", fix, "count", key)
        notes = notes_in(command, NOTES_OF_ADJUSTMENT)
        count = Count(key, command["adjustmentId"], command["counted"], notes)
        self.file.counts.append(Line(number, count))

    def _add_change(self, number: int, fields: dict[str, Any]) -> None:
        command = _checked(fields)
        details, others = _changes_in(command, fields)
        derived = {"eventId": _digest(details), "eventTime": self._saved, "details": details}
        event, key = catalogue_event(derived | command, self._now), key_in(command)
        # A derived id does not say which of two changes is newer.
        event_id = fields.get("eventId") or ""
        self._must_be_first(
            number,
            f"changes {in_words(key)} at the same time",
            "put all changes in one line, or give each an eventTime",
            *("change", others.get("status", ""), key, event.event_time, event_id),
        )
        change = Change(key, details, others, event.event_time, event.event_id)
        self.file.changes.append(Line(number, change))

    def _must_be_first(self, number: int, what: str, fix: str, *key: str) -> None:
        first = self._first.setdefault(key, number)
        if first != number:
            raise InvalidMessageError("DUPLICATE_LINE", f"line {first} {what}; {fix}")


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
            f"{where} is not the header of a file to load: {faults[0]}. Such a file has productId and others of the columns "
            f"{', '.join(COLUMNS)}"
        )


def _document(header: Sequence[str], cells: Sequence[str], delimiter: str) -> dict[str, Any]:
    """Make a command of a row."""
    if len(cells) != len(header):
        raise InvalidMessageError(
            "BAD_ROW",
            f"the row has {len(cells)} cells, but the header has {len(header)}; "
            f"put quotation marks around a value that contains {DELIMITERS[delimiter]}",
        )
    return {
        name: int(cell) if name in _NUMBERS and _WHOLE_NUMBER.fullmatch(cell) else cell or None
        for name, cell in zip(header, cells, strict=True)
    }


def _changes_in(
    command: Mapping[str, Any], fields: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Find the details and the other attributes that a line sets; `fields` are the same with those that are None."""
    possible = [name for name in ATTRIBUTES if not (command.get("locationId") and name in DETAILS)]
    columns = set(possible) & fields.keys() & set(_FIELDS[command["action"]])
    details = {name: command.get(name) for name in DETAILS if name in columns}
    limits = {ATTRIBUTES[name]: command.get(name, 0) for name in columns.difference(DETAILS)}
    others = limits | _STATUS.get(command["action"], {})
    if not details and not others:
        raise InvalidMessageError(
            "SCHEMA_VIOLATION",
            f"the line changes nothing; it needs one of {', '.join(possible)}",
        )
    return details, others


def _parsed(text: str) -> Any:
    try:
        return strict_json(text)
    except InvalidMessageError as error:
        # The report gives the number of the line in the file.
        message = error.message.replace(" at line 1, column ", " at column ")
        raise InvalidMessageError(error.code, message, error.field) from None


def _checked(fields: Mapping[str, Any], **defaults: str) -> dict[str, Any]:
    """Check a line by the rules of its action. Returns its fields that are not None, and defaults of the others."""
    action = fields["action"]
    given = defaults | {name: value for name, value in fields.items() if value is not None}
    checked: dict[str, Any] = validated(given, f"{action} in a file", _schema(action), "the line")
    return checked


@cache
def _schema(action: str) -> dict[str, Any]:
    """Make the schema of a line of parts of the schemas of commands."""
    functions = (
        json_schema("commands")[name] for name in ("manage_products", "adjust_stock", "count_stock")
    )
    commands = (command for function in functions for command in function.values())
    known = {name: part for command in commands for name, part in command["properties"].items()}
    names = (*_OF_ALL, *_FIELDS[action])
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name in names if name in _REQUIRED],
        "properties": {name: known[name] for name in names},
    }


def _check_ids(fields: Mapping[str, Any]) -> None:
    """Check that no id is a long number that a spreadsheet has rounded: different codes would be one."""
    for name in _IDS:
        if _ROUNDED.fullmatch(text := _text(fields.get(name))):
            raise InvalidMessageError(
                "SCHEMA_VIOLATION",
                f"{name}: a spreadsheet has rounded this code to {text}, and its last digits are lost. Export the file "
                "again, and in the spreadsheet import this column as text",
            )


def _check_location(fields: Mapping[str, Any]) -> None:
    """Check that a line about a location does not set what a product has everywhere."""
    location_id = fields.get("locationId")
    for name in DETAILS:
        if location_id and fields.get(name) is not None:
            raise InvalidMessageError(
                "SCHEMA_VIOLATION",
                f"{name}: a product has the same {name} at all locations; write it in a line of the product without a "
                "locationId, and leave this cell empty",
            )
    if location_id and fields["action"] == "changeDetails":
        raise InvalidMessageError(
            "SCHEMA_VIOLATION",
            "locationId: changeDetails sets what a product has at all locations; leave this cell empty",
        )


def _text(value: Any) -> str:
    return value.text if isinstance(value, Decimal) else str(value)


def _digest(content: Any) -> str:
    """Make an id that follows from content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return f"load-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _check_utf8(texts: Iterable[str]) -> None:
    if any(map(not_utf8, texts)):
        raise InvalidMessageError("NOT_UTF8", f"the line is not UTF-8; {SAVE_AS_UTF8}")


def _product_id(document: Any) -> str:
    try:
        return checked_id("productId", document["productId"])
    except (TypeError, LookupError, InvalidMessageError):
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
