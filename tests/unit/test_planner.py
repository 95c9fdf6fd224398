"""The planner's properties, which hold for every input."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory_orders.domain.adjustment import Adjustment, Transfer
from inventory_orders.domain.allocation import Allocation
from inventory_orders.domain.allotments import DEPOT, PAGES, LaneLease, Page, PageEntry, PageKey
from inventory_orders.domain.location import product_of
from inventory_orders.domain.order import Order
from inventory_orders.domain.planner import Limits, Supply, plan, prove
from inventory_orders.domain.rejection import Rejection, RejectionReason
from inventory_orders.lanes.visit import LaneSupply
from testing.schedules.in_turn.bench import product

PLACES = ["", "a", "b"]
IN_PLACES = [["p0", "p0#a", "p0#b"], ["p1", "p1#a", "p1#b"]]
PRODUCT_IDS = [*itertools.chain(*IN_PLACES), "p2", "p3", "p4", "p5"]
IDS = [f"p{number}" for number in range(6)]

lines = st.dictionaries(st.sampled_from(IDS), st.integers(1, 9), min_size=1, max_size=4)
groups = st.sampled_from([None, "g1", "g2"])
at_one_place = st.fixed_dictionaries({"quantities": lines, "group": groups})
at_three_places = st.fixed_dictionaries(
    {
        "quantities": st.dictionaries(
            st.sampled_from(IDS[:2]), st.integers(1, 19), min_size=1, max_size=2
        ),
        "group": groups,
        "locations": st.permutations(PLACES).map(tuple),
        "split": st.booleans(),
        "asked_locations": st.dictionaries(
            st.sampled_from(IDS[:2]), st.sampled_from(PLACES), max_size=1
        ),
    }
)
adjustments = st.tuples(st.sampled_from(PRODUCT_IDS), st.integers(-9, 9).filter(bool))
transfers = st.tuples(
    st.sampled_from(IN_PLACES).flatmap(st.permutations).map(lambda places: places[:2]),
    st.integers(1, 9),
)
changes = st.lists(
    st.one_of(at_one_place, at_three_places, adjustments, transfers), max_size=40
).map(lambda specs: [change_of(number, spec) for number, spec in enumerate(specs)])


def change_of(number, spec):
    if isinstance(spec, dict):
        return Order(f"o{number}", "u", **spec)
    where, units = spec
    if isinstance(where, str):
        return Adjustment(where, f"a{number}", units, "CORRECTION")
    return Transfer(*where, f"t{number}", units)


shelves = st.fixed_dictionaries(
    {
        product_id: st.one_of(
            st.none(),
            st.builds(
                lambda stock, backorder, threshold, discontinued, i=product_id: product(
                    i,
                    max(stock, -backorder),
                    version=7,
                    backorder_limit=backorder,
                    low_stock_threshold=threshold,
                    size=200,
                    status="DISCONTINUED" if discontinued else None,
                ),
                st.integers(-5, 60),
                st.sampled_from([0, 0, 5]),
                st.integers(0, 20),
                st.sampled_from([False, False, False, True]),
            ),
        )
        for product_id in PRODUCT_IDS
    }
)


def from_rows(batch, shelf, *more, **options):
    """Make a plan that sells everything from rows."""
    return plan(batch, Supply(Allocation(shelf)), *more, **options)


def transactions_of(planned):
    """Return all transactions of a plan, in a sequence in which they may run."""
    return [transaction for chain in planned.chains for wave in chain for transaction in wave]


limits = st.builds(
    Limits, actions=st.integers(5, 12), size=st.integers(1_500, 6_000), changes=st.integers(1, 9)
)


@given(changes, shelves, limits)
def test_a_plan_from_rows_keeps_its_rules(batch, shelf, limit):
    as_given = list(batch), dict(shelf)
    planned = from_rows(batch, shelf, limits=limit)
    assert (batch, shelf) == as_given, "a plan changes none of its arguments"
    check_stock(shelf, planned)
    check_sizes(planned, limit)
    check_steps(planned)
    check_order(batch, planned)


def check_stock(shelf, planned):
    """Check that stock is conserved and never below its floor."""
    state = dict(shelf)
    for transaction in transactions_of(planned):
        touched = {p for d in transaction.decisions for p in d.deltas}
        assert touched == {update.before.product_id for update in transaction.updates}
        for update in transaction.updates:
            product_id = update.before.product_id
            delta = sum(d.deltas.get(product_id, 0) for d in transaction.decisions)
            assert update.before == state[product_id], "each write builds on the one before"
            assert update.after.stock_count == update.before.stock_count + delta
            assert update.after.version == update.before.version + 1
            assert update.after.sellable >= 0
            goods = sum(
                d.deltas.get(product_id, 0) for d in transaction.decisions if d.change.moves_goods
            )
            assert update.after == replace(
                update.before.with_stock(update.after.stock_count, update.after.version),
                on_hand=update.before.on_hand + goods,
            ), "the status follows from the stock, and orders leave the units on hand unchanged"
            state[product_id] = update.after


def check_sizes(planned, limit):
    """Check that no transaction exceeds the limits."""
    for transaction in transactions_of(planned):
        stored = (d.change for d in transaction.decisions if d.has_record)
        records = [change for change in stored for _ in change.parts]
        size = sum(u.before.size for u in transaction.updates) + sum(c.record_size for c in records)
        single = len(transaction.decisions) == 1
        assert len(transaction.updates) + len(records) <= limit.actions or single
        assert size <= limit.size or single
        assert len(transaction.decisions) <= limit.changes
        keys = [u.before.product_id for u in transaction.updates]
        assert len(set(keys)) == len(keys), "no item appears twice in a transaction"


def test_a_full_transaction_has_as_many_actions_as_dynamodb_takes():
    """All orders of one product share the update of its row."""
    orders = [Order(f"o-{n}", "u", {"p": 1}) for n in range(250)]
    planned = transactions_of(from_rows(orders, {"p": product("p", 250)}))
    assert [(len(t.updates), len(t.decisions)) for t in planned] == [(1, 99), (1, 99), (1, 52)]


def check_decisions(batch, shelf, planned, blocked=frozenset()):
    """Check a plan against changes that are decided one after the other. A waiting change stops its group."""
    decisions = [d for t in transactions_of(planned) for d in t.decisions]
    decided = {d.change.record_key: d for d in decisions}
    assert len(decided) == len(decisions), "each change is decided once"
    doubted = {change.record_key: decisive for change, decisive in planned.doubted}
    state, stopped = dict(shelf), set()
    for change in batch:
        answer = None if change.group in stopped else serve(change, state, blocked)
        decision = decided.get(change.record_key)
        if answer is None:
            assert decision is None
            stopped |= {change.group} - {None}
        elif isinstance(answer, list):
            assert decision is None, "with several offers, a rejection has to be proven first"
            check_doubt(change, doubted[change.record_key], state)
            stopped |= {change.group} - {None}
        elif isinstance(answer, Rejection):
            assert (decision.rejection, decision.deltas) == (answer, {})
            assert set(decision.products) == set(change.product_ids), (
                "a rejection depends on all products"
            )
        else:
            assert (decision.rejection, set(decision.products)) == (None, set(answer))


def check_doubt(change, decisive, state):
    """Check that the decisive rows of a change prove its rejection, that each of them is needed, and that the reason is right."""
    read = {p: state[p] for offer in decisive for p in offer}
    found = prove(change, decisive, read, {})
    assert len(read) <= len(change.offers)
    rows = [[state[p] for p in line] for line in zip(*change.offers, strict=True)]
    if any(all(row is None for row in line) for line in rows):
        assert found.reason is RejectionReason.UNKNOWN_PRODUCT
    elif any(all(row is None or row.is_discontinued for row in line) for line in rows):
        assert found.reason is RejectionReason.DISCONTINUED_PRODUCT
    else:
        assert found.reason is RejectionReason.INSUFFICIENT_STOCK
    if change.split or found.reason is not RejectionReason.INSUFFICIENT_STOCK:
        assert len({product_of(p) for p in read}) == 1
    for p in read:
        assert prove(change, decisive, read | {p: product(p, 99)}, {}) is None


def serve(change, state, blocked):
    """Apply one change. Returns the products that it takes, or its rejection (or those of all offers), or None if it must wait."""
    goods = {
        p: row and replace(row, backorder_limit=0) if len(change.offers) > 1 else row
        for p, row in state.items()
    }

    def answer(offer, rows):
        if not blocked.isdisjoint(offer):
            return None
        return change.rejection({p: rows[p] for p in offer}) or tuple(offer)

    offers = [*change.offers]
    if change.split and len(offers) > 1:
        by_line = zip(*offers, strict=True)
        offers.append(
            [best_of(line, lambda p: [answer([p], goods), answer([p], state)]) for line in by_line]
        )
    for rows in (goods, state):
        answers = [answer(offer, rows) for offer in offers]
        for taken in answers:
            if isinstance(taken, tuple):
                for p, delta in change.deltas({p: state[p] for p in taken}).items():
                    state[p] = state[p].with_stock(state[p].stock_count + delta, state[p].version)
                return taken
    if None in answers:
        return None
    return answers if len(change.offers) > 1 else answers[0]


def best_of(line, answers):
    """Return the location for a line: the first one with goods, one that may have them, one with backorders, or the first."""

    def rank(p):
        return [1 if a is None else 2 * isinstance(a, Rejection) for a in answers(p)]

    return min(line, key=rank)


def shared(earlier, later):
    """Return the keys that two decisions share."""
    products = set(earlier.products) & set(later.products)
    group = earlier.change.group
    same_group = group is not None and group == later.change.group
    return products | ({"the group"} if same_group else set())


def check_steps(planned):
    """Check that the transactions of one step share nothing."""
    places = [
        (d, (chain_number, step_number, number))
        for chain_number, chain in enumerate(planned.chains)
        for step_number, step in enumerate(chain)
        for number, transaction in enumerate(step)
        for d in transaction.decisions
    ]
    for (one, first), (other, second) in itertools.combinations(places, 2):
        if shared(one, other):
            assert first[0] == second[0], "changes that share something must be in one chain"
            assert first == second or first[1] != second[1], (
                "changes that share something must not be in parallel transactions"
            )
    assert all(step for chain in planned.chains for step in chain)


def reasons_of(decision):
    """Return the products that a rejection is about."""
    if decision.rejection is None:
        return []
    shortages = decision.rejection.shortages
    return [decision.rejection.subject, *(short.product_id for short in shortages)]


def check_order(batch, planned):
    """Check that no change is written before an earlier change that it depends on."""
    position, decided = {}, {}
    for number, transaction in enumerate(transactions_of(planned)):
        for d in transaction.decisions:
            position[d.change.record_key] = number
            decided[d.change.record_key] = d
    held_groups = set()
    for change in batch:
        if change.record_key not in decided:
            held_groups.add(change.group)
        else:
            assert change.group is None or change.group not in held_groups
    for earlier, later in itertools.combinations(batch, 2):
        if earlier.record_key not in decided or later.record_key not in decided:
            continue
        first, second = decided[earlier.record_key], decided[later.record_key]
        common = shared(first, second)
        rejected = {p for d in (first, second) for p in reasons_of(d)}
        opposite = any(first.deltas.get(p, 0) * second.deltas.get(p, 0) < 0 for p in common)
        if "the group" in common or not common.isdisjoint(rejected) or opposite:
            assert position[earlier.record_key] <= position[later.record_key]


some_blocked = st.one_of(st.just(set()), st.sets(st.sampled_from(PRODUCT_IDS)))


@given(changes, shelves, some_blocked, limits)
def test_decisions_are_as_in_order_of_arrival_and_blocked_products_defer_theirs(
    batch, shelf, blocked, limit
):
    """The plan decides each change as if all earlier changes had been applied one by one."""
    known = {k: v for k, v in shelf.items() if k not in blocked}
    planned = from_rows(batch, known, blocked, limit)
    check_decisions(batch, shelf, planned, blocked)
    decided = {d.change.record_key for t in transactions_of(planned) for d in t.decisions}
    waiting = {change.record_key: offers for change, offers in planned.waiting}
    assert decided.isdisjoint(waiting)
    doubted = {change.record_key for change, _ in planned.doubted}
    stopped = {change.group for change, _ in (*planned.waiting, *planned.doubted)} - {None}
    for change in [change for change in batch if change.record_key not in decided]:
        assert change.record_key in {*waiting, *doubted} or change.group in stopped
        for offer in waiting.get(change.record_key, ()):
            assert not blocked.isdisjoint(offer)
            assert not planned.short.isdisjoint(offer)
    for transaction in transactions_of(planned):
        assert all(u.before.product_id not in blocked for u in transaction.updates)


def test_disjoint_orders_are_packed_into_as_few_transactions_as_possible():
    shelf = {f"p{n}": product(f"p{n}", 5) for n in range(100)}
    planned = from_rows([Order(f"o{n}", "u", {f"p{n}": 1}) for n in range(100)], shelf)
    assert [len(t.decisions) for t in transactions_of(planned)] == [50, 50]
    assert len(planned.chains) == 2, "the transactions share nothing, so they may run in parallel"


def test_an_order_joins_the_transaction_that_contains_its_products():
    shelf = {f"p{n}": product(f"p{n}", 50) for n in range(6)}
    orders = [
        Order("a", "u", {"p0": 1, "p1": 1, "p2": 1}),
        Order("b", "u", {"p3": 1, "p4": 1, "p5": 1}),
        Order("c", "u", {"p3": 1, "p4": 1}),
    ]
    planned = from_rows(orders, shelf, limits=Limits(actions=5))
    together = [{d.change.order_id for d in t.decisions} for t in transactions_of(planned)]
    assert together == [{"a"}, {"b", "c"}]


def test_orders_that_share_nothing_run_in_one_step_of_a_chain():
    """Two orders that are connected only by a third one are written at the same time, before the third one."""
    shelf = {f"p{n}": product(f"p{n}", 50) for n in range(8)}
    orders = [
        Order("left", "u", {"p0": 1, "p1": 1, "p2": 1, "p3": 1}),
        Order("joint", "u", {"p0": 1, "p4": 1}),
        Order("right", "u", {"p4": 1, "p5": 1, "p6": 1, "p7": 1}),
    ]
    (chain,) = from_rows(orders, shelf, limits=Limits(actions=5)).chains
    together = [[t.decisions[0].change.order_id for t in step] for step in chain]
    assert together == [["left", "right"], ["joint"]]


# ---------------------------------------------------------------------- with lanes

MANY = [f"p{number:03}" for number in range(110)]
RELEASE = LaneLease(DEPOT, "visit", 1_000_002.0)
OWN = 1


class Stock:
    """Rows and pages during a visit to the depot, with moved units and the source of each product.

    Args:
        spec: For each product, its source, its units there, and whether some of them are moved.
        sizes: Bytes of a row and of a page.
    """

    def __init__(self, spec, sizes=(1_000, 20_000)):
        row_size, page_size = sizes
        entries = {PageKey(lane, n): {} for lane in (DEPOT, OWN) for n in range(PAGES)}
        self.rows = {p: self._row(p, *of[:2], row_size) for p, of in spec.items()}
        lanes = {"depot": DEPOT, "lane": OWN}
        self.sources = {
            p: PageKey.of(lanes[place], p) for p, (place, _, _) in spec.items() if place in lanes
        }
        for product_id, page in self.sources.items():
            if units := spec[product_id][1]:
                entry = PageEntry(self.rows[product_id].created_at, units, OWN)
                entries[page][product_id] = entry
        self.pages = {
            key: Page(key, 3, f"epoch-{key}", held, size=page_size) for key, held in entries.items()
        }
        self.allocation = Allocation(self.rows, self.pages.values())
        for product_id, page in self.sources.items():
            if spec[product_id][2]:
                self.allocation.lend(product_id, 7, OWN)
                if page.lane == OWN:
                    self.allocation.fill(OWN, product_id, 3)
        self.moved = set(self.allocation.touched)
        self.units = {product_id: self.of(product_id) for product_id in spec}

    @staticmethod
    def _row(product_id, place, units, size):
        if place == "gone":
            return None
        if place in ("row", "ended"):
            status = "DISCONTINUED" if place == "ended" else None
            return product(product_id, units, size=size, version=7, status=status)
        return product(product_id, 100, size=size, version=7, lent_to=frozenset({0, 1}))

    def supply(self, release=None, *, is_awaited=False):
        if release is None and not self.sources and not self.allocation.touched:
            return Supply(self.allocation)
        return LaneSupply(self.allocation, self.sources, release, is_awaited)

    def of(self, product_id):
        """Return the units of a product at its source."""
        if product_id in self.sources:
            return self.allocation.units(self.sources[product_id].lane, product_id)
        row = self.allocation.rows[product_id]
        return 0 if row is None else row.stock_count


def places(spec, *, moved):
    place = st.sampled_from(["row", "row", "lent row", "lane", "lane", "depot", "gone", "ended"])
    return st.fixed_dictionaries(
        {product_id: st.tuples(place, st.integers(0, 30), moved) for product_id in spec}
    )


few_places = places(PRODUCT_IDS, moved=st.booleans())
plenty = st.fixed_dictionaries(
    {
        product_id: st.tuples(
            st.sampled_from(["row", "lane", "depot"]), st.just(400), st.booleans()
        )
        for product_id in PRODUCT_IDS
    }
)
orders = st.lists(st.one_of(at_one_place, at_three_places), max_size=30).map(
    lambda specs: [change_of(number, {**spec, "group": None}) for number, spec in enumerate(specs)]
)
releases = st.sampled_from([None, RELEASE])


def actions_of(transaction):
    records = sum(decision.has_record for decision in transaction.decisions)
    released = transaction.release is not None
    return len(transaction.updates) + len(transaction.pages) + released + records


@given(orders, few_places, limits, releases, st.booleans(), some_blocked)
def test_a_plan_with_lanes_keeps_its_rules(batch, spec, limit, release, alone, blocked):
    stock = Stock(spec)
    planned = plan(batch, stock.supply(release=release, is_awaited=not alone), blocked, limit)
    check_sales(batch, spec, stock, planned, blocked)
    check_moves(stock, planned, limit, release)
    if release is None and not blocked:
        check_rejections(spec, planned)


def check_sales(batch, spec, stock, planned, blocked):
    """Check that each order is decided once, and sold where it says."""
    transactions = transactions_of(planned)
    decided = [d.change.order_id for t in transactions for d in t.decisions]
    waiting = [change.order_id for change, _ in (*planned.waiting, *planned.doubted)]
    stopped = {change.group for change, _ in (*planned.waiting, *planned.doubted)} - {None}
    behind = {order.order_id for order in batch if order.group in stopped}.difference(
        decided, waiting
    )
    assert sorted([*decided, *waiting, *behind]) == sorted(order.order_id for order in batch)
    sold = dict.fromkeys(spec, 0)
    stored = {**stock.rows, **stock.pages}
    for transaction in transactions:
        written = [update.after.product_id for update in transaction.updates]
        written += [update.after.key for update in transaction.pages]
        assert len(set(written)) == len(written), "no item appears twice in a transaction"
        for place, update in zip(written, [*transaction.updates, *transaction.pages], strict=True):
            assert update.before == stored[place], "each write builds on the one before"
            stored[place] = update.after
        for decision in transaction.decisions:
            assert blocked.isdisjoint(decision.products)
            after = {key: transaction.stock_after[key] for key in decision.deltas}
            record = decision.change.record(decision.rejection, after, "now")
            for line in record.lines:
                if decision.rejection is not None:
                    assert (line.product_version, line.lane_page) == (None, None)
                    continue
                sold[line.key] += line.quantity
                page = stock.sources.get(line.key)
                if page is None:
                    (made,) = [
                        u.after.version
                        for u in transaction.updates
                        if u.after.product_id == line.key
                    ]
                    wanted = (made, None, None)
                else:
                    (made,) = [u.after.version for u in transaction.pages if u.after.key == page]
                    wanted = (None, str(page), made)
                assert (line.product_version, line.lane_page, line.lane_version) == wanted
                assert line.product_created_at == stock.rows[line.key].created_at
    for product_id, units in stock.units.items():
        assert stock.of(product_id) == units, "a plan changes none of its arguments"
        page = stock.sources.get(product_id)
        if page is not None:
            assert stored[page].units(product_id) == units - sold[product_id] >= 0
        elif stored[product_id] is not None:
            assert stored[product_id].stock_count == units - sold[product_id] >= 0
    for update in (u for t in transactions for u in t.updates):
        assert not update.after.lent_to or update.after.may_be_lent


def check_moves(stock, planned, limit, release):
    """Check that moves come first, and the release once, with the last transaction that needs the depot."""
    transactions = transactions_of(planned)
    if release is not None or stock.moved or stock.sources:
        assert all(len(step) == 1 for chain in planned.chains for step in chain)
        assert len(planned.chains) <= 1
    if stock.moved:
        first = transactions[0]
        written = {u.after.product_id for u in first.updates} | {u.after.key for u in first.pages}
        assert stock.moved <= written
    for transaction in transactions[1:]:
        assert all(u.after.lent_to == u.before.lent_to for u in transaction.updates)
    released = [number for number, t in enumerate(transactions) if t.release is not None]
    if release is None:
        assert not released
        return
    if not released:
        assert any(actions_of(transaction) >= limit.actions for transaction in transactions)
        return
    assert len(released) == 1
    for transaction in transactions[released[0] + 1 :]:
        assert not transaction.updates
        assert all(update.after.key.lane == OWN for update in transaction.pages)


def check_rejections(spec, planned):
    """Check that no order is rejected while there may be more stock elsewhere."""
    for transaction in transactions_of(planned):
        for decision in transaction.decisions:
            for short in decision.rejection.shortages if decision.rejection is not None else ():
                assert spec[short.product_id][0] in ("row", "gone", "ended")
    for product_id in planned.missing:
        assert spec[product_id][0] in ("lent row", "lane", "depot")
    for change, _ in planned.waiting:
        assert not planned.missing.isdisjoint(change.product_ids)


in_groups = st.lists(
    st.tuples(st.sets(st.sampled_from(IDS), min_size=1, max_size=2), groups), min_size=4
).map(
    lambda specs: [
        Order(f"o{n}", "u", dict.fromkeys(sorted(products), 1), group)
        for n, (products, group) in enumerate(specs)
    ]
)
visits = st.sampled_from([(None, True), (RELEASE, True), (RELEASE, False), (RELEASE, False)])


@given(in_groups, st.one_of(few_places, plenty), limits, visits)
def test_no_group_is_reordered_whatever_its_products_sources(batch, spec, limit, visit):
    release, alone = visit
    supply = Stock(spec).supply(release=release, is_awaited=not alone)
    check_order(batch, plan(batch, supply, (), limit))


def test_earlier_orders_of_a_group_go_to_the_depot_too_and_later_ones_follow():
    """The group's first order needs only the lane. Its second one needs the depot, where other workers wait."""
    stock = Stock({"p": ("depot", 9, False), "q": ("lane", 9, False)})
    batch = [
        Order("other", "u", {"q": 1}, group="h"),
        Order("first", "u", {"q": 1}, group="g"),
        Order("second", "u", {"p": 1}, group="g"),
        Order("third", "u", {"q": 1}, group="g"),
        Order("alone", "u", {"q": 1}),
    ]
    planned = plan(batch, stock.supply(release=RELEASE, is_awaited=True))
    sold = [[d.change.order_id for d in t.decisions] for t in transactions_of(planned)]
    assert sold == [["first", "second"], ["other", "third", "alone"]]


