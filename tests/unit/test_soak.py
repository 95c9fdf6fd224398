"""The soak must find lost, doubled or unexpected messages, and wrong or missing events."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from inventory_orders.domain.adjustment import Adjustment, Transfer
from inventory_orders.domain.order import Order
from inventory_orders.domain.product import sortable_id
from inventory_orders.errors import InvalidMessageError
from inventory_orders.messages.commands import parse_order, parse_order_command
from inventory_orders.store.rows import decode, encode
from inventory_orders.store.tables import Table
from local import sample_orders, shelf
from operations import queues
from operations.audit import read_rows
from operations.dead_letters import TOO_MANY_DELIVERIES
from operations.follow import Heard
from testing.schedules.in_turn.lanes import lend
from testing.schedules.in_turn.shop import open_shop
from testing.world.events import order_body
from testing.world.streams import change, overtaken, product_row
from tests.soak.accounting import Sent, Tables, account
from tests.soak.changes import demanded, unfounded
from tests.soak.customer import Customers, differences
from tests.soak.ledger import (
    StaffCount,
    StaffTransfer,
    imbalances,
    wrong_counts,
    wrong_places,
    wrong_transfers,
)
from tests.soak.staff import Staff
from tests.soak.workload import DUPLICATES, INVALID, MESSAGES, ORDERS, SEASONAL, workload

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
EARLY, LATE = "2026-11-21T09:00:00.000000+00:00", "2026-11-21T10:00:00.000000+00:00"


def sent(queue, body):
    return Sent(queue, body if isinstance(body, str) else json.dumps(body))


def order_row(order_id, lines, status="PENDING", user_id="u-1"):
    items = [{"productId": p, "quantity": q} for p, q in lines.items()]
    return {"orderId": order_id, "userId": user_id, "items": items, "status": status}


def tables(*, orders=(), adjustments=(), products=()):
    return Tables(
        {(row["productId"],): row for row in products},
        {(row["orderId"],): row for row in orders},
        {(row["productId"], row["adjustmentId"]): row for row in adjustments},
    )


ORDER = sent(queues.STANDARD, order_body("o-1", {"tea": 1}))
WISHES = {"locations": ["berlin", ""], "split": True}
AT_BERLIN = sent(
    queues.STANDARD,
    {"orderId": "o-1", "userId": "u-1"}
    | WISHES
    | {"items": [{"productId": "tea", "locationId": "berlin", "quantity": 1}]},
)
OTHER = sent(queues.STANDARD, order_body("o-1", {"tea": 2}))
WRONG = sent(queues.FIFO, "invalid")
HELD = {"orderId": "o-1", "userId": "u-1", "status": "PENDING", "_version": 1}
LINE = {"productId": "tea", "quantity": 2, "productCreatedAt": EARLY}
RETURN = {
    "action": "return",
    "orderId": "o-1",
    "stepId": "rt-1",
    "items": [{"productId": "tea", "quantity": 1}],
    "restock": True,
}
RETURNED = [{"action": "fulfil", "at": EARLY}, RETURN | {"at": EARLY}]


def command(action):
    return sent(queues.COMMANDS, {"action": action, "orderId": "o-1"})


CANCELLATION = command("cancel")
RECEIPT = {"adjustmentId": "r-1", "productId": "tea", "delta": 4, "reason": "RECEIPT"}


def event(event_id, moment):
    return sent(
        queues.CATALOGUE,
        {"eventId": event_id, "eventTime": moment, "productId": "tea", "details": {"price": 1}},
    )


def test_the_outcome_of_every_kind_of_message_is_found():
    state = tables(
        orders=[order_row("o-1", {"tea": 1}, "CANCELLED")],
        adjustments=[RECEIPT],
        products=[
            {"productId": "tea", "detailsEventTime": LATE, "detailsEventId": sortable_id("e-2")}
        ],
    )
    messages = [
        *(ORDER, ORDER, WRONG, CANCELLATION, sent(queues.STOCK, RECEIPT)),
        *(event("e-1", EARLY), event("e-2", LATE), OTHER),
    ]
    dead_letters = [(WRONG, "INVALID_JSON"), (OTHER, "ORDER_ID_REUSED")]
    allocation = account(messages, state, [*dead_letters, *dead_letters], [WRONG, OTHER])
    assert allocation.is_clean
    assert allocation.stored == {
        queues.STANDARD: 1,
        queues.COMMANDS: 1,
        queues.STOCK: 1,
        queues.CATALOGUE: 2,
    }
    assert allocation.dead == {queues.FIFO: 1, queues.STANDARD: 1}


@pytest.mark.parametrize(
    ("message", "state"),
    [
        (ORDER, tables()),
        (ORDER, tables(orders=[order_row("o-1", {"tea": 2})])),
        (ORDER, tables(orders=[order_row("o-1", {"tea": 1}, user_id="mallory")])),
        (ORDER, tables(orders=[order_row("o-1", {"tea": 1}) | {"locations": ["", "berlin"]}])),
        (ORDER, tables(orders=[order_row("o-1", {"tea": 1}) | {"split": True}])),
        (AT_BERLIN, tables(orders=[order_row("o-1", {"tea": 1}) | WISHES])),
        (CANCELLATION, tables()),
        (CANCELLATION, tables(orders=[order_row("o-1", {"tea": 1})])),
        (sent(queues.STOCK, RECEIPT), tables()),
        (sent(queues.STOCK, RECEIPT), tables(adjustments=[{**RECEIPT, "delta": 5}])),
        (
            event("e-2", LATE),
            tables(
                products=[
                    {
                        "productId": "tea",
                        "detailsEventTime": EARLY,
                        "detailsEventId": sortable_id("e-9"),
                    }
                ]
            ),
        ),
        (event("e-2", LATE), tables(products=[{"productId": "tea"}])),
        (WRONG, tables()),
    ],
)
def test_a_message_without_a_trace_is_missing(message, state):
    allocation = account([message], state, [])
    assert allocation.missing == [message]
    assert not allocation.is_clean


def test_an_order_is_stored_with_its_hold_and_locations():
    row = order_row("o-1", {"tea": 1}) | WISHES
    row["items"][0] |= {"askedLocationId": "berlin", "locationId": "berlin"}
    assert account([AT_BERLIN], tables(orders=[row]), []).is_clean


def test_the_same_receipt_at_another_location_is_another_one():
    there = RECEIPT | {"locationId": "berlin"}
    messages = [sent(queues.STOCK, RECEIPT), sent(queues.STOCK, there)]
    rows = [RECEIPT, RECEIPT | {"productId": "tea#berlin"}]
    assert account(messages, tables(adjustments=rows), []).is_clean
    assert account(messages, tables(adjustments=rows[:1]), []).missing == messages[1:]
    rival = sent(queues.STOCK, there | {"delta": 9})
    dead = [(rival, "ADJUSTMENT_ID_REUSED")]
    assert account([*messages, rival], tables(adjustments=rows), dead, [rival]).is_clean


def test_a_message_that_is_stored_and_dead_lettered_is_found():
    state = tables(orders=[order_row("o-1", {"tea": 1})])
    allocation = account([ORDER], state, [(ORDER, "ORDER_ID_REUSED")])
    assert allocation.both == [ORDER]
    assert not allocation.is_clean


@pytest.mark.parametrize("message", [ORDER, CANCELLATION, sent(queues.STOCK, RECEIPT)])
@pytest.mark.parametrize("cause", ["SCHEMA_VIOLATION", "ORDER_ID_REUSED", TOO_MANY_DELIVERIES])
def test_a_good_message_that_is_only_a_dead_letter_is_found(message, cause):
    ends = account([message], tables(), [(message, cause)])
    assert ends.wrong == [f"{cause} {message.body[:80]}"]
    assert not ends.is_clean


@pytest.mark.parametrize("lines", [{"tea": 1}, {"tea": 2}])
def test_the_first_of_two_orders_with_one_id_is_stored(lines):
    state = tables(orders=[order_row("o-1", lines)])
    later = OTHER if lines == {"tea": 1} else ORDER
    ends = account([ORDER, OTHER], state, [(later, "ORDER_ID_REUSED")], [OTHER])
    assert ends.is_clean
    assert account([ORDER, OTHER], state, [], [OTHER]).missing == [later]
    assert not account([ORDER, OTHER], state, [(later, "INVALID_JSON")], [OTHER]).is_clean


FUTURE = event("e-bad", "2999-01-01T00:00:00.000000+00:00")


@pytest.mark.parametrize("dead_letters", [[], [(FUTURE, "EVENT_FROM_THE_FUTURE")]])
def test_an_applied_invalid_message_that_displaced_a_good_event_is_found(dead_letters):
    bad = json.loads(FUTURE.body)
    newest = {"detailsEventTime": bad["eventTime"], "detailsEventId": sortable_id(bad["eventId"])}
    state = tables(products=[{"productId": "tea"} | newest])
    ends = account([event("e-2", LATE), FUTURE], state, dead_letters, [FUTURE])
    assert ends.wrong == [f"applied {FUTURE.body[:80]}"]
    assert ends.strangers == ["event e-bad in tea"]
    assert ends.missing == ([] if dead_letters else [FUTURE])
    assert not ends.is_clean


def test_an_invalid_message_without_a_dead_letter_or_with_a_wrong_cause_is_found():
    assert account([WRONG], tables(), [], [WRONG]).missing == [WRONG]
    cause = TOO_MANY_DELIVERIES
    assert account([WRONG], tables(), [(WRONG, cause)], [WRONG]).wrong == [f"{cause} invalid"]
    readable = sent(queues.STANDARD, order_body("o-bad", {"tea": 1}))
    state = tables(orders=[order_row("o-bad", {"tea": 1})])
    ends = account([readable], state, [(readable, "SCHEMA_VIOLATION")], [readable])
    assert ends.strangers == ["row o-bad"]


@pytest.mark.parametrize(
    ("state", "dead"),
    [
        (tables(orders=[order_row("o-9", {"tea": 1})]), []),
        (tables(adjustments=[RECEIPT]), []),
        (tables(), [(WRONG, "INVALID_JSON")]),
    ],
)
def test_a_row_or_dead_letter_without_a_message_is_found(state, dead):
    allocation = account([], state, dead)
    assert len(allocation.strangers) == 1
    assert not allocation.is_clean


def test_the_workload_has_the_promised_messages_and_the_same_for_a_seed():
    made = workload("run", 1, NOW)
    assert made == workload("run", 1, NOW)
    assert made.count == MESSAGES
    assert set(made.messages) == set(made.invalid) == set(queues.QUEUES) - {queues.EXPIRIES}
    bodies = Counter((queue, m.body) for queue, ms in made.messages.items() for m in ms)
    contents = Counter((queue, m.body.rstrip()) for queue, ms in made.messages.items() for m in ms)
    repeated = sum(count - 1 for count in contents.values())
    # Some kinds of invalid messages have no id, so they are all equal.
    assert DUPLICATES <= repeated <= DUPLICATES + INVALID // 5
    orders = [order_id_of(m.body) for q in (queues.STANDARD, queues.FIFO) for m in made.messages[q]]
    assert orders.count(None) > INVALID * 6 // 10
    invalid = {(queue, body) for queue, bodies_of in made.invalid.items() for body in bodies_of}
    assert sum(count for message, count in bodies.items() if message in invalid) == INVALID
    # An invalid message that can be parsed has the id of a good order.
    ids = set(orders) - {None}
    assert len(ids) == ORDERS == 10_000
    good = [
        json.loads(body)
        for queue in (queues.STANDARD, queues.FIFO)
        for body in {m.body for m in made.messages[queue]} - made.invalid[queue]
    ]
    assert {"locations" in order for order in good} == {True, False}
    assert {order.get("split") for order in good if "locations" in order} == {True, None}
    asked = {
        line["locationId"] for order in good for line in order["items"] if "locationId" in line
    }
    assert asked == {*sample_orders.LOCATIONS}
    received = {
        json.loads(m.body).get("locationId")
        for m in made.messages[queues.STOCK][:50]
        if m.body not in made.invalid[queues.STOCK]
    }
    assert received == {None, sample_orders.WAREHOUSE, sample_orders.STORE}
    fifo = [message.body for message in made.messages[queues.FIFO]]
    assert len(set(fifo)) == len(fifo), (
        "SQS would drop the duplicates, so that the service never receives them"
    )


def order_id_of(body):
    """Return the id of an order, or None if it is invalid."""
    try:
        return parse_order(body).order_id
    except InvalidMessageError:
        return None


@pytest.mark.parametrize(
    ("message", "row", "is_there"),
    [
        (command("confirm"), {}, False),
        (command("confirm"), {"confirmedAt": EARLY}, True),
        (command("confirm"), {"status": "EXPIRED"}, False),
        (command("confirm"), {"status": "EXPIRED", "confirmationRejected": {}}, True),
        (command("fulfil"), {"status": "CONFIRMED"}, False),
        (command("fulfil"), {"status": "FULFILLED", "fulfilledAt": EARLY}, True),
        (command("fulfil"), {"status": "CANCELLED"}, True),
        (command("cancel"), {"status": "CONFIRMED"}, False),
        (command("cancel"), {"status": "REJECTED"}, True),
        (command("cancel"), {"status": "EXPIRED"}, True),
        (command("cancel"), {"status": "FULFILLED"}, True),
        (sent(queues.COMMANDS, RETURN), {"status": "FULFILLED", "steps": RETURNED[:1]}, False),
        (sent(queues.COMMANDS, RETURN), {"status": "FULFILLED", "steps": RETURNED}, True),
    ],
)
def test_the_outcome_of_a_command_is_read_from_its_row(message, row, is_there):
    state = tables(orders=[HELD | {"items": [LINE]} | row])
    missing = account([message], state, []).missing
    assert missing == ([] if is_there else [message])


def told(version, kind, order_id="o-1"):
    line = {"productId": "tea", "quantity": 2}
    data = {"orderId": order_id, "version": version, "items": [line]}
    event_id = f"{order_id}#{version}#{kind}"
    return {"detail-type": kind, "detail": {"metadata": {"eventId": event_id}, "data": data}}


EXPIRED_IN_VAIN = HELD | {
    "status": "EXPIRED",
    "_version": 3,
    "items": [LINE],
    "confirmationRejected": {"at": EARLY, "reason": "ORDER_EXPIRED"},
}
ITS_EVENTS = [told(1, "OrderPlaced"), told(2, "OrderExpired"), told(3, "ConfirmationRejected")]
CAME_BACK = HELD | {
    "status": "FULFILLED",
    "_version": 4,
    "items": [LINE],
    "steps": RETURNED,
    "confirmedAt": EARLY,
    "fulfilledAt": LATE,
}
FILLED_IN = HELD | {"status": "CANCELLED", "_version": 2, "items": [{"productId": "tea"}]}
TOMBSTONE = {"orderId": "o-1", "status": "CANCELLED", "_version": 1, "items": []}


@pytest.mark.parametrize(
    ("row", "events"),
    [
        (EXPIRED_IN_VAIN, ITS_EVENTS),
        (
            CAME_BACK,
            [
                *(told(1, "OrderPlaced"), told(2, "OrderConfirmed")),
                *(told(3, "OrderFulfilled"), told(4, "OrderReturned")),
            ],
        ),
        (FILLED_IN, [told(2, "OrderCancelled")]),
        (TOMBSTONE, []),
    ],
)
def test_events_that_match_the_row_are_not_a_difference(row, events):
    assert differences({"o-1": row}, events) == []


@pytest.mark.parametrize(
    "events",
    [
        [],
        ITS_EVENTS[:2],
        [*ITS_EVENTS, told(4, "OrderCancelled")],
        [*ITS_EVENTS[:2], told(4, "ConfirmationRejected")],
        [*ITS_EVENTS, told(1, "OrderPlaced", "o-2")],
    ],
)
def test_an_outcome_that_was_not_published_or_did_not_happen_is_found(events):
    assert len(differences({"o-1": EXPIRED_IN_VAIN}, events)) == 1


def test_an_order_that_is_confirmed_after_its_confirmation_was_rejected_is_found():
    row = EXPIRED_IN_VAIN | {"status": "CONFIRMED", "confirmedAt": EARLY}
    events = [told(1, "OrderPlaced"), told(2, "ConfirmationRejected"), told(3, "OrderConfirmed")]
    assert len(differences({"o-1": row}, events)) == 1


def test_customers_answer_each_event_once_and_remember_what_they_asked():
    customers = Customers(1)
    placed = [told(1, "OrderPlaced", f"o-{n}") for n in range(100)]
    asked = customers.hear(Heard(event, None) for event in placed)
    assert customers.hear(Heard(event, None) for event in placed) == []
    assert customers.repeated == len(customers.heard) == 100
    assert customers.commands == asked
    wishes = [json.loads(message.body) for message in asked]
    actions = Counter(wish["action"] for wish in wishes)
    assert actions["confirm"] > actions["cancel"] > 0
    assert any(wish.get("restock") is False for wish in wishes), "some units are lost"
    # Some messages are sent twice.
    assert len({message.body for message in asked}) < len(asked)


def product_told(version, kind):
    event_id = f"tea@{CREATED}#{version}#{kind}"
    metadata, data = {"eventId": event_id}, {"productId": "tea", "version": version}
    return Heard({"detail-type": kind, "detail": {"metadata": metadata, "data": data}}, None)


TEA = product_row()
CREATED = TEA["createdAt"]
LOW = product_row("LOW_STOCK", stockCount=5, _version=8)
STILL_LOW = product_row("LOW_STOCK", stockCount=4, _version=9)
OUT_OF_STOCK = {"status": "OUT_OF_STOCK", "stockCount": 0, "_version": 10}
OUT = product_row(**OUT_OF_STOCK)
BACK = product_row("LOW_STOCK", stockCount=5, _version=11)
RECOVERED = product_row(stockCount=9, _version=12)
ENDED = product_row("DISCONTINUED", stockCount=9, _version=13)
ITS_CHANGES = [
    *(change(None, TEA), change(TEA, LOW), change(LOW, STILL_LOW), change(STILL_LOW, OUT)),
    *(change(OUT, BACK), change(BACK, RECOVERED), change(RECOVERED, ENDED), change(ENDED, None)),
]
ITS_NEWS = {
    8: "ProductLowOnStock",
    10: "ProductOutOfStock",
    11: "ProductBackInStock",
    12: "ProductStockRecovered",
}


def test_changes_of_products_call_for_the_events_that_customers_receive():
    customers = Customers(1)
    news = [product_told(version, kind) for version, kind in ITS_NEWS.items()]
    customers.hear([*news[:1], Heard(told(1, "OrderPlaced"), None), *news])
    ids = {f"tea@{CREATED}#{version}#{kind}" for version, kind in ITS_NEWS.items()}
    assert demanded(ITS_CHANGES) == customers.news_of_products == ids
    there = [place_row("tea#berlin"), place_row("tea#berlin", **OUT_OF_STOCK)]
    assert demanded([change(*there)]) == {f"tea@{CREATED}#10#ProductOutOfStock#berlin"}


def test_an_event_of_a_product_at_a_location_that_is_overtaken_is_found():
    ids = [f"tea@{CREATED}#{version}#{kind}#berlin" for version, kind in ITS_NEWS.items()]
    elsewhere = [event_id.replace("#berlin", "#store") for event_id in ids]
    assert overtaken([*ids, *elsewhere, *ids]) == []
    assert overtaken([ids[1], elsewhere[0], ids[0], ids[2]]) == [ids[0]]


def written(second, before, after):
    """Make the stream record of a change that happens at a given second."""
    record = change(before, after)
    record["dynamodb"]["ApproximateCreationDateTime"] = NOW + timedelta(seconds=second)
    return record


def rejection(second, reason="INSUFFICIENT_STOCK", **wanted):
    row = order_row("o-1", wanted, "REJECTED") | {"reason": reason}
    lacks = [{"productId": p, "wanted": n, "available": 0} for p, n in wanted.items()]
    return written(second, None, row | ({"shortages": lacks} if lacks else {}))


def stream_of(*stock, product_id="tea", **more):
    """Make the stream records of a product whose stock changes at the given seconds."""
    rows = [product_row(productId=product_id, stockCount=units, **more) for _, units in stock]
    seconds = [second for second, _ in stock]
    return list(map(written, seconds, [None, *rows], rows))


def delisted(second):
    return written(second, product_row(productId="tea"), None)


@pytest.mark.parametrize(
    "changes",
    [
        stream_of((0, 9), (40, 2)),
        stream_of((0, 2)),
        # The order was sold by the same transaction, whose changes may have different times.
        stream_of((0, 9), (101, 2)),
        # A receipt came while the rejection was being written.
        stream_of((0, 9), (40, 2), (70, 9)),
    ],
)
def test_a_rejection_is_justified_by_a_row_that_was_short_at_the_time(changes):
    assert unfounded([rejection(100, tea=3)], changes) == []


@pytest.mark.parametrize("gone", [60, 101])
def test_a_rejection_for_an_unknown_product_is_justified_while_it_is_delisted(gone):
    changes = [*stream_of((0, 9)), delisted(gone), *stream_of((gone + 1, 9))]
    assert unfounded([rejection(100, "UNKNOWN_PRODUCT", mug=1, tea=3)], changes) == []


@pytest.mark.parametrize(
    ("order", "changes"),
    [
        (rejection(100, tea=3), stream_of((0, 9), (40, 3))),
        (rejection(100, tea=3), stream_of((0, 2), lentTo=frozenset({"0"}))),
        (rejection(100, tea=3), stream_of((0, 2), backorderLimit=1)),
        (rejection(100, tea=3), stream_of((0, 9), (110, 2))),
        (rejection(100, tea=3), stream_of((0, 2), (30, 9))),
        (rejection(100, tea=3), stream_of((0, 2), product_id="mug")),
        (rejection(100, tea=3, mug=1), stream_of((0, 2)) + stream_of((0, 9), product_id="mug")),
        (rejection(100, "UNKNOWN_PRODUCT"), stream_of((0, 9))),
        (rejection(100, "UNKNOWN_PRODUCT", tea=1), stream_of((0, 9))),
        (rejection(100, "UNKNOWN_PRODUCT", tea=1), [*stream_of((0, 9)), delisted(110)]),
        (
            rejection(100, "UNKNOWN_PRODUCT", tea=1),
            [*stream_of((0, 9)), delisted(20), *stream_of((30, 9))],
        ),
        (rejection(100, "DISCONTINUED_PRODUCT", tea=1), [*stream_of((0, 9)), delisted(90)]),
        (rejection(100), stream_of((0, 2))),
    ],
)
def test_a_rejection_without_a_row_that_is_short_is_found(order, changes):
    assert len(unfounded([order], changes)) == 1


def choosing(*locations, split=False, reason="INSUFFICIENT_STOCK", **wanted):
    """Make the record of a rejected order with several locations, including its shortages there."""
    change = rejection(100, reason, **wanted)
    row = decode(change["dynamodb"]["NewImage"])
    row |= {"locations": list(locations)} | ({"split": True} if split else {})
    if reason == "INSUFFICIENT_STOCK":
        row["shortages"] = [
            {"productId": "tea", "wanted": wanted["tea"], "available": 0}
            | ({"locationId": location} if location else {})
            for location in locations
        ]
    return written(100, None, row)


HERE, THERE = stream_of((0, 2)), stream_of((0, 2), product_id="tea#berlin")
PLENTY, PLENTY_THERE = stream_of((0, 9)), stream_of((0, 9), product_id="tea#berlin")
MUGS = stream_of((0, 9), product_id="mug") + stream_of((0, 9), product_id="mug#berlin")
GONE = [
    *stream_of((0, 9), product_id="tea#berlin"),
    written(60, product_row(productId="tea#berlin"), None),
]


@pytest.mark.parametrize(
    ("order", "changes"),
    [
        (choosing("", "berlin", tea=3), HERE + THERE),
        (choosing("", "berlin", tea=3), HERE),
        (choosing("", "berlin", tea=3), HERE + GONE),
        (choosing("", "berlin", tea=3, mug=1, split=True), HERE + THERE + MUGS),
        (choosing("", "berlin", tea=3, reason="UNKNOWN_PRODUCT"), []),
        (
            choosing("", "berlin", tea=3, reason="UNKNOWN_PRODUCT"),
            [*stream_of((0, 9)), delisted(60)],
        ),
    ],
)
def test_a_rejection_is_justified_if_each_location_has_a_reason(order, changes):
    assert unfounded([order], changes) == []


@pytest.mark.parametrize(
    ("order", "changes"),
    [
        (choosing("", "berlin", tea=3), PLENTY + THERE),
        (choosing("", "berlin", tea=3), HERE + PLENTY_THERE),
        (choosing("", "berlin", tea=3, mug=1, split=True), HERE + PLENTY_THERE + MUGS),
        (choosing("", "berlin", tea=3, reason="UNKNOWN_PRODUCT"), HERE),
        (choosing("", "berlin", tea=3, reason="UNKNOWN_PRODUCT"), THERE),
        (choosing("berlin", tea=3), PLENTY),
    ],
)
def test_a_rejection_although_a_location_could_sell_is_found(order, changes):
    assert len(unfounded([order], changes)) == 1


def test_a_rejected_split_order_lacks_a_product_everywhere():
    lacks_one_at_each = [
        *HERE,
        *PLENTY_THERE,
        *stream_of((0, 9), product_id="mug"),
        *stream_of((0, 0), product_id="mug#berlin"),
    ]
    for split, wrong in ((False, 0), (True, 1)):
        order = choosing("", "berlin", tea=3, mug=1, split=split)
        row = decode(order["dynamodb"]["NewImage"])
        row["shortages"] = [
            {"productId": "tea", "wanted": 3, "available": 2},
            {"productId": "mug", "locationId": "berlin", "wanted": 1, "available": 0},
        ]
        assert len(unfounded([written(100, None, row)], lacks_one_at_each)) == wrong


def test_a_line_that_names_its_location_lacks_it_there():
    row = decode(choosing("", "berlin", tea=3)["dynamodb"]["NewImage"])
    row["items"][0]["askedLocationId"] = "berlin"
    row["shortages"] = row["shortages"][1:]
    order = written(100, None, row)
    assert unfounded([order], PLENTY + THERE) == []
    assert len(unfounded([order], HERE + PLENTY_THERE)) == 1


def test_all_rejections_of_the_engine_are_justified_and_an_injected_one_is_found():
    """Two workers sell from lanes until everything is sold, and again after a receipt."""
    known, streams = {Table.PRODUCTS: {}, Table.ORDERS: {}}, {Table.PRODUCTS: [], Table.ORDERS: []}
    with open_shop() as shop:

        def watch(*_):
            for table, rows in known.items():
                for key, item in shop.aws.dynamodb.tables[table].items.items():
                    if (before := rows.get(key)) is not item:
                        old, rows[key] = before and decode(before), item
                        streams[table].append(written(shop.clock.now(), old, decode(item)))

        for product_id, stock in (("tea", 200), ("mug", 5_000), ("tea#berlin", 100)):
            shop.list(product_id, stock)
        shop.before = watch
        lend(shop.store, "tea", 150, {1: 20, 2: 20})
        workers = [shop.worker(lanes=2) for _ in range(2)]
        for turn in range(8):
            if turn == 5:
                shop.commit(shop.worker(), Adjustment("tea", "r-1", 40, "RECEIPT"))
            batch = [
                Order(
                    *(f"o-{turn}-{n}", "u", {"tea": 1 + n % 3, "mug": 1}),
                    locations=("", "berlin"),
                    split=n % 2 == 0,
                )
                for n in range(30)
            ]
            shop.clock.sleep(20)
            shop.commit(workers[turn % 2], *batch)
        watch()
    orders, products = streams[Table.ORDERS], streams[Table.PRODUCTS]
    assert any("lentTo" in change["dynamodb"]["NewImage"] for change in products)
    assert any(change["dynamodb"]["NewImage"]["status"]["S"] == "REJECTED" for change in orders)
    assert unfounded(orders, products) == []
    began = (orders[0]["dynamodb"]["ApproximateCreationDateTime"] - NOW).total_seconds()
    assert len(unfounded([*orders, rejection(began, tea=1)], products)) == 1


def ledger_of(shop):
    """Return the equations of the books that do not hold, and the rows of the adjustments."""
    tables = (Table.PRODUCTS, Table.ALLOTMENTS, Table.STOCK_ADJUSTMENTS, Table.ORDERS)
    products, pages, adjustments, orders = (list(read_rows(shop.stack, name)) for name in tables)
    return imbalances(products, pages, adjustments, orders), adjustments


def step(shop, action, order_id, step_id="", units=0, **more):
    body = {"action": action, "orderId": order_id, **more}
    if step_id:
        body |= {"stepId": step_id, "items": [{"productId": "tea", "quantity": units}]}
    return parse_order_command(json.dumps(body))


def busy_shop(shop):
    """Put units in lanes and on outbound pages, and lose, cancel, return and transfer units at two locations."""
    shop.list("tea", 300)
    shop.list("tea#berlin", 40)
    shop.list("mug", 0)
    shop.list("mug#berlin", 9)
    lend(shop.store, "tea", 150, {1: 20})
    shop.list("gone", 6)
    orders = [Order(f"o-{n}", "u", {"tea": 4, "gone": 1}) for n in range(5)]
    worker = shop.worker()
    shop.commit(worker, *orders, Order("o-rejected", "u", {"gone": 9}))
    shop.commit(worker, *(step(shop, "confirm", order.order_id) for order in orders[:4]))
    there = [
        Order("o-there", "u", {"tea": 4}, locations=("berlin", "")),
        Order("o-split", "u", {"mug": 3, "gone": 1}, locations=("berlin", ""), split=True),
        Transfer("tea", "tea#berlin", "t-1", 7),
    ]
    shop.commit(worker, *there, Order("o-kept", "u", {"tea": 2}, locations=("berlin",)))
    shop.commit(worker, step(shop, "confirm", "o-there"), step(shop, "cancel", "o-split"))
    shop.commit(
        worker,
        step(shop, "fulfil", "o-there", "parcel", 2),
        step(shop, "cancel", "o-there", "lost", 1, restock=False),
    )
    shop.commit(
        worker,
        step(shop, "fulfil", "o-0"),
        step(shop, "fulfil", "o-1", "parcel", 2),
        step(shop, "cancel", "o-1", "lost", 1, restock=False),
        step(shop, "cancel", "o-2", "less", 1),
        step(shop, "cancel", "o-3"),
        step(shop, "cancel", "o-4", "lost", 3, restock=False),
    )
    shop.commit(
        worker,
        step(shop, "return", "o-0", "good", 1, restock=True),
        step(shop, "return", "o-0", "bad", 2, restock=False),
        Adjustment("tea", "r-1", 40, "RECEIPT"),
    )


def test_the_three_equations_hold_in_a_shop_where_everything_happens():
    with open_shop() as shop:
        busy_shop(shop)
        pages = {
            decode(item)["page"].split("/")[0] for item in shop.items(Table.ALLOTMENTS).values()
        }
        assert {"0", "1", "out"} <= pages
        split = shop.order_row("o-split")["items"]
        assert [line.get("locationId") for line in split] == ["berlin", None]
        assert ledger_of(shop)[0] == []


@pytest.mark.parametrize(
    ("edit", "broken"),
    [
        ({"stockCount": 1}, ["available", "committed"]),
        ({"onHand": 1}, ["on hand", "committed"]),
        ({"stockCount": 1, "onHand": 1}, ["available", "on hand"]),
    ],
)
@pytest.mark.parametrize("key", ["tea", "tea#berlin"])
def test_an_equation_that_a_row_breaks_is_found(edit, broken, key):
    with open_shop() as shop:
        busy_shop(shop)
        row = decode(shop.items(Table.PRODUCTS)[key,])
        shop.edit(Table.PRODUCTS, key, **encode({name: row[name] + n for name, n in edit.items()}))
        found, _ = ledger_of(shop)
    assert all(words.startswith(f"{key}: ") for words in found)
    assert [words.split(" units are ")[1].split(",")[0] for words in found] == broken


def test_an_open_unit_of_a_finished_order_is_found():
    with open_shop() as shop:
        busy_shop(shop)
        shop.edit(Table.ORDERS, "o-2", status={"S": "FULFILLED"})
        found, _ = ledger_of(shop)
    assert len(found) == 2, found
    assert all("committed" in words for words in found)


BOOKED = {"productId": "tea", "adjustmentId": "c-1", "reason": "COUNT", "counted": 7, "delta": -2}


@pytest.mark.parametrize(
    ("result", "row", "is_fine"),
    [
        ("COMMITTED", BOOKED, True),
        ("COMMITTED", BOOKED | {"delta": -1}, False),
        ("COMMITTED", BOOKED | {"counted": 8}, False),
        ("COMMITTED", None, False),
        ("REFUSED", None, True),
        ("REFUSED", BOOKED, False),
        ("", None, True),
        ("", BOOKED, True),
        ("", BOOKED | {"delta": 0}, False),
        ("COMMITTED", BOOKED | {"adjustmentId": "c-2"}, False),
    ],
)
def test_a_count_that_was_not_booked_as_answered_is_found(result, row, is_fine):
    rows = [] if row is None else [row, BOOKED | {"adjustmentId": "r-1", "reason": "RECEIPT"}]
    count = StaffCount("tea", "c-1", 9, 7, result)
    assert (wrong_counts([count], rows) == []) is is_fine


def test_a_count_that_was_not_requested_is_found():
    assert wrong_counts([], [BOOKED]) == ["not requested: count tea/c-1"]


class Turns:
    """Stops the soak's staff after a few turns."""

    def __init__(self, turns):
        self.left = turns

    def wait(self, _):
        self.left -= 1
        return self.left < 0


