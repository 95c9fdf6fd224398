"""The wheel works in another CDK app without the checkout, and the app of examples/ runs on the embedded AWS."""

import ast
import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

from infra.settings import SCHEMA, Arguments, Settings, _setting
from inventory_orders.version import VERSION
from local import ROOT, stack

EXAMPLE = ROOT / "examples" / "app.py"
# Runs a program with the installed packages and the wheel, but without the checkout.
RUN = """
import runpy, sys
wheel, site, root, program = sys.argv[1:]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.path[:] = [wheel, *(p for p in sys.path if not p.startswith(root) or p == site)]
sys.argv[:] = [program]
runpy.run_path(program, run_name="__main__")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel and unpack it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    assert file.name == f"inventory_orders-{VERSION}-py3-none-any.whl"
    with ZipFile(file) as archive:
        archive.extractall(folder / "content")
    return folder / "content"


@pytest.fixture(scope="module")
def assembly(wheel, tmp_path_factory):
    """Synthesise the example with the wheel."""
    out = tmp_path_factory.mktemp("out")
    site = Path(str(distribution("aws-cdk-lib").locate_file("")))
    done = subprocess.run(
        [sys.executable, "-I", "-c", RUN, wheel, site, ROOT, EXAMPLE],
        cwd=EXAMPLE.parent,
        env=os.environ | {"CDK_OUTDIR": str(out), "CDK_VALIDATION": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list((out / "inventory-orders").glob("layer-core-*")), (
        "it must be built below the app's output"
    )
    return out


@pytest.fixture(scope="module")
def shop(assembly, embedded_aws):
    """Deploy the example. Returns the physical ids of its resources by their logical ids without digests."""
    aws, running = embedded_aws
    stack.remove_metric_math(assembly)
    stack.deploy(running, assembly)
    cloudformation = aws.session.client("cloudformation")
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName="Shop")
    yield {
        each["LogicalResourceId"][:-8]: each["PhysicalResourceId"]
        for page in pages
        for each in page["StackResourceSummaries"]
    }
    cloudformation.delete_stack(StackName="Shop")


def test_the_wheel_holds_the_service_and_no_package_with_a_common_name(wheel):
    assert {path.name for path in wheel.iterdir()} == {
        *("inventory_orders", "inventory_orders_cdk"),
        f"inventory_orders-{VERSION}.dist-info",
    }
    metadata = {path.name for path in wheel.glob("*.dist-info/*")}
    assert "entry_points.txt" not in metadata, "the command needs the checkout"
    functions = {path.name for path in (ROOT / "functions").iterdir() if path.is_dir()}
    data = wheel / "inventory_orders_cdk" / "data"
    assert {path.name for path in (data / "functions").iterdir()} == functions - {"__pycache__"}
    assert (data / "vendored" / "aws_lambda_powertools" / "__init__.py").is_file()


def test_an_app_of_twenty_lines_has_two_services_with_settings_of_their_own(assembly):
    template = json.loads((assembly / "Shop.template.json").read_text())["Resources"]
    statements = ast.parse(EXAMPLE.read_text()).body
    assert statements[-1].end_lineno - statements[0].end_lineno <= 20
    buses = {
        each["Properties"]["Name"]
        for each in template.values()
        if each["Type"] == "AWS::Events::EventBus"
    }
    assert buses == {"InventoryOrders-tea", "InventoryOrders-tickets"}
    kinds = [each["Type"] for each in template.values()]
    assert kinds.count("AWS::CloudWatch::Dashboard") == kinds.count("AWS::ApiGatewayV2::Api") == 1
    assert kinds.count("AWS::DynamoDB::GlobalTable") == 8
    (rule,) = (each for each in template.values() if each["Type"] == "AWS::Events::Rule")
    assert rule["Properties"]["EventPattern"]["detail-type"] == ["OrderPlaced"]


def test_a_function_of_the_app_sends_an_order_and_its_queue_receives_the_event(shop, aws):
    def invoke(function, **event):
        answer = aws.functions.invoke(FunctionName=shop[function], Payload=json.dumps(event))
        assert "FunctionError" not in answer, answer["Payload"].read()
        return json.loads(answer["Payload"].read())

    product = {"action": "create", "productId": "tea", "locationId": "lyon", "openingStock": 5}
    assert (
        invoke("TeaFunctionsManageProducts", **product | {"locationId": ""})["result"] == "APPLIED"
    )
    assert invoke("TeaFunctionsManageProducts", **product)["result"] == "APPLIED"
    items = [{"productId": "tea", "quantity": 2}]
    invoke("Checkout", orderId="o-1", userId="anna", items=items)
    messages = aws.sqs.receive_message(QueueUrl=shop["Placed"], WaitTimeSeconds=20)["Messages"]
    event = json.loads(messages[0]["Body"])
    assert event["detail-type"] == "OrderPlaced"
    assert event["detail"]["data"]["orderId"] == "o-1"
    assert event["detail"]["data"]["items"][0]["locationId"] == "lyon"


def test_the_construct_takes_every_setting_as_an_argument():
    assert {_setting(name) for name in Arguments.__annotations__} == SCHEMA["properties"].keys()
    assert Settings.from_arguments("tea", {"fifo_queue": False}).fifo_queue is False
