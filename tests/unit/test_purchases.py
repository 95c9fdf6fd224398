"""Purchase limits in the engine: what is read and written, rivals, offers, and refunds."""

from dataclasses import replace

import pytest

from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.planner import Limits
from inventory_orders.domain.purchases import MAX_GROUPS, BuyerKey, Purchases
from inventory_orders.domain.record import OrderAction
from inventory_orders.domain.rejection import RejectionReason
from inventory_orders.errors import Outcome
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from testing.aws import answered_directly_by
from testing.schedules.in_turn.bench import Bench, product, statuses
from testing.schedules.in_turn.shop import Fault
from testing.world.clock import virtual_time
from testing.world.faults import THROTTLED, cancelled

APPLIED, REJECTED, RETURNED = Outcome.APPLIED, Outcome.REJECTED, Outcome.RETURNED


def limited(product_id, stock=100, limit=2, **more):
    return product(product_id, stock, purchase_limit=limit, **more)


def order(number=1, user="u", quantity=1, product_id="p", **more):
    return Order(f"o{number}", user, {product_id: quantity}, **more)


def command(action, number=1, ended_by="", **part):
    return OrderCommand(f"o{number}", OrderAction(action), ended_by, **part)


class Counted(Bench):
    """A bench whose buyers have rows."""

    def bought(self, buyer="u"):
        """What a buyer has bought, by group."""
        row = self.row_of(buyer)
        return {} if row is None else row["units"]

    def row_of(self, buyer):
        item = self.item(Table.PURCHASES, buyer)
        return None if item is None else decode(item)

    def change(self, **changes):
        """Change product `p`, as another process does."""
        row = self.product()
        self.put(replace(row, version=row.version + 1, **changes))

    def by(self, worker, *changes):
        """Let another worker apply changes."""
        with virtual_time(self.clock), answered_directly_by(self.answer):
            return self.commit(worker, *changes)

    def has_bought(self, buyer, version=1, **units):
        """Write what a buyer has bought, as another worker does."""
        row = {"buyer": buyer, "units": units, "_version": version, "epoch": "e"}
        self.write(Table.PURCHASES, row)


def tables_of(request):
    """Return the table and operation of each action of a transaction, without those of orders."""
    actions = [next(iter(action.items())) for action in request["TransactItems"]]
    return [(name, what["TableName"]) for name, what in actions if what["TableName"] != "Orders"]


def test_a_batch_writes_the_row_of_each_buyer_once():
    bench = Counted(limited("p"))
    report = bench.apply(*(order(n, f"u{n % 3}") for n in range(6)))
    assert statuses(report) == [APPLIED] * 6
    assert [bench.bought(f"u{n}") for n in range(3)] == [{"p": 2}] * 3
    assert (len(bench.reads), len(bench.writes)) == (2, 1)
    assert tables_of(bench.writes[0]) == [("Update", "Products")] + [("Update", "Purchases")] * 3
    assert bench.order_row("o1")["items"][0]["limitGroup"] == "p"
    assert "buyers" not in bench.order_row("o1")


def test_a_product_without_a_limit_costs_neither_a_read_nor_a_write_more():
    bench = Counted(product("p", 100), limited("q"))
    assert statuses(bench.apply(order(1), order(2))) == [APPLIED] * 2
    assert (len(bench.reads), len(bench.writes)) == (1, 1)
    assert {*bench.reads[0]["RequestItems"]} == {"Products", "Orders"}
    assert tables_of(bench.writes[0]) == [("Update", "Products")]
    assert "limitGroup" not in bench.order_row("o1")["items"][0]


def test_the_transaction_of_the_first_order_rejects_the_second():
    bench = Counted(limited("p"))
    report = bench.apply(order(1, quantity=2), order(2), order(3, "v"))
    assert statuses(report) == [APPLIED, REJECTED, APPLIED]
    (limit,) = report.outcomes[1].rejection.limits
    assert (limit.group, limit.limit, limit.bought, limit.wanted) == ("p", 2, 2, 1)
    row = bench.order_row("o2")
    assert (row["status"], row["reason"]) == ("REJECTED", "PURCHASE_LIMIT")
    assert row["limits"] == [{"group": "p", "limit": 2, "bought": 2, "wanted": 1}]
    assert (len(bench.writes), bench.bought(), bench.stock()) == (1, {"p": 2}, 97)
    assert statuses(bench.apply(order(2))) == [Outcome.REPLAYED]


