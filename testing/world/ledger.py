"""The independent books: after every write, each unit of every product must be accounted for.

The ledger keeps its figures up to date with each write, so checking a write costs the same in a large world. It uses
none of the service's own code, which is under test.
"""

from __future__ import annotations

import base64
import json
import unicodedata
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from testing.world.ends import Row, key_of, steps_of, units_of
from testing.world.purchases import Purchases
from testing.world.violation import require

Place = tuple[str, tuple[str, ...]]
"""The table and the key of a row."""
Generation = tuple[str, str]
"""The key of a product's row, and when it was created."""

DEPOT = "0"

_FIXED = {
    "Products": ("productId", "createdAt", "of", "locationId"),
    "Orders": ("orderId", "createdAt"),
    "Allotments": ("page", "epoch"),
    "Purchases": ("buyer", "epoch"),
}

MOVES = {
    ("fulfil", None): (0, -1),
    ("cancel", None): (1, 0),
    ("cancel", False): (0, -1),
    ("expire", None): (1, 0),
    ("return", True): (1, 1),
    ("return", False): (0, 0),
}
"""How each unit of a step changes the available units and the units on hand, by action and `restock`."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change to a row.

    Attributes:
        place: Table and key of the row.
        before: The row before the write; None if the write created it.
        after: The row after the write; None if the write deleted it.
    """

    place: Place
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Stock:
    """Where the units of a product were after a write.

    Attributes:
        number: Number of the write; 0 at the start.
        row: The product's row; None if there is none.
        set_aside: Units of this generation in lanes, including the depot.
        out: Units of this generation on outbound pages.
    """

    number: int
    row: dict[str, Any] | None
    set_aside: int
    out: int

    @property
    def available(self) -> int:
        """Units available to orders. The product must have a row."""
        assert self.row is not None
        units: int = self.row["stockCount"] + self.set_aside
        return units

    @property
    def on_hand(self) -> int:
        """Units on hand. The product must have a row."""
        assert self.row is not None
        units: int = self.row["onHand"] - self.out
        return units


