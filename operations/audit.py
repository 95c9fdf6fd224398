"""The books: explains every product's stock by its adjustments and orders, also while orders go on.

The audit reads a product's row and its pages first, then its adjustments and orders. These say which version of the row
or page they made, in the same transaction. So the audit finds every change up to the version that it read, and leaves
out changes with a later version.

It reads a product again in three cases. An atomic decrement does not say a version, so a product with recent ones is
read until none came in between. Units that moved during the read may be missing or counted twice. A difference counts
only if the next read shows it too.

Source: a strongly consistent read returns all writes that succeeded before it,
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.ReadConsistency.html
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from inventory_orders.clock import timestamp
from inventory_orders.domain.allotments import DEPOT, Page, PageKey
from inventory_orders.domain.order_record import OrderAction, OrderStatus, units_by_line
from inventory_orders.domain.product import ProductStatus, stock_status
from inventory_orders.store.rows import KEYS, Table, decode
from operations.aws import Aws, get_items, scan
from operations.lanes import Pages, Places, lane_name, read_all, read_pages, read_places

Row = Mapping[str, Any]
_Incarnation = tuple[str, str]

# An adjustment bears the time at which its invocation began to write it. It may be in flight as long as an invocation
# lasts (at most 15 minutes), by a clock that is a minute off.
_IN_FLIGHT_SECONDS = 16 * 60

# How often the audit reads doubtful products again, and its pause before each read, in seconds.
_LOOKS = 6
_PAUSE = 0.25
# How often products are read again at once, until no atomic decrement comes in between.
_TRIES = 20
_SIDE_BY_SIDE = 8


@dataclass(frozen=True, slots=True)
class Account:
    """One incarnation of a product, at one version of it.

    Attributes:
        product_id: The product.
        created_at: Creation time of the incarnation, ISO 8601.
        status: The product's status; `DELISTED` if its row is gone.
        version: The row's version; 0 if the row is gone.
        stock: Units in the row; 0 if the row is gone.
        adjusted: Sum of its adjustments, in units.
        sold: Units in orders that hold stock.
        settled: Whether the figures belong together; false if the product changes too fast to be read.
        in_lanes: Units in lanes, by lane.
        lent_to: The lanes that its row names: those that may hold more of it.
        problems: Broken invariants of the row, the pages and the orders, in words.
        pages: The pages that were read with the row, by name.
    """

    product_id: str
    created_at: str
    status: str
    version: int
    stock: int
    adjusted: int
    sold: int
    settled: bool = True
    in_lanes: Mapping[int, int] = field(default_factory=dict)
    lent_to: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()
    pages: Mapping[str, Page] = field(default_factory=dict, compare=False, repr=False)

    @property
    def on_hand(self) -> int:
        """Units in the row and in lanes."""
        return self.stock + sum(self.in_lanes.values())

    @property
    def difference(self) -> int:
        """Units on hand, less those that adjustments and orders explain; 0 when the books balance."""
        return self.on_hand - (self.adjusted - self.sold)

    @property
    def unexplained(self) -> int:
        """Units that are certainly unexplained."""
        return self.difference if self.settled else 0

    @property
    def as_json(self) -> dict[str, Any]:
        """The account, for other programs."""
        return {
            "productId": self.product_id,
            "createdAt": self.created_at,
            "status": self.status,
            "onHand": self.on_hand,
            "inRow": self.stock,
            "inLanes": self.in_lanes,
            "lentTo": self.lent_to,
            "adjusted": self.adjusted,
            "sold": self.sold,
            "unexplained": self.unexplained,
            "settled": self.settled,
            "problems": self.problems,
        }

    @property
    def is_wrong(self) -> bool:
        """Whether something is certainly wrong."""
        return self.settled and self._finding != _FINE

    @property
    def balances(self) -> bool:
        """Whether its figures belong together, and nothing is wrong."""
        return self.settled and not self.is_wrong

    @property
    def _finding(self) -> _Finding:
        return self.difference, self.problems


_Finding = tuple[int, tuple[str, ...]]
_FINE: _Finding = (0, ())


@dataclass(frozen=True, slots=True)
class Books:
    """All accounts, and the rows that they are computed from.

    Attributes:
        accounts: One for each incarnation of a product.
        orders: All orders, by id.
        adjustments: All adjustments that were booked.
        corrupt_pages: Errors of the pages that cannot be read, by page name. These pages count as empty.
        corrupt_rows: Errors of the other rows that cannot be read, by table and key. These rows are left out.
    """

    accounts: tuple[Account, ...]
    orders: Mapping[str, dict[str, Any]]
    adjustments: Sequence[Mapping[str, Any]]
    corrupt_pages: Mapping[str, str] = field(default_factory=dict)
    corrupt_rows: Mapping[str, str] = field(default_factory=dict)

    @property
    def corrupt(self) -> list[str]:
        """Errors of all pages and rows that cannot be read."""
        return [*self.corrupt_pages.values(), *self.corrupt_rows.values()]


def read_books(aws: Aws) -> Books:
    """Read all tables with strong consistency, and add up. Correct also while others write."""
    began = time.time()
    corrupt: dict[str, str] = {}
    places = _readable_places(read_all(aws), corrupt)
    rows = _booked(read_rows(aws, Table.STOCK_ADJUSTMENTS))
    adjustments: Sequence[Row] = list(_readable(Table.STOCK_ADJUSTMENTS, rows, corrupt))
    orders = _read_orders(aws, corrupt)
    recent = timestamp(datetime.fromtimestamp(began - _IN_FLIGHT_SECONDS, UTC))
    accounts = _by_incarnation(
        _add_up(
            dict.fromkeys([*places.rows, *_in_pages(places)], places),
            adjustments,
            orders.values(),
            unsettled=_without_version(adjustments, recent),
        )
    )
    # A product without a row may have been created since.
    closed = {_adjustment(row).incarnation for row in adjustments if row["reason"] == "CLOSING"}
    for key, account in accounts.items():
        if account.status == _GONE["status"] and key not in closed:
            accounts[key] = replace(account, settled=False)
    confirmed: dict[_Incarnation, _Finding] = {}
    for _ in range(_LOOKS):
        doubtful = {key for key, account in accounts.items() if _is_doubtful(account, confirmed)}
        if not doubtful:
            break
        confirmed |= {key: accounts[key]._finding for key in doubtful if accounts[key].settled}
        time.sleep(_PAUSE)
        product_ids = {key[0] for key in doubtful}
        again, adjustments, orders = _look_again(aws, product_ids, adjustments, corrupt)
        accounts = {key: a for key, a in accounts.items() if key not in doubtful} | _by_incarnation(
            again
        )
    return Books(
        tuple(
            replace(account, settled=account.settled and not _is_doubtful(account, confirmed))
            for _, account in sorted(accounts.items())
        ),
        orders,
        adjustments,
        places.before.corrupt,
        corrupt,
    )


def read_accounts(aws: Aws, product_ids: Iterable[str], order_ids: Iterable[str]) -> list[Account]:
    """Read the accounts of some products, without reading whole tables.

    Args:
        aws: The stack.
        product_ids: The products.
        order_ids: All orders that may have taken their stock.
    """
    corrupt: dict[str, str] = {}
    looks = _look_at(aws, product_ids, read_pages(aws).by_name, corrupt)
    orders = _readable(Table.ORDERS, read_orders(aws, order_ids).values(), corrupt)
    return _add_up_looks(looks, orders)


def read_history(aws: Aws, product_id: str) -> tuple[Account, list[Entry]] | None:
    """Read every change of a product's stock since it was last created, as `history` does. Reads all orders.

    Reads again where units are unexplained, as `read_books` does.

    Returns:
        The product's account and the changes; None if there has never been such a product.
    """
    confirmed: dict[_Incarnation, _Finding] = {}
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE)
        accounts, adjustments, orders = _look_again(aws, {product_id}, (), {})
        if not accounts:
            return None
        account = accounts[-1]
        if not _is_doubtful(account, confirmed):
            break
        if account.settled:
            confirmed[account.product_id, account.created_at] = account._finding
    else:
        account = replace(account, settled=False)
    return account, history(Books(tuple(accounts), orders, adjustments), account)


def _is_doubtful(account: Account, confirmed: Mapping[_Incarnation, _Finding]) -> bool:
    """Whether an account has to be read again: it is unsettled, or the last read did not show the same error."""
    key = (account.product_id, account.created_at)
    return not account.settled or account._finding not in (_FINE, confirmed.get(key))


def _by_incarnation(accounts: Iterable[Account]) -> dict[_Incarnation, Account]:
    return {(account.product_id, account.created_at): account for account in accounts}


def _look_again(
    aws: Aws, product_ids: Collection[str], adjustments: Sequence[Row], corrupt: dict[str, str]
) -> tuple[list[Account], list[Row], dict[str, dict[str, Any]]]:
    """Read some products again, each with its adjustments, and then all orders."""
    looks = _look_at(aws, product_ids, read_pages(aws).by_name, corrupt)
    orders = _read_orders(aws, corrupt)
    theirs = [row for look in looks.values() for row in look.adjustments]
    others = [row for row in adjustments if row["productId"] not in product_ids]
    return _add_up_looks(looks, orders.values()), [*others, *theirs], orders


@dataclass(frozen=True, slots=True)
class _Look:
    """A product's places and its adjustments up to then; settled if no atomic decrement came in between."""

    places: Places
    adjustments: Sequence[Row]
    settled: bool


