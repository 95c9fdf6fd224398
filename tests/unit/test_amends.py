"""Amends, hand-overs that are taken back, and payments of one version: what they do, and how they are answered."""

import json

import pytest

from inventory_orders.clock import Deadline
from inventory_orders.domain.allotments import PageKey
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import DEFAULT_TERMS, Terms
from inventory_orders.domain.record import MAX_NAMED_STEPS, MAX_REJECTED_AMENDS, OrderKey
from inventory_orders.errors import InvalidMessageError, Outcome
from inventory_orders.messages.commands import order_command, parse_order_or_amend
from inventory_orders.products.fold import Fold
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from testing.aws import answered_directly_by
from testing.schedules.in_turn.bench import Bench, product
from testing.schedules.in_turn.lanes import LaneShop
from testing.schedules.in_turn.shop import Fault
from testing.world.clock import virtual_time
from testing.world.events import order_body
from testing.world.faults import cancelled
from tests.support.http import JSON, TEA, WAIT, Api

QUEUED = Terms(keeps_rejections=True)


class Desk(Bench):
    """A shop with five units of `p`, `q` and `r`, and one order, `o`, for two units of `p`."""

    def __init__(self, *products, units=2, **order):
        super().__init__(*(products or (product(name, 5) for name in "pqr")))
        (placed,) = self.apply(Order("o", "u", {"p": units}, **order)).outcomes
        assert placed.kind is Outcome.APPLIED

    def do(self, action, step_id=None, terms=DEFAULT_TERMS, **fields):
        """Carry out a command on the order, and return its outcome."""
        named = {} if step_id is None else {"stepId": step_id}
        command = order_command({"action": action, "orderId": "o", **named, **fields}, terms)
        return self.apply(command).outcomes[0]

    def amend(self, step_id="a", terms=DEFAULT_TERMS, more=(), **units):
        items = [{"productId": name, "quantity": count} for name, count in units.items()]
        fields = {"items": items} if items else {}
        return self.do("amend", step_id, terms, **fields, **dict(more))

    @property
    def order(self):
        return self.record(OrderKey("o"))

    @property
    def pending(self):
        return {name: line.open for name, line in self.order.units().items()}

    def left(self):
        return {name: self.stock(name) for (name,) in self.items(Table.PRODUCTS)}

    def on_hand(self, name="p"):
        row = decode(self.items(Table.PRODUCTS)[name,])
        return row["onHand"], sum(
            page.units.get((name, row["createdAt"]), 0) for page in self.pages().outbound.values()
        )


@pytest.fixture
def desk():
    return Desk()


def kinds(*outcomes):
    return [outcome.kind.name for outcome in outcomes]


# ---------------------------------------------------------------- what an amend does


def test_an_amend_says_how_many_units_shall_be_open(desk):
    assert desk.amend(p=4, q=1).kind is Outcome.APPLIED
    assert (desk.pending, desk.left()) == ({"p": 4, "q": 1}, {"p": 1, "q": 4, "r": 5})
    assert desk.amend("b", p=1).kind is Outcome.APPLIED
    assert (desk.pending, desk.left()) == ({"p": 1, "q": 1}, {"p": 4, "q": 4, "r": 5})
    assert desk.amend("c", q=0, r=2).kind is Outcome.APPLIED
    assert (desk.pending, desk.order.status) == ({"p": 1, "q": 0, "r": 2}, "PENDING")
    assert desk.left() == {"p": 4, "q": 5, "r": 3}


def test_an_amend_takes_effect_once_and_its_id_belongs_to_what_it_asked(desk):
    assert kinds(desk.amend(p=3), desk.amend(p=3)) == ["APPLIED", "REPLAYED"]
    assert desk.amend("b", p=1).kind is Outcome.APPLIED
    # An old duplicate, which must not undo the second amend.
    assert kinds(desk.amend(p=3)) == ["REPLAYED"]
    other = desk.amend(p=2)
    assert (other.kind, other.cause) == (Outcome.INVALID, "STEP_ID_REUSED")
    assert "stored 3, sent 2" in other.detail
    # An amend that changes nothing is noted, too.
    assert kinds(desk.amend("c", p=1), desk.amend("d", p=2), desk.amend("c", p=1)) == [
        *("APPLIED", "APPLIED", "REPLAYED")
    ]
    assert desk.pending == {"p": 2}


