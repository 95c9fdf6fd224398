"""The deployed stack, for tests: commands, messages, and waiting."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from local import ROOT
from local.invoke import invoke_deployed
from operations import queues
from operations.aws import Aws
from operations.orders_file import OrderMessage

COMMAND = str(Path(sys.executable).with_name("inventory-orders"))


def cli(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line on the tests' embedded AWS."""
    done = subprocess.run(
        [COMMAND, *arguments],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def wait_until_settled(aws: Aws, quiet_seconds: float = 60) -> None:
    """Wait until the queues are empty, and fail when nothing has left them for a while."""
    give_up_at, before = 0.0, None
    while sum(held := [queues.depth(aws, name).total for name in queues.QUEUES]):
        if held != before:
            give_up_at, before = time.monotonic() + quiet_seconds, held
        assert time.monotonic() < give_up_at, f"messages stay in the queues: {held}"
        time.sleep(0.1)


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> None:
    """Wait until something is true."""
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, "it did not happen"
        time.sleep(0.1)


def message(body: Any, group: str = "g", deduplication_id: str = "d") -> OrderMessage:
    return OrderMessage(
        body if isinstance(body, str) else json.dumps(body), None, group, deduplication_id
    )


def create(aws: Aws, product_id: str, stock: int, **more: Any) -> Any:
    command = {"action": "create", "productId": product_id, "openingStock": stock, **more}
    answer = invoke_deployed(aws, "manage_products", command).answer
    assert answer["result"] == "APPLIED", answer
    return answer
