"""The demonstration's result file contains all the figures from one run, and none from any other run."""

import fcntl
import io
import json
from collections import Counter
from dataclasses import replace
from itertools import count, repeat
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from inventory_orders.domain.events import EventType, order_events
from inventory_orders.domain.location import product_of
from inventory_orders.domain.order import Order
from inventory_orders.domain.order_command import Terms
from inventory_orders.domain.product import NewProduct
from inventory_orders.engine.outcomes import ChangeOutcome
from inventory_orders.errors import Outcome
from inventory_orders.messages.commands import parse_order_command
from inventory_orders.store.tables import Table
from local import ROOT, demo, demo_report, sample_orders, shelf
from local.commands import this_machine
from local.commands.main import app
from local.shop import Shop
from operations.books import Account, Books
from operations.dead_letters import DeadLetter
from operations.emf import Sample
from operations.errors import UserError
from operations.follow import Heard
from operations.lanes import read_all
from operations.orders_file import OrderMessage, order_message
from operations.queues import Depth
from testing.schedules.in_turn.lanes import lend
from testing.schedules.in_turn.shop import open_shop
from tests.support.demo_figures import check_sums, figures
from tests.support.orders import parse_order

SERVICE = frozenset({("service", "inventory-orders-dev")})
BORN = "2026-01-01T00:00:00.000000+00:00"
AS_THE_TABLES = "in sequence per order, matching the tables"

GOOD, SAME = (order_message("own-1", "u", [("tea", 3)]) for _ in range(2))
STRANGE = OrderMessage(order_message("own-1", "mallory", [("tea", 1)]).body)
INVALID = OrderMessage("{")


def line(product_id, quantity):
    return {"productId": product_id, "quantity": quantity, "productCreatedAt": BORN}


def heard_of(after, delay=0.0, before=None):
    """Return the first event caused by a change to a row, as a consumer receives it."""
    event = order_events(before, after)[0]
    return Heard({"detail-type": str(event.type), "detail": event.detail()}, delay)


def result_of(**changes):
    """Make the figures of the second of two runs for one product: the first sold 5 of 100 units, the second 3.

    One of the second run's two orders is rejected, but paid for anyway. A count finds 98 units.
    """
    orders = {
        "earlier-1": {"status": "PENDING", "items": [line("tea", 5)]},
        "earlier-2": {"status": "REJECTED", "reason": "UNKNOWN_PRODUCT", "items": []},
        "own-1": {"status": "PENDING", "items": [line("tea", 3)]},
        "own-2": {"status": "REJECTED", "reason": "INSUFFICIENT_STOCK", "items": []},
    }
    times = {"_version": 1, "createdAt": BORN, "lastUpdatedAt": BORN}
    orders = {i: {"orderId": i, "userId": "u", **times, **row} for i, row in orders.items()}
    messages = [order_message(f"own-{n}", "u", [("tea", 3)]) for n in (1, 2)]
    workload = demo.Workload(
        [NewProduct("tea", 100)],
        [],
        [*messages, messages[0], INVALID],
        [],
        "Two orders",
        "Three messages.",
    )
    shop = Shop("own", 2, frozenset())
    shop.hear(
        heard_of(order, delay) for order, delay in zip(orders.values(), range(4), strict=True)
    )
    before, late = orders["own-2"], {"at": BORN, "reason": "ORDER_REJECTED"}
    orders["own-2"] = before | {"_version": 2, "confirmationRejected": late}
    shop.hear([heard_of(orders["own-2"], 4.0, before)])
    values = {
        "VersionConflict": (1.0, 0.0, 0.0, 0.0),
        "Retries": (1.0, 0.0),
        "OrdersPerTransaction": (1.0,),
        "CommitLatency": (9.0, 9.0),
        "OrdersPlaced": (1.0,),
    }
    fields = {
        "workload": workload,
        "seconds": 0.5,
        "books": Books((Account("tea", BORN, "ACTIVE", 4, 90, 98, 98, 8, 0, 8),), orders, []),
        "dead_letters": [DeadLetter("m", "INVALID_JSON", "", "")],
        "samples": [Sample(1, name, SERVICE, found) for name, found in values.items()],
        "lost": 0,
        "replayed": 1,
        "shop": shop,
        "began": 0,
        "count": demo.ShelfCount("tea", 98, 8, -2),
        "transferred": None,
    }
    return demo.DemoResult(**fields | changes)