def test_the_original_order_sent_again_is_a_replay_and_another_one_is_not(desk):
    attributes = {"gift": True}
    assert desk.amend(p=1, q=2, more={"attributes": attributes}).kind is Outcome.APPLIED
    again = desk.apply(Order("o", "u", {"p": 2})).outcomes[0]
    assert (again.kind, desk.order.attributes) == (Outcome.REPLAYED, attributes)
    as_amended = desk.apply(Order("o", "u", {"p": 1, "q": 2})).outcomes[0]
    assert as_amended.cause == "ORDER_ID_REUSED"
    assert desk.left() == {"p": 4, "q": 3, "r": 5}


def test_attributes_are_replaced_without_any_units(desk):
    assert desk.amend(more={"attributes": {"note": "door"}}).kind is Outcome.APPLIED
    assert (desk.order.attributes, desk.pending) == ({"note": "door"}, {"p": 2})
    with pytest.raises(InvalidMessageError, match="an amend needs items or attributes"):
        desk.amend("b")


def test_an_order_amended_to_nothing_is_cancelled(desk):
    assert desk.amend(p=0).kind is Outcome.APPLIED
    assert (desk.order.status, desk.left()["p"]) == ("CANCELLED", 5)
    assert desk.amend("b", p=1).cause == "ORDER_CANCELLED"


def test_the_hold_stays():
    desk = Desk(hold_seconds=900)
    end = desk.order.expires_at
    assert desk.amend(p=1).kind is Outcome.APPLIED
    assert desk.order.expires_at == end is not None


def test_a_paid_order_is_amended_only_if_the_stage_allows_it(desk):
    desk.do("confirm")
    assert desk.amend(p=3).cause == "ALREADY_PAID"
    allowed = Terms(amends_paid=True)
    assert desk.amend("b", allowed, p=3).kind is Outcome.APPLIED
    desk.do("fulfil", "s", items=[{"productId": "p", "quantity": 1}])
    assert desk.amend("c", allowed, p=0).kind is Outcome.APPLIED
    assert (desk.order.status, desk.left()["p"]) == ("FULFILLED", 4)
    assert desk.amend("d", allowed, p=1).cause == "ORDER_FULFILLED"


# ---------------------------------------------------------------- rejections


@pytest.mark.parametrize(
    ("units", "more", "cause"),
    [
        ({"p": 9}, {}, "INSUFFICIENT_STOCK"),
        ({"p": 1, "q": 9}, {}, "INSUFFICIENT_STOCK"),
        ({"p": 1, "gone": 1}, {}, "UNKNOWN_PRODUCT"),
        ({"p": 1}, {"ifVersion": 7}, "VERSION_CHANGED"),
    ],
)
def test_a_rejected_amend_leaves_the_order_as_it_was(desk, units, more, cause):
    before, left = desk.order, desk.left()
    said = desk.amend(more=more, **units)
    assert (said.kind, said.cause) == (Outcome.REJECTED, cause)
    after = desk.order
    assert (after.lines, after.steps, desk.left()) == (before.lines, (), left)
    assert after.changed_version is None
    assert desk.amend("b", p=1).kind is Outcome.APPLIED


@pytest.mark.parametrize("terms", [DEFAULT_TERMS, QUEUED])
def test_an_amend_that_was_rejected_for_lack_of_stock_stays_rejected(desk, terms):
    said = desk.amend("a", terms, p=9)
    assert (said.cause, said.rejection.shortages[0].wanted) == ("INSUFFICIENT_STOCK", 7)
    desk.put(product("p", 50, version=7))
    assert desk.amend("a", QUEUED, p=9).cause == "INSUFFICIENT_STOCK"
    assert desk.amend("a", p=9).cause == "INSUFFICIENT_STOCK"
    assert (desk.pending, len(desk.order.rejected_amends)) == ({"p": 2}, 1)