def _look_at(
    aws: Aws,
    product_ids: Iterable[str],
    page_names: Collection[str],
    corrupt: dict[str, str],
) -> dict[str, _Look]:
    """Read some products. Those on the same pages are read together."""
    looks: dict[str, _Look] = {}
    left = sorted(product_ids)
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:

        def adjustments_of(ids: Sequence[str]) -> dict[str, list[Row]]:
            read = pool.map(lambda one: _read_adjustments(aws, one), ids)
            return {
                one: list(_readable(Table.STOCK_ADJUSTMENTS, _booked(rows), corrupt))
                for one, rows in zip(ids, read, strict=True)
            }

        before = adjustments_of(left)
        for _ in range(_TRIES):
            groups: dict[int, list[str]] = {}
            for product_id in left:
                groups.setdefault(PageKey.of(DEPOT, product_id).number, []).append(product_id)
            found = pool.map(lambda ids: read_places(aws, ids, page_names), groups.values())
            places = {
                product_id: readable
                for ids, read in zip(groups.values(), found, strict=True)
                for readable in [_readable_places(read, corrupt)]
                for product_id in ids
            }
            after = adjustments_of(left)
            for product_id in left:
                settled = _decrements(before[product_id]) == _decrements(after[product_id])
                looks[product_id] = _Look(places[product_id], after[product_id], settled)
            left = [product_id for product_id in left if not looks[product_id].settled]
            if not left:
                break
            before = after
    return looks


