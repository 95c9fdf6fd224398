"""Finds the outcome of each message, from data alone, so that tests of this code need no stack."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from inventory_orders.domain.product import sortable_id
from inventory_orders.errors import InvalidMessageError
from inventory_orders.messages.commands import (
    parse_adjustment,
    parse_catalogue_event,
    parse_order,
    parse_order_command,
)
from operations import queues
from testing.world.ends import is_adjustment, is_answered_with_no, is_carried_out, is_order

Row = Mapping[str, Any]
Rows = Mapping[tuple[str, ...], Row]


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was sent. Duplicates of it are equal.

    Attributes:
        queue: Name of the stack output with the queue's URL.
        body: The message body.
    """

    queue: str
    body: str


@dataclass(frozen=True, slots=True)
class Tables:
    """The rows of the tables at the end.

    Attributes:
        products: The rows of Products, by productId.
        orders: The rows of Orders, by orderId.
        adjustments: The adjustments that were sent through a queue, by productId and adjustmentId.
    """

    products: Rows
    orders: Rows
    adjustments: Rows


@dataclass(frozen=True)
class Ends:
    """The outcomes of all distinct messages.

    Attributes:
        stored: Messages whose effect is in the tables, by queue.
        dead: Dead letters, by queue.
        both: Messages that are both in the tables and among the dead letters.
        missing: Messages that are neither in the tables nor among the dead letters.
        strangers: Rows, dead letters and details of products that belong to no message.
        wrong: Invalid messages that were applied, and dead letters with a wrong cause.
    """

    stored: Mapping[str, int]
    dead: Mapping[str, int]
    both: Sequence[Sent]
    missing: Sequence[Sent]
    strangers: Sequence[str]
    wrong: Sequence[str]

    @property
    def is_clean(self) -> bool:
        """Whether every message has exactly one outcome, which is the right one, and there is nothing else in the
        tables."""
        return not (self.both or self.missing or self.strangers or self.wrong)


def account(
    sent: Iterable[Sent],
    tables: Tables,
    dead_letters: Iterable[tuple[Sent, str]],
    invalid: Iterable[Sent] = (),
) -> Ends:
    """Find each distinct message in the tables or among the dead letters.

    An invalid message becomes a dead letter and has no other effect. But if it is invalid only because it reuses the id
    of a good message, then whichever arrives first is stored, and the others become dead letters.

    Args:
        sent: The messages, including invalid ones. Duplicates count once.
        tables: The rows of the tables.
        dead_letters: The dead letters, each with the queue that it came from, and its cause. Copies count once.
        invalid: The messages that have to be dead-lettered.
    """
    distinct, dead = dict.fromkeys(sent), dict.fromkeys(dead_letters)
    stored = {message for message in distinct if _is_stored(message, tables)}
    dead_messages = dict.fromkeys(message for message, _ in dead)
    bad = set(invalid)
    names = {name for m in distinct if m not in bad and (name := _name(m)) is not None}
    hopeless = {message for message in bad if _name(message) not in names}
    taken = {_name(message): message for message in stored - hopeless}

    def is_right(message: Sent, cause: str) -> bool:
        if message in hopeless:
            return (message.queue, cause) in _CAUSES_OF_INVALID
        first = taken.get(_name(message))
        return cause == _ID_REUSED.get(message.queue) and first not in (None, message)

    return Ends(
        stored=Counter(message.queue for message in stored),
        dead=Counter(message.queue for message in dead_messages),
        both=[message for message in distinct if message in stored and message in dead_messages],
        missing=[
            message
            for message in distinct
            if message not in dead_messages and (message in hopeless or message not in stored)
        ],
        strangers=[
            *(f"dead letter {m.body[:80]}" for m in dead_messages if m not in distinct),
            *_strangers([message for message in distinct if message not in hopeless], tables),
        ],
        wrong=[
            *(f"applied {m.body[:80]}" for m in distinct if m in hopeless and m in stored),
            *(
                f"{cause} {message.body[:80]}"
                for message, cause in dead
                if message in distinct and not is_right(message, cause)
            ),
        ],
    )


