"""The consequences of what was sent: what is durable is taken over, and what failed changes the next plan.

`answers.py` says what a failure means, without acting on it. Here is what the batch does about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from inventory_orders.clock import Deadline
from inventory_orders.domain.allotments import DEPOT
from inventory_orders.domain.change import Change
from inventory_orders.domain.planner import Limits, Transaction
from inventory_orders.engine.answers import Failure, FailureKind, classify
from inventory_orders.engine.chains import ChainProgress
from inventory_orders.engine.claims import Claims
from inventory_orders.engine.lanes import Lanes
from inventory_orders.engine.outcomes import ChangeOutcome, ChangeStatus
from inventory_orders.engine.pending import PendingChanges
from inventory_orders.engine.product_cache import ProductCache
from inventory_orders.engine.read_set import ReadSet
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.stats import CommitStats


class Consequences:
    """What a batch learns from the answers to its transactions.

    Args:
        client: Knows time, chance and rivals.
        cache: The products as this process left them.
        lanes: What this process knows of lanes; None if it uses none.
        claims: The claims of the batch.
        pending: The changes that have no outcome yet.
        known: The products as the batch knows them.
        limits: What one transaction may hold.
        deadline: No wait ends after it.
        stats: Where the waits are noted.

    Attributes:
        limits: What one transaction of the next plan may hold.
    """

    def __init__(
        self,
        client: RetryingClient,
        cache: ProductCache,
        lanes: Lanes | None,
        claims: Claims,
        pending: PendingChanges,
        known: ReadSet,
        limits: Limits,
        deadline: Deadline,
        stats: CommitStats,
    ) -> None:
        self.limits = limits
        self._client = client
        self._cache = cache
        self._lanes = lanes
        self._claims = claims
        self._pending = pending
        self._known = known
        self._deadline = deadline
        self._stats = stats
        self._losses = 0
        self._throttled: set[str] = set()
        self._lost_on: set[str] = set()

    @property
    def throttled(self) -> Set[str]:
        """Products whose writes were throttled: they are set aside until all others are through."""
        return self._throttled

    @property
    def lost_on(self) -> Set[str]:
        """Products whose rows were in a transaction that was not applied."""
        return self._lost_on

    def retry_throttled(self) -> None:
        """Put what was set aside into the next plan."""
        self._throttled.clear()

    # ------------------------------------------------------------------ learning

    def learn(self, results: Iterable[ChainProgress]) -> bool:
        """Take over what was committed, and act on what was not. Returns whether something lost against rivals."""
        # First what is durable: an error of one chain must not be taken for the end of another's changes.
        attempts = [attempt for result in results for attempt in result.attempts]
        for attempt in attempts:
            if attempt.error is None:
                self._take_over(attempt.transaction, attempt.at)
        lost = [
            self._act_on(attempt.transaction, classify(attempt.transaction, attempt.error))
            for attempt in attempts
            if attempt.error is not None
        ]
        return any(lost)

    def _take_over(self, committed: Transaction, at: str) -> None:
        """Take over what was committed."""
        after, as_sold = committed.after, committed.as_sold
        self._known.take_over_commit(after)
        for product_id, product in after.items():
            self._cache.observe_write(product)
            if self._lanes is not None:
                self._lanes.observe_row(product_id, product)
        if self._lanes is not None:
            self._lanes.observe_commit(committed.pages)
        for decision in committed.decisions:
            change = decision.change
            if decision.rejection is not None:
                outcome = ChangeOutcome(
                    ChangeStatus.REJECTED,
                    decision.rejection,
                    is_written_rejection=decision.has_record,
                )
            else:
                changed = {product_id: as_sold[product_id] for product_id in decision.touched}
                outcome = ChangeOutcome(ChangeStatus.APPLIED, applied=change, after=changed, at=at)
                if self._lanes is not None:
                    own = (p.page is not None and p.page.lane != DEPOT for p in changed.values())
                    self._stats.from_lanes.append(all(own))
            self._pending.settle(change, outcome)

    def _act_on(self, failed: Transaction, failure: Failure) -> bool:
        """Draw the consequences of a failure. Returns whether it lost against rivals, and so should wait."""
        changes = [decision.change for decision in failed.decisions]
        for product_id in failed.after:
            self._cache.forget(product_id)
        self._lost_on |= failed.after.keys()
        if self._lanes is not None and failed.pages:
            # Another has written a page, or it is not known whether this transaction has.
            self._lanes.forget()
        for product_id, found in failure.found_products:
            self._known.observe(product_id, found)
        for product_id in failure.rivals:
            self._client.contention.observe_conflict(product_id)
        for product_id, why in failure.refused:
            self._known.refuse(product_id, why)
        self._throttled.update(failure.throttled)
        if failure.rivals and self._claims.held and self._losses > 1:
            # The first one may have been in flight before the claim; another one is not kept out by it.
            most_wanted = self._client.contention.most_wanted(failure.rivals)
            self._claims.claim_too(most_wanted)
        replaced = [
            self._pending.recognise(change, record) for change, record in failure.found_records
        ]
        undecided = self._pending.still_pending(changes)
        if failure.kind is FailureKind.EXHAUSTED:
            self._pending.give_up(undecided, failure.code, str(failure.error))
            return False
        if failure.kind is FailureKind.UNAVAILABLE:
            self._pending.fail(failure.error)
            return False
        for change in undecided:
            self._pending.count_retries(change, 1)
        if failure.kind is FailureKind.INVALID:
            self._isolate(undecided, failure.code, str(failure.error))
        return failure.contended or any(replaced)

    def _isolate(self, changes: Sequence[Change], code: str, detail: str) -> None:
        """Halve the transactions until the offending change stands alone."""
        if len(changes) == 1:
            invalid = ChangeOutcome(ChangeStatus.INVALID, cause=code, detail=detail)
            self._pending.settle(changes[0], invalid)
        elif changes:
            self.limits = replace(self.limits, changes=(len(changes) + 1) // 2)

    # ------------------------------------------------------------------ after a loss

    def count_loss(self) -> None:
        """A round came to nothing for some changes. Those that have lost too often are given up."""
        self._losses += 1
        self._pending.return_out_of_attempts(self._client.policy.max_attempts)

    def back_off(self) -> None:
        """Wait before the next round, the longer the more were lost. Without time for it, all that is left is returned."""
        if not self._pending:
            return
        delay = self._client.policy.backoff(self._losses)
        if self._client.pause(delay, self._deadline):
            self._stats.backoffs.append(delay)
        else:
            self._pending.give_up_all("CONTENTION", "no time left for another attempt")
