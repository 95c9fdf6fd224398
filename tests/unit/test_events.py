"""Outcome events: the events that a change to a row causes, and the schemas that consumers rely on."""

import itertools
import json
from decimal import Decimal

import jsonschema
import pytest
from referencing import Registry, Resource

from docs_generator import asyncapi
from inventory_orders.clock import Deadline
from inventory_orders.domain.events import (
    EventType,
    order_events,
    product_events,
    stock_event,
    to_json,
)
from inventory_orders.domain.product import ProductStatus
from inventory_orders.errors import UnpublishableError
from inventory_orders.publishing.publisher import PROBE, Bus, Publisher
from local import ROOT
from testing.aws.bus import EventBus
from testing.world.clock import FakeClock
from testing.world.streams import order_row, product_row
from tests.support.schemas import closed, is_open

LATER = "2026-01-01T00:10:00.000000+00:00"
REJECTED_CONFIRMATION = {"at": LATER, "reason": "ORDER_EXPIRED"}


def changed(row, status, **changes):
    return (
        row | {"status": status, "_version": row["_version"] + 1, "lastUpdatedAt": LATER} | changes
    )


def with_steps(row, status, *steps, **changes):
    return changed(row, status, steps=[*row.get("steps", ()), *steps], **changes)


def step(action, step_id=None, units=1, **more):
    if step_id is None:
        return {"action": action, "at": LATER, **more}
    items = [{"productId": "tea", "quantity": units, "returnedVersion": 9}]
    return {"action": action, "at": LATER, "stepId": step_id, "items": items, **more}


def with_returns(row, *step_ids):
    returns = (step("return", step_id, restock=True) for step_id in step_ids)
    return with_steps(row, "FULFILLED", *returns)


PLACED = order_row()
CONFIRMED = with_steps(PLACED, "CONFIRMED", step("confirm"), confirmedAt=LATER)
FULFILLED = with_steps(CONFIRMED, "FULFILLED", step("fulfil"), fulfilledAt=LATER)
IN_PART = with_steps(CONFIRMED, "CONFIRMED", step("fulfil", "f-1"))
ALL_BY_PARTS = with_steps(IN_PART, "FULFILLED", step("fulfil", "f-2"), fulfilledAt=LATER)
LESS = with_steps(CONFIRMED, "CONFIRMED", step("cancel", "c-1"))
NO_REST = with_steps(
    IN_PART,
    "FULFILLED",
    step("cancel", items=[{"productId": "tea", "quantity": 1}]),
    fulfilledAt=LATER,
)
NO_MORE = with_steps(LESS, "CANCELLED", step("cancel", "c-2"))
BOTH = [{"productId": "tea", "quantity": 2}]
EXPIRED = with_steps(PLACED, "EXPIRED", step("expire", items=BOTH))
REJECTED = order_row(
    status="REJECTED",
    reason="INSUFFICIENT_STOCK",
    shortages=[{"productId": "tea", "wanted": 2, "available": 1}],
)
LATE = changed(EXPIRED, "EXPIRED", confirmationRejected=REJECTED_CONFIRMATION)
TOMBSTONE = order_row(userId=None, items=[], status="CANCELLED", steps=[step("cancel")])
FILLED_IN = with_steps(PLACED, "CANCELLED", step("cancel"))
ONE_BACK = with_returns(FULFILLED, "rt-1")


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        (None, PLACED, ["OrderPlaced"]),
        (None, REJECTED, ["OrderRejected"]),
        (PLACED, CONFIRMED, ["OrderConfirmed"]),
        (CONFIRMED, FULFILLED, ["OrderFulfilled"]),
        (PLACED, FILLED_IN, ["OrderCancelled"]),
        (PLACED, EXPIRED, ["OrderExpired"]),
        (EXPIRED, LATE, ["ConfirmationRejected"]),
        (FULFILLED, ONE_BACK, ["OrderReturned"]),
        (ONE_BACK, with_returns(ONE_BACK, "rt-2"), ["OrderReturned"]),
        (CONFIRMED, IN_PART, ["OrderPartlyFulfilled"]),
        (IN_PART, ALL_BY_PARTS, ["OrderFulfilled"]),
        (CONFIRMED, LESS, ["OrderPartlyCancelled"]),
        (LESS, NO_MORE, ["OrderCancelled"]),
        (IN_PART, NO_REST, ["OrderPartlyCancelled", "OrderFulfilled"]),
        (IN_PART, with_steps(IN_PART, "CONFIRMED", step("return", "r", restock=True)), ["OrderReturned"]),
        # The events are published again from the row alone.
        (None, ALL_BY_PARTS, ["OrderPartlyFulfilled", "OrderFulfilled"]),
        # An extended hold has no event. Its step replaces that of the previous extension.
        (PLACED, with_steps(PLACED, "PENDING", step("extend")), []),
        # A tombstone, and the order that replaces it.
        (None, TOMBSTONE, []),
        (TOMBSTONE, TOMBSTONE | {"_version": 2, "confirmationRejected": REJECTED_CONFIRMATION}, []),
        (TOMBSTONE, FILLED_IN, ["OrderCancelled"]),
        (
            TOMBSTONE | {"confirmationRejected": REJECTED_CONFIRMATION},
            FILLED_IN | {"confirmationRejected": REJECTED_CONFIRMATION},
            ["OrderCancelled", "ConfirmationRejected"],
        ),
        # The row was repaired, restored from a backup or imported.
        (order_row(items="tea", status="ON_HOLD"), PLACED, ["OrderPlaced"]),
        (None, CONFIRMED, ["OrderConfirmed"]),
        # These changes have no events.
        (PLACED, PLACED | {"userId": "pseudonym", "_version": 2}, []),
        (ONE_BACK, ONE_BACK | {"_version": 9}, []),
        (LATE, LATE | {"userId": "pseudonym", "_version": 9}, []),
        (PLACED, None, []),
    ],
)  # fmt: skip
def test_a_change_of_an_order_makes_these_events(before, after, events):
    made = order_events(before, after)
    assert [event.type for event in made] == events
    for event in made:
        assert event.id == f"o-1#{after['_version']}#{event.type}"
        assert event.subject == "o-1"
        assert event.occurred_at == after["lastUpdatedAt"]
        assert event.data["version"] == after["_version"]


