"""Where the products of a batch are sold from: the seam between the engine and whatever sells faster than rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.planner import Chain, Supply

if TYPE_CHECKING:
    from inventory_orders.engine.batch import Batch
    from inventory_orders.engine.loop import Attempt

Commit = Callable[[Sequence[Chain]], bool]
"""Commits transactions that move units for a source. Returns whether all of them are durable."""


class Source:
    """Where a batch finds the units that it sells: in the rows of its products.

    The engine calls `begin` once for a batch, then in each round `find`, `learn` for each transaction that it sent, and
    `end_round`. Another source overrides what it does differently.
    """

    def begin(self, batch: Batch) -> None:
        """Prepare for a batch."""

    def find(self, batch: Batch, commit: Commit) -> Supply | None:  # noqa: ARG002
        """Find the units of all pending changes.

        Args:
            batch: What is wanted, and the rows as they are known. What is read is noted there.
            commit: Commits moves that have to be durable before the units can be sold.

        Returns:
            The supply, with moves that are still to be written; None if the round is lost to a concurrent writer.

        Raises:
            StoreError: DynamoDB failed, or the wait for the units was too long.
        """
        batch.read_unknown(batch.wanted)
        known = (p for p in batch.pending.product_ids if p in batch.rows)
        return Supply(Allocation({p: batch.rows[p] for p in known}))

    def fetches(self, batch: Batch, missing: Collection[str]) -> bool:  # noqa: ARG002
        """Take note of missing units. Returns whether the next `find` brings them; otherwise they arrive by themselves."""
        return False

    def learn(self, batch: Batch, attempt: Attempt) -> None:
        """Take note of a transaction that was applied or failed."""

    def end_round(self, batch: Batch) -> None:
        """Give up what is held for one round."""


class UncontestedRows(Source):
    """The rows of products that no concurrent writer was met on lately, for a caller that makes one attempt."""

    def begin(self, batch: Batch) -> None:
        """Read everything at once: a stale copy would cost the only attempt."""
        batch.avoid_contested()
        if batch.pending:
            batch.read([*batch.pending.product_ids, *batch.pending.by_key])
