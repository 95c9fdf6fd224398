"""Finds broken invariants of rows, lanes, orders and transfers, which are possible even if the books balance."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from inventory_orders.domain.adjustment import TRANSFER_IN, TRANSFER_OUT
from inventory_orders.domain.location import key_in, location_of, product_of, stock_key
from inventory_orders.domain.outbound import Generation
from inventory_orders.domain.product import ProductStatus, stock_status
from inventory_orders.domain.record import OrderStatus

from .movements import LOST, Move, Row, moves_of_line
from .words import lane_name


def problems_of(row: Row | None, in_lanes: Collection[int]) -> Iterator[str]:
    """Yield the faults of a product's row and of the lanes that hold its units. A delisted product has no row."""
    if row is not None:
        yield from _problems_of_row(row)
        yield from _problems_of_key(row)
        yield from _problems_with_lanes(row, in_lanes)
    elif in_lanes:
        yield f"its row is gone, but {_list(in_lanes)} {_hold(in_lanes)} units of it"


def _problems_of_row(row: Row) -> Iterator[str]:
    stock, status = row["stockCount"], row["status"]
    floor, threshold = -row.get("backorderLimit", 0), row.get("lowStockThreshold", 0)
    if stock < floor:
        yield f"its row has {stock:,}, below its floor of {floor:,}"
    sellable = stock - row.get("safetyStock", 0)
    right = stock_status(sellable, -floor, threshold, ProductStatus(status))
    if status != right and not lent_to(row):
        yield f"its row is {status} with {stock:,}: it must be {right}"


def _problems_of_key(row: Row) -> Iterator[str]:
    key, named = row["productId"], (row.get("of"), row.get("locationId"))
    location = location_of(key)
    right = (product_of(key), location) if location else (None, None)
    if named != right:
        yield f"its row {key} has {_of_and_location(*named)}: it must have {_of_and_location(*right)}"


def _of_and_location(of: object, location_id: object) -> str:
    return f"{_attribute('of', of)} and {_attribute('locationId', location_id)}"


def _attribute(name: str, value: object) -> str:
    return f"no {name}" if value is None else f"{name} {value}"


def _problems_with_lanes(row: Row, in_lanes: Collection[int]) -> Iterator[str]:
    stock, status, lanes = row["stockCount"], row["status"], lent_to(row)
    strangers = [lane for lane in in_lanes if lane not in lanes]
    if strangers:
        them = "them" if len(strangers) > 1 else "it"
        yield f"{_list(strangers)} {_hold(strangers)} units of it, but its lentTo does not list {them}"
    least = row.get("safetyStock", 0) + max(0, row.get("lowStockThreshold", 0)) + 1
    if lanes and (status != ProductStatus.ACTIVE or stock < least):
        yield (
            f"it is lent to {_list(lanes)}, but its row is {status} with {stock:,}: it must be ACTIVE with at least "
            f"{least:,}"
        )
    if lanes and "purchaseLimit" in row:
        yield f"it is lent to {_list(lanes)}, but it has a purchase limit"


def lent_to(row: Row) -> tuple[int, ...]:
    """Read a row's list of lanes that may hold more units of the product."""
    return tuple(sorted(map(int, row.get("lentTo", ()))))


def _list(lanes: Iterable[int]) -> str:
    return ", ".join(map(lane_name, lanes))


