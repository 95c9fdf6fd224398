"""The desk's dead letters without a browser: listed, sent again, corrected and deleted."""

import json
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from inventory_orders.domain.record import OrderAction
from local.commands import main
from local.desk import letters
from operations import queues
from operations.commands import queues as queue_commands
from operations.dead_letters import SEEN_IN_A_GROUP, DeadLetterReader
from operations.redrive import MAY_SUCCEED_NOW
from tests.support.desk import ask, desk_of_shop


@pytest.fixture
def desk():
    with desk_of_shop() as desk:
        yield desk


def test_one_dead_letter_goes_back_and_another_is_deleted(desk):
    queue = "StockDeadLetterQueueUrl"
    first, second, third = (
        desk.dead_letter(queue, f'{{"number": {number}}}', code)
        for number, code in enumerate(("BELOW_FLOOR", "SCHEMA_VIOLATION", "BELOW_FLOOR"))
    )
    found = desk.get("/local/dead-letters")
    assert [one["messageId"] for one in found["deadLetters"]] == [first, second, third]
    assert found["deadLetters"][1].pop("sentAt").startswith("2027-01-15T08:00:00.")
    assert found["deadLetters"][1] == {
        "queue": queue,
        "source": "StockQueue",
        "messageId": second,
        "originalMessageId": "m",
        "group": None,
        "code": "SCHEMA_VIOLATION",
        "message": "why it is SCHEMA_VIOLATION",
        "body": '{"number": 1}',
        "orderIds": [],
    }
    causes = found["causes"]
    assert causes["BELOW_FLOOR"]["repair"].startswith(
        "book the receipt that is missing, or cancel lost units"
    )
    may_help = {code for code, cause in causes.items() if cause["mayHelp"]}
    assert may_help == MAY_SUCCEED_NOW | {"UNKNOWN_ORDER_STATUS", "REFUSED_BY_DYNAMODB"}
    assert found["more"] == []

    def settle(letter, action):
        return desk.post(
            "/local/dead-letter", {"queue": queue, "messageId": letter, "action": action}
        )

    sent, deleted = settle(third, "redrive"), settle(second, "delete")
    assert deleted == {"done": True, "messageId": ""}
    (waiting,) = desk.aws.sqs.receive_message(QueueUrl=desk.aws.outputs["StockQueueUrl"])[
        "Messages"
    ]
    assert (waiting["Body"], waiting["MessageId"]) == ('{"number": 2}', sent["messageId"])
    assert desk.shop.waiting("StockDeadLetter") == ['{"number": 0}'], (
        "the message is visible again at once"
    )
    gone = {"queue": queue, "messageId": third, "action": "redrive"}
    assert ask(desk.origin, "POST", "/local/dead-letter", gone).status == 404


def test_a_corrected_letter_goes_to_its_group_and_is_deleted_once_sqs_has_it(desk, monkeypatch):
    queue, source = "OrderFifoDeadLetterQueueUrl", desk.aws.outputs["OrderQueueFifoUrl"]
    trace = {"trace": {"DataType": "String", "StringValue": "t-1"}}
    letter = desk.dead_letter(queue, "{", "INVALID_JSON", group="g", attributes=trace)

    def settle(**body):
        return {"queue": queue, "messageId": letter, "action": "redrive", **body}

    said = desk.post("/local/dead-letter", settle(body='{"a": 1,\n"b"'))
    assert (said["done"], said["code"], said["field"]) == (False, "INVALID_JSON", "")
    assert "line 2, column 4" in said["message"]
    order = {"orderId": "o-1", "userId": "u", "items": [{"productId": "tea", "quantity": 0}]}
    said = desk.post("/local/dead-letter", settle(body=json.dumps(order)))
    assert (said["done"], said["field"]) == (False, "items[0].quantity")
    order["items"][0]["quantity"] = 1
    fixed = json.dumps(order)
    response = {"Error": {"Code": "X"}, "ResponseMetadata": {"HTTPStatusCode": 403}}

    def failing(name, **body):
        with monkeypatch.context() as patch:
            patch.setattr(desk.aws.sqs, name, Mock(side_effect=[ClientError(response, name)]))
            return ask(desk.origin, "POST", "/local/dead-letter", settle(**body))

    assert failing("send_message", body=fixed).status == 503
    for body in ({"body": fixed}, {}):
        lost = failing("delete_message", **body)
        assert (lost.status, "SQS accepted the message" in lost.said) == (504, True), lost.said
    assert desk.shop.waiting("OrderFifoDeadLetter") == ["{"]
    desk.post("/local/dead-letter", settle(body=fixed))
    # SQS dropped the second copy, but not the corrected message, which differs from the unchanged one.
    names = {"MessageAttributeNames": ["All"], "MessageSystemAttributeNames": ["MessageGroupId"]}
    found = desk.aws.sqs.receive_message(QueueUrl=source, MaxNumberOfMessages=10, **names)
    assert [one["Body"] for one in found["Messages"]] == [fixed, "{"]
    assert found["Messages"][0]["MessageAttributes"] == trace
    assert {one["Attributes"]["MessageGroupId"] for one in found["Messages"]} == {"g"}
    assert desk.shop.waiting("OrderFifoDeadLetter") == []


