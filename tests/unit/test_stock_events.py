"""Stock events: if they are turned on, each changed level is published, whatever else happens at the same time."""

import contextlib
import random
from collections import Counter

import boto3
import pytest

from inventory_orders.domain.allotments import PageKey
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import OrderCommand
from inventory_orders.domain.record import OrderAction
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import (
    CorruptItemError,
    RepairNeededError,
    StoreError,
    ThrottledError,
)
from inventory_orders.products.fold import Fold
from inventory_orders.publishing import stock
from inventory_orders.publishing.publisher import Bus
from inventory_orders.publishing.stock import StockWatch
from inventory_orders.store import sweep_rows
from inventory_orders.store.cancellations import ConditionFailedError
from inventory_orders.store.sweep_rows import StockPart, read_stock_parts, stock_part_row
from inventory_orders.store.tables import Table
from testing.aws import ServiceError
from testing.schedules.in_turn.lanes import add_to_page_by_hand, lend

MINUTE = 60.0
REFUSED = ("ThrottlingException", "no")


class CrashError(Exception):
    """Simulates a process that is killed."""


class Watched:
    """A shop, and the sweeps that publish its stock."""

    def __init__(self, shop):
        self.shop, self.bus = shop, shop.bus
        self.watch = self.new_watch()

    def new_watch(self):
        """Start a new process."""
        return StockWatch(RetryingClient(self.shop.store), Bus(boto3.client("events"), "bus"))

    def sweep(self, seconds=40.0, watch=None):
        self.shop.clock.sleep(MINUTE)
        return (watch or self.watch).publish(self.shop.soon(seconds))

    @property
    def taken(self):
        """The events that the bus has accepted."""
        return [event["detail"] for event in self.bus.taken]

    def heard(self):
        """Sweep, and return the published stock by product."""
        before = len(self.taken)
        published = self.sweep()
        heard = [event["data"] for event in self.taken[before:]]
        assert published == len(heard)
        return {data["productId"]: (data["available"], data["status"]) for data in heard}

    def sell(self, **units):
        self.shop.order(f"o-{self.shop.clock.now()}", **units)

    def parts(self):
        return read_stock_parts(self.shop.store).values()

    def ids(self):
        return [event["metadata"]["eventId"] for event in self.taken]

    def crash(self, operation, number=1):
        """Kill the process before the n-th request of an operation."""
        left = iter(range(number - 1, -1, -1))

        def end(_):
            if next(left) == 0:
                raise CrashError

        self.shop.on(operation, end)
        with pytest.raises(CrashError):
            self.sweep()
        self.shop.calm()
        self.watch = self.new_watch()


@pytest.fixture
def watched(shop, monkeypatch):
    # Few parts, so that each part has several products.
    monkeypatch.setattr(sweep_rows, "STOCK_PARTS", 2)
    for product_id in ("tea", "mug", "pot"):
        shop.list(product_id, 10, low_stock_threshold=2)
    return Watched(shop)


def test_each_product_is_published_at_first_and_then_when_its_level_differs(watched):
    active = (10, "ACTIVE")
    assert watched.heard() == {"tea": active, "mug": active, "pot": active}
    assert watched.heard() == {}
    watched.sell(tea=3, mug=8)
    assert watched.heard() == {"tea": (7, "ACTIVE"), "mug": (2, "LOW_STOCK")}
    assert watched.heard() == {}


def test_events_distinguish_hand_overs_from_sales_and_folds_have_none(watched):
    def told():
        published = watched.sweep()
        (event,) = watched.taken[-published:]
        return tuple(event["data"][name] for name in ("onHand", "committed", "available"))

    watched.sweep()
    watched.shop.order("o-1", tea=3)
    assert told() == (10, 3, 7)
    watched.shop.do(OrderCommand("o-1", OrderAction.CONFIRM))
    watched.shop.do(OrderCommand("o-1", OrderAction.CANCEL, "", "l-1", {"tea": 1}, False))
    assert told() == (9, 2, 7)
    watched.shop.do(OrderCommand("o-1", OrderAction.FULFIL))
    assert told() == (7, 0, 7)
    assert Fold(RetryingClient(watched.shop.store), watched.shop.soon()).run().folded
    assert watched.sweep() == 0


