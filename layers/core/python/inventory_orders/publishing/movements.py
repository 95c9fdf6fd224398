"""Records the movements of units that the stream of orders shows, so that lists by product and by reference need no scan.

The sweep uses it to check that Lambda reads the streams, and up to which time movements are complete.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.engine.retrying_client import RetryingClient, SweepReport
from inventory_orders.errors import UnpublishableError
from inventory_orders.publishing.publisher import Undeliverable
from inventory_orders.publishing.streams import rows_in, undeliverable
from inventory_orders.store import movements
from inventory_orders.store.dynamodb import Store, call
from inventory_orders.store.rows import Row
from inventory_orders.store.tables import STREAMED, Table


class Recorder:
    """Records movements. It remembers which months are already in the lists of their products.

    Args:
        client: Writes the table.
    """

    def __init__(self, client: RetryingClient) -> None:
        self._client = client
        self._listed = set[movements.Key]()

    def record(self, records: Sequence[Any], deadline: Deadline) -> tuple[int, list[Undeliverable]]:
        """Record the movements of a batch of changes.

        Args:
            records: The records of the stream of orders, in order.
            deadline: When to stop.

        Returns:
            How many rows were written or deleted, and the changes from which no movements can be derived.

        Raises:
            StoreError: DynamoDB failed, or time ran out. The batch has to be repeated as a whole.
        """
        self._note_if_late(records, deadline, is_lost=False)
        rows, unreadable = dict[movements.Key, Row | None](), []
        for record in records:
            try:
                _, before, after = rows_in(record)
                rows |= movements.changed_rows(before, after)
            except UnpublishableError as error:
                unreadable.append(undeliverable(record, error))
        if unreadable:
            self._note_if_late(records, deadline, is_lost=True)
        self.write(rows, deadline)
        return len(rows), unreadable

    def write(self, rows: movements.Rows, deadline: Deadline) -> None:
        """Write and delete rows, and list their months.

        Raises:
            StoreError: DynamoDB failed, or time ran out.
        """
        months = movements.list_months(rows)
        work = [
            *((key, row) for key, row in months.items() if key not in self._listed),
            *rows.items(),
        ]
        portions = [
            dict(work[at : at + movements.BATCH]) for at in range(0, len(work), movements.BATCH)
        ]
        self._client.side_by_side(
            lambda portion: self._client.ask(movements.write_rows, deadline, portion), portions
        )
        self._listed |= months.keys()

    def _note_if_late(self, records: Sequence[Any], deadline: Deadline, *, is_lost: bool) -> None:
        """Note if a change is lost or the oldest one has been waiting, so that no reader takes the table for complete."""
        try:
            seconds = float(records[0]["dynamodb"]["ApproximateCreationDateTime"])
        except (LookupError, TypeError, ValueError):
            return
        changed_at, now = datetime.fromtimestamp(seconds, UTC), self._client.clock.now()
        if is_lost or (now - changed_at).total_seconds() > movements.LATE_SECONDS:
            self._client.ask(movements.note_late, deadline, changed_at, None if is_lost else now)


def unread_streams(
    store: Store,
    functions: Any,
    mappings: Sequence[str],
    what: str,
    tables: Collection[Table] = STREAMED,
) -> SweepReport:
    """Report each table whose changes are not read.

    Args:
        store: The tables.
        functions: A client that calls Lambda.
        mappings: The UUIDs of the event source mappings that should read the streams; empty if none should.
        what: What should happen to the changes, in words.
        tables: The tables whose streams they should read.
    """
    report = SweepReport()
    with report.noting_errors(f"cannot check whether changes are {what}: "):
        found = [call(functions.get_event_source_mapping, UUID=uuid) for uuid in mappings]
        # docs.aws.amazon.com/lambda/latest/api/API_GetEventSourceMapping.html
        read = {
            each["EventSourceArn"]
            for each in found
            if each["State"] not in ("Disabled", "Disabling", "Deleting")
        }
        report.problems |= {
            f"changes of {table} are not {what}: no enabled event source mapping reads its stream": None
            for table in (tables if mappings else ())
            if store.stream(table) not in read
        }
    return report


def follow_movements(store: Store, functions: Any, mappings: Sequence[str]) -> SweepReport:
    """Note up to which time movements are complete, unless their stream is not read.

    Args:
        store: The tables.
        functions: A client that calls Lambda.
        mappings: The UUID of the event source mapping that should read the stream of orders; empty if none should.
    """
    report = unread_streams(store, functions, mappings, "recorded", [Table.ORDERS])
    if mappings and not (report.problems or report.unfinished):
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
