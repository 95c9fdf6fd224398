"""Checks, from rows alone, the equations of the books, the staff's counts and transfers, and the locations of products.

It does not use the service's own code, which is under test.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testing.world.ends import lines_of, named, units_of

Row = Mapping[str, Any]
Generation = tuple[str, str]
"""The key of a product's row, and when it was created."""


@dataclass(frozen=True, slots=True)
class StaffCount:
    """A count that the staff tried to commit.

    Attributes:
        key: The key of the counted row, which names the product and the location.
        adjustment_id: The id of the count.
        on_hand: The units on hand when the lease was acquired, according to the answer.
        counted: The number of units counted.
        result: The `result` of the answer; empty if there was none.
    """

    key: str
    adjustment_id: str
    on_hand: int
    counted: int
    result: str


@dataclass(frozen=True, slots=True)
class StaffTransfer:
    """A transfer that the staff requested.

    Attributes:
        transfer_id: Its id.
        source: The key of the row that the units should come from.
        target: The key of the row that they should go to.
        quantity: Number of units.
        result: The `result` of the answer; empty if there was none.
    """

    transfer_id: str
    source: str
    target: str
    quantity: int
    result: str


def imbalances(
    products: Iterable[Row],
    pages: Iterable[Row],
    adjustments: Iterable[Row],
    orders: Iterable[Row],
) -> list[str]:
    """Describe the equations of the books that do not hold for a listed product.

    Args:
        products: The rows of Products.
        pages: The rows of Allotments, including leases.
        adjustments: The rows of StockAdjustments.
        orders: The rows of Orders.
    """
    in_lanes, outbound = Counter[Generation](), Counter[Generation]()
    for name, generation, units in _entries(pages):
        (outbound if name.startswith("out/") else in_lanes)[generation] += units
    adjusted = Counter[Generation]()
    for row in adjustments:
        adjusted[row["productId"], row.get("productCreatedAt", "")] += row["delta"]
    held, gone, open_ = Counter[Generation](), Counter[Generation](), Counter[Generation]()
    for order in orders:
        for generation, (taken, left, waiting) in _of_order(order):
            held[generation] += taken
            gone[generation] += left
            open_[generation] += waiting
    found = []
    for row in products:
        key = row["productId"], row["createdAt"]
        available = row["stockCount"] + in_lanes[key]
        on_hand = row["onHand"] - outbound[key]
        sides = {
            "available": (available, adjusted[key] - held[key]),
            "on hand": (on_hand, adjusted[key] - gone[key]),
            "committed": (on_hand - available, open_[key]),
        }
        found += [
            f"{key[0]}: {got:,} units are {name}, the rows explain {explained:,}"
            for name, (got, explained) in sides.items()
            if got != explained
        ]
    return found


def _entries(pages: Iterable[Row]) -> Iterator[tuple[str, Generation, int]]:
    """Yield the units on pages: the name of the page, the generation, and the number of units. A lane's page also lists
    products without units."""
    for row in pages:
        entries = json.loads(zlib.decompress(bytes(row["units"]))) if "units" in row else []
        for product_id, *rest in entries:
            if rest:
                yield row["page"], (product_id, rest[0]), rest[1]


def _of_order(order: Row) -> Iterator[tuple[Generation, tuple[int, int, int]]]:
    """Yield, by generation, the units that an order holds, those that were handed over or lost and not returned, and
    the open units."""
    open_, delivered = units_of(order)
    cancelled, lost = Counter[str](), Counter[str]()
    restocked, broken = Counter[str](), Counter[str]()
    for step in order.get("steps", ()):
        match step["action"], step.get("restock"):
            case "cancel", False:
                lost += named(step)
            case (("cancel" | "expire"), _):
                cancelled += named(step)
            case "return", True:
                restocked += named(step)
            case "return", _:
                broken += named(step)
    quantities = lines_of(order)
    is_open = order["status"] in {"PENDING", "CONFIRMED"}
    # The lines of a rejected order took nothing.
    for line in (line for line in order["items"] if "productCreatedAt" in line):
        name = line["productId"]
        holds = quantities[name] - cancelled[name] - restocked[name]
        left = delivered[name] + broken[name] + lost[name]
        key = f"{name}#{line['locationId']}" if "locationId" in line else name
        yield (key, line["productCreatedAt"]), (holds, left, open_[name] if is_open else 0)


def wrong_counts(counts: Iterable[StaffCount], adjustments: Iterable[Row]) -> list[str]:
    """Describe the counts that were recorded although refused, not recorded although committed, or recorded with a
    wrong difference."""
    booked = {
        (row["productId"], row["adjustmentId"]): row
        for row in adjustments
        if row["reason"] == "COUNT"
    }
    found = []
    for count in counts:
        row = booked.pop((count.key, count.adjustment_id), None)
        wanted = (count.counted, count.counted - count.on_hand)
        is_right = row is not None and (row["counted"], row["delta"]) == wanted
        match count.result:
            case "COMMITTED":
                is_fine = is_right
            case "":
                is_fine = is_right or row is None
            case _:
                is_fine = row is None
        if not is_fine:
            found.append(f"{count} is booked as {row}")
    return found + [f"not requested: count {'/'.join(key)}" for key in booked]


def wrong_transfers(transfers: Iterable[StaffTransfer], adjustments: Iterable[Row]) -> list[str]:
    """Describe the transfers that are recorded on one side only, with a wrong number of units, or although they were
    refused, and those that were applied but not recorded."""
    booked: dict[str, list[Row]] = {}
    for row in adjustments:
        if row["reason"] in ("TRANSFER_OUT", "TRANSFER_IN"):
            booked.setdefault(row["adjustmentId"], []).append(row)
    found = []
    for asked in transfers:
        sides = {
            (row["reason"], row["productId"], row["delta"])
            for row in booked.pop(asked.transfer_id, ())
        }
        both = {
            ("TRANSFER_OUT", asked.source, -asked.quantity),
            ("TRANSFER_IN", asked.target, asked.quantity),
        }
        match asked.result:
            case "APPLIED" | "REPLAYED":
                is_fine = sides == both
            case "":
                is_fine = sides in (both, set())
            case _:
                is_fine = not sides
        if not is_fine:
            found.append(f"{asked} is booked as {sorted(sides)}")
    return found + [f"not requested: transfer {transfer_id}" for transfer_id in booked]


def wrong_places(products: Iterable[Row]) -> list[str]:
    """Describe the products whose `places` do not match the locations of their other rows, and the rows whose
    attributes contradict their key."""
    places: dict[str, set[str]] = {}
    named: dict[str, set[str]] = {}
    found = []
    for row in products:
        product_id, _, location_id = row["productId"].partition("#")
        if location_id:
            places.setdefault(product_id, set()).add(location_id)
            if (row.get("of"), row.get("locationId")) != (product_id, location_id):
                found.append(f"{row['productId']} is of {row.get('of')} at {row.get('locationId')}")
        else:
            named[product_id] = set(row.get("places", ()))
    return found + [
        f"{product_id} names {sorted(named.get(product_id, ()))}, its rows are at {sorted(places.get(product_id, ()))}"
        for product_id in sorted(named.keys() | places.keys())
        if named.get(product_id, set()) != places.get(product_id, set())
    ]
