"""The sweep sends an expiry message in time for each hold that ends, and makes up for failed sweeps."""

import json
from datetime import UTC, datetime

import pytest

from docs_generator import costs
from inventory_orders.clock import timestamp
from inventory_orders.domain.record import OrderRecord, OrderStatus
from inventory_orders.errors import RepairNeededError
from inventory_orders.holds import ending as holds
from inventory_orders.invocation import runtime
from inventory_orders.store import rows
from inventory_orders.store.tables import EXPIRY_SHARDS, Table
from testing.aws import ServiceError

SWEEP_SECONDS = 50.0
GRACE_SECONDS = 60
# The cold start of a function with large dependencies.
COLD_START_SECONDS = 10.0


@pytest.fixture
def shards():
    """Use fewer shards than the deployed stack, because querying so many would take most of the test's time."""
    return 4


@pytest.fixture
def shop(shop, shards, monkeypatch):
    monkeypatch.setattr(rows, "EXPIRY_SHARDS", shards)
    monkeypatch.setattr(holds, "EXPIRY_SHARDS", shards)
    return shop


def sweep(shop, seconds=SWEEP_SECONDS):
    return shop.invoke("sweep", {"action": "sweep"}, seconds)


def hold(shop, order_id, seconds):
    """Store an order whose hold ends after this many seconds, and return that time."""
    end = timestamp(datetime.fromtimestamp(shop.clock.now() + seconds, UTC))
    order = OrderRecord(order_id, "u-1", (), OrderStatus.PENDING, 1, end, end, expires_at=end)
    shop.put_record(order)
    return shop.clock.now() + seconds


def sent(shop):
    """Return the orders for which expiry messages were sent, in sequence."""
    return [json.loads(message.body)["orderId"] for message in shop.queues["Expiry"].messages]


THROTTLED = ServiceError("ThrottlingException", "slow down")
DENIED = ServiceError("AccessDeniedException", "not authorized")


