"""No event of an order is lost or published out of sequence, even if the bus refuses or a publisher is killed."""

import json
import random
from functools import cache

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from inventory_orders.clock import Deadline, SystemClock, timestamp
from inventory_orders.domain.events import SOURCE, Event, order_events
from inventory_orders.domain.order_command import MAX_ROW_SIZE
from inventory_orders.errors import UnpublishableError
from inventory_orders.invocation.sqs import BYTES_PER_CALL, Queue, SqsCalls
from inventory_orders.publishing import publisher
from inventory_orders.publishing.publisher import (
    EVENT_TOO_LARGE,
    MAX_BYTES,
    MAX_ENTRIES,
    MAX_REFUSALS,
    PROBE,
    RETRYABLE_SECONDS,
    Bus,
    BusEntry,
    Publisher,
    Undeliverable,
    calls_of,
)
from inventory_orders.publishing.streams import read_changes
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.rows import encode
from operations import emf
from operations.dead_letters import peek_dead_letters
from testing.aws.bus import MEGABYTE, EventBus, refused_call
from testing.aws.streams import Shard
from testing.aws.values import size_of_item
from testing.world.clock import FakeClock
from testing.world.streams import change, first_of_each, order_row, overtaken

FAILURE = ("InternalFailure", "something is wrong")
FINAL = ("MalformedDetail", "this is not JSON")
THROTTLED = ("ThrottlingException", "slow down")
SECONDS = 23
STATUSES = ("PENDING", "CONFIRMED", "FULFILLED")


class World:
    """A bus, a queue for undeliverable events, and a publisher."""

    def __init__(self, judge=lambda *_: None):
        self.clock = FakeClock()
        self.bridge = EventBus(self.clock, judge)
        self.parked = []
        self.queue_takes = lambda: True
        policy = RetryPolicy(base=0.05, random=random.Random(7).random)
        self.publisher = Publisher(Bus(self.bridge, "Bus"), self.park, self.clock, policy)

    def park(self, undeliverable):
        if not self.queue_takes():
            return False
        self.parked.append(undeliverable)
        return True

    def publish(self, *news, seconds=SECONDS):
        return self.publisher.publish(news, Deadline.after(seconds, self.clock))

    def handle(self, records):
        """Run the publisher on a batch of records, as the handler does."""
        if self.publish(*read_changes({"Records": list(records)})).left:
            raise RuntimeError("not all are published")

    @property
    def sent(self):
        """The ids of the events sent, grouped by call, without probes."""
        details = [
            [json.loads(entry["Detail"]) for entry in call if entry["DetailType"] != PROBE]
            for call in self.bridge.calls
        ]
        return [[detail["metadata"]["eventId"] for detail in call] for call in details if call]


def life(order_id, at="2026-01-01T00:00:00.000000+00:00"):
    """Return the rows of an order that is placed, confirmed and fulfilled."""
    return [
        order_row(order_id, status=status, _version=version, lastUpdatedAt=at)
        for version, status in enumerate(STATUSES, start=1)
    ]


def stories(order_id, at):
    """Return the events of an order whose changes all happened at the same time."""
    rows = life(order_id, at)
    return [
        e
        for step, row in enumerate(rows)
        for e in order_events(rows[step - 1] if step else None, row)
    ]


def events_of(*order_ids):
    lives = [life(order_id) for order_id in order_ids]
    return [
        event
        for step in range(len(STATUSES))
        for rows in lives
        for event in order_events(rows[step - 1] if step else None, rows[step])
    ]


def ids_of(order_id):
    kinds = ("OrderPlaced", "OrderConfirmed", "OrderFulfilled")
    return [f"{order_id}#{version}#{kind}" for version, kind in enumerate(kinds, start=1)]


def all_ids(order_ids):
    return [event_id for order_id in order_ids for event_id in ids_of(order_id)]


def refusing(event_id, answer, times=10**9):
    left = [times]

    def judge(found, _):
        if found != event_id or not left[0]:
            return None
        left[0] -= 1
        return answer

    return judge


def test_an_orders_events_are_sent_in_sequence_and_different_orders_together():
    world = World()
    orders = [f"o-{number}" for number in range(25)]
    report = world.publish(*events_of(*orders))
    assert sorted(report.published) == sorted(all_ids(orders))
    assert report.left == 0
    assert [len(call) for call in world.sent] == [10, 10, 5] * 3
    for call in world.sent:
        subjects = [event_id.split("#")[0] for event_id in call]
        assert len(subjects) == len(set(subjects))
    entry = world.bridge.calls[0][0]
    assert (entry["Source"], entry["EventBusName"]) == ("inventory-orders", "Bus")


