"""The soak's workload: ten thousand orders and other messages of every kind, many of them twice, and some invalid."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from inventory_orders.clock import timestamp
from inventory_orders.domain.product import NewProduct
from local import sample_orders
from operations import queues
from operations.orders_file import OrderMessage

ORDERS = 10_000
_CANCELLATIONS = 500
_RECEIPTS = 500
_EVENTS = 400
_GOOD = ORDERS + _CANCELLATIONS + _RECEIPTS + _EVENTS

DUPLICATES = _GOOD * 15 // 100
INVALID = _GOOD * 2 // 100
MESSAGES = _GOOD + DUPLICATES + INVALID

# Orders with the shortest hold that a message may request, which ends during the run.
_HELD, _HOLD_SECONDS = 500, 60
# Orders for products that are delisted and relisted. There are no receipts or catalogue events for these: while a
# product is delisted, a receipt would wait, and a catalogue event would be dropped.
_OF_SEASONAL = 400
SEASONAL = [
    *(NewProduct(f"tea-seasonal-{number}", 120, 20) for number in range(2)),
    NewProduct(f"tea-seasonal-0#{sample_orders.WAREHOUSE}", 60, 5),
]
# The other orders name no locations. In some, the first line names the only location it may come from.
_WITH_LOCATIONS, _OF_ONE_PLACE = 0.8, 0.1

# These queues get a share of the invalid messages; the order queues get the rest.
_OTHER_INVALID = {
    queues.FIFO: INVALID * 15 // 100,
    queues.STOCK: INVALID * 10 // 100,
    queues.COMMANDS: INVALID * 10 // 100,
    queues.CATALOGUE: INVALID * 10 // 100,
}


@dataclass(frozen=True)
class Workload:
    """The messages of each queue, in order.

    Attributes:
        messages: All messages by queue, including the invalid ones.
        invalid: The bodies of the invalid messages, by queue.
    """

    messages: Mapping[str, Sequence[OrderMessage]]
    invalid: Mapping[str, Collection[str]]

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(map(len, self.messages.values()))


def workload(run: str, seed: int, now: datetime) -> Workload:
    """Make the messages.

    Args:
        run: Prefix of all ids.
        seed: Seed of the random numbers.
        now: The current time. Catalogue events have times in the hours before it.
    """
    chance = random.Random(seed)
    orders = sample_orders.orders(run, ORDERS, chance)
    for number in chance.sample(range(len(orders) // 2), _HELD):
        held = json.loads(orders[number].body) | {"holdSeconds": _HOLD_SECONDS}
        orders[number] = replace(orders[number], body=json.dumps(held))
    for number in chance.sample(range(len(orders)), int(_WITH_LOCATIONS * len(orders))):
        (orders[number],) = sample_orders.with_locations([orders[number]], chance)
    others = [n for n, order in enumerate(orders) if order.group != sample_orders.HOT_PRODUCT]
    for number in chance.sample(others, _OF_SEASONAL):
        order = json.loads(orders[number].body)
        order["items"][0]["productId"] = chance.choice(SEASONAL[:2]).product_id
        orders[number] = replace(orders[number], body=json.dumps(order))
    for number in chance.sample(others, int(_OF_ONE_PLACE * len(others))):
        order = json.loads(orders[number].body)
        order["items"][0]["locationId"] = chance.choice(sample_orders.LOCATIONS)
        orders[number] = replace(orders[number], body=json.dumps(order))
    drop = [message for message in orders if message.group == sample_orders.HOT_PRODUCT]
    # Half of the hot orders use the FIFO queue, so that the other half meets contention on the standard queue.
    through_fifo = {message.order_id for message in drop[::2]}
    receipts = [_receipt(run, number, chance) for number in range(_RECEIPTS)]
    good = {
        queues.STANDARD: [m for m in orders if m.order_id not in through_fifo],
        queues.FIFO: [m for m in orders if m.order_id in through_fifo],
        queues.STOCK: [_message(receipt) for receipt in receipts],
        queues.COMMANDS: [
            _message({"action": "cancel", "orderId": order.order_id})
            for order in chance.sample(orders, _CANCELLATIONS)
        ],
        queues.CATALOGUE: [_event(run, number, now, chance) for number in range(_EVENTS)],
    }
    chance.shuffle(good[queues.CATALOGUE])

    invalid_orders = sample_orders.invalid_orders(
        run, INVALID - sum(_OTHER_INVALID.values()) + _OTHER_INVALID[queues.FIFO], orders
    )
    fifo_invalid = [
        _another(message, number)
        for number, message in enumerate(invalid_orders[: _OTHER_INVALID[queues.FIFO]])
    ]
    extra: dict[str, list[OrderMessage]] = {
        queues.STANDARD: invalid_orders[len(fifo_invalid) :],
        queues.FIFO: fifo_invalid,
        queues.STOCK: [
            OrderMessage(_receipt_invalid(run, number, receipts))
            for number in range(_OTHER_INVALID[queues.STOCK])
        ],
        queues.COMMANDS: [
            OrderMessage(_cancellation_invalid(run, number))
            for number in range(_OTHER_INVALID[queues.COMMANDS])
        ],
        queues.CATALOGUE: [
            OrderMessage(_event_invalid(run, number))
            for number in range(_OTHER_INVALID[queues.CATALOGUE])
        ],
    }
    invalid = {queue: {message.body for message in messages} for queue, messages in extra.items()}
    all_good = [(queue, message) for queue, messages in good.items() for message in messages]
    for queue, message in chance.sample(all_good, DUPLICATES):
        extra[queue].append(_another(message, 1) if queue == queues.FIFO else message)
    for queue, messages in extra.items():
        for message in messages:
            good[queue].insert(chance.randrange(len(good[queue]) + 1), message)
    return Workload(good, invalid)


def _message(document: Mapping[str, object]) -> OrderMessage:
    return OrderMessage(json.dumps(document))


def _another(message: OrderMessage, number: int) -> OrderMessage:
    """Copy a message and add spaces, because the FIFO queue drops messages with the same body for five minutes."""
    return replace(message, body=message.body + " " * number)


def _product(chance: random.Random) -> str:
    return chance.choice(sample_orders.catalogue()).product_id


def _place(chance: random.Random) -> dict[str, str]:
    """Choose a product at one of its locations. Returns the fields that identify it in a message."""
    product_id, _, location_id = chance.choice(sample_orders.stocked()).product_id.partition("#")
    return {"productId": product_id, **({"locationId": location_id} if location_id else {})}


def _receipt(run: str, number: int, chance: random.Random) -> dict[str, object]:
    return {
        "adjustmentId": f"{run}-receipt-{number}",
        **_place(chance),
        "delta": chance.randint(1, 5),
        "reason": "RECEIPT",
    }


def _event(run: str, number: int, now: datetime, chance: random.Random) -> OrderMessage:
    moment = now - timedelta(hours=3) + timedelta(seconds=number)
    return _message(
        {
            "eventId": f"{run}-event-{number}",
            "eventTime": timestamp(moment),
            "productId": _product(chance),
            "details": {"name": f"Tea of moment {number}", "price": 100 + number},
        }
    )


def _receipt_invalid(run: str, number: int, receipts: Sequence[Mapping[str, object]]) -> str:
    used = receipts[number % len(receipts)]
    kinds = (
        json.dumps({**used, "delta": -7}),
        json.dumps({**used, "adjustmentId": f"{run}-bad-{number}", "delta": 1.5}),
        f"receipt {run} {number}",
    )
    return kinds[number % len(kinds)]


def _cancellation_invalid(run: str, number: int) -> str:
    return (
        json.dumps({"action": "cancel", "orderId": f"{run} with spaces {number}"}),
        json.dumps({"action": "cancel", "orderId": f"{run}-bad-{number}", "why": "too late"}),
    )[number % 2]


def _event_invalid(run: str, number: int) -> str:
    event = {
        "eventId": f"{run}-bad-{number}",
        "productId": sample_orders.HOT_PRODUCT,
        "details": {"price": 1},
    }
    times = (timestamp(datetime(2999, 1, 1, tzinfo=UTC)), "yesterday")
    return json.dumps({**event, "eventTime": times[number % 2]})
