"""Parsing messages: valid orders, and errors for invalid messages that say what to fix."""

import base64
import json
import re
import string
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory_orders.api.requests import MAX_BODY_BYTES
from inventory_orders.errors import InvalidMessageError
from inventory_orders.invocation.sqs import printable
from inventory_orders.messages.commands import (
    parse_adjustment,
    parse_catalogue_event,
    parse_command,
    parse_order,
    parse_order_command,
)
from inventory_orders.messages.documents import json_schema

QUANTITY = "items[0].quantity"
UTF16 = "\\ud83c\\udf75" * 64
GOOD = {"orderId": "o-1", "userId": "u-1", "items": [{"productId": "p-1", "quantity": 2}]}


def body(**changes):
    return json.dumps({**GOOD, **changes})


def line(**changes):
    return body(items=[{**GOOD["items"][0], **changes}])


def test_a_valid_order_is_parsed():
    order = parse_order(json.dumps(GOOD), "group")
    assert (order.order_id, order.user_id, order.quantities) == ("o-1", "u-1", {"p-1": 2})
    assert order.group == "group"


def test_the_largest_order_is_half_as_large_as_a_message_may_be():
    lines = [{"productId": "p" * 64, "quantity": 1_000_000}] * 1_000
    attributes = {"note": "\N{TEACUP WITHOUT HANDLE}" * 500}
    largest = body(
        orderId="o" * 128, userId="u" * 128, items=lines, holdSeconds=604_800, attributes=attributes
    )
    assert parse_order(largest.replace("1000000", "1")).quantities == {"p" * 64: 1_000}
    assert 0.8 < 2 * len(largest) / MAX_BODY_BYTES < 1


