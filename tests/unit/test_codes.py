"""Codes and metrics: each that the code uses has its meaning, and none has one that the code does not use."""

import ast
import json
import re

import yaml

from inventory_orders.domain.rejection import REASONS_OF_ORDERS, RejectionReason
from inventory_orders.invocation import order_commands, telemetry
from local import ROOT
from operations import codes
from operations.metrics import METRICS
from tests.support.sources import nodes_of, tree_of

ALL_CODES = (
    *(codes.DEAD_LETTERS.keys(), codes.REFUSED.keys(), codes.LATER.keys()),
    *(codes.UNDELIVERABLE.keys(), codes.BAD_LINES.keys()),
)
SAYS_A_CODE = {
    *("PoisonMessageError", "RejectedError", "UnpublishableError"),
    *("rejected", "retry_later", "returned", "id_reused_error", "Problem"),
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


def test_every_code_of_the_lists_is_in_the_code():
    used = {node.value for _, nodes in modules() for node in nodes if is_code(node)}
    assert set().union(*ALL_CODES) <= used


def test_every_code_that_the_code_says_is_in_a_list():
    said = {
        node.args[0].value
        for file, nodes in modules()
        # The API's own codes are in openapi.yaml.
        if "/api/" not in str(file)
        for node in nodes
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in SAYS_A_CODE
        and node.args
        and is_code(node.args[0])
    }
    assert said
    # The only one of direct commands alone: docs/reference.md.
    assert said - {"UNSUPPORTED_EVENT"} <= set().union(*ALL_CODES, RejectionReason)


def test_every_place_that_lists_the_reasons_of_rejected_orders_has_all_of_them():
    reasons = {
        node.attr
        for node in nodes_of(ROOT / "layers/core/python/inventory_orders/domain/order.py")
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "RejectionReason"
    }
    assert len(reasons) >= 3
    schema = json.loads((ROOT / "docs/events/order.schema.json").read_text("utf-8"))
    contract = yaml.load((ROOT / "docs/openapi.yaml").read_text("utf-8"), yaml.CSafeLoader)
    seen = contract["components"]["schemas"]["Order"]["properties"]["reason"]
    assert set(schema["properties"]["reason"]["enum"]) == reasons
    assert set(seen["enum"]) == reasons
    assert reasons == {*REASONS_OF_ORDERS}


def noted_by_lanes():
    """The metrics that the lanes measure themselves."""
    folder = ROOT / "layers/core/python/inventory_orders/lanes"
    text = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    return set(re.findall(r'stats\.note\("(\w+)"', text))


def test_every_metric_has_its_meaning():
    trees = [tree_of(ROOT / module.__file__) for module in (telemetry, order_commands)]
    nodes = [
        node
        for tree in trees
        for function in tree.body
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    ]
    named = {node.value for node in nodes if isinstance(node, ast.Constant)} | noted_by_lanes()
    reached = set(order_commands._REACHED.values())
    assert reached <= telemetry.METRICS.keys() <= named | reached
    counted = {
        node.args[0].value
        for node in nodes
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "add"
        and isinstance(node.args[0], ast.Constant)
    }
    # One that is in no list is not counted, without a word.
    assert counted
    assert counted <= telemetry.METRICS.keys()
    assert METRICS.keys() == telemetry.METRICS.keys()
