"""Runs Dynoxide, a second implementation of DynamoDB: one in-memory process on a free loopback port."""

from __future__ import annotations

import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager

from local import ROOT
from local.endpoint import environment_without_aws, opener_of
from local.process import LOGS, Server, free_port, start_server, tail

# The npm package is an optional dependency, because its only binary is for Linux on x64.
PACKAGE = "@dynoxide/linux-x64"
MISSING = f"npm's {PACKAGE} is not installed: it is for Linux on x64 only"
_BINARY = ROOT / "node_modules" / PACKAGE / "dynoxide"
_START_SECONDS = 60
# It persists nothing.
_STOP_SECONDS = 1


def is_installed() -> bool:
    """Whether npm has installed Dynoxide here."""
    return _BINARY.is_file()


@contextmanager
def running() -> Iterator[Server]:
    """Start Dynoxide without tables, and stop it at the end."""
    LOGS.mkdir(parents=True, exist_ok=True)
    port = free_port()
    log = LOGS / f"dynoxide-{port}.log"
    command = [str(_BINARY), "--host", "127.0.0.1", "--port", str(port)]
    process = start_server(command, LOGS, environment_without_aws(), log)
    server = Server.of_process(process.pid, port)
    try:
        give_up_at = time.monotonic() + _START_SECONDS
        while not _is_ready(server):
            assert process.poll() is None, tail(log)
            assert time.monotonic() < give_up_at, tail(log)
            time.sleep(0.01)
        yield server
    finally:
        server.stop(_STOP_SECONDS)
        log.unlink()


def _is_ready(server: Server) -> bool:
    try:
        with opener_of(server.endpoint).open(server.endpoint, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
