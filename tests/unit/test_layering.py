"""The rules for code: which module may import which, first lines of modules, lengths of functions, names of tests."""

import ast
import re
from functools import cache

import pytest

from local import ROOT
from tests.support.sources import nodes_of

LAYER = ROOT / "layers" / "core" / "python"

BASICS = tuple(
    f"inventory_orders.{name}"
    for name in ("clock", "retry", "errors", "sequences", "version", "domain")
)

# For each module, the modules of the project that it may import. The rule with the longest prefix applies.
MAY_IMPORT = {
    # Code that runs on AWS. In the package, from the pure core outwards: each module may import the ones above it.
    "inventory_orders": (),
    "inventory_orders.clock": (),
    "inventory_orders.retry": (),
    "inventory_orders.errors": (),
    "inventory_orders.sequences": (),
    "inventory_orders.version": (),
    "inventory_orders.domain": ("inventory_orders.errors",),
    "inventory_orders.domain.planner": ("inventory_orders.domain",),
    "inventory_orders.store": (*BASICS,),
    "inventory_orders.engine": (*BASICS, "inventory_orders.store"),
    # Lanes provide the engine with units. Without them, it sells from rows.
    "inventory_orders.lanes": (*BASICS, "inventory_orders.store", "inventory_orders.engine"),
    "inventory_orders.holds": (
        *(*BASICS, "inventory_orders.store"),
        *("inventory_orders.engine.memory", "inventory_orders.engine.retrying_client"),
    ),
    "inventory_orders.products": (
        *(*BASICS, "inventory_orders.store", "inventory_orders.engine"),
        *("inventory_orders.lanes.depot", "inventory_orders.lanes.recall"),
    ),
    "inventory_orders.messages": BASICS,
    "inventory_orders.publishing": BASICS,
    "inventory_orders.publishing.streams": (
        *(*BASICS, "inventory_orders.store", "inventory_orders.publishing.publisher"),
    ),
    "inventory_orders.publishing.stock": (
        *(*BASICS, "inventory_orders.store", "inventory_orders.engine.retrying_client"),
        "inventory_orders.lanes.levels",
        "inventory_orders.publishing.publisher",
    ),
    "inventory_orders.invocation": (
        *BASICS,
        *("inventory_orders.store", "inventory_orders.engine", "inventory_orders.products"),
        *("inventory_orders.publishing", "inventory_orders.holds"),
    ),
    # Connects the engine with its sources of units.
    "inventory_orders.invocation.runtime": (
        *(
            *BASICS,
            "inventory_orders.store",
            "inventory_orders.engine",
            "inventory_orders.products",
        ),
        *("inventory_orders.publishing", "inventory_orders.holds", "inventory_orders.lanes.source"),
        "inventory_orders.invocation",
    ),
    "inventory_orders.invocation.sqs": (
        *("inventory_orders.engine.outcomes", "inventory_orders.publishing.publisher"),
        *("inventory_orders.clock", "inventory_orders.retry", "inventory_orders.sequences"),
    ),
    # Other functions load only the few modules that answer operators' requests.
    "inventory_orders.api": (
        *(*BASICS, "inventory_orders.store", "inventory_orders.engine"),
        *("inventory_orders.messages", "inventory_orders.invocation"),
        "inventory_orders.lanes.levels",
    ),
    "functions.api": (
        *("inventory_orders.api", "inventory_orders.domain", "inventory_orders.errors"),
        *("inventory_orders.engine.retrying_client", "inventory_orders.invocation"),
    ),
    "functions": (
        *("inventory_orders.clock", "inventory_orders.errors", "inventory_orders.domain"),
        "inventory_orders.api.serving",
        *("inventory_orders.engine.outcomes", "inventory_orders.engine.retrying_client"),
        *("inventory_orders.lanes.idle", "inventory_orders.lanes.levels"),
        "inventory_orders.holds",
        *("inventory_orders.products",),
        *("inventory_orders.messages", "inventory_orders.invocation"),
        "inventory_orders.publishing",
    ),
    "infra": ("inventory_orders",),
    "app": ("infra",),
    # Run by people.
    "operations": ("inventory_orders",),
    "local": ("testing", "operations", "inventory_orders"),
    "local.commands": (
        "testing",
        "local",
        "operations",
        "inventory_orders",
        "infra.settings",
        "infra.cdk_json",
    ),
    # Verification.
    "testing": ("operations", "inventory_orders"),
    "testing.aws": (),
    "testing.world": ("testing.aws", "operations", "inventory_orders"),
    "bench": ("testing", "infra", "local", "operations", "inventory_orders"),
    "docs_generator": (
        *("testing", "infra", "local", "operations", "inventory_orders"),
        "tests.support.environment",
    ),
    "tests": (
        *("docs_generator", "bench", "testing", "infra", "local"),
        *("operations", "inventory_orders"),
    ),
}

