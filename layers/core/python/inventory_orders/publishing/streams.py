"""Converts changes in the tables' streams into events, and checks that Lambda reads the streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inventory_orders.domain.events import Event, order_events, product_events
from inventory_orders.errors import (
    OutcomeUnknownError,
    StoreError,
    ThrottledError,
    UnpublishableError,
    UnsupportedEventError,
)
from inventory_orders.publishing.publisher import Undeliverable
from inventory_orders.store.dynamodb import Store, call
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import KEYS, Table


def read_changes(event: object) -> list[Event | Undeliverable]:
    """Convert a batch of changes from a stream into events, in the same order.

    Raises:
        UnsupportedEventError: The Lambda event is not a batch of changes from a stream.
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        raise UnsupportedEventError(
            'this function takes batches of changes from the tables\' streams: {"Records": [{"dynamodb": ...}]}; see events/ '
            "for samples"
        )
    news: list[Event | Undeliverable] = []
    for record in records:
        try:
            news += _events_of(record)
        except UnpublishableError as error:
            event_id = str(record.get("eventID", "")) if isinstance(record, Mapping) else ""
            news.append(Undeliverable.of_record(_key(record), event_id, record, error))
    return news


_OF = {Table.ORDERS: order_events, Table.PRODUCTS: product_events}


def _events_of(record: object) -> tuple[Event, ...]:
    try:
        kind, change = record["eventName"], record["dynamodb"]  # type: ignore[index]
        # Only the event name shows that there was no row. If an image is missing otherwise, the change is unknown.
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
            f"the record is not a change to a row ({type(error).__name__}: {error})"
        ) from error
    return of(before, after)


def _key(record: object) -> str:
    """Read the row's key from an otherwise unreadable record, so that it stays in sequence with the row's events."""
    try:
        keys = record["dynamodb"]["Keys"]  # type: ignore[index]
        return " ".join(str(value["S"]) for value in keys.values())
    except (KeyError, TypeError, AttributeError):
        return ""


def unread_streams(store: Store, functions: Any, mappings: Sequence[str]) -> list[str]:
    """Report each table whose changes are not published. If AWS does not answer, this reports nothing.

    Args:
        store: The tables.
        functions: A client that calls Lambda.
        mappings: The UUIDs of the event source mappings that should read the streams.
    """
    try:
        found = [call(functions.get_event_source_mapping, UUID=uuid) for uuid in mappings]
        # docs.aws.amazon.com/lambda/latest/api/API_GetEventSourceMapping.html
        read = {
            each["EventSourceArn"]
            for each in found
            if each["State"] not in ("Disabled", "Disabling", "Deleting")
        }
        return [
            f"changes of {table} are not published: no enabled event source mapping reads its stream"
            for table in _OF
            if store.stream(table) not in read
        ]
    except (ThrottledError, OutcomeUnknownError):
        return []
    except StoreError as error:
        return [f"cannot check whether changes are published: {error}"]