def _add_up_looks(looks: Mapping[str, _Look], orders: Iterable[Row]) -> list[Account]:
    return _add_up(
        {product_id: look.places for product_id, look in looks.items()},
        (row for look in looks.values() for row in look.adjustments),
        orders,
        unsettled={product_id for product_id, look in looks.items() if not look.settled},
        product_ids=looks.keys(),
    )


def _booked(adjustments: Iterable[Row]) -> Iterator[Row]:
    """Leave out decrements that were refused. They moved nothing, and name no incarnation."""
    return (row for row in adjustments if "rejected" not in row)


def _readable(table: Table, rows: Iterable[Row], corrupt: dict[str, str]) -> Iterator[Any]:
    """Yield the rows that can be added up, and note the errors of the others by table and key."""
    for row in rows:
        try:
            _check(table, row)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            key = "/".join(row[name] for name in KEYS[table])
            corrupt[f"{table.value} {key}"] = (
                f"{key} breaks the contract of the {table.value} table ({type(error).__name__}: {error}); repair the item"
            )
        else:
            yield row


def _check(table: Table, row: Row) -> None:
    """Read all that the books need of a row.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: The row breaks the table's contract.
    """
    if table is Table.PRODUCTS:
        numbers, texts = [row["stockCount"], row["_version"]], [row["createdAt"], row["status"]]
        list(_problems(row, {}))
    else:
        is_order = table is Table.ORDERS
        found = list(_sales(row)) if is_order else [_adjustment(row)]
        numbers = [number for each in found for number in (each.delta, each.version or 0)]
        texts = [text for each in found for text in (*each.incarnation, each.at)]
        texts += [fault.product_id for fault in _faults(row)] if is_order else []
    for value, kind in (*((n, int) for n in numbers), *((text, str) for text in texts)):
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is no {'number' if kind is int else 'text'}")


