"""Returns idle units: from lanes without a live lease to the depot, and from idle depot pages to the rows.

The lease of the depot and the versions of both sides guard each move. So a run may stop at any
point, overlap with another run, or meet a lane's owner that continues after a pause.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from inventory_orders.clock import Deadline, timestamp
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import DEPOT, MAX_LANES, PAGES, Page, PageKey
from inventory_orders.domain.location import in_words
from inventory_orders.domain.product import Product, ProductsById
from inventory_orders.engine.retrying_client import (
    CommitStats,
    RetryingClient,
    SweepReport,
    read,
    read_all,
)
from inventory_orders.errors import CorruptItemError
from inventory_orders.lanes.depot import Depot
from inventory_orders.lanes.recall import reclaim
from inventory_orders.retry import RetryPolicy
from inventory_orders.store.cancellations import Meaning, TransactionCancelledError
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.lane_leases import read_lane_leases
from inventory_orders.store.writes import transaction_actions

IDLE_SECONDS = 120.0
"""Rows reclaim the units of a depot page that has not been written for this number of seconds."""

# Few attempts, because the next sweep does the rest.
_POLICY = RetryPolicy(max_attempts=8)

# Maximum number of rows that reclaim their units together. One transaction is enough if few lanes may hold these units.
_ROWS = 90


@dataclass(slots=True)
class IdleReport(SweepReport):
    """Report on the idle units that a run has moved.

    Attributes:
        lanes: The lanes that were emptied into the depot.
        products: How many products were reclaimed from the depot by their rows.
    """

    lanes: list[int] = field(default_factory=list)
    products: int = 0


def return_idle_units(store: Store, deadline: Deadline) -> IdleReport:
    """Empty each lane without a live lease into the depot, and each idle depot page into the rows.

    Checks every existing page, whatever the setting for lanes. Skips products that a lane in use may hold.

    Args:
        store: The tables.
    """
    run = IdleReturn(Depot(RetryingClient(store, _POLICY)), deadline)
    with run.report.noting_errors():
        run.empty_lanes(run.idle_lanes())
        run.empty_depot()
    return run.report


@dataclass(slots=True)
class IdleReturn:
    """One run that returns idle units.

    Attributes:
        depot: The depot, whose lease this takes and releases.
        deadline: When to stop.
        stats: The cost.
        in_use: The lanes with a live lease.
        report: The moves so far.
    """

    depot: Depot
    deadline: Deadline
    stats: CommitStats = field(default_factory=CommitStats)
    in_use: set[int] = field(default_factory=set)
    report: IdleReport = field(default_factory=IdleReport)

    # ------------------------------------------------------------------ lanes

    def empty_lanes(self, idle: Sequence[int]) -> None:
        """Move the units of lanes without a live lease to the depot."""
        pages = self._pages(PageKey(lane, number) for lane in idle for number in range(PAGES))
        for lane in idle:
            held = [key for key, page in pages.items() if key.lane == lane and page.entries]
            if held and self._empty_lane(held):
                self.report.lanes.append(lane)

    def idle_lanes(self) -> list[int]:
        """The lanes that were leased once but are not leased now. A lane that was never leased has no pages."""
        now = self.depot.client.clock.now().timestamp()
        leases = self.depot.client.ask(read_lane_leases, self.deadline, range(1, MAX_LANES + 1))
        self.in_use = {lease.lane for lease in leases if lease.ends_at > now}
        return sorted({lease.lane for lease in leases} - self.in_use)

    def _empty_lane(self, keys: Sequence[PageKey]) -> bool:
        """Move the units of a lane's pages to the depot, in one transaction.

        Returns whether the lane was emptied: False if there was nothing to move, or a concurrent writer or throttling interfered.
        """
        visit = self.depot.acquire(self.deadline, self.stats)
        try:
            allocation = self._returned(keys)
            if not allocation.touched:
                return False
            actions = transaction_actions(
                replace(allocation.drain(), release=visit), self.depot.client.clock.now()
            )
            self.depot.client.write(actions, self.deadline, self.stats)
            self.depot.lease = None
            return True
        except TransactionCancelledError as lost:
            if lost.meanings & {Meaning.INVALID, Meaning.UNKNOWN}:
                raise
            return False
        finally:
            self.depot.release(self.deadline, self.stats)

    def _returned(self, keys: Sequence[PageKey]) -> Allocation:
        """An allocation in which the units of a lane's pages have moved to the depot. Unreadable pages are left alone."""
        shelves = {key: PageKey(DEPOT, key.number) for key in keys}
        pages = self._pages([*shelves, *shelves.values()])
        allocation = Allocation({}, pages.values())
        for key, shelf in shelves.items():
            is_readable = {key, shelf} <= pages.keys()
            for product_id, held in pages[key].entries.items() if is_readable else ():
                other = allocation.entry(DEPOT, product_id)
                if not other.units or other.created_at == held.created_at:
                    allocation.give_back(key.lane, product_id)
                else:
                    problem = f"pages {key} and {shelf} hold different generations of {in_words(product_id)}"
                    self.report.problems[problem] = None
        return allocation

    # ------------------------------------------------------------------ the depot

    def empty_depot(self) -> None:
        """Return units to the rows from each depot page without a recent write."""
        idle_since = self.depot.client.clock.now() - timedelta(seconds=IDLE_SECONDS)
        for page in self._pages(PageKey(DEPOT, number) for number in range(PAGES)).values():
            if page.last_updated_at <= timestamp(idle_since):
                self._empty_page(page)

    def _empty_page(self, page: Page) -> None:
        """Return the units of a depot page to the rows, until another visitor writes the page."""
        left, found = sorted({*page.entries, *page.emptied}), page
        # Another visitor may have moved units of some products in the meantime.
        while left := [
            p for p in left if p in (found.entries if p in page.entries else found.emptied)
        ]:
            product_ids, left = left[:_ROWS], left[_ROWS:]
            snapshot = read(
                self.depot.client,
                [page.key, *product_ids],
                self.deadline,
                self.stats,
            )
            if not _is_unwritten(found, snapshot.pages.get(page.key)):
                return
            self.report.problems |= dict.fromkeys(map(str, snapshot.unreadable.values()))
            rows = self._known(found, snapshot.products)
            idle = [row for row in rows if row.lent_to.isdisjoint(self.in_use)]
            try:
                done = reclaim(self.depot, idle, self.deadline, self.stats)
            except CorruptItemError as error:
                self.report.problems[str(error)] = None
                return
            self.report.products += len(done.rows.keys() - done.lent)
            found = done.pages.get(page.key, found)

    def _known(self, page: Page, rows: ProductsById) -> list[Product]:
        """The rows whose `lent_to` and generation agree with the page. Reports units on the page that no row accounts for."""
        known = [
            row
            for product_id, row in rows.items()
            if row is not None
            and DEPOT in row.lent_to
            and (
                product_id in page.emptied or row.created_at == page.entries[product_id].created_at
            )
        ]
        unknown = rows.keys() - {row.product_id for row in known} - page.emptied
        # The page may be older than the rows, so it is read again first.
        if unknown and _is_unwritten(page, self._pages([page.key]).get(page.key)):
            self.report.problems |= {
                f"page {page.key} holds {page.entries[p].units} of {in_words(p)} unknown to its row": None
                for p in unknown
            }
        return known

    # ------------------------------------------------------------------ pages

    def _pages(self, keys: Iterable[PageKey]) -> dict[PageKey, Page]:
        """Read pages with strong consistency. Unreadable ones are left out."""
        found = read_all(self.depot.client, list(keys), self.deadline, self.stats).pages
        self.report.problems |= {
            str(page): None for page in found.values() if not isinstance(page, Page)
        }
        return {key: page for key, page in found.items() if isinstance(page, Page)}


def _is_unwritten(page: Page, again: object) -> bool:
    """Whether a page that was read again is still at its earlier version."""
    return isinstance(again, Page) and (again.version, again.epoch) == (page.version, page.epoch)
