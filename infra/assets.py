"""The code assets of the layer and functions, built without Docker or network.

The layer's dependencies are copied from the environment that runs the CDK app, which installs them from pinned
and hashed requirements. They are all pure Python, so one asset fits every architecture.

The CDK sets the date of every file in an asset to 1980. This makes ordinary bytecode stale, so Python would compile
everything at every cold start. Therefore the bytecode is compiled here, with an interpreter of the runtime's version and
with `unchecked-hash`, which ignores dates. Without such an interpreter, assets contain only source code, and the CDK warns.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.resources
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import inventory_orders

if TYPE_CHECKING:
    from constructs import Construct

_HERE = Path(__file__).resolve().parent
ROOT = _HERE.parent
"""The root of the checkout. In an installed package, this path has no meaning."""
_DATA = _HERE / "data"
"""The functions and the layer's dependencies in an installed package, copied there by `wheel.py`."""
OF_THE_CHECKOUT = ROOT / ".local" / "assets"
"""Where the next synthesis finds them."""
REQUIREMENTS = ROOT / "layers" / "core" / "requirements.txt"
# Over half of the layer's files, and browser pages. The embedded AWS unpacks all files at each cold start.
_UNUSED_OF_POWERTOOLS = re.compile(
    r"aws_lambda_powertools/(event_handler|middleware_factory|utilities/(?!jmespath_utils/|typing/)\w+)/"
)
_UNUSED_SECONDS = 7 * 24 * 3600
"""Building an asset deletes earlier versions unused for this many seconds. The CDK has copies of deployed assets."""


class AssetError(Exception):
    """An asset cannot be built. The message says what to do."""


@dataclass(frozen=True)
class Asset:
    """A folder with the code of a layer or a function, ready to be deployed.

    Attributes:
        path: The folder.
        digest: A digest of everything that the asset is built from.
        compiled: Whether the folder contains bytecode.
    """

    path: Path
    digest: str
    compiled: bool


def build_folder(scope: Construct) -> Path:
    """Choose the folder in which assets are built: an installed package uses the app's output folder, a checkout its own."""
    if _DATA.is_dir():
        from aws_cdk import Stage  # noqa: PLC0415 - slow to import, and the wheel is built without it

        return Path(Stage.of(scope).asset_outdir) / "inventory-orders"  # type: ignore[union-attr]
    return OF_THE_CHECKOUT


def layer(runtime: str, folder: Path = OF_THE_CHECKOUT) -> Asset:
    """Build the shared layer: a folder `python/` with the service's package and its dependencies."""
    vendored = _DATA / "vendored"
    files = sources(vendored, "python/") if _DATA.is_dir() else dependencies(runtime, "python/")
    package = Path(str(importlib.resources.files(inventory_orders)))
    # In an installed package, it also has the client and the test kit, which no function uses.
    of_layer = sources(package).items()
    files |= {
        f"python/inventory_orders/{name}": file
        for name, file in of_layer
        if not name.startswith(("client/", "testing/"))
    }
    return _build("layer-core", runtime, files, folder)


def function(
    name: str, runtime: str, folder: Path = OF_THE_CHECKOUT, more: Mapping[str, Path] | None = None
) -> Asset:
    """Build the code of one function from its folder, and from more files, by their path in the asset."""
    home = _DATA if _DATA.is_dir() else ROOT
    files = sources(home / "functions" / name) | {**(more or {})}
    return _build(f"function-{name}", runtime, files, folder)


def dependencies(runtime: str, prefix: str = "") -> dict[str, Path]:
    """List the installed files of the layer's dependencies, by their path in the layer."""
    files: dict[str, Path] = {}
    for name, version in pinned(REQUIREMENTS, runtime).items():
        files |= _files_of(_installed(name, version), prefix)
    return files


def pinned(requirements: Path, runtime: str) -> dict[str, str]:
    """Read which version of each package a requirements file pins for this version of Python."""
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