def test_events_of_one_version_are_in_the_sequence_of_an_orders_life():
    rest = step("cancel", items=[{"productId": "tea", "quantity": 1}])
    steps = (step("fulfil", "f-1"), step("cancel", "c-1"), rest)
    after = with_returns(with_steps(PLACED, "FULFILLED", *steps), "rt-1", "rt-2") | {
        "confirmationRejected": REJECTED_CONFIRMATION
    }
    ids = [event.id for event in order_events(PLACED, after)]
    assert ids == [
        "o-1#3#OrderPartlyFulfilled",
        "o-1#3#OrderPartlyCancelled:c-1",
        "o-1#3#OrderPartlyCancelled",
        "o-1#3#OrderFulfilled",
        "o-1#3#ConfirmationRejected",
        "o-1#3#OrderReturned:rt-1",
        "o-1#3#OrderReturned:rt-2",
    ]


def test_a_steps_event_has_its_units_and_the_lines_have_the_totals():
    two = [{"productId": p, "quantity": 5} for p in ("tea", "cup")]
    before = with_steps(PLACED | {"items": two}, "CONFIRMED", step("fulfil", "f-1", 2))
    back = step("return", "rt-1", 1, restock=False, actor="ann", reason="scratched")
    (event,) = order_events(before, with_steps(before, "CONFIRMED", back))
    items = [{"productId": "tea", "quantity": 1}]
    told = {"action": "return", "at": LATER, "stepId": "rt-1", "items": items, "restock": False}
    assert event.data["step"] == told, "the order was not confirmed, so there is nothing to refund"
    assert event.data["steps"][-1] == told, "the event does not contain the actor"
    assert event.data["items"] == [two[0] | {"fulfilled": 2, "returned": 1}, two[1]]


def test_an_order_whose_rest_is_cancelled_has_its_units_in_one_event_only():
    in_part, ended = order_events(IN_PART, NO_REST)
    assert (in_part.data["step"]["action"], "step" in ended.data) == ("cancel", False)


