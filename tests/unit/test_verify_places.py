"""The traffic of `verify` on a shop in memory: it detects errors, and leaves nothing behind."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from inventory_orders.domain.location import stock_key
from inventory_orders.store.tables import Table
from operations import verify
from operations.verify import traffic
from operations.verify.report import State
from operations.verify.run import Run
from testing.aws import ServiceError
from testing.world.tables import FEEDS
from tests.support.by_hand import add_by_hand
from tests.support.desk import ApiOfShop


class RunOnShop(Run):
    """A run on a shop in memory, whose queues are connected to their functions.

    Attributes:
        queues: The connected queues.
    """

    def __init__(self, shop):
        super().__init__(shop.stack, "Stack", embedded=True, orders=20, patience=35.0)
        self.shop, self.queues = shop, {*FEEDS}
        # Without a dashboard, `hot` and `rush` measure nothing.
        self.deployed = SimpleNamespace(dashboards={}, of_type=lambda _: {"Route": {}})

    def deliver(self):
        for queue in sorted(self.queues):
            self.shop.deliver(queue)

    @property
    def pause(self):
        """Deliver messages while the run waits."""
        self.deliver()
        return 1.0

    def take_dead_letters(self, queue, seconds):
        self.deliver()
        return super().take_dead_letters(queue, min(seconds, 1.0))


class InTurn(ThreadPoolExecutor):
    """A thread ends before the next one begins, because threads would not wait in virtual time."""

    def submit(self, *work):
        future = super().submit(*work)
        future.result()
        return future


@pytest.fixture
def run(shop, monkeypatch):
    monkeypatch.setattr(traffic, "ThreadPoolExecutor", InTurn)
    return RunOnShop(shop)


def check(run, name="locations"):
    return [(line.state, line.saw) for line in verify.run_check(name, run)]


def listed(shop):
    return sorted(key for (key,) in shop.items(Table.PRODUCTS))


@pytest.mark.parametrize(
    ("location", "units", "says"),
    [
        # One location has everything.
        ("south", 1, "takes its lines from {'ONE': 'south', 'OTHER': 'south'}"),
        ("north", -3, "takes its lines from {'ONE': None, 'OTHER': None}"),
        ("north", 1, "and 1 are left, not 0"),
    ],
)
def test_an_order_that_came_from_elsewhere_is_red(shop, run, monkeypatch, location, units, says):
    place = traffic.place

    def disturbed(run, order):
        add_by_hand(run.aws, stock_key(f"{run.name}-locations", location), units)
        return place(run, order)

    monkeypatch.setattr(traffic, "place", disturbed)
    ((state, saw),) = check(run)
    one, other = f"{run.name}-locations", f"{run.name}-locations-other"
    assert state is State.FAILED
    assert says.replace("ONE", one).replace("OTHER", other) in saw
    assert "#" not in saw
    monkeypatch.setattr(traffic, "place", place)
    add_by_hand(run.aws, stock_key(one, location), -units)
    assert run.clean_up() == []


def test_a_transfer_that_takes_no_effect_is_red(shop, run, monkeypatch):
    command = run.command

    def without_transfers(function, command_, wanted):
        is_transfer = command_.get("action") == "transfer"
        return {} if is_transfer else command(function, command_, wanted)

    monkeypatch.setattr(run, "command", without_transfers)
    ((state, saw),) = check(run)
    assert (state, "1 was moved away, and 1 are left, not 0" in saw) == (State.FAILED, True)


def test_an_order_beyond_a_purchase_limit_is_red(run, monkeypatch):
    really_list = run.list_product
    monkeypatch.setattr(run, "list_product", lambda name, stock, **_: really_list(name, stock))
    ((state, saw),) = check(run, "limits")
    assert state is State.FAILED
    assert saw.startswith("6 orders with one card: {'PENDING': 6}, not {'PENDING': 2")


def test_leftovers_are_named_by_product_and_location_and_kept_for_the_next_run(shop, run):
    check(run)
    one, other = f"{run.name}-locations", f"{run.name}-locations-other"
    shop.edit(Table.PRODUCTS, stock_key(one, "south"), status={"S": "?"})
    left = run.clean_up()
    assert [text.partition(":")[0] for text in left] == [f"{one} at south", one]
    assert listed(shop) == sorted(run.products) == [one, stock_key(one, "south")]
    shop.edit(Table.PRODUCTS, stock_key(one, "south"), status={"S": "ACTIVE"})
    assert run.clean_up() == []
    assert other not in listed(shop)


@pytest.mark.parametrize("interrupted", ["_delist", "_cancel_open", "take_dead_letters"])
def test_the_orders_of_a_run_that_was_killed_are_cancelled_by_the_next(
    shop, run, monkeypatch, interrupted
):
    order = run.order("open", {run.list_product("open", 1): 1})
    traffic.place(run, order)
    shop.stack.invoke("ChangeOrders", {"action": "confirm", "orderId": order["orderId"]})
    run.dead_letters["OrderDeadLetterQueueUrl"] = {"m-1"}
    following = RunOnShop(shop)
    monkeypatch.setattr(run, interrupted, _killed)
    with pytest.raises(KeyboardInterrupt):
        run.clean_up()
    # The simulated AWS has no `begins_with`, by which a run looks for old products, and no dead letters.
    monkeypatch.setattr(following, "leftovers", lambda: (listed(shop), 0))
    monkeypatch.setattr(following, "remove_old_dead_letters", lambda: 0)
    ((state, saw),) = check(following, "leftovers")
    assert state is State.PASSED, saw
    assert (shop.status(order["orderId"]), listed(shop)) == ("CANCELLED", [])


def _killed(*_):
    raise KeyboardInterrupt


def test_open_orders_that_cannot_be_cancelled_are_left_and_counted(run):
    traffic.place(run, run.order("open", {run.list_product("open", 1): 1}))
    run.queues.remove("OrderCommand")
    ((state, saw),) = check(run, "cleans-up")
    assert state is State.FAILED
    assert saw.startswith("some of 1 open order not cancelled through OrderCommandQueue")
    # The next run finds the order by this product.
    assert run.products == [f"{run.name}-mark"]


@pytest.mark.parametrize(
    ("name", "queue"),
    [
        *((name, "Order") for name in ("places", "holds", "rejects", "hot", "locations")),
        ("limits", "Order"),
        *(("cancels", "OrderCommand"), ("confirms", "OrderCommand")),
        *(("receives", "Stock"), ("catalogue", "Catalogue"), ("fifo", "OrderFifo")),
        *(("invalid", queue) for queue in ("Order", "OrderCommand", "Expiry", "Stock")),
    ],
)
def test_a_disconnected_queue_is_detected_by_traffic(shop, run, name, queue):
    assert {state for state, _ in check(run, name)} == {State.PASSED}
    run = RunOnShop(shop)
    run.queues.remove(queue)
    ((state, saw),) = check(run, name)
    assert state is State.FAILED
    assert FEEDS[queue].queue.removesuffix(".fifo") in saw
    assert "check its event source mapping" in saw


@pytest.mark.parametrize(
    ("name", "operation", "about", "says"),
    [
        ("replays", "SendMessageBatch", "DeadLetter", "no dead letter for another order"),
        ("counts", "UpdateItem", "", "CountStock answered acquire with {"),
        ("locations", "TransactWriteItems", "-transfer", "AdjustStock answered transfer with {"),
    ],
)
def test_a_missing_permission_is_detected_by_traffic(shop, run, name, operation, about, says):
    denied = ServiceError("AccessDeniedException", "not authorized")
    shop.refuse(operation, denied, lambda request: about in str(request))
    ((state, saw),) = check(run, name)
    assert state is State.FAILED
    assert says in saw


def test_an_oversold_unit_is_detected(run, monkeypatch):
    really_list = run.list_product

    def list_with_one_more(name, stock):
        product = really_list(name, stock)
        add_by_hand(run.aws, product, 1)
        return product

    monkeypatch.setattr(run, "list_product", list_with_one_more)
    ((state, saw),) = check(run, "hot")
    assert state is State.FAILED
    assert "the answers are {'PENDING': 13" in saw
    assert "not {'PENDING': 12" in saw


def _as_placed(reply):
    return replace(reply, status=201, body=b'{"status": "PENDING"}')


def _with_code(reply):
    return replace(reply, body=b'{"code": "UNKNOWN_PRODUCT"}')


@pytest.mark.parametrize(
    ("status", "disturb", "says"),
    [
        (None, None, "15 placed, 5 INSUFFICIENT_STOCK, all answers true, 2 orders sent twice;"),
        (200, _as_placed, "-rush-0 was placed twice"),
        (409, _as_placed, "but its row says ('REJECTED', 'INSUFFICIENT_STOCK')"),
        (409, _with_code, "was answered 409 {'code': 'UNKNOWN_PRODUCT'}, but its row says"),
    ],
)
def test_a_false_answer_to_a_caller_is_detected(shop, run, monkeypatch, status, disturb, says):
    api = ApiOfShop(shop)

    def send(*request, signed):
        assert signed
        reply = api.call("operator", *request)
        return disturb(reply) if reply.status == status else reply

    monkeypatch.setattr(traffic.HttpApi, "of", lambda _: SimpleNamespace(send=send))
    ((state, saw),) = check(run, "rush")
    assert state is (State.FAILED if disturb else State.PASSED)
    assert says in saw


def test_stock_that_was_changed_by_hand_is_detected(run):
    check(run, "receives")
    _, product = run.products
    add_by_hand(run.aws, product, -1)
    said = f"{product} has 11 available, but its adjustments and orders say 12: -1 unexplained"
    assert check(run, "books") == [(State.FAILED, said)]
