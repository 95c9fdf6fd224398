"""Faults below the SDK: the real client and engine on a faulty network and on a read-only disk."""

import json
import os
import subprocess
import sys

import boto3

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.order import Order
from inventory_orders.errors import Outcome
from inventory_orders.lanes.source import engine_with_lanes
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store
from local import ROOT
from operations.audit import read_books
from testing.world.clock import HurriedClock
from testing.world.events import order_body, sqs_event
from tests.support.faults import Fault, FaultyProxy
from tests.support.parallel import in_threads

SHARES = {Fault.THROTTLED: 0.2, Fault.SERVER_ERROR: 0.2, Fault.LOST_RESPONSE: 0.2}


def test_faults_lose_nothing_and_apply_nothing_twice(shop, embedded_aws):
    product_id = "fault"
    shop.create(product_id, 30)

    def work(worker):
        client = boto3.client("dynamodb", endpoint_url=proxy.endpoint, config=CLIENT_CONFIG)
        store = Store(client, shop.tables)
        engine = engine_with_lanes(store, RetryPolicy(1000), HurriedClock())
        pending = [Order(f"{product_id}-{worker}-{n}", "u", {product_id: 1}) for n in range(10)]
        rounds = 0
        while pending:
            rounds += 1
            assert rounds < 50
            batch, rest = pending[:2], pending[2:]
            report = engine.apply(batch, Deadline.after(20, SystemClock()))
            # Redeliver returned messages, as SQS does.
            pending = rest + [
                order
                for order, outcome in zip(batch, report.outcomes, strict=True)
                if outcome.kind is Outcome.RETURNED
            ]

    with FaultyProxy(embedded_aws[1].endpoint, SHARES, seed=3) as proxy:
        in_threads(work, 4)
    assert proxy.counts.keys() == set(Fault)
    books = read_books(shop.aws)
    rows = [row for key, row in books.orders.items() if key.startswith(f"{product_id}-")]
    assert len(rows) == 40
    assert sum(row["status"] == "PENDING" for row in rows) == 30
    (account,) = [account for account in books.accounts if account.product_id == product_id]
    assert (account.available, account.unexplained) == (0, {})


_ON_A_FULL_DISK = """
import json, os, resource, signal, sys, tempfile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
written = []
sys.addaudithook(lambda event, args: written.append(args[0]) if event == "open" and _writes(args) else None)

def _writes(args):
    return bool((args[2] or 0) & (os.O_WRONLY | os.O_RDWR)) and "pycache" not in str(args[0])

from testing.schedules.in_turn.shop import open_shop

with open_shop() as shop:
    shop.list("p", 10)
    response = shop.invoke("place_orders", json.loads(os.environ["EVENT"]))
    placed = [shop.status(name) for name in ("o1", "o2")]
try:
    open(os.path.join(sys.argv[1], "file"), "w").write("x" * 10_000)
except OSError as error:
    refused = error.strerror
print(json.dumps({"response": response, "placed": placed, "written": written[:-1], "refused": refused}))
"""


def test_orders_are_placed_without_a_writable_disk(tmp_path):
    """The handler opens no file for writing, so neither a full /tmp nor a missing HOME matters."""
    nowhere = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), "/proc/none")
    done = subprocess.run(
        [sys.executable, "-c", _ON_A_FULL_DISK, str(tmp_path)],
        cwd=ROOT,
        env={
            **os.environ,
            **nowhere,
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
