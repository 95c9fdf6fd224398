"""The stack that a command works on: the options that choose one on an account, or the embedded AWS of a checkout."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console

from inventory_orders.naming import STAGE, stack_name

from ..account import AwsAccount
from ..aws import Aws
from ..errors import UserError
from .common import screen

PANEL = "Operators"
"""The heading in `--help` of commands that act on a stack."""


@dataclass(frozen=True)
class Target:
    """A stack on an AWS account, or on another AWS that the environment points at.

    Attributes:
        stack_name: Its name in CloudFormation.
        prefix: Prefix of the service's outputs.
        is_stage: Whether the user named a stage, which is always on a real account.
    """

    stack_name: str
    prefix: str = ""
    is_stage: bool = True

    def find(self) -> Aws:
        """Read the stack's outputs.

        Raises:
            UserError: The environment names no real account, or the stack cannot be read.
        """
        try:
            account = AwsAccount.of_environment(anywhere=not self.is_stage)
        except UserError as error:
            if not self.is_stage or checkout is None:
                raise
            raise UserError(
                f"{error}. For the embedded AWS, leave out the stage (--stage, or STAGE of make)"
            ) from error
        return Aws.of_stack(self.stack_name, account.session, self.prefix)


class Checkout(Protocol):
    """A checkout with its embedded AWS.

    Attributes:
        stack_name: Name of the stack on the embedded AWS.
        folder: Folder for files that commands write.
    """

    stack_name: str
    folder: Path

    def find(self) -> str:
        """Point this process at the embedded AWS, and return its endpoint.

        Raises:
            UserError: The embedded AWS is not running.
        """

    def start(self, console: Console) -> str:
        """Start and deploy the embedded AWS unless it is up to date, then do the same as `find`."""


checkout: Checkout | None = None
"""The checkout, if its own command is running; None if only the package is installed."""


def needed_checkout() -> Checkout:
    """Return the checkout, which a command needs if no option names a stack.

    Raises:
        UserError: Only the package is installed.
    """
    if checkout is None:
        raise UserError(
            "name a stack: --stack STACK, with --prefix PREFIX if its outputs have one, or --stage STAGE. "
            "The embedded AWS is available only in a checkout of the service"
        )
    return checkout


def folder() -> Path:
    """Return the folder for files that commands write: the checkout's own, or `.local` in the current folder."""
    return Path(".local") if checkout is None else checkout.folder


def checked_stage(stage: str | None) -> str | None:
    """Check the name of a stage, and return it."""
    if stage is not None and not STAGE.fullmatch(stage):
        raise typer.BadParameter("a stage is 1 to 20 lowercase letters, digits or hyphens")
    return stage


_OPTIONS = {
    "stage": Annotated[
        str | None,
        typer.Option(
            "--stage",
            "--account",
            metavar="STAGE",
            callback=checked_stage,
            help="Use the stack of this stage on the AWS account of your environment. Default: the embedded AWS of a checkout. "
            "--account is an alias.",
        ),
    ],
    "stack": Annotated[
        str | None,
        typer.Option(
            metavar="STACK",
            help="Use this stack of an app of your own, on the AWS of your environment.",
        ),
    ],
    "prefix": Annotated[
        str | None,
        typer.Option(
            metavar="PREFIX",
            help="Prefix of the service's outputs in the stack: the argument of `add_outputs`.",
        ),
    ],
}


def on_stack(app: typer.Typer, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a command that works on a stack.

    Instead of its argument `account`, users get options that name a stack. Without these options, the command
    gets None as its `account`, for the embedded AWS.

    Args:
        app: The group of the command.
        more: Further arguments of `app.command`.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_options(
            *, stage: str | None, stack: str | None, prefix: str | None, **others: Any
        ) -> None:
            command(account=_chosen(stage, stack, prefix), **others)

        signature = inspect.signature(command, eval_str=True)
        parameters = [p for name, p in signature.parameters.items() if name != "account"]
        parameters += [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=option)
            for name, option in _OPTIONS.items()
        ]
        with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        app.command(rich_help_panel=PANEL, **more)(with_options)
        return command

    return add


def _chosen(stage: str | None, stack: str | None, prefix: str | None) -> Target | None:
    if stage is not None and stack is not None:
        raise typer.BadParameter("name a stack with either --stage or --stack")
    name = stack_name(stage) if stage is not None else stack
    if name is not None:
        return Target(name, prefix or "", is_stage=stage is not None)
    if prefix is not None:
        raise typer.BadParameter("use --stack to name the stack that has this prefix")
    return None


def say_which(aws: Aws, embedded: str, console: Console) -> None:
    """Print which AWS a report describes. `embedded` is the endpoint of the embedded AWS, empty on an account."""
    name = f"The embedded AWS at {embedded}" if embedded else "AWS"
    console.print(f"[bold]{name}[/]: {aws.place}")


def aws_of(account: Target | None, console: Console = screen) -> Aws:
    """Find the stack on the AWS that the environment points at, or by default on the embedded AWS.

    Prints to `console` which of them it found.
    """
    if account is not None:
        endpoint, aws = "", account.find()
    else:
        embedded = needed_checkout()
        endpoint, aws = embedded.find(), Aws.of_stack(embedded.stack_name)
    say_which(aws, endpoint, console)
    return aws
