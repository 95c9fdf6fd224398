"""Reads users' files: JSON lines, or CSV as spreadsheets write it, compressed or not."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO

from .errors import UserError
from .words import counted

SAVE_AS_UTF8 = 'save the file as UTF-8 (in Excel: Save As, type "CSV UTF-8")'

DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab"}
"""Separators between cells of CSV. Excel writes semicolons if the decimal separator is a comma."""

# Maximum number of characters of a line, or of a row of CSV: the size of the largest message that SQS accepts.
_MAX_LINE = 1_048_576
# A list or an object that spans several lines is recognised if it is not longer.
_MAX_DOCUMENT = 64 * _MAX_LINE

_KEYS_SHOWN = 3
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_XLS = b"\xd0\xcf\x11\xe0"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# `surrogateescape` maps each byte that is not UTF-8 to a character.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")

# The descriptions of a shop's products may be longer than the default of 128 KiB.
csv.field_size_limit(_MAX_LINE)


class _Lines(io.TextIOWrapper):
    """The lines of a file as text. A line that is too long is never read as a whole.

    Args:
        raw: The file's bytes, decompressed.
        path: The file, for the error message.
    """

    def __init__(self, raw: Any, path: Path) -> None:
        super().__init__(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")
        self._path, self._number = path, 0

    def seek(self, cookie: int, whence: int = 0, /) -> int:
        """Go back to the start of the file, the only target that is used."""
        self._number = 0
        return super().seek(cookie, whence)

    def __next__(self) -> str:  # type: ignore[override]
        """Read a line.

        Raises:
            UserError: The line is too long.
        """
        line = self.readline(_MAX_LINE + 1)
        if not line:
            raise StopIteration
        self._number += 1
        if len(line) > _MAX_LINE:
            is_list = line.lstrip().startswith("[")
            convert = (
                f". Convert a JSON list with: jq -c '.[]' {self._path.name}" if is_list else ""
            )
            raise UserError(
                f"{self._path}, line {self._number}, has more than {_MAX_LINE:,} characters; write each product or order on "
                f"a line of its own{convert}"
            )
        return line


@contextmanager
def opened(path: Path, what: str) -> Iterator[TextIO]:
    """Open a file, which may be compressed with gzip, regardless of its name.

    Args:
        path: The file.
        what: A description of the expected content, for the error message.

    Raises:
        UserError: The file cannot be read, is a pipe, or has another format, such as a workbook. While the file is read, a
            line is too long.
    """
    try:
        if path.is_fifo():
            raise UserError(f"{path} is a pipe, but must be read twice; write {what} to disk first")
        with path.open("rb") as raw:
            opener: Any = gzip.open if raw.read(2) == _GZIP else open
        with opener(path, "rb") as raw:
            _check_kind(path, what, raw.read(4))
        with opener(path, "rb") as raw, _Lines(raw, path) as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(
            f"{path} is not a complete .gz file ({error}); create or download it again"
        ) from error
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise UserError(f"{path} cannot be read ({said}); name {what}") from error


def _check_kind(path: Path, what: str, begin: bytes) -> None:
    """Check that a file beginning with these four bytes may be text in UTF-8."""
    if begin == _ZIP and path.suffix.lower() == ".zip":
        kind, remedy = "a zip archive", "Unpack it, and name the file inside"
    elif begin in (_ZIP, _XLS):
        kind = "a workbook"
        remedy = 'Save its sheet as CSV (in Excel: Save As, type "CSV UTF-8")'
    elif begin.startswith(_UTF16) or b"\0" in begin:
        kind, remedy = "in UTF-16, or not text at all", f"S{SAVE_AS_UTF8[1:]}"
    else:
        return
    raise UserError(f"{path} is {kind}; {what} must be text in UTF-8. {remedy}")


def not_utf8(text: str) -> int:
    """Find the first character that is not UTF-8. Returns its position from 1; 0 if all are valid."""
    found = None if text.isascii() else _NOT_UTF8.search(text)
    return found.start() + 1 if found else 0


def first_line(lines: Iterable[str]) -> str:
    """Find the first line with text. The result is empty if there is none."""
    return next((line for line in lines if line.strip()), "")


def delimiter_of(header: str) -> str:
    """Find the character that separates the cells of a header."""
    return max(DELIMITERS, key=header.count)


def csv_rows(path: Path, lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Read the rows that are not empty, the header first, each with the number of its first line.

    Strips spaces around cells, and leaves out empty cells of columns without a name, because spreadsheets also write
    columns that were once in use.

    Raises:
        UserError: The file is not CSV, or a column without a name has a value.
    """
    size = 0

    def bounded() -> Iterator[str]:
        nonlocal size
        for line in lines:
            size += len(line)
            if size > _MAX_LINE:
                raise csv.Error(f"the row has more than {_MAX_LINE:,} characters")
            yield line

    rows = csv.reader(bounded(), delimiter=delimiter, skipinitialspace=True, strict=True)
    number, header = 1, list[str]()
    try:
        for row in rows:
            size = 0
            cells = [cell.strip() for cell in row]
            if any(cells):
                header = header or cells[: max(n for n, cell in enumerate(cells, 1) if cell)]
                yield number, _without_spare(f"{path}, line {number},", header, cells)
            number = rows.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}, line {number}, is not CSV ({error}); check its quotation marks"
        ) from error


