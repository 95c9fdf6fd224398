"""Commands for stock: audit the books, and show the units in lanes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from inventory_orders.domain.location import (
    in_words,
    location_of,
    product_of,
    public_key,
    stock_key,
)

from ..errors import UserError
from ..words import counted, lane_name, location_name
from .common import (
    AsJson,
    AtLocation,
    aside,
    print_cost,
    print_json,
    print_problems,
    progress_bar,
    reading,
    screen,
    table_of,
)
from .target import Target, aws_of, on_stack

if TYPE_CHECKING:
    from inventory_orders.domain.allotments import Page, PageEntry

    from ..aws import Aws
    from ..books import Account, Books, Entry

app = typer.Typer()


@on_stack(app)
def audit(
    product: Annotated[
        str | None, typer.Argument(help="Also list every change to this product's stock.")
    ] = None,
    location: AtLocation = None,
    as_json: AsJson = False,
    repair_words: Annotated[
        bool,
        typer.Option(
            "--repair-words", help="First repair the rows by which a search finds products."
        ),
    ] = False,
    account: Target | None = None,
) -> None:
    """Recompute every product's units on hand, committed and available. The exit status is 1 if the books do not balance.

    Each location of a product has its own books. The audit reads all adjustments and orders. It reports rows and pages
    that break the contract of their table, rows that their product does not list as a location, transfers with one side
    missing, and barcodes that do not point to their product. You may run it while orders are placed: it reads doubtful
    products again, and reports an error only if two reads show it. It leaves out a page or row that cannot be read, so the
    units there are unexplained. If a product changed during every read, its books cannot be checked, and the exit status
    is 1.
    """
    aws = aws_of(account, aside if as_json else screen)
    if repair_words:
        _repair_words(aws)
    if not show_audit(aws, product, location, as_json=as_json):
        raise typer.Exit(1)


def _repair_words(aws: Aws) -> None:
    from ..product_words import repair_words  # noqa: PLC0415 - the layer is slow to import

    with aside.status("Reading all products and their words"):
        repaired, left = repair_words(aws)
    aside.print(f"The words of {counted(repaired, 'product')} are repaired.")
    if left:
        raise UserError(
            f"{counted(left, 'product')} changed at the same time: run the same command again"
        )


def show_audit(
    aws: Aws, product: str | None = None, location: str | None = None, *, as_json: bool = False
) -> bool:
    """Show the books. Returns whether they balance and no row breaks its table's contract."""
    from ..audit import audited_tables, read_books  # noqa: PLC0415
    from ..aws import size_of  # noqa: PLC0415
    from ..books import history  # noqa: PLC0415

    size = size_of(aws, *audited_tables(aws))
    print_cost(size)
    with aside.status("Reading all tables") as spinner:

        def show(number: int) -> None:
            spinner.update(f"{number:,} of about {size.rows:,} rows are read")

        books = read_books(aws, show)
    chosen = _choose(books, product, location)
    balanced = books.is_sound and all(account.balances for account in chosen)
    histories = [history(books, account) for account in chosen if product is not None]
    if as_json:
        found: dict[str, Any] = {
            "balanced": balanced,
            "products": [account.as_json for account in chosen],
            "corruptPages": books.corrupt_pages,
            "corruptRows": books.corrupt_rows,
            "wrongMovements": sum(books.movements),
            "strayBarcodes": books.barcodes,
            "wrongPurchases": books.purchases,
        }
        for shown, entries in zip(found["products"], histories, strict=False):
            shown["history"] = [entry.as_json for entry in entries]
        print_json(found)
        return balanced
    for account, entries in zip(chosen, histories, strict=False):
        _show_history(account, entries)
    _show_books(books, chosen, balanced=balanced)
    return balanced


def _choose(books: Books, product: str | None, location: str | None) -> Sequence[Account]:
    """Choose the accounts of a product, of a location, or all of them."""
    chosen = [
        account
        for account in books.accounts
        if product in (None, product_of(account.product_id))
        and location in (None, location_of(account.product_id))
    ]
    if not chosen and (product, location) != (None, None):
        what = "stock" if product is None else f"product {product}"
        where = f" at {location_name(location)}" if location is not None else ""
        raise UserError(f"there is no {what}{where}, and no order or adjustment names it")
    return chosen


