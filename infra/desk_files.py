"""Builds the files of the desk: one script and one style sheet for all pages, with digests in their names."""

from __future__ import annotations

import gzip
import hashlib
import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .assets import ROOT, AssetError

PAGE = "page.html"
"""The only page, which loads the other files."""

_SOURCES = ROOT / "local" / "desk" / "page"
_MODULES = ROOT / "node_modules"
_DATA = Path(__file__).resolve().parent / "data" / "desk"
"""The built files in an installed package, copied there by `wheel.py`."""
# The page and the manifest name the other files, so they come last.
_STATIC = ("icon.svg", "icon-192.png", "icon-512.png", "manifest.webmanifest", PAGE)
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
_COMPRESSED = {".png"}


@dataclass(frozen=True)
class DeskFile:
    """A file of the desk as it is sent.

    Attributes:
        headers: The headers that describe it: its type, encoding, and how long it may be cached.
        content: Its bytes, in that encoding.
    """

    headers: dict[str, str]
    content: bytes


def desk_files() -> dict[str, DeskFile]:
    """Return the files of the desk by name. Except for `PAGE`, each has a digest in its name, and never changes.

    Raises:
        AssetError: They cannot be built, or this package was built without them. The message says what to do.
    """
    return {name: _sent(name, content) for name, content in built().items()}


@cache
def built() -> dict[str, bytes]:
    """Return the content of the desk's files by name, as they are in the package or as the sources are now.

    Raises:
        AssetError: As above.
    """
    if not _SOURCES.is_dir():
        if not _DATA.is_dir():
            raise AssetError("this package was built without the desk: build it with `make wheel`")
        return {path.name: path.read_bytes() for path in _DATA.iterdir()}
    files = _bundles()
    names = {re.sub(r"-[0-9A-Z]{8}\.", ".", name): name for name in files}
    for source in _STATIC:
        content = (_SOURCES / source).read_bytes()
        for name, hashed in names.items():
            content = content.replace(f'"{name}"'.encode(), f'"{hashed}"'.encode())
        names[source] = _hashed(source, content)
        files[names[source]] = content
    return files


def can_build() -> bool:
    """Whether the tools to build the files are installed here."""
    return _esbuild() is not None


def run_esbuild(*arguments: str) -> str:
    """Run esbuild in the folder of the sources, and return what it prints.

    Raises:
        AssetError: It is not installed, or fails.
    """
    esbuild = _esbuild()
    if esbuild is None:
        raise AssetError(f"esbuild is not in {_MODULES}: run `npm ci`, or `make setup`")
    done = subprocess.run(
        [esbuild, *arguments, "--log-level=error"],
        cwd=_SOURCES,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssetError(f"the desk cannot be built: {done.stderr.strip()}")
    return done.stdout


def _bundles() -> dict[str, bytes]:
    """Bundle all scripts into one, and all style sheets into another."""
    with tempfile.TemporaryDirectory() as out:
        options = ("--bundle", "--minify", "--format=esm", "--entry-names=[name]-[hash]")
        run_esbuild("app.js", "page.css", *options, f"--outdir={out}")
        return {path.name: path.read_bytes() for path in Path(out).iterdir()}


def _esbuild() -> Path | None:
    """Find the program for this platform. Its package is the only one of its kind that npm installs."""
    return next(_MODULES.glob("@esbuild/*/bin/esbuild"), None)


def _hashed(name: str, content: bytes) -> str:
    if name == PAGE:
        return name
    path = Path(name)
    return f"{path.stem}-{hashlib.sha256(content).hexdigest()[:8].upper()}{path.suffix}"


def _sent(name: str, content: bytes) -> DeskFile:
    suffix = Path(name).suffix
    cached = "no-cache" if name == PAGE else "public, max-age=31536000, immutable"
    headers = {"Content-Type": _KINDS[suffix], "Cache-Control": cached}
    if suffix in _COMPRESSED:
        return DeskFile(headers, content)
    return DeskFile(headers | {"Content-Encoding": "gzip"}, gzip.compress(content, mtime=0))
