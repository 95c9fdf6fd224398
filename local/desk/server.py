"""Runs the desk: for an account until it is interrupted, for the embedded AWS as a process that `background` starts."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from threading import Event

from local import emulator
from local.dashboard.service import Service
from local.dashboard.signals import CloudWatch
from local.desk import background
from local.desk.background import DeskServer
from local.desk.live import Live
from local.desk.site import Site, serving
from local.desk.trial import Trial
from local.desk.work import Desk
from local.endpoint import use_embedded
from local.stack import STACK_NAME
from operations.aws import Aws
from operations.errors import UserError

POLL_SECONDS = 1.0
# Each look is a request to each queue of dead letters.
_LOOK_SECONDS_ON_AN_ACCOUNT = 30.0
# Less than `background` waits for the end.
_CLOSE_SECONDS = 3.0
_CLOSE_SECONDS_ON_AN_ACCOUNT = 10.0


def serve_account(aws: Aws, on_ready: Callable[[str], None]) -> None:
    """Serve the desk of a stack on an account, at the address that `on_ready` is called with.

    It ends with Ctrl-C, a signal to end, or the end of its terminal.
    """
    # What listens to the bus must not be left behind there.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    desk = Desk(lambda: aws, is_embedded=False, signals=CloudWatch(lambda: aws))
    live = Live(lambda: aws, desk.attention, _LOOK_SECONDS_ON_AN_ACCOUNT)
    site = Site(desk, secrets.token_urlsafe(), live)
    try:
        with serving(site) as port:
            on_ready(_server(site, port).address())
            Event().wait()
    finally:
        live.close(_CLOSE_SECONDS_ON_AN_ACCOUNT)


def main() -> int:
    """Serve the desk of the embedded AWS until the process is stopped, or until the embedded AWS has ended."""
    aws = emulator.running()
    if aws is None:
        raise UserError("the embedded AWS is not running")
    use_embedded(aws.endpoint)
    stopped = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    service = Service(STACK_NAME, aws.endpoint)
    desk = Desk(lambda: service.aws, is_embedded=True, signals=service)
    live = Live(lambda: service.aws, desk.attention, POLL_SECONDS)
    site = Site(desk, secrets.token_urlsafe(), live, service, Trial(lambda: service.aws))
    with serving(site) as port:
        _server(site, port).write(background.NOTE)
        while aws.is_alive():
            service.poll()
            if stopped.wait(POLL_SECONDS):
                break
    live.close(_CLOSE_SECONDS)
    return 0


def _server(site: Site, port: int) -> DeskServer:
    return replace(DeskServer.of_process(os.getpid(), port), token=site.token)


if __name__ == "__main__":
    sys.exit(main())