def test_a_refused_event_is_retried_alone_and_its_orders_next_event_waits():
    world = World(refusing("o-1#1#OrderPlaced", THROTTLED, times=2))
    report = world.publish(*events_of("o-1", "o-2"))
    assert world.sent[0] == ["o-1#1#OrderPlaced", "o-2#1#OrderPlaced"]
    assert world.sent[1] == ["o-1#1#OrderPlaced", "o-2#2#OrderConfirmed"]
    assert world.sent[2] == ["o-1#1#OrderPlaced", "o-2#3#OrderFulfilled"]
    assert world.sent[3:] == [["o-1#2#OrderConfirmed"], ["o-1#3#OrderFulfilled"]]
    assert [refusal.code for refusal in report.refusals] == ["ThrottlingException"] * 2
    assert world.bridge.outcomes.count("o-2#1#OrderPlaced") == 1
    assert len(world.clock.slept) == 2, "there is no pause after a round without a refusal"


# docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEventsResultEntry.html
NOT_RETRYABLE = [
    *("AccessDeniedException", "InvalidAccountIdException", "InvalidArgument", "MalformedDetail"),
    *("NotAuthorizedForDetailTypeException", "NotAuthorizedForSourceException", "RedactionFailure"),
]


@pytest.mark.parametrize("code", NOT_RETRYABLE)
def test_a_permanently_refused_event_is_parked_and_its_order_continues(code):
    world = World(refusing("o-1#2#OrderConfirmed", (code, "no")))
    report = world.publish(*events_of("o-1", "o-2"))
    (parked,) = report.undeliverable
    assert (parked.id, parked.code, parked.message) == ("o-1#2#OrderConfirmed", code, "no")
    (event,) = [event for event in events_of("o-1") if event.id == parked.id]
    whole = {"source": SOURCE, "detail-type": "OrderConfirmed", "detail": event.detail()}
    assert json.loads(parked.body) == whole
    assert world.parked == [parked]
    assert first_of_each(world.bridge.outcomes)[-1] == "o-1#3#OrderFulfilled"
    assert sum(call.count(parked.id) for call in world.sent) == MAX_REFUSALS
    assert report.left == 0


def raising(error):
    def judge(event_id, _):
        if event_id == "o-1#1#OrderPlaced":
            raise error

    return judge


RETRYABLE = {
    "InternalFailure": refusing("o-1#1#OrderPlaced", FAILURE),
    "ThrottlingException": refusing("o-1#1#OrderPlaced", THROTTLED),
    "NewCode": refusing("o-1#1#OrderPlaced", ("NewCode", "which AWS has invented since")),
    "ServiceUnavailable": raising(refused_call("ServiceUnavailable", 503)),
    "AWS_UNREACHABLE": raising(ReadTimeoutError(endpoint_url="https://events")),
}


@pytest.mark.parametrize("code", RETRYABLE)
def test_retryable_errors_count_against_an_event_only_after_an_hour(code):
    world = World(RETRYABLE[code])
    world.bridge.put_events = undoing(world.bridge)
    at = timestamp(world.clock.now())
    news = [event for order_id in ("o-1", "o-2") for event in stories(order_id, at)]
    while world.clock.seconds < 1_000_000 + RETRYABLE_SECONDS - SECONDS:
        assert world.publish(*news).left >= 3
        world.clock.seconds += 300
    assert world.parked == []
    world.clock.seconds = 1_000_000 + RETRYABLE_SECONDS
    assert world.publish(*news).left == 0
    assert {(parked.id, parked.code) for parked in world.parked} == {("o-1#1#OrderPlaced", code)}
    assert overtaken(world.bridge.outcomes) == []
    assert set(world.bridge.outcomes) == {*ids_of("o-1")[1:], *ids_of("o-2")}


@pytest.mark.parametrize("refusal", [FAILURE, FINAL, ("AccessDeniedException", "no")])
def test_while_the_bus_refuses_everything_no_event_is_parked_at_any_age(refusal):
    world = World(lambda *_: refusal)
    began = world.clock.seconds
    report = world.publish(*stories("o-1", "1970-01-01T00:00:00+00:00"), *events_of("o-2"))
    assert (report.left, world.parked) == (6, [])
    assert world.clock.seconds - began < SECONDS / 2, "it leaves the wait to Lambda"


