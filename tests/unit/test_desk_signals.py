"""The alarms and orders of the last hour that the desk shows: from CloudWatch, or from the dashboard of the embedded AWS."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from local.dashboard import service, signals
from local.dashboard.metrics import Metric, Samples
from local.dashboard.signals import CloudWatch, orders_of_last_hour

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
