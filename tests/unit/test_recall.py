"""Units that lie in lanes come back to whoever needs them, whatever happens at the same time, and none is lost.

The real client and engine run on the simulated AWS, in virtual time. A product's page has the same number in all lanes;
`p`, `t` and `u` have three different ones.
"""

import pytest

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.allotments import DEPOT, PageKey
from inventory_orders.domain.ledger import Ledger
from inventory_orders.domain.order import Order
from inventory_orders.domain.planner import Transaction
from inventory_orders.domain.product import ProductStatus
from inventory_orders.engine.outcomes import ChangeStatus
from inventory_orders.engine.recall import bring_home, recall
from inventory_orders.engine.stats import CommitStats
from tests.support.tables_in_memory import tables_in_memory


class Lanes:
    """The tables, what was lent, and who sells from lanes."""

    def __init__(self, tables):
        self.tables = tables
        self.engine = tables.worker()
        self.client = self.engine.client
        self.stats = CommitStats()
        self.sold = 0

    def soon(self, seconds=20.0):
        return Deadline.after(seconds, SystemClock())

    def list_and_lend(self, product_id="p", stock=100, lanes=None, depot=10, reach=8, **more):
        """List a product and lend some of it: units by lane. By default what is left in the row is what has to be."""
        self.tables.create(product_id, stock, **more)
        self.lend(product_id, {1: 20, 2: 30} if lanes is None else lanes, depot, reach)

    def lend(self, product_id, lanes, depot=10, reach=8):
        ledger = self.ledger(product_id, {DEPOT, *lanes})
        ledger.draw(product_id, depot + sum(lanes.values()), reach)
        for lane, units in lanes.items():
            ledger.fill(lane, product_id, units)
        self.write(ledger)

    def ledger(self, product_id, lanes):
        keys = [PageKey.of(lane, product_id) for lane in sorted(lanes)]
        snapshot = self.client.store.read([product_id, *keys])
        return Ledger(snapshot.products, snapshot.pages.values())

    def write(self, ledger):
        updates, pages = ledger.changes()
        transaction = Transaction(updates, (), pages)
        request = self.client.store.transaction_request(transaction, self.client.clock.now())
        self.client.write(request, len(updates), self.soon(), CommitStats())

    def sell(self, lane, product_id="p", units=1):
        """Somebody sells from a lane, if it has so much."""
        ledger = self.ledger(product_id, {lane})
        if ledger.units(lane, product_id) >= units:
            ledger.take(product_id, -units, lane)
            self.write(ledger)
            self.sold += units

    def row(self, product_id="p"):
        return self.client.store.get_product(product_id)

    def in_lanes(self, product_id="p"):
        """Units by lane, of lanes that have any."""
        found = {}
        for (name,) in list(self.tables.aws.dynamodb.tables["Allotments"].items):
            lane, number = name.split("/")
            if number != "lease":
                key = PageKey(int(lane), int(number))
                if units := self.client.store.read([key]).pages[key].units(product_id):
                    found[int(lane)] = units
        return found

    def total(self, product_id="p"):
        """All units: in the row, in lanes, and sold."""
        return (
            self.row(product_id).stock_count + sum(self.in_lanes(product_id).values()) + self.sold
        )

    def recall(self, *product_ids, home=False, lanes=range(1, 9), **more):
        self.tables.calls.clear()
        return recall(
            self.client, None, product_ids, self.soon(), self.stats, home=home, lanes=lanes, **more
        )

    def bring_home(self, *product_ids, seconds=20.0):
        rows = [self.row(product_id) for product_id in product_ids]
        self.tables.calls.clear()
        return bring_home(
            self.client, self.engine.contention, None, rows, self.soon(seconds), self.stats
        )

    def before_each(self, operation, action):
        """Do something before each call of an operation, but for the calls of the action itself."""

        def before(called, request):
            if called == operation:
                self.tables.before = lambda *_: None
                action(request)
                self.tables.before = before

        self.tables.before = before

    def corrupt(self, table, key, **attributes):
        self.tables.aws.dynamodb.tables[table].items[key,] |= attributes


@pytest.fixture
def lanes():
    with tables_in_memory() as tables:
        yield Lanes(tables)


