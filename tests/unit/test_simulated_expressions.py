"""Expressions on the simulated AWS: what they mean, and which ones are invalid."""

import re

import pytest
from botocore.exceptions import ClientError

from inventory_orders.store.tables import Table
from testing.aws import SimulatedAws, answered_by
from testing.aws.expressions import parse_condition, parse_projection, parse_update
from testing.aws.values import ServiceError, checked, size_of_item
from testing.world.clock import ManualClock
from testing.world.tables import create_table

ITEM = {
    "n": {"N": "3"},
    "s": {"S": "tea"},
    "t": {"SS": ["a", "b"]},
    "yes": {"BOOL": True},
    "m": {"M": {"k": {"N": "3"}, "n": {"N": "9"}}},
}
VALUES = {
    ":0": {"N": "0"},
    ":3": {"N": "3"},
    ":9": {"N": "9"},
    ":te": {"S": "te"},
    ":a": {"S": "a"},
    ":N": {"S": "N"},
    ":list": {"L": [{"S": "z"}]},
    ":yes": {"BOOL": True},
    ":most": {"N": "9" * 38},
    ":30": {"N": "1" + "0" * 29},
    ":tenth": {"N": "0.1"},
    ":fifth": {"N": "0.20"},
    ":ab": {"SS": ["a", "b"]},
    ":bc": {"SS": ["b", "c"]},
}
NAMES = {"#n": "n", "#s": "s", "#status": "status"}
KEY = {"productId": {"S": "p"}}


class Engine:
    """An implementation of DynamoDB with one item.

    Args:
        client: A client of the implementation.
    """

    def __init__(self, client):
        self.client = client

    def holds(self, text):
        try:
            self._call("put_item", text, Item=KEY | ITEM, ConditionExpression=text)
        except ServiceError as error:
            if error.code == "ConditionalCheckFailedException":
                return False
            raise
        return True

    def updated(self, text):
        wanted = {"Key": KEY, "ReturnValues": "ALL_NEW"}
        changed = self._call("update_item", text, UpdateExpression=text, **wanted)["Attributes"]
        for value in changed.values():
            value.get("SS", []).sort()
        return {name: value for name, value in changed.items() if name not in KEY}

    def _call(self, method, text, **request):
        used = set(re.findall(r"[#:]\w+", text))
        for parameter, known in (("Names", NAMES), ("Values", VALUES)):
            if given := {name: content for name, content in known.items() if name in used}:
                request[f"ExpressionAttribute{parameter}"] = given
        self.client.put_item(TableName="Items", Item=KEY | ITEM)
        try:
            return getattr(self.client, method)(TableName="Items", **request)
        except ClientError as error:
            found = error.response["Error"]
            raise ServiceError(found["Code"], found["Message"]) from error


@pytest.fixture
def simulated(simulated_client):
    with answered_by(SimulatedAws(ManualClock().now).answer):
        create_table(simulated_client, Table.PRODUCTS, "Items")
        yield Engine(simulated_client)


@pytest.fixture(scope="module")
def on_dynoxide(dynoxide_client):
    create_table(dynoxide_client, Table.PRODUCTS, "Items")
    yield Engine(dynoxide_client)
    dynoxide_client.delete_table(TableName="Items")


# Here the simulated AWS follows AWS's documentation: see docs/contributing.md.
OTHERWISE_ON_DYNOXIDE = {
    "_version = :3",
    "attribute_type(n, :te)",
    "yes < :yes",
    "n < :list",
    "Attribute_exists(n)",
}


@pytest.fixture(params=["simulated", "Dynoxide"])
def engine(request):
    """Return each implementation in turn. They must agree, except where a difference is known."""
    if request.param == "simulated":
        return request.getfixturevalue("simulated")
    if request.node.callspec.params.get("text") in OTHERWISE_ON_DYNOXIDE:
        request.applymarker(pytest.mark.xfail(strict=True))
    return request.getfixturevalue("on_dynoxide")


# Random calls compare plain conditions and updates: tests/integration/test_simulated_aws_against_engines.py.
@pytest.mark.parametrize(
    ("text", "holds"),
    [
        *(("gone = :3", False), ("NOT gone = :3", True), ("gone <> :3", True)),
        *(("n = :te", False), ("n <> :te", True), ("n < s", False), ("yes = :yes", True)),
        ("n = #n AND s > :te", True),
        ("attribute_type(gone, :N)", False),
        *(("m.k = :3", True), ("m.#n >= :9 AND m.k >= :3", True), ("m.gone >= :0", False)),
        *(("gone.k >= :0", False), ("n.k >= :0", False)),
        *(
            ("begins_with(s, :te)", True),
            ("begins_with(s, :a)", False),
            ("begins_with(n, :te)", False),
        ),
        ("size(t) < :3 AND size(t) <> :3", True),
        *(("n BETWEEN :3 AND :9", True), ("n between :0 AND :3 AND n = :3", True)),
        *(("n BETWEEN :0 AND :0", False), ("gone BETWEEN :0 AND :9", False)),
        *(("size(t) < :0", False), ("size(gone) < :3", False)),
        ("attribute_not_exists(gone) OR size(gone) < :0", True),
        # NOT binds tighter than AND, which binds tighter than OR.
        ("n = :3 OR n = :0 AND n = :9", True),
        ("(n = :3 OR n = :0) AND n = :9", False),
        ("NOT n = :3 AND n = :3", False),
    ],
)
def test_a_condition_holds_or_not(engine, text, holds):
    assert engine.holds(text) is holds


def test_numbers_are_exact():
    assert checked({"N": "1.50E1"}) == {"N": "15"}
    assert checked({"N": "-0.0"}) == {"N": "0"}
    assert checked({"L": [{"N": "007"}]}) == {"L": [{"N": "7"}]}


