"""A faulty network: HTTP proxies in front of DynamoDB and EventBridge, for functions that run in other processes.

The variables `AWS_ENDPOINT_URL_DYNAMODB` and `AWS_ENDPOINT_URL_EVENTBRIDGE` of a deployed function point to these
proxies, which listen on loopback only.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

_HEADERS_OF_ONE_HOP = {
    *("connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"),
}


class Fault(Enum):
    THROTTLED = "throttled"
    SERVER_ERROR = "server error"
    CONFLICT = "transaction conflict"
    LOST_RESPONSE = "lost response"
    LATE = "late request"
    TORN = "torn read"


class BrownOut(Enum):
    """The part of a call that fails during a brown-out of EventBridge."""

    ENTRY = "entry"
    CALL = "call"
    CONNECTION = "connection"


@dataclass(frozen=True)
class Shares:
    """The shares of requests that meet each fault, from 0 to 1.

    Attributes:
        throttled: Requests that fail with ProvisionedThroughputExceededException or ThrottlingException, alternately.
        server_error: Requests that fail with InternalServerError.
        conflict: Transactions that are cancelled with TransactionConflict; other requests pass.
        lost_response: Requests that are executed, but whose connection is closed without a response.
        late: Writes whose connection is closed, but which are executed seconds later, after the client's retry.
        torn: BatchGetItem requests whose halves are read one after the other.
    """

    throttled: float = 0.0
    server_error: float = 0.0
    conflict: float = 0.0
    lost_response: float = 0.0
    late: float = 0.0
    torn: float = 0.0


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that were killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


_JSON = {"Content-Type": "application/x-amz-json-1.0"}
Answer = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body of a response."""


class _Proxy:
    """Forwards requests to an endpoint; subclasses inject faults. Use it as a context manager.

    Args:
        endpoint: URL of the endpoint.
        seed: Seed of the random numbers.

    Attributes:
        requests: Number of requests so far.
    """

    def __init__(self, endpoint: str, seed: int) -> None:
        self.requests = 0
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
        return self.forward(path, headers, body)

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


