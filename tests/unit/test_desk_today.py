"""The desk's first page and its search, which read the shop's data, the dead letters and the monitoring."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from botocore.exceptions import ClientError

from inventory_orders import overview
from inventory_orders.clock import SystemClock, timestamp
from inventory_orders.store import lists
from inventory_orders.store.tables import Table
from local.dashboard import service, signals
from local.dashboard.metrics import Metric, Samples
from local.dashboard.signals import CloudWatch, orders_of_last_hour
from local.desk import letters, today, work
from operations.aws import Aws
from tests.support.desk import TEA, desk_of_shop
from tests.support.movements import record_movements


@pytest.fixture
def desk():
    with desk_of_shop() as desk:
        yield desk


def read_units(desk):
    tables = desk.shop.aws.dynamodb.tables.values()
    return sum(table.consumed.reads + sum(table.consumed.index_reads.values()) for table in tables)


def test_a_quiet_day_reads_no_dead_letters(desk):
    desk.sweep()
    desk.shop.calls.clear()
    shown = desk.get("today")
    orders = shown["orders"]
    nothing = {"count": 0, "isAll": True, "oldest": None}
    assert [orders[name] for name in ("toShip", "unpaid", "paidLate")] == [nothing] * 3
    assert shown["deadLetters"]["count"] == 0
    assert shown["products"] == {"levels": {}, "worst": {}, "promised": [], "isAll": True}
    assert not {"ReceiveMessage", "Scan"} & {*desk.shop.calls}
    assert "alarms" not in shown


def test_today_says_that_no_sweep_has_counted_orders(desk):
    desk.sell("o-1")
    assert desk.get("today")["orders"] == {}
    # An unreadable row counts as missing, and the next sweep replaces it.
    desk.sweep()
    assert desk.get("today")["orders"]["asOf"]
    desk.shop.edit(Table.ALLOTMENTS, "today", content={"B": "bm90aGluZw=="})
    assert desk.get("today")["orders"] == {}
    desk.sweep()
    assert desk.get("today")["orders"]["toShip"]["count"] == 1


def test_today_counts_what_needs_somebody(desk):
    there = desk.shop.stock(TEA)
    desk.command("ManageProducts", action="change", productId=TEA, backorderLimit=9)
    desk.sell("o-1")
    # One unit more than is in stock, so that all units are promised.
    desk.sell("o-2", (TEA, there))
    desk.place("o-3", (TEA, 1), holdSeconds=600)
    desk.place("o-4", (TEA, 1))
    with pytest.raises(AssertionError, match="INSUFFICIENT_STOCK"):
        desk.place("o-5", (TEA, 99))
    desk.aws.invoke("ChangeOrders", {"action": "confirm", "orderId": "o-5"})
    loss = {"adjustmentId": "r-1", "productId": TEA, "delta": -1, "reason": "LOSS"}
    desk.command("AdjustStock", action="adjust", **loss, actor="anna")
    for code in ("INVALID_JSON", "INVALID_JSON", "SCHEMA_VIOLATION"):
        desk.dead_letter("OrderDeadLetterQueueUrl", "x", code)
    desk.dead_letter("StockDeadLetterQueueUrl", "{}", "INVALID_JSON")
    before = timestamp(SystemClock().now())
    desk.sweep()
    shown = desk.get("today")
    orders = shown["orders"]
    assert before <= orders.pop("asOf") <= timestamp(SystemClock().now())
    assert orders == {
        "toShip": one_of(2, desk.shop.order_row("o-1")["confirmedAt"]),
        "unpaid": one_of(2, desk.shop.order_row("o-3")["createdAt"]),
        "paidLate": one_of(1, desk.shop.order_row("o-5")["confirmationRejected"]["at"]),
        "blocked": 1,
        "missing": {TEA: 1},
        "names": {TEA: "Earl Grey"},
    }
    assert shown["products"] == {
        "levels": {"LOW_STOCK": 1},
        "worst": {},
        "promised": [TEA],
        "isAll": True,
    }
    assert shown["deadLetters"]["count"] == 4
    causes = [(cause["code"], cause["count"]) for cause in shown["deadLetters"]["causes"]]
    assert causes == [("INVALID_JSON", 3), ("SCHEMA_VIOLATION", 1)]
    assert "not JSON" in shown["deadLetters"]["causes"][0]["meaning"]
    assert desk.shop.waiting("OrderDeadLetter") == ["x"] * 3, "the dead letters stay in their queue"
    desk.shop.clock.sleep(8 * 86_400)
    desk.sweep()
    assert desk.get("today")["orders"]["paidLate"]["count"] == 0


def one_of(count, oldest):
    return {"count": count, "isAll": True, "oldest": oldest}


def test_a_product_that_is_out_at_one_location_is_counted_as_its_list_does(desk):
    for location_id, units in (("berlin", 0), ("store", 5)):
        opening = {"productId": TEA, "locationId": location_id, "openingStock": units}
        desk.command("ManageProducts", action="create", **opening)
    # The default location of this product is unused.
    for location_id, units in (("", 0), ("store", 5)):
        where = {"locationId": location_id} if location_id else {}
        opening = {"productId": "cup", "openingStock": units} | where
        desk.command("ManageProducts", action="create", **opening)
    shown = desk.get("today")["products"]
    assert (shown["promised"], shown["isAll"]) == ([], True)
    assert shown["levels"] == shown["worst"] == {"OUT_OF_STOCK": 1}


def test_today_says_when_there_is_more_than_it_reads(desk, monkeypatch):
    monkeypatch.setattr(overview, "MOST", 1)
    monkeypatch.setattr(today, "_MOST_LOW", 1)
    for number in range(2):
        desk.sell(f"o-{number}")
        desk.place(f"h-{number}", (TEA, 1), holdSeconds=60)
        desk.command("ManageProducts", action="create", productId=f"out-{number}", openingStock=0)
    desk.sweep()
    shown = desk.get("today")
    for name in ("toShip", "unpaid"):
        assert (shown["orders"][name]["count"], shown["orders"][name]["isAll"]) == (1, False)
    assert (shown["products"]["levels"], shown["products"]["isAll"]) == ({"OUT_OF_STOCK": 1}, False)


def test_today_costs_the_same_with_many_orders_and_products(desk):
    """Nothing that the page reads grows with the shop, once each list is full."""
    costs = []
    rows = desk.shop.items(Table.PRODUCTS)
    for most in (200, 2_000):
        for number in range(most // 2):
            for status in ("OUT_OF_STOCK", "ACTIVE"):
                key = f"{status}-{number:05}"
                item = rows[TEA,] | {"productId": {"S": key}, "status": {"S": status}}
                if status == "OUT_OF_STOCK":
                    item["stockCount"] = {"N": "0"}
                desk.shop.aws.dynamodb.answer("PutItem", {"TableName": "Products", "Item": item})
        desk.sweep()
        desk.shop.calls.clear()
        before = read_units(desk)
        desk.get("today")
        requests = [call for call in desk.shop.calls if call in {"Query", "BatchGetItem", "Scan"}]
        costs.append((read_units(desk) - before, len(requests)))
    assert costs[0] == costs[1]
    units, requests = costs[0]
    assert (units < 50, requests <= 6) == (True, True), costs


def test_the_search_finds_ids_and_beginnings_of_words(desk, monkeypatch):
    desk.sell("o-1/2%", user="auth0|anna")

    def find(text, *unsearched):
        unsearched = unsearched or ("laterReferences",)
        desk.shop.calls.clear()
        found = desk.get(f"search?text={quote(text, safe='')}")
        slow = {"Scan", "DescribeTable"} | (
            {"ReceiveMessage"} if unsearched == ("parts",) else set()
        )
        assert not slow & {*desk.shop.calls}
        assert found.pop("isAll")
        assert [one["what"] for one in found.pop("unsearched")] == [*unsearched]
        return {
            kind: [
                hit if isinstance(hit, str) else hit.get("orderId", hit.get("productId"))
                for hit in hits
            ]
            for kind, hits in found.items()
            if hits
        }

    assert find("o-1/2%", "parts") == {"orders": ["o-1/2%"]}
    assert find("auth0|anna", "parts") == {"customers": ["auth0|anna"]}
    assert find(TEA, "parts") == {"products": [TEA]}, "parts of ids do not count"
    assert find("eArL gR") == {"products": [TEA, f"{TEA}-decaf"]}
    assert find("arl") == {}, "no word begins with it"
    assert find("e!", "words", "laterReferences") == {}
    assert find("ber") == {}
    opening = {"productId": TEA, "locationId": "berlin", "openingStock": 20}
    desk.command("ManageProducts", action="create", **opening)
    tea = desk.get(f"search?text={TEA}")["products"][0]
    assert [one.get("locationId") for one in tea["places"]] == [None, "berlin"]
    assert find(f"{TEA}#berlin") == {}, "the key of a row is not an id"
    monkeypatch.setitem(desk.aws.outputs, "OrderLocations", '["berlin"]')
    assert find("berlin", "parts") == {"locations": ["berlin"]}
    assert find("BER") == {"locations": ["berlin"]}
    [empty] = desk.get("search?text=nothing")["unsearched"]
    assert empty == {"what": "laterReferences", "until": None}
    desk.command("ChangeOrders", action="fulfil", orderId="o-1/2%", reference="1Z 7")
    record_movements(desk.shop)
    assert find("1Z 7") == {"orders": ["o-1/2%"]}
    [later] = desk.get("search?text=1Z+7")["unsearched"]
    assert later["until"] > desk.shop.order_row("o-1/2%")["statusAt"]
    assert desk.get(f"search?text={'x' * 5000}")["unsearched"] == [], "it cannot be a reference"
    monkeypatch.setattr(Aws, "has_movements", False)
    assert find("1Z 7", "references") == {}


def test_the_search_finds_an_order_that_is_a_dead_letter(desk, monkeypatch):
    orders, fifo = "OrderDeadLetterQueueUrl", "OrderFifoDeadLetterQueueUrl"
    deep, wrapped = (
        "[" * 99_999 + '{"orderId": "o-deep"',
        json.dumps({"Message": '{"orderId": "o-sns"}'}),
    )
    bodies = ('{"orderId": "o-11"}', '{"orderId": 4711}', "orderId,userId\no-csv,u", deep, wrapped)
    for body in bodies:
        desk.dead_letter(orders, body, "INVALID_JSON")
    desk.dead_letter(fifo, '{"orderId": "o-fifo", "quantity": 9}', "UNKNOWN_PRODUCT", group="g")

    def find(text):
        found = desk.get(f"search?text={text}")
        return [(one["queue"], one["orderIds"]) for one in found["deadLetters"]]

    assert find("o-11") == find("O-1") == [("OrderQueue", ["o-11"])]
    assert find("4711") == [("OrderQueue", ["4711"])]
    assert find("o-csv") == [("OrderQueue", [])]
    assert find("o-cs") == find("9") == [], "a text that is not an order's id has to be whole"
    assert find("o-deep") == [("OrderQueue", ["o-deep"])]
    assert find("o-sns") == [("OrderQueue", ["o-sns"])]
    assert find("o-fifo") == [("OrderQueueFifo", ["o-fifo"])]
    monkeypatch.setattr(letters, "MOST_DEAD_LETTERS", 2)
    unsearched = desk.get("search?text=o-csv")["unsearched"]
    assert unsearched[-1] == {"what": "otherLetters", "queue": "OrderQueue", "count": 2}
    denied = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ReceiveMessage")
    monkeypatch.setattr(desk.aws.sqs, "receive_message", Mock(side_effect=denied))
    *_, unsearched = desk.get("search?text=o-csv")["unsearched"]
    assert (unsearched["what"], "AccessDenied" in unsearched["why"]) == ("deadLetters", True)


def test_the_search_says_when_there_is_more(desk, monkeypatch):
    monkeypatch.setattr(work, "MOST_HITS", 2)
    found = desk.get("search?text=tea")
    assert (len(found["products"]), found["isAll"]) == (2, False)
    desk.shop.edit(Table.PRODUCTS, TEA, stockCount={"S": "many"})
    (row, _) = desk.get("search?text=earl+grey")["unsearched"]
    assert row == {"what": "rows", "kind": "products", "count": 1}
    monkeypatch.setattr(lists, "_WORDS_OF_A_PAGE", 2)
    found = desk.get("search?text=te")
    assert (len(found["products"]), found["unsearched"][0]) == (2, {"what": "otherProducts"})


# ---------------------------------------------------------------- CloudWatch

NOW = 1_795_600_830
DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetMetricData")
TEXT = "Messages were dead-lettered. First: read errorCode. It says why. More: docs/runbook.md"


class FakeCloudWatch:
    """Answers from given alarms and metrics, and counts the calls that AWS would charge for."""

    def __init__(self):
        self.asked = []
        self.alarms = []
        self.error = None

    def get_paginator(self, operation):
        def paginate(**how):
            return SimpleNamespace(build_full_result=lambda: getattr(self, operation)(**how))

        return SimpleNamespace(paginate=paginate)

    def describe_alarms(self, AlarmNamePrefix):
        assert AlarmNamePrefix == "InventoryOrders-shop-"
        return {"MetricAlarms": self._answer(self.alarms)}

    def get_metric_data(self, **how):
        self.asked.append(how)
        minutes = [
            datetime.fromtimestamp(how["StartTime"].timestamp() + 60 * n, UTC) for n in (2, 0)
        ]
        placed = {"Id": "placed", "Timestamps": minutes, "Values": [5.0, 3.0]}
        rejected = {"Id": "rejected", "Timestamps": [], "Values": []}
        return {"MetricDataResults": self._answer([placed, rejected])}

    def _answer(self, good):
        if self.error:
            raise self.error
        return good


@pytest.fixture
def cloudwatch(monkeypatch):
    fake = FakeCloudWatch()
    fake.now = NOW
    monkeypatch.setattr(signals, "time", SimpleNamespace(time=lambda: fake.now))
    fake.outputs = {"DashboardName": "d"}
    aws = SimpleNamespace(
        outputs=fake.outputs,
        name="shop",
        service_name="inventory-orders-shop",
        client=lambda name: {"cloudwatch": fake}[name],
    )
    fake.signals = CloudWatch(lambda: aws)
    return fake


def test_alarms_that_are_on_say_their_first_step(cloudwatch):
    assert cloudwatch.signals.alarms() == {"on": [], "count": 0}
    cloudwatch.alarms = [
        {"AlarmName": f"InventoryOrders-{name}", "StateValue": state, "AlarmDescription": TEXT}
        for name, state in (
            ("shop-OrderQueueDeadLetters", "ALARM"),
            ("shop-Retries", "OK"),
            ("shop-two-OrderQueueDeadLetters", "ALARM"),
        )
    ]
    on = [
        {
            "name": "Order Queue Dead Letters",
            "step": "Read errorCode. It says why.",
            "runbook": "DeadLetters",
        }
    ]
    assert cloudwatch.signals.alarms() == {"on": on, "count": 2}
    cloudwatch.error = DENIED
    assert "AccessDenied" in cloudwatch.signals.alarms()["problem"]


def test_orders_of_the_last_hour_are_asked_for_once_a_minute(cloudwatch):
    for cloudwatch.now in (NOW, NOW + 20, NOW + 60):
        hour = orders_of_last_hour(cloudwatch.signals)
    assert hour["seconds"] == 60
    assert hour["start"] == NOW + 60 - 30 - 59 * 60
    assert (hour["placed"], hour["rejected"]) == ([3.0, 0.0, 5.0, *[0.0] * 57], [0.0] * 60)
    assert len(cloudwatch.asked) == 2
    metric = cloudwatch.asked[0]["MetricDataQueries"][0]["MetricStat"]["Metric"]
    assert metric == {
        "Namespace": "InventoryOrders",
        "MetricName": "OrdersPlaced",
        "Dimensions": [{"Name": "service", "Value": "inventory-orders-shop"}],
    }
    cloudwatch.now += 60
    cloudwatch.error = DENIED
    assert "AccessDenied" in orders_of_last_hour(cloudwatch.signals)["problem"]


def test_a_stack_with_basic_monitoring_does_not_measure_orders(cloudwatch):
    cloudwatch.outputs.clear()
    hour = orders_of_last_hour(cloudwatch.signals)
    assert (hour["placed"], hour["rejected"], cloudwatch.asked) == (None, None, [])


def test_the_embedded_aws_has_the_signals_of_its_dashboard(monkeypatch):
    now = 1_795_600_830
    monkeypatch.setattr(signals, "time", SimpleNamespace(time=lambda: now))
    monkeypatch.setattr(service, "time", SimpleNamespace(time=lambda: now))
    here = service.Service("InventoryOrders-dev", "http://127.0.0.1:1")
    here._aws = SimpleNamespace(service_name="inventory-orders-dev")
    assert orders_of_last_hour(here)["placed"] == [0.0] * 60, "no metrics have been read yet"
    here._collector = SimpleNamespace(samples=Samples())
    dimensions = frozenset({("service", "inventory-orders-dev")})
    for name, stage in (("OrdersPlaced", "dev"), ("OrdersPlaced", "other"), ("Retries", "dev")):
        of_stage = frozenset({("service", f"inventory-orders-{stage}")})
        metric = Metric("InventoryOrders", name, of_stage)
        here._collector.samples.add(metric, now - 65, [2.0, 3.0])
    assert orders_of_last_hour(here)["placed"] == [*[0.0] * 58, 5.0, 0.0]
    here._alarms["arn"] = {
        "AlarmName": "InventoryOrders-dev-Retries",
        "AlarmDescription": TEXT,
        "Namespace": "InventoryOrders",
        "MetricName": "Retries",
        "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions],
        "Statistic": "Sum",
        "Period": 300,
        "EvaluationPeriods": 1,
        "TreatMissingData": "notBreaching",
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": 4.0,
    }
    on = [{"name": "Retries", "step": "Read errorCode. It says why.", "runbook": ""}]
    assert here.alarms() == {"on": on, "count": 1}
    here._alarms["arn"]["Threshold"] = 5.0
    assert here.alarms() == {"on": [], "count": 1}
