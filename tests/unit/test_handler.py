"""The order handler with the sample events, and its metrics."""

import ast
import itertools
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import get_args

import boto3
import pytest

from inventory_orders.domain.allotments import DEPOT, PageKey
from inventory_orders.engine.loop import Engine
from inventory_orders.engine.memory import Recent
from inventory_orders.errors import ConfigurationError
from inventory_orders.invocation import runtime
from inventory_orders.invocation.telemetry import Door
from inventory_orders.lanes.callers import CallersSource
from inventory_orders.store.tables import Table
from local import ROOT
from local.invoke import is_good
from operations import emf
from testing.aws import ServiceError
from testing.world.events import order_body, sqs_event
from testing.world.handlers import FakeContext, function_names, load_handler

EVENTS = ROOT / "events"
ORDER_FEEDS = ("Order", "OrderFifo", "OrderExpress")


@pytest.fixture
def handle(tea_shop):
    return partial(tea_shop.invoke, "place_orders")


def sample(name):
    return json.loads((EVENTS / f"{name}.json").read_text())


@pytest.mark.parametrize("name", function_names())
def test_clients_are_created_at_import_and_not_in_the_first_invocation(name, tea_shop, monkeypatch):
    runtime.client.cache_clear()
    tea_shop.handler(name)
    load_handler(name)
    monkeypatch.delattr(boto3, "client")
    event = sample({"count_stock": "count_stock_acquire"}.get(name, name))
    assert is_good(tea_shop.invoke(name, event))


@pytest.mark.parametrize("name", function_names())
def test_a_handler_can_be_imported_without_its_environment(name, monkeypatch):
    for variable in [name for name in os.environ if name.endswith(("_TABLE_NAME", "QUEUE_URL"))]:
        monkeypatch.delenv(variable)
    monkeypatch.delattr(boto3, "client")
    event = sample({"count_stock": "count_stock_acquire"}.get(name, name))
    handler = load_handler(name)
    with pytest.raises(ConfigurationError, match=r"environment variable [A-Z_]+ is not set"):
        handler.lambda_handler(event, FakeContext(name))


# Prints which of the project's modules each function imports on its own, and whether it imports biip.
IMPORTS = """
import json, runpy, sys
found = {}
for function in sys.argv[1:]:
    runpy.run_path(f"functions/{function}/handler.py")
    found[function] = [name for name in sys.modules if name.split(".")[0] in ("biip", "inventory_orders")]
    for name in found[function]:
        del sys.modules[name]
print(json.dumps(found))
"""


def test_handlers_import_no_more_than_they_need(tea_shop):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, "publish_events", "place_orders", "api"],
        cwd=ROOT,
        env=os.environ | tea_shop.environment("place_orders"),
        check=True,
        stdout=subprocess.PIPE,
    )
    found = json.loads(done.stdout)
    publishes, places = found["publish_events"], found["place_orders"]
    assert "inventory_orders.publishing.publisher" in publishes
    assert [name for name in publishes if "engine" in name.split(".")] == []
    assert "inventory_orders.engine.loop" in places
    assert len(places) <= 55
    assert "inventory_orders.domain.scan" in found["api"]
    assert "biip" not in found["api"], "it is slow to import"


def test_metrics_are_emitted_once_and_after_the_commit(handle, capsys):
    handle(sample("place_orders"))
    samples = list(emf.parse(capsys.readouterr().out.splitlines()))
    totals = {s.name: sum(s.values) for s in samples if not dict(s.dimensions).get("reason")}
    assert totals["OrdersPlaced"] == 2
    assert totals["OrdersRejected"] == 2
    assert totals["OrdersReplayed"] == 1
    assert totals["MessagesDeadLettered"] == totals["MessagesReturned"] == 0
    assert totals["ConditionalWrites"] == 1
    assert totals["VersionConflict"] == totals["TransactionConflict"] == totals["Retries"] == 0
    assert emf.values_of(samples, "Retries") == [0] * 4
    assert emf.values_of(samples, "OrdersPerTransaction") == [4]
    assert emf.values_of(samples, "OrdersRejected", reason="INSUFFICIENT_STOCK") == [1]
    assert emf.values_of(samples, "OrdersRejected", reason="UNKNOWN_PRODUCT") == [1]
    allowed = {frozenset({"service"}), frozenset({"service", "reason"})}
    assert {frozenset(dict(s.dimensions)) for s in samples} <= allowed, "an id is not a dimension"


