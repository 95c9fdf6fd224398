"""Reads files that another shop system has exported: CSV with its own columns, of which only some matter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from inventory_orders.errors import InvalidMessageError

from ..cells import as_id, check_codes
from ..errors import UserError
from ..file_errors import FileError, is_report
from ..text_files import (
    SAVE_AS_UTF8,
    csv_rows,
    delimiter_of,
    first_line,
    not_utf8,
    opened,
    wrong_width,
)

Columns = Mapping[str, Sequence[str]]
"""The columns that matter, by the name that messages use, with their other names."""

# Shopify says in a heading what an import does with a column.
_REMARK = re.compile(r" \((?:not editable|current)\)$")
_WHOLE = re.compile("[0-9]{1,9}")
_SIGNED = re.compile("-?[0-9]{1,9}")

MAX_UNITS = 1_000_000_000
"""Maximum units of a product at a location."""


class BadCellError(Exception):
    """A cell cannot be taken.

    Attributes:
        column: Its column.
        message: What is wrong, and what to do.
        code: The reason code.
    """

    def __init__(self, column: str, message: str, code: str = "SCHEMA_VIOLATION") -> None:
        super().__init__(message)
        self.column, self.message, self.code = column, message, code


@dataclass(frozen=True, slots=True)
class Row:
    """A row of an export.

    Attributes:
        number: The number of its first line.
        cells: Its cells by column, without the columns that the file lacks.
        all_cells: All its cells, also of columns that do not matter.
    """

    number: int
    cells: Mapping[str, str]
    all_cells: Sequence[str]

    def __getitem__(self, column: str) -> str:
        """A cell; empty if the file lacks the column."""
        return self.cells.get(column, "")

    def units(self, column: str, *, signed: bool = False) -> int:
        """Read a number of units.

        Raises:
            BadCellError: It is not a whole number, or negative without `signed`.
        """
        # An exporter, too, may put an apostrophe before a minus sign.
        cell = self[column].removeprefix("'")
        if (_SIGNED if signed else _WHOLE).fullmatch(cell):
            return int(cell)
        wanted = "" if signed else " of 0 or more"
        raise BadCellError(
            column,
            f'must be a whole number{wanted}, with at most 9 digits, but is "{cell[:40]}"; correct it, and export again',
        )

    def sku(self, column: str) -> str:
        """Read a SKU; empty if there is none. An apostrophe in front comes from a spreadsheet."""
        return re.sub("^'(?=.)", "", self[column])

    def product_id(self, column: str) -> str:
        """Convert a SKU to the id of its product.

        Raises:
            BadCellError: There is no SKU, a spreadsheet has rewritten it, or it is too long.
        """
        sku = self.sku(column)
        if not sku:
            raise BadCellError(
                column, "is missing; give it an SKU that no other one has, and export again"
            )
        return checked_id(column, "productId", sku, 64)


def checked_id(column: str, name: str, text: str, longest: int = 128) -> str:
    """Convert text to an id, encoding characters that ids cannot have.

    Args:
        column: The column of the text.
        name: What kind of id it is, such as `productId`.
        text: The text.
        longest: Maximum number of characters.

    Raises:
        BadCellError: A spreadsheet has rewritten the text, or the id would be too long.
    """
    try:
        check_codes({name: text}, are_cells=True)
    except InvalidMessageError as error:
        message = error.message.removeprefix(f"{name}: ")
        raise BadCellError(column, message, error.code) from None
    if len(written := as_id(text)) > longest:
        raise BadCellError(
            column, f"has {len(written)} characters as an id ({written[:40]}...); at most {longest}"
        )
    return written


@dataclass(slots=True)
class ExportFile:
    """One file of an export.

    Attributes:
        path: The file.
        what: Its content in words.
        columns: The columns that matter.
        needed: Those that it must have.
        advice: How to export it, for the error message.
        bad: The lines that cannot be taken.
        notes: The lines that are left out, although nothing is wrong with them.
        header: All its columns, once it is read.
    """

    path: Path
    what: str
    columns: Columns
    needed: Sequence[str]
    advice: str
    bad: list[FileError] = field(default_factory=list)
    notes: list[FileError] = field(default_factory=list)
    header: Sequence[str] = ()

    def rows(self) -> Iterator[Row]:
        """Read the rows one by one. Rows with too many or too few cells are bad.

        Raises:
            UserError: The file cannot be read, or lacks a column.
        """
        if is_report(self.path):
            raise UserError(f"{self.path} is a report of bad lines, not {self.what}")
        with opened(self.path, self.what) as lines:
            delimiter = delimiter_of(first_line(lines))
            lines.seek(0)
            rows = csv_rows(self.path, lines, delimiter)
            self.header = next((cells for _, cells in islice(rows, 1)), [])
            places = self._places(self.header)
            for number, cells in rows:
                if len(cells) != len(self.header):
                    fault = f"the row {wrong_width(len(cells), len(self.header), delimiter)}"
                    self.bad.append(FileError(number, "BAD_ROW", fault))
                    continue
                row = Row(number, {name: cells[at] for name, at in places.items()}, cells)
                if any(map(not_utf8, row.cells.values())):
                    fault = f"the row is not UTF-8; {SAVE_AS_UTF8}"
                    self.bad.append(FileError(number, "NOT_UTF8", fault))
                    continue
                yield row

    def _places(self, header: Iterable[str]) -> dict[str, int]:
        """Find the places of the columns that matter."""
        found: dict[str, int] = {}
        for place, name in enumerate(header):
            found.setdefault(_REMARK.sub("", name).casefold(), place)
        places = {
            column: found[name.casefold()]
            for column, others in self.columns.items()
            for name in (*reversed(others), column)
            if name.casefold() in found
        }
        missing = [column for column in self.needed if column not in places]
        if missing:
            raise UserError(
                f"{self.path} is not {self.what}: it has no column {', '.join(missing)}. {self.advice}"
            )
        return places

    def refuse(self, row: Row, error: BadCellError, **ids: str) -> None:
        """Add a row to the bad lines. `ids` says what it is about."""
        self.bad.append(self._error(row, error.column, error.message, error.code, ids))

    def leave_out(self, row: Row, column: str, message: str, code: str, **ids: str) -> None:
        """Note that a row, or its cell in a column, is left out."""
        self.notes.append(self._error(row, column, message, code, ids))

    @staticmethod
    def _error(row: Row, column: str, message: str, code: str, ids: Mapping[str, str]) -> FileError:
        known = {name: value for name, value in ids.items() if value}
        return FileError(row.number, code, f"{column}: {message}", known, column, row[column][:200])