def _readable_places(places: Places, corrupt: dict[str, str]) -> Places:
    rows = _readable(Table.PRODUCTS, places.rows.values(), corrupt)
    return replace(places, rows={row["productId"]: row for row in rows})


def _decrements(adjustments: Iterable[Row]) -> set[str]:
    return {row["adjustmentId"] for row in adjustments if "productVersion" not in row}


def _without_version(adjustments: Iterable[Row], since: str) -> set[str]:
    """Products with adjustments without a version that may have come after the read of the product's row."""
    return {
        row["productId"]
        for row in adjustments
        if "productVersion" not in row and row["appliedAt"] >= since
    }


_GONE: Row = {"stockCount": 0, "status": "DELISTED", "_version": 0}


def add_up(
    products: Iterable[Row],
    adjustments: Iterable[Row],
    orders: Iterable[Row],
    pages: Iterable[Page] = (),
) -> list[Account]:
    """Compare each product's units on hand with its adjustments and orders up to then.

    Args:
        products: Rows of products.
        adjustments: Adjustments, read after the products.
        orders: Orders, read after the products.
        pages: Pages as they were when the rows were read.
    """
    together = Pages({str(page.key): page for page in pages})
    places = Places({row["productId"]: row for row in products}, together, together)
    ids = [*places.rows, *_in_pages(places)]
    return _add_up(dict.fromkeys(ids, places), _booked(adjustments), orders)


def _in_pages(places: Places) -> set[str]:
    """The products that pages hold."""
    every = (*places.before.by_name.values(), *places.after.by_name.values())
    return {product_id for page in every for product_id in page.entries}


def _add_up(
    places: Mapping[str, Places],
    adjustments: Iterable[Row],
    orders: Iterable[Row],
    *,
    unsettled: Collection[str] = (),
    product_ids: Collection[str] | None = None,
) -> list[Account]:
    """Compare each product's units on hand with its adjustments and orders up to then.

    Args:
        places: Where the units were, by product id: all products that have a row or are in a page.
        adjustments: Adjustments, read after the products.
        orders: Orders, read after the products.
        unsettled: Ids of products whose rows may not belong together, because they changed during the read.
        product_ids: Only these products; all if not given.
    """
    rows = {
        (product_id, row["createdAt"]): row
        for product_id, read in places.items()
        if (row := read.rows.get(product_id)) is not None
    }
    orders = list(orders)
    standing = {key[0]: key[1] for key in rows}
    wrong_orders = _wrong_orders(orders, standing, product_ids)
    adjusted, _ = _sum_up(map(_adjustment, adjustments), rows, places, product_ids)
    sales = (movement for order in orders for movement in _sales(order))
    sold, between = _sum_up(sales, rows, places, product_ids)
    held, held_after = _held(places, "before"), _held(places, "after")
    moved = {
        place[0][0]
        for place in held.keys() | held_after.keys() | between.keys()
        if held.get(place, 0) + between[place] != held_after.get(place, 0)
    }
    in_lanes: dict[_Incarnation, dict[int, int]] = {}
    for (key, name), units in sorted(held.items(), key=lambda entry: _lane_of(entry[0][1])):
        in_lanes.setdefault(key, {})[_lane_of(name)] = units
    return [
        Account(
            product_id=key[0],
            created_at=key[1],
            status=(row := rows.get(key, _GONE))["status"],
            version=row["_version"],
            stock=row["stockCount"],
            adjusted=adjusted[key],
            sold=-sold[key],
            settled=key[0] not in unsettled and key[0] not in moved,
            in_lanes=in_lanes.get(key, {}),
            lent_to=_lent_to(row),
            problems=(*_problems(row, in_lanes.get(key, {})), *wrong_orders.get(key, ())),
            pages=places[key[0]].before.by_name if key in rows else {},
        )
        for key in sorted({*rows, *adjusted, *sold, *in_lanes, *wrong_orders})
    ]