class FaultyProxy(_Proxy):
    """A proxy in front of DynamoDB that injects faults.

    Args:
        endpoint: URL of the endpoint.
        shares: The share of requests for each fault. May change while the proxy runs.
        seed: Seed of the random numbers.

    Attributes:
        counts: Faults so far, by kind.
    """

    def __init__(self, endpoint: str, shares: Shares, seed: int = 0) -> None:
        super().__init__(endpoint, seed)
        self.shares = shares
        self.counts: Counter[Fault] = Counter()
        self._late: list[threading.Timer] = []

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self.wait_for_late_requests()

    def wait_for_late_requests(self) -> None:
        """Wait until all late requests have been executed."""
        for late in self._late:
            late.join()

    def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        fault = self.fate(headers.get("X-Amz-Target", "").rpartition(".")[2])
        if fault is None:
            return self.forward(path, headers, body)
        if fault is Fault.LOST_RESPONSE:
            self.forward(path, headers, body)
            return None
        if fault is Fault.LATE:
            self._send_late(path, headers, body)
            return None
        if fault is Fault.TORN:
            return self._read_torn(path, headers, json.loads(body))
        return self.error_response(fault, body)

    def _send_late(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        def send() -> None:
            self.forward(path, headers, body)
            self.hang_up()

        with self._lock:
            late = threading.Timer(self._chance.uniform(*_LATE_SECONDS), send)
            self._late.append(late)
        late.start()

    def _read_torn(self, path: str, headers: Mapping[str, str], request: Any) -> Answer:
        """Read the keys of a BatchGetItem in two halves, one after the other, and join the answers."""
        entries = request["RequestItems"]
        keys = [(table, key) for table, entry in entries.items() for key in entry["Keys"]]
        joined: dict[str, dict[str, Any]] = {"Responses": {}, "UnprocessedKeys": {}}
        for half in filter(None, (keys[::2], keys[1::2])):
            part: dict[str, Any] = {}
            for table, key in half:
                part.setdefault(table, entries[table] | {"Keys": []})["Keys"].append(key)
            body = json.dumps(request | {"RequestItems": part}).encode()
            status, kept, content = self.forward(path, headers, body)
            if status != 200:
                return status, kept, content
            answer = json.loads(content)
            for table, items in answer["Responses"].items():
                joined["Responses"].setdefault(table, []).extend(items)
            for table, entry in answer.get("UnprocessedKeys", {}).items():
                left = joined["UnprocessedKeys"].setdefault(table, entry | {"Keys": []})
                left["Keys"] += entry["Keys"]
            time.sleep(_TEAR_SECONDS)
        return 200, _JSON, json.dumps(joined).encode()

    def fate(self, operation: str) -> Fault | None:
        """Choose the next request's fault at random, and count it."""
        shares = self.shares
        of_operation = [
            (Fault.CONFLICT, shares.conflict, operation == "TransactWriteItems"),
            (Fault.LATE, shares.late, operation in _WRITES),
            (Fault.TORN, shares.torn, operation == "BatchGetItem"),
        ]
        with self._lock:
            self.requests += 1
            draw = self._chance.random()
            for fault, share in (
                (Fault.THROTTLED, shares.throttled),
                (Fault.SERVER_ERROR, shares.server_error),
                (Fault.LOST_RESPONSE, shares.lost_response),
                *((fault, share) for fault, share, may_happen in of_operation if may_happen),
            ):
                if draw < share:
                    self.counts[fault] += 1
                    return fault
                draw -= share
            return None

    def error_response(self, fault: Fault, body: bytes) -> Answer:
        """Make an error response."""
        if fault is Fault.SERVER_ERROR:
            return _error(500, "InternalServerError")
        if fault is Fault.CONFLICT:
            others = len(json.loads(body)["TransactItems"]) - 1
            reasons = [{"Code": "TransactionConflict"}, *[{"Code": "None"}] * others]
            return _error(400, "TransactionCanceledException", CancellationReasons=reasons)
        code, member = _THROTTLES[self.counts[Fault.THROTTLED] % 2]
        return _error(400, code, **{member: [LIMIT]})


LIMIT = {
    "reason": "TableWriteKeyRangeThroughputExceeded",
    "resource": "arn:aws:dynamodb:us-east-1:000000000000:table/throttled",
}
"""Why requests are throttled, as DynamoDB would say."""
_THROTTLES = (
    ("ProvisionedThroughputExceededException", "ThrottlingReasons"),
    ("ThrottlingException", "throttlingReasons"),
)

_WRITES = {"TransactWriteItems", "UpdateItem", "PutItem", "DeleteItem"}
_LATE_SECONDS = (0.2, 4.0)
_TEAR_SECONDS = 0.03

_SHARE_OF_FAILURES = 0.7
_REQUESTS_OF_A_PERIOD = 30


class FaultyBus(_Proxy):
    """A proxy in front of EventBridge that produces brown-outs.

    Periods of 30 calls in which 70 % fail alternate with periods of 30 calls in which none fail. First single entries
    fail, then whole calls, then connections, and so on.

    Args:
        endpoint: URL of the endpoint.
        seed: Seed of the random numbers.

    Attributes:
        counts: Failures so far, by kind.
        taken: Ids of the events that the bus accepted, in order, including duplicates.
    """

    def __init__(self, endpoint: str, seed: int = 0) -> None:
        super().__init__(endpoint, seed)
        self.counts: Counter[BrownOut] = Counter()
        self.taken: list[str] = []
        self._periods = itertools.cycle(itertools.product(BrownOut, (False, True)))

    def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        entries = json.loads(body)["Entries"]
        kind, fails = self._draw(len(entries))
        if kind is BrownOut.ENTRY or not any(fails):
            return self._put(path, headers, entries, fails)
        is_odd = self.counts[kind] % 2 == 1
        if kind is BrownOut.CALL:
            return _error(500, "InternalFailure") if is_odd else _error(400, "ThrottlingException")
        if is_odd:
            self._put(path, headers, entries, [False] * len(entries))
        return None

    def _draw(self, entries: int) -> tuple[BrownOut, list[bool]]:
        """Decide at random whether the next call, or each of its entries, will fail, and count the failures."""
        with self._lock:
            if self.requests % _REQUESTS_OF_A_PERIOD == 0:
                self._period = next(self._periods)
            kind, is_healthy = self._period
            self.requests += 1
            share = 0.0 if is_healthy else _SHARE_OF_FAILURES
            draws = entries if kind is BrownOut.ENTRY else 1
            fails = [self._chance.random() < share for _ in range(draws)]
            self.counts[kind] += sum(fails)
            return kind, fails * (entries // draws)

    def _put(
        self, path: str, headers: Mapping[str, str], entries: list[Any], refused: list[bool]
    ) -> Answer:
        """Forward the entries that are not refused, if there are any, and answer for all entries."""
        code = {"ErrorCode": "InternalFailure", "ErrorMessage": "injected"}
        left = [entry for entry, is_refused in zip(entries, refused, strict=True) if not is_refused]
        found: list[Any] = []
        if left:
            body = json.dumps({"Entries": left}).encode()
            status, kept, content = self.forward(path, headers, body)
            if status != 200:
                return status, kept, content
            found = json.loads(content)["Entries"]
            with self._lock:
                self.taken += [
                    json.loads(entry["Detail"])["metadata"]["eventId"]
                    for entry, answer in zip(left, found, strict=True)
                    if "ErrorCode" not in answer
                ]
        taken = iter(found)
        answers = [code if is_refused else next(taken) for is_refused in refused]
        failed = sum("ErrorCode" in answer for answer in answers)
        return 200, _JSON, json.dumps({"FailedEntryCount": failed, "Entries": answers}).encode()


def _error(status: int, code: str, **members: list[dict[str, str]]) -> Answer:
    document = {"__type": code, "message": "injected", **members}
    return status, _JSON, json.dumps(document).encode()
