"""Holds what an export says in a temporary database, so that memory does not grow with the export.

Products, the numbers of each product at each location, open orders, and their units. The database checks that the numbers of
units in open orders are those that the export calls committed, and finds the location that each order's units come from.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from inventory_orders.domain.barcode import key_of_barcode, written
from inventory_orders.domain.location import stock_key
from inventory_orders.domain.order import Order
from inventory_orders.errors import InvalidMessageError
from inventory_orders.messages.commands import order_in

from ..catalogue_file import Line, product_in
from ..file_errors import FileError
from ..words import counted, location_name
from .assignment import assigned
from .export_file import BadCellError

GOODS, LEFT_OUT, PARENT, BAD = "goods", "left out", "parent", "bad"
"""What a SKU of the export is: a product to import, something without stock, a variation that shares the stock of the product
that its name says, or a line that cannot be taken.
"""

GUEST = "guest-"
"""Before the id of the order of a customer who is not known: guests must not share purchase limits."""

DIFFERENCE = "COMMITTED_DIFFERS"
"""The code of numbers that contradict each other."""

_AT_ONCE = 1000
_SCHEMA = """
CREATE TABLE products (
    id TEXT PRIMARY KEY, line INTEGER, kind TEXT, name TEXT, price INTEGER, barcode TEXT, code TEXT,
    is_hidden INTEGER, is_stocked INTEGER DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX of_code ON products (code) WHERE code IS NOT NULL;
CREATE TABLE levels (
    product TEXT, location TEXT, line INTEGER, on_hand INTEGER, unavailable INTEGER, committed INTEGER, available INTEGER,
    PRIMARY KEY (product, location)
) WITHOUT ROWID;
CREATE TABLE orders (
    id TEXT PRIMARY KEY, line INTEGER, name TEXT, user TEXT, is_paid INTEGER, is_stored INTEGER DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE units (
    order_id TEXT, product TEXT, units INTEGER, line INTEGER, location TEXT DEFAULT '',
    PRIMARY KEY (order_id, product)
) WITHOUT ROWID;
CREATE TABLE shipped (
    name TEXT, product TEXT, units INTEGER, line INTEGER, is_used INTEGER DEFAULT 0, PRIMARY KEY (name, product)
) WITHOUT ROWID;
"""
_GOODS = "JOIN products ON products.id = product AND kind = 'goods'"


class Listed(NamedTuple):
    """A SKU of the export.

    Attributes:
        product_id: The id of its product.
        line: The line of the file.
        kind: What it is.
        name: Its name.
        price: Its price in minor units of the currency.
        barcode: Its barcode.
        is_hidden: Whether the other shop does not sell it.
    """

    product_id: str
    line: int
    kind: str
    name: str | None = None
    price: int | None = None
    barcode: str | None = None
    is_hidden: bool = False


class Level(NamedTuple):
    """The numbers of a product at a location, as the export has them.

    Attributes:
        product_id: The product.
        location_id: The location.
        line: The line of the file.
        on_hand: Units in the warehouse.
        unavailable: Units of these that are not sold, such as damaged ones.
        committed: Units of these that open orders have.
        available: Units left to sell; negative if the product is oversold.
    """

    product_id: str
    location_id: str
    line: int
    on_hand: int
    unavailable: int
    committed: int
    available: int

    @property
    def key(self) -> str:
        """The key of its row."""
        return stock_key(self.product_id, self.location_id)


class OrderUnits(NamedTuple):
    """What an open order still needs.

    Attributes:
        order_id: Its id.
        line: Its first line in the file.
        name: The name that people use for it.
        user_id: The customer.
        is_paid: Whether it is paid.
        units: The units of each product.
    """

    order_id: str
    line: int
    name: str
    user_id: str
    is_paid: bool
    units: Mapping[str, int]


class OpenOrder(NamedTuple):
    """An open order of the export.

    Attributes:
        line: Its first line in the file.
        name: The name that people use for it.
        order: The order to place.
        is_paid: Whether it is paid.
    """

    line: int
    name: str
    order: Order
    is_paid: bool


class Staging:
    """What an export says.

    Args:
        keeps_unavailable: Whether unavailable units are imported, as safety stock.
    """

    def __init__(self, *, keeps_unavailable: bool = False) -> None:
        self.keeps_unavailable = keeps_unavailable
        # A database without a name lies in a temporary file, which ends with it.
        self.database = sqlite3.connect("", isolation_level=None)
        self.database.executescript(_SCHEMA)
        self.database.execute("BEGIN")

    # ------------------------------------------------------------------ products

    def add_product(self, listed: Listed) -> int:
        """Add a product. If there is one with this id, it becomes bad, and its line is returned; otherwise 0."""
        first = self.database.execute("SELECT line FROM products WHERE id = ?", [listed.product_id])
        if found := first.fetchone():
            self.set_kind(listed.product_id, BAD)
            return int(found[0])
        code = key_of_barcode(written(listed.barcode)).code if listed.barcode else None
        self.database.execute(
            "INSERT INTO products (id, line, kind, name, price, barcode, is_hidden, code)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*listed, code),
        )
        return 0

    def set_kind(self, product_id: str, kind: str) -> None:
        """Change what a SKU is."""
        self.database.execute("UPDATE products SET kind = ? WHERE id = ?", [kind, product_id])

    def kind_of(self, product_id: str) -> str | None:
        """What a SKU is; None if the export has no such product."""
        found = self.database.execute("SELECT kind FROM products WHERE id = ?", [product_id])
        row = found.fetchone()
        return None if row is None else row[0]

    def parent_of(self, product_id: str) -> str:
        """The product whose stock a variation shares."""
        found = self.database.execute("SELECT name FROM products WHERE id = ?", [product_id])
        return str(found.fetchone()[0])

    def shared_barcodes(self) -> Iterator[tuple[int, str, str]]:
        """Yield the line, product and barcode of products whose barcode another one has, too. They are imported without it."""
        yield from self.database.execute(
            "SELECT line, id, barcode FROM products AS one WHERE kind = 'goods' AND code IS NOT NULL AND EXISTS"
            " (SELECT 1 FROM products AS other WHERE other.code = one.code AND other.id <> one.id) ORDER BY line"
        )

    def without_levels(self) -> Iterator[tuple[int, str]]:
        """Yield the line and id of products that no line of stock names."""
        yield from self.database.execute(
            "SELECT line, id FROM products WHERE kind = 'goods' AND NOT is_stocked ORDER BY line"
        )

    # ------------------------------------------------------------------ stock

    def note_stocked(self, product_id: str) -> None:
        """Note that the file of stock names a product."""
        self.database.execute("UPDATE products SET is_stocked = 1 WHERE id = ?", [product_id])

    def add_level(self, level: Level) -> None:
        """Add the numbers of a product at a location.

        Raises:
            BadCellError: There are some.
        """
        try:
            self.database.execute("INSERT INTO levels VALUES (?, ?, ?, ?, ?, ?, ?)", level)
        except sqlite3.IntegrityError:
            message = "another line has this SKU at this location; keep one"
            raise BadCellError("SKU", message, "DUPLICATE_LINE") from None

    def levels(self) -> Iterator[Level]:
        """Yield the numbers of all products to import, sorted by product and location."""
        rows = self.database.execute(
            f"SELECT levels.* FROM levels {_GOODS} ORDER BY product, location"  # noqa: S608 - a constant
        )
        return map(Level._make, rows)

    def stocked(self) -> dict[str, int]:
        """Count the levels to import with units at each location."""
        found = self.database.execute(
            f"SELECT location, count(*) FROM levels {_GOODS} WHERE on_hand > 0 GROUP BY location"  # noqa: S608
        )
        return dict(found.fetchall())

    # ------------------------------------------------------------------ orders

    def add_order(self, column: str, order: OrderUnits) -> None:
        """Add an open order. Errors are about a column.

        Raises:
            BadCellError: The order can never be placed, or there is one with this id.
        """
        order_id, line, name, user_id, is_paid, units = order
        items = [{"productId": key, "quantity": quantity} for key, quantity in units.items()]
        try:
            _order_of(order_id, user_id, name, items)
        except InvalidMessageError as error:
            raise BadCellError(column, error.message, error.code) from None
        found = self.database.execute("SELECT line FROM orders WHERE id = ?", [order_id]).fetchone()
        if found:
            message = f"the order is at line {found[0]}, too; keep one"
            raise BadCellError(column, message, "DUPLICATE_LINE")
        self.database.execute(
            "INSERT INTO orders (id, line, name, user, is_paid) VALUES (?, ?, ?, ?, ?)",
            (order_id, line, name, user_id, is_paid),
        )
        self.database.executemany(
            "INSERT INTO units (order_id, product, units, line) VALUES (?, ?, ?, ?)",
            ((order_id, key, quantity, line) for key, quantity in units.items()),
        )

    def add_shipped(self, name: str, product_id: str, units: int, line: int) -> None:
        """Add how many units of a product an order no longer needs.

        Raises:
            BadCellError: That is known.
        """
        try:
            self.database.execute(
                "INSERT INTO shipped (name, product, units, line) VALUES (?, ?, ?, ?)",
                (name, product_id, units, line),
            )
        except sqlite3.IntegrityError:
            message = "another line has this order and SKU; keep one"
            raise BadCellError("Name", message, "DUPLICATE_LINE") from None

    def shipped(self, name: str, product_id: str) -> int | None:
        """How many units of a product an order no longer needs; None if that is not known."""
        found = self.database.execute(
            "UPDATE shipped SET is_used = 1 WHERE name = ? AND product = ? RETURNING units",
            [name, product_id],
        ).fetchall()
        return found[0][0] if found else None

    def unused_shipped(self) -> Iterator[tuple[int, str, str]]:
        """Yield line, order and product of shipped units that no open order has."""
        yield from self.database.execute(
            "SELECT line, name, product FROM shipped WHERE NOT is_used ORDER BY line"
        )

    # ------------------------------------------------------------------ what belongs together

    def commit_open_units(self) -> None:
        """Count the units of open orders as committed at the default location, for an export that does not say so."""
        self.database.execute(
            "UPDATE levels SET committed = open.units, on_hand = available + open.units FROM"
            " (SELECT product, sum(units) AS units FROM units GROUP BY product) AS open"
            " WHERE levels.product = open.product AND location = ''"
        )

    def assign(self) -> Iterator[FileError]:
        """Find the location that each order's units come from. Yields the products whose numbers contradict each other."""
        self.database.execute("CREATE INDEX of_product ON units (product, units DESC)")
        both = self.database.execute(
            f"SELECT product, levels.line, location, committed FROM levels {_GOODS} WHERE committed > 0 UNION ALL"  # noqa: S608
            " SELECT product, (SELECT min(line) FROM levels WHERE levels.product = units.product), NULL, 0"
            f" FROM units {_GOODS} GROUP BY product ORDER BY product, location"
        )
        for product_id, group in groupby(both, itemgetter(0)):
            rows = list(group)
            places = [(row[2], row[3]) for row in rows if row[2] is not None]
            if fault := self._assign_one(product_id, places):
                line = next((row[1] for row in rows if row[1] is not None), 1)
                yield FileError(line, DIFFERENCE, fault, {"productId": product_id})

    def _assign_one(self, product_id: str, places: Sequence[tuple[str, int]]) -> str:
        """Find the locations for one product. Returns why its numbers contradict each other."""
        lines = self.database.execute(
            "SELECT order_id, units FROM units WHERE product = ? ORDER BY units DESC, order_id",
            [product_id],
        ).fetchall()
        units, committed = sum(row[1] for row in lines), sum(room for _, room in places)
        chosen = None
        if units == committed:
            chosen = assigned([row[1] for row in lines], [room for _, room in places])
        if chosen is None:
            return self._contradiction(product_id, units, places)
        self.database.executemany(
            "UPDATE units SET location = ? WHERE order_id = ? AND product = ?",
            (
                (places[place][0], row[0], product_id)
                for row, place in zip(lines, chosen, strict=True)
            ),
        )
        return ""

    def _contradiction(self, product_id: str, units: int, places: Sequence[tuple[str, int]]) -> str:
        """Describe the numbers of a product that contradict each other."""
        where = ", ".join(f"{room:,} at {location_name(place)}" for place, room in places)
        orders = self.database.execute(
            "SELECT name, units FROM units JOIN orders ON orders.id = order_id WHERE product = ? ORDER BY orders.line LIMIT 6",
            [product_id],
        ).fetchall()
        named = ", ".join(f"{quantity:,} in {name}" for name, quantity in orders[:5])
        named += ", ..." if len(orders) > 5 else ""
        return (
            f"{counted(sum(room for _, room in places), 'unit')} of {product_id} committed ({where or 'nowhere'}), but "
            f"{counted(units, 'unit')} in open orders ({named or 'none'}). If some are shipped or refunded, add --shipped; otherwise, "
            "export all files again at one time"
        )

    # ------------------------------------------------------------------ what to write

    def drop_bad(self) -> None:
        """Leave out the units of bad products, and orders that are left without units."""
        self.database.execute(
            "DELETE FROM units WHERE product NOT IN (SELECT id FROM products WHERE kind = 'goods')"
        )
        self.database.execute("DELETE FROM orders WHERE id NOT IN (SELECT order_id FROM units)")

    def drop_order(self, order_id: str) -> None:
        """Leave out an order."""
        self.database.execute("DELETE FROM units WHERE order_id = ?", [order_id])
        self.database.execute("DELETE FROM orders WHERE id = ?", [order_id])

    def count(self) -> tuple[int, int]:
        """Count the products and the open orders."""
        return (
            self.database.execute("SELECT count(*) FROM products WHERE kind = 'goods'").fetchone()[
                0
            ],
            self.database.execute("SELECT count(*) FROM orders").fetchone()[0],
        )

    def product_lines(self) -> Iterator[list[Line[Any]]]:
        """Yield the products to create, with their stock at each location, in portions of whole products."""
        rows = self.database.execute(
            "SELECT id, products.line, name, price, is_hidden,"
            " CASE WHEN EXISTS (SELECT 1 FROM products AS other WHERE other.code = products.code AND other.id <> products.id)"
            " THEN NULL ELSE barcode END, levels.* FROM products LEFT JOIN levels ON product = id WHERE kind = 'goods'"
            " ORDER BY id, location"
        )
        portion: list[Line[Any]] = []
        for _, group in groupby(rows, itemgetter(0)):
            portion += self._lines_of(list(group))
            if len(portion) >= _AT_ONCE:
                yield portion
                portion = []
        if portion:
            yield portion

    def _lines_of(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Line[Any]]:
        product_id, line, name, price, _, barcode = rows[0][:6]
        levels = [Level._make(row[6:]) for row in rows if row[6] is not None]
        own = next((each for each in levels if not each.location_id), None)
        barcodes = [{"code": barcode}] if barcode else None
        details = {"name": name, "price": price, "barcodes": barcodes}
        yield self._line(product_id, line, own, details)
        for level in levels:
            if level.location_id:
                yield self._line(product_id, line, level, {"locationId": level.location_id})

    def _line(
        self, product_id: str, line: int, level: Level | None, more: dict[str, Any]
    ) -> Line[Any]:
        numbers = {"openingStock": 0}
        if level is not None:
            unavailable = level.unavailable if self.keeps_unavailable else 0
            numbers = {
                "openingStock": level.available + level.committed + unavailable,
                "backorderLimit": max(0, -level.available),
                "safetyStock": unavailable,
            }
        fields = {"action": "create", "productId": product_id, **numbers, **more}
        ids = {"productId": product_id}
        if level is not None and level.location_id:
            ids["locationId"] = level.location_id
        return Line(line, product_in(fields), ids)

    def needed(self) -> Iterator[tuple[str, int, int]]:
        """Yield the key of each row, the line of its product, and the units that orders need from it, unless they are stored."""
        rows = self.database.execute(
            "SELECT product, location, products.line, sum(units) FROM units JOIN products ON id = product"
            " WHERE order_id NOT IN (SELECT id FROM orders WHERE is_stored) GROUP BY product, location"
        )
        return ((stock_key(row[0], row[1]), row[2], row[3]) for row in rows)

    def note_stored(self, order_id: str) -> None:
        """Note that an order is stored already."""
        self.database.execute("UPDATE orders SET is_stored = 1 WHERE id = ?", [order_id])

    def hidden(self) -> Iterator[tuple[int, str]]:
        """Yield line and id of products that the other shop does not sell."""
        yield from self.database.execute(
            "SELECT line, id FROM products WHERE kind = 'goods' AND is_hidden ORDER BY id"
        )

    def orders(self) -> Iterator[OpenOrder]:
        """Yield the open orders with the locations of their lines."""
        rows = self.database.execute(
            "SELECT id, orders.line, name, user, is_paid, product, units, location FROM orders"
            " JOIN units ON order_id = id ORDER BY id, units.line"
        )
        for _, group in groupby(rows, itemgetter(0)):
            yield _order(list(group))


def _order(rows: Sequence[tuple[Any, ...]]) -> OpenOrder:
    order_id, line, name, user_id, is_paid = rows[0][:5]
    items = [
        {"productId": product_id, "quantity": units, "locationId": location}
        for product_id, units, location in (row[5:] for row in rows)
    ]
    return OpenOrder(line, name, _order_of(order_id, user_id, name, items), bool(is_paid))


def _order_of(order_id: str, user_id: str, name: str, items: Sequence[dict[str, Any]]) -> Order:
    """Build an order without a hold, which keeps its units until it is confirmed or cancelled.

    Raises:
        InvalidMessageError: The order can never be placed.
    """
    attributes = {"name": name}
    document = {"orderId": order_id, "userId": user_id, "items": items, "attributes": attributes}
    return order_in(document, whole="the order")
