"""Redrive: which dead letters are sent back, and with which attributes."""

import json
import threading
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from inventory_orders.store.tables import Table
from local import ROOT
from local.commands.main import app
from operations.aws import Aws
from operations.commands import queues as queue_commands
from operations.dead_letters import TOO_MANY_DELIVERIES, DeadLetter, Delivery
from operations.queues import DEAD_LETTERS, QUEUES, UNDELIVERABLE_EVENTS
from operations.redrive import CAUSES, MAY_SUCCEED_NOW, Decision, Findings, Selection
from tests.support.terminal import on_a_terminal


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


def test_a_stack_without_the_fifo_queue_can_be_looked_at(monkeypatch):
    without = ("OrderQueueFifoUrl", "OrderFifoDeadLetterQueueUrl")
    aws = stack_with(EmptyQueues(QUEUES[1:]), *without)
    monkeypatch.setattr(queue_commands, "aws_of", lambda *_: aws)
    found = json.loads(run("status", "--json").stdout)
    assert found["queues"]["OrderQueue"] == {"waiting": 0, "inFlight": 0, "later": 0}
    assert not any("Fifo" in name for name in found["queues"])
    assert run("redrive").exit_code == 0
    for arguments in (
        ("redrive", "--queue", "fifo"),
        ("send", "--queue", "fifo", str(ROOT / "events/orders.csv")),
    ):
        assert "`fifoQueue` is false" in str(run(*arguments).exception)


def test_the_status_counts_delayed_messages_separately(monkeypatch):
    of_each, found = EmptyQueues(), "ApproximateNumberOfMessages"
    counts = {found: "1", f"{found}NotVisible": "2", f"{found}Delayed": "3"}
    of_each.get_queue_attributes = lambda **_: {"Attributes": counts}
    monkeypatch.setattr(queue_commands, "aws_of", lambda *_: stack_with(of_each))
    shown = json.loads(run("status", "--json").stdout)["queues"]
    assert shown["ExpiryQueue"] == {"waiting": 1, "inFlight": 2, "later": 3}


class Dead:
    """A stack whose queues each hold one dead letter with the longest possible values."""

    def __init__(self):
        self.shown = set()
        self.example = "word " * 102

    def receive_message(self, *, QueueUrl, **_):
        if QueueUrl in self.shown:
            return {}
        self.shown.add(QueueUrl)
        why = {"errorCode": max(CAUSES, key=len), "errorMessage": self.example}
        attributes = {name: {"StringValue": value} for name, value in why.items()}
        message = {"MessageId": "m", "ReceiptHandle": "r", "Body": "{}"}
        return {"Messages": [message | {"MessageAttributes": attributes}]}

    def change_message_visibility_batch(self, **_):
        return {}

    def get_queue_attributes(self, **request):
        return {"Attributes": dict.fromkeys(request["AttributeNames"], "120000")}

    def describe_table(self, **_):
        return {"Table": {"ItemCount": 10**12}}


@pytest.mark.parametrize("command", ["status", "redrive"])
def test_dead_letters_fit_a_terminal_of_80_columns_and_nothing_is_cut(command, monkeypatch):
    monkeypatch.setattr(queue_commands, "aws_of", lambda *_: stack_with(Dead()))
    on_a_terminal(monkeypatch)
    shown = run(command).stdout
    *table, _ = shown.splitlines()
    assert max(map(len, table)) <= 80
    assert "…" not in shown
    found = json.loads(run(command, "--json").stdout)["deadLetters"]
    count = len(DEAD_LETTERS)
    if command == "status":
        assert found == {max(CAUSES, key=len): {"count": count, "example": Dead().example}}
        assert shown.count("word") == 102
    else:
        assert [one["count"] for one in found] == [1] * count
        assert {one["cause"] for one in found} == {max(CAUSES, key=len)}


