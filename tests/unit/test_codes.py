"""The documents describe every code and metric in the code, and no others."""

import ast
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import botocore.exceptions
import pytest
import yaml
from botocore.exceptions import BotoCoreError

from inventory_orders.api.permissions import ANY_PERMISSION, PERMISSIONS
from inventory_orders.domain import order
from inventory_orders.domain.events import OF_STEPS, Event
from inventory_orders.domain.product import ProductStatus
from inventory_orders.domain.record import OrderAction, OrderStatus
from inventory_orders.domain.rejection import REASONS_OF_ORDERS, RejectionReason
from inventory_orders.errors import (
    OutcomeUnknownError,
    RequestInvalidError,
    StoreError,
    StoreUnavailableError,
    ThrottledError,
)
from inventory_orders.invocation import telemetry
from inventory_orders.messages.documents import json_schema
from inventory_orders.publishing.publisher import Bus, BusEntry
from inventory_orders.store import dynamodb
from inventory_orders.store.cancellations import ConditionFailedError, TransactionCancelledError
from inventory_orders.store.dynamodb import call
from local import ROOT
from operations import codes
from operations.metrics import METRICS
from tests.support.sources import nodes_of, tree_of

ORDER_SCHEMA = json.loads((ROOT / "docs/events/order.schema.json").read_text("utf-8"))
OPENAPI = yaml.load((ROOT / "docs/openapi.yaml").read_text("utf-8"), yaml.CSafeLoader)

ALL_CODES = (
    *(codes.DEAD_LETTERS.keys(), codes.REFUSED.keys(), codes.LATER.keys()),
    *(codes.ANSWERS.keys(), codes.UNDELIVERABLE.keys(), codes.BAD_LINES.keys()),
)
SAYS_A_CODE = {"RejectedError", "Problem", "rejected"}
"""Functions in `operations` whose argument is a code."""

NO_CODES = {
    # Beginnings and endings of codes, and names of settings, of DynamoDB and of streams.
    *(
        "CORRUPT",
        "UNREADABLE",
        "ID_REUSED",
        "ALL_NEW",
        "ALL_OLD",
        "BOOL",
        "NFKD",
        "NULL",
        "PROBLEM",
        "INSERT",
        "REMOVE",
    ),
    # Values of `result` and `reason`, of the status of orders, and of availability.
    *("ACQUIRED", "APPLIED", "COMMITTED", "INVALID", "LEASE_WAS_OVER", "PUBLISHED", "REFUSED"),
    *("RECORDED", "RELEASED", "RENEWED", "REPLAYED", "RETRY_LATER", "STALE", "SWEPT", "ACCEPTED"),
    *("BEGUN", "COUNTED_BEFORE"),
    *("CLOSING", "COUNT", "DECREMENT", "OPENING"),
    *("TRANSFER_IN", "TRANSFER_LOST", "TRANSFER_OUT"),
    *OrderStatus,
    *ProductStatus,
    *("BACKORDER", "IN_STOCK"),
}


def modules():
    for room in ("layers/core/python", "functions", "operations"):
        for file in sorted((ROOT / room).rglob("*.py")):
            if file.name != "codes.py":
                yield file, nodes_of(file)


def is_code(node):
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch("[A-Z_0-9]{4,}", node.value)
    )


def test_every_code_in_the_lists_is_in_the_source():
    used = {node.value for _, nodes in modules() for node in nodes if is_code(node)}
    assert set().union(*ALL_CODES) <= used


def test_every_code_in_the_source_is_in_a_list():
    """On AWS, every word in capitals is in a list, except for other words and names of settings."""
    listed = set().union(*ALL_CODES, RejectionReason)
    words = {
        node.value
        for file, nodes in modules()
        if "operations" not in file.parts and file.name != "runtime.py"
        for node in nodes
        if is_code(node)
    }
    assert words - NO_CODES <= listed
    assert words - listed >= NO_CODES, "remove words that the source no longer has"
    said = {
        node.args[0].value
        for _, nodes in modules()
        for node in nodes
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in SAYS_A_CODE
        and node.args
        and is_code(node.args[0])
    }
    assert said
    assert said <= listed


def test_every_error_that_names_its_code_names_a_listed_one():
    """Not only in capitals: a code must not look like one of AWS that AWS has not sent."""
    given = {
        node.args[0].value
        for _, nodes in modules()
        for node in nodes
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") in {kind.__name__ for kind in STORE_ERRORS}
        and isinstance(node.args[0], ast.Constant)
    }
    assert given
    assert given <= codes.LATER.keys()


STORE_ERRORS = (ThrottledError, OutcomeUnknownError, StoreUnavailableError, RequestInvalidError)