@pytest.mark.parametrize(
    ("text", "code", "field", "says"),
    [
        ("", "INVALID_JSON", "", "the body is empty"),
        ("{", "INVALID_JSON", "", "column 2"),
        ("hello", "INVALID_JSON", "", "line 1, column 1"),
        (json.dumps(GOOD) + "x", "INVALID_JSON", "", "Extra data"),
        ('{"orderId": "a", "orderId": "b"}', "INVALID_JSON", "orderId", '"orderId" appears twice'),
        ('{"a": {"b": 1, "b": 1}}', "INVALID_JSON", "a.b", '"b" appears twice'),
        (
            line().replace("2}", "2.0}"),
            "SCHEMA_VIOLATION",
            QUANTITY,
            "without quotes or decimals, but is 2.0",
        ),
        (
            line().replace("2}", "1e3}"),
            "SCHEMA_VIOLATION",
            QUANTITY,
            "without quotes or decimals, but is 1e3",
        ),
        (line().replace("2}", "NaN}"), "INVALID_JSON", QUANTITY, "NaN is not JSON"),
        (line().replace("2}", "-Infinity}"), "INVALID_JSON", QUANTITY, "-Infinity is not JSON"),
        (line().replace("2}", "9" * 5000 + "}"), "INVALID_JSON", QUANTITY, "5000 digits"),
        ("1.5", "SCHEMA_VIOLATION", "", "must be an order, such as"),
        ('{"a": 1.5, "a": 2}', "INVALID_JSON", "a", '"a" appears twice'),
        (body(weight=1.5), "SCHEMA_VIOLATION", "weight", "weight: unknown field of the message"),
        (body(items=[1.5]), "SCHEMA_VIOLATION", "items[0]", "must be a line, such as"),
        (
            body(attributes={"quantity": 1.5}),
            "SCHEMA_VIOLATION",
            "attributes.quantity",
            'put it in quotes: "1.5"',
        ),
        (body(userId=1.5), "SCHEMA_VIOLATION", "userId", 'is 1.5; put it in quotes: "1.5"'),
        (line(quantity=float("1" * 99)), "SCHEMA_VIOLATION", QUANTITY, "but is 1.1"),
        ("\ufeff" + json.dumps(GOOD), "INVALID_JSON", "", "byte order mark (U+FEFF); send"),
        (" \n", "INVALID_JSON", "", "the body is empty"),
        ("{'a': 1}", "INVALID_JSON", "", """column 2, before "'a': 1}"; correct it there"""),
        ("[" * 100_000, "INVALID_JSON", "", "nested too deeply"),
        ("[]", "SCHEMA_VIOLATION", "", "the message: must be an order"),
        ("{}", "SCHEMA_VIOLATION", "orderId", "orderId: is missing"),
        (body(**{"\ud800": 1}), "SCHEMA_VIOLATION", "\\ud800", "unknown field"),
        (
            line(color="x"),
            "SCHEMA_VIOLATION",
            "items[0].color",
            "items[0].color: unknown field of items[0]",
        ),
        (body(orderId=""), "SCHEMA_VIOLATION", "orderId", "1 to 128 printable"),
        (body(orderId="o-1\n"), "SCHEMA_VIOLATION", "orderId", "1 to 128 printable"),
        (body(orderId="o#1"), "SCHEMA_VIOLATION", "orderId", "other than space, comma and #"),
        (body(orderId=7), "SCHEMA_VIOLATION", "orderId", 'but is 7; put it in quotes: "7"'),
        (line(productId=-7), "SCHEMA_VIOLATION", "items[0].productId", 'put it in quotes: "-7"'),
        (body(orderId=10**20), "INVALID_JSON", "orderId", "Put ids in quotes"),
        (body(userId="\ud800"), "SCHEMA_VIOLATION", "userId", "1 to 128 printable"),
        (body(userId=None), "SCHEMA_VIOLATION", "userId", "but is null"),
        (body(items=[]), "SCHEMA_VIOLATION", "items", "1 to 1,000 lines"),
        (body(items={}), "SCHEMA_VIOLATION", "items", "but is an empty object"),
        (body(items=[{"productId": "p"}]), "SCHEMA_VIOLATION", QUANTITY, "is missing"),
        (line(productId="p" * 65), "SCHEMA_VIOLATION", "items[0].productId", "1 to 64"),
        (line(quantity=0), "SCHEMA_VIOLATION", QUANTITY, "from 1 to 1,000,000"),
        (line(quantity=1_000_001), "SCHEMA_VIOLATION", QUANTITY, "from 1 to 1,000,000"),
        (
            line(quantity="2"),
            "SCHEMA_VIOLATION",
            QUANTITY,
            'is "2"; remove the quotes: 2',
        ),
        (line(quantity="two"), "SCHEMA_VIOLATION", QUANTITY, 'but is "two"'),
        (line(quantity=True), "SCHEMA_VIOLATION", QUANTITY, "but is true"),
        (line(quantity=[1]), "SCHEMA_VIOLATION", QUANTITY, "but is a list of 1"),
        (
            body(items=[{"productId": "p", "quantity": 600_000}] * 2),
            "SCHEMA_VIOLATION",
            "items",
            "p add up to 1,200,000 units",
        ),
        (
            body(items=[{"productId": f"p{n}", "quantity": 1} for n in range(100)]),
            "TOO_MANY_PRODUCTS",
            "items",
            "at most 99 distinct products, but this one has 100",
        ),
    ],
)
def test_the_error_for_an_invalid_message_says_what_to_fix(text, code, field, says):
    with pytest.raises(InvalidMessageError) as caught:
        parse_order(text)
    assert (caught.value.code, caught.value.field) == (code, field)
    assert says in caught.value.message


ORDER = json.dumps(GOOD)
SNS = {"Type": "Notification", "MessageId": "1", "TopicArn": "arn:aws:sns:...", "Message": ORDER}
EVENT = {"version": "0", "detail-type": "Order", "source": "shop", "detail": GOOD}
CELERY = {
    "body": "W10=",
    "content-encoding": "utf-8",
    "content-type": "application/json",
    "headers": {"task": "place"},
    "properties": {"delivery_tag": "1"},
}


