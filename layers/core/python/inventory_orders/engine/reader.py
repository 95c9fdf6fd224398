"""Reads products, pages, and records, again and again until DynamoDB has answered for each key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from inventory_orders.clock import Deadline
from inventory_orders.domain.change import OrderKey, OrderRecord
from inventory_orders.domain.product import Product
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import ThrottledError, UnpublishableError
from inventory_orders.store.actions import existing
from inventory_orders.store.dynamodb import BATCH_GET_LIMIT, ListPosition, Snapshot
from inventory_orders.store.rows import Key

A = TypeVar("A")

# Requests for keys that DynamoDB leaves out: it reads 16 MB at a time, and a throttled product holds up the others.
_ANSWERS = 8


def read(
    client: RetryingClient,
    keys: Sequence[Key],
    deadline: Deadline,
    stats: CommitStats,
    *,
    consistent_records: bool = False,
) -> Snapshot:
    """Read products (by their ids), records and pages (by their keys), and again what was left out or failed.

    Args:
        client: Sends the requests.
        keys: What to read.
        deadline: No request begins after it.
        stats: What it takes is added here.
        consistent_records: Whether records are read with strong consistency, too.

    Returns:
        What was found; `unprocessed` is what DynamoDB left out of every answer.

    Raises:
        StoreError: A request failed.
    """
    if deadline.remaining() <= 0:
        raise ThrottledError("OUT_OF_TIME", "the invocation had no time left to read")

    def read_chunk(chunk: Sequence[Key]) -> Snapshot:
        found, missing, answers = Snapshot(), tuple(chunk), 0

        def request() -> None:
            nonlocal missing, answers
            try:
                answer = client.store.read(missing, consistent_records=consistent_records)
            except ThrottledError:
                # DynamoDB leaves keys out in this way, too, if all that are left are throttled.
                if not answers:
                    raise
            else:
                found.add(answer)
                missing = answer.unprocessed
            answers += 1
            if missing and answers < _ANSWERS:
                raise ThrottledError("UNPROCESSED_KEYS", "reads were left out")

        client.call(request, deadline, stats)
        return replace(found, unprocessed=missing)

    chunks = [
        keys[start : start + BATCH_GET_LIMIT] for start in range(0, len(keys), BATCH_GET_LIMIT)
    ]
    snapshots = client.side_by_side(read_chunk, chunks)
    snapshot = Snapshot(unprocessed=tuple(key for each in snapshots for key in each.unprocessed))
    for each in snapshots:
        snapshot.add(each)
    return snapshot


def read_all(
    client: RetryingClient,
    keys: Sequence[Key],
    deadline: Deadline,
    stats: CommitStats,
    *,
    consistent_records: bool = False,
) -> Snapshot:
    """Read as `read` does, for a caller that needs every answer.

    Raises:
        ThrottledError: DynamoDB left some of it out of every answer.
        StoreError: A request failed.
    """
    snapshot = read(client, keys, deadline, stats, consistent_records=consistent_records)
    if snapshot.unprocessed:
        raise ThrottledError("UNPROCESSED_KEYS", f"no read answered for {snapshot.unprocessed[0]}")
    return snapshot


def read_product(
    client: RetryingClient, product_id: str, deadline: Deadline, stats: CommitStats
) -> Product:
    """Read one product, strongly consistent.

    Raises:
        ProductNotFoundError: There is none.
        CorruptItemError: It breaks the table's contract.
        StoreError: DynamoDB failed.
    """
    found = client.call(lambda: client.store.get_product(product_id), deadline, stats)
    return existing(found, product_id)


def read_orders(
    client: RetryingClient,
    places: Sequence[ListPosition],
    deadline: Deadline,
    show: Callable[[OrderRecord], A],
) -> tuple[list[A], list[str]]:
    """Read the orders of a list, strongly consistent.

    Args:
        client: Sends the requests.
        places: Of the list.
        deadline: No request begins after it.
        show: What to make of an order. Raises UnpublishableError if its row does not allow it.

    Returns:
        What was made of the orders, and the ids of those that cannot be read.

    Raises:
        StoreError: DynamoDB failed, or left one out.
    """
    keys = [OrderKey(place.id) for place in places]
    found = read_all(client, keys, deadline, CommitStats(), consistent_records=True).records
    shown, unreadable = list[A](), list[str]()
    for key in keys:
        order = found.get(key)
        try:
            if isinstance(order, OrderRecord):
                shown.append(show(order))
            elif order is not None:
                unreadable.append(key.order_id)
        except UnpublishableError:
            unreadable.append(key.order_id)
    return shown, unreadable
