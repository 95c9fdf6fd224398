"""Holds that are about to end: each is sent in time, to be looked at after its end, and what went wrong is made up for."""

import json
import sys
from datetime import UTC, datetime

import pytest

from docs_generator import costs
from inventory_orders.clock import timestamp
from inventory_orders.domain.order_record import OrderRecord, OrderStatus
from inventory_orders.holds import ending as holds
from inventory_orders.holds.ending import AHEAD_SECONDS
from inventory_orders.invocation import runtime
from inventory_orders.lanes.idle import RepairNeededError
from inventory_orders.retry import EARLY_DELIVERIES
from inventory_orders.store import lists, record_rows
from inventory_orders.store.record_rows import record_row
from inventory_orders.store.rows import encode
from inventory_orders.store.tables import EXPIRY_SHARDS, Table
from testing.events import event_of_received, order_body
from testing.handlers import FakeContext, load_handler
from testing.simulated_aws import ServiceError, SimulatedAws, answered_directly_by, virtual_time
from testing.tables import create_table
from tests.support.tables_in_memory import Tables, client
from tests.support.tea_shop import forget_what_handlers_made

SWEEP_SECONDS = 50.0
GRACE_SECONDS = 60
# Of a function whose dependencies are large.
COLD_START_SECONDS = 10.0


class Context(FakeContext):
    """The context of an invocation whose time passes."""

    def __init__(self, name, clock, seconds):
        super().__init__(name)
        self.get_remaining_time_in_millis = lambda: int((ends - clock.now()) * 1000)
        ends = clock.now() + seconds


class Shop(Tables):
    """Tables and queues, and the handlers with them. `before` is called with requests to SQS, too."""

    def open(self, monkeypatch):
        self.aws = SimulatedAws(self.clock.now)
        for table in Table:
            create_table(client(), table, table.value)
            monkeypatch.setenv(f"{table.name}_TABLE_NAME", table.value)
        self.commands, self.expiries = (
            self.aws.sqs.create(
                name, dead_letters=self.aws.sqs.create(f"{name}Dead"), max_receive_count=1000
            )
            for name in ("Commands", "Expiries")
        )
        monkeypatch.setenv("HOLD_GRACE_SECONDS", str(GRACE_SECONDS))
        monkeypatch.setenv("LANES", "2")
        for prefix, queue in (("", self.commands), ("EXPIRY_", self.expiries)):
            monkeypatch.setenv(f"{prefix}QUEUE_URL", queue.url)
            monkeypatch.setenv(f"{prefix}DEAD_LETTER_QUEUE_URL", queue.dead_letters.url)
        # Threads would not wait in virtual time.
        monkeypatch.setattr(runtime, "executor", lambda: None)
        self.handlers = {
            name: load_handler(name) for name in ("sweep", "place_orders", "change_orders")
        }
        self.new_process()

    def new_process(self):
        forget_what_handlers_made()

    def invoke(self, name, event, seconds=30.0):
        handler = self.handlers[name]
        handler.logger.registered_handler.stream = sys.stdout
        return handler.lambda_handler(event, Context(name, self.clock, seconds))

    def sweep(self, seconds=SWEEP_SECONDS):
        return self.invoke("sweep", {"action": "sweep"}, seconds)

    def hold(self, order_id, seconds):
        """Store an order whose hold ends in so many seconds."""
        end = timestamp(datetime.fromtimestamp(self.clock.now() + seconds, UTC))
        order = OrderRecord(order_id, "u-1", (), OrderStatus.PENDING, 1, end, end, expires_at=end)
        self.put(record_row(order))
        return self.clock.now() + seconds

    def put(self, row):
        self.aws.dynamodb.answer("PutItem", {"TableName": "Orders", "Item": encode(row)})

    def sent(self):
        """The orders whose holds were sent, in this order."""
        return [json.loads(message.body)["orderId"] for message in self.expiries.messages]

    def refuse(self, operation, refused, error):
        """Answer some requests with an error."""

        def before(called, request):
            if called == operation and refused(request):
                raise error

        self.before = before