def test_a_probe_shows_whether_the_bus_or_the_only_event_is_at_fault():
    (event, *_) = events_of("o-1")
    world = World(refusing(event.id, FINAL))
    assert [parked.id for parked in world.publish(event).undeliverable] == [event.id]
    assert {e["detail-type"] for e in world.bridge.taken} == {PROBE}


def test_a_call_that_is_refused_for_one_of_its_entries_is_sent_entry_by_entry():
    world = World()

    def judge(event_id, _):
        if event_id == "o-3#1#OrderPlaced":
            raise refused_call("ValidationException")

    world.bridge.judge = judge
    world.bridge.put_events = undoing(world.bridge)
    orders = [f"o-{number}" for number in range(5)]
    report = world.publish(*events_of(*orders))
    assert [parked.code for parked in report.undeliverable] == ["ValidationException"]
    assert len(report.published) == 14
    assert [len(call) for call in world.sent[:6]] == [5, 1, 1, 1, 1, 1]
    assert sum(call == ["o-3#1#OrderPlaced"] for call in world.sent) == MAX_REFUSALS
    assert overtaken(world.bridge.outcomes) == []


def undoing(bridge):
    """Make an EventBridge that, when it refuses a call as a whole, accepts none of its entries."""
    put = bridge.put_events

    def put_events(*, Entries):
        before = list(bridge.taken)
        try:
            return put(Entries=Entries)
        except (ClientError, BotoCoreError):
            bridge.taken[:] = before
            raise

    return put_events


def test_an_event_that_is_too_large_is_parked_and_never_sent():
    row = order_row("o-1", attributes={"note": "x" * MAX_BYTES})
    world = World()
    report = world.publish(*order_events(None, row), *events_of("o-1")[1:])
    (parked,) = report.undeliverable
    assert (parked.code, parked.id) == (EVENT_TOO_LARGE, "o-1#1#OrderPlaced")
    assert len(json.loads(parked.body)["detail"]["data"]["attributes"]["note"]) == MAX_BYTES
    assert world.sent == [["o-1#2#OrderConfirmed"], ["o-1#3#OrderFulfilled"]]


def test_the_events_of_the_largest_orders_are_published():
    """Rows of up to 400 KB have 99 products and 100 steps that name all of these products."""
    for length in (2, 14):
        ids = [f"{number:02}".rjust(length, "p") for number in range(99)]
        units = [{"productId": product_id, "quantity": 1} for product_id in ids]
        taken = [line | {"quantity": 200} for line in order_lines(units)]
        at = "2026-01-01T00:00:00.000000+00:00"
        steps = [
            {"action": "fulfil", "at": at, "stepId": f"s-{number}", "items": units}
            for number in range(100)
        ]
        before, after = (
            order_row("o-1", status="CONFIRMED", items=taken, steps=steps[:last], _version=last + 2)
            for last in (99, 100)
        )
        assert 0.65 < size_of_item(encode(after)) / MAX_ROW_SIZE < 1
        world = World()
        report = world.publish(*order_events(before, after))
        (event,) = world.bridge.taken
        assert event["detail-type"] == "OrderPartlyFulfilled"
        assert 300_000 < len(json.dumps(event)) < MEGABYTE
        assert not report.undeliverable


def order_lines(units):
    return [line | {"productCreatedAt": "2026-01-01T00:00:00.000000+00:00"} for line in units]


def sized(characters, *, alone=False):
    return BusEntry(Event("t", "o-1", "o-1", "", {}), "x" * characters, is_alone=alone)


def test_no_call_has_more_than_ten_entries_or_as_much_as_a_megabyte(monkeypatch):
    most = 1_000
    monkeypatch.setattr(publisher, "MAX_BYTES", most)
    chance = random.Random(3)
    for _ in range(200):
        pending = [
            sized(chance.randrange(1, most - len(SOURCE) - 1), alone=chance.random() < 0.1)
            for _ in range(chance.randrange(30))
        ]
        calls = calls_of(pending)
        assert sorted(id(each) for call in calls for each in call) == sorted(map(id, pending))
        for call in calls:
            assert 0 < len(call) <= MAX_ENTRIES
            assert sum(each.size for each in call) < most
            assert len(call) == 1 or not any(each.is_alone for each in call)