def test_the_shop_is_restocked_by_the_shortage_of_rows_and_lanes_together():
    wanted = [NewProduct("tea#berlin", 30), NewProduct("tea", 1000), NewProduct("mug", 50)]
    with open_shop() as shop:
        assert shelf.create(shop.stack, wanted) == [True] * 3
        shop.do(
            Order("d1-1", "u", {"tea": 10}, locations=("berlin",)),
            Order("d1-2", "u", {"tea": 7, "mug": 7}),
        )
        lend(shop.store, "tea", 60, {1: 20})
        assert shelf.create(shop.stack, wanted) == [False] * 3
        demo.stock_up(shop.stack, wanted, "d2")
        places = read_all(shop.stack)
        stock = {"tea": 1000, "tea#berlin": 30, "mug": 50}
        assert {key: places.available(key) for key in places.rows} == stock
        assert set(shop.unexplained().values()) == {0}


def test_the_file_has_every_figure_of_this_run_and_none_of_another():
    assert result_of().summary == {
        "ordersSent": 2,
        "messagesSent": 4,
        "ordersPlaced": 1,
        "ordersPlacedFrom": {"": 1},
        "ordersSplit": 0,
        "ordersNotFromFirstLocation": 0,
        "ordersRejected": 1,
        "rejectedByReason": {"INSUFFICIENT_STOCK": 1},
        "ordersResold": 0,
        "ordersTurnedAway": 0,
        "unitsOfOneBuyerAtMost": 0,
        "ordersReplayed": 1,
        "ordersLost": 0,
        "deadLetters": 1,
        "deadLettersByCode": {"INVALID_JSON": 1},
        "ordersNeverPaid": 0,
        "ordersChanged": 0,
        "changesRefused": 0,
        "handOversUndone": 0,
        "unitsShipped": 0,
        "unitsLost": 0,
        "unitsReturned": 0,
        "unitsTransferred": 0,
        "unitsMissingInCount": 2,
        "booksBalance": True,
        "seconds": 0.5,
        "ordersPerSecond": 4.0,
        "messagesPerSecond": 8.0,
        "transactions": 1,
        "transactionsPer100Orders": 50.0,
        "laneTransactions": 1,
        "commitAttempts": 4,
        "conflicts": 1,
        "conflictRate": 0.25,
        "otherFailedAttempts": 1,
        "retriesOnAverage": 0.5,
        "retriesAtMost": 1,
        "eventsDelivered": 3,
        "eventsByType": {"OrderPlaced": 1, "OrderRejected": 1, "ConfirmationRejected": 1},
        "eventsRepeated": 0,
        "eventsMissing": 0,
        "eventDifferences": 0,
        "eventDelayP50": 3.0,
        "eventDelayP99": 4.0,
    }


def printed(result):
    screen = Console(file=io.StringIO(), width=200)
    demo_report.show(result, screen)
    return screen.file.getvalue()


def books_with(*, corrupt=(), **account):
    good = result_of().books
    changed = (replace(good.accounts[0], **account),)
    return replace(good, accounts=changed, corrupt_rows=dict.fromkeys(corrupt, "o-9 breaks it"))


def test_a_complete_run_is_a_success_and_its_figures_add_up():
    assert result_of().good
    said = printed(result_of())
    check_sums(said)
    assert figures(said)["Events"][0] == 3
    (row,) = [row for row in said.splitlines() if row.startswith("tea")]
    assert row.split() == ["tea", "95", "-2", "3", "90", "8", "98"], (
        "the earlier run does not count"
    )
    assert figures(said)["not found"] == (
        2,
        "in a count of tea: 98 on the shelf, 8 of them already sold",
    )
    assert figures(said)["missing"] == (0, AS_THE_TABLES)
    assert "The books balance." in said
    assert "failed" not in said
    assert not {"Locations", "(default)", "several"} & figures(said).keys()


def test_the_printed_events_describe_all_events_of_orders():
    assert demo_report._EVENTS.keys() == {kind for kind in EventType if "Product" not in kind}