def test_an_event_says_which_cancelled_units_were_lost():
    lost = step("cancel", "l-1", restock=False)
    (event,) = order_events(CONFIRMED, with_steps(CONFIRMED, "CONFIRMED", lost))
    assert (event.type, event.data["step"]["restock"]) == ("OrderPartlyCancelled", False)
    assert event.data["items"] == [{"productId": "tea", "quantity": 2, "cancelled": 1}]
    (event,) = order_events(LESS, with_steps(LESS, "CANCELLED", lost))
    steps = [(each["stepId"], each.get("restock")) for each in event.data["steps"][1:]]
    assert (event.type, steps) == ("OrderCancelled", [("c-1", None), ("l-1", False)])


def test_an_event_has_no_internal_attributes_and_no_person_except_the_user():
    row = PLACED | {"expiryShard": "07", "address": "12 Tea Lane", "pseudonymisedAt": LATER}
    (event,) = order_events(None, row)
    text = json.dumps(event.detail())
    assert not [name for name in ("expiryShard", "Tea Lane", "productCreatedAt") if name in text]
    assert event.data["userId"] == "u-1"


@pytest.mark.parametrize(
    ("changes", "code", "names"),
    [
        ({"status": "ON_HOLD"}, "UNKNOWN_ORDER_STATUS", "ON_HOLD"),
        ({"status": None}, "UNREADABLE_ROW", "status"),
        ({"_version": "1"}, "UNREADABLE_ROW", "_version"),
        ({"_version": 0}, "UNREADABLE_ROW", "_version"),
        ({"_version": True}, "UNREADABLE_ROW", "_version"),
        ({"userId": 7}, "UNREADABLE_ROW", "userId"),
        ({"items": "tea"}, "UNREADABLE_ROW", "items"),
        ({"items": ["tea"]}, "UNREADABLE_ROW", "items"),
        ({"items": [{"productId": "tea", "quantity": Decimal("1.5")}]}, "UNREADABLE_ROW", "quantity"),
        ({"lastUpdatedAt": None}, "UNREADABLE_ROW", "lastUpdatedAt"),
        ({"attributes": "web"}, "UNREADABLE_ROW", "attributes"),
    ],
)  # fmt: skip
def test_a_row_that_breaks_the_contract_is_named_and_publishes_nothing(changes, code, names):
    with pytest.raises(UnpublishableError, match=names) as refused:
        order_events(None, order_row(**changes))
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, order_row(userId=None)),
        (PLACED, CONFIRMED | {"userId": None}),
        (PLACED, TOMBSTONE | {"_version": 2}),
    ],
)
def test_an_order_without_its_user_is_not_a_tombstone(before, after):
    with pytest.raises(UnpublishableError, match="userId"):
        order_events(before, {name: value for name, value in after.items() if value is not None})


NEWS = {
    ("ACTIVE", "LOW_STOCK"): "ProductLowOnStock",
    ("ACTIVE", "OUT_OF_STOCK"): "ProductOutOfStock",
    ("LOW_STOCK", "OUT_OF_STOCK"): "ProductOutOfStock",
    ("LOW_STOCK", "ACTIVE"): "ProductStockRecovered",
    ("OUT_OF_STOCK", "LOW_STOCK"): "ProductBackInStock",
    ("OUT_OF_STOCK", "ACTIVE"): "ProductBackInStock",
    ("DISCONTINUED", "LOW_STOCK"): "ProductBackInStock",
    ("DISCONTINUED", "ACTIVE"): "ProductBackInStock",
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(ProductStatus, repeat=2)))
def test_a_change_of_a_products_status_is_an_event(before, after):
    made = product_events(product_row(before), product_row(after))
    kind = NEWS.get((before, after))
    assert [event.type for event in made] == ([kind] if kind else [])
    for event in made:
        assert event.id == f"tea@{event.data['createdAt']}#7#{kind}"
        assert event.data["previousStatus"] == before


def test_other_changes_of_a_product_are_not_events():
    assert product_events(None, product_row("OUT_OF_STOCK")) == ()
    assert product_events(product_row("LOW_STOCK"), None) == ()
    assert product_events(product_row("ON_HOLD"), product_row("ON_HOLD", stockCount="?")) == ()


