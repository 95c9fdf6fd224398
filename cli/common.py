"""What all commands share: where they print, and which AWS they use."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from local import emulator, stack
from local.endpoint import use_embedded
from operations.aws import Aws, refuse_loopback
from operations.errors import UserError

# Progress and errors go to `aside`, so that a shell can read standard output.
screen = Console(highlight=False)
aside = Console(stderr=True, highlight=False)


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


def aws_of(account: Stage | None) -> Aws:
    """Find the stack of a stage on the AWS account of the environment, or by default the one on the embedded AWS.

    Raises:
        UserError: There is no such stack, or the environment points at this machine.
    """
    if account is not None:
        refuse_loopback(os.environ)
        return Aws.of_stack(f"InventoryOrders-{account.value}")
    running = emulator.running()
    if running is None:
        raise UserError(
            "the embedded AWS is not running; start it with `make up`, or name a stage of your account: "
            "--account dev"
        )
    use_embedded(running.endpoint)
    return Aws.of_stack(stack.STACK_NAME)