gives_and_takes = st.lists(
    st.one_of(st.tuples(st.sampled_from(IDS), st.integers(1, 9)), at_one_place, at_one_place),
    min_size=4,
).map(lambda specs: [change_of(number, spec) for number, spec in enumerate(specs)])


@given(gives_and_takes, few_places, limits, visits)
def test_units_go_back_only_to_pages_that_have_some(batch, spec, limit, visit):
    """Otherwise, a recall that reads the empty page strands them."""
    release, alone = visit
    stock = Stock(spec)
    planned = plan(batch, stock.supply(release=release, is_awaited=not alone), (), limit)
    for transaction in transactions_of(planned):
        before = {update.before.key: update.before for update in transaction.pages}
        for product_id, delta in [i for d in transaction.decisions for i in d.deltas.items()]:
            if delta > 0 and (key := stock.sources.get(product_id)) is not None:
                assert before[key].units(product_id) or spec[product_id][2]


def test_orders_of_units_that_come_back_stay_behind_them():
    """The order needs the depot, where other workers wait, and a unit that comes back to the lane before it."""
    stock = Stock({"p": ("depot", 9, False), "q": ("lane", 9, False)})
    batch = [Adjustment("q", "back", 1, "FOUND"), Order("o", "u", {"p": 1, "q": 10})]
    planned = plan(batch, stock.supply(release=RELEASE, is_awaited=True))
    assert [len(t.decisions) for t in transactions_of(planned)] == [2]


