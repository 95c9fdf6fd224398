"""The tables of docs/costs.md match docs_generator/costs.py; the page's units and log sizes match the handlers."""

import json
import math
import random
import re
import zlib
from datetime import UTC, datetime
from uuid import UUID

import pytest

from docs_generator import costs
from inventory_orders.clock import Deadline, SystemClock, timestamp
from inventory_orders.products.fold import Fold
from inventory_orders.publishing.publisher import Bus
from inventory_orders.publishing.stock import StockWatch
from inventory_orders.store.recent_changes import MOST
from inventory_orders.store.rows import decode
from inventory_orders.store.sweep_rows import STOCK_PARTS, StockPart, stock_part_row
from inventory_orders.store.tables import Table
from local import ROOT
from local.sample_orders import catalogue
from operations import prices
from testing.aws.values import size_of_item
from testing.world.events import order_body, sqs_event
from testing.world.streams import change

PAGE = costs.PAGE.read_text("utf-8")
TEAS = [product.product_id for product in catalogue()]


def test_the_tables_are_what_the_prices_say():
    assert costs.updated(PAGE) == PAGE, "out of date: run `make docs`"
    assert all(table in PAGE for table in costs.tables())


def orders_of(kind, prefix="cost"):
    sold_out = kind.updates == 0
    for number in range(kind.batch):
        # In the other case, each order has a product of its own.
        first = 0 if kind.reads == 1 else number * kind.lines
        wanted = TEAS[first : first + kind.lines]
        order = order_body(
            f"{prefix}-{number}", dict.fromkeys(wanted, 1_000_000 if sold_out else 1)
        )
        buyers = [f"u-{number}-{key}" for key in range(kind.buyers)]
        yield order | ({"buyers": buyers} if buyers else {})


def give_ids(event):
    """Give messages ids that are as long as the ones from SQS, because the log contains them."""
    for number, record in enumerate(event["Records"]):
        record["messageId"] = str(UUID(int=number))


@pytest.mark.parametrize("kind", costs.KINDS, ids=lambda kind: kind.title)
def test_each_kind_of_order_takes_these_units_and_log_bytes(kind, tea_shop, capsys):
    if kind.buyers:
        limit = {"action": "change", "productId": TEAS[0], "purchaseLimit": 2}
        assert tea_shop.invoke("manage_products", limit)["result"] == "APPLIED"
    # A worker that reads nothing has filled its lane before.
    for prefix in ("cost",) if kind.reads else ("fills", "cost"):
        event = sqs_event(*orders_of(kind, prefix))
        give_ids(event)
        capsys.readouterr()
        before = consumed(tea_shop)
        answer = tea_shop.invoke("place_orders", event)
        assert answer == {"batchItemFailures": []}
    assert len(capsys.readouterr().out) == pytest.approx(kind.log_bytes, rel=0.15)
    written, read = (now - then for now, then in zip(consumed(tea_shop), before, strict=True))
    assert written == pytest.approx(kind.write_units * kind.batch)
    assert read == pytest.approx(kind.read_units * kind.batch)
    row = tea_shop.items(Table.ORDERS)["cost-0",]
    assert math.ceil(size_of_item(row) / 1024) == kind.row_kilobytes


def test_an_idle_sweep_takes_these_units(shop):
    before = consumed(shop)
    assert shop.invoke("sweep", {"action": "sweep"})["result"] == "SWEPT"
    written, read = (now - then for now, then in zip(consumed(shop), before, strict=True))
    # In this shop, no lane was ever used.
    assert (written, read) == (costs.WRITE_UNITS_OF_A_SWEEP, costs.READ_UNITS_OF_A_SWEEP)
    assert f"A sweep takes {costs.READ_UNITS_OF_A_SWEEP:.0f} read units" in PAGE