def test_a_rejection_for_the_limit_is_proven_if_the_batch_takes_no_stock():
    bench = Counted(limited("p"))
    bench.has_bought("u", p=2)
    assert statuses(bench.apply(order(1))) == [REJECTED]
    assert "TransactGetItems" in bench.calls
    assert tables_of(bench.writes[0]) == []
    busy = cancelled("TransactionConflict", "None")
    bench.planned["TransactGetItems"].extend([Fault(error=busy)] * 3)
    assert statuses(bench.apply(order(2))) == [REJECTED]
    assert tables_of(bench.writes[1]) == [
        ("ConditionCheck", "Products"),
        ("ConditionCheck", "Purchases"),
    ]


def test_a_limit_that_was_raised_meanwhile_rejects_nothing():
    bench = Counted(limited("p"))
    assert statuses(bench.apply(order(1, "v"))) == [APPLIED]
    bench.change(purchase_limit=3)
    bench.has_bought("u", p=2)
    assert statuses(bench.apply(order(2))) == [APPLIED], "the cached row had the old limit"
    assert bench.bought() == {"p": 3}


def test_after_a_lost_race_the_counter_that_came_back_decides():
    bench = Counted(limited("p"))
    bench.faults.append(Fault(rival=lambda bench: bench.has_bought("u", p=2)))
    assert statuses(bench.apply(order(1), order(2, "v"))) == [REJECTED, APPLIED]
    assert (bench.bought(), bench.bought("v"), bench.stock()) == ({"p": 2}, {"p": 1}, 99)


def test_a_buyer_who_met_a_rival_gets_transactions_of_its_own():
    bench = Counted(limited("p", limit=9))
    bench.has_bought("u", p=1)
    bench.faults.append(Fault(rival=lambda bench: bench.has_bought("u", 2, p=2)))
    assert statuses(bench.apply(order(1), order(2, "v"), order(3, "w"), order(4))) == [APPLIED] * 4
    sizes = [len(request["TransactItems"]) for request in bench.writes]
    assert sizes == [8, 5, 4], "one lost, then the neighbours, then both orders of the buyer"
    assert bench.bought() == {"p": 4}
    bench.clock.advance(11)
    assert statuses(bench.apply(order(5), order(6, "v"))) == [APPLIED] * 2
    assert len(bench.writes[-1]["TransactItems"]) == 5, "ten seconds later they share one again"


def test_a_conflict_on_a_counter_leads_to_a_new_plan():
    bench = Counted(limited("p", limit=9))
    bench.faults.append(
        Fault(error=cancelled("None", "TransactionConflict", "None", "None", "None"))
    )
    assert statuses(bench.apply(order(1), order(2, "v"))) == [APPLIED] * 2
    assert [len(request["TransactItems"]) for request in bench.writes] == [5, 3, 3]


def test_a_group_keeps_its_sequence_behind_a_contested_buyer():
    bench = Counted(limited("p", 2, limit=9))
    bench.faults.append(Fault(rival=lambda bench: bench.has_bought("u", p=1)))
    report = bench.apply(order(1, group="g"), order(2, "v", group="g"), order(3, "w", 2))
    assert statuses(report) == [REJECTED, REJECTED, APPLIED]
    rejected = {outcome.rejection.reason.value for outcome in report.outcomes[:2]}
    assert rejected == {"INSUFFICIENT_STOCK"}, "they came after the order of another buyer"


def test_a_follower_is_not_rejected_for_units_that_a_contested_buyer_did_not_get():
    bench = Counted(limited("p", 1, limit=99), attempts=3)

    def outrun(request):
        if {"buyer": {"S": "u"}} in [
            action.get("Key") for each in request["TransactItems"] for action in each.values()
        ]:
            bench.has_bought("u", version=len(bench.writes), p=1)

    bench.on("TransactWriteItems", outrun)
    report = bench.apply(order(1, group="g"), order(2, "v", group="g"))
    assert statuses(report) == [RETURNED] * 2
    assert (bench.stock(), bench.items(Table.ORDERS)) == (1, {})


def test_products_share_a_group_and_the_lowest_limit_of_an_order_counts():
    bench = Counted(
        limited("p", limit=3, limit_group="shoes"),
        limited("q", limit=2, limit_group="shoes"),
        limited("r", limit=1),
    )
    assert statuses(bench.apply(order(1, quantity=2))) == [APPLIED]
    assert statuses(bench.apply(order(2, product_id="q"))) == [REJECTED]
    assert statuses(bench.apply(order(3), order(4, product_id="r"))) == [APPLIED] * 2
    assert bench.bought() == {"shoes": 3, "r": 1}
    both = Order("o5", "v", {"p": 1, "q": 2})
    assert statuses(bench.apply(both)) == [REJECTED]
    (limit,) = bench.record(both.record_key).limits
    assert (limit.limit, limit.wanted) == (2, 3)


