"""An SQS batch: every message has exactly one outcome."""

import json
import time

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.rejection import RejectionReason
from inventory_orders.errors import UnsupportedEventError
from inventory_orders.invocation.sqs import Queue
from inventory_orders.invocation.sqs_batch import Outcome, QueueRules, SqsBatch, read_messages
from inventory_orders.retry import EARLY_DELIVERIES
from testing.schedules.in_turn import bench as engine_bench
from testing.schedules.in_turn.bench import product
from testing.schedules.in_turn.shop import Fault
from testing.world.events import order_body, sqs_event
from testing.world.faults import THROTTLED
from tests.support.orders import parse_order


def parse(message):
    return parse_order(message.body, message.group)


class FakeSqs:
    """A fake SQS that records messages, and fails on request."""

    def __init__(self, *, fail=False, partly=False, refused=()):
        self.sent = []
        self.calls = []
        self.visibility = {}
        self._fail, self._partly, self._refused = fail, partly, refused

    def send_message_batch(self, QueueUrl, Entries):
        if self._fail:
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "SendMessageBatch")
        self.calls.append(Entries)
        taken = Entries[:-1] if self._partly else Entries
        taken = [entry for entry in taken if entry["MessageBody"] not in self._refused]
        self.sent += [(QueueUrl, entry) for entry in taken]
        return {
            "Successful": [{"Id": entry["Id"]} for entry in taken],
            "Failed": [{"Id": entry["Id"]} for entry in Entries if entry not in taken],
        }

    def change_message_visibility_batch(self, QueueUrl, Entries):
        if self._fail:
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "ChangeMessageVisibilityBatch")
        for entry in Entries:
            self.visibility[entry["ReceiptHandle"]] = (QueueUrl, entry["VisibilityTimeout"])
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}


class Bench(engine_bench.Bench):
    def __init__(self, *products, sqs=None):
        super().__init__(*products, attempts=2)
        self.sqs = sqs or FakeSqs()
        self.seconds_left = 30.0

    def process(self, event, may_be_early=frozenset()):
        end = Deadline.after(self.seconds_left, SystemClock())
        messages = read_messages(event)
        kind = ".fifo" if messages[0].group is not None else ""
        queue = Queue(self.sqs, f"queue{kind}", f"dead-letters{kind}")
        batch = SqsBatch(messages, queue, end)
        orders = batch.parse(parse)
        report = self.apply(*orders, seconds=10)
        batch.response = batch.settle(report.outcomes, QueueRules(may_be_early))
        return batch


def ends(batch):
    return list(batch.ends.values())


def returned(batch):
    return [entry["itemIdentifier"] for entry in batch.response["batchItemFailures"]]


def test_a_dead_letter_is_the_unchanged_message_with_its_reason():
    bench = Bench()
    bad = '{"orderId": "\\ud800", "userId": 1,\n  "items": []}'
    bench.process(sqs_event(bad))
    ((url, entry),) = bench.sqs.sent
    assert url == "dead-letters"
    assert entry["MessageBody"] == bad
    attributes = {name: value["StringValue"] for name, value in entry["MessageAttributes"].items()}
    assert attributes["errorCode"] == "SCHEMA_VIOLATION"
    assert attributes["errorMessage"].startswith(
        "orderId: must be 1 to 128 printable ASCII characters"
    )
    assert attributes["originalMessageId"] == "m-0"
    assert "MessageGroupId" not in entry


def test_a_dead_letter_from_the_fifo_queue_keeps_its_group():
    bench = Bench()
    bench.process(sqs_event("bad", group="g"))
    ((url, entry),) = bench.sqs.sent
    assert url == "dead-letters.fifo"
    assert (entry["MessageGroupId"], entry["MessageDeduplicationId"]) == ("g", "m-0")


def test_many_or_large_dead_letters_take_several_calls():
    bench = Bench()
    bench.process(sqs_event(*["x" * 262_144] * 5, *["x" * 200_000] * 5, *["x"] * 15))
    assert len(bench.sqs.sent) == 25
    assert [len(entries) for entries in bench.sqs.calls] == [3, 4, 10, 8]
    for entries in bench.sqs.calls:
        assert sum(len(json.dumps(entry)) for entry in entries) <= 1024 * 1024
    ids = [entry["MessageAttributes"]["originalMessageId"] for _, entry in bench.sqs.sent]
    assert len({json.dumps(i) for i in ids}) == 25


@pytest.mark.parametrize("sqs", [FakeSqs(fail=True), FakeSqs(partly=True)])
def test_an_invalid_message_that_cannot_be_dead_lettered_is_returned(sqs):
    bench = Bench(product("p", 5), sqs=sqs)
    batch = bench.process(sqs_event("bad", order_body("a", {"p": 1})))
    assert ends(batch) == [Outcome.RETURNED, Outcome.APPLIED]
    assert returned(batch) == ["m-0"]
    assert batch.calls.errors


