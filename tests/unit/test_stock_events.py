"""Stock that is published: each level once it differs, none lost, whatever comes in between; and nothing without the setting."""

import contextlib
import json
import random

import pytest

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.domain.allotments import PageKey
from inventory_orders.domain.order import Order
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import (
    CorruptItemError,
    StoreError,
    StoreUnavailableError,
    ThrottledError,
)
from inventory_orders.invocation import runtime
from inventory_orders.lanes.idle import RepairNeededError
from inventory_orders.products.catalogue import ProductCatalogue
from inventory_orders.publishing import stock
from inventory_orders.publishing.bus import Bus
from inventory_orders.publishing.stock import StockWatch
from inventory_orders.store import stock_parts
from inventory_orders.store.cancellations import ConditionFailedError
from inventory_orders.store.stock_parts import StockPart, read_stock_parts, stock_part_row
from testing.handlers import FakeContext, load_handler
from testing.lanes import add_to_page_by_hand, lend
from testing.simulated_aws import ServiceError
from tests.support.tables_in_memory import Tables, tables_in_memory
from tests.support.tea_shop import forget_what_handlers_made

MINUTE = 60.0
CALL_SECONDS = 0.02


class CrashError(Exception):
    """The process ends."""


class Bridge:
    """Takes events, unless `before` raises or returns a refusal."""

    def __init__(self, clock):
        self.clock = clock
        self.calls, self.taken = 0, []
        self.before = lambda: None
        self.refuses = lambda entry: False

    def put_events(self, *, Entries):
        self.calls += 1
        self.clock.sleep(CALL_SECONDS)
        if refusal := self.before():
            return {"Entries": [{"ErrorCode": refusal, "ErrorMessage": "no"}] * len(Entries)}
        answers = [
            {"ErrorCode": "ThrottlingException", "ErrorMessage": "no"}
            if self.refuses(entry)
            else {"EventId": "e"}
            for entry in Entries
        ]
        pairs = zip(Entries, answers, strict=True)
        self.taken += [json.loads(entry["Detail"]) for entry, said in pairs if "EventId" in said]
        return {"Entries": answers}


class Shop:
    """Tables in memory, and sweeps that publish their stock."""

    def __init__(self, tables: Tables):
        self.tables = tables
        self.bridge = Bridge(tables.clock)
        self.worker = tables.worker()
        self.watch = self.new_watch()

    def new_watch(self):
        """As a new process has it."""
        return StockWatch(RetryingClient(self.tables.store), Bus(self.bridge, "bus"))

    def sweep(self, seconds=40.0, watch=None):
        self.tables.clock.sleep(MINUTE)
        return (watch or self.watch).publish(Deadline.after(seconds, SystemClock()))

    def heard(self):
        """What a sweep publishes, by product."""
        before = len(self.bridge.taken)
        published = self.sweep()
        heard = [event["data"] for event in self.bridge.taken[before:]]
        assert published == len(heard)
        return {data["productId"]: (data["onHand"], data["status"]) for data in heard}

    def sell(self, **items):
        self.tables.apply(self.worker, Order(f"o-{self.tables.clock.now()}", "u", items))

    def delist(self, product_id):
        created_at = self.tables.row(product_id)["createdAt"]["S"]
        products = ProductCatalogue(RetryingClient(self.tables.store))
        products.delist(product_id, created_at, Deadline.after(10, SystemClock()))

    def parts(self):
        return read_stock_parts(
            self.tables.store,
        ).values()

    def ids(self):
        return [event["metadata"]["eventId"] for event in self.bridge.taken]

    def crash(self, operation, number=1):
        """End the process before the request of an operation with this number."""
        left = [number]

        def before(called, _):
            if called == operation:
                left[0] -= 1
                if not left[0]:
                    raise CrashError

        self.tables.before = before
        with pytest.raises(CrashError):
            self.sweep()
        self.tables.before = lambda *_: None
        self.watch = self.new_watch()


@pytest.fixture
def shop(monkeypatch):
    # Products of few parts, so that each part has several.
    monkeypatch.setattr(stock_parts, "STOCK_PARTS", 2)
    with tables_in_memory() as tables:
        shop = Shop(tables)
        for product_id in ("tea", "mug", "pot"):
            tables.create(product_id, 10, low_stock_threshold=2)
        yield shop


