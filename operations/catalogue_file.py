"""Files for `load`: products to create or change, stock to book, and counts, as CSV or JSON lines.

Fields have the names and limits of the handlers' commands. In a change, a missing column changes nothing, and an empty
cell (`null` in JSON) removes the value. Elsewhere, an empty cell means that the field is absent.

A line with a `locationId` is about the product's stock there. Name and price belong to the product: a line with a
location has neither, and its empty cells in these columns are ignored. A change of a purchase limit in a line without a location
is a change at all of them. A transfer has two locations, `from` and `to`: there,
an empty cell is the default one.

Missing fields are derived from the file alone, so that loading it a second time has no further effect:

- the action of a line follows from its columns;
- the id of an adjustment follows from its product, delta and reason, and that of a transfer from all that it says;
- the time of a change of details is when the file was last saved, and its id follows from the details;
- the id of a count follows from the name of the file, the product, the time of the count and the units.

So loading a file of counts again books nothing, but another number, time or file name makes a new count.
"""

from __future__ import annotations

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

from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.domain.adjustment import TRANSFER_LOST, Adjustment, Transfer
from inventory_orders.domain.barcode import all_written, key_of_barcode
from inventory_orders.domain.location import in_words, key_in
from inventory_orders.domain.product import (
    DETAILS,
    LIMITS,
    NewProduct,
    Product,
    ProductStatus,
    check_terms,
    sortable_id,
)
from inventory_orders.domain.record import NOTES_OF_ADJUSTMENT, AdjustmentKey
from inventory_orders.errors import InvalidMessageError, RejectedError
from inventory_orders.messages.commands import catalogue_event, new_product, notes_in, stock_command
from inventory_orders.messages.documents import (
    Decimal,
    json_schema,
    not_one_of,
    strict_json,
    validated,
)
from inventory_orders.products.catalogue import event_id_reused_error

from .cells import check_codes
from .columns import AS_NAMED, HINT, ColumnMap, faults_in
from .currency import NONE, Currency
from .errors import UserError
from .file_errors import FileError, ids_in, is_report
from .file_prices import FilePrices
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
from .words import numbered

_NOTES = ("actor", "reference")
_SETTABLE = (
    *("lowStockThreshold", "backorderLimit", "safetyStock", "purchaseLimit", "limitGroup"),
    *("name", "price", "barcodes"),
)
_FIELDS = {
    "create": ("openingStock", *_SETTABLE),
    "change": (*_SETTABLE, "eventId", "eventTime"),
    "changeDetails": ("name", "price", "eventId", "eventTime"),
    "adjust": ("delta", "reason", "adjustmentId", *_NOTES),
    "count": ("counted", "countedAt", "adjustmentId", *_NOTES),
    "transfer": ("from", "to", "quantity", "transferId", *_NOTES),
    "discontinue": (),
    "listAgain": (),
}
"""The fields of a line by its action, besides `action`, `productId` and `locationId`."""

_REQUIRED = {"productId", "openingStock", "delta", "reason", "counted", "from", "to", "quantity"}

_DEFAULT_ACTIONS = {
    "openingStock": "create",
    "counted": "count",
    "delta": "adjust",
    "quantity": "transfer",
}
"""The action of a line without `action`, by a field of the line. A line without any of these fields is a change."""

_OF_ALL = ("action", "productId", "locationId")

COLUMNS = tuple(dict.fromkeys([*_OF_ALL, *chain(*_FIELDS.values())]))
"""The valid columns of a CSV file."""

ATTRIBUTES = {
    "name": "name",
    "price": "price",
    "lowStockThreshold": "low_stock_threshold",
    "backorderLimit": "backorder_limit",
    "safetyStock": "safety_stock",
    "purchaseLimit": "purchase_limit",
    "limitGroup": "limit_group",
    "barcodes": "barcodes",
}
"""The attributes of a product that a file may change, by column."""

_SHARED = (*DETAILS, "barcodes")
"""The columns that all locations of a product share."""

_STATUS = {
    "discontinue": {"status": ProductStatus.DISCONTINUED},
    "listAgain": {"status": ProductStatus.ACTIVE},
}

