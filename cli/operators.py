"""Commands for operators: they act on a stack, of an AWS account or of the embedded AWS."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from cli.common import (
    AsJson,
    OnAccount,
    aside,
    aws_of,
    checked_stage,
    print_json,
    screen,
    stack_name,
    table_of,
)
from infra.settings import DEFAULT, Settings, SettingsError, check_names
from local import ROOT, stack
from local.endpoint import environment_without_aws
from local.node import CDK
from local.process import run_logged
from operations import preflight, queues, remains
from operations import redrive as redrives
from operations.account import AwsAccount
from operations.errors import UserError
from operations.orders_file import OrderMessage, count_orders, read_orders
from operations.redrive import MAY_SUCCEED_NOW
from operations.words import counted, without_full_stop

if TYPE_CHECKING:
    from inventory_orders.store.dynamodb import Store
    from operations.audit import Account, Books, Entry
    from operations.aws import Aws
    from operations.catalogue_file import BadLine, CatalogueFile
    from operations.follow import Heard
    from operations.load import Load
    from operations.restore import Differences

app = typer.Typer()
PANEL = "Operators (the embedded AWS, or --stage STAGE)"
_ACCOUNT_PANEL = "Your AWS account"
_QUALIFIER = "@aws-cdk/core:bootstrapQualifier"
_Stage = Annotated[
    str,
    typer.Option(
        "--stage",
        callback=checked_stage,
        help="Name of the deployed copy: 1 to 20 lowercase letters, digits or hyphens.",
    ),
]
INTERRUPTED = 130
"""Exit status of a command that Ctrl-C ended, by the shells' convention."""


class QueueName(StrEnum):
    """The queues that take orders."""

    STANDARD = "standard"
    FIFO = "fifo"


class AnyQueue(StrEnum):
    """All queues, in the order of `queues.QUEUES`."""

    STANDARD = "standard"
    FIFO = "fifo"
    STOCK = "stock"
    CATALOGUE = "catalogue"
    COMMAND = "command"
    EXPIRY = "expiry"


@app.command(rich_help_panel=PANEL)
def status(as_json: AsJson = False, account: OnAccount = None) -> None:
    """Count the rows of the tables and the messages of the queues, and list the causes of dead letters."""
    aws = aws_of(account, aside if as_json else screen)
    items = {
        kind.value: aws.dynamodb.describe_table(TableName=name)["Table"]["ItemCount"]
        for kind, name in aws.tables.items()
    }
    sources, letters = zip(*queues.pairs(aws), strict=True)
    depths = {
        name.removesuffix("Url"): queues.depth(aws, name)
        for name in (*sources, *letters, queues.UNDELIVERABLE_EVENTS)
    }
    with aside.status("Reading dead letters"):
        by_queue, is_all = redrives.read_some(aws, 1000)
    dead_letters = [delivery.content for some in by_queue.values() for delivery in some]
    causes = Counter(dead_letter.code for dead_letter in dead_letters)
    example = {dead_letter.code: dead_letter.message for dead_letter in dead_letters}
    if as_json:
        print_json(
            {
                "items": items,
                "queues": {
                    name: {
                        "waiting": depth.waiting,
                        "inFlight": depth.in_flight,
                        "later": depth.later,
                    }
                    for name, depth in depths.items()
                },
                "deadLetters": {
                    code: {"count": count, "example": example[code]}
                    for code, count in causes.items()
                },
                "deadLettersAreAll": is_all,
            }
        )
        return
    tables = table_of("table", "items", "", right={"items"})
    note = "approximate, up to six hours old" if account else ""
    for kind, count in items.items():
        tables.add_row(kind, f"{count:,}", note)
    screen.print(tables, "")
    counts = ("waiting", "in flight", "for later")
    waiting = table_of("queue", *counts, right=counts)
    for name, depth in depths.items():
        waiting.add_row(name, f"{depth.waiting:,}", f"{depth.in_flight:,}", f"{depth.later:,}")
    screen.print(waiting)
    if causes:
        least = "" if is_all else "at least "
        table = table_of("dead letters", "", "for example")
        for code, count in sorted(causes.items(), key=lambda item: (-item[1], item[0])):
            table.add_row(code, f"{least}{count:,}", escape(example[code]))
        screen.print("", table)


@app.command(rich_help_panel=PANEL)
def audit(
    product: Annotated[
        str | None, typer.Argument(help="Also list every change of this product's stock.")
    ] = None,
    as_json: AsJson = False,
    account: OnAccount = None,
) -> None:
    """Recompute every product's stock from adjustments and orders. Exit status 1 if the books do not balance.

    It also names rows and pages of lanes that break the contract of their table. You may run it while orders go on: it
    reads doubtful products again, and reports an error that two reads show. A page or row that cannot be read is left
    out, so its units are unexplained. The books are open, with exit status 1, if a product changed during every read.
    """
    aws = aws_of(account, aside if as_json else screen)
    if not _audit(aws, product, as_json=as_json):
        raise typer.Exit(1)