OUT = {"productId": "tea", "adjustmentId": "t-1", "reason": "TRANSFER_OUT", "delta": -3}
IN = {"productId": "tea#berlin", "adjustmentId": "t-1", "reason": "TRANSFER_IN", "delta": 3}


@pytest.mark.parametrize(
    ("result", "rows", "is_fine"),
    [
        ("APPLIED", [OUT, IN], True),
        ("REPLAYED", [OUT, IN], True),
        ("APPLIED", [OUT], False),
        ("APPLIED", [IN], False),
        ("APPLIED", [], False),
        ("APPLIED", [OUT, IN | {"delta": 2}], False),
        ("APPLIED", [OUT, IN | {"productId": "tea#store"}], False),
        ("REFUSED", [], True),
        ("REFUSED", [OUT, IN], False),
        ("", [], True),
        ("", [OUT, IN], True),
        ("", [OUT], False),
        ("APPLIED", [OUT, IN, IN | {"adjustmentId": "t-2"}], False),
    ],
)
def test_a_transfer_that_was_not_booked_as_answered_is_found(result, rows, is_fine):
    asked = StaffTransfer("t-1", "tea", "tea#berlin", 3, result)
    others = [BOOKED, RECEIPT]
    assert (wrong_transfers([asked], [*rows, *others]) == []) is is_fine