def test_stock_events_take_these_units(shop):
    stock = costs.STOCK_EVENTS[0]
    shop.list("p-0", 1000, name="Earl Grey loose leaf", price=1290, low_stock_threshold=5)
    products = shop.aws.dynamodb.tables["Products"]
    row = shop.row("p-0")
    for number in range(1, stock.products):
        item = row | {"productId": {"S": f"SKU-{number:07}"}}
        shop.aws.dynamodb.answer("PutItem", {"TableName": "Products", "Item": item})
    watch = StockWatch(shop.worker().client, Bus(shop.bus, "bus"))

    def sweep():
        shop.clock.sleep(60)
        return watch.publish(Deadline.after(40, SystemClock()))

    assert sweep() == len(products.items) == stock.products
    _, reads = consumed(shop)
    assert sweep() == 0
    assert consumed(shop)[1] - reads == pytest.approx(stock.read_units, rel=0.1)
    products.items["p-0",] |= {"stockCount": {"N": "999"}}
    writes, _ = consumed(shop)
    assert sweep() == 1
    assert consumed(shop)[0] - writes == stock.write_units


def test_published_events_take_as_much_space_as_the_costs_say():
    chance, products = random.Random(0), costs.STOCK_EVENTS[-1].products // STOCK_PARTS
    levels = {
        f"SKU-{chance.randrange(10**8):08}": (
            timestamp(datetime.fromtimestamp(1.8e9 + chance.random() * 3e7, UTC)),
            *(chance.randrange(1000), chance.randrange(1000)),
            "ACTIVE",
        )
        for _ in range(products)
    }
    room = len(stock_part_row(StockPart(1, 9, "", levels))["levels"])
    assert room == pytest.approx(products * costs.LEVEL_BYTES, rel=0.1)


@pytest.mark.parametrize("alike", [1, 3])
@pytest.mark.parametrize("one", costs.HAND_OVERS, ids=lambda one: one.title)
def test_a_hand_over_and_its_fold_take_these_units(one, alike, tea_shop):
    ordered = 13 if "13" in one.title else 1
    part = {"stepId": "s-1", "items": [{"productId": TEAS[0], "quantity": 1}]}
    for number in range(alike):
        order_id = f"cost-{number}"
        tea_shop.invoke(
            "place_orders", sqs_event(order_body(order_id, dict.fromkeys(TEAS[:ordered], 1)))
        )
        for action in ("confirm", "fulfil"):
            command = {"action": action, "orderId": order_id}
            by_line = action == "fulfil" and one.lines < ordered
            before = consumed(tea_shop)
            event = sqs_event(command | (part if by_line else {}), queue="OrderCommandQueue")
            assert tea_shop.invoke("change_orders", event) == {"batchItemFailures": []}
        assert consumed(tea_shop)[0] - before[0] == one.write_units
    before = consumed(tea_shop)
    fold = Fold(tea_shop.worker().client, Deadline.after(20, SystemClock())).run()
    assert fold.folded == one.lines
    assert consumed(tea_shop)[0] - before[0] == pytest.approx(one.fold_units(alike) * alike)


def message_of(step, number, product_id):
    order_id = f"cost-{number}"
    match step.title:
        case "placed":
            return order_body(order_id, {product_id: 1}) | {"holdSeconds": 60}
        case "expired":
            return {"orderId": order_id}
        case "confirmed":
            return {"action": "confirm", "orderId": order_id}
        case "fulfilled":
            return {"action": "fulfil", "orderId": order_id}


@pytest.mark.parametrize("life", costs.LIVES, ids=lambda life: life.title)
def test_each_life_of_an_order_takes_these_units_and_log_bytes(life, shop, capsys):
    placed, orders = life.steps[0], shop.aws.dynamodb.tables["Orders"]
    for number in range(placed.updates):
        shop.list(f"p-{number}")
    shop.restart(HOLD_GRACE_SECONDS="0")
    # A process reads the outbound pages once.
    shop.order("before", **{"p-0": 1})
    for action in ("confirm", "fulfil"):
        shop.invoke("change_orders", {"action": action, "orderId": "before"})
    for step in life.steps:
        function = "place_orders" if step is placed else "change_orders"
        event = sqs_event(
            *(message_of(step, n, f"p-{n % placed.updates}") for n in range(step.batch)),
            queue="ExpiryQueue" if step.title == "expired" else "OrderCommandQueue",
        )
        give_ids(event)
        if step.title == "expired":
            shop.clock.sleep(70)
        before, used, asked = dict(orders.items), consumed(shop), len(shop.calls)
        capsys.readouterr()
        assert shop.invoke(function, event) == {"batchItemFailures": []}
        assert len(capsys.readouterr().out) == pytest.approx(step.log_bytes, rel=0.15)
        writes, reads = (now - then for now, then in zip(consumed(shop), used, strict=True))
        assert writes == pytest.approx(step.write_units * step.batch)
        assert reads == pytest.approx(step.read_units * step.batch)
        assert shop.calls[asked:].count("GetQueueAttributes") == step.queue_requests
        logged = [
            published(shop, before.get(key), row, capsys)
            for key, row in orders.items.items()
            if row is not before.get(key)
        ]
        assert len(logged) == step.batch
        assert max(logged) == pytest.approx(costs.LOG_BYTES_OF_AN_EVENT, rel=0.15)
    if life is costs.LIVES[0]:
        assert stored_bytes(orders, orders.items["cost-0",]) == costs.STORED_BYTES


