"""Commands for this machine: the embedded AWS, its demonstration, and the desk."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import webbrowser
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from local import emulator, sample_orders, stack, tokens
from local.commands.embedded import start_embedded
from local.desk import background
from local.endpoint import embedded_settings, use_embedded
from operations.aws import Aws
from operations.commands.bad_lines import refusals_of
from operations.commands.common import aside, print_json, screen
from operations.commands.target import Target, aws_of, on_stack
from operations.errors import UserError
from operations.http_api import HttpApi
from operations.orders_file import count_orders
from operations.words import counted

app = typer.Typer()
_PANEL = "This machine"

_UrlOnly = Annotated[
    bool, typer.Option("--url", help="Only print the address; do not open a browser.")
]

# Version 1 of the AWS CLI uses its own endpoint for SQS, whatever AWS_ENDPOINT_URL says.
_AWS_CLI = 'aws() { command aws ${AWS_ENDPOINT_URL:+"--endpoint-url=$AWS_ENDPOINT_URL"} "$@"; }'

# The exit status of `invoke` after a refusal or an error in the answer. 1 is a failure of the command, 2 a wrong
# option.
_NOT_GOOD = 3


@app.command(rich_help_panel=_PANEL)
def demo(
    orders: Annotated[
        Path | None,
        typer.Option(
            help="Send the orders of this file instead, with invented stock: a file for `send`, or "
            "local/real_orders/baskets.csv.gz, whose quantities and customers are invented."
        ),
    ] = None,
    unchecked: Annotated[
        bool,
        typer.Option("--unchecked", help="Send lines that are not orders, too."),
    ] = False,
) -> None:
    """Deploy to the embedded AWS, send thousands of orders through SQS, and check the books.

    It uses its own products, whose ids begin with demo-. Each run sets their stock.
    """
    if orders is not None:
        # make passes the name in quotes, so no shell expands `~`.
        orders = orders.expanduser()
        if not sample_orders.is_real(orders):
            with refusals_of(orders, None):
                count_orders(orders, unchecked=unchecked)
    running = start_embedded(screen)
    # Start the dashboard before the orders: it samples queue depths, which are not stored anywhere.
    page = background.start()
    # This module is imported late, so that output appears immediately.
    from local import demo as demonstration  # noqa: PLC0415
    from local import demo_report  # noqa: PLC0415

    use_embedded(running.endpoint)
    aws = Aws.of_stack(stack.STACK_NAME)
    result = demonstration.run_demo(aws, running, screen, orders)
    demo_report.show(result, screen)
    path = demonstration.write_json(result)
    screen.print(f"\n[bold]The dashboard, live:[/] {page.address('dashboard')}")
    screen.print(
        f"[dim]These figures are also in {os.path.relpath(path)}. The embedded AWS is still running. What to try next:\n"
        "  make dashboard                      open the dashboard in a browser\n"
        "  make desk                           see the orders to ship, the dead letters and the stock\n"
        "  .venv/bin/inventory-orders status   count rows, messages and dead letters\n"
        "  make demo ORDERS=FILE               send your own orders, in a file for `send`, with invented stock\n"
        "  make demo ORDERS=local/real_orders/baskets.csv.gz\n"
        "                                      send a wholesaler's orders\n"
        "  make down                           stop everything and delete its data[/]"
    )
    if not result.good:
        raise typer.Exit(1)


@app.command(rich_help_panel=_PANEL)
def up(
    no_samples: Annotated[
        bool,
        typer.Option(
            "--no-samples",
            help="Create no sample products, until `make down` (with make: NO_SAMPLES=1).",
        ),
    ] = False,
) -> None:
    """Start the embedded AWS, deploy the stack and create the sample products, unless everything is up to date."""
    running = start_embedded(screen, fill=True, samples=not no_samples)
    listed = "with the sample products listed" if stack.has_samples() else "without sample products"
    screen.print(
        f"[green]Ready[/] at {running.endpoint}, {listed}. "
        f'[dim]`eval "$(make env)"` points any AWS client there, `eval "$(make tokens)"` sets the addresses of the HTTP API, '
        f"`make down` stops it.[/]"
    )


@app.command(rich_help_panel=_PANEL)
def down(
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Keep tables, queues and logs for the next start (with make: KEEP=1)."
        ),
    ] = False,
) -> None:
    """Stop the embedded AWS of this checkout, the desk, and every process that they started.

    The embedded AWS loses all data, unless you pass --keep.
    """
    kept = emulator.is_kept()
    if emulator.running() is not None:
        screen.print("Stopping the embedded AWS")
    with screen.status("") as spinner:
        was_running = stack.down(keep=keep, report=spinner.update)
    if not was_running:
        forgotten = kept and not keep
        screen.print("Nothing was running." + (" The kept data is deleted." if forgotten else ""))
    elif keep:
        screen.print("Stopped. All data is kept for the next `make up`.")
    else:
        screen.print(
            "Stopped. All data of the embedded AWS is deleted: tables, queues and the functions' logs. "
            "[dim]`make down KEEP=1` keeps them.[/]"
        )


@app.command(rich_help_panel=_PANEL)
def dashboard(
    url: _UrlOnly = False,
) -> None:
    """Open the live CloudWatch dashboard of the embedded AWS, which is a page of the desk. `make down` stops the desk."""
    start_embedded(aside)
    address = background.start().address("dashboard")
    _open(
        address, "The dashboard", "It updates live: run `make demo` in another terminal.", url=url
    )


@on_stack(app)
def desk(
    url: _UrlOnly = False,
    role: Annotated[
        str,
        typer.Option(
            metavar="ROLE", help="Show what staff with this role see, on the embedded AWS."
        ),
    ] = "",
    account: Target | None = None,
) -> None:
    """Open the desk in a browser: products and stock, orders to ship, dead letters, lanes.

    It runs on this machine, with your credentials. With --stage, Ctrl-C stops it. Without --stage, the command starts
    the embedded AWS if necessary, and `make down` stops both.
    """
    if account is None:
        if role:
            tokens.check_role(role)
        start_embedded(aside)
        server = background.start()
        address = server.sign_in_address(role) if role else server.address()
        _open(address, "The desk", "`make down` stops it.", url=url)
        return
    if role:
        raise UserError(
            "on an account, staff sign in at the address in the output DeskUrl: leave out --role or --stage"
        )
    from local.desk.server import serve_account  # noqa: PLC0415 - slow to import

    aws = aws_of(account, aside)
    with contextlib.suppress(KeyboardInterrupt):
        serve_account(aws, lambda to: _open(to, "The desk", "Ctrl-C stops it.", url=url))


def _open(address: str, what: str, note: str, *, url: bool) -> None:
    """Open a page of the desk, or only print its address."""
    if url:
        screen.out(address)
        return
    screen.print(f"{what} is at [bold]{address}[/]. [dim]{note}[/]")
    # Without a display, a text-mode browser could take over the terminal.
    if sys.platform != "linux" or os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}:
        webbrowser.open(address)


def _running() -> emulator.Emulator:
    """Find the running embedded AWS, for a command without --stage."""
    running = emulator.running()
    if running is None:
        raise UserError("the embedded AWS is not running; start it with `make up`")
    return running


class EnvFormat(StrEnum):
    """The forms in which `env` prints settings."""

    SHELL = "shell"
    DOTENV = "dotenv"
    JSON = "json"


@app.command(rich_help_panel=_PANEL)
def env(
    form: Annotated[
        EnvFormat,
        typer.Option(
            "--format",
            help="`shell` for eval; `dotenv` for files such as .env, a line for each variable; `json` for an object "
            "(with make: FORMAT=json).",
        ),
    ] = EnvFormat.SHELL,
) -> None:
    """Print settings that point every AWS client at the running embedded AWS: shell commands, or another form.

    Only the shell commands also unset other AWS variables, such as AWS_PROFILE.
    """
    settings = embedded_settings(_running().endpoint)
    if form is EnvFormat.JSON:
        print_json(settings)
        return
    if form is EnvFormat.DOTENV:
        for name, value in settings.items():
            screen.out(f"{name}={value}")
        return
    # This includes AWS_PROFILE, which the empty configuration does not define, and AWS_SESSION_TOKEN.
    others = [name for name in os.environ if name.startswith("AWS_") and name not in settings]
    if others:
        screen.out(f"unset {' '.join(others)}")
    for name, value in settings.items():
        screen.out(f"export {name}={shlex.quote(value)}")
    screen.out(_AWS_CLI)


@app.command("tokens", rich_help_panel=_PANEL)
def print_tokens(
    customer: Annotated[
        str, typer.Option(metavar="USER", help="The userId of the customer.")
    ] = tokens.CUSTOMER,
    role: Annotated[
        str | None,
        typer.Option(help="A role whose token to print, too: pickers, stock, support or owners."),
    ] = None,
    locations: Annotated[
        str,
        typer.Option(
            help='The locations of the role, such as "berlin (default)"; * stands for all.'
        ),
    ] = "*",
) -> None:
    """Print shell commands that set variables for the HTTP API: its addresses, a customer's token and an operator's token.

    `SERVER_API` is for signed requests, and `CUSTOMER_API` for tokens; unlike the stack's outputs, both resolve. With `--role`,
    `ROLE_TOKEN` is the token of that role. The tokens are valid for 12 hours, on the embedded AWS only.
    """
    _running()
    aws = aws_of(None, aside)
    for name, value in {
        "SERVER_API": HttpApi.of(aws).url,
        "CUSTOMER_API": HttpApi.of(aws, "CustomerApiUrl").url,
        "CUSTOMER_TOKEN": tokens.customer_token(aws, customer),
        "OPERATOR_TOKEN": tokens.operator_token(aws),
        **({} if role is None else {"ROLE_TOKEN": tokens.role_token(aws, role, locations)}),
    }.items():
        screen.out(f"export {name}={shlex.quote(value)}")


@app.command(rich_help_panel=_PANEL)
def invoke(
    function: Annotated[str, typer.Argument(help="Name of a folder in functions/.")],
    event: Annotated[Path, typer.Argument(help="A JSON file, such as those in events/.")],
) -> None:
    """Invoke one handler with one event: on the running stack, or in this process with moto if no stack is running.

    The exit status is 0 if the event is accepted; 1 if there is no answer, or if the event is for another function and
    is not sent; 3 if the answer is a refusal, an error or "later", or if a batch has returned or dead-lettered
    messages.
    """
    from local import invoke as invocations  # noqa: PLC0415 - boto3 is slow to import
    from testing.world import handlers  # noqa: PLC0415

    if function not in handlers.function_names():
        known = ", ".join(handlers.function_names())
        raise UserError(f"there is no function {function}; the functions are {known}")
    content = invocations.read_event(event, function)
    meant = invocations.addressee(event, content)
    if meant not in (None, function):
        raise UserError(
            f"{event} is an event for {meant}, not {function}; run: make invoke FUNCTION={meant} EVENT={event}"
        )
    running = emulator.running()
    if running is not None:
        aside.print(f"[dim]On the running stack at {running.endpoint}[/]")
        use_embedded(running.endpoint)
        result = invocations.invoke_deployed(Aws.of_stack(stack.STACK_NAME), function, content)
    else:
        aside.print(
            "[dim]No stack is running: invoked in this process, with moto and the demo's catalogue[/]"
        )
        result = invocations.invoke_in_process(function, content)
    for heading, lines in (
        ("Logs", invocations.readable(result.logs)),
        ("Dead letters", result.dead_letters),
    ):
        if lines:
            aside.print(f"[bold]{heading}[/]")
            aside.print("\n".join(lines), markup=False)
    aside.print("[bold]Answer[/]")
    screen.out(json.dumps(result.answer, indent=2))
    if result.failed:
        raise typer.Exit(1)
    if result.dead_lettered:
        aside.print(f"[bold red]Not accepted:[/] {counted(result.dead_lettered, 'dead letter')}")
    if not result.is_good:
        raise typer.Exit(_NOT_GOOD)


@app.command(rich_help_panel=_PANEL)
def example(
    name: Annotated[
        str | None, typer.Argument(help="The example to run. Default: list all names.")
    ] = None,
) -> None:
    """Run a race that breaks naive code, then the same race with the service's code."""
    from local import examples  # noqa: PLC0415

    if name is None or name not in examples.EXAMPLES:
        for known, function in sorted(examples.EXAMPLES.items()):
            screen.print(f"  [bold]{known:20}[/] {(function.__doc__ or '').splitlines()[0]}")
        if name is not None:
            raise UserError(f"there is no example {name}")
        return
    running = start_embedded(screen)
    use_embedded(running.endpoint)
    with examples.sandbox() as sandbox:
        result = examples.EXAMPLES[name](sandbox)
    screen.print(f"\n[bold]{name}[/]")
    for line in result.lines:
        screen.print(f"  {line}")
    screen.print(f"\n[dim]docs/patterns.md#{name} explains it.[/]")
    if not result.as_expected:
        raise typer.Exit(1)