def place_row(key, **attributes):
    product_id, _, location_id = key.partition("#")
    return product_row(productId=key, of=product_id, locationId=location_id, **attributes)


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([product_row(productId="tea", places=frozenset({"berlin"})), place_row("tea#berlin")], 0),
        ([product_row(productId="tea")], 0),
        ([product_row(productId="tea", places=frozenset({"berlin"}))], 1),
        ([product_row(productId="tea"), place_row("tea#berlin")], 1),
        ([place_row("tea#berlin")], 1),
        (
            [
                product_row(productId="tea", places=frozenset({"berlin"})),
                place_row("tea#berlin") | {"locationId": "lyon"},
            ],
            1,
        ),
    ],
)
def test_locations_that_contradict_the_products_list_are_found(rows, wrong):
    assert len(wrong_places(rows)) == wrong


def test_the_staff_count_move_and_relist_and_their_records_match_the_books(monkeypatch):
    monkeypatch.setattr("tests.soak.staff._AWAY_SECONDS", 0)
    stocked = [*sample_orders.stocked(), *SEASONAL]
    with open_shop() as shop:
        shelf.create(shop.stack, stocked)
        ids = {product.product_id.partition("#")[0] for product in stocked}
        for n, location in enumerate(["", *sample_orders.LOCATIONS]):
            orders = [Order(f"o-{n}-{i}", "u", {i: 1}, locations=(location,)) for i in sorted(ids)]
            shop.commit(shop.worker(), *orders)
        staff = Staff(shop.stack, "s1", 3)
        staff.work(Turns(6))
        broken, adjustments = ledger_of(shop)
        products = [decode(item) for item in shop.items(Table.PRODUCTS).values()]
    assert broken == wrong_places(products) == wrong_counts(staff.counts, adjustments) == []
    assert wrong_transfers(staff.transfers, adjustments) == []
    assert {count.result for count in staff.counts} == {"COMMITTED", "REFUSED"}
    assert any("#" in count.key for count in staff.counts)
    moved = {(transfer.result, "#" in transfer.source) for transfer in staff.transfers}
    assert {("APPLIED", True), ("APPLIED", False)} <= moved
    closed = [row["productId"] for row in adjustments if row["reason"] == "CLOSING"]
    assert len(closed) == staff.delisted > 6
    assert {*closed} == {product.product_id for product in SEASONAL}