def stored_bytes(orders, row):
    """Return the bytes of an order's row and of its entries in the two indexes that contain it."""
    entries = {name: orders.entry(index, row) for name, index in orders.indexes.items()}
    kept = {name: size_of_item(entry) for name, entry in entries.items() if entry is not None}
    assert [*kept] == ["byUser", "byStatus"]
    return size_of_item(row), *kept.values()


def published(shop, before, after, capsys):
    """Publish one change of an order as one small event, and return the bytes logged."""
    record = change(decode(before) if before else None, decode(after))
    shop.bus.calls.clear()
    shop.invoke("publish_events", {"Records": [record]})
    ((entry,),) = shop.bus.calls
    assert len(entry["Detail"]) < 65_536
    return len(capsys.readouterr().out)


def consumed(shop):
    """Return the write and read units consumed on all tables and their indexes."""
    used = [table.consumed for table in shop.aws.dynamodb.tables.values()]
    return (
        sum(one.writes + sum(one.index_writes.values()) for one in used),
        sum(one.reads + sum(one.index_reads.values()) for one in used),
    )


def test_what_a_kept_order_costs():
    dollars, *stored = re.search(
        r"million orders costs \$(\S+) a month, .* (\d+) bytes in its row, (\d+) in `byUser` and (\d+) in `byStatus`\.",
        re.sub(r"\n ?", "", PAGE),
    ).groups()
    assert tuple(map(int, stored)) == costs.STORED_BYTES
    assert float(dollars) == round(costs.storage_dollars(*costs.STORED_BYTES), 2)


def test_what_the_api_costs(shop):
    alone, placed, looked, queued = re.search(
        r"million requests cost \$(\S+) .*\[immediately\]\S+ costs \$(\S+), and reading them costs \$(\S+)\. .* costs \$(\S+) more",
        PAGE.replace("\n", " "),
    ).groups()
    assert float(alone) == round(costs.asking_dollars(10**6), 2)
    units = costs.UNITS_OF_A_WAITED_ORDER
    assert float(placed) == round(costs.asking_dollars(10**6, *units), 2)
    assert float(looked) == round(costs.asking_dollars(10**6, read_units=1.0), 2)
    assert float(queued) == round(costs.asking_dollars(10**6) + 10**6 * prices.SQS_REQUEST, 2)
    shop.list(TEAS[0])
    event = json.loads((ROOT / "events" / "api.json").read_text())
    event["body"] = json.dumps(order_body("o-1", {TEAS[0]: 1}))
    before = consumed(shop)
    assert shop.invoke("api", event)["statusCode"] == 201
    now = consumed(shop)
    assert (now[0] - before[0], now[1] - before[1]) == pytest.approx(units)


def test_what_the_logs_of_the_api_cost(shop, capsys):
    dollars, logged, of_access = re.search(
        r"their logs \$(\S+) \((\S+) bytes each, (\S+) of them in the access log\)", PAGE
    ).groups()
    assert int(logged) == costs.LOG_BYTES_OF_A_REQUEST
    assert int(of_access) == costs.ACCESS_LOG_BYTES
    assert float(dollars) == round(costs.log_dollars(10**6 * costs.LOG_BYTES_OF_A_REQUEST), 2)
    shop.list(TEAS[0])
    event = json.loads((ROOT / "events" / "api.json").read_text())
    event["routeKey"] = "GET /products/{productId}"
    event["pathParameters"] = {"productId": TEAS[0]}
    before = consumed(shop)
    capsys.readouterr()
    answer = shop.invoke("api", event)
    assert answer["statusCode"] == 200, answer
    of_function = costs.LOG_BYTES_OF_A_REQUEST - costs.ACCESS_LOG_BYTES - costs.PLATFORM_LOG_BYTES
    assert len(capsys.readouterr().out) == pytest.approx(of_function, rel=0.15)
    assert consumed(shop)[1] - before[1] <= 1.0, "the price list assumes at most one read unit"


