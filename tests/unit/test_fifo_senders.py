"""Deduplication on the FIFO queue: SQS drops a body that is repeated within five minutes, and nothing else."""

import json

import pytest

from local.sample_orders import catalogue
from operations import queues, redrive
from operations.orders_file import OrderMessage, read_orders
from testing.schedules.in_turn.shop import open_shop
from testing.world.events import order_body

PRODUCT = "tea-earl-grey"


class Counter:
    """The FIFO queue of a tea shop, and the function that processes it."""

    def __init__(self, shop):
        self.shop, self.aws = shop, shop.stack
        self.stock = shop.stock

    def send(self, *messages):
        """Send messages, deliver the ones that SQS did not drop, and return how many were delivered."""
        queues.send(self.aws, queues.FIFO, messages)
        return self.deliver()

    @property
    def dead_letters(self):
        return [letter.code for letter in self.shop.dead_letters("OrderFifo")]

    def deliver(self):
        waiting = len(self.shop.waiting("OrderFifo"))
        assert self.shop.deliver("OrderFifo") == 0
        return waiting


@pytest.fixture
def counter():
    with open_shop(catalogue()) as shop:
        yield Counter(shop)


def order(quantity):
    items = [{"productId": PRODUCT, "quantity": quantity}]
    return OrderMessage(json.dumps(order_body("o-1", {}) | {"items": items}), group=PRODUCT)


def test_a_corrected_order_is_placed_and_a_repeated_one_takes_nothing(counter):
    before = counter.stock(PRODUCT)
    assert counter.send(order("2")) == 1
    assert counter.dead_letters == ["SCHEMA_VIOLATION"]
    assert counter.send(order(2)) == 1
    assert counter.send(order(2)) == 0, "SQS drops the same body"
    again = OrderMessage(f"{order(2).body}\n", group=PRODUCT)
    assert counter.send(again) == 1, "the service recognises the order in a different body"
    assert counter.stock(PRODUCT) == before - 2
    assert counter.dead_letters == ["SCHEMA_VIOLATION"]


def test_a_file_with_changed_content_is_not_dropped(counter, tmp_path):
    path = tmp_path / "orders.csv"
    for quantity in (2, 3):
        path.write_text(f"orderId,userId,productId,quantity\no-1,u-1,{PRODUCT},{quantity}\n")
        assert counter.send(*read_orders(path)) == 1
    assert counter.dead_letters == ["ORDER_ID_REUSED"]


def test_a_dead_letter_can_be_redriven_within_five_minutes(counter):
    counter.send(order("2"))
    found = redrive.redrive(
        counter.aws.sqs,
        *(counter.shop.queues[name].url for name in ("OrderFifoDeadLetter", "OrderFifo")),
        {"SCHEMA_VIOLATION"},
        rate=10_000.0,
    )
    assert found
    assert counter.deliver() == 1
    assert counter.dead_letters == ["SCHEMA_VIOLATION"]
