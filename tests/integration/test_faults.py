"""Faults below the SDK: the real client and engine on a faulty network, and on a disk that cannot be written."""

import json
import os
import random
import subprocess
import sys

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.order import Order
from inventory_orders.errors import Verdict
from inventory_orders.store.tables import Table
from local import ROOT
from operations.audit import read_books
from testing.bench import product, stored
from testing.clocks import HurriedClock
from testing.events import order_body, sqs_event
from tests.support.parallel import in_threads


class RawBody:
    def __init__(self, content):
        self._content = content

    def stream(self, **_):
        yield self._content


class FaultyNetwork:
    """Replaces the client's network: loses responses after the write was applied, or answers with errors."""

    def __init__(self, store, seed, lost=0.0, throttled=0.0, conflict=0.0):
        self._session = store._client._endpoint.http_session
        self._send = self._session.send
        self._session.send = self.send
        self._chance = random.Random(seed)
        self._rates = (lost, throttled, conflict)
        self.faults = 0

    def send(self, request):
        lost, throttled, conflict = self._rates
        draw = self._chance.random()
        writes = b"TransactWriteItems" in request.headers["X-Amz-Target"]
        if draw < lost:
            self.faults += 1
            self._send(request)
            raise ReadTimeoutError(endpoint_url=request.url)
        if draw < lost + throttled:
            self.faults += 1
            return _error(request, "ThrottlingException", "{}")
        if draw < lost + throttled + conflict and writes:
            self.faults += 1
            return _error(
                request,
                "TransactionCanceledException",
                '{"CancellationReasons": [{"Code": "TransactionConflict"}]}',
            )
        return self._send(request)


def _error(request, code, body):
    content = body.replace("{", f'{{"__type": "{code}"' + (", " if body != "{}" else ""), 1)
    headers = {"x-amzn-requestid": "injected", "content-type": "application/x-amz-json-1.0"}
    return AWSResponse(request.url, 400, headers, RawBody(content.encode()))


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("lost", {"lost": 0.3}),
        ("throttled", {"throttled": 0.3}),
        ("conflict", {"conflict": 0.4}),
        ("all", {"lost": 0.1, "throttled": 0.1, "conflict": 0.2}),
    ],
)
def test_faults_lose_nothing_and_apply_nothing_twice(shop, name, rates):
    product_id = f"fault-{name}"
    shop.create(product_id, 60)

    def work(worker):
        engine = shop.new_engine(clock=HurriedClock())
        network = FaultyNetwork(engine.client.store, worker, **rates)
        pending = [Order(f"{product_id}-{worker}-{n}", "u", {product_id: 1}) for n in range(20)]
        rounds = 0
        while pending:
            rounds += 1
            assert rounds < 50
            batch, rest = pending[:2], pending[2:]
            report = engine.apply(batch, Deadline.after(20, SystemClock()))
            # Returned messages are delivered again, as by SQS.
            pending = rest + [
                order
                for order, outcome in zip(batch, report.outcomes, strict=True)
                if outcome.verdict is Verdict.RETURNED
            ]
        return network.faults

    assert sum(in_threads(work, 4)) > 5
    books = read_books(shop.aws)
    rows = [row for key, row in books.orders.items() if key.startswith(f"{product_id}-")]
    assert len(rows) == 80
    assert sum(row["status"] == "PENDING" for row in rows) == 60
    (account,) = [account for account in books.accounts if account.product_id == product_id]
    assert (account.on_hand, account.difference) == (0, 0)


_ON_A_FULL_DISK = """
import json, os, resource, signal, sys, tempfile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
written = []
sys.addaudithook(lambda event, args: written.append(args[0]) if event == "open" and _writes(args) else None)

def _writes(args):
    return bool((args[2] or 0) & (os.O_WRONLY | os.O_RDWR)) and "pycache" not in str(args[0])

from inventory_orders.store.tables import Table
from testing.handlers import FakeContext, load_handler
from testing.tables import create_table
from testing.simulated_aws import ManualClock, SimulatedAws, answered_by
import boto3

aws = SimulatedAws(ManualClock().now)
queue = aws.sqs.create("Orders", 180, aws.sqs.create("Dead"), 20)
os.environ["QUEUE_URL"], os.environ["DEAD_LETTER_QUEUE_URL"] = queue.url, aws.sqs.queues["Dead"].url
with answered_by(aws.answer):
    client = boto3.client("dynamodb")
    for table in Table:
        create_table(client, table, table.value)
    product = json.loads(os.environ["PRODUCT"])
    aws.dynamodb.answer("PutItem", {"TableName": "Products", "Item": product})
    response = load_handler("place_orders").lambda_handler(
        json.loads(os.environ["EVENT"]), FakeContext("place_orders")
    )
placed = [item["status"]["S"] for item in aws.dynamodb.tables["Orders"].items.values()]
try:
    open(os.path.join(sys.argv[1], "file"), "w").write("x" * 10_000)
except OSError as error:
    refused = error.strerror
print(json.dumps({"response": response, "placed": placed, "written": written[:-1], "refused": refused}))
"""


def test_a_disk_that_cannot_be_written_keeps_no_order_from_being_placed(tmp_path):
    """The handler opens no file for writing, so neither a full /tmp nor a missing HOME matters."""
    nowhere = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), "/proc/none")
    done = subprocess.run(
        [sys.executable, "-c", _ON_A_FULL_DISK, str(tmp_path)],
        cwd=ROOT,
        env={
            **os.environ,
            **{f"{table.name}_TABLE_NAME": table.value for table in Table},
            **nowhere,
            "LANES": "2",
            "PRODUCT": json.dumps(stored(product("p", 10))),
            "EVENT": json.dumps(sqs_event(order_body("o1", {"p": 1}), order_body("o2", {"p": 2}))),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert result == {
        "response": {"batchItemFailures": []},
        "placed": ["PENDING", "PENDING"],
        "written": [],
        "refused": "File too large",
    }