wide_orders = st.lists(
    st.tuples(st.integers(0, 109), st.one_of(st.integers(1, 99), st.just(99))),
    min_size=1,
    max_size=30,
).map(
    lambda specs: [
        Order(f"o{n}", "u", {MANY[(start + i) % 110]: 1 for i in range(count)})
        for n, (start, count) in enumerate(specs)
    ]
)
depth = st.sampled_from(["row", "lane", "depot", "mixed"])


@settings(max_examples=40)
@given(wide_orders, depth, st.integers(0, 40), releases, st.booleans())
def test_with_lanes_no_transaction_exceeds_what_dynamodb_takes(batch, place, moved, release, alone):
    """The transactions include rows of 20 KB, full pages, moves, the release and the largest orders."""
    kinds = {"mixed": ["row", "lane", "depot"]}.get(place, [place])
    spec = {
        product_id: (kinds[number % len(kinds)], 40, number < moved)
        for number, product_id in enumerate(MANY)
    }
    stock = Stock(spec, sizes=(20_000, 40_000))
    planned = plan(batch, stock.supply(release=release, is_awaited=not alone))
    for transaction in transactions_of(planned):
        assert actions_of(transaction) <= 100
        records = sum(d.change.record_size for d in transaction.decisions)
        rows = sum(update.before.size for update in transaction.updates)
        written = sum(update.before.size for update in transaction.pages)
        assert records + rows + written <= 4_000_000