@pytest.mark.parametrize(
    ("books", "said"),
    [
        (books_with(stock=89), "tea has 89 available, but"),
        (books_with(goods=97), "tea has 97 on hand, but"),
        (books_with(problems=("its row has -3, below its floor of 0",)), "tea its row has -3"),
        (books_with(settled=False), "tea changed during every read"),
        (books_with(corrupt=["Orders o-9"]), "o-9 breaks it"),
    ],
)
def test_any_finding_in_the_books_is_printed_and_fails_the_run(books, said):
    result = result_of(books=books)
    assert (result.balance, result.good, result.summary["booksBalance"]) == (False, False, False)
    assert "The books do not balance: 1 finding." in printed(result)
    assert f"\n  {said}" in printed(result)


def unanswered():
    """Leave out the event, and its trace in the row, that answers the late payment."""
    shop = result_of().shop
    shop.heard = dict(list(shop.heard.items())[:-1])
    rows = result_of().books.orders
    unpaid = {name: v for name, v in rows["own-2"].items() if name != "confirmationRejected"}
    books = replace(books_with(), orders=rows | {"own-2": unpaid | {"_version": 1}})
    return {"shop": shop, "books": books}


@pytest.mark.parametrize(
    ("changes", "name", "figure", "said"),
    [
        (unanswered(), "missing", (1, ""), "1 event missing."),
        ({"lost": 1}, "lost", (1, "neither stored nor a dead letter"), "1 message lost."),
    ],
)
def test_what_is_missing_fails_the_run_and_is_named(changes, name, figure, said):
    result = result_of(**changes)
    assert (result.good, result.differences) == (False, [])
    assert figures(printed(result))[name] == figure
    assert f"The demonstration failed: {said}" in printed(result)


@pytest.mark.parametrize(
    ("stored", "codes", "lost"),
    [
        (GOOD, {STRANGE: "ORDER_ID_REUSED", INVALID: "INVALID_JSON"}, 0),
        # The injected order came first, so the other orders with its id count as the ones that reuse it.
        (STRANGE, {GOOD: "ORDER_ID_REUSED", INVALID: "INVALID_JSON"}, 0),
        (STRANGE, {GOOD: "TOO_MANY_DELIVERIES", INVALID: "INVALID_JSON"}, 2),
        (None, {GOOD: "SCHEMA_VIOLATION", STRANGE: "X", INVALID: "INVALID_JSON"}, 2),
        (None, {GOOD: "ORDER_ID_REUSED", STRANGE: "X", INVALID: "INVALID_JSON"}, 2),
        (GOOD, {GOOD: "ORDER_ID_REUSED", STRANGE: "X", INVALID: "INVALID_JSON"}, 2),
        (GOOD, {STRANGE: "ORDER_ID_REUSED"}, 1),
        (GOOD, {INVALID: "INVALID_JSON"}, 1),
    ],
)
def test_a_valid_order_that_is_dead_lettered_or_missing_is_lost(stored, codes, lost):
    orders = {}
    if stored is not None:
        row = {"status": "PENDING", "_version": 1, "createdAt": BORN, "lastUpdatedAt": BORN}
        orders = {"own-1": json.loads(stored.body) | row}
    sent = {str(number): each for number, each in enumerate((GOOD, SAME, STRANGE, INVALID))}
    dead_letters = {
        key: DeadLetter(key, codes[message], "", message.body)
        for key, message in sent.items()
        if message in codes
    }
    books = Books((), orders, [])
    assert demo.count_lost(sent, dead_letters, books) == lost
    if not lost:
        answered = len(orders) + demo.count_replayed(sent, dead_letters, books)
        assert answered + len(dead_letters) == len(sent)


@pytest.mark.parametrize(("lost", "status"), [(0, 0), (1, 1)])
def test_the_exit_status_is_0_only_if_nothing_was_lost(monkeypatch, tmp_path, lost, status):
    monkeypatch.setattr(this_machine, "start_embedded", lambda _: SimpleNamespace(endpoint=""))
    monkeypatch.setattr(this_machine, "use_embedded", lambda _: None)
    monkeypatch.setattr(this_machine.Aws, "of_stack", lambda _: None)
    desk = SimpleNamespace(address=lambda part: f"http://127.0.0.1:1/{part}")
    monkeypatch.setattr(this_machine.background, "start", lambda: desk)
    monkeypatch.setattr(demo, "run_demo", lambda *_: result_of(lost=lost))
    monkeypatch.setattr(demo, "STATE", tmp_path)
    assert CliRunner().invoke(app, ["demo"]).exit_code == status
    assert json.loads((tmp_path / "demo.json").read_text())["ordersLost"] == lost


