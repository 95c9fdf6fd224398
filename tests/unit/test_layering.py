"""The rules for code: which module may import which, first lines of modules, lengths of functions, names of tests."""

import ast
import re
from functools import cache

import pytest

from local import ROOT
from tests.support.sources import nodes_of

LAYER = ROOT / "layers" / "core" / "python"

# For each module, the modules of the project that it may import. The rule with the longest prefix applies. Names without
# a package are in `inventory_orders`, and BASICS are its first six modules and `domain`.
RULES = """
# Code that runs on AWS. In the package, from the pure core outwards: each module may import the ones above it.
.                       |
.clock                  |
.retry                  |
.errors                 |
.sequences              |
.version                |
.domain                 | .errors
.domain.planner         | .domain .sequences
.store                  | BASICS
.engine                 | BASICS .store
# Lanes provide the engine with units. Without them, it sells from rows.
.lanes                  | BASICS .store .engine
.holds                  | BASICS .store .engine.memory .engine.retrying_client
.overview               | BASICS .store .engine .lanes.levels
.products               | BASICS .store .engine .lanes.depot .lanes.recall
.messages               | BASICS
.publishing             | BASICS
.publishing.streams     | BASICS .store .publishing.publisher
.publishing.movements   | BASICS .store .publishing.publisher .publishing.streams .engine.retrying_client
.publishing.recent_changes | BASICS .store .publishing.publisher .publishing.streams .engine.retrying_client
.publishing.stock       | BASICS .store .publishing.publisher .engine.retrying_client .lanes.levels
.invocation             | BASICS .store .engine .products .publishing .holds
# Connects the engine with its sources of units.
.invocation.runtime     | BASICS .store .engine .products .publishing .holds .invocation .lanes.source .lanes.callers
.invocation.sqs         | .engine.outcomes .publishing.publisher .clock .retry .sequences
# Other functions load only the few modules that answer operators' requests.
.api                    | BASICS .store .engine .messages .invocation .lanes.levels .lanes.callers
functions.api           | .api .domain .errors .engine.retrying_client .invocation
functions               | .clock .errors .domain .api.serving .engine.outcomes .engine.retrying_client
functions               | .lanes.idle .lanes.levels .overview .holds .products .messages .invocation .publishing
infra                   | .
app                     | infra
# Run by people.
client                  |
operations              | . client
local                   | . operations testing
local.desk              | . client.sending operations testing local infra.desk_files
local.commands          | . operations testing local infra.settings infra.cdk_json
# Verification.
testing                 | . client operations
testing.aws             |
testing.world           | . operations testing.aws
bench                   | . operations testing local infra
docs_generator          | . operations testing local infra tests.support.environment
tests                   | . client operations testing local infra bench docs_generator
"""

# For each library, the modules that may import it. Any module may import all other libraries. In the package, DynamoDB,
# SQS, EventBridge and Lambda are each called by one module.
CONFINED = """
aws_cdk    | infra app tests
biip       | .domain.barcode .domain.scan
botocore   | client .store.dynamodb .invocation.sqs .publishing.publisher operations local testing bench tests
boto3      | .invocation.runtime operations local testing bench tests
constructs | infra
greenlet   | testing.schedules testing.world.process
hypothesis | tests
ministack  | local.embedded_aws
moto       | local.invoke tests.unit.test_samples
pytest     | testing.fixtures tests
rich       | operations.commands local bench tests
typer      | operations.commands local.commands bench docs_generator tests
"""

BASICS = ".clock .retry .errors .sequences .version .domain"


def table(text):
    """Read a table: for each module or library, the modules behind it."""
    found = {}
    for line in text.replace("BASICS", BASICS).splitlines():
        if line and not line.startswith("#"):
            name, *modules = [
                f"inventory_orders{word}".rstrip(".") if word.startswith(".") else word
                for word in line.replace("|", " ").split()
            ]
            found[name] = (*found.get(name, ()), *modules)
    return found


MAY_IMPORT, MAY_USE = table(RULES), table(CONFINED)
ROOMS = sorted({name.split(".")[0] for name in MAY_IMPORT})


def modules():
    """Find the source file of every module, by dotted name."""
    found = {}
    for room in ROOMS:
        root = LAYER if (LAYER / room).is_dir() else ROOT
        files = (root / room).rglob("*.py") if (root / room).is_dir() else [root / f"{room}.py"]
        for file in files:
            parts = file.relative_to(root).with_suffix("").parts
            found[".".join(part for part in parts if part != "__init__")] = file
    return found


MODULES = modules()


# Finds imports in the format of `ruff format`, which is twenty times as fast as parsing the modules.
IMPORT = re.compile(r"^ *(from [.\w]+ import (?:\([^)]*\)|.+)|import .+)", re.MULTILINE)


@cache
def imports(name):
    """Find all modules that a module imports, at the top of its file or later."""
    found = set()
    statements = IMPORT.findall(MODULES[name].read_text("utf-8"))
    for node in ast.parse("\n".join(statements)).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = node.module
            if node.level:
                parts = name.split(".")
                if MODULES[name].name != "__init__.py":
                    parts.pop()
                package = ".".join(
                    [*parts[: len(parts) + 1 - node.level], *filter(None, [package])]
                )
            members = {f"{package}.{alias.name}" for alias in node.names}
            found |= members & MODULES.keys() or {package}
    return found