def test_more_than_a_hundred_values_of_a_metric_are_all_emitted(handle, capsys):
    orders = [order_body(f"o-{n}", {"tea-earl-grey": 1}) for n in range(150)]
    handle(sqs_event(*orders))
    samples = list(emf.parse(capsys.readouterr().out.splitlines()))
    assert len(emf.values_of(samples, "Retries")) == 150
    placed, rejected = (
        sum(emf.values_of(samples, name)) for name in ("OrdersPlaced", "OrdersRejected")
    )
    assert (placed, rejected) == (60, 90), "the catalogue has 60 packets of it"


OF_LANES = ("Loans", "LoansLost", "UnitsLent", "Recalls", "DepotWait", "OrdersFromLanes")
TEA = "tea-earl-grey"


@pytest.fixture
def sell(handle, monkeypatch, capsys):
    """Sell tea, one order for each quantity, in a process with lanes and contention. Returns the metrics."""
    monkeypatch.setattr(Recent, "has", lambda *_: True)
    ids = itertools.count()

    def sell(*quantities):
        capsys.readouterr()
        handle(sqs_event(*(order_body(f"o-{next(ids)}", {TEA: n}) for n in quantities)))
        samples = emf.parse(capsys.readouterr().out.splitlines())
        return {s.name: s.values for s in samples if s.name in (*OF_LANES, "CorruptPage")}

    return sell


def test_lanes_are_counted_when_filled_sold_from_and_recalled(sell):
    filled = sell(1, 1)
    assert filled.pop("DepotWait")[0] >= 0
    (lent,) = filled.pop("UnitsLent")
    assert 2 < lent < 59
    assert filled == {"Loans": (1,), "LoansLost": (0,), "OrdersFromLanes": (1, 1)}
    assert sell(1, 1, 1) == {"OrdersFromLanes": (1, 1, 1)}
    recalled = sell(50)
    assert (recalled["Recalls"], recalled["OrdersFromLanes"]) == ((1,), (0,))


def test_orders_sold_at_the_depot_without_a_lane_are_not_orders_from_lanes(sell, tea_shop):
    for lane in (1, 2):
        until = {"N": str(int(time.time()) + 60)}
        tea_shop.edit(Table.ALLOTMENTS, f"{lane}/lease", lockedBy={"S": "another"}, lockTime=until)
    counted = sell(1, 1)
    assert counted["OrdersFromLanes"] == (0, 0)
    assert counted["UnitsLent"] == (60 - tea_shop.stock(TEA),)


def test_a_loan_cancelled_by_a_concurrent_writer_is_counted_as_lost(sell, tea_shop, monkeypatch):
    store = tea_shop.process("place_orders").store
    write = store.write

    def overtaken(actions, token):
        monkeypatch.setattr(store, "write", write)
        tea_shop.edit(Table.PRODUCTS, TEA, _version={"N": "99"}, lowStockThreshold={"N": "7"})
        write(actions, token)

    monkeypatch.setattr(store, "write", overtaken)
    counted = sell(1)
    assert (counted["Loans"], counted["LoansLost"]) == ((1,), (1, 0))
    assert len(counted["DepotWait"]) == 2, "the order had to be redelivered"


def test_messages_delayed_by_a_corrupt_page_are_counted(sell, tea_shop):
    tea_shop.edit(Table.ALLOTMENTS, str(PageKey.of(DEPOT, TEA)))
    assert sell(1, 1)["CorruptPage"] == (2,)


def test_pages_of_delisted_products_can_be_deleted_although_a_worker_caches_them(sell, tea_shop):
    """This is the runbook's repair for `CorruptPage`. A new page has another epoch."""
    assert "UnitsLent" in sell(1)
    del tea_shop.items(Table.PRODUCTS)[TEA,]
    for lane in (0, 1, 2):
        tea_shop.items(Table.ALLOTMENTS).pop((str(PageKey.of(lane, TEA)),), None)
    create = {"action": "create", "productId": TEA, "openingStock": 100}
    created = tea_shop.invoke("manage_products", create)["createdAt"]
    assert sell(1)["OrdersFromLanes"] == (1,)
    (line,) = tea_shop.order_row("o-1")["items"]
    assert line["productCreatedAt"] == created


