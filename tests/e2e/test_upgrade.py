"""During an upgrade and a rollback, orders keep flowing, no call fails, and books and events stay correct."""

import json
import re
import shutil
import threading
import uuid

import pytest

from infra import assets
from inventory_orders.store.tables import Table
from local import ROOT, stack
from local.endpoint import embedded_environment
from operations import queues
from operations.audit import read_books, read_rows
from operations.aws import LIVE
from operations.follow import listening
from testing.world.events import order_body
from tests.support.api import JsonApi
from tests.support.stack import QUIET_SECONDS, create, wait_until, wait_until_settled
from tests.support.template import assemble

STOCK = 100_000
PAUSE = 0.25


@pytest.fixture
def next_version(tmp_path, monkeypatch):
    """Synthesise the service with a changed setting, and with a renamed module in the layer.

    Every handler imports the module, so a function with the layer of one version and the handler of the other would
    fail.
    """
    source = tmp_path / "source"
    for room in ("layers", "functions"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / room, source / room, ignore=ignored)
    (module,) = source.rglob("invocation/runtime.py")
    module.rename(module.with_name("renamed.py"))
    for file in source.rglob("*.py"):
        file.write_text(re.sub(r"\bruntime\b", "renamed", file.read_text("utf-8")), "utf-8")
    monkeypatch.setattr(assets, "ROOT", source)
    package = source / "layers" / "core" / "python" / "inventory_orders"
    monkeypatch.setattr(assets.importlib.resources, "files", lambda _: package)
    assemble(tmp_path / "assembly", "dev", **stack.SETTINGS, lanes=4)
    return tmp_path / "assembly"


class Customers(threading.Thread):
    """Customers who keep placing orders, in every possible way, until they are stopped.

    Attributes:
        sent: Ids of the orders.
        problems: Wrong answers.
        versions: Versions of the functions that answered a direct invocation.
    """

    def __init__(self, aws, product):
        super().__init__()
        self.aws, self.product, self.api = aws, product, JsonApi.of(aws)
        self.sent, self.problems, self.versions = [], [], set()
        self.over = threading.Event()

    def run(self):
        try:
            while not self.over.wait(PAUSE):
                self.by_queue(queues.STANDARD)
                self.by_queue(queues.FIFO, MessageGroupId=self.product)
                self.by_invocation()
                self.by_http()
        except Exception as error:
            self.problems.append(repr(error))

    def new_order(self):
        self.sent.append(f"{self.product}-{len(self.sent)}")
        return order_body(self.sent[-1], {self.product: 1})

    def by_queue(self, queue, **more):
        body = self.new_order()
        url = self.aws.outputs[queue]
        self.aws.sqs.send_message(QueueUrl=url, MessageBody=json.dumps(body), **more)

    def by_invocation(self):
        event = json.dumps({"action": "place", **self.new_order()})
        done = self.aws.functions.invoke(FunctionName=self.aws.live("PlaceOrders"), Payload=event)
        answer = json.loads(done["Payload"].read())
        self.versions.add(done["ExecutedVersion"])
        if "FunctionError" in done or answer.get("status") != "PENDING":
            self.problems.append(answer)

    def by_http(self):
        said = self.api("POST", "/orders", self.new_order())
        if said.status not in (201, 202):
            self.problems.append(said)


def version_of(aws):
    name = aws.outputs["PlaceOrdersFunctionName"]
    live = aws.functions.get_alias(FunctionName=name, Name=LIVE)["FunctionVersion"]
    found = aws.functions.get_function_configuration(FunctionName=name, Qualifier=live)
    return live, found["CodeSha256"], found["Environment"]


def test_an_upgrade_and_a_rollback_while_orders_flow(embedded_aws, next_version):
    aws, emulator = embedded_aws
    product = f"upgrade-{uuid.uuid4().hex[:8]}"
    create(aws, product, STOCK)
    before = version_of(aws)
    customers = Customers(aws, product)

    def goes_on():
        """Wait until an order has been placed in each way, from start to finish, since this call."""
        enough = len(customers.sent) + 8
        wait_until(aws, lambda: len(customers.sent) >= enough or customers.problems)
        assert customers.problems == []

    with listening(aws) as listen:
        customers.start()
        try:
            goes_on()
            stack.deploy(emulator, next_version)
            after = version_of(aws)
            goes_on()
            former = stack._synthesise(
                stack.cdk_environment(embedded_environment(emulator.endpoint))
            )
            stack.deploy(emulator, former)
            goes_on()
        finally:
            customers.over.set()
            customers.join()
        # A message whose invocation failed would be redelivered after minutes, which is longer than this test waits.
        wait_until_settled(aws)
        waiting = set(customers.sent)
        for heard in listen(QUIET_SECONDS):
            if heard.event["detail-type"] == "OrderPlaced":
                waiting.discard(heard.event["detail"]["data"]["orderId"])
            if not waiting:
                break
    assert customers.problems == []
    assert waiting == set(), "some orders have no event"
    back = version_of(aws)
    versions = [before[0], after[0], back[0]]
    assert customers.versions == set(versions)
    assert after[1:] != before[1:] == back[1:]
    placed = {
        row["orderId"]
        for row in read_rows(aws, Table.ORDERS)
        if row["orderId"].startswith(product) and row["status"] == "PENDING"
    }
    assert placed == set(customers.sent)
    (account,) = [a for a in read_books(aws).accounts if a.product_id == product]
    assert not account.is_wrong
    assert account.available == STOCK - len(placed)
    pages = aws.logs.get_paginator("describe_log_streams").paginate(
        logGroupName=aws.outputs["PublishEventsLogGroupName"]
    )
    streams = [stream["logStreamName"] for page in pages for stream in page["logStreams"]]
    served = {re.search(r"\[(.+)\]", name)[1] for name in streams}
    assert served >= set(versions), "the mapping must invoke the alias too"
