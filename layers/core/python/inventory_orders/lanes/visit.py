"""A visit to the depot, in the steps of docs/lanes.md: lends units from rows, fills the lane, and sells scarce products."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from inventory_orders.clock import Deadline
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import (
    DEPOT,
    MAX_PRODUCTS,
    NO_UNITS,
    PAGES,
    LaneLease,
    Page,
    PageEntry,
    PageKey,
)
from inventory_orders.domain.change import Decision
from inventory_orders.domain.location import in_words
from inventory_orders.domain.planner import (
    Chain,
    Draft,
    Limits,
    Supply,
    pack,
    strict_keys,
    write_down,
)
from inventory_orders.domain.product import Product
from inventory_orders.engine.batch import Batch
from inventory_orders.engine.loop import Commit
from inventory_orders.engine.retrying_client import CommitStats, read
from inventory_orders.errors import CorruptItemError, ThrottledError
from inventory_orders.lanes.demand import Demand
from inventory_orders.lanes.depot import VISIT_SECONDS, Depot
from inventory_orders.lanes.lane import OwnLane
from inventory_orders.lanes.recall import Recall
from inventory_orders.sequences import in_portions
from inventory_orders.store.dynamodb import Snapshot
from inventory_orders.store.rows import Key

# If a batch wants at most this number of rows, they are read together with the pages, and while it waits for the depot.
_ROWS_WITH_PAGES = 10

# Maximum number of loans in the transaction that fills the lane, and of rows that are read for it.
_LOANS_TOGETHER = 40

# Maximum number of products in one recall: short ones, and scarce ones on the same pages, to save further recalls.
_RECALLED_TOGETHER = 60

# The share of the spare units that a contested row keeps.
_LEFT_TO_RIVALS = 10

# Maximum number of lanes that a visit fills for others, and of rows that it reads for them.
_MOST_FILLED, _MOST_ROWS = 20, 2_000

# With more rows and pages in the transaction, no more lanes are filled, so that some orders fit in.
_MOST_PLACES = 60

# Maximum number of loans in one transaction, which also writes the depot's page.
_MAX_LOANS = 99


@dataclass(frozen=True, slots=True)
class LaneSupply(Supply):
    """A supply that sells some products from lanes, and the others from rows.

    Attributes:
        release: The depot's lease, if it is held and lasts long enough. The last transaction that needs the depot releases
            it, if it has room for one more action.
        is_awaited: Whether other processes wait for the depot. If so, decisions that need it come first; otherwise
            transactions are as full as possible.
    """

    release: LaneLease | None = None
    is_awaited: bool = False

    def arrange(self, decisions: Sequence[Decision], limits: Limits) -> tuple[Chain, ...]:
        """Build one chain, because all decisions share the lane's few pages. Pending moves go into its first transaction."""
        limits = replace(limits, side_by_side=1)
        first, rest, drafts = decisions, list[Decision](), list[Draft]()
        if self.release is not None and self.is_awaited:
            first, rest = self._depot_first(decisions)
        moved = frozenset(self.allocation.touched)
        if moved or self.release is not None:
            size = self.allocation.size(moved)
            drafts = [Draft(places=set(moved), actions=len(moved), size=size)]
        reserved = int(self.release is not None)
        drafts = pack(first, self, replace(limits, actions=limits.actions - reserved), drafts)
        drafts += pack(rest, self, limits)
        transactions = write_down(drafts, self)
        if self.release is not None:
            last = self._last_with_depot(drafts) if len(drafts) > 1 else 0
            if drafts[last].actions < limits.actions:
                transactions[last] = replace(transactions[last], release=self.release)
        chain = tuple((transaction,) for transaction in transactions)
        return (chain,) if chain else ()

    def _last_with_depot(self, drafts: Sequence[Draft]) -> int:
        """The number of the last draft that needs the depot, or of the first draft, because of its moves."""
        needed = (any(map(self._needs_depot, draft.decisions)) for draft in drafts)
        return max((number for number, is_needed in enumerate(needed) if is_needed), default=0)

    def _depot_first(self, decisions: Sequence[Decision]) -> tuple[list[Decision], list[Decision]]:
        """Split decisions into those that need the depot, with all that must come before them, and the rest."""
        strict, awaited = strict_keys(decisions), set[object]()
        first, rest = list[Decision](), list[Decision]()
        for decision in reversed(decisions):
            is_first = self._needs_depot(decision) or not awaited.isdisjoint(decision.keys)
            awaited |= strict & decision.keys if is_first else set()
            (first if is_first else rest).append(decision)
        return first[::-1], rest[::-1]

    def _needs_depot(self, decision: Decision) -> bool:
        """Whether a decision changes products that this process's lane does not sell."""
        pages = [self.sources.get(product_id) for product_id in decision.deltas]
        return any(page is None or page.lane == DEPOT for page in pages)


