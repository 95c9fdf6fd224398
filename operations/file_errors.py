"""The errors in users' files: by kind for the screen, and all of them in a report for a spreadsheet."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UserError
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

# https://owasp.org/www-community/attacks/CSV_Injection
_FORMULA = re.compile(r"[=+\-@\t\r\n]")


@dataclass(frozen=True, slots=True)
class FileError:
    """A line of a file that was not carried out.

    Attributes:
        line: Its line number in the file, from 1.
        code: The reason code.
        message: What to correct. If a column is at fault, the message begins with its name and a colon.
        ids: What the line is about: its fields from `IDS`, as written in the file.
        column: The column that is at fault, or its path in JSON; empty if the line as a whole is.
        value: What the file has there.
    """

    line: int
    code: str
    message: str
    ids: Mapping[str, str] = field(default_factory=dict)
    column: str = ""
    value: str = ""

    @classmethod
    def in_line(cls, line: int, code: str, message: str, document: Any) -> FileError:
        """Build the error of a line, and find its ids, column and value.

        Args:
            line: The line number.
            code: The reason code.
            message: What to correct.
            document: The fields of the line; anything else if it has none.
        """
        found = _PATH.match(message)
        column = found[1] if found else ""
        return cls(line, code, message, ids_in(document), column, _value_at(document, column))

    @classmethod
    def of_invalid(cls, line: int, error: InvalidMessageError, document: Any) -> FileError:
        """Build the error of a line from the error of its parser."""
        return cls.in_line(line, error.code, error.message, document)

    @property
    def kind(self) -> str:
        """Its kind in words: the code and the column, which is empty or has a value."""
        column = _INDEX.sub("", self.column)
        is_empty = " (empty)" if column and not self.value else ""
        return f"{self.code}, column {column}{is_empty}" if column else self.code


class FileRefusedError(UserError):
    """A file has errors, so nothing of it was carried out.

    Attributes:
        bad: The errors.
        delimiter: The character between the cells of the file's rows.
    """

    def __init__(
        self, heading: str, bad: Sequence[FileError], remedy: str, delimiter: str = ","
    ) -> None:
        super().__init__("\n".join([heading, *by_kind(bad), remedy]))
        self.bad = bad
        self.delimiter = delimiter


def ids_in(document: Any) -> dict[str, str]:
    """Find the ids of a line. Ids that are not valid are included, too."""
    if not isinstance(document, Mapping):
        return {}
    return {name: _text(document[name]) for name in IDS if document.get(name) not in (None, "")}


def by_kind(bad: Collection[FileError]) -> Iterator[str]:
    """Describe errors line by line: each kind with the number of its lines, and its first ones. The largest kind comes first."""
    kinds: dict[str, list[FileError]] = {}
    for error in sorted(bad, key=lambda error: error.line):
        kinds.setdefault(error.kind, []).append(error)
    for kind, errors in sorted(kinds.items(), key=lambda item: -len(item[1])):
        yield f"  {counted(len(errors), 'line')}: {kind}"
        for error in errors[:_SHOWN]:
            yield f"    line {error.line}: {error.message}"
        if len(errors) > _SHOWN:
            yield f"    and {len(errors) - _SHOWN:,} more"


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


def write_report(report: Path, bad: Collection[FileError], delimiter: str = ",") -> None:
    """Write all errors to a CSV file, in the sequence of the original file, for the spreadsheet that wrote that file.

    The file begins with a byte order mark, without which Excel takes it for another encoding. A spreadsheet reads text that
    begins with one of `=+-@` as a formula, so this function puts an apostrophe before it.
    """
    ids = [name for name in IDS if any(name in error.ids for error in bad)]
    with report.open("w", encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.writer(file, delimiter=delimiter)
        rows.writerow([_REPORT[0], *ids, *_REPORT[1:]])
        for error in sorted(bad, key=lambda error: error.line):
            texts = [error.ids.get(name, "") for name in ids]
            texts += [error.column, error.value, error.code, error.message]
            cells = (f"'{text}" if _FORMULA.match(text) else text for text in texts)
            rows.writerow([error.line, *cells])


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
