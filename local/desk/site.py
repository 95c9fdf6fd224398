"""The desk's HTTP server: serves its files, forwards requests to the HTTP API, and refuses requests from other pages.

Pages of other origins must not be able to use the desk. So every request needs the token, except requests for files.
The token is only in the address that the command opens in the browser. The request's host and origin must be those of
this server.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from infra.desk_files import PAGE, DeskFile, desk_files
from inventory_orders.errors import InventoryOrdersError
from local import ROOT, tokens
from local.dashboard.service import LATEST, Service
from local.dashboard.signals import Signals, orders_of_last_hour
from local.desk.api import OPERATOR, Api
from local.desk.letters import Letters, NotFoundError
from local.issuer import PATH, Issuer
from operations.aws import Aws
from operations.errors import LostAnswerError, UserError
from operations.lanes import read_lanes

_TOKEN = "X-Desk-Token"  # noqa: S105 - the name of a header

# Requests below these paths go to the HTTP API. The rest is the path there; in the second, the next part is the caller.
_API, _AS = "/api/", "/as/"
_PASSED_ON = ("Authorization", "Content-Type", "If-Match", "If-None-Match", "Prefer")
_PASSED_BACK = ("content-type", "etag", "location", "preference-applied", "retry-after")
# The API accepts less, so it refuses bodies that are too large itself.
_MAX_BODY_BYTES = 1 << 20

_DESK = "/desk/"
"""The folder of the pages, as on a stage that serves them itself."""
HOSTED = f"/hosted{_DESK}"
"""The folder of the same pages as on a stage of the embedded AWS: with a sign-in, and nothing but the API."""

_POWERTOOLS = Path(str(distribution("aws-lambda-powertools").locate_file("aws_lambda_powertools")))
_SWAGGER_UI = _POWERTOOLS / "event_handler" / "openapi" / "swagger_ui"
_CSS, _JS, _YAML = (
    f"{kind}; charset=utf-8" for kind in ("text/css", "text/javascript", "application/yaml")
)
_FILES = {
    "swagger-ui.css": (_CSS, _SWAGGER_UI / "swagger-ui.min.css"),
    "swagger-ui.js": (_JS, _SWAGGER_UI / "swagger-ui-bundle.min.js"),
}
_CONTRACT = "openapi.yaml"
_SERVERS = f"""servers:
  - {{url: {_AS}operator, description: embedded AWS with an operator's token}}
  - {{url: {_AS}customer, description: embedded AWS with the token of the customer {tokens.CUSTOMER}}}
"""
_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; manifest-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Swagger UI's style sheet contains its icons as images.
_POLICIES = {f"{_DESK}contract": _POLICY.replace("img-src 'self'", "img-src 'self' data:")}
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Query = Mapping[str, str]


class Site:
    """The contents of the desk.

    Args:
        stack: Finds the stack, which may be deployed again at any time.
        token: The secret that the pages send.
        signals: Its alarms and orders of the last hour; None if nothing is known of them.
        dashboard: The dashboard of the embedded AWS; None on an account, where there is also no page to try the service.
    """

    def __init__(
        self,
        stack: Callable[[], Aws],
        token: str,
        *,
        signals: Signals | None = None,
        dashboard: Service | None = None,
    ) -> None:
        self.token = token
        self.is_embedded = dashboard is not None
        self.api = Api(stack, is_embedded=self.is_embedded)
        self._stack = stack
        self._letters = Letters(stack)
        self._signals = signals
        self.files = self._files()
        self.issuer: Issuer | None = None
        if dashboard is not None:
            self.files |= _hosted_files()
            (style,) = (path for path in self.files if re.fullmatch(f"{_DESK}page-.*css", path))
            self.issuer = Issuer(
                lambda claims, seconds: tokens.token_of(stack(), claims, seconds), style
            )
        self.reads: dict[str, Callable[[Query], object]] = {
            "/local/attention": lambda _: self._attention(),
            "/local/today": lambda _: self._today(),
            "/local/dead-letters": lambda _: self._letters.listed(),
            "/local/lanes": lambda _: self._lanes(),
        }
        self.writes = {"/local/dead-letter": self._letters.settle}
        if dashboard is not None:
            self.reads["/local/dashboard"] = lambda query: dashboard.snapshot(
                query.get("range", LATEST)
            )

    def _files(self) -> dict[str, DeskFile]:
        """Return what needs no token, by path. Pages are one file, whose script reads the address."""
        pages = ("", "contract", *(("dashboard", "try") if self.is_embedded else ()))
        config = {
            "desk": "local",
            "api": f"..{_API.rstrip('/')}",
            "embedded": self.is_embedded,
            "signIn": None,
        }
        built = desk_files(config)
        contract = (ROOT / "docs" / _CONTRACT).read_text("utf-8")
        if self.is_embedded:
            contract = re.sub(r"servers:\n( .*\n)+", _SERVERS, contract)
        made = {
            _CONTRACT: (_YAML, contract.encode()),
            **{name: (kind, path.read_bytes()) for name, (kind, path) in _FILES.items()},
        }
        own = {name: DeskFile({"Content-Type": kind}, text) for name, (kind, text) in made.items()}
        files = built | dict.fromkeys(pages, built[PAGE]) | own
        return {f"{_DESK}{name}": file for name, file in files.items()}

    def _attention(self) -> object:
        """Return state of which the API knows nothing: the dead letters in each queue, and the alarms that are on."""
        return self._letters.depths(), self._signals and self._signals.alarms().get("on")

    def _today(self) -> Mapping[str, Any]:
        """Return what the page Today shows of dead letters, alarms, and the orders of the last hour."""
        letters = {"deadLetters": self._letters.counted()}
        if self._signals is None:
            return letters
        return letters | {
            "alarms": self._signals.alarms(),
            "lastHour": orders_of_last_hour(self._signals),
        }

    def _lanes(self) -> Mapping[str, Any]:
        """List the lanes with their workers and units, and describe pages that cannot be read."""
        found, pages = read_lanes(self._stack())
        now = time.time()
        return {"lanes": [lane.shown(now) for lane in found], "unreadable": dict(pages.corrupt)}


def _hosted_files() -> dict[str, DeskFile]:
    """Return the files of the desk with the sign-in, by path."""
    pages = {name: f"../..{PATH}{name}" for name in ("authorize", "token")}
    sign_in = {
        "issuer": tokens.SETTING["issuer"],
        "clientId": tokens.DESK["clientId"],
        **pages,
        "signOut": f"../..{PATH}sign-out",
        "scope": "openid",
    }
    config = {"desk": "hosted", "api": f"../..{_API.rstrip('/')}", "signIn": sign_in}
    return {f"{HOSTED}{name}": file for name, file in desk_files(config).items()}


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
    # This is a bug in the desk.
    traceback.print_exception(error)
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
            status = _status_of(error)
            why = f"{type(error).__name__}: {error}" if status == 500 else str(error)
            answer = _Answer(
                status, {"Content-Type": "text/plain; charset=utf-8"}, f"{why}\n".encode()
            )
        self._send(answer)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 - as http.server wants it

    def _answer(self) -> _Answer:
        self._check_host()
        url, site, is_read = urlsplit(self.path), self.site, self.command == "GET"
        if is_read and url.path in ("/", _DESK.rstrip("/")):
            return _Answer(HTTPStatus.FOUND, {"Location": _DESK}, b"")
        if is_read and url.path in site.files:
            file = site.files[url.path]
            return _Answer(HTTPStatus.OK, file.headers, file.content)
        if site.issuer is not None and url.path.startswith(PATH):
            return self._ask(site.issuer, url.path.removeprefix(PATH), url.query)
        self._check_page()
        body = self._body()
        if self.path.startswith(_API):
            return self._forward(OPERATOR, self.path.removeprefix(_API), body)
        if site.is_embedded and self.path.startswith(_AS):
            caller, _, path = self.path.removeprefix(_AS).partition("/")
            return self._forward(caller, path, body)
        content = json.dumps(self._found(url.path, url.query, body), allow_nan=False).encode()
        return _Answer(HTTPStatus.OK, {"Content-Type": "application/json"}, content)

    def _found(self, path: str, query: str, body: bytes) -> object:
        if self.command == "GET" and path in self.site.reads:
            return self.site.reads[path](dict(parse_qsl(query, keep_blank_values=True)))
        if self.command == "POST" and path in self.site.writes:
            return self.site.writes[path](json.loads(body))
        raise NotFoundError("the desk has no such page")

    def _ask(self, issuer: Issuer, name: str, query: str) -> _Answer:
        """Ask the issuer, whose pages need no token: only what they return opens anything."""
        self._check_origin()
        desk = f"http://{self.headers['Host']}{HOSTED}{PAGE}"
        return _Answer(*issuer.answer(self.command, name, query, self._body(), desk))

    def _check_host(self) -> None:
        """Refuse requests to other host names that resolve to this machine (DNS rebinding)."""
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if host not in ("127.0.0.1", "localhost"):
            raise _RefusedError("this server only answers requests to 127.0.0.1")

    def _check_page(self) -> None:
        """Refuse a request unless it comes from a page of this server and has the token."""
        self._check_origin()
        token = self.headers.get(_TOKEN, "")
        if not hmac.compare_digest(token.encode(), self.site.token.encode()):
            raise _RefusedError(
                "this address has no token, or an earlier server's token: open the address that the desk's command "
                "printed last",
            )

    def _check_origin(self) -> None:
        """Refuse a request of a page from another origin. The user may open any page by an address that was typed (`none`)."""
        origin = f"http://{self.headers['Host']}"
        if (
            self.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none")
            or self.headers.get("Origin", origin) != origin
        ):
            raise _RefusedError("this server refuses requests from other origins")

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
            raise _RefusedError(
                "the body of the request is larger than 1 MiB", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            )
        return self.rfile.read(int(length))

    def _forward(self, caller: str, path: str, body: bytes) -> _Answer:
        """Send a request to the HTTP API, and return its answer unchanged."""
        headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        reply = self.site.api.call(caller, self.command, f"/{path}", headers, body or None)
        kept = {name: text for name, text in reply.headers.items() if name in _PASSED_BACK}
        return _Answer(HTTPStatus(reply.status), kept, reply.body)

    def _send(self, answer: _Answer) -> None:
        self.send_response(answer.status)
        length = {"Content-Length": str(len(answer.content))}
        policy = {"Content-Security-Policy": _POLICIES.get(urlsplit(self.path).path, _POLICY)}
        for name, value in {**_HEADERS, **policy, **answer.headers, **length}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, *_arguments: Any) -> None:
        """Do not log requests, because several each second would hide the errors."""


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