def test_each_product_is_published_at_first_and_then_when_its_level_differs(shop):
    active = (10, "ACTIVE")
    assert shop.heard() == {"tea": active, "mug": active, "pot": active}
    assert shop.heard() == {}
    shop.sell(tea=3, mug=8)
    assert shop.heard() == {"tea": (7, "ACTIVE"), "mug": (2, "LOW_STOCK")}
    assert shop.heard() == {}


def test_an_event_says_when_the_product_was_seen_and_of_which_incarnation(shop):
    shop.sweep()
    event = next(e for e in shop.bridge.taken if e["data"]["productId"] == "tea")
    created_at = shop.tables.row("tea")["createdAt"]["S"]
    at = event["data"]["at"]
    assert event["metadata"]["eventId"] == f"tea@{created_at}#{at}#ProductStockChanged"
    assert event["metadata"]["occurredAt"] == at > created_at


def test_moving_units_is_no_event_and_sales_from_lanes_are(shop):
    shop.heard()
    lend(shop.tables.store, "tea", 1, {1: 3})
    assert shop.heard() == {}
    page = PageKey.of(1, "tea")
    add_to_page_by_hand(shop.tables.operated, shop.tables.store, page, "tea", -2)
    assert shop.heard() == {"tea": (8, "ACTIVE")}


def test_units_that_move_between_two_reads_are_no_event(shop):
    shop.heard()
    lend(shop.tables.store, "tea", 0, {1: 3})

    def before(operation, _):
        # The row is listed, and its pages are not read yet.
        if operation == "BatchGetItem" and shop.tables.calls[-2] == "Scan":
            shop.tables.before = lambda *_: None
            lend(shop.tables.store, "tea", 0, {1: 2})

    shop.tables.before = before
    assert shop.heard() == {}


def test_a_product_that_is_created_anew_is_published_even_at_the_same_level(shop):
    shop.heard()
    shop.delist("tea")
    shop.tables.create("tea", 10)
    assert shop.heard() == {"tea": (10, "ACTIVE")}
    assert len(set(shop.ids())) == 4


def test_a_delisted_product_is_forgotten_without_an_event(shop):
    shop.heard()
    shop.delist("tea")
    assert shop.heard() == {}
    assert not any("tea" in part.levels for part in shop.parts())


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_after_a_crash_before_any_write_nothing_is_lost(shop, number):
    """Each of two parts is written with what is pending, and written again when the bus has it."""
    shop.crash("UpdateItem", number)
    shop.sell(tea=1)
    shop.heard()
    last = {event["data"]["productId"]: event["data"]["onHand"] for event in shop.bridge.taken}
    assert last == {"tea": 9, "mug": 10, "pot": 10}


@pytest.mark.parametrize("refusal", ["ThrottlingException", None])
def test_what_the_bus_did_not_take_comes_again_under_the_same_id(shop, refusal):
    """With None the answer is lost, and the process with it."""
    shop.heard()
    shop.sell(tea=1)

    def crash():
        if refusal:
            return refusal
        raise CrashError

    shop.bridge.before = crash
    if refusal:
        with pytest.raises(ThrottledError, match="refuses events of stock"):
            shop.sweep()
    else:
        with pytest.raises(CrashError):
            shop.sweep()
    (pending,) = [part for part in shop.parts() if part.pending]
    shop.bridge.before = lambda: None
    shop.sell(tea=2)
    shop.watch = shop.new_watch()
    taken = len(shop.bridge.taken)
    shop.sweep()
    first, second = shop.bridge.taken[taken:]
    assert (first["data"]["onHand"], second["data"]["onHand"]) == (9, 7)
    assert first["data"]["at"] == pending.at < second["data"]["at"]


def test_what_a_busy_bus_refuses_is_sent_again_alone(shop):
    names = {f"p-{number}" for number in range(60)}
    for name in names:
        shop.tables.create(name, 1)
    chance = random.Random(1)
    shop.bridge.refuses = lambda entry: chance.random() < 0.3
    assert shop.heard().keys() >= names
    assert len(set(shop.ids())) == len(shop.ids()), "none was sent twice"


def test_each_sweep_begins_with_another_part(shop):
    for number in range(60):
        shop.tables.create(f"p-{number}", 1)
    tried = []
    shop.bridge.refuses = lambda entry: tried.append(json.loads(entry["Detail"])) is None
    for _ in shop.parts():
        with pytest.raises(ThrottledError):
            shop.sweep()
    parts = {StockPart.of(event["data"]["productId"]) for event in tried}
    assert len(parts) == len(shop.parts()) > 1