_ADD_UP = "keep one or, if the units lie in several bins, write their sum in one line"
_EXAMPLE = '{"productId": "p-1", "openingStock": 40}'
_NUMBERS = {
    *("openingStock", "lowStockThreshold", "backorderLimit", "safetyStock", "purchaseLimit"),
    *("price", "delta", "counted", "quantity"),
}
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class Change:
    """A change to a product, or to its stock at a location.

    Attributes:
        product_id: The key of its row.
        details: The details to set; None removes a detail.
        others: Other attributes of `Product` to set.
        event_time: The time of the details, in the format of the tables.
        event_id: Decides between changes of details with the same time, as a catalogue event's id does.
        currency: The currency of the price.
    """

    product_id: str
    details: Mapping[str, Any]
    others: Mapping[str, Any]
    event_time: str
    event_id: str
    currency: Currency = NONE

    def is_stale(self, product: Product) -> bool:
        """Whether the product has newer details than the change, which then has no effect at all."""
        return bool(self.details) and _newest(product) > self._moment

    def applied_to(self, product: Product) -> Product:
        """Apply the change to a row of its product. Returns the same row if the change is stale or already applied.

        Raises:
            InvalidMessageError: The row would have both safety stock and backorders.
            RejectedError: `EVENT_ID_REUSED` if other details with this id and time were applied; `BELOW_FLOOR` if more
                units are on backorder than the new limit allows.
        """
        if self.is_stale(product):
            return product
        is_own = product.product_id == self.product_id
        after = self._changed(product) if is_own else replace(product, **self.everywhere)
        return after.with_stock(after.stock_count, product.version)

    def _changed(self, product: Product) -> Product:
        changes: dict[str, Any] = {**self.details, **self.others}
        if self.details:
            same = all(getattr(product, name) == self.details[name] for name in self.details)
            if _newest(product) == self._moment and not same:
                raise event_id_reused_error(product, self.event_id, self.details)
            time, event_id = self._moment
            changes |= {"details_event_time": time, "details_event_id": event_id}
        if "price" in self.details:
            changes["price_changed_at"] = self.event_time if changes["price"] is not None else None
        after = replace(product, **changes)
        check_terms(after, names_group=bool(self.others.get("limit_group")))
        is_lower = after.backorder_limit < product.backorder_limit
        if is_lower and after.stock_count < -after.backorder_limit:
            raise RejectedError(
                f"backorderLimit: {-product.stock_count:,} units of {in_words(self.product_id)} are on backorder, so the limit cannot "
                f"be {after.backorder_limit:,}",
                "BELOW_FLOOR",
            )
        return after

    @property
    def everywhere(self) -> Mapping[str, Any]:
        """What a change to a product's own row sets at all other locations too."""
        return {name: self.others[name] for name in ("status", *LIMITS) if name in self.others}

    def places(self, own: Product) -> Sequence[str]:
        """The keys of the rows that a change to the product's own row changes too."""
        return own.place_keys if self.everywhere and not self.is_stale(own) else ()

    @property
    def _moment(self) -> tuple[str, str]:
        return self.event_time, sortable_id(self.event_id)


def _newest(product: Product) -> tuple[str, str]:
    """Return the time and id of the latest change to a product's details."""
    return product.details_event_time or "", product.details_event_id or ""


@dataclass(frozen=True, slots=True)
class Count:
    """The number of units found in a stocktake of one product.

    Attributes:
        product_id: The key of its row.
        adjustment_id: The idempotency key of the count, per product.
        counted: The units.
        counted_at: When the count began, in the format of the tables.
        stem: The beginning of its id, if it was derived: the same line with another number has the same one.
        notes: Who counted, and a reference.
        names_location: Whether the line has a location, perhaps an empty one. If not, the product must have only one.
    """

    product_id: str
    adjustment_id: str
    counted: int
    counted_at: str
    stem: str = ""
    notes: Mapping[str, str] = field(default_factory=dict, compare=False)
    names_location: bool = field(default=True, compare=False)

    @property
    def record_key(self) -> AdjustmentKey:
        """The key of the count's adjustment."""
        return AdjustmentKey(self.product_id, self.adjustment_id)


Booking = Adjustment | Transfer

T = TypeVar("T", NewProduct, Change, Booking, Count)


@dataclass(frozen=True, slots=True)
class Line(Generic[T]):
    """A valid line of the file.

    Attributes:
        number: Its line number in the file, from 1; the number of its first line if it spans several.
        content: The requested change.
        ids: What it is about, as written in the file.
    """

    number: int
    content: T
    ids: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(slots=True)