def test_what_a_million_events_cost():
    alone, ten = re.search(
        r"million \[events\]\(\S+\) cost \$(\S+) if each is published alone, and \$(\S+) if ten",
        PAGE,
    ).groups()
    assert float(alone) == round(costs.publishing_dollars(10**6, 1), 2)
    assert float(ten) == round(costs.publishing_dollars(10**6, 10), 2)


def test_what_an_open_page_of_the_desk_costs(shop, capsys):
    frame = (ROOT / "local" / "desk" / "page" / "app.js").read_text("utf-8")
    (wait,) = re.findall(r"\[POLL_MILLISECONDS, \w+\] = \[(\d+),", frame)
    assert int(wait) / 1000 == costs.POLL_SECONDS
    (rest,) = re.findall(r"REST_MILLISECONDS = (\d+);", frame)
    assert int(rest) / 1000 == costs.REST_SECONDS
    assert costs.DESKS[0].dollars == 0, "only open pages ask"
    roles = {"claim": "roles", "grants": {"owners": ["*"]}}
    shop.restart(USER_ID_CLAIM="sub", ROLES=json.dumps(roles))
    chance = random.Random(0)
    keys = [f"o-{chance.getrandbits(48):012x}" for _ in range(MOST)]
    entries = [["Orders", key, 1 + number, ["berlin"]] for number, key in enumerate(keys)]
    content = zlib.compress(json.dumps([0, entries], separators=(",", ":")).encode())
    shop.write(Table.ALLOTMENTS, {"page": "changes", "_version": MOST, "content": content})
    size = size_of_item(shop.item(Table.ALLOTMENTS, "changes"))
    assert math.ceil(size / 1024) == 3, "the page says so"
    event = json.loads((ROOT / "events" / "api.json").read_text())
    event |= {"routeKey": "GET /changes", "pathParameters": None, "body": None}
    event["queryStringParameters"] = {"since": "0"}
    event["requestContext"]["authorizer"] = {"jwt": {"claims": {"sub": "a", "roles": "[owners]"}}}
    before = consumed(shop)
    capsys.readouterr()
    answer = shop.invoke("api", event)
    assert len(json.loads(answer["body"])["orders"]) == MOST
    of_function = costs.LOG_BYTES_OF_A_REQUEST - costs.ACCESS_LOG_BYTES - costs.PLATFORM_LOG_BYTES
    assert len(capsys.readouterr().out) == pytest.approx(of_function, rel=0.15)
    assert consumed(shop)[1] - before[1] == costs.READ_UNITS_OF_A_POLL


def test_what_a_list_of_orders_to_ship_reads(shop):
    for number in range(30):
        create = {"action": "create", "productId": f"p-{number}", "openingStock": 100}
        shop.invoke("manage_products", create)
    for number in range(100):
        items = [
            {"productId": f"p-{product % 30}", "quantity": 1} for product in (number, number + 7)
        ]
        shop.invoke("place_orders", {"orderId": f"o-{number}", "userId": "u", "items": items})
        shop.invoke("change_orders", {"action": "confirm", "orderId": f"o-{number}"})
    event = json.loads((ROOT / "events" / "api.json").read_text())
    event |= {"routeKey": "GET /orders", "pathParameters": None, "body": None}
    event["queryStringParameters"] = {"status": "CONFIRMED", "limit": "100"}
    event["requestContext"]["authorizer"] = {"iam": {"userArn": "arn:aws:iam::1:user/anna"}}
    before = consumed(shop)
    answer = shop.invoke("api", event)
    assert len(json.loads(answer["body"])["orders"]) == 100
    assert consumed(shop)[1] - before[1] == costs.READ_UNITS_OF_A_LIST