def test_an_amend_that_does_not_suit_its_order_is_rejected_for_good_in_a_queue_alone(desk):
    old = {"ifVersion": 9}
    assert desk.amend("a", p=1, more=old).cause == "VERSION_CHANGED"
    assert desk.amend("a", p=1).kind is Outcome.APPLIED
    assert desk.amend("b", QUEUED, p=2, more=old).cause == "VERSION_CHANGED"
    assert desk.amend("b", p=2).cause == "VERSION_CHANGED"


def test_a_row_keeps_the_last_amends_that_were_rejected(desk):
    for number in range(MAX_REJECTED_AMENDS):
        assert desk.amend(f"n{number}", QUEUED, p=99).cause == "INSUFFICIENT_STOCK"
    assert [each.step_id for each in desk.order.rejected_amends] == [
        f"n{number}" for number in range(MAX_REJECTED_AMENDS)
    ]
    desk.do("cancel")
    assert desk.amend("z", QUEUED, p=1).cause == "ORDER_CANCELLED"
    assert desk.order.rejected_amends[-1].step_id == "z"


def test_more_units_come_only_from_the_generation_of_the_line(desk):
    desk.remove("p")
    desk.put(product("p", 5, created_at="2026-01-02T00:00:00.000000+00:00"))
    assert desk.amend(p=3).cause == "UNKNOWN_PRODUCT"
    assert desk.amend("b", p=1).kind is Outcome.APPLIED
    assert (desk.pending, desk.left()["p"]) == ({"p": 1}, 5)
    desk.put(product("q", 5, status="DISCONTINUED"))
    assert desk.amend("c", q=1).cause == "DISCONTINUED_PRODUCT"


def test_an_amend_of_an_unknown_order_is_rejected_or_waits(desk):
    command = {"action": "amend", "orderId": "x", "stepId": "a", "items": []}
    command["items"] = [{"productId": "p", "quantity": 1}]
    assert desk.apply(order_command(command)).outcomes[0].cause == "UNKNOWN_ORDER"


# ---------------------------------------------------------------- locations


def at(location, units):
    return {"items": [{"productId": "p", "quantity": units, "locationId": location}]}


def test_units_move_to_another_location():
    desk = Desk(product("p", 5, places=frozenset({"berlin"})), product("p#berlin", 3))
    assert desk.amend(more=at("berlin", 3)).kind is Outcome.APPLIED
    assert desk.left() == {"p": 5, "p#berlin": 0}
    (line,) = desk.order.lines
    assert (line.location_id, desk.pending) == ("berlin", {"p": 3})
    assert desk.amend("b", p=4).cause == "INSUFFICIENT_STOCK"
    desk.do("cancel")
    assert desk.left() == {"p": 5, "p#berlin": 3}


def test_units_do_not_move_once_some_were_handed_over():
    desk = Desk(product("p", 5, places=frozenset({"berlin"})), product("p#berlin", 3))
    desk.do("confirm")
    desk.do("fulfil", "s", items=[{"productId": "p", "quantity": 1}])
    said = desk.amend("a", Terms(amends_paid=True), more=at("berlin", 1))
    assert said.cause == "PARTLY_FULFILLED"


def test_an_amend_may_choose_from_as_many_rows_as_one_read_shows():
    names = [f"n{number}" for number in range(50)]
    places = {"places": frozenset({"berlin"})}
    desk = Desk(product("p", 5), *(product(name, 1, **places) for name in names))
    terms = Terms(locations=("", "berlin"))
    assert desk.amend("a", terms, **dict.fromkeys(names, 2)).cause == "TOO_MANY_PRODUCTS"
    assert desk.amend("b", terms, **dict.fromkeys(names[1:], 2)).cause == "INSUFFICIENT_STOCK"


# ---------------------------------------------------------------- purchase limits


def bought(desk):
    return {key: decode(row)["units"] for (key,), row in desk.items(Table.PURCHASES).items()}


