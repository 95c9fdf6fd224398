"""The command `inventory-orders` of a checkout: the commands for operators, for deployments and for this machine."""

from __future__ import annotations

import os

from local import emulator
from local.commands import deployment, this_machine
from local.commands.embedded import ThisCheckout
from local.process import LOGS
from operations.commands import main as operators
from operations.commands import target
from operations.errors import UserError

target.checkout = ThisCheckout()
app = operators.app
for commands in (deployment, this_machine):
    app.add_typer(commands.app)


def main() -> None:
    """Run a command. For errors that the user can fix, print only the message, without a traceback."""
    operators.main(_run)


def _run() -> None:
    """Run the command. If it fails because the embedded AWS was stopped, report that as the error."""
    try:
        app()
    except Exception as error:
        if not emulator.is_lost():
            raise
        raise UserError(
            "the embedded AWS stopped before this command finished. `make down` may have stopped it; "
            f"if not, see the end of {os.path.relpath(LOGS / 'emulator.log')}"
        ) from error


if __name__ == "__main__":
    main()