def _sum_up(
    movements: Iterable[_Movement],
    rows: Mapping[_Incarnation, Row],
    places: Mapping[str, Places],
    product_ids: Collection[str] | None,
) -> tuple[Counter[_Incarnation], Counter[tuple[_Incarnation, str]]]:
    """Sum up the units of the movements that rows and pages show, and of the sales from a page between its two reads.

    Returns:
        The units by incarnation, and the others by incarnation and page.
    """
    shown, between = Counter[_Incarnation](), Counter[tuple[_Incarnation, str]]()
    for movement in movements:
        key = movement.incarnation
        if product_ids is not None and key[0] not in product_ids:
            continue
        row = rows.get(key)
        if row is None or movement.is_in(row["_version"], places[key[0]].before.by_name):
            shown[key] += movement.delta
        elif movement.page and movement.is_in(0, places[key[0]].after.by_name):
            between[key, movement.page] += movement.delta
    return shown, between


def _held(
    places: Mapping[str, Places], when: Literal["before", "after"]
) -> dict[tuple[_Incarnation, str], int]:
    """Units in pages, by incarnation and page."""
    return {
        ((product_id, entry.created_at), name): entry.units
        for read in {id(read): read for read in places.values()}.values()
        for name, page in getattr(read, when).by_name.items()
        for product_id, entry in page.entries.items()
        # No worker looks for the product in a page that it does not belong to.
        if places.get(product_id) is read and page.key == PageKey.of(page.key.lane, product_id)
    }


def _lane_of(name: str) -> int:
    return int(name.split("/", maxsplit=1)[0])


def _problems(row: Row, in_lanes: Mapping[int, int]) -> Iterator[str]:
    """Invariants of a row, or of `_GONE`, and its lanes that are broken, whatever the units are."""
    if row is _GONE:
        if in_lanes:
            yield f"its row is gone, but {_list(in_lanes)} {_hold(in_lanes)} units of it"
        return
    stock, status, lent_to = row["stockCount"], row["status"], _lent_to(row)
    floor, threshold = -row.get("backorderLimit", 0), row.get("lowStockThreshold", 0)
    if stock < floor:
        yield f"its row has {stock:,}, below its floor of {floor:,}"
    right = stock_status(stock, -floor, threshold, ProductStatus(status))
    if status != right and not lent_to:
        yield f"its row is {status} with {stock:,}: it must be {right}"
    strangers = [lane for lane in in_lanes if lane not in lent_to]
    if strangers:
        yield f"{_list(strangers)} {_hold(strangers)} units of it, but its lentTo does not name that"
    least = max(0, threshold) + 1
    if lent_to and (status != ProductStatus.ACTIVE or stock < least):
        yield (
            f"it is lent to {_list(lent_to)}, but its row is {status} with {stock:,}: it must be ACTIVE with at least "
            f"{least:,}"
        )


@dataclass(frozen=True, slots=True)
class _Fault:
    """What is wrong with a line of an order, though its units may be explained.

    Attributes:
        product_id: The line's product.
        created_at: The incarnation that the line took units from; empty if it names none.
        what: The fault, to follow the orders that have it.
        if_it_stands: Whether it is none if the incarnation is gone: what is delisted takes no units back.
    """

    product_id: str
    created_at: str
    what: str
    if_it_stands: bool = False


_HOLDS_UNITS = {OrderStatus.PENDING, OrderStatus.CONFIRMED, OrderStatus.FULFILLED}
_GAVE_ALL_BACK = {OrderStatus.CANCELLED, OrderStatus.EXPIRED}


def _faults(order: Row) -> Iterator[_Fault]:
    """Lines that took nothing for an order that is placed, whose units did not come back or came twice, or went two ways.

    A `CANCELLED` line without incarnation is none: its cancellation came first, or a restore undid the order. A restore
    leaves such an `EXPIRED` line, too.
    """
    status = order.get("status")
    quantities = {line["productId"]: line["quantity"] for line in order.get("items", ())}
    moves = [(step.get("action", ""), _moved_by(step)) for step in order.get("steps", ())]
    strangers = {name for _, moved in moves for name in moved or ()} - quantities.keys()
    for name in sorted(strangers):
        yield _Fault(name, "", "has a step that moves units of it, and no line of it")
    units = units_by_line(quantities | dict.fromkeys(strangers, 0), moves)
    for line in order.get("items", ()):
        product_id, created_at = line["productId"], line.get("productCreatedAt")
        if created_at is None:
            if status in _HOLDS_UNITS:
                yield _Fault(product_id, "", "took no units for it (no productCreatedAt)")
            continue
        if status == OrderStatus.REJECTED:
            yield _Fault(product_id, created_at, "took units of it, and is rejected")
            continue
        here, due, back = units[product_id], 0, 0
        for step in order.get("steps", ()):
            gives_back = _gives_back(step)
            for item in step.get("items", ()):
                if item["productId"] == product_id:
                    due += item["quantity"] if gives_back else 0
                    back += item["quantity"] if "returnedVersion" in item else 0
        if status in _GAVE_ALL_BACK:
            due = line["quantity"]
        if back > line["quantity"]:
            yield _Fault(product_id, created_at, "gave back more of it than it took")
        elif min(here.open - here.moved[OrderAction.EXPIRE], here.delivered) < 0:
            what = "handed over, cancelled, let expire or took back more of it than it has"
            yield _Fault(product_id, created_at, what)
        elif back < due:
            what = "did not give back what was cancelled, expired or returned to stock"
            yield _Fault(product_id, created_at, what, if_it_stands=True)