def _audit(aws: Aws, product: str | None = None, *, as_json: bool = False) -> bool:
    """Show the books. Returns whether they balance and all rows keep their contract."""
    from operations.audit import history, read_books  # noqa: PLC0415

    with aside.status("Reading all tables"):
        books = read_books(aws)
    chosen = [a for a in books.accounts if product is None or a.product_id == product]
    if product is not None and not chosen:
        raise UserError(f"there is no product {product}, and no order or adjustment names it")
    histories = [] if product is None else [history(books, entry) for entry in chosen]
    balanced = not books.corrupt and all(entry.balances for entry in chosen)
    if as_json:
        found: dict[str, Any] = {
            "balanced": balanced,
            "products": [entry.as_json for entry in chosen],
            "corruptPages": books.corrupt_pages,
            "corruptRows": books.corrupt_rows,
        }
        for shown, entries in zip(found["products"], histories, strict=False):
            shown["history"] = list(map(asdict, entries))
        print_json(found)
        return balanced
    for entry, entries in zip(chosen, histories, strict=False):
        _show_history(entry, entries)
    _show_books(books, chosen)
    return balanced


def _show_books(books: Books, chosen: Sequence[Account]) -> None:
    unsettled = [entry for entry in chosen if not entry.settled]
    for entry in unsettled:
        screen.print(
            f"[yellow]{escape(entry.product_id)}[/] changed during every read, so its books are open. Run the audit again"
        )
    wrong = [entry for entry in chosen if entry.is_wrong]
    for entry in wrong:
        if entry.unexplained:
            where = f" ({_places(entry)})" if entry.in_lanes else ""
            screen.print(
                f"[bold red]{escape(entry.product_id)}[/] has {entry.on_hand:,}{where}, but its rows say "
                f"{entry.adjusted - entry.sold:,}: {entry.unexplained:+,} unexplained",
            )
        for problem in entry.problems:
            screen.print(f"[bold red]{escape(entry.product_id)}[/]: {escape(problem)}")
    _show_corrupt(books.corrupt_pages)
    for problem in books.corrupt_rows.values():
        screen.print(f"[bold red]Rows[/]: {escape(problem)}")
    if wrong or unsettled or books.corrupt:
        return
    delisted = sum(entry.status == "DELISTED" for entry in chosen)
    screen.print(
        f"[green]The books balance:[/] {counted(len(chosen), 'product')} ({delisted:,} of them "
        f"delisted), no difference. [dim]Read: {counted(len(books.adjustments), 'adjustment')}, "
        f"{counted(len(books.orders), 'order')}.[/]",
    )


def _places(account: Account) -> str:
    """Say where the units of a product are."""
    from operations.lanes import lane_name  # noqa: PLC0415

    lanes = [f"{lane_name(lane)}: {units:,}" for lane, units in account.in_lanes.items()]
    return ", ".join([f"row: {account.stock:,}", *lanes])


def _show_history(account: Account, entries: list[Entry]) -> None:
    numbers = ("version", "change", "stock")
    table = table_of(*numbers, "what", "when", right=numbers)
    screen.print(
        f"[italic]Why is {escape(account.product_id)} (since {account.created_at[:19]}) at {account.on_hand:,}?[/]"
    )
    for entry in entries:
        version = "" if entry.version is None else str(entry.version)
        change = f"{entry.delta:+,}" if entry.at else ""
        style = "" if entry.at else "dim"
        table.add_row(
            version, change, f"{entry.stock:,}", escape(entry.what), entry.at[:19], style=style
        )
    screen.print(table)
    if account.in_lanes or account.lent_to:
        lent = ", ".join(map(str, account.lent_to)) or "no lane"
        screen.print(f"Where it is: {_places(account)}. lentTo: {lent}.")


