"""The depot's lease: only its owner moves units between rows, depot and lanes; the others wait in line.

Versions and epochs keep the units safe. The lease only keeps visitors from losing against one another.
"""

from __future__ import annotations

import contextlib
import uuid

from inventory_orders.clock import Deadline
from inventory_orders.domain.allotments import DEPOT, LaneLease
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import OutcomeUnknownError, StoreError, ThrottledError

VISIT_SECONDS = 2.0
"""How long the depot's lease lasts when its owner dies: ten times what a long visit takes."""

# Time until the next look at a visit, as a part of its duration so far: the longer it lasts, the more likely its owner
# is dead.
_DOUBT = 0.1


def acquire_depot(
    client: RetryingClient,
    deadline: Deadline,
    stats: CommitStats,
    age: float = 0.0,
) -> LaneLease:
    """Wait in line for the depot, and take its lease.

    Args:
        client: Sends the requests.
        deadline: When to give up.
        stats: Where to note what it took.
        age: Seconds for which the changes have waited before; the longer, the more often this asks.

    Raises:
        ThrottledError: No time was left to wait.
        StoreError: DynamoDB failed.
    """
    clock, line, owner = client.clock, client.line, f"visit-{uuid.uuid4().hex}"
    began, dead, failures = clock.monotonic(), "", 0
    seen: tuple[str, float, float] | None = None
    delay = line.next_delay(age)
    while client.pause(delay, deadline):
        waited, now = clock.monotonic() - began, clock.now()
        try:
            lease = client.store.lease_lane(
                DEPOT, owner, now, now.timestamp() + VISIT_SECONDS, waited, dead
            )
        except (ThrottledError, OutcomeUnknownError) as error:
            # A transaction that releases the depot is in flight: it will be free in a moment.
            failures = 2 if error.code == "TransactionConflictException" else failures + 1
            delay = client.policy.backoff(failures)
            continue
        if lease.owner == owner:
            stats.depot_waits.append(waited)
            if waited or line.average_wait:
                line.observe(waited)
            return lease
        line.observe(lease.wait)
        if seen is None or seen[:2] != (lease.owner, lease.ends_at):
            seen = lease.owner, lease.ends_at, clock.monotonic()
        watched = clock.monotonic() - seen[2]
        if watched > VISIT_SECONDS:
            # By the clock of its owner or of this process it would last for as long as that clock is wrong.
            dead = lease.owner
        lasted = max(VISIT_SECONDS - (lease.ends_at - now.timestamp()), watched)
        delay = max(line.next_delay(age + waited), lasted * _DOUBT)
    stats.depot_waits.append(clock.monotonic() - began)
    raise ThrottledError("CONTENTION", "no time was left to wait for the depot")


def release_depot(
    client: RetryingClient, lease: LaneLease, deadline: Deadline, stats: CommitStats
) -> None:
    """End the lease of the depot, unless a transaction has. A lease that cannot be released ends by itself."""
    with contextlib.suppress(StoreError):
        client.call(lambda: client.store.release_lane(lease), deadline, stats, attempts=3)