def test_one_read_and_one_transaction_recall_products_from_all_lanes(lanes):
    for product_id in ("p", "t", "u"):
        lanes.list_and_lend(product_id)
    recalled = lanes.recall("p", "t", "u")
    assert lanes.tables.calls == ["BatchGetItem", "TransactWriteItems"]
    for product_id in ("p", "t", "u"):
        assert lanes.in_lanes(product_id) == {DEPOT: 60}
        assert lanes.row(product_id).lent_to == {DEPOT}
        assert lanes.row(product_id).is_written_as(recalled.rows[product_id])
    assert recalled.lent == set()


def test_after_a_recall_the_depot_fills_no_lane_with_the_product(lanes):
    lanes.list_and_lend()
    lanes.recall("p")
    with pytest.raises(ValueError, match="lane 1 may not hold p"):
        lanes.ledger("p", {DEPOT, 1}).fill(1, "p", 1)


def test_what_is_brought_home_is_in_the_row_alone(lanes):
    lanes.list_and_lend()
    recalled = lanes.recall("p", home=True)
    assert (recalled.away, lanes.in_lanes()) == (set(), {})
    assert (lanes.row().stock_count, lanes.row().lent_to) == (100, frozenset())
    assert lanes.tables.calls[:2] == ["BatchGetItem", "TransactWriteItems"]


def test_a_recall_of_what_only_the_depot_holds_writes_nothing(lanes):
    lanes.list_and_lend(lanes={}, reach=0)
    assert lanes.recall("p").lent == set()
    assert lanes.tables.calls == ["BatchGetItem"]


@pytest.mark.parametrize("home", [False, True])
def test_a_lane_that_sells_in_between_loses_its_units_in_a_later_attempt(lanes, home):
    lanes.list_and_lend()
    lanes.tables.once("TransactWriteItems", lambda _: lanes.sell(1))
    recalled = lanes.recall("p", home=home)
    # The second attempt leaves the busy lane out, the third has it again. Neither reads.
    assert lanes.tables.calls.count("BatchGetItem") == 2
    assert recalled.lent == set()
    assert (lanes.total(), lanes.sold) == (100, 1)
    assert lanes.in_lanes() == ({} if home else {DEPOT: 59})


def test_a_lane_that_never_rests_keeps_its_units_and_stays_named(lanes):
    lanes.list_and_lend()
    lanes.before_each("TransactWriteItems", lambda _: lanes.sell(2))
    recalled = lanes.recall("p", home=True)
    lanes.tables.before = lambda *_: None
    assert recalled.lent == {"p"}
    assert lanes.row().lent_to == {DEPOT, 2}
    assert lanes.in_lanes() == {DEPOT: 30, 2: 30 - lanes.sold}
    assert lanes.total() == 100


# ---------------------------------------------------------------- who needs them


APPLIED, REJECTED, RETURNED = ChangeStatus.APPLIED, ChangeStatus.REJECTED, ChangeStatus.RETURNED


@pytest.mark.parametrize(
    ("quantity", "status", "left"),
    [(39, APPLIED, None), (40, APPLIED, 60), (100, APPLIED, 0), (101, REJECTED, 100)],
)
def test_the_row_sells_what_it_can_spare_and_then_all_there_is(lanes, quantity, status, left):
    """100 units, of which 60 lie in lanes; the row must keep one of its 40."""
    lanes.list_and_lend()
    report = lanes.tables.apply(lanes.engine, Order("o", "u", {"p": quantity}))
    assert [outcome.status for outcome in report.outcomes] == [status]
    if left is None:
        assert (lanes.row().stock_count, lanes.row().status) == (1, ProductStatus.ACTIVE)
        assert sum(lanes.in_lanes().values()) == 60
    else:
        assert (lanes.row().stock_count, lanes.in_lanes()) == (left, {})


def test_what_a_lane_sells_before_an_order_is_rejected_is_not_promised(lanes):
    lanes.list_and_lend()
    lanes.tables.once("TransactWriteItems", lambda _: lanes.sell(1))
    report = lanes.tables.apply(lanes.engine, Order("o", "u", {"p": 100}))
    (outcome,) = report.outcomes
    assert (outcome.status, outcome.rejection.shortage.available) == (REJECTED, 99)
    assert lanes.total() == 100
