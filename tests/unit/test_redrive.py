"""Redrive: which dead letters are sent back and which stay, and what an interruption does."""

import itertools
import json
import threading
import time
import uuid
from functools import partial
from types import SimpleNamespace

import boto3
import pytest
from typer.testing import CliRunner

from inventory_orders.store.tables import Table
from local import ROOT
from local.commands.main import app
from operations import redrive
from operations.aws import Aws
from operations.commands import queues as queue_commands
from operations.dead_letters import SEEN_IN_A_GROUP, TOO_MANY_DELIVERIES, DeadLetter
from operations.queues import DEAD_LETTERS, QUEUES, UNDELIVERABLE_EVENTS
from operations.redrive import CAUSES, MAY_SUCCEED_NOW, Decision, Selection
from testing.aws import SimulatedAws, answered_directly_by

INVALID = "INVALID_JSON"


class EmptyQueues:
    """A stack with empty tables and queues, which answers only after every dead-letter queue has received a request."""

    def __init__(self, queues=QUEUES):
        self.waited = []
        self._all = threading.Barrier(len(queues), timeout=60)

    def receive_message(self, **request):
        self.waited.append((request["QueueUrl"], request.get("WaitTimeSeconds", 0)))
        self._all.wait()
        return {}

    def get_queue_attributes(self, **request):
        return {"Attributes": dict.fromkeys(request["AttributeNames"], "0")}

    def describe_table(self, **_):
        return {"Table": {"ItemCount": 0}}


@pytest.mark.parametrize("command", ["status", "redrive"])
def test_a_look_at_dead_letters_asks_all_servers_of_sqs_and_all_queues_at_once(
    command, monkeypatch
):
    empty = EmptyQueues()
    monkeypatch.setattr(queue_commands, "aws_of", lambda *_: stack_with(empty))
    done = CliRunner().invoke(app, [command], catch_exceptions=False)
    assert done.exit_code == 0
    assert dict(empty.waited).keys() == set(DEAD_LETTERS)
    # docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html
    assert all(seconds >= 1 for _, seconds in empty.waited)


def stack_with(sqs, *without):
    tables = [f"{table.value}TableName" for table in Table]
    outputs = {n: n for n in (*DEAD_LETTERS, *QUEUES, UNDELIVERABLE_EVENTS, *tables)}
    outputs = {name: value for name, value in outputs.items() if name not in without}
    return Aws(outputs, SimpleNamespace(), sqs, sqs, SimpleNamespace(), SimpleNamespace())


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_a_stack_without_the_optional_queues_can_be_looked_at(monkeypatch):
    without = [name for name in (*QUEUES, *DEAD_LETTERS) if "Fifo" in name or "Express" in name]
    aws = stack_with(EmptyQueues(QUEUES[2:]), *without)
    monkeypatch.setattr(queue_commands, "aws_of", lambda *_: aws)
    found = json.loads(run("status", "--json").stdout)
    assert found["queues"]["OrderQueue"] == {"waiting": 0, "inFlight": 0, "later": 0}
    assert not any("Fifo" in name or "Express" in name for name in found["queues"])
    assert run("redrive").exit_code == 0
    for arguments, setting in (
        (("redrive", "--queue", "fifo"), "fifoQueue"),
        (("redrive", "--queue", "express"), "api"),
        (("send", "--queue", "fifo", str(ROOT / "events/orders.csv")), "fifoQueue"),
    ):
        assert f"`{setting}` is false" in str(run(*arguments).exception)


def test_the_status_counts_delayed_messages_separately(monkeypatch):
    of_each, found = EmptyQueues(), "ApproximateNumberOfMessages"
    counts = {found: "1", f"{found}NotVisible": "2", f"{found}Delayed": "3"}
    of_each.get_queue_attributes = lambda **_: {"Attributes": counts}
    monkeypatch.setattr(queue_commands, "aws_of", lambda *_: stack_with(of_each))
    shown = json.loads(run("status", "--json").stdout)["queues"]
    assert shown["ExpiryQueue"] == {"waiting": 1, "inFlight": 2, "later": 3}


def dead_letter(original_id="m-1", code=TOO_MANY_DELIVERIES, body="{}"):
    return DeadLetter(original_id, code, "why", body)


def test_only_causes_that_may_have_been_repaired_are_redriven():
    decisions = {
        code: Selection(MAY_SUCCEED_NOW).decide(dead_letter(code=code))
        for code in (*CAUSES, "A_CAUSE_OF_TOMORROW")
    }
    goes_back = {code for code, decision in decisions.items() if decision is Decision.SEND_BACK}
    assert goes_back == {
        *(TOO_MANY_DELIVERIES, "UNKNOWN_PRODUCT", "BELOW_FLOOR", "UNKNOWN_ORDER"),
        *("NOT_CONFIRMED", "NOT_FULFILLED"),
    }
    assert {decisions[code] for code in decisions.keys() - goes_back} == {Decision.STAY}


@pytest.mark.parametrize(
    ("letters", "decisions"),
    [
        ([dead_letter("m-1")] * 3, [Decision.SEND_BACK, Decision.COPY, Decision.COPY]),
        ([dead_letter("m-1"), dead_letter("m-2")], [Decision.SEND_BACK] * 2),
        # Another body with the same id is not a copy.
        ([dead_letter(body="1"), dead_letter(body="2")], [Decision.SEND_BACK] * 2),
        ([dead_letter("m-1", INVALID)] * 2, [Decision.STAY] * 2),
    ],
)
def test_one_of_several_copies_is_redriven(letters, decisions):
    selection = Selection(MAY_SUCCEED_NOW)
    assert [selection.decide(letter) for letter in letters] == decisions


