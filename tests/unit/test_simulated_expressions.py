"""Expressions of the simulated AWS: what they mean, and which ones are invalid."""

import re

import pytest
from botocore.exceptions import ClientError

from inventory_orders.store.tables import Table
from testing.simulated_aws.expressions import (
    Scope,
    UpdateError,
    parse_condition,
    parse_projection,
    parse_update,
)
from testing.simulated_aws.values import ServiceError, checked, size_of_item
from testing.tables import create_table

ITEM = {
    "n": {"N": "3"},
    "s": {"S": "tea"},
    "l": {"L": [{"N": "1"}, {"S": "b"}, {"N": "3"}]},
    "m": {"M": {"k": {"S": "v"}, "n": {"N": "3"}}},
    "t": {"SS": ["a", "b"]},
    "yes": {"BOOL": True},
}
VALUES = {
    ":0": {"N": "0"},
    ":3": {"N": "3"},
    ":9": {"N": "9"},
    ":te": {"S": "te"},
    ":a": {"S": "a"},
    ":b": {"S": "b"},
    ":N": {"S": "N"},
    ":set": {"SS": ["b", "c"]},
    ":list": {"L": [{"S": "z"}]},
    ":yes": {"BOOL": True},
    ":most": {"N": "9" * 38},
    ":30": {"N": "1" + "0" * 29},
}
NAMES = {"#n": "n", "#l": "l", "#m": "m", "#status": "status"}


KEY = {"productId": {"S": "p"}}


class Simulated:
    """The simulated AWS, below its requests."""

    misfit: type[Exception] = UpdateError

    def holds(self, text, item=ITEM):
        condition = parse_condition(text)
        condition.check(NAMES, VALUES)
        return condition.holds(Scope(item, NAMES, VALUES))

    def updated(self, text, item=ITEM):
        update = parse_update(text)
        update.check(NAMES, VALUES)
        scope = Scope(item, NAMES, VALUES)
        update.paths(scope)
        return update.apply(scope)


class Requested:
    """The same by requests to an implementation of DynamoDB."""

    misfit: type[Exception] = ServiceError

    def __init__(self, client):
        self.client = client

    def holds(self, text, item=ITEM):
        try:
            self._call("put_item", item, text, Item=KEY | item, ConditionExpression=text)
        except ServiceError as error:
            if error.code == "ConditionalCheckFailedException":
                return False
            raise
        return True

    def updated(self, text, item=ITEM):
        wanted = {"Key": KEY, "ReturnValues": "ALL_NEW"}
        answer = self._call("update_item", item, text, UpdateExpression=text, **wanted)
        return {
            name: {"SS": sorted(value["SS"])} if "SS" in value else value
            for name, value in answer["Attributes"].items()
            if name not in KEY
        }

    def _call(self, method, item, text, **request):
        used = set(re.findall(r"[#:]\w+", text))
        for parameter, known in (("Names", NAMES), ("Values", VALUES)):
            if given := {name: content for name, content in known.items() if name in used}:
                request[f"ExpressionAttribute{parameter}"] = given
        self.client.put_item(TableName="Items", Item=KEY | item)
        try:
            return getattr(self.client, method)(TableName="Items", **request)
        except ClientError as error:
            found = error.response["Error"]
            raise ServiceError(found["Code"], found["Message"]) from error


@pytest.fixture(scope="module")
def requested(dynoxide_client):
    create_table(dynoxide_client, Table.PRODUCTS, "Items")
    yield Requested(dynoxide_client)
    dynoxide_client.delete_table(TableName="Items")


# AWS's documentation has it as the simulated AWS does: docs/contributing.md.
OTHERWISE_ON_DYNOXIDE = {
    "_version = :3",
    "attribute_type(n, :te)",
    "yes < :yes",
    "n < :list",
    "Attribute_exists(n)",
    "SET l[7] = :9",
    "REMOVE l[0], l[1]",
    "REMOVE gone.x",
}


