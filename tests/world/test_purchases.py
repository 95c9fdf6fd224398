"""Random lives of buyers, compared with a model: who may buy what, and what each buyer has bought."""

import random
from collections import Counter
from itertools import count
from unittest.mock import patch

import pytest

from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.record import OrderAction
from inventory_orders.errors import Outcome
from inventory_orders.store.tables import Table
from operations import forget
from operations.audit import read_books
from testing.schedules.in_turn.shop import open_shop

KEY = b"k" * 32
PRODUCTS = ("shoe-41", "shoe-42", "hat", "plain")
USERS = ("ann", "ben", "cat")
CARDS = ("card-1", "card-2")


class Lives:
    """What customers and the shop do, next to the books of a model that knows nothing of transactions.

    The model's orders are lists of lines: the product, its units, and the group to which they were charged.
    """

    def __init__(self, shop, seed):
        self.shop, self.chance = shop, random.Random(seed)
        self.limits, self.groups = dict.fromkeys(PRODUCTS, 0), dict.fromkeys(PRODUCTS)
        self.buyers, self.lines, self.sent, self.users = {}, {}, {}, {}
        self.seen, self.numbers = Counter(), count()
        for product_id in PRODUCTS:
            shop.list(product_id, 100_000)
        for product_id in PRODUCTS[:-1]:
            self.limit(product_id)

    def live(self, turns):
        ends = [self.cancel, self.cancel_one, self.expire, self.hand_over_and_return]
        does = [self.order] * 8 + [self.batch, *ends] * 2 + [self.again, self.limit, self.erase]
        for _ in range(turns):
            self.chance.choice(does)()
            self.compare()

    # ------------------------------------------------------------------ the model

    def bought(self):
        """What each buyer has bought, by group."""
        found = {}
        for order_id, lines in self.lines.items():
            for buyer in self.buyers[order_id]:
                for _, units, group in lines:
                    found.setdefault(buyer, Counter())[group] += units if group else 0
        return {buyer: dict(+units) for buyer, units in found.items() if +units}

    def fits(self, order):
        """Whether no buyer would exceed the limit of any of the products."""
        bought, wanted, lowest = self.bought(), Counter(), {}
        for product_id, units in order.quantities.items():
            if self.limits[product_id]:
                group = self.group_of(product_id)
                wanted[group] += units
                lowest[group] = min(lowest.get(group, 99), self.limits[product_id])
        return all(
            bought.get(buyer, {}).get(group, 0) + wanted[group] <= limit
            for (buyer,) in order.buyers
            for group, limit in lowest.items()
        )

    def group_of(self, product_id):
        return self.groups[product_id] or product_id

    def compare(self):
        rows = self.shop.rows(Table.PURCHASES)
        stored = {row["buyer"]: dict(+Counter(row["units"])) for row in rows}
        assert {buyer: units for buyer, units in stored.items() if units} == self.bought()

    # ------------------------------------------------------------------ what happens

    def limit(self, product_id=None):
        """Set the limit of a product, or its group."""
        product_id = product_id or self.chance.choice(PRODUCTS)
        self.limits[product_id] = limit = self.chance.choice((0, 1, 2, 3, 5))
        group = self.chance.choice((None, "shoes", "drop")) if limit else None
        self.groups[product_id] = group
        changes = {"purchase_limit": limit, "limit_group": group}
        self.shop.products.change(product_id, changes, self.shop.soon())

    def new_order(self):
        """Make an order under the user's key, or under a card too, or for no buyer, as at a till."""
        user = self.chance.choice(USERS)
        named = self.chance.choice((None, None, (user, self.chance.choice(CARDS)), CARDS))
        products = self.chance.sample(PRODUCTS, self.chance.choice((1, 1, 2)))
        quantities = {product_id: self.chance.choice((1, 1, 2)) for product_id in products}
        counts = named is not None or self.chance.random() < 0.9
        order_id = f"o-{next(self.numbers)}"
        hold = self.chance.choice((None, 60))
        order = Order(
            *(order_id, user, quantities),
            hold_seconds=hold,
            named_buyers=named,
            counts_users=counts,
        )
        self.sent[order_id], self.users[order_id] = order, user
        return order

    def order(self):
        self.judge([self.new_order()])

    def batch(self):
        """Place orders in one batch. Some share buyers."""
        self.judge([self.new_order() for _ in range(4)])

    def judge(self, orders):
        outcomes = self.shop.commit(self.shop.worker(), *orders).outcomes
        # Those that are accepted count before those that are not, whatever their sequence.
        accepted = [
            o for o, found in zip(orders, outcomes, strict=True) if found.kind is Outcome.APPLIED
        ]
        rejected = [o for o in orders if o not in accepted]
        for order in accepted:
            assert self.fits(order), f"{order} exceeds a limit"
            self.buyers[order.order_id] = [buyer for (buyer,) in order.buyers]
            self.lines[order.order_id] = [
                (p, n, self.group_of(p) if self.limits[p] and order.buyers else None)
                for p, n in order.quantities.items()
            ]
        for order in rejected:
            assert not self.fits(order), f"{order} had room"
            assert self.shop.order_row(order.order_id)["reason"] == "PURCHASE_LIMIT"
        self.seen.update(accepted=len(accepted), rejected=len(rejected))

    def again(self):
        """Send an order again."""
        if self.sent:
            order = self.chance.choice([*self.sent.values()])
            assert self.shop.do(order) == [Outcome.REPLAYED]

    def command(self, action, order_id=None, **more):
        order_id = order_id or self.chance.choice([*self.lines] or [None])
        if order_id is None:
            return None
        (outcome,) = self.shop.do(OrderCommand(order_id, action, **more))
        return order_id if outcome is Outcome.APPLIED else None

    def end(self, order_id):
        if order_id is not None:
            self.lines[order_id] = []
            self.seen["ended"] += 1

    def cancel(self):
        self.end(self.command(OrderAction.CANCEL))

    def expire(self):
        self.end(self.command(OrderAction.EXPIRE, ended_by="2999"))

    def cancel_one(self):
        """Cancel a unit, which may be lost."""
        lines = {order_id: lines for order_id, lines in self.lines.items() if lines}
        if not lines:
            return
        order_id = self.chance.choice([*lines])
        product_id, units, group = lines[order_id][0]
        step = {"step_id": f"s-{self.seen['steps']}", "quantities": {product_id: 1}}
        self.seen["steps"] += 1
        lost = self.chance.choice((None, False))
        if self.command(OrderAction.CANCEL, order_id, restock=lost, **step):
            rest = [(product_id, units - 1, group)] if units > 1 else []
            self.lines[order_id] = [*rest, *lines[order_id][1:]]
            self.seen["cancelled in part"] += 1

    def hand_over_and_return(self):
        """Returned units still count. A handed-over order no longer ends, so the model leaves it alone."""
        order_id = self.command(OrderAction.CONFIRM)
        if order_id and self.command(OrderAction.FULFIL, order_id) and self.lines[order_id]:
            units = {product_id: n for product_id, n, _ in self.lines[order_id]}
            step = {"step_id": "r", "quantities": units, "restock": True}
            assert self.command(OrderAction.RETURN, order_id, **step)
            self.seen["returned"] += 1

    def erase(self):
        """Forget a customer, whose id then belongs to a new one. Cards may stay."""
        if self.chance.random() < 0.4:
            return
        user, keep = self.chance.choice(USERS), self.chance.random() < 0.5
        also = forget.orders_bought_by(self.shop.stack, user)
        forget.Forgetting(self.shop.stack, user, KEY, also, keep).run()
        for order_id, buyers in self.buyers.items():
            if self.users[order_id] == user:
                self.buyers[order_id] = [b for b in buyers if keep and b != user]
        self.sent = {o: order for o, order in self.sent.items() if order.user_id != user}
        self.seen["erased"] += 1


@pytest.mark.parametrize("seed", range(4))
def test_counters_equal_what_orders_say_and_no_order_is_refused_that_had_room(seed):
    with open_shop() as shop, patch.object(forget, "LOOK_AGAIN_SECONDS", 0.0):
        lives = Lives(shop, seed)
        lives.live(150)
        books = read_books(shop.stack)
    assert books.is_sound
    assert all(account.balances for account in books.accounts)
    for what in ("accepted", "rejected", "ended", "cancelled in part", "returned", "erased"):
        assert lives.seen[what], what
