"""A policy: lanes that are filled from a depot, which is a lane too and the only one that draws from the rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from bench.simulator.lanes.shop import Order, Row, Shelf, Shop, page_units
from bench.simulator.lanes.store import Item, Read, Write, place_of, together
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

DEPOT = 0
"""The lane that draws. The lanes of the workers count from 1."""

CLAIM_SECONDS = 2.0
"""How long a claim of the depot lasts if its owner dies."""

LANE_ORDERS = 2_000
"""A lane is filled up for so many orders, 20 batches."""

DEPOT_ORDERS = 40_000
"""The depot draws for so many orders for each lane in use."""

SPARE = 2
"""A product is lent to lanes while there are so many times the lanes' need of it."""

MEMORY = 120.0
"""Seconds after which a product that no order wanted is not lent any more."""

FEW_ROWS = 10
"""If a batch lacks no more than so many products, and all are seldom sold, then they are sold from their rows."""

FEW_DRAWS = 40
"""So many draws at the most go into the transaction that fills the lane."""

POOR_SECONDS = 10.0
"""For so long a row that had little left is not looked at again without need."""

IN_USE = 30.0
"""A lane that visited the depot in the last so many seconds is in use."""

NO_LINE = 0.02
"""Below so many seconds of an average wait nobody stands in line at the depot."""

PATIENCE = 20.0
"""Seconds in line after which a worker hands its batch back."""

_ROOM_FOR_ROWS = 60


