"""Converts changes in the tables' streams into events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inventory_orders.domain.events import Event, order_events, product_events
from inventory_orders.errors import UnpublishableError, UnsupportedEventError
from inventory_orders.publishing.publisher import Undeliverable
from inventory_orders.store.rows import Row, decode
from inventory_orders.store.tables import KEYS, Table


def records_of(event: object) -> list[Any]:
    """List the records of a batch of changes.

    Raises:
        UnsupportedEventError: The Lambda event is not a batch of changes from a stream.
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        raise UnsupportedEventError(
            'this function takes batches of changes from the tables\' streams: {"Records": [{"dynamodb": ...}]}; see events/ '
            "for samples"
        )
    return records


def read_changes(event: object) -> list[Event | Undeliverable]:
    """Convert a batch of changes from a stream into events, in the same order.

    Raises:
        UnsupportedEventError: The Lambda event is not a batch of changes from a stream.
    """
    news: list[Event | Undeliverable] = []
    for record in records_of(event):
        try:
            table, before, after = rows_in(record)
            news += _OF[table](before, after)
        except UnpublishableError as error:
            news.append(undeliverable(record, error))
    return news


_OF = {Table.ORDERS: order_events, Table.PRODUCTS: product_events}


def rows_in(record: object) -> tuple[Table, Row | None, Row | None]:
    """Read the table of a changed row, and the row before and after the change; None if there was none.

    Raises:
        UnpublishableError: The record is not a change to a row of a streamed table.
    """
    try:
        kind, change = record["eventName"], record["dynamodb"]  # type: ignore[index]
        # Only the event name shows that there was no row. If an image is missing otherwise, the change is unknown.
        before = None if kind == "INSERT" else decode(change["OldImage"])
        after = None if kind == "REMOVE" else decode(change["NewImage"])
        (table,) = (table for table in _OF if tuple(change["Keys"]) == KEYS[table])
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
    return table, before, after


def is_of_products(record: object) -> bool:
    """Whether a record, even an otherwise unreadable one, is of the stream of products."""
    try:
        return tuple(record["dynamodb"]["Keys"]) == KEYS[Table.PRODUCTS]  # type: ignore[index]
    except (KeyError, TypeError):
        return False


def undeliverable(record: object, error: UnpublishableError) -> Undeliverable:
    """Describe a record that nothing can be derived from."""
    event_id = str(record.get("eventID", "")) if isinstance(record, Mapping) else ""
    return Undeliverable.of_record(_key(record), event_id, record, error)


def _key(record: object) -> str:
    """Read the row's key from an otherwise unreadable record, so that it stays in sequence with the row's events."""
    try:
        keys = record["dynamodb"]["Keys"]  # type: ignore[index]
        return " ".join(str(value["S"]) for value in keys.values())
    except (KeyError, TypeError, AttributeError):
        return ""
