"""The desk's server sends events to all open pages, and shows how a product sells."""

import json
import socket
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from threading import Barrier, Event
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from local.desk import drop, live
from local.desk.drop import Drops
from local.desk.live import Live
from local.desk.site import Site, serving
from local.desk.work import Desk
from operations.errors import UserError
from operations.follow import Heard
from tests.support.desk import TOKEN, LiveByHand

TEA = "tea"
NOON = 1_795_600_800.0


def event(kind="OrderPlaced", order_id="o-1", at=NOON, items=(), **data):
    lines = [{"productId": product_id, "quantity": units} for product_id, units in items]
    occurred = datetime.fromtimestamp(at, UTC).isoformat()
    metadata = {"eventId": f"{order_id}#1#{kind}", "occurredAt": occurred}
    detail = {"metadata": metadata, "data": {"orderId": order_id, "items": lines, **data}}
    return {"detail-type": kind, "detail": detail}


class Bus:
    """A fake event bus: the events that a subscriber receives, and whether there is a subscriber."""

    def __init__(self, monkeypatch):
        self.events = []
        self.buses = []
        self.listens = Event()
        self.ended = Event()
        self.hear = self._hear
        monkeypatch.setattr(live, "listening", self.listening)
        monkeypatch.setattr(live, "_BEAT_SECONDS", 0.02)

    @contextmanager
    def listening(self, aws):
        self.buses.append(aws.outputs["EventBusName"])
        self.listens.set()
        try:
            yield self._listen
        finally:
            self.ended.set()

    def _listen(self, seconds):
        return self.hear(seconds)

    def _hear(self, seconds):
        while self.events:
            yield Heard(self.events.pop(0), None)
        self.ended.wait(seconds)


class Shop:
    """A fake stack, with the number of dead letters that the desk finds in it."""

    def __init__(self):
        self.outputs = {"EventBusName": "bus-1"}
        self.dead_letters = 0
        self.live = Live(lambda: SimpleNamespace(outputs=self.outputs), self.look, 0)

    def look(self):
        if isinstance(self.dead_letters, Exception):
            raise self.dead_letters
        return self.dead_letters


@pytest.fixture
def bus(monkeypatch):
    return Bus(monkeypatch)


@pytest.fixture
def shop(bus):
    shop = Shop()
    yield shop
    shop.live.close(10)


@contextmanager
def stream(shop, path="/data/events"):
    desk = Desk(lambda: shop, is_embedded=True)
    with serving(Site(desk, TOKEN, shop.live)) as port:
        address = urlsplit(f"http://127.0.0.1:{port}")
        with (
            socket.create_connection((address.hostname, address.port), timeout=60) as to,
            to.makefile("r") as lines,
        ):
            headers = f"Host: 127.0.0.1\r\nX-Desk-Token: {TOKEN}\r\n\r\n"
            to.sendall(f"GET {path} HTTP/1.1\r\n{headers}".encode())
            assert "200" in next(lines)
            while next(lines).strip():
                pass
            yield (json.loads(line) for line in lines)


def first(news, wanted=bool):
    return next(each for each in news if wanted(each))


def test_events_are_sent_as_they_happen_until_the_last_page_has_gone_for_a_while(
    monkeypatch, bus, shop
):
    with stream(shop) as lines:
        assert next(lines) == {}
        with closing(shop.live.news()) as other:
            assert next(other) == {}
            bus.events.append({"detail": "a\nb"})
            assert first(lines) == first(other) == {"event": {"detail": "a\nb"}}
            assert next(lines) == {}
        assert next(lines) == {}
        assert bus.buses == ["bus-1"], "all pages share one queue"
        assert not bus.ended.is_set()
    # Nothing is missed while the reader changes the page.
    heard = []
    shop.live.heard = lambda heard_now: heard.append(heard_now.event)
    bus.events.append({"detail": "between"})
    with closing(shop.live.news()) as another:
        first(another, lambda _: heard)
    assert heard == [{"detail": "between"}]
    assert bus.buses == ["bus-1"]
    monkeypatch.setattr(live, "_LINGER_SECONDS", 0)
    assert bus.ended.wait(60), "the queue and the rule must be removed"
    bus.ended.clear()
    with closing(shop.live.news()) as again:
        assert next(again) == {}
    assert bus.buses == ["bus-1"] * 2