def test_a_run_without_figures_in_the_logs_still_has_a_file():
    summary = result_of(samples=[]).summary
    assert (summary["conflictRate"], summary["retriesOnAverage"]) == (0, 0)
    json.dumps(summary, allow_nan=False)


def test_late_log_lines_of_an_earlier_run_do_not_count():
    samples = [Sample(at, "Retries", SERVICE, (1.0,)) for at in (999, 1000, 1001)]
    assert [sample.timestamp for sample in demo._samples_since(1000, samples)] == [1000, 1001]


def test_a_second_demo_at_the_same_time_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "STATE", tmp_path)
    with (tmp_path / "demo.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another demo is already running"):
            demo.run_demo(None, None, None, None)


def wait_for_earlier_messages(monkeypatch, depths, seconds):
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)), sleep=lambda _: None)
    monkeypatch.setattr(demo, "time", clock)
    monkeypatch.setattr(demo.queues, "depth", lambda *_: next(depths))
    aws = SimpleNamespace(outputs=dict.fromkeys((demo.queues.STANDARD, demo.queues.FIFO)))
    emulator = SimpleNamespace(check=lambda: None)
    demo._wait_for_earlier_messages(aws, emulator, Console(file=io.StringIO()))


def test_a_demo_starts_once_earlier_messages_are_settled(monkeypatch):
    depths = iter([Depth(5, 1), Depth(0, 0), Depth(0, 1), Depth(0, 0), Depth(0, 0), Depth(0, 0)])
    wait_for_earlier_messages(monkeypatch, depths, repeat(0))
    assert list(depths) == []


def test_a_demo_gives_up_on_messages_that_do_not_move(monkeypatch):
    seconds = count(0, 10)
    with pytest.raises(UserError, match="2 messages still waiting after 90 s"):
        wait_for_earlier_messages(monkeypatch, repeat(Depth(1, 0)), seconds)
    assert next(seconds) < 200


def day(shop, tables, numbers=range(40)):
    """Place orders, 5 of them rejected because stock is short, and let the shop respond to all events."""
    tables.list("tea", len(numbers) - 5)
    tables.list("mug", 200)
    rows, worker, said = {}, tables.worker(), []
    lines = ({"tea": 1} if number % 13 in (0, 9) else {"tea": 1, "mug": 2} for number in numbers)
    changes = [Order(f"{shop.run}-{n}", "u", line) for n, line in zip(numbers, lines, strict=True)]
    terms = Terms(keeps_rejections=True)
    while changes:
        tables.commit(worker, *changes)
        news = []
        for (order_id,) in tables.items(Table.ORDERS):
            row = tables.order_row(order_id)
            if row != rows.get(order_id):
                news.append(heard_of(row, before=rows.get(order_id)))
                rows[order_id] = row
        said += news
        changes = [parse_order_command(message.body, terms) for message in shop.hear(news)]
    return said, rows


