"""The handlers other than place_orders process the sample events."""

import json

import pytest

from inventory_orders.retry import EARLY_DELIVERIES
from inventory_orders.store.tables import Table
from local import ROOT
from operations import emf
from testing.world.events import sqs_event

TEA = "tea-earl-grey"
TEA_STOCK = 60
# The samples sell a tea and count another one, so that they succeed in any sequence.
COUNTED = "tea-lady-grey"


@pytest.fixture
def call(tea_shop):
    return tea_shop.invoke


def sample(name):
    return json.loads((ROOT / "events" / f"{name}.json").read_text())


def causes(shop, queue):
    """Return the error codes and messages of a queue's dead letters."""
    return {letter.code: letter.message for letter in shop.dead_letters(queue)}


def metrics_of(capsys):
    return list(emf.parse(capsys.readouterr().out.splitlines()))


class TestAdjustStock:
    def test_an_early_adjustment_is_sent_again_and_in_the_end_dead_lettered(self, call, tea_shop):
        early = [
            {"adjustmentId": "a", "productId": "new", "delta": 1, "reason": "RECEIPT"},
            {"adjustmentId": "b", "productId": TEA, "delta": -999, "reason": "CORRECTION"},
        ]
        answer = call("adjust_stock", sqs_event(*early, receive_count=EARLY_DELIVERIES - 1))
        assert len(answer["batchItemFailures"]) == 2
        last = sqs_event(*early, receive_count=EARLY_DELIVERIES)
        assert call("adjust_stock", last) == {"batchItemFailures": []}
        assert causes(tea_shop, "Stock") == {}
        for record in last["Records"]:
            record["messageAttributes"] = {"originalMessageId": {"stringValue": "m"}}
        assert call("adjust_stock", last) == {"batchItemFailures": []}
        found = causes(tea_shop, "Stock")
        assert set(found) == {"UNKNOWN_PRODUCT", "BELOW_FLOOR"}
        assert tea_shop.stock(TEA) == TEA_STOCK

    def test_a_direct_answer_has_the_new_stock_version_and_status(self, call):
        expected = {"productId": TEA, "locationId": "", "stockCount": 72}
        expected |= {"version": 2, "status": "ACTIVE"}
        assert call("adjust_stock", sample("adjust_stock_direct")) == {
            "result": "APPLIED",
            **expected,
        }
        again = call("adjust_stock", sample("adjust_stock_direct"))
        assert again["result"] == "REPLAYED"
        assert {name: again[name] for name in expected} == expected

    @pytest.mark.parametrize("mode", ["optimistic", "atomic"])
    def test_a_refused_decrement_is_final_and_names_the_stock_at_that_time(self, call, mode):
        take = {"action": "decrement", "adjustmentId": "d", "productId": TEA, "mode": mode}
        take["quantity"] = TEA_STOCK + 1
        refused = call("adjust_stock", take)
        assert f"{TEA_STOCK} available" in refused["message"]
        short = {"productId": TEA, "wanted": TEA_STOCK + 1, "available": TEA_STOCK}
        assert refused["shortages"] == [short]
        call("adjust_stock", sample("adjust_stock_direct"))
        for other in ("optimistic", "atomic"):
            assert call("adjust_stock", take | {"mode": other}) == refused
        assert call("adjust_stock", take | {"adjustmentId": "e"})["result"] == "APPLIED"


class TestManageProducts:
    def test_an_older_catalogue_event_is_ignored(self, call, tea_shop, capsys):
        assert call("manage_products", sample("manage_products")) == {"batchItemFailures": []}
        assert tea_shop.row(TEA)["name"]["S"] == "Earl Grey, new harvest"
        assert tea_shop.row(TEA)["price"]["N"] == "720"
        assert emf.values_of(metrics_of(capsys), "StaleEventsIgnored") == [1]

    def test_details_can_be_changed_directly(self, call):
        event = json.loads(sample("manage_products")["Records"][0]["body"])
        applied = call("manage_products", {"action": "changeDetails", **event})
        assert (applied["result"], applied["price"]) == ("APPLIED", 720)
        older = {**event, "eventTime": "2026-11-20T09:00:00.000000+00:00"}
        assert call("manage_products", {"action": "changeDetails", **older})["result"] == "STALE"

    def test_a_product_can_be_priced_discontinued_and_delisted(self, call, tea_shop, capsys):
        price = call("manage_products", sample("manage_products_price"))
        assert (price["result"], price["price"]) == ("APPLIED", 720)
        done = call("manage_products", sample("manage_products_discontinue"))
        assert (done["result"], done["status"]) == ("APPLIED", "DISCONTINUED")
        capsys.readouterr()
        stale = call("manage_products", sample("manage_products_delist_stale"))
        assert stale["result"] == "STALE"
        assert emf.values_of(metrics_of(capsys), "StaleDeletesIgnored") == [1]
        created_at = tea_shop.row(TEA)["createdAt"]["S"]
        delist = {"action": "delist", "productId": TEA, "createdAt": created_at}
        assert call("manage_products", delist)["result"] == "APPLIED"
        assert (TEA,) not in tea_shop.items(Table.PRODUCTS)
        assert call("manage_products", delist)["result"] == "STALE"

    def test_an_unknown_action_is_answered_with_the_known_ones(self, call):
        said = call("manage_products", {})["message"]
        assert said.startswith("action: is missing; it must be one of create, changeDetails")
        said = call("manage_products", {"action": "drop"})["message"]
        assert said.startswith("action: must be one of create, changeDetails")
        assert 'but is "drop"' in said


class TestCountStock:
    def test_the_answer_says_how_long_a_lease_lasts_and_why_not_longer(self, call):
        command = {"action": "acquire", "productId": TEA, "seconds": 300}
        short = call("count_stock", command)
        assert 20 < short["grantedSeconds"] < 30
        assert (
            "instead of 300 s, because a lease without outliveInvocation ends with the call"
            in short["message"]
        )
        renewal = {"action": "renew", "lease": short["lease"], "seconds": 300}
        renewed = call("count_stock", renewal | {"outliveInvocation": True})
        assert (renewed["grantedSeconds"], "message" in renewed) == (300, False)

    def test_a_lease_without_its_generation_is_told_what_is_missing(self, call):
        acquire = {"action": "acquire", "productId": COUNTED, "seconds": 60}
        lease = call("count_stock", acquire | {"outliveInvocation": True})["lease"]
        del lease["createdAt"]
        answer = call("count_stock", {"action": "release", "lease": lease})
        assert (answer["code"], answer["field"]) == ("SCHEMA_VIOLATION", "lease.createdAt")
        assert "lease must be the lease as returned by acquire or renew" in answer["message"]


@pytest.mark.parametrize(
    "name", ["place_orders", "adjust_stock", "change_orders", "manage_products"]
)
def test_every_queue_handler_says_how_long_ago_a_message_was_first_received(
    call, capsys, monkeypatch, name
):
    monkeypatch.setattr("time.time", lambda: 1790001800.5)
    first, second = sample(name)["Records"][:2]
    first["attributes"]["ApproximateFirstReceiveTimestamp"] = "1790001000000"
    second["attributes"]["ApproximateFirstReceiveTimestamp"] = "1790000000000"
    capsys.readouterr()
    for records in ([first, second], [first], []):
        call(name, {"Records": records})
    ages = emf.values_of(metrics_of(capsys), "TimeSinceFirstReceive")
    assert ages == [1800.5, 800.5, 0], "each batch has one value, that of its oldest message"
