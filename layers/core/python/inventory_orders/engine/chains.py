"""Commits the chains of a plan: side by side, each step by step, up to the first that fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.planner import Chain, Transaction
from inventory_orders.domain.product import ProductStatus
from inventory_orders.engine.claims import Claims
from inventory_orders.engine.pending import PendingChanges
from inventory_orders.engine.reader import side_by_side
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import StoreError
from inventory_orders.store.actions import TransactionCancelledError
from inventory_orders.store.dynamodb import ClaimUse


def touched(chain: Chain) -> set[str]:
    """The products whose rows a chain writes."""
    return {
        product_id for step in chain for transaction in step for product_id in transaction.after
    }


@dataclass(slots=True)
class Attempt:
    """A transaction that was sent, and what came of it.

    Attributes:
        transaction: What was sent.
        claims: Under which claims.
        at: When, as its records say; empty before.
        error: Why it was not applied; None if it was.
        stats: What it took.
    """

    transaction: Transaction
    claims: Mapping[str, ClaimUse]
    at: str = ""
    error: StoreError | None = None
    stats: CommitStats = field(default_factory=CommitStats)


@dataclass(slots=True)
class ChainProgress:
    """How far a chain of transactions came.

    Attributes:
        chain: The chain.
        claimed: Those of its products that are claimed.
        steps: Steps that were sent.
        attempts: Their transactions.
    """

    chain: Chain
    claimed: set[str]
    steps: int = 0
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether one of the transactions was not applied."""
        return any(attempt.error is not None for attempt in self.attempts)

    @property
    def complete(self) -> bool:
        """Whether all of it is durable."""
        return self.steps == len(self.chain) and not self.failed


class ChainRunner:
    """Sends the transactions of a batch. What comes of them is for others to judge.

    Args:
        client: Sends the requests.
        executor: Sends them side by side.
        claims: The claims of the batch. The last write of a chain releases them.
        pending: The changes that have no outcome yet.
        deadline: No request begins after it.
        stats: What it takes is added here.
    """

    def __init__(
        self,
        client: RetryingClient,
        executor: Executor | None,
        claims: Claims,
        pending: PendingChanges,
        deadline: Deadline,
        stats: CommitStats,
    ) -> None:
        self._client = client
        self._executor = executor
        self._claims = claims
        self._pending = pending
        self._deadline = deadline
        self._stats = stats

    def run(self, chains: Iterable[Chain]) -> list[ChainProgress]:
        """Commit chains. Returns how far each of them came."""
        results = [
            ChainProgress(chain, touched(chain) & self._claims.held.keys()) for chain in chains
        ]
        while going_on := [result for result in results if self._goes_on(result)]:
            steps = [self._next_step(result) for result in going_on]
            side_by_side(
                self._executor, self._commit, [attempt for step in steps for attempt in step]
            )
            for result, step in zip(going_on, steps, strict=True):
                result.steps += 1
                result.attempts += step
                for attempt in step:
                    self._count(attempt)
        return results

    def _goes_on(self, result: ChainProgress) -> bool:
        if result.failed or result.complete:
            return False
        return result.steps == 0 or not self._claims.about_to_end(result.claimed)

    def _next_step(self, result: ChainProgress) -> list[Attempt]:
        """The next transactions of a chain. The last one, if it can, releases all claims in the same write."""
        step = result.chain[result.steps]
        last = result.steps + 1 == len(result.chain) and len(step) == 1
        release = last and result.claimed <= step[0].after.keys()
        attempts = []
        for transaction in step:
            uses = (
                (product_id, self._claims.use(product_id, release=release))
                for product_id in transaction.after
            )
            claims = {product_id: use for product_id, use in uses if use is not None}
            attempts.append(Attempt(transaction, claims))
        return attempts

    def _commit(self, attempt: Attempt) -> None:
        """Send a transaction. Runs beside others, so it changes nothing but the attempt."""
        client, transaction, stats = self._client, attempt.transaction, attempt.stats
        now = client.clock.now()
        attempt.at = timestamp(now)
        actions = client.store.transaction_actions(transaction, now, attempt.claims)
        if not actions:
            return
        try:
            client.write(
                actions,
                self._deadline,
                stats,
                claimable=transaction.after.keys() - attempt.claims.keys(),
                apart=len(transaction.updates) > 1 or not self._pending.is_about_one_product,
            )
        except StoreError as error:
            attempt.error = error
            return
        if transaction.decisions:
            stats.changes_per_transaction.append(len(transaction.decisions))
        stats.low_stock += [
            update.after
            for update in transaction.updates
            if update.before.status is ProductStatus.ACTIVE
            and update.after.status is not ProductStatus.ACTIVE
        ]

    def _count(self, attempt: Attempt) -> None:
        """Add up what an attempt took, and note the claims that it released."""
        self._stats.add(attempt.stats)
        drawn = attempt.transaction.drawn
        if attempt.error is None:
            self._stats.draws_lost += [False] * len(drawn)
            self._stats.units_lent += sum(drawn.values())
        elif isinstance(attempt.error, TransactionCancelledError):
            self._stats.draws_lost += [True] * len(drawn)
        if repeated := len(attempt.stats.backoffs):
            for decision in attempt.transaction.decisions:
                self._pending.count_retries(decision.change, repeated)
        if attempt.error is None:
            for product_id, use in attempt.claims.items():
                if use.release:
                    self._claims.over(product_id)