def errors_of_the_client():
    """Yield every error that an AWS client can raise without an answer."""
    for kind in vars(botocore.exceptions).values():
        if isinstance(kind, type) and issubclass(kind, BotoCoreError):
            error = kind.__new__(kind)
            Exception.__init__(error, "details")
            yield error


def test_a_request_without_an_answer_has_one_code_and_names_its_exception():
    errors = list(errors_of_the_client())
    assert len(errors) > 50
    for error in errors:

        def fail(error=error, **_):
            raise error

        with pytest.raises(StoreError) as failed:
            call(fail)
        client = SimpleNamespace(put_events=fail)
        (refusal,) = Bus(client, "Bus").put([BusEntry.of(Event("t", "o", "o", "", {}))])
        for code, message in (
            (failed.value.code, str(failed.value)),
            (refusal.code, refusal.message),
        ):
            assert code in codes.LATER.keys() & codes.UNDELIVERABLE.keys()
            assert type(error).__name__ in message


def test_the_codes_of_aws_that_the_service_knows_are_described():
    passed_on = {
        code for code, kind in dynamodb._MEANINGS.items() if kind is not RequestInvalidError
    }
    assert passed_on < codes.FROM_AWS.keys()
    assert RequestInvalidError("ValidationException", "too large").code in codes.DEAD_LETTERS
    own = (ConditionFailedError(None), TransactionCancelledError([]))
    assert {error.code for error in own} < codes.FROM_AWS.keys()


def test_every_place_that_lists_the_reasons_of_rejected_orders_has_all_of_them():
    reasons = {
        node.attr
        for node in nodes_of(Path(order.__file__))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "RejectionReason"
    }
    assert len(reasons) >= 3
    seen = OPENAPI["components"]["schemas"]["Order"]["properties"]["reason"]
    assert set(ORDER_SCHEMA["properties"]["reason"]["enum"]) == reasons
    assert set(seen["enum"]) == reasons
    assert reasons == {*REASONS_OF_ORDERS}
    texts = (ROOT / "local/desk/page/texts.js").read_text("utf-8")
    (on_the_desk,) = re.findall(r"rejections: \{(.*?)\n    \}", texts, re.DOTALL)
    assert set(re.findall(r"^ +(\w+):", on_the_desk, re.MULTILINE)) == reasons


def test_the_desk_has_words_for_every_permission():
    texts = (ROOT / "local/desk/page/texts.js").read_text("utf-8")
    (in_words,) = re.findall(r"  permissions: \{(.*?)\n  \}", texts, re.DOTALL)
    assert {*re.findall(r'"(\w+\.\w+)":', in_words)} == {*PERMISSIONS.values()} - {ANY_PERMISSION}


def measured():
    """Find the names of the metrics that `CommitStats` collects."""
    folder = ROOT / "layers/core/python/inventory_orders"
    text = "".join(path.read_text("utf-8") for path in folder.rglob("*.py"))
    return set(re.findall(r'stats\.measured\["(\w+)"\]', text))


def test_every_metric_has_its_meaning():
    nodes = [
        node
        for function in tree_of(ROOT / telemetry.__file__).body
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    ]
    named = {node.value for node in nodes if isinstance(node, ast.Constant)} | measured()
    reached = {f"Orders{end}" for end in ("Confirmed", "Fulfilled", "Cancelled", "Expired")}
    reached |= {*get_args(telemetry.Door)}
    assert reached <= telemetry.METRICS.keys() <= named | reached
    counted = {
        node.args[0].value
        for node in nodes
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "add"
        and isinstance(node.args[0], ast.Constant)
    }
    # A metric that is missing from this list is silently ignored.
    assert counted
    assert counted <= telemetry.METRICS.keys()
    assert METRICS.keys() == telemetry.METRICS.keys()


def test_every_place_that_lists_actions_on_orders_has_all_of_them():
    sent = {action for action in OrderAction if action.path}
    assert json_schema("commands")["change_orders"].keys() == sent
    moving = {action for action in sent if action.counted_as}
    assert moving == OF_STEPS.keys()
    schemas = OPENAPI["components"]["schemas"]
    assert set(schemas["Step"]["properties"]["action"]["enum"]) == {*OrderAction}
    entry = schemas["History"]["properties"]["entries"]["items"]["properties"]
    moves_units = {a for a in OrderAction if a.restocks is not None or a is OrderAction.RETURN}
    assert set(entry["action"]["enum"]) == {"adjust", "place"} | moves_units
    counters = {action.counted_as for action in moving}
    for shown in (schemas["Order"], ORDER_SCHEMA):
        line = shown["properties"]["items"]["items"]["properties"]
        assert line.keys() == {"productId", "locationId", "quantity", "backordered"} | counters