@pytest.mark.parametrize(("closed", "sent"), [(1, 1), (2, 0)])
def test_a_call_on_a_connection_that_was_closed_is_made_once_more(closed, sent):
    sqs = FakeSqs()
    take, left = sqs.send_message_batch, [closed]

    def lose_connection(**request):
        if left[0]:
            left[0] -= 1
            raise ConnectionClosedError(endpoint_url="sqs")
        return take(**request)

    sqs.send_message_batch = lose_connection
    batch = Bench(sqs=sqs).process(sqs_event("bad"))
    assert len(sqs.sent) == sent
    assert returned(batch) == ([] if sent else ["m-0"])


def test_a_returned_fifo_message_returns_all_later_ones_of_its_group():
    bench = Bench(product("p", 5), sqs=FakeSqs(fail=True))
    event = sqs_event("bad", order_body("a", {"p": 1}), group="g")
    event["Records"] += sqs_event("-", "-", order_body("b", {"p": 1}), group="h")["Records"][2:]
    batch = bench.process(event)
    assert ends(batch) == [Outcome.RETURNED, Outcome.RETURNED, Outcome.APPLIED]
    assert bench.stock("p") == 4, "the message behind it was not applied"


def test_a_message_that_may_yet_succeed_is_returned_with_a_short_delay():
    bench = Bench(product("p", 5))
    bench.faults.extend([Fault(error=THROTTLED)] * 5)
    batch = bench.process(sqs_event(order_body("a", {"p": 1}), receive_count=3))
    assert returned(batch) == ["m-0"]
    url, seconds = bench.sqs.visibility["r-0"]
    assert url == "queue"
    assert 4 <= seconds <= 8


@pytest.mark.parametrize(("lease", "least", "most"), [(600, 595, 601), (1_000_000, 900, 900)])
def test_a_leased_product_delays_its_messages_until_the_lease_ends(lease, least, most):
    """A lease may be released early, so a delay is at most 15 minutes."""
    bench = Bench(product("p", 5))
    bench.lease("p", lease)
    batch = bench.process(sqs_event(order_body("a", {"p": 1}), group="p"))
    assert returned(batch) == ["m-0"]
    url, seconds = bench.sqs.visibility["r-0"]
    assert url == "queue.fifo"
    assert least <= seconds <= most


def deliver_early(bench, count, messages=1):
    """Deliver orders for products that are not listed yet."""
    bodies = [order_body(f"o-{number}", {"none": 1}) for number in range(messages)]
    event = sqs_event(*bodies, receive_count=count)
    return bench.process(event, frozenset({RejectionReason.UNKNOWN_PRODUCT}))


def test_an_early_message_is_resent_as_a_copy_with_a_new_delivery_count():
    bench = Bench()
    assert returned(deliver_early(bench, EARLY_DELIVERIES - 1)) == ["m-0"]
    assert bench.sqs.sent == []
    bench = Bench()
    batch = deliver_early(bench, 30, messages=12)
    assert returned(batch) == []
    assert ends(batch) == [Outcome.RETURNED] * 12
    assert [message.body for message in batch.ends] == [
        entry["MessageBody"] for _, entry in bench.sqs.sent
    ]
    url, copy = bench.sqs.sent[0]
    assert url == "queue"
    assert 450 <= copy["DelaySeconds"] <= 900
    assert copy["MessageAttributes"]["originalMessageId"]["StringValue"] == "m-0"


def test_if_sqs_refuses_the_copy_the_message_stays_in_its_queue():
    bench = Bench(sqs=FakeSqs(partly=True))
    assert returned(deliver_early(bench, EARLY_DELIVERIES, messages=2)) == ["m-1"]
    assert bench.sqs.visibility.keys() == {"r-1"}


@pytest.mark.parametrize("count", [1, EARLY_DELIVERIES])
def test_a_group_on_a_standard_queue_is_passed_on_and_keeps_no_sequence(count):
    bench = Bench(product("p", 5))
    bodies = "bad", order_body("early", {"none": 1}), order_body("b", {"p": 1})
    event = sqs_event(*bodies, receive_count=count)
    for record in event["Records"]:
        record["attributes"]["MessageGroupId"] = "u-1"
    batch = bench.process(event, frozenset({RejectionReason.UNKNOWN_PRODUCT}))
    # The last message overtakes the one before it.
    assert ends(batch) == [Outcome.INVALID, Outcome.RETURNED, Outcome.APPLIED]
    assert [message.group for message in batch.ends] == [None] * 3
    sent = [(url, entry["MessageGroupId"]) for url, entry in bench.sqs.sent]
    assert sent == [("dead-letters", "u-1"), ("queue", "u-1")][: 1 + (count > 1)]
    assert not any("MessageDeduplicationId" in entry for _, entry in bench.sqs.sent)


@pytest.mark.parametrize("body", ["bad", order_body("early", {"none": 1})])
@pytest.mark.parametrize(
    ("given", "kept"), [("anna", "anna"), ("x" * 999, "x" * 509 + "..."), ("", None), (None, None)]
)
def test_a_message_that_is_sent_again_still_names_who_placed_its_order(body, given, kept):
    bench = Bench()
    event = sqs_event(body, receive_count=EARLY_DELIVERIES)
    event["Records"][0]["messageAttributes"] = {"placedBy": {"stringValue": given}}
    bench.process(event, frozenset({RejectionReason.UNKNOWN_PRODUCT}))
    ((_, entry),) = bench.sqs.sent
    assert entry["MessageAttributes"].get("placedBy", {}).get("StringValue") == kept


