"""A batch of changes from a table's stream, read as events, and their publisher."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inventory_orders.clock import SystemClock
from inventory_orders.domain.events import Event, order_events, product_events
from inventory_orders.errors import UnpublishableError, UnsupportedEventError
from inventory_orders.invocation import runtime
from inventory_orders.invocation.sqs import SqsCalls
from inventory_orders.publishing.publisher import Publisher, Undeliverable
from inventory_orders.store.rows import KEYS, Table, decode


def publisher(context: Any) -> tuple[Publisher, SqsCalls]:
    """The publisher on the bus, and the calls that park what it cannot publish.

    Raises:
        ConfigurationError: The environment does not name both.
    """
    calls = SqsCalls(runtime.process().undeliverable_events, runtime.end_of(context))
    return Publisher(runtime.process().bus, calls.park, SystemClock()), calls


def read_changes(event: object) -> Iterator[Event | Undeliverable]:
    """Read the events of a batch, in the order of the changes.

    Raises:
        UnsupportedEventError: It is not a batch of changes from a stream.
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        raise UnsupportedEventError(
            'this function takes changes from the streams of the tables: {"Records": [{"dynamodb": ...}]}; see events/ for '
            "samples"
        )
    for record in records:
        try:
            yield from _events_of(record)
        except UnpublishableError as error:
            event_id = str(record.get("eventID", "")) if isinstance(record, Mapping) else ""
            yield Undeliverable.of_record(_key(record), event_id, record, error)


_OF = {Table.ORDERS: order_events, Table.PRODUCTS: product_events}


def _events_of(record: object) -> tuple[Event, ...]:
    try:
        kind, change = record["eventName"], record["dynamodb"]  # type: ignore[index]
        # An image that is missing does not say that there was no row: what has changed is not known then.
        before = None if kind == "INSERT" else decode(change["OldImage"])
        after = None if kind == "REMOVE" else decode(change["NewImage"])
        (of,) = (of for table, of in _OF.items() if tuple(change["Keys"]) == KEYS[table])
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        StopIteration,
    ) as error:
        raise UnpublishableError(
            f"the record holds no change of a row ({type(error).__name__}: {error})"
        ) from error
    return of(before, after)


def _key(record: object) -> str:
    """The key of an unreadable record, so that it keeps its place among the events of its row."""
    try:
        keys = record["dynamodb"]["Keys"]  # type: ignore[index]
        return " ".join(str(value["S"]) for value in keys.values())
    except (KeyError, TypeError, AttributeError):
        return ""