def test_the_shop_pays_ships_loses_and_returns_units_in_response_to_events():
    with open_shop() as tables:
        shop = Shop("d1", 50, frozenset({"d1-3"}))
        shop.awaited -= 2
        _, rows = day(shop, tables, range(50))
        assert set(tables.unexplained().values()) == {0}
        accounts = tables.accounts()
    events = shop.events
    assert shop.differences(rows) == []
    assert events.total() == shop.awaited
    assert (events["OrderPlaced"], events["OrderRejected"]) == (45, 5)
    assert events["OrderConfirmed"] > events["OrderFulfilled"] > 1
    steps = [(step["action"], step.get("restock")) for step in rows["d1-43"]["steps"]]
    assert steps == [("confirm", None), ("fulfil", None), ("cancel", False), ("fulfil", None)]
    orders = [OrderMessage("", order_id) for order_id in rows]
    result = result_of(
        workload=replace(result_of().workload, standard=orders), books=Books((), rows, [])
    )
    shipped, lost, returned = (result.moved[name] for name in ("shipped", "lost", "returned"))
    assert (lost, returned) == (1, 3)
    assert shipped + lost - returned == sum(account.left for account in accounts) > 10
    assert figures(printed(result))["Shipped"] == (
        shipped,
        "units; 3 came back, 1 more broke during packing: cancelled and not restocked",
    )
    assert (events["ConfirmationRejected"], events["OrderReturned"]) == (1, 1)
    kinds = ("OrderAmended", "OrderAmendRejected", "OrderUnfulfilled")
    changed, refused, undone = (events[kind] for kind in kinds)
    assert (undone, figures(printed(result))["still there"][0]) == (1, 1)
    shown, words = figures(printed(result))["changed"]
    assert (shown, f"{refused} more changes were refused" in words) == (changed, True)
    assert min(changed, refused) > 0
    assert rows["d1-3"]["status"] == "PENDING", "the order is never paid"


def test_a_missing_late_wrong_or_unexplained_event_is_a_difference():
    with open_shop() as tables:
        said, rows = day(Shop("d1", 40, frozenset()), tables)
    fulfilled = next(order_id for order_id, row in rows.items() if row["status"] == "FULFILLED")
    of_one = [heard for heard in said if heard.event["detail"]["data"]["orderId"] == fulfilled]
    others = [heard for heard in said if heard not in of_one]

    def differences(news, orders=rows):
        shop = Shop("d1", 40, frozenset())
        shop.hear(news)
        return shop.differences(orders)

    assert differences(said) == differences([*said, *said]) == []
    for wrong in ([], of_one[:-1], of_one[1:], [of_one[1], of_one[0], *of_one[2:]]):
        (difference,) = differences([*others, *wrong])
        assert difference.startswith(f"{fulfilled}: the row says OrderPlaced (1, PENDING), ")
    (difference,) = differences(said, {i: row for i, row in rows.items() if i != fulfilled})
    assert "the row says nothing, the bus said OrderPlaced" in difference
    (difference,) = differences(said, rows | {fulfilled: rows[fulfilled] | {"_version": 9}})
    assert "? (9, FULFILLED)" in difference


def test_a_hold_may_end_during_the_day_or_after_it():
    row = {"orderId": "d1-2", "userId": "u", "status": "PENDING", "items": [line("tea", 1)]}
    row |= {"_version": 1, "createdAt": BORN, "lastUpdatedAt": BORN}
    end = {"action": "expire", "at": BORN, "restockedVersions": {"tea": BORN}}
    expired = row | {"status": "EXPIRED", "_version": 2, "steps": [end]}
    placed, ended = heard_of(row), heard_of(expired, before=row)
    for unpaid, news, differences in (
        ((), [placed, ended], 0),
        ((), [placed], 0),
        ((), [ended], 1),
        (("d1-2",), [placed], 1),
    ):
        shop = Shop("d1", 1, frozenset(unpaid))
        shop.hear(news)
        assert len(shop.differences({"d1-2": expired})) == differences
    shop = Shop("d1", 1, frozenset())
    commands = shop.hear([placed, ended])
    assert shop.awaited == 2 + len(commands)


def test_an_event_that_comes_twice_is_counted_and_answered_once():
    row = {"orderId": "d1-2", "userId": "u", "status": "REJECTED", "reason": "UNKNOWN_PRODUCT"}
    row |= {"items": [], "_version": 1, "createdAt": BORN, "lastUpdatedAt": BORN}
    shop = Shop("d1", 1, frozenset())
    heard = heard_of(row)
    (command,) = shop.hear([heard, heard, heard_of(row | {"orderId": "d2-2"})])
    assert json.loads(command.body) == {"action": "confirm", "orderId": "d1-2"}
    assert shop.hear([heard]) == []
    assert (len(shop.heard), shop.repeated, shop.awaited) == (1, 2, 2)


def file_of(folder, *orders):
    path = folder / "orders.jsonl"
    path.write_text("".join(order_message(*order).body + "\n" for order in orders))
    return path


def test_a_file_without_a_valid_order_is_refused(tmp_path):
    path = tmp_path / "orders.jsonl"
    path.write_text("{}\n")
    with pytest.raises(UserError, match="has no valid order"):
        demo.day_of_file("d1", path)