def test_when_the_server_ends_nobody_listens_any_more(bus, shop):
    with stream(shop) as lines:
        assert next(lines) == {}
        shop.live.close(10)
        assert bus.ended.is_set(), "the queue and the rule must be removed"
        assert all("problem" not in each for each in lines), "the stream ends without an error"


def test_the_end_waits_for_what_a_page_that_has_just_gone_leaves_behind(bus, shop):
    ends = Event()

    def hear(_):
        ends.wait(60)
        return iter(())

    bus.hear = hear
    with closing(shop.live.news()) as page:
        next(page)
    ends.set()
    shop.live.close(10)
    assert bus.ended.is_set()


def test_why_nobody_can_listen_is_said_and_the_next_page_tries_again(monkeypatch, bus, shop):
    listening = bus.listening

    def refuse(_):
        raise UserError("AWS does not let you listen")

    monkeypatch.setattr(live, "listening", refuse)
    with stream(shop) as lines:
        assert [*lines] == [{"problem": "AWS does not let you listen"}]
    monkeypatch.setattr(live, "listening", listening)
    with stream(shop) as lines:
        assert next(lines) == {}


def test_an_error_of_the_desk_itself_is_said_too(bus, shop, capsys):
    shop.live.heard = lambda heard: heard.event["detail"]
    bus.events.append({})
    with closing(shop.live.news()) as page:
        assert first(page) == {"problem": "KeyError: 'detail'"}
    assert bus.ended.is_set()
    assert "Traceback" in capsys.readouterr().err


def test_there_is_no_heartbeat_while_aws_does_not_answer(bus, shop):
    answers, asked = Event(), Event()

    def hear(_):
        asked.set()
        answers.wait(60)
        return iter(())

    with closing(shop.live.news()) as page:
        assert next(page) == {}
        bus.hear = hear
        assert asked.wait(60)
        told = []
        tell, shop.live._tell = shop.live._tell, told.append
        for _ in range(20):
            before = len(told)
            answers.wait(10 * live._BEAT_SECONDS)
            if len(told) == before:
                break
        assert len(told) == before, "the heartbeats end"
        shop.live._tell = tell
        answers.set()
        assert next(page) == {}


def test_a_stack_that_is_deployed_anew_is_followed(bus, shop):
    with closing(shop.live.news()) as page:
        assert next(page) == {}
        since = shop.live.since
        shop.outputs = {"EventBusName": "bus-2"}
        assert bus.ended.wait(60)
        bus.ended.clear()
        bus.events.append({"detail": 1})
        assert first(page) == {"event": {"detail": 1}}
        assert bus.buses == ["bus-1", "bus-2"]
        assert shop.live.since > since


def test_what_comes_without_an_event_is_looked_at(bus, shop):
    with closing(shop.live.news()) as page:
        assert [next(page) for _ in range(3)] == [{}] * 3
        shop.dead_letters = 1
        assert first(page) == {"changed": True}
        shop.dead_letters = UserError("throttled")
        assert first(page) == {"changed": True}, "the pages read again, and show the reason"


def test_several_receivers_share_a_busy_second(bus, shop):
    together = Barrier(live._RECEIVERS + 1)
    bus.events += [{"detail": n} for n in range(live._BUSY + 1)]

    def wait_for_the_others(seconds):
        together.wait(60)
        yield from bus._hear(seconds)

    def hear_and_then_wait(seconds):
        yield from bus._hear(seconds)
        bus.hear = wait_for_the_others

    bus.hear = hear_and_then_wait
    with closing(shop.live.news()) as page:
        assert first(page) == {"event": {"detail": 0}}
        together.wait(60)
        bus.hear = bus._hear


# ---------------------------------------------------------------- the drop


class Sale:
    """A drop that the desk watches, with a clock that the test sets."""

    def __init__(self, monkeypatch):
        self.now = NOON
        self.left = {"": 100}
        self.reads = 0
        self.depth = 7
        monkeypatch.setattr(drop, "time", SimpleNamespace(time=lambda: self.now))
        self.live = LiveByHand()
        desk = SimpleNamespace(left=self.read_left, waiting=lambda: self.depth)
        self.lines = Drops(desk, self.live).watch(TEA)

    def read_left(self, product_id):
        assert product_id == TEA
        self.reads += 1
        return self.left

    def tell(self, *events, skew=0.0):
        """Report events whose times are given by a clock that is some seconds ahead."""
        for each in events:
            at = datetime.fromisoformat(each["detail"]["metadata"]["occurredAt"]).timestamp()
            self.live.heard(Heard(each, self.now + skew - at))

    def line(self):
        return next(self.lines)