def test_purchases_follow_amends_and_exchanges_within_a_group():
    limited = {"purchase_limit": 3, "limit_group": "drop"}
    desk = Desk(product("p", 9, **limited), product("q", 9, **limited))
    assert desk.amend(p=4).cause == "PURCHASE_LIMIT"
    assert desk.amend("b", p=3).kind is Outcome.APPLIED
    assert desk.amend("c", p=1, q=2).kind is Outcome.APPLIED
    assert bought(desk) == {"u": {"drop": 3}}
    assert desk.amend("d", q=1).kind is Outcome.APPLIED
    assert bought(desk) == {"u": {"drop": 2}}
    desk.do("cancel")
    assert not any(bought(desk)["u"].values())


def test_a_line_is_charged_as_a_whole_if_a_limit_was_set_later():
    desk = Desk()
    desk.put(product("p", 3, version=5, purchase_limit=2))
    assert desk.amend(p=3).cause == "PURCHASE_LIMIT"
    desk.put(product("p", 3, version=6, purchase_limit=3))
    assert desk.amend("b", p=3).kind is Outcome.APPLIED
    assert (bought(desk), desk.order.lines[0].limit_group) == ({"u": {"p": 3}}, "p")


def test_an_order_that_a_later_amend_of_the_batch_makes_possible_takes_its_units():
    desk = Desk(product("p", 9, purchase_limit=2))
    less = {"action": "amend", "orderId": "o", "stepId": "a", "items": [{"productId": "p", "quantity": 1}]}  # fmt: skip
    report = desk.apply(Order("o2", "u", {"p": 1}), order_command(less))
    assert kinds(*report.outcomes) == ["APPLIED", "APPLIED"]
    assert (desk.left(), bought(desk)) == ({"p": 7}, {"u": {"p": 2}})


def test_a_user_stays_charged_when_orders_without_buyers_no_longer_count():
    desk = Desk(product("p", 9, purchase_limit=5))
    assert desk.amend("a", Terms(counts_users=False), p=3).kind is Outcome.APPLIED
    assert bought(desk) == {"u": {"p": 3}}
    desk.do("cancel")
    assert not any(bought(desk)["u"].values())


def test_an_order_may_buy_what_an_amend_of_the_same_batch_gave_back():
    desk = Desk(product("p", 9, purchase_limit=2))
    less = {"action": "amend", "orderId": "o", "stepId": "a", "items": [{"productId": "p", "quantity": 1}]}  # fmt: skip
    report = desk.apply(order_command(less, Terms(), "g"), Order("o2", "u", {"p": 1}, "g"))
    assert kinds(*report.outcomes) == ["APPLIED", "APPLIED"]
    assert bought(desk) == {"u": {"p": 2}}


# ---------------------------------------------------------------- hand-overs


@pytest.fixture
def shipped(desk):
    desk.do("confirm")
    assert desk.do("fulfil").kind is Outcome.APPLIED
    return desk


def fold(desk):
    with virtual_time(desk.clock), answered_directly_by(desk.answer):
        deadline = Deadline.after(10, desk.engine.client.clock)
        return Fold(desk.engine.client, deadline).run().folded


@pytest.mark.parametrize("is_folded", [False, True])
def test_a_hand_over_is_taken_back_from_its_page_or_from_the_row(shipped, is_folded):
    assert not is_folded or fold(shipped) == 1
    version, confirmed_at = shipped.product("p").version, shipped.order.confirmed_at
    assert shipped.on_hand() == ((3, 0) if is_folded else (5, 2))
    assert kinds(shipped.do("unfulfil", "u"), shipped.do("unfulfil", "u")) == [
        "APPLIED",
        "REPLAYED",
    ]
    assert shipped.on_hand() == (5, 0)
    assert (shipped.stock("p"), shipped.product("p").version) == (3, version)
    order = shipped.order
    assert (order.status, order.fulfilled_at) == ("CONFIRMED", None)
    assert (order.confirmed_at, shipped.pending) == (confirmed_at, {"p": 2})


