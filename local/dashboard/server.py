"""Serves the dashboard, a page to try the service, and the contract of its API, on a free loopback port.

It does so while the embedded AWS is running.
Started by `background`, as `python -m local.dashboard.server`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from local import ROOT, emulator
from local.dashboard import background
from local.dashboard.service import LATEST, RANGES, Service
from local.dashboard.trial import Trial
from local.endpoint import use_embedded
from local.process import Server
from local.stack import STACK_NAME
from operations.errors import UserError

POLL_SECONDS = 1.0
# Less than `background` waits for the end.
_CLOSE_SECONDS = 3.0

# Below it is the stack's HTTP API.
_API = "/api/"
_PASSED_ON = ("Content-Type", "Prefer")
# More than the API takes, so that it says so itself.
_MAX_BODY_BYTES = 1 << 20

_PAGE = Path(__file__).parent / "page"
_UPLOT = ROOT / "node_modules" / "uplot" / "dist"
_POWERTOOLS = Path(str(distribution("aws-lambda-powertools").locate_file("aws_lambda_powertools")))
_SWAGGER_UI = _POWERTOOLS / "event_handler" / "openapi" / "swagger_ui"
_FILES = {
    "/": _PAGE / "index.html",
    "/try": _PAGE / "try.html",
    "/contract": _PAGE / "contract.html",
    **{f"/{path.name}": path for path in _PAGE.iterdir() if path.suffix != ".html"},
    "/openapi.yaml": ROOT / "docs" / "openapi.yaml",
    "/swagger-ui.css": _SWAGGER_UI / "swagger-ui.min.css",
    "/swagger-ui.js": _SWAGGER_UI / "swagger-ui-bundle.min.js",
    "/uplot.css": _UPLOT / "uPlot.min.css",
    "/uplot.js": _UPLOT / "uPlot.iife.min.js",
}
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".yaml": "application/yaml",
}
_NOTHING = b"there is nothing here; the pages are /, /try and /contract\n"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Swagger UI's style holds its icons as images.
_POLICIES = {"/contract": _POLICY.replace("img-src 'self'", "img-src 'self' data:")}
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Handler(BaseHTTPRequestHandler):
    """Serves the pages and their files, and what they ask for: `/data`; `/shelf`, `/events` and `/api/...`."""

    protocol_version = "HTTP/1.1"
    server_version = "dashboard"
    sys_version = ""

    def __init__(self, service: Service, trial: Trial, *arguments: object) -> None:
        self._service = service
        self._trial = trial
        super().__init__(*arguments)  # type: ignore[arg-type]  # as socketserver passes them

    def do_GET(self) -> None:
        """Answer a GET request."""
        url = urlsplit(self.path)
        if not self._is_for_this_machine():
            return
        if url.path == "/data":
            span = parse_qs(url.query).get("range", [LATEST])[0]
            if span != LATEST and span not in RANGES:
                known = ", ".join((LATEST, *RANGES))
                self._answer(HTTPStatus.BAD_REQUEST, f"range is one of {known}\n".encode())
                return
            self._answer_json(self._service.snapshot(span))
        elif url.path in _FILES:
            path = _FILES[url.path]
            self._answer(HTTPStatus.OK, path.read_bytes(), _KINDS[path.suffix])
        elif url.path == "/shelf":
            self._answer_or_say_why(lambda: self._answer_json(self._trial.shelf()))
        elif url.path == "/events":
            self._send_events()
        elif url.path.startswith(_API):
            self._call_the_api(None)
        else:
            self._answer(HTTPStatus.NOT_FOUND, _NOTHING)

    def do_POST(self) -> None:
        """Answer a POST request."""
        # What is refused may leave a body behind, which is no request.
        self.close_connection = True
        if not self._is_for_this_machine():
            return
        if not self.path.startswith(_API):
            self._answer(HTTPStatus.NOT_FOUND, _NOTHING)
            return
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b"that is too much\n")
            return
        self._call_the_api(self.rfile.read(int(length)) or None)

    def _is_for_this_machine(self) -> bool:
        """Whether to answer. Another host name that resolves to this machine (DNS rebinding) must reach nothing."""
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if host in ("127.0.0.1", "localhost"):
            return True
        self._answer(HTTPStatus.FORBIDDEN, b"this server answers to 127.0.0.1 only\n")
        return False

    def _is_from_this_page(self) -> bool:
        """Whether to do something on AWS: for a page of this server, or for no page, but for no other site's page."""
        is_own = self.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin"
        origin = f"http://{self.headers['Host']}"
        if is_own and self.headers.get("Origin", origin) == origin:
            return True
        self._answer(HTTPStatus.FORBIDDEN, b"this server does nothing for the pages of others\n")
        return False

    def _call_the_api(self, body: bytes | None) -> None:
        if not self._is_from_this_page():
            return
        headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        path = "/" + self.path.removeprefix(_API)

        def call() -> None:
            reply = self._trial.call(self.command, path, headers, body)
            # In an answer of its own: a refusal by the API is no failure of this server.
            status = HTTPStatus(reply.status)
            self._answer_json({"status": status, "phrase": status.phrase, "said": reply.said})

        self._answer_or_say_why(call)

    def _send_events(self) -> None:
        """Send events (Server-Sent Events, of the HTML standard) until the page goes away."""
        if not self._is_from_this_page():
            return
        self.close_connection = True
        self._begin(HTTPStatus.OK, {"Content-Type": "text/event-stream"})
        with contextlib.suppress(ConnectionError), contextlib.closing(self._trial.events()) as news:
            try:
                for event in news:
                    name, data = ("beat", {}) if event is None else ("happened", event)
                    self._send_event(name, data)
            except (UserError, BotoCoreError, ClientError) as error:
                self._send_event("problem", {"detail": str(error)})

    def _send_event(self, name: str, data: Mapping[str, Any]) -> None:
        self.wfile.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())

    def _answer_or_say_why(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (UserError, BotoCoreError, ClientError) as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode())

    def _answer_json(self, document: object) -> None:
        content = json.dumps(document, allow_nan=False).encode()
        self._answer(HTTPStatus.OK, content, "application/json")

    def _answer(
        self, status: HTTPStatus, content: bytes, kind: str = "text/plain; charset=utf-8"
    ) -> None:
        self._begin(status, {"Content-Type": kind, "Content-Length": str(len(content))})
        self.wfile.write(content)

    def _begin(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, **_HEADERS}.items():
            self.send_header(name, value)
        policy = _POLICIES.get(urlsplit(self.path).path, _POLICY)
        self.send_header("Content-Security-Policy", policy)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Log nothing: one line per second would hide the errors."""


def main() -> int:
    """Serve until the process is stopped, or until the embedded AWS has ended."""
    aws = emulator.running()
    if aws is None:
        raise UserError("the embedded AWS is not running")
    use_embedded(aws.endpoint)
    service = Service(STACK_NAME, aws.endpoint)
    trial = Trial(lambda: service.aws)
    stopped = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, service, trial)) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        background.note(Server.of_process(os.getpid(), server.server_address[1]))
        while aws.is_alive():
            service.poll()
            if stopped.wait(POLL_SECONDS):
                break
        server.shutdown()
        trial.close(_CLOSE_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
