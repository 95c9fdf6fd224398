"""Moves units of products between rows and pages: the only code that does."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from copy import copy
from dataclasses import replace

from inventory_orders.domain.allotments import DEPOT, Page, PageEntry, PageKey
from inventory_orders.domain.change import Update
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
        owner: The owner of leases on the products, if this process has any. Its writes keep those leases valid.
    """

    def __init__(self, rows: ProductsById, pages: Iterable[Page] = (), owner: str = "") -> None:
        self._owner = owner
        self._rows_stored = dict(rows)
        self._pages_stored = {page.key: page for page in pages}
        self.rows: dict[str, Product | None] = dict(rows)
        self._entries: dict[PageKey, dict[str, PageEntry]] = {}
        self._emptied: dict[PageKey, set[str]] = {}
        self._touched_rows: dict[str, None] = {}
        self._touched_pages: dict[PageKey, None] = {}
        self._sold_from: set[PageKey] = set()
        self._lent: dict[str, int] = {}

    def copied(self) -> Allocation:
        """Return a copy that can be changed without changing this allocation."""
        other = Allocation({})
        for name, value in vars(self).items():
            setattr(other, name, copy(value))
        other._entries = {key: dict(entries) for key, entries in self._entries.items()}
        other._emptied = {key: set(emptied) for key, emptied in self._emptied.items()}
        return other

    # ------------------------------------------------------------------ state

    def add_row(self, product_id: str, product: Product | None) -> None:
        """Add a row as stored."""
        self._rows_stored[product_id] = self.rows[product_id] = product

    def row(self, product_id: str) -> Product:
        """The row of a product, including moves that are not stored yet.

        Raises:
            ValueError: The row is not known.
        """
        product = self.rows.get(product_id)
        if product is None:
            raise ValueError(f"the row of product {product_id} is not known")
        return product

    def entry(self, lane: int, product_id: str) -> PageEntry | None:
        """The entry of a product in a lane, including moves that are not stored yet; None if the lane has no units of it."""
        key = PageKey.of(lane, product_id)
        return (self._entries.get(key) or self.entries(key)).get(product_id)

    def units(self, lane: int, product_id: str) -> int:
        """The units of a product in a lane, including moves that are not stored yet."""
        entry = self.entry(lane, product_id)
        return entry.units if entry is not None else 0

    def size(self, places: Iterable[str | PageKey]) -> int:
        """Add up the bytes of rows and pages as stored."""
        return sum(
            self._pages_stored[p].size if isinstance(p, PageKey) else self.row(p).size
            for p in places
        )

    def page_stock(self, product_id: str, lane: int) -> PageStock:
        """The units of a product that can be sold from a lane."""
        key = PageKey.of(lane, product_id)
        entry = self.entries(key).get(product_id) or PageEntry("", 0)
        version = self._pages_stored[key].version
        return PageStock(product_id, entry.units, version, entry.created_at, key)

    def entries(self, key: PageKey) -> dict[str, PageEntry]:
        """The entries of a page by product id, including moves that are not stored yet."""
        if key not in self._entries:
            page = self._pages_stored.get(key)
            if page is None:
                raise ValueError(f"page {key} is not known")
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
        held = self.entry(DEPOT, product_id)
        reach = max(reach, held.reach if held is not None else 0)
        self._set_row(replace(row, lent_to=row.lent_to | frozenset(range(reach + 1))))
        self._move(product_id, units, None, DEPOT)
        self._lent[product_id] = self._lent.get(product_id, 0) + units
        self._set_reach(product_id, reach)

    def fill(self, lane: int, product_id: str, units: int) -> None:
        """Move units from the depot to a lane.

        Raises:
            ValueError: The lane is beyond the reach of the product, or there are too few units.
        """
        held = self.entry(DEPOT, product_id)
        if held is None or lane > held.reach:
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
        self._touched_pages[PageKey.of(DEPOT, product_id)] = None
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
        self, product_id: str, delta: int, lane: int | None, *, moves_goods: bool = False
    ) -> None:
        """Add units to a lane or row, or take them away if `delta` is negative, for an order or adjustment.

        Args:
            moves_goods: Whether the units on hand change too.
        """
        if lane is None:
            row = self.row(product_id)
            on_hand = row.on_hand + delta if moves_goods else row.on_hand
            row = row.with_stock(row.stock_count + delta, row.version)
            self._set_row(replace(row, on_hand=on_hand))
        else:
            key = PageKey.of(lane, product_id)
            self._change(key, product_id, delta, "")
            self._sold_from.add(key)

    def _move(self, product_id: str, units: int, source: int | None, target: int | None) -> None:
        """Move units from one place to another. Each place is the number of a lane, or None for the row."""
        if not units:
            return
        if source is None:
            created_at = self.row(product_id).created_at
        else:
            held = self.entry(source, product_id)
            created_at = held.created_at if held is not None else ""
            if target is None and created_at != self.row(product_id).created_at:
                raise ValueError(f"{product_id} in lane {source} belongs to another generation")
        for lane, delta in ((source, -units), (target, units)):
            if lane is None:
                self.add_units(product_id, delta, None)
            else:
                self._change(PageKey.of(lane, product_id), product_id, delta, created_at)

    def _change(self, key: PageKey, product_id: str, delta: int, created_at: str) -> None:
        entries = self.entries(key)
        held = entries.get(product_id) or PageEntry(created_at, 0)
        units = held.units + delta
        if units < 0 or (created_at and created_at != held.created_at):
            raise ValueError(f"cannot take {-delta} of {product_id} from page {key}: it has {held}")
        self._emptied[key].discard(product_id)
        if units:
            entries[product_id] = PageEntry(held.created_at, units, held.reach)
        else:
            entries.pop(product_id, None)
            if key.lane == DEPOT:
                self._emptied[key].add(product_id)
        self._touched_pages[key] = None

    def _set_reach(self, product_id: str, reach: int) -> None:
        key = PageKey.of(DEPOT, product_id)
        if (held := self.entries(key).get(product_id)) is not None and held.reach != reach:
            self.entries(key)[product_id] = replace(held, reach=reach)
            self._touched_pages[key] = None

    def _set_row(self, row: Product) -> None:
        self.rows[row.product_id] = row
        self._touched_rows[row.product_id] = None

    # ------------------------------------------------------------------ transactions

    @property
    def touched(self) -> Collection[str | PageKey]:
        """The rows and pages that the next transaction writes or checks."""
        return [*self._touched_rows, *self._touched_pages]

    def drain(self) -> tuple[tuple[Update[Product], ...], tuple[Update[Page], ...], dict[str, int]]:
        """Collect the changes since the last call for one transaction. After this, they count as stored.

        Returns:
            The updates of rows and pages, and how many units of each product were lent.

        Raises:
            ValueError: A row of a lent product would fall to its threshold.
        """
        updates, pages = [], []
        for product_id in self._touched_rows:
            before, wanted = self._rows_stored[product_id], self.row(product_id)
            if before is None:
                raise ValueError(f"there is no product {product_id}")
            after = wanted.with_stock(wanted.stock_count, before.version + 1)
            if before.is_fenced_by(self._owner):
                after = replace(after, lock_version=after.version)
            if after.lent_to and not after.may_be_lent:
                raise ValueError(f"too few units of {product_id} would be left in its row: {after}")
            updates.append(Update(before, after))
            self._rows_stored[product_id] = self.rows[product_id] = after
        for key in self._touched_pages:
            page = self._pages_stored[key]
            # An order's line names the version that its sale makes, even if the transaction also moves as many units in.
            entries, emptied = dict(self.entries(key)), frozenset(self._emptied[key])
            if (entries, emptied) == (page.entries, page.emptied) and key not in self._sold_from:
                pages.append(Update(page, page))
            else:
                version = page.version + 1
                written = replace(page, version=version, entries=entries, emptied=emptied)
                pages.append(Update(page, written))
                self._pages_stored[key] = written
        lent, self._lent = self._lent, {}
        self._touched_rows, self._touched_pages, self._sold_from = {}, {}, set()
        return tuple(updates), tuple(pages), lent