def _name(message: Sent) -> tuple[object, ...] | None:
    """The key of the row that ensures that a message is applied exactly once, or None. Does not use the parser, which
    is under test."""
    fields = _NAMED_BY.get(message.queue)
    try:
        document = json.loads(message.body)
    except ValueError:
        return None
    if fields is None or not isinstance(document, dict):
        return None
    return tuple(document.get(field) for field in fields)


def _is_stored(message: Sent, tables: Tables) -> bool:
    try:
        key = _KEY[message.queue](message.body)
    except InvalidMessageError:
        return False
    document = json.loads(message.body)
    match message.queue:
        case queues.STOCK:
            booked = tables.adjustments.get(key)
            return booked is not None and is_adjustment(booked, document)
        case queues.CATALOGUE:
            # The event is applied, or is ignored because a newer one was applied.
            row = tables.products.get(key, {})
            newest = (row.get("detailsEventTime", ""), row.get("detailsEventId", ""))
            return newest >= (document["eventTime"], sortable_id(document["eventId"]))
        case queues.COMMANDS:
            order = tables.orders.get(key)
            return is_carried_out(order, document) or is_answered_with_no(order, document)
        case _:
            order = tables.orders.get(key)
            return order is not None and is_order(order, document) and _as_sent(order, document)


def _as_sent(order: Row, document: Row) -> bool:
    """Whether an order has the hold and the locations that its message asked for."""
    names = ("holdSeconds", "locations", "split")
    asked = {line["productId"]: line.get("askedLocationId") for line in order["items"]}
    named = {i["productId"]: i["locationId"] for i in document["items"] if "locationId" in i}
    return all(order.get(name) == document.get(name) for name in names) and asked == {
        product_id: named.get(product_id) for product_id in asked
    }


def _strangers(distinct: Iterable[Sent], tables: Tables) -> list[str]:
    known: set[tuple[str, ...]] = set()
    for message in distinct:
        try:
            known.add(_KEY[message.queue](message.body))
        except InvalidMessageError:
            continue
    events = {
        json.loads(message.body)["eventId"]
        for message in distinct
        if message.queue == queues.CATALOGUE
    }
    return [
        *(
            f"row {'/'.join(key)}"
            for key in (*tables.orders, *tables.adjustments)
            if key not in known
        ),
        *(
            f"event {event_id} in {'/'.join(key)}"
            for key, row in tables.products.items()
            if (event_id := row.get("detailsEventId", "").rpartition(" ")[2]) not in {"", *events}
        ),
    ]


_LATER_THAN_ALL = datetime(9000, 1, 1, tzinfo=UTC)

_CAUSES_OF_INVALID = {
    *((queue, cause) for queue in queues.QUEUES for cause in ("INVALID_JSON", "SCHEMA_VIOLATION")),
    *((queue, "TOO_MANY_PRODUCTS") for queue in (queues.STANDARD, queues.FIFO)),
    (queues.CATALOGUE, "EVENT_FROM_THE_FUTURE"),
}
_NAMED_BY = {
    queues.STANDARD: ("orderId",),
    queues.FIFO: ("orderId",),
    queues.STOCK: ("productId", "locationId", "adjustmentId"),
}
_ID_REUSED = {
    queues.STANDARD: "ORDER_ID_REUSED",
    queues.FIFO: "ORDER_ID_REUSED",
    queues.STOCK: "ADJUSTMENT_ID_REUSED",
}
"""The only cause with which a good message, or one that reuses its id, may be dead-lettered. No command in the soak
waits too long."""

_KEY: Mapping[str, Callable[[str], tuple[str, ...]]] = {
    queues.STANDARD: lambda body: (parse_order(body).order_id,),
    queues.FIFO: lambda body: (parse_order(body).order_id,),
    queues.STOCK: lambda body: (
        parse_adjustment(body).product_id,
        parse_adjustment(body).adjustment_id,
    ),
    queues.CATALOGUE: lambda body: (parse_catalogue_event(body, _LATER_THAN_ALL).product_id,),
    queues.COMMANDS: lambda body: (parse_order_command(body).order_id,),
}
