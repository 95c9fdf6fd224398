"""Checks that changes of the tables reach the function that publishes them; the only code that talks to Lambda."""

from __future__ import annotations

from collections.abc import Sequence

from inventory_orders.errors import OutcomeUnknownError, StoreError, ThrottledError
from inventory_orders.invocation import runtime
from inventory_orders.store.dynamodb import CLIENT_CONFIG, Store, call
from inventory_orders.store.rows import Table

# docs.aws.amazon.com/lambda/latest/api/API_GetEventSourceMapping.html
_STANDS_STILL = {"Disabled", "Disabling", "Deleting"}


def unread_streams(store: Store, mappings: Sequence[str]) -> list[str]:
    """List the tables whose changes are not published; none while AWS does not answer.

    Args:
        store: Where the tables are.
        mappings: UUIDs of the event source mappings that should read their streams; none where nothing is published.
    """
    if not mappings:
        return []
    try:
        found = [
            call(runtime.client("lambda", CLIENT_CONFIG).get_event_source_mapping, UUID=uuid)
            for uuid in mappings
        ]
        read = {each["EventSourceArn"] for each in found if each["State"] not in _STANDS_STILL}
        return [
            f"changes of {table} are not published: no enabled event source mapping reads its stream"
            for table in (Table.ORDERS, Table.PRODUCTS)
            if store.stream(table) not in read
        ]
    except (ThrottledError, OutcomeUnknownError):
        return []
    except StoreError as error:
        return [f"it cannot be told whether changes are published: {error}"]