def _show_books(books: Books, chosen: Sequence[Account], *, balanced: bool) -> None:
    for account in chosen:
        if not account.settled:
            screen.print(
                f"[yellow]{escape(account.name)}[/] changed during every read, so its books cannot be "
                "checked. Run the audit again"
            )
    for account in chosen:
        if account.is_wrong:
            _show_wrong(account)
    print_problems("Lanes", books.corrupt_pages.values())
    print_problems("Rows", books.corrupt_rows.values())
    wrong, surplus = books.movements
    if wrong or surplus:
        problem = f"{wrong:,} are missing or differ from their orders, and no order accounts for {surplus:,}"
        print_problems("Movements", [f"{problem}: run `inventory-orders rebuild-movements`"])
    repair = "set the product's `barcodes` to none, then again to the right ones"
    print_problems("Barcodes", [f"{each}: {repair}" for each in books.barcodes])
    repair = "write what the orders say into the buyer's row of Purchases, with a `_version` that is higher by 1"
    print_problems("Purchases", [f"{each}: {repair}" for each in books.purchases])
    if not balanced:
        return
    screen.print(_summary(books, chosen))


def _summary(books: Books, chosen: Sequence[Account]) -> str:
    own = [account for account in chosen if not account.is_place]
    delisted = sum(account.status == "DELISTED" for account in own)
    places = len(chosen) - len(own)
    locations = f" and {counted(places, 'row')} of other locations" if places else ""
    numbers = ", ".join(f"{sum(map(of, chosen)):,} {name}" for name, of in _NUMBERS)
    return (
        f"[green]The books balance:[/] {counted(len(own), 'product')} ({delisted:,} of them "
        f"delisted){locations} with {numbers}, no differences. "
        f"[dim]Read: {counted(len(books.adjustments), 'adjustment')}, {counted(len(books.orders), 'order')}.[/]"
    )


_NUMBERS: Sequence[tuple[str, Callable[[Account], int]]] = (
    ("on hand", lambda account: account.on_hand),
    ("committed", lambda account: account.committed),
    ("available", lambda account: account.available),
)


def _show_wrong(account: Account) -> None:
    for sentence in account.unexplained_in_words:
        screen.print(f"[bold red]{escape(account.name)}[/] has {sentence}")
    print_problems(escape(account.name), account.problems)


def _show_history(account: Account, entries: Sequence[Entry]) -> None:
    screen.print(
        f"[italic]Why does {escape(account.name)} (since {account.created_at[:19]}) have {account.on_hand:,} on hand, "
        f"{account.committed:,} committed, {account.available:,} available?[/]"
    )
    rows = [
        (
            "" if entry.version is None else str(entry.version),
            *(f"{entry.delta:+,}" if entry.delta else "", entry.available),
            *(f"{entry.on_hand_delta:+,}" if entry.on_hand_delta else "", entry.on_hand),
            *(entry.what, entry.at[:19]),
        )
        for entry in entries
    ]
    numbers = ("version", "change", "available", "change", "on hand")
    table = table_of((*numbers, "what", "when"), rows, numbers)
    for row, entry in zip(table.rows, entries, strict=True):
        row.style = "" if entry.at else "dim"
    screen.print(table)
    if account.in_lanes or account.lent_to:
        lent = ", ".join(map(str, account.lent_to)) or "no lane"
        screen.print(f"Available units: {account.where}. lentTo: {lent}.")