def test_a_bus_that_never_takes_them_is_a_problem(shop):
    shop.bridge.before = lambda: "NotAuthorizedForSourceException"
    with pytest.raises(StoreUnavailableError, match="the bus refuses events of stock: no"):
        shop.sweep()


def test_a_level_that_the_bus_never_takes_holds_up_no_other(shop):
    shop.bridge.refuses = lambda entry: '"productId":"tea"' in entry["Detail"]
    for _ in shop.parts():
        with pytest.raises(ThrottledError, match="refuses events of stock"):
            shop.sweep()
    assert {event["data"]["productId"] for event in shop.bridge.taken} == {"mug", "pot"}
    assert [name for part in shop.parts() for name in part.pending].count("tea") == 1
    shop.bridge.refuses = lambda entry: False
    assert shop.heard() == {"tea": (10, "ACTIVE")}


def test_of_two_sweeps_at_once_one_publishes(shop):
    shop.heard()
    shop.sell(tea=1)
    rival = shop.new_watch()

    def before(operation, _):
        if operation == "UpdateItem":
            shop.tables.before = lambda *_: None
            shop.sweep(watch=rival)

    shop.tables.before = before
    taken = len(shop.bridge.taken)
    with pytest.raises(ConditionFailedError):
        shop.sweep()
    assert [event["data"]["onHand"] for event in shop.bridge.taken[taken:]] == [9]
    assert shop.heard() == {}


def test_a_sweep_whose_clock_is_behind_publishes_nothing_older(shop):
    shop.heard()
    shop.sell(tea=1)
    shop.tables.clock.seconds -= 5 * MINUTE
    assert shop.heard() == {}
    shop.tables.clock.seconds += 5 * MINUTE
    assert shop.heard() == {"tea": (9, "ACTIVE")}


def test_many_products_take_several_sweeps(shop, monkeypatch):
    monkeypatch.setattr(stock, "_TOGETHER", 10)
    names = {f"p-{number}" for number in range(55)} | {"tea", "mug", "pot"}
    for name in names - {"tea", "mug", "pot"}:
        shop.tables.create(name, 1)
    heard, sweeps = set(), 0
    while len(heard) < len(names):
        with contextlib.suppress(ThrottledError):
            shop.sweep(seconds=0.1)
        sweeps += 1
        heard |= {event["data"]["productId"] for event in shop.bridge.taken}
        assert sweeps < 40
    assert heard == names
    assert sweeps > 2
    # What was published in the last moment of a sweep may come again.
    shop.sweep()
    assert shop.heard() == {}
    assert len(set(shop.ids())) == len(names)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_comes_in_between_the_newest_event_tells_the_level(shop, seed):
    """Sales, products that are created anew, crashes, refusals, lost answers, and sweeps within sweeps."""
    chance, watches, depth = random.Random(seed), [shop.watch, shop.new_watch()], [0]

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
            shop.sweep(watch=watches[number])
        except StoreError:
            pass
        except CrashError:
            watches[number] = shop.new_watch()
        depth[0] -= 1

    def before(*_):
        if code := trouble():
            raise ServiceError(code, "no")

    for _ in range(12):
        shop.tables.before, shop.bridge.before = lambda *_: None, lambda: None
        product_id = chance.choice(["tea", "mug", "pot"])
        if chance.random() < 0.2:
            shop.delist(product_id)
            shop.tables.create(product_id, chance.randrange(2, 9))
        elif chance.random() < 0.7 and shop.tables.stock(product_id):
            shop.sell(**{product_id: 1})
        shop.tables.before, shop.bridge.before = before, trouble
        sweep()
    shop.tables.before, shop.bridge.before = lambda *_: None, lambda: None
    shop.watch = shop.new_watch()
    shop.sweep()
    by_id, newest = {}, {}
    for event in shop.bridge.taken:
        data = event["data"]
        assert by_id.setdefault(event["metadata"]["eventId"], data) == data
        if data["at"] >= newest.get(data["productId"], data)["at"]:
            newest[data["productId"]] = data
    stock = {name: data["onHand"] for name, data in newest.items()}
    assert stock == {name: shop.tables.stock(name) for name in ("tea", "mug", "pot")}


def test_a_product_that_cannot_be_read_hides_no_other(shop):
    shop.heard()
    shop.sell(mug=1)
    shop.tables.aws.dynamodb.tables["Products"].items["tea",] |= {"status": {"S": "NEW"}}
    assert shop.heard() == {"mug": (9, "ACTIVE")}
    assert shop.heard() == {}


