"""Sends one request, and again as long as nothing speaks against this very request."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from inventory_orders.clock import Clock, Deadline
from inventory_orders.errors import (
    OutcomeUnknownError,
    StoreError,
    ThrottledError,
    TransactionCancelledError,
)
from inventory_orders.model import Product
from inventory_orders.retry import RetryPolicy
from inventory_orders.store import Store

T = TypeVar("T")

CONDITION_FAILED = "ConditionalCheckFailed"
RIVAL = "TransactionConflict"
TRANSIENT = frozenset({"None", RIVAL, "ThrottlingError", "ProvisionedThroughputExceeded"})
"""Codes of cancellation after which the same request may succeed."""


@dataclass(slots=True)
class Effort:
    """What it took, for the metrics. Times are in seconds.

    Attributes:
        version_conflicts: One for each attempt to commit: whether a version had moved.
        transaction_conflicts: One for each attempt: whether a rival's transaction was in flight.
        backoffs: One for each wait before a retry.
        commit_latencies: One for each committed transaction: how long its last request took.
        changes_per_transaction: One for each committed transaction.
        claims: Claims that were taken.
        claims_refused: Requests for one that were refused, because a rival had it or was at work.
        lease_wait: Time spent waiting for the leases and claims of others.
        low_stock: Products that ceased to be `ACTIVE` because of their stock.
    """

    version_conflicts: list[bool] = field(default_factory=list)
    transaction_conflicts: list[bool] = field(default_factory=list)
    backoffs: list[float] = field(default_factory=list)
    commit_latencies: list[float] = field(default_factory=list)
    changes_per_transaction: list[int] = field(default_factory=list)
    claims: int = 0
    claims_refused: int = 0
    lease_wait: float = 0.0
    low_stock: list[Product] = field(default_factory=list)

    def add(self, other: Effort) -> None:
        """Add what another part of the work took."""
        self.version_conflicts += other.version_conflicts
        self.transaction_conflicts += other.transaction_conflicts
        self.backoffs += other.backoffs
        self.commit_latencies += other.commit_latencies
        self.changes_per_transaction += other.changes_per_transaction
        self.claims += other.claims
        self.claims_refused += other.claims_refused
        self.lease_wait += other.lease_wait
        self.low_stock += other.low_stock


class Writer:
    """Sends requests, by three rules.

    - While the outcome of a request is unknown, the same request is repeated with the same token: DynamoDB then
      recognises an attempt that arrived after all, and does not take it for a rival's.
    - `TransactionConflict` and throttling are waited out with full jitter.
    - Every wait is bounded by the number of attempts and by the deadline.

    Args:
        store: Where the tables are.
        policy: How to wait between attempts.
        clock: Source of time.
    """

    def __init__(self, store: Store, policy: RetryPolicy, clock: Clock) -> None:
        self.store = store
        self.policy = policy
        self.clock = clock

    def write(
        self,
        actions: Sequence[Any],
        updates: int,
        deadline: Deadline,
        effort: Effort,
        *,
        claimable: Collection[int] = (),
    ) -> tuple[StoreError | None, int]:
        """Send a transaction until it is applied or refused.

        Args:
            actions: Of the transaction.
            updates: How many of them, from the first on, are conditioned on a product's version.
            deadline: No request begins after it.
            effort: Where to note what it took.
            claimable: Indexes of actions for which there is a better answer to `TransactionConflict` than to
                repeat the whole transaction.

        Returns:
            Why it was not applied, or None; and how often it was repeated.
        """
        token, unknown, failures = uuid.uuid4().hex, False, 0
        while True:
            if deadline.remaining() <= 0:
                return ThrottledError("OUT_OF_TIME", "no time was left to commit"), failures
            moved = rival = False
            started = self.clock.monotonic()
            try:
                self.store.write(actions, token)
                effort.commit_latencies.append(self.clock.monotonic() - started)
                return None, failures
            except TransactionCancelledError as cancelled:
                codes = {reason.code for reason in cancelled.reasons}
                moved = any(r.code == CONDITION_FAILED for r in cancelled.reasons[:updates])
                rival = RIVAL in codes
                if not codes <= TRANSIENT:
                    return cancelled, failures
                met = (i for i, r in enumerate(cancelled.reasons) if r.code == RIVAL)
                if not unknown and any(index in claimable for index in met):
                    return cancelled, failures
                error: StoreError = cancelled
                # An earlier attempt that may still be in flight is recognised by its token only.
                token = token if unknown else uuid.uuid4().hex
            except (ThrottledError, OutcomeUnknownError) as failure:
                error = failure
                unknown = unknown or isinstance(failure, OutcomeUnknownError)
            except StoreError as failure:
                return failure, failures
            finally:
                effort.version_conflicts.append(moved)
                effort.transaction_conflicts.append(rival)
            delay = self.policy.backoff(failures + 1)
            if failures + 1 >= self.policy.max_attempts or not self.pause(delay, deadline):
                return error, failures
            failures += 1
            effort.backoffs.append(delay)

    def update(
        self,
        attempt: Callable[[], dict[str, Any]],
        deadline: Deadline,
        effort: Effort,
    ) -> dict[str, Any]:
        """Make one conditional update until it is applied or refused.

        It carries no token: the caller recognises an earlier attempt of its own whose response was lost.

        Args:
            attempt: Sends it; called again after a throttle or a lost response.
            deadline: No request begins after it.
            effort: Where to note what it took.

        Raises:
            ConditionFailedError: The condition does not hold.
            StoreError: DynamoDB failed.
        """
        failures = 0
        while True:
            if deadline.remaining() <= 0:
                raise ThrottledError("OUT_OF_TIME", "no time was left to write")
            started, rival = self.clock.monotonic(), False
            try:
                state = attempt()
                effort.commit_latencies.append(self.clock.monotonic() - started)
                return state
            except (ThrottledError, OutcomeUnknownError) as error:
                rival = error.code == "TransactionConflictException"
                failures += 1
                delay = self.policy.backoff(failures)
                if failures >= self.policy.max_attempts or not self.pause(delay, deadline):
                    raise
                effort.backoffs.append(delay)
            finally:
                effort.version_conflicts.append(False)
                effort.transaction_conflicts.append(rival)

    def read(self, attempt: Callable[[], T], deadline: Deadline) -> T:
        """Read until there is an answer.

        Args:
            attempt: Sends the request; called again after a throttle or a lost response.
            deadline: No request but the first begins after it.

        Raises:
            StoreError: DynamoDB failed.
        """
        failures = 0
        while True:
            try:
                return attempt()
            except (ThrottledError, OutcomeUnknownError):
                failures += 1
                delay = self.policy.backoff(failures)
                if failures >= self.policy.max_attempts or not self.pause(delay, deadline):
                    raise

    def pause(self, seconds: float, deadline: Deadline) -> bool:
        """Wait, unless that would reach the deadline: then return False at once."""
        if seconds >= deadline.remaining():
            return False
        self.clock.sleep(seconds)
        return True