class Ledger:
    """The books of all products.

    Args:
        rows: All rows at the start, by table and key.

    Attributes:
        stock: The stock of each product's row after each write that changed it.
        purchases: What buyers have bought.

    Raises:
        ViolationError: The books do not balance at the start.
    """

    def __init__(self, rows: Mapping[Place, dict[str, Any]]) -> None:
        self.stock: dict[str, list[Stock]] = {}
        # The first of these states after the last count.
        self._counted = defaultdict[str, int](int)
        self._rows: dict[str, dict[str, Any]] = {}
        self._locations: dict[str, set[str]] = defaultdict(set)
        self._lanes: dict[str, dict[str, _Entry]] = defaultdict(dict)
        self._out = Counter[Generation]()
        self._words: dict[str, dict[str, set[str]]] = defaultdict(dict)
        self._barcodes: dict[str, dict[str, Any]] = {}
        self.purchases = Purchases()
        self._records = {name: Counter[Generation]() for name in ("available", "on hand", "open")}
        self._keep(0, [Change(place, None, row) for place, row in rows.items()])

    def note(self, number: int, changes: Sequence[Change]) -> None:
        """Record a write, and check it and the state that it leads to.

        Args:
            number: Number of the write, from 1.
            changes: The changes that it made.

        Raises:
            ViolationError: The write, or the state after it, breaks a rule of the books.
        """
        for change in changes:
            _check_row(change)
        _check_records(changes)
        counted = [change.after for change in changes if change.after and "counted" in change.after]
        for booked in counted:
            self._check_count(booked)
        _check_transfers(changes)
        _check_owed(changes)
        _check_outbound(changes)
        self._keep(number, changes)
        self._counted |= {
            row["productId"]: len(self.stock[row["productId"]]) - 1 for row in counted
        }
        for product_id in {each for change in changes for each in _renamed(change)}:
            self._check_words(product_id)
        if any(map(_has_barcodes, changes)):
            self._check_barcodes()

    def _check_count(self, booked: Row) -> None:
        """Check that a count as of a time corrects the units that were on hand then, and that no other count has corrected them since."""
        key, expected = booked["productId"], booked["counted"] - booked["delta"]
        there = [
            stock.on_hand
            for stock in self.stock[key][self._counted[key] :]
            if stock.row and stock.row["createdAt"] == booked["productCreatedAt"]
        ]
        require(
            "countedAt" not in booked or expected in there,
            f"a count of {key} corrects {expected} units, but since the last count, on hand were {there}",
        )

    # ------------------------------------------------------------------ recording

    def _keep(self, number: int, changes: Sequence[Change]) -> None:
        """Record changes, and check the books of each product that they affect."""
        keys: dict[str, None] = {}
        for change in changes:
            keys |= dict.fromkeys(self._keep_one(change))
        for key in keys:
            row = self._rows.get(key)
            generation = key, row["createdAt"] if row is not None else ""
            units = sum(e.units for e in self._lanes[key].values() if e.since == generation[1])
            stock = Stock(number, row, units, self._out[generation])
            known = self.stock.setdefault(key, [])
            if not known or replace(known[-1], number=number) != stock:
                known.append(stock)
            self._check(key, stock)
        for change in changes:
            self._check_closing(change)
        self.purchases.note(number, changes, self._rows)

    def _check_closing(self, change: Change) -> None:
        """Check that no units are left of a product whose row was deleted."""
        (table, key), before = change.place, change.before
        if table == "Products" and before is not None and change.after is None:
            left = self._records["available"][key[0], before["createdAt"]]
            require(
                not left, f"{key[0]} was delisted, and adjustments and orders leave {left} units"
            )

    def _keep_one(self, change: Change) -> Iterator[str]:
        """Record a change. Yields the keys of the products that it affects."""
        table, key = change.place
        match table:
            case "Products":
                yield key[0]
                yield self._keep_row(key[0], change.after)
            case "Words":
                word, _, product_id = key[1].partition("#")
                self._words[product_id].pop(word, None)
                if change.after is not None:
                    self._words[product_id][word] = set(change.after["words"])
            case "Barcodes":
                self._barcodes.pop(key[0], None)
                if change.after is not None:
                    self._barcodes[key[0]] = dict(change.after)
            case "Allotments":
                for sign, row in ((-1, change.before), (1, change.after)):
                    yield from self._keep_page(key[0], row or {}, sign)
            case "Purchases":
                pass
            case _:
                figures = _of_order if table == "Orders" else _of_adjustment
                for sign, row in ((-1, change.before), (1, change.after)):
                    for name, generation, units in figures(row) if row is not None else ():
                        self._records[name][generation] += sign * units
                        yield generation[0]

    def _keep_row(self, key: str, row: dict[str, Any] | None) -> str:
        """Record a product's row. Returns the key of the product's own row, which lists the locations."""
        product_id, _, location = key.partition("#")
        if row is not None:
            self._rows[key] = row
        else:
            self._rows.pop(key, None)
        if location and row is not None:
            self._locations[product_id].add(location)
        elif location:
            self._locations[product_id].discard(location)
        return product_id

    def _keep_page(self, page: str, row: Row, sign: int) -> Iterator[str]:
        for product_id, *rest in _entries(row):
            if is_outbound(page):
                self._out[product_id, rest[0]] += sign * rest[1]
            elif sign < 0:
                del self._lanes[product_id][page]
            else:
                self._lanes[product_id][page] = _Entry(*rest)
            yield product_id

    # ------------------------------------------------------------------ checking

    def _check(self, key: str, stock: Stock) -> None:
        """Check the books of a product at a location."""
        self._check_locations(key, stock.row)
        self._check_lanes(key, stock.row or {})
        if stock.row is None:
            return
        _check_status(key, stock.row)
        generation = key, stock.row["createdAt"]
        for found, name in (
            (stock.available, "available"),
            (stock.on_hand, "on hand"),
            (stock.on_hand - stock.available, "open"),
        ):
            wanted = self._records[name][generation]
            words = "committed" if name == "open" else name
            require(
                found == wanted,
                f"{key} has {found} {words}, but adjustments and orders leave {wanted}",
            )

    def _check_barcodes(self) -> None:
        """Check that each barcode of a product's row points back to the product, and that there are no others."""
        wanted: dict[str, dict[str, Any]] = {}
        for key, row in self._rows.items():
            for barcode in row.get("barcodes", ()):
                code, _, units = barcode.removeprefix("=").partition("*")
                require(code not in wanted, f"{code} is a barcode of two products")
                owner = {"productId": key, "productCreatedAt": row["createdAt"]}
                wanted[code] = {"code": code, **owner, "units": int(units or 1)}
        require(
            self._barcodes == wanted,
            f"the barcodes are {self._barcodes}, but products have {wanted}",
        )

    def _check_words(self, product_id: str) -> None:
        """Check that a product is listed under the words of its id and name, and under no others."""
        row = self._rows.get(product_id)
        texts = () if row is None else (product_id, row.get("name", ""))
        words = {word for text in texts for word in _words_of(text)[:8]}
        listed = self._words[product_id]
        require(
            listed == dict.fromkeys(words, words),
            f"{product_id} is listed under {listed}, but its words are {sorted(words)}",
        )

    def _check_locations(self, key: str, row: Row | None) -> None:
        """Check that a product's own row lists exactly the locations that have a row of the product."""
        product_id, _, location = key.partition("#")
        there = self._locations[product_id]
        if location and row is not None:
            named = row.get("of"), row.get("locationId")
            require(named == (product_id, location), f"the row {key} is {row}")
            require(product_id in self._rows, f"{key} has a row, and {product_id} has none")
        elif row is not None:
            listed = set(row.get("places", ()))
            require(listed == there, f"{key} lists {sorted(listed)}, and is at {sorted(there)}")
        elif not location:
            require(not there, f"{key} has no row, and is at {sorted(there)}")

    def _check_lanes(self, key: str, row: Row) -> None:
        """Check that the row of a lent product names all lanes with units of it, and that the sweep will find it."""
        lent, held = set(row.get("lentTo", ())), self._lanes[key]
        pages = {page.partition("/")[0]: entry for page, entry in held.items() if entry.units}
        for lane, entry in pages.items():
            named = lent if entry.since == row.get("createdAt") else set()
            require(lane in named, f"lane {lane} holds {key}, lentTo is {sorted(named)}")
            reach = {str(each) for each in range(1, entry.reach + 1)}
            require(
                reach <= named,
                f"the depot lends {key} to lanes up to {entry.reach}, lentTo is {sorted(named)}",
            )
        if "lentTo" in row:
            least = row.get("safetyStock", 0) + max(0, row.get("lowStockThreshold", 0))
            require(
                row["status"] == "ACTIVE" and row["stockCount"] > least,
                f"{key} is lent to {sorted(lent)}, and {row['status']} with a stock of {row['stockCount']}",
            )
            require(
                any(page.startswith(f"{DEPOT}/") for page in held),
                f"{key} is lent to {sorted(lent)}, and on no page of the depot",
            )