def test_each_key_of_the_buyer_counts_and_perhaps_not_the_user():
    bench = Counted(limited("p"))
    assert statuses(bench.apply(order(1, "a", 2, named_buyers=("a", "card")))) == [APPLIED]
    report = bench.apply(order(2, "b", named_buyers=("b", "card")))
    assert statuses(report) == [REJECTED]
    assert report.outcomes[0].rejection.limits[0].bought == 2
    assert (bench.bought("a"), bench.bought("b"), bench.bought("card")) == ({"p": 2}, {}, {"p": 2})
    assert statuses(bench.apply(order(3, "till", 9, counts_users=False))) == [APPLIED]
    assert "limitGroup" not in bench.order_row("o3")["items"][0]
    assert bench.bought("till") == {}


def test_the_limit_is_checked_before_the_stock_and_after_the_rest():
    bench = Counted(limited("p", 1), limited("gone", 5, status="DISCONTINUED"))
    report = bench.apply(
        order(1, quantity=3),
        Order("o2", "u", {"p": 3, "x": 1}),
        Order("o3", "u", {"gone": 3, "p": 3}),
    )
    reasons = [outcome.rejection.reason.value for outcome in report.outcomes]
    assert reasons == ["PURCHASE_LIMIT", "UNKNOWN_PRODUCT", "DISCONTINUED_PRODUCT"]


def at(location, **more):
    return limited(f"p#{location}" if location else "p", **more)


def test_the_limit_rejects_only_if_all_offers_are_impossible():
    bench = Counted(limited("p", 9), product("p#a", 2))
    places = {"locations": ("", "a")}
    bench.has_bought("u", p=2)
    assert statuses(bench.apply(order(1, quantity=2, **places))) == [APPLIED]
    assert bench.order_row("o1")["items"][0]["locationId"] == "a"
    assert bench.bought() == {"p": 2}
    report = bench.apply(order(2, quantity=2, **places))
    assert report.outcomes[0].rejection.reason is RejectionReason.PURCHASE_LIMIT
    assert report.outcomes[0].rejection.asked == ("", "a")
    assert bench.order_row("o2")["limits"] == [{"group": "p", "limit": 2, "bought": 2, "wanted": 2}]


def test_an_order_with_too_many_rows_for_one_proof_is_rejected_too():
    names = [f"p{n}" for n in range(60)]
    places = [
        limited(f"{name}{place}", limit=50, limit_group="g")
        for name in names
        for place in ("", "#a")
    ]
    bench = Counted(*places)
    report = bench.apply(Order("o1", "u", dict.fromkeys(names, 1), locations=("", "a")))
    assert report.outcomes[0].rejection.reason is RejectionReason.PURCHASE_LIMIT
    assert [len(request["TransactItems"]) for request in bench.writes] == [100]


def test_cancellation_and_expiry_give_units_back_without_a_read():
    bench = Counted(limited("p", limit=9))
    bench.apply(order(1, quantity=4), order(2, quantity=2, hold_seconds=60), order(3, quantity=3))
    assert bench.bought() == {"p": 9}
    version = bench.row_of("u")["_version"]
    reads = len(bench.reads)
    bench.apply(command("cancel", step_id="s", quantities={"p": 1}))
    assert bench.bought() == {"p": 8}
    bench.apply(command("cancel", step_id="lost", quantities={"p": 2}, restock=False))
    assert bench.bought() == {"p": 6}
    bench.apply(command("cancel"), command("expire", 2, "2027"))
    assert bench.bought() == {"p": 3}
    assert bench.row_of("u")["_version"] == version + 3
    bench.apply(command("confirm", 3), command("fulfil", 3))
    bench.apply(command("return", 3, step_id="r", quantities={"p": 3}, restock=True))
    assert bench.bought() == {"p": 3}
    asked = {key for read in bench.reads[reads:] for key in read["RequestItems"]}
    assert "Purchases" not in asked
    bench.apply(command("cancel", 1))
    assert bench.bought() == {"p": 3}, "a repeated cancellation gives nothing back"


