"""Commands that import the exports of other shop systems."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.markup import escape

from ..errors import UserError
from ..words import counted, location_name
from .common import INTERRUPTED, aside, progress_bar, screen, table_of
from .load import warn_of_locations
from .target import Target, aws_of, on_stack

if TYPE_CHECKING:
    from ..aws import Aws
    from ..file_errors import FileError
    from ..file_prices import FilePrices
    from ..imports.export_file import ExportFile
    from ..imports.proof import Compared
    from ..imports.staging import Staging
    from ..imports.writing import Import

app = typer.Typer(
    no_args_is_help=True,
    help="Import products, stock and open orders from the exports of another shop system, with a proof.",
)

_SHOWN = 20


class Unavailable(StrEnum):
    """What becomes of units that the other shop does not sell."""

    LIST = "list"
    SAFETY = "safety"


class Oversold(StrEnum):
    """What becomes of products of which more units are sold than there are."""

    REFUSE = "refuse"
    ALLOW = "allow"


def file_option(name: str, content: str) -> Any:
    """Make an option that names a file."""
    return typer.Option(
        name, metavar="FILE", help=content, exists=True, dir_okay=False, readable=True
    )


_Products = Annotated[Path, file_option("--products", "The export of products.")]
_Orders = Annotated[
    Path | None, file_option("--orders", "The export of orders. Leave it out if none is open.")
]
_Check = Annotated[
    bool,
    typer.Option("--check", help="Check the files, also against the tables, and write nothing."),
]
_SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad",
        help="Leave out bad lines. Without this option, they stop the import. A bad product is left out at all locations, with its units in orders.",
    ),
]
_Oversold = Annotated[
    Oversold,
    typer.Option(
        "--oversold",
        metavar="refuse|allow",
        help="`allow` gives a product that is oversold a backorderLimit of as many units. Default: a bad line.",
    ),
]
_Proof = Annotated[
    Path | None,
    typer.Option(
        "--proof",
        metavar="FILE",
        dir_okay=False,
        help="Where to write the proof, as CSV. Default: FILE.proof.csv, where FILE has the stock.",
    ),
]


_Inventory = Annotated[
    Path,
    file_option("--inventory", "The export of inventory, of all locations and with all states."),
]
Locations = Annotated[
    Path | None,
    file_option(
        "--locations",
        "CSV with the columns location (its name in Shopify) and locationId (here; empty for the default location). Needed if "
        "there are several.",
    ),
]


def _time(text: str) -> datetime:
    with suppress(ValueError):
        if (time := datetime.fromisoformat(text)).tzinfo is not None:
            return time
    raise typer.BadParameter(
        f"must be a time with an offset, such as 2026-11-20T18:00:00+01:00, but is {text}"
    )


_AsOf = Annotated[
    datetime | None,
    typer.Option(
        metavar="TIME",
        parser=_time,
        help="When the inventory was exported, such as 2026-11-20T18:00:00+01:00. Later orders are listed, and not imported.",
    ),
]
_Shipped = Annotated[
    Path | None,
    file_option(
        "--shipped",
        "CSV with the columns Name, Lineitem sku and shipped: how many units of a partly shipped or refunded line are no "
        "longer open. The export does not say so.",
    ),
]
_Unavailable = Annotated[
    Unavailable,
    typer.Option(
        metavar="list|safety",
        help="`safety` imports unavailable units as safetyStock, which orders leave. Default: they are not imported.",
    ),
]


@on_stack(app)
def shopify(
    products: _Products,
    inventory: _Inventory,
    orders: _Orders = None,
    locations: Locations = None,
    check: _Check = False,
    as_of: _AsOf = None,
    skip_bad: _SkipBad = False,
    shipped: _Shipped = None,
    unavailable: _Unavailable = Unavailable.LIST,
    oversold: _Oversold = Oversold.REFUSE,
    proof: _Proof = None,
    account: Target | None = None,
) -> None:
    """Import products, stock and open orders from Shopify's own CSV files, as they are.

    The SKU becomes the product's id; characters that ids cannot have are encoded. Opening stock is on hand less unavailable.
    Open orders take their units at the locations where the inventory file has them as committed, and keep their Id. Paid ones
    are confirmed; others keep their units until they are paid or cancelled. If an export comes in parts, join them with `cat`.
    Imported orders publish events as all others do.

    Everything is checked before anything is written. Bad lines, and numbers that contradict each other, stop the import: the
    exit status is 1, and nothing was written. You may interrupt it and run it again: nothing is imported twice.

    At the end, a proof compares available, committed and on hand of each product at each location with the inventory file. The
    exit status is 0 if all are equal, and 1 if some differ or a line could not be written.
    """
    from ..imports import shopify as export  # noqa: PLC0415 - the layer is slow to import
    from ..imports.locations_file import read_locations  # noqa: PLC0415
    from ..imports.staging import Staging  # noqa: PLC0415

    names = read_locations(locations) if locations else {}
    units = export.shipped_file(shipped) if shipped else None
    stock, others = export.inventory_file(inventory), [units] if units else []
    read = _Read(
        Staging(keeps_unavailable=unavailable is Unavailable.SAFETY),
        export.products_file(products),
        export.orders_file(orders) if orders else None,
        [stock, *others],
    )
    how = _How(proof or _proof_of(inventory), skips_bad=skip_bad, checks=check)
    how.check(read.files)
    aws = aws_of(account)
    with aside.status("Reading the files"), _prices(aws, products) as prices:
        export.read_products(read.products, read.staging, prices)
        export.read_inventory(stock, read.staging, names, oversold=oversold is Oversold.ALLOW)
        if units:
            export.read_shipped(units, read.staging)
        left_out = (
            export.read_orders(read.orders, read.staging, as_of) if read.orders else Counter()
        )
        export.check_together(read.products, stock, units, read.staging)
    _carry_out(aws, read, how, left_out)


@on_stack(app)
def woocommerce(
    products: _Products,
    orders: _Orders = None,
    check: _Check = False,
    skip_bad: _SkipBad = False,
    oversold: _Oversold = Oversold.REFUSE,
    proof: _Proof = None,
    account: Target | None = None,
) -> None:
    """Import products and stock from WooCommerce's own CSV file, and open orders from WebToffee's.

    The orders come from the extension "Order Export & Order Import for WooCommerce", with or without a row for each line. The
    SKU becomes the product's id; characters that ids cannot have are encoded. Orders that are processing are confirmed; orders
    on hold keep their units until they are paid or cancelled. Opening stock is WooCommerce's stock plus the units of these orders.

    Everything is checked before anything is written. Bad lines stop the import: the exit status is 1, and nothing was
    written. You may interrupt it and run it again: nothing is imported twice.

    At the end, a proof compares available units with WooCommerce's stock. The exit status is 0 if all are equal, and 1 if some
    differ or a line could not be written.
    """
    from ..imports import woocommerce as export  # noqa: PLC0415 - the layer is slow to import
    from ..imports.staging import Staging  # noqa: PLC0415

    of_orders = export.orders_file(orders) if orders else None
    read = _Read(Staging(), export.products_file(products), of_orders, [])
    how = _How(proof or _proof_of(products), skips_bad=skip_bad, checks=check)
    how.check(read.files)
    aws, allows = aws_of(account), oversold is Oversold.ALLOW
    with aside.status("Reading the files"), _prices(aws, products) as prices:
        export.read_products(read.products, read.staging, prices, oversold=allows)
        left_out = export.read_orders(read.orders, read.staging) if read.orders else Counter()
        export.check_together(read.products, read.staging)
    _carry_out(aws, read, how, left_out)


# ---------------------------------------------------------------------- what all imports do


@dataclass(frozen=True)
class _How:
    """How to import.

    Attributes:
        proof: Where to write the proof.
        skips_bad: Whether bad lines are left out.
        checks: Whether nothing is written.
    """

    proof: Path
    skips_bad: bool
    checks: bool

    def check(self, files: Sequence[ExportFile]) -> None:
        """Check that the proof, and the reports of bad lines, may be written.

        Raises:
            UserError: They may not.
        """
        from ..file_errors import objection_to, report_of  # noqa: PLC0415 - the layer is slow to import
        from ..imports.proof import is_proof  # noqa: PLC0415

        if self.proof.exists() and not is_proof(self.proof):
            raise UserError(
                f"{self.proof} exists and is not a proof; name another file with --proof"
            )
        if not os.access(self.proof.parent, os.W_OK):
            raise UserError(f"{self.proof} cannot be written; name another file with --proof")
        for file in files:
            if objection := objection_to(report_of(file.path)):
                raise UserError(f"{objection}; move it, or copy the exports to another folder")


@dataclass(frozen=True)
class _Read:
    """What an export says, and its files: of products, of orders if there are any, and others."""

    staging: Staging
    products: ExportFile
    orders: ExportFile | None
    others: Sequence[ExportFile]

    @property
    def files(self) -> Sequence[ExportFile]:
        """All files."""
        return [self.products, *self.others, *([self.orders] if self.orders else [])]

    @property
    def bad(self) -> list[FileError]:
        """The bad lines of all files."""
        return [error for file in self.files for error in file.bad]

    @property
    def bad_orders(self) -> list[FileError]:
        """The bad lines of orders."""
        return self.orders.bad if self.orders else []

    def is_stopped(self, how: _How) -> bool:
        """Whether what was found so far stops the import."""
        from ..imports.staging import DIFFERENCE  # noqa: PLC0415

        return any(not how.skips_bad or error.code == DIFFERENCE for error in self.bad)

    def report(self) -> None:
        """Print the lines of all files that are bad or left out, and write all of them to reports."""
        for file in self.files:
            _report(file)


@contextmanager
def _prices(aws: Aws, path: Path) -> Iterator[FilePrices | None]:
    """Read prices in the stack's currency, and check at the end that they were clear. Without a currency, there are none."""
    from ..file_prices import FilePrices  # noqa: PLC0415

    if not aws.currency.code:
        aside.print("[dim]Prices are not imported: the stack has no currency.[/]")
        yield None
        return
    prices = FilePrices(aws.currency)
    yield prices
    prices.check(path)