def test_only_units_that_were_handed_over_are_taken_back(shipped):
    one = {"items": [{"productId": "p", "quantity": 1}]}
    assert shipped.do("return", "r", restock=True, **one).kind is Outcome.APPLIED
    two = {"items": [{"productId": "p", "quantity": 2}]}
    assert shipped.do("unfulfil", "u", **two).cause == "NOT_DELIVERED"
    assert shipped.do("unfulfil", "v", **one).kind is Outcome.APPLIED
    assert shipped.do("unfulfil", "w").cause == "NOT_DELIVERED"


def test_a_late_duplicate_of_the_hand_over_is_refused(shipped):
    shipped.do("unfulfil", "u")
    assert shipped.do("fulfil").cause == "STEP_ID_NEEDED"
    assert kinds(shipped.do("fulfil", "s"), shipped.do("fulfil", "s")) == ["APPLIED", "REPLAYED"]
    assert shipped.do("fulfil").kind is Outcome.REPLAYED
    assert shipped.do("fulfil", "t").cause == "ORDER_FULFILLED"


def test_a_hand_over_that_was_taken_back_by_the_last_step_can_be_made(desk):
    for number in range(MAX_NAMED_STEPS - 1):
        desk.amend(f"a{number}", p=1 + number % 2)
    desk.do("confirm")
    desk.do("fulfil")
    assert desk.do("unfulfil", "u").kind is Outcome.APPLIED
    one = {"items": [{"productId": "p", "quantity": 1}]}
    assert desk.do("fulfil", "s", **one).cause == "TOO_MANY_STEPS"
    assert kinds(desk.do("fulfil", "s"), desk.do("fulfil", "s")) == ["APPLIED", "REPLAYED"]
    assert desk.do("unfulfil", "v").cause == "TOO_MANY_STEPS"


def test_a_late_duplicate_of_a_cancellation_is_refused(desk):
    one = {"items": [{"productId": "p", "quantity": 1}]}
    desk.do("confirm")
    desk.do("fulfil", "s", **one)
    assert desk.do("cancel").kind is Outcome.APPLIED
    desk.do("unfulfil", "u")
    assert desk.do("cancel").cause == "STEP_ID_NEEDED"
    assert (desk.order.status, desk.pending) == ("CONFIRMED", {"p": 1})
    assert desk.do("cancel", "c", **one).kind is Outcome.APPLIED


def test_a_hand_over_is_taken_back_within_a_day_or_with_force(shipped):
    late = Terms(since="2027-01-01T00:00:00.000000+00:00")
    assert shipped.do("unfulfil", "u", late).cause == "TOO_LATE"
    assert shipped.do("unfulfil", "u", late, force=True).kind is Outcome.APPLIED


def test_a_folded_hand_over_waits_for_a_count(shipped):
    fold(shipped)
    shipped.lease("p", 60)
    said = shipped.do("unfulfil", "u")
    assert (said.kind, said.cause, round(said.retry_after)) == (Outcome.RETURNED, "LEASED", 60)


def test_an_order_whose_hand_over_was_taken_back_can_be_cancelled(shipped):
    shipped.do("unfulfil", "u")
    assert shipped.do("cancel").kind is Outcome.APPLIED
    assert (shipped.order.status, shipped.stock("p")) == ("CANCELLED", 5)


# ---------------------------------------------------------------- payments of one version


def test_a_payment_of_another_version_is_rejected_and_noted(desk):
    desk.amend(p=3)
    assert desk.do("confirm", ifVersion=1).cause == "VERSION_CHANGED"
    noted = desk.order.confirmation_rejected
    assert (noted.reason, noted.if_version, desk.order.status) == ("VERSION_CHANGED", 1, "PENDING")
    version = desk.order.version
    assert desk.do("confirm", ifVersion=1).cause == "VERSION_CHANGED"
    assert desk.order.version == version, "it is noted once"
    assert kinds(desk.do("confirm", ifVersion=version), desk.do("confirm", ifVersion=version)) == [
        *("APPLIED", "REPLAYED")
    ]
    # It was rejected before, and another payment was confirmed.
    assert desk.do("confirm", ifVersion=1).cause == "VERSION_CHANGED"
    assert desk.do("confirm", ifVersion=2).cause == "VERSION_CHANGED"
    assert desk.do("confirm").kind is Outcome.REPLAYED