@app.command(rich_help_panel=PANEL)
def lanes(
    product: Annotated[
        str | None, typer.Argument(help="Show where the units of this product are.")
    ] = None,
    empty: Annotated[
        bool,
        typer.Option("--empty", help="Reclaim all units from all lanes. Asks first."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before emptying.")] = False,
    as_json: AsJson = False,
    account: OnAccount = None,
) -> None:
    """Show the lanes: their workers, and the units in them.

    `--empty` moves all units back to the products' rows, also from lanes of earlier settings. Exit status 1 if some
    units are left.
    """
    if empty and product is not None:
        raise typer.BadParameter("empties all lanes; leave out the product", param_hint="--empty")
    if empty and as_json:
        raise typer.BadParameter("it empties lanes, and lists none", param_hint="--json")
    aws = aws_of(account, aside if as_json else screen)
    if product is not None:
        _show_places(aws, product, as_json=as_json)
        return
    if empty:
        _empty_lanes(aws, yes=yes)
        return
    _show_lanes(aws, as_json=as_json)


def _show_lanes(aws: Aws, *, as_json: bool) -> None:
    """Show all lanes that ever were in use."""
    from operations.lanes import lane_name, read_lanes  # noqa: PLC0415

    with aside.status("Reading the lanes"):
        found, pages = read_lanes(aws)
    now = time.time()
    shown: list[dict[str, Any]] = [
        {
            "lane": lane.number,
            "worker": lane.lease.owner if lane.lease and lane.lease.ends_at > now else None,
            "leaseSeconds": max(0, round(lane.lease.ends_at - now)) if lane.lease else 0,
            "products": lane.products,
            "units": lane.units,
            "writtenAt": lane.written_at,
        }
        for lane in found
    ]
    if as_json:
        print_json({"lanes": shown, "corruptPages": pages.corrupt})
        return
    numbers = ("for another", "products", "units")
    table = table_of("lane", "in use by", *numbers, "written", right=numbers)
    for one in shown:
        table.add_row(
            lane_name(one["lane"]),
            escape(one["worker"] or "nobody"),
            f"{one['leaseSeconds']} s" if one["worker"] else "",
            f"{one['products']:,}",
            f"{one['units']:,}",
            one["writtenAt"][:19],
        )
    screen.print(table if table.row_count else "No lane has ever been used.")
    _show_corrupt(pages.corrupt)


def _show_corrupt(pages: Mapping[str, str]) -> None:
    for problem in pages.values():
        screen.print(f"[bold red]Lanes[/]: {escape(problem)}")


def _show_places(aws: Aws, product: str, *, as_json: bool) -> None:
    """Show where the units of one product are."""
    from operations.lanes import lane_name, read_pages, read_places  # noqa: PLC0415

    places = read_places(aws, [product], read_pages(aws).by_name)
    row = places.rows.get(product)
    pages = sorted(places.before.by_name.values(), key=lambda page: page.key)
    held = [(page, page.entries[product]) for page in pages if product in page.entries]
    if row is None and not held:
        raise UserError(f"there is no product {product}, and no lane holds any of it")
    if as_json:
        print_json(
            {
                "productId": product,
                "onHand": places.on_hand(product),
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
                "corruptPages": places.before.corrupt,
            }
        )
        return
    table = table_of("place", "units", "", right={"units"})
    if row is not None:
        lent = ", ".join(map(lane_name, sorted(map(int, row.get("lentTo", ()))))) or "none"
        note = f"{row['status']}, lanes that may hold more: {lent}"
        table.add_row("its row", f"{row['stockCount']:,}", note)
    for page, entry in held:
        note = f"page {page.key}, version {page.version}"
        if row is None or entry.created_at != row["createdAt"]:
            note += f", of the incarnation of {entry.created_at}, which is gone"
        elif page.key.lane == 0:
            note += f", lanes up to {entry.reach} may be filled" if entry.reach else ", narrow"
        table.add_row(lane_name(page.key.lane), f"{entry.units:,}", note)
    screen.print(table)
    screen.print(f"{places.on_hand(product):,} on hand.")
    _show_corrupt(places.before.corrupt)


def _empty_lanes(aws: Aws, *, yes: bool) -> None:
    """Reclaim all units from all lanes."""
    from inventory_orders.errors import StoreError  # noqa: PLC0415 - the layer is slow to import
    from operations.lanes import empty_lanes, read_all  # noqa: PLC0415

    with aside.status("Reading rows and lanes"):
        before = read_all(aws)
    if not before.lent:
        screen.print("All lanes are empty.")
        _show_corrupt(before.before.corrupt)
        raise typer.Exit(1 if before.before.corrupt else 0)
    if not yes:
        typer.confirm(f"Reclaim {counted(len(before.lent), 'product')} from all lanes?", abort=True)
    columns = (
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
        *(TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn()),
    )
    with Progress(*columns, console=aside) as progress:
        task = progress.add_task("Reclaiming", total=len(before.lent))
        try:
            problems = empty_lanes(
                aws.store(), before.lent, lambda done: progress.advance(task, done)
            )
        except StoreError as error:
            raise UserError(
                f"DynamoDB failed ({error}). Reclaimed units stay in their rows; run the same command again"
            ) from error
    for problem in problems:
        screen.print(f"[bold red]Lanes[/]: {escape(problem)}")
    after = read_all(aws)
    left = sorted(after.lent)
    if left:
        some = ", ".join(left[:5]) + (", ..." if len(left) > 5 else "")
        screen.print(
            f"[bold red]In lanes still, or again: {counted(len(left), 'product')}[/] ({escape(some)}). Orders fill lanes "
            "meanwhile: run this again when few come. `audit` explains those that stay.",
        )
        raise typer.Exit(1)
    reclaimed = counted(len(before.lent), "product")
    screen.print(f"[green]All lanes are empty:[/] {reclaimed} reclaimed.")


@app.command(rich_help_panel=PANEL)
def restore(
    to: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="The second to go back to, at most 35 days ago, such as 2026-11-21T09:30:00 (UTC).",
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the service stops.")] = (
        False
    ),
    account: OnAccount = None,
) -> None:
    """Put all rows back to their state at an earlier second, and publish it. Counts the rows to write, and asks first.

    The service stands still meanwhile; messages wait in their queues. Orders that were placed since are cancelled. You
    may interrupt it and run it again. Exit status 1 if the books do not balance in the end.
    """
    from operations.republish import moment  # noqa: PLC0415 - the layer is slow to import
    from operations.restore import Restore  # noqa: PLC0415

    then = datetime.fromisoformat(moment(to)).replace(microsecond=0)
    aws = aws_of(account)
    work = Restore(aws, stack_name(account) if account else stack.STACK_NAME, then)
    with aside.status("Restoring tables beside those of the stack") as spinner:

        def rows(found: Differences) -> None:
            spinner.update(f"{found.rows:,} rows compared")

        work.make_tables(spinner.update)
        back_since = work.rows_are_back_since
        found = None if back_since else work.look(rows)
        names = " ".join(work.beside.tables.values())
        screen.print(f"[dim]Delete these tables when all is well: {names}[/]")
        if found is not None:
            _show_differences(found)
            screen.print(f"At {then.isoformat()}:", end=" ")
            _audit(work.beside)
        else:
            screen.print(
                f"An earlier run put the rows back at {back_since}. This one starts the service and publishes them: to "
                "compare the rows again, run it once more.",
            )
    if found is not None and not yes:
        typer.confirm("Stop the service and put these rows back?", abort=True)
    with aside.status("Stopping the service") as spinner:
        if found is not None:
            aside.print("The service stands still until this command, or another run of it, ends.")
            work.stop(spinner.update)
            work.put_back(rows)
        work.start(spinner.update)
        published = work.republish(lambda n: spinner.update(f"{n:,} orders published"))
        work.finish()
    for problem in published.problems:
        screen.print(f"[bold red]Cannot be published:[/] {escape(problem)}")
    screen.print(f"[green]All rows are back:[/] {published.events:,} events say so.")
    if not _audit(aws) or published.problems:
        raise typer.Exit(1)


def _show_differences(found: Differences) -> None:
    table = table_of("table", "rows that go back, and holds", "rows made since, to be removed")
    for kind in [*found.back, *(kind for kind in found.gone if kind not in found.back)]:
        table.add_row(kind.value, f"{found.back[kind]:,}", f"{found.gone[kind]:,}")
    screen.print(table if table.row_count else "No row differs.")
    for status, orders in found.cancelled.items():
        screen.print(
            f"{orders:,} orders that were placed since, and are {status}, hold no stock any more."
        )


@app.command(rich_help_panel=PANEL)
def forget(
    user: Annotated[str, typer.Argument(help="The userId of the person's orders.")],
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            readable=True,
            help="The shop's own key, 32 bytes or more. Default: the environment variable "
            "INVENTORY_ORDERS_PSEUDONYM_KEY. Use the same key every time, and keep it secret.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the first change.")] = False,
    account: OnAccount = None,
) -> None:
    """Put a pseudonym in the place of a user in all of that user's orders, and remove the orders' attributes.

    You cannot undo it. You may interrupt it and run it again. The books do not change, and the service still recognises
    orders that are sent again. Exit status 1 if a row could not be changed.
    """
    from inventory_orders.errors import StoreError  # noqa: PLC0415 - the layer is slow to import
    from operations import forget as forgets  # noqa: PLC0415

    key = forgets.read_key(key_file, os.environ)
    if forgets.is_pseudonym(user):
        raise typer.BadParameter("this user id is a pseudonym", param_hint="USER")
    aws = aws_of(account)
    with aside.status("Looking for orders"):
        count = sum(1 for _ in forgets.orders_of(aws, user))
    if count and not yes:
        where = aws.outputs["OrdersTableName"]
        typer.confirm(
            f"Forget {user} in {counted(count, 'order')} of {where}? You cannot undo it.",
            abort=True,
        )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=aside) as progress:
        task = progress.add_task("Forgetting", total=count)
        work = forgets.Forgetting(aws, user, key, lambda: progress.advance(task))
        try:
            work.run()
        except StoreError as error:
            raise UserError(
                f"DynamoDB failed ({error}). Done so far: {counted(work.done, 'order')}; run the same command again"
            ) from error
    for problem in work.problems.values():
        screen.print(f"[bold red]Not changed[/]: {escape(problem)}")
    screen.print(f"{counted(work.done, 'order')} under a pseudonym now: {work.pseudonym}")
    if work.problems:
        raise typer.Exit(1)