# For each library, the modules that may import it. Any module may import all other libraries.
CONFINED = {
    "aws_cdk": ("infra", "app", "tests"),
    # In the package, DynamoDB, SQS, EventBridge and Lambda are each called by one module.
    "botocore": (
        *("inventory_orders.store.dynamodb", "inventory_orders.invocation.sqs"),
        "inventory_orders.publishing.publisher",
        *("operations", "local", "testing", "bench", "tests"),
    ),
    "boto3": (
        "inventory_orders.invocation.runtime",
        *("operations", "local", "testing", "bench", "tests"),
    ),
    "constructs": ("infra",),
    "greenlet": ("testing.schedules", "testing.world.process"),
    "hypothesis": ("tests",),
    "ministack": (),
    "moto": ("local.invoke", "tests.unit.test_samples"),
    "pytest": ("tests",),
    "rich": ("operations.commands", "local", "bench", "tests"),
    "typer": ("operations.commands", "local.commands", "bench", "docs_generator", "tests"),
}

SAYS_ITS_SUBJECT = (
    "inventory_orders",
    "functions",
    "infra",
    "app",
    "operations",
    "local",
    "testing",
    "bench",
    "docs_generator",
    "tests",
)


def modules():
    """Find the source file of every module, by dotted name."""
    found = {}
    for room in {prefix.split(".")[0] for prefix in MAY_IMPORT}:
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
        for confined, places in CONFINED.items():
            if is_within(module, [confined]) and not is_within(name, places):
                yield f"{name} imports {module}"


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(room):
    within = [name for name in MODULES if is_within(name, [room])]
    assert within
    assert [broken for name in within for broken in broken_rules(name, imports(name))] == []


@pytest.mark.parametrize(
    ("name", "imported"),
    [
        ("inventory_orders.domain.planner", "inventory_orders.store.rows"),
        ("inventory_orders.store.rows", "inventory_orders.engine.loop"),
        ("inventory_orders.engine.loop", "botocore.exceptions"),
        ("inventory_orders.engine.loop", "inventory_orders.lanes.source"),
        ("functions.place_orders.handler", "inventory_orders.store.dynamodb"),
        ("inventory_orders.publishing.streams", "botocore.exceptions"),
        ("functions.place_orders.handler", "inventory_orders.api.orders"),
        ("inventory_orders.invocation.runtime", "inventory_orders.api.serving"),
        ("inventory_orders.clock", "operations.audit"),
        ("operations.audit", "local.endpoint"),
        ("operations.commands.target", "local.emulator"),
        ("local.stack", "infra.settings"),
        ("testing.aws.sqs", "inventory_orders.clock"),
        ("operations.audit", "rich.table"),
    ],
)
def test_an_import_against_the_rules_is_found(name, imported):
    assert name in MODULES
    assert list(broken_rules(name, {imported}))


@pytest.mark.parametrize(
    "name", [name for name in MODULES if is_within(name, ["inventory_orders"])]
)
def test_only_the_store_knows_expressions_of_dynamodb(name):
    found = [
        node.value
        for node in nodes_of(MODULES[name])
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(r"attribute_(not_)?exists|#\w+ (=|<|>|<>|<=|>=) |:\w+ = ", node.value)
    ]
    assert not found or is_within(name, ["inventory_orders.store"])


def test_no_test_imports_from_another_test_or_a_conftest():
    found = {
        (name, module)
        for name in MODULES
        for module in imports(name)
        if module.startswith("tests.") and re.match(r"test_|conftest$", module.split(".")[-1])
    }
    assert found == set()


@pytest.mark.parametrize("room", SAYS_ITS_SUBJECT)
def test_the_first_line_of_a_module_is_one_sentence_about_its_subject(room):
    wrong = []
    for name, file in MODULES.items():
        if is_within(name, [room]):
            docstring = re.match(r'"""(.*?)("""|$)', file.read_text("utf-8"), re.MULTILINE)
            first = docstring[1] if docstring else ""
            if not re.fullmatch(r"(?!.*[.!?] [A-Z`]).+\.", first):
                wrong.append(f"{name}: {first}")
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