def wrong_width(found: int, wanted: int, delimiter: str) -> str:
    """Describe a row that has fewer or more cells than the header, and how to correct it."""
    separator = DELIMITERS[delimiter]
    # Advice to append empty cells would shift values or, in a catalogue, remove a name or a price.
    fix = (
        f"write one for each column, with {separator} between them, so that every value is in its own column"
        if found < wanted
        else f"put quotation marks around a value that contains {separator}, or remove the cells without a column"
    )
    return f"has {counted(found, 'cell')}, but the header has {wanted}; {fix}"


def _without_spare(where: str, header: Sequence[str], cells: Sequence[str]) -> list[str]:
    """Leave out empty cells without a column name. The caller has to refuse missing and extra cells."""
    named = list(zip_longest(header, cells))
    if any(cell and name == "" for name, cell in named):
        raise UserError(
            f"{where} has a value in a column without a name; name the column, or clear it"
        )
    return [cell for name, cell in named if cell is not None and (name or cell)]


def check_json_lines(path: Path, lines: Iterable[str], what: str, example: str) -> None:
    """Check that a file is not a JSON list, and has no objects that span several lines.

    Args:
        path: The file.
        lines: Its lines. If the first one is an object, no more are read.
        what: A description of the expected content, for the error message.
        example: A line of such a file.

    Raises:
        UserError: The file has one of these formats; the message says how to convert it to lines.
    """
    document = _whole_document(iter(lines))
    if document is None:
        return
    lines_are = f"{what} has one object on each line, such as {example}"
    if isinstance(document, list):
        raise UserError(
            f"{path} is a JSON list of {counted(len(document), 'item')}; {lines_are}. Convert it with: jq -c '.[]' {path.name}"
        )
    names = [json.dumps(name) for name in document]
    holds = ", ".join(names[:_KEYS_SHOWN]) + (", ..." if len(names) > _KEYS_SHOWN else "")
    fits = json.loads(example).keys() & document.keys()
    make = f"Convert it with: jq -c . {path.name}" if fits else "Name another file"
    raise UserError(
        f"{path} has a JSON object that spans several lines ({holds or 'empty'}); {lines_are}. {make}"
    )


def _whole_document(lines: Iterator[str]) -> dict[str, Any] | list[Any] | None:
    """Read a list, or an object that spans several lines. Return None for JSON lines and anything else."""
    first = first_line(lines).removeprefix("\ufeff")
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(first), dict):
            return None
    text = (first + "".join(_beginning(lines, _MAX_DOCUMENT))).strip()
    with suppress(ValueError, RecursionError):
        document, end = json.JSONDecoder().raw_decode(text)
        is_line = "\n" not in text[:end] and end < len(text)
        if isinstance(document, dict | list) and not is_line:
            return document
    return None


def _beginning(lines: Iterable[str], characters: int) -> Iterator[str]:
    for line in lines:
        characters -= len(line)
        if characters < 0:
            return
        yield line
