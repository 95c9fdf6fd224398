"""Writes CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

# https://owasp.org/www-community/attacks/CSV_Injection
_FORMULA = re.compile(r"[=+\-@\t\r\n]")


def cell_of(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would read as a formula, because it begins with one of `=+-@`."""
    return f"'{text}" if _FORMULA.match(text) else text


def csv_of(headings: Sequence[str], rows: Iterable[Sequence[str | int]]) -> str:
    """Write a table as CSV, with commas and one heading for each column."""
    file = io.StringIO()
    lines = csv.writer(file)
    lines.writerow(headings)
    lines.writerows([cell_of(c) if isinstance(c, str) else c for c in row] for row in rows)
    return file.getvalue()
