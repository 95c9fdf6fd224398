"""Commands for whole tables: restore them, or forget a customer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError
from ..words import counted
from .books import show_audit
from .common import aside, print_problems, progress_bar, screen, table_of
from .target import Target, aws_of, on_stack

if TYPE_CHECKING:
    from ..forget import Forgetting
    from ..restore import Differences

app = typer.Typer()


@on_stack(app)
def restore(
    to: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="The time to restore to, at most 35 days ago, such as 2026-11-21T09:30:00 (UTC).",
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Stop the service without asking.")] = (False),
    account: Target | None = None,
) -> None:
    """Restore all rows to an earlier time, and publish them. Before writing, it counts the rows and asks you to confirm.

    The service is stopped during the restore; messages wait in their queues. Orders placed since that time are
    cancelled. You may interrupt it and run it again. The exit status is 1 if the books do not balance afterwards.
    """
    from ..republish import moment  # noqa: PLC0415 - the layer is slow to import
    from ..restore import Restore  # noqa: PLC0415

    then = datetime.fromisoformat(moment(to)).replace(microsecond=0)
    aws = aws_of(account)
    work = Restore(aws, then)
    with aside.status("Restoring copies of the stack's tables") as spinner:

        def rows(found: Differences) -> None:
            spinner.update(f"{found.rows:,} rows compared")

        work.make_tables(spinner.update)
        back_since = work.rows_are_back_since
        found = None if back_since else work.look(rows)
        names = " ".join(work.beside.tables.values())
        screen.print(f"[dim]Delete these tables once you have checked the result: {names}[/]")
        if found is not None:
            _show_differences(found)
            screen.print(f"At {then.isoformat()}:", end=" ")
            show_audit(work.beside)
        else:
            screen.print(
                f"An earlier run restored the rows at {back_since}. This run starts the service and publishes them. To "
                "compare the rows again, run it once more."
            )
    if found is not None and not yes:
        typer.confirm("Stop the service and restore these rows?", abort=True)
    with aside.status("Stopping the service") as spinner:
        if found is not None:
            aside.print(
                "The service is stopped until this command, or another run of it, has finished."
            )
            work.stop(spinner.update)
            work.put_back(rows)
        work.start(spinner.update)
        published = work.republish(lambda n: spinner.update(f"{n:,} orders published"))
        work.finish()
    print_problems("Cannot be published", published.problems)
    screen.print(f"[green]All rows are restored:[/] {published.events:,} events published.")
    if not show_audit(aws) or published.problems:
        raise typer.Exit(1)


def _show_differences(found: Differences) -> None:
    kinds = dict.fromkeys([*found.back, *found.gone])
    rows = [(kind.value, found.back[kind], found.gone[kind]) for kind in kinds]
    headings = ("table", "rows to restore, and holds", "rows created since, to remove")
    screen.print(table_of(headings, rows) if rows else "No row differs.")
    for status, orders in found.cancelled.items():
        screen.print(
            f"{orders:,} orders placed since with status {status} will no longer hold stock."
        )


def _show_open(found: Mapping[str, str]) -> None:
    """List the open orders among a customer's orders, which are given with their statuses."""
    from ..forget import OPEN  # noqa: PLC0415 - the layer is slow to import

    rows = [(order_id, words) for order_id, status in found.items() if (words := OPEN.get(status))]
    if rows:
        screen.print(table_of(("open order", ""), rows))
        screen.print(
            "Ship or cancel these orders first: afterwards, they no longer say who paid, or whom to ship to."
        )


@on_stack(app)
def forget(
    user: Annotated[str, typer.Argument(help="The customer's userId.")],
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            readable=True,
            help="A file with the shop's secret key, 32 bytes or more. Default: the environment variable "
            "INVENTORY_ORDERS_PSEUDONYM_KEY. Use the same key every time.",
        ),
    ] = None,
    keep_limits: Annotated[
        bool,
        typer.Option(
            "--keep-limits",
            help="Keep the other keys in the orders' buyers, such as that of a card, and what was bought under them. Otherwise the "
            "customer may buy up to each purchase limit again.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Change orders without asking, even if some are open.")
    ] = False,
    account: Target | None = None,
) -> None:
    """Pseudonymise a customer in all of that customer's orders, and remove the orders' attributes and buyers.

    Other customers' orders lose the userId among their buyers; to find them, all orders are read. You cannot undo this, but you
    may interrupt it and run it again. The books do not change, and the service still recognises these orders if they are sent
    again. It lists open orders before it asks: ship or cancel them first, because afterwards they no longer say whose they are.
    The exit status is 1 if there is no such customer, or a row could not be changed.
    """
    from inventory_orders.errors import StoreError  # noqa: PLC0415 - the layer is slow to import

    from .. import forget as forgets  # noqa: PLC0415

    key = forgets.read_key(key_file, os.environ)
    if forgets.is_pseudonym(user):
        raise typer.BadParameter("this user id is a pseudonym", param_hint="USER")
    aws = aws_of(account)
    with aside.status("Looking for orders"):
        found, also = forgets.orders_of(aws, user), forgets.orders_bought_by(aws, user)
    count = len({*found, *also})
    where = aws.outputs["OrdersTableName"]
    _show_open(found)
    if count and not yes:
        what = f"Forget {user} in {counted(count, 'order')} of {where}"
        typer.confirm(f"{what}? You cannot undo it.", abort=True)
    with progress_bar() as progress:
        task = progress.add_task("Forgetting", total=count)
        advance = partial(progress.advance, task)
        work = forgets.Forgetting(aws, user, key, also, keep_limits, advance)
        try:
            work.run()
        except StoreError as error:
            raise UserError(
                f"DynamoDB failed ({error}). Done so far: {counted(work.done, 'order')}; run the same command again"
            ) from error
    _show_forgotten(work, where)


def _show_forgotten(work: Forgetting, where: str) -> None:
    if not work.is_known:
        raise UserError(
            f"{where} has no order of {work.user_id} (index byUser) or with that buyer, and none of the pseudonym {work.pseudonym}; "
            "nothing was changed. "
            "Check the userId, the stage and the key"
        )
    print_problems("Not changed", work.problems.values())
    screen.print(f"{counted(work.done, 'order')} pseudonymised: {work.pseudonym}")
    if work.problems:
        raise typer.Exit(1)


@on_stack(app)
def rebuild_movements(
    yes: Annotated[bool, typer.Option("--yes", help="Start without asking.")] = False,
    account: Target | None = None,
) -> None:
    """Record the units that all orders moved again, and delete rows that no order accounts for. Asks for confirmation first.

    Run it after you turn on the setting `movements`, and after you repair orders that are in UnrecordedMovementsQueue.
    Orders are placed as before. You may interrupt it and run it again: it continues where it stopped.
    """
    from ..history import Rebuild, estimate  # noqa: PLC0415 - the layer is slow to import

    aws = aws_of(account)
    aws.check_movements()
    cost = estimate(aws)
    screen.print(
        f"Orders to read: about {cost.orders:,}. Read units: about {cost.read_units:,}. Write units: about "
        f"{cost.write_units:,}."
    )
    if not yes:
        typer.confirm("Record all movements again?", abort=True)
    with progress_bar() as progress:
        task = progress.add_task("Orders", total=cost.orders)
        done = Rebuild(aws, lambda done: progress.update(task, completed=done.orders)).run()
    if done.unreadable:
        print_problems("Left out", [f"{counted(done.unreadable, 'order')}: audit names their rows"])
    screen.print(
        f"[green]All movements are recorded:[/] {counted(done.written, 'row')} written, {done.deleted:,} deleted."
    )
