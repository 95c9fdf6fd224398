"""The engine: makes a plan durable, and plans again where a rival was faster.

A batch goes through it in rounds. Each plans what is pending (`pending.py`) on what is known of the products
(`read_set.py`), commits the chains of the plan (`chains.py`), and draws the consequences for the next one
(`consequences.py`). What takes units and gives none back is for the rounds by lane (`lane_rounds.py`), if this process
uses lanes; all else is for those by row (`row_rounds.py`).

The rules:

- Nothing is answered before it is durable. A rejection stands in or after the transaction that it depends on.
- A transaction that lost is planned again from what came back with its cancellation, without another read; what was
  committed before it stays committed.
- While the outcome of a request is unknown, the same request is repeated with the same token, before any new plan.
- A contested product is claimed before the next attempt on its row (`claims.py`).
- What is throttled waits until all others are through, and is tried without them.
- Every wait is bounded by the number of attempts and by the time that the invocation has left.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

from inventory_orders.clock import Clock, Deadline, SystemClock
from inventory_orders.domain.change import Change, RecordKey
from inventory_orders.domain.planner import Limits
from inventory_orders.engine.chains import ChainRunner
from inventory_orders.engine.claims import Claims
from inventory_orders.engine.consequences import Consequences
from inventory_orders.engine.lane_rounds import LaneRounds
from inventory_orders.engine.lanes import Lanes
from inventory_orders.engine.outcomes import ChangeOutcome, CommitReport, in_turns, joined, returned
from inventory_orders.engine.pending import PendingChanges
from inventory_orders.engine.product_cache import ProductCache
from inventory_orders.engine.read_set import ReadSet
from inventory_orders.engine.reader import RecentReplays
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.row_rounds import RowRounds
from inventory_orders.engine.stats import CommitStats
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.dynamodb import Store


class Committer:
    """Applies changes of stock: exactly once, all or nothing, without overselling.

    Args:
        store: Where the tables are.
        policy: How to wait between attempts.
        clock: Source of time.
        executor: Runs reads and transactions side by side; None runs them one after the other.
        limits: What one transaction may hold.
        lanes: How many lanes stock may be set aside in; 0: none.
        patient: Whether it waits where a rival is faster. If not, it makes one attempt of each request, and returns
            what would have to wait: it claims nothing, brings nothing home, and stays away from what is fought over.

    Attributes:
        client: Sends the requests.
        cache: The products as this process left them.
        replays: Whether replays were met lately.
        limits: What one transaction may hold.
        executor: As given.
        lanes: What this process knows of lanes; None if it uses none.
        patient: As given.
    """

    def __init__(
        self,
        store: Store,
        policy: RetryPolicy | None = None,
        clock: Clock | None = None,
        executor: Executor | None = None,
        limits: Limits | None = None,
        lanes: int = 0,
        *,
        patient: bool = True,
    ) -> None:
        policy = policy or RetryPolicy()
        if not patient:
            policy = replace(policy, max_attempts=1)
        self.client = RetryingClient(store, policy, clock or SystemClock())
        self.patient = patient
        self.cache = ProductCache(self.client.clock)
        self.replays = RecentReplays()
        self.limits = limits or Limits()
        self.executor = executor
        self.lanes = Lanes(self.client, lanes) if lanes else None

    def apply(
        self, changes: Sequence[Change], deadline: Deadline, age: float = 0.0
    ) -> CommitReport:
        """Apply each change once, or say why not.

        Args:
            changes: In the order in which they arrived. Of several with one record key the first counts.
            deadline: No request begins after it.
            age: Seconds for which the first of them has been waiting: what has waited longer comes first.

        Returns:
            What became of each. Whatever goes wrong with DynamoDB is in there too; it raises nothing.
        """
        turns = in_turns(changes)
        if len(turns) == 1:
            return self._apply(changes, deadline, age)
        outcomes: dict[int, ChangeOutcome] = {}
        reports: list[CommitReport] = []
        is_open: set[RecordKey] = set()
        for turn in turns:
            now = []
            for number in turn:
                change = changes[number]
                # A delivery must not be refused because the payment before it is to come again.
                if change.record_key in is_open and change.rejection({}) is not None:
                    outcomes[number] = returned("BEHIND_A_RETURNED_MESSAGE")
                else:
                    now.append(number)
            report = self._apply([changes[number] for number in now], deadline, age)
            reports.append(report)
            outcomes |= zip(now, report.outcomes, strict=True)
            is_open |= {changes[number].record_key for number in now if outcomes[number].is_open}
        return joined(outcomes, reports)

    def _apply(self, changes: Sequence[Change], deadline: Deadline, age: float) -> CommitReport:
        """Apply the changes of one turn: begin, then round after round until each has its outcome."""
        client, executor, stats = self.client, self.executor, CommitStats()
        pending = PendingChanges(changes, self.replays)
        claims = Claims(client, self.cache, deadline, stats, age)
        known = ReadSet(client, executor, self.cache, claims, pending, deadline, stats)
        chains = ChainRunner(client, executor, claims, pending, deadline, stats)
        consequences = Consequences(
            client, self.cache, self.lanes, claims, pending, known, self.limits, deadline, stats
        )
        by_row = RowRounds(
            client,
            executor,
            self.lanes,
            claims,
            pending,
            known,
            chains,
            consequences,
            deadline,
            stats,
            patient=self.patient,
        )
        by_lane = None
        if self.lanes is not None:
            by_lane = LaneRounds(
                client,
                executor,
                self.lanes,
                pending,
                known,
                chains,
                consequences,
                age,
                deadline,
                stats,
            )

        def rounds() -> RowRounds | LaneRounds:
            return by_lane if by_lane is not None and _are_for_lanes(pending) else by_row

        self.replays.observe_batch()
        try:
            rounds().begin()
            while pending:
                # Asked again for each round: a change that took another's place may have to go the other way.
                rounds().round()
        finally:
            claims.release()
        return pending.report(stats)


def _are_for_lanes(pending: PendingChanges) -> bool:
    """Whether what is pending takes units, and gives none back: that is for the rows.

    Groups are served by the rows, too: first come, first served ends where some are served by a lane.
    """
    return any(change.wanted for change in pending) and all(
        change.group is None and (change.wanted or not change.product_ids) for change in pending
    )
