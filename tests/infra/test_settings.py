"""Settings are checked, and the error names the one to correct."""

import copy
import json

import pytest

from infra.settings import Settings, SettingsError
from local import ROOT

GOOD = json.loads((ROOT / "cdk.json").read_text())["context"]["settings"]


def changed(path, value):
    settings = copy.deepcopy(GOOD)
    target = settings
    *parents, last = path.split(".")
    for name in parents:
        target = target[name]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return settings


def test_the_settings_of_the_repository_are_good():
    settings = Settings.from_context("prod", GOOD)
    assert settings.is_production
    assert settings.stack_name == "InventoryOrders-prod"
    assert settings.queues["OrderQueue"].batchSize == 99


def test_settings_from_before_tracing_are_good():
    assert not Settings.from_context("dev", changed("tracing", None)).tracing


@pytest.mark.parametrize("stage", [None, "", "test", 1])
def test_the_stage_must_be_named(stage):
    with pytest.raises(SettingsError, match="dev"):
        Settings.from_context(stage, GOOD)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("runtime", None, "settings.runtime is missing"),
        ("runtime", "python3.10", "python3.11 or later"),
        ("architecture", "arm", "arm64"),
        ("logLevel", "LOUD", "DEBUG, INFO"),
        ("logRetentionDays", 31, "1, 3, 5"),
        ("colour", "red", "settings.colour is unknown"),
        ("tracing", "yes", "true or false"),
        ("functions", 3, "must be an object"),
        ("functions.place_orders.timeoutSeconds", 1000, "from 25 to 900"),
        ("functions.place_orders.timeoutSeconds", None, "timeoutSeconds is missing"),
        ("queues.OrderQueue.batchSize", "99", "queues.OrderQueue.batchSize is '99'"),
        ("queues.OrderQueue.batchWindowSeconds", 0, "from 1 to 300"),
        ("queues.OrderQueue.maximumConcurrency", 1, "from 2 to 1000"),
        ("queues.OrderQueue.speed", 1, "speed is unknown"),
        ("queues.OrderQueueFifo.batchWindowSeconds", 1, "a FIFO queue has no"),
        ("queues.OrderQueueFifo", None, "settings.queues.OrderQueueFifo is missing"),
        ("functions.place_orders", None, "settings.functions.place_orders is missing"),
        ("warmThroughput.Ordres", {}, "settings.warmThroughput.Ordres is unknown"),
        ("warmThroughput.Products", {"readUnitsPerSecond": 1, "writeUnitsPerSecond": 1}, "12000"),
    ],
)
def test_a_wrong_setting_is_named(path, value, says):
    with pytest.raises(SettingsError) as caught:
        Settings.from_context("dev", changed(path, value))
    assert says in str(caught.value)
