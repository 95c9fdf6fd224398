"""Columns of users' CSV files that have other names than ours: `--map sku=productId`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from inventory_orders.messages.documents import json_schema

from .cells import ATTRIBUTES
from .errors import UserError
from .file_errors import FileError

HINT = "--map COLUMN=FIELD renames a column, and --map COLUMN= leaves it out"
"""What to do about unknown columns, for the end of an error message."""


_MAY_HAVE = f"{ATTRIBUTES}NAME"
_NAMES = json_schema("types")["attributes"]["propertyNames"]


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """The meaning of columns that have other names than ours.

    Attributes:
        fields: Our column by the file's column; empty if the column is left out.
    """

    fields: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Iterable[str]) -> ColumnMap:
        """Parse values of the option `--map`.

        Raises:
            UserError: A value is not `COLUMN=FIELD`, or names the column of another one.
        """
        fields: dict[str, str] = {}
        for option in options:
            column, _, name = map(str.strip, option.rpartition("="))
            if not column:
                raise UserError(
                    f"--map {option}: write COLUMN=FIELD, such as sku=productId. {HINT}"
                )
            if column in fields:
                raise UserError(
                    f"--map names the column {column} twice; one column has one meaning"
                )
            fields[column] = name
        return cls(fields)

    def header(self, where: str, header: Sequence[str], columns: Collection[str]) -> list[str]:
        """Translate the header of a file to our columns. A column that is left out becomes an empty string.

        Args:
            where: The file and the line.
            header: The header.
            columns: Our columns.

        Raises:
            UserError: The file does not have a column, or we do not.
        """
        for column, name in self.fields.items():
            option = f"--map {column}={name}"
            if column not in header:
                has = ", ".join(each[:64] for each in header)
                raise UserError(f'{option}: {where} has no column "{column}"; it has {has}')
            if name and _fault_of(name, columns):
                raise UserError(
                    f"{option}: {name} is not a field; the fields are {', '.join(columns)}"
                )
        return [self.fields.get(column, column) for column in header]

    def check_not_json(self, path: Path) -> None:
        """Check that nothing is renamed in a file of JSON lines.

        Raises:
            UserError: Something is.
        """
        if self.fields:
            raise UserError(
                f"{path} has JSON lines; --map is for CSV files. Rename the fields with jq"
            )

    def named_in_file(self, error: FileError) -> FileError:
        """Name the column at fault as the file does."""
        for column, name in self.fields.items():
            if name and name == error.column:
                message = f"{column}{error.message.removeprefix(name)}"
                return replace(error, column=column, message=message)
        return error


AS_NAMED = ColumnMap()
"""All columns have our names."""


def faults_in(
    header: Sequence[str], columns: Collection[str], required: Iterable[str]
) -> Iterator[str]:
    """Describe what is wrong with a translated header: columns that are missing, unknown, or there twice."""
    yield from (f"the column {name} is missing" for name in required if name not in header)
    for name, count in Counter(filter(None, header)).items():
        if fault := _fault_of(name, columns):
            yield fault
        elif count > 1:
            yield f"the column {name} appears twice"


def _fault_of(name: str, columns: Collection[str]) -> str:
    """Describe what is wrong with the name of a column; empty if it is one of ours."""
    if name.startswith(ATTRIBUTES) and _MAY_HAVE in columns:
        if re.fullmatch(_NAMES["pattern"], name.removeprefix(ATTRIBUTES)):
            return ""
        return f'after {ATTRIBUTES}, the column "{name[:80]}" must have {_NAMES["description"]}'
    return "" if name in columns else f'the column "{name[:64]}" is unknown'
