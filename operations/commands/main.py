"""The command `inventory-orders`, with the commands for operators of a deployed stack."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.markup import escape
from typer.core import TyperGroup

from inventory_orders.version import VERSION

from ..errors import UserError
from . import books, events, imports, levels, load, queues, reports, tables, verification
from .common import aside
from .target import PANEL, folder


class _Commands(TyperGroup):
    """Accepts ids such as `-5` as arguments: no option begins with a digit."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, and let it accept ids that begin with a hyphen."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            command.ignore_unknown_options = any(re.match("-[0-9]", text) for text in rest)
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command. An unknown option may be an id that begins with a hyphen."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            # Typer does not export this class.
            if type(error).__name__ == "NoSuchOption":
                vars(error)["message"] += ". Write -- before an id that begins with a hyphen"
            raise


app = typer.Typer(
    cls=_Commands,
    name="inventory-orders",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for commands in (queues, books, load, tables, events, reports, verification):
    app.add_typer(commands.app)
app.add_typer(imports.app, name="import", rich_help_panel=PANEL)
app.add_typer(levels.app, name="levels", rich_help_panel=PANEL)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"inventory-orders {VERSION}")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Operate the inventory & order service. In a checkout, more commands deploy the service or run it on this machine."""


def main(run: Callable[[], object] = app) -> None:
    """Run a command. For errors that the user can fix, print only the message, without a traceback.

    Like Ctrl-C, SIGTERM and a closed terminal (except under `nohup`) stop the command after it has cleaned up.
    Background commands of a shell ignore Ctrl-C (POSIX, Shell Command Language, 2.11), and this command does not change
    that.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        run()
    except UserError as error:
        _fail(str(error))
    except (BotoCoreError, ClientError) as error:
        from ..verify.report import what_went_wrong  # noqa: PLC0415 - slow to import

        said = " ".join(what_went_wrong(error).split())
        _fail(
            f"AWS: {said}. Run the command again; if it fails again, check credentials, region and network"
        )
    except OSError as error:
        # The user named a file that cannot be written, or the checkout is read-only. Every other error is a bug.
        if error.filename is None or error.errno not in _OF_FILES:
            raise
        _fail(
            f"{error.filename}: {os.strerror(error.errno or 0)}. "
            f"The commands write to {folder()}: it must be writable, with free space"
        )


_OF_FILES = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.ENOTDIR, errno.EISDIR}


def _fail(message: str) -> NoReturn:
    aside.print(f"[bold red]Error:[/] {escape(message)}")
    sys.exit(1)


if __name__ == "__main__":
    main()