@pytest.mark.parametrize(
    "lines",
    [
        [[("mug", 1)]],
        [[("mug", 1)], [("cup", 2)], [("mug", 3), ("cup", 1)]],
        [[("mug", 1_000_000)]] * 1_001,
        [[(f"mug-{n}", 1)] for n in range(1_500)],
    ],
    ids=["one order", "three orders", "more units than a product may have", "many orders"],
)
def test_a_file_of_any_size_is_sent_completely_for_its_own_products(tmp_path, lines):
    path = file_of(tmp_path, *((f"o-{n}", "u", items) for n, items in enumerate(lines)))
    day = demo.day_of_file("d1", path)
    assert len(day.messages) == len(day.order_ids) == len(lines)
    stock = {product.product_id: product.opening_stock for product in day.products}
    assert all(product_id.startswith("demo-") for product_id in stock)
    assert max(stock.values()) <= 1_000_000_000
    assert sample_orders.demand(day.messages).keys() < stock.keys()
    # The unpaid orders need no units that the file's orders want.
    (unpaid,) = {product_id for order in day.unpaid for product_id in order.quantities}
    assert stock[unpaid] == len(day.unpaid)
    assert unpaid not in sample_orders.demand(day.messages)


def test_an_order_that_a_file_holds_twice_needs_its_units_once(tmp_path):
    day = demo.day_of_file("d1", file_of(tmp_path, *[("o", "u", [("mug", 2)])] * 2))
    assert "1 order for 1 product." in day.text
    assert sample_orders.demand(day.messages) == {"demo-file-mug": 2}
    assert day.products[0].opening_stock == 2


def test_a_file_is_demonstrated_with_invented_stock_and_says_so(tmp_path):
    orders = [(f"o-{n}", "u", [(f"mug-{n}", each)]) for n, each in enumerate((9, 8, 7, 6, 5, 4))]
    text = demo.day_of_file("d1", file_of(tmp_path, *orders)).text
    assert "fewer for 1 best seller, such as 3 of demo-file-mug-5, where they need 4. So" in text


def test_the_longest_ids_of_a_file_stay_valid_and_different(tmp_path):
    orders = ((f"{n}" * 128, "u", [("p" * 63 + f"{n}", 1)]) for n in (1, 2))
    day = demo.day_of_file("d1", file_of(tmp_path, *orders))
    assert len(day.order_ids) == len(sample_orders.demand(day.messages)) == 2
    assert all(order_id.startswith("d1-") for order_id in day.order_ids)


def test_an_order_keeps_its_other_fields_and_is_stocked_where_it_looks_first(tmp_path):
    path = tmp_path / "orders.jsonl"
    order = {"orderId": "o", "userId": "u", "items": [{"productId": "mug", "quantity": 2}]}
    order |= {"holdSeconds": 60, "attributes": {"a": "b"}, "locations": ["berlin", ""]}
    path.write_text(json.dumps(order) + "\n")
    day = demo.day_of_file("d1", path)
    own = {"orderId": "d1-o", "items": [{"productId": "demo-file-mug", "quantity": 2}]}
    assert [json.loads(message.body) for message in day.messages] == [order | own]
    assert "1 order for 1 product at (default), berlin. The" in day.text
    stock = {product.product_id: product.opening_stock for product in day.products}
    assert (stock["demo-file-mug"], stock["demo-file-mug#berlin"]) == (0, 2)
    assert (day.locations, day.transfer) == (["berlin"], None)
    with open_shop() as tables:
        demo.stock_up(tables.stack, day.products, "d1")
        assert tables.do(parse_order(day.messages[0].body)) == [Outcome.APPLIED]