def _moved_by(step: Row) -> dict[str, int] | None:
    """Units that a step names, by product id; None if it names none."""
    if "items" not in step:
        return None
    return {item["productId"]: item["quantity"] for item in step["items"]}


def _gives_back(step: Row) -> bool:
    """Whether a step gives the units of its items back to stock."""
    action = step.get("action")
    ends = action in (OrderAction.CANCEL, OrderAction.EXPIRE)
    return ends or (action == OrderAction.RETURN and step.get("restock") is True)


def _wrong_orders(
    orders: Iterable[Row],
    standing: Mapping[str, str],
    product_ids: Collection[str] | None,
) -> dict[_Incarnation, list[str]]:
    """The faults of orders, in words, by incarnation.

    Args:
        orders: The orders.
        standing: The incarnation of each product that has a row.
        product_ids: Only these products; all if not given.
    """
    found: dict[_Incarnation, dict[str, list[str]]] = {}
    for order in orders:
        for fault in _faults(order):
            is_other = product_ids is not None and fault.product_id not in product_ids
            row_of = standing.get(fault.product_id, "")
            if is_other or (fault.if_it_stands and fault.created_at != row_of):
                continue
            name = f"{order['orderId']} ({order.get('status', 'no status')})"
            key = fault.product_id, fault.created_at or row_of
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


def _lent_to(row: Row) -> tuple[int, ...]:
    return tuple(sorted(map(int, row.get("lentTo", ()))))


def _list(lanes: Iterable[int]) -> str:
    return ", ".join(map(lane_name, lanes))


def _hold(lanes: Collection[int]) -> str:
    return "holds" if len(lanes) == 1 else "hold"


@dataclass(frozen=True, slots=True)
class _Movement:
    """One change of a product's stock.

    Attributes:
        incarnation: The product's incarnation.
        version: The version of the row or the page that it made; None if that is not known.
        at: Its time, ISO 8601.
        delta: Units added; negative for units taken.
        what: The change, in words.
        page: Name of the page that it was taken from; empty for the row.
    """

    incarnation: _Incarnation
    version: int | None
    at: str
    delta: int
    what: str
    page: str = ""

    def is_in(self, version: int, pages: Mapping[str, Page]) -> bool:
        """Whether a row of this version and these pages already show it."""
        if self.version is None:
            return True
        if self.page:
            version = pages[self.page].version if self.page in pages else 0
        return self.version <= version


def _adjustment(row: Row) -> _Movement:
    return _Movement(
        (row["productId"], row["productCreatedAt"]),
        row.get("productVersion"),
        row["appliedAt"],
        row["delta"],
        " ".join([row["reason"], row["adjustmentId"], *_notes(row)]),
    )


def _sales(order: Row) -> Iterator[_Movement]:
    """The units that the lines of an order took and gave back.

    A line whose incarnation was already delisted gave nothing back when its order was cancelled or expired. `_faults`
    finds the other lines that gave or took nothing.
    """
    name = f"order {order['orderId']}"
    for line in order.get("items", ()):
        if "productCreatedAt" not in line:
            continue
        key, quantity = (line["productId"], line["productCreatedAt"]), line["quantity"]
        at, page = order["createdAt"], line.get("lanePage", "")
        if page:
            taken = f"{name}, from {lane_name(_lane_of(page))}"
            yield _Movement(key, line["laneVersion"], at, -quantity, taken, page)
        else:
            yield _Movement(key, line.get("productVersion"), at, -quantity, name)
        for step in order.get("steps", ()):
            for item in step.get("items", ()):
                if item["productId"] == line["productId"] and "returnedVersion" in item:
                    yield _Movement(
                        key,
                        item["returnedVersion"],
                        step["at"],
                        item["quantity"],
                        f"{name}, {_said(step)}",
                    )