def test_a_version_stays_right_until_a_step_changes_the_order():
    desk = Desk(hold_seconds=900)
    assert desk.do("extend", until="2026-01-02T05:00:00.000000+00:00").kind is Outcome.APPLIED
    assert desk.amend("x", QUEUED, p=9).cause == "INSUFFICIENT_STOCK"
    assert (desk.order.version, desk.order.changed_version) == (3, None)
    # Version 1 had the same units, and version 4 does not exist yet.
    assert desk.amend("y", p=3, more={"ifVersion": 4}).cause == "VERSION_CHANGED"
    assert desk.amend("a", p=3, more={"ifVersion": 1}).kind is Outcome.APPLIED
    assert desk.do("extend", until="2026-01-02T06:00:00.000000+00:00").kind is Outcome.APPLIED
    assert desk.order.changed_version == 4
    assert desk.amend("b", p=2, more={"ifVersion": 3}).cause == "VERSION_CHANGED"
    assert desk.do("confirm", ifVersion=4).kind is Outcome.APPLIED
    # A customer's amend of the unpaid order comes too late.
    paid = Terms(amends_paid=True)
    assert desk.amend("c", paid, p=1, more={"ifVersion": 5}).cause == "VERSION_CHANGED"


# ---------------------------------------------------------------- through the functions


@pytest.fixture
def shop():
    with LaneShop().open() as shop:
        shop.list("tea", 10)
        shop.list("pot", 5)
        yield shop


def amend_of(order_id, step_id, quantity, product_id="tea"):
    items = [{"productId": product_id, "quantity": quantity}]
    return {"action": "amend", "orderId": order_id, "stepId": step_id, "items": items}


def test_both_queues_and_both_functions_take_amends(shop):
    shop.send("Order", order_body("o", {"tea": 1}), amend_of("o", "a", 2))
    assert shop.deliver("Order") == 0
    shop.send("OrderCommand", amend_of("o", "b", 3))
    assert shop.deliver("OrderCommand") == 0
    for function, step_id, units in (("place_orders", "c", 4), ("change_orders", "d", 5)):
        answer = shop.invoke(function, amend_of("o", step_id, units))
        assert (answer["result"], answer["status"]) == ("APPLIED", "PENDING")
    assert (shop.stock("tea"), shop.order_row("o")["items"][0]["quantity"]) == (5, 5)
    assert not any(shop.unexplained().values())
    refused = shop.invoke("place_orders", amend_of("o", "e", 50))
    assert (refused["code"], refused["shortages"]) == (
        "INSUFFICIENT_STOCK",
        [{"productId": "tea", "wanted": 45, "available": 5}],
    )


def test_an_amend_before_its_order_waits_or_becomes_a_dead_letter(shop):
    shop.send("Order", amend_of("o", "a", 2))
    assert shop.deliver("Order") == 1
    shop.send("OrderFifo", amend_of("x", "a", 2), MessageGroupId="g")
    assert shop.deliver("OrderFifo") == 0
    (letter,) = shop.dead_letters("OrderFifo")
    assert letter.code == "UNKNOWN_ORDER"


def test_messages_that_are_not_amends_are_parsed_as_orders():
    with pytest.raises(InvalidMessageError, match="userId"):
        parse_order_or_amend('{"orderId": "o"}', None, None, ("", ""), Terms())
    amend = parse_order_or_amend(json.dumps(amend_of("o", "a", 1)), "g", None, ("", ""), QUEUED)
    assert (amend.group, amend.terms) == ("g", QUEUED)


