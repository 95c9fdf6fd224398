"""The first policy that was studied: lanes that draw from the rows themselves, more or fewer of them as stock allows."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from bench.simulator.lanes.shop import Order, Row, Shop, page_units
from bench.simulator.lanes.store import Item, Read, Table, Write, place_of, together
from bench.simulator.lanes.worker import (
    ACTIONS,
    ENTRY_CPU,
    PAGES,
    Entry,
    Run,
    Worker,
    set_units,
    wanted,
)

DRAW_BATCHES, POOR_BATCHES = 400, 60
"""For so many batches a draw takes units, and with fewer than so many left for each lane a product is poor."""

DRAW_PRODUCTS, RECALL_PRODUCTS = 90, 95
"""Most products of a transaction that draws, and of one that recalls or drains."""

TOO_POOR, DEEP = 20, 5
"""With more poor products than the first there are too many lanes, with fewer than the second too few."""

SHRINK_SECONDS, GROW_SECONDS, DRAIN_SECONDS = 2.0, 3.0, 6.0
BATCHES_TO_GROW = 10
CLAIM_SECONDS = 30.0


class Lanes:
    """What the workers share: the number of lanes in use, and a lease for each lane.

    Args:
        shop: The shop.
        table: The table of the leases.
        workers: Number of workers.
        lanes: Lanes in use at the start.
        adapts: Whether their number changes.
    """

    def __init__(self, shop: Shop, table: Table, workers: int, lanes: int, *, adapts: bool) -> None:
        self.shop, self.workers, self.adapts = shop, workers, adapts
        # Its value: lanes in use, when that changed, and until when a lane is being drained.
        self.number = Item(table, place_of("lanes"), (lanes, 0.0, -math.inf))
        self.leases = [Item(table, place_of("lease", lane), 0.0) for lane in range(workers)]


class GrowingWorker(Worker):
    """A worker that shares a lane, or has one of its own."""

    def __init__(self, run: Run, number: int, lanes: Lanes) -> None:
        super().__init__(run, number)
        self._lanes = lanes
        self._lane = -1
        self._memory: list[Read] | None = None
        self._poverty = 0.0
        self._batches_here = 0
        self._n = 1
        self._poor: set[int] = set()
        self._by_row = 0
        self._claimed: Item | None = None

    def serve(self, orders: Sequence[Order]) -> None:
        self._come_to_lane()
        self._poor, self._by_row = set(), 0
        lost: set[int] = set()
        pending = list(orders)
        while pending:
            pending = self._round(pending, lost)
        self._leave_row()
        shared = self._is_shared
        if shared:
            lease = self._lanes.leases[self._lane]
            self.run.scheduler.start(partial(self.run.store.release, lease, self, lease.value))
        if self._lanes.adapts:
            self._adapt(len(orders))

    # ------------------------------------------------------------------ lanes

    @property
    def _is_shared(self) -> bool:
        return self._n < self._lanes.workers

    def _come_to_lane(self) -> None:
        """Find the lane, stand in line for it if it is shared, and read its pages."""
        lanes = self._lanes
        while True:
            self._n = self.run.store.read([lanes.number])[lanes.number].value[0]
            if self._lane >= self._n:
                self._drain()
            lane = self.number % self._n
            if lane != self._lane:
                self._lane, self._memory, self._batches_here = lane, None, 0
            if not self._is_shared:
                self._read_pages()
                return
            pages: list[Read] = []
            lease = lanes.leases[lane]

            def look(pages: list[Read] = pages) -> None:
                pages[:] = self._pages()

            self.wait_for(lease, CLAIM_SECONDS, 2.0, math.inf, look)
            self._memory = pages
            if lanes.number.value[0] == self._n:
                return
            self.run.store.release(lease, self, lease.value)

    def _pages(self) -> list[Read]:
        items = [self.run.shop.page(self._lane, number) for number in range(PAGES)]
        read = self.run.store.read(items, 15)
        self.run.store.compute(ENTRY_CPU * sum(len(page.value) for page in read.values()))
        return [read[item] for item in items]

    def _read_pages(self) -> list[Read]:
        if self._memory is None:
            self._memory = self._pages()
        return self._memory

    def _adapt(self, orders: int) -> None:
        """Use more lanes while stock is deep, and fewer when many products are too poor to lend."""
        hit = 40 * self._by_row / orders
        self._poverty = 0.7 * self._poverty + 0.3 * max(len(self._poor), hit)
        self._batches_here += 1
        item = self._lanes.number
        n, changed, draining = item.value
        now = self.now
        if self._poverty > TOO_POOR and n > 1 and now > changed + SHRINK_SECONDS and now > draining:
            value = (n - max(1, n // 4), now, now + DRAIN_SECONDS)
        elif (
            self._poverty < DEEP
            and n < self._lanes.workers
            and now > changed + GROW_SECONDS
            and self._batches_here >= BATCHES_TO_GROW
            and now > draining
        ):
            value = (n + 1, now, -math.inf)
        else:
            return
        self.transact("lanes", [Write(item, item.version, value)])

    def _drain(self) -> None:
        """Bring all units of a lane that is not used any more back to the rows."""
        self._memory = None
        while products := [
            p for page in self._read_pages() for p, units in page.value.items() if units
        ]:
            self._take_back(products[:RECALL_PRODUCTS], [self._lane])
            self._memory = None
        n, changed, _ = self._lanes.number.value
        self._lanes.number.value = (n, changed, -math.inf)

    # ------------------------------------------------------------------ one round

    def _round(self, pending: list[Order], lost: set[int]) -> list[Order]:
        """Answer what can be answered. Returns the orders that are still open."""
        need = wanted(pending)
        lane = self._read_pages()
        lack = {p: units for p, units in need.items() if lane[p % PAGES].value.get(p, 0) < units}
        rows = self._read_rows(lack) if lack else {}
        draws: dict[int, int] = {}
        for p, units in lack.items():
            cap = (rows[p].value.stock - 1) / (2 * self._n)
            plenty = DRAW_BATCHES * 99 * self.demand.rate(p)
            lot = int(min(max(units, plenty), cap))
            few = units + POOR_BATCHES * 99 * self.demand.rate(p)
            if cap < min(plenty, few) or cap < 2 * units:
                self._poor.add(p)
            if p not in lost and lot >= 2 * units:
                draws[p] = lot
        if draws:
            lost |= self._draw(draws, rows)
            lane = self._read_pages()
        sources = {p: rows[p] for p in lack if p not in draws or p in lost}
        if sources and not self._is_shared:
            self._claim_hottest(sources)
        return self._place(pending, sources)

    def _read_rows(self, products: Collection[int]) -> dict[int, Read]:
        items = self.run.shop.rows
        read = self.run.store.read([items[p] for p in products])
        return {p: read[items[p]] for p in products}

    def _draw(self, draws: Mapping[int, int], rows: dict[int, Read]) -> set[int]:
        """Draw units into the lane. Returns the products that were lost on."""
        lost: set[int] = set()

        def draw(number: int) -> None:
            left = [p for p in draws if p % PAGES == number]
            while left:
                part = left[:DRAW_PRODUCTS]
                page = self._read_pages()[number]
                new = dict(page.value)
                writes = []
                for p in part:
                    row: Row = rows[p].value
                    set_units(new, p, new.get(p, 0) + draws[p])
                    value = Row(row.stock - draws[p], row.lent | {self._lane})
                    writes.append(Write(self.run.shop.rows[p], rows[p].version, value))
                item = self.run.shop.page(self._lane, number)
                writes.append(Write(item, page.version, new, page_units(page.value, new)))
                self.run.store.compute(ENTRY_CPU * len(new))
                cancelled = self.transact("draw", writes)
                if cancelled is None:
                    if self._memory is not None:
                        self._memory[number] = Read(page.version + 1, new)
                    for p in part:
                        rows[p] = Read(rows[p].version + 1, None)
                    left = left[len(part) :]
                    continue
                if item in cancelled.lost:
                    lost.update(left)
                    self._memory = None
                    return
                losers = {p for p in part if self.run.shop.rows[p] in cancelled.lost}
                lost.update(losers)
                left = [p for p in left if p not in losers]

        together(self.run.scheduler, [partial(draw, n) for n in {p % PAGES for p in draws}])
        return lost

    def _claim_hottest(self, sources: Mapping[int, Read]) -> None:
        """Claim the row that most orders want, as the service does today, if this worker lost before."""
        hottest = max(sources, key=lambda p: (self.demand.rate(p), p))
        item = self.run.shop.rows[hottest]
        self._leave_row()
        if not self._by_row:
            return
        if self.wait_for(item, 2.0, 0.3, 5.0, lambda: None) is not None:
            self._claimed = item

    def _leave_row(self) -> None:
        if self._claimed is not None and self._claimed.owner is self:
            self._claimed.claimed_until = -math.inf
        self._claimed = None

    # ------------------------------------------------------------------ orders

    def _place(self, pending: Sequence[Order], sources: dict[int, Read]) -> list[Order]:
        """Write orders: those that are all in the lane first, then those with rows. Returns what is open."""
        if sources:
            sources.update(self._read_rows(sources))
        lane = self._read_pages()
        own = [dict(page.value) for page in lane]
        rows: dict[int, Row] = {}
        for p, read in sources.items():
            row: Row = read.value
            # What the lane held of a product that was recalled is in the row already.
            mine = own[p % PAGES].get(p, 0) if self._lane in row.lent else 0
            rows[p] = Row(row.stock + mine, row.lent - {self._lane})
        from_lane: list[Entry] = []
        with_rows: list[Entry] = []
        short: set[int] = set()
        held: list[Order] = []
        budget: dict[int, int] = {}
        for order in pending:
            lacks = None
            for p, quantity in order.lines:
                if p not in budget:
                    budget[p] = rows[p].stock if p in rows else own[p % PAGES].get(p, 0)
                spare = 1 if p in rows and rows[p].lent else 0
                if budget[p] - spare < quantity:
                    lacks = p
                    break
            if lacks is None:
                for p, quantity in order.lines:
                    budget[p] -= quantity
                uses_rows = any(p in rows for p, _ in order.lines)
                (with_rows if uses_rows else from_lane).append((order, None))
            elif lacks in rows and not rows[lacks].lent:
                with_rows.append((order, lacks))
            else:
                if lacks in rows:
                    short.add(lacks)
                held.append(order)
        with_rows.sort(key=lambda entry: entry[1] is not None)
        left = list(held)
        self._by_row += sum(entry[1] is None for entry in with_rows)
        stopped = False
        for group in (*_groups(from_lane, rows), *_groups(with_rows, rows)):
            stopped = stopped or not self._write(group, sources, rows)
            if stopped:
                left += [order for order, _ in group]
        if short and not stopped:
            self._take_back(list(short)[:RECALL_PRODUCTS], None)
        elif stopped:
            self.pause(0.0, 0.05)
        return left

    def _write(
        self, group: Sequence[Entry], sources: dict[int, Read], rows: dict[int, Row]
    ) -> bool:
        """Write some decisions in one transaction."""
        lane = self._read_pages()
        placed = [order for order, lacks in group if lacks is None]
        rejected = [(order, lacks) for order, lacks in group if lacks is not None]
        pages: dict[int, dict[int, int]] = {}
        writes = []
        changed: dict[int, Row] = {}
        for p, units in wanted(placed).items():
            number = p % PAGES
            if p not in rows or self._lane in sources[p].value.lent:
                pages.setdefault(number, dict(lane[number].value))
            if p in rows:
                # What the lane has of it goes back: a product has one source.
                row = sources[p].value
                mine = pages[number].pop(p, 0) if self._lane in row.lent else 0
                changed[p] = Row(row.stock + mine - units, row.lent - {self._lane})
                writes.append(Write(self.run.shop.rows[p], sources[p].version, changed[p]))
            else:
                set_units(pages[number], p, pages[number].get(p, 0) - units)
        for number, page in pages.items():
            item = self.run.shop.page(self._lane, number)
            cost = page_units(lane[number].value, page)
            writes.append(Write(item, lane[number].version, page, cost))
        self.run.store.compute(ENTRY_CPU * sum(map(len, pages.values())))
        if self.transact("orders", writes, placed, rejected) is not None:
            self._memory = None
            return False
        for number, page in pages.items():
            lane[number] = Read(lane[number].version + 1, page)
        for p, after in changed.items():
            sources[p] = Read(sources[p].version + 1, after)
        return True

    def _take_back(self, products: Sequence[int], lanes: Sequence[int] | None) -> None:
        """Bring units of products back from lanes to their rows: from all that may hold some, or from one."""
        shop = self.run.shop
        left = set(products)
        one_by_one = False
        for _ in range(8):
            rows = self._read_rows(left)
            there = {
                p: rows[p].value.lent if lanes is None else rows[p].value.lent & {*lanes}
                for p in left
            }
            left = {p for p in left if there[p]}
            if not left:
                break
            every = sorted(frozenset().union(*there.values()))
            numbers = {p % PAGES for p in left}
            items = {(lane, n): shop.page(lane, n) for lane in every for n in numbers}
            read = self.run.store.read(list(items.values()), 15)
            groups = [[lane] for lane in every] if one_by_one else [every]
            for group in groups:
                for number in numbers:
                    part = [p for p in left if p % PAGES == number][: ACTIONS - len(group)]
                    self._take(part, group, number, items, read, rows)
            one_by_one = not one_by_one
        self._memory = None

    def _take(
        self,
        products: Sequence[int],
        lanes: Sequence[int],
        number: int,
        items: Mapping[tuple[int, int], Item],
        read: dict[Item, Read],
        rows: dict[int, Read],
    ) -> None:
        back = dict.fromkeys(products, 0)
        writes = []
        news: dict[Item, Read] = {}
        for lane in lanes:
            item = items[lane, number]
            before = read[item].value
            after = {p: units for p, units in before.items() if p not in back}
            for p in products:
                back[p] += before.get(p, 0)
            changed = len(after) < len(before)
            writes.append(
                Write(item, read[item].version, after if changed else None, page_units(before))
            )
            news[item] = Read(read[item].version + changed, after)
        for p in products:
            row: Row = rows[p].value
            value = Row(row.stock + back[p], row.lent - {*lanes})
            writes.append(Write(self.run.shop.rows[p], rows[p].version, value))
        if self.transact("recall", writes) is None:
            read.update(news)
            for p in products:
                row = rows[p].value
                rows[p] = Read(rows[p].version + 1, Row(row.stock + back[p], row.lent - {*lanes}))


def _groups(entries: Sequence[Entry], rows: Collection[int]) -> list[list[Entry]]:
    """Divide decisions into transactions."""
    groups: list[list[Entry]] = []
    touched: set[object] = set()
    for entry in entries:
        new: set[object] = set()
        if entry[1] is None:
            for p, _ in entry[0].lines:
                new.add(("page", p % PAGES))
                if p in rows:
                    new.add(p)
        if not groups or len(groups[-1]) + len(touched | new) + 1 > ACTIONS:
            groups.append([])
            touched = set()
        groups[-1].append(entry)
        touched |= new
    return groups