def test_a_list_of_dead_letters_says_what_it_leaves_out(desk, monkeypatch):
    queue = "StockDeadLetterQueueUrl"
    for number in range(3):
        desk.dead_letter(queue, f"{number}", "BELOW_FLOOR")

    def more():
        return [(each["listed"], each["why"]) for each in desk.get("/local/dead-letters")["more"]]

    with DeadLetterReader(desk.aws.sqs, desk.aws.outputs[queue]) as another:
        another.receive()
        assert more() == [(0, "READER")]
    assert more() == []
    monkeypatch.setattr(letters, "MOST_DEAD_LETTERS", 2)
    assert more() == [(2, "LIMIT")]


def test_a_fifo_group_may_hold_more_dead_letters_than_sqs_shows(desk, monkeypatch):
    monkeypatch.setattr(queue_commands, "aws_of", lambda *_: desk.aws)

    def found():
        status = json.loads(CliRunner().invoke(main.app, ["status", "--json"]).stdout)
        return desk.get("/local/dead-letters")["more"], status["deadLettersAreAll"]

    for number in range(SEEN_IN_A_GROUP):
        assert found() == ([], True), number
        desk.aws.sqs.send_message(
            QueueUrl=desk.aws.outputs["OrderFifoDeadLetterQueueUrl"],
            MessageBody="{}",
            MessageGroupId="g",
            MessageDeduplicationId=f"{number}",
        )
    more = {"queue": "OrderQueueFifo", "listed": SEEN_IN_A_GROUP, "why": "GROUP"}
    assert found() == ([more], False)
    assert "at least 10" in CliRunner().invoke(main.app, ["status"]).stdout


def test_a_letter_that_may_have_been_sent_is_no_plain_failure(desk, monkeypatch):
    letter = {"queue": "StockDeadLetterQueueUrl", "messageId": "m", "action": "redrive"}
    for code, status in ((503, 504), (403, 503)):
        response = {"Error": {"Code": "X"}, "ResponseMetadata": {"HTTPStatusCode": code}}
        failed = Mock(side_effect=[ClientError(response, "X")])
        monkeypatch.setattr(letters.redrive, "settle", failed)
        assert ask(desk.origin, "POST", "/local/dead-letter", letter).status == status


REFUSED = {
    "OrderFifo": ({"orderId": "o 1", "userId": "u", "items": []}, "orderId"),
    "Stock": ({"adjustmentId": "r-1", "productId": "tea", "delta": 1}, "reason"),
    "Catalogue": ({"eventId": "e", "eventTime": "now", "productId": "tea"}, "details"),
    "OrderCommand": ({"action": "fulfill", "orderId": "o-1"}, "action"),
    "Expiry": ({"orderId": "o-1", "by": "me"}, "by"),
}


@pytest.mark.parametrize("source", REFUSED)
def test_a_body_that_the_service_would_refuse_is_not_sent(desk, source):
    document, field = REFUSED[source]
    queue = f"{source}DeadLetterQueueUrl"
    letter = desk.dead_letter(queue, "{}", "SCHEMA_VIOLATION", group="Fifo" in source and "g")
    body = json.dumps(document)
    request = {"queue": queue, "messageId": letter, "action": "redrive", "body": body}
    said = desk.post("/local/dead-letter", request)
    assert (said["done"], said["code"], said["field"]) == (False, "SCHEMA_VIOLATION", field)
    assert desk.shop.waiting(f"{source}DeadLetter") == ["{}"]


def test_an_amend_in_a_queue_for_orders_is_corrected_like_an_order(desk):
    queue, text = (
        "OrderDeadLetterQueueUrl",
        '{"action": "amend", "orderId": "o-1", "stepId": "a", %s}',
    )
    letter = desk.dead_letter(queue, text % '"items": []', "SCHEMA_VIOLATION")
    settle = {"queue": queue, "messageId": letter, "action": "redrive"}
    said = desk.post("/local/dead-letter", settle | {"body": text % '"ifVersion": 0'})
    assert (said["done"], said["field"]) == (False, "ifVersion")
    good = text % '"attributes": {"gift": true}'
    assert desk.post("/local/dead-letter", settle | {"body": good})["done"]
    assert desk.shop.waiting("Order") == [good]


def test_the_messages_of_every_queue_have_a_schema(desk):
    found = desk.get("/local/dead-letters")["schemas"]
    commands = found.pop("OrderCommandQueue")
    assert {*commands} == {*OrderAction} - {OrderAction.EXPIRE}
    assert all("orderId" in each["properties"] for each in commands.values())
    assert {*found} == {name.removesuffix("Url") for name in queues.QUEUES} - {"OrderCommandQueue"}
    assert found["OrderQueueFifo"]["properties"]["items"]["items"]["properties"].keys() == {
        "productId",
        "quantity",
        "locationId",
    }


@pytest.mark.parametrize(
    ("queue", "action"), [("StockQueueUrl", "delete"), ("StockDeadLetterQueueUrl", "purge")]
)
def test_only_dead_letters_are_sent_again_or_deleted(desk, queue, action):
    request = {"queue": queue, "messageId": "m", "action": action}
    assert ask(desk.origin, "POST", "/local/dead-letter", request).status == 503
