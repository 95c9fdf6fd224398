"""The audit reads a product's row, and counts only changes up to this row's version."""

import itertools
import json
from dataclasses import replace
from threading import RLock

import pytest
from typer.testing import CliRunner

from inventory_orders.domain.allotments import Page, PageEntry, PageKey
from inventory_orders.domain.outbound import Generation, OutboundKey, OutboundPage
from inventory_orders.store.rows import page_units
from inventory_orders.store.tables import Table
from local.commands import main
from operations import audit, aws
from operations.books import Books, add_up, history
from operations.commands import books
from operations.lanes import Pages
from operations.movements import movements_of
from testing.schedules.in_turn.shop import Shop
from testing.world.faults import cancelled
from tests.support.explained import explained

BORN = "2026-01-01T00:00:00.000000+00:00"


def product(stock, version, **more):
    row = {"productId": "p", "createdAt": BORN, "status": "ACTIVE", "onHand": 10}
    return {**row, "stockCount": stock, "_version": version, **more}


def accounts_of(products, adjustments, orders, pages=()):
    """Run the audit on rows and pages, as if all were read at the same moment."""
    lanes = {str(page.key): page for page in pages if isinstance(page, Page)}
    outbound = {str(page.key): page for page in pages if isinstance(page, OutboundPage)}
    return add_up(products, adjustments, orders, Pages(lanes, outbound))


def adjustment(name, delta, version=None, reason="RECEIPT"):
    at = f"2026-01-01T00:00:{version or 0:02}"
    row = {"productId": "p", "adjustmentId": name, "productCreatedAt": BORN, "appliedAt": at}
    row |= {"delta": delta, "reason": reason}
    return row if version is None else row | {"productVersion": version}


def placed(name, quantity, at, status="PENDING", **place):
    line = {"productId": "p", "quantity": quantity, "productCreatedAt": BORN, **place}
    times = {"createdAt": at, "lastUpdatedAt": at}
    return {"orderId": name, "items": [line], "status": status, **times}


def order(name, quantity, version, returned=None, status="PENDING"):
    row = placed(name, quantity, f"2026-01-01T00:00:{version:02}", status, productVersion=version)
    if returned is None:
        return row
    item = {"productId": "p", "quantity": quantity, "returnedVersion": returned}
    return row | {"steps": [{"action": "cancel", "at": row["createdAt"], "items": [item]}]}


def order_from_lane(name, quantity, lane, version):
    page = {"lanePage": str(PageKey.of(lane, "p")), "laneVersion": version}
    return placed(name, quantity, f"2026-01-01T00:01:{version:02}", **page)


OPENING = adjustment("opening", 10, 1, "OPENING")


@pytest.mark.parametrize(
    ("row", "orders"),
    [
        (product(8, 2), [order("a", 2, 2)]),
        (product(8, 2), [order("a", 2, 2), order("later", 5, 3)]),
        (product(10, 3), [order("a", 2, 2, returned=3, status="CANCELLED")]),
        # The row was read after the order was placed, and before it was cancelled.
        (product(8, 2), [order("a", 2, 2, returned=3, status="CANCELLED")]),
        (product(10, 1), [order("a", 2, 2, returned=3, status="CANCELLED")]),
        (product(10, 1), [{"orderId": "rejected", "items": [{"productId": "p", "quantity": 2}]}]),
        (product(8, 2), [order("shipped", 2, 2, status="SHIPPED"), {"orderId": "odd"}]),
    ],
)
def test_changes_with_a_later_version_than_the_row_are_left_out(row, orders):
    (account,) = accounts_of([row], [OPENING], orders)
    assert account.differences[:2] == (0, 0)


def test_a_later_adjustment_is_left_out_and_one_without_version_counts():
    adjustments = [OPENING, adjustment("late", 5, 9), adjustment("atomic", -1)]
    (account,) = accounts_of([product(9, 2, onHand=9)], adjustments, [])
    assert (account.adjusted, account.balances) == (9, True)


def refused(name, product_id="p"):
    """Make the record of a refused decrement, which moved no units and names no generation."""
    rejected = {"delta": -20, "reason": "BELOW_FLOOR"}
    row = adjustment(name, 0, reason="DECREMENT") | {"productId": product_id, "rejected": rejected}
    return {attribute: value for attribute, value in row.items() if attribute != "productCreatedAt"}


def test_a_refused_decrement_is_not_part_of_the_books(shop):
    shop.write(Table.PRODUCTS, product(10, 1))
    shop.write(Table.STOCK_ADJUSTMENTS, OPENING, refused("d"), refused("d", "never-listed"))
    assert shop.audit()["p"].balances
    assert (list(shop.audit()), shop.books.corrupt) == (["p"], [])
    account, entries = explained(shop.stack, "p")
    assert (account.balances, [entry.delta for entry in entries]) == (True, [10])


def test_a_unit_taken_by_hand_is_a_difference_and_unexplained_if_it_is_settled():
    (account,) = accounts_of([product(7, 2)], [OPENING], [order("a", 2, 2)])
    assert account.unexplained == {"available": -1, "committed": 1}
    account = replace(account, settled=False)
    assert (account.difference, account.unexplained, account.is_wrong) == (-1, {}, False)


