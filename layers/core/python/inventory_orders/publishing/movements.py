"""Records the movements of units that the stream of orders shows, so that lists by product and by reference need no scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.engine.retrying_client import RetryingClient, SweepReport
from inventory_orders.errors import ThrottledError, UnpublishableError
from inventory_orders.publishing.publisher import Undeliverable
from inventory_orders.publishing.streams import rows_in, undeliverable, unread_streams
from inventory_orders.store import movements
from inventory_orders.store.dynamodb import Store, call
from inventory_orders.store.rows import Row
from inventory_orders.store.tables import Table


@dataclass(slots=True)
class Recorded:
    """What became of a batch of changes to orders.

    Attributes:
        rows: How many rows were written or deleted.
        unreadable: The changes from which no movements can be derived. They are parked.
        left: How many unreadable changes could not be parked.
    """

    rows: int = 0
    unreadable: list[Undeliverable] = field(default_factory=list)
    left: int = 0


class Recorder:
    """Records movements. It remembers which months are already in the lists of their products.

    Args:
        client: Writes the table.
    """

    def __init__(self, client: RetryingClient) -> None:
        self._client = client
        self._listed = set[tuple[str, str]]()

    def record(
        self, records: Sequence[Any], park: Callable[[Undeliverable], bool], deadline: Deadline
    ) -> Recorded:
        """Record the movements of a batch of changes.

        Args:
            records: The records of the stream of orders, in order.
            park: Stores an unreadable change. Returns whether it succeeded.
            deadline: When to stop.

        Raises:
            StoreError: DynamoDB failed, or time ran out. The batch has to be repeated as a whole.
        """
        self._note_if_late(records, deadline)
        report, rows = Recorded(), dict[movements.Key, Row | None]()
        for record in records:
            try:
                _, before, after = rows_in(record)
                rows |= movements.changed_rows(before, after)
            except UnpublishableError as error:
                report.unreadable.append(undeliverable(record, error))
        self.write(rows, deadline)
        report.rows = len(rows)
        report.left = sum(not park(each) for each in report.unreadable)
        return report

    def write(self, rows: movements.Rows, deadline: Deadline) -> None:
        """Write and delete rows. The list of their months is written first, so that readers find each row.

        Raises:
            StoreError: DynamoDB failed, or time ran out.
        """
        store, call = self._client.store, self._client.call
        for key, months in movements.months_of(rows).items():
            new = {month for month in months if (key, month) not in self._listed}
            if new:
                call(partial(movements.add_months, store, key, new), deadline)
                self._listed |= {(key, month) for month in new}
        keys = list(rows)
        portions = [keys[at : at + movements.BATCH] for at in range(0, len(keys), movements.BATCH)]
        self._client.side_by_side(
            lambda portion: self._write({key: rows[key] for key in portion}, deadline), portions
        )

    def _write(self, rows: movements.Rows, deadline: Deadline) -> None:
        left = rows

        def send() -> None:
            nonlocal left
            left = movements.write_rows(self._client.store, left)
            if left:
                raise ThrottledError("UNPROCESSED_KEYS", "DynamoDB left movements unprocessed")

        self._client.call(send, deadline)

    def _note_if_late(self, records: Sequence[Any], deadline: Deadline) -> None:
        """Note if the oldest of these changes has been waiting, so that no reader takes the table for complete."""
        try:
            seconds = float(records[0]["dynamodb"]["ApproximateCreationDateTime"])
        except (LookupError, TypeError, ValueError):
            return
        changed_at, now = datetime.fromtimestamp(seconds, UTC), self._client.clock.now()
        if (now - changed_at).total_seconds() > movements.LATE_SECONDS:
            note = partial(movements.note_late, self._client.store, changed_at, now)
            self._client.call(note, deadline)


def follow_movements(store: Store, functions: Any, mappings: Sequence[str]) -> SweepReport:
    """Note up to which time movements are complete, unless their stream is not read.

    Args:
        store: The tables.
        functions: A client that calls Lambda.
        mappings: The UUID of the event source mapping that should read the stream of orders; empty if none should.
    """
    report = SweepReport()
    unread = unread_streams(store, functions, mappings, "recorded", [Table.ORDERS])
    report.problems |= dict.fromkeys(unread)
    if mappings and not unread:
        with report.noting_errors():
            found = [call(functions.get_event_source_mapping, UUID=uuid) for uuid in mappings]
            if all(map(_is_recording, found)):
                movements.advance(store, SystemClock().now())
    return report


def _is_recording(mapping: Mapping[str, Any]) -> bool:
    """Whether Lambda calls the function successfully. If it cannot, no attempt notes that changes are waiting.

    docs.aws.amazon.com/lambda/latest/api/API_GetEventSourceMapping.html
    """
    last = mapping.get("LastProcessingResult", "")
    return mapping["State"] == "Enabled" and not last.startswith("PROBLEM")
