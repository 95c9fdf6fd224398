"""The cost of writes, for the metrics."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from inventory_orders.domain.product import Product


@dataclass(slots=True)
class CommitStats:
    """The cost of writes: attempts, conflicts, waits. Times are in seconds.

    Attributes:
        version_conflicts: One for each attempt to commit: whether a version had moved.
        transaction_conflicts: One for each attempt: whether a rival's transaction was in flight.
        backoffs: One for each wait before a request was repeated, or a plan was made again.
        commit_latencies: One for each committed transaction: how long its last request took.
        changes_per_transaction: One for each committed transaction.
        lease_wait: Time spent waiting for the leases of others.
        low_stock: Products that ceased to be `ACTIVE` because of their stock.
        draws_lost: One for each row that the depot drew from: whether a rival had the transaction cancelled.
        units_lent: Units that the depot drew from rows.
        recalls: How often units were moved from lanes to the depot or to their rows, because they were needed there.
        depot_waits: One for each visit of the depot, and each that was given up: how long the line was.
        from_lanes: One for each placed order of a process that uses lanes: whether all of it came from its own.
    """

    version_conflicts: list[bool] = field(default_factory=list)
    transaction_conflicts: list[bool] = field(default_factory=list)
    backoffs: list[float] = field(default_factory=list)
    commit_latencies: list[float] = field(default_factory=list)
    changes_per_transaction: list[int] = field(default_factory=list)
    lease_wait: float = 0.0
    low_stock: list[Product] = field(default_factory=list)
    draws_lost: list[bool] = field(default_factory=list)
    units_lent: int = 0
    recalls: int = 0
    depot_waits: list[float] = field(default_factory=list)
    from_lanes: list[bool] = field(default_factory=list)

    def add(self, other: CommitStats) -> None:
        """Add the cost of another part of the work."""
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))