def test_a_delisted_generation_adds_up_to_zero():
    """All its orders count, because it has neither a row nor a page that tells which ones came later."""
    closing = adjustment("closing", -8, 3, "CLOSING")
    for sold in (order("a", 2, 2, status="CANCELLED"), order_from_lane("a", 2, 3, 99)):
        (account,) = accounts_of([], [OPENING, closing], [sold], [page(3, 99)])
        assert (account.status, account.available, account.balances) == ("DELISTED", 0, True)


def of(status, lines=None, steps=()):
    """Make an order `o-1` for 4 units of the product."""
    line = {"productId": "p", "quantity": 4}
    made = {"productCreatedAt": BORN, "productVersion": 2}
    at = "2026-01-01T00:00:02"
    return {
        "orderId": "o-1",
        "items": [line | made] if lines is None else [line | each for each in lines],
        "status": status,
        "createdAt": at,
        "steps": [{"action": action, "at": at, **more} for action, more in steps],
    }


def moved(action, quantity, version=None, **more):
    """Make a step that returns units to stock at a given version of the row, or moves them onto an outbound page."""
    back = {} if version is None else {"returnedVersion": version}
    out = OUT if action == "fulfil" or more.get("restock") is False else {}
    return action, {"items": [{"productId": "p", "quantity": quantity, **back}], **out, **more}


OUT = {"outPage": "out/0", "outVersion": 1}
FOLDED = OutboundPage(OutboundKey(0), 2, "e")
FULFILLED = moved("fulfil", 4)
ALL_FULFILLED = ("fulfil", OUT)
LOST = moved("cancel", 4, restock=False)
TOO_MUCH = "returned more of it to stock than was cancelled, expired or sent back"
TWO_WAYS = "handed over, cancelled, expired or took back more of it than it has"


def row_after(found):
    """Take a row of 10 units, and apply the movements that an order's row records."""
    moves = [each for each in movements_of(found) if each.generation == ("p", BORN)]
    sums = (sum(each.available for each in moves), sum(each.on_hand for each in moves))
    return product(10 + sums[0], 9, onHand=10 + sums[1])


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (of("PENDING", [{}]), "order o-1 (PENDING) took no units of it"),
        (of("CONFIRMED", [{}], [("confirm", {})]), "order o-1 (CONFIRMED) took no units of it"),
        (of("FULFILLED", [{}], [ALL_FULFILLED]), "order o-1 (FULFILLED) took no units of it"),
        (of("REJECTED"), "order o-1 (REJECTED) took units of it, but is rejected"),
        (of("CANCELLED"), "o-1 (CANCELLED) did not return units"),
        (of("EXPIRED", None, [moved("cancel", 1, 3)]), "o-1 (EXPIRED) did not return units"),
        (of("CONFIRMED", None, [moved("cancel", 1)]), "o-1 (CONFIRMED) did not return units"),
        (
            of("FULFILLED", None, [FULFILLED, moved("return", 1, restock=True)]),
            "o-1 (FULFILLED) did not return units",
        ),
        (
            of("CANCELLED", None, [moved("cancel", 4, 3), moved("cancel", 4, 4)]),
            f"o-1 (CANCELLED) {TOO_MUCH}",
        ),
        # A unit is recorded both as lost and as back on sale.
        (
            of("CANCELLED", None, [moved("cancel", 1, 3, restock=False), moved("cancel", 3, 4)]),
            f"o-1 (CANCELLED) {TOO_MUCH}",
        ),
        # The units are recorded both as shipped and as back in stock.
        *(
            (of(status, None, steps), f"o-1 ({status}) {TWO_WAYS}")
            for status, steps in [
                ("FULFILLED", [ALL_FULFILLED, moved("cancel", 4, 3)]),
                ("EXPIRED", [moved("fulfil", 1), moved("expire", 4, 3)]),
                ("FULFILLED", [FULFILLED] + [moved("return", 3, restock=False)] * 2),
                ("CONFIRMED", [moved("return", 1, 3, restock=True)]),
            ]
        ),
    ],
)
def test_an_order_that_moved_no_units_is_a_problem_even_if_the_books_balance(found, problem):
    (account,) = accounts_of([row_after(found)], [OPENING], [found], [FOLDED])
    assert (account.differences[:2], account.is_wrong, account.balances) == ((0, 0), True, False)
    (said,) = account.problems
    assert problem in said


def test_a_step_that_moves_a_product_without_a_line_is_a_problem():
    found = of("CONFIRMED", [{"productId": "q", "productCreatedAt": BORN}], [moved("fulfil", 1)])
    account, _ = accounts_of([product(10, 1)], [OPENING], [found])
    (said,) = account.problems
    assert said == "order o-1 (CONFIRMED) has a step that moves units of it, but no line for it"


