"""The demonstration's figures: all of them in its file, and of one run alone."""

import fcntl
import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from inventory_orders.domain.product import NewProduct
from local import demo
from operations.audit import Account, Books
from operations.emf import Sample
from operations.errors import UserError
from operations.lanes import read_all
from operations.orders_file import order_message
from operations.queues import DeadLetter, Depth
from tests.support.lanes import lend
from tests.support.tables_in_memory import tables_in_memory

SERVICE = frozenset({("service", "inventory-orders-dev")})
BORN = "2026-01-01T00:00:00.000000+00:00"


def line(product_id, quantity):
    return {"productId": product_id, "quantity": quantity, "productCreatedAt": BORN}


def result_of(**changes):
    """The second of two runs for one product: 5 units of 100 were sold before, 3 are sold by this one."""
    orders = {
        "earlier-1": {"status": "PENDING", "items": [line("tea", 5)]},
        "earlier-2": {"status": "REJECTED", "reason": "UNKNOWN_PRODUCT", "items": []},
        "own-1": {"status": "PENDING", "items": [line("tea", 3)]},
        "own-2": {"status": "REJECTED", "reason": "INSUFFICIENT_STOCK", "items": []},
    }
    messages = [order_message(f"own-{n}", "u", [("tea", 3)]) for n in (1, 2)]
    workload = demo.Workload([NewProduct("tea", 100)], [*messages, messages[0]], [], "Two orders")
    values = {
        "VersionConflict": (1.0, 0.0, 0.0, 0.0),
        "Retries": (1.0, 0.0),
        "OrdersPerTransaction": (1.0, 1.0, 1.0),
        "OrdersReplayed": (1.0,),
    }
    fields = {
        "workload": workload,
        "seconds": 0.5,
        "books": Books((Account("tea", BORN, "ACTIVE", 4, 92, 100, 8),), orders, []),
        "dead_letters": [DeadLetter("m", "INVALID_JSON", "", "")],
        "samples": [Sample(1, name, SERVICE, found) for name, found in values.items()],
        "lost": 0,
    }
    return demo.DemoResult(**fields | changes)


def test_the_shop_is_stocked_up_by_what_is_missing_in_rows_and_lanes_together():
    wanted = [NewProduct("tea", 1000), NewProduct("mug", 50)]
    with tables_in_memory() as shop:
        for product in wanted:
            shop.create(product.product_id, product.opening_stock - 7)
        lend(shop.store, "tea", 60, {1: 20})
        demo.stock_up(shop.operated, wanted, "d1")
        places = read_all(shop.operated)
        assert {p: places.on_hand(p) for p in places.rows} == {"tea": 1000, "mug": 50}
        assert set(shop.unexplained().values()) == {0}


def test_the_file_holds_every_figure_of_this_run_and_none_of_another():
    assert result_of().summary == {
        "ordersSent": 2,
        "messagesSent": 3,
        "ordersPlaced": 1,
        "ordersRejected": 1,
        "rejectedByReason": {"INSUFFICIENT_STOCK": 1},
        "ordersReplayed": 1,
        "ordersLost": 0,
        "deadLetters": 1,
        "deadLettersByCode": {"INVALID_JSON": 1},
        "booksBalance": True,
        "seconds": 0.5,
        "ordersPerSecond": 4.0,
        "messagesPerSecond": 6.0,
        "transactions": 3,
        "transactionsPer100Orders": 150.0,
        "commitAttempts": 4,
        "conflicts": 1,
        "conflictRate": 0.25,
        "retriesOnAverage": 0.5,
        "retriesAtMost": 1,
    }


def test_a_run_without_figures_in_the_logs_still_has_a_file():
    summary = result_of(samples=[]).summary
    assert (summary["conflictRate"], summary["retriesOnAverage"]) == (0, 0)
    json.dumps(summary, allow_nan=False)


def test_the_books_that_are_printed_are_those_of_this_run():
    screen = Console(file=io.StringIO(), width=120)
    demo.show(result_of(), screen)
    printed = screen.file.getvalue()
    (row,) = [row for row in printed.splitlines() if row.strip().startswith("tea")]
    assert row.split() == ["tea", "95", "3", "92", "92", "ACTIVE"]
    assert "4/s" in printed


def test_lines_of_an_earlier_run_that_are_written_late_do_not_count():
    samples = [Sample(at, "Retries", SERVICE, (1.0,)) for at in (999, 1000, 1001)]
    assert [sample.timestamp for sample in demo._samples_since(1000, samples)] == [1000, 1001]


def test_a_second_demo_at_the_same_time_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "STATE", tmp_path)
    with (tmp_path / "demo.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another demo is running"):
            demo.run_demo(None, None, None, None)


def test_a_demo_begins_when_the_messages_of_before_have_ended(monkeypatch):
    depths = iter([Depth(5, 1), Depth(0, 0), Depth(0, 1), Depth(0, 0), Depth(0, 0), Depth(0, 0)])
    monkeypatch.setattr(demo.queues, "depth", lambda *_: next(depths))
    monkeypatch.setattr(demo, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None))
    emulator = SimpleNamespace(check=lambda: None)
    demo._wait_for_earlier_messages(None, emulator, Console(file=io.StringIO()))
    assert list(depths) == []


def test_it_gives_up_on_messages_that_do_not_move(monkeypatch):
    seconds = iter(range(0, 10_000, 10))
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)), sleep=lambda _: None)
    monkeypatch.setattr(demo, "time", clock)
    monkeypatch.setattr(demo.queues, "depth", lambda *_: Depth(1, 0))
    emulator = SimpleNamespace(check=lambda: None)
    with pytest.raises(UserError, match="2 messages have been waiting for 90 s"):
        demo._wait_for_earlier_messages(None, emulator, Console(file=io.StringIO()))
    assert next(seconds) < 200