def test_a_call_has_less_than_a_megabyte():
    assert MAX_BYTES == MEGABYTE
    half = sized(MAX_BYTES // 2 - len(SOURCE) - 1)
    assert [len(call) for call in calls_of([half] * 2)] == [1, 1]
    assert BusEntry(Event("ä", "o-1", "o-1", "", {}), '"€"').size == len(SOURCE) + 2 + 5


@pytest.mark.parametrize(("image", "left"), [("OldImage", "NewImage"), ("NewImage", "OldImage")])
def test_a_change_without_its_image_is_not_a_created_row(image, left):
    record = change(*life("o-1")[:2])
    del record["dynamodb"][image]
    world = World()
    world.handle([record])
    assert world.bridge.outcomes == []
    (parked,) = world.parked
    assert parked.code == "UNREADABLE_ROW"
    assert image in parked.message
    assert left in parked.body


def test_an_unreadable_change_is_parked_and_the_next_ones_continue():
    good, bad = life("o-1")[0], order_row("o-1", status="ON_HOLD", _version=2)
    records = [change(None, good, 1), change(good, bad, 2), change(bad, life("o-1")[2], 3)]
    records += [{"eventID": "nothing"}, "nothing"]
    records += [change(None, good, 4) | {"dynamodb": {"Keys": {}, "NewImage": {"orderId": {}}}}]
    world = World()
    world.handle(records)
    assert world.bridge.outcomes == ["o-1#1#OrderPlaced", "o-1#3#OrderFulfilled"]
    found = {parked.id: parked for parked in world.parked}
    assert found["record-2"].code == "UNKNOWN_ORDER_STATUS"
    assert json.loads(found["record-2"].body)["record"] == records[1]
    assert {found[name].code for name in ("nothing", "", "record-4")} == {"UNREADABLE_ROW"}


def test_a_change_that_cannot_be_parked_is_not_acknowledged():
    world = World()
    world.queue_takes = lambda: False
    error = UnpublishableError("no")
    report = world.publish(Undeliverable.of_record("o-1", "r", {}, error), *events_of("o-1", "o-2"))
    assert report.left == 4
    assert world.bridge.outcomes == ids_of("o-2"), "the order's later events wait"
    assert report.undeliverable == []


def test_no_call_begins_after_the_deadline():
    world = World()
    report = world.publish(*events_of(*(f"o-{n}" for n in range(50))), seconds=0.05)
    assert len(world.bridge.calls) == 3
    assert report.left == 150 - 30
    assert world.publish(*events_of("o-1"), seconds=0).left == 3
    assert len(world.bridge.calls) == 3


def test_delays_are_measured_from_the_change_until_it_is_accepted():
    world = World()
    at = timestamp(world.clock.now())
    world.clock.seconds += 1.5
    (event, *_) = [e for rows in [life("o-1", at)] for e in order_events(None, rows[0])]
    assert world.publish(event).delays == [pytest.approx(1.52, abs=0.001)]
    (undated,) = order_events(None, order_row(lastUpdatedAt="yesterday"))
    assert world.publish(undated).delays == []


# ---------------------------------------------------------------------- long runs


@cache
def records_of(*order_ids, at="2026-01-01T00:00:00.000000+00:00"):
    """Make a stream of the changes of many orders: interleaved, but in sequence for each order."""
    chance, left = random.Random(5), {order_id: life(order_id, at) for order_id in order_ids}
    before, records = {}, []
    while left:
        order_id = chance.choice(sorted(left))
        row = left[order_id].pop(0)
        records.append(change(before.get(order_id), row, len(records)))
        before[order_id] = row
        if not left[order_id]:
            del left[order_id]
    return tuple(records)


def brown_out(world, kind, share):
    """Make a share of entries, calls or connections fail.

    Half of the connections fail after the bus has accepted the call.
    """
    chance = random.Random(11)
    calls = (refused_call("InternalFailure", 500), refused_call("ThrottlingException"))
    connections = (ReadTimeoutError(endpoint_url="x"), EndpointConnectionError(endpoint_url="x"))

    def crash(_, moment):
        if kind == "call" and moment == "before" and chance.random() < share:
            raise chance.choice(calls)
        # A call has two chances to fail.
        if kind == "connection" and chance.random() < 1 - (1 - share) ** 0.5:
            raise chance.choice(connections)

    world.bridge.crash = crash
    if kind == "entry":
        world.bridge.judge = lambda *_: FAILURE if chance.random() < share else None


@pytest.mark.parametrize(
    ("kind", "share", "age"), [("entry", 0.9, 7200), ("call", 0.7, 0), ("connection", 0.9, 7200)]
)
def test_a_brown_out_parks_nothing_and_nothing_overtakes(kind, share, age):
    """In some cases, the records are the backlog of a two-hour outage."""
    world = World()
    brown_out(world, kind, share)
    orders = [f"o-{number}" for number in range(40)]
    records = records_of(*orders, at=timestamp(world.clock.now()))
    world.clock.seconds += age
    shard = Shard(world.clock, world.handle)
    shard.poll(records)
    assert (world.parked, shard.given_up) == ([], [])
    assert set(world.bridge.outcomes) == set(all_ids(orders))
    assert overtaken(world.bridge.outcomes) == []


def test_the_poller_gives_up_old_records_so_that_the_shard_continues():
    """The test above only proves something if the poller can give up."""
    world = World(lambda *_: FAILURE)
    shard = Shard(world.clock, world.handle, most_age=600)
    shard.poll(records_of("o-1"))
    assert len(shard.given_up) == 3


# ---------------------------------------------------------------------- the handler


def test_the_handler_publishes_a_batch_and_counts_it(shop, capsys):
    records = [*records_of("o-1"), change(None, order_row("o-2", status="ON_HOLD"), 9)]
    answer = shop.invoke("publish_events", {"Records": records})
    assert answer == {"result": "PUBLISHED", "published": 3, "undeliverable": 1}
    assert shop.bus.outcomes == ids_of("o-1")
    samples = {s.name: s for s in emf.parse(capsys.readouterr().out.splitlines())}
    assert sum(samples["EventsPublished"].values) == 3
    assert sum(samples["EventsUndeliverable"].values) == 1
    assert len(samples["EventDelay"].values) == 3
    url = shop.urls["UndeliverableEventsQueue"]
    (parked,) = peek_dead_letters(shop.stack.sqs, url, 10)
    assert (parked.code, parked.original_message_id) == ("UNKNOWN_ORDER_STATUS", "record-9")


def test_the_handler_raises_if_time_runs_out_so_that_lambda_repeats_the_batch(shop):
    with pytest.raises(Exception, match="3 of 3 events have not been published"):
        shop.invoke("publish_events", {"Records": [*records_of("o-1")]}, seconds=-1.0)
    assert shop.bus.calls == []


class SmallQueue:
    """A queue with a limit on the size of messages."""

    def __init__(self, most):
        self.most = most
        self.messages = []

    def send_message(self, *, QueueUrl, MessageBody, MessageAttributes):
        attributes = sum(
            len(name) + len(value["DataType"]) + len(value["StringValue"])
            for name, value in MessageAttributes.items()
        )
        if len(MessageBody) + attributes > self.most:
            raise refused_call("InvalidParameterValue")
        self.messages.append((MessageBody, MessageAttributes))
        return {"MessageId": "m"}


def calls_to(client):
    return SqsCalls(Queue(client, "url"), Deadline.after(30, SystemClock()))


def test_an_event_that_is_too_large_for_the_queue_leaves_its_id_there():
    for extra, whole in ((0, True), (50_000, False)):
        row = order_row("o-1", attributes={"note": "x" * (MEGABYTE + extra)})
        client = SmallQueue(BYTES_PER_CALL)
        world = World()
        world.publisher = Publisher(Bus(world.bridge, "Bus"), calls_to(client).park, world.clock)
        assert world.publish(*order_events(None, row)).left == 0
        ((body, attributes),) = client.messages
        assert ("detail" in json.loads(body)) is whole
        assert attributes["originalMessageId"]["StringValue"] == "o-1#1#OrderPlaced"
    assert json.loads(body)["id"] == "o-1#1#OrderPlaced"
    assert not calls_to(SmallQueue(10)).park(world_event(row))


def test_the_attributes_of_a_parked_event_count_as_well():
    body = json.dumps({"record": "x" * 1_048_000})
    assert len(body) < BYTES_PER_CALL
    client = SmallQueue(BYTES_PER_CALL)
    parked = Undeliverable("o-1", "o-1", body, "CODE", "m" * 512)
    assert calls_to(client).park(parked)
    assert [json.loads(body)["id"] for body, _ in client.messages] == ["o-1"]


def world_event(row):
    world = World()
    return world.publish(*order_events(None, row)).undeliverable[0]
