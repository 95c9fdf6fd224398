"""The dashboard's server process: one for each embedded AWS, and stopped with it."""

from __future__ import annotations

import sys
import time

from local import ROOT, STATE, emulator
from local.endpoint import environment_without_aws
from local.process import LOGS, Server, start_server, tail
from operations.errors import UserError

_NOTE = STATE / "dashboard.json"
_LOG = LOGS / "dashboard.log"
# Long enough beside whatever keeps the machine busy: if it ends, nobody waits.
_START_SECONDS = 120
_STOP_SECONDS = 5


def running() -> Server | None:
    """Find the running server of this checkout; None if there is none."""
    server = Server.read(_NOTE)
    return server if server is not None and server.is_alive() else None


def start() -> Server:
    """Start the server if it is not running. The embedded AWS must be running.

    Raises:
        UserError: It does not start.
    """
    with emulator.exclusive():
        return running() or _start()


def _start() -> Server:
    LOGS.mkdir(parents=True, exist_ok=True)
    _NOTE.unlink(missing_ok=True)
    process = start_server(
        [sys.executable, "-m", "local.dashboard.server"], ROOT, environment_without_aws(), _LOG
    )
    give_up_at = time.monotonic() + _START_SECONDS
    while (found := running()) is None:
        if process.poll() is not None or time.monotonic() > give_up_at:
            process.kill()
            raise UserError(f"the dashboard did not start; its last lines:\n\n{tail(_LOG)}")
        time.sleep(0.02)
    return found


def note(server: Server) -> None:
    """Write the note file of a server, for `running`."""
    server.write(_NOTE)


def stop() -> bool:
    """Stop the server. Returns whether it was running."""
    server = running()
    if server is not None:
        server.stop(_STOP_SECONDS)
    _NOTE.unlink(missing_ok=True)
    return server is not None
