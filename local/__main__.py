"""`python -m local`: the developer's command line."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
import time
import webbrowser
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.table import Table

from local import ROOT, emulator, queues, stack
from local.aws import Aws, embedded_settings, refuse_loopback, use_embedded
from local.dashboard import background
from local.process import LocalError
from local.shop import Message, read_orders

if TYPE_CHECKING:
    from rich.status import Status

    from local.books import Account, Entry
    from local.redrive import Findings

app = typer.Typer(
    help="The embedded AWS, and tools for the deployed stack.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# What a person reads goes to standard error where standard output is for a shell.
screen = Console(highlight=False)
aside = Console(stderr=True, highlight=False)


class QueueName(StrEnum):
    """The two ways in for orders."""

    STANDARD = "standard"
    FIFO = "fifo"


class AnyQueue(StrEnum):
    """All queues, in the order of `queues.QUEUES`."""

    STANDARD = "standard"
    FIFO = "fifo"
    STOCK = "stock"
    CANCELLATION = "cancellation"
    CATALOGUE = "catalogue"


class Stage(StrEnum):
    """The stages of the stack."""

    DEV = "dev"
    PROD = "prod"


OnAccount = Annotated[
    Stage | None,
    typer.Option(
        "--account",
        metavar="STAGE",
        help="Use the stack of this stage (dev or prod) on the AWS account of your environment, "
        "instead of the embedded AWS.",
    ),
]


@app.command()
def demo(
    orders: Annotated[
        Path | None,
        typer.Option(help="A basket file, whose first 1,000 orders are replayed instead."),
    ] = None,
) -> None:
    """Deploy to the embedded AWS, send thousands of orders through SQS, and read the books."""
    if orders is not None and not orders.is_file():
        raise LocalError(f"{orders} does not exist")
    running = _up(screen)
    # Before the orders: what a queue held is known only from looking at it.
    page = background.start()
    # Only now, so that the first lines appear at once.
    from local import demo as demonstration  # noqa: PLC0415

    use_embedded(running.endpoint)
    aws = Aws.of_stack(stack.STACK_NAME)
    outcome = demonstration.run_demo(aws, running, screen, orders)
    demonstration.show(outcome, screen)
    path = demonstration.write_json(outcome)
    screen.print(f"\n[bold]The dashboard, live:[/] {page.endpoint}")
    screen.print(
        f"[dim]The same figures are in {os.path.relpath(path)}. The embedded AWS still runs; try next:\n"
        "  make dashboard                      open that page\n"
        "  make invoke FUNCTION=place_orders EVENT=events/place_orders.json\n"
        "  make demo ORDERS=FILE               real orders instead, one a line\n"
        "  .venv/bin/python -m local status    tables, queues, dead letters\n"
        '  eval "$(make env)"                  any AWS client sees this stack\n'
        "  make down                           stop it[/]",
        soft_wrap=True,
    )
    if not outcome.good:
        raise typer.Exit(1)


@app.command()
def up() -> None:
    """Start the embedded AWS with the stack deployed. Does nothing where that is so already."""
    running = _up(screen)
    screen.print(
        f"[green]Ready[/] at {running.endpoint}. "
        f'[dim]`eval "$(make env)"` points any AWS client there, `make down` stops it.[/]'
    )


@app.command()
def down() -> None:
    """Stop the embedded AWS of this checkout, the dashboard, and everything that they started."""
    screen.print("Stopped." if stack.down() else "Nothing was running.")


@app.command()
def dashboard(
    png: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Write a picture of it, without a window."
        ),
    ] = None,
    height: Annotated[
        int | None, typer.Option(min=100, help="Of the picture, in pixels; all without it.")
    ] = None,
    url: Annotated[
        bool, typer.Option("--url", help="Print its address and nothing else; open no browser.")
    ] = False,
) -> None:
    """Show the CloudWatch dashboard of the stack on this machine, live. `make down` stops it."""
    _up(aside)
    page = background.start()
    if png is not None:
        from local.dashboard import browser  # noqa: PLC0415 - slow to import

        browser.take_picture(page.endpoint, png, height)
        aside.print(f"{png} shows the dashboard.")
    elif url:
        typer.echo(page.endpoint)
    else:
        screen.print(
            f"The dashboard is at [bold]{page.endpoint}[/]. "
            "[dim]It is live: run `make demo` in another terminal. `make down` stops it.[/]",
            soft_wrap=True,
        )
        # Without a screen a browser of the terminal's might take the terminal.
        if sys.platform != "linux" or os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}:
            webbrowser.open(page.endpoint)


@app.command()
def env() -> None:
    """Print `export NAME=value` lines that point any AWS client at the running embedded AWS."""
    running = emulator.running()
    if running is None:
        raise LocalError("the embedded AWS does not run; start it with `make up`")
    for name, value in embedded_settings(running.endpoint).items():
        typer.echo(f"export {name}={shlex.quote(value)}")


@app.command()
def send(
    file: Annotated[
        Path,
        typer.Argument(
            help="Orders as JSON lines, or a basket file (product codes of one order a line, separated by "
            "commas); either may end in .gz.",
            exists=True,
            dir_okay=False,
        ),
    ],
    queue: Annotated[QueueName, typer.Option(help="Which queue.")] = QueueName.STANDARD,
    rate: Annotated[
        float | None, typer.Option(min=0.1, help="Orders a second; as fast as it goes without it.")
    ] = None,
    duplicates: Annotated[
        float, typer.Option(min=0, max=100, help="Percentage of messages to send twice.")
    ] = 0.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Send only the first so many.")] = None,
    account: OnAccount = None,
) -> None:
    """Send orders through SQS. Bodies are sent as they are: the service judges them."""
    aws = _aws(account)
    count = 0

    def progress(more: int) -> None:
        nonlocal count
        count += more
        spinner.update(f"{count:,} messages sent")

    messages = _with_duplicates(islice(read_orders(file), limit), duplicates / 100)
    output = queues.STANDARD if queue is QueueName.STANDARD else queues.FIFO
    began = time.monotonic()
    with aside.status("Sending") as spinner:
        queues.send(aws, output, messages, rate=rate, sent=progress)
    seconds = time.monotonic() - began
    screen.print(
        f"{count:,} messages sent to {aws.outputs[output].rsplit('/', 1)[1]} in {seconds:.1f} s. "
        f"[dim]`python -m local status` shows what becomes of them.[/]"
    )


@app.command()
def invoke(
    function: Annotated[str, typer.Argument(help="Name of a folder in functions/.")],
    event: Annotated[Path, typer.Argument(help="A JSON file, such as those in events/.")],
) -> None:
    """Invoke one handler with one event: on the running stack, else in this process against moto."""
    from local import invoke as invocations  # noqa: PLC0415 - moto and boto3 are slow to import

    if function not in invocations.function_names():
        known = ", ".join(invocations.function_names())
        raise LocalError(f"there is no function {function}; there are: {known}")
    content = invocations.read_event(event)
    running = emulator.running()
    if running is not None:
        aside.print(f"[dim]On the running stack at {running.endpoint}[/]")
        use_embedded(running.endpoint)
        result = invocations.invoke_deployed(Aws.of_stack(stack.STACK_NAME), function, content)
    else:
        aside.print(
            "[dim]No stack is running: in this process, against moto, with the demo's catalogue[/]"
        )
        result = invocations.invoke_in_process(function, content)
    for heading, lines in (
        ("Logs", invocations.readable(result.logs)),
        ("Dead letters", result.dead_letters),
    ):
        if lines:
            aside.print(f"[bold]{heading}[/]")
            aside.print("\n".join(lines), markup=False, soft_wrap=True)
    aside.print("[bold]Answer[/]")
    typer.echo(json.dumps(result.answer, indent=2))
    if result.failed:
        raise typer.Exit(1)


@app.command()
def status(account: OnAccount = None) -> None:
    """Show what the tables and queues hold, and why messages were dead-lettered."""
    aws = _aws(account)
    tables = Table("table", "items", "", box=None)
    note = "approximate, some hours old" if account else ""
    for name in ("ProductsTableName", "OrdersTableName", "StockAdjustmentsTableName"):
        items = aws.dynamodb.describe_table(TableName=aws.outputs[name])["Table"]["ItemCount"]
        tables.add_row(name.removesuffix("TableName"), f"{items:,}", note)
    screen.print(tables, "")
    depths = Table("queue", "waiting", "in flight", box=None)
    for name in (*queues.QUEUES, *queues.DEAD_LETTERS):
        depth = queues.depth(aws, name)
        depths.add_row(name.removesuffix("Url"), f"{depth.waiting:,}", f"{depth.in_flight:,}")
    screen.print(depths)
    letters = [
        letter
        for name in queues.DEAD_LETTERS
        for letter in queues.peek_dead_letters(aws.sqs, aws.outputs[name], 1000)
    ]
    if letters:
        causes = Counter(letter.code for letter in letters)
        example = {letter.code: letter.message for letter in letters}
        dead = Table("dead letters", "", "for example", box=None)
        for code, count in causes.most_common():
            dead.add_row(code, f"{count:,}", example[code])
        screen.print("", dead)


@app.command()
def redrive(
    send: Annotated[
        bool,
        typer.Option("--send", help="Really send them back. Without it nothing is changed."),
    ] = False,
    queue: Annotated[
        AnyQueue | None,
        typer.Option(help="Only the dead letters of this queue; those of all without it."),
    ] = None,
    cause: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODE",
            help="Send back this errorCode and no other; may be given more than once. Without it: "
            "TOO_MANY_DELIVERIES, UNKNOWN_PRODUCT and BELOW_FLOOR, whose causes may have been repaired since.",
        ),
    ] = None,
    rate: Annotated[
        float,
        typer.Option(min=0.1, help="Letters a second at the most, so that the queue keeps up."),
    ] = 20.0,
    account: OnAccount = None,
) -> None:
    """Show the dead letters by cause, and send back those that may succeed now.

    What can never succeed (bad JSON, a broken schema, a used id) stays: its sender has to send it anew. Safe to
    interrupt and to repeat: a letter is sent first and deleted then, and the service recognises what it has seen.
    """
    from local import redrive as redriving  # noqa: PLC0415

    aws = _aws(account)
    causes = frozenset(cause) if cause else redriving.MAY_SUCCEED_NOW
    findings: dict[str, redriving.Findings] = {}
    pairs = zip(AnyQueue, queues.DEAD_LETTERS, queues.QUEUES, strict=True)
    for name, dead_letters, source in pairs:
        if queue not in (None, name):
            continue
        url = aws.outputs[dead_letters]
        with aside.status(f"Reading the dead letters of {name}") as spinner:

            def progress(
                so_far: redriving.Findings, name: str = name, spinner: Status = spinner
            ) -> None:
                back = so_far.count(redriving.Decision.SEND_BACK)
                spinner.update(f"{name}: {back:,} sent back")

            try:
                findings[name] = (
                    redriving.redrive(
                        aws.sqs, url, aws.outputs[source], causes, rate=rate, told=progress
                    )
                    if send
                    else redriving.look(aws.sqs, url, causes)
                )
            except (BotoCoreError, ClientError) as error:
                raise LocalError(
                    f"{name}: {error}. Nothing is lost: repair that, and run this again"
                ) from error
    _show_dead_letters(findings)
    back = sum(found.count(redriving.Decision.SEND_BACK) for found in findings.values())
    if send:
        screen.print(
            f"{back:,} sent back. [dim]`python -m local status` shows what becomes of them.[/]"
        )
    else:
        screen.print(f"Nothing was changed. [dim]With --send, {back:,} go back.[/]")


def _show_dead_letters(findings: Mapping[str, Findings]) -> None:
    table = Table("queue", "cause", "letters", "", "for example", box=None)
    for name, found in findings.items():
        for group in found.groups.values():
            for decision, count in group.decisions.items():
                table.add_row(name, group.code, f"{count:,}", decision.value, group.example)
        if found.crowded:
            aside.print(
                f"[dim]Of {len(found.crowded):,} groups of {name} only the first letters are visible at once; "
                "more may stand behind them, and --send gets there.[/]"
            )
    screen.print(table if table.row_count else "There are no dead letters.")


@app.command()
def audit(
    product: Annotated[
        str | None, typer.Argument(help="Explain this product's stock, change by change.")
    ] = None,
    account: OnAccount = None,
) -> None:
    """Recompute every product's stock from adjustments and orders. Exit status 1 if a unit is unexplained.

    Meant for a time when nothing writes: it reads the three tables one after the other.
    """
    from local.books import history, read_books  # noqa: PLC0415

    aws = _aws(account)
    with aside.status("Reading all three tables"):
        books = read_books(aws)
    chosen = [a for a in books.accounts if product is None or a.product_id == product]
    if product is not None and not chosen:
        raise LocalError(f"there is no product {product}, and no row speaks of one")
    wrong = [entry for entry in chosen if entry.difference]
    if product is not None:
        for entry in chosen:
            _show_history(entry, history(books, entry))
    for entry in wrong:
        screen.print(
            f"[bold red]{entry.product_id}[/] has {entry.stock:,}, but its rows say "
            f"{entry.adjusted - entry.sold:,}: {entry.difference:+,} unexplained"
        )
    if wrong:
        raise typer.Exit(1)
    screen.print(
        f"[green]The books balance:[/] {len(chosen):,} products, {len(books.adjustments):,} adjustments, "
        f"{len(books.orders):,} orders, no difference."
    )


def _show_history(account: Account, entries: list[Entry]) -> None:
    table = Table(
        title=f"Why is {account.product_id} (since {account.created_at[:19]}) at {account.stock:,}?",
        title_justify="left",
        box=None,
    )
    for heading, justify in (("version", "right"), ("change", "right"), ("stock", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]  # a literal each
    table.add_column("what")
    table.add_column("when")
    for entry in entries:
        version = "" if entry.version is None else str(entry.version)
        change = f"{entry.delta:+,}" if entry.at else ""
        style = "" if entry.at else "dim"
        table.add_row(version, change, f"{entry.stock:,}", entry.what, entry.at[:26], style=style)
    screen.print(table)


@app.command()
def example(
    name: Annotated[
        str | None, typer.Argument(help="Which one; all their names are listed without it.")
    ] = None,
) -> None:
    """Show an anomaly really happening with naive code, and not happening with ours."""
    from local import examples  # noqa: PLC0415

    if name is None or name not in examples.EXAMPLES:
        for known, function in examples.EXAMPLES.items():
            screen.print(f"  [bold]{known:20}[/] {(function.__doc__ or '').splitlines()[0]}")
        if name is not None:
            raise LocalError(f"there is no example {name}")
        return
    running = _up(screen)
    use_embedded(running.endpoint)
    story = examples.EXAMPLES[name](examples.Stage.of(Aws.of_stack(stack.STACK_NAME)))
    screen.print(f"\n[bold]{name}[/]")
    for line in story.lines:
        screen.print(f"  {line}", soft_wrap=True)
    screen.print(f"\n[dim]docs/patterns.md#{name} explains it.[/]")
    if not story.as_told:
        raise typer.Exit(1)


@app.command()
def deploy(stage: Annotated[Stage, typer.Option(help="dev or prod; must be named.")]) -> None:
    """Deploy the stack to the AWS account of your environment."""
    _cdk("deploy", stage)


@app.command()
def destroy(stage: Annotated[Stage, typer.Option(help="dev or prod; must be named.")]) -> None:
    """Remove the stack from the AWS account of your environment. Asks first."""
    typer.confirm(
        f"Destroy the stack InventoryOrders-{stage.value} on the AWS account of your environment?",
        abort=True,
    )
    _cdk("destroy", stage, "--force")


def _up(console: Console) -> emulator.Emulator:
    began = time.monotonic()
    with console.status("Looking for the embedded AWS") as spinner:

        def say(what: str) -> None:
            spinner.update(what)
            console.print(f"[dim]{time.monotonic() - began:4.0f} s[/] {what}")

        return stack.up(say)


def _aws(account: Stage | None) -> Aws:
    if account is not None:
        refuse_loopback(os.environ)
        return Aws.of_stack(f"InventoryOrders-{account.value}")
    running = emulator.running()
    if running is None:
        raise LocalError(
            "the embedded AWS does not run; start it with `make up`, or name a stage on your account: "
            "--account dev"
        )
    use_embedded(running.endpoint)
    return Aws.of_stack(stack.STACK_NAME)


def _with_duplicates(messages: Iterator[Message], share: float) -> Iterator[Message]:
    chance = random.Random(0)
    return chain.from_iterable(
        (message, message) if chance.random() < share else (message,) for message in messages
    )


def _cdk(command: str, stage: Stage, *options: str) -> None:
    refuse_loopback(os.environ)
    cdk = ROOT / "node_modules" / ".bin" / "cdk"
    done = subprocess.run(
        [str(cdk), command, "--no-notices", "-c", f"stage={stage.value}", *options],
        cwd=ROOT,
        env=stack.cdk_environment(dict(os.environ)),
        check=False,
    )
    raise typer.Exit(done.returncode)


def main() -> None:
    """Run a command; what a person can act upon is printed without a traceback."""
    try:
        app()
    except LocalError as error:
        aside.print(f"[bold red]Error:[/] {error}", soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
