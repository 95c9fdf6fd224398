"""The invariants that must hold in every run, whatever its schedule and faults.

The checks look at rows and answers, never at calls.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inventory_orders.domain.allotments import DEPOT, Page, PageEntry
from inventory_orders.domain.product import ProductStatus, stock_status
from inventory_orders.lanes.depot import VISIT_SECONDS
from inventory_orders.store.rows import read_outbound_page, read_page
from operations.books import add_up
from operations.lanes import Pages
from testing.world.ends import (
    OVER,
    is_adjustment,
    is_answered_with_no,
    is_carried_out,
    is_order,
    key_of,
    named,
    units_of,
)
from testing.world.tables import UNDELIVERABLE
from testing.world.violation import require

if TYPE_CHECKING:
    from testing.schedules.every.world import Change, Stock, World

_FIXED = {
    "Products": ("productId", "createdAt", "of", "locationId"),
    "Orders": ("orderId", "createdAt"),
    "Allotments": ("page", "epoch"),
}

_Generation = tuple[str, str]
_SetAside = dict[_Generation, dict[int, PageEntry]]

_MOVES = {
    ("fulfil", None): (0, -1),
    ("cancel", None): (1, 0),
    ("cancel", False): (0, -1),
    ("expire", None): (1, 0),
    ("return", True): (1, 1),
    ("return", False): (0, 0),
}
"""How each unit of a step changes the available units and the units on hand, by action and `restock`."""


def check_write(world: World, number: int, changes: Sequence[Change]) -> None:
    """Check a write and the state that it leads to, and record where each product's units are now.

    Args:
        world: The world after the write.
        number: Number of the write; 0 for the start.
        changes: The changes that it made.

    Raises:
        ViolationError: The write, or the state after it, breaks an invariant.
    """
    every_page = pages(world)
    lanes = _set_aside(every_page)
    _check_listed_places(world)
    _note_stock(world, number, lanes)
    for change in changes:
        _check_change(world, change)
    _check_records(changes)
    _check_transfers(changes)
    _check_owed(changes)
    _check_outbound(changes)
    _check_places(world, lanes)
    _check_depot(world, every_page)
    _check_stock(world)
    _check_books(world, every_page)


def pages(world: World) -> list[Page]:
    """List the pages of all lanes."""
    return [
        # The simulated table stores binary values in their wire format.
        read_page(item | {"units": {"B": base64.b64decode(item["units"]["B"])}})
        for item in world.aws.dynamodb.tables["Allotments"].items.values()
        if "epoch" in item and not _is_outbound(item["page"]["S"])
    ]


def _is_outbound(page: str) -> bool:
    return page.startswith("out/")


def _units_out(row: Mapping[str, Any] | None) -> Counter[_Generation]:
    """Count the units on an outbound page by generation, without using the service's own code."""
    if row is None:
        return Counter()
    entries = json.loads(zlib.decompress(base64.b64decode(row["units"])))
    return Counter({(product_id, created_at): units for product_id, created_at, units in entries})


def _set_aside(every_page: Iterable[Page]) -> _SetAside:
    """Count the units in each lane, by product and generation."""
    found: _SetAside = {}
    for page in every_page:
        for product_id, entry in page.entries.items():
            found.setdefault((product_id, entry.created_at), {})[page.key.lane] = entry
    return found


def _note_stock(world: World, number: int, lent: _SetAside) -> None:
    from testing.schedules.every.world import Stock

    rows = {row["productId"]: row for row in world.rows("Products")}
    out = Counter[_Generation]()
    for page in world.rows("Allotments"):
        out.update(_units_out(page) if _is_outbound(page["page"]) else {})
    for product_id in rows.keys() | world.stock.keys():
        row = rows.get(product_id)
        generation = (product_id, row["createdAt"]) if row is not None else (product_id, "")
        units = sum(entry.units for entry in lent.get(generation, {}).values())
        known = world.stock.setdefault(product_id, [])
        stock = Stock(number, row, units, out[generation])
        if not known or replace(known[-1], number=number) != stock:
            known.append(stock)