def test_a_command_goes_on_without_a_counter_that_has_too_few_units():
    bench = Counted(limited("p", limit=9), limited("q", limit=9))
    bench.apply(Order("o1", "u", {"p": 2, "q": 2}), order(2, "v"))
    bench.has_bought("u", p=1, q=5)
    assert statuses(bench.apply(command("cancel"), command("cancel", 2))) == [APPLIED] * 2
    assert (bench.bought(), bench.bought("v")) == ({"p": 1, "q": 3}, {"p": 0})
    assert bench.order_row("o1")["status"] == "CANCELLED"
    del bench.items(Table.PURCHASES)["u",]
    bench.apply(order(3), order(4, "w"))
    del bench.items(Table.PURCHASES)["u",]
    assert statuses(bench.apply(command("cancel", 3), command("cancel", 4))) == [APPLIED] * 2
    assert (bench.row_of("u"), bench.bought("w")) == (None, {"p": 0})


def test_an_order_planned_before_a_cancellation_does_not_undo_it():
    bench = Counted(limited("p", limit=9))
    bench.apply(order(1, quantity=5))
    other = bench.worker()
    bench.faults.append(Fault(rival=lambda bench: bench.by(other, command("cancel"))))
    bench.apply(order(2, quantity=4))
    assert bench.bought() == {"p": 4}


def test_lines_say_what_is_given_back_whatever_the_product_says_now():
    bench = Counted(limited("p", limit_group="old"))
    bench.apply(order(1, quantity=2))
    bench.change(limit_group="new")
    bench.apply(order(2))
    bench.change(purchase_limit=0)
    bench.apply(command("cancel"))
    assert bench.bought() == {"old": 0, "new": 1}
    bench.change(purchase_limit=9)
    bench.apply(order(3))
    assert bench.bought() == {"new": 2}, "entries of 0 are removed by the next order"


def test_a_full_row_rejects_an_order_of_a_new_group():
    bench = Counted(limited("p"), limited("g7"))
    bench.has_bought("u", **{f"g{n}": 1 for n in range(MAX_GROUPS)})
    report = bench.apply(order(1), order(2, product_id="g7"))
    assert statuses(report) == [REJECTED, APPLIED]
    assert report.outcomes[0].rejection.reason is RejectionReason.TOO_MANY_GROUPS


def test_an_order_that_does_not_fit_with_its_buyers_is_rejected():
    names = [f"p{n}" for n in range(98)]
    bench = Counted(*(limited(name) for name in names))
    most = Order("o1", "u", dict.fromkeys(names, 1))
    report = bench.apply(most, Order("o2", "v", dict.fromkeys(names, 1), named_buyers=("v", "w")))
    assert statuses(report) == [APPLIED, REJECTED]
    assert report.outcomes[1].rejection.reason is RejectionReason.TOO_MANY_PRODUCTS


def test_rows_orders_and_buyers_fill_at_most_the_transaction():
    bench = Counted(limited("p", 1000))
    three = [order(n, f"u{n}", named_buyers=(f"u{n}", f"c{n}", f"a{n}")) for n in range(60)]
    assert statuses(bench.apply(*three)) == [APPLIED] * 60
    assert [len(request["TransactItems"]) for request in bench.writes] == [97, 97, 49]


@pytest.mark.parametrize("units", [{"S": "x"}, {"M": {"p": {"S": "x"}}}])
def test_an_unreadable_row_returns_the_orders_of_its_buyer_only(units):
    bench = Counted(limited("p"), product("q", 9))
    bench.has_bought("Ann", p=1)
    bench.edit(Table.PURCHASES, "Ann", units=units)
    report = bench.apply(order(1, "Ann"), order(2, "v"), order(3, "w", product_id="q"))
    assert "Ann" not in report.outcomes[0].detail, "logs name no user"
    assert statuses(report) == [RETURNED, APPLIED, APPLIED]
    assert report.outcomes[0].cause == "CORRUPT_PURCHASES"


def test_a_row_that_dynamodb_refuses_returns_the_orders_of_its_buyer_only():
    bench = Counted(limited("p"))
    refused = cancelled("None", "ValidationError", "None", "None", "None")
    bench.faults.append(Fault(error=refused))
    report = bench.apply(order(1), order(2, "v"))
    assert statuses(report) == [RETURNED, APPLIED]
    assert report.outcomes[0].cause == "CORRUPT_PURCHASES"


