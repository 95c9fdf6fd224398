"""The faulty bus produces each kind of brown-out, as the publisher's own client sees it."""

import json
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

import boto3
import pytest

from inventory_orders.domain.events import Event
from inventory_orders.publishing.publisher import CLIENT_CONFIG, Bus, BusEntry
from tests.support.faults import BrownOut, FaultyBus


class Healthy(BaseHTTPRequestHandler):
    """An EventBridge that accepts every entry."""

    def do_POST(self):
        entries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["Entries"]
        answers = [{"EventId": "e"} for _ in entries]
        content = json.dumps({"FailedEntryCount": 0, "Entries": answers}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def proxy():
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with FaultyBus(f"http://127.0.0.1:{server.server_port}", seed=3) as proxy:
            yield proxy
        server.shutdown()


def test_each_kind_of_brown_out_is_followed_by_a_healthy_time(proxy):
    bus = Bus(boto3.client("events", endpoint_url=proxy.endpoint, config=CLIENT_CONFIG), "Bus")
    ids = iter(range(10**6))
    taken = []

    def put():
        """Send a call with three entries, and return their error codes."""
        sent = [f"o-{next(ids)}#1#OrderPlaced" for _ in range(3)]
        entries = [BusEntry.of(Event("t", id_, id_, "", {})) for id_ in sent]
        answers = bus.put(entries)
        taken.extend(id_ for id_, no in zip(sent, answers, strict=True) if no is None)
        return tuple(no and no.code for no in answers)

    seen = {}
    for kind in BrownOut:
        before = len(proxy.taken) - len(taken)
        seen[kind] = {put() for _ in range(30)}
        lost = len(proxy.taken) - len(taken) - before
        assert (lost > 0) == (kind is BrownOut.CONNECTION), "calls without an answer were accepted"
        assert {put() for _ in range(30)} == {(None,) * 3}
    assert {len(set(codes)) for codes in seen[BrownOut.ENTRY]} == {1, 2}, (
        "some entries of a call fail"
    )
    assert set().union(*seen[BrownOut.ENTRY]) == {None, "InternalFailure"}
    all_of = [None, "InternalFailure", "ThrottlingException"]
    assert seen[BrownOut.CALL] == {(code,) * 3 for code in all_of}
    assert seen[BrownOut.CONNECTION] == {(code,) * 3 for code in (None, "AWS_UNREACHABLE")}
    assert set(taken) <= set(proxy.taken)
    assert proxy.counts.keys() == set(BrownOut)


def test_a_request_of_a_killed_publisher_does_not_count(proxy, capfd):
    address = urlsplit(proxy.endpoint)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert proxy.taken == []
    assert capfd.readouterr().err == ""