def _said(step: Row) -> str:
    """A step in words: what was done, under which id, by whom and what for."""
    return " ".join([step["action"], *filter(None, [step.get("stepId")]), *_notes(step)])


def _notes(row: Row) -> list[str]:
    by, reference = row.get("actor"), row.get("reference")
    return [*([f"by {by}"] if by else []), *([f"({reference})"] if reference else [])]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a product's history.

    Attributes:
        version: The row's version after the change; None for an order from a lane, which does not write the row, and
            for an atomic decrement, which does not read a version.
        at: Time of the change, ISO 8601; empty for a gap.
        delta: Change of stock, in units; 0 for a gap.
        what: The change, in words.
        stock: Units on hand after the change.
    """

    version: int | None
    at: str
    delta: int
    what: str
    stock: int


def history(books: Books, account: Account) -> list[Entry]:
    """List every change of a product's stock up to its version, in order, with the gaps between them."""
    key = (account.product_id, account.created_at)
    movements = [
        *map(_adjustment, books.adjustments),
        *(movement for order in books.orders.values() for movement in _sales(order)),
    ]
    found = [
        movement
        for movement in movements
        if movement.incarnation == key
        and (not account.version or movement.is_in(account.version, account.pages))
    ]
    entries: list[Entry] = []
    stock, seen = 0, 0
    for movement in _by_version(found):
        version = None if movement.page else movement.version
        if version is not None and version > seen + 1:
            missing = f"{seen + 1}" if version == seen + 2 else f"{seen + 1} to {version - 1}"
            entries.append(Entry(None, "", 0, f"(version {missing}: {_GAP})", stock))
        stock += movement.delta
        entries.append(Entry(version, movement.at, movement.delta, movement.what, stock))
        seen = max(seen, version or 0)
    if account.version > seen:
        left = f"{seen + 1}" if account.version == seen + 1 else f"{seen + 1} to {account.version}"
        entries.append(Entry(None, "", 0, f"(version {left}: {_GAP})", stock))
    return entries


_GAP = "no change of stock by version: details, price, lease, units moved to or from lanes, or an atomic decrement"


def _by_version(found: Iterable[_Movement]) -> list[_Movement]:
    """Sort by the row's version; a change that made none is placed by its time."""
    others: list[_Movement] = []
    versioned: list[tuple[int, _Movement]] = []
    for movement in sorted(found, key=lambda movement: movement.at):
        if movement.page or movement.version is None:
            others.append(movement)
        else:
            versioned.append((movement.version, movement))
    result: list[_Movement] = []
    placed = 0
    for _, movement in sorted(versioned, key=lambda entry: entry[0]):
        while placed < len(others) and others[placed].at < movement.at:
            result.append(others[placed])
            placed += 1
        result.append(movement)
    return result + others[placed:]


def read_orders(aws: Aws, order_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Read some orders with strong consistency. Returns those that exist, by id."""
    keys = [{"orderId": {"S": order_id}} for order_id in order_ids]
    rows = map(decode, get_items(aws, Table.ORDERS, keys))
    return {row["orderId"]: row for row in rows}


def _read_orders(aws: Aws, corrupt: dict[str, str]) -> dict[str, dict[str, Any]]:
    rows = _readable(Table.ORDERS, read_rows(aws, Table.ORDERS), corrupt)
    return {row["orderId"]: row for row in rows}


def _read_adjustments(aws: Aws, product_id: str) -> list[Row]:
    pages = aws.dynamodb.get_paginator("query").paginate(
        TableName=aws.tables[Table.STOCK_ADJUSTMENTS],
        KeyConditionExpression="#productId = :productId",
        ExpressionAttributeNames={"#productId": "productId"},
        ExpressionAttributeValues={":productId": {"S": product_id}},
        ConsistentRead=True,
    )
    return [decode(item) for page in pages for item in page["Items"]]


def read_rows(aws: Aws, table: Table) -> Iterator[dict[str, Any]]:
    """Yield all rows of a table, read with strong consistency."""
    return map(decode, scan(aws, table))