@pytest.mark.parametrize(
    "found",
    [
        of("REJECTED", [{}]),
        of("CANCELLED", [], [("cancel", {})]),
        # A restore leaves these for orders that were placed after the restored moment.
        *(of("CANCELLED", [{}]), of("EXPIRED", [{}])),
        of("EXPIRED", None, [moved("cancel", 1, 3), ("extend", {}), moved("expire", 3, 4)]),
        of("FULFILLED", None, [moved("fulfil", 1), moved("cancel", 1, 3), ALL_FULFILLED]),
        *(of("CANCELLED", None, [LOST]), of("FULFILLED", None, [ALL_FULFILLED])),
        of("CANCELLED", None, [moved("cancel", 1, restock=False), moved("cancel", 3, 4)]),
        of("CONFIRMED", None, [moved("cancel", 1, restock=False), moved("fulfil", 2)]),
        of("FULFILLED", None, [FULFILLED, moved("return", 4, restock=False)]),
        of("FULFILLED", None, [FULFILLED, moved("return", 4, 3, restock=True)]),
        of("FULFILLED", None, [FULFILLED, moved("exchange", 4)]),
        # Units of an earlier generation cannot be returned once it is delisted.
        of("CANCELLED", [{"productCreatedAt": "2025"}], [moved("cancel", 4)]),
        *(of("SHIPPED", [{}]), {"orderId": "odd"}),
    ],
)
def test_a_normal_life_of_an_order_is_not_a_problem(found):
    accounts = accounts_of([row_after(found)], [OPENING], [found], [FOLDED])
    assert [account.problems for account in accounts] == [()] * len(accounts)
    assert [account.differences[:2] for account in accounts if account.version] == [(0, 0)]
    if found.get("status") != "SHIPPED":
        assert all(account.balances for account in accounts if account.version)


def test_three_of_many_orders_that_took_nothing_are_named(shop):
    shop.write(Table.PRODUCTS, product(10, 1))
    shop.write(Table.STOCK_ADJUSTMENTS, OPENING)
    nothing = [of("PENDING", [{}]) | {"orderId": f"o-{n}"} for n in range(5)]
    shop.write(Table.ORDERS, *nothing, of("PENDING", [{"productId": "none"}]))
    found = shop.audit()
    (said,) = found["p"].problems
    assert said == (
        "each of the orders o-0 (PENDING), o-2 (PENDING), o-3 (PENDING) and 1 more took no units of it (no "
        "productCreatedAt)"
    )
    assert not any(account.balances for account in found.values())
    assert found["none"].problems == (
        "order o-1 (PENDING) took no units of it (no productCreatedAt)",
    )


class AuditedShop(Shop):
    """A shop in which other writers act between the requests of an audit.

    Attributes:
        busy: Whether a transaction is always in flight, so that the audit's transactions are cancelled.
        between: Called after each request with its operation and tables. Outbound pages count as a table.
    """

    def __init__(self):
        super().__init__()
        # The audit reads in several threads.
        self.lock = RLock()
        self.busy = False
        self.between = lambda operation, tables: None
        self.operations, self.inconsistent = set(), []

    def answer(self, service, operation, request):
        with self.lock:
            if operation == "DescribeTable":
                return super().answer(service, operation, request)
            asked = request.get("RequestItems", {request.get("TableName"): request})
            if asked.keys() != {Table.MOVEMENTS}:
                self.operations.add(operation)
            if operation == "TransactGetItems":
                if self.busy:
                    raise cancelled("TransactionConflict")
            elif not all(entry.get("ConsistentRead") for entry in asked.values()):
                self.inconsistent.append(operation)
            found = super().answer(service, operation, request)
            is_outbound = operation == "BatchGetItem" and "out/0" in str(asked)
            self.between(operation, {"outbound pages"} if is_outbound else set(asked))
            return found

    def write_page(self, lane, version, **units):
        self.write(Table.ALLOTMENTS, page_row(page(lane, version, **units)))

    def write_out(self, version, **units):
        self.write(Table.ALLOTMENTS, page_row(out(0, version, **units)))

    def audit(self):
        """Audit the shop, and return its accounts by product."""
        self.books = audit.read_books(self.stack)
        return {account.product_id: account for account in self.books.accounts}


@pytest.fixture
def shop():
    with AuditedShop().open() as shop:
        yield shop


def page(lane, version=1, **units):
    entries = {product_id: PageEntry(BORN, count) for product_id, count in units.items()}
    return Page(PageKey.of(lane, "p"), version, "e", entries)


def page_row(page):
    return {
        "page": str(page.key),
        "_version": page.version,
        "epoch": page.epoch,
        "units": page_units(page),
    }


def test_every_page_is_read_with_strong_consistency(shop):
    many = [f"p{n:02}" for n in range(9)]
    shop.write(Table.PRODUCTS, *(product(5, 1, productId=p, name="x" * 300_000) for p in many))
    shop.write_page(0, 1, p=5)
    accounts = shop.audit()
    found = [account.unexplained["available"] for account in accounts.values()]
    assert found == [5] * 10
    assert shop.inconsistent == []
    assert shop.operations == {"Scan", "Query", "BatchGetItem", "TransactGetItems"}


