"""Commands that run on this machine only: the embedded AWS, and what it shows."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cli.common import aside, screen
from local import emulator, stack
from local.dashboard import background
from local.endpoint import embedded_settings, use_embedded
from operations.aws import Aws
from operations.errors import UserError

app = typer.Typer()
_PANEL = "This machine"


@app.command(rich_help_panel=_PANEL)
def demo(
    orders: Annotated[
        Path | None,
        typer.Option(help="A basket file, whose first 1,000 orders are replayed instead."),
    ] = None,
) -> None:
    """Deploy to the embedded AWS, send thousands of orders through SQS, and read the books."""
    if orders is not None and not orders.is_file():
        raise UserError(f"{orders} does not exist")
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
        "  .venv/bin/inventory-orders status   tables, queues, dead letters\n"
        '  eval "$(make env)"                  any AWS client sees this stack\n'
        "  make down                           stop it[/]",
        soft_wrap=True,
    )
    if not outcome.good:
        raise typer.Exit(1)


@app.command(rich_help_panel=_PANEL)
def up() -> None:
    """Start the embedded AWS with the stack deployed. Does nothing where that is so already."""
    running = _up(screen)
    screen.print(
        f"[green]Ready[/] at {running.endpoint}. "
        f'[dim]`eval "$(make env)"` points any AWS client there, `make down` stops it.[/]'
    )


@app.command(rich_help_panel=_PANEL)
def down() -> None:
    """Stop the embedded AWS of this checkout, the dashboard, and everything that they started."""
    screen.print("Stopped." if stack.down() else "Nothing was running.")


@app.command(rich_help_panel=_PANEL)
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


@app.command(rich_help_panel=_PANEL)
def env() -> None:
    """Print `export NAME=value` lines that point any AWS client at the running embedded AWS."""
    running = emulator.running()
    if running is None:
        raise UserError("the embedded AWS does not run; start it with `make up`")
    for name, value in embedded_settings(running.endpoint).items():
        typer.echo(f"export {name}={shlex.quote(value)}")


@app.command(rich_help_panel=_PANEL)
def invoke(
    function: Annotated[str, typer.Argument(help="Name of a folder in functions/.")],
    event: Annotated[Path, typer.Argument(help="A JSON file, such as those in events/.")],
) -> None:
    """Invoke one handler with one event: on the running stack, else in this process against moto."""
    from local import invoke as invocations  # noqa: PLC0415 - moto and boto3 are slow to import

    if function not in invocations.function_names():
        known = ", ".join(invocations.function_names())
        raise UserError(f"there is no function {function}; there are: {known}")
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


@app.command(rich_help_panel=_PANEL)
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
            raise UserError(f"there is no example {name}")
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


def _up(console: Console) -> emulator.Emulator:
    began = time.monotonic()
    with console.status("Looking for the embedded AWS") as spinner:

        def say(what: str) -> None:
            spinner.update(what)
            console.print(f"[dim]{time.monotonic() - began:4.0f} s[/] {what}")

        return stack.up(say)
