"""The code assets of layer and functions, built without Docker and without a network.

The layer's dependencies are copied from the environment that runs the CDK app, where they were installed from pinned
and hashed requirements. All of it is pure Python, so one asset serves every architecture.

The CDK sets the date of every file in an asset to 1980. That makes ordinary bytecode stale, so Python would compile
everything at every cold start. Therefore the bytecode is compiled here, by an interpreter of the runtime's version and
with `unchecked-hash`, which ignores dates. If there is no such interpreter, the asset holds source only.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BUILD = ROOT / ".local" / "assets"
_CORE = ROOT / "layers" / "core"


class AssetError(Exception):
    """An asset cannot be built; the message says what to do."""


@dataclass(frozen=True)
class Asset:
    """A folder to deploy, and the digest of everything that it is built from."""

    path: Path
    digest: str


def layer(runtime: str) -> Asset:
    """Build the shared layer: a folder `python/` with the service's package and its dependencies."""
    distributions = [
        _installed(name, version)
        for name, version in pinned(_CORE / "requirements.txt", runtime).items()
    ]
    names = [f"{found.name}=={found.version}" for found in distributions]

    def fill(target: Path) -> None:
        for found in distributions:
            _copy_distribution(found, target / "python")
        _copy_sources(_CORE / "python", target / "python")

    return _build("layer-core", runtime, _sources(_CORE), names, fill)


def function(name: str, runtime: str) -> Asset:
    """Build the code of one function from its folder."""
    folder = ROOT / "functions" / name
    return _build(
        f"function-{name}",
        runtime,
        _sources(folder),
        [],
        lambda target: _copy_sources(folder, target),
    )


def pinned(requirements: Path, runtime: str) -> dict[str, str]:
    """Read the versions that a requirements file pins, by name, without lines for other Python versions."""
    minor = int(runtime.removeprefix("python3."))
    pins = {}
    for line in requirements.read_text("utf-8").splitlines():
        match = re.match(
            r"([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*python_full_version < '3\.(\d+)')?", line
        )
        if match and (match[3] is None or minor < int(match[3])):
            pins[match[1]] = match[2]
    return pins


def _installed(name: str, version: str) -> importlib.metadata.Distribution:
    advice = "run `pip install --require-hashes -r requirements.txt` in the environment that runs the CDK"
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise AssetError(f"{name} {version} is not installed; {advice}") from None
    if found.version != version:
        raise AssetError(f"{name} is installed as {found.version}, not {version}; {advice}")
    return found


def _copy_distribution(found: importlib.metadata.Distribution, target: Path) -> None:
    for file in found.files or ():
        if file.suffix in (".so", ".pyd", ".dylib"):
            raise AssetError(
                f"{found.name} is not pure Python ({file}); it cannot go into the layer"
            )
        # Files about this installation differ from machine to machine. Licences and metadata are kept.
        skipped = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"}
        if ".." in file.parts or "__pycache__" in file.parts or file.name in skipped:
            continue
        destination = target / file
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(found.locate_file(file)), destination)


def _sources(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )


def _copy_sources(source: Path, target: Path) -> None:
    shutil.copytree(
        source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )


def _build(
    name: str,
    runtime: str,
    sources: Iterable[Path],
    extra: Iterable[str],
    fill: Callable[[Path], None],
) -> Asset:
    """Build an asset, unless it exists already."""
    interpreter = _interpreter(runtime)
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sources:
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    compiled = "compiled" if interpreter else "source"
    digest.update("\0".join([runtime, compiled, *extra]).encode())
    asset = Asset(_BUILD / f"{name}-{digest.hexdigest()[:16]}", digest.hexdigest())
    if asset.path.is_dir():
        return asset

    _BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_BUILD) as scratch:
        target = Path(scratch) / "asset"
        target.mkdir()
        fill(target)
        if interpreter:
            _compile(interpreter, target)
        try:
            target.rename(asset.path)
        except OSError:
            # Another process has built the same asset in the meantime.
            if not asset.path.is_dir():
                raise
    return asset


def _compile(interpreter: str, folder: Path) -> None:
    subprocess.run(
        [interpreter, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "."],
        cwd=folder,
        check=True,
        env=_PLAIN_ENVIRONMENT,
    )


@functools.cache
def _interpreter(runtime: str) -> str | None:
    """Find an interpreter of the runtime's version that runs; None if there is none."""
    version = runtime.removeprefix("python")
    folders = [Path(folder) for folder in os.get_exec_path()]
    # pyenv does not put inactive versions on the PATH.
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders += sorted(pyenv.glob(f"versions/{version}*/bin"))
    candidates = [Path(sys.executable), *(folder / runtime for folder in folders)]
    for candidate in candidates:
        if candidate.is_file() and _version(str(candidate)) == version:
            return str(candidate)
    return None


def _version(interpreter: str) -> str | None:
    try:
        answer = subprocess.run(
            [interpreter, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
            env=_PLAIN_ENVIRONMENT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


# PYTHONDONTWRITEBYTECODE, PYTHONPATH and the like would change the result.
_PLAIN_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
}
