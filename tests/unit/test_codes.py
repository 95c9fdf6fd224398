"""The documents describe every code and metric in the code, and no others."""

import ast
import json
import re
from pathlib import Path

import yaml

from inventory_orders.domain import order
from inventory_orders.domain.events import OF_STEPS
from inventory_orders.domain.record import OrderAction
from inventory_orders.domain.rejection import REASONS_OF_ORDERS, RejectionReason
from inventory_orders.invocation import telemetry
from inventory_orders.messages.documents import json_schema
from local import ROOT
from operations import codes
from operations.metrics import METRICS
from tests.support.sources import nodes_of, tree_of

ORDER_SCHEMA = json.loads((ROOT / "docs/events/order.schema.json").read_text("utf-8"))
OPENAPI = yaml.load((ROOT / "docs/openapi.yaml").read_text("utf-8"), yaml.CSafeLoader)

ALL_CODES = (
    *(codes.DEAD_LETTERS.keys(), codes.REFUSED.keys(), codes.LATER.keys()),
    *(codes.UNDELIVERABLE.keys(), codes.BAD_LINES.keys()),
)
SAYS_A_CODE = {
    *("InvalidMessageError", "RejectedError", "UnpublishableError"),
    *("rejected", "returned", "id_reused_error", "Problem"),
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
    said = {
        node.args[0].value
        for file, nodes in modules()
        # The API's own codes are in openapi.yaml.
        if "/api/" not in str(file.relative_to(ROOT))
        for node in nodes
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in SAYS_A_CODE
        and node.args
        and is_code(node.args[0])
    }
    assert said
    # The only code that occurs in direct commands alone: see docs/reference.md.
    assert said - {"UNSUPPORTED_EVENT"} <= set().union(*ALL_CODES, RejectionReason)


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
    moves_stock = {a for a in OrderAction if a.restocks or a is OrderAction.RETURN}
    assert set(entry["action"]["enum"]) == {"adjust", "place"} | moves_stock
    counters = {action.counted_as for action in moving}
    for shown in (schemas["Order"], ORDER_SCHEMA):
        line = shown["properties"]["items"]["items"]["properties"]
        assert line.keys() == {"productId", "locationId", "quantity", "backordered"} | counters
