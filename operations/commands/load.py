"""The command that loads products, stock and counts from a file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from inventory_orders.domain.location import left_out

from ..words import counted
from .bad_lines import ErrorsFile, report_bad_lines, report_for
from .common import INTERRUPTED, Columns, aside, print_problems, progress_bar, screen, table_of
from .target import Target, aws_of, on_stack

if TYPE_CHECKING:
    from ..aws import Aws
    from ..catalogue_file import CatalogueFile
    from ..load import Done, Finding, Load

    _Found = tuple[int, str, Finding]

app = typer.Typer()

_SHOWN, _MOST = 3, 20


_File = Annotated[
    Path,
    typer.Argument(
        help="CSV with a header, or JSON lines; may be compressed (.gz).",
        exists=True,
        dir_okay=False,
        readable=True,
    ),
]

_Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Check every line, also against the tables, list the changes (old and new values) and removals that a load "
        "would make, and write nothing.",
    ),
]

_CountedAt = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="When the counts in the file began, for lines without a countedAt, such as 2026-11-20T18:00:00+01:00.",
    ),
]

_All = Annotated[
    bool,
    typer.Option(
        "--all",
        help=f"List every change. Default: the first {_SHOWN} of each kind, if there are more than {_MOST}.",
    ),
]


@on_stack(app)
def load(
    file: _File,
    check: _Check = False,
    rate: Annotated[
        float | None,
        typer.Option(min=0.1, help="Maximum lines to write per second. Default: no limit."),
    ] = None,
    counted_at: _CountedAt = None,
    mapping: Columns = None,
    errors: ErrorsFile = None,
    every: _All = False,
    account: Target | None = None,
) -> None:
    """Load products, prices, receipts, transfers or counts from a file. The exit status is 1 if a line was bad.

    Each line has a productId. The other columns determine its action:

    - openingStock, perhaps with name, price, barcodes, lowStockThreshold, backorderLimit, safetyStock, purchaseLimit and
    limitGroup: creates the product

    - one of these eight without openingStock: changes it. An empty cell removes a value, or sets a number other than a price to 0.
    A price is in the setting `currency` (with EUR, 79 is 79.00); without this setting, it is in minor units, such as cents

    - delta and reason: books stock that came in (40) or went out (-2)

    - from, to and quantity: transfers units between two locations; an empty cell names the default one

    - counted, the units on the shelf when the count began, and that time (countedAt, or --counted-at): books a stocktake, which
    corrects the stock by the difference. What has moved since is taken into account: units that left since stay gone

    The column `action` can name the action: create, change, changeDetails (name and price only), adjust, transfer,
    count, discontinue or listAgain.

    If a line has a locationId, it is about the product's stock at that location, and has no name or price. A line
    without a location creates the product, and may be in the same file. Without a location, discontinue, listAgain,
    purchaseLimit and limitGroup apply to all locations. Stock and counts of a product with several locations need a locationId; an empty cell names
    the default one.

    You may interrupt it and run it again: no line is booked twice.
    """
    from ..catalogue_file import read_catalogue  # noqa: PLC0415 - the layer is slow to import
    from ..columns import ColumnMap  # noqa: PLC0415

    report, columns = report_for(file, errors), ColumnMap.of(mapping or ())
    aws, began = aws_of(account), time.monotonic()
    with aside.status(f"Reading {file.name}"):
        catalogue = read_catalogue(file, aws.currency, counted_at, columns)
    work, failure, status = _carry_out(catalogue, aws, rate, check=check)
    _show_load(work, time.monotonic() - began, check=check, every=every)
    report_bad_lines([*map(columns.named_in_file, work.bad)], report, file)
    warn_of_locations(work.stocked, aws.locations)
    if failure:
        aside.print(
            f"[bold red]Not finished:[/] {escape(failure)}. The lines so far have been written; run the same command again"
        )
    if failure or work.bad:
        raise typer.Exit(status)


def _carry_out(
    catalogue: CatalogueFile, aws: Aws, rate: float | None, *, check: bool
) -> tuple[Load, str, int]:
    """Load or check the lines. Returns the load, the reason if it did not finish, and the exit status."""
    from inventory_orders.errors import StoreError  # noqa: PLC0415

    from ..load import Load  # noqa: PLC0415

    with progress_bar() as progress:
        reading = progress.add_task(
            "Reading what has moved since", total=None, visible=bool(catalogue.counts)
        )
        task = progress.add_task("Checking" if check else "Loading", total=catalogue.good)
        work = Load(
            *(catalogue, aws.store(), rate, lambda lines: progress.advance(task, lines)),
            lambda rows: progress.advance(reading, rows),
            has_movements=aws.has_movements,
        )
        try:
            (work.check if check else work.run)()
        except KeyboardInterrupt:
            return work, "it was interrupted", INTERRUPTED
        except StoreError as error:
            return work, f"DynamoDB failed ({error})", 1
    return work, "", 1


def _show_load(work: Load, seconds: float, *, check: bool, every: bool) -> None:
    heading = "what would happen" if check else "what happened"
    kinds = Counter((found.done, found.kind) for _, _, found in work.findings)
    if work.findings:
        _show_findings(work, list(kinds), heading, every=every)
    rest = work.done - Counter(done for done, _ in kinds.elements())
    counts = [(lines, done.value) for done, lines in rest.items()]
    counts += [
        (lines, ": ".join(filter(None, (done, kind)))) for (done, kind), lines in kinds.items()
    ]
    if counts:
        screen.print(table_of(("lines", heading), counts, {"lines"}))
    lines = work.done.total()
    what = "checked; nothing was written" if check else "done"
    screen.print(
        f"{counted(lines, 'line')} {what}. [dim]{seconds:.1f} s, {lines / seconds:,.0f} lines a second.[/]"
    )


def _show_findings(
    work: Load, kinds: Iterable[tuple[Done, str]], heading: str, *, every: bool
) -> None:
    """Show what lines change: each of them, or the first ones of each kind."""
    shown = sorted(work.findings, key=lambda finding: finding[0])
    is_part = not every and len(shown) > _MOST
    if is_part:
        shown = [finding for kind in kinds for finding in _first(shown, kind)]
    rows = ((line, product, found.words) for line, product, found in shown)
    screen.print(table_of(("line", "product", heading), rows))
    if is_part:
        note = f"The first {_SHOWN} of each kind; --all lists all {len(work.findings):,}."
        screen.print(f"[dim]{note}[/]", "")


def _first(findings: Iterable[_Found], kind: tuple[Done, str]) -> Iterator[_Found]:
    """Find the first findings of a kind."""
    return islice((each for each in findings if (each[2].done, each[2].kind) == kind), _SHOWN)


def warn_of_locations(stocked: Mapping[str, int], setting: Collection[str]) -> None:
    """Warn of stock at locations that the setting `locations` leaves out."""
    warnings = (
        left_out(f"the stock of {counted(lines, 'line')}", location_id)
        for location_id, lines in sorted(stocked.items())
        if location_id not in setting
    )
    print_problems("Warning", warnings, aside)
