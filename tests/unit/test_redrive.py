"""Which dead letters go back, and what they look like when they do."""

import pytest

from operations.queues import DEAD_LETTERS, QUEUES, TOO_MANY_DELIVERIES, DeadLetter
from operations.redrive import MAY_SUCCEED_NOW, Decision, Delivery, Findings, Selection


def dead_letter(original_id="m-1", code=TOO_MANY_DELIVERIES, body="{}", message="why"):
    return DeadLetter(original_id, code, message, body)


@pytest.mark.parametrize(
    ("code", "decision"),
    [
        (TOO_MANY_DELIVERIES, Decision.SEND_BACK),
        ("UNKNOWN_PRODUCT", Decision.SEND_BACK),
        ("BELOW_FLOOR", Decision.SEND_BACK),
        ("INVALID_JSON", Decision.STAY),
        ("SCHEMA_VIOLATION", Decision.STAY),
        ("TOO_MANY_PRODUCTS", Decision.STAY),
        ("ORDER_ID_REUSED", Decision.STAY),
        ("EVENT_FROM_THE_FUTURE", Decision.STAY),
        ("A_CAUSE_OF_TOMORROW", Decision.STAY),
    ],
)
def test_only_what_may_have_been_repaired_goes_back(code, decision):
    assert Selection(MAY_SUCCEED_NOW).decide(dead_letter(code=code)) is decision


def test_a_cause_that_is_named_goes_back_and_no_other():
    selection = Selection(frozenset({"ValidationError"}))
    assert selection.decide(dead_letter("a", "ValidationError")) is Decision.SEND_BACK
    assert selection.decide(dead_letter("b")) is Decision.STAY


def test_of_copies_one_goes_back():
    selection = Selection(MAY_SUCCEED_NOW)
    decisions = [selection.decide(dead_letter("m-1", "UNKNOWN_PRODUCT")) for _ in range(3)]
    assert decisions == [Decision.SEND_BACK, Decision.COPY, Decision.COPY]
    assert selection.decide(dead_letter("m-2", "UNKNOWN_PRODUCT")) is Decision.SEND_BACK


def test_another_body_under_the_same_id_is_no_copy():
    selection = Selection(MAY_SUCCEED_NOW)
    selection.decide(dead_letter("m-1", body="1"))
    assert selection.decide(dead_letter("m-1", body="2")) is Decision.SEND_BACK


def test_copies_of_what_stays_stay():
    selection = Selection(MAY_SUCCEED_NOW)
    assert [selection.decide(dead_letter("m-1", "INVALID_JSON")) for _ in range(2)] == [
        Decision.STAY
    ] * 2


def test_what_comes_straight_back_is_not_sent_again():
    selection = Selection(frozenset({"INVALID_JSON"}))
    assert selection.decide(dead_letter("m-1", "INVALID_JSON")) is Decision.SEND_BACK
    selection.sent("m-2")
    assert selection.decide(dead_letter("m-2", "INVALID_JSON")) is Decision.CAME_BACK


def test_findings_count_by_cause_and_keep_an_example():
    findings = Findings()
    findings.add(dead_letter("a", "INVALID_JSON", message="first"), Decision.STAY)
    findings.add(dead_letter("b", "INVALID_JSON", message="second"), Decision.STAY)
    findings.add(dead_letter("c"), Decision.SEND_BACK)
    assert findings.groups["INVALID_JSON"].example == "first"
    assert findings.groups["INVALID_JSON"].decisions[Decision.STAY] == 2
    assert findings.count(Decision.SEND_BACK) == 1
    assert findings.count(Decision.STAY, Decision.SEND_BACK) == 3


def test_a_dead_letter_goes_back_with_its_senders_attributes_and_without_ours():
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


def test_a_dead_letter_that_sqs_gave_up_has_no_cause_of_ours():
    delivery = Delivery.of({"MessageId": "m-1", "ReceiptHandle": "r", "Body": "{}"})
    assert (delivery.content.original_message_id, delivery.content.code) == (
        "m-1",
        TOO_MANY_DELIVERIES,
    )
    assert delivery.group is None


def test_each_dead_letter_queue_stands_beside_its_queue():
    for dead_letters, queue in zip(DEAD_LETTERS, QUEUES, strict=True):
        both = {
            dead_letters.replace("DeadLetter", ""),
            queue.replace("QueueFifoUrl", "FifoQueueUrl"),
        }
        assert len(both) == 1