def test_orders_of_a_file_that_name_no_locations_find_stock_at_those_of_the_setting(tmp_path):
    setting = ("berlin", "hamburg")
    path = file_of(tmp_path, ("o-1", "u", [("mug", 2)]), ("o-2", "u", [("mug", 1), ("cup", 1)]))
    with open_shop() as tables:
        earlier = [NewProduct("demo-file-mug", 0), NewProduct("demo-file-mug#hamburg", 9)]
        demo.stock_up(tables.stack, earlier, "d0")
        day = demo.day_of_file("d1", path, setting)
        demo.stock_up(tables.stack, day.products, "d1")
        orders = [parse_order(m.body, default_locations=setting) for m in day.messages]
        assert tables.do(*orders) == [Outcome.APPLIED] * 2
        rows = {order_id: tables.order_row(order_id) for (order_id,) in tables.items(Table.ORDERS)}
        assert tables.stock("demo-file-mug#hamburg") == 0, "units of an earlier file are removed"
    assert "Orders that name no locations use the setting: berlin, then hamburg. The" in day.text
    assert ", at the first location of each. So" in day.text
    result = result_of(workload=day, books=Books((), rows, []))
    assert (result.summary["ordersPlacedFrom"], result.passed_over) == ({"berlin": 2}, 0)


def test_an_order_of_too_many_products_for_the_setting_counts_as_invalid(tmp_path):
    path = file_of(
        tmp_path, ("big", "u", [(f"p-{n}", 1) for n in range(99)]), ("o", "u", [("p-1", 1)])
    )
    setting = ("berlin", "hamburg", "")
    assert demo.day_of_file("d1", path).order_ids == {"d1-big", "d1-o"}
    assert demo.day_of_file("d1", path, setting).order_ids == {"d1-o"}


def test_nothing_in_a_file_has_the_name_of_something_of_the_tea_shops_day(tmp_path):
    tea = demo.tea_shop_day("d1", 50)
    mine = [product_of(key).removeprefix("demo-") for key in (p.product_id for p in tea.products)]
    file = demo.day_of_file("d1", file_of(tmp_path, *((i, "u", [(i, 1)]) for i in set(mine))))
    own = {sample_orders.HELD_PRODUCT.product_id}
    assert {p.product_id for p in file.products} & {p.product_id for p in tea.products} == own
    assert {*tea.locations} == {"", "demo-berlin", "demo-store"}
    assert {*tea.transfer} <= {*tea.locations}


def test_each_tea_shop_day_is_the_same_except_for_its_ids():
    def of(run):
        day = demo.tea_shop_day(run, 300)
        bodies = [message.body.replace(run, "run") for message in day.messages]
        return day.products, bodies, [message.group for message in day.fifo], day.text

    assert of("d111111") == of("d222222")
    # Nothing has the id or the name of a sample.
    products = demo.tea_shop_day("d1", 50).products
    assert all(product.product_id.startswith("demo-") for product in products)
    assert "Earl Grey (demo)" in {product.name for product in products}
    assert not {p.name for p in products} & {p.name for p in sample_orders.catalogue()}


def test_errors_that_stop_the_demonstration_are_described(monkeypatch):
    with open_shop() as tables:
        why = "could not be placed: there is no product demo-never-paid; correct the id"
        with pytest.raises(UserError, match=why) as caught:
            demo.place_unpaid(tables.stack, sample_orders.never_paid("d1")[:1])
        assert "make down" in str(caught.value)
        tables.list("tea", 1)
        leased = ChangeOutcome(Outcome.RETURNED, cause="LEASED", detail="tea is under a lease")
        applied = SimpleNamespace(apply=lambda *_: SimpleNamespace(outcomes=[leased]))
        monkeypatch.setattr(demo, "engine_with_lanes", lambda _: applied)
        with pytest.raises(UserError, match="the stock of tea could not be set: tea is under a"):
            demo.stock_up(tables.stack, [NewProduct("tea", 2)], "d1")


def test_the_summary_names_the_alarms_that_dead_letters_turn_on():
    said = " ".join(printed(result_of()).split())
    # tests/infra/test_monitoring.py has the same alarms.
    assert (
        "Two alarms are on, because of this run's 1 dead letter. Messages Dead Lettered turns off after five minutes, Order Queue Dead "
        "Letters when"
    ) in said
    assert "alarm" not in printed(result_of(dead_letters=[]))


def test_the_readme_shows_figures_that_add_up_in_the_words_of_the_summary():
    shown = figures((ROOT / "README.md").read_text())
    ends = [shown[name][0] for name in ("placed", "rejected", "replayed", "dead letters", "lost")]
    assert shown["Orders sent"][1].startswith(f"in {sum(ends):,} messages")
    assert shown["Orders sent"][0] == sum(ends[:2])
    said = figures(printed(result_of()))
    for name in ("placed", "replayed", "lost"):
        assert shown[name][1] == said[name][1]
    assert demo.tea_shop_day("d1", demo.ORDERS).text in " ".join(
        (ROOT / "README.md").read_text().split()
    )


