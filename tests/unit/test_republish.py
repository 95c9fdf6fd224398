"""Republishing from rows: which orders and events are republished, and the report if the bus refuses events."""

import json

import pytest

from inventory_orders.clock import SystemClock
from inventory_orders.publishing.publisher import Bus, Refusal
from inventory_orders.store.rows import encode
from inventory_orders.store.tables import Table
from operations.errors import UserError
from operations.republish import moment, republish, rows_of, rows_since
from testing.world.streams import order_row

LATER = "2026-01-02T00:00:00.000000+00:00"


@pytest.fixture
def aws(shop):
    for row in (
        order_row("o-1"),
        order_row("o-2", status="CANCELLED", _version=2, lastUpdatedAt=LATER),
        order_row("o-3", status="CANCELLED", userId=None, lastUpdatedAt=LATER),
        order_row("o-4", status="ON_HOLD", lastUpdatedAt=LATER),
    ):
        shop.edit(Table.ORDERS, row["orderId"], **encode(row))
    return shop.stack


@pytest.fixture
def taken(monkeypatch):
    entries = []

    def take(_, of_call):
        entries.extend(of_call)
        return [None] * len(of_call)

    monkeypatch.setattr(Bus, "put", take)
    return entries


def ids(entries):
    return [json.loads(entry.detail)["metadata"]["eventId"] for entry in entries]


def test_orders_since_a_time_are_published_as_they_stand(aws, taken):
    progress = []
    for send in (False, True):
        rows = rows_since(aws, moment("2026-01-01T12:00"))
        done = republish(aws, rows, send=send, on_progress=progress.append)
        assert done.events == 1, "the tombstone has no event"
        assert len(done.problems) == 1
        assert "o-4" in done.problems[0]
        assert "ON_HOLD" in done.problems[0]
        assert ids(taken) == (["o-2#2#OrderCancelled"] if send else [])
    assert progress == [3, 3]


def test_orders_are_published_by_their_ids_and_an_unknown_one_stops_it(aws, taken):
    rows = rows_of(aws, ["o-2", "o-1", "o-2"])
    assert republish(aws, rows, send=True, on_progress=lambda _: None).events == 2
    assert sorted(ids(taken)) == ["o-1#1#OrderPlaced", "o-2#2#OrderCancelled"]
    with pytest.raises(UserError, match="there is no order o-9; nothing was published"):
        republish(aws, rows_of(aws, ["o-1", "o-9"]), send=True, on_progress=lambda _: None)
    assert len(taken) == 2


def test_refunds_that_are_due_are_published_again(aws, taken):
    refund = {"at": LATER, "reason": "ORDER_EXPIRED"}
    items = [{"productId": "tea", "quantity": 1}]
    back = {"action": "return", "at": LATER, "items": items, "restock": False}
    steps = [{"action": "fulfil", "at": LATER}, *(back | {"stepId": r} for r in ("rt-1", "rt-2"))]
    for row in (
        order_row("paid-late", status="EXPIRED", _version=3, confirmationRejected=refund),
        order_row("came-back", status="FULFILLED", _version=5, steps=steps),
    ):
        aws.dynamodb.put_item(TableName="Orders", Item=encode(row))
    rows = rows_of(aws, ["paid-late", "came-back"])
    assert republish(aws, rows, send=True, on_progress=lambda _: None).events == 5
    assert sorted(ids(taken)) == [
        "came-back#5#OrderFulfilled",
        "came-back#5#OrderReturned:rt-1",
        "came-back#5#OrderReturned:rt-2",
        "paid-late#3#ConfirmationRejected",
        "paid-late#3#OrderExpired",
    ]


def test_a_bus_that_refuses_everything_is_reported_with_its_reason(aws, monkeypatch):
    refusal = Refusal("AccessDeniedException", "you may not")
    monkeypatch.setattr(Bus, "put", lambda _, entries: [refusal] * len(entries))
    monkeypatch.setattr(SystemClock, "sleep", lambda *_: None)
    with pytest.raises(UserError, match=r"you may not.*0 were published"):
        republish(aws, rows_of(aws, ["o-1"]), send=True, on_progress=lambda _: None)


@pytest.mark.parametrize(
    ("text", "time"),
    [("2026-01-02", LATER), ("2026-01-02T01:00:00+01:00", LATER), ("2026-01-02T00:00", LATER)],
)
def test_a_time_is_in_utc_unless_it_has_a_zone(text, time):
    assert moment(text) == time
    with pytest.raises(UserError, match="is not a time"):
        moment("yesterday")