@app.command(rich_help_panel=PANEL)
def redrive(
    send: Annotated[
        bool,
        typer.Option("--send", help="Send them back. Without this option nothing changes."),
    ] = False,
    queue: Annotated[
        AnyQueue | None,
        typer.Option(
            # Choices are cut at any letter.
            metavar="QUEUE",
            help=f"Only the dead letters of this queue: {', '.join(AnyQueue)}. Default: all.",
        ),
    ] = None,
    cause: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODE",
            help=f"Send back only this errorCode; can be repeated. Default: {', '.join(sorted(MAY_SUCCEED_NOW))}, "
            "whose causes may have been repaired since.",
        ),
    ] = None,
    rate: Annotated[float, typer.Option(min=0.1, help="Most messages to send per second.")] = 20.0,
    as_json: AsJson = False,
    account: OnAccount = None,
) -> None:
    """Show the dead letters by cause, and send back those that may succeed now.

    A message that can never succeed (bad JSON, a violated schema, a used id) stays: its sender has to correct it and
    send it again. You may interrupt a redrive and run it again: it sends each message before it deletes it, and the
    service recognises messages that it has processed.
    """
    causes = frozenset(cause) if cause else MAY_SUCCEED_NOW
    for unknown in sorted(causes - redrives.CAUSES):
        raise UserError(
            f"there is no cause {unknown}; the causes are {', '.join(sorted(redrives.CAUSES))}"
        )
    aws = aws_of(account, aside if as_json else screen)
    named = dict(zip(AnyQueue, queues.QUEUES, strict=True))
    if queue is not None:
        queues.url_of(aws, named[queue])
        named = {queue: named[queue]}
    findings = _read_dead_letters(aws, named, causes, rate if send else None)
    if as_json:
        print_json({"sent": send, "deadLetters": list(_by_decision(findings))})
        return
    table = table_of("queue", "cause", "dead letters", "", "for example", right={"dead letters"})
    for row in _by_decision(findings):
        happens = redrives.Decision[row["decision"]].value
        cells = (row["queue"], row["cause"], f"{row['count']:,}", happens, escape(row["example"]))
        table.add_row(*cells)
    screen.print(table if table.row_count else "There are no dead letters.")
    back = sum(found.count(redrives.Decision.SEND_BACK) for found in findings.values())
    if send:
        screen.print(
            f"{back:,} sent back. [dim]`.venv/bin/inventory-orders status` shows queues and dead letters.[/]",
        )
    else:
        option = "--send" if account else "--send (with make: SEND=1)"
        screen.print(f"Nothing was changed. [dim]{option} would send {back:,} back.[/]")