def test_an_order_that_the_api_places_from_a_row_is_not_one_from_lanes(tea_shop, capsys):
    event = sample("api") | {"body": json.dumps(order_body("o", {TEA: 1}))}
    answer = tea_shop.invoke("api", event)
    assert answer["statusCode"] == 201
    counted = {s.name: s.values for s in emf.parse(capsys.readouterr().out.splitlines())}
    assert (counted["OrdersPlaced"], counted["OrdersFromLanes"]) == ((1,), (0,))
    assert (counted["OrdersDirect"], len(counted["CallerWait"])) == ((1,), 1)
    assert counted.keys() & set(OF_LANES) == {"OrdersFromLanes"}


def test_the_log_says_which_limit_throttled_how_many_requests(handle, tea_shop, capsys):
    """Also if a later attempt succeeds, because the alarm on throttles turns on then too."""
    table = tea_shop.environment("place_orders")["PRODUCTS_TABLE_NAME"]
    arn = f"arn:aws:dynamodb:eu-west-1:111122223333:table/{table}"
    reason = {"reason": "TableReadKeyRangeThroughputExceeded", "resource": arn}
    errors = [ServiceError("ThrottlingException", "m", extra={"throttlingReasons": [reason]})] * 2

    def before(operation, _):
        if operation == "BatchGetItem" and errors:
            raise errors.pop()

    tea_shop.before = before
    answer = handle(sqs_event(order_body("o-1", {TEA: 1})))
    assert answer == {"batchItemFailures": []}
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (throttled,) = (line for line in lines if line.get("message") == "throttled by DynamoDB")
    assert (throttled["limit"], throttled["resource"]) == (reason["reason"], table)
    assert throttled["requests"] == 2


@pytest.mark.parametrize("name", function_names())
def test_every_log_line_names_its_messages_and_nothing_personal(name, tea_shop, capsys):
    events = [json.loads(path.read_text()) for path in sorted(EVENTS.glob(f"{name}*.json"))]
    news = [
        {"productId": "tea-earl-grey", "details": {"price": day}, "eventId": f"e-{day}"}
        | {"eventTime": f"2026-01-0{day}T00:00:00.000000+00:00"}
        for day in (2, 1)
    ]
    batches = [e for e in events if "Records" in e and "body" in e["Records"][0]]
    if name == "manage_products":
        batches.append(sqs_event(*news))
    assert batches or name in (
        "api",
        "count_stock",
        "sweep",
        "publish_events",
        "record_movements",
    ), "only these functions take no messages"
    for event in batches:
        tea_shop.invoke(name, event)
        output = capsys.readouterr().out
        lines = [json.loads(line) for line in output.splitlines() if '"_aws"' not in line]
        sent = {record["messageId"] for record in event["Records"]}
        (batch,) = (line for line in lines if line["message"] == "batch done")
        assert set(batch["correlation_ids"]) == sent
        if event["Records"][0]["body"] == json.dumps(news[0]):
            assert "stale event ignored" in {line["message"] for line in lines}
        for line in lines:
            # A line that is not about a single message must name the invocation, whose messages are known.
            assert line["function_request_id"] == batch["function_request_id"]
            assert line.get("correlation_id", next(iter(sent))) in sent
            if line["message"] in ("rejected", "dead-lettered", "returned", "stale event ignored"):
                assert "correlation_id" in line
        assert "userId" not in output
        for record in event["Records"]:
            assert record["body"] not in output
            user = re.search(r'"userId": ?"([^"]+)"', record["body"])
            assert user is None or json.dumps(user[1]) not in output


def test_a_redelivered_message_has_an_age(handle, monkeypatch):
    ages = []
    apply = Engine.apply

    def recording(self, changes, deadline, age=0.0):
        ages.append(age)
        return apply(self, changes, deadline, age)

    monkeypatch.setattr(Engine, "apply", recording)
    for seconds in (60, -60):
        event = sqs_event(order_body(f"o-{seconds}", {"tea-earl-grey": 1}), receive_count=2)
        received = str(int((time.time() - seconds) * 1000))
        event["Records"][0]["attributes"]["ApproximateFirstReceiveTimestamp"] = received
        handle(event)
    handle(sqs_event(order_body("o-1", {"tea-earl-grey": 1})))
    assert ages == [pytest.approx(60, abs=5), 0.0, 0.0], (
        "clocks may differ, and SQS may omit the time"
    )