def dead_letter(original_id="m-1", code=TOO_MANY_DELIVERIES, body="{}", message="why"):
    return DeadLetter(original_id, code, message, body)


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


def test_only_the_given_causes_are_redriven():
    selection = Selection(frozenset({"ValidationError"}))
    assert selection.decide(dead_letter("a", "ValidationError")) is Decision.SEND_BACK
    assert selection.decide(dead_letter("b")) is Decision.STAY


def test_one_of_several_copies_is_redriven():
    selection = Selection(MAY_SUCCEED_NOW)
    decisions = [selection.decide(dead_letter("m-1", "UNKNOWN_PRODUCT")) for _ in range(3)]
    assert decisions == [Decision.SEND_BACK, Decision.COPY, Decision.COPY]
    assert selection.decide(dead_letter("m-2", "UNKNOWN_PRODUCT")) is Decision.SEND_BACK


def test_another_body_with_the_same_id_is_not_a_copy():
    selection = Selection(MAY_SUCCEED_NOW)
    selection.decide(dead_letter("m-1", body="1"))
    assert selection.decide(dead_letter("m-1", body="2")) is Decision.SEND_BACK


def test_copies_of_a_message_that_stays_stay_too():
    selection = Selection(MAY_SUCCEED_NOW)
    assert [selection.decide(dead_letter("m-1", "INVALID_JSON")) for _ in range(2)] == [
        Decision.STAY
    ] * 2


def test_a_message_that_comes_straight_back_is_not_sent_again():
    selection = Selection(frozenset({"INVALID_JSON"}))
    assert selection.decide(dead_letter("m-1", "INVALID_JSON")) is Decision.SEND_BACK
    selection.sent("m-2")
    assert selection.decide(dead_letter("m-2", "INVALID_JSON")) is Decision.CAME_BACK


def test_findings_have_a_count_and_an_example_for_each_cause():
    findings = Findings()
    findings.add(dead_letter("a", "INVALID_JSON", message="first"), Decision.STAY)
    findings.add(dead_letter("b", "INVALID_JSON", message="second"), Decision.STAY)
    findings.add(dead_letter("c"), Decision.SEND_BACK)
    assert findings.groups["INVALID_JSON"].example == "first"
    assert findings.groups["INVALID_JSON"].decisions[Decision.STAY] == 2
    assert findings.count(Decision.SEND_BACK) == 1
    assert findings.count(Decision.STAY, Decision.SEND_BACK) == 3


def test_a_message_is_redriven_with_only_its_senders_attributes():
    ours = {"errorCode": "UNKNOWN_PRODUCT", "errorMessage": "why", "originalMessageId": "m-0"}
    attributes = {
        name: {"DataType": "String", "StringValue": value}
        for name, value in {**ours, "traceId": "t-1"}.items()
    }
    delivery = Delivery.of(
        {
            "MessageId": "m-1",
            "ReceiptHandle": "r",
            "Body": "{}",
            "Attributes": {"MessageGroupId": "g"},
            "MessageAttributes": attributes,
        }
    )
    assert delivery.content == DeadLetter("m-0", "UNKNOWN_PRODUCT", "why", "{}")
    assert delivery.group == "g"
    assert delivery.original_attributes == {"traceId": attributes["traceId"]}


def test_a_message_that_sqs_dead_lettered_has_the_cause_too_many_deliveries():
    delivery = Delivery.of({"MessageId": "m-1", "ReceiptHandle": "r", "Body": "{}"})
    assert (delivery.content.original_message_id, delivery.content.code) == (
        "m-1",
        TOO_MANY_DELIVERIES,
    )
    assert delivery.group is None


def test_dead_letter_queues_are_in_the_order_of_their_queues():
    for dead_letters, queue in zip(DEAD_LETTERS, QUEUES, strict=True):
        both = {
            dead_letters.replace("DeadLetter", ""),
            queue.replace("QueueFifoUrl", "FifoQueueUrl"),
        }
        assert len(both) == 1