@pytest.mark.parametrize("looks", [5, 6])
def test_a_difference_is_found_although_another_product_never_settles(shop, monkeypatch, looks):
    monkeypatch.setattr(audit, "_REREADS", looks)
    monkeypatch.setattr(audit, "_TRIES", 3)
    numbers = itertools.count()

    def decrement(operation, tables):
        if operation == "Query":
            later = adjustment(f"d{next(numbers)}", -1) | {"productId": "busy"}
            shop.write(Table.STOCK_ADJUSTMENTS, later | {"appliedAt": "2099"})

    shop.write(Table.PRODUCTS, product(7, 2), product(7, 2, productId="busy"))
    shop.write(Table.STOCK_ADJUSTMENTS, OPENING, OPENING | {"productId": "busy"})
    shop.write(Table.ORDERS, order("a", 2, 2))
    shop.between = decrement
    found = shop.audit()
    assert found["p"].unexplained["available"] == -1
    assert not found["busy"].settled


# ---------------------------------------------------------------- on hand


def out(number=0, version=1, epoch="e", **units):
    lots = {Generation(product_id, BORN): count for product_id, count in units.items()}
    return OutboundPage(OutboundKey(number), version, epoch, lots)


def handed_over(name, quantity, page=0, version=1, **line):
    """Make an order that took its units at version 2 of the row, and handed them over through an outbound page."""
    left = {"outPage": f"out/{page}", "outVersion": version}
    step = {"action": "fulfil", "at": f"2026-01-01T00:03:{version:02}", **left}
    order = placed(name, quantity, "2026-01-01T00:00:02", "FULFILLED", productVersion=2, **line)
    return order | {"steps": [step]}


@pytest.mark.parametrize(
    ("row", "pages"),
    [
        (product(8, 2), [out(p=2)]),
        # Either all units were folded, or two units were folded before two more were added to the page.
        (product(8, 2, onHand=8), [out(version=2)]),
        (product(6, 2, onHand=8), [out(version=3, p=2)]),
        # The next fold drops units of an earlier generation, and units of a product without a row.
        (product(8, 2), [out(p=2, q=5), OutboundPage(OutboundKey(1), 4, "e", {("p", "2025"): 3})]),
    ],
)
def test_units_on_outbound_pages_are_not_on_hand(row, pages):
    orders = [handed_over("a", 2), handed_over("b", 2, 0, 3)][: 1 + (row["stockCount"] == 6)]
    (account,) = accounts_of([row], [OPENING], orders, pages)
    numbers = (account.on_hand, account.committed, account.available)
    assert numbers == (row["stockCount"], 0, row["stockCount"])
    assert account.balances, account


def test_units_handed_over_after_the_read_of_their_page_are_still_committed(shop):
    shop.write(Table.PRODUCTS, product(6, 2))
    shop.write(Table.STOCK_ADJUSTMENTS, OPENING)
    shop.write_out(version=1, p=2)
    shop.write(Table.ORDERS, handed_over("a", 2), placed_at_2("b", 2, "CONFIRMED"))

    def hand_over(operation, tables):
        if tables == {Table.PRODUCTS}:
            shop.between = lambda *_: None
            shop.write(Table.ORDERS, handed_over("b", 2, version=2))
            shop.write_out(version=2, p=4)

    shop.between = hand_over
    account = shop.audit()["p"]
    assert (account.on_hand, account.committed, account.available) == (8, 2, 6)
    assert account.balances
    assert shop.operations == {"Scan", "BatchGetItem"}, "the product was not read again"
    account, _ = explained(shop.stack, "p")
    assert (account.on_hand, account.committed, account.balances) == (6, 0, True)


def placed_at_2(name, quantity, status):
    return placed(name, quantity, "2026-01-01T00:00:02", status, productVersion=2)


@pytest.mark.parametrize("moment", ["before the row", "after the row"])
def test_a_fold_between_the_reads_is_no_difference(shop, moment):
    shop.write(Table.PRODUCTS, product(8, 2))
    shop.write(Table.STOCK_ADJUSTMENTS, OPENING)
    shop.write_out(version=1, p=2)
    shop.write(Table.ORDERS, handed_over("a", 2))
    read = {"before the row": {Table.ALLOTMENTS}, "after the row": {Table.PRODUCTS}}[moment]

    def fold(operation, tables):
        if tables == read:
            shop.between = lambda *_: None
            shop.write_out(version=2)
            shop.write(Table.PRODUCTS, product(8, 2, onHand=8))

    shop.between = fold
    account = shop.audit()["p"]
    assert (account.on_hand, account.goods, account.balances) == (8, 8, True)


@pytest.mark.parametrize(
    ("row", "pages", "orders", "unexplained"),
    [
        # A row, or an entry of a page, was changed by hand.
        (product(8, 2, onHand=9), [out(p=2)], [handed_over("a", 2)], {"on_hand": -1}),
        (product(8, 2), [out()], [handed_over("a", 2)], {"on_hand": 2}),
        (product(8, 2), [out(p=1)], [handed_over("a", 2)], {"on_hand": 1}),
        # The units count twice: they are folded, but still on the page.
        (product(8, 2, onHand=8), [out(p=2)], [handed_over("a", 2)], {"on_hand": -2}),
    ],
)
def test_units_on_hand_without_a_reason_are_found(row, pages, orders, unexplained):
    (account,) = accounts_of([row], [OPENING], orders, pages)
    of_all = {name: units for name, units in account.unexplained.items() if name != "committed"}
    assert (of_all, account.is_wrong) == (unexplained, True)


