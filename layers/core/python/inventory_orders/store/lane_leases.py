"""Takes, extends, reads and releases the leases of lanes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal

from inventory_orders.domain.allotments import LaneLease, Needs
from inventory_orders.store.cancellations import ConditionFailedError
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.rows import key_item, read_lease
from inventory_orders.store.tables import Table
from inventory_orders.store.writes import NO_LIVE_LEASE, OWNED, Write, end_lane_lease, unix


def lease_lane(store: Store, wanted: LaneLease, now: datetime, dead_owner: str = "") -> LaneLease:
    """Take the lease of a lane, or extend it. The request is safe to repeat.

    Args:
        store: The tables.
        wanted: The lease to write. Its `wait` shows other processes how long the owner has waited.
        now: The current time.
        dead_owner: An owner whose lease is over, even if this clock says otherwise.

    Returns:
        The lease that the lane has now: the wanted one, or the live lease of another owner.
    """
    readable = "attribute_type(#lockTime, :number) AND attribute_type(#lockedBy, :text)"
    write = Write(
        "SET #lockedBy = :owner, #lockTime = :until, #lockWait = :wait",
        f"({NO_LIVE_LEASE} OR {OWNED} OR #lockedBy = :dead OR NOT ({readable}))",
        {
            "owner": wanted.owner,
            "dead": dead_owner,
            "number": "N",
            "text": "S",
            "until": Decimal(f"{wanted.ends_at:.6f}"),
            "wait": Decimal(f"{wanted.wait:.3f}"),
            "now": unix(now),
        },
    )
    try:
        store.update(
            Table.ALLOTMENTS,
            key_item(wanted.lane),
            write,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    except ConditionFailedError as failed:
        if failed.item is not None:
            return read_lease(failed.item)
        raise
    return wanted


def publish_needs(store: Store, lane: int, owner: str, needs: Needs) -> None:
    """Write what the owner of a lane waits for.

    Raises:
        ConditionFailedError: It has lost its lease.
    """
    write = Write("SET #needs = :needs", OWNED, {"owner": owner, "needs": asdict(needs)})
    store.update(Table.ALLOTMENTS, key_item(lane), write)


def release_lane(store: Store, lease: LaneLease) -> None:
    """Release the lease of a lane, if its owner still has it. The request is safe to repeat."""
    with suppress(ConditionFailedError):
        store.update(Table.ALLOTMENTS, key_item(lease.lane), end_lane_lease(lease.owner))


def read_lane_leases(store: Store, lanes: Sequence[int]) -> list[LaneLease]:
    """Read the latest leases of at most `READ_LIMIT` lanes. They are a hint, because the read is eventually consistent."""
    keys = [key_item(lane) for lane in lanes]
    return [read_lease(item) for item in store.read_items(Table.ALLOTMENTS, keys)]