def _check_listed_places(world: World) -> None:
    """Check that each product's own row lists exactly the locations that have a row of the product."""
    rows = {row["productId"]: row for row in world.rows("Products")}
    there: dict[str, set[str]] = {name: set() for name, row in rows.items() if "of" not in row}
    for name, row in rows.items():
        require("createdAt" in row, f"the row {name} is {row}, of no product")
        if "of" in row:
            require(name == f"{row['of']}#{row['locationId']}", f"the row {name} is {row}")
            require(row["of"] in there, f"{name} has a row, and {row['of']} has none")
            there[row["of"]].add(row["locationId"])
    for name, places in there.items():
        listed = set(rows[name].get("places", ()))
        require(listed == places, f"{name} lists {sorted(listed)}, and is at {sorted(places)}")


def _check_places(world: World, lent: _SetAside) -> None:
    """Check that each row names all lanes with units of the product, and that its status is correct."""
    rows = {(row["productId"], row["createdAt"]): row for row in world.rows("Products")}
    for (name, created_at), lanes in lent.items():
        row = rows.get((name, created_at), {})
        named = {int(lane) for lane in row.get("lentTo", ())}
        require(
            lanes.keys() <= named, f"lanes {sorted(lanes)} hold {name}, lentTo is {sorted(named)}"
        )
        reach = lanes[DEPOT].reach if DEPOT in lanes else 0
        require(
            set(range(1, reach + 1)) <= named,
            f"the depot lends {name} to lanes up to {reach}, lentTo is {sorted(named)}",
        )
    for (name, _), row in rows.items():
        if "lentTo" in row:
            least = max(0, row.get("lowStockThreshold", 0))
            require(
                row["status"] == "ACTIVE" and row["stockCount"] > least,
                f"{name} is lent to {sorted(row['lentTo'])}, and {row['status']} with a stock of {row['stockCount']}",
            )


def _check_depot(world: World, every_page: Iterable[Page]) -> None:
    """Check that the depot's pages name every product that was lent, so that the sweep finds it."""
    shelves = [page for page in every_page if page.key.lane == DEPOT]
    named = {name for page in shelves for name in (*page.entries, *page.emptied)}
    for row in world.rows("Products"):
        require(
            "lentTo" not in row or row["productId"] in named,
            f"{row['productId']} is lent to {sorted(row.get('lentTo', ()))}, and on no page of the depot",
        )


def _check_change(world: World, change: Change) -> None:
    table, key = change.place
    name = "/".join(key)
    before, after = change.before, change.after
    if name.endswith("/lease"):
        return
    if table == "StockAdjustments":
        require(before is None, f"the adjustment {name} was changed after it was booked")
        return
    if after is None:
        require(table == "Products", f"{table} {name} was deleted")
    elif before is None:
        require(after["_version"] == 1, f"{table} {name} starts with version {after['_version']}")
    else:
        # A version counts changes of the item. Acquiring or releasing a lease does not count, nor does a fold or a
        # newly listed location: no other write depends on them.
        different = before.keys() ^ after.keys() | {k for k in before if before[k] != after.get(k)}
        is_free = all(attribute.startswith("lock") for attribute in different)
        allowed = {0, 1} if is_free else {0} if different in ({"onHand"}, {"places"}) else {1}
        require(
            after["_version"] - before["_version"] in allowed,
            f"{table} {name} went from version {before['_version']} to {after['_version']}",
        )
        for attribute in _FIXED[table]:
            require(
                before.get(attribute) == after.get(attribute),
                f"{attribute} of {table} {name} was changed",
            )
    if table == "Products":
        _check_product(world, change)
    elif table == "Orders" and after is not None:
        _check_order(world, change, before, after)


def _check_records(changes: Sequence[Change]) -> None:
    """Check that a count or the closing entry of a delisted product records the right difference from the product's row,
    which the same write changes.
    """
    rows = {change.place[1][0]: change for change in changes if change.place[0] == "Products"}
    for change in changes:
        booked = change.after
        if change.place[0] != "StockAdjustments" or booked is None:
            continue
        name, row = booked["productId"], rows.get(booked["productId"])
        before = (row.before if row is not None else None) or {}
        if "counted" in booked:
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


def _check_transfers(changes: Sequence[Change]) -> None:
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
    """Check that units handed over are added to the outbound pages named in the steps, and that the write changes no
    products.
    """
    leaving = dict[str, Counter[_Generation]]()
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
                named = f"{step['outPage']} at version {step['outVersion']}"
                leaving.setdefault(named, Counter()).update(left)
    pages = {
        f"{c.after['page']} at version {c.after['_version']}": _gained(c)
        for c in changes
        if c.place[0] == "Allotments" and c.after is not None and _is_outbound(c.after["page"])
    }
    gained = {page: units for page, units in pages.items() if units}
    require(
        leaving == gained,
        f"orders handed over {_in_words(leaving)}, but pages gained {_in_words(gained)}",
    )
    rows = [change.place[1][0] for change in changes if change.place[0] == "Products"]
    require(not (leaving and rows), f"{_in_words(leaving)} left with a write of {rows}")


