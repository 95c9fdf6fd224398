"""The CDK and make run with the project's own Python and Node, even if no environment is activated."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from local import ROOT, emulator, stack
from local.node import CDK, NODE, with_node
from operations.errors import UserError

Ended = subprocess.CompletedProcess[str]
APP = json.loads((ROOT / "cdk.json").read_text())["app"]


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path):
    """Make a folder with everything that the CDK needs to start the app, and a python3 on the PATH."""
    folder = tmp_path / "a check out"
    (folder / "infra").mkdir(parents=True)
    (folder / "infra" / "run_app.cjs").write_text((ROOT / "infra" / "run_app.cjs").read_text())
    script(tmp_path / "bin" / "python3", 'echo "of the PATH:" "$@"')
    return folder


def run(command: str | Sequence[str], **how: Any) -> Ended:
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)


def run_app(checkout: Path) -> Ended:
    """Start the app as the CDK does, with one command line for the system's shell."""
    environment = {name: value for name, value in os.environ.items() if name != "JSII_NODE"}
    environment["PATH"] = f"{checkout.parent / 'bin'}:{os.environ['PATH']}"
    return run(APP, shell=True, cwd=checkout, env=with_node(environment))


def test_the_cdk_runs_the_app_with_the_projects_own_environment_and_node(checkout):
    assert run_app(checkout).stdout == f"of the PATH: {checkout}/app.py\n", (
        "without an environment, the system's Python runs"
    )
    script(checkout / ".venv" / "bin" / "python", 'echo "own:" "$@" "$JSII_NODE"')
    assert run_app(checkout).stdout == f"own: {checkout}/app.py {NODE}\n"


def test_the_cdk_runs_on_the_node_of_the_environment(tmp_path):
    script(tmp_path / "node", "echo too old >&2; exit 1")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run([*CDK, "--version"], env=stack.cdk_environment(environment))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("ending", ["exit 3", "kill -9 $$"])
def test_a_failure_of_the_app_reaches_the_cdk(checkout, ending):
    script(checkout / ".venv" / "bin" / "python", f"echo why >&2; {ending}")
    done = run_app(checkout)
    assert done.returncode != 0
    assert done.stderr == "why\n"


def test_an_environment_without_the_cdk_is_told_what_to_do():
    done = run([sys.executable, "-I", "-S", "app.py"], cwd=ROOT)
    assert done.returncode == 1
    assert "has no aws_cdk: run `make setup`, or `pip install" in done.stderr
    assert "Traceback" not in done.stderr


def make(*arguments: str, folder: Path = ROOT, dry: Sequence[str] = ("--dry-run",)) -> Ended:
    """Run make, or list what it would run."""
    environment = {
        name: value
        for name, value in os.environ.items()
        # Drop variables of the make that runs the tests.
        if not name.startswith("MAKE") and name not in ("PYTHON", "STAGE")
    }
    return run(["make", *dry, *arguments], cwd=folder, env=environment)


def dry_run(*arguments: str) -> list[str]:
    """Return a function that lists the commands that make would run."""
    done = make(*arguments)
    done.check_returncode()
    return done.stdout.splitlines()


NO_NETWORK = {
    "pip": "WARNING: Retrying (Retry(total=4, connect=None, read=None)) after connection broken by\n"
    "ERROR: No matching distribution found for uv==1.2.3",
    "uv": "error: Request failed after 3 retries in 3.9s\n  cause: error sending request for url",
    "npm": "npm error code ENOTFOUND\nnpm error syscall getaddrinfo",
}


@pytest.fixture
def tools(tmp_path):
    """Make the tools folder of a checkout that is not set up, with tools that do nothing."""
    for name in ("Makefile", "requirements-dev.txt", "pyproject.toml", "package.json"):
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    (tmp_path / "package-lock.json").write_text("{}")
    (tmp_path / "node_modules").mkdir()
    folder = tmp_path / ".venv" / "bin"
    for tool in ("python", "uv", "npm"):
        script(folder / tool, "exit 0")
    return folder


