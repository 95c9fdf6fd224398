"""The shop in memory for tests of other code: its handlers, events and faults, and its client."""

import json
import os

import boto3
import pytest

from client import ApiError
from operations.audit import read_books
from testing import samples
from testing.shop import RunningShop
from testing.world.faults import THROTTLED

ORDER = {"orderId": "o-1", "userId": "u-7", "items": [{"productId": "tea", "quantity": 2}]}


@pytest.fixture
def shop(running_shop):
    running_shop.list("tea", 5)
    return running_shop


def kinds(shop):
    return [event["detail-type"] for event in shop.events]


def test_orders_commands_and_receipts_go_through_the_queues_and_publish_in_order(shop):
    assert shop.place("o-1", {"tea": 3}) == "PENDING"
    assert shop.place("o-2", {"tea": 3}) == "REJECTED"
    assert shop.change("confirm", "o-1") == "CONFIRMED"
    assert shop.receive("tea", 4) == 6
    assert shop.receive("tea", 1) == 7
    shop.list("tea#berlin", 1)
    assert shop.receive("tea", 2, locationId="berlin") == 3
    assert shop.change("fulfil", "o-1") == "FULFILLED"
    assert kinds(shop) == ["OrderPlaced", "OrderRejected", "OrderConfirmed", "OrderFulfilled"]
    assert {event["source"] for event in shop.events} == {"inventory-orders"}
    assert shop.place("o 3", {"tea": 1}) is None
    assert [letter.code for letter in shop.dead_letters("Order")] == ["SCHEMA_VIOLATION"]
    assert not any(each.is_wrong for each in read_books(shop.stack).accounts)


def test_code_with_clients_of_its_own_needs_no_region_and_no_credentials(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with RunningShop().open() as shop:
        shop.list("tea", 5)
        sqs = boto3.Session().client("sqs")
        body = '{"orderId": "o-1", "userId": "u", "items": [{"productId": "tea", "quantity": 1}]}'
        sqs.send_message(QueueUrl=shop.urls["OrderQueue"], MessageBody=body)
        assert shop.status("o-1") is None
        shop.work()
        assert shop.status("o-1") == "PENDING"
    assert "AWS_DEFAULT_REGION" not in os.environ


def test_only_what_goes_wrong_is_printed(shop, capsys):
    shop.place("o-1", {"tea": 2})
    shop.wait(120)
    assert capsys.readouterr().out == ""
    shop.place("o 2", {"tea": 2})
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["message"] == "dead-lettered"


def test_holds_end_as_time_passes(shop):
    shop.place("o-1", {"tea": 2}, holdSeconds=60)
    shop.wait(60)
    assert shop.status("o-1") == "PENDING", "the grace period has not ended"
    shop.wait(120)
    assert (shop.status("o-1"), shop.stock("tea")) == ("EXPIRED", 5)
    assert kinds(shop) == ["OrderPlaced", "OrderExpired"]


def test_a_message_during_a_fault_is_processed_later(shop):
    shop.refuse("TransactWriteItems", THROTTLED)
    assert shop.place("o-1", {"tea": 2}) is None
    shop.calm()
    shop.wait(300)
    assert (shop.status("o-1"), kinds(shop)) == ("PENDING", ["OrderPlaced"])


def test_requests_whose_answers_are_lost_take_effect_once(shop):
    shop.unanswered = 2
    client = shop.client()
    assert client.place_order(ORDER).wait()["status"] == "PENDING"
    assert client.confirm_order("o-1")["status"] == "CONFIRMED"
    stock = client.get_stock("tea")
    assert (stock["onHand"], stock["committed"], stock["available"]) == (5, 2, 3)
    assert kinds(shop) == ["OrderPlaced", "OrderConfirmed"]


MUG = {"productId": "mug", "openingStock": 4, "name": "Mug", "price": 1280, "safetyStock": 0}


def test_a_product_whose_answer_was_lost_is_listed(shop):
    shop.unanswered = 1
    answer = shop.client().create_product(MUG)
    assert (answer["result"], answer["stockCount"]) == ("REPLAYED", 4)


def test_a_location_whose_answer_was_lost_is_listed_with_the_products_limits(shop):
    shop.client().create_product(MUG | {"purchaseLimit": 3})
    shop.unanswered = 1
    place = {"productId": "mug", "locationId": "berlin", "openingStock": 4}
    answer = shop.client().create_product(place)
    assert (answer["result"], answer["purchaseLimit"]) == ("REPLAYED", 3)


@pytest.mark.parametrize(
    ("other", "is_lost"),
    # The same product may be another caller's, unless an answer was lost.
    [
        ({}, False),
        ({"openingStock": 5}, True),
        ({"name": "Cup"}, True),
        ({"purchaseLimit": 3}, True),
    ],
)
def test_a_product_that_was_listed_before_is_refused(shop, other, is_lost):
    client = shop.client()
    client.create_product(MUG | other)
    shop.unanswered = int(is_lost)
    with pytest.raises(ApiError) as found:
        client.create_product(MUG)
    assert found.value.code == "PRODUCT_EXISTS"


def test_an_order_that_is_left_to_the_queue_can_be_waited_for(shop):
    outcome = shop.client().place_order(ORDER, wait=None)
    assert outcome.answer is None
    assert outcome.wait()["status"] == "PENDING"
    too_many = ORDER | {"orderId": "o-2", "items": [{"productId": "tea", "quantity": 9}]}
    with pytest.raises(ApiError) as found:
        shop.client().place_order(too_many)
    assert (found.value.status, found.value.code) == (409, "INSUFFICIENT_STOCK")
    assert found.value.problem["order"]["shortages"][0]["available"] == 3


def test_the_version_of_an_order_guards_reads_and_amends(shop):
    client = shop.client()
    etag = client.place_order(ORDER).wait().etag
    assert client.get_order("o-1", if_none_match=etag) is None
    amend = {"stepId": "s-1", "items": [{"productId": "tea", "quantity": 1}]}
    assert client.amend_order("o-1", amend, if_match=etag).wait()["version"] == 2
    with pytest.raises(ApiError, match="VERSION_CHANGED"):
        client.amend_order("o-1", amend | {"stepId": "s-2"}, if_match=etag)
    assert client.get_order("o-1", if_none_match=etag)["items"][0]["cancelled"] == 1
    assert client.list_history("tea", {"limit": 1})["entries"][0]["action"] == "amend"


def test_a_customer_sees_only_their_own_orders(shop):
    anna, ben = (shop.client({"sub": name}) for name in ("u-7", "ben"))
    anna.place_order(ORDER)
    assert [order["orderId"] for order in anna.list_orders({})["orders"]] == ["o-1"]
    with pytest.raises(ApiError, match="UNKNOWN_ORDER"):
        ben.get_order("o-1")


def test_sample_events_are_data(shop):
    answer = shop.invoke("place_orders", samples.invocation("place_orders_direct"))
    assert answer["code"] == "UNKNOWN_PRODUCT"
    shop.place("o-1", {"tea": 1}, holdSeconds=900, attributes={"channel": "web"})
    event, sample = shop.events[-1], samples.published("OrderPlaced")
    assert event.keys() <= sample.keys()
    assert event["detail"]["data"].keys() == sample["detail"]["data"].keys()