def test_a_product_without_limits_has_none():
    row = product_row("LOW_STOCK")
    del row["lowStockThreshold"], row["backorderLimit"]
    (event,) = product_events(product_row(), row)
    assert (event.data["lowStockThreshold"], event.data["backorderLimit"]) == (0, 0)


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ({}, {"status": ["LOW_STOCK"]}, "status"),
        ({}, {"status": {"is": "LOW_STOCK"}}, "status"),
        ({}, {"status": None}, "status"),
        ({}, {"status": "ON_HOLD"}, "ON_HOLD"),
        ({"status": ["ACTIVE"]}, {}, "status"),
        ({"status": "ON_HOLD"}, {}, "ON_HOLD"),
        ({}, {"stockCount": "9"}, "stockCount"),
        ({}, {"lowStockThreshold": "5"}, "lowStockThreshold"),
        ({}, {"backorderLimit": None}, "backorderLimit"),
        ({}, {"name": 7}, "name"),
        ({}, {"price": Decimal("12.9")}, "price"),
    ],
)
def test_a_product_that_breaks_the_contract_is_named_and_publishes_nothing(before, after, names):
    with pytest.raises(UnpublishableError, match=names) as refused:
        product_events(product_row(**before), product_row("LOW_STOCK") | after)
    assert refused.value.code == "UNREADABLE_ROW"


def test_values_that_json_lacks_are_converted():
    """Binary values that another program wrote must not delay the other orders in a list or batch."""
    (event,) = order_events(
        None, order_row(attributes={"weight": Decimal("0.25"), "photo": [b"\xff"]})
    )
    assert '"weight": 0.25, "photo": ["/w=="]' in json.dumps(event.detail(), default=to_json)
    with pytest.raises(TypeError, match="set"):
        to_json(set())


# ---------------------------------------------------------------------- schemas


@pytest.fixture(scope="module")
def validator():
    """Return a function that validates an event's `detail` by its schema, and the event by the envelope's schema."""
    parts = asyncapi.schemas()
    resources = [
        (f"{name}.schema.json", Resource.from_contents(closed(schema)))
        for name, schema in parts.items()
    ]
    registry = Registry().with_resources(resources)

    def validate(event, detail):
        schema = {"$ref": f"{event}.schema.json"}
        jsonschema.Draft7Validator(schema, registry=registry).validate(detail)

    for schema in parts.values():
        jsonschema.Draft7Validator.check_schema(schema)
        assert is_open(schema), "consumers that validate must accept fields that are added later"
    return validate


def all_events():
    returned = with_returns(ONE_BACK, "rt-2")
    held = PLACED | {"holdSeconds": 60, "expiresAt": LATER, "attributes": {"channel": "web"}}
    yield from order_events(None, held)
    yield from order_events(None, REJECTED)
    choice = {"locations": ["berlin", ""], "split": True}
    line = {"productId": "tea", "locationId": "berlin", "askedLocationId": "berlin", "quantity": 2}
    yield from order_events(None, PLACED | choice | {"items": [line]})
    short = [{"productId": "tea", "locationId": "berlin", "wanted": 2, "available": 1}]
    yield from order_events(None, REJECTED | choice | {"shortages": short})
    limits = [{"group": "drop", "limit": 2, "bought": 2, "wanted": 1}]
    over = {"reason": "PURCHASE_LIMIT", "limits": limits, "buyers": ["u-1", "card"]}
    yield from order_events(None, REJECTED | over)
    for before, after in (
        *((PLACED, CONFIRMED), (CONFIRMED, FULFILLED), (PLACED, FILLED_IN), (PLACED, EXPIRED)),
        *((EXPIRED, LATE), (ONE_BACK, returned), (CONFIRMED, IN_PART), (IN_PART, NO_REST)),
        (CONFIRMED, with_steps(CONFIRMED, "CONFIRMED", step("cancel", "l-1", restock=False))),
    ):
        yield from order_events(before, after)
    for before, after in NEWS:
        yield from product_events(product_row(before, name="Tea", price=1290), product_row(after))
    at_berlin = product_row("LOW_STOCK", productId="tea#berlin", safetyStock=3, purchaseLimit=2)
    yield from product_events(product_row(productId="tea#berlin"), at_berlin)
    for key in ("tea", "tea#berlin"):
        yield stock_event(key, (LATER, 4, -3, "OUT_OF_STOCK"), LATER)