@pytest.mark.parametrize("feed", ORDER_FEEDS)
def test_a_dead_letter_goes_to_the_dead_letter_queue_of_its_own_queue(feed, tea_shop):
    group = {"MessageGroupId": "g"} if feed == "OrderFifo" else {}
    tea_shop.send(feed, "no order", **group)
    assert tea_shop.deliver(feed) == 0
    letters = {name: len(tea_shop.dead_letters(name)) for name in ORDER_FEEDS}
    assert letters == dict.fromkeys(ORDER_FEEDS, 0) | {feed: 1}


@pytest.mark.parametrize("feed", ORDER_FEEDS)
def test_orders_are_counted_by_the_kind_of_queue_that_they_came_from(feed, tea_shop, capsys):
    group = {"MessageGroupId": "g"} if feed == "OrderFifo" else {}
    for order_id, product_id in (("o-1", TEA), ("o-2", "unknown"), ("o-1", TEA)):
        tea_shop.send(feed, order_body(order_id, {product_id: 1}), **group)
    while tea_shop.waiting(feed):
        tea_shop.deliver(feed)
    samples = list(emf.parse(capsys.readouterr().out.splitlines()))
    counted = {door: sum(emf.values_of(samples, door)) for door in get_args(Door)}
    door = "OrdersExpress" if feed == "OrderExpress" else "OrdersQueued"
    assert counted == {"OrdersDirect": 0, "OrdersExpress": 0, "OrdersQueued": 0} | {door: 2}


@pytest.mark.parametrize(("group", "feed"), [(None, "Order"), ("g", "OrderFifo")])
def test_a_dead_letter_of_an_unknown_queue_goes_to_a_queue_of_its_kind(
    handle, group, feed, tea_shop
):
    handle(sqs_event("no order", group=group, queue="unknown"))
    assert [letter.code for letter in tea_shop.dead_letters(feed)] == ["INVALID_JSON"]


def test_a_missing_table_returns_everything_and_is_logged(handle, tea_shop, capsys):
    tea_shop.restart(ORDERS_TABLE_NAME="NoSuchTable")
    answer = handle(sqs_event(order_body("o-1", {"tea-earl-grey": 1})))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m-0"}]}
    assert '"level":"CRITICAL"' in capsys.readouterr().out


def test_workers_have_the_first_lanes_and_the_api_has_the_next(tea_shop):
    process = tea_shop.process("place_orders")
    lanes = [e.source.lane for e in (process.engine_with_lanes, process.engine_for_callers)]
    assert [(lane.lanes, lane.last) for lane in lanes] == [(range(1, 3), 3), (range(3, 4), 3)]
    assert len(process.engine.source.lane.lanes) == 0
    assert type(process.engine_for_callers.source) is CallersSource


@pytest.mark.parametrize("lanes", ["", "many", "-1", "1.5", "²"])
def test_a_worker_with_an_invalid_number_of_lanes_fails(handle, tea_shop, lanes):
    tea_shop.restart(LANES=lanes)
    with pytest.raises(ConfigurationError, match="LANES"):
        handle(sqs_event(order_body("o", {TEA: 1})))
    assert tea_shop.status("o") is None


@pytest.mark.parametrize("name", function_names())
def test_a_handler_is_short(name):
    """A handler only parses the event, calls the shared code, and returns the answer."""
    tree = ast.parse((ROOT / "functions" / name / "handler.py").read_text())
    statements = sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
    assert statements < 90


def test_a_shop_in_memory_runs_one_invocation_at_a_time(tea_shop):
    """Its processes share one metrics provider, and a desk invokes from threads of its own."""
    with ThreadPoolExecutor(1) as desk:
        rivals = []

        def rival(_):
            rivals.append(desk.submit(tea_shop.invoke, "sweep", {"action": "sweep"}))
            assert not wait(rivals, timeout=0.05).done

        tea_shop.once("TransactWriteItems", rival)
        assert is_good(tea_shop.invoke("place_orders", sample("place_orders")))
        assert rivals[0].result()["result"] == "SWEPT"
