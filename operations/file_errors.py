"""The errors in users' files: by kind for the screen, and all of them in a report for a spreadsheet."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cells import remedy_of
from .csv_text import cell_of
from .errors import UserError
from .text_files import delimiter_of, first_line, opened
from .words import counted

if TYPE_CHECKING:
    from inventory_orders.errors import InvalidMessageError

IDS = (
    *("orderId", "productId", "locationId", "from", "to", "userId"),
    *("stepId", "adjustmentId", "transferId", "eventId"),
)
"""The fields that identify what a line is about. A report has a column for each one that occurs in it."""

_SHOWN = 3
_MAX_VALUE = 200
_REPORT = ("line", "column", "value", "code", "message")
_HEADER = re.compile(r"line[,;\t]([A-Za-z]+[,;\t])*column[,;\t]value[,;\t]code[,;\t]message")
_PATH = re.compile(r"([A-Za-z]\w*(?:\[[0-9]+\]|\.\w+)*): ")
_STEP = re.compile(r"\w+")
_INDEX = re.compile(r"\[[0-9]+\]")


@dataclass(frozen=True, slots=True)
class FileError:
    """A line of a file that was not carried out.

    Attributes:
        number: Its line number in the file, from 1.
        code: The reason code.
        message: What to correct. If a column is at fault, the message begins with its name and a colon.
        ids: What the line is about: its fields from `IDS`, as written in the file.
        column: The column that is at fault, or its path in JSON; empty if the line as a whole is.
        value: What the file has there.
    """

    number: int
    code: str
    message: str
    ids: Mapping[str, str] = field(default_factory=dict)
    column: str = ""
    value: str = ""

    @classmethod
    def in_line(cls, number: int, code: str, message: str, document: Any) -> FileError:
        """Build the error of a line, and find its ids, column and value.

        Args:
            number: The line number.
            code: The reason code.
            message: What to correct.
            document: The fields of the line; anything else if it has none.
        """
        found = _PATH.match(message)
        column = found[1] if found else ""
        value = _value_at(document, column)
        if code == "SCHEMA_VIOLATION":
            message += remedy_of(column, value, message)
        return cls(number, code, message, ids_in(document), column, value)

    @classmethod
    def of_invalid(cls, number: int, error: InvalidMessageError, document: Any) -> FileError:
        """Build the error of a line from the error of its parser."""
        return cls.in_line(number, error.code, error.message, document)

    @property
    def kind(self) -> str:
        """Its kind in words: the code, and the column, which may be missing."""
        column = _INDEX.sub("", self.column)
        is_missing = self.message.startswith(f"{self.column}: is missing")
        state = " (missing)" if is_missing else ""
        return f"{self.code}, column {column}{state}" if column else self.code


class FileRefusedError(UserError):
    """A file has errors, so nothing of it was carried out.

    Attributes:
        bad: The errors.
    """

    def __init__(self, heading: str, bad: Sequence[FileError], remedy: str) -> None:
        super().__init__("\n".join([heading, *by_kind(bad), remedy]))
        self.bad = bad


def ids_in(document: Any) -> dict[str, str]:
    """Find the ids of a line. Ids that are not valid are included, too."""
    if not isinstance(document, Mapping):
        return {}
    return {name: _text(document[name]) for name in IDS if document.get(name) not in (None, "")}


def by_kind(bad: Collection[FileError]) -> Iterator[str]:
    """Describe errors line by line: each kind with the number of its lines, and its first messages. The largest kind comes first."""
    kinds: dict[str, list[FileError]] = {}
    for error in sorted(bad, key=lambda error: error.number):
        kinds.setdefault(error.kind, []).append(error)
    for kind, errors in sorted(kinds.items(), key=lambda item: -len(item[1])):
        yield f"  {counted(len(errors), 'line')}: {kind}"
        first: dict[str, FileError] = {}
        for error in errors:
            first.setdefault(error.message, error)
        shown = list(first.values())[:_SHOWN]
        for error in shown:
            yield f"    line {error.number}: {error.message}"
        if len(errors) > len(shown):
            yield f"    and {counted(len(errors) - len(shown), 'more line')}"


# ---------------------------------------------------------------------- reports


def report_of(path: Path) -> Path:
    """Name the report of a file if the user names none."""
    return path.with_name(f"{path.name}.errors.csv")


def objection_to(report: Path) -> str:
    """Say why a report must not be written to a file; empty if it may be: the file is missing, or an earlier report."""
    if report.exists() and not (report.is_file() and is_report(report)):
        return f"{report} exists and is not a report of bad lines"
    if not os.access(report if report.exists() else report.parent, os.W_OK):
        return f"{report} cannot be written"
    return ""


def write_report(report: Path, bad: Collection[FileError], path: Path) -> None:
    """Write all errors of a file to a CSV file, in its sequence, and for the spreadsheet that wrote it.

    The report has the file's delimiter, and begins with a byte order mark, without which Excel takes it for another encoding.
    """
    with opened(path, "the file") as lines:
        delimiter = delimiter_of(first_line(lines))
    ids = [name for name in IDS if any(name in error.ids for error in bad)]
    with report.open("w", encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.writer(file, delimiter=delimiter)
        rows.writerow([_REPORT[0], *ids, *_REPORT[1:]])
        for error in sorted(bad, key=lambda error: error.number):
            texts = [error.ids.get(name, "") for name in ids]
            texts += [error.column, error.value, error.code, error.message]
            rows.writerow([error.number, *map(cell_of, texts)])


def is_report(path: Path) -> bool:
    """Whether a file begins like a report from `write_report`."""
    with path.open("rb") as file:
        header = file.readline(500).decode("utf-8-sig", "replace")
    return _HEADER.fullmatch(header.rstrip()) is not None


# ---------------------------------------------------------------------- values


def _value_at(document: Any, path: str) -> str:
    """Find the value at a path such as `items[0].quantity`; empty if there is none."""
    value = document
    for step in _STEP.findall(path):
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return ""
    return "" if value is None or isinstance(value, Mapping | list) else _text(value)


def _text(value: Any) -> str:
    """Write a value as in the file. A number with decimals is kept as an object with its `text`."""
    return str(getattr(value, "text", value))[:_MAX_VALUE]
