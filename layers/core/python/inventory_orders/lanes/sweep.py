"""The sweep: units that nobody uses go home, from idle lanes to the depot, and from an idle depot to the rows.

It is one more visitor of the depot, and keeps to the same rules: what it moves is conditioned on the versions of both
sides. So it may die at any point, run twice at once, or meet an owner that wakes up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from inventory_orders.clock import Clock, Deadline, SystemClock, timestamp
from inventory_orders.domain.allotments import DEPOT, MOST_LANES, PAGES, LaneLease, Page, PageKey
from inventory_orders.domain.ledger import Ledger
from inventory_orders.domain.planner import Transaction
from inventory_orders.domain.product import Product, Products
from inventory_orders.engine.reader import read
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.engine.stats import CommitStats
from inventory_orders.errors import (
    CorruptItemError,
    InventoryOrdersError,
    OutcomeUnknownError,
    StoreError,
    ThrottledError,
)
from inventory_orders.lanes.line import leave_depot, visit_depot
from inventory_orders.lanes.recall import bring_home
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.actions import CONDITION_FAILED, TRANSIENT, TransactionCancelledError
from inventory_orders.store.dynamodb import Store

IDLE_SECONDS = 120.0
"""What a page of the depot holds goes home when nobody has written the page for so long."""

# What this does not get done is left to the next sweep.
_POLICY = RetryPolicy(max_attempts=8)

# So many rows are brought home at a time: one transaction, if few lanes may hold them.
_ROWS = 90


class SweepError(InventoryOrdersError):
    """Units stay where they are until somebody repairs something. All others were moved."""


@dataclass(slots=True)
class SweepReport:
    """What a sweep did.

    Attributes:
        lanes: The lanes that it emptied into the depot.
        products: How many products it brought home from the depot.
        unfinished: Why it stopped before its end; empty if it did not. The next sweep goes on.
    """

    lanes: list[int] = field(default_factory=list)
    products: int = 0
    unfinished: str = ""


def sweep(
    store: Store, deadline: Deadline, policy: RetryPolicy = _POLICY, clock: Clock | None = None
) -> SweepReport:
    """Empty each lane without a live lease into the depot, and each idle page of the depot into the rows.

    It goes by what exists, whatever the settings say of lanes. What a lane with a live lease may hold stays.

    Args:
        store: Where the tables are.
        deadline: No request begins after it.
        policy: How to wait between attempts.
        clock: Source of time.

    Raises:
        SweepError: Something has to be repaired.
    """
    run = _Sweep(RetryingClient(store, policy, clock or SystemClock()), deadline)
    try:
        run.empty_lanes()
        run.empty_depot()
    except (ThrottledError, OutcomeUnknownError) as error:
        run.report.unfinished = str(error)
    except StoreError as error:
        run.repair(str(error))
    if run.problems:
        raise SweepError("; ".join(run.problems))
    return run.report


class _Sweep:
    """One sweep.

    Attributes:
        report: What it has done so far.
        problems: What has to be repaired, each once.
    """

    def __init__(self, client: RetryingClient, deadline: Deadline) -> None:
        self._client = client
        self._deadline = deadline
        self._stats = CommitStats()
        self._lanes_in_use: set[int] = set()
        self.report = SweepReport()
        self.problems: dict[str, None] = {}

    def repair(self, problem: str) -> None:
        """Note what somebody has to repair."""
        self.problems[problem] = None

    # ------------------------------------------------------------------ lanes

    def empty_lanes(self) -> None:
        """Empty the lanes without a live lease into the depot. A lane that was never leased has no pages."""
        now = self._client.clock.now().timestamp()
        leases = self._client.call(
            lambda: self._client.store.read_lane_leases(range(1, MOST_LANES + 1)), self._deadline
        )
        self._lanes_in_use = {lease.lane for lease in leases if lease.ends_at > now}
        idle = sorted({lease.lane for lease in leases} - self._lanes_in_use)
        pages = self._pages(PageKey(lane, number) for lane in idle for number in range(PAGES))
        for lane in idle:
            held = [key for key, page in pages.items() if key.lane == lane and page.holdings]
            if held and self._empty_lane(held):
                self.report.lanes.append(lane)

    def _empty_lane(self, keys: Sequence[PageKey]) -> bool:
        """Move the units of a lane's pages to the depot, in one transaction. Returns whether it was written."""
        visit = visit_depot(self._client, self._deadline, self._stats)
        is_written = False
        try:
            ledger = self._given_back(keys)
            is_written = bool(ledger.touched) and self._write(ledger, visit)
        finally:
            if not is_written:
                leave_depot(self._client, visit, self._deadline, self._stats)
        return is_written

    def _given_back(self, keys: Sequence[PageKey]) -> Ledger:
        in_depot = [PageKey(DEPOT, key.number) for key in keys]
        pages = self._pages([*keys, *in_depot])
        ledger = Ledger({}, pages.values())
        for key, target in zip(keys, in_depot, strict=True):
            if key not in pages or target not in pages:
                continue
            for product_id, held in pages[key].holdings.items():
                beside = ledger.holding(DEPOT, product_id)
                if beside is None or beside.created_at == held.created_at:
                    ledger.give_back(key.lane, product_id)
                else:
                    self.repair(f"{key} and {target} hold different incarnations of {product_id}")
        return ledger

    def _write(self, ledger: Ledger, visit: LaneLease) -> bool:
        """Write what was moved, and end the visit. Returns False if a rival or a throttle came in between."""
        transaction = replace(Transaction.of(ledger), release=visit)
        actions = self._client.store.transaction_actions(transaction, self._client.clock.now())
        try:
            self._client.write(actions, self._deadline, self._stats)
        except TransactionCancelledError as lost:
            if not lost.codes <= TRANSIENT | {CONDITION_FAILED}:
                raise
            return False
        return True

    # ------------------------------------------------------------------ the depot

    def empty_depot(self) -> None:
        """Return what the depot holds to the rows, page by page, where nobody has written the page for a while."""
        idle_since = self._client.clock.now() - timedelta(seconds=IDLE_SECONDS)
        for page in self._pages(PageKey(DEPOT, number) for number in range(PAGES)).values():
            if page.last_updated_at <= timestamp(idle_since):
                self._empty_page(page)

    def _empty_page(self, page: Page) -> None:
        """Return what a page of the depot holds to the rows, until somebody else writes the page."""
        left, found = sorted(page.holdings), page
        # A visitor that came in between may have moved some of them.
        while left := [product_id for product_id in left if product_id in found.holdings]:
            product_ids, left = left[:_ROWS], left[_ROWS:]
            snapshot = read(
                self._client,
                [page.key, *product_ids],
                self._deadline,
                self._stats,
            )
            if not _is_unwritten(found, snapshot.pages.get(page.key)):
                return
            for problem in snapshot.unreadable.values():
                self.repair(problem)
            idle = [row for row in self._known(found, snapshot.products) if self._is_idle(row)]
            try:
                home = bring_home(self._client, idle, self._deadline, self._stats)
            except CorruptItemError as error:
                self.repair(str(error))
                return
            self.report.products += len(home.rows.keys() - home.away)
            found = home.pages.get(page.key, found)

    def _known(self, page: Page, rows: Products) -> list[Product]:
        """The rows that know of what the page holds of their products."""
        known = [
            row
            for product_id, row in rows.items()
            if row is not None
            and DEPOT in row.lent_to
            and row.created_at == page.holdings[product_id].created_at
        ]
        unknown = rows.keys() - {row.product_id for row in known}
        # The page may be older than the rows.
        if unknown and _is_unwritten(page, self._pages([page.key]).get(page.key)):
            for product_id in unknown:
                held = page.holdings[product_id].units
                self.repair(f"{page.key} holds {held} of {product_id} unknown to its row")
        return known

    def _is_idle(self, row: Product) -> bool:
        is_locked = row.lease_left(self._client.clock.now().timestamp()) > 0
        return not is_locked and not row.lent_to & self._lanes_in_use

    # ------------------------------------------------------------------ pages

    def _pages(self, keys: Iterable[PageKey]) -> dict[PageKey, Page]:
        """Read pages, strongly consistent. One that cannot be read is left out."""
        snapshot = read(self._client, list(keys), self._deadline, self._stats)
        if snapshot.unprocessed:
            raise ThrottledError("UNPROCESSED_KEYS", "pages were left out of every answer")
        pages = {}
        for key, page in snapshot.pages.items():
            if isinstance(page, Page):
                pages[key] = page
            else:
                self.repair(str(page))
        return pages


def _is_unwritten(page: Page, again: object) -> bool:
    """Whether a page, read again, is still at the version at which it was read or left."""
    return isinstance(again, Page) and (again.version, again.epoch) == (page.version, page.epoch)
