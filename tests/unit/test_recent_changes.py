"""Which orders and products changed: how the streams' reader notes them, and what `GET /changes` lists for whom."""

import json
import random
from contextlib import suppress
from itertools import pairwise
from operator import itemgetter
from types import SimpleNamespace

import pytest

from inventory_orders.clock import Deadline, SystemClock
from inventory_orders.engine.retrying_client import RetryingClient
from inventory_orders.errors import RepairNeededError, StoreError
from inventory_orders.invocation import runtime
from inventory_orders.invocation.runtime import Process
from inventory_orders.publishing import recent_changes
from inventory_orders.publishing.recent_changes import Noter
from inventory_orders.store.dynamodb import Store
from inventory_orders.store.recent_changes import MOST, RecentChanges, read_recent_changes
from inventory_orders.store.tables import STREAM_BATCH, Table
from testing.aws import ServiceError
from testing.world.streams import change, order_row, product_row
from tests.support.contract_story import Story, contested, units
from tests.support.http import Api

GRANTS = {
    "pickers": ["orders.read"],
    "stock": ["stock.read"],
    "buyers": ["products.write", "products.read"],
    "tills": ["orders.place"],
}
ROLES = {"claim": "groups", "grants": GRANTS, "locationsClaim": "places"}
SETTINGS = {"USER_ID_CLAIM": "sub", "ROLES": json.dumps(ROLES)}
NOTHING = {"orders": [], "products": [], "isAll": True}
MORE = NOTHING | {"isAll": False}
ROW = ("changes",)


@pytest.fixture
def shop(running_shop):
    running_shop.restart(NOTES_CHANGES="true", **SETTINGS)
    return running_shop


@pytest.fixture
def ask(shop):
    """Make the function that asks for the changes since a cursor, as a role at some places or as a server."""
    api = Api(shop)

    def ask(since=None, role=None, places="*"):
        claims = role and {"sub": "ann", "groups": f"[{role}]", "places": places}
        query = {} if since is None else {"since": since}
        return api("GET", "/changes", query=query, claims=claims)

    return ask


def changes(ask, since, *args):
    """Return what changed since a cursor, without the next cursor."""
    document = ask(since, *args).document
    return {name: value for name, value in document.items() if name != "next"}


def cursor(ask):
    return ask().document["next"]


def note(shop, *rows):
    """Deliver changes that leave these rows, and return the answer."""
    return shop.invoke("record_movements", {"Records": [change(None, row) for row in rows]})


def deliver(shop):
    """Deliver the changes to both tables since the last call, each table's in batches of its own."""
    for key in ("orderId", "productId"):
        records = [each for each in shop.changes if key in each["dynamodb"]["Keys"]]
        if records:
            shop.invoke("record_movements", {"Records": records})
    shop.changes.clear()


def order_from(order_id, *locations):
    (line,) = order_row()["items"]
    return order_row(
        order_id,
        items=[line | ({"locationId": at} if at else {}) for at in locations],
        **({} if locations == ("",) else {"suppliedFrom": [*locations]}),
    )


# ---------------------------------------------------------------------- what is listed


def test_what_changed_since_a_cursor_is_listed_once(shop, ask):
    start = cursor(ask)
    assert ask().document == {"next": start}
    assert changes(ask, start) == NOTHING
    shop.list("tea", 100)
    shop.list("tea#berlin", 10)
    deliver(shop)
    middle = cursor(ask)
    for number in range(3):
        shop.order(f"o-{number}", tea=1)
        deliver(shop)
    shop.invoke("change_orders", {"action": "confirm", "orderId": "o-0"})
    deliver(shop)
    berlin = {"productId": "tea", "locationId": "berlin"}
    tea = {"productId": "tea"}
    assert changes(ask, middle) == NOTHING | {"orders": ["o-0", "o-1", "o-2"], "products": [tea]}
    found = changes(ask, start)
    assert found == NOTHING | {"orders": ["o-0", "o-1", "o-2"], "products": [tea, berlin]}
    assert changes(ask, cursor(ask)) == NOTHING