@pytest.mark.parametrize("given", ["x" * 36, "0" * 37, "", None])
def test_only_an_id_of_a_request_is_stored_with_its_order(given):
    event = sqs_event(order_body("a", {"p": 1}))
    event["Records"][0]["messageAttributes"] = {"requestId": {"stringValue": given}}
    (message,) = read_messages(event)
    assert parse_order(message.body, request_id=message.request_id).request_id is None


@pytest.mark.parametrize(
    ("stamps", "since"),
    [
        (["1790000002000", "1790000001500"], 1790000001.5),
        (["1790000002000", None], 1790000002.0),
        (["soon", "inf"], None),
        (["9" * 400, None], None),
        (["0", "1790000002000"], 1790000002.0),
        (["-1", "1545082649185"], None),
        (["1790000011000", None], None),
    ],
)
def test_the_oldest_message_gives_the_age_of_the_batch(stamps, since, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1790000010.0)
    bench = Bench(product("p", 9))
    event = sqs_event(order_body("a", {"p": 1}), order_body("b", {"p": 1}))
    for record, stamp in zip(event["Records"], stamps, strict=True):
        if stamp is not None:
            record["attributes"]["ApproximateFirstReceiveTimestamp"] = stamp
    batch = bench.process(event)
    assert ends(batch) == [Outcome.APPLIED] * 2
    assert batch.age == (1790000010.0 - since if since else 0.0)


def test_a_returned_group_is_redelivered_together_with_its_first_message():
    bench = Bench(product("p", 9))
    bench.faults.extend([Fault(error=THROTTLED)] * 50)
    event = sqs_event(order_body("a", {"p": 1}), order_body("b", {"p": 1}), group="p")
    event["Records"][0]["attributes"]["ApproximateReceiveCount"] = "12"
    assert ends(bench.process(event)) == [Outcome.RETURNED] * 2
    first, second = (bench.sqs.visibility[f"r-{number}"][1] for number in range(2))
    assert 450 <= first <= 900
    assert second == first


@pytest.mark.parametrize(
    "event",
    [
        {"Records": None},
        {"Records": [None]},
        {"Records": [{}]},
        {"Records": [{"eventSource": "aws:kinesis", "messageId": "m"}]},
    ],
)
def test_a_batch_of_another_source_is_an_error_with_advice(event):
    with pytest.raises(UnsupportedEventError, match=r"SQS message"):
        read_messages(event)


def test_without_time_left_sqs_is_not_called_and_nothing_is_lost():
    bench = Bench(product("p", 5))
    bench.seconds_left = 2.0
    batch = bench.process(sqs_event("bad", order_body("a", {"p": 1})))
    assert ends(batch) == [Outcome.RETURNED, Outcome.APPLIED]
    assert bench.sqs.sent == []
    assert "no time was left" in batch.calls.errors[0]


def test_an_invalid_message_behind_a_returned_one_of_its_group_is_dead_lettered():
    bench = Bench(product("p", 5))
    bench.lease("p", 600)
    batch = bench.process(sqs_event(order_body("a", {"p": 1}), "bad", group="g"))
    assert ends(batch) == [Outcome.RETURNED, Outcome.INVALID]
    assert len(bench.sqs.sent) == 1


def test_an_invalid_message_behind_one_that_cannot_be_sent_is_returned_only():
    bench = Bench(sqs=FakeSqs(refused=["first"]))
    event = sqs_event("sent", "first", "second", group="g")
    event["Records"] += sqs_event("-", "-", "-", "third", group="h")["Records"][3:]
    batch = bench.process(event)
    assert returned(batch) == ["m-1", "m-2"]
    assert [entry["MessageBody"] for _, entry in bench.sqs.sent] == ["sent", "third"]


def test_an_outcome_is_not_dead_lettered_behind_a_returned_message_of_its_group():
    bench = Bench(product("p", 5), product("q", 5))
    bench.process(sqs_event(order_body("b", {"q": 1})))
    bench.lease("p", 600)
    event = sqs_event(order_body("a", {"p": 1}), order_body("b", {"q": 2}), group="g")
    batch = bench.process(event)
    assert returned(batch) == ["m-0", "m-1"]
    assert not bench.sqs.sent


@pytest.mark.parametrize(
    ("code", "is_an_error"),
    [("ReceiptHandleIsInvalid", False), ("MessageNotInflight", False), ("InternalError", True)],
)
def test_delaying_an_expired_delivery_is_not_an_error(code, is_an_error):
    class Over(FakeSqs):
        def change_message_visibility_batch(self, QueueUrl, Entries):
            return {"Failed": [{"Id": entry["Id"], "Code": code} for entry in Entries]}

    bench = Bench(product("p", 5), sqs=Over())
    bench.lease("p", 600)
    batch = bench.process(sqs_event(order_body("a", {"p": 1})))
    assert returned(batch) == ["m-0"]
    assert bool(batch.calls.errors) is is_an_error
