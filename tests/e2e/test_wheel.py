"""The wheel works in another CDK app without the checkout, and the app in examples/ runs on the embedded AWS."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from typer.main import get_command

from infra import assets
from infra.desk_files import built
from infra.settings import SCHEMA, Arguments, Settings, _setting
from inventory_orders.version import VERSION
from local import ROOT, stack
from local.commands import main
from operations.verify.deployed import Deployed
from tests.support.shopify import CREDENTIALS, Shopify, served

EXAMPLE = ROOT / "examples" / "app.py"
SHOPIFY = ROOT / "examples" / "shopify" / "app.py"
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Return a function that builds the wheel of a folder as `pip wheel .` does: with the build requirements alone.

    pip downloads them, but here they are links.
    """
    place = tmp_path_factory.mktemp("build")
    site = new_environment(place)
    link(tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"], site)

    def run(source, code):
        python = [place / "bin" / "python", "-I", "-c", f"import hatchling.build as b; {code}"]
        return subprocess.run(python, cwd=source, check=True, capture_output=True, text=True).stdout

    asked = run(ROOT, "print(*b.get_requires_for_build_wheel(), sep='\\n')")
    link(asked.split(), site)
    return run


@pytest.fixture(scope="module")
def wheel(build, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build(ROOT, f"b.build_wheel({str(folder)!r})")
    (file,) = folder.glob("*.whl")
    assert file.name == f"inventory_orders-{VERSION}-py3-none-any.whl"
    return file


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """Install the wheel into a new environment with links to the packages that the wheel requires.

    `make wheel CHECK=1` downloads these packages instead.
    """
    folder = tmp_path_factory.mktemp("environment")
    site = new_environment(folder)
    with ZipFile(wheel) as archive:
        metadata = archive.read(f"inventory_orders-{VERSION}.dist-info/METADATA").decode()
    link(["pytest", *re.findall("^Requires-Dist: (.+)$", metadata, re.MULTILINE)], site)
    install = [UV, "pip", "install", "--quiet", "--offline", "--no-index", "--python", folder]
    subprocess.run([*install, wheel], check=True)
    return folder


def new_environment(folder):
    """Create an empty environment. Returns the folder of its packages."""
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    return site


def link(left, site):
    """Link required packages, directly or indirectly, from this environment."""
    linked = set()
    while left:
        required = Requirement(left.pop())
        if required.name in linked or (required.marker and not required.marker.evaluate()):
            continue
        linked.add(required.name)
        found = distribution(required.name)
        left += found.requires or ()
        for name in {file.parts[0] for file in found.files} - {"..", "__pycache__"}:
            if name.endswith(".dist-info"):
                # uv ignores links to metadata.
                shutil.copytree(found.locate_file(name), site / name, dirs_exist_ok=True)
            elif not (site / name).exists():
                (site / name).symlink_to(found.locate_file(name))


@pytest.fixture(scope="module")
def command(environment, tmp_path_factory):
    """Return a function that runs the wheel's command in an empty folder."""
    folder = tmp_path_factory.mktemp("folder")

    def run(*arguments):
        program = environment / "bin" / "inventory-orders"
        return subprocess.run(
            [program, *arguments], cwd=folder, capture_output=True, text=True, check=False
        )

    return run


def synthesised(environment, app, out, **context):
    """Synthesise an example with the wheel. Returns the folder of the assembly."""
    done = subprocess.run(
        [environment / "bin" / "python", app],
        cwd=app.parent,
        env=os.environ
        | {
            "CDK_OUTDIR": str(out),
            "CDK_VALIDATION": "false",
            "CDK_CONTEXT_JSON": json.dumps(context),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list((out / "inventory-orders").glob("layer-core-*")), (
        "it must be built below the app's output"
    )
    return out


@contextmanager
def deployed(assembly, name, embedded_aws):
    """Deploy an example. Yields the physical ids of its resources, by logical id without the digest."""
    aws, running = embedded_aws
    stack.deploy(running, assembly)
    cloudformation = aws.session.client("cloudformation")
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=name)
    yield {
        each["LogicalResourceId"][:-8]: each["PhysicalResourceId"]
        for page in pages
        for each in page["StackResourceSummaries"]
    }
    cloudformation.delete_stack(StackName=name)


@pytest.fixture(scope="module")
def assembly(environment, tmp_path_factory):
    return synthesised(environment, EXAMPLE, tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def shop(assembly, embedded_aws):
    with deployed(assembly, "Shop", embedded_aws) as ids:
        yield ids


@pytest.fixture
def invoke(aws):
    """Return a function that invokes a function of an example by its physical id."""

    def invoke(function, **event):
        answer = aws.functions.invoke(FunctionName=function, Payload=json.dumps(event))
        assert "FunctionError" not in answer, answer["Payload"].read()
        return json.loads(answer["Payload"].read())

    return invoke


def test_the_wheel_holds_the_service_and_no_package_with_a_common_name(wheel):
    with ZipFile(wheel) as archive:
        files = {tuple(name.split("/")) for name in archive.namelist()}
    assert {file[0] for file in files} == {
        *("inventory_orders", "inventory_orders_cdk", "inventory_orders_operations"),
        f"inventory_orders-{VERSION}.dist-info",
    }
    functions = {path.name for path in (ROOT / "functions").iterdir() if path.is_dir()}
    data = ("inventory_orders_cdk", "data")
    found = {file[3] for file in files if file[:3] == (*data, "functions")}
    assert found == functions - {"__pycache__"}
    assert (*data, "vendored", "aws_lambda_powertools", "__init__.py") in files
    assert {file[3] for file in files if file[:3] == (*data, "desk")} == {*built()}


def test_a_source_distribution_builds_the_same_wheel_without_the_desk(build, wheel, tmp_path):
    """`python -m build` does this. Outside a checkout, there is no esbuild, so the wheel cannot host the desk."""
    build(ROOT, f"b.build_sdist({str(tmp_path)!r})")
    (packed,) = tmp_path.iterdir()
    shutil.unpack_archive(packed, tmp_path, filter="data")
    build(tmp_path / packed.name.removesuffix(".tar.gz"), f"b.build_wheel({str(tmp_path)!r})")
    names = [{*ZipFile(file).namelist()} for file in (wheel, tmp_path / wheel.name)]
    left_out = names[0] - names[1]
    assert names[1] < names[0]
    assert all(name.startswith("inventory_orders_cdk/data/desk/") for name in left_out)


def test_the_layer_of_the_wheel_is_the_one_of_the_checkout(assembly):
    """Neither the client nor the test kit reaches the functions."""
    (layer,) = (assembly / "inventory-orders").glob("layer-core-*")
    assert layer.name == assets.layer("python3.14").path.name


def test_the_example_of_the_test_kit_runs_without_region_and_credentials(environment, tmp_path):
    page = (ROOT / "docs" / "testing.md").read_text()
    for name, code in re.findall(r"```python\n# (\S+)\n(.*?)```", page, re.DOTALL):
        (tmp_path / name).write_text(code)
    done = subprocess.run(
        [environment / "bin" / "python", "-m", "pytest", "-q", "-W", "error"],
        cwd=tmp_path,
        env={name: text for name, text in os.environ.items() if not name.startswith("AWS_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_command_has_operators_commands_and_none_that_needs_a_checkout(command):
    assert command("--version").stdout == f"inventory-orders {VERSION}\n"
    offered = set(re.findall(r"^│ ([a-z][a-z-]+)", command("--help").stdout, re.MULTILINE))
    commands = get_command(main.app).commands
    # A group, such as `import`, has no function of its own.
    here = {
        name
        for name, each in commands.items()
        if each.callback and each.callback.__module__.startswith("local.")
    }
    assert offered == commands.keys() - here
    assert {"audit", "export", "lanes", "load", "redrive", "verify"} <= offered
    assert {"demo", "deploy", "desk", "invoke", "up"} <= here


DESK = """
import aws_cdk as cdk
from inventory_orders_cdk import InventoryOrders
stack = cdk.Stack(cdk.App(), "Shop")
urls = {name: f"https://id.example/{name}" for name in ("authorize", "token", "signOut")}
jwt = {"issuer": "https://id.example", "audience": ["desk"]}
InventoryOrders(
    stack, "Tea", name="tea", allow_endless_holds=True, desk={"clientId": "desk", **urls},
    jwt=jwt, roles={"claim": "roles", "grants": {"owners": ["*"]}},
)
"""


def test_the_wheel_can_host_the_desk_without_the_checkout(environment, tmp_path):
    out = tmp_path / "out"
    subprocess.run(
        [environment / "bin" / "python", "-c", DESK],
        cwd=tmp_path,
        env=os.environ | {"CDK_OUTDIR": str(out)},
        check=True,
    )
    (file,) = out.glob("inventory-orders/function-serve_desk-*/answers.json")
    assert json.loads(file.read_text()).keys() == built().keys()


def test_an_app_of_twenty_lines_has_two_services_with_settings_of_their_own(assembly):
    template = json.loads((assembly / "Shop.template.json").read_text())["Resources"]
    _, *lines = filter(None, EXAMPLE.read_text().splitlines())
    assert len(lines) <= 20
    buses = {
        each["Properties"]["Name"]
        for each in template.values()
        if each["Type"] == "AWS::Events::EventBus"
    }
    assert buses == {"InventoryOrders-tea", "InventoryOrders-seats"}
    kinds = [each["Type"] for each in template.values()]
    assert kinds.count("AWS::CloudWatch::Dashboard") == kinds.count("AWS::ApiGatewayV2::Api") == 1
    assert kinds.count("AWS::DynamoDB::GlobalTable") == 16
    deployed = Deployed({}, template, {name: name for name in template})
    for service in ("Tea", "Seats"):
        (orders,) = (name for name in template if name.startswith(f"{service}TablesOrders"))
        own = {name for name in template if name.startswith(service)}
        assert deployed._service_with(orders).resources.keys() == own
    (rule,) = (each for each in template.values() if each["Type"] == "AWS::Events::Rule")
    assert rule["Properties"]["EventPattern"]["detail-type"] == ["OrderPlaced"]


def test_a_function_of_the_app_sends_an_order_and_its_queue_receives_the_event(shop, aws, invoke):
    product = {"action": "create", "productId": "tea", "locationId": "lyon", "openingStock": 5}
    create = shop["TeaFunctionsManageProducts"]
    assert invoke(create, **product | {"locationId": ""})["result"] == "APPLIED"
    assert invoke(create, **product)["result"] == "APPLIED"
    items = [{"productId": "tea", "quantity": 2}]
    invoke(shop["Checkout"], orderId="o-1", userId="anna", items=items)
    messages = aws.sqs.receive_message(QueueUrl=shop["Placed"], WaitTimeSeconds=20)["Messages"]
    event = json.loads(messages[0]["Body"])
    assert event["detail-type"] == "OrderPlaced"
    assert event["detail"]["data"]["orderId"] == "o-1"
    assert event["detail"]["data"]["items"][0]["locationId"] == "lyon"


def test_the_command_audits_each_service_of_the_stack(shop, aws, command):
    books = [command("audit", "--stack", "Shop", "--prefix", each) for each in ("Tea", "Seats")]
    assert [each.returncode for each in books] == [0, 0], books
    place = "AWS: account 000000000000, us-east-1, stack Shop, outputs"
    assert [each.stdout.splitlines()[0] for each in books] == [
        f"{place} Tea...",
        f"{place} Seats...",
    ]


def test_the_shopify_example_takes_an_order_and_writes_the_level_back(
    environment, embedded_aws, invoke, tmp_path
):
    aws, _ = embedded_aws
    secrets = aws.session.client("secretsmanager")
    secrets.create_secret(Name="shopify-app", SecretString=json.dumps(CREDENTIALS))
    line = {"sku": "Earl Grey", "quantity": 2}
    order = {"id": 1, "name": "#1001", "email": None, "line_items": [line, line]}
    with served(Shopify({"Earl Grey": 3})) as shopify:
        assembly = synthesised(environment, SHOPIFY, tmp_path, shop=shopify.url)
        with deployed(assembly, "ShopifyShop", embedded_aws) as ids:
            product = {"action": "create", "productId": "Earl~20Grey", "openingStock": 9}
            invoke(ids["TeaFunctionsManageProducts"], **product)
            for _ in range(2):
                assert invoke(ids["Webhook"], **shopify.webhook("orders/create", order)) == {
                    "statusCode": 200
                }
            deadline = time.monotonic() + 120
            while shopify.available["Earl Grey"] != 5 and time.monotonic() < deadline:
                # It publishes. Then it fails, because the embedded AWS names an action that its role needs in its own way.
                aws.functions.invoke(
                    FunctionName=ids["TeaFunctionsSweep"], Payload='{"action": "sweep"}'
                )
                time.sleep(1)
    assert shopify.available["Earl Grey"] == 5


def test_the_construct_takes_every_setting_as_an_argument():
    assert {_setting(name) for name in Arguments.__annotations__} == SCHEMA["properties"].keys()
    assert Settings.from_arguments("tea", {"fifo_queue": False}).fifo_queue is False
