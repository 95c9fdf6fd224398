"""The command `inventory-orders`: the commands of this machine and those of operators."""

from __future__ import annotations

import sys

import typer

from cli import operators, this_machine
from cli.common import aside
from operations.errors import UserError

app = typer.Typer(
    name="inventory-orders",
    help="Tools for the inventory & order service: on an AWS account, or on the embedded AWS.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(operators.app)
app.add_typer(this_machine.app)


def main() -> None:
    """Run a command, and print an error that a person can fix without a traceback."""
    try:
        app()
    except UserError as error:
        aside.print(f"[bold red]Error:[/] {error}", soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
