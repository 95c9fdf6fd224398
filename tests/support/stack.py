"""Runs commands, sends messages and waits on the deployed stack."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from local import ROOT, stack
from local.commands.main import main
from local.emulator import Emulator
from local.endpoint import use_embedded
from local.invoke import invoke_deployed
from operations import queues
from operations.aws import LIVE, Aws
from operations.commands.common import aside, screen
from operations.orders_file import OrderMessage

# Longer than a queue's visibility timeout, after which the messages of a killed invocation are redelivered.
QUIET_SECONDS = 240
# Reading the depth of all queues takes longer than checking most conditions.
LOOK_SECONDS = 10

COMMAND = str(Path(sys.executable).with_name("inventory-orders"))


@dataclass(frozen=True)
class Ended:
    """A command's exit status and output."""

    returncode: int
    stdout: str
    stderr: str


def cli(*arguments: str, check: bool = True) -> Ended:
    """Run the command line on the tests' embedded AWS, in this process: a new process would import everything again."""
    out, err = io.StringIO(), io.StringIO()
    status = 0
    of_sigterm = signal.getsignal(signal.SIGTERM)
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(ROOT),
        patch.dict(os.environ, COLUMNS="200"),
        patch.object(sys, "argv", ["inventory-orders", *arguments]),
        patch.object(screen, "_width", 200),
        patch.object(aside, "_width", 200),
    ):
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        finally:
            signal.signal(signal.SIGTERM, of_sigterm)
    done = Ended(status, out.getvalue(), err.getvalue())
    assert not check or status == 0, done
    return done


@contextmanager
def deployed(*, enforce_iam: bool) -> Iterator[tuple[Aws, Emulator]]:
    """Start an embedded AWS for the tests, with the stack deployed by the real CDK, and stop it at the end.

    Args:
        enforce_iam: Let functions do only what their roles allow, as on AWS. This makes each request slower.
    """
    stack.down()
    before = dict(os.environ)
    try:
        running = stack.up(lambda _: None, enforce_iam=enforce_iam)
        use_embedded(running.endpoint)
        yield Aws.of_stack(stack.STACK_NAME), running
    finally:
        os.environ.clear()
        os.environ.update(before)
        stack.down()


def wait_until(aws: Aws, condition: Callable[[], object]) -> None:
    """Wait for a condition as long as messages keep moving, and fail if none moves for a while.

    On a busy machine, messages move slowly.
    """
    seen, since, look_at, pause = None, time.monotonic(), 0.0, 0.05
    while not condition():
        if (now := time.monotonic()) >= look_at:
            look_at = now + LOOK_SECONDS
            if (depths := _depths(aws)) != seen:
                seen, since = depths, now
            quiet = now - since
            assert quiet < QUIET_SECONDS, f"it did not happen, and no message moves: {depths}"
        time.sleep(pause)
        pause = min(0.25, 1.2 * pause)


def wait_until_settled(aws: Aws) -> None:
    """Wait until the queues hold only delayed messages, and fail if no message moves for a while."""

    def is_due(name: str) -> bool:
        depth = queues.depth(aws, name)
        return depth.total > depth.later

    wait_until(aws, lambda: not any(map(is_due, queues.QUEUES)))


def _depths(aws: Aws) -> dict[str, queues.Depth]:
    return {name: queues.depth(aws, name) for name in queues.QUEUES}


def message(body: Any, group: str = "g") -> OrderMessage:
    return OrderMessage(body if isinstance(body, str) else json.dumps(body), group=group)


@contextmanager
def in_the_background(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command as a shell's `&` does, with SIGINT ignored, and kill it at the end if it is still running."""
    with subprocess.Popen(
        ["sh", "-c", """trap '' INT; exec "$0" "$@" """, *command],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def unscheduled(aws: Aws) -> Iterator[dict[str, Any]]:
    """Disable the schedule of the sweep for a while. Yields the schedule's other settings."""
    schedules = aws.session.client("scheduler")
    deployed = schedules.get_schedule(Name=aws.outputs["SweepScheduleName"])
    kept = ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")
    own: dict[str, Any] = {part: deployed[part] for part in kept}
    schedules.update_schedule(**own, State="DISABLED")
    try:
        yield own
    finally:
        schedules.update_schedule(**own, State="ENABLED")


def configure(aws: Aws, function: str, **changes: Any) -> None:
    """Change settings of a function as a deployment does: publish a version with them, and move the alias to it."""
    place: Any = {"FunctionName": aws.outputs[f"{function}FunctionName"]}
    aws.functions.update_function_configuration(**place, **changes)
    version = aws.functions.publish_version(**place)["Version"]
    aws.functions.update_alias(**place, Name=LIVE, FunctionVersion=version)


@contextmanager
def configured(aws: Aws, function: str, **changes: Any) -> Iterator[None]:
    """Change some settings of a function for a while."""
    place: Any = {"FunctionName": aws.outputs[f"{function}FunctionName"]}
    own: Any = aws.functions.get_function_configuration(**place)
    version = aws.functions.get_alias(**place, Name=LIVE)["FunctionVersion"]
    configure(aws, function, **changes)
    try:
        yield
    finally:
        aws.functions.update_alias(**place, Name=LIVE, FunctionVersion=version)
        aws.functions.update_function_configuration(
            **place, **{name: own[name] for name in changes}
        )


def create(aws: Aws, product_id: str, stock: int, **more: Any) -> Any:
    command = {"action": "create", "productId": product_id, "openingStock": stock, **more}
    answer = invoke_deployed(aws, "manage_products", command).answer
    assert answer["result"] == "APPLIED", answer
    return answer