def _read_dead_letters(
    aws: Aws, named: Mapping[AnyQueue, str], causes: frozenset[str], rate: float | None
) -> dict[AnyQueue, redrives.Findings]:
    """Read the dead letters of queues.

    Args:
        aws: The stack.
        named: The queues.
        causes: Which causes go back.
        rate: Most messages to send back per second; None to send none.

    Raises:
        UserError: SQS failed.
    """
    there = dict(queues.pairs(aws))
    chosen = [(name, source) for name, source in named.items() if source in there]

    def read(one: tuple[AnyQueue, str]) -> redrives.Findings:
        name, source = one
        url = aws.outputs[there[source]]

        def progress(so_far: redrives.Findings) -> None:
            back = so_far.count(redrives.Decision.SEND_BACK)
            spinner.update(f"{name}: {back:,} sent back")

        try:
            if rate is None:
                return redrives.look(aws.sqs, url, causes)
            return redrives.redrive(
                aws.sqs, url, aws.outputs[source], causes, rate=rate, on_progress=progress
            )
        except (BotoCoreError, ClientError) as error:
            raise UserError(
                f"{name}: {without_full_stop(error)}. Nothing is lost: fix this, then run the command again"
            ) from error

    with (
        aside.status("Reading the dead letters") as spinner,
        ThreadPoolExecutor(len(chosen)) as pool,
    ):
        # A preview reads all queues side by side. Sending keeps one rate for all, and ends with Ctrl-C at once.
        found = (pool.map if rate is None else map)(read, chosen)
        findings = {name: each for (name, _), each in zip(chosen, found, strict=True)}
    for name, each in findings.items():
        if each.crowded:
            aside.print(
                f"[dim]{counted(len(each.crowded), 'group')} of {name} may hold more dead letters than SQS shows at "
                "a time; --send processes them all.[/]"
            )
    return findings


def _by_decision(findings: Mapping[AnyQueue, redrives.Findings]) -> Iterator[dict[str, Any]]:
    """Yield how many dead letters of each queue and cause got each decision."""
    for name, found in findings.items():
        for _, group in sorted(found.groups.items()):
            for decision, count in group.decisions.items():
                yield {
                    "queue": name,
                    "cause": group.code,
                    "decision": decision.name,
                    "count": count,
                    "example": group.example,
                }


