"""Deploys the stack to the embedded AWS with the real CDK, if anything has changed."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from local import ROOT, STATE, emulator, tokens
from local.desk import background
from local.emulator import Emulator, locked
from local.endpoint import ACCOUNT, REGION, embedded_environment
from local.node import CDK, with_node
from local.process import run_logged
from operations.errors import UserError

STACK_NAME = "InventoryOrders-dev"
SETTINGS: dict[str, object] = {
    # The default of a minute is long for someone who is trying the stack.
    "holdGraceSeconds": 3,
    # For the tokens from `inventory-orders tokens`. The samples place orders without a hold.
    "jwt": tokens.SETTING,
    "roles": tokens.ROLES,
    "desk": tokens.DESK,
    "allowEndlessHolds": True,
    # The demo and the dashboard show all metrics, which cost nothing here.
    "monitoring": "full",
    # The embedded AWS runs the functions in this version, and cannot read another version's bytecode.
    "runtime": f"python3.{min(sys.version_info.minor, 14)}",
}
"""Settings of the embedded AWS that differ from cdk.json."""

_DEPLOYMENT = STATE / "emulator" / "deployed.json"
# Exists while the data of the embedded AWS began without the sample products.
_NO_SAMPLES = STATE / "emulator" / "no-samples"
_INPUTS = (
    "app.py",
    "cdk.json",
    "package-lock.json",
    "requirements.txt",
    "infra",
    "functions",
    "layers",
)
# All embedded AWS of this checkout share this folder, because synthesis is the slowest part of a deployment.
_ASSEMBLIES = ROOT / ".local" / "assemblies"
_CDK = [*CDK, "--no-color", "--ci"]

Report = Callable[[str], None]


def up(report: Report, *, enforce_iam: bool = False, samples: bool = True) -> Emulator:
    """Start the embedded AWS if it is not running, and deploy the stack if it has changed.

    Args:
        report: Called with the name of each step before it starts.
        enforce_iam: Let functions do only what their roles allow, as on AWS. Ignored if the embedded AWS is already running.
        samples: Whether `has_samples` is true of new data. It stays the same for running and kept data.

    Raises:
        UserError: `samples` is false, but the running or kept data has them.
    """
    with emulator.exclusive():
        found = emulator.running()
        kept = emulator.is_kept() and not enforce_iam
        if not samples and (found or kept) and has_samples():
            raise UserError(
                "the embedded AWS was started with the sample products; to start without them, delete its data with `make down`"
            )
        if found is None:
            background.stop()
            emulator.stop(keep=kept)
            report("Starting the embedded AWS" + (" with the kept data" if kept else ""))
            found = emulator.start(enforce_iam=enforce_iam)
            if kept:
                _note(_deployed() | {"emulator": asdict(found)})
            elif samples:
                _NO_SAMPLES.unlink(missing_ok=True)
            else:
                _NO_SAMPLES.touch()
        wanted = {"emulator": asdict(found), "inputs": _fingerprint()}
        if _deployed() != wanted:
            _deploy(found, report, first=_deployed().get("emulator") != asdict(found))
            _note(wanted)
        return found


def has_samples() -> bool:
    """Whether the data of the embedded AWS includes the sample products."""
    return not _NO_SAMPLES.is_file()


def down(*, keep: bool = False, report: Report = lambda _: None) -> bool:
    """Stop the embedded AWS and the desk. Returns whether the embedded AWS was running.

    Args:
        keep: Keep the data of the embedded AWS for the next `up`; otherwise it is deleted.
        report: Called with the name of each step.
    """
    with emulator.exclusive():
        background.stop()
        if not keep:
            _DEPLOYMENT.unlink(missing_ok=True)
        return emulator.stop(keep=keep, report=report)


def _deploy(target: Emulator, report: Report, *, first: bool) -> None:
    environment = cdk_environment(embedded_environment(target.endpoint))
    bootstrap = [*_CDK, "bootstrap", f"aws://{ACCOUNT}/{REGION}"]
    # These steps are independent, so they run in parallel.
    with ThreadPoolExecutor(2) as pool:
        report(
            "Synthesising the stack (cdk synth)"
            + (" and bootstrapping (cdk bootstrap)" if first else "")
        )
        synthesis = pool.submit(_synthesise, environment)
        if first:
            # `--app` is empty, because otherwise the CDK would synthesise the stack for this command, too.
            run_logged("cdk-bootstrap", [*bootstrap, "--app", ""], environment)
        assembly = synthesis.result()
    report("Deploying the stack (cdk deploy)")
    deploy(target, assembly)


def deploy(target: Emulator, assembly: Path) -> None:
    """Deploy a synthesised stack."""
    # A change set would take a third of the time, and is not reviewed here.
    options = ["--require-approval=never", "--method=direct", "--all"]
    run_logged(
        "cdk-deploy",
        [*_CDK, "deploy", "--app", str(assembly), *options],
        cdk_environment(embedded_environment(target.endpoint)),
    )


def _synthesise(environment: dict[str, str]) -> Path:
    """Synthesise the stack, unless this was done before with the same inputs. Return the folder of the assembly.

    All embedded AWS instances of this checkout share it, so only one command creates it.
    """
    assembly = _ASSEMBLIES / _fingerprint()[:16]
    _ASSEMBLIES.parent.mkdir(parents=True, exist_ok=True)
    with locked(_ASSEMBLIES.with_suffix(".lock")):
        if not assembly.is_dir():
            # Delete the assemblies of earlier inputs, which take 6 MB each.
            shutil.rmtree(_ASSEMBLIES, ignore_errors=True)
            _ASSEMBLIES.mkdir()
            draft = _ASSEMBLIES / "draft"
            synth = [*_CDK, "synth", "--quiet", "--output", str(draft), "-c", "stage=dev"]
            synth += ["-c", f"overrides={json.dumps(SETTINGS)}"]
            # Skip the CDK's validation: it takes longer than the synthesis, and checks rules that do not matter to the embedded AWS.
            run_logged("cdk-synth", synth, {**environment, "CDK_VALIDATION": "false"})
            draft.rename(assembly)
    return assembly


def cdk_environment(environment: dict[str, str]) -> dict[str, str]:
    """Prepare a copy of an environment for the CDK, with Node.js, a folder for its cache, and no telemetry."""
    return {
        name: value
        for name, value in with_node(environment).items()
        if name != "PYTHONDONTWRITEBYTECODE"
    } | {
        "CDK_HOME": str(STATE / "cdk-home"),
        "CDK_DISABLE_CLI_TELEMETRY": "1",
    }


def _note(deployment: Mapping[str, object]) -> None:
    _DEPLOYMENT.write_text(json.dumps(deployment), "utf-8")


def _deployed() -> dict[str, object]:
    try:
        deployment: dict[str, object] = json.loads(_DEPLOYMENT.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return deployment


def _fingerprint() -> str:
    digest = hashlib.sha256(json.dumps(SETTINGS).encode())
    for name in _INPUTS:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()
