"""Moves units of products between rows and pages: the only code that does."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from inventory_orders.domain.allotments import DEPOT, NO_UNITS, Page, PageEntry, PageKey
from inventory_orders.domain.change import Decision, Transaction, Update
from inventory_orders.domain.product import PageStock, Product, ProductsById


class Allocation:
    """Rows and pages of products, both as stored and after moves that are not stored yet.

    Moves neither create nor lose units, and they follow these rules:

    - A product's `lent_to` names each lane that holds units of the product.
    - While it names any lane, the stock in the row is above 0 and above the threshold for low stock. (`drain` checks this.)
    - A lane is removed from it only in a transaction that writes the depot's page, so that no fill can be in flight, and that
      writes or checks the lane's page, which then has no units of the product.

    Args:
        rows: Products by id, as stored; None for a product that does not exist.
        pages: Pages as stored.
        owner: The owner of leases on the products, if the caller has any. Its writes keep those leases valid.

    Attributes:
        rows: The rows, including moves that are not stored yet. Rows as stored may be added.
    """

    def __init__(
        self, rows: ProductsById, pages: Iterable[Page] = (), owner: str | None = None
    ) -> None:
        self.rows: dict[str, Product | None] = dict(rows)
        self._owner = owner
        self._pages_stored = {page.key: page for page in pages}
        self._entries: dict[PageKey, dict[str, PageEntry]] = {}
        self._emptied: dict[PageKey, set[str]] = {}
        # The rows that the next transaction writes, as stored.
        self._touched_rows: dict[str, Product] = {}
        self._touched_pages: dict[PageKey, None] = {}
        self._sold: dict[str, PageStock] = {}
        self._lent: dict[str, int] = {}

    def add_pages(self, pages: Iterable[Page]) -> None:
        """Add pages as stored."""
        self._pages_stored.update((page.key, page) for page in pages)

    def copied(self) -> Allocation:
        """Return a copy that can be changed without changing this allocation."""
        other = Allocation({})
        for name, value in vars(self).items():
            setattr(other, name, copy(value))
        other._entries = {key: dict(entries) for key, entries in self._entries.items()}
        other._emptied = {key: set(emptied) for key, emptied in self._emptied.items()}
        return other

    # ------------------------------------------------------------------ state

    def row(self, product_id: str) -> Product:
        """The row of a product, including moves that are not stored yet.

        Raises:
            ValueError: The row is not known.
        """
        product = self.rows.get(product_id)
        if product is None:
            raise ValueError(f"the row of product {product_id} is not known")
        return product

    def entry(self, lane: int, product_id: str) -> PageEntry:
        """The entry of a product in a lane, including moves that are not stored yet; `NO_UNITS` if there is none."""
        return self.entries(PageKey.of(lane, product_id)).get(product_id, NO_UNITS)

    def units(self, lane: int, product_id: str) -> int:
        """The units of a product in a lane, including moves that are not stored yet."""
        return self.entry(lane, product_id).units

    def size(self, places: Iterable[str | PageKey]) -> int:
        """Add up the bytes of rows and pages as stored."""
        return sum(
            self._pages_stored[p].size if isinstance(p, PageKey) else self.row(p).size
            for p in places
        )

    def page_stock(self, product_id: str, key: PageKey) -> PageStock:
        """The units of a product that can be sold from a page."""
        page, entry = self._pages_stored[key], self.entries(key).get(product_id, NO_UNITS)
        return PageStock(product_id, entry.units, page.version, entry.created_at, key)

    def entries(self, key: PageKey) -> dict[str, PageEntry]:
        """The entries of a page by product id, including moves that are not stored yet."""
        if key not in self._entries:
            page = self._pages_stored[key]
            self._entries[key], self._emptied[key] = dict(page.entries), set(page.emptied)
        return self._entries[key]

    def products_on(self, key: PageKey) -> int:
        """Count the products on a page, including moves that are not stored yet."""
        return len(self.entries(key)) + len(self._emptied[key])

    # ------------------------------------------------------------------ moves

    def lend(self, product_id: str, units: int, reach: int) -> None:
        """Move units from the row to the depot.

        Args:
            product_id: The product.
            units: How many; 0 only changes the reach.
            reach: From now on, lanes 1 to `reach` may be filled with the product. A reach below the present one has no effect.
        """
        row = self.row(product_id)
        reach = max(reach, self.entry(DEPOT, product_id).reach)
        self._set_row(replace(row, lent_to=row.lent_to | frozenset(range(reach + 1))))
        self._move(product_id, units, None, DEPOT)
        self._lent[product_id] = self._lent.get(product_id, 0) + units
        self._set_reach(product_id, reach)

    def fill(self, lane: int, product_id: str, units: int) -> None:
        """Move units from the depot to a lane.

        Raises:
            ValueError: The lane is beyond the reach of the product, or there are too few units.
        """
        if lane > self.entry(DEPOT, product_id).reach:
            raise ValueError(f"lane {lane} must not hold {product_id}")
        self._move(product_id, units, DEPOT, lane)

    def give_back(self, lane: int, product_id: str) -> None:
        """Move all units of a product from a lane to the depot."""
        self._move(product_id, self.units(lane, product_id), lane, DEPOT)

    def recall(self, product_id: str, lanes: Collection[int]) -> None:
        """Move all units of a product from some lanes to the depot, and remove these lanes from `lent_to`.

        From now on, the depot fills no lane with the product, even if other lanes still hold units of it.

        Args:
            product_id: The product.
            lanes: Lanes other than the depot. All of their pages have to be known.
        """
        for lane in lanes:
            self.give_back(lane, product_id)
            self._touched_pages[PageKey.of(lane, product_id)] = None
        self._set_reach(product_id, 0)
        row = self.row(product_id)
        self._set_row(replace(row, lent_to=row.lent_to - frozenset(lanes)))

    def reclaim(self, product_id: str) -> None:
        """Move all units of a product from the depot to its row. No other lane may hold units of it.

        Raises:
            ValueError: Another lane may still hold units.
        """
        if self.row(product_id).lent_to - {DEPOT}:
            raise ValueError(f"lanes may still hold {product_id}")
        key = PageKey.of(DEPOT, product_id)
        self._move(product_id, self.units(DEPOT, product_id), DEPOT, None)
        self._touched_pages[key] = None
        self._emptied[key].discard(product_id)
        self._set_row(replace(self.row(product_id), lent_to=frozenset()))

    def add_units(
        self,
        product_id: str,
        delta: int,
        page: PageKey | None,
        *,
        moves_goods: bool = False,
        stamps: Mapping[str, Any] | None = None,
    ) -> None:
        """Add units to a page or row, or take them away if `delta` is negative, for an order or adjustment.

        Args:
            moves_goods: Whether the units on hand change too.
            stamps: Other attributes of the row to set.
        """
        if page is None:
            row = self.row(product_id)
            on_hand = row.on_hand + delta if moves_goods else row.on_hand
            row = row.with_stock(row.stock_count + delta, row.version)
            self._set_row(replace(row, on_hand=on_hand, **(stamps or {})))
        else:
            held = self.page_stock(product_id, page)
            self._change(page, product_id, delta, held.created_at)
            self._sold[product_id] = held.with_stock(held.stock_count + delta, held.version + 1)

    def _move(self, product_id: str, units: int, source: int | None, target: int | None) -> None:
        """Move units from one place to another. Each place is the number of a lane, or None for the row."""
        if not units:
            return
        moved = (
            self.row(product_id)
            if source is None or target is None
            else self.entry(source, product_id)
        )
        for lane, delta in ((source, -units), (target, units)):
            if lane is None:
                self.add_units(product_id, delta, None)
            else:
                self._change(PageKey.of(lane, product_id), product_id, delta, moved.created_at)

    def _change(self, key: PageKey, product_id: str, delta: int, created_at: str) -> None:
        """Add units of a generation to a page, or take them away if `delta` is negative."""
        entries = self.entries(key)
        held = entries.get(product_id) or PageEntry(created_at, 0)
        units = held.units + delta
        if units < 0 or created_at != held.created_at:
            raise ValueError(
                f"cannot add {delta} of {product_id}, created at {created_at}, to page {key}: it has {held}"
            )
        self._emptied[key].discard(product_id)
        if units:
            entries[product_id] = replace(held, units=units)
        else:
            entries.pop(product_id, None)
            if key.lane == DEPOT:
                self._emptied[key].add(product_id)
        self._touched_pages[key] = None

    def _set_reach(self, product_id: str, reach: int) -> None:
        key = PageKey.of(DEPOT, product_id)
        if held := self.entries(key).get(product_id):
            self.entries(key)[product_id] = replace(held, reach=reach)
        self._touched_pages[key] = None

    def _set_row(self, row: Product) -> None:
        self._touched_rows.setdefault(row.product_id, self.row(row.product_id))
        self.rows[row.product_id] = row

    def check(self, product_id: str) -> None:
        """Let the next transaction check that the row has not changed."""
        self._touched_rows.setdefault(product_id, self.row(product_id))

    # ------------------------------------------------------------------ transactions

    @property
    def touched(self) -> Collection[str | PageKey]:
        """The rows and pages that the next transaction writes or checks."""
        return [*self._touched_rows, *self._touched_pages]

    def drain(self, decisions: Sequence[Decision] = ()) -> Transaction:
        """Build a transaction from everything that has changed since the previous one. From now on, it counts as stored.

        Args:
            decisions: The decisions for which units were added or taken away.

        Raises:
            ValueError: A row of a lent product would fall to its threshold.
        """
        rows = {key: self._written(before) for key, before in self._touched_rows.items()}
        self.rows |= rows
        pages, sold_from = [], {stock.page for stock in self._sold.values()}
        for key in self._touched_pages:
            page = written = self._pages_stored[key]
            # An order's line names the version that its sale makes, even if the transaction also moves as many units in.
            entries, emptied = dict(self.entries(key)), frozenset(self._emptied[key])
            if (entries, emptied) != (page.entries, page.emptied) or key in sold_from:
                written = replace(page, version=page.version + 1, entries=entries, emptied=emptied)
            pages.append(Update(page, written))
            self._pages_stored[key] = written
        transaction = Transaction(
            tuple(Update(before, rows[key]) for key, before in self._touched_rows.items()),
            tuple(decisions),
            tuple(pages),
            {**rows, **self._sold},
            self._lent,
        )
        self._touched_rows, self._touched_pages, self._sold, self._lent = {}, {}, {}, {}
        return transaction

    def _written(self, before: Product) -> Product:
        """The row as the next transaction writes it; the row itself if it is only checked."""
        wanted = self.row(before.product_id)
        if wanted is before:
            return before
        after = wanted.with_stock(wanted.stock_count, before.version + 1)
        if self._owner is not None and before.is_fenced_by(self._owner):
            after = replace(after, lock_version=after.version)
        if after.lent_to and not after.may_be_lent:
            raise ValueError(
                f"too few units of {before.product_id} would be left in its row: {after}"
            )
        return after