@app.command(rich_help_panel=PANEL)
def send(
    file: Annotated[
        Path,
        typer.Argument(
            help="Orders as JSON lines, or as CSV with the header orderId,userId,productId,quantity and one row per "
            "order line. Either may be compressed (.gz).",
        ),
    ],
    queue: Annotated[QueueName, typer.Option(help="The queue to send to.")] = QueueName.STANDARD,
    rate: Annotated[
        float | None, typer.Option(min=0.1, help="Orders per second. Default: no limit.")
    ] = None,
    duplicates: Annotated[
        float, typer.Option(min=0, max=100, help="Percentage of messages to send twice.")
    ] = 0.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Send only this many orders.")] = None,
    unchecked: Annotated[
        bool,
        typer.Option(
            "--unchecked",
            help="Send the file as it is, with what is not an order. Without this option an error in the file "
            "stops the command.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before sending to an account.")] = (
        False
    ),
    account: OnAccount = None,
) -> None:
    """Send the orders of a file through SQS. It checks the whole file before it sends the first order.

    JSON lines are sent unchanged. In a CSV file, adjacent rows with the same orderId are one order; if rows of that
    order appear again further down, the file is refused.
    """
    found = None if unchecked else count_orders(file, limit)
    aws = aws_of(account)
    output = queues.STANDARD if queue is QueueName.STANDARD else queues.FIFO
    url = queues.url_of(aws, output)
    if account is not None and not yes:
        what = "Every line" if found is None else counted(found, "order")
        typer.confirm(f"Send {what} of {file} to {url}?", abort=True)
    count = 0

    def progress(more: int) -> None:
        nonlocal count
        count += more
        spinner.update(f"{counted(count, 'message')} sent")

    messages = _with_duplicates(islice(read_orders(file), limit), duplicates / 100)
    began = time.monotonic()
    with aside.status("Sending") as spinner:
        queues.send(aws, output, messages, rate=rate, on_sent=progress)
    seconds = time.monotonic() - began
    screen.print(
        f"{counted(count, 'message')} sent to {url.rsplit('/', 1)[1]} in {seconds:.1f} s. "
        f"[dim]`.venv/bin/inventory-orders status` shows queues and dead letters.[/]",
    )


@app.command(rich_help_panel=PANEL)
def load(
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV with a header, or JSON lines; may be compressed (.gz).",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ],
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Check every line, also against the tables, and write nothing."
        ),
    ] = False,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="Most lines to write per second. Default: as DynamoDB takes them."
        ),
    ] = None,
    errors: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Where to report bad lines, as CSV. Default: FILE.errors.csv, beside the input. Text that begins with "
            "=, +, - or @ gets an apostrophe in front, because a spreadsheet would take it for a formula; load never "
            "removes one.",
        ),
    ] = None,
    account: OnAccount = None,
) -> None:
    """Load a catalogue: create products, change their details, book stock. Exit status 1 if a line was bad.

    You may interrupt it and run it again: it creates and books nothing twice. It creates products first, then changes
    details, then books stock.
    """
    from operations.catalogue_file import read_catalogue  # noqa: PLC0415 - the layer is slow to import

    report = errors or file.with_name(f"{file.name}.errors.csv")
    _check_report(report)
    with aside.status(f"Reading {file.name}"):
        catalogue = read_catalogue(file)
    store, began = aws_of(account).store(), time.monotonic()
    work, failure, status = _carry_out(catalogue, store, rate, check=check)
    _show_load(work, time.monotonic() - began, check=check)
    _report_bad_lines(work.bad, report)
    if failure:
        aside.print(
            f"[bold red]Not finished:[/] {escape(failure)}. The lines so far are written; run the same command again",
        )
    if failure or work.bad:
        raise typer.Exit(status)


def _check_report(report: Path) -> None:
    """Check that bad lines can be written to a file, and that it holds no other content."""
    from operations.catalogue_file import is_report  # noqa: PLC0415

    if report.exists() and not (report.is_file() and is_report(report)):
        problem = f"{report} exists and is not a report of a load"
    elif not os.access(report if report.exists() else report.parent, os.W_OK):
        problem = f"{report} cannot be written"
    else:
        return
    raise typer.BadParameter(f"{problem}; name another file", param_hint="--errors")


def _carry_out(
    catalogue: CatalogueFile, store: Store, rate: float | None, *, check: bool
) -> tuple[Load, str, int]:
    """Load or check the lines. Returns the load, why it did not finish, and the exit status for that or for bad lines."""
    from inventory_orders.errors import StoreError  # noqa: PLC0415
    from operations.load import Load  # noqa: PLC0415

    columns = (
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
        *(TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn()),
    )
    with Progress(*columns, console=aside) as progress:
        task = progress.add_task("Checking" if check else "Loading", total=catalogue.good)
        work = Load(catalogue, store, rate, lambda lines: progress.advance(task, lines))
        try:
            (work.check if check else work.run)()
        except KeyboardInterrupt:
            return work, "it was interrupted", INTERRUPTED
        except StoreError as error:
            return work, f"DynamoDB failed ({error})", 1
    return work, "", 1


def _show_load(work: Load, seconds: float, *, check: bool) -> None:
    counts = Table("lines", "", box=None, show_header=False)
    counts.columns[0].justify = "right"
    for done in work.done:
        counts.add_row(f"{work.done[done]:,}", done.value)
    screen.print(counts)
    lines = work.done.total()
    what = "checked; nothing was written" if check else "done"
    screen.print(
        f"{counted(lines, 'line')} {what}. [dim]{seconds:.1f} s, {lines / seconds:,.0f} lines a second.[/]"
    )


def _report_bad_lines(bad: Sequence[BadLine], report: Path) -> None:
    from operations.catalogue_file import write_report  # noqa: PLC0415

    if bad:
        write_report(report, bad)
        screen.print(
            f"[bold red]Bad lines: {len(bad):,}[/], with their reasons in {escape(str(report))}",
        )
    else:
        # An earlier load's report would be mistaken for this one's.
        report.unlink(missing_ok=True)