def in_base64(document):
    return base64.b64encode(json.dumps(document).encode()).decode()


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (json.dumps(SNS), "is an SNS notification; turn on raw message delivery"),
        (json.dumps(EVENT), "is an EventBridge event; set the target's InputPath"),
        (json.dumps(CELERY), "is a Celery task message; send the JSON itself"),
        (in_base64(CELERY), "is a Celery task message; send the JSON itself"),
        (in_base64(GOOD), "is JSON encoded as base64; send the JSON itself"),
        (json.dumps(ORDER), "is a JSON string that contains JSON; encode it only once"),
        ('{"Records": [{"eventSource": "aws:s3"}]}', "is a list of records"),
        ('{"requestContext": {}, "requestPayload": {}}', "from a Lambda destination"),
        ('{"Input": {}, "TaskToken": "t"}', "is a Step Functions task with a token"),
        ('{"specversion": "1.0", "id": "1", "source": "/", "type": "t"}', "is a CloudEvents env"),
    ],
)
@pytest.mark.parametrize(
    "parse",
    [
        parse_order,
        parse_order_command,
        parse_adjustment,
        lambda body: parse_catalogue_event(body, datetime.now(UTC)),
    ],
)
def test_the_envelope_of_another_service_is_named_as_what_it_is(sent, says, parse):
    with pytest.raises(InvalidMessageError) as refused:
        parse(sent)
    assert says in refused.value.message
    assert refused.value.field == ""


@pytest.mark.parametrize("sent", ['"tea"', '"7"', "dGVh", "[]", '{"Message": "tea"}'])
def test_what_is_no_envelope_is_not_named_as_one(sent):
    with pytest.raises(InvalidMessageError) as refused:
        parse_order_command(sent)
    assert "is a" not in refused.value.message


def steps_of(text):
    """Count the lines and calls that parsing an invalid order executes. Also returns the error."""
    steps, before = 0, sys.gettrace()

    def trace(*_):
        nonlocal steps
        steps += 1
        return trace

    sys.settrace(trace)
    try:
        parse_order(text)
    except InvalidMessageError as error:
        return steps, error
    finally:
        sys.settrace(before)
    raise AssertionError("the order is valid")


OPENERS = {"[": "]", '{"a":': "}", '{"a":1,"b":[': "]}", f'{{"{"k" * 90}":': "}"}
FILLERS = ("0", "9" * 30, "1.5", "NaN", '"\\ud800"', "[]", '{"a":1}', '{"a":1,"a":2}', "[[[7]]]")
ENDS = ("0", "-Infinity", "9" * 500, '{"a":1,"b":2,"a":3}', '"', "}")


@settings(derandomize=True, database=None)
@given(
    st.lists(st.sampled_from([*OPENERS]), min_size=1, max_size=3),
    st.lists(st.sampled_from(FILLERS), min_size=1, max_size=3),
    st.sampled_from(ENDS),
    st.booleans(),
)
def test_time_to_refuse_a_body_is_linear_in_its_size(openers, fillers, end, in_object):
    """Deep values around long lists or wide objects, with the first fault anywhere or at the end."""

    def body(size):
        depth = size // len(openers)
        values = [fillers[n % len(fillers)] for n in range(size * 10)] + [end]
        names = (f'"{n}":' if in_object else "" for n in range(len(values)))
        inside = ",".join(name + value for name, value in zip(names, values, strict=True))
        inside = f"{{{inside}}}" if in_object else f"[{inside}]"
        closers = "".join(OPENERS[each] for each in reversed(openers))
        return "".join(openers) * depth + inside + closers * depth

    (few, _), (many, error) = steps_of(body(30)), steps_of(body(120))
    assert many <= 4 * few + 200
    assert len(error.field) <= 200
    assert len(error.message) <= 1000
    assert error.message.startswith(error.field)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[" * 300 + "NaN" + "]" * 300, "[0]" * 32 + "[0..." + "[0]" * 33),
        (body(attributes={"k" * 500: None}), f"attributes.{'k' * 87}...{'k' * 99}"),
        (body(**{"\N{TEACUP WITHOUT HANDLE}" * 64: 1}), f"{UTF16[:98]}...{UTF16[-99:]}"),
        (body(attributes={"\ud800": None}), "attributes.\\ud800"),
    ],
    ids=["deep", "long key", "escaped key", "surrogate"],
)
def test_a_field_has_at_most_200_characters_with_both_ends_of_its_path(text, field):
    with pytest.raises(InvalidMessageError) as caught:
        parse_order(text)
    assert caught.value.field == field
    assert caught.value.message.startswith(f"{field}: ")


