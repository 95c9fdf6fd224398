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
from local.desk.site import Site, serving
from local.endpoint import use_embedded
from local.stack import STACK_NAME
from operations.aws import Aws
from operations.errors import UserError

POLL_SECONDS = 1.0


def serve_account(aws: Aws, on_ready: Callable[[str], None]) -> None:
    """Serve the desk of a stack on an account until Ctrl-C, and call `on_ready` with its address."""
    site = Site(lambda: aws, secrets.token_urlsafe(), signals=CloudWatch(lambda: aws))
    with serving(site) as port:
        on_ready(_server(site, port).address())
        Event().wait()


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
    site = Site(lambda: service.aws, secrets.token_urlsafe(), signals=service, dashboard=service)
    with serving(site) as port:
        _server(site, port).write(background.NOTE)
        while aws.is_alive():
            service.poll()
            if stopped.wait(POLL_SECONDS):
                break
    return 0


def _server(site: Site, port: int) -> DeskServer:
    return replace(DeskServer.of_process(os.getpid(), port), token=site.token)


if __name__ == "__main__":
    sys.exit(main())
