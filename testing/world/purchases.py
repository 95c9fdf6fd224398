"""The independent books of purchase limits: after every write, each buyer's row must say what the orders say."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol

from testing.world.ends import Row, key_of, steps_of
from testing.world.violation import require

Units = Mapping[str, int]
"""Units by group."""

_GIVEN_BACK = ("cancel", "expire")


class Change(Protocol):
    """A change to a row: see `ledger.Change`."""

    @property
    def place(self) -> tuple[str, tuple[str, ...]]: ...
    @property
    def before(self) -> dict[str, Any] | None: ...
    @property
    def after(self) -> dict[str, Any] | None: ...


class Purchases:
    """What each buyer has bought, by the rows and by the orders.

    Attributes:
        known: By buyer, the units in the row after each write of it, with the number of the write.
    """

    def __init__(self) -> None:
        self.known: dict[str, list[tuple[int, Units]]] = {}
        self._charged: dict[str, Counter[str]] = {}

    def note(self, number: int, changes: Sequence[Change], rows: Mapping[str, Row]) -> None:
        """Record a write, and check the buyers that it affects.

        Args:
            number: Number of the write; 0 for the rows at the start.
            changes: The changes that it made.
            rows: The products' rows after it.
        """
        touched = set[str]()
        for change in changes:
            if change.place[0] == "Purchases":
                (buyer,) = change.place[1]
                units = {} if change.after is None else change.after["units"]
                self.known.setdefault(buyer, []).append((number, units))
                touched.add(buyer)
            elif change.place[0] == "Orders":
                for sign, row in ((-1, change.before), (1, change.after)):
                    for buyer, group, bought in charges_of(row or {}):
                        self._charged.setdefault(buyer, Counter())[group] += sign * bought
                        touched.add(buyer)
        for buyer in touched:
            right = +self._charged.get(buyer, Counter())
            found = +Counter(dict(self.at(buyer, number)))
            require(
                found == right, f"{buyer} has bought {dict(found)}, but orders say {dict(right)}"
            )
        if number:
            self._check_limits(number, changes, rows)

    def at(self, buyer: str, number: int) -> Units:
        """The units in a buyer's row after a write."""
        known = self.known.get(buyer, [])
        before = bisect_right(known, number, key=itemgetter(0))
        return known[before - 1][1] if before else {}

    def _check_limits(
        self, number: int, changes: Sequence[Change], rows: Mapping[str, Row]
    ) -> None:
        """Check that new orders are charged for their limited products, and exceed no limit."""
        placed = [
            change.after
            for change in changes
            if change.place[0] == "Orders" and change.before is None and change.after is not None
        ]
        limits: dict[tuple[str, str], int] = {}
        for order in (each for each in placed if each["status"] == "PENDING"):
            for line in order["items"]:
                row = rows[key_of(line)]
                wanted = group_of(row) if buyers_of(order) else None
                require(
                    line.get("limitGroup") == wanted,
                    f"order {order['orderId']} has {line}, and its product's group is {wanted}",
                )
            for buyer, (group, limit) in _limits_of(order, rows):
                limits[buyer, group] = max(limit, limits.get((buyer, group), 0))
        for (buyer, group), limit in limits.items():
            bought = self.at(buyer, number).get(group, 0)
            require(bought <= limit, f"{buyer} has bought {bought} of {group}, and may buy {limit}")


def _limits_of(order: Row, rows: Mapping[str, Row]) -> Iterator[tuple[str, tuple[str, int]]]:
    lowest: dict[str, int] = {}
    for line in order["items"]:
        if (group := line.get("limitGroup")) is not None:
            limit = rows[key_of(line)]["purchaseLimit"]
            lowest[group] = min(limit, lowest.get(group, limit))
    for buyer in buyers_of(order):
        yield from ((buyer, each) for each in lowest.items())


def group_of(row: Row) -> str | None:
    """The group to which units of a product's row are charged; None if it has no limit."""
    own = str(row.get("limitGroup", row["productId"].partition("#")[0]))
    return own if row.get("purchaseLimit") else None


def buyers_of(order: Row) -> Sequence[str]:
    """The buyers of an order's row: by default its user, until it gets a pseudonym."""
    user = [] if "pseudonymisedAt" in order or "userId" not in order else [order["userId"]]
    buyers: Sequence[str] = order.get("buyers", user)
    return buyers


def charges_of(order: Row) -> Iterator[tuple[str, str, int]]:
    """Yield each buyer, group and number of units that an order's row charges."""
    left = {line["productId"]: line["quantity"] for line in order.get("items", ())}
    for step, units in steps_of(order) if left else ():
        if step["action"] in _GIVEN_BACK:
            left = {product_id: n - units[product_id] for product_id, n in left.items()}
    for line in order.get("items", ()):
        if "limitGroup" in line:
            for buyer in buyers_of(order):
                yield buyer, line["limitGroup"], left[line["productId"]]


def is_over_limit(offer: Sequence[tuple[Row | None, int]], bought: Sequence[Units]) -> bool:
    """Whether an order for these quantities of rows would exceed a limit of one of them, given what its buyers have bought."""
    wanted, lowest = Counter[str](), dict[str, int]()
    for row, quantity in offer:
        group = None if row is None else group_of(row)
        if row is not None and group is not None:
            wanted[group] += quantity
            lowest[group] = min(row["purchaseLimit"], lowest.get(group, row["purchaseLimit"]))
    return any(
        units.get(group, 0) + wanted[group] > limit
        for group, limit in lowest.items()
        for units in bought
    )