@pytest.mark.parametrize("broken", [{"_version": {"S": "x"}}, {"units": {"M": {"p": {"S": "5"}}}}])
def test_a_corrupt_row_does_not_keep_its_buyer_or_others_from_cancelling(broken):
    bench = Counted(limited("p", limit=9))
    bench.apply(order(1, quantity=2), order(2, "v"))
    bench.edit(Table.PURCHASES, "u", **broken)
    report = bench.apply(command("cancel"), command("cancel", 2), seconds=2.0)
    assert statuses(report) == [APPLIED] * 2
    assert (bench.stock(), bench.bought("v")) == (100, {"p": 0})


def test_a_throttled_read_of_purchases_returns_the_orders_of_these_buyers_only():
    bench = Counted(limited("p"), product("q", 9))

    def throttle(request):
        raise THROTTLED

    bench.on("BatchGetItem", throttle, lambda request: "Purchases" in request["RequestItems"])
    assert statuses(bench.apply(order(1), order(2, "v", product_id="q"))) == [RETURNED, APPLIED]


def throttle_purchases(bench, *buyers):
    """Throttle transactions that write the rows of some buyers."""

    def throttle(request):
        keys = [a.get("Key", {}) for each in request["TransactItems"] for a in each.values()]
        is_theirs = [key.get("buyer", {}).get("S") in buyers for key in keys]
        if any(is_theirs):
            raise cancelled(*("ThrottlingError" if each else "None" for each in is_theirs))

    bench.on("TransactWriteItems", throttle)


@pytest.mark.parametrize("product_id", ["p", "q"])
def test_a_throttled_write_of_purchases_returns_the_orders_of_these_buyers_only(product_id):
    bench = Counted(limited("p"), limited("q"))
    throttle_purchases(bench, "u", "x")
    orders = [
        *(order(1), order(2, "v", product_id=product_id), order(3, "x")),
        *(order(4, "w", product_id=product_id), order(5)),
    ]
    report = bench.apply(*orders)
    assert statuses(report) == [RETURNED, APPLIED, RETURNED, APPLIED, RETURNED]
    assert len(bench.writes) <= 6
    bench.on("TransactWriteItems", lambda request: None)
    assert statuses(bench.apply(order(1), order(3, "x"), order(5))) == [APPLIED] * 3


def test_a_throttled_refund_does_not_keep_others_from_cancelling():
    bench = Counted(limited("p"))
    bench.apply(order(1), order(2, "v"))
    throttle_purchases(bench, "u")
    report = bench.apply(command("cancel"), command("cancel", 2), seconds=1.0)
    assert statuses(report) == [RETURNED, APPLIED]
    assert (bench.stock(), bench.bought(), bench.bought("v")) == (99, {"p": 1}, {"p": 0})


def test_a_caller_who_does_not_wait_gets_an_answer_too():
    bench = Counted(limited("p"), patient=False)
    assert statuses(bench.apply(order(1, quantity=2))) == [APPLIED]
    assert statuses(bench.apply(order(2))) == [REJECTED]
    assert bench.bought() == {"p": 2}


def test_a_loan_of_a_product_that_was_limited_meanwhile_is_lost():
    bench = Counted(product("p", 1000), product("q", 1000))
    worker = bench.worker(lanes=2)
    orders = [Order(f"o{n}", f"u{n}", {"p": 1, "q": 1}) for n in range(3)]
    bench.faults.append(Fault(rival=lambda bench: (bench.sell("p", 1), bench.sell("q", 1))))
    bench.faults.append(Fault(rival=lambda bench: bench.change(purchase_limit=1)))
    assert statuses(bench.by(worker, *orders)) == [APPLIED] * 3
    assert not bench.product().lent_to
    assert bench.product("q").lent_to
    assert [bench.bought(f"u{n}") for n in range(3)] == [{"p": 1}] * 3


def test_a_batch_is_packed_within_small_limits():
    bench = Counted(limited("p", 1000, limit=99), limits=Limits(actions=6))
    assert statuses(bench.apply(*(order(n, f"u{n % 4}") for n in range(12)))) == [APPLIED] * 12
    assert max(len(request["TransactItems"]) for request in bench.writes) <= 6
    assert [bench.bought(f"u{n}") for n in range(4)] == [{"p": 3}] * 4


def test_purchases_add_up_and_leave_out_what_is_empty():
    rows = Purchases(BuyerKey("u"), 4, "e", {"a": 1, "b": 0})
    assert rows.plus({"a": 2}).units == {"a": 3}
    assert rows.plus({}).version == 5
    assert rows.returnable({"a": 1, "b": 1, "c": 1}) == {"a": 1}
