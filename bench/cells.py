"""Cells of studies, and the file of their results.

A study has parameters. A cell is one measurement of a study, with a value for each parameter.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from local import ROOT
from operations.errors import UserError

Value = str | int | float
Result = dict[str, Any]
"""The figures of a cell, as plain values."""

# The code that is measured. If it changes, all cells have to be measured again.
_MEASURED_CODE = (
    *("layers/core", "functions", "operations", "local/desk", "testing"),
    *("bench/contenders", "bench/simulator", "bench/grown", "bench/studies"),
)


@dataclass(frozen=True)
class Cell:
    """One measurement of a study.

    Attributes:
        study: Name of its study.
        parameters: A value for each parameter of the study.
    """

    study: str
    parameters: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, study: str, **parameters: Value) -> Cell:
        """Create a cell."""
        return cls(study, tuple(parameters.items()))

    @cached_property
    def values(self) -> dict[str, Any]:
        """The value of each parameter, by its name."""
        return dict(self.parameters)

    @property
    def is_simulated(self) -> bool:
        """Whether the cell uses virtual time, so that other cells may be measured at the same time."""
        return self.values.get("engine") == "simulated"

    def __str__(self) -> str:
        return " ".join([self.study, *(f"{name}={value}" for name, value in self.parameters)])

    def replaced(self, name: str, text: str) -> Cell:
        """Copy the cell with another value for one parameter.

        Raises:
            UserError: The string is not a valid value for this parameter.
        """
        kind = type(self.values[name])
        try:
            return Cell.of(self.study, **{**self.values, name: kind(text)})
        except ValueError:
            raise UserError(f"{name} must be of type {kind.__name__}, but is {text}") from None


MeasuredCells = Sequence[tuple[Mapping[str, Any], Result]]
"""Parameters and results of the measured cells of a study."""


@dataclass(frozen=True, slots=True)
class Study:
    """A study, which has many cells.

    Attributes:
        about: What it measures, in one line.
        cells: Lists the parameters of its cells in a `short`, `full` or `tiny` run. All cells have the same parameters.
        measure: Measures a cell. It takes the parameters by name, and returns the figures.
        show: Prints results. Returns whether they are correct.
    """

    about: str
    cells: Callable[[str], Iterable[Mapping[str, Value]]]
    measure: Callable[..., Result]
    show: Callable[[MeasuredCells, Console], bool]


def choose(name: str, study: Study, size: str, given: Mapping[str, Sequence[str]]) -> list[Cell]:
    """List the cells of a study in the order in which they are measured.

    Args:
        name: Name of the study.
        study: The study.
        size: `short`, `full` or `tiny`.
        given: Values by parameter. They select the cells that have these values. If no cell has them, all cells are
            measured with these values instead of their own. Parameters of other studies are ignored.

    Raises:
        UserError: A string is not a valid value for its parameter.
    """
    cells = [Cell.of(name, **parameters) for parameters in study.cells(size)]
    for parameter, texts in given.items():
        if parameter in cells[0].values:
            wanted = [[cell.replaced(parameter, text) for cell in cells] for text in texts]
            known = set(cells)
            found = [[cell for cell in made if cell in known] or made for made in wanted]
            cells = list(dict.fromkeys(cell for some in found for cell in some))
    return cells


class ResultFile:
    """The file of results. Each line is a result in JSON, and is written as soon as its cell is measured.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._code = _digest()
        text = path.read_text("utf-8") if path.is_file() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            # A run that was killed while writing leaves half a line.
            self._write(whole)
        self._results: dict[tuple[Cell, str], Result] = {}
        for text in whole.splitlines():
            line = json.loads(text, object_hook=_with_nan)
            self._results[_cell_of(line), line["code"]] = line["result"]

    def get(self, cell: Cell) -> Result | None:
        """Find the result of a cell for the current code; None if it was not measured."""
        return self._results.get((cell, self._code))

    def newest(self) -> Iterator[tuple[Cell, Result]]:
        """List the results of this and earlier code, oldest first, so that the last one of each cell is the newest."""
        for (cell, _), result in self._results.items():
            yield cell, result

    def add(self, cell: Cell, result: Result) -> None:
        """Append a result to the file."""
        line = {
            "study": cell.study,
            "parameters": cell.values,
            "code": self._code,
            "measuredAt": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "result": result,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._results[cell, self._code] = result

    def forget(self, cells: Sequence[Cell]) -> None:
        """Drop all results of these cells, so that the cells are measured again."""
        gone = set(cells)
        self._results = {key: found for key, found in self._results.items() if key[0] not in gone}
        if self._path.is_file():
            lines = self._path.read_text("utf-8").splitlines(keepends=True)
            self._write("".join(line for line in lines if _cell_of(json.loads(line)) not in gone))

    def _write(self, text: str) -> None:
        """Replace the file in one step, so that a reader never sees half of it."""
        new = self._path.with_suffix(".new")
        new.write_text(text, "utf-8")
        new.replace(self._path)


def _with_nan(values: dict[str, Any]) -> dict[str, Any]:
    """Restore NaN, which older checkouts stored as null."""
    return {name: math.nan if value is None else value for name, value in values.items()}


def _cell_of(line: Mapping[str, Any]) -> Cell:
    return Cell.of(line["study"], **line["parameters"])


def _digest() -> str:
    """Compute a digest of the measured code."""
    digest = hashlib.sha256()
    for folder in _MEASURED_CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