def test_a_row_whose_units_on_hand_were_changed_by_hand_makes_the_command_fail(shop, command):
    shop.write(Table.PRODUCTS, product(8, 2, onHand=9))
    shop.write(Table.STOCK_ADJUSTMENTS, OPENING)
    shop.write(Table.ORDERS, handed_over("a", 1), placed_at_2("b", 1, "PENDING"))
    shop.write_out(version=1, p=1)
    done = command()
    assert done.exit_code == 1
    assert (
        "p has 8 on hand (row: 9, outbound pages: -1), but its adjustments and orders say 9: -1 unexplained\n"
        in done.stdout
    )
    assert "committed" not in done.stdout, "it follows from the units on hand"


def test_units_of_an_order_that_has_ended_are_not_committed(shop, command):
    """The order's status was set by hand, so its units are neither handed over nor back on sale."""
    shop.write(Table.PRODUCTS, product(5, 2))
    shop.write(Table.STOCK_ADJUSTMENTS, OPENING)
    shop.write(Table.ORDERS, placed_at_2("a", 3, "FULFILLED"), placed_at_2("b", 2, "CONFIRMED"))
    account = shop.audit()["p"]
    assert (account.committed, account.open, account.unexplained) == (5, 2, {"committed": 3})
    assert (
        "p has 5 committed, but PENDING and CONFIRMED orders wait for 2: +3 unexplained\n"
        in command().stdout
    )


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({}, "without an outbound page (no outPage or outVersion)"),
        ({"outPage": "out/0"}, "without an outbound page (no outPage or outVersion)"),
        ({"outPage": "out/0", "outVersion": 8}, "on outbound page out/0, which never had"),
        ({"outPage": "out/3", "outVersion": 1}, "on outbound page out/3, which never had"),
        # The audit never reads this page.
        ({"outPage": "out/8", "outVersion": 1}, "on outbound page out/8, which never had"),
    ],
)
@pytest.mark.parametrize("action", [("fulfil", {}), LOST])
def test_a_step_without_its_page_is_a_problem(shop, step, said, action):
    name, more = action
    more = {key: value for key, value in more.items() if key not in OUT}
    shop.write(Table.PRODUCTS, product(6, 2, onHand=6))
    shop.write(Table.STOCK_ADJUSTMENTS, OPENING)
    status = "FULFILLED" if name == "fulfil" else "CANCELLED"
    shop.write(Table.ORDERS, of(status, None, [(name, {**more, **step})]))
    shop.write_out(version=7)
    shop.write(Table.ALLOTMENTS, page_row(out(8, p=4)))
    account = shop.audit()["p"]
    assert account.is_wrong
    (problem,) = account.problems
    assert f"order o-1 ({status}) handed over or lost units of it {said}" in problem


def test_a_closing_takes_what_the_row_had_and_later_hand_overs_take_nothing():
    closing = adjustment("closing", -6, 3, "CLOSING") | {"onHandDelta": -10}
    closing["appliedAt"] = "2026-01-01T00:03:05"
    orders = {each["orderId"]: each for each in (handed_over("a", 2), handed_over("b", 2, 0, 9))}
    (account,) = accounts_of([], [OPENING, closing], orders.values(), [out(p=4, version=9)])
    assert (account.on_hand, account.available, account.balances) == (0, 0, True)
    entries = history(Books((account,), orders, [OPENING, closing]), account)
    assert [(entry.what, entry.on_hand_delta, entry.on_hand) for entry in entries] == [
        ("OPENING opening", 10, 10),
        *((f"order {name}", 0, 10) for name in "ab"),
        ("order a, fulfil", -2, 8),
        ("CLOSING closing", -8, 0),
        ("order b, fulfil", 0, 0),
    ]


def test_a_history_lists_hand_overs_and_losses_with_both_numbers(shop, command):
    steps = [moved("fulfil", 1, stepId="parcel-1"), moved("cancel", 1, 3, stepId="less")]
    steps += [moved("cancel", 1, restock=False, stepId="broken"), ALL_FULFILLED]
    steps.append(moved("return", 1, 4, restock=True, stepId="back"))
    found = of("FULFILLED", None, steps)
    for number, step in enumerate(found["steps"]):
        step["at"] = f"2026-01-01T00:01:{number:02}"
    shop.write(Table.ORDERS, found)
    shop.write(Table.PRODUCTS, product(8, 4, onHand=11))
    shop.write(Table.STOCK_ADJUSTMENTS, OPENING)
    shop.write_out(version=3, p=3)
    (shown,) = json.loads(command("p", "--json").stdout)["products"]
    names = ("version", "delta", "available", "onHandDelta", "onHand", "what")
    assert [tuple(entry[name] for name in names) for entry in shown["history"]] == [
        (1, 10, 10, 10, 10, "OPENING opening"),
        (2, -4, 6, 0, 10, "order o-1"),
        (None, 0, 6, -1, 9, "order o-1, fulfil parcel-1"),
        (3, 1, 7, 0, 9, "order o-1, cancel less"),
        (None, 0, 7, -1, 8, "order o-1, cancel broken, units lost"),
        (None, 0, 7, -1, 7, "order o-1, fulfil"),
        (4, 1, 8, 1, 8, "order o-1, return back"),
    ]
    assert (
        "Why does p (since 2026-01-01T00:00:00) have 8 on hand, 0 committed, 8 available?"
        in command("p").stdout
    )
    assert (
        "1 product (0 of them delisted) with 8 on hand, 0 committed, 8 available"
        in command().stdout
    )