def test_an_event_has_the_time_of_the_read_and_the_generation(watched):
    watched.sweep()
    event = next(e for e in watched.taken if e["data"]["productId"] == "tea")
    created_at = watched.shop.row("tea")["createdAt"]["S"]
    at = event["data"]["at"]
    assert event["metadata"]["eventId"] == f"tea@{created_at}#{at}#ProductStockChanged"
    assert event["metadata"]["occurredAt"] == at > created_at


def test_a_product_is_published_at_each_of_its_locations(watched):
    def told():
        before = len(watched.taken)
        watched.sweep()
        events = [event["data"] for event in watched.taken[before:]]
        return {(data["productId"], data.get("locationId")): data["available"] for data in events}

    watched.sweep()
    for location_id in ("berlin", "lyon"):
        watched.shop.list(f"tea#{location_id}", 5)
    assert told() == {("tea", "berlin"): 5, ("tea", "lyon"): 5}
    watched.shop.do(Order("o-1", "u", {"tea": 2}, locations=("berlin",)))
    lend(watched.shop.store, "tea#lyon", 1, {1: 3})
    assert told() == {("tea", "berlin"): 3}
    watched.shop.delist("tea#berlin")
    watched.sell(tea=1)
    assert told() == {("tea", None): 9}
    assert len(set(watched.ids())) == len(watched.taken) == 7
    assert "tea#" not in str(watched.taken)


def test_moves_of_units_are_not_events_and_sales_from_lanes_are(watched):
    watched.heard()
    lend(watched.shop.store, "tea", 1, {1: 3})
    assert watched.heard() == {}
    page = PageKey.of(1, "tea")
    add_to_page_by_hand(watched.shop.stack, watched.shop.store, page, "tea", -2)
    assert watched.heard() == {"tea": (8, "ACTIVE")}


def test_units_that_move_between_two_reads_are_not_an_event(watched):
    watched.heard()
    lend(watched.shop.store, "tea", 0, {1: 3})

    def before(operation, _):
        # The row has been listed, but its pages have not been read yet.
        if operation == "BatchGetItem" and watched.shop.calls[-2] == "Scan":
            watched.shop.calm()
            lend(watched.shop.store, "tea", 0, {1: 2})

    watched.shop.before = before
    assert watched.heard() == {}


def test_a_recreated_product_is_published_even_at_the_same_level(watched):
    watched.heard()
    watched.shop.delist("tea")
    watched.shop.list("tea", 10)
    assert watched.heard() == {"tea": (10, "ACTIVE")}
    assert len(set(watched.ids())) == 4


def test_a_delisted_product_is_forgotten_without_an_event(watched):
    watched.heard()
    watched.shop.delist("tea")
    assert watched.heard() == {}
    assert not any("tea" in part.levels for part in watched.parts())


@pytest.mark.parametrize("refusal", ["ThrottlingException", None])
def test_a_refused_event_is_sent_again_under_the_same_id(watched, refusal):
    """In the case without a refusal, the response is lost and the process is killed."""
    watched.heard()
    watched.sell(tea=1)
    if refusal:
        watched.bus.judge = lambda *_: (refusal, "no")
        with pytest.raises(ThrottledError, match="refuses stock events"):
            watched.sweep()
    else:
        watched.shop.refuse("PutEvents", CrashError())
        with pytest.raises(CrashError):
            watched.sweep()
    (pending,) = [part for part in watched.parts() if part.pending]
    watched.shop.calm()
    watched.bus.judge = lambda *_: None
    watched.sell(tea=2)
    watched.watch = watched.new_watch()
    taken = len(watched.taken)
    watched.sweep()
    first, second = watched.taken[taken:]
    assert (first["data"]["available"], second["data"]["available"]) == (9, 7)
    assert first["data"]["at"] == pending.at < second["data"]["at"]


