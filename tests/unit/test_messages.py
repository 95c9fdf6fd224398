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
    parse_order_command,
)
from inventory_orders.messages.documents import json_schema
from tests.support.orders import parse_order

QUANTITY = "items[0].quantity"
UTF16 = "\\ud83c\\udf75" * 64
GOOD = {"orderId": "o-1", "userId": "u-1", "items": [{"productId": "p-1", "quantity": 2}]}


def body(**changes):
    return json.dumps({**GOOD, **changes})


def line(**changes):
    return body(items=[{**GOOD["items"][0], **changes}])


def lines_at(*locations, **more):
    """Make an order with one unit of tea for each location."""
    tea = {"productId": "tea", "quantity": 1}
    return body(items=[tea | {"locationId": each} for each in locations], **more)


def refused(text, parse=parse_order):
    """Parse an invalid message, and return the error."""
    with pytest.raises(InvalidMessageError) as caught:
        parse(text)
    return caught.value


def test_the_largest_order_is_half_as_large_as_a_message_may_be():
    lines = [{"productId": "p" * 64, "quantity": 1_000_000}] * 1_000
    attributes = {"note": "\N{TEACUP WITHOUT HANDLE}" * 500}
    largest = body(
        orderId="o" * 128, userId="u" * 128, items=lines, holdSeconds=604_800, attributes=attributes
    )
    assert parse_order(largest.replace("1000000", "1")).quantities == {"p" * 64: 1_000}
    assert 0.8 < 2 * len(largest) / MAX_BODY_BYTES < 1


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("", "", "the body is empty"),
        ("{", "", "column 2"),
        ("hello", "", "line 1, column 1"),
        (json.dumps(GOOD) + "x", "", "Extra data"),
        ('{"orderId": "a", "orderId": "b"}', "orderId", '"orderId" appears twice'),
        ('{"a": {"b": 1, "b": 1}}', "a.b", '"b" appears twice'),
        (line().replace("2}", "NaN}"), QUANTITY, "NaN is not JSON"),
        (line().replace("2}", "-Infinity}"), QUANTITY, "-Infinity is not JSON"),
        (line().replace("2}", "9" * 5000 + "}"), QUANTITY, "5000 digits"),
        ('{"a": 1.5, "a": 2}', "a", '"a" appears twice'),
        ("\ufeff" + json.dumps(GOOD), "", "byte order mark (U+FEFF); send"),
        (" \n", "", "the body is empty"),
        ("{'a': 1}", "", """column 2, before "'a': 1}"; correct it there"""),
        ("[" * 100_000, "", "nested too deeply"),
        (body(orderId=10**20), "orderId", "Put ids in quotes"),
    ],
)
def test_the_error_for_a_body_that_is_not_json_says_what_to_fix(text, field, says):
    error = refused(text)
    assert (error.code, error.field) == ("INVALID_JSON", field)
    assert says in error.message


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        (line().replace("2}", "2.0}"), QUANTITY, "without quotes or decimals, but is 2.0"),
        (line().replace("2}", "1e3}"), QUANTITY, "without quotes or decimals, but is 1e3"),
        ("1.5", "", "must be an order, such as"),
        (body(weight=1.5), "weight", "weight: unknown field of the message"),
        (body(items=[1.5]), "items[0]", "must be a line, such as"),
        (body(attributes={"quantity": 1.5}), "attributes.quantity", 'put it in quotes: "1.5"'),
        (body(userId=1.5), "userId", 'is 1.5; put it in quotes: "1.5"'),
        (line(quantity=float("1" * 99)), QUANTITY, "but is 1.1"),
        ("[]", "", "the message: must be an order"),
        ("{}", "orderId", "orderId: is missing"),
        (body(**{"\ud800": 1}), "\\ud800", "unknown field"),
        (line(color="x"), "items[0].color", "items[0].color: unknown field of items[0]"),
        (body(orderId=""), "orderId", "1 to 128 printable"),
        (body(orderId="o-1\n"), "orderId", "1 to 128 printable"),
        (body(orderId="o#1"), "orderId", "other than space, comma and #"),
        (body(orderId=7), "orderId", 'but is 7; put it in quotes: "7"'),
        (line(productId=-7), "items[0].productId", 'put it in quotes: "-7"'),
        (body(userId="\ud800"), "userId", "1 to 128 printable"),
        (body(userId=None), "userId", "but is null"),
        (body(items=[]), "items", "1 to 1,000 lines"),
        (body(items={}), "items", "but is an empty object"),
        (body(items=[{"productId": "p"}]), QUANTITY, "is missing"),
        (line(productId="p" * 65), "items[0].productId", "1 to 64"),
        (line(quantity=0), QUANTITY, "from 1 to 1,000,000"),
        (line(quantity=1_000_001), QUANTITY, "from 1 to 1,000,000"),
        (line(quantity="2"), QUANTITY, 'is "2"; remove the quotes: 2'),
        (line(quantity="two"), QUANTITY, 'but is "two"'),
        (line(quantity=True), QUANTITY, "but is true"),
        (line(quantity=[1]), QUANTITY, "but is a list of 1"),
        (
            body(items=[{"productId": "p", "quantity": 600_000}] * 2),
            "items",
            "p add up to 1,200,000 units",
        ),
        (lines_at("a", "b"), "items", 'locations "a" and "b"'),
        (lines_at("a", ""), "items", 'locations "a" and ""'),
        (line(productId="tea#a"), "items[0].productId", "1 to 64"),
        (line(locationId="a#b"), "items[0].locationId", "1 to 32"),
        (body(locations=[]), "locations", "1 to 10"),
        (body(locations=["a", "a"]), "locations", "1 to 10"),
        (body(locations=[*"abcdefghijk"]), "locations", "1 to 10"),
        (body(locations=["x" * 33]), "locations[0]", "1 to 32"),
        (body(split=1), "split", "but is 1"),
    ],
)
def test_the_error_for_a_wrong_field_says_what_to_fix(text, field, says):
    error = refused(text)
    assert (error.code, error.field) == ("SCHEMA_VIOLATION", field)
    assert says in error.message