# ---------------------------------------------------------------------- figures of rows


@dataclass(frozen=True, slots=True)
class _Entry:
    """A product on a page of a lane. Without units, the page only names the product."""

    since: str = ""
    units: int = 0
    reach: int = 0


def is_outbound(page: str) -> bool:
    """Whether a page lists units that left the warehouse."""
    return page.startswith("out/")


def _entries(page: Row) -> list[list[Any]]:
    """Read the entries of a page: the product, its generation, the units, and the reach. A lease has none."""
    stored = page.get("units", "")
    content = stored if isinstance(stored, bytes) else base64.b64decode(stored)
    entries: list[list[Any]] = json.loads(zlib.decompress(content)) if content else []
    return entries


_Figures = Iterator[tuple[str, Generation, int]]


def _of_adjustment(row: Row) -> _Figures:
    generation = row["productId"], row.get("productCreatedAt", "")
    yield "available", generation, row["delta"]
    yield "on hand", generation, row["delta"]


def _of_order(order: Row) -> _Figures:
    taken = {
        line["productId"]: (key_of(line), line.get("productCreatedAt", ""))
        for line in order["items"]
    }
    for line in order["items"]:
        yield "available", taken[line["productId"]], -line["quantity"]
    for step, units in steps_of(order):
        moves = MOVES.get((step["action"], step.get("restock")), (0, 0))
        for product_id, quantity in units.items():
            yield "available", taken[product_id], moves[0] * quantity
            yield "on hand", taken[product_id], moves[1] * quantity
    if order["status"] in {"PENDING", "CONFIRMED"}:
        for product_id, units_open in units_of(order)[0].items():
            yield "open", taken[product_id], units_open


# ---------------------------------------------------------------------- rules of one write