class Visit:
    """One visit to the depot.

    Args:
        lane: This process's lane. If it has none, everything is sold at the depot.
        depot: The depot.
        demand: The demand so far.
        batch: The batch. Rows that are read here, and problems with items, are noted there.
        need: Units that pending orders want from lanes, by product.
        to_reclaim: Products whose units a change needs in the row, not in lanes.
    """

    def __init__(
        self,
        lane: OwnLane,
        depot: Depot,
        demand: Demand,
        batch: Batch,
        need: Mapping[str, int],
        to_reclaim: Collection[str],
    ) -> None:
        self._lane = lane
        self._depot = depot
        self._demand = demand
        self._batch = batch
        self._need = need
        self._to_reclaim = frozenset(to_reclaim)
        # Pages that were not read count as empty.
        self._allocation = Allocation({}, (Page(key, 0, "") for key in _pages_of(DEPOT)))
        # The errors of unreadable pages, by page number. Products that belong there are skipped.
        self._corrupt: dict[int, CorruptItemError] = {}
        # Whether this visit fills lanes for others, and which.
        self._fills_others = False
        self._waiting: list[LaneLease] = []
        # The version of the lane for which the needs were published.
        self._published = -1

    def begin(self, patience: float) -> bool:
        """Wait for the depot, for at most `patience` seconds. Returns False if there is no longer a reason to visit it.

        Raises:
            ThrottledError: The wait took too long.
        """
        depot, batch = self._depot, self._batch
        ends = Deadline.after(min(patience, batch.deadline.remaining()), depot.client.clock)
        if not depot.combines:
            self._lane.look_around(batch.deadline, batch.stats)
        elif not depot.line.is_empty:
            self._publish()
        return depot.acquire(ends, batch.stats, batch.age, self._is_over) is not None

    def _publish(self) -> None:
        """Publish what this visit needs if visitors combine, unless that was done since the lane was last written."""
        lane, batch = self._lane, self._batch
        if self._depot.combines and lane.pages and self._need and lane.version != self._published:
            self._published = lane.version
            lane.publish(self._need, len(batch.pending), batch.deadline, batch.stats)

    def _is_over(self) -> bool:
        """Whether another visitor has filled this process's lane, or everything that this visit is for is sold out.

        In the latter case rows show that, and lanes have no units. A worker without a lane takes its turn with others.
        """
        if self._need and self._lane.number is None:
            self._lane.take_turn(self._batch.deadline, self._batch.stats)
        rows = self._rows_to_watch()
        keys: list[Key] = [*(self._lane.keys if self._depot.combines else ()), *rows]
        if not self._need or not keys:
            return False
        found = self._read(keys)
        self._lane.remember(found.pages.values())
        if not self._lane.lacks(self._need):
            return True
        self._publish()
        sold_out = [row for row in found.products.values() if row and row.sellable <= 0]
        return 0 < len(rows) == len(sold_out)

    def _rows_to_watch(self) -> list[str]:
        """The rows that may show that everything is sold out, if they are few. Unknown ones are only read together with pages."""
        if len(self._need) > _ROWS_WITH_PAGES or any(map(self._is_avoided, self._need)):
            return []
        unknown = self._batch.known.unknown(self._need)
        reads_unknown = bool(unknown and self._lane.keys) and self._depot.combines
        is_scarce = all(self._is_scarce(p, n) for p, n in self._need.items())
        return [*self._need] if is_scarce or reads_unknown else []

    def prepare(self, commit: Commit, *, recalls: bool) -> Supply | None:
        """Read, lend, recall and share out, so that as many of the needed units as possible can be sold.

        Args:
            commit: Commits chains of moves.
            recalls: Whether to recall missing units from other lanes.

        Returns:
            The supply, with moves that are not written yet; None if concurrent writers force another read.

        Raises:
            StoreError: DynamoDB failed.
        """
        batch, lease = self._batch, self._depot.lease
        is_awaited = not self._depot.line.is_empty
        self._fills_others = is_awaited and self._depot.combines
        if not self._read_and_lend(commit):
            return None
        if lent := self._lent_elsewhere() if recalls else set():
            problem = self._recall(lent)
            if not self._read_and_lend(commit):
                return None
            if problem is not None:
                batch.known.unreadable.update(dict.fromkeys(self._lent_elsewhere(), problem))
        self._reclaim()
        sources = self._share_out()
        self._add_rows()
        # A transaction that releases an expired lease may fail, so one that is about to expire is released separately.
        is_live = lease is not None and lease.ends_at - batch.now > VISIT_SECONDS / 4
        return LaneSupply(self._allocation, sources, lease if is_live else None, is_awaited)

    # ------------------------------------------------------------------ reading

    def _read_and_lend(self, commit: Commit) -> bool:
        """Read pages and rows, and lend. Returns False if the visit has to end because loans failed or changes were returned."""
        if not self._read_places():
            return False
        # A product may have been listed again between the reads of pages and rows.
        if self._relisted() and not self._read_places():
            return False
        for product_id in self._relisted():
            self._batch.known.unreadable[product_id] = CorruptItemError(
                f"the row and pages of product {in_words(product_id)} hold units of different generations; repair the items",
                "CORRUPT_PRODUCT",
            )
        return self._lend(commit)

    def _read_places(self) -> bool:
        """Read all pages, and the rows that may lend. Returns False if the visit has to end because changes were returned."""
        shelves = _pages_of(DEPOT)
        own = self._lane.keys
        keys: list[Key] = [*own, *shelves, *self._rows_with_pages()]
        found = self._look_and_read(keys) if self._depot.combines else self._read(keys)
        # `remember` gives up the lane if one of its pages is unreadable.
        self._lane.remember(found.pages[key] for key in own)
        self._corrupt |= {k.number: p for k, p in found.pages.items() if not isinstance(p, Page)}
        # Products that belong on an unreadable page are not touched.
        pages = (p if isinstance(p, Page) else Page(k, 0, "") for k, p in found.pages.items())
        self._allocation = Allocation({}, pages)
        if self._corrupt and self._give_up_corrupt():
            return False
        self._demand.observe_others(chain.from_iterable(map(self._allocation.entries, shelves)))
        self._read_rows(found)
        return True

    def _look_and_read(self, keys: Sequence[Key]) -> Snapshot:
        """Read items and, at the same time, which lanes are in use and what their owners wait for."""
        deadline, found = self._batch.deadline, Snapshot()
        reads: list[Callable[[], None]] = [
            lambda: self._lane.look_around(deadline, CommitStats(), is_needed=self._fills_others),
            lambda: found.add(self._read(keys)),
        ]
        self._depot.client.side_by_side(lambda read_one: read_one(), reads)
        return found

    def _owners_who_wait(self) -> list[LaneLease]:
        """The leases of the lanes that this visit may fill for others. Learns from what their owners need."""
        # A filled page is at most as large as the depot's.
        most = Limits().size // 2 // max(1, self._allocation.size(_pages_of(DEPOT)))
        fitting = filter(self._may_fill, self._lane.waiting)
        found = [*islice(fitting, min(most, _MOST_FILLED))]
        for lease in found:
            self._demand.observe_needs(lease.needs)
        return found

    def _read_rows(self, found: Snapshot) -> None:
        """Read the pages of lanes that wait, and the rows that the visit needs, unless they were read together with the pages."""
        if self._fills_others:
            self._waiting = self._owners_who_wait()
        wanted = self._rows_to_read()
        others = [p for p in wanted if p not in found.products]
        keys: list[Key] = [
            *others,
            *chain.from_iterable(_pages_of(lease.lane) for lease in self._waiting),
        ]
        if keys:
            found.add(self._read(keys))
        self._waiting = [lease for lease in self._waiting if self._still_waits(lease, found)]
        self._allocation.rows |= {p: found.products[p] for p in wanted if p in found.products}

    def _may_fill(self, lease: LaneLease) -> bool:
        """Whether there may be enough units of a product for the waiting owner of a lane."""
        return not all(self._is_scarce(p, need) for p, need in lease.needs.units.items())

    def _still_waits(self, lease: LaneLease, found: Snapshot) -> bool:
        """Whether the owner of a lane has not written its pages since it published its needs. If so, adds the pages.

        A lane with an unreadable or throttled page is left alone.
        """
        stored = [p for key in _pages_of(lease.lane) if isinstance(p := found.pages.get(key), Page)]
        versions = sum(page.version for page in stored)
        is_waiting = len(stored) == PAGES and lease.needs.version == versions
        if is_waiting:
            self._allocation.add_pages(stored)
        return is_waiting

    def _rows_with_pages(self) -> list[str]:
        """The rows to read together with the pages. That is faster, even if the depot turns out to have enough."""
        # Products that were passed over as short may have been restocked.
        passed_over = self._batch.known.unknown(self._batch.wanted)
        both = dict.fromkeys((*self._need, *passed_over))
        needed = [p for p in both if not self._is_avoided(p)]
        return needed if len(needed) <= _ROWS_WITH_PAGES else []

    def _give_up_corrupt(self) -> bool:
        """Give up on the changes of products that belong on an unreadable page. Returns whether there were any."""
        new = {
            p: self._corrupt[PageKey.of(DEPOT, p).number]
            for p in (*self._need, *self._to_reclaim)
            if PageKey.of(DEPOT, p).number in self._corrupt
            and p not in self._batch.known.unreadable
        }
        self._batch.known.unreadable.update(new)
        self._batch.short.update(new)
        for product_id, problem in new.items():
            self._batch.pending.give_up_product(product_id, problem.code, str(problem))
        return bool(new)

    def _rows_to_read(self) -> list[str]:
        """The products whose rows have to be read: the depot has too few units of them, or their rows have to reclaim units."""
        lacks = self._lane.lacks(self._need)
        all_lacks = islice(self._all_lacks(lacks).items(), len(lacks) + _MOST_ROWS)
        wanted = [p for p, units in all_lacks if self._should_read(p, units)]
        wanted += self._to_reclaim - self._batch.known.unreadable.keys()
        # Rows lend again when the depot runs low, before lanes get small shares.
        fast_sellers = self._demand.fast_sellers()
        low = (p for p in fast_sellers if p not in lacks and self._should_read(p, 0))
        return [*wanted, *islice(low, max(0, _LOANS_TOGETHER - len(wanted)))]

    def _all_lacks(self, lacks: Mapping[str, int]) -> Counter[str]:
        """The units that this process's lane lacks, and those that all owners of the lanes that wait need."""
        needs = (lease.needs.units for lease in self._waiting)
        return sum(map(Counter, needs), Counter(lacks))

    def _read(self, keys: Sequence[Key]) -> Snapshot:
        found = read(self._depot.client, keys, self._batch.deadline, self._batch.stats)
        for product_id, row in found.products.items():
            self._batch.known.learn(product_id, row)
        self._batch.known.unreadable.update(found.unreadable)
        self._batch.throttled.update(key for key in found.unprocessed if isinstance(key, str))
        mine = (DEPOT, self._lane.number)
        if any(isinstance(key, PageKey) and key.lane in mine for key in found.unprocessed):
            raise ThrottledError("UNPROCESSED_KEYS", "a page could not be read")
        return found

    # ------------------------------------------------------------------ state

    def _missing(self) -> set[str]:
        """The products that the depot has too few units of, or whose row needs all units."""
        missing = {
            p
            for p, n in self._lane.lacks(self._need).items()
            if self._allocation.units(DEPOT, p) < n
        }
        return {
            p
            for p in missing | self._to_reclaim
            if self._allocation.rows.get(p) is not None and p not in self._batch.known.unreadable
        }

    def _lent_elsewhere(self) -> set[str]:
        """The missing products that other lanes may hold, and that a change cannot do without."""
        missing = {p for p in self._missing() if self._allocation.row(p).lent_to - {DEPOT}}
        return missing & (self._indispensable() | self._to_reclaim) if missing else missing

    def _indispensable(self) -> set[str]:
        """The products that a pending order needs, because it has no other offer, or all of its offers are short."""
        short = self._batch.short
        return {
            product_id
            for change in self._batch.pending.values()
            for product_id, units in change.lane_units(short).items()
            if units and (product_id in short or len(change.offers) == 1)
        }

    def _relisted(self) -> list[str]:
        """Products whose row, depot and lane have different generations, because they were delisted and listed again."""
        return [p for p in {*self._need, *self._allocation.rows} if self._is_relisted(p)]

    def _is_relisted(self, product_id: str) -> bool:
        lanes = (DEPOT, self._lane.number or DEPOT)
        entries = (self._allocation.entry(lane, product_id) for lane in lanes)
        row = self._allocation.rows.get(product_id)
        return len({held.created_at for held in (*entries, row or NO_UNITS)} - {""}) > 1

    def _should_read(self, product_id: str, units: int) -> bool:
        """Whether to read a row, because the depot has too few units and the row may have more."""
        if self._is_avoided(product_id) or PageKey.of(DEPOT, product_id).number in self._corrupt:
            return False
        held = self._allocation.entry(DEPOT, product_id)
        if held.units < units:
            return True
        if held.units and not held.reach:
            return self._is_wide(held.units, units)
        # A lane beyond the reach is not filled before the row lends to it.
        need = max(units, self._demand.last_quantity(product_id))
        if held.reach < (self._lane.number or DEPOT) and self._is_wide(held.units, need):
            return True
        return held.units < self._low_level(product_id) and not self._depot.drained.has(product_id)

    def _is_scarce(self, product_id: str, need: int) -> bool:
        """Whether the row and the depot have too few units to fill lanes, as far as known."""
        row = self._batch.known.rows.get(product_id)
        if row is None and not self._depot.drained.has(product_id):
            return False
        surplus = 0 if row is None else self._surplus(row)
        return not self._is_wide(self._allocation.units(DEPOT, product_id) + surplus, need)

    def _is_avoided(self, product_id: str) -> bool:
        """Whether a row is throttled or corrupt."""
        return product_id in self._batch.throttled or product_id in self._batch.known.unreadable

    @property
    def _shares(self) -> int:
        """Into how many shares a product is divided: one for each lane in use, and one that stays at the depot."""
        return self._lane.in_use + 1

    def _low_level(self, product_id: str) -> float:
        """The number of units below which a product runs low at the depot."""
        return self._shares * self._demand.lane_level(product_id)

    # ------------------------------------------------------------------ lending

    def _lend(self, commit: Commit) -> bool:
        """Lend from rows. If there are many loans, they are committed immediately; returns False if some of them failed."""
        lacks = self._lane.lacks(self._need)
        all_lacks = self._all_lacks(lacks)
        loans = {
            product_id: loan
            for product_id, row in self._allocation.rows.items()
            if row is not None
            and product_id not in self._batch.known.unreadable
            and product_id not in self._to_reclaim
            and (loan := self._to_lend(row, lacks.get(product_id, 0), all_lacks[product_id]))
        }
        if len(self._in_portions(loans, _LOANS_TOGETHER)) > 1:
            return commit(list(self._chains(loans)))
        for product_id, loan in loans.items():
            self._allocation.lend(product_id, *loan)
        return True

    def _to_lend(self, row: Product, lacks: int, all_lacks: int) -> tuple[int, int] | None:
        """How many units a row lends (all spare units, or at most half of a large stock), and the product's reach."""
        product_id, key = row.product_id, PageKey.of(DEPOT, row.product_id)
        stored, low = self._allocation.units(DEPOT, product_id), self._low_level(product_id)
        is_full = not stored and self._allocation.products_on(key) >= MAX_PRODUCTS
        if not row.may_be_lent or is_full or row.lease_left(self._batch.now):
            return None
        units = self._units_to_lend(row, low, all_lacks)
        need = self._need.get(product_id) or self._demand.last_quantity(product_id)
        reach = self._lane.reach if self._is_wide(units + stored, need) else DEPOT
        changes_nothing = not units and reach <= self._allocation.entry(DEPOT, product_id).reach
        return None if units < max(0, lacks - stored) or changes_nothing else (units, reach)

    def _units_to_lend(self, row: Product, low: float, lacks: int) -> int:
        surplus = self._surplus(row)
        if surplus <= low:
            self._depot.drained.observe(row.product_id)
            return surplus
        most = max(self._demand.depot_level(row.product_id, self._lane.in_use), low)
        return min(surplus, max(lacks, min(surplus // 2, math.ceil(most))))

    def _surplus(self, row: Product) -> int:
        """How many units a row can lend. Others sell from a contested row until the loan is committed."""
        surplus = row.stock_count - row.least_if_lent
        is_contested = self._depot.client.rivals.has(row.product_id)
        return surplus - surplus // _LEFT_TO_RIVALS if is_contested else surplus

    def _is_wide(self, units: int, need: int) -> bool:
        """Whether the depot has enough units to fill lanes."""
        return units >= self._shares * need

    def _in_portions(self, product_ids: Iterable[str], most: int) -> list[list[str]]:
        """Split products into portions of at most `most` products. Their rows leave room in a transaction for everything else."""
        rows = self._allocation
        return in_portions(product_ids, most, lambda p: rows.row(p).size, Limits().size // 4)

    def _chains(self, loans: Mapping[str, tuple[int, int]]) -> Iterator[Chain]:
        """The transactions of many loans, in sequence for each depot page."""
        pages: dict[PageKey, list[str]] = {}
        for product_id in loans:
            pages.setdefault(PageKey.of(DEPOT, product_id), []).append(product_id)
        for mine in pages.values():
            waves = []
            for some in self._in_portions(mine, _MAX_LOANS):
                for product_id in some:
                    self._allocation.lend(product_id, *loans[product_id])
                waves.append((self._allocation.drain(),))
            yield tuple(waves)

    # ------------------------------------------------------------------ recall and distribution

    def _recall(self, product_ids: set[str]) -> CorruptItemError | None:
        """Move units of products from other lanes to the depot, and with them scarce products on the same pages.

        Returns the first problem, if some units could not be moved.
        """
        together = islice(self._scarce(product_ids), max(0, _RECALLED_TOGETHER - len(product_ids)))
        # The scarce products are in the same lanes, because a row lends to all lanes.
        lanes = frozenset[int]().union(*(self._allocation.row(p).lent_to for p in product_ids))
        # Another program has broken the rules for these rows, which therefore reclaim their units immediately.
        broken = {p for p in product_ids if not self._allocation.row(p).may_be_lent}
        deadline, stats = self._batch.deadline, self._batch.stats
        try:
            if broken:
                Recall(self._depot, deadline, stats, to_row=True).run(broken, lanes)
            if others := [*(product_ids - broken), *together]:
                Recall(self._depot, deadline, stats).run(others, lanes)
        except CorruptItemError as error:
            return error
        return None

    def _scarce(self, product_ids: set[str]) -> Iterator[str]:
        """Other products on the same pages, if the depot has fewer units per lane than the last order took."""
        for key in {PageKey.of(DEPOT, product_id) for product_id in product_ids}:
            for other, held in self._allocation.entries(key).items():
                is_scarce = held.units < self._lane.in_use * self._demand.last_quantity(other)
                is_left_alone = other in product_ids or self._is_avoided(other)
                if held.reach and is_scarce and not is_left_alone:
                    yield other

    def _reclaim(self) -> None:
        """Let rows reclaim units from the depot if their product is short and no other lane holds it."""
        idle = [
            p
            for p in self._missing()
            if (row := self._allocation.row(p)).lent_to == {DEPOT}
            and not row.lease_left(self._batch.now)
        ]
        for product_id in next(iter(self._in_portions(idle, _LOANS_TOGETHER)), ()):
            self._allocation.reclaim(product_id)

    def _share_out(self) -> dict[str, PageKey]:
        """Fill lanes, and return products that are too scarce for lanes. Returns the page that sells each product."""
        sources = dict[str, PageKey]()
        if self._lane.number is None:
            sources = {
                p: PageKey.of(DEPOT, p) for p in self._need if self._allocation.units(DEPOT, p)
            }
        for key in self._lane.keys:
            if key.number not in self._corrupt:
                sources |= self._share_out_page(key, self._need, {})
        if self._waiting:
            self._fill_others(sources)
        return sources

    def _fill_others(self, sources: Mapping[str, PageKey]) -> None:
        """Fill the lanes whose owners wait. The units that this visit sells at the depot stay there."""
        sold = {p: self._need[p] for p, source in sources.items() if source.lane == DEPOT}
        for lease in self._waiting:
            for key in _pages_of(lease.lane):
                # An unreadable page of the depot counts as empty.
                if len(self._allocation.touched) < _MOST_PLACES:
                    self._share_out_page(key, lease.needs.units, sold)

    def _share_out_page(
        self, key: PageKey, needs: Mapping[str, int], sold: Mapping[str, int]
    ) -> dict[str, PageKey]:
        """Move the units of one page of a lane. Returns the page that sells each product that its owner needs.

        A visit does this for every lent product, which takes most of its CPU time.
        """
        lane, depot_key = key.lane, PageKey(DEPOT, key.number)
        own, shelf = self._allocation.entries(key), self._allocation.entries(depot_key)
        sources = {}
        # Others' lanes return nothing.
        for product_id in dict.fromkeys((*shelf, *(own if lane == self._lane.number else ()))):
            held, there = own.get(product_id, NO_UNITS), shelf.get(product_id, NO_UNITS)
            if len({held.created_at, there.created_at} - {""}) > 1:
                continue
            target = self._target(product_id, lane, held.units, there, needs.get(product_id, 0))
            missing = min(target - held.units, there.units - sold.get(product_id, 0))
            if missing > 0:
                self._allocation.fill(lane, product_id, missing)
            elif target < held.units and lane == self._lane.number:
                self._allocation.give_back(lane, product_id)
            if product_id in needs:
                sources[product_id] = key if target else depot_key
        return sources

    def _target(self, product_id: str, lane: int, have: int, there: PageEntry, need: int) -> int:
        """How many units a lane should hold if its owner needs `need`; 0 if the depot sells the product."""
        demand = self._demand
        if demand.is_idle(product_id):
            return 0
        use = demand.last_quantity(product_id)
        share = (have + there.units) / self._shares
        is_out_of_reach = there.units > 0 and there.reach < lane
        if is_out_of_reach or share < self._lane.least * max(use, need):
            return have if need <= have <= 2 * use + need else 0
        level = demand.lane_level(product_id, there.units / self._lane.in_use)
        return max(need, have, math.floor(min(level, share)))

    def _add_rows(self) -> None:
        """Add the rows that the batch knows. Those that this visit has read stay as they are, as they may have lent units."""
        self._batch.read_unknown([p for p in self._batch.wanted if p not in self._need])
        rows = self._batch.known.rows
        left = rows.keys() - self._need.keys() - self._to_reclaim - self._allocation.rows.keys()
        self._allocation.rows |= {p: rows[p] for p in self._batch.pending.product_ids if p in left}


def _pages_of(lane: int) -> list[PageKey]:
    return [PageKey(lane, number) for number in range(PAGES)]
