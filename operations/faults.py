"""Broken invariants of rows, lanes and orders, in words, whatever the sums of the books are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from inventory_orders.domain.product import ProductStatus, stock_status
from inventory_orders.domain.record import LineUnits, OrderAction, OrderStatus, units_by_line
from operations.movements import Incarnation, Row, items_of_steps
from operations.words import lane_name


def problems_of(row: Row | None, in_lanes: Collection[int]) -> Iterator[str]:
    """Yield what is wrong with a product's row and the lanes that hold units of it; None for a row that is gone."""
    if row is not None:
        yield from _problems_of_row(row)
        yield from _problems_with_lanes(row, in_lanes)
    elif in_lanes:
        yield f"its row is gone, but {_list(in_lanes)} {_hold(in_lanes)} units of it"


def _problems_of_row(row: Row) -> Iterator[str]:
    stock, status = row["stockCount"], row["status"]
    floor, threshold = -row.get("backorderLimit", 0), row.get("lowStockThreshold", 0)
    if stock < floor:
        yield f"its row has {stock:,}, below its floor of {floor:,}"
    right = stock_status(stock, -floor, threshold, ProductStatus(status))
    if status != right and not lent_to(row):
        yield f"its row is {status} with {stock:,}: it must be {right}"


def _problems_with_lanes(row: Row, in_lanes: Collection[int]) -> Iterator[str]:
    stock, status, lanes = row["stockCount"], row["status"], lent_to(row)
    strangers = [lane for lane in in_lanes if lane not in lanes]
    if strangers:
        yield f"{_list(strangers)} {_hold(strangers)} units of it, but its lentTo does not name that"
    least = max(0, row.get("lowStockThreshold", 0)) + 1
    if lanes and (status != ProductStatus.ACTIVE or stock < least):
        yield (
            f"it is lent to {_list(lanes)}, but its row is {status} with {stock:,}: it must be ACTIVE with at least "
            f"{least:,}"
        )


def lent_to(row: Row) -> tuple[int, ...]:
    """List the lanes that a row names: those that may hold more of the product."""
    return tuple(sorted(map(int, row.get("lentTo", ()))))


def _list(lanes: Iterable[int]) -> str:
    return ", ".join(map(lane_name, lanes))


def _hold(lanes: Collection[int]) -> str:
    return "holds" if len(lanes) == 1 else "hold"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a line of an order, though its units may be explained.

    Attributes:
        product_id: The line's product.
        created_at: The incarnation that the line took units from; empty if it names none.
        what: The fault, to follow the orders that have it.
        if_it_stands: Whether it is none if the incarnation is gone: a delisted product takes no units back.
    """

    product_id: str
    created_at: str
    what: str
    if_it_stands: bool = False


_HOLDS_UNITS = {OrderStatus.PENDING, OrderStatus.CONFIRMED, OrderStatus.FULFILLED}
_GAVE_ALL_BACK = {OrderStatus.CANCELLED, OrderStatus.EXPIRED}


def faults_of(order: Row) -> Iterator[Fault]:
    """Yield the lines that took nothing for an order that is placed, whose units did not come back or came twice, or went two ways.

    A `CANCELLED` line without incarnation is none: its cancellation came first, or a restore undid the order. A restore
    leaves such an `EXPIRED` line, too.
    """
    lines = order.get("items", ())
    moves = [(step.get("action", ""), _moved_by(step)) for step in order.get("steps", ())]
    named = {name for _, moved in moves for name in moved or ()}
    strangers = named - {line["productId"] for line in lines}
    for name in sorted(strangers):
        yield Fault(name, "", "has a step that moves units of it, and no line of it")
    quantities = {line["productId"]: line["quantity"] for line in lines}
    units = units_by_line(quantities | dict.fromkeys(strangers, 0), moves)
    for line in lines:
        yield from _faults_of_line(order, line, units[line["productId"]])


def _moved_by(step: Row) -> dict[str, int] | None:
    """Units that a step names, by product id; None if it names none."""
    if "items" not in step:
        return None
    return {item["productId"]: item["quantity"] for item in step["items"]}


def _faults_of_line(order: Row, line: Row, units: LineUnits) -> Iterator[Fault]:
    status, product_id, created_at = (
        order.get("status"),
        line["productId"],
        line.get("productCreatedAt"),
    )
    if created_at is None:
        if status in _HOLDS_UNITS:
            yield Fault(product_id, "", "took no units for it (no productCreatedAt)")
        return
    due, back = _returns_of_line(order, line)
    if status == OrderStatus.REJECTED:
        yield Fault(product_id, created_at, "took units of it, and is rejected")
    elif back > line["quantity"]:
        yield Fault(product_id, created_at, "gave back more of it than it took")
    elif min(units.open, units.delivered) < 0:
        what = "handed over, cancelled, let expire or took back more of it than it has"
        yield Fault(product_id, created_at, what)
    elif back < due:
        what = "did not give back what was cancelled, expired or returned to stock"
        yield Fault(product_id, created_at, what, if_it_stands=True)


def _returns_of_line(order: Row, line: Row) -> tuple[int, int]:
    """Count the units of a line that have to be back in stock, and those that are."""
    items = list(items_of_steps(order, line["productId"]))
    due = sum(item["quantity"] for step, item in items if _gives_back(step))
    back = sum(item["quantity"] for _, item in items if "returnedVersion" in item)
    return line["quantity"] if order.get("status") in _GAVE_ALL_BACK else due, back


def _gives_back(step: Row) -> bool:
    """Whether a step gives the units of its items back to stock."""
    action = step.get("action")
    ends = action in (OrderAction.CANCEL, OrderAction.EXPIRE)
    return ends or (action == OrderAction.RETURN and step.get("restock") is True)


def problems_of_orders(
    orders: Iterable[Row], standing: Mapping[str, str]
) -> dict[Incarnation, list[str]]:
    """Put the faults of orders into words, by incarnation. `standing` has the incarnation of each product with a row."""
    found: dict[Incarnation, dict[str, list[str]]] = {}
    for order in orders:
        for fault in faults_of(order):
            now = standing.get(fault.product_id, "")
            if fault.if_it_stands and fault.created_at != now:
                continue
            key = fault.product_id, fault.created_at or now
            name = f"{order['orderId']} ({order.get('status', 'no status')})"
            found.setdefault(key, {}).setdefault(fault.what, []).append(name)
    return {
        key: [_of_orders(sorted(names), what) for what, names in sorted(by_fault.items())]
        for key, by_fault in found.items()
    }


_NAMED = 3


def _of_orders(names: Sequence[str], what: str) -> str:
    """A fault with the first orders that have it. Each of a million of them would be no help."""
    more = len(names) - _NAMED
    named = ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
    return f"{'order' if len(names) == 1 else 'each of the orders'} {named} {what}"