@on_stack(app)
def history(
    product: Annotated[str, typer.Argument(help="The product.")],
    location: Annotated[
        str,
        typer.Option(metavar="LOCATION", help="Its stock there. Default: the default location."),
    ] = "",
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only changes up to this time, such as 2026-11-21."),
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of changes.", min=1)] = 50,
    as_json: AsJson = False,
    account: Target | None = None,
) -> None:
    """List the changes to a product's stock, newest first: its adjustments, and the units that orders moved.

    Units of orders appear within a minute or two. `audit` with the product shows every change with the resulting stock, but
    reads all orders.
    """
    from inventory_orders.api.products import shown_change  # noqa: PLC0415
    from inventory_orders.store.lists import ListPosition  # noqa: PLC0415

    from ..history import read_history  # noqa: PLC0415
    from ..republish import moment  # noqa: PLC0415

    key = stock_key(product, location)
    aws = aws_of(account, aside if as_json else screen)
    after = None if until is None else ListPosition(moment(until), "~")
    with reading("the history"):
        found, has_more, complete = read_history(aws, key, limit, after)
    if not found and until is None:
        raise UserError(f"there is no product {in_words(key)}")
    changes = [*map(shown_change, found)]
    if as_json:
        print_json({"entries": changes, "completeUntil": complete, "hasMore": has_more})
        return
    _show_changes(changes)
    if has_more:
        screen.print("There are older changes: see --limit and --until.")
    screen.print(
        f"Complete up to {complete[:19]}."
        if complete
        else "Movements of orders are not known to be complete."
    )


def _show_changes(changes: Sequence[Mapping[str, Any]]) -> None:
    numbers = ("on hand", "available")
    rows = [
        (
            change["at"][:19],
            " ".join(filter(None, _words_of(change))),
            *(f"{change[name]:+,}" if change[name] else "" for name in ("onHandDelta", "delta")),
        )
        for change in changes
    ]
    screen.print(table_of(("when", "what", *numbers), rows, numbers))


def _words_of(change: Mapping[str, Any]) -> Iterator[str | None]:
    """Describe a change: what it was, of which order, by whom, and its reference."""
    of_order = "orderId" in change
    yield ("lose" if "isLost" in change else change["action"]) if of_order else change["reason"]
    yield f"order {change['orderId']}" if of_order else change["adjustmentId"]
    yield change.get("stepId")
    yield f"by {change['actor']}" if "actor" in change else None
    yield f"({change['reference']})" if "reference" in change else None