@pytest.fixture(params=["simulated", "Dynoxide"])
def engine(request):
    """Both have to agree, but for what is known. What is known must be so."""
    if request.param == "simulated":
        return Simulated()
    found = request.getfixturevalue("requested")
    if request.node.callspec.params.get("text") in OTHERWISE_ON_DYNOXIDE:
        request.applymarker(pytest.mark.xfail(strict=True))
    return found


@pytest.mark.aws(
    "The simulated AWS reads expressions as this page says.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.html",
)
@pytest.mark.parametrize(
    "text",
    [
        "n = :3",
        "#n <= :3 AND #n >= :3",
        "n BETWEEN :0 AND :9",
        "n IN (:0, :3)",
        "NOT n = :0",
        "n = :0 OR n = :3 AND s <> :a",
        "(n = :3 OR n = :0) AND n <> :0",
        "attribute_exists(m.k) AND attribute_not_exists(m.x)",
        "attribute_type(n, :N)",
        "begins_with(s, :te) AND contains(s, :a)",
        "contains(t, :a) AND contains(l, :3)",
        "size(s) = :3 AND size(l) = :3 AND size(t) < :3",
        "m.n = l[2] AND m.n = #n",
        "gone <> :3",
        "NOT gone = :3",
        "n <> :te",
        "yes = :yes",
    ],
)
def test_a_true_condition_holds(engine, text):
    assert engine.holds(text)


@pytest.mark.aws(
    "A comparison with an attribute that is missing or of another type is false. The page says "
    "what is true, not what is false.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.OperatorsAndFunctions.html",
)
@pytest.mark.parametrize(
    "text",
    [
        "n = :0 OR n = :9",
        "gone = :3",
        "gone < :3",
        "n < s",
        "n = :te",
        "size(n) = :3",
        "size(gone) >= :0",
        "contains(n, :a)",
        "begins_with(n, :te)",
        "l[3] = :3",
        "s[0] = :a",
    ],
)
def test_a_false_condition_does_not_hold(engine, text):
    assert not engine.holds(text)


def test_not_binds_tighter_than_and_which_binds_tighter_than_or(engine):
    assert engine.holds("n = :3 OR n = :0 AND n = :9")
    assert not engine.holds("(n = :3 OR n = :0) AND n = :9")
    assert not engine.holds("NOT n = :3 AND n = :3")


@pytest.mark.aws(
    "Numbers travel as text, lose zeros at their ends, and are exact up to 38 digits.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html",
)
def test_numbers_are_exact():
    a, b = checked({"N": "0.1"}), checked({"N": "0.2"})
    total = parse_update("SET n = :a + :b").apply(Scope({}, {}, {":a": a, ":b": b}))
    assert total == {"n": {"N": "0.3"}}
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


@pytest.mark.aws(
    "`REMOVE` of a missing attribute does nothing.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.UpdateExpressions.html",
)
@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("SET n = n - :9", {"n": {"N": "-6"}}),
        ("SET n = if_not_exists(gone, :9) + n", {"n": {"N": "12"}}),
        ("SET n = :30 + n", {"n": {"N": "1" + "0" * 28 + "3"}}),
        ("SET x = if_not_exists(n, :9)", {"x": {"N": "3"}}),
        (
            "SET l = list_append(:list, l)",
            {"l": {"L": [{"S": "z"}, {"N": "1"}, {"S": "b"}, {"N": "3"}]}},
        ),
        ("SET l[1] = :9", {"l": {"L": [{"N": "1"}, {"N": "9"}, {"N": "3"}]}}),
        ("SET l[7] = :9", {"l": {"L": [*ITEM["l"]["L"], {"N": "9"}]}}),
        ("SET m.x = n, n = :0", {"m": {"M": {**ITEM["m"]["M"], "x": {"N": "3"}}}, "n": {"N": "0"}}),
        ("REMOVE l[0], l[1]", {"l": {"L": [{"N": "3"}]}}),
        ("REMOVE #m.k ADD n :9", {"m": {"M": {"n": {"N": "3"}}}, "n": {"N": "12"}}),
        ("ADD x :3, t :set", {"x": {"N": "3"}, "t": {"SS": ["a", "b", "c"]}}),
        ("DELETE t :set", {"t": {"SS": ["a"]}}),
        ("set #status = :a", {"status": {"S": "a"}}),
    ],
)
def test_an_update_changes_the_item(engine, text, changed):
    assert engine.updated(text) == ITEM | changed


