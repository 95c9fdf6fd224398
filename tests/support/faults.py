"""A faulty network: an HTTP proxy in front of DynamoDB, for functions that run in other processes.

`AWS_ENDPOINT_URL_DYNAMODB` of a deployed function points at it. It listens on loopback only.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import ssl
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from local.endpoint import CERTIFICATE

_ERROR = "com.amazonaws.dynamodb.v20120810#"
_CONNECTION_HEADERS = {"connection", "transfer-encoding", "keep-alive", "date", "server"}


class Fault(Enum):
    """The faults that a request can meet."""

    THROTTLED = "throttled"
    SERVER_ERROR = "server error"
    CONFLICT = "transaction conflict"
    LOST_RESPONSE = "lost response"


@dataclass(frozen=True)
class Shares:
    """The shares of requests that meet a fault, each from 0 to 1.

    Attributes:
        throttled: Fail with ProvisionedThroughputExceededException or ThrottlingException, alternately.
        server_error: Fail with InternalServerError.
        conflict: Transactions that are cancelled with TransactionConflict; other requests pass.
        lost_response: Are executed, but the connection is closed without a response.
    """

    throttled: float = 0.0
    server_error: float = 0.0
    conflict: float = 0.0
    lost_response: float = 0.0


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that were killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class FaultyProxy:
    """Forwards requests to an endpoint, and injects faults into a share of them. Use it as a context manager.

    Args:
        endpoint: URL of the endpoint.
        shares: The share of requests for each fault. May change while the proxy runs.
        seed: Seed of the random numbers.

    Attributes:
        counts: Faults so far, by kind.
        requests: Requests so far.
    """

    def __init__(self, endpoint: str, shares: Shares, seed: int = 0) -> None:
        self.shares = shares
        self.counts: Counter[Fault] = Counter()
        self.requests = 0
        self._target = urlsplit(endpoint)
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._local = threading.local()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FaultyProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fate(self, *, is_transaction: bool) -> Fault | None:
        """Draw what happens to the next request, and count it."""
        with self._lock:
            self.requests += 1
            draw = self._chance.random()
            for fault, share in (
                (Fault.THROTTLED, self.shares.throttled),
                (Fault.SERVER_ERROR, self.shares.server_error),
                (Fault.CONFLICT, self.shares.conflict if is_transaction else 0.0),
                (Fault.LOST_RESPONSE, self.shares.lost_response),
            ):
                if draw < share:
                    self.counts[fault] += 1
                    return fault
                draw -= share
            return None

    def error_response(self, fault: Fault, body: bytes) -> tuple[int, bytes]:
        """Make the HTTP status and body of an error response."""
        if fault is Fault.SERVER_ERROR:
            return 500, _error("InternalServerError", "injected")
        if fault is Fault.CONFLICT:
            others = len(json.loads(body)["TransactItems"]) - 1
            reasons = [{"Code": "TransactionConflict"}, *[{"Code": "None"}] * others]
            return 400, _error("TransactionCanceledException", "injected", reasons)
        codes = ("ProvisionedThroughputExceededException", "ThrottlingException")
        return 400, _error(codes[self.counts[Fault.THROTTLED] % 2], "injected")

    def forward(self, path: str, headers: dict[str, str], body: bytes) -> http.client.HTTPResponse:
        """Forward a request to the endpoint. Returns the response before its body is read."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            if self._target.scheme == "https":
                trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
                connection = http.client.HTTPSConnection(
                    self._target.netloc, timeout=30, context=trusted
                )
            else:
                connection = http.client.HTTPConnection(self._target.netloc, timeout=30)
            self._local.connection = connection
        connection.request("POST", path, body, headers)
        answer: http.client.HTTPResponse = connection.getresponse()
        return answer

    def hang_up(self) -> None:
        """Close this thread's connection to the endpoint, if it has one."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                target = self.headers.get("X-Amz-Target", "")
                fault = proxy.fate(is_transaction=target.endswith("TransactWriteItems"))
                if fault is not None and fault is not Fault.LOST_RESPONSE:
                    status, content = proxy.error_response(fault, body)
                    self._answer(status, {"Content-Type": "application/x-amz-json-1.0"}, content)
                    return
                answer = proxy.forward(self.path, dict(self.headers), body)
                content = answer.read()
                if fault is Fault.LOST_RESPONSE:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                kept = {
                    n: v for n, v in answer.headers.items() if n.lower() not in _CONNECTION_HEADERS
                }
                self._answer(answer.status, kept, content)

            def finish(self) -> None:
                # Each client has its own thread, which ends here.
                proxy.hang_up()
                super().finish()

            def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() != "content-length":
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _error(code: str, message: str, reasons: list[dict[str, str]] | None = None) -> bytes:
    document = {"__type": _ERROR + code, "message": message}
    return json.dumps(document | ({"CancellationReasons": reasons} if reasons else {})).encode()