def test_a_product_or_an_order_that_is_gone_has_changed(shop, ask):
    since = cursor(ask)
    gone = [change(product_row(), None), change(product_row(productId="tin"), None)]
    shop.invoke("record_movements", {"Records": gone})
    assert changes(ask, since)["products"] == [{"productId": "tea"}, {"productId": "tin"}]


def test_a_product_whose_units_an_order_moves_on_a_page_has_changed(shop, ask):
    """Its own row does not change when a lane sells units, or when units are handed over or lost."""
    story, start = Story(shop), cursor(ask)

    def changed(of_orders_alone=True):
        since = cursor(ask)
        if of_orders_alone:
            assert all("orderId" in each["dynamodb"]["Keys"] for each in shop.changes)
        deliver(shop)
        return sorted(changes(ask, since)["products"], key=itemgetter("productId"))

    tea, tin = {"productId": "tea", "locationId": "berlin"}, {"productId": "tin"}
    story.list_product("tin", 5_000)
    story.list_product("tea", 0)
    story.list_product("tea", 10, locationId="berlin")
    with contested(shop, "tin"):
        story.place("o-first", units("tin", 2))  # moves units to a lane
        shop.clock.sleep(5)
        deliver(shop)
        story.place("o-lane", units("tin", 3))
    assert changed() == [tin]
    story.place("o-1", units("tin", 3), units("tea", 3), locations=["", "berlin"], split=True)
    assert changed(of_orders_alone=False) == [tea, tin]
    story.command("confirm", "o-1")
    assert changed() == []
    story.part("fulfil", "o-1", "s-1", units("tea"))
    assert changed() == [tea]
    assert tea not in changes(ask, start, "stock", "(default)")["products"]
    story.part("fulfil", "o-1", "s-2", units("tin"))
    assert changed() == [tin]
    story.part("return", "o-1", "s-3", units("tea"), units("tin"), restock=True)
    assert changed(of_orders_alone=False) == [tea, tin]
    story.part("cancel", "o-1", "s-4", units("tea"), units("tin"), restock=False)
    assert changed() == [tea, tin]


def test_the_largest_order_leaves_room_for_as_many_other_changes(shop, ask):
    since = cursor(ask)
    lines = [
        {**order_row()["items"][0], "productId": f"p-{number}", "lanePage": "0", "laneVersion": 2}
        for number in range(99)
    ]
    note(shop, *(order_row(f"o-{number}") for number in range(STREAM_BATCH - 1)))
    note(shop, order_row("o-large", items=lines))
    found = changes(ask, since)
    assert (len(found["orders"]), len(found["products"]), found["isAll"]) == (100, 99, True)


def test_an_order_that_changes_ten_times_takes_one_place(shop, ask):
    since = cursor(ask)
    for number in range(MOST):
        note(shop, order_row(f"o-{number}"))
    for _ in range(10):
        note(shop, order_row("o-7"))
    found = changes(ask, since)
    assert (len(found["orders"]), found["isAll"]) == (MOST, True)


def test_of_more_changes_only_readers_who_know_the_lost_ones_get_a_list(shop, ask):
    cursors = [cursor(ask)]
    for number in range(MOST + 3):
        note(shop, order_row(f"o-{number}"))
        cursors.append(cursor(ask))
    assert changes(ask, cursors[2]) == MORE
    assert changes(ask, cursors[3])["orders"] == [f"o-{n}" for n in range(3, MOST + 3)]
    assert changes(ask, cursors[-2])["orders"] == [f"o-{MOST + 2}"]
    assert all(int(earlier) < int(later) for earlier, later in pairwise(cursors))


@pytest.mark.parametrize("since", ["", "x", "-1", "999", "1 ", "1.5", "9" * 5000, "٣"])
def test_a_cursor_that_nobody_gave_means_that_everything_may_have_changed(shop, ask, since):
    note(shop, order_row("o-1"))
    assert changes(ask, since) == MORE


# ---------------------------------------------------------------------- for whom