def test_a_set_that_becomes_empty_is_removed(engine):
    assert engine.updated("DELETE t :set", {"t": {"SS": ["b"]}}) == {}


def test_an_update_does_not_change_the_old_item_in_place():
    before = repr(ITEM)
    Simulated().updated("SET m.k = :a, l[0] = :9 DELETE t :set")
    assert repr(ITEM) == before


@pytest.mark.parametrize(
    "text",
    [
        "SET n = gone",
        "SET n = gone + :3",
        "SET n = s + :3",
        "SET n = :most + :3",
        "ADD n :most",
        "SET l = list_append(n, :list)",
        "SET gone.x = :3",
        "SET n.x = :3",
        "SET n[0] = :3",
        "REMOVE gone.x",
        "ADD s :3",
        "DELETE n :set",
    ],
)
def test_an_update_that_does_not_fit_the_item_is_an_error(engine, text):
    with pytest.raises(engine.misfit):
        engine.updated(text)


@pytest.mark.aws(
    "A reserved word, or a name that begins with `_`, needs a placeholder. The embedded AWS "
    "accepts both bare.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.ExpressionAttributeNames.html",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.Attributes.html",
)
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
        ("holds", "n ! :3", "Syntax error|Expected comparison operator"),
        ("holds", "", "can not be empty"),
        ("holds", "exists(n)", "Invalid function name"),
        ("holds", "attribute_exists(:3)", "requires a document path|Expected attribute name"),
        ("holds", "attribute_type(n, :te)", "Invalid attribute type name"),
        ("holds", "begins_with(s, :3)", "Incorrect operand type"),
        ("holds", "yes < :yes", "Incorrect operand type"),
        ("holds", "n BETWEEN :9 AND :0", "requires upper bound to be greater"),
        ("holds", "n < :list", "Incorrect operand type"),
        ("holds", "Attribute_exists(n)", "Invalid function name"),
        ("updated", "SET m.k = :3, m = :3", "overlap"),
        ("updated", "SET n = :3 SET s = :3", "only be used once"),
        ("updated", "PUT n = :3", "Syntax error"),
        ("updated", "SET n = upper(s)", "Invalid function name"),
        ("updated", "ADD s :te", "Incorrect operand type"),
        ("updated", "DELETE n :3", "Incorrect operand type"),
    ],
)
def test_an_invalid_expression_is_an_error_that_names_the_part(engine, use, text, part):
    with pytest.raises(ServiceError, match=part) as caught:
        getattr(engine, use)(text)
    assert caught.value.code == "ValidationException"


def test_projections_keep_the_shape_and_close_gaps_in_lists():
    projection = parse_projection("n, #m.k, #l[2], #l[0], gone, m.gone")
    assert projection.apply(Scope(ITEM, NAMES, {})) == {
        "n": {"N": "3"},
        "m": {"M": {"k": {"S": "v"}}},
        "l": {"L": [{"N": "1"}, {"N": "3"}]},
    }


@pytest.mark.aws(
    "The simulated AWS charges units as this page says.",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html",
)
def test_sizes_follow_the_developer_guide():
    assert size_of_item({"ab": {"S": "ü"}}) == 4
    assert size_of_item({"n": {"N": "12345"}}) == 5
    assert size_of_item({"l": {"L": [{"BOOL": True}]}}) == 1 + 3 + 1 + 1
    assert size_of_item({"m": {"M": {"k": {"S": "v"}}}}) == 1 + 3 + 1 + 2
