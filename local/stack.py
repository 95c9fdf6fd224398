"""Deploys the stack to the embedded AWS with the real CDK, and only when something changed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from local import ROOT, STATE, emulator
from local.dashboard import background
from local.emulator import Emulator
from local.endpoint import ACCOUNT, REGION, embedded_environment
from local.process import run_logged

STACK_NAME = "InventoryOrders-dev"
_RECORD = STATE / "emulator" / "deployed.json"
_INPUTS = (
    "app.py",
    "cdk.json",
    "package-lock.json",
    "requirements.txt",
    "infra",
    "functions",
    "layers",
)
_CDK = [str(ROOT / "node_modules" / ".bin" / "cdk"), "--no-notices", "--no-color", "--ci"]

Say = Callable[[str], None]


def up(say: Say, *, enforce_iam: bool = False) -> Emulator:
    """Start the embedded AWS and deploy the stack, where that is not so already.

    Args:
        say: Told in a few words what is about to be done.
        enforce_iam: If it has to be started: hold every function to its role, as AWS does.
    """
    with emulator.exclusive():
        found = emulator.running()
        if found is None:
            background.stop()
            emulator.stop()
            say("Starting the embedded AWS")
            found = emulator.start(enforce_iam=enforce_iam)
        wanted = {"emulator": asdict(found), "inputs": _fingerprint()}
        if _deployed() != wanted:
            _deploy(found, say, first=_deployed().get("emulator") != asdict(found))
            _RECORD.write_text(json.dumps(wanted), "utf-8")
        return found


def down() -> bool:
    """Stop the embedded AWS, and the dashboard with it. Returns whether it was running."""
    with emulator.exclusive():
        background.stop()
        _RECORD.unlink(missing_ok=True)
        return emulator.stop()


def _deploy(target: Emulator, say: Say, *, first: bool) -> None:
    environment = cdk_environment(embedded_environment(target.endpoint))
    assembly = STATE / "cdk.out-embedded"
    shutil.rmtree(assembly, ignore_errors=True)
    synth = [*_CDK, "synth", "--quiet", "--output", str(assembly), "-c", "stage=dev"]
    bootstrap = [*_CDK, "bootstrap", f"aws://{ACCOUNT}/{REGION}"]
    # Neither needs the other, so they share the two cores.
    with ThreadPoolExecutor(2) as pool:
        say(
            "Synthesising the stack (cdk synth)"
            + (" and bootstrapping (cdk bootstrap)" if first else "")
        )
        jobs = [pool.submit(run_logged, "cdk-synth", synth, environment)]
        if first:
            # Outside the project's folder there is no app to synthesise for it.
            jobs.append(
                pool.submit(run_logged, "cdk-bootstrap", [*bootstrap, "--app", ""], environment)
            )
        for job in jobs:
            job.result()
    say("Deploying the stack (cdk deploy)")
    run_logged(
        "cdk-deploy",
        [*_CDK, "deploy", "--app", str(assembly), "--require-approval", "never", "--all"],
        environment,
    )


def cdk_environment(environment: dict[str, str]) -> dict[str, str]:
    """What the CDK needs besides: our Python first on the PATH, a folder of its own, and silence."""
    return {
        name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"
    } | {
        "PATH": f"{ROOT / '.venv' / 'bin'}:{environment.get('PATH', '')}",
        "CDK_HOME": str(STATE / "cdk-home"),
        "CDK_DISABLE_CLI_TELEMETRY": "1",
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
    }


def _deployed() -> dict[str, object]:
    try:
        record: dict[str, object] = json.loads(_RECORD.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return record


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for name in _INPUTS:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()