def _files_of(found: importlib.metadata.Distribution, prefix: str) -> dict[str, Path]:
    """List the files of an installed distribution, by their path in the asset."""
    files = {}
    for file in found.files or ():
        if file.suffix in (".so", ".pyd", ".dylib"):
            raise AssetError(
                f"{found.name} is not pure Python ({file}); it cannot go into the layer"
            )
        # Metadata about the installation differs between machines. Licences and other metadata are kept.
        skipped = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"}
        if ".." in file.parts or "__pycache__" in file.parts or file.name in skipped:
            continue
        if _UNUSED_OF_POWERTOOLS.match(file.as_posix()):
            continue
        files[f"{prefix}{file.as_posix()}"] = Path(str(found.locate_file(file)))
    return files


def sources(folder: Path, prefix: str = "") -> dict[str, Path]:
    """List the files below a folder, by their path in the asset."""
    return {
        f"{prefix}{path.relative_to(folder).as_posix()}": path
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _build(name: str, runtime: str, files: Mapping[str, Path], folder: Path) -> Asset:
    """Build an asset from the given files, unless it already exists. The files' keys are their paths in the asset.

    The digest covers everything that determines the result: every file's path and bytes, this module, which sets the modes, and
    whether the asset is compiled. It leaves out owners, dates, modes and links of the sources, and the compiler's patch
    version, because all patches of a minor version read the same bytecode. So all machines that can compile get the same
    digest, and do not redeploy each other's code.
    """
    interpreter = _interpreter(runtime)
    compiled = "compiled" if interpreter else "source only"
    digest = hashlib.sha256(Path(__file__).read_bytes() + f"{runtime}\0{compiled}\0".encode())
    for place in sorted(files):
        content = hashlib.sha256(files[place].read_bytes()).hexdigest()
        digest.update(f"{place}\0{content}\0".encode())
    hexadecimal = digest.hexdigest()
    asset = Asset(folder / f"{name}-{hexadecimal[:16]}", hexadecimal, interpreter is not None)
    if asset.path.is_dir():
        os.utime(asset.path)
        return asset

    _delete_unused(name, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        target = Path(scratch) / "asset"
        for place, source in files.items():
            destination = target / place
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, destination)
        if interpreter:
            _compile(interpreter, target)
        _make_readable(target)
        try:
            target.rename(asset.path)
        except OSError:
            # Another process has built the same asset in the meantime.
            if not asset.path.is_dir():
                raise
    return asset


def _delete_unused(name: str, folder: Path) -> None:
    for asset in folder.glob(f"{name}-{'?' * 16}"):
        # Another process may delete it at the same time.
        with contextlib.suppress(FileNotFoundError):
            if time.time() - asset.stat().st_mtime > _UNUSED_SECONDS:
                shutil.rmtree(asset)


def _make_readable(folder: Path) -> None:
    """Make the files readable for all users, whatever the umask. The CDK uploads modes, and Lambda reads files as another user.

    repost.aws/knowledge-center/lambda-deployment-package-errors: 644 for files, 755 for folders.
    """
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _compile(interpreter: str, folder: Path) -> None:
    subprocess.run(
        [interpreter, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "."],
        cwd=folder,
        check=True,
        env=_PLAIN_ENVIRONMENT,
    )


@functools.cache
def _interpreter(runtime: str) -> str | None:
    """Find a Python interpreter of the runtime's version on this machine, if there is one."""
    minor = runtime.removeprefix("python")
    folders = [Path(folder) for folder in os.get_exec_path()]
    # pyenv does not add inactive versions to the PATH.
    pyenv = Path(os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv"))
    folders += sorted(pyenv.glob(f"versions/{minor}*/bin"))
    for candidate in (Path(sys.executable), *(folder / runtime for folder in folders)):
        version = _version(str(candidate)) if candidate.is_file() else None
        # Not a pre-release of the runtime's version, whose bytecode may differ.
        if version and re.fullmatch(rf"{re.escape(minor)}\.\d+", version):
            return str(candidate)
    return None


def _version(interpreter: str) -> str | None:
    try:
        answer = subprocess.run(
            [interpreter, "-c", "import platform; print(platform.python_version())"],
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