def test_an_order_that_did_not_expire_is_a_difference_and_fails_the_run():
    good = result_of()
    assert good.good
    unpaid = sample_orders.never_paid("own")[:1]
    result = result_of(workload=replace(good.workload, unpaid=unpaid))
    assert [d.split(": ")[0] for d in result.differences] == ["own-unpaid-0"]
    assert not result.good
    assert "own-unpaid-0: unpaid, but not expired" in printed(result)


def wait_for(monkeypatch, shop, listen, depths):
    """Let the shop listen with a clock that advances 10 s per reading. Returns the seconds until it stops and the output."""
    now = [0]

    def monotonic():
        now[0] += 10
        return float(now[0])

    screen = Console(file=io.StringIO(), width=200)
    monkeypatch.setattr(demo, "time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr(demo.queues, "send", lambda *_: None)
    monkeypatch.setattr(demo.queues, "depth", lambda _, queue: Depth(0, depths(queue)))
    demo._live_on(None, SimpleNamespace(check=lambda: None), screen, shop, listen)
    return now[0], screen.file.getvalue()


def resold(number, name, units, **more):
    """Make the row of a reseller's order for a product with a purchase limit."""
    items = [line("box", units) | ({} if "reason" in more else {"limitGroup": "box"})]
    times = {"_version": 1, "createdAt": BORN, "lastUpdatedAt": BORN}
    row = {"orderId": f"own-{number}", "userId": name, "buyers": [name, "card"], "items": items}
    return row | times | {"status": "PENDING", **more}


@pytest.mark.parametrize(
    ("units", "words"),
    [(1, "no buyer has more than 2 units"), (2, "one buyer has 3 units, more than 2")],
)
def test_a_buyer_with_more_than_the_limit_fails_the_run(units, words):
    rejected = {"status": "REJECTED", "reason": "PURCHASE_LIMIT"}
    rows = [resold(1, "ann", 1), resold(2, "ben", units), resold(3, "cid", 1, **rejected)]
    orders, good = {row["orderId"]: row for row in rows}, result_of()
    messages = [order_message(order_id, "u", [("box", 1)]) for order_id in orders]
    workload = replace(good.workload, standard=messages, resold=frozenset(orders))
    result = replace(good, workload=workload, books=replace(good.books, orders=orders))
    assert (result.turned_away, result.bought["card"]) == (1, 1 + units)
    assert words in printed(result)
    assert result.is_fair is (units == 1)
    lost = {"action": "cancel", "at": BORN, "stepId": "c", "items": [line("box", 1)]}
    rows[1]["steps"] = [lost]
    assert result.bought == Counter({"card": units, "ann": 1, "ben": units - 1})


def test_the_shop_stops_listening_when_nothing_moves(monkeypatch):
    shop = Shop("d1", 1, frozenset())
    seconds, said = wait_for(monkeypatch, shop, lambda _: [], lambda queue: 3)
    assert 90 < seconds < 130
    assert shop.heard == {}
    assert "Nothing has changed for 90 s, so the demo stops waiting for 1 event." in said
    assert "In the queues: 3 commands, 3 holds to expire." in said


@pytest.mark.parametrize("queue", [demo.queues.COMMANDS, demo.queues.EXPIRIES])
def test_the_demo_waits_for_late_events_while_a_queue_moves(monkeypatch, queue):
    row = {"orderId": "d1-1", "userId": "u", "status": "PENDING", "items": [line("tea", 1)]}
    late = heard_of(row | {"_version": 1, "createdAt": BORN, "lastUpdatedAt": BORN})
    depths = iter(range(100, 0, -1))
    news = iter([[]] * 50 + [[late]])
    seconds, said = wait_for(
        monkeypatch,
        Shop("d1", 1, frozenset()),
        lambda _: next(news),
        lambda of: next(depths) if of == queue else 1,
    )
    assert seconds >= 500
    assert "Nothing has moved" not in said