class CatalogueFile:
    """The valid and invalid lines of a file.

    Attributes:
        creations: Products to create.
        changes: Products to change.
        adjustments: Stock to book, or to transfer between locations.
        counts: Counts to book.
        bad: The invalid lines, with their errors.
    """

    creations: list[Line[NewProduct]] = field(default_factory=list)
    changes: list[Line[Change]] = field(default_factory=list)
    adjustments: list[Line[Booking]] = field(default_factory=list)
    counts: list[Line[Count]] = field(default_factory=list)
    bad: list[FileError] = field(default_factory=list)

    @property
    def good(self) -> int:
        """The number of lines that are valid on their own."""
        return sum(
            len(lines) for lines in (self.creations, self.changes, self.adjustments, self.counts)
        )


def read_catalogue(
    path: Path,
    currency: Currency = NONE,
    counted_at: str | None = None,
    columns: ColumnMap = AS_NAMED,
) -> CatalogueFile:
    """Read a file, which may be compressed with gzip.

    `.jsonl`, `.ndjson` and `.json` are JSON lines; for other names, the first line decides whether the file is CSV.

    Args:
        path: The file.
        currency: The currency of the prices. Without one, they are in minor units (cents, pence).
        counted_at: The time of all counts whose lines do not have a time.
        columns: The meaning of columns with other names.

    Raises:
        UserError: The file cannot be read, is neither CSV nor JSON lines, or has prices in an unknown unit or with ambiguous
            separators; or `counted_at` is not a time in the past.
    """
    if is_report(path):
        raise UserError(
            f"{path} is a report of bad lines. Correct these lines in the original file, and load that file again"
        )
    if counted_at is not None:
        counted_at = _checked_option(counted_at)
    what = "a catalogue"
    with opened(path, what) as lines:
        first = first_line(lines)
        if not first.strip():
            raise UserError(f"{path} is empty; a catalogue has one line for each product")
        lines.seek(0)
        saved = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        reader = _Reader(path.name, timestamp(saved), currency, counted_at)
        # Bytes that are not UTF-8 make their line invalid, without ending the read.
        if _holds_json(path, first):
            columns.check_not_json(path)
            check_json_lines(path, lines, what, _EXAMPLE)
            lines.seek(0)
            reader.read_json(lines)
        else:
            reader.read_csv(path, lines, delimiter_of(first), columns)
    reader.prices.check(path)
    return reader.finish()


def _holds_json(path: Path, first: str) -> bool:
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    return kind in {".jsonl", ".ndjson", ".json"} or first.lstrip("\ufeff \t").startswith(
        ("{", "[")
    )


@dataclass(frozen=True, slots=True)
class _Repeated:
    """Lines of which at most one can be right: what they do, how to correct them, the column at fault and their numbers."""

    what: str
    fix: str
    column: str
    numbers: list[int]

    @property
    def message(self) -> str:
        where = f"{self.column}: " if self.column else ""
        return f"{where}{numbered('line', self.numbers)} {self.what}, so none of them was loaded; {self.fix}"


