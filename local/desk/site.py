"""The desk's HTTP server: serves its pages, answers their requests, and refuses requests from other pages.

Pages of other origins must not be able to use the desk. So every request needs the token, except requests for files.
The token is only in the address that the command opens in the browser. The request's host and origin must be those of
this server.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from infra.desk_files import PAGE, desk_files
from inventory_orders.domain.events import to_json
from inventory_orders.errors import InventoryOrdersError
from inventory_orders.store.lists import OrderFilter
from local import ROOT, tokens
from local.dashboard.service import LATEST, Service
from local.desk.drop import Drops
from local.desk.letters import NotFoundError
from local.desk.live import Live, reason
from local.desk.trial import Trial
from local.desk.work import Desk
from operations.errors import LostAnswerError, UserError
from operations.orders import restricted
from operations.republish import moment

_TOKEN = "X-Desk-Token"  # noqa: S105 - the name of a header

# Requests below this path go to the customers' API. The next part of the path is the caller, and the rest is the path there.
_AS = "/as/"
_PASSED_ON = ("Content-Type", "If-None-Match", "Prefer")
_PASSED_BACK = ("content-type", "etag", "location", "preference-applied", "retry-after")
# The API accepts less, so it refuses bodies that are too large itself.
_MAX_BODY_BYTES = 1 << 20

_POWERTOOLS = Path(str(distribution("aws-lambda-powertools").locate_file("aws_lambda_powertools")))
_SWAGGER_UI = _POWERTOOLS / "event_handler" / "openapi" / "swagger_ui"
_FILES = {
    "/openapi.yaml": ROOT / "docs" / "openapi.yaml",
    "/swagger-ui.css": _SWAGGER_UI / "swagger-ui.min.css",
    "/swagger-ui.js": _SWAGGER_UI / "swagger-ui-bundle.min.js",
}
_CONTRACT = "/openapi.yaml"
_SERVERS = f"""servers:
  - {{url: {_AS}operator, description: embedded AWS with an operator's token}}
  - {{url: {_AS}customer, description: embedded AWS with the token of the customer {tokens.CUSTOMER}}}
"""
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".yaml": "application/yaml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Swagger UI's style sheet contains its icons as images.
_POLICIES = {"/contract": _POLICY.replace("img-src 'self'", "img-src 'self' data:")}
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Query = Mapping[str, str]


class Site:
    """The contents of the desk. On an account, it has neither a dashboard nor a page for trying the service."""

    def __init__(
        self,
        desk: Desk,
        token: str,
        live: Live,
        service: Service | None = None,
        trial: Trial | None = None,
    ) -> None:
        self.token = token
        self.trial = trial
        files = desk_files()
        self.files = {f"/{name}": file for name, file in files.items()}
        self.files |= dict.fromkeys(("/", "/contract"), files[PAGE])
        self.contract = _FILES[_CONTRACT].read_bytes()
        drops = Drops(desk, live)

        def stock_of(query: Query) -> tuple[str, str]:
            return query["id"], query.get("location", "")

        # If a function returns a generator, the answer is endless.
        self.reads: dict[str, Callable[[Query], object]] = {
            "/data/about": lambda _: desk.about(),
            "/data/today": lambda _: desk.today(),
            "/data/search": lambda query: desk.find(query["text"]),
            "/data/products": lambda query: desk.products(int(query.get("pages", "1"))),
            "/data/product": lambda query: desk.product(*stock_of(query)),
            "/data/promised": lambda query: desk.promised(*stock_of(query)),
            "/data/history": lambda query: desk.history(
                *stock_of(query), **{"cursor": query["cursor"]} if "cursor" in query else {}
            ),
            "/data/orders": lambda query: desk.orders(
                _filter_in(query), int(query.get("pages", "1"))
            ),
            "/data/orders.csv": lambda query: desk.orders_file(_filter_in(query)),
            "/data/order": lambda query: desk.order(query["id"]),
            "/local/dead-letters": lambda _: desk.letters.listed(),
            "/data/lanes": lambda _: desk.lanes(),
            "/data/events": lambda _: live.news(),
            "/data/drop": lambda query: drops.watch(query["id"]),
        }
        self.writes = {"/data/command": desk.carry_out, "/local/dead-letter": desk.letters.settle}
        if service is not None and trial is not None:
            self.files |= dict.fromkeys(("/dashboard", "/try"), files[PAGE])
            self.reads["/data/dashboard"] = lambda query: service.snapshots(
                query.get("range", LATEST)
            )
            self.reads["/data/shelf"] = lambda _: trial.shelf()
            text = re.sub(r"servers:\n( .*\n)+", _SERVERS, self.contract.decode())
            self.contract = text.encode()


def _filter_in(query: Query) -> OrderFilter:
    times = {name: moment(query[name]) for name in ("since", "until") if name in query}
    user_id, status, location_id = map(query.get, ("user", "status", "location"))
    wanted = OrderFilter(user_id, status, "late" in query, **times)
    return restricted(wanted, query.get("product"), location_id)


class _RefusedError(UserError):
    def __init__(self, why: str, status: HTTPStatus = HTTPStatus.FORBIDDEN) -> None:
        super().__init__(why)
        self.status = status


def _status_of(error: Exception) -> HTTPStatus:
    """Return the HTTP status for an error. After a 504, the page warns that a write may have succeeded."""
    match error:
        case _RefusedError():
            return error.status
        case NotFoundError():
            return HTTPStatus.NOT_FOUND
        case LostAnswerError() | BotoCoreError():
            return HTTPStatus.GATEWAY_TIMEOUT
        case ClientError(response={"ResponseMetadata": {"HTTPStatusCode": code}}) if code >= 500:
            return HTTPStatus.GATEWAY_TIMEOUT
        case UserError() | InventoryOrdersError() | ClientError():
            return HTTPStatus.SERVICE_UNAVAILABLE
    return HTTPStatus.INTERNAL_SERVER_ERROR


class _Answer(NamedTuple):
    status: HTTPStatus
    headers: Mapping[str, str]
    content: bytes


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    site: Site
    protocol_version = "HTTP/1.1"
    server_version = "desk"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a request with any method."""
        # The body of a refused request may be unread, and must not be taken for the next request.
        self.close_connection |= self.command != "GET"
        try:
            answer = self._answer()
        except Exception as error:
            kind = {"Content-Type": "text/plain; charset=utf-8"}
            answer = _Answer(_status_of(error), kind, f"{reason(error)}\n".encode())
        if isinstance(answer, _Answer):
            length = {"Content-Length": str(len(answer.content))}
            self._begin(answer.status, {**answer.headers, **length})
            self.wfile.write(answer.content)
        else:
            self._send_lines(answer)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 - as http.server wants it

    def _answer(self) -> _Answer | Generator[object, None, None]:
        self._check_host()
        url, site, is_read = urlsplit(self.path), self.site, self.command == "GET"
        if is_read and url.path in site.files:
            file = site.files[url.path]
            return _Answer(HTTPStatus.OK, file.headers, file.content)
        if is_read and url.path in _FILES:
            path = _FILES[url.path]
            content = site.contract if url.path == _CONTRACT else path.read_bytes()
            return _Answer(HTTPStatus.OK, {"Content-Type": _KINDS[path.suffix]}, content)
        self._check_page()
        body = self._body()
        if site.trial is not None and self.path.startswith(_AS):
            return self._call_as(site.trial, body)
        if is_read and url.path in site.reads:
            found = site.reads[url.path](dict(parse_qsl(url.query, keep_blank_values=True)))
        elif self.command == "POST" and url.path in site.writes:
            found = site.writes[url.path](json.loads(body))
        else:
            raise NotFoundError("the desk has no such page")
        if isinstance(found, Generator):
            return found
        content = json.dumps(found, allow_nan=False, default=to_json).encode()
        return _Answer(HTTPStatus.OK, {"Content-Type": "application/json"}, content)

    def _check_host(self) -> None:
        """Refuse requests to other host names that resolve to this machine (DNS rebinding)."""
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if host not in ("127.0.0.1", "localhost"):
            raise _RefusedError("this server only answers requests to 127.0.0.1")

    def _check_page(self) -> None:
        """Refuse a request unless it comes from a page of this server and has the token."""
        origin = f"http://{self.headers['Host']}"
        if (
            self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin"
            or self.headers.get("Origin", origin) != origin
        ):
            raise _RefusedError("this server refuses requests from other origins")
        token = self.headers.get(_TOKEN, "")
        if not hmac.compare_digest(token.encode(), self.site.token.encode()):
            raise _RefusedError(
                "this address has no token, or an earlier server's token: open the address that "
                "`make desk` or `make dashboard` prints",
            )

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
            raise _RefusedError(
                "the body of the request is larger than 1 MiB", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            )
        return self.rfile.read(int(length))

    def _call_as(self, trial: Trial, body: bytes) -> _Answer:
        """Send a request to the customers' API, and return its answer unchanged."""
        caller, _, path = self.path.removeprefix(_AS).partition("/")
        headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        reply = trial.call(caller, self.command, f"/{path}", headers, body or None)
        kept = {name: text for name, text in reply.headers.items() if name in _PASSED_BACK}
        return _Answer(HTTPStatus(reply.status), kept, reply.body)

    def _send_lines(self, documents: Generator[object, None, None]) -> None:
        """Send a line of JSON for each document, until the documents end or the page is closed."""
        self.close_connection = True
        self._begin(HTTPStatus.OK, {"Content-Type": "application/x-ndjson"})
        with contextlib.suppress(ConnectionError), contextlib.closing(documents):
            for document in documents:
                self.wfile.write(f"{json.dumps(document, default=to_json)}\n".encode())

    def _begin(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, **headers}.items():
            self.send_header(name, value)
        policy = _POLICIES.get(urlsplit(self.path).path, _POLICY)
        self.send_header("Content-Security-Policy", policy)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_arguments: Any) -> None:
        """Do not log requests, because one line per second would hide the errors."""


@contextlib.contextmanager
def serving(site: Site) -> Iterator[int]:
    """Serve the desk on a free loopback port until the context ends, and yield the port."""
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), type("HandlerOfSite", (Handler,), {"site": site})
    ) as server:
        server.daemon_threads = True
        Thread(target=partial(server.serve_forever, 0.05), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            # Do this after Ctrl-C, too: otherwise, the server's thread would poll the closed socket in an endless loop.
            server.shutdown()