def test_callers_see_the_changes_that_their_permissions_and_locations_allow(shop, ask):
    since = cursor(ask)
    note(shop, order_from("o-here", ""), order_from("o-both", "", "berlin"))
    note(shop, product_row(), product_row(productId="tea#berlin"))
    tea, berlin = {"productId": "tea"}, {"productId": "tea", "locationId": "berlin"}
    orders, products = ["o-here", "o-both"], [tea, berlin]
    for caller, seen in (
        ((None,), NOTHING | {"orders": orders, "products": products}),
        (("pickers",), NOTHING | {"orders": orders}),
        (("pickers", "berlin"), NOTHING | {"orders": ["o-both"]}),
        (("pickers", "(default)"), NOTHING | {"orders": orders}),
        (("pickers", "rome"), NOTHING),
        (("stock",), NOTHING | {"products": products}),
        (("stock", "berlin"), NOTHING | {"products": [berlin]}),
        (("buyers", "(default)"), NOTHING | {"products": [tea]}),
        (("tills",), NOTHING),
        (("tills", ""), NOTHING),
    ):
        assert changes(ask, since, *caller) == seen, caller
    assert ask(since, "customers").code == (403, "NOT_PERMITTED")


def test_orders_that_took_no_units_are_listed_only_for_all_locations(shop, ask):
    since = cursor(ask)
    rejected = order_row("o-rejected", status="REJECTED", items=[{"productId": "t", "quantity": 1}])
    tombstone = order_row("o-tombstone")
    del tombstone["userId"]
    broken = order_row("o-broken", items="?", suppliedFrom=["berlin"])
    note(shop, rejected, tombstone, broken)
    assert changes(ask, since, "pickers")["orders"] == ["o-rejected", "o-tombstone", "o-broken"]
    assert changes(ask, since, "pickers", "(default)")["orders"] == []
    assert changes(ask, since, "pickers", "berlin")["orders"] == ["o-broken"]


# ---------------------------------------------------------------------- what it costs


def test_a_poll_reads_one_small_row_with_eventual_consistency(shop, ask):
    for number in range(MOST):
        note(shop, order_row(f"2026-1128-{number * 7919 % 9973}-shop"))
    used = shop.aws.dynamodb.tables["Allotments"].consumed
    before = used.reads
    shop.calls.clear()
    ask("0")
    assert shop.calls == ["BatchGetItem"]
    assert used.reads - before == 0.5


def test_a_burst_leaves_a_small_row_and_each_batch_takes_one_write_unit(shop, ask):
    note(shop, order_row("o-1"))
    since = cursor(ask)
    used = shop.aws.dynamodb.tables["Allotments"].consumed
    for batch in range(10):
        before = used.writes
        note(shop, *(order_row(f"o-{batch}-{n}") for n in range(STREAM_BATCH)))
        assert used.writes - before == 1
    assert changes(ask, since) == MORE
    assert "content" not in shop.item(Table.ALLOTMENTS, *ROW)
    since = cursor(ask)
    note(shop, order_row("o-2"))
    assert changes(ask, since)["orders"] == ["o-2"]


# ---------------------------------------------------------------------- concurrent writers, gaps and failures


def noter(shop):
    return Noter(RetryingClient(shop.store))


def note_with(noter, *rows, seconds=5):
    records = [change(None, row) for row in rows]
    noter.note(records, Deadline.after(seconds, SystemClock()))


def test_two_writers_at_once_list_the_changes_of_both(shop, ask):
    since = cursor(ask)
    rival = noter(shop)
    shop.once("UpdateItem", lambda _: note_with(rival, order_row("o-rival")))
    note(shop, order_row("o-1"))
    shop.once("UpdateItem", lambda _: note_with(rival, product_row()))
    note(shop, order_row("o-2"))
    found = changes(ask, since)
    assert (sorted(found["orders"]), found["products"]) == (
        ["o-1", "o-2", "o-rival"],
        [{"productId": "tea"}],
    )


