"""The embedded AWS of this checkout, for operators' commands and for the commands for this machine."""

from __future__ import annotations

import time

from rich.console import Console

from local import STATE, emulator, stack
from local.commands.deployment import cdk_json
from local.endpoint import use_embedded
from operations.aws import Aws
from operations.errors import UserError


class ThisCheckout:
    """Implements the protocol `operations.commands.target.Checkout` for this checkout."""

    stack_name = stack.STACK_NAME
    folder = STATE

    def find(self) -> str:
        running = emulator.running()
        if running is None:
            raise UserError(
                "the embedded AWS is not running; start it with `make up`, or name a stage in your account: "
                "--stage dev (or STAGE=dev with make)"
            )
        use_embedded(running.endpoint)
        return running.endpoint

    def start(self, console: Console) -> str:
        running = start_embedded(console)
        use_embedded(running.endpoint)
        return running.endpoint


def start_embedded(
    console: Console, *, fill: bool = False, samples: bool = True
) -> emulator.Emulator:
    """Start and deploy the embedded AWS unless it is up to date, and create the sample products.

    With `fill`, it creates missing sample products even if the embedded AWS is up to date. Without `samples`, it creates
    none until the data of the embedded AWS is deleted.
    """
    cdk_json()
    began = time.monotonic()
    steps = 0
    with console.status("Looking for the embedded AWS") as spinner:

        def report(step: str) -> None:
            nonlocal steps
            steps += 1
            spinner.update(step)
            console.print(f"[dim]{time.monotonic() - began:4.0f} s[/] {step}")

        running = stack.up(report, samples=samples)
        if (steps or fill) and stack.has_samples():
            from local import shelf  # noqa: PLC0415 - boto3 is slow to import

            use_embedded(running.endpoint)
            shelf.fill(Aws.of_stack(stack.STACK_NAME))
        return running
