"""Where the products of a batch are sold from: the interface between the engine and sources that are faster than rows."""

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
    """Finds the units that a batch sells, by default in the rows of its products.

    The engine calls `begin` once for a batch, then in each round `find`, `learn` for each transaction that it sent, and
    `end_round`. Other sources override what they do differently.
    """

    def begin(self, batch: Batch) -> None:
        """Prepare for a batch."""

    def find(self, batch: Batch, commit: Commit) -> Supply | None:  # noqa: ARG002
        """Find the units of all pending changes.

        Args:
            batch: The pending changes and the known rows. Reads are noted there.
            commit: Commits moves that have to be durable before the units can be sold.

        Returns:
            The supply, with moves that are not written yet; None if the round was lost to a concurrent writer.

        Raises:
            StoreError: DynamoDB failed, or waiting for the units took too long.
        """
        batch.read_unknown(batch.wanted)
        known = (p for p in batch.pending.product_ids if p in batch.rows)
        return Supply(Allocation({p: batch.rows[p] for p in known}))

    def fetches(self, batch: Batch, missing: Collection[str]) -> bool:  # noqa: ARG002
        """Note missing units. Returns whether the next `find` will fetch them; if not, they arrive without a fetch."""
        return False

    def learn(self, batch: Batch, attempt: Attempt) -> None:
        """Note a transaction that was applied or failed."""

    def end_round(self, batch: Batch) -> None:
        """Release what was held for the round."""


class UncontestedRows(Source):
    """The rows of products without recent concurrent writers, for a caller that makes a single attempt."""

    def begin(self, batch: Batch) -> None:
        """Read everything upfront, because a stale copy would cost the only attempt."""
        batch.avoid_contested()
        if batch.pending:
            batch.read([*batch.pending.product_ids, *batch.pending.by_key])