def test_a_writer_that_keeps_losing_notes_that_more_has_changed(shop, ask, monkeypatch):
    note(shop, order_row("o-1"))
    since, rival, tries = cursor(ask), noter(shop), []

    def win(request):
        if "ConditionExpression" in request and tries[-1:] != [request]:
            tries.append(request)
            shop.calm()
            note_with(rival, order_row(f"o-{len(tries)}"))
            shop.on("UpdateItem", win)

    shop.on("UpdateItem", win)
    note(shop, order_row("o-late"))
    shop.calm()
    assert len(tries) == recent_changes._TRIES
    assert changes(ask, since) == MORE
    since = cursor(ask)
    note(shop, order_row("o-3"))
    assert changes(ask, since)["orders"] == ["o-3"]


def test_a_failure_costs_no_movement_and_the_next_note_says_that_more_has_changed(
    shop, ask, capsys
):
    note(shop, order_row("o-1"))
    since = cursor(ask)
    error = ServiceError("ThrottlingException", "slow down")
    shop.refuse("UpdateItem", error, lambda request: request["TableName"] == "Allotments")
    before = len(shop.rows(Table.MOVEMENTS))
    assert note(shop, order_row("o-2"))["rows"] == 1
    assert len(shop.rows(Table.MOVEMENTS)) == before + 1
    assert "changes not noted" in capsys.readouterr().out
    shop.calm()
    assert changes(ask, since) == NOTHING
    note(shop, product_row())
    assert changes(ask, since) == MORE
    since = cursor(ask)
    note(shop, order_row("o-3"))
    assert changes(ask, since)["orders"] == ["o-3"]


def test_a_lost_answer_does_no_harm(shop, ask):
    since = cursor(ask)

    def lose(request):
        shop.calm()
        shop.aws.dynamodb.answer("UpdateItem", request)
        raise ServiceError("InternalServerError", "lost", 500)

    shop.on("UpdateItem", lose, lambda request: request["TableName"] == "Allotments")
    note(shop, order_row("o-1"))
    assert changes(ask, since) == NOTHING | {"orders": ["o-1"]}


@pytest.mark.parametrize("seed", range(8))
def test_whatever_fails_no_reader_misses_a_change_for_good(shop, seed):
    """Three processes note changes while their requests and answers are lost, and a reader asks now and then."""
    chance, noters = random.Random(seed), [noter(shop) for _ in range(3)]
    cursor, unknown = "0", set()

    def fail(operation, request):
        if chance.random() < 0.3:
            if chance.random() < 0.5:
                shop.aws.dynamodb.answer(operation, request)
            raise ServiceError("ThrottlingException", "slow down")

    def read(cursor):
        recent = read_recent_changes(shop.store)
        found = recent.since(cursor)
        unknown.difference_update(unknown if found is None else {key for _, key in found})
        return str(recent.version)

    for _ in range(300):
        shop.before = fail
        unknown.add(order_id := f"o-{chance.randrange(250)}")
        with suppress(StoreError):
            note_with(chance.choice(noters), order_row(order_id), seconds=0.2)
        shop.calm()
        if chance.random() < 0.1:
            cursor = read(cursor)
    for each in noters:
        note_with(each, order_row("o-last"))
    read(cursor)
    assert unknown == set()


def test_changes_are_noted_although_movements_cannot_be_recorded(shop, ask):
    since = cursor(ask)
    shop.refuse("BatchWriteItem", ServiceError("ThrottlingException", "slow down"))
    with pytest.raises(Exception, match="slow down"):
        note(shop, order_row("o-1"))
    shop.calm()
    assert changes(ask, since)["orders"] == ["o-1"]


@pytest.mark.parametrize(
    "record", [{}, change(None, order_row()) | {"eventName": "?"} | {"dynamodb": {}}]
)
def test_an_unreadable_change_means_that_more_has_changed(shop, ask, record):
    note(shop, order_row("o-1"))
    since = cursor(ask)
    shop.invoke("record_movements", {"Records": [record, change(None, order_row("o-2"))]})
    assert changes(ask, since) == MORE