def _proof_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.proof.csv")


def _carry_out(aws: Aws, read: _Read, how: _How, left_out: Mapping[str, int]) -> None:
    """Check what was read against the tables, write it, and prove it. Exits with 1 if that fails."""
    from ..imports.writing import Import  # noqa: PLC0415

    work = Import(read.staging, aws)
    if not read.is_stopped(how):
        with aside.status("Checking the tables"):
            work.check(read.products.bad, read.bad_orders)
    products, orders = read.staging.count()
    others = ", ".join(f"{number:,} {why}" for why, number in sorted(left_out.items()))
    and_others = f"; other orders: {others}" if others else ""
    screen.print(f"{counted(products, 'product')} and {counted(orders, 'open order')}{and_others}")
    # What cannot be taken is said before anything is written.
    read.report()
    if how.checks or read.is_stopped(how) or not products:
        _stop(read, how, products)
    _run(work, read, products + orders)
    warn_of_locations(read.staging.stocked(), aws.locations)
    _prove(aws, read, how, has_failed=bool(work.failed))


def _stop(read: _Read, how: _How, products: int) -> NoReturn:
    """Exit before anything is written, with 1 if bad lines are the reason."""
    is_stopped = read.is_stopped(how)
    why = "" if products or is_stopped else ": there is no product to import"
    screen.print(f"Nothing was written{why}.")
    raise typer.Exit(int(is_stopped or bool(read.bad and not products)))


