"""Commands on whole tables: restore them, and forget a customer."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.books import show_audit
from cli.common import (
    PANEL,
    OnAccount,
    aside,
    aws_of,
    print_problems,
    progress_bar,
    screen,
    table_of,
)
from infra.settings import stack_name
from local import stack
from operations.errors import UserError
from operations.words import counted

if TYPE_CHECKING:
    from operations.restore import Differences

app = typer.Typer()


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
            show_audit(work.beside)
        else:
            screen.print(
                f"An earlier run put the rows back at {back_since}. This one starts the service and publishes them: to "
                "compare the rows again, run it once more."
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
    print_problems("Cannot be published", published.problems)
    screen.print(f"[green]All rows are back:[/] {published.events:,} events say so.")
    if not show_audit(aws) or published.problems:
        raise typer.Exit(1)


def _show_differences(found: Differences) -> None:
    kinds = dict.fromkeys([*found.back, *found.gone])
    rows = [(kind.value, found.back[kind], found.gone[kind]) for kind in kinds]
    headings = ("table", "rows that go back, and holds", "rows made since, to be removed")
    screen.print(table_of(headings, rows) if rows else "No row differs.")
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
    with progress_bar() as progress:
        task = progress.add_task("Forgetting", total=count)
        work = forgets.Forgetting(aws, user, key, lambda: progress.advance(task))
        try:
            work.run()
        except StoreError as error:
            raise UserError(
                f"DynamoDB failed ({error}). Done so far: {counted(work.done, 'order')}; run the same command again"
            ) from error
    print_problems("Not changed", work.problems.values())
    screen.print(f"{counted(work.done, 'order')} under a pseudonym now: {work.pseudonym}")
    if work.problems:
        raise typer.Exit(1)
