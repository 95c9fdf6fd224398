"""An audit raises no false alarm while the shop is open, and finds a unit that was removed by hand."""

import threading
import time
from functools import partial

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.adjustment import Decrement
from inventory_orders.domain.allotments import DEPOT, PageKey
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.product import NewProduct
from inventory_orders.domain.record import OrderAction
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.products.catalogue import AtomicDecrement, ProductCatalogue
from inventory_orders.products.fold import Fold
from operations.audit import read_books
from testing.schedules.in_turn.lanes import add_to_page_by_hand, lend, reclaim
from tests.support.by_hand import add_by_hand
from tests.support.parallel import in_threads

# The minimum: audits continue until units have been reclaimed from lanes.
AUDITS, MOST_AUDITS = 3, 60
# Seconds between the changes of one thread: reading a larger table takes longer and shows nothing more.
PAUSE = 0.15
STOLEN = {"audit-sold": "stockCount", "audit-idle": "stockCount", "audit-out": "onHand"}
# Nothing else writes this page during the test.
DEPOT_PAGE = PageKey.of(DEPOT, "audit-idle")


def soon():
    return Deadline.after(20, SystemClock())


def repeat(step, over):
    """Call a step with 0, 1, 2 and so on until `over` is set, and return the number of calls."""
    number = 0
    while not over.is_set():
        step(number)
        number += 1
        time.sleep(PAUSE)
    return number


def sell(shop):
    """Place orders and cancel every third one, while their product is delisted and created again."""
    engine = shop.new_engine()

    def step(number):
        ids = [f"audit-{number}-{n}" for n in range(5)]
        engine.apply([Order(i, "u", {"audit-sold": 1, "audit-again": 1}) for i in ids], soon())
        engine.apply([OrderCommand(ids[0], OrderAction.CANCEL)], soon())

    return step


def sell_from_lanes(shop, worker):
    engine = shop.new_engine(lanes=2)

    def step(number):
        ids = [f"audit-lent-{worker}-{number}-{n}" for n in range(3)]
        engine.apply([Order(i, "u", {"audit-lent": 2}) for i in ids], soon())

    return step


def hand_over(shop):
    """Hand over orders in parts, with lost units and returns, while one of their products is delisted."""
    engine = shop.new_engine()

    def command(order_id, action, step_id, units, restock=None):
        quantities = {"audit-out": units}
        return OrderCommand(order_id, OrderAction(action), "", step_id, quantities, restock)

    def step(number):
        name = f"audit-out-{number}"
        engine.apply([Order(name, "u", {"audit-out": 4, "audit-again": 1})], soon())
        for change in (
            OrderCommand(name, OrderAction.CONFIRM),
            command(name, "fulfil", "parcel", 2),
            command(name, "cancel", "broken", 1, restock=False),
            command(name, "return", "back", 1, restock=True),
            *([OrderCommand(name, OrderAction.FULFIL)] if number % 3 else []),
        ):
            engine.apply([change], soon())

    return step


def fold(shop, folded):
    client = RetryingClient(shop.new_store())

    def step(_):
        if Fold(client, soon()).run().folded:
            folded.set()

    return step


def reclaim_all(shop, gone):
    """Reclaim all units from lanes now and then; orders fill the lanes again."""

    def step(_):
        if reclaim(shop.store, "audit-lent"):
            gone.set()

    return step


def decrement(shop):
    atomic = AtomicDecrement(shop.new_engine())
    return lambda number: atomic.apply(Decrement("audit-atomic", f"d-{number}", -1), soon())


def list_again(shop):
    products = ProductCatalogue(RetryingClient(shop.new_store()))

    def step(_):
        product = products.get("audit-again", soon())
        products.delist("audit-again", product.created_at, soon())
        products.create(NewProduct("audit-again", 1000), soon())

    return step


def test_an_audit_under_traffic_is_true(shop):
    for name in ("sold", "atomic", "again", "lent", "idle", "out"):
        shop.create(f"audit-{name}", 100_000)
    lend(shop.store, "audit-idle", 100, {1: 10})
    over, gone, folded, seen = *(threading.Event() for _ in range(3)), []

    def audit():
        accounts = [a for a in read_books(shop.aws).accounts if a.product_id.startswith("audit-")]
        seen.append({a.product_id: a.problems or a.unexplained for a in accounts if a.is_wrong})
        return accounts

    def audits():
        try:
            for number in range(1, MOST_AUDITS + 1):
                audit()
                if number >= AUDITS and gone.is_set() and folded.is_set():
                    break
            assert not any(seen)
            add_by_hand(shop.aws, "audit-sold", -1)
            add_by_hand(shop.aws, "audit-out", -1, "onHand")
            add_to_page_by_hand(shop.aws, shop.store, DEPOT_PAGE, "audit-idle", -1)
            audit()
        finally:
            over.set()
        return len(seen)

    steps = [sell(shop), decrement(shop), list_again(shop), reclaim_all(shop, gone)]
    steps += [sell_from_lanes(shop, worker) for worker in range(2)]
    steps += [hand_over(shop), fold(shop, folded)]
    work = [audits, *(partial(repeat, step, over) for step in steps)]
    done = in_threads(lambda index: work[index](), len(work))
    assert all(done), done
    assert gone.is_set()
    assert folded.is_set()
    assert seen[-1] == {
        "audit-sold": {"available": -1, "committed": 1},
        "audit-idle": {"available": -1, "committed": 1},
        "audit-out": {"on_hand": -1, "committed": -1},
    }
    for product_id, number in STOLEN.items():
        add_by_hand(shop.aws, product_id, 1, number)
    assert all(account.settled for account in audit())
    assert seen[-1] == {}
