"""A faulty network: HTTP proxies in front of DynamoDB and EventBridge, for functions that run in other processes.

They produce what only a real network shows. The schedules of `testing` have more kinds of faults.

The variables `AWS_ENDPOINT_URL_DYNAMODB` and `AWS_ENDPOINT_URL_EVENTBRIDGE` of a deployed function point to these
proxies, which listen on loopback only.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

_HEADERS_OF_ONE_HOP = {
    *("connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"),
}


class Fault(Enum):
    """What happens to a request.

    Attributes:
        THROTTLED: It fails with ProvisionedThroughputExceededException or ThrottlingException, alternately.
        SERVER_ERROR: It fails with InternalServerError.
        LOST_RESPONSE: It is executed, but its connection is closed without a response.
    """

    THROTTLED = "throttled"
    SERVER_ERROR = "server error"
    LOST_RESPONSE = "lost response"


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that were killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


_JSON = {"Content-Type": "application/x-amz-json-1.0"}
Answer = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body of a response."""


class FaultyProxy:
    """Forwards requests to an endpoint, and injects faults. Use it as a context manager.

    Args:
        endpoint: URL of the endpoint.
        shares: The share of requests for each fault, from 0 to 1.
        seed: Seed of the random numbers.

    Attributes:
        counts: Faults so far, by kind.
    """

    def __init__(self, endpoint: str, shares: Mapping[Fault, float], seed: int = 0) -> None:
        self._shares = shares
        self.counts: Counter[Fault] = Counter()
        self._target = urlsplit(endpoint)
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._local = threading.local()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )

    @property
    def endpoint(self) -> str:
        """The proxy's URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        """Answer a request. If this returns None, the connection is closed without an answer."""
        fault = self._fate()
        if fault is Fault.SERVER_ERROR:
            return _error(500, "InternalServerError")
        if fault is Fault.THROTTLED:
            code, member = _THROTTLES[self.counts[Fault.THROTTLED] % 2]
            return _error(400, code, **{member: [LIMIT]})
        answer = self.forward(path, headers, body)
        return None if fault is Fault.LOST_RESPONSE else answer

    def _fate(self) -> Fault | None:
        """Choose the next request's fault at random, and count it."""
        kinds = [None, *self._shares]
        with self._lock:
            weights = [1 - sum(self._shares.values()), *self._shares.values()]
            (fault,) = self._chance.choices(kinds, weights)
            if fault is not None:
                self.counts[fault] += 1
            return fault

    def forward(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Forward a request to the endpoint. Returns its response."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection(self._target.netloc, timeout=30)
            self._local.connection = connection
        connection.request("POST", path, body, dict(headers) | {"Content-Length": str(len(body))})
        answer = connection.getresponse()
        kept = {n: v for n, v in answer.headers.items() if n.lower() not in _HEADERS_OF_ONE_HOP}
        return answer.status, kept, answer.read()

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
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                if len(body) < length:
                    # The sender was killed. AWS would not have received the request either.
                    self.close_connection = True
                    return
                answer = proxy.respond(self.path, dict(self.headers), body)
                if answer is None:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                status, headers, content = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def finish(self) -> None:
                # Each client has its own thread, which ends here.
                proxy.hang_up()
                super().finish()

            def log_message(self, *_: object) -> None:
                pass

        return Handler


LIMIT = {
    "reason": "TableWriteKeyRangeThroughputExceeded",
    "resource": "arn:aws:dynamodb:us-east-1:000000000000:table/throttled",
}
"""Why requests are throttled, as DynamoDB would say."""
_THROTTLES = (
    ("ProvisionedThroughputExceededException", "ThrottlingReasons"),
    ("ThrottlingException", "throttlingReasons"),
)


class FaultyBus(FaultyProxy):
    """A faulty proxy in front of EventBridge.

    Attributes:
        taken: Ids of the events that the bus accepted, in order, including duplicates.
    """

    def __init__(self, endpoint: str, shares: Mapping[Fault, float], seed: int = 0) -> None:
        super().__init__(endpoint, shares, seed)
        self.taken: list[str] = []

    def forward(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Forward a call to the bus, and note the events that it accepts."""
        status, kept, content = super().forward(path, headers, body)
        if status == 200:
            entries, answers = json.loads(body)["Entries"], json.loads(content)["Entries"]
            with self._lock:
                self.taken += [
                    json.loads(entry["Detail"])["metadata"]["eventId"]
                    for entry, answer in zip(entries, answers, strict=True)
                    if "ErrorCode" not in answer
                ]
        return status, kept, content


def _error(status: int, code: str, **members: list[dict[str, str]]) -> Answer:
    document = {"__type": code, "message": "injected", **members}
    return status, _JSON, json.dumps(document).encode()