def _in_words(units: Mapping[str, Counter[_Generation]]) -> str:
    said = (
        f"{number} of {name}, listed at {created_at}, on {page}"
        for page, of_page in units.items()
        for (name, created_at), number in of_page.items()
    )
    return "; ".join(said) or "nothing"


def _gained(page: Change) -> Counter[_Generation]:
    """Count the units that a write added to an outbound page."""
    return _units_out(page.after) - _units_out(page.before)


def _leaving(
    order: Mapping[str, Any], step: Mapping[str, Any], units: Counter[str]
) -> Counter[_Generation]:
    """Count the on-hand units that leave the warehouse in a step, by the generation that they were taken from."""
    _, on_hand = _MOVES.get((step["action"], step.get("restock")), (0, 0))
    return Counter(
        {
            (key_of(line), line["productCreatedAt"]): units[line["productId"]]
            for line in order["items"]
            if on_hand < 0 and units[line["productId"]]
        }
    )


def _new_steps(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], Counter[str]]]:
    """Yield the steps that a write added to an order, each with the units that it moves."""
    known = before.get("steps", [])
    return ((step, units) for step, units in _steps_of(after) if step not in known)


def _steps_of(order: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Counter[str]]]:
    """Yield the steps of an order, each with the units that it moves. A step without items moves all open units."""
    open_ = Counter({line["productId"]: line.get("quantity", 0) for line in order["items"]})
    for step in order.get("steps", ()):
        moved = named(step)
        if step["action"] == "fulfil" and "items" not in step:
            moved = Counter(open_)
        if step["action"] != "return":
            open_ -= moved
        yield step, moved


def _check_stock(world: World) -> None:
    """Check that each product's available, on-hand and committed units match the records."""
    available, on_hand, committed = (Counter[_Generation]() for _ in range(3))
    for booked in world.rows("StockAdjustments"):
        generation = booked["productId"], booked.get("productCreatedAt", "")
        available[generation] += booked["delta"]
        on_hand[generation] += booked["delta"]
    for order in world.rows("Orders"):
        taken = {
            line["productId"]: (key_of(line), line.get("productCreatedAt", ""))
            for line in order["items"]
        }
        for line in order["items"]:
            available[taken[line["productId"]]] -= line["quantity"]
        for step, units in _steps_of(order):
            moves = _MOVES.get((step["action"], step.get("restock")), (0, 0))
            for product_id, quantity in units.items():
                available[taken[product_id]] += moves[0] * quantity
                on_hand[taken[product_id]] += moves[1] * quantity
        if order["status"] in {"PENDING", "CONFIRMED"}:
            open_, _ = units_of(order)
            committed.update({taken[name]: units for name, units in open_.items()})
    for name, known in world.stock.items():
        stock = known[-1]
        if stock.row is None:
            continue
        generation = name, stock.row["createdAt"]
        for found, wanted, what in (
            (stock.available, available[generation], "available"),
            (stock.on_hand, on_hand[generation], "on hand"),
            (stock.on_hand - stock.available, committed[generation], "committed"),
        ):
            require(
                found == wanted,
                f"{name} has {found} {what}, but adjustments and orders leave {wanted}",
            )


def _check_product(world: World, change: Change) -> None:
    before, after, name = change.before, change.after, change.place[1][0]
    # If clocks are wrong, a lease does not exclude other processes, and its fence protects the row instead.
    now = world.clock.seconds + change.process.clock
    if before is not None and before.get("lockTime", 0) > now:
        owner = world.lock_owners.get(change.place)
        require(
            # A' repeats the commands of A.
            owner == change.process.name.rstrip("'"),
            f"{change.process.name} wrote product {name} under the live lease of {owner}",
        )
    if after is None:
        return
    if after.get("lockedBy") != (before or {}).get("lockedBy"):
        world.lock_owners[change.place] = change.process.name
        world.locked_since[change.place] = change.number
    begun_with = after.get("lockOnHand")
    if begun_with is not None and begun_with != (before or {}).get("lockOnHand"):
        _check_begin(world, change, begun_with)
    floor = -after.get("backorderLimit", 0)
    require(
        after["stockCount"] >= floor, f"the stock of {name} fell to {after['stockCount']}: oversold"
    )
    status = stock_status(
        after["stockCount"],
        after.get("backorderLimit", 0),
        after.get("lowStockThreshold", 0),
        ProductStatus(after["status"]),
    )
    require(
        after["status"] == status,
        f"{name} is {after['status']} with a stock of {after['stockCount']}",
    )


