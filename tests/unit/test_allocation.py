"""The allocation: moves between rows and pages never create or lose a unit, and the rules of lanes always hold."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import DEPOT, PAGES, Page, PageEntry, PageKey
from testing.schedules.in_turn.bench import product

LANES = range(1, 4)
PRODUCT_IDS = ["p", "q", "t", "u"]
CREATED = product("p", 1).created_at


def pages(*lanes, version=3):
    """Make all pages of some lanes, without units."""
    return [
        Page(PageKey(lane, number), version, f"epoch-{lane}-{number}", {})
        for lane in lanes
        for number in range(PAGES)
    ]


def holding_page(lane, product_id, units, reach=0, created_at=CREATED):
    key = PageKey.of(lane, product_id)
    return Page(key, 3, f"epoch-{lane}", {product_id: PageEntry(created_at, units, reach)})


def lent(product_id="p", stock=10, depot=5, lane=4, **more):
    """Make a product with units at the depot and in lane 1. Lane 2 may also hold some."""
    row = product(product_id, stock, lent_to=frozenset({0, 1, 2}), **more)
    return Allocation(
        {product_id: row},
        [
            holding_page(DEPOT, product_id, depot, reach=2),
            holding_page(1, product_id, lane),
            Page(PageKey.of(2, product_id), 0, "new"),
        ],
    )


moves = st.lists(
    st.tuples(
        st.sampled_from(
            ["lend", "fill", "fill", "return", "recall", "reclaim", "take", "write", "write"]
        ),
        st.sampled_from(PRODUCT_IDS),
        st.integers(0, 2),
        st.integers(0, 6),
        st.sampled_from(["lent", "lent", "lent", "any"]),
    ),
    min_size=20,
    max_size=40,
)


def start(product_id, spare, threshold, backorder, reach, held):
    """Make a product and its units by lane. The depot may fill lanes up to `reach`; -1 means that nothing is lent."""
    lanes = range(reach + 1)
    row = product(
        product_id,
        spare + (threshold + 1 if lanes else 0),
        low_stock_threshold=threshold,
        backorder_limit=backorder,
        version=7,
        lent_to=frozenset(lanes),
    )
    return row, {lane: held[lane] for lane in lanes if held[lane]}


starts = st.fixed_dictionaries(
    {
        product_id: st.builds(
            start,
            st.just(product_id),
            st.integers(0, 60),
            st.integers(0, 5),
            st.sampled_from([0, 3]),
            st.sampled_from([-1, 0, 1, 2, 3, 3]),
            st.lists(st.integers(0, 12), min_size=4, max_size=4),
        )
        for product_id in PRODUCT_IDS
    }
)


class Books:
    """The stored rows and pages, an allocation that moves their units, and the units sold.

    Attributes:
        moved: The kinds of moves that have moved units and have been written.
    """

    def __init__(self, shelf):
        self.rows = {product_id: row for product_id, (row, _) in shelf.items()}
        self.pages = {page.key: page for page in pages(DEPOT, *LANES)}
        for product_id, (row, held) in shelf.items():
            for lane, units in held.items():
                reach = max(row.lent_to) if lane == DEPOT else 0
                entry = PageEntry(row.created_at, units, reach)
                self.pages[PageKey.of(lane, product_id)].entries[product_id] = entry
        self.opening = {
            product_id: row.stock_count + sum(held.values())
            for product_id, (row, held) in shelf.items()
        }
        self.sold = dict.fromkeys(PRODUCT_IDS, 0)
        self.moved = set()
        self.forget()

    def forget(self):
        """Discard moves that have not been written."""
        self.allocation = Allocation(self.rows, self.pages.values())
        self.taken = dict.fromkeys(PRODUCT_IDS, 0)
        self.lent = dict.fromkeys(PRODUCT_IDS, 0)
        self.unwritten = set()

    def where(self, product_id):
        """Return the expected units in the row, at the depot and in each lane."""
        lanes = (self.allocation.units(lane, product_id) for lane in (DEPOT, *LANES))
        return self.allocation.row(product_id).stock_count, *lanes

    def do(self, kind, product_id, number, units, whose):
        """Make a move. `whose` says whether any lane may be chosen, or only those that may hold the product."""
        if kind == "write":
            self.write()
            return
        before = self.where(product_id)
        lent = sorted(self.allocation.row(product_id).lent_to - {DEPOT})
        lanes = lent if lent and whose == "lent" else LANES
        self.move(kind, product_id, lanes, number, units)
        after = self.where(product_id)
        assert sum(after) == sum(before) - (units if kind == "take" else 0)
        if after != before:
            self.unwritten.add(kind)

    def move(self, kind, product_id, lanes, number, units):
        allocation, lane = self.allocation, lanes[number % len(lanes)]
        match kind:
            case "lend":
                allocation.lend(product_id, units, lane)
                self.lent[product_id] += units
            case "fill":
                allocation.fill(lane, product_id, units)
            case "return":
                allocation.give_back(lane, product_id)
            case "recall":
                allocation.recall(product_id, lanes[: number + 1])
            case "reclaim":
                if lanes is not LANES:
                    allocation.recall(product_id, lanes)
                allocation.reclaim(product_id)
            case "take":
                place = (None, PageKey.of(DEPOT, product_id), PageKey.of(lane, product_id))[number]
                allocation.add_units(product_id, -units, place)
                self.taken[product_id] += units

    def write(self):
        transaction = self.allocation.drain()
        updates, written = transaction.updates, transaction.pages
        assert dict.fromkeys(PRODUCT_IDS, 0) | transaction.lent == self.lent
        for update in updates:
            assert update.before == self.rows[update.before.product_id]
            assert update.after.version == update.before.version + 1
            self.check_what_was_taken_off_the_list(update, written)
        for update in written:
            assert update.before == self.pages[update.before.key]
            if update.after is not update.before:
                assert update.after.version == update.before.version + 1
                assert update.after.epoch == update.before.epoch
        places = [u.after.product_id for u in updates] + [u.after.key for u in written]
        assert len(set(places)) == len(places), "no item appears twice in a transaction"
        self.rows |= {u.after.product_id: u.after for u in updates}
        self.pages |= {u.after.key: u.after for u in written}
        for product_id, units in self.taken.items():
            self.sold[product_id] += units
        self.taken = dict.fromkeys(PRODUCT_IDS, 0)
        self.lent = dict.fromkeys(PRODUCT_IDS, 0)
        assert not self.allocation.touched, "written moves are no longer pending"
        self.moved |= self.unwritten
        self.unwritten = set()
        self.check()

    @staticmethod
    def check_what_was_taken_off_the_list(update, written):
        after = {page.after.key: page.after for page in written}
        product_id = update.after.product_id
        gone = update.before.lent_to - update.after.lent_to
        for lane in gone | ({DEPOT} if gone else set()):
            key = PageKey.of(lane, product_id)
            assert key in after, "the transaction must write or check the page"
            if lane in gone:
                assert not after[key].units(product_id)

    def check(self):
        for product_id, row in self.rows.items():
            held = {key: page.units(product_id) for key, page in self.pages.items()}
            assert (
                row.stock_count + sum(held.values()) + self.sold[product_id]
                == (self.opening[product_id])
            )
            assert {key.lane for key, units in held.items() if units} <= row.lent_to
            assert not row.lent_to or row.may_be_lent
            depot = self.pages[PageKey.of(DEPOT, product_id)].entries.get(product_id)
            if depot is not None:
                assert set(range(depot.reach + 1)) <= row.lent_to
        for page in self.pages.values():
            assert all(entry.units > 0 for entry in page.entries.values())


def test_no_sequence_of_moves_creates_or_loses_units_or_breaks_a_rule():
    moved, refused = Counter(), Counter()

    @given(starts, moves)
    def run(shelf, sequence):
        books = Books(shelf)
        books.check()
        for move in [*sequence, ("write", "p", 0, 0, "lent")]:
            try:
                books.do(*move)
            except ValueError:
                refused[move[0]] += 1
                books.forget()
        moved.update(books.moved)

    run()
    # Otherwise the sequences of moves are too short or too uniform to prove anything.
    for kind in ("lend", "fill", "return", "recall", "reclaim", "take"):
        assert moved[kind], f"no {kind} moved a unit"
    assert {"fill", "take"} <= refused.keys()


@pytest.mark.parametrize(
    ("row", "spare"),
    [
        (product("p", 10, low_stock_threshold=5), 4),
        (product("p", 3, backorder_limit=10), 2),
        (product("p", 10, status="DISCONTINUED"), 0),
        (product("p", 10, low_stock_threshold=20), 0),
    ],
)
@pytest.mark.parametrize("is_sale", [False, True])
def test_a_row_keeps_more_than_its_threshold_while_lanes_hold_units(row, spare, is_sale):
    """While lanes have units, a row keeps more than its threshold. An inactive row lends nothing."""
    if is_sale and spare:
        row = replace(row, lent_to=frozenset({DEPOT}))
    allocation = Allocation({"p": row}, pages(DEPOT))

    def take(units):
        if is_sale and spare:
            allocation.add_units("p", -units, None)
        else:
            allocation.lend("p", units, 0)

    if spare:
        take(spare)
        (update,) = allocation.drain().updates
        assert update.after.lent_to == {DEPOT}
        assert update.after.stock_count == row.stock_count - spare
    take(1)
    with pytest.raises(ValueError, match="too few units of p"):
        allocation.drain()


@pytest.mark.parametrize("unknown", [0, 1])
def test_an_unknown_page_is_not_recalled(unknown):
    row = product("p", 10, lent_to=frozenset({0, 1}))
    allocation = Allocation({"p": row}, pages(1 - unknown))
    with pytest.raises(KeyError, match=f"lane={unknown}"):
        allocation.recall("p", [1])


def test_units_of_another_generation_are_not_mixed():
    again = product("p", 100, created_at="2026-06-01T00:00:00.000000+00:00")
    old = holding_page(DEPOT, "p", 5)
    with pytest.raises(ValueError, match="cannot add 5 of p"):
        Allocation({"p": again}, [old]).lend("p", 5, 0)
    allocation = Allocation({"p": replace(again, lent_to=frozenset({0}))}, [old])
    with pytest.raises(ValueError, match="cannot add -5 of p"):
        allocation.reclaim("p")