def test_the_error_for_too_many_products_says_how_many_there_are():
    error = refused(body(items=[{"productId": f"p{n}", "quantity": 1} for n in range(100)]))
    assert (error.code, error.field) == ("TOO_MANY_PRODUCTS", "items")
    assert "at most 99 distinct products, but this one has 100" in error.message


def test_lines_of_one_product_add_up_at_the_location_that_one_of_them_names():
    items = [{"productId": name, "quantity": n} for name, n in (("cup", 2), ("tea", 1), ("tea", 3))]
    items.append({"productId": "tea", "quantity": 5, "locationId": "b"})
    order = parse_order(body(items=items), None, None, ("a", ""))
    assert order.quantities == {"tea": 9, "cup": 2}
    assert order.asked_locations == {"tea": "b"}
    assert order.offers == (("cup#a", "tea#b"), ("cup", "tea#b"))
    named = parse_order(lines_at("", locations=["a", "b"], split=True))
    assert named.offers == (("tea",),), "every line names its location"
    assert parse_order(body(split=False)) == parse_order(body())


def test_an_order_has_at_most_200_candidates():
    """A line has one candidate for each of the order's locations, but only one if it names its own location."""
    lines = [{"productId": f"p{number}", "quantity": 1} for number in range(20)]
    named = [{"productId": f"q{n}", "quantity": 1, "locationId": "z"} for n in range(10)]
    ten = [*"abcdefghij"]
    assert len(parse_order(body(items=lines, locations=ten)).product_ids) == 200
    assert parse_order(body(items=[*lines[1:], *named], locations=ten))
    more = {"productId": "q", "quantity": 1}
    for text, defaults in (
        (body(items=[*lines, more], locations=ten), ("",)),
        (body(items=[*lines, *named[:1]], locations=ten), ("",)),
        (body(items=[*lines, more]), tuple(ten)),
    ):
        error = refused(
            text, lambda text, defaults=defaults: parse_order(text, None, None, defaults)
        )
        assert (error.code, "at most 200" in error.message) == ("TOO_MANY_PRODUCTS", True)


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
    error = refused(sent, parse)
    assert says in error.message
    assert error.field == ""


@pytest.mark.parametrize("sent", ['"tea"', '"7"', "dGVh", "[]", '{"Message": "tea"}'])
def test_what_is_no_envelope_is_not_named_as_one(sent):
    assert "is a" not in refused(sent, parse_order_command).message


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


@settings(derandomize=True, database=None, max_examples=15)
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
    error = refused(text)
    assert error.field == field
    assert error.message.startswith(f"{field}: ")


def test_a_long_value_is_quoted_only_in_part():
    error = refused(f"0000-01-01T00:00:00.{'0' * 200_000}Z", event_at)
    assert error.message.endswith(f'no such time as "0000-01-01T00:00:00.{"0" * 59}...')


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
    patterns = [each.get("pattern") for each in json_schema("types").values()]

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
    error = refused(time, event_at)
    assert error.field == "eventTime"
    assert says in error.message


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
    text = json.dumps(body | {"action": action, "restock": False})
    error = refused(text, parse_order_command)
    assert (error.code, error.field) == ("SCHEMA_VIOLATION", field)
    assert says in error.message


@pytest.mark.parametrize("is_line", [False, True])
def test_a_return_to_another_location_says_how_to_book_it(is_line):
    body = json.loads(json.dumps(PART | {"action": "return", "restock": True}))
    (body["items"][0] if is_line else body)["locationId"] = "lyon"
    error = refused(json.dumps(body), parse_order_command)
    where = ("items[0].locationId", "items[0]") if is_line else ("locationId", "the message")
    assert error.message == (
        f"{where[0]}: unknown field of {where[1]}; remove it: returned units go back to the location that sold them. If they came to "
        "another one, set restock to false, and book them there with an adjustment whose reason is RETURN"
    )
