"""What SQS drops on the FIFO queue: the same body within five minutes, and nothing else."""

import json
from types import SimpleNamespace

import boto3
import pytest

from operations import queues, redrive
from operations.dead_letters import peek_dead_letters
from operations.orders_file import OrderMessage, read_orders
from testing.events import event_of_received, order_body
from testing.handlers import FakeContext, load_handler
from tests.support.tea_shop import tea_shop

PRODUCT = "tea-earl-grey"


class Counter:
    """The FIFO queue of a tea shop, and the function that it feeds."""

    def __init__(self, shop):
        self.tables = shop.aws.dynamodb.tables
        self.url = shop.environment["FIFO_QUEUE_URL"]
        self.dead_url = shop.environment["FIFO_DEAD_LETTER_QUEUE_URL"]
        self.aws = SimpleNamespace(outputs={queues.FIFO: self.url}, sqs=boto3.client("sqs"))
        self.handler = load_handler("place_orders")

    def send(self, *messages):
        """Send messages, and deliver those that SQS did not drop. Returns how many."""
        queues.send(self.aws, queues.FIFO, messages)
        return self.deliver()

    def deliver(self):
        received = self.aws.sqs.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=10,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        ).get("Messages", [])
        if received:
            arn = "arn:aws:sqs:us-east-1:123456789012:Queue.fifo"
            event = event_of_received(received, arn)
            answer = self.handler.lambda_handler(event, FakeContext("place_orders"))
            assert answer == {"batchItemFailures": []}
        for message in received:
            self.aws.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        return len(received)

    @property
    def dead_letters(self):
        return [letter.code for letter in peek_dead_letters(self.aws.sqs, self.dead_url, 10)]

    def stock(self):
        (row,) = (
            i for i in self.tables["Products"].items.values() if i["productId"]["S"] == PRODUCT
        )
        return int(row["stockCount"]["N"])


@pytest.fixture
def counter():
    with tea_shop() as shop:
        yield Counter(shop)


def order(quantity):
    items = [{"productId": PRODUCT, "quantity": quantity}]
    return OrderMessage(json.dumps(order_body("o-1", {}) | {"items": items}), group=PRODUCT)


def test_a_corrected_order_is_placed_and_the_same_one_again_takes_nothing(counter):
    before = counter.stock()
    assert counter.send(order("2")) == 1
    assert counter.dead_letters == ["SCHEMA_VIOLATION"]
    assert counter.send(order(2)) == 1
    assert counter.send(order(2)) == 0, "SQS drops the same body"
    again = OrderMessage(f"{order(2).body}\n", group=PRODUCT)
    assert counter.send(again) == 1, "and the service recognises the same order in another one"
    assert counter.stock() == before - 2
    assert counter.dead_letters == ["SCHEMA_VIOLATION"]


def test_a_file_with_changed_content_is_not_dropped(counter, tmp_path):
    path = tmp_path / "orders.csv"
    for quantity in (2, 3):
        path.write_text(f"orderId,userId,productId,quantity\no-1,u-1,{PRODUCT},{quantity}\n")
        assert counter.send(*read_orders(path)) == 1
    assert counter.dead_letters == ["ORDER_ID_REUSED"]


def test_a_dead_letter_goes_back_within_five_minutes_though_its_body_is_the_same(counter):
    counter.send(order("2"))
    found = redrive.redrive(
        counter.aws.sqs, counter.dead_url, counter.url, {"SCHEMA_VIOLATION"}, rate=10_000.0
    )
    assert found
    assert counter.deliver() == 1
    assert counter.dead_letters == ["SCHEMA_VIOLATION"]