def test_a_long_value_is_quoted_only_in_part():
    with pytest.raises(InvalidMessageError) as caught:
        event_at(f"0000-01-01T00:00:00.{'0' * 200_000}Z")
    assert caught.value.message.endswith(f'no such time as "0000-01-01T00:00:00.{"0" * 59}...')


@pytest.mark.parametrize(
    "items",
    [
        [{"productId": f"p{n % 99}", "quantity": 1} for n in range(1000)],
        [{"productId": "p", "quantity": 1_000_000}],
        [{"productId": "A" * 64, "quantity": 1}],
        [{"productId": "a.b_c:d-9", "quantity": 1}],
    ],
)
def test_values_at_the_limits_are_valid(items):
    assert parse_order(body(items=items, orderId="o" * 128)).quantities


def is_good(text):
    try:
        return bool(parse_order(text))
    except InvalidMessageError:
        return False


@pytest.mark.parametrize(
    "with_id",
    [lambda id_: body(orderId=id_), lambda id_: body(userId=id_), lambda id_: line(productId=id_)],
)
def test_every_id_may_be_a_key_a_group_and_a_deduplication_id(with_id):
    """SQS accepts 1 to 128 letters, digits or punctuation marks, and DynamoDB refuses empty keys."""
    characters = {chr(code) for code in range(0x180) if is_good(with_id(chr(code)))}
    allowed = set(string.ascii_letters + string.digits + string.punctuation)
    assert characters == allowed - {"#", ","}
    assert not is_good(with_id(""))
    assert is_good(with_id("i" * 64))
    assert not is_good(with_id("i" * 129))


def test_a_reason_only_has_characters_that_sqs_accepts():
    assert printable("a\x00b\n\x7f") == "a b  "
    assert printable("\ud800\xe9") == "\\ud800\\xe9"
    assert len(printable("x" * 600)) == 512


def test_the_schema_file_describes_every_field():
    """The schemas' descriptions are also the error messages."""

    def check(schema, path):
        assert schema.get("description"), path
        for name, inner in schema.get("properties", {}).items():
            check(inner, f"{path}.{name}")
        if "items" in schema:
            check(schema["items"], f"{path}[]")

    check(json_schema("order"), "order")


def test_every_id_and_every_time_uses_a_shared_type():
    """The schemas define each type of id once."""
    patterns = [each["pattern"] for each in json_schema("types").values()]

    def check(schema, path):
        if re.search("(Id|At|Time)$", path) and "unix" not in schema["description"].lower():
            assert schema["pattern"] in patterns, path
        for name, inner in schema.get("properties", {}).items():
            check(inner, f"{path}.{name}")
        if "items" in schema:
            check(schema["items"], f"{path}[]")

    for name in ("order", "adjustment", "catalogue_event", "expiry"):
        check(json_schema(name), name)
    for function, commands in json_schema("commands").items():
        for action, schema in commands.items():
            check(schema, f"{function}.{action}")


SPELLINGS = (
    "2026-11-20T09:30:00Z",
    "2026-11-20t09:30:00z",
    "2026-11-20T09:30:00.000Z",
    "2026-11-20T09:30:00.000000999+00:00",
    "2026-11-20T11:30:00+02:00",
    "2026-11-19T23:30:00-10:00",
    "2026-11-20T09:30:00-00:00",
)


def event_at(time):
    event = {"eventId": "e", "eventTime": time, "productId": "p", "details": {}}
    return parse_catalogue_event(json.dumps(event), datetime(2026, 11, 21, tzinfo=UTC))