@pytest.fixture
def shards():
    """Fewer than there are: most of the time would go into asking them."""
    return 4


@pytest.fixture
def shop(monkeypatch, shards):
    monkeypatch.setattr(record_rows, "EXPIRY_SHARDS", shards)
    monkeypatch.setattr(holds, "EXPIRY_SHARDS", shards)
    shop = Shop()
    with virtual_time(shop.clock), answered_directly_by(shop.answer):
        shop.open(monkeypatch)
        yield shop
    forget_what_handlers_made()


THROTTLED = ServiceError("ThrottlingException", "slow down")
DENIED = ServiceError("AccessDeniedException", "not authorized")


def lines_of(capsys, message):
    """What was logged under a message."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if line["message"] == message]


def shard_of(request):
    return request["ExpressionAttributeValues"][":shard"]["S"]


@pytest.mark.parametrize("shards", [EXPIRY_SHARDS])
def test_what_ends_within_two_minutes_is_sent_from_every_shard_the_oldest_first(shop, shards):
    soon = {f"o-{number}": 1.0 + number * 0.5 for number in range(200)}
    for order_id, seconds in reversed(soon.items()):
        shop.hold(order_id, seconds)
    shop.hold("later", AHEAD_SECONDS + 1)
    stored = shop.aws.dynamodb.tables["Orders"].items.values()
    assert {row["expiryShard"]["S"] for row in stored} == {f"{n:02d}" for n in range(shards)}
    assert shop.sweep() == {"result": "SWEPT", "holds": 200, "lanes": [], "products": 0}
    assert shop.sent() == list(soon)
    assert shop.calls.count("SendMessageBatch") == 20
    shop.clock.sleep(60)
    assert shop.sweep()["holds"] == 1
    assert shop.sent()[200:] == ["later"]


@pytest.mark.aws(
    "A standard queue can hide each message for up to 15 minutes from its sending, each entry of "
    "a batch for its own time.",
    "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-timers.html",
    "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatchRequestEntry.html",
)
@pytest.mark.parametrize("seconds", [-3600.0, -60.0, -59.5, 0.0, 0.3, 59.9, AHEAD_SECONDS])
def test_a_hold_is_looked_at_within_a_second_of_the_end_of_its_grace(shop, seconds):
    end = shop.hold("o-1", seconds)
    shop.sweep()
    (message,) = shop.expiries.messages
    if seconds <= -GRACE_SECONDS:
        assert message.visible_at == message.sent
    else:
        assert GRACE_SECONDS <= message.visible_at - end < GRACE_SECONDS + 1
    assert json.loads(message.body) == {"orderId": "o-1"}


def test_a_process_sends_a_hold_once_and_another_process_once_more(shop):
    shop.hold("o-1", 100)
    assert [shop.sweep()["holds"] for _ in range(2)] == [1, 0]
    shop.new_process()
    assert [shop.sweep()["holds"] for _ in range(2)] == [1, 0]


def test_a_hold_that_does_not_end_is_sent_again_at_doubling_distances(shop):
    shop.hold("o-1", 100)
    sent, began = {}, shop.clock.now()
    for minute in (0, 1, 12, 13, 22, 24, 45, 46):
        shop.clock.seconds = began + 60 * minute
        sent[minute] = shop.sweep()["holds"]
    assert sent == {0: 1, 1: 0, 12: 0, 13: 1, 22: 0, 24: 1, 45: 0, 46: 1}


def test_while_many_wait_to_expire_no_more_are_sent_and_nothing_is_sent_twice(shop, monkeypatch):
    monkeypatch.setattr(shop.handlers["sweep"], "_MAX_WAITING", 2)
    for number in range(3):
        shop.hold(f"o-{number}", 30)
    assert shop.sweep()["holds"] == 3
    shop.clock.sleep(30 + GRACE_SECONDS)
    shop.hold("late", 30)
    swept = shop.sweep()
    assert swept["holds"] == 0
    assert "wait to expire" in swept["unfinished"]
    shop.expiries.messages.pop()
    assert shop.sweep()["holds"] == 1
    assert shop.sent()[-1] == "late"


def test_holds_are_sent_though_nobody_knows_how_many_wait_to_expire(shop, capsys):
    """Without this right of its role the sweep would say that all is well, and no hold would ever end."""
    shop.hold("o-1", 30)
    shop.refuse("GetQueueAttributes", lambda _: True, DENIED)
    assert shop.sweep()["holds"] == 1
    (line,) = lines_of(capsys, "SQS did not carry out requests")
    assert "not authorized" in line["errors"][0]


def test_a_hold_that_was_prolonged_is_sent_anew(shop):
    shop.hold("o-1", 60)
    shop.sweep()
    shop.hold("o-1", 100)
    assert shop.sweep()["holds"] == 1


def test_a_shard_of_many_pages_is_sent_whole_and_pages_of_all_shards_take_turns(
    shop, shards, monkeypatch
):
    monkeypatch.setattr(lists, "_HOLDS_OF_A_PAGE", 10)
    for number in range(200):
        shop.hold(f"o-{number}", 10 + number / 10)
    assert shop.sweep()["holds"] == 200
    assert sorted(shop.sent()) == sorted(f"o-{number}" for number in range(200))
    first_round = shop.sent()[: 10 * shards]
    assert first_round == sorted(first_round, key=lambda name: int(name[2:]))
    calls = [call for call in shop.calls if call in ("Query", "SendMessageBatch")]
    assert calls[: shards + 1] == ["Query"] * shards + ["SendMessageBatch"]


def test_a_throttled_shard_holds_up_no_other_and_is_made_up_for(shop):
    for number in range(200):
        shop.hold(f"o-{number}", 100)
    shop.refuse("Query", lambda request: shard_of(request) == "03", THROTTLED)
    swept = shop.sweep()
    assert "ThrottlingException" in swept["unfinished"]
    assert 100 < swept["holds"] < 200
    shop.before = lambda *_: None
    assert shop.sweep()["holds"] == 200 - swept["holds"]
    assert len(set(shop.sent())) == len(shop.sent()) == 200


def test_a_shard_that_is_throttled_once_is_asked_again_at_once(shop):
    shop.hold("o-1", 100)
    shop.once("Query", lambda _: (_ for _ in ()).throw(THROTTLED))
    assert shop.sweep() == {"result": "SWEPT", "holds": 1, "lanes": [], "products": 0}


def test_what_sqs_refuses_is_sent_with_the_next_sweep_and_the_log_says_so(shop, capsys):
    for number in range(30):
        shop.hold(f"o-{number:02}", 10 + number)

    def before(operation, request):
        if operation == "SendMessageBatch":
            first, *others = request["Entries"]
            taken = shop.aws.answer("sqs", operation, request | {"Entries": others})
            error = {"Id": first["Id"], "Code": "InternalError", "SenderFault": False}
            return taken | {"Failed": [error]}
        return None

    shop.before = before
    assert shop.sweep()["holds"] == 27
    (line,) = lines_of(capsys, "SQS did not carry out requests")
    assert line["holds"] == 3
    assert "InternalError" in line["errors"][0]
    shop.before = lambda *_: None
    assert shop.sweep()["holds"] == 3
    assert sorted(shop.sent()) == [f"o-{number:02}" for number in range(30)]


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
def test_what_has_to_be_repaired_is_told_after_the_lanes_were_swept(shop, operation, error, says):
    for number in range(2):
        shop.hold(f"o-{number}", 10)
    shop.refuse(operation, lambda _: True, error)
    with pytest.raises(RepairNeededError, match=says):
        shop.sweep()
    assert shop.calls[-2:] == ["BatchGetItem"] * 2, "the lanes"
    shop.before = lambda *_: None
    assert shop.sweep()["holds"] == 2


def test_a_hold_without_a_time_is_named_and_the_others_are_sent(shop):
    for number in range(20):
        shop.hold(f"o-{number}", 10)
    shop.put({"orderId": "broken", "expiryShard": "01", "expiresAt": "2026"})
    with pytest.raises(RepairNeededError, match=r"^order broken has an expiresAt that is no time"):
        shop.sweep()
    assert len(shop.sent()) == 20


def test_lanes_get_their_share_and_the_next_sweep_goes_on_with_the_holds(shop):
    for number in range(100):
        shop.hold(f"o-{number:02}", number / 10)

    def slow(operation, request):
        if operation == "SendMessageBatch":
            shop.clock.sleep(4)

    shop.before, began = slow, shop.clock.now()
    swept = shop.sweep()
    assert "no time was left to send all holds" in swept["unfinished"]
    assert "OUT_OF_TIME" not in swept["unfinished"], "the lanes were swept"
    assert 60 < swept["holds"] < 90
    assert shop.clock.now() - began < SWEEP_SECONDS - runtime.RESERVED_SECONDS
    assert shop.sent() == [f"o-{number:02}" for number in range(swept["holds"])]
    assert shop.sweep()["holds"] == 100 - swept["holds"]
    assert sorted(shop.sent()) == [f"o-{number:02}" for number in range(100)]


def test_without_time_nothing_is_asked_and_it_says_so(shop):
    shop.hold("o-1", 10)
    swept = shop.sweep(0.0)
    assert swept["holds"] == 0
    assert "no time was left for the holds of 4 shards" in swept["unfinished"]
    assert "Query" not in shop.calls


@pytest.mark.parametrize("shards", [EXPIRY_SHARDS])
def test_holds_cost_as_many_reads_as_the_costs_say(shop):
    assert shop.sweep()["holds"] == 0
    consumed = shop.aws.dynamodb.tables["Orders"].consumed
    assert consumed.index_reads == {"byExpiry": costs.READ_UNITS_OF_HOLDS}
    assert consumed.reads == 0


def statuses(shop):
    stored = shop.aws.dynamodb.tables["Orders"].items.values()
    return {row["orderId"]["S"]: row["status"]["S"] for row in stored}


def order_status(shop, order_id):
    return shop.aws.dynamodb.tables["Orders"].items[order_id,]["status"]["S"]


def deliver_once(shop, queue):
    """Hand ten messages of a queue to change_orders. Returns whether there were any."""
    request = {"QueueUrl": queue.url, "MessageSystemAttributeNames": ["All"]}
    got = shop.aws.sqs.answer("ReceiveMessage", request | {"MaxNumberOfMessages": 10})
    if not got.get("Messages"):
        return False
    answer = shop.invoke("change_orders", event_of_received(got["Messages"], queue.arn))
    failed = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
    for message in got["Messages"]:
        if message["MessageId"] not in failed:
            handle = {"QueueUrl": queue.url, "ReceiptHandle": message["ReceiptHandle"]}
            shop.aws.sqs.answer("DeleteMessage", handle)
    return True


def deliver(shop, queue):
    """Hand what is in a queue to change_orders until nothing of it is visible."""
    while deliver_once(shop, queue):
        pass


def pay(shop, order_id):
    body = json.dumps({"action": "confirm", "orderId": order_id})
    shop.aws.sqs.answer("SendMessage", {"QueueUrl": shop.commands.url, "MessageBody": body})


@pytest.mark.aws(
    "An index is always eventually consistent: only the row of an order tells whether its hold "
    "has ended.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.html",
)
def test_two_sweepers_at_once_expire_each_hold_once(shop):
    shop.create("tea", 100)
    for number in range(25):
        order = order_body(f"o-{number}", {"tea": 2}) | {"holdSeconds": 60}
        assert shop.invoke("place_orders", order)["result"] == "APPLIED"
    assert shop.stock("tea") == 50

    def other(_):
        shop.new_process()
        assert shop.sweep()["holds"] == 25

    shop.once("SendMessageBatch", other)
    assert shop.sweep()["holds"] == 25
    assert len(shop.sent()) == 50
    deliver(shop, shop.expiries)
    assert set(statuses(shop).values()) == {"PENDING"}, "none has ended"
    shop.clock.sleep(65 + GRACE_SECONDS)
    deliver(shop, shop.expiries)
    assert set(statuses(shop).values()) == {"EXPIRED"}
    assert shop.stock("tea") == 100
    assert shop.unexplained() == {"tea": 0}
    assert shop.expiries.messages == shop.expiries.dead_letters.messages == []
    assert shop.sweep()["holds"] == 0


def test_who_pays_before_the_hold_expires_keeps_the_units_though_it_was_sent(shop):
    shop.create("tea", 100)
    for order_id in ("paid", "late", "unpaid"):
        order = order_body(order_id, {"tea": 1}) | {"holdSeconds": 60}
        shop.invoke("place_orders", order)
    shop.sweep()
    for order_id in ("paid", "late"):
        shop.clock.sleep(50)
        pay(shop, order_id)
        deliver(shop, shop.commands)
    shop.clock.sleep(30)
    deliver(shop, shop.expiries)
    assert statuses(shop) == {"paid": "CONFIRMED", "late": "CONFIRMED", "unpaid": "EXPIRED"}
    assert shop.stock("tea") == 98


def test_no_hold_expires_while_many_payments_are_hidden_as_copies_for_later(shop, monkeypatch):
    """Looked at for the last time before they are sent again, they are acknowledged, and hidden for up to 15 minutes."""
    monkeypatch.setattr(shop.handlers["change_orders"], "_MAX_WAITING", 5)
    shop.create("tea", 100)
    shop.invoke("place_orders", order_body("o-1", {"tea": 1}) | {"holdSeconds": 60})
    for number in range(6):
        pay(shop, f"not-here-yet-{number}")
    for message in shop.commands.messages:
        message.receive_count = EARLY_DELIVERIES - 1
    deliver_once(shop, shop.commands)
    assert {message.receive_count for message in shop.commands.messages} == {0}, "copies"
    shop.sweep()
    shop.clock.sleep(65 + GRACE_SECONDS)
    deliver_once(shop, shop.expiries)
    assert order_status(shop, "o-1") == "PENDING"
    shop.commands.messages.clear()
    shop.clock.sleep(60)
    deliver(shop, shop.expiries)
    assert order_status(shop, "o-1") == "EXPIRED"


@pytest.mark.aws(
    "The depth of a queue becomes consistent at least a minute after the last message was sent. "
    "AWS names no bound.",
    "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html",
)
def test_no_hold_expires_beside_its_payment_though_the_depth_is_a_minute_old(shop):
    """A burst of payments in the last second of their holds. Who takes them has a cold start, and is throttled.

    It may take SQS a minute to know how many messages there are:
    docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html
    """
    paid = [f"paid-{number:03}" for number in range(600)]
    began = shop.clock.now()
    for order_id in (*paid, "unpaid"):
        shop.hold(order_id, 60)
    shop.sweep()
    shop.clock.seconds = began + 59.0
    depths = [(shop.clock.now(), 0)]

    def a_minute_ago(operation, _):
        if operation != "GetQueueAttributes":
            return None
        then = shop.clock.now() - 60
        depth = next((depth for at, depth in reversed(depths) if at <= then), 0)
        return {"Attributes": {"ApproximateNumberOfMessages": str(depth)}}

    shop.before = a_minute_ago
    for order_id in paid:
        pay(shop, order_id)
    is_warm = shop.clock.now() + COLD_START_SECONDS
    while order_status(shop, "unpaid") == "PENDING":
        depths.append((shop.clock.now(), len(shop.commands.messages)))
        if shop.clock.now() >= is_warm:
            deliver_once(shop, shop.commands)
        shop.clock.sleep(1.0)
        deliver(shop, shop.expiries)
    assert statuses(shop) == dict.fromkeys(paid, "CONFIRMED") | {"unpaid": "EXPIRED"}
