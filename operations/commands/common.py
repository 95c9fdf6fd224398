"""The output of all commands, and the options and errors that they share."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Table

from ..errors import UserError
from ..prices import READ_UNIT
from ..words import counted

if TYPE_CHECKING:
    from ..aws import TableSize

INTERRUPTED = 130
"""The exit status of a command that Ctrl-C stopped, by the convention of shells."""

_ENDLESS = 1_000_000

# Rich writes these to the terminal as they are: control characters except tab and line feed, characters that reorder text or
# break lines, and halves of surrogate pairs, which cannot be encoded.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


class _Output(Console):
    """Prints ids without breaking or truncating them, so that you can search for them and copy them.

    On a terminal, a table wraps between words, and is wider than the terminal if its ids are. Elsewhere each row is one
    line. A name or message from a sender cannot control the terminal: `�` replaces each character that could.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Render anything that is printed, without characters that could control the terminal."""
        for segment in super().render(renderable, options):
            if segment.control is None and _UNSAFE.search(segment.text):
                yield segment._replace(text=_UNSAFE.sub("\N{REPLACEMENT CHARACTER}", segment.text))
            else:
                yield segment

    def print(self, *objects: Any, **more: Any) -> None:
        """Print strings and tables without cutting them. `more` has further arguments of `Console.print`."""
        for table in objects:
            if isinstance(table, Table):
                self._set_widths(table)
        if any(isinstance(shown, str | Table) for shown in objects):
            more = {"soft_wrap": True, **more}
        super().print(*objects, **more)

    def _set_widths(self, table: Table) -> None:
        """Make each column as wide as its longest word, or as its longest line if there is enough space."""
        columns = [[column.header, *column.cells] for column in table.columns]
        least = [max(self._measured(cell).minimum for cell in cells) for cells in columns]
        widths = [max(self._measured(cell).maximum for cell in cells) for cells in columns]
        excess = self._width_with(widths, table) - self.width if self.is_terminal else 0
        for _ in range(min(excess, sum(widths) - sum(least))):
            spare = [index for index, width in enumerate(widths) if width > least[index]]
            widths[max(spare, key=widths.__getitem__)] -= 1
        table.width = self._width_with(widths, table)

    def _width_with(self, widths: Sequence[int], table: Table) -> int:
        """Set the columns' widths, and return the table's width."""
        for column, width in zip(table.columns, widths, strict=True):
            column.width = width
        return self._measured(table).maximum

    def _measured(self, shown: RenderableType) -> Measurement:
        return Measurement.get(self, self.options.update_width(_ENDLESS), shown)

    def on_broken_pipe(self) -> None:
        """Ignore a closed pipe (`| head`), so that the exit status stays the command's own."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


# Progress and errors go to `aside`, so that other programs can read standard output. `a:tea:b` is an id and not an
# emoji.
screen = _Output(highlight=False, emoji=False)
aside = _Output(stderr=True, highlight=False, emoji=False)


AtLocation = Annotated[
    str | None,
    typer.Option(
        "--location",
        metavar="LOCATION",
        help='Only this location; "" is the default location. Default: all locations.',
    ),
]


Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="COLUMN=FIELD",
        help="A column of a CSV file that has another name than ours, such as sku=productId; COLUMN= leaves the column out. Can be "
        "repeated.",
    ),
]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


def progress_bar() -> Progress:
    """Make the progress bar of a long command, with the elapsed time and the time left."""
    return Progress(
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
        *(TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn()),
        console=aside,
    )


def print_cost(size: TableSize) -> None:
    """Say what it will cost to read whole tables, before they are read."""
    units = size.read_units
    aside.print(
        f"[dim]Reading about {counted(size.rows, 'row')}: {units:,} read units (${units * READ_UNIT:.2f}).[/]"
    )


def print_json(value: object, default: Callable[[Any], object] | None = None) -> None:
    """Print a result as JSON. `default` converts values that JSON cannot represent."""
    print(json.dumps(value, indent=2, default=default))


def table_of(
    headings: Sequence[str], rows: Iterable[Sequence[str | int]], right: Collection[str] = ()
) -> Table:
    """Build a table without borders.

    Args:
        headings: The headings of the columns.
        rows: The cells. Text is printed literally, without markup; numbers get thousands separators.
        right: Headings of the right-aligned columns.
    """
    table = Table(box=None)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    for row in rows:
        table.add_row(*(escape(cell) if isinstance(cell, str) else f"{cell:,}" for cell in row))
    return table


def print_problems(heading: str, problems: Iterable[str], console: Console | None = None) -> None:
    """Print problems, one per line, to standard output or another console."""
    for problem in problems:
        (console or screen).print(f"[bold red]{heading}:[/] {escape(problem)}")


@contextmanager
def reading(what: str) -> Iterator[None]:
    """During a read, convert the service's errors to errors that are shown without a traceback."""
    from inventory_orders.errors import InventoryOrdersError  # noqa: PLC0415 - the layer is slow to import

    try:
        yield
    except InventoryOrdersError as error:
        raise UserError(f"{what} cannot be read: {error}") from error
