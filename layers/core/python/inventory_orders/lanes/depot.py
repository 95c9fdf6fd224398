"""The depot between rows and lanes: its lease, and the line of visitors that wait for it.

Only the owner of the lease moves units between rows, depot and lanes. The lease only keeps processes out of each other's
way; versions and epochs keep the units safe.
"""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Callable

from inventory_orders.clock import Clock, Deadline
from inventory_orders.domain.allotments import DEPOT, LaneLease
from inventory_orders.engine.memory import Recent
from inventory_orders.engine.retrying_client import CommitStats, RetryingClient
from inventory_orders.errors import OutcomeUnknownError, StoreError, ThrottledError
from inventory_orders.store.lane_leases import lease_lane, release_lane

VISIT_SECONDS = 2.0
"""How long the depot's lease lasts if its owner dies: ten times the duration of a long visit."""

# Time until a process looks again whether another one's visit has ended, as a fraction of its duration so far. The longer a
# visit lasts, the more likely the visitor is dead.
_DOUBT = 0.1

# Average wait in seconds that is assumed at the first conflict: about one commit of a concurrent writer.
_FIRST_WAIT = 0.02

# Seconds after the last observation for which the average wait at the depot is valid.
_LINE_SECONDS = 5.0

# Requests for the lease per visit, from all waiting processes together. Between two visits the depot is idle until one asks.
_REQUESTS = 10.0

# Maximum age that counts, in average waits. Otherwise, messages that were delayed for another reason would starve others.
_AGE_CAP = 4.0

# The minimum average wait in seconds, and the weights of new observations above and below the average: the
# average rises quickly and falls slowly.
_MIN_WAIT = 0.005
_WEIGHT_ABOVE = 0.2
_WEIGHT_BELOW = 0.1

# Mean age of waiting processes, as a fraction of the average wait: E[w^2] / (2 E[w]^2) for the Rayleigh distribution.
_MEAN_AGE = 2 / math.pi


class DepotLine:
    """The processes that wait for the depot: estimates how long they wait, and decides when this one asks for the lease again.

    With equal chances at each release, a few processes would always wait several times the average. Here the rate at
    which a process asks grows with the time that it has waited, so that waits follow the Rayleigh distribution: the slowest
    of a hundred waits 2.4 times the average, not 4.6 times. The growth of the rate depends on the average wait, which all
    processes read from the same attribute: each lease records how long its owner waited (`lockWait`).

    Args:
        clock: Source of time.
        random: Source of numbers in [0, 1).

    Attributes:
        memory: How long an observation is valid, in seconds.
    """

    def __init__(self, clock: Clock, random: Callable[[], float]) -> None:
        self.memory = _LINE_SECONDS
        self._clock = clock
        self._random = random
        self._seen_at = -math.inf
        self._wait = 0.0

    def observe(self, wait: float) -> None:
        """Note that a process, perhaps this one, has waited `wait` seconds for the depot."""
        average = self.average_wait or _FIRST_WAIT
        weight = _WEIGHT_ABOVE if wait > average else _WEIGHT_BELOW
        self._wait, self._seen_at = average + weight * (wait - average), self._clock.monotonic()

    @property
    def average_wait(self) -> float:
        """Average wait in seconds; 0 if no process waited recently."""
        is_known = self._clock.monotonic() - self._seen_at <= self.memory
        return self._wait if is_known else 0.0

    @property
    def is_empty(self) -> bool:
        """Whether a visit would wait for less time than a concurrent writer's commit takes."""
        return self.average_wait < _FIRST_WAIT

    def next_delay(self, age: float) -> float:
        """Seconds until the next request for the depot.

        This is a Poisson process whose rate is c times the time waited. With n processes in line that wait W on average,
        there are n * c * _MEAN_AGE * W requests a second for n / W visits. So c = requests / (_MEAN_AGE * W^2).

        Args:
            age: Seconds since the depot was first wanted, including unsuccessful waits.
        """
        if not self.average_wait:
            return 0.0
        wait = max(self.average_wait, _MIN_WAIT)
        age = min(age, _AGE_CAP * wait)
        exponential = -math.log(1.0 - self._random())
        step = 2 * _MEAN_AGE * wait**2 * exponential / _REQUESTS
        return math.sqrt(age**2 + step) - age


class Depot:
    """One process's access to the depot.

    Attributes:
        client: The client for the tables.
        line: The line of waiting processes.
        lease: The lease, while this process holds it.
        combines: Whether this process's visits fill the lanes of others, and it asks others for that.
        drained: Which rows had no units left to lend. They are not read again for a while.
    """

    def __init__(self, client: RetryingClient) -> None:
        self.client = client
        self.line = DepotLine(client.clock, client.policy.random)
        self.lease: LaneLease | None = None
        self.combines = False
        self.drained = Recent(client.clock)

    def acquire(
        self,
        deadline: Deadline,
        stats: CommitStats,
        age: float = 0.0,
        is_over: Callable[[], bool] = lambda: False,
    ) -> LaneLease | None:
        """Wait for the lease of the depot, and take it.

        Args:
            age: Seconds for which the changes have already waited. The longer, the more often this process asks for the lease.
            is_over: Whether there is no longer a reason to wait. This is asked each time that another process has the lease.

        Returns:
            The lease; None if there was no longer a reason to wait.

        Raises:
            ThrottledError: No time was left to wait.
        """
        clock, owner = self.client.clock, f"visit-{uuid.uuid4().hex}"
        began, failures = clock.monotonic(), 0
        # The end of a dead visitor's lease is measured here, because a wrong wall clock could prolong it.
        first_seen, dead_owner = dict[LaneLease, float](), ""
        delay = self.line.next_delay(age)
        while self.client.pause(delay, deadline):
            waited, now = clock.monotonic() - began, clock.now()
            ends_at = now.timestamp() + VISIT_SECONDS
            try:
                lease = lease_lane(
                    self.client.store,
                    LaneLease(DEPOT, owner, ends_at, waited),
                    now,
                    dead_owner,
                )
            except (ThrottledError, OutcomeUnknownError) as error:
                stats.throttles.update(error.limits)
                # After a conflict, a transaction that releases the depot is in flight, so it will be free in a moment.
                is_conflict = error.code == "TransactionConflictException"
                failures += not is_conflict
                delay = self.client.policy.backoff(2 if is_conflict else failures)
                continue
            if lease.owner == owner:
                stats.measured["DepotWait"].append(waited * 1000)
                if waited or self.line.average_wait:
                    self.line.observe(waited)
                self.lease = lease
                return lease
            self.line.observe(lease.wait)
            seen_at = first_seen.setdefault(lease, clock.monotonic())
            watched = clock.monotonic() - seen_at
            dead_owner = lease.owner if watched > VISIT_SECONDS else dead_owner
            if is_over():
                return None
            lasted = max(VISIT_SECONDS - (lease.ends_at - now.timestamp()), watched)
            delay = max(self.line.next_delay(age + waited), lasted * _DOUBT)
            if failures:
                # So many wait that requests for the lease are throttled, and with them the transaction that releases it.
                delay = max(delay, self.client.policy.backoff(failures))
        stats.measured["DepotWait"].append((clock.monotonic() - began) * 1000)
        raise ThrottledError("CONTENTION", "no time was left to wait for the depot")

    def release(self, deadline: Deadline, stats: CommitStats) -> None:
        """Release the lease, unless a transaction already has. If that fails, the lease expires by itself."""
        lease, self.lease = self.lease, None
        if lease is not None:
            with contextlib.suppress(StoreError):
                self.client.call(
                    lambda: release_lane(self.client.store, lease), deadline, stats, attempts=8
                )