# ---------------------------------------------------------------- lanes

LENT = {"lentTo": frozenset({"0", "3"})}


@pytest.mark.parametrize(
    ("row", "pages", "orders"),
    [
        (product(4, 2, **LENT), [page(0, 5, p=5), page(3, 1, p=1)], []),
        (product(4, 2, **LENT), [page(0, 5, p=5), page(3, 1)], [order_from_lane("a", 1, 3, 1)]),
        (
            product(4, 2, **LENT),
            [page(0, 5, p=5), page(3, 1, p=1)],
            [order_from_lane("later", 1, 3, 2), order_from_lane("from another", 1, 7, 1)],
        ),
        (
            product(2, 3, **LENT),
            [page(0, 5, p=5), page(3, 9)],
            [order("row", 2, 3), order_from_lane("a", 1, 3, 8)],
        ),
    ],
)
def test_units_in_lanes_count_and_so_do_orders_up_to_the_pages_versions(row, pages, orders):
    (account,) = accounts_of([row], [OPENING], orders, pages)
    assert account.balances, account


def test_units_on_a_page_that_is_never_read_are_missing():
    key = PageKey(3, (PageKey.of(3, "p").number + 1) % 4)
    lost = Page(key, 1, "e", {"p": PageEntry(BORN, 5)})
    (account,) = accounts_of([product(5, 2, **LENT)], [OPENING], [], [lost])
    assert account.difference == -5


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "its row is gone, but the depot, lane 3 hold units of it"),
        (
            [product(4, 1, lentTo=frozenset({"0"}))],
            "lane 3 holds units of it, but its lentTo does not list",
        ),
        ([product(4, 1)], "the depot, lane 3 hold units of it, but its lentTo does not list"),
        ([product(4, 1, status="LOW_STOCK", **LENT)], "but its row is LOW_STOCK with 4"),
        ([product(4, 1, lowStockThreshold=4, **LENT)], "it must be ACTIVE with at least 5"),
        ([product(7, 1, lowStockThreshold=4, safetyStock=3, **LENT)], "ACTIVE with at least 8"),
        ([product(9, 1, purchaseLimit=2, **LENT)], "but it has a purchase limit"),
        ([product(0, 1, lowStockThreshold=-2, **LENT)], "it must be ACTIVE with at least 1"),
    ],
)
def test_states_that_lanes_must_not_have_are_problems(rows, problem):
    (account,) = accounts_of(rows, [], [], [page(0, 1, p=5), page(3, 1, p=1)])
    assert account.is_wrong
    (found,) = account.problems
    assert problem in found


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (product(-3, 2, backorderLimit=2, status="OUT_OF_STOCK"), "has -3, below its floor of -2"),
        (product(-1, 2, status="DISCONTINUED"), "has -1, below its floor of 0"),
        (product(0, 2), "is ACTIVE with 0: it must be OUT_OF_STOCK"),
        (product(2, 2, lowStockThreshold=2), "is ACTIVE with 2: it must be LOW_STOCK"),
        (product(3, 2, safetyStock=3), "is ACTIVE with 3: it must be OUT_OF_STOCK"),
        (product(3, 2, lowStockThreshold=2, status="LOW_STOCK"), "it must be ACTIVE"),
        (product(-1, 2, lowStockThreshold=-2, **LENT), "has -1, below its floor of 0"),
        (product(-2, 2, backorderLimit=2, status="OUT_OF_STOCK"), None),
        (product(-1, 2, backorderLimit=2, status="LOW_STOCK"), None),
        (product(9, 2, status="DISCONTINUED"), None),
        (product(3, 2, lowStockThreshold=2, **LENT), None),
    ],
)
def test_a_floor_or_a_status_that_was_broken_is_a_problem(row, problem):
    opening = adjustment("opening", row["stockCount"], 1, "OPENING")
    (account,) = accounts_of([row | {"onHand": row["stockCount"]}], [opening], [])
    assert (account.unexplained, account.is_wrong) == ({}, problem is not None)
    assert (problem or "") in "".join(account.problems[:1])


def test_a_row_that_another_program_broke_is_named_and_left_out(shop):
    def without(row, *names):
        return {name: value for name, value in row.items() if name not in names}

    sound = product(10, 1)
    shop.write(Table.PRODUCTS, sound)
    shop.write(Table.STOCK_ADJUSTMENTS, OPENING)
    for name in ("createdAt", "stockCount", "onHand", "_version", "status"):
        shop.write(Table.PRODUCTS, without(sound, name) | {"productId": f"no-{name}"})
    shop.write(Table.PRODUCTS, sound | {"productId": "text", "stockCount": "10"})
    shop.write(Table.STOCK_ADJUSTMENTS, without(adjustment("a", 5), "appliedAt"))
    shop.write(Table.ORDERS, without(order("undated", 2, 2), "createdAt"), order("sound", 2, 3))
    line = without(order("b", 2, 2)["items"][0], "quantity")
    shop.write(Table.ORDERS, order("vague", 2, 2) | {"items": [line]})
    assert shop.audit()["p"].balances
    assert shop.books.corrupt_rows.keys() == {
        *("Products no-createdAt", "Products no-stockCount", "Products no-_version"),
        *("Products no-onHand", "Products no-status", "Products text", "StockAdjustments p/a"),
        *("Orders undated", "Orders vague"),
    }
    said = shop.books.corrupt_rows["Orders vague"]
    assert "vague breaks the contract of the Orders table (KeyError: 'quantity')" in said
    assert shop.books.orders.keys() == {"sound"}
    account, _ = explained(shop.stack, "p")
    assert account.balances