def _check_begin(world: World, change: Change, begun_with: int) -> None:
    """Check that a count began with the units that were on hand at some moment during its lease."""
    known, since = world.stock[change.place[1][0]], world.locked_since.get(change.place, 0)
    there = {
        stock.on_hand
        for stock, after in zip(known, [*known[1:], None], strict=True)
        if stock.row is not None and (after is None or after.number > since)
    }
    name = change.place[1][0]
    require(
        begun_with in there, f"a count of {name} began with {begun_with}, but on hand were {there}"
    )


def _check_order(
    world: World, change: Change, before: dict[str, Any] | None, after: dict[str, Any]
) -> None:
    name = after["orderId"]
    require(
        ("expiresAt" in after) == ("expiryShard" in after)
        and ("expiresAt" not in after or after["status"] == "PENDING"),
        f"order {name} is {after['status']}, and its hold ends at {after.get('expiresAt')}",
    )
    require(
        ("fulfilShard" in after) == (after["status"] == "CONFIRMED"),
        f"order {name} is {after['status']}, and in byToFulfil: {'fulfilShard' in after}",
    )
    if before is not None:
        _check_step(world, change, before, after)
        return
    if after["status"] == "REJECTED":
        _check_rejected_order(world, change, after)
    _check_order_of_group(world, name)
    _check_lines(world, change, after)
    _check_places_of_lines(after)
    _check_backorder(world, change, after)


_STEPS = {
    ("PENDING", "CONFIRMED"),
    ("PENDING", "CANCELLED"),
    ("PENDING", "EXPIRED"),
    ("CONFIRMED", "FULFILLED"),
    ("CONFIRMED", "CANCELLED"),
}
_MAY_BE = {
    "extend": {"PENDING"},
    "cancel": {"PENDING", "CONFIRMED"},
    "fulfil": {"CONFIRMED"},
    "return": {"CONFIRMED", "FULFILLED"},
}
"""Statuses that an action may leave unchanged."""
# Timestamps that a step writes in addition to the status, the lines, and the end of the hold.
_STAMPS = {"CONFIRMED": "confirmedAt", "FULFILLED": "fulfilledAt"}


