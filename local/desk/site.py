"""HTTP of the desk: the files of its pages, what they ask for, and who may ask.

A page of another origin must not be able to use it. So everything but the files needs the token, which is only in the
address that the command hands to the browser; and host and origin must be this server's.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import re
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from inventory_orders.domain.events import to_json
from inventory_orders.errors import InventoryOrdersError
from local import ROOT, tokens
from local.dashboard.service import LATEST, Service
from local.desk.drop import Drops
from local.desk.live import Live
from local.desk.trial import Trial
from local.desk.work import Desk, NotFoundError
from operations.errors import LostAnswerError, UserError

_TOKEN = "X-Desk-Token"  # noqa: S105 - the name of a header

# Below it is the stack's HTTP API.
_API = "/api/"
# Below it is the customers' API: first who calls, then the path there.
_AS = "/as/"
_PASSED_ON = ("Content-Type", "If-None-Match", "Prefer")
_PASSED_BACK = ("content-type", "etag", "location", "preference-applied", "retry-after")
# More than the API takes, so that it says so itself.
_MAX_BODY_BYTES = 1 << 20

_PAGE = Path(__file__).parent / "page"
_UPLOT = ROOT / "node_modules" / "uplot" / "dist"
_LIT = ROOT / "node_modules" / "lit-html"
_POWERTOOLS = Path(str(distribution("aws-lambda-powertools").locate_file("aws_lambda_powertools")))
_SWAGGER_UI = _POWERTOOLS / "event_handler" / "openapi" / "swagger_ui"
_FILES = {
    **dict.fromkeys(("/", "/contract"), _PAGE / "page.html"),
    **{f"/{path.name}": path for path in _PAGE.iterdir() if path.suffix != ".html"},
    **{f"/lit-html/{path.name}": path for path in _LIT.glob("*.js")},
    **{f"/lit-html/directives/{path.name}": path for path in _LIT.glob("directives/*.js")},
    "/openapi.yaml": ROOT / "docs" / "openapi.yaml",
    "/swagger-ui.css": _SWAGGER_UI / "swagger-ui.min.css",
    "/swagger-ui.js": _SWAGGER_UI / "swagger-ui-bundle.min.js",
    "/uplot.css": _UPLOT / "uPlot.min.css",
    "/uplot.js": _UPLOT / "uPlot.iife.min.js",
}
_FILES_OF_THE_EMBEDDED_AWS = dict.fromkeys(("/dashboard", "/try"), _PAGE / "page.html")
_CONTRACT = "/openapi.yaml"
_SERVERS = f"""servers:
  - {{url: {_AS}operator, description: embedded AWS with an operator's token}}
  - {{url: {_AS}customer, description: embedded AWS with the token of the customer {tokens.CUSTOMER}}}
"""
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".yaml": "application/yaml",
}
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

Query = Mapping[str, str]


def _stock_of(query: Query) -> tuple[str, str]:
    """The product and the location that a query names."""
    return query["id"], query.get("location", "")


class Site:
    """What the server shows.

    Args:
        desk: Reads and changes the stack.
        token: The secret that requests have to bring.
        live: Tells what happens.
        service: The dashboard; None on an account.
        trial: Places orders by hand; None on an account.
    """

    def __init__(
        self,
        desk: Desk,
        token: str,
        live: Live,
        service: Service | None = None,
        trial: Trial | None = None,
    ) -> None:
        self.token = token
        drops = Drops(desk, live)
        self.streams: dict[str, Callable[[Query], Generator[object, None, None]]] = {
            "/data/events": lambda _: live.news(),
            "/data/drop": lambda query: drops.watch(query["id"]),
        }
        self.trial = trial
        self.files = dict(_FILES)
        self.contract = _FILES[_CONTRACT].read_bytes()
        self.reads: dict[str, Callable[[Query], object]] = {
            "/data/about": lambda _: desk.about(),
            "/data/today": lambda _: desk.today(),
            "/data/search": lambda query: desk.find(query["text"]),
            "/data/products": lambda _: desk.products(),
            "/data/product": lambda query: desk.product(*_stock_of(query)),
            "/data/promised": lambda query: desk.promised(*_stock_of(query)),
            "/data/history": lambda query: desk.history(*_stock_of(query)),
            "/data/orders": lambda query: desk.orders(
                query.get("user"),
                int(query.get("pages", "1")),
                query.get("location"),
                are_held="held" in query,
            ),
            "/data/order": lambda query: desk.order(query["id"]),
            "/data/dead-letters": lambda _: desk.dead_letters(),
            "/data/lanes": lambda _: desk.lanes(),
        }
        self.writes = {"/data/command": desk.carry_out, "/data/dead-letter": desk.settle}
        if service is not None and trial is not None:
            self.files |= _FILES_OF_THE_EMBEDDED_AWS
            self.streams["/data/dashboard"] = lambda query: service.snapshots(
                query.get("range", LATEST)
            )
            self.reads["/data/shelf"] = lambda _: trial.shelf()
            text = re.sub(r"servers:\n( .*\n)+", _SERVERS, self.contract.decode())
            self.contract = text.encode()


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server_version = "desk"
    sys_version = ""

    def __init__(self, site: Site, *arguments: object) -> None:
        self._site = site
        super().__init__(*arguments)  # type: ignore[arg-type]  # as socketserver passes them

    def do_GET(self) -> None:
        """Answer a GET request."""
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        if url.path in self._site.files:
            if self._is_for_this_machine():
                path = self._site.files[url.path]
                content = self._site.contract if url.path == _CONTRACT else path.read_bytes()
                self._answer(HTTPStatus.OK, content, _KINDS[path.suffix])
        elif not self._is_allowed():
            return
        elif url.path in self._site.reads:
            read = self._site.reads[url.path]
            self._answer_or_say_why(lambda: read(query))
        elif url.path in self._site.streams:
            self._send_lines(self._site.streams[url.path](query))
        else:
            self._call_an_api(None)

    def do_POST(self) -> None:
        """Answer a request with a body."""
        # What is refused may leave a body behind, which is no request.
        self.close_connection = True
        if not self._is_allowed():
            return
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
            self._say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "that is too much")
            return
        body = self.rfile.read(int(length))
        if self.command == "POST" and self.path in self._site.writes:
            write = self._site.writes[self.path]
            self._answer_or_say_why(lambda: write(json.loads(body)))
        else:
            self._call_an_api(body or None)

    do_PATCH = do_DELETE = do_POST  # noqa: N815 - as http.server wants it

    def _call_an_api(self, body: bytes | None) -> None:
        trial = self._site.trial
        if trial is not None and self.path.startswith(_AS):
            self._call_as(trial, body)
        elif trial is not None and self.path.startswith(_API) and self.command in ("GET", "POST"):
            self._call_the_api(trial, body)
        else:
            self._say(HTTPStatus.NOT_FOUND, "there is nothing here")

    def _is_for_this_machine(self) -> bool:
        """Whether to answer. Another host name that resolves to this machine (DNS rebinding) must reach nothing."""
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if host in ("127.0.0.1", "localhost"):
            return True
        self._say(HTTPStatus.FORBIDDEN, "this server answers to 127.0.0.1 only")
        return False

    def _is_allowed(self) -> bool:
        """Whether to read or do something: for a page of this server that has the token."""
        if not self._is_for_this_machine():
            return False
        origin = f"http://{self.headers['Host']}"
        if (
            self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin"
            or self.headers.get("Origin", origin) != origin
        ):
            self._say(HTTPStatus.FORBIDDEN, "this server does nothing for pages of other origins")
            return False
        token = self.headers.get(_TOKEN, "")
        if not hmac.compare_digest(token.encode(), self._site.token.encode()):
            self._say(
                HTTPStatus.FORBIDDEN,
                "this address has no token, or that of an earlier server: open the address that "
                "`make desk` or `make dashboard` prints",
            )
            return False
        return True

    def _call_the_api(self, trial: Trial, body: bytes | None) -> None:
        headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        path = "/" + self.path.removeprefix(_API)

        def call() -> object:
            reply = trial.call(self.command, path, headers, body)
            # In an answer of its own: a refusal by the API is no failure of this server.
            status = HTTPStatus(reply.status)
            return {"status": status, "phrase": status.phrase, "said": reply.said}

        self._answer_or_say_why(call)

    def _call_as(self, trial: Trial, body: bytes | None) -> None:
        """Answer what the customers' API answers: the page shows it as it is."""
        headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        caller, _, path = self.path.removeprefix(_AS).partition("/")
        try:
            reply = trial.call_as(caller, self.command, f"/{path}", headers, body)
        except (UserError, BotoCoreError, ClientError) as error:
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            return
        kept = {n: text for n, text in reply.headers.items() if n in _PASSED_BACK}
        self._begin(HTTPStatus(reply.status), {**kept, "Content-Length": str(len(reply.body))})
        self.wfile.write(reply.body)

    def _send_lines(self, documents: Generator[object, None, None]) -> None:
        """Send a line of JSON for each document, until there is none or the page goes away."""
        self.close_connection = True
        self._begin(HTTPStatus.OK, {"Content-Type": "application/x-ndjson"})
        with contextlib.suppress(ConnectionError), contextlib.closing(documents):
            for document in documents:
                self.wfile.write(f"{json.dumps(document, default=to_json)}\n".encode())

    def _answer_or_say_why(self, work: Callable[[], object]) -> None:
        try:
            content = json.dumps(work(), allow_nan=False, default=to_json).encode()
        except NotFoundError as error:
            self._say(HTTPStatus.NOT_FOUND, str(error))
        # The page says of a write with this status that it may have been done.
        except (LostAnswerError, BotoCoreError) as error:
            self._say(HTTPStatus.GATEWAY_TIMEOUT, str(error))
        except (UserError, InventoryOrdersError) as error:
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            is_lost = status >= HTTPStatus.INTERNAL_SERVER_ERROR
            self._say(
                HTTPStatus.GATEWAY_TIMEOUT if is_lost else HTTPStatus.SERVICE_UNAVAILABLE,
                str(error),
            )
        # Any other is an error of the desk: the page has to show it, and the log the rest.
        except Exception as error:
            traceback.print_exc()
            self._say(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
        else:
            self._answer(HTTPStatus.OK, content, "application/json")

    def _say(self, status: HTTPStatus, message: str) -> None:
        self._answer(status, f"{message}\n".encode(), "text/plain; charset=utf-8")

    def _answer(self, status: HTTPStatus, content: bytes, kind: str) -> None:
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

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing: one line per second would hide the errors."""


@contextlib.contextmanager
def serving(site: Site) -> Iterator[int]:
    """Serve until the context ends, on a free loopback port, which is yielded."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, site)) as server:
        server.daemon_threads = True
        Thread(target=partial(server.serve_forever, 0.05), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            # Also after Ctrl-C: its thread would ask the closed socket again and again.
            server.shutdown()