@pytest.fixture
def setup(tmp_path, tools):
    """Return a function that sets up a checkout in which one tool fails, and returns the printed lines."""

    def run(failing, output):
        fails = f"cat >&2 <<'END'\n{output}\nEND\nexit 1"
        if failing == "pip":
            script(tools / "python", f'case "$*" in *" install "*) {fails}\n;; esac')
        else:
            script(tools / failing, f'case "$*" in *sync*|*ci*) {fails}\n;; esac')
        done = make("setup", "PYTHON=.venv/bin/python", folder=tmp_path, dry=())
        assert done.returncode == 2
        assert done.stdout == ""
        return [line for line in done.stderr.splitlines() if not line.startswith("Setting up")]

    return run


@pytest.mark.parametrize("tool", NO_NETWORK)
def test_without_a_network_the_setup_fails_with_one_sentence(setup, tool):
    said, by_make = setup(tool, NO_NETWORK[tool])
    registry = "the npm registry" if tool == "npm" else "PyPI"
    assert said.startswith(f"The setup cannot reach {registry}: connect to the network, or name a")
    assert by_make.startswith("make: ***")


def test_a_setup_that_fails_otherwise_says_why(setup):
    assert setup("uv", "no space left\non the disk")[:2] == ["no space left", "on the disk"]


def test_without_a_network_the_first_start_says_what_to_do(tmp_path, monkeypatch):
    def run(name, *_):
        if name == "emulator-install":
            raise UserError("emulator-install failed")

    monkeypatch.setattr(emulator, "VENV", tmp_path / "venv")
    monkeypatch.setattr(emulator, "run_logged", run)
    with pytest.raises(
        UserError, match=r"^emulator-install failed\n\n.*connect to the network, or"
    ):
        emulator.install()


@pytest.mark.parametrize("user", [0, 1000])
def test_a_missing_browser_is_installed_or_asked_for(tmp_path, tools, monkeypatch, user):
    script(tools / "python", 'case "$*" in *browser) echo "No browser: none" >&2; exit 1;; esac')
    script(tmp_path / "bin" / "id", f"echo {user}")
    script(tmp_path / "bin" / "apt-get", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    done = make("browser", "PYTHON=.venv/bin/python", folder=tmp_path, dry=())
    assert done.returncode == 0
    assert ("No browser: none" in done.stderr) is (user == 1000)
    assert ("Installing" in done.stdout) is (user == 0)


def test_make_runs_no_node_of_the_machine():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    found = re.findall(r"[^\s,]*\b(?:node|npm|npx|cdk) (?!registry)", re.sub("#.*", "", makefile))
    assert found == ["$(VENV)/bin/npm "]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["demo", "ORDERS=my orders.csv"], "demo --orders 'my orders.csv'"),
        (["up", "NO_SAMPLES=1"], "up --no-samples"),
        (["env"], "env"),
        (["env", "FORMAT=json"], "env --format 'json'"),
        (["deploy", "STAGE=prod", "YES=1"], "deploy --stage 'prod' --yes"),
        (["desk", "STAGE=team-a"], "desk --stage 'team-a'"),
        (["lanes", "EMPTY=1"], "lanes --empty --yes"),
        # On an account, it asks first.
        (["lanes", "EMPTY=1", "STAGE=dev"], "lanes --empty --stage 'dev'"),
    ],
)
def test_options_reach_the_commands(arguments, command):
    line = " ".join(dry_run(*arguments)[-1].split())
    assert line == f".venv/bin/inventory-orders {command}"


TOUCHES_AN_ACCOUNT = ("diff", "validate", "deploy", "diagnose", "destroy")


def test_a_stage_must_be_named_before_an_account_is_touched():
    lines = [line for line in dry_run(*TOUCHES_AN_ACCOUNT) if line.startswith("echo ")]
    assert [line.partition(" >&2; exit 2;")[0] for line in lines] == [
        f'echo "name a stage: make {target} STAGE=dev"' for target in TOUCHES_AN_ACCOUNT
    ]


def test_exactly_the_targets_that_use_the_stage_accept_it():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    recipes = re.findall(r"^([a-z]+):.*## .*\n((?:\t.*\n)*)", makefile, flags=re.MULTILINE)
    staged = [name for name, recipe in recipes if re.search(r"STAGED\)|OF_STAGE\)", recipe)]
    (accepting,) = re.findall(r"^OF_A_STAGE := (.*)", makefile, flags=re.MULTILINE)
    assert sorted(staged) == sorted(accepting.split())
    refused = make("demo", "STAGE=team-a")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "make demo takes no STAGE; these do: audit desk" in refused.stderr
