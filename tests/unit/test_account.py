"""Commands for an account: what is missing is said in one line, before the CDK begins."""

import os
import subprocess

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws
from typer.testing import CliRunner

from cli import operators
from cli.common import checked_stage, stack_name
from cli.main import app
from infra.settings import Settings, SettingsError
from operations.account import AwsAccount
from operations.errors import UserError
from tests.support.template import SETTINGS

STAGED = ("diff", "deploy", "destroy")
ON_ACCOUNT = (
    ["bootstrap"],
    *([command, "--stage", "live"] for command in STAGED),
    *([command, "--account", "live"] for command in ("status", "audit", "redrive")),
)


@pytest.fixture
def cdk(monkeypatch):
    """The calls of the CDK, which is not run."""
    calls = []

    def run(command, **options):
        calls.append((command[1:], options["env"]))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(operators.subprocess, "run", run)
    return calls


def refused(arguments, **options):
    error = CliRunner().invoke(app, arguments, **options).exception
    assert isinstance(error, UserError)
    assert "\n" not in str(error)
    return str(error)


@pytest.mark.parametrize("arguments", ON_ACCOUNT, ids=lambda arguments: arguments[0])
def test_missing_credentials_are_said_at_once(cdk, monkeypatch, arguments):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert refused(arguments).startswith("there are no AWS credentials: set AWS_PROFILE, or")
    assert cdk == []


@pytest.mark.parametrize("arguments", ON_ACCOUNT, ids=lambda arguments: arguments[0])
def test_a_missing_region_is_said_at_once(cdk, monkeypatch, arguments):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert refused(arguments).startswith("there is no AWS region: set AWS_REGION")
    assert cdk == []


@pytest.mark.parametrize("arguments", ON_ACCOUNT, ids=lambda arguments: arguments[0])
def test_an_endpoint_on_this_machine_is_refused(cdk, monkeypatch, arguments):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4566")
    assert "points at this machine" in refused(arguments)
    assert cdk == []


def test_an_unknown_profile_is_named(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(UserError, match="nobody"):
        AwsAccount.of_environment()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ClientError({"Error": {"Code": "ExpiredToken", "Message": "It is over"}}, "X"),
            r"does not accept these credentials \(ExpiredToken: It is over\): renew them",
        ),
        (EndpointConnectionError(endpoint_url="https://sts"), "cannot be asked whose credentials"),
    ],
)
def test_credentials_that_aws_refuses_are_said_before_synthesis(cdk, monkeypatch, error, says):
    def fail(*_):
        raise error

    monkeypatch.setattr(BaseClient, "_make_api_call", fail)
    with pytest.raises(UserError, match=says):
        CliRunner().invoke(app, ["deploy", "--stage", "dev"], catch_exceptions=False)
    assert cdk == []


@mock_aws
def test_account_and_region_are_shown_and_the_cdk_gets_the_same_region(cdk, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    done = CliRunner().invoke(app, ["deploy", "--stage", "team-a-live"])
    assert "deploy: InventoryOrders-team-a-live on account 123456789012, eu-west-1" in done.stderr
    ((arguments, environment),) = cdk
    assert arguments == ["--no-notices", "deploy", "-c", "stage=team-a-live"]
    assert environment["AWS_REGION"] == environment["AWS_DEFAULT_REGION"] == "eu-west-1"


@mock_aws
def test_bootstrap_names_its_place_and_synthesises_nothing(cdk):
    assert CliRunner().invoke(app, ["bootstrap"]).exit_code == 0
    ((arguments, _),) = cdk
    assert arguments[1:] == ["bootstrap", "aws://123456789012/us-east-1", "--app", ""]


@mock_aws
@pytest.mark.parametrize(("answer", "called"), [("n\n", 0), ("y\n", 1)])
def test_destroy_asks_first_and_says_what(cdk, answer, called):
    done = CliRunner().invoke(app, ["destroy", "--stage", "live"], input=answer)
    assert "Destroy InventoryOrders-live on account 123456789012, us-east-1?" in done.stdout
    assert len(cdk) == called


def test_synth_needs_no_account(cdk, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    done = CliRunner().invoke(app, ["synth", "--stage", "live"])
    assert done.stdout == ".local/cdk.out/InventoryOrders-live.template.json\n"
    assert cdk[0][0] == ["--no-notices", "synth", "--quiet", "-c", "stage=live"]


@pytest.mark.parametrize(
    "stage", ["dev", "prod", "x" * 20, "x" * 21, "Live", "", "a b", "a\n", "-"]
)
def test_the_commands_and_the_settings_know_the_same_stages(stage):
    try:
        expected = Settings.from_context(stage, SETTINGS).stack_name
    except SettingsError:
        with pytest.raises(operators.typer.BadParameter, match="1 to 20 lowercase letters"):
            checked_stage(stage)
    else:
        assert stack_name(checked_stage(stage)) == expected