@pytest.fixture
def command(shop, monkeypatch):
    """Run the command `audit` for this shop."""
    monkeypatch.setattr(books, "aws_of", lambda *_: shop.stack)

    def run(*arguments):
        return CliRunner().invoke(main.app, ["audit", *arguments])

    return run


def test_a_missing_unit_makes_the_command_fail_and_locates_the_rest(shop, command):
    lend(shop, 4, L0=4, L3=1)
    done = command("p")
    assert done.exit_code == 1
    assert (
        "p has 9 available (row: 4, the depot: 4, lane 3: 1), but its adjustments and orders say 10: -1 unexplained\n"
        in done.stdout
    )
    assert "there is no product none" in str(command("none").exception)


def test_a_broken_row_makes_the_command_fail(shop, command):
    shop.write(Table.ORDERS, order("a", 2, 2) | {"items": [{"productCreatedAt": BORN}]})
    done = command()
    assert done.exit_code == 1
    assert "Rows: a breaks the contract of the Orders table" in done.stdout
    assert list(json.loads(command("--json").stdout)["corruptRows"]) == ["Orders a"]


def test_books_that_never_settle_are_open_and_do_not_balance(shop, command, monkeypatch):
    monkeypatch.setattr(audit, "_REREADS", 2)
    lend(shop, 4, L0=4, L3=1)
    never_the_same(shop)
    done = command()
    assert done.exit_code == 1
    assert "its books cannot be checked" in done.stdout
    assert "balance" not in done.stdout
    found = json.loads(command("--json").stdout)
    assert (found["balanced"], found["products"][0]["settled"]) == (False, False)


def never_the_same(shop):
    """Change the units in a lane after each request, and cancel every transaction that reads them."""
    numbers = itertools.count(1)
    shop.busy = True
    shop.between = lambda *_: (n := next(numbers)) and shop.write_page(3, 1 + n, p=3 + n % 3)


def lend(shop, row, **units):
    """Write a product with 10 units: some in its row, and the rest in lanes."""
    shop.write(Table.PRODUCTS, product(row, 2, **LENT))
    shop.write(Table.STOCK_ADJUSTMENTS, OPENING)
    for lane, count in units.items():
        shop.write_page(int(lane[1:]), 1, p=count)


def test_units_that_move_while_they_are_counted_are_no_difference(shop):
    lend(shop, 4, L0=5, L3=1)
    moves = []

    def move(operation, tables):
        if operation == "Scan" and tables == {"Allotments"} and not moves:
            moves.append("from the row to the depot, and on to a lane")
            shop.write(Table.PRODUCTS, product(2, 3, **LENT))
            shop.write_page(0, 2, p=3)
            shop.write_page(3, 2, p=5)

    shop.between = move
    account = shop.audit()["p"]
    assert moves
    assert (account.balances, account.in_lanes) == (True, {0: 3, 3: 5})


@pytest.mark.parametrize("busy", [False, True])
def test_a_unit_taken_from_a_lane_by_hand_is_found(shop, busy):
    lend(shop, 4, L0=4, L3=1)
    shop.busy = busy
    account = shop.audit()["p"]
    assert account.unexplained == {"available": -1, "committed": 1}
    assert "TransactGetItems" in shop.operations


def test_a_difference_on_pages_too_large_for_a_transaction_is_found(shop):
    lend(shop, 4, **{f"L{lane}": 1 for lane in range(11)})
    for lane in range(11):
        large = {"othersAttribute": "x" * 400_000}
        shop.write(Table.ALLOTMENTS, page_row(page(lane, 1, p=1)) | large)
    account = shop.audit()["p"]
    assert account.unexplained == {"available": 5, "committed": -5}
    assert "TransactGetItems" in shop.operations


def test_sales_from_an_unread_lane_do_not_hide_a_missing_unit(shop):
    numbers = itertools.count(1)

    def sell(operation, tables):
        sold = next(numbers)
        shop.write(Table.ORDERS, order_from_lane(f"o{sold}", 1, 3, 1 + sold))
        shop.write_page(3, 1 + sold, p=45 - sold)

    shop.write(Table.PRODUCTS, product(4, 2, onHand=50, **LENT))
    shop.write(Table.STOCK_ADJUSTMENTS, adjustment("opening", 50, 1, "OPENING"))
    shop.write_page(3, 1, p=45)
    shop.busy, shop.between = True, sell
    account = shop.audit()["p"]
    assert account.sold > 0
    assert account.unexplained == {"available": -1, "committed": 1}