def _words_of(text: str) -> list[str]:
    letters = unicodedata.normalize("NFKD", text)
    kept = (each for each in letters if not unicodedata.combining(each))
    words = "".join(each if each.isalnum() else " " for each in kept).casefold().split()
    return [word for word in words if len(word) > 1]


def _renamed(change: Change) -> Iterator[str]:
    """Yield the product whose name or words a change affects, unless it is a row at another location."""
    (table, key), before, after = change.place, change.before, change.after
    if table == "Words":
        yield key[1].partition("#")[2]
    elif table == "Products" and "#" not in key[0]:
        names = [None if row is None else row.get("name", "") for row in (before, after)]
        if names[0] != names[1]:
            yield key[0]


def _has_barcodes(change: Change) -> bool:
    """Whether a change writes barcodes, or a product's list of them."""
    lists = [(row or {}).get("barcodes") for row in (change.before, change.after)]
    return change.place[0] == "Barcodes" or lists[0] != lists[1]


def _check_row(change: Change) -> None:
    """Check the version of a row, and that it keeps the attributes that never change."""
    (table, key), before, after = change.place, change.before, change.after
    name = "/".join(key)
    # No other write depends on words, movements, or what is stored for lists and pages. Barcodes are checked together.
    is_free = table in ("Words", "Barcodes", "Movements")
    is_free = is_free or name.startswith(("today", "changes", "levels/"))
    if name.endswith("/lease") or is_free:
        return
    if table == "StockAdjustments":
        # The sweep takes ended transfers off their list.
        left = {name: value for name, value in (before or {}).items() if name != "transferShard"}
        is_kept = before is None or after == left
        require(is_kept, f"the adjustment {name} was changed after it was booked")
        return
    if after is None:
        is_empty = table == "Purchases" and not any((before or {})["units"].values())
        require(table == "Products" or is_empty, f"{table} {name} was deleted")
        return
    require(
        table != "Products" or "createdAt" in after, f"the row {name} is {after}, of no product"
    )
    if before is None:
        require(after["_version"] == 1, f"{table} {name} starts with version {after['_version']}")
        return
    # A version counts changes of the row. Acquiring or releasing a lease does not count, nor does a fold or a newly
    # listed location: no other write depends on them.
    different = before.keys() ^ after.keys() | {k for k in before if before[k] != after.get(k)}
    is_lease = all(attribute.startswith("lock") for attribute in different)
    allowed = {0, 1} if is_lease else {0} if different in ({"onHand"}, {"places"}) else {1}
    require(
        after["_version"] - before["_version"] in allowed,
        f"{table} {name} went from version {before['_version']} to {after['_version']}",
    )
    for attribute in _FIXED[table]:
        require(
            before.get(attribute) == after.get(attribute),
            f"{attribute} of {table} {name} was changed",
        )


def _check_status(key: str, row: Row) -> None:
    """Check that the stock of a row is not below its limit, and that its status is correct."""
    stock, floor, status = row["stockCount"], -row.get("backorderLimit", 0), row["status"]
    require(stock >= floor, f"the stock of {key} fell to {stock}: oversold")
    left = stock - row.get("safetyStock", 0)
    right = "LOW_STOCK" if left <= row.get("lowStockThreshold", 0) else "ACTIVE"
    right = "OUT_OF_STOCK" if left <= floor else right
    require(status in (right, "DISCONTINUED"), f"{key} is {status} with a stock of {stock}")


def _check_records(changes: Sequence[Change]) -> None:
    """Check that a count, or the closing entry of a delisted product, records the right difference."""
    rows = {change.place[1][0]: change for change in changes if change.place[0] == "Products"}
    for change in changes:
        booked = change.after
        if change.place[0] != "StockAdjustments" or booked is None:
            continue
        name, row = booked["productId"], rows.get(booked["productId"])
        before = (row.before if row is not None else None) or {}
        if "counted" in booked and "countedAt" not in booked:
            require("lentTo" not in before, f"{name} was counted, and more may be in lanes")
            found = booked["counted"] - before.get("lockOnHand", 0)
            require(
                booked["delta"] == found,
                f"a count found {booked['counted']} units of {name} instead of {before.get('lockOnHand')}, but booked {booked['delta']}",
            )
        if booked["reason"] == "CLOSING":
            require(
                booked["onHandDelta"] == -before["onHand"],
                f"the closing of {name} takes {booked['onHandDelta']} of {before['onHand']} on hand",
            )