def test_a_time_may_be_spelt_in_every_way_of_rfc_3339_and_is_the_same_time():
    times = {event_at(time).event_time for time in SPELLINGS}
    assert times == {"2026-11-20T09:30:00.000000+00:00"}
    delist = {"action": "delist", "productId": "p", "createdAt": "2026-11-20T11:30:00.1+02:00"}
    command = parse_command(delist, "manage_products")
    assert command["createdAt"] == "2026-11-20T09:30:00.100000+00:00"


@pytest.mark.parametrize(
    ("time", "says"),
    [
        ("2026-11-20", "an RFC 3339 time with an offset"),
        ("2026-11-20T09:30:00", "an RFC 3339 time with an offset"),
        ("20261120T093000Z", "an RFC 3339 time with an offset"),
        ("2026-11-20 09:30:00Z", "an RFC 3339 time with an offset"),
        ("2026-11-20T24:00:00Z", "an RFC 3339 time with an offset"),
        ("2016-12-31T23:59:60Z", "without a leap second"),
        ("2026-02-30T00:00:00Z", "on a day that exists"),
        ("0000-01-01T00:00:00Z", "no such time"),
        ("9999-12-31T23:59:59-01:00", "no such time"),
        ("2026-11-28T06:30:00Z", "is 7 days, 6:30:00 in the future, and the service does not sch"),
        ("2026-11-21T00:15:01Z", "is 0:15:01 in the future"),
        (
            "2026-11-22T00:00:00Z",
            "send the event when it takes effect. If it takes effect now, correct",
        ),
    ],
)
def test_the_error_for_an_invalid_time_says_what_to_fix(time, says):
    with pytest.raises(InvalidMessageError) as caught:
        event_at(time)
    assert caught.value.field == "eventTime"
    assert says in caught.value.message


PART = {"orderId": "o-1", "stepId": "s-1", "items": [{"productId": "tea", "quantity": 1}]}


@pytest.mark.parametrize(
    ("given", "restocks"), [({}, True), ({"restock": True}, True), ({"restock": False}, False)]
)
def test_cancelled_units_are_back_on_sale_unless_they_are_lost(given, restocks):
    command = parse_order_command(json.dumps(PART | {"action": "cancel"} | given))
    plain = parse_order_command(json.dumps(PART | {"action": "cancel"}))
    assert (command.restocks, command == plain) == (restocks, restocks)


@pytest.mark.parametrize(
    ("action", "without", "field", "says"),
    [
        ("cancel", ("items", "stepId"), "items", "is missing in the message; restock needs it"),
        ("cancel", ("items",), "items", "is missing in the message; stepId needs it"),
        ("cancel", ("stepId",), "stepId", "is missing in the message; items needs it"),
        ("fulfil", (), "restock", "unknown field of the message; remove it, or correct it to"),
    ],
)
def test_units_are_lost_by_name_and_before_they_are_handed_over(action, without, field, says):
    body = {name: value for name, value in PART.items() if name not in without}
    with pytest.raises(InvalidMessageError) as refused:
        parse_order_command(json.dumps(body | {"action": action, "restock": False}))
    assert (refused.value.code, refused.value.field) == ("SCHEMA_VIOLATION", field)
    assert says in refused.value.message


@pytest.mark.parametrize("is_line", [False, True])
def test_a_return_to_another_location_says_how_to_book_it(is_line):
    body = json.loads(json.dumps(PART | {"action": "return", "restock": True}))
    (body["items"][0] if is_line else body)["locationId"] = "lyon"
    with pytest.raises(InvalidMessageError) as refused:
        parse_order_command(json.dumps(body))
    where = ("items[0].locationId", "items[0]") if is_line else ("locationId", "the message")
    assert refused.value.message == (
        f"{where[0]}: unknown field of {where[1]}; remove it: returned units go back to the location that sold them. If they came to "
        "another one, set restock to false, and book them there with an adjustment whose reason is RETURN"
    )