def _check_step(
    world: World, change: Change, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Check that a change to an order is a step of its lifecycle, a late payment, a return, or the order's arrival
    after a tombstone.
    """
    from testing.schedules.every.world import GRACE_SECONDS

    name, step = after["orderId"], (before["status"], after["status"])
    written = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    written -= {"_version", "lastUpdatedAt"}
    if "userId" not in before:
        require(step == ("CANCELLED", "CANCELLED"), f"the tombstone of {name} is {step[1]}")
        return
    if step[0] != step[1]:
        require(step in _STEPS, f"order {name} went from {step[0]} to {step[1]}")
        allowed = {"status", "steps", "expiresAt", "expiryShard", "fulfilShard"}
        allowed.add(_STAMPS.get(step[1], "status"))
        require(written <= allowed, f"with {step[1]}, order {name} was given {written - allowed}")
        require(
            ("fulfilShard" in after) == (step[1] == "CONFIRMED"),
            f"order {name} is {step[1]}, and the index of orders to ship disagrees",
        )
        require("expiresAt" not in after, f"order {name} is {step[1]}, but its hold has not ended")
        require(
            step[1] != "CONFIRMED" or "confirmationRejected" not in before,
            f"order {name} was confirmed after its confirmation was rejected",
        )
        clock = change.process.clock
        require(
            step[1] != "EXPIRED"
            or before.get("expiresAt", "9999") <= world.moment(clock - GRACE_SECONDS),
            f"order {name} expired at {world.moment(clock)}, and its hold ends at {before.get('expiresAt')}",
        )
    elif written == {"confirmationRejected"}:
        _check_rejection(before, after)
        return
    else:
        action = after.get("steps", [{}])[-1].get("action")
        allowed = {"steps", "expiresAt"} if action == "extend" else {"steps"}
        require(
            {"steps"} <= written <= allowed and step[1] in _MAY_BE[action],
            f"order {name}, which is {step[1]}, was given {sorted(written)} by {action}",
        )
    _check_units(world, before, after)


def _check_rejection(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Check that the row gives the right reason for rejecting a confirmation."""
    name, reason = before["orderId"], after["confirmationRejected"]["reason"]
    require(
        before["status"] in OVER
        and reason == f"ORDER_{before['status']}"
        and "confirmedAt" not in before,
        f"order {name} is {before['status']}, and its confirmation was rejected as {reason}",
    )


def _check_units(world: World, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Check that a change to an order adds one step, moves at most the units that are left, and sets the right status.

    The check of the books shows whether units were returned to stock.
    """
    name, status = after["orderId"], after["status"]
    steps, step = before.get("steps", []), after.get("steps", [{}])[-1]
    if step["action"] == "extend":
        steps = [one for one in steps if one["action"] != "extend"]
    require(after["steps"] == [*steps, step], f"order {name} went from {steps} to {after['steps']}")
    ids = [one["stepId"] for one in after["steps"] if "stepId" in one]
    require(len(ids) == len(set(ids)), f"order {name} has the steps {ids}")
    open_, delivered = units_of(before)
    moved = named(step)
    room = delivered if step["action"] == "return" else open_
    require(moved <= room, f"{step} of order {name} moves more than {room}")
    goes_back = _MOVES[step["action"], step.get("restock")][0] > 0 if moved else False
    lines = {line["productId"]: line for line in before["items"]}
    for item in step.get("items", ()):
        line = lines[item["productId"]]
        product = world.row("Products", key_of(line)) or {}
        stands = product.get("createdAt") == line.get("productCreatedAt")
        require(
            ("returnedVersion" in item) == (goes_back and stands),
            f"{step} of order {name} says {item}",
        )
    open_, _ = units_of(after)
    is_settled = status in {"FULFILLED", "CANCELLED"}
    require(
        is_settled == (not open_) or status == "EXPIRED",
        f"order {name} is {status}, and {open_} is neither handed over nor cancelled",
    )


_Candidate = tuple["Stock | None", int]
"""The state of a line's row at a location at some moment, and the quantity ordered."""


def _check_rejected_order(world: World, change: Change, order: dict[str, Any]) -> None:
    """Check that at one moment during the invocation, the order could not have been placed from any of its locations, for the
    reason given.
    """
    reason, is_split = order["reason"], order.get("split", False)
    require(
        any(
            _is_true(reason, offers, is_split=is_split) for offers in _moments(world, change, order)
        ),
        f"order {order['orderId']} was rejected as {reason}, which was never true while it was being placed",
    )


def _check_backorder(world: World, change: Change, order: dict[str, Any]) -> None:
    """Check that an order was placed on backorder only if at one moment no location had the goods, unless one was being counted."""
    if any("backordered" in line for line in order["items"]):
        require(
            not all(any(map(_has_goods, offers)) for offers in _moments(world, change, order)),
            f"order {order['orderId']} was placed on backorder, although a location had the goods at every moment",
        )


_Offers = list[list[_Candidate]]
"""The state of each line's row at each location, at one moment."""


def _moments(world: World, change: Change, order: Mapping[str, Any]) -> Iterator[_Offers]:
    """Yield the offers of an order as they were at each moment since its invocation began."""
    begun = change.process.begun or 0
    offers = [
        [(_candidate(line, location), line["quantity"]) for line in order["items"]]
        for location in order.get("locations", [""])
    ]
    known = [world.stock.get(key, []) for offer in offers for key, _ in offer]
    for moment in {begun, *(stock.number for states in known for stock in states)}:
        if moment >= begun:
            yield [[(_state_at(world, key, moment), n) for key, n in offer] for offer in offers]


def _candidate(line: Mapping[str, Any], location: str) -> str:
    """The key of the row that a line would be taken from: at the line's own location if it names one, else at this one."""
    return key_of({**line, "locationId": line.get("askedLocationId", location)})


def _state_at(world: World, key: str, moment: int) -> Stock | None:
    """The state of a row and its lanes after write number `moment`."""
    earlier = [stock for stock in world.stock.get(key, ()) if stock.number <= moment]
    return earlier[-1] if earlier else None


def _is_true(reason: str, offers: _Offers, *, is_split: bool) -> bool:
    """Whether an order with these offers cannot be placed, for this reason."""
    lines = list(zip(*offers, strict=True))
    if reason == "UNKNOWN_PRODUCT":
        return any(all(map(_is_gone, line)) for line in lines)
    if reason == "DISCONTINUED_PRODUCT":
        return any(
            all(_is_gone(each) or _is_discontinued(each) for each in line)
            and any(map(_is_discontinued, line))
            for line in lines
        )
    require(reason == "INSUFFICIENT_STOCK", f"no rule for the reason {reason}")
    if is_split:
        return any(all(map(_lacks, line)) for line in lines)
    return all(any(map(_is_short if len(offers) == 1 else _lacks, offer)) for offer in offers)


def _is_gone(candidate: _Candidate) -> bool:
    stock, _ = candidate
    return stock is None or stock.row is None


def _is_discontinued(candidate: _Candidate) -> bool:
    stock, _ = candidate
    return stock is not None and stock.row is not None and stock.row["status"] == "DISCONTINUED"


def _is_short(candidate: _Candidate) -> bool:
    stock, quantity = candidate
    if stock is None or stock.row is None:
        return False
    return bool(stock.available + stock.row.get("backorderLimit", 0) < quantity)


def _has_goods(offer: Sequence[_Candidate]) -> bool:
    """Whether a location has all units of an order in stock, and none of its rows is leased."""
    return all(
        stock is not None
        and stock.row is not None
        and not _is_discontinued((stock, quantity))
        and "lockedBy" not in stock.row
        and stock.available >= quantity
        for stock, quantity in offer
    )


def _lacks(candidate: _Candidate) -> bool:
    """Whether a location cannot supply a line."""
    return _is_short(candidate) or _is_gone(candidate) or _is_discontinued(candidate)


def _check_places_of_lines(order: Mapping[str, Any]) -> None:
    """Check that each line comes from a location that the order allows. Unless the order is split, all lines that name
    no location must come from the same one.
    """
    if order["status"] != "PENDING":
        return
    chosen = set()
    for line in order["items"]:
        place = line.get("locationId", "")
        asked = line.get("askedLocationId")
        allowed = order.get("locations", [""]) if asked is None else [asked]
        require(
            place in allowed, f"order {order['orderId']} has the line {line}, and allows {allowed}"
        )
        chosen |= {place} if asked is None else set()
    require(
        len(chosen) <= 1 or "split" in order,
        f"order {order['orderId']} may not be split, but comes from {sorted(chosen)}",
    )


def _check_lines(world: World, change: Change, order: dict[str, Any]) -> None:
    """Check that each line of a placed order names the row or page that was written for it, with its version."""
    if order["status"] != "PENDING":
        return
    written = {
        other.place: other.after["_version"]
        for other in world.history
        if other.number == change.number and other.after is not None and "_version" in other.after
    }
    for line in order["items"]:
        paid = [
            (("Products", (key_of(line),)), line.get("productVersion")),
            (("Allotments", (line.get("lanePage"),)), line.get("laneVersion")),
        ]
        named = [(place, version) for place, version in paid if version is not None]
        require(
            len(named) == 1 and written.get(named[0][0]) == named[0][1],
            f"order {order['orderId']} has the line {line}, but {written} was written",
        )


def _check_order_of_group(world: World, order_id: str) -> None:
    """Check that no message of a group takes effect before an earlier one."""
    group, earlier = None, []
    for message_id, (function, body, its_group) in world.sent.items():
        if function == "place_orders" and its_group is not None:
            if body["orderId"] == order_id:
                group = its_group
                break
            earlier.append((message_id, its_group))
    for message_id, its_group in earlier:
        if group == its_group:
            require(
                end_of(world, message_id) is not None,
                f"{order_id} took effect before {world.sent[message_id][1]['orderId']} of its group",
            )


def end_of(world: World, message_id: str, since: int = 0) -> str | None:
    """Find the outcome of a message from durable rows and dead letters only. None if it has no outcome yet.

    Args:
        world: The run.
        message_id: The message.
        since: The number of writes before the invocation. A command that changed nothing may have been answered from
            any state of the order's row since then.
    """
    function, body, _ = world.sent[message_id]
    command = {"action": "expire"} | body if function == "change_orders" else body
    dead, done = world.error_codes(message_id), _is_done(world, function, command)
    require(not (dead and done), f"{body} was done and dead-lettered as {dead}")
    answered = function == "change_orders" and any(
        is_answered_with_no(row, command) for row in world.states(since, "Orders", body["orderId"])
    )
    return dead[0] if dead else "done" if done or answered else None


def _is_done(world: World, function: str, asked: dict[str, Any]) -> bool:
    """Whether the rows show that a message or a direct command was carried out."""
    match function:
        case "place_orders":
            return is_order(world.row("Orders", asked["orderId"]), asked)
        case "change_orders":
            return is_carried_out(world.row("Orders", asked["orderId"]), asked)
        case "adjust_stock" if asked.get("action") == "transfer":
            # The check of each write covers the other side.
            source = key_of(asked | {"locationId": asked["from"]})
            row = world.row("StockAdjustments", source, asked["transferId"])
            return row is not None and row["delta"] == -asked["quantity"]
        case "adjust_stock":
            row = world.row("StockAdjustments", key_of(asked), asked["adjustmentId"])
            return row is not None and is_adjustment(row, asked)
        case "count_stock":
            key = key_of(asked["lease"])
            return world.row("StockAdjustments", key, asked["adjustmentId"]) is not None
        case _:
            return _is_managed(world.row("Products", key_of(asked)), asked)


_EVENTS = {
    "PENDING": "OrderPlaced",
    "REJECTED": "OrderRejected",
    "CONFIRMED": "OrderConfirmed",
    "FULFILLED": "OrderFulfilled",
    "CANCELLED": "OrderCancelled",
    "EXPIRED": "OrderExpired",
}


def check_event(world: World, event: dict[str, Any]) -> None:
    """Check that an event matches a change in the rows, and that it does not overtake an earlier event about the same
    order or product.

    Raises:
        ViolationError: The event is wrong.
    """
    published, happened = _published(world), _happened(world)
    event_id = event["metadata"]["eventId"]
    for subject, ids in published.items():
        expected = happened.get(subject, [])
        require(
            ids == expected[: len(ids)],
            f"{event_id} was published, so events of {subject} are {ids}, but its changes call for {expected}",
        )


def _published(world: World) -> dict[str, list[str]]:
    """List the ids of all events on the bus by subject, without duplicates, in order of first arrival."""
    found: dict[str, list[str]] = {}
    for event in world.bus:
        event_id = event["metadata"]["eventId"]
        data = event["data"]
        # A probe has no subject.
        subject = data.get("orderId") or (key_of(data) if "productId" in data else None)
        ids = found.setdefault(str(subject), [])
        if subject is not None and event_id not in ids:
            ids.append(event_id)
    return found


def _happened(world: World) -> dict[str, list[str]]:
    """List the ids of the events that the changes to the rows require."""
    found: dict[str, list[str]] = {}
    for change in world.history:
        table, (subject, *_) = change.place
        before, after = change.before or {}, change.after
        if table not in world.streams or after is None:
            continue
        names = _news(before, after) if table == "Orders" else product_news(before, after)
        product_id, *place = subject.split("#")
        of = subject if table == "Orders" else f"{product_id}@{after['createdAt']}"
        found.setdefault(subject, []).extend(
            "#".join([of, str(after["_version"]), name, *place]) for name in names
        )
    return found


def _news(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    if "userId" not in after:
        return
    # An order that replaces its tombstone is new.
    before = before if "userId" in before else {}
    status, steps = after["status"], after.get("steps", [])
    is_step = len(steps) > len(before.get("steps", ()))
    action = steps[-1]["action"] if is_step else ""
    if action in _PARTLY and status != _ENDS_AS[action]:
        yield _PARTLY[action]
    if before.get("status") != status:
        yield _EVENTS[status]
    if before.get("confirmationRejected") != after.get("confirmationRejected"):
        yield "ConfirmationRejected"
    if action == "return":
        yield "OrderReturned"


_PARTLY = {"fulfil": "OrderPartlyFulfilled", "cancel": "OrderPartlyCancelled"}
_ENDS_AS = {"fulfil": "FULFILLED", "cancel": "CANCELLED"}


def product_news(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """List the types of the events that a change to a product's row requires, without using the service's own code."""
    steps = [order.get("status") for order in (before, after)]
    ranks = ["OUT_OF_STOCK", "LOW_STOCK", "ACTIVE"]
    if steps[0] in ranks and steps[1] in ranks and steps[0] != steps[1]:
        is_better = ranks.index(steps[1]) > ranks.index(steps[0])
        worse = "ProductOutOfStock" if steps[1] == "OUT_OF_STOCK" else "ProductLowOnStock"
        better = "ProductBackInStock" if steps[0] == "OUT_OF_STOCK" else "ProductStockRecovered"
        yield better if is_better else worse


def check_end(world: World) -> None:
    """Check the state at the end of a run.

    Raises:
        ViolationError: This state breaks an invariant.
    """
    from testing.schedules.every.world import DEPOT_LEASE

    for message_id, (_, body, _) in world.sent.items():
        end = end_of(world, message_id)
        require(end is not None, f"{body} was lost")
        require(end != "REFUSED_BY_DYNAMODB", f"{body} was treated as an invalid message")
    published = _published(world)
    for subject, expected in _happened(world).items():
        require(
            published.get(subject, []) == expected,
            f"events of {subject} on the bus: {published.get(subject)}; its changes call for: {expected}",
        )
    for queue in world.aws.sqs.queues.values():
        require(
            queue.name != UNDELIVERABLE or not queue.messages,
            f"{queue.messages} was treated as undeliverable",
        )
        for message in queue.messages if "Dead" in queue.name else ():
            require("errorCode" in message.attributes, f"SQS dead-lettered {message.body}")
    if not world.crashes:
        # If the release of the depot's lease failed, the lease expires soon.
        tolerated = VISIT_SECONDS if world.faults_used else 0.0
        tolerated += max(0.0, *world.clocks.values(), 0.0)
        line = world.row(DEPOT_LEASE[0], *DEPOT_LEASE[1]) or {}
        for row in (*world.rows("Products"), line):
            left = float(row.get("lockTime", 0)) - world.clock.seconds
            require(left <= tolerated, f"the lock of {row.get('lockedBy')} was left behind")
    for function, command, answer in world.answers:
        _check_answer(world, function, command, answer)


def _check_books(world: World, every_page: Iterable[Page]) -> None:
    """Check that an audit would find no problem."""
    outbound = {
        item["page"]["S"]: read_outbound_page(
            item | {"units": {"B": base64.b64decode(item["units"]["B"])}}
        )
        for item in world.aws.dynamodb.tables["Allotments"].items.values()
        if _is_outbound(item["page"]["S"])
    }
    for account in add_up(
        world.rows("Products"),
        world.rows("StockAdjustments"),
        world.rows("Orders"),
        Pages({str(page.key): page for page in every_page}, outbound),
    ):
        said = "; ".join(account.unexplained_in_words)
        require(not said, f"{account.product_id} has {said}")
        require(not account.problems, f"{account.product_id}: {'; '.join(account.problems)}")


def _check_answer(
    world: World, function: str, command: dict[str, Any], answer: dict[str, Any]
) -> None:
    """Check that the answer to a command matches the rows."""
    result, action = answer.get("result"), command.get("action")
    require(result is not None, f"{command} was answered {answer}")
    if function == "sweep" or (function == "count_stock" and action != "commit"):
        return
    done = _is_done(world, function, command)
    # A cancellation also gets this answer if there was nothing left to cancel.
    if result in {"APPLIED", "REPLAYED", "STALE", "COMMITTED"} and (result, action) != (
        "REPLAYED",
        "cancel",
    ):
        require(done, f"{command} was answered {answer}, and is not done")
    elif function in {"adjust_stock", "count_stock"}:
        is_refused = result in {"REFUSED", "INVALID"}
        require(not (is_refused and done), f"{command} was answered {answer}, but is booked")
    elif result == "REFUSED" and (function == "place_orders" or action == "confirm"):
        row = world.row("Orders", command["orderId"]) or {}
        says_so = "confirmationRejected" in row or answer["code"] == "UNKNOWN_ORDER"
        if function == "place_orders":
            says_so = row.get("status") == "REJECTED"
        require(says_so, f"{command} was answered {answer}, and the row is {row}")


def _is_managed(row: dict[str, Any] | None, command: dict[str, Any]) -> bool:
    """Whether a product's row shows that a command or a catalogue event was carried out. No scenario undoes its effect
    later.
    """
    if "eventTime" in command:
        return row is not None and row.get("detailsEventTime", "") >= command["eventTime"]
    if command["action"] == "delist":
        return row is None or bool(row["createdAt"] != command["createdAt"])
    wanted = {name: command[name] for name in command.keys() - {"action", "openingStock"}}
    wanted["productId"] = key_of(command)
    if command["action"] == "discontinue":
        wanted["status"] = "DISCONTINUED"
    return row is not None and wanted.items() <= row.items()