class _Reader:
    """Sorts the lines of one file by command.

    It needs the file's name, the time at which it was saved, the currency of its prices, and the time of its counts.
    """

    def __init__(self, name: str, saved: str, currency: Currency, counted_at: str | None) -> None:
        self.file = CatalogueFile()
        self.prices = FilePrices(currency)
        self._name = name
        self._saved = saved
        self._currency = currency
        self._counted_at = counted_at
        self._now = SystemClock().now()
        self._are_cells = False
        self._first: dict[tuple[str, ...], int] = {}
        self._repeated: dict[tuple[str, ...], _Repeated] = {}

    def read_json(self, lines: Iterable[str]) -> None:
        """Read JSON lines, one object in each."""
        for number, line in enumerate(lines, start=1):
            text = line.strip().removeprefix("\ufeff")
            if text:
                self._take(number, [text], partial(_parsed, text))

    def read_csv(
        self, path: Path, lines: Iterable[str], delimiter: str, columns: ColumnMap
    ) -> None:
        """Read CSV with a header. Empty cells become None."""
        self._are_cells = True
        rows = csv_rows(path, lines, delimiter)
        number, header = next(rows, (1, []))
        header = _translated(f"{path}, line {number},", header, columns)
        for number, cells in rows:
            known = _document(header, cells)
            self._take(number, cells, partial(_whole, known, header, cells, delimiter), known)

    def finish(self) -> CatalogueFile:
        """Refuse lines that contradict or repeat each other, all of them: which one is right is unknown."""
        file, refused = self.file, dict[int, str]()
        for group in self._repeated.values():
            refused |= dict.fromkeys(group.numbers, group.message)
        file.bad += chain(
            *(_taken(file.creations, refused), _taken(file.changes, refused)),
            *(_taken(file.adjustments, refused), _taken(file.counts, refused)),
        )
        return file

    def _take(
        self, number: int, texts: Sequence[str], read: Callable[[], Any], document: Any = None
    ) -> None:
        """Add a line, given its cells, the function that parses them, and its fields as far as they are known before."""
        try:
            _check_utf8(texts)
            document = read()
            self._add(number, document)
        except InvalidMessageError as error:
            self.file.bad.append(FileError.of_invalid(number, error, document))

    def _add(self, number: int, document: Any) -> None:
        if not isinstance(document, dict):
            raise InvalidMessageError(
                "SCHEMA_VIOLATION", f"a line must be an object, such as {_EXAMPLE}"
            )
        if "orderId" in document:
            raise UserError(
                f"line {number} is an order, but a catalogue contains products; send orders with inventory-orders send"
            )
        by_fields = (_DEFAULT_ACTIONS[name] for name in _DEFAULT_ACTIONS if name in document)
        action = document.get("action") or next(by_fields, "change")
        if not isinstance(action, str) or action not in _FIELDS:
            raise InvalidMessageError("UNSUPPORTED_ACTION", not_one_of("action", _FIELDS, action))
        fields = {**document, "action": action}
        if isinstance(document.get("details"), dict):
            # A complete set of details, in the form of the command.
            fields = dict.fromkeys(DETAILS) | fields.pop("details") | fields
        check_codes(fields, are_cells=self._are_cells)
        _check_location(fields)
        if "price" in fields:
            fields["price"] = self.prices.minor_units(number, fields["price"])
        add = {
            "create": self._add_creation,
            "adjust": self._add_adjustment,
            "count": self._add_count,
            "transfer": self._add_transfer,
        }.get(action, self._add_change)
        add(number, fields)

    def _add_creation(self, number: int, fields: dict[str, Any]) -> None:
        new = product_in(fields)
        key = new.product_id
        self._must_be_only(number, f"create {in_words(key)}", _ADD_UP, "create", key)
        self._must_be_only_barcodes(number, new.barcodes)
        self.file.creations.append(Line(number, new, ids_in(fields)))

    def _add_adjustment(self, number: int, fields: dict[str, Any]) -> None:
        names = ["productId", "delta", "reason"]
        if fields.get("reason") == TRANSFER_LOST:
            names.append("reference")
        derived = [fields.get(name) for name in names]
        command = _checked(fields, adjustmentId=_digest(derived))
        key, adjustment_id = key_in(command), command["adjustmentId"]
        how = "by the same units for the same reason"
        fix = "keep one or, if each of them happened, give each an adjustmentId of its own"
        column = ""
        if fields.get("adjustmentId"):
            column, how = "adjustmentId", f"under the same adjustmentId, {adjustment_id}"
        what = f"adjust {in_words(key)} {how}"
        self._must_be_only(number, what, fix, "adjust", key, adjustment_id, column=column)
        change = Adjustment(
            key,
            adjustment_id,
            command["delta"],
            command["reason"],
            notes_in(command, NOTES_OF_ADJUSTMENT),
            names_location="locationId" in fields,
        )
        self.file.adjustments.append(Line(number, change, ids_in(fields)))

    def _add_transfer(self, number: int, fields: dict[str, Any]) -> None:
        given = dict(fields)
        # An empty cell is the default location, which has no name.
        given |= {side: given[side] or "" for side in ("from", "to") if side in given}
        derived = [given.get(name) for name in ("productId", "from", "to", "quantity")]
        command = _checked(given, transferId=_digest(derived))
        product_id, transfer_id = command["productId"], command["transferId"]
        how, column = "the same units of", ""
        if fields.get("transferId"):
            column, how = "transferId", f"under the same transferId, {transfer_id},"
        fix = "keep one or, if each of them happened, give each a transferId of its own"
        key = ("transfer", product_id, transfer_id)
        self._must_be_only(number, f"transfer {how} {product_id}", fix, *key, column=column)
        self.file.adjustments.append(Line(number, stock_command(command), ids_in(fields)))

    def _add_count(self, number: int, fields: dict[str, Any]) -> None:
        times = {} if self._counted_at is None else {"countedAt": self._counted_at}
        command = _checked(fields, **times)
        if (counted_at := command.get("countedAt")) is None:
            raise InvalidMessageError(
                "SCHEMA_VIOLATION",
                "countedAt: is missing; add a column countedAt or the option --counted-at, with the time when the count began, "
                "such as 2026-11-20T18:00:00+01:00",
            )
        _check_past("countedAt", counted_at, self._now)
        stem = f"{_digest([self._name, command['productId'], counted_at])}-"
        key = key_in(command)
        self._must_be_only(number, f"count {in_words(key)}", _ADD_UP, "count", key)
        count = Count(
            key,
            command.get("adjustmentId", f"{stem}{command['counted']}"),
            command["counted"],
            counted_at,
            stem="" if "adjustmentId" in command else stem,
            notes=notes_in(command, NOTES_OF_ADJUSTMENT),
            names_location="locationId" in fields,
        )
        self.file.counts.append(Line(number, count, ids_in(fields)))

    def _add_change(self, number: int, fields: dict[str, Any]) -> None:
        command = _checked(fields)
        details, others = _changes_in(command, fields)
        if "barcodes" in others:
            others["barcodes"] = all_written(command.get("barcodes", ()))
            self._must_be_only_barcodes(number, others["barcodes"])
        derived = {"eventId": _digest(details), "eventTime": self._saved, "details": details}
        try:
            event, key = catalogue_event(derived | command, self._now), key_in(command)
        except InvalidMessageError as error:
            if "eventTime" in command:
                raise
            raise InvalidMessageError(
                error.code,
                f"the file was last saved at {self._saved}, which is in the future; correct the clock, and save the file again",
            ) from None
        # A derived id cannot order two changes.
        event_id = fields.get("eventId") or ""
        self._must_be_only(
            number,
            f"change {in_words(key)} at the same time",
            "put all changes in one line, or give each an eventTime",
            *("change", others.get("status", ""), key, event.event_time, event_id),
        )
        change = Change(key, details, others, event.event_time, event.event_id, self._currency)
        self.file.changes.append(Line(number, change, ids_in(fields)))

    def _must_be_only_barcodes(self, number: int, barcodes: Iterable[str]) -> None:
        """Refuse a line if another one has one of its barcodes."""
        for code in (key_of_barcode(each).code for each in barcodes):
            what, fix = f"have the barcode {code}", "keep it in the line of its product"
            self._must_be_only(number, what, fix, "barcode", code, column="barcodes")

    def _must_be_only(self, number: int, what: str, fix: str, *key: str, column: str = "") -> None:
        """Remember a line by its key, and refuse it if another line has the same key."""
        first = self._first.setdefault(key, number)
        if first != number:
            group = self._repeated.setdefault(key, _Repeated(what, fix, column, [first]))
            group.numbers.append(number)