@pytest.mark.parametrize(
    "value",
    [
        {"N": "x"},
        {"N": "NaN"},
        {"N": "1" * 39},
        {"N": "1E126"},
        {"SS": []},
        {"SS": ["a", "a"]},
        {"NS": ["1", "1.0"]},
        {"X": "a"},
        {"S": "a", "N": "1"},
        {},
    ],
)
def test_an_invalid_value_is_an_error(value):
    with pytest.raises(ServiceError) as caught:
        checked(value)
    assert caught.value.code == "ValidationException"


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("SET n = :30 + n", {"n": {"N": "1" + "0" * 28 + "3"}}),
        ("SET n = :tenth + :fifth", {"n": {"N": "0.3"}}),
        ("SET x = n, n = :0", {"x": {"N": "3"}, "n": {"N": "0"}}),
        ("SET x = :list REMOVE gone", {"x": {"L": [{"S": "z"}]}}),
        (
            "SET m.k = m.k - :3, n = :0",
            {"m": {"M": {"k": {"N": "0"}, "n": {"N": "9"}}}, "n": {"N": "0"}},
        ),
        ("SET m.s = :a", {"m": {"M": {**ITEM["m"]["M"], "s": {"S": "a"}}}}),
        ("ADD t :bc, x :bc", {"t": {"SS": ["a", "b", "c"]}, "x": {"SS": ["b", "c"]}}),
        ("DELETE t :bc, gone :bc", {"t": {"SS": ["a"]}}),
        ("set #status = :a", {"status": {"S": "a"}}),
        ("REMOVE #s, yes DELETE t :ab", {"s": None, "yes": None, "t": None}),
    ],
)
def test_an_update_changes_the_item(engine, text, changed):
    """None stands for an attribute that is removed, as a set is when it becomes empty."""
    expected = {name: value for name, value in (ITEM | changed).items() if value is not None}
    assert engine.updated(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("SET n = gone", "SET n = gone + :3", "SET n = s + :3", "SET n = :most + :3", "ADD s :3"),
        *("ADD n :bc", "ADD t :3", "DELETE n :bc", "SET gone.k = :3", "SET m.k = m.gone - :3"),
    ],
)
def test_an_update_that_does_not_fit_the_item_is_an_error(engine, text):
    with pytest.raises(ServiceError) as caught:
        engine.updated(text)
    assert caught.value.code == "ValidationException"


@pytest.mark.parametrize(
    ("use", "text", "part"),
    [
        ("holds", "_version = :3", "Syntax error"),
        ("holds", "status = :3", "reserved keyword: status"),
        ("holds", "#other = :3", "attribute name: #other"),
        ("holds", "n = :other", "attribute value: :other"),
        ("holds", "n + :3 = :9", "Syntax error|Expected comparison operator"),
        ("holds", "((n = :3))", "redundant parentheses"),
        ("holds", "n = :3 AND", "<EOF>|Expected operand, got end"),
        ("holds", "(n = :3", "<EOF>|Expected ., got end"),
        ("holds", "n = :3 n = :3", "Syntax error"),
        ("holds", "n BETWEEN :9 AND :3", "upper bound to be greater than or equal to lower bound"),
        ("holds", "n ! :3", "Syntax error|Expected comparison operator"),
        ("holds", "", "can not be empty"),
        ("holds", "exists(n)", "Invalid function name"),
        ("holds", "attribute_exists(:3)", "requires a document path|Expected attribute name"),
        ("holds", "attribute_type(n, :te)", "Incorrect operand type"),
        ("holds", "yes < :yes", "Incorrect operand type"),
        ("holds", "begins_with(s, :3)", "Incorrect operand type"),
        ("holds", "n < :list", "Incorrect operand type"),
        ("holds", "Attribute_exists(n)", "Invalid function name"),
        ("updated", "SET #n = :3, n = :3", "overlap"),
        ("updated", "SET m.k = :3, m = :3", "overlap"),
        ("updated", "SET n = :3 SET s = :3", "only be used once"),
        ("updated", "DELETE t :3", "Incorrect operand type|must be a set"),
        ("updated", "PUT n = :3", "Syntax error"),
    ],
)
def test_an_invalid_expression_is_an_error_that_names_the_part(engine, use, text, part):
    with pytest.raises(ServiceError, match=part) as caught:
        getattr(engine, use)(text)
    assert caught.value.code == "ValidationException"


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_condition, "a[0] = :0"),
        (parse_condition, "a IN (:0, :1)"),
        (parse_condition, "contains(a, :0)"),
        *((parse_update, f"SET a = {text}(a, :0)") for text in ("if_not_exists", "list_append")),
        *((parse_update, text) for text in ("REMOVE a.b", "REMOVE a[0]")),
        (parse_projection, "a.b"),
    ],
)
def test_an_unsupported_expression_is_not_reported_as_a_callers_error(parse, text):
    with pytest.raises(NotImplementedError, match="the simulated DynamoDB has no"):
        parse(text)


def test_sizes_follow_the_developer_guide():
    assert size_of_item({"ab": {"S": "ü"}}) == 4
    assert size_of_item({"n": {"N": "12345"}}) == 5
    assert size_of_item({"n": {"N": "-100"}}) == 4
    assert size_of_item({"b": {"BOOL": True}, "z": {"NULL": True}}) == 4
    assert size_of_item({"l": {"L": [{"BOOL": True}]}}) == 1 + 3 + 1 + 1
    assert size_of_item({"m": {"M": {"k": {"S": "v"}}}}) == 1 + 3 + 1 + 2