def _check_transfers(changes: Iterable[Change]) -> None:
    """Check that one write records both sides of a transfer, with the same number of units."""
    booked = {c.place[1]: c.after for c in changes if c.place[0] == "StockAdjustments" and c.after}
    for (name, transfer_id), row in booked.items():
        if "transferWith" not in row:
            continue
        other = booked.get((row["transferWith"], transfer_id), {})
        sides = {(each.get("reason"), each.get("delta")) for each in (row, other)}
        require(
            sides == {("TRANSFER_OUT", -abs(row["delta"])), ("TRANSFER_IN", abs(row["delta"]))}
            and other.get("transferWith") == name,
            f"the transfer {transfer_id} books {row['delta']} of {name}, and of {row['transferWith']} {other.get('delta')}",
        )


def _check_owed(changes: Sequence[Change]) -> None:
    """Check that the orders of a write name all units that they took below zero."""
    owed = Counter[str]()
    for change in changes:
        if change.place[0] == "Orders" and change.before is None:
            lines = change.after["items"] if change.after is not None else ()
            owed.update(
                {key_of(line): line["backordered"] for line in lines if "backordered" in line}
            )
    below = {
        change.place[1][0]: max(0, -change.after["stockCount"])
        - max(0, -change.before["stockCount"])
        for change in changes
        if change.place[0] == "Products" and change.before and change.after
    }
    sells = any(change.place[0] == "Orders" and change.before is None for change in changes)
    require(
        not sells or owed == Counter({name: units for name, units in below.items() if units > 0}),
        f"rows owe {below} more units, but new orders name {dict(owed)}",
    )


def _check_outbound(changes: Sequence[Change]) -> None:
    """Check that units handed over are added to the outbound pages named in the steps, without a write of products."""
    leaving = dict[str, Counter[Generation]]()
    for change in changes:
        if change.place[0] != "Orders" or change.after is None:
            continue
        for step, units in _new_steps(change.before or {}, change.after):
            left = _leaving(change.after, step, units)
            require(
                bool(left) == ("outPage" in step) == ("outVersion" in step),
                f"{step} of order {change.after['orderId']} lets {dict(left)} leave",
            )
            if left:
                page = f"{step['outPage']} at version {step['outVersion']}"
                leaving.setdefault(page, Counter()).update(left)
    pages = {
        f"{c.after['page']} at version {c.after['_version']}": _gained(c)
        for c in changes
        if c.place[0] == "Allotments" and c.after is not None and is_outbound(c.after["page"])
    }
    gained = {page: units for page, units in pages.items() if units}
    require(
        leaving == gained,
        f"orders handed over {_in_words(leaving)}, but pages gained {_in_words(gained)}",
    )
    rows = [change.place[1][0] for change in changes if change.place[0] == "Products"]
    require(not (leaving and rows), f"{_in_words(leaving)} left with a write of {rows}")


def _in_words(units: Mapping[str, Counter[Generation]]) -> str:
    said = (
        f"{number} of {name}, listed at {created_at}, on {page}"
        for page, of_page in units.items()
        for (name, created_at), number in of_page.items()
    )
    return "; ".join(said) or "nothing"


def _gained(page: Change) -> Counter[Generation]:
    """Count the units that a write added to an outbound page."""
    after, before = (
        Counter({(key, since): units for key, since, units in _entries(row or {})})
        for row in (page.after, page.before)
    )
    return after - before


def _leaving(order: Row, step: Row, units: Counter[str]) -> Counter[Generation]:
    """Count the on-hand units that leave the warehouse in a step, by the generation that they were taken from."""
    _, on_hand = MOVES.get((step["action"], step.get("restock")), (0, 0))
    return Counter(
        {
            (key_of(line), line["productCreatedAt"]): units[line["productId"]]
            for line in order["items"]
            if on_hand < 0 and units[line["productId"]]
        }
    )


def _new_steps(before: Row, after: Row) -> Iterator[tuple[Mapping[str, Any], Counter[str]]]:
    """Yield the steps that a write added to an order, each with the units that it moves."""
    known = before.get("steps", [])
    return ((step, units) for step, units in steps_of(after) if step not in known)