def test_units_in_the_same_move_during_every_read_are_not_missing(shop):
    lend(shop, 4, L0=4, L3=1)
    number = 1

    def move(operation, tables):
        nonlocal number
        if operation == "BatchGetItem" and tables == {"Allotments"}:
            number += 1
            shop.write_page(3, number, p=1 + 2 * (number % 2 == 0))

    shop.busy, shop.between = True, move
    account = shop.audit()["p"]
    assert number > 2
    assert (account.difference, account.settled) == (-1, False)


def test_a_temporary_problem_is_not_reported(shop):
    lend(shop, 4, L0=6)
    shop.write(Table.PRODUCTS, product(4, 2))

    def repair(operation, tables):
        if tables == {"Products"}:
            shop.write(Table.PRODUCTS, product(4, 3, **LENT))

    shop.between = repair
    account = shop.audit()["p"]
    assert (account.settled, account.problems) == (True, ())


@pytest.mark.parametrize(
    ("page", "nonsense", "unexplained"),
    [
        (out(p=2), b"?", {"on_hand": 2, "committed": 2}),
        (out(p=2), page_units(out(p=-2)), {"on_hand": 2, "committed": 2}),
        (page(3, 2, p=1), b"?", {"available": -1, "committed": 1}),
    ],
)
def test_a_corrupt_page_is_named_and_counts_as_empty(shop, page, nonsense, unexplained):
    shop.write(Table.PRODUCTS, product(7, 2, lentTo=frozenset({"3"})))
    shop.write(Table.STOCK_ADJUSTMENTS, OPENING)
    shop.write(Table.ORDERS, handed_over("a", 2))
    shop.write(Table.ALLOTMENTS, {"page": "3/lease", "lockedBy": "x"})
    shop.write_out(1, p=2)
    shop.write_page(3, 2, p=1)
    assert shop.audit()["p"].balances
    shop.write(Table.ALLOTMENTS, page_row(page) | {"units": nonsense})
    account = shop.audit()["p"]
    assert (account.unexplained, account.problems) == (unexplained, ())
    assert list(shop.books.corrupt_pages) == [str(page.key)]
    assert f"page {page.key} breaks the contract" in shop.books.corrupt_pages[str(page.key)]


def test_a_history_is_right_although_its_first_page_is_written_during_the_read(shop):
    shop.write(Table.PRODUCTS, product(10, 1))
    shop.write(Table.STOCK_ADJUSTMENTS, OPENING)

    def lend(operation, tables):
        if tables == {Table.ALLOTMENTS}:
            shop.between = lambda *_: None
            shop.write_page(0, 1, p=8)
            shop.write(Table.PRODUCTS, product(2, 2, **LENT))

    shop.between = lend
    account, _ = explained(shop.stack, "p")
    assert (account.available, account.balances) == (10, True)


def test_a_history_has_the_orders_from_lanes_in_between():
    orders = {
        "a": order("a", 2, 2),
        "b": order_from_lane("b", 1, 3, 7),
        "c": order_from_lane("c", 1, 0, 8),
        "later": order_from_lane("later", 1, 3, 8),
        "too late": order("too late", 5, 4),
    }
    receipt = adjustment("receipt", 3, 3) | {"appliedAt": "2026-01-01T00:02"}
    pages = [page(0, 8, p=1), page(3, 7, p=2)]
    row = product(6, 3, onHand=13, **LENT)
    (account,) = accounts_of([row], [OPENING, receipt], orders.values(), pages)
    entries = history(Books((account,), orders, [OPENING, receipt]), account)
    assert [(entry.version, entry.what, entry.available) for entry in entries] == [
        (1, "OPENING opening", 10),
        (2, "order a", 8),
        (None, "order b, from lane 3", 7),
        (None, "order c, from the depot", 6),
        (3, "RECEIPT receipt", 9),
    ]
    assert (entries[-1].available, entries[-1].on_hand) == (account.available, account.on_hand)


def test_a_large_table_is_read_in_parallel_segments(shop, monkeypatch):
    monkeypatch.setattr(aws, "_SEGMENT_BYTES", 300_000)
    monkeypatch.setattr(aws, "_MAX_SEGMENTS", 2)
    many = {f"p{n:02}" for n in range(12)}
    shop.write(Table.PRODUCTS, *(product(5, 1, productId=p, name="x" * 300_000) for p in many))
    requests = []
    shop.on("Scan", lambda request: requests.append(request) and None)
    found = [item["productId"]["S"] for item in aws.scan(shop.stack, Table.PRODUCTS)]
    assert sorted(found) == sorted(many)
    assert {request["TotalSegments"] for request in requests} == {2}
    assert {request["Segment"] for request in requests} == {0, 1}
    # Each segment has more than a megabyte.
    assert any("ExclusiveStartKey" in request for request in requests)
    size = aws.size_of(shop.stack, Table.PRODUCTS)
    assert (size.rows, size.read_units) == (12, pytest.approx(12 * 300_000 / 4096, rel=0.01))


def test_an_audit_says_how_far_it_is(shop, monkeypatch):
    monkeypatch.setattr(audit, "_PROGRESS_ROWS", 2)
    shop.write(Table.ORDERS, *(order(f"o-{n}", 1, n + 1) for n in range(4)))
    progress = []
    read = audit.read_books(shop.stack, progress.append)
    assert progress == [2, 4]
    assert len(read.orders) == 4
