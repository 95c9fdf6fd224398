"""The command `verify`: checks a deployed stack, and prints a report."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..account import has_account
from ..aws import Aws, is_loopback
from ..errors import UserError
from ..words import counted
from . import target
from .common import INTERRUPTED, aside, screen
from .target import Target, on_stack, say_which

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..verify.report import Report
    from ..verify.run import Run

app = typer.Typer()
_PRODUCTION_ORDERS = 10


def _known_checks(only: list[str] | None) -> list[str]:
    from ..verify import CHECKS  # noqa: PLC0415 - slow to import

    unknown = [name for name in only or () if name not in CHECKS]
    if unknown:
        raise typer.BadParameter(
            f"there is no check {unknown[0]}; the checks are {', '.join(CHECKS)}"
        )
    return only or []


@on_stack(app)
def verify(
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before sending orders to a production stage.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHECK",
            callback=_known_checks,
            help="Run only this check; can be repeated. Default: all.",
        ),
    ] = None,
    account: Target | None = None,
) -> None:
    """Verify a deployed stack with test traffic and by asking AWS about its resources. The exit status is 1 if a check fails.

    It starts the embedded AWS if necessary. Without AWS credentials in your environment, `--stage dev` also means the
    embedded AWS. Names of its products, orders and users begin with verify-. It delists its products and
    cancels its orders at the end, and also after Ctrl-C.
    """
    from ..verify.report import Report, what_went_wrong  # noqa: PLC0415 - slow to import

    run, endpoint = _run_on(_chosen(account))
    try:
        deployed = run.deployed
    except (BotoCoreError, ClientError) as error:
        raise UserError(f"{run.stack_name}: {what_went_wrong(error)}") from error
    place = {
        "embedded": run.embedded,
        "account": deployed.place["account"],
        "region": deployed.place["region"],
        "stack": run.stack_name,
        "production": deployed.protected,
    }
    say_which(run.aws, endpoint, screen)
    screen.print(f"[dim]Products, orders and users of this run: {run.name}-...[/]")
    if deployed.protected:
        run.orders = _PRODUCTION_ORDERS
        if not yes:
            typer.confirm(
                f"{run.stack_name} is protected against deletion, as production stages are. Send it some dozens of orders "
                f"of the user {run.name}-user?",
                abort=True,
            )
    report = Report(place, run.name, run.started_at)
    _run_checks(run, report, only or ())
    show(report, screen)
    file = target.folder() / "verify.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(report.as_json(), indent=2) + "\n", "utf-8")
    screen.print(f"[dim]This report is also in {os.path.relpath(file)}.[/]")
    if not report.good:
        raise typer.Exit(1 if report.finished else INTERRUPTED)


def _chosen(account: Target | None) -> Target | None:
    """Choose the stack on an account; None stands for the embedded AWS.

    Raises:
        UserError: The stage needs an account, and there are no credentials.
    """
    here = target.checkout
    if account is None or here is None or not account.is_stage or has_account():
        return account
    if account.stack_name == here.stack_name:
        return None
    raise UserError(
        f"there are no AWS credentials for {account.stack_name}: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY. The embedded AWS has only the stage dev"
    )


def _run_on(account: Target | None) -> tuple[Run, str]:
    """Find the stack. Returns a run, and the endpoint of the embedded AWS."""
    from ..verify.run import Run  # noqa: PLC0415 - slow to import

    if account is not None:
        aws = account.find()
        return Run(aws, aws.stack_name, embedded=is_loopback(aws.sqs.meta.endpoint_url)), ""
    embedded = target.needed_checkout()
    endpoint = embedded.start(aside)
    return Run(Aws.of_stack(embedded.stack_name), embedded.stack_name, embedded=True), endpoint


def _run_checks(run: Run, report: Report, only: Sequence[str]) -> None:
    """Run the given checks, or all of them, until Ctrl-C, and show what the run is waiting for."""
    from ..verify import verify as run_checks  # noqa: PLC0415

    with aside.status("") as spinner:

        def say(what: str) -> None:
            spinner.update(f"{counted(len(report.lines), 'line')}; now: {what}")

        run.say = say
        try:
            run_checks(run, report, only)
        except KeyboardInterrupt:
            aside.print("[bold red]Interrupted[/]")


_MARKS = {"passed": "[green]ok[/]", "failed": "[bold red]RED[/]", "not here": "[dim]--[/]"}


def show(report: Report, console: Console) -> None:
    """Print a report: lines, figures and conclusion."""
    from ..verify import TITLES  # noqa: PLC0415

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column()
    table.add_column()
    previous = ""
    for check, line in report.lines:
        if check in TITLES and check != previous:
            table.add_row("", "")
            table.add_row("", f"[bold]{TITLES[check]}[/]")
        previous = check
        style = "bold red" if line.state == "failed" else "dim" if line.state == "not here" else ""
        table.add_row(_MARKS[line.state.value], escape(line.name), escape(line.saw), style=style)
    console.print(table)
    for left in report.left:
        console.print(f"[bold red]Left:[/] {escape(left)}")
    console.print()
    console.print(_figures(report))
    console.print(_verdict(report))


def _figures(report: Report) -> Table:
    figures = report.figures
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    if speed := figures.get("ordersPerSecond"):
        table.add_row("Orders", f"{speed:,.0f}/s", "from the first message sent to the last answer")
    if size := figures.get("messagesPerBatch"):
        table.add_row(
            "Batches", f"{size:,.1f}", "messages on average in an invocation with messages"
        )
    if (rate := figures.get("conflictRate")) is not None:
        attempts = (
            f"of {figures['commitAttempts']:,.0f} commit attempts lost to a concurrent writer"
        )
        table.add_row("Conflicts", f"{100 * rate:.1f} %", attempts)
    if middle := figures.get("coldStartP50Milliseconds"):
        most, count = figures["coldStartMaxMilliseconds"], figures["coldStarts"]
        workers = f"median of {count:.0f} workers of place_orders; the slowest took {most:,.0f} ms"
        table.add_row("Cold start", f"{middle:,.0f} ms", workers)
    elif "coldStarts" in figures:
        table.add_row("Cold start", "none", "all workers were running")
    if dollars := figures.get("dollars"):
        what = f"for {figures['orders']:,.0f} orders like these on AWS, estimated from the handlers' metrics"
        table.add_row("Cost", f"${dollars:.4f}", what)
    return table


def _verdict(report: Report) -> str:
    green, red, hidden = (
        sum(line.state == state for _, line in report.lines)
        for state in ("passed", "failed", "not here")
    )
    seen = f"{green} of {counted(green + red, 'line')} green in {report.seconds:.0f} s"
    if hidden:
        seen += f"; {hidden} cannot be checked here"
    if report.good:
        return f"[bold green]Verified:[/] {seen}."
    if not report.finished:
        kept = (
            ""
            if report.left
            else " Its products are delisted, its orders cancelled and its dead letters removed."
        )
        return (
            f"[bold red]Not finished:[/] {seen}.{kept} Sent orders without an answer will be rejected: "
            "their products are gone."
        )
    return f"[bold red]Not verified:[/] {seen}."
