"""Settings are validated, and each error names the setting that is invalid."""

import json
import re
import runpy
from collections import Counter
from dataclasses import fields
from functools import partial

import aws_cdk
import pytest
from aws_cdk import aws_lambda
from aws_cdk.assertions import Annotations, Match
from typer.testing import CliRunner

from infra import cdk_json
from infra.currencies import DIGITS
from infra.settings import SCHEMA, Settings, SettingsError, check_names
from inventory_orders.domain import allotments
from inventory_orders.messages.documents import json_schema
from local import ROOT, emulator
from local.commands import deployment
from local.commands.main import app
from operations.errors import UserError
from tests.support.template import shared_stack_of

JWT = {"issuer": "https://a.example", "audience": ["a"]}
ROLES = {"claim": "g", "grants": {"pickers": ["orders.read"]}}
DESK = {
    "clientId": "a",
    "authorize": "https://id.example/authorize",
    "token": "https://id.example/token",
    "signOut": "https://id.example/logout",
}
CERTIFICATE = "arn:aws:acm:eu-central-1:123456789012:certificate/0a-1"


def changed(path, value):
    """Return settings that override only the value at this path."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def test_the_settings_of_the_repository_are_valid():
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    settings = Settings.from_context("prod", context["settings"], context["stages"])
    assert settings.is_production
    assert settings.stack_name == "InventoryOrders-prod"
    assert settings.queues["OrderQueue"].batchSize == 96


NOT_READ = [
    ({"context": {"stage": {"prod": {}}}}, "context.stage in cdk.json is an object; did you mean "),
    ({"context": {"setting": {}}}, "(in cdk.json, or -c setting=) is unknown; did you mean set"),
    ({"context": {"lanes": 5}}, "is unknown; the known names are overrides, settings, stage, sta"),
    ({"contexts": {}}, "cdk.json has contexts at the top level, where it has no effect; did you"),
    ({"context": {}, "setting": {}}, "did you mean context.settings?"),
]


@pytest.mark.parametrize(("config", "says"), NOT_READ)
def test_an_unused_setting_name_is_refused(config, says, monkeypatch, tmp_path):
    with pytest.raises(SettingsError, match=re.escape(says)):
        check_names(config, config.get("context", {}))
    monkeypatch.setattr(deployment, "ROOT", tmp_path)
    (tmp_path / "cdk.json").write_text(json.dumps(config))
    answer = CliRunner().invoke(app, ["settings", "--stage", "prod"])
    assert isinstance(answer.exception, UserError)
    assert says in str(answer.exception)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": [1,\n ]}', "line 1, column 9: there is a comma before the closing bracket; remove"),
        ('{\n // ours\n "context": {}}', "line 2, column 2: JSON has no comments; remove this one"),
        ('{"context": {} /* ours */}', "line 1, column 16: JSON has no comments; remove this one"),
        ('{"context": {"stage": 1, "a": {}, "\\u0061": 2}}', 'column 35: the object already has "'),
        ("{'context': {}}", "line 1, column 2: text needs straight double quotes"),
        ('{"a": 1 "b": 2}', "line 1, column 9: a comma is missing before this character"),
        ('{"a" 1}', "line 1, column 6: a colon is missing before this character"),
        ('{"a": True}', "line 1, column 7: this is not a value; text needs double quotes"),
        ('{"a": "x\ny"}', "line 1, column 9: text cannot continue on the next line"),
        ('{"a": {}', "line 1, column 9: the file ends before its last bracket is closed"),
        ('{"a": 1}}', "line 1, column 9: the file continues after its last bracket"),
        ('{"a": "\\x"}', "line 1, column 8: Invalid \\escape"),
        ("[]", "line 1, column 1: the file must hold an object"),
        ('{"context": []}', "context in cdk.json is []; it must be an object"),
        (b'{"a": "\xe9"}', "cdk.json is not UTF-8 (byte 8); save it as UTF-8"),
        (None, "cdk.json cannot be read (No such file or directory)"),
    ],
)
def test_a_cdk_json_that_is_not_valid_is_an_error_with_its_place(text, says, monkeypatch, tmp_path):
    monkeypatch.setattr(deployment, "ROOT", tmp_path)
    if text is not None:
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / "cdk.json").write_bytes(content)
    refused = CliRunner().invoke(app, ["settings"]).exception
    assert isinstance(refused, UserError)
    assert says in str(refused)


@pytest.mark.parametrize(
    "command",
    [
        *(["up"], ["demo"], ["desk"], ["dashboard"], ["synth"], ["bootstrap"]),
        *(
            [name, "--stage", "dev"]
            for name in ("diff", "validate", "deploy", "diagnose", "destroy")
        ),
    ],
)
def test_each_command_that_needs_cdk_json_reads_it_before_anything_else(
    command, monkeypatch, tmp_path
):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setattr(deployment, "ROOT", tmp_path)
    (tmp_path / "cdk.json").write_text('{"context": {},}')
    for module, name in (
        (emulator, "start"),
        (emulator, "running"),
        (deployment.subprocess, "run"),
    ):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("it began"))
    refused = CliRunner().invoke(app, command).exception
    assert str(refused) == (
        "cdk.json, line 1, column 15: there is a comma before the closing bracket; remove it"
    )


def test_the_app_reads_cdk_json_in_the_same_way(monkeypatch):
    def wrong(path):
        raise SettingsError(f"{path.name} is wrong")

    monkeypatch.setattr(cdk_json, "read_cdk_json", wrong)
    with pytest.raises(SystemExit, match=r"^Error: cdk\.json is wrong$"):
        runpy.run_path(str(ROOT / "app.py"))


def test_a_byte_order_mark_and_equal_names_in_two_objects_are_accepted(tmp_path):
    path = tmp_path / "cdk.json"
    path.write_text('\ufeff{"a": {"b": "{}\\""}, "c": [{"b": 1}, {"b": 2, "d": "b"}]}')
    assert cdk_json.read_cdk_json(path)["c"] == [{"b": 1}, {"b": 2, "d": "b"}]


def test_the_cdks_own_context_keys_are_accepted():
    config = json.loads((ROOT / "cdk.json").read_text())
    ours = config | {"staging": False, "toolkitStackName": "CDKToolkit-shop"}
    of_the_cdk = {
        "@aws-cdk/core:bootstrapQualifier": "shop",
        "aws:cdk:toolkit": True,
        "cli-telemetry": False,
    }
    check_names(ours, config["context"] | of_the_cdk)


def test_the_app_refuses_unused_context_keys_on_the_command_line(monkeypatch):
    named = {"stage": "dev", "stagge": "prod"}
    monkeypatch.setattr(aws_cdk, "App", partial(aws_cdk.App, context=named))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "app.py"))
    assert "-c stagge=) is unknown; did you mean stage?" in str(ended.value)


def test_every_object_of_the_settings_refuses_unknown_names():
    def objects(part):
        if isinstance(part, dict):
            if "properties" in part and isinstance(part["properties"], dict):
                yield part
            for inner in part.values():
                yield from objects(inner)

    found = list(objects(SCHEMA))
    assert len(found) > 8
    assert all(part["additionalProperties"] is False for part in found)


def test_every_setting_is_described_and_used():
    def described(schema):
        for part in schema["properties"].values():
            yield "description" in part or "$ref" in part
            if "properties" in part:
                yield from described(part)

    assert all(described(SCHEMA))
    assert all(all(described(part)) for part in SCHEMA["definitions"].values())
    own = {"stage", "sources", "values"}
    assert len({field.name for field in fields(Settings)} - own) == len(SCHEMA["properties"])


def test_a_stages_settings_override_common_settings_and_these_the_defaults():
    common = {"lanes": 20, "queues": {"OrderQueue": {"batchSize": 50}}, "locations": ["a", ""]}
    queues = {"OrderQueue": {"maximumConcurrency": 9}}
    stages = {
        "prod": {"lanes": 30, "queues": queues, "locations": ["b.1"]},
        "team-a": {"production": True},
    }
    prod, team = (Settings.from_context(stage, common, stages) for stage in ("prod", "team-a"))
    assert (prod.lanes, team.lanes) == (30, 20)
    assert (prod.locations, team.locations) == (("b.1",), ("a", ""))
    assert prod.queues["OrderQueue"].batchSize == team.queues["OrderQueue"].batchSize == 50
    assert prod.queues["OrderQueue"].maximumConcurrency == 9
    assert prod.sources["lanes"] == "stages.prod"
    assert prod.sources["queues.OrderQueue.batchSize"] == "settings"
    assert prod.sources["queues.OrderQueue.batchWindowSeconds"] == "default"
    assert set(prod.sources) >= set(prod.values)
    assert team.is_production
    assert Settings.from_context("prod", common) != Settings.from_context("prod")


def test_the_error_of_a_stage_names_the_stage():
    with pytest.raises(SettingsError, match=r"stages\.dev\.lanes is 91"):
        Settings.from_context("dev", {"lanes": 5}, {"dev": {"lanes": 91}})
    for wrong, says in (({"lane": 5}, "lane is unknown"), ({"cors": ["*"]}, r"cors\[0\] is")):
        with pytest.raises(SettingsError, match=rf"stages\.dev\.{says}"):
            Settings.from_context("dev", {}, {"dev": wrong})
    with pytest.raises(SettingsError, match=r"stages\.Dev is not a valid stage name"):
        Settings.from_context("dev", {}, {"Dev": {}})
    assert Settings.from_context("prod", {}, {"dev": {"lanes": 91}}).lanes == 60
    assert Settings.from_context("dev", {"jwt": JWT}, {"dev": {"jwt": None}}).jwt is None
    found = Settings.from_context("dev", {"jwt": JWT, "holdSeconds": 900})
    assert found.values["jwt.userIdClaim"] == "sub"
    assert found.sources["jwt.userIdClaim"] == "default"


def test_a_command_shows_each_settings_value_and_origin(monkeypatch):
    monkeypatch.setattr(
        deployment,
        "_settings",
        lambda stage: Settings.from_context(stage, {}, {"prod": {"lanes": 3}}),
    )
    shown = CliRunner().invoke(app, ["settings", "--stage", "prod"], env={"COLUMNS": "80"}).stdout
    lines = [line.split() for line in shown.splitlines()]
    assert ["lanes", "3", "stages.prod"] in lines
    assert ["production", "true", "default"] in lines
    assert max(map(len, shown.splitlines())) <= 80
    as_json = CliRunner().invoke(app, ["settings", "--stage", "prod", "--json"]).stdout
    assert json.loads(as_json)["lanes"] == {"value": 3, "from": "stages.prod"}


@pytest.mark.parametrize(
    ("path", "value", "lanes", "of_the_api"),
    [
        ("queues.OrderQueueFifo.maximumConcurrency", 7, 37, 30),
        ("queues.OrderQueue.maximumConcurrency", 1000, 60, 30),
        ("fifoQueue", False, 30, 30),
        ("api", False, 55, 0),
        ("lanes", 0, 0, 0),
        ("lanes", 1, 1, 30),
        ("lanes", 61, 61, 29),
        ("lanes", 90, 90, 0),
    ],
)
def test_by_default_each_worker_has_a_lane_and_the_api_has_the_lanes_after_those(
    path, value, lanes, of_the_api
):
    settings = Settings.from_context("dev", changed(path, value))
    assert (settings.lanes, settings.api_lanes) == (lanes, of_the_api)
    assert lanes + of_the_api <= allotments.MAX_LANES == 90


@pytest.mark.parametrize(
    ("setting", "queue"), [("fifoQueue", "OrderQueueFifo"), ("api", "OrderQueueExpress")]
)
def test_a_stage_without_a_queue_has_no_settings_for_it(setting, queue):
    settings = Settings.from_context("dev", {"queues": {queue: {"batchSize": 5}}})
    assert settings.queues[queue].batchSize == 5
    settings = Settings.from_context("dev", changed(setting, False))
    assert queue not in settings.queues
    assert not any(f"{queue}." in name for name in settings.values)


def test_customers_hold_stock_forever_only_if_the_shop_says_so():
    with pytest.raises(
        SettingsError, match=r"^stages\.dev\.holdSeconds is null, .*allowEndlessHold"
    ):
        Settings.from_context("dev", {"jwt": JWT}, {"dev": {"holdSeconds": None}})
    for settings in ({"jwt": JWT, "allowEndlessHolds": True}, {"jwt": None}):
        assert Settings.from_context("dev", settings).hold_seconds is None


def test_roles_that_do_not_fit_into_the_functions_environment_are_refused():
    settings = {"jwt": JWT, "holdSeconds": 900, "roles": ROLES}
    assert Settings.from_context("dev", settings).roles == ROLES
    many = {f"role-{number}": ["orders.read"] for number in range(80)}
    with pytest.raises(SettingsError, match=r"^settings\.roles has 2,[0-9]{3} characters"):
        Settings.from_context("dev", settings, {"dev": {"roles": {"grants": many}}})


def test_a_desk_needs_the_api_tokens_and_staff():
    settings = {"jwt": JWT, "holdSeconds": 900, "roles": ROLES, "desk": DESK}
    desk = Settings.from_context("dev", settings).desk
    assert (desk.client_id, desk.sign_out, desk.scope) == ("a", DESK["signOut"], "openid")
    assert desk.domain is None
    operators = JWT | {"operatorsClaim": {"name": "g", "value": "operators"}}
    domain = {"name": "desk.shop.example", "certificate": CERTIFICATE}
    chosen = settings | {"roles": None, "jwt": operators, "desk": DESK | {"domain": domain}}
    assert Settings.from_context("dev", chosen).desk.domain.certificate == CERTIFICATE
    for change, says in (
        ({"api": False}, "requires the settings api and jwt"),
        ({"jwt": None, "roles": None}, "requires the settings api and jwt"),
        ({"roles": None}, "requires the setting roles or jwt.operatorsClaim"),
        ({"desk": DESK | {"clientId": "b"}}, '.clientId is "b"; it must be in jwt.audience'),
    ):
        with pytest.raises(SettingsError, match=rf"^settings\.desk.*{re.escape(says)}"):
            Settings.from_context("dev", settings | change)


def test_the_decimals_of_a_currency_are_not_those_of_libraries_but_of_iso_4217():
    assert Counter(DIGITS.values()) == {0: 17, 2: 139, 3: 7, 4: 2}
    assert all(re.fullmatch("[A-Z]{3}", code) for code in DIGITS)
    others = {"HUF": 2, "RSD": 2, "ISK": 0, "UGX": 0, "IQD": 3, "LBP": 2, "CLF": 4}
    assert {code: DIGITS[code] for code in others} == others
    assert not DIGITS.keys() & {"XAU", "XTS", "XXX", "BGN"}


def test_settings_and_orders_allow_the_same_locations():
    ours, of_orders = (
        SCHEMA["properties"]["locations"],
        json_schema("order")["properties"]["locations"],
    )
    for name in ("minItems", "maxItems", "uniqueItems"):
        assert ours[name] == of_orders[name]
    assert ours["items"]["pattern"] == of_orders["items"]["pattern"]


def test_no_order_may_expire_while_its_confirmation_waits_for_a_batch():
    def read(window, grace=None, overrides=None):
        changes = changed("queues.OrderCommandQueue.batchWindowSeconds", window)
        if grace is not None:
            changes["holdGraceSeconds"] = grace
        return Settings.from_context("dev", changes, None, overrides).hold_grace_seconds

    assert (read(30), read(300, 330), read(0, 0)) == (60, 330, 0)
    assert read(30, None, {"holdGraceSeconds": 3}) == 3, "the embedded AWS has no batch windows"
    with pytest.raises(SettingsError) as caught:
        read(31)
    assert str(caught.value) == (
        "settings.queues.OrderCommandQueue.batchWindowSeconds is 31, but holdGraceSeconds is 60: an order could expire "
        "while its confirmation waits for a batch. Lower the window to 30, or raise holdGraceSeconds to 61"
    )
    with pytest.raises(
        SettingsError, match=r"Lower the window to 0, or raise holdGraceSeconds to 31$"
    ):
        read(1, 20)


@pytest.mark.parametrize("stage", [None, "", "Test", "a_b", "x" * 21, "dev\n", 1])
def test_a_stage_has_a_name_of_a_few_letters(stage):
    with pytest.raises(SettingsError, match=r"1 to 20 lowercase letters.*-c stage=dev"):
        Settings.from_context(stage)
    assert Settings.from_context("2026-team-a").service_name == "inventory-orders-2026-team-a"


def test_production_is_a_setting_true_by_default_for_prod():
    found = {
        (stage, production): Settings.from_context(stage, given).is_production
        for stage in ("prod", "dev", "production")
        for production, given in (
            (None, {}),
            (True, {"production": True}),
            (False, {"production": False}),
        )
    }
    assert {key for key, is_production in found.items() if is_production} == {
        ("prod", None),
        ("prod", True),
        ("dev", True),
        ("production", True),
    }


def test_the_runtimes_are_known_to_the_cdk():
    names = [name for name in dir(aws_lambda.Runtime) if name.startswith("PYTHON_3_1")]
    known = {name.lower().replace("_", ".").replace("python.", "python") for name in names}
    # The CDK has no constant for the newest one yet.
    newest = {"python3.15"}
    assert set(SCHEMA["properties"]["runtime"]["enum"]) == known - {"python3.10"} | newest


def test_a_runtime_whose_support_ends_is_reported():
    words = Match.string_like_regexp("ends its support for python3.11 on 30 June 2027")
    Annotations.from_stack(shared_stack_of("dev", runtime="python3.11")).has_warning("*", words)
    Annotations.from_stack(shared_stack_of("dev")).has_no_warning("*", words)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("runtime", None, "one of python3.11, python3.12, python3.13, python3.14, "),
        ("production", {"live": True}, 'settings.production is {"live": true}; it must be true or'),
        ("monitoring", "none", 'settings.monitoring is "none"; it must be one of full, basic'),
        ("fifoQueue", None, "settings.fifoQueue is null; it must be true or false"),
        ("colour", "red", "settings.colour is unknown; did you mean cors?"),
        ("width", 5, "settings.width is unknown; the known names are alarmEmail, allow"),
        ("lanes", 91, "settings.lanes is 91; it must be a whole number from 0 to 90"),
        ("lanes", True, "settings.lanes is true"),
        ("holdSeconds", "900", 'settings.holdSeconds is "900"; it must be a whole number from 60'),
        ("locations", "a", 'settings.locations is "a"; it must be a list of 1 to 10 different loc'),
        ("locations", ["a", "", "a"], 'settings.locations is ["a", "", "a"]; it must be a list of'),
        ("locations", ["", "a#1"], 'settings.locations[1] is "a#1"; it must be 1 to 32 characters'),
        ("locations", ["berlin\n"], "settings.locations[0] is"),
        (
            "currency",
            5,
            "settings.currency is 5; it must be a code of ISO 4217 for a currency with",
        ),
        ("currency", "eur", "with minor units, such as EUR, or null; did you mean EUR?"),
        ("cors", ["*"], 'settings.cors[0] is "*"; it must be an origin'),
        ("cors", ["https://a.example/"], "must be an origin"),
        ("cors", ["https://a.example"], "settings.cors requires the setting jwt"),
        ("jwt", JWT, "settings.holdSeconds is null, but with the setting jwt, customers place"),
        ("jwt", {"issuer": "https://a.example"}, "settings.jwt.audience is missing"),
        ("jwt", JWT | {"issuer": "a.example"}, '"a.example"; it must be an https address'),
        ("jwt", JWT | {"operatorsClaim": {"name": "g", "value": "a b"}}, "it must be a word"),
        ("roles", ROLES, "settings.roles requires the setting jwt"),
        ("roles", {"claim": "g"}, "settings.roles.grants is missing"),
        ("roles", ROLES | {"grants": {}}, "must be an object with a list of permissions for each"),
        ("roles", ROLES | {"grants": {"a b": ["*"]}}, "for each role, whose name is a word"),
        ("roles", ROLES | {"grants": {"a": []}}, "grants.a is []; it must be a list of one or"),
        ("roles", ROLES | {"grants": {"a": ["x"]}}, 'grants.a[0] is "x"; it must be one of *, ord'),
        ("desk", DESK, "settings.desk requires the settings api and jwt"),
        ("desk", {"clientId": "a"}, "settings.desk.authorize is missing"),
        (
            "desk",
            DESK | {"token": "http://id.example"},
            "it must be an https address without ? and",
        ),
        ("desk", DESK | {"signOut": "https://id.example/?a=b"}, "an https address without ? and #"),
        ("desk", DESK | {"scope": "email"}, 'scope is "email"; it must be scopes that begin with'),
        (
            "desk",
            DESK | {"domain": {"name": "localhost"}},
            "settings.desk.domain.certificate is mi",
        ),
        ("customersMaySet", ["x"], 'customersMaySet[0] is "x"; it must be one of attributes, loc'),
        ("tableKey", "alias/aws/dynamodb", "must be the ARN of a KMS key"),
        ("functions", 3, "settings.functions is 3; it must be an object"),
        ("functions.place_orders.timeoutSeconds", 1000, "from 25 to 900"),
        ("queues.OrderQueueFifo.batchWindowSeconds", 1, "batchWindowSeconds is unknown"),
        ("queues.OrderQueueExpress.batchSize", 11, "it must be a whole number from 1 to 10"),
        ("warmThroughput.Products", {"readUnitsPerSecond": 1, "writeUnitsPerSecond": 1}, "12000"),
    ],
)
def test_the_error_for_a_wrong_setting_names_it(path, value, says):
    """The page docs/generated/settings.md lists the allowed values of every setting, and is checked."""
    with pytest.raises(SettingsError) as caught:
        Settings.from_context("dev", changed(path, value))
    assert says in str(caught.value)
