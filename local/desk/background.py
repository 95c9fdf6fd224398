"""Starts, finds and stops the desk's server process, one for each embedded AWS."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from local import ROOT, STATE, emulator, issuer
from local.endpoint import environment_without_aws
from local.process import LOGS, Server, start_server, tail
from operations.errors import UserError

NOTE = STATE / "desk.json"
_LOG = LOGS / "desk.log"
# This is long enough on a busy machine. If the process ends, the command stops waiting immediately.
_START_SECONDS = 120
_STOP_SECONDS = 5


@dataclass(frozen=True)
class DeskServer(Server):
    """The desk's server, whose pages need a secret `token`."""

    token: str = ""

    def address(self, part: str = "") -> str:
        """Return the URL of a page. Its token is in the fragment, which browsers never send to a server."""
        return f"{self.endpoint}/desk/{part}#token={self.token}"

    def sign_in_address(self, role: str) -> str:
        """Return the URL that opens the desk as a stage serves it, with a sign-in as this role."""
        return f"{self.endpoint}{issuer.PATH}as/{role}#token={self.token}"


def running() -> DeskServer | None:
    """Return the running server of this checkout, or None if there is none."""
    server = DeskServer.read(NOTE)
    return server if server is not None and server.is_alive() else None


def start() -> DeskServer:
    """Start the server if it is not running. The embedded AWS must be running."""
    with emulator.exclusive():
        if (found := running()) is not None:
            return found
        LOGS.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "local.desk.server"]
        process = start_server(command, ROOT, environment_without_aws(), _LOG)
        give_up_at = time.monotonic() + _START_SECONDS
        while (found := running()) is None:
            if process.poll() is not None or time.monotonic() > give_up_at:
                process.kill()
                raise UserError(f"the desk did not start; its last lines:\n\n{tail(_LOG)}")
            time.sleep(0.02)
        return found


def stop() -> bool:
    """Stop the server. Returns whether it was running."""
    server = running()
    if server is not None:
        server.stop(_STOP_SECONDS)
    NOTE.unlink(missing_ok=True)
    return server is not None