def test_thirty_orders_want_one_more_of_the_last_ten_units(shop):
    names = [f"o-{number}" for number in range(30)]
    shop.list("last", 40)
    assert all(shop.order(name, last=1) is Outcome.APPLIED for name in names)
    for name in names[::2]:
        shop.send("Order", *[amend_of(name, "more", 2, "last")] * 2)
    for name in names[1::2]:
        for function in ("place_orders", "change_orders"):
            shop.invoke(function, amend_of(name, "more", 2, "last"))
        if names.index(name) % 4 == 1:
            shop.deliver("Order")
    while shop.waiting("Order"):
        assert shop.deliver("Order") == 0
    quantities = [shop.order_row(name)["items"][0]["quantity"] for name in names]
    assert (quantities.count(2), quantities.count(1)) == (10, 20)
    assert shop.stock("last") == 0
    assert not any(shop.unexplained().values())


def test_fewer_and_more_units_of_a_product_in_lanes_in_one_batch(shop):
    shop.list_lent("p")
    worker = shop.seller()
    orders = [Order(f"o{n}", "u", {"p": 2}) for n in range(3)]
    assert kinds(*shop.commit(worker, *orders).outcomes) == ["APPLIED"] * 3
    total, version = shop.total("p"), shop.product("p").version
    changes = [
        order_command(amend_of("o0", "a", 1, "p")),
        order_command(amend_of("o1", "a", 5, "p")),
        order_command(amend_of("o2", "a", 1, "p")),
        Order("o3", "u", {"p": 1}),
    ]
    assert kinds(*shop.sell(worker, *changes).outcomes) == ["APPLIED"] * 4
    assert shop.total("p") == total - 3 + 2 - 1
    # The row was not written, and the step names the page.
    assert (shop.product("p").version, shop.calls) == (
        version,
        ["BatchGetItem", "TransactWriteItems"],
    )
    (item,) = shop.order_row("o0")["steps"][0]["items"]
    page = PageKey.of(shop.source("o3"), "p")
    assert item == {
        "productId": "p",
        "quantity": 1,
        "returnedPage": str(page),
        "returnedVersion": shop.pages().by_name[str(page)].version,
    }
    shop.check()


def test_the_units_of_an_amend_alone_go_back_to_a_lane_that_has_some(shop):
    shop.list_lent("p")
    worker = shop.owner()
    lane = worker.source.lane.number
    assert kinds(*shop.commit(worker, Order("o", "u", {"p": 2})).outcomes) == ["APPLIED"]
    held = shop.held()[lane]
    assert kinds(*shop.sell(worker, order_command(amend_of("o", "a", 1, "p"))).outcomes) == [
        "APPLIED"
    ]
    assert (shop.held()[lane], shop.calls) == (held + 1, ["BatchGetItem", "TransactWriteItems"])
    shop.check()


def test_units_do_not_go_back_to_a_lane_that_the_batch_has_emptied(shop):
    """A recall that read the empty page could strand them there."""
    shop.list_lent("p", lanes={1: 3, 2: 3}, depot=1)
    worker = shop.owner()
    lane = worker.source.lane.number
    assert kinds(*shop.commit(worker, Order("o", "u", {"p": 2})).outcomes) == ["APPLIED"]
    total, left = shop.total(), shop.held()[lane]
    shop.quiet.add("p")
    changes = [Order("rest", "u", {"p": left}), order_command(amend_of("o", "a", 1, "p"))]
    assert kinds(*shop.sell(worker, *changes).outcomes) == ["APPLIED"] * 2
    assert (shop.source("rest"), shop.total()) == (lane, total - left + 1)
    (item,) = shop.order_row("o")["steps"][0]["items"]
    assert "returnedPage" not in item
    shop.check()


def test_units_of_an_earlier_generation_do_not_go_back_to_a_lane(shop):
    shop.list("p", 20)
    assert shop.order("o", p=2) is Outcome.APPLIED
    shop.delist("p")
    shop.list_lent("p")
    total, worker = shop.total(), shop.owner()
    assert kinds(*shop.commit(worker, order_command(amend_of("o", "a", 1, "p"))).outcomes) == [
        "APPLIED"
    ]
    assert shop.total() == total
    shop.check()


# ---------------------------------------------------------------- over HTTP