def test_an_order_of_99_lines_from_rows_leaves_no_room_for_the_release():
    """The depot is then released by a separate write."""
    rows = {product_id: product(product_id, 9) for product_id in MANY[:99]}
    empty = [Page(PageKey(DEPOT, number), 3, "epoch") for number in range(PAGES)]
    supply = LaneSupply(Allocation(rows, empty), release=RELEASE)
    (transaction,) = transactions_of(plan([Order("o", "u", dict.fromkeys(rows, 1))], supply))
    assert (actions_of(transaction), transaction.release) == (100, None)


@pytest.mark.parametrize(("alone", "transactions"), [(True, 1), (False, 2)])
def test_a_lone_visitor_of_the_depot_writes_all_orders_with_the_release(alone, transactions):
    """If other workers wait, orders for the worker's own lane are sold after the release."""
    stock = Stock({"p": ("depot", 9, False), "q": ("lane", 9, False)})
    orders = [Order("a", "u", {"q": 1}), Order("b", "u", {"p": 1})]
    planned = plan(orders, stock.supply(release=RELEASE, is_awaited=not alone))
    sold = [[d.change.order_id for d in t.decisions] for t in transactions_of(planned)]
    assert sold == ([["a", "b"]] if alone else [["b"], ["a"]])
    assert [t.release is not None for t in transactions_of(planned)] == [True, False][:transactions]


def test_a_transaction_tells_what_it_lends_from_what_it_sells():
    rows = {product_id: product(product_id, 90) for product_id in ("lent", "sold", "returned")}
    pages = [
        Page(PageKey(lane, number), 3, "e") for lane in (DEPOT, OWN) for number in range(PAGES)
    ]
    allocation = Allocation(rows, pages)
    allocation.lend("returned", 5, reach=DEPOT)
    allocation.drain()
    allocation.reclaim("returned")
    allocation.lend("lent", 40, reach=OWN)
    allocation.fill(OWN, "lent", 30)
    orders = [Order(f"o{n}", "u", {"lent": 2, "sold": 3, "returned": 1}) for n in range(4)]
    (transaction,) = transactions_of(
        plan(orders, Supply(allocation, {"lent": PageKey.of(OWN, "lent")}))
    )
    assert len(transaction.decisions) == 4
    assert transaction.lent == {"lent": 40}
