"""Redrive on the embedded AWS: which messages are sent back, which stay, and what an interruption does."""

import uuid

import pytest

from operations import redrive
from operations.dead_letters import SEEN_IN_A_GROUP
from operations.redrive import MAY_SUCCEED_NOW, Decision

INVALID = "INVALID_JSON"
FAST = 10_000.0


class Pair:
    """A queue without a consumer, and its dead-letter queue."""

    def __init__(self, sqs, *, fifo):
        suffix = ".fifo" if fifo else ""
        attributes = {"FifoQueue": "true"} if fifo else {}
        name = f"redrive-{uuid.uuid4().hex[:8]}"
        self.sqs, self.fifo = sqs, fifo
        self.source, self.dead = (
            sqs.create_queue(QueueName=f"{name}-{part}{suffix}", Attributes=attributes)["QueueUrl"]
            for part in ("source", "dead")
        )

    def put(self, body, code=None, original=None, group="g"):
        values = {"errorCode": code, "errorMessage": code and f"because of {code}"}
        values["originalMessageId"] = original or (code and uuid.uuid4().hex)
        more = {"MessageDeduplicationId": uuid.uuid4().hex} if self.fifo else {}
        self.sqs.send_message(
            QueueUrl=self.dead,
            MessageBody=body,
            MessageGroupId=group,
            MessageAttributes={
                name: {"DataType": "String", "StringValue": value}
                for name, value in values.items()
                if value
            },
            **more,
        )

    def redrive(self, causes=MAY_SUCCEED_NOW, **more):
        return redrive.redrive(self.sqs, self.dead, self.source, causes, rate=FAST, **more)

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


@pytest.fixture(params=[False, True], ids=["standard", "fifo"])
def pair(request, embedded_aws):
    return Pair(embedded_aws[0].sqs, fifo=request.param)


@pytest.fixture
def fifo(embedded_aws):
    return Pair(embedded_aws[0].sqs, fifo=True)


def test_look_changes_nothing_and_hides_no_message(pair):
    for number in range(8):
        pair.put(f"good-{number}")
    pair.put("bad", INVALID)
    for _ in range(2):
        findings = redrive.preview(pair.sqs, pair.dead, MAY_SUCCEED_NOW)
        assert findings.count(Decision.SEND_BACK) == 8
        assert findings.groups[INVALID].decisions == {Decision.STAY: 1}
        assert findings.groups[INVALID].example == f"because of {INVALID}"
    assert pair.bodies(pair.dead) == [*(f"good-{number}" for number in range(8)), "bad"]
    assert pair.bodies(pair.source) == []


def test_invalid_messages_stay_and_the_rest_is_redriven_unchanged_and_in_order(pair):
    for number in range(25):
        pair.put(f"good-{number:02}", "UNKNOWN_PRODUCT" if number % 2 else None)
        pair.put(f"bad-{number:02}", INVALID)
    findings = pair.redrive()
    assert findings.count(Decision.SEND_BACK) == findings.count(Decision.STAY) == 25
    back = pair.take(pair.source)
    assert [message["Body"] for message in back] == [f"good-{number:02}" for number in range(25)]
    assert not any("MessageAttributes" in message for message in back)
    assert {message["Attributes"]["MessageGroupId"] for message in back} == {"g"}
    left = pair.take(pair.dead)
    assert sorted(message["Body"] for message in left) == [f"bad-{n:02}" for n in range(25)]
    assert {m["MessageAttributes"]["errorCode"]["StringValue"] for m in left} == {INVALID}


def test_invalid_messages_do_not_block_later_ones_of_their_group(fifo):
    for number in range(SEEN_IN_A_GROUP + 5):
        fifo.put(f"bad-{number}", INVALID)
    fifo.put("good")
    seen = redrive.preview(fifo.sqs, fifo.dead, MAY_SUCCEED_NOW)
    assert seen.count(Decision.SEND_BACK) == 0, "SQS does not show the message behind the others"
    assert seen.crowded == {"g"}
    assert fifo.redrive().count(Decision.SEND_BACK) == 1
    assert fifo.bodies(fifo.source) == ["good"]
    assert len(fifo.take(fifo.dead)) == SEEN_IN_A_GROUP + 5


@pytest.mark.parametrize("calls_before", range(1, 9))
def test_a_redrive_that_is_interrupted_anywhere_loses_nothing(pair, calls_before):
    bodies = [*(f"good-{number}" for number in range(4)), "bad"]
    for body in bodies:
        pair.put(body, INVALID if body == "bad" else None)
    real, calls = pair.sqs, [0]

    class Interrupted:
        """A client that raises an error right before one of the calls that send or delete a message."""

        def __getattr__(self, name):
            def call(**arguments):
                if name in ("send_message", "delete_message"):
                    calls[0] += 1
                    if calls[0] == calls_before:
                        raise KeyboardInterrupt
                return getattr(real, name)(**arguments)

            return call

    pair.sqs = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        pair.redrive()
    pair.sqs = real
    pair.redrive()
    found = pair.bodies(pair.source)
    assert set(found) == set(bodies) - {"bad"}
    if pair.fifo:
        assert len(found) == 4, "a FIFO queue drops the repetition"
    assert set(pair.bodies(pair.dead)) == {"bad"}