def product_in(fields: Mapping[str, Any]) -> NewProduct:
    """Convert the fields of a line with the action `create` into a product to create. Fields without a value are ignored.

    Raises:
        InvalidMessageError: A field is missing, unknown or wrong.
    """
    return new_product(_checked(fields))


def _taken(lines: list[Line[T]], refused: Mapping[int, str]) -> list[FileError]:
    """Take the refused lines out of a list, and return their errors. `refused` has the messages by line number."""
    bad = [line for line in lines if line.number in refused]
    lines[:] = [line for line in lines if line.number not in refused]
    return [
        FileError.in_line(line.number, "DUPLICATE_LINE", refused[line.number], line.ids)
        for line in bad
    ]


def _checked_option(counted_at: str) -> str:
    """Check the option `--counted-at`, and convert it to the format of the tables."""
    name = "--counted-at"
    schema = {"properties": {name: json_schema("types")["time"]}}
    try:
        time: str = validated({name: counted_at}, name, schema)[name]
        _check_past(name, time, SystemClock().now())
    except InvalidMessageError as error:
        raise UserError(error.message) from None
    return time


def _check_past(name: str, time: str, now: datetime) -> None:
    if time > timestamp(now):
        raise InvalidMessageError(
            "SCHEMA_VIOLATION", f"{name}: {time} is in the future; correct the time"
        )


def _translated(where: str, header: Sequence[str], columns: ColumnMap) -> list[str]:
    """Translate and check the header of a CSV file."""
    if any(map(not_utf8, header)):
        raise UserError(f"{where} is not UTF-8; {SAVE_AS_UTF8}")
    header = columns.header(where, header, COLUMNS)
    if faults := [*faults_in(header, COLUMNS, ["productId"])]:
        raise UserError(
            f"{where} is not a valid header: {'; '.join(faults)}. It needs productId, and may have the columns "
            f"{', '.join(COLUMNS)}; {HINT}"
        )
    return header


