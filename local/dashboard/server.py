"""Serves the dashboard's page on a free loopback port while the embedded AWS is running.

Started by `background`, as `python -m local.dashboard.server`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from urllib.parse import parse_qs, urlsplit

from local import ROOT, emulator
from local.dashboard import background
from local.dashboard.service import LATEST, RANGES, Service
from local.endpoint import use_embedded
from local.process import Server
from local.stack import STACK_NAME
from operations.errors import UserError

POLL_SECONDS = 1.0

_PAGE = Path(__file__).parent / "page"
_UPLOT = ROOT / "node_modules" / "uplot" / "dist"
_FILES = {
    "/": (_PAGE / "index.html", "text/html; charset=utf-8"),
    "/page.css": (_PAGE / "page.css", "text/css; charset=utf-8"),
    "/page.js": (_PAGE / "page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": (_PAGE / "icon.svg", "image/svg+xml"),
    "/uplot.css": (_UPLOT / "uPlot.min.css", "text/css; charset=utf-8"),
    "/uplot.js": (_UPLOT / "uPlot.iife.min.js", "text/javascript; charset=utf-8"),
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Handler(BaseHTTPRequestHandler):
    """Serves the page, its files, and `/data`, which the page draws."""

    protocol_version = "HTTP/1.1"
    server_version = "dashboard"
    sys_version = ""

    def __init__(self, service: Service, *arguments: object) -> None:
        self._service = service
        super().__init__(*arguments)  # type: ignore[arg-type]  # as socketserver passes them

    def do_GET(self) -> None:
        """Answer a GET request."""
        # Another host name that resolves to this machine (DNS rebinding) must not reach the data.
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if host not in ("127.0.0.1", "localhost"):
            self._answer(HTTPStatus.FORBIDDEN, b"this server answers to 127.0.0.1 only\n")
            return
        url = urlsplit(self.path)
        if url.path == "/data":
            span = parse_qs(url.query).get("range", [LATEST])[0]
            if span != LATEST and span not in RANGES:
                known = ", ".join((LATEST, *RANGES))
                self._answer(HTTPStatus.BAD_REQUEST, f"range is one of {known}\n".encode())
                return
            content = json.dumps(self._service.snapshot(span), allow_nan=False).encode()
            self._answer(HTTPStatus.OK, content, "application/json")
        elif url.path in _FILES:
            path, kind = _FILES[url.path]
            self._answer(HTTPStatus.OK, path.read_bytes(), kind)
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"there is nothing here; the page is at /\n")

    def _answer(
        self, status: HTTPStatus, content: bytes, kind: str = "text/plain; charset=utf-8"
    ) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(content)), **_HEADERS}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: object) -> None:
        """Log nothing: one line per second would hide the errors."""


def main() -> int:
    """Serve until the process is stopped, or until the embedded AWS has ended."""
    aws = emulator.running()
    if aws is None:
        raise UserError("the embedded AWS is not running")
    use_embedded(aws.endpoint)
    service = Service(STACK_NAME, aws.endpoint)
    stopped = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, service)) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        background.note(Server.of_process(os.getpid(), server.server_address[1]))
        while aws.is_alive():
            service.poll()
            if stopped.wait(POLL_SECONDS):
                break
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