@pytest.fixture
def sale(monkeypatch):
    sale = Sale(monkeypatch)
    yield sale
    sale.lines.close()
    sale.live.close(10)


def placed(number, at, units=1, **more):
    return event("OrderPlaced", f"p-{number}", at, [(TEA, units), ("other", 5)], **more)


def rejected(number, at, **more):
    return event("OrderRejected", f"r-{number}", at, [(TEA, 2)], **more)


def test_a_drop_counts_its_orders_and_how_fast_they_come(sale):
    line = sale.line()
    assert (line["sold"], line["left"], line["waiting"], line["times"]) == (0, 100, 7, {})
    assert line["since"] == NOON
    sale.now, sale.left = NOON + 20, {"": 40, "berlin": 2}
    sale.tell(
        placed(0, NOON + 5, 10),
        *(placed(n, NOON + 10 + n, 2) for n in range(10)),
        placed(1, NOON + 11, 2),
        rejected(1, NOON + 18),
        rejected(2, NOON + 18, shortages=[{"productId": "other", "wanted": 2, "available": 0}]),
        rejected(3, NOON + 20, shortages=[{"productId": TEA, "wanted": 2, "available": 0}]),
        event("OrderPlaced", "x", NOON, [("other", 1)]),
        event("OrderConfirmed", "p-1", NOON, [(TEA, 2)]),
    )
    line = sale.line()
    # The events of the orders p-0 and p-1 came twice.
    assert (line["orders"], line["sold"], line["rejected"]) == (10, 28, 2)
    assert (line["left"], line["places"], line["elsewhere"]) == (40, {"": 40}, 2)
    assert (line["ordersPerSecond"], line["unitsPerSecond"]) == (0.9, 1.8)
    assert line["times"] == {"placed": [NOON + 5, NOON + 19], "rejected": [NOON + 18, NOON + 20]}
    assert line["drawn"]["at"] == [int(NOON) + n for n in range(20)]
    assert line["drawn"]["placed"] == [*[0] * 5, 1, *[0] * 5, *[1] * 9]
    assert line["drawn"]["rejected"] == [*[0] * 18, 1, 0]


def test_what_is_left_is_counted_where_the_latest_orders_may_be_served_from(sale):
    sale.left = {"": 4, "berlin": 30, "store": 200}
    line = sale.line()
    assert (line["left"], line["elsewhere"]) == (234, 0), (
        "before the first order, all units are available"
    )
    sale.tell(placed(1, NOON, locations=["berlin", ""]))
    at_store = event("OrderRejected", "r-1", NOON)
    at_store["detail"]["data"]["items"] = [{"productId": TEA, "quantity": 1, "locationId": "store"}]
    sale.now += 1
    line = sale.line()
    assert (line["places"], line["elsewhere"]) == ({"": 4, "berlin": 30}, 200)
    sale.tell(at_store)
    assert sale.line()["elsewhere"] == 0
    sale.tell(placed(2, NOON + drop._DRAWN_SECONDS))
    assert (sale.line()["left"], sale.line()["elsewhere"]) == (4, 230), (
        "that order is too old to count"
    )


def test_stock_is_read_only_when_something_has_happened(sale):
    for _ in range(3):
        sale.line()
    assert sale.reads == 3, "it is read until it has settled"
    sale.now += drop._UNSETTLED_SECONDS
    sale.line()
    assert sale.reads == 3
    sale.tell({**event("ProductBackInStock", "p", NOON, productId=TEA)})
    sale.line()
    assert sale.reads == 4


def test_late_events_are_said_to_be_late_and_counted_when_they_happened(sale):
    sale.line()
    sale.now = NOON + 29
    sale.tell(placed(0, NOON + 33), skew=5.0)
    assert sale.line()["late"] == 1
    sale.now = NOON + 44
    sale.tell(*(placed(n, NOON + 24 + n) for n in range(1, 6)), skew=5.0)
    line = sale.line()
    assert line["late"] == 20
    # The last ten seconds before NOON + 29 for which events have arrived.
    assert line["ordersPerSecond"] == 0.4


def test_a_drop_counts_anew_when_the_desk_has_not_listened(sale):
    sale.line()
    sale.tell(placed(1, NOON))
    assert sale.line()["sold"] == 1
    sale.live.since = sale.now = NOON + 60
    line = sale.line()
    assert (line["sold"], line["since"]) == (0, NOON + 60)
