"""Faults below the SDK: the real client and engine on a faulty network."""

import random

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.order import Order
from inventory_orders.engine.outcomes import ChangeStatus
from operations.audit import read_books
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
        committer = shop.new_committer()
        network = FaultyNetwork(committer.client.store, worker, **rates)
        pending = [Order(f"{product_id}-{worker}-{n}", "u", {product_id: 1}) for n in range(20)]
        rounds = 0
        while pending:
            rounds += 1
            assert rounds < 50
            batch, rest = pending[:2], pending[2:]
            report = committer.apply(batch, Deadline.after(20, SystemClock()))
            # Returned messages are delivered again, as by SQS.
            pending = rest + [
                order
                for order, outcome in zip(batch, report.outcomes, strict=True)
                if outcome.status is ChangeStatus.RETURNED
            ]
        return network.faults

    assert sum(in_threads(work, 4)) > 5
    books = read_books(shop.aws)
    rows = [row for key, row in books.orders.items() if key.startswith(f"{product_id}-")]
    assert len(rows) == 80
    assert sum(row["status"] == "PENDING" for row in rows) == 60
    (account,) = [account for account in books.accounts if account.product_id == product_id]
    assert (account.stock, account.difference) == (0, 0)