@on_stack(app)
def lanes(
    product: Annotated[
        str | None, typer.Argument(help="Show where the units of this product are.")
    ] = None,
    empty: Annotated[
        bool,
        typer.Option(
            "--empty", help="Reclaim all units from all lanes. Asks for confirmation first."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Reclaim without asking.")] = False,
    location: Annotated[
        str | None,
        typer.Option(
            metavar="LOCATION",
            help="With a product: its stock there. Default: the default location.",
        ),
    ] = None,
    as_json: AsJson = False,
    account: Target | None = None,
) -> None:
    """Show the lanes, their workers and their units.

    `--empty` moves all units back to the products' rows, including units in lanes that earlier settings used. The exit
    status is 1 if some units remain.
    """
    _check_options(product, location, empty=empty, as_json=as_json)
    aws = aws_of(account, aside if as_json else screen)
    if product is not None:
        _show_places(aws, product, location or "", as_json=as_json)
        return
    if empty:
        _empty_lanes(aws, yes=yes)
        return
    _show_lanes(aws, as_json=as_json)


def _check_options(
    product: str | None, location: str | None, *, empty: bool, as_json: bool
) -> None:
    """Check that the options of `lanes` can be combined."""
    if empty and product is not None:
        raise typer.BadParameter("empties all lanes; leave out the product", param_hint="--empty")
    if empty and as_json:
        raise typer.BadParameter("cannot be combined with --empty", param_hint="--json")
    if location is not None and product is None:
        raise typer.BadParameter("needs a product", param_hint="--location")


def _show_lanes(aws: Aws, *, as_json: bool) -> None:
    """Show all lanes that were ever in use."""
    from ..lanes import read_lanes  # noqa: PLC0415

    with aside.status("Reading the lanes"):
        found, pages = read_lanes(aws)
    now = time.time()
    shown = [lane.shown(now) for lane in found]
    if as_json:
        print_json({"lanes": shown, "corruptPages": pages.corrupt})
        return
    numbers = ("for another", "products", "units")
    rows = [
        (
            *(lane_name(one["lane"]), one["worker"] or "-"),
            f"{one['leaseSeconds']} s" if one["worker"] else "",
            *(one["products"], one["units"], one["writtenAt"][:19]),
        )
        for one in shown
    ]
    table = table_of(("lane", "in use by", *numbers, "written"), rows, numbers)
    screen.print(table if rows else "No lane has ever been used.")
    print_problems("Lanes", pages.corrupt.values())


def _show_places(aws: Aws, product: str, location: str, *, as_json: bool) -> None:
    """Show where the units of a product at one location are."""
    from ..lanes import read_pages, read_places  # noqa: PLC0415

    key = stock_key(product, location)
    places = read_places(aws, [key], read_pages(aws).by_name)
    row = places.rows.get(key)
    pages = sorted(places.before.by_name.values(), key=lambda page: page.key)
    held = [(page, page.entries[key]) for page in pages if key in page.entries]
    if row is None and not held:
        raise UserError(f"there is no product {in_words(key)}, and no lane holds units of it")
    if as_json:
        found = _places_as_json(row, held)
        head = {**public_key(key), "available": places.available(key)}
        print_json(head | found | {"corruptPages": places.before.corrupt})
        return
    rows = [_place_of_row(row)] if row is not None else []
    rows += [_place_of_page(page, entry, row) for page, entry in held]
    screen.print(table_of(("place", "units", ""), rows, {"units"}))
    screen.print(f"{places.available(key):,} available.")
    print_problems("Lanes", places.before.corrupt.values())


def _places_as_json(
    row: Mapping[str, Any] | None, held: Sequence[tuple[Page, PageEntry]]
) -> dict[str, Any]:
    return {
        "row": row
        and {
            "status": row["status"],
            "units": row["stockCount"],
            "createdAt": row["createdAt"],
            "lentTo": sorted(map(int, row.get("lentTo", ()))),
        },
        "pages": [
            {
                "page": str(page.key),
                "version": page.version,
                "units": entry.units,
                "createdAt": entry.created_at,
                "reach": entry.reach,
            }
            for page, entry in held
        ],
    }


def _place_of_row(row: Mapping[str, Any]) -> tuple[str, int, str]:
    lent = ", ".join(map(lane_name, sorted(map(int, row.get("lentTo", ()))))) or "none"
    return "its row", row["stockCount"], f"{row['status']}, lanes that may hold more: {lent}"


def _place_of_page(
    page: Page, entry: PageEntry, row: Mapping[str, Any] | None
) -> tuple[str, int, str]:
    note = f"page {page.key}, version {page.version}"
    if row is None or entry.created_at != row["createdAt"]:
        note += f", of the deleted generation of {entry.created_at}"
    elif page.key.lane == 0:
        note += f", lanes up to {entry.reach} may be filled" if entry.reach else ", narrow"
    return lane_name(page.key.lane), entry.units, note


def _empty_lanes(aws: Aws, *, yes: bool) -> None:
    """Reclaim all units from all lanes."""
    from inventory_orders.errors import StoreError  # noqa: PLC0415

    from ..lanes import empty_lanes, read_all  # noqa: PLC0415

    with aside.status("Reading rows and lanes"):
        before = read_all(aws)
    if not before.lent:
        screen.print("All lanes are empty.")
        print_problems("Lanes", before.before.corrupt.values())
        raise typer.Exit(1 if before.before.corrupt else 0)
    if not yes:
        typer.confirm(f"Reclaim {counted(len(before.lent), 'product')} from all lanes?", abort=True)
    with progress_bar() as progress:
        task = progress.add_task("Reclaiming", total=len(before.lent))
        try:
            problems = empty_lanes(
                aws.store(), before.lent, lambda done: progress.advance(task, done)
            )
        except StoreError as error:
            raise UserError(
                f"DynamoDB failed ({error}). Units reclaimed so far stay in their rows; run the same command again"
            ) from error
    print_problems("Lanes", problems)
    after = read_all(aws)
    left = sorted(after.lent)
    if left:
        some = ", ".join(map(in_words, left[:5])) + (", ..." if len(left) > 5 else "")
        screen.print(
            f"[bold red]Still in lanes, or lent again: {counted(len(left), 'product')}[/] ({escape(some)}). Orders keep "
            "filling lanes: run this again when fewer arrive. If units remain, `audit` explains why."
        )
        raise typer.Exit(1)
    reclaimed = counted(len(before.lent), "product")
    screen.print(f"[green]All lanes are empty:[/] {reclaimed} reclaimed.")