@app.command(rich_help_panel=PANEL)
def republish(
    order: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Publish this order; can be repeated."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Publish all orders that changed since, such as 2026-11-21T09:30 (UTC). Reads the whole table.",
        ),
    ] = None,
    send: Annotated[
        bool,
        typer.Option("--send", help="Publish them. Without this option it only counts them."),
    ] = False,
    account: OnAccount = None,
) -> None:
    """Publish the present state of orders again, for a consumer that lost events.

    For each order it publishes the events of its status, of a late payment, and of each partial fulfilment, partial
    cancellation and return, with the present version of the row: most have other event ids than before. Exit status 1 if
    one cannot be published.
    """
    from operations import republish  # noqa: PLC0415 - the layer is slow to import

    if (order is None) == (since is None):
        raise typer.BadParameter("say which orders: either --order or --since")
    after = republish.moment(since) if since is not None else ""
    aws = aws_of(account)
    rows = republish.rows_since(aws, after) if order is None else republish.rows_of(aws, order)
    what = "published" if send else "to publish"
    with aside.status("Reading orders") as spinner:
        done = republish.republish(
            aws,
            rows,
            send=send,
            on_progress=lambda n: spinner.update(f"{counted(n, 'order')} {what}"),
        )
    for problem in done.problems:
        screen.print(f"[bold red]Cannot be published:[/] {escape(problem)}")
    if send:
        screen.print(f"{counted(done.events, 'event')} published.")
    else:
        screen.print(
            f"Nothing was sent. [dim]--send would publish {counted(done.events, 'event')}.[/]"
        )
    if done.problems:
        raise typer.Exit(1)


@app.command(rich_help_panel=PANEL)
def follow(
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Seconds until it stops. Default: until Ctrl-C.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event whole, one a line.")
    ] = False,
    account: OnAccount = None,
) -> None:
    """Print the events of orders and products as the event bus delivers them.

    It makes a queue and a rule of its own, named BUS-follow-..., and removes both at the end. On an account it may miss
    the events of its first minute.
    """
    from operations.follow import listening  # noqa: PLC0415 - the layer is slow to import

    # Every line of standard output is an event.
    aws = aws_of(account, aside)
    seen: set[str] = set()
    with listening(aws) as listen, contextlib.suppress(KeyboardInterrupt):
        bus = aws.outputs["EventBusName"]
        aside.print(
            f"[dim]Listening to {bus}. On AWS a new rule may miss events in its first minute. Ctrl-C ends it.[/]",
        )
        for heard in listen(float("inf") if seconds is None else seconds):
            if as_json:
                screen.out(json.dumps(heard.event))
            else:
                _show_event(heard, seen)
            if screen.quiet:
                break


