"""Events and sales while movements are recorded late, or not at all."""

import pytest

from inventory_orders.clock import SystemClock
from inventory_orders.store import movements
from inventory_orders.store.tables import Table
from testing.aws import ServiceError
from testing.aws.streams import Shard
from testing.shop import RunningShop
from testing.world.clock import ManualClock
from testing.world.streams import change, order_row

HOUR = 3600.0


@pytest.fixture
def shop():
    with RunningShop().open() as shop:
        shop.list("tea", 5)
        shop.changes.clear()
        yield shop


class SimulatedReader(Shard):
    """The poller of one of the two functions that read the stream of orders, on a clock of its own."""

    def __init__(self, shop, function):
        self.shop = shop
        self.began = ManualClock().seconds
        super().__init__(
            ManualClock(), lambda records: shop.invoke(function, {"Records": [*records]})
        )

    @property
    def seconds(self):
        """How long it has been polling."""
        return self._clock.seconds - self.began


def refuse(shop, code):
    """Let every write of movements fail, but no other write."""

    def fail(operation, request):
        tables = {request.get("TableName"), *request.get("RequestItems", ())}
        if operation in ("BatchWriteItem", "UpdateItem") and Table.MOVEMENTS in tables:
            raise ServiceError(code, "no")

    shop.before = fail


@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDeniedException"])
def test_events_are_published_and_products_sold_while_movements_cannot_be_recorded(shop, code):
    refuse(shop, code)
    began = shop.clock.now()
    publisher, recorder = (
        SimulatedReader(shop, name) for name in ("publish_events", "record_movements")
    )
    for number in range(6):
        shop.order(f"o-{number}", tea=1)
    records = list(shop.changes)
    publisher.poll(records)
    assert [each["detail-type"] for each in shop.bus.taken if "Order" in each["detail-type"]] == [
        *["OrderPlaced"] * 5,
        "OrderRejected",
    ]
    assert (publisher.seconds, shop.stock("tea")) == (0.0, 0)
    assert shop.clock.now() - began < 5
    assert shop.rows(Table.MOVEMENTS) == []

    # Lambda tries again until the table accepts writes.
    orders = [each for each in records if "orderId" in each["dynamodb"]["Keys"]]
    handle, attempts = recorder._handle, []

    def recover(batch):
        attempts.append(len(batch))
        if len(attempts) == 20:
            shop.before = lambda *_: None
        handle(batch)

    recorder._handle = recover
    recorder.poll(orders)
    assert (recorder.given_up, len(attempts) > 20) == ([], True)
    found = [row["orderId"] for row in movements.movements(shop.store, "tea", 9)]
    assert sorted(found) == [f"o-{number}" for number in range(5)]


def test_wrong_and_missing_movements_change_nothing_that_is_sold(shop):
    stray = change(None, order_row("o-9", items=[{**order_row()["items"][0], "quantity": 99}]))
    shop.invoke("record_movements", {"Records": [stray]})
    for number in range(6):
        shop.order(f"o-{number}", tea=1)
    statuses = [shop.status(f"o-{number}") for number in range(6)]
    assert statuses == ["PENDING"] * 5 + ["REJECTED"]
    assert set(shop.unexplained().values()) == {0}


def test_after_an_outage_readers_are_told_up_to_when_movements_are_complete(shop):
    shop.order("o-1", tea=1)
    (record,) = [each for each in shop.changes if "orderId" in each["dynamodb"]["Keys"]]
    record["dynamodb"]["ApproximateCreationDateTime"] = shop.clock.now()
    placed_at = shop.order_row("o-1")["createdAt"]
    shop.clock.sleep(HOUR)

    def note_only(operation, request):
        if operation == "BatchWriteItem":
            raise ServiceError("ThrottlingException", "no")

    shop.before = note_only
    with pytest.raises(Exception, match="no"):
        shop.invoke("record_movements", {"Records": [record]})
    movements.advance(shop.store, SystemClock().now())
    assert movements.complete_until(shop.store) <= placed_at
    shop.before = lambda *_: None
    shop.invoke("record_movements", {"Records": [record]})
    shop.clock.sleep(400)
    movements.advance(shop.store, SystemClock().now())
    assert movements.complete_until(shop.store) > placed_at
