"""Publishes the current state of orders again from their rows, for a consumer that lost events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

from inventory_orders.clock import Deadline, SystemClock, timestamp
from inventory_orders.domain.events import Event, order_events
from inventory_orders.errors import UnpublishableError
from inventory_orders.publishing.publisher import (
    CLIENT_CONFIG,
    Bus,
    Publisher,
    PublishReport,
    Undeliverable,
)
from inventory_orders.store.rows import Row, decode
from inventory_orders.store.tables import Table

from .audit import read_orders
from .aws import Aws, scan
from .errors import UserError

_AT_ONCE = 100
_SECONDS = 60


@dataclass(slots=True)
class Republished:
    """The result of publishing orders again.

    Attributes:
        events: The number of published events.
        problems: Events that cannot be published, with the reasons.
    """

    events: int = 0
    problems: list[str] = field(default_factory=list)


def moment(text: str) -> str:
    """Convert a time in ISO 8601 to the format of rows. Without an offset, it is in UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(
            f"{text} is not a time; write it as 2026-11-21, 2026-11-21T09:30 or 2026-11-21T09:30:00+01:00"
        ) from None
    return timestamp(found if found.tzinfo else found.replace(tzinfo=UTC))


def rows_of(aws: Aws, order_ids: Iterable[str]) -> Iterator[Row]:
    """Read the rows of these orders."""
    wanted = dict.fromkeys(order_ids)
    rows = read_orders(aws, wanted)
    missing = [order_id for order_id in wanted if order_id not in rows]
    if missing:
        raise UserError(f"there is no order {missing[0]}; nothing was published")
    yield from rows.values()


def rows_since(aws: Aws, since: str) -> Iterator[Row]:
    """Read the rows that have changed since a time. This reads the whole table."""
    changed = {
        "FilterExpression": "#lastUpdatedAt >= :since",
        "ExpressionAttributeNames": {"#lastUpdatedAt": "lastUpdatedAt"},
        "ExpressionAttributeValues": {":since": {"S": since}},
    }
    return map(decode, scan(aws, Table.ORDERS, **changed))


def republish(
    aws: Aws, rows: Iterable[Row], *, send: bool, on_progress: Callable[[int], None]
) -> Republished:
    """Publish the current state of orders: for each row, its status, a late payment and each return, with the row's version.

    Args:
        aws: The stack.
        rows: The orders.
        send: Whether to publish; otherwise the events are only counted.
        on_progress: Called with the number of rows done.

    Raises:
        UserError: The bus refuses events.
    """
    result, clock = Republished(), SystemClock()
    bus = Bus(aws.session.client("events", config=CLIENT_CONFIG), aws.outputs["EventBusName"])

    def report(undeliverable: Undeliverable) -> bool:
        result.problems.append(f"{undeliverable.id}: {undeliverable.message}")
        return True

    publisher = Publisher(bus, report, clock)
    remaining, done = iter(rows), 0
    while batch := list(islice(remaining, _AT_ONCE)):
        news = [event for row in batch for event in _news(row)]
        if send:
            published = publisher.publish(news, Deadline.after(_SECONDS, clock))
            result.events += len(published.published)
            if published.left:
                raise _refused(published, result.events)
        else:
            for each in news:
                if isinstance(each, Undeliverable):
                    report(each)
                else:
                    result.events += 1
        done += len(batch)
        on_progress(done)
    return result


def _refused(published: PublishReport, events: int) -> UserError:
    why = published.refusals[-1] if published.refusals else None
    return UserError(
        f"the event bus refused events ({why.message or why.code if why else 'no answer'}); {events:,} "
        "were published. Run the same command again: consumers drop events that they have already seen"
    )


def _news(row: Row) -> tuple[Event | Undeliverable, ...]:
    try:
        return order_events(None, row)
    except UnpublishableError as error:
        order_id = str(row["orderId"])
        return (Undeliverable.of_record(order_id, order_id, row, error),)
