"""Runs the desk: in the foreground for an account, or as a background process for the embedded AWS."""

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
# Each time, the desk sends a request to every dead-letter queue.
_LOOK_SECONDS_ON_AN_ACCOUNT = 30.0
# This is less than the time that `background` waits for the process to end.
_CLOSE_SECONDS = 3.0
_CLOSE_SECONDS_ON_AN_ACCOUNT = 10.0


def serve_account(aws: Aws, on_ready: Callable[[str], None]) -> None:
    """Serve the desk of a stack on an account, and call `on_ready` with its address.

    The desk stops on Ctrl-C, on a signal to end, or when its terminal closes.
    """
    # Whatever ends the process, the queue and the rule that listen to the bus must be removed.
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