class Depot:
    """What the workers share: the lease of the depot, and how many lanes there may be.

    Args:
        shop: The shop.
        lanes: Lanes of workers.
        spare: See `SPARE`; infinite if lanes get nothing, and the depot sells all.
    """

    def __init__(self, shop: Shop, lanes: int, spare: float = SPARE) -> None:
        self.spare = spare
        self.narrow = frozenset({DEPOT})
        self.wide = frozenset(range(lanes + 1))
        pages = [shop.page(DEPOT, number) for number in range(PAGES)]
        for page in pages:
            page.value = Shelf()
        # Its value: when each lane was there last, how long one waits, and the number of recalls.
        self.lease = Item(pages[0].table, place_of("lease", DEPOT), ({}, 0.0, 0))

    def fill(self, shop: Shop) -> None:
        """Let the depot hold half of what is left in the rows of products that lanes hold."""
        for product, item in enumerate(shop.rows):
            if item.value.lent and (units := item.value.stock // 2):
                item.value = Row(item.value.stock - units, item.value.lent)
                shop.page(DEPOT, product % PAGES).value[product] = units


class _Draft:
    """What a worker has read and wants to write: pages of its lane, pages of the depot, and rows."""

    def __init__(
        self, lane: Sequence[Read], shelves: Sequence[Read], rows: Mapping[int, Read]
    ) -> None:
        self.lane, self.shelves, self.rows = list(lane), list(shelves), dict(rows)
        self.own: list[dict[int, int]] = [dict(page.value) for page in lane]
        self.stock = [Shelf(page.value, page.value.narrow) for page in shelves]
        self.new_rows: dict[int, Row] = {}

    def row(self, product: int) -> Row:
        """The row as it shall be."""
        row: Row = self.new_rows.get(product) or self.rows[product].value
        return row


class DepotWorker(Worker):
    """A worker with a lane of its own."""

    def __init__(self, run: Run, number: int, depot: Depot) -> None:
        super().__init__(run, number)
        self.lane = number + 1
        self._depot = depot
        self._own = [run.shop.page(self.lane, page) for page in range(PAGES)]
        self._shelves = [run.shop.page(DEPOT, page) for page in range(PAGES)]
        self._memory: list[Read] | None = None
        self._sold_out: set[int] = set()
        self._poor_until: dict[int, float] = {}
        self._fought: set[int] = set()
        self._holds = False
        self._lease = Read(0, ({}, 0.0, 0))
        self._waited = 0.0
        self._claimed_at = 0.0
        self._recalls = 0

    def serve(self, orders: Sequence[Order]) -> None:
        pending = list(orders)
        self._fought = set()
        while pending := self._round(pending):
            self.pause(0.0, 0.02)

    # ------------------------------------------------------------------ without the depot

    def _round(self, pending: list[Order]) -> list[Order]:
        """Answer what can be answered. Returns the orders that are still open."""
        need = wanted(pending)
        lane = self._remembered()
        lack = {
            p: units - have
            for p, units in need.items()
            if (have := lane[p % PAGES].value.get(p, 0)) < units
        }
        rows = self._look_at_rows(lack, need) if lack else {}
        if len(rows) < len(lack):
            return self._visit(pending, need, rows)
        draft = _Draft(lane, (), rows)
        return self._place(draft, *self._allot(pending, self._budget(draft, need, rows), rows))

    def _remembered(self) -> list[Read]:
        if self._memory is None:
            read = self.run.store.read(self._own, 15)
            self._memory = [read[page] for page in self._own]
            self._unpack(self._memory)
        return self._memory

    def _look_at_rows(self, lack: Collection[int], need: Mapping[int, int]) -> dict[int, Read]:
        """Read the rows of what is sold out, and of the few that are seldom sold: these go by their rows."""
        lane = self._remembered()
        out = [p for p in lack if p in self._sold_out]
        seldom = [
            p
            for p in lack
            if p not in self._sold_out
            and p not in self._fought
            and self.demand.is_seldom(p, self.now, MEMORY)
            and not lane[p % PAGES].value.get(p)
        ]
        is_quiet = len(seldom) <= FEW_ROWS and len(seldom) + len(out) == len(lack)
        if not (wish := [*out, *seldom] if is_quiet else out):
            return {}
        read = self._read_rows(wish)
        usable = {}
        for p, row in read.items():
            if p in self._sold_out and (row.value.stock or row.value.lent):
                self._sold_out.discard(p)
            elif p in self._sold_out or row.value.stock - bool(row.value.lent) >= need[p]:
                usable[p] = row
        return usable

    def _read_rows(self, products: Collection[int]) -> dict[int, Read]:
        items = self.run.shop.rows
        read = self.run.store.read([items[p] for p in products])
        return {p: read[items[p]] for p in products}

    def _budget(
        self, draft: _Draft, need: Collection[int], rows: Collection[int]
    ) -> dict[int, int]:
        """Units that orders can have now, by product."""
        budget = {}
        for p in need:
            if p in rows:
                row = draft.row(p)
                budget[p] = row.stock - bool(row.lent)
            else:
                budget[p] = draft.own[p % PAGES].get(p, 0)
                if draft.stock:
                    budget[p] += draft.stock[p % PAGES].get(p, 0)
        return budget

    def _allot(
        self, pending: Sequence[Order], budget: dict[int, int], rows: Mapping[int, Read]
    ) -> tuple[list[Entry], list[Order]]:
        """Decide orders in the order of arrival. Returns what is decided, and what is held."""
        decided: list[Entry] = []
        held = []
        for order in pending:
            short = [p for p, quantity in order.lines if budget[p] < quantity]
            if not short:
                for p, quantity in order.lines:
                    budget[p] -= quantity
                decided.append((order, None))
            elif (
                ended := next((p for p in short if p in rows and not rows[p].value.lent), None)
            ) is None:
                held.append(order)
            else:
                decided.append((order, ended))
        return decided, held

    # ------------------------------------------------------------------ at the depot

    def _visit(
        self,
        pending: list[Order],
        need: Mapping[int, int],
        rows: dict[int, Read],
    ) -> list[Order]:
        """Fill the lane from the depot and the depot from the rows, and sell what is too scarce for lanes."""
        shelves = self._stand_in_line()
        if shelves is None:
            self.run.handed_back += len(pending)
            return []
        lanes = self._lanes_in_use()
        draft, short, wide = self._look_and_draw(need, rows, shelves, lanes)
        if wide:
            self._recall(wide, shelves, lanes, need)
            read = self.run.store.read(self._shelves, 15)
            shelves = [read[page] for page in self._shelves]
            draft, short, wide = self._look_and_draw(need, rows, shelves, lanes)
        for p in short - wide:
            self._return_to_row(draft, p)
            rows[p] = Read(0, draft.row(p))
        poor = self._share_out(draft, need, lanes, rows)
        decided, held = self._allot(pending, self._budget(draft, need, rows), rows)
        if not self._commit_draws(draft):
            return pending
        return self._place(draft, decided, held, poor | (short - wide))

    def _look_and_draw(
        self,
        need: Mapping[int, int],
        rows: Mapping[int, Read],
        shelves: Sequence[Read],
        lanes: int,
    ) -> tuple[_Draft, set[int], set[int]]:
        """Plan what to draw. Returns also what is short, and what of that other lanes may hold."""
        self._unpack(shelves)
        lane = self._remembered()
        lack = {
            p: units - have
            for p, units in need.items()
            if p not in rows and (have := lane[p % PAGES].value.get(p, 0)) < units
        }
        look = [p for p, units in lack.items() if self._is_to_look(p, units, shelves, lanes)]
        look += self._running_low(shelves, lanes, {*look, *rows}, FEW_DRAWS - len(look))
        draft = _Draft(lane, shelves, {**rows, **(self._read_rows(look) if look else {})})
        self._draw(draft, look, lack, lanes, need)
        short = {p for p, units in lack.items() if draft.stock[p % PAGES].get(p, 0) < units}
        wide = {p for p in short if p in draft.rows and draft.row(p).lent > self._depot.narrow}
        return draft, short, wide

    def _running_low(
        self, shelves: Sequence[Read], lanes: int, known: Collection[int], most: int
    ) -> list[int]:
        """Products that lanes hold and the depot has too few of: to draw before a lane gets a small share."""
        found: list[int] = []
        if most <= 0:
            return found
        oldest = self.now - MEMORY
        for p, last in self.demand.last.items():
            if p not in known and last > oldest and self._is_to_look(p, 0, shelves, lanes):
                found.append(p)
                if len(found) == most:
                    break
        return found

    def _is_to_look(self, product: int, units: int, shelves: Sequence[Read], lanes: int) -> bool:
        """Whether to read a row: the depot has too little, and the row may have more."""
        shelf = shelves[product % PAGES].value
        stored = shelf.get(product, 0)
        if stored < units or product in shelf.narrow:
            return bool(stored < units)
        low = SPARE * lanes * self._level(product)
        return stored < low and self.now > self._poor_until.get(product, 0.0)

    def _draw(
        self,
        draft: _Draft,
        look: Collection[int],
        lack: Mapping[int, int],
        lanes: int,
        need: Mapping[int, int],
    ) -> None:
        """Draw from rows to the depot: all that is left of a poor row, half of a rich one at the most."""
        for p in look:
            row = draft.row(p)
            lacks = lack.get(p, 0)
            surplus = row.stock - 1
            shelf = draft.stock[p % PAGES]
            stored = shelf.get(p, 0)
            low = SPARE * lanes * self._level(p)
            if surplus <= low:
                self._poor_until[p] = self.now + POOR_SECONDS
                draw = surplus
            else:
                most = max(DEPOT_ORDERS * lanes * self.demand.rate(p), low)
                draw = min(surplus, max(lacks, min(surplus // 2, math.ceil(most))))
            if draw <= 0 or draw + stored < lacks:
                continue
            lent = row.lent | self._depot.narrow
            if draw + stored >= self._depot.spare * lanes * need.get(p, self.demand.use[p]):
                lent = self._depot.wide
                shelf.narrow -= {p}
            elif lent == self._depot.narrow:
                shelf.narrow |= {p}
            draft.new_rows[p] = Row(row.stock - draw, lent)
            set_units(shelf, p, stored + draw)

    def _return_to_row(self, draft: _Draft, product: int) -> None:
        """Bring back what the depot has of a product, and what the own lane has: the row sells the rest."""
        row, shelf = draft.row(product), draft.stock[product % PAGES]
        units = shelf.pop(product, 0)
        shelf.narrow -= {product}
        if units or row.lent:
            draft.new_rows[product] = Row(row.stock + units, frozenset())

    def _share_out(
        self,
        draft: _Draft,
        need: Mapping[int, int],
        lanes: int,
        rows: Collection[int],
    ) -> set[int]:
        """Fill the lane, and take back what is too scarce for lanes. Returns what the depot itself sells now."""
        self._hear_of(draft.stock)
        poor = set()
        oldest = self.now - MEMORY
        demand = self.demand
        for p, last in demand.last.items():
            own, shelf = draft.own[p % PAGES], draft.stock[p % PAGES]
            have, there = own.get(p, 0), shelf.get(p, 0)
            if not there and not have:
                continue
            share = (have + there) / (self._depot.spare * lanes)
            wants = need.get(p, 0)
            is_rich = p not in shelf.narrow and share >= max(demand.use[p], wants) and last > oldest
            if is_rich:
                target = max(wants, have, math.floor(min(self._level(p), share)))
            elif have >= wants and have <= 2 * demand.use[p] + wants:
                continue
            else:
                target = 0
                if wants and p not in rows:
                    poor.add(p)
                    self.run.scarce.setdefault(p, self.now)
            if step := min(target - have, there):
                set_units(own, p, have + step)
                set_units(shelf, p, there - step)
        return poor

    def _hear_of(self, stock: Sequence[Shelf]) -> None:
        """Products in the depot are wanted somewhere: they are as if seen once."""
        last, use = self.demand.last, self.demand.use
        for shelf in stock:
            for p in shelf:
                if p not in last:
                    last[p], use[p] = self.now, 1

    def _commit_draws(self, draft: _Draft) -> bool:
        """Write the draws first, page by page side by side, if they are many."""
        drawn = [p for p in draft.new_rows if draft.row(p).lent]
        if len(drawn) <= FEW_DRAWS:
            return True
        failed = []

        def commit(number: int) -> None:
            shelf = Shelf(draft.shelves[number].value, draft.shelves[number].value.narrow)
            mine = [p for p in drawn if p % PAGES == number]
            for start in range(0, len(mine), ACTIONS - 1):
                part = mine[start : start + ACTIONS - 1]
                before, shelf = shelf, Shelf(shelf, shelf.narrow)
                writes = []
                for p in part:
                    row = draft.row(p)
                    set_units(shelf, p, shelf.get(p, 0) + draft.rows[p].value.stock - row.stock)
                    if p in draft.stock[number].narrow:
                        shelf.narrow |= {p}
                    else:
                        shelf.narrow -= {p}
                    writes.append(Write(self.run.shop.rows[p], draft.rows[p].version, row))
                version = draft.shelves[number].version
                units = page_units(before, shelf)
                writes.append(Write(self._shelves[number], version, shelf, units))
                while (cancelled := self.transact("draw", writes)) is not None:
                    if cancelled.lost or self.now > self._claimed_at + 0.75 * CLAIM_SECONDS:
                        failed.append(number)
                        return
                draft.shelves[number] = Read(version + 1, shelf)
                for p in part:
                    draft.rows[p] = Read(draft.rows[p].version + 1, draft.new_rows.pop(p))

        calls = [partial(commit, number) for number in {p % PAGES for p in drawn}]
        together(self.run.scheduler, calls)
        if failed:
            self._leave()
            self.pause(0.0, 0.02)
        return not failed

    def _recall(
        self,
        products: set[int],
        shelves: Sequence[Read],
        lanes: int,
        need: Mapping[int, int],
    ) -> None:
        """Bring what lanes hold of products back to the depot. Those that are scarce no lane may hold any more."""
        shop = self.run.shop
        others = [
            p
            for number, shelf in enumerate(shelves)
            for p, units in shelf.value.items()
            if p not in shelf.value.narrow
            and p % PAGES == number
            and units < lanes * self.demand.use.get(p, 1)
        ]
        numbers = {p % PAGES for p in products}
        chosen = [*products, *(p for p in others if p not in products and p % PAGES in numbers)]
        left = set(chosen[: max(len(products), _ROOM_FOR_ROWS)])
        busy: set[int] = set()
        plenty: set[int] = set()
        for attempt in range(4):
            left -= plenty
            rows = self._read_rows(left) if left else {}
            left = {p for p in left if rows[p].value.lent > self._depot.narrow}
            if not left:
                break
            lent = sorted(frozenset().union(*(rows[p].value.lent for p in left)))
            pages = {(lane, n): shop.page(lane, n) for n in numbers for lane in lent}
            read = self.run.store.read(list(pages.values()), 15)
            avoid = busy if attempt % 2 else set()
            busy = set()
            for part in _parts(left, len(lent), numbers):
                enough = {
                    p: self._depot.spare * lanes * need.get(p, self.demand.use.get(p, 1))
                    for p in part
                }
                writes, owners, rich = self._back(part, rows, pages, read, avoid, enough)
                cancelled = self.transact("recall", writes)
                if cancelled is not None:
                    busy |= {owners[item] for item in cancelled.lost if item in owners}
                    if cancelled.throttled:
                        break
                else:
                    plenty |= rich
            if busy:
                self.pause(0.005, 0.02)
        self._memory = None
        self._recalls += 1

    def _back(
        self,
        products: Collection[int],
        rows: Mapping[int, Read],
        pages: Mapping[tuple[int, int], Item],
        read: dict[Item, Read],
        avoid: Collection[int],
        enough: Mapping[int, float],
    ) -> tuple[list[Write], dict[Item, int], set[int]]:
        """Make the transaction that moves products from lanes to the depot.

        Returns also whose the pages are, and the products of which there is enough for lanes after all.
        """
        writes, owners = [], {}
        back = dict.fromkeys(products, 0)
        numbers = {p % PAGES for p in products}
        for (lane, number), page in pages.items():
            if number not in numbers or lane in avoid or lane == DEPOT:
                continue
            before = read[page].value
            after = {p: units for p, units in before.items() if p not in back}
            for p in products:
                if p % PAGES == number:
                    back[p] += before.get(p, 0)
            changed = len(after) < len(before)
            writes.append(
                Write(page, read[page].version, after if changed else None, page_units(before))
            )
            owners[page] = lane
            if changed:
                read[page] = Read(read[page].version + 1, after)
        kept = frozenset(avoid) | self._depot.narrow
        rich: set[int] = set()
        for number in numbers:
            page = pages[DEPOT, number]
            shelf = Shelf(read[page].value, read[page].value.narrow)
            for p in products:
                if p % PAGES == number:
                    set_units(shelf, p, shelf.get(p, 0) + back[p])
                    if shelf.get(p, 0) >= enough[p] and p not in shelf.narrow:
                        rich.add(p)
                    else:
                        # Also while some lane may still hold more: it must not get any.
                        shelf.narrow |= {p}
            writes.append(Write(page, read[page].version, shelf, page_units(shelf)))
            read[page] = Read(read[page].version + 1, shelf)
        for p in products:
            if p not in rich:
                row: Row = rows[p].value
                value = Row(row.stock, row.lent & kept)
                writes.append(Write(self.run.shop.rows[p], rows[p].version, value))
        return writes, owners, rich

    # ------------------------------------------------------------------ the line

    def _stand_in_line(self) -> list[Read] | None:
        """Claim the depot, and read it at the same time. None if it takes too long."""
        lease = self._depot.lease
        shelves: list[Read] = []

        def look() -> None:
            read = self.run.store.read(self._shelves, 15)
            shelves[:] = [read[page] for page in self._shelves]

        waited = self.wait_for(lease, CLAIM_SECONDS, lease.value[1], PATIENCE, look)
        if waited is None:
            return None
        self._lease, self._waited, self._holds = Read(lease.version, lease.value), waited, True
        self._claimed_at = self.now
        if self._recalls != lease.value[2]:
            # Somebody may have taken units out of this lane.
            self._recalls, self._memory = lease.value[2], None
        return shelves

    def _release(self) -> Write:
        """The write that ends the claim of the depot."""
        visits, wait, _ = self._lease.value
        visits = {**visits, self.lane: self.now}
        value = (visits, 0.8 * wait + 0.2 * self._waited, self._recalls)
        return Write(self._depot.lease, self._lease.version, value, 2, releases=True)

    def _leave(self) -> None:
        """Release the depot without waiting for it."""
        if self._holds:
            self._holds = False
            value = self._release().value
            store, lease = self.run.store, self._depot.lease
            self.run.scheduler.start(partial(store.release, lease, self, value))

    def _lanes_in_use(self) -> int:
        visits = {**self._lease.value[0], self.lane: self.now}
        return sum(1 for at in visits.values() if at > self.now - IN_USE)

    def _level(self, product: int) -> float:
        """Units of a product that a lane shall hold when there is plenty."""
        mean = LANE_ORDERS * self.demand.rate(product)
        use = self.demand.use.get(product, 1)
        return mean + 3 * math.sqrt(mean * use) + 3 * use

    # ------------------------------------------------------------------ orders

    def _place(
        self,
        draft: _Draft,
        decided: Sequence[Entry],
        held: Sequence[Order],
        in_line: Collection[int] = (),
    ) -> list[Order]:
        """Write decisions, and what pays for them. Returns the orders that are still open.

        Args:
            draft: What has been read, and changed.
            decided: The decisions.
            held: Orders that are not decided yet.
            in_line: Products that are sold before the depot is released.
        """
        first = [entry for entry in decided if any(p in in_line for p, _ in entry[0].lines)]
        rest = [entry for entry in decided if all(p not in in_line for p, _ in entry[0].lines)]
        first.sort(key=lambda entry: entry[1] is not None)
        rest.sort(key=lambda entry: not any(p in draft.rows for p, _ in entry[0].lines))
        if self._holds and self._lease.value[1] < NO_LINE and self._waited < NO_LINE:
            first, rest = first + rest, []
        groups = []
        if self._holds:
            groups = list(self._groups(first, draft, in_line)) or [[]]
        last = len(groups) - 1
        groups += self._groups(rest, draft, in_line)
        left = list(held)
        is_lost = False
        for index, group in enumerate(groups):
            is_lost = is_lost or not self._write(draft, group, in_line, releases=index == last)
            if index == last:
                self._leave()
            if is_lost:
                left += [order for order, _ in group]
        self._leave()
        return left

    def _write(
        self, draft: _Draft, group: Sequence[Entry], in_line: Collection[int], *, releases: bool
    ) -> bool:
        """Write some decisions in one transaction, with all that the draft has changed."""
        placed = [order for order, lacks in group if lacks is None]
        rejected = [(order, lacks) for order, lacks in group if lacks is not None]
        for p, units in wanted(placed).items():
            if p in draft.rows and not (
                p in draft.own[p % PAGES] or (draft.stock and p in draft.stock[p % PAGES])
            ):
                row = draft.row(p)
                draft.new_rows[p] = Row(row.stock - units, row.lent)
            elif p in in_line:
                shelf = draft.stock[p % PAGES]
                set_units(shelf, p, shelf[p] - units)
            else:
                own = draft.own[p % PAGES]
                set_units(own, p, own[p] - units)
        writes = [
            Write(self.run.shop.rows[p], draft.rows[p].version, row)
            for p, row in draft.new_rows.items()
        ]
        entries = 0
        for items, reads, values in (
            (self._own, draft.lane, draft.own),
            (self._shelves, draft.shelves, draft.stock),
        ):
            for item, read, value in zip(items, reads, values, strict=False):
                if value != read.value or getattr(value, "narrow", None) != getattr(
                    read.value, "narrow", None
                ):
                    writes.append(Write(item, read.version, value, page_units(read.value, value)))
                    entries += len(value)
        # With a full transaction the release is a write of its own.
        releases = releases and self._holds and len(writes) + len(group) < ACTIONS
        if releases:
            writes.append(self._release())
        if not group and not writes:
            return True
        self.run.store.compute(ENTRY_CPU * entries)
        cancelled = self.transact("orders" if group else "move", writes, placed, rejected)
        if cancelled is not None:
            self._memory = None
            self._fought |= draft.new_rows.keys()
            if cancelled.lost:
                self.pause(0.0, 0.02)
            return False
        if releases:
            self._holds = False
        written = {write.item for write in writes}
        for number, item in enumerate(self._own):
            if item in written:
                draft.lane[number] = Read(draft.lane[number].version + 1, draft.own[number])
                draft.own[number] = dict(draft.own[number])
        for number, item in enumerate(self._shelves):
            if item in written:
                shelf = draft.stock[number]
                draft.shelves[number] = Read(draft.shelves[number].version + 1, shelf)
                draft.stock[number] = Shelf(shelf, shelf.narrow)
        for p, row in draft.new_rows.items():
            draft.rows[p] = Read(draft.rows[p].version + 1, row)
            if not row.stock:
                self._sold_out.add(p)
        draft.new_rows = {}
        self._memory = draft.lane
        return True

    def _groups(
        self, entries: Sequence[Entry], draft: _Draft, in_line: Collection[int]
    ) -> Iterator[list[Entry]]:
        """Divide decisions into transactions."""
        if not entries:
            return
        changed = sum(
            value != read.value
            for reads, values in ((draft.lane, draft.own), (draft.shelves, draft.stock))
            for read, value in zip(reads, values, strict=False)
        )
        room = ACTIONS - len(draft.new_rows) - changed
        group: list[Entry] = []
        touched: set[object] = set()
        for entry in entries:
            new = set(self._touched(entry, draft, in_line)) - touched
            if group and len(group) + len(touched) + len(new) + 1 > room:
                yield group
                group, touched, room = [], set(), ACTIONS
                new = set(self._touched(entry, draft, in_line))
            group.append(entry)
            touched |= new
        yield group

    def _touched(self, entry: Entry, draft: _Draft, in_line: Collection[int]) -> Iterator[object]:
        """What a decision writes besides the order's row."""
        if entry[1] is not None:
            return
        for p, _ in entry[0].lines:
            number = p % PAGES
            if p in draft.own[number] and p not in in_line:
                yield "own", number
            elif draft.stock and p in draft.stock[number]:
                yield "depot", number
            elif p in draft.rows:
                yield p

    def _unpack(self, pages: Sequence[Read]) -> None:
        self.run.store.compute(ENTRY_CPU * sum(len(page.value) for page in pages))


def _parts(products: Collection[int], lanes: int, numbers: Collection[int]) -> Iterator[list[int]]:
    """Divide products into transactions that empty lanes of them: together if that fits, else page by page."""
    room = ACTIONS - lanes * len(numbers)
    if len(products) <= room:
        yield list(products)
        return
    for number in numbers:
        mine = [p for p in products if p % PAGES == number]
        most = ACTIONS - lanes
        for start in range(0, len(mine), most):
            yield mine[start : start + most]
