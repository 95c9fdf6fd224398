"""The connector in examples/shopify: their orders arrive once, and our newest levels arrive there, whatever the sequence."""

import base64
import json
import sys
from types import SimpleNamespace

import boto3
import pytest

from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.publishing.publisher import Bus
from inventory_orders.publishing.stock import StockWatch
from local import ROOT
from operations.cells import as_id
from testing.world.events import sqs_event
from tests.support.shopify import CREDENTIALS, LOCATION, Shopify, served

TEA, CUP = "tea-earl-grey", "Cup, 50 %"
ORDER = {
    "id": 820982911946154508,
    "name": "#1001",
    "email": "anna@example.com",
    "line_items": [
        {"id": 1, "sku": TEA, "quantity": 2, "variant_id": 7, "title": "Earl Grey / groß"},
        {"id": 2, "sku": TEA, "quantity": 1, "variant_id": 7, "title": "Earl Grey, as a gift"},
        {"id": 3, "sku": None, "quantity": 1, "variant_id": None, "title": "Tip"},
    ],
}
ORDER_ID = "820982911946154508"


@pytest.fixture
def shopify():
    with served(Shopify({TEA: 60, CUP: 3})) as shop:
        yield shop


@pytest.fixture
def connector(tea_shop, shopify, monkeypatch):
    """Import the functions as Lambda does. Their queues are the handlers of a shop in memory."""
    environment = {
        "SHOP_URL": shopify.url,
        "SECRET_ID": "shopify-app",
        "TABLE_NAME": "Levels",
        "LOCATIONS": json.dumps({"": LOCATION}),
        "BUFFER": "0",
        "ORDER_QUEUE_URL": "place_orders",
        "COMMAND_QUEUE_URL": "change_orders",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(ROOT / "examples" / "shopify" / "functions")
    keys = {"product": "HASH", "location": "RANGE"}
    boto3.client("dynamodb").create_table(
        TableName="Levels",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
    )
    import levels
    import shop
    import webhook

    secret = SimpleNamespace(get_secret_value=lambda **_: {"SecretString": json.dumps(CREDENTIALS)})
    monkeypatch.setattr(shop, "secrets", secret)
    sent = []

    def deliver(QueueUrl, MessageBody):
        sent.append(json.loads(MessageBody))
        assert not tea_shop.invoke(QueueUrl, sqs_event(MessageBody))["batchItemFailures"]

    monkeypatch.setattr(webhook, "sqs", SimpleNamespace(send_message=deliver))
    yield SimpleNamespace(levels=levels, shop=shop, webhook=webhook, sent=sent)
    for name in ("levels", "shop", "webhook"):
        del sys.modules[name]


@pytest.fixture
def receive(connector, shopify):
    def receive(topic, order=ORDER, **more):
        return connector.webhook.handler(shopify.webhook(topic, order) | more, None)["statusCode"]

    return receive


# ---------------------------------------------------------------------- webhooks


def stock_of(shop):
    return int(shop.row(TEA)["stockCount"]["N"])


def test_an_order_is_placed_once_and_follows_its_payment_and_cancellation(receive, tea_shop):
    for _ in range(2):
        assert receive("orders/create") == 200
        assert stock_of(tea_shop) == 57
    placed = tea_shop.order_row(ORDER_ID)
    assert (placed["status"], placed["_version"]) == ("PENDING", 1)
    assert placed["userId"] == "anna@example.com"
    assert placed["attributes"] == {"name": "#1001"}
    assert receive("orders/paid") == receive("orders/paid") == 200
    assert tea_shop.status(ORDER_ID) == "CONFIRMED"
    assert receive("orders/cancelled") == receive("orders/cancelled") == 200
    assert tea_shop.status(ORDER_ID) == "CANCELLED"
    assert stock_of(tea_shop) == 60


def test_a_cancellation_that_arrives_before_its_order_takes_no_stock(receive, tea_shop):
    receive("orders/cancelled")
    receive("orders/create")
    assert tea_shop.status(ORDER_ID) == "CANCELLED"
    assert stock_of(tea_shop) == 60


def test_guests_and_odd_skus_have_ids_of_their_own(receive, connector):
    line = {"sku": CUP, "quantity": 1}
    receive("orders/create", ORDER | {"email": None, "line_items": [line]})
    receive("orders/create", ORDER | {"email": "a/b~@example.com", "line_items": [line]})
    message, other = connector.sent
    assert (message["userId"], other["userId"]) == (f"guest-{ORDER_ID}", as_id("a/b~@example.com"))
    assert message["items"] == [{"productId": "Cup~2C~2050~20~25", "quantity": 1}]
    for sku in (TEA, CUP, "~20", "a b", "a~20b", 'x"\\y', "ä/ö"):
        product_id = connector.shop.id_of(sku)
        assert product_id == as_id(sku)
        assert sku in connector.shop.skus_of(product_id)


def test_what_is_not_stocked_or_not_known_is_answered_and_not_sent(receive, connector):
    assert receive("orders/create", ORDER | {"line_items": ORDER["line_items"][2:]}) == 200
    assert receive("orders/edited", {"id": 1}) == 200
    assert connector.sent == []


def test_only_the_bytes_that_shopify_signed_are_accepted(receive, connector, shopify):
    event = shopify.webhook("orders/create", ORDER)
    raw = event["body"].encode()
    same = {"body": base64.b64encode(raw).decode(), "isBase64Encoded": True}
    assert receive("orders/create", **same) == 200
    signature = event["headers"]["x-shopify-hmac-sha256"]
    for wrong in ("", "ä", signature[:-4], signature.lower(), signature + "\n"):
        headers = event["headers"] | {"x-shopify-hmac-sha256": wrong}
        assert receive("orders/create", headers=headers) == 401
    assert receive("orders/create", body=json.dumps(json.loads(raw))) == 401
    assert receive("orders/create", headers={"x-shopify-topic": "orders/create"}) == 401
    assert len(connector.sent) == 1


def test_a_new_secret_counts_within_a_minute(receive, shopify, tea_shop, monkeypatch):
    assert receive("orders/create") == 200
    monkeypatch.setitem(CREDENTIALS, "clientSecret", "shpss_new")
    assert receive("orders/paid") == 401
    tea_shop.clock.sleep(60)
    assert receive("orders/paid") == 200


# ---------------------------------------------------------------------- levels


def changed(available, second=0, product_id=TEA, **more):
    """Build an event of a level that was read at a second."""
    at = f"2026-11-21T09:11:{second:02}.000000+00:00"
    data = {"productId": product_id, "available": available, "status": "ACTIVE", "at": at} | more
    return {"detail-type": "ProductStockChanged", "detail": {"metadata": {}, "data": data}}


@pytest.fixture
def write(connector):
    def write(*events):
        """Deliver events. Returns the positions of those that have to be delivered again."""
        failed = connector.levels.handler(sqs_event(*events), None)["batchItemFailures"]
        return [int(each["itemIdentifier"].removeprefix("m-")) for each in failed]

    return write


def test_a_level_is_written_and_never_below_zero(write, shopify, connector, monkeypatch):
    assert write(changed(41), changed(2, product_id="Cup~2C~2050~20~25")) == []
    assert shopify.available == {TEA: 41, CUP: 2}
    requests = shopify.requests
    write(changed(41, 1))
    assert shopify.requests == requests + 1, "an equal level is only read"
    assert shopify.tokens == 1
    for available, more in ((-3, {}), (9, {"status": "DISCONTINUED"})):
        write(changed(20, 2), changed(available, 3, **more))
        assert shopify.available[TEA] == 0
    monkeypatch.setattr(connector.levels, "BUFFER", 5)
    write(changed(20, 4))
    assert shopify.available[TEA] == 15


def test_only_the_product_itself_and_the_known_locations_are_written(write, shopify):
    shopify.skus += [f"{TEA}-100g", "new"]
    shopify.available[f"{TEA}-100g"] = 8
    elsewhere = changed(1, locationId="lyon")
    assert (
        write(changed(41), elsewhere, changed(9, product_id="new"), changed(9, product_id="none"))
        == []
    )
    assert shopify.available == {TEA: 41, CUP: 3, f"{TEA}-100g": 8}


def test_a_failure_costs_no_other_event_and_is_repeated(write, shopify, capsys):
    shopify.skus.append(CUP)
    cup = changed(2, product_id="Cup~2C~2050~20~25")
    assert write(cup, changed(41)) == [0]
    assert "2 variants have the SKU of Cup~2C~2050~20~25" in capsys.readouterr().err
    shopify.is_throttled = True
    assert write(changed(40, 1)) == [0]
    shopify.is_throttled = False
    assert write(changed(40, 1)) == []
    assert shopify.available == {TEA: 40, CUP: 3}


def test_a_sale_between_read_and_write_is_not_overwritten_unseen(write, shopify):
    seen = []

    def sell(times):
        def sell_one():
            if shopify.requests % 2 == 0 and len(seen) < times:
                shopify.available[TEA] -= 1
                seen.append(shopify.available[TEA])

        return sell_one

    shopify.before_answer = sell(2)
    assert write(changed(41)) == []
    assert (seen, shopify.available[TEA]) == ([59, 58], 41)
    assert shopify.requests == 6
    seen.clear()
    shopify.before_answer = sell(10)
    assert write(changed(50, 1)) == [0]
    assert seen == [40, 39, 38, 37, 36]


@pytest.mark.parametrize("equal", [False, True])
def test_the_newest_level_wins_whenever_its_event_arrives(write, shopify, tea_shop, equal):
    """Deliver the newer event before, after, and before each request that the older one causes."""
    older, newer = 41, 60 if equal else 30

    def run(at_call):
        calls = 0
        shopify.available[TEA] = 60
        tea_shop.items("Levels").clear()

        def deliver_newer():
            nonlocal calls
            calls += 1
            if calls == at_call:
                assert write(changed(newer, 2)) == []

        shopify.before_answer = deliver_newer
        tea_shop.before = lambda *_: deliver_newer()
        assert write(changed(older, 1)) == []
        shopify.before_answer = lambda: None
        tea_shop.calm()
        if at_call > calls:
            assert write(changed(newer, 2)) == []
        assert shopify.available[TEA] == newer, at_call
        assert write(changed(older, 1), changed(newer, 2)) == []
        assert shopify.available[TEA] == newer
        return calls

    for at_call in range(1, run(1000) + 1):
        run(at_call)


def test_a_token_is_kept_for_a_day_and_replaced_when_it_is_refused(write, shopify, connector):
    write(changed(41))
    connector.shop.TOKEN["value"] = "revoked"
    assert write(changed(40, 1)) == [0]
    assert write(changed(40, 1)) == []
    assert shopify.tokens == 2
    connector.shop.TOKEN["until"] = 0.0
    write(changed(39, 2))
    assert (shopify.tokens, shopify.available[TEA]) == (3, 39)


def test_after_a_sale_of_each_side_both_have_the_same_level(receive, write, shopify, tea_shop):
    watch = StockWatch(RetryingClient(tea_shop.store), Bus(boto3.client("events"), "bus"))

    def sweep():
        tea_shop.clock.sleep(60)
        watch.publish(tea_shop.soon(40))
        taken, tea_shop.bus.taken = tea_shop.bus.taken, []
        events = [each for each in taken if each["detail-type"] == "ProductStockChanged"]
        assert write(*events) == []

    sweep()
    # Their checkout sells three, and its webhook is late. Until then, their level is too high by three.
    shopify.available[TEA] -= 3
    tea_shop.invoke(
        "place_orders",
        sqs_event({"orderId": "o-1", "userId": "u", "items": [{"productId": TEA, "quantity": 1}]}),
    )
    sweep()
    assert shopify.available[TEA] == 59
    receive("orders/create")
    sweep()
    assert shopify.available[TEA] == stock_of(tea_shop) == 56