def _show_event(heard: Heard, seen: set[str]) -> None:
    detail = heard.event["detail"]
    metadata, data = detail["metadata"], detail["data"]
    subject = data.get("orderId") or data.get("productId", "")
    notes = [data.get("reason", ""), f"version {data['version']}" if "version" in data else ""]
    notes += [f"{data['onHand']:,} on hand" if "onHand" in data else ""]
    notes += ["" if heard.delay is None else f"{1000 * heard.delay:,.0f} ms later"]
    notes += ["again" if metadata["eventId"] in seen else ""]
    seen.add(metadata["eventId"])
    screen.print(
        f"{metadata['occurredAt'][11:23]} {heard.event['detail-type']:<20} {escape(subject)} "
        f"[dim]{escape(', '.join(filter(None, notes)))}[/]",
    )


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def bootstrap() -> None:
    """Prepare the account and region of your environment for the CDK, once. A repetition changes nothing."""
    account = AwsAccount.of_environment()
    config = _cdk_json()
    if _QUALIFIER in config["context"] and "toolkitStackName" not in config:
        # The CDK would update the shared stack in place, and so replace the roles that other apps deploy with.
        raise UserError(
            f'cdk.json has a {_QUALIFIER}, but no name for its bootstrap stack: set "toolkitStackName" at the top level, '
            'such as "CDKToolkit-shop"; "CDKToolkit" is the one that all apps of the account and region share'
        )
    number = account.number()
    aside.print(f"bootstrap: account {number}, {account.region}")
    # An empty `--app`, because the CDK would otherwise synthesise the stack for this command too.
    _cdk(account, "bootstrap", f"aws://{number}/{account.region}", "--app", "")


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def synth(stage: _Stage = "dev") -> None:
    """Write the CloudFormation template of a stage. Needs no account."""
    _settings(stage)
    # The CDK prints advice on its feature flags, and warnings that matter to a deployment, which prints them too.
    run_logged(
        "synth",
        [*CDK, "synth", "--quiet", "-c", f"stage={stage}"],
        stack.cdk_environment(environment_without_aws() | {"AWS_EC2_METADATA_DISABLED": "true"}),
    )
    screen.print(f"{_cdk_json()['output']}/{stack_name(stage)}.template.json")


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def settings(stage: _Stage = "dev", as_json: AsJson = False) -> None:
    """Show the settings of a stage, each with its source: the default or cdk.json. Needs no account."""
    found = _settings(stage)
    if as_json:
        print_json(
            {name: {"value": v, "from": found.sources[name]} for name, v in found.values.items()}
        )
        return
    table = table_of("setting", "value", "from")
    for name, value in found.values.items():
        source = found.sources[name]
        style = "dim" if source == DEFAULT else ""
        table.add_row(name, escape(json.dumps(value)), source, style=style)
    screen.print(table)


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def diff(stage: _Stage) -> None:
    """Show the changes that `deploy` would make on the AWS account of your environment."""
    _cdk(_account_for("diff", stage), "diff", "-c", f"stage={stage}")


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def deploy(
    stage: _Stage,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Do not ask before permissions change. For CI."),
    ] = False,
) -> None:
    """Deploy the stack to the AWS account of your environment.

    First checks that the account has room for the settings in cdk.json, and whether a first deployment failed.
    """
    account = _account_for("deploy", stage)
    settings = _settings(stage)
    if not settings.fifo_queue:
        preflight.check_removed_queue(account, settings.stack_name)
    warm = {name: asdict(units) for name, units in settings.warm_throughput.items()}
    needs = {name: queue.maximumConcurrency for name, queue in settings.queues.items()}
    needs["publish_events"] = preflight.count_publishers(account, settings.stack_name, warm)
    notes = (
        preflight.check_warm_throughput(account, settings.stack_name, warm),
        preflight.check_concurrency(
            account,
            settings.stack_name,
            needs,
            settings.api_limits.requestsPerSecond if settings.api else 0,
            settings.api_limits.concurrentExecutions if settings.api else None,
        ),
        preflight.release_failed_creation(account, settings.stack_name)
        if settings.is_production
        else None,
    )
    for note in filter(None, notes):
        aside.print(f"[yellow]Note:[/] {escape(note)}")
    approval = ("--require-approval", "never") if yes else ()
    _cdk(account, "deploy", "-c", f"stage={stage}", *approval)


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def destroy(stage: _Stage) -> None:
    """Remove the stack from the AWS account of your environment. Asks first, and lists at the end what stays there."""
    account = _account_for("destroy", stage, ask=True)
    try:
        stack_id = remains.stack_id(account, stack_name(stage))
    except (BotoCoreError, ClientError):
        # The roles of the CDK may have the access that these credentials lack; otherwise it prints the error.
        stack_id = None
    _cdk(account, "destroy", "-c", f"stage={stage}", "--force")
    if stack_id is not None:
        _show_what_is_left(account, stack_id)


def _show_what_is_left(account: AwsAccount, stack_id: str) -> None:
    left = list[str]()
    for look, what in (
        (remains.kept, "the tables, queues and logs of a production stage"),
        (remains.copies, "tables that restores made"),
        (remains.exports, "exports, with customers' ids"),
    ):
        try:
            left += look(account, stack_id)
        except (BotoCoreError, ClientError) as error:
            left.append(f"{what}; they cannot be listed: {error}")
    left += [
        "backups that DynamoDB makes of tables as they are deleted, for 35 days",
        "metrics, for 15 months",
        "the stack of the bootstrap, with the code that was deployed, for other stacks too",
    ]
    screen.print("These stay on the account:")
    for one in left:
        screen.print(f"  {one}", markup=False)


def _with_duplicates(messages: Iterator[OrderMessage], share: float) -> Iterator[OrderMessage]:
    chance = random.Random(0)
    return chain.from_iterable(
        (message, message) if chance.random() < share else (message,) for message in messages
    )


def _account_for(command: str, stage: str, *, ask: bool = False) -> AwsAccount:
    """Find the account of the environment, and print command, account and region."""
    account = AwsAccount.of_environment()
    place = f"{stack_name(stage)} on account {account.number()}, {account.region}"
    if ask:
        typer.confirm(f"{command.capitalize()} {place}?", abort=True)
    else:
        aside.print(f"{command}: {place}")
    return account


def _settings(stage: str) -> Settings:
    """Read the settings as the CDK will read them."""
    config = _cdk_json()
    context = config.get("context", {})
    try:
        check_names(config, context)
        return Settings.from_context(stage, context.get("settings"), context.get("stages"))
    except SettingsError as error:
        raise UserError(str(error)) from None


def _cdk_json() -> dict[str, Any]:
    return dict(json.loads((ROOT / "cdk.json").read_text("utf-8")))


def _cdk(account: AwsAccount, *arguments: str) -> None:
    """Run the CDK. If it fails, end with its exit status."""
    region = {"AWS_REGION": account.region, "AWS_DEFAULT_REGION": account.region}
    done = subprocess.run(
        [*CDK, *arguments],
        cwd=ROOT,
        env=stack.cdk_environment({**os.environ, **region}),
        check=False,
    )
    if done.returncode:
        raise typer.Exit(done.returncode)