def test_a_message_that_comes_straight_back_is_not_sent_again():
    selection = Selection(frozenset({INVALID}))
    assert selection.decide(dead_letter("m-1", INVALID)) is Decision.SEND_BACK
    assert selection.decide(dead_letter("m-3")) is Decision.STAY, "another cause was given"
    selection.sent("m-2")
    assert selection.decide(dead_letter("m-2", INVALID)) is Decision.CAME_BACK


class Pair:
    """A queue without a consumer, and its dead-letter queue."""

    def __init__(self, aws, suffix):
        self.fifo = bool(suffix)
        self.sqs = boto3.client("sqs")
        self.source, self.dead = (aws.sqs.create(name + suffix).url for name in ("Q", "Dead"))

    def put(self, body, code=None, original=None, why="why", **attributes):
        values = attributes
        if code is not None:
            ids = {"originalMessageId": original or uuid.uuid4().hex}
            values |= {"errorCode": code, "errorMessage": why} | ids
        more = {"MessageDeduplicationId": uuid.uuid4().hex} if self.fifo else {}
        attributes = {n: {"DataType": "String", "StringValue": v} for n, v in values.items()}
        self.sqs.send_message(
            QueueUrl=self.dead,
            MessageBody=body,
            MessageGroupId="g",
            MessageAttributes=attributes,
            **more,
        )

    def redrive(self, causes=MAY_SUCCEED_NOW):
        return redrive.redrive(self.sqs, self.dead, self.source, causes, rate=10_000.0)

    def take(self, url):
        """Receive and delete all visible messages of a queue."""
        taken = []
        while found := self.sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["MessageGroupId"],
        ).get("Messages"):
            taken += found
            for message in found:
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return taken

    def bodies(self, url):
        return [message["Body"] for message in self.take(url)]


@pytest.fixture(params=["", ".fifo"], ids=["standard", "fifo"])
def pair(request):
    aws = SimulatedAws(time.time)
    with answered_directly_by(aws.answer):
        yield Pair(aws, request.param)


def test_a_look_changes_nothing_and_hides_no_message(pair):
    for number in range(7):
        pair.put(f"good-{number}")
    pair.put("bad", INVALID, why="first")
    pair.put("worse", INVALID, why="second")
    for _ in range(2):
        findings = redrive.preview(pair.sqs, pair.dead, MAY_SUCCEED_NOW)
        assert findings.groups.keys() == {TOO_MANY_DELIVERIES, INVALID}
        assert findings.count(Decision.SEND_BACK) == 7
        assert findings.groups[INVALID].decisions == {Decision.STAY: 2}
        assert findings.groups[INVALID].example == "first"
    assert pair.bodies(pair.dead) == [*(f"good-{number}" for number in range(7)), "bad", "worse"]
    assert pair.bodies(pair.source) == []


def test_invalid_messages_stay_and_the_rest_is_redriven_unchanged_and_in_order(pair):
    for number in range(25):
        code = "UNKNOWN_PRODUCT" if number % 2 else None
        pair.put(f"good-{number:02}", code, traceId=f"t-{number}")
        pair.put(f"bad-{number:02}", INVALID)
    for _ in range(2):
        pair.put("copied", "UNKNOWN_PRODUCT", original="m-1", traceId="t-25")
    findings = pair.redrive()
    assert (findings.count(Decision.SEND_BACK), findings.count(Decision.STAY)) == (26, 25)
    back = pair.take(pair.source)
    expected = [*(f"good-{number:02}" for number in range(25)), "copied"]
    assert [message["Body"] for message in back] == expected
    for number, message in enumerate(back):
        of_sender = {"traceId": {"DataType": "String", "StringValue": f"t-{number}"}}
        assert message["MessageAttributes"] == of_sender
        assert message["Attributes"]["MessageGroupId"] == "g"
    left = pair.take(pair.dead)
    assert sorted(message["Body"] for message in left) == [f"bad-{n:02}" for n in range(25)]
    assert {m["MessageAttributes"]["errorCode"]["StringValue"] for m in left} == {INVALID}


@pytest.mark.parametrize("pair", [".fifo"], indirect=True)
def test_invalid_messages_do_not_block_later_ones_of_their_group(pair):
    for number in range(SEEN_IN_A_GROUP + 5):
        pair.put(f"bad-{number}", INVALID)
    pair.put("good")
    seen = redrive.preview(pair.sqs, pair.dead, MAY_SUCCEED_NOW)
    assert seen.count(Decision.SEND_BACK) == 0, "SQS does not show the message behind the others"
    assert seen.crowded == {"g"}
    assert pair.redrive().count(Decision.SEND_BACK) == 1
    assert pair.bodies(pair.source) == ["good"]
    assert len(pair.take(pair.dead)) == SEEN_IN_A_GROUP + 5


@pytest.mark.parametrize("calls_before", range(1, 9))
def test_a_redrive_that_is_interrupted_anywhere_loses_nothing(pair, calls_before, monkeypatch):
    bodies = [*(f"good-{number}" for number in range(4)), "bad"]
    for body in bodies:
        pair.put(body, INVALID if body == "bad" else None)
    calls = itertools.count(1)

    def interrupted(call, **arguments):
        if next(calls) == calls_before:
            raise KeyboardInterrupt
        return call(**arguments)

    with monkeypatch.context() as patched:
        for name in ("send_message", "delete_message"):
            patched.setattr(pair.sqs, name, partial(interrupted, getattr(pair.sqs, name)))
        with pytest.raises(KeyboardInterrupt):
            pair.redrive()
    pair.redrive()
    found = pair.bodies(pair.source)
    assert set(found) == set(bodies) - {"bad"}
    if pair.fifo:
        assert len(found) == 4, "a FIFO queue drops the repetition"
    assert set(pair.bodies(pair.dead)) == {"bad"}
