"""The handlers other than place_orders process the sample events."""

import json

import pytest

from inventory_orders.retry import EARLY_DELIVERIES
from inventory_orders.store.tables import Table
from local import ROOT
from operations import emf
from testing.world.events import order_body, sqs_event
from testing.world.faults import lose_responses

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
    def test_the_sample_is_applied_once(self, call, tea_shop):
        before = tea_shop.stock(TEA)
        assert call("adjust_stock", sample("adjust_stock")) == {"batchItemFailures": []}
        assert call("adjust_stock", sample("adjust_stock")) == {"batchItemFailures": []}
        assert tea_shop.stock(TEA) == before + 41
        assert int(tea_shop.row(TEA)["_version"]["N"]) == 2, (
            "all adjustments of a batch share one write"
        )

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

    def test_a_direct_command_reads_again_after_a_lost_response(self, call, tea_shop):
        call("adjust_stock", sample("adjust_stock_direct"))
        store = tea_shop.process("adjust_stock").store
        lose_responses(store._client, "GetItem", 2)
        assert call("adjust_stock", sample("adjust_stock_direct"))["stockCount"] == 72

    @pytest.mark.parametrize("mode", ["optimistic", "atomic"])
    def test_a_plain_decrement_is_applied_in_both_modes(self, call, tea_shop, mode):
        for number in range(3):
            answer = call(
                "adjust_stock",
                {
                    "action": "decrement",
                    "adjustmentId": f"d-{mode}-{number}",
                    "productId": TEA,
                    "quantity": 2,
                    "mode": mode,
                },
            )
            assert answer["result"] == "APPLIED"
        assert answer["path"] == mode, "the first decrement fills the product cache"
        assert tea_shop.stock(TEA) == TEA_STOCK - 6

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


class TestChangeOrders:
    def test_the_sample_cancels_an_order_before_it_comes(self, call, tea_shop, capsys):
        assert call("change_orders", sample("change_orders")) == {"batchItemFailures": []}
        order_id = "sample-o-cancelled-early"
        tombstone = tea_shop.order_row(order_id)
        assert (tombstone["status"], tombstone["items"]) == ("CANCELLED", [])
        capsys.readouterr()
        call("place_orders", sqs_event(order_body(order_id, {TEA: 5})))
        assert emf.values_of(metrics_of(capsys), "OrdersPlaced") == [0]
        filled = tea_shop.order_row(order_id)
        assert (filled["status"], filled["userId"]) == ("CANCELLED", "u-1")
        assert tea_shop.stock(TEA) == TEA_STOCK


class TestManageProducts:
    def test_an_older_catalogue_event_is_ignored(self, call, tea_shop, capsys):
        assert call("manage_products", sample("manage_products")) == {"batchItemFailures": []}
        assert tea_shop.row(TEA)["name"]["S"] == "Earl Grey, new harvest"
        assert tea_shop.row(TEA)["price"]["N"] == "720"
        assert emf.values_of(metrics_of(capsys), "StaleEventsIgnored") == [1]

    def test_an_event_for_an_unknown_product_is_returned(self, call):
        event = {
            "eventId": "e",
            "eventTime": "2026-01-01T00:00:00.000000+00:00",
            "productId": "new",
            "details": {},
        }
        answer = call("manage_products", sqs_event(event))
        assert answer == {"batchItemFailures": [{"itemIdentifier": "m-0"}]}

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
    def test_a_count_can_take_several_invocations(self, call, tea_shop):
        acquired = call("count_stock", sample("count_stock_acquire"))
        assert (acquired["result"], acquired["stockCount"]) == ("ACQUIRED", tea_shop.stock(COUNTED))
        held = call("count_stock", sample("count_stock_acquire"))
        assert (held["result"], held["code"]) == ("RETRY_LATER", "LEASED")
        assert 290 < held["retryAfterSeconds"] <= 300
        renewed = call(
            "count_stock", {"action": "renew", "lease": acquired["lease"], "seconds": 600}
        )
        assert renewed["lease"]["version"] == acquired["lease"]["version"] + 1
        commit = {
            "action": "commit",
            "lease": renewed["lease"],
            "counted": acquired["stockCount"] - 5,
            "adjustmentId": "count-1",
        }
        committed = call("count_stock", commit)
        assert (committed["result"], committed["delta"]) == ("COMMITTED", -5)
        again = call("count_stock", commit)
        assert again == {k: v for k, v in committed.items() if k != "handedOverSince"}, (
            "the repeated commit has the same answer"
        )
        release = {"action": "release", "lease": commit["lease"]}
        assert call("count_stock", release)["result"] == "LEASE_WAS_OVER", (
            "the commit has ended the lease"
        )
        assert tea_shop.stock(COUNTED) == acquired["stockCount"] - 5
        assert "lockedBy" not in tea_shop.row(COUNTED)

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