def test_every_event_keeps_to_its_schema_and_so_does_a_probe(validator):
    made = list(all_events())
    assert {event.type for event in made} == set(EventType)
    for event in made:
        validator(event.type, json.loads(json.dumps(event.detail())))
        assert "tea#berlin" not in json.dumps(event.detail())
    clock = FakeClock()
    bridge = EventBus(clock, lambda _, kind: None if kind == PROBE else ("MalformedDetail", "no"))
    Publisher(Bus(bridge, "Bus"), lambda _: True, clock).publish(
        made[:1], Deadline.after(60, clock)
    )
    assert bridge.taken[0]["detail-type"] == PROBE
    validator(PROBE, bridge.taken[0]["detail"])


def test_an_orders_event_has_its_requested_locations_and_each_lines_location():
    line = {"productId": "tea", "locationId": "berlin", "askedLocationId": "berlin", "quantity": 2}
    row = PLACED | {"locations": ["berlin", ""], "split": True, "items": [line]}
    (event,) = order_events(None, row)
    assert (event.data["locations"], event.data["split"]) == (["berlin", ""], True)
    assert event.data["items"] == [{"productId": "tea", "locationId": "berlin", "quantity": 2}]


def test_the_id_of_an_event_names_the_location_last():
    own, berlin = (
        stock_event(key, (LATER, 4, 4, "ACTIVE"), LATER) for key in ("tea", "tea#berlin")
    )
    assert berlin.id == f"{own.id}#berlin"
    before, after = (
        product_row(status, productId="tea#berlin") for status in ("ACTIVE", "LOW_STOCK")
    )
    (news,) = product_events(before, after)
    assert news.id.endswith("#ProductLowOnStock#berlin")


@pytest.mark.parametrize("event", asyncapi.EVENTS)
def test_there_is_an_example_of_every_event_as_a_consumer_receives_it(validator, event):
    example = asyncapi.example(event)
    validator("envelope", example)
    validator(event, example["detail"])
    assert example["detail-type"] == event
    names = {path.stem for path in (asyncapi.FOLDER / "examples").iterdir()}
    assert names == set(asyncapi.EVENTS)


@pytest.mark.parametrize(
    ("event", "path", "value"),
    [
        ("OrderPlaced", "status", "CONFIRMED"),
        ("OrderPlaced", "email", "x@example.com"),
        ("OrderConfirmed", "confirmedAt", None),
        ("OrderReturned", "step", None),
        ("OrderCancelled", "version", 0),
        ("ProductLowOnStock", "previousStatus", "OUT_OF_STOCK"),
        ("OrderFulfilled", "lastUpdatedAt", "2026-01-01"),
    ],
)
def test_the_schemas_refuse_fields_that_no_event_has(validator, event, path, value):
    detail = asyncapi.example(event)["detail"]
    detail["data"] |= {path: value}
    if value is None:
        del detail["data"][path]
    with pytest.raises(jsonschema.ValidationError):
        validator(event, detail)


def test_the_asyncapi_document_is_made_from_the_schemas_and_valid():
    assert asyncapi.PAGE.read_text("utf-8") == asyncapi.text(), "out of date: run `make docs`"
    document = asyncapi.document()
    specification = (
        ROOT / "node_modules" / "@asyncapi" / "specs" / "schemas" / "3.0.0-without-$id.json"
    )
    validator = jsonschema.Draft7Validator(json.loads(specification.read_text("utf-8")))
    assert list(validator.iter_errors(document)) == []
    assert list(validator.iter_errors(document | {"channels": {"outcomes": {"messages": 1}}}))
    for event in asyncapi.EVENTS:
        payload = document["components"]["messages"][event]["payload"]
        whole = jsonschema.Draft7Validator(payload | {"components": document["components"]})
        whole.validate(asyncapi.example(event))
        assert not whole.is_valid(asyncapi.example(event) | {"detail-type": "Other"})