def test_an_unreadable_row_is_replaced_and_its_readers_start_again(shop, ask):
    note(shop, order_row("o-1"))
    since = cursor(ask)
    shop.edit(Table.ALLOTMENTS, *ROW, content={"B": "bm90aGluZw=="})
    assert changes(ask, since) == MORE
    note(shop, order_row("o-2"))
    assert changes(ask, since) == MORE
    since = cursor(ask)
    note(shop, order_row("o-3"))
    assert changes(ask, since)["orders"] == ["o-3"]


def test_a_deleted_row_means_that_everything_may_have_changed(shop, ask):
    for number in range(3):
        note(shop, order_row(f"o-{number}"))
    since = cursor(ask)
    del shop.items(Table.ALLOTMENTS)[ROW]
    assert changes(ask, since) == MORE
    note(shop, order_row("o-9"))
    assert changes(ask, since) == MORE


def test_a_stale_read_answers_that_nothing_has_changed_yet(shop, ask):
    for number in range(9):
        note(shop, order_row(f"o-{number}"))
    stale, rows = shop.item(Table.ALLOTMENTS, *ROW), shop.items(Table.ALLOTMENTS)
    for number in range(9, 13):
        note(shop, order_row(f"o-{number}"))
    since, latest = cursor(ask), shop.item(Table.ALLOTMENTS, *ROW)
    rows[ROW] = stale
    assert ask(since).document == NOTHING | {"next": since}
    rows[ROW] = latest
    note(shop, order_row("o-13"))
    assert changes(ask, since)["orders"] == ["o-13"]
    since = cursor(ask)
    rows[ROW] = stale
    assert ask(since).document == MORE | {"next": "9"}, "an older table was restored"


def test_a_new_row_is_not_taken_for_a_stale_one(shop, ask):
    for _ in range(6):
        note(shop, order_row())
    since = cursor(ask)
    del shop.items(Table.ALLOTMENTS)[ROW]
    for version in range(5):
        assert ask(since).document == MORE | {"next": str(version)}
        note(shop, order_row())


# ---------------------------------------------------------------------- settings


def test_changes_of_products_make_no_movements_and_are_never_late_ones(shop):
    late = change(None, product_row())
    late["dynamodb"]["ApproximateCreationDateTime"] = shop.clock.now() - 3600
    shop.invoke("record_movements", {"Records": [late]})
    assert shop.rows(Table.MOVEMENTS) == []


def test_without_movements_changes_are_noted_all_the_same(shop, ask, monkeypatch):
    monkeypatch.setattr(Process, "has_movements", False)
    since = cursor(ask)
    assert note(shop, order_row("o-1"))["rows"] == 0
    assert changes(ask, since)["orders"] == ["o-1"]
    assert shop.rows(Table.MOVEMENTS) == []


def test_without_a_desk_nothing_is_noted(shop, ask):
    del shop.variables["NOTES_CHANGES"]
    shop.restart()
    note(shop, order_row("o-1"))
    assert shop.item(Table.ALLOTMENTS, *ROW) is None
    assert changes(ask, cursor(ask)) == NOTHING


def test_the_sweep_reports_a_stream_whose_changes_are_not_noted(shop, monkeypatch):
    monkeypatch.setattr(Store, "stream", lambda _, table: f"stream of {table}")
    read = {"EventSourceArn": "stream of Orders", "State": "Enabled"}
    functions = SimpleNamespace(get_event_source_mapping=lambda UUID: read)
    client = runtime.client
    monkeypatch.setattr(
        runtime,
        "client",
        lambda name, *more: functions if name == "lambda" else client(name, *more),
    )
    shop.restart(CHANGE_MAPPINGS="uuid-1 uuid-2")
    with pytest.raises(RepairNeededError, match=r"^changes of Products are not noted for the desk"):
        shop.invoke("sweep", {"action": "sweep"})


def test_a_row_never_lists_more_than_it_may():
    batch = {("Orders", f"o-{n}"): [""] for n in range(MOST + 1)}
    after = RecentChanges(4).with_changes(batch)
    assert (after.version, after.lost, after.entries) == (5, 5, {})
    assert (after.since("4"), after.since("5")) == (None, {})