def is_within(name, prefixes):
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def rule_for(name):
    """Find the longest prefix of a name that has a rule."""
    return max((prefix for prefix in MAY_IMPORT if is_within(name, [prefix])), key=len)


def broken_rules(name, imported):
    rule = rule_for(name)
    allowed = (rule, *MAY_IMPORT[rule])
    for module in imported:
        library = module.split(".")[0]
        if library in MAY_IMPORT and not is_within(module, allowed):
            yield f"{name} imports {module}"
        for confined, places in MAY_USE.items():
            if is_within(module, [confined]) and not is_within(name, places):
                yield f"{name} imports {module}"


def test_every_module_imports_only_what_it_may():
    assert MAY_IMPORT.keys() == {rule_for(name) for name in MODULES}
    assert [broken for name in MODULES for broken in broken_rules(name, imports(name))] == []


@pytest.mark.parametrize(
    ("name", "imported"),
    [
        ("inventory_orders.domain.planner", "inventory_orders.store.rows"),
        ("inventory_orders.engine.loop", "inventory_orders.lanes.source"),
        ("inventory_orders.engine.loop", "botocore.exceptions"),
        ("inventory_orders.clock", "operations.audit"),
        ("local.stack", "infra.settings"),
    ],
)
def test_an_import_against_the_rules_is_found(name, imported):
    assert name in MODULES
    assert list(broken_rules(name, {imported}))


def test_only_the_store_knows_expressions_of_dynamodb():
    expression = re.compile(r"attribute_(not_)?exists|#\w+ (=|<|>|<>|<=|>=) |:\w+ = ")
    found = {
        name
        for name in MODULES
        if is_within(name, ["inventory_orders"])
        for node in nodes_of(MODULES[name])
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and expression.search(node.value)
    }
    assert [name for name in found if not is_within(name, ["inventory_orders.store"])] == []


def test_no_test_imports_from_another_test_or_a_conftest():
    found = {
        (name, module)
        for name in MODULES
        for module in imports(name)
        if module.startswith("tests.") and re.match(r"test_|conftest$", module.split(".")[-1])
    }
    assert found == set()


def test_the_first_line_of_a_module_is_one_sentence_about_its_subject():
    wrong = []
    for name, file in MODULES.items():
        docstring = re.match(r'"""(.*?)("""|$)', file.read_text("utf-8"), re.MULTILINE)
        if not (docstring and re.fullmatch(r"(?!.*[.!?] [A-Z`]).+\.", docstring[1])):
            wrong.append(name)
    assert wrong == []


def test_functions_have_at_most_60_lines_and_constructors_6_parameters():
    """Tests may be longer than other functions, and data classes may have more fields."""
    functions = [
        (f"{name}.{node.name}", node)
        for name, file in MODULES.items()
        if not is_within(name, ["tests"])
        for node in nodes_of(file)
        if isinstance(node, ast.FunctionDef)
    ]
    assert len(functions) > 1000
    assert [name for name, node in functions if node.end_lineno - node.lineno >= 60] == []
    wide = [
        name
        for name, node in functions
        if node.name == "__init__" and len([*node.args.args, *node.args.kwonlyargs]) > 1 + 6
    ]
    assert wide == []


KNOW_NO_LOCATIONS = ("messages", "domain.order_command", "domain.location")
RAISE_BUGS = ("domain.allocation", "store.writes")
"""Modules that say `product_id` in texts: the ids in it have no location, or the text means that the code is wrong."""


def test_messages_name_a_products_row_in_words():
    """The key of a row at a location is internal. `in_words` and `described` convert it."""
    raw = {
        f"{name}: {ast.unparse(part.value)}"
        for name, file in MODULES.items()
        if is_within(name, ["inventory_orders", "functions"])
        and not is_within(name.removeprefix("inventory_orders."), (*KNOW_NO_LOCATIONS, *RAISE_BUGS))
        for node in nodes_of(file)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
        if isinstance(part, ast.FormattedValue)
        and re.search(r"(^|\.)(product_id|subject)$", ast.unparse(part.value))
    }
    assert raw == set()


def test_names_of_tests_have_at_most_80_characters():
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    names = [n for f in files for n in re.findall(r"def (test_\w+)\(", f.read_text("utf-8"))]
    assert len(names) > 1000
    assert [name for name in names if len(name) > 80] == []


# botocore 1.44 changed the default mode and number of attempts.
MAKES_CLIENT = re.compile(r"\b(?:boto3|session)\.client\b(?P<how>(?:\([^()]*\))?)")
HAS_SETTINGS = re.compile(r"\bConfig\((?P<how>(?:[^()]|\([^()]*\))*)\)")


def test_every_client_of_the_service_and_its_commands_sets_its_own_retries():
    sources = [
        path
        for folder in ("layers", "functions", "operations", "local/desk", "local/dashboard")
        for path in (ROOT / folder).rglob("*.py")
        # It only draws the dashboard of the embedded AWS.
        if path != ROOT / "local" / "dashboard" / "service.py"
    ]
    made, settings = [], []
    for path in sources:
        text = path.read_text("utf-8")
        made += [(path.name, made["how"]) for made in MAKES_CLIENT.finditer(text)]
        settings += [(path.name, config["how"]) for config in HAS_SETTINGS.finditer(text)]
    assert len(made) > 8
    assert [name for name, how in made if "config=" not in how] == []
    assert len(settings) == 5
    needed = ('"total_max_attempts": ', '"mode": "standard"')
    assert [name for name, how in settings if not all(part in how for part in needed)] == []