def test_an_event_that_a_busy_bus_refuses_is_sent_again_alone(watched):
    names = {f"p-{number}" for number in range(60)}
    for name in names:
        watched.shop.list(name, 1)
    chance = random.Random(1)
    watched.bus.judge = lambda *_: REFUSED if chance.random() < 0.3 else None
    assert watched.heard().keys() >= names
    assert len(set(watched.ids())) == len(watched.ids()), "no event was sent twice"


def test_each_sweep_begins_with_another_part(watched):
    for number in range(60):
        watched.shop.list(f"p-{number}", 1)
    tried = []

    def refuse(event_id, _):
        tried.append(event_id.partition("@")[0])
        return REFUSED

    watched.bus.judge = refuse
    for _ in watched.parts():
        with pytest.raises(ThrottledError):
            watched.sweep()
    parts = {StockPart.of(product_id) for product_id in tried}
    assert len(parts) == len(watched.parts()) > 1


def test_a_level_that_the_bus_always_refuses_delays_no_other(watched):
    watched.bus.judge = lambda event_id, _: REFUSED if event_id.startswith("tea@") else None
    for _ in watched.parts():
        with pytest.raises(ThrottledError, match="refuses stock events"):
            watched.sweep()
    assert {event["data"]["productId"] for event in watched.taken} == {"mug", "pot"}
    assert [name for part in watched.parts() for name in part.pending].count("tea") == 1
    watched.bus.judge = lambda *_: None
    assert watched.heard() == {"tea": (10, "ACTIVE")}


def test_only_one_of_two_concurrent_sweeps_publishes(watched):
    watched.heard()
    watched.sell(tea=1)
    rival = watched.new_watch()

    def before(operation, _):
        if operation == "UpdateItem":
            watched.shop.calm()
            watched.sweep(watch=rival)

    watched.shop.before = before
    taken = len(watched.taken)
    with pytest.raises(ConditionFailedError):
        watched.sweep()
    assert [event["data"]["available"] for event in watched.taken[taken:]] == [9]
    assert watched.heard() == {}


def test_a_sweep_whose_clock_is_behind_publishes_nothing_older(watched):
    watched.heard()
    watched.sell(tea=1)
    watched.shop.clock.seconds -= 5 * MINUTE
    assert watched.heard() == {}
    watched.shop.clock.seconds += 5 * MINUTE
    assert watched.heard() == {"tea": (9, "ACTIVE")}


def test_many_products_take_several_sweeps(watched, monkeypatch):
    monkeypatch.setattr(stock, "_TOGETHER", 10)
    names = {f"p-{number}" for number in range(55)} | {"tea", "mug", "pot"}
    for name in names - {"tea", "mug", "pot"}:
        watched.shop.list(name, 1)
    heard, sweeps = set(), 0
    while len(heard) < len(names):
        with contextlib.suppress(ThrottledError):
            watched.sweep(seconds=0.1)
        sweeps += 1
        heard |= {event["data"]["productId"] for event in watched.taken}
        assert sweeps < 40
    assert heard == names
    assert sweeps > 2
    # Events published at the very end of a sweep may be repeated.
    watched.sweep()
    assert watched.heard() == {}
    assert len(set(watched.ids())) == len(names)