@pytest.fixture
def api(tea_shop):
    api = Api(tea_shop)
    group = {"OPERATORS_CLAIM_NAME": "cognito:groups", "OPERATORS_CLAIM_VALUE": "operators"}
    api.shop.restart(
        USER_ID_CLAIM="sub", CUSTOMERS_MAY_AMEND="true", SHOW_STOCK="availability", **group
    )
    body = order_body("o-1", {TEA: 2}, "u-7")
    assert api("POST", "/orders", body, WAIT).status == 201
    return api


def patch(api, step_id="a", quantity=3, user=None, headers=(), **more):
    body = {"stepId": step_id, "items": [{"productId": TEA, "quantity": quantity}], **more}
    claims = None if user is None else {"sub": user}
    return api("PATCH", "/orders/o-1", body, {**JSON, **dict(headers)}, claims=claims)


def test_an_order_is_amended_over_http_if_it_still_has_the_version(api):
    first = patch(api, headers={"If-Match": '"1"'})
    assert (first.status, first.document["result"], first.document["version"]) == (
        200,
        "APPLIED",
        2,
    )
    again = patch(api, headers={"If-Match": '"1"'})
    assert (again.status, again.document["result"]) == (200, "REPLAYED")
    other = patch(api, "b", 1, headers={"If-Match": 'W/"1-1"'})
    assert other.code == (412, "VERSION_CHANGED")
    assert patch(api, "b", 1, headers={"If-Match": "one"}).code == (400, "SCHEMA_VIOLATION")
    assert patch(api, "b", 1, headers={"If-Match": "*"}).status == 200
    assert patch(api, "c", 900_000).code == (409, "INSUFFICIENT_STOCK")
    assert api("PATCH", "/orders/o-9", {"stepId": "a", "attributes": {}}).code[0] == 404


def test_customers_amend_their_own_orders_until_they_are_paid(api):
    assert patch(api, user="u-7").status == 200
    assert patch(api, "b", user="u-8").code == (404, "UNKNOWN_ORDER")
    assert patch(api, "b", user="u-7", attributes={"a": 1}).code == (403, "OPERATORS_ONLY")
    short = patch(api, "b", 900_000, user="u-7")
    assert short.code == (409, "INSUFFICIENT_STOCK")
    assert "available" not in json.dumps(short.document)
    api.shop.restart(AMEND_PAID="true")
    assert api("POST", "/orders/o-1/confirm").status == 200
    assert patch(api, "c", 1, user="u-7").code == (409, "ALREADY_PAID")
    assert patch(api, "c", 1).status == 200
    del api.shop.variables["CUSTOMERS_MAY_AMEND"]
    api.shop.restart()
    assert patch(api, "d", 2, user="u-7").code == (403, "NOT_PERMITTED")


def test_an_amend_that_competes_goes_to_the_express_queue(api):
    lost = Fault(error=cancelled("TransactionConflict", "None"))
    api.shop.planned["TransactWriteItems"].extend([lost, lost])
    said = patch(api)
    assert (said.status, said.document["status"]) == (202, "ACCEPTED")
    assert api.shop.deliver("OrderExpress") == 0
    assert api.shop.order_row("o-1")["items"][0]["quantity"] == 3
    assert patch(api).document["result"] == "REPLAYED"


def test_an_amend_that_waits_in_the_queue_is_not_made_once_it_was_answered_with_no(api):
    lost = Fault(error=cancelled("TransactionConflict"))
    api.shop.planned["TransactWriteItems"].append(lost)
    assert patch(api, quantity=900_000).status == 202
    assert patch(api, quantity=900_000).code == (409, "INSUFFICIENT_STOCK")
    receipt = {"action": "adjust", "adjustmentId": "r", "delta": 900_000, "reason": "RECEIPT"}
    assert api.shop.invoke("adjust_stock", receipt | {"productId": TEA})["result"] == "APPLIED"
    assert api.shop.deliver("OrderExpress") == 0
    assert api.shop.order_row("o-1")["items"][0]["quantity"] == 2
    assert patch(api, quantity=900_000).code == (409, "INSUFFICIENT_STOCK")
    assert patch(api, "b", quantity=900_000).status == 200
