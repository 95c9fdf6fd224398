"""Where the products of a batch are sold from: their rows, the lane of this process, or the depot.

A batch is sold from rows until rivals are met on one, then from lanes. A visit of the depot fills the lane, lends from
rows what runs low, and sells in line what is too scarce for lanes. The policy, with the reason for each number, is in
docs/lanes.md. Each write is conditioned on what was read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from inventory_orders.clock import Deadline
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import DEPOT, MAX_PRODUCTS, PAGES, Page, PageEntry, PageKey
from inventory_orders.domain.planner import Chain, Limits, Supply, Transaction
from inventory_orders.domain.product import Product, ProductStatus
from inventory_orders.engine.batch import Batch
from inventory_orders.engine.retrying_client import RetryingClient, read, read_all
from inventory_orders.errors import CorruptItemError, ThrottledError
from inventory_orders.lanes.lane import VISIT_SECONDS, Lanes, acquire_depot, release_depot
from inventory_orders.lanes.recall import Reclaim, recall
from inventory_orders.portions import in_portions
from inventory_orders.store.dynamodb import Snapshot
from inventory_orders.store.rows import Key

# If a batch lacks no more than so many products in its lane, they are sold from their rows. A visit reads so few rows at once.
_FEW_ROWS = 10

# A product is lent to lanes while there are so many times the lanes' need of it.
_SPARE = 2

# So many loans at the most go into the transaction that fills the lane, and so many rows are looked at for it.
_FEW_LOANS = 40

# Products of one recall: those that are short, and scarce ones of the same pages, so that it is done once for many.
_RECALLED_TOGETHER = 60

# Most loans of one transaction: one more action is the depot's page.
_MAX_LOANS = 99

# Seconds in line after which the batch is handed back.
_PATIENCE = 20.0

_MIXED = "what the row and pages hold of product {} is of several incarnations; repair the items"


def supply(
    client: RetryingClient,
    lanes: Lanes,
    batch: Batch,
    commit: Callable[[Sequence[Chain]], bool] | None,
) -> Supply | None:
    """Find what is pending in the own lane, in rows or at the depot.

    After a visit `lanes.depot_lease` may have to be released.

    Args:
        client: Sends the requests.
        lanes: What this process knows of lanes.
        batch: What is wanted, and the rows as they are known.
        commit: Commits chains of moves. Returns whether all of them are durable. None: the depot is not visited.

    Returns:
        The supply; None if moves were lost or changes returned, and all has to be looked at again, or for want of a visit.

    Raises:
        StoreError: DynamoDB failed, or the wait for the depot was too long.
    """
    need = batch.pending.need if lanes.most else {}
    # A lane is kept in use; a first one is taken for a visit alone.
    if lanes.lane is not None:
        lanes.take(batch.deadline, batch.stats)
    if lanes.pages is None:
        lanes.remember(read_all(client, lanes.keys, batch.deadline, batch.stats).pages.values())
    found = _without_a_visit(client, lanes, batch, need)
    if found is not None or not batch.pending or commit is None:
        return found
    if need:
        lanes.take(batch.deadline, batch.stats)
    return Visit(client, lanes, batch, need, commit).prepare()


def end_visit(client: RetryingClient, lanes: Lanes, batch: Batch) -> None:
    """End a visit of the depot, unless a transaction has done so."""
    if lanes.depot_lease is not None:
        release_depot(client, lanes.depot_lease, batch.deadline, batch.stats)
        lanes.depot_lease = None


def _without_a_visit(
    client: RetryingClient,
    lanes: Lanes,
    batch: Batch,
    need: dict[str, int],
) -> Supply | None:
    """The supply, if the own lane has all, or what it lacks is better sold from rows; else None."""
    allocation, lane = Allocation({}, lanes.pages or ()), lanes.lane
    own = {p: allocation.units(lane, p) if lane is not None else 0 for p in need}
    sources = {p: lane for p, units in need.items() if lane is not None and own[p] >= units}
    lacks = [p for p in need if p not in sources and not lanes.is_sold_out(p)]
    # Where nobody waits for the depot, a visit that fills the lane is better than rows batch after batch.
    if client.line.is_empty and any(own[p] for p in lacks):
        return None
    if len(lacks) > _FEW_ROWS or any(client.rivals.are_met_on(p) for p in lacks):
        return None
    batch.read_unknown(p for p in batch.pending.product_ids if p not in sources)
    for product_id in batch.pending.product_ids:
        if product_id in sources or product_id not in batch.rows:
            continue
        row = batch.rows[product_id]
        lanes.observe_row(product_id, row)
        if row is not None and row.lent_to:
            is_short = row.spare < need.get(product_id, 0)
            if is_short or product_id in batch.to_reclaim:
                return None
        allocation.add_row(product_id, row)
    return Supply(allocation, sources)


class Visit:
    """One visit of the depot.

    Args:
        client: Sends the requests.
        lanes: What this process knows of lanes. If it has none of its own, all is sold at the depot.
        batch: What the batch knows. Rows that are read here, and what is wrong with items, are noted there.
        need: Units that open orders want from lanes, by product.
        commit: Commits chains of moves. Returns whether all of them are durable.
    """

    def __init__(
        self,
        client: RetryingClient,
        lanes: Lanes,
        batch: Batch,
        need: Mapping[str, int],
        commit: Callable[[Sequence[Chain]], bool],
    ) -> None:
        self._client = client
        self._lanes = lanes
        self._batch = batch
        self._need = need
        self._to_reclaim = batch.to_reclaim.intersection(batch.pending.product_ids)
        self._commit = commit
        self._in_use = 1
        self._allocation = Allocation({})
        # What is wrong with pages of the depot, by their numbers. Products that belong there are left alone.
        self._corrupt: dict[int, CorruptItemError] = {}

    def prepare(self) -> Supply | None:
        """Wait in line, and move units until as much as possible of what is needed can be sold.

        Returns:
            The supply, with moves that are not written yet; None if moves were lost or changes returned, and all has to be
            read again.

        Raises:
            StoreError: DynamoDB failed, or the wait was too long.
        """
        client, lanes, batch = self._client, self._lanes, self._batch
        self._in_use = lanes.count_in_use(batch.deadline, batch.stats)
        patience = Deadline.after(min(_PATIENCE, batch.deadline.remaining()), client.clock)
        lanes.depot_lease = lease = acquire_depot(client, patience, batch.stats, batch.age)
        alone = client.line.is_empty
        short = self._read_and_lend()
        if short is not None and (lent := {p for p in short if self._is_in_lanes(p)}):
            problem = self._recall(lent)
            short = self._read_and_lend()
            if problem is not None:
                left = {p for p in short or () if self._is_in_lanes(p)}
                batch.note_unreadable(dict.fromkeys(left, problem))
        if short is None:
            return None
        to_reclaim = [
            p
            for p in short
            if (row := self._allocation.row(p)).lent_to == {DEPOT} and not row.lease_left(batch.now)
        ]
        for product_id in next(iter(self._in_portions(to_reclaim, _FEW_LOANS)), ()):
            self._allocation.reclaim(product_id)
        sources = self._distribute()
        # A row that this visit has read may have lent.
        known = self._need.keys() | self._to_reclaim | self._allocation.rows.keys()
        for product_id in batch.pending.product_ids:
            if product_id in batch.rows.keys() - known:
                self._allocation.add_row(product_id, batch.rows[product_id])
        # Where every visit takes too long, no transaction would be applied that ends a lease which may be over by then.
        is_live = lease.ends_at - batch.now > VISIT_SECONDS / 4
        return Supply(self._allocation, sources, lease if is_live else None, alone)

    # ------------------------------------------------------------------ looking, and lending

    def _read_and_lend(self, *, again: bool = False) -> set[str] | None:
        """Read pages and rows, and lend. Returns the products that are short; None if loans were lost or changes returned."""
        shelves = [PageKey(DEPOT, number) for number in range(PAGES)]
        few = [p for p in self._need if not self._is_avoided(p)]
        # Read along with the pages, even if the depot has enough: that is quicker.
        along = few if len(few) <= _FEW_ROWS else []
        found = self._read([*self._lanes.keys, *shelves, *along])
        self._lanes.remember(found.pages[key] for key in self._lanes.keys)
        self._allocation = Allocation(
            {}, [self._sound(key, found.pages[key]) for key in (*self._lanes.keys, *shelves)]
        )
        corrupt = {
            p: why
            for p in (*self._need, *self._to_reclaim)
            if (why := self._corrupt.get(PageKey.of(DEPOT, p).number))
        }
        for product_id, why in corrupt.items():
            self._batch.pending.give_up_product(product_id, why.code, str(why))
        if corrupt:
            return None
        self._lanes.demand.observe_others(
            p for key in shelves for p in self._allocation.entries(key)
        )
        lacks = {p: n - have for p, n in self._need.items() if (have := self._own(p)) < n}
        look = [p for p, units in lacks.items() if self._should_read(p, units)]
        look += self._to_reclaim - self._batch.unreadable.keys()
        look += self._running_low(lacks, _FEW_LOANS - len(look))
        rows = {p: found.products[p] for p in look if p in found.products}
        if more := [p for p in look if p not in rows]:
            rows |= self._read(more).products
        for product_id, row in rows.items():
            self._allocation.add_row(product_id, row)
            self._lanes.observe_row(product_id, row)
        mixed = [p for p in {*self._need, *rows} if self._has_mixed_incarnations(p)]
        if mixed and not again:
            # It may have been listed again between the two reads.
            return self._read_and_lend(again=True)
        self._batch.note_unreadable(
            {p: CorruptItemError(_MIXED.format(p), "CORRUPT_PRODUCT") for p in mixed}
        )
        loans = {
            product_id: loan
            for product_id, row in rows.items()
            if row is not None
            and product_id not in self._batch.unreadable
            and product_id not in self._to_reclaim
            and (loan := self._to_lend(row, lacks.get(product_id, 0)))
        }
        if len(self._in_portions(loans, _FEW_LOANS)) > 1:
            if not self._commit(list(self._chains(loans))):
                return None
        else:
            for product_id, loan in loans.items():
                self._allocation.lend(product_id, *loan)
        wanted = {p for p, units in lacks.items() if self._allocation.units(DEPOT, p) < units}
        return {
            p
            for p in wanted | self._to_reclaim
            if self._allocation.rows.get(p) is not None and p not in self._batch.unreadable
        }

    def _sound(self, key: PageKey, page: Page | CorruptItemError) -> Page:
        """The page, or one that stands for it where it cannot be read: nothing that belongs there is touched."""
        if isinstance(page, Page):
            return page
        self._corrupt[key.number] = page
        return Page(key, 0, "")

    def _read(self, keys: Sequence[Key]) -> Snapshot:
        found = read(self._client, keys, self._batch.deadline, self._batch.stats)
        for product_id, row in found.products.items():
            self._batch.observe(product_id, row)
        self._batch.note_unreadable(found.unreadable)
        self._batch.set_aside(key for key in found.unprocessed if isinstance(key, str))
        if any(isinstance(key, PageKey) for key in found.unprocessed):
            raise ThrottledError("UNPROCESSED_KEYS", "no read answered for a page")
        return found

    def _own(self, product_id: str) -> int:
        lane = self._lanes.lane
        return 0 if lane is None else self._allocation.units(lane, product_id)

    def _has_mixed_incarnations(self, product_id: str) -> bool:
        """Whether row, depot and lane hold different incarnations of a product, which was listed again meanwhile."""
        allocation = self._allocation
        places = [allocation.entry(lane, product_id) for lane in {DEPOT, self._lanes.lane or DEPOT}]
        units_of = (*places, allocation.rows.get(product_id))
        return len({units.created_at for units in units_of if units is not None}) > 1

    def _is_in_lanes(self, product_id: str) -> bool:
        """Whether lanes may hold some of a product."""
        return bool(self._allocation.row(product_id).lent_to - {DEPOT})

    def _should_read(self, product_id: str, units: int) -> bool:
        """Whether to read a row: the depot has too little, and the row may have more."""
        if self._is_avoided(product_id) or PageKey.of(DEPOT, product_id).number in self._corrupt:
            return False
        held = self._allocation.entry(DEPOT, product_id)
        stored = held.units if held is not None else 0
        if stored < units or (held is not None and not held.reach):
            return stored < units
        return stored < self._low(product_id) and not self._lanes.is_drained(product_id)

    def _is_avoided(self, product_id: str) -> bool:
        """Whether a row is throttled or corrupt."""
        return product_id in self._batch.throttled or product_id in self._batch.unreadable

    def _low(self, product_id: str) -> float:
        """Units below which the depot runs low."""
        return _SPARE * self._in_use * self._lanes.demand.lane_target(product_id)

    def _running_low(self, known: Collection[str], most: int) -> list[str]:
        """Products that lanes hold and the depot has too few of: to lend before a lane gets a small share."""
        fast_sellers = self._lanes.demand.fast_sellers()
        low = (p for p in fast_sellers if p not in known and self._should_read(p, 0))
        return list(islice(low, max(0, most)))

    def _to_lend(self, row: Product, lacks: int) -> tuple[int, int] | None:
        """Units to lend from a row, and the last lane that may hold them: all it can lend, or at most half of a large stock."""
        product_id, lanes, demand = row.product_id, self._lanes, self._lanes.demand
        key = PageKey.of(DEPOT, product_id)
        stored, low = self._allocation.units(DEPOT, product_id), self._low(product_id)
        is_full = not stored and self._allocation.products_on(key) >= MAX_PRODUCTS
        if row.status is not ProductStatus.ACTIVE or is_full or row.lease_left(self._batch.now):
            return None
        surplus = row.stock_count - max(0, row.low_stock_threshold) - 1
        if surplus <= low:
            lanes.observe_drained(product_id)
            units = surplus
        else:
            most = max(demand.depot_target(product_id, self._in_use), low)
            units = min(surplus, max(lacks, min(surplus // 2, math.ceil(most))))
        if units <= 0 or units + stored < lacks:
            return None
        need = self._need.get(product_id, demand.last_quantity(product_id))
        is_wide = units + stored >= _SPARE * self._in_use * need
        return units, lanes.most if is_wide else DEPOT

    def _in_portions(self, product_ids: Iterable[str], most: int) -> list[list[str]]:
        """Products in portions of so many at the most, the rows of which leave room in a transaction for all else."""
        rows = self._allocation
        return in_portions(product_ids, most, lambda p: rows.row(p).size, Limits().size // 4)

    def _chains(self, loans: Mapping[str, tuple[int, int]]) -> Iterator[Chain]:
        """Transactions of many loans: one after the other for each page of the depot."""
        pages: dict[PageKey, list[str]] = {}
        for product_id in loans:
            pages.setdefault(PageKey.of(DEPOT, product_id), []).append(product_id)
        for mine in pages.values():
            waves = []
            for some in self._in_portions(mine, _MAX_LOANS):
                for product_id in some:
                    self._allocation.lend(product_id, *loans[product_id])
                waves.append((Transaction.of(self._allocation),))
            yield tuple(waves)

    # ------------------------------------------------------------------ recalling, and sharing out

    def _recall(self, product_ids: set[str]) -> CorruptItemError | None:
        """Move units of products from other lanes to the depot, with those of scarce products on the same pages.

        Returns the first problem, if some could not be moved.
        """
        numbers = {PageKey.of(DEPOT, product_id) for product_id in product_ids}
        scarce = (
            p
            for key in numbers
            for p, held in self._allocation.entries(key).items()
            if held.reach
            and held.units < self._in_use * self._lanes.demand.last_quantity(p)
            and p not in product_ids
            and not self._is_avoided(p)
        )
        together = islice(scarce, max(0, _RECALLED_TOGETHER - len(product_ids)))
        # Where one of them is, the others are: what is lent to lanes is lent to all of them.
        lanes = frozenset[int]().union(*(self._allocation.row(p).lent_to for p in product_ids))
        # Another program has left rows that lent products may not have: they reclaim their units at once.
        broken = {p for p in product_ids if not self._allocation.row(p).may_be_lent}
        client, deadline, stats = self._client, self._batch.deadline, self._batch.stats
        try:
            if broken:
                recall(client, broken, deadline, stats, lanes, Reclaim())
            if others := [*(product_ids - broken), *together]:
                recall(client, others, deadline, stats, lanes)
        except CorruptItemError as error:
            return error
        return None

    def _distribute(self) -> dict[str, int]:
        """Fill the lane, and give back what is too scarce for lanes. Returns the lane that sells each product."""
        allocation, lane = self._allocation, self._lanes.lane
        if lane is None:
            return {
                product_id: DEPOT
                for product_id in self._need
                if allocation.units(DEPOT, product_id)
            }
        sources: dict[str, int] = {}
        # Page by page, because a visit does this for each product that is lent: it takes most of its CPU.
        for key in self._lanes.keys:
            if key.number in self._corrupt:
                continue
            own, shelf = allocation.entries(key), allocation.entries(PageKey(DEPOT, key.number))
            for product_id in [*shelf, *(p for p in own if p not in shelf)]:
                mine, there = own.get(product_id), shelf.get(product_id)
                if (
                    mine is not None
                    and there is not None
                    and self._has_mixed_incarnations(product_id)
                ):
                    continue
                have = mine.units if mine is not None else 0
                target = self._target(product_id, lane, have, there)
                if there is not None and target > have:
                    allocation.fill(lane, product_id, min(target - have, there.units))
                elif target < have:
                    allocation.give_back(lane, product_id)
                if product_id in self._need:
                    sources[product_id] = lane if target else DEPOT
        return sources

    def _target(self, product_id: str, lane: int, have: int, there: PageEntry | None) -> int:
        """Units that the lane, which has some, shall hold; 0 if the depot sells the product."""
        demand, need = self._lanes.demand, self._need.get(product_id, 0)
        use = demand.last_quantity(product_id)
        at_depot = there.units if there is not None else 0
        share = (have + at_depot) / (_SPARE * self._in_use)
        is_narrow = there is not None and there.reach < lane
        if demand.is_idle(product_id):
            return 0
        if not is_narrow and share >= max(use, need):
            most = min(demand.lane_target(product_id, at_depot / self._in_use), share)
            return max(need, have, math.floor(most))
        return have if need <= have <= 2 * use + need else 0