@pytest.mark.parametrize("seed", range(40))
def test_under_any_interference_the_newest_event_has_the_level(watched, seed):
    """Interference means sales, recreated products, crashes, refusals, lost responses and overlapping sweeps."""
    chance, watches, depth = random.Random(seed), [watched.watch, watched.new_watch()], [0]

    def trouble():
        if depth[0] == 0 or chance.random() > 0.1:
            return None
        if chance.random() < 0.3 and depth[0] == 1:
            sweep()
            return None
        if chance.random() < 0.3:
            return "ThrottlingException"
        raise CrashError

    def sweep():
        depth[0] += 1
        number = chance.randrange(2)
        try:
            watched.sweep(watch=watches[number])
        except StoreError:
            pass
        except CrashError:
            watches[number] = watched.new_watch()
        depth[0] -= 1

    def before(*_):
        if code := trouble():
            raise ServiceError(code, "no")

    for _ in range(12):
        watched.shop.calm()
        product_id = chance.choice(["tea", "mug", "pot"])
        if chance.random() < 0.2:
            watched.shop.delist(product_id)
            watched.shop.list(product_id, chance.randrange(2, 9))
        elif chance.random() < 0.7 and watched.shop.stock(product_id):
            watched.sell(**{product_id: 1})
        watched.shop.before = before
        sweep()
    watched.shop.calm()
    watched.watch = watched.new_watch()
    watched.sweep()
    by_id, newest = {}, {}
    for event in watched.taken:
        data = event["data"]
        assert by_id.setdefault(event["metadata"]["eventId"], data) == data
        if data["at"] >= newest.get(data["productId"], data)["at"]:
            newest[data["productId"]] = data
    stock = {name: data["available"] for name, data in newest.items()}
    assert stock == {name: watched.shop.stock(name) for name in ("tea", "mug", "pot")}


def test_a_product_that_cannot_be_read_hides_no_other(watched):
    watched.heard()
    watched.sell(mug=1)
    watched.shop.edit(Table.PRODUCTS, "tea", status={"S": "NEW"})
    assert watched.heard() == {"mug": (9, "ACTIVE")}
    assert watched.heard() == {}


def test_a_part_that_cannot_be_read_is_named(watched):
    watched.heard()
    watched.shop.edit(Table.ALLOTMENTS, "stock/0", levels={"S": "?"})
    with pytest.raises(CorruptItemError, match="delete the item"):
        watched.sweep()


def test_a_part_has_room_for_50_000_products_with_long_ids():
    chance = random.Random(0)
    levels = {
        f"{chance.getrandbits(256):064x}": (f"{number:032}", number, "OUT_OF_STOCK")
        for number in range(50_000 // sweep_rows.STOCK_PARTS)
    }
    row = stock_part_row(StockPart(1, 1, "", levels, pending=[*levels]))
    assert len(row["levels"]) < 400_000 / 4


# ---------------------------------------------------------------------- the setting


@pytest.fixture
def sweep(shop):
    """Return a function that sweeps a shop with one product, and returns the answer and a count of the operations."""
    shop.list("tea", 10)

    def sweep():
        shop.clock.sleep(MINUTE)
        shop.calls.clear()
        return shop.invoke("sweep", {"action": "sweep"}), Counter(shop.calls)

    return sweep


def test_without_the_setting_a_sweep_sends_what_it_sent_before(sweep):
    answer, calls = sweep()
    assert answer == {"result": "SWEPT", "holds": 0, "folded": 0, "lanes": [], "products": 0}
    assert calls == {"GetQueueAttributes": 1, "Query": 120, "BatchGetItem": 4, "UpdateItem": 1}


@pytest.mark.parametrize(
    ("code", "needs_repair"),
    [("InternalFailure", False), ("NotAuthorizedForSourceException", True)],
)
def test_a_temporarily_unavailable_bus_needs_no_operator(sweep, shop, code, needs_repair):
    shop.restart(STOCK_EVENT_BUS_NAME="bus")
    shop.bus.judge = lambda *_: (code, "no")
    if needs_repair:
        with pytest.raises(RepairNeededError, match=code):
            sweep()
    else:
        answer, _ = sweep()
        assert answer["unfinished"] == f"{code}: the bus refuses stock events: no"


def test_with_the_setting_a_quiet_sweep_sends_three_more_requests(sweep, shop):
    shop.restart(STOCK_EVENT_BUS_NAME="bus")
    answer, calls = sweep()
    assert (answer["published"], calls["UpdateItem"], calls["PutEvents"]) == (1, 3, 1)
    answer, calls = sweep()
    assert (answer["published"], calls["PutEvents"]) == (0, 0)
    assert (calls["Scan"], calls["BatchGetItem"], calls.total()) == (1, 6, 129)