def _hold(lanes: Collection[int]) -> str:
    return "holds" if len(lanes) == 1 else "hold"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in an order line. Its units may still be accounted for.

    Attributes:
        key: The key of the row that the line took units from. If the order has no line for the product, this is the key
            of the product's own row.
        created_at: The generation that the line took units from; empty if it names none.
        what: The fault, worded to follow the names of the affected orders.
        if_it_stands: Whether to report the fault only if the generation still exists, because units cannot return to a
            delisted product.
    """

    key: str
    created_at: str
    what: str
    if_it_stands: bool = False


_HOLDS_UNITS = {OrderStatus.PENDING, OrderStatus.CONFIRMED, OrderStatus.FULFILLED}
_GAVE_ALL_BACK = {OrderStatus.CANCELLED, OrderStatus.EXPIRED}


def faults_of(order: Row, outbound: Mapping[str, int] | None = None) -> Iterator[Fault]:
    """Yield the faults of an order's lines: no units taken, units not returned, or units moved twice.

    Units that left without an outbound page are a fault, too. A `CANCELLED` line without a generation is not a fault:
    its cancellation arrived before the order, or a restore undid the order. A restore also leaves `EXPIRED` lines
    without a generation.

    Args:
        order: The row.
        outbound: The versions of the outbound pages after the row was read, by name; None if unknown.
    """
    lines = order.get("items", ())
    named = {item["productId"] for step in order.get("steps", ()) for item in step.get("items", ())}
    for name in sorted(named - {line["productId"] for line in lines}):
        yield Fault(name, "", "has a step that moves units of it, but no line for it")
    for line in lines:
        yield from _faults_of_line(order, line, outbound)


def _faults_of_line(order: Row, line: Row, outbound: Mapping[str, int] | None) -> Iterator[Fault]:
    status, key = order.get("status"), key_in(line)
    created_at = line.get("productCreatedAt")
    if created_at is None:
        if status in _HOLDS_UNITS:
            yield Fault(key, "", "took no units of it (no productCreatedAt)")
        return
    moves = list(moves_of_line(order, line))
    due, back = _returns_of_line(status, line, moves)
    still_open = line["quantity"] + sum(move.effect.open * move.units for move in moves)
    delivered = sum(move.effect.delivered * move.units for move in moves)
    if status == OrderStatus.REJECTED:
        yield Fault(key, created_at, "took units of it, but is rejected")
    elif back > due:
        what = "returned more of it to stock than was cancelled, expired or sent back"
        yield Fault(key, created_at, what)
    elif min(still_open, delivered) < 0:
        what = "handed over, cancelled, expired or took back more of it than it has"
        yield Fault(key, created_at, what)
    elif back < due:
        what = "did not return units to stock that were cancelled, expired or sent back"
        yield Fault(key, created_at, what, if_it_stands=True)
    for what in dict.fromkeys(_faults_of_leaving(moves, outbound)):
        yield Fault(key, created_at, what)


def _returns_of_line(status: object, line: Row, moves: Collection[Move]) -> tuple[int, int]:
    """Count the units of a line that must be back in stock, and the units that came back."""
    due = sum(move.units for move in moves if move.effect.available)
    lost = sum(move.units for move in moves if move.effect == LOST)
    back = sum(move.units for move in moves if move.returned is not None)
    return line["quantity"] - lost if status in _GAVE_ALL_BACK else due, back


def _faults_of_leaving(moves: Iterable[Move], outbound: Mapping[str, int] | None) -> Iterator[str]:
    """Yield faults of the outbound pages through which the units of a line left."""
    for step, effect, units, _ in moves:
        if effect.on_hand >= 0 or not units:
            continue
        page, version = step.get("outPage"), step.get("outVersion")
        if page is None or version is None:
            yield "handed over or lost units of it without an outbound page (no outPage or outVersion)"
        elif outbound is not None and version > outbound.get(page, 0):
            yield f"handed over or lost units of it on outbound page {page}, which never had the recorded version"


def problems_of_orders(
    orders: Iterable[Row], standing: Mapping[str, str], outbound: Mapping[str, int] | None
) -> dict[Generation, list[str]]:
    """Describe the faults of orders, by generation.

    Args:
        orders: The orders.
        standing: The generation of each existing row.
        outbound: As in `faults_of`.
    """
    found: _ByGeneration = {}
    for order in orders:
        for fault in faults_of(order, outbound):
            now = standing.get(fault.key, "")
            if fault.if_it_stands and fault.created_at != now:
                continue
            key = Generation(fault.key, fault.created_at or now)
            name = f"{order['orderId']} ({order.get('status', 'no status')})"
            found.setdefault(key, {}).setdefault(fault.what, []).append(name)
    return _in_words("order", found)


_ByGeneration = dict[Generation, dict[str, list[str]]]
"""Names of orders or transfers, by generation and fault."""

_NAMED = 3


def _in_words(kind: str, found: _ByGeneration) -> dict[Generation, list[str]]:
    return {
        key: [_said_of(kind, sorted(names), what) for what, names in sorted(by_fault.items())]
        for key, by_fault in found.items()
    }


def _said_of(kind: str, names: Sequence[str], what: str) -> str:
    """Describe a fault with the names of the first orders or transfers that have it, because the list may be long."""
    more = len(names) - _NAMED
    named = ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
    return f"{kind if len(names) == 1 else f'each of the {kind}s'} {named} {what}"


# ---------------------------------------------------------------------- locations


def problems_of_places(
    rows: Mapping[str, Row], is_known: Callable[[str], bool]
) -> dict[Generation, list[str]]:
    """Compare the `places` of products' own rows with the existing rows.

    Args:
        rows: The existing rows, by key.
        is_known: Whether a key that is not in `rows` certainly has no row.

    Returns:
        Descriptions of the problems, by generation of the row.
    """
    found: dict[Generation, list[str]] = {}
    for key, row in rows.items():
        problems = [*_places_without_row(row, rows, is_known), *_not_listed(key, rows, is_known)]
        if problems:
            found[Generation(key, row["createdAt"])] = problems
    return found


def _places_without_row(
    own: Row, rows: Mapping[str, Row], is_known: Callable[[str], bool]
) -> Iterator[str]:
    key = own["productId"]
    for place in sorted(own.get("places", ())):
        missing = stock_key(product_of(key), place)
        if missing not in rows and is_known(missing):
            yield f"places of its row {key} lists {place}, but there is no row {missing}"


def _not_listed(
    key: str, rows: Mapping[str, Row], is_known: Callable[[str], bool]
) -> Iterator[str]:
    own, location = product_of(key), location_of(key)
    if own not in rows:
        if is_known(own):
            yield f"there is a row {key}, but no row {own}"
    elif location and location not in rows[own].get("places", ()):
        yield f"there is a row {key}, but places of the row {own} does not list it"


_OTHER_SIDE = {TRANSFER_OUT: TRANSFER_IN, TRANSFER_IN: TRANSFER_OUT}


def problems_of_transfers(
    adjustments: Collection[Row], is_known: Callable[[str], bool]
) -> dict[Generation, list[str]]:
    """Find transfers of which only one side was booked, or whose sides do not match.

    Args:
        adjustments: All adjustments booked under the known keys.
        is_known: Whether the adjustments under a key were read.

    Returns:
        Descriptions of the problems, by generation of the existing side.
    """
    sides = [row for row in adjustments if "transferWith" in row]
    wanted = {(side["transferWith"], side["adjustmentId"]) for side in sides}
    others = {key: row for row in adjustments if (key := _key_of(row)) in wanted}
    found: _ByGeneration = {}
    for side in sides:
        other = others.get((side["transferWith"], side["adjustmentId"]))
        if fault := _fault_of_side(side, other, is_known):
            generation = Generation(side["productId"], side["productCreatedAt"])
            of_generation = found.setdefault(generation, {})
            of_generation.setdefault(fault, []).append(side["adjustmentId"])
    return _in_words("transfer", found)


def _fault_of_side(side: Row, other: Row | None, is_known: Callable[[str], bool]) -> str:
    """Describe what is wrong with the other side of a transfer. The result is empty if all is well."""
    key = side["transferWith"]
    if other is None:
        return f"has no row under {key}, its other side" if is_known(key) else ""
    wanted = _OTHER_SIDE.get(side["reason"]), -side["delta"], side["productId"]
    fits = (other["reason"], other["delta"], other.get("transferWith")) == wanted
    return "" if fits else f"does not match its row under {key}, its other side"


def _key_of(adjustment: Row) -> tuple[str, str]:
    return adjustment["productId"], adjustment["adjustmentId"]