def lines_of(capsys, message):
    """Return the log lines with this message."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if line["message"] == message]


def shard_of(request):
    """Return the part of the index of holds that is read; None for other indexes."""
    is_of_holds = request.get("IndexName") == "byExpiry"
    return request["ExpressionAttributeValues"][":key"]["S"] if is_of_holds else None


AHEAD_SECONDS = 120
"""How long before its end a hold is sent, with a sweep a minute."""


@pytest.mark.parametrize(
    ("minutes", "grace", "ahead"), [(1, 60, 120), (5, 60, 360), (5, 540, 360), (5, 600, 300)]
)
def test_a_hold_is_sent_before_the_next_sweep_but_never_delivered_early(
    shop, minutes, grace, ahead
):
    shop.restart(SWEEP_MINUTES=str(minutes), HOLD_GRACE_SECONDS=str(grace))
    hold(shop, "later", ahead + 1)
    end = hold(shop, "o-1", ahead)
    sweep(shop)
    assert sent(shop) == ["o-1"]
    (message,) = shop.queues["Expiry"].messages
    assert grace <= message.visible_at - end < grace + 1


@pytest.mark.parametrize("shards", [EXPIRY_SHARDS])
def test_holds_ending_within_two_minutes_are_sent_from_every_shard_oldest_first(shop, shards):
    soon = {f"o-{number}": 1.0 + number * 0.5 for number in range(200)}
    for order_id, seconds in reversed(soon.items()):
        hold(shop, order_id, seconds)
    hold(shop, "later", AHEAD_SECONDS + 1)
    stored = shop.items(Table.ORDERS).values()
    assert {row["expiryShard"]["S"] for row in stored} == {f"{n:02d}" for n in range(shards)}
    assert sweep(shop) == {"result": "SWEPT", "holds": 200, "folded": 0, "lanes": [], "products": 0}
    assert sent(shop) == list(soon)
    assert shop.calls.count("SendMessageBatch") == 20
    shop.clock.sleep(60)
    assert sweep(shop)["holds"] == 1
    assert sent(shop)[200:] == ["later"]


@pytest.mark.parametrize("seconds", [-3600.0, -60.0, -59.5, 0.0, 0.3, 59.9, AHEAD_SECONDS])
def test_a_hold_is_processed_within_a_second_of_the_end_of_its_grace_period(shop, seconds):
    end = hold(shop, "o-1", seconds)
    sweep(shop)
    (message,) = shop.queues["Expiry"].messages
    if seconds <= -GRACE_SECONDS:
        assert message.visible_at == message.sent
    else:
        assert GRACE_SECONDS <= message.visible_at - end < GRACE_SECONDS + 1
    assert json.loads(message.body) == {"orderId": "o-1"}


def test_a_process_sends_a_hold_once_and_another_process_once_more(shop):
    hold(shop, "o-1", 100)
    assert [sweep(shop)["holds"] for _ in range(2)] == [1, 0]
    shop.restart()
    assert [sweep(shop)["holds"] for _ in range(2)] == [1, 0]


def test_a_hold_that_does_not_expire_is_sent_again_at_doubling_intervals(shop):
    hold(shop, "o-1", 100)
    sent, began = {}, shop.clock.now()
    for minute in (0, 1, 12, 13, 22, 24, 45, 46):
        shop.clock.seconds = began + 60 * minute
        sent[minute] = sweep(shop)["holds"]
    assert sent == {0: 1, 1: 0, 12: 0, 13: 1, 22: 0, 24: 1, 45: 0, 46: 1}


def test_with_many_expiries_queued_no_more_are_sent_and_none_twice(shop, monkeypatch):
    monkeypatch.setattr(shop.handler("sweep"), "_MAX_WAITING", 2)
    for number in range(3):
        hold(shop, f"o-{number}", 30)
    assert sweep(shop)["holds"] == 3
    shop.clock.sleep(30 + GRACE_SECONDS)
    hold(shop, "late", 30)
    swept = sweep(shop)
    assert swept["holds"] == 0
    assert "waiting to expire" in swept["unfinished"]
    shop.queues["Expiry"].messages.pop()
    assert sweep(shop)["holds"] == 1
    assert sent(shop)[-1] == "late"


def test_holds_are_sent_even_if_the_depth_of_the_queue_is_unknown(shop, capsys):
    """If the permission is missing, the sweep must report it: otherwise, holds would silently never end."""
    hold(shop, "o-1", 30)
    shop.refuse("GetQueueAttributes", DENIED)
    assert sweep(shop)["holds"] == 1
    (line,) = lines_of(capsys, "requests to SQS failed")
    assert "not authorized" in line["errors"][0]


def test_an_extended_hold_is_sent_again(shop):
    hold(shop, "o-1", 60)
    sweep(shop)
    hold(shop, "o-1", 100)
    assert sweep(shop)["holds"] == 1


def test_a_shard_of_many_pages_is_sent_whole_and_pages_of_all_shards_take_turns(
    shop, shards, monkeypatch
):
    monkeypatch.setattr(holds, "_PAGE", 10)
    for number in range(200):
        hold(shop, f"o-{number}", 10 + number / 10)
    assert sweep(shop)["holds"] == 200
    assert sorted(sent(shop)) == sorted(f"o-{number}" for number in range(200))
    first_round = sent(shop)[: 10 * shards]
    assert first_round == sorted(first_round, key=lambda name: int(name[2:]))
    calls = [call for call in shop.calls if call in ("Query", "SendMessageBatch")]
    assert calls[: shards + 1] == ["Query"] * shards + ["SendMessageBatch"]


def test_a_throttled_shard_delays_no_other_and_is_made_up_for(shop):
    for number in range(200):
        hold(shop, f"o-{number}", 100)
    shop.refuse("Query", THROTTLED, lambda request: shard_of(request) == "03")
    swept = sweep(shop)
    assert "ThrottlingException" in swept["unfinished"]
    assert 100 < swept["holds"] < 200
    shop.calm()
    assert sweep(shop)["holds"] == 200 - swept["holds"]
    assert len(set(sent(shop))) == len(sent(shop)) == 200


def test_a_shard_that_is_throttled_once_is_retried_immediately(shop):
    hold(shop, "o-1", 100)
    shop.once("Query", lambda _: (_ for _ in ()).throw(THROTTLED))
    assert sweep(shop) == {"result": "SWEPT", "holds": 1, "folded": 0, "lanes": [], "products": 0}


def test_holds_that_sqs_refuses_are_logged_and_sent_by_the_next_sweep(shop, capsys):
    for number in range(30):
        hold(shop, f"o-{number:02}", 10 + number)

    def before(operation, request):
        if operation == "SendMessageBatch":
            first, *others = request["Entries"]
            taken = shop.aws.answer("sqs", operation, request | {"Entries": others})
            error = {"Id": first["Id"], "Code": "InternalError", "SenderFault": False}
            return taken | {"Failed": [error]}
        return None

    shop.before = before
    assert sweep(shop)["holds"] == 27
    (line,) = lines_of(capsys, "requests to SQS failed")
    assert line["holds"] == 3
    assert "InternalError" in line["errors"][0]
    shop.calm()
    assert sweep(shop)["holds"] == 3
    assert sorted(sent(shop)) == [f"o-{number:02}" for number in range(30)]


@pytest.mark.parametrize(
    ("operation", "error", "says"),
    [
        ("SendMessageBatch", DENIED, r"none of 2 holds was sent: .*not authorized"),
        (
            "SendMessageBatch",
            ServiceError("ServiceUnavailable", "later", status=503),
            "none of 2 holds was sent: .*later",
        ),
        ("Query", DENIED, "^AccessDeniedException: not authorized$"),
    ],
)
def test_required_repairs_are_reported_after_the_lanes_were_swept(shop, operation, error, says):
    for number in range(2):
        hold(shop, f"o-{number}", 10)
    shop.refuse(operation, error)
    with pytest.raises(RepairNeededError, match=says):
        sweep(shop)
    assert shop.calls.count("BatchGetItem") == 4, "the lanes were read last"
    shop.calm()
    assert sweep(shop)["holds"] == 2


def test_a_hold_without_a_time_is_named_and_the_others_are_sent(shop):
    for number in range(20):
        hold(shop, f"o-{number}", 10)
    shop.edit(Table.ORDERS, "broken", expiryShard={"S": "01"}, expiresAt={"S": "2026"})
    with pytest.raises(
        RepairNeededError, match=r"^order broken has an expiresAt that is not a time"
    ):
        sweep(shop)
    assert len(sent(shop)) == 20


def test_lanes_get_their_share_of_time_and_the_next_sweep_continues_with_holds(shop):
    for number in range(100):
        hold(shop, f"o-{number:02}", number / 10)

    def slow(operation, request):
        if operation == "SendMessageBatch":
            shop.clock.sleep(4)

    shop.before, began = slow, shop.clock.now()
    swept = sweep(shop)
    assert "no time was left to send all holds" in swept["unfinished"]
    assert "OUT_OF_TIME" not in swept["unfinished"], "the lanes were swept"
    assert 60 < swept["holds"] < 90
    assert shop.clock.now() - began < SWEEP_SECONDS - runtime.RESERVED_SECONDS
    assert sent(shop) == [f"o-{number:02}" for number in range(swept["holds"])]
    assert sweep(shop)["holds"] == 100 - swept["holds"]
    assert sorted(sent(shop)) == [f"o-{number:02}" for number in range(100)]


def test_without_time_no_shard_is_queried_and_the_log_says_so(shop):
    hold(shop, "o-1", 10)
    swept = sweep(shop, 0.0)
    assert swept["holds"] == 0
    assert "no time was left for the holds of 4 shards" in swept["unfinished"]
    assert "byExpiry" not in shop.aws.dynamodb.tables["Orders"].consumed.index_reads


@pytest.mark.parametrize("shards", [EXPIRY_SHARDS])
def test_holds_cost_as_many_reads_as_the_costs_say(shop):
    assert sweep(shop)["holds"] == 0
    consumed = shop.aws.dynamodb.tables["Orders"].consumed
    assert consumed.index_reads["byExpiry"] == costs.READ_UNITS_OF_HOLDS
    assert consumed.reads == 0


def statuses(shop):
    stored = shop.items(Table.ORDERS).values()
    return {row["orderId"]["S"]: row["status"]["S"] for row in stored}


def deliver(shop, queue):
    """Deliver the messages of a queue until none is visible."""
    while shop.waiting(queue):
        shop.deliver(queue)


def pay(shop, *order_ids):
    shop.send("OrderCommand", *({"action": "confirm", "orderId": i} for i in order_ids))


def test_no_hold_expires_before_its_payment_although_the_depth_is_a_minute_old(shop):
    """In a burst, many payments arrive in the last second of their holds. Their worker is throttled after a cold start.

    SQS may take a minute to report the number of messages:
    docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html
    """
    paid = [f"paid-{number:03}" for number in range(600)]
    began = shop.clock.now()
    for order_id in (*paid, "unpaid"):
        hold(shop, order_id, 60)
    sweep(shop)
    shop.clock.seconds = began + 59.0
    depths = [(shop.clock.now(), 0)]

    def a_minute_ago(operation, _):
        if operation != "GetQueueAttributes":
            return None
        then = shop.clock.now() - 60
        depth = next((depth for at, depth in reversed(depths) if at <= then), 0)
        return {"Attributes": {"ApproximateNumberOfMessages": str(depth)}}

    shop.before = a_minute_ago
    pay(shop, *paid)
    is_warm = shop.clock.now() + COLD_START_SECONDS
    while shop.status("unpaid") == "PENDING":
        depths.append((shop.clock.now(), len(shop.queues["OrderCommand"].messages)))
        if shop.clock.now() >= is_warm:
            shop.deliver("OrderCommand")
        shop.clock.sleep(1.0)
        deliver(shop, "Expiry")
    assert statuses(shop) == dict.fromkeys(paid, "CONFIRMED") | {"unpaid": "EXPIRED"}