def _run(work: Import, read: _Read, total: int) -> None:
    """Write, and report the lines that failed. Exits if the import did not finish."""
    from inventory_orders.errors import StoreError  # noqa: PLC0415

    failure, status = "", 1
    with progress_bar() as progress:
        task = progress.add_task("Importing", total=total)
        try:
            work.write_products(read.products.bad, lambda number: progress.advance(task, number))
            if work.failed:
                # Orders for missing products would be rejected for good.
                failure = "products could not be written, so no order was placed"
            else:
                work.place_orders(
                    *(read.products.bad, read.bad_orders),
                    lambda number: progress.advance(task, number),
                )
        except KeyboardInterrupt:
            failure, status = "it was interrupted", INTERRUPTED
        except StoreError as error:
            failure = f"DynamoDB failed ({error})"
    if work.failed:
        read.report()
    if failure:
        aside.print(
            f"[bold red]Not finished:[/] {escape(failure)}. What was written so far stays; run the same command again"
        )
        raise typer.Exit(status)


def _report(file: ExportFile) -> None:
    from ..file_errors import by_kind, report_of, write_report  # noqa: PLC0415

    report = report_of(file.path)
    if not (file.bad or file.notes):
        # It could be mistaken for this command's report.
        report.unlink(missing_ok=True)
        return
    write_report(report, [*file.bad, *file.notes], file.path)
    for heading, errors in (("Bad lines", file.bad), ("Left out", file.notes)):
        if errors:
            name = escape(str(report))
            screen.print(
                f"[bold red]{heading} of {file.path.name}: {len(errors):,}[/]. {name} lists all of them"
            )
            for line in by_kind(errors):
                screen.print(escape(line))


def _prove(aws: Aws, read: _Read, how: _How, *, has_failed: bool) -> None:
    """Compare the tables with the export. Exits with 1 if something differs or could not be written."""
    from ..imports.proof import compare, write_proof  # noqa: PLC0415

    totals, first = Counter[str](), dict[bool, Any]()
    with aside.status("Comparing"):
        for each in write_proof(how.proof, compare(read.staging, aws.store())):
            totals += Counter(all=1, different=each.differs, unavailable=each.level.unavailable)
            if len(shown := first.setdefault(each.differs, [])) < _SHOWN:
                shown.append(each)
    if totals["different"]:
        _show(first[True])
    elif totals["all"] <= _SHOWN:
        _show(first.get(False, ()))
    if totals["unavailable"] and not read.staging.keeps_unavailable:
        units = counted(totals["unavailable"], "unavailable unit")
        screen.print(f"{units} not imported; the proof lists them.")
    differ = f"{totals['different']:,} of them not as in the export"
    verdict = differ if totals["different"] else "all as in the export"
    if read.bad:
        verdict += f", without {counted(len(read.bad), 'bad line')}"
    screen.print(
        f"Proof: {counted(totals['all'], 'stock level')}, {verdict}. {escape(str(how.proof))} lists all of them"
    )
    raise typer.Exit(int(bool(totals["different"]) or has_failed))


def _show(shown: Iterable[Compared]) -> None:
    numbers = ("available", "exported", "committed", "exported", "on hand", "exported")
    rows = [
        [each.level.product_id, location_name(each.level.location_id), *each.numbers]
        for each in shown
    ]
    headings = ("product", "location", *numbers, "unavailable")
    screen.print(table_of(headings, rows, headings[2:]))