def _document(header: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
    """Convert a row of CSV to a command."""
    return {
        name: int(cell) if name in _NUMBERS and _WHOLE_NUMBER.fullmatch(cell) else cell or None
        for name, cell in zip(header, cells, strict=False)
        if name
    }


def _whole(
    document: dict[str, Any], header: Sequence[str], cells: Sequence[str], delimiter: str
) -> dict[str, Any]:
    """Return the command of a row of CSV, provided that the row has a cell for each column."""
    if len(cells) != len(header):
        raise InvalidMessageError(
            "BAD_ROW", f"the row {wrong_width(len(cells), len(header), delimiter)}"
        )
    return document


def _changes_in(
    command: Mapping[str, Any], fields: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Find the details and other attributes that a line sets. `fields` also includes fields with the value None."""
    possible = [name for name in ATTRIBUTES if not (command.get("locationId") and name in _SHARED)]
    columns = set(possible) & fields.keys() & set(_FIELDS[command["action"]])
    details = {name: command.get(name) for name in DETAILS if name in columns}
    absent = {"limitGroup": None}
    others = {
        ATTRIBUTES[name]: command.get(name, absent.get(name, 0))
        for name in columns.difference(DETAILS)
    } | _STATUS.get(command["action"], {})
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
        # The report has the number of the line in the file.
        message = error.message.replace(" at line 1, column ", " at column ")
        raise InvalidMessageError(error.code, message, error.field) from None


def _checked(fields: Mapping[str, Any], **defaults: str) -> dict[str, Any]:
    """Check a line by the rules of its action. Returns its fields that are not None, completed with the defaults."""
    action = fields["action"]
    given = defaults | {name: value for name, value in fields.items() if value is not None}
    if isinstance(given.get("barcodes"), str):
        given["barcodes"] = [*map(_barcode, given["barcodes"].split())]
    checked: dict[str, Any] = validated(given, f"{action} in a file", _schema(action), "the line")
    return checked


def _rules_of(action: str) -> dict[str, Any]:
    """The rules that relate the fields of an adjustment to each other."""
    rules = json_schema("commands")["adjust_stock"]["adjust"] if action == "adjust" else {}
    return {name: rules[name] for name in ("if", "then", "else") if name in rules}


@cache
def _schema(action: str) -> dict[str, Any]:
    """Build the schema of a line from parts of the commands' schemas."""
    functions = (
        json_schema("commands")[name] for name in ("manage_products", "adjust_stock", "count_stock")
    )
    commands = (command for function in functions for command in function.values())
    known = {name: part for command in commands for name, part in command["properties"].items()}
    known["countedAt"] = json_schema("types")["time"]
    names = (*_OF_ALL, *_FIELDS[action])
    if action == "transfer":
        names = (*names[:2], *_FIELDS[action])
    return {
        **_rules_of(action),
        "type": "object",
        "additionalProperties": False,
        "required": [name for name in names if name in _REQUIRED],
        "properties": {name: known[name] for name in names},
    }


def _check_location(fields: Mapping[str, Any]) -> None:
    """Check that a line about a location sets only attributes that can differ between locations."""
    location_id = fields.get("locationId")
    for name in _SHARED:
        if location_id and fields.get(name) is not None:
            raise InvalidMessageError(
                "SCHEMA_VIOLATION",
                f"{name}: a product has the same {name} at all locations; set it in a line without a "
                "locationId, and leave this cell empty",
            )
    if location_id and fields["action"] == "changeDetails":
        raise InvalidMessageError(
            "SCHEMA_VIOLATION",
            "locationId: changeDetails applies to all locations; leave this cell empty",
        )


def _barcode(cell: str) -> dict[str, Any]:
    """Read a barcode in a file, such as `4006381333931`, or `14006381333938*12` for a case of 12 units."""
    code, star, units = cell.rpartition("*")
    return {"code": code, "units": int(units)} if star and units.isdecimal() else {"code": cell}


def _text(value: Any) -> str:
    return value.text if isinstance(value, Decimal) else str(value)


def _digest(content: Any) -> str:
    """Derive an id from content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return f"load-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _check_utf8(texts: Iterable[str]) -> None:
    if any(map(not_utf8, texts)):
        raise InvalidMessageError("NOT_UTF8", f"the line is not UTF-8; {SAVE_AS_UTF8}")