def test_a_part_that_cannot_be_read_is_named(shop):
    shop.heard()
    shop.tables.aws.dynamodb.tables["Allotments"].items["stock/0",]["levels"] = {"S": "?"}
    with pytest.raises(CorruptItemError, match="delete the item"):
        shop.sweep()


def test_throttled_tables_are_left_to_the_next_sweep(shop):
    def before(operation, _):
        if operation == "Scan":
            raise ServiceError("ThrottlingException", "slow down")

    shop.tables.before = before
    with pytest.raises(ThrottledError):
        shop.sweep()
    shop.tables.before = lambda *_: None
    assert len(shop.heard()) == 3


def test_a_part_has_room_for_50_000_products_with_long_ids():
    chance = random.Random(0)
    levels = {
        f"{chance.getrandbits(256):064x}": (f"{number:032}", number, "OUT_OF_STOCK")
        for number in range(50_000 // stock_parts.STOCK_PARTS)
    }
    row = stock_part_row(StockPart(1, 1, "", levels, pending=[*levels]))
    assert len(row["levels"]) < 400_000 / 4


# ---------------------------------------------------------------------- the setting


@pytest.fixture
def sweep(monkeypatch):
    """The handler, on tables in memory."""
    with tables_in_memory() as tables:
        for table, name in (("PRODUCTS", "Products"), ("ORDERS", "Orders")):
            monkeypatch.setenv(f"{table}_TABLE_NAME", name)
        monkeypatch.setenv("STOCK_ADJUSTMENTS_TABLE_NAME", "StockAdjustments")
        monkeypatch.setenv("ALLOTMENTS_TABLE_NAME", "Allotments")
        monkeypatch.setenv("HOLD_GRACE_SECONDS", "60")
        for name in ("EXPIRY_QUEUE_URL", "EXPIRY_DEAD_LETTER_QUEUE_URL"):
            monkeypatch.setenv(name, tables.aws.sqs.create(name).url)
        monkeypatch.setattr(runtime, "executor", lambda: None)
        forget_what_handlers_made()
        tables.create("tea", 10)

        def invoke():
            tables.clock.sleep(MINUTE)
            tables.calls.clear()
            answer = load_handler("sweep").lambda_handler({"action": "sweep"}, FakeContext("sweep"))
            return answer, list(tables.calls)

        yield tables, invoke
    forget_what_handlers_made()


def test_without_the_setting_a_sweep_sends_what_it_sent_before(sweep):
    _, invoke = sweep
    answer, calls = invoke()
    assert answer == {"result": "SWEPT", "holds": 0, "lanes": [], "products": 0}
    assert {call: calls.count(call) for call in calls} == {
        "GetQueueAttributes": 1,
        "Query": 32,
        "BatchGetItem": 2,
    }


@pytest.mark.parametrize(
    ("code", "needs_repair"),
    [("InternalFailure", False), ("NotAuthorizedForSourceException", True)],
)
def test_a_bus_that_takes_nothing_now_is_no_matter_for_an_operator(
    sweep, monkeypatch, code, needs_repair
):
    tables, invoke = sweep
    monkeypatch.setenv("STOCK_EVENT_BUS_NAME", "bus")
    refused = {"Entries": [{"ErrorCode": code, "ErrorMessage": "no"}]}
    tables.before = lambda operation, _: refused if operation == "PutEvents" else None
    if needs_repair:
        with pytest.raises(RepairNeededError, match=code):
            invoke()
    else:
        answer, _ = invoke()
        assert answer["unfinished"] == f"{code}: the bus refuses events of stock: no"


def test_with_the_setting_a_quiet_sweep_sends_two_requests_more(sweep, monkeypatch):
    tables, invoke = sweep
    monkeypatch.setenv("STOCK_EVENT_BUS_NAME", "bus")
    taken = []

    def before(operation, request):
        if operation == "PutEvents":
            taken.append(request["Entries"])
            return {"Entries": [{"EventId": "e"}]}
        return None

    tables.before = before
    answer, calls = invoke()
    assert (answer["published"], calls.count("UpdateItem"), len(taken)) == (1, 2, 1)
    answer, calls = invoke()
    assert (answer["published"], len(taken)) == (0, 1)
    assert (calls.count("Scan"), calls.count("BatchGetItem"), len(calls)) == (1, 3, 37)
